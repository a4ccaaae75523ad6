"""Relayed answers: pass-through, delayed ends, truncated streams and keep-alives."""

import orjson
import pytest

from weft.codec import CODECS, AnswerOptions, AnswerTranslator, Piece
from weft.gateway import FrameCutter, PassThroughRelay
from weft.model import ApiError, Origin

ORIGIN = Origin("anthropic", "test", "m")


def frame(event, **data):
    return f"event: {event}\ndata: {orjson.dumps({'type': event, **data}).decode()}\n\n".encode()


START = frame(
    "message_start",
    message={
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 1},
    },
)
OPEN = frame("content_block_start", index=0, content_block={"type": "text", "text": ""})
WORDS = frame("content_block_delta", index=0, delta={"type": "text_delta", "text": "héllo"})
CLOSE = frame("content_block_stop", index=0)
FINISH = frame("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2})
STOP = frame("message_stop")
WHOLE = START + OPEN + WORDS + CLOSE + FINISH + STOP
STRANGE = frame("content_block_delta", index=7, delta={"type": "text_delta", "text": "?"})


def relays():
    yield "mirror", lambda: PassThroughRelay(CODECS["anthropic"], AnswerOptions(), ORIGIN)
    for name in CODECS:
        codec = CODECS[name]
        yield name, lambda codec=codec: AnswerTranslator(CODECS["anthropic"], codec, origin=ORIGIN)


RELAYS = pytest.mark.parametrize("make", [r[1] for r in relays()], ids=[r[0] for r in relays()])


def play(relay, pieces):
    now, last = b"", b""
    for piece in [relay.feed(piece) for piece in pieces] + [relay.close()]:
        assert not (last and piece.now), "nothing may pass after what waits"
        now, last = now + piece.now, last + piece.last
    return now, last


def test_a_pass_through_keeps_every_byte_and_delays_the_end():
    now, last = play(PassThroughRelay(CODECS["anthropic"], AnswerOptions(), ORIGIN), [WHOLE])
    assert (now + last, last) == (WHOLE, STOP)


@RELAYS
def test_any_split_of_the_bytes_gives_the_same_answer(make):
    expected = play(make(), [WHOLE])
    assert expected[1], "the end waits for the answer's commit"
    for place in range(1, len(WHOLE)):
        assert play(make(), [WHOLE[:place], WHOLE[place:]]) == expected
    assert play(make(), [bytes([byte]) for byte in WHOLE]) == expected


@RELAYS
def test_a_truncated_upstream_stream_is_never_a_success(make):
    whole = play(make(), [WHOLE])[1]
    for place in range(len(WHOLE) - len(STOP)):
        relay = make()
        now, last = play(relay, [WHOLE[:place]])
        assert relay.error is not None
        assert not last
        assert b"error" in now
        assert whole not in now


@RELAYS
def test_the_answer_is_decoded_for_the_record(make):
    relay = make()
    play(relay, [WHOLE])
    response = relay.response
    assert (response.message.text, response.message.origin) == ("héllo", ORIGIN)
    assert (response.usage.input, response.usage.output) == (3, 2)


def test_a_pass_through_forwards_frames_that_it_cannot_decode():
    relay = PassThroughRelay(CODECS["anthropic"], AnswerOptions(), ORIGIN)
    now, last = play(relay, [START + STRANGE + STOP])
    assert now + last == START + STRANGE + STOP


def test_a_failure_inside_the_stream_is_forwarded_at_once():
    error = frame("error", error={"type": "overloaded_error", "message": "busy"})
    relay = PassThroughRelay(CODECS["anthropic"], AnswerOptions(), ORIGIN)
    assert play(relay, [START + error]) == (START + error, b"")
    assert relay.error.kind == "overloaded"


@RELAYS
def test_a_truncated_stream_ends_in_the_callers_error_format(make):
    relay = make()
    relay.feed(START + OPEN + WORDS)
    assert b"it broke" in relay.fail(ApiError("server", "it broke", 502))


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_frames_end_at_any_kind_of_blank_line(end):
    cutter = FrameCutter()
    data = b"data: a" + end + b"data: b" + end + b"data: c"
    assert cutter.feed(data) == [b"data: a" + end, b"data: b" + end]
    assert cutter.close() == b"data: c"


@pytest.mark.parametrize(
    ("protocol", "data"),
    [("anthropic", b'event: ping\ndata: {"type": "ping"}\n\n'), ("openai-chat", b": keep-alive\n")],
)
def test_keep_alives_use_the_callers_format(protocol, data):
    assert CODECS[protocol].http.keep_alive == data


def gemini_frames():
    parts = [{"text": "a"}, {"text": "b"}]
    bodies = [{"candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in parts]
    bodies[-1]["candidates"][0]["finishReason"] = "STOP"
    return [b"data: " + orjson.dumps(body) + b"\n\n" for body in bodies]


def test_the_end_of_a_stream_without_a_terminal_event_is_delayed_too():
    first, last = gemini_frames()
    relay = PassThroughRelay(CODECS["gemini"], AnswerOptions(), ORIGIN)
    assert (relay.feed(first), relay.feed(last)) == (Piece(first), Piece())
    assert relay.close() == Piece(b"", last)
    assert relay.response.message.text == "ab"


def test_a_pass_through_reports_a_missing_end_after_an_undecodable_frame():
    for odd in (b"data: []\n\n", STRANGE):
        relay = PassThroughRelay(CODECS["anthropic"], AnswerOptions(), ORIGIN)
        now, last = play(relay, [START + odd])
        assert relay.error is not None
        assert b"event: error" in now.removeprefix(START + odd)
        assert not last


def test_nothing_follows_a_stop_reason_that_means_a_failure():
    failed = FINISH.replace(b"end_turn", b"error")
    relay = PassThroughRelay(CODECS["anthropic"], AnswerOptions(), ORIGIN)
    now, last = play(relay, [START + OPEN + WORDS + CLOSE + failed + STOP])
    assert relay.error is not None
    assert b"message_stop" not in now + last
    assert now.endswith(b"\n\n")
    assert b"event: error" in now


@RELAYS
def test_a_body_instead_of_a_stream_is_written_as_a_stream(make):
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "héllo"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }
    relay = make()
    now, last = play(relay, [orjson.dumps(body)])
    assert relay.error is None
    assert relay.response.message.text == "héllo"
    assert last
    assert b"data: " in now
