"""A shortcut for items of the common shapes: text, calls and results without other members.

Nearly all items have one of these shapes. An item with anything else in it, and only that item, is
left to `items`, which reads and writes every item. Both give the same result; a shortcut costs a
fraction of the time.
"""

from typing import Any

from weft.codec.base import Losses
from weft.codec.call_ids import fitting_id
from weft.codec.pairing import Turn
from weft.codec.repair import decode_texts, plain_texts
from weft.model import SYSTEM_ROLES, JsonObject, Message, Text, ToolCall, ToolResult

from .blocks import INPUT
from .wire import CALL_ID_LENGTH


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
    texts: list[str] = []
    for block in turn.blocks:
        if type(block) is not Text or block.ext is not None:
            return None
        texts.append(block.text)
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
        losses.add(turn.at, "message_boundary_dropped")
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
        texts, call_id = plain_texts(block), block.call_id
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
    """The id within the length limit: the same every turn, and two ids never become one."""
    if len(call_id) <= CALL_ID_LENGTH and call_id.isidentifier():
        return call_id  # nearly all; a marked one has a hyphen
    return fitting_id(call_id, CALL_ID_LENGTH)
