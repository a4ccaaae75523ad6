"""OpenAI Chat Completions: requests, answers, streams and errors, and recorded traffic."""

import json

import pytest
from msgspec import structs

import weft
from corpus import recorded
from weft.catalog import Model, load_catalog
from weft.codec import CODECS, SseParser, Target, write_frame
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
    Image,
    Inline,
    Message,
    Opaque,
    Open,
    Origin,
    Other,
    Params,
    Reasoning,
    Refusal,
    Request,
    Response,
    Start,
    Stop,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Url,
    Usage,
)

CHAT = CODECS["openai-chat"]
ANTHROPIC = CODECS["anthropic"]
CATALOG = load_catalog()


def decode(*messages, **members):
    return CHAT.decode_request({"model": "m", "messages": list(messages), **members}, None)


def encode(request, system="auto"):
    return CHAT.encode_request(request, Target(CATALOG.find(request.model), system))


def foreign(*messages, **members):
    """A request without a body, as a compiled thread has it."""
    return Request("gpt-5", tuple(messages), **members)


def written(*messages, **members):
    return encode(foreign(*messages, **members)).body["messages"]


def own(**members):
    return {"openai-chat": members}


def call(call_id="c1", name="f", arguments="{}"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


MESSAGES = [
    ({"role": "user", "content": "hi"}, Message("user", (Text("hi"),), form="text")),
    ({"role": "user", "content": ""}, Message("user", (), form="text")),
    ({"role": "user", "content": []}, Message("user", (), form="list")),
    (
        {"role": "developer", "content": [{"type": "text", "text": "A"}]},
        Message("developer", (Text("A"),), form="list"),
    ),
    (
        {"role": "user", "content": "x", "name": "ann"},
        Message("user", (Text("x"),), "ann", form="text"),
    ),
    (
        {"role": "user", "content": "x", "name": None, "tool_calls": None},
        Message("user", (Text("x"),), form="text", ext=own(name=None, tool_calls=None)),
    ),
    (
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        Message("tool", (ToolResult("c1", (Text("ok"),), form="text"),)),
    ),
    (
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "ok"}]},
        Message("tool", (ToolResult("c1", (Text("ok"),), form="list"),)),
    ),
    (
        {"role": "assistant", "content": None, "tool_calls": [call()]},
        Message("assistant", (ToolCall("c1", "f", "{}"),), form="null"),
    ),
    (
        {"role": "assistant", "tool_calls": [call(arguments="")]},
        Message("assistant", (ToolCall("c1", "f", ""),), form="absent"),
    ),
    (
        {
            "role": "assistant",
            "content": "b",
            "reasoning_content": "a",
            "refusal": "c",
            "tool_calls": [
                {"id": "c2", "type": "custom", "custom": {"name": "p", "input": "*** x"}}
            ],
        },
        Message(
            "assistant",
            (
                Thinking("a", ext=own(item="reasoning_content")),
                Text("b"),
                Refusal("c"),
                ToolCall("c2", "p", "*** x", custom=True),
            ),
            form="text",
        ),
    ),
    (
        {"role": "assistant", "content": "b", "reasoning_text": "a", "reasoning_opaque": "s"},
        Message(
            "assistant",
            (Thinking("a", "s", own(item="reasoning_text")), Text("b")),
            form="text",
        ),
    ),
    (
        {
            "role": "assistant",
            "content": "",
            "reasoning": None,
            "reasoning_details": [{"type": "reasoning.encrypted", "data": "z"}],
        },
        Message(
            "assistant",
            (
                Thinking(
                    "", ext=own(reasoning_details=[{"type": "reasoning.encrypted", "data": "z"}])
                ),
            ),
            form="text",
            ext=own(reasoning=None),
        ),
    ),
    (
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "refusal": "n"},
        Message("assistant", (Refusal("no"), Refusal("n", own(item="refusal"))), form="list"),
    ),
    (
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        Message(
            "assistant",
            (ToolCall("function_call_0", "f", "{}", ext=own(item="function_call")),),
            form="null",
        ),
    ),
    (
        {"role": "function", "name": "f", "content": "1"},
        Message(
            "tool",
            (ToolResult("function_call_0", (Text("1"),), name="f", form="text"),),
            ext=own(role="function"),
        ),
    ),
    (
        {"role": "assistant", "audio": {"id": "audio_1"}},
        Message("assistant", (Audio(FileRef("audio_1")),), form="absent"),
    ),
]


@pytest.mark.parametrize(("wire", "message"), MESSAGES)
def test_a_message_round_trips(wire, message):
    request = decode(wire)
    assert request.messages == (message,)
    assert encode(request).body["messages"] == [wire]


