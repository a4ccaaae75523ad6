"""The shortcuts for common shapes give the same result as the full tables.

A codec uses its shortcut only for messages without other members. So each case runs twice:
unchanged, and with a harmless addition that disables the shortcut. For decoding this is an unknown
member, for encoding an empty `ext`. Both runs must give the same result.
"""

import copy
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

import weft
from corpus import recorded
from weft.errors import Refused
from weft.model import Message, Request, Text, ToolCall, ToolResult

A, C, R, G = PROTOCOLS = ["anthropic", "openai-chat", "openai-responses", "gemini"]
ODD = "unknown"
FUNCTION = {"name": "f", "arguments": '{"a":1}'}
CALL = {"id": "call_1", "type": "function", "function": FUNCTION}
PART = {"type": "text", "text": "part"}

SHAPES: dict[str, list[dict[str, Any]]] = {
    C: [
        {"role": "user", "content": "hi"},
        {"role": "developer", "content": "be brief"},
        {"role": "assistant", "content": "yes"},
        {"role": "tool", "tool_call_id": "call_1", "content": "done"},
        {"role": "assistant", "content": "let me look", "tool_calls": [CALL]},
        {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "content": [PART], "tool_calls": [CALL]},
        {"role": "assistant", "content": [], "tool_calls": [CALL]},
        {"role": "user", "content": [PART, PART]},
        {"role": "tool", "tool_call_id": "call_1", "content": [PART]},
    ],
    A: [
        {"type": "text", "text": "hi"},
        {"type": "text", "text": ""},
        {"type": "thinking", "thinking": "so", "signature": "c2ln"},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": [1, {"b": None}]}},
        {"type": "tool_result", "tool_use_id": "t1", "content": "done"},
        {"type": "tool_result", "tool_use_id": "t1", "content": [PART, PART], "is_error": False},
        {"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True},
    ],
    R: [
        {"role": "user", "content": "hi"},
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"role": "developer", "content": [{"type": "input_text", "text": "be brief"}]},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "done"},
        {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": [{"type": "input_text", "text": "done"}],
        },
    ],
    G: [
        {"text": "hi"},
        {"functionCall": {"name": "f", "args": {"a": [1]}, "id": "call_1"}},
        {"functionResponse": {"name": "f", "id": "call_1", "response": {"output": "done"}}},
        {"functionResponse": {"name": "f", "id": "call_1", "response": {"error": "no"}}},
    ],
}
ROWS = [(protocol, shape) for protocol, shapes in SHAPES.items() for shape in shapes]


def body_with(protocol: str, shape: dict[str, Any]) -> dict[str, Any]:
    """A request with this message, block, item or part."""
    is_answer = shape.get("type") in ("tool_use", "thinking") or "functionCall" in shape
    return {
        C: {"model": "m", "messages": [shape]},
        A: {
            "model": "m",
            "messages": [{"role": "assistant" if is_answer else "user", "content": [shape]}],
        },
        R: {"model": "m", "input": [shape]},
        G: {"contents": [{"role": "model" if is_answer else "user", "parts": [shape]}]},
    }[protocol]


def decode(protocol: str, shape: dict[str, Any]) -> Any:
    """The messages without the unknown member, or the error."""
    try:
        request = weft.decode(body_with(protocol, shape), protocol, "m")
    except Refused as error:
        return str(error)
    return without_odd(msgspec.to_builtins(request.messages))


