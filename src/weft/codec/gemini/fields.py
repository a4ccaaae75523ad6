"""Parameters, both ways: https://ai.google.dev/api/generate-content#generationconfig"""

from typing import Any, cast

from weft.catalog import Model
from weft.codec.base import Losses, Target, members
from weft.codec.fields import report_params
from weft.codec.limits import Limits, within
from weft.codec.read import at, optional, optional_object, wrong
from weft.codec.tools import CALLABLE
from weft.errors import Refused
from weft.model import Format, JsonObject, Params, Reasoning, Request, ToolChoice

from .schema import json_schema
from .spelling import camel, camel_members
from .wire import FORM, PROTOCOL, REQUEST_SETUP

SAME: tuple[tuple[str, str, type[Any]], ...] = (
    ("temperature", "temperature", float),
    ("top_p", "topP", float),
    ("top_k", "topK", int),
    ("max_tokens", "maxOutputTokens", int),
    ("n", "candidateCount", int),
    ("seed", "seed", int),
    ("presence_penalty", "presencePenalty", float),
    ("frequency_penalty", "frequencyPenalty", float),
)
"""The model's name for a parameter, this wire's, and its type."""

READ_CONFIG = frozenset({name for _, name, _ in SAME} | {"stopSequences", "thinkingConfig"})
FORMAT = frozenset({"responseMimeType", "responseSchema", "responseJsonSchema"})
SAYABLE = frozenset(
    {"format", "reasoning", "stop", "stream", "tool_choice", *(name for name, _, _ in SAME)}
)

PLAIN_TEXT = ["TEXT"]
"""The `responseModalities` of every answer unless another is asked for."""

MODES = {"AUTO": "auto", "ANY": "any", "NONE": "none", "VALIDATED": "auto"}
SELECTIVE = frozenset({"ANY", "VALIDATED"})
"""Modes beside which `allowedFunctionNames` may stand: all, or a call by the rules or words."""

MODE_WORDS = {"auto": "AUTO", "any": "ANY", "none": "NONE", "tool": "ANY"}

LEVELS = {"minimal": "minimal", "low": "low", "medium": "medium", "high": "high"}
HIGHEST = "high"
BUDGETS = {"minimal": 1024, "low": 1024, "medium": 8192, "high": 24576}
"""What Google itself makes of an effort, for models that count tokens instead:
https://ai.google.dev/gemini-api/docs/openai#thinking"""

Rest = dict[str, Any]

LIMITS = Limits(stops=5, seed=2**31 - 1)
"""https://ai.google.dev/api/generate-content#generationconfig"""

PATHS = {
    **{name: f"generationConfig.{word}" for name, word, _ in SAME},
    "format": "generationConfig.responseMimeType",
    "format.schema": "generationConfig.responseJsonSchema",
    "reasoning": "generationConfig.thinkingConfig",
    "reasoning.budget": "generationConfig.thinkingConfig.thinkingBudget",
    "reasoning.effort": "generationConfig.thinkingConfig.thinkingLevel",
    "reasoning.summary": "generationConfig.thinkingConfig.includeThoughts",
    "stop": "generationConfig.stopSequences",
    "tool_choice": "toolConfig.functionCallingConfig",
}
"""Where this wire says what the model calls otherwise."""


def decode_params(body: JsonObject) -> tuple[Params, Rest]:
    """The shared meaning of a body's parameters, and by path what it could not take up."""
    rest: Rest = {}
    fields: dict[str, Any] = {}
    for key, value in body.items():
        if value == {} and key not in REQUEST_SETUP:
            rest[key] = value
            continue
        match camel(key):
            case "generationConfig":
                with at(key):
                    fields |= _decode_config(optional_object(body, key), key, rest)
            case "toolConfig":
                with at(key):
                    fields["tool_choice"] = _decode_choice(optional_object(body, key), key, rest)
            case "cachedContent":
                rest["cachedContent"] = value
            case "model":
                pass
            case _:
                if key not in REQUEST_SETUP:
                    rest[key] = value
    return Params(**fields), rest


def _decode_config(raw: JsonObject, step: str, rest: Rest) -> dict[str, Any]:
    config = camel_members(raw)
    stops = cast("list[Any] | None", optional(config, "stopSequences", list))
    for number, stop in enumerate(stops or ()):
        if not isinstance(stop, str):
            raise wrong(f"stopSequences[{number}]", stop, "a string")
    fields: dict[str, Any] = {name: _number(config, word, kind) for name, word, kind in SAME}
    fields["stop"] = tuple(stops) if stops is not None else None
    fields["reasoning"] = _decode_reasoning(config, step, rest)
    fields["format"] = shape = _decode_format(config)
    known = READ_CONFIG if shape is None else READ_CONFIG | FORMAT
    for key, value in raw.items():
        if camel(key) not in known:
            rest[f"{step}.{key}"] = None if value == PLAIN_TEXT else value
        elif camel(key) == "responseSchema":
            rest[f"{step}.{key}"] = None  # the dialect, not the schema
    if shape is not None and shape.kind == "schema" and "responseMimeType" not in config:
        rest[f"{step}.responseMimeType"] = None  # which goes without saying
    return fields


