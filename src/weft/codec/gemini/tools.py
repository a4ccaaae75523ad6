"""Tools, both ways: https://ai.google.dev/api/caching#Tool

One entry of `tools` may contain many function declarations, and Google's own tools too.
Each declaration is a tool of ours; how the entries were laid out is remembered, because a body
must go back as it came.
"""

from typing import Any, cast

from weft.codec.base import Losses, members
from weft.codec.read import at, object_of, objects, optional, text_of
from weft.codec.reports import tool_losses
from weft.codec.tools import CALLABLE, is_offered, schema_of
from weft.codec.web_search import is_search, search_members
from weft.model import JsonObject, Request, Tool

from .schema import json_schema
from .spelling import camel, camel_members
from .wire import FORM, PROTOCOL

DECLARATIONS = "functionDeclarations"
SEARCH = "googleSearch"
"""Before Gemini 3 it is refused in one request with functions ("Tool use with function calling is
unsupported"): https://github.com/googleapis/js-genai/issues/435"""

Layout = list[dict[str, int]]
"""For each entry: its members in the original spelling, and the number of tools in each."""


def decode_tools(body: JsonObject, form: JsonObject, rest: dict[str, Any]) -> tuple[Tool, ...]:
    """Decode the tools; `form` gets their layout, `rest` the paths of Gemini-style schemas."""
    raws = body.get("tools")
    if raws is None:
        return ()
    single = members(raws)  # Gemini accepts one entry instead of a list
    if single is not None:
        form["tools.single"] = True
        raws = [single]
    tools: list[Tool] = []
    layout: Layout = []
    for number, entry in enumerate(objects(raws, "tools")):
        holds: dict[str, int] = {}
        if not entry:
            rest[f"tools[{number}]"] = {}
        for key, value in entry.items():
            if camel(key) != DECLARATIONS or value is None:
                holds[key] = 1
                tools.append(Tool(camel(key), kind=camel(key), raw={PROTOCOL: {key: value}}))
                continue
            with at(f"tools[{number}]"):
                declarations = objects(value, key)
            holds[key] = len(declarations)
            if not declarations:
                rest[f"tools[{number}].{key}"] = []
            for inner, raw in enumerate(declarations):
                path = f"tools[{number}].{key}[{inner}]"
                with at(path):
                    tools.append(_decode_declaration(raw))
                if members(raw.get("parameters")) is not None:
                    rest[f"{path}.parameters"] = None  # the dialect, not the schema
        layout.append(holds)
    form["tools"] = layout
    if not layout:
        rest["tools"] = []
    elif not _is_usual(layout):
        rest["tools"] = None  # which entry holds what
    return tuple(tools)


def _is_usual(layout: Layout) -> bool:
    """Whether the entries have our own layout: declarations first, then one tool each."""
    return all(
        len(holds) == 1 and (number == 0 or camel(next(iter(holds))) != DECLARATIONS)
        for number, holds in enumerate(layout)
    )


def _decode_declaration(raw: JsonObject) -> Tool:
    fields = camel_members(raw)
    schema = object_of(fields, "parametersJsonSchema")
    if schema is None and (own := members(fields.get("parameters"))) is not None:
        schema = json_schema(own)
    return Tool(
        text_of(fields, "name"),
        optional(fields, "description", str),
        schema,
        raw={PROTOCOL: raw},
    )


def tool_path(layout: Layout, number: int) -> str:
    """The path of a tool in the caller's body."""
    for entry, holds in enumerate(layout):
        for key, count in holds.items():
            if number < count:
                return f"tools[{entry}].{key}" + (
                    f"[{number}]" if camel(key) == DECLARATIONS else ""
                )
            number -= count
    return "tools"


def write_tools(request: Request, losses: Losses) -> Any:
    """The `tools` member, or `None` if the body has none."""
    form = request.raw.get(PROTOCOL, {}).get(FORM, {})
    layout = cast("Layout | None", form.get("tools"))
    if layout is not None and sum(sum(holds.values()) for holds in layout) == len(request.tools):
        entries = _lay_out(request.tools, layout, losses)
        return entries[0] if form.get("tools.single") and len(entries) == 1 else entries
    declarations: list[JsonObject] = []
    others: list[JsonObject] = []
    alone = not any(tool.kind in CALLABLE for tool in request.tools)
    for number, tool in enumerate(request.tools):
        written = _write_tool(tool, number, losses, alone)
        if written is not None:
            (declarations if "name" in written else others).append(written)
    entries = [{DECLARATIONS: declarations}] if declarations else []
    return entries + others or None


def _lay_out(tools: tuple[Tool, ...], layout: Layout, losses: Losses) -> list[JsonObject]:
    entries: list[JsonObject] = []
    alone = not any(tool.kind in CALLABLE for tool in tools)
    done = 0
    for holds in layout:
        entry: JsonObject = {}
        for key, count in holds.items():
            raws = [
                raw
                for number in range(done, done + count)
                if (raw := _write_tool(tools[number], number, losses, alone)) is not None
            ]
            declares = camel(key) == DECLARATIONS
            if declares and not (count and tools[done].kind == DECLARATIONS):  # that is a null
                entry[key] = raws
            elif raws:
                entry.update(raws[0])
            done += count
        entries.append(entry)
    return entries


def _write_tool(tool: Tool, number: int, losses: Losses, alone: bool) -> JsonObject | None:
    own = (tool.raw or {}).get(PROTOCOL)
    return dict(own) if own is not None else _declare(tool, number, losses, alone)


def _declare(tool: Tool, number: int, losses: Losses, alone: bool) -> JsonObject | None:
    if is_search(tool) and alone:
        search_members(tool, number, frozenset(), losses)
        return {SEARCH: {}}
    if is_search(tool):
        losses.add(("tools", number), "web_search_excluded_by_tools")
        return None
    if not is_offered(tool, number, losses):
        return None
    tool_losses(tool, number, losses)
    if tool.strict is not None:
        losses.add(("tools", number), "tool_strict_dropped", str(tool.strict).lower())
    body: JsonObject = {"name": tool.name}
    if tool.description is not None:
        body["description"] = tool.description
    if tool.parameters:
        body["parametersJsonSchema"] = schema_of(tool, number, losses)
    return body
