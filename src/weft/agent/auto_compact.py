"""Automatic compaction: keep a thread within its model's window while an agent works in it.

The size is checked before every request, also after tool calls, because one task can fill a window.
If it is over the limit, the agent's own model, or the configured one, replaces old turns with a
summary. The thread's compaction is a generator; the agent loop sends its requests, because it has
the HTTP client.

A summary model that fails, hangs or is missing does not end a run: old turns are then replaced with
extracts, and an event reports it. After a few failures in a row the model is not asked for a while.
A tool result that does not fit the window is shortened before the model first sees it. If the
messages that must stay exceed the window, the request is sent as it is.
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

CACHED_COUNTS = 50_000
RECALL_DIVISOR = 4
"""One answer of `recall` takes at most 1/4 of the window."""
MIN_RECALL_TOKENS = 200


class ContextUse(Struct, frozen=True, kw_only=True):
    """How full a model's context window is, by the agent's own count.

    `tokens` is the whole request: messages and tool definitions. Above `limit` old turns are
    compacted, down to about `target`.
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

    - `by`: the model that writes the summaries, by name or as an asker (default: the agent's own),
      with `prompt`.
    - `reserve`: tokens of the window kept free for answers.
    - `target`: how full the available context is after a compaction, from 0 to 1.
    - `chunk`: the most tokens summarised by one request.
    - `verbatim`: the share of the target for old turns that stay verbatim; `scorer` ranks them.
    - `timeout`: seconds for one summary request (`None`: no limit).
    - `retries`: how often a failed summary request is repeated (default: as often as the agent's
      own requests). An asker in `by` has its own policy.
    - `failures`, `pause`: after that many failures in a row, the next compactions use no model.
    - `clip`: how many summaries are listed at both ends.
    - `compact_context`: offer the tool `compact_context`, with which the model has the thread
      compacted at once, without writing the summary itself.
    - `live_prefix`: ask for the summary on top of the live request, with its tools and messages,
      so that most of it comes from the vendor's cache. Only without `by`.
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
"""The tokens of messages by the identity of their objects, with the objects. It can be shared by
agents of the same model, so that a message is counted once."""

Flow = Generator[AskSummary | Emit | Confirm, Any, bool]
"""Ends with whether the thread was compacted."""


class AutoCompactor:
    """Measures the window of an agent's model and compacts its thread."""

    def __init__(
        self, model: Model, settings: Compaction, tools: Sequence[Tool], by: Asker | None = None
    ) -> None:
        self.settings = settings
        self.by = by
        self.gauge = Gauge()
        self.breaker = Breaker(settings.failures, settings.pause)
        self._counter = counter_for_model(model)
        self.counts: MessageCounts = {}
        self._measured = 0
        self.overhead = self._counter.tools(tools)
        self.live_request: Callable[[], Request] | None = None
        self.model = model if by is None else by.model
        self._limits = limits_of(model, reserve=settings.reserve, target=settings.target)

    @property
    def limits(self) -> Limits:
        """The limits of the window, with the tools as the overhead of every request."""
        return msgspec.structs.replace(self._limits, overhead=self.overhead)

    @property
    def recall_tokens(self) -> int:
        """The most tokens that one answer of `recall` may have."""
        return min(RECALL_TOKENS, max(MIN_RECALL_TOKENS, self.limits.max_tokens // RECALL_DIVISOR))

    def measure(self, messages: Sequence[Message]) -> int:
        """The tokens of messages, as the vendor would count them.

        They include what the vendor adds to a request, apart from the tools.
        """
        if len(self.counts) > CACHED_COUNTS:
            self.counts.clear()
        self._measured = sum(self._count(message) for message in messages) + self.overhead
        return max(0, self.gauge.measure(self._measured) - self.overhead)

    def use(self, messages: Sequence[Message]) -> ContextUse:
        """How full the window is with these messages."""
        size, limits = self.measure(messages), self.limits
        return ContextUse(
            tokens=size + limits.overhead,
            window=limits.window,
            limit=limits.max_tokens + limits.overhead,
            target=limits.goal + limits.overhead,
        )

    def learn(self, usage: Usage | None) -> None:
        """Correct the estimate with the usage reported for the last measured request."""
        self.learn_size(None if usage is None else usage.input)

    def learn_size(self, reported: int | None) -> None:
        """Correct the estimate with the reported size of the last measured request."""
        self.gauge = self.gauge.learn(self._measured, reported, self._limits.window)

    def run(self, thread: Thread, system_messages: list[SystemMessage], *, force: bool) -> Flow:
        """Compact if the window is too full, or in any case with `force`."""
        messages = thread.compile().sendable
        size = self.measure(messages)
        if not force and not self.limits.is_over(size):
            return False
        if self.settings.confirm is not None and not (yield Confirm(self.use(messages))):
            return False
        uses_model = not self.breaker.is_open
        if not uses_model:
            self.breaker = self.breaker.skip()
        result = yield from self._compact(thread, system_messages, size, force, uses_model)
        compacted = result is not None and result.commit is not None
        if uses_model:
            succeeded = compacted and not (result and result.requests and result.failures)
            self.breaker = self.breaker.succeed() if succeeded else self.breaker.fail()
        return compacted

    def run_now(
        self, thread: Thread, system_messages: list[SystemMessage]
    ) -> Generator[AskSummary | Emit | Confirm, Any, CompactResult | None]:
        """Compact at once, because the model asked for it; `None` if it failed or was refused."""
        messages = thread.compile().sendable
        if self.settings.confirm is not None and not (yield Confirm(self.use(messages))):
            return None
        size = self.measure(messages)
        uses_model = not self.breaker.is_open
        return (yield from self._compact(thread, system_messages, size, True, uses_model))

    def _compact(
        self,
        thread: Thread,
        system_messages: list[SystemMessage],
        size: int,
        force: bool,
        uses_model: bool,
    ) -> Generator[AskSummary | Emit, Any, CompactResult | None]:
        """One compaction; `None` if it failed and the thread is unchanged."""
        goal, max_tokens = self.limits.goal, self.limits.max_tokens
        # What the vendor adds to a request stays after a compaction: the messages get less.
        added = max(0, size - sum(self.count(message) for message in thread.compile().sendable))
        goal, max_tokens = max(1, goal - added), max(1, max_tokens - added)
        if force:  # the window is smaller than the catalogue says
            goal, max_tokens = min(goal, size // 2), min(max_tokens, size * 3 // 4)
        system_messages.clear()
        try:
            result = yield from self._relay_requests(
                thread, goal, max_tokens, system_messages, uses_model
            )
        except WeftError as error:
            # Without a model the same error repeats every time, and has been reported already.
            if not system_messages and uses_model:
                thread.emit(compaction_failed(str(error)))
            yield from _emit(system_messages)
            return None
        yield from _emit(system_messages)
        return result

    def _relay_requests(
        self,
        thread: Thread,
        goal: int,
        max_tokens: int,
        system_messages: list[SystemMessage],
        uses_model: bool,
    ) -> Generator[AskSummary | Emit, Any, CompactResult]:
        """Pass the requests of the thread's compaction to the agent loop."""
        settings = self.settings
        options = CompactOptions(
            budget=goal,
            limit=max_tokens,
            prompt=settings.prompt,
            chunk=settings.chunk,
            clip=settings.clip,
            verbatim=int(goal * settings.verbatim),
            scorer=settings.scorer,
            trigger="auto",
            fallback=True,
            count=self.count,
            live=self._live_request_if_used(),
        )
        flow = thread.compacting(self.model if uses_model else None, options)
        try:
            request = next(flow)
            while True:
                yield from _emit(system_messages)
                answer: Answer = yield AskSummary(request)
                request = flow.send(answer)
        except StopIteration as end:
            return end.value
        finally:
            flow.close()

    def _live_request_if_used(self) -> Request | None:
        """The request that the agent would send now, if summaries are asked for on top of it."""
        if not self.settings.live_prefix or self.by is not None:
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

    def _count(self, message: Message) -> int:
        cached = self.counts.get(id(message))
        if cached is None:
            # The message is stored with its count, so that its id is not reused.
            cached = self.counts[id(message)] = (message, self._counter.message(message))
        return cached[1]


def _emit(system_messages: list[SystemMessage]) -> Generator[Emit]:
    """Emit the collected system messages, and remove them from the list."""
    messages = list(system_messages)
    system_messages.clear()
    for message in messages:
        yield Emit(message)
