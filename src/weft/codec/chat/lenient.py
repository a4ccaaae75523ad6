"""Answers of this protocol with gaps, completed before they are read."""

from typing import Any, cast

from weft.codec.base import Losses, members
from weft.codec.lenient import (
    RETYPED,
    arguments_text,
    made_call_id,
    with_text,
    with_type,
)
from weft.model import JsonObject

PART_TYPES = {"text": "text", "refusal": "refusal", "image_url": "image_url"}


def complete_message(raw: JsonObject, path: str, losses: Losses) -> JsonObject:
    """The assistant's message of an answer, with every member that its reader relies on."""
    message = {**raw, "role": "assistant"}
    content = raw.get("content")
    if isinstance(content, list):
        message["content"] = [
            complete_part(part, f"{path}.content[{number}]", losses)
            for number, part in enumerate(cast(list[Any], content))
        ]
    calls = raw.get("tool_calls")
    if isinstance(calls, list):
        message["tool_calls"] = [
            complete_call(call, number, f"{path}.tool_calls[{number}]", losses)
            for number, call in enumerate(cast(list[Any], calls))
        ]
    legacy = members(raw.get("function_call"))
    if legacy is not None and legacy.get("name"):
        where = f"{path}.function_call.arguments"
        written = arguments_text(legacy.get("arguments"), where, losses)
        message["function_call"] = {**legacy, "arguments": written}
    return message


def complete_part(part: Any, path: str, losses: Losses) -> Any:
    """A part of a content: one that is a string is a text."""
    if isinstance(part, str):
        losses.add(path, "a part as a string", RETYPED, "form")
        return {"type": "text", "text": part}
    fields = members(part)
    if fields is None:
        return part
    fields = with_type(fields, PART_TYPES, path, losses)
    return with_text(fields, "text", path, losses) if fields.get("type") == "text" else fields


def complete_call(call: Any, number: int, path: str, losses: Losses) -> Any:
    """A tool call; its id, type and arguments may be missing, its name may not."""
    raw = members(call)
    if raw is None:
        return call
    if raw.get("type") is None and "type" in raw:
        raw = {key: value for key, value in raw.items() if key != "type"}
    custom = raw.get("type") == "custom" or ("type" not in raw and "custom" in raw)
    kind, key = ("custom", "input") if custom else ("function", "arguments")
    if custom and "type" not in raw:
        raw = {**raw, "type": "custom"}
    inner = members(raw.get(kind))
    if inner is not None and type(inner.get(key)) is not str:
        where = f"{path}.{kind}"
        if custom:
            inner = with_text(inner, key, where, losses)
        else:
            written = arguments_text(inner.get(key), f"{where}.{key}", losses)
            inner = {**inner, key: written}
        raw = {**raw, kind: inner}
    if not isinstance(raw.get("id"), str):
        raw = {**raw, "id": made_call_id(raw, "id", number, path, losses)}
    return raw
