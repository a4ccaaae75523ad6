"""Every upstream call ends: by a deadline, a disconnect, broken framing, or a signal."""

import asyncio
import gc
import http.client
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import anthropic
import openai
import orjson
import pytest

from servers import UPSTREAM_NAMES, post, weft_serve
from stuck_upstream import HANGS, stuck_upstream
from weft.client import make_provider
from weft.gateway import LimitSettings, Settings, build, open_state, tune_interpreter

PROTOCOLS = tuple(UPSTREAM_NAMES)
PAIRS = [
    *((protocol, protocol) for protocol in PROTOCOLS),
    ("anthropic", "openai-chat"),
    ("openai-chat", "openai-responses"),
    ("openai-responses", "gemini"),
    ("gemini", "anthropic"),
]
"""Client and upstream: each protocol with itself, and once with another on each side."""
SECONDS = 60
"""Whatever takes longer than this hangs."""
SHORT_DEADLINES = """
ping_seconds = 0.1
[limits]
first_byte_seconds = 0.5
idle_seconds = 0.5
total_seconds = 2
acquire_seconds = 0.3
drain_seconds = 0.3
"""
LONG_DEADLINES = "ping_seconds = 0.1\n[limits]\ndrain_seconds = 0.3\n"
"""Deadlines of minutes: what ends here does not end by them."""
NARROW = f"{LONG_DEADLINES}upstream_connections = 20\nacquire_seconds = 4\nanswer_bytes = 2000000\n"
"""Few connections, which calls hold for as long as a test wants, and small answers."""


@pytest.fixture(scope="module")
def upstream():
    with stuck_upstream() as running:
        yield running


def start(folder, upstream, text):
    config = folder / "weft.toml"
    config.write_text(text)
    flags = [f"--upstream={UPSTREAM_NAMES[name]}={name}:{upstream.url}" for name in PROTOCOLS]
    return weft_serve(folder, "--config", str(config), *flags)


@pytest.fixture(scope="module")
def impatient(tmp_path_factory, upstream):
    with start(tmp_path_factory.mktemp("deadlines"), upstream, SHORT_DEADLINES) as running:
        yield running


@pytest.fixture(scope="module")
def narrow(tmp_path_factory, upstream):
    with start(tmp_path_factory.mktemp("narrow"), upstream, NARROW) as running:
        yield running


@pytest.fixture(scope="module")
def patient(tmp_path_factory, upstream):
    with start(tmp_path_factory.mktemp("patient"), upstream, LONG_DEADLINES) as running:
        yield running


def ask(client, target, behaviour, streams):
    """The path and the body that make an upstream behave in this way."""
    model, words = f"{UPSTREAM_NAMES[target]}/{behaviour}", f"{client} {target} {behaviour}"
    messages = [{"role": "user", "content": words}]
    match client:
        case "anthropic":
            body = {"model": model, "max_tokens": 9, "messages": messages, "stream": streams}
            return "/v1/messages", body
        case "openai-chat":
            return "/v1/chat/completions", {"model": model, "messages": messages, "stream": streams}
        case "openai-responses":
            return "/v1/responses", {"model": model, "input": messages, "stream": streams}
        case _:
            verb = "streamGenerateContent?alt=sse" if streams else "generateContent"
            body = {"contents": [{"role": "user", "parts": [{"text": words}]}]}
            return f"/v1beta/models/{model}:{verb}", body


def connect(gateway):
    place = urlsplit(gateway.url)
    return http.client.HTTPConnection(place.hostname, place.port, timeout=SECONDS)


def send(gateway, path, body):
    """The status and the body of an answer, on a separate connection."""
    connection = connect(gateway)
    connection.request("POST", path, orjson.dumps(body), {"content-type": "application/json"})
    reply = connection.getresponse()
    data = reply.read()
    connection.close()
    return reply.status, data


