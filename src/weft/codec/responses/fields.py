"""Parameters and tools, both ways: what Responses says, and what the others mean by theirs."""

from collections.abc import Sequence
from typing import Any, Literal

from weft.codec.base import Losses, Target, members
from weft.codec.choice import read_allowed
from weft.codec.effort import fitting_effort, with_effort
from weft.codec.fields import read_schema_format, report_params, report_tier, tool_losses
from weft.codec.limits import OPENAI_EFFORTS, Limits, with_named_json, within
from weft.codec.read import at, object_of, objects, optional, optional_object, text_of
from weft.codec.tools import format_of, grammar_of, is_offered, schema_of, with_properties
from weft.codec.web_search import is_search, search_members
from weft.model import Format, JsonObject, Params, Reasoning, Request, Tool, ToolChoice

from .wire import PROTOCOL

CHOICES: dict[str, Literal["auto", "any", "none"]] = {
    "auto": "auto",
    "required": "any",
    "none": "none",
}
CHOICE_WORDS = {kind: word for word, kind in CHOICES.items()}

READ = frozenset(
    {
        "input",
        "instructions",
        "max_output_tokens",
        "metadata",
        "model",
        "parallel_tool_calls",
        "prompt_cache_key",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_p",
        "user",
    }
)

SAYABLE = frozenset(
    {
        "format",
        "max_tokens",
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "temperature",
        "tool_choice",
        "top_p",
        "user",
        "verbosity",
    }
)

SERVICE_TIERS = frozenset({"auto", "default", "flex", "scale", "priority", "fast", "ultrafast"})

REMEMBERED = ("", "absent")
"""What a request remembers of its `input` and `instructions` instead of saying them twice."""

FORMAT_NAME = "response"
"""The name of a schema that came without one: the vendor demands some name."""

LIMITS = Limits(tokens=16, user=64, unthinking=True)
"""What the vendor says to less: "Expected a value >= 16"; for the user, as in Chat."""

PATHS = {
    "format": "text.format",
    "format.description": "text.format.description",
    "format.name": "text.format.name",
    "format.schema": "text.format.schema",
    "format.strict": "text.format.strict",
    "max_tokens": "max_output_tokens",
    "reasoning": "reasoning",
    "reasoning.effort": "reasoning.effort",
    "reasoning.summary": "reasoning.summary",
    "verbosity": "text.verbosity",
}
"""Where this wire says what the model calls otherwise."""


def decode_params(body: JsonObject) -> tuple[Params, dict[str, Any]]:
    """The shared meaning of a body's parameters, and by path what it could not take up."""
    rest = {key: value for key, value in body.items() if key not in READ}
    if body.get("tools") == []:
        rest["tools"] = []
    text = optional_object(body, "text")
    _keep_rest(text, {"format", "verbosity"}, "text", rest)
    with at("text"):
        verbosity = optional(text, "verbosity", str)
    params = Params(
        max_tokens=optional(body, "max_output_tokens", int),
        temperature=optional(body, "temperature", float),
        top_p=optional(body, "top_p", float),
        stream=optional(body, "stream", bool),
        tool_choice=_decode_choice(body, rest),
        parallel_tool_calls=optional(body, "parallel_tool_calls", bool),
        format=_decode_format(text, rest),
        reasoning=_decode_reasoning(body, rest),
        verbosity=verbosity,
        service_tier=optional(body, "service_tier", str),
        user=optional(body, "user", str),
        metadata=members(body.get("metadata")),
        store=optional(body, "store", bool),
        prompt_cache_key=optional(body, "prompt_cache_key", str),
        safety_identifier=optional(body, "safety_identifier", str),
    )
    return params, rest


def _decode_choice(body: JsonObject, rest: dict[str, Any]) -> ToolChoice | None:
    choice = body.get("tool_choice")
    if isinstance(choice, str) and choice in CHOICES:
        return ToolChoice(CHOICES[choice])
    match choice:
        case {"type": "function" | "custom", "name": str(name), **more}:
            _keep_rest(more, set(), "tool_choice", rest)
            return ToolChoice("tool", name)
        case None:
            return None
        case _:
            some = read_allowed(members(choice) or {})
            if some is None:
                rest["tool_choice"] = choice
            return some


