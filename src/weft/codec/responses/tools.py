"""Tool definitions, both ways."""

from collections.abc import Sequence
from typing import Any

from weft.codec.base import Losses
from weft.codec.read import at, object_of, objects, optional, text_of
from weft.codec.reports import tool_losses
from weft.codec.tools import format_of, grammar_of, is_offered, schema_of, with_properties
from weft.codec.web_search import is_search, search_members
from weft.model import JsonObject, Tool

from .wire import PROTOCOL

NAMESPACED = f"{PROTOCOL}:namespace"
"""The key in `Tool.raw` for a definition inside a namespace."""


def decode_tools(raws: Any, path: str, namespace: str | None = None) -> list[Tool]:
    """Decode tool definitions; raises `Refused` with the path of an invalid one.

    The tools of a namespace follow it in the list. The same protocol gets them back inside of it;
    other protocols get them as separate tools.
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
    """The path of each tool that `decode_tools` returns."""
    paths: list[str] = []
    for number, raw in enumerate(raws):
        paths.append(f"{path}[{number}]")
        if raw.get("type") == "namespace" and raw.get("tools"):
            inner = range(len(raw["tools"]))
            paths += [f"{path}[{number}].tools[{at_tool}]" for at_tool in inner]
    return paths


def encode_tool(tool: Tool, number: int, losses: Losses) -> JsonObject | None:
    """A tool definition; `None` if the protocol does not support this kind of tool."""
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
    supported = search_members(tool, number, SEARCH_MEMBERS, losses)
    body: JsonObject = {"type": "web_search"}
    if "allowed_domains" in supported:
        body["filters"] = {"allowed_domains": supported["allowed_domains"]}
    if "user_location" in supported:
        body["user_location"] = supported["user_location"]
    return body


SEARCH_MEMBERS = frozenset({"allowed_domains", "user_location"})


def _grammar(tool: Tool) -> JsonObject:
    """The format of a custom tool that Chat defined: `{"custom": {"format": ...}}`."""
    shape, grammar = format_of(tool), grammar_of(tool)
    if shape is None:
        return {}
    return {"format": {"type": "grammar", **grammar} if grammar is not None else shape}
