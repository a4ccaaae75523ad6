"""Decodes and encodes parameters: https://platform.openai.com/docs/api-reference/chat/create"""

from typing import Any, cast

from weft.codec.base import Losses, Target, as_object
from weft.codec.fields import (
    OPENAI_EFFORTS,
    DecodeContext,
    EncodeContext,
    Field,
    FieldTable,
    Limits,
    apply_limits,
    nearest_effort,
    with_allowed_json_mode,
    with_effort,
    write_list,
)
from weft.codec.read import optional_object, path_prefix, wrong
from weft.codec.reports import read_schema_format, report_tier
from weft.codec.tools import read_allowed
from weft.model import Format, JsonObject, Params, Reasoning, Request, ToolChoice

from .wire import PROTOCOL

TIERS = frozenset({"auto", "default", "flex", "scale", "priority", "fast"})
"""https://platform.openai.com/docs/api-reference/chat/create#chat-create-service_tier"""

FORMAT_MEMBERS = frozenset({"name", "schema", "description", "strict"})

CHOICES = {"auto": ToolChoice("auto"), "none": ToolChoice("none"), "required": ToolChoice("any")}
CHOICE_WORDS = {"auto": "auto", "none": "none", "any": "required"}

LIMITS = Limits(max_stops=4, max_user_length=64, sampling_if_reasoning_off=True)
"""https://platform.openai.com/docs/api-reference/chat/create#chat-create-stop,
https://github.com/maximhq/bifrost/pull/1000"""

DEPRECATED_LIMIT, DEPRECATED_CHOICE = "max_tokens", "function_call"
"""The deprecated names of `max_completion_tokens` and `tool_choice`."""


def _write_tier(tier: str, context: EncodeContext) -> str | None:
    if tier in TIERS:
        return tier
    return report_tier(tier, context.losses)


def _write_limit(limit: int, context: EncodeContext) -> None:
    context.body[context.target.model.max_tokens_field or DEPRECATED_LIMIT] = limit


def _read_stop(stop: Any, context: DecodeContext) -> tuple[str, ...]:
    if isinstance(stop, str):
        context.note_form_change()
        return (stop,)
    items = cast("list[Any]", stop) if isinstance(stop, list) else None
    if items is None or not all(isinstance(item, str) for item in items):
        raise wrong("", stop, "a string or a list of strings")
    return tuple(items)


def _read_choice(choice: Any, context: DecodeContext) -> ToolChoice | None:
    match choice:
        case str() if choice in CHOICES:
            return CHOICES[choice]
        case {"type": "function", "function": {"name": str(name), **inner}, **more}:
            context.keep_unknown(inner, (), "function")
        case {"type": "custom", "custom": {"name": str(name), **inner}, **more}:
            context.keep_unknown(inner, (), "custom")
            if not _offers_custom(context.body, name):
                context.note_form_change()  # the tool of that name is not a custom one
        case {"name": str(name), **more} if context.path == DEPRECATED_CHOICE:
            pass
        case _:
            allowed = as_object((as_object(choice) or {}).get("allowed_tools")) or {}
            return read_allowed(allowed) or _keep_unknown_choice(choice, context)
    context.keep_unknown(more, ())
    return ToolChoice("tool", name)


def _keep_unknown_choice(choice: Any, context: DecodeContext) -> None:
    context.unmapped[context.path] = choice


def _offers_custom(body: JsonObject, name: str) -> bool:
    tools = body.get("tools")
    offered = cast(list[Any], tools) if isinstance(tools, list) else []
    definitions = (as_object((as_object(tool) or {}).get("custom")) or {} for tool in offered)
    return any(definition.get("name") == name for definition in definitions)


def _read_format(shape: JsonObject, context: DecodeContext) -> Format | None:
    match shape.get("type"):
        case "text" | "json_object" as kind:
            if "json_schema" in shape:
                context.skip("json_schema")
            return Format("text" if kind == "text" else "json")
        case "json_schema":
            schema = optional_object(shape, "json_schema")
            with path_prefix("json_schema"):
                return read_schema_format(schema)
        case _:
            return context.skip()


def _read_effort(effort: str, context: DecodeContext) -> None:
    context.values["reasoning.effort"] = effort


def _write_choice(choice: ToolChoice, context: EncodeContext) -> Any:
    if choice.kind != "tool" and not choice.names:
        return CHOICE_WORDS[choice.kind]
    kinds: dict[str, str] = {}
    for tool in context.tools:
        kind = "custom" if tool.get("type") == "custom" else "function"
        kinds.setdefault(str(tool.get(kind, {}).get("name")), kind)
    chosen_tools: list[JsonObject] = [
        {"type": kinds[name], kinds[name]: {"name": name}}
        for name in choice.names or (choice.name,)
        if name in kinds
    ]
    if choice.names:
        allowed = {"mode": CHOICE_WORDS[choice.kind], "tools": chosen_tools}
        return {"type": "allowed_tools", "allowed_tools": allowed}
    if not chosen_tools:
        context.losses.param("tool_choice", "tool_choice_dropped", choice.name)
    return chosen_tools[0] if chosen_tools else None


