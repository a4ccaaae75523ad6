"""Decodes and encodes the parameters of generateContent requests:
https://ai.google.dev/api/generate-content#generationconfig

`json_schema` converts Gemini's `Schema` (https://ai.google.dev/api/caching#Schema) for the other
protocols, which read JSON schema. It is a dialect of OpenAPI 3.0: types in capitals, `nullable`
instead of a type `null`, counts as strings. The other direction needs no conversion:
`parametersJsonSchema` and `responseJsonSchema` accept JSON schema.
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
    write_stop,
)
from weft.codec.read import optional, wrong
from weft.codec.tools import CALLABLE
from weft.errors import Refused
from weft.model import Format, JsonObject, Params, Reasoning, Request, ToolChoice

from .enums import CALLING_MODES, SCHEMA_TYPES, THINKING_LEVELS, enum_name
from .spelling import camel, camel_members, respell_path
from .wire import FORM, PROTOCOL

FORMAT_MEMBERS = ("responseMimeType", "responseSchema", "responseJsonSchema")

DEFAULT_MODALITIES = ["TEXT"]
"""The default `responseModalities`."""

MODE_KINDS = {"AUTO": "auto", "ANY": "any", "NONE": "none", "VALIDATED": "auto"}
"""By `mode` of the function calling config: the kind of tool choice."""

MODES_WITH_NAMES = frozenset({"ANY", "VALIDATED"})
"""Modes that accept `allowedFunctionNames`."""

MODE_BY_KIND = {"auto": "AUTO", "any": "ANY", "none": "NONE", "tool": "ANY"}

LEVELS = frozenset({"minimal", "low", "medium", "high"})
"""Values of `thinkingLevel`."""

HIGHEST_LEVEL = "high"
"""The level for any other effort; the known ones, `xhigh` and `max`, are above it."""

LEVEL_BUDGETS = {"minimal": 1024, "low": 1024, "medium": 8192, "high": 24576}
"""Google's own mapping from effort to thinking tokens, for models with a budget:
https://ai.google.dev/gemini-api/docs/openai#thinking"""

DYNAMIC_BUDGET = -1
"""The `thinkingBudget` with which the model decides how much it thinks."""

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
    """The response format; a format that only Gemini has stays in `raw`."""
    answer_format = _find_format(config)
    if answer_format is None:
        for key in FORMAT_MEMBERS:
            context.skip(key)
        return None
    if "responseSchema" in config:
        context.note_form_change("generationConfig.responseSchema")  # only its dialect is lost
    if answer_format.kind == "schema" and "responseMimeType" not in config:
        context.note_form_change("generationConfig.responseMimeType")  # a schema implies it
    return answer_format


def _find_format(config: JsonObject) -> Format | None:
    mime_type = config.get("responseMimeType")
    if mime_type not in (None, "application/json"):
        return Format("text") if mime_type == "text/plain" else None
    schema = as_object(config.get("responseJsonSchema"))
    if schema is not None:
        return Format("schema", schema)
    schema = as_object(config.get("responseSchema"))
    if schema is not None:
        return Format("schema", json_schema(schema))
    return None if mime_type is None else Format("json")


def _read_thinking(thinking: JsonObject, context: DecodeContext) -> None:
    budget = optional(thinking, "thinkingBudget", int)
    named = {**thinking, "thinkingLevel": enum_name(thinking.get("thinkingLevel"), THINKING_LEVELS)}
    level = optional(named, "thinkingLevel", str)
    include_thoughts = optional(thinking, "includeThoughts", bool)
    for key, value in thinking.items():
        if value is False or value == "":  # `Reasoning` cannot express these defaults
            context.skip(key)
    if budget is not None:
        mode = "off" if budget == 0 else "on" if budget > 0 else "adaptive"
        context.values["reasoning.mode"] = mode
        if budget > 0:
            context.values["reasoning.budget"] = budget
    if level:
        context.values["reasoning.effort"] = level.lower()
    if include_thoughts:
        context.values["reasoning.summary"] = "auto"


def _read_choice(raw: JsonObject, context: DecodeContext) -> ToolChoice | None:
    config = camel_members(raw)
    config["mode"] = enum_name(config.get("mode"), CALLING_MODES)
    mode = (optional(config, "mode", str) or "").upper()
    names = cast("list[Any] | None", optional(config, "allowedFunctionNames", list))
    kind = MODE_KINDS.get(mode)
    allowed = tuple(str(name) for name in names or ()) if mode in MODES_WITH_NAMES else ()
    known: set[str] = set()
    # `auto` with names is written as `VALIDATED`, but `auto` alone as `AUTO`.
    if kind is not None and (mode != "VALIDATED" or allowed):
        known.add("mode")
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
    body: JsonObject = {"mode": MODE_BY_KIND[choice.kind]}
    if choice.kind == "tool" and choice.name is not None:
        body["allowedFunctionNames"] = [choice.name]
    return body


