"""A shortcut for messages of the common shapes: text, calls and results without other members.

Nearly all messages have one of these shapes. A message with anything else in it, and only that
message, is left to `messages`, which reads and writes every message. Both give the same result; a
shortcut costs a fraction of the time.
"""

from typing import Any

from weft.codec.base import Losses
from weft.codec.call_ids import fitting_id
from weft.codec.pairing import NO_RESULT, Turn
from weft.codec.repair import decode_texts, plain_texts
from weft.model import (
    SYSTEM_ROLES,
    Block,
    Form,
    JsonObject,
    Message,
    Position,
    Text,
    ToolCall,
    ToolResult,
)

from .wire import CALL_ID_LENGTH

TEXT_ROLES = frozenset({"user", "assistant", "system", "developer"})
"""Roles whose message may be just a text."""


def decode_common(raw: JsonObject) -> Message | None:
    """The message, or `None` if it has another shape."""
    try:
        role, content, size = raw["role"], raw["content"], len(raw)
        if type(role) is not str:
            return None
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
            return _decode_calls(content, raw["tool_calls"])
        if role != "tool":
            return None
        call_id = raw["tool_call_id"]
        if type(call_id) is not str:
            return None
        if type(content) is str:
            if not content:
                return None
            result = ToolResult(call_id, (Text(content),), None, None, False, "text")
            return Message(role, (result,))
        texts = decode_texts(content, "text")
        if texts is None:
            return None
        return Message(role, (ToolResult(call_id, texts, None, None, False, "list"),))
    except KeyError:
        return None


def _decode_calls(content: Any, calls: list[JsonObject]) -> Message | None:
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
    """The messages of a turn, or `None` if it has another shape; then nothing was reported."""
    message = turn.message
    if message.ext is not None or message.name is not None or not turn.blocks:
        return None
    if turn.role == "assistant":
        return _write_assistant(turn)
    if message.role in SYSTEM_ROLES:
        return None
    if type(turn.blocks[0]) is ToolResult:
        return _write_results(turn, losses)
    texts: list[str] = []
    for block in turn.blocks:
        if type(block) is not Text or block.ext is not None:
            return None
        texts.append(block.text)
    content = texts[0] if message.form != "list" and len(texts) == 1 else _text_parts(texts)
    return [{"role": "user" if turn.role == "tool" else turn.role, "content": content}]


def _write_assistant(turn: Turn) -> list[JsonObject] | None:
    texts: list[str] = []
    calls: list[JsonObject] = []
    for block in turn.blocks:
        if type(block) is Text:
            if block.ext is not None or calls:  # a text behind a call is moved, and reported
                return None
            texts.append(block.text)
            continue
        if type(block) is not ToolCall or block.ext is not None or block.custom:
            return None
        call_id = block.id
        if block.namespace is not None or not block.arguments or legal_id(call_id) != call_id:
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


def _write_results(turn: Turn, losses: Losses) -> list[JsonObject] | None:
    messages: list[JsonObject] = []
    for block in turn.blocks:
        if type(block) is not ToolResult:
            return None
        texts, call_id = plain_texts(block), block.call_id
        if not texts or legal_id(call_id) != call_id:
            return None
        content = texts[0] if len(texts) == 1 and block.form != "list" else _text_parts(texts)
        messages.append({"role": "tool", "tool_call_id": call_id, "content": content})
    for at, block in enumerate(turn.blocks):
        if type(block) is ToolResult and block.is_error is not None:
            report_error_flag(turn.position_of(at), block, losses)
    return messages


def _text_parts(texts: list[str]) -> list[JsonObject]:
    return [{"type": "text", "text": text} for text in texts]


def report_error_flag(at: Position, result: ToolResult, losses: Losses) -> None:
    """Report the `is_error` of a result. It is a loss of meaning if the tool failed, unless the
    text is our own and says so."""
    if result.is_error:
        report_outcome(at, True, result.content == (Text(NO_RESULT),), losses)
    elif result.is_error is not None:
        losses.add(at, "error_flag_dropped", "false", "form")


def report_outcome(at: Position | str, is_error: bool, is_ours: bool, losses: Losses) -> None:
    """Report an `is_error`; `is_ours` is whether the result is the one we add ourselves."""
    level = "meaning" if is_error and not is_ours else "form"
    losses.add(at, "error_flag_dropped", "true" if is_error else "false", level)


def legal_id(call_id: str) -> str:
    """The id within the length limit: the same every turn, and two ids never become one."""
    if len(call_id) <= CALL_ID_LENGTH and call_id.isidentifier():
        return call_id  # nearly all; a marked one has a hyphen
    return fitting_id(call_id, CALL_ID_LENGTH)
