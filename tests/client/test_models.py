"""How a model name finds its upstream in a Python program and on the command line."""

import os
import subprocess
import sys

import orjson
import pytest

import weft
from servers import Scripted, scripted_upstream
from weft.catalog import load_catalog
from weft.client import (
    OFFLINE,
    find_route,
    find_upstream,
    make_provider,
    read_tables,
    read_upstreams,
)
from weft.codec import CODECS
from weft.errors import ConfigError, Refused
from weft.gateway import Flags, read_settings

HOMES = {protocol: codec.http.vendor.url for protocol, codec in CODECS.items()}

CATALOG = load_catalog()
URLS = {
    "ANTHROPIC_BASE_URL": "http://a.test",
    "OPENAI_BASE_URL": "http://o.test/v1",
    "GOOGLE_GEMINI_BASE_URL": "http://g.test",
}
KEYS = {"ANTHROPIC_API_KEY": "ka", "OPENAI_API_KEY": "ko", "GEMINI_API_KEY": "kg"}


@pytest.mark.parametrize(
    ("model", "environ", "options", "expected"),
    [
        ("claude-sonnet-4-5", KEYS, {}, ("anthropic", HOMES["anthropic"], "ka")),
        ("gpt-5", KEYS, {}, ("openai-responses", HOMES["openai-chat"], "ko")),
        ("gemini-2.5-pro", KEYS, {}, ("gemini", HOMES["gemini"], "kg")),
        ("openai-chat/gpt-5", KEYS, {}, ("openai-chat", HOMES["openai-chat"], "ko")),
        ("gpt-5", KEYS | URLS, {}, ("openai-responses", "http://o.test/v1", "ko")),
        ("claude-sonnet-4-5", KEYS | URLS, {}, ("anthropic", "http://a.test", "ka")),
        ("gemini-2.5-pro", KEYS | URLS, {}, ("gemini", "http://g.test", "kg")),
        (
            "gpt-5",
            URLS,
            {},
            ("openai-responses", "http://o.test/v1", None),
        ),  # a server of one's own
        ("gpt-5", KEYS, {"provider": "openai-chat"}, ("openai-chat", HOMES["openai-chat"], "ko")),
        ("x", KEYS, {"provider": "anthropic"}, ("anthropic", HOMES["anthropic"], "ka")),
        ("gpt-5", {}, {"api_key": "mine"}, ("openai-responses", HOMES["openai-chat"], "mine")),
        ("gpt-5", KEYS, {"api_key": "mine"}, ("openai-responses", HOMES["openai-chat"], "mine")),
        ("gpt-5", KEYS, {"base_url": "http://l.test"}, ("openai-responses", "http://l.test", "ko")),
        # Nobody said that this server is OpenAI's, so it does not get OpenAI's key.
        ("qwen3", KEYS, {"base_url": "http://l.test"}, ("openai-chat", "http://l.test", None)),
        (
            "qwen3",
            KEYS,
            {"base_url": "http://l.test", "api_key": "mine"},
            ("openai-chat", "http://l.test", "mine"),
        ),
        (
            "qwen3",
            {},
            {"base_url": "http://l.test", "provider": "anthropic"},
            ("anthropic", "http://l.test", None),
        ),
    ],
)
def test_a_model_finds_its_upstream(model, environ, options, expected):
    provider = find_upstream(model, environ, CATALOG, **options).provider
    assert (provider.protocol, provider.base_url, provider.key) == expected


