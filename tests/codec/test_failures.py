"""Which answers count as failed, in every protocol: bodies, streams, and the public API."""

from typing import Any

import orjson
import pytest

import weft
from fault_upstream import ANSWER, FAILED_STOPS, PIECES, PROTOCOLS, sse, write_body, write_frames
from weft.codec import (
    CODECS,
    AnswerReader,
    decode_answer,
    detect_form,
    is_about_restored_content,
    unfold,
)
from weft.errors import NotAnAnswer, Refused, UpstreamFailed
from weft.model import ApiError, End, Fail, Fold, fold

A, C, R, G = PROTOCOLS

STOPS = [(protocol, stop) for protocol in PROTOCOLS for stop in FAILED_STOPS[protocol]]
FIRST = {A: "content", C: "choices", R: "output", G: "candidates"}


def frames_of(protocol: str, stop: str | None = None) -> bytes:
    return b"".join(write_frames(protocol, stop))


@pytest.mark.parametrize(("protocol", "stop"), STOPS)
@pytest.mark.parametrize("target", PROTOCOLS)
def test_a_stop_reason_that_means_a_failure_fails_a_body(
    protocol: str, stop: str, target: str
) -> None:
    with pytest.raises(UpstreamFailed):
        weft.translate_response(write_body(protocol, stop), protocol, target)


@pytest.mark.parametrize(("protocol", "stop"), STOPS)
@pytest.mark.parametrize("target", PROTOCOLS)
def test_a_stop_reason_that_means_a_failure_fails_a_stream(
    protocol: str, stop: str, target: str
) -> None:
    stream = weft.StreamTranslator(protocol, target)
    sent = stream.feed(frames_of(protocol, stop)) + stream.close()
    assert stream.failed
    # Google's own clients know its reasons; any other client is told by an error.
    assert b'"error"' in sent or (protocol, target) == (G, G) or b"response.failed" in sent


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_table_of_failures_belongs_to_the_codec(protocol: str) -> None:
    assert set(CODECS[protocol].failed_stops) == set(FAILED_STOPS[protocol])


NO_ANSWERS: list[dict[str, Any]] = [
    {},
    {"detail": "Not authenticated", "status": 500},
    {"message": "internal error"},
    {"error": "boom"},
    {"error": {"message": "boom"}},
]


@pytest.mark.parametrize("body", NO_ANSWERS, ids=str)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_body_without_an_answer_has_failed(protocol: str, body: dict[str, Any]) -> None:
    kind = UpstreamFailed if "error" in body else NotAnAnswer
    with pytest.raises(kind) as caught:
        weft.translate_response(body, protocol, A if protocol != A else C)
    words = next(iter(body.values()), FIRST[protocol])
    assert ("boom" if "error" in body else str(words)) in str(caught.value)
    with pytest.raises(UpstreamFailed):
        decode_answer(CODECS[protocol], orjson.dumps(body))


def test_an_error_beside_an_answer_has_failed() -> None:
    for protocol in PROTOCOLS:
        body = write_body(protocol) | {"error": {"message": "boom"}}
        with pytest.raises(UpstreamFailed, match="boom"):
            CODECS[protocol].decode_response(body)


def test_openrouter_explains_a_failed_choice_in_the_choice() -> None:
    body = write_body(C, "error")
    body["choices"][0]["error"] = {"code": 502, "message": "Provider disconnected"}
    with pytest.raises(UpstreamFailed, match="Provider disconnected") as caught:
        CODECS[C].decode_response(body)
    assert caught.value.status == 502


def changed(protocol: str, **members: Any) -> dict[str, Any]:
    return write_body(protocol) | members


NO_FAILURES = [
    (C, changed(C, choices=[{"index": 0, "message": {"role": "assistant", "content": "a"}}])),
    (C, write_body(C, "")),  # a server that has the member and no word for it
    (C, write_body(C, "eos")),  # a word that nobody knows is no failure
    (A, changed(A, stop_reason=None)),
    (A, changed(A, content=[])),  # the model had nothing to add
    (R, changed(R, status="queued", output=[], background=True)),
    (R, changed(R, status="in_progress", output=[])),
    (R, changed(R, status="incomplete", incomplete_details={"reason": "max_output_tokens"})),
    (G, {"promptFeedback": {"blockReason": "SAFETY"}, "modelVersion": "m"}),
    (G, {"candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS"}]}),
    (
        G,  # the call is there: its caller can answer that there is no such tool
        {
            "candidates": [
                {
                    "content": {"role": "model", "parts": [{"functionCall": {"name": "f"}}]},
                    "finishReason": "UNEXPECTED_TOOL_CALL",
                }
            ]
        },
    ),
]


