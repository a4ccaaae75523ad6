"""Unusual bodies round-trip unchanged, or are refused with a path."""

import orjson
import pytest

import weft
from sdk_types import REQUESTS, faults

A, C, R, G = "anthropic", "openai-chat", "openai-responses", "gemini"
WIRES = (A, C, R, G)
USER = {"role": "user", "content": "hi"}
NO_RESULT = "no result was recorded for this call"


def claude(*messages, **members):
    return A, {"model": "m", "max_tokens": 64, "messages": [USER, *messages], **members}


def chat(*messages, **members):
    return C, {"model": "m", "messages": [USER, *messages], **members}


def responses(*items, **members):
    return R, {"model": "m", "input": [USER, *items], **members}


def gemini(*parts, answers=(), **members):
    contents = [{"role": "user", "parts": [{"text": "hi"}]}]
    contents += [{"role": "model", "parts": [*parts]}] if parts else []
    contents += [{"role": "user", "parts": [*answers]}] if answers else []
    return G, {"contents": contents, **members}


def called(kind="function", **members):
    call = {"id": "x", "function": {"name": "f", "arguments": "{}"}, **members}
    return {"role": "assistant", "content": None, "tool_calls": [{**call, "type": kind}]}


ANSWER = {"role": "tool", "tool_call_id": "x", "content": "done"}
CALL = {"functionCall": {"name": "f", "args": {}}}
RESPONSE = {"functionResponse": {"name": "f", "response": {"output": "done"}}}
SAME = [
    claude(tools=[]),  # Claude Code's requests for a title
    claude(tools=None),
    claude(),
    chat(tools=[]),
    responses(tools=[]),
    responses(reasoning={}),
    chat(called("new"), ANSWER),
    chat(called(id=""), {**ANSWER, "tool_call_id": ""}),
    gemini({"functionCall": {**CALL["functionCall"], "id": ""}}, answers=[RESPONSE]),
    gemini({"functionCall": {**CALL["functionCall"], "id": None}}, answers=[RESPONSE]),
    gemini(CALL, answers=[{"functionResponse": {**RESPONSE["functionResponse"], "id": ""}}]),
    gemini(CALL, answers=[{"functionResponse": {**RESPONSE["functionResponse"], "name": ""}}]),
    (R, {"model": "m", "instructions": "be brief"}),
    claude(
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "x", "name": "f", "input": {}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "x", "content": "a", "is_error": None}
            ],
        },
    ),
    gemini(CALL, answers=[{"functionResponse": {"name": "f", "response": None}}]),
    gemini({"text": "yes", "id": 0, "item": "new", "displayName": ""}),
    gemini({**CALL, "id": "part"}, answers=[{**RESPONSE, "id": "part"}]),
]


@pytest.mark.parametrize(("source", "body"), SAME)
def test_an_unusual_body_round_trips(source, body):
    for target in WIRES:
        translated = weft.translate(body, source, target, model="m")
        round_trip = weft.translate(
            translated.body, target, source, model="m", sidecar=translated.sidecar
        )
        assert round_trip.body == body, target


FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "new": 1}}
FAILED = {"type": "tool_result", "tool_use_id": "x", "content": NO_RESULT, "is_error": True}
USE = {"type": "tool_use", "id": "x", "name": "f", "input": {}}
EMPTY = {"role": "assistant", "content": None, "tool_calls": [called()["tool_calls"][0]]}
EMPTY["tool_calls"] = [{**EMPTY["tool_calls"][0], "function": {"name": "f", "arguments": ""}}]
OLDER = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "[1]"}}
TOOL = {"type": "function", "function": {"name": "f"}}
REPORTED = [
    (claude(tools=[]), C, "tools"),
    (claude(tools=[]), R, "tools"),
    (responses(reasoning={}), C, "reasoning"),
    (chat(response_format=FORMAT), R, "response_format.json_schema.new"),
    (
        claude({"role": "assistant", "content": [USE]}, {"role": "user", "content": [FAILED]}),
        C,
        "messages[2].content[0]",
    ),
    (chat(EMPTY, ANSWER), A, "messages[1].tool_calls[0].function.arguments"),
    (chat(OLDER), A, "messages[1].function_call.arguments"),
    (chat(called(id=""), {**ANSWER, "tool_call_id": ""}), R, "messages[1].tool_calls[0]"),
    (gemini({"functionCall": {"name": "f"}}, answers=[RESPONSE]), C, "contents[1].parts[0]"),
    (chat(called("new"), ANSWER), R, "messages[1].tool_calls[0].type"),
    (gemini(tools=[]), C, "tools"),
    ((G, {"contents": [{"parts": [{"text": "hi"}]}]}), C, "contents[0].role"),
    (chat(response_format={**FORMAT, "new": 1}), R, "response_format.new"),
    (chat({"role": "assistant", "content": None}, USER), R, "messages[1]"),
    (chat(tools=[TOOL]), R, "tools[0]"),
    (chat(tools=[TOOL]), A, "tools[0]"),
    (claude(tools=[{"name": "f", "input_schema": {"properties": {}}}]), R, "tools[0].input_schema"),
]


