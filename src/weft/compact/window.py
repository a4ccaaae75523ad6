"""When a thread is too long for the model that answers next, and when to stop trying.

A window holds the conversation, what comes with every request (the tools), and the answer. So the
limit is the window less a reserve for the answer and less that overhead; past it old turns are
folded, down to a target well below, because every fold costs a request and a vendor's cache.

What a request really comes to is known only to its vendor. A `Gauge` estimates, and learns from
what is reported by how much it is wrong: within bounds, and half of the way each time, so that one
strange report moves little. A report beyond the window is no report.

A fold that fails, or does not help, is tried again a few times and then not for a while: a
`Breaker` counts. After a pause it lets one attempt through.
"""

from msgspec import Struct, structs

from weft.catalog import Model
from weft.errors import ConfigError

RESERVE_SHARE = 0.2
TARGET = 0.5
FAILURES = 3
PAUSE = 20
LOWEST, HIGHEST = 0.75, 2.0
"""By how much an estimate may be wrong."""


class Limits(Struct, frozen=True, kw_only=True):
    """What a model's window leaves for the conversation, in its vendor's tokens."""

    window: int
    reserve: int
    overhead: int = 0
    target: float = TARGET

    @property
    def room(self) -> int:
        """The most tokens that messages may have."""
        return max(0, self.window - self.reserve - self.overhead)

    @property
    def goal(self) -> int:
        """The tokens that a fold aims at."""
        return int(self.room * self.target)

    def is_over(self, tokens: int) -> bool:
        """Whether messages of so many tokens must be folded first."""
        return tokens > self.room


def limits_of(
    model: Model, *, overhead: int = 0, reserve: int | None = None, target: float = TARGET
) -> Limits:
    """The limits of a model; the reserve is its longest answer, at most a fifth of its window.

    Raises `ConfigError` for a target that is no part of the room.
    """
    if not 0 < target < 1:
        raise ConfigError(f"a target is a part of the room, between 0 and 1, not {target}")
    usual = min(model.output, int(model.window * RESERVE_SHARE))
    held = usual if reserve is None else reserve
    return Limits(window=model.window, reserve=held, overhead=overhead, target=target)


class Gauge(Struct, frozen=True):
    """How many real tokens an estimated one comes to."""

    ratio: float = 1.0

    def measure(self, estimate: int) -> int:
        return int(estimate * self.ratio)

    def learn(self, estimate: int, reported: int | None, window: int) -> "Gauge":
        """What a report on a request of this estimate teaches."""
        if not estimate or not reported or reported > window:
            return self
        seen = min(HIGHEST, max(LOWEST, reported / estimate))
        return Gauge((self.ratio + seen) / 2)


class Breaker(Struct, frozen=True):
    """How many attempts failed in a row, and how often one was left out since."""

    limit: int = FAILURES
    pause: int = PAUSE
    failures: int = 0
    passed: int = 0

    @property
    def is_open(self) -> bool:
        """Whether attempts are to be left out."""
        return self.failures >= self.limit and self.passed < self.pause

    def fail(self) -> "Breaker":
        return structs.replace(self, failures=self.failures + 1, passed=0)

    def succeed(self) -> "Breaker":
        return structs.replace(self, failures=0, passed=0)

    def leave_out(self) -> "Breaker":
        """One attempt less; enough of them, and the next is made."""
        return structs.replace(self, passed=self.passed + 1)
