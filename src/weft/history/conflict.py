"""Conflicts as values: a row, the setup or a result that both sides changed."""

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from weft.ids import Id
from weft.model import ToolResult, texts

from .objects import Row, Setup

CHOICES = ("ours", "theirs", "concat")
SETUP = "setup"
SHORT = 32  # how much of a result is shown where a conflict is described

RowsBySlot = Mapping[Id, Row]


class Conflict(Struct, frozen=True):
    """One row that both sides changed; a side that no longer has it is `None`.

    `kind` is `edited` (two versions of the row), `skipped` (hidden on one side, changed on the
    other) or `folded` (two summaries of it, or a summary on one side and a change on the other).
    """

    slot: Id
    kind: Literal["edited", "folded", "skipped"]
    base: Row | None
    ours: Row | None
    theirs: Row | None

    @property
    def id(self) -> str:
        """The id that an answer names to resolve the conflict."""
        return self.slot.hex()

    @property
    def place(self) -> str:
        """A short description of the position."""
        return f"{self.id[:12]} ({self.kind})"


class SetupConflict(Struct, frozen=True):
    """Tools or parameters that both sides changed differently; `parts` names them.

    Parts that only one side changed are always taken from that side.
    """

    parts: tuple[str, ...]
    base: Setup | None
    ours: Setup | None
    theirs: Setup | None

    @property
    def id(self) -> str:
        """The id that an answer names to resolve the conflict; a thread has one setup."""
        return SETUP

    @property
    def kind(self) -> str:
        return SETUP

    @property
    def place(self) -> str:
        """A short description of the position."""
        return f"the setup ({', '.join(self.parts)})"


class ResultConflict(Struct, frozen=True):
    """A call that both sides answered with different results.

    It is resolved like a row: `ours`, `theirs`, `concat` (both in one result), or a text.
    """

    call_id: str
    ours: ToolResult
    theirs: ToolResult

    @property
    def id(self) -> str:
        """The call's id, which an answer names to resolve the conflict."""
        return self.call_id

    @property
    def kind(self) -> str:
        return "answered"

    @property
    def place(self) -> str:
        """A short description: the call, and the result on each side."""
        ours, theirs = (_short(result) for result in (self.ours, self.theirs))
        return f"the result of call {self.call_id} (ours {ours!r}, theirs {theirs!r})"


AnyConflict = Conflict | SetupConflict | ResultConflict

Choose = Callable[[AnyConflict], str]
"""Resolves one conflict: returns `ours`, `theirs`, `concat` (both), or the text to use."""


def _short(result: ToolResult) -> str:
    text = " ".join(" ".join(texts(result.content)).split())
    return text if len(text) <= SHORT else text[: SHORT - 1] + "…"
