"""Decodes and encodes the parameters of Messages requests.

Thinking: older models take a token budget, which must be smaller than `max_tokens`. Newer models
decide for themselves and refuse a budget. With thinking, a request cannot force a tool call, and
sampling parameters must have their defaults:
https://platform.claude.com/docs/en/build-with-claude/extended-thinking

Schemas: Anthropic enforces the JSON schema of an answer or a strict tool. Keywords that it refuses
are removed (`make_enforceable`). The remaining schema is looser than the caller's, so each removal
is reported. Objects must be closed:
https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations
"""

from typing import Any, Literal, cast

from msgspec import structs

from weft.codec.base import INLINE, Losses, Target, as_object
from weft.codec.fields import (
    DecodeContext,
    EncodeContext,
    Field,
    FieldTable,
    Limits,
    apply_limits,
    read_strings,
    write_stop,
)
from weft.codec.read import optional, wrong
from weft.model import Format, JsonObject, Params, Request, ToolChoice

from .wire import PROTOCOL

MIN_BUDGET = 1024
FORCED_CHOICES = frozenset({"any", "tool"})


def write_thinking(params: Params, limit: int, target: Target, losses: Losses) -> JsonObject | None:
    """The member `thinking`; `limit` is the request's `max_tokens`."""
    reasoning = params.reasoning
    if reasoning is None:
        return None
    if reasoning.summary is not None:
        losses.param("reasoning.summary", "thinking_summary_dropped", reasoning.summary, "form")
    if reasoning.mode == "off" or reasoning.effort == "none":
        return {"type": "disabled"}
    budget = reasoning.budget
    if budget is None and reasoning.mode is None:
        return None
    name = "reasoning.mode" if budget is None else "reasoning.budget"
    if params.tool_choice is not None and params.tool_choice.kind in FORCED_CHOICES:
        losses.param(name, "thinking_excluded_by_tool_choice")
        return None
    if target.model.thinking == "adaptive":
        if budget is not None:
            losses.param(name, "thinking_budget_dropped", budget)
        return {"type": "adaptive"}
    if budget is None:
        losses.param(name, "thinking_mode_dropped", reasoning.mode)
        return None
    return _write_budget(budget, limit, losses)


def _write_budget(tokens: int, limit: int, losses: Losses) -> JsonObject | None:
    budget = min(max(tokens, MIN_BUDGET), limit - 1)
    if budget < MIN_BUDGET:
        losses.param("reasoning.budget", "thinking_budget_dropped", tokens)
        return None
    if budget != tokens:
        losses.param("reasoning.budget", "thinking_budget_changed", f"{tokens} -> {budget}")
    return {"type": "enabled", "budget_tokens": budget}


def without_excluded_sampling(params: Params, losses: Losses) -> Params:
    """The parameters without the sampling values that cannot be combined with thinking.

    With thinking, the vendor accepts only a temperature of 1, a `top_p` from 0.95 to 1, and no
    `top_k`.
    """
    refused = {
        "temperature": params.temperature not in (None, 1),
        "top_p": params.top_p is not None and not 0.95 <= params.top_p <= 1,
        "top_k": params.top_k is not None,
    }
    for name, is_refused in refused.items():
        if is_refused:
            value = getattr(params, name)
            losses.param(name, "sampling_excluded_by_thinking", f"{name} {value}")
            params = structs.replace(params, **{name: None})
    return params


TOOL_CHOICE_KINDS: dict[str, Literal["auto", "any", "none", "tool"]] = {
    "auto": "auto",
    "any": "any",
    "none": "none",
    "tool": "tool",
}
THINKING_MODES = {"enabled": "on", "disabled": "off", "adaptive": "adaptive"}
SERVICE_TIERS = {"auto": "auto", "standard_only": "default"}

EFFORTS = frozenset({"low", "medium", "high", "xhigh", "max"})
NEAREST_EFFORT = {"minimal": "low"}

LIMITS = Limits(temperature=(0, 1), allows_blank_stops=False, allows_zero_tokens=True)
"""https://platform.claude.com/docs/en/api/messages. With `max_tokens` 0, a request only fills the
cache."""


def _read_choice(value: JsonObject, _context: DecodeContext) -> ToolChoice:
    kind = TOOL_CHOICE_KINDS.get(str(value.get("type")))
    if kind is None:
        raise wrong("type", value.get("type"), "one of auto, any, none, tool")
    return ToolChoice(kind, optional(value, "name", str))


