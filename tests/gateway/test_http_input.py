"""Unusual HTTP input: hosts, headers, deep or compressed bodies, missing keys."""

import gzip
import http.client
import socket
import zlib
from urllib.parse import urlsplit

import orjson
import pytest
import zstandard

from servers import REQUEST_PATHS, UPSTREAM_NAMES, Scripted, post, scripted_upstream, weft_serve
from weft.errors import Refused
from weft.gateway import decompress, header_bytes, parse_body

MESSAGES = {"model": "weft-offline", "max_tokens": 9}
MESSAGES["messages"] = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def upstream():
    with scripted_upstream() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, upstream):
    names = UPSTREAM_NAMES.items()
    flags = [f"--upstream={name}={protocol}:{upstream.url}" for protocol, name in names]
    with weft_serve(tmp_path_factory.mktemp("edges"), *flags) as running:
        yield running
        assert "Traceback" not in running.log()


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    with weft_serve(tmp_path_factory.mktemp("keyed"), WEFT_API_KEYS="one") as running:
        yield running
        assert "Traceback" not in running.log()


def get(url, path, headers, method="GET"):
    """The status of a plain request; `Host` and `Origin` are sent as they are given."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    connection.putrequest(method, path, skip_host="host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    try:
        return connection.getresponse().status
    finally:
        connection.close()


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


SIX = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost",
        "127.0.0.1",
        pytest.param("[::1]", marks=SIX),
        pytest.param("::1", marks=SIX),
    ],
)
def test_every_spelling_of_localhost_is_served(tmp_path, host):
    with weft_serve(tmp_path, "--host", host) as gateway:
        assert urlsplit(gateway.url).hostname == host.strip("[]").lower()
        assert get(gateway.url, "/healthz", {}) == 200
        assert post(f"{gateway.url}/v1/messages", MESSAGES)[0] == 200


@pytest.mark.parametrize("path", ["/", "/api/threads", "/v1/models", "/v1/nothing", "/healthz"])
@pytest.mark.parametrize(
    "headers",
    [
        {"host": "[::1"},
        {"host": "["},
        {"host": "a]b"},
        {"host": "127.0.0.1:port"},
        {"host": "127.0.0.1:99999"},
        {"host": "a@b"},
        {"host": "a/b"},
        {"origin": "http://[::1"},
        {"origin": "]["},
        {"origin": "http://127.0.0.1:port"},
    ],
)
def test_a_malformed_host_or_origin_is_a_client_error(gateway, keyed, path, headers):
    if path == "/healthz":  # says nothing about anybody
        assert get(gateway.url, path, headers) in (200, 400)
        return
    assert 400 <= get(gateway.url, path, headers) < 500
    assert 400 <= get(keyed.url, path, {**headers, "x-api-key": "one"}) < 500


def nested(levels):
    """A schema of that many levels, as text: no writer of JSON would write the deepest."""
    opening = b'{"type": "object", "properties": {"a": ' * (levels // 2)
    return opening + b'{"type": "string"}' + b"}}" * (levels // 2)


def deep_body(protocol, model, levels):
    body = orjson.dumps({**tool_body(protocol, "SCHEMA"), "model": model})
    return body.replace(b'"SCHEMA"', nested(levels))


def tool_body(protocol, schema):
    tool = {"name": "t", "description": "d"}
    match protocol:
        case "anthropic":
            return {**MESSAGES, "tools": [{**tool, "input_schema": schema}]}
        case "openai-chat":
            function = {**tool, "parameters": schema}
            tools = [{"type": "function", "function": function}]
            return {"messages": MESSAGES["messages"], "tools": tools}
        case "openai-responses":
            return {"input": "hi", "tools": [{"type": "function", **tool, "parameters": schema}]}
        case _:
            declared = [{**tool, "parametersJsonSchema": schema}]
            contents = [{"role": "user", "parts": [{"text": "hi"}]}]
            return {"contents": contents, "tools": [{"functionDeclarations": declared}]}


@pytest.mark.parametrize("protocol", UPSTREAM_NAMES)
@pytest.mark.parametrize("behind", UPSTREAM_NAMES)
def test_a_deep_body_is_accepted_and_a_too_deep_one_refused(gateway, upstream, protocol, behind):
    refused = Scripted(b'{"error": {"message": "no"}}', status=400, kind="application/json")
    model = f"{UPSTREAM_NAMES[behind]}/m"
    url = gateway.url + REQUEST_PATHS[protocol].format(model=model)
    for levels, asked in ((110, 1), (1000, 0), (250, 0)):
        upstream.then(refused)
        status, _, data = post(url, deep_body(protocol, model, levels))
        assert (status, len(upstream.requests)) == (400, asked), data
        assert asked or "nested" in orjson.loads(data)["error"]["message"]


def test_a_body_that_the_parser_refuses_is_a_client_error(gateway):
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        assert post(gateway.url + path, b"[" * 200_000)[0] == 400


def test_the_pages_api_refuses_deep_bodies_too(gateway):
    body = b'{"thread": "x", "replacements": ' + b"[" * 900 + b"]" * 900 + b"}"
    assert post(f"{gateway.url}/api/compact", body)[0] == 400


PLAIN = orjson.dumps(MESSAGES)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(PLAIN)),
        ("deflate", zlib.compress(PLAIN)),
        ("zstd", zstandard.compress(PLAIN)),
        ("zstd", zstandard.ZstdCompressor(write_content_size=False).compress(PLAIN)),
        ("zstd", zstandard.compress(PLAIN[:20]) + zstandard.compress(PLAIN[20:])),  # two frames
    ],
    ids=[
        "gzip",
        "deflate",
        "zstd",
        "zstd without a size",
        "zstd in two frames",
    ],  # gzip has a clock
)
def test_a_compressed_body_is_read(gateway, encoding, body):
    assert post(f"{gateway.url}/v1/messages", body, {"content-encoding": encoding})[0] == 200


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        ("zstd", b"not zstd", 400),
        ("zstd", zstandard.compress(PLAIN)[:-5], 400),
        ("zstd", zstandard.compress(PLAIN) + b"rest", 400),
        ("zstd", zstandard.compress(b" " * 5_000_000), 413),
        ("gzip", gzip.compress(b" " * 5_000_000), 413),
        ("br", PLAIN, 415),
        ("gzip, gzip", PLAIN, 415),
    ],
)
def test_a_compressed_body_that_cannot_be_read_is_refused(encoding, body, status):
    with pytest.raises(Refused) as refused:
        parse_body(decompress(body, encoding, 1_000_000))
    assert refused.value.status == status


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("plain", b"plain"),
        ("a\x01b\x7fc", b"a\\x01b\\x7fc"),
        ("a\x1b[2J", b"a\\x1b[2J"),
        ("a\r\nb\tc", b"a b c"),
        ("caf\u00e9", b"caf\\xe9"),
        ("a\x00b", b"a\\x00b"),
    ],
)
def test_a_header_must_be_one_line_of_printable_ascii(value, sent):
    assert header_bytes(value) == sent


@pytest.mark.parametrize("value", ["a\x01b", "a\x7fb", "a\x1b[2Jb", "caf\u00e9"])
def test_a_control_byte_in_an_upstream_header_does_not_lose_the_answer(gateway, upstream, value):
    answer = b'{"error": {"message": "the answer"}}'
    kind = "application/json"
    upstream.then(Scripted(answer, status=400, kind=kind, headers=[("request-id", value)]))
    status, _, data = post(f"{gateway.url}/v1/messages", {**MESSAGES, "model": "a/m"})
    assert (status, data) == (400, answer)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/responses"),  # Codex asks for a WebSocket here, and gets 426
        ("GET", "/v1/models"),
        ("GET", "/nothing"),
        ("PUT", "/v1/messages"),
    ],
)
def test_without_a_key_no_paths_are_listed(gateway, keyed, method, path):
    assert get(keyed.url, path, {}, method) == 401
    known = get(keyed.url, path, {"x-api-key": "one"}, method)
    assert known == get(gateway.url, path, {}, method)
    assert known in (200, 404, 405, 426)


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/nothing"), ("POST", "/v1/embeddings"), ("DELETE", "/v1beta/files/x")],
)
def test_without_a_key_nothing_is_passed_on(keyed, method, path):
    assert get(keyed.url, path, {}, method) == 401
    # with one, the gateway has no upstream for it, or refuses a list of what others stored
    assert get(keyed.url, path, {"x-api-key": "one"}, method) in (403, 404)
