"""Plain functions as tools."""

from typing import Literal

import pytest
from msgspec import Struct

import weft
from servers import scripted_upstream
from summarisers import says, tool_calls, watch
from weft.agent import Agent, ToolEnd, read_tool
from weft.client import make_provider
from weft.errors import ConfigError
from weft.function_tools import read_tools


class Place(Struct):
    city: str
    country: str = "FR"


def weather(city: str, days: int = 1, unit: Literal["C", "F"] = "C") -> dict[str, object]:
    """The weather of a city,
    as it will be.

    Args:
        city: its name, in English
        days (int): how many

    Returns:
        unit: not a parameter
    """
    return {"city": city, "days": days, "unit": unit}


def near(place: Place) -> str:
    return place.city.upper()


async def later(text: str) -> str:
    """Says it back."""
    return text


def broken() -> None:
    raise ValueError("it broke")


def test_the_schema_comes_from_the_signature_and_the_descriptions_from_the_docstring():
    tool = read_tool(weather).definition
    assert tool.name == "weather"
    assert tool.description == "The weather of a city, as it will be."
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "its name, in English"},
            "days": {"type": "integer", "description": "how many", "default": 1},
            "unit": {"enum": ["C", "F"], "default": "C"},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


def test_a_named_type_is_in_defs():
    schema = read_tool(near).definition.parameters
    assert schema["properties"] == {"place": {"$ref": "#/$defs/Place"}}
    assert set(schema["$defs"]) == {"Place"}


@pytest.mark.parametrize(
    ("name", "arguments", "text", "is_error"),
    [
        ("weather", '{"city": "Rome"}', '{"city":"Rome","days":1,"unit":"C"}', False),
        ("near", '{"place": {"city": "Rome"}}', "ROME", False),
        ("later", '{"text": "hi"}', "hi", False),
        ("broken", "", "ValueError: it broke", True),
        (
            "weather",
            '{"city": 7}',
            "the arguments do not match the tool's schema: Expected `str`, got `int`",
            True,
        ),
        ("weather", "{}", "missing required field `city`", True),
        ("weather", '{"city": "x", "y": 1}', "unknown field `y`", True),
        ("weather", '{"city', "the arguments are not JSON", True),
        ("wether", "{}", "there is no tool 'wether'", True),
    ],
)
def test_a_call_never_raises(name, arguments, text, is_error):
    tools = [weather, near, later, broken]
    with weft.open() as thread, scripted_upstream() as upstream:
        upstream.then(tool_calls([("call_1", name, arguments)]), says("done"))
        provider = make_provider("u", "openai-chat", upstream.url)
        events = watch(Agent(thread, "m", tools, provider=provider), "go")
    [end] = [event for event in events if isinstance(event, ToolEnd)]
    assert text in end.content
    assert end.is_error == is_error


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        ([weather, weather], "two tools are named 'weather'"),
        ([lambda x: x], "needs a function with a name"),
        ([lambda *x: x], "needs a function with a name"),
    ],
)
def test_a_value_that_cannot_be_a_tool_is_refused(functions, words):
    with pytest.raises(ConfigError, match=words):
        read_tools(functions)


def test_a_parameter_without_a_name_is_refused():
    def many(*texts: str) -> str:
        return "".join(texts)

    with pytest.raises(ConfigError, match="passed by name"):
        read_tool(many)


@pytest.mark.parametrize("value", [object(), {"a": object()}, [object()], lambda: None])
def test_a_value_that_has_no_text_is_an_error(value):
    def look() -> object:
        """Look it up."""
        return value

    with weft.open() as thread, scripted_upstream() as upstream:
        upstream.then(tool_calls([("call_1", "look", "{}")]), says("done"))
        provider = make_provider("u", "openai-chat", upstream.url)
        events = watch(Agent(thread, "m", [look], provider=provider), "go")
    [end] = [event for event in events if isinstance(event, ToolEnd)]
    assert end.is_error
    assert "without a text form" in end.content
    assert "0x" not in end.content


@pytest.mark.parametrize(
    ("value", "text", "is_error"),
    [
        ("caf\udce9.txt", "caf\ufffd.txt", False),  # os.listdir: a name that is not UTF-8
        ("\ud83d\ude00", "\U0001f600", False),
        (["caf\udce9.txt", "b"], '["caf\ufffd.txt", "b"]', False),
        (weft.Text("caf\udce9.txt"), "caf\ufffd.txt", False),
        (OSError("no file caf\udce9.txt"), "OSError: no file caf\ufffd.txt", True),
        (SystemExit(2), "SystemExit: 2", True),  # argparse does this
    ],
    ids=["name", "pair", "list", "block", "error", "exit"],
)
def test_no_result_ends_the_run(value, text, is_error):
    def look() -> object:
        """Look it up."""
        if isinstance(value, BaseException):
            raise value
        return value

    with weft.open() as thread, scripted_upstream() as upstream:
        upstream.then(tool_calls([("call_1", "look", "{}")]), says("done"))
        provider = make_provider("u", "openai-chat", upstream.url)
        events = watch(Agent(thread, "m", [look], provider=provider, compaction=None), "go")
        assert thread.compile().messages[-1].text == "done"
        assert thread.compile().messages[-2].text == text
    [end] = [event for event in events if isinstance(event, ToolEnd)]
    assert (end.content, end.is_error) == (text, is_error)


def test_two_calls_with_one_id_get_a_result_each():
    with weft.open() as thread, scripted_upstream() as upstream:
        calls = [("call_1", "later", '{"text": "one"}'), ("call_1", "later", '{"text": "two"}')]
        upstream.then(tool_calls(calls), says("done"))
        provider = make_provider("u", "openai-chat", upstream.url)
        watch(Agent(thread, "m", [later], provider=provider, compaction=None), "go")
        assert thread.compile().messages[-2].text == "one\ntwo"
