"""Decodes and writes items: the flat list of this protocol, and the messages of the model.

The protocol has no turns. Consecutive items of the assistant (reasoning, messages with an id,
calls, hosted tools) are one `Message` with several blocks. An assistant's message item without an
id begins a new `Message`, because a client wrote it as a separate turn. Every other item is a
`Message` of its own.

A round trip restores the same items:

- The members of a message item (`id`, `status`, `phase`) are kept in its first part, in
  `ext[PROTOCOL][ITEM]`, which also marks where the item begins. `content` is kept there only if
  it was not a list of parts.
- Reasoning and calls are one block each, with their members in `ext`.
- An unknown item is kept unchanged.

An assistant message contains only text and refusals. For anything else the vendor answers "Invalid
value: 'input_image'. Supported values are: 'output_text' and 'refusal'".

`decode_common` and `write_common` are shortcuts for the shapes that nearly all items have. They
return the same result in a fraction of the time, and leave every other item to the other functions.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from msgspec import structs

from weft.codec.base import (
    FOREIGN_FILE_ID,
    Losses,
    as_object,
    check_foreign_thinking,
    check_opaque,
    made_by,
)
from weft.codec.calls import fitting_id, report_new_id
from weft.codec.media import check_audio, check_image_type, with_default_name
from weft.codec.outgoing import is_empty
from weft.codec.pairing import Turn
from weft.codec.read import objects, optional, text_of, unknown_members, with_prefix, wrong
from weft.codec.repair import (
    decode_texts,
    plain_texts,
    report_dropped_message,
    supported_result_parts,
)
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
    texts,
)

from .blocks import (
    INPUT,
    ITEM,
    OUTPUT,
    decode_content,
    own_members,
    without_escapes,
    write_content,
    write_part,
)
from .wire import MAX_CALL_ID_LENGTH, PROTOCOL

# The members that a decoder reads, by type of item.
MESSAGE = frozenset({"role", "content"})
CALL = frozenset({"type", "call_id", "name", "arguments"})
CUSTOM_CALL = frozenset({"type", "call_id", "name", "input"})
RESULT = frozenset({"type", "call_id", "output"})
REFERENCE = frozenset({"type", "id"})
"""Members of an item reference; its `type` is optional."""

HOSTED_RESULT_SUFFIXES = ("_call_output", "_approval_response")
"""Type suffixes of the items with which a client answers hosted calls."""

CLIENT_ITEMS = frozenset({"agent_message", "compaction_trigger"})
"""Other item types that come from the client: a message of another agent, a request to compact."""


class Grouping:
    """Groups items into messages, one item at a time.

    - `starts`: the number of the first item of each message.
    - `references`: the numbers of item references, which only the vendor can resolve.
    - `tool_items`: the numbers of items with more tools.
    - `_blocks`, `_form`: the open assistant message, which further items may be added to.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.starts: list[int] = []
        self.references: list[int] = []
        self.tool_items: list[int] = []
        self._blocks: list[Block] = []
        self._form: Form = "list"

    def add(self, number: int, raw: JsonObject) -> None:
        """Add an item; raises `Refused` with a path inside it."""
        common = decode_common(raw)
        if type(common) is ToolCall:
            if not self._blocks:
                self.starts.append(number)
            self._blocks.append(common)
        elif type(common) is Message:
            self._add_message(number, common)
        elif type(common) is Text:  # a message without an id begins a new turn
            self.close()
            self.starts.append(number)
            self._blocks.append(common)
            self._form = "text"
        else:
            self.add_any(number, raw)

    def add_any(self, number: int, raw: JsonObject) -> None:
        """Like `add`, for an item of any shape."""
        kind = raw.get("type")
        if kind is not None and type(kind) is not str:
            raise wrong("type", kind, "a string")
        if kind is None and raw.keys() <= REFERENCE and "id" in raw:
            self._add_unknown(number, raw, "item_reference")
        elif kind is None or kind == "message":
            self._add_message_item(number, raw)
        elif (decode := CALLS.get(kind)) is not None:
            self._add_blocks(number, [decode(raw)])
        elif kind in RESULTS and ("call_id" in raw or "caller" not in raw):
            self._add_message(number, Message("tool", (decode_result(raw),), form="list"))
        else:
            self._add_unknown(number, raw, kind)

    def close(self) -> None:
        """Close the open assistant message, if there is one."""
        if self._blocks:
            self.messages.append(Message("assistant", tuple(self._blocks), form=self._form))
            self._blocks = []
            self._form = "list"

    def _add_message_item(self, number: int, raw: JsonObject) -> None:
        """Add a message item: a message, or a part of the assistant's open message."""
        role = text_of(raw, "role")
        if role != "assistant":
            blocks, form = decode_content(raw, "content", INPUT)
            ext = own_members(raw, MESSAGE)
            self._add_message(number, Message(role, blocks, form=form, ext=ext))
            return
        if "id" in raw:
            self._add_blocks(number, decode_message(raw))
            return
        self.close()
        if raw.get("content"):
            self._add_blocks(number, decode_message(raw))
            self._form = "text" if type(raw["content"]) is str else "list"
        else:
            _, form = decode_content(raw, "content", OUTPUT)
            ext = own_members(raw, MESSAGE)
            self._add_message(number, Message(role, form=form, ext=ext))

    def _add_unknown(self, number: int, raw: JsonObject, kind: str) -> None:
        """Add an unknown item as `Opaque`; its role or its type tells who sent it."""
        role = raw.get("role")
        if kind == "item_reference":
            self.references.append(number)
        elif kind == "additional_tools":
            self.tool_items.append(number)
        if (
            type(role) is str and role in SYSTEM_ROLES
        ):  # setup, not content: the message has no blocks
            ext: Ext = {PROTOCOL: {ITEM: raw}}
            self._add_message(number, Message(role, (), form="absent", ext=ext))
        elif type(role) is str and role != "assistant":
            self._add_message(number, Message(role, (Opaque(PROTOCOL, raw),), form="absent"))
        elif kind.endswith(HOSTED_RESULT_SUFFIXES):
            self._add_message(number, Message("tool", (Opaque(PROTOCOL, raw),), form="absent"))
        elif kind in CLIENT_ITEMS:
            self._add_message(number, Message("user", (Opaque(PROTOCOL, raw),), form="absent"))
        else:
            self._add_blocks(number, [Opaque(PROTOCOL, raw)])

    def _add_blocks(self, number: int, blocks: list[Block]) -> None:
        """Add the blocks of an item to the open assistant message, or open one."""
        if not self._blocks:
            self.starts.append(number)
        self._blocks += blocks

    def _add_message(self, number: int, message: Message) -> None:
        """Add an item that is a message of its own."""
        self.close()
        self.starts.append(number)
        self.messages.append(message)


