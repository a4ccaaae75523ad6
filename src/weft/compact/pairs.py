"""Calls and their results: they are kept or removed together.

Every vendor refuses a result without its call, and most refuse a call without its result. Ids are
not unique in a thread (some servers number calls from zero each turn), so a result belongs to the
nearest earlier call with its id.
"""

from collections.abc import Container, Iterable, Sequence

from msgspec import Struct

from weft.history import Row
from weft.model import ToolCall, ToolResult

Place = tuple[int, int]
"""A block: the number of its row, and its number in the row."""


class Pair(Struct, frozen=True):
    """A call with its results; `call` is `None` if the rows do not contain the call."""

    id: str
    call: Place | None
    results: tuple[Place, ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        """All blocks of the pair, in order."""
        return self.results if self.call is None else (self.call, *self.results)


def find_pairs(rows: Sequence[Row]) -> list[Pair]:
    """All pairs of the rows, in the order of their first block."""
    pairs: list[tuple[str, Place | None, list[Place]]] = []
    latest: dict[str, int] = {}
    for i, row in enumerate(rows):
        for j, block in enumerate(row.message.blocks):
            if isinstance(block, ToolCall):
                latest[block.id] = len(pairs)
                pairs.append((block.id, (i, j), []))
            elif isinstance(block, ToolResult):
                at = latest.get(block.call_id)
                if at is None:
                    pairs.append((block.call_id, None, [(i, j)]))
                else:
                    pairs[at][2].append((i, j))
    return [Pair(id, call, tuple(results)) for id, call, results in pairs]


def settle_pairs(pairs: Iterable[Pair], removed: set[Place], fixed: Container[int]) -> set[Place]:
    """What to remove so that no pair is split.

    Both parts are removed, unless one is in a fixed row; then both stay.
    """
    settled = set(removed)
    for pair in pairs:
        if settled.isdisjoint(pair.places):
            continue
        if any(i in fixed for i, _ in pair.places):
            settled.difference_update(pair.places)
        else:
            settled.update(pair.places)
    return settled


def cut_units(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows in units that must not be separated: one row, or a call up to its last result."""
    reach = list(range(len(rows)))
    for pair in find_pairs(rows):
        first, last = pair.places[0][0], pair.places[-1][0]
        reach[first] = max(reach[first], last)
    units: list[list[Row]] = []
    end = -1
    for number, row in enumerate(rows):
        if number > end:
            units.append([])
        units[-1].append(row)
        end = max(end, reach[number])
    return units
