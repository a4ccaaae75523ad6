"""The commit graph: branches and tags, ancestors, and the merge base.

A commit is deeper than all its parents. So a walk that always takes the deepest commit next finds
the best common ancestor first, and reads only what the two sides do not share.

`read_writers` finds the commits that may have written some rows. A row is named by its slot, the id
of the commit that appended it. Nearly every commit only appends one row, so these commits are
skipped, except the slots themselves, and so are all commits older than the rows. A merged branch is
read down to the commit where it forked.

`newest_first` and `assign_lanes` put commits in the order and the columns (lanes) in which a graph
of them is drawn.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush

from msgspec import Struct

from weft.ids import Id
from weft.store import Node, Step, Store

from .objects import PLAIN_BODIES

TAG = "tag:"
"""The prefix of a tag among the refs. Branch names cannot contain a colon."""

FIRST_WALK, MAX_WALK = 16, 4096
"""How many commits a walk of unknown length reads first, and how many more at most per query."""

FIRST_PAGE, PAGE_GROWTH = 64, 64
"""How many commits of a chain are read first in the search for a known one, and the factor of the
next query. It is large because each query reads the chain from its tip again."""

OURS, THEIRS = 1, 2  # bits: a commit may be an ancestor of both sides


def read_writers(store: Store, thread: str, head: Id, slots: Collection[Id]) -> list[Step]:
    """The ancestors of `head` that may have written these rows, oldest first.

    The list has every commit that wrote one of the rows, and may have others.
    """
    depths = store.read_depths(thread, head, list(slots))
    # A row outside the chain of `head` came with a merge, which may be anywhere in the chain.
    min_depth = min((depths.get(slot, 1) for slot in slots), default=1)
    steps: dict[Id, Step] = {}
    appending_ids = set(depths)
    merged_tips = _read_chain(store, thread, head, min_depth - 1, steps)
    read_tips: set[Id] = set()
    while merged_tips:
        tip = merged_tips.pop()
        if tip not in read_tips:
            read_tips.add(tip)
            fork_depth, own_ids = _find_fork(store, thread, head, tip)
            appending_ids |= own_ids.intersection(slots)
            merged_tips += _read_chain(store, thread, tip, fork_depth, steps)
    for step in store.read_commits(thread, [id for id in appending_ids if id not in steps]):
        steps[step.commit.id] = step
    return sorted(steps.values(), key=lambda step: step.depth)


def _read_chain(store: Store, thread: str, tip: Id, after: int, steps: dict[Id, Step]) -> list[Id]:
    """Add to `steps` the commits of a first-parent chain that do more than append one row.

    Returns the tips of the branches that they merged.
    """
    merged_tips: list[Id] = []
    for step in store.walk(thread, tip, after=after, excluding=tuple(PLAIN_BODIES)):
        if step.commit.id not in steps:
            steps[step.commit.id] = step
            merged_tips += step.commit.parents[1:]
    return merged_tips


def _find_fork(store: Store, thread: str, head: Id, tip: Id) -> tuple[int, set[Id]]:
    """Where a branch forked from the chain of `head`: the depth, and the ids of its own commits.

    The depth is 0 if the two share no commit.
    """
    limit = FIRST_WALK
    while True:
        nodes = store.walk_nodes(thread, tip, limit)
        shared = store.read_depths(thread, head, [node.id for node in nodes])
        if shared or len(nodes) < limit:
            own_ids = {node.id for node in nodes if node.id not in shared}
            return max(shared.values(), default=0), own_ids
        limit = min(4 * limit, limit + MAX_WALK)


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
    reached_from: dict[Id, int] = {}
    heap: list[tuple[int, Id]] = []
    read_node = _NodeReader(store, thread)

    def visit(id: Id, sides: int) -> None:
        if id not in reached_from:
            heappush(heap, (-read_node(id).depth, id))
        reached_from[id] = reached_from.get(id, 0) | sides

    visit(ours, OURS)
    visit(theirs, THEIRS)
    while heap:
        _, id = heappop(heap)
        if reached_from[id] == OURS | THEIRS:
            return id
        for parent in read_node(id).parents:
            visit(parent, reached_from[id])
    return None


class _NodeReader:
    """Reads commits of the graph together with their next ancestors, which a walk needs soon.

    The number of ancestors grows, so that a long walk takes few queries and a short one reads
    little.
    """

    def __init__(self, store: Store, thread: str) -> None:
        self._store = store
        self._thread = thread
        self._nodes: dict[Id, Node] = {}
        self._limit = FIRST_WALK

    def __call__(self, id: Id) -> Node:
        if id not in self._nodes:
            nodes = self._store.walk_nodes(self._thread, id, self._limit)
            self._nodes.update((node.id, node) for node in nodes)
            self._limit = min(2 * self._limit, MAX_WALK)
        return self._nodes[id]


def read_ancestors(store: Store, thread: str, head: Id) -> list[Step]:
    """All ancestors of `head` and itself, through all parents, oldest first."""
    steps = read_reachable(store, thread, [head])
    return sorted(steps.values(), key=lambda step: step.depth)


def read_reachable(
    store: Store,
    thread: str,
    heads: Iterable[Id],
    limit: int | None = None,
    known: Collection[Id] = (),
) -> dict[Id, Step]:
    """The commits that these heads reach, through all parents; at most `limit` of each chain.

    Commits in `known`, and their ancestors, are left out.
    """
    steps_by_id: dict[Id, Step] = {}
    known_ids = set(known)
    pending = list(heads)
    while pending:
        tip = pending.pop()
        if tip in known_ids:
            continue
        steps = read_until_known(store, thread, tip, known_ids, limit)
        steps_by_id.update((step.commit.id, step) for step in steps)
        known_ids.update(step.commit.id for step in steps)
        pending += [other for step in steps for other in step.commit.parents[1:]]
    return steps_by_id


def newest_first(
    commits: Mapping[Id, tuple[float, Sequence[Id]]],
) -> list[tuple[Id, Sequence[Id]]]:
    """Commits by time, newest first, but never a parent before its child.

    `commits` has the time and the parents of each; the result has the parents too.
    """
    children_left = dict.fromkeys(commits, 0)
    for _, parents in commits.values():
        for parent in parents:
            if parent in children_left:
                children_left[parent] += 1
    ready: list[tuple[float, Id]] = []
    for id, count in children_left.items():
        if count == 0:
            heappush(ready, (-commits[id][0], id))
    order: list[tuple[Id, Sequence[Id]]] = []
    while ready:
        _, id = heappop(ready)
        parents = commits[id][1]
        order.append((id, parents))
        for parent in parents:
            if parent in children_left:
                children_left[parent] -= 1
                if children_left[parent] == 0:
                    heappush(ready, (-commits[parent][0], parent))
    return order


class PlacedCommit(Struct, frozen=True, gc=False):
    """A commit and its lane in the graph; for each parent, the lane that leads down to it."""

    id: Id
    lane: int
    parents: tuple[tuple[Id, int], ...]


def assign_lanes(commits: Iterable[tuple[Id, Sequence[Id]]]) -> Iterator[PlacedCommit]:
    """A lane for every commit; children must come before their parents.

    A lane waits for one commit. A commit takes the first lane that waits for it, and its first
    parent continues in that lane. Lanes never move, and a free lane is used again.
    """
    lanes: list[Id | None] = []
    waiting_lanes: dict[Id, list[int]] = {}

    def open_lane(id: Id) -> int:
        if None in lanes:
            lane = lanes.index(None)
            lanes[lane] = id
        else:
            lane = len(lanes)
            lanes.append(id)
        waiting_lanes.setdefault(id, []).append(lane)
        return lane

    for id, parents in commits:
        if id not in waiting_lanes:
            open_lane(id)
        own_lanes = waiting_lanes.pop(id)
        lane = min(own_lanes)
        for own_lane in own_lanes:
            lanes[own_lane] = None
        edges: list[tuple[Id, int]] = []
        for number, parent in enumerate(parents):
            if number == 0:
                lanes[lane] = parent
                waiting_lanes.setdefault(parent, []).append(lane)
                edges.append((parent, lane))
            else:
                edges.append((parent, open_lane(parent)))
        yield PlacedCommit(id, lane, tuple(edges))


def read_until_known(
    store: Store, thread: str, tip: Id, known: Collection[Id], limit: int | None = None
) -> list[Step]:
    """The first-parent chain from `tip` down to the first known commit, which is left out.

    The result is sorted oldest first. At most `limit` commits are read.
    """
    page_size = FIRST_PAGE
    while known and (limit is None or page_size < limit):
        steps = store.walk(thread, tip, limit=page_size)
        for position in range(len(steps) - 1, -1, -1):
            if steps[position].commit.id in known:
                return steps[position + 1 :]
        if len(steps) < page_size:
            return steps
        page_size *= PAGE_GROWTH
    return store.walk(thread, tip, limit=limit)
