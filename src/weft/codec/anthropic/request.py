"""Requests to and from Anthropic Messages: https://platform.claude.com/docs/en/api/messages

- The top-level `system` is decoded to the first message.
- In a request to Anthropic, the leading system and developer messages become `system`, block by
  block. Later ones stay inline if the model allows it (see `codec.repair`).
- Cache breakpoints (`cache_control`) are in `Request.marks`, not in the blocks.

`write_messages` writes messages outside of a request (`codec.outgoing`). Callers who build requests
by hand have two more functions: `build_anthropic_system_param` joins all system messages into one
string, and `encode_message` writes one message. Both take messages as model values or as plain
`{"role", "content"}` dicts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, cast

from msgspec import structs

from weft.checked import checked_function
from weft.codec.base import INLINE, Encoded, Losses, RenamedTools, Target
from weft.codec.outgoing import plain_blocks, plain_message
from weft.codec.pairing import with_paired_results
from weft.codec.read import (
    object_of,
    objects,
    optional,
    path_prefix,
    text_of,
    unknown_members,
    with_prefix,
)
from weft.codec.repair import (
    EMPTY_MESSAGE_TEXT,
    SYSTEM_TEXT,
    Arranged,
    Rules,
    Turn,
    arrange,
    join_system_text,
    refuse_system_block,
    report_system_only,
)
from weft.codec.reports import report_tool_members, schema_path
from weft.codec.tools import (
    COMBINATORS,
    can_define,
    check_allowed,
    flatten_root_combinators,
    flatten_tools,
    is_search,
    schema_of,
    search_members,
    take_allowed_names,
)
from weft.errors import Refused
from weft.model import (
    SYSTEM_ROLES,
    Block,
    File,
    Form,
    Image,
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
    is_system,
    texts,
)

from .blocks import CHECKS, Writer, decode_common, decode_content, part_name, write_common
from .cache import (
    has_marks,
    limit_marks,
    place_marks,
)
from .fields import FIELDS, decode_params, encode_params, make_enforceable
from .wire import DECODED_MEMBERS, MAX_MARKS, PROTOCOL

WEB_SEARCH: JsonObject = {"type": "web_search_20250305", "name": "web_search"}
SEARCH_MEMBERS = frozenset({"allowed_domains", "blocked_domains", "user_location"})


def write_tool(tool: Tool, number: int, losses: Losses) -> JsonObject | None:
    """A tool definition; `None` if the protocol does not support this kind of tool."""
    if tool.raw is not None and PROTOCOL in tool.raw:
        return dict(tool.raw[PROTOCOL])
    if is_search(tool):
        return {**WEB_SEARCH, **search_members(tool, number, SEARCH_MEMBERS, losses)}
    if not can_define(tool, number, losses):
        return None
    report_tool_members(tool, number, losses)
    body: JsonObject = {"name": tool.name}
    if tool.description is not None:
        body["description"] = tool.description
    schema = schema_of(tool, number, losses)
    body["input_schema"] = flatten_root_combinators(schema, tool, number, COMBINATORS, losses)
    if tool.strict:
        path = schema_path(tool, number, losses)
        body["input_schema"] = make_enforceable(body["input_schema"], path, losses)
    if tool.strict is not None:
        body["strict"] = tool.strict
    return body


MESSAGE = frozenset({"role", "content"})
"""The members of a message that have a field in the model. All others go into `ext`."""

RULES = Rules(
    protocol=PROTOCOL,
    roles=frozenset({"user", "assistant"}),
    inline_system="placed",
    checks=CHECKS,
    has_system_field=True,
    needs_user_first=True,
    allows_empty_text=False,
    allows_trailing_space=False,
)


def decode_request(
    body: JsonObject, model: str | None = None, known: Sequence[Message] = ()
) -> Request:
    """Decode a request body; raises `Refused` with the path of an invalid member.

    `known` are the first messages, if they were decoded before. They must have no cache marks.
    """
    marks: dict[Position, Any] = {}
    messages: list[Message] = []
    if "system" in body:
        blocks, form = decode_content(body, "system", marks, 0)
        messages.append(Message("system", blocks, form=form))
    offset = len(messages)
    raws = objects(body.get("messages"), "messages")
    messages += known
    messages += _decode_messages(raws, len(known), offset, marks)
    params, unmapped = decode_params(body)
    tools = _decode_tools(body, marks, unmapped)
    raw = {key: value for key, value in body.items() if key not in DECODED_MEMBERS}
    if "tools" in body and not tools:
        raw["tools"] = unmapped["tools"] = body["tools"]  # empty, or null
    inline_count = sum(1 for _ in takewhile(is_system, messages[offset:]))
    if inline_count:
        raw[INLINE] = inline_count
    if "cache_control" in body:
        marks[()] = body["cache_control"]
    return Request(
        model=text_of(body, "model") if model is None else model,
        messages=tuple(messages),
        tools=tools,
        params=params,
        marks=marks,
        raw={PROTOCOL: raw},
        rest=unmapped,
        wire=Wire(PROTOCOL, _locator(body), part_name),
    )


def _decode_messages(
    raws: list[JsonObject], start: int, offset: int, marks: dict[Position, Any]
) -> list[Message]:
    """The messages from number `start` on. `offset` is 1 if the request also has a `system`, whose
    message comes first."""
    messages: list[Message] = []
    for number, raw in enumerate(raws[start:], start):
        role, content, size = raw.get("role"), raw.get("content"), len(raw)
        if size == 2 and type(role) is str:  # nearly all messages
            if type(content) is str and content:
                messages.append(Message(role, (Text(content),), None, None, "text"))
                continue
            if type(content) is list:
                common = decode_common(cast("list[JsonObject]", content))
                if common is not None:
                    messages.append(Message(role, common, None, None, "list"))
                    continue
        try:
            role = text_of(raw, "role")
            blocks, form = decode_content(raw, "content", marks, number + offset)
        except Refused as error:
            raise with_prefix(f"messages[{number}]", error) from None
        ext = None if size == 2 and form != "absent" else unknown_members(raw, MESSAGE, PROTOCOL)
        messages.append(Message(role, blocks, None, None, form, ext))
    return messages


def _decode_tools(
    body: JsonObject, marks: dict[Position, Any], unmapped: dict[str, Any]
) -> tuple[Tool, ...]:
    raws = body.get("tools")
    if raws is None:
        return ()
    tools: list[Tool] = []
    for number, raw in enumerate(objects(raws, "tools")):
        if "cache_control" in raw:
            marks["tools", number] = raw["cache_control"]
        kind = raw.get("type")
        if kind == "custom":
            unmapped[f"tools[{number}].type"] = None  # the default type
        with path_prefix(f"tools[{number}]"):
            name = text_of(raw, "name") if "name" in raw or kind is None else str(kind)
            description = optional(raw, "description", str)
            strict = optional(raw, "strict", bool)
            schema = object_of(raw, "input_schema")
        tools.append(
            Tool(
                name,
                description,
                schema,
                strict,
                "function" if kind in (None, "custom") else str(kind),
                {PROTOCOL: {key: value for key, value in raw.items() if key != "cache_control"}},
            )
        )
    return tuple(tools)


def _locator(body: JsonObject) -> Any:
    """A function that converts a position to a path in the caller's body."""
    offset = 1 if "system" in body else 0
    messages: list[JsonObject] = body["messages"]

    def locate(position: Position) -> str:
        # A shortcut: long conversations report hundreds of losses, nearly all about a block.
        if len(position) == 2:
            number, index = position
            if type(number) is int and number >= offset:
                number -= offset
                if type(messages[number].get("content")) is list:
                    return f"messages[{number}].content[{index}]"
                return f"messages[{number}].content"
        match position:
            case (int(number), *steps):
                return _message_path(body, number, steps, offset)
            case ():
                return "cache_control"
            case ("tools", int(number)):
                return f"tools[{number}]"
            case ("params", str(name)):
                return FIELDS.path(name)
            case _:
                return ""

    return locate


