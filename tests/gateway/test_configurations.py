"""Gateways with keys, without recording, and with upstreams of other protocols."""

import stat
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import orjson
import pytest

import weft.thread
from servers import Scripted, post, weft_serve

MESSAGES = {
    "model": "weft-offline",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "hi"}],
}
CHAT_ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-x",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello."},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
}


def chat_error(status, **error):
    body = orjson.dumps({"error": {"param": None, "code": None, **error}})
    return Scripted(body, status=status, kind="application/json", headers=[("retry-after", "9")])


@pytest.fixture(scope="module")
def translated(tmp_path_factory, upstream):
    """A gateway whose upstream speaks another protocol, with a key of its own."""
    flags = ("--upstream", f"up=openai-chat:{upstream.url}/v1")
    with weft_serve(tmp_path_factory.mktemp("doors"), *flags, UP_API_KEY="sk-up") as running:
        yield running


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """A gateway that passes on no paths that it does not know."""
    folder = tmp_path_factory.mktemp("closed")
    (folder / "weft.toml").write_text("pass_through_paths = false\n")
    with weft_serve(folder, f"--config={folder / 'weft.toml'}") as running:
        yield running


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    with weft_serve(tmp_path_factory.mktemp("keyed"), WEFT_API_KEYS="one,two") as running:
        yield running


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/messages", {}, 401),
        ("/v1/messages", {"x-api-key": "three"}, 401),
        ("/v1/messages", {"x-api-key": "one"}, 200),
        ("/v1/messages", {"authorization": "Bearer two"}, 200),
        ("/v1/messages/count_tokens", {}, 401),
        ("/v1/messages/count_tokens", {"x-api-key": "one"}, 200),
        ("/v1beta/models/weft-offline:countTokens", {}, 401),
        ("/v1beta/models/weft-offline:countTokens", {"x-goog-api-key": "one"}, 200),
        ("/v1/models/weft-offline:countTokens?key=two", {}, 200),
        ("/api/undo", {}, 401),
        ("/", {}, 401),
    ],
)
def test_with_keys_every_endpoint_requires_one(keyed, path, headers, status):
    assert post(keyed.url + path, MESSAGES, headers)[0] == status


def test_a_refused_caller_gets_its_error_format_and_a_browser_gets_instructions(keyed):
    _, _, body = post(f"{keyed.url}/v1/messages", MESSAGES)
    assert orjson.loads(body)["error"]["type"] == "authentication_error"
    _, headers, _ = post(keyed.url, b"")
    assert headers["www-authenticate"].startswith("Basic")
    shown = {"authorization": "Basic " + b64encode(b":one").decode()}
    assert post(keyed.url, b"", shown)[0] == 405  # let in, and `/` is not posted to


def test_threads_of_two_keys_are_separate(keyed):
    url, key = f"{keyed.url}/v1/messages", {"x-api-key": "one"}
    _, first, data = post(url, MESSAGES, key)
    answer = {"role": "assistant", "content": orjson.loads(data)["content"]}
    further = {**MESSAGES, "messages": [*MESSAGES["messages"], answer, *MESSAGES["messages"]]}
    names = [
        post(url, further, {"x-api-key": key})[1]["x-weft-thread"] for key in ("two", "one", "two")
    ]
    assert names[1] == first["x-weft-thread"] != names[0]


def test_nothing_is_stored_if_recording_is_off(tmp_path):
    with weft_serve(tmp_path, "--no-record") as gateway:
        status, headers, _ = post(f"{gateway.url}/v1/messages", MESSAGES)
        assert (status, "x-weft-thread" in headers) == (200, False)
    assert "hi" not in [
        message.text
        for record in weft.thread.threads(gateway.store)
        for message in weft.thread.open(gateway.store, record.name).compile().messages
    ]


def test_the_store_is_private_to_its_owner(translated):
    assert stat.S_IMODE(translated.store.stat().st_mode) & 0o077 == 0


def test_an_upstream_of_another_protocol_gets_its_own_format(translated, upstream):
    upstream.then(Scripted(orjson.dumps(CHAT_ANSWER), kind="application/json"))
    body = {**MESSAGES, "model": "gpt-x", "system": "Be brief.", "top_k": 3}
    headers = {"x-api-key": "sk-mine", "anthropic-beta": "b1"}
    status, reply_headers, data = post(f"{translated.url}/v1/messages?beta=true", body, headers)
    [request] = upstream.requests
    assert status == 200
    assert orjson.loads(data)["content"] == [{"type": "text", "text": "Hello."}]
    assert request["path"] == "/v1/chat/completions"
    assert request["headers"]["authorization"] == "Bearer sk-up"
    assert "sk-mine" not in str(request)
    assert "anthropic-beta" not in request["headers"]
    assert [m["role"] for m in orjson.loads(request["body"])["messages"]] == ["system", "user"]
    assert "top_k" in reply_headers["x-weft-losses"]


@pytest.mark.parametrize(
    ("answer", "status", "kind", "words"),
    [
        (
            chat_error(
                400,
                message="too long",
                code="context_length_exceeded",
                type="invalid_request_error",
            ),
            400,
            "invalid_request_error",
            "prompt is too long",
        ),
        (
            chat_error(429, message="slow down", type="rate_limit"),
            429,
            "rate_limit_error",
            "slow down",
        ),
        (chat_error(401, message="bad key", type="auth"), 401, "authentication_error", "bad key"),
        (Scripted(b"<html>bad gateway</html>", status=502, kind="text/html"), 502, "api_error", ""),
        (Scripted(b"<html>fine</html>", kind="text/html"), 502, "api_error", "unreadable"),
        (Scripted(b"", status=302, headers=[("location", "http://x")]), 502, "api_error", "302"),
    ],
    ids=["context", "rate", "auth", "page", "nonsense", "redirect"],
)
def test_an_upstream_error_uses_the_callers_format(
    translated, upstream, answer, status, kind, words
):
    upstream.then(answer)
    reply_status, headers, data = post(
        f"{translated.url}/v1/messages", {**MESSAGES, "model": "gpt-x"}
    )
    error = orjson.loads(data)["error"]
    assert (reply_status, error["type"]) == (status, kind)
    assert words in error["message"]
    if status == 429:
        assert headers["retry-after"] == "9"


