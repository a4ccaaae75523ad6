"""How real servers write answers: Gemini's streamed arguments, enums as numbers, filtered answers
without a message, JSON values for text, and several answers to one request."""

import json

import orjson
import pytest

import weft
from fault_upstream import PROTOCOLS, sse
from weft.codec import CODECS, decode_answer
from weft.errors import Refused
from weft.model import ToolCall

A, C, R, G = PROTOCOLS


def translate(data, source, target, cut=None):
    translator = weft.StreamTranslator(source, target)
    size = cut or len(data)
    sent = b"".join(
        translator.feed(data[start : start + size]) for start in range(0, len(data), size)
    )
    return sent + translator.close(), translator


def calls_of(response):
    return [
        (block.name, json.loads(block.arguments or "{}"))
        for block in response.message.blocks
        if isinstance(block, ToolCall)
    ]


# Gemini: arguments in pieces


def gemini(*parts, reason=None, **members):
    candidate = {"content": {"role": "model", "parts": list(parts)}}
    if reason is not None:
        candidate["finishReason"] = reason
    return {"candidates": [candidate], "responseId": "r1", "modelVersion": "m", **members}


def call(name=None, *args, more=True, **members):
    function = {} if name is None else {"name": name}
    if args:
        function["partialArgs"] = list(args)
    if more:
        function["willContinue"] = True
    return {"functionCall": {**function, **members}}


def arg(path, more=None, **value):
    return {"jsonPath": path, **value, **({} if more is None else {"willContinue": more})}


END = {"functionCall": {}}


def streamed(*parts, reason="STOP"):
    frames = [gemini(part) for part in parts]
    return b"".join(map(sse, [*frames, gemini({"text": ""}, reason=reason)]))


