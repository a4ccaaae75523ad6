"""Parameters, both ways: https://ai.google.dev/api/generate-content#generationconfig

`json_schema` converts Gemini's `Schema` (https://ai.google.dev/api/caching#Schema), a dialect of
OpenAPI 3.0: types in capitals, `nullable` instead of a type `null`, counts as strings. Other
protocols read JSON schema. The other way needs no conversion: `parametersJsonSchema` and
`responseJsonSchema` take JSON schema as it is.
"""

from typing import Any, cast

from weft.catalog import Model
from weft.codec.base import Losses, Target, as_object
from weft.codec.fields import (
    DecodeContext,
    EncodeContext,
    Field,
    FieldTable,
    Limits,
    apply_limits,
    read_strings,
    write_list,
)
from weft.codec.read import optional, wrong
from weft.codec.tools import CALLABLE
from weft.errors import Refused
from weft.model import Format, JsonObject, Params, Reasoning, Request, ToolChoice

from .spelling import camel, camel_members, respell_path
from .wire import FORM, PROTOCOL

FORMAT = ("responseMimeType", "responseSchema", "responseJsonSchema")

PLAIN_TEXT = ["TEXT"]
"""The default `responseModalities`."""

MODES = {"AUTO": "auto", "ANY": "any", "NONE": "none", "VALIDATED": "auto"}
SELECTIVE = frozenset({"ANY", "VALIDATED"})
"""Modes that accept `allowedFunctionNames`."""

KIND_MODE = {"auto": "AUTO", "any": "ANY", "none": "NONE", "tool": "ANY"}

LEVELS = {"minimal": "minimal", "low": "low", "medium": "medium", "high": "high"}
HIGHEST = "high"
BUDGETS = {"minimal": 1024, "low": 1024, "medium": 8192, "high": 24576}
"""Google's own mapping from effort to thinking tokens, for models with a budget:
https://ai.google.dev/gemini-api/docs/openai#thinking"""

LIMITS = Limits(max_stops=5, max_seed=2**31 - 1)
"""https://ai.google.dev/api/generate-content#generationconfig"""


