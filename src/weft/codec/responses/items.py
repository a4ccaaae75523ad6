"""Items, both ways: the flat list of this wire, and the messages of the model.

The wire has no turns. Consecutive items of the assistant (reasoning, messages with an id, calls,
hosted tools) are one `Message` with several blocks; a message item without an id begins a new one,
because a client wrote it as a turn of its own. Everything else is a `Message` by itself.

The same items come back, because the border and the members of a message item (`id`, `status`,
`phase`) stay with its first part, in `ext[PROTOCOL]["item"]`; there `content` is kept only where it
was no plain list of parts. Reasoning and calls are one block each and keep their members directly.
An item nobody knows is carried whole.
"""

from collections.abc import Callable

from weft.codec.read import inside, objects, optional, rest_of, text_of, wrong
from weft.errors import Refused
from weft.model import (
    SYSTEM_ROLES,
    Block,
    Ext,
    Form,
    JsonObject,
    Message,
    Opaque,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

from .blocks import INPUT, OUTPUT, decode_content
from .wire import PROTOCOL

MESSAGE = frozenset({"role", "content"})
CALL = frozenset({"type", "call_id", "name", "arguments"})
CUSTOM_CALL = frozenset({"type", "call_id", "name", "input"})
RESULT = frozenset({"type", "call_id", "output"})
REFERENCE = frozenset({"type", "id"})
"""Members of an item that stands for another; its type may be left out."""

ANSWERS = ("_call_output", "_approval_response")
"""How the types of items end that a client answers hosted calls with."""

WISHES = frozenset({"agent_message", "compaction_trigger"})
"""Items of the client's side: what another agent says, or a wish for something else than an
answer."""


class Grouping:
    """Takes items one by one; `messages` is what they mean, `starts` the item each began with.

    `references` are the items that stand for others which only the vendor has.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.starts: list[int] = []
        self.references: list[int] = []
        self._blocks: list[Block] = []
        self._form: Form = "list"

    def add(self, number: int, raw: JsonObject) -> None:
        """One item; raises `Refused` with a path inside it."""
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
            self._alone(number, Message("tool", (decode_result(raw),), form="list"))
        else:
            self._unknown(number, raw, kind)

    def close(self) -> None:
        """End the assistant's message that is still open."""
        if self._blocks:
            self.messages.append(Message("assistant", tuple(self._blocks), form=self._form))
            self._blocks = []
            self._form = "list"

    def _message(self, number: int, raw: JsonObject) -> None:
        role = text_of(raw, "role")
        if role != "assistant":
            blocks, form = decode_content(raw, "content", INPUT)
            ext = rest_of(raw, MESSAGE, PROTOCOL)
            self._alone(number, Message(role, blocks, form=form, ext=ext))
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
            ext = rest_of(raw, MESSAGE, PROTOCOL)
            self._alone(number, Message(role, form=form, ext=ext))

    def _unknown(self, number: int, raw: JsonObject, kind: str) -> None:
        role = raw.get("role")
        if kind == "item_reference":
            self.references.append(number)
        if role in SYSTEM_ROLES:  # setup in the place of a message: it says nothing by itself
            ext: Ext = {PROTOCOL: {"item": raw}}
            self._alone(number, Message(role, (), form="absent", ext=ext))
        elif type(role) is str and role != "assistant":
            self._alone(number, Message(role, (Opaque(PROTOCOL, raw),), form="absent"))
        elif kind.endswith(ANSWERS):
            self._alone(number, Message("tool", (Opaque(PROTOCOL, raw),), form="absent"))
        elif kind in WISHES:
            self._alone(number, Message("user", (Opaque(PROTOCOL, raw),), form="absent"))
        else:
            self._join(number, [Opaque(PROTOCOL, raw)])

    def _join(self, number: int, blocks: list[Block]) -> None:
        if not self._blocks:
            self.starts.append(number)
        self._blocks += blocks

    def _alone(self, number: int, message: Message) -> None:
        self.close()
        self.starts.append(number)
        self.messages.append(message)


SAID = frozenset({Text, Refusal})
"""What an assistant's message item is made of; one with other parts is kept whole."""


def decode_items(items: list[JsonObject]) -> Grouping:
    """The messages of an `input` list; raises `Refused` with the item's path."""
    grouping = Grouping()
    for number, raw in enumerate(items):
        try:
            grouping.add(number, raw)
        except Refused as error:
            raise inside(f"input[{number}]", error) from None
    grouping.close()
    return grouping


def decode_output_item(raw: JsonObject) -> list[Block]:
    """The blocks of one item of a response; never none."""
    kind = raw.get("type")
    if kind == "message":
        return decode_message(raw)
    if not isinstance(kind, str):
        raise wrong("type", kind, "a string")
    decode = CALLS.get(kind)
    return [Opaque(PROTOCOL, raw) if decode is None else decode(raw)]


def decode_message(raw: JsonObject) -> list[Block]:
    """The parts of an assistant's message item, its border on the first."""
    blocks, form = decode_content(raw, "content", OUTPUT)
    if any(type(block) not in SAID for block in blocks):
        return [Opaque(PROTOCOL, raw)]
    return _bordered(raw, list(blocks), form)


def _bordered(raw: JsonObject, blocks: list[Block], form: Form) -> list[Block]:
    item = {key: value for key, value in raw.items() if key not in MESSAGE}
    if form != "list" and item:
        item["content"] = "" if form == "text" else None
    if not blocks:
        item["content"] = raw.get("content")
        blocks = [Text("")]
    if item:
        first = blocks[0]
        assert isinstance(first, Text | Refusal)
        own = (first.ext or {}).get(PROTOCOL, {})
        blocks[0] = type(first)(first.text, {PROTOCOL: {"item": item, **own}})
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
    return rest_of(raw, known | {"namespace"} if raw.get("namespace") else known, PROTOCOL)


def decode_result(raw: JsonObject) -> ToolResult:
    content, form = decode_content(raw, "output", INPUT)
    return ToolResult(
        text_of(raw, "call_id"),
        content,
        custom=raw["type"] == "custom_tool_call_output",
        form=form,
        ext=rest_of(raw, RESULT, PROTOCOL),
    )


def decode_reasoning(raw: JsonObject) -> Thinking:
    """One reasoning item. Its lists are kept where the text alone would not give them back."""
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
    """The summary that says this text, and nothing when there is none."""
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
