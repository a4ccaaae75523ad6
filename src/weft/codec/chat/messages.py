"""Decodes and writes messages: https://platform.openai.com/docs/api-reference/chat/create#messages

An assistant message spreads one turn over several members. They are read in the order in which a
model produces them: thinking, content, refusal, calls, audio. If it is not clear from a block which
member it came from, its `ext` has the name of that member, under the key `SOURCE_MEMBER`.

The deprecated `functions` API allowed one call per turn, in `function_call`, without an id. The
role `function` was for its result. Such a call gets an id from the number of its message.

A message of this protocol is written back member by member. A turn of another protocol may become
several messages: each tool result becomes a `tool` message. Images and documents of results, which
a `tool` message cannot contain, follow in a `user` message that names the calls they belong to.

`decode_common` and `write_common` are shortcuts for the most frequent kinds of messages. They give
the same result as the other functions in a fraction of the time, and `None` for other messages.
They are used for requests that `fast_path.py` does not translate as a whole.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, cast

from msgspec import structs

from weft.codec.base import Losses, as_object, check_opaque
from weft.codec.calls import fitting_id, report_empty_arguments, report_new_id
from weft.codec.media import plain_text, report_type, with_default_name
from weft.codec.pairing import NO_RESULT, Turn
from weft.codec.read import objects, text_of, unknown_members, with_prefix, wrong
from weft.codec.repair import (
    Rules,
    decode_texts,
    plain_texts,
    report_dropped_message,
    supported_result_parts,
)
from weft.codec.tools import flat_name
from weft.errors import Refused
from weft.model import (
    SYSTEM_ROLES,
    Audio,
    Block,
    Checkpoint,
    Ext,
    File,
    FileRef,
    Form,
    Image,
    Inline,
    JsonObject,
    Message,
    Opaque,
    Position,
    Redacted,
    Refusal,
    Reminder,
    Request,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    is_system,
)

from .blocks import (
    check_audio,
    check_file,
    check_image,
    check_redacted,
    check_thinking,
    decode_content,
    part_name,
    write_content,
)
from .wire import (
    AUDIO_FORMATS,
    MAX_CALL_ID_LENGTH,
    PROTOCOL,
    REASONING_DETAILS,
    REASONING_SIGNATURE,
    SOURCE_MEMBER,
    THINKING_MEMBERS,
)

BASE_MEMBERS = frozenset({"role", "content"})
"""Members that messages of all roles have."""

AUDIO_CONTENT = frozenset({"data", "expires_at", "transcript"})
"""Members of an answer's audio that later requests leave out, because they refer to its id."""

LocatedBlock = tuple[str, Block]
"""The path of a block inside its message, and the block."""


def decode_message(raw: JsonObject, number: int = 0) -> Message:
    """Decode one message.

    A deprecated function call and its result have no id. They get one from `number`, which is the
    number of the message with the call.
    """
    role = text_of(raw, "role")
    return ROLE_DECODERS.get(role, _decode_any)(raw, role, number)


def _decode_any(raw: JsonObject, role: str, _number: int) -> Message:
    blocks, form = decode_content(raw)
    if raw.keys() <= BASE_MEMBERS:
        return Message(role, blocks, form=form)
    name = raw.get("name")
    known = BASE_MEMBERS | {"name"} if isinstance(name, str) else BASE_MEMBERS
    return Message(
        role,
        blocks,
        name if isinstance(name, str) else None,
        form=form,
        ext=unknown_members(raw, known, PROTOCOL),
    )


def _decode_tool(raw: JsonObject, role: str, _number: int) -> Message:
    content, form = decode_content(raw)
    known = BASE_MEMBERS | {"tool_call_id"}
    name = raw.get("name")
    if isinstance(name, str):
        known |= {"name"}
    result = ToolResult(
        text_of(raw, "tool_call_id"),
        content,
        name=name if isinstance(name, str) else None,
        form=form,
    )
    return Message(role, (result,), ext=unknown_members(raw, known, PROTOCOL))


