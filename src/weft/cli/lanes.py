"""`weft log --graph`: all branches of a thread, newest first, with their lanes beside them."""

import argparse
from collections.abc import Mapping

from weft.ids import Id
from weft.store import Step
from weft.thread import CommitInfo, Thread
from weft.thread.attempts import read_attempt

from .graph import Drawn, draw, newest_first
from .headline import commit_json, describe, describe_attempt, group_attempts
from .terminal import Screen
from .threads import print_json


def log_graph(thread: Thread, args: argparse.Namespace) -> None:
    """Every commit that some branch or tag reaches, drawn as the graph it is."""
    refs = thread.store.refs(thread.name)
    steps = _reachable(thread, refs, args.limit)
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
                    **commit_json(thread.show(line.commit.hex()), attempts),
                    "refs": names.get(line.commit, []),
                }
                for line in lines
                if line.commit is not None
            ]
        )
        return
    for line in lines:
        info = None if line.commit is None else thread.show(line.commit.hex())
        print(_line(line, thread, info, names, args.screen))
        if info is None:
            continue
        for attempt in attempts.get(info.id, ()):
            lanes = line.signs.replace("*", "|" if info.parents else " ")
            print(lanes + describe_attempt(attempt, args.screen, len(lanes)))


def _line(
    line: Drawn,
    thread: Thread,
    info: CommitInfo | None,
    names: Mapping[Id, list[str]],
    screen: Screen,
) -> str:
    signs = "".join(
        screen.lane(sign, place // 2) if sign != " " else sign
        for place, sign in enumerate(line.signs)
    )
    if info is None or line.commit is None:
        return signs.rstrip()
    here = names.get(line.commit, [])
    label = screen.name(f"({', '.join(here)}) ") if here else ""
    taken = len(line.signs) + 1 + len(label)
    told = describe(thread, info, screen, taken)
    return f"{signs} {screen.paint(label.rstrip(), 'name')}{' ' if label else ''}{told}"


def _reachable(thread: Thread, refs: Mapping[str, Id], limit: int | None) -> dict[Id, Step]:
    """The commits behind all refs; a limit is enough of each chain."""
    found: dict[Id, Step] = {}
    heads = list(refs.values())
    while heads:
        head = heads.pop()
        if head in found:
            continue
        for step in thread.store.walk(thread.name, head, limit=limit):
            found[step.commit.id] = step
            heads.extend(step.commit.parents[1:])
    return found


def _names(refs: Mapping[str, Id], current: str) -> dict[Id, list[str]]:
    """The names that each commit has, the current branch marked."""
    names: dict[Id, list[str]] = {}
    for name, target in refs.items():
        names.setdefault(target, []).append(f"*{name}" if name == current else name)
    return names


def _first(lines: list[Drawn], limit: int) -> list[Drawn]:
    """The lines up to that many commits."""
    kept: list[Drawn] = []
    for line in lines:
        if line.commit is not None:
            limit -= 1
        if limit < 0:
            break
        kept.append(line)
    return kept
