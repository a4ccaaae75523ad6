"""What the parameters of all wires share: reporting what a target cannot be told."""

from typing import Any

from weft.errors import Refused
from weft.model import Request, Tool

from .base import Losses, members

DEFAULTS: dict[str, Any] = {"n": 1, "presence_penalty": 0, "frequency_penalty": 0, "store": True}
"""Values that say what every target does anyway: leaving them out is a matter of form."""


MISSING_CONTEXT = frozenset(
    {"cachedContent", "conversation", "item_reference", "previous_response_id", "prompt"}
)
"""Members, and types of items, that stand for context which only their own vendor has."""


def refuse_missing_context(request: Request) -> None:
    """Raise `Refused` where a part of the conversation is not in the body itself."""
    for path, value in request.rest.items():
        kind = (members(value) or {}).get("type")
        name = kind if kind in MISSING_CONTEXT else path
        if name in MISSING_CONTEXT and value is not None:
            raise Refused(
                f"{name} stands for context that only its own vendor has, so it cannot be"
                " translated: send the whole conversation",
                param=path,
            )


def lose_params(request: Request, sayable: frozenset[str], losses: Losses) -> None:
    """Report every parameter that the caller set and the target has no word for.

    Raises `Refused` where what is missing is a part of the conversation itself.
    """
    refuse_missing_context(request)
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
