"""A vendor gets back the private state of its answers that the client could not echo."""

from functools import partial
from uuid import uuid4

import orjson
import pytest

import weft
from servers import REQUEST_PATHS, UPSTREAM_NAMES, Scripted, post

THINKING = {"type": "thinking", "thinking": "I must look.", "signature": "c2lnbmVk"}
REDACTED = {"type": "redacted_thinking", "data": "c2VhbGVk"}
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "encrypted_content": "c2VhbGVk",
}
USAGE = {"input_tokens": 12, "output_tokens": 6}
ANSWERS = {
    "anthropic": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            THINKING,
            REDACTED,
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"path": "a"}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": USAGE,
    },
    "openai-chat": {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": "I must look.",
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "look", "arguments": '{"path":"a"}'},
                        }
                    ],
                },
            }
        ],
        "usage": {"prompt_tokens": 12, "completion_tokens": 6, "total_tokens": 18},
    },
    "openai-responses": {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": [
            REASONING,
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "call_1",
                "name": "look",
                "arguments": '{"path":"a"}',
                "status": "completed",
            },
        ],
        "usage": {**USAGE, "total_tokens": 18},
    },
    "gemini": {
        "candidates": [
            {
                "index": 0,
                "finishReason": "STOP",
                "content": {
                    "role": "model",
                    "parts": [
                        {
                            "functionCall": {"name": "look", "args": {"path": "a"}},
                            "thoughtSignature": "c2lnbmVk",
                        }
                    ],
                },
            }
        ],
        "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 6},
        "modelVersion": "m",
    },
}
KEPT = {
    "anthropic": [THINKING, REDACTED],
    "openai-chat": ["I must look."],  # https://api-docs.deepseek.com/guides/thinking_mode
    "openai-responses": [REASONING],
    "gemini": ["c2lnbmVk"],
}
PAIRS = [(client, upstream) for upstream in KEPT for client in UPSTREAM_NAMES if client != upstream]


def kept_of(protocol, body):
    """All thinking in a request."""
    if protocol == "anthropic":
        blocks = [
            b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"]
        ]
        return [b for b in blocks if "thinking" in b["type"]]
    if protocol == "openai-chat":
        messages = [message for message in body["messages"] if "reasoning_content" in message]
        return [message["reasoning_content"] for message in messages]
    if protocol == "openai-responses":
        return [item for item in body["input"] if item.get("type") == "reasoning"]
    parts = [part for content in body["contents"] for part in content["parts"]]
    return [part["thoughtSignature"] for part in parts if "thoughtSignature" in part]


def first_request(client, model):
    look = {"name": "look", "input_schema": {"type": "object"}}
    body = {
        "model": model,
        "max_tokens": 64,
        "messages": [{"role": "user", "content": f"what is in a? {uuid4().hex}"}],
        "tools": [look],
    }
    return weft.translate(body, "anthropic", client).body


def echo(client, body, answer):
    """The next request of a client that hands back what it saw, and the tool's result."""
    if client == "anthropic":
        call = answer["content"][-1]
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": "words"}
        calls = [block for block in answer["content"] if block["type"] == "tool_use"]
        more = [{"role": "assistant", "content": calls}, {"role": "user", "content": [result]}]
        return body | {"messages": body["messages"] + more}
    if client == "openai-chat":
        content = answer["choices"][0]["message"]
        call = content["tool_calls"][0]
        more = [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "words"},
        ]
        return body | {"messages": body["messages"] + more}
    if client == "openai-responses":
        call = next(item for item in answer["output"] if item["type"] == "function_call")
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "words"}
        return body | {"input": [*body["input"], call, result]}
    content = answer["candidates"][0]["content"]
    parts = [
        {"functionCall": part["functionCall"]}
        for part in content["parts"]
        if "functionCall" in part
    ]
    result = {"functionResponse": {"name": "look", "response": {"output": "words"}}}
    if "id" in parts[0]["functionCall"]:
        result["functionResponse"]["id"] = parts[0]["functionCall"]["id"]
    more = [{"role": "model", "parts": parts}, {"role": "user", "parts": [result]}]
    return body | {"contents": body["contents"] + more}


def ask(gateway, upstream, client, model, body, protocol, *, session):
    upstream.then(Scripted(orjson.dumps(ANSWERS[protocol]), kind="application/json"))
    path = REQUEST_PATHS[client].format(model=model)
    headers = {"x-weft-thread": session}
    status, _, data = post(f"{gateway.url}{path}", body, headers)
    assert status == 200, data
    return orjson.loads(data), orjson.loads(upstream.requests[-1]["body"])


@pytest.mark.parametrize(("client", "protocol"), PAIRS)
def test_thinking_goes_back_to_its_vendor(gateway, upstream, client, protocol):
    model = f"{UPSTREAM_NAMES[protocol]}/gpt-5"
    turn = partial(ask, gateway, upstream, client, model, session=f"{client}-{protocol}")
    body = first_request(client, model)
    answer, _ = turn(body, protocol)
    _, sent = turn(echo(client, body, answer), protocol)
    assert kept_of(protocol, sent) == KEPT[protocol]


