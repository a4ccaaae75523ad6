"""Regression tests for answers and requests of real traffic, with omitted members."""

import json
import subprocess
import sys
from urllib.request import urlopen

import orjson
import pytest

import weft
from servers import LAUNCH, REQUEST_PATHS, Scripted, post, scripted_upstream, weft_serve
from weft.codec import CODECS, Frame, decode_answer, write_frame
from weft.model import ToolCall, loss_lines, make_loss, texts

PROTOCOLS = ("anthropic", "openai-chat", "openai-responses", "gemini")


def chat(message, **rest):
    return {
        "id": "c",
        "model": "m",
        "choices": [{"finish_reason": "stop", "message": message}],
    } | rest


def chat_call(**call):
    return chat({"role": "assistant", "content": None, "tool_calls": [call]})


def claude(*content, **rest):
    body = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
    return {**body, "content": list(content), "stop_reason": "tool_use", **rest}


def openai(*output, **rest):
    return {"id": "resp_1", "model": "m", "status": "completed", "output": list(output), **rest}


def gemini(*parts, **rest):
    content = {"role": "model", "parts": list(parts)}
    return {"candidates": [{"content": content, "finishReason": "STOP"}], **rest}


FN = {"name": "f"}
CALLS_WITH_GAPS = {
    "chat: no arguments (OpenRouter)": (
        "openai-chat",
        chat_call(id="c1", type="function", function=FN),
    ),
    "chat: null arguments": (
        "openai-chat",
        chat_call(id="c1", type="function", function={**FN, "arguments": None}),
    ),
    "chat: arguments as an object (Ollama)": (
        "openai-chat",
        chat_call(id="c1", type="function", function={**FN, "arguments": {}}),
    ),
    "chat: no id": ("openai-chat", chat_call(type="function", function={**FN, "arguments": "{}"})),
    "chat: null id": (
        "openai-chat",
        chat_call(id=None, type="function", function={**FN, "arguments": "{}"}),
    ),
    "chat: null type": (
        "openai-chat",
        chat_call(id="c1", type=None, function={**FN, "arguments": "{}"}),
    ),
    "chat: role null": (
        "openai-chat",
        chat(
            {
                "role": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {**FN, "arguments": "{}"}}
                ],
            }
        ),
    ),
    "anthropic: no input": ("anthropic", claude({"type": "tool_use", "id": "c1", "name": "f"})),
    "anthropic: input null": (
        "anthropic",
        claude({"type": "tool_use", "id": "c1", "name": "f", "input": None}),
    ),
    "anthropic: input as JSON text": (
        "anthropic",
        claude({"type": "tool_use", "id": "c1", "name": "f", "input": "{}"}),
    ),
    "anthropic: no id": ("anthropic", claude({"type": "tool_use", "name": "f", "input": {}})),
    "responses: no arguments": (
        "openai-responses",
        openai({"type": "function_call", "call_id": "c1", "name": "f"}),
    ),
    "responses: arguments as an object": (
        "openai-responses",
        openai({"type": "function_call", "call_id": "c1", "name": "f", "arguments": {}}),
    ),
    "responses: no call_id": (
        "openai-responses",
        openai({"type": "function_call", "id": "fc_1", "name": "f", "arguments": "{}"}),
    ),
    "gemini: no args": ("gemini", gemini({"functionCall": {"name": "f"}})),
    "gemini: args as JSON text": (
        "gemini",
        gemini({"functionCall": {"name": "f", "id": "c1", "args": "{}"}}),
    ),
    "gemini: null members beside the call": (
        "gemini",
        gemini({"functionCall": {"name": "f", "id": "c1", "args": {}}, "text": None}),
    ),
}
REPAIRS = {"missing_value_added", "value_retyped", "null_value_dropped"}
COMPLETE = {"gemini: no args", "chat: role null", "chat: null type"}
"""Spellings that are no loss: the protocol allows them, or the value is the only possible one."""


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("name", CALLS_WITH_GAPS)
def test_a_call_without_arguments_is_decoded(name, target):
    protocol, body = CALLS_WITH_GAPS[name]
    done = weft.translate_response(body, protocol, target)
    (call,) = CODECS[target].decode_response(done.body).message.blocks
    assert isinstance(call, ToolCall)
    assert (call.name, json.loads(call.arguments or "{}")) == ("f", {})
    assert call.id
    form = [loss for loss in done.losses if loss.code in REPAIRS]
    assert {loss.level for loss in form} <= {"form"}
    assert bool(form) is (name not in COMPLETE)


