"""Calls to upstreams go through the proxies of the environment, or the upstream's own."""

import base64
import socket
import ssl
import subprocess
import threading
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from exact_upstream import ANSWERS
from servers import post, weft_serve

PASSWORD = "hunter2-of-the-proxy"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
WHOLE = ANSWERS["openai-chat"][0]
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
    len(WHOLE),
    WHOLE,
)


def read_request(connection):
    """The head of a request, after its body has been read; empty if the client has left."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
    left = (int(lengths[0].partition(b":")[2]) if lengths else 0) - len(body)
    while left > 0:
        left -= len(connection.recv(65536))
    return head


class Listener:
    """A server that answers each connection in a thread, and keeps the heads of requests."""

    def __init__(self):
        self.heads = []
        self.connections = 0
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, suppress(OSError):
            self.serve(connection)


class TlsUpstream(Listener):
    def __init__(self, certificate, key):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        super().__init__()

    def serve(self, connection):
        with self.context.wrap_socket(connection, server_side=True) as secure:
            while head := read_request(secure):
                self.heads.append(head)
                secure.sendall(ANSWER)


class Proxy(Listener):
    """A proxy that sends every tunnel to one port, whatever host was asked for."""

    def __init__(self, target=0, status=b"200 OK"):
        self.target = target
        self.status = status
        super().__init__()

    def serve(self, connection):
        while head := read_request(connection):
            self.heads.append(head)
            if not head.startswith(b"CONNECT "):
                connection.sendall(ANSWER)
                continue
            connection.sendall(b"HTTP/1.1 " + self.status + b"\r\n\r\n")
            if not self.status.startswith(b"200"):
                return
            with socket.create_connection(("127.0.0.1", self.target)) as upstream:
                back = threading.Thread(target=copy, args=(upstream, connection), daemon=True)
                back.start()
                copy(connection, upstream)
                back.join()
            return


def copy(source, target):
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """A TLS upstream for `api.example.test`, and the file of the authority that signed it."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    name = ["-subj", "/CN=api.example.test", "-addext", "subjectAltName=DNS:api.example.test"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *name, *files], check=True, capture_output=True)
    upstream = TlsUpstream(certificate, key)
    yield upstream, str(certificate)
    upstream.server.close()


def ask(gateway, headers=None):
    return post(f"{gateway.url}/v1/chat/completions", BODY, headers or {})


def test_a_tunnel_of_the_environment_is_used_for_tls(tmp_path, tls):
    upstream, authority = tls
    proxy = Proxy(upstream.port)
    environ = {
        "HTTPS_PROXY": f"http://me:{PASSWORD}@127.0.0.1:{proxy.port}",
        "SSL_CERT_FILE": authority,
        "X_API_KEY": "the-key-of-x",
    }
    with weft_serve(tmp_path, "--upstream=x=openai-chat:https://api.example.test", **environ) as g:
        for _ in range(3):
            status, headers, answer = ask(g)
            assert (status, answer) == (200, WHOLE)
            assert PASSWORD not in str(headers)
        assert PASSWORD not in g.log()
    assert {head.split(b"\r\n")[0] for head in proxy.heads} == {
        b"CONNECT api.example.test:443 HTTP/1.1"
    }
    login = base64.b64encode(f"me:{PASSWORD}".encode())
    assert all(b"Basic " + login in head for head in proxy.heads)
    assert all(b"the-key-of-x" not in head for head in proxy.heads)  # only inside the tunnel
    assert all(login not in head for head in upstream.heads)


def test_callers_share_no_connection_through_a_proxy(tmp_path, tls):
    upstream, authority = tls
    proxy = Proxy(upstream.port)
    environ = {
        "https_proxy": f"http://127.0.0.1:{proxy.port}",
        "SSL_CERT_FILE": authority,
        "WEFT_API_KEYS": "key-number-one,key-number-two",
    }
    with weft_serve(tmp_path, "--upstream=x=openai-chat:https://api.example.test", **environ) as g:
        for name in ("one", "two", "one", "two"):
            assert ask(g, {"x-api-key": f"key-number-{name}"})[0] == 200
    assert len(proxy.heads) == 2  # one tunnel for each caller, used again


