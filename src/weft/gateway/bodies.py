"""Handles large bodies: parses only what is new, and works outside the event loop.

A client sends its whole conversation with every request. The items whose bytes equal those of the
session's previous request are reused, and only the others are parsed and decoded. Reused values
were parsed from equal bytes, so it does not matter whose request they came from. This is done only
while exchanges are recorded: otherwise nothing of a conversation is kept.

Reading, translating and writing a body of 100,000 messages takes seconds of pure computing. On the
event loop that would stop every other request, so it is done in a worker thread. There is
one for all large bodies: they wait for each other, and the loop competes for the GIL with one
thread only.
Small bodies stay on the loop, because handing them over would cost more.
"""

import asyncio
import gc
import sys
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar, cast

from weft.codec import JsonLayout, find_layout
from weft.errors import Refused
from weft.model import JsonObject, Message, Request
from weft.thread import common_prefix_length

from .asgi import parse_body
from .hints import SESSION_HEADERS

CACHE_BYTES = 48 * 1024 * 1024
ITEM_BYTES = 800
"""Estimated memory of a parsed item besides its text, in bytes."""

ENTRY_BYTES = 500
"""Estimated memory of a session in the cache besides its body and its name, in bytes."""

MIN_BODY = 16 * 1024
"""A body with fewer bytes is parsed whole: finding the equal part would take as long."""

MAX_MISSES = 3
"""After this many bodies in a row with nothing in common, the bodies of a session are not kept.
Such a client changes a text before its messages in every request."""

KEY_BYTES = 48
"""How many bytes of the body are part of its key. A session's requests to different models, such as
those for a title, differ in their first bytes, so they do not replace each other."""

BodyKey = tuple[object, ...]


class ParsedBody:
    """A parsed body, and where its values are; `layout` is None if that is not known.

    `messages` are the decoded messages of its first items, as many as can be reused. `misses` is
    how many bodies of the session in a row had nothing in common with the one before.
    """

    def __init__(
        self,
        body: bytes,
        raw: JsonObject,
        layout: JsonLayout | None,
        messages: Sequence[Message] = (),
        misses: int = 0,
    ) -> None:
        self.body = body
        self.raw = raw
        self.layout = layout
        self.messages = messages
        self.misses = misses

    @property
    def size(self) -> int:
        """About how many bytes of memory it needs."""
        item_count = 0 if self.layout is None else len(self.layout.starts)
        # The text is in memory twice: in the body and in the parsed values.
        return 2 * len(self.body) + ITEM_BYTES * item_count

    def keep_messages(self, request: Request) -> None:
        """Keep the decoded messages of the items, up to the first with a cache mark.

        Decoding a message with a cache mark also adds to `request.marks`, so it must be decoded
        again. Only for protocols with `decode_with_known`: there every item is one message, and
        messages before those of the items come from the request's system text.
        """
        if self.layout is None:
            return
        first = len(request.messages) - len(self.layout.starts)
        marked = [
            position[0]
            for position in request.marks
            if position and type(position[0]) is int and position[0] >= first
        ]
        self.messages = request.messages[first : min(marked, default=len(request.messages))]


class ParsedBodies:
    """The newest body of each session; used on the event loop only."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._bodies: dict[BodyKey, ParsedBody] = {}
        self._limit = limit
        self._size = 0

    def get(self, key: BodyKey | None) -> ParsedBody | None:
        return None if key is None else self._bodies.get(key)

    def put(self, key: BodyKey | None, parsed: ParsedBody) -> None:
        if key is None:
            return
        self._remove(key)
        if parsed.layout is None:  # its values cannot be reused
            if not parsed.misses:
                return
            parsed = ParsedBody(b"", {}, None, misses=parsed.misses)
        self._bodies[key] = parsed
        self._size += _entry_size(key, parsed)
        while self._size > self._limit and len(self._bodies) > 1:
            self._remove(next(iter(self._bodies)))

    def _remove(self, key: BodyKey) -> None:
        removed = self._bodies.pop(key, None)
        self._size -= 0 if removed is None else _entry_size(key, removed)


def _entry_size(key: BodyKey, parsed: ParsedBody) -> int:
    """About how many bytes of memory a session needs in the cache."""
    key_size = sum(len(part) for part in key if isinstance(part, str | bytes))
    return ENTRY_BYTES + key_size + parsed.size


def body_key(scope: str, protocol: str, headers: Mapping[str, str], body: bytes) -> BodyKey | None:
    """The key of a session's bodies; None if the headers name no session."""
    session = [headers.get(name) for name in SESSION_HEADERS]
    return (scope, protocol, *session, body[:KEY_BYTES]) if any(session) else None