@pytest.mark.parametrize(("source_and_body", "target", "path"), REPORTED)
def test_losses_of_an_unusual_body_are_reported(source_and_body, target, path):
    source, body = source_and_body
    assert path in [loss.path for loss in weft.translate(body, source, target, model="m").losses]


FUNCTION = {"name": "f", "parameters": [None]}
REFUSED = [
    (claude(tools=[{"name": "f", "input_schema": False}]), "tools[0].input_schema"),
    (claude(tools=[{"name": "f", "input_schema": {}, "strict": 1}]), "tools[0].strict"),
    (claude(tools=[{"name": "f", "description": 1}]), "tools[0].description"),
    (chat(tools=[{"type": "function", "function": FUNCTION}]), "tools[0].function.parameters"),
    (chat(tools=[{**TOOL, "type": 0}]), "tools[0].type"),
    (chat(called(kind={}), ANSWER), "messages[1].tool_calls[0].type"),
    (responses(tools=[{"type": "function", **FUNCTION}]), "tools[0].parameters"),
    (
        responses(text={"format": {"type": "json_schema", "name": {}, "schema": {}}}),
        "text.format.name",
    ),
    (
        gemini(tools=[{"functionDeclarations": [{"name": "f", "parametersJsonSchema": ""}]}]),
        "tools[0].functionDeclarations[0].parametersJsonSchema",
    ),
]


@pytest.mark.parametrize(("source_and_body", "path"), REFUSED)
def test_a_wrong_type_is_refused_with_its_path(source_and_body, path):
    source, body = source_and_body
    for target in WIRES:
        with pytest.raises(weft.Refused) as refused:
            weft.translate(body, source, target, model="m")
        assert refused.value.param == path


def answered(part):
    response = {"name": "f", "response": {"output": "done"}, "parts": [part]}
    return gemini(CALL, answers=[{"functionResponse": response}])


def put_out(part):
    call = {"type": "function_call", "call_id": "x", "name": "f", "arguments": "{}"}
    return responses(call, {"type": "function_call_output", "call_id": "x", "output": [part]})


NESTED = [
    answered({"inlineData": {"mimeType": "audio/wav", "data": "AA=="}}),
    answered({"inlineData": {"mimeType": "image/heic", "data": "AA=="}}),
    answered({"inlineData": {"mimeType": "video/mp4", "data": "AA=="}}),
    answered({"new": 1}),
    put_out({"type": "new"}),
    put_out({"type": "input_image", "file_id": "file_1", "detail": "auto"}),
    put_out({"type": "input_file", "file_data": "AA==", "filename": "a.doc"}),
]


@pytest.mark.parametrize(("source", "body"), NESTED)
def test_a_result_has_only_what_its_target_supports(source, body):
    for target in (wire for wire in WIRES if wire != source):
        translated = weft.translate(body, source, target, model="m")
        assert faults(REQUESTS, target, translated.body) == []
        assert "file_1" not in str(translated.body)
        round_trip = weft.translate(
            translated.body, target, source, model="m", sidecar=translated.sidecar
        )
        assert round_trip.body == body, target


@pytest.mark.parametrize("target", WIRES)
def test_a_stream_without_a_stop_reason_ends_normally(target):
    message = {"id": "i", "type": "message", "role": "assistant", "model": "m", "content": []}
    usage = {"input_tokens": 1, "output_tokens": 1}
    texts = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}},
        {"type": "message_delta", "delta": {"stop_reason": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    translator = weft.StreamTranslator(A, target)
    data = b"".join(b"data: %s\n\n" % orjson.dumps(event) for event in texts)
    reader = weft.StreamTranslator(target, target)
    reader.feed(translator.feed(data) + translator.close())
    reader.close()
    assert (reader.ended, reader.failed) == (True, False)
