"""Requests to and from Chat Completions: https://platform.openai.com/docs/api-reference/chat/create

Every message keeps its position, including system and developer messages.

`write_messages` writes only a thread's messages, for a request that the caller builds: see
`codec.outgoing`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

from msgspec import structs

from weft.catalog import Model
from weft.codec.base import Encoded, Losses, RenamedTools, Target, as_object
from weft.codec.outgoing import (
    blocks_of,
    plain_blocks,
    plain_call,
    plain_message,
    without_empty_texts,
)
from weft.codec.pairing import turn_of, with_paired_results
from weft.codec.read import object_of, objects, optional, path_prefix, text_of, with_prefix, wrong
from weft.codec.repair import Turn, arrange, drop_unsupported, join_system_text
from weft.codec.reports import report_tool_members
from weft.codec.tools import (
    SEARCH_OPTIONS,
    can_define,
    check_allowed,
    flatten_tools,
    format_of,
    grammar_of,
    schema_of,
    take_allowed_names,
    with_properties,
)
from weft.errors import Refused
from weft.model import (
    SYSTEM_ROLES,
    Audio,
    Block,
    File,
    FileRef,
    Image,
    Inline,
    JsonObject,
    Message,
    Opaque,
    Position,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    Url,
    Wire,
    is_system,
    texts,
)

from .blocks import CACHE_BREAKPOINT, CACHE_CONTROL, part_name, write_content
from .fields import FIELDS, decode_params, encode_params
from .messages import (
    RULES,
    Writer,
    decode_common,
    decode_message,
    find_blocks,
    write_call,
    write_common,
    write_message,
)
from .wire import (
    DECODED_MEMBERS,
    INVALID_PARTICIPANT_NAME_CHARACTER,
    MAX_PARTICIPANT_NAME_LENGTH,
    PROTOCOL,
)


def decode_tools(body: JsonObject, marks: dict[Position, Any]) -> tuple[Tool, ...]:
    """The tools of a body: https://platform.openai.com/docs/guides/function-calling

    The deprecated `functions` become tools too. They are written back as `functions`. The cache
    marks of tools are added to `marks`.
    """
    tools: list[Tool] = []
    for number, raw in enumerate(objects(body.get("tools") or [], "tools")):
        if "cache_control" in raw:
            marks["tools", number] = raw["cache_control"]
        with path_prefix(f"tools[{number}]"):
            tools.append(_decode_tool(raw))
    for number, raw in enumerate(objects(body.get("functions") or [], "functions")):
        with path_prefix(f"functions[{number}]"):
            tools.append(_decode_function(raw, raw))
    options = object_of(body, SEARCH_OPTIONS)
    if options is not None:
        definition = {SEARCH_OPTIONS: options}
        tools.append(Tool("web_search", kind="web_search", raw={PROTOCOL: definition}))
    return tuple(tools)


def _search_options(tools: Sequence[Tool]) -> JsonObject | None:
    """The options of the web search among the tools, if they were a request of this protocol."""
    definitions = ((tool.raw or {}).get(PROTOCOL, {}) for tool in tools)
    return next((raw[SEARCH_OPTIONS] for raw in definitions if SEARCH_OPTIONS in raw), None)


def _decode_tool(raw: JsonObject) -> Tool:
    definition = {key: value for key, value in raw.items() if key != "cache_control"}
    optional(raw, "type", str)  # refuses a type that is not a string
    function, custom = as_object(raw.get("function")), as_object(raw.get("custom"))
    if function is not None:
        with path_prefix("function"):
            return _decode_function(function, definition)
    if custom is not None:
        with path_prefix("custom"):
            name, description = text_of(custom, "name"), optional(custom, "description", str)
        return Tool(name, description, kind="custom", raw={PROTOCOL: definition})
    kind = text_of(raw, "type")
    if kind in ("function", "custom"):
        raise wrong(kind, raw.get(kind), "an object")
    return Tool(kind, kind=kind, raw={PROTOCOL: definition})


def _decode_function(function: JsonObject, raw: JsonObject) -> Tool:
    return Tool(
        text_of(function, "name"),
        optional(function, "description", str),
        object_of(function, "parameters"),
        optional(function, "strict", bool),
        raw={PROTOCOL: raw},
    )


def write_tools(
    request: Request, allowed: tuple[str, ...], losses: Losses
) -> list[JsonObject] | None:
    """The `tools` member, or `None` if there is none. An empty `allowed` offers every tool."""
    original = request.raw.get(PROTOCOL)
    if original is not None:
        if "tools" in original:
            return original["tools"]  # `decode_request` keeps it there only if it is empty or null
        function_count = len(original.get("functions") or ())
        tools = [tool for tool in request.tools if _search_options((tool,)) is None]
        tools = tools[: len(tools) - function_count]
    else:
        tools = request.tools
    written: list[JsonObject] = []
    for number, tool in enumerate(tools):
        if not check_allowed(tool, number, allowed, losses):
            continue
        body = _write_tool(tool, number, losses)
        if body is None:
            continue
        if original is not None and ("tools", number) in request.marks:
            body["cache_control"] = request.marks["tools", number]
        written.append(body)
    return written or None


def _write_tool(tool: Tool, number: int, losses: Losses) -> JsonObject | None:
    if _search_options((tool,)) is not None:
        return None
    if tool.raw is not None and PROTOCOL in tool.raw:
        definition = dict(tool.raw[PROTOCOL])
        # A definition with a `name` at its top is one of the deprecated `functions`.
        return {"type": "function", "function": definition} if "name" in definition else definition
    if not can_define(tool, number, losses):
        return None
    report_tool_members(tool, number, losses)
    fields: JsonObject = {"name": tool.name}
    if tool.description is not None:
        fields["description"] = tool.description
    if tool.kind == "custom":
        input_format = _custom_format(tool)
        if input_format is not None:
            fields["format"] = input_format
        return {"type": "custom", "custom": fields}
    if tool.parameters is not None:
        schema = schema_of(tool, number, losses)
        fields["parameters"] = with_properties(schema, tool, number, losses)
    if tool.strict is not None:
        fields["strict"] = tool.strict
    return {"type": "function", "function": fields}


def _custom_format(tool: Tool) -> JsonObject | None:
    """The format of a custom tool's input. Responses writes a grammar flat, Chat nests it."""
    grammar = grammar_of(tool)
    if grammar is None:
        return format_of(tool)
    nested = {key: value for key, value in grammar.items() if key != "type"}
    return {"type": "grammar", "grammar": nested}


