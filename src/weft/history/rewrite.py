"""Plans the operation that turns one list of rows into another.

`plan_rewrite` compares by slot. A row that kept its slot and position is not mentioned, a changed
one is a `Change`, and one that moved is dropped and inserted again under its own slot.
`ops.apply_rewrite` carries the operation out and gives exactly the new list.
"""

from collections.abc import Sequence

from msgspec import Struct, structs

from weft.ids import Id
from weft.model import Message

from .objects import Change, Insert, Placed, Rewrite, Row, Setup, State, same_setup

RUN = 256


class PlannedRewrite(Struct, frozen=True):
    """An operation and the messages it refers to by number."""

    op: Rewrite
    messages: tuple[Message, ...]

    def __bool__(self) -> bool:
        return self.op.touches_rows or self.op.setup is not None


def plan_rewrite(old: Sequence[Row], new: Sequence[Row]) -> PlannedRewrite:
    """The smallest operation that makes `new` of `old`; false when they are the same."""
    start = max(0, same_start(old, new) - 1)  # one stays, for what is put behind it
    old, new = old[start:], new[start:]
    before = {row.id: position for position, row in enumerate(old) if row.id is not None}
    kept = _kept(new, before)
    messages: list[Message] = []
    changes: list[Change] = []
    inserts: list[Insert] = []
    run: list[Placed] = []
    anchor: Id | None = None
    for row in new:
        if row.id in kept:
            assert row.id is not None
            _close_run(inserts, run, anchor)
            anchor = row.id
            was = old[before[row.id]]
            if row is not was and row != was:
                changes.append(_change(was, row, messages))
        else:
            run.append(Placed(len(messages), row.id, row.priority, row.kind))
            messages.append(row.message)
    _close_run(inserts, run, anchor)
    op = Rewrite(_dropped_runs(old, kept), tuple(changes), tuple(inserts))
    return PlannedRewrite(op, tuple(messages))


def plan_state(old: State, new: State) -> PlannedRewrite:
    """The operation that makes `new` of `old`, the setup included."""
    planned = plan_rewrite(old.rows, new.rows)
    if same_setup(new.setup, old.setup):
        return planned
    return structs.replace(planned, op=structs.replace(planned.op, setup=new.setup or Setup()))


def same_start(one: Sequence[Row], other: Sequence[Row]) -> int:
    """How many rows both begin with; they are mostly the very same ones, so runs go at once."""
    if type(one) is not type(other):  # a list is never equal to a tuple
        one, other = (rows if isinstance(rows, list) else list(rows) for rows in (one, other))
    most = min(len(one), len(other))
    same = 0
    while same < most and one[same : same + RUN] == other[same : same + RUN]:
        same += RUN
    while same < most and one[same] == other[same]:
        same += 1
    return min(same, most)


def _kept(new: Sequence[Row], before: dict[Id, int]) -> set[Id]:
    """Slots of `new` that stand in their old order: those that moved are not among them."""
    kept: set[Id] = set()
    last = -1
    for row in new:
        if row.id is not None and row.id not in kept and before.get(row.id, -1) > last:
            kept.add(row.id)
            last = before[row.id]
    return kept


def _change(was: Row, now: Row, messages: list[Message]) -> Change:
    assert now.id is not None
    entry = None
    if now.message != was.message:
        entry = len(messages)
        messages.append(now.message)
    return Change(
        now.id,
        entry,
        None if now.priority == was.priority else now.priority,
        None if now.kind == was.kind else now.kind,
    )


def _close_run(inserts: list[Insert], run: list[Placed], anchor: Id | None) -> None:
    if run:
        inserts.append(Insert(tuple(run), anchor))
        run.clear()


def _dropped_runs(old: Sequence[Row], kept: set[Id]) -> tuple[tuple[Id, Id], ...]:
    runs: list[tuple[Id, Id]] = []
    open_run = False
    for row in old:
        assert row.id is not None
        if row.id in kept:
            open_run = False
        elif open_run:
            runs[-1] = (runs[-1][0], row.id)
        else:
            runs.append((row.id, row.id))
            open_run = True
    return tuple(runs)
