"""The shortcuts for common shapes read and write the same as the full tables."""

import copy
import random

import pytest
from hypothesis import given, strategies as st

from corpus import recorded
from weft.catalog import Model
from weft.codec import Losses, Target, parsed
from weft.codec.anthropic.blocks import (
    WRITERS,
    Writer as BlockWriter,
    decode_block,
)
from weft.codec.anthropic.common_shapes import (
    decode_common as common_block,
    write_common as write_block,
)
from weft.codec.chat.common_shapes import decode_common as common_message, write_common
from weft.codec.chat.messages import Writer, decode_message
from weft.codec.gemini.blocks import (
    WRITERS as PART_WRITERS,
    ContentWriter,
    PartReader,
    Writer as PartWriter,
)
from weft.codec.gemini.common_shapes import (
    write_common as write_part,
    write_common_result as write_result,
)
from weft.codec.pairing import turn_of
from weft.codec.responses.common_shapes import decode_common as common_item
from weft.codec.responses.items import Grouping, Writer as ItemWriter
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
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "a"}]},
]

PART = {"type": "text", "text": "part"}

ANTHROPIC = [
    {"type": "text", "text": "hi"},
    {"type": "text", "text": ""},
    {"type": "thinking", "thinking": "so", "signature": "c2ln"},
    {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": [1, {"b": None}]}},
    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"},
    {"type": "tool_result", "tool_use_id": "toolu_1", "content": [PART, PART], "is_error": False},
    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no", "is_error": True},
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


def as_anthropic_reads(raw):
    try:
        return decode_block(raw)
    except Refused:
        return None


@pytest.mark.parametrize("raw", CHAT)
def test_a_common_chat_message_is_read_by_the_shortcut(raw):
    assert common_message(raw) == decode_message(raw)


@pytest.mark.parametrize("raw", ANTHROPIC)
def test_a_common_block_is_read_by_the_shortcut(raw):
    assert common_block(raw) == decode_block(raw)


@given(st.sampled_from(CHAT), st.integers(0))
def test_a_chat_message_with_anything_else_in_it_is_read_by_the_table(raw, seed):
    other = damaged(raw, random.Random(seed))
    assert common_message(other) in (None, as_chat_reads(other))


@given(st.sampled_from(ANTHROPIC), st.integers(0))
def test_a_block_with_anything_else_in_it_is_read_by_the_table(raw, seed):
    other = damaged(raw, random.Random(seed))
    assert common_block(other) in (None, as_anthropic_reads(other))


def test_recorded_messages_are_read_the_same_both_ways():
    common = 0
    for line in recorded("openai-chat"):
        for raw in line["request"]["messages"]:
            read = common_message(raw)
            common += read is not None
            assert read in (None, as_chat_reads(raw))
    for line in recorded("anthropic"):
        for message in line["request"]["messages"]:
            content = message["content"]
            for raw in content if isinstance(content, list) else ():
                read = common_block(raw)
                common += read is not None
                assert read in (None, as_anthropic_reads(raw))
    assert common > 100


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
def test_a_turn_is_written_by_the_shortcut_as_by_the_full_writer(role, blocks, form, name):
    message = Message(role, tuple(blocks), name, form=form)
    short = Losses()
    written = write_common(turn_of(0, message), short)
    if written is None:
        assert short.items == []
        return
    full = Losses()
    assert written == Writer(Request("m", (message,)), full).any_turn(turn_of(0, message))
    assert short.items == full.items


@given(st.sampled_from(SAID), st.booleans())
def test_a_block_is_written_by_the_shortcut_as_by_the_full_writer(block, native):
    written = write_block(block, parsed, native=native)
    if written is None:
        return
    losses = Losses()
    writer = BlockWriter(None, losses, native)
    assert written == WRITERS[type(block)](writer, block, (0, 0))
    assert losses.items == []


ITEMS = [
    {"role": "user", "content": "hi"},
    {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    {"role": "developer", "content": [{"type": "input_text", "text": "be brief"}]},
    {"role": "assistant", "content": "yes"},
    {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "done"},
    {
        "type": "function_call_output",
        "call_id": "call_1",
        "output": [{"type": "input_text", "text": "done"}],
    },
]


def as_items_read(raw, method):
    grouping = Grouping()
    try:
        getattr(grouping, method)(0, raw)
    except Refused as error:
        return str(error)
    grouping.close()
    return grouping.messages, grouping.starts


@pytest.mark.parametrize("raw", ITEMS)
def test_a_common_item_is_read_by_the_shortcut(raw):
    assert common_item(raw) is not None
    assert as_items_read(raw, "add") == as_items_read(raw, "add_any")


@given(st.sampled_from(ITEMS), st.integers(0))
def test_an_item_with_anything_else_in_it_is_read_by_the_table(raw, seed):
    other = damaged(raw, random.Random(seed))
    assert as_items_read(other, "add") == as_items_read(other, "add_any")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["user", "assistant", "tool", "system"]),
            st.lists(st.sampled_from(SAID), max_size=3),
            st.sampled_from(["", "text", "list", "null"]),
        ),
        max_size=3,
    )
)
def test_items_are_written_by_the_shortcut_as_by_the_full_writer(rows):
    messages = tuple(Message(role, tuple(blocks), form=form) for role, blocks, form in rows)
    request = Request("m", messages)
    short, full = Losses(), Losses()
    quick = ItemWriter(short, native=False, request=request)
    thorough = ItemWriter(full, native=False, request=request)
    for number, message in enumerate(messages):
        written = quick.turn(turn_of(number, message))
        assert written == thorough.any_turn(turn_of(number, message))
    assert short.items == full.items


