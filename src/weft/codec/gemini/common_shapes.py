"""A shortcut for parts of the common shapes: text, calls and results without other members.

Nearly all parts have one of these shapes. A part with anything else in it, and only that part, is
left to `blocks`, which reads and writes every part. Both give the same result; a shortcut costs a
fraction of the time.
"""

from collections.abc import Callable
from typing import Any, cast

from orjson import dumps

from weft.codec.base import Losses
from weft.codec.repair import plain_texts
from weft.model import Block, JsonObject, Position, Text, ToolCall, ToolResult


def decode_common(raw: JsonObject) -> Block | None:
    """The block, or `None` if the part has another shape."""
    if len(raw) != 1:
        return None
    ((kind, value),) = raw.items()
    if kind == "text":
        return Text(value) if type(value) is str else None
    if type(value) is not dict or len(cast(JsonObject, value)) != 3:
        return None
    inner = cast(JsonObject, value)
    name, call_id = inner.get("name"), inner.get("id")
    if type(name) is not str or not name or type(call_id) is not str or not call_id:
        return None
    if kind == "functionCall":
        arguments = inner.get("args")
        if type(arguments) is not dict:
            return None
        try:
            return ToolCall(call_id, name, dumps(arguments).decode())
        except TypeError:  # not JSON; `PartReader` says where
            return None
    if kind != "functionResponse":
        return None
    response = inner.get("response")
    if type(response) is not dict or len(cast(JsonObject, response)) != 1:
        return None
    ((member, text),) = cast(JsonObject, response).items()
    if type(text) is not str or not text or member not in ("output", "error"):
        return None
    is_error = True if member == "error" else None
    return ToolResult(call_id, (Text(text),), is_error, name, False, "text")


def write_common(block: Block, embed: Callable[[str], Any]) -> JsonObject | None:
    """The part of a text or a call, or `None` if it has another shape."""
    if type(block) is Text:
        return {"text": block.text} if block.ext is None else None
    if type(block) is not ToolCall or block.ext is not None or block.custom:
        return None
    if block.namespace is not None or block.arguments[:1] != "{":
        return None
    try:
        arguments = embed(block.arguments)
    except ValueError:
        return None
    return {"functionCall": {"name": block.name, "args": arguments, "id": block.id}}


def write_common_result(
    block: ToolResult, call: ToolCall | None, position: Position, losses: Losses
) -> JsonObject | None:
    """The part of a foreign result, or `None` if it has another shape; then nothing was reported.

    `call` is the call that it answers.
    """
    if block.ext is not None or call is None or call.ext is not None:
        return None
    texts = plain_texts(block)
    if not texts or call.namespace is not None or not call.name:
        return None
    text = texts[0]
    if len(texts) > 1:
        text = "\n".join(texts)
        losses.add(position, "text_boundary_dropped", "texts")
    elif block.form == "list":
        losses.add(position, "list_as_string")
    if block.is_error is False:
        losses.add(position, "error_flag_dropped", "false")
    response = {"error" if block.is_error else "output": text}
    return {"functionResponse": {"name": call.name, "id": block.call_id, "response": response}}
