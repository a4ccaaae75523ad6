"""A message on its way to a wire: its blocks, and where each of them stood."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from weft.model import Block, Message, Place


class Turn(Struct, gc=False):
    """One message to write: its own blocks, until something is changed.

    `places` is worked out when it is asked for: in a calm conversation nobody asks, because nothing
    moved and nothing was lost.
    """

    role: str
    message: Message
    blocks: Sequence[Block]
    number: int
    moved: list[Place] | None = None

    @property
    def at(self) -> Place:
        """Where the message stood."""
        return (self.number,)

    @property
    def places(self) -> list[Place]:
        """Where each block stood in the request."""
        if self.moved is None:
            self.moved = [(self.number, at) for at in range(len(self.blocks))]
        return self.moved

    @places.setter
    def places(self, places: list[Place]) -> None:
        self.moved = places

    def keep(self, items: list[tuple[Any, Place]]) -> None:
        """Hold just these blocks from now on."""
        self.blocks = [block for block, _ in items]
        self.moved = [place for _, place in items]

    def insert(self, at: int, items: Sequence[tuple[Any, Place]]) -> None:
        """Take these blocks in before the one that stands there."""
        if not isinstance(self.blocks, list):
            self.blocks = list(self.blocks)
        self.places[at:at] = [place for _, place in items]
        self.blocks[at:at] = [block for block, _ in items]


def turn_of(number: int, message: Message) -> Turn:
    """The turn of a message that stands at this place of the list."""
    return Turn(message.role, message, message.blocks, number)