def _decode_function(raw: JsonObject, role: str, number: int) -> Message:
    """The result of a deprecated function call; `number` is that of the message with the call."""
    content, form = decode_content(raw)
    result = ToolResult(legacy_id(number), content, name=text_of(raw, "name"), form=form)
    unknown = own_members(unknown_members(raw, BASE_MEMBERS | {"name"}, PROTOCOL))
    return Message("tool", (result,), ext={PROTOCOL: {**unknown, "role": role}})


def _decode_assistant(raw: JsonObject, role: str, number: int) -> Message:
    known = set(BASE_MEMBERS)
    name = raw.get("name")
    if isinstance(name, str):
        known.add("name")
    blocks = tuple(block for _, block in find_blocks(raw, number, known))
    content = raw.get("content")
    form = "text" if isinstance(content, str) else "list"
    if content is None:
        form = "null" if "content" in raw else "absent"
    return Message(
        role,
        blocks,
        name if isinstance(name, str) else None,
        form=form,
        ext=unknown_members(raw, known, PROTOCOL),
    )


ROLE_DECODERS = {
    "assistant": _decode_assistant,
    "tool": _decode_tool,
    "function": _decode_function,
}


def find_blocks(raw: JsonObject, number: int, known: set[str]) -> Iterator[LocatedBlock]:
    """The blocks of an assistant's message with their paths; adds the members read to `known`."""
    thinking = _find_thinking(raw, known)
    if thinking is not None:
        yield thinking
    content, form = decode_content(raw)
    for index, block in enumerate(content):
        yield (f"content[{index}]" if form == "list" else "content"), block
    refusal = raw.get("refusal")
    if isinstance(refusal, str) and refusal:
        known.add("refusal")
        yield "refusal", Refusal(refusal, _source_member("refusal") if form == "list" else None)
    calls = raw.get("tool_calls")
    if calls:
        known.add("tool_calls")
        yield from _find_calls(calls)
    legacy = as_object(raw.get("function_call"))
    if legacy is not None and legacy.get("name"):
        known.add("function_call")
        name, arguments = _name_and_text(legacy, "arguments")
        ext = _source_member("function_call")
        yield "function_call", ToolCall(legacy_id(number), name, arguments, ext=ext)
    audio = as_object(raw.get("audio"))
    if audio is not None and audio.get("id"):
        known.add("audio")
        yield "audio", decode_audio_answer(audio)


def _find_calls(calls: Any) -> Iterator[LocatedBlock]:
    for index, call in enumerate(objects(calls, "tool_calls")):
        try:
            yield f"tool_calls[{index}]", decode_call(call)
        except Refused as error:
            raise with_prefix(f"tool_calls[{index}]", error) from None


def _find_thinking(raw: JsonObject, known: set[str]) -> LocatedBlock | None:
    text_member = next((name for name in THINKING_MEMBERS if isinstance(raw.get(name), str)), None)
    signature, details = raw.get(REASONING_SIGNATURE), raw.get(REASONING_DETAILS)
    block_members: JsonObject = {}
    if text_member is not None:
        block_members[SOURCE_MEMBER] = text_member
        known.add(text_member)
    if isinstance(signature, str):
        known.add(REASONING_SIGNATURE)
    else:
        signature = None
    if not isinstance(details, list):
        details = None  # not of the protocol; it stays a member of the message
    if details:
        block_members[REASONING_DETAILS] = details
        known.add(REASONING_DETAILS)
    if text_member is None and signature is None and not details:
        return None
    text = cast(str, raw[text_member]) if text_member is not None else details_text(details)
    path = text_member or (REASONING_SIGNATURE if signature is not None else REASONING_DETAILS)
    return path, Thinking(text, signature, {PROTOCOL: block_members} if block_members else None)


