"""An exchange over real sockets: `weft serve` in a process, and a scripted upstream."""

import gzip
import http.client
from urllib.parse import urlsplit
from urllib.request import urlopen

import orjson
import pytest

import weft.thread
from servers import Scripted, post, weft_serve


def sse(event, **data):
    return f"event: {event}\ndata: {orjson.dumps({'type': event, **data}).decode()}\n\n".encode()


def message(text="Hello there.", **more):
    return {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude-up",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 12, "output_tokens": 6},
        **more,
    }


def stream(*words):
    opened = {**message(), "content": [], "stop_reason": None}
    return [
        sse("message_start", message=opened),
        sse("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *(
            sse("content_block_delta", index=0, delta={"type": "text_delta", "text": word})
            for word in words
        ),
        sse("content_block_stop", index=0),
        sse("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 6}),
        sse("message_stop"),
    ]


WHOLE = Scripted(orjson.dumps(message()), kind="application/json")
STREAM = Scripted(*stream("Hello ", "there."))
BODY = (
    b'{"model": "claude-x",  "max_tokens": 64, "cache_control" : {"type":"ephemeral"},'
    b'"messages":[{"role":"user","content":"hi"}], "top_p": 1.0}'
)
STREAMED = BODY[:-1] + b', "stream": true}'


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, upstream):
    folder = tmp_path_factory.mktemp("gateway")
    config = folder / "weft.toml"
    config.write_text("ping_seconds = 0.2\nmax_body = 20000\n")
    flags = ("--config", str(config), "--upstream", f"up=anthropic:{upstream.url}")
    with weft_serve(folder, *flags) as running:
        yield running


def turn(text, *before, **more):
    messages = [*before, {"role": "user", "content": text}]
    return {"model": "claude-x", "max_tokens": 64, "messages": messages, **more}


def texts_of(gateway, headers, branch=None):
    """The thread that an answer names, as plain rows."""
    with weft.thread.open(gateway.store, headers["x-weft-thread"], branch=branch) as thread:
        return [(row["role"], row["content"]) for row in thread.compile().to_dicts()]


def logged(gateway, model):
    """The log's line about this model; it is written after the caller has its answer."""
    number = 0
    while gateway.line(number).get("model") != model:
        number += 1
    return gateway.line(number)


@pytest.mark.parametrize(
    ("body", "answer"), [(BODY, WHOLE), (STREAMED, STREAM)], ids=["whole", "streamed"]
)
def test_the_same_protocol_is_forwarded_byte_for_byte(gateway, upstream, body, answer):
    upstream.then(answer)
    headers = {"x-api-key": "sk-mine", "anthropic-beta": "b1", "x-weft-thread": "bytes"}
    status, reply_headers, data = post(f"{gateway.url}/v1/messages?beta=true", body, headers)
    assert (status, data) == (200, b"".join(answer.pieces))
    [request] = upstream.requests
    assert request["body"] == body
    assert request["path"] == "/v1/messages?beta=true"
    assert "sk-mine" not in str(request["headers"])  # it is not its vendor's host
    assert request["headers"]["anthropic-beta"] == "b1"
    assert "x-weft-thread" not in request["headers"]
    assert reply_headers["x-weft-losses"] == "0"


def test_a_model_prefixed_by_its_upstream_is_only_renamed(gateway, upstream):
    upstream.then(WHOLE)
    post(f"{gateway.url}/v1/messages", BODY.replace(b"claude-x", b"up/claude-x"))
    sent_body = upstream.requests[0]["body"]
    assert sent_body == BODY


@pytest.mark.parametrize("answer", [WHOLE, STREAM], ids=["whole", "streamed"])
def test_an_exchange_becomes_a_thread_and_the_next_turn_extends_it(gateway, upstream, answer):
    upstream.then(answer)
    first = turn(f"first {len(answer.pieces)}", stream=answer is STREAM)
    _, headers, _ = post(f"{gateway.url}/v1/messages", first)
    echo = {"role": "assistant", "content": [{"type": "text", "text": "Hello there."}]}
    second = turn("second", first["messages"][0], echo, stream=answer is STREAM)
    _, later, _ = post(f"{gateway.url}/v1/messages", second)
    assert later["x-weft-thread"] == headers["x-weft-thread"]
    assert texts_of(gateway, later) == [
        ("user", f"first {len(answer.pieces)}"),
        ("assistant", "Hello there."),
        ("user", "second"),
        ("assistant", "Hello there."),
    ]


