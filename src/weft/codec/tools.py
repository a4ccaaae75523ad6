"""Tools as the target supports them, and the names to translate its calls back.

Two kinds of tools are not supported everywhere: custom tools, which take free text by a grammar,
and tools of a namespace. For a protocol without them, a custom tool becomes a function of one
string with its grammar quoted in the description, and the namespace becomes part of the name.
Names that a vendor refuses are changed in the same way. A tool has the same name in its
definition, in the choice of a tool and in history, every turn. `Calls` keeps the caller's names,
so that the calls of an answer are translated back (`codec.calls`).

Vendors want the root of a tool's schema to be one plain object (`flatten_root_combinators`). Schema
generators write a choice between objects as `anyOf` at the root. Vendors refuse that, and with it
the whole request. So the properties of all combined schemas become the root's, and the required
ones are those that every choice requires. Which of them belong together is lost, and reported.

A request may allow only some of its tools. Both OpenAI protocols have a mode and a list of allowed
tools. Chat nests a tool's name under its kind, Responses does not. For a target without such a
choice, the other tools are left out.
https://platform.openai.com/docs/guides/function-calling#allowed-tools

Web search is the one hosted tool that several vendors have. Each protocol has its own name and
members for it. All other hosted tools go back to their own vendor only.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal, cast

import orjson
from msgspec import structs

from weft.model import JsonObject, Message, Params, Request, Tool, ToolCall, ToolChoice, ToolResult

from .base import Calls, Losses, members
from .calls import unique_call_ids
from .reports import schema_path

LONGEST_NAME = 64
"""https://platform.openai.com/docs/api-reference/chat/create#chat-create-tools"""

LEGAL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
REFUSED = re.compile(r"[^a-zA-Z0-9_-]")
SEPARATOR = "__"

CALLABLE = frozenset({"function", "custom"})
"""Kinds of tools that a caller runs itself; all others are a vendor's own."""

FREEFORM: JsonObject = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}
"""The schema of a custom tool, for protocols whose tools all take an object."""


def flatten_tools(
    request: Request, losses: Losses, *, custom: bool, namespaces: bool
) -> tuple[Request, Calls]:
    """The request with tools, tool choice and calls in the target's terms, and the names to
    translate calls back.

    `custom` and `namespaces` say whether the target supports such tools. The order of tools and
    blocks does not change.
    """
    names = _Names(request.tools, custom=custom, namespaces=namespaces)
    tools = tuple(
        names.tool(tool, number, losses) if names.needs_change(tool) else tool
        for number, tool in enumerate(request.tools)
    )
    messages = request.messages
    changed, doubled = _survey(messages, names)
    if doubled:
        messages = unique_call_ids(messages, losses)
    if changed:
        flat = list(messages)
        for number in changed:
            flat[number] = _flat_message(messages[number], number, names, losses)
        messages = tuple(flat)
    if not custom and any("custom" in original for original in names.calls.values()):
        _report_custom_results(messages, losses)
    params = _choose(request, names, losses)
    if tools == request.tools and messages is request.messages and params is request.params:
        return request, names.calls
    flat = structs.replace(request, tools=tools, messages=messages, params=params)
    return flat, names.calls


def is_offered(tool: Tool, number: int, losses: Losses) -> bool:
    """Whether a foreign tool can be defined in another protocol; reported if not."""
    if tool.kind in CALLABLE:
        return True
    position = losses.path(("tools", number))
    if tool.kind != "namespace":
        losses.add(position, "tool_unsupported", f"{tool.name} ({tool.kind})")
    else:
        losses.add(position, "namespace_flattened", tool.name)
        if tool.description:
            losses.add(f"{position}.description", "namespace_description_dropped", tool.name)
    return False


