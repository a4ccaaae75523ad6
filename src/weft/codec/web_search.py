"""Web search, the one hosted tool that several vendors have.

Each protocol has its own name and members for it. All other hosted tools go back to their own
vendor only.
"""

from typing import Any

from weft.model import JsonObject, Tool

from .base import Losses, members

SEARCHES = ("web_search", "googleSearch")
"""Prefixes of the vendors' type names; some end in the date of a version."""

NAMED = frozenset({"type", "name", "filters", *SEARCHES})


def is_search(tool: Tool) -> bool:
    """Whether a tool is some vendor's web search."""
    return tool.kind.startswith(SEARCHES)


def search_members(
    tool: Tool, number: int, supported: frozenset[str], losses: Losses
) -> JsonObject:
    """The limits of a search by Anthropic's names: `allowed_domains`, `blocked_domains`,
    `user_location`. Limits that the target does not support are reported."""
    limits: JsonObject = {}
    if tool.kind not in SEARCHES:
        path = losses.path(("tools", number))
        path = path if path.endswith(tool.kind) else f"{path}.type"
        losses.add(path, "web_search_version_changed", tool.kind)
    for key, value in _written(tool).items():
        if value == []:
            path = f"{losses.path(('tools', number))}.{key}"
            losses.add(path, "null_member_dropped", key)
        if value in (None, [], {}):
            continue
        name = key.removeprefix("filters.")
        path = f"{losses.path(('tools', number))}.{key}"
        if name in supported:
            limits[name] = _position(value, path, losses) if name == "user_location" else value
            continue
        losses.add(path, "web_search_member_dropped", key)
    return limits


def _position(value: Any, path: str, losses: Losses) -> Any:
    """The user's location with its `type`, which some protocols demand."""
    position = members(value)
    if position is None:
        return value
    if "type" not in position:
        losses.add(path, "default_added", "type: approximate")
    return {"type": "approximate"} | {
        k: inner for k, inner in position.items() if inner is not None
    }


def _written(tool: Tool) -> dict[str, Any]:
    """The members of a search by their path in the caller's definition."""
    for fields in (tool.raw or {}).values():
        search = fields
        for name in SEARCHES:
            search = members(fields.get(name)) or search
        outer = {key: value for key, value in search.items() if key not in NAMED}
        inner = members(search.get("filters")) or {}
        return outer | {f"filters.{key}": value for key, value in inner.items()}
    return {}
