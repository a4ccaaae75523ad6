"""Gemini's generateContent: requests, answers, streams and errors, and recorded traffic."""

from typing import Any

import orjson
import pytest
from google.genai import types as sdk

from corpus import recorded
from weft.catalog import load_catalog
from weft.codec import CODECS, Frame, SseParser, Target, write_frame
from weft.errors import Refused, UpstreamFailed
from weft.model import (
    ApiError,
    Audio,
    Close,
    Delta,
    End,
    Fail,
    File,
    FileRef,
    Finish,
    Fold,
    Format,
    Image,
    Inline,
    Message,
    Opaque,
    Open,
    Origin,
    Other,
    Params,
    Reasoning,
    Redacted,
    Request,
    Response,
    Start,
    Stop,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Url,
    Usage,
    fold,
)

CODEC = CODECS["gemini"]
CATALOG = load_catalog()
MODEL = "gemini-2.5-pro"


def decode(body: dict[str, Any]) -> Request:
    return CODEC.decode_request(body, MODEL)


def ask(*parts: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": list(parts)}], **members}


def rewritten(body: dict[str, Any]) -> dict[str, Any]:
    encoded = CODEC.encode_request(decode(body), Target(CATALOG.find(MODEL)))
    assert encoded.losses == []
    return encoded.body


def to_gemini(body: dict[str, Any], source: str = "anthropic", model: str = MODEL) -> Any:
    request = CODECS[source].decode_request({"model": model, **body}, None)
    return CODEC.encode_request(request, Target(CATALOG.find(model)))


def from_gemini(body: dict[str, Any], target: str = "anthropic") -> Any:
    return CODECS[target].encode_request(decode(body), Target(CATALOG.find(MODEL)))


PARTS: list[tuple[dict[str, Any], Any]] = [
    ({"text": "hi"}, Text("hi")),
    ({"text": ""}, Text("")),
    ({"text": "hm", "thought": True}, Thinking("hm")),
    ({"text": "hm", "thought": True, "thoughtSignature": "c2ln"}, Thinking("hm", "c2ln")),
    (
        {"text": "so", "thoughtSignature": "c2ln"},  # a signature of what it follows from
        Text("so", {"gemini": {"thoughtSignature": "c2ln"}}),
    ),
    (
        {"inlineData": {"mimeType": "image/png", "data": "QQ=="}},
        Image(Inline("QQ==", "image/png")),
    ),
    (
        {"inlineData": {"mimeType": "audio/wav", "data": "QQ=="}},
        Audio(Inline("QQ==", "audio/wav")),
    ),
    (
        {"inlineData": {"mimeType": "video/mp4", "data": "QQ=="}, "videoMetadata": {"fps": 1}},
        File(Inline("QQ==", "video/mp4"), ext={"gemini": {"videoMetadata": {"fps": 1}}}),
    ),
    (
        {"inlineData": {"mimeType": "application/pdf", "data": "QQ==", "displayName": "a.pdf"}},
        File(Inline("QQ==", "application/pdf"), "a.pdf"),
    ),
    (
        {"fileData": {"fileUri": "https://example.com/a.png", "mimeType": "image/png"}},
        Image(Url("https://example.com/a.png", "image/png")),
    ),
    ({"fileData": {"fileUri": "gs://b/a"}}, File(FileRef("gs://b/a"))),  # only Google opens it
    (
        {"functionCall": {"name": "f", "args": {"b": 1, "a": 2}, "id": "7"}},
        ToolCall("7", "f", '{"b":1,"a":2}'),
    ),
    ({"functionCall": {"name": "f", "id": "7"}}, ToolCall("7", "f", "")),  # no args at all
    (
        {"functionCall": {"name": "f", "args": {}}},  # no id: one from its place
        ToolCall("gemini_call_0_0", "f", "{}", ext={"gemini": {"id": None}}),
    ),
    (
        {"functionResponse": {"name": "f", "id": "7", "response": {"output": "x"}}},
        ToolResult("7", (Text("x"),), name="f", form="text"),
    ),
    (
        {"functionResponse": {"name": "f", "id": "7", "response": {"output": ""}}},
        ToolResult("7", (), name="f", form="text"),
    ),
    (
        {"functionResponse": {"name": "f", "id": "7", "response": {"result": "x"}}},
        ToolResult("7", (Text("x"),), name="f", form="text", ext={"gemini": {"item": "result"}}),
    ),
    (
        {"functionResponse": {"name": "f", "id": "7", "response": {"error": "no"}}},
        ToolResult("7", (Text("no"),), True, "f", form="text"),
    ),
    (
        {"functionResponse": {"name": "f", "id": "7", "response": {"rows": [1], "n": 2}}},
        ToolResult(
            "7", (Text('{"rows":[1],"n":2}'),), name="f", form="text", ext={"gemini": {"item": ""}}
        ),
    ),
    (
        {
            "functionResponse": {
                "name": "f",
                "id": "7",
                "response": {},
                "parts": [{"inlineData": {"mimeType": "image/png", "data": "QQ=="}}],
            }
        },
        ToolResult(
            "7",
            (Image(Inline("QQ==", "image/png")),),
            name="f",
            form="list",
            ext={"gemini": {"item": ""}},
        ),
    ),
    (
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        Opaque("gemini", {"executableCode": {"language": "PYTHON", "code": "1"}}),
    ),
    ({"video": {}}, Opaque("gemini", {"video": {}})),  # a part nobody knows yet
    ({"text": "a", "inlineData": {}}, Opaque("gemini", {"text": "a", "inlineData": {}})),
]


@pytest.mark.parametrize(("part", "block"), PARTS)
def test_a_part_round_trips(part: dict[str, Any], block: Any) -> None:
    assert decode(ask(part)).messages[0].blocks == (block,)
    assert rewritten(ask(part)) == ask(part)


BODIES: list[dict[str, Any]] = [
    ask({"text": "hi"}, systemInstruction={"parts": [{"text": "be"}], "role": "user"}),
    ask({"text": "hi"}, system_instruction={"parts": {"text": "be"}}),
    ask({"text": "hi"}, systemInstruction="be"),
    {"contents": {"parts": {"text": "hi"}}},  # one thing for a list of it, and no role
    {"contents": [{"role": "function", "parts": [{"text": "x"}]}]},
    {"contents": [{"role": "model"}, {"role": "user", "parts": []}]},
    {"contents": [{"role": "user", "parts": [{"text": "a"}], "extra": 1}]},
    ask({"function_call": {"name": "f", "args": {"snake_key": 1}}, "thought_signature": "cw=="}),
    ask({"fileData": {"file_uri": "gs://a", "mime_type": "image/png"}}),
    ask(
        {
            "functionResponse": {
                "name": "f",
                "response": {"a_b": 1},
                "parts": [{"inline_data": {"mime_type": "image/png", "data": "QQ=="}}],
            }
        }
    ),
    {"generationConfig": {"temperature": 1}},  # whether that is enough, its vendor judges
    ask({"text": "x"}, tools=[]),
    ask({"text": "x"}, tools={"function_declarations": [{"name": "f"}]}),
    ask(
        {"text": "x"},
        tools=[
            {"functionDeclarations": [{"name": "f"}, {"name": "g", "parameters": {}}]},
            {"googleSearch": {}},
            {"functionDeclarations": [{"name": "h"}], "codeExecution": {}},
        ],
    ),
    ask({"text": "x"}, generation_config={"top_k": 3.0}, safetySettings=[], labels={"a": "b"}),
    ask({"text": "x"}, cachedContent="cachedContents/1", generationConfig={}),
]


@pytest.mark.parametrize("body", BODIES)
def test_a_body_keeps_its_spelling(body: dict[str, Any]) -> None:
    assert rewritten(body) == body


def test_results_without_ids_answer_the_oldest_call_with_their_name() -> None:
    call = {"functionCall": {"name": "f", "args": {}}}
    other = {"functionCall": {"name": "g", "args": {}}}
    texts = {"functionResponse": {"name": "f", "response": {"output": "x"}}}
    body = {
        "contents": [
            {"role": "model", "parts": [call, other, call]},
            {"role": "user", "parts": [texts, texts]},
        ]
    }
    results = decode(body).messages[1].blocks
    assert [block.call_id for block in results if isinstance(block, ToolResult)] == [
        "gemini_call_0_0",
        "gemini_call_0_2",
    ]
    assert rewritten(body) == body


def test_an_edited_result_is_written_with_its_new_text() -> None:
    own = {"gemini": {"item": ""}}
    result = ToolResult("7", (Text("{broken"),), name="f", ext=own)
    request = Request(MODEL, (Message("assistant", (ToolCall("7", "f", "{}"),)),))
    request = Request(MODEL, (*request.messages, Message("tool", (result,))))
    body = CODEC.encode_request(request, Target(CATALOG.find(MODEL))).body
    answer = body["contents"][-1]["parts"][0]["functionResponse"]
    assert answer == {"name": "f", "id": "7", "response": {"output": "{broken"}}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"contents": 5}, "contents"),
    ({"contents": [1]}, "contents[0]"),
    (ask({"text": 5}), "contents[0].parts[0].text"),
    (ask({"functionCall": {"args": {}}}), "contents[0].parts[0].functionCall.name"),
    (
        ask({"functionCall": {"name": "f", "args": []}}),
        "contents[0].parts[0].functionCall.args",
    ),
    (ask({"functionResponse": 1}), "contents[0].parts[0].functionResponse"),
    (ask({"text": "x"}, systemInstruction=1), "systemInstruction"),
    (ask({"text": "x"}, generationConfig={"topK": "a"}), "generationConfig.topK"),
    (
        ask({"text": "x"}, tools=[{"functionDeclarations": [{}]}]),
        "tools[0].functionDeclarations[0].name",
    ),
]


