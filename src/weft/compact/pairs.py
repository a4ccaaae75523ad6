"""Calls and their results: they stay together or go together.

Every vendor refuses a result without its call, and most a call without its result. Ids are not
unique in a thread (some servers number calls from zero each turn), so a result belongs to the
nearest call before it of that id.
"""

from collections.abc import Container, Iterable, Sequence

from msgspec import Struct

from weft.history import Row
from weft.model import ToolCall, ToolResult

Place = tuple[int, int]
"""A block: the number of its row, and its number in it."""


class Pair(Struct, frozen=True):
    """A call with its results; `call` is absent for a result whose call is not in the rows."""

    id: str
    call: Place | None
    results: tuple[Place, ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        """All its blocks, in order."""
        return self.results if self.call is None else (self.call, *self.results)


def find_pairs(rows: Sequence[Row]) -> list[Pair]:
    """Every call and result of the rows, in the order in which the pairs begin."""
    found: list[tuple[str, Place | None, list[Place]]] = []
    latest: dict[str, int] = {}
    for i, row in enumerate(rows):
        for j, block in enumerate(row.message.blocks):
            if isinstance(block, ToolCall):
                latest[block.id] = len(found)
                found.append((block.id, (i, j), []))
            elif isinstance(block, ToolResult):
                at = latest.get(block.call_id)
                if at is None:
                    found.append((block.call_id, None, [(i, j)]))
                else:
                    found[at][2].append((i, j))
    return [Pair(id, call, tuple(results)) for id, call, results in found]


def settle_pairs(pairs: Iterable[Pair], removed: set[Place], fixed: Container[int]) -> set[Place]:
    """What to remove so that no pair is split: both parts go, unless one is in a fixed row, which
    keeps both."""
    settled = set(removed)
    for pair in pairs:
        if settled.isdisjoint(pair.places):
            continue
        if any(i in fixed for i, _ in pair.places):
            settled.difference_update(pair.places)
        else:
            settled.update(pair.places)
    return settled
