"""Refusals in each protocol: the text that declines, and the stop reason.

OpenAI's protocols put the text into a separate part of the answer, and the answer is complete.
Anthropic and Gemini cut the answer off and explain it next to the stop reason.
"""

from typing import Any

import orjson
import pytest

import weft
from codec.test_streams import completed, ended, event, messages, sse
from laws.wire_bodies import PROTOCOLS
from weft.codec import CODECS, AnswerTranslator
from weft.model import Origin, Refusal

A, C, R, G = "anthropic", "openai-chat", "openai-responses", "gemini"
Body = dict[str, Any]


def chunk(delta: Body, finish: str | None = None) -> Body:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


PART = {"type": "refusal", "refusal": "I cannot"}
ITEM = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
DETAILS = {"type": "refusal", "category": "cyber", "explanation": "I cannot"}

STREAMS: dict[str, list[Body | str]] = {
    C: [
        chunk({"role": "assistant", "content": None, "refusal": ""}),
        chunk({"refusal": "I "}),
        chunk({"refusal": "cannot"}),
        chunk({}, "stop"),
        "[DONE]",
    ],
    R: [
        event("output_item.added", item={**ITEM, "content": []}),
        event("content_part.added", content_index=0, part={**PART, "refusal": ""}),
        event("refusal.delta", content_index=0, delta="I cannot"),
        event("output_item.done", item={**ITEM, "content": [PART]}),
        completed({**ITEM, "content": [PART]}),
    ],
    A: [*messages(ended({}, stop_reason="refusal", stop_sequence=None, stop_details=DETAILS))],
    G: [
        {
            "candidates": [
                {
                    "content": {"role": "model"},
                    "finishReason": "SAFETY",
                    "finishMessage": "I cannot",
                }
            ]
        }
    ],
}

WHOLE: dict[str, Body] = {
    C: {
        "id": "c1",
        "object": "chat.completion",
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": None, "refusal": "I cannot"},
                "finish_reason": "stop",
            }
        ],
    },
    R: {"id": "r", "model": "g", "status": "completed", "output": [{**ITEM, "content": [PART]}]},
    A: {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "c",
        "content": [],
        "stop_reason": "refusal",
        "stop_sequence": None,
        "stop_details": DETAILS,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
    G: {**STREAMS[G][0]},
}


def told_chat(body: Body) -> tuple[str, Any]:
    (choice,) = body["choices"]
    message = choice["message"]
    return (message.get("content") or "") + (message.get("refusal") or ""), choice["finish_reason"]


def told_responses(body: Body) -> tuple[str, Any]:
    parts = [part for item in body["output"] for part in item["content"]]
    texts = [part.get("refusal") or part.get("text") or "" for part in parts]
    return "".join(texts), (body.get("incomplete_details") or {}).get("reason") or body["status"]


def told_anthropic(body: Body) -> tuple[str, Any]:
    details = body.get("stop_details") or {}
    texts = [block["text"] for block in body["content"]]
    return "".join(texts) + (details.get("explanation") or ""), body["stop_reason"]


def told_gemini(body: Body) -> tuple[str, Any]:
    (candidate,) = body["candidates"]
    texts = [part["text"] for part in candidate["content"].get("parts", ())]
    return "".join(texts) + candidate.get("finishMessage", ""), candidate["finishReason"]


TOLD = {C: told_chat, R: told_responses, A: told_anthropic, G: told_gemini}

STOPS = {
    (C, R): "completed",
    (C, A): "refusal",
    (C, G): "SAFETY",
    (R, C): "stop",
    (R, A): "refusal",
    (R, G): "SAFETY",
    (A, C): "content_filter",
    (A, R): "content_filter",
    (A, G): "SAFETY",
    (G, C): "content_filter",
    (G, R): "content_filter",
    (G, A): "refusal",
}
"""If the model declines in text, the answer is complete. If a filter blocks it, it is cut off."""


@pytest.mark.parametrize(("source", "target"), STOPS)
def test_a_refusal_has_text_and_a_stop_reason(source: str, target: str) -> None:
    body = weft.translate_response(WHOLE[source], source, target).body
    assert TOLD[target](orjson.loads(orjson.dumps(body))) == ("I cannot", STOPS[source, target])