@pytest.mark.parametrize(("body", "param"), REFUSED)
def test_a_wrong_body_is_refused_with_its_path(body: dict[str, Any], param: str) -> None:
    with pytest.raises(Refused) as caught:
        decode(body)
    assert caught.value.param == param


def test_the_model_is_required() -> None:
    with pytest.raises(Refused) as caught:
        CODEC.decode_request(ask({"text": "hi"}), None)
    assert caught.value.param == "model"


@pytest.mark.parametrize(
    ("model", "stream", "path"),
    [
        ("g", False, "/v1beta/models/g:generateContent"),
        ("g", True, "/v1beta/models/g:streamGenerateContent?alt=sse"),
        ("models/g", False, "/v1beta/models/g:generateContent"),  # as the SDK's list names it
    ],
)
def test_the_url_names_the_model(model: str, stream: bool, path: str) -> None:
    assert CODEC.request_path(model, stream) == path


CONFIGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"temperature": 1, "topP": 0.5, "topK": 3, "maxOutputTokens": 9}, {"max_tokens": 9}),
    ({"candidateCount": 2, "seed": 4, "stopSequences": ["x"]}, {"n": 2, "stop": ("x",)}),
    ({"thinkingConfig": {"thinkingBudget": 0}}, {"reasoning": Reasoning("off")}),
    ({"thinkingConfig": {"thinkingBudget": -1}}, {"reasoning": Reasoning("adaptive")}),
    (
        {"thinkingConfig": {"thinking_budget": 100, "include_thoughts": True}},
        {"reasoning": Reasoning("on", None, 100, "auto")},
    ),
    ({"responseMimeType": "application/json"}, {"format": Format("json")}),
    ({"responseMimeType": "text/plain"}, {"format": Format("text")}),
    ({"responseMimeType": "text/x.enum", "responseSchema": {}}, {"format": None}),
    ({"responseSchema": {"type": "STRING"}}, {"format": Format("schema", {"type": "string"})}),
    ({"response_json_schema": {"a": 1}}, {"format": Format("schema", {"a": 1})}),
    ({"thinkingConfig": {"thinkingLevel": "HIGH"}}, {"reasoning": Reasoning(effort="high")}),
]