def decode_request(body: JsonObject, model: str | None = None) -> Request:
    """Decode a request body; raises `Refused` with the path of an invalid member."""
    marks: dict[Position, Any] = {}
    params, unmapped = decode_params(body)
    raws = objects(body.get("messages"), "messages")
    messages = _decode_messages(raws, marks, unmapped)
    tools = decode_tools(body, marks)
    raw = {key: value for key, value in body.items() if key not in DECODED_MEMBERS}
    if body.get("tools"):
        del raw["tools"]
    return Request(
        model=text_of(body, "model") if model is None else model,
        messages=messages,
        tools=tools,
        params=params,
        marks=marks,
        raw={PROTOCOL: raw},
        rest=unmapped,
        wire=Wire(PROTOCOL, _locator(body, raws), part_name),
    )


def _decode_messages(
    raws: list[JsonObject], marks: dict[Position, Any], unmapped: dict[str, Any]
) -> tuple[Message, ...]:
    """The messages. Their cache marks are added to `marks`, and the paths of members that only this
    protocol has to `unmapped`."""
    messages: list[Message] = []
    function_call_number = 0  # the message with the last deprecated function call
    for number, raw in enumerate(raws):
        common = decode_common(raw)
        if common is not None:
            messages.append(common)
            has_string = common.form == "text" and type(common.blocks[0]) is not ToolCall
            if common.role == "assistant" and not has_string:
                _add_unmapped_form(raw, number, unmapped)
            continue
        if raw.get("function_call"):
            function_call_number = number
        is_function = raw.get("role") == "function"  # the result of that call, with the same id
        try:
            message = decode_message(raw, function_call_number if is_function else number)
        except Refused as error:
            raise with_prefix(f"messages[{number}]", error) from None
        messages.append(message)
        if message.role == "assistant":
            _add_unmapped_form(raw, number, unmapped)
        content = raw.get("content")
        if type(content) is list:
            _collect_marks(content, message, number, marks, unmapped)  # pyright: ignore[reportUnknownArgumentType] - parts, as just read
    return tuple(messages)