def test_a_plain_upstream_is_asked_through_http_proxy(tmp_path):
    proxy = Proxy()
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        proxy.heads.clear()
        environ = {name: f"127.0.0.1:{proxy.port}"}
        with weft_serve(
            tmp_path, "--upstream=x=openai-chat:http://api.example.test", **environ
        ) as g:
            assert ask(g)[0] == 200
        assert proxy.heads[0].startswith(b"POST http://api.example.test/v1/chat/completions ")


@pytest.mark.parametrize(
    ("url", "environ", "settings"),
    [
        ("http://api.example.test", {"NO_PROXY": "example.test"}, ""),
        ("http://api.example.test", {"NO_PROXY": "x, .example.test"}, ""),
        ("http://api.example.test", {"no_proxy": "*"}, ""),
        ("http://api.example.test:81", {"NO_PROXY": "api.example.test:81"}, ""),
        ("http://192.0.2.9:9", {"NO_PROXY": "192.0.2.0/24"}, ""),
        ("http://api.example.test", {}, " proxy=none"),
        ("http://127.0.0.1:9", {}, ""),
        ("http://localhost:9", {}, ""),
        ("http://[::1]:9", {}, ""),
    ],
)
def test_some_upstreams_are_asked_without_the_proxy(tmp_path, url, environ, settings):
    proxy = Proxy()
    environ = {"HTTP_PROXY": f"http://127.0.0.1:{proxy.port}", **environ}
    config = tmp_path / "weft.toml"
    config.write_text("[limits]\nconnect_seconds = 0.5\n")
    spec = f"--upstream=x=openai-chat:{url}{settings}"
    with weft_serve(tmp_path, f"--config={config}", spec, **environ) as gateway:
        assert ask(gateway)[0] in (502, 504)
    assert proxy.connections == 0


def test_the_proxy_of_an_upstream_wins_also_for_loopback(tmp_path):
    proxy = Proxy()
    spec = f"--upstream=x=openai-chat:http://127.0.0.1:9 proxy=http://127.0.0.1:{proxy.port}"
    with weft_serve(tmp_path, spec, NO_PROXY="*", HTTP_PROXY="http://127.0.0.1:1") as gateway:
        assert ask(gateway)[0] == 200
    assert urlsplit(proxy.heads[0].split()[1].decode()).path == "/v1/chat/completions"


FAILURES = [
    (
        "https",
        {"status": b"407 Proxy Authentication Required"},
        "its proxy answered with status 407",
    ),
    ("https", {"status": b"502 Bad Gateway"}, "its proxy answered with status 502"),
]


@pytest.mark.parametrize(("scheme", "options", "words"), FAILURES)
def test_a_failing_proxy_is_explained_without_its_password(tmp_path, scheme, options, words):
    proxy = Proxy(**options)
    environ = {"HTTPS_PROXY": f"http://me:{PASSWORD}@127.0.0.1:{proxy.port}"}
    spec = f"--upstream=x=openai-chat:{scheme}://api.example.test"
    with weft_serve(tmp_path, spec, **environ) as gateway:
        status, _, answer = ask(gateway)
        assert (status, words in answer.decode()) == (502, True), answer
        assert PASSWORD not in gateway.log() + answer.decode()


@pytest.mark.parametrize(
    ("proxy", "words"),
    [
        (f"http://me:{PASSWORD}@127.0.0.1:1", "its proxy cannot be reached"),
        (f"socks5://me:{PASSWORD}@127.0.0.1:1", "SOCKS is not supported"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_explained(tmp_path, proxy, words):
    spec = "--upstream=x=openai-chat:http://api.example.test"
    with weft_serve(tmp_path, spec, ALL_PROXY=proxy) as gateway:
        status, _, answer = ask(gateway)
        assert (status, words in answer.decode()) == (502, True), answer
        assert PASSWORD not in gateway.log() + answer.decode()