def test_a_repeated_request_adds_only_its_answer(gateway, upstream):
    refused = Scripted(b'{"type":"error"}', status=529, kind="application/json")
    upstream.then(refused, WHOLE)
    body = turn("again and again")
    _, first, _ = post(f"{gateway.url}/v1/messages", body)
    _, second, _ = post(f"{gateway.url}/v1/messages", body)
    assert first["x-weft-thread"] == second["x-weft-thread"]
    assert texts_of(gateway, second) == [("user", "again and again"), ("assistant", "Hello there.")]


def test_a_conversation_that_diverges_becomes_a_branch(gateway, upstream):
    upstream.then(WHOLE)
    first = turn("the root of it")
    session = {"x-session-id": "roads"}
    _, headers, _ = post(f"{gateway.url}/v1/messages", first, session)
    echo = {"role": "assistant", "content": "Hello there."}
    for words in ("one way", "another way"):
        body = turn(words, first["messages"][0], echo)
        _, later, _ = post(f"{gateway.url}/v1/messages", body, session)
        assert later["x-weft-thread"] == headers["x-weft-thread"]
    with weft.thread.open(gateway.store, headers["x-weft-thread"]) as thread:
        rows = [row["content"] for row in thread.compile().to_dicts()]
    assert rows == ["the root of it", "Hello there.", "another way", "Hello there."]
    assert texts_of(gateway, headers, branch="before-edit-of-turn-2")[2] == ("user", "one way")


@pytest.mark.parametrize(
    ("headers", "more", "name"),
    [
        ({"x-claude-code-session-id": "s-1"}, {}, "claude-s-1"),
        ({"x-session-id": "s-2"}, {}, "session-s-2"),
        ({}, {"metadata": {"user_id": '{"session_id":"s-3"}'}}, "claude-s-3"),
        ({"x-weft-thread": "my-thread"}, {}, "my-thread"),
    ],
)
def test_a_session_named_by_the_client_is_the_thread(gateway, upstream, headers, more, name):
    upstream.then(WHOLE)
    body = turn(f"in {name}", **more)
    _, reply_headers, _ = post(f"{gateway.url}/v1/messages", body, headers)
    assert reply_headers["x-weft-thread"] == name
    other = turn("something else altogether", **more)
    _, reply_headers, _ = post(f"{gateway.url}/v1/messages", other, headers)
    assert reply_headers["x-weft-thread"] == f"{name}.2"  # a subagent of the same session


def test_an_upstream_error_keeps_its_bytes_and_retry_headers(gateway, upstream):
    error = b'{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}'
    headers = [("retry-after", "17"), ("request-id", "req_1"), ("server-secret", "no")]
    upstream.then(Scripted(error, status=429, kind="application/json", headers=headers))
    status, reply_headers, data = post(f"{gateway.url}/v1/messages", BODY)
    assert (status, data) == (429, error)
    assert (reply_headers["retry-after"], reply_headers["request-id"]) == ("17", "req_1")
    assert "server-secret" not in reply_headers
    assert len(upstream.requests) == 1, "retries are the client's"


@pytest.mark.parametrize("count", [1, 3, 6])
def test_an_upstream_that_disconnects_ends_in_an_error_event(gateway, upstream, count):
    upstream.then(Scripted(*stream("Hello ", "there.")[:count], cut=True))
    model = f"claude-cut-{count}"
    body = {**turn(f"cut after {count}", stream=True), "model": model}
    status, headers, data = post(f"{gateway.url}/v1/messages", body)
    assert status == 200
    assert b"event: error" in data
    assert b"message_stop" not in data
    assert texts_of(gateway, headers) == [("user", f"cut after {count}")]
    assert logged(gateway, model)["outcome"] == "cut"


