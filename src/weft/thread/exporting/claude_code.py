"""A branch as a session file that Claude Code can resume.

Lines that came in go out as the same bytes. Only a line that follows one which is gone is given
another parent: the nearest line above it that is still there. New messages get lines of their
own, with ids made from the thread's, in the words of the line before them (session, folder,
version), so that `claude --resume` goes on from the last one. A summary that the conversation now
begins with is told as Claude Code tells its own: a boundary, and a line that says what it is.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
from msgspec import Struct, field

from weft.history import Row
from weft.ids import Id, object_id
from weft.model import JsonObject, Message, is_system
from weft.thread import formats
from weft.thread.handle import Handle
from weft.thread.importing.lines import join_lines, read_object

from .journal import Gone, Journal, New, Old, Piece, read_journal

FORMAT = "claude-code"
ENVELOPE = ("isSidechain", "userType", "cwd", "sessionId", "version", "gitBranch", "slug")
LEAF = "leafUuid"


def write_claude_code(handle: Handle) -> bytes:
    """The branch as Claude Code's own JSON lines."""
    journal = read_journal(handle, FORMAT)
    if journal.is_untouched:
        return join_lines(piece.line.text for piece in journal.pieces if isinstance(piece, Old))
    return join_lines(_Writer(handle.name, journal).lines())


class _Writer(Struct):
    """The one pass over a journal; `instead` says whom to follow in place of a line."""

    thread: str
    journal: Journal
    instead: dict[str, str | None] = field(default_factory=dict[str, str | None])
    written: set[str] = field(default_factory=set[str])
    envelope: JsonObject = field(default_factory=dict[str, Any])
    begun: bool = False
    tip: str | None = None
    early: list[str] = field(default_factory=list[str])
    slot: Id | None = None

    def lines(self) -> list[str]:
        for piece in reversed(self.journal.pieces):
            self._foresee(piece)
        texts: list[str] = []
        for piece in self.journal.pieces:
            match piece:
                case Old():
                    texts.append(self._old(piece))
                case New():
                    texts.append(self._new(piece))
                case Gone():
                    texts.append(self._beside(piece.line.text))
        return texts

    def _foresee(self, piece: Piece) -> None:
        """Know what is gone before anything follows it, and how the session's lines begin."""
        if isinstance(piece, New):
            return
        value = _read(piece.line.text)
        if value is None or not isinstance(value.get("uuid"), str):
            return
        if isinstance(piece, Gone):
            self.instead[value["uuid"]] = value.get("parentUuid") or value.get("logicalParentUuid")
        if piece.line.is_turn:
            self.envelope = value

    def _beside(self, text: str) -> str:
        """Of what is gone, lines outside the chain stay: they say nothing to a model."""
        value = _read(text)
        return "" if value is None or "uuid" in value else self._pointing(text, value)

    def _old(self, piece: Old) -> str:
        text = piece.line.text
        value = _read(text)
        if value is None:
            return text
        uuid = value.get("uuid")
        if not isinstance(uuid, str):
            return self._pointing(text, value)
        if piece.edited is not None and piece.slot == self.slot:  # said whole by its first line
            self.instead[uuid] = self.tip
            return ""
        wanted = self._parent(value, piece)
        changes: JsonObject = {}
        if wanted != value.get("parentUuid"):
            changes["parentUuid"] = wanted
        if piece.edited is not None:
            changes["message"] = {**value["message"], **_said(piece.edited)}
        self.written.add(uuid)
        if piece.line.is_turn and not value.get("isSidechain"):
            self.envelope, self.tip, self.begun = value, uuid, True
        elif self.tip is None and not value.get("isSidechain"):
            self.early.append(uuid)
        if piece.line.is_turn:
            self.slot = piece.slot
        return _changed(text, value, changes)

    def _parent(self, value: JsonObject, piece: Old) -> str | None:
        """Whom a line follows now."""
        if self.journal.moved and piece.line.is_turn:
            return self.tip
        parent = value.get("parentUuid")
        if isinstance(parent, str):
            return self._standing(parent)
        # something new may stand before the first turn; a sidechain begins by itself
        return parent if self.begun or value.get("isSidechain") else self.tip

    def _standing(self, uuid: str | None) -> str | None:
        """The line itself, or what stands in its place; the last turn where nothing does."""
        seen: set[str] = set()
        while uuid is not None and uuid in self.instead and uuid not in seen:
            seen.add(uuid)
            uuid = self.instead[uuid]
        return uuid if uuid in self.written else self.tip

    def _pointing(self, text: str, value: JsonObject) -> str:
        """A line that names the conversation's end names one that is there."""
        leaf = value.get(LEAF)
        if not isinstance(leaf, str) or leaf not in self.instead:
            return text
        return _changed(text, value, {LEAF: self._standing(leaf)})

    def _new(self, piece: New) -> str:
        """A message in a line of its own, between its neighbours."""
        uuid = str(UUID(bytes=piece.slot[:16], version=4))
        said = _said(piece.message)
        if said["role"] == "assistant":
            said = _answer(piece, said)
        boundary = self._boundary(piece) if piece.opens else {}
        value = self._line(boundary.get("uuid", self.tip), said["role"])
        value["message"] = said
        if piece.opens:
            value |= {"isVisibleInTranscriptOnly": True, "isCompactSummary": True}
        if is_system(piece.message):
            value["isMeta"] = True
        value |= {"uuid": uuid, "timestamp": _stamp(piece.created)}
        for above in self.early if self.tip is None else [self.tip]:
            self.instead[above] = uuid
            self.written.discard(above)
        self.written.add(uuid)
        self.tip = uuid
        return "".join(orjson.dumps(line).decode() + "\n" for line in (boundary, value) if line)

    def _line(self, parent: str | None, kind: str) -> JsonObject:
        """How a line begins."""
        begun: JsonObject = {"parentUuid": parent, "isSidechain": False}
        return begun | _envelope(self.envelope, self.thread) | {"type": kind}

    def _boundary(self, piece: New) -> JsonObject:
        """The line that a compaction begins with; nothing of what it folded is in the file."""
        return self._line(None, "system") | {
            "subtype": "compact_boundary",
            "content": "Conversation compacted",
            "isMeta": False,
            "timestamp": _stamp(piece.created),
            "uuid": str(UUID(bytes=object_id("boundary", piece.slot)[:16], version=4)),
            "level": "info",
            "compactMetadata": {"trigger": "manual"},
        }