def _decode_format(text: JsonObject, rest: dict[str, Any]) -> Format | None:
    shape = members(text.get("format"))
    if shape is None:
        return None
    kind = shape.get("type")
    if kind == "json_schema":
        known = {"type", "name", "schema", "strict", "description"}
        _keep_rest(shape, known, "text.format", rest)
        with at("text.format"):
            return read_schema_format(shape)
    if kind in ("text", "json_object"):
        _keep_rest(shape, {"type"}, "text.format", rest)
        return Format("text" if kind == "text" else "json")
    rest["text.format"] = shape
    return None


def _decode_reasoning(body: JsonObject, rest: dict[str, Any]) -> Reasoning | None:
    reasoning = optional_object(body, "reasoning")
    if not reasoning:
        if "reasoning" in body:
            rest["reasoning"] = body["reasoning"]
        return None
    _keep_rest(reasoning, {"effort", "summary"}, "reasoning", rest)
    with at("reasoning"):
        effort = optional(reasoning, "effort", str)
        summary = optional(reasoning, "summary", str)
    if effort is None and summary is None:
        return None
    return Reasoning(effort=effort, summary=summary)


def _keep_rest(raw: JsonObject, known: set[str], step: str, rest: dict[str, Any]) -> None:
    for key, value in raw.items():
        if key not in known:
            rest[f"{step}.{key}"] = value


def encode_params(request: Request, target: Target, losses: Losses) -> JsonObject:
    """The members beside model, input, instructions and tools."""
    if PROTOCOL in request.raw:
        own = dict(request.raw[PROTOCOL])
        for key in ("input", "instructions"):
            if own.get(key) in REMEMBERED:
                del own[key]
        return own
    params = within(request.params, LIMITS, target.model, losses)
    params = with_named_json(request, params, target.model, losses)
    body: JsonObject = {}
    for key, value in (
        ("max_output_tokens", params.max_tokens),
        ("temperature", params.temperature),
        ("top_p", params.top_p),
        ("stream", params.stream),
        ("tool_choice", _write_choice(request)),
        ("parallel_tool_calls", params.parallel_tool_calls),
        ("text", _write_text(params, losses)),
        ("reasoning", _write_reasoning(params, target, losses)),
        ("service_tier", _write_tier(params, losses)),
        ("user", params.user),
        ("metadata", params.metadata),
        ("store", params.store),
        ("prompt_cache_key", params.prompt_cache_key),
        ("safety_identifier", params.safety_identifier),
    ):
        if value is not None:
            body[key] = value
    report_params(request, SAYABLE, losses)
    return body


def _write_tier(params: Params, losses: Losses) -> str | None:
    tier = params.service_tier
    if tier is None or tier in SERVICE_TIERS:
        return tier
    report_tier(tier, losses)
    return None


def _write_choice(request: Request) -> str | JsonObject | None:
    choice = request.params.tool_choice
    if choice is None:
        return None
    custom = {tool.name for tool in request.tools if tool.kind == "custom"}
    some: list[JsonObject] = [
        {"type": "custom" if name in custom else "function", "name": name}
        for name in choice.names or (choice.name,)
    ]
    if choice.names:
        return {"type": "allowed_tools", "mode": CHOICE_WORDS[choice.kind], "tools": some}
    return some[0] if choice.kind == "tool" else CHOICE_WORDS[choice.kind]


def _write_text(params: Params, losses: Losses) -> JsonObject | None:
    body: JsonObject = {}
    if params.format is not None:
        body["format"] = _write_format(params.format, losses)
    if params.verbosity is not None:
        body["verbosity"] = params.verbosity
    return body or None


def _write_format(shape: Format, losses: Losses) -> JsonObject:
    if shape.kind != "schema":
        return {"type": "text" if shape.kind == "text" else "json_object"}
    body: JsonObject = {"type": "json_schema", "name": shape.name, "schema": shape.schema or {}}
    if shape.name is None:
        body["name"] = FORMAT_NAME
        losses.param(
            "format.name",
            "default_added",
            FORMAT_NAME,
        )
    if shape.schema is None:
        losses.param("format.schema", "default_added", "{}")
    if shape.description is not None:
        body["description"] = shape.description
    if shape.strict is not None:
        body["strict"] = shape.strict
    return body


