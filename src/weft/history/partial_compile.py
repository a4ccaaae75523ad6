"""What a few lines say now, without compiling the list that they stand in.

Nearly every commit appends a line and says nothing else, so the lines of a branch stand in the
order of the depths of their commits. The few commits that say more are read, and carried out on
the wanted lines alone: a change and an insert name the lines they mean, and a run that is dropped
names its first and last one. Whether a line stands between those two is told by *ranks*: the depth
of its commit for a line that was appended, and for one that was put behind another the half step
behind that one's. Two lines in the same half step have no order here; where it would matter, the
answer is `None`, and the caller compiles.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from math import floor

from weft.ids import Id
from weft.store import Step, Store

from .objects import PLAIN, Append, Rewrite, Row, decode_body, decode_entries, decode_said, new_slot
from .rewrite import changed

Ranks = dict[Id | None, float]


class _Unordered(LookupError):
    """The ranks do not tell whether a line is inside a run."""


def read_lines(store: Store, thread: str, head: Id, slots: Collection[Id]) -> dict[Id, Row] | None:
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
    return Row(op.slot or step.commit.id, decode_said(step), op.priority, op.kind)
