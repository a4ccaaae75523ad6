"""Reasoning survives `decode` and appending to a thread, for the model that wrote it only."""

import json

import pytest

import weft

USER = {"role": "user", "content": "q"}
BODIES = {
    "anthropic": (
        "claude-sonnet-4-5",
        {
            "max_tokens": 9,
            "messages": [
                USER,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "t", "signature": "SEALED"},
                        {"type": "text", "text": "a"},
                    ],
                },
                USER,
            ],
        },
    ),
    "openai-responses": (
        "gpt-5",
        {
            "input": [
                USER,
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "SEALED"},
                {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
                 "content": [{"type": "output_text", "text": "a", "annotations": []}]},
                USER,
            ],
        },
    ),
    "openai-chat": (
        "deepseek-reasoner",
        {
            "messages": [
                USER,
                {"role": "assistant", "content": "a", "reasoning_content": "SEALED"},
                USER,
            ]
        },
    ),
    "gemini": (
        "gemini-3-pro-preview",
        {
            "contents": [
                {"role": "user", "parts": [{"text": "q"}]},
                {"role": "model",
                 "parts": [
                     {"text": "t", "thought": True, "thoughtSignature": "SEALED"},
                     {"text": "a"},
                 ]},
                {"role": "user", "parts": [{"text": "q"}]},
            ]
        },
    ),
}  # fmt: skip
OTHERS = {
    "anthropic": "gpt-5",
    "openai-responses": "claude-sonnet-4-5",
    "openai-chat": "gpt-5",
    "gemini": "gpt-5",
}


def params(context, protocol: str, model: str):
    write = {
        "anthropic": context.to_anthropic_params,
        "openai-chat": context.to_openai_params,
        "openai-responses": context.to_responses_params,
        "gemini": context.to_gemini_params,
    }
    return write[protocol](model)


def thread_of(protocol: str) -> weft.Thread:
    model, body = BODIES[protocol]
    named = body if protocol == "gemini" else {"model": model, **body}
    t = weft.open()
    for message in weft.decode(named, protocol, model=model).messages:
        t.commit_message(message)
    return t


@pytest.mark.parametrize("protocol", BODIES)
def test_the_origin_is_the_protocol_and_the_model_of_the_body(protocol: str) -> None:
    model, body = BODIES[protocol]
    named = body if protocol == "gemini" else {"model": model, **body}
    given = model if protocol == "gemini" else None  # its bodies name no model
    messages = weft.decode(named, protocol, model=given).messages
    origins = [message.origin for message in messages]
    assert [(o.protocol, o.model) for o in origins if o is not None] == [(protocol, model)]
    assert [message.role for message in messages if message.origin] == ["assistant"]


@pytest.mark.parametrize("protocol", BODIES)
def test_reasoning_goes_back_to_its_model(protocol: str) -> None:
    with thread_of(protocol) as t:
        written = params(t.compile(), protocol, BODIES[protocol][0])
        assert "SEALED" in json.dumps(written, default=str) or b"SEALED" in repr(written).encode()


@pytest.mark.parametrize("target", BODIES)
@pytest.mark.parametrize("protocol", BODIES)
def test_reasoning_goes_to_no_other_model(protocol: str, target: str) -> None:
    with thread_of(protocol) as t:
        written = params(t.compile(), target, OTHERS[protocol])
        if protocol == "openai-chat":
            return  # plain text; whether another model gets it is a rule of that protocol
        assert "SEALED" not in repr(written)