@pytest.mark.parametrize(("protocol", "body"), NO_FAILURES)
def test_a_short_or_pending_answer_has_not_failed(protocol: str, body: dict[str, Any]) -> None:
    assert weft.translate_response(body, protocol, protocol).body == body


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("target", PROTOCOLS)
def test_half_of_a_surrogate_pair_does_not_fail_an_answer(protocol: str, target: str) -> None:
    """A server in JavaScript may cut a text in the middle of a character. The SDKs accept that."""
    cut, text = b"\\ud83d", "\ufffd" + ANSWER.removeprefix(PIECES[0])
    stream = weft.StreamTranslator(protocol, target)
    stream.feed(frames_of(protocol).replace(PIECES[0].encode(), cut))
    stream.close()
    assert not stream.failed
    assert stream.response is not None
    assert stream.response.message.text == text
    body = orjson.dumps(write_body(protocol)).replace(PIECES[0].encode(), cut)
    assert decode_answer(CODECS[protocol], body).message.text == text


def test_a_number_that_json_does_not_have_does_not_fail_an_answer() -> None:
    body = orjson.dumps(changed(C, extra=0)).replace(b'"extra":0', b'"extra":[NaN,-Infinity]')
    assert decode_answer(CODECS[C], body).message.text == ANSWER
    with pytest.raises(UpstreamFailed):
        decode_answer(CODECS[C], body[:-1])


def test_an_unexpected_call_fails_where_it_is_omitted() -> None:
    body = write_body(G, "UNEXPECTED_TOOL_CALL")
    with pytest.raises(UpstreamFailed, match="UNEXPECTED_TOOL_CALL"):
        CODECS[G].decode_response(body)


BROKEN_STREAMS = [
    (A, b"".join(write_frames(A)[-1:])),  # an end without a beginning
    (C, b"".join(write_frames(C)[-1:])),
    (R, sse({"type": "response.completed"}, "response.completed")),
    (A, sse({"error": {"message": "boom"}})),  # an error that the vendor's SDKs would overlook
    (R, sse({"error": {"message": "boom"}})),
]


@pytest.mark.parametrize(("protocol", "data"), BROKEN_STREAMS)
@pytest.mark.parametrize("target", PROTOCOLS)
def test_a_stream_without_a_start_or_in_another_protocol_has_failed(
    protocol: str, data: bytes, target: str
) -> None:
    stream = weft.StreamTranslator(protocol, target)
    sent = stream.feed(data) + stream.close()
    assert stream.failed
    assert b"error" in sent


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (b'{"a": 1}', "body"),
        (b'\xef\xbb\xbf\n [{"a": 1}]', "body"),
        (b"data: 1\n\n", "stream"),
        (b"\n\nevent: a\ndata: 1\n\n", "stream"),
        (b": keep-alive\n\n", "stream"),
        (b"<html>", "neither"),
        (b"", "neither"),
        (b"null", "neither"),
    ],
)
def test_the_first_bytes_decide_between_body_and_stream(data: bytes, form: str) -> None:
    assert detect_form(data) == form


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_answer_is_the_same_as_body_and_as_stream(protocol: str) -> None:
    body = decode_answer(CODECS[protocol], orjson.dumps(write_body(protocol)))
    stream = decode_answer(CODECS[protocol], frames_of(protocol))
    assert (body.message.text, body.stop) == (stream.message.text, stream.stop)
    assert body.message.text == ANSWER
    assert fold(unfold(body)).message.blocks == body.message.blocks


def test_gemini_streams_an_array_to_clients_without_sse() -> None:
    frames = [orjson.loads(frame[6:]) for frame in write_frames(G)]
    assert decode_answer(CODECS[G], orjson.dumps(frames)).message.text == ANSWER
    with pytest.raises(UpstreamFailed):
        decode_answer(CODECS[G], orjson.dumps(frames[:-1]))


