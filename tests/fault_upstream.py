"""An upstream that fails in every possible way, or answers in an unusual but valid way.

The model's name selects the fault: `fault-NAME` is the `Fault` of that name in `FAULTS`. Any other
name gets a complete answer. The path of the request selects one of the four protocols. The server
writes HTTP by hand, because no HTTP library would write most of these faults.

Each fault says what its client must see (`outcome`): a failure, or the complete answer. The text of
that answer is `ANSWER`, so a partial answer is never mistaken for it.
"""

import asyncio
import gzip
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import orjson
from msgspec import Struct

Json = dict[str, Any]

PIECES = ("Hello ", "world, ", "this is ", "the complete ", "answer number ", "forty-two.")
ANSWER = "".join(PIECES)
PROTOCOLS = ("anthropic", "openai-chat", "openai-responses", "gemini")
PREFIX = "fault-"
STREAM = "text/event-stream"
JSON = "application/json"
SECRET = "words of the upstream's own"


# Whole answers and errors of each protocol


def sse(data: Any, event: str | None = None) -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else orjson.dumps(data).decode()
    return (f"event: {event}\n" if event else "").encode() + f"data: {text}\n\n".encode()


def write_body(protocol: str, stop: str | None = None) -> Json:
    """A whole answer; `stop` replaces the reason for which it ended."""
    usage = {"input_tokens": 10, "output_tokens": 9}
    if protocol == "anthropic":
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [{"type": "text", "text": ANSWER}],
            "stop_reason": stop or "end_turn",
            "stop_sequence": None,
            "usage": usage,
        }
    if protocol == "openai-chat":
        message = {"role": "assistant", "content": ANSWER}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": stop or "stop"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 9, "total_tokens": 19},
        }
    if protocol == "openai-responses":
        return write_response(stop or "completed", [write_item("completed")])
    candidate: Json = {"index": 0, "content": {"role": "model", "parts": [{"text": ANSWER}]}}
    return {
        "candidates": [{**candidate, "finishReason": stop or "STOP"}],
        "usageMetadata": {
            "promptTokenCount": 10,
            "candidatesTokenCount": 9,
            "totalTokenCount": 19,
        },
        "modelVersion": "m",
        "responseId": "g1",
    }


def write_item(status: str) -> Json:
    part = {"type": "output_text", "text": ANSWER, "annotations": []}
    content = [part] if status == "completed" else []
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def write_response(status: str, output: list[Json], error: Json | None = None) -> Json:
    body: Json = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "error": error,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "m",
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1,
    }
    if status != "in_progress":
        body["usage"] = {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 9,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 19,
        }
    return body


END_FRAMES = {"openai-chat": 3}
"""How many of the last frames a cut must take away; in Chat the finish reason, the token counts and
`[DONE]`, in the other protocols one."""


def write_frames(protocol: str, stop: str | None = None) -> list[bytes]:
    """A whole answer as a stream; without its last frames (`END_FRAMES`) it is cut off."""
    if protocol == "anthropic":
        return _anthropic_frames(stop or "end_turn")
    if protocol == "openai-chat":
        return _chat_frames(stop or "stop")
    if protocol == "openai-responses":
        return _responses_frames(stop or "completed")
    return _gemini_frames(stop or "STOP")


def _anthropic_frames(stop: str) -> list[bytes]:
    message = {**write_body("anthropic"), "content": [], "stop_reason": None}
    block = {"type": "text", "text": ""}
    events: list[Json] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": text},
            }
            for text in PIECES
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": {"output_tokens": 9},
        },
        {"type": "message_stop"},
    ]
    return [sse(event, event["type"]) for event in events]