@pytest.mark.parametrize(
    ("model", "environ", "options", "words"),
    [
        ("gpt-5", {}, {}, "no API key for the model 'gpt-5': set .*OPENAI_API_KEY"),
        ("gpt-5", {}, {"provider": "openai"}, "openai needs a key: set OPENAI_API_KEY"),
        ("mystery", KEYS, {}, "no API key for the model 'mystery'"),
        ("mystery", {}, {"api_key": "k"}, "pass provider= or base_url="),
        ("gpt-5", KEYS, {"provider": "http://x"}, "no provider 'http://x': use one of anthropic"),
        ("gpt-5", KEYS, {"base_url": "localhost:80"}, "base_url must begin with http"),
        ("gpt-5", {"OPENAI_BASE_URL": "ftp://x"}, {}, "OPENAI_BASE_URL must begin with http"),
        ("a\nb", KEYS, {}, "control characters"),
        (
            "m",
            {},
            {"provider": make_provider("x", "anthropic", "http://x"), "base_url": "http://y"},
            "has its own base_url",
        ),
    ],
)
def test_missing_settings_are_named(model, environ, options, words):
    with pytest.raises(ConfigError, match=words):
        find_upstream(model, environ, CATALOG, **options)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("localhost:80", "must begin with http:// or https://"),
        ("file:///etc/passwd", "must begin with"),
        ("https://", "names no valid host"),
        ("https://host:port", "is not a URL"),
        ("https://host:99999", "is not a URL"),
        ("https://host:0", "names no valid host and port"),
        ("https://[::1", "is not a URL"),
        ("https://user:hunter2@host", "must not contain a user or password"),
        ("https://host/v1#x", "fragment"),
        ("https://host/v1?x=1#", "fragment"),
        ("https://host/../admin", "`..`"),
        ("https://host/a b", "has spaces"),
        ("https://host/\r\nX: 1", "has spaces"),
        ("https://ho\\st", "names no valid host"),
        ("https://bücher.example", "characters that a URL cannot have"),
    ],
)
def test_an_unusable_url_is_refused(url, words):
    with pytest.raises(ConfigError, match=words) as refused:
        make_provider("up", "anthropic", url)
    assert "'up': url" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_config_file_is_read_without_the_gateways_settings(tmp_path):
    path = tmp_path / "weft.toml"
    path.write_text('port = 1\n[[upstream]]\nname = "a"\nprotocol = "gemini"\nurl = "http://a"\n')
    assert [table.name for table in read_tables(str(path))] == ["a"]
    path.write_text('[[upstream]]\nname = "a"\n')
    with pytest.raises(ConfigError, match="upstream"):
        read_tables(str(path))


def responses_stream(text):
    done = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5",
        "status": "completed",
        "output": [
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}],
            }
        ],
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
    }
    item = done["output"][0]
    events = [
        {"type": "response.created", "response": {**done, "status": "in_progress", "output": []}},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "content": [], "status": "in_progress"},
        },
        {
            "type": "response.content_part.added",
            "output_index": 0,
            "content_index": 0,
            "item_id": "msg_1",
            "part": {"type": "output_text", "text": "", "annotations": []},
        },
        {
            "type": "response.output_text.delta",
            "output_index": 0,
            "content_index": 0,
            "item_id": "msg_1",
            "delta": text,
        },
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": done},
    ]
    frames = [
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))
        for event in events
    ]
    return Scripted(*frames)


@pytest.fixture(scope="module")
def upstream():
    with scripted_upstream() as running:
        yield running