def is_error(client, data):
    """Whether a stream ends in its protocol's own form of an error."""
    last = data.strip().split(b"\n")[-1]
    fields = orjson.loads(last.removeprefix(b"data: "))
    match client:
        case "anthropic":
            return fields["type"] == "error"
        case "openai-responses":
            return fields["type"] in ("error", "response.failed")
        case _:
            return "error" in fields


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("behaviour", HANGS)
@pytest.mark.parametrize(("client", "target"), PAIRS)
def test_an_upstream_that_hangs_ends_in_an_error(
    impatient, upstream, client, target, behaviour, streams
):
    left = upstream.left
    status, data = send(impatient, *ask(client, target, behaviour, streams))
    if streams and behaviour != "before-headers" and status == 200:  # our pings began the answer
        assert is_error(client, data)
    else:
        assert status == 504, data
        assert b"error" in data
    upstream.await_left(left + 1)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("client", "target"), PAIRS)
def test_broken_framing_ends_in_an_error_at_once(patient, upstream, client, target, streams):
    left = upstream.left
    status, data = send(patient, *ask(client, target, "bad-chunk", streams))
    if streams:
        assert status == 200
        assert is_error(client, data)
    else:
        assert status == 502, data
    upstream.await_left(left + 1)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("behaviour", HANGS)
@pytest.mark.parametrize(("client", "target"), PAIRS)
def test_a_disconnected_client_ends_the_upstream_call(
    patient, upstream, client, target, behaviour, streams
):
    left, requests = upstream.left, upstream.requests
    path, body = ask(client, target, behaviour, streams)
    connection = connect(patient)
    connection.request("POST", path, orjson.dumps(body), {"content-type": "application/json"})
    upstream.await_requests(requests + 1)
    connection.close()
    upstream.await_left(left + 1)


def test_a_client_that_disconnects_during_a_token_count_ends_the_call(patient, upstream):
    left, requests = upstream.left, upstream.requests
    path, body = ask("anthropic", "anthropic", "before-headers", False)
    connection = connect(patient)
    connection.request("POST", f"{path}/count_tokens", orjson.dumps(body))
    upstream.await_requests(requests + 1)
    connection.close()
    upstream.await_left(left + 1)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
def test_an_endless_answer_is_ended(impatient, streams):
    """Bytes come all the time, so only the deadline of the whole call can end it."""
    status, data = send(impatient, *ask("anthropic", "anthropic", "drip", streams))
    assert is_error("anthropic", data) if streams else status == 504


@pytest.mark.parametrize("client", ["anthropic", "openai-chat"])
def test_an_answer_beyond_the_limit_is_an_error(narrow, client):
    status, data = send(narrow, *ask(client, "anthropic", "large-4", False))
    assert status == 502
    assert b"limits.answer_bytes" in data


def await_answer(gateway, protocol):
    """Wait until the upstream's call has an answer; on a busy machine a short deadline may pass."""
    deadline = time.monotonic() + SECONDS
    while send(gateway, *ask(protocol, protocol, "ok", False))[0] != 200:
        assert time.monotonic() < deadline


def test_a_call_without_a_free_connection_gets_an_error(narrow, upstream):
    left, requests = upstream.left, upstream.requests
    path, body = ask("anthropic", "anthropic", "before-headers", False)
    waiting = [connect(narrow) for _ in range(20)]
    for connection in waiting:
        connection.request("POST", path, orjson.dumps(body))
    upstream.await_requests(requests + 20)
    status, data = send(narrow, *ask("anthropic", "anthropic", "ok", False))
    for connection in waiting:
        connection.close()
    upstream.await_left(left + 20)
    assert status == 503
    assert b"limits.upstream_connections" in data
    await_answer(narrow, "anthropic")


def test_abandoned_calls_free_their_connections(narrow, upstream):
    for round in range(3):
        left, requests = upstream.left, upstream.requests
        path, body = ask("openai-chat", "openai-chat", "mid-body", round == 1)
        gone = [connect(narrow) for _ in range(20)]
        for connection in gone:
            connection.request("POST", path, orjson.dumps(body))
        upstream.await_requests(requests + 20)
        for connection in gone:
            connection.close()
        upstream.await_left(left + 20)
    await_answer(narrow, "openai-chat")


