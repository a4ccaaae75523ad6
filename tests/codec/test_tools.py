"""Tools get names that are valid in every protocol, and their calls get the original names back."""

import json
import re
from typing import Any

import orjson
import pytest
from hypothesis import given, strategies as st

import weft
from weft.catalog import Model
from weft.codec import (
    CODECS,
    AnswerOptions,
    AnswerTranslator,
    Encoded,
    Frame,
    OriginalTool,
    RenamedTools,
    SseParser,
    Target,
    write_frame,
)
from weft.model import Message, Params, Request, Text, Tool, ToolCall, ToolChoice, ToolResult

VALID_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
HELLO = Message("user", (Text("hello"),))


def encode(request: Request) -> Encoded:
    """The request for Chat, which has custom tools and no namespaces."""
    return CODECS["openai-chat"].encode_request(request, Target(Model(name="m")))


def offered(*tools: Tool) -> tuple[list[str], RenamedTools]:
    """The names of these tools in a Chat request, and the table to restore them."""
    done = encode(Request("m", (HELLO,), tools))
    return [tool[tool["type"]]["name"] for tool in done.body["tools"]], done.renamed_tools


@pytest.mark.parametrize(
    ("name", "namespace", "flat"),
    [
        ("f", None, "f"),
        ("js", "mcp__x", "mcp__x__js"),
        ("js", "mcp__x__", "mcp__x__js"),  # Codex writes some namespaces with their separator
        ("a.b", None, "a_b_"),
        ("n" * 65, None, "n" * 55 + "_"),
        ("é", "ü", "_____"),
    ],
)
def test_a_flat_name_is_valid(name: str, namespace: str | None, flat: str) -> None:
    [made], _ = offered(Tool(name, namespace=namespace))
    assert VALID_NAME.fullmatch(made)
    assert made == flat or re.fullmatch(re.escape(flat) + "[0-9a-f]{8}", made)


def read_calls(calls: RenamedTools, *sent: dict[str, Any]) -> tuple[Any, ...]:
    """The calls of a whole Chat answer, with the client's own names."""
    message = {"role": "assistant", "content": None, "tool_calls": list(sent)}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    _, response = translator("openai-chat", calls).read_body({"id": "1", "choices": [choice]})
    return response.message.blocks


def translator(source: str, calls: RenamedTools) -> AnswerTranslator:
    options = AnswerOptions(renamed_tools=calls)
    return AnswerTranslator(CODECS[source], CODECS["openai-responses"], options)


def function(name: str, arguments: str, **members: Any) -> dict[str, Any]:
    """A call in Chat's form."""
    inner = {"name": name, "arguments": arguments}
    return {"id": "c", "type": "function", "function": inner, **members}


def custom(name: str, input: str, **members: Any) -> dict[str, Any]:
    return {"id": "c", "type": "custom", "custom": {"name": name, "input": input}, **members}


pieces = st.text(alphabet="ab_.-é", min_size=1, max_size=70)


@given(st.lists(st.tuples(pieces, st.none() | pieces), unique=True, min_size=1, max_size=8))
def test_names_are_valid_distinct_and_restored(tools: list[tuple[str, str | None]]) -> None:
    made, calls = offered(*(Tool(name, namespace=group) for name, group in tools))
    assert all(VALID_NAME.fullmatch(name) for name in made)
    assert len(set(made)) == len(tools)
    assert (made, calls) == offered(*(Tool(name, namespace=group) for name, group in tools))
    restored = read_calls(calls, *(function(name, "{}") for name in made))
    assert [(call.name, call.namespace) for call in restored] == tools


def test_history_choice_and_definition_use_the_same_name() -> None:
    call = Message("assistant", (ToolCall("c1", "js", "{}", namespace="x"),))
    result = Message("tool", (ToolResult("c1", (Text("done"),)),))
    tools = (Tool("x__js"), Tool("js", namespace="x"))
    params = Params(tool_choice=ToolChoice("tool", "js"))
    done = encode(Request("m", (HELLO, call, result), tools, params))
    name = done.body["tools"][1]["function"]["name"]
    assert name != "x__js"
    assert done.body["tool_choice"] == {"type": "function", "function": {"name": name}}
    assert done.body["messages"][1]["tool_calls"][0]["function"]["name"] == name
    assert done.renamed_tools == {name: OriginalTool("js", "x")}


def test_plain_tools_are_unchanged() -> None:
    done = encode(Request("m", (HELLO,), (Tool("f"),)))
    assert [tool["function"]["name"] for tool in done.body["tools"]] == ["f"]
    assert (done.renamed_tools, done.losses) == ({}, [])


ODD = {"p": OriginalTool("p", custom=True), "x__js": OriginalTool("js", "x")}


def cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def chat_stream(opened: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    chunks = [{"tool_calls": [{"index": 0, **delta}]} for delta in (opened, *deltas)]
    frames = [{"id": "1", "choices": [{"index": 0, "delta": chunk}]} for chunk in chunks]
    end = {"id": "1", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    data = [write_frame(Frame(orjson.dumps(frame).decode())) for frame in (*frames, end)]
    return b"".join(data) + b"data: [DONE]\n\n"


def chat_call(name: str, arguments: str, size: int) -> bytes:
    """A stream of Chat with one call, whose arguments arrive in pieces."""
    deltas = [{"function": {"arguments": piece}} for piece in cut(arguments, size)]
    return chat_stream(function(name, ""), *deltas)


def responses_call(name: str, arguments: str, size: int) -> bytes:
    """A stream of Responses, which repeats the whole call at its end."""
    body = {"id": "r", "object": "response", "model": "m", "output": []}
    item = {"type": "function_call", "id": "i", "call_id": "c", "name": name, "arguments": ""}
    place = {"output_index": 0}
    frames = [
        {"type": "response.created", "response": body},
        {"type": "response.output_item.added", **place, "item": item},
        *(
            {"type": "response.function_call_arguments.delta", **place, "delta": piece}
            for piece in cut(arguments, size)
        ),
        {"type": "response.output_item.done", **place, "item": {**item, "arguments": arguments}},
        {"type": "response.completed", "response": {**body, "status": "completed"}},
    ]
    return b"".join(write_frame(Frame(orjson.dumps(f).decode(), f["type"])) for f in frames)


def read_stream(source: str, calls: RenamedTools, data: bytes) -> tuple[tuple[Any, ...], bytes]:
    """The blocks of the streamed answer, and what the client gets."""
    to = translator(source, calls)
    fed, closed = to.feed(data), to.close()
    assert to.ended
    return to.response.message.blocks, fed.now + fed.last + closed.now + closed.last


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input":"a\\nb"}', "a\nb"),
        ('{ "input" : "\\ud83c\\udf89\\\\" }', "🎉\\"),
        ('{"input":""}', ""),
        ('"a\\nb"', "a\nb"),  # the bare text, from a model that does not wrap it
        ("", ""),
        ("*** raw", "*** raw"),  # the model wrote what the tool wants, and no object
        ('{"patch":"x"}', '{"patch":"x"}'),
        ('{"input":"a","more":1}', '{"input":"a","more":1}'),
        ('{"input":1}', '{"input":1}'),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_a_streamed_custom_call_equals_the_one_in_a_body(
    arguments: str, text: str, size: int
) -> None:
    whole = (ToolCall("c", "p", text, custom=True),)
    assert read_calls(ODD, function("p", arguments)) == whole
    blocks, _ = read_stream("openai-chat", ODD, chat_call("p", arguments, size))
    assert blocks == whole
    [block] = read_stream("openai-responses", ODD, responses_call("p", arguments, size))[0]
    assert (block.name, block.arguments, block.custom) == ("p", text, True)


@pytest.mark.parametrize("text", ["raw", '{"input":"x"}', '"x"'])
def test_a_custom_call_under_a_flat_name_keeps_its_text(text: str) -> None:
    """A protocol with custom tools but without namespaces: only the name changes."""
    [name], calls = offered(Tool("js", kind="custom", namespace="x"))
    own = ToolCall("c", "js", text, True, "x")
    assert read_calls(calls, custom(name, text)) == (own,)
    delta = {"custom": {"input": text}}
    blocks, _ = read_stream("openai-chat", calls, chat_stream(custom(name, ""), delta))
    assert blocks == (own,)


@given(st.text(), st.integers(1, 9), st.booleans())
def test_any_text_survives_wrapping(text: str, size: int, ascii_only: bool) -> None:
    wrapped = json.dumps({"input": text}, ensure_ascii=ascii_only)
    blocks, out = read_stream("openai-chat", ODD, chat_call("p", wrapped, size))
    assert blocks == (ToolCall("c", "p", text, custom=True),)
    sent = [orjson.loads(frame.data) for frame in SseParser().feed(out)]
    kind = "response.custom_tool_call_input.delta"
    assert "".join(frame["delta"] for frame in sent if frame["type"] == kind) == text


@pytest.mark.parametrize(
    "table",
    [
        ["x"],
        {"f": {}},  # without the client's name
        {"f": {"name": 3}},
        {"f": {"name": "g", "namespace": 3}},
        {"f": {"name": "g", "custom": "yes"}},
    ],
)
def test_a_damaged_table_is_refused(table: Any) -> None:
    with pytest.raises(weft.Refused, match="damaged"):
        weft.StreamTranslator("anthropic", "openai-chat", {"weft": 1, "calls": table})


@given(st.sets(st.text(min_size=1, max_size=50), min_size=1, max_size=20))
def test_shortened_ids_stay_distinct(ids: set[str]) -> None:
    """Chat takes ids of at most 40 characters."""
    made = chat_ids(sorted(ids))
    assert all(len(call_id) <= 40 for call_id in made)
    assert len(set(made)) == len(ids)
    mixed = {*ids, *made}  # an id that was shortened may meet the one that it came from
    assert len(set(chat_ids(sorted(ids)))) == len(ids)
    assert all(len(call_id) <= 40 for call_id in chat_ids(sorted(mixed)))


def chat_ids(ids: list[str]) -> list[str]:
    """The ids of these calls in a body for Chat."""
    calls = Message("assistant", tuple(ToolCall(call_id, "f", "{}") for call_id in ids))
    results = Message("tool", tuple(ToolResult(call_id, (Text("done"),)) for call_id in ids))
    messages = encode(Request("m", (HELLO, calls, results))).body["messages"]
    made = [call["id"] for call in messages[1]["tool_calls"]]
    assert [message["tool_call_id"] for message in messages[2:]] == made
    return made


def test_a_deprecated_function_becomes_a_tool_without_its_original_body() -> None:
    """A thread stores the tools of a body and sends them with the next request."""
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "functions": [{"name": "f", "parameters": {"type": "object", "properties": {}}}],
    }
    read = weft.decode(body, "openai-chat")
    again = weft.encode(Request("m", read.messages, read.tools), "openai-chat").body
    assert again["tools"] == [{"type": "function", "function": body["functions"][0]}]