@pytest.mark.parametrize(
    ("part", "block"),
    [
        ({"type": "text", "text": "t", "x": 1}, Text("t", own(x=1))),
        (
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
            Image(Inline("AA", "image/png")),
        ),
        (
            {"type": "image_url", "image_url": {"url": "https://a/b.png", "detail": "low"}},
            Image(Url("https://a/b.png"), "low"),
        ),
        (
            {"type": "image_url", "image_url": "https://a"},  # a dialect's shorter spelling
            Image(Url("https://a"), ext=own(image_url="https://a")),
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
            Audio(Inline("AA", "audio/wav")),
        ),
        (
            {
                "type": "file",
                "file": {"file_data": "data:application/pdf;base64,AA", "filename": "a.pdf"},
            },
            File(Inline("AA", "application/pdf"), "a.pdf"),
        ),
        ({"type": "file", "file": {"file_data": "AA"}}, File(Inline("AA"))),
        ({"type": "file", "file": {"file_id": "file-1"}}, File(FileRef("file-1"))),
        (
            {"type": "file", "file": {"file_id": "f", "file_data": "AA"}},  # two sources at once
            Opaque("openai-chat", {"type": "file", "file": {"file_id": "f", "file_data": "AA"}}),
        ),
        (
            {"type": "video_url", "video_url": {"url": "u"}},
            Opaque("openai-chat", {"type": "video_url", "video_url": {"url": "u"}}),
        ),
    ],
)
def test_a_part_round_trips(part, block):
    wire = {"role": "user", "content": [part]}
    request = decode(wire)
    assert request.messages[0].blocks == (block,)
    assert encode(request).body["messages"] == [wire]


@pytest.mark.parametrize(
    ("wire", "place"),
    [
        ({"role": "user", "content": [{"type": "text", "text": "a"}]}, (0, 0)),
        (
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "a"}]},
            (0, 0, 0),
        ),
        (
            {
                "role": "assistant",
                "reasoning_content": "t",
                "content": [{"type": "text", "text": "a"}],
            },
            (0, 1),
        ),
    ],
)
def test_cache_marks_are_separate_from_the_parts(wire, place):
    wire["content"][0]["cache_control"] = {"type": "ephemeral"}
    request = decode(wire)
    assert request.marks == {place: {"type": "ephemeral"}}
    assert encode(request).body["messages"] == [wire]


def test_openais_breakpoint_is_a_mark_and_a_loss_elsewhere():
    mark = {"mode": "explicit"}
    part = {"type": "text", "text": "a", "prompt_cache_breakpoint": mark}
    request = decode({"role": "user", "content": [part]})
    assert request.messages[0].blocks == (Text("a"),)
    assert encode(request).body["messages"][0]["content"] == [part]
    losses = ANTHROPIC.encode_request(request, Target(CATALOG.find("m"))).losses
    assert "messages[0].content[0].prompt_cache_breakpoint" in {loss.path for loss in losses}


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ((0,), "messages[0]"),
        ((0, 0), "messages[0].content"),
        ((1, 0), "messages[1].reasoning_content"),
        ((1, 1), "messages[1].content[0]"),
        ((1, 2), "messages[1].tool_calls[0]"),
        ((2, 0), "messages[2]"),
        ((2, 0, 1), "messages[2].content[1]"),
        (("tools", 3), "tools[3]"),
    ],
)
def test_positions_are_reported_as_the_callers_paths(place, path):
    text = {"type": "text", "text": "a"}
    request = decode(
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "reasoning_content": "r",
            "content": [text],
            "tool_calls": [call()],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [text, text]},
    )
    assert request.wire.locate(place) == path


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": "x"}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        (
            {"messages": [{"role": "user", "content": [{"text": "x"}]}]},
            "messages[0].content[0].type",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "function"}]}]},
            "messages[0].tool_calls[0].function",
        ),
        ({"messages": [], "stop": 3}, "stop"),
        ({"messages": [], "temperature": "hot"}, "temperature"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(body, param):
    with pytest.raises(Refused) as refused:
        CHAT.decode_request({"model": "m", **body}, None)
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("members", "params", "rest"),
    [
        ({"max_tokens": 5}, Params(max_tokens=5), {"max_tokens": None}),
        ({"max_completion_tokens": 5}, Params(max_tokens=5), {}),
        (
            {"max_completion_tokens": 5, "max_tokens": 6},
            Params(max_tokens=5),
            {"max_tokens": 6},
        ),
        ({"stop": "x"}, Params(stop=("x",)), {"stop": None}),
        ({"stop": ["x", "y"]}, Params(stop=("x", "y")), {}),
        ({"tool_choice": "required"}, Params(tool_choice=ToolChoice("any")), {}),
        (
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
            Params(tool_choice=ToolChoice("tool", "f")),
            {},
        ),
        (
            {"function_call": {"name": "f"}},
            Params(tool_choice=ToolChoice("tool", "f")),
            {"function_call": None},
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {}}},
            Params(),
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {}}},
        ),
        ({"reasoning_effort": "low"}, Params(reasoning=Reasoning(effort="low")), {}),
        (
            {"stream": True, "stream_options": {"include_usage": True}},
            Params(stream=True),
            {"stream_options.include_usage": True},
        ),
        ({"logprobs": True, "n": 2}, Params(n=2), {"logprobs": True}),
        ({"temperature": None, "seed": 3}, Params(seed=3), {}),
    ],
)
def test_parameters_round_trip(members, params, rest):
    request = decode(**members)
    assert request.params == params
    assert request.rest == rest
    assert encode(request).body == {"model": "m", "messages": [], **members}