STREAMED_CALLS = {
    "a string in three pieces": (
        [
            call("f"),
            call(None, arg("$.a", more=True, stringValue="Bo")),
            call(None, arg("$.a", more=True, stringValue="st")),
            call(None, arg("$.a", stringValue="on")),
            END,
        ],
        [("f", {"a": "Boston"})],
    ),
    "all kinds of values": (
        [
            call("f"),
            call(
                None,
                arg("$.i", numberValue=50),
                arg("$.f", numberValue=0.5),
                arg("$.t", boolValue=True),
                arg("$.u", boolValue=False),
                arg("$.n", nullValue=None),
                arg("$.o", nullValue="NULL_VALUE"),
                arg("$.e", stringValue=""),
                arg("$.z", numberValue=0),
            ),
            END,
        ],
        [("f", {"i": 50, "f": 0.5, "t": True, "u": False, "n": None, "o": None, "e": "", "z": 0})],
    ),
    "nested objects and lists": (
        [
            call("f"),
            call(None, arg("$.r.items[0].name", more=True, stringValue="x")),
            call(None, arg("$.r.items[0].name", stringValue="")),
            call(),
            call(None, arg("$.r.items[1].name", stringValue="y")),
            call(None, arg("$.r.steps[0]", stringValue="a"), arg("$.r.steps[1]", numberValue=2)),
            call(None, arg("$.r.m[0][1]", stringValue="b")),
            END,
        ],
        [
            (
                "f",
                {
                    "r": {
                        "items": [{"name": "x"}, {"name": "y"}],
                        "steps": ["a", 2],
                        "m": [[None, "b"]],
                    }
                },
            )
        ],
    ),
    "names in brackets": (
        [
            call("f"),
            call(None, arg("$['a b']['c.d']", stringValue="1"), arg('$["e\\"f"]', stringValue="2")),
            call(None, arg("$['it\\'s']", stringValue="3"), arg("$['\\u00e9']", stringValue="4")),
            call(None, arg("$.über-name", stringValue="5"), arg("$['[0]']", stringValue="6")),
            END,
        ],
        [
            (
                "f",
                {
                    "a b": {"c.d": "1"},
                    'e"f': "2",
                    "it's": "3",
                    "é": "4",
                    "über-name": "5",
                    "[0]": "6",
                },
            )
        ],
    ),
    "the last part has values too": (
        [call("f"), call(None, arg("$.a", stringValue="x"), more=False)],
        [("f", {"a": "x"})],
    ),
    "everything in one part": (
        [call("f", arg("$.a", stringValue="x"), arg("$.b", numberValue=1), more=False)],
        [("f", {"a": "x", "b": 1})],
    ),
    "the name comes with the first value": (
        [
            call("f", arg("$.a", stringValue="x", more=True)),
            call(None, arg("$.a", stringValue="y")),
            END,
        ],
        [("f", {"a": "xy"})],
    ),
    "a value without its mark of continuation": (
        [
            call("f"),
            call(None, arg("$.a", stringValue="San ")),
            call(None, arg("$.a", stringValue="F")),
            END,
        ],
        [("f", {"a": "San F"})],
    ),
    "willContinue is false": (
        [
            call("f"),
            call(None, arg("$.a", stringValue="x", more=False)),
            call(more=False, willContinue=False),
        ],
        [("f", {"a": "x"})],
    ),
    "no end": ([call("f"), call(None, arg("$.a", stringValue="x"))], [("f", {"a": "x"})]),
    "no arguments": ([call("f"), END], [("f", {})]),
    "two calls of one function": (
        [
            call("f"),
            call(None, arg("$.a", stringValue="1")),
            END,
            call("f"),
            call(None, arg("$.a", stringValue="2")),
            END,
        ],
        [("f", {"a": "1"}), ("f", {"a": "2"})],
    ),
    "a whole call before and after": (
        [
            {"functionCall": {"name": "g", "args": {"b": 1}}},
            call("f"),
            call(None, arg("$.a", stringValue="1")),
            END,
            {"functionCall": {"name": "h"}},
        ],
        [("g", {"b": 1}), ("f", {"a": "1"}), ("h", {})],
    ),
    "the name is repeated": (
        [
            call("f"),
            call("f", arg("$.a", stringValue="1", more=True)),
            call("f", arg("$.a", stringValue="2"), more=False),
        ],
        [("f", {"a": "12"})],
    ),
    "two calls at once, told apart by their ids": (
        [
            call("f", id="c1"),
            call("g", id="c2"),
            call(None, arg("$.a", stringValue="1"), id="c1"),
            call(None, arg("$.a", stringValue="2"), id="c2"),
            call(None, more=False, id="c1"),
            call(None, more=False, id="c2"),
        ],
        [("f", {"a": "1"}), ("g", {"a": "2"})],
    ),
    "text between the pieces": (
        [call("f"), {"text": "so"}, call(None, arg("$.a", stringValue="1")), END],
        [("f", {"a": "1"})],
    ),
    "names with underscores": (
        [
            {"function_call": {"name": "f", "will_continue": True}},
            {
                "function_call": {
                    "partial_args": [{"json_path": "$.a_b", "string_value": "1"}],
                    "will_continue": True,
                }
            },
            {"function_call": {}},
        ],
        [("f", {"a_b": "1"})],
    ),
    "an end without a call": ([{"text": "hi"}, END], []),
    "a list with a gap": (
        [call("f"), call(None, arg("$.a[2]", stringValue="x")), END],
        [("f", {"a": [None, None, "x"]})],
    ),
}


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("name", STREAMED_CALLS)
def test_arguments_in_pieces_become_one_call(name, target):
    parts, expected = STREAMED_CALLS[name]
    data = streamed(*parts)
    sent, translator = translate(data, G, target)
    assert not translator.failed
    assert calls_of(translator.response) == expected
    assert calls_of(decode_answer(CODECS[target], sent)) == expected
    assert translate(data, G, target, cut=1)[0] == sent
    if target == G:
        assert sent == data


@pytest.mark.parametrize("target", [A, C, R])
def test_a_call_is_never_complete_before_its_arguments(target):
    parts, _ = STREAMED_CALLS["a string in three pieces"]
    frames = [sse(gemini(part)) for part in parts]
    translator = weft.StreamTranslator(G, target)
    early = b"".join(translator.feed(frame) for frame in frames[:-1])
    for end in (b"content_block_stop", b"output_item.done", b"{}}", b'"{}"'):
        assert end not in early
    sent = early + translator.close()
    assert translator.failed
    assert b"content_block_stop" not in sent


def test_the_signature_of_the_first_piece_is_kept():
    first = {**call("f"), "thoughtSignature": "s1"}
    _, translator = translate(streamed(first, END), G, C)
    (block,) = translator.response.message.blocks
    assert block.ext["gemini"]["thoughtSignature"] == "s1"


@pytest.mark.parametrize("target", [A, C, R])
def test_arguments_that_the_limit_cut_off_stay_cut_off(target):
    parts = [call("f"), call(None, arg("$.a.b", more=True, stringValue='x"'))]
    _, translator = translate(streamed(*parts, reason="MAX_TOKENS"), G, target)
    assert not translator.failed
    (block,) = translator.response.message.blocks
    assert block.arguments == '{"a":{"b":"x\\"'
    assert translator.response.stop.kind == "length"


