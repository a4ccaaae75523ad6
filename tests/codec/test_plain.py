"""What is read and written in one go is read and written the same by the full tables."""

import copy
import random

import pytest
from hypothesis import given, strategies as st

from corpus import recorded
from weft.codec.anthropic.blocks import (
    WRITERS,
    Writer as BlockWriter,
    decode_content as read_blocks,
)
from weft.codec.anthropic.plain import decode_plain as plain_blocks, write_plain as write_blocks
from weft.codec.base import Losses, parsed
from weft.codec.chat.messages import Writer, decode_message
from weft.codec.chat.plain import decode_plain as plain_message, write_plain
from weft.codec.pairing import turn_of
from weft.errors import Refused
from weft.model import Message, Request, Text, ToolCall, ToolResult

CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}

CHAT = [
    {"role": "user", "content": "hi"},
    {"role": "developer", "content": "be brief"},
    {"role": "assistant", "content": "yes"},
    {"role": "tool", "tool_call_id": "call_1", "content": "done"},
    {"role": "assistant", "content": "let me look", "tool_calls": [CALL]},
    {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "assistant", "content": [{"type": "text", "text": "so"}], "tool_calls": [CALL]},
    {"role": "assistant", "content": [], "tool_calls": [CALL]},
]

ANTHROPIC = [
    [{"type": "text", "text": "hi"}],
    [{"type": "text", "text": ""}],
    [],
    [
        {"type": "text", "text": "look"},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": [1, {"b": None}]}},
    ],
    [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}],
]


def damaged(value, chance):
    """The value with something else in one place: missing, of another type, or beside others."""
    value = copy.deepcopy(value)
    places = [value]
    for place in places:
        inner = place.values() if isinstance(place, dict) else place
        places += [item for item in inner if isinstance(item, dict | list)]
    place = chance.choice(places)
    key = "more"
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


def as_chat_reads(raw):
    try:
        return decode_message(raw)
    except Refused:
        return None


def as_anthropic_reads(content):
    try:
        return read_blocks({"content": content}, "content")
    except Refused:
        return None


@pytest.mark.parametrize("raw", CHAT)
def test_a_plain_chat_message_is_read_in_one_go(raw):
    assert plain_message(raw) == decode_message(raw)


@pytest.mark.parametrize("content", ANTHROPIC)
def test_a_plain_content_is_read_in_one_go(content):
    assert (plain_blocks(content), "list") == read_blocks({"content": content}, "content")


@given(st.sampled_from(CHAT), st.integers(0))
def test_a_chat_message_with_anything_else_in_it_is_read_by_the_table(raw, seed):
    other = damaged(raw, random.Random(seed))
    assert plain_message(other) in (None, as_chat_reads(other))


@given(st.sampled_from(ANTHROPIC), st.integers(0))
def test_a_content_with_anything_else_in_it_is_read_by_the_table(content, seed):
    other = damaged(content, random.Random(seed))
    read = as_anthropic_reads(other)
    assert plain_blocks(other) in (None, read and read[0])


def test_recorded_messages_are_read_the_same_both_ways():
    plain = 0
    for line in recorded("openai-chat"):
        for raw in line["request"]["messages"]:
            read = plain_message(raw)
            plain += read is not None
            assert read in (None, as_chat_reads(raw))
    for line in recorded("anthropic"):
        for message in line["request"]["messages"]:
            read = plain_blocks(message["content"])
            plain += read is not None
            full = as_anthropic_reads(message["content"])
            assert read in (None, full and full[0])
    assert plain > 100


TEXT, CALLED = Text("words"), ToolCall("call_1", "f", "{}")
SAID = [
    TEXT,
    Text(""),
    Text("x", {"openai-chat": {"item": "content"}}),
    Text("x", {"anthropic": {"citations": []}}),
    CALLED,
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


@given(
    st.sampled_from(["user", "assistant", "tool", "system"]),
    st.lists(st.sampled_from(SAID), max_size=3),
    st.sampled_from(["", "text", "list", "null"]),
    st.none() | st.just("ann"),
)
def test_a_turn_is_written_in_one_go_as_the_full_writer_would(role, blocks, form, name):
    message = Message(role, tuple(blocks), name, form=form)
    written = write_plain(turn_of(0, message))
    if written is None:
        return
    losses = Losses()
    assert [written] == Writer(Request("m", (message,)), losses).turn(turn_of(0, message))
    assert losses.items == []


@given(st.lists(st.sampled_from(SAID), max_size=3), st.booleans())
def test_blocks_are_written_in_one_go_as_the_full_writer_would(blocks, native):
    written = write_blocks(blocks, parsed, native=native)
    if written is None:
        return
    losses = Losses()
    writer = BlockWriter(None, losses, native)
    full = [WRITERS[type(block)](writer, block, (0, at)) for at, block in enumerate(blocks)]
    assert written == full
    assert losses.items == []