@pytest.mark.parametrize(
    ("params", "members"),
    [
        (Params(max_tokens=5), {"max_completion_tokens": 5}),
        (Params(stop=("x",)), {}),  # this model takes none
        (Params(reasoning=Reasoning(effort="high")), {"reasoning_effort": "high"}),
        (Params(reasoning=Reasoning("on")), {}),
        (Params(top_k=4), {}),
        (Params(tool_choice=ToolChoice("any"), parallel_tool_calls=False), {}),  # without tools
        (Params(stream=True), {"stream": True}),
        (Params(user="u", store=False), {"user": "u", "store": False}),
    ],
)
def test_parameters_of_other_protocols(params, members):
    done = encode(foreign(params=params))
    assert done.body == {"model": "gpt-5", "messages": [], **members}
    assert bool(done.losses) == (not members)


@pytest.mark.parametrize(
    ("reasoning", "model", "effort", "losses"),
    [
        (Reasoning("off"), "gpt-5.1", "none", []),  # thinking is turned off, so nothing is lost
        (Reasoning("off", effort="none"), "gpt-5.1", "none", []),
        (
            Reasoning("off"),
            "gpt-5",  # it does not accept `none`
            "minimal",
            [("effort_changed", "meaning"), ("thinking_not_disabled", "form")],
        ),
        (Reasoning("off"), "m", None, [("thinking_not_disabled", "form")]),  # it decides for itself
        (
            Reasoning("off", effort="high"),
            "gpt-5.1",
            "high",
            [("thinking_not_disabled", "meaning")],
        ),
    ],
)
def test_thinking_is_turned_off_with_an_effort(reasoning, model, effort, losses):
    done = encode(Request(model, (), params=Params(reasoning=reasoning)))
    assert done.body.get("reasoning_effort") == effort
    assert [(loss.code, loss.level) for loss in done.losses] == losses


def test_an_older_model_gets_max_tokens():
    request = Request("gpt-3.5-turbo", (), params=Params(max_tokens=5))
    assert encode(request).body["max_tokens"] == 5


TOOLS = [
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
    {"function": {"name": "g", "parameters": {}}},  # a dialect without a type
    {"type": "custom", "custom": {"name": "p", "format": {"type": "text"}}},
    {"type": "openrouter:web_search", "parameters": {}},
]


@pytest.mark.parametrize(
    "members",
    [
        {"tools": TOOLS},
        {"tools": []},
        {"tools": None},
        {"functions": [{"name": "f", "parameters": {}}]},
        {"tools": [{**TOOLS[0], "cache_control": {"type": "ephemeral"}}]},
    ],
)
def test_tools_round_trip(members):
    done = encode(decode(**members))
    assert done.body == {"model": "m", "messages": [], **members}
    assert done.losses == []


def test_tools_of_other_protocols():
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: x"}
    raw = {"openai-responses": {"type": "custom", "name": "p", "format": grammar}}
    request = foreign(
        tools=(
            Tool("f", "does f", {"type": "object", "properties": {}}, strict=True),
            Tool("p", kind="custom", raw=raw),
            Tool("web_search", kind="web_search_20250305"),
        ),
        params=Params(tool_choice=ToolChoice("tool", "web_search")),
    )
    done = encode(request)
    assert done.body["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "f",
                "description": "does f",
                "parameters": {"type": "object", "properties": {}},
                "strict": True,
            },
        },
        {
            "type": "custom",
            "custom": {
                "name": "p",
                "format": {
                    "type": "grammar",
                    "grammar": {"syntax": "lark", "definition": "start: x"},
                },
            },
        },
    ]
    assert "tool_choice" not in done.body
    assert {loss.path for loss in done.losses} == {"tools[2]", "tool_choice"}