def details_text(details: Any) -> str:
    """The text in `reasoning_details`, for servers that write it nowhere else:
    https://openrouter.ai/docs/use-cases/reasoning-tokens"""
    items = cast("list[Any]", details) if isinstance(details, list) else []
    entries = [as_object(item) or {} for item in items]
    texts = [entry.get("text") or entry.get("summary") for entry in entries]
    return "".join(text for text in texts if isinstance(text, str))


def decode_call(raw: JsonObject) -> ToolCall:
    """Decode a call of a function or of a custom tool."""
    call_type = text_of(raw, "type") if "type" in raw else "function"
    kind, key = ("custom", "input") if call_type == "custom" else ("function", "arguments")
    inner = as_object(raw.get(kind))
    if inner is None:
        raise wrong(kind, raw.get(kind), "an object")
    name, arguments = _name_and_text(inner, key)
    # No other members and a known type: there is nothing to keep in `ext`.
    if len(raw) == 3 and len(inner) == 2 and "type" in raw and call_type == kind:
        return ToolCall(text_of(raw, "id"), name, arguments, custom=kind == "custom")
    ext = {member: value for member, value in raw.items() if member not in ("id", "type", kind)}
    if "type" not in raw:
        ext["type"] = None  # `write_call` leaves it out again
    elif call_type != kind:
        ext["type"] = call_type
    if inner.keys() - {"name", key}:
        ext[kind] = inner
    return ToolCall(
        text_of(raw, "id"),
        name,
        arguments,
        custom=kind == "custom",
        ext={PROTOCOL: ext} if ext else None,
    )


def _name_and_text(raw: JsonObject, key: str) -> tuple[str, str]:
    return text_of(raw, "name"), text_of(raw, key)


def decode_audio_answer(raw: JsonObject) -> Audio:
    """Decode audio of the assistant, to which later requests refer by id."""
    other_members = {key: value for key, value in raw.items() if key != "id"}
    return Audio(FileRef(str(raw["id"])), {PROTOCOL: other_members} if other_members else None)


def legacy_id(number: int) -> str:
    """The id for a deprecated function call, which has none; a turn has at most one such call."""
    return f"function_call_{number}"


def _source_member(name: str) -> Ext:
    """The `ext` of a block that came from this member of its message."""
    return {PROTOCOL: {SOURCE_MEMBER: name}}


def own_members(ext: Ext | None) -> JsonObject:
    """The members in `ext` that belong to this protocol."""
    return ext.get(PROTOCOL, {}) if ext is not None else {}


def write_assistant(blocks: tuple[Block, ...] | list[Block], *, as_list: bool) -> JsonObject:
    """The members of an assistant message with these blocks, without its role.

    With `as_list`, `content` is a list, which may contain refusals too. Without a block for it,
    there is no `content`.
    """
    body: JsonObject = {}
    content: list[Block] = []
    calls: list[JsonObject] = []
    for block in blocks:
        match block:
            case Thinking():
                write_thinking(block, body)
            case ToolCall() if own_members(block.ext).get(SOURCE_MEMBER) == "function_call":
                body["function_call"] = {"name": block.name, "arguments": block.arguments}
            case ToolCall():
                calls.append(write_call(block))
            case Refusal() if not as_list or own_members(block.ext).get(SOURCE_MEMBER) == "refusal":
                body["refusal"] = body.get("refusal", "") + block.text
            case Audio(source=FileRef(id=audio_id)):
                body["audio"] = {"id": audio_id, **own_members(block.ext)}
            case _:
                content.append(block)
    if content:
        body["content"] = write_content(content, "list" if as_list else "text")
    if calls:
        body["tool_calls"] = calls
    return body


def write_thinking(block: Thinking, body: JsonObject) -> None:
    """Add thinking to the member that it came from; the texts of several blocks are joined."""
    fields = own_members(block.ext)
    source_member = fields.get(SOURCE_MEMBER)
    # A block with only a signature or details came from a message without a member for the text.
    text_in_details = details_text(fields.get(REASONING_DETAILS))
    has_own_text = block.text and block.text != text_in_details
    has_text_member = source_member or has_own_text or not (fields or block.signature)
    if has_text_member:
        member = source_member or THINKING_MEMBERS[0]
        body[member] = body.get(member, "") + block.text
    if block.signature is not None:
        body[REASONING_SIGNATURE] = block.signature  # there is one member: the last one wins
    if REASONING_DETAILS in fields:
        body[REASONING_DETAILS] = [*body.get(REASONING_DETAILS, ()), *fields[REASONING_DETAILS]]