MESSAGE_BLOCKS = frozenset({Text, Refusal})
"""Block types of an assistant message item. An item with other parts becomes one `Opaque`."""


def decode_items(items: list[JsonObject]) -> Grouping:
    """The messages of an `input` list; raises `Refused` with the item's path."""
    grouping = Grouping()
    for number, raw in enumerate(items):
        try:
            grouping.add(number, raw)
        except Refused as error:
            raise with_prefix(f"input[{number}]", error) from None
    grouping.close()
    return grouping


def decode_output_item(raw: JsonObject) -> list[Block]:
    """The blocks of one output item; at least one."""
    kind = raw.get("type")
    if kind == "message":
        return decode_message(raw)
    if not isinstance(kind, str):
        raise wrong("type", kind, "a string")
    decode = CALLS.get(kind)
    return [Opaque(PROTOCOL, raw) if decode is None else decode(raw)]


def decode_message(raw: JsonObject) -> list[Block]:
    """The parts of an assistant message item; the first one keeps the members of the item."""
    blocks, form = decode_content(raw, "content", OUTPUT)
    if any(type(block) not in MESSAGE_BLOCKS for block in blocks):
        return [Opaque(PROTOCOL, raw)]
    return _with_item_members(raw, list(blocks), form)


def _with_item_members(raw: JsonObject, blocks: list[Block], form: Form) -> list[Block]:
    """The blocks of a message item; the first one gets the item's other members."""
    item = {key: value for key, value in raw.items() if key not in MESSAGE}
    if form != "list" and item:
        item["content"] = "" if form == "text" else None
    if not blocks:
        item["content"] = raw.get("content")
        blocks = [Text("")]
    if item:
        first = blocks[0]
        assert isinstance(first, Text | Refusal)
        members = (first.ext or {}).get(PROTOCOL, {})
        blocks[0] = type(first)(first.text, {PROTOCOL: {ITEM: item, **members}})
    return blocks


