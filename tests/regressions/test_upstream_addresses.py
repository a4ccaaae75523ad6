"""Vendors' documented addresses, at servers that answer only there: by the gateway and an agent."""

import asyncio
import base64
import sys
from collections.abc import Mapping

import orjson
import pytest
from msgspec import Struct, field

import weft
from exact_upstream import GEMINI, Rule, exact_upstream
from servers import post, weft_serve
from weft.client import (
    KeyCommandFailed,
    read_key_output,
    read_tables,
    read_token,
    run_key_command,
)
from weft.errors import ConfigError

KEY = "k-5up3r-s3cret-key"
PRINT_KEY = [sys.executable, "-c", f"print({KEY!r})"]
BEARER = {"authorization": f"Bearer {KEY}", "x-api-key": "", "api-key": ""}
CHAT, CLAUDE, RESPONSES, GOOGLE = "openai-chat", "anthropic", "openai-responses", "gemini"
VERTEX = "/v1/projects/p/locations/us-east5"


class Vendor(Struct, frozen=True, kw_only=True):
    """A vendor: what is configured, and the addresses and headers that its documents name.

    `path` may have two forms, for a body and for a stream. `body` are members that a body must
    have, or must not have if they are None. `at_root`: the URL is nothing but a host.
    """

    protocol: str = CHAT
    url: str = ""
    settings: dict[str, object] = {}
    path: str
    stream_path: str = ""
    headers: Mapping[str, str] = field(default_factory=lambda: BEARER)
    body: dict[str, object] = {}
    models: str = ""
    count: str = ""
    at_root: bool = False


def gemini(prefix: str) -> dict[str, str]:
    return {
        "path": f"{prefix}/models/m-1:generateContent",
        "stream_path": f"{prefix}/models/m-1:streamGenerateContent?alt=sse",
        "count": f"{prefix}/models/m-1:countTokens",
    }


def chat(prefix: str, **options: object) -> Vendor:
    path = f"{prefix}/chat/completions"
    return Vendor(url=prefix, path=path, models=f"{prefix}/models", **options)