@pytest.mark.parametrize(("config", "params"), CONFIGS)
def test_a_config_is_decoded_to_shared_parameters(
    config: dict[str, Any], params: dict[str, Any]
) -> None:
    read = decode(ask({"text": "x"}, generationConfig=config)).params
    assert {name: getattr(read, name) for name in params} == params


def test_a_google_schema_becomes_json_schema() -> None:
    schema = {
        "type": "OBJECT",
        "properties": {
            "type": {"type": "STRING", "nullable": True, "max_length": "5"},
            "of": {"any_of": [{"type": "INTEGER"}, {"type": "ARRAY", "items": {"type": "NUMBER"}}]},
        },
        "propertyOrdering": ["of", "type"],
        "required": ["of"],
    }
    tools = [{"functionDeclarations": [{"name": "f", "parameters": schema}]}]
    assert from_gemini(ask({"text": "x"}, tools=tools)).body["tools"][0]["input_schema"] == {
        "type": "object",
        "properties": {
            "type": {"type": ["string", "null"], "maxLength": 5},
            "of": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "number"}}]},
        },
        "required": ["of"],
    }


CHOICES: list[tuple[dict[str, Any], Any]] = [
    ({"mode": "AUTO"}, {"type": "auto"}),
    ({"mode": "ANY"}, {"type": "any"}),
    ({"mode": "NONE"}, {"type": "none"}),
    ({"mode": "any", "allowedFunctionNames": ["f"]}, {"type": "tool", "name": "f"}),
]