def _write_choice(choice: ToolChoice, context: EncodeContext) -> JsonObject | None:
    if not context.tools:  # "tool_choice may only be specified while providing tools"
        return context.losses.param("tool_choice", "tool_setting_dropped", "tool_choice")
    name_member = {"name": choice.name} if choice.name is not None else {}
    return {"type": choice.kind, **name_member}


def _read_parallel(disabled: bool, _context: DecodeContext) -> bool:
    return not disabled


def _write_parallel(parallel: bool, context: EncodeContext) -> bool | None:
    """`disable_parallel_tool_use`, which is a member of the tool choice; one is added if needed."""
    choice = context.params.tool_choice
    if not context.tools:
        detail = "parallel_tool_calls"
        return context.losses.param("parallel_tool_calls", "tool_setting_dropped", detail)
    if parallel or (choice is not None and choice.kind == "none"):
        detail = str(parallel).lower()
        context.losses.param("parallel_tool_calls", "parallel_calls_dropped", detail)
        return None
    if choice is None:
        context.losses.param("tool_choice", "default_added", "auto")
        context.body["tool_choice"] = {"type": "auto"}
    return True


def _read_thinking(value: JsonObject, context: DecodeContext) -> None:
    kind = optional(value, "type", str)
    mode = THINKING_MODES.get(kind or "")
    if mode is not None:
        context.values["reasoning.mode"] = mode
    elif kind is not None:
        context.skip("type")
    budget = optional(value, "budget_tokens", int)
    if budget is not None:
        context.values["reasoning.budget"] = budget


def _write_effort(effort: str, context: EncodeContext) -> str | None:
    if effort == "none":  # written as disabled thinking
        return None
    if not context.target.model.effort or effort not in EFFORTS:
        context.losses.param("reasoning.effort", "effort_unsupported", effort)
    nearest = NEAREST_EFFORT.get(effort, effort)
    return nearest if context.target.model.effort and nearest in EFFORTS else None


DEPRECATED_FORMAT = "output_format"
"""The member for the format in the beta of structured outputs:
https://platform.claude.com/docs/en/build-with-claude/structured-outputs"""


def _read_format(value: Any, context: DecodeContext) -> Format | None:
    raw = as_object(value)
    if raw is None or raw.get("type") != "json_schema":
        return context.skip()
    if context.path == DEPRECATED_FORMAT:
        context.keep_unknown(raw, ("type", "schema"))
    return Format("schema", as_object(raw.get("schema")))


def _write_format(answer_format: Format, context: EncodeContext) -> JsonObject | None:
    losses, body = context.losses, None
    if answer_format.kind == "schema" and answer_format.schema is not None:
        schema = make_enforceable(
            answer_format.schema, losses.path(("params", "format.schema")), losses
        )
        body = {"type": "json_schema", "schema": schema}
    else:
        level = "form" if answer_format.kind == "text" else "meaning"
        losses.param("format", "format_unsupported", answer_format.kind, level)
    for key in ("name", "description", "strict"):
        if getattr(answer_format, key) is not None:
            level = "meaning" if key == "description" else "form"
            losses.param(f"format.{key}", "format_member_dropped", key, level)
    return body


def _read_tier(tier: str, context: DecodeContext) -> str | None:
    return SERVICE_TIERS[tier] if tier in SERVICE_TIERS else context.skip()


def _write_tier(tier: str, context: EncodeContext) -> str | None:
    own_name = next((own for own, shared in SERVICE_TIERS.items() if shared == tier), None)
    if own_name is None:
        context.losses.param("service_tier", "service_tier_dropped", tier)
    return own_name


