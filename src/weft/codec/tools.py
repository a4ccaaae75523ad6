"""Converts tools to what the target supports, and keeps the original names for its calls.

Two kinds of tools are not supported everywhere: custom tools, whose input is free text that follows
a grammar, and tools of a namespace. For a protocol without them, a custom tool becomes a function
with one string argument and its grammar quoted in the description, and the namespace becomes part
of the name. Names that a vendor refuses are changed too. A tool gets the same name in its
definition, in the tool choice and in earlier calls, in every request. `RenamedTools` has the
caller's names, so that the calls of an answer are translated back (`codec.calls`).

The root of a tool's schema must be one plain object. Schema generators write a choice between
objects as `anyOf` at the root, and vendors then refuse the whole request. So
`flatten_root_combinators` gives the root the properties of all combined schemas, and requires the
ones that every choice requires. Which properties belong together is lost, and reported.

A request may allow only some of its tools. Both OpenAI protocols have a mode and a list of allowed
tools for that. Chat nests a tool's name under its kind, Responses does not. For a target without
such a list, only the allowed tools are written.
https://platform.openai.com/docs/guides/function-calling#allowed-tools

Web search is the one hosted tool that several vendors have. Each protocol has its own name and
members for it. All other hosted tools go back to their own vendor only.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal, cast

from msgspec import structs

from weft import exact_json
from weft.model import JsonObject, Message, Params, Request, Tool, ToolCall, ToolChoice, ToolResult

from .base import Losses, OriginalTool, RenamedTools, as_object
from .calls import unique_call_ids
from .reports import schema_path

MAX_NAME_LENGTH = 64
"""https://platform.openai.com/docs/api-reference/chat/create#chat-create-tools"""

VALID_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
INVALID_NAME_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")
SEPARATOR = "__"

CALLABLE = frozenset({"function", "custom"})
"""Kinds of tools that the caller runs. All others run on the vendor's servers."""

FREE_TEXT_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}
"""The schema of a custom tool, for protocols whose tools all take an object."""


def flatten_tools(
    request: Request, losses: Losses, *, custom: bool, namespaces: bool
) -> tuple[Request, RenamedTools]:
    """The request with tools, tool choice and calls as the target supports them, and the tools that
    were renamed.

    `custom` and `namespaces` say whether the target supports such tools. The order of tools and
    blocks does not change.
    """
    names = _FlatNames(request.tools, custom=custom, namespaces=namespaces)
    tools = tuple(
        names.flatten_tool(tool, number, losses) if names.needs_change(tool) else tool
        for number, tool in enumerate(request.tools)
    )
    messages = request.messages
    changed, has_repeated_ids = _find_calls_to_change(messages, names)
    if has_repeated_ids:
        messages = unique_call_ids(messages, losses)
    if changed:
        new_messages = list(messages)
        for number in changed:
            new_messages[number] = _flat_message(messages[number], number, names, losses)
        messages = tuple(new_messages)
    if not custom and any(original.custom for original in names.renamed_tools.values()):
        _report_custom_results(messages, losses)
    params = _with_flat_choice(request, names, losses)
    if tools == request.tools and messages is request.messages and params is request.params:
        return request, names.renamed_tools
    new_request = structs.replace(request, tools=tools, messages=messages, params=params)
    return new_request, names.renamed_tools


def can_define(tool: Tool, number: int, losses: Losses) -> bool:
    """Whether a tool of another protocol can be defined at the target; reported if not.

    A namespace itself is not defined, only its tools are.
    """
    if tool.kind in CALLABLE:
        return True
    path = losses.path(("tools", number))
    if tool.kind != "namespace":
        losses.add(path, "tool_unsupported", f"{tool.name} ({tool.kind})")
    else:
        losses.add(path, "namespace_flattened", tool.name)
        if tool.description:
            losses.add(f"{path}.description", "namespace_description_dropped", tool.name)
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
    schema = flatten_root_combinators(schema, tool, number, REFUSED_BY_OPENAI, losses)
    if schema.get("type") != "object" or "properties" in schema:
        return schema
    path = schema_path(tool, number, losses)
    losses.add(path, "default_added", "properties: {}")
    return {**schema, "properties": {}}


