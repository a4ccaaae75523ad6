"""Parameters and tools, both ways.

Thinking: older models take a token budget, and the answer's limit must be larger than it. Newer
models decide for themselves and refuse a budget. A model that thinks cannot be forced to call a
tool and takes no sampling but the default:
https://platform.claude.com/docs/en/build-with-claude/extended-thinking
"""

from typing import Any, Literal, cast

from msgspec import structs

from weft.codec.base import INLINE, Losses, Target, members
from weft.codec.fields import report_params, schema_path, tool_losses
from weft.codec.limits import Limits, within
from weft.codec.read import at, optional, optional_object, wrong
from weft.codec.schema import COMBINES, flatten_root_combinators
from weft.codec.tools import is_offered, schema_of
from weft.codec.web_search import is_search, search_members
from weft.model import Format, JsonObject, Params, Reasoning, Request, Tool, ToolChoice

from .schema import enforceable
from .wire import PROTOCOL

LEAST_BUDGET = 1024
FORCED = frozenset({"any", "tool"})


def write_thinking(params: Params, limit: int, target: Target, losses: Losses) -> JsonObject | None:
    """The member `thinking`; `limit` is the length of the whole answer."""
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
    if params.tool_choice is not None and params.tool_choice.kind in FORCED:
        losses.param(name, "thinking_excluded_by_tool_choice")
        return None
    if target.model.thinking == "adaptive":
        if budget is not None:
            losses.param(name, "thinking_budget_dropped", budget)
        return {"type": "adaptive"}
    if budget is None:
        losses.param(name, "thinking_mode_dropped", reasoning.mode)
        return None
    return _budget(budget, limit, losses)


def _budget(given: int, limit: int, losses: Losses) -> JsonObject | None:
    taken = min(max(given, LEAST_BUDGET), limit - 1)
    if taken < LEAST_BUDGET:
        losses.param("reasoning.budget", "thinking_budget_dropped", given)
        return None
    if taken != given:
        losses.param("reasoning.budget", "thinking_budget_changed", f"{given} -> {taken}")
    return {"type": "enabled", "budget_tokens": taken}


def beside_thinking(params: Params, losses: Losses) -> Params:
    """The parameters without the sampling that thinking excludes."""
    refused = {
        "temperature": params.temperature not in (None, 1),
        "top_p": params.top_p is not None and not 0.95 <= params.top_p <= 1,
        "top_k": params.top_k is not None,
    }
    for name in (name for name, is_refused in refused.items() if is_refused):
        losses.param(name, "sampling_excluded_by_thinking", f"{name} {getattr(params, name)}")
        params = structs.replace(params, **{name: None})
    return params


CHOICES: dict[str, Literal["auto", "any", "none", "tool"]] = {
    "auto": "auto",
    "any": "any",
    "none": "none",
    "tool": "tool",
}
THINKING_MODES = {"enabled": "on", "disabled": "off", "adaptive": "adaptive"}
SERVICE_TIERS = {"auto": "auto", "standard_only": "default"}

EFFORTS = frozenset({"low", "medium", "high", "xhigh", "max"})
NEAREST_EFFORT = {"minimal": "low"}

SEARCH: JsonObject = {"type": "web_search_20250305", "name": "web_search"}
SEARCH_MEMBERS = frozenset({"allowed_domains", "blocked_domains", "user_location"})

READ = frozenset(
    {
        "cache_control",
        "max_tokens",
        "metadata",
        "output_config",
        "service_tier",
        "stop_sequences",
        "stream",
        "temperature",
        "thinking",
        "tool_choice",
        "top_k",
        "top_p",
        "model",
        "messages",
        "system",
        "tools",
    }
)

SAYABLE = frozenset(
    {
        "format",
        "max_tokens",
        "parallel_tool_calls",
        "reasoning",
        "service_tier",
        "stop",
        "stream",
        "temperature",
        "tool_choice",
        "top_k",
        "top_p",
        "user",
    }
)

LIMITS = Limits(temperature=(0, 1), blank_stops=False, silence=True)
"""https://platform.claude.com/docs/en/api/messages: an answer of no tokens fills the cache only."""

