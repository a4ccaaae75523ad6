"""A limit on what a thread compiles to, judged before anything lands.

What counts is the context that a model would be sent, not everything that was ever said: hidden
and folded lines weigh nothing. A change that makes the context smaller is never refused, however
far above the limit it still is.
"""

import warnings
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from weft.errors import BudgetExceeded, ThreadError, WrongValue

Action = Literal["warn", "reject"] | Callable[[int, int], object]


def check_budget(value: Any) -> "Budget | None":
    """The value, if it is a budget or none."""
    if value is not None and not isinstance(value, Budget):
        wrong = f"must be a Budget or None, not {type(value).__name__}: give weft.Budget(tokens)"
        raise WrongValue("budget", wrong)
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class BudgetWarning(UserWarning):
    """The compiled context is above its budget; the commit lands all the same."""


class Budget(Struct, frozen=True):
    """At most `tokens`; beyond, `action` decides.

    `warn` issues a `BudgetWarning`, `reject` raises `BudgetExceeded`. A function is called with
    what is needed and the limit: it may compact the thread, and refuses by answering `False`.
    """

    tokens: int
    action: Action = "reject"

    def __post_init__(self) -> None:
        if not _is_number(self.tokens):
            kind = type(self.tokens).__name__
            raise WrongValue("the tokens of a budget", f"must be a number, not {kind}")
        if self.tokens < 0:
            raise ThreadError(f"a budget cannot be {self.tokens} tokens")
        if not callable(self.action) and self.action not in ("warn", "reject"):
            raise ThreadError(f"{self.action!r} is no action: give warn, reject or a function")

    def judge(self, before: int, after: int) -> None:
        """Weigh a change that takes the context from `before` to `after` tokens."""
        if after <= self.tokens or after <= before:
            return
        line = f"this would be {after} tokens, more than the budget of {self.tokens}"
        if self.action == "warn":
            warnings.warn(line, BudgetWarning, stacklevel=2)
        elif self.action == "reject" or (
            callable(self.action) and self.action(after, self.tokens) is False
        ):
            raise BudgetExceeded(line, needed=after, budget=self.tokens)