def _message_path(body: JsonObject, number: int, steps: list[int | str], offset: int) -> str:
    holder = "system" if number < offset else f"messages[{number - offset}]"
    content: Any = body.get("system")
    if number >= offset and steps:
        content = body["messages"][number - offset].get("content")
        holder += ".content"
    path = holder
    for step in steps if isinstance(content, list) else ():
        path += f"[{step}]" if path == holder else f".content[{step}]"
    return path


def encode_request(request: Request, target: Target) -> Encoded:
    """The body for Anthropic, and the losses."""
    losses = Losses(request)
    native = PROTOCOL in request.raw
    renamed_tools: RenamedTools = {}
    allowed: tuple[str, ...] = ()
    if not native:
        request, renamed_tools = flatten_tools(request, losses, custom=False, namespaces=False)
        request, allowed = take_allowed_names(request, losses)
    arranged = arrange(request, RULES, target.model, target.system, losses, target.enforce)
    if native and (target.system == "inline" or (target.system == "auto" and not target.enforce)):
        arranged = _restore_inline_system(arranged, request.raw[PROTOCOL].get(INLINE, 0))
    writer = Writer(target, losses, native, request)
    marks = request.marks
    body: JsonObject = {"model": request.model}
    tools = _write_tools(request, marks, allowed, losses)
    body.update(encode_params(request, target, tools, losses))
    system = _write_system(arranged, writer, target, marks, native)
    if system is not None:
        body["system"] = system
    if tools:
        body["tools"] = tools
    body["messages"] = _write_turns(arranged.turns, writer, marks)
    if not native and not body["messages"]:
        report_system_only(request, losses)
    if () in marks:
        body["cache_control"] = marks[()]
    if target.cache == "auto" and not has_marks(body):
        place_marks(body)
    elif len(marks) + sum("cache_control" in tool for tool in tools) > MAX_MARKS:
        # Counted before the body is searched for them: nearly all requests are within the limit.
        limit_marks(body, losses)
    return Encoded(body, losses.items, renamed_tools)


