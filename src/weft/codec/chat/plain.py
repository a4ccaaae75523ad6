"""Messages with nothing unusual about them, read and written in one go.

Nearly all are: words, words and calls, or a result, in just the members that these need. They are
recognised by their exact shape, so whatever is in any way different is left to `messages`, which
reads every message, and reads these to the same value; and what is written here, `turns` would
write the same.
"""

from typing import Any, cast

from weft.codec.call_ids import fitting_id
from weft.codec.repair import ANSWERERS, Turn
from weft.model import Block, Form, JsonObject, Message, Text, ToolCall, ToolResult

from .wire import CALL_ID_LENGTH

PLAIN_ROLES = frozenset({"user", "assistant"})
SPEAKERS = frozenset({"user", "assistant", "system", "developer"})
"""Roles whose message may be just a text."""


def decode_plain(raw: JsonObject) -> Message | None:
    """The message, or `None` where there is more to it than these shapes."""
    try:
        role, said, size = raw["role"], raw["content"], len(raw)
        if size == 2:
            if type(said) is str and said and type(role) is str and role in SPEAKERS:
                return Message(role, (Text(said),), None, None, "text")
        elif size == 3:
            if role == "assistant":
                return _decode_calling(said, raw["tool_calls"])
            call_id = raw["tool_call_id"]
            if role == "tool" and type(call_id) is str and type(said) is str and said:
                result = ToolResult(call_id, (Text(said),), None, None, False, "text")
                return Message(role, (result,))
    except KeyError:
        pass  # a member is not there
    return None


def _decode_calling(said: Any, calls: Any) -> Message | None:
    blocks: list[Block] = []
    form: Form = "text"
    if type(said) is list:
        form = "list"
        for part in cast(list[JsonObject], said):
            if type(part) is not dict or len(part) != 2 or part["type"] != "text":
                return None
            text = part["text"]
            if type(text) is not str:
                return None
            blocks.append(Text(text))
    elif said is None:
        form = "null"
    elif type(said) is not str:
        return None
    elif said:
        blocks.append(Text(said))
    if type(calls) is not list or not calls:
        return None
    for call in cast(list[JsonObject], calls):
        if type(call) is not dict or len(call) != 3 or call["type"] != "function":
            return None
        call_id, function = call["id"], cast(JsonObject, call["function"])
        if type(call_id) is not str or type(function) is not dict or len(function) != 2:
            return None
        name, text = function["name"], function["arguments"]
        if type(name) is not str or type(text) is not str:
            return None
        blocks.append(ToolCall(call_id, name, text))
    return Message("assistant", tuple(blocks), None, None, form)


def write_plain(turn: Turn) -> JsonObject | None:
    """The one message of a turn with nothing unusual about it, as nearly all are: words, a result
    that is one text, or words and then calls; `None` for any other."""
    message, blocks = turn.message, turn.blocks
    if message.ext is not None or message.name is not None or not blocks:
        return None
    first = blocks[0]
    if len(blocks) == 1:
        if type(first) is Text:
            if message.form != "text" or first.ext is not None or turn.role not in PLAIN_ROLES:
                return None
            return {"role": turn.role, "content": first.text}
        if type(first) is ToolResult:
            if first.is_error is not None or first.form != "text" or len(first.content) != 1:
                return None
            if turn.role not in ANSWERERS:
                return None
            said, call_id = first.content[0], first.call_id
            if type(said) is not Text or said.ext is not None or legal_id(call_id) != call_id:
                return None
            return {"role": "tool", "tool_call_id": call_id, "content": said.text}
    if turn.role != "assistant":
        return None
    content: Any = None
    if type(first) is Text and first.ext is None:
        content = first.text  # beside calls a list of one text says no more than a string
        blocks = blocks[1:]
    calls = [_write_call(block) for block in blocks]
    if not calls or None in calls:
        return None
    return {"role": "assistant", "content": content, "tool_calls": calls}


def _write_call(block: Block) -> JsonObject | None:
    if type(block) is not ToolCall or block.ext is not None or block.custom:
        return None
    if block.namespace is not None or not block.arguments or legal_id(block.id) != block.id:
        return None
    function = {"name": block.name, "arguments": block.arguments}
    return {"id": block.id, "type": "function", "function": function}


def legal_id(call_id: str) -> str:
    """The id in the length this wire takes: the same every turn, and two never become one."""
    if len(call_id) <= CALL_ID_LENGTH and call_id.isidentifier():
        return call_id  # nearly all; a marked one has a hyphen
    return fitting_id(call_id, CALL_ID_LENGTH)