@pytest.mark.parametrize(
    ("error_type", "status", "code"),
    [
        ("overloaded_error", 529, "server_is_overloaded"),
        ("half a frame", 502, None),
    ],
)
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
def test_an_upstream_that_fails_at_once_gives_an_error_with_its_status(
    gateway, upstream, path, error_type, status, code
):
    error_frame = sse("error", error={"type": error_type, "message": "later"})
    upstream.then(Scripted(error_frame if status != 502 else b"data: {half\n\n"))
    model = "claude-fails-at-once"
    words = [{"role": "user", "content": "hi"}]
    asked = {"model": model, "input": words, "messages": words, "stream": True}
    reply_status, headers, data = post(f"{gateway.url}{path}", asked)
    assert reply_status == status
    assert orjson.loads(data)["error"]["code"] == code
    assert headers["content-type"] == "application/json"
    assert logged(gateway, model)["outcome"] == "upstream_failed"


def test_a_truncated_body_is_an_error(gateway, upstream):
    upstream.then(Scripted(WHOLE.pieces[0][:40], kind="application/json", cut=True))
    status, _, data = post(f"{gateway.url}/v1/messages", BODY)
    assert (status, orjson.loads(data)["error"]["type"]) == (502, "api_error")


def test_an_idle_stream_gets_pings(gateway, upstream):
    upstream.then(Scripted(*stream("Hello ", "there."), pause=0.3))
    _, _, data = post(f"{gateway.url}/v1/messages", STREAMED)
    assert b"event: ping" in data
    assert data.replace(b'event: ping\ndata: {"type": "ping"}\n\n', b"") == b"".join(STREAM.pieces)


@pytest.mark.parametrize(
    ("body", "headers", "status", "words"),
    [
        (b"{", {}, 400, "not JSON"),
        (b"[1]", {}, 400, "not a JSON object"),
        (b'{"messages": []}', {}, 400, "model"),
        (BODY.replace(b'"hi"', b"7").replace(b"claude-x", b"weft-offline"), {}, 400, "messages[0]"),
        (b" " * 20001, {}, 413, "20000"),
        (gzip.compress(b" " * 20001), {"content-encoding": "gzip"}, 413, "20000"),
        (b"plain text", {"content-encoding": "gzip"}, 400, "not gzip"),
        (b"x", {"content-encoding": "br"}, 415, "'br'"),
        (BODY, {"origin": "https://evil.example"}, 403, "evil.example"),
    ],
    ids=["cut", "list", "bare", "types", "large", "bomb", "plain", "brotli", "page"],
)
def test_bad_input_is_refused_in_the_callers_format(
    gateway, upstream, body, headers, status, words
):
    upstream.then(WHOLE)
    reply_status, _, data = post(f"{gateway.url}/v1/messages", body, headers)
    assert reply_status == status
    assert words in orjson.loads(data)["error"]["message"]
    assert not upstream.requests


def test_a_body_that_weft_cannot_decode_is_forwarded_to_its_vendor(gateway, upstream):
    upstream.then(WHOLE)
    body = BODY.replace(b'"hi"', b"7")
    status, headers, data = post(f"{gateway.url}/v1/messages", body)
    assert (status, data, upstream.requests[0]["body"]) == (200, WHOLE.pieces[0], body)
    assert "x-weft-thread" not in headers


def test_a_compressed_body_is_read(gateway, upstream):
    upstream.then(WHOLE)
    headers = {"content-encoding": "gzip"}
    status, _, _ = post(f"{gateway.url}/v1/messages", gzip.compress(BODY), headers)
    assert (status, upstream.requests[0]["body"]) == (200, BODY)


def test_a_disconnected_caller_is_noticed(gateway, upstream):
    upstream.then(Scripted(*stream(*["word "] * 600), pause=0.1))  # it ends after the deadline
    parts = urlsplit(gateway.url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port)
    connection.request("POST", "/v1/messages", STREAMED)
    connection.getresponse().read(10)
    connection.close()
    gateway.await_lines(1, lambda line: line.get("outcome") == "client_left")