FIELDS = FieldTable(
    Field("max_tokens", int),
    Field("temperature", float),
    Field("top_p", float),
    Field("top_k", int),
    Field("stream", bool),
    Field("stop", list, "stop_sequences", read=read_strings, write=write_stop),
    Field(
        "tool_choice",
        dict,
        read=_read_choice,
        write=_write_choice,
        inner={"type": None, "name": None},
    ),
    Field(
        "parallel_tool_calls",
        bool,
        "tool_choice.disable_parallel_tool_use",
        read=_read_parallel,
        write=_write_parallel,
    ),
    Field(
        "reasoning",
        dict,
        "thinking",
        read=_read_thinking,
        write=None,  # `encode_params` writes it: it depends on `max_tokens` and excludes sampling
        inner={"type": None, "budget_tokens": "reasoning.budget"},
    ),
    Field("reasoning.effort", str, "output_config.effort", write=_write_effort),
    Field(
        "format",
        path="output_config.format",
        deprecated_name=DEPRECATED_FORMAT,
        read=_read_format,
        write=_write_format,
        inner={"type": None, "schema": "format.schema"},
    ),
    Field("user", str, "metadata.user_id"),
    Field("service_tier", str, read=_read_tier, write=_write_tier),
    members=("cache_control", "messages", "model", "system", "tools"),
)


def decode_params(body: JsonObject) -> tuple[Params, dict[str, Any]]:
    """The parameters of a body, and the values that no parameter holds, by path."""
    params, unmapped = FIELDS.decode(body)
    if (as_object(body.get("metadata")) or {}).get("user_id", "") is None:
        unmapped["metadata.user_id"] = None  # nulls in metadata are otherwise the caller's own data
    return params, unmapped


def encode_params(
    request: Request, target: Target, tools: list[JsonObject], losses: Losses
) -> JsonObject:
    """All members except the model, the messages and the tools. `tools` are the encoded tools.

    The parameters of a request that came in this protocol are written unchanged. So is a
    null or empty `tools`, if its body had it.
    """
    if PROTOCOL in request.raw:
        original = dict(request.raw[PROTOCOL])
        original.pop("cache_control", None)
        original.pop(INLINE, None)
        return original
    params = apply_limits(request.params, LIMITS, target.model, losses)
    if params.max_tokens is None:
        losses.param("max_tokens", "default_added", target.model.output)
        params = structs.replace(params, max_tokens=target.model.output)
    thinking = write_thinking(params, params.max_tokens or 0, target, losses)
    if thinking is not None and thinking["type"] != "disabled":
        params = without_excluded_sampling(params, losses)
    body = FIELDS.encode(EncodeContext(request, params, target, losses, tools))
    if thinking is not None:
        body["thinking"] = thinking
    return body


REFUSED_KEYWORDS = frozenset(
    {
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "uniqueItems",
    }
)
SCHEMA_OBJECTS = frozenset({"properties", "$defs", "definitions"})
SCHEMA_LISTS = frozenset({"anyOf", "allOf", "oneOf", "prefixItems"})
"""Keywords whose values are schemas by name, or lists of schemas."""

ENFORCED_MIN_ITEMS = (0, 1)
"""The values of `minItems` that Anthropic enforces."""

MAX_DEPTH = 64
"""How deep a schema is changed. The vendor refuses much shallower ones anyway."""


def make_enforceable(schema: JsonObject, path: str, losses: Losses) -> JsonObject:
    """The schema that Anthropic can enforce; each removed keyword and closed object is reported."""
    removed: dict[str, None] = {}  # an ordered set
    enforced = _enforce(schema, removed, 0)
    for keyword in removed:
        level = "form" if keyword == "additionalProperties" else "meaning"
        losses.add(path, "schema_keyword_dropped", keyword, level)
    return enforced


def _enforce(schema: JsonObject, removed: dict[str, None], depth: int) -> JsonObject:
    if depth > MAX_DEPTH:
        return schema
    enforced: JsonObject = {}
    for key, value in schema.items():
        if key in REFUSED_KEYWORDS or (key == "minItems" and value not in ENFORCED_MIN_ITEMS):
            removed[key] = None
        elif key in SCHEMA_OBJECTS and isinstance(value, dict):
            properties = cast(JsonObject, value).items()
            enforced[key] = {
                name: _enforce_value(item, removed, depth) for name, item in properties
            }
        elif key in SCHEMA_LISTS and isinstance(value, list):
            enforced[key] = [
                _enforce_value(item, removed, depth) for item in cast(list[Any], value)
            ]
        else:
            enforced[key] = _enforce_value(value, removed, depth) if key == "items" else value
    if "properties" in enforced and enforced.get("additionalProperties") is not False:
        removed["additionalProperties"] = None
        enforced["additionalProperties"] = False
    return enforced


def _enforce_value(value: Any, removed: dict[str, None], depth: int) -> Any:
    schema = as_object(value)
    return value if schema is None else _enforce(schema, removed, depth + 1)