@pytest.mark.parametrize("data", [b"<html>fine</html>", b"", b"null", b"[]", b'"fine"', b"{half"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_bytes_that_are_neither_body_nor_stream_have_failed(protocol: str, data: bytes) -> None:
    with pytest.raises(UpstreamFailed):
        decode_answer(CODECS[protocol], data)
    events = read(protocol, [data])
    assert isinstance(events[-1], Fail)


def read(protocol: str, pieces: list[bytes]) -> list[Any]:
    reader = AnswerReader(CODECS[protocol])
    return [event for piece in pieces for event in reader.feed(piece)] + reader.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_body_instead_of_a_stream_is_read_at_any_split(protocol: str) -> None:
    data = b"\n " + orjson.dumps(write_body(protocol))
    whole = read(protocol, [data])
    assert isinstance(whole[-1], End)
    assert read(protocol, [bytes([byte]) for byte in data]) == whole
    assert isinstance(read(protocol, [data[:-1]])[-1], Fail)


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("source", PROTOCOLS)
def test_a_body_instead_of_a_stream_becomes_a_stream(source: str, target: str) -> None:
    stream = weft.StreamTranslator(source, target)
    sent = stream.feed(orjson.dumps(write_body(source))) + stream.close()
    assert not stream.failed
    assert decode_answer(CODECS[target], sent).message.text == ANSWER


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_undecodable_answer_is_not_a_failed_one(protocol: str) -> None:
    """A client of the same protocol may be able to read it."""
    body = write_body(protocol)
    body[FIRST[protocol]][0] = "something new"
    with pytest.raises(Refused):
        CODECS[protocol].decode_response(body)


def test_an_undecodable_frame_between_two_others_is_skipped() -> None:
    for protocol in PROTOCOLS:
        frames = write_frames(protocol)
        events = read(protocol, [*frames[:2], b"data: []\n\n", *frames[2:]])
        failures = [event for event in events if isinstance(event, Fail)]
        assert [failure.cause for failure in failures] == ["frame"]
        assert isinstance(events[-1], End)
        folded = Fold()
        for event in events:
            folded.send(event)
        assert folded.error is not None  # whoever folds all of it stops there


RESTORED = [
    (400, "Invalid `signature` in `thinking` block", True),
    (400, "messages.1.content.0: `thinking` blocks cannot be modified", True),
    (404, "Item with id 'rs_68a' not found. Items are not persisted when `store` is false.", True),
    (400, "Item 'fc_1' of type 'function_call' was provided without its required item", True),
    (400, "The encrypted content gAAA could not be verified.", True),
    (400, "Thought signature is not valid", True),
    (400, "Request contains an invalid argument.", True),  # Gemini, once the list is long
    (422, "property 'reasoning_content' is unsupported", True),
    (400, "prompt is too long: 210000 tokens > 200000 maximum", False),
    (400, "max_tokens: must be positive", False),
    (404, "The model `gpt-9` does not exist", False),
    (401, "bad signature of the key", False),
    (500, "thinking failed", False),
]


@pytest.mark.parametrize(("status", "message", "restored"), RESTORED)
def test_only_an_error_about_restored_content_is_retried(
    status: int, message: str, restored: bool
) -> None:
    body = {"error": {"message": message, "type": "invalid_request_error", "code": None}}
    assert is_about_restored_content(CODECS[C].decode_error(body, status)) is restored


OVERFLOWS = [
    "Your request exceeded model token limit: 262144 (requested: 300000)",  # Kimi
    "The input (200000 tokens) is longer than the model's context length (131072 tokens).",
    "prompt too long; exceeded max context length by 12 tokens",  # Ollama
    "request (66202 tokens) exceeds the available context size (65536 tokens)",  # llama.cpp
    "Context size has been exceeded.",
    "tokens to keep from the initial prompt is greater than the context length",  # LM Studio
    "This endpoint's maximum context length is 8192 tokens. However, you requested about 9000",
    "Input length 9000 exceeds the maximum allowed input length of 8192 tokens.",
    "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    "This model's maximum context length is 8 tokens. However, you requested 0 output tokens and "
    "your prompt contains at least 9 input tokens",  # vLLM
    "invalid params, context window exceeds limit",  # MiniMax
    "prompt token count of 9 exceeds the limit of 8",  # Copilot
    "input length and `max_tokens` exceed context limit: 9 + 8 > 10",
    "Input exceeds the max input token limit",  # Bedrock
]


@pytest.mark.parametrize("message", OVERFLOWS)
@pytest.mark.parametrize("bare", [False, True])
def test_a_full_context_window_is_recognised_by_its_message(message: str, bare: bool) -> None:
    inner = {"message": message, "type": "BadRequestError", "code": 400}
    error = CODECS[C].decode_error({"object": "error", **inner} if bare else {"error": inner}, 400)
    assert (error.kind, error.message) == ("context_length", message)
    assert CODECS[C].encode_error(error)[1]["error"]["code"] == "context_length_exceeded"
    claude = CODECS[A].encode_error(error)[1]["error"]
    assert claude["message"] == f"prompt is too long: {message}"


def test_a_rate_limit_with_a_similar_message_is_a_rate_limit() -> None:
    error = CODECS[C].decode_error({"error": {"message": "too many input tokens"}}, 429)
    assert error.kind == "rate_limit"


def test_no_client_retries_after_a_full_context_window() -> None:
    """Some servers answer with 500, and every SDK retries after that."""
    error = ApiError("context_length", "the context size was exceeded", 500)
    assert {CODECS[protocol].encode_error(error)[0] for protocol in PROTOCOLS} == {400}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_html_is_not_used_as_an_error_message(protocol: str) -> None:
    page = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
    error = CODECS[protocol].decode_error(page, 502)
    assert error.message == "the upstream answered with a page: 502 Bad Gateway"
