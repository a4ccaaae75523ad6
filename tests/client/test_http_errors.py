"""An upstream that cannot be reached is described without its address."""

import asyncio
import socket

import pytest

from servers import Scripted, scripted_upstream
from weft.client import RELAY, HttpClient, make_provider, read_all
from weft.errors import UpstreamFailed


def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(url):
    async def run():
        async with HttpClient() as http:
            provider = make_provider("up", "anthropic", url)
            reply = await http.post(provider, "/v1/messages", b"{}", {}, RELAY)
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
def test_why_it_cannot_be_reached_is_said_without_its_address(url, words):
    port = closed_port()
    message = ask(url.format(port=port))
    assert "upstream 'up' cannot be reached" in message
    assert words in message
    assert not any(part in message for part in (str(port), "127.0.0.1", "no-such-host"))


def test_a_server_without_tls_is_no_tls_server():
    with scripted_upstream() as upstream:
        upstream.then(Scripted(b"{}"))
        message = ask(upstream.url.replace("http:", "https:"))
    assert "TLS" in message
    assert "127.0.0.1" not in message


def test_an_answer_that_breaks_off_says_so():
    with scripted_upstream() as upstream:
        upstream.then(Scripted(b"half", cut=True))
        message = ask(upstream.url)
    assert "broke off its answer: its body is incomplete" in message
