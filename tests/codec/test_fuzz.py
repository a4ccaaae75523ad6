"""Damaged requests, answers and streams: they are translated or refused, and never crash.

The seeds are bodies of every shape below, and recorded exchanges if they are beside the project.
`make torture` tries half a million variants with a new seed, `make test` a few hundred.
"""

import copy
import json
import os
import random
import time
from typing import Any

import pytest

import weft
from corpus import ROOT, recorded
from weft import StreamTranslator, translate, translate_response

PROTOCOLS = ("anthropic", "openai-chat", "openai-responses", "gemini")
TORTURE = bool(os.environ.get("WEFT_TORTURE"))
ROUNDS = int(os.environ.get("WEFT_FUZZ_ROUNDS") or (125_000 if TORTURE else 250))
SEED = time.time_ns() if TORTURE else 0

VALUES: list[Any] = [
    None, True, False, 0, -1, 1e308, 10**40, 2**63, -(2**70), 0.1, float("inf"), float("nan"),
    "", "x", "\ud800", "\x00", "[DONE]", "9" * 5000, [], [[]], {}, [None], [1], [{}], ["x"],
    {"type": "text"}, {"type": None}, {"type": []}, {"type": {}}, {"a": {"b": [{}]}}, {"": ""},
    {"type": "text", "text": None}, {"role": "user"},
]  # fmt: skip
KEYS = [
    "type", "role", "content", "text", "index", "id", "name", "input", "arguments", "delta",
    "parts", "functionCall", "usage", "choices", "item", "@item", "output_index", "cache_control",
    "reasoning_details", "thought", "\ud800", "__proto__", "",
]  # fmt: skip

