"""From an old list and a new one to the operation that a commit stores, and back again.

`plan_rewrite` compares by slot: a line that kept its slot and place is not mentioned, one that
changed is a `Change`, one that moved is dropped and put in again under its own slot.
`apply_rewrite` gives exactly the new list again.
"""

from collections.abc import Sequence

from msgspec import Struct, structs

from weft.errors import Damaged
from weft.ids import Id
from weft.model import Message

from .objects import Change, Insert, Placed, Rewrite, Row, Setup, State, new_slot, same_setup

DEEPEST = 8
"""So many lists may stand on each other before one is counted anew."""


class SlotIndex:
    """The places of `rows`; the first `shared` of them are where `before` has them.

    `own` are the places behind those: whoever appends a line writes it there.
    """

    __slots__ = ("_before", "_deep", "_shared", "own")

    def __init__(self, rows: Sequence[Row], before: "SlotIndex | None" = None, shared: int = 0):
        self._deep = 0 if before is None or not shared else before._deep + 1
        if self._deep > DEEPEST:
            self._deep = 0
        self._before = before if self._deep else None
        self._shared = shared if self._deep else 0
        self.own: dict[Id | None, int] = {
            rows[place].id: place for place in range(self._shared, len(rows))
        }

    def find(self, slot: Id | None) -> int | None:
        """The place of a slot, or `None` where it is not in the list."""
        place = self.own.get(slot)
        if place is not None or self._before is None:
            return place
        place = self._before.find(slot)
        return place if place is not None and place < self._shared else None

    def __getitem__(self, slot: Id | None) -> int:
        place = self.find(slot)
        if place is None:
            raise KeyError(slot)
        return place


RUN = 256


class PlannedRewrite(Struct, frozen=True):
    """An operation and the messages it refers to by number."""

    op: Rewrite
    messages: tuple[Message, ...]

    def __bool__(self) -> bool:
        return self.op.touches_lines or self.op.setup is not None


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


def apply_rewrite(
    rows: Sequence[Row],
    op: Rewrite,
    messages: Sequence[Message],
    commit: Id,
    position: SlotIndex | None = None,
) -> list[Row]:
    """The list that `op` makes of `rows`; raises `Damaged` where it names an unknown slot.

    `position` is where each slot stands, if that is known already.
    """
    if position is None:
        position = SlotIndex(rows)
    touched: dict[int, Row | None] = {}
    added: dict[int, list[Row]] = {}
    number = 0
    try:
        for change in op.change:
            index = position[change.slot]
            touched[index] = changed(rows[index], change, messages)
        for first, last in op.drop:
            touched.update(dict.fromkeys(range(position[first], position[last] + 1)))
        for insert in op.insert:
            place = -1 if insert.after is None else position[insert.after]
            behind = added.setdefault(place, [])
            for placed in insert.rows:
                slot = new_slot(commit, number) if placed.slot is None else placed.slot
                number += 1
                behind.append(Row(slot, messages[placed.entry], placed.priority, placed.kind))
    except (KeyError, IndexError):
        raise Damaged(f"commit {commit.hex()} rewrites a line that is not there") from None
    start = max(0, min([*touched, *added], default=len(rows)))
    woven = list(rows)
    woven[start:] = added.get(-1, ())  # what is put before all lines leaves none of them alone
    for index in range(start, len(rows)):
        row = touched.get(index, rows[index])
        if row is not None:
            woven.append(row)
        if index in added:
            woven.extend(added[index])
    return woven


def untouched(op: Rewrite, position: SlotIndex, length: int) -> int:
    """How many lines at the start of a list of this length an operation surely leaves alone."""
    places = [position[change.slot] for change in op.change]
    places += [position[first] for first, _ in op.drop]
    places += [-1 if insert.after is None else position[insert.after] for insert in op.insert]
    return max(0, min(places, default=length))


def changed(row: Row, change: Change, messages: Sequence[Message]) -> Row:
    """The line after its change."""
    return Row(
        row.id,
        row.message if change.entry is None else messages[change.entry],
        row.priority if change.priority is None else change.priority,
        row.kind if change.kind is None else change.kind,
    )


def same_start(one: Sequence[Row], other: Sequence[Row]) -> int:
    """How many lines both begin with; they are mostly the very same ones, so runs go at once."""
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
