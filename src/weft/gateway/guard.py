"""Cancels upstream calls when the client disconnects or the gateway stops.

The HTTP client enforces the deadlines of a call (`weft.client.CallLimits`). A `Guard` watches the
connection of one client and interrupts the wait for the upstream: before the headers, within a
body, or between two chunks of a stream. It never interrupts the recording of an answer.

A `Gate` counts the requests that run, refuses those beyond the limit, and ends all of them when
the gateway stops.
"""

import asyncio
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from weft.client import Reply, read_all
from weft.errors import Refused, UpstreamFailed

from .asgi import ClientLeft, Inbound

FLUSH_SECONDS = 2.0
"""How long interrupted answers may take to send their last frame."""

WATCH_SECONDS = 0.05
"""The client is watched only after this time, so that fast calls do not pay for the task."""


class GatewayStopping(UpstreamFailed):
    """The gateway stops, so the answer will not be finished."""

    def __init__(self) -> None:
        super().__init__("the gateway is shutting down", status=503, kind="overloaded")


class Guard:
    """A context for everything that is done for a request after its body has been read."""

    def __init__(self, inbound: Inbound, gate: "Gate") -> None:
        self._inbound = inbound
        self._gate = gate
        self._timer: asyncio.TimerHandle | None = None
        self._watch: asyncio.Future[None] | None = None
        self._reason: Exception | None = None
        self._waiting: asyncio.Task[object] | None = None
        self._interrupted = False

    async def __aenter__(self) -> Self:
        self._timer = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._begin_watch)
        self._gate.guards.add(self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._gate.guards.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()

    def interrupt(self, reason: Exception) -> None:
        """Raise this error where the request waits for its upstream, now or later."""
        if self._reason is not None:
            return
        self._reason = reason
        if self._waiting is not None:
            self._interrupted = True
            self._waiting.cancel()

    @contextmanager
    def waiting(self) -> Generator[None]:
        """A context in which an interrupt is raised at once."""
        if self._reason is not None:
            raise self._reason
        task = asyncio.current_task()
        assert task is not None
        cancels_before = task.cancelling()
        self._waiting = task
        try:
            yield
        except asyncio.CancelledError:
            # As in `asyncio.timeout`: only if nobody else has cancelled the task too.
            if self._interrupted and task.uncancel() <= cancels_before and self._reason is not None:
                raise self._reason from None
            raise
        finally:
            self._waiting = None

    async def read(self, reply: Reply, seconds: float) -> bytes | None:
        """The next chunk of a body, empty at its end; None if none arrives within the seconds."""
        with self.waiting():
            return await reply.read(seconds)

    async def read_all(self, reply: Reply) -> bytes:
        """The whole body."""
        with self.waiting():
            return await read_all(reply)

    def _begin_watch(self) -> None:
        self._watch = asyncio.ensure_future(self._inbound.wait_disconnected())
        self._watch.add_done_callback(self._client_left)

    def _client_left(self, watch: "asyncio.Future[None]") -> None:
        if not watch.cancelled():
            watch.exception()  # a connection that cannot be watched is gone too
            self.interrupt(ClientLeft())


class NoSlot(Refused):
    """There is no slot for a request now. The client may send it again later."""


class Slots:
    """Limits the requests that run at the same time: all of them, and those of one key."""

    def __init__(self, limit: int, per_key: int, *, names: tuple[str, str]) -> None:
        self._limit = limit
        self._per_key = per_key
        self._names = names
        self._running = 0
        self.by_key: Counter[str] = Counter()

    def take(self, key: str | None) -> None:
        """Count a request of this key; raises `NoSlot` with 429 or 503 beyond a limit."""
        if key is not None and self.by_key[key] >= self._per_key:
            raise NoSlot(
                f"this key already has {self._per_key} requests running, its limit "
                f"({self._names[1]})",
                status=429,
                type="rate_limit_error",
            )
        if self._running >= self._limit:
            raise NoSlot(
                f"the gateway already serves {self._limit} requests, its limit ({self._names[0]})",
                status=503,
                type="overloaded_error",
            )
        self._running += 1
        if key is not None:
            self.by_key[key] += 1

    def free(self, key: str | None) -> None:
        """Stop counting a request."""
        self._running -= 1
        if key is not None:
            self.by_key[key] -= 1
            if not self.by_key[key]:
                del self.by_key[key]


PAGE_REQUESTS = 256
"""Slots for the page and its API, which stay usable while all slots of `limits.requests` are taken.
A page sends a handful of requests at once."""


class Gate:
    """Counts and limits the requests that are being served. Long-lived connections do not count.

    Requests to models and those of the page have separate slots.
    """

    def __init__(self, limit: int, per_key: int | None = None) -> None:
        self.guards: set[Guard] = set()
        self.stopping = False
        per_key = limit if per_key is None else per_key
        self.slots = Slots(limit, per_key, names=("limits.requests", "limits.requests_per_key"))
        page = "of the page and its API"
        self._page_slots = Slots(PAGE_REQUESTS, PAGE_REQUESTS // 2, names=(page, page))
        self._running = 0
        self._long_lived: set[asyncio.Task[object]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def serving(self, key: str | None, *, is_page: bool) -> Generator[None]:
        """A context for serving one request; raises `NoSlot` if there is none for it."""
        if self.stopping:
            raise NoSlot("the gateway is shutting down", status=503, type="overloaded_error")
        slots = self._page_slots if is_page else self.slots
        slots.take(key)
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            slots.free(key)
            self._running -= 1
            if not self._running:
                self._idle.set()

    @contextmanager
    def long_lived(self) -> Generator[None]:
        """A context for serving a WebSocket or server-sent events.

        The connection may stay open for days, so a shutdown does not wait for it. Its task is
        cancelled when the last request has ended.
        """
        task = asyncio.current_task()
        assert task is not None
        if self.stopping:
            raise asyncio.CancelledError
        self._long_lived.add(task)
        try:
            yield
        finally:
            self._long_lived.discard(task)

    async def drain(self, grace: float) -> None:
        """Refuse new requests; interrupt running ones after `grace` seconds."""
        self.stopping = True
        if not await self._becomes_idle(grace):
            for guard in tuple(self.guards):
                guard.interrupt(GatewayStopping())
        for task in self._long_lived:
            task.cancel()
        await self._becomes_idle(FLUSH_SECONDS)
        if self._long_lived:
            await asyncio.wait(self._long_lived, timeout=FLUSH_SECONDS)

    async def _becomes_idle(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True
