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

from msgspec import Struct, field

from weft import exact_json
from weft.codec import CODECS
from weft.errors import WeftError
from weft.history import find_folder
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
    last_time,
    read_object,
    read_time,
    report_progress,
    split_lines,
    write_time,
)

FORMAT = "claude-code"
MAIN = "main"
SHORT_ID = 8
"""The characters of an id in the name of a branch."""

MESSAGE_TYPES = frozenset({"user", "assistant"})
SESSION_MEMBERS = ("isSidechain", "userType", "cwd", "sessionId", "version", "gitBranch", "slug")
"""The members about the session that every line repeats."""

LEAF = "leafUuid"


class Turn(Struct):
    """One message of the session: the lines that it consists of.

    `key` is the uuid of the first line. `sidechain` is empty for the main conversation.
    """

    key: str
    sidechain: str
    lines: list[Line]
    parent: str | None = None
    is_summary: bool = False

    @property
    def first(self) -> Line:
        return self.lines[0]


class Tree(Struct):
    """The turns of a session in file order.

    `owners` maps the uuid of each line, and the id of each answer, to the key of its turn.
    """

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
            _add_to_turn(tree, line, value, uuid)
    _link_turns(tree, nodes)
    return tree


def parent_uuid(value: JsonObject) -> str | None:
    """The parent of a line; for the root after a compaction, its logical parent."""
    uuid = value.get("parentUuid") or value.get("logicalParentUuid")
    return uuid if isinstance(uuid, str) else None


def leaves(tree: Tree) -> list[Turn]:
    """The turns without children, in file order."""
    parents = {turn.parent for turn in tree.turns.values()}
    return [turn for turn in tree.turns.values() if turn.key not in parents]


def call_ids(turn: Turn, kind: str, member: str) -> list[str]:
    """The call ids in a turn's blocks of one kind; `member` is where such a block has its id."""
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


def _add_to_turn(tree: Tree, line: Line, value: JsonObject, uuid: str) -> None:
    """Add a line to the turn of its answer, or as a new turn."""
    sidechain = _sidechain(value)
    answer_id = value["message"].get("id") if value["type"] == "assistant" else None
    # All lines of an answer have its id, so they get the key of the first one.
    name = f"{sidechain}/{answer_id}" if isinstance(answer_id, str) else uuid
    key = tree.owners.setdefault(name, uuid)
    tree.owners[uuid] = key
    if key == uuid:
        is_summary = bool(value.get("isCompactSummary"))
        tree.turns[key] = Turn(key, sidechain, [line], is_summary=is_summary)
    else:
        tree.turns[key].lines.append(line)


def _sidechain(value: JsonObject) -> str:
    if not value.get("isSidechain"):
        return ""
    return str(value.get("agentId") or "sidechain")


def _link_turns(tree: Tree, nodes: dict[str, Line]) -> None:
    """Set the parent of every turn, in file order.

    Results of parallel calls all have the calling turn as their parent. Here each of them follows
    the result before it, and the next turn follows the last one.
    """
    previous: dict[str, Turn] = {}  # by sidechain
    callers: dict[str, str] = {}  # of turns with results
    last_results: dict[str, str] = {}  # by caller
    turns_of_calls = {
        id: turn.key for turn in tree.turns.values() for id in call_ids(turn, "tool_use", "id")
    }
    for turn in tree.turns.values():
        parent = _find_parent(tree, nodes, turn, previous.get(turn.sidechain))
        if parent is not None:
            caller = callers.get(parent, parent)
            turn.parent = last_results.get(caller, parent)
            result_ids = call_ids(turn, "tool_result", "tool_use_id")
            if any(turns_of_calls.get(id) == caller for id in result_ids):
                callers[turn.key] = caller
                last_results[caller] = turn.key
        previous[turn.sidechain] = turn


def _find_parent(
    tree: Tree, nodes: dict[str, Line], turn: Turn, previous: Turn | None
) -> str | None:
    """The key of the nearest ancestor that is a turn.

    If the chain of parents is broken, it is the `previous` turn in the file, with a remark.
    """
    uuid = parent_uuid(turn.first.value or {})
    visited: set[str] = set()
    while uuid is not None:
        line = nodes.get(uuid)
        owner = tree.owners.get(uuid)
        if line is None or uuid in visited:
            return _attach_to_previous(tree, turn, previous, f"parent {uuid} is not in the file")
        if owner is not None and owner != turn.key:
            if tree.turns[owner].first.number > turn.first.number:
                return _attach_to_previous(
                    tree, turn, previous, f"parent {uuid} comes later in the file"
                )
            return owner
        visited.add(uuid)
        uuid = parent_uuid(line.value or {})
    return None


