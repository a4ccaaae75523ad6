"""The commit graph: branches and tags, ancestors, and the merge base.

A commit is deeper than all its parents. So a walk that always takes the deepest commit next finds
the best common ancestor first, and reads only what the two sides do not share.

`read_writers` finds the commits that may have written a row. Nearly every commit appends one row
and does nothing else, so only the others are read, and of those only the ones after the row. Merged
sides are followed down to where they left the branch.
"""

from collections.abc import Collection, Mapping
from heapq import heappop, heappush

from weft.ids import Id
from weft.store import Node, Step, Store

from .objects import PLAIN_BODIES


def read_writers(store: Store, thread: str, head: Id, slots: Collection[Id]) -> list[Step]:
    """The ancestors of `head` that may have written these rows, older first.

    The list has every commit that wrote one of the rows, and may have others.
    """
    depths = store.read_depths(thread, head, list(slots))
    oldest = min((depths.get(slot, 1) for slot in slots), default=1)
    steps: dict[Id, Step] = {}
    ids = set(depths)
    sides = _read_chain(store, thread, head, oldest - 1, steps)
    done: set[Id] = set()
    while sides:
        tip = sides.pop()
        if tip not in done:
            done.add(tip)
            after, aside = _leave(store, thread, head, tip)
            ids |= aside.intersection(slots)
            sides += _read_chain(store, thread, tip, after, steps)
    for step in store.read_commits(thread, [id for id in ids if id not in steps]):
        steps[step.commit.id] = step
    return sorted(steps.values(), key=lambda step: step.depth)


def _read_chain(store: Store, thread: str, tip: Id, after: int, steps: dict[Id, Step]) -> list[Id]:
    """Read the commits of a first-parent chain that do more than append; returns merged sides."""
    sides: list[Id] = []
    for step in store.walk(thread, tip, after=after, but=tuple(PLAIN_BODIES)):
        if step.commit.id not in steps:
            steps[step.commit.id] = step
            sides += step.commit.parents[1:]
    return sides


def _leave(store: Store, thread: str, head: Id, tip: Id) -> tuple[int, set[Id]]:
    """The depth at which a side left the chain of `head` (0 if never), and the ids above it."""
    limit = NEAR
    while True:
        nodes = store.walk_nodes(thread, tip, limit)
        shared = store.read_depths(thread, head, [node.id for node in nodes])
        if shared or len(nodes) < limit:
            return max(shared.values(), default=0), {n.id for n in nodes if n.id not in shared}
        limit = min(4 * limit, limit + FAR)


OURS, THEIRS = 1, 2
PAGE = 64
NEAR, FAR = 16, 4096
TAG = "tag:"
"""Before a tag's name among the refs; no branch may have a colon in its name."""


def read_branches(store: Store, thread: str) -> dict[str, Id]:
    """The commit of each branch, by name."""
    refs = store.refs(thread)
    return {name: head for name, head in refs.items() if not name.startswith(TAG)}


def read_tags(store: Store, thread: str) -> dict[str, Id]:
    """Every tag and the commit it names."""
    refs = store.refs(thread)
    return {name.removeprefix(TAG): id for name, id in refs.items() if name.startswith(TAG)}


def merge_base(store: Store, thread: str, ours: Id, theirs: Id) -> Id | None:
    """The deepest common ancestor; `None` if there is none."""
    sides: dict[Id, int] = {}
    heap: list[tuple[int, Id]] = []
    node_of = _NodeReader(store, thread)

    def visit(id: Id, side: int) -> None:
        if id not in sides:
            heappush(heap, (-node_of(id).depth, id))
        sides[id] = sides.get(id, 0) | side

    visit(ours, OURS)
    visit(theirs, THEIRS)
    while heap:
        _, id = heappop(heap)
        if sides[id] == OURS | THEIRS:
            return id
        for parent in node_of(id).parents:
            visit(parent, sides[id])
    return None


class _NodeReader:
    """Reads commits of the graph together with their ancestors, which a walk needs next.

    The number of ancestors grows, so that a long walk takes few queries and a short one reads
    little.
    """

    def __init__(self, store: Store, thread: str) -> None:
        self._store = store
        self._thread = thread
        self._nodes: dict[Id, Node] = {}
        self._limit = NEAR

    def __call__(self, id: Id) -> Node:
        if id not in self._nodes:
            run = self._store.walk_nodes(self._thread, id, self._limit)
            self._nodes.update((node.id, node) for node in run)
            self._limit = min(2 * self._limit, FAR)
        return self._nodes[id]


def read_ancestors(store: Store, thread: str, head: Id) -> list[Step]:
    """All ancestors of `head` and itself, through all parents, older first."""
    steps_by_id: dict[Id, Step] = {}
    waiting = [head]
    while waiting:
        steps = _unknown(store, thread, waiting.pop(), steps_by_id)
        steps_by_id.update((step.commit.id, step) for step in steps)
        waiting += [other for step in steps for other in step.commit.parents[1:]]
    return sorted(steps_by_id.values(), key=lambda step: step.depth)


def _unknown(store: Store, thread: str, tip: Id, known: Mapping[Id, Step]) -> list[Step]:
    """The first-parent chain down from `tip`, down to the first known commit."""
    limit = PAGE
    while known:
        steps = store.walk(thread, tip, limit=limit)
        for position in range(len(steps) - 1, -1, -1):
            if steps[position].commit.id in known:
                return steps[position + 1 :]
        if len(steps) < limit:
            return steps
        limit *= PAGE
    return store.walk(thread, tip)
