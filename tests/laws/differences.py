"""Finds the differences of two bodies, and checks whether a loss report names each of them.

A difference is a path in the caller's body where something changed, was removed or was added. Lists
are aligned by similarity, so that one removed message is one difference and not a shift of all that
follow.

A loss names a difference if its path is the same, a parent, or a child. In addition:

- A lost boundary names the items on both sides of it.
- A removed item is also named by a loss at an equal item: similarity cannot tell which of the two
  is meant.
- An added item has no path in the caller's body. It is named by a loss at a neighbour, or at the
  place with the same text, from which it moved.
- The losses of the way back have paths in the body in between. Such a loss names the caller's
  parameter with the same meaning, or the part of the caller's body with the same text, or, if
  neither has text, a part without text.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import orjson

Path = tuple[Any, ...]

STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
UNSAID = frozenset({"role", "type", "cache_control"})
"""Members with the protocol's own values: that two bodies share them means nothing."""

IDENTITY = {"call_id": 20, "id": 20, "name": 5, "role": 3, "tool_call_id": 20, "tool_use_id": 20}
SEARCH = ("web_search", "googleSearch")
"""Prefixes of the names of a search, which has no other text."""

BOUNDARIES = frozenset({"message_boundary_dropped", "text_boundary_dropped"})

ABSENT = object()


class Difference(NamedTuple):
    """One difference: `path` is in our body, `ours` and `theirs` are the two values. If `added`,
    the last step is the position in a list before which something was added."""

    path: Path
    ours: Any
    theirs: Any
    added: bool = False


