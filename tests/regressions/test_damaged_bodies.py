"""Bodies that no vendor sends are refused or translated, and never crash."""

from contextlib import suppress

import pytest

import weft
from weft import StreamTranslator, translate

PROTOCOLS = ("anthropic", "openai-chat", "openai-responses", "gemini")


def with_item(item: object) -> dict:
    part = {"type": "output_text", "text": "a", "annotations": [], "item": item, "@x": 1}
    message = {"type": "message", "role": "assistant", "id": "msg_1", "content": [part]}
    return {"model": "m", "input": [{"role": "user", "content": "q"}, message]}


@pytest.mark.parametrize("item", [{"role": "user", "id": "other"}, "abc", None, [], 1])
@pytest.mark.parametrize("target", PROTOCOLS)
def test_a_member_named_like_a_note_of_weft_stays_a_member(item: object, target: str) -> None:
    body = with_item(item)
    done = translate(body, "openai-responses", target, model="m")
    if target == "openai-responses":
        assert done.body == body
    paths = [loss.path for loss in done.losses if loss.code == "member_dropped"]
    assert target == "openai-responses" or "input[1].content[0].item" in paths
    back = translate(done.body, target, "openai-responses", model="m", sidecar=done.sidecar)
    assert back.body == body


@pytest.mark.parametrize("content", [[], None, "x"])
def test_a_message_with_a_member_named_item_keeps_its_members(content: object) -> None:
    message = {"type": "message", "role": "user", "content": content, "item": {"role": "system"}}
    body = {"model": "m", "input": [{"role": "user", "content": "q"}, message]}
    assert translate(body, "openai-responses", "openai-responses").body == body


@pytest.mark.parametrize("details", [1.5, 10**40, "x", {"a": 1}, True])
@pytest.mark.parametrize("target", PROTOCOLS)
def test_reasoning_details_of_another_type_are_a_member(details: object, target: str) -> None:
    answer = {"role": "assistant", "content": "y", "reasoning": "z", "reasoning_details": details}
    user = {"role": "user", "content": "x"}
    body = {"model": "m", "messages": [user, answer, user]}
    done = translate(body, "openai-chat", target, model="m")
    assert target != "openai-chat" or done.body == body


@pytest.mark.parametrize("role", [{"type": {}}, [], ["user"], 1])
def test_an_unknown_item_with_an_odd_role_is_refused_or_kept(role: object) -> None:
    body = {"model": "m", "input": [{"type": "x", "role": role, "content": "q"}]}
    for target in PROTOCOLS:
        with suppress(weft.WeftError):  # it may be refused
            translate(body, "openai-responses", target, model="m")


@pytest.mark.parametrize("target", PROTOCOLS)
def test_a_stream_with_a_long_number_is_translated(target: str) -> None:
    frame = (
        b'data: {"id":"x","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"a",'
        b'"x":1000000000000000000001},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":1000000000000000000001,"completion_tokens":1}}\n\n'
    )
    stream = StreamTranslator("openai-chat", target)
    assert b"a" in stream.feed(frame) + stream.close()
