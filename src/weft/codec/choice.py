"""A choice among some of the tools, as both of OpenAI's wires say it: a mode, and the tools that
may be called. Chat nests a tool's name under its kind, Responses does not.
https://platform.openai.com/docs/guides/function-calling#allowed-tools
"""

from typing import Any, Literal, cast

from weft.model import JsonObject, ToolChoice

from .base import members
from .tools import CALLABLE

MODES: dict[str, Literal["auto", "any"]] = {"auto": "auto", "required": "any"}


def read_allowed(fields: JsonObject) -> ToolChoice | None:
    """The choice; `None` where it names a vendor's own tool, which nobody else could be told of."""
    mode, tools = MODES.get(str(fields.get("mode"))), fields.get("tools")
    if mode is None or not isinstance(tools, list):
        return None
    names = [_name(members(tool) or {}) for tool in cast("list[Any]", tools)]
    known = tuple(name for name in names if name is not None)
    return ToolChoice(mode, None, known) if known and len(known) == len(names) else None


def _name(tool: JsonObject) -> str | None:
    kind = tool.get("type")
    if not isinstance(kind, str) or kind not in CALLABLE:
        return None
    name = (members(tool.get(kind)) or tool).get("name")
    return name if isinstance(name, str) else None
