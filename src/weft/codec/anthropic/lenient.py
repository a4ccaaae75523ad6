"""Answers of this protocol with gaps, completed before they are read."""

from typing import Any, cast

from weft.codec.base import Losses, members
from weft.codec.lenient import RETYPED, arguments_object, made_call_id, with_text, with_type
from weft.model import JsonObject

BLOCK_TYPES = {
    "text": "text",
    "thinking": "thinking",
    "input": "tool_use",
    "data": "redacted_thinking",
}
TEXT_MEMBERS = {"text": "text", "thinking": "thinking", "redacted_thinking": "data"}
"""The member of a block that must be a text, by the type of the block."""


def complete_content(content: Any, losses: Losses) -> Any:
    """The content of an answer as a list of complete blocks."""
    if isinstance(content, str):
        losses.add("content", "content as a string", RETYPED, "form")
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        return content
    return [
        complete_block(fields, number, f"content[{number}]", losses)
        if (fields := members(block)) is not None
        else block
        for number, block in enumerate(cast(list[Any], content))
    ]


def complete_block(raw: JsonObject, number: int, path: str, losses: Losses) -> JsonObject:
    """A block; the id and input of a call may be missing, its name may not."""
    raw = with_type(raw, BLOCK_TYPES, path, losses)
    kind = raw.get("type")
    if kind == "tool_use":
        if type(raw.get("input")) is not dict:
            written = arguments_object(raw.get("input"), f"{path}.input", losses)
            raw = {**raw, "input": written}
        if not isinstance(raw.get("id"), str):
            raw = {**raw, "id": made_call_id(raw, "id", number, path, losses)}
        return raw
    member = TEXT_MEMBERS.get(kind) if isinstance(kind, str) else None
    return raw if member is None else with_text(raw, member, path, losses)