def write_call(block: ToolCall) -> JsonObject:
    name = block.name if block.namespace is None else flat_name(block.name, block.namespace)
    kind, key = ("custom", "input") if block.custom else ("function", "arguments")
    body: JsonObject = {"id": block.id, "type": kind, kind: {"name": name, key: block.arguments}}
    if block.ext is not None and PROTOCOL in block.ext:
        body.update(block.ext[PROTOCOL])
        if body["type"] is None:
            del body["type"]
    return body


RULES = Rules(
    protocol=PROTOCOL,
    roles=frozenset({"user", "assistant"}),
    inline_system="native",
    checks={
        Thinking: check_thinking,
        Redacted: check_redacted,
        Opaque: partial(check_opaque, PROTOCOL),
        Image: check_image,
        File: check_file,
        Audio: check_audio,
    },
    allows_names=True,
)

TEXT_BLOCKS = (Text, Refusal, Checkpoint, Reminder)
ASSISTANT_BLOCKS = frozenset({*TEXT_BLOCKS, Thinking, ToolCall, Audio, Opaque})
OTHER_BLOCKS = frozenset({*TEXT_BLOCKS, Image, File, Audio, ToolResult, Opaque})


def write_message(message: Message) -> JsonObject:
    """Write one message of this protocol."""
    body: JsonObject = {"role": message.role}
    blocks, form = message.blocks, message.form
    if len(blocks) == 1 and isinstance(blocks[0], ToolResult):
        result = blocks[0]
        blocks, form = result.content, result.form
        if own_members(message.ext).get("role") != "function":
            body["tool_call_id"] = result.call_id
        if result.name is not None:
            body["name"] = result.name
    elif message.role == "assistant":
        body.update(write_assistant(blocks, as_list=form == "list"))
        blocks = ()  # all are in `body`; if `content` is missing there, it is empty
    if form == "null":
        body["content"] = None
    elif "content" not in body and form != "absent":
        body["content"] = write_content(blocks, form)
    if message.name is not None:
        body["name"] = message.name
    if message.ext is not None:
        body.update(message.ext.get(PROTOCOL, ()))
    return body


