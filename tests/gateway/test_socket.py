"""The page's socket: incoming frames, and events as outgoing frames."""

import pytest

from weft.agent import (
    MessageComplete,
    SystemMessage,
    TextDelta,
    ThinkingDelta,
    ToolEnd,
    ToolStart,
)
from weft.errors import Refused
from weft.gateway import FrameWriter, Transcript, read_frame

FRAME_LIMIT = 1 << 20
LATER = 1.0


def write(*events, step=0.0):
    writer = FrameWriter()
    return [frame for n, event in enumerate(events) for frame in writer.write(event, n * step)]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (None, "frame"),  # bytes
        ("", "frame"),
        ("{", "frame"),
        ("null", "frame"),
        ("[1]", "frame"),
        ('"say"', "frame"),
        ("{}", "type"),
        ('{"type": null}', "type"),
        ('{"type": "SAY"}', "type"),
        ('{"type": {"a": 1}}', "type"),
        ('{"type": "say"' + " " * FRAME_LIMIT + "}", "frame"),
    ],
)
def test_an_invalid_frame_is_refused_with_its_field(text, place):
    with pytest.raises(Refused) as refused:
        read_frame(text)
    assert refused.value.param == place


@pytest.mark.parametrize("frame", ['{"type": "interrupt"}', '{"type": "say", "text": "x", "n": 1}'])
def test_a_valid_frame_is_read_completely(frame):
    assert read_frame(frame)["type"] in ("say", "interrupt")


@pytest.mark.parametrize(
    ("event", "types"),
    [
        (SystemMessage("init", {"tools": []}), []),
        (SystemMessage("INIT", {"content": "x"}), []),
        (SystemMessage("thinking_tokens", {"estimated_tokens": 3}), []),
        (SystemMessage("status", {"status": "requesting"}), []),
        (SystemMessage("warning", {"content": " "}), []),
        (SystemMessage("warning", {"content": "x"}), ["system"]),
        (SystemMessage("compaction_start", {}), ["system"]),
    ],
)
def test_V2_the_server_drops_metadata_before_the_socket(event, types):
    assert [frame["type"] for frame in write(event)] == types


def test_a_text_is_rendered_periodically_and_at_its_end():
    frames = write(
        TextDelta("a", "**b"), TextDelta("a", "old**"), MessageComplete(), step=LATER / 20
    )
    assert [frame["type"] for frame in frames] == [
        "text_delta",
        "text_delta",
        "rendered",
        "message_complete",
    ]
    assert frames[2]["html"] == "<p><strong>bold</strong></p>\n"
    assert frames[2]["length"] == len("**bold**")


def test_a_slow_text_is_rendered_as_it_grows():
    frames = write(TextDelta("a", "x"), TextDelta("a", "y"), TextDelta("a", "z"), step=LATER)
    assert [frame.get("length") for frame in frames] == [None, None, 2, None, 3]


def test_lengths_are_counted_in_utf_16_like_in_a_browser():
    frames = write(TextDelta("a", "😀é"), MessageComplete())
    assert frames[1]["length"] == 3


def test_blocks_and_tools_end_the_text_before_them():
    frames = write(
        ThinkingDelta("t", "hm"),
        TextDelta("a", "one"),
        TextDelta("b", "two"),
        ToolStart("c", "calculate", {}),
        ToolEnd("c", "42"),
    )
    types = [(frame["type"], frame["id"]) for frame in frames]
    assert types == [
        ("thinking_delta", "t"),
        ("text_delta", "a"),
        ("rendered", "a"),
        ("text_delta", "b"),
        ("rendered", "b"),
        ("tool_start", "c"),
        ("tool_end", "c"),
    ]


def test_a_transcript_replays_the_stream_in_fewer_frames():
    transcript = Transcript()
    for frame in write(
        ThinkingDelta("t", "h"),
        ThinkingDelta("t", "m"),
        TextDelta("a", "one "),
        TextDelta("a", "**two**"),
        ToolStart("c", "calculate", {}),
        ToolEnd("c", "42"),
        TextDelta("a", "three"),  # the next answer uses the same block id
        step=LATER,
    ):
        transcript.add(frame)
    frames = transcript.frames()
    contents = [(frame["type"], frame.get("text") or frame.get("length")) for frame in frames]
    assert contents == [
        ("thinking_delta", "hm"),
        ("text_delta", "one **two**"),
        ("rendered", len("one **two**")),
        ("tool_start", None),
        ("tool_end", None),
        ("text_delta", "three"),
        ("rendered", len("three")),
    ]
    assert transcript.frames() == frames  # reading changes nothing
    transcript.add({"type": "text_delta", "id": "a", "text": " four"})
    assert transcript.frames()[5]["text"] == "three four"