@lru_cache(maxsize=4096)
def flat_name(name: str, namespace: str | None = None, *, with_digest: bool = False) -> str:
    """A valid name for a tool. If it must be cut or changed, or `with_digest` is set, it ends in a
    digest of the original."""
    flat = name
    if namespace is not None:
        flat = f"{namespace}{'' if namespace.endswith(SEPARATOR) else SEPARATOR}{name}"
    if not with_digest and VALID_NAME.fullmatch(flat):
        return flat
    digest = sha256(f"{namespace}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{INVALID_NAME_CHARACTER.sub('_', flat)[: MAX_NAME_LENGTH - 9]}_{digest}"


class _FlatNames:
    """The flat names of one request's tools: valid at the target, and without a namespace unless it
    supports them. A name that is already valid is not changed.

    `custom` and `namespaces` say whether the target supports such tools.
    """

    def __init__(self, tools: Sequence[Tool], *, custom: bool, namespaces: bool) -> None:
        self.custom = custom
        self.namespaces = namespaces
        self.renamed_tools: RenamedTools = {}
        self._flat_names: dict[tuple[str | None, str], str] = {}
        self._unchanged: set[tuple[str | None, str]] = set()
        changed: list[Tool] = []
        for tool in tools:
            if tool.kind in CALLABLE and self.needs_change(tool):
                changed.append(tool)
            else:
                self._unchanged.add((tool.namespace, tool.name))
                if tool.kind == "custom":
                    self._remember(tool.name, tool.name, tool.namespace, True)
        used_names = {name for _, name in self._unchanged}
        for tool in changed:
            group = None if namespaces else tool.namespace
            flat = flat_name(tool.name, group)
            if flat in used_names and flat != tool.name:
                flat = flat_name(tool.name, group, with_digest=True)
            used_names.add(flat)
            self._flat_names[tool.namespace, tool.name] = flat
            self._remember(flat, tool.name, tool.namespace, tool.kind == "custom")

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

    def find(self, name: str) -> str | None:
        """The flat name of a tool by the caller's name; `None` if there is no such tool.

        The name may start with the namespace and a dot. Otherwise it means the first tool of that
        name.
        """
        for (namespace, tool_name), flat in self._flat_names.items():
            if tool_name == name and (namespace is None or (None, name) not in self._unchanged):
                return flat
        if any(tool_name == name for _, tool_name in self._unchanged):
            return name
        with_namespace = (
            flat
            for (group, tool_name), flat in self._flat_names.items()
            if f"{group}.{tool_name}" == name
        )
        return next(with_namespace, None)

    def flatten_tool(self, tool: Tool, number: int, losses: Losses) -> Tool:
        """A tool's definition as the target supports it; each change is reported."""
        flat = self._flat_names[tool.namespace, tool.name]
        path = losses.path(("tools", number))
        kind, description, schema = tool.kind, tool.description, tool.parameters
        if tool.kind == "custom" and not self.custom:
            kind, description, schema = "function", description_with_grammar(tool), FREE_TEXT_SCHEMA
            losses.add(path, "custom_tool_as_function", tool.name)
        group = tool.namespace if self.namespaces else None
        if group != tool.namespace:
            losses.add(path, "namespace_flattened", tool.namespace)
        elif flat != tool.name:
            losses.add(path, "tool_name_changed", f"{tool.name} -> {flat}")
        return Tool(flat, description, schema, tool.strict, kind, tool.raw, group)

    def flatten_call(self, call: ToolCall) -> ToolCall:
        """An earlier call as the target supports it."""
        flat = self._flat_names.get((call.namespace, call.name))
        if flat is None:  # its tool is no longer offered
            flat = flat_name(call.name, None if self.namespaces else call.namespace)
            self._remember(flat, call.name, call.namespace, call.custom)
        is_wrapped = call.custom and not self.custom
        return ToolCall(
            call.id,
            flat,
            exact_json.dumps({"input": call.arguments}).decode() if is_wrapped else call.arguments,
            custom=call.custom and not is_wrapped,
            namespace=call.namespace if self.namespaces else None,
            ext=call.ext,
        )

    def _remember(self, flat: str, name: str, namespace: str | None, custom: bool) -> None:
        """Add the tool to `renamed_tools`, unless nothing was changed.

        A custom tool is always added: a server may call it as a function, even where it was defined
        as custom.
        """
        original = OriginalTool(name, None if self.namespaces else namespace, custom)
        if original != OriginalTool(flat):
            self.renamed_tools.setdefault(flat, original)


def _find_calls_to_change(messages: Sequence[Message], names: _FlatNames) -> tuple[list[int], bool]:
    """The numbers of messages with a call that must be changed, and whether two calls have the same
    id."""
    changed: list[int] = []
    unchanged_names: set[str] = set()
    ids: set[str] = set()
    call_count = 0
    for number, message in enumerate(messages):
        if message.role != "assistant":
            continue
        for block in message.blocks:
            if type(block) is not ToolCall:
                continue
            call_count += 1
            ids.add(block.id)
            if block.name in unchanged_names and not block.custom and block.namespace is None:
                continue
            if not names.call_needs_change(block):
                unchanged_names.add(block.name)
            elif not changed or changed[-1] != number:
                changed.append(number)
    return changed, len(ids) < call_count


def _flat_message(message: Message, number: int, names: _FlatNames, losses: Losses) -> Message:
    blocks = list(message.blocks)
    for index, block in enumerate(blocks):
        if isinstance(block, ToolCall) and names.call_needs_change(block):
            blocks[index] = flat = names.flatten_call(block)
            is_wrapped = flat.custom != block.custom
            code = "custom_call_as_function" if is_wrapped else "tool_name_changed"
            losses.add((number, index), code, f"{block.name} -> {flat.name}")
    return structs.replace(message, blocks=tuple(blocks))


def _report_custom_results(messages: Sequence[Message], losses: Losses) -> None:
    for number, message in enumerate(messages):
        for index, block in enumerate(message.blocks):
            if isinstance(block, ToolResult) and block.custom:
                losses.add((number, index), "custom_result_as_function")


def _with_flat_choice(request: Request, names: _FlatNames, losses: Losses) -> Params:
    """The parameters with the flat name of the chosen tool, or without a choice of an unknown tool.

    Vendors refuse a tool choice in a request without tools, except `auto`, which stays.
    """
    params = request.params
    choice = params.tool_choice
    if not any(tool.kind in CALLABLE or is_search(tool) for tool in request.tools):
        keeps_choice = choice is not None and choice.kind == "auto" and not request.tools
        for key in ("tool_choice", "parallel_tool_calls"):
            if key == "tool_choice" and keeps_choice:
                continue
            if getattr(params, key) is not None:
                losses.param(key, "tool_setting_dropped", key)
                params = structs.replace(params, **{key: None})
        return params
    if choice is not None and choice.names:
        return structs.replace(params, tool_choice=_with_flat_names(choice, names, losses))
    if choice is None or choice.kind != "tool" or choice.name is None:
        return params
    flat = names.find(choice.name)
    hosted = {tool.name for tool in request.tools if tool.kind not in CALLABLE}
    if flat is None or flat in hosted:
        losses.param("tool_choice", "tool_choice_dropped", choice.name)
        return structs.replace(params, tool_choice=None)
    is_custom = any(tool.name == choice.name and tool.kind == "custom" for tool in request.tools)
    if flat != choice.name or (is_custom and not names.custom):
        losses.param("tool_choice", "tool_choice_changed", f"{choice.name} -> {flat}")
    return structs.replace(params, tool_choice=ToolChoice("tool", flat))


def _with_flat_names(choice: ToolChoice, names: _FlatNames, losses: Losses) -> ToolChoice | None:
    """A choice of allowed tools by their flat names; unknown tools are reported."""
    known = {name: flat for name in choice.names if (flat := names.find(name)) is not None}
    for name in choice.names:
        if name not in known:
            losses.param("tool_choice", "tool_choice_dropped", name)
    flat_names = tuple(known.values())
    return structs.replace(choice, names=flat_names) if flat_names else None


def description_with_grammar(tool: Tool) -> str | None:
    """A custom tool's description with its grammar quoted, for protocols that cannot enforce it."""
    grammar = grammar_of(tool)
    if grammar is None or not grammar.get("definition"):
        return tool.description
    quoted = f"The input follows this {grammar.get('syntax')} grammar:\n{grammar['definition']}"
    return f"{tool.description}\n\n{quoted}" if tool.description else quoted


def grammar_of(tool: Tool) -> JsonObject | None:
    """The `syntax` and `definition` of a custom tool's input. Chat nests them, Responses does
    not."""
    input_format = format_of(tool)
    if input_format is None or input_format.get("type") != "grammar":
        return None
    return as_object(input_format.get("grammar")) or input_format


def format_of(tool: Tool) -> JsonObject | None:
    """The format of a custom tool's input, as its protocol wrote it."""
    for fields in (tool.raw or {}).values():
        input_format = as_object((as_object(fields.get("custom")) or fields).get("format"))
        if input_format is not None:
            return input_format
    return None


COMBINATORS = frozenset({"allOf", "anyOf", "oneOf"})
"""Keywords that Anthropic refuses at the root:
https://github.com/anthropics/claude-code/issues/5973"""

REFUSED_BY_OPENAI = COMBINATORS | {"enum", "not"}
"""Keywords that OpenAI refuses at the root:
https://github.com/chatanywhere/GPT_API_free/issues/403"""


def flatten_root_combinators(
    schema: JsonObject, tool: Tool, number: int, refused: frozenset[str], losses: Losses
) -> JsonObject:
    """The schema without the keywords that a vendor refuses at its root; each is reported."""
    keywords = [key for key in schema if key in refused]
    if not keywords:
        return schema
    path = schema_path(tool, number, losses)
    root = {key: value for key, value in schema.items() if key not in refused}
    properties = dict(as_object(schema.get("properties")) or {})
    required = _strings(schema.get("required"))
    for key in keywords:
        losses.add(f"{path}.{key}", "schema_keyword_dropped", key)
        parts = _combined_schemas(schema, key)
        for part in parts:
            properties = {**(as_object(part.get("properties")) or {}), **properties}
        required_sets = [set(_strings(part.get("required"))) for part in parts]
        if required_sets:
            combine = set[str].union if key == "allOf" else set[str].intersection
            required += sorted(combine(*required_sets) - set(required))
    if properties:
        root["properties"] = properties
    return {**root, "required": required} if required else root


def _combined_schemas(schema: JsonObject, key: str) -> list[JsonObject]:
    """The schemas that a keyword combines; a `$ref` like `#/$defs/Name` is replaced by its
    schema."""
    listed = schema.get(key) if key in COMBINATORS else None
    parts = cast("list[Any]", listed) if isinstance(listed, list) else []
    schemas: list[JsonObject] = []
    for part in map(as_object, parts):
        if part is None:
            continue
        _, section, name = f"{part.get('$ref')}//".split("/")[:3]
        referenced = as_object((as_object(schema.get(section)) or {}).get(name)) if name else None
        schemas.append(referenced or part)
    return schemas


def _strings(values: Any) -> list[str]:
    listed = cast("list[Any]", values) if isinstance(values, list) else []
    return [value for value in listed if isinstance(value, str)]


ALLOWED_TOOLS_MODES: dict[str, Literal["auto", "any"]] = {"auto": "auto", "required": "any"}


def read_allowed(fields: JsonObject) -> ToolChoice | None:
    """The choice of allowed tools in OpenAI's `allowed_tools`; `None` if it names a hosted tool,
    which other vendors do not have."""
    mode, tools = ALLOWED_TOOLS_MODES.get(str(fields.get("mode"))), fields.get("tools")
    if mode is None or not isinstance(tools, list):
        return None
    names = [_callable_name(as_object(tool) or {}) for tool in cast("list[Any]", tools)]
    function_names = tuple(name for name in names if name is not None)
    if not function_names or len(function_names) < len(names):
        return None
    return ToolChoice(mode, None, function_names)


def take_allowed_names(request: Request, losses: Losses) -> tuple[Request, tuple[str, ...]]:
    """The request without the names in its tool choice, and these names: the only tools to write.

    For a target whose tool choice cannot list allowed tools.
    """
    choice = request.params.tool_choice
    if choice is None or not choice.names:
        return request, ()
    losses.param("tool_choice", "tool_choice_narrowed")
    params = structs.replace(request.params, tool_choice=ToolChoice(choice.kind))
    return structs.replace(request, params=params), choice.names


def check_allowed(tool: Tool, number: int, names: tuple[str, ...], losses: Losses) -> bool:
    """Whether to write a tool: its name is in `names`, or `names` is empty. Reports it if not."""
    if not names or tool.name in names or tool.kind not in CALLABLE:
        return True
    losses.add(("tools", number), "tool_not_allowed", tool.name)
    return False


def _callable_name(tool: JsonObject) -> str | None:
    kind = tool.get("type")
    if not isinstance(kind, str) or kind not in CALLABLE:
        return None
    name = (as_object(tool.get(kind)) or tool).get("name")
    return name if isinstance(name, str) else None


WEB_SEARCH_TYPES = ("web_search", "googleSearch")
"""The vendors' type names of web search. Some names have a version after them."""

SEARCH_OPTIONS = "web_search_options"
"""The member of a Chat request that turns on web search, for OpenAI's search models. It is read as
a tool, as the other protocols write it: https://platform.openai.com/docs/guides/tools-web-search"""

NOT_LIMITS = frozenset({"type", "name", "filters", SEARCH_OPTIONS, *WEB_SEARCH_TYPES})
"""Members of a web search that are not limits themselves."""


def is_search(tool: Tool) -> bool:
    """Whether a tool is some vendor's web search."""
    return tool.kind.startswith(WEB_SEARCH_TYPES)


def search_members(
    tool: Tool, number: int, supported: frozenset[str], losses: Losses
) -> JsonObject:
    """The limits of a web search, under Anthropic's names: `allowed_domains`, `blocked_domains`,
    `user_location`. Limits that the target does not support are reported."""
    limits: JsonObject = {}
    tool_path = losses.path(("tools", number))
    if tool.kind not in WEB_SEARCH_TYPES:
        path = tool_path if tool_path.endswith(tool.kind) else f"{tool_path}.type"
        losses.add(path, "web_search_version_changed", tool.kind)
    for key, value in _search_limits(tool).items():
        path, name = f"{tool_path}.{key}", key.removeprefix("filters.")
        if value == []:
            losses.add(path, "null_member_dropped", key)
        if value in (None, [], {}):
            continue
        if name not in supported:
            losses.add(path, "web_search_member_dropped", key)
        elif name == "user_location":
            limits[name] = _with_location_type(value, path, losses)
        else:
            limits[name] = value
    return limits


def _with_location_type(value: Any, path: str, losses: Losses) -> Any:
    """The user's location with its `type`, which some protocols demand."""
    location = as_object(value)
    if location is None:
        return value
    nested = as_object(location.get("approximate"))
    if nested is not None:  # Chat nests it
        location = {key: part for key, part in location.items() if key != "approximate"} | nested
    if "type" not in location:
        losses.add(path, "default_added", "type: approximate")
    known = {key: part for key, part in location.items() if part is not None}
    return {"type": "approximate"} | known


def _search_limits(tool: Tool) -> dict[str, Any]:
    """The limits of a web search, by their path in the caller's definition."""
    for fields in (tool.raw or {}).values():
        search = fields
        for name in (*WEB_SEARCH_TYPES, SEARCH_OPTIONS):
            search = as_object(fields.get(name)) or search
        outer = {key: value for key, value in search.items() if key not in NOT_LIMITS}
        inner = as_object(search.get("filters")) or {}
        return outer | {f"filters.{key}": value for key, value in inner.items()}
    return {}
