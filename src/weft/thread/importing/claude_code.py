"""Claude Code's session files: JSON lines, each a block, a result, a hook or a snapshot.

The main conversation becomes `main` and ends with the last turn in the file. A sidechain (a
subagent in the same file) and a turn that the user went back from become branches of their own. A
`compact_boundary` with its summary becomes a compaction, so it can be reverted. Answers that report
a failed request are stored with priority `skip`: no model sees them. All other lines (hooks,
progress, snapshots, attachments that Claude Code renders for each request) are stored with the next
turn, byte by byte.

The lines form a tree: each has a `uuid` and the `parentUuid` that it follows. Progress and hook
lines between turns are skipped. Three things need care:

- An answer is written one block a line, all with one `message.id`. These lines are one turn.
- Results of parallel calls are siblings below their calls. Here they follow each other, and what
  comes next follows the last of them.
- A compaction starts a new root, whose `logicalParentUuid` is what it followed.

If a parent is missing or comes later in the file, the turn is attached to the turn before it, and
that is reported. The remaining forks are real: the user went back and continued differently.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, cast

import orjson
from msgspec import Struct, field

from weft.codec import CODECS
from weft.errors import WeftError
from weft.model import JsonObject, Message, Response, Text
from weft.thread.append import describe_generation
from weft.thread.info import auto_note
from weft.thread.source_lines import SourceLine

from .lines import Line, read_time, split_lines
from .script import Aside, Folded, Progress, Remark, Said, Script, Step, tell

SPEAKERS = frozenset({"user", "assistant"})


class Turn(Struct):
    """One message of the session; `side` is its sidechain, empty for the main conversation."""

    key: str
    side: str
    lines: list[Line]
    parent: str | None = None
    is_summary: bool = False

    @property
    def first(self) -> Line:
        return self.lines[0]


class Tree(Struct):
    """The turns in file order, each with the one it follows."""

    turns: dict[str, Turn] = field(default_factory=dict[str, Turn])
    owners: dict[str, str] = field(default_factory=dict[str, str])
    remarks: list[Remark] = field(default_factory=list[Remark])

    def turn_of(self, uuid: str) -> Turn | None:
        """The turn that the line of this uuid is part of."""
        key = self.owners.get(uuid)
        return None if key is None else self.turns[key]


def read_tree(lines: Sequence[Line]) -> Tree:
    """All turns of a session, and what each follows."""
    tree = Tree()
    nodes: dict[str, Line] = {}
    for line in lines:
        value = line.value
        uuid = None if value is None else value.get("uuid")
        if value is None or not isinstance(uuid, str):
            continue
        if uuid in nodes:
            tree.remarks.append(Remark("repeated", line.number, f"uuid {uuid} was there before"))
            continue
        nodes[uuid] = line
        if _speaks(value):
            _add(tree, line, value, uuid)
    _link_turns(tree, nodes)
    return tree


def parent_uuid(value: JsonObject) -> str | None:
    """What a line follows; for a compaction's new root, what it followed."""
    found = value.get("parentUuid") or value.get("logicalParentUuid")
    return found if isinstance(found, str) else None


def leaves(tree: Tree) -> list[Turn]:
    """The turns that nothing follows, in file order."""
    followed = {turn.parent for turn in tree.turns.values()}
    return [turn for turn in tree.turns.values() if turn.key not in followed]


def call_ids(turn: Turn, kind: str, member: str) -> list[str]:
    """Ids in the blocks of one kind, over all lines of a turn."""
    return [
        block[member]
        for line in turn.lines
        for block in _blocks(line.value)
        if block.get("type") == kind and isinstance(block.get(member), str)
    ]


def _speaks(value: JsonObject) -> bool:
    message = value.get("message")
    if value.get("type") not in SPEAKERS or not isinstance(message, dict):
        return False
    said = cast(JsonObject, message)
    return isinstance(said.get("role"), str) and isinstance(said.get("content"), str | list)


def _add(tree: Tree, line: Line, value: JsonObject, uuid: str) -> None:
    """Take a line up: into its answer, or as a turn of its own."""
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
    """Give every turn its parent, in file order: parents come before."""
    previous: dict[str, Turn] = {}
    hosts: dict[str, str] = {}
    last_result: dict[str, str] = {}
    callers = {
        id: turn.key for turn in tree.turns.values() for id in call_ids(turn, "tool_use", "id")
    }
    for turn in tree.turns.values():
        found = _above(tree, nodes, turn, previous.get(turn.side))
        if found is not None:
            host = hosts.get(found, found)
            turn.parent = last_result.get(host, found)
            answered = call_ids(turn, "tool_result", "tool_use_id")
            if any(callers.get(id) == host for id in answered):
                hosts[turn.key] = host
                last_result[host] = turn.key
        previous[turn.side] = turn