IMAGE = Image(Inline("AA", "image/png"))


def test_results_come_first_and_their_media_follow_the_last_result():
    request = foreign(
        Message("assistant", (ToolCall("a", "f", ""), ToolCall("b", "g", "{}"))),
        Message(
            "user",
            (
                Text("look"),
                ToolResult("a", (Text("one"), IMAGE), is_error=True),
                ToolResult("b", (Text("two"),), form="list"),
            ),
            form="list",
        ),
    )
    done = encode(request)
    assert done.body["messages"] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call("a"), call("b", "g")],
        },
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "two"}]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "[from the result of a]"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
            ],
        },
        {"role": "user", "content": [{"type": "text", "text": "look"}]},
    ]
    levels = {(loss.path, loss.level) for loss in done.losses}
    assert ("messages[1].content[1]", "meaning") in levels  # the failure
    assert ("messages[1].content[1].content[1]", "form") in levels  # the image's place


@pytest.mark.parametrize(
    ("blocks", "members"),
    [
        ((Text("a"),), {"content": "a"}),
        ((Thinking("t", "sig"), Text("a")), {"content": "a"}),  # thinking is no output
        ((Refusal("no"),), {"content": None, "refusal": "no"}),
        ((), {"content": ""}),
        (
            (Text("a"), Text("b")),
            {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        ),
    ],
)
def test_an_assistant_message_of_another_protocol(blocks, members):
    message = Message("assistant", blocks, origin=Origin("anthropic"))
    assert written(message) == [{"role": "assistant", **members}]


def test_thinking_goes_back_to_the_protocol_that_it_came_from():
    message = Message("assistant", (Thinking("t"), Text("a")), origin=Origin("openai-chat"))
    assert written(message) == [{"role": "assistant", "reasoning_content": "t", "content": "a"}]


@pytest.mark.parametrize(
    ("message", "messages"),
    [
        (Message("assistant", (Thinking("t", "s"),), origin=Origin("anthropic")), []),
        (Message("user", (Opaque("gemini", {"type": "x"}),)), []),
        (Message("user", (ToolCall("a", "f", "{}"),)), []),  # nobody calls as the user
        (Message("user", (), form="list"), [{"role": "user", "content": ""}]),
    ],
)
def test_a_message_that_becomes_empty_is_a_loss(message, messages):
    done = encode(foreign(message))
    assert done.body["messages"] == messages
    assert done.losses


def test_text_after_a_call_moves_and_is_reported():
    message = Message("assistant", (ToolCall("a", "f", "{}"), Text("after")))
    done = encode(foreign(message, Message("tool", (ToolResult("a", (Text("x"),)),))))
    assert done.body["messages"][0]["content"] == "after"
    assert [(loss.path, loss.level) for loss in done.losses] == [
        ("messages[0].content[1]", "meaning")
    ]


def test_a_long_id_is_shortened_equally_in_the_call_and_its_result():
    long, other = "x" * 60 + "1", "x" * 60 + "2"
    messages = written(
        Message("assistant", (ToolCall(long, "f", "{}"), ToolCall(other, "f", "{}"))),
        Message("tool", (ToolResult(long, (Text("1"),)), ToolResult(other, (Text("2"),)))),
    )
    ids = [entry["id"] for entry in messages[0]["tool_calls"]]
    assert ids == [message["tool_call_id"] for message in messages[1:]]
    assert len(set(ids)) == 2
    assert all(len(call_id) <= 40 for call_id in ids)


@pytest.mark.parametrize(
    ("system", "messages"),
    [
        ("auto", [("system", "A"), ("developer", "B"), ("user", "u"), ("system", "C")]),
        ("inline", [("system", "A"), ("developer", "B"), ("user", "u"), ("system", "C")]),
        ("demote", [("system", "A"), ("developer", "B"), ("user", "u"), ("user", "C")]),
        ("merge", [("system", "A\n\nB\n\nC"), ("user", "u")]),
    ],
)
def test_system_policies(system, messages):
    request = foreign(
        Message("system", (Text("A"),), form="text"),
        Message("developer", (Text("B"),), form="text"),
        Message("user", (Text("u"),), form="text"),
        Message("system", (Text("C"),), form="text"),
    )
    done = encode(request, system).body["messages"]
    assert [(message["role"], message["content"]) for message in done] == messages


@pytest.mark.parametrize(
    ("blocks", "members"),
    [
        ((ToolCall("c1", "f", "{}"),), {"content": None, "tool_calls": [call()]}),
        ((Thinking("t"),), {"reasoning_content": "t", "content": None}),
        ((Text("a"), Text("b")), {"content": [{"type": "text", "text": t} for t in "ab"]}),
        ((), {"content": ""}),
    ],
)
def test_an_answer_without_a_form_is_added_to_a_body_of_chat(blocks, members):
    request = decode({"role": "user", "content": "u"})
    answer = Message("assistant", blocks)  # as a thread has it, if it was not decoded
    request = structs.replace(request, messages=(*request.messages, answer))
    assert encode(request).body["messages"][1:] == [{"role": "assistant", **members}]


@pytest.mark.parametrize("is_native", [True, False])
def test_a_merged_system_message_is_not_adapted_to_an_older_server(is_native):
    parts = [{"type": "text", "text": text} for text in "BC"]
    body = {
        "model": "m",
        "messages": [
            {"role": "developer", "content": "A"},
            {"role": "user", "content": "u"},
            {"role": "system", "content": parts},
        ],
    }
    request = CHAT.decode_request(body, None)
    if not is_native:
        request = structs.replace(request, raw={}, wire=None)
    older = Model(name="m", developer=False, system_parts=False)
    done = CHAT.encode_request(request, Target(older, system="merge", enforce=True))
    assert done.body["messages"] == [
        {"role": "system", "content": "A\n\nB\nC"},
        {"role": "user", "content": "u"},
    ]
    assert [(loss.path, loss.code) for loss in done.losses] == [("messages[2]", "system_merged")]


@pytest.mark.parametrize(
    ("block", "sent"),
    [
        (Image(FileRef("f")), False),
        (Image(Url("https://a")), True),
        (File(Url("https://a")), False),
        (File(FileRef("f")), False),
        (File(Inline("AA", "application/pdf"), "a.pdf"), True),
        (Audio(Inline("AA", "audio/mp3")), True),
        (Audio(Inline("AA", "audio/ogg")), False),
        (Opaque("gemini", {"type": "x"}), False),
    ],
)
def test_unsupported_media_is_a_loss(block, sent):
    done = encode(foreign(Message("user", (Text("a"), block))))
    assert bool(done.losses) == (not sent)
    assert (len(done.body["messages"][0]["content"]) == 2) == sent


def answer(message, finish="stop", **members):
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], **members}


