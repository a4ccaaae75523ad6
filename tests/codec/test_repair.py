"""Repairs that make a message list valid for its target, rule by rule."""

import pytest

import weft
from weft.model import Message, Request, Text, ToolCall, ToolResult

CALLS = Message("assistant", (ToolCall("a", "f", "{}"), ToolCall("b", "f", "{}")))


def blocks_of(body, number):
    return [block["type"] for block in body["messages"][number]["content"]]


def test_an_added_result_is_before_the_text_of_its_turn():
    answered = Message("user", (ToolResult("a", (Text("1"),)), Text("and then?")))
    request = Request("m", (Message("user", (Text("go"),)), CALLS, answered))
    done = weft.encode(request, "anthropic")
    assert blocks_of(done.body, 2) == ["tool_result", "tool_result", "text"]
    assert [r["tool_use_id"] for r in done.body["messages"][2]["content"][:2]] == ["a", "b"]


def test_results_of_parallel_calls_in_two_messages_are_one_turn():
    first = Message("user", (ToolResult("a", (Text("1"),)), Text("one")))
    second = Message("user", (ToolResult("b", (Text("2"),)), Text("two")))
    request = Request("m", (Message("user", (Text("go"),)), CALLS, first, second))
    done = weft.encode(request, "anthropic")
    assert blocks_of(done.body, 2) == ["tool_result", "tool_result", "text", "text"]
    assert len(done.body["messages"]) == 3


@pytest.mark.parametrize("target", ["anthropic", "gemini"])
@pytest.mark.parametrize(
    "messages",
    [[{"role": "system", "content": "Be brief."}], []],
    ids=["system-messages-only", "no-messages"],
)
def test_an_empty_list_of_messages_is_reported_as_changed(messages, target):
    body = {"model": "gpt-5", "messages": messages}
    done = weft.translate(body, "openai-chat", target)
    assert done.body["messages" if target == "anthropic" else "contents"] == []
    [loss] = [loss for loss in done.losses if loss.code == "no_user_message"]
    assert (loss.kind, loss.path, loss.level) == ("changed", "messages", "meaning")
