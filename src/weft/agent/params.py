"""How an agent's answers are to be: the thread's own setup, and what the caller gave above it.

A thread's setup may come from another client (a recorded session, an imported body), so two of
its parameters never reach an agent's request: `n`, because an agent reads one answer, and `stream`,
because it always streams. A choice of tools that the agent does not offer is left out as well:
every vendor refuses it.
"""

import math
from collections.abc import Collection
from typing import Any, Literal, cast

import msgspec
from msgspec import structs

from weft.errors import ConfigError
from weft.model import Format, JsonObject, Params, Reasoning, ToolChoice

ResponseFormat = Format | JsonObject | type | Literal["text", "json"]
"""A `Format`, a JSON schema, a class that has one, or the word `json`."""

CHOICES = ("auto", "any", "none")
SCHEMA_NAME = "answer"


def read_options(
    params: Params | None = None,
    *,
    temperature: float | None = None,
    max_tokens: int | None = None,
    tool_choice: ToolChoice | str | None = None,
    effort: str | None = None,
    response_format: ResponseFormat | None = None,
) -> Params:
    """The parameters that the caller gave; raises `ConfigError` naming the one that is wrong."""
    found = _checked_params(params)
    given: dict[str, Any] = {
        "temperature": _number("temperature", temperature),
        "max_tokens": _count("max_tokens", max_tokens),
        "tool_choice": None if tool_choice is None else read_choice(tool_choice),
        "reasoning": None if effort is None else Reasoning(effort=_text("effort", effort)),
        "format": None if response_format is None else read_format(response_format),
    }
    return structs.replace(found, **{k: v for k, v in given.items() if v is not None})


def merge_params(setup: Params, given: Params) -> Params:
    """The thread's parameters with the caller's above them; of thinking, part by part."""
    fields = {name: getattr(given, name) for name in given.__struct_fields__}
    own = {name: value for name, value in fields.items() if value is not None}
    if given.reasoning is not None and setup.reasoning is not None:
        own["reasoning"] = _merge_reasoning(setup.reasoning, given.reasoning)
    return structs.replace(setup, **{**own, "n": None, "stream": None})


def fit_choice(params: Params, offered: Collection[str], *, is_first: bool) -> Params:
    """The parameters for one request of a run, with a choice of tools that can be honoured.

    A choice that forces a call holds for the first request of a run. Held longer, it would forbid
    the model ever to give its answer.
    """
    choice = params.tool_choice
    if choice is None:
        return params
    names = tuple(name for name in choice.names if name in offered)
    unknown = choice.kind == "tool" and choice.name not in offered
    if not offered or unknown or (choice.names and not names):
        return structs.replace(params, tool_choice=None)
    kind, name = choice.kind, choice.name
    if kind in ("any", "tool") and not is_first:
        kind, name = "auto", None
    return structs.replace(params, tool_choice=ToolChoice(kind, name, names))


def read_choice(choice: Any) -> ToolChoice:
    """`auto`, `any` (OpenAI's word is `required`), `none`, or the name of a tool."""
    if isinstance(choice, ToolChoice):
        return choice
    word = _text("tool_choice", choice)
    if word in CHOICES:
        return ToolChoice(word)
    return ToolChoice("any") if word == "required" else ToolChoice("tool", word)


def read_format(given: Any) -> Format:
    """The shape of an answer, from whatever the caller describes it with."""
    match given:
        case Format():
            return given
        case "json" | "text":
            return Format(given)
        case {"type": "json_object"}:
            return Format("json")
        case {"type": "json_schema", "json_schema": {"schema": dict()} as inner}:
            about = cast(JsonObject, inner)
            return Format(
                "schema",
                about["schema"],
                about.get("name") or SCHEMA_NAME,
                about.get("description"),
                about.get("strict"),
            )
        case dict():
            return Format("schema", cast(JsonObject, given), SCHEMA_NAME)
        case type():
            return Format("schema", schema_of(given), given.__name__)
        case _:
            raise ConfigError(
                "response_format: must be 'json', a JSON schema, a class or a weft.model.Format,"
                f" not {type(cast(object, given)).__name__}"
            )


def schema_of(kind: type) -> JsonObject:
    """The JSON schema of a class: a pydantic model's own, else what msgspec makes of its fields."""
    own = getattr(kind, "model_json_schema", None)
    if callable(own):
        return cast(JsonObject, own())
    try:
        _, definitions = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise ConfigError(f"response_format: {kind.__name__} has no JSON schema: {error}") from None
    root = definitions.pop(kind.__name__, None)
    if root is None:
        raise ConfigError(f"response_format: {kind.__name__} is no class with fields")
    return {**root, "$defs": definitions} if definitions else root


def _merge_reasoning(setup: Reasoning, given: Reasoning) -> Reasoning:
    fields = {name: getattr(given, name) for name in given.__struct_fields__}
    own: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    if setup.mode == "off" and given.mode is None:
        own["mode"] = None  # who asks for an effort asks for thinking
    if given.effort is not None and given.budget is None:
        own["budget"] = None  # a budget of the setup would speak against the effort
    return structs.replace(setup, **own)


def _checked_params(params: Any) -> Params:
    if params is None:
        return Params()
    if not isinstance(params, Params):
        raise ConfigError(f"params: must be a weft.model.Params, not {type(params).__name__}")
    return params


def _number(field: str, value: Any) -> float | None:
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0:
        raise ConfigError(f"{field}: must be a number that is not negative, not {value!r}")
    return float(value)


def _count(field: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{field}: must be a whole number above 0, not {value!r}")
    return value


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{field}: must be a word, not {value!r}")
    return value