TEXT_ARGUMENTS = {
    "anthropic": claude({"type": "tool_use", "id": "c1", "name": "f", "input": "a patch"}),
    "gemini": gemini({"functionCall": {"name": "f", "id": "c1", "args": "a patch"}}),
}
"""Servers that treat a function of one string as a tool that takes text."""


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("protocol", TEXT_ARGUMENTS)
def test_a_string_instead_of_an_object_becomes_the_only_input(protocol, target):
    done = weft.translate_response(TEXT_ARGUMENTS[protocol], protocol, target)
    (call,) = CODECS[target].decode_response(done.body).message.blocks
    assert json.loads(call.arguments) == {"input": "a patch"}
    assert [loss.level for loss in done.losses if "the upstream" in loss.why] == ["form"]


TEXTS_WITH_GAPS = {
    "chat: no id, model, index, usage": (
        "openai-chat",
        {"choices": [{"message": {"content": "hi"}}]},
    ),
    "chat: content part without a type": ("openai-chat", chat({"content": [{"text": "hi"}]})),
    "chat: content part is a string": ("openai-chat", chat({"content": ["hi"]})),
    "chat: usage in strings": (
        "openai-chat",
        chat({"content": "hi"}, usage={"prompt_tokens": "7", "completion_tokens": 2.0}),
    ),
    "chat: extra choices": (
        "openai-chat",
        {"choices": [{"index": 0, "message": {"content": "hi"}}, {"index": 1, "message": None}]},
    ),
    "anthropic: content is a string": ("anthropic", claude() | {"content": "hi"}),
    "anthropic: block without a type": ("anthropic", claude({"text": "hi"})),
    "anthropic: no id": (
        "anthropic",
        {"content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"},
    ),
    "anthropic: null text beside": (
        "anthropic",
        claude({"type": "text", "text": None}, {"type": "text", "text": "hi"}),
    ),
    "anthropic: thinking null": (
        "anthropic",
        claude({"type": "thinking", "thinking": None}, {"type": "text", "text": "hi"}),
    ),
    "responses: no id": (
        "openai-responses",
        {
            "status": "completed",
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}],
        },
    ),
    "responses: content is a string": (
        "openai-responses",
        openai({"type": "message", "role": "assistant", "content": "hi"}),
    ),
    "responses: part without a type": (
        "openai-responses",
        openai({"type": "message", "content": [{"text": "hi"}]}),
    ),
    "responses: item without a type": (
        "openai-responses",
        openai({"role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}),
    ),
    "responses: reasoning of nothing": (
        "openai-responses",
        openai({"type": "reasoning", "summary": None}, {"type": "message", "content": "hi"}),
    ),
    "gemini: null members beside the text": (
        "gemini",
        gemini({"text": "hi", "functionCall": None, "inlineData": None}),
    ),
    "gemini: index as a string": (
        "gemini",
        {"candidates": [{"index": "0", "content": {"parts": [{"text": "hi"}]}}]},
    ),
}


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("name", TEXTS_WITH_GAPS)
def test_a_text_with_missing_members_is_decoded(name, target):
    protocol, body = TEXTS_WITH_GAPS[name]
    done = weft.translate_response(body, protocol, target)
    assert "".join(texts(CODECS[target].decode_response(done.body).message.blocks)) == "hi"
    assert all(
        loss.level == "form" for loss in done.losses if not loss.path.startswith("choices[1]")
    )


@pytest.mark.parametrize(
    ("protocol", "body", "counts"),
    [
        (
            "openai-chat",
            chat({"content": "x"}, usage={"prompt_tokens": "7", "completion_tokens": "2"}),
            (7, 2),
        ),
        ("anthropic", claude(usage={"input_tokens": "7", "output_tokens": 2.0}), (7, 2)),
        ("openai-responses", openai(usage={"input_tokens": "7", "output_tokens": "2"}), (7, 2)),
        (
            "gemini",
            gemini(
                {"text": "x"}, usageMetadata={"promptTokenCount": "7", "candidatesTokenCount": "2"}
            ),
            (7, 2),
        ),
        ("openai-chat", chat({"content": "x"}, usage={"prompt_tokens": "many"}), (None, None)),
        ("openai-chat", chat({"content": "x"}, usage=None), None),
    ],
)
def test_token_counts_may_be_strings(protocol, body, counts):
    usage = CODECS[protocol].decode_response(body).usage
    assert (None if usage is None else (usage.input, usage.output)) == counts


def stream(*frames, done=False):
    data = b"".join(
        write_frame(Frame(orjson.dumps(frame).decode(), frame.get("type"))) for frame in frames
    )
    return data + (b"data: [DONE]\n\n" if done else b"")


def chunk(delta, finish=None):
    return {"id": "c", "model": "m", "choices": [{"delta": delta, "finish_reason": finish}]}


def call_delta(**call):
    return chunk({"tool_calls": [call]})


CLAUDE_END = (
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    {"type": "message_stop"},
)
STREAMED_CALLS = {
    "chat: no arguments": (
        "openai-chat",
        stream(
            call_delta(index=0, id="a", type="function", function={"name": "f"}),
            chunk({}, "tool_calls"),
            done=True,
        ),
        [("f", "{}")],
    ),
    "chat: parallel calls without index or id (Gemini's own Chat endpoint)": (
        "openai-chat",
        stream(
            call_delta(function={"name": "f", "arguments": '{"a":1}'}),
            call_delta(function={"name": "g", "arguments": '{"b":2}'}),
            chunk({}, "tool_calls"),
            done=True,
        ),
        [("f", '{"a":1}'), ("g", '{"b":2}')],
    ),
    "chat: calls without index, in pieces": (
        "openai-chat",
        stream(
            call_delta(id="a", function={"name": "f", "arguments": ""}),
            call_delta(function={"arguments": '{"a":'}),
            call_delta(function={"arguments": "1}"}),
            call_delta(id="b", function={"name": "g", "arguments": "{}"}),
            chunk({}, "tool_calls"),
            done=True,
        ),
        [("f", '{"a":1}'), ("g", "{}")],
    ),
    "chat: arguments as an object": (
        "openai-chat",
        stream(
            call_delta(index=0, id="a", function={"name": "f", "arguments": {"a": 1}}),
            chunk({}, "tool_calls"),
            done=True,
        ),
        [("f", '{"a":1}')],
    ),
    "anthropic: no index, no input": (
        "anthropic",
        stream(
            {"type": "message_start", "message": {"role": "assistant", "content": []}},
            {
                "type": "content_block_start",
                "content_block": {"type": "tool_use", "id": "a", "name": "f"},
            },
            {
                "type": "content_block_delta",
                "delta": {"type": "input_json_delta", "partial_json": None},
            },
            {"type": "content_block_stop"},
            {
                "type": "content_block_start",
                "content_block": {"type": "tool_use", "name": "g", "input": {}},
            },
            {
                "type": "content_block_delta",
                "delta": {"type": "input_json_delta", "partial_json": '{"b":2}'},
            },
            {"type": "content_block_stop"},
            *CLAUDE_END,
        ),
        [("f", "{}"), ("g", '{"b":2}')],
    ),
    "responses: no output_index, null delta, no arguments at the end": (
        "openai-responses",
        stream(
            {"type": "response.created", "response": {"model": "m"}},
            {
                "type": "response.output_item.added",
                "item": {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "f"},
            },
            {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": None},
            {
                "type": "response.function_call_arguments.delta",
                "item_id": "fc_1",
                "delta": '{"a":1}',
            },
            {
                "type": "response.output_item.done",
                "item": {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "f"},
            },
            {
                "type": "response.output_item.added",
                "item": {"type": "function_call", "id": "fc_2", "name": "g"},
            },
            {
                "type": "response.output_item.done",
                "item": {"type": "function_call", "id": "fc_2", "name": "g"},
            },
            {"type": "response.completed", "response": {"status": "completed", "model": "m"}},
        ),
        [("f", '{"a":1}'), ("g", "{}")],
    ),
    "gemini: args as text": (
        "gemini",
        stream(gemini({"functionCall": {"name": "f", "args": '{"a":1}'}, "text": None})),
        [("f", '{"a":1}')],
    ),
}


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("name", STREAMED_CALLS)
def test_a_streamed_call_with_missing_members_is_decoded(name, target):
    protocol, data, expected = STREAMED_CALLS[name]
    translator = weft.StreamTranslator(protocol, target)
    out = translator.feed(data) + translator.close()
    assert not translator.failed
    calls = (
        decode_answer(CODECS[target], out).message.blocks
        if protocol != target
        else (translator.response.message.blocks)
    )
    assert [(call.name, json.loads(call.arguments or "{}")) for call in calls] == [
        (tool, json.loads(arguments)) for tool, arguments in expected
    ]
    assert len({call.id for call in calls}) == len(calls)
    assert all(call.id for call in calls)
    assert {loss.level for loss in translator.losses} <= {"form"}


STREAMED_TEXTS = {
    "chat: null members": (
        "openai-chat",
        stream(
            chunk({"role": None, "content": None, "tool_calls": None}),
            chunk({"content": "hi"}),
            chunk({"content": None}, "stop"),
            done=True,
        ),
    ),
    "anthropic: no content_block_start": (
        "anthropic",
        stream(
            {"type": "message_start", "message": {}},
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": "hi"},
            },
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": "3"},
            },
            {"type": "message_stop"},
        ),
    ),
    "anthropic: a null piece": (
        "anthropic",
        stream(
            {"type": "message_start", "message": {"id": None}},
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "text", "text": None},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": None},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": "hi"},
            },
            {"type": "content_block_stop", "index": 0},
            *CLAUDE_END,
        ),
    ),
    "responses: text deltas only": (
        "openai-responses",
        stream(
            {"type": "response.output_text.delta", "delta": None},
            {"type": "response.output_text.delta", "delta": "hi"},
            {"type": "response.completed", "response": {"status": "completed"}},
        ),
    ),
    "gemini: null members": ("gemini", stream(gemini({"text": "hi", "functionCall": None}))),
}


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("name", STREAMED_TEXTS)
def test_a_streamed_text_with_missing_members_is_decoded(name, target):
    protocol, data = STREAMED_TEXTS[name]
    translator = weft.StreamTranslator(protocol, target)
    out = translator.feed(data) + translator.close()
    assert not translator.failed
    assert "".join(texts(translator.response.message.blocks)) == "hi"
    assert b"hi" in out
    assert b"None" not in out