@pytest.mark.parametrize(("source", "target"), STOPS)
def test_a_streamed_refusal_equals_a_refusal_in_a_body(source: str, target: str) -> None:
    translator = weft.StreamTranslator(source, target)
    data = translator.feed(sse(*STREAMS[source])) + translator.close()
    client = weft.StreamTranslator(target, target)
    client.feed(data)
    client.close()
    body = CODECS[target].encode_response(client.response, 0).body
    assert TOLD[target](body) == ("I cannot", STOPS[source, target])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_refusal_round_trips(protocol: str) -> None:
    body = weft.translate_response(WHOLE[protocol], protocol, protocol).body
    assert orjson.loads(orjson.dumps(body)) == WHOLE[protocol]
    translator = weft.StreamTranslator(protocol, protocol)
    data = translator.feed(sse(*STREAMS[protocol])) + translator.close()
    assert [line for line in data.split(b"\n") if line.startswith(b"data: ")] == [
        line for line in sse(*STREAMS[protocol]).split(b"\n") if line
    ]


@pytest.mark.parametrize("target", [C, R])
def test_the_refusal_that_a_caller_sees_is_stored(target: str) -> None:
    """A caller echoes the text that it received, so the thread must have that text."""
    translator = AnswerTranslator(CODECS[A], CODECS[target], origin=Origin(A))
    translator.feed(sse(*STREAMS[A]))
    assert translator.response.message.blocks == (Refusal("I cannot"),)
    translator = weft.StreamTranslator(A, target)
    translator.feed(sse(*STREAMS[A]))
    assert translator.response.message.blocks == (Refusal("I cannot"),)


@pytest.mark.parametrize("target", [C, R])
def test_a_vendor_does_not_get_its_own_explanation_back(target: str) -> None:
    """With its sidecar, an explained refusal becomes the empty answer again that it was."""
    shown = weft.translate_response(WHOLE[A], A, target)
    key = {C: "messages", R: "input"}[target]
    hello = {"role": "user", "content": "hi"}
    echo: list[Body] = (
        [shown.body["choices"][0]["message"]] if target == C else shown.body["output"]
    )
    request = {"model": "m", key: [hello, *echo, hello]}
    returned = weft.translate(request, target, A, sidecar=shown.sidecar)
    assert b"I cannot" not in orjson.dumps(returned.body)
    assert b"I cannot" in orjson.dumps(weft.translate(request, target, A).body)


FORBIDDEN = {
    "bio_policy": "bio",
    "cyber_policy": "cyber",
    "content_filter": None,
    "misalignment_policy_violation": None,
}


@pytest.mark.parametrize("code", FORBIDDEN)
@pytest.mark.parametrize("target", [A, C, G])
def test_a_response_that_failed_because_of_a_policy_is_a_refusal(target: str, code: str) -> None:
    error = {"code": code, "message": "I cannot"}
    whole = {"id": "r", "model": "g", "status": "failed", "output": [], "error": error}
    body = orjson.loads(orjson.dumps(weft.translate_response(whole, R, target).body))
    translator = weft.StreamTranslator(R, target)
    data = translator.feed(sse({"type": "response.failed", "response": whole})) + translator.close()
    client = weft.StreamTranslator(target, target)
    client.feed(data)
    streamed = CODECS[target].encode_response(client.response, 0).body
    for texts in (body, streamed):
        assert TOLD[target](texts) == ("I cannot", STOPS[A, target] if target != A else "refusal")
    if target == A:
        assert body["stop_details"]["category"] == FORBIDDEN[code]
    same_protocol = weft.translate_response(whole, R, R).body
    assert orjson.loads(orjson.dumps(same_protocol)) == whole


@pytest.mark.parametrize("target", [C, R, G])
def test_a_refusal_without_an_explanation_has_only_its_stop_reason(target: str) -> None:
    body = {**WHOLE[A], "stop_details": {**DETAILS, "explanation": None}}
    done = weft.translate_response(body, A, target)
    assert TOLD[target](orjson.loads(orjson.dumps(done.body))) == ("", STOPS[A, target])


def test_a_messages_client_gets_a_refusal_as_deltas() -> None:
    """Clients of that protocol read the text of a block from its deltas."""
    translator = weft.StreamTranslator(R, A)
    data = translator.feed(sse(completed({**ITEM, "content": [PART]})))
    assert b'"content_block":{"type":"text","text":""}' in data
    assert b'"delta":{"type":"text_delta","text":"I cannot"}' in data
