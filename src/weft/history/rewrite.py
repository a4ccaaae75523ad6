"""Plans the operation that turns one list of rows into another.

`plan_rewrite` compares by slot. A row that kept its slot and position is not mentioned, a changed
one is a `Change`, and one that moved is dropped and inserted again under its own slot.
`ops.apply_rewrite` applies
the operation and gives exactly the new list.
"""

from collections.abc import Sequence

from msgspec import Struct, structs

from weft.ids import Id
from weft.model import Message

from .objects import Change, Insert, InsertedRow, Rewrite, Row, Setup, State, same_setup

RUN = 256


class PlannedRewrite(Struct, frozen=True):
    """An operation and the messages it refers to by number."""

    op: Rewrite
    messages: tuple[Message, ...]

    def __bool__(self) -> bool:
        return self.op.touches_rows or self.op.setup is not None


def plan_rewrite(old: Sequence[Row], new: Sequence[Row]) -> PlannedRewrite:
    """The smallest operation that turns `old` into `new`; false if they are equal."""
    start = max(0, same_start(old, new) - 1)  # keep one row as the anchor of inserts
    old, new = old[start:], new[start:]
    old_positions = {row.id: position for position, row in enumerate(old) if row.id is not None}
    in_order = _slots_in_order(new, old_positions)
    messages: list[Message] = []
    changes: list[Change] = []
    inserts: list[Insert] = []
    run: list[InsertedRow] = []
    anchor: Id | None = None
    for row in new:
        if row.id in in_order:
            assert row.id is not None
            _close_run(inserts, run, anchor)
            anchor = row.id
            old_row = old[old_positions[row.id]]
            if row is not old_row and row != old_row:
                changes.append(_change(old_row, row, messages))
        else:
            run.append(InsertedRow(len(messages), row.id, row.priority, row.kind))
            messages.append(row.message)
    _close_run(inserts, run, anchor)
    op = Rewrite(_dropped_runs(old, in_order), tuple(changes), tuple(inserts))
    return PlannedRewrite(op, tuple(messages))


def plan_state(old: State, new: State) -> PlannedRewrite:
    """The operation that turns `old` into `new`, setup included."""
    planned = plan_rewrite(old.rows, new.rows)
    if same_setup(new.setup, old.setup):
        return planned
    return structs.replace(planned, op=structs.replace(planned.op, setup=new.setup or Setup()))


def same_start(one: Sequence[Row], other: Sequence[Row]) -> int:
    """The length of the common prefix; compares whole runs, because most rows are identical."""
    if type(one) is not type(other):  # a list is never equal to a tuple
        one, other = (rows if isinstance(rows, list) else list(rows) for rows in (one, other))
    most = min(len(one), len(other))
    same = 0
    while same < most and one[same : same + RUN] == other[same : same + RUN]:
        same += RUN
    while same < most and one[same] == other[same]:
        same += 1
    return min(same, most)


def _slots_in_order(new: Sequence[Row], old_positions: dict[Id, int]) -> set[Id]:
    """Slots of `new` that are in their old order, without those that moved."""
    in_order: set[Id] = set()
    last = -1
    for row in new:
        if row.id is not None and row.id not in in_order and old_positions.get(row.id, -1) > last:
            in_order.add(row.id)
            last = old_positions[row.id]
    return in_order


def _change(old: Row, new: Row, messages: list[Message]) -> Change:
    assert new.id is not None
    entry = None
    if new.message != old.message:
        entry = len(messages)
        messages.append(new.message)
    return Change(
        new.id,
        entry,
        None if new.priority == old.priority else new.priority,
        None if new.kind == old.kind else new.kind,
    )


def _close_run(inserts: list[Insert], run: list[InsertedRow], anchor: Id | None) -> None:
    if run:
        inserts.append(Insert(tuple(run), anchor))
        run.clear()


def _dropped_runs(old: Sequence[Row], in_order: set[Id]) -> tuple[tuple[Id, Id], ...]:
    runs: list[tuple[Id, Id]] = []
    open_run = False
    for row in old:
        assert row.id is not None
        if row.id in in_order:
            open_run = False
        elif open_run:
            runs[-1] = (runs[-1][0], row.id)
        else:
            runs.append((row.id, row.id))
            open_run = True
    return tuple(runs)
