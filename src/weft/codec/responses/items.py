"""Items, both ways: the flat list of this protocol, and the messages of the model.

The protocol has no turns. Consecutive items of the assistant (reasoning, messages with an id,
calls, hosted tools) are one `Message` with several blocks. A message item without an id begins a
new one, because a client wrote it as a turn of its own. Everything else is a `Message` by itself.

The same items come back: the boundary and the members of a message item (`id`, `status`, `phase`)
stay with its first part, in `ext[PROTOCOL]["item"]`; `content` is kept there only if it was not a
plain list of parts. Reasoning and calls are one block each and keep their members directly. An
unknown item is kept unchanged.

An assistant message holds only text and refusals. For anything else the vendor answers "Invalid
value: 'input_image'. Supported values are: 'output_text' and 'refusal'".

`decode_common` and `write_common` are shortcuts for items of the common shapes, which nearly all
items have. They give the same result in a fraction of the time, and leave every other item to the
other functions.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from msgspec import structs

from weft.codec.base import FOREIGN_FILE_ID, Losses, check_foreign_thinking, check_opaque, made_by
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

from .blocks import INPUT, OUTPUT, decode_content, write_content, write_part
from .wire import CALL_ID_LENGTH, PROTOCOL

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

    `starts` has the number of the first item of each message. `references` has the numbers of item
    references, which only the vendor can resolve, and `tool_items` those of items with more tools.
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
            return
        if type(common) is Message:
            self._add_message(number, common)
            return
        if type(common) is Text:  # a message without an id begins a new turn
            self.close()
            self.starts.append(number)
            self._blocks.append(common)
            self._form = "text"
            return
        self.add_any(number, raw)

    def add_any(self, number: int, raw: JsonObject) -> None:
        """Like `add`, for an item of any shape."""
        kind = raw.get("type")
        if kind is not None and type(kind) is not str:
            raise wrong("type", kind, "a string")
        if kind is None and raw.keys() <= REFERENCE and "id" in raw:
            self._unknown(number, raw, "item_reference")
        elif kind is None or kind == "message":
            self._message(number, raw)
        elif (decode := CALLS.get(kind)) is not None:
            self._join(number, [decode(raw)])
        elif kind in RESULTS and ("call_id" in raw or "caller" not in raw):
            self._add_message(number, Message("tool", (decode_result(raw),), form="list"))
        else:
            self._unknown(number, raw, kind)

    def close(self) -> None:
        """Close the open assistant message, if there is one."""
        if self._blocks:
            self.messages.append(Message("assistant", tuple(self._blocks), form=self._form))
            self._blocks = []
            self._form = "list"

    def _message(self, number: int, raw: JsonObject) -> None:
        role = text_of(raw, "role")
        if role != "assistant":
            blocks, form = decode_content(raw, "content", INPUT)
            ext = unknown_members(raw, MESSAGE, PROTOCOL)
            self._add_message(number, Message(role, blocks, form=form, ext=ext))
            return
        if "id" in raw:
            self._join(number, decode_message(raw))
            return
        self.close()
        if raw.get("content"):
            self._join(number, decode_message(raw))
            self._form = "text" if type(raw["content"]) is str else "list"
        else:
            _, form = decode_content(raw, "content", OUTPUT)
            ext = unknown_members(raw, MESSAGE, PROTOCOL)
            self._add_message(number, Message(role, form=form, ext=ext))

    def _unknown(self, number: int, raw: JsonObject, kind: str) -> None:
        role = raw.get("role")
        if kind == "item_reference":
            self.references.append(number)
        elif kind == "additional_tools":
            self.tool_items.append(number)
        if role in SYSTEM_ROLES:  # setup, not content: the message stays empty
            ext: Ext = {PROTOCOL: {"item": raw}}
            self._add_message(number, Message(role, (), form="absent", ext=ext))
        elif type(role) is str and role != "assistant":
            self._add_message(number, Message(role, (Opaque(PROTOCOL, raw),), form="absent"))
        elif kind.endswith(HOSTED_RESULT_SUFFIXES):
            self._add_message(number, Message("tool", (Opaque(PROTOCOL, raw),), form="absent"))
        elif kind in CLIENT_ITEMS:
            self._add_message(number, Message("user", (Opaque(PROTOCOL, raw),), form="absent"))
        else:
            self._join(number, [Opaque(PROTOCOL, raw)])

    def _join(self, number: int, blocks: list[Block]) -> None:
        if not self._blocks:
            self.starts.append(number)
        self._blocks += blocks

    def _add_message(self, number: int, message: Message) -> None:
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
        blocks[0] = type(first)(first.text, {PROTOCOL: {"item": item, **members}})
    return blocks


def decode_call(raw: JsonObject) -> ToolCall:
    return ToolCall(
        text_of(raw, "call_id"),
        text_of(raw, "name"),
        text_of(raw, "arguments"),
        namespace=optional(raw, "namespace", str),
        ext=_call_rest(raw, CALL),
    )


def decode_custom_call(raw: JsonObject) -> ToolCall:
    return ToolCall(
        text_of(raw, "call_id"),
        text_of(raw, "name"),
        text_of(raw, "input"),
        custom=True,
        namespace=optional(raw, "namespace", str),
        ext=_call_rest(raw, CUSTOM_CALL),
    )


def _call_rest(raw: JsonObject, known: frozenset[str]) -> Ext | None:
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
    """Read a reasoning item. Its lists are kept if they cannot be rebuilt from the text."""
    signature = optional(raw, "encrypted_content", str)
    summary = _texts(raw, "summary")
    text = "\n\n".join(summary or _texts(raw, "content"))
    rest = {
        key: value
        for key, value in raw.items()
        if key != "type" and (key != "encrypted_content" or value is None)
    }
    if rest.get("summary") == summary_of(text):
        del rest["summary"]
    return Thinking(text, signature, {PROTOCOL: rest} if rest else None)


def summary_of(text: str) -> list[JsonObject]:
    """The `summary` with this text; empty if the text is."""
    return [{"type": "summary_text", "text": text}] if text else []


def _texts(raw: JsonObject, key: str) -> list[str]:
    if raw.get(key) is None:
        return []
    return [str(part["text"]) for part in objects(raw[key], key) if part.get("text")]


CALLS: dict[str, Callable[[JsonObject], Block]] = {
    "function_call": decode_call,
    "custom_tool_call": decode_custom_call,
    "reasoning": decode_reasoning,
}

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
    """Writes the items of one request and collects the losses."""

    def __init__(self, losses: Losses, *, native: bool, request: Request | None = None) -> None:
        self.request = request
        self.losses = losses
        self.native = native
        self._custom: set[str] = set()
        self._last = ""

    def turn(self, turn: Turn) -> list[JsonObject]:
        """The items of one turn."""
        if not self.native and not self._custom:
            common = write_common(turn, self._last, self.losses)
            if common is not None:
                self._last = turn.role
                return common
        return self.any_turn(turn)

    def any_turn(self, turn: Turn) -> list[JsonObject]:
        """Like `turn`, for a turn of any shape."""
        role = turn.role
        if (text := _one_text(turn)) is not None:
            self._last = role
            return [{"role": "user" if role == "tool" else role, "content": text}]
        emptied = bool(turn.message.blocks) and not turn.blocks
        if role == "assistant" and emptied:
            report_dropped_message(turn, self.losses)
            return []
        if role == "assistant":
            items = self.assistant(turn.message, turn.blocks, turn.positions, turn.position)
            if not self.native and turn.blocks:
                self._report_form(turn)
        else:
            items = self._user_items(turn)
        self._last = role
        return items

    def _report_form(self, turn: Turn) -> None:
        """Report what a flat list of items cannot express about an assistant turn."""
        if self._last == "assistant" and type(turn.blocks[0]) not in TEXT_BLOCKS:
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
        run: list[Block] = []
        mixed = not self.native and ToolResult in {type(block) for block in turn.blocks}
        for block, position in zip(turn.blocks, turn.positions, strict=True):
            if mixed and not isinstance(block, ToolResult):
                self.losses.add(position, "beside_results_moved")
            if isinstance(block, ToolResult) or (
                isinstance(block, Opaque) and turn.message.form == "absent"
            ):
                if run:
                    items.append(self._message(turn, run))
                    run = []
                items.append(self._single(block, position))
            else:
                run.append(self._with_required_members(block, position))
        if run or not items:
            items.append(self._message(turn, run))
        return items

    def _with_required_members(self, block: Block, position: Any) -> Block:
        """A foreign block with what this protocol requires: an image needs a `detail`."""
        if self.native:
            return block
        block = self._convert(block, position)
        if not isinstance(block, Image) or block.detail is not None:
            return block
        self.losses.add(position, "default_added", "detail: auto")
        return structs.replace(block, detail="auto")

    def _convert(self, block: Block, position: Any) -> Block:
        """A file needs a name. Only the assistant may send a refusal, so others send text."""
        if isinstance(block, File):
            return with_default_name(block, position, self.losses)
        if not isinstance(block, Refusal):
            return block
        self.losses.add(position, "refusal_as_text")
        return Text(block.text)

    def _single(self, block: ToolResult | Opaque, position: Any) -> JsonObject:
        return dict(block.raw) if isinstance(block, Opaque) else self.result(block, position)

    def _message(self, turn: Turn, blocks: Sequence[Block]) -> JsonObject:
        message = turn.message
        members = (message.ext or {}).get(PROTOCOL, {})
        if not blocks and "item" in members:
            return members["item"]
        role = "user" if turn.role == "tool" else turn.role
        body: JsonObject = {"role": role}
        form: Form = message.form if blocks or not message.blocks else "text"
        body.update(self._content(form, blocks, INPUT, turn.position))
        body.update(members)
        return body

    def _content(self, form: Form, blocks: Sequence[Block], kind: str, at: Any) -> JsonObject:
        if not blocks and form in ("null", "absent"):
            if self.native:
                return {"content": None} if form == "null" else {}
            self.losses.add(at, "default_added", 'content: ""')
            return {"content": ""}
        if not blocks and not self.native:
            form = self._empty_form(form, at)
        return {"content": write_content(blocks, form, kind, at, self.losses)}

    def _empty_form(self, form: Form, at: Any) -> Form:
        """The form of empty content: some servers refuse an empty list, none an empty string."""
        if form == "list":
            self.losses.add(at, "list_as_string")
        return "text"

    def assistant(
        self, message: Message, blocks: Sequence[Block], positions: list[Any], at: Any = ()
    ) -> list[JsonObject]:
        """The items of an assistant turn; adjacent texts are one message item."""
        items: list[JsonObject] = []
        orphaned = self._without_reasoning(message, blocks, positions)

        def add(item: JsonObject, position: Any) -> None:
            if position in orphaned and "id" in item:
                self.losses.add(position, "item_id_dropped", item.pop("id"))
                if item.get("type") == "message" and _has_refusal(item):
                    # Only an item with an id may contain a refusal. A new item needs plain text.
                    item = {"role": "assistant", "content": _item_text(item)}
            items.append(item)

        if not blocks:
            body: JsonObject = {"role": "assistant"}
            body.update(self._content(message.form, blocks, OUTPUT, at))
            body.update((message.ext or {}).get(PROTOCOL, {}))
            return [body]
        run: list[Block] = []
        for number, block in enumerate(blocks):
            if type(block) in TEXT_BLOCKS:
                if run and (item_members(block) is not None or self._has_no_item(run)):
                    start = positions[number - len(run)]
                    add(self._message_item(message.form, run, start), start)
                    run = []
                run.append(block)
                continue
            if run:
                start = positions[number - len(run)]
                add(self._message_item(message.form, run, start), start)
                run = []
            add(self._other_item(block, positions[number]), positions[number])
        if run:
            start = positions[len(blocks) - len(run)]
            add(self._message_item(message.form, run, start), start)
        return items

    def _without_reasoning(
        self, message: Message, blocks: Sequence[Block], positions: list[Any]
    ) -> set[Any]:
        """The positions of texts and calls that lost the reasoning before them.

        Such an item must not keep its id. The vendor looks it up and refuses it: "Item 'fc_...' of
        type 'function_call' was provided without its required 'reasoning' item"
        (https://github.com/continuedev/continue/issues/10018). Without an id it is a new item.

        A client's request is complete, so an answer without reasoning never had any. A thread may
        have been compacted, so there every answer without reasoning may have lost it.
        """
        if self.native:
            return set()
        shortened = self.request is not None and self.request.wire is None
        orphaned: set[Any] = set()
        written: Any = None
        for block, position in zip(blocks, positions, strict=True):
            if isinstance(block, Thinking | Redacted):
                written = position
                continue
            depends = type(block) in TEXT_BLOCKS or isinstance(block, ToolCall)
            if not depends:
                continue
            if _loses_reasoning(message, written, position) or (shortened and written is None):
                orphaned.add(position)
        return orphaned

    def _has_no_item(self, run: list[Block]) -> bool:
        """Whether these texts come from another protocol: each is written as one string."""
        return not self.native and item_members(run[0]) is None

    def _message_item(self, form: Form, run: list[Block], position: Any) -> JsonObject:
        item = item_members(run[0])
        body: JsonObject = {"role": "assistant"}
        if self._has_no_item(run):
            body["content"] = "".join(texts(run))
            return body
        if item is not None:
            body.update(item)
            form = "text" if item.get("content") == "" else "list"
            if body.pop("content", "") != "" and len(run) == 1 and is_empty(run[0]):
                body["content"] = item["content"]
                return body
        body["content"] = write_content(run, form, OUTPUT, position[:-1], self.losses)
        return body

    def _other_item(self, block: Block, position: Any) -> JsonObject:
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

    def call(self, block: ToolCall, position: Any = ()) -> JsonObject:
        call_id = self._legal(block.id, position)
        if block.custom:
            self._custom.add(block.id)
            body: JsonObject = {"type": "custom_tool_call", "input": block.arguments}
        else:
            body = {"type": "function_call", "arguments": block.arguments}
        body["call_id"] = call_id
        body["name"] = block.name
        if block.namespace is not None:
            body["namespace"] = block.namespace
        return _with_ext(body, block.ext)

    def _legal(self, call_id: str, position: Any) -> str:
        legal = call_id if self.native else legal_id(call_id)
        if legal != call_id:
            report_new_id(call_id, position, self.losses)
        return legal

    def result(self, block: ToolResult, position: Any) -> JsonObject:
        """A call's result. The protocol has no error flag, so `is_error` is reported as lost."""
        custom = block.custom or block.call_id in self._custom
        body: JsonObject = {
            "type": "custom_tool_call_output" if custom else "function_call_output",
            "call_id": self._legal(block.call_id, position),
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

    def _output(self, block: ToolResult, position: Any) -> Any:
        content, form = block.content, _result_form(block)
        if self.request is not None and not self.native:
            parts = supported_result_parts(
                block, position, self.request, CHECKS, PROTOCOL, self.losses
            )
            content = tuple(self._convert(part, at) for part, at in parts)
            form = form if content else self._empty_form(form, position)
        return write_content(content, form, INPUT, position, self.losses)


def _loses_reasoning(message: Message, written: Any, position: Any) -> bool:
    """Whether reasoning between the positions `written` and `position` was dropped."""
    start = 0
    if written is not None:
        if written[0] != position[0]:
            return False  # two messages that became one turn
        start = written[1] + 1
    before = message.blocks[start : position[1]]
    return any(isinstance(block, Thinking | Redacted) for block in before)


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
    """The members of the message item that begins with this block; `None` if none does."""
    ext: Ext | None = getattr(block, "ext", None)
    members = ext.get(PROTOCOL) if ext is not None else None
    return members.get("item") if members is not None else None


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
    """The assistant's call or text, or a message of another role; `None` for other shapes."""
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
                result = ToolResult(call_id, (Text(output),), None, None, False, "text")
                return Message("tool", (result,), None, None, "list")
            texts = decode_texts(output, INPUT)
            if texts is not None:
                result = ToolResult(call_id, texts, None, None, False, "list")
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
    """The items of a foreign turn, or `None` if it has another shape; then nothing was reported.

    `last_role` is the role of the turn before.
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
    """Each text is a message item, each call an item; this protocol has no turns."""
    items: list[JsonObject] = []
    for block in turn.blocks:
        if type(block) is Text:
            if block.ext is not None:
                return None
            items.append({"role": "assistant", "content": block.text})
            continue
        if type(block) is not ToolCall or block.ext is not None or block.custom:
            return None
        if block.namespace is not None or legal_id(block.id) != block.id:
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
    items: list[JsonObject] = []
    for block in turn.blocks:
        if type(block) is not ToolResult:
            return None
        if block.ext is not None or block.name is not None or block.custom:
            return None
        texts, call_id = plain_texts(block.content), block.call_id
        if not texts or legal_id(call_id) != call_id:
            return None
        output = texts[0] if len(texts) == 1 and block.form != "list" else _text_parts(texts)
        items.append({"type": "function_call_output", "call_id": call_id, "output": output})
    for at, block in enumerate(turn.blocks):
        if type(block) is ToolResult and block.is_error is not None:
            report_error_flag(turn.position_of(at), block.is_error, losses)
    return items


def _text_parts(texts: list[str]) -> list[JsonObject]:
    return [{"type": INPUT, "text": text} for text in texts]


def report_error_flag(position: Any, is_error: bool, losses: Losses) -> None:
    """Report the `is_error` of a result, which has no member here."""
    if is_error:
        losses.add(position, "error_flag_dropped", "true", "meaning")
    else:
        losses.add(position, "error_flag_dropped", "false", "form")


def legal_id(call_id: str) -> str:
    """The id within the length limit."""
    return fitting_id(call_id, CALL_ID_LENGTH)