def test_the_official_clients_raise(impatient):
    claude = anthropic.Anthropic(base_url=impatient.url, api_key="k", max_retries=0)
    with pytest.raises(anthropic.APIStatusError):
        claude.messages.create(
            model="a/mid-body", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
        )
    with (
        pytest.raises(anthropic.APIStatusError),
        claude.messages.stream(
            model="c/mid-body", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
        ) as stream,
    ):
        stream.until_done()
    chat = openai.OpenAI(base_url=f"{impatient.url}/v1", api_key="k", max_retries=0)
    with pytest.raises(openai.APIError):
        list(
            chat.chat.completions.create(
                model="c/mid-body", messages=[{"role": "user", "content": "hi"}], stream=True
            )
        )
    claude.close()
    chat.close()


def test_the_log_has_the_reason_and_whether_a_part_arrived(tmp_path, upstream):
    # A gateway of its own: an earlier test's exchange may still write its line.
    with start(tmp_path, upstream, LONG_DEADLINES) as gateway:
        left, requests = upstream.left, upstream.requests
        path, body = ask("anthropic", "anthropic", "mid-body", True)
        connection = connect(gateway)
        connection.request("POST", path, orjson.dumps(body))
        upstream.await_requests(requests + 1)
        reply = connection.getresponse()
        reply.read(10)
        reply.close()
        connection.close()
        upstream.await_left(left + 1)
        line = gateway.line(0)
        assert (line["partial"], line["outcome"], line["error"]) == (
            True,
            "client_left",
            "client_left",
        )


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_running_answers_after_the_grace_period(tmp_path, upstream, number, streams):
    with start(tmp_path, upstream, LONG_DEADLINES) as gateway:
        requests, left = upstream.requests, upstream.left
        path, body = ask("openai-responses", "anthropic", "mid-body", streams)
        connection = connect(gateway)
        connection.request("POST", path, orjson.dumps(body))
        upstream.await_requests(requests + 1)
        begun = connection.getresponse() if streams else None  # a stream begins with our ping
        gateway.process.send_signal(number)
        reply = begun or connection.getresponse()
        data = reply.read()
        connection.close()
        assert is_error("openai-responses", data) if streams else reply.status == 503
        upstream.await_left(left + 1)
        assert gateway.process.wait(SECONDS) == 0
        assert "panicked" not in gateway.log()
        assert "Traceback" not in gateway.log()


def test_a_running_answer_can_finish_within_the_grace_period(tmp_path, upstream):
    config = LONG_DEADLINES.replace("0.3", "20")
    with start(tmp_path, upstream, config) as gateway:
        connection = connect(gateway)
        body = {"model": "weft-offline", "messages": [{"role": "user", "content": "hi"}]}
        connection.request("POST", "/v1/chat/completions", orjson.dumps({**body, "stream": True}))
        reply = connection.getresponse()
        gateway.process.send_signal(signal.SIGTERM)
        assert reply.read().endswith(b"data: [DONE]\n\n")
        connection.close()
        assert gateway.process.wait(SECONDS) == 0


def catches(pid, number):
    """Whether a process has a handler for a signal."""
    [caught] = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(caught, 16) >> (number - 1) & 1)


def test_a_second_signal_ends_the_process_at_once(tmp_path, upstream):
    with start(tmp_path, upstream, LONG_DEADLINES.replace("0.3", "500")) as gateway:
        requests = upstream.requests
        path, body = ask("anthropic", "anthropic", "mid-body", True)
        connection = connect(gateway)
        connection.request("POST", path, orjson.dumps(body))
        upstream.await_requests(requests + 1)
        gateway.process.send_signal(signal.SIGTERM)
        while catches(gateway.process.pid, signal.SIGTERM):  # a second one too soon would be lost
            time.sleep(0.02)
        assert gateway.process.poll() is None
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(SECONDS) == -signal.SIGTERM
        connection.close()