def decode_call(raw: JsonObject) -> ToolCall:
    return ToolCall(
        text_of(raw, "call_id"),
        text_of(raw, "name"),
        text_of(raw, "arguments"),
        namespace=optional(raw, "namespace", str),
        ext=_unknown_call_members(raw, CALL),
    )


def decode_custom_call(raw: JsonObject) -> ToolCall:
    return ToolCall(
        text_of(raw, "call_id"),
        text_of(raw, "name"),
        text_of(raw, "input"),
        custom=True,
        namespace=optional(raw, "namespace", str),
        ext=_unknown_call_members(raw, CUSTOM_CALL),
    )


def _unknown_call_members(raw: JsonObject, known: frozenset[str]) -> Ext | None:
    """The members of a call without a field; an empty or null `namespace` is one of them."""
    return unknown_members(raw, known | {"namespace"} if raw.get("namespace") else known, PROTOCOL)


def decode_result(raw: JsonObject) -> ToolResult:
    content, form = decode_content(raw, "output", INPUT)
    return ToolResult(
        text_of(raw, "call_id"),
        content,
        custom=raw["type"] == "custom_tool_call_output",
        form=form,
        ext=unknown_members(raw, RESULT, PROTOCOL),
    )


def decode_reasoning(raw: JsonObject) -> Thinking:
    """Decode a reasoning item. `summary` and `content` are kept if the text cannot restore them."""
    signature = optional(raw, "encrypted_content", str)
    summary_texts = _texts(raw, "summary")
    text = "\n\n".join(summary_texts or _texts(raw, "content"))
    unmapped = {
        key: value
        for key, value in raw.items()
        if key != "type" and (key != "encrypted_content" or value is None)
    }
    if unmapped.get("summary") == summary_of(text):
        del unmapped["summary"]
    return Thinking(text, signature, {PROTOCOL: unmapped} if unmapped else None)


def summary_of(text: str) -> list[JsonObject]:
    """The list `summary` with this text; empty if there is no text."""
    return [{"type": "summary_text", "text": text}] if text else []


def _texts(raw: JsonObject, key: str) -> list[str]:
    """The texts in a list of parts that may be missing; empty ones are left out."""
    if raw.get(key) is None:
        return []
    return [str(part["text"]) for part in objects(raw[key], key) if part.get("text")]


CALLS: dict[str, Callable[[JsonObject], Block]] = {
    "function_call": decode_call,
    "custom_tool_call": decode_custom_call,
    "reasoning": decode_reasoning,
}
"""The assistant's items that are decoded to one block."""

RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})


def check_thinking(block: Thinking | Redacted, message: Message, request: Request) -> str | None:
    """The loss code of thinking that cannot be sent: another vendor's, or an id without content.

    With `store: false` the vendor has no item for such an id and refuses the request: "Items are
    not persisted when `store` is set to false"
    https://github.com/openai/openai-agents-python/issues/919
    """
    if request.params.store is False and isinstance(block, Thinking) and block.signature is None:
        members = (block.ext or {}).get(PROTOCOL, {})
        if "id" in members and not members.get("content"):
            return "thinking_not_sealed"
    return check_foreign_thinking(PROTOCOL, message, request)


