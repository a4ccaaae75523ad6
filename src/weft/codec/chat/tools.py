"""Tool definitions, both ways: https://platform.openai.com/docs/guides/function-calling

`functions` is the first API's list; its members are tools like any other, and go back into it.
"""

from typing import Any

from weft.codec.base import Losses, members
from weft.codec.choice import is_allowed
from weft.codec.read import at, object_of, objects, optional, text_of, wrong
from weft.codec.reports import tool_losses
from weft.codec.tools import format_of, grammar_of, is_offered, schema_of, with_properties
from weft.model import JsonObject, Place, Request, Tool

from .wire import PROTOCOL


def decode_tools(body: JsonObject, marks: dict[Place, Any]) -> tuple[Tool, ...]:
    tools: list[Tool] = []
    for number, raw in enumerate(objects(body.get("tools") or [], "tools")):
        if "cache_control" in raw:
            marks["tools", number] = raw["cache_control"]
        with at(f"tools[{number}]"):
            tools.append(_decode_tool(raw))
    for number, raw in enumerate(objects(body.get("functions") or [], "functions")):
        with at(f"functions[{number}]"):
            tools.append(_decode_function(raw, raw))
    return tuple(tools)


def _decode_tool(raw: JsonObject) -> Tool:
    own = {key: value for key, value in raw.items() if key != "cache_control"}
    optional(raw, "type", str)
    function, custom = members(raw.get("function")), members(raw.get("custom"))
    if function is not None:
        with at("function"):
            return _decode_function(function, own)
    if custom is not None:
        with at("custom"):
            name, words = text_of(custom, "name"), optional(custom, "description", str)
        return Tool(name, words, kind="custom", raw={PROTOCOL: own})
    kind = text_of(raw, "type")
    if kind in ("function", "custom"):
        raise wrong(kind, raw.get(kind), "an object")
    return Tool(kind, kind=kind, raw={PROTOCOL: own})


def _decode_function(function: JsonObject, raw: JsonObject) -> Tool:
    return Tool(
        text_of(function, "name"),
        optional(function, "description", str),
        object_of(function, "parameters"),
        optional(function, "strict", bool),
        raw={PROTOCOL: raw},
    )


def write_tools(request: Request, some: tuple[str, ...], losses: Losses) -> list[JsonObject] | None:
    """The `tools` member, or `None` where the body has none; `some` are those to be offered."""
    own = request.raw.get(PROTOCOL)
    if own is not None:
        if "tools" in own:
            return own["tools"]  # empty, or null
        legacy = len(own.get("functions") or ())
        tools = request.tools[: len(request.tools) - legacy]
    else:
        tools = request.tools
    written: list[JsonObject] = []
    for number, tool in enumerate(tools):
        body = _write_tool(tool, number, losses) if is_allowed(tool, number, some, losses) else None
        if body is None:
            continue
        if own is not None and ("tools", number) in request.marks:
            body["cache_control"] = request.marks["tools", number]
        written.append(body)
    return written or None


def _write_tool(tool: Tool, number: int, losses: Losses) -> JsonObject | None:
    if tool.raw is not None and PROTOCOL in tool.raw:
        own = dict(tool.raw[PROTOCOL])
        return {"type": "function", "function": own} if "name" in own else own  # of the first API
    if not is_offered(tool, number, losses):
        return None
    tool_losses(tool, number, losses)
    fields: JsonObject = {"name": tool.name}
    if tool.description is not None:
        fields["description"] = tool.description
    if tool.kind == "custom":
        form = _custom_format(tool)
        if form is not None:
            fields["format"] = form
        return {"type": "custom", "custom": fields}
    if tool.parameters is not None:
        schema = schema_of(tool, number, losses)
        fields["parameters"] = with_properties(schema, tool, number, losses)
    if tool.strict is not None:
        fields["strict"] = tool.strict
    return {"type": "function", "function": fields}


def _custom_format(tool: Tool) -> JsonObject | None:
    """The format of a custom tool's input. Responses writes a grammar flat, this wire nested."""
    grammar = grammar_of(tool)
    if grammar is None:
        return format_of(tool)
    nested = {key: value for key, value in grammar.items() if key != "type"}
    return {"type": "grammar", "grammar": nested}