def test_the_connect_deadline_ends_a_call(tmp_path):
    """A listener whose queue is full answers no connection."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        fill = [socket.socket() for _ in range(4)]
        for one in fill:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        config = tmp_path / "weft.toml"
        config.write_text("[limits]\nconnect_seconds = 0.3\n")
        flags = ("--config", str(config), f"--upstream=a=anthropic:http://127.0.0.1:{port}")
        with weft_serve(tmp_path, *flags) as gateway:
            status, _, data = post(
                f"{gateway.url}/v1/messages", ask("anthropic", "anthropic", "x", False)[1]
            )
        for one in fill:
            one.close()
    assert (status, b"accepted no connection" in data) == (504, True)


class Client:
    """A client of the application itself: sends a request, reads the answer, may leave."""

    def __init__(self, app, path, body):
        self.received = asyncio.Queue()
        self.received.put_nowait(
            {"type": "http.request", "body": orjson.dumps(body), "more_body": False}
        )
        self.sent = []
        address, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": "POST",
            "path": address,
            "query_string": query.encode(),
            "headers": [(b"host", b"127.0.0.1")],
        }
        self.call = asyncio.ensure_future(app(scope, self.received.get, self.send))

    async def send(self, message):
        self.sent.append(message)

    def leave(self):
        self.received.put_nowait({"type": "http.disconnect"})


def test_nothing_keeps_running_after_failures_and_disconnects(tmp_path, upstream):
    """Tasks and sockets are counted in the process that serves."""
    providers = tuple(
        make_provider(name, protocol, upstream.url) for protocol, name in UPSTREAM_NAMES.items()
    )
    limits = LimitSettings(first_byte_seconds=1, idle_seconds=1)
    settings = Settings(
        store=str(tmp_path / "weft.db"), providers=providers, limits=limits, ping_seconds=0.05
    )
    rows = [
        (client, target, behaviour, streams)
        for client, target in PAIRS
        for behaviour in (*HANGS, "bad-chunk")
        for streams in (False, True)
    ]

    async def run():
        async with open_state(settings) as state:
            app = build(state)
            await Client(app, *ask("anthropic", "anthropic", "ok", False)).call
            tasks, files = asyncio.all_tasks(), count_sockets()
            for leaves in (False, True):
                requests = upstream.requests
                clients = [Client(app, *ask(*row)) for row in rows]
                if leaves:
                    await asyncio.to_thread(upstream.await_requests, requests + len(rows))
                    for client in clients:
                        client.leave()
                await asyncio.wait_for(asyncio.gather(*(c.call for c in clients)), SECONDS)
                if not leaves:
                    assert all(client.sent[-1]["more_body"] is False for client in clients)
            for _ in range(3000):  # a closed socket goes with the loop's next rounds
                if count_sockets() <= files and asyncio.all_tasks() == tasks:
                    break
                await asyncio.sleep(0.02)
            assert asyncio.all_tasks() == tasks
            assert count_sockets() <= files
            assert not state.gate.guards

    asyncio.run(run())


def count_sockets():
    return sum(
        is_socket(os.path.join("/proc/self/fd", name)) for name in os.listdir("/proc/self/fd")
    )


def is_socket(path):
    try:
        return "socket:" in os.readlink(path)
    except FileNotFoundError:  # another thread closed it after it was listed
        return False


@pytest.fixture
def tuned():
    """The interpreter as the server has it."""
    before, thresholds = sys.getswitchinterval(), gc.get_threshold()
    tune_interpreter()
    yield
    sys.setswitchinterval(before)
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.usefixtures("tuned")
def test_a_huge_body_does_not_block_the_event_loop(tmp_path, upstream):
    """The most CPU time that the loop's thread takes at once is compared with that of the whole
    process: on the loop itself, translating such a body is most of it."""
    provider = make_provider("g", "gemini", upstream.url)
    settings = Settings(store=str(tmp_path / "weft.db"), providers=(provider,), record=False)
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": f"message number {at}"} for at in range(40_001)]
    body = {"model": "g/ok", "max_tokens": 9, "messages": messages}

    async def run():
        async with open_state(settings) as state:
            client = Client(build(state), "/v1/messages", body)
            begin, last, longest = time.process_time(), time.thread_time(), 0.0
            while not client.call.done():
                await asyncio.sleep(0.001)
                now = time.thread_time()
                longest, last = max(longest, now - last), now
            assert client.sent[0]["status"] == 200
            assert longest < (time.process_time() - begin) / 2

    asyncio.run(run())