def _restore_inline_system(arranged: Arranged, count: int) -> Arranged:
    """Move the last `count` leading system messages back into the list: the caller had them
    there."""
    split = len(arranged.system) - count
    if not count or split < 0:
        return arranged
    return Arranged(arranged.system[:split], arranged.system[split:] + arranged.turns)


def _write_system(
    arranged: Arranged, writer: Writer, target: Target, marks: Mapping[Position, Any], native: bool
) -> Any:
    if target.system == "merge":
        return join_system_text(turn.message for turn in arranged.system)
    turns = arranged.system
    if native and len(turns) == 1 and turns[0].message.form != "list":
        message = turns[0].message
        return None if message.form == "null" else message.text
    if not native:
        _report_system_form(turns, writer.losses)
    keeps_empty = native and len(turns) == 1
    blocks = [
        _with_mark(writer.block(block, position), position, marks)
        for turn in turns
        for block, position in zip(turn.blocks, turn.positions, strict=True)
        if keeps_empty or not isinstance(block, Text) or block.text
    ]
    return blocks if blocks or (native and turns) else None


def _report_system_form(turns: Sequence[Turn], losses: Losses) -> None:
    """Report what system messages lose when they become one list of blocks."""
    for turn in turns:
        if not turn.message.text:
            losses.add(turn.position, "empty_message_dropped", turn.role)
        elif turn.message.form == "text":
            losses.add(turn.position, "string_as_list")
        elif Text("") in turn.blocks:
            losses.add(turn.position, "empty_text_dropped")
        if turn.message.role != "system":
            losses.add(turn.position, "role_changed", f"{turn.message.role} -> system")
    for turn in turns[1:]:
        losses.add(turn.position, "message_boundary_dropped")


def _write_turns(
    turns: Sequence[Turn], writer: Writer, marks: Mapping[Position, Any]
) -> list[JsonObject]:
    messages: list[JsonObject] = []
    marked_messages = {position[0] for position in marks if position}
    embed, native = writer.embed, writer.native
    for turn in turns:
        message, blocks = turn.message, turn.blocks
        is_unusual = not blocks or message.ext is not None or message.role in SYSTEM_ROLES
        if is_unusual or (marked_messages and _has_marks(turn, marked_messages)):
            messages.append(_write_turn(turn, writer, marks))
            continue
        first = blocks[0]
        if type(first) is Text and len(blocks) == 1 and message.form != "list" and not first.ext:
            content: Any = first.text
        else:
            content = write_common(blocks, embed, native)
            if content is None:
                pairs = zip(blocks, turn.positions, strict=True)
                content = [writer.block(block, position) for block, position in pairs]
        messages.append({"role": "user" if turn.role == "tool" else turn.role, "content": content})
    return messages


def _has_marks(turn: Turn, marked_messages: set[int | str]) -> bool:
    """Whether a turn has a block of a message that has a cache mark."""
    if turn.stored_positions is None:
        return turn.number in marked_messages
    return any(position[0] in marked_messages for position in turn.stored_positions)


def _write_turn(turn: Turn, writer: Writer, marks: Mapping[Position, Any]) -> JsonObject:
    message = turn.message
    is_inline_system = message.role in SYSTEM_ROLES and turn.role != "user"
    role = "user" if turn.role == "tool" else turn.role
    body: JsonObject = {"role": "system" if is_inline_system else role}
    form = message.form
    if is_inline_system and not writer.native:
        if message.role != "system":
            writer.losses.add(turn.position, "role_changed", f"{message.role} -> system")
        if turn.blocks:
            if form == "text":
                writer.losses.add(turn.position, "string_as_list")
            form = "list"
    if len(turn.blocks) != len(message.blocks) and form == "text":
        form = ""
    if form == "null" and not turn.blocks:
        body["content"] = None
    elif form != "absent" or turn.blocks:
        body["content"] = _write_content(turn, form, writer, marks)
    if message.ext is not None:
        body.update(message.ext.get(PROTOCOL, ()))
    return body