def _read_integer(value: Any, _context: DecodeContext) -> int:
    """An integer; protocol buffers accept `40.0` too."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if type(value) is not int:
        raise wrong("", value, "an integer")
    return value


def _read_format(config: JsonObject, context: DecodeContext) -> Format | None:
    """The response format. Members that only Gemini has stay in `raw`."""
    shape = _find_format(config)
    if shape is None:
        for key in FORMAT:
            context.skip(key)
        return None
    if "responseSchema" in config:
        context.note_form_change("generationConfig.responseSchema")  # only its notation is lost
    if shape.kind == "schema" and "responseMimeType" not in config:
        context.note_form_change("generationConfig.responseMimeType")  # a schema implies it
    return shape


def _find_format(config: JsonObject) -> Format | None:
    kind = config.get("responseMimeType")
    if kind not in (None, "application/json"):
        return Format("text") if kind == "text/plain" else None
    schema = as_object(config.get("responseJsonSchema"))
    if schema is not None:
        return Format("schema", schema)
    schema = as_object(config.get("responseSchema"))
    if schema is not None:
        return Format("schema", json_schema(schema))
    return None if kind is None else Format("json")


def _read_thinking(thinking: JsonObject, context: DecodeContext) -> None:
    budget = optional(thinking, "thinkingBudget", int)
    level = optional(thinking, "thinkingLevel", str)
    shown = optional(thinking, "includeThoughts", bool)
    for key, value in thinking.items():
        if value is False or value == "":
            context.skip(key)
    if budget is not None:
        mode = "off" if budget == 0 else "on" if budget > 0 else "adaptive"
        context.values["reasoning.mode"] = mode
        if budget > 0:
            context.values["reasoning.budget"] = budget
    if level:
        context.values["reasoning.effort"] = level.lower()
    if shown:
        context.values["reasoning.summary"] = "auto"


def _read_choice(raw: JsonObject, context: DecodeContext) -> ToolChoice | None:
    config = camel_members(raw)
    mode = (optional(config, "mode", str) or "").upper()
    names = cast("list[Any] | None", optional(config, "allowedFunctionNames", list))
    kind = MODES.get(mode)
    allowed = tuple(str(name) for name in names or ()) if mode in SELECTIVE else ()
    known = {"mode"} if kind is not None and (mode != "VALIDATED" or allowed) else set[str]()
    if allowed:
        known.add("allowedFunctionNames")
    context.keep_unknown(raw, {key for key in raw if camel(key) in known})
    if kind is None:
        return None
    if kind == "any" and len(allowed) == 1:
        return ToolChoice("tool", allowed[0])
    return ToolChoice(cast(Any, kind), None, allowed)


def _write_choice(choice: ToolChoice, context: EncodeContext) -> JsonObject | None:
    if not any(tool.kind in CALLABLE for tool in context.request.tools):
        return context.losses.param("tool_choice", "tool_setting_dropped", "tool_choice")
    if choice.names:
        mode = "VALIDATED" if choice.kind == "auto" else "ANY"
        return {"mode": mode, "allowedFunctionNames": list(choice.names)}
    body: JsonObject = {"mode": KIND_MODE[choice.kind]}
    if choice.kind == "tool" and choice.name is not None:
        body["allowedFunctionNames"] = [choice.name]
    return body


def _report_stream(_stream: bool, context: EncodeContext) -> None:
    context.losses.param("stream", "stream_in_path")


def _may_format(params: Params, request: Request, model: Model, losses: Losses) -> bool:
    """Whether the format can be written; some models either answer in JSON or call tools."""
    plain = params.format is not None and params.format.kind == "text"
    called = params.tool_choice is None or params.tool_choice.kind != "none"
    tools = called and any(tool.kind in CALLABLE for tool in request.tools)
    if plain or not tools or model.json_beside_tools:
        return True
    losses.param("format", "format_excluded_by_tools")
    return False


def _write_format(shape: Format, context: EncodeContext) -> JsonObject | None:
    losses = context.losses
    if not _may_format(context.params, context.request, context.target.model, losses):
        return None
    kind = "text/plain" if shape.kind == "text" else "application/json"
    config: JsonObject = {"responseMimeType": kind}
    if shape.kind == "schema" and shape.schema is not None:
        config["responseJsonSchema"] = shape.schema
    elif shape.kind == "schema":
        losses.param("format", "format_as_json")
    for key in ("name", "description", "strict"):
        if getattr(shape, key) is not None:
            level = "meaning" if key == "description" else "form"
            losses.param(f"format.{key}", "format_member_dropped", key, level)
    return config


def _write_thinking(reasoning: Reasoning, context: EncodeContext) -> JsonObject | None:
    """A budget or a level; no model accepts both."""
    target, losses = context.target, context.losses
    levels = target.model.thinking == "effort"
    body: JsonObject = {}
    if target.model.budget == (0, 0):
        _report_thinking(reasoning, losses)
        return None
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
    return body or None


def _report_thinking(reasoning: Reasoning, losses: Losses) -> None:
    """Report the thinking settings of a request to a model without thinking."""
    measured = reasoning.effort is not None or reasoning.budget is not None
    for name in reasoning.__struct_fields__:
        value = getattr(reasoning, name)
        if value is not None:
            form = value in ("off", "none") or (name == "mode" and measured)
            level = "form" if form else "meaning"
            losses.param(f"reasoning.{name}", "reasoning_unsupported", f"{name} {value}", level)


def _keep_budget(body: JsonObject, model: Model, losses: Losses) -> None:
    """Clamp a budget to the range of the model; -1 means that the model decides."""
    requested = body.get("thinkingBudget", -1)
    if model.budget is None or requested < 0 or (requested == 0 and not model.always_thinks):
        return
    lowest, highest = model.budget
    body["thinkingBudget"] = budget = min(max(requested, lowest), highest)
    if requested == 0:
        losses.param("reasoning.mode", "thinking_not_disabled")
    elif budget != requested:
        losses.param("reasoning.budget", "thinking_budget_changed", f"{requested} -> {budget}")


def _write_effort(effort: str, levels: bool, losses: Losses) -> JsonObject:
    level = LEVELS.get(effort, HIGHEST)
    if level != effort:
        losses.param("reasoning.effort", "effort_changed", f"{effort} -> {level}")
    if levels:
        return {"thinkingLevel": level}
    for name in ("reasoning", "reasoning.effort"):
        losses.param(name, "effort_as_budget", level)
    return {"thinkingBudget": BUDGETS[level]}


def _config(member: str) -> str:
    return f"generationConfig.{member}"


FIELDS = FieldTable(
    Field("temperature", float, _config("temperature")),
    Field("top_p", float, _config("topP")),
    Field("top_k", None, _config("topK"), read=_read_integer),
    Field("max_tokens", None, _config("maxOutputTokens"), read=_read_integer),
    Field("n", None, _config("candidateCount"), read=_read_integer),
    Field("seed", None, _config("seed"), read=_read_integer),
    Field("presence_penalty", float, _config("presencePenalty")),
    Field("frequency_penalty", float, _config("frequencyPenalty")),
    Field("stop", list, _config("stopSequences"), read=read_strings, write=write_list),
    Field(
        "format",
        dict,
        "generationConfig",
        read=_read_format,
        write=_write_format,
        inner={
            "responseMimeType": "format",
            "responseJsonSchema": "format.schema",
            "responseSchema": None,
        },
    ),
    Field(
        "reasoning",
        dict,
        _config("thinkingConfig"),
        read=_read_thinking,
        write=_write_thinking,
        inner={
            "thinkingBudget": "reasoning.budget",
            "thinkingLevel": "reasoning.effort",
            "includeThoughts": "reasoning.summary",
        },
    ),
    Field(
        "tool_choice",
        dict,
        "toolConfig.functionCallingConfig",
        read=_read_choice,
        write=_write_choice,
    ),
    Field("stream", path=None, write=_report_stream),
    members=("contents", "model", "systemInstruction", "tools", FORM),
    spell=camel,
    respell=respell_path,
)


def decode_params(body: JsonObject) -> tuple[Params, dict[str, Any]]:
    """The parameters of a body, and by path the values that have no field."""
    params, rest = FIELDS.decode(body)
    for path, value in list(rest.items()):
        if value == PLAIN_TEXT and camel(path.rpartition(".")[2]) == "responseModalities":
            rest[path] = None
        elif camel(path) == "cachedContent":
            rest["cachedContent"] = rest.pop(path)
    return params, rest


def encode_params(request: Request, target: Target, losses: Losses) -> JsonObject:
    """All members except contents, systemInstruction and tools."""
    if PROTOCOL in request.raw:
        return {key: value for key, value in request.raw[PROTOCOL].items() if key != FORM}
    params = apply_limits(request.params, LIMITS, target.model, losses)
    return FIELDS.encode(EncodeContext(request, params, target, losses))


def require_model(model: str | None) -> str:
    """The model's name, which is in the URL; raises `Refused` if it is missing."""
    if not model:
        why = "is missing: a Gemini body does not name its model, so it must be given separately"
        raise Refused(why, param="model")
    return model