def _add_unmapped_form(raw: JsonObject, number: int, unmapped: dict[str, Any]) -> None:
    """Add the `content` of an assistant message to `unmapped` if other protocols lose its form: it
    is absent, an empty string or list, or a list of one text beside calls.

    The value is `None`, because nothing but the form is lost.
    """
    content = raw.get("content")
    is_empty = not content and (content is not None or "content" not in raw)
    is_single = isinstance(content, list) and len(cast(Any, content)) == 1
    if is_empty or (is_single and raw.get("tool_calls")):
        unmapped[f"messages[{number}].content"] = None


def _collect_marks(
    content: list[JsonObject],
    message: Message,
    number: int,
    marks: dict[Position, Any],
    unmapped: dict[str, Any],
) -> None:
    """Add the cache marks of the parts to `marks`. OpenAI's own kind is also added to `unmapped`,
    because no other protocol has it."""
    for index, part in enumerate(content):
        if CACHE_CONTROL not in part and CACHE_BREAKPOINT not in part:
            continue
        position = _part_position(message, number, index)
        if CACHE_CONTROL in part:
            marks[position] = part[CACHE_CONTROL]
        if CACHE_BREAKPOINT in part:
            mark = part[CACHE_BREAKPOINT]
            marks[*position, CACHE_BREAKPOINT] = mark
            unmapped[f"messages[{number}].content[{index}].{CACHE_BREAKPOINT}"] = mark


def _part_position(message: Message, number: int, index: int) -> Position:
    """The position of a content part's block. A thinking block comes before the content."""
    first = message.blocks[0]
    if isinstance(first, ToolResult):
        return number, 0, index
    return number, index + isinstance(first, Thinking)


def _locator(body: JsonObject, raws: list[JsonObject]) -> Callable[[Position], str]:
    """A function that converts a position to a path in the caller's body."""
    assistant_paths: dict[int, list[str]] = {}

    def block_paths(number: int) -> list[str]:
        """The paths of the blocks of an assistant message; computed when a loss is reported."""
        if number not in assistant_paths:
            blocks = find_blocks(raws[number], number, set())
            assistant_paths[number] = [path for path, _ in blocks]
        return assistant_paths[number]

    def locate(position: Position) -> str:
        match position:
            case ("tools", int(number)):
                others = (*(body.get("tools") or ()), *(body.get("functions") or ()))
                is_search = SEARCH_OPTIONS in body and number == len(others)
                return SEARCH_OPTIONS if is_search else f"tools[{number}]"
            case ("params", str(name)):
                return FIELDS.path(name, body)
            case (int(number),):
                return f"messages[{number}]"
            case (int(number), int(block), *deeper):
                raw, path = raws[number], f"messages[{number}]"
                content = raw.get("content")
                if raw.get("role") == "assistant":
                    paths = block_paths(number)
                    if block >= len(paths):
                        return path
                    if deeper != ["arguments"]:
                        return f"{path}.{paths[block]}"
                    inner = "" if paths[block] == "function_call" else ".function"
                    return f"{path}.{paths[block]}{inner}.arguments"
                if raw.get("role") in ("tool", "function"):
                    if not deeper:
                        return path
                    block = cast(int, deeper[0])
                return (
                    f"{path}.content[{block}]" if isinstance(content, list) else f"{path}.content"
                )
            case _:
                return ""

    return locate