VENDORS = {
    "zai": chat("/api/paas/v4"),
    "zai-anthropic": Vendor(
        protocol=CLAUDE,
        url="/api/anthropic",
        path="/api/anthropic/v1/messages",
        headers={"x-api-key": KEY, "anthropic-version": "2023-06-01", "authorization": ""},
        count="/api/anthropic/v1/messages/count_tokens",
    ),
    "google-openai": chat("/v1beta/openai"),
    "azure-deployment": Vendor(
        url="/openai/deployments/gpt-x",
        settings={"query": {"api-version": "2024-10-21"}, "auth_header": "api-key"},
        path="/openai/deployments/gpt-x/chat/completions?api-version=2024-10-21",
        headers={"api-key": KEY, "authorization": ""},
    ),
    "azure-query-in-url": Vendor(
        url="/openai/deployments/gpt-x/chat/completions?api-version=2025-01-01-preview",
        settings={"auth_header": "api-key"},
        path="/openai/deployments/gpt-x/chat/completions?api-version=2025-01-01-preview",
        headers={"api-key": KEY, "authorization": ""},
    ),
    "azure-v1": Vendor(
        protocol=RESPONSES,
        url="/openai/v1/",
        settings={"auth_header": "api-key"},
        path="/openai/v1/responses",
        headers={"api-key": KEY, "authorization": ""},
        models="/openai/v1/models",
    ),
    "vertex-gemini": Vendor(
        protocol=GOOGLE,
        url=f"{VERTEX}/publishers/google",
        settings={"key_command": PRINT_KEY},
        headers={**BEARER, "x-goog-api-key": ""},
        **gemini(f"{VERTEX}/publishers/google"),
    ),
    "vertex-claude": Vendor(
        protocol=CLAUDE,
        url=f"{VERTEX}/publishers/anthropic/",
        settings={"key_command": PRINT_KEY},
        path=f"{VERTEX}/publishers/anthropic/models/m-1:rawPredict",
        stream_path=f"{VERTEX}/publishers/anthropic/models/m-1:streamRawPredict",
        body={"anthropic_version": "vertex-2023-10-16", "model": None},
        count=f"{VERTEX}/publishers/anthropic/models/count-tokens:rawPredict",
    ),
    "gemini": Vendor(
        protocol=GOOGLE,
        headers={"x-goog-api-key": KEY, "authorization": ""},
        models="/v1beta/models",
        **gemini("/v1beta"),
    ),
    "perplexity": Vendor(settings={"path": "/chat/completions"}, path="/chat/completions"),
    "perplexity-url": Vendor(url="/chat/completions", path="/chat/completions"),
    "volcengine": chat("/api/v3"),
    "github-models": chat(
        "/inference",
        settings={"headers": {"X-GitHub-Api-Version": "2022-11-28"}},
        headers={**BEARER, "x-github-api-version": "2022-11-28"},
    ),
    "copilot": Vendor(
        settings={
            "path": "/chat/completions",
            "headers": {"Copilot-Integration-Id": "x", "Editor-Version": "x/1"},
        },
        path="/chat/completions",
        headers={**BEARER, "copilot-integration-id": "x", "editor-version": "x/1"},
        models="/models",
    ),
    "openrouter": chat("/api/v1"),
    "groq": chat("/openai/v1"),
    "deepseek": Vendor(path="/v1/chat/completions", models="/v1/models", at_root=True),
    "deepseek-anthropic": Vendor(
        protocol=CLAUDE,
        url="/anthropic",
        path="/anthropic/v1/messages",
        headers={"x-api-key": KEY},
    ),
    "mistral": chat("/v1"),  # also xAI, Together, Ollama, vLLM, LM Studio, LiteLLM
    "fireworks": chat("/inference/v1"),
    "cloudflare": chat(
        "/v1/account/gateway/compat",
        settings={"auth_header": "cf-aig-authorization: Bearer"},
        headers={"cf-aig-authorization": f"Bearer {KEY}", "authorization": ""},
    ),
    "cloudflare-anthropic": Vendor(
        protocol=CLAUDE,
        url="/v1/account/gateway/anthropic",
        path="/v1/account/gateway/anthropic/v1/messages",
        headers={"x-api-key": KEY},
    ),
}
LISTING = b'{"object":"list","data":[{"id":"m-1"}],"models":[{"name":"models/m-1"}]}'


@pytest.fixture(scope="module")
def upstream():
    """All vendors on one server, each under its own prefix, so that a wrong path is a 404."""
    with exact_upstream() as running:
        for name, vendor in VENDORS.items():
            rule = Rule(protocol=vendor.protocol, headers=vendor.headers)
            running.rules["POST", f"{prefix(name)}{vendor.path}"] = rule
            running.rules["POST", f"{prefix(name)}{vendor.stream_path or vendor.path}"] = rule
            if vendor.models:
                for query in ("", "?limit=1000", "?pageSize=1000"):
                    rule = Rule(headers=vendor.headers, body=LISTING)
                    running.rules["GET", f"{prefix(name)}{vendor.models}{query}"] = rule
            if vendor.count:
                body = b'{"input_tokens": 77, "totalTokens": 77}'
                rule = Rule(headers=vendor.headers, body=body)
                running.rules["POST", f"{prefix(name)}{vendor.count}"] = rule
        yield running


def prefix(name: str) -> str:
    """Where a vendor is on the server."""
    return "" if VENDORS[name].at_root else f"/{name}"


def base_url(upstream, name: str) -> str:
    return f"{upstream.url}{prefix(name)}{VENDORS[name].url}"


def toml(value: object) -> str:
    if isinstance(value, dict):
        members = (f'"{key}" = {toml(member)}' for key, member in value.items())
        return "{ " + ", ".join(members) + " }"
    return orjson.dumps(value).decode()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, upstream):
    folder = tmp_path_factory.mktemp("vendors")
    tables = []
    for name, vendor in VENDORS.items():
        settings = {"name": name, "protocol": vendor.protocol, "url": base_url(upstream, name)}
        settings |= {"key_env": "VENDOR_KEY"} if "key_command" not in vendor.settings else {}
        lines = [f"{key} = {toml(value)}" for key, value in (settings | vendor.settings).items()]
        tables.append("[[upstream]]\n" + "\n".join(lines))
    config = folder / "weft.toml"
    config.write_text("\n".join(tables))
    with weft_serve(folder, f"--config={config}", VENDOR_KEY=KEY) as running:
        yield running


