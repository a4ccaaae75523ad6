"""The order of a merged list: ours, with what they added put behind what it stood behind.

Where both sides added lines in one place, ours come first and theirs follow, each whole. One
thing turns that round: if the place is between a call and its result, and they alone answered,
their lines come first, because nothing may stand between a call and its result.
"""

from collections.abc import Iterable, Mapping, Sequence

from weft.ids import Id
from weft.model import ToolCall, ToolResult

from .conflict import Lines
from .objects import Row


def weave(old: Lines, left: Lines, right: Lines, settled: Mapping[Id, Row | None]) -> list[Id]:
    """All slots of the merged list in order.

    `settled` is what each line came to: one that we had dropped and that is kept after all comes
    back where they have it.
    """
    runs = _runs(old, left, right, settled)
    slots = list(left)
    woven: list[Id] = []
    anchor: Id | None = None
    position = 0
    while True:
        start = position
        while position < len(slots) and slots[position] not in old and slots[position] not in right:
            position += 1
        mine, theirs = slots[start:position], runs.get(anchor, [])
        if mine and theirs:
            asked = _open_calls(left.get(slot) or right[slot] for slot in woven)
            ours_answers = _answers([left[slot] for slot in mine], asked)
            their_answers = _answers([right[slot] for slot in theirs], asked)
            woven += [*theirs, *mine] if their_answers and not ours_answers else [*mine, *theirs]
        else:
            woven += [*mine, *theirs]
        if position == len(slots):
            return woven
        anchor = slots[position]
        woven.append(anchor)
        position += 1


def _runs(
    old: Lines, left: Lines, right: Lines, settled: Mapping[Id, Row | None]
) -> dict[Id | None, list[Id]]:
    """The lines that only they have, by the nearest line before them that we have too."""
    runs: dict[Id | None, list[Id]] = {}
    anchor: Id | None = None
    for slot in right:
        if slot in left:
            anchor = slot
        elif slot not in old or settled.get(slot) is not None:
            runs.setdefault(anchor, []).append(slot)
    return runs


def _open_calls(rows: Iterable[Row]) -> frozenset[str]:
    """Ids of calls that nothing has answered yet."""
    waiting: set[str] = set()
    for row in rows:
        for block in row.message.blocks:
            if isinstance(block, ToolCall):
                waiting.add(block.id)
            elif isinstance(block, ToolResult):
                waiting.discard(block.call_id)
    return frozenset(waiting)


def _answers(rows: Sequence[Row], asked: frozenset[str]) -> frozenset[str]:
    return frozenset(
        block.call_id
        for row in rows
        for block in row.message.blocks
        if isinstance(block, ToolResult) and block.call_id in asked
    )