@pytest.fixture
def openai(upstream, monkeypatch):
    """OpenAI's variables, which point at the scripted upstream."""
    for name in (*KEYS, *URLS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{upstream.url}/v1")
    return upstream.then(responses_stream("Hello from the mock."))


def test_an_agent_finds_its_model_by_the_key_of_the_environment(openai):
    with weft.open() as thread:
        assert weft.Agent(thread, "gpt-5").send("hi") == "Hello from the mock."
    [request] = openai.requests
    assert (request["path"], request["headers"]["authorization"]) == (
        "/v1/responses",
        "Bearer sk-mine",
    )


def test_a_compaction_finds_its_model_in_the_same_way(openai):
    with weft.open() as thread:
        for number in range(6):
            thread.user(f"Question {number}?")
            thread.assistant(f"Answer {number}.")
        done = thread.compact(model="gpt-5", keep=1)
    assert done.model == "gpt-5"
    assert openai.requests[0]["headers"]["authorization"] == "Bearer sk-mine"


def test_chat_finds_its_model_in_the_same_way(openai, tmp_path):
    words = ("chat", "--store", str(tmp_path / "s.db"), "--model", "gpt-5", "hi")
    done = subprocess.run(
        [sys.executable, "-c", "from weft.cli import entry; entry()", *words],
        env={**os.environ, "WEFT_HOST": "0.0.0.0"},  # a setting of the gateway, not of a chat
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "Hello from the mock."), done.stderr
    assert openai.requests[0]["headers"]["authorization"] == "Bearer sk-mine"


def test_an_agent_without_a_key_says_which_variable_to_set(monkeypatch):
    for name in (*KEYS, *URLS):
        monkeypatch.delenv(name, raising=False)
    with weft.open() as thread, pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        weft.Agent(thread, "gpt-5")


def test_asking_a_model_needs_none_of_the_servers_libraries():
    code = (
        "import sys, weft; weft.Agent(weft.open(), 'gpt-5', api_key='k');"
        "t = weft.open(); [t.user('some words') for _ in range(9)];"
        "t.compact(model='weft-offline', keep=1);"
        "print([name for name in ('granian', 'starlette', 'weft.gateway') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


ONE = (make_provider("one", "anthropic", "http://one"),)
TWO_KEYS = {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o"}


def standing(environ):
    return read_settings(Flags(), environ).providers


def patterned():
    first = make_provider("a", "anthropic", "http://a", models=("big-*",))
    second = make_provider("b", "openai-chat", "http://b", models=("small-*",))
    return (first, second)


@pytest.mark.parametrize(
    ("model", "protocol", "providers", "name", "known_as"),
    [
        ("weft-offline", "anthropic", ONE, "weft", "weft-offline"),
        ("weft-offline-2", "anthropic", ONE, "weft", "weft-offline-2"),
        ("anything/at-all", "openai-chat", ONE, "one", "anything/at-all"),  # the only one
        ("one/big", "openai-chat", ONE, "one", "big"),  # named before the slash
        ("claude-opus-4-8", "openai-chat", standing(TWO_KEYS), "anthropic", "claude-opus-4-8"),
        ("gpt-5", "openai-chat", standing(TWO_KEYS), "openai-chat", "gpt-5"),  # same protocol wins
        ("gpt-5", "openai-responses", standing(TWO_KEYS), "openai", "gpt-5"),
        ("gpt-5", "anthropic", standing(TWO_KEYS), "openai", "gpt-5"),
        ("claude-opus-4-8", "anthropic", standing({}), "anthropic", "claude-opus-4-8"),  # passes
        ("mystery", "openai-chat", standing(TWO_KEYS), "openai-chat", "mystery"),
        ("small-1", "anthropic", patterned(), "b", "small-1"),
        ("big-1", "openai-chat", patterned(), "a", "big-1"),
    ],
)
def test_a_model_name_selects_its_upstream(model, protocol, providers, name, known_as):
    route = find_route(model, protocol, providers, CATALOG)
    assert (route.provider.name, route.model) == (name, known_as)


def test_the_offline_model_resolves_to_its_provider():
    assert find_route("weft-offline", "anthropic", (), CATALOG).provider is OFFLINE


@pytest.mark.parametrize("providers", [(), standing({}), standing({"OPENAI_API_KEY": "o"})])
def test_a_model_is_never_sent_to_another_vendor(providers):
    with pytest.raises(Refused) as refused:
        find_route("claude-opus-4-8", "openai-chat", providers, CATALOG)
    assert (refused.value.status, refused.value.param) == (404, "model")


def test_a_spec_names_a_provider():
    [provider] = read_upstreams(["local=anthropic:http://127.0.0.1:9/v1"], (), {}, base_urls=False)
    assert (provider.name, provider.protocol) == ("local", "anthropic")
    assert dict(provider.headers) == {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("local", "NAME=PROTOCOL:URL"),
        ("local=anthropic", "NAME=PROTOCOL:URL"),
        ("local=anthropic:ftp://x", "NAME=PROTOCOL:URL"),
        ("local=telepathy:http://x", "'telepathy'"),
    ],
)
def test_an_error_names_the_position_in_a_wrong_spec(spec, words):
    with pytest.raises(ConfigError, match=words):
        read_upstreams([spec], (), {}, base_urls=False)


@pytest.mark.parametrize(
    ("protocol", "headers"),
    [
        ("anthropic", {"x-api-key": "secret"}),
        ("openai-chat", {"authorization": "Bearer secret"}),
        ("openai-responses", {"authorization": "Bearer secret"}),
    ],
)
def test_a_key_is_sent_in_the_protocols_header_and_in_no_repr(protocol, headers):
    provider = make_provider("x", protocol, "http://x", key="secret")
    assert provider.auth_headers() == headers
    assert "secret" not in repr(provider)