def without_odd(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [without_odd(item) for item in value]
    if not isinstance(value, dict):
        return value
    members = {name: without_odd(item) for name, item in value.items() if name != ODD}
    if isinstance(members.get("ext"), dict) and not any(members["ext"].values()):
        del members["ext"]
    return members


def damaged(value: Any, chance: random.Random) -> Any:
    """The value with one change: a member is missing, has another type, or is added."""
    value = copy.deepcopy(value)
    places = [value]
    for place in places:
        inner = place.values() if isinstance(place, dict) else place
        places += [item for item in inner if isinstance(item, dict | list)]
    place = chance.choice(places)
    key: Any = "more"
    if isinstance(place, list):
        key = chance.randrange(len(place)) if place else None
    elif place and chance.random() < 0.8:
        key = chance.choice(list(place))
    if key is None:
        place.append(None)
    elif key != "more" and isinstance(place, dict) and chance.random() < 0.4:
        del place[key]
    else:
        place[key] = chance.choice([None, "", 1, True, [], {}, "text", ["x"], {"type": "text"}])
    return value


@pytest.mark.parametrize(("protocol", "shape"), ROWS)
def test_a_common_shape_is_decoded_as_by_the_table(protocol, shape):
    assert not isinstance(decode(protocol, shape), str)
    assert decode(protocol, shape) == decode(protocol, {**shape, ODD: 1})


@given(st.sampled_from(ROWS), st.integers(0))
def test_a_damaged_shape_is_decoded_as_by_the_table(row, seed):
    protocol, shape = row
    other = damaged(shape, random.Random(seed))
    assert decode(protocol, other) == decode(protocol, {**other, ODD: 1})


@pytest.mark.parametrize("protocol", [C, A])
def test_recorded_messages_are_decoded_as_by_the_table(protocol):
    lines = recorded(protocol)
    shapes = [
        shape
        for line in lines
        for message in line["request"]["messages"]
        for shape in ([message] if protocol == C else message["content"])
        if isinstance(shape, dict)
    ]
    assert shapes
    for shape in shapes:
        assert decode(protocol, shape) == decode(protocol, {**shape, ODD: 1})


TEXT = Text("words")
BLOCKS = [
    TEXT,
    Text(""),
    Text("x", {"openai-chat": {"item": "content"}}),
    Text("x", {"anthropic": {"citations": []}}),
    ToolCall("call_1", "f", "{}"),
    ToolCall("c" * 50, "f", ""),
    ToolCall("call.1", "f", "{}"),
    ToolCall("call_1", "f", "{not json"),
    ToolCall("call_1", "f", ' {"a": 1}'),
    ToolCall("call_1", "f", "free", custom=True),
    ToolCall("call_1", "f", "{}", namespace="n"),
    ToolResult("call_1", (TEXT,), form="text"),
    ToolResult("call_1", (TEXT,), True, form="text"),
    ToolResult("call_1", (TEXT, TEXT), form="list"),
    ToolResult("call_1"),
    ToolResult("call 1", (TEXT,), form="text"),
    ToolResult("call_1", (Text("x", {"anthropic": {"citations": []}}),), form="text"),
]
MESSAGES = st.builds(
    lambda role, blocks, name, form: Message(role, tuple(blocks), name, form=form),
    st.sampled_from(["user", "assistant", "tool", "system"]),
    st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=3),
    st.none() | st.just("ann"),
    st.sampled_from(["", "text", "list"]),
)


def off_the_shortcut(message: Message) -> Message:
    """The same message, with an empty `ext` wherever there is none."""

    def marked(value: Any) -> Any:
        return value if value.ext is not None else msgspec.structs.replace(value, ext={})

    return marked(msgspec.structs.replace(message, blocks=tuple(map(marked, message.blocks))))


def encode(protocol: str, messages: list[Message]) -> Any:
    """The body and the losses, or the error."""
    try:
        made = weft.encode(Request("m", (Message("user", (TEXT,)), *messages)), protocol)
    except Refused as error:
        return str(error)
    return made.body, made.losses


@given(st.sampled_from(PROTOCOLS), st.lists(MESSAGES, max_size=3))
def test_a_message_is_written_as_by_the_full_writer(protocol, messages):
    full = encode(protocol, [off_the_shortcut(message) for message in messages])
    assert encode(protocol, messages) == full


@given(
    st.sampled_from(PROTOCOLS),
    st.sampled_from([block for block in BLOCKS if isinstance(block, ToolCall)]),
    st.sampled_from([block for block in BLOCKS if isinstance(block, ToolResult)]),
)
def test_a_result_is_written_as_by_the_full_writer(protocol, call, result):
    messages = [Message("assistant", (call,)), Message("tool", (result,))]
    full = encode(protocol, [off_the_shortcut(message) for message in messages])
    assert encode(protocol, messages) == full