def _above(tree: Tree, nodes: dict[str, Line], turn: Turn, before: Turn | None) -> str | None:
    """The key of the nearest turn up the chain; bridged where the chain is broken."""
    uuid = parent_uuid(turn.first.value or {})
    seen: set[str] = set()
    while uuid is not None:
        line = nodes.get(uuid)
        owner = tree.owners.get(uuid)
        if line is None or uuid in seen:
            return _bridged(tree, turn, before, f"parent {uuid} is not in the file")
        if owner is not None and owner != turn.key:
            if tree.turns[owner].first.number > turn.first.number:
                return _bridged(tree, turn, before, f"parent {uuid} comes later in the file")
            return owner
        seen.add(uuid)
        uuid = parent_uuid(line.value or {})
    return None


def _bridged(tree: Tree, turn: Turn, before: Turn | None, why: str) -> str | None:
    to = "the beginning" if before is None else f"line {before.first.number + 1}"
    tree.remarks.append(Remark("bridged", turn.first.number, f"{why}; taken to follow {to}"))
    return None if before is None else before.key


def _blocks(value: JsonObject | None) -> Iterable[JsonObject]:
    content = None if value is None else value["message"]["content"]
    parts = cast(list[Any], content) if isinstance(content, list) else []
    return [cast(JsonObject, part) for part in parts if isinstance(part, dict)]


FORMAT = "claude-code"
MAIN = "main"
SHORT = 8


def read_claude_code(data: bytes, progress: Progress | None = None) -> Script:
    """The conversation, its branches and all lines of a session file."""
    lines = list(split_lines(data))
    tree = read_tree(lines)
    remarks = [*tree.remarks]
    messages = _read_messages(tree, remarks, progress)
    carried, trailing = _carry(lines, tree)
    ends = _branches(tree)
    steps: list[Step] = [
        _step(tree, turn, messages[turn.key], carried.get(turn.key, []))
        for turn in tree.turns.values()
    ]
    if trailing:
        parent = ends.get(MAIN)
        stamp = next((t for line in reversed(trailing) if (t := _time(line)) is not None), None)
        kept = tuple(SourceLine(line.number, line.text) for line in trailing)
        steps.append(Aside(key="trailing", parent=parent, lines=kept, created=stamp))
        ends[MAIN] = "trailing"
    remarks += [
        Remark("unread", line.number, "this line is no JSON object")
        for line in lines
        if line.value is None and line.text.strip()
    ]
    return Script(
        format=FORMAT,
        steps=tuple(steps),
        branches=ends,
        name=_session(lines, tree),
        lines=len(lines),
        kept=_kinds(lines, tree),
        remarks=tuple(sorted(remarks, key=lambda remark: remark.line)),
    )


def _read_messages(
    tree: Tree, remarks: list[Remark], progress: Progress | None
) -> dict[str, Response]:
    """What every turn says; one that no codec can read is told as it stands."""
    found: dict[str, Response] = {}
    for number, turn in enumerate(tree.turns.values()):
        tell(progress, 0, number, len(tree.turns))
        try:
            found[turn.key] = _read_turn(turn)
        except WeftError as error:
            remarks.append(Remark("unread", turn.first.number, str(error)))
            wire = _message(turn.first)
            told = Text(orjson.dumps(wire["content"]).decode())
            found[turn.key] = Response(Message(str(wire["role"]), (told,)))
    return found


def _read_turn(turn: Turn) -> Response:
    wire: JsonObject = _message(turn.lines[-1])
    if wire["role"] != "assistant":
        body: JsonObject = {"messages": [{"role": wire["role"], "content": wire["content"]}]}
        (said,) = CODECS["anthropic"].decode_request(body, "").messages
        return Response(said)
    content: list[Any] = []
    for line in turn.lines:
        part = _message(line)["content"]
        content += [{"type": "text", "text": part}] if isinstance(part, str) else part
    return CODECS["anthropic"].decode_response({**wire, "content": content})


def _step(tree: Tree, turn: Turn, read: Response, before: list[Line]) -> Step:
    first = cast(JsonObject, turn.first.value)
    own = [SourceLine(line.number, line.text, True) for line in turn.lines]
    kept = [SourceLine(line.number, line.text) for line in before]
    lines = tuple(sorted([*kept, *own], key=lambda line: line.number))
    created = read_time(first.get("timestamp"))
    if turn.is_summary:
        return _fold(tree, turn, read.message, before, lines, created)
    answers = bool(call_ids(turn, "tool_result", "tool_use_id"))
    kind = "tool_io" if answers else "dialogue"
    return Said(
        key=turn.key,
        parent=turn.parent,
        message=read.message,
        kind=kind,
        priority="skip" if first.get("isApiErrorMessage") else "normal",
        note=auto_note(kind, read.message.text),
        generation_config=describe_generation(read),
        usage=read.usage,
        created=created,
        lines=lines,
    )