@pytest.mark.parametrize(
    "body",
    [
        answer({"role": "assistant", "content": "hi"}),
        answer({"role": "assistant", "content": None, "refusal": "no"}),
        answer({"role": "assistant", "content": None, "tool_calls": [call()]}, "tool_calls"),
        answer({"role": "assistant", "tool_calls": [call()], "annotations": []}, "stop"),
        answer({"role": "assistant", "content": ""}, "eos", created=3, service_tier="default"),
        answer({"role": "assistant", "content": "a", "reasoning": "t"}, None, usage=None),
        answer(
            {
                "role": "assistant",
                "content": None,
                "audio": {"id": "a", "data": "AA", "expires_at": 1},
            }
        ),
        answer(
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "f", "arguments": "{}"},
            },
            "function_call",
        ),
    ],
)
def test_an_answer_round_trips(body):
    assert CHAT.encode_response(CHAT.decode_response(body), 9).body == body


def test_additional_choices_are_kept():
    body = answer({"role": "assistant", "content": "a"})
    body["choices"].append({**body["choices"][0], "index": 1})
    response = CHAT.decode_response(body)
    assert response.message.blocks == (Text("a"),)
    assert CHAT.encode_response(response, 9).body == body
    losses = weft.translate_response(body, "openai-chat", "anthropic").losses
    assert [(loss.code, loss.path) for loss in losses if "alternative" in loss.code] == [
        ("alternative_dropped", "choices[1]")
    ]


@pytest.mark.parametrize(
    ("finish", "message", "kind"),
    [
        ("stop", {"content": "a"}, "end"),
        ("length", {"content": "a"}, "length"),
        ("tool_calls", {"tool_calls": [call()]}, "tool"),
        ("function_call", {"function_call": {"name": "f", "arguments": ""}}, "tool"),
        ("content_filter", {"content": ""}, "filter"),
        ("stop", {"tool_calls": [call()]}, "tool"),  # some servers send it beside calls
        (None, {"content": "a"}, "end"),
        ("eos", {"content": "a"}, "other"),
    ],
)
def test_finish_reasons(finish, message, kind):
    stop = CHAT.decode_response(answer({"role": "assistant", **message}, finish)).stop
    assert stop == Stop(kind, finish)


