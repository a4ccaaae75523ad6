"""Streams of compatible servers, which omit events that the vendor's own streams have.

Servers omit start events, deltas or final events. All content of such a stream reaches the client,
in an order that the client's SDK can read, and with the right usage.
"""

from typing import Any

import orjson
import pytest

import weft
from weft.codec import CODECS, AnswerTranslator
from weft.model import Origin, Refusal, Text, Thinking, ToolCall

A, C, R, G = "anthropic", "openai-chat", "openai-responses", "gemini"
Body = dict[str, Any]


def sse(*frames: Body | str) -> bytes:
    texts = [frame if isinstance(frame, str) else orjson.dumps(frame).decode() for frame in frames]
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def frames_of(data: bytes) -> list[Body]:
    lines = [line[6:] for line in data.split(b"\n") if line.startswith(b"data: ")]
    return [orjson.loads(line) for line in lines if line != b"[DONE]"]


def stream(source: str, target: str, *frames: Body | str) -> tuple[list[Body], Any]:
    """The frames that a client reads, and the answer that they add up to."""
    translator = weft.StreamTranslator(source, target)
    data = translator.feed(sse(*frames)) + translator.close()
    client = weft.StreamTranslator(target, target)
    client.feed(data)
    client.close()
    assert client.failed == translator.failed
    return frames_of(data), client.response


def visible_content(response: Any) -> list[Any]:
    parts: list[Any] = []
    for block in response.message.blocks:
        match block:
            case Text(text=text) | Refusal(text=text) | Thinking(text=text) if text:
                parts.append(text)
            case ToolCall(name=name, arguments=arguments):
                parts.append((name, orjson.loads(arguments)))
            case _:
                pass
    return parts


def event(kind: str, number: int = 0, **members: Any) -> Body:
    return {"type": f"response.{kind}", "output_index": number, **members}


def completed(*output: Body, **members: Any) -> Body:
    response = {"id": "resp_1", "model": "g", "status": "completed", "output": list(output)}
    return {"type": "response.completed", "response": {**response, **members}}


CREATED: Body = {
    "type": "response.created",
    "response": {"id": "resp_1", "model": "g", "status": "in_progress", "output": []},
}
CALL: Body = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": ""}
REASONING: Body = {"type": "reasoning", "id": "rs_1", "summary": []}


def words(text: str) -> Body:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}


SPARE: dict[str, tuple[list[Body], list[Any]]] = {
    "only the finished text": (
        [event("output_text.done", content_index=0, text="hi"), completed()],
        ["hi"],
    ),
    "only the finished refusal": (
        [event("refusal.done", content_index=0, refusal="no"), completed()],
        ["no"],
    ),
    "only the finished part": (
        [
            event("content_part.done", content_index=0, part={"type": "output_text", "text": "hi"}),
            completed(),
        ],
        ["hi"],
    ),
    "a text that ends beyond its deltas": (
        [
            event("output_text.delta", content_index=0, delta="h"),
            event("output_text.done", content_index=0, text="hi"),
            completed(),
        ],
        ["hi"],
    ),
    "only the finished arguments": (
        [
            event("output_item.added", item=CALL),
            event("function_call_arguments.done", arguments='{"q":1}'),
            completed(),
        ],
        [("f", {"q": 1})],
    ),
    "a finished call without the arguments that were streamed": (
        [
            event("output_item.added", item=CALL),
            event("function_call_arguments.delta", delta='{"q":'),
            event("function_call_arguments.done", arguments='{"q":1}'),
            event("output_item.done", item=CALL),
            completed(),
        ],
        [("f", {"q": 1})],
    ),
    "a call that only the finished response has": (
        [
            event("output_item.added", item=words("")),
            event("output_item.done", item=words("hi")),
            completed(words("hi"), {**CALL, "arguments": '{"q":1}'}),
        ],
        ["hi", ("f", {"q": 1})],
    ),
    "a finished response that lists fewer items than were streamed": (
        [
            event("output_item.added", item=CALL),
            event("output_item.done", item={**CALL, "arguments": "{}"}),
            event("output_item.added", 1, item=words("")),
            event("output_item.done", 1, item=words("hi")),
            completed(words("hi")),
        ],
        [("f", {}), "hi"],
    ),
    "last words that come behind their item": (
        [
            event("output_item.added", item=words("")),
            event("output_item.done", item=words("hi")),
            event("output_text.done", content_index=0, text="hi"),
            completed(words("hi")),
        ],
        ["hi"],
    ),
}


