"""When a line was said that a file never had: the time of the commit that brought it.

A message is its own commit; a line that a rewrite put in (a summary, what a merge brought home)
has a slot of its own, and is as old as that rewrite.
"""

from collections.abc import Collection, Iterator

from weft.history import Append, Rewrite, decode_body, new_slot, read_writers
from weft.ids import Id
from weft.store import Step
from weft.thread.handle import Handle


def read_moments(handle: Handle, slots: Collection[Id]) -> dict[Id, float]:
    """For each of these lines of the handle's branch, when it came there first."""
    head = handle.head()
    if head is None or not slots:
        return {}
    found: dict[Id, float] = {}
    for step in read_writers(handle.store, handle.name, head, slots):
        for slot in _brought(step):
            found.setdefault(slot, step.commit.created)
    return found


def _brought(step: Step) -> Iterator[Id]:
    """The slots of the lines that a commit put into the list."""
    match decode_body(step).op:
        case Append(slot=slot):
            yield slot or step.commit.id
        case Rewrite(insert=inserts):
            placed = [row for insert in inserts for row in insert.rows]
            for number, row in enumerate(placed):
                yield row.slot or new_slot(step.commit.id, number)
        case _:
            pass
