"""Logs and counts exchanges: one structured line each, and the totals. Never content.

An `ExchangeLog` collects the facts while an exchange runs; `line` gives them as JSON at its end.
It has no field that could hold credentials or content. `Metrics` adds the facts up for
`GET /metrics`, in the text format of Prometheus. Its labels are names from the configuration and
fixed words: a name that a client chose, such as the model, could fill the memory.
"""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TextIO

from weft import exact_json
from weft.model import JsonObject, Usage
from weft.printable import escape_json

from .log_output import LogOutput


class ExchangeLog:
    """The facts of one exchange, filled in as they become known."""

    def __init__(self, path: str, request_id: str = "") -> None:
        self.path = path
        self.request_id = request_id
        self.upstream_request_id: str | None = None
        self.key: str | None = None
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
        self._first_token_at: float | None = None

    def mark_first_byte(self) -> None:
        """Note the time of the first byte; later calls change nothing."""
        if self._first_byte_at is None:
            self._first_byte_at = time.perf_counter()

    def mark_first_token(self) -> None:
        """Note the time of the first content of a stream; later calls change nothing."""
        if self._first_token_at is None:
            self._first_token_at = time.perf_counter()

    @property
    def seconds(self) -> float:
        """How long the exchange has taken so far."""
        return time.perf_counter() - self._started_at

    @property
    def first_byte_seconds(self) -> float | None:
        """The time until the first byte of the answer; None if there is none."""
        return None if self._first_byte_at is None else self._first_byte_at - self._started_at

    @property
    def first_token_seconds(self) -> float | None:
        """The time until the first content of the answer; None if it was not streamed."""
        return None if self._first_token_at is None else self._first_token_at - self._started_at

    def line(self) -> JsonObject:
        """The facts that are known, as JSON."""
        first_byte = self.first_byte_seconds
        facts: JsonObject = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "request": self.request_id or None,
            "key": self.key,
            "path": self.path,
            "status": self.status,
            "outcome": self.outcome,
            "model": self.model,
            "upstream": self.upstream,
            "upstream_request": self.upstream_request_id,
            "thread": self.thread,
            "branch": self.branch,
            "stream": self.streamed,
            "losses": self.losses,
            "error": self.error,
            "partial": self.partial,
            "compacted": self.compacted,
            "ms": round(self.seconds * 1000, 1),
            "first_ms": None if first_byte is None else round(first_byte * 1000, 1),
        }
        if self.usage is not None:
            facts |= {"input": self.usage.input, "output": self.usage.output}
            facts |= {"cached": self.usage.cached}
        return {name: value for name, value in facts.items() if value is not None}


def write_line(log: ExchangeLog, out: TextIO) -> None:
    """Write the line of an exchange; if the log cannot be written, the line is lost."""
    try:
        out.write(escape_json(exact_json.dumps(log.line()).decode()) + "\n")
        out.flush()
    except OSError:
        return


BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""The upper limits of the histograms, in seconds: model answers take from 50 ms to minutes."""


class Histogram:
    """Counts values by upper limit, as Prometheus histograms do."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(BUCKETS, value)] += 1
        self.sum += value

    def lines(self, name: str) -> Iterator[str]:
        total = 0
        for limit, count in zip((*BUCKETS, "+Inf"), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{limit}"}} {total}'
        yield f"{name}_sum {self.sum:.6f}"
        yield f"{name}_count {total}"


class Metrics:
    """Counters since the start of the server."""

    def __init__(self) -> None:
        self.exchanges = 0
        """Model requests received, including those in progress."""
        self.log: LogOutput | None = None
        self.running_by_key: Mapping[str, int] = {}
        self._ended: Counter[tuple[str, str, str, int, str]] = Counter()
        self._tokens: Counter[tuple[str, str, str]] = Counter()
        self._refused: Counter[tuple[str, int]] = Counter()
        self._losses = 0
        self._seconds = Histogram()
        self._first_byte = Histogram()

    def add(self, protocol: str, log: ExchangeLog) -> None:
        """Count an exchange that has ended."""
        upstream, key = log.upstream or "", log.key or ""
        self._ended[protocol, upstream, log.outcome, log.status, key] += 1
        self._losses += log.losses
        self._seconds.add(log.seconds)
        if log.first_byte_seconds is not None:
            self._first_byte.add(log.first_byte_seconds)
        if log.usage is not None:
            for kind in ("input", "output", "cached"):
                self._tokens[upstream, kind, key] += getattr(log.usage, kind) or 0

    def add_refused(self, key: str | None, status: int) -> None:
        """Count a request for which there was no slot."""
        self._refused[key or "", status] += 1

    def text(self) -> str:
        """The counts in the text format of Prometheus, version 0.0.4."""
        ended = self._ended.total()
        lines = [
            *_metric_header("weft_exchanges_total", "counter", "Model requests that have ended."),
            *(
                f'weft_exchanges_total{{protocol="{protocol}",upstream="{_escape_label(upstream)}",'
                f'outcome="{outcome}",status="{status}",key="{key}"}} {count}'
                for (protocol, upstream, outcome, status, key), count in sorted(self._ended.items())
            ),
            *_metric_header("weft_exchanges_in_progress", "gauge", "Model requests that run now."),
            f"weft_exchanges_in_progress {self.exchanges - ended}",
            *_metric_header(
                "weft_key_requests_in_progress", "gauge", "Requests of a key that run now."
            ),
            *(
                f'weft_key_requests_in_progress{{key="{key}"}} {count}'
                for key, count in sorted(self.running_by_key.items())
            ),
            *_metric_header(
                "weft_refused_total", "counter", "Requests beyond the limits of running requests."
            ),
            *(
                f'weft_refused_total{{status="{status}",key="{key}"}} {count}'
                for (key, status), count in sorted(self._refused.items())
            ),
            *_metric_header("weft_tokens_total", "counter", "Tokens that upstreams reported."),
            *(
                f'weft_tokens_total{{upstream="{_escape_label(upstream)}",kind="{kind}",'
                f'key="{key}"}} {count}'
                for (upstream, kind, key), count in sorted(self._tokens.items())
            ),
            *_metric_header("weft_losses_total", "counter", "Losses of translations."),
            f"weft_losses_total {self._losses}",
            *_metric_header(
                "weft_log_lines_dropped_total",
                "counter",
                "Lines of the log that were dropped, because nobody read it fast enough.",
            ),
            f"weft_log_lines_dropped_total {0 if self.log is None else self.log.dropped}",
            *_metric_header(
                "weft_exchange_seconds", "histogram", "Time until the end of an answer."
            ),
            *self._seconds.lines("weft_exchange_seconds"),
            *_metric_header("weft_first_byte_seconds", "histogram", "Time until its first byte."),
            *self._first_byte.lines("weft_first_byte_seconds"),
        ]
        return "\n".join(lines) + "\n"


def _metric_header(name: str, kind: str, description: str) -> tuple[str, str]:
    return f"# HELP {name} {description}", f"# TYPE {name} {kind}"


def _escape_label(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