PNG = "data:image/png;base64,AA=="
SCHEMA = {"type": "object", "properties": {"a": {"type": "number", "maximum": 1.5}}}
REQUESTS: dict[str, Any] = {
    "anthropic": {
        "model": "claude-opus-4-8",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "tools": [
            {"name": "f", "input_schema": SCHEMA},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
        "tool_choice": {"type": "tool", "name": "f"},
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "q"},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": "AA=="},
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "t", "signature": "s"},
                    {"type": "redacted_thinking", "data": "d"},
                    {"type": "text", "text": "a", "citations": []},
                    {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "is_error": True,
                        "content": [{"type": "text", "text": "r"}],
                    },
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "d"},
                    },
                ],
            },
        ],
    },
    "openai-chat": {
        "model": "gpt-5",
        "max_completion_tokens": 9,
        "temperature": 0.5,
        "stop": ["x"],
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
        "tools": [
            {"type": "function", "function": {"name": "f", "parameters": SCHEMA}},
            {"type": "custom", "custom": {"name": "c"}},
        ],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "messages": [
            {"role": "system", "content": "s"},
            {
                "role": "user",
                "name": "u",
                "content": [
                    {"type": "text", "text": "q"},
                    {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
                ],
            },
            {
                "role": "assistant",
                "content": "a",
                "reasoning": "t",
                "reasoning_details": [{"type": "reasoning.text", "text": "t", "signature": "s"}],
                "tool_calls": [
                    {
                        "id": "t1",
                        "type": "function",
                        "function": {"name": "f", "arguments": '{"a":1}'},
                    },
                    {"id": "t2", "type": "custom", "custom": {"name": "c", "input": "i"}},
                ],
            },
            {"role": "tool", "tool_call_id": "t1", "content": "r"},
            {"role": "tool", "tool_call_id": "t2", "content": [{"type": "text", "text": "r"}]},
            {"role": "assistant", "content": None, "refusal": "no", "audio": {"id": "a"}},
        ],
    },
    "openai-responses": {
        "model": "gpt-5",
        "instructions": "s",
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "text": {
            "format": {"type": "json_schema", "name": "n", "schema": SCHEMA},
            "verbosity": "low",
        },
        "tools": [
            {"type": "function", "name": "f", "parameters": SCHEMA, "strict": False},
            {
                "type": "namespace",
                "name": "n",
                "tools": [{"type": "function", "name": "g", "parameters": SCHEMA}],
            },
            {"type": "web_search"},
        ],
        "tool_choice": "auto",
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "q"},
                    {"type": "input_image", "image_url": PNG},
                    {"type": "input_file", "filename": "f", "file_data": "AA=="},
                ],
            },
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "t"}],
                "encrypted_content": "e",
            },
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [
                    {"type": "output_text", "text": "a", "annotations": [], "logprobs": []},
                    {"type": "refusal", "refusal": "no"},
                ],
            },
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "t1",
                "name": "f",
                "arguments": '{"a":1}',
                "status": "completed",
            },
            {
                "type": "function_call_output",
                "call_id": "t1",
                "output": [{"type": "input_text", "text": "r"}],
            },
            {"type": "custom_tool_call", "call_id": "t2", "name": "c", "input": "i"},
            {"type": "custom_tool_call_output", "call_id": "t2", "output": "r"},
            {"type": "compaction", "encrypted_content": "e"},
            {"role": "developer", "content": "d"},
        ],
    },
    "gemini": {
        "systemInstruction": {"parts": [{"text": "s"}]},
        "generationConfig": {
            "temperature": 0.5,
            "maxOutputTokens": 9,
            "thinkingConfig": {"thinkingBudget": 100, "includeThoughts": True},
            "responseSchema": SCHEMA,
            "stopSequences": ["x"],
        },
        "tools": [
            {"functionDeclarations": [{"name": "f", "parameters": SCHEMA}]},
            {"googleSearch": {}},
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
        "contents": [
            {
                "role": "user",
                "parts": [
                    {"text": "q"},
                    {"inlineData": {"mimeType": "image/png", "data": "AA=="}},
                    {"fileData": {"fileUri": "gs://f", "mimeType": "application/pdf"}},
                ],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "t", "thought": True},
                    {"text": "a"},
                    {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "s"},
                    {"executableCode": {"language": "PYTHON", "code": "1"}},
                ],
            },
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "f", "response": {"output": "r"}}}],
            },
        ],
    },
}
ANSWERS: dict[str, Any] = {
    "anthropic": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "text", "text": "a"},
            {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1, "cache_read_input_tokens": 1},
    },
    "openai-chat": {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "a",
                    "reasoning": "t",
                    "reasoning_details": [{"type": "reasoning.text", "text": "t"}],
                    "tool_calls": [
                        {
                            "id": "t1",
                            "type": "function",
                            "function": {"name": "f", "arguments": '{"a":1}'},
                        }
                    ],
                },
                "finish_reason": "tool_calls",
                "logprobs": None,
            }
        ],
        "usage": {
            "prompt_tokens": 1,
            "completion_tokens": 1,
            "total_tokens": 2,
            "prompt_tokens_details": {"cached_tokens": 1},
        },
    },
    "openai-responses": {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": REQUESTS["openai-responses"]["input"][1:4],
        "usage": {
            "input_tokens": 1,
            "output_tokens": 1,
            "total_tokens": 2,
            "input_tokens_details": {"cached_tokens": 1},
        },
    },
    "gemini": {
        "responseId": "r",
        "modelVersion": "m",
        "candidates": [
            {"index": 0, "content": REQUESTS["gemini"]["contents"][1], "finishReason": "STOP"}
        ],
        "usageMetadata": {
            "promptTokenCount": 1,
            "candidatesTokenCount": 1,
            "totalTokenCount": 2,
            "thoughtsTokenCount": 1,
        },
    },
}


def seeds(protocol: str) -> list[dict[str, Any]]:
    """Exchanges of a protocol, with `request`, `response` and `sse` where they have them."""
    answer = json.dumps(ANSWERS[protocol]).encode()
    stream = StreamTranslator(protocol, protocol)
    sse = (stream.feed(answer) + stream.close()).decode()
    exchanges = [
        {"request": REQUESTS[protocol]},
        {"response": ANSWERS[protocol]},
        {"sse": sse},
    ]
    if (ROOT / "recorded").exists():
        exchanges += [row for row in recorded(protocol) if len(json.dumps(row)) < 40_000]
    return exchanges


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, item in inner:
        found.append((*path, key))
        if isinstance(item, dict | list):
            found += places(item, (*path, key))
    return found


