"""An unknown member anywhere in a request is never lost silently."""

from copy import deepcopy

import orjson
import pytest

import weft
from laws.differences import steps_of
from laws.wire_bodies import PROTOCOLS

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}

BODIES = {
    "anthropic": {
        "model": "claude-opus-4-1",
        "max_tokens": 3000,
        "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "look", "description": "looks", "input_schema": SCHEMA}],
        "tool_choice": {"type": "tool", "name": "look"},
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        "metadata": {"user_id": "u"},
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hi"},
                    {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "so"},
                    {"type": "tool_use", "id": "t1", "name": "look", "input": {"q": "x"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "content": [{"type": "text", "text": "found"}],
                    }
                ],
            },
        ],
    },
    "openai-chat": {
        "model": "gpt-4o",
        "tools": [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}],
        "tool_choice": {"type": "function", "function": {"name": "look"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": "be brief"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hi"},
                    {"type": "image_url", "image_url": {"url": "https://a/b.png"}},
                ],
            },
            {
                "role": "assistant",
                "content": "so",
                "tool_calls": [
                    {
                        "id": "t1",
                        "type": "function",
                        "function": {"name": "look", "arguments": "{}"},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "t1", "content": [{"type": "text", "text": "found"}]},
            {"role": "user", "content": "go"},
        ],
    },
    "openai-responses": {
        "model": "gpt-4o",
        "instructions": "be brief",
        "tools": [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}],
        "tool_choice": {"type": "function", "name": "look"},
        "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}},
        "reasoning": {"effort": "low"},
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "hi"},
                    {"type": "input_image", "image_url": "https://a/b.png", "detail": "auto"},
                ],
            },
            {"type": "function_call", "call_id": "t1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "t1", "output": "found"},
            {"role": "user", "content": "go"},
        ],
    },
    "gemini": {
        "systemInstruction": {"role": "user", "parts": [{"text": "be brief"}]},
        "tools": [{"functionDeclarations": [{"name": "look", "parametersJsonSchema": SCHEMA}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}},
        "generationConfig": {
            "responseMimeType": "application/json",
            "thinkingConfig": {"thinkingBudget": 2000},
        },
        "contents": [
            {
                "role": "user",
                "parts": [
                    {"text": "hi"},
                    {"fileData": {"fileUri": "https://a/b.png", "mimeType": "image/png"}},
                ],
            },
            {
                "role": "model",
                "parts": [{"functionCall": {"id": "t1", "name": "look", "args": {"q": "x"}}}],
            },
            {
                "role": "user",
                "parts": [
                    {
                        "functionResponse": {
                            "id": "t1",
                            "name": "look",
                            "response": {"output": "found"},
                        }
                    }
                ],
            },
        ],
    },
}

CALLERS = frozenset(
    {"input_schema", "parameters", "schema", "parametersJsonSchema", "input", "args", "response"}
)
"""Members that contain the caller's own data, which is passed on unchanged."""

UNKNOWN = "unheardOf"
WORD = "never heard of"


def objects(value, path=""):
    """The paths of all objects of a body that the protocol defines."""
    if isinstance(value, dict):
        yield path
        for key, inner in value.items():
            if key not in CALLERS or not isinstance(inner, dict):
                yield from objects(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from objects(inner, f"{path}[{number}]")


def names(loss, path):
    """Whether a loss is about this path, or a parent of it."""
    around = steps_of(loss.path) if loss.path else ()
    return bool(around) and steps_of(path)[: len(around)] == around


PLACES = [(wire, path) for wire in PROTOCOLS for path in objects(BODIES[wire])]


@pytest.mark.parametrize(("source", "path"), PLACES)
def test_an_unknown_member_is_kept_or_reported(source, path):
    body = deepcopy(BODIES[source])
    holder = body
    for step in steps_of(path) if path else ():
        holder = holder[step]
    holder[UNKNOWN] = WORD
    own = f"{path}.{UNKNOWN}" if path else UNKNOWN
    unreported = []
    for target in PROTOCOLS:
        done = weft.translate(body, source, target, model="m")
        content = WORD in orjson.dumps(done.body).decode()
        if not content and not any(names(loss, own) for loss in done.losses):
            unreported.append(target)
    assert unreported == []