def check_media(block: Image | File, message: Message, request: Request) -> str | None:
    if message.role == "assistant":
        return "media_in_assistant"
    if isinstance(block.source, FileRef) and not made_by(PROTOCOL, message, request):
        return FOREIGN_FILE_ID
    return check_image_type(block.source) if isinstance(block, Image) else None


CHECKS: dict[type, Callable[[Any, Message, Request], str | None]] = {
    Thinking: check_thinking,
    Redacted: check_thinking,
    Opaque: partial(check_opaque, PROTOCOL),
    Image: check_media,
    File: check_media,
    Audio: check_audio,
}


TEXT_BLOCKS = frozenset({Text, Refusal, Checkpoint, Reminder})
"""Assistant blocks that are written as message items. Each other block is an item of its own."""


class Writer:
    """Writes the items of one request, or of one answer, and collects the losses.

    - `native`: whether the body was a Responses body before.
    - `_custom_ids`: the ids of the custom calls so far, whose results have a type of their own.
    - `_last_role`: the role of the last turn that was written.
    """

    def __init__(self, losses: Losses, *, native: bool, request: Request | None = None) -> None:
        self.request = request
        self.losses = losses
        self.native = native
        self._custom_ids: set[str] = set()
        self._last_role = ""

    def write_turn(self, turn: Turn) -> list[JsonObject]:
        """The items of one turn."""
        if not self.native and not self._custom_ids:
            common = write_common(turn, self._last_role, self.losses)
            if common is not None:
                self._last_role = turn.role
                return common
        return self.any_turn(turn)

    def any_turn(self, turn: Turn) -> list[JsonObject]:
        """Like `turn`, for a turn of any shape."""
        role = turn.role
        if (text := _one_text(turn)) is not None:
            self._last_role = role
            return [{"role": "user" if role == "tool" else role, "content": text}]
        lost_all_blocks = bool(turn.message.blocks) and not turn.blocks
        if role == "assistant" and lost_all_blocks:
            report_dropped_message(turn, self.losses)
            return []
        if role == "assistant":
            items = self.assistant(turn.message, turn.blocks, turn.positions, turn.position)
            if not self.native and turn.blocks:
                self._report_form(turn)
        else:
            items = self._user_items(turn)
        self._last_role = role
        return items

    def _report_form(self, turn: Turn) -> None:
        """Report what a flat list of items cannot express about an assistant turn."""
        if self._last_role == "assistant" and type(turn.blocks[0]) not in TEXT_BLOCKS:
            self.losses.add(turn.position, "message_boundary_dropped")
        for number, block in enumerate(turn.blocks):
            if type(block) not in TEXT_BLOCKS:
                continue
            position = turn.positions[number]
            if number:
                self.losses.add(position, "message_split")
            if turn.message.form == "list" and item_members(block) is None:
                self.losses.add(position, "list_as_string")
            if isinstance(block, Refusal):
                self.losses.add(position, "refusal_as_text")

    def _user_items(self, turn: Turn) -> list[JsonObject]:
        """Each result is an item; the blocks between two results are one message."""
        items: list[JsonObject] = []
        message_blocks: list[Block] = []
        splits_turn = not self.native and ToolResult in {type(block) for block in turn.blocks}
        for block, position in zip(turn.blocks, turn.positions, strict=True):
            if splits_turn and not isinstance(block, ToolResult):
                self.losses.add(position, "beside_results_moved")
            if isinstance(block, ToolResult) or (
                isinstance(block, Opaque) and turn.message.form == "absent"
            ):
                if message_blocks:
                    items.append(self._message(turn, message_blocks))
                    message_blocks = []
                items.append(self._single(block, position))
            else:
                message_blocks.append(self._with_required_members(block, position))
        if message_blocks or not items:
            items.append(self._message(turn, message_blocks))
        return items

    def _with_required_members(self, block: Block, position: Position) -> Block:
        """Another protocol's block with what this protocol requires: an image needs a `detail`."""
        if self.native:
            return block
        block = self._convert(block, position)
        if not isinstance(block, Image) or block.detail is not None:
            return block
        self.losses.add(position, "default_added", "detail: auto")
        return structs.replace(block, detail="auto")

    def _convert(self, block: Block, position: Position) -> Block:
        """A block as a client may send it: a file with a name, and a refusal as text."""
        if isinstance(block, File):
            return with_default_name(block, position, self.losses)
        if not isinstance(block, Refusal):
            return block
        self.losses.add(position, "refusal_as_text")
        return Text(block.text)

    def _single(self, block: ToolResult | Opaque, position: Position) -> JsonObject:
        """The item of a block that is an item by itself."""
        return dict(block.raw) if isinstance(block, Opaque) else self.result(block, position)

    def _message(self, turn: Turn, blocks: Sequence[Block]) -> JsonObject:
        """A message item of any role but the assistant's."""
        message = turn.message
        members = (message.ext or {}).get(PROTOCOL, {})
        if not blocks and ITEM in members:
            return members[ITEM]
        role = "user" if turn.role == "tool" else turn.role
        body: JsonObject = {"role": role}
        form: Form = message.form if blocks or not message.blocks else "text"
        body.update(self._content(form, blocks, INPUT, turn.position))
        body.update(without_escapes(members))
        return body

    def _content(
        self, form: Form, blocks: Sequence[Block], text_type: str, position: Position
    ) -> JsonObject:
        """The member `content`; empty if the original item had none."""
        if not blocks and form in ("null", "absent"):
            if self.native:
                return {"content": None} if form == "null" else {}
            self.losses.add(position, "default_added", 'content: ""')
            return {"content": ""}
        if not blocks and not self.native:
            form = self._empty_form(form, position)
        return {"content": write_content(blocks, form, text_type, position, self.losses)}

    def _empty_form(self, form: Form, position: Position) -> Form:
        """The form of empty content: some servers refuse an empty list, none an empty string."""
        if form == "list":
            self.losses.add(position, "list_as_string")
        return "text"

    def assistant(
        self,
        message: Message,
        blocks: Sequence[Block],
        positions: Sequence[Position],
        position: Position = (),
    ) -> list[JsonObject]:
        """The items of an assistant turn; adjacent texts are one message item.

        `positions` has the position of each block, `position` is that of the message.
        """
        if not blocks:
            body: JsonObject = {"role": "assistant"}
            body.update(self._content(message.form, blocks, OUTPUT, position))
            body.update((message.ext or {}).get(PROTOCOL, {}))
            return [body]
        orphaned = self._without_reasoning(message, blocks, positions)
        items: list[JsonObject] = []
        for start, group in self._group_blocks(blocks):
            if type(group[0]) in TEXT_BLOCKS:
                item = self._message_item(message.form, group, positions[start])
            else:
                item = self._other_item(group[0], positions[start])
            if positions[start] in orphaned:
                item = self._without_id(item, positions[start])
            items.append(item)
        return items

    def _group_blocks(self, blocks: Sequence[Block]) -> list[tuple[int, list[Block]]]:
        """The blocks of each item, with the number of its first block."""
        groups: list[tuple[int, list[Block]]] = []
        for number, block in enumerate(blocks):
            if groups and self._continues_item(groups[-1][1], block):
                groups[-1][1].append(block)
            else:
                groups.append((number, [block]))
        return groups

    def _continues_item(self, group: list[Block], block: Block) -> bool:
        """Whether a text belongs to the message item of the texts before it."""
        are_texts = type(block) in TEXT_BLOCKS and type(group[0]) in TEXT_BLOCKS
        return are_texts and item_members(block) is None and not self._has_no_item(group)

    def _without_id(self, item: JsonObject, position: Position) -> JsonObject:
        """The item as a new one. Only an item with an id may contain a refusal."""
        if "id" not in item:
            return item
        self.losses.add(position, "item_id_dropped", item.pop("id"))
        if item.get("type") == "message" and _has_refusal(item):
            return {"role": "assistant", "content": _item_text(item)}
        return item

    def _without_reasoning(
        self, message: Message, blocks: Sequence[Block], positions: Sequence[Position]
    ) -> set[Position]:
        """The positions of texts and calls that lost the reasoning before them.

        Such an item must not keep its id. The vendor looks it up and refuses it: "Item 'fc_...' of
        type 'function_call' was provided without its required 'reasoning' item"
        (https://github.com/continuedev/continue/issues/10018). Without an id it is a new item.

        A client's request is complete, so an answer without reasoning never had any. A thread may
        have been compacted, so there every answer without reasoning may have lost it.
        """
        if self.native:
            return set()
        may_be_compacted = self.request is not None and self.request.wire is None
        orphaned: set[Position] = set()
        last_reasoning: Position | None = None
        for block, position in zip(blocks, positions, strict=True):
            if isinstance(block, Thinking | Redacted):
                last_reasoning = position
            elif type(block) in TEXT_BLOCKS or isinstance(block, ToolCall):
                has_none = last_reasoning is None and may_be_compacted
                if has_none or _loses_reasoning(message, last_reasoning, position):
                    orphaned.add(position)
        return orphaned

    def _has_no_item(self, blocks: list[Block]) -> bool:
        """Whether these texts come from another protocol: each is written as one string."""
        return not self.native and item_members(blocks[0]) is None

    def _message_item(self, form: Form, blocks: list[Block], position: Position) -> JsonObject:
        """The message item of adjacent texts; `position` is that of the first one."""
        item = item_members(blocks[0])
        body: JsonObject = {"role": "assistant"}
        if self._has_no_item(blocks):
            body["content"] = "".join(texts(blocks))
            return body
        if item is not None:
            body.update(item)
            form = "text" if item.get("content") == "" else "list"
            if body.pop("content", "") != "" and len(blocks) == 1 and is_empty(blocks[0]):
                body["content"] = item["content"]  # it was null, or an empty list
                return body
        body["content"] = write_content(blocks, form, OUTPUT, position[:-1], self.losses)
        return body

    def _other_item(self, block: Block, position: Position) -> JsonObject:
        match block:
            case ToolCall():
                return self.call(block, position)
            case Thinking() | Redacted():
                return reasoning(block)
            case Opaque(raw=raw):
                return raw
            case ToolResult():
                return self.result(block, position)
            case _:
                part = write_part(block, INPUT, position, self.losses)
                return {"role": "assistant", "content": [part]}

    def call(self, block: ToolCall, position: Position = ()) -> JsonObject:
        call_id = self._legal_id(block.id, position)
        if block.custom:
            self._custom_ids.add(block.id)
            body: JsonObject = {"type": "custom_tool_call", "input": block.arguments}
        else:
            body = {"type": "function_call", "arguments": block.arguments}
        body["call_id"] = call_id
        body["name"] = block.name
        if block.namespace is not None:
            body["namespace"] = block.namespace
        return _with_ext(body, block.ext)

    def _legal_id(self, call_id: str, position: Position) -> str:
        """The id, shortened if it is too long; a new id is reported."""
        valid = call_id if self.native else valid_id(call_id)
        if valid != call_id:
            report_new_id(call_id, valid, position, self.losses)
        return valid

    def result(self, block: ToolResult, position: Position) -> JsonObject:
        """A call's result. The protocol has no error flag, so `is_error` is reported as lost."""
        custom = block.custom or block.call_id in self._custom_ids
        body: JsonObject = {
            "type": "custom_tool_call_output" if custom else "function_call_output",
            "call_id": self._legal_id(block.call_id, position),
        }
        if self.native and not block.content and block.form in ("null", "absent"):
            if block.form == "null":
                body["output"] = None
        else:
            body["output"] = self._output(block, position)
        if block.is_error is not None:
            report_error_flag(position, block.is_error, self.losses)
        if block.name is not None:
            self.losses.add(position, "result_name_dropped", block.name)
        return _with_ext(body, block.ext)

    def _output(self, block: ToolResult, position: Position) -> Any:
        content, form = block.content, _result_form(block)
        if self.request is not None and not self.native:
            parts = supported_result_parts(
                block, position, self.request, CHECKS, PROTOCOL, self.losses
            )
            content = tuple(self._convert(part, part_position) for part, part_position in parts)
            form = form if content else self._empty_form(form, position)
        return write_content(content, form, INPUT, position, self.losses)


