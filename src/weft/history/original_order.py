"""The original order of rows, including those that were folded away.

A compiled list does not record where a dropped row was. The position is found by replaying the
branch from before the drop: a dropped row leaves an empty position, its replacement comes after the
empty positions, and a restored row takes its old position again. A revert uses this order to put
turns back where they were, however often they were folded since.
"""

from collections.abc import Callable, Iterable, Sequence

from weft.ids import Id
from weft.model import Message
from weft.store import Step, Store

from .objects import Rewrite, Row, Setup, decode_body
from .ops import ListRows, run_steps, with_slots

Compile = Callable[[Id | None], Sequence[Row]]
"""The rows that a commit compiles to."""


def restore_original_order(
    store: Store, thread: str, head: Id, target: Id, rows: Sequence[Row], compile: Compile
) -> Sequence[Row]:
    """The rows that a revert of `target` results in, in their original order.

    They stay as they are if the branch never went through `target`.
    """
    steps = _steps_since(store, thread, head, target)
    if not steps:
        return rows
    parents = steps[0].commit.parents
    start = compile(parents[0] if parents else None)
    positions = {slot: position for position, slot in enumerate(original_order(start, steps))}
    if any(row.id not in positions for row in rows):
        return rows
    return sorted(rows, key=lambda row: positions[row.id or b""])


def original_order(start: Iterable[Row], steps: Iterable[Step]) -> list[Id]:
    """Every slot that the branch had from `start` on, present or gone, in original order."""
    rows = _OrderedRows(start)
    run_steps(steps, rows)
    return rows.order


class _OrderedRows(ListRows):
    """A list of rows that remembers, in `order`, where dropped rows were."""

    def __init__(self, rows: Iterable[Row]) -> None:
        super().__init__(rows)
        self.order = self._slots()
        self._known = set(self.order)

    def append(self, row: Row, step: Step, setup: Setup | None) -> None:
        super().append(row, step, setup)
        slot = row.id
        assert slot is not None
        if slot in self._known:  # it was dropped, and comes back at the end
            self._reorder({slot})
        else:
            self.order.append(slot)
            self._known.add(slot)

    def rewrite(self, op: Rewrite, messages: Sequence[Message], step: Step) -> None:
        super().rewrite(op, messages, step)
        if op.drop or op.insert:
            inserts = with_slots(op, step.commit.id).insert
            self._reorder({new.slot for insert in inserts for new in insert.rows})

    def _slots(self) -> list[Id]:
        return [row.id for row in self.rows if row.id is not None]

    def _reorder(self, inserted: set[Id | None]) -> None:
        present = self._slots()
        self.order = _with_present(self.order, present, inserted)
        self._known.update(present)


def _steps_since(store: Store, thread: str, head: Id, target: Id) -> list[Step]:
    """The branch from `target` on, or from the oldest commit that was reverted since."""
    depth = store.read_depths(thread, head, [target]).get(target)
    while depth is not None:
        steps = store.walk(thread, head, after=depth - 1)
        reverted = [_reverted(step) for step in steps if step.commit.kind == "revert"]
        depths = store.read_depths(thread, head, [id for id in reverted if id is not None])
        oldest = min(depths.values(), default=depth)
        if oldest >= depth:
            return steps
        depth = oldest
    return []


def _reverted(step: Step) -> Id | None:
    target = (decode_body(step).metadata or {}).get("reverts")
    return bytes.fromhex(target) if isinstance(target, str) else None


def _with_present(order: list[Id], present: Sequence[Id], inserted: set[Id | None]) -> list[Id]:
    """The order with all present rows in it; an inserted row that is elsewhere now has moved."""
    here, ordered = set(present), set(order)
    if [slot for slot in order if slot in here] != [slot for slot in present if slot in ordered]:
        order = [slot for slot in order if slot not in inserted]
        ordered.difference_update(slot for slot in inserted if slot is not None)
    new_before: dict[Id, list[Id]] = {}
    new: list[Id] = []
    for slot in present:
        if slot not in ordered:
            new.append(slot)
        elif new:
            new_before[slot], new = new, []
    result: list[Id] = []
    for slot in order:
        result += new_before.get(slot, ())
        result.append(slot)
    return [*result, *new]
