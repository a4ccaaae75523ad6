"""One structured line per exchange: ids, route, tokens, losses, milliseconds. Never content.

An `ExchangeLog` collects the facts while an exchange runs; `line` gives them as JSON at its end.
It has no field that could hold credentials or content.
"""

import time
from typing import TextIO

import orjson

from weft.model import JsonObject, Usage
from weft.printable import escape_json


class ExchangeLog:
    """The facts of one exchange, filled in as they become known."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.model: str | None = None
        self.upstream: str | None = None
        self.thread: str | None = None
        self.branch: str | None = None
        self.status = 0
        self.streamed = False
        self.losses = 0
        self.usage: Usage | None = None
        self.outcome = "ok"
        self.error: str | None = None
        self.partial: bool | None = None
        self.compacted: str | None = None
        self._started_at = time.perf_counter()
        self._first_byte_at: float | None = None

    def first_byte(self) -> None:
        """Note the time of the first byte; later calls change nothing."""
        if self._first_byte_at is None:
            self._first_byte_at = time.perf_counter()

    def line(self) -> JsonObject:
        """The facts that are known, as JSON."""
        now = time.perf_counter()
        facts: JsonObject = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "path": self.path,
            "status": self.status,
            "outcome": self.outcome,
            "model": self.model,
            "upstream": self.upstream,
            "thread": self.thread,
            "branch": self.branch,
            "stream": self.streamed,
            "losses": self.losses,
            "error": self.error,
            "partial": self.partial,
            "compacted": self.compacted,
            "ms": round((now - self._started_at) * 1000, 1),
            "first_ms": None
            if self._first_byte_at is None
            else round((self._first_byte_at - self._started_at) * 1000, 1),
        }
        if self.usage is not None:
            facts |= {"input": self.usage.input, "output": self.usage.output}
            facts |= {"cached": self.usage.cached}
        return {name: value for name, value in facts.items() if value is not None}


def write_line(log: ExchangeLog, out: TextIO) -> None:
    """Write the line of an exchange; if the log cannot be written, the line is lost."""
    try:
        out.write(escape_json(orjson.dumps(log.line()).decode()) + "\n")
        out.flush()
    except OSError:
        return
