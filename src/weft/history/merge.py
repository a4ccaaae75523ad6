"""Three-way merge of compiled lists, line by line, with conflicts as values.

Lines are matched by slot, never by text. What only one side changed is taken; what both added is
kept, ours first and theirs behind it, each whole, so that tails never conflict. A conflict is one
line that both sides treated differently: edited, folded away or skipped here, and edited or
folded otherwise there; or a call that both sides answered differently (`results`). `choose` settles
each; without it the conflicts are listed and our side stands in their place, which is what a
preview shows.

The same function takes a commit back: reverting is merging, onto the present list, the way from
what the commit made to what it was made from.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct, structs

from weft.ids import Id
from weft.model import Block, Message, Refusal, Text, ToolCall, ToolResult

from .conflict import AnyConflict, Choose, Conflict
from .edit import edit_text
from .folds import settle_folds
from .objects import PRIORITIES, Priority, Row, Setup, State
from .results import concat_results, is_same_result, settle_results
from .rewrite import same_start
from .setups import merge_setup
from .weave import weave


class Merged(Struct, frozen=True):
    """The merged list, what could not be settled, and calls that both sides had answered."""

    rows: Sequence[Row]
    conflicts: tuple[AnyConflict, ...] = ()
    answered_twice: tuple[str, ...] = ()
    setup: Setup | None = None

    @property
    def state(self) -> State:
        return State(self.rows, self.setup)


def merge3(
    base: Sequence[Row],
    ours: Sequence[Row],
    theirs: Sequence[Row],
    choose: Choose | None = None,
) -> Merged:
    """What both sides made of `base`, in one list."""
    start = _untouched(base, ours, theirs)
    old, left, right = (_lines(rows[start:]) for rows in (base, ours, theirs))
    conflicts: list[AnyConflict] = []
    settle = listing(conflicts) if choose is None else choose
    lines: dict[Id, Row | None] = {}
    for slot in {**old, **left, **right}:
        lines[slot] = _merge_line(slot, old.get(slot), left.get(slot), right.get(slot), settle)
    lines.update(settle_folds(old, left, right, settle))
    order = weave(old, left, right, lines)
    answered = settle_results(order, lines, left, right, settle)
    settled = (lines[slot] for slot in order)
    rows = list(ours)
    rows[start:] = [row for row in settled if row is not None]
    return Merged(rows, tuple(conflicts), answered)


def merge_states(base: State, ours: State, theirs: State, choose: Choose | None = None) -> Merged:
    """What both sides made of `base`, lines and setup."""
    merged = merge3(base.rows, ours.rows, theirs.rows, choose)
    conflicts = list(merged.conflicts)
    settle = listing(conflicts) if choose is None else choose
    setup = merge_setup(base.setup, ours.setup, theirs.setup, settle)
    return structs.replace(merged, setup=setup, conflicts=tuple(conflicts))


def listing(conflicts: list[AnyConflict]) -> Choose:
    """Settles nothing: writes each conflict down, and lets our side stand."""

    def choose(conflict: AnyConflict) -> str:
        conflicts.append(conflict)
        return "ours"

    return choose


def _merge_line(
    slot: Id,
    base: Row | None,
    ours: Row | None,
    theirs: Row | None,
    settle: Choose,
) -> Row | None:
    if ours == theirs or theirs == base:
        return ours
    if ours == base:
        return theirs
    if ours is None or theirs is None:
        changed = ours or theirs
        if changed is not None and changed.priority == "skip":
            return None  # folded here, hidden there: nobody shows it
        conflict = Conflict(slot, "folded", base, ours, theirs)
        return _chosen(conflict, settle(conflict))
    combined = _combine(base, ours, theirs)
    if combined is not None:
        return combined
    skipped = "skip" in (ours.priority, theirs.priority) and ours.priority != theirs.priority
    conflict = Conflict(slot, "skipped" if skipped else "edited", base, ours, theirs)
    return _chosen(conflict, settle(conflict))


def _combine(base: Row | None, ours: Row, theirs: Row) -> Row | None:
    """One line of two that changed different things of it, or `None` where they collide."""
    hidden = {ours.priority, theirs.priority}
    if base is None:  # said again on both sides: marked here and not there is no quarrel
        same = ours.message == theirs.message and "skip" not in hidden
        priority = _higher(ours.priority, theirs.priority)
        return structs.replace(ours, priority=priority) if same else None
    if ours.priority != base.priority and theirs.priority != base.priority:
        priority = _higher(ours.priority, theirs.priority)
    else:
        priority = theirs.priority if ours.priority == base.priority else ours.priority
    if len(hidden) == 2 and "skip" in hidden and ours.message != theirs.message:
        return None
    if len(hidden) == 2 and "skip" in hidden and base.priority not in hidden:
        return None
    if ours.message == theirs.message or theirs.message == base.message:
        return structs.replace(ours, priority=priority)
    if ours.message == base.message:
        return structs.replace(theirs, priority=priority)
    return None


def _chosen(conflict: Conflict, choice: str) -> Row | None:
    ours, theirs = conflict.ours, conflict.theirs
    if choice == "ours":
        return ours
    if choice == "theirs":
        return theirs
    present = ours or theirs
    assert present is not None
    if choice != "concat":
        base = conflict.ours or conflict.base or present
        return structs.replace(base, message=edit_text(base.message, choice))
    if ours is None or theirs is None:
        return present
    if ours.message == theirs.message or conflict.kind == "skipped":
        shown = theirs if ours.priority == "skip" else ours
        return structs.replace(shown, priority=_higher(ours.priority, theirs.priority))
    more = tuple(b for b in theirs.message.blocks if isinstance(b, Text | Refusal))
    message = structs.replace(ours.message, blocks=_both_results(ours.message, theirs.message))
    message = structs.replace(message, blocks=_behind_text(message, more), form="")
    return structs.replace(ours, message=message)


def _both_results(ours: Message, theirs: Message) -> tuple[Block, ...]:
    """Our blocks, where each result that they have otherwise says what both say."""
    rivals = {block.call_id: block for block in theirs.blocks if isinstance(block, ToolResult)}
    blocks: list[Block] = []
    for block in ours.blocks:
        rival = rivals.get(block.call_id) if isinstance(block, ToolResult) else None
        if isinstance(block, ToolResult) and rival and not is_same_result(block, rival):
            block = concat_results(block, rival)
        blocks.append(block)
    return tuple(blocks)


def _behind_text(message: Message, more: tuple[Text | Refusal, ...]) -> tuple[Block, ...]:
    """The blocks with more text behind their last text."""
    places = [i for i, b in enumerate(message.blocks) if isinstance(b, Text | Refusal)]
    cut = places[-1] + 1 if places else 0
    return (*message.blocks[:cut], *more, *message.blocks[cut:])


def _higher(one: Priority, other: Priority) -> Priority:
    return PRIORITIES[max(PRIORITIES.index(one), PRIORITIES.index(other))]


def _untouched(base: Sequence[Row], ours: Sequence[Row], theirs: Sequence[Row]) -> int:
    """How many lines at the start are of no interest: the same on all sides, and answered there."""
    same = min(same_start(base, ours), same_start(base, theirs))
    start = max(0, same - 1)  # one line stays, for what comes behind it
    waiting = _unasked([*base[start:], *ours[start:], *theirs[start:]])
    for place in range(start - 1, -1, -1) if waiting else ():
        for block in base[place].message.blocks:
            if isinstance(block, ToolCall) and block.id in waiting:
                start = place
                waiting.remove(block.id)
        if not waiting:
            break
    return start


def _unasked(rows: Iterable[Row]) -> set[str]:
    """The calls that these lines answer and do not make."""
    blocks = [block for row in rows for block in row.message.blocks]
    answered = {block.call_id for block in blocks if isinstance(block, ToolResult)}
    return answered - {block.id for block in blocks if isinstance(block, ToolCall)}


def _lines(rows: Sequence[Row]) -> dict[Id, Row]:
    return {row.id: row for row in rows if row.id is not None}
