"""One request with every feature at once, translated to the three other protocols and back.

Each row of `FACTS` is one feature: how each protocol that supports it writes it, and the path of
the loss in the others. Every feature is either written or reported.
"""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

import weft

C, R, G = "openai-chat", "openai-responses", "gemini"
TARGETS = (C, R, G)
MODELS = {C: "gpt-5", R: "gpt-5", G: "gemini-3-pro"}
Body = dict[str, Any]

TORTURE: Body = {
    "model": "claude-opus-4-8",
    "max_tokens": 1024,
    "system": [
        {"type": "text", "text": "S1"},
        {"type": "text", "text": "S2", "cache_control": {"type": "ephemeral"}},
    ],
    "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "none"},
    "messages": [
        {
            "role": "user",
            "content": [
                {
                    "type": "text",
                    "text": "hi",
                    "cache_control": {"type": "ephemeral", "ttl": "1h"},
                }
            ],
        },
        {"role": "system", "content": "REMINDER: answer in French"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "secret plan", "signature": "SIG"},
                {"type": "text", "text": "before"},
                {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
                {"type": "text", "text": "after"},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "is_error": True,
                    "content": [
                        {"type": "text", "text": "boom"},
                        {
                            "type": "image",
                            "source": {
                                "type": "base64",
                                "media_type": "image/png",
                                "data": "AAAA",
                            },
                        },
                    ],
                },
                {"type": "text", "text": "now fix it"},
                {
                    "type": "document",
                    "source": {
                        "type": "base64",
                        "media_type": "application/pdf",
                        "data": "BBBB",
                    },
                },
            ],
        },
    ],
}

PIXEL = "data:image/png;base64,AAAA"
PAGES = "data:application/pdf;base64,BBBB"


def index(body: Body, words: str) -> int:
    """The position of this text in the JSON of a body; -1 if it is not there."""
    return orjson.dumps(body).decode().find(orjson.dumps(words).decode())


def in_order(*words: str) -> Callable[[Body], bool]:
    def check(body: Body) -> bool:
        positions = [index(body, word) for word in words]
        return -1 not in positions and positions == sorted(positions)

    return check


def chat_message(body: Body, number: int) -> Body:
    return body["messages"][number]


Check = Callable[[Body], bool] | str
"""The text of a fact in a body of this protocol, or the path of the loss that reports it."""

