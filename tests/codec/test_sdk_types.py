"""Every body that Weft sends matches the types of the official SDK."""

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import weft
from corpus import recorded, sent_by_clients
from laws.wire_bodies import BODIES, MODEL
from sdk_types import REQUESTS, RESPONSES, faults
from weft.codec import CODECS

PROTOCOLS = tuple(REQUESTS)
PAIRS = [(a, b) for a in PROTOCOLS for b in PROTOCOLS if a != b]

HI = [{"role": "user", "content": "hi"}]
GOOD = {
    "anthropic": {"model": "m", "max_tokens": 1, "messages": HI},
    "openai-chat": {"model": "m", "messages": HI},
    "openai-responses": {"model": "m", "input": HI},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}
PLANTED = [
    ("anthropic", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
    ("anthropic", {"messages": [{"role": "tool", "content": "hi"}]}),
    ("anthropic", {"messages": [{"role": "user", "content": "hi", "name": "x"}]}),
    ("anthropic", {"max_completion_tokens": 3}),
    ("anthropic", {"temperature": "hot"}),
    ("anthropic", {"tools": [{"name": "f", "parameters": {}}]}),
    ("openai-chat", {"messages": [{"role": "user", "content": [{"type": "image"}]}]}),
    ("openai-chat", {"messages": [{"role": "tool", "content": "no id"}]}),
    ("openai-chat", {"messages": [{"role": "assistant", "reasoning_content": "hm"}]}),
    ("openai-chat", {"top_k": 3}),
    ("openai-chat", {"tools": [{"type": "function", "name": "f"}]}),
    ("openai-responses", {"input": [{"role": "assistant", "content": [{"type": "output_text"}]}]}),
    ("openai-responses", {"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}),
    ("openai-responses", {"tools": [{"type": "function", "function": {"name": "f"}}]}),
    ("openai-responses", {"messages": HI}),
    ("openai-responses", {"service_tier": "on_demand"}),
    ("gemini", {"contents": [{"role": "user", "parts": [{"type": "text", "text": "hi"}]}]}),
    ("gemini", {"model": "m"}),
    ("gemini", {"generationConfig": {"max_tokens": 3}}),
    ("gemini", {"tools": [{"functionDeclarations": [{"name": "f", "input_schema": {}}]}]}),
]
ANSWER = {
    "anthropic": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
    "openai-chat": {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
        ],
    },
    "gemini": {
        "candidates": [
            {"content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP"}
        ]
    },
}
PLANTED_ANSWERS = [
    ("anthropic", {"stop_reason": "stop"}),
    ("anthropic", {"content": [{"type": "thinking", "thinking": "unsigned"}]}),
    ("anthropic", {"created": 0}),
    ("openai-chat", {"choices": [{"index": 0, "message": {"role": "assistant"}}]}),
    ("openai-chat", {"stop_reason": "end_turn"}),
    ("openai-responses", {"output": [{"type": "message"}]}),
    ("openai-responses", {"choices": []}),
    ("gemini", {"candidates": [{"content": {"parts": [{"words": "hi"}]}}]}),
    ("gemini", {"usage": {}}),
]

quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_plain_body_passes(protocol):
    assert faults(REQUESTS, protocol, GOOD[protocol]) == []
    assert faults(RESPONSES, protocol, _answer(protocol)) == []


@pytest.mark.parametrize(("protocol", "planted"), PLANTED)
def test_an_invalid_request_fails(protocol, planted):
    assert faults(REQUESTS, protocol, GOOD[protocol] | planted)


@pytest.mark.parametrize(("protocol", "planted"), PLANTED_ANSWERS)
def test_an_invalid_answer_fails(protocol, planted):
    assert faults(RESPONSES, protocol, _answer(protocol) | planted)


def test_sampling_parameters_match_the_api_version():
    assert dict(CODECS["anthropic"].http.headers) == {"anthropic-version": "2023-06-01"}


def _answer(protocol):
    if protocol in ANSWER:
        return ANSWER[protocol]
    return weft.translate_response(ANSWER["anthropic"], "anthropic", protocol).body


@pytest.mark.parametrize(("source", "target"), PAIRS)
@given(data=st.data())
@quick
def test_generated_requests_match_the_sdk_types(source, target, data):
    body = data.draw(BODIES[source])
    done = weft.translate(body, source, target, model=MODEL.get(source))
    assert faults(REQUESTS, target, done.body) == []


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_recorded_requests_match_the_sdk_types(source, target):
    judged = 0
    for exchange in recorded(source):
        try:
            done = weft.translate(exchange["request"], source, target, model=MODEL.get(source))
        except weft.Refused:
            continue
        assert faults(REQUESTS, target, done.body) == [], exchange["id"]
        judged += 1
    assert judged


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_recorded_answers_are_read_by_the_sdk(source, target):
    judged = 0
    for exchange in recorded(source):
        if exchange["status"] >= 400 or "response" not in exchange:
            continue
        try:
            done = weft.translate_response(exchange["response"], source, target)
        except weft.Refused:
            continue
        assert faults(RESPONSES, target, done.body) == [], exchange["id"]
        judged += 1
    assert judged


@pytest.mark.parametrize("target", PROTOCOLS)
def test_requests_of_real_clients_match_the_sdk_types(target):
    count = 0
    sent = [(source, *match) for source in PROTOCOLS for match in sent_by_clients(source)]
    for source, name, body in sent:
        if source == target:
            assert weft.translate(body, source, target, model=MODEL.get(source)).body == body
            continue
        done = weft.translate(body, source, target, model=MODEL.get(source))
        assert faults(REQUESTS, target, done.body) == [], name
        count += 1
    assert count > 0
