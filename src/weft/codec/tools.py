"""Tools as the target supports them, and the names to translate its calls back.

Two kinds of tools are not supported everywhere: custom tools, which take free text by a grammar,
and tools of a namespace. For a protocol without them, a custom tool becomes a function of one
string with its grammar quoted in the description, and the namespace becomes part of the name.
Names that a vendor refuses are changed in the same way. A tool has the same name in its
definition, in the choice of a tool and in history, every turn. `Calls` keeps the caller's names,
so that the calls of an answer are translated back (`codec.calls`).
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256

import orjson
from msgspec import structs

from weft.model import (
    JsonObject,
    Message,
    Params,
    Request,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)

from .base import Calls, Losses, members
from .call_ids import unique_call_ids
from .reports import schema_path
from .schema import OPENAI_ROOT, flatten_root_combinators
from .web_search import is_search

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
        names.tool(tool, number, losses) if names.is_odd(tool) else tool
        for number, tool in enumerate(request.tools)
    )
    messages = request.messages
    odd, doubled = _survey(messages, names)
    if doubled:
        messages = unique_call_ids(messages, losses)
    if odd:
        flat = list(messages)
        for number in odd:
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
        odd: list[Tool] = []
        for tool in tools:
            if tool.kind in CALLABLE and self.is_odd(tool):
                odd.append(tool)
            else:
                self._kept.add((tool.namespace, tool.name))
                if tool.kind == "custom":
                    self._note(tool.name, tool.name, tool.namespace, True)
        used_names = {name for _, name in self._kept}
        for tool in odd:
            group = None if namespaces else tool.namespace
            flat = flat_name(tool.name, group)
            if flat in used_names and flat != tool.name:
                flat = flat_name(tool.name, group, marked=True)
            used_names.add(flat)
            self._names[tool.namespace, tool.name] = flat
            self._note(flat, tool.name, tool.namespace, tool.kind == "custom")

    def is_odd(self, tool: Tool) -> bool:
        """Whether a tool must be changed for the target."""
        return tool.kind in CALLABLE and self._odd(tool.name, tool.namespace, tool.kind == "custom")

    def is_odd_call(self, call: ToolCall) -> bool:
        return self._odd(call.name, call.namespace, call.custom)

    def _odd(self, name: str, namespace: str | None, custom: bool) -> bool:
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
        whole = (
            flat
            for (group, tool_name), flat in self._names.items()
            if f"{group}.{tool_name}" == name
        )
        return next(whole, None)

    def tool(self, tool: Tool, number: int, losses: Losses) -> Tool:
        """A tool's definition in the target's terms; each change is reported."""
        flat = self._names[tool.namespace, tool.name]
        position = losses.path(("tools", number))
        kind, words, schema = tool.kind, tool.description, tool.parameters
        if tool.kind == "custom" and not self.custom:
            kind, words, schema = "function", quote_grammar(tool), FREEFORM
            losses.add(position, "custom_tool_as_function", tool.name)
        group = tool.namespace if self.namespaces else None
        if group != tool.namespace:
            losses.add(position, "namespace_flattened", tool.namespace)
        elif flat != tool.name:
            losses.add(position, "tool_name_changed", f"{tool.name} -> {flat}")
        return Tool(flat, words, schema, tool.strict, kind, tool.raw, group)

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
    odd: list[int] = []
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
            if not names.is_odd_call(block):
                plain.add(block.name)
            elif not odd or odd[-1] != number:
                odd.append(number)
    return odd, len(ids) < calls


def _flat_message(message: Message, number: int, names: _Names, losses: Losses) -> Message:
    blocks = list(message.blocks)
    for at, block in enumerate(blocks):
        if isinstance(block, ToolCall) and names.is_odd_call(block):
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
