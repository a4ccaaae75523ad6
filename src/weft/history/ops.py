"""The interpreter of history operations: the only code that applies commits.

`run_steps` applies commits one by one to a list of rows. The caller chooses the kind of list:

- `ListRows` is a plain list: rebase, cherry-pick and revert work on it;
- `compile` has a list that the views of one branch share;
- a partial compile (`compile_tail`, `compile_slots`) has a list with only some of the rows.

So a compile from scratch, an incremental one and a partial one cannot interpret an operation
differently.

`plan_rewrite` plans the operation that turns one list of rows into another. It compares by slot. A
row that kept its slot and position is not mentioned, a changed one is a `Change`, and one that
moved is dropped and inserted again under its own slot. `apply_rewrite` applies the operation and
gives exactly the new list.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct, structs

from weft.errors import Damaged
from weft.ids import Id
from weft.model import Message
from weft.store import Step

from .objects import (
    Append,
    Change,
    Insert,
    InsertedRow,
    Rewrite,
    Row,
    Setup,
    State,
    decode_appended,
    decode_body,
    decode_entries,
    new_slot,
    same_setup,
)

MAX_INDEX_DEPTH = 8
"""How many indexes may build on each other before a new one is made from all rows."""


class RowList(Protocol):
    """A list of rows to which operations are applied."""

    def append(self, row: Row, step: Step, setup: Setup | None) -> None:
        """Add the row that `step` appends; `setup` is in force at that commit."""
        ...

    def rewrite(self, op: Rewrite, messages: Sequence[Message], step: Step) -> None:
        """Drop, change and insert rows; `op` touches at least one."""
        ...


def run_steps(steps: Iterable[Step], rows: RowList, setup: Setup | None = None) -> Setup | None:
    """Apply these commits to `rows`, oldest first; returns the setup afterwards."""
    for step in steps:
        op = decode_body(step).op
        match op:
            case Append(kind=kind, priority=priority):
                slot = op.slot or step.commit.id
                rows.append(Row(slot, decode_appended(step), priority, kind), step, setup)
            case Rewrite():
                if op.setup is not None:
                    setup = op.setup
                if op.touches_rows:
                    rows.rewrite(op, decode_entries(step), step)
            case Setup():
                setup = op
    return setup


def run_step(state: State, step: Step) -> State:
    """The state after one more commit."""
    rows = ListRows(state.rows)
    setup = run_steps([step], rows, state.setup)
    return State(rows.rows, setup)


class SlotIndex:
    """The position of each slot in a list of rows.

    A list that comes from another usually begins with the same rows. Its index asks `base`, the
    index of the other list, for the first `shared` positions. It stores only the later ones, in
    `own`, so that a change at the end of a long thread copies nothing. Code that appends a row adds
    its position to `own`.
    """

    __slots__ = ("_base", "_depth", "_shared", "own")

    def __init__(self, rows: Sequence[Row], base: "SlotIndex | None" = None, shared: int = 0):
        self._depth = 0 if base is None or not shared else base._depth + 1
        if self._depth > MAX_INDEX_DEPTH:
            self._depth = 0
        self._base = base if self._depth else None
        self._shared = shared if self._depth else 0
        self.own: dict[Id | None, int] = {
            rows[position].id: position for position in range(self._shared, len(rows))
        }

    def find(self, slot: Id | None) -> int | None:
        """The position of a slot, or `None` if it is not in the list."""
        position = self.own.get(slot)
        if position is not None or self._base is None:
            return position
        position = self._base.find(slot)
        return position if position is not None and position < self._shared else None

    def __contains__(self, slot: Id | None) -> bool:
        return self.find(slot) is not None

    def __getitem__(self, slot: Id | None) -> int:
        position = self.find(slot)
        if position is None:
            raise KeyError(slot)
        return position


class ListRows:
    """A plain list of rows."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.rows = list(rows)
        self._index: SlotIndex | None = None

    @property
    def index(self) -> SlotIndex:
        if self._index is None:
            self._index = SlotIndex(self.rows)
        return self._index

    def append(self, row: Row, step: Step, setup: Setup | None) -> None:  # noqa: ARG002
        self.add(row)

    def add(self, row: Row) -> None:
        """Add a row at the end."""
        if self._index is not None:
            self._index.own[row.id] = len(self.rows)
        self.rows.append(row)

    def rewrite(self, op: Rewrite, messages: Sequence[Message], step: Step) -> None:
        if op.drop or op.insert:
            self.rows = apply_rewrite(self.rows, op, messages, step.commit.id, self.index)
            self._index = None
        else:
            change_in_place(self.rows, op, messages, step.commit.id, self.index)