def test_no_call_delta_is_empty():
    """litellm fails on an empty piece of arguments, and Claude begins each call with one."""
    pieces = ["", '{"a":', "", "1}"]
    data = stream(
        {"type": "message_start", "message": {"id": "m", "model": "m", "usage": {}}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "a", "name": "f", "input": {}},
        },
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": piece},
            }
            for piece in pieces
        ),
        {"type": "content_block_stop", "index": 0},
        *CLAUDE_END,
    )
    for target in PROTOCOLS[1:]:
        translator = weft.StreamTranslator("anthropic", target)
        out = translator.feed(data) + translator.close()
        frames = [json.loads(line[6:]) for line in out.splitlines() if line.startswith(b"data: {")]
        assert not [frame for frame in frames if frame.get("delta") == ""]
        (call,) = decode_answer(CODECS[target], out).message.blocks
        assert json.loads(call.arguments) == {"a": 1}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    with weft_serve(tmp_path_factory.mktemp("paths")) as running:
        yield running


ASKED = {
    "/messages": {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    "/messages/count_tokens": {"messages": [{"role": "user", "content": "hi"}]},
    "/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/responses": {"input": "hi"},
    "/models/weft-offline:generateContent": {"contents": [{"parts": [{"text": "hi"}]}]},
    "/models/weft-offline:streamGenerateContent": {"contents": [{"parts": [{"text": "hi"}]}]},
    "/models/weft-offline:countTokens": {"contents": [{"parts": [{"text": "hi"}]}]},
}


@pytest.mark.parametrize("prefix", ["", "/v1", "/v1beta", "/v1/v1", "/v1beta/v1beta", "/v1/v1beta"])
@pytest.mark.parametrize("path", ASKED)
def test_a_base_url_works_with_and_without_a_version(gateway, path, prefix):
    if prefix.endswith("/v1beta") and "/models/" not in path:
        pytest.skip("only Google has this version")
    body = ASKED[path] | ({} if "/models/" in path else {"model": "weft-offline"})
    status, _, answer = post(gateway.url + prefix + path, body)
    assert status == 200, answer


@pytest.mark.parametrize("path", ["/models", "/v1/models", "/v1/v1/models", "/models/weft-offline"])
def test_the_model_list_url_needs_no_version(gateway, path):
    with urlopen(gateway.url + path, timeout=60) as answer:
        assert answer.status == 200
        assert b"weft-offline" in answer.read()


THOUGHT = claude(
    {"type": "thinking", "thinking": "pondering", "signature": "c2ln"},
    {"type": "text", "text": "ok"},
    stop_reason="end_turn",
)


def test_chat_clients_get_thinking_in_bodies_and_streams():
    done = weft.translate_response(THOUGHT, "anthropic", "openai-chat")
    message = done.body["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("pondering", "ok")
    assert {loss.level for loss in done.losses} == {"form"}
    translator = weft.StreamTranslator("anthropic", "openai-chat")
    out = translator.feed(json.dumps(THOUGHT).encode()) + translator.close()
    shown = decode_answer(CODECS["openai-chat"], out).message.blocks
    assert [block.text for block in shown] == ["pondering", "ok"]
    assert b"c2ln" not in out


@pytest.mark.parametrize("echoes", [True, False])  # some clients hand thinking back, some do not
def test_thinking_echoed_by_a_chat_client_goes_only_to_its_vendor(echoes):
    shown = weft.translate_response(THOUGHT, "anthropic", "openai-chat")
    echo = {"role": "assistant", "content": "ok"} | (
        {"reasoning_content": "pondering"} if echoes else {}
    )
    messages = [{"role": "user", "content": "q"}, echo, {"role": "user", "content": "more"}]
    body = {"model": "claude-sonnet-4-5", "messages": messages}
    home = weft.translate(body, "openai-chat", "anthropic", sidecar=shown.sidecar).body
    assert home["messages"][1]["content"] == THOUGHT["content"]
    for target in ("openai-responses", "gemini"):
        for sidecar in (None, shown.sidecar):
            away = weft.translate(body, "openai-chat", target, sidecar=sidecar).body
            assert "pondering" not in json.dumps(away)


ORDERED = {
    "type": "object",
    "properties": {"thought": {"type": "string"}, "answer": {"type": "string"}},
    "required": ["thought", "answer"],
}
OWN_TOOLS = {
    "to_anthropic_params": [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
        {"type": "bash_20250124", "name": "bash"},
        {"name": "f", "input_schema": ORDERED, "cache_control": {"type": "ephemeral"}},
        {"name": "g", "input_schema": ORDERED, "strict": True},
        {"name": "h", "description": "does it", "input_schema": ORDERED},
    ],
    "to_openai_params": [
        {"type": "function", "function": {"name": "f", "strict": True, "parameters": ORDERED}},
        {"type": "custom", "custom": {"name": "c", "format": {"type": "text"}}},
    ],
    "to_responses_params": [
        {"type": "web_search"},
        {"type": "custom", "name": "c", "format": {"type": "text"}},
        {"type": "function", "name": "f", "parameters": ORDERED, "strict": True},
        {"type": "mcp", "server_label": "s", "server_url": "https://example.com"},
    ],
    "to_gemini_params": [
        {"functionDeclarations": [{"name": "f", "parametersJsonSchema": ORDERED}]},
        {"googleSearch": {}},
    ],
}
MODELS = {
    "to_anthropic_params": "claude-sonnet-4-5",
    "to_openai_params": "gpt-5",
    "to_responses_params": "gpt-5",
    "to_gemini_params": "gemini-2.5-pro",
}


def tools_of(params):
    return json.dumps(params.get("tools") or params["config"]["tools"])


@pytest.mark.parametrize("method", OWN_TOOLS)
@pytest.mark.parametrize("way", ["setup", "tools=", "reopened"])
def test_a_vendor_gets_its_own_tool_definitions_unchanged(method, way, tmp_path):
    store = str(tmp_path / "weft.db")
    t = weft.open(store, "t")
    t.user("x")
    tools = OWN_TOOLS[method]
    if way != "tools=":
        t.setup(tools)
    if way == "reopened":
        t.close()
        t = weft.open(store, "t")
    arguments = {"tools": tools} if way == "tools=" else {}
    params = getattr(t.compile(), method)(model=MODELS[method], **arguments)
    assert tools_of(params) == json.dumps(tools)
    t.close()


@pytest.mark.parametrize("method", OWN_TOOLS)
def test_tool_members_that_another_vendor_lacks_are_losses(method):
    t = weft.open()
    t.user("x")
    for tool in OWN_TOOLS[method]:
        t.setup([tool])
        for other in MODELS:
            params = getattr(t.compile(), other)(model=MODELS[other])
            written = json.dumps(params)
            if "thought" in json.dumps(tool):
                assert written.index("thought") < written.index("answer")
            if other == method:
                continue
            special = {"cache_control", "strict", "max_uses", "server_url"} & set(
                json.dumps(tool).replace('"', " ").split()
            )
            hosted = tool.get("type") in ("bash_20250124", "mcp")
            for member in special:
                is_written = f'"{member}"' in written
                assert is_written or any("tools" in loss.path for loss in params.losses), (
                    member,
                    other,
                )
            assert not hosted or any("tools" in loss.path for loss in params.losses)


def test_the_order_of_a_schema_survives_an_import(tmp_path):
    body = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 9,
        "tools": [{"name": "f", "input_schema": ORDERED}],
        "messages": [{"role": "user", "content": "x"}],
    }
    t = weft.open(str(tmp_path / "weft.db"), "t")
    t.import_bytes(json.dumps(body).encode())
    t.user("more")
    params = t.compile().to_anthropic_params(model="claude-sonnet-4-5")
    assert json.dumps(params["tools"]) == json.dumps(body["tools"])
    properties = dict(reversed(ORDERED["properties"].items()))
    other = [{"name": "f", "input_schema": {**ORDERED, "properties": properties}}]
    t.setup(other)
    params = t.compile().to_anthropic_params(model="claude-sonnet-4-5")
    assert json.dumps(params["tools"]) == json.dumps(other)
    t.undo()
    params = t.compile().to_anthropic_params(model="claude-sonnet-4-5")
    assert json.dumps(params["tools"]) == json.dumps(body["tools"])
    t.close()


ONLY_SYSTEM = {"model": "m", "messages": [{"role": "system", "content": "Say hi."}]}


@pytest.mark.parametrize("target", ["anthropic", "gemini"])
@pytest.mark.parametrize(
    "body", [ONLY_SYSTEM, json.dumps(ONLY_SYSTEM).encode()], ids=["dict", "bytes"]
)
def test_a_conversation_of_system_messages_only_is_reported(target, body):
    losses = weft.translate(body, "openai-chat", target).losses
    assert [loss.level for loss in losses if loss.path == "messages"] == ["meaning"]
    with pytest.raises(weft.Refused) as refused:
        weft.translate(body, "openai-chat", target, strict=True)
    assert refused.value.param == "messages"


@pytest.mark.parametrize("method", ["to_anthropic_params", "to_gemini_params"])
def test_a_thread_of_system_messages_only_is_reported(method):
    t = weft.open()
    t.system("rule")
    params = getattr(t.compile(), method)(model=MODELS[method])
    assert [loss.level for loss in params.losses if loss.path == "messages"] == ["meaning"]


@pytest.mark.parametrize("client", ["openai-chat", "openai-responses"])
@pytest.mark.parametrize("behind", ["anthropic", "gemini"])
def test_the_gateway_refuses_system_messages_only_with_the_path(client, behind, tmp_path):
    with (
        scripted_upstream() as upstream,
        weft_serve(tmp_path, f"--upstream=u={behind}:{upstream.url}") as running,
    ):
        body = ONLY_SYSTEM | {"model": "u/m"}
        if client == "openai-responses":
            body = {"model": "u/m", "input": ONLY_SYSTEM["messages"]}
        status, _, answer = post(running.url + REQUEST_PATHS[client], body)
        assert (status, upstream.requests) == (400, [])
        assert json.loads(answer)["error"]["param"] in ("messages", "input")


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("bob", "bob"),
        ("bob smith", "bob_smith"),
        ("a/b<c>|d\\e", "a_b_c__d_e"),
        ("", None),
        ("x" * 100, "x" * 64),
        ("zoë", "zoë"),
    ],
)
def test_a_name_that_openai_refuses_is_changed_and_reported(name, written):
    t = weft.open()
    t.user("q", name=name)
    params = t.compile().to_openai_params(model="gpt-5")
    assert params["messages"][0].get("name") == written
    changed = [loss for loss in params.losses if loss.path.endswith("name")]
    assert bool(changed) is (written != name)


