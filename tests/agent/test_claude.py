"""The Claude bridge: SDK objects and recorded lines become the same events."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from weft.agent import (
    Failure,
    MessageComplete,
    SystemMessage,
    TextDelta,
    ThinkingDelta,
    ToolEnd,
    ToolStart,
    UsageReport,
    display_system_message,
    to_json,
)
from weft.agent.claude import watch

RECORDINGS = Path(__file__).parents[3] / "shared" / "corpus" / "clients" / "stream-json"


def sdk_object(name, base=object, /, **fields):
    """An object of a class with this name: the SDK's objects are recognised by that."""
    item = type(name, (base,), {})()
    vars(item).update(fields)
    return item


def feed(*messages):
    """The events of a session with these messages."""

    async def session():
        for message in messages:
            yield message

    async def collect():
        return [event async for event in watch(session())]

    return asyncio.run(collect())


def assistant(*blocks, **more):
    return {"type": "assistant", "message": {"id": "m1", "content": list(blocks)}, **more}


def results(*blocks):
    return {"type": "user", "message": {"role": "user", "content": list(blocks)}}


def partial(**event):
    return {"type": "stream_event", "event": event}


TEXT = {"type": "text", "text": "hi"}
CALL = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}}


@pytest.mark.parametrize(
    ("messages", "events"),
    [
        ([assistant(TEXT)], [TextDelta("block-1", "hi")]),
        (
            [assistant({"type": "thinking", "thinking": "hm", "signature": "s"}, TEXT, CALL)],
            [
                ThinkingDelta("block-1", "hm"),
                TextDelta("block-2", "hi"),
                ToolStart("c1", "Bash", {"command": "ls"}),
            ],
        ),
        ([assistant(CALL, parent_tool_use_id="c0")], [ToolStart("c1", "Bash", {"command": "ls"})]),
        ([assistant(TEXT, parent_tool_use_id="c0")], []),  # a subagent's text is not the answer
        (
            [results({"type": "tool_result", "tool_use_id": "c1", "content": "a"})],
            [ToolEnd("c1", "a", False)],
        ),
        (
            [
                results(
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "is_error": True,
                        "content": [TEXT, {"type": "image", "source": {}}],
                    }
                )
            ],
            [ToolEnd("c1", "hi\n[image]", True)],
        ),
        ([results(TEXT)], []),  # the user's own words come back; they are not new
        ([{"type": "user", "message": {"content": "hello"}}], []),
        (
            [{"type": "system", "subtype": "status", "status": "compacting"}],
            [SystemMessage("status", {"status": "compacting"})],
        ),
    ],
)
def test_lines_become_events(messages, events):
    assert feed(*messages) == events


def test_a_streamed_answer_is_not_reported_twice():
    events = feed(
        partial(type="message_start", message={"id": "m1"}),
        partial(type="content_block_start", index=0),
        partial(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "h"}),
        partial(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "i"}),
        partial(type="content_block_delta", index=1, delta={"type": "input_json_delta"}),
        assistant(TEXT),
        assistant(CALL),
    )
    assert events == [
        TextDelta("block-1", "h"),
        TextDelta("block-1", "i"),
        ToolStart("c1", "Bash", {"command": "ls"}),
    ]


def test_two_streamed_answers_have_separate_blocks():
    delta = {"type": "text_delta", "text": "x"}
    events = feed(
        partial(type="message_start", message={"id": "m1"}),
        partial(type="content_block_delta", index=0, delta=delta),
        partial(type="message_start", message={"id": "m2"}),
        partial(type="content_block_delta", index=0, delta=delta),
    )
    assert [event.id for event in events] == ["block-1", "block-2"]


RESULT = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "stop_reason": "end_turn",
    "total_cost_usd": 0.5,
    "usage": {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 7},
    "modelUsage": {"a": {"contextWindow": 200000}},
}


