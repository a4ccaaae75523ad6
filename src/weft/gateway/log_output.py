"""The log of a running server: a standard error stream that never blocks.

The reader of standard error may be slow or stuck: a full pipe, a stopped pager, a busy log driver.
A write would then block the event loop, and with it every request and the shutdown. While the
server runs, `LogOutput` replaces `sys.stderr`: it only puts lines into a queue, and a thread writes
them. If the queue is full, new lines are dropped and counted; a line of the log says how many as
soon as it can be written again.
"""

import io
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

from weft import exact_json
from weft.printable import clean_text

QUEUE_BYTES = 4 * 1024 * 1024
"""How many bytes of lines may wait: about 10,000 exchanges."""
CLOSE_SECONDS = 1.0
"""How long a shutdown waits for the last lines."""


class LogOutput(io.TextIOBase):
    """Standard error with a queue. `dropped` counts the lines that were never written."""

    def __init__(self, fd: int, *, limit: int = QUEUE_BYTES) -> None:
        super().__init__()
        self.dropped = 0
        self._fd = fd
        self._is_terminal = os.isatty(fd)
        self._limit = limit
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._unreported = 0
        self._changed = threading.Condition()
        self._is_idle = True
        self._begun = threading.local()
        self._thread = threading.Thread(target=self._run, name="weft-log", daemon=True)
        self._thread.start()

    def write(self, text: str, /) -> int:
        """Queue the complete lines of a text. The rest waits for more text of the same thread."""
        lines, newline, rest = (getattr(self._begun, "text", "") + text).rpartition("\n")
        self._begun.text = rest
        if newline:
            self._queue(lines + newline)
        return len(text)

    def flush(self) -> None:
        """Does nothing: lines are written as soon as possible."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return self._is_terminal

    def drain(self, seconds: float) -> bool:
        """Wait until every line is written; false if that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_idle and not self._lines, seconds)

    def _queue(self, text: str) -> None:
        data = (clean_text(text) if self._is_terminal else text).encode(errors="backslashreplace")
        with self._changed:
            if self._size + len(data) > self._limit:
                lines = text.count("\n")
                self.dropped += lines
                self._unreported += lines
                return
            self._report_dropped()
            self._append(data)

    def _append(self, data: bytes) -> None:
        self._lines.append(data)
        self._size += len(data)
        self._changed.notify_all()

    def _report_dropped(self) -> None:
        if self._unreported:
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            why = "the log was not read fast enough"
            line = {"at": at, "outcome": "log_dropped", "lines": self._unreported, "error": why}
            self._unreported = 0
            self._append(exact_json.dumps(line) + b"\n")

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_idle = True
                if not self._lines:
                    self._report_dropped()
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._lines)
                self._is_idle = False
                data = self._lines.popleft()
            self._write_all(data)
            with self._changed:
                self._size -= len(data)

    def _write_all(self, data: bytes) -> None:
        """Write to the file itself: a lock of `sys.stderr` would block the end of the process."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:  # another process has made the pipe non-blocking
                select.select([], [self._fd], [])
            except OSError:  # nobody will ever read it
                return


@contextmanager
def queued_log() -> Generator[LogOutput | None]:
    """Replace `sys.stderr` while a server runs; None if it is not a file, as in tests."""
    original = sys.stderr
    try:
        original.flush()
        fd = original.fileno()
    except (OSError, ValueError, AttributeError):
        yield None
        return
    log = LogOutput(fd)
    sys.stderr = log
    try:
        yield log
    finally:
        # If the reader is still stuck, nothing may be written: the process has to end.
        if log.drain(CLOSE_SECONDS):
            sys.stderr = original
