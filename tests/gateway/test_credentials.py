"""A client's key reaches only its vendor's host, or an upstream that is configured for it.

Every other upstream gets its configured key, or none.
"""

import http.client
from urllib.parse import urlsplit

import orjson
import pytest

from servers import REQUEST_PATHS, Scripted, post, scripted_upstream, weft_serve
from weft.client import make_provider
from weft.codec import CODECS
from weft.errors import ConfigError
from weft.gateway import Flags, Settings, has_credentials, read_settings, upstream_credentials

HOMES = {protocol: codec.http.vendor.url for protocol, codec in CODECS.items()}

OPEN = Settings()
KEYED = Settings(keys=frozenset({"0" * 64}))
SECRETS = {
    "x-api-key": "sk-ant",
    "authorization": "Bearer oauth",
    "x-goog-api-key": "AIza",
    "api-key": "azure",
}
BODIES = {
    "anthropic": {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    "openai-chat": {"messages": [{"role": "user", "content": "hi"}]},
    "openai-responses": {"input": "hi"},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}
OWN = {
    "anthropic": {"x-api-key": "sk-ant", "authorization": "Bearer oauth"},
    "openai-chat": {"authorization": "Bearer oauth", "api-key": "azure"},
    "openai-responses": {"authorization": "Bearer oauth", "api-key": "azure"},
    "gemini": {"x-goog-api-key": "AIza", "authorization": "Bearer oauth"},
}
"""Of all the headers above, those that a vendor of this protocol reads."""


@pytest.mark.parametrize("protocol", HOMES)
def test_the_vendors_host_gets_the_clients_headers(protocol):
    provider = make_provider("x", protocol, HOMES[protocol])
    assert upstream_credentials(SECRETS, OPEN, provider, protocol) == OWN[protocol]


@pytest.mark.parametrize("protocol", HOMES)
@pytest.mark.parametrize(
    "change",
    [
        lambda url: url.replace("https:", "http:"),  # anybody on the way could read it
        lambda url: url + ".evil.example",
        lambda url: url.replace("https://", "https://evil.example/"),
        lambda url: url.replace("https://", "https://x"),
        lambda url: url + ":8443",
        lambda _: "http://127.0.0.1:9",
        lambda _: "https://api.groq.com/openai",
    ],
)
def test_no_other_host_gets_a_clients_key(protocol, change):
    provider = make_provider("x", protocol, change(HOMES[protocol]))
    assert upstream_credentials(SECRETS, OPEN, provider, protocol) == {}


@pytest.mark.parametrize(
    "url",
    ["https://API.anthropic.com", "https://api.anthropic.com:443", "https://api.anthropic.com/v1/"],
)
def test_the_vendors_host_is_recognised_in_other_spellings(url):
    provider = make_provider("x", "anthropic", url)
    assert upstream_credentials(SECRETS, OPEN, provider, "anthropic") == OWN["anthropic"]


@pytest.mark.parametrize("protocol", HOMES)
@pytest.mark.parametrize(
    ("settings", "same", "paid"),
    [
        (OPEN, True, True),
        (OPEN, False, False),  # another protocol: another vendor's key
        (KEYED, True, False),  # what the caller shows is a key of ours
        (Settings(host="0.0.0.0"), True, False),
    ],
)
def test_pass_through_needs_the_same_protocol_and_loopback(protocol, settings, same, paid):
    provider = make_provider("x", protocol, "http://x", pass_through=True)
    asked = protocol if same else next(other for other in HOMES if other != protocol)
    credentials = upstream_credentials(SECRETS, settings, provider, asked)
    assert credentials == (OWN[protocol] if paid else {})


@pytest.mark.parametrize("protocol", HOMES)
def test_only_the_configured_key_is_sent(protocol):
    provider = make_provider("x", protocol, HOMES[protocol], key="ours", pass_through=True)
    credentials = upstream_credentials(SECRETS, OPEN, provider, protocol)
    assert credentials == provider.auth_headers()


@pytest.mark.parametrize(
    ("headers", "protocol", "brings"),
    [
        ({"x-api-key": "k"}, "anthropic", True),
        ({"authorization": "Bearer t"}, "anthropic", True),  # Claude's OAuth
        ({"x-goog-api-key": "k"}, "anthropic", False),  # good at Google only
        ({"x-api-key": "k"}, "openai-chat", False),
        ({"authorization": "Basic eDp5"}, "openai-chat", False),  # a browser's, no vendor's
        ({"authorization": ""}, "openai-chat", False),
        ({}, "gemini", False),
    ],
)
def test_only_a_key_of_the_protocols_vendor_is_forwarded(headers, protocol, brings):
    assert has_credentials(headers, OPEN, protocol) is brings


@pytest.fixture(scope="module")
def upstream():
    with scripted_upstream() as running:
        yield running.then(Scripted(b'{"error": {}}', status=400, kind="application/json"))


CONFIG = """
[[upstream]]
name = "{protocol}-closed"
protocol = "{protocol}"
url = "{url}"

[[upstream]]
name = "{protocol}-open"
protocol = "{protocol}"
url = "{url}"
pass_through = true
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, upstream):
    folder = tmp_path_factory.mktemp("credentials")
    config = folder / "weft.toml"
    texts = [CONFIG.format(protocol=protocol, url=upstream.url) for protocol in HOMES]
    config.write_text("".join(texts))
    with weft_serve(folder, "--config", str(config)) as running:
        yield running


NOISE = {
    "cookie": "session=abc",
    "proxy-authorization": "Basic zzz",
    "x-amz-security-token": "secret-token",
    "x-auth-token": "secret-token",
    "x-secret": "secret-token",
    "x-harmless": "yes",
}


@pytest.mark.parametrize("protocol", HOMES)
@pytest.mark.parametrize("name", ["open", "closed"])
def test_the_upstream_receives_only_the_allowed_headers(gateway, upstream, protocol, name):
    upstream.requests.clear()
    model = f"{protocol}-{name}/m"
    path = REQUEST_PATHS[protocol].format(model=model)
    body = {**BODIES[protocol], "model": model}
    post(gateway.url + path, body, {**SECRETS, **NOISE})
    [request] = upstream.requests
    received = {name: request["headers"][name] for name in SECRETS if name in request["headers"]}
    assert received == (OWN[protocol] if name == "open" else {})
    assert request["headers"]["x-harmless"] == "yes"
    assert set(NOISE) & set(request["headers"]) == {"x-harmless"}


def test_headers_named_by_connection_are_not_forwarded(gateway, upstream):
    upstream.requests.clear()
    headers = {"connection": "keep-alive, X-Hop", "x-hop": "1", "x-harmless": "yes"}
    parts = urlsplit(gateway.url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port)
    body = orjson.dumps({**BODIES["anthropic"], "model": "anthropic-open/m"})
    connection.request("POST", "/v1/messages", body, headers)
    connection.getresponse().read()
    connection.close()
    headers_received = upstream.requests[0]["headers"]
    assert ("x-hop" in headers_received, headers_received["x-harmless"]) == (False, "yes")


def test_the_command_line_flag_enables_pass_through(tmp_path, upstream):
    upstream.requests.clear()
    flags = ("--upstream", f"up=anthropic:{upstream.url}", "--pass-through", "up")
    with weft_serve(tmp_path, *flags) as gateway:
        post(f"{gateway.url}/v1/messages", {**BODIES["anthropic"], "model": "m"}, SECRETS)
    assert upstream.requests[0]["headers"]["x-api-key"] == "sk-ant"


def test_no_key_is_written_to_the_log_or_the_store(gateway, upstream):
    for protocol in HOMES:
        path = REQUEST_PATHS[protocol].format(model=f"{protocol}-open/m")
        body = {**BODIES[protocol], "model": f"{protocol}-open/m"}
        post(f"{gateway.url}{path}?key=in-the-query", body, SECRETS)
        post(f"{gateway.url}{path}?access_token=in-the-query", body, SECRETS)
    written = b"".join(path.read_bytes() for path in gateway.store.parent.glob("weft.db*"))
    written += gateway.log().encode()
    for secret in ("sk-ant", "oauth", "AIza", "azure", "in-the-query"):
        assert secret.encode() not in written
    assert not [request for request in upstream.requests if "in-the-query" in request["path"]]


def test_a_missing_configured_key_prevents_the_start(tmp_path):
    path = tmp_path / "weft.toml"
    path.write_text(
        '[[upstream]]\nname = "groq"\nprotocol = "openai-chat"\n'
        'url = "https://api.groq.com/openai"\nkey_env = "GROQ_KEY_TYPO"\n'
    )
    for environ in ({"GROQ_API_KEY": "gsk-real"}, {"GROQ_KEY_TYPO": " "}):
        with pytest.raises(ConfigError, match=r"(?s)'groq'.*key_env.*GROQ_KEY_TYPO"):
            read_settings(Flags(config=str(path)), environ)
    settings = read_settings(Flags(config=str(path)), {"GROQ_KEY_TYPO": "gsk-real\n"})
    assert settings.providers[0].key == "gsk-real"


@pytest.mark.parametrize(
    ("flags", "environ", "words"),
    [
        (Flags(upstreams=["up=anthropic:http://x"]), {"UP_API_KEY": "two\nlines"}, "UP_API_KEY"),
        (Flags(), {"OPENAI_API_KEY": "caf\u00e9\u2014"}, "OPENAI_API_KEY"),
        (Flags(pass_through=["nobody"]), {}, "--pass-through 'nobody'"),
        (Flags(), {"WEFT_API_KEYS": " , "}, "WEFT_API_KEYS"),
    ],
)
def test_an_unusable_key_is_named_and_not_shown(flags, environ, words):
    with pytest.raises(ConfigError, match=words) as refused:
        read_settings(flags, environ)
    assert not any(key in str(refused.value) for key in environ.values() if key.strip(" ,"))


def test_a_key_that_is_not_configured_is_optional():
    [provider] = read_settings(Flags(upstreams=["up=anthropic:http://x"]), {}).providers
    assert provider.key is None


def test_an_answer_without_credentials_is_still_recorded(gateway, upstream):
    done = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "Hello."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    upstream.then(Scripted(orjson.dumps(done), kind="application/json"))
    body = {**BODIES["anthropic"], "model": "anthropic-closed/m"}
    status, headers, _ = post(f"{gateway.url}/v1/messages", body, {"x-api-key": "sk-ant"})
    assert (status, "x-weft-thread" in headers) == (200, True)
    assert "x-api-key" not in upstream.requests[0]["headers"]