@pytest.mark.parametrize(("config", "choice"), CHOICES)
def test_a_tool_choice_is_translated(config: dict[str, Any], choice: Any) -> None:
    tools = [{"functionDeclarations": [{"name": "f"}]}]
    body = ask({"text": "x"}, tools=tools, toolConfig={"functionCallingConfig": config})
    encoded = from_gemini(body)
    assert encoded.body["tool_choice"] == choice
    assert not [loss for loss in encoded.losses if loss.path.startswith("toolConfig")]


def test_context_that_only_google_has_is_refused_elsewhere() -> None:
    with pytest.raises(Refused) as caught:
        from_gemini(ask({"text": "x"}, cachedContent="cachedContents/1"))
    assert caught.value.param == "cachedContent"


def test_W5_an_image_in_the_instruction_is_refused_by_the_callers_path() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "QQ=="}}
    body = ask({"text": "x"}, systemInstruction={"parts": [{"text": "a"}, image]})
    with pytest.raises(Refused) as caught:
        from_gemini(body)
    assert caught.value.param == "systemInstruction.parts[1]"
    assert "inlineData" in caught.value.message


def test_W10_leading_system_messages_become_parts_of_the_instruction() -> None:
    body = {
        "messages": [
            {"role": "system", "content": "A"},
            {"role": "developer", "content": [{"type": "text", "text": t} for t in ("B", "C")]},
            {"role": "user", "content": "hi"},
            {"role": "system", "content": "later"},
        ]
    }
    encoded = to_gemini(body, "openai-chat")
    assert encoded.body == {
        "systemInstruction": {"parts": [{"text": t} for t in "ABC"], "role": "user"},
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "user", "parts": [{"text": "later"}]},
        ],
    }
    assert [loss.path for loss in encoded.losses if loss.level != "form"] == ["messages[3]"]


def test_P17_results_of_parallel_calls_are_one_content_in_the_order_of_the_calls() -> None:
    calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}}
        for name in ("a", "b")
    ]
    body = {
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "b", "content": "2"},
            {"role": "tool", "tool_call_id": "a", "content": "1"},
            {"role": "user", "content": "and?"},
        ]
    }
    contents = to_gemini(body, "openai-chat").body["contents"]
    assert contents[2] == {
        "role": "user",
        "parts": [
            {"functionResponse": {"name": "a", "id": "a", "response": {"output": "1"}}},
            {"functionResponse": {"name": "b", "id": "b", "response": {"output": "2"}}},
        ],
    }
    assert contents[3] == {"role": "user", "parts": [{"text": "and?"}]}


def tool_round(content: Any, **members: Any) -> dict[str, Any]:
    use = {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": content, **members}
    return {
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [result]},
        ]
    }


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="}}


@pytest.mark.parametrize(
    ("content", "members", "response"),
    [
        ("ok", {}, {"output": "ok"}),
        ("no", {"is_error": True}, {"error": "no"}),
        ('{"$ref": "#/$defs/a"}', {}, {"output": '{"$ref": "#/$defs/a"}'}),  # P39: never an object
        ([{"type": "text", "text": t} for t in "ab"], {}, {"output": "a\nb"}),
    ],
)
def test_P39_a_result_of_another_protocol_stays_a_string(
    content: Any, members: dict[str, Any], response: Any
) -> None:
    body = to_gemini(tool_round(content, **members)).body
    answer = body["contents"][2]["parts"][0]["functionResponse"]
    assert answer == {"name": "f", "id": "t1", "response": response}


@pytest.mark.parametrize(
    ("model", "inside"),
    [("gemini-3-flash-preview", True), ("gemini-2.5-pro", False)],
)
def test_media_of_a_result_are_placed_where_the_model_accepts_them(
    model: str, inside: bool
) -> None:
    body = to_gemini(tool_round([{"type": "text", "text": "see"}, IMAGE]), model=model).body
    blob = {"inlineData": {"mimeType": "image/png", "data": "QQ=="}}
    result = body["contents"][2]["parts"][0]["functionResponse"]
    assert ("parts" in result) is inside
    assert (blob in body["contents"][-1]["parts"]) is not inside


