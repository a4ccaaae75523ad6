"""An Anthropic upstream for tests of the page: it does what the last message asks for.

    SLOW n     streams n words, one every 50 ms
    HELD       streams a few words, then waits until the test lets it go on
    CUT        drops the connection in the middle of its answer
    REFUSED    answers 400 with a reason
    any other  answers at once

A request without tools is for a summary. It is answered like the others, unless the test sets
`summary`. `answers` has answers of the test's own, by the text that they answer.
"""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from servers import Scripted, Upstream, scripted_upstream

HOLD_SECONDS = 120
WORD_SECONDS = 0.05
REASON = "this mock refuses everything"
HELD_TEXT = "The first half of the answer, "
CUT_TEXT = "Half of a sentence that never"


class SlowUpstream:
    """The running upstream: its address, what it was asked, and the gate of `HELD` answers."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self.gate = threading.Event()
        self.summary: Callable[[], Scripted] | None = None
        self.answers: dict[str, Callable[[], Scripted]] = {}
        upstream.rule = self._answer

    @property
    def url(self) -> str:
        return self._upstream.url

    def list_models(self, *names: str) -> None:
        """List these models instead of `scripted-model`."""
        self._upstream.models = list(names)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """What it was asked, oldest first."""
        return [orjson.loads(request["body"]) for request in self._upstream.requests]

    def _answer(self, data: bytes) -> Scripted:
        body = orjson.loads(data)
        if not body.get("tools") and self.summary is not None:
            return self.summary()
        text = last_text(body)
        if text in self.answers:
            return self.answers[text]()
        if "REFUSED" in text:
            return refusal(REASON)
        if "CUT" in text:
            return Scripted(*opening(), *deltas(CUT_TEXT), cut=True)
        if "HELD" in text:
            return Held(self.gate)
        if "SLOW" in text:
            words = int(text.partition("SLOW")[2].split()[0])
            return streamed(*(f"word{n} " for n in range(words)), pause=WORD_SECONDS)
        return streamed(f"An answer to: {text[-60:]}")


class Held(Scripted):
    """An answer that stops half way until its gate opens."""

    def __init__(
        self, gate: threading.Event, first: str = HELD_TEXT, second: str = "and the second half."
    ) -> None:
        super().__init__()
        self._gate, self._first, self._second = gate, first, second
        self.pieces = self._pieces()  # pyright: ignore[reportAttributeAccessIssue]

    def _pieces(self) -> Iterator[bytes]:
        yield from opening()
        yield from deltas(self._first)
        self._gate.wait(HOLD_SECONDS)
        yield from deltas(self._second)
        yield from closing()


@contextmanager
def slow_upstream() -> Iterator[SlowUpstream]:
    """The upstream on a free port."""
    with scripted_upstream() as running:
        upstream = SlowUpstream(running)
        try:
            yield upstream
        finally:
            upstream.gate.set()


def last_text(body: dict[str, Any]) -> str:
    """The text of the last message."""
    content = body["messages"][-1]["content"]
    parts = [{"text": content}] if isinstance(content, str) else content
    text = " ".join(part.get("text", "") for part in parts)
    return re.sub(r"\s*<checkpoint:\w+>", "", text)


def refusal(reason: str, status: int = 400) -> Scripted:
    """An error in Anthropic's form."""
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": reason}}
    return Scripted(orjson.dumps(error), status=status, kind="application/json")


def streamed(*texts: str, pause: float = 0.0) -> Scripted:
    """A whole answer, a delta for each text."""
    return Scripted(*opening(), *deltas(*texts), *closing(), pause=pause)


def opening() -> list[bytes]:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted-model",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 1},
    }
    block = {"index": 0, "content_block": {"type": "text", "text": ""}}
    return [frame("message_start", {"message": message}), frame("content_block_start", block)]


def deltas(*texts: str) -> list[bytes]:
    return [
        frame("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": text}})
        for text in texts
    ]


def tool_call(text: str, name: str, input: dict[str, Any]) -> Scripted:
    """An answer that says a text and then calls a tool."""
    block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}
    delta = {"type": "input_json_delta", "partial_json": orjson.dumps(input).decode()}
    pieces = [
        frame("content_block_stop", {"index": 0}),
        frame("content_block_start", {"index": 1, "content_block": block}),
        frame("content_block_delta", {"index": 1, "delta": delta}),
    ]
    return Scripted(*opening(), *deltas(text), *pieces, *closing(1, "tool_use"))


def closing(index: int = 0, reason: str = "end_turn") -> list[bytes]:
    stop = {"delta": {"stop_reason": reason, "stop_sequence": None}}
    return [
        frame("content_block_stop", {"index": index}),
        frame("message_delta", {**stop, "usage": {"output_tokens": 20}}),
        frame("message_stop", {}),
    ]


def frame(name: str, data: dict[str, Any]) -> bytes:
    """One event of a stream."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps({"type": name, **data}))