def _loses_reasoning(message: Message, last_reasoning: Position | None, position: Position) -> bool:
    """Whether reasoning was dropped between `last_reasoning`, which is written, and `position`."""
    start = 0
    if last_reasoning is not None:
        if last_reasoning[0] != position[0]:
            return False  # two messages that became one turn
        start = cast(int, last_reasoning[1]) + 1
    dropped = message.blocks[start : cast(int, position[1])]
    return any(isinstance(block, Thinking | Redacted) for block in dropped)


def _one_text(turn: Turn) -> str | None:
    """The text of a turn that is one plain string, else `None`."""
    message, blocks = turn.message, turn.blocks
    if len(blocks) != 1 or message.ext is not None or message.form not in ("text", ""):
        return None
    block = blocks[0]
    return block.text if type(block) is Text and block.ext is None else None


def _result_form(block: ToolResult) -> Form:
    return "text" if block.form in ("null", "absent") else block.form


def item_members(block: Block) -> JsonObject | None:
    """The members of the message item that begins with this block; `None` if no item does."""
    ext: Ext | None = getattr(block, "ext", None)
    members = ext.get(PROTOCOL) if ext is not None else None
    return as_object(members.get(ITEM)) if members is not None else None


def reasoning(block: Thinking | Redacted) -> JsonObject:
    """The reasoning item of a thinking block."""
    if isinstance(block, Redacted):
        return {"type": "reasoning", "summary": [], "encrypted_content": block.data}
    body: JsonObject = {"type": "reasoning", "summary": summary_of(block.text)}
    if block.signature is not None:
        body["encrypted_content"] = block.signature
    return _with_ext(body, block.ext)