def _number(config: JsonObject, word: str, kind: type[Any]) -> Any:
    """A number; protocol buffers read `40.0` as an integer, too."""
    value = config.get(word)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    return optional(config, word, kind)


def _decode_format(config: JsonObject) -> Format | None:
    """The shape of an answer; `None` where it is one that only this wire knows."""
    kind = config.get("responseMimeType")
    if kind not in (None, "application/json"):
        return Format("text") if kind == "text/plain" else None
    schema = members(config.get("responseJsonSchema"))
    if schema is not None:
        return Format("schema", schema)
    schema = members(config.get("responseSchema"))
    if schema is not None:
        return Format("schema", json_schema(schema))
    return None if kind is None else Format("json")


def _decode_reasoning(config: JsonObject, step: str, rest: Rest) -> Reasoning | None:
    raw = optional_object(config, "thinkingConfig")
    if not raw:
        return None
    thinking = camel_members(raw)
    with at("thinkingConfig"):
        budget = optional(thinking, "thinkingBudget", int)
        level = optional(thinking, "thinkingLevel", str)
        shown = optional(thinking, "includeThoughts", bool)
    for key, value in raw.items():
        known = camel(key) in ("thinkingBudget", "thinkingLevel", "includeThoughts")
        if not known or value is False or value == "":
            rest[f"{step}.thinkingConfig.{key}"] = value
    mode = None if budget is None else "off" if budget == 0 else "on" if budget > 0 else "adaptive"
    return Reasoning(
        mode,
        level.lower() if level else None,
        budget if budget is not None and budget > 0 else None,
        "auto" if shown else None,
    )


def _decode_choice(raw: JsonObject, step: str, rest: Rest) -> ToolChoice | None:
    key = next((key for key in raw if camel(key) == "functionCallingConfig"), None)
    for other, value in raw.items():
        if other != key:
            rest[f"{step}.{other}"] = value
    if key is None:
        return None
    with at(key):
        config = optional_object(raw, key)
        mode = (optional(camel_members(config), "mode", str) or "").upper()
        names = cast(
            "list[Any] | None", optional(camel_members(config), "allowedFunctionNames", list)
        )
    kind = MODES.get(mode)
    some = tuple(str(name) for name in names or ()) if mode in SELECTIVE else ()
    for other, value in config.items():
        known = camel(other) == "mode" and kind is not None and (mode != "VALIDATED" or some)
        if not known and not (some and camel(other) == "allowedFunctionNames"):
            rest[f"{step}.{key}.{other}"] = value
    if kind is None:
        return None
    if kind == "any" and len(some) == 1:
        return ToolChoice("tool", some[0])
    return ToolChoice(cast(Any, kind), None, some)


def encode_params(request: Request, target: Target, losses: Losses) -> JsonObject:
    """The members beside contents, systemInstruction and tools."""
    if PROTOCOL in request.raw:
        return {key: value for key, value in request.raw[PROTOCOL].items() if key != FORM}
    params = within(request.params, LIMITS, target.model, losses)
    config: JsonObject = {}
    for name, word, _ in SAME:
        value = getattr(params, name)
        if value is not None:
            config[word] = value
    if params.stop is not None:
        config["stopSequences"] = list(params.stop)
    if params.format is not None and _may_format(params, request, target.model, losses):
        _write_format(params.format, config, losses)
    if params.reasoning is not None:
        thinking = _write_thinking(params.reasoning, target, losses)
        if thinking:
            config["thinkingConfig"] = thinking
    body: JsonObject = {"generationConfig": config} if config else {}
    if params.tool_choice is not None and not any(t.kind in CALLABLE for t in request.tools):
        losses.param("tool_choice", "tool_setting_dropped", "tool_choice")
    elif params.tool_choice is not None:
        body["toolConfig"] = {"functionCallingConfig": _write_choice(params.tool_choice)}
    if params.stream is not None:
        losses.param("stream", "stream_in_path")
    report_params(request, SAYABLE, losses)
    return body


def _may_format(params: Params, request: Request, model: Model, losses: Losses) -> bool:
    """Whether the format of an answer can be told; some models answer in JSON or call tools."""
    plain = params.format is not None and params.format.kind == "text"
    called = params.tool_choice is None or params.tool_choice.kind != "none"
    tools = called and any(tool.kind in CALLABLE for tool in request.tools)
    if plain or not tools or model.json_beside_tools:
        return True
    losses.param("format", "format_excluded_by_tools")
    return False