def schema_of(tool: Tool, number: int, losses: Losses) -> JsonObject:
    """The schema of a tool, always with a `type`: DeepSeek and Vertex refuse the whole request if
    it is missing (https://github.com/BerriAI/litellm/pull/19103)."""
    schema = tool.parameters
    if schema and "type" in schema:
        return schema
    path = schema_path(tool, number, losses)
    losses.add(path, "default_added", "type: object")
    return {"type": "object", **schema} if schema else {"type": "object", "properties": {}}


def with_properties(schema: JsonObject, tool: Tool, number: int, losses: Losses) -> JsonObject:
    """A schema as OpenAI accepts it. Tools without parameters often have no `properties`, which is
    refused: "object schema missing properties"
    (https://github.com/spring-projects/spring-ai/issues/4776)."""
    schema = flatten_root_combinators(schema, tool, number, OPENAI_ROOT, losses)
    if schema.get("type") != "object" or "properties" in schema:
        return schema
    path = schema_path(tool, number, losses)
    losses.add(path, "default_added", "properties: {}")
    return {**schema, "properties": {}}


@lru_cache(maxsize=4096)
def flat_name(name: str, namespace: str | None = None, *, marked: bool = False) -> str:
    """One valid name; a name that was cut or changed, or is `marked`, ends in a digest."""
    flat = name
    if namespace is not None:
        flat = f"{namespace}{'' if namespace.endswith(SEPARATOR) else SEPARATOR}{name}"
    if not marked and LEGAL_NAME.fullmatch(flat):
        return flat
    digest = sha256(f"{namespace}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{REFUSED.sub('_', flat)[: LONGEST_NAME - 9]}_{digest}"


class _Names:
    """The flat names of one request's tools. A name that is valid already is never changed."""

    def __init__(self, tools: Sequence[Tool], *, custom: bool, namespaces: bool) -> None:
        self.custom = custom
        self.namespaces = namespaces
        self.calls: Calls = {}
        self._names: dict[tuple[str | None, str], str] = {}
        self._kept: set[tuple[str | None, str]] = set()
        changed: list[Tool] = []
        for tool in tools:
            if tool.kind in CALLABLE and self.needs_change(tool):
                changed.append(tool)
            else:
                self._kept.add((tool.namespace, tool.name))
                if tool.kind == "custom":
                    self._note(tool.name, tool.name, tool.namespace, True)
        used_names = {name for _, name in self._kept}
        for tool in changed:
            group = None if namespaces else tool.namespace
            flat = flat_name(tool.name, group)
            if flat in used_names and flat != tool.name:
                flat = flat_name(tool.name, group, marked=True)
            used_names.add(flat)
            self._names[tool.namespace, tool.name] = flat
            self._note(flat, tool.name, tool.namespace, tool.kind == "custom")

    def needs_change(self, tool: Tool) -> bool:
        """Whether a tool must be changed for the target."""
        return tool.kind in CALLABLE and self._needs_change(
            tool.name, tool.namespace, tool.kind == "custom"
        )

    def call_needs_change(self, call: ToolCall) -> bool:
        return self._needs_change(call.name, call.namespace, call.custom)

    def _needs_change(self, name: str, namespace: str | None, custom: bool) -> bool:
        if (namespace is not None and not self.namespaces) or (custom and not self.custom):
            return True
        return flat_name(name) != name

    def offers(self, name: str) -> str | None:
        """The flat name of a tool that the caller chose by its own name; `None` if there is none.

        A name may have its namespace before a dot. Without one, the first tool of that name is
        meant.
        """
        for (namespace, tool_name), flat in self._names.items():
            if tool_name == name and (namespace is None or (None, name) not in self._kept):
                return flat
        if any(tool_name == name for _, tool_name in self._kept):
            return name
        full_name = (
            flat
            for (group, tool_name), flat in self._names.items()
            if f"{group}.{tool_name}" == name
        )
        return next(full_name, None)

    def tool(self, tool: Tool, number: int, losses: Losses) -> Tool:
        """A tool's definition in the target's terms; each change is reported."""
        flat = self._names[tool.namespace, tool.name]
        position = losses.path(("tools", number))
        kind, description, schema = tool.kind, tool.description, tool.parameters
        if tool.kind == "custom" and not self.custom:
            kind, description, schema = "function", quote_grammar(tool), FREEFORM
            losses.add(position, "custom_tool_as_function", tool.name)
        group = tool.namespace if self.namespaces else None
        if group != tool.namespace:
            losses.add(position, "namespace_flattened", tool.namespace)
        elif flat != tool.name:
            losses.add(position, "tool_name_changed", f"{tool.name} -> {flat}")
        return Tool(flat, description, schema, tool.strict, kind, tool.raw, group)

    def call(self, call: ToolCall) -> ToolCall:
        """A call of history in the target's terms."""
        flat = self._names.get((call.namespace, call.name))
        if flat is None:  # its tool is no longer offered
            flat = flat_name(call.name, None if self.namespaces else call.namespace)
            self._note(flat, call.name, call.namespace, call.custom)
        wrapped = call.custom and not self.custom
        return ToolCall(
            call.id,
            flat,
            orjson.dumps({"input": call.arguments}).decode() if wrapped else call.arguments,
            custom=call.custom and not wrapped,
            namespace=call.namespace if self.namespaces else None,
            ext=call.ext,
        )

    def _note(self, flat: str, name: str, namespace: str | None, custom: bool) -> None:
        original: JsonObject = {"name": name}
        if namespace is not None and not self.namespaces:
            original["namespace"] = namespace
        if custom:  # a server may call it as a function, even where it was defined as custom
            original["custom"] = True
        if original != {"name": flat}:
            self.calls.setdefault(flat, original)


def _survey(messages: Sequence[Message], names: _Names) -> tuple[list[int], bool]:
    """The messages with a call that must be changed, and whether two calls have the same id."""
    changed: list[int] = []
    plain: set[str] = set()
    ids: set[str] = set()
    calls = 0
    for number, message in enumerate(messages):
        if message.role != "assistant":
            continue
        for block in message.blocks:
            if type(block) is not ToolCall:
                continue
            calls += 1
            ids.add(block.id)
            if block.name in plain and not block.custom and block.namespace is None:
                continue
            if not names.call_needs_change(block):
                plain.add(block.name)
            elif not changed or changed[-1] != number:
                changed.append(number)
    return changed, len(ids) < calls


def _flat_message(message: Message, number: int, names: _Names, losses: Losses) -> Message:
    blocks = list(message.blocks)
    for at, block in enumerate(blocks):
        if isinstance(block, ToolCall) and names.call_needs_change(block):
            blocks[at] = flat = names.call(block)
            is_custom = flat.custom != block.custom
            code = "custom_call_as_function" if is_custom else "tool_name_changed"
            losses.add((number, at), code, f"{block.name} -> {flat.name}")
    return structs.replace(message, blocks=tuple(blocks))


def _report_custom_results(messages: Sequence[Message], losses: Losses) -> None:
    for number, message in enumerate(messages):
        for at, block in enumerate(message.blocks):
            if isinstance(block, ToolResult) and block.custom:
                losses.add((number, at), "custom_result_as_function")


def _choose(request: Request, names: _Names, losses: Losses) -> Params:
    """The parameters with the chosen tool's flat name, or without a choice that names no tool.

    Vendors refuse a tool choice in a request without tools. Only `auto` is accepted, and stays.
    """
    params = request.params
    choice = params.tool_choice
    if not any(tool.kind in CALLABLE or is_search(tool) for tool in request.tools):
        free = choice is not None and choice.kind == "auto" and not request.tools
        for key in ("parallel_tool_calls",) if free else ("tool_choice", "parallel_tool_calls"):
            if getattr(params, key) is not None:
                losses.param(key, "tool_setting_dropped", key)
                params = structs.replace(params, **{key: None})
        return params
    if choice is not None and choice.names:
        return structs.replace(params, tool_choice=_allow(choice, names, losses))
    if choice is None or choice.kind != "tool" or choice.name is None:
        return params
    flat = names.offers(choice.name)
    hosted = {tool.name for tool in request.tools if tool.kind not in CALLABLE}
    if flat is None or flat in hosted:
        losses.param("tool_choice", "tool_choice_dropped", choice.name)
        return structs.replace(params, tool_choice=None)
    custom = any(tool.name == choice.name and tool.kind == "custom" for tool in request.tools)
    if flat != choice.name or (custom and not names.custom):
        losses.param("tool_choice", "tool_choice_changed", f"{choice.name} -> {flat}")
    return structs.replace(params, tool_choice=ToolChoice("tool", flat))


def _allow(choice: ToolChoice, names: _Names, losses: Losses) -> ToolChoice | None:
    """A choice among some tools by their flat names; tools that are not offered are reported."""
    offered = {name: flat for name in choice.names if (flat := names.offers(name)) is not None}
    for name in choice.names:
        if name not in offered:
            losses.param("tool_choice", "tool_choice_dropped", name)
    flats = tuple(offered.values())
    return structs.replace(choice, names=flats) if flats else None


def quote_grammar(tool: Tool) -> str | None:
    """A custom tool's description with its grammar quoted, for protocols that cannot enforce it."""
    grammar = grammar_of(tool)
    if grammar is None or not grammar.get("definition"):
        return tool.description
    quoted = f"The input follows this {grammar.get('syntax')} grammar:\n{grammar['definition']}"
    return f"{tool.description}\n\n{quoted}" if tool.description else quoted


def grammar_of(tool: Tool) -> JsonObject | None:
    """`syntax` and `definition` of a custom tool's input; Chat nests them, Responses does not."""
    form = format_of(tool)
    if form is None or form.get("type") != "grammar":
        return None
    return members(form.get("grammar")) or form


def format_of(tool: Tool) -> JsonObject | None:
    """The format of a custom tool's input, as its protocol wrote it."""
    for fields in (tool.raw or {}).values():
        form = members((members(fields.get("custom")) or fields).get("format"))
        if form is not None:
            return form
    return None


COMBINES = frozenset({"allOf", "anyOf", "oneOf"})
"""Refused by Anthropic: https://github.com/anthropics/claude-code/issues/5973"""

OPENAI_ROOT = COMBINES | {"enum", "not"}
"""Refused by OpenAI: https://github.com/chatanywhere/GPT_API_free/issues/403"""


def flatten_root_combinators(
    schema: JsonObject, tool: Tool, number: int, refused: frozenset[str], losses: Losses
) -> JsonObject:
    """The schema without the keywords that a vendor refuses at its root; each is reported."""
    keywords = [key for key in schema if key in refused]
    if not keywords:
        return schema
    path = schema_path(tool, number, losses)
    root = {key: value for key, value in schema.items() if key not in refused}
    properties = dict(members(schema.get("properties")) or {})
    needed = _names(schema.get("required"))
    for key in keywords:
        losses.add(f"{path}.{key}", "schema_keyword_dropped", key)
        parts = _combined(schema, key)
        for part in parts:
            properties = {**(members(part.get("properties")) or {}), **properties}
        required_sets = [set(_names(part.get("required"))) for part in parts]
        if required_sets:
            common = set[str].union if key == "allOf" else set[str].intersection
            needed += sorted(common(*required_sets) - set(needed))
    if properties:
        root["properties"] = properties
    return {**root, "required": needed} if needed else root


def _combined(schema: JsonObject, key: str) -> list[JsonObject]:
    """The schemas that a keyword combines; a `$ref` is looked up."""
    listed = schema.get(key) if key in COMBINES else None
    parts = cast("list[Any]", listed) if isinstance(listed, list) else []
    schemas: list[JsonObject] = []
    for part in map(members, parts):
        if part is None:
            continue
        _, section, name = f"{part.get('$ref')}//".split("/")[:3]
        referenced = members((members(schema.get(section)) or {}).get(name)) if name else None
        schemas.append(referenced or part)
    return schemas


def _names(required: Any) -> list[str]:
    listed = cast("list[Any]", required) if isinstance(required, list) else []
    return [name for name in listed if isinstance(name, str)]


MODES: dict[str, Literal["auto", "any"]] = {"auto": "auto", "required": "any"}


def read_allowed(fields: JsonObject) -> ToolChoice | None:
    """The choice; `None` if it names a hosted tool, which other vendors do not have."""
    mode, tools = MODES.get(str(fields.get("mode"))), fields.get("tools")
    if mode is None or not isinstance(tools, list):
        return None
    names = [_name(members(tool) or {}) for tool in cast("list[Any]", tools)]
    function_names = tuple(name for name in names if name is not None)
    return (
        ToolChoice(mode, None, function_names)
        if function_names and len(function_names) == len(names)
        else None
    )


def narrow(request: Request, losses: Losses) -> tuple[Request, tuple[str, ...]]:
    """The request without names in its tool choice, and these names: the only tools to offer."""
    choice = request.params.tool_choice
    if choice is None or not choice.names:
        return request, ()
    losses.param("tool_choice", "tool_choice_narrowed")
    params = structs.replace(request.params, tool_choice=ToolChoice(choice.kind))
    return structs.replace(request, params=params), choice.names


def is_allowed(tool: Tool, number: int, names: tuple[str, ...], losses: Losses) -> bool:
    """Whether to offer a tool: its name is in `names`, or `names` is empty. If not, report it."""
    if not names or tool.name in names or tool.kind not in CALLABLE:
        return True
    losses.add(("tools", number), "tool_not_allowed", tool.name)
    return False


def _name(tool: JsonObject) -> str | None:
    kind = tool.get("type")
    if not isinstance(kind, str) or kind not in CALLABLE:
        return None
    name = (members(tool.get(kind)) or tool).get("name")
    return name if isinstance(name, str) else None


SEARCHES = ("web_search", "googleSearch")
"""Prefixes of the vendors' type names; some end in the date of a version."""

NAMED = frozenset({"type", "name", "filters", *SEARCHES})


def is_search(tool: Tool) -> bool:
    """Whether a tool is some vendor's web search."""
    return tool.kind.startswith(SEARCHES)


def search_members(
    tool: Tool, number: int, supported: frozenset[str], losses: Losses
) -> JsonObject:
    """The limits of a search by Anthropic's names: `allowed_domains`, `blocked_domains`,
    `user_location`. Limits that the target does not support are reported."""
    limits: JsonObject = {}
    if tool.kind not in SEARCHES:
        path = losses.path(("tools", number))
        path = path if path.endswith(tool.kind) else f"{path}.type"
        losses.add(path, "web_search_version_changed", tool.kind)
    for key, value in _written(tool).items():
        if value == []:
            path = f"{losses.path(('tools', number))}.{key}"
            losses.add(path, "null_member_dropped", key)
        if value in (None, [], {}):
            continue
        name = key.removeprefix("filters.")
        path = f"{losses.path(('tools', number))}.{key}"
        if name in supported:
            limits[name] = _position(value, path, losses) if name == "user_location" else value
            continue
        losses.add(path, "web_search_member_dropped", key)
    return limits


def _position(value: Any, path: str, losses: Losses) -> Any:
    """The user's location with its `type`, which some protocols demand."""
    position = members(value)
    if position is None:
        return value
    if "type" not in position:
        losses.add(path, "default_added", "type: approximate")
    return {"type": "approximate"} | {
        k: inner for k, inner in position.items() if inner is not None
    }


def _written(tool: Tool) -> dict[str, Any]:
    """The members of a search by their path in the caller's definition."""
    for fields in (tool.raw or {}).values():
        search = fields
        for name in SEARCHES:
            search = members(fields.get(name)) or search
        outer = {key: value for key, value in search.items() if key not in NAMED}
        inner = members(search.get("filters")) or {}
        return outer | {f"filters.{key}": value for key, value in inner.items()}
    return {}