class Writer:
    """Writes the turns of another protocol's request."""

    def __init__(self, request: Request, losses: Losses) -> None:
        self.request = request
        self.losses = losses

    def write_turn(self, turn: Turn) -> list[JsonObject]:
        """The messages that one turn becomes; `write_common` writes most turns faster."""
        self._drop_unsupported(turn)
        convert = self._convert if turn.role == "assistant" else self._convert_other
        pairs = list(zip(turn.blocks, turn.positions, strict=True))
        turn.set_blocks([(convert(block, position), position) for block, position in pairs])
        if not turn.blocks and turn.message.blocks:
            report_dropped_message(turn, self.losses)
            return []
        if turn.role == "assistant":
            return [self._write_assistant(turn)]
        if not any(isinstance(block, ToolResult) for block in turn.blocks):
            return self._write_other_blocks(turn, list(turn.blocks))
        return self._write_results(turn)

    def _write_results(self, turn: Turn) -> list[JsonObject]:
        """The `tool` messages of a turn, then the media of its results, then its other blocks."""
        messages: list[JsonObject] = []
        moved_media: list[Block] = []
        other_blocks: list[Block] = []
        other_positions: list[Position] = []
        for block, position in zip(turn.blocks, turn.positions, strict=True):
            if isinstance(block, ToolResult):
                messages.append(self._write_result(block, position, moved_media))
            else:
                other_blocks.append(block)
                other_positions.append(position)
        if moved_media:
            messages.append({"role": "user", "content": write_content(moved_media, "list")})
        for position in other_positions:
            self.losses.add(position, "beside_results_moved")
        if other_blocks:
            messages += self._write_other_blocks(turn, other_blocks)
        return messages

    def _drop_unsupported(self, turn: Turn) -> None:
        """Drop blocks that a message of this role cannot contain, for example a call by the
        user."""
        supported = ASSISTANT_BLOCKS if turn.role == "assistant" else OTHER_BLOCKS
        if all(type(block) in supported for block in turn.blocks):
            return
        remaining: list[tuple[Block, Position]] = []
        for block, position in zip(turn.blocks, turn.positions, strict=True):
            if type(block) in supported:
                remaining.append((block, position))
            else:
                self.losses.add(position, "block_unsupported", self._name(block))
        turn.set_blocks(remaining)

    def _convert(self, block: Block, position: Position) -> Block:
        """A block as this protocol accepts it. Only a PDF can be a file; a text document becomes
        text."""
        text = plain_text(block.source) if isinstance(block, File) else None
        if isinstance(block, File) and text is not None:
            self.losses.add(position, "document_as_text")
            return Text(text if block.name is None else f"{block.name}\n\n{text}")
        if isinstance(block, File):
            return with_default_name(block, position, self.losses)
        if isinstance(block, Image):
            report_type(block.source, position, self.losses)
        elif isinstance(block, Audio) and isinstance(block.source, Inline):
            media_type = block.source.media_type  # `check_audio` has dropped all unknown types
            new_type = f"audio/{AUDIO_FORMATS[media_type]}"
            if new_type != media_type:
                self.losses.add(position, "media_type_changed", f"{media_type} -> {new_type}")
        return block

    def _convert_other(self, block: Block, position: Position) -> Block:
        """Like `_convert`, for all roles but the assistant. A refusal becomes text."""
        if not isinstance(block, Refusal):
            return self._convert(block, position)
        self.losses.add(position, "refusal_as_text")
        return Text(block.text)

    def _write_other_blocks(self, turn: Turn, blocks: list[Block]) -> list[JsonObject]:
        """One message with text and media; none for a system message without blocks."""
        role = "user" if turn.role == "tool" else turn.role
        message = turn.message
        if is_system(message) and not blocks:
            self.losses.add(turn.position, "empty_message_dropped", message.role)
            return []
        form = message.form
        if form == "list" and not blocks:
            form = ""
            self.losses.add(turn.position, "list_as_string")
        body: JsonObject = {"role": role, "content": write_content(blocks, form)}
        return [_with_members(body, message)]

    def _write_assistant(self, turn: Turn) -> JsonObject:
        has_call = False
        blocks: list[Block] = []
        for block, position in zip(turn.blocks, turn.positions, strict=True):
            written = block
            if isinstance(block, ToolCall):
                has_call = True
                written = self._valid_call(block, position)
            elif has_call and isinstance(block, TEXT_BLOCKS):
                self.losses.add(position, "text_after_call_moved")
            elif isinstance(block, Audio) and block.ext is not None:
                written = Audio(block.source, _audio_ext(block))
            blocks.append(written)
        body: JsonObject = {"role": "assistant"}
        text_count = sum(isinstance(block, TEXT_BLOCKS) for block in blocks)
        # Beside calls, a list of one text means the same as a string.
        is_list = turn.message.form == "list" and (text_count > 1 or not has_call)
        body.update(write_assistant(blocks, as_list=is_list))
        if "content" not in body:
            body["content"] = None if body.keys() - {"role"} else ""
        return _with_members(body, turn.message)

    def _valid_call(self, block: ToolCall, position: Position) -> ToolCall:
        """The call with an id and arguments that OpenAI accepts; every change is reported."""
        if block.namespace is not None:
            self.losses.add(position, "namespace_flattened", block.namespace)
        # The note marks a deprecated function call, which is written as a tool call with an id.
        ext = None if own_members(block.ext).get(SOURCE_MEMBER) else block.ext
        arguments = block.arguments
        if not arguments and not block.custom:
            arguments = "{}"
            report_empty_arguments((*position, "arguments"), self.losses)
        call_id = self._written_id(block.id, position)
        return structs.replace(block, id=call_id, arguments=arguments, ext=ext)

    def _written_id(self, call_id: str, position: Position) -> str:
        """Like `valid_id`; a new id is reported."""
        valid = valid_id(call_id)
        if valid != call_id:
            report_new_id(call_id, valid, position, self.losses)
        return valid

    def _write_result(
        self, block: ToolResult, position: Position, moved_media: list[Block]
    ) -> JsonObject:
        """One `tool` message; media, which it cannot contain, is added to `moved_media`."""
        report_error_flag(position, block, self.losses)
        texts: list[Block] = []
        media: list[Block] = []
        for part, part_position in supported_result_parts(
            block, position, self.request, RULES.checks, PROTOCOL, self.losses
        ):
            converted = self._convert_other(part, part_position)
            if isinstance(converted, TEXT_BLOCKS):
                texts.append(converted)
            else:
                media.append(converted)
                self.losses.add(part_position, "result_media_moved", self._name(converted))
        if media:
            moved_media.append(Text(f"[from the result of {valid_id(block.call_id)}]"))
            moved_media += media
        form = block.form if len(texts) == len(block.content) else ""
        if form == "list" and not texts:
            form = ""
            self.losses.add(position, "list_as_string")
        return {
            "role": "tool",
            "tool_call_id": self._written_id(block.call_id, position),
            "content": write_content(texts, form),
        }

    def _name(self, block: Block) -> str:
        wire = self.request.wire
        return wire.part_name(block) if wire is not None else part_name(block)


