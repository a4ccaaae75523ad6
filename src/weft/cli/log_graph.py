"""`weft log --graph`: the commits of all branches, newest first, with the graph beside them.

`draw` takes commits in an order in which children come before their parents. Each lane leads to one
commit. If two lanes lead to the same commit, the right one joins the left. A commit with two
parents opens a lane.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from weft.history import newest_first, read_reachable
from weft.ids import Id
from weft.thread import CommitInfo, Thread, read_attempt

from .common import print_empty, print_json
from .describe import commit_json, describe, describe_attempt, group_attempts
from .terminal import Screen


class GraphLine(Struct, frozen=True):
    """A line of the graph: its characters, and the commit on it, if any."""

    signs: str
    commit: Id | None = None


def draw(commits: Iterable[tuple[Id, Sequence[Id]]]) -> Iterator[GraphLine]:
    """The graph of these commits, line by line."""
    lanes: list[Id] = []
    for id, parents in commits:
        waiting_lanes = [other for other, awaited in enumerate(lanes) if awaited == id]
        if not waiting_lanes:
            lanes.append(id)
            waiting_lanes = [len(lanes) - 1]
        lane = waiting_lanes[0]
        for other in reversed(waiting_lanes[1:]):
            yield GraphLine(_join(len(lanes), lane, other))
            del lanes[other]
        yield GraphLine(_row(len(lanes), lane), id)
        if not parents:
            closing = _close(len(lanes), lane)
            del lanes[lane]
            if closing:
                yield GraphLine(closing)
            continue
        lanes[lane] = parents[0]
        for other, parent in enumerate(parents[1:], start=lane + 1):
            yield GraphLine(_fork(len(lanes), other - 1))
            lanes.insert(other, parent)


def _row(lanes: int, lane: int) -> str:
    return " ".join("*" if number == lane else "|" for number in range(lanes))


def _join(lanes: int, to: int, lane: int) -> str:
    """The lane `lane` joins the lane `to`; the line passes below the lanes between them."""
    signs = list(" ".join("|" * lanes))
    signs[2 * lane] = " "
    signs[2 * lane - 1] = "/"
    for gap in range(2 * to + 1, 2 * lane - 1, 2):
        signs[gap] = "_"
    for right in range(lane + 1, lanes):  # lanes further right move one to the left
        signs[2 * right] = " "
        signs[2 * right - 1] = "/"
    return "".join(signs).rstrip()


def _fork(lanes: int, lane: int) -> str:
    """A lane opens to the right of `lane`; lanes further right move one to the right."""
    left = " ".join("|" * (lane + 1))
    return left + "\\" + " \\" * (lanes - lane - 1)


def _close(lanes: int, lane: int) -> str:
    """The lane at `lane` ends; lanes further right move one to the left."""
    moved = lanes - lane - 1
    if not moved:
        return ""
    left = "| " * lane
    return (left + " /" * moved).rstrip()


def log_graph(thread: Thread, args: argparse.Namespace) -> None:
    """Print every commit that a branch or tag reaches, with the graph."""
    refs = thread.store.refs(thread.name)
    steps = read_reachable(thread.store, thread.name, refs.values(), args.limit)
    order = newest_first({id: (s.commit.created, s.commit.parents) for id, s in steps.items()})
    names = _names(refs, thread.current)
    lines = list(draw(order))
    if args.limit is not None:
        lines = _first(lines, args.limit)
    ids = [line.commit for line in lines if line.commit is not None]
    stored = thread.store.attempts(thread.name, ids)
    attempts = group_attempts(map(read_attempt, stored))
    if args.json:
        print_json(
            [
                {
                    **commit_json(thread, thread.show(line.commit.hex()), attempts),
                    "refs": names.get(line.commit, []),
                }
                for line in lines
                if line.commit is not None
            ]
        )
        return
    if not refs:
        print_empty("the thread has no commits: `weft commit TEXT` adds one")
    for line in lines:
        info = None if line.commit is None else thread.show(line.commit.hex())
        print(_line(line, thread, info, names, args.screen))
        if info is None:
            continue
        for attempt in attempts.get(info.id, ()):
            lanes = line.signs.replace("*", "|" if info.parents else " ")
            print(lanes + describe_attempt(attempt, args.screen, len(lanes)))


def _line(
    line: GraphLine,
    thread: Thread,
    info: CommitInfo | None,
    names: Mapping[Id, list[str]],
    screen: Screen,
) -> str:
    signs = "".join(
        screen.lane(sign, column // 2) if sign != " " else sign
        for column, sign in enumerate(line.signs)
    )
    if info is None or line.commit is None:
        return signs.rstrip()
    refs = names.get(line.commit, [])
    label = screen.name(f"({', '.join(refs)}) ") if refs else ""
    used_columns = len(line.signs) + 1 + len(label)
    text = describe(thread, info, screen, used_columns)
    return f"{signs} {screen.paint(label.rstrip(), 'name')}{' ' if label else ''}{text}"


def _names(refs: Mapping[str, Id], current: str) -> dict[Id, list[str]]:
    """The refs of each commit; the current branch has a star."""
    names: dict[Id, list[str]] = {}
    for name, target in refs.items():
        names.setdefault(target, []).append(f"*{name}" if name == current else name)
    return names


def _first(lines: list[GraphLine], limit: int) -> list[GraphLine]:
    """The lines up to that many commits."""
    first: list[GraphLine] = []
    for line in lines:
        if line.commit is not None:
            limit -= 1
        if limit < 0:
            break
        first.append(line)
    return first
