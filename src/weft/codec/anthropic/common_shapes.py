"""A shortcut for blocks of the common shapes: text, thinking, calls and results.

Nearly all blocks have exactly the usual members. A message with anything else in it, and only that
message, is left to `blocks`, which reads and writes every block. Both give the same result; a
shortcut costs a fraction of the time.
"""

from collections.abc import Callable, Sequence
from typing import Any

from orjson import dumps

from weft.codec.repair import decode_texts, plain_texts
from weft.model import Block, JsonObject, Text, Thinking, ToolCall, ToolResult


def decode_common(content: list[JsonObject]) -> tuple[Block, ...] | None:
    """The blocks of a message, or `None` if any of them has another shape."""
    blocks: list[Block] = []
    # One loop with subscripts inside one `try`: calls and `get` would double the time.
    try:
        for raw in content:
            kind, size = raw["type"], len(raw)
            if kind == "text":
                text = raw["text"]
                if size != 2 or type(text) is not str:
                    return None
                blocks.append(Text(text))
            elif kind == "tool_use":
                call_id, name, arguments = raw["id"], raw["name"], raw["input"]
                if size != 4 or type(call_id) is not str or type(name) is not str:
                    return None
                if type(arguments) is not dict:
                    return None
                blocks.append(ToolCall(call_id, name, dumps(arguments).decode()))
            elif kind == "tool_result":
                result = _decode_result(raw, size)
                if result is None:
                    return None
                blocks.append(result)
            elif kind == "thinking":
                text, signature = raw["thinking"], raw["signature"]
                if size != 3 or type(text) is not str or type(signature) is not str:
                    return None
                blocks.append(Thinking(text, signature))
            else:
                return None
    except (KeyError, TypeError):  # incomplete, or not JSON; `decode_block` says where
        return None
    return tuple(blocks)


def _decode_result(raw: JsonObject, size: int) -> ToolResult | None:
    call_id, content, is_error = raw["tool_use_id"], raw["content"], raw.get("is_error")
    if type(call_id) is not str or size != (3 if is_error is None else 4):
        return None
    if is_error is not None and type(is_error) is not bool:
        return None
    if type(content) is str:
        if not content:
            return None
        return ToolResult(call_id, (Text(content),), is_error, None, False, "text")
    texts = decode_texts(content, "text")
    if texts is None:
        return None
    return ToolResult(call_id, texts, is_error, None, False, "list")


def write_common(
    blocks: Sequence[Block], embed: Callable[[str], Any], native: bool
) -> list[JsonObject] | None:
    """The blocks on the wire, or `None` if any of them has another shape."""
    content: list[JsonObject] = []
    for block in blocks:
        if type(block) is Text:
            if block.ext is not None:
                return None
            content.append({"type": "text", "text": block.text})
        elif type(block) is ToolCall:
            call_id, text = block.id, block.arguments
            if block.ext is not None or block.custom or text[:1] != "{":
                return None
            if not (native or is_plain_id(call_id)):
                return None
            try:
                arguments = embed(text)
            except ValueError:
                return None
            content.append(
                {"type": "tool_use", "id": call_id, "name": block.name, "input": arguments}
            )
        elif type(block) is ToolResult:
            call_id, texts = block.call_id, plain_texts(block)
            if not texts or block.ext is not None or not (native or is_plain_id(call_id)):
                return None
            inner: Any = texts[0]
            if block.form == "list" or len(texts) > 1:
                inner = [{"type": "text", "text": text} for text in texts]
            body: JsonObject = {"type": "tool_result", "tool_use_id": call_id, "content": inner}
            if block.is_error is not None:
                body["is_error"] = block.is_error
            content.append(body)
        elif type(block) is Thinking:
            text, signature = block.text, block.signature
            if block.ext is not None or signature is None:
                return None
            content.append({"type": "thinking", "thinking": text, "signature": signature})
        else:
            return None
    return content


def is_plain_id(call_id: str) -> bool:
    """Whether an id is surely within this protocol's alphabet; quicker than the pattern."""
    return call_id.isidentifier() and call_id.isascii()
