"""Claude Code's session files: JSON lines, each a block, a result, a hook or a snapshot.

**Reading.** The main conversation becomes `main` and ends with the last turn in the file. A
sidechain (a subagent in the same file) and a turn that the user went back from become branches of
their own. A `compact_boundary` with its summary becomes a compaction, so it can be reverted.
Answers that report a failed request are stored with priority `skip`: no model sees them. All other
lines (hooks, progress, snapshots, attachments that Claude Code renders for each request) are stored
with the next turn, byte by byte.

The lines form a tree: each has a `uuid` and the `parentUuid` that it follows. Progress and hook
lines between turns are skipped. Three things need care:

- An answer is written one block a line, all with one `message.id`. These lines are one turn.
- Results of parallel calls are siblings below their calls. Here they follow each other, and the
  next turn follows the last of them.
- A compaction starts a new root. Its `logicalParentUuid` names the line before the compaction.

If a parent is missing or comes later in the file, the turn is attached to the turn before it, and
that is reported. The remaining forks are real: the user went back and continued differently.

**Writing.** Imported lines are written with the same bytes. The only exception: if the parent of a
line was removed, the line gets the nearest remaining line above as its parent.

New messages become new lines. Their uuids are derived from the thread's ids, and they copy session,
folder and version from the line before them, so `claude --resume` continues from the last one. A
summary at the start of the conversation is written the way Claude Code writes its own: a
`compact_boundary` line and a line with `isCompactSummary`.

System prompts that a client sent are left out: Claude Code sends its own. Instructions that a
person added to the thread become reminders.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast
from uuid import UUID

import orjson
from msgspec import Struct, field

from weft.codec import CODECS
from weft.errors import WeftError
from weft.ids import Id, object_id
from weft.model import JsonObject, Message, Response, Text, is_system
from weft.thread.append import describe_generation
from weft.thread.handle import Handle
from weft.thread.info import auto_note
from weft.thread.sessions import session_id
from weft.thread.source_lines import SourceLine

from .journal import (
    ROOT,
    FileLine,
    Journal,
    NewLine,
    Piece,
    RemovedLine,
    find_folder,
    read_journal,
)
from .plan import (
    CompactionStep,
    ImportPlan,
    Line,
    LinesStep,
    MessageStep,
    Progress,
    Remark,
    Step,
    join_lines,
    line_time,
    read_object,
    read_time,
    report_progress,
    split_lines,
    write_time,
)

FORMAT = "claude-code"
MAIN = "main"
SHORT = 8
MESSAGE_TYPES = frozenset({"user", "assistant"})
ENVELOPE = ("isSidechain", "userType", "cwd", "sessionId", "version", "gitBranch", "slug")
LEAF = "leafUuid"


class Turn(Struct):
    """One message of the session; `side` names its sidechain, empty for the main conversation."""

    key: str
    side: str
    lines: list[Line]
    parent: str | None = None
    is_summary: bool = False

    @property
    def first(self) -> Line:
        return self.lines[0]


class Tree(Struct):
    """The turns of a session in file order; `owners` maps a line's uuid to the key of its turn."""

    turns: dict[str, Turn] = field(default_factory=dict[str, Turn])
    owners: dict[str, str] = field(default_factory=dict[str, str])
    remarks: list[Remark] = field(default_factory=list[Remark])

    def turn_of(self, uuid: str) -> Turn | None:
        """The turn that contains the line with this uuid."""
        key = self.owners.get(uuid)
        return None if key is None else self.turns[key]


def read_tree(lines: Sequence[Line]) -> Tree:
    """Parse the lines of a session into turns with their parents."""
    tree = Tree()
    nodes: dict[str, Line] = {}
    for line in lines:
        value = line.value
        uuid = None if value is None else value.get("uuid")
        if value is None or not isinstance(uuid, str):
            continue
        if uuid in nodes:
            tree.remarks.append(Remark("repeated", line.number, f"uuid {uuid} is a duplicate"))
            continue
        nodes[uuid] = line
        if _is_message(value):
            _add(tree, line, value, uuid)
    _link_turns(tree, nodes)
    return tree


def parent_uuid(value: JsonObject) -> str | None:
    """The parent of a line; for the root after a compaction, its logical parent."""
    uuid = value.get("parentUuid") or value.get("logicalParentUuid")
    return uuid if isinstance(uuid, str) else None


