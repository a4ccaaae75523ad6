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
"""The largest share of a window that is reserved for the answer."""

TARGET = 0.5
"""The share of the limit that is filled after a compaction."""

MAX_FAILURES = 3
PAUSED_ATTEMPTS = 20
"""After this many failed attempts in a row, this many attempts are skipped."""

MIN_RATIO, MAX_RATIO = 0.75, 2.0
"""The bounds of the learned ratio of real to estimated tokens."""

MAX_DEVIATION = 1.5
"""A report that differs by more than this factor from what was expected needs a second one."""

LARGE_REQUEST = 20_000
MIN_GROWTH, MIN_GROWTH_SHARE = 200, 0.05
"""The first report is used for the ratio only if the request is large: in a small one, most tokens
may be what the vendor adds. A later report is used if the request has grown by this much."""


class Limits(Struct, frozen=True, kw_only=True):
    """How much of a model's window a conversation may fill, in the vendor's tokens."""

    window: int
    reserve: int
    overhead: int = 0
    target: float = TARGET

    @property
    def max_tokens(self) -> int:
        """The most tokens that the messages may have."""
        return max(0, self.window - self.reserve - self.overhead)

    @property
    def target_tokens(self) -> int:
        """The size of the messages that a compaction aims at."""
        return int(self.max_tokens * self.target)

    def is_over(self, tokens: int) -> bool:
        """Whether messages of this size must be compacted first."""
        return tokens > self.max_tokens


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
            if not expected / MAX_DEVIATION <= reported <= expected * MAX_DEVIATION:
                return structs.replace(self, doubtful=True)
        return Gauge(self._learn_ratio(estimate, reported), estimate, reported)

    def _learn_ratio(self, estimate: int, reported: int) -> float:
        """The ratio after a report: by growth, or in total if the request is large."""
        if self.reported is None:
            return _clamp(reported / estimate) if estimate >= LARGE_REQUEST else self.ratio
        growth = estimate - self.estimate
        if abs(growth) < max(MIN_GROWTH, self.estimate * MIN_GROWTH_SHARE):
            return self.ratio
        return (self.ratio + _clamp((reported - self.reported) / growth)) / 2


def _clamp(ratio: float) -> float:
    return min(MAX_RATIO, max(MIN_RATIO, ratio))


class Breaker(Struct, frozen=True):
    """A circuit breaker: how many attempts failed in a row, and how many were skipped since."""

    limit: int = MAX_FAILURES
    pause: int = PAUSED_ATTEMPTS
    failures: int = 0
    skipped: int = 0

    @property
    def is_open(self) -> bool:
        """Whether attempts are to be skipped."""
        return self.failures >= self.limit and self.skipped < self.pause

    def fail(self) -> "Breaker":
        return structs.replace(self, failures=self.failures + 1, skipped=0)

    def succeed(self) -> "Breaker":
        return structs.replace(self, failures=0, skipped=0)

    def skip(self) -> "Breaker":
        """Count one skipped attempt; after enough of them, the next one is made."""
        return structs.replace(self, skipped=self.skipped + 1)
