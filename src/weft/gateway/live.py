"""Running exchanges, and the events that their watchers receive.

An exchange of a recorded thread is listed here from the moment its request is stored until its
end. Watchers receive events, which are JSON objects:

    {"type": "exchange", "exchange", "thread", "branch", "head", "model", "started", "state"}
        the state has changed; `state` is waiting, thinking, streaming, done or failed, and `head`
        is the commit of the request. A failed exchange has `error`; one that has ended has
        `recorded` (store, journal or no). One that waits because the request was sent again has
        `retry`: the members of an `api_retry` system message, or `content` if the client sent it
        again.
    {"type": "block", "exchange", "thread", "branch", "index", "kind", "text"}
        text that was added to a block of the answer. `kind` is text, thinking, call or other. The
        first event of a block has `new`, its last one `closed`; a call has its `name` and `call`
        (its id), and its text is the arguments.
    {"type": "retry", "thread", "branch", "retry"}
        a request of the page's agent failed and is sent again; `retry` is as in `exchange`
    {"type": "changed", "thread", "branch"?}
        the thread has other commits or attempts than before

What always holds:

- The relay never waits for a watcher. Text is read from the answer so far, at most once in
  `FLUSH_SECONDS`, whatever the rate of the upstream's deltas.
- An exchange without watchers costs only one dictionary entry.
- A watcher receives nothing about a thread that it may not read (`Watcher.wants`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from time import time
from typing import Literal, Protocol

from weft.ids import Id
from weft.model import (
    ApiError,
    Fold,
    Growth,
    JsonObject,
    ReadPosition,
    Refusal,
    Text,
    Thinking,
    ToolCall,
)
from weft.store import Store, ThreadRecord

FLUSH_SECONDS = 0.04
"""How long text is collected before it is sent: below what a person notices."""

POLL_SECONDS = 0.5
OVERLAP = 64
"""How many earlier commits each poll reads again: in PostgreSQL a commit may become visible after
one with a larger number."""
ARRIVALS = 1000
"""How many commits one poll reads; the next poll reads those after them."""

_log = logging.getLogger(__name__)

ExchangeState = Literal["waiting", "thinking", "streaming", "done", "failed"]


class Watcher(Protocol):
    """A receiver of events. Its methods must neither block nor raise.

    `thread` is the thread that it watches, or None for all that it may read.
    """

    thread: str | None

    def wants(self, thread: str, scope: str | None) -> bool:
        """Whether it watches this thread, and may read it."""
        ...

    def send_event(self, event: JsonObject) -> None: ...


class Listener(Protocol):
    """A receiver that shows the list of threads. Its method must neither block nor raise."""

    def thread_changed(self, scope: str | None) -> None:
        """A thread of this scope has changed, or an exchange in it began or ended."""
        ...


class LiveExchange:
    """One running exchange, and how much of its answer was published."""

    def __init__(
        self, id: str, *, thread: str, branch: str, head: str, scope: str | None, model: str
    ) -> None:
        self.id = id
        self.thread = thread
        self.branch = branch
        self.head = head
        self.scope = scope
        self.model = model
        self.started = time()
        self.state: ExchangeState = "waiting"
        self.error: str | None = None
        self.recorded: str | None = None
        self.retry: JsonObject | None = None
        self.answer: Fold | None = None
        self.position = ReadPosition()
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "failed")

    def event(self) -> JsonObject:
        """The state, as an event."""
        event: JsonObject = {
            "type": "exchange",
            **self._address(),
            "head": self.head,
            "model": self.model,
            "started": self.started,
            "state": self.state,
        }
        if self.error is not None:
            event["error"] = self.error
        if self.recorded is not None:
            event["recorded"] = self.recorded
        if self.retry is not None and self.state == "waiting":
            event["retry"] = self.retry
        return event

    def summary(self) -> JsonObject:
        """The exchange for the list of threads."""
        return {**self._address(), "model": self.model, "waiting": False}

    def read(self) -> list[JsonObject]:
        """The events about everything that arrived since the last call."""
        if self.answer is None:
            return []
        growths = self.answer.read_growth(self.position)
        events = [self._block_event(growth) for growth in growths]
        state = _state_of(growths, self.state)
        if state == self.state:
            return events
        self.state = state
        return [self.event(), *events]

    def blocks(self) -> list[JsonObject]:
        """The whole answer so far, for a watcher that joins now."""
        if self.answer is None:
            return []
        return [self._block_event(growth) for growth in self.answer.read_growth(ReadPosition())]

    def _block_event(self, growth: Growth) -> JsonObject:
        event: JsonObject = {
            "type": "block",
            **self._address(),
            "index": growth.index,
            "kind": _kind_of(growth),
            "text": growth.text,
        }
        if growth.is_new:
            event["new"] = True
        if growth.is_closed:
            event["closed"] = True
        if isinstance(growth.block, ToolCall):
            event |= {"name": growth.block.name, "call": growth.block.id}
        return event

    def _address(self) -> JsonObject:
        return {"exchange": self.id, "thread": self.thread, "branch": self.branch}


class LiveFeed:
    """All running exchanges of a server, and their watchers."""

    def __init__(self) -> None:
        self._running: dict[str, LiveExchange] = {}
        self._watchers: set[Watcher] = set()
        self._watched = asyncio.Event()
        self.listeners: set[Listener] = set()

    async def wait_watched(self) -> None:
        """Wait until there is a watcher."""
        await self._watched.wait()

    @property
    def threads(self) -> set[str]:
        """The threads that somebody watches by name."""
        return {each.thread for each in self._watchers if each.thread is not None}

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers)

    def __iter__(self) -> Iterator[LiveExchange]:
        """The running exchanges, oldest first."""
        return iter(tuple(self._running.values()))

    def find(self, thread: str, branch: str) -> LiveExchange | None:
        """The exchange that runs on a branch, if there is one."""
        return next((each for each in self if (each.thread, each.branch) == (thread, branch)), None)

    def watch(self, watcher: Watcher) -> list[JsonObject]:
        """Send this watcher all later events; returns the events that show the current state."""
        exchanges = [each for each in self if watcher.wants(each.thread, each.scope)]
        for exchange in exchanges:  # so that nothing of the snapshot is sent again
            self._publish(exchange, exchange.read())
        self._watchers.add(watcher)
        self._watched.set()
        return [event for each in exchanges for event in (each.event(), *each.blocks())]

    def leave(self, watcher: Watcher) -> None:
        """Send this watcher nothing more."""
        self._watchers.discard(watcher)
        if not self._watchers:
            self._watched.clear()

    def begin(self, exchange: LiveExchange) -> None:
        """Report that an exchange waits for its upstream; its request is stored."""
        self._running[exchange.id] = exchange
        self._publish(exchange, [exchange.event()])
        self._notify(exchange.scope)

    def retry(self, exchange: LiveExchange, retry: JsonObject) -> None:
        """Report that a request failed and is sent again; `retry` says why."""
        exchange.retry, exchange.state = retry, "waiting"
        self._publish(exchange, [exchange.event()])

    def retry_run(self, thread: str, branch: str, scope: str | None, retry: JsonObject) -> None:
        """Report that a request of the page's agent failed and is sent again."""
        event: JsonObject = {"type": "retry", "thread": thread, "branch": branch, "retry": retry}
        for watcher in tuple(self._watchers):
            if watcher.wants(thread, scope):
                watcher.send_event(event)

    def begin_answer(self, exchange: LiveExchange, answer: Fold) -> None:
        """Report that an answer begins to arrive; a second one, if the request was sent again."""
        exchange.answer = answer
        exchange.position = ReadPosition()

    def grow_answer(self, exchange: LiveExchange) -> None:
        """Report that more of the answer has arrived; called for every chunk."""
        if self._watchers and exchange.timer is None and not exchange.is_over:
            loop = asyncio.get_running_loop()
            exchange.timer = loop.call_later(FLUSH_SECONDS, self._flush, exchange)

    def end(
        self, exchange: LiveExchange, error: ApiError | None = None, recorded: str | None = None
    ) -> None:
        """Report that the exchange is over, and that what arrived of its answer is recorded."""
        if exchange.is_over:
            return
        if exchange.timer is not None:
            exchange.timer.cancel()
        events = exchange.read() if self._watchers else []
        exchange.state = "done" if error is None else "failed"
        exchange.error = None if error is None else error.message
        exchange.recorded = recorded
        del self._running[exchange.id]
        self._publish(exchange, [*events, exchange.event()])
        self._notify(exchange.scope)

    def changed(self, thread: str, scope: str | None, branch: str | None = None) -> None:
        """Report that the commits or attempts of a thread have changed."""
        event: JsonObject = {"type": "changed", "thread": thread}
        if branch is not None:
            event["branch"] = branch
        for watcher in tuple(self._watchers):
            if watcher.wants(thread, scope):
                watcher.send_event(event)
        self._notify(scope)

    def _notify(self, scope: str | None) -> None:
        for listener in tuple(self.listeners):
            listener.thread_changed(scope)

    def _flush(self, exchange: LiveExchange) -> None:
        exchange.timer = None
        if any(watcher.wants(exchange.thread, exchange.scope) for watcher in self._watchers):
            self._publish(exchange, exchange.read())

    def _publish(self, exchange: LiveExchange, events: list[JsonObject]) -> None:
        if not events:
            return
        for watcher in tuple(self._watchers):
            if watcher.wants(exchange.thread, exchange.scope):
                for event in events:
                    watcher.send_event(event)


