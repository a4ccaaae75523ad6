"""A limit on the size of the compiled context, checked before a change is written.

Only messages that would be sent to a model count; hidden and compacted messages do not. A change
that makes the context smaller is never refused, even if the context is still above the limit.
"""

import warnings
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from weft.errors import BudgetExceeded, ThreadError, WrongValue

Action = Literal["warn", "reject"] | Callable[[int, int], object]


def check_budget(value: Any) -> "Budget | None":
    """The value, if it is a `Budget` or `None`."""
    if value is not None and not isinstance(value, Budget):
        wrong = f"must be a Budget or None, not {type(value).__name__}: give weft.Budget(tokens)"
        raise WrongValue("budget", wrong)
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class BudgetWarning(UserWarning):
    """The compiled context is above its budget; the commit was written anyway."""


class Budget(Struct, frozen=True):
    """At most `tokens`; `action` decides what happens to a change that exceeds them.

    `warn` issues a `BudgetWarning`, `reject` raises `BudgetExceeded`. A function is called with the
    tokens needed and the limit; it may compact the thread, and refuses the change by returning
    `False`.
    """

    tokens: int
    action: Action = "reject"

    def __post_init__(self) -> None:
        if not _is_number(self.tokens):
            kind = type(self.tokens).__name__
            raise WrongValue("the tokens of a budget", f"must be a number, not {kind}")
        if self.tokens < 0:
            raise ThreadError(f"a budget must not be negative: {self.tokens}")
        if not callable(self.action) and self.action not in ("warn", "reject"):
            raise ThreadError(f"unknown action {self.action!r}: use 'warn', 'reject' or a function")

    def check(self, before: int, after: int) -> None:
        """Check a change that takes the context from `before` to `after` tokens."""
        if after <= self.tokens or after <= before:
            return
        line = f"this would be {after} tokens, more than the budget of {self.tokens}"
        if self.action == "warn":
            warnings.warn(line, BudgetWarning, stacklevel=2)
        elif self.action == "reject" or (
            callable(self.action) and self.action(after, self.tokens) is False
        ):
            raise BudgetExceeded(line, needed=after, budget=self.tokens)
