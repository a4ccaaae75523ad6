"""Conflicts as values: what both sides did to one line, and how it may be settled."""

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from weft.ids import Id

from .objects import Row

CHOICES = ("ours", "theirs", "concat")

Lines = Mapping[Id, Row]


class Conflict(Struct, frozen=True):
    """One line that both sides changed. `None` is a side that no longer has it.

    `kind` is `edited` (two versions of the line), `skipped` (hidden on one side, changed on the
    other) or `folded` (two summaries of it, or a summary on one side and a change on the other).
    """

    slot: Id
    kind: Literal["edited", "folded", "skipped"]
    base: Row | None
    ours: Row | None
    theirs: Row | None

    @property
    def id(self) -> str:
        """The id by which a person settles it."""
        return self.slot.hex()


Choose = Callable[[Conflict], str]
"""Settles one conflict: `ours`, `theirs`, `concat` (both), or the text the line shall have."""