@pytest.mark.parametrize(
    ("model", "signature"),
    [("gemini-3-pro", "skip_thought_signature_validator"), ("gemini-2.5-pro", None)],
)
def test_P27_a_call_of_another_protocol_is_signed_if_the_model_requires_it(
    model: str, signature: str | None
) -> None:
    body = to_gemini(tool_round("ok"), model=model).body
    assert body["contents"][1]["parts"][0].get("thoughtSignature") == signature


def test_P26_thinking_of_another_vendor_is_dropped_and_reported() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    texts = {"type": "text", "text": "so"}
    body = {
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [thinking, texts]},
        ]
    }
    encoded = to_gemini(body)
    assert encoded.body["contents"][1] == {"role": "model", "parts": [{"text": "so"}]}
    assert "messages[1].content[0]" in [loss.path for loss in encoded.losses]


def test_P49_a_schema_of_another_protocol_is_translated_completely() -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "$defs": {"x": {}}}
    body = {
        "messages": [{"role": "user", "content": "x"}],
        "tools": [{"name": "f", "description": "does", "input_schema": schema}],
    }
    assert to_gemini(body).body["tools"] == [
        {
            "functionDeclarations": [
                {"name": "f", "description": "does", "parametersJsonSchema": schema}
            ]
        }
    ]


@pytest.mark.parametrize(
    ("reasoning", "model", "config"),
    [
        (Reasoning("off"), "gemini-2.5-flash", {"thinkingBudget": 0}),
        (Reasoning("off"), "gemini-3-pro", {"thinkingLevel": "low"}),  # it cannot be turned off
        (Reasoning("adaptive"), "gemini-2.5-pro", {"thinkingBudget": -1}),
        (Reasoning("on", budget=99), "gemini-2.5-flash", {"thinkingBudget": 99}),
        (Reasoning(effort="medium"), "gemini-2.5-pro", {"thinkingBudget": 8192}),
        (Reasoning(effort="medium"), "gemini-3-pro", {"thinkingLevel": "medium"}),
        (Reasoning(effort="xhigh"), "gemini-3-pro", {"thinkingLevel": "high"}),
        (
            Reasoning(effort="low", summary="auto"),
            "gemini-3-pro",
            {"thinkingLevel": "low", "includeThoughts": True},
        ),
    ],
)
def test_thinking_is_requested_as_the_model_expects(
    reasoning: Reasoning, model: str, config: dict[str, Any]
) -> None:
    request = Request(model, (Message("user", (Text("x"),)),), params=Params(reasoning=reasoning))
    body = CODEC.encode_request(request, Target(CATALOG.find(model))).body
    assert body["generationConfig"]["thinkingConfig"] == config


def test_a_call_without_an_id_gets_a_result_without_one() -> None:
    call = ToolCall("call_r_0", "f", "{}", ext={"gemini": {"id": None, "thoughtSignature": "s"}})
    messages = (
        Message("user", (Text("go"),)),
        Message("assistant", (call,), origin=Origin("gemini")),
        Message("tool", (ToolResult("call_r_0", (Text("x"),)),)),
    )
    body = CODEC.encode_request(Request(MODEL, messages), Target(CATALOG.find(MODEL))).body
    assert body["contents"][1:] == [
        {
            "role": "model",
            "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "s"}],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "f", "response": {"output": "x"}}}],
        },
    ]


