"""Some rows of a long thread, compiled without the rest.

A rewrite names the rows that it concerns: those it changes, the first and last row of each run that
it drops, and the row that each insert follows. So it can be carried out on a list from which other
rows are missing, and the result is the whole result with the same rows missing. Two partial
compiles use this:

- `compile_tail` needs the last rows that show. The newest commits append the last rows, and
  everything older stands before them.
- `compile_slots` needs a few rows wherever they are. Nearly every commit appends one row and does
  nothing else; of these only the wanted ones are read, and those that a rewrite names.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from weft.ids import Id
from weft.model import Message
from weft.store import Step, Store

from .compile import show_rows
from .objects import PLAIN_BODIES, Rewrite, Row, decode_body
from .ops import ListRows, run_steps, with_slots

SLACK = 64  # commits read beside the wanted ones: some append nothing, or a row that is hidden
GROWTH = 4


class PartialRows(ListRows):
    """Some rows of a whole list, in its order. Rows of the list may be missing if

    - they stand before all rows that are here (unless `from_start`), or
    - no later rewrite drops from, drops to, or inserts after them.
    """

    def __init__(self, *, from_start: bool) -> None:
        super().__init__()
        self._from_start = from_start
        self.moved_out: set[Id] = set()
        """Slots that a rewrite moved to before all rows that are here."""

    def rewrite(self, op: Rewrite, messages: Sequence[Message], step: Step) -> None:
        index = self.index
        op = with_slots(op, step.commit.id)
        inserts = [
            insert
            for insert in op.insert
            if (self._from_start if insert.after is None else insert.after in index)
        ]
        if len(inserts) < len(op.insert):
            self.moved_out |= _inserted(op) - _inserted(Rewrite(insert=tuple(inserts)))
        partial = Rewrite(
            drop=tuple(
                (first if first in index else self._first(), last)
                for first, last in op.drop
                if last in index
            ),
            change=tuple(change for change in op.change if change.slot in index),
            insert=tuple(inserts),
        )
        if partial.touches_rows:
            super().rewrite(partial, messages, step)

    def _first(self) -> Id:
        slot = self.rows[0].id
        assert slot is not None
        return slot


def compile_tail(
    store: Store, thread: str, head: Id, last: int, *, reasoning: bool = False
) -> list[Row]:
    """The last `last` rows that show at this commit, or all if there are fewer."""
    limit = last + SLACK
    while True:
        steps = store.walk(thread, head, limit=limit)
        rows = PartialRows(from_start=len(steps) < limit)
        run_steps(steps, rows)
        shown = show_rows(rows.rows, reasoning=reasoning)
        if len(shown) >= last or len(steps) < limit:
            return shown[max(0, len(shown) - last) :]
        limit *= GROWTH


def compile_slots(store: Store, thread: str, head: Id, slots: Collection[Id]) -> dict[Id, Row]:
    """Those of these rows that the commit compiles to, by slot."""
    depths = store.read_depths(thread, head, list(slots))
    oldest = min((depths.get(slot, 1) for slot in slots), default=1)
    # What came before a row rarely concerns it. Only a rewrite that moves a wanted row further up
    # than the oldest of them makes it necessary to read from the beginning.
    rows = _run_relevant(store, thread, head, depths, oldest - 1)
    if not rows.moved_out.isdisjoint(slots):
        rows = _run_relevant(store, thread, head, depths, 0)
    return {row.id: row for row in rows.rows if row.id in slots and row.id is not None}


def _run_relevant(
    store: Store, thread: str, head: Id, depths: Mapping[Id, int], after: int
) -> PartialRows:
    """Carry out the commits above depth `after` that concern the rows of these commits."""
    steps = store.walk(thread, head, after=after, but=tuple(PLAIN_BODIES))
    read_ids = {step.commit.id for step in steps}
    anchors = set(_anchors(steps)) - read_ids - depths.keys()
    if anchors:
        depths = {**depths, **store.read_depths(thread, head, list(anchors))}
    plain = [id for id, depth in depths.items() if depth > after and id not in read_ids]
    steps += store.read_commits(thread, plain)
    rows = PartialRows(from_start=after == 0)
    run_steps(sorted(steps, key=lambda step: step.depth), rows)
    return rows


def _anchors(steps: Iterable[Step]) -> Iterator[Id]:
    """The rows by which rewrites say where they drop and insert."""
    for step in steps:
        op = decode_body(step).op
        if isinstance(op, Rewrite):
            for run in op.drop:
                yield from run
            for insert in op.insert:
                if insert.after is not None:
                    yield insert.after


def _inserted(op: Rewrite) -> set[Id]:
    return {new.slot for insert in op.insert for new in insert.rows if new.slot is not None}