def test_many_concurrent_callers_are_answered_and_recorded(translated):
    def talk(number):
        messages = [{"role": "user", "content": f"caller {number}"}]
        for _ in range(3):
            body = {**MESSAGES, "messages": messages, "stream": False}
            _, headers, data = post(f"{translated.url}/v1/messages", body)
            text = orjson.loads(data)["content"][0]["text"]
            messages = [
                *messages,
                {"role": "assistant", "content": text},
                {"role": "user", "content": "go on"},
            ]
        return headers["x-weft-thread"], messages[:-1]

    with ThreadPoolExecutor(8) as pool:
        talks = list(pool.map(talk, range(16)))
    assert len({name for name, _ in talks}) == 16
    for name, messages in talks:
        with weft.thread.open(translated.store, name) as thread:
            rows = thread.compile().to_dicts()
        assert [row["content"] for row in rows] == [turn["content"] for turn in messages]


@pytest.mark.parametrize(
    ("path", "headers", "read"),
    [
        ("/v1/embeddings", {}, lambda body: body["error"]["type"]),
        ("/v1/messages/batches", {}, lambda body: (body["type"], body["error"]["type"])[1]),
        ("/v1/complete", {"anthropic-version": "1"}, lambda body: body["error"]["type"]),
        ("/v1beta/cachedContents", {}, lambda body: body["error"]["status"]),
        ("/v1/chat/completion", {}, lambda body: body["error"]["type"]),
    ],
)
def test_an_unknown_path_lists_the_known_ones_in_the_callers_format(closed, path, headers, read):
    status, reply_headers, data = post(closed.url + path, b"{}", headers)
    body = orjson.loads(data)
    assert (status, reply_headers["content-type"]) == (404, "application/json")
    assert read(body)
    assert "POST /v1/messages" in body["error"]["message"]


@pytest.mark.parametrize(
    ("path", "member"),
    [
        ("/v1/messages", "messages"),
        ("/v1/chat/completions", "messages"),
        ("/v1/responses", "input"),
        ("/v1beta/models/weft-offline:generateContent", "contents"),
    ],
)
def test_a_request_without_messages_is_refused(translated, path, member):
    status, _, data = post(
        translated.url + path, {"model": "weft-offline", "max_tokens": 9, member: []}
    )
    assert status == 400
    assert member in orjson.loads(data)["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", MESSAGES),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/responses", {"input": "hi"}),
    ],
)
def test_a_model_without_a_key_is_refused_locally(tmp_path, path, body):
    with weft_serve(tmp_path) as gateway:
        status, _, data = post(gateway.url + path, {**body, "model": "mystery"})
    assert status == 404
    assert "no upstream serves the model 'mystery'" in orjson.loads(data)["error"]["message"]


def test_a_key_sees_and_restores_only_its_own_deleted_threads(tmp_path):
    body = {"model": "weft-offline", "messages": [{"role": "user", "content": "secret of A"}]}
    with weft_serve(tmp_path, WEFT_API_KEYS="key-a,key-b") as gateway:
        posted = post(f"{gateway.url}/v1/chat/completions", body, {"authorization": "Bearer key-a"})
        name = posted[1]["x-weft-thread"]
        assert post(f"{gateway.url}/api/delete", {"thread": name}, {"x-api-key": "key-a"})[0] == 200
        lists = {}
        for key in ("key-a", "key-b"):
            asked = Request(f"{gateway.url}/api/deleted", headers={"x-api-key": key})
            with urlopen(asked) as reply:
                lists[key] = [row["name"] for row in orjson.loads(reply.read())["threads"]]
        assert lists == {"key-a": [name], "key-b": []}
        restore = [
            post(f"{gateway.url}/api/undelete", {"thread": name}, {"x-api-key": key})[0]
            for key in ("key-b", "key-a")
        ]
    assert restore == [404, 200]


def test_a_key_sees_only_its_own_threads_on_the_page(tmp_path):
    body = {"model": "weft-offline", "messages": [{"role": "user", "content": "secret of A"}]}
    with weft_serve(tmp_path, WEFT_API_KEYS="key-a,key-b") as gateway:
        posted = post(f"{gateway.url}/v1/chat/completions", body, {"authorization": "Bearer key-a"})
        name = posted[1]["x-weft-thread"]
        pages = {}
        for key in ("key-a", "key-b"):
            for path in ("/api/threads", "/api/threads?q=secret", f"/api/thread?thread={name}"):
                asked = Request(gateway.url + path, headers={"x-api-key": key})
                try:
                    with urlopen(asked) as reply:
                        pages[key, path.partition("?")[0], "q=" in path] = reply.read().decode()
                except HTTPError as error:
                    pages[key, "/api/thread", False] = str(error.code)
    assert all(name in pages["key-a", "/api/threads", is_search] for is_search in (False, True))
    assert "secret of A" in pages["key-a", "/api/thread", False]
    assert not any(name in pages["key-b", "/api/threads", is_search] for is_search in (False, True))
    assert orjson.loads(pages["key-b", "/api/thread", False])["rows"] == []  # as if there were none
