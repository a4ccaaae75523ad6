"""Lists of messages and whole request bodies, of any of the four protocols; and typed dicts.

A list is the conversation alone. A body may bring tools and parameters, which become a setup. A
list of dicts with `content_type` is read as `Thread.commit` reads it, priorities included. All of
them are read by the same codecs as the gateway's traffic.

The file itself rides along with its last message, so that it can be given back, and so that what
no thread has a place for (cache marks, unknown members) can be said again to the same vendor.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import orjson
from msgspec import Struct, structs

from weft.codec import CODECS
from weft.errors import ThreadError
from weft.history import PRIORITIES, Priority, Setup
from weft.model import (
    JsonObject,
    Message,
    Origin,
    Params,
    Redacted,
    Request,
    Thinking,
    ToolResult,
)
from weft.thread.content import (
    METADATA_KEY,
    Content,
    content_type,
    extract_text_from_content,
    hidden_members,
    read_content,
    to_message,
)
from weft.thread.info import auto_note
from weft.thread.source_lines import SourceLine

from .script import Equipped, Remark, Said, Script, Step

Body = Mapping[str, Any]

ANTHROPIC_BLOCKS = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "document", "image"}
)
ITEM_TYPES = frozenset({"function_call", "function_call_output", "reasoning", "message"})
TYPED = "dicts"
NAMELESS = "model"  # for bodies that name none; a thread does not keep it


class Listed(Struct, frozen=True):
    """What a file asks of a model, the body that says so, and the shape it stood there in."""

    protocol: str
    request: Request
    body: JsonObject
    shape: Literal["body", "list", "lines"]

    @property
    def model(self) -> str | None:
        """The model that the file names, if it does."""
        return self.request.model if "model" in self.body else None


def read_list(data: bytes, protocol: str) -> Script:
    """The conversation that a list, a body or JSON lines of messages hold."""
    listed = read_listed(data, protocol)
    steps, remarks = (_typed(parse(data)), ()) if listed is None else _request_steps(listed)
    if steps and isinstance(steps[-1], Said):
        kept = (SourceLine(0, data.decode()),)
        steps[-1] = structs.replace(steps[-1], lines=kept, is_file=True)
    return Script(
        format=protocol,
        steps=tuple(steps),
        branches={"main": steps[-1].key} if steps else {},
        remarks=remarks,
    )


def read_listed(data: bytes, protocol: str) -> Listed | None:
    """The request that a file holds; typed dicts are none."""
    if protocol == TYPED:
        return None
    value = parse(data)
    codec = CODECS[protocol]
    body = {codec.conversation: cast(Any, value)} if isinstance(value, list) else value
    if not isinstance(body, dict):
        raise ThreadError(f"a {protocol} conversation is a list or an object")
    body = cast(JsonObject, body)
    request = codec.decode_request(body, str(body.get("model") or NAMELESS))
    shape = "body" if isinstance(value, dict) else "list" if _is_json(data) else "lines"
    return Listed(protocol, request, body, shape)


def _is_json(data: bytes) -> bool:
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return True


def parse(data: bytes) -> Any:
    """The value of a JSON file, or the list of a JSON lines file; raises `ThreadError`."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        rows: list[Any] = []
        for number, line in enumerate(data.splitlines()):
            if not line.strip():
                continue
            try:
                rows.append(orjson.loads(line))
            except orjson.JSONDecodeError:
                if number == 0:
                    raise ThreadError(f"this file is not JSON: {error}") from None
                raise ThreadError(f"line {number + 1} of this file is not JSON") from None
        return rows


def guess_protocol(value: Any) -> str | None:
    """Whose list or body this is, by what only one of them says."""
    if isinstance(value, dict):
        body = cast(JsonObject, value)
        if isinstance(body.get("contents"), list):
            return "gemini"
        if "input" in body:
            return "openai-responses"
        messages = body.get("messages")
        if not isinstance(messages, list):
            return None
        tools = cast(list[Any], body.get("tools") or [])
        own = "system" in body or any("input_schema" in tool for tool in tools)
        return (
            "anthropic"
            if own or _has_anthropic_blocks(cast(list[Any], messages))
            else "openai-chat"
        )
    if not isinstance(value, list) or not all(
        isinstance(item, dict) for item in cast(list[Any], value)
    ):
        return None
    return _guess_list(cast(list[JsonObject], value))