def answer(*parts: dict[str, Any], **members: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": list(parts)}, **members}
    return {"candidates": [candidate], "responseId": "r", "modelVersion": "g"}


CALL = {"functionCall": {"name": "f", "args": {"a": 1}}}

ANSWERS: list[tuple[dict[str, Any], Stop | None]] = [
    (answer({"text": "a"}, finishReason="STOP", index=0), Stop("end", "STOP")),
    (answer(CALL, CALL, finishReason="STOP"), Stop("tool", "STOP")),  # it waits for results
    (answer({"text": "a"}, finishReason="MAX_TOKENS"), Stop("length", "MAX_TOKENS")),
    (answer({"text": "a"}, finishReason="SPII"), Stop("filter", "SPII")),
    (answer({"text": "a"}, finishReason="TOO_NEW"), Stop("other", "TOO_NEW")),
    (
        answer(finishReason="OTHER", finishMessage="why"),
        Stop("other", "OTHER", details="why"),
    ),
    (answer({"text": "a"}, avgLogprobs=-1.5, groundingMetadata={"x": 1}), None),
    ({"candidates": [{"finishReason": "SAFETY"}]}, Stop("filter", "SAFETY")),
    ({"candidates": [{"content": {}}], "createTime": "t"}, None),
    (
        {"promptFeedback": {"blockReason": "OTHER"}, "usageMetadata": {}},
        Stop("filter", "OTHER", details={"blockReason": "OTHER"}),
    ),
    (
        {
            **answer({"text": "a"}),
            "candidates": [
                {"content": {"parts": [{"text": "a"}], "role": "model"}, "index": 0},
                {"content": {"parts": [{"text": "b"}], "role": "model"}, "index": 1},
            ],
        },
        None,
    ),
]


@pytest.mark.parametrize(("body", "stop"), ANSWERS)
def test_an_answer_round_trips(body: dict[str, Any], stop: Stop | None) -> None:
    response = CODEC.decode_response(body)
    assert response.stop == stop
    assert CODEC.encode_response(response, 0).body == body


def test_usage_counts_thoughts_as_output_and_tools_as_input() -> None:
    counts = {
        "promptTokenCount": 10,
        "cachedContentTokenCount": 4,
        "toolUsePromptTokenCount": 5,
        "candidatesTokenCount": 3,
        "thoughtsTokenCount": 2,
    }
    usage = CODEC.decode_response({**answer({"text": "a"}), "usageMetadata": counts}).usage
    assert usage == Usage(15, 5, 4, None, 2, {"gemini": counts})


def test_an_answer_of_another_protocol_is_read_by_the_sdk() -> None:
    blocks = (
        Thinking("hm", "foreign"),
        Redacted("sealed"),
        Text("so"),
        ToolCall("t1", "f", '{"a":1}'),
    )
    response = Response(
        Message("assistant", blocks, origin=Origin("anthropic")),
        "msg_1",
        "claude",
        Stop("tool", "tool_use"),
        Usage(10, 7, 4, reasoning=2),
    )
    encoded = CODEC.encode_response(response, 0)
    assert encoded.body == {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [
                        {"text": "hm", "thought": True},
                        {"text": "so"},
                        {"functionCall": {"name": "f", "args": {"a": 1}, "id": "t1"}},
                    ],
                },
                "finishReason": "STOP",
            }
        ],
        "usageMetadata": {
            "promptTokenCount": 10,
            "cachedContentTokenCount": 4,
            "candidatesTokenCount": 5,
            "thoughtsTokenCount": 2,
            "totalTokenCount": 17,
        },
        "modelVersion": "claude",
        "responseId": "msg_1",
    }
    assert len(encoded.losses) == 2
    sdk.GenerateContentResponse.model_validate(encoded.body)


def sse(*bodies: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + orjson.dumps(body) + b"\r\n\r\n" for body in bodies)


def events_of(data: bytes, pieces: int = 0) -> list[Any]:
    parser, decoder = SseParser(), CODEC.stream_decoder()
    events: list[Any] = []
    step = pieces or len(data) or 1
    for start in range(0, len(data), step):
        for frame in parser.feed(data[start : start + step]):
            events += decoder.feed(frame)
    for frame in parser.close():
        events += decoder.feed(frame)
    return events + decoder.close()


def frame_bodies(events: list[Any]) -> list[Any]:
    encoder = CODEC.stream_encoder(0)
    return [orjson.loads(frame.data) for event in events for frame in encoder.send(event)]


STREAM = (
    answer({"text": "hm", "thought": True}, index=0),
    answer({"text": " yes", "thought": True}, index=0),
    answer({"text": "so ü"}, index=0),
    {
        **answer({"text": "me"}, CALL, {"text": ""}, index=0),
        "usageMetadata": {"totalTokenCount": 1},
    },
    answer({"text": "", "thoughtSignature": "c2ln"}, index=0, finishReason="STOP"),
)


def test_a_stream_gives_the_same_answer_as_the_body() -> None:
    whole = answer(
        {"text": "hm yes", "thought": True},
        {"text": "so üme"},
        CALL,
        {"text": "", "thoughtSignature": "c2ln"},
        index=0,
        finishReason="STOP",
    )
    whole["usageMetadata"] = {"totalTokenCount": 1}
    folded = fold(events_of(sse(*STREAM)), Origin("gemini", model="g"))
    assert folded == CODEC.decode_response(whole)