COUNTS = frozenset(
    {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}
)
NESTED = frozenset({"items", "additionalProperties", "not"})
LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
NAMED = frozenset({"properties", "defs", "$defs", "definitions"})


def json_schema(schema: JsonObject) -> JsonObject:
    """Convert to JSON schema; what is JSON schema already is unchanged."""
    read: JsonObject = {}
    for key, value in schema.items():
        name = camel(key)
        if name in NAMED and isinstance(value, dict):
            read[name] = {
                inner: _converted(item) for inner, item in cast(JsonObject, value).items()
            }
        elif name in LISTS and isinstance(value, list):
            read[name] = [_converted(item) for item in cast(list[Any], value)]
        elif name in NESTED:
            read[name] = _converted(value)
        elif name in COUNTS and isinstance(value, str) and value.isdigit():
            read[name] = int(value)
        elif name == "type" and isinstance(value, str):
            read[name] = value.lower()
        elif name == "example":
            read["examples"] = [value]
        elif name not in ("nullable", "propertyOrdering"):
            read[name] = value
    return _nullable(read) if schema.get("nullable") is True else read


def _converted(value: Any) -> Any:
    schema = as_object(value)
    return value if schema is None else json_schema(schema)


def _nullable(schema: JsonObject) -> JsonObject:
    if isinstance(schema.get("type"), str):
        kind = {**schema, "type": [schema["type"], "null"]}
        if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
            kind["enum"] = [*schema["enum"], None]
        return kind
    if isinstance(schema.get("anyOf"), list):
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    return schema