def encode_request(request: Request, target: Target) -> Encoded:
    """The body for Chat Completions, and the losses."""
    losses = Losses(request)
    renamed_tools: RenamedTools = {}
    allowed: tuple[str, ...] = ()
    if PROTOCOL not in request.raw:
        # Servers without custom tools have no `allowed_tools` either: OpenAI added both at once.
        has_custom = target.model.custom_tools
        request, renamed_tools = flatten_tools(request, losses, custom=has_custom, namespaces=False)
        request = _with_valid_names(request, losses)
        if not has_custom:
            request, allowed = take_allowed_names(request, losses)
    tools = write_tools(request, allowed, losses)
    body: JsonObject = {"model": request.model}
    body.update(encode_params(request, target, tools or [], losses))
    if tools is not None or "tools" in request.raw.get(PROTOCOL, ()):
        body["tools"] = tools
    options = _search_options(request.tools)
    if options is not None:
        body[SEARCH_OPTIONS] = options
    body["messages"] = _write_messages(request, target, losses)
    return Encoded(body, losses.items, renamed_tools)


def _with_valid_names(request: Request, losses: Losses) -> Request:
    """The request with names of participants that OpenAI accepts; an empty name is left out."""
    changed: dict[int, Message] = {}
    for number, message in enumerate(request.messages):
        name = message.name
        if name is None:
            continue
        limit = MAX_PARTICIPANT_NAME_LENGTH
        valid = INVALID_PARTICIPANT_NAME_CHARACTER.sub("_", name)[:limit] or None
        if valid == name:
            continue
        losses.add(
            f"{losses.path((number,))}.name",
            "participant_name_changed",
            f"{name[:limit]} -> {valid or ''}",
        )
        changed[number] = structs.replace(message, name=valid)
    if not changed:
        return request
    messages = tuple(changed.get(n, message) for n, message in enumerate(request.messages))
    return structs.replace(request, messages=messages)


def _write_messages(request: Request, target: Target, losses: Losses) -> list[JsonObject]:
    if request.wire is not None and request.wire.protocol == PROTOCOL:
        return _write_native_messages(request, target, losses)
    for position in request.marks:
        losses.add(position, "cache_breakpoint_dropped")
    turns = arrange(request, RULES, target.model, target.system, losses).turns
    messages: list[JsonObject] = []
    if target.system == "merge":
        turns = _merge_system(turns, messages)
    writer = Writer(request, losses)
    for turn in turns:
        written = write_common(turn, losses)
        if written is None:
            written = writer.write_turn(turn)
            if is_system(turn.message):
                for body in written:
                    _adapt_system(body, turn.position, target.model, losses)
        messages += written
    return messages


def _write_native_messages(request: Request, target: Target, losses: Losses) -> list[JsonObject]:
    """The messages of this protocol's own body. Two things may change them:

    - the policy for system messages, unless it is `auto` or `inline`;
    - the adaptation to older servers, if the target's rules are enforced.
    """
    written = [
        [write_message(message)]
        if _is_own(message)
        else _write_other_message(message, number, request, losses)
        for number, message in enumerate(request.messages)
    ]
    _add_marks(request, written)
    messages: list[JsonObject] = []
    numbers: Iterable[int] = range(len(written))
    if target.system not in ("auto", "inline"):
        turns = arrange(request, RULES, target.model, target.system, losses).turns
        if target.system == "merge":
            turns = _merge_system(turns, messages)
        for turn in turns:
            if turn.role != turn.message.role:
                for body in written[turn.number]:
                    body["role"] = turn.role
        numbers = [turn.number for turn in turns]
    for number in numbers:
        for body in written[number]:
            if target.enforce:
                _adapt_system(body, (number,), target.model, losses)
            messages.append(body)
    return messages


def _is_own(message: Message) -> bool:
    """Whether a message was decoded from this protocol, so that `write_message` restores it.

    An exported file has other messages too, if a thread was continued after its import. A decoded
    message has a form, and a decoded result also has a message of its own.
    """
    if message.origin is not None and message.origin.protocol != PROTOCOL:
        return False
    blocks = message.blocks
    if len(blocks) > 1:
        return message.form != "" and not any(type(block) is ToolResult for block in blocks)
    if blocks and type(blocks[0]) is ToolResult:
        return blocks[0].form != ""
    return message.form != ""


