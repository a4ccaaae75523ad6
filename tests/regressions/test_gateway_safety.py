"""What an upstream or a client does to one caller never reaches another."""

import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import orjson
import pytest

from servers import LAUNCH, post, weft_serve

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


@pytest.mark.parametrize("head", ["content-encoding: snappy", "999"])
def test_an_answer_in_an_unknown_form_is_an_error(tmp_path, head):
    def answer(connection: socket.socket, _: bytes) -> None:
        if head == "999":
            connection.sendall(http(chat_body("GOOD"), "999 Weird"))
        else:
            connection.sendall(http(chat_body("GOOD"), headers=head + "\r\n"))

    with RawUpstream(answer) as upstream:
        flags = ["--upstream", f"x=openai-chat:{upstream.url}"]
        with weft_serve(tmp_path, *flags) as gateway:
            status, _, body = ask(gateway, "hello")
    assert status == 502
    assert b"answered with an unknown" in body


def raw_request(gateway, data: bytes) -> bytes:
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(data)
        answered = b""
        with suppress(OSError):
            while piece := connection.recv(65536):
                answered += piece
        return answered


@pytest.fixture(scope="module")
def offline(tmp_path_factory):
    with weft_serve(tmp_path_factory.mktemp("offline")) as running:
        yield running


CHUNKED = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
)


@pytest.mark.parametrize(
    "chunks",
    [
        b"-1\r\nabc\r\n",
        b"FFFFFFFFFFFFFFFFF\r\nabc\r\n",  # more than 64 bits
        b"5;" + b"e" * 300_000 + b"\r\nabcde\r\n0\r\n\r\n",
        b"zz\r\nabc\r\n",
        b"3\r\nabcdef\r\n0\r\n\r\n",  # no line break after the chunk
    ],
)
def test_a_badly_framed_body_is_the_clients_error(offline, chunks):
    answered = raw_request(offline, CHUNKED + chunks)
    assert answered.startswith(b"HTTP/1.1 400 "), answered[:200]


@pytest.mark.parametrize("host", [b"", b"host:\r\n", b"host: \r\n"])
def test_a_request_without_a_host_is_refused(offline, host):
    body = orjson.dumps({"model": "weft-offline", "messages": [{"role": "user", "content": "x"}]})
    head = b"POST /v1/chat/completions HTTP/1.1\r\n" + host + b"connection: close\r\n"
    answered = raw_request(offline, head + b"content-length: %d\r\n\r\n" % len(body) + body)
    assert answered.startswith(b"HTTP/1.1 400 "), answered[:200]


PAGE = "weft.example.com"


def render(gateway, **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    body = b'{"text":"x"}'
    head = f"POST /api/render HTTP/1.1\r\n{lines}content-type: application/json\r\n"
    head += f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return raw_request(gateway, head.encode() + body)[9:12]


@pytest.fixture(scope="module")
def proxied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("proxied")
    (folder / "weft.toml").write_text(f'trusted_hosts = ["{PAGE}", "other.example.com:8443"]\n')
    with weft_serve(folder, "--config", "weft.toml") as running:
        yield running


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:8787", f"https://{PAGE}", b"200"),  # nginx replaces `Host` by default
        (PAGE, f"https://{PAGE}", b"200"),  # `proxy_set_header Host $host`
        (PAGE, f"https://{PAGE.upper()}", b"200"),
        ("127.0.0.1:8787", "https://other.example.com:8443", b"200"),
        ("127.0.0.1:8787", "https://other.example.com", b"403"),  # another port, another site
        ("127.0.0.1:8787", f"https://{PAGE}:444", b"403"),
        ("127.0.0.1:8787", "https://evil.example.com", b"403"),  # a foreign page (CSRF)
        ("127.0.0.1:8787", f"https://{PAGE}.evil.com", b"403"),
        ("127.0.0.1:8787", f"https://evil{PAGE}", b"403"),
        ("127.0.0.1:8787", f"file://{PAGE}", b"403"),
        ("127.0.0.1:8787", "null", b"403"),
        ("evil.example.com", "https://evil.example.com", b"403"),  # DNS rebinding
        ("evil.example.com", None, b"403"),
        (PAGE, None, b"200"),
    ],
)
def test_the_page_works_behind_a_reverse_proxy_and_no_other_does(proxied, host, origin, status):
    headers = {"host": host} if origin is None else {"host": host, "origin": origin}
    assert render(proxied, **headers) == status
    # Anybody can send this header, so it changes nothing.
    assert render(proxied, **headers, x_forwarded_host=PAGE) == status
    assert render(proxied, **headers, x_forwarded_host="evil.example.com") == status


