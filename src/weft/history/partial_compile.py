"""What a few lines say now, without compiling the list that they stand in.

Nearly every commit appends a line and says nothing else, so the lines of a branch stand in the
order of the depths of their commits. The few commits that say more are read, and carried out on
the wanted lines alone: a change and an insert name the lines they mean, and a run that is dropped
names its first and last one. Whether a line stands between those two is told by *ranks*: the depth
of its commit for a line that was appended, and for one that was put behind another the half step
behind that one's. Two lines in the same half step have no order here; where it would matter, the
answer is `None`, and the caller compiles.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import floor

from weft.ids import Id
from weft.store import Step, Store

from .compile import show_rows
from .objects import (
    PLAIN,
    Append,
    Insert,
    Placed,
    Rewrite,
    Row,
    Setup,
    decode_appended,
    decode_body,
    decode_entries,
    new_slot,
)
from .rewrite import apply_rewrite, changed

SLACK = 64
GROWTH = 4


def read_tail(
    store: Store, thread: str, head: Id, last: int, *, reasoning: bool = False
) -> list[Row]:
    """The last so many lines that show at this commit; fewer where there are no more."""
    limit = last + SLACK
    while True:
        steps = store.walk(thread, head, limit=limit)
        shown = show_rows(tail_of(steps), reasoning=reasoning)
        if len(shown) >= last or len(steps) < limit:
            return shown[max(0, len(shown) - last) :]
        limit *= GROWTH


def tail_of(steps: Iterable[Step]) -> list[Row]:
    """The lines behind everything that stood there before these commits."""
    rows: list[Row] = []
    starts = False  # whether the end is the whole list, since the first commit is among the steps
    for step in steps:
        starts = starts or not step.commit.parents
        op = decode_body(step).op
        match op:
            case Append(kind=kind, priority=priority):
                slot = op.slot or step.commit.id
                rows.append(Row(slot, decode_appended(step), priority, kind))
            case Rewrite():
                messages = decode_entries(step)
                within = _within(op, rows, step.commit.id, starts)
                rows = apply_rewrite(rows, within, messages, step.commit.id)
            case Setup():
                pass
    return rows


def _within(op: Rewrite, rows: Sequence[Row], commit: Id, starts: bool) -> Rewrite:
    """As much of a rewrite as concerns these last lines of its list."""
    known: set[Id | None] = {row.id for row in rows}
    if starts:
        known.add(None)  # what stands before everything is here too
    return Rewrite(
        drop=tuple(
            (first if first in known else _first_slot(rows), last)
            for first, last in op.drop
            if last in known
        ),
        change=tuple(change for change in op.change if change.slot in known),
        insert=tuple(insert for insert in _with_slots(op.insert, commit) if insert.after in known),
    )


def _first_slot(rows: Sequence[Row]) -> Id:
    slot = rows[0].id
    assert slot is not None
    return slot


def _with_slots(inserts: Iterable[Insert], commit: Id) -> Iterator[Insert]:
    """The inserts with every slot spelt out, because a slot's number counts all of them."""
    number = 0
    for insert in inserts:
        rows: list[Placed] = []
        for placed in insert.rows:
            slot = new_slot(commit, number) if placed.slot is None else placed.slot
            rows.append(Placed(placed.entry, slot, placed.priority, placed.kind))
            number += 1
        yield Insert(tuple(rows), insert.after)


Ranks = dict[Id | None, float]


class _Unordered(LookupError):
    """The ranks do not tell whether a line is inside a run."""


def read_rows(store: Store, thread: str, head: Id, slots: Collection[Id]) -> dict[Id, Row] | None:
    """Those of these lines that the commit compiles to; `None` where only compiling tells."""
    depths = store.read_depths(thread, head, list(slots))
    oldest = min((depths.get(slot, 0) for slot in slots), default=0)
    for after in sorted({oldest, 0}, reverse=True):  # what came before a line rarely concerns it
        try:
            return _lines_since(store, thread, head, slots, depths, after)
        except _Unordered:
            continue
    return None


def _lines_since(
    store: Store,
    thread: str,
    head: Id,
    slots: Collection[Id],
    depths: Mapping[Id, int],
    after: int,
) -> dict[Id, Row]:
    """What the commits above depth `after` made of these lines."""
    steps = store.walk(thread, head, after=after, but=tuple(PLAIN))
    told = [(step, decode_body(step).op) for step in steps]
    named = set(_named(op for _, op in told if isinstance(op, Rewrite))) - set(depths)
    ranks: Ranks = {None: 0, **depths, **store.read_depths(thread, head, list(named))}
    born = store.read_commits(thread, [slot for slot in slots if slot in depths])
    lines = {step.commit.id: _appended(step) for step in born}
    for step, op in told:
        match op:
            case Append(slot=slot) if slot is not None:
                ranks[slot] = step.depth
                if slot in slots:
                    lines[slot] = _appended(step)
            case Rewrite():
                _rewrite(lines, ranks, slots, step, op)
                if any(ranks[slot] < after for slot in lines):
                    raise _Unordered  # it went among lines that may have been moved before
            case _:
                pass
    return lines


def _rewrite(
    lines: dict[Id, Row], ranks: Ranks, slots: Collection[Id], step: Step, op: Rewrite
) -> None:
    """Carry out a rewrite on the wanted lines; runs and places are those before it."""
    messages = decode_entries(step)
    for change in op.change:
        if change.slot in lines:
            lines[change.slot] = changed(lines[change.slot], change, messages)
    for slot in [slot for slot in lines if any(_inside(slot, run, ranks) for run in op.drop)]:
        del lines[slot]
    placed = [(insert.after, line) for insert in op.insert for line in insert.rows]
    moved: Ranks = {}
    for number, (after, line) in enumerate(placed):
        slot = new_slot(step.commit.id, number) if line.slot is None else line.slot
        moved[slot] = floor(_rank(after, ranks)) + 0.5
        if slot in slots:
            lines[slot] = Row(slot, messages[line.entry], line.priority, line.kind)
    ranks.update(moved)


def _inside(slot: Id, run: tuple[Id, Id], ranks: Mapping[Id | None, float]) -> bool:
    if slot in run:
        return True
    first, here, last = (_rank(id, ranks) for id in (run[0], slot, run[1]))
    if here in (first, last):
        raise _Unordered
    return first < here < last


def _rank(slot: Id | None, ranks: Mapping[Id | None, float]) -> float:
    try:
        return ranks[slot]
    except KeyError:
        raise _Unordered from None


def _named(rewrites: Iterable[Rewrite]) -> Iterator[Id]:
    """The lines by which rewrites say where."""
    for op in rewrites:
        for run in op.drop:
            yield from run
        for insert in op.insert:
            if insert.after is not None:
                yield insert.after


def _appended(step: Step) -> Row:
    op = decode_body(step).op
    assert isinstance(op, Append)
    return Row(op.slot or step.commit.id, decode_appended(step), op.priority, op.kind)
