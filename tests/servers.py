"""Real servers for tests: `weft serve` in its own process, and scripted upstreams.

A scripted upstream is a plain HTTP server. It records its requests and answers with the bytes that
the test set, truncated if the test says so.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request as UrlRequest, urlopen

import orjson

SECONDS = 60
"""The deadline of everything that a test waits for; a busy machine needs half of it."""

LAUNCH = "from weft.cli import entry; entry()"
SECRETS = (
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "OPENAI_API_KEY",
    "WEFT_API_KEYS",
    "WEFT_STORE",
)


UPSTREAM_NAMES = {"anthropic": "a", "openai-chat": "c", "openai-responses": "r", "gemini": "g"}
REQUEST_PATHS = {
    "anthropic": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/{model}:generateContent",
}
"""The path to which a client of each protocol posts a request; Gemini's contains the model."""


def post(
    url: str, body: bytes | dict[str, Any], headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer, whatever the status."""
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    arguments = {"content-type": "application/json", **(headers or {})}
    try:
        with urlopen(UrlRequest(url, data, arguments), timeout=SECONDS) as reply:
            return reply.status, _lower(reply.headers), reply.read()
    except HTTPError as error:
        with error:
            return error.code, _lower(error.headers), error.read()


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


class Scripted:
    """One answer: its status, headers and chunks. `cut` drops the connection after the last."""

    def __init__(
        self,
        *pieces: bytes,
        status: int = 200,
        kind: str = "text/event-stream",
        headers: Sequence[tuple[str, str]] = (),
        cut: bool = False,
        pause: float = 0.0,
    ) -> None:
        self.pieces = pieces
        self.status = status
        self.headers = [("content-type", kind), *headers]
        self.cut = cut
        self.pause = pause


class Upstream:
    """The recorded requests, and the answers still to be given; the last one is repeated."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.script: list[Scripted] = []
        self.rule: Callable[[bytes], Scripted] | None = None
        self.models = ["scripted-model"]
        self.url = ""

    def then(self, *answers: Scripted) -> "Upstream":
        """Forget the recorded requests, and answer with these from now on."""
        self.requests.clear()
        self.script = list(answers)
        return self

    def next(self, body: bytes = b"") -> Scripted:
        """The answer to a body: by the test's rule, if it has one, else by the script."""
        if self.rule is not None:
            return self.rule(body)
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]


@contextmanager
def scripted_upstream() -> Iterator[Upstream]:
    """An upstream on a free port."""
    upstream = Upstream()

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            upstream.requests.append({"path": self.path, "headers": headers, "body": body})
            answer = upstream.next(body)
            self.send_response(answer.status)
            for name, value in answer.headers:
                self.send_header(name, value)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for piece in filter(None, answer.pieces):  # an empty chunk would end the body
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.wfile.flush()
                time.sleep(answer.pause)
            if answer.cut:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            self.wfile.write(b"0\r\n\r\n")

        def do_GET(self) -> None:
            body = orjson.dumps({"data": [{"id": name} for name in upstream.models]})
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    upstream.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield upstream
    finally:
        server.shutdown()
        server.server_close()


class Gateway:
    """A running `weft serve`: where it is, its store, and what it logged."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", url: str, store: Path, log: Path
    ) -> None:
        self.process = process
        self.url = url
        self.store = store
        self._log = log

    def lines(self) -> list[dict[str, Any]]:
        """The log's lines of JSON; the last one may be half written."""
        complete_lines = self.log().rpartition("\n")[0].splitlines()
        return [orjson.loads(line) for line in complete_lines if line.startswith("{")]

    def await_lines(
        self, number: int, check: Callable[[dict[str, Any]], bool] = lambda _: True
    ) -> list[dict[str, Any]]:
        """The lines that pass the check, once there are so many of them.

        A line is written after the caller has its answer, so another exchange may be between.
        """
        deadline = time.monotonic() + SECONDS
        while len(lines := [line for line in self.lines() if check(line)]) < number:
            assert time.monotonic() < deadline, f"{len(lines)} lines of {number} in the log"
            time.sleep(0.02)
        return lines

    def line(self, number: int) -> dict[str, Any]:
        """A line by its number, once it is written."""
        return self.await_lines(number + 1)[number]

    def log(self) -> str:
        return self._log.read_text()


@contextmanager
def weft_serve(
    folder: Path, *flags: str, launch: str = LAUNCH, **environ: str
) -> Iterator[Gateway]:
    """`weft serve` on a free port with a store in the folder; ended when the test is done."""
    store, log = folder / "weft.db", folder / "weft.log"
    command = [sys.executable, "-c", launch, "serve", "--port", "0", "--store", str(store), *flags]
    environment = {name: value for name, value in os.environ.items() if name not in SECRETS}
    environment["WEFT_RECORD_WAIT"] = "30"  # a busy machine must not decide what a test sees
    with log.open("wb") as err:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=err, env={**environment, **environ}, cwd=folder
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline().decode()
        assert "http://" in line, f"the server did not start: {line}{log.read_text()}"
        yield Gateway(process, line.split()[-1], store, log)
    finally:
        process.terminate()
        try:
            process.wait(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
