"""Keeping a thread within its model's window while an agent works in it.

Looked at before every request, so between the rounds of tools too: the work on one wish is what
fills a window. Where the messages are past the limit, old turns are folded into a summary, by the
agent's own model or by one that is set for it, and the run goes on. The flow is the thread's; its
requests pass through the loop, which has the connection.

A summariser that fails, hangs or is missing ends no run: the thread's flow goes on without it
(`thread.engine`), and watchers hear of it. After a few failures in a row nobody is asked for a
while, and old turns are folded into extracts. A result that does not fit the window is shortened
before the model is sent it for the first time. Where what must stay is more than the window, the
request is sent as it is.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from math import ceil
from typing import Any

import msgspec
from msgspec import Struct

from weft.catalog import Model
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
from weft.tokens import counter_for

from .events import Tell

MEMO = 50_000
RECALL_SHARE = 4
"""What is recalled at once takes at most this fraction of the window."""
RECALL_LEAST = 200


class ContextUse(Struct, frozen=True, kw_only=True):
    """How full a model's context window is, in the keeper's own count.

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
    """How an agent folds old turns by itself.

    `by` writes the summaries (the agent's own model, where it is absent), told how by `prompt`.
    `reserve` is held back for answers, `target` the part of the room that a fold leaves filled,
    `chunk` the most tokens that are summed up at once, `verbatim` the part of a fold's goal that
    old turns get which stay word for word, those that matter most by the `scorer`. A request for a
    summary is given up after `timeout` seconds (`None`: never). After `failures` in a row, nobody
    is asked for the next `pause` times; old turns are then folded without a model.

    `confirm` is asked before every automatic compaction. If it answers False, the request goes
    out uncompacted.
    """

    by: Asker | None = None
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

    def __post_init__(self) -> None:
        if self.timeout is not None and not self.timeout > 0:
            raise ConfigError(f"a timeout is a number of seconds above 0, not {self.timeout}")


class Sum(Struct, frozen=True):
    """Ask for a part of a summary; answered with the `Response`, or with the `ApiError` or the
    `Stopped` that came instead."""

    request: Request


Flow = Generator[Sum | Tell | Confirm, Any, bool]
Keep = Callable[[bool], Flow]
"""Fold what is too long, or fold in any case; whether anything was folded."""


class Keeper:
    """What an agent knows of its window: how full it is, and whether folding works."""

    def __init__(self, model: Model, settings: Compaction, tools: Sequence[Tool]) -> None:
        self.settings = settings
        self.gauge = Gauge()
        self.breaker = Breaker(settings.failures, settings.pause)
        self._estimate = counter_for("estimate")
        self._known: dict[int, tuple[Message, int]] = {}
        self._asked = 0
        listed = msgspec.json.encode(tools).decode() if tools else ""
        self.overhead = self._estimate.text(listed)
        self.model = model if settings.by is None else settings.by.model
        self._limits = limits_of(model, reserve=settings.reserve, target=settings.target)

    @property
    def limits(self) -> Limits:
        """What the window leaves, with the overhead as the vendor would count it."""
        overhead = self.gauge.measure(self.overhead)
        return msgspec.structs.replace(self._limits, overhead=overhead)

    @property
    def recall_tokens(self) -> int:
        """The most tokens that one answer of `recall` may have."""
        return min(RECALL_TOKENS, max(RECALL_LEAST, self.limits.room // RECALL_SHARE))

    def measure(self, messages: Sequence[Message]) -> int:
        """The tokens of messages, as the vendor would count them."""
        if len(self._known) > MEMO:
            self._known.clear()
        estimate = sum(self._count(message) for message in messages)
        self._asked = estimate + self.overhead
        return self.gauge.measure(estimate)

    def use(self, messages: Sequence[Message]) -> ContextUse:
        """How full the window is with these messages."""
        size, limits = self.measure(messages), self.limits
        return ContextUse(
            tokens=size + limits.overhead,
            window=limits.window,
            limit=limits.room + limits.overhead,
            target=limits.goal + limits.overhead,
        )

    def learn(self, usage: Usage | None) -> None:
        """Take up what was reported for the request that was measured last."""
        reported = None if usage is None else usage.input
        self.gauge = self.gauge.learn(self._asked, reported, self._limits.window)

    def keep(self, thread: Thread, heard: list[SystemMessage], force: bool) -> Flow:
        """Fold where the window is too full, or in any case; whether anything was folded."""
        messages = thread.compile().sendable
        size = self.measure(messages)
        if not force and not self.limits.is_over(size):
            return False
        if self.settings.confirm is not None and not (yield Confirm(self.use(messages))):
            return False
        asks = not self.breaker.is_open
        if not asks:
            self.breaker = self.breaker.leave_out()
        result = yield from self._fold(thread, heard, size, force, asks)
        landed = result is not None and result.commit is not None
        if asks:
            works = landed and not (result and result.requests and result.failures)
            self.breaker = self.breaker.succeed() if works else self.breaker.fail()
        return landed

    def _fold(
        self, thread: Thread, heard: list[SystemMessage], size: int, force: bool, asks: bool
    ) -> Generator[Sum | Tell, Any, CompactResult | None]:
        """One compaction; `None` where it failed, and the thread is as it was."""
        goal, room = self.limits.goal, self.limits.room
        if force:  # the window is smaller than it is said to be
            goal, room = min(goal, size // 2), min(room, size * 3 // 4)
        heard.clear()
        try:
            result = yield from self._drive(thread, goal, room, heard, asks)
        except WeftError as error:
            # With the breaker open nobody is asked: what failed before fails in the same words.
            if not heard and asks:
                heard.append(compaction_failed(str(error)))
            yield from _tell(heard)
            return None
        yield from _tell(heard)
        return result

    def _drive(
        self, thread: Thread, goal: int, room: int, heard: list[SystemMessage], asks: bool
    ) -> Generator[Sum | Tell, Any, CompactResult]:
        """Pass the thread's own flow on to the loop."""
        settings = self.settings
        wish = CompactOptions(
            budget=goal,
            limit=room,
            prompt=settings.prompt,
            chunk=settings.chunk,
            clip=settings.clip,
            verbatim=int(goal * settings.verbatim),
            scorer=settings.scorer,
            trigger="auto",
            fallback=True,
            count=self.count,
        )
        flow = thread.compacting(self.model if asks else None, wish)
        try:
            request = next(flow)
            while True:
                yield from _tell(heard)
                answer: Answer = yield Sum(request)
                request = flow.send(answer)
        except StopIteration as end:
            return end.value
        finally:
            flow.close()

    def count(self, message: Message) -> int:
        """The tokens of a message, as the vendor would count them; rounded up, so that a sum of
        messages is never less than all of them together."""
        known = self._known.get(id(message))
        # What is not known is tried by a plan and thrown away: it must not fill the memo.
        estimate = self._estimate.message(message) if known is None else known[1]
        return ceil(estimate * self.gauge.ratio)

    def _count(self, message: Message) -> int:
        found = self._known.get(id(message))
        if found is None:
            found = self._known[id(message)] = (message, self._estimate.message(message))
        return found[1]


def _tell(heard: list[SystemMessage]) -> Generator[Tell]:
    """Pass on what the thread said, once."""
    events = list(heard)
    heard.clear()
    for event in events:
        yield Tell(event)
