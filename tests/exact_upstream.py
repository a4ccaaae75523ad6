"""A server that answers only at exactly the right method, path, query and headers."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson
from msgspec import Struct

CHAT = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
}
CHUNKS = [
    {
        **{key: CHAT[key] for key in ("id", "created", "model")},
        "object": "chat.completion.chunk",
        "choices": [
            {"index": 0, "delta": {"role": "assistant", "content": "ok"}, "finish_reason": None}
        ],
    },
    {
        **{key: CHAT[key] for key in ("id", "created", "model")},
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
    },
]
CLAUDE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "ok"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 1},
}
CLAUDE_EVENTS = [
    {"type": "message_start", "message": {**CLAUDE, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ok"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 1},
    },
    {"type": "message_stop"},
]
ITEM = {
    "id": "i1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "ok", "annotations": []}],
}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "status": "completed",
    "model": "m",
    "output": [ITEM],
    "usage": {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4},
}
RESPONSE_EVENTS = [
    {"type": "response.created", "response": {**RESPONSE, "status": "in_progress", "output": []}},
    {"type": "response.output_item.added", "output_index": 0, "item": {**ITEM, "content": []}},
    {
        "type": "response.content_part.added",
        "item_id": "i1",
        "output_index": 0,
        "content_index": 0,
        "part": {"type": "output_text", "text": "", "annotations": []},
    },
    {
        "type": "response.output_text.delta",
        "item_id": "i1",
        "output_index": 0,
        "content_index": 0,
        "delta": "ok",
    },
    {"type": "response.output_item.done", "output_index": 0, "item": ITEM},
    {"type": "response.completed", "response": RESPONSE},
]
GEMINI = {
    "candidates": [
        {"content": {"role": "model", "parts": [{"text": "ok"}]}, "finishReason": "STOP"}
    ],
    "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 1, "totalTokenCount": 4},
    "modelVersion": "m",
    "responseId": "r1",
}


def _events(frames: list[dict[str, Any]], end: bytes = b"") -> bytes:
    return (
        b"".join(
            (f"event: {frame['type']}\n".encode() if "type" in frame else b"")
            + b"data: "
            + orjson.dumps(frame)
            + b"\n\n"
            for frame in frames
        )
        + end
    )


ANSWERS = {  # the body and the stream of an answer "ok"
    "openai-chat": (orjson.dumps(CHAT), _events(CHUNKS, b"data: [DONE]\n\n")),
    "anthropic": (orjson.dumps(CLAUDE), _events(CLAUDE_EVENTS)),
    "openai-responses": (orjson.dumps(RESPONSE), _events(RESPONSE_EVENTS)),
    "gemini": (orjson.dumps(GEMINI), _events([GEMINI])),
}


class Rule(Struct, kw_only=True):
    """What a server accepts at one address, and what it answers.

    `headers` must have these values; one with the value "" must be absent. `answer_headers` are
    sent beside the content type.
    """

    protocol: str = "openai-chat"
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    status: int = 200
    kind: str = "application/json"
    answer_headers: Mapping[str, str] = {}


class ExactUpstream:
    """The addresses that the server knows, by method and path with its query."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.rules: dict[tuple[str, str], Rule] = {}
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []


@contextmanager
def exact_upstream() -> Iterator[ExactUpstream]:
    """The server on a free port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self._read()
            headers = {name.lower(): value for name, value in self.headers.items()}
            upstream.requests.append((self.command, self.path, headers, body))
            rule = upstream.rules.get((self.command, self.path))
            if rule is None:
                self._send(404, "application/json", b'{"error": {"message": "no such address"}}')
                return
            for name, value in rule.headers.items():
                if headers.get(name, "") != value:
                    self._send(401, "application/json", b'{"error": {"message": "wrong header"}}')
                    return
            if rule.body is not None:
                self._send(rule.status, rule.kind, rule.body, rule.answer_headers)
                return
            whole, stream = ANSWERS[rule.protocol]
            streams = b'"stream":true' in body.replace(b" ", b"") or "alt=sse" in self.path
            kind = "text/event-stream" if streams else "application/json"
            self._send(200, kind, stream if streams else whole)

        do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = do_HEAD = answer

        def _read(self) -> bytes:
            if self.headers.get("transfer-encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("content-length", 0)))
            chunks = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

        def _send(
            self, status: int, kind: str, body: bytes, headers: Mapping[str, str] = {}
        ) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    upstream = ExactUpstream(f"http://127.0.0.1:{server.server_address[1]}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield upstream
    finally:
        server.shutdown()
        server.server_close()
