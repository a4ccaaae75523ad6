"""Limits of a gateway: connections, concurrent requests, slow clients."""

import http.client
import re
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import orjson
import pytest
from msgspec import structs

from servers import LAUNCH, REQUEST_PATHS, weft_serve
from stuck_upstream import stuck_upstream
from weft.errors import ConfigError
from weft.gateway import Flags, LimitSettings, read_settings

SECONDS = 60
BODY = orjson.dumps(
    {"model": "mid-body", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
)
STREAMED = BODY[:-1] + b',"stream":true}'
HALF = b"POST %b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n\r\n{"


def start(folder, text, *flags, **options):
    config = folder / "weft.toml"
    config.write_text(text)
    return weft_serve(folder, "--config", str(config), "--no-record", *flags, **options)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A gateway that is full soon, before an upstream that hangs."""
    text = "ping_seconds = 0.1\n[limits]\nrequests = 20\nbody_seconds = 0.5\nheader_seconds = 1\n"
    text += "write_seconds = 0.5\ndrain_seconds = 0.2\n"
    with (
        stuck_upstream() as upstream,
        start(
            tmp_path_factory.mktemp("small"), text, f"--upstream=a=anthropic:{upstream.url}"
        ) as gateway,
    ):
        gateway.upstream = upstream
        yield gateway


def plug(gateway, data=b""):
    """A connection to the gateway, with these bytes sent."""
    place = urlsplit(gateway.url)
    connection = socket.create_connection((place.hostname, place.port), SECONDS)
    connection.sendall(data)
    return connection


def read_all(connection):
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data


def healthy(gateway):
    with urlopen(f"{gateway.url}/healthz", timeout=SECONDS) as reply:
        return reply.status == 200


def request(gateway, body):
    place = urlsplit(gateway.url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=SECONDS)
    connection.request("POST", "/v1/messages", body)
    return connection


def take_every_place(gateway, number):
    """Requests that are being answered. Places of earlier clients may become free only now."""
    running = []
    deadline = time.monotonic() + SECONDS
    while len(running) < number:
        connection = request(gateway, STREAMED)
        if connection.getresponse().status == 200:
            running.append(connection)
        else:
            connection.close()
        assert time.monotonic() < deadline
    return running


@pytest.mark.parametrize("path", [*REQUEST_PATHS.values(), "/v1/messages/count_tokens"])
def test_an_incomplete_body_gets_an_error_in_the_clients_protocol(small, path):
    with plug(small, HALF % path.format(model="m").encode()) as connection:
        answer = read_all(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert "limits.body_seconds" in orjson.loads(body)["error"]["message"]


def test_a_slow_body_for_the_page_is_ended_too(small):
    head = b"POST /api/compact HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\n"
    host = urlsplit(small.url).netloc.encode()
    with plug(small, head % host + b"content-length: 1000\r\n\r\n{") as connection:
        assert read_all(connection).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("data", [b"", b"GET / HT", b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"])
def test_a_connection_that_sends_no_request_is_closed(small, data):
    with plug(small, data) as connection:
        read_all(connection)  # ends when the gateway closes the connection


def test_health_is_answered_when_slow_bodies_use_every_slot(small):
    with ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(plug(small, HALF % b"/v1/messages"))
        assert healthy(small)
    assert healthy(small)


def test_a_full_gateway_refuses_in_the_clients_protocol_and_stays_healthy(small):
    running = take_every_place(small, 20)
    for path in REQUEST_PATHS.values():
        with plug(small, HALF % path.format(model="m").encode()) as connection:
            answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in answer.lower()
        assert "limits.requests" in orjson.loads(answer.split(b"\r\n\r\n")[1])["error"]["message"]
    assert healthy(small)
    for connection in running:
        connection.close()
    deadline = time.monotonic() + SECONDS
    while True:  # the places become free as the gateway notices that their clients left
        with plug(small, HALF % b"/v1/messages") as connection:
            if read_all(connection).startswith(b"HTTP/1.1 408 "):
                break
        assert time.monotonic() < deadline


@pytest.mark.parametrize("body", [BODY, STREAMED], ids=["whole", "stream"])
def test_a_client_that_does_not_read_does_not_keep_its_slot(small, body):
    """Its answer is larger than all buffers on the way."""
    body = body.replace(b"mid-body", b"large-24")
    head = b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n"

    def is_about_it(line):
        return str(line.get("model")).endswith("large-24")

    before = len(small.await_lines(0, is_about_it))
    with plug(small, head % len(body) + body):
        assert small.await_lines(before + 1, is_about_it)[before]["outcome"] == "client_left"


def test_more_streams_are_served_than_the_server_librarys_default(tmp_path):
    """Granian's own default is 128 connections."""
    with (
        stuck_upstream() as upstream,
        start(tmp_path, "", f"--upstream=a=anthropic:{upstream.url}") as gateway,
    ):
        running = [request(gateway, STREAMED) for _ in range(300)]
        upstream.await_requests(300)
        replies = [connection.getresponse() for connection in running]
        assert {reply.status for reply in replies} == {200}
        assert healthy(gateway)
        for connection in running:
            connection.close()
        upstream.await_left(300)


def test_a_low_file_limit_lowers_the_request_limit(tmp_path):
    few = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300)); "
    text = "[limits]\nbody_seconds = 5\n"
    with start(tmp_path, text, launch=few + LAUNCH) as gateway, ExitStack() as stack:
        assert "may open 300 files" in gateway.log()
        slow = [stack.enter_context(plug(gateway, HALF % b"/v1/messages")) for _ in range(200)]
        assert healthy(gateway)
        assert {read_all(connection)[9:12] for connection in slow} == {b"503", b"408"}
        assert healthy(gateway)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[limits]\nidle_seconds = 0", r"the key 'idle_seconds' in \[limits\]"),
        ("[limits]\nidle_seconds = -3", r"the key 'idle_seconds' in \[limits\]"),
        ("[limits]\ntotal_seconds = nan", r"the key 'total_seconds' in \[limits\]"),
        ("[limits]\ntotal_seconds = inf", r"the key 'total_seconds' in \[limits\]"),
        ('[limits]\nconnections = "many"', r"the key 'connections' in \[limits\]"),
        ("[limits]\nanswer_bytes = 1.5", r"the key 'answer_bytes' in \[limits\]"),
        ("[limits]\nidle = 3", r"unknown key 'idle' in \[limits\]"),
        ("[limits]\nrequests = 20\nconnections = 20", "`requests`.*smaller than `connections`"),
        ("max_body = -5", r"max_body"),
        ("ping_seconds = 0", r"ping_seconds"),
    ],
)
def test_a_wrong_limit_is_named(tmp_path, text, words):
    config = tmp_path / "weft.toml"
    config.write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_settings(Flags(config=str(config)), {})


def test_the_guide_lists_every_limit_with_its_default():
    text = (Path(__file__).parents[2] / "docs/guide/limits.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", text, re.MULTILINE))
    fields = structs.asdict(LimitSettings())
    del fields["requests_per_key"]  # half of `requests`
    assert "| `requests_per_key` | half of `requests` |" in text
    assert {name: float(value) for name, value in rows.items()} == fields


def test_limits_come_from_the_file(tmp_path):
    config = tmp_path / "weft.toml"
    config.write_text("[limits]\nidle_seconds = 7\nanswer_bytes = 12\n")
    limits = read_settings(Flags(config=str(config)), {}).limits
    assert (limits.idle_seconds, limits.answer_bytes, limits.total_seconds) == (7.0, 12, 3600.0)
    calls = limits.for_calls()
    assert (calls.idle, calls.answer_bytes, calls.connections) == (7.0, 12, 4096)