def _attach_to_previous(tree: Tree, turn: Turn, previous: Turn | None, reason: str) -> str | None:
    """The key of the previous turn, with a remark that the chain of parents is broken."""
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
    responses = _decode_turns(tree, remarks, progress)
    lines_before, trailing = _other_lines(lines, tree)
    branch_ends = _branches(tree)
    steps: list[Step] = [
        _turn_step(tree, turn, responses[turn.key], lines_before.get(turn.key, []))
        for turn in tree.turns.values()
    ]
    if trailing:
        parent = branch_ends.get(MAIN)
        trailing_lines = tuple(SourceLine(line.number, line.text) for line in trailing)
        created = last_time(trailing)
        steps.append(
            LinesStep(key="trailing", parent=parent, lines=trailing_lines, created=created)
        )
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
        other_lines=_count_other_lines(lines, tree),
        remarks=tuple(sorted(remarks, key=lambda remark: remark.line)),
    )


def _decode_turns(
    tree: Tree, remarks: list[Remark], progress: Progress | None
) -> dict[str, Response]:
    """Decode every turn; one that the codec cannot read becomes its JSON as text."""
    responses: dict[str, Response] = {}
    for number, turn in enumerate(tree.turns.values()):
        report_progress(progress, 0, number, len(tree.turns))
        try:
            responses[turn.key] = _decode_turn(turn)
        except WeftError as error:
            remarks.append(Remark("unread", turn.first.number, str(error)))
            encoded = _message(turn.first)
            text = Text(exact_json.dumps(encoded["content"]).decode())
            responses[turn.key] = Response(Message(str(encoded["role"]), (text,)))
    return responses


def _decode_turn(turn: Turn) -> Response:
    """The message of a turn; the blocks of an answer are collected from its lines."""
    encoded: JsonObject = _message(turn.lines[-1])
    if encoded["role"] != "assistant":
        body: JsonObject = {"messages": [{"role": encoded["role"], "content": encoded["content"]}]}
        (message,) = CODECS["anthropic"].decode_request(body, "").messages
        return Response(message)
    content: list[Any] = []
    for line in turn.lines:
        part = _message(line)["content"]
        content += [{"type": "text", "text": part}] if isinstance(part, str) else part
    return CODECS["anthropic"].decode_response({**encoded, "content": content})


def _turn_step(tree: Tree, turn: Turn, response: Response, lines_before: list[Line]) -> Step:
    """The step of a turn, with the lines before it that are no turns."""
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
    """The last turn of each branch, by name.

    `main` ends with the last turn in the file, or with the last of its descendants: an answer may
    have lines after the turns that follow it.
    """
    turns = list(tree.turns.values())
    if not turns:
        return {}
    main_turns = [turn for turn in turns if not turn.sidechain] or turns
    last = max(main_turns, key=_last_number)
    leaf_turns = leaves(tree)
    if last in leaf_turns:
        main = last
    else:
        descendants = (leaf for leaf in leaf_turns if last.key in _ancestors(tree, leaf))
        main = max(descendants, key=_last_number)
    names = {MAIN: main.key}
    for leaf in leaf_turns:
        if leaf is not main:
            kind = f"sidechain-{leaf.sidechain[:SHORT_ID]}" if leaf.sidechain else "rewind"
            names[f"{kind}-{leaf.key[:SHORT_ID]}"] = leaf.key
    return names


def _last_number(turn: Turn) -> int:
    return turn.lines[-1].number


def _ancestors(tree: Tree, turn: Turn) -> set[str]:
    """The keys of a turn and all its ancestors."""
    keys: set[str] = set()
    key: str | None = turn.key
    while key is not None:
        keys.add(key)
        key = tree.turns[key].parent
    return keys


def _count_other_lines(lines: Sequence[Line], tree: Tree) -> dict[str, int]:
    """The number of lines of each type that are not turns."""
    numbers = {line.number for turn in tree.turns.values() for line in turn.lines}
    other_lines = [line for line in lines if line.number not in numbers and line.text.strip()]
    kinds = ("unread" if line.value is None else _kind(line.value) for line in other_lines)
    return dict(sorted(Counter(kinds).items()))


def _kind(value: JsonObject) -> str:
    kind, sub = str(value.get("type")), value.get("subtype")
    return f"{kind} {sub}" if sub else kind