LOST_PLACES = {
    "no path": [call("f"), call(None, {"stringValue": "x"}), END],
    "no name": [call(None, arg("$.a", stringValue="x")), END],
    "a wildcard": [call("f"), call(None, arg("$..a", stringValue="x")), END],
    "a negative index": [call("f"), call(None, arg("$.a[-1]", stringValue="x")), END],
    "the root": [call("f"), call(None, arg("$", stringValue="x")), END],
    "a huge index": [call("f"), call(None, arg("$.a[99999999999]", stringValue="x")), END],
    "a path through text": [
        call("f"),
        call(None, arg("$.a", stringValue="x"), arg("$.a.b", stringValue="y")),
        END,
    ],
    "a path of another type": [
        call("f"),
        call(None, arg("$.a[0]", stringValue="x"), arg("$.a.b", stringValue="y")),
        END,
    ],
    "a very deep path": [call("f"), call(None, arg("$" + ".a" * 500, stringValue="x")), END],
}


@pytest.mark.parametrize("target", [A, C, R])
@pytest.mark.parametrize("name", LOST_PLACES)
def test_an_argument_without_a_place_fails_the_answer(name, target):
    sent, translator = translate(streamed(*LOST_PLACES[name]), G, target)
    assert translator.failed
    assert b'"error"' in sent


def test_a_body_with_arguments_in_pieces_is_read():
    parts, expected = STREAMED_CALLS["nested objects and lists"]
    body = gemini(*parts, reason="STOP")
    for target in PROTOCOLS:
        done = weft.translate_response(body, G, target)
        assert calls_of(CODECS[target].decode_response(done.body)) == expected
        assert "value_retyped" in {loss.code for loss in done.losses}


# Gemini: enums as numbers

REASONS = [
    (1, True, "end"),
    (2, True, "length"),
    (3, True, "filter"),
    (4, True, "filter"),
    (5, True, "other"),
    (6, True, "filter"),
    (7, True, "filter"),
    (8, True, "filter"),
    (10, True, "other"),  # MODEL_ARMOR
    (1, False, "end"),
    (2, False, "length"),
    (6, False, "filter"),  # LANGUAGE
    (9, False, "filter"),  # SPII
    (99, True, "other"),
]
VERTEX = {"usageMetadata": {"promptTokenCount": 1, "trafficType": 1}, "createTime": "2026-01-01"}


@pytest.mark.parametrize(("number", "is_vertex", "kind"), REASONS)
def test_a_finish_reason_may_be_a_number(number, is_vertex, kind):
    body = gemini({"text": "hi"}, reason=number, **(VERTEX if is_vertex else {}))
    assert CODECS[G].decode_response(body).stop.kind == kind
    assert weft.translate_response(body, G, G).body == body
    for target in (A, C, R):
        done = weft.translate_response(body, G, target)
        assert "finishReason" not in {loss.detail for loss in done.losses}
        frames = [{**body, "candidates": [{"content": {"parts": [{"text": "hi"}]}}]}, body]
        sent, translator = translate(b"".join(map(sse, frames)), G, target)
        assert not translator.failed
        assert translator.response.stop.kind == kind
        assert (
            CODECS[target].decode_response(done.body).stop
            == decode_answer(CODECS[target], sent).stop
        )


@pytest.mark.parametrize(("number", "is_vertex"), [(9, True), (10, False)])
def test_the_number_of_a_failure_is_a_failure(number, is_vertex):
    body = gemini({"text": "hi"}, reason=number, **(VERTEX if is_vertex else {}))
    with pytest.raises(weft.UpstreamFailed):
        weft.translate_response(body, G, C)
    assert translate(sse(body), G, C)[1].failed


@pytest.mark.parametrize("reason", [0, "FINISH_REASON_UNSPECIFIED"])
def test_an_unspecified_reason_does_not_end_a_stream(reason):
    frames = sse(gemini({"text": "hi"}, reason=reason))
    assert translate(frames, G, C)[1].failed
    assert not translate(frames + sse(gemini({"text": "!"}, reason=1)), G, C)[1].failed


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 77])
def test_a_block_reason_may_be_a_number(number):
    body = {"promptFeedback": {"blockReason": number}, "modelVersion": "m"}
    assert CODECS[G].decode_response(body).stop.kind == "filter"
    assert weft.translate_response(body, G, G).body == body
    assert (
        weft.translate_response(body, G, C).body["choices"][0]["finish_reason"] == "content_filter"
    )
    sent, translator = translate(sse(body), G, C)
    assert not translator.failed
    assert b"content_filter" in sent