PATCH = '*** Begin Patch\nx = "é"\n*** End Patch'


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    "arguments",
    [json.dumps({"input": PATCH}), json.dumps(PATCH), PATCH],
    ids=["object", "text", "raw"],
)
def test_a_function_call_for_a_custom_tool_is_a_custom_call(streams, arguments):
    """Servers that do not know custom tools call them as functions; Codex aborts on that."""
    request = {
        "model": "gpt-5",
        "input": "x",
        "tools": [
            {"type": "custom", "name": "apply_patch"},
            {"type": "function", "name": "f", "parameters": ORDERED},
        ],
    }
    sent = weft.translate(request, "openai-responses", "openai-chat", model="gpt-5")
    assert sent.body["tools"][0]["type"] == "custom"
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "apply_patch", "arguments": arguments},
    }
    if streams:
        translator = weft.StreamTranslator("openai-chat", "openai-responses", sent.sidecar)
        data = stream(call_delta(index=0, **call), chunk({}, "tool_calls"), done=True)
        out = translator.feed(data) + translator.close()
        (block,) = decode_answer(CODECS["openai-responses"], out).message.blocks
    else:
        body = chat({"content": None, "tool_calls": [call]})
        done = weft.translate_response(body, "openai-chat", "openai-responses", sent.sidecar)
        (block,) = CODECS["openai-responses"].decode_response(done.body).message.blocks
    assert (block.custom, block.name, block.arguments) == (True, "apply_patch", PATCH)