def leaves(tree: Tree) -> list[Turn]:
    """The turns without children, in file order."""
    followed = {turn.parent for turn in tree.turns.values()}
    return [turn for turn in tree.turns.values() if turn.key not in followed]


def call_ids(turn: Turn, kind: str, member: str) -> list[str]:
    """The ids in a turn's blocks of one kind."""
    return [
        block[member]
        for line in turn.lines
        for block in _blocks(line.value)
        if block.get("type") == kind and isinstance(block.get(member), str)
    ]


def _is_message(value: JsonObject) -> bool:
    message = value.get("message")
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in MESSAGE_TYPES or not isinstance(message, dict):
        return False
    body = cast(JsonObject, message)
    return isinstance(body.get("role"), str) and isinstance(body.get("content"), str | list)


def _add(tree: Tree, line: Line, value: JsonObject, uuid: str) -> None:
    """Add a line to the turn of its answer, or as a new turn."""
    side = _side(value)
    answer = value["message"].get("id") if value["type"] == "assistant" else None
    name = f"{side}/{answer}" if isinstance(answer, str) else uuid
    key = tree.owners.setdefault(name, uuid)
    tree.owners[uuid] = key
    if key == uuid:
        summary = bool(value.get("isCompactSummary"))
        tree.turns[key] = Turn(key, side, [line], is_summary=summary)
    else:
        tree.turns[key].lines.append(line)


def _side(value: JsonObject) -> str:
    if not value.get("isSidechain"):
        return ""
    return str(value.get("agentId") or "sidechain")


def _link_turns(tree: Tree, nodes: dict[str, Line]) -> None:
    """Set the parent of every turn, in file order."""
    previous: dict[str, Turn] = {}
    hosts: dict[str, str] = {}
    last_result: dict[str, str] = {}
    callers = {
        id: turn.key for turn in tree.turns.values() for id in call_ids(turn, "tool_use", "id")
    }
    for turn in tree.turns.values():
        parent = _find_parent(tree, nodes, turn, previous.get(turn.side))
        if parent is not None:
            host = hosts.get(parent, parent)
            turn.parent = last_result.get(host, parent)
            answered = call_ids(turn, "tool_result", "tool_use_id")
            if any(callers.get(id) == host for id in answered):
                hosts[turn.key] = host
                last_result[host] = turn.key
        previous[turn.side] = turn


def _find_parent(
    tree: Tree, nodes: dict[str, Line], turn: Turn, previous: Turn | None
) -> str | None:
    """The key of the nearest turn up the chain; the turn before it if the chain is broken."""
    uuid = parent_uuid(turn.first.value or {})
    visited: set[str] = set()
    while uuid is not None:
        line = nodes.get(uuid)
        owner = tree.owners.get(uuid)
        if line is None or uuid in visited:
            return _bridge(tree, turn, previous, f"parent {uuid} is not in the file")
        if owner is not None and owner != turn.key:
            if tree.turns[owner].first.number > turn.first.number:
                return _bridge(tree, turn, previous, f"parent {uuid} comes later in the file")
            return owner
        visited.add(uuid)
        uuid = parent_uuid(line.value or {})
    return None


def _bridge(tree: Tree, turn: Turn, previous: Turn | None, reason: str) -> str | None:
    target = "the beginning" if previous is None else f"line {previous.first.number + 1}"
    tree.remarks.append(Remark("bridged", turn.first.number, f"{reason}; taken to follow {target}"))
    return None if previous is None else previous.key


def _blocks(value: JsonObject | None) -> Iterable[JsonObject]:
    content = None if value is None else value["message"]["content"]
    parts = cast(list[Any], content) if isinstance(content, list) else []
    return [cast(JsonObject, part) for part in parts if isinstance(part, dict)]


