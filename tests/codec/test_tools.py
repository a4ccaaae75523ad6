"""Names of tools that every wire takes, and calls turned back by them."""

import json
import re
from typing import Any

import orjson
import pytest
from hypothesis import given, strategies as st

import weft
from weft.codec import Losses
from weft.codec.call_ids import fitting_id
from weft.codec.calls import CallRestorer, restore_calls
from weft.codec.tools import flat_name, flatten_tools
from weft.model import (
    Close,
    Delta,
    Message,
    Open,
    Params,
    Request,
    Tool,
    ToolCall,
    ToolChoice,
    fold,
)

LEGAL = re.compile(r"[a-zA-Z0-9_-]{1,64}")


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
def test_a_flat_name(name: str, namespace: str | None, flat: str) -> None:
    made = flat_name(name, namespace)
    assert LEGAL.fullmatch(made)
    assert made == flat or re.fullmatch(re.escape(flat) + "[0-9a-f]{8}", made)


pieces = st.text(alphabet="ab_.-é", min_size=1, max_size=70)


@given(st.lists(st.tuples(pieces, st.none() | pieces), unique=True, max_size=8))
def test_names_are_legal_apart_and_come_back(tools: list[tuple[str, str | None]]) -> None:
    request = Request("m", (), tuple(Tool(name, namespace=group) for name, group in tools))
    flat, calls = flatten_tools(request, Losses(), custom=False, namespaces=False)
    made = [tool.name for tool in flat.tools]
    assert all(LEGAL.fullmatch(name) for name in made)
    assert len(set(made)) == len(tools)
    again, _ = flatten_tools(request, Losses(), custom=False, namespaces=False)
    assert again == flat
    message = Message("assistant", tuple(ToolCall("c", name, "{}") for name in made))
    back = restore_calls(message, orjson.loads(orjson.dumps(calls)))
    assert [(call.name, call.namespace) for call in back.blocks] == tools  # type: ignore[union-attr]


def test_history_choice_and_definition_agree() -> None:
    call = Message("assistant", (ToolCall("c1", "js", "{}", namespace="x"),))
    request = Request(
        "m",
        (call,),
        (Tool("x__js"), Tool("js", namespace="x")),
        Params(tool_choice=ToolChoice("tool", "js")),
    )
    flat, calls = flatten_tools(request, Losses(), custom=False, namespaces=False)
    name = flat.tools[1].name
    assert name != "x__js"
    assert flat.params.tool_choice == ToolChoice("tool", name)
    assert flat.messages[0].blocks == (ToolCall("c1", name, "{}"),)
    assert calls == {name: {"name": "js", "namespace": "x"}}


def test_plain_tools_are_left_alone() -> None:
    request = Request("m", (Message("user"),), (Tool("f"), Tool("web", kind="web_search")))
    losses = Losses()
    assert flatten_tools(request, losses, custom=False, namespaces=False) == (request, {})
    assert losses.items == []


ODD = {"p": {"name": "p", "custom": True}, "x__js": {"name": "js", "namespace": "x"}}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input":"a\\nb"}', "a\nb"),
        ('{ "input" : "\\ud83c\\udf89\\\\" }', "🎉\\"),
        ('{"input":""}', ""),
        ('"a\\nb"', "a\nb"),  # the text itself, as a model that was told not to wrap it says it
        ("", ""),
        ("*** raw", "*** raw"),  # the model wrote what the tool wants, and no object
        ('{"patch":"x"}', '{"patch":"x"}'),
        ('{"input":"a","more":1}', '{"input":"a","more":1}'),
        ('{"input":1}', '{"input":1}'),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_a_streamed_custom_call_is_the_whole_one(arguments: str, text: str, size: int) -> None:
    whole = restore_calls(Message("assistant", (ToolCall("c", "p", arguments),)), ODD)
    assert whole.blocks == (ToolCall("c", "p", text, custom=True),)
    events: list[Any] = [Open(0, ToolCall("c", "p", ""))]
    events += [
        Delta(0, "arguments", arguments[at : at + size]) for at in range(0, len(arguments), size)
    ]
    restorer = CallRestorer(ODD)
    told = [known for event in [*events, Close(0)] for known in restorer.send(event)]
    assert fold(told).message.blocks == whole.blocks
    restorer = CallRestorer(ODD)
    last = Close(0, ToolCall("c", "p", arguments))
    told = [known for event in [*events, last] for known in restorer.send(event)]
    assert fold(told).message.blocks == whole.blocks


@pytest.mark.parametrize("text", ["raw", '{"input":"x"}', '"x"'])
def test_a_custom_call_under_a_flat_name_keeps_its_text(text: str) -> None:
    """A wire with custom tools but without namespaces: only the name is another."""
    request = Request("m", (), (Tool("js", kind="custom", namespace="x"),))
    _, calls = flatten_tools(request, Losses(), custom=True, namespaces=False)
    flat, own = ToolCall("c", "x__js", text, custom=True), ToolCall("c", "js", text, True, "x")
    assert restore_calls(Message("assistant", (flat,)), calls).blocks == (own,)
    restorer = CallRestorer(calls)
    events = [Open(0, ToolCall("c", "x__js", "", custom=True)), Delta(0, "arguments", text)]
    told = [known for event in [*events, Close(0)] for known in restorer.send(event)]
    assert fold(told).message.blocks == (own,)


@given(st.text(), st.integers(1, 9), st.booleans())
def test_any_text_survives_being_wrapped(text: str, size: int, ascii_only: bool) -> None:
    wrapped = json.dumps({"input": text}, ensure_ascii=ascii_only)
    restorer = CallRestorer(ODD)
    events: list[Any] = [Open(0, ToolCall("c", "p", ""))]
    events += [
        Delta(0, "arguments", wrapped[at : at + size]) for at in range(0, len(wrapped), size)
    ]
    told = [known for event in [*events, Close(0)] for known in restorer.send(event)]
    (call,) = fold(told).message.blocks
    assert call == ToolCall("c", "p", text, custom=True)
    said = "".join(event.text for event in told if isinstance(event, Delta))
    assert said == text


def test_a_damaged_table_is_refused() -> None:
    with pytest.raises(weft.Refused, match="damaged"):
        weft.StreamTranslator("anthropic", "openai-chat", {"weft": 1, "calls": ["x"]})


@given(st.sets(st.text(min_size=1, max_size=50), max_size=20))
def test_ids_that_fit_stay_apart(ids: set[str]) -> None:
    made = {fitting_id(call_id, 40) for call_id in ids}
    made |= {fitting_id(call_id, 40) for call_id in made - ids}
    assert all(len(call_id) <= 40 for call_id in made)
    assert len({fitting_id(call_id, 40) for call_id in ids}) == len(ids)


def test_a_function_of_the_first_api_is_a_tool_where_its_body_is_gone() -> None:
    """A thread keeps the tools of a body, and offers them with the next one."""
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "functions": [{"name": "f", "parameters": {"type": "object", "properties": {}}}],
    }
    read = weft.decode(body, "openai-chat")
    again = weft.encode(Request("m", read.messages, read.tools), "openai-chat").body
    assert again["tools"] == [{"type": "function", "function": body["functions"][0]}]