@pytest.mark.parametrize("target", [A, C, G])
@pytest.mark.parametrize("name", SPARE)
def test_content_that_appears_only_once_in_a_response_is_read(name: str, target: str) -> None:
    frames, wanted = SPARE[name]
    for opening in ([CREATED], []):
        assert visible_content(stream(R, target, *opening, *frames)[1]) == wanted


THOUGHTS: dict[str, tuple[list[Body], str]] = {
    "deltas without an item, and an empty summary": (
        [
            event("reasoning_summary_text.delta", summary_index=0, delta="why"),
            event("output_item.done", item=REASONING),
        ],
        "why",
    ),
    "finished parts alone": (
        [
            event("reasoning_summary_text.done", summary_index=0, text="one"),
            event("reasoning_summary_text.done", summary_index=1, text="two"),
        ],
        "one\n\ntwo",
    ),
    "parts that nobody announced": (
        [
            event("output_item.added", item=REASONING),
            event("reasoning_summary_text.delta", summary_index=0, delta="one"),
            event("reasoning_summary_text.done", summary_index=0, text="one"),
            event("reasoning_summary_text.delta", summary_index=1, delta="two"),
            event("reasoning_summary_text.done", summary_index=1, text="two"),
        ],
        "one\n\ntwo",
    ),
    "parts that are announced": (
        [
            event("output_item.added", item=REASONING),
            event("reasoning_summary_part.added", summary_index=0),
            event("reasoning_summary_text.delta", summary_index=0, delta="one"),
            event("reasoning_summary_part.added", summary_index=1),
            event("reasoning_summary_text.delta", summary_index=1, delta="two"),
        ],
        "one\n\ntwo",
    ),
    "the reasoning itself, finished": (
        [event("reasoning_text.done", content_index=0, text="raw")],
        "raw",
    ),
    "a summary behind the reasoning itself": (
        [
            event("reasoning_text.delta", content_index=0, delta="raw"),
            event("reasoning_summary_text.done", summary_index=0, text="short"),
        ],
        "raw",
    ),
}


@pytest.mark.parametrize("target", [A, G])
@pytest.mark.parametrize("name", THOUGHTS)
def test_thinking_is_read_without_a_start_event(name: str, target: str) -> None:
    frames, wanted = THOUGHTS[name]
    assert visible_content(stream(R, target, CREATED, *frames, completed())[1]) == [wanted]


def test_a_stream_without_a_start_event_still_begins() -> None:
    frames, _ = stream(R, A, event("output_text.delta", content_index=0, delta="hi"), completed())
    assert [frame["type"] for frame in frames] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    frames, _ = stream(R, C, event("output_text.delta", content_index=0, delta="hi"), completed())
    assert frames[0]["choices"][0]["delta"] == {"role": "assistant"}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}
    block["content_block"]["text"] = "hi"
    frames, answer = stream(A, C, block, {"type": "message_stop"})
    assert frames[0]["choices"][0]["delta"] == {"role": "assistant"}
    assert visible_content(answer) == ["hi"]
    frames, _ = stream(C, A, "[DONE]")
    assert [frame["type"] for frame in frames] == ["error"]


def messages(*frames: Body, usage: Body | None = None) -> list[Body]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "c", "content": []}
    start = {**message, "stop_reason": None, "stop_sequence": None, "usage": usage or {}}
    return [{"type": "message_start", "message": start}, *frames, {"type": "message_stop"}]


def ended(usage: Body, **delta: Any) -> Body:
    return {"type": "message_delta", "delta": {"stop_reason": "end_turn", **delta}, "usage": usage}


