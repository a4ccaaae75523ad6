"""`GET /api/events`: running exchanges and changes of threads, as server-sent events.

    GET /api/events?thread=NAME        one thread
    GET /api/events                    every thread that the caller may read

The events are those of `live`, with their `type` as the event name. The stream begins with the
exchanges that are running and their answers so far, and then a `ready` event. So a client that
reconnects needs no `Last-Event-ID`: the events before `ready` replace its state, and it reads the
thread again.

A client that reads too slowly loses events: it receives `reload`, then the current state as at the
beginning. A comment is sent every `PING_SECONDS` to keep the connection open.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import count

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from weft import exact_json
from weft.errors import Refused
from weft.model import JsonObject

from .api_call import ApiCall
from .auth import Caller, admit, may_see
from .live import LiveFeed
from .state import State

PATH = "/api/events"
PING_SECONDS = 15.0
RETRY = b"retry: 1000\n\n"
"""Tells the client to reconnect after one second."""
PING = b": ping\n\n"
QUEUE_EVENTS = 1000
QUEUE_CHARACTERS = 4 * 1024 * 1024
"""How many events, and characters of their texts, may wait for a slow client."""


class EventQueue:
    """The queued events of one client. If it is too slow, the current state replaces them.

    `may_read` says whether the client may read the threads of a scope.
    """

    def __init__(
        self, feed: LiveFeed, thread: str | None, may_read: Callable[[str | None], bool]
    ) -> None:
        self.thread = thread
        self._feed = feed
        self._may_read = may_read
        self._events: list[JsonObject] = []
        self._queued_characters = 0
        self._has_lost_events = False
        self._arrived = asyncio.Event()

    def wants(self, thread: str, scope: str | None) -> bool:
        return self.thread in (None, thread) and self._may_read(scope)

    def send_event(self, event: JsonObject) -> None:
        self._queued_characters += len(event.get("text", ""))
        if self._has_lost_events or self._is_full():
            self._events, self._has_lost_events = [], True
        else:
            self._events.append(event)
        self._arrived.set()

    def _is_full(self) -> bool:
        return len(self._events) >= QUEUE_EVENTS or self._queued_characters > QUEUE_CHARACTERS

    def open(self) -> list[JsonObject]:
        """Begin to watch; returns the events of the current state."""
        return [*self._feed.watch(self), {"type": "ready"}]

    def close(self) -> None:
        self._feed.leave(self)

    async def next(self, seconds: float) -> list[JsonObject]:
        """The next events; empty if none came in that time."""
        try:
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        except TimeoutError:
            return []
        self._arrived.clear()
        events, self._events, self._queued_characters = self._events, [], 0
        if not self._has_lost_events:
            return events
        self._has_lost_events = False
        self.close()
        return [{"type": "reload"}, *self.open()]


def events_route(state: State, headers: dict[str, str]) -> Route:
    """The route of the event stream; `headers` are sent with every answer."""

    async def serve(request: Request) -> Response:
        try:
            caller = admit(request.headers, state.settings)
            thread = await asyncio.to_thread(_find_thread, state, request, caller)
        except Refused as error:
            body = {"error": {"message": error.message, "place": error.param}}
            return Response(exact_json.dumps(body), error.status, headers, "application/json")
        may_read = partial(may_see, caller, settings=state.settings)
        queue = EventQueue(state.live_feed, thread, may_read)
        stream = _stream(queue, state.settings.ping_seconds)
        return StreamingResponse(stream, 200, headers, "text/event-stream")

    return Route(PATH, serve, methods=["GET"])


def _find_thread(state: State, request: Request, caller: Caller) -> str | None:
    """The full name of the thread to watch; None for all of them."""
    call = ApiCall(state, dict(request.query_params), caller)
    name = call.text_or_none("thread")
    if name is None:
        return None
    record = call.thread_record()
    if record is None:
        raise Refused(f"no thread {name!r}", param="thread", status=404)
    return record.name


async def _stream(queue: EventQueue, ping_seconds: float) -> AsyncIterator[bytes]:
    numbers = count(1)
    try:
        events = queue.open()
        yield RETRY
        while True:
            yield b"".join(_encode(event, next(numbers)) for event in events) or PING
            events = await queue.next(min(PING_SECONDS, ping_seconds))
    finally:
        queue.close()


def _encode(event: JsonObject, number: int) -> bytes:
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (
        number,
        event["type"].encode(),
        exact_json.dumps(event),
    )
