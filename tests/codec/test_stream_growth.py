"""The cost of reading a stream is linear in its length.

The test compares CPU times: a stream of eight times the length takes about eight times as long if
every byte is read a fixed number of times, and 64 times as long if the received bytes are copied
with each chunk. The limit lies far from both, because a stream that no longer fits into the
processor's cache takes twice as long per byte.
"""

from functools import partial
from time import thread_time

import orjson
import pytest

from weft.codec import CODECS, AnswerOptions, AnswerTranslator, OriginalTool
from weft.gateway import PassThroughRelay
from weft.model import Origin

A, C, R, G = "anthropic", "openai-chat", "openai-responses", "gemini"
PIECE = "0123456789abcdef" * 128
CHUNK = 64 * 1024
TIMES = 8
LIMIT = 30.0
SECONDS_PER_BYTE = 1.5e-9


def sse(event, **fields):
    return b"event: %b\ndata: %b\n\n" % (event.encode(), orjson.dumps({"type": event, **fields}))


def data(**fields):
    return b"data: %b\n\n" % orjson.dumps(fields)


def claude(block, deltas):
    """One block of an Anthropic stream, with its deltas."""
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []}
    usage = {"input_tokens": 1, "output_tokens": 1}
    yield sse("message_start", message={**message, "stop_reason": None, "usage": usage})
    yield sse("content_block_start", index=0, content_block=block)
    for delta in deltas:
        yield sse("content_block_delta", index=0, delta=delta)
    yield sse("content_block_stop", index=0)
    yield sse("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2})
    yield sse("message_stop")


def chat(deltas, **members):
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    for delta in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": None, **members}
        yield data(**head, choices=[choice])
    yield data(**head, choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
    yield b"data: [DONE]\n\n"


def responses(item, kind, deltas, **place):
    body = {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": []}
    yield sse("response.created", response={**body, "status": "in_progress"})
    yield sse("response.output_item.added", output_index=0, item=item)
    for delta in deltas:
        yield sse(kind, output_index=0, item_id="i", delta=delta, **place)
    yield sse("response.completed", response={**body, "status": "completed"})


def gemini(parts):
    for part in parts:
        content = {"role": "model", "parts": [part]}
        yield data(candidates=[{"index": 0, "content": content}], responseId="g")
    yield data(candidates=[{"index": 0, "finishReason": "STOP"}], responseId="g")


TEXT = {"type": "text", "text": ""}
THINKING = {"type": "thinking", "thinking": "", "signature": ""}
CALL = {"type": "tool_use", "id": "c", "name": "f", "input": {}}

STREAMS = {
    "text": (A, 3000, lambda n: claude(TEXT, [{"type": "text_delta", "text": PIECE}] * n)),
    "thinking": (
        A,
        3000,
        lambda n: claude(THINKING, [{"type": "thinking_delta", "thinking": PIECE}] * n),
    ),
    "arguments": (
        A,
        3000,
        lambda n: claude(CALL, [{"type": "input_json_delta", "partial_json": PIECE}] * n),
    ),
    "arguments of a custom tool": (
        A,
        3000,
        lambda n: claude(
            CALL,
            [
                {"type": "input_json_delta", "partial_json": '{"input": "'},
                *[{"type": "input_json_delta", "partial_json": PIECE}] * n,
                {"type": "input_json_delta", "partial_json": '"}'},
            ],
        ),
    ),
    "signature": (
        A,
        3000,
        lambda n: claude(THINKING, [{"type": "signature_delta", "signature": PIECE}] * n),
    ),
    "citations": (
        A,
        3000,
        lambda n: claude(TEXT, [{"type": "citations_delta", "citation": {"cited_text": "x"}}] * n),
    ),
    "a delta that is not known": (
        A,
        3000,
        lambda n: claude({"type": "odd", "words": ""}, [{"type": "odd_delta", "words": PIECE}] * n),
    ),
    "chat text": (C, 3000, lambda n: chat([{"content": PIECE}] * n)),
    "chat reasoning": (C, 3000, lambda n: chat([{"reasoning_content": PIECE}] * n)),
    "chat reasoning details": (
        C,
        3000,
        lambda n: chat([{"reasoning_details": [{"type": "t", "index": 0, "text": PIECE}]}] * n),
    ),
    "chat audio": (C, 3000, lambda n: chat([{"audio": {"id": "a", "data": PIECE}}] * n)),
    "chat logprobs": (
        C,
        3000,
        lambda n: chat([{"content": "x"}] * n, logprobs={"content": [0] * 64}),
    ),
    "chat arguments": (
        C,
        3000,
        lambda n: chat(
            [
                {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f"}}]},
                *[{"tool_calls": [{"index": 0, "function": {"arguments": PIECE}}]}] * n,
            ]
        ),
    ),
    "responses text": (
        R,
        3000,
        lambda n: responses(
            {"id": "i", "type": "message", "role": "assistant", "content": []},
            "response.output_text.delta",
            [PIECE] * n,
            content_index=0,
        ),
    ),
    "responses reasoning": (
        R,
        3000,
        lambda n: responses(
            {"id": "i", "type": "reasoning", "summary": []},
            "response.reasoning_summary_text.delta",
            [PIECE] * n,
            summary_index=0,
        ),
    ),
    "gemini text": (G, 3000, lambda n: gemini([{"text": PIECE}] * n)),
    "gemini thoughts": (G, 3000, lambda n: gemini([{"text": PIECE, "thought": True}] * n)),
    "gemini calls": (
        G,
        1000,
        lambda n: gemini([{"functionCall": {"name": "f", "args": {"x": PIECE}}}] * n),
    ),
    "one frame without an end": (A, 400, lambda n: [b"data: ", *[b"x" * CHUNK] * n]),
    "lines without a blank one": (A, 3000, lambda n: [b": %b\n" % PIECE.encode()] * n),
}


def chunks(frames):
    whole = b"".join(frames)
    return [whole[at : at + CHUNK] for at in range(0, len(whole), CHUNK)]


def cost(relay, pieces):
    begin = thread_time()
    for piece in pieces:
        relay.feed(piece)
    relay.close()
    _ = relay.response  # what is recorded is part of the cost
    return thread_time() - begin


def relays(source):
    origin, calls = Origin(source, "x", "m"), {"f": OriginalTool("g", custom=True)}
    yield lambda: PassThroughRelay(CODECS[source], AnswerOptions(), origin)
    for target in CODECS:
        if target != source:
            source_codec, target_codec = CODECS[source], CODECS[target]
            yield partial(
                AnswerTranslator,
                source_codec,
                target_codec,
                AnswerOptions(renamed_tools=calls),
                origin,
            )


@pytest.mark.parametrize(("source", "count", "write"), STREAMS.values(), ids=STREAMS)
def test_a_longer_stream_costs_no_more_per_byte(source, count, write):
    short, long = chunks(write(count // TIMES)), chunks(write(count))
    # A short stream may fit into memory that the process has already, a long one gets new pages
    # from the system; so no stream counts as cheaper than a fixed time per byte.
    least = max(0.001, SECONDS_PER_BYTE * sum(map(len, short)))
    for relay in relays(source):
        ratios = (cost(relay(), long) / max(least, cost(relay(), short)) for _ in range(5))
        assert any(ratio < LIMIT for ratio in ratios)  # a busy machine may spoil one
