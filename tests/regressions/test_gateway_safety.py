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
