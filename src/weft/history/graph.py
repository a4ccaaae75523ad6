"""The shape of history: who comes before whom.

Depth grows along every parent, so a walk that always takes the deepest commit next meets the best
common ancestor first, having read no more than what the two sides do not share.
"""

from heapq import heappop, heappush

from weft.ids import Id
from weft.store import Store

OURS, THEIRS = 1, 2


def merge_base(store: Store, thread: str, ours: Id, theirs: Id) -> Id | None:
    """The deepest commit that both sides come from; `None` where they share none."""
    sides: dict[Id, int] = {}
    parents: dict[Id, tuple[Id, ...]] = {}
    heap: list[tuple[int, Id]] = []

    def visit(id: Id, side: int) -> None:
        if id not in sides:
            (node,) = store.read_nodes(thread, [id])
            parents[id] = node.parents
            heappush(heap, (-node.depth, id))
        sides[id] = sides.get(id, 0) | side

    visit(ours, OURS)
    visit(theirs, THEIRS)
    while heap:
        _, id = heappop(heap)
        if sides[id] == OURS | THEIRS:
            return id
        for parent in parents.pop(id):
            visit(parent, sides[id])
    return None