def test_tokens_are_counted_by_the_upstream_or_locally(gateway, upstream):
    upstream.then(Scripted(b'{"input_tokens": 77}', kind="application/json"))
    url = f"{gateway.url}/v1/messages/count_tokens"
    assert orjson.loads(post(url, BODY)[2]) == {"input_tokens": 77}
    here = post(url, BODY.replace(b"claude-x", b"weft-offline"))[2]
    assert orjson.loads(here)["input_tokens"] > 0


NO_COUNTS = [
    Scripted(b"{}", kind="application/json"),
    Scripted(b'{"input_tokens": null}', kind="application/json"),
    Scripted(b"<html>login</html>", kind="text/html"),
    Scripted(b"", kind="application/json"),
    Scripted(b"", status=302, headers=[("location", "http://x")]),
]


@pytest.mark.parametrize("answer", NO_COUNTS)
def test_an_upstream_answer_without_a_count_is_not_used(gateway, upstream, answer):
    upstream.then(answer)
    status, _, data = post(f"{gateway.url}/v1/messages/count_tokens", BODY)
    assert (status, orjson.loads(data)["type"]) == (502, "error")


def test_models_of_the_upstreams_are_listed_with_the_offline_model(gateway):
    with urlopen(f"{gateway.url}/v1/models") as reply:
        ids = [row["id"] for row in orjson.loads(reply.read())["data"]]
    assert ids == ["scripted-model", "weft-offline"]


def test_codex_falls_back_from_websocket_to_http(gateway):
    parts = urlsplit(gateway.url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port)
    headers = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    connection.request("GET", "/v1/responses", headers=headers)
    assert connection.getresponse().status == 426
    connection.close()


def test_no_secret_and_no_content_is_logged_or_stored(gateway, upstream):
    upstream.then(WHOLE)
    headers = {"x-api-key": "sk-very-secret", "authorization": "Bearer sk-very-secret"}
    post(f"{gateway.url}/v1/messages", turn("a private word"), headers)
    assert "sk-very-secret" not in gateway.log()
    assert "private" not in gateway.log()
    files = gateway.store.parent.glob("weft.db*")
    assert not any(b"sk-very-secret" in path.read_bytes() for path in files)


def test_every_exchange_logs_one_line(gateway, upstream):
    upstream.then(WHOLE)
    body = BODY.replace(b"claude-x", b"claude-once")
    post(f"{gateway.url}/v1/messages", body)
    line = logged(gateway, "claude-once")
    assert (line["outcome"], line["upstream"], line["model"]) == ("ok", "up", "claude-once")
    assert (line["input"], line["output"], line["losses"]) == (12, 6, 0)


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (Scripted(b"<html>login</html>", kind="text/html"), BODY),
        (Scripted(b"<html>login</html>", kind="text/html"), STREAMED),
        (Scripted(b"", kind="application/json"), STREAMED),
        (
            Scripted(
                b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}',
                kind="application/json",
            ),
            BODY,
        ),
    ],
    ids=["page", "page for a stream", "nothing", "an error with status 200"],
)
def test_a_response_that_is_not_an_answer_is_an_error(gateway, upstream, answer, body):
    upstream.then(answer)
    status, _, data = post(f"{gateway.url}/v1/messages", body)
    assert status >= 500
    assert orjson.loads(data)["type"] == "error"


def test_a_stream_that_ends_in_half_a_frame_ends_in_an_error_event(gateway, upstream):
    upstream.then(Scripted(*stream("Hello ")[:3], b"data: {not json\n\n"))
    status, _, data = post(f"{gateway.url}/v1/messages", STREAMED)
    assert status == 200
    assert b"event: error" in data.split(b"not json")[1]


def test_an_unknown_path_is_not_an_unknown_model(gateway):
    """https://platform.openai.com/docs/guides/error-codes: clients look at the code."""
    status, _, data = post(f"{gateway.url}/v1/", {"model": "m", "input": "words"})
    error = orjson.loads(data)["error"]
    assert (status, error["code"]) == (404, "unknown_url")
    assert "POST /v1/chat/completions" in error["message"]
