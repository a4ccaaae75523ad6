"""Client input cannot change which path of an upstream is called, nor add headers to the call."""

import re
import socket
from urllib.parse import quote, unquote, urlsplit

import orjson
import pytest

from servers import REQUEST_PATHS, UPSTREAM_NAMES, Scripted, post, scripted_upstream, weft_serve
from weft.codec import CODECS

REFUSED = Scripted(b'{"error": {"message": "no"}}', status=400, kind="application/json")
BODIES = {
    "anthropic": {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    "openai-chat": {"messages": [{"role": "user", "content": "hi"}]},
    "openai-responses": {"input": "hi"},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}
ODD = [
    "../../../v1/admin/keys?x=",
    "x/../../../../tunedModels?y=#",
    "..%2f..%2fadmin",
    "%2e%2e/%2e%2e/admin",
    "a?key=EVIL&x",
    "a#b",
    "a\\..\\b",
    "//evil.example/x",
    "http://evil.example/x",
    "@evil.example",
    "name with blanks",
    "m:streamGenerateContent",
    "модель",
    "..",
]
CONTROL = ["a\r\nX-Evil: 1", "a\x00", "a\x1b[2J", "a\x7f", "a\x9b31m", "\n", "a\tb"]


@pytest.fixture(scope="module")
def upstream():
    with scripted_upstream() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, upstream):
    names = UPSTREAM_NAMES.items()
    flags = [f"--upstream={name}={protocol}:{upstream.url}/base/v1" for protocol, name in names]
    folder = tmp_path_factory.mktemp("paths")
    with weft_serve(folder, *flags, G_API_KEY="operator") as running:
        yield running


@pytest.fixture(scope="module")
def closed(tmp_path_factory, upstream):
    """A gateway that passes on no paths that it does not know; test_vendor_paths has the others."""
    folder = tmp_path_factory.mktemp("closed")
    (folder / "weft.toml").write_text("pass_through_paths = false\n")
    flags = [
        f"--upstream={name}={protocol}:{upstream.url}" for protocol, name in UPSTREAM_NAMES.items()
    ]
    with weft_serve(folder, f"--config={folder / 'weft.toml'}", *flags) as running:
        yield running


def ask(gateway, protocol, model):
    body = {**BODIES[protocol], "model": model}
    path = REQUEST_PATHS[protocol].format(model=quote(model, safe=""))
    return post(gateway.url + path, body)


PAIRS = [
    *((client, "gemini") for client in BODIES),  # the only upstream with models in its paths
    *(("openai-chat", behind) for behind in BODIES if behind != "gemini"),
]


@pytest.mark.parametrize(("client", "behind"), PAIRS)
@pytest.mark.parametrize("model", ODD)
def test_a_model_name_stays_one_path_segment(gateway, upstream, client, behind, model):
    upstream.then(REFUSED)
    status, _, _ = ask(gateway, client, f"{UPSTREAM_NAMES[behind]}/{model}")
    assert status == 400
    [request] = upstream.requests
    expected = "/base" + REQUEST_PATHS[behind]
    if behind != "gemini":
        assert (request["path"], orjson.loads(request["body"])["model"]) == (expected, model)
        return
    path = urlsplit(request["path"])
    prefix, _, last = path.path.rpartition("/")
    name, _, method = last.rpartition(":")
    assert (prefix, method, path.query) == ("/base/v1/models", "generateContent", "")
    assert unquote(name) == model


@pytest.mark.parametrize(("client", "behind"), PAIRS)
@pytest.mark.parametrize("model", CONTROL)
def test_a_model_name_with_control_characters_is_refused(gateway, upstream, client, behind, model):
    upstream.then(REFUSED)
    status, _, data = ask(gateway, client, f"{UPSTREAM_NAMES[behind]}/{model}")
    assert (status, upstream.requests) == (400, [])
    assert "control characters" in orjson.loads(data)["error"]["message"]


def test_a_log_line_cannot_control_the_terminal(gateway, upstream):
    upstream.then(REFUSED)
    models = (*CONTROL, "a\u202eb\u2028c")
    for model in models:
        ask(gateway, "gemini", f"g/{model}")
    gateway.await_lines(len(models), lambda line: line["path"].startswith("/v1beta/models/g/"))
    unsafe = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202a-\u202e]")
    assert unsafe.search(gateway.log()) is None


def test_a_model_name_has_a_limit(gateway, upstream):
    upstream.then(REFUSED)
    status, _, data = ask(gateway, "openai-chat", "g/" + "m" * 600)
    assert (status, upstream.requests) == (400, [])
    assert "500 characters" in orjson.loads(data)["error"]["message"]


@pytest.mark.parametrize("protocol", BODIES)
@pytest.mark.parametrize(
    ("query", "encoded"),
    [
        ("beta=true", "beta=true"),
        ("x=%0d%0aEvil", "x=%0D%0AEvil"),
        ("x=a%23b%26c", "x=a%23b%26c"),
        ("flag", "flag="),
        ("key=s&api_key=s&access_token=s&x=1", "x=1"),  # no address carries a secret
        ("a=1&a=2", "a=1&a=2"),
    ],
)
def test_a_query_is_re_encoded(gateway, upstream, protocol, query, encoded):
    upstream.then(REFUSED)
    model = f"{UPSTREAM_NAMES[protocol]}/m"
    path = REQUEST_PATHS[protocol].format(model=model)
    post(f"{gateway.url}{path}?{query}", {**BODIES[protocol], "model": model})
    assert urlsplit(upstream.requests[0]["path"]).query == encoded


@pytest.mark.parametrize(
    "path",
    [
        "/v1/messages/../admin",
        "/v1/../v1/messages",
        "/v1/messages/",
        "/v1/messages%2f..%2fadmin",
        "//evil.example/v1/messages",
        "/v1/messages;x=1",
        "/v1/files",
        "/v1beta/files",
        "/v1beta/tunedModels/x:generateContent",
        "/v1beta/models/x:deleteEverything",
    ],
)
def test_only_known_endpoints_go_upstream(closed, upstream, path):
    upstream.then(REFUSED)
    parts = urlsplit(closed.url)
    body = orjson.dumps({**BODIES["anthropic"], "model": "a/m"})
    head = f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as raw:
        raw.sendall(f"{head}Connection: close\r\n\r\n".encode() + body)
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert int(answer.split()[1]) in (400, 404, 405)
    assert upstream.requests == []


@pytest.mark.parametrize("model", ODD)
def test_the_path_of_a_translated_request_is_encoded_too(model):
    for streams in (True, False):
        path = CODECS["gemini"].request_path(model, streams)
        assert path.partition("?")[0].count("/") == 3
        assert "#" not in path