def _write_content(turn: Turn, form: Form, writer: Writer, marks: Mapping[Position, Any]) -> Any:
    blocks = turn.blocks
    if form in ("text", "") and len(blocks) <= 1:
        if not blocks:
            return ""
        if type(blocks[0]) is Text and not blocks[0].ext and turn.positions[0] not in marks:
            return blocks[0].text
    return [
        _with_mark(writer.block(block, position), position, marks)
        for block, position in zip(blocks, turn.positions, strict=True)
    ]


def _with_mark(body: JsonObject, position: Position, marks: Mapping[Position, Any]) -> JsonObject:
    if position in marks:
        body["cache_control"] = marks[position]
    content = body.get("content")
    if isinstance(content, list):
        for number, part in enumerate(cast(list[JsonObject], content)):
            if (*position, number) in marks:
                part["cache_control"] = marks[*position, number]
    return body


def _write_tools(
    request: Request, marks: Mapping[Position, Any], allowed: tuple[str, ...], losses: Losses
) -> list[JsonObject]:
    tools: list[JsonObject] = []
    for number, tool in enumerate(request.tools):
        if not check_allowed(tool, number, allowed, losses):
            continue
        body = write_tool(tool, number, losses)
        if body is None:
            continue
        if ("tools", number) in marks:
            body["cache_control"] = marks["tools", number]
        tools.append(body)
    return tools


def write_message(message: Message) -> JsonObject:
    """One message without a request."""
    blocks = list(message.blocks)
    turn = Turn(message.role, message, blocks, 0)
    return _write_turn(turn, Writer(None, Losses(), native=False), {})


def write_messages(messages: Sequence[Message]) -> JsonObject:
    """`system` and `messages`: all system texts joined by a blank line, or `None`."""
    system: list[str] = []
    bodies: list[JsonObject] = []
    for message in with_paired_results(messages):
        if is_system(message):
            blocks = plain_blocks(message.blocks)
            system.append("\n".join(b.text for b in blocks if isinstance(b, Text) and b.text))
            continue
        body = write_plain_message(message)
        # The API refuses an empty message: an assistant's is left out, a user's gets a text.
        if body["content"] or body["role"] != "assistant":
            bodies.append({**body, "content": body["content"] or EMPTY_MESSAGE_TEXT})
    return {"system": "\n\n".join(filter(None, system)) or None, "messages": bodies}


def write_plain_message(message: Message) -> JsonObject:
    """One message of `write_messages`; its content may be empty."""
    is_native = message.origin is not None and message.origin.protocol == PROTOCOL
    writer = Writer(None, Losses(), native=True)
    blocks = [*_supported_blocks(message.blocks, is_native)]
    return plain_message(message, writer.content(blocks, "text", ()))


def _supported_blocks(blocks: Iterable[Block], is_native: bool) -> Iterator[Block]:
    """The blocks that Anthropic accepts. Thinking must be signed and come from Claude."""
    for block in plain_blocks(blocks):
        match block:
            case Text(text=text) if not text.strip():
                pass
            case Thinking(signature=signature) if not (is_native and signature):
                pass
            case Redacted() if not is_native:
                pass
            case Opaque(protocol=protocol) if protocol != PROTOCOL:
                pass
            case File(source=source, name=name):
                yield File(source, name or None)
            case ToolResult(content=content):
                supported = tuple(_supported_blocks(content, is_native))
                yield structs.replace(block, content=supported, form="text")
            case Text() | Thinking() | Redacted() | Opaque() | Image() | ToolCall():
                yield block
            case _:
                pass


@checked_function
def build_anthropic_system_param(
    system: str | None, messages: Iterable[Message | JsonObject]
) -> str | None:
    """Join `system` and the text of every system message; `None` if there is no text."""
    parts = [system] if system else []
    for number, item in enumerate(messages):
        with path_prefix(f"messages[{number}]"):
            message = _as_message(item)
            text = _system_text(message) if is_system(message) else ""
        if text:
            parts.append(text)
    return "\n\n".join(parts) if parts else None


@checked_function
def encode_message(message: Message | JsonObject) -> JsonObject:
    """Encode one message for Anthropic; raises `Refused` for a system message."""
    message = _as_message(message)
    if is_system(message):
        raise Refused("a system message must be extracted before it is encoded", param="role")
    return write_message(message)


def _system_text(message: Message) -> str:
    """The text of one system message; raises `Refused` if it contains anything else."""
    for number, block in enumerate(message.blocks):
        if not isinstance(block, SYSTEM_TEXT):
            refuse_system_block(block, message.role, f"content[{number}]", part_name)
    return "\n".join(text for text in texts(message.blocks) if text)


def _as_message(message: Message | JsonObject) -> Message:
    """The message as a model value. Anthropic and OpenAI agree on the plain dict form."""
    if isinstance(message, Message):
        return message
    blocks, form = decode_content(message, "content")
    return Message(text_of(message, "role"), blocks, form=form)
