"""Conflicts as values: what both sides did to one line or to the setup, and how it is settled."""

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from weft.ids import Id

from .objects import Row, Setup

CHOICES = ("ours", "theirs", "concat")
SETUP = "setup"

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

    @property
    def place(self) -> str:
        """Where it is, in a few words."""
        return f"{self.id[:12]} ({self.kind})"


class SetupConflict(Struct, frozen=True):
    """Tools or parameters that both sides changed, each otherwise; `parts` names them.

    What one side alone changed beside them is taken from it, however the conflict is settled.
    """

    parts: tuple[str, ...]
    base: Setup | None
    ours: Setup | None
    theirs: Setup | None

    @property
    def id(self) -> str:
        """The id by which a person settles it; a thread has one setup."""
        return SETUP

    @property
    def kind(self) -> str:
        return SETUP

    @property
    def place(self) -> str:
        """Where it is, in a few words."""
        return f"the setup ({', '.join(self.parts)})"


Choose = Callable[[Conflict | SetupConflict], str]
"""Settles one conflict: `ours`, `theirs`, `concat` (both), or the text the line shall have."""