def parse_reusing(body: bytes, list_name: str, earlier: ParsedBody | None) -> ParsedBody:
    """Parse a body; items of its list `list_name` are reused if the earlier body has them too.

    Raises `Refused` with the position of an error.
    """
    if len(body) < MIN_BODY:
        return ParsedBody(body, parse_body(body), None)
    misses = 0
    if earlier is not None and earlier.layout is not None:
        parsed = _parse_new_items(body, earlier, earlier.layout)
        if parsed is not None:
            return parsed
        misses = earlier.misses + 1
    elif earlier is not None:
        misses = earlier.misses
    raw = parse_body(body)
    if misses >= MAX_MISSES:
        return ParsedBody(b"", raw, None, misses=misses)
    return ParsedBody(body, raw, find_layout(body, list_name), misses=misses)


def _parse_new_items(body: bytes, earlier: ParsedBody, layout: JsonLayout) -> ParsedBody | None:
    """The parsed body; None if it has to be parsed as a whole.

    `layout` is the layout of the earlier body. The items that both bodies have are cut out, and
    what remains is parsed. It is valid JSON: the bytes before the cut are equal in both bodies, and
    the cut ends between two items.
    """
    list_name = layout.list_name
    # The last item that starts in the common prefix may differ after it, so it is parsed again.
    count = bisect_right(layout.starts, common_prefix_length(body, earlier.body)) - 1
    if count < 1:
        return None
    shortened = body[: layout.starts[0]] + body[layout.starts[count] :]
    try:
        raw = parse_body(shortened)
    except Refused:  # parsing the whole body reports the right position
        return None
    new_layout = find_layout(shortened, list_name)
    if new_layout is None or new_layout.starts[:1] != layout.starts[:1]:
        # There is no next item, and the cut has hidden the comma before it, which is an error; or
        # the next item has other whitespace before it.
        return None
    items = cast("list[Any]", earlier.raw[list_name])
    raw[list_name] = items[:count] + cast("list[Any]", raw[list_name])
    messages = earlier.messages[:count]
    return ParsedBody(body, raw, new_layout.with_first_items(layout, count), messages)


LARGE_BODY = 256 * 1024
"""Bytes. Translating this much takes about 10 ms, handing it over about 0.1 ms."""

SWITCH_SECONDS = 0.001
"""How long an OS thread may keep the GIL while another one waits for it. The event loop needs the
GIL again after each wait, several times per request; with Python's default of 5 ms that adds
up."""

GC_THRESHOLDS = (20_000, 20, 50)
"""A large body makes hundreds of thousands of objects, and none of them is garbage. With Python's
own thresholds the collector walks over all of them again and again, and stops every OS thread."""

P = ParamSpec("P")
R = TypeVar("R")


class LargeBodyWorker:
    """One worker thread; it starts with the first large body."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "weft-large-bodies")

    async def run(self, size: int, work: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
        """The result of the work. For a large body, it is done in the worker thread."""
        if size < LARGE_BODY:
            return work(*args, **options)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: work(*args, **options))

    def close(self) -> None:
        """Start no more work."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def tune_interpreter() -> None:
    """Settings of the whole process that keep the loop responsive beside the worker thread."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.freeze()  # objects loaded by now are never garbage
    gc.set_threshold(*GC_THRESHOLDS)
