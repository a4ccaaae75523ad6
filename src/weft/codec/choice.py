"""A choice among some of the tools.

Both OpenAI protocols have a mode and a list of allowed tools. Chat nests a tool's name under its
kind, Responses does not. For a target without such a choice, the other tools are left out.
https://platform.openai.com/docs/guides/function-calling#allowed-tools
"""

from typing import Any, Literal, cast

from msgspec import structs

from weft.model import JsonObject, Request, Tool, ToolChoice

from .base import Losses, members
from .tools import CALLABLE

MODES: dict[str, Literal["auto", "any"]] = {"auto": "auto", "required": "any"}


def read_allowed(fields: JsonObject) -> ToolChoice | None:
    """The choice; `None` if it names a hosted tool, which other vendors do not have."""
    mode, tools = MODES.get(str(fields.get("mode"))), fields.get("tools")
    if mode is None or not isinstance(tools, list):
        return None
    names = [_name(members(tool) or {}) for tool in cast("list[Any]", tools)]
    function_names = tuple(name for name in names if name is not None)
    return (
        ToolChoice(mode, None, function_names)
        if function_names and len(function_names) == len(names)
        else None
    )


def narrow(request: Request, losses: Losses) -> tuple[Request, tuple[str, ...]]:
    """The request without names in its tool choice, and these names: only they are offered."""
    choice = request.params.tool_choice
    if choice is None or not choice.names:
        return request, ()
    losses.param("tool_choice", "tool_choice_narrowed")
    params = structs.replace(request.params, tool_choice=ToolChoice(choice.kind))
    return structs.replace(request, params=params), choice.names


def is_allowed(tool: Tool, number: int, some: tuple[str, ...], losses: Losses) -> bool:
    """Whether a tool is among these names, or there are none; reported if not."""
    if not some or tool.name in some or tool.kind not in CALLABLE:
        return True
    losses.add(("tools", number), "tool_not_allowed", tool.name)
    return False


def _name(tool: JsonObject) -> str | None:
    kind = tool.get("type")
    if not isinstance(kind, str) or kind not in CALLABLE:
        return None
    name = (members(tool.get(kind)) or tool).get("name")
    return name if isinstance(name, str) else None
