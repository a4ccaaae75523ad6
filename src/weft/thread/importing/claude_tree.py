"""The tree that a Claude Code session is: which turn follows which.

Every line that takes part has a `uuid` and the `parentUuid` it follows; progress and hook lines
stand between the turns and are stepped over. Three things make the tree look wilder than the
conversation was, and are read for what they are:

- An answer is written one block a line, all with one `message.id`: those lines are one turn.
- Results of parallel calls hang side by side on the lines of their calls. They follow each other
  here, and what comes next follows the last of them.
- A compaction starts a new root whose `logicalParentUuid` says what it followed.

A parent that is not in the file, or that would come later, is bridged to the turn before it in
the file, and reported. What is left of forks is real: the user went back and said it differently.
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

from msgspec import Struct, field

from weft.model import JsonObject

from .lines import Line
from .script import Remark

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
    _link(tree, nodes)
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


def _link(tree: Tree, nodes: dict[str, Line]) -> None:
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