def read_claude_code(data: bytes, progress: Progress | None = None) -> ImportPlan:
    """Parse a session file."""
    lines = list(split_lines(data))
    tree = read_tree(lines)
    remarks = [*tree.remarks]
    messages = _read_messages(tree, remarks, progress)
    lines_before, trailing = _other_lines(lines, tree)
    branch_ends = _branches(tree)
    steps: list[Step] = [
        _step(tree, turn, messages[turn.key], lines_before.get(turn.key, []))
        for turn in tree.turns.values()
    ]
    if trailing:
        parent = branch_ends.get(MAIN)
        stamp = next((t for line in reversed(trailing) if (t := line_time(line)) is not None), None)
        trailing_lines = tuple(SourceLine(line.number, line.text) for line in trailing)
        steps.append(LinesStep(key="trailing", parent=parent, lines=trailing_lines, created=stamp))
        branch_ends[MAIN] = "trailing"
    remarks += [
        Remark("unread", line.number, "this line is not a JSON object")
        for line in lines
        if line.value is None and line.text.strip()
    ]
    return ImportPlan(
        format=FORMAT,
        steps=tuple(steps),
        branches=branch_ends,
        name=_session(lines, tree),
        parent=_parent_session(lines, tree),
        lines=len(lines),
        other_lines=_kinds(lines, tree),
        remarks=tuple(sorted(remarks, key=lambda remark: remark.line)),
    )


def _read_messages(
    tree: Tree, remarks: list[Remark], progress: Progress | None
) -> dict[str, Response]:
    """Decode every turn; one that the codec cannot read becomes its JSON as text."""
    responses: dict[str, Response] = {}
    for number, turn in enumerate(tree.turns.values()):
        report_progress(progress, 0, number, len(tree.turns))
        try:
            responses[turn.key] = _read_turn(turn)
        except WeftError as error:
            remarks.append(Remark("unread", turn.first.number, str(error)))
            wire = _message(turn.first)
            text = Text(orjson.dumps(wire["content"]).decode())
            responses[turn.key] = Response(Message(str(wire["role"]), (text,)))
    return responses


def _read_turn(turn: Turn) -> Response:
    wire: JsonObject = _message(turn.lines[-1])
    if wire["role"] != "assistant":
        body: JsonObject = {"messages": [{"role": wire["role"], "content": wire["content"]}]}
        (message,) = CODECS["anthropic"].decode_request(body, "").messages
        return Response(message)
    content: list[Any] = []
    for line in turn.lines:
        part = _message(line)["content"]
        content += [{"type": "text", "text": part}] if isinstance(part, str) else part
    return CODECS["anthropic"].decode_response({**wire, "content": content})


def _step(tree: Tree, turn: Turn, response: Response, lines_before: list[Line]) -> Step:
    first = cast(JsonObject, turn.first.value)
    turn_lines = [SourceLine(line.number, line.text, True) for line in turn.lines]
    earlier_lines = [SourceLine(line.number, line.text) for line in lines_before]
    lines = tuple(sorted([*earlier_lines, *turn_lines], key=lambda line: line.number))
    created = read_time(first.get("timestamp"))
    if turn.is_summary:
        return _compaction_step(tree, turn, response.message, lines_before, lines, created)
    has_results = bool(call_ids(turn, "tool_result", "tool_use_id"))
    kind = "tool_io" if has_results else "dialogue"
    return MessageStep(
        key=turn.key,
        parent=turn.parent,
        message=response.message,
        kind=kind,
        priority="skip" if first.get("isApiErrorMessage") else "normal",
        note=auto_note(kind, response.message.text),
        generation_config=describe_generation(response),
        usage=response.usage,
        created=created,
        lines=lines,
    )


def _compaction_step(
    tree: Tree,
    turn: Turn,
    summary: Message,
    before: list[Line],
    lines: tuple[SourceLine, ...],
    created: float | None,
) -> CompactionStep:
    """The compaction that this summary belongs to; preserved messages keep their slots."""
    boundary = next((line for line in reversed(before) if is_boundary(line.value)), None)
    value: JsonObject = {} if boundary is None else cast(JsonObject, boundary.value)
    details = _object(value.get("compactMetadata"))
    preserved = _object(details.get("preservedMessages"))
    preserved_keys: list[str] = []
    uuids = preserved.get("uuids")
    for uuid in cast(list[Any], uuids) if isinstance(uuids, list) else []:
        owner = tree.turn_of(uuid) if isinstance(uuid, str) else None
        if owner is not None and owner.key not in preserved_keys:
            preserved_keys.append(owner.key)
    start = turn.first.number if boundary is None else boundary.number
    tokens = f" from {details['preTokens']} tokens" if "preTokens" in details else ""
    return CompactionStep(
        key=turn.key,
        parent=turn.parent,
        rows=(summary, *preserved_keys),
        note=f"Claude Code compacted{tokens}",
        metadata={"trigger": details.get("trigger"), "by": FORMAT},
        created=created,
        lines=tuple(SourceLine(line.number, line.text, line.number >= start) for line in lines),
    )