PARTS = [
    {"text": "hi"},
    {"functionCall": {"name": "f", "args": {"a": [1]}, "id": "call_1"}},
    {"functionResponse": {"name": "f", "id": "call_1", "response": {"output": "done"}}},
    {"functionResponse": {"name": "f", "id": "call_1", "response": {"error": "no"}}},
]


def as_parts_read(parts, method):
    reader = PartReader()
    try:
        return [
            reader.common(part) or reader.any_part(part, 0, at)
            if method == "part"
            else reader.any_part(part, 0, at)
            for at, part in enumerate(parts)
        ], reader._waiting
    except Refused as error:
        return str(error)


@pytest.mark.parametrize("raw", PARTS)
def test_a_common_part_is_read_by_the_shortcut(raw):
    assert PartReader().common(raw) == PartReader().any_part(raw, 0, 0)


@given(st.lists(st.sampled_from(PARTS), max_size=4), st.integers(0))
def test_a_part_with_anything_else_in_it_is_read_by_the_table(parts, seed):
    chance = random.Random(seed)
    others = [damaged(part, chance) if chance.random() < 0.3 else part for part in parts]
    assert as_parts_read(others, "part") == as_parts_read(others, "any_part")


@given(st.sampled_from(SAID))
def test_a_part_is_written_by_the_shortcut_as_by_the_full_writer(block):
    losses = Losses()
    written = write_part(block, parsed)
    writer = PartWriter(None, losses, native=False)
    assert written is None or written == PART_WRITERS[type(block)](writer, block, (0, 0))
    assert losses.items == []


@given(
    st.sampled_from([block for block in SAID if isinstance(block, ToolResult)]),
    st.sampled_from([block for block in SAID if isinstance(block, ToolCall)]),
)
def test_a_result_is_written_by_the_shortcut_as_by_the_full_writer(result, call):
    request = Request("m", (Message("assistant", (call,)), Message("tool", (result,))))
    calls, target = {result.call_id: call}, Target(Model(name="m"))
    short, full = Losses(), Losses()
    written = write_result(result, call, (1, 0), short)
    if written is None:
        assert short.items == []
        return
    writer = PartWriter(target, full, calls, native=False)
    foreign = ContentWriter(request, target, writer, full)
    assert written == foreign.any_result(result, (1, 0), [])
    assert short.items == full.items