def _write_other_message(
    message: Message, number: int, request: Request, losses: Losses
) -> list[JsonObject]:
    """The messages for a message that was not decoded from this protocol."""
    turn = turn_of(number, message)
    drop_unsupported(turn, request, RULES, losses)
    return Writer(request, losses).write_turn(turn)


def _adapt_system(body: JsonObject, position: Position, model: Model, losses: Losses) -> None:
    """Adapt a system message to servers without the role `developer`, or without lists of parts in
    system messages."""
    if body.get("role") == "developer" and model.developer is False:
        body["role"] = "system"
        losses.add(position, "role_changed", "developer -> system")
    content: Any = body.get("content")
    if model.system_parts is not False or body.get("role") not in SYSTEM_ROLES:
        return
    if isinstance(content, list) and content and all(map(_is_plain_text, cast(Any, content))):
        parts = [part["text"] for part in cast("list[JsonObject]", content)]
        body["content"] = "\n".join(parts)
        losses.add(position, "text_boundary_dropped", "text parts")


def _is_plain_text(part: JsonObject) -> bool:
    return part.keys() == {"type", "text"} and part["type"] == "text"


def _merge_system(turns: list[Turn], messages: list[JsonObject]) -> list[Turn]:
    """Add all system text as one leading message; returns the other turns."""
    system = [turn.message for turn in turns if is_system(turn.message)]
    text = join_system_text(system)
    if text is not None:
        messages.append({"role": "system", "content": text})
    return [turn for turn in turns if not is_system(turn.message)]


def _add_marks(request: Request, written: list[list[JsonObject]]) -> None:
    """Add the cache marks to the parts that they were set on; the reverse of `_part_position`.

    `written` has the bodies of each message. A message with marks is of this protocol and has one.
    """
    for position, mark in request.marks.items():
        if not isinstance(position[0], int):
            continue
        key = CACHE_BREAKPOINT if position[-1] == CACHE_BREAKPOINT else CACHE_CONTROL
        steps = [step for step in position[1:] if isinstance(step, int)]
        message = request.messages[position[0]]
        index = steps[-1]
        if len(steps) == 1 and isinstance(message.blocks[0], Thinking):
            index -= 1
        content = written[position[0]][0].get("content")
        if isinstance(content, list):
            content[index][key] = mark


def write_messages(messages: Sequence[Message]) -> list[JsonObject]:
    """The list `messages`. System messages keep their positions."""
    return [body for message in with_paired_results(messages) for body in _bodies(message)]


def _bodies(message: Message) -> Iterator[JsonObject]:
    """The `tool` messages for the results of a message, and one message for its other blocks."""
    results, calls = blocks_of(message, ToolResult), blocks_of(message, ToolCall)
    for result in results:
        content = "\n".join(texts(result.content))
        yield {"role": "tool", "tool_call_id": result.call_id, "content": content}
    # A `tool` message contains only text, so the media of results goes into the next message.
    media = [b for r in results for b in r.content if isinstance(b, Image | File | Audio)]
    content: Any = write_content(
        without_empty_texts([*_supported_blocks((*message.blocks, *media))]), "text"
    )
    if content or calls or not results:
        body = plain_message(message, None if calls and not content else content)
        if calls:
            body["tool_calls"] = [write_call(plain_call(call)) for call in calls]
        yield body


def _supported_blocks(blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks that can be content parts here."""
    for block in plain_blocks(blocks):
        match block:
            case Image(source=source):
                # An image has no member for a file id, so the id is written as its URL.
                yield Image(Url(source.id) if isinstance(source, FileRef) else source)
            case File(source=Inline() as source, name=name):
                yield File(source, name or "file")
            case File(source=FileRef() as source):
                yield File(source)
            case Text() | Audio(source=Inline()):
                yield block
            case Opaque(protocol=protocol) if protocol == PROTOCOL:
                yield block
            case _:
                pass