def _said(message: Message) -> JsonObject:
    """The message in Anthropic's words; a file has no place for system text but a reminder."""
    if is_system(message):
        return {"role": "user", "content": f"<system-reminder>\n{message.text}\n</system-reminder>"}
    said = formats.anthropic_message(Row(None, message))
    role = "user" if said["role"] == "tool" else said["role"]
    # the API takes no empty turn of a user
    silence = formats.EMPTY if role == "user" else list[JsonObject]()
    return {"role": role, "content": said["content"] or silence}


def _answer(piece: New, said: JsonObject) -> JsonObject:
    """An answer has the members of a response, and its content is always a list."""
    content = said["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    origin = piece.message.origin
    return {
        "id": f"msg_{piece.slot.hex()[:24]}",
        "type": "message",
        "role": "assistant",
        "model": (origin.model if origin is not None else None) or "<synthetic>",
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


def _envelope(known: Mapping[str, Any], thread: str) -> JsonObject:
    """What every line repeats about its session."""
    if known:
        return {name: known[name] for name in ENVELOPE if name in known}
    session = UUID(bytes=object_id("session", thread.encode())[:16], version=4)
    return {"userType": "external", "cwd": "/", "sessionId": str(session), "version": "2.1.0"}


def _changed(text: str, value: JsonObject, changes: JsonObject) -> str:
    """The line with other members; untouched bytes where nothing changes."""
    if not changes:
        return text
    return orjson.dumps({**value, **changes}).decode() + "\n"


def _read(text: str) -> JsonObject | None:
    return read_object(text.encode(errors="replace"))


def _stamp(created: float) -> str:
    moment = datetime.fromtimestamp(created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