def _chat_frames(stop: str) -> list[bytes]:
    envelope = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}

    def chunk(delta: Json, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return sse({**envelope, "choices": [choice]})

    usage = {"prompt_tokens": 10, "completion_tokens": 9, "total_tokens": 19}
    return [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": text}) for text in PIECES),
        chunk({}, stop),
        sse({**envelope, "choices": [], "usage": usage}),
        sse("[DONE]"),
    ]


def _responses_frames(status: str) -> list[bytes]:
    begun = write_response("in_progress", [])
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    empty = {"type": "output_text", "text": "", "annotations": []}
    part = {**empty, "text": ANSWER}
    item = {"output_index": 0, "item": write_item("in_progress")}
    events: list[Json] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": "response.output_item.added", **item},
        {"type": "response.content_part.added", **place, "part": empty},
        *(
            {"type": "response.output_text.delta", **place, "delta": text, "logprobs": []}
            for text in PIECES
        ),
        {"type": "response.output_text.done", **place, "text": ANSWER, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": write_item("completed")},
        {"type": "response.completed", "response": write_body("openai-responses", status)},
    ]
    return [
        sse({**event, "sequence_number": number}, event["type"])
        for number, event in enumerate(events)
    ]


def _gemini_frames(stop: str) -> list[bytes]:
    frames: list[bytes] = []
    for text in PIECES:
        body = write_body("gemini", stop)
        [candidate] = body["candidates"]
        candidate["content"]["parts"] = [{"text": text}]
        if text != PIECES[-1]:
            del candidate["finishReason"], body["usageMetadata"]
        frames.append(sse(body))
    return frames


STATUS_WORDS = {
    400: ("invalid_request_error", "INVALID_ARGUMENT"),
    401: ("authentication_error", "UNAUTHENTICATED"),
    403: ("permission_error", "PERMISSION_DENIED"),
    404: ("not_found_error", "NOT_FOUND"),
    429: ("rate_limit_error", "RESOURCE_EXHAUSTED"),
    503: ("overloaded_error", "UNAVAILABLE"),
    529: ("overloaded_error", "UNAVAILABLE"),
}


def write_error(protocol: str, status: int = 500, message: str = SECRET) -> Json:
    """An error in this protocol's own envelope."""
    kind, word = STATUS_WORDS.get(status, ("api_error", "INTERNAL"))
    if protocol == "anthropic":
        return {"type": "error", "error": {"type": kind, "message": message}}
    if protocol == "gemini":
        return {"error": {"code": status, "message": message, "status": word}}
    return {"error": {"message": message, "type": kind, "code": None, "param": None}}


def write_error_frame(protocol: str) -> bytes:
    """An error in the middle of a stream, in this protocol's own form."""
    if protocol == "anthropic":
        return sse(write_error(protocol), "error")
    if protocol == "openai-responses":
        event = {"type": "error", "code": "server_error", "message": SECRET, "param": None}
        return sse({**event, "sequence_number": 9}, "error")
    return sse(write_error(protocol))


# One connection


class Call:
    """One request, and the hand-written HTTP that answers it.

    `head` and what follows it may be written only once. A handler that returns leaves the
    connection open for the next request, unless it called `close` or `reset`.
    """

    def __init__(
        self, protocol: str, streams: bool, writer: asyncio.StreamWriter, reader: Any
    ) -> None:
        self.protocol = protocol
        self.streams = streams
        self.closed = False
        self._writer = writer
        self._reader = reader

    @property
    def kind(self) -> str:
        """The content type that the client asked for."""
        return STREAM if self.streams else JSON

    def whole(self, stop: str | None = None) -> bytes:
        """The whole answer in the form that the client asked for."""
        if self.streams:
            return b"".join(write_frames(self.protocol, stop))
        return orjson.dumps(write_body(self.protocol, stop))

    def cut_at(self, place: str) -> int:
        """How many bytes of the whole answer come before a cut."""
        whole = self.whole()
        frames = write_frames(self.protocol) if self.streams else [whole[:-1], whole[-1:]]
        ends = END_FRAMES.get(self.protocol, 1) if self.streams else 1
        return {
            "start": 0,
            "first": len(frames[0]) if self.streams else 20,
            "middle": len(whole) // 2,
            "last": len(whole) - sum(map(len, frames[-ends:])),
        }[place]

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def head(
        self,
        status: int = 200,
        kind: str | None = None,
        *,
        length: int | None = None,
        headers: str = "",
    ) -> None:
        framing = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
        line = f"HTTP/1.1 {status} X\r\ncontent-type: {kind or self.kind}\r\n{framing}\r\n{headers}"
        await self.raw(line.encode("latin-1") + b"\r\n")

    async def chunk(self, data: bytes) -> None:
        if data:
            await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    async def send(self, data: bytes, status: int = 200, kind: str | None = None) -> None:
        """A well-formed HTTP answer with this body."""
        await self.head(status, kind)
        await self.chunk(data)
        await self.end()

    def close(self) -> None:
        """End the connection in good order (FIN)."""
        self.closed = True

    async def reset(self) -> None:
        """End the connection at once (RST), after what was written has had time to arrive."""
        await asyncio.sleep(0.02)
        self.closed = True
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def hang(self) -> None:
        """Say nothing more until the other side has gone."""
        try:
            while await self._reader.read(1000):
                pass
        except OSError:
            pass
        self.closed = True


# The faults

Outcome = Literal["fails", "answers"]
Play = Callable[[Call], Awaitable[None]]


class Fault(Struct, frozen=True):
    """One way to fail. `only` is whether it needs a stream (True) or a body (False)."""

    name: str
    group: str
    outcome: Outcome
    play: Play
    only: bool | None = None
    protocols: tuple[str, ...] = PROTOCOLS


FAULTS: dict[str, Fault] = {}


def fault(
    name: str,
    group: str,
    outcome: Outcome = "fails",
    *,
    only: bool | None = None,
    protocols: tuple[str, ...] = PROTOCOLS,
) -> Callable[[Play], Play]:
    """Register a fault under this name."""

    def register(play: Play) -> Play:
        FAULTS[name] = Fault(name, group, outcome, play, only, protocols)
        return play

    return register


PLACES = ("start", "first", "middle", "last")


def _add_cuts(place: str) -> None:
    """Five ways to cut an answer at this place."""

    @fault(f"cut-reset-{place}", "cut")
    async def reset(call: Call) -> None:
        await call.head()
        await call.chunk(call.whole()[: call.cut_at(place)])
        await call.reset()

    @fault(f"cut-closed-{place}", "cut")
    async def closed(call: Call) -> None:
        await call.head()
        await call.chunk(call.whole()[: call.cut_at(place)])
        call.close()

    @fault(f"cut-clean-{place}", "cut")
    async def clean(call: Call) -> None:
        await call.send(call.whole()[: call.cut_at(place)])

    @fault(f"cut-length-{place}", "cut")
    async def length(call: Call) -> None:
        whole = call.whole()
        await call.head(length=len(whole))
        await call.raw(whole[: call.cut_at(place)])
        call.close()

    @fault(f"cut-http10-{place}", "cut")
    async def http10(call: Call) -> None:
        head = f"HTTP/1.0 200 OK\r\ncontent-type: {call.kind}\r\n\r\n"
        await call.raw(head.encode() + call.whole()[: call.cut_at(place)])
        call.close()


for _place in PLACES:
    _add_cuts(_place)


@fault("cut-before-head", "cut")
async def cut_before_head(call: Call) -> None:
    call.close()


@fault("reset-before-head", "cut")
async def reset_before_head(call: Call) -> None:
    await call.reset()


@fault("cut-in-head", "cut")
async def cut_in_head(call: Call) -> None:
    await call.raw(b"HTTP/1.1 200 OK\r\ncontent-ty")
    call.close()


@fault("noise-for-head", "framing")
async def noise_for_head(call: Call) -> None:
    await call.raw(bytes(range(256)) * 2)
    call.close()


@fault("noise-for-body", "framing")
async def noise_for_body(call: Call) -> None:
    await call.send(bytes(range(256)) * 8)


@fault("bad-chunk-at-once", "framing")
async def bad_chunk_at_once(call: Call) -> None:
    await call.head()
    await call.raw(b"ZZZ\r\n" + call.whole() + b"\r\n0\r\n\r\n")
    call.close()


@fault("bad-chunk-later", "hang")
async def bad_chunk_later(call: Call) -> None:
    """The connection stays open: only the reader can find out that nothing more will come."""
    await call.head()
    await call.chunk(call.whole()[: call.cut_at("middle")])
    await asyncio.sleep(0.05)
    await call.raw(b"ZZZ\r\n" + call.whole() + b"\r\n0\r\n\r\n")
    await call.hang()


@fault("broken-gzip", "framing")
async def broken_gzip(call: Call) -> None:
    packed = gzip.compress(call.whole())
    await call.head(headers="content-encoding: gzip\r\n")
    await call.chunk(packed[: len(packed) // 2])
    await call.end()


@fault("gzip", "framing", "answers")
async def whole_gzip(call: Call) -> None:
    await call.head(headers="content-encoding: gzip\r\n")
    await call.chunk(gzip.compress(call.whole()))
    await call.end()


@fault("page", "content type")
async def page(call: Call) -> None:
    await call.send(b"<html><body>Please log in</body></html>", kind="text/html")


@fault("page-as-asked", "content type")
async def page_as_asked(call: Call) -> None:
    await call.send(b"<html><body>Please log in</body></html>")


@fault("other-form", "content type", "answers")
async def other_form(call: Call) -> None:
    """A body for a stream and a stream for a body, each by its right name."""
    call.streams = not call.streams
    await call.send(call.whole())


@fault("other-name", "content type", "answers")
async def other_name(call: Call) -> None:
    """The right form by the other form's name."""
    await call.send(call.whole(), kind=JSON if call.streams else STREAM)


@fault("plain-name", "content type", "answers")
async def plain_name(call: Call) -> None:
    await call.send(call.whole(), kind="text/plain")


@fault("no-name", "content type", "answers")
async def no_name(call: Call) -> None:
    whole = call.whole()
    await call.raw(f"HTTP/1.1 200 OK\r\ncontent-length: {len(whole)}\r\n\r\n".encode() + whole)


@fault("other-form-cut", "content type")
async def other_form_cut(call: Call) -> None:
    call.streams = not call.streams
    await call.send(call.whole()[: call.cut_at("last")])


STATUSES = (400, 401, 403, 404, 408, 413, 422, 429, 500, 502, 503, 504, 529)


def _add_status(status: int) -> None:
    @fault(f"status-{status}", "status")
    async def envelope(call: Call) -> None:
        await call.send(orjson.dumps(write_error(call.protocol, status)), status, JSON)

    @fault(f"status-{status}-page", "status")
    async def html(call: Call) -> None:
        await call.send(b"<html>nginx</html>", status, "text/html")

    @fault(f"status-{status}-empty", "status")
    async def empty(call: Call) -> None:
        await call.send(b"", status, JSON)


for _status in STATUSES:
    _add_status(_status)


@fault("redirect", "status")
async def redirect(call: Call) -> None:
    await call.head(302, length=0, headers="location: http://127.0.0.1:1/elsewhere\r\n")


@fault("no-content", "status")
async def no_content(call: Call) -> None:
    await call.raw(b"HTTP/1.1 204 No Content\r\n\r\n")


BODIES: dict[str, bytes] = {
    "nothing": b"",
    "object": b"{}",
    "null": b"null",
    "list": b"[1]",
    "string": b'"fine"',
    "detail": b'{"detail": "Not authenticated", "status": 500}',
    "message": b'{"message": "internal error"}',
    "error-text": b'{"error": "boom"}',
}


def _add_body(name: str, body: bytes) -> None:
    @fault(f"body-{name}", "no answer")
    async def as_json(call: Call) -> None:
        await call.send(body, kind=JSON)

    @fault(f"body-{name}-as-asked", "no answer", only=True)
    async def as_stream(call: Call) -> None:
        await call.send(body, kind=STREAM)


for _name, _body in BODIES.items():
    _add_body(_name, _body)


@fault("error-with-200", "no answer")
async def error_with_200(call: Call) -> None:
    await call.send(orjson.dumps(write_error(call.protocol)), kind=JSON)


@fault("error-with-200-as-asked", "no answer", only=True)
async def error_with_200_as_stream(call: Call) -> None:
    await call.send(orjson.dumps(write_error(call.protocol)), kind=STREAM)


@fault("error-beside-answer", "no answer", only=False)
async def error_beside_answer(call: Call) -> None:
    body = write_body(call.protocol) | write_error(call.protocol)
    await call.send(orjson.dumps(body))


FAILED_STOPS = {
    "anthropic": ("error",),
    "openai-chat": ("error", "network_error", "insufficient_system_resource", "abort"),
    "openai-responses": ("failed", "cancelled"),
    "gemini": ("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE"),
}
"""Reasons to stop that mean a failure: the vendors' own, and those of servers that speak alike."""


def _add_stop(protocol: str, stop: str) -> None:
    @fault(f"stop-{stop.lower()}", "stop reason", protocols=(protocol,))
    async def stopped(call: Call) -> None:
        await call.send(call.whole(stop))


for _protocol, _stops in FAILED_STOPS.items():
    for _stop in _stops:
        if f"stop-{_stop.lower()}" in FAULTS:
            _same = FAULTS[f"stop-{_stop.lower()}"]
            FAULTS[_same.name] = Fault(
                _same.name, _same.group, "fails", _same.play, None, (*_same.protocols, _protocol)
            )
        else:
            _add_stop(_protocol, _stop)


@fault("error-event-first", "error event", only=True)
async def error_event_first(call: Call) -> None:
    await call.send(write_error_frame(call.protocol))


@fault("error-event-mid", "error event", only=True)
async def error_event_mid(call: Call) -> None:
    frames = write_frames(call.protocol)
    await call.send(b"".join(frames[: len(frames) // 2]) + write_error_frame(call.protocol))


@fault("error-event-then-rest", "error event", only=True)
async def error_event_then_rest(call: Call) -> None:
    frames = write_frames(call.protocol)
    half = len(frames) // 2
    await call.head()
    await call.chunk(b"".join(frames[:half]) + write_error_frame(call.protocol))
    await asyncio.sleep(0.02)
    await call.chunk(b"".join(frames[half:]))
    await call.end()


@fault("failed-event", "error event", only=True, protocols=("openai-responses",))
async def failed_event(call: Call) -> None:
    error = {"code": "server_error", "message": SECRET}
    response = write_response("failed", [], error)
    event = {"type": "response.failed", "sequence_number": 9, "response": response}
    await call.send(b"".join(write_frames(call.protocol)[:4]) + sse(event, event["type"]))


ODD_FRAMES: dict[str, bytes] = {
    "list": b"data: []\n\n",
    "null": b"data: null\n\n",
    "no-json": b"data: {not json}\n\n",
    "wrong-types": b'data: {"type": 5, "choices": "zz", "candidates": 7}\n\n',
    "closed-block": sse(
        {
            "type": "content_block_delta",
            "index": 7,
            "delta": {"type": "text_delta", "text": "?"},
        },
        "content_block_delta",
    ),
    "opened-twice": sse(
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": ""},
        },
        "content_block_start",
    ),
    "wrong-index": sse(
        {"type": "response.output_text.delta", "output_index": "x", "delta": "?"},
        "response.output_text.delta",
    ),
}


def _add_odd_frame(name: str, frame: bytes) -> None:
    @fault(f"odd-{name}-then-end", "odd frame", only=True)
    async def then_end(call: Call) -> None:
        frames = write_frames(call.protocol)
        await call.head()
        await call.chunk(b"".join(frames[: len(frames) // 2]))
        await asyncio.sleep(0.02)
        await call.chunk(frame)
        await call.end()

    @fault(f"odd-{name}-first", "odd frame", only=True)
    async def first(call: Call) -> None:
        await call.send(frame)


for _name, _frame in ODD_FRAMES.items():
    _add_odd_frame(_name, _frame)


@fault("empty-stream", "ends", only=True)
async def empty_stream(call: Call) -> None:
    await call.send(b"")


@fault("comments-only", "ends", only=True)
async def comments_only(call: Call) -> None:
    await call.send(b": keep-alive\n\n" * 5)


@fault("end-only", "ends", only=True, protocols=("anthropic", "openai-chat"))
async def end_only(call: Call) -> None:
    await call.send(write_frames(call.protocol)[-1])


@fault("no-end-mark", "ends", "answers", only=True, protocols=("openai-chat",))
async def no_end_mark(call: Call) -> None:
    await call.send(b"".join(write_frames(call.protocol)[:-1]))


@fault("no-end-mark-then-reset", "ends", "answers", only=True, protocols=("openai-chat", "gemini"))
async def no_end_mark_then_reset(call: Call) -> None:
    """The finish reason has come, so the answer is whole, however the connection ends."""
    await call.head()
    await call.chunk(call.whole().removesuffix(sse("[DONE]")))
    await call.reset()


@fault("no-end-mark-then-open", "ends", "answers", only=True, protocols=("openai-chat", "gemini"))
async def no_end_mark_then_open(call: Call) -> None:
    await call.head()
    await call.chunk(call.whole().removesuffix(sse("[DONE]")))
    await call.hang()


@fault("end-then-open", "ends", "answers", only=True, protocols=PROTOCOLS[:3])
async def end_then_open(call: Call) -> None:
    await call.head()
    await call.chunk(call.whole())
    await call.hang()


@fault("end-twice", "ends", "answers", only=True, protocols=PROTOCOLS[:3])
async def end_twice(call: Call) -> None:
    await call.send(call.whole() + write_frames(call.protocol)[-1] * 2)


@fault("more-after-end", "ends", "answers", only=True, protocols=PROTOCOLS[:3])
async def more_after_end(call: Call) -> None:
    await call.send(call.whole() + write_frames(call.protocol)[-2])


@fault("no-blank-line-at-end", "ends", "answers", only=True)
async def no_blank_line_at_end(call: Call) -> None:
    await call.send(call.whole().rstrip(b"\n"))


@fault("carriage-returns", "ends", "answers", only=True)
async def carriage_returns(call: Call) -> None:
    await call.send(call.whole().replace(b"\n", b"\r\n"))


@fault("large", "size", "answers")
async def large(call: Call) -> None:
    """Three megabytes of whitespace inside the answer's JSON."""
    await call.send(call.whole().replace(b"{", b"{" + b" " * 3_000_000, 1))


@fault("byte-by-byte", "size", "answers")
async def byte_by_byte(call: Call) -> None:
    await call.head()
    data = b"".join(b"1\r\n%c\r\n" % byte for byte in call.whole())
    for start in range(0, len(data), 997):
        await call.raw(data[start : start + 997])
    await call.end()


@fault("control-in-header", "header", "answers")
async def control_in_header(call: Call) -> None:
    await call.head(headers="x-request-id: a\tb\x01c\r\nopenai-strange: <script>\x7f\r\n")
    await call.chunk(call.whole())
    await call.end()


@fault("many-headers", "header", "answers")
async def many_headers(call: Call) -> None:
    """More than HTTP clients take."""
    lines = "".join(f"x-ratelimit-{number}: {'v' * 7000}\r\n" for number in range(40))
    await call.head(headers=lines)
    await call.chunk(call.whole())
    await call.end()


@fault("hang-before-head", "hang")
async def hang_before_head(call: Call) -> None:
    await call.hang()


@fault("hang-in-head", "hang")
async def hang_in_head(call: Call) -> None:
    await call.raw(b"HTTP/1.1 200 OK\r\ncontent-ty")
    await call.hang()


@fault("hang-after-head", "hang")
async def hang_after_head(call: Call) -> None:
    await call.head()
    await call.hang()


@fault("hang-middle", "hang")
async def hang_middle(call: Call) -> None:
    await call.head()
    await call.chunk(call.whole()[: call.cut_at("middle")])
    await call.hang()


@fault("hang-before-end", "hang")
async def hang_before_end(call: Call) -> None:
    await call.head()
    await call.chunk(call.whole()[: call.cut_at("last")])
    await call.hang()


@fault("hang-in-error", "hang")
async def hang_in_error(call: Call) -> None:
    await call.head(500, JSON)
    await call.chunk(b'{"error": ')
    await call.hang()


def applies(fault: Fault, upstream: str, streams: bool) -> bool:
    """Whether this fault can happen to such a request."""
    return upstream in fault.protocols and fault.only in (None, streams)


# The server


class FaultUpstream:
    """Where the server listens, and how many requests it has not finished."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.url = ""
        self.busy = 0
        self.asked = 0
        self._loop = loop
        self._writers: set[asyncio.StreamWriter] = set()

    def close_connections(self) -> None:
        """Close every connection, so that nobody keeps an idle one."""

        def close() -> None:
            for writer in self._writers:
                writer.close()

        self._loop.call_soon_threadsafe(close)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        self._writers.add(writer)
        try:
            while (call := await self._read(reader, writer)) is not None:
                request, play = call
                self.busy += 1
                try:
                    await play(request)
                finally:
                    self.busy -= 1
                if request.closed:
                    return
        except (OSError, asyncio.IncompleteReadError):
            return  # the other side has gone, which is its right
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _read(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[Call, Play] | None:
        head = await reader.readuntil(b"\r\n\r\n")
        line, *fields = head.decode("latin-1").split("\r\n")
        path = line.split(" ")[1]
        headers = {
            name.lower(): value.strip()
            for name, matches, value in (field.partition(":") for field in fields)
            if matches
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.asked += 1
        result: Json = orjson.loads(body) if body else {}
        protocol = next((PATHS[end] for end in PATHS if path.startswith(end)), "gemini")
        model, streams = str(result.get("model", "")), bool(result.get("stream"))
        if protocol == "gemini":
            model, _, method = path.rpartition("/")[2].partition(":")
            streams = method.startswith("stream")
        matches = FAULTS.get(model.removeprefix(PREFIX))
        return Call(protocol, streams, writer, reader), matches.play if matches else answer


PATHS = {
    "/v1/messages": "anthropic",
    "/v1/chat/completions": "openai-chat",
    "/v1/responses": "openai-responses",
}


async def answer(call: Call) -> None:
    """The whole answer, as it should be."""
    await call.send(call.whole())


@contextmanager
def fault_upstream() -> Iterator[FaultUpstream]:
    """The server on a free port, in a thread of its own."""
    loop = asyncio.new_event_loop()
    upstream = FaultUpstream(loop)

    async def start() -> asyncio.Server:
        return await asyncio.start_server(upstream.serve, "127.0.0.1", 0, limit=1 << 24)

    async def stop(server: asyncio.Server) -> None:
        server.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(start(), loop).result()
    upstream.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield upstream
    finally:
        asyncio.run_coroutine_threadsafe(stop(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