def _write_format(shape: Format, context: EncodeContext) -> JsonObject:
    if shape.kind != "schema":
        return {"type": "json_object" if shape.kind == "json" else "text"}
    if shape.name is None:
        context.losses.param("format.name", "default_added", "response")
    schema: JsonObject = {"name": shape.name or "response"}
    for key, value in (
        ("description", shape.description),
        ("schema", shape.schema),
        ("strict", shape.strict),
    ):
        if value is not None:
            schema[key] = value
    return {"type": "json_schema", "json_schema": schema}


def _write_reasoning(reasoning: Reasoning, context: EncodeContext) -> str | None:
    """The effort. Other reasoning settings cannot be written, and are reported.

    To turn thinking off, `none` is sent to the models that accept an effort. Other models decide
    for themselves.
    """
    model, losses = context.target.model, context.losses
    reasoning = with_effort(reasoning, model, losses)
    requested, parameter = reasoning.effort, "reasoning.effort"
    if reasoning.mode == "off" and requested is None and model.thinking == "effort":
        requested, parameter = "none", "reasoning.mode"
    effort = nearest_effort(requested, model, losses, parameter)
    if effort is not None and effort not in OPENAI_EFFORTS:
        losses.param("reasoning.effort", "effort_unsupported", effort)
    if reasoning.mode in ("on", "adaptive"):
        # An effort turns thinking on, so with one, only the form of the request changes.
        level = "meaning" if effort is None else "form"
        losses.param("reasoning.mode", "thinking_mode_dropped", reasoning.mode, level)
    elif reasoning.mode == "off" and effort != "none":
        # The meaning changes if the caller also set an effort: the model thinks. Without one, the
        # model may not think at all, or `nearest_effort` has reported the change.
        level = "meaning" if reasoning.effort and effort else "form"
        losses.param("reasoning.mode", "thinking_not_disabled", "", level)
    if reasoning.budget is not None:
        losses.param("reasoning.budget", "thinking_budget_dropped", reasoning.budget)
    if reasoning.summary is not None:
        losses.param("reasoning.summary", "thinking_summary_dropped", reasoning.summary)
    return effort if effort in OPENAI_EFFORTS else None


FIELDS = FieldTable(
    Field("temperature", float),
    Field("top_p", float),
    Field("seed", int),
    Field("n", int),
    Field("presence_penalty", float),
    Field("frequency_penalty", float),
    Field("stream", bool),
    Field("parallel_tool_calls", bool),
    Field("verbosity", str),
    Field("service_tier", str, write=_write_tier),
    Field("user", str),
    Field("metadata", dict),
    Field("store", bool),
    Field("prompt_cache_key", str),
    Field("safety_identifier", str),
    Field(
        "max_tokens",
        int,
        "max_completion_tokens",
        write=_write_limit,
        deprecated_name=DEPRECATED_LIMIT,
    ),
    Field("stop", read=_read_stop, write=write_list),
    Field(
        "format",
        dict,
        "response_format",
        read=_read_format,
        write=_write_format,
        inner={
            "type": None,
            "json_schema.name": "format.name",
            "json_schema.schema": "format.schema",
            "json_schema.description": "format.description",
            "json_schema.strict": "format.strict",
        },
    ),
    Field("reasoning", str, "reasoning_effort", read=_read_effort, write=_write_reasoning),
    Field("tool_choice", read=_read_choice, write=_write_choice, deprecated_name=DEPRECATED_CHOICE),
    members=("functions", "messages", "model", "stream_options", "tools"),
)


def decode_params(body: JsonObject) -> tuple[Params, dict[str, Any]]:
    """The parameters of a body, and the values that no parameter holds, by path."""
    params, unmapped = FIELDS.decode(body)
    if body.get("functions") is not None:
        unmapped["functions"] = None  # the deprecated name of `tools`
    if body.get("tools") == []:
        unmapped["tools"] = []
    for key, value in optional_object(body, "stream_options").items():
        unmapped[f"stream_options.{key}"] = value
    return params, unmapped


def encode_params(
    request: Request, target: Target, tools: list[JsonObject], losses: Losses
) -> JsonObject:
    """All members except the model, the messages and the tools.

    `tools` are the encoded tools. The parameters of a request that came in this protocol are
    written unchanged; only the name of the output limit may change (`_with_supported_limit`).
    """
    if PROTOCOL in request.raw:
        original = {key: value for key, value in request.raw[PROTOCOL].items() if key != "tools"}
        return _with_supported_limit(original, target, losses) if target.enforce else original
    params = apply_limits(request.params, LIMITS, target.model, losses)
    params = with_allowed_json_mode(request, params, target.model, losses)
    body = FIELDS.encode(EncodeContext(request, params, target, losses, tools))
    if not tools:
        _drop_tool_settings(body, losses)
    return body


def _with_supported_limit(body: JsonObject, target: Target, losses: Losses) -> JsonObject:
    """The body; for servers that only know `max_tokens`, the output limit gets that name."""
    current, deprecated = FIELDS.paths["max_tokens"], DEPRECATED_LIMIT
    if target.model.max_tokens_field != deprecated or current not in body or deprecated in body:
        return body
    losses.param("max_tokens", "param_renamed", f"{current} -> {deprecated}")
    return {deprecated if key == current else key: value for key, value in body.items()}


def _drop_tool_settings(body: JsonObject, losses: Losses) -> None:
    """Drop the settings for tools from a request without tools: the vendor refuses them."""
    for key in ("tool_choice", "parallel_tool_calls"):
        if key in body:
            del body[key]
            losses.param(key, "tool_setting_dropped", key)
