"""The compaction tool: wrong input is refused with its field, and each vendor has a definition."""

import pytest

from weft.compact import COMPACT_TOOL, RECALL_TOOL, Replacement, validate_compact_input
from weft.errors import CompactRefused


@pytest.mark.parametrize(
    ("input", "field"),
    [
        (None, "input"),
        ([], "input"),
        ("not json", "input"),
        ("[]", "input"),
        ({}, "replacements"),
        ({"replacements": None}, "replacements"),
        ({"replacements": "x"}, "replacements"),
        ({"replacements": {}}, "replacements"),
        ({"replacements": []}, "replacements"),
        ({"replacements": [{"summary": ""}], "continuation": "go"}, "continuation"),
        ({"replacements": ["x"]}, "replacements[0]"),
        ({"replacements": [{}]}, "replacements[0].summary"),
        ({"replacements": [{"summary": None}]}, "replacements[0].summary"),
        ({"replacements": [{"summary": ""}, {"summary": 3}]}, "replacements[1].summary"),
        ({"replacements": [{"summary": "", "from": 3}]}, "replacements[0].from"),
        ({"replacements": [{"summary": "", "to": ["a"]}]}, "replacements[0].to"),
        ({"replacements": [{"summary": "", "to": ""}]}, "replacements[0].to"),
        # a misspelt member must not widen the range to the edge of the thread
        ({"replacements": [{"summary": "", "form": "aaaaaa"}]}, "replacements[0].form"),
    ],
)
def test_wrong_input_is_refused_with_its_field(input: object, field: str) -> None:
    with pytest.raises(CompactRefused) as refused:
        validate_compact_input(input)
    assert refused.value.field == field
    assert str(refused.value).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("input", "read"),
    [
        ({"summary": "s"}, Replacement(summary="s")),
        ({"summary": "", "from": None, "to": None}, Replacement(summary="")),
        ({"summary": "s", "from": "aaaaaa"}, Replacement(summary="s", from_="aaaaaa")),
        ({"summary": "s", "to": "<checkpoint:bbbbbb>"}, Replacement(summary="s", to="bbbbbb")),
        (Replacement(summary="s", to="bbbbbb"), Replacement(summary="s", to="bbbbbb")),
    ],
)
def test_valid_input_is_read(input: object, read: Replacement) -> None:
    assert validate_compact_input({"replacements": [input]}) == (read,)


def test_input_can_be_the_models_text() -> None:
    written = '{"replacements": [{"from": "aaaaaa", "summary": "s"}]}'
    assert validate_compact_input(written) == (Replacement(summary="s", from_="aaaaaa"),)


@pytest.mark.parametrize("tool", [COMPACT_TOOL, RECALL_TOOL])
def test_each_vendor_gets_its_own_definition(tool) -> None:
    name, schema = tool.name, tool.parameters
    assert tool.to_openai()["function"]["parameters"] is schema
    assert tool.to_anthropic()["input_schema"] is schema
    assert tool.to_responses() | {"description": ""} == {
        "type": "function",
        "name": name,
        "description": "",
        "parameters": schema,
        "strict": False,
    }
    assert tool.to_gemini()["functionDeclarations"][0]["name"] == name
    assert tool.to_tool().parameters is schema


def test_the_definitions_are_what_the_official_sdks_expect() -> None:
    from anthropic.types import ToolParam
    from google.genai.types import Tool
    from openai.types.chat import ChatCompletionFunctionToolParam
    from openai.types.responses import FunctionToolParam
    from pydantic import ConfigDict, TypeAdapter, with_config

    strict = ConfigDict(extra="forbid")
    for shape, body in [
        (ToolParam, COMPACT_TOOL.to_anthropic()),
        (ChatCompletionFunctionToolParam, COMPACT_TOOL.to_openai()),
        (FunctionToolParam, COMPACT_TOOL.to_responses()),
    ]:
        TypeAdapter(with_config(strict)(shape)).validate_python(body)
    Tool.model_validate(COMPACT_TOOL.to_gemini())