NUMBERED_REQUEST = {
    "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
    "tools": [
        {
            "functionDeclarations": [
                {
                    "name": "f",
                    "parameters": {
                        "type": 6,
                        "properties": {
                            "a": {"type": 1},
                            "b": {"type": 5, "items": {"type": 3}, "nullable": True},
                            "c": {"anyOf": [{"type": 2}, {"type": 4}]},
                        },
                    },
                }
            ]
        }
    ],
    "toolConfig": {"functionCallingConfig": {"mode": 2, "allowedFunctionNames": ["f"]}},
}


@pytest.mark.parametrize("target", [A, C, R])
def test_enums_in_a_request_may_be_numbers(target):
    named = json.loads(
        json.dumps(NUMBERED_REQUEST)
        .replace('"type": 6', '"type": "OBJECT"')
        .replace('"type": 1', '"type": "STRING"')
        .replace('"type": 5', '"type": "ARRAY"')
        .replace('"type": 3', '"type": "INTEGER"')
        .replace('"type": 2', '"type": "NUMBER"')
        .replace('"type": 4', '"type": "BOOLEAN"')
        .replace('"mode": 2', '"mode": "ANY"')
    )
    assert weft.translate(NUMBERED_REQUEST, G, G, model="gemini-2.5-flash").body == NUMBERED_REQUEST
    numbered = weft.translate(NUMBERED_REQUEST, G, target, model="m")
    expected = weft.translate(named, G, target, model="m")
    assert numbered.body == expected.body
    assert (
        weft.translate(numbered.body, target, G, model="m", sidecar=numbered.sidecar).body
        == NUMBERED_REQUEST
    )


# Chat: no message, and other values than text

FILTERED = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "content_filter",
            "content_filter_results": {"hate": {"filtered": True, "severity": "high"}},
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


def with_choice(**members):
    return {**FILTERED, "choices": [{**FILTERED["choices"][0], **members}]}


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("body", [FILTERED, with_choice(message=None)], ids=["absent", "null"])
def test_a_filtered_answer_needs_no_message(body, target):
    done = weft.translate_response(body, C, target)
    if target == C:
        assert (done.body, done.losses) == (body, [])
    response = CODECS[target].decode_response(done.body)
    assert response.message.text == ""
    assert response.stop.kind in ("filter", "refusal")


@pytest.mark.parametrize("target", PROTOCOLS)
def test_a_filtered_stream_needs_no_delta(target):
    frames = [
        {**FILTERED, "choices": [], "prompt_filter_results": []},
        {**FILTERED, "object": "chat.completion.chunk"},
        "[DONE]",
    ]
    sent, translator = translate(b"".join(map(sse, frames)), C, target)
    assert not translator.failed
    assert decode_answer(CODECS[target], sent).stop.kind in ("filter", "refusal")


def test_a_choice_without_a_message_and_a_reason_is_still_no_answer():
    for reason in (None, "stop"):
        with pytest.raises(Refused, match="message"):
            weft.translate_response(with_choice(finish_reason=reason), C, A)