def _with_members(body: JsonObject, message: Message) -> JsonObject:
    """The message with its name and this protocol's own members."""
    if message.name is not None:
        body["name"] = message.name
    if message.ext is not None:
        for key, value in own_members(message.ext).items():
            body.setdefault(key, value)
    return body


def _audio_ext(block: Audio) -> Any:
    """The `ext` of an answer's audio without its content."""
    members = own_members(block.ext)
    without_content = {key: value for key, value in members.items() if key not in AUDIO_CONTENT}
    return {PROTOCOL: without_content} if without_content else None


TEXT_ROLES = frozenset({"user", "assistant", "system", "developer"})
"""Roles whose text-only messages `decode_common` decodes."""


def decode_common(raw: JsonObject) -> Message | None:
    """The message, or `None` if it is not one of the frequent kinds."""
    try:
        role, content, size = raw["role"], raw["content"], len(raw)
        if type(role) is not str:
            return None
        # `None, None` are the name and the origin; keyword arguments are slower.
        if size == 2:
            if role not in TEXT_ROLES:
                return None
            if type(content) is str:
                return Message(role, (Text(content),), None, None, "text") if content else None
            texts = decode_texts(content, "text")
            return None if texts is None else Message(role, texts, None, None, "list")
        if size != 3:
            return None
        if role == "assistant":
            return _decode_common_answer(content, raw["tool_calls"])
        if role != "tool":
            return None
        call_id = raw["tool_call_id"]
        if type(call_id) is not str:
            return None
        if type(content) is str:
            if not content:
                return None
            return Message(role, (ToolResult(call_id, (Text(content),), form="text"),))
        texts = decode_texts(content, "text")
        if texts is None:
            return None
        return Message(role, (ToolResult(call_id, texts, form="list"),))
    except KeyError:
        return None


