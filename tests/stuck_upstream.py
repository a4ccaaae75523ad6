"""An upstream on a raw socket that hangs, or breaks its framing, where a test needs it.

The name of the model selects the behaviour:

- `before-headers`, `after-headers` and `mid-body` hang at that point until the client disconnects.
- `bad-chunk` breaks the chunked framing in the middle of the body and keeps the connection open.
- `drip` sends a byte now and then.
- `large-N` answers with N megabytes.
- `ok` answers.
"""

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import orjson

HANGS = ("before-headers", "after-headers", "mid-body")
FIRST_FRAMES = {
    "anthropic": b'event: message_start\ndata: {"type": "message_start", "message": {"id": "msg_1",'
    b' "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": null,'
    b' "usage": {"input_tokens": 1, "output_tokens": 1}}}\n\n'
    b'event: content_block_start\ndata: {"type": "content_block_start", "index": 0,'
    b' "content_block": {"type": "text", "text": ""}}\n\n'
    b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 0,'
    b' "delta": {"type": "text_delta", "text": "Hello"}}\n\n',
    "openai-chat": b'data: {"id": "c", "object": "chat.completion.chunk", "created": 1,'
    b' "model": "m", "choices": [{"index": 0, "delta": {"role": "assistant",'
    b' "content": "Hello"}, "finish_reason": null}]}\n\n',
    "openai-responses": b"event: response.created\n"
    b'data: {"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1",'
    b' "object": "response", "created_at": 1, "status": "in_progress", "model": "m",'
    b' "output": []}}\n\n'
    b"event: response.output_text.delta\n"
    b'data: {"type": "response.output_text.delta", "sequence_number": 1, "item_id": "i",'
    b' "output_index": 0, "content_index": 0, "delta": "Hello"}\n\n',
    "gemini": b'data: {"candidates": [{"index": 0, "content": {"role": "model",'
    b' "parts": [{"text": "Hello"}]}}], "responseId": "g", "modelVersion": "m"}\n\n',
}
"""The beginning of a stream, up to its first word."""

BODIES = {
    "anthropic": b'{"id": "msg_1", "type": "message", "role": "assistant", "model": "m",'
    b' "content": [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn",'
    b' "stop_sequence": null, "usage": {"input_tokens": 1, "output_tokens": 1}}',
    "openai-chat": b'{"id": "c", "object": "chat.completion", "created": 1, "model": "m",'
    b' "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"},'
    b' "finish_reason": "stop"}]}',
    "openai-responses": b'{"id": "resp_1", "object": "response", "created_at": 1,'
    b' "status": "completed", "model": "m", "output": [{"id": "i", "type": "message",'
    b' "role": "assistant", "status": "completed", "content": [{"type": "output_text",'
    b' "text": "Hello", "annotations": []}]}]}',
    "gemini": b'{"candidates": [{"index": 0, "content": {"role": "model",'
    b' "parts": [{"text": "Hello"}]}, "finishReason": "STOP"}], "responseId": "g"}',
}


class StuckUpstream:
    """Where it listens; how many connections it has, and how many the other side closed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests = 0
        self.left = 0
        self.open = 0
        self.changed = threading.Condition()

    def count(self, **steps: int) -> None:
        with self.changed:
            for name, step in steps.items():
                setattr(self, name, getattr(self, name) + step)
            self.changed.notify_all()

    def await_left(self, number: int, seconds: float = 60) -> None:
        """Returns when the other side has left that many hanging calls."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.left >= number, seconds), (
                f"{self.left} of {number} calls were ended"
            )

    def await_requests(self, number: int, seconds: float = 60) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.requests >= number, seconds)


@contextmanager
def stuck_upstream() -> Iterator[StuckUpstream]:
    """It on a free port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    upstream = StuckUpstream(f"http://127.0.0.1:{listener.getsockname()[1]}")

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    def serve(connection: socket.socket) -> None:
        upstream.count(open=1)
        with connection, suppress(OSError):
            while answer(connection):
                pass
        upstream.count(open=-1)

    def answer(connection: socket.socket) -> bool:
        request = read_request(connection)
        if request is None:
            return False
        upstream.count(requests=1)
        path, body = request
        protocol = protocol_of(path)
        model, streams = read_model(path, body)
        if not model:  # a listing
            connection.sendall(whole(b'{"data": [{"id": "ok"}]}'))
            return True
        try:
            return behave(model, protocol, streams, connection)
        except OSError:
            upstream.count(left=1)
            raise

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield upstream
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def behave(model: str, protocol: str, streams: bool, connection: socket.socket) -> bool:
    """Answer as the model's name says; whether the connection can be used again."""
    kind = b"text/event-stream" if streams else b"application/json"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n" % kind
    begin = FIRST_FRAMES[protocol] if streams else BODIES[protocol][:40]
    if model == "ok":
        connection.sendall(whole(BODIES[protocol]))
        return True
    if model.startswith("large-"):
        connection.sendall(head)
        piece = b": %b\n\n" % (b"." * 65532) if streams else b" " * 65536
        for _ in range(int(model[6:]) * 16):
            connection.sendall(chunk(piece))
        connection.sendall(chunk(BODIES[protocol]) + b"0\r\n\r\n")
        return True
    if model != "before-headers":
        connection.sendall(head)
    if model in ("mid-body", "bad-chunk", "drip"):
        connection.sendall(chunk(begin))
    if model == "bad-chunk":
        time.sleep(0.1)  # so that the good chunk is read before
        connection.sendall(b"ZZZ\r\nmore\r\n0\r\n\r\n")
    while model == "drip":
        connection.sendall(chunk(b" " if not streams else b": on\n"))
        time.sleep(0.02)
    connection.recv(1)
    raise ConnectionResetError("the other side left")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def whole(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


def read_request(connection: socket.socket) -> tuple[str, bytes] | None:
    """The path and the body; None where the other side closed the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    while length is not None and len(body) < int(length[1]):
        body += connection.recv(65536)
    return head.split(b" ")[1].decode(), body


def protocol_of(path: str) -> str:
    if path.startswith("/v1/messages"):
        return "anthropic"
    if path.startswith("/v1/chat"):
        return "openai-chat"
    return "openai-responses" if path.startswith("/v1/responses") else "gemini"


def read_model(path: str, body: bytes) -> tuple[str, bool]:
    """The model's name and whether the answer is streamed."""
    address = re.search(r"/models/([^:]+):(\w+)", path)
    if address is not None:
        return address[1], address[2].startswith("stream")
    fields = orjson.loads(body) if body else {}
    return fields.get("model", ""), bool(fields.get("stream"))
