"""Retries, and errors of the connection."""

import asyncio
import socket
import threading

import pytest

import weft
from servers import Scripted, scripted_upstream
from slow_upstream import streamed
from weft.catalog import load_catalog
from weft.client import (
    AGENT_RETRY,
    GATEWAY_RETRY,
    HttpClient,
    Retry,
    RetryPolicy,
    ask,
    make_provider,
    plan_retry,
    read_all,
)
from weft.errors import UpstreamFailed
from weft.model import Message, Request, Text


@pytest.mark.parametrize(
    ("policy", "attempt", "status", "retry_after", "delay"),
    [
        (AGENT_RETRY, 1, 529, None, 0.5),  # overloaded: the first delay
        (AGENT_RETRY, 2, 529, None, 1.0),  # doubled
        (AGENT_RETRY, 4, 529, None, None),  # the last attempt was made
        (AGENT_RETRY, 1, 400, None, None),  # asking again would not help
        (AGENT_RETRY, 1, 429, "7", 7.0),  # the upstream names its time
        (AGENT_RETRY, 1, 429, "3600", None),  # longer than anybody waits
        (AGENT_RETRY, 1, 429, "soon", 0.5),  # no number: our own pace
        (AGENT_RETRY, 1, 429, "-1", 0.5),
        (AGENT_RETRY, 1, 429, "nan", 0.5),
        (AGENT_RETRY, 1, 0, None, 0.5),  # never reached
        (GATEWAY_RETRY, 1, 0, None, 0.1),  # the gateway repeats what never arrived
        (GATEWAY_RETRY, 1, 529, None, None),  # and leaves the rest to the client's own retries
        (GATEWAY_RETRY, 2, 0, None, None),
        (RetryPolicy(attempts=9, statuses=frozenset({500}), longest=2.0), 8, 500, None, 2.0),
    ],
)
def test_a_retry_is_planned_from_values_alone(policy, attempt, status, retry_after, delay):
    assert plan_retry(policy, attempt, status, retry_after) == delay


AFTER_NOW = [("retry-after", "0")]
MESSAGES = (Message("user", (Text("How many?"),)),)


def test_every_retry_is_reported_before_its_wait_and_without_the_body_of_the_error():
    with scripted_upstream() as upstream:
        busy = Scripted(b'{"error": {"message": "secret words"}}', status=429, headers=AFTER_NOW)
        upstream.then(busy, Scripted(b"{}", status=529, headers=AFTER_NOW), streamed("Forty-two."))
        provider = make_provider("up", "anthropic", upstream.url)
        asked_before: list[int] = []
        retries: list[Retry] = []

        def on_retry(retry: Retry) -> None:
            retries.append(retry)
            asked_before.append(len(upstream.requests))

        async def run():
            async with HttpClient() as http:
                return await ask(
                    http,
                    provider,
                    Request("m", MESSAGES),
                    catalog=load_catalog(),
                    on_retry=on_retry,
                )

        assert asyncio.run(run()).message.text == "Forty-two."
    assert [retry.data() for retry in retries] == [
        {
            **{"upstream": "up", "error_status": 429, "error": "too many requests"},
            **{"attempt": 1, "max_retries": 3, "retry_delay_ms": 0, "delay": "0 s"},
        },
        {
            **{"upstream": "up", "error_status": 529, "error": "overloaded"},
            **{"attempt": 2, "max_retries": 3, "retry_delay_ms": 0, "delay": "0 s"},
        },
    ]
    assert asked_before == [1, 2]


def test_an_unreachable_upstream_is_retried_without_a_status():
    with scripted_upstream() as upstream:
        url = upstream.url  # nothing listens on its port after the block
    provider, retries = make_provider("up", "anthropic", url), list[Retry]()

    async def run():
        async with HttpClient() as http:
            await http.post(provider, "/v1/messages", b"{}", {}, GATEWAY_RETRY, retries.append)

    with pytest.raises(weft.UpstreamFailed):
        asyncio.run(run())
    (retry,) = retries
    data = retry.data()
    assert "error_status" not in data
    assert (data["error"], data["delay"]) == ("connection refused", "0.1 s")


def test_bytes_before_a_disconnect_are_read_by_a_late_reader():
    with scripted_upstream() as upstream:
        upstream.then(Scripted(b"one ", b"two ", b"three", cut=True))
        provider = make_provider("up", "anthropic", upstream.url)

        async def run():
            async with HttpClient() as http:
                reply = await http.post(provider, "/v1/messages", b"{}", {}, GATEWAY_RETRY)
                await asyncio.sleep(0.3)  # by now the connection is lost
                data = b""
                while len(data) < len(b"one two three"):
                    data += await reply.read() or b""
                with pytest.raises(weft.UpstreamFailed):
                    await reply.read()
                reply.close()
                return data

        assert asyncio.run(run()) == b"one two three"


def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask_at(url):
    async def run():
        async with HttpClient() as http:
            provider = make_provider("up", "anthropic", url)
            reply = await http.post(provider, "/v1/messages", b"{}", {}, GATEWAY_RETRY)
            try:
                await read_all(reply)
            finally:
                reply.close()

    with pytest.raises(UpstreamFailed) as failed:
        asyncio.run(run())
    return str(failed.value)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:{port}", "connection refused"),
        ("http://no-such-host.invalid:{port}", "host name is not known"),
    ],
)
def test_a_connection_error_does_not_name_the_address(url, words):
    port = closed_port()
    message = ask_at(url.format(port=port))
    assert "upstream 'up' cannot be reached" in message
    assert words in message
    assert not any(part in message for part in (str(port), "127.0.0.1", "no-such-host"))


def test_a_server_without_tls_is_reported():
    with scripted_upstream() as upstream:
        upstream.then(Scripted(b"{}"))
        message = ask_at(upstream.url.replace("http:", "https:"))
    assert "TLS" in message
    assert "127.0.0.1" not in message


def test_a_truncated_answer_is_reported():
    with scripted_upstream() as upstream:
        upstream.then(Scripted(b"half", cut=True))
        message = ask_at(upstream.url)
    assert "broke off its answer: its body is incomplete" in message


def test_a_server_that_does_not_speak_http_is_reported():
    def answer(listener):
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=answer, args=(listener,))
        server.start()
        message = ask_at(f"http://127.0.0.1:{listener.getsockname()[1]}")
        server.join()
    assert message == "upstream 'up' cannot be reached: it does not answer in HTTP"