def apply_rewrite(
    rows: Sequence[Row],
    op: Rewrite,
    messages: Sequence[Message],
    commit: Id,
    index: SlotIndex | None = None,
) -> list[Row]:
    """The rows after `op`; raises `Damaged` if it names an unknown slot.

    `index` is the index of `rows`, if the caller has one. All positions are those before the
    rewrite, so the order of its parts does not matter.
    """
    if index is None:
        index = SlotIndex(rows)
    replaced: dict[int, Row | None] = {}  # `None` for a dropped row
    added: dict[int, list[Row]] = {}  # rows after this position; -1 is before all rows
    try:
        for change in op.change:
            position = index[change.slot]
            replaced[position] = changed_row(rows[position], change, messages)
        for first, last in op.drop:
            replaced.update(dict.fromkeys(range(index[first], index[last] + 1)))
        for insert in with_slots(op, commit).insert:
            position = -1 if insert.after is None else index[insert.after]
            added.setdefault(position, []).extend(
                Row(new.slot, messages[new.entry], new.priority, new.kind) for new in insert.rows
            )
    except (KeyError, IndexError):
        raise _unknown_row(commit) from None
    start = max(0, min([*replaced, *added], default=len(rows)))
    result = list(rows)
    result[start:] = added.get(-1, ())  # rows inserted before everything make `start` 0
    for position in range(start, len(rows)):
        row = replaced.get(position, rows[position])
        if row is not None:
            result.append(row)
        if position in added:
            result.extend(added[position])
    return result


def change_in_place(
    rows: list[Row], op: Rewrite, messages: Sequence[Message], commit: Id, index: SlotIndex
) -> None:
    """Apply a rewrite that only changes rows; the cost depends on the number of changes."""
    try:
        for change in op.change:
            position = index[change.slot]
            rows[position] = changed_row(rows[position], change, messages)
    except (KeyError, IndexError):
        raise _unknown_row(commit) from None


def changed_row(row: Row, change: Change, messages: Sequence[Message]) -> Row:
    """The row after its change."""
    return Row(
        row.id,
        row.message if change.entry is None else messages[change.entry],
        row.priority if change.priority is None else change.priority,
        row.kind if change.kind is None else change.kind,
    )


def with_slots(op: Rewrite, commit: Id) -> Rewrite:
    """The rewrite with every inserted row's slot named.

    A new row's slot is a hash of its commit and its number among all rows that the commit inserts,
    so slots must be named before any insert is left out.
    """
    number = 0
    inserts: list[Insert] = []
    for insert in op.insert:
        rows = tuple(
            new
            if new.slot is not None
            else structs.replace(new, slot=new_slot(commit, number + offset))
            for offset, new in enumerate(insert.rows)
        )
        number += len(rows)
        inserts.append(Insert(rows, insert.after))
    return Rewrite(op.drop, op.change, tuple(inserts), op.setup)


def count_untouched(op: Rewrite, index: SlotIndex, length: int) -> int:
    """How many of these `length` rows come before everything that the operation changes."""
    positions = [index[change.slot] for change in op.change]
    positions += [index[first] for first, _ in op.drop]
    positions += [-1 if insert.after is None else index[insert.after] for insert in op.insert]
    return max(0, min(positions, default=length))


