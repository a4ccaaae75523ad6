"""A branch as a session file that Claude Code can resume.

Imported lines are written with the same bytes. The only exception: if the parent of a line was
removed, the line gets the nearest remaining line above as its parent.

New messages become new lines. Their uuids are derived from the thread's ids, and they copy session,
folder and version from the line before them, so `claude --resume` continues from the last one. A
summary at the start of the conversation is written the way Claude Code writes its own: a
`compact_boundary` line and a line with `isCompactSummary`.

System prompts that a client sent are left out: Claude Code sends its own. Instructions that a
person added to the thread become reminders.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
from msgspec import Struct, field

from weft.ids import Id, object_id
from weft.model import JsonObject, Message, is_system
from weft.thread.handle import Handle
from weft.thread.importing.lines import join_lines, read_object, split_lines
from weft.thread.sessions import session_id

from .journal import ROOT, FileLine, Journal, NewLine, Piece, RemovedLine, find_folder, read_journal

FORMAT = "claude-code"
ENVELOPE = ("isSidechain", "userType", "cwd", "sessionId", "version", "gitBranch", "slug")
LEAF = "leafUuid"


def write_claude_code(handle: Handle, folder: str = ROOT) -> bytes:
    """The branch as JSON lines of Claude Code.

    `folder` is the working directory of a conversation that does not name its own.
    """
    journal = read_journal(handle, FORMAT)
    if journal.is_untouched:
        return join_lines(
            piece.line.text for piece in journal.pieces if isinstance(piece, FileLine)
        )
    messages = (row.message for row in handle.view(handle.head()).rows)
    return join_lines(_Writer(handle.name, journal, find_folder(messages) or folder).lines())


class _Writer(Struct):
    """Writes the lines of a journal.

    - `folder`: the working directory, if no line names one.
    - `replacements`: for a removed line, the uuid of the line that replaces it as a parent.
    - `written`: the uuids that are valid parents.
    - `envelope`: the line whose session members new lines copy.
    - `tip`: the last turn of the main conversation that was written.
    - `early`: the lines before the first turn.
    - `slot`: the message of the last written turn.
    """

    thread: str
    journal: Journal
    folder: str
    replacements: dict[str, str | None] = field(default_factory=dict[str, str | None])
    written: set[str] = field(default_factory=set[str])
    envelope: JsonObject = field(default_factory=dict[str, Any])
    begun: bool = False
    tip: str | None = None
    early: list[str] = field(default_factory=list[str])
    slot: Id | None = None

    def lines(self) -> list[str]:
        for piece in reversed(self.journal.pieces):
            self._prepare(piece)
        texts: list[str] = []
        for piece in self.journal.pieces:
            match piece:
                case FileLine():
                    texts.append(self._old(piece))
                case NewLine(is_clients_prompt=True):
                    pass
                case NewLine():
                    texts.append(self._new(piece))
                case RemovedLine():
                    texts.append(self._gone(piece.line.text))
        return texts

    def _prepare(self, piece: Piece) -> None:
        """Collect the parents of removed lines, and the session members of the first turn."""
        if isinstance(piece, NewLine):
            return
        value = _read(piece.line.text)
        if value is None or not isinstance(value.get("uuid"), str):
            return
        if isinstance(piece, RemovedLine):
            self.replacements[value["uuid"]] = value.get("parentUuid") or value.get(
                "logicalParentUuid"
            )
        if piece.line.is_turn:
            self.envelope = value

    def _gone(self, text: str) -> str:
        """The text for a removed line: the line stays only if it is not part of the chain."""
        value = _read(text)
        return "" if value is None or "uuid" in value else self._with_valid_leaf(text, value)

    def _old(self, piece: FileLine) -> str:
        text = piece.line.text
        value = _read(text)
        if value is None:
            return text
        uuid = value.get("uuid")
        if not isinstance(uuid, str):
            return self._with_valid_leaf(text, value)
        if (
            piece.edited is not None and piece.slot == self.slot
        ):  # the first line has the whole message
            self.replacements[uuid] = self.tip
            return ""
        parent = self._parent(value, piece)
        changes: JsonObject = {}
        if parent != value.get("parentUuid"):
            changes["parentUuid"] = parent
        if piece.edited is not None:
            changes["message"] = {**value["message"], **_encode_message(piece.edited)}
        self.written.add(uuid)
        if piece.line.is_turn and not value.get("isSidechain"):
            self.envelope, self.tip, self.begun = value, uuid, True
        elif self.tip is None and not value.get("isSidechain"):
            self.early.append(uuid)
        if piece.line.is_turn:
            self.slot = piece.slot
        return _changed(text, value, changes)

    def _parent(self, value: JsonObject, piece: FileLine) -> str | None:
        """The new parent of a line."""
        if self.journal.moved and piece.line.is_turn:
            return self.tip
        parent = value.get("parentUuid")
        if isinstance(parent, str):
            return self._existing_parent(parent)
        # A new line may come before the first turn. A sidechain has its own root.
        return parent if self.begun or value.get("isSidechain") else self.tip

    def _existing_parent(self, uuid: str | None) -> str | None:
        """This uuid if its line was written, else its replacement, else the last turn."""
        visited: set[str] = set()
        while uuid is not None and uuid in self.replacements and uuid not in visited:
            visited.add(uuid)
            uuid = self.replacements[uuid]
        return uuid if uuid in self.written else self.tip

    def _with_valid_leaf(self, text: str, value: JsonObject) -> str:
        """The line with `leafUuid` pointing to a line that exists."""
        leaf = value.get(LEAF)
        if not isinstance(leaf, str) or leaf not in self.replacements:
            return text
        return _changed(text, value, {LEAF: self._existing_parent(leaf)})

    def _new(self, piece: NewLine) -> str:
        """The line of a new message; a summary that opens the file also gets a boundary line."""
        uuid = str(UUID(bytes=piece.slot[:16], version=4))
        message = _encode_message(piece.message)
        if message["role"] == "assistant":
            message = _answer(piece, message)
        boundary = self._boundary(piece) if piece.opens else {}
        value = self._line(boundary.get("uuid", self.tip), message["role"])
        value["message"] = message
        if piece.opens:
            value |= {"isVisibleInTranscriptOnly": True, "isCompactSummary": True}
        if is_system(piece.message):
            value["isMeta"] = True
        value |= {"uuid": uuid, "timestamp": _stamp(piece.created)}
        for above in self.early if self.tip is None else [self.tip]:
            self.replacements[above] = uuid
            self.written.discard(above)
        self.written.add(uuid)
        self.tip = uuid
        return "".join(orjson.dumps(line).decode() + "\n" for line in (boundary, value) if line)

    def _line(self, parent: str | None, kind: str) -> JsonObject:
        """The members that all lines have."""
        start: JsonObject = {"parentUuid": parent, "isSidechain": False}
        return start | _envelope(self.envelope, self.thread, self.folder) | {"type": kind}

    def _boundary(self, piece: NewLine) -> JsonObject:
        """The `compact_boundary` line; the messages before the compaction are not in the file."""
        return self._line(None, "system") | {
            "subtype": "compact_boundary",
            "content": "Conversation compacted",
            "isMeta": False,
            "timestamp": _stamp(piece.created),
            "uuid": str(UUID(bytes=object_id("boundary", piece.slot)[:16], version=4)),
            "level": "info",
            "compactMetadata": {"trigger": "manual"},
        }


def _encode_message(message: Message) -> JsonObject:
    """The message in Anthropic's format; system text becomes a `<system-reminder>`."""
    if is_system(message):
        return {"role": "user", "content": f"<system-reminder>\n{message.text}\n</system-reminder>"}
    from weft.codec import EMPTY, write_plain_message  # a codec is slow to import

    encoded = write_plain_message(message)
    # The API rejects a user message without content.
    empty = EMPTY if encoded["role"] == "user" else list[JsonObject]()
    return {"role": encoded["role"], "content": encoded["content"] or empty}