PATHS = {
    "format": "output_config.format",
    "format.schema": "output_config.format.schema",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "reasoning": "thinking",
    "reasoning.budget": "thinking.budget_tokens",
    "reasoning.effort": "output_config.effort",
    "stop": "stop_sequences",
    "user": "metadata.user_id",
}
"""Where this wire says what the model calls otherwise."""


def decode_params(body: JsonObject) -> tuple[Params, dict[str, Any]]:
    """The shared meaning of a body's parameters, and by path what it could not take up."""
    rest = {key: value for key, value in body.items() if key not in READ}
    choice, parallel = _decode_choice(body, rest)
    stops = cast("list[Any] | None", optional(body, "stop_sequences", list))
    for number, stop in enumerate(stops or ()):
        if not isinstance(stop, str):
            raise wrong(f"stop_sequences[{number}]", stop, "a string")
    params = Params(
        max_tokens=optional(body, "max_tokens", int),
        temperature=optional(body, "temperature", float),
        top_p=optional(body, "top_p", float),
        top_k=optional(body, "top_k", int),
        stop=tuple(stops) if stops is not None else None,
        stream=optional(body, "stream", bool),
        tool_choice=choice,
        parallel_tool_calls=parallel,
        format=_decode_format(body, rest),
        reasoning=_decode_reasoning(body, rest),
        service_tier=_decode_tier(body, rest),
        user=_decode_user(body, rest),
    )
    return params, rest


def _decode_choice(body: JsonObject, rest: dict[str, Any]) -> tuple[ToolChoice | None, bool | None]:
    choice = optional_object(body, "tool_choice")
    if not choice:
        return None, None
    with at("tool_choice"):
        kind = CHOICES.get(str(choice.get("type")))
        if kind is None:
            raise wrong("type", choice.get("type"), "one of auto, any, none, tool")
        alone = optional(choice, "disable_parallel_tool_use", bool)
        name = optional(choice, "name", str)
    _keep_rest(choice, {"type", "name", "disable_parallel_tool_use"}, "tool_choice", rest)
    return ToolChoice(kind, name), None if alone is None else not alone


def _decode_reasoning(body: JsonObject, rest: dict[str, Any]) -> Reasoning | None:
    thinking = optional_object(body, "thinking")
    config = optional_object(body, "output_config")
    with at("thinking"):
        kind = optional(thinking, "type", str)
        budget = optional(thinking, "budget_tokens", int)
    with at("output_config"):
        effort = optional(config, "effort", str)
    _keep_rest(thinking, {"type", "budget_tokens"}, "thinking", rest)
    _keep_rest(config, {"effort", "format"}, "output_config", rest)
    if not thinking and effort is None:
        return None
    mode: Any = THINKING_MODES.get(kind or "")
    if kind is not None and mode is None:
        rest["thinking.type"] = kind
    return Reasoning(mode, effort, budget)


def _decode_format(body: JsonObject, rest: dict[str, Any]) -> Format | None:
    config = members(body.get("output_config")) or {}
    shape = members(config.get("format"))
    if shape is None:
        return None
    if shape.get("type") != "json_schema":
        rest["output_config.format"] = shape
        return None
    _keep_rest(shape, {"type", "schema"}, "output_config.format", rest)
    return Format("schema", members(shape.get("schema")))


def _decode_tier(body: JsonObject, rest: dict[str, Any]) -> str | None:
    tier = optional(body, "service_tier", str)
    if tier is not None and tier not in SERVICE_TIERS:
        rest["service_tier"] = tier
        return None
    return SERVICE_TIERS[tier] if tier is not None else None


def _decode_user(body: JsonObject, rest: dict[str, Any]) -> str | None:
    metadata = optional_object(body, "metadata")
    _keep_rest(metadata, {"user_id"}, "metadata", rest)
    if metadata.get("user_id", "") is None:
        rest["metadata.user_id"] = None
    with at("metadata"):
        return optional(metadata, "user_id", str)


def _keep_rest(raw: JsonObject, known: set[str], step: str, rest: dict[str, Any]) -> None:
    for key, value in raw.items():
        if key not in known:
            rest[f"{step}.{key}"] = value


