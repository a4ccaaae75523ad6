"""What an upstream or a client does to one caller never reaches another."""

import socket
import threading
import time
from contextlib import suppress

import orjson
import pytest

from servers import post, weft_serve

CHAT = "/v1/chat/completions"


def chat_body(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    return orjson.dumps(
        {
            **{"id": "c1", "object": "chat.completion", "created": 1, "model": "m"},
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
    )


def http(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{headers}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def ask(gateway, text: str, key: str = "", path: str = CHAT, **members):
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **members}
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return post(gateway.url + path, body, headers)


class RawUpstream:
    """An upstream on a socket; `behave(connection, request)` answers each request."""

    def __init__(self, behave) -> None:
        self._behave = behave
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> "RawUpstream":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, IndexError):
            while True:
                data = b""
                while b"\r\n\r\n" not in data:
                    piece = connection.recv(65536)
                    if not piece:
                        return
                    data += piece
                head, _, body = data.partition(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split()[0])
                while len(body) < length:
                    body += connection.recv(65536)
                self._behave(connection, head + b"\r\n\r\n" + body)


@pytest.mark.parametrize("pause", [0.0, 0.05, 0.3])
def test_a_second_answer_for_one_key_is_never_the_answer_for_another(tmp_path, pause):
    def answer_twice(connection: socket.socket, request: bytes) -> None:
        if b"A asks" not in request:
            connection.sendall(http(chat_body("for B")))
            return
        connection.sendall(http(chat_body("for A")))
        time.sleep(0.05)
        connection.sendall(http(chat_body("POISON")))

    with RawUpstream(answer_twice) as upstream:
        flags = ["--upstream", f"x=openai-chat:{upstream.url}"]
        with weft_serve(tmp_path, *flags, WEFT_API_KEYS="ka,kb") as gateway:
            for _ in range(4):
                assert b"for A" in ask(gateway, "A asks", "ka")[2]
                time.sleep(pause)
                assert b"for B" in ask(gateway, "B asks", "kb")[2]
                time.sleep(0.1)
                assert b"for B" in ask(gateway, "another question", "ka")[2]


OPERATOR_KEY = "sk-OPERATOR/SECRET+0123456789"
PATHS = {
    "anthropic": "/v1/messages",
    "openai-chat": CHAT,
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/m:generateContent",
}


def sse(*frames) -> bytes:
    lines = [
        (f"event: {frame['type']}\n" if "type" in frame else "").encode()
        + b"data: "
        + orjson.dumps(frame)
        + b"\n\n"
        for frame in frames
    ]
    return b"".join(lines)


def echo(where: str, protocol: str, key: str) -> bytes:
    """An upstream's answer that quotes the key."""
    message = f"Incorrect API key provided: {key}. You can find yours at x."
    error = {"error": {"message": message, "type": "invalid_request_error", "code": key}}
    if protocol == "anthropic":
        error = {"type": "error", "error": {"type": "authentication_error", "message": message}}
    if protocol == "gemini":
        error = {"error": {"code": 401, "message": message, "status": "UNAUTHENTICATED"}}
    if where == "status":
        return http(orjson.dumps(error), "401 Unauthorized", f"x-request-id: {key}\r\n")
    if where == "text":
        return http(message.encode(), "500 Oops").replace(b"application/json", b"text/plain")
    if where == "html":
        page = f"<html><title>{message.replace('/', '&#x2F;')}</title></html>"
        return http(page.encode(), "502 Bad").replace(b"application/json", b"text/html")
    if where == "escaped":
        body = orjson.dumps(error).replace(b"/SECRET", b"\\/\\u0053ECRET")
        return http(body, "403 Forbidden")
    if where == "chunks":  # the key is split
        body = orjson.dumps(error)
        half = body.index(key.encode()) + 5
        pieces = [f"{len(p):x}\r\n".encode() + p + b"\r\n" for p in (body[:half], body[half:])]
        head = b"HTTP/1.1 401 No\r\ncontent-type: application/json\r\ntransfer-encoding: chunked"
        return head + b"\r\n\r\n" + b"".join(pieces) + b"0\r\n\r\n"
    if where == "200":
        return http(orjson.dumps(error))
    if protocol == "openai-responses":
        error = {"type": "error", "code": "x", "message": message, "param": None}
    return http(sse(error)).replace(b"application/json", b"text/event-stream")


@pytest.mark.parametrize("source", PATHS)
def test_a_key_that_an_upstream_quotes_is_neither_relayed_nor_stored(tmp_path, source):
    def answer(connection: socket.socket, request: bytes) -> None:
        where = next(each for each in WHERE if f"#{each}#".encode() in request)
        assert OPERATOR_KEY.encode() in request
        connection.sendall(echo(where, source, OPERATOR_KEY))

    with RawUpstream(answer) as upstream:
        flags = ["--upstream", f"x={source}:{upstream.url}"]
        with weft_serve(tmp_path, *flags, X_API_KEY=OPERATOR_KEY) as gateway:
            for target, path in PATHS.items():
                for where in WHERE:
                    for stream in (False, True):
                        question = f"#{where}# {target} {stream}"
                        body = request_of(target, question, stream)
                        url = gateway.url + path
                        if target == "gemini" and stream:
                            url = url.replace(":generate", ":streamGenerate") + "?alt=sse"
                        _, headers, answered = post(url, body)
                        row = (source, target, where, stream, answered)
                        assert "SECRET" not in f"{headers}{answered.decode()}", row
                        assert b"ECRET" not in answered, row
            gateway.process.terminate()
            gateway.process.wait(60)
            files = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
            assert b"[redacted]" in files  # the reason is stored, without the key
            assert b"SECRET" not in files


WHERE = ("status", "text", "html", "escaped", "chunks", "200", "stream")


def request_of(protocol: str, text: str, stream: bool) -> dict:
    messages = [{"role": "user", "content": text}]
    if protocol == "gemini":
        return {"contents": [{"role": "user", "parts": [{"text": text}]}]}
    if protocol == "openai-responses":
        return {"model": "m", "input": text, "stream": stream}
    return {"model": "m", "max_tokens": 9, "messages": messages, "stream": stream}