@pytest.mark.parametrize(
    ("stop", "word"),
    [
        ("end", "stop"),
        ("sequence", "stop"),
        ("length", "length"),
        ("context", "length"),
        ("refusal", "content_filter"),
        ("filter", "content_filter"),
        ("pause", "stop"),
        ("other", "stop"),
    ],
)
def test_stops_of_other_protocols(stop, word):
    done = CHAT.encode_response(Response(Message("assistant"), stop=Stop(stop)), 9)
    assert done.body["choices"][0]["finish_reason"] == word
    assert bool(done.losses) == (stop not in ("end", "length", "filter"))


def test_an_answer_of_another_protocol():
    message = Message(
        "assistant",
        (Thinking("t", "s"), Text("a"), Text("b"), ToolCall("c1", "f", "{}")),
        origin=Origin("anthropic"),
    )
    usage = Usage(input=10, output=5, cached=4, reasoning=2)
    done = CHAT.encode_response(Response(message, "msg_1", "claude", Stop("tool"), usage), 9)
    assert done.body == {
        "id": "msg_1",
        "object": "chat.completion",
        "created": 9,
        "model": "claude",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "reasoning_content": "t",
                    "content": "ab",
                    "refusal": None,
                    "tool_calls": [call()],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
    }
    assert [loss.level for loss in done.losses] == ["form", "form", "form"]


def test_an_error_with_status_200_is_an_error():
    with pytest.raises(UpstreamFailed, match="no credit"):
        CHAT.decode_response({"error": {"message": "no credit", "code": 402}})


def chunk(delta=None, finish=None, **members):
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    envelope = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**envelope, "choices": [choice], **members}


def sse(*chunks, done=True):
    frames = [f"data: {json.dumps(item)}\n\n" for item in chunks]
    return ("".join(frames) + ("data: [DONE]\n\n" if done else "")).encode()


def events_of(data, cut=None):
    parser, decoder = SseParser(), CHAT.stream_decoder()
    pieces = [data] if cut is None else [data[:cut], data[cut:]]
    frames = [frame for piece in pieces for frame in parser.feed(piece)] + parser.close()
    return [event for frame in frames for event in decoder.feed(frame)] + decoder.close()


def folded(data):
    folding = Fold(Origin("openai-chat", model="m"))
    for event in events_of(data):
        folding.send(event)
    return folding


def tool(index, **members):
    return {"tool_calls": [{"index": index, **members}]}


STREAMS = [
    (
        [chunk({"role": "assistant", "content": ""}), chunk({"content": "a"}), chunk({}, "stop")],
        (Text("a"),),
    ),
    (
        [chunk({"reasoning_content": "r"}), chunk({"content": "a"}), chunk({}, "stop")],
        (Thinking("r", ext=own(item="reasoning_content")), Text("a")),
    ),
    (
        [  # kinds of prose that take turns keep their order
            chunk({"reasoning": "r"}),
            chunk({"content": "a"}),
            chunk({"reasoning": "s"}),
            chunk(tool(0, id="c", type="function", function={"name": "f", "arguments": "{}"})),
            chunk({"content": "b"}, "tool_calls"),
        ],
        (
            Thinking("r", ext=own(item="reasoning")),
            Text("a"),
            Thinking("s", ext=own(item="reasoning")),
            ToolCall("c", "f", "{}"),
            Text("b"),
        ),
    ),
    (
        [  # id, name and arguments in different deltas, and interleaved
            chunk(tool(0, id="c0", type="function")),
            chunk(tool(0, function={"arguments": '{"a"'})),
            chunk(tool(0, function={"name": "f"})),
            chunk(tool(1, id="c1", function={"name": "g", "arguments": ""})),
            chunk(tool(0, function={"arguments": ":1}"})),
            chunk(tool(1, function={"arguments": "{}"})),
            chunk({}, "tool_calls"),
        ],
        (ToolCall("c0", "f", '{"a":1}'), ToolCall("c1", "g", "{}")),
    ),
    (
        [  # all parallel calls numbered 0
            chunk(tool(0, id="c0", function={"name": "f", "arguments": "{}"})),
            chunk(tool(0, id="c1", function={"name": "f", "arguments": "{}"})),
            chunk({}, "tool_calls"),
        ],
        (ToolCall("c0", "f", "{}"), ToolCall("c1", "f", "{}")),
    ),
    (
        [
            chunk(tool(0, id="c0", type="custom", custom={"name": "p", "input": "*"})),
            chunk(tool(0, custom={"input": "x"})),
            chunk({}, "tool_calls"),
        ],
        (ToolCall("c0", "p", "*x", custom=True),),
    ),
    ([chunk({"refusal": "n"}), chunk({"refusal": "o"}), chunk({}, "stop")], (Refusal("no"),)),
    (
        [
            chunk({"function_call": {"name": "f", "arguments": ""}}),
            chunk({"function_call": {"arguments": "{}"}}, "function_call"),
        ],
        (ToolCall("function_call_0", "f", "{}", ext=own(item="function_call")),),
    ),
    (
        [
            chunk({"audio": {"id": "a", "data": "A"}}),
            chunk({"audio": {"data": "B", "expires_at": 3}}, "stop"),
        ],
        (Audio(FileRef("a"), own(data="AB", expires_at=3)),),
    ),
    (
        [
            chunk(
                {"reasoning": "r", "reasoning_details": [{"type": "t", "index": 0, "text": "r"}]}
            ),
            chunk(
                {"reasoning": "s", "reasoning_details": [{"type": "t", "index": 0, "text": "s"}]}
            ),
            chunk({}, "stop"),
        ],
        (
            Thinking(
                "rs",
                ext=own(
                    item="reasoning", reasoning_details=[{"type": "t", "index": 0, "text": "rs"}]
                ),
            ),
        ),
    ),
]


