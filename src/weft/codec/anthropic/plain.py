"""Contents with nothing unusual about them, read and written in one go.

Nearly all are: texts, calls and results, in just the members that these need. They are recognised
by their exact shape, so whatever is in any way different is left to `blocks`, which reads every
block, and reads these to the same value; and what is written here, `blocks` would write the same.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from orjson import dumps

from weft.model import Block, JsonObject, Text, ToolCall, ToolResult


def decode_plain(content: Any) -> tuple[Block, ...] | None:
    """The blocks of a content, or `None` where there is more to it than these shapes."""
    if type(content) is not list:
        return None
    blocks: list[Block] = []
    try:
        for raw in cast(list[JsonObject], content):
            if type(raw) is not dict:
                return None
            kind, size = raw["type"], len(raw)
            if kind == "text" and size == 2:
                text = raw["text"]
                if type(text) is not str:
                    return None
                blocks.append(Text(text))
            elif kind == "tool_use" and size == 4:
                call_id, name, given = raw["id"], raw["name"], raw["input"]
                if type(call_id) is not str or type(name) is not str or type(given) is not dict:
                    return None
                blocks.append(ToolCall(call_id, name, dumps(given).decode()))
            elif kind == "tool_result" and size == 3:
                call_id, said = raw["tool_use_id"], raw["content"]
                if type(call_id) is not str or type(said) is not str or not said:
                    return None
                blocks.append(ToolResult(call_id, (Text(said),), None, None, False, "text"))
            else:
                return None
    except (KeyError, TypeError):  # a member is not there, or not JSON's
        return None
    return tuple(blocks)


def write_plain(
    blocks: Sequence[Block], embed: Callable[[str], Any], *, native: bool
) -> list[JsonObject] | None:
    """The blocks on the wire, or `None` where one of them has more to it than these shapes."""
    bodies: list[JsonObject] = []
    for block in blocks:
        if type(block) is Text:
            body: JsonObject = {"type": "text", "text": block.text}
        elif type(block) is ToolCall:
            call_id, text = block.id, block.arguments
            if block.custom or text[:1] != "{" or not (native or is_plain_id(call_id)):
                return None
            try:
                given = embed(text)
            except ValueError:
                return None
            body = {"type": "tool_use", "id": call_id, "name": block.name, "input": given}
        elif type(block) is ToolResult:
            call_id, content = block.call_id, block.content
            if block.form != "text" or block.is_error is not None or len(content) != 1:
                return None
            said = content[0]
            if (
                type(said) is not Text
                or said.ext is not None
                or not (native or is_plain_id(call_id))
            ):
                return None
            body = {"type": "tool_result", "tool_use_id": call_id, "content": said.text}
        else:
            return None
        if block.ext is not None:
            return None
        bodies.append(body)
    return bodies


def is_plain_id(call_id: str) -> bool:
    """Whether an id is surely in the alphabet of this wire; quicker asked than by the pattern."""
    return call_id.isidentifier() and call_id.isascii()