def _fold(
    tree: Tree,
    turn: Turn,
    summary: Message,
    before: list[Line],
    lines: tuple[SourceLine, ...],
    created: float | None,
) -> Folded:
    """The compaction that this summary ends; what Claude Code kept word for word stays."""
    boundary = next((line for line in reversed(before) if is_boundary(line.value)), None)
    said: JsonObject = {} if boundary is None else cast(JsonObject, boundary.value)
    about: JsonObject = said.get("compactMetadata") or {}
    preserved: JsonObject = about.get("preservedMessages") or {}
    kept: list[str] = []
    for uuid in cast(list[str], preserved.get("uuids") or []):
        owner = tree.turn_of(uuid)
        if owner is not None and owner.key not in kept:
            kept.append(owner.key)
    start = turn.first.number if boundary is None else boundary.number
    tokens = f" from {about['preTokens']} tokens" if "preTokens" in about else ""
    return Folded(
        key=turn.key,
        parent=turn.parent,
        rows=(summary, *kept),
        note=f"Claude Code compacted{tokens}",
        metadata={"trigger": about.get("trigger"), "by": FORMAT},
        created=created,
        lines=tuple(SourceLine(line.number, line.text, line.number >= start) for line in lines),
    )


def is_boundary(value: JsonObject | None) -> bool:
    """Whether a line says that a compaction starts here."""
    return value is not None and value.get("subtype") == "compact_boundary"


def _carry(lines: Sequence[Line], tree: Tree) -> tuple[dict[str, list[Line]], list[Line]]:
    """The lines that are no turn, by the turn that they come before; and the rest."""
    carried: dict[str, list[Line]] = {}
    waiting: list[Line] = []
    turns = {line.number: turn.key for turn in tree.turns.values() for line in turn.lines}
    for line in lines:
        key = turns.get(line.number)
        if key is None:
            waiting.append(line)
        else:
            carried.setdefault(key, []).extend(waiting)
            waiting = []
    return carried, waiting


def _branches(tree: Tree) -> dict[str, str]:
    """The last turn is where `main` ends; every other end has a branch of its own."""
    turns = list(tree.turns.values())
    if not turns:
        return {}
    spoken = [turn for turn in turns if not turn.side] or turns
    last = max(spoken, key=_last_number)
    ends = leaves(tree)
    after = [last] if last in ends else [leaf for leaf in ends if last.key in _line_of(tree, leaf)]
    main = max(after, key=_last_number)
    names = {MAIN: main.key}
    for leaf in ends:
        if leaf is not main:
            kind = f"sidechain-{leaf.side[:SHORT]}" if leaf.side else "rewind"
            names[f"{kind}-{leaf.key[:SHORT]}"] = leaf.key
    return names


def _last_number(turn: Turn) -> int:
    return turn.lines[-1].number


def _line_of(tree: Tree, turn: Turn) -> set[str]:
    found: set[str] = set()
    key: str | None = turn.key
    while key is not None:
        found.add(key)
        key = tree.turns[key].parent
    return found


def _kinds(lines: Sequence[Line], tree: Tree) -> dict[str, int]:
    """How many lines of each type were kept aside."""
    spoken = {line.number for turn in tree.turns.values() for line in turn.lines}
    rest = [line for line in lines if line.number not in spoken and line.text.strip()]
    names = ("unread" if line.value is None else _kind(line.value) for line in rest)
    return dict(sorted(Counter(names).items()))


def _kind(value: JsonObject) -> str:
    kind, sub = str(value.get("type")), value.get("subtype")
    return f"{kind} {sub}" if sub else kind


def _session(lines: Sequence[Line], tree: Tree) -> str | None:
    """The session's id, as its last line has it: a fork begins with lines of the one it left.

    The file of a subagent says its parent's id, and needs a name of its own.
    """
    named = (line.value.get("sessionId") for line in reversed(lines) if line.value is not None)
    session = next((name for name in named if isinstance(name, str)), None)
    sides = {turn.side for turn in tree.turns.values()}
    if session is None or "" in sides or not sides:
        return session
    return f"{session}.{sorted(sides)[0]}"


def _message(line: Line) -> JsonObject:
    return cast(JsonObject, cast(JsonObject, line.value)["message"])


def _time(line: Line) -> float | None:
    return None if line.value is None else read_time(line.value.get("timestamp"))
