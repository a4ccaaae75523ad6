"""Decodes and encodes the parameters of Chat Completions requests:
https://platform.openai.com/docs/api-reference/chat/create
"""

from typing import Any, Literal, cast

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
    write_stop,
)
from weft.codec.read import optional_object, path_prefix, wrong
from weft.codec.reports import read_schema_format, report_tier
from weft.codec.tools import read_allowed
from weft.model import Format, JsonObject, Params, Reasoning, Request, ToolChoice

from .wire import PROTOCOL

SERVICE_TIERS = frozenset({"auto", "default", "flex", "scale", "priority", "fast"})
"""https://platform.openai.com/docs/api-reference/chat/create#chat-create-service_tier"""

TOOL_CHOICE_KINDS: dict[str, Literal["auto", "any", "none"]] = {
    "auto": "auto",
    "required": "any",
    "none": "none",
}
"""The kind of `ToolChoice` for each string in `tool_choice`."""

TOOL_CHOICE_BY_KIND = {kind: name for name, kind in TOOL_CHOICE_KINDS.items()}

LIMITS = Limits(max_stops=4, max_user_length=64, sampling_if_reasoning_off=True)
"""Where the vendor's limits are stated:

- `max_stops`: https://platform.openai.com/docs/api-reference/chat/create#chat-create-stop
- `max_user_length`: OpenAI does not document it. Another gateway has the same limit:
  https://github.com/maximhq/bifrost/pull/1000
- `sampling_if_reasoning_off`: https://platform.openai.com/docs/guides/latest-model
"""

DEPRECATED_MAX_TOKENS, DEPRECATED_TOOL_CHOICE = "max_tokens", "function_call"
"""The deprecated names of `max_completion_tokens` and `tool_choice`."""


def _write_tier(tier: str, context: EncodeContext) -> str | None:
    if tier in SERVICE_TIERS:
        return tier
    return report_tier(tier, context.losses)


def _write_max_tokens(max_tokens: int, context: EncodeContext) -> None:
    """Writes the member itself, because its name depends on the model."""
    # If nothing is known about the model: more servers accept the deprecated name.
    name = context.target.model.max_tokens_field or DEPRECATED_MAX_TOKENS
    context.body[name] = max_tokens


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
        case str() if choice in TOOL_CHOICE_KINDS:
            return ToolChoice(TOOL_CHOICE_KINDS[choice])
        case {"type": "function", "function": {"name": str(name), **inner}, **more}:
            context.keep_unknown(inner, (), "function")
        case {"type": "custom", "custom": {"name": str(name), **inner}, **more}:
            context.keep_unknown(inner, (), "custom")
            if not _has_custom_tool(context.body, name):
                # The encoder writes a choice with the kind of its tool, here `function`.
                context.note_form_change()
        case {"name": str(name), **more} if context.path == DEPRECATED_TOOL_CHOICE:
            pass
        case _:
            allowed = as_object((as_object(choice) or {}).get("allowed_tools")) or {}
            allowed_choice = read_allowed(allowed)
            if allowed_choice is None:
                context.unmapped[context.path] = choice
            return allowed_choice
    context.keep_unknown(more, ())
    return ToolChoice("tool", name)


def _has_custom_tool(body: JsonObject, name: str) -> bool:
    value = body.get("tools")
    tools = cast(list[Any], value) if isinstance(value, list) else []
    definitions = (as_object((as_object(tool) or {}).get("custom")) or {} for tool in tools)
    return any(definition.get("name") == name for definition in definitions)


def _read_format(raw: JsonObject, context: DecodeContext) -> Format | None:
    match raw.get("type"):
        case "text" | "json_object" as kind:
            if "json_schema" in raw:
                context.skip("json_schema")
            return Format("text" if kind == "text" else "json")
        case "json_schema":
            schema = optional_object(raw, "json_schema")
            with path_prefix("json_schema"):
                return read_schema_format(schema)
        case _:
            return context.skip()


def _read_effort(effort: str, context: DecodeContext) -> None:
    """Stores the value itself, because it is only one part of the parameter `reasoning`."""
    context.values["reasoning.effort"] = effort


def _write_choice(choice: ToolChoice, context: EncodeContext) -> Any:
    if choice.kind != "tool" and not choice.names:
        return TOOL_CHOICE_BY_KIND[choice.kind]
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
        allowed = {"mode": TOOL_CHOICE_BY_KIND[choice.kind], "tools": chosen_tools}
        return {"type": "allowed_tools", "allowed_tools": allowed}
    if not chosen_tools:
        context.losses.param("tool_choice", "tool_choice_dropped", choice.name)
    return chosen_tools[0] if chosen_tools else None


def _write_format(answer_format: Format, context: EncodeContext) -> JsonObject:
    if answer_format.kind != "schema":
        return {"type": "json_object" if answer_format.kind == "json" else "text"}
    if answer_format.name is None:
        context.losses.param("format.name", "default_added", "response")
    schema: JsonObject = {"name": answer_format.name or "response"}
    for key, value in (
        ("description", answer_format.description),
        ("schema", answer_format.schema),
        ("strict", answer_format.strict),
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
        # The meaning changes only if the caller also set an effort, because then the model thinks.
        # Otherwise the model decides for itself, or `nearest_effort` has reported the change.
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
        write=_write_max_tokens,
        deprecated_name=DEPRECATED_MAX_TOKENS,
    ),
    Field("stop", read=_read_stop, write=write_stop),
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
    Field(
        "tool_choice",
        read=_read_choice,
        write=_write_choice,
        deprecated_name=DEPRECATED_TOOL_CHOICE,
    ),
    members=("functions", "messages", "model", "stream_options", "tools", "web_search_options"),
)


def decode_params(body: JsonObject) -> tuple[Params, dict[str, Any]]:
    """The parameters of a body, and the values that no parameter holds, by path."""
    params, unmapped = FIELDS.decode(body)
    if body.get("functions") is not None:
        # The deprecated name of `tools`, and decoded as such. `None`: only the name is lost.
        unmapped["functions"] = None
    if body.get("tools") == []:
        unmapped["tools"] = []  # `Request.tools` is empty for a missing list, too
    for key, value in optional_object(body, "stream_options").items():
        unmapped[f"stream_options.{key}"] = value
    return params, unmapped


def encode_params(
    request: Request, target: Target, tools: list[JsonObject], losses: Losses
) -> JsonObject:
    """All members except the model, the messages and the tools.

    `tools` are the encoded tools. The parameters of a request that came in this protocol are
    written unchanged; only `max_completion_tokens` may be renamed (`_with_supported_max_tokens`).
    """
    if PROTOCOL in request.raw:
        original = {key: value for key, value in request.raw[PROTOCOL].items() if key != "tools"}
        return _with_supported_max_tokens(original, target, losses) if target.enforce else original
    params = apply_limits(request.params, LIMITS, target.model, losses)
    params = with_allowed_json_mode(request, params, target.model, losses)
    body = FIELDS.encode(EncodeContext(request, params, target, losses, tools))
    if not tools:
        _drop_tool_settings(body, losses)
    return body


def _with_supported_max_tokens(body: JsonObject, target: Target, losses: Losses) -> JsonObject:
    """The body, with `max_completion_tokens` renamed if the server only supports `max_tokens`."""
    current, deprecated = FIELDS.paths["max_tokens"], DEPRECATED_MAX_TOKENS
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
