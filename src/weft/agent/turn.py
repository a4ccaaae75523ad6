"""One run at a time: runs of the same branch take turns, also those of several programs.

In one process, runs take turns in the order of arrival. Between processes the store has a lock,
which ends with its process, so that a run that was killed blocks nobody.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Hashable
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from threading import Lock

from weft.errors import ThreadError
from weft.store import Store

PAUSE_SECONDS = 0.01
"""How often a waiting run looks again. Runs of one branch may be in event loops of several OS
threads, so no primitive of asyncio can wake them; a model takes a hundred times longer."""

STORE_PAUSE_SECONDS = 0.1
"""How often a run looks whether another process has ended its run; on PostgreSQL, each look is a
connection."""

_lock = Lock()
_queues: dict[Hashable, deque[object]] = {}
_running: ContextVar[frozenset[Hashable]] = ContextVar("running_turns", default=frozenset())


@asynccontextmanager
async def turn(store: Store, key: Hashable, name: str) -> AsyncGenerator[None]:
    """Wait until no earlier run with this key is active, and no run of another process.

    `name` is what the run locks in the store.
    """
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
        while (release := await _try_lock(store, name)) is None:
            await asyncio.sleep(STORE_PAUSE_SECONDS)
        try:
            yield
        finally:
            release()
    finally:
        with _lock:
            queue.remove(ticket)
            if not queue:
                del _queues[key]


async def _try_lock(store: Store, name: str) -> Callable[[], None] | None:
    """`Store.try_lock` in a worker thread; a lock that comes after a cancellation is released."""
    attempt = asyncio.ensure_future(asyncio.to_thread(store.try_lock, name))
    try:
        return await asyncio.shield(attempt)
    except asyncio.CancelledError:
        attempt.add_done_callback(_release_late)
        raise


def _release_late(attempt: "asyncio.Future[Callable[[], None] | None]") -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        release = attempt.result()
        if release is not None:
            release()


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