def _report_stream(_stream: bool, context: EncodeContext) -> None:
    context.losses.param("stream", "stream_in_path")


def _is_format_supported(answer_format: Format, context: EncodeContext) -> bool:
    """Whether the format can be written; some models either answer in JSON or call tools."""
    choice = context.params.tool_choice
    may_call = choice is None or choice.kind != "none"
    has_tools = may_call and any(tool.kind in CALLABLE for tool in context.request.tools)
    return answer_format.kind == "text" or not has_tools or context.target.model.json_beside_tools


def _write_format(answer_format: Format, context: EncodeContext) -> JsonObject | None:
    losses = context.losses
    if not _is_format_supported(answer_format, context):
        losses.param("format", "format_excluded_by_tools")
        return None
    mime_type = "text/plain" if answer_format.kind == "text" else "application/json"
    config: JsonObject = {"responseMimeType": mime_type}
    if answer_format.kind == "schema" and answer_format.schema is not None:
        config["responseJsonSchema"] = answer_format.schema
    elif answer_format.kind == "schema":
        losses.param("format", "format_as_json")
    for key in ("name", "description", "strict"):
        if getattr(answer_format, key) is not None:
            level = "meaning" if key == "description" else "form"
            losses.param(f"format.{key}", "format_member_dropped", key, level)
    return config


def _write_thinking(reasoning: Reasoning, context: EncodeContext) -> JsonObject | None:
    """A budget or a level; no model accepts both."""
    model, losses = context.target.model, context.losses
    if model.budget == (0, 0):  # a model without thinking
        _report_unsupported_thinking(reasoning, losses)
        return None
    body = _write_thinking_amount(reasoning, model, losses)
    _clamp_budget(body, model, losses)
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


def _write_thinking_amount(reasoning: Reasoning, model: Model, losses: Losses) -> JsonObject:
    """How much the model thinks: a level or a budget. Empty if the caller did not choose one."""
    takes_level = model.thinking == "effort"
    mode, effort, budget = reasoning.mode, reasoning.effort, reasoning.budget
    if mode == "off" or effort == "none":
        if effort not in (None, "none"):
            losses.param("reasoning.effort", "effort_overridden", effort)
        if takes_level:
            losses.param("reasoning.mode", "thinking_not_disabled")
            return {"thinkingLevel": "low"}
        return {"thinkingBudget": 0}
    if effort is not None and (takes_level or budget is None):
        body = _write_effort(effort, takes_level, losses)
        if mode is not None:
            losses.param("reasoning.mode", "thinking_mode_dropped", mode, "form")
        if budget is not None:
            losses.param("reasoning.budget", "thinking_budget_dropped", budget)
        return body
    if budget is not None:
        if effort is not None:
            losses.param("reasoning.effort", "effort_overridden", effort)
        return {"thinkingBudget": budget}
    if mode == "adaptive" and not takes_level:
        return {"thinkingBudget": DYNAMIC_BUDGET}
    if mode is not None:
        losses.param("reasoning.mode", "thinking_mode_dropped", mode, "form")
    return {}


def _report_unsupported_thinking(reasoning: Reasoning, losses: Losses) -> None:
    """Report the thinking settings of a request to a model without thinking."""
    has_amount = reasoning.effort is not None or reasoning.budget is not None
    for name in reasoning.__struct_fields__:
        value = getattr(reasoning, name)
        if value is not None:
            # Nothing is lost if the caller wants no thinking. A mode next to an effort or a budget
            # is not a second loss.
            only_form = value in ("off", "none") or (name == "mode" and has_amount)
            level = "form" if only_form else "meaning"
            losses.param(f"reasoning.{name}", "reasoning_unsupported", f"{name} {value}", level)


def _clamp_budget(body: JsonObject, model: Model, losses: Losses) -> None:
    """Clamp the budget in `body`, if there is one, to the range of the model."""
    requested = body.get("thinkingBudget", DYNAMIC_BUDGET)
    if model.budget is None or requested < 0 or (requested == 0 and not model.always_thinks):
        return
    lowest, highest = model.budget
    body["thinkingBudget"] = budget = min(max(requested, lowest), highest)
    if requested == 0:
        losses.param("reasoning.mode", "thinking_not_disabled")
    elif budget != requested:
        losses.param("reasoning.budget", "thinking_budget_changed", f"{requested} -> {budget}")


