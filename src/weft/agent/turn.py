"""One run at a time: runs of the same branch in one process take turns, in the order of arrival."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Generator, Hashable
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from threading import Lock

from weft.errors import ThreadError

PAUSE_SECONDS = 0.01
"""How often a waiting run looks again. Runs of one branch may be in event loops of several OS
threads, so no primitive of asyncio can wake them; a model takes a hundred times longer."""

_lock = Lock()
_queues: dict[Hashable, deque[object]] = {}
_running: ContextVar[frozenset[Hashable]] = ContextVar("running_turns", default=frozenset())


@asynccontextmanager
async def turn(key: Hashable) -> AsyncGenerator[None]:
    """Wait until no earlier run with this key is active."""
    if key in _running.get():
        raise ThreadError(
            "a tool cannot send to the thread of its own run: use another thread or a fork"
        )
    ticket = object()
    with _lock:
        queue = _queues.setdefault(key, deque())
        queue.append(ticket)
    try:
        while queue[0] is not ticket:
            await asyncio.sleep(PAUSE_SECONDS)
        yield
    finally:
        with _lock:
            queue.remove(ticket)
            if not queue:
                del _queues[key]


@contextmanager
def inside_turn(key: Hashable) -> Generator[None]:
    """Around the tools of a run, so that a tool which starts a run of the same branch is refused.

    It would wait for itself.
    """
    token = _running.set(_running.get() | {key})
    try:
        yield
    finally:
        _running.reset(token)
