"""Automatic compaction: keep a thread within its model's window while an agent works in it.

The size is checked before every request, also after tool calls, because one task can fill a window.
If it is over the limit, the agent's own model, or the configured one, replaces old turns with a
summary. The thread's compaction is a generator; the agent loop sends its requests, because it has
the HTTP client.

A summary model that fails, hangs or is missing does not end a run: old turns are then replaced with
extracts, and an event reports it. After a few failures in a row the next compactions use no model.
A tool result that does not fit the window is shortened before the model first sees it. If the
messages that must stay exceed the window, the request is sent unchanged.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from math import ceil
from typing import Any

import msgspec
from msgspec import Struct

from weft.catalog import Model
from weft.checked import check_fields
from weft.client import CompactionSettings
from weft.compact import (
    Answer,
    Breaker,
    Clip,
    CompactResult,
    Gauge,
    Importance,
    Limits,
    Scorer,
    SystemMessage,
    compaction_failed,
    limits_of,
)
from weft.errors import ConfigError, WeftError
from weft.model import Message, Request, Tool, Usage
from weft.thread import RECALL_TOKENS, SUMMARY_SECONDS, Asker, CompactOptions, Thread
from weft.tokens import counter_for_model

from .events import Emit

MAX_CACHED_COUNTS = 50_000
RECALL_DIVISOR = 4
"""One answer of `recall` takes at most 1/4 of the window."""
MIN_RECALL_TOKENS = 200


class ContextUse(Struct, frozen=True, kw_only=True):
    """How full a model's context window is, by the agent's own count.

    All values are tokens. `tokens` is the size of the whole request: messages and tool definitions.
    Above `limit` old turns are compacted, until the request has about `target` tokens.
    """

    tokens: int
    window: int
    limit: int
    target: int

    @property
    def is_over(self) -> bool:
        """Whether the next request compacts first."""
        return self.tokens > self.limit


class Confirm(Struct, frozen=True):
    """Ask a person whether to compact now; answered with True or False."""

    use: ContextUse


class Compaction(Struct, frozen=True, kw_only=True):
    """Settings of automatic compaction.

    - `by`: the model that writes the summaries: a name or an `Asker` (default: the agent's own
      model). `prompt`: the instructions for it.
    - `reserve`: tokens of the window kept free for answers.
    - `target`: how much of the space for messages a compaction leaves filled, from 0 to 1. The
      space is the window without `reserve` and the tool definitions.
    - `chunk`: the most tokens summarised by one request.
    - `verbatim`: how much of the target size old turns that stay verbatim may use, from 0 to 1.
      `scorer` decides which turns are the most important.
    - `timeout`: seconds for one summary request (`None`: no limit).
    - `retries`: how often a failed summary request is repeated (default: as often as the agent's
      own requests). An `Asker` in `by` has its own policy.
    - `failures`, `pause`: after `failures` failures in a row, the next `pause` compactions use no
      model.
    - `clip`: how many batches a summary shows, and when those in the middle are summarised again
      (`Clip`).
    - `compact_context`: offer the tool `compact_context`. When the model calls it, Weft compacts
      the thread at once; the model does not write the summary in the call.
    - `live_prefix`: ask for the summary in a continuation of the conversation: the tools and
      messages of the agent's next request, and then the instruction to summarise. So most of the
      request is in the vendor's cache. Only without `by`.
    - `confirm`: called before every automatic compaction. If it returns False, the request is sent
      uncompacted.
    """

    by: Asker | str | None = None
    prompt: str | None = None
    reserve: int | None = None
    target: float = 0.5
    chunk: int | None = None
    verbatim: float = 0.1
    scorer: Scorer = Importance()
    failures: int = 3
    pause: int = 20
    clip: Clip = Clip()
    confirm: Callable[[Confirm], Awaitable[bool]] | None = None
    timeout: float | None = SUMMARY_SECONDS
    live_prefix: bool = False
    retries: int | None = None
    compact_context: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.retries is not None and self.retries < 0:
            raise ConfigError(f"retries: must not be negative: {self.retries}")
        if self.timeout is not None and not self.timeout > 0:
            raise ConfigError(f"timeout: must be a number of seconds above 0, not {self.timeout}")


def configured_compaction(
    settings: CompactionSettings,
    by: Asker | None = None,
    confirm: Callable[[Confirm], Awaitable[bool]] | None = None,
) -> Compaction:
    """The compaction that a `[compaction]` table asks for; `by` is a client of its model."""
    names = ("prompt", "reserve", "target", "timeout", "retries")
    values = {name: getattr(settings, name) for name in names}
    chosen = {name: value for name, value in values.items() if value is not None}
    return Compaction(by=by, confirm=confirm, **chosen)


class AskSummary(Struct, frozen=True):
    """Ask for a part of a summary; answered with a `Response`, an `ApiError` or `Stopped`."""

    request: Request


MessageCounts = dict[int, tuple[Message, int]]
"""Token counts by `id(message)`. The message is stored too, so that its id is not reused. Agents of
the same model can share one, so that a message is counted once."""

AutoCompactFlow = Generator[AskSummary | Emit | Confirm, Any, bool]
"""Ends with whether the thread was compacted."""


class AutoCompactor:
    """Measures how full the window of an agent's model is, and compacts the thread.

    `summariser` writes the summaries; `None` for the agent's own model. The agent's listener adds
    the events of the thread to the list `thread_events`. Events from before a compaction are
    dropped, and those of the compaction are emitted.
    """

    def __init__(
        self,
        model: Model,
        settings: Compaction,
        tools: Sequence[Tool],
        summariser: Asker | None = None,
    ) -> None:
        self.settings = settings
        self.summariser = summariser
        self.gauge = Gauge()
        self.breaker = Breaker(settings.failures, settings.pause)
        self._counter = counter_for_model(model)
        self.counts: MessageCounts = {}
        self._measured = 0
        self.tool_tokens = self._counter.tools(tools)
        self.live_request: Callable[[], Request] | None = None
        self._summary_model = model if summariser is None else summariser.model
        self._limits = limits_of(model, reserve=settings.reserve, target=settings.target)

    @property
    def limits(self) -> Limits:
        """The limits of the window, with the tools as the overhead of every request."""
        return msgspec.structs.replace(self._limits, overhead=self.tool_tokens)

    @property
    def recall_tokens(self) -> int:
        """The most tokens that one answer of `recall` may have."""
        return min(RECALL_TOKENS, max(MIN_RECALL_TOKENS, self.limits.max_tokens // RECALL_DIVISOR))

    def measure(self, messages: Sequence[Message]) -> int:
        """The tokens of messages, as the vendor would count them.

        Includes the vendor's own additions to a request, but not the tool definitions.
        """
        if len(self.counts) > MAX_CACHED_COUNTS:
            self.counts.clear()
        # The vendor reports the size of whole requests, so the gauge is for those as well.
        message_tokens = sum(self._cached_estimate(message) for message in messages)
        self._measured = message_tokens + self.tool_tokens
        return max(0, self.gauge.measure(self._measured) - self.tool_tokens)

    def use(self, messages: Sequence[Message]) -> ContextUse:
        """How full the window is with these messages."""
        size, limits = self.measure(messages), self.limits
        return ContextUse(
            tokens=size + limits.overhead,
            window=limits.window,
            limit=limits.max_tokens + limits.overhead,
            target=limits.target_tokens + limits.overhead,
        )

    def learn(self, usage: Usage | None) -> None:
        """Correct the estimate with the usage reported for the last measured request."""
        self.learn_size(None if usage is None else usage.input)

    def learn_size(self, reported: int | None) -> None:
        """Correct the estimate with the reported size of the last measured request."""
        self.gauge = self.gauge.learn(self._measured, reported, self._limits.window)

    def run(
        self, thread: Thread, thread_events: list[SystemMessage], *, force: bool
    ) -> AutoCompactFlow:
        """Compact if the window is too full, or in any case with `force`."""
        messages = thread.compile().sendable
        size = self.measure(messages)
        if not force and not self.limits.is_over(size):
            return False
        if not (yield from self._confirm(messages)):
            return False
        result = yield from self._compact_or_extract(thread, thread_events, size, force=force)
        return result is not None and result.commit is not None

    def run_now(
        self, thread: Thread, thread_events: list[SystemMessage]
    ) -> Generator[AskSummary | Emit | Confirm, Any, CompactResult | None]:
        """Compact at once, because the model asked for it; `None` if it failed or was refused."""
        messages = thread.compile().sendable
        if not (yield from self._confirm(messages)):
            return None
        size = self.measure(messages)
        return (
            yield from self._compact_or_extract(
                thread, thread_events, size, force=True, is_needed=False
            )
        )

    def _confirm(self, messages: Sequence[Message]) -> Generator[Confirm, bool, bool]:
        """Whether a compaction is allowed; asks, if a person is to confirm it."""
        return self.settings.confirm is None or (yield Confirm(self.use(messages)))

    def _compact_or_extract(
        self,
        thread: Thread,
        thread_events: list[SystemMessage],
        size: int,
        *,
        force: bool,
        is_needed: bool = True,
    ) -> Generator[AskSummary | Emit, Any, CompactResult | None]:
        """Compact with a model, or without one while the breaker is open; counts failures.

        If the compaction is not needed, it is no failure that there is nothing to compact.
        """
        uses_model = not self.breaker.is_open
        result = yield from self._compact(thread, thread_events, size, force, uses_model)
        if not uses_model:
            self.breaker = self.breaker.skip()
        elif result is None:
            self.breaker = self.breaker.fail()
        elif result.commit is None:
            self.breaker = self.breaker.fail() if is_needed else self.breaker
        else:
            # Without a request, a failed step says that there was no room for a model's summary.
            model_failed = result.requests > 0 and len(result.failures) > 0
            self.breaker = self.breaker.fail() if model_failed else self.breaker.succeed()
        return result

    def _compact(
        self,
        thread: Thread,
        thread_events: list[SystemMessage],
        size: int,
        force: bool,
        uses_model: bool,
    ) -> Generator[AskSummary | Emit, Any, CompactResult | None]:
        """One compaction; `None` if it failed and the thread is unchanged."""
        budget, limit = self.limits.target_tokens, self.limits.max_tokens
        # The vendor's own additions stay after a compaction, so less is left for the messages.
        message_tokens = sum(self.count(message) for message in thread.compile().sendable)
        vendor_tokens = max(0, size - message_tokens)
        budget, limit = max(1, budget - vendor_tokens), max(1, limit - vendor_tokens)
        if force:
            # The thread may be within its limits: the upstream has a smaller window than the
            # catalogue says, or the model asked. So the result is to be smaller in any case.
            budget, limit = min(budget, size // 2), min(limit, size * 3 // 4)
        thread_events.clear()
        try:
            result = yield from self._relay_requests(
                thread, budget, limit, thread_events, uses_model
            )
        except WeftError as error:
            # Without a model the same error repeats every time, and has been reported already.
            if not thread_events and uses_model:
                thread.emit(compaction_failed(str(error)))
            yield from _emit(thread_events)
            return None
        yield from _emit(thread_events)
        return result

    def _relay_requests(
        self,
        thread: Thread,
        budget: int,
        limit: int,
        thread_events: list[SystemMessage],
        uses_model: bool,
    ) -> Generator[AskSummary | Emit, Any, CompactResult]:
        """Pass the requests of the thread's compaction to the agent loop."""
        settings = self.settings
        options = CompactOptions(
            budget=budget,
            limit=limit,
            prompt=settings.prompt,
            chunk=settings.chunk,
            clip=settings.clip,
            verbatim=int(budget * settings.verbatim),
            scorer=settings.scorer,
            trigger="auto",
            fallback=True,
            count=self.count,
            live=self._live_request_if_used(),
        )
        flow = thread.compacting(self._summary_model if uses_model else None, options)
        try:
            request = next(flow)
            while True:
                yield from _emit(thread_events)
                answer: Answer = yield AskSummary(request)
                request = flow.send(answer)
        except StopIteration as end:
            return end.value
        finally:
            flow.close()

    def _live_request_if_used(self) -> Request | None:
        """The request that the agent would send now, if requests for summaries continue it."""
        if not self.settings.live_prefix or self.summariser is not None:
            return None
        return None if self.live_request is None else self.live_request()

    def count(self, message: Message) -> int:
        """The tokens of a message, as the vendor would count them.

        Rounded up, so that the sum over messages is never less than the count of all together.
        """
        cached = self.counts.get(id(message))
        # A plan tries many messages and discards them: those must not fill the cache.
        estimate = self._counter.message(message) if cached is None else cached[1]
        return ceil(estimate * self.gauge.ratio)

    def _cached_estimate(self, message: Message) -> int:
        """The estimated tokens of a message, which are then cached."""
        cached = self.counts.get(id(message))
        if cached is None:
            # The message is stored with its count, so that its id is not reused.
            cached = self.counts[id(message)] = (message, self._counter.message(message))
        return cached[1]


def _emit(thread_events: list[SystemMessage]) -> Generator[Emit]:
    """Emit the collected events, and remove them from the list."""
    events = list(thread_events)
    thread_events.clear()
    for event in events:
        yield Emit(event)