def _write_effort(effort: str, takes_level: bool, losses: Losses) -> JsonObject:
    level = effort if effort in LEVELS else HIGHEST_LEVEL
    if level != effort:
        losses.param("reasoning.effort", "effort_changed", f"{effort} -> {level}")
    if takes_level:
        return {"thinkingLevel": level}
    for name in ("reasoning", "reasoning.effort"):
        losses.param(name, "effort_as_budget", level)
    return {"thinkingBudget": LEVEL_BUDGETS[level]}


def _config_path(member: str) -> str:
    return f"generationConfig.{member}"


FIELDS = FieldTable(
    Field("temperature", float, _config_path("temperature")),
    Field("top_p", float, _config_path("topP")),
    Field("top_k", None, _config_path("topK"), read=_read_integer),
    Field("max_tokens", None, _config_path("maxOutputTokens"), read=_read_integer),
    Field("n", None, _config_path("candidateCount"), read=_read_integer),
    Field("seed", None, _config_path("seed"), read=_read_integer),
    Field("presence_penalty", float, _config_path("presencePenalty")),
    Field("frequency_penalty", float, _config_path("frequencyPenalty")),
    Field("stop", list, _config_path("stopSequences"), read=read_strings, write=write_stop),
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
        _config_path("thinkingConfig"),
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
    """The parameters of a body, and the values that no parameter holds, by path."""
    params, unmapped = FIELDS.decode(body)
    for path, value in list(unmapped.items()):
        if value == DEFAULT_MODALITIES and camel(path.rpartition(".")[2]) == "responseModalities":
            unmapped[path] = None  # other protocols answer with text, too: only the form is lost
        elif camel(path) == "cachedContent":
            unmapped["cachedContent"] = unmapped.pop(path)
    return params, unmapped


def encode_params(request: Request, target: Target, losses: Losses) -> JsonObject:
    """All members except the messages and the tools.

    The parameters of a request that came in this protocol are written unchanged. So is a
    null `systemInstruction` or `tools`, if its body had it.
    """
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


COUNT_KEYWORDS = frozenset(
    {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}
)
SCHEMA_KEYWORDS = frozenset({"items", "additionalProperties", "not"})
SCHEMA_LIST_KEYWORDS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
SCHEMA_MAP_KEYWORDS = frozenset({"properties", "defs", "$defs", "definitions"})


def json_schema(schema: JsonObject) -> JsonObject:
    """Convert Gemini's `Schema` to JSON schema; JSON schema itself is unchanged."""
    converted: JsonObject = {}
    for key, value in schema.items():
        keyword = camel(key)
        if keyword in SCHEMA_MAP_KEYWORDS and isinstance(value, dict):
            converted[keyword] = {
                name: _convert_inner(inner) for name, inner in cast(JsonObject, value).items()
            }
        elif keyword in SCHEMA_LIST_KEYWORDS and isinstance(value, list):
            converted[keyword] = [_convert_inner(inner) for inner in cast(list[Any], value)]
        elif keyword in SCHEMA_KEYWORDS:
            converted[keyword] = _convert_inner(value)
        elif keyword in COUNT_KEYWORDS and isinstance(value, str) and value.isdigit():
            converted[keyword] = int(value)
        elif keyword == "type" and isinstance(enum_name(value, SCHEMA_TYPES), str):
            converted[keyword] = enum_name(value, SCHEMA_TYPES).lower()
        elif keyword == "example":
            converted["examples"] = [value]
        elif keyword not in ("nullable", "propertyOrdering"):
            converted[keyword] = value
    return _with_null(converted) if schema.get("nullable") is True else converted


def _convert_inner(value: Any) -> Any:
    """An inner schema converted; `additionalProperties` may be a boolean, which is unchanged."""
    schema = as_object(value)
    return value if schema is None else json_schema(schema)


def _with_null(schema: JsonObject) -> JsonObject:
    """The schema, which now also accepts `null`."""
    if isinstance(schema.get("type"), str):
        with_null = {**schema, "type": [schema["type"], "null"]}
        if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
            with_null["enum"] = [*schema["enum"], None]
        return with_null
    if isinstance(schema.get("anyOf"), list):
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    return schema