def _write_format(shape: Format, config: JsonObject, losses: Losses) -> None:
    config["responseMimeType"] = "text/plain" if shape.kind == "text" else "application/json"
    if shape.kind == "schema" and shape.schema is not None:
        config["responseJsonSchema"] = shape.schema
    elif shape.kind == "schema":
        losses.param("format", "format_as_json")
    for key in ("name", "description", "strict"):
        if getattr(shape, key) is not None:
            level = "meaning" if key == "description" else "form"
            losses.param(f"format.{key}", "format_member_dropped", key, level)


def _write_choice(choice: ToolChoice) -> JsonObject:
    if choice.names:
        mode = "VALIDATED" if choice.kind == "auto" else "ANY"
        return {"mode": mode, "allowedFunctionNames": list(choice.names)}
    body: JsonObject = {"mode": MODE_WORDS[choice.kind]}
    if choice.kind == "tool" and choice.name is not None:
        body["allowedFunctionNames"] = [choice.name]
    return body


def _write_thinking(reasoning: Reasoning, target: Target, losses: Losses) -> JsonObject:
    """One of budget and level: a model takes the one or the other, never both."""
    levels = target.model.thinking == "effort"
    body: JsonObject = {}
    if target.model.budget == (0, 0):
        _report_thinking(reasoning, losses)
        return body
    if reasoning.mode == "off" or reasoning.effort == "none":
        body = {"thinkingLevel": "low"} if levels else {"thinkingBudget": 0}
        if reasoning.effort not in (None, "none"):
            losses.param("reasoning.effort", "effort_overridden", reasoning.effort)
        if levels:
            losses.param("reasoning.mode", "thinking_not_disabled")
    elif reasoning.effort is not None and (levels or reasoning.budget is None):
        body = _write_effort(reasoning.effort, levels, losses)
        if reasoning.mode is not None:
            losses.param("reasoning.mode", "thinking_mode_dropped", reasoning.mode, "form")
        if reasoning.budget is not None:
            losses.param("reasoning.budget", "thinking_budget_dropped", reasoning.budget)
    elif reasoning.budget is not None:
        body = {"thinkingBudget": reasoning.budget}
        if reasoning.effort is not None:
            losses.param("reasoning.effort", "effort_overridden", reasoning.effort)
    elif reasoning.mode == "adaptive" and not levels:
        body = {"thinkingBudget": -1}
    elif reasoning.mode is not None:
        losses.param("reasoning.mode", "thinking_mode_dropped", reasoning.mode, "form")
    _keep_budget(body, target.model, losses)
    if reasoning.summary is not None:
        body["includeThoughts"] = True
        if reasoning.summary != "auto":
            losses.param(
                "reasoning.summary",
                "thinking_summary_dropped",
                reasoning.summary,
                "form",
            )
    return body


def _report_thinking(reasoning: Reasoning, losses: Losses) -> None:
    """Report whatever was said about thinking to a model that does not think."""
    measured = reasoning.effort is not None or reasoning.budget is not None
    for name in reasoning.__struct_fields__:
        value = getattr(reasoning, name)
        if value is not None:
            form = value in ("off", "none") or (name == "mode" and measured)
            level = "form" if form else "meaning"
            losses.param(f"reasoning.{name}", "reasoning_unsupported", f"{name} {value}", level)


def _keep_budget(body: JsonObject, model: Model, losses: Losses) -> None:
    """Bring a budget within what the model takes; -1 leaves it to the model."""
    given = body.get("thinkingBudget", -1)
    if model.budget is None or given < 0 or (given == 0 and not model.always_thinks):
        return
    least, most = model.budget
    body["thinkingBudget"] = taken = min(max(given, least), most)
    if given == 0:
        losses.param("reasoning.mode", "thinking_not_disabled")
    elif taken != given:
        losses.param("reasoning.budget", "thinking_budget_changed", f"{given} -> {taken}")


def _write_effort(effort: str, levels: bool, losses: Losses) -> JsonObject:
    level = LEVELS.get(effort, HIGHEST)
    if level != effort:
        losses.param("reasoning.effort", "effort_changed", f"{effort} -> {level}")
    if levels:
        return {"thinkingLevel": level}
    for name in ("reasoning", "reasoning.effort"):
        losses.param(name, "effort_as_budget", level)
    return {"thinkingBudget": BUDGETS[level]}


def require_model(model: str | None) -> str:
    """The model's name, which stands in the address; raises `Refused` where nobody gave it."""
    if not model:
        why = "is missing: a Gemini body does not name its model, so it must be given beside it"
        raise Refused(why, param="model")
    return model
