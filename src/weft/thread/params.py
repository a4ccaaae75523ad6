"""What a vendor's `create(**...)` takes: a compiled thread written by that vendor's codec.

`None` never appears, nor anything the vendor refuses; what could not be said is in `losses`. The
model's name is left out where none was given, so that the caller may name it in the call.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import structs

from weft.catalog import load_catalog
from weft.codec import CODECS, SystemPolicy, Target
from weft.errors import ThreadError
from weft.history import Row, Setup
from weft.model import JsonObject, Loss, Request, Tool

ToolLike = Tool | Mapping[str, Any] | Any
"""A tool of the model, a vendor's dict, or anything with a name, a description and parameters."""


class VendorParams(dict[str, Any]):
    """A request's members; unpacks with `**`, and says beside it what was lost."""

    losses: tuple[Loss, ...] = ()


def write_params(
    protocol: str,
    rows: Sequence[Row],
    setup: Setup,
    *,
    model: str | None,
    tools: Sequence[ToolLike] | None,
    system: SystemPolicy = "auto",
    max_tokens: int | None = None,
) -> VendorParams:
    """The request that says these lines to this vendor."""
    if protocol not in CODECS:
        raise ThreadError(f"no codec speaks {protocol!r}")
    params = setup.params
    if max_tokens is not None:
        params = structs.replace(params, max_tokens=max_tokens)
    request = Request(
        model=model or "",
        messages=tuple(row.message for row in rows),
        tools=setup.tools if tools is None else tuple(read_tool(tool) for tool in tools),
        params=params,
    )
    target = Target(load_catalog().find(model or ""), system)
    encoded = CODECS[protocol].encode_request(request, target)
    body = {key: value for key, value in encoded.body.items() if value is not None}
    if model is None:
        body.pop("model", None)
    found = VendorParams(body)
    found.losses = tuple(encoded.losses)
    return found


def read_tool(tool: ToolLike) -> Tool:
    """One tool, however the caller has it."""
    if isinstance(tool, Tool):
        return tool
    if isinstance(tool, Mapping):
        raw = cast(Mapping[str, Any], tool)
        inner = cast(Mapping[str, Any], raw.get("function", raw))
        schema = inner.get("parameters", inner.get("input_schema"))
        return _tool(inner.get("name"), inner.get("description"), schema)
    return _tool(*(getattr(tool, name, None) for name in ("name", "description", "parameters")))


def _tool(name: Any, description: Any, schema: Any) -> Tool:
    if not isinstance(name, str) or not name:
        raise ThreadError("a tool needs a name")
    described = description if isinstance(description, str) else None
    parameters = cast(JsonObject, schema) if isinstance(schema, dict) else None
    return Tool(name, described, parameters)