def differences(ours: Any, theirs: Any, path: Path = ()) -> Iterator[Difference]:
    """The differences, each with the longest possible path."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in ours | theirs:
            if key not in ours or key not in theirs:
                yield Difference((*path, key), ours.get(key, ABSENT), theirs.get(key, ABSENT))
            else:
                yield from differences(ours[key], theirs[key], (*path, key))
    elif isinstance(ours, list) and isinstance(theirs, list):
        for mine, other, before in laid_out(ours, theirs):
            if mine is None:
                yield Difference((*path, before), ABSENT, theirs[other], added=True)
            elif other is None:
                yield Difference((*path, mine), ours[mine], ABSENT)
            else:
                yield from differences(ours[mine], theirs[other], (*path, mine))
    elif ours != theirs or isinstance(ours, bool) != isinstance(theirs, bool):
        yield Difference(path, ours, theirs)


def laid_out(ours: list[Any], theirs: list[Any]) -> Iterator[tuple[Any, Any, int]]:
    """Pairs of indexes, in order. For an added item, the third value is the index in `ours` before
    which it was added."""
    start, end, least = 0, 0, min(len(ours), len(theirs))
    while start < least and ours[start] == theirs[start]:
        start += 1
    while end < least - start and ours[-1 - end] == theirs[-1 - end]:
        end += 1
    our_leaves = [leaves(item) for item in ours[start : len(ours) - end]]
    texts = [leaves(item) for item in theirs[start : len(theirs) - end]]
    best = [[0.0] * (len(texts) + 1) for _ in range(len(our_leaves) + 1)]
    for i in range(len(our_leaves) - 1, -1, -1):
        for j in range(len(texts) - 1, -1, -1):
            beside = 0.001 if i == j else 0.0  # which of two alike is meant
            paired = best[i + 1][j + 1] + likeness(our_leaves[i], texts[j]) + beside
            best[i][j] = max(paired, best[i + 1][j], best[i][j + 1])
    i = j = 0
    while i < len(our_leaves) and j < len(texts):
        if best[i][j] == best[i + 1][j]:
            yield start + i, None, 0
            i += 1
        elif best[i][j] == best[i][j + 1]:
            yield None, start + j, start + i
            j += 1
        else:
            yield start + i, start + j, 0
            i, j = i + 1, j + 1
    yield from ((start + at, None, 0) for at in range(i, len(our_leaves)))
    yield from ((None, start + at, start + len(our_leaves)) for at in range(j, len(texts)))


def leaves(value: Any, key: str = "") -> dict[bytes, int]:
    """All leaf values of a value, with their weights; ids weigh most."""
    if isinstance(value, dict):
        weights = {name.encode(): 1 for name in value}
        for name, inner in value.items():
            weights |= leaves(inner, name)
        return weights
    if isinstance(value, list):
        return {leaf: weight for inner in value for leaf, weight in leaves(inner).items()}
    leaf = orjson.dumps(value)
    return {key.encode() + leaf: IDENTITY[key]} if key in IDENTITY else {leaf: 1}


def likeness(ours: dict[bytes, int], theirs: dict[bytes, int]) -> float:
    """How similar two values are; never 0, so that single items are paired too."""
    shared = sum(ours[leaf] for leaf in ours.keys() & theirs.keys())
    return (shared + 0.01) / (sum((ours | theirs).values()) + 1)


def steps_of(path: str) -> Path:
    """The path of a loss as steps."""
    return tuple(int(at) if at else name for at, name in STEP.findall(path))


def names(loss: Path, path: Path) -> bool:
    """Whether one path equals the other, or is a parent of it."""
    shared = min(len(loss), len(path))
    return bool(loss) and loss[:shared] == path[:shared]


def words(value: Any) -> frozenset[str]:
    """The texts in a value."""
    if isinstance(value, dict):
        texts = [words(inner) for key, inner in value.items() if key not in UNSAID]
        search = any(str(name).startswith(SEARCH) for name in (*value, value.get("type")))
        return frozenset(SEARCH[:1] if search else ()).union(*texts)
    if isinstance(value, list):
        return frozenset().union(*map(words, value))
    return frozenset((value,)) if isinstance(value, str) and value else frozenset()


def reach(body: Any, path: Path) -> Any:
    """The value at a path, or at its deepest existing step."""
    for step in path:
        inside = (isinstance(body, dict) and step in body) or (
            isinstance(body, list) and isinstance(step, int) and step < len(body)
        )
        if not inside:
            break
        body = body[step]
    return body


def meant_by(difference: Difference, body: Any) -> frozenset[str]:
    """The texts at a difference, or of the nearest part around it that has text."""
    path = difference.path[:-1] if difference.added else difference.path
    for end in range(len(path), 0, -1):
        texts = words(reach(body, path[:end])) if path[end - 1] not in UNSAID else ()
        if texts or isinstance(path[end - 1], int):
            return frozenset(texts)
    return frozenset()


class Report:
    """The losses of a round trip: `out` by path and code in the caller's body, `home` by path in
    the body in between (`echo`)."""

    def __init__(
        self, body: Any, out: Iterable[tuple[str, str]], echo: Any, home: Iterable[str]
    ) -> None:
        self.body = body
        self.losses = [(steps_of(path), code) for path, code in out if path]
        self.echo = echo
        self.returned = [steps_of(path) for path in home if path]

    def names(
        self, difference: Difference, words_out: Mapping[str, str], words_home: Mapping[str, str]
    ) -> bool:
        """Whether a loss names the difference; the tables have the path of each parameter in the
        two protocols."""
        return self.named_out(difference) or self.named_home(difference, words_out, words_home)

    def named_out(self, difference: Difference) -> bool:
        return any(self._covers(path, code, difference) for path, code in self.losses)

    def _covers(self, loss: Path, code: str, difference: Difference) -> bool:
        near = [difference.path]
        if difference.added:
            near = [
                (*difference.path[:-1], at) for at in (difference.path[-1] - 1, difference.path[-1])
            ]
        places = [loss]
        if code in BOUNDARIES and isinstance(loss[-1], int):
            places.append((*loss[:-1], loss[-1] - 1))
        if any(names(place, path) for place in places for path in near):
            return True
        beside = loss[:-1] == difference.path[:-1] and isinstance(loss[-1], int)
        if beside and difference.theirs is ABSENT and reach(self.body, loss) == difference.ours:
            return True
        moved = difference.ours is ABSENT and words(difference.theirs)
        return bool(moved) and not moved.isdisjoint(words(reach(self.body, loss)))

    def named_home(
        self, difference: Difference, words_out: Mapping[str, str], words_home: Mapping[str, str]
    ) -> bool:
        content = meant_by(difference, self.body)
        for loss in self.returned:
            texts = any(isinstance(step, int) for step in loss) or loss[0] in SYSTEM
            if texts:
                there = words(reach(self.echo, loss))
                if not there.isdisjoint(content) or (not there and not content):
                    return True
                continue
            for name in words_home:
                meant = {words_home[name]}
                if any(names(loss, steps_of(path)) for path in meant):
                    head = name.partition(".")[0]
                    paths = {words_out[other] for other in words_out if other.startswith(head)}
                    if any(names(steps_of(path), difference.path) for path in paths):
                        return True
        return False


SYSTEM = frozenset({"system", "instructions", "systemInstruction"})