def test_without_the_setting_no_other_host_is_trusted(offline):
    rewritten = {"host": "127.0.0.1:8787", "x_forwarded_host": PAGE}
    assert render(offline, **rewritten, origin=f"https://{PAGE}") == b"403"
    assert render(offline, host=PAGE, origin=f"https://{PAGE}") == b"403"


def test_the_page_works_behind_nginx(tmp_path, proxied):
    nginx = shutil.which("nginx")
    if nginx is None:
        pytest.skip("nginx is not installed")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    guide = Path(__file__).parents[2] / "docs/guide/reverse-proxy.md"
    text = guide.read_text().partition("```nginx")[2].partition("```")[0]
    location = text[text.index("location /") : text.index("}\n}") + 1]
    location = location.replace("http://127.0.0.1:8787", proxied.url)
    mapping = text[text.index("map ") :]
    config = tmp_path / "nginx.conf"
    config.write_text(
        f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log;\n"
        "events {}\n"
        "http {\n"
        f"  access_log off; client_body_temp_path {tmp_path}/body; proxy_temp_path {tmp_path}/p;\n"
        f"  fastcgi_temp_path {tmp_path}/f; uwsgi_temp_path {tmp_path}/u;\n"
        f"  scgi_temp_path {tmp_path}/s;\n"
        f"  server {{ listen 127.0.0.1:{port}; server_name {PAGE};\n"
        f"    location /default/ {{ proxy_pass {proxied.url}/; }}\n"
        f"    {location} }}\n"
        f"  {mapping}\n"
        "}\n"
    )
    process = subprocess.Popen([nginx, "-c", str(config), "-e", str(tmp_path / "error.log")])
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)

        class Proxy:
            url = f"http://127.0.0.1:{port}"

        assert render(Proxy, host=PAGE, origin=f"https://{PAGE}") == b"200"
        ws = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-version": "13"}
        head = "".join(f"{name}: {value}\r\n" for name, value in ws.items())
        head += f"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nhost: {PAGE}\r\n"
        head += f"origin: https://{PAGE}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port), 60) as page_socket:
            page_socket.sendall(b"GET /ws HTTP/1.1\r\n" + head.encode())
            assert page_socket.recv(100).startswith(b"HTTP/1.1 101 ")
        assert render(Proxy, host=PAGE, origin="https://evil.example.com") == b"403"
        assert b"x-request-id" in raw_request(
            Proxy, f"GET / HTTP/1.1\r\nhost: {PAGE}\r\nconnection: close\r\n\r\n".encode()
        )
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_lets_a_running_answer_finish(tmp_path, number):
    begun, signalled = threading.Event(), threading.Event()

    def answer(connection: socket.socket, _: bytes) -> None:
        body = chat_body("complete")
        connection.sendall(http(body)[:-10])
        begun.set()
        signalled.wait(60)
        connection.sendall(body[-10:])

    with RawUpstream(answer) as upstream:
        flags = ["--upstream", f"x=openai-chat:{upstream.url}"]
        with weft_serve(tmp_path, *flags) as gateway:
            answers = []
            asking = threading.Thread(target=lambda: answers.append(ask(gateway, "hello")))
            asking.start()
            assert begun.wait(60)
            gateway.process.send_signal(number)
            time.sleep(0.2)  # the signal arrives before the end of the answer
            signalled.set()
            asking.join(60)
            assert gateway.process.wait(60) == 0
    status, _, body = answers[0]
    assert (status, b"complete" in body) == (200, True)


def test_a_host_name_that_is_too_long_is_one_clear_line(tmp_path):
    store = f"postgresql://u:PASSWORD@{'a' * 70}.b/x"
    command = [sys.executable, "-c", LAUNCH, "threads", "--store", store]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.returncode == 1
    assert ran.stderr.count("\n") == 1
    assert "cannot be reached" in ran.stderr
    assert "PASSWORD" not in ran.stderr
