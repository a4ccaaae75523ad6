"""Decodes and encodes the parameters of Responses requests:
https://platform.openai.com/docs/api-reference/responses/create
"""

from typing import Any, Literal

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
)
from weft.codec.read import optional
from weft.codec.reports import read_schema_format, report_tier
from weft.codec.tools import read_allowed
from weft.model import Format, JsonObject, Params, Reasoning, Request, ToolChoice

from .wire import PROTOCOL

TOOL_CHOICE_KINDS: dict[str, Literal["auto", "any", "none"]] = {
    "auto": "auto",
    "required": "any",
    "none": "none",
}
TOOL_CHOICE_BY_KIND = {kind: name for name, kind in TOOL_CHOICE_KINDS.items()}

SERVICE_TIERS = frozenset({"auto", "default", "flex", "scale", "priority", "fast", "ultrafast"})

ABSENT = "absent"
"""The value of `input` in `Request.raw` for a body without `input`."""

FORM_NOTES = ("", ABSENT)
"""Values that `decode_request` puts in `Request.raw` instead of the original `input` or
`instructions`. An empty string stands for a string, which is now a message."""

DEFAULT_SCHEMA_NAME = "response"
"""The name of a schema without a name; the vendor requires one."""

LIMITS = Limits(min_tokens=16, max_user_length=64, sampling_if_reasoning_off=True)
"""Below 16 tokens the vendor answers "Expected a value >= 16". The other two limits are the same as
for Chat Completions (`codec.chat.fields.LIMITS`)."""


def _read_choice(choice: Any, context: DecodeContext) -> ToolChoice | None:
    if isinstance(choice, str) and choice in TOOL_CHOICE_KINDS:
        return ToolChoice(TOOL_CHOICE_KINDS[choice])
    match choice:
        case {"type": "function" | "custom", "name": str(name), **other_members}:
            context.keep_unknown(other_members, ())
            return ToolChoice("tool", name)
        case _:
            allowed = read_allowed(as_object(choice) or {})
            return context.skip() if allowed is None else allowed


def _write_choice(choice: ToolChoice, context: EncodeContext) -> str | JsonObject:
    custom_names = {tool.name for tool in context.request.tools if tool.kind == "custom"}
    tools: list[JsonObject] = [
        {"type": "custom" if name in custom_names else "function", "name": name}
        for name in choice.names or (choice.name,)
    ]
    if choice.names:
        return {"type": "allowed_tools", "mode": TOOL_CHOICE_BY_KIND[choice.kind], "tools": tools}
    return tools[0] if choice.kind == "tool" else TOOL_CHOICE_BY_KIND[choice.kind]


def _read_format(value: Any, context: DecodeContext) -> Format | None:
    raw = as_object(value) or {}
    kind = raw.get("type")
    if kind == "json_schema":
        return read_schema_format(raw)
    if kind in ("text", "json_object"):
        context.keep_unknown(raw, ("type",))
        return Format("text" if kind == "text" else "json")
    return context.skip()


def _write_format(answer_format: Format, context: EncodeContext) -> JsonObject:
    if answer_format.kind != "schema":
        return {"type": "text" if answer_format.kind == "text" else "json_object"}
    name, schema = answer_format.name, answer_format.schema
    if name is None:
        name = DEFAULT_SCHEMA_NAME
        context.losses.param("format.name", "default_added", DEFAULT_SCHEMA_NAME)
    if schema is None:
        schema = {}
        context.losses.param("format.schema", "default_added", "{}")
    body: JsonObject = {"type": "json_schema", "name": name, "schema": schema}
    if answer_format.description is not None:
        body["description"] = answer_format.description
    if answer_format.strict is not None:
        body["strict"] = answer_format.strict
    return body


def _read_reasoning(value: JsonObject, context: DecodeContext) -> None:
    """Set `reasoning.effort` and `reasoning.summary`."""
    for key in ("effort", "summary"):
        text = optional(value, key, str)
        if text is not None:
            context.values[f"reasoning.{key}"] = text


def _write_reasoning(reasoning: Reasoning, context: EncodeContext) -> JsonObject | None:
    """Only effort and summary can be written. The effort `none` turns thinking off."""
    model, losses = context.target.model, context.losses
    reasoning = with_effort(reasoning, model, losses)
    body: JsonObject = {}
    effort, mode = reasoning.effort, reasoning.mode
    if effort is not None and effort not in OPENAI_EFFORTS:
        losses.param("reasoning.effort", "effort_unsupported", effort)
        effort = None
    effort_source = "reasoning.effort"
    if mode == "off" and effort is None:
        effort, effort_source = "none", "reasoning.mode"
    elif mode == "off" and effort != "none":
        losses.param("reasoning.mode", "thinking_not_disabled")
    effort = nearest_effort(effort, model, losses, effort_source)
    if effort is not None:
        body["effort"] = effort
    if reasoning.summary is not None:
        body["summary"] = reasoning.summary
    if reasoning.budget is not None:
        losses.param("reasoning.budget", "thinking_budget_dropped", reasoning.budget)
    elif mode in ("on", "adaptive"):
        losses.param("reasoning.mode", "thinking_mode_dropped", mode, "form")
    return body or None


def _write_tier(tier: str, context: EncodeContext) -> str | None:
    if tier in SERVICE_TIERS:
        return tier
    return report_tier(tier, context.losses)


FIELDS = FieldTable(
    Field("max_tokens", int, "max_output_tokens"),
    Field("temperature", float),
    Field("top_p", float),
    Field("stream", bool),
    Field("tool_choice", read=_read_choice, write=_write_choice),
    Field("parallel_tool_calls", bool),
    Field(
        "format",
        path="text.format",
        read=_read_format,
        write=_write_format,
        inner={
            "type": None,
            "name": "format.name",
            "schema": "format.schema",
            "description": "format.description",
            "strict": "format.strict",
        },
    ),
    Field("verbosity", str, "text.verbosity"),
    Field(
        "reasoning",
        dict,
        read=_read_reasoning,
        write=_write_reasoning,
        inner={"effort": "reasoning.effort", "summary": "reasoning.summary"},
    ),
    Field("service_tier", str, write=_write_tier),
    Field("user", str),
    Field("metadata", dict),
    Field("store", bool),
    Field("prompt_cache_key", str),
    Field("safety_identifier", str),
    members=("input", "instructions", "model", "tools"),
)


def decode_params(body: JsonObject) -> tuple[Params, dict[str, Any]]:
    """The parameters of a body, and the values that no parameter holds, by path."""
    params, unmapped = FIELDS.decode(body)
    if body.get("tools") == []:
        unmapped["tools"] = []  # no `Tool` represents an empty list
    return params, unmapped


def encode_params(request: Request, target: Target, losses: Losses) -> JsonObject:
    """All members except the model, the messages and the tools.

    The parameters of a request that came in this protocol are written unchanged. So are a
    null `input` or `instructions`, and a null or empty `tools`, if its body had them.
    """
    if PROTOCOL in request.raw:
        original = dict(request.raw[PROTOCOL])
        for key in ("input", "instructions"):
            if original.get(key) in FORM_NOTES:
                del original[key]
        return original
    params = apply_limits(request.params, LIMITS, target.model, losses)
    params = with_allowed_json_mode(request, params, target.model, losses)
    return FIELDS.encode(EncodeContext(request, params, target, losses))