def encode_params(request: Request, target: Target, losses: Losses) -> JsonObject:
    """The members beside model, messages, system and tools."""
    if PROTOCOL in request.raw:
        own = dict(request.raw[PROTOCOL])
        own.pop("cache_control", None)
        own.pop(INLINE, None)
        return own
    params = within(request.params, LIMITS, target.model, losses)
    limit = target.model.output if params.max_tokens is None else params.max_tokens
    thinking = write_thinking(params, limit, target, losses)
    if thinking is not None and thinking["type"] != "disabled":
        params = beside_thinking(params, losses)
    body: JsonObject = {"max_tokens": limit}
    if params.max_tokens is None:
        losses.param(
            "max_tokens",
            "default_added",
            target.model.output,
        )
    for key, value in (
        ("temperature", params.temperature),
        ("top_p", params.top_p),
        ("top_k", params.top_k),
        ("stream", params.stream),
        ("stop_sequences", list(params.stop) if params.stop is not None else None),
        ("tool_choice", _write_choice(params, losses)),
        ("thinking", thinking),
        ("output_config", _write_config(params, target, losses)),
        ("metadata", {"user_id": params.user} if params.user is not None else None),
    ):
        if value is not None:
            body[key] = value
    tier = {name: word for word, name in SERVICE_TIERS.items()}.get(params.service_tier or "")
    if tier is not None:
        body["service_tier"] = tier
    elif params.service_tier is not None:
        losses.param("service_tier", "service_tier_dropped", params.service_tier)
    report_params(request, SAYABLE, losses)
    return body


def _write_choice(params: Params, losses: Losses) -> JsonObject | None:
    choice, parallel = params.tool_choice, params.parallel_tool_calls
    kind = choice.kind if choice is not None else "auto"
    if parallel or (parallel is False and kind == "none"):
        losses.param("parallel_tool_calls", "parallel_calls_dropped", str(parallel).lower())
    if choice is None and parallel is not False:
        return None
    if choice is None:
        losses.param("tool_choice", "default_added", "auto")
    body: JsonObject = {"type": kind}
    if choice is not None and choice.name is not None:
        body["name"] = choice.name
    if parallel is False and kind != "none":
        body["disable_parallel_tool_use"] = True
    return body


def _write_config(params: Params, target: Target, losses: Losses) -> JsonObject | None:
    body: JsonObject = {}
    effort = params.reasoning.effort if params.reasoning is not None else None
    if effort is not None and effort != "none" and not target.model.effort:
        losses.param("reasoning.effort", "effort_unsupported", effort)
    elif effort is not None and effort != "none":
        body["effort"] = NEAREST_EFFORT.get(effort, effort)
        if effort not in EFFORTS:
            losses.param("reasoning.effort", "effort_unsupported", effort)
        if body["effort"] not in EFFORTS:
            del body["effort"]
    if params.format is not None:
        _write_format(params.format, body, losses)
    return body or None


def _write_format(shape: Format, body: JsonObject, losses: Losses) -> None:
    if shape.kind == "schema" and shape.schema is not None:
        schema = enforceable(shape.schema, losses.path(("params", "format.schema")), losses)
        body["format"] = {"type": "json_schema", "schema": schema}
    else:
        level = "form" if shape.kind == "text" else "meaning"
        losses.param("format", "format_unsupported", shape.kind, level)
    for key in ("name", "description", "strict"):
        if getattr(shape, key) is not None:
            level = "meaning" if key == "description" else "form"
            losses.param(f"format.{key}", "format_member_dropped", key, level)


def encode_tool(tool: Tool, number: int, losses: Losses) -> JsonObject | None:
    """A tool definition, or `None` where the target has no such kind of tool."""
    if tool.raw is not None and PROTOCOL in tool.raw:
        return dict(tool.raw[PROTOCOL])
    if is_search(tool):
        return {**SEARCH, **search_members(tool, number, SEARCH_MEMBERS, losses)}
    if not is_offered(tool, number, losses):
        return None
    tool_losses(tool, number, losses)
    body: JsonObject = {"name": tool.name}
    if tool.description is not None:
        body["description"] = tool.description
    schema = schema_of(tool, number, losses)
    body["input_schema"] = flatten_root_combinators(schema, tool, number, COMBINES, losses)
    if tool.strict:
        path = schema_path(tool, number, losses)
        body["input_schema"] = enforceable(body["input_schema"], path, losses)
    if tool.strict is not None:
        body["strict"] = tool.strict
    return body