MESSAGES = [{"role": "user", "content": "hi"}]
CLIENTS = {
    CHAT: ("/v1/chat/completions", {"messages": MESSAGES}),
    CLAUDE: ("/v1/messages", {"messages": MESSAGES, "max_tokens": 9}),
    RESPONSES: ("/v1/responses", {"input": "hi"}),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("client", [CHAT, CLAUDE, RESPONSES])
@pytest.mark.parametrize("name", VENDORS)
def test_the_gateway_calls_a_vendor_at_its_address(gateway, upstream, name, client, stream):
    vendor = VENDORS[name]
    path, body = CLIENTS[client]
    upstream.requests.clear()
    status, _, answer = post(gateway.url + path, {**body, "model": f"{name}/m-1", "stream": stream})
    assert (status, b"ok" in answer) == (200, True), (answer, upstream.requests)
    [(_, _, _, sent)] = upstream.requests
    for member, value in vendor.body.items():
        assert orjson.loads(sent).get(member) == value


@pytest.mark.parametrize("name", VENDORS)
def test_an_agent_calls_a_vendor_at_its_address(upstream, name):
    vendor = VENDORS[name]
    key = None if "key_command" in vendor.settings else KEY
    provider = weft.make_provider(
        name, vendor.protocol, base_url(upstream, name), key=key, **vendor.settings
    )
    upstream.requests.clear()
    with weft.open() as thread:
        agent = weft.Agent(thread, "m-1", provider=provider, compaction=None)
        agent.send("hi")
        assert thread.compile().to_dicts()[-1]["content"] == "ok"
    [(_, _, _, sent)] = upstream.requests
    for member, value in vendor.body.items():
        assert orjson.loads(sent).get(member) == value


@pytest.mark.parametrize("name", [name for name in VENDORS if VENDORS[name].count])
def test_tokens_are_counted_at_the_vendors_address(gateway, name):
    if VENDORS[name].protocol == GOOGLE:
        path = f"/v1beta/models/{name}%2Fm-1:countTokens"
        body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    else:
        path, body = "/v1/messages/count_tokens", {"messages": MESSAGES, "model": f"{name}/m-1"}
    status, _, answer = post(gateway.url + path, body)
    assert (status, b"77" in answer) == (200, True), answer


def test_models_are_listed_at_the_vendors_addresses(gateway, upstream):
    import urllib.request

    upstream.requests.clear()
    with urllib.request.urlopen(f"{gateway.url}/v1/models", timeout=60) as answer:
        assert b"m-1" in answer.read()
    asked = {path.partition("?")[0] for method, path, _, _ in upstream.requests if method == "GET"}
    for name in VENDORS:
        assert not VENDORS[name].models or f"{prefix(name)}{VENDORS[name].models}" in asked


def test_a_gemini_client_reaches_vertex(gateway, upstream):
    upstream.requests.clear()
    body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    path = "/v1beta/models/vertex-gemini%2Fm-1:generateContent?key=mine"
    status, _, answer = post(gateway.url + path, body)
    assert (status, orjson.loads(answer)) == (200, GEMINI)
    [(_, sent_path, headers, _)] = upstream.requests
    assert "mine" not in sent_path + str(headers)


WRONG = [
    ('url = "https://api.anthropic.com/v1/messages"', 4, "upstream 'a': url ends in /messages"),
    ('url = "https://me:hunter2@h/v1"', 4, "upstream 'a': url must not contain a user or password"),
    ('url = "https://h/v1"\npath = "chat"', 5, "upstream 'a': path must be a path"),
    (
        'url = "https://h/v1"\n\nheaders = { Host = "x" }',
        6,
        "upstream 'a': headers cannot set Host",
    ),
    ('url = "https://h/v1"\nauth_header = "a b"', 5, "upstream 'a': auth_header has a name"),
    (
        'url = "https://h/v1"\nkey_env = "X"\nkey_command = "x"',
        6,
        "upstream 'a': key_command cannot be",
    ),
]


@pytest.mark.parametrize(("lines", "number", "words"), WRONG)
def test_a_wrong_setting_is_named_with_its_line(tmp_path, lines, number, words):
    path = tmp_path / "weft.toml"
    path.write_text(f'[[upstream]]\nname = "a"\nprotocol = "openai-chat"\n{lines}\n')
    with pytest.raises(ConfigError, match=f"line {number}: {words}") as refused:
        read_tables(str(path))
    assert "hunter2" not in str(refused.value)


def jwt(expires: float) -> str:
    claims = base64.urlsafe_b64encode(orjson.dumps({"exp": int(expires)})).decode().rstrip("=")
    return f"e30.{claims}.c2ln"


@pytest.mark.parametrize(
    ("output", "token", "expires"),
    [
        ("ya29.abc\n", "ya29.abc", None),  # gcloud auth print-access-token
        (jwt(2000000000), jwt(2000000000), 2000000000),
        (  # az account get-access-token
            '{"accessToken": "t", "expiresOn": "2033-05-18 03:33:20", "expires_on": 2000000000}',
            "t",
            2000000000,
        ),
        ('{"access_token": "t", "expires_at": "2033-05-18T03:33:20+00:00"}', "t", 2000000000),
        ('{"token": "t"}', "t", None),
        (
            '{"status": {"token": "t", "expirationTimestamp": "x"}, "kind": "ExecCredential"}',
            "t",
            None,
        ),
    ],
)
def test_a_commands_output_is_read(output, token, expires):
    read = read_key_output(output.encode())
    assert (read.text, read.expires) == (token, expires)


@pytest.mark.parametrize("output", ["", "{}", "two words", "{broken", "a\nb", '{"token": 5}', "é"])
def test_output_that_is_no_token_is_refused_without_showing_it(output):
    with pytest.raises(KeyCommandFailed) as failed:
        read_key_output(output.encode())
    assert not output or output not in str(failed.value)


COMMANDS = [
    ("import sys; sys.stderr.write('hunter2'); print('hunter2'); sys.exit(3)", "status 3"),
    ("import time; time.sleep(60)", "did not end within"),
    ("import os\nwhile True: os.write(1, b'x' * 65536)", "not a token"),
    # a child that keeps the output open
    ("import subprocess; subprocess.Popen(['sleep', '60'])", "did not end within"),
]


@pytest.mark.parametrize(("script", "words"), COMMANDS)
def test_a_command_that_fails_is_ended_and_explained(script, words):
    with pytest.raises(KeyCommandFailed, match=words) as failed:
        run_key_command((sys.executable, "-c", script), seconds=2.0)
    assert "hunter2" not in str(failed.value)


def test_a_missing_command_is_explained():
    with pytest.raises(KeyCommandFailed, match="cannot be started"):
        run_key_command(("/nonexistent/program",))


COUNTING = """
import pathlib, sys, time
path = pathlib.Path(sys.argv[1])
count = int(path.read_text() or 0) + 1 if path.exists() else 1
path.write_text(str(count))
time.sleep(0.3)
print(f"token-number-{count}", flush=True)
sys.stderr.write("hunter2")
"""


def command_gateway(folder, upstream, script=COUNTING):
    counter = folder / "count"
    program = folder / "print_token.py"
    program.write_text(script)
    command = [sys.executable, str(program), str(counter)]
    config = folder / "weft.toml"
    config.write_text(
        f'[[upstream]]\nname = "u"\nprotocol = "openai-chat"\nurl = "{upstream.url}/cmd/v1"\n'
        f"key_command = {toml(command)}\n"
    )
    return config, counter


def ask(gateway):
    path, body = CLIENTS[CHAT]
    return post(gateway.url + path, {**body, "model": "m"}, {"authorization": "Bearer clients"})


def test_a_token_is_kept_until_the_upstream_refuses_it(tmp_path, upstream):
    address = "POST", "/cmd/v1/chat/completions"
    config, counter = command_gateway(tmp_path, upstream)
    with weft_serve(tmp_path, f"--config={config}") as gateway:
        upstream.rules[address] = Rule(headers={"authorization": "Bearer token-number-1"})
        assert [ask(gateway)[0] for _ in range(3)] == [200, 200, 200]
        assert counter.read_text() == "1"
        # the upstream forgets the first token: the command runs again, and the client sees nothing
        upstream.rules[address] = Rule(headers={"authorization": "Bearer token-number-2"})
        assert ask(gateway)[0] == 200
        assert counter.read_text() == "2"
        # a key that is refused for good is not asked for again and again within one request
        upstream.rules[address] = Rule(headers={"authorization": "Bearer no"})
        assert ask(gateway)[0] == 401
        assert counter.read_text() == "3"
        assert "hunter2" not in gateway.log()
        assert "token-number" not in gateway.log()


def test_a_failing_command_is_an_error_of_the_upstream(tmp_path, upstream):
    script = "import sys\nsys.stderr.write('hunter2')\nprint('hunter2')\nsys.exit(7)\n"
    config, _ = command_gateway(tmp_path, upstream, script)
    with weft_serve(tmp_path, f"--config={config}") as gateway:
        status, _, answer = ask(gateway)
        assert (status, b"key_command of upstream 'u' ended with status 7" in answer) == (502, True)
        assert b"hunter2" not in answer
        assert "hunter2" not in gateway.log()


def test_requests_at_the_same_time_run_the_command_once(tmp_path, upstream):
    from concurrent.futures import ThreadPoolExecutor

    upstream.rules["POST", "/cmd/v1/chat/completions"] = Rule()
    config, counter = command_gateway(tmp_path, upstream)
    with weft_serve(tmp_path, f"--config={config}") as gateway, ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: ask(gateway)[0], range(8))) == {200}
    assert counter.read_text() == "1"