class StorePoller:
    """Reports what other parts of the process, and other processes, write to the store.

    It asks the store only while there are watchers. The cost does not depend on the number of
    threads: one query for new commits, and one for each thread that is watched by name.
    """

    def __init__(self, store: Store, feed: LiveFeed) -> None:
        self._store = store
        self._feed = feed
        self._last_number: int | None = None
        self._reported: deque[tuple[str, Id]] = deque(maxlen=2 * ARRIVALS)
        self._refs: dict[str, tuple[dict[str, Id], int]] = {}

    async def run(self) -> None:
        """Poll until the task is cancelled."""
        while True:
            if not self._feed.is_watched:
                self._last_number, self._refs = None, {}
                await self._feed.wait_watched()
            try:
                for record in await asyncio.to_thread(self._find_changed, self._feed.threads):
                    self._feed.changed(record.name, record.scope)
            except Exception as error:  # nobody awaits this task, so it must not end
                # Without it no page would get the changes of other processes any more. A store that
                # is busy or away may come back.
                _log.debug("the store could not be polled: %s", type(error).__name__)
            await asyncio.sleep(POLL_SECONDS)

    def _find_changed(self, watched: set[str]) -> list[ThreadRecord]:
        """The threads that have changed since the last call."""
        names = self._find_commits()
        refs = {name: self._read_refs(name) for name in watched}
        # A newly watched thread counts as changed: something may have been written between its
        # reader's last read and this one.
        names += [name for name in refs if refs[name] != self._refs.get(name)]
        self._refs = refs
        records = (self._store.read_thread(name) for name in dict.fromkeys(names))
        return [record for record in records if record is not None]

    def _find_commits(self) -> list[str]:
        """The threads that have new commits; an empty list at the first call."""
        if self._last_number is None:
            self._last_number = self._store.last_arrival()
            earlier = self._store.arrivals(max(0, self._last_number - OVERLAP), ARRIVALS)
            self._reported.extend((each.thread, each.commit) for each in earlier)
            return []
        names: list[str] = []
        for arrival in self._store.arrivals(max(0, self._last_number - OVERLAP), ARRIVALS):
            key = (arrival.thread, arrival.commit)
            if key not in self._reported:
                self._reported.append(key)
                names.append(arrival.thread)
            self._last_number = max(self._last_number, arrival.number)
        return names

    def _read_refs(self, thread: str) -> tuple[dict[str, Id], int]:
        """The branches of a thread, and how many attempts it has.

        Attempts are few: answers that failed.
        """
        if self._store.read_thread(thread) is None:
            return {}, 0
        return self._store.refs(thread), len(self._store.attempts(thread))


def _kind_of(growth: Growth) -> str:
    match growth.block:
        case Text() | Refusal():
            return "text"
        case Thinking():
            return "thinking"
        case ToolCall():
            return "call"
        case _:
            return "other"


def _state_of(growths: list[Growth], state: ExchangeState) -> ExchangeState:
    """The state after this growth: the block that grew last decides."""
    if not growths:
        return state
    return "thinking" if isinstance(growths[-1].block, Thinking) else "streaming"
