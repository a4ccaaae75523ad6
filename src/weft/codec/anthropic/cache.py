"""Cache breakpoints: `cache_control` marks on blocks, at most four. Weft adds marks only with
`cache="auto"`.

https://platform.claude.com/docs/en/build-with-claude/prompt-caching
"""

from collections.abc import Iterator
from typing import Any, cast

from weft.checked import checked_function
from weft.codec.base import Losses
from weft.model import JsonObject

from .wire import MAX_MARKS

EPHEMERAL = {"type": "ephemeral"}
CACHEABLE = frozenset({"text", "image", "document", "tool_use", "tool_result"})


@checked_function
def apply_last_system_cache_breakpoint(
    system: list[JsonObject] | None,
) -> list[JsonObject] | None:
    """Set a cache breakpoint on the last system block, in place; `None` and `[]` stay the same."""
    if system:
        system[-1]["cache_control"] = dict(EPHEMERAL)
    return system


def apply_last_tool_cache_breakpoint(tools: list[JsonObject] | None) -> None:
    """Set a cache breakpoint on the caller's last tool, in place. A server tool cannot have one."""
    for tool in reversed(tools or ()):
        if tool.get("type") in (None, "custom"):
            tool["cache_control"] = dict(EPHEMERAL)
            return


def apply_last_message_cache_breakpoint(messages: list[JsonObject] | None) -> None:
    """Set a cache breakpoint on the last block that can have one, in place."""
    for message in reversed(messages or ()):
        content = message.get("content")
        if isinstance(content, str) and content:
            message["content"] = [
                {"type": "text", "text": content, "cache_control": dict(EPHEMERAL)}
            ]
            return
        for block in reversed(cast(list[JsonObject], content) if content else ()):
            if block.get("type") in CACHEABLE and block.get("text") != "":
                block["cache_control"] = dict(EPHEMERAL)
                return


def place_marks(body: JsonObject) -> None:
    """Mark the last system block, tool and message block of a body without marks, in place."""
    _mark_setup(body)
    apply_last_message_cache_breakpoint(body["messages"])


def copy_with_marks(body: JsonObject) -> JsonObject:
    """The body with the marks of `place_marks`. Copies only what changes, because a body may be
    long."""
    copy = {**body}
    for name in ("system", "tools"):
        items = body.get(name)
        if isinstance(items, list):
            copy[name] = [{**item} for item in cast(list[JsonObject], items)]
    _mark_setup(copy)
    messages = copy["messages"] = [*cast(list[JsonObject], body["messages"])]
    for number in reversed(range(len(messages))):
        original = messages[number]
        messages[number] = _copy_message(original)
        apply_last_message_cache_breakpoint(messages[number : number + 1])
        if messages[number] != original:
            break
    return copy


def _mark_setup(body: JsonObject) -> None:
    """Mark the last system block and the last tool, in place."""
    system = body.get("system")
    if isinstance(system, str) and system:
        body["system"] = system = [{"type": "text", "text": system}]
    if isinstance(system, list):
        apply_last_system_cache_breakpoint(cast(list[JsonObject], system))
    apply_last_tool_cache_breakpoint(body.get("tools"))


def _copy_message(message: JsonObject) -> JsonObject:
    """The message with copies of its blocks."""
    content = message.get("content")
    if not isinstance(content, list):
        return {**message}
    return {**message, "content": [{**block} for block in cast(list[JsonObject], content)]}


def has_marks(body: JsonObject) -> bool:
    """Whether a body has any cache breakpoint."""
    return any(True for _ in _find_marks(body))


def limit_marks(body: JsonObject, losses: Losses) -> None:
    """Drop all marks but the last four, in the order of the prompt: a later mark caches a longer
    prefix."""
    marked = list(_find_marks(body))
    for path, holder in marked[: max(0, len(marked) - MAX_MARKS)]:
        del holder["cache_control"]
        losses.add(path, "cache_breakpoint_dropped")


def _find_marks(body: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """The path and the object of every mark, in the order of the prompt: tools, system,
    messages."""
    for name in ("tools", "system"):
        value = body.get(name)
        for number, holder in enumerate(cast(list[Any], value) if isinstance(value, list) else ()):
            if holder.get("cache_control"):
                yield f"{name}[{number}].cache_control", holder
    for number, message in enumerate(cast(list[JsonObject], body.get("messages", ()))):
        content = message.get("content")
        if not isinstance(content, list):
            continue
        for block_number, block in enumerate(cast(list[JsonObject], content)):
            inner = block.get("content")
            parts = cast(list[Any], inner) if isinstance(inner, list) else []
            for part_number, part in enumerate(parts):
                if isinstance(part, dict) and part.get("cache_control"):  # pyright: ignore[reportUnknownMemberType]
                    path = f"messages[{number}].content[{block_number}].content[{part_number}]"
                    yield f"{path}.cache_control", cast(JsonObject, part)
            if block.get("cache_control"):
                yield f"messages[{number}].content[{block_number}].cache_control", block
    if body.get("cache_control"):
        yield "cache_control", body