@pytest.mark.parametrize(("chunks", "blocks"), STREAMS)
def test_a_stream_folds_into_its_answer(chunks, blocks):
    done = folded(sse(*chunks))
    assert done.error is None
    assert done.response().message.blocks == blocks


@pytest.mark.parametrize("chunks", [chunks for chunks, _ in STREAMS])
def test_a_stream_round_trips_split_at_every_byte(chunks):
    data = sse(*[{**item, "obfuscation": "xy", "usage": None} for item in chunks])
    whole = events_of(data)
    encoder = CHAT.stream_encoder(0)
    assert b"".join(write_frame(f) for event in whole for f in encoder.send(event)) == data
    assert all(events_of(data, cut) == whole for cut in range(len(data)))


def test_a_stream_gives_the_same_answer_as_the_body():
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    piece = {"content": [{"token": "a"}]}
    first = chunk({"role": "assistant", "content": "a"})
    first["choices"][0]["logprobs"] = piece
    second = chunk({"content": "a"})
    second["choices"][0]["logprobs"] = piece
    last = {**chunk(), "choices": [], "usage": usage}
    streamed = folded(sse(first, second, chunk({}, "stop"), last)).response()
    body = answer({"role": "assistant", "content": "aa"}, created=1, usage=usage)
    body["choices"][0]["logprobs"] = {"content": [{"token": "a"}, {"token": "a"}]}
    assert streamed == CHAT.decode_response(body)


@pytest.mark.parametrize(
    "data",
    [
        sse(chunk({"content": "a"}), done=False),
        sse(chunk({"content": "a"})),  # the mark, but no reason and no count
        sse(chunk({"content": "a"}), {"error": {"message": "overloaded", "code": 503}}),
        b"data: <html>\n\n",
        b"data: 3\n\n",
        b"",
    ],
)
def test_a_truncated_stream_is_never_a_success(data):
    events = events_of(data)
    assert sum(isinstance(event, Fail) for event in events) == 1
    assert not any(isinstance(event, End) for event in events)
    for codec in CODECS.values():
        encoder = codec.stream_encoder(0)
        sent = b"".join(write_frame(f) for event in events for f in encoder.send(event))
        assert b"error" in sent


def test_a_stream_without_a_finish_reason_is_complete_after_its_usage():
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    done = folded(sse(chunk({"content": "a"}), {**chunk(), "choices": [], "usage": usage}))
    assert done.error is None
    assert done.response().stop == Stop("end")


def test_unknown_members_are_one_event_per_kind():
    events = events_of(
        sse(chunk({"content": "a"}, x_groq={"a": 1}), chunk({"content": "b"}, x_groq={"b": 2}))
    )
    others = [e for e in events if isinstance(e, Other) and e.event_count is None]
    assert others == [Other("openai-chat", "x_groq", {"a": 1})]


