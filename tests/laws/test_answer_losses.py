"""The losses of an answer use the paths of the upstream's body, and every path exists there."""

import orjson
import pytest

import weft
from corpus import recorded
from laws.differences import Report, differences, reach, steps_of
from laws.test_named_losses import SAME, caller_path
from laws.wire_bodies import PROTOCOLS
from weft.codec import CODECS
from weft.errors import WeftError

PAIRS = [(a, b) for a in PROTOCOLS for b in PROTOCOLS if a != b]


def leads(body, path):
    """Whether a path leads to a value in this body, or to a member that one of its objects
    lacks."""
    *above, last = steps_of(path)
    for step in above:
        inner = reach(body, (step,))
        if inner is body:
            return False
        body = inner
    return isinstance(body, dict) or (isinstance(last, int) and last < len(body))


def recorded_answers(protocol):
    for exchange in recorded(protocol):
        if exchange["status"] < 400 and "response" in exchange:
            yield exchange["id"], exchange["response"]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_every_path_exists_in_the_upstreams_answer(source, target):
    count = 0
    for key, body in recorded_answers(source):
        try:
            done = weft.translate_response(body, source, target)
        except WeftError:
            continue
        paths = {loss.path for loss in done.losses if loss.path}
        assert {path for path in paths if not leads(body, path)} == set(), key
        count += len(paths)
    assert count > 0


def translated_streams(source, target):
    """Each recorded stream with a complete answer, translated, by its id."""
    for exchange in recorded(source):
        if exchange["status"] >= 400 or not exchange.get("sse"):
            continue
        stream = weft.StreamTranslator(source, target)
        stream.feed(exchange["sse"].encode())
        stream.close()
        yield exchange["id"], stream


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_every_path_of_a_stream_exists_in_its_answer(source, target):
    for key, stream in translated_streams(source, target):
        whole = CODECS[source].encode_response(stream.response, 0).body
        paths = {loss.path for loss in stream.losses if loss.path}
        assert {path for path in paths if not leads(whole, path)} == set(), key


ANSWER_MEMBERS = {
    "anthropic": ("content", "stop_reason", "stop_sequence"),
    "openai-chat": ("choices",),
    "openai-responses": ("output", "status", "incomplete_details"),
    "gemini": ("candidates", "promptFeedback"),
}
"""The members of the answer itself, without its envelope."""


def without_empty(value):
    """A value without null and empty members, which mean the same as absent ones."""
    if isinstance(value, dict):
        inner = {key: without_empty(item) for key, item in value.items()}
        return {key: item for key, item in inner.items() if item not in (None, "", [], {})}
    return [without_empty(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_differences_in_a_round_tripped_answer_are_named(source, target):
    failures = {}
    for key, body in recorded_answers(source):
        try:
            out = weft.translate_response(body, source, target)
        except WeftError:
            continue
        between = orjson.loads(orjson.dumps(out.body))
        round_trip = weft.translate_response(between, target, source)
        ours, theirs = (
            without_empty(
                {
                    name: texts
                    for name, texts in SAME[source](whole).items()
                    if name in ANSWER_MEMBERS[source]
                }
            )
            for whole in (body, orjson.loads(orjson.dumps(round_trip.body)))
        )
        losses = [(caller_path(loss.path, source, {}), loss.code) for loss in out.losses]
        report = Report(ours, losses, between, [loss.path for loss in round_trip.losses])
        unreported = [d.path for d in differences(ours, theirs) if not report.names(d, {}, {})]
        if unreported:
            failures[key] = unreported
    assert failures == {}


BLOCKS = {
    "anthropic": (
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "c",
            "content": [
                {"type": "text", "text": "a", "citations": [{"type": "page_location"}]},
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            ],
            "stop_reason": "pause_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        },
        {"content[0].citations", "content[1]", "stop_reason"},
    ),
    "openai-responses": (
        {
            "id": "r",
            "object": "response",
            "model": "g",
            "status": "completed",
            "output": [
                {"type": "web_search_call", "id": "w", "status": "completed"},
                {
                    "type": "message",
                    "id": "m",
                    "role": "assistant",
                    "status": "completed",
                    "content": [
                        {"type": "output_text", "text": "a", "annotations": []},
                        {"type": "output_text", "text": "b", "annotations": [{"type": "x"}]},
                    ],
                },
            ],
        },
        {"output[0]", "output[1].content[1].annotations"},
    ),
    "gemini": (
        {
            "candidates": [
                {
                    "content": {
                        "role": "model",
                        "parts": [{"text": "a"}, {"executableCode": {"code": "1"}}],
                    },
                    "finishReason": "OTHER",
                    "groundingMetadata": {"webSearchQueries": ["q"]},
                }
            ],
            "modelVersion": "g",
        },
        {
            "candidates[0].content.parts[1]",
            "candidates[0].finishReason",
            "candidates[0].groundingMetadata",
        },
    ),
    "openai-chat": (
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "g",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {
                        "role": "assistant",
                        "content": "a",
                        "annotations": [{"type": "url_citation"}],
                        "tool_calls": [
                            {
                                "id": "t",
                                "type": "function",
                                "function": {"name": "f", "arguments": "[1]"},
                            }
                        ],
                    },
                }
            ],
        },
        {"choices[0].message.annotations", "choices[0].message.tool_calls[0].function.arguments"},
    ),
}


@pytest.mark.parametrize(
    ("source", "target"),
    [(a, b) for a, b in PAIRS if (a, b) != ("openai-chat", "openai-responses")],
)
def test_a_loss_of_meaning_uses_the_upstreams_paths(source, target):
    body, paths = BLOCKS[source]
    done = weft.translate_response(body, source, target)
    reported = {loss.path for loss in done.losses if loss.level != "form"}
    assert paths <= reported


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_stream_reports_each_unsupported_event_kind_once(source, target):
    for key, stream in translated_streams(source, target):
        events = [loss.detail for loss in stream.losses if loss.code == "vendor_event_dropped"]
        assert len(events) == len(set(events)), key
        assert not TOLD & set(events), key


TOLD = {f"response.{name}" for name in ("created", "completed", "output_text.delta")}
