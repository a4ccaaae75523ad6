"""What a compaction came to, for a person and for the model that asked."""

from collections.abc import Sequence

from msgspec import Struct

from weft.history import Row

from .events import STEPS
from .plan import Method, Pin, Plan, Range, Stripped, Thinned


class StepFailure(Struct, frozen=True):
    """A way to make the summary that failed before another succeeded, and why."""

    step: Method
    reason: str


class CompactResult(Struct, frozen=True, kw_only=True):
    """Tokens before and after, the ranges, the pins that stood in them. `str()` is one line.

    Ids are in hex. `commit` is absent for a preview, and where nothing had to change. `rows` is
    what the thread compiles to afterwards, hidden rows included. `dropped_calls` are calls that a
    range took before their results came: a loop must not commit those results any more.
    `cache_lost` are the tokens sent before that a prompt cache has to read again.

    Where a model wrote the summary: `requests` is how often it was asked (or would be), `dropped`
    are its sentences that named what was never said, `names_added` how many names were put back
    and `names_left` how many had no room and are found by `recall`, `cost` the dollars that the
    catalogue says it took, where it knows a price.
    A preview asks nobody: `tokens_after` is then the most that it can come to.

    `method` is how the engine made room, `failures` which ways failed before it. `thinned` are
    results that the model has not read and that were shortened.
    """

    tokens_before: int
    tokens_after: int
    ranges: tuple[Range, ...] = ()
    pins: tuple[Pin, ...] = ()
    stripped: tuple[Stripped, ...] = ()
    dropped_calls: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    commit: str | None = None
    preview: bool = False
    cache_lost: int = 0
    model: str | None = None
    requests: int = 0
    dropped: tuple[str, ...] = ()
    names_added: int = 0
    names_left: int = 0
    cost: float | None = None
    method: Method | None = None
    failures: tuple[StepFailure, ...] = ()
    thinned: tuple[Thinned, ...] = ()

    @property
    def reason(self) -> str | None:
        """Why the first way to make the summary was not the one that was used."""
        return self.failures[-1].reason if self.failures else None

    @property
    def pins_kept(self) -> tuple[str, ...]:
        """The ids of the pinned messages that stood in a range."""
        return tuple(pin.id for pin in self.pins if pin.id is not None)

    @property
    def messages(self) -> int:
        """How many messages were folded, whole or in part."""
        return sum(folded.messages for folded in self.ranges)

    def __str__(self) -> str:
        if not self.ranges and not self.stripped and not self.thinned:
            return f"nothing to compact: {self.tokens_before:,} tokens"
        verb = "would compact" if self.preview else "compacted"
        parts = [f"{verb} {_many(self.messages, 'message')}: {self._tokens()}"]
        if self.pins:
            parts.append(f"{_many(len(self.pins), 'pin')} kept ({_names(self.pins)})")
        if self.stripped:
            parts.append(f"{_many(len(self.stripped), 'reminder or thinking block')} stripped")
        if self.thinned:
            parts.append(f"{_many(len(self.thinned), 'unread result')} shortened")
        if self.failures and self.method is not None:
            parts.append(f"by {STEPS[self.method]}, because {self.reason}")
        if self.preview and self.cache_lost:
            parts.append(f"{self.cache_lost:,} tokens of cached prefix lost")
        if self.model is not None:
            price = "" if self.cost is None else f" (${self.cost:.4f})"
            parts.append(f"{_many(self.requests, 'request')} to {self.model}{price}")
        if self.dropped:
            parts.append(f"{_many(len(self.dropped), 'unfounded sentence')} left out")
        if self.names_left:
            parts.append(f"{_many(self.names_left, 'name')} left to recall")
        if self.ranges and self.tokens_after >= self.tokens_before:
            parts.append(self._growth())
        return ", ".join(parts)

    def _growth(self) -> str:
        """What is said of a fold that makes nothing shorter."""
        if self.preview:
            return "which may save nothing: so little is not worth a fold"
        longer = self.tokens_after > self.tokens_before
        return "which is longer than before" if longer else "which saves nothing"

    def _tokens(self) -> str:
        before, after = self.tokens_before, self.tokens_after
        change = f" ({(after - before) / before:+.0%})" if before else ""
        most = "at most " if self.preview and self.model is not None else ""
        return f"{before:,} → {most}{after:,} tokens{change}"


def compact_result(
    plan: Plan, before: int, after: int, *, commit: str | None = None, preview: bool = False
) -> CompactResult:
    """The result of a plan whose rows were counted before and after."""
    return CompactResult(
        tokens_before=before,
        tokens_after=after,
        ranges=plan.ranges,
        pins=plan.pins_kept,
        stripped=plan.stripped,
        dropped_calls=plan.dropped_calls,
        rows=plan.rows,
        commit=commit,
        preview=preview,
        method=plan.method,
        thinned=plan.thinned,
    )


def _names(pins: Sequence[Pin]) -> str:
    return "; ".join(
        f"{pin.id[:8]} {pin.preview!r}" if pin.id else repr(pin.preview) for pin in pins
    )


def _many(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"
