"""An upstream sends bytes that belong to no request: nobody ever gets them as an answer."""

import asyncio
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from weft.client import GATEWAY_RETRY, HttpClient, make_provider, read_all
from weft.errors import UpstreamFailed


def answer(text: bytes, status: bytes = b"200 OK", extra: bytes = b"") -> bytes:
    length = str(len(text)).encode()
    return (
        b"HTTP/1.1 " + status + b"\r\ncontent-length: " + length + b"\r\n" + extra + b"\r\n" + text
    )


def chunked(text: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + f"{len(text):x}\r\n".encode() + text + b"\r\n0\r\n\r\n"


POISON = answer(b"POISON")

Behaviour = Callable[[socket.socket, bytes], None]


def at_once(first: Callable[[bytes], bytes], late: bytes) -> Behaviour:
    return lambda connection, text: connection.sendall(first(text) + late)


def later(first: Callable[[bytes], bytes], late: bytes) -> Behaviour:
    def send(connection: socket.socket, text: bytes) -> None:
        connection.sendall(first(text))
        time.sleep(0.05)
        connection.sendall(late)

    return send


def in_parts(first: Callable[[bytes], bytes], late: bytes) -> Behaviour:
    def send(connection: socket.socket, text: bytes) -> None:
        connection.sendall(first(text) + late[:9])
        time.sleep(0.05)
        connection.sendall(late[9:])

    return send


FAILED = lambda text: answer(text, b"500 Internal Server Error")  # noqa: E731
INTERIM = lambda text: b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + answer(text)  # noqa: E731
EMPTY = lambda text: b"HTTP/1.1 204 No Content\r\n\r\n"  # noqa: E731, ARG005

ROWS: dict[str, Behaviour] = {
    "a second answer in the same segment": at_once(answer, POISON),
    "a second answer a moment later": later(answer, POISON),
    "ten more answers": at_once(answer, POISON * 10),
    "half a head, the rest later": in_parts(answer, POISON),
    "a head, its body later": in_parts(answer, answer(b"POISON" * 1000)),
    "half a head and nothing more": at_once(answer, b"HTTP/1.1 200 OK\r\ncontent-le"),
    "a head whose last header is open": at_once(answer, b"HTTP/1.1 200 OK\r\nx-a: "),
    "after an error": later(FAILED, POISON),
    "after an error, at once": at_once(FAILED, POISON),
    "after a chunked body": later(chunked, POISON),
    "after a chunked body, at once": at_once(chunked, POISON),
    "part of a head after a chunked body": in_parts(chunked, POISON),
    "after early hints": later(INTERIM, POISON),
    "no HTTP": later(answer, b"\x00\xff garbage POISON"),
    "an interim answer": later(answer, b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a line break": later(answer, b"\r\n"),
    "an answer that closes": later(answer, answer(b"POISON", extra=b"connection: close\r\n")),
}


class Talkative:
    """How many connections it has had; the texts that it has received."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connections = 0
        self.texts: list[bytes] = []


@contextmanager
def talkative(behave: Behaviour, tls: ssl.SSLContext | None = None) -> Iterator[Talkative]:
    """An upstream that answers with the text that it got; `behave` answers the text `first`."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    scheme = "http" if tls is None else "https"
    upstream = Talkative(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}")

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            upstream.connections += 1
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    def serve(connection: socket.socket) -> None:
        with suppress(OSError):
            if tls is not None:
                connection = tls.wrap_socket(connection, server_side=True)
            with connection:
                while (text := read_text(connection)) is not None:
                    upstream.texts.append(text)
                    if text.startswith(b"first"):
                        behave(connection, text)
                    else:
                        connection.sendall(answer(text))

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield upstream
    finally:
        listener.close()


def read_text(connection: socket.socket) -> bytes | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    length = int(lengths[0].partition(b":")[2])
    while len(body) < length:
        body += connection.recv(65536)
    return body


async def ask(http: HttpClient, url: str, text: bytes, owner: str = "") -> bytes:
    provider = make_provider("up", "openai-chat", url)
    reply = await http.post(provider, "/v1/x", text, {}, GATEWAY_RETRY, owner=owner)
    try:
        return await read_all(reply)
    finally:
        reply.close()


@pytest.mark.parametrize("pause", [0.0, 0.03, 0.15])
@pytest.mark.parametrize("row", ROWS)
def test_late_bytes_are_nobodys_answer(row, pause):
    async def run(url: str) -> list[bytes]:
        async with HttpClient() as http:
            texts = [await ask(http, url, b"first", "a")]
            await asyncio.sleep(pause)
            texts.append(await ask(http, url, b"second", "b"))
            await asyncio.sleep(0.1)
            texts.append(await ask(http, url, b"third", "a"))
            texts.append(await ask(http, url, b"fourth" * 100_000, "a"))
            return texts

    with talkative(ROWS[row]) as upstream:
        texts = asyncio.run(run(upstream.url))
    assert texts == [b"first", b"second", b"third", b"fourth" * 100_000]
    assert sorted(upstream.texts) == sorted(texts)  # nothing was sent twice


def test_late_bytes_that_nobody_has_read_yet_are_nobodys_answer():
    """They wait in the socket's buffer: the event loop was busy when they came."""
    with talkative(later(answer, POISON)) as upstream:

        async def run() -> list[bytes]:
            async with HttpClient() as http:
                first = await ask(http, upstream.url, b"first")
                time.sleep(0.2)
                return [first, await ask(http, upstream.url, b"second")]

        assert asyncio.run(run()) == [b"first", b"second"]


def test_an_answer_to_the_last_request_never_reaches_another_caller():
    """The upstream is off by one: it answers each request on a connection with the one before."""
    last: dict[socket.socket, bytes] = {}

    def off_by_one(connection: socket.socket, text: bytes) -> None:
        connection.sendall(answer(last.get(connection, text)))
        last[connection] = text

    async def run(url: str) -> list[tuple[str, bytes]]:
        async with HttpClient() as http:
            owners = ["a", "b", "c"] * 5
            return [
                (owner, await ask(http, url, b"first " + owner.encode(), owner)) for owner in owners
            ]

    with talkative(off_by_one) as upstream:
        answers = asyncio.run(run(upstream.url))
    assert all(text == b"first " + owner.encode() for owner, text in answers)


@pytest.mark.parametrize("first", [answer, chunked, FAILED, INTERIM])
def test_a_silent_connection_is_reused(first):
    async def run(url: str) -> None:
        async with HttpClient() as http:
            for number in range(5):
                text = b"first %d" % number
                assert await ask(http, url, text) == text

    with talkative(lambda connection, text: connection.sendall(first(text))) as upstream:
        asyncio.run(run(upstream.url))
    assert upstream.connections == 1


def test_bytes_before_the_request_are_no_answer():
    listener = socket.create_server(("127.0.0.1", 0))

    def greet() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connection.sendall(POISON)
                time.sleep(0.3)
                connection.close()

    threading.Thread(target=greet, daemon=True).start()

    async def run() -> bytes:
        async with HttpClient() as http:
            return await ask(http, f"http://127.0.0.1:{listener.getsockname()[1]}", b"first")

    with listener, suppress(Exception):
        assert b"POISON" not in asyncio.run(run())


def test_no_http_behind_an_answer_reaches_no_later_request():
    """aiohttp drops the answer that came in the same segment, so that request fails."""
    with talkative(at_once(answer, b"\x00\xff garbage")) as upstream:

        async def run() -> bytes:
            async with HttpClient() as http:
                with suppress(UpstreamFailed):
                    assert await ask(http, upstream.url, b"first") == b"first"
                return await ask(http, upstream.url, b"second")

        assert asyncio.run(run()) == b"second"


def test_a_connection_that_the_upstream_closes_while_idle_costs_no_request():
    def close(connection: socket.socket, text: bytes) -> None:
        connection.sendall(answer(text))
        connection.close()

    with talkative(close) as upstream:

        async def run() -> None:
            async with HttpClient() as http:
                for number in range(50):
                    text = b"first %d" % number
                    assert await ask(http, upstream.url, text) == text
                    time.sleep(0.01)

        asyncio.run(run())
    assert len(upstream.texts) == 50


def test_late_bytes_over_tls_are_nobodys_answer(tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not installed")
    certificate = write_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    send = at_once(answer, POISON)
    with talkative(send, context) as upstream:
        # aiohttp reads the variable when it is imported.
        environ = {**os.environ, "SSL_CERT_FILE": str(certificate)}
        command = [sys.executable, "-c", TLS_CALLS, str(Path(__file__).parent), upstream.url]
        ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["again", "again", "first", "second"], ran.stderr
    assert upstream.connections == 2


TLS_CALLS = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from test_connection import HttpClient, ask

async def run(url):
    async with HttpClient() as http:
        for text in (b"again", b"again", b"first", b"second"):
            print((await ask(http, url, text)).decode())
            await asyncio.sleep(0.3)

asyncio.run(run(sys.argv[2]))
"""


def write_certificate(folder: Path) -> Path:
    """A certificate for 127.0.0.1 with its key, in one file."""
    path = folder / "certificate.pem"
    options = "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost"
    extension = ["-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    subprocess.run(["openssl", *options.split(), *extension, *files], check=True, stderr=-3)
    path.write_bytes((folder / "key.pem").read_bytes() + (folder / "cert.pem").read_bytes())
    return path