def _unknown_row(commit: Id) -> Damaged:
    return Damaged(f"commit {commit.hex()} rewrites a row that does not exist")


COMPARED_AT_ONCE = 256  # rows; one comparison of two slices is faster than one for each row


class PlannedRewrite(Struct, frozen=True):
    """An operation and the messages it refers to by number."""

    op: Rewrite
    messages: tuple[Message, ...]

    def __bool__(self) -> bool:
        return self.op.touches_rows or self.op.setup is not None


def plan_rewrite(old: Sequence[Row], new: Sequence[Row]) -> PlannedRewrite:
    """The smallest operation that turns `old` into `new`; false if they are equal."""
    start = max(0, common_prefix_length(old, new) - 1)  # keep one row as the anchor of inserts
    old, new = old[start:], new[start:]
    old_positions = {row.id: position for position, row in enumerate(old) if row.id is not None}
    in_order = _slots_in_order(new, old_positions)
    messages: list[Message] = []
    changes: list[Change] = []
    inserts: list[Insert] = []
    inserted_run: list[InsertedRow] = []
    anchor: Id | None = None
    for row in new:
        if row.id in in_order:
            assert row.id is not None
            _end_run(inserts, inserted_run, anchor)
            anchor = row.id
            old_row = old[old_positions[row.id]]
            if row is not old_row and row != old_row:
                changes.append(_plan_change(old_row, row, messages))
        else:
            inserted_run.append(InsertedRow(len(messages), row.id, row.priority, row.kind))
            messages.append(row.message)
    _end_run(inserts, inserted_run, anchor)
    op = Rewrite(_dropped_runs(old, in_order), tuple(changes), tuple(inserts))
    return PlannedRewrite(op, tuple(messages))


def plan_state(old: State, new: State) -> PlannedRewrite:
    """The operation that turns `old` into `new`, setup included."""
    planned = plan_rewrite(old.rows, new.rows)
    if same_setup(new.setup, old.setup):
        return planned
    return structs.replace(planned, op=structs.replace(planned.op, setup=new.setup or Setup()))


def common_prefix_length(one: Sequence[Row], other: Sequence[Row]) -> int:
    """How many rows at the start of both lists are equal."""
    if type(one) is not type(other):  # a list is never equal to a tuple
        one, other = (rows if isinstance(rows, list) else list(rows) for rows in (one, other))
    limit = min(len(one), len(other))
    length, size = 0, COMPARED_AT_ONCE
    while length < limit and one[length : length + size] == other[length : length + size]:
        length += size
    while length < limit and one[length] == other[length]:
        length += 1
    return min(length, limit)


def _slots_in_order(new: Sequence[Row], old_positions: dict[Id, int]) -> set[Id]:
    """The slots of `new` that keep their old order; the others moved or are new."""
    in_order: set[Id] = set()
    last = -1
    for row in new:
        position = -1 if row.id is None else old_positions.get(row.id, -1)
        if row.id is not None and row.id not in in_order and position > last:
            in_order.add(row.id)
            last = position
    return in_order


def _plan_change(old: Row, new: Row, messages: list[Message]) -> Change:
    """The change of one row; a new message is added to `messages`."""
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


def _end_run(inserts: list[Insert], run: list[InsertedRow], anchor: Id | None) -> None:
    """Add the collected rows as one insert, and begin a new run."""
    if run:
        inserts.append(Insert(tuple(run), anchor))
        run.clear()


def _dropped_runs(old: Sequence[Row], in_order: set[Id]) -> tuple[tuple[Id, Id], ...]:
    """The first and last slot of each run of rows that are dropped."""
    runs: list[tuple[Id, Id]] = []
    in_run = False
    for row in old:
        assert row.id is not None
        if row.id in in_order:
            in_run = False
        elif in_run:
            runs[-1] = (runs[-1][0], row.id)
        else:
            runs.append((row.id, row.id))
            in_run = True
    return tuple(runs)
