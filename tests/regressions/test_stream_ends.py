"""Where a stream ends: which last frames a server may leave out, and what follows an end."""

import json

import pytest

import weft
from fault_upstream import ANSWER, PROTOCOLS, sse, write_frames
from weft.codec import CODECS, AnswerOptions, decode_answer
from weft.gateway import PassThroughRelay
from weft.model import Origin

A, C, R, G = PROTOCOLS


def chunk(delta=None, reason=None, number=0, **members):
    choice = {"index": number, "delta": delta or {}, "finish_reason": reason}
    return {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
        **members,
    }


USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
TEXT = chunk({"role": "assistant", "content": "hi"})
STOP = chunk({}, "stop")
COUNTS = chunk(choices=[], usage=USAGE)
DONE = "[DONE]"


def stream(*frames):
    return b"".join(sse(frame) for frame in frames)


def translate(data, source, target, cut=None):
    translator = weft.StreamTranslator(source, target)
    size = cut or len(data)
    sent = b"".join(
        translator.feed(data[start : start + size]) for start in range(0, len(data), size)
    )
    return sent + translator.close(), translator


COMPLETE = {
    "no [DONE] (Perplexity, Hugging Face)": stream(TEXT, STOP),
    "no [DONE], tokens in the last chunk": stream(TEXT, chunk({}, "stop", usage=USAGE)),
    "no [DONE], tokens after the finish_reason": stream(TEXT, STOP, COUNTS),
    "no [DONE], no blank line after the last chunk": stream(TEXT, STOP).rstrip(b"\n"),
    "finish_reason with the last text": stream(chunk({"content": "hi"}, "stop")),
    "a finish_reason in every chunk": stream(
        chunk({"content": "h"}, "stop"), chunk({"content": "i"}, "stop")
    ),
    "an empty finish_reason until the end": stream(chunk({"content": "hi"}, ""), STOP),
    "the word null for a finish_reason until the end": stream(
        chunk({"content": "hi"}, "null"), STOP
    ),
    "[DONE] after an empty finish_reason": stream(chunk({"content": "hi"}, ""), DONE),
    "[DONE] after tokens and no finish_reason": stream(TEXT, COUNTS, DONE),
    "tokens after [DONE]": stream(TEXT, STOP, DONE, COUNTS),
    "a comment after the finish_reason": stream(TEXT, STOP) + b": keep-alive\n\n",
    "choices null after the finish_reason": stream(TEXT, STOP, chunk(choices=None)),
    "a reason that nobody knows": stream(TEXT, chunk({}, "eos")),
}

CUT_OFF = {
    "neither finish_reason nor [DONE]": stream(TEXT),
    "[DONE] and no finish_reason": stream(TEXT, DONE),
    "tokens in a chunk of their own, and no finish_reason": stream(TEXT, COUNTS),
    "empty reasons, and no [DONE]": stream(chunk({"content": "hi"}, "")),
    "the word null for a reason": stream(chunk({"content": "hi"}, "null")),
    "one of two answers has not ended": stream(TEXT, chunk({"content": "you"}, number=1), STOP),
}


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("name", COMPLETE)
def test_a_finish_reason_ends_a_chat_stream(name, target):
    data = COMPLETE[name]
    sent, translator = translate(data, C, target)
    assert not translator.failed
    assert translator.ended
    assert translator.response.message.text == "hi"
    assert decode_answer(CODECS[target], sent).message.text == "hi"
    if target == C:
        assert sent == data if data.endswith(b"}\n\n") else data.strip().startswith(sent.strip())
    assert translate(data, C, target, cut=1)[0] == sent


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("name", CUT_OFF)
def test_a_chat_stream_without_an_end_has_failed(name, target):
    data = CUT_OFF[name]
    sent, translator = translate(data, C, target)
    assert translator.failed
    assert b'"error"' in sent
    assert b"[DONE]" not in sent
    assert translate(data, C, target, cut=1)[0] == sent


@pytest.mark.parametrize("cut", [None, 1, 7])
@pytest.mark.parametrize("name", COMPLETE)
def test_a_relay_forwards_a_stream_without_its_end_marker_unchanged(name, cut):
    data = COMPLETE[name]
    relay = PassThroughRelay(CODECS[C], AnswerOptions(), Origin(C))
    size = cut or len(data)
    pieces = [relay.feed(data[start : start + size]) for start in range(0, len(data), size)]
    pieces.append(relay.close())
    assert b"".join(piece.now + piece.last for piece in pieces) == data
    assert relay.ended
    assert relay.error is None
    assert relay.response.message.text == "hi"
    assert b'"stop"' not in b"".join(piece.now for piece in pieces) or "every chunk" in name
    assert any(piece.last for piece in pieces)  # waits until the answer is recorded