def _session(lines: Sequence[Line], tree: Tree) -> str | None:
    """The session id in the last line: a forked session starts with lines of its parent session.

    The file of a subagent has the id of its parent session, so its sidechain is added.
    """
    session = _last_session(lines)
    if session is None or not _is_subagent(tree):
        return session
    return f"{session}.{min(turn.sidechain for turn in tree.turns.values())}"


def _parent_session(lines: Sequence[Line], tree: Tree) -> str | None:
    """The session of the parent, if this is the file of a subagent."""
    return _last_session(lines) if _is_subagent(tree) else None


def _last_session(lines: Sequence[Line]) -> str | None:
    session_ids = (
        line.value.get("sessionId") for line in reversed(lines) if line.value is not None
    )
    return next((name for name in session_ids if isinstance(name, str)), None)


def _is_subagent(tree: Tree) -> bool:
    """Whether this is the file of a subagent: it has only sidechains."""
    return bool(tree.turns) and all(turn.sidechain for turn in tree.turns.values())


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
    - `valid_parents`: the uuids of written lines that may be a parent.
    - `template`: the line whose session members new lines copy.
    - `has_turn`: whether a turn of the main conversation from the file was written.
    - `tip`: the uuid of the last turn of the main conversation that was written.
    - `early`: the uuids of the lines before the first turn.
    - `last_slot`: the slot of the message that was written last.
    """

    thread: str
    journal: Journal
    folder: str
    replacements: dict[str, str | None] = field(default_factory=dict[str, str | None])
    valid_parents: set[str] = field(default_factory=set[str])
    template: JsonObject = field(default_factory=dict[str, Any])
    has_turn: bool = False
    tip: str | None = None
    early: list[str] = field(default_factory=list[str])
    last_slot: Id | None = None

    def lines(self) -> list[str]:
        """The texts of all lines, in order."""
        for piece in reversed(self.journal.pieces):  # so that the template is the first turn
            self._prepare(piece)
        texts: list[str] = []
        for piece in self.journal.pieces:
            match piece:
                case FileLine():
                    texts.append(self._write_file_line(piece))
                case NewLine(is_clients_prompt=True):
                    pass
                case NewLine():
                    texts.append(self._write_new_line(piece))
                case RemovedLine():
                    texts.append(self._write_removed_line(piece.line.text))
        return texts

    def _prepare(self, piece: Piece) -> None:
        """Collect the parents of removed lines, and the session members of the first turn."""
        if isinstance(piece, NewLine):
            return
        value = _parse_line(piece.line.text)
        if value is None or not isinstance(value.get("uuid"), str):
            return
        if isinstance(piece, RemovedLine):
            self.replacements[value["uuid"]] = value.get("parentUuid") or value.get(
                "logicalParentUuid"
            )
        if piece.line.is_turn:
            self.template = value

    def _write_removed_line(self, text: str) -> str:
        """The text for a removed line: the line stays only if it is not part of the chain."""
        value = _parse_line(text)
        return "" if value is None or "uuid" in value else self._with_valid_leaf(text, value)

    def _write_file_line(self, piece: FileLine) -> str:
        """The text of a line from the file, with a valid parent and its edited message."""
        text = piece.line.text
        value = _parse_line(text)
        if value is None:
            return text
        uuid = value.get("uuid")
        if not isinstance(uuid, str):
            return self._with_valid_leaf(text, value)
        if piece.edited is not None and piece.slot == self.last_slot:
            # The first line of an edited turn has the whole message, so the others are left out.
            self.replacements[uuid] = self.tip
            return ""
        parent = self._parent(value, piece)
        changes: JsonObject = {}
        if parent != value.get("parentUuid"):
            changes["parentUuid"] = parent
        if piece.edited is not None:
            changes["message"] = {**value["message"], **_encode_message(piece.edited)}
        self.valid_parents.add(uuid)
        if piece.line.is_turn and not value.get("isSidechain"):
            self.template, self.tip, self.has_turn = value, uuid, True
        elif self.tip is None and not value.get("isSidechain"):
            self.early.append(uuid)
        if piece.line.is_turn:
            self.last_slot = piece.slot
        return _with_changes(text, value, changes)

    def _parent(self, value: JsonObject, piece: FileLine) -> str | None:
        """The new parent of a line."""
        if self.journal.is_reordered and piece.line.is_turn:
            return self.tip
        parent = value.get("parentUuid")
        if isinstance(parent, str):
            return self._existing_parent(parent)
        # A new line may come before the first turn. A sidechain has its own root.
        return parent if self.has_turn or value.get("isSidechain") else self.tip

    def _existing_parent(self, uuid: str | None) -> str | None:
        """This uuid if its line was written, else its replacement, else the last turn."""
        visited: set[str] = set()
        while uuid is not None and uuid in self.replacements and uuid not in visited:
            visited.add(uuid)
            uuid = self.replacements[uuid]
        return uuid if uuid in self.valid_parents else self.tip

    def _with_valid_leaf(self, text: str, value: JsonObject) -> str:
        """The line with `leafUuid` pointing to a line that exists."""
        leaf = value.get(LEAF)
        if not isinstance(leaf, str) or leaf not in self.replacements:
            return text
        return _with_changes(text, value, {LEAF: self._existing_parent(leaf)})

    def _write_new_line(self, piece: NewLine) -> str:
        """The line of a new message; a summary at the start also gets a boundary line."""
        uuid = str(UUID(bytes=piece.slot[:16], version=4))
        message = _encode_message(piece.message)
        if message["role"] == "assistant":
            message = _with_response_members(piece, message)
        boundary = self._boundary(piece) if piece.is_start else {}
        value = self._common_members(boundary.get("uuid", self.tip), message["role"])
        value["message"] = message
        if piece.is_start:
            value |= {"isVisibleInTranscriptOnly": True, "isCompactSummary": True}
        if is_system(piece.message):
            value["isMeta"] = True
        value |= {"uuid": uuid, "timestamp": write_time(piece.created)}
        # Lines that followed the lines above it now follow the new one.
        for above in self.early if self.tip is None else [self.tip]:
            self.replacements[above] = uuid
            self.valid_parents.discard(above)
        self.valid_parents.add(uuid)
        self.tip = uuid
        return "".join(exact_json.dumps(line).decode() + "\n" for line in (boundary, value) if line)

    def _common_members(self, parent: str | None, kind: str) -> JsonObject:
        """The members that all lines have."""
        members: JsonObject = {"parentUuid": parent, "isSidechain": False}
        return members | _session_members(self.template, self.thread, self.folder) | {"type": kind}

    def _boundary(self, piece: NewLine) -> JsonObject:
        """The `compact_boundary` line; the messages before the compaction are not in the file."""
        return self._common_members(None, "system") | {
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
    from weft.codec import EMPTY_MESSAGE_TEXT, write_plain_message  # a codec is slow to import

    encoded = write_plain_message(message)
    # The API rejects a user message without content.
    empty = EMPTY_MESSAGE_TEXT if encoded["role"] == "user" else list[JsonObject]()
    return {"role": encoded["role"], "content": encoded["content"] or empty}


def _with_response_members(piece: NewLine, message: JsonObject) -> JsonObject:
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


def _session_members(template: Mapping[str, Any], thread: str, folder: str) -> JsonObject:
    """The members about the session, from another line if there is one."""
    if template:
        return {name: template[name] for name in SESSION_MEMBERS if name in template}
    session = session_id(FORMAT, thread)
    return {"userType": "external", "cwd": folder, "sessionId": session, "version": "2.1.0"}


def _with_changes(text: str, value: JsonObject, changes: JsonObject) -> str:
    """The line with changed members; the same bytes if nothing changes."""
    if not changes:
        return text
    return exact_json.dumps({**value, **changes}).decode() + "\n"


def _parse_line(text: str) -> JsonObject | None:
    return read_object(text.encode(errors="replace"))


def rename_session(data: bytes, session: str) -> bytes:
    """The file under another session id."""
    lines: list[str] = []
    for line in split_lines(data):
        has_session = line.value is not None and "sessionId" in line.value
        changes = {"sessionId": session} if has_session else {}
        lines.append(_with_changes(line.text, line.value or {}, changes))
    return join_lines(lines)


def read_project(data: bytes) -> str | None:
    """The working directory of the first line that names one: where the session was started."""
    values = (line.value for line in split_lines(data) if line.value is not None)
    return next((cwd for value in values if isinstance(cwd := value.get("cwd"), str)), None)


def read_folder(data: bytes) -> str | None:
    """The working directory of the last line that names one."""
    values = [line.value for line in split_lines(data) if line.value is not None]
    folders = (value.get("cwd") for value in reversed(values))
    return next((folder for folder in folders if isinstance(folder, str)), None)