def _write_reasoning(params: Params, target: Target, losses: Losses) -> JsonObject | None:
    """An effort is said as it was; a wish not to think is one, and bare thinking has no word."""
    if params.reasoning is None:
        return None
    reasoning = with_effort(params.reasoning, target.model, losses)
    body: JsonObject = {}
    effort, mode = reasoning.effort, reasoning.mode
    if effort is not None and effort not in OPENAI_EFFORTS:
        losses.param("reasoning.effort", "effort_unsupported", effort)
        effort = None
    said = "reasoning.effort"
    if mode == "off" and effort is None:
        effort, said = "none", "reasoning.mode"
    elif mode == "off" and effort != "none":
        losses.param("reasoning.mode", "thinking_not_disabled")
    effort = fitting_effort(effort, target.model, losses, said)
    if effort is not None:
        body["effort"] = effort
    if reasoning.summary is not None:
        body["summary"] = reasoning.summary
    if reasoning.budget is not None:
        losses.param("reasoning.budget", "thinking_budget_dropped", reasoning.budget)
    elif mode in ("on", "adaptive"):
        losses.param("reasoning.mode", "thinking_mode_dropped", mode, "form")
    return body or None


NAMESPACED = f"{PROTOCOL}:namespace"
"""Under this name a tool keeps its definition that stands inside a namespace."""


def decode_tools(raws: Any, path: str, namespace: str | None = None) -> list[Tool]:
    """Tool definitions; raises `Refused` with the path of one that cannot be read.

    The tools of a namespace follow it: they go back inside of it, and are tools elsewhere.
    """
    tools: list[Tool] = []
    for number, raw in enumerate(objects(raws, path)):
        with at(f"{path}[{number}]"):
            kind = text_of(raw, "type")
            name = text_of(raw, "name") if kind in ("function", "custom") else raw.get("name")
            description = optional(raw, "description", str)
            strict = optional(raw, "strict", bool)
            parameters = object_of(raw, "parameters")
        tools.append(
            Tool(
                str(name or kind),
                description,
                parameters,
                strict,
                kind,
                {PROTOCOL if namespace is None else NAMESPACED: raw},
                namespace,
            )
        )
        if kind == "namespace" and namespace is None and raw.get("tools"):
            tools += decode_tools(raw["tools"], f"{path}[{number}].tools", str(name))
    return tools


def tool_paths(raws: Sequence[JsonObject], path: str) -> list[str]:
    """Where each tool stands that `decode_tools` gives."""
    paths: list[str] = []
    for number, raw in enumerate(raws):
        paths.append(f"{path}[{number}]")
        if raw.get("type") == "namespace" and raw.get("tools"):
            inner = range(len(raw["tools"]))
            paths += [f"{path}[{number}].tools[{at_tool}]" for at_tool in inner]
    return paths


def encode_tool(tool: Tool, number: int, losses: Losses) -> JsonObject | None:
    """A tool definition, or `None` where the target has no such kind of tool."""
    if tool.raw is not None and PROTOCOL in tool.raw:
        return dict(tool.raw[PROTOCOL])
    if is_search(tool):
        return _write_search(tool, number, losses)
    if not is_offered(tool, number, losses):
        return None
    tool_losses(tool, number, losses)
    body: JsonObject = {"type": tool.kind, "name": tool.name}
    if tool.description is not None:
        body["description"] = tool.description
    if tool.kind == "custom":
        return body | _grammar(tool)
    schema = schema_of(tool, number, losses)
    body["parameters"] = with_properties(schema, tool, number, losses)
    body["strict"] = tool.strict or False
    if tool.strict is None:
        losses.add(
            ("tools", number),
            "default_added",
            "strict: false",
        )
    return body


def _write_search(tool: Tool, number: int, losses: Losses) -> JsonObject:
    told = search_members(tool, number, SEARCH_MEMBERS, losses)
    body: JsonObject = {"type": "web_search"}
    if "allowed_domains" in told:
        body["filters"] = {"allowed_domains": told["allowed_domains"]}
    if "user_location" in told:
        body["user_location"] = told["user_location"]
    return body


SEARCH_MEMBERS = frozenset({"allowed_domains", "user_location"})


def _grammar(tool: Tool) -> JsonObject:
    """The format of a custom tool that another wire defined: `{"custom": {"format": ...}}`."""
    shape, grammar = format_of(tool), grammar_of(tool)
    if shape is None:
        return {}
    return {"format": {"type": "grammar", **grammar} if grammar is not None else shape}
