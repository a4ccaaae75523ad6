"""Upstream errors: which ones are retried, and in which format the client gets them."""

from functools import partial

import openai
import orjson
import pytest

from gateway.test_restore import ANSWERS, ask, echo, first_request, kept_of
from servers import REQUEST_PATHS, UPSTREAM_NAMES, Scripted, post
from weft.errors import StoreError
from weft.gateway import failure

KIND = "application/json"
LONG = {
    "anthropic": "prompt is too long: 210000 tokens > 200000 maximum",
    "openai-chat": "This model's maximum context length is 8192 tokens.",
    "openai-responses": "Your input exceeds the context window of this model.",
    "gemini": "The input token count (9) exceeds the maximum number of tokens allowed (8).",
}
BOUND = {
    "anthropic": "Invalid `signature` in `thinking` block.",
    "openai-chat": "property 'reasoning_content' is unsupported",
    "openai-responses": "Item with id 'rs_1' not found.",
    "gemini": "Thought signature is not valid",
}


def refusal(protocol, message, status=400):
    body = {
        "anthropic": {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": message},
        },
        "gemini": {"error": {"code": status, "message": message, "status": "INVALID_ARGUMENT"}},
    }.get(protocol, {"error": {"message": message, "type": "invalid_request_error"}})
    return Scripted(orjson.dumps(body), status=status, kind=KIND)


def second_turn(gateway, upstream, client, protocol, session, *answers):
    """The second request of a conversation whose first answer held thinking."""
    model = f"{UPSTREAM_NAMES[protocol]}/gpt-5"
    turn = partial(ask, gateway, upstream, client, model, session=session)
    body = first_request(client, model)
    answer, _ = turn(body, protocol)
    upstream.then(*answers)
    path = REQUEST_PATHS[client].format(model=model)
    headers = {"x-weft-thread": session}
    return post(f"{gateway.url}{path}", echo(client, body, answer), headers)


PAIRS = [(client, protocol) for client in UPSTREAM_NAMES for protocol in LONG if client != protocol]


@pytest.mark.parametrize(("client", "protocol"), PAIRS)
def test_a_full_context_window_is_reported_at_once_without_a_retry(
    gateway, upstream, client, protocol
):
    whole = Scripted(orjson.dumps(ANSWERS[protocol]), kind=KIND)
    upstream_error = refusal(protocol, LONG[protocol])
    status, _, data = second_turn(
        gateway, upstream, client, protocol, f"long-{client}-{protocol}", upstream_error, whole
    )
    assert (status, len(upstream.requests)) == (400, 1)
    assert kept_of(
        protocol, orjson.loads(upstream.requests[0]["body"])
    )  # there was something put back
    error = orjson.loads(data)["error"]
    marks = {
        "anthropic": "prompt is too long" in error["message"].lower(),
        "openai-chat": error.get("code") == "context_length_exceeded",
        "openai-responses": error.get("code") == "context_length_exceeded",
        "gemini": "token count" in error["message"],
    }
    assert marks[client]


@pytest.mark.parametrize("protocol", BOUND)
def test_refused_restored_content_is_removed(gateway, upstream, protocol):
    client = "gemini" if protocol != "gemini" else "anthropic"
    whole = Scripted(orjson.dumps(ANSWERS[protocol]), kind=KIND)
    upstream_error = refusal(protocol, BOUND[protocol])
    status, _, data = second_turn(
        gateway, upstream, client, protocol, f"bound-{protocol}", upstream_error, whole
    )
    assert (status, len(upstream.requests)) == (200, 2), data


SECONDS = [
    ("max_tokens: 9 is more than 8", "max_tokens"),  # it is about what the caller wrote
    ("prompt is too long: 9 > 8", "too long"),
    ("Expected `thinking`, but found `tool_use`", "signature"),  # about what was left out
]


@pytest.mark.parametrize(("message", "words"), SECONDS)
def test_of_two_errors_the_caller_gets_the_one_about_its_request(gateway, upstream, message, words):
    answers = [refusal("anthropic", text) for text in (BOUND["anthropic"], message)]
    session = f"two-{words}"
    status, _, data = second_turn(gateway, upstream, "openai-chat", "anthropic", session, *answers)
    assert (status, len(upstream.requests)) == (400, 2)
    assert words in orjson.loads(data)["error"]["message"]


OTHERS = [(400, "max_tokens: must be positive"), (404, "The model does not exist"), (429, "slow")]


@pytest.mark.parametrize(("status", "message"), OTHERS)
def test_an_error_about_anything_else_is_not_retried(gateway, upstream, status, message):
    reply_status, _, _ = second_turn(
        gateway, upstream, "openai-chat", "anthropic", f"other-{status}",
        refusal("anthropic", message, status),
    )  # fmt: skip
    assert (reply_status, len(upstream.requests)) == (status, 1)


SAME = [  # servers that speak a vendor's protocol, and have words of their own
    ("anthropic", "This model's maximum context length is 8192 tokens.", 400),
    ("openai-chat", "the request exceeds the available context size", 500),
    ("openai-responses", "prompt too long; exceeded max context length by 9 tokens", 400),
    ("gemini", "request (9 tokens) exceeds the available context size (8 tokens)", 400),
]


@pytest.mark.parametrize(("protocol", "message", "status"), SAME)
def test_a_full_context_window_is_recognisable_in_the_same_protocol_too(
    gateway, upstream, protocol, message, status
):
    model = f"{UPSTREAM_NAMES[protocol]}/m"
    upstream.then(refusal(protocol, message, status))
    path = REQUEST_PATHS[protocol].format(model=model)
    reply_status, _, data = post(f"{gateway.url}{path}", first_request(protocol, model))
    assert reply_status == 400
    marks = {"anthropic": b"prompt is too long", "gemini": b"token count"}
    assert marks.get(protocol, b"context_length_exceeded") in data
    assert message.encode() in data


def test_an_unchanged_error_of_the_same_protocol_keeps_its_bytes(gateway, upstream):
    body = b'{"type": "error",  "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}, "request_id": "r"}'  # noqa: E501
    upstream.then(Scripted(body, status=400, kind=KIND))
    reply_status, _, data = post(f"{gateway.url}/v1/messages", first_request("anthropic", "a/m"))
    assert (reply_status, data) == (400, body)


@pytest.mark.parametrize("protocol", LONG)
def test_codex_reads_a_full_context_window_in_the_stream(gateway, upstream, protocol):
    """It takes a status of 400 for a request that is wrong, and never compacts."""
    upstream.then(refusal(protocol, LONG[protocol]))
    client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="k", max_retries=0)
    model = f"{UPSTREAM_NAMES[protocol]}/m"
    with client.responses.create(model=model, input="hi", stream=True) as stream:
        events = list(stream)
    client.close()
    assert events[-1].type == "response.failed"
    assert events[-1].response.error.code == "context_length_exceeded"


def test_a_weft_error_reveals_nothing_about_the_machine(caplog):
    """Where the store is concerns the operator, who finds it in the log."""
    secret = "/home/me/weft.db: disk I/O error; postgresql://me:pw@db/weft"
    error = failure(StoreError(secret))
    assert (error.kind, error.status) == ("server", 500)
    assert "/home" not in error.message
    assert "pw" not in error.message
    assert secret in caplog.text