def _guess_list(items: list[JsonObject]) -> str | None:
    if any("content_type" in item for item in items):
        return TYPED
    if any("parts" in item for item in items):
        return "gemini"
    if any(item.get("type") in ITEM_TYPES for item in items) or _has_type(items, "input_text"):
        return "openai-responses"
    if _has_anthropic_blocks(items):
        return "anthropic"
    return "openai-chat" if all("role" in item for item in items) else None


def _has_anthropic_blocks(items: Sequence[Any]) -> bool:
    return any(_has_type(items, kind) for kind in ANTHROPIC_BLOCKS)


def _has_type(items: Sequence[Any], kind: str) -> bool:
    return any(
        isinstance(part, dict) and cast(JsonObject, part).get("type") == kind
        for item in items
        if isinstance(item.get("content"), list)
        for part in item["content"]
    )


def _request_steps(listed: Listed) -> tuple[list[Step], tuple[Remark, ...]]:
    request = listed.request
    steps: list[Step] = []
    if request.tools or request.params != Params():
        setup = Setup(request.tools, request.params)
        steps.append(Equipped(key="setup", parent=None, setup=setup))
    for number, said in enumerate(request.messages):
        message = _signed(said, listed.protocol)
        kind = _kind(message)
        parent = steps[-1].key if steps else None
        note = auto_note(kind, message.text)
        steps.append(Said(key=str(number), parent=parent, message=message, kind=kind, note=note))
    remarks = (Remark("left out", 0, f"{path} has no place in a thread") for path in request.rest)
    return steps, tuple(remarks)


def _signed(message: Message, protocol: str) -> Message:
    """Thinking can be read by its maker only: whoever's list this is made it."""
    thinks = any(isinstance(block, Thinking | Redacted) for block in message.blocks)
    return structs.replace(message, origin=Origin(protocol)) if thinks else message


def _kind(message: Message) -> str:
    results = any(isinstance(block, ToolResult) for block in message.blocks)
    return "tool_io" if results else "dialogue"


def _typed(value: Any) -> list[Step]:
    """Dicts with `content_type`; `priority`, `message` and `metadata` are beside the content."""
    steps: list[Step] = []
    items = cast(list[Any], value) if isinstance(value, list) else [value]
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            raise ThreadError(f"item {number} is no object with a content_type")
        rest = dict(cast(JsonObject, item))
        if "content_type" not in rest and "role" in rest:  # a plain line between typed ones
            rest = {"content_type": "dialogue", **rest, "text": rest.pop("content", "")}
        beside: JsonObject = {
            name: rest.pop(name, None) for name in ("priority", "message", "metadata")
        }
        content = read_content(rest, is_strict=False)
        kind = content_type(content)
        note = beside["message"]
        if note is None:
            note = auto_note(kind, extract_text_from_content(content))
        steps.append(
            Said(
                key=str(number),
                parent=steps[-1].key if steps else None,
                message=to_message(content),
                kind=kind,
                priority=_priority(beside["priority"], number),
                note=str(note),
                metadata=_with_members(_metadata(beside["metadata"], number), content),
            )
        )
    return steps


def _with_members(metadata: JsonObject | None, content: Content) -> JsonObject | None:
    """The metadata with the members that the message does not show, as `Thread.commit` keeps."""
    hidden = hidden_members(content)
    return metadata if hidden is None else {METADATA_KEY: hidden, **(metadata or {})}


def _priority(wanted: Any, number: int) -> Priority:
    if wanted is None:
        return "normal"
    if wanted not in PRIORITIES:
        raise ThreadError(
            f"item {number} has priority {wanted!r}; there are {', '.join(PRIORITIES)}"
        )
    return wanted


def _metadata(given: Any, number: int) -> JsonObject | None:
    if given is not None and not isinstance(given, dict):
        raise ThreadError(f"item {number} has metadata that is no object")
    return cast(JsonObject | None, given)
