"""The parameters of an agent's requests: those of the thread's setup, overridden by the caller's.

The setup may come from another client (a recorded session, an imported body), so some of it is
dropped: `n`, because an agent reads one answer; `stream`, because it always streams; and a choice
of tools that the agent does not offer, because every vendor refuses it.
"""

import math
from collections.abc import Collection
from typing import Any, Literal, cast

import msgspec
from msgspec import structs

from weft.errors import ConfigError
from weft.model import Format, JsonObject, Params, Reasoning, ToolChoice

ResponseFormat = Format | JsonObject | type | Literal["text", "json"]
"""A `Format`, a JSON schema, a class with fields, `"json"` or `"text"`."""

CHOICES = ("auto", "any", "none")
SCHEMA_NAME = "answer"


def read_params(
    params: Params | None = None,
    *,
    temperature: float | None = None,
    max_tokens: int | None = None,
    tool_choice: ToolChoice | str | None = None,
    effort: str | None = None,
    response_format: ResponseFormat | None = None,
) -> Params:
    """The caller's parameters; raises `ConfigError` that names the wrong one."""
    base = _check_params(params)
    arguments: dict[str, Any] = {
        "temperature": _check_number("temperature", temperature),
        "max_tokens": _check_count("max_tokens", max_tokens),
        "tool_choice": None if tool_choice is None else read_choice(tool_choice),
        "reasoning": None if effort is None else Reasoning(effort=_check_word("effort", effort)),
        "format": None if response_format is None else read_format(response_format),
    }
    changes = {name: value for name, value in arguments.items() if value is not None}
    return structs.replace(base, **changes)


def merge_params(setup: Params, overrides: Params) -> Params:
    """The setup's parameters, overridden by the caller's own; reasoning is merged by member."""
    changes = _set_fields(overrides)
    if overrides.reasoning is not None and setup.reasoning is not None:
        changes["reasoning"] = _merge_reasoning(setup.reasoning, overrides.reasoning)
    return structs.replace(setup, **{**changes, "n": None, "stream": None})


def fit_choice(params: Params, offered: Collection[str], *, is_first: bool) -> Params:
    """The parameters for one request of a run, with a tool choice that is possible.

    A choice that forces a call applies to the first request of a run only. Otherwise the model
    could never answer with text.
    """
    choice = params.tool_choice
    if choice is None:
        return params
    names = tuple(name for name in choice.names if name in offered)
    names_unknown_tool = choice.kind == "tool" and choice.name not in offered
    if not offered or names_unknown_tool or (choice.names and not names):
        return structs.replace(params, tool_choice=None)
    kind, name = choice.kind, choice.name
    if kind in ("any", "tool") and not is_first:
        kind, name = "auto", None
    return structs.replace(params, tool_choice=ToolChoice(kind, name, names))


def read_choice(choice: Any) -> ToolChoice:
    """The choice for `auto`, `any` (OpenAI: `required`), `none`, or the name of a tool."""
    if isinstance(choice, ToolChoice):
        return choice
    word = _check_word("tool_choice", choice)
    if word in CHOICES:
        return ToolChoice(word)
    return ToolChoice("any") if word == "required" else ToolChoice("tool", word)


def read_format(value: Any) -> Format:
    """The response format, from any of the forms that a caller may use."""
    match value:
        case Format():
            return value
        case "json" | "text":
            return Format(value)
        case {"type": "json_object"}:
            return Format("json")
        case {"type": "json_schema", "json_schema": {"schema": dict()} as inner}:
            openai_format = cast(JsonObject, inner)
            return Format(
                "schema",
                openai_format["schema"],
                openai_format.get("name") or SCHEMA_NAME,
                openai_format.get("description"),
                openai_format.get("strict"),
            )
        case dict():
            return Format("schema", cast(JsonObject, value), SCHEMA_NAME)
        case type():
            return Format("schema", schema_of(value), value.__name__)
        case _:
            raise ConfigError(
                "response_format: must be 'json', a JSON schema, a class or a weft.model.Format,"
                f" not {type(cast(object, value)).__name__}"
            )


def schema_of(kind: type) -> JsonObject:
    """The JSON schema of a class: a pydantic model's own, or the one that msgspec derives."""
    make_schema = getattr(kind, "model_json_schema", None)
    if callable(make_schema):
        return cast(JsonObject, make_schema())
    try:
        _, definitions = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise ConfigError(f"response_format: {kind.__name__} has no JSON schema: {error}") from None
    root = definitions.pop(kind.__name__, None)
    if root is None:
        raise ConfigError(f"response_format: {kind.__name__} is not a class with fields")
    return {**root, "$defs": definitions} if definitions else root


def _merge_reasoning(setup: Reasoning, overrides: Reasoning) -> Reasoning:
    changes = _set_fields(overrides)
    if setup.mode == "off" and overrides.mode is None:
        changes["mode"] = None  # an effort implies that reasoning is on
    if overrides.effort is not None and overrides.budget is None:
        changes["budget"] = None  # the setup's budget would contradict the effort
    return structs.replace(setup, **changes)


def _set_fields(value: Params | Reasoning) -> dict[str, Any]:
    """The fields that are not None."""
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    return {name: field for name, field in fields.items() if field is not None}


def _check_params(params: Any) -> Params:
    if params is None:
        return Params()
    if not isinstance(params, Params):
        raise ConfigError(f"params: must be a weft.model.Params, not {type(params).__name__}")
    return params


def _check_number(field: str, value: Any) -> float | None:
    if value is None:
        return None
    if not _is_number(value) or value < 0:
        raise ConfigError(f"{field}: must be a number of at least 0, not {value!r}")
    return float(value)


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


def read_limit(field: str, value: Any) -> float | None:
    """A limit above 0, or None for no limit."""
    if value is not None and (not _is_number(value) or value <= 0):
        raise ConfigError(f"{field}: must be a number above 0, not {value!r}")
    return None if value is None else float(value)


def _check_count(field: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{field}: must be a whole number above 0, not {value!r}")
    return value


def _check_word(field: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{field}: must be a word, not {value!r}")
    return value