def _decode_common_answer(content: Any, calls: list[JsonObject]) -> Message | None:
    blocks: list[Block] = []
    form: Form = "text"
    if content is None:
        form = "null"
    elif type(content) is not str:
        texts = decode_texts(content, "text")
        if texts is None:
            return None
        form = "list"
        blocks += texts
    elif content:
        blocks.append(Text(content))
    if type(calls) is not list or not calls:
        return None
    for call in calls:
        if type(call) is not dict or len(call) != 3 or call["type"] != "function":
            return None
        call_id = call["id"]
        function: JsonObject = call["function"]
        if type(call_id) is not str or type(function) is not dict or len(function) != 2:
            return None
        name, text = function["name"], function["arguments"]
        if type(name) is not str or type(text) is not str:
            return None
        blocks.append(ToolCall(call_id, name, text))
    return Message("assistant", tuple(blocks), None, None, form)


def write_common(turn: Turn, losses: Losses) -> list[JsonObject] | None:
    """The messages of a turn; `None`, with no loss reported, if it is not a frequent kind."""
    message = turn.message
    if message.ext is not None or message.name is not None or not turn.blocks:
        return None
    if turn.role == "assistant":
        return _write_common_answer(turn)
    if message.role in SYSTEM_ROLES:
        return None
    if type(turn.blocks[0]) is ToolResult:
        return _write_common_results(turn, losses)
    texts = plain_texts(turn.blocks)
    if texts is None:
        return None
    content = texts[0] if message.form != "list" and len(texts) == 1 else _text_parts(texts)
    return [{"role": "user" if turn.role == "tool" else turn.role, "content": content}]


def _write_common_answer(turn: Turn) -> list[JsonObject] | None:
    texts: list[str] = []
    calls: list[JsonObject] = []
    for block in turn.blocks:
        if type(block) is Text:
            if block.ext is not None or calls:  # a text after a call is moved, and reported
                return None
            texts.append(block.text)
            continue
        if type(block) is not ToolCall or block.ext is not None or block.custom:
            return None
        call_id = block.id
        if block.namespace is not None or not block.arguments or valid_id(call_id) != call_id:
            return None
        function = {"name": block.name, "arguments": block.arguments}
        calls.append({"id": call_id, "type": "function", "function": function})
    # Beside calls, a list of one text means the same as a string.
    if len(texts) == 1 and (calls or turn.message.form != "list"):
        content: Any = texts[0]
    else:
        content = _text_parts(texts) if texts else None
    if not calls:
        return [{"role": "assistant", "content": content}]
    return [{"role": "assistant", "content": content, "tool_calls": calls}]


def _write_common_results(turn: Turn, losses: Losses) -> list[JsonObject] | None:
    messages: list[JsonObject] = []
    for block in turn.blocks:
        if type(block) is not ToolResult:
            return None
        texts, call_id = plain_texts(block.content), block.call_id
        if not texts or valid_id(call_id) != call_id:
            return None
        content = texts[0] if len(texts) == 1 and block.form != "list" else _text_parts(texts)
        messages.append({"role": "tool", "tool_call_id": call_id, "content": content})
    for index, block in enumerate(turn.blocks):
        if type(block) is ToolResult and block.is_error is not None:
            report_error_flag(turn.position_of(index), block, losses)
    return messages


def _text_parts(texts: list[str]) -> list[JsonObject]:
    return [{"type": "text", "text": text} for text in texts]


def report_error_flag(position: Position, result: ToolResult, losses: Losses) -> None:
    """Report the `is_error` of a result, if it has one."""
    if result.is_error is not None:
        is_added = result.content == (Text(NO_RESULT),)
        add_error_flag_loss(position, result.is_error, is_added, losses)


def add_error_flag_loss(
    position: Position | str, is_error: bool, is_added: bool, losses: Losses
) -> None:
    """Add the loss of a result's `is_error`, which this protocol has no member for.

    The loss is one of meaning if the tool failed. `is_added`: Weft added the result, and its text
    says that there is none.
    """
    level = "meaning" if is_error and not is_added else "form"
    losses.add(position, "error_flag_dropped", "true" if is_error else "false", level)


def valid_id(call_id: str) -> str:
    """The id if OpenAI accepts its length, else a shorter one."""
    return fitting_id(call_id, MAX_CALL_ID_LENGTH)
