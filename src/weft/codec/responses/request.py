"""Requests to and from Responses: https://platform.openai.com/docs/api-reference/responses/create

Decoding:

- `instructions` becomes the first message, with the role `system`.
- A string `input` becomes one user message.
- For both, `Request.raw` has an empty string, so that encoding restores the original form.
- Tools inside the `input` list (`additional_tools` items) are added to `Request.tools`. Their item
  is kept too, and is sent back to the same protocol.

Encoding a request of another protocol: the first system message becomes `instructions` if it is one
text and was outside of the list of messages in its own protocol. All other system messages become
items of `input`.

`write_messages` writes only a thread's messages, for a request that the caller builds: see
`codec.outgoing`.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import accumulate
from typing import Any, cast

from msgspec import structs

from weft.codec.base import INLINE, Encoded, Locate, Losses, RenamedTools, Target
from weft.codec.outgoing import (
    blocks_of,
    is_empty,
    plain_blocks,
    plain_message,
    without_empty_texts,
)
from weft.codec.pairing import with_paired_results
from weft.codec.read import object_of, objects, optional, path_prefix, text_of
from weft.codec.repair import Arranged, Rules, Turn, arrange, join_system_text
from weft.codec.reports import report_tool_members
from weft.codec.tools import (
    can_define,
    flatten_tools,
    format_of,
    grammar_of,
    is_search,
    schema_of,
    search_members,
    with_properties,
)
from weft.model import (
    Block,
    File,
    FileRef,
    Image,
    Inline,
    JsonObject,
    Message,
    Opaque,
    Position,
    Redacted,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    Wire,
    texts,
)

from .blocks import INPUT, part_name, write_content
from .fields import ABSENT, FIELDS, decode_params, encode_params
from .items import CHECKS, Writer, decode_items, reasoning
from .wire import DECODED_MEMBERS, PROTOCOL

NAMESPACED = f"{PROTOCOL}:namespace"
"""The key in `Tool.raw` for a definition inside a namespace."""

NAMED_TOOLS = frozenset({"function", "custom", "namespace"})
"""Kinds of tools that must have a name. A hosted tool is named by its type."""


def decode_tools(raws: Any, path: str, namespace: str | None = None) -> list[Tool]:
    """Decode tool definitions; raises `Refused` with the path of an invalid one.

    The tools of a namespace follow it in the list. The same protocol gets them back inside of it;
    other protocols get them as separate tools.
    """
    tools: list[Tool] = []
    for number, raw in enumerate(objects(raws, path)):
        with path_prefix(f"{path}[{number}]"):
            kind = text_of(raw, "type")
            name = text_of(raw, "name") if kind in NAMED_TOOLS else raw.get("name")
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
            tools += decode_tools(raw["tools"], f"{path}[{number}].tools", name)
    return tools


def list_tool_paths(raws: Sequence[JsonObject], path: str) -> list[str]:
    """The path of each tool that `decode_tools` returns for this list."""
    paths: list[str] = []
    for number, raw in enumerate(raws):
        paths.append(f"{path}[{number}]")
        if raw.get("type") == "namespace" and raw.get("tools"):
            paths += [f"{path}[{number}].tools[{inner}]" for inner in range(len(raw["tools"]))]
    return paths


def write_tool(tool: Tool, number: int, losses: Losses) -> JsonObject | None:
    """A tool definition; `None` if the protocol does not support this kind of tool."""
    if tool.raw is not None and PROTOCOL in tool.raw:
        return dict(tool.raw[PROTOCOL])
    if is_search(tool):
        return _write_search(tool, number, losses)
    if not can_define(tool, number, losses):
        return None
    report_tool_members(tool, number, losses)
    body: JsonObject = {"type": tool.kind, "name": tool.name}
    if tool.description is not None:
        body["description"] = tool.description
    if tool.kind == "custom":
        return body | _format_member(tool)
    schema = schema_of(tool, number, losses)
    body["parameters"] = with_properties(schema, tool, number, losses)
    body["strict"] = tool.strict or False
    if tool.strict is None:
        losses.add(("tools", number), "default_added", "strict: false")
    return body


SEARCH_MEMBERS = frozenset({"allowed_domains", "user_location"})


def _write_search(tool: Tool, number: int, losses: Losses) -> JsonObject:
    supported = search_members(tool, number, SEARCH_MEMBERS, losses)
    body: JsonObject = {"type": "web_search"}
    if "allowed_domains" in supported:
        body["filters"] = {"allowed_domains": supported["allowed_domains"]}
    if "user_location" in supported:
        body["user_location"] = supported["user_location"]
    return body


def _format_member(tool: Tool) -> JsonObject:
    """The member `format` of a custom tool that came from Chat; empty if it has no format.

    Chat nests a grammar one level deeper than Responses.
    """
    chat_format, grammar = format_of(tool), grammar_of(tool)
    if chat_format is None:
        return {}
    return {"format": chat_format if grammar is None else {"type": "grammar", **grammar}}


ADDITIONAL = f"{PROTOCOL}:additional_tools"
"""The key in `Tool.raw` for a definition inside an `additional_tools` item."""


def decode_request(body: JsonObject, model: str | None = None) -> Request:
    """Decode a request body; raises `Refused` with the path of an invalid member."""
    raw = {key: value for key, value in body.items() if key not in DECODED_MEMBERS}
    messages: list[Message] = []
    if "instructions" in body:
        raw["instructions"] = body["instructions"]
        if body["instructions"] is not None:
            messages.append(_text_message("system", text_of(body, "instructions")))
            raw["instructions"] = ""
    offset = len(messages)
    params, unmapped = decode_params(body)
    first_items: list[int] = []
    tool_items: ToolItems = []
    items = body.get("input")
    if type(items) is str:
        messages.append(_text_message("user", items))
        raw["input"] = ""
        unmapped["input"] = None  # only the form is lost: it was a string
    elif items is not None:
        grouping = decode_items(objects(items, "input"))
        messages += grouping.messages
        first_items = grouping.starts
        tool_items = [(number, items[number]) for number in grouping.tool_items]
        for number in grouping.references:
            unmapped[f"input[{number}]"] = items[number]
    else:
        raw["input"] = None if "input" in body else ABSENT
        unmapped["input"] = None  # only the form is lost: other protocols write an empty list
    if not offset and messages and messages[0].role == "system":
        # Only the form is lost: after a translation and back, it is `instructions`.
        unmapped[f"input[{first_items[0]}]"] = None
    if "instructions" in body and not offset:
        unmapped["instructions"] = None  # only the form is lost: it was null
    if raw.get("tools"):  # an empty list is kept, because no `Tool` represents it
        del raw["tools"]
    return Request(
        model=text_of(body, "model") if model is None else model,
        messages=tuple(messages),
        tools=_decode_all_tools(body, tool_items),
        params=params,
        raw={PROTOCOL: raw},
        rest=unmapped,
        wire=Wire(PROTOCOL, _locator(body, first_items, offset, tool_items), part_name),
    )


def _text_message(role: str, text: str) -> Message:
    return Message(role, (Text(text),) if text else (), form="text")


ToolItems = list[tuple[int, JsonObject]]
"""Items that contain more tools, with their numbers in `input`."""


def _decode_all_tools(body: JsonObject, tool_items: ToolItems) -> tuple[Tool, ...]:
    """The tools in `tools`, and then those of the items."""
    tools = decode_tools(body["tools"], "tools") if body.get("tools") else []
    for number, item in tool_items:
        for tool in decode_tools(item.get("tools") or [], f"input[{number}].tools"):
            (definition,) = (tool.raw or {}).values()  # `decode_tools` puts one value there
            tools.append(structs.replace(tool, raw={ADDITIONAL: definition}))
    return tuple(tools)


def _locator(
    body: JsonObject, first_items: list[int], offset: int, tool_items: ToolItems
) -> Locate:
    """Paths in the caller's body; computed only when a loss is reported.

    `first_items` has the number of the first item of each message. `offset` is 1 with
    `instructions`.
    """
    tool_paths = cache(partial(_all_tool_paths, body, tool_items))
    first_blocks = cache(partial(_first_blocks, body))

    def locate(position: Position) -> str:
        match position:
            case ("tools", int(number)):
                paths = tool_paths()
                return paths[number] if number < len(paths) else "tools"
            case ("params", str(name)):
                return FIELDS.path(name)
            case (int(number), *steps):
                if number < offset:
                    return "instructions"
                if not first_items:
                    return "input"
                first_item = first_items[number - offset]
                return _item_path(body["input"], first_item, steps, first_blocks)
            case _:
                return ""

    return locate


def _all_tool_paths(body: JsonObject, tool_items: ToolItems) -> list[str]:
    """The path of each tool that `_decode_all_tools` returns."""
    paths = list_tool_paths(body.get("tools") or (), "tools")
    for number, item in tool_items:
        paths += list_tool_paths(item.get("tools") or (), f"input[{number}].tools")
    return paths


def _first_blocks(body: JsonObject) -> list[int]:
    """For each item of `input`: the number of its first block, counted over all items."""
    return [0, *accumulate(map(_block_count, body["input"][:-1]))]


def _item_path(
    items: list[JsonObject],
    first_item: int,
    steps: list[int | str],
    first_blocks: Callable[[], list[int]],
) -> str:
    """The path of a message, a block of it, or a part of a result.

    `first_item` is the first item of the message. `steps` has the number of the block in the
    message, and then the number of the part or `"arguments"`.
    """
    if not steps:
        return f"input[{first_item}]"
    block_in_input = first_blocks()[first_item] + cast(int, steps[0])
    item_number = bisect_right(first_blocks(), block_in_input) - 1
    item, path = items[item_number], f"input[{item_number}]"
    if item.get("type", "message") not in CONTENT_ITEMS:
        return path + (".arguments" if steps[1:] == ["arguments"] else "")
    is_result_part = "output" in item and len(steps) > 1
    key = "output" if is_result_part else "content"
    part = steps[1] if is_result_part else block_in_input - first_blocks()[item_number]
    if key not in item:
        return path
    inner = f"[{part}]" if isinstance(item[key], list) else ""
    return f"{path}.{key}{inner}"


def _block_count(item: JsonObject) -> int:
    """The number of blocks that an item was decoded to."""
    content: Any = item.get("content")
    if item.get("type", "message") != "message" or not isinstance(content, list):
        return 1
    parts = cast(list[JsonObject], content)
    if item.get("role") == "assistant" and any(
        part.get("type") not in TEXT_PARTS for part in parts
    ):
        return 1  # the whole item became one `Opaque`
    return max(1, len(parts))


CONTENT_ITEMS = frozenset({"message", "function_call_output", "custom_tool_call_output"})
TEXT_PARTS = frozenset({"input_text", "output_text", "refusal"})


def encode_request(request: Request, target: Target) -> Encoded:
    """The body for Responses, and the losses."""
    losses = Losses(request)
    native = PROTOCOL in request.raw
    renamed_tools: RenamedTools = {}
    if not native:
        request, renamed_tools = flatten_tools(request, losses, custom=True, namespaces=True)
    arranged = arrange(request, RULES, target.model, target.system, losses)
    writer = Writer(losses, native=native, request=request)
    body: JsonObject = {"model": request.model}
    body.update(encode_params(request, target, losses))
    instructions, turns = _take_instructions(request, arranged, target, losses)
    if target.model.developer is False and (target.enforce or not native):
        _replace_developer_role(turns, losses)
    if instructions is not None:
        body["instructions"] = instructions
    input_value = _write_input(request, turns, writer)
    # Without messages, the original form stays: null (which `encode_params` restores) or absent.
    has_empty_form = "input" in body or _had_no_input(request)
    if input_value or not has_empty_form:
        body["input"] = input_value
    tools = _write_all_tools(request, losses)
    if tools:
        body["tools"] = tools
    for position in request.marks:
        losses.add(position, "cache_breakpoint_dropped")
    return Encoded(body, losses.items, renamed_tools)


def _had_no_input(request: Request) -> bool:
    """Whether the original body had no `input`."""
    return request.raw.get(PROTOCOL, {}).get("input") == ABSENT


def _take_instructions(
    request: Request, arranged: Arranged, target: Target, losses: Losses
) -> tuple[str | None, list[Turn]]:
    """The text for `instructions`, and the remaining turns for the list."""
    system, turns = arranged.system, arranged.turns
    if target.system == "merge":
        return join_system_text([turn.message for turn in system]), turns
    original = request.raw.get(PROTOCOL)
    if original is None:
        system = _drop_empty(system, losses)
    first = system[0] if system else None
    if first is None or not _fits_instructions(first):
        return None, system + turns
    if original is not None:
        if original.get("instructions") is None or first.message.form != "text":
            return None, system + turns
        return first.message.text, system[1:] + turns
    # A system message from the list of another protocol stays in the list. `INLINE` counts those
    # messages, which follow the ones of the separate `system` member: if it counts all, there was
    # no such member.
    inline_count = sum(fields.get(INLINE, 0) for fields in request.raw.values())
    is_inline = len(system) <= inline_count
    if is_inline or first.message.role != "system":
        return None, system + turns
    if not first.message.text:
        losses.add(first.position, "empty_message_dropped", "system")
        return None, system[1:] + turns
    if first.message.form == "list":
        losses.add(first.position, "list_as_string")
    return first.message.text, system[1:] + turns


def _replace_developer_role(turns: list[Turn], losses: Losses) -> None:
    """Change developer messages to `system`, for servers without the developer role."""
    for turn in turns:
        # The form `absent` is that of an `additional_tools` item, which is not a message.
        if turn.role == "developer" and turn.message.form != "absent":
            turn.role = "system"
            losses.add(turn.position, "role_changed", "developer -> system")


def _drop_empty(system: list[Turn], losses: Losses) -> list[Turn]:
    for turn in system:
        if not turn.blocks:
            losses.add(turn.position, "empty_message_dropped", "system")
    return [turn for turn in system if turn.blocks]


def _fits_instructions(turn: Turn) -> bool:
    """Whether a system message can be a string: it has content, of at most one block."""
    return turn.message.form != "absent" and len(turn.blocks) <= 1


def _write_input(request: Request, turns: list[Turn], writer: Writer) -> str | list[JsonObject]:
    original = request.raw.get(PROTOCOL, {})
    if original.get("input") == "" and len(turns) == 1:
        message = turns[0].message
        if message.role == "user" and message.form == "text" and message.ext is None:
            return message.text
    items: list[JsonObject] = []
    for turn in turns:
        items += writer.write_turn(turn)
    return items


def _write_all_tools(request: Request, losses: Losses) -> list[JsonObject]:
    tools: list[JsonObject] = []
    for number, tool in enumerate(request.tools):
        if tool.raw is not None and (ADDITIONAL in tool.raw or NAMESPACED in tool.raw):
            continue
        body = write_tool(tool, number, losses)
        if body is not None:
            tools.append(body)
    return tools


RULES = Rules(
    protocol=PROTOCOL,
    roles=frozenset({"user", "assistant"}),
    inline_system="native",
    checks=CHECKS,
    has_system_field=True,
    distinguishes_leading_system=True,
)


def write_messages(messages: Sequence[Message]) -> list[JsonObject]:
    """The list `input`; calls and results are items of their own."""
    return [item for message in with_paired_results(messages) for item in _items(message)]


def _items(message: Message) -> Iterator[JsonObject]:
    """The items of a message: results, reasoning, text, calls.

    Each text of an assistant is an item with a string. An item with a list of texts is an answer's,
    and needs the id of that answer. A block that only this vendor can read, such as its
    `compaction`, is an item too: https://developers.openai.com/api/docs/guides/compaction

    Losses are not reported (see `codec.outgoing`).
    """
    results, calls = blocks_of(message, ToolResult), blocks_of(message, ToolCall)
    for result in results:
        output = _write_output(result.content)
        yield {"type": "function_call_output", "call_id": result.call_id, "output": output}
    if message.origin is not None and message.origin.protocol == PROTOCOL:
        for block in message.blocks:
            if isinstance(block, Thinking | Redacted):
                yield reasoning(block)
    blocks = without_empty_texts([*_supported_blocks(message.blocks)])
    if all(map(is_empty, blocks)):
        # An empty message stays a message, unless its results or calls are items.
        blocks = [] if results or calls else [Text(message.text)]
    # A decoded message with the form `absent` is an item that is not a message, as one `Opaque`.
    one_item_per_block = message.role == "assistant" or message.form == "absent"
    groups = [[block] for block in blocks] if one_item_per_block else [blocks]
    for group in filter(None, groups):
        if one_item_per_block and isinstance(group[0], Opaque):
            yield dict(group[0].raw)
        else:
            yield plain_message(message, write_content(group, "text", INPUT, (), Losses()))
    for call in calls:  # custom calls too: see `plain_call`
        yield {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
        }


def _write_output(content: Sequence[Block]) -> Any:
    """The `output` of a result: a string if it has only text, else a list."""
    blocks = [*_supported_blocks(content)]
    if all(isinstance(block, Text) for block in blocks):
        return "\n".join(texts(blocks))
    return write_content(without_empty_texts(blocks), "list", INPUT, (), Losses())


def _supported_blocks(blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks that can be content parts, with the members that this protocol requires."""
    for block in plain_blocks(blocks):
        match block:
            case Image(source=FileRef() as source):
                yield Image(source)
            case Image(source=source, detail=detail):
                yield Image(source, detail or "auto")
            case File(source=source, name=name):
                yield File(source, (name or "file") if isinstance(source, Inline) else None)
            case Text():
                yield block
            case Opaque(protocol=protocol) if protocol == PROTOCOL:
                yield block
            case _:
                pass
