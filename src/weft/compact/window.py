"""When a thread is too long for the next model, and when to stop compacting.

A window holds the conversation, what comes with every request (the tools), and the answer. So the
limit is the window minus a reserve for the answer and minus that overhead. Above it, old turns are
folded down to a target well below, because every fold costs a request and the vendor's cache.

Only the vendor knows the real size of a request. A `Gauge` starts from the last reported size and
adds an estimate of what has changed since. So whatever the vendor adds (a hidden prompt, its own
form of the tools) is counted from the first answer on. Estimates may also be wrong by a factor: the
gauge learns it from the growth between two reports, within bounds. A report above the window is
ignored. So is one that is far from what was expected, unless the next one confirms it.

A compaction that fails or does not help is tried again a few times, and then paused: a `Breaker`
counts. After the pause it lets one attempt through.
"""

from msgspec import Struct, structs

from weft.catalog import Model
from weft.errors import ConfigError

RESERVE_SHARE = 0.2
TARGET = 0.5
FAILURES = 3
PAUSE = 20
LOWEST, HIGHEST = 0.75, 2.0
"""The bounds of the learned ratio."""

ODD = 1.5
"""A report that differs by more than this factor from what was expected needs a second one."""

LARGE = 20_000
GROWTH_LEAST, GROWTH_SHARE = 200, 0.05
"""A first report says something about the ratio only for a large request: in a small one, most may
be what the vendor adds. Later, the request must have grown by this much."""


class Limits(Struct, frozen=True, kw_only=True):
    """The room for the conversation in a model's window, in its vendor's tokens."""

    window: int
    reserve: int
    overhead: int = 0
    target: float = TARGET

    @property
    def room(self) -> int:
        """The most tokens that the messages may have."""
        return max(0, self.window - self.reserve - self.overhead)

    @property
    def goal(self) -> int:
        """The size that a compaction aims at."""
        return int(self.room * self.target)

    def is_over(self, tokens: int) -> bool:
        """Whether messages of this size must be compacted first."""
        return tokens > self.room


def limits_of(
    model: Model, *, overhead: int = 0, reserve: int | None = None, target: float = TARGET
) -> Limits:
    """The limits of a model; the reserve is its longest answer, at most a fifth of its window.

    Raises `ConfigError` if the target is not between 0 and 1.
    """
    if not 0 < target < 1:
        raise ConfigError(f"target must be between 0 and 1, not {target}")
    if reserve is None:
        reserve = min(model.output, int(model.window * RESERVE_SHARE))
    return Limits(window=model.window, reserve=reserve, overhead=overhead, target=target)


class Gauge(Struct, frozen=True):
    """The real size of a request by its estimate, learned from what the vendor reports.

    `estimate` and `reported` are those of the last report. `ratio` is the number of real tokens for
    each estimated token. `doubtful` says that the newest report was far off and is not used yet.
    """

    ratio: float = 1.0
    estimate: int = 0
    reported: int | None = None
    doubtful: bool = False

    def measure(self, estimate: int) -> int:
        """The real tokens of a request with this estimate."""
        if self.reported is None:
            return estimate
        return max(0, self.reported + round(self.ratio * (estimate - self.estimate)))

    def learn(self, estimate: int, reported: int | None, window: int) -> "Gauge":
        """The gauge after a report for a request of this estimate."""
        if not estimate or not reported or reported > window:
            return self
        if self.reported is not None and not self.doubtful:
            expected = self.measure(estimate)
            if not expected / ODD <= reported <= expected * ODD:
                return structs.replace(self, doubtful=True)
        return Gauge(self._learn_ratio(estimate, reported), estimate, reported)

    def _learn_ratio(self, estimate: int, reported: int) -> float:
        """The ratio after a report: by growth, or in total if the request is large."""
        if self.reported is None:
            return _bounded(reported / estimate) if estimate >= LARGE else self.ratio
        growth = estimate - self.estimate
        if abs(growth) < max(GROWTH_LEAST, self.estimate * GROWTH_SHARE):
            return self.ratio
        return (self.ratio + _bounded((reported - self.reported) / growth)) / 2


def _bounded(ratio: float) -> float:
    return min(HIGHEST, max(LOWEST, ratio))


class Breaker(Struct, frozen=True):
    """A circuit breaker: how many attempts failed in a row, and how many were skipped since."""

    limit: int = FAILURES
    pause: int = PAUSE
    failures: int = 0
    passed: int = 0

    @property
    def is_open(self) -> bool:
        """Whether attempts are to be skipped."""
        return self.failures >= self.limit and self.passed < self.pause

    def fail(self) -> "Breaker":
        return structs.replace(self, failures=self.failures + 1, passed=0)

    def succeed(self) -> "Breaker":
        return structs.replace(self, failures=0, passed=0)

    def leave_out(self) -> "Breaker":
        """Count one skipped attempt; after enough of them, the next one is made."""
        return structs.replace(self, passed=self.passed + 1)
