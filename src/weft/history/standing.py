"""Where the lines of a list stand, by slot.

A list that comes from another mostly begins as it does. It asks the other for the places of that
beginning and knows only its own end, so that a change at the end of a long thread copies nothing.
"""

from collections.abc import Sequence

from weft.ids import Id

from .objects import Row

DEEPEST = 8
"""So many lists may stand on each other before one is counted anew."""


class Standing:
    """The places of `rows`; the first `shared` of them are where `before` has them.

    `own` are the places behind those: whoever appends a line writes it there.
    """

    __slots__ = ("_before", "_deep", "_shared", "own")

    def __init__(self, rows: Sequence[Row], before: "Standing | None" = None, shared: int = 0):
        self._deep = 0 if before is None or not shared else before._deep + 1
        if self._deep > DEEPEST:
            self._deep = 0
        self._before = before if self._deep else None
        self._shared = shared if self._deep else 0
        self.own: dict[Id | None, int] = {
            rows[place].id: place for place in range(self._shared, len(rows))
        }

    def find(self, slot: Id | None) -> int | None:
        """The place of a slot, or `None` where it is not in the list."""
        place = self.own.get(slot)
        if place is not None or self._before is None:
            return place
        place = self._before.find(slot)
        return place if place is not None and place < self._shared else None

    def __getitem__(self, slot: Id | None) -> int:
        place = self.find(slot)
        if place is None:
            raise KeyError(slot)
        return place
