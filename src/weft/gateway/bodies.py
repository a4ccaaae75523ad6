"""The cost of large bodies: parse only what is new, and compute away from the event loop.

A client sends its whole conversation with every request. The bytes that equal those of the
session's previous request were parsed and decoded then, so only the rest is. Reused values were
parsed from equal bytes, so it does not matter whose request they came from. This is done only while
exchanges are recorded: otherwise nothing of a conversation is kept.

Reading, translating and writing a body of 100,000 messages takes seconds of pure computing. On the
event loop that would stop every other request, so it is done in a thread. There is one thread for
all of it: large bodies wait for each other, and the loop competes for the interpreter with one
thread only. Small bodies stay on the loop, because handing them over would cost more.
"""

import asyncio
import gc
import sys
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar, cast

from weft.codec import Layout, find_layout
from weft.errors import Refused
from weft.model import JsonObject, Message, Request
from weft.thread import common_prefix_length

from .asgi import parse_body
from .hints import SESSION_HEADERS

CACHE_BYTES = 48 * 1024 * 1024
ITEM_BYTES = 800
"""Estimated memory of a parsed item besides its text, in bytes."""

MIN_BODY = 16 * 1024
"""A body with fewer bytes is parsed whole: finding the equal part would take as long."""

MAX_MISSES = 3
"""After this many bodies in a row with nothing in common, the bodies of a session are not kept.
Such a client changes a text before its messages in every request."""

KEY_BYTES = 48
"""A session's requests to different models, such as those for a title, differ in their first
bytes."""

BodyKey = tuple[object, ...]


class ParsedBody:
    """A parsed body, and where its values are; `layout` is None if that is not known.

    `known` are the messages of its first items, if they were decoded before. `misses` is how many
    bodies of the session in a row had nothing in common with the one before.
    """

    def __init__(
        self,
        body: bytes,
        raw: JsonObject,
        layout: Layout | None,
        known: Sequence[Message] = (),
        misses: int = 0,
    ) -> None:
        self.body = body
        self.raw = raw
        self.layout = layout
        self.known = known
        self.misses = misses

    @property
    def size(self) -> int:
        """About how many bytes of memory it needs."""
        return 2 * len(self.body) + (
            0 if self.layout is None else ITEM_BYTES * len(self.layout.starts)
        )

    def keep_messages(self, request: Request) -> None:
        """Keep the decoded messages that depend only on their own item.

        A message with cache marks does not, because the marks are members of the request. Every
        item of a protocol with cache marks is one message.
        """
        if self.layout is None:
            return
        first = len(request.messages) - len(self.layout.starts)
        marked = [
            position[0]
            for position in request.marks
            if position and type(position[0]) is int and position[0] >= first
        ]
        self.known = request.messages[first : min(marked, default=len(request.messages))]


class ParsedBodies:
    """The newest bodies of sessions; used on the event loop only."""

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
        self._bodies[key] = parsed
        self._size += parsed.size
        while self._size > self._limit and len(self._bodies) > 1:
            self._remove(next(iter(self._bodies)))

    def _remove(self, key: BodyKey) -> None:
        removed = self._bodies.pop(key, None)
        self._size -= 0 if removed is None else removed.size


def body_key(scope: str, protocol: str, headers: Mapping[str, str], body: bytes) -> BodyKey | None:
    """The key of a session's bodies; None if the headers name no session."""
    session = [headers.get(name) for name in SESSION_HEADERS]
    return (scope, protocol, *session, body[:KEY_BYTES]) if any(session) else None


def parse_reusing(body: bytes, name: str, earlier: ParsedBody | None) -> ParsedBody:
    """Parse a body; items of its member `name` are reused if the earlier body has them too.

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
    return ParsedBody(body, raw, find_layout(body, name), misses=misses)


def _parse_new_items(body: bytes, earlier: ParsedBody, layout: Layout) -> ParsedBody | None:
    """The parsed body; None if it has to be parsed as a whole.

    `layout` is the layout of the earlier body. The items that both bodies have are cut out, and
    what remains is parsed. It is valid JSON: the bytes before the cut are equal in both bodies, and
    the cut ends between two items.
    """
    name = layout.name
    count = bisect_right(layout.starts, common_prefix_length(body, earlier.body)) - 1
    if count < 1:
        return None
    shortened = body[: layout.starts[0]] + body[layout.starts[count] :]
    try:
        raw = parse_body(shortened)
    except Refused:  # parsing the whole body reports the right position
        return None
    new_layout = find_layout(shortened, name)
    if new_layout is None or new_layout.starts[:1] != layout.starts[:1]:
        return None
    items = cast("list[Any]", earlier.raw[name])
    raw[name] = items[:count] + cast("list[Any]", raw[name])
    return ParsedBody(body, raw, new_layout.with_first_items(layout, count), earlier.known[:count])


LARGE_BODY = 256 * 1024
"""Bytes. Translating this much takes about 10 ms, handing it over about 0.1 ms."""

SWITCH_SECONDS = 0.001
"""How long a thread may compute before another one gets the interpreter. The event loop needs it
again after each wait, several times per request; with Python's default of 5 ms that adds up."""

GC_THRESHOLDS = (20_000, 20, 50)
"""A large body makes hundreds of thousands of objects, and none of them is garbage. With Python's
own thresholds the collector walks over all of them again and again, and stops every thread."""

P = ParamSpec("P")
R = TypeVar("R")


class LargeBodyWorker:
    """One worker thread; it starts with the first large body."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "weft-large-bodies")

    async def run(self, size: int, work: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
        """The result of the work, done here for a small body and in the thread for a large one."""
        if size < LARGE_BODY:
            return work(*args, **options)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: work(*args, **options))

    def close(self) -> None:
        """Start no more work."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def tune_interpreter() -> None:
    """Settings of the whole process that keep the loop responsive beside the thread."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.freeze()  # objects loaded by now are never garbage
    gc.set_threshold(*GC_THRESHOLDS)
