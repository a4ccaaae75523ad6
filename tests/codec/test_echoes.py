"""Stored answers replace their echoes in a request, and nothing else changes."""

import pytest
from msgspec import structs

from weft.catalog import load_catalog
from weft.codec import CODECS, Target, replace_answers
from weft.model import Message, Origin, Text, Thinking, ToolCall

MAKER = Origin("anthropic", "a", "claude-opus-4-5")
THOUGHT = Thinking("I must look.", "c2lnbmVk")
TARGET = Target(load_catalog().find("claude-opus-4-5"))


def stored_answer(*blocks, by=MAKER):
    return Message("assistant", blocks, origin=by)


def chat(*answers):
    """The request of a Chat Completions client that echoes these answers, each after a question."""
    turns = [
        turn
        for number, answer in enumerate(answers)
        for turn in ({"role": "user", "content": str(number)}, answer)
    ]
    body = {"model": "m", "messages": [*turns, {"role": "user", "content": "more"}]}
    return CODECS["openai-chat"].decode_request(body)


def echo(text):
    return {"role": "assistant", "content": text}


THOUGHTFUL = stored_answer(THOUGHT, Text("ok"))


def test_only_the_named_echoes_are_replaced():
    request = replace_answers(chat(echo("ok"), echo("ok"), echo("ok")), {(3, 4): THOUGHTFUL})
    answers = [message for message in request.messages if message.role == "assistant"]
    assert [THOUGHT in message.blocks for message in answers] == [False, True, False]


def test_without_answers_the_request_is_the_same():
    request = chat(echo("ok"))
    assert replace_answers(request, {}) is request


MARK = {"type": "ephemeral"}


def test_a_cache_mark_stays_with_its_text():
    marked = [{"type": "text", "text": "ok", "cache_control": MARK}]
    request = replace_answers(chat(echo("a"), echo(marked)), {(3, 4): THOUGHTFUL})
    body = CODECS["anthropic"].encode_request(request, TARGET).body
    thought, text = body["messages"][3]["content"]
    assert "cache_control" not in thought
    assert text["cache_control"] == MARK


def test_a_cache_mark_stays_after_a_split_answer():
    marked = [{"type": "text", "text": "b", "cache_control": MARK}]
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    turns = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "ok"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "words"},
        {"role": "user", "content": marked},
    ]
    request = CODECS["openai-chat"].decode_request({"model": "m", "messages": turns})
    whole = stored_answer(THOUGHT, Text("ok"), ToolCall("c1", "look", "{}"))
    request = replace_answers(request, {(1, 3): whole})
    body = CODECS["anthropic"].encode_request(request, TARGET).body
    assert [len(turn["content"]) for turn in body["messages"][1:2]] == [3]
    assert body["messages"][-1]["content"][-1] == {
        "type": "text",
        "text": "b",
        "cache_control": MARK,
    }


@pytest.mark.parametrize("restored", [True, False])
def test_a_loss_has_the_path_in_the_sent_list(restored):
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    turns = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "ok"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "words"},
        {"role": "user", "content": [{"type": "text", "text": "b"}, sound]},
    ]
    request = CODECS["openai-chat"].decode_request({"model": "m", "messages": turns})
    if restored:
        whole = stored_answer(THOUGHT, Text("ok"), ToolCall("c1", "look", "{}"))
        request = replace_answers(request, {(1, 3): whole})
    losses = CODECS["anthropic"].encode_request(request, TARGET).losses
    assert "messages[4].content[1]" in [loss.path for loss in losses]


def test_invalid_json_arguments_are_reported_with_the_callers_path():
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{"}}
    request = chat({"role": "assistant", "content": "ok", "tool_calls": [call]})
    whole = stored_answer(THOUGHT, Text("ok"), ToolCall("c1", "look", "{"))
    request = replace_answers(request, {(1, 2): whole})
    losses = CODECS["anthropic"].encode_request(request, TARGET).losses
    assert "messages[1].tool_calls[0].function.arguments" in [loss.path for loss in losses]


SOLVER = Origin("openai-responses", "r", "o-deployed")


@pytest.mark.parametrize(
    ("item", "stores", "sent"),
    [
        ({"encrypted_content": "c2VhbGVk"}, False, True),
        ({"content": [{"type": "reasoning_text", "text": "hm"}]}, False, True),
        ({}, False, False),  # "Items are not persisted when `store` is set to false"
        ({}, True, True),
        ({}, None, True),  # which is to store
    ],
)
def test_thinking_referenced_by_id_is_restored_from_storage(item, stores, sent):
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], **item}
    message = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "ok"}],
    }
    made = CODECS["openai-responses"].decode_response(
        {"id": "resp_1", "model": "m", "status": "completed", "output": [reasoning, message]}
    )
    answer = structs.replace(made.message, origin=SOLVER)
    request = chat(echo("ok"))
    request = structs.replace(request, params=structs.replace(request.params, store=stores))
    request = replace_answers(request, {(1, 2): answer})
    encoded = CODECS["openai-responses"].encode_request(request, TARGET)
    assert (reasoning in encoded.body["input"]) is sent
    assert ("messages[1]" in [loss.path for loss in encoded.losses]) is not sent