def test_a_custom_call_for_a_custom_tool_stays_one():
    request = {"model": "gpt-5", "input": "x", "tools": [{"type": "custom", "name": "apply_patch"}]}
    sent = weft.translate(request, "openai-responses", "openai-chat", model="gpt-5")
    call = {
        "id": "c1",
        "type": "custom",
        "custom": {"name": "apply_patch", "input": '{"input": "x"}'},
    }
    done = weft.translate_response(
        chat({"content": None, "tool_calls": [call]}),
        "openai-chat",
        "openai-responses",
        sent.sidecar,
    )
    assert done.body["output"][0]["input"] == '{"input": "x"}'


def caller_session(turns):
    """A session of Claude whose calls have the mark of who called."""
    messages = [{"role": "user", "content": "go"}]
    for number in range(turns):
        call = {"type": "tool_use", "id": f"t{number}", "name": "f", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "ok"}
        messages += [
            {"role": "assistant", "content": [call | {"caller": {"type": "direct"}}]},
            {"role": "user", "content": [result]},
        ]
    return {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages}


def test_caller_markers_of_a_tool_are_losses_of_form():
    done = weft.translate(caller_session(2), "anthropic", "openai-chat")
    callers = [loss for loss in done.losses if loss.detail == "caller"]
    assert [loss.level for loss in callers] == ["form", "form"]


