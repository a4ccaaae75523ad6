"""A long past in pieces that a model can read: cut between messages, never through a pair.

A unit is what must not be parted: one message, or a call with everything up to its last result.
Chunks take units in order as long as they fit. A unit that is too large by itself is shortened when
it is retold. Half of a room is what is tried when a model says
that a request was too long: there is an end to that, because a room below `LEAST` is no room.
"""

from collections.abc import Sequence

from weft.history import Row

from .layout import Count
from .pairs import find_pairs
from .prompts import retell

LEAST = 256
"""Tokens below which cutting a request shorter is not tried."""


def cut_units(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows in runs that no pair crosses."""
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


def cut_chunks(rows: Sequence[Row], room: int, count: Count) -> list[list[Row]]:
    """The rows in chunks of at most `room` tokens as they are retold."""
    chunks: list[list[Row]] = []
    filled = 0
    for unit in cut_units(rows):
        size = retold_tokens(unit, count)
        size = size if size <= room else room * 3 // 4  # it is shortened, and leaves some room
        if not chunks or filled + size > room:
            chunks.append([])
            filled = 0
        chunks[-1] += unit
        filled += size
    return chunks


def retold_tokens(rows: Sequence[Row], count: Count) -> int:
    """The tokens of rows as they are retold."""
    told = (retell(row) for row in rows)
    return sum(count(turn) for turn in told if turn is not None)
