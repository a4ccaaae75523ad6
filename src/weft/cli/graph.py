"""A history drawn beside its lines: one lane a branch, `*` where a commit is.

`draw` takes commits in an order in which children come before their parents, and says for each
what to draw before its line. Lanes wait for a commit: where two wait for the same, the right one
bends into the left; where a commit has two parents, a lane opens.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush

from msgspec import Struct

from weft.ids import Id


class Drawn(Struct, frozen=True):
    """A line of the graph: its signs, and the commit that stands there, if one does."""

    signs: str
    commit: Id | None = None


def draw(commits: Iterable[tuple[Id, Sequence[Id]]]) -> Iterator[Drawn]:
    """The graph of these commits, line by line."""
    lanes: list[Id] = []
    for id, parents in commits:
        waiting = [place for place, wanted in enumerate(lanes) if wanted == id]
        if not waiting:
            lanes.append(id)
            waiting = [len(lanes) - 1]
        here = waiting[0]
        for place in reversed(waiting[1:]):
            yield Drawn(_join(len(lanes), here, place))
            del lanes[place]
        yield Drawn(_row(len(lanes), here), id)
        if not parents:
            closing = _close(len(lanes), here)
            del lanes[here]
            if closing:
                yield Drawn(closing)
            continue
        lanes[here] = parents[0]
        for place, parent in enumerate(parents[1:], start=here + 1):
            yield Drawn(_fork(len(lanes), place - 1))
            lanes.insert(place, parent)


def newest_first(
    commits: Mapping[Id, tuple[float, Sequence[Id]]],
) -> list[tuple[Id, Sequence[Id]]]:
    """Commits by time, newest first, but never a parent before its child."""
    children = dict.fromkeys(commits, 0)
    for _, parents in commits.values():
        for parent in parents:
            if parent in children:
                children[parent] += 1
    ready: list[tuple[float, Id]] = []
    for id, count in children.items():
        if count == 0:
            heappush(ready, (-commits[id][0], id))
    order: list[tuple[Id, Sequence[Id]]] = []
    while ready:
        _, id = heappop(ready)
        parents = commits[id][1]
        order.append((id, parents))
        for parent in parents:
            if parent in children:
                children[parent] -= 1
                if children[parent] == 0:
                    heappush(ready, (-commits[parent][0], parent))
    return order


def _row(lanes: int, here: int) -> str:
    return " ".join("*" if place == here else "|" for place in range(lanes))


def _join(lanes: int, to: int, place: int) -> str:
    """The lane at `place` bends into the lane `to`, under the lanes between."""
    signs = list(" ".join("|" * lanes))
    signs[2 * place] = " "
    signs[2 * place - 1] = "/"
    for gap in range(2 * to + 1, 2 * place - 1, 2):
        signs[gap] = "_"
    for right in range(place + 1, lanes):  # what stands further right moves one lane to the left
        signs[2 * right] = " "
        signs[2 * right - 1] = "/"
    return "".join(signs).rstrip()


def _fork(lanes: int, place: int) -> str:
    """A lane opens to the right of `place`; those further right move on."""
    kept = " ".join("|" * (place + 1))
    return kept + "\\" + " \\" * (lanes - place - 1)


def _close(lanes: int, here: int) -> str:
    """A lane that began here ends; those further right move in."""
    moved = lanes - here - 1
    if not moved:
        return ""
    kept = "".join("| " for _ in range(here))
    return (kept + " /" * moved).rstrip()
