"""Parameters, both ways: what this wire says, and what the others mean by theirs."""

from typing import Any, cast

from weft.catalog import Model
from weft.codec.base import Losses, Target, members
from weft.codec.choice import read_allowed
from weft.codec.effort import fitting_effort, with_effort
from weft.codec.fields import read_schema_format, report_params, report_tier
from weft.codec.limits import OPENAI_EFFORTS, Limits, with_named_json, within
from weft.codec.read import at, optional, optional_object, wrong
from weft.model import Format, JsonObject, Params, Reasoning, Request, ToolChoice

from .wire import PROTOCOL

SAME = (
    ("temperature", float),
    ("top_p", float),
    ("seed", int),
    ("n", int),
    ("presence_penalty", float),
    ("frequency_penalty", float),
    ("stream", bool),
    ("parallel_tool_calls", bool),
    ("verbosity", str),
    ("service_tier", str),
    ("user", str),
    ("metadata", dict),
    ("store", bool),
    ("prompt_cache_key", str),
    ("safety_identifier", str),
)
"""Parameters that this wire and the model call by one name."""

READ = frozenset(
    {
        "function_call",
        "functions",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "model",
        "reasoning_effort",
        "response_format",
        "stop",
        "stream_options",
        "tool_choice",
        "tools",
        *(key for key, _ in SAME),
    }
)

SAYABLE = frozenset(
    {"format", "max_tokens", "reasoning", "stop", "tool_choice", *(key for key, _ in SAME)}
)

TIERS = frozenset({"auto", "default", "flex", "scale", "priority", "fast"})
"""https://platform.openai.com/docs/api-reference/chat/create#chat-create-service_tier"""

FORMAT_MEMBERS = frozenset({"name", "schema", "description", "strict"})

CHOICES = {"auto": ToolChoice("auto"), "none": ToolChoice("none"), "required": ToolChoice("any")}
CHOICE_WORDS = {"auto": "auto", "none": "none", "any": "required"}

LIMITS = Limits(stops=4, user=64, unthinking=True)
"""https://platform.openai.com/docs/api-reference/chat/create#chat-create-stop,
https://github.com/maximhq/bifrost/pull/1000"""

PATHS = {
    "format": "response_format",
    "format.description": "response_format.json_schema.description",
    "format.name": "response_format.json_schema.name",
    "format.schema": "response_format.json_schema.schema",
    "format.strict": "response_format.json_schema.strict",
    "max_tokens": "max_completion_tokens",
    "reasoning": "reasoning_effort",
}
"""Where this wire says what the model calls otherwise."""

OLDER = {"max_tokens": "max_tokens", "tool_choice": "function_call"}
"""The first API's words, where a body uses them instead."""


def words_of(body: JsonObject) -> dict[str, str]:
    """The paths of parameters as this body spells them."""
    older = {
        name: word
        for name, word in OLDER.items()
        if word in body and PATHS.get(name, name) not in body
    }
    return PATHS | older


def decode_params(body: JsonObject) -> tuple[Params, dict[str, Any]]:
    """The shared meaning of a body's parameters, and by path what it could not take up."""
    rest = {key: value for key, value in body.items() if key not in READ}
    limit = optional(body, "max_completion_tokens", int)
    older = optional(body, "max_tokens", int)
    if limit is not None and older is not None:
        rest["max_tokens"] = older
    elif older is not None:
        rest["max_tokens"] = None  # the older name of the two
    if isinstance(body.get("stop"), str):
        rest["stop"] = None  # that it was a string, not what it says
    for key in ("functions", "function_call"):
        if body.get(key) is not None:
            rest[key] = None  # the first API's words
    effort = optional(body, "reasoning_effort", str)
    if body.get("tools") == []:
        rest["tools"] = []
    for key, value in optional_object(body, "stream_options").items():
        rest[f"stream_options.{key}"] = value
    fields: dict[str, Any] = {key: optional(body, key, kind) for key, kind in SAME}
    params = Params(
        max_tokens=older if limit is None else limit,
        stop=_decode_stop(body),
        tool_choice=_decode_choice(body, rest),
        format=_decode_format(body, rest),
        reasoning=Reasoning(effort=effort) if effort is not None else None,
        **fields,
    )
    return params, rest


def _decode_stop(body: JsonObject) -> tuple[str, ...] | None:
    stop = body.get("stop")
    if stop is None:
        return None
    if isinstance(stop, str):
        return (stop,)
    items = cast("list[Any]", stop) if isinstance(stop, list) else None
    if items is None or not all(isinstance(item, str) for item in items):
        raise wrong("stop", stop, "a string or a list of strings")
    return tuple(items)


def _decode_choice(body: JsonObject, rest: dict[str, Any]) -> ToolChoice | None:
    key = "tool_choice" if body.get("tool_choice") is not None else "function_call"
    choice = body.get(key)
    if choice is None:
        return None
    match choice:
        case str() if choice in CHOICES:
            return CHOICES[choice]
        case {"type": "function", "function": {"name": str(name), **inner}, **more}:
            more |= {f"function.{member}": value for member, value in inner.items()}
        case {"type": "custom", "custom": {"name": str(name), **inner}, **more}:
            more |= {f"custom.{member}": value for member, value in inner.items()}
            if not _offers_custom(body, name):
                rest[key] = None  # a choice by name is of whatever tool has it
        case {"name": str(name), **more} if key == "function_call":
            pass
        case _:
            fields = members(choice) or {}
            some = read_allowed(members(fields.get("allowed_tools")) or {})
            if some is None:
                rest[key] = choice
            return some
    rest.update({f"{key}.{member}": value for member, value in more.items()})
    return ToolChoice("tool", name)


