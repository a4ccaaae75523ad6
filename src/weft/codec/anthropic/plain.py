"""Contents with nothing unusual about them, read in one go.

Nearly all are: texts, calls and results, in just the members that these need. They are recognised
by their exact shape, so whatever is in any way different is left to `blocks`, which reads every
block, and reads these to the same value.
"""

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
