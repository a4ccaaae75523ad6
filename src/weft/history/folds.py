"""Two summaries of the same lines: found by the gap in which they stand.

A side that folded lines left a gap in the base list, and its summaries stand in that gap. Where
both sides folded one line, into different summaries, that is one conflict for the pair of
summaries, however many lines they cover.
"""

from msgspec import structs

from weft.ids import Id

from .conflict import Choose, Conflict, Lines
from .edit import edit_text
from .objects import Row


def settle_folds(old: Lines, left: Lines, right: Lines, settle: Choose) -> dict[Id, Row | None]:
    """The lines that change when each pair of rival summaries is settled."""
    lines: dict[Id, Row | None] = {}
    our_folds, their_folds = _folds(old, left), _folds(old, right)
    asked: dict[tuple[tuple[Id, ...], tuple[Id, ...]], str] = {}
    for slot in old:
        mine, other = our_folds.get(slot, ()), their_folds.get(slot, ())
        if not mine or not other or mine == other:
            continue
        if (mine, other) not in asked:
            conflict = Conflict(slot, "folded", old[slot], left[mine[0]], right[other[0]])
            asked[mine, other] = settle(conflict)
    for (mine, other), choice in asked.items():
        if choice == "ours":
            _undo_fold(other, their_folds, left, lines)
        elif choice == "theirs":
            _undo_fold(mine, our_folds, right, lines)
        elif choice != "concat":
            _undo_fold(other, their_folds, left, lines)
            summary = left[mine[0]]
            message = edit_text(summary.message, choice)
            lines[mine[0]] = structs.replace(summary, message=message)
    return lines


def _folds(old: Lines, side: Lines) -> dict[Id, tuple[Id, ...]]:
    """For every line that a side folded, the summaries that stand in its gap."""
    gaps: dict[Id | None, list[Id]] = {}
    anchor: Id | None = None
    for slot, row in side.items():
        if slot in old:
            anchor = slot
        elif row.kind == "summary":
            gaps.setdefault(anchor, []).append(slot)
    folds: dict[Id, tuple[Id, ...]] = {}
    anchor = None
    for slot in old:
        if slot in side:
            anchor = slot
        elif anchor in gaps:
            folds[slot] = tuple(gaps[anchor])
    return folds


def _undo_fold(
    summaries: tuple[Id, ...],
    folds: dict[Id, tuple[Id, ...]],
    other: Lines,
    lines: dict[Id, Row | None],
) -> None:
    """Leave one side's summaries out, and give back what they alone had folded."""
    for summary in summaries:
        lines[summary] = other.get(summary)
    for slot, into in folds.items():
        if into == summaries:
            lines[slot] = other.get(slot)