def _offers_custom(body: JsonObject, name: str) -> bool:
    tools = body.get("tools")
    offered = cast(list[Any], tools) if isinstance(tools, list) else []
    return any(
        (members((members(tool) or {}).get("custom")) or {}).get("name") == name for tool in offered
    )


def _decode_format(body: JsonObject, rest: dict[str, Any]) -> Format | None:
    shape = optional_object(body, "response_format")
    for key in shape.keys() - {"type", "json_schema"}:
        rest[f"response_format.{key}"] = shape[key]
    match shape.get("type"):
        case None:
            return None
        case "text":
            return Format("text")
        case "json_object":
            return Format("json")
        case "json_schema":
            with at("response_format"):
                schema = optional_object(shape, "json_schema")
                for key in schema.keys() - FORMAT_MEMBERS:
                    rest[f"response_format.json_schema.{key}"] = schema[key]
                with at("json_schema"):
                    return read_schema_format(schema)
        case _:
            rest["response_format"] = shape
            return None


def encode_params(
    request: Request, target: Target, tools: list[JsonObject], losses: Losses
) -> JsonObject:
    """The members beside model, messages and tools; `tools` are those that were written."""
    if PROTOCOL in request.raw:
        own = {key: value for key, value in request.raw[PROTOCOL].items() if key != "tools"}
        return _with_known_limit(own, target, losses) if target.enforce else own
    params = within(request.params, LIMITS, target.model, losses)
    params = with_named_json(request, params, target.model, losses)
    body: JsonObject = {}
    for key, _ in SAME:
        value = getattr(params, key)
        if key == "service_tier" and value not in TIERS:
            report_tier(value, losses)
        elif value is not None:
            body[key] = value
    if params.max_tokens is not None:
        body[target.model.max_tokens_field or OLDER["max_tokens"]] = params.max_tokens
    if params.stop is not None:
        body["stop"] = list(params.stop)
    if params.format is not None:
        body["response_format"] = _write_format(params.format, losses)
    if params.reasoning is not None:
        _write_reasoning(params.reasoning, target.model, body, losses)
    if params.tool_choice is not None:
        _write_choice(params.tool_choice, tools, body, losses)
    if not tools:
        _without_tools(body, losses)
    report_params(request, SAYABLE, losses)
    return body


def _with_known_limit(body: JsonObject, target: Target, losses: Losses) -> JsonObject:
    """The caller's own members, the limit of output by its older name where only that is known."""
    newer, older = PATHS["max_tokens"], OLDER["max_tokens"]
    if newer not in body or older in body or target.model.max_tokens_field != older:
        return body
    losses.param("max_tokens", "param_renamed", f"{newer} -> {older}")
    return {older if key == newer else key: value for key, value in body.items()}


def _write_choice(
    choice: ToolChoice, tools: list[JsonObject], body: JsonObject, losses: Losses
) -> None:
    if choice.kind != "tool" and not choice.names:
        body["tool_choice"] = CHOICE_WORDS[choice.kind]
        return
    kinds: dict[str, str] = {}
    for tool in tools:
        kind = "custom" if tool.get("type") == "custom" else "function"
        kinds.setdefault(str(tool.get(kind, {}).get("name")), kind)
    found: list[JsonObject] = [
        {"type": kinds[name], kinds[name]: {"name": name}}
        for name in choice.names or (choice.name,)
        if name in kinds
    ]
    if choice.names:
        some = {"mode": CHOICE_WORDS[choice.kind], "tools": found}
        body["tool_choice"] = {"type": "allowed_tools", "allowed_tools": some}
    elif found:
        body["tool_choice"] = found[0]
    else:
        losses.param("tool_choice", "tool_choice_dropped", choice.name)


def _without_tools(body: JsonObject, losses: Losses) -> None:
    """Without tools this wire refuses to be told how to use them."""
    for key in ("tool_choice", "parallel_tool_calls"):
        if key in body:
            del body[key]
            losses.param(key, "tool_setting_dropped", key)


def _write_format(shape: Format, losses: Losses) -> JsonObject:
    if shape.kind != "schema":
        return {"type": "json_object" if shape.kind == "json" else "text"}
    if shape.name is None:
        losses.param("format.name", "default_added", "response")
    schema: JsonObject = {"name": shape.name or "response"}
    for key, value in (
        ("description", shape.description),
        ("schema", shape.schema),
        ("strict", shape.strict),
    ):
        if value is not None:
            schema[key] = value
    return {"type": "json_schema", "json_schema": schema}


def _write_reasoning(reasoning: Reasoning, model: Model, body: JsonObject, losses: Losses) -> None:
    """This wire knows an effort and nothing else. A wish not to think is one for models that are
    told one, and think by themselves where they are told nothing."""
    reasoning = with_effort(reasoning, model, losses)
    wanted, said = reasoning.effort, "reasoning.effort"
    if reasoning.mode == "off" and wanted is None and model.thinking == "effort":
        wanted, said = "none", "reasoning.mode"
    effort = fitting_effort(wanted, model, losses, said)
    if effort in OPENAI_EFFORTS:
        body["reasoning_effort"] = effort
    elif effort is not None:
        losses.param("reasoning.effort", "effort_unsupported", effort)
    if reasoning.mode in ("on", "adaptive"):
        losses.param(
            "reasoning.mode",
            "thinking_mode_dropped",
            reasoning.mode,
            "meaning" if effort is None else "form",
        )
    elif reasoning.mode == "off":
        losses.param(
            "reasoning.mode",
            "thinking_not_disabled",
            "",
            "meaning" if reasoning.effort and effort not in (None, "none") else "form",
        )
    if reasoning.budget is not None:
        losses.param("reasoning.budget", "thinking_budget_dropped", reasoning.budget)
    if reasoning.summary is not None:
        losses.param("reasoning.summary", "thinking_summary_dropped", reasoning.summary)