def _with_ext(body: JsonObject, ext: Ext | None) -> JsonObject:
    if ext is not None:
        body.update(ext.get(PROTOCOL, ()))
    return body


def _has_refusal(item: JsonObject) -> bool:
    return any(part.get("type") == "refusal" for part in _parts(item))


def _item_text(item: JsonObject) -> str:
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in _parts(item))


def _parts(item: JsonObject) -> list[JsonObject]:
    content = item.get("content")
    return cast(list[JsonObject], content) if isinstance(content, list) else []


def decode_common(raw: JsonObject) -> Message | ToolCall | Text | None:
    """The assistant's call or text, or another role's message; `None` if it has another shape."""
    kind, size = raw.get("type"), len(raw)
    try:
        if kind == "function_call":
            call_id, name, text = raw["call_id"], raw["name"], raw["arguments"]
            if size == 4 and type(call_id) is str and type(name) is str and type(text) is str:
                return ToolCall(call_id, name, text)
        elif kind == "function_call_output":
            call_id, output = raw["call_id"], raw["output"]
            if size != 3 or type(call_id) is not str:
                return None
            if type(output) is str and output:
                result = ToolResult(call_id, (Text(output),), form="text")
                return Message("tool", (result,), None, None, "list")
            texts = decode_texts(output, INPUT)
            if texts is not None:
                result = ToolResult(call_id, texts, form="list")
                return Message("tool", (result,), None, None, "list")
        elif kind is None and size == 2:
            role, content = raw["role"], raw["content"]
            if type(role) is not str:
                return None
            if role == "assistant":
                return Text(content) if type(content) is str and content else None
            if type(content) is str and content:
                return Message(role, (Text(content),), None, None, "text")
            texts = decode_texts(content, INPUT)
            if texts is not None:
                return Message(role, texts, None, None, "list")
    except KeyError:
        pass
    return None