@pytest.mark.parametrize(
    ("change", "events"),
    [
        ({}, [UsageReport(15, 7, cached=5, window=200000, cost=0.5), MessageComplete("end")]),
        (
            {"usage": None, "modelUsage": None, "total_cost_usd": None},
            [UsageReport(0, 0), MessageComplete("end")],
        ),
        (
            {"is_error": True, "result": "no credit", "api_error_status": 402, "modelUsage": {}},
            [UsageReport(15, 7, cached=5, cost=0.5), Failure("no credit", 402)],
        ),
        (
            {"is_error": True, "subtype": "error_max_turns", "modelUsage": {}},
            [UsageReport(15, 7, cached=5, cost=0.5), Failure("error_max_turns")],
        ),
    ],
)
def test_a_result_ends_the_run_with_its_usage(change, events):
    assert feed({**RESULT, **change}) == events


def test_sdk_objects_and_lines_give_the_same_events():
    system = type("SystemMessage", (), {})
    events = feed(
        sdk_object("SystemMessage", subtype="init", data={"type": "system", "tools": []}),
        sdk_object(
            "TaskNotificationMessage", system, subtype="task_notification", data={"summary": "x"}
        ),
        sdk_object(
            "AssistantMessage",
            message_id="m1",
            parent_tool_use_id=None,
            content=[
                sdk_object("ThinkingBlock", thinking="hm", signature="s"),
                sdk_object("TextBlock", text="hi"),
                sdk_object("ToolUseBlock", id="c1", name="Bash", input={"command": "ls"}),
                sdk_object("BlockOfTomorrow", text="?"),
            ],
        ),
        sdk_object(
            "UserMessage",
            content=[sdk_object("ToolResultBlock", tool_use_id="c1", content="a", is_error=None)],
        ),
        sdk_object("UserMessage", content="hello"),
        sdk_object("RateLimitEvent", info={}),
        sdk_object("ResultMessage", subtype="success", is_error=False, usage={"output_tokens": 3}),
    )
    assert events == [
        SystemMessage("init", {"tools": []}),
        SystemMessage("task_notification", {"summary": "x"}),
        ThinkingDelta("block-1", "hm"),
        TextDelta("block-2", "hi"),
        ToolStart("c1", "Bash", {"command": "ls"}),
        ToolEnd("c1", "a", False),
        UsageReport(0, 3),
        MessageComplete("end"),
    ]


@pytest.mark.parametrize(
    "message",
    [
        None,
        7,
        [],
        {},
        "",
        "not json",
        b"[1]",
        {"type": ["x"]},
        {"type": "from_tomorrow"},
        {"type": "assistant"},
        {"type": "assistant", "message": {"id": ["x"], "content": [1, {"type": 2}]}},
        {"type": "user", "message": "x"},
        {"type": "stream_event", "event": {"type": "content_block_delta", "index": "x"}},
        SimpleNamespace(type="assistant"),
    ],
)
def test_unknown_or_broken_messages_give_no_event(message):
    assert feed(message) == []


def recordings():
    return sorted(RECORDINGS.glob("*.jsonl"))


ABSENT = pytest.mark.skip(reason="the recorded sessions are not beside this repository")


@pytest.mark.parametrize("path", recordings() or [pytest.param(Path(), marks=ABSENT)])
def test_a_recorded_session_is_read_completely(path):
    lines = path.read_bytes().splitlines()
    events = feed(*lines)
    starts = [event.id for event in events if isinstance(event, ToolStart)]
    ends = [event.id for event in events if isinstance(event, ToolEnd)]
    texts = "".join(event.text for event in events if isinstance(event, TextDelta))
    final = [json.loads(line) for line in lines if b'"type":"result"' in line][-1]
    assert sorted(starts) == sorted(ends)
    assert isinstance(events[-1], MessageComplete | Failure)
    assert isinstance(events[-1], Failure) or final["result"].strip() in texts
    assert all(display_system_message(to_json(event)) is None for event in events if is_init(event))


def is_init(event):
    return isinstance(event, SystemMessage) and event.subtype == "init"
