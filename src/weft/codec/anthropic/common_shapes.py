"""A shortcut for blocks of the common shapes: text, thinking, calls and results.

Nearly all blocks have exactly the usual members. A block with anything else in it, and only that
block, is left to `blocks`, which reads and writes every block. Both give the same result; a
shortcut costs a fraction of the time.
"""

from collections.abc import Callable
from typing import Any, cast

from orjson import dumps

from weft.codec.repair import has_plain_texts
from weft.model import Block, JsonObject, Text, Thinking, ToolCall, ToolResult


def decode_common(raw: JsonObject) -> Block | None:
    """The block, or `None` if it has another shape."""
    kind, size = raw.get("type"), len(raw)
    if kind == "text":
        if size == 2 and type(text := raw.get("text")) is str:
            return Text(text)
    elif kind == "tool_use":
        call_id, name, arguments = raw.get("id"), raw.get("name"), raw.get("input")
        if size == 4 and type(arguments) is dict and type(call_id) is str and type(name) is str:
            try:
                return ToolCall(call_id, name, dumps(arguments).decode())
            except TypeError:  # not JSON; `decode_block` says where
                return None
    elif kind == "tool_result":
        return _decode_result(raw, size)
    elif kind == "thinking":
        text, signature = raw.get("thinking"), raw.get("signature")
        if size == 3 and type(text) is str and type(signature) is str:
            return Thinking(text, signature)
    return None


def _decode_result(raw: JsonObject, size: int) -> ToolResult | None:
    call_id, content, is_error = raw.get("tool_use_id"), raw.get("content"), raw.get("is_error")
    if type(call_id) is not str or size != (3 if is_error is None else 4):
        return None
    if is_error is not None and type(is_error) is not bool:
        return None
    if type(content) is str and content:
        return ToolResult(call_id, (Text(content),), is_error, None, False, "text")
    if type(content) is not list:
        return None
    texts: list[Text] = []
    for part in cast("list[JsonObject]", content):
        if type(part) is not dict or len(part) != 2 or part.get("type") != "text":
            return None
        text = part.get("text")
        if type(text) is not str:
            return None
        texts.append(Text(text))
    return ToolResult(call_id, tuple(texts), is_error, None, False, "list")


def write_common(block: Block, embed: Callable[[str], Any], *, native: bool) -> JsonObject | None:
    """The block on the wire, or `None` if it has another shape."""
    if type(block) is Text:
        return {"type": "text", "text": block.text} if block.ext is None else None
    if type(block) is ToolCall:
        call_id, text = block.id, block.arguments
        if block.ext is not None or block.custom or text[:1] != "{":
            return None
        if not (native or is_plain_id(call_id)):
            return None
        try:
            arguments = embed(text)
        except ValueError:
            return None
        return {"type": "tool_use", "id": call_id, "name": block.name, "input": arguments}
    if type(block) is Thinking:
        if block.ext is not None or block.signature is None:
            return None
        return {"type": "thinking", "thinking": block.text, "signature": block.signature}
    if type(block) is not ToolResult or block.ext is not None or not block.content:
        return None
    if not has_plain_texts(block) or not (native or is_plain_id(block.call_id)):
        return None
    if block.form != "list" and len(block.content) == 1:
        content: Any = cast(Text, block.content[0]).text
    else:
        content = [{"type": "text", "text": cast(Text, part).text} for part in block.content]
    body: JsonObject = {
        "type": "tool_result",
        "tool_use_id": block.call_id,
        "content": content,
    }
    if block.is_error is not None:
        body["is_error"] = block.is_error
    return body


def is_plain_id(call_id: str) -> bool:
    """Whether an id is surely within this protocol's alphabet; quicker than the pattern."""
    return call_id.isidentifier() and call_id.isascii()