FACTS: dict[str, dict[str, Check]] = {
    "a later system message": {
        C: lambda b: (
            chat_message(b, 2) == {"role": "system", "content": "REMINDER: answer in French"}
        ),
        R: lambda b: any(
            item.get("role") == "system" and item["content"] == "REMINDER: answer in French"
            for item in b["input"]
        ),
        G: "messages[1]",  # its words stay in place, as the user's
    },
    "its words, in their place": dict.fromkeys(
        TARGETS, in_order("hi", "REMINDER: answer in French", "before")
    ),
    "the border between S1 and S2": {
        C: lambda b: [part["text"] for part in chat_message(b, 0)["content"]] == ["S1", "S2"],
        R: lambda b: [part["text"] for part in b["input"][0]["content"]] == ["S1", "S2"],
        G: lambda b: [part["text"] for part in b["systemInstruction"]["parts"]] == ["S1", "S2"],
    },
    "thinking": dict.fromkeys(TARGETS, "messages[2].content[0]"),
    "the order of text, call and text": {
        C: "messages[2].content[3]",
        R: in_order("before", "toolu_1", "after"),
        G: lambda b: (
            [next(iter(part)) for part in b["contents"][-3]["parts"]]
            == ["text", "functionCall", "text"]
        ),
    },
    "both texts, apart": dict.fromkeys(TARGETS, in_order("before", "after")),
    "the call": {
        C: lambda b: (
            chat_message(b, 3)["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a":1}'}
        ),
        R: lambda b: any(
            item.get("arguments") == '{"a":1}' and item["call_id"] == "toolu_1"
            for item in b["input"]
        ),
        G: lambda b: (
            b["contents"][-3]["parts"][1]["functionCall"]
            == {"name": "f", "args": {"a": 1}, "id": "toolu_1"}
        ),
    },
    "that the tool failed": {
        C: "messages[3].content[0]",
        R: "messages[3].content[0]",
        G: lambda b: (
            b["contents"][-2]["parts"][0]["functionResponse"]["response"] == {"error": "boom"}
        ),
    },
    "the image in the result": {
        C: lambda b: (
            {"type": "image_url", "image_url": {"url": PIXEL}} in chat_message(b, 5)["content"]
        ),
        R: lambda b: any(
            {"type": "input_image", "image_url": PIXEL} in item.get("output", ())
            for item in b["input"]
        ),
        G: lambda b: (
            b["contents"][-2]["parts"][0]["functionResponse"]["parts"]
            == [{"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]
        ),
    },
    "the words beside the result": dict.fromkeys(TARGETS, in_order("boom", "now fix it")),
    "the document": {
        C: lambda b: any(
            part.get("file", {}).get("file_data") == PAGES
            for part in chat_message(b, -1)["content"]
        ),
        R: lambda b: any(part.get("file_data") == PAGES for part in b["input"][-1]["content"]),
        G: lambda b: (
            {"inlineData": {"mimeType": "application/pdf", "data": "BBBB"}}
            in b["contents"][-1]["parts"]
        ),
    },
    "the cache mark of S2": dict.fromkeys(TARGETS, "system[1]"),
    "the cache mark of the user's text": dict.fromkeys(TARGETS, "messages[0].content[0]"),
    "that no tool is to be called": {
        C: lambda b: b["tool_choice"] == "none",
        R: lambda b: b["tool_choice"] == "none",
        G: lambda b: b["toolConfig"]["functionCallingConfig"]["mode"] == "NONE",
    },
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("fact", FACTS)
def test_every_fact_is_kept_or_reported(fact: str, target: str) -> None:
    done = weft.translate(TORTURE, "anthropic", target, model=MODELS[target])
    check = FACTS[fact][target]
    if isinstance(check, str):
        assert check in {loss.path for loss in done.losses}
    else:
        assert check(done.body)


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_hidden_becomes_visible_output(target: str) -> None:
    written = orjson.dumps(weft.translate(TORTURE, "anthropic", target, model=MODELS[target]).body)
    assert b"secret plan" not in written
    assert b"SIG" not in written
    assert written.count(b"AAAA") == written.count(b"BBBB") == 1
    assert b'\\"data\\"' not in written  # no base64 inside of JSON inside of a text


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("as_bytes", [False, True])
def test_the_round_trip_with_the_sidecar_gives_the_original_request(
    target: str, as_bytes: bool
) -> None:
    arguments: Any = orjson.dumps(TORTURE) if as_bytes else TORTURE
    done = weft.translate(arguments, "anthropic", target)
    sidecar = orjson.loads(orjson.dumps(done.sidecar))
    round_trip = weft.translate(
        done.body, target, "anthropic", model=TORTURE["model"], sidecar=sidecar
    )
    assert (orjson.loads(round_trip.body) if as_bytes else round_trip.body) == TORTURE


@pytest.mark.parametrize("target", TARGETS)
def test_the_round_trip_without_the_sidecar_differs_only_by_reported_losses(target: str) -> None:
    done = weft.translate(TORTURE, "anthropic", target)
    round_trip = weft.translate(done.body, target, "anthropic", model=TORTURE["model"]).body
    assert round_trip != TORTURE
    lost = {loss.path for loss in done.losses}
    assert {"messages[2].content[0]", "system[1]", "messages[0].content[0]"} <= lost
    added = {} if target == "gemini" else {"properties": {}}  # OpenAI demands them
    assert [tool["input_schema"] for tool in round_trip["tools"]] == [{"type": "object", **added}]
    assert any(path.endswith(".input_schema") for path in lost) == bool(added)
    assert [block["text"] for block in round_trip["system"]] == ["S1", "S2"]
    for words in ("hi", "REMINDER: answer in French", "before", "after", "boom", "now fix it"):
        assert index(round_trip, words) > 0
    assert index(round_trip, "AAAA") > 0
    assert index(round_trip, "BBBB") > 0


@pytest.mark.parametrize("target", TARGETS)
def test_strict_refuses_it_with_the_callers_path(target: str) -> None:
    with pytest.raises(weft.Refused) as refused:
        weft.translate(TORTURE, "anthropic", target, strict=True)
    assert refused.value.status == 400
    assert refused.value.param is not None
    assert refused.value.param.startswith(("messages[", "system["))