def streamed_thinking():
    """An answer of Anthropic's that thinks and calls, frame by frame."""
    whole = ANSWERS["anthropic"]
    thinking, redacted, call = whole["content"]
    starts = [thinking | {"thinking": "", "signature": ""}, redacted, call | {"input": {}}]
    deltas = [
        (0, {"type": "thinking_delta", "thinking": thinking["thinking"]}),
        (0, {"type": "signature_delta", "signature": thinking["signature"]}),
        (2, {"type": "input_json_delta", "partial_json": '{"path":"a"}'}),
    ]
    frames = [{"type": "message_start", "message": whole | {"content": [], "stop_reason": None}}]
    for index, block in enumerate(starts):
        frames.append({"type": "content_block_start", "index": index, "content_block": block})
        frames += [
            {"type": "content_block_delta", "index": index, "delta": delta}
            for at, delta in deltas
            if at == index
        ]
        frames.append({"type": "content_block_stop", "index": index})
    stop = {"stop_reason": "tool_use", "stop_sequence": None}
    frames.append({"type": "message_delta", "delta": stop, "usage": {"output_tokens": 6}})
    frames.append({"type": "message_stop"})
    return Scripted(*[f"data: {orjson.dumps(frame).decode()}\n\n".encode() for frame in frames])


def test_streamed_thinking_goes_back_too(gateway, upstream):
    model, session = "a/gpt-5", {"x-weft-thread": "streamed"}
    body = first_request("openai-chat", model)
    upstream.then(streamed_thinking())
    url = f"{gateway.url}{REQUEST_PATHS['openai-chat']}"
    status, _, data = post(url, body | {"stream": True}, session)
    assert status == 200
    assert b"toolu_1" in data
    translated = weft.translate_response(ANSWERS["anthropic"], "anthropic", "openai-chat").body
    turn = partial(ask, gateway, upstream, "openai-chat", model, session="streamed")
    _, sent = turn(echo("openai-chat", body, translated), "anthropic")
    assert kept_of("anthropic", sent) == [THINKING, REDACTED]


@pytest.mark.parametrize(("model", "asked"), [("gpt-5", True), ("gpt-4o", False)])
def test_a_reasoning_model_is_asked_for_encrypted_reasoning(gateway, upstream, model, asked):
    name, protocol = f"r/{model}", "openai-responses"
    body = first_request("openai-chat", name)
    _, sent = ask(gateway, upstream, "openai-chat", name, body, protocol, session=model)
    assert (sent.get("include") == ["reasoning.encrypted_content"]) is asked


@pytest.mark.parametrize("protocol", KEPT)
def test_another_model_does_not_get_foreign_thinking(gateway, upstream, protocol):
    client = "gemini" if protocol != "gemini" else "anthropic"
    model, other = f"{UPSTREAM_NAMES[protocol]}/gpt-5", f"{UPSTREAM_NAMES[protocol]}/gpt-6"
    turn = partial(ask, gateway, upstream, client, session=f"other-{protocol}")
    body = first_request(client, model)
    answer, _ = turn(model, body, protocol)
    _, sent = turn(other, echo(client, body, answer) | {"model": other}, protocol)
    assert [part for part in kept_of(protocol, sent) if part in KEPT[protocol]] == []


def unmarked(value):
    """A body without its cache marks, which move with every turn."""
    if isinstance(value, dict):
        return {key: unmarked(inner) for key, inner in value.items() if key != "cache_control"}
    return [unmarked(inner) for inner in value] if isinstance(value, list) else value


def test_a_request_starts_with_the_previous_requests_messages(gateway, upstream):
    """Two answers have the same text, and only the second has thinking."""
    model, ok = "a/gpt-5", {"type": "text", "text": "ok"}
    url, session = f"{gateway.url}{REQUEST_PATHS['openai-chat']}", {"x-weft-thread": "alike"}
    messages, sent = [], []
    for content in ([ok], [THINKING, ok], [ok]):
        answer = ANSWERS["anthropic"] | {"content": content, "stop_reason": "end_turn"}
        upstream.then(Scripted(orjson.dumps(answer), kind="application/json"))
        messages.append({"role": "user", "content": [{"type": "text", "text": "again"}]})
        status, _, data = post(url, {"model": model, "messages": messages}, session)
        assert status == 200, data
        sent.append(unmarked(orjson.loads(upstream.requests[-1]["body"])["messages"]))
        messages.append({"role": "assistant", "content": "ok"})
    assert kept_of("anthropic", {"messages": sent[2]}) == [THINKING]
    assert sent[2][: len(sent[1])] == sent[1]


BOUND = "Invalid `signature` in `thinking` block. The block is bound to a different conversation."


def test_content_that_its_vendor_refuses_is_not_restored(gateway, upstream):
    """https://platform.claude.com/docs/en/build-with-claude/preserved-thinking"""
    model, session = "a/gpt-5", "bound"
    turn = partial(ask, gateway, upstream, "openai-chat", model, session=session)
    body = first_request("openai-chat", model)
    answer, _ = turn(body, "anthropic")
    refusal = {"type": "error", "error": {"type": "invalid_request_error", "message": BOUND}}
    kind, url = "application/json", f"{gateway.url}{REQUEST_PATHS['openai-chat']}"
    first = Scripted(orjson.dumps(refusal), status=400, kind=kind)
    upstream.then(first, Scripted(orjson.dumps(ANSWERS["anthropic"]), kind=kind))
    again = echo("openai-chat", body, answer)
    status, _, data = post(url, again, {"x-weft-thread": session})
    assert status == 200, data
    sent = [kept_of("anthropic", orjson.loads(request["body"])) for request in upstream.requests]
    assert sent == [[THINKING, REDACTED], []]