def test_a_stream_split_at_every_byte_gives_the_same_events() -> None:
    data = sse(*STREAM)
    assert all(events_of(data, size) == events_of(data) for size in (1, 2, 3, 7))


def test_a_stream_round_trips_frame_by_frame() -> None:
    assert frame_bodies(events_of(sse(*STREAM))) == list(STREAM)


@pytest.mark.parametrize("frames", range(len(STREAM)))
def test_a_stream_without_a_finish_reason_is_truncated(frames: int) -> None:
    events = events_of(sse(*STREAM[:frames]))
    assert isinstance(events[-1], Fail)
    assert "error" in frame_bodies(events)[-1]


@pytest.mark.parametrize(
    "data",
    [b"data: [1]\n\n", b"data: {oops\n\n", sse(answer({"text": 5})), sse({"candidates": 3})],
)
def test_a_broken_frame_fails_the_stream(data: bytes) -> None:
    events = events_of(data)
    assert [type(event) for event in events] == [Fail]


def test_an_error_in_the_stream_ends_it() -> None:
    error = {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}
    events = events_of(sse(STREAM[0], error))
    assert events[-1] == Fail(ApiError("overloaded", "busy", 503, "UNAVAILABLE"))
    assert frame_bodies(events) == [STREAM[0], error]


def test_a_blocked_prompt_is_an_answer_stopped_by_a_filter() -> None:
    events = events_of(sse({"promptFeedback": {"blockReason": "SAFETY"}}))
    assert fold(events).stop == Stop("filter", "SAFETY", details={"blockReason": "SAFETY"})
    assert isinstance(events[-1], End)


def test_events_of_other_protocols_become_frames_that_the_sdk_reads() -> None:
    bodies = frame_bodies(
        [
            Start("m1", "claude"),
            Open(0, Thinking("")),
            Delta(0, "thinking", "hm"),
            Delta(0, "signature", "sig"),
            Close(0),
            Open(1, Text("")),
            Delta(1, "text", "so"),
            Open(2, ToolCall("t1", "f", "")),  # interleaved with the open text
            Delta(2, "arguments", '{"a":'),
            Delta(1, "text", " yes"),
            Delta(2, "arguments", "1}"),
            Close(1),
            Other("anthropic", "citations_delta", {}),
            Close(2),
            Finish(Stop("tool", "tool_use"), Usage(3, 4)),
            End(),
        ]
    )
    parts = [body["candidates"][0]["content"]["parts"] for body in bodies]
    assert parts == [
        [{"text": "hm", "thought": True}],
        [{"text": "so"}],
        [{"text": " yes"}],
        [{"functionCall": {"name": "f", "args": {"a": 1}, "id": "t1"}}],
        [{"text": ""}],
    ]
    last = bodies[-1]
    assert last["candidates"][0]["finishReason"] == "STOP"
    assert last["usageMetadata"]["totalTokenCount"] == 7
    assert {body["responseId"] for body in bodies} == {"m1"}
    for body in bodies:
        sdk.GenerateContentResponse.model_validate(body)


def test_the_end_of_a_block_adds_what_its_deltas_missed() -> None:
    bodies = frame_bodies(
        [
            Start("m", usage=Usage(5, 0)),
            Open(0, Thinking("")),
            Close(0, Thinking("trace")),
            Open(1, Text("")),
            Delta(1, "text", "ans"),
            Close(1, Text("answer")),
            Open(2, ToolCall("t", "f", "")),
            Delta(2, "arguments", "{}"),
            Close(2, ToolCall("t", "f", "")),
            Finish(Stop("tool"), Usage(output=3)),
            End(),
        ]
    )
    assert [body["candidates"][0]["content"]["parts"][0] for body in bodies] == [
        {"text": "trace", "thought": True},
        {"text": "ans"},
        {"text": "wer"},
        {"functionCall": {"name": "f", "args": {}, "id": "t"}},
        {"text": ""},
    ]
    assert bodies[-1]["usageMetadata"] == {
        "promptTokenCount": 5,
        "candidatesTokenCount": 3,
        "totalTokenCount": 8,
    }