def _answer(piece: NewLine, message: JsonObject) -> JsonObject:
    """An answer with the members of a response; its content is always a list."""
    content = message["content"]
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


def _envelope(line: Mapping[str, Any], thread: str, folder: str) -> JsonObject:
    """The session members that every line repeats, from another line if there is one."""
    if line:
        return {name: line[name] for name in ENVELOPE if name in line}
    session = session_id(FORMAT, thread)
    return {"userType": "external", "cwd": folder, "sessionId": session, "version": "2.1.0"}


def _changed(text: str, value: JsonObject, changes: JsonObject) -> str:
    """The line with changed members; the same bytes if nothing changes."""
    if not changes:
        return text
    return orjson.dumps({**value, **changes}).decode() + "\n"


def _read(text: str) -> JsonObject | None:
    return read_object(text.encode(errors="replace"))


def _stamp(created: float) -> str:
    moment = datetime.fromtimestamp(created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def rename_session(data: bytes, session: str) -> bytes:
    """The file under another session id."""
    lines: list[str] = []
    for line in split_lines(data):
        is_named = line.value is not None and "sessionId" in line.value
        changes = {"sessionId": session} if is_named else {}
        lines.append(_changed(line.text, line.value or {}, changes))
    return join_lines(lines)


def read_folder(data: bytes) -> str | None:
    """The working directory of the last line that names one."""
    values = [line.value for line in split_lines(data) if line.value is not None]
    folders = (value.get("cwd") for value in reversed(values))
    return next((folder for folder in folders if isinstance(folder, str)), None)
