"""`CompiledContext`: what a thread says at one commit, frozen, and the shapes it can be read in.

It is made from a view that shares its lines with the thread, and makes its own tuples only when
they are asked for: a compile behind every commit of a long thread costs what changed. Nothing
here reads or writes a store.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from weft.codec import SystemPolicy
from weft.history import Count, Priority, Row, Setup, View, show_rows
from weft.ids import Id
from weft.model import Message, Tool

from . import formats
from .params import ToolLike, VendorParams, write_params


class CompiledContext:
    """The messages a commit means, with their provenance, one value per line in each list."""

    _view: View
    _count: Count
    _last: int | None
    _reasoning: bool

    def __init__(
        self, view: View, count: Count, *, last: int | None = None, reasoning: bool = False
    ) -> None:
        vars(self).update(_view=view, _count=count, _last=last, _reasoning=reasoning)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a compiled context is frozen: {name!r} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a compiled context is frozen: {name!r} cannot be deleted")

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The lines that a model is shown."""
        rows = show_rows(self._view.rows, reasoning=self._reasoning)
        return tuple(rows if self._last is None else rows[max(0, len(rows) - self._last) :])

    @property
    def head(self) -> str | None:
        """The commit that was compiled."""
        return None if self._view.head is None else self._view.head.hex()

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(row.message for row in self.rows)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids that `edit`, `pin` and `skip` take; they stay through edits."""
        return tuple(_hex(row.id) for row in self.rows)

    @property
    def priorities(self) -> tuple[Priority, ...]:
        return tuple(row.priority for row in self.rows)

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(row.kind for row in self.rows)

    @property
    def setup(self) -> Setup:
        """The tools and parameters that hold here."""
        return self._view.setup or Setup()

    @property
    def tools(self) -> tuple[Tool, ...]:
        return self.setup.tools

    @cached_property
    def tokens(self) -> int:
        """The tokens of all messages, by the thread's counter."""
        if self._last is None and not self._reasoning:
            return self._view.tokens(self._count)
        return sum(self._count(row.message) for row in self.rows)

    def to_dicts(self) -> list[dict[str, Any]]:
        """`[{"role", "content", "name"?}]`."""
        return formats.to_dicts(self.rows)

    def to_openai(self) -> list[dict[str, Any]]:
        """Chat Completions' messages, system inline."""
        return formats.to_openai(self.rows)

    def to_anthropic(self) -> dict[str, Any]:
        """`{"system": str | None, "messages": [...]}`."""
        return formats.to_anthropic(self.rows)

    def to_responses(self) -> list[dict[str, Any]]:
        """The Responses API's input items."""
        return formats.to_responses(self.rows)

    def to_text(self) -> str:
        """The conversation as a person reads it."""
        return formats.to_text(self.rows)

    def to_openai_params(self, model: str | None = None, **options: Any) -> VendorParams:
        """What `chat.completions.create(**...)` takes; `.losses` is what it could not say."""
        return self._params("openai-chat", model, **options)

    def to_anthropic_params(self, model: str | None = None, **options: Any) -> VendorParams:
        """What `messages.create(**...)` takes."""
        return self._params("anthropic", model, **options)

    def to_responses_params(self, model: str | None = None, **options: Any) -> VendorParams:
        """What `responses.create(**...)` takes."""
        return self._params("openai-responses", model, **options)

    def _params(
        self,
        protocol: str,
        model: str | None,
        *,
        tools: Sequence[ToolLike] | None = None,
        system: SystemPolicy = "auto",
        max_tokens: int | None = None,
    ) -> VendorParams:
        return write_params(
            protocol,
            self.rows,
            self.setup,
            model=model,
            tools=tools,
            system=system,
            max_tokens=max_tokens,
        )

    def __len__(self) -> int:
        return len(self.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompiledContext) and self.rows == other.rows

    __hash__ = None  # pyright: ignore[reportAssignmentType] - messages hold dicts


def _hex(id: Id | None) -> str:
    return "" if id is None else id.hex()
