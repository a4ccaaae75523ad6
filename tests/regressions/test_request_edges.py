"""Rare members of requests: older names, empty lists, settings without what they belong to."""

import pytest

import weft
from fault_upstream import PROTOCOLS

A, C, R, G = PROTOCOLS
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
QUESTION = [{"role": "user", "content": "q"}]


def claude(**members):
    return {"model": "m", "max_tokens": 99, "messages": QUESTION, **members}


def chat(**members):
    return {"model": "m", "messages": QUESTION, **members}


def codes(done):
    return {loss.code for loss in done.losses}


@pytest.mark.parametrize("target", [C, R, G])
def test_the_older_output_format_of_anthropic_is_the_format(target):
    older = claude(output_format={"type": "json_schema", "schema": SCHEMA})
    newer = claude(output_config={"format": {"type": "json_schema", "schema": SCHEMA}})
    done = weft.translate(older, A, target)
    assert done.body == weft.translate(newer, A, target).body
    assert {loss.level for loss in done.losses if "format" in loss.path} <= {"form"}
    assert weft.translate(older, A, A).body == older
    back = weft.translate(done.body, target, A, model="m", sidecar=done.sidecar)
    assert back.body == older


def test_members_of_the_older_format_that_nobody_knows_are_reported():
    body = claude(output_format={"type": "json_schema", "schema": SCHEMA, "later": 1})
    done = weft.translate(body, A, C)
    assert "output_format.later" in {loss.path for loss in done.losses}


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize(
    ("source", "body"),
    [
        (A, claude(stop_sequences=[])),
        (C, chat(stop=[])),
        (
            G,
            {
                "contents": [{"role": "user", "parts": [{"text": "q"}]}],
                "generationConfig": {"stopSequences": []},
            },
        ),
    ],
)
def test_an_empty_list_of_stop_sequences_is_left_out(source, body, target):
    done = weft.translate(body, source, target, model="m")
    if source == target:
        assert (done.body, done.losses) == (body, [])
        return
    assert "stop" not in str(done.body)
    assert {loss.level for loss in done.losses if "stop" in loss.path} == {"form"}
    weft.translate(body, source, target, model="m", strict=True)


CHOICES = [
    (C, chat(tool_choice="auto")),
    (C, chat(tool_choice="required", tools=[])),
    (C, chat(tool_choice="none", parallel_tool_calls=False)),
    (R, {"model": "m", "input": "q", "tool_choice": "auto", "parallel_tool_calls": True}),
    (R, {"model": "m", "input": "q", "tool_choice": "auto", "parallel_tool_calls": False}),
]


@pytest.mark.parametrize(("source", "body"), CHOICES)
def test_anthropic_gets_no_tool_choice_without_tools(source, body):
    """`tool_choice` may only be specified while providing tools."""
    done = weft.translate(body, source, A)
    assert "tool_choice" not in done.body
    assert "tool_setting_dropped" in codes(done)
    back = weft.translate(done.body, A, source, sidecar=done.sidecar)
    assert back.body == body


def test_a_tool_choice_with_tools_stays():
    tool = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
    done = weft.translate(chat(tool_choice="required", tools=[tool]), C, A)
    assert done.body["tool_choice"] == {"type": "any"}


LOCATION = {"type": "approximate", "approximate": {"country": "DE", "city": "Berlin"}}


@pytest.mark.parametrize(
    "options", [{}, {"search_context_size": "high"}, {"user_location": LOCATION}]
)
@pytest.mark.parametrize("target", PROTOCOLS)
def test_web_search_options_are_a_web_search(options, target):
    body = chat(web_search_options=options)
    done = weft.translate(body, C, target)
    if target == C:
        assert (done.body, done.losses) == (body, [])
        return
    assert "search" in str(done.body["tools"]).lower()
    if target in (A, R) and "user_location" in options:
        (tool,) = done.body["tools"]
        assert tool["user_location"] == {"type": "approximate", "country": "DE", "city": "Berlin"}
    for loss in done.losses:
        assert loss.path.startswith(("web_search_options", "max_completion")), loss
    back = weft.translate(done.body, target, C, model="m", sidecar=done.sidecar)
    assert back.body == body


def test_web_search_options_stand_beside_tools_and_functions():
    tool = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
    function = {"name": "g", "parameters": SCHEMA}
    body = chat(web_search_options={}, tools=[tool], functions=[function])
    assert weft.translate(body, C, C).body == body
    done = weft.translate(body, C, A)
    assert [tool["name"] for tool in done.body["tools"]] == ["f", "g", "web_search"]


def test_a_placeholder_for_a_signature_is_reported():
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    ]
    tool = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
    body = {"model": "gemini-3-pro-preview", "messages": messages, "tools": [tool]}
    done = weft.translate(body, C, G)
    placeholder = "skip_thought_signature_validator"
    assert placeholder in str(done.body)
    assert ("default_added", "added", "form") in {
        (loss.code, loss.kind, loss.level) for loss in done.losses if loss.detail == placeholder
    }
