"""OpenAI Responses: round trips, and translation from and to the other protocols."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import orjson
import pytest

from corpus import recorded
from weft.catalog import Model
from weft.codec import CODECS, Frame, SseParser, Target, write_frame
from weft.errors import Refused
from weft.model import (
    ApiError,
    Close,
    Delta,
    End,
    Event,
    Fail,
    Finish,
    Image,
    Inline,
    Message,
    Opaque,
    Open,
    Origin,
    Params,
    Reasoning,
    Redacted,
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
    Usage,
    fold,
)

RESPONSES = CODECS["openai-responses"]
ANTHROPIC = CODECS["anthropic"]
CHAT = CODECS["openai-chat"]
MODEL = Target(Model(name="m"))
P = "openai-responses"

CALL = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"a": 1}'}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "done"}
PIXEL = "data:image/png;base64,AAAA"


def body_of(*items: Any, **members: Any) -> dict[str, Any]:
    return {"model": "m", "input": list(items), **members}


def decoded(*items: Any, **members: Any) -> Request:
    return RESPONSES.decode_request(body_of(*items, **members), None)


def written(*messages: Message, **members: Any) -> tuple[dict[str, Any], list[str]]:
    """The body of a compiled thread for this protocol, and the losses."""
    encoded = RESPONSES.encode_request(Request("m", messages, **members), MODEL)
    return encoded.body, [loss.code for loss in encoded.losses]


SAME = [
    {"model": "m", "input": "hi"},
    {"model": "m", "input": ""},
    {"model": "m", "input": "hi", "instructions": "be brief"},
    {"model": "m", "input": "hi", "instructions": ""},
    {"model": "m", "input": "hi", "instructions": None, "tools": []},
    body_of(instructions="x"),
    body_of({"role": "system", "content": "not instructions"}, {"role": "user", "content": "u"}),
    body_of({"role": "user", "content": "one"}, {"role": "user", "content": "two"}),
    body_of({"type": "message", "role": "user", "id": "msg_1", "content": ""}),
    body_of({"role": "user", "content": [{"type": "input_text", "text": "a", "future": 1}]}),
    body_of({"role": "user", "content": [{"type": "input_image", "image_url": PIXEL}]}),
    body_of(
        {
            "role": "user",
            "content": [
                {"type": "input_image", "image_url": None, "file_id": "file-1", "detail": "low"},
                {"type": "input_image", "image_url": "https://a/b.png", "detail": None},
                {"type": "input_file", "file_data": "data:text/plain;base64,QQ==", "filename": "a"},
                {"type": "input_file", "file_data": "QQ=="},
                {"type": "input_file", "file_url": "https://a/b.pdf"},
                {"type": "hologram", "depth": 3},
            ],
        }
    ),
    body_of({"role": "assistant", "content": "a"}, CALL, RESULT),
    body_of({"role": "assistant", "content": ""}, CALL, RESULT),
    body_of({"role": "assistant", "content": [], "id": "msg_1"}, CALL, RESULT),
    body_of({"role": "assistant", "content": None}, {"role": "assistant"}),
    body_of(
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_1",
            "status": "completed",
            "phase": "commentary",
            "content": [
                {"type": "output_text", "text": "a", "annotations": [], "logprobs": []},
                {"type": "refusal", "refusal": "no"},
            ],
        },
        {"type": "message", "role": "assistant", "id": "msg_2", "content": "string"},
        {**CALL, "id": "fc_1", "status": "completed", "namespace": "files"},
        {**RESULT, "id": "fco_1", "status": "completed"},
    ),
    body_of({"role": "assistant", "content": [{"type": "input_text", "text": "odd"}]}),
    body_of({"role": "assistant", "content": [{"type": "hologram"}]}, CALL),
    body_of({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAA"}),
    body_of({"type": "reasoning", "id": "rs_1", "summary": [], "content": None}),
    body_of(
        {
            "type": "reasoning",
            "summary": [
                {"type": "summary_text", "text": "a"},
                {"type": "summary_text", "text": "b"},
            ],
            "encrypted_content": None,
        }
    ),
    body_of(
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "hm"}],
            "status": "completed",
        }
    ),
    body_of(
        {"type": "custom_tool_call", "call_id": "c1", "name": "exec", "input": 'say "x"\n'},
        {
            "type": "custom_tool_call_output",
            "call_id": "c1",
            "output": [{"type": "input_text", "text": "x"}],
        },
    ),
    body_of(
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "web_search"}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}},
        {"type": "computer_call_output", "call_id": "c2", "output": {"type": "screenshot"}},
        {"type": "item_reference", "id": "msg_9"},
        {"type": "compaction", "encrypted_content": "gAA"},
    ),
    body_of(
        tools=[
            {"type": "function", "name": "f", "parameters": {"type": "object"}},
            {"type": "custom", "name": "c", "format": {"type": "text"}},
            {"type": "namespace", "name": "n", "tools": []},
            {"type": "web_search", "search_context_size": "low"},
        ],
        tool_choice={"type": "allowed_tools", "mode": "auto", "tools": []},
        previous_response_id="resp_1",
        future_parameter={"x": None},
    ),
]


@pytest.mark.parametrize("body", SAME, ids=range(len(SAME)))
def test_the_same_protocol_round_trips(body: dict[str, Any]) -> None:
    encoded = RESPONSES.encode_request(RESPONSES.decode_request(body, None), MODEL)
    assert (encoded.body, encoded.losses) == (body, [])


GROUPS: list[tuple[list[dict[str, Any]], list[tuple[str, int]]]] = [
    ([{"role": "assistant", "content": "a"}, CALL, RESULT], [("assistant", 2), ("tool", 1)]),
    ([CALL, {"role": "assistant", "content": "a"}], [("assistant", 1), ("assistant", 1)]),
    ([CALL, {"role": "assistant", "id": "m", "content": "a"}], [("assistant", 2)]),
    ([{"type": "reasoning", "summary": []}, CALL, CALL], [("assistant", 3)]),
    ([{"type": "web_search_call", "id": "w"}, CALL], [("assistant", 2)]),
    ([RESULT, RESULT], [("tool", 1), ("tool", 1)]),
    ([{"type": "mcp_approval_response", "approve": True}, CALL], [("tool", 1), ("assistant", 1)]),
    (
        [CALL, {"type": "additional_tools", "role": "developer"}],
        [("assistant", 1), ("developer", 0)],
    ),
    ([CALL, {"type": "compaction_trigger"}], [("assistant", 1), ("user", 1)]),
]


@pytest.mark.parametrize(("items", "messages"), GROUPS)
def test_consecutive_items_of_the_assistant_are_one_message(
    items: list[dict[str, Any]], messages: list[tuple[str, int]]
) -> None:
    assert [(m.role, len(m.blocks)) for m in decoded(*items).messages] == messages


def test_items_become_blocks_with_a_shared_meaning() -> None:
    request = decoded(
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [
                {"type": "summary_text", "text": "a"},
                {"type": "summary_text", "text": "b"},
            ],
            "encrypted_content": "sealed",
        },
        {**CALL, "namespace": "files"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "exec", "input": "x"},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [{"type": "input_image", "image_url": PIXEL, "detail": "high"}],
        },
    )
    thinking, call, custom = request.messages[0].blocks
    assert isinstance(thinking, Thinking)
    assert (thinking.text, thinking.signature) == ("a\n\nb", "sealed")
    assert call == ToolCall("c1", "read", '{"a": 1}', namespace="files")
    assert custom == ToolCall("c2", "exec", "x", custom=True)
    picture = Image(Inline("AAAA", "image/png"), "high")
    assert request.messages[1].blocks == (ToolResult("c1", (picture,), form="list"),)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model": "m", "input": 5}, "input"),
    ({"model": "m", "input": ["x"]}, "input[0]"),
    ({"input": "x"}, "model"),
    ({"model": "m", "input": "x", "instructions": ["a"]}, "instructions"),
    (body_of({"content": "x"}), "input[0].role"),
    (body_of({"role": "user", "content": 3}), "input[0].content"),
    (body_of(CALL, {"role": "user", "content": [{"text": "x"}]}), "input[1].content[0].type"),
    (body_of({"type": "function_call", "call_id": "c", "name": "n"}), "input[0].arguments"),
    (body_of(tools=[{"type": "function"}]), "tools[0].name"),
    (body_of(tools=[{"type": "namespace", "tools": []}]), "tools[0].name"),
    (body_of(tools=[{"type": "namespace", "name": 5, "tools": []}]), "tools[0].name"),
    (body_of(temperature="hot"), "temperature"),
    (body_of(reasoning={"effort": 3}), "reasoning.effort"),
]


@pytest.mark.parametrize(("body", "param"), REFUSED)
def test_an_invalid_body_is_refused_with_its_path(body: dict[str, Any], param: str) -> None:
    with pytest.raises(Refused) as refused:
        RESPONSES.decode_request(body, None)
    assert refused.value.param == param


def test_an_empty_developer_message_gets_the_role_of_an_older_server() -> None:
    tools = {"type": "additional_tools", "role": "developer", "tools": []}
    request = decoded({"role": "developer", "content": ""}, tools, {"role": "user", "content": "u"})
    older = Target(Model(name="m", developer=False), enforce=True)
    encoded = RESPONSES.encode_request(request, older)
    assert encoded.body["input"][:2] == [{"role": "system", "content": ""}, tools]
    assert [(loss.path, loss.code) for loss in encoded.losses] == [("input[0]", "role_changed")]


MISSING: list[tuple[dict[str, Any], str]] = [
    (body_of(previous_response_id="resp_1"), "previous_response_id"),
    (body_of(conversation="conv_1"), "conversation"),
    (body_of(prompt={"id": "pmpt_1"}), "prompt"),
    (body_of({"role": "user", "content": "x"}, {"type": "item_reference", "id": "m"}), "input[1]"),
]


@pytest.mark.parametrize(("body", "param"), MISSING)
@pytest.mark.parametrize("codec", [ANTHROPIC, CHAT], ids=lambda codec: codec.protocol)
def test_context_that_is_not_in_the_body_is_refused_elsewhere(
    codec: Any, body: dict[str, Any], param: str
) -> None:
    request = RESPONSES.decode_request(body, None)
    with pytest.raises(Refused) as refused:
        codec.encode_request(request, MODEL)
    assert (refused.value.param, refused.value.status) == (param, 400)


def test_W5_an_image_in_a_system_message_is_refused_in_the_callers_protocol() -> None:
    content = [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": PIXEL}]
    request = decoded({"role": "developer", "content": content}, {"role": "user", "content": "x"})
    with pytest.raises(Refused, match="'input_image' content part in a developer message") as it:
        ANTHROPIC.encode_request(request, MODEL)
    assert it.value.param == "input[0].content[1]"


PATHS: list[tuple[tuple[int | str, ...], str]] = [
    ((0,), "instructions"),
    ((1, 0), "input[0].content"),
    ((2, 0), "input[1].content[0]"),
    ((2, 1), "input[1].content[1]"),
    ((2, 2), "input[2]"),
    ((3, 0), "input[3]"),
    ((3, 0, 1), "input[3].output[1]"),
    (("tools", 0), "tools[0]"),
    (("tools", 1), "input[4].tools[0]"),
]


@pytest.mark.parametrize(("place", "path"), PATHS)
def test_positions_are_reported_as_the_callers_paths(place: Any, path: str) -> None:
    texts = [{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "b"}]
    text = {"type": "input_text", "text": "x"}
    request = decoded(
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": texts},
        CALL,
        {**RESULT, "output": [text, text]},
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "web_search"}]},
        instructions="be brief",
        tools=[{"type": "function", "name": "f", "parameters": {}}],
    )
    assert request.wire is not None
    assert request.wire.locate(place) == path


def system(*texts: str, role: str = "system", form: Any = "text") -> Message:
    return Message(role, tuple(Text(text) for text in texts), form=form)


USER = Message("user", (Text("hi"),), form="text")
HI = {"role": "user", "content": "hi"}
LEADS: list[tuple[list[Message], str | None, list[dict[str, Any]]]] = [
    ([system("A")], "A", []),
    ([system("A", form="list")], "A", []),
    (
        [system("A"), system("B", role="developer"), system("C")],
        "A",
        [{"role": "developer", "content": "B"}, {"role": "system", "content": "C"}],
    ),
    (
        [system("A", "B", form="list")],
        None,
        [
            {
                "role": "system",
                "content": [
                    {"type": "input_text", "text": "A"},
                    {"type": "input_text", "text": "B"},
                ],
            }
        ],
    ),
    ([system("A", role="developer")], None, [{"role": "developer", "content": "A"}]),
]


@pytest.mark.parametrize(("lead", "instructions", "items"), LEADS)
def test_the_first_system_text_becomes_instructions(
    lead: list[Message], instructions: str | None, items: list[dict[str, Any]]
) -> None:
    body, _ = written(*lead, USER)
    assert (body.get("instructions"), body["input"]) == (instructions, [*items, HI])


def test_merged_system_text_is_one_instructions_string() -> None:
    request = Request("m", (system("A"), USER, system("B", "C", form="list")))
    encoded = RESPONSES.encode_request(request, Target(Model(name="m"), system="merge"))
    assert (encoded.body["instructions"], encoded.body["input"]) == ("A\n\nB\nC", [HI])


def test_a_later_system_message_keeps_its_position() -> None:
    body, losses = written(USER, system("now brief"), USER)
    assert body["input"] == [HI, {"role": "system", "content": "now brief"}, HI]
    assert losses == []


def answer_message(*blocks: Any, form: Any = "list", origin: Origin | None = None) -> Message:
    return Message("assistant", blocks, form=form, origin=origin)


OWN = Origin(P)
WRITTEN: list[tuple[Message, list[dict[str, Any]], list[str]]] = [
    (answer_message(Text("a"), form="text"), [{"role": "assistant", "content": "a"}], []),
    (
        answer_message(Text("a"), Refusal("no")),
        [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "no"}],
        [
            "list_as_string",
            "message_split",
            "list_as_string",
            "refusal_as_text",
        ],
    ),
    (
        answer_message(Thinking("hm", "sig", None)),
        [],
        ["thinking_of_another_model", "message_dropped"],
    ),
    (
        answer_message(Thinking("hm", "sig"), origin=OWN),
        [
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "hm"}],
                "encrypted_content": "sig",
            }
        ],
        [],
    ),
    (answer_message(Redacted("xx")), [], ["thinking_of_another_model", "message_dropped"]),
    (
        answer_message(Opaque("anthropic", {"type": "server_tool_use"})),
        [],
        ["vendor_block_dropped", "message_dropped"],
    ),
]


@pytest.mark.parametrize(("message", "items", "losses"), WRITTEN)
def test_an_assistant_turn_of_another_protocol(
    message: Message, items: list[dict[str, Any]], losses: list[str]
) -> None:
    body, lost = written(USER, message)
    assert (body["input"][1:], lost) == (items, losses)


def test_calls_and_results_of_another_protocol() -> None:
    call = answer_message(
        Text("look"), ToolCall("x" * 80, "read", "{}"), ToolCall("c2", "exec", "ls", True)
    )
    results = Message(
        "user",
        (
            ToolResult("x" * 80, (Text("no such file"),), is_error=True, form="text"),
            ToolResult("c2", (Text("a"), Image(Inline("AAAA", "image/png"))), form="list"),
            Text("go on"),
        ),
        form="list",
    )
    body, losses = written(USER, call, results)
    _, message, first, second, failed, listed, user = body["input"]
    assert message["content"] == "look"
    assert len(first["call_id"]) == 64
    assert failed == {
        "type": "function_call_output",
        "call_id": first["call_id"],
        "output": "no such file",
    }
    assert second == {"type": "custom_tool_call", "call_id": "c2", "name": "exec", "input": "ls"}
    assert listed["type"] == "custom_tool_call_output"
    assert listed["output"][1] == {"type": "input_image", "image_url": PIXEL}
    assert user == {"role": "user", "content": [{"type": "input_text", "text": "go on"}]}
    assert losses == [
        "call_id_changed",
        "list_as_string",
        "call_id_changed",
        "error_flag_dropped",
        "beside_results_moved",
    ]


def test_two_joined_assistant_messages_are_reported() -> None:
    _, losses = written(
        USER,
        answer_message(Text("a"), form="text"),
        answer_message(ToolCall("c", "f", "{}")),
        Message("tool", (ToolResult("c", (Text("r"),), form="text"),)),
    )
    assert losses == ["message_boundary_dropped"]


PARAMS: list[tuple[Params, dict[str, Any], list[str]]] = [
    (
        Params(max_tokens=90, top_p=0.5, stream=True),
        {"max_output_tokens": 90, "top_p": 0.5, "stream": True},
        [],
    ),
    (Params(tool_choice=ToolChoice("any")), {"tool_choice": "required"}, []),
    (
        Params(tool_choice=ToolChoice("tool", "c")),
        {"tool_choice": {"type": "custom", "name": "c"}},
        [],
    ),
    (Params(reasoning=Reasoning(effort="low")), {"reasoning": {"effort": "low"}}, []),
    (Params(reasoning=Reasoning(mode="off")), {"reasoning": {"effort": "none"}}, []),
    (Params(reasoning=Reasoning(mode="on", budget=9)), {}, ["thinking_budget_dropped"]),
    (Params(verbosity="low"), {"text": {"verbosity": "low"}}, []),
    (Params(stop=("x",), n=1), {}, ["param_dropped", "param_dropped"]),
]


@pytest.mark.parametrize(("params", "members", "losses"), PARAMS)
def test_parameters_of_another_protocol(
    params: Params, members: dict[str, Any], losses: list[str]
) -> None:
    tool = Tool("c", kind="custom")
    body, lost = written(USER, params=params, tools=(tool,))
    assert {key: body[key] for key in body.keys() - {"model", "input", "tools"}} == members
    assert lost == losses


def test_a_format_is_flat_and_named() -> None:
    schema = {"type": "object"}
    shared = decoded(text={"format": {"type": "json_schema", "name": "n", "schema": schema}}).params
    body, losses = written(USER, params=shared)
    assert body["text"] == {"format": {"type": "json_schema", "name": "n", "schema": schema}}
    assert losses == []


def test_a_grammar_is_quoted_for_protocols_without_one() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: WORD"}
    request = decoded(tools=[{"type": "custom", "name": "c", "format": grammar}])
    (tool,) = ANTHROPIC.encode_request(request, MODEL).body["tools"]
    assert tool["description"] == "The input follows this lark grammar:\nstart: WORD"
    assert tool["input_schema"]["required"] == ["input"]


def test_tools_inside_the_list_become_tools_elsewhere() -> None:
    read = {"type": "function", "name": "read", "parameters": {"type": "object"}}
    request = decoded(
        {"type": "additional_tools", "role": "developer", "tools": [read]},
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": "hi"},
    )
    body = ANTHROPIC.encode_request(request, MODEL).body
    assert [tool["name"] for tool in body["tools"]] == ["read"]
    assert body["system"] == [{"type": "text", "text": "be brief"}]
    assert [message["role"] for message in body["messages"]] == ["user"]


ANSWER: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "status": "completed",
    "model": "gpt",
    "tools": [],
    "incomplete_details": None,
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}],
         "encrypted_content": "sealed"},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
            {"type": "output_text", "text": "Grüße 👋", "annotations": [], "logprobs": []}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read",
         "arguments": "{}", "status": "completed"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    ],
    "usage": {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 14,
    },
}  # fmt: skip

STOPS: list[tuple[dict[str, Any], str]] = [
    ({}, "tool"),
    ({"output": ANSWER["output"][:2]}, "end"),
    (
        {
            "output": [
                {
                    "type": "message",
                    "id": "m",
                    "role": "assistant",
                    "content": [{"type": "refusal", "refusal": "no"}],
                }
            ]
        },
        "refusal",
    ),
    ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
    ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "filter"),
    ({"status": "incomplete", "incomplete_details": None}, "other"),
    ({"status": "queued", "output": [], "usage": None}, "other"),
]


@pytest.mark.parametrize(("members", "kind"), STOPS)
def test_an_answer_round_trips(members: dict[str, Any], kind: str) -> None:
    body = {**ANSWER, **members}
    response = RESPONSES.decode_response(body)
    assert response.stop is not None
    assert response.stop.kind == kind
    assert RESPONSES.encode_response(response, 0).body == body


def test_usage_counts_all_input() -> None:
    usage = RESPONSES.decode_response(ANSWER).usage
    assert usage is not None
    assert (usage.input, usage.cached, usage.output, usage.reasoning) == (9, 4, 5, 2)


FOREIGN = Response(
    Message(
        "assistant",
        (Thinking("hm", "sig"), Text("a"), Refusal("no"), ToolCall("c1", "read", "{}"),
         ToolCall("c2", "exec", "ls", custom=True), Redacted("xx")),
    ),
    id="msg_9",
    model="claude",
    stop=Stop("length", "max_tokens"),
    usage=Usage(input=3, output=2),
)  # fmt: skip


def test_an_answer_of_another_protocol_is_a_complete_response() -> None:
    types = pytest.importorskip("openai.types.responses")
    body = RESPONSES.encode_response(FOREIGN, 7).body
    assert types.Response.model_validate(body, strict=True).output_text == "a"
    assert [item["id"] for item in body["output"]] == [
        "rs_msg_9_0",
        "msg_msg_9_1",
        "msg_msg_9_2",
        "fc_msg_9_3",
        "ctc_msg_9_4",
        "rs_msg_9_5",
    ]
    assert (body["status"], body["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )
    assert body["created_at"] == 7


def events_of(data: bytes, cuts: Iterator[int] | range | None = None) -> list[Event]:
    parser, decoder = SseParser(), RESPONSES.stream_decoder()
    places = [0, *(cuts or ()), len(data)]
    pieces = [data[a:b] for a, b in pairwise(places)]
    frames = [frame for piece in pieces for frame in parser.feed(piece)] + parser.close()
    events = [event for frame in frames for event in decoder.feed(frame)]
    return events + decoder.close()


def encoded(events: list[Event]) -> list[dict[str, Any]]:
    encoder = RESPONSES.stream_encoder(7)
    return [orjson.loads(frame.data) for event in events for frame in encoder.send(event)]


def stream_of(*frames: dict[str, Any]) -> bytes:
    return b"".join(
        write_frame(Frame(orjson.dumps({**frame, "sequence_number": n}).decode(), frame["type"]))
        for n, frame in enumerate(frames)
    )


def streamed(answer: dict[str, Any]) -> bytes:
    """The frames in which the vendor streams this answer, with two items open at the same time."""
    reasoning, message, call, search = answer["output"]
    part = message["content"][0]
    return stream_of(
        {"type": "response.created", "response": {**answer, "status": "in_progress", "output": []}},
        {"type": "response.in_progress", "response": {**answer, "output": []}},
        {"type": "response.output_item.added", "output_index": 0,
         "item": {**reasoning, "summary": [], "encrypted_content": "early"}},
        {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0,
         "item_id": "rs_1", "part": {"type": "summary_text", "text": ""}},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0,
         "item_id": "rs_1", "delta": "hm", "obfuscation": "x9"},
        {"type": "response.output_item.done", "output_index": 0, "item": reasoning},
        {"type": "response.output_item.added", "output_index": 1,
         "item": {**message, "content": [], "status": "in_progress"}},
        {"type": "response.content_part.added", "output_index": 1, "content_index": 0,
         "item_id": "msg_1", "part": {**part, "text": ""}},
        {"type": "response.output_item.added", "output_index": 2,
         "item": {**call, "arguments": "", "status": "in_progress"}},
        {"type": "response.output_text.delta", "output_index": 1, "content_index": 0,
         "item_id": "msg_1", "delta": "Grüße "},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "item_id": "fc_1",
         "delta": "{"},
        {"type": "response.output_text.delta", "output_index": 1, "content_index": 0,
         "item_id": "msg_1", "delta": "👋"},
        {"type": "response.output_text.done", "output_index": 1, "text": part["text"]},
        {"type": "response.output_item.done", "output_index": 1, "item": message},
        {"type": "response.output_item.done", "output_index": 2, "item": call},
        {"type": "response.output_item.added", "output_index": 3, "item": search},
        {"type": "response.web_search_call.searching", "output_index": 3, "item_id": "ws_1"},
        {"type": "response.output_item.done", "output_index": 3, "item": search},
        {"type": "response.completed", "response": answer},
    )  # fmt: skip


STREAM = streamed(ANSWER)


def test_a_stream_folds_to_the_answer_it_streams() -> None:
    assert fold(events_of(STREAM), Origin(P, model="gpt")) == RESPONSES.decode_response(ANSWER)


def test_any_split_of_the_bytes_gives_the_same_events() -> None:
    whole = events_of(STREAM)
    assert events_of(STREAM, range(1, len(STREAM))) == whole
    for cut in range(1, len(STREAM), 7):
        assert events_of(STREAM, iter([cut])) == whole


def test_a_stream_round_trips_frame_by_frame() -> None:
    frames = [orjson.loads(frame.data) for frame in SseParser().feed(STREAM)]
    assert encoded(events_of(STREAM)) == frames


def test_deltas_contain_everything_that_the_finished_items_contain() -> None:
    text: dict[tuple[int, str], str] = {}
    for event in events_of(STREAM):
        if isinstance(event, Delta):
            key = (event.index, event.kind)
            text[key] = text.get(key, "") + event.text
    assert text == {
        (0, "thinking"): "hm",
        (0, "signature"): "sealed",
        (1, "text"): "Grüße 👋",
        (2, "arguments"): "{}",
    }


def test_only_events_without_a_meaning_are_lost_elsewhere() -> None:
    encoder = ANTHROPIC.stream_encoder(7)
    for event in events_of(STREAM):
        encoder.send(event)
    events = [loss for loss in encoder.losses.items if loss.code == "vendor_event_dropped"]
    assert [loss.detail for loss in events] == ["response.web_search_call.searching"]


def test_a_truncated_stream_fails() -> None:
    cut = STREAM[: STREAM.index(b"event: response.completed")]
    *_, last = events_of(cut)
    assert isinstance(last, Fail)
    frames = encoded(events_of(cut))
    assert frames[-1]["type"] == "response.failed"
    assert frames[-1]["sequence_number"] == len(frames) - 1


FAILURES: list[tuple[dict[str, Any], str]] = [
    ({"type": "error", "code": "rate_limit_exceeded", "message": "slow down"}, "rate_limit"),
    ({"type": "error", "error": {"code": "server_error", "message": "oh"}}, "server"),
    (
        {
            "type": "response.failed",
            "response": {
                "id": "resp_1",
                "status": "failed",
                "error": {"code": "context_length_exceeded", "message": "too much"},
            },
        },
        "context_length",
    ),
]


@pytest.mark.parametrize(("frame", "kind"), FAILURES)
def test_a_failure_inside_the_stream_is_never_a_normal_end(
    frame: dict[str, Any], kind: str
) -> None:
    events = events_of(stream_of(frame))
    (failure,) = [event.error for event in events if isinstance(event, Fail)]
    assert failure.kind == kind
    assert not any(isinstance(event, End) for event in events)
    assert encoded(events) == [{**frame, "sequence_number": 0}]


FOREIGN_EVENTS: list[Event] = [
    Start("msg_9", "claude"),
    Open(0, Thinking("")),
    Delta(0, "thinking", "hm"),
    Delta(0, "signature", "sig"),
    Close(0),
    Open(1, Text("he")),
    Open(2, ToolCall("c1", "read", "")),
    Delta(1, "text", "llo"),
    Delta(2, "arguments", "{}"),
    Close(2),
    Close(1),
    Finish(Stop("tool", "tool_use")),
    Finish(None, Usage(input=3, output=2)),
    End(),
]


def test_events_of_another_protocol_become_the_complete_sequence() -> None:
    assert [frame["type"] for frame in encoded(FOREIGN_EVENTS)] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_item.added",
        "response.output_text.delta",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]


def test_events_of_another_protocol_are_valid_and_give_the_same_answer() -> None:
    types = pytest.importorskip("openai.types.responses")
    pydantic = pytest.importorskip("pydantic")
    frames = encoded(FOREIGN_EVENTS)
    event_type = pydantic.TypeAdapter(types.ResponseStreamEvent)
    for number, frame in enumerate(frames):
        event_type.validate_python(frame)
        assert frame["sequence_number"] == number
    answer = frames[-1]["response"]
    assert answer["output"] == RESPONSES.encode_response(fold(FOREIGN_EVENTS), 7).body["output"]
    assert answer["usage"]["total_tokens"] == 5


@pytest.mark.parametrize(
    ("before", "kind"),
    [([], "error"), ([Start("r", "m"), Open(0, Text("a"))], "response.failed")],
)
def test_a_failure_of_another_protocol_is_written_in_this_format(
    before: list[Event], kind: str
) -> None:
    frames = encoded([*before, Fail(ApiError("context_length", "prompt is too long", 400))])
    assert frames[-1]["type"] == kind
    error = frames[-1] if kind == "error" else frames[-1]["response"]["error"]
    assert (error["code"], error["message"]) == ("context_length_exceeded", "prompt is too long")


def differing(protocol: str) -> Iterator[str]:
    """The recorded exchanges that do not round-trip."""
    for row in recorded(protocol):
        request = RESPONSES.decode_request(row["request"], None)
        written = RESPONSES.encode_request(request, MODEL)
        if written.body != row["request"] or written.losses:
            yield f"request {row['id']}"
        if row["status"] < 400 and "response" in row:
            answer = RESPONSES.encode_response(RESPONSES.decode_response(row["response"]), 0)
            if answer.body != row["response"]:
                yield f"response {row['id']}"
        elif row["status"] < 400:
            data = row["sse"].replace("data: [DONE]", "").encode()
            frames = [orjson.loads(frame.data) for frame in SseParser().feed(data)]
            if encoded(events_of(data)) != frames:
                yield f"stream {row['id']}"


def test_recorded_traffic_round_trips() -> None:
    assert list(differing(P)) == []


@pytest.mark.parametrize("protocol", ["anthropic", "openai-chat"])
def test_recorded_answers_of_other_protocols_are_valid_here(protocol: str) -> None:
    types = pytest.importorskip("openai.types.responses")
    answers = [
        row["response"]
        for row in recorded(protocol)
        if row["status"] < 400 and (row.get("response") or {}).keys() & {"choices", "content"}
    ]
    assert answers
    for answer in answers:
        body = RESPONSES.encode_response(CODECS[protocol].decode_response(answer), 1).body
        types.Response.model_validate(body, strict=True)


def test_an_error_body_round_trips() -> None:
    body = {"error": {"message": "no", "type": "invalid_request_error", "param": "input",
                      "code": "context_length_exceeded"}}  # fmt: skip
    error = RESPONSES.decode_error(body, 400)
    assert (error.kind, error.param) == ("context_length", "input")
    assert RESPONSES.encode_error(error) == (400, body)