VALUES = [
    {"title": "Apples", "author": None},
    {},
    [{"name": "x"}, {"name": "y"}],
    [1, 2],
    42,
    1.5,
    True,
    False,
]


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("value", VALUES, ids=str)
def test_a_json_value_for_content_is_its_text(value, target):
    message = {"role": "assistant", "content": value, "refusal": None}
    body = with_choice(message=message, finish_reason="stop")
    done = weft.translate_response(body, C, target)
    if target == C:
        assert (done.body, done.losses) == (body, [])
    else:
        assert ("value_retyped", "choices[0].message.content") in {
            (loss.code, loss.path) for loss in done.losses
        }
    text = CODECS[target].decode_response(done.body).message.text
    assert orjson.loads(text) == value
    chunk = {**FILTERED, "choices": [{"index": 0, "delta": {"content": value}}]}
    end = {**FILTERED, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    _, translator = translate(sse(chunk) + sse(end), C, target)
    assert not translator.failed
    assert orjson.loads(translator.response.message.text) == value


# Several answers


def chat_choice(number, text, reason="stop"):
    return {
        "index": number,
        "message": {"role": "assistant", "content": text},
        "finish_reason": reason,
    }


def chat_body(*choices):
    return {**FILTERED, "choices": list(choices)}


TWO_CHAT = chat_body(chat_choice(0, "a"), chat_choice(1, "b", "length"))
TWO_GEMINI = gemini({"text": "a"}, reason="STOP") | {
    "candidates": [
        {
            "content": {"role": "model", "parts": [{"text": "a"}]},
            "finishReason": "STOP",
            "index": 0,
        },
        {
            "content": {
                "role": "model",
                "parts": [{"text": "b"}, {"functionCall": {"name": "f", "args": {"x": 1}}}],
            },
            "finishReason": "MAX_TOKENS",
            "index": 1,
        },
    ],
}


def chat_chunks(order):
    def chunk(number, delta, reason=None):
        choice = {"index": number, "delta": delta, "finish_reason": reason}
        return sse({**FILTERED, "object": "chat.completion.chunk", "choices": [choice]})

    frames = {
        0: [chunk(0, {"content": "a"}), chunk(0, {}, "stop")],
        1: [chunk(1, {"content": "b"}), chunk(1, {}, "length")],
    }
    return b"".join(frames[number].pop(0) for number in order)


def gemini_frames():
    first, second = TWO_GEMINI["candidates"]
    return sse({**TWO_GEMINI, "candidates": [first]}) + sse({**TWO_GEMINI, "candidates": [second]})


SEVERAL = {
    "chat body": (C, TWO_CHAT),
    "gemini body": (G, TWO_GEMINI),
    "chat stream": (C, chat_chunks([0, 1, 0, 1])),
    "chat stream, one after the other": (C, chat_chunks([0, 0, 1, 1])),
    "chat stream, the second first": (C, chat_chunks([1, 1, 0, 0])),
    "gemini stream": (G, gemini_frames()),
    "gemini stream, both in one frame": (G, sse(TWO_GEMINI)),
}


def translated(data, source, target):
    """The translation of a body or a stream, and what the two answers are in it."""
    if isinstance(data, dict):
        done = weft.translate_response(data, source, target)
        return done.body, done.losses, CODECS[target].decode_response(done.body)
    sent, translator = translate(data, source, target)
    assert not translator.failed
    assert translate(data, source, target, cut=1)[0] == sent
    return sent, translator.losses, decode_answer(CODECS[target], sent)


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("name", SEVERAL)
def test_several_answers_are_kept_or_reported(name, target):
    source, data = SEVERAL[name]
    sent, losses, response = translated(data, source, target)
    assert response.message.text == "a"
    dropped = [(loss.path, loss.level) for loss in losses if loss.code == "alternative_dropped"]
    if target in (A, R):
        at = "choices[1]" if source == C else "candidates[1]"
        assert [path for path, _ in dropped] == [at]
        assert "form" not in [level for _, level in dropped]
        return
    assert not dropped
    ((number, second),) = response.alternatives
    assert (number, second.message.text, second.stop.kind) == (1, "b", "length")
    if source == G:
        assert calls_of(second) == [("f", {"x": 1})]
    if source == target:
        assert sent == data


@pytest.mark.parametrize(
    ("source", "body"),
    [
        (C, chat_body(chat_choice(1, "b"), chat_choice(0, "a"))),
        (C, chat_body(chat_choice(2, "c"), chat_choice(1, "b"), chat_choice(0, "a"))),
        (G, {**TWO_GEMINI, "candidates": TWO_GEMINI["candidates"][::-1]}),
    ],
)
def test_answers_in_another_order_keep_it(source, body):
    done = weft.translate_response(body, source, source)
    assert (done.body, done.losses) == (body, [])
    assert CODECS[source].decode_response(body).message.text == "a"


def test_an_unreadable_second_answer_does_not_lose_the_first():
    body = chat_body(
        chat_choice(0, "a"), {"index": 1, "message": "?"}, chat_choice(2, "c", "error")
    )
    assert weft.translate_response(body, C, C).body == body
    done = weft.translate_response(body, C, G)
    assert CODECS[G].decode_response(done.body).message.text == "a"
    assert {"choices[1]", "choices[2]"} <= {loss.path for loss in done.losses}


# Chat: a message for a delta, thinking in details, split characters


def chat_frames(*choices):
    return b"".join(sse({**FILTERED, "choices": [choice]}) for choice in choices)


def message(text, reason=None, **members):
    return {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": reason,
        **members,
    }


MESSAGES = {
    "one chunk": [message("hi you", "stop")],
    "pieces": [message("hi"), message(" you"), message("", "stop")],
    "the text so far in each": [message("hi"), message("hi you"), message("hi you", "stop")],
    "beside an empty delta": [
        message("hi you", "stop", delta={"role": "assistant", "content": ""})
    ],
    "beside the deltas (Perplexity)": [
        message("hi", delta={"content": "hi"}),
        message("hi you", "stop", delta={"content": " you"}),
    ],
}


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_in_a_chunk_is_read_if_there_are_no_deltas(name, target):
    data = chat_frames(*MESSAGES[name]) + sse("[DONE]")
    sent, translator = translate(data, C, target)
    assert not translator.failed
    assert translator.response.message.text == "hi you"
    if target == C:
        assert sent == data
    else:
        assert decode_answer(CODECS[target], sent).message.text == "hi you"


DETAILS = [
    {"type": "reasoning.text", "text": "hm", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.summary", "summary": " so", "index": 1},
    {"type": "reasoning.encrypted", "data": "xx", "index": 2},
]


@pytest.mark.parametrize("target", PROTOCOLS)
def test_thinking_may_be_in_its_details_only(target):
    answer = {"role": "assistant", "content": "hi", "reasoning_details": DETAILS}
    body = with_choice(message=answer, finish_reason="stop")
    done = weft.translate_response(body, C, target)
    frames = [{"index": 0, "delta": {"reasoning_details": [entry]}} for entry in DETAILS]
    end = {"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}
    sent, translator = translate(chat_frames(*frames, end), C, target)
    assert not translator.failed
    if target == C:
        assert done.body == body
        assert (
            CODECS[C].encode_response(translator.response, 0).body["choices"][0]["message"]
            == answer
        )
    else:
        assert "hm so" in json.dumps(done.body)
        thinking = [
            b for b in decode_answer(CODECS[target], sent).message.blocks if hasattr(b, "signature")
        ]
        assert [block.text for block in thinking] == ["hm so"]


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("cut", [None, 1, 13])
def test_a_character_that_is_split_over_two_frames_is_joined(target, cut):
    whole = "hi \U0001f600 there \\ud83d \U0001f600"
    pieces = ["hi \ud83d", "\ude00 there ", "\\ud83d ", "\ud83d", "\ude00"]
    choices = [{"index": 0, "delta": {"content": piece}} for piece in pieces]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    raw = b"".join(
        f"data: {json.dumps({**FILTERED, 'choices': [choice]})}\n\n".encode() for choice in choices
    )
    sent, translator = translate(raw, C, target, cut)
    assert not translator.failed
    assert translator.response.message.text == whole
    assert decode_answer(CODECS[target], sent).message.text == whole


def test_half_of_a_character_whose_other_half_never_comes_is_marked():
    choice = {"index": 0, "delta": {"content": "hi \ud83d"}, "finish_reason": "stop"}
    raw = f"data: {json.dumps({**FILTERED, 'choices': [choice]})}\n\n".encode()
    _, translator = translate(raw, C, A)
    assert translator.response.message.text == "hi \ufffd"
    assert not translator.failed


# Gemini: ends


GEMINI_ENDS = {
    "a reason in every frame": sse(gemini({"text": "hi "}, reason="STOP"))
    + sse(gemini({"text": "you"}, reason="STOP")),
    "[DONE] of a proxy": sse(gemini({"text": "hi you"}, reason="STOP")) + sse("[DONE]"),
    "no content in the last frame": sse(gemini({"text": "hi you"}))
    + sse({"candidates": [{"finishReason": "STOP"}]}),
}


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("name", GEMINI_ENDS)
def test_the_text_of_a_gemini_stream_is_one_block(name, target):
    data = GEMINI_ENDS[name]
    sent, translator = translate(data, G, target)
    assert not translator.failed
    assert [block.text for block in translator.response.message.blocks] == ["hi you"]
    assert translate(data, G, target, cut=1)[0] == sent
    if target == G:
        assert sent == data


def test_a_streamed_call_with_a_reason_in_every_frame_is_one_call():
    parts = [call("f"), call(None, arg("$.a", stringValue="x")), END]
    data = b"".join(sse(gemini(part, reason="STOP")) for part in parts)
    _, translator = translate(data, G, C)
    assert calls_of(translator.response) == [("f", {"a": "x"})]
    assert translator.response.stop.kind == "tool"


def test_a_gemini_stream_with_only_an_end_mark_has_failed():
    assert translate(sse(gemini({"text": "hi"})) + sse("[DONE]"), G, C)[1].failed