def test_a_truncated_stream_of_another_protocol_ends_in_an_error() -> None:
    bodies = frame_bodies(
        [Start("m"), Open(0, Text("a")), Fail(ApiError("server", "gone", 502, "api_error"))]
    )
    assert bodies[-1] == {"error": {"code": 502, "message": "gone", "status": "INTERNAL"}}


ERRORS: list[tuple[dict[str, Any], int, str]] = [
    ({"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}, 400, "invalid_request"),
    ({"code": 401, "message": "who", "status": "UNAUTHENTICATED"}, 401, "authentication"),
    ({"code": 403, "message": "no", "status": "PERMISSION_DENIED"}, 403, "permission"),
    ({"code": 404, "message": "where", "status": "NOT_FOUND"}, 404, "not_found"),
    ({"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED"}, 429, "rate_limit"),
    ({"code": 500, "message": "oh", "status": "INTERNAL"}, 500, "server"),
    ({"code": 503, "message": "busy", "status": "UNAVAILABLE"}, 503, "overloaded"),
    ({"code": 504, "message": "late", "status": "DEADLINE_EXCEEDED"}, 504, "timeout"),
    (
        {
            "code": 400,
            "message": "API key not valid.",
            "status": "INVALID_ARGUMENT",
            "details": [{"reason": "API_KEY_INVALID"}],
        },
        400,
        "authentication",
    ),
    (
        {
            "code": 400,
            "message": "The input token count (9) exceeds the maximum number of tokens allowed.",
            "status": "INVALID_ARGUMENT",
        },
        400,
        "context_length",
    ),
]


@pytest.mark.parametrize(("error", "status", "kind"), ERRORS)
def test_an_error_round_trips(error: dict[str, Any], status: int, kind: str) -> None:
    decoded = CODEC.decode_error({"error": error}, status)
    assert decoded.kind == kind
    assert CODEC.encode_error(decoded) == (status, {"error": error})


def test_an_error_of_another_protocol_names_the_field_in_gemini_spelling() -> None:
    error = ApiError("invalid_request", "is bad", 400, "invalid_request_error", param="tools[0]")
    status, body = CODEC.encode_error(error)
    assert status == 400
    assert body["error"]["status"] == "INVALID_ARGUMENT"
    assert CODEC.decode_error(body, status).param == "tools[0]"


@pytest.mark.parametrize("body", ["down", None, [], [{"error": {"code": 500, "message": "x"}}]])
def test_any_error_body_is_an_error(body: Any) -> None:
    assert CODEC.decode_error(body, 500).kind == "server"


def test_recorded_requests_round_trip() -> None:
    for row in recorded("gemini"):
        assert rewritten(row["request"]) == row["request"], row["id"]


def test_recorded_answers_and_streams_round_trip() -> None:
    for row in recorded("gemini"):
        if row["status"] >= 400:
            decoded = CODEC.decode_error(row["response"], row["status"])
            assert CODEC.encode_error(decoded)[1] == row["response"], row["id"]
        elif "response" in row:
            written = CODEC.encode_response(CODEC.decode_response(row["response"]), 0)
            assert written.body == row["response"], row["id"]
        else:
            data = row["sse"].encode()
            frames = [orjson.loads(frame.data) for frame in SseParser().feed(data)]
            events = events_of(data)
            assert isinstance(events[-1], End)
            assert frame_bodies(events) == frames, row["id"]
            assert events_of(data, 11) == events


def test_streams_written_by_weft_are_decoded_correctly() -> None:
    """A stream of another protocol, written as Gemini's and decoded again, gives the same
    answer."""
    sent = [
        Start("m"),
        Open(0, Text("")),
        Delta(0, "text", "a"),
        Delta(0, "text", "b"),
        Close(0),
        Open(1, ToolCall("t", "f", '{"x":1}')),
        Close(1),
        Finish(Stop("tool")),
        End(),
    ]
    encoder, parser = CODEC.stream_encoder(0), SseParser()
    data = b"".join(write_frame(frame) for event in sent for frame in encoder.send(event))
    folding, decoder = Fold(), CODEC.stream_decoder()
    for frame in parser.feed(data):
        assert isinstance(frame, Frame)
        for event in decoder.feed(frame):
            folding.send(event)
    assert folding.response().message.blocks == (Text("ab"), ToolCall("t", "f", '{"x":1}'))


def test_an_error_with_status_200_is_an_upstream_failure() -> None:
    body = {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}
    with pytest.raises(UpstreamFailed) as caught:
        CODEC.decode_response(body)
    assert caught.value.status == 503
