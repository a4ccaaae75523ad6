"""Which commits may have written a line: the one that appended it, and the few that say more.

Nearly every commit appends a line of its own and says nothing else; such a one has written no
other line. So of all that a branch comes from only the others are read, and of those only what
came after the line. Sides that were merged are followed down to where they left the branch.
"""

from collections.abc import Collection

from weft.ids import Id
from weft.store import Step, Store

from .objects import PLAIN

NEAR, FAR = 16, 4096


def read_writers(store: Store, thread: str, head: Id, slots: Collection[Id]) -> list[Step]:
    """The commits that `head` comes from and that may have written these lines, older first.

    Others are among them; every commit that wrote one of the lines is.
    """
    born = store.read_depths(thread, head, list(slots))
    oldest = min((born.get(slot, 1) for slot in slots), default=1)
    found: dict[Id, Step] = {}
    ids = set(born)
    sides = _read_chain(store, thread, head, oldest - 1, found)
    seen: set[Id] = set()
    while sides:
        tip = sides.pop()
        if tip not in seen:
            seen.add(tip)
            after, aside = _leave(store, thread, head, tip)
            ids |= aside.intersection(slots)
            sides += _read_chain(store, thread, tip, after, found)
    for step in store.read_commits(thread, [id for id in ids if id not in found]):
        found[step.commit.id] = step
    return sorted(found.values(), key=lambda step: step.depth)


def _read_chain(store: Store, thread: str, tip: Id, after: int, found: dict[Id, Step]) -> list[Id]:
    """Add what a chain of first parents says beside plain messages; the sides it merged."""
    sides: list[Id] = []
    for step in store.walk(thread, tip, after=after, but=tuple(PLAIN)):
        if step.commit.id not in found:
            found[step.commit.id] = step
            sides += step.commit.parents[1:]
    return sides


def _leave(store: Store, thread: str, head: Id, tip: Id) -> tuple[int, set[Id]]:
    """The depth at which a side left the chain of `head`, 0 where it never did; what is above."""
    limit = NEAR
    while True:
        nodes = store.walk_nodes(thread, tip, limit)
        shared = store.read_depths(thread, head, [node.id for node in nodes])
        if shared or len(nodes) < limit:
            return max(shared.values(), default=0), {n.id for n in nodes if n.id not in shared}
        limit = min(4 * limit, limit + FAR)