def test_a_stream_of_another_protocol():
    encoder = CHAT.stream_encoder(9)
    events = [
        Start("msg_1", "claude", Usage(input=10)),
        Open(0, Thinking("")),
        Delta(0, "thinking", "so"),
        Delta(0, "signature", "s"),
        Close(0),
        Open(1, Text("")),
        Delta(1, "text", "a"),
        Open(2, ToolCall("c0", "f", "")),
        Open(3, ToolCall("c1", "g", "")),
        Delta(3, "arguments", "{"),
        Close(1),
        Close(2),
        Close(3, ToolCall("c1", "g", '{"x":1}')),  # the last word says more than the deltas
        Other("anthropic", "ping", {}),
        Finish(Stop("tool", "tool_use"), Usage(output=5)),
        End(),
    ]
    frames = [frame.data for event in events for frame in encoder.send(event)]
    assert frames[-1] == "[DONE]"
    chunks = [json.loads(frame) for frame in frames[:-1]]
    assert all((c["id"], c["created"], c["model"]) == ("msg_1", 9, "claude") for c in chunks)
    assert [c["choices"][0]["delta"] for c in chunks if c["choices"]] == [
        {"role": "assistant"},
        {"reasoning_content": "so"},
        {"content": "a"},
        tool(0, id="c0", type="function", function={"name": "f", "arguments": ""}),
        tool(1, id="c1", type="function", function={"name": "g", "arguments": ""}),
        tool(1, function={"arguments": "{"}),
        tool(0, function={"arguments": "{}"}),
        tool(1, function={"arguments": '"x":1}'}),
        {},
    ]
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert chunks[-1]["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
    }
    assert [loss.code for loss in encoder.losses.items] == ["thinking_signature_dropped"]


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, {"message": "x", "type": "invalid_request_error"}, "invalid_request"),
        (400, {"message": "x", "code": "context_length_exceeded"}, "context_length"),
        (401, {"message": "x", "type": "invalid_request_error"}, "authentication"),
        (404, {"message": "x", "code": "model_not_found"}, "not_found"),
        (429, {"message": "x", "type": "insufficient_quota"}, "billing"),
        (429, {"message": "x", "type": "tokens"}, "rate_limit"),
        (500, {"message": "x", "type": "server_error"}, "server"),
        (503, {"message": "x", "type": "server_error"}, "overloaded"),
        (0, {"message": "x", "code": 502}, "server"),
        (0, {"message": "x"}, "server"),
    ],
)
def test_errors_round_trip(status, error, kind):
    body = {"error": error}
    decoded = CHAT.decode_error(body, status)
    assert decoded.kind == kind
    assert CHAT.encode_error(decoded) == (decoded.status, body)


def test_the_code_of_a_full_context_window_is_always_set():
    """Codex recognises it only by this code."""
    body = {"error": {"message": "This model's maximum context length is 5", "extra": 1}}
    decoded = CHAT.decode_error(body, 400)
    code = {"code": "context_length_exceeded"}
    assert CHAT.encode_error(decoded) == (400, {"error": {**body["error"], **code}})


@pytest.mark.parametrize(
    ("kind", "status", "type", "code"),
    [
        ("context_length", 400, "invalid_request_error", "context_length_exceeded"),
        ("overloaded", 529, "server_error", "server_is_overloaded"),
        ("authentication", 401, "invalid_request_error", "invalid_api_key"),
        ("rate_limit", 429, "rate_limit_error", "rate_limit_exceeded"),
    ],
)
def test_errors_of_other_protocols(kind, status, type, code):
    texts = CHAT.encode_error(ApiError(kind, "why", status, param="messages[0]"))
    error = {"message": "why", "type": type, "param": "messages[0]", "code": code}
    assert texts == (status, {"error": error})


@pytest.mark.parametrize("body", ["<html>bad gateway</html>", None, [], {"error": "plain words"}])
def test_any_other_error_body_is_still_an_error(body):
    error = CHAT.decode_error(body, 502)
    assert error.kind == "server"
    assert error.message


def test_recorded_traffic_round_trips():
    for exchange in recorded("openai-chat"):
        request = CHAT.decode_request(exchange["request"], None)
        done = encode(request)
        assert done.body == exchange["request"], exchange["id"]
        assert done.losses == [], exchange["id"]
        body = exchange.get("response") or {}
        if "choices" in body:
            assert CHAT.encode_response(CHAT.decode_response(body), 0).body == body, exchange["id"]


def test_recorded_streams_round_trip_and_fold():
    for exchange in recorded("openai-chat"):
        data = exchange.get("sse", "").encode()
        if not data:
            continue
        parser, encoder = SseParser(), CHAT.stream_encoder(0)
        frames = parser.feed(data) + parser.close()
        events = events_of(data)
        assert [f for event in events for f in encoder.send(event)] == frames, exchange["id"]
        folding = Fold()
        for event in events:
            folding.send(event)
        assert folding.error is not None or folding.response().stop is not None, exchange["id"]


@pytest.mark.parametrize("kind", ["function", "custom"])
def test_a_tool_without_its_definition_is_refused(kind):
    body = {"model": "m", "messages": [], "tools": [{"type": kind}]}
    with pytest.raises(weft.Refused) as refused:
        weft.translate(body, "openai-chat", "anthropic")
    assert refused.value.param == f"tools[0].{kind}"