def write_common(turn: Turn, last_role: str, losses: Losses) -> list[JsonObject] | None:
    """The items of another protocol's turn; `last_role` is the role of the turn before.

    `None`, without a report, if the turn has another shape.
    """
    message = turn.message
    if message.ext is not None or not turn.blocks:
        return None
    if turn.role == "assistant":
        return _write_assistant(turn, last_role, losses)
    if message.role in SYSTEM_ROLES:
        return None
    if type(turn.blocks[0]) is ToolResult:
        return _write_results(turn, losses)
    texts = plain_texts(turn.blocks)
    if texts is None:
        return None
    is_text = message.form in ("text", "") and len(texts) == 1
    content = texts[0] if is_text else _text_parts(texts)
    return [{"role": "user" if turn.role == "tool" else turn.role, "content": content}]


def _write_assistant(turn: Turn, last_role: str, losses: Losses) -> list[JsonObject] | None:
    """The items of an assistant's texts and calls, one for each."""
    items: list[JsonObject] = []
    for block in turn.blocks:
        if type(block) is Text:
            if block.ext is not None:
                return None
            items.append({"role": "assistant", "content": block.text})
            continue
        if type(block) is not ToolCall or block.ext is not None or block.custom:
            return None
        if block.namespace is not None or valid_id(block.id) != block.id:
            return None
        items.append(
            {
                "type": "function_call",
                "arguments": block.arguments,
                "call_id": block.id,
                "name": block.name,
            }
        )
    if last_role == "assistant" and type(turn.blocks[0]) is ToolCall:
        losses.add(turn.position, "message_boundary_dropped")
    for at, block in enumerate(turn.blocks):
        if type(block) is not Text:
            continue
        position = turn.position_of(at)
        if at:
            losses.add(position, "message_split")
        if turn.message.form == "list":
            losses.add(position, "list_as_string")
    return items


