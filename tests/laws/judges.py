"""The rules of every vendor for requests, checked on what a compiled thread sends."""

from itertools import pairwise
from typing import Any

from sdk_types import REQUESTS, faults
from weft.thread import CompiledContext

MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai-chat": "gpt-5",
    "openai-responses": "gpt-5",
    "gemini": "gemini-2.5-flash",
}
LISTS = {
    "anthropic": "messages",
    "openai-chat": "messages",
    "openai-responses": "input",
    "gemini": "contents",
}


def request(context: CompiledContext, protocol: str, **options: Any) -> dict[str, Any]:
    """The request that this vendor would get."""
    write = {
        "anthropic": context.to_anthropic_params,
        "openai-chat": context.to_openai_params,
        "openai-responses": context.to_responses_params,
        "gemini": context.to_gemini_params,
    }[protocol]
    return write(MODELS[protocol], **options)


def judge(context: CompiledContext) -> None:
    """Check that every vendor accepts it: the SDK's types, the pairs and the order."""
    for protocol in ("anthropic", "openai-chat", "openai-responses"):
        assert faults(REQUESTS, protocol, request(context, protocol)) == []
    judge_anthropic(request(context, "anthropic")["messages"])
    judge_chat(request(context, "openai-chat")["messages"])
    judge_responses(request(context, "openai-responses")["input"])
    judge_gemini(request(context, "gemini")["contents"])


def judge_anthropic(turns: list[dict[str, Any]]) -> None:
    assert not turns or turns[0]["role"] == "user"
    for turn, following in pairwise([*turns, {"content": [], "role": "user"}]):
        asked, answered = (
            _ids(turn, "tool_use", "id"),
            _ids(following, "tool_result", "tool_use_id"),
        )
        assert sorted(asked) == sorted(answered)
    for turn in turns:
        blocks = [] if isinstance(turn["content"], str) else turn["content"]
        texts = [block["text"] for block in blocks if block["type"] == "text"]
        assert turn["role"] == "system" or all(text.strip() for text in texts)
        first = [block["type"] != "tool_result" for block in blocks]
        assert first == sorted(first)  # results come first in their turn


def judge_chat(messages: list[dict[str, Any]]) -> None:
    waiting: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting
        waiting = {call["id"] for call in message.get("tool_calls", [])}
    assert not waiting


def judge_responses(items: list[dict[str, Any]]) -> None:
    waiting: list[str] = []
    for item in items:
        if item.get("type") == "function_call":
            waiting.append(item["call_id"])
        elif item.get("type") == "function_call_output":
            waiting.remove(item["call_id"])
    assert not waiting


def judge_gemini(contents: list[dict[str, Any]]) -> None:
    assert not contents or contents[0]["role"] == "user"
    for content, following in pairwise([*contents, {"parts": []}]):
        calls = [part for part in content["parts"] if "functionCall" in part]
        results = [part for part in following["parts"] if "functionResponse" in part]
        assert len(calls) == len(results)


def _ids(turn: dict[str, Any], kind: str, field: str) -> list[str]:
    content = turn["content"]
    blocks = [] if isinstance(content, str) else content
    return [block[field] for block in blocks if block["type"] == kind]
