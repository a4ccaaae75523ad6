"""What the parameters of all wires share: reporting what a target cannot be told."""

from typing import Any

from weft.model import Request, Tool

from .base import Losses, members

DEFAULTS: dict[str, Any] = {"n": 1, "presence_penalty": 0, "frequency_penalty": 0, "store": True}
"""Values that say what every target does anyway: leaving them out is a matter of form."""


def lose_params(request: Request, sayable: frozenset[str], losses: Losses) -> None:
    """Report every parameter that the caller set and the target has no word for."""
    for key in request.params.__struct_fields__:
        value = getattr(request.params, key)
        if value is not None and key not in sayable:
            losses.add(
                key,
                f"the parameter {key!r}",
                "the target has no such parameter",
                "form" if value == DEFAULTS.get(key) else "meaning",
            )
    for path, value in request.rest.items():
        losses.add(
            path,
            f"the member {path!r}",
            "it has no counterpart on the target's wire",
            "form" if value in (None, [], {}, "") else "meaning",
        )


def tool_losses(tool: Tool, number: int, losses: Losses) -> None:
    """Report the members of a tool's definition that the shared meaning does not hold."""
    for fields in (tool.raw or {}).values():
        inner = members(fields.get("function")) or {}
        for key in {**fields, **inner}.keys() - TOOL_MEMBERS:
            losses.add(
                f"tools[{number}].{key}",
                f"the member {key!r} of the tool {tool.name!r}",
                "it has no counterpart on the target's wire",
            )


TOOL_MEMBERS = frozenset(
    {"type", "name", "description", "input_schema", "parameters", "strict", "function", "format"}
)