def _write_results(turn: Turn, losses: Losses) -> list[JsonObject] | None:
    """The items of a turn of results with text, one for each."""
    items: list[JsonObject] = []
    for block in turn.blocks:
        if type(block) is not ToolResult:
            return None
        if block.ext is not None or block.name is not None or block.custom:
            return None
        texts, call_id = plain_texts(block.content), block.call_id
        if not texts or valid_id(call_id) != call_id:
            return None
        output = texts[0] if len(texts) == 1 and block.form != "list" else _text_parts(texts)
        items.append({"type": "function_call_output", "call_id": call_id, "output": output})
    for at, block in enumerate(turn.blocks):
        if type(block) is ToolResult and block.is_error is not None:
            report_error_flag(turn.position_of(at), block.is_error, losses)
    return items


def _text_parts(texts: list[str]) -> list[JsonObject]:
    return [{"type": INPUT, "text": text} for text in texts]


def report_error_flag(position: Position, is_error: bool, losses: Losses) -> None:
    """Report the `is_error` of a result, which has no member here."""
    if is_error:
        losses.add(position, "error_flag_dropped", "true", "meaning")
    else:
        losses.add(position, "error_flag_dropped", "false", "form")


def valid_id(call_id: str) -> str:
    """The id within the length limit."""
    return fitting_id(call_id, MAX_CALL_ID_LENGTH)
