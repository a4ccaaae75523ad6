"""H5: calls and results of any thread are written in the order that both vendors accept."""

from collections.abc import Callable, Sequence
from typing import Any

import anthropic
import pytest

import weft
from weft.model import Message, Params, Reasoning, Text, ToolCall, ToolResult
from weft.thread import Thread, ToolIOContent

Build = Callable[[Thread], Any]


def calls(t: Thread, *ids: str) -> None:
    t.user("go")
    t.commit_message(Message("assistant", tuple(ToolCall(id, "f", "{}") for id in ids)))


def in_turn(t: Thread) -> None:
    calls(t, "a", "b")
    t.tool_result("a", "1", reminder="one more")
    t.tool_result("b", "2", reminder="that was all")


def system_between(t: Thread) -> None:
    calls(t, "a", "b")
    t.tool_result("a", "1")
    t.system("be brief")
    t.tool_result("b", "2")


def text_with_results(t: Thread) -> None:
    calls(t, "a", "b")
    results = [ToolResult(id, (Text(id),)) for id in "ab"]
    t.tool_results(results, text="both are here", reminder="go on")


def skipped_result(t: Thread) -> None:
    calls(t, "a", "b")
    t.tool_result("a", "1")
    t.skip(t.tool_result("b", "2"))
    t.user("and now?")


def skipped_call(t: Thread) -> None:
    t.user("go")
    t.skip(t.commit_message(Message("assistant", (ToolCall("a", "f", "{}"),))))
    t.tool_result("a", "1")


def calls_in_two_messages(t: Thread) -> None:
    calls(t, "a")
    t.commit_message(Message("assistant", (ToolCall("b", "f", "{}"),)))
    t.tool_result("b", "2")
    t.tool_result("a", "1")


def open_call(t: Thread) -> None:
    calls(t, "a")


THREADS: dict[str, Build] = {
    build.__name__: build
    for build in (
        in_turn,
        system_between,
        text_with_results,
        skipped_result,
        skipped_call,
        calls_in_two_messages,
        open_call,
    )
}


def check_openai(messages: Sequence[dict[str, Any]]) -> None:
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting, f"{message} stands before the results of {waiting}"
        waiting = [call["id"] for call in message.get("tool_calls", ())]
    assert not waiting


def check_anthropic(messages: Sequence[dict[str, Any]]) -> None:
    waiting: set[str] = set()
    for message in messages:
        blocks = [] if isinstance(message["content"], str) else message["content"]
        results = [block for block in blocks if block["type"] == "tool_result"]
        assert blocks[: len(results)] == results
        assert {block["tool_use_id"] for block in results} == waiting
        waiting = {block["id"] for block in blocks if block["type"] == "tool_use"}
    assert not waiting


@pytest.mark.parametrize("checkpoints", [False, True])
@pytest.mark.parametrize("build", THREADS.values(), ids=THREADS)
def test_H5_results_directly_follow_their_calls(build: Build, checkpoints: bool) -> None:
    t = weft.open(checkpoints=checkpoints)
    build(t)
    compiled = t.compile()
    check_openai(compiled.to_openai())
    check_openai(compiled.to_openai_params("gpt-5")["messages"])
    check_anthropic(compiled.to_anthropic()["messages"])
    check_anthropic(compiled.to_anthropic_params("claude-sonnet-4-5")["messages"])


def test_H5_text_follows_all_results_of_its_turn() -> None:
    t = weft.open()
    in_turn(t)
    kinds = [part["type"] for part in t.compile().to_anthropic()["messages"][2]["content"]]
    assert kinds == ["tool_result", "tool_result", "text", "text"]
    assert [m["role"] for m in t.compile().to_openai()[2:]] == ["tool", "tool", "user"]


def test_H5_a_hidden_result_is_reported_as_missing() -> None:
    t = weft.open()
    skipped_result(t)
    answer = t.compile().to_openai()[3]
    assert answer["tool_call_id"] == "b"
    assert "no result" in answer["content"]


def test_H5_a_turn_without_results_has_the_user_role() -> None:
    t = weft.open(checkpoints=True)
    t.user("go")
    info = t.tool_results([], reminder="the conversation was compacted")
    assert info.messages[0].role == "user"
    assert t.compile().to_openai()[-1]["role"] == "user"


@pytest.mark.parametrize("format", ["to_openai_params", "to_anthropic_params"])
def test_H5_a_result_without_a_call_is_reported(format: str) -> None:
    t = weft.open()
    t.user("go")
    t.commit(ToolIOContent("search", "found it"))
    losses = getattr(t.compile(), format)("claude-sonnet-4-5").losses
    assert ("tool_role_without_result", "messages[1]") in [
        (loss.code, loss.path) for loss in losses
    ]


@pytest.mark.parametrize(
    "model", [None, "claude-opus-4-1", "claude-sonnet-4-5", "claude-opus-4-20250514", "nobody-1"]
)
def test_H5_the_official_client_accepts_the_default_length(model: str | None) -> None:
    t = weft.open()
    t.user("hello")
    params = t.compile().to_anthropic_params(model)
    assert 0 < params["max_tokens"] <= 8192
    assert [(loss.path, loss.level) for loss in params.losses] == [("max_tokens", "form")]
    check_length(params["max_tokens"], model)


def test_H5_thinking_has_room_above_its_budget() -> None:
    t = weft.open()
    t.setup(params=Params(reasoning=Reasoning(budget=10_000)))
    t.user("hello")
    params = t.compile().to_anthropic_params("claude-sonnet-4-5")
    assert params["max_tokens"] > params["thinking"]["budget_tokens"]
    check_length(params["max_tokens"], "claude-sonnet-4-5")


def check_length(max_tokens: int, model: str | None) -> None:
    """The SDK's own judgement of a request that is not streamed."""
    from anthropic._constants import MODEL_NONSTREAMING_TOKENS

    with anthropic.Anthropic(api_key="none") as client:
        limit = MODEL_NONSTREAMING_TOKENS.get(model or "")
        client._calculate_nonstreaming_timeout(max_tokens, limit)