def test_equal_losses_are_one_line(tmp_path):
    body = tmp_path / "body.json"
    body.write_text(json.dumps(caller_session(40)))
    command = [sys.executable, "-c", LAUNCH, "translate", "--from", "anthropic"]
    ran = subprocess.run(
        [*command, "--to", "openai-chat", str(body)], capture_output=True, text=True, check=True
    )
    (line,) = [line for line in ran.stderr.splitlines() if "caller" in line]
    assert "40 times" in line
    assert "and 37 more" in line
    ran = subprocess.run(
        [*command, "--to", "openai-chat", "--json", str(body)],
        capture_output=True,
        text=True,
        check=True,
    )
    listed = [loss for loss in json.loads(ran.stdout)["losses"] if loss["detail"] == "caller"]
    assert len(listed) == 40


def test_losses_of_meaning_come_first():
    losses = [
        make_loss("cache_breakpoint_dropped", "a"),
        make_loss("result_added", "b"),
        make_loss("cache_breakpoint_dropped", "c"),
    ]
    assert loss_lines(losses) == [
        "meaning: b: added an error result (the call has no result)",
        "form: 2 times dropped cache breakpoint"
        " (the target has no breakpoint at this position): a, c",
    ]


@pytest.mark.parametrize("member", ["reasoning_content", "reasoning", "reasoning_text", "hidden"])
def test_the_member_for_thinking_can_be_configured(member, tmp_path):
    whole = weft.translate_response(THOUGHT, "anthropic", "openai-chat", thinking=member)
    translator = weft.StreamTranslator("anthropic", "openai-chat", thinking=member)
    streamed = translator.feed(json.dumps(THOUGHT).encode()) + translator.close()
    config = tmp_path / "weft.toml"
    with scripted_upstream() as upstream:
        config.write_text(
            f'thinking = "hidden"\n[[upstream]]\nname = "u"\nprotocol = "anthropic"\n'
            f'url = "{upstream.url}"\nthinking = "{member}"\n'
        )
        answer = Scripted(json.dumps(THOUGHT).encode(), kind="application/json")
        upstream.then(answer, answer)
        with weft_serve(tmp_path, "--config", str(config)) as running:
            body = {"model": "u/m", "messages": [{"role": "user", "content": "q"}]}
            _, _, relayed = post(running.url + "/v1/chat/completions", body)
            _, _, events = post(running.url + "/v1/chat/completions", body | {"stream": True})
    shown = json.dumps({member: "pondering"})[1:-1].replace(": ", ":").encode()
    for written in (json.dumps(whole.body).encode(), streamed, relayed, events):
        assert (b"pondering" in written) is (member != "hidden")
        assert member == "hidden" or shown in written.replace(b'": "', b'":"')


def test_an_unknown_member_for_thinking_is_refused():
    with pytest.raises(weft.Refused, match="reasoning_content"):
        weft.translate_response(THOUGHT, "anthropic", "openai-chat", thinking="thoughts")


def test_a_request_with_per_call_tools_can_be_shown_again():
    t = weft.open()
    t.user("x")
    tools = [{"name": "f", "input_schema": ORDERED}]
    params = t.compile().to_anthropic_params(model="claude-sonnet-4-5", tools=tools)
    params["output_config"] = {"format": {"type": "json_schema", "schema": ORDERED}}
    answer = t.assistant("ok", sent=params)
    assert json.dumps(json.loads(t.show(answer, sent=True).body)) == json.dumps(params)