def is_boundary(value: JsonObject | None) -> bool:
    """Whether a line marks the start of a compaction."""
    return value is not None and value.get("subtype") == "compact_boundary"


def _other_lines(lines: Sequence[Line], tree: Tree) -> tuple[dict[str, list[Line]], list[Line]]:
    """The lines that are not turns, by the key of the next turn; and those after the last turn."""
    before: dict[str, list[Line]] = {}
    pending: list[Line] = []
    turns = {line.number: turn.key for turn in tree.turns.values() for line in turn.lines}
    for line in lines:
        key = turns.get(line.number)
        if key is None:
            pending.append(line)
        else:
            before.setdefault(key, []).extend(pending)
            pending = []
    return before, pending


def _branches(tree: Tree) -> dict[str, str]:
    """The last turn of each branch: `main` ends with the last turn in the file."""
    turns = list(tree.turns.values())
    if not turns:
        return {}
    main_turns = [turn for turn in turns if not turn.side] or turns
    last = max(main_turns, key=_last_number)
    leaf_turns = leaves(tree)
    descendant_leaves = (
        [last]
        if last in leaf_turns
        else [leaf for leaf in leaf_turns if last.key in _ancestors(tree, leaf)]
    )
    main = max(descendant_leaves, key=_last_number)
    names = {MAIN: main.key}
    for leaf in leaf_turns:
        if leaf is not main:
            kind = f"sidechain-{leaf.side[:SHORT]}" if leaf.side else "rewind"
            names[f"{kind}-{leaf.key[:SHORT]}"] = leaf.key
    return names


def _last_number(turn: Turn) -> int:
    return turn.lines[-1].number


def _ancestors(tree: Tree, turn: Turn) -> set[str]:
    keys: set[str] = set()
    key: str | None = turn.key
    while key is not None:
        keys.add(key)
        key = tree.turns[key].parent
    return keys


def _kinds(lines: Sequence[Line], tree: Tree) -> dict[str, int]:
    """The number of lines of each type that are not turns."""
    numbers = {line.number for turn in tree.turns.values() for line in turn.lines}
    other_lines = [line for line in lines if line.number not in numbers and line.text.strip()]
    names = ("unread" if line.value is None else _kind(line.value) for line in other_lines)
    return dict(sorted(Counter(names).items()))


def _kind(value: JsonObject) -> str:
    kind, sub = str(value.get("type")), value.get("subtype")
    return f"{kind} {sub}" if sub else kind


def _session(lines: Sequence[Line], tree: Tree) -> str | None:
    """The session id in the last line: a forked session starts with lines of its parent session.

    The file of a subagent has the id of its parent session, so its sidechain is added.
    """
    session = _last_session(lines)
    return session if session is None or not _is_agent(tree) else f"{session}.{_agent(tree)}"


def _parent_session(lines: Sequence[Line], tree: Tree) -> str | None:
    """The session of the parent, if this is the file of a subagent."""
    return _last_session(lines) if _is_agent(tree) else None


def _last_session(lines: Sequence[Line]) -> str | None:
    session_ids = (
        line.value.get("sessionId") for line in reversed(lines) if line.value is not None
    )
    return next((name for name in session_ids if isinstance(name, str)), None)


def _is_agent(tree: Tree) -> bool:
    """Whether the file has only sidechains."""
    return bool(tree.turns) and all(turn.side for turn in tree.turns.values())


def _agent(tree: Tree) -> str:
    return min(turn.side for turn in tree.turns.values())


def _message(line: Line) -> JsonObject:
    return cast(JsonObject, cast(JsonObject, line.value)["message"])


def _object(value: Any) -> JsonObject:
    """The value if it is an object, else an empty one: a file may contain anything."""
    return cast(JsonObject, value) if isinstance(value, dict) else {}


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
        value |= {"uuid": uuid, "timestamp": write_time(piece.created)}
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
            "timestamp": write_time(piece.created),
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
