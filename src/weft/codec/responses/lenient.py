"""Answers of this protocol with gaps, completed before they are read."""

from typing import Any, cast

from weft.codec.base import Losses, members
from weft.codec.lenient import (
    RETYPED,
    WHY,
    arguments_text,
    made_call_id,
    with_text,
    with_type,
)
from weft.model import JsonObject

ITEM_TYPES = {
    "content": "message",
    "arguments": "function_call",
    "input": "custom_tool_call",
    "summary": "reasoning",
    "encrypted_content": "reasoning",
}
PART_TYPES = {"text": "output_text", "refusal": "refusal"}


def complete_item(raw: JsonObject, number: int, path: str, losses: Losses) -> JsonObject:
    """An item of a response; the ids and arguments of a call may be missing, its name may not."""
    raw = with_type(raw, ITEM_TYPES, path, losses)
    match raw.get("type"):
        case "message":
            content = raw.get("content")
            if isinstance(content, list):
                parts = [
                    complete_part(part, f"{path}.content[{index}]", losses)
                    for index, part in enumerate(cast(list[Any], content))
                ]
                raw = {**raw, "content": parts}
        case "function_call":
            if type(raw.get("arguments")) is not str:
                where = f"{path}.arguments"
                raw = {**raw, "arguments": arguments_text(raw.get("arguments"), where, losses)}
            raw = _with_call_id(raw, number, path, losses)
        case "custom_tool_call":
            raw = _with_call_id(with_text(raw, "input", path, losses), number, path, losses)
        case _:
            pass
    return raw


def complete_part(part: Any, path: str, losses: Losses) -> Any:
    """A part of a message item: one that is a string is a text."""
    if isinstance(part, str):
        losses.add(path, "a part as a string", RETYPED, "form")
        return {"type": "output_text", "text": part}
    fields = members(part)
    if fields is None:
        return part
    fields = with_type(fields, PART_TYPES, path, losses)
    if fields.get("type") == "output_text":
        return with_text(fields, "text", path, losses)
    return fields


def _with_call_id(raw: JsonObject, number: int, path: str, losses: Losses) -> JsonObject:
    """The item with a `call_id`: results name the call by it, so the item's own id may stand in."""
    if isinstance(raw.get("call_id"), str):
        return raw
    key = "id" if raw.get("call_id") is None and isinstance(raw.get("id"), str) else "call_id"
    call_id = made_call_id(raw, key, number, path, losses)
    if key == "id":
        losses.add(f"{path}.call_id", "nothing: the item's id was used", WHY, "form")
    return {**raw, "call_id": call_id}
