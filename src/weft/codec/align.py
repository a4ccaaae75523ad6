"""Where two lists differ that mostly say the same.

Time is n log n however the lists repeat themselves, which `difflib` does not promise: conversations
are full of messages that read alike, and a caller can write one of nothing else. A key's second
occurrence here is taken for its second occurrence there, and so on; of these pairs the longest run
stands that is in order in both lists. Between two of them lies a region that differs, cut down to
where its ends do. The regions need not be the smallest there are.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

Region = tuple[int, int, int, int]
"""From, to (exclusive) in the one list, and from, to in the other."""


def differing(ours: Sequence[str], theirs: Sequence[str]) -> Iterator[Region]:
    """The regions that differ, in order; what lies between them is the same in both."""
    i = j = 0
    for same_i, same_j in [*_in_order(_pairs(ours, theirs)), (len(ours), len(theirs))]:
        region = _trimmed(ours, theirs, (i, same_i, j, same_j))
        if region[0] < region[1] or region[2] < region[3]:
            yield region
        i, j = same_i + 1, same_j + 1


def _pairs(ours: Sequence[str], theirs: Sequence[str]) -> list[tuple[int, int]]:
    """Where each occurrence of a key stands in both lists, in the order of the first."""
    places = {key: at for at, key in enumerate(_counted(theirs))}
    return [(at, places[key]) for at, key in enumerate(_counted(ours)) if key in places]


def _counted(keys: Sequence[str]) -> Iterator[tuple[str, int]]:
    seen: dict[str, int] = {}
    for key in keys:
        seen[key] = seen.get(key, 0) + 1
        yield key, seen[key]


def _in_order(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest run of pairs that increases in both members."""
    ends: list[int] = []  # the least second member that a run of this length ends in
    numbers: list[int] = []  # the pair that it is of
    before: list[int] = []
    for number, (_, at) in enumerate(pairs):
        length = bisect_left(ends, at)
        before.append(numbers[length - 1] if length else -1)
        ends[length : length + 1] = [at]
        numbers[length : length + 1] = [number]
    run: list[tuple[int, int]] = []
    number = numbers[-1] if numbers else -1
    while number >= 0:
        run.append(pairs[number])
        number = before[number]
    return run[::-1]


def _trimmed(ours: Sequence[str], theirs: Sequence[str], region: Region) -> Region:
    i, end_i, j, end_j = region
    while i < end_i and j < end_j and ours[i] == theirs[j]:
        i, j = i + 1, j + 1
    while i < end_i and j < end_j and ours[end_i - 1] == theirs[end_j - 1]:
        end_i, end_j = end_i - 1, end_j - 1
    return i, end_i, j, end_j
