"""Runs work on large bodies in a thread, away from the event loop.

Reading, translating and writing a body of 100,000 messages takes seconds of pure computing. On the
event loop that would stop every other request, so it is done in a thread. There is one thread for
all of it: large bodies wait for each other, and the loop competes for the interpreter with one
thread only. Small bodies stay on the loop, because handing them over would cost more.
"""

import asyncio
import gc
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

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
        self._thread = ThreadPoolExecutor(1, "weft-large-bodies")

    async def run(self, size: int, work: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
        """The result of the work: here for a small body, in the thread for a large one."""
        if size < LARGE_BODY:
            return work(*args, **options)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: work(*args, **options))

    def close(self) -> None:
        """Start no more work."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def tune_interpreter() -> None:
    """Settings of the whole process that keep the loop responsive beside the thread."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.freeze()  # objects loaded by now are never garbage
    gc.set_threshold(*GC_THRESHOLDS)