def test_an_expired_token_is_replaced(tmp_path):
    counter, program = tmp_path / "count", tmp_path / "p.py"
    program.write_text(COUNTING.replace('print(f"token-number-{count}"', "print(token(count)"))
    lines = (
        "import json, time\n"
        "def token(n):\n"
        "    return json.dumps({'token': f't{n}', 'expires_in': 30 if n == 1 else 900})\n"
    )
    program.write_text(lines + program.read_text())
    command = (sys.executable, str(program), str(counter))
    tokens = [asyncio.run(read_token(command, "u")) for _ in range(3)]
    # the first one would expire before a request arrives
    assert tokens == ["t1", "t2", "t2"]


SECRET_QUERY = "hunter2-is-the-secret"


def test_a_secret_in_the_query_is_never_shown(tmp_path, upstream):
    """An upstream that quotes the address in its error, and one that cannot be reached."""
    quoted = orjson.dumps({"error": {"message": f"bad: /q?code={SECRET_QUERY}"}})
    path = f"/q/v1/chat/completions?code={SECRET_QUERY}"
    upstream.rules["POST", path] = Rule(body=quoted, status=400)
    specs = [
        f"--upstream=q=openai-chat:{upstream.url}/q/v1?code={SECRET_QUERY}",
        f"--upstream=dead=openai-chat:http://127.0.0.1:9/v1?code={SECRET_QUERY}",
    ]
    with weft_serve(tmp_path, *specs) as gateway:
        for name, expected in (("q", 400), ("dead", 502)):
            body = {"model": f"{name}/m", "messages": MESSAGES}
            status, headers, answer = post(f"{gateway.url}/v1/chat/completions", body)
            assert status == expected
            assert SECRET_QUERY not in str(headers) + answer.decode()
        assert SECRET_QUERY not in gateway.log()


def test_the_operators_headers_win_over_the_clients(tmp_path, upstream):
    upstream.rules["POST", "/h/v1/chat/completions"] = Rule(headers={"x-team": "red"})
    spec = f"u=openai-chat:{upstream.url}/h/v1 headers.X-Team=red"
    with weft_serve(tmp_path, f"--upstream={spec}") as gateway:
        body = {"model": "m", "messages": MESSAGES}
        status, _, _ = post(f"{gateway.url}/v1/chat/completions", body, {"X-Team": "blue"})
        assert status == 200
