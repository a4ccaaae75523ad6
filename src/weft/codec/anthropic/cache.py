"""Cache breakpoints: marks on blocks, at most four. Weft adds them only with `cache="auto"`.

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
    """Set a cache mark on the last system block, in place. `None` and `[]` stay as they are."""
    if system:
        system[-1]["cache_control"] = dict(EPHEMERAL)
    return system


def apply_last_tool_cache_breakpoint(tools: list[JsonObject] | None) -> None:
    """Mark the last tool that the caller defines; a server tool cannot have a mark."""
    for tool in reversed(tools or ()):
        if tool.get("type") in (None, "custom"):
            tool["cache_control"] = dict(EPHEMERAL)
            return


def apply_last_message_cache_breakpoint(messages: list[JsonObject] | None) -> None:
    """Mark the last block that can be cached, in the latest message that has one."""
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
    """Set the three breakpoints of a request whose caller set none, in place."""
    _mark_setup(body)
    apply_last_message_cache_breakpoint(body["messages"])


def copy_with_marks(body: JsonObject) -> JsonObject:
    """A body with the three breakpoints. Only what they change is copied: a body may be long."""
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
    system = body.get("system")
    if isinstance(system, str) and system:
        body["system"] = system = [{"type": "text", "text": system}]
    if isinstance(system, list):
        apply_last_system_cache_breakpoint(cast(list[JsonObject], system))
    apply_last_tool_cache_breakpoint(body.get("tools"))


def _copy_message(message: JsonObject) -> JsonObject:
    content = message.get("content")
    if not isinstance(content, list):
        return {**message}
    return {**message, "content": [{**block} for block in cast(list[JsonObject], content)]}


def has_marks(body: JsonObject) -> bool:
    """Whether the caller placed any breakpoint, at the top level too."""
    return any(True for _ in _marked(body))


def limit_marks(body: JsonObject, losses: Losses) -> None:
    """Keep the last four marks, in the order tools, system, messages: a later mark covers the
    longer prefix.
    """
    marked = list(_marked(body))
    for path, holder in marked[: max(0, len(marked) - MAX_MARKS)]:
        del holder["cache_control"]
        losses.add(path, "cache_breakpoint_dropped")


def _marked(body: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Every object with a mark, in the order of the prompt."""
    for name in ("tools", "system"):
        value = body.get(name)
        for number, holder in enumerate(cast(list[Any], value) if isinstance(value, list) else ()):
            if holder.get("cache_control"):
                yield f"{name}[{number}].cache_control", holder
    for number, message in enumerate(cast(list[JsonObject], body.get("messages", ()))):
        content = message.get("content")
        if not isinstance(content, list):
            continue
        for at, block in enumerate(cast(list[JsonObject], content)):
            inner = block.get("content")
            for index, part in enumerate(cast(list[Any], inner) if isinstance(inner, list) else ()):
                if isinstance(part, dict) and part.get("cache_control"):  # pyright: ignore[reportUnknownMemberType]
                    path = f"messages[{number}].content[{at}].content[{index}].cache_control"
                    yield path, cast(JsonObject, part)
            if block.get("cache_control"):
                yield f"messages[{number}].content[{at}].cache_control", block
    if body.get("cache_control"):
        yield "cache_control", body
