"""The end of a long thread, compiled without its beginning.

An append adds behind everything, so the lines that the newest commits appended are the end of the
list, whatever stood before. A rewrite among them is carried out on that end alone: a change to an
earlier line, or a line put behind one, stays before the end; a run that is dropped from an earlier
line on takes the end's first lines with it. So what is held here is always exactly the last lines
of the whole list; where too few of them show, more commits are read.
"""

from collections.abc import Iterable, Iterator, Sequence

from weft.ids import Id
from weft.store import Step, Store

from .compile import show_rows
from .objects import (
    Append,
    Insert,
    Placed,
    Rewrite,
    Row,
    Setup,
    decode_body,
    decode_entries,
    decode_said,
    new_slot,
)
from .rewrite import apply_rewrite

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
                rows.append(Row(slot, decode_said(step), priority, kind))
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
        insert=tuple(insert for insert in _named(op.insert, commit) if insert.after in known),
    )


def _first_slot(rows: Sequence[Row]) -> Id:
    slot = rows[0].id
    assert slot is not None
    return slot


def _named(inserts: Iterable[Insert], commit: Id) -> Iterator[Insert]:
    """The inserts with every slot spelt out, because a slot's number counts all of them."""
    number = 0
    for insert in inserts:
        rows: list[Placed] = []
        for placed in insert.rows:
            slot = new_slot(commit, number) if placed.slot is None else placed.slot
            rows.append(Placed(placed.entry, slot, placed.priority, placed.kind))
            number += 1
        yield Insert(tuple(rows), insert.after)