@pytest.mark.parametrize("name", CUT_OFF)
def test_a_relay_reports_a_stream_without_an_end(name):
    relay = PassThroughRelay(CODECS[C], AnswerOptions(), Origin(C))
    sent = relay.feed(CUT_OFF[name])
    closed = relay.close()
    assert relay.error is not None
    assert b'"error"' in sent.now + closed.now
    assert not sent.last + closed.last


AFTER_THE_END = {
    "a ping": sse({"type": "ping"}, "ping"),
    "an event that nobody knows": sse({"type": "later"}, "later"),
    "a second message": b"".join(write_frames(A)),
    "a second message that breaks off": b"".join(write_frames(A)[:4]),
    "a second end": write_frames(A)[-1],
    "an error": sse({"type": "error", "error": {"type": "api_error", "message": "x"}}, "error"),
    "no JSON": b"data: {\n\n",
}


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("name", AFTER_THE_END)
def test_frames_after_the_end_do_not_depend_on_the_cuts(name, target):
    data = b"".join(write_frames(A)) + AFTER_THE_END[name]
    whole, translator = translate(data, A, target)
    assert not translator.failed
    assert translator.response.message.text == ANSWER
    for cut in (1, 5, 64, len(data) - len(AFTER_THE_END[name])):
        assert translate(data, A, target, cut)[0] == whole
    if target == A:
        assert whole.count(b"event: message_delta") == whole.count(b"event: message_stop") == 1


FAILED = {
    A: write_frames(A)[:-2] + write_frames(A, "error")[-2:],
    C: write_frames(C)[:-3] + write_frames(C, "error")[-3:],
    R: write_frames(R, "failed"),
}
"""Streams whose stop reason is a failure, which the protocol's own clients do not notice."""
BROKEN = b"data: []\n\n"


@pytest.mark.parametrize(
    ("source", "broken"), [*((s, b"") for s in FAILED), *((s, BROKEN) for s in PROTOCOLS)]
)
def test_nothing_of_the_upstream_follows_an_error_of_our_own(source, broken):
    frames = write_frames(source) if broken else FAILED[source]
    half = len(frames) // 2
    data = b"".join(frames[:half]) + broken + b"".join(frames[half:])
    data += b"".join(write_frames(source))
    sent, translator = translate(data, source, source)
    assert translator.failed
    error = json.loads(sent.split(b"data: ")[-1])
    assert "error" in error or error["response"]["error"]
    for cut in (1, 9):
        assert translate(data, source, source, cut)[0] == sent


SPELLINGS = {
    "a space after [DONE]": stream(TEXT, STOP) + b"data: [DONE] \n\n",
    "null for an end mark": stream(TEXT, STOP) + b"data: null\n\n",
    "no JSON after the finish_reason": stream(TEXT, STOP) + b"data: end\n\n",
    "an event without data": stream(TEXT) + b"data: \n\n" + stream(STOP, DONE),
    "a byte order mark": b"\xef\xbb\xbf" + stream(TEXT, STOP, DONE),
    "an event name for the end": stream(TEXT, STOP) + b"event: done\ndata: [DONE]\n\n",
    "a body with a byte order mark": b"\xef\xbb\xbf"
    + json.dumps(
        {"choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}
    ).encode(),
}


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("name", SPELLINGS)
def test_other_spellings_of_a_stream_are_read(name, target):
    data = SPELLINGS[name]
    sent, translator = translate(data, C, target)
    assert not translator.failed
    assert translator.response.message.text == "hi"
    assert decode_answer(CODECS[target], sent).message.text == "hi"
    assert decode_answer(CODECS[C], data).message.text == "hi"
    for cut in (1, 2):
        assert translate(data, C, target, cut)[0] == sent


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("model_length", "length"),
        ("max_tokens", "length"),
        ("tool_use", "tool"),
        ("end_turn", "end"),
    ],
)
def test_reasons_of_other_servers_keep_their_meaning(reason, kind):
    _, translator = translate(stream(TEXT, chunk({}, reason)), C, A)
    assert translator.response.stop.kind == kind


def test_a_delta_that_is_no_object_fails_the_answer():
    _, translator = translate(stream(chunk("hi"), STOP, DONE), C, A)
    assert translator.failed