def damaged(value: Any, dice: random.Random) -> Any:
    """A copy with a few wrong, missing, repeated, moved or added values."""
    value = copy.deepcopy(value)
    if not isinstance(value, dict | list):
        return value
    paths = places(value)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        if not paths:
            return value
        *steps, last = dice.choice(paths)
        holder: Any = value
        try:
            for step in steps:
                holder = holder[step]
            old, kind = holder[last], dice.random()
            if kind < 0.55:
                holder[last] = copy.deepcopy(dice.choice(VALUES))
            elif kind < 0.7:
                del holder[last]
            elif kind < 0.8:
                holder[last] = [old]
            elif isinstance(old, dict):
                old[dice.choice(KEYS)] = copy.deepcopy(dice.choice(VALUES))
            elif isinstance(holder, list):
                holder.append(copy.deepcopy(old))
            else:
                holder[dice.choice(KEYS)] = old
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change removed it
    return value


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def try_request(row: dict[str, Any], source: str, target: str, dice: random.Random) -> None:
    body = damaged(row["request"], dice)
    for form in (body, as_json(body)):
        done = translate(form, source, target, model="m")
        assert isinstance(done.losses, list)
        sidecar = done.sidecar
        try:
            translate(done.body, target, source, model="m", sidecar=sidecar)
        except weft.WeftError:
            continue  # one vendor may refuse what the other takes


def try_answer(row: dict[str, Any], source: str, target: str, dice: random.Random) -> None:
    body = damaged(row["response"], dice)
    for form in (body, as_json(body)):
        done = translate_response(form, source, target)
        assert isinstance(done.sidecar, dict)


def try_stream(row: dict[str, Any], source: str, target: str, dice: random.Random) -> None:
    frames = row["sse"].replace("\r\n", "\n").split("\n\n")
    for _ in range(dice.choice((1, 1, 2, 5))):
        at, kind = dice.randrange(len(frames)), dice.random()
        if kind < 0.2 and len(frames) > 1:
            del frames[at]
        elif kind < 0.35:
            frames.insert(dice.randrange(len(frames) + 1), frames[at])
        elif kind < 0.5:
            frames.append(frames.pop(at))
        else:
            frames[at] = "\n".join(damaged_line(line, dice) for line in frames[at].split("\n"))
    data = dice.choice(("\n\n", "\r\n\r\n", "\n\n:comment\n\n")).join(frames)
    feed(data.encode("utf-8", "surrogatepass"), source, target, dice)


def try_bytes(row: dict[str, Any], source: str, target: str, dice: random.Random) -> None:
    data = bytearray(row["sse"].encode("utf-8", "surrogatepass"))
    for _ in range(dice.choice((1, 3, 20))):
        at = dice.randrange(len(data) + 1)
        piece = dice.choice(
            (b"", b"\xff", b"\n", b"\r", b"\0", b"{", b'"', b"data:", b"\xed\xa0\x80")
        )
        data[at : at + dice.choice((0, 1, 1, 5))] = piece
    feed(bytes(data), source, target, dice)


PIECES = (b"", b"\xff", b"\n", b"\r", b"\0", b"{", b'"', b"data:", b"\xed\xa0\x80")


def damaged_line(line: str, dice: random.Random) -> str:
    if not line.startswith("data:"):
        return line
    try:
        return "data: " + json.dumps(damaged(json.loads(line[5:]), dice))
    except ValueError:  # `[DONE]`
        return line


def feed(data: bytes, source: str, target: str, dice: random.Random) -> None:
    stream = StreamTranslator(source, target)
    start = 0
    while start < len(data):
        size = dice.choice((1, 7, 100, 5000))
        stream.feed(data[start : start + size])
        start += size
    stream.close()
    assert isinstance(stream.answer_sidecar, dict)
    assert stream.response is not None
    assert isinstance(stream.losses, list)


TRIALS = {"request": try_request, "response": try_answer, "sse": try_stream, "bytes": try_bytes}


@pytest.mark.parametrize("source", PROTOCOLS)
def test_damaged_bodies_and_streams_raise_only_our_own_errors(source: str) -> None:
    dice = random.Random(f"{SEED} {source}")
    exchanges = seeds(source)
    by_member = {
        member: [row for row in exchanges if row.get("sse" if member == "bytes" else member)]
        for member in TRIALS
    }
    crashes: dict[str, str] = {}
    accepted = refused = 0
    for _ in range(ROUNDS):
        member = dice.choice(list(TRIALS))
        target = dice.choice(PROTOCOLS)
        row = dice.choice(by_member[member])
        try:
            TRIALS[member](row, source, target, dice)
            accepted += 1
        except weft.WeftError:
            refused += 1
        except Exception as error:
            trace, place = error.__traceback__, ""
            while trace is not None:
                code = trace.tb_frame.f_code
                if "weft" in code.co_filename:
                    place = f"{code.co_filename.rpartition('/weft/')[2]}:{trace.tb_lineno}"
                trace = trace.tb_next
            crashes.setdefault(
                f"{type(error).__name__} {place}",
                f"{member} -> {target}: {error}",
            )
    assert crashes == {}
    assert accepted
    assert refused