@pytest.mark.parametrize("target", [C, R, G])
@pytest.mark.parametrize(
    ("first", "last", "counts"),
    [
        (
            {"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 9},
            {"input_tokens": 11, "output_tokens": 2},
            (20, 2),
        ),
        (
            {"input_tokens": 5, "output_tokens": 1, "cache_read_input_tokens": 7},
            {"output_tokens": 2},
            (12, 2),
        ),
        (
            {"input_tokens": 5, "output_tokens": 1},
            {"cache_read_input_tokens": 7, "cache_creation_input_tokens": None, "output_tokens": 2},
            (12, 2),
        ),
        (
            {
                "input_tokens": 5,
                "output_tokens": 1,
                "cache_creation": {
                    "ephemeral_5m_input_tokens": 3,
                    "ephemeral_1h_input_tokens": 4,
                },
            },
            {"output_tokens": 2},
            (12, 2),
        ),
    ],
)
def test_usage_of_the_first_and_the_last_event_is_combined(
    target: str, first: Body, last: Body, counts: tuple[int, int]
) -> None:
    _, answer = stream(A, target, *messages(ended(last), usage=first))
    assert (answer.usage.input, answer.usage.output) == counts
    whole = {**messages(usage={**first, **last})[0]["message"], "stop_reason": "end_turn"}
    usage = CODECS[A].decode_response(whole).usage
    assert usage is not None
    assert (usage.input, usage.output) == counts


@pytest.mark.parametrize("target", [A, C, G])
def test_usage_that_only_the_first_event_has_is_reported(target: str) -> None:
    counts = {
        "input_tokens": 9,
        "output_tokens": 1,
        "total_tokens": 10,
        "input_tokens_details": {"cached_tokens": 3},
    }
    created = {"type": "response.created", "response": {**CREATED["response"], "usage": counts}}
    _, answer = stream(R, target, created, completed())
    assert (answer.usage.input, answer.usage.output, answer.usage.cached) == (9, 1, 3)


def test_a_streamed_call_loses_nothing() -> None:
    translator = weft.StreamTranslator(R, A)
    frames = [
        CREATED,
        event("output_item.added", item=CALL),
        event("function_call_arguments.delta", delta='{"q":1}'),
        event("output_item.done", item={**CALL, "arguments": '{"q":1}'}),
        completed({**CALL, "arguments": '{"q":1}'}),
    ]
    translator.feed(sse(*frames))
    assert translator.losses == []
    empty = weft.StreamTranslator(R, A)
    empty.feed(sse(CREATED, event("output_item.added", item=CALL), completed(CALL)))
    assert [loss.code for loss in empty.losses] == ["empty_arguments_added"]


def test_a_custom_calls_text_is_json_for_clients_without_custom_calls() -> None:
    custom = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "p", "input": ""}
    frames, answer = stream(
        R,
        A,
        CREATED,
        event("output_item.added", item=custom),
        event("custom_tool_call_input.delta", delta='a "b"'),
        event("custom_tool_call_input.delta", delta="\n"),
        event("output_item.done", item={**custom, "input": 'a "b"\n'}),
        completed({**custom, "input": 'a "b"\n'}),
    )
    pieces = [f["delta"]["partial_json"] for f in frames if f["type"] == "content_block_delta"]
    assert orjson.loads("".join(pieces)) == {"input": 'a "b"\n'}
    assert visible_content(answer) == [("p", {"input": 'a "b"\n'})]


FAILED = [
    ("invalid_prompt", 400, "invalid_request_error"),
    ("image_too_large", 400, "invalid_request_error"),
    ("vector_store_timeout", 504, "timeout_error"),
    ("server_error", 500, "api_error"),
]


@pytest.mark.parametrize(("code", "status", "word"), FAILED)
def test_a_failure_is_marked_as_retryable_only_if_a_retry_helps(
    code: str, status: int, word: str
) -> None:
    error = {"code": code, "message": "said so"}
    failed = {"type": "response.failed", "response": {"id": "r", "status": "failed"}}
    failed["response"]["error"] = error
    frames, _ = stream(R, A, CREATED, failed)
    assert frames[-1]["error"] == {"type": word, "message": "said so"}
    frames, _ = stream(R, G, CREATED, failed)
    assert frames[-1]["error"]["code"] == status


@pytest.mark.parametrize("code", ["content_filter", "bio_policy", "invalid_prompt"])
def test_an_error_event_about_the_prompt_is_not_retryable(code: str) -> None:
    frames, _ = stream(R, A, CREATED, {"type": "error", "code": code, "message": "said so"})
    assert frames[-1]["error"] == {"type": "invalid_request_error", "message": "said so"}


def test_a_failure_without_a_reason_says_so() -> None:
    failed = {"type": "response.failed", "response": {"id": "r", "status": "failed"}}
    frames, _ = stream(R, A, CREATED, failed)
    assert frames[-1]["error"]["message"] == "the upstream gave no reason"


@pytest.mark.parametrize("target", [C, R, G])
def test_nothing_follows_the_end_event(target: str) -> None:
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}
    ghost = {**block, "content_block": {"type": "text", "text": "ghost"}}
    frames = [*messages(ended({"output_tokens": 1})), ghost]
    translator = AnswerTranslator(CODECS[A], CODECS[target], origin=Origin(A))
    piece = translator.feed(sse(*frames))
    more = translator.close()
    assert b"ghost" not in piece.now + piece.last + more.now + more.last
    assert b"ghost" not in orjson.dumps(stream(A, target, *frames)[0])
