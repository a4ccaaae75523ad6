"""Tool definitions, written."""

from weft.codec.base import Losses
from weft.codec.reports import schema_path, tool_losses
from weft.codec.schema import COMBINES, flatten_root_combinators
from weft.codec.tools import is_offered, schema_of
from weft.codec.web_search import is_search, search_members
from weft.model import JsonObject, Tool

from .schema import enforceable
from .wire import PROTOCOL

SEARCH: JsonObject = {"type": "web_search_20250305", "name": "web_search"}
SEARCH_MEMBERS = frozenset({"allowed_domains", "blocked_domains", "user_location"})


def encode_tool(tool: Tool, number: int, losses: Losses) -> JsonObject | None:
    """A tool definition; `None` if the protocol does not support this kind of tool."""
    if tool.raw is not None and PROTOCOL in tool.raw:
        return dict(tool.raw[PROTOCOL])
    if is_search(tool):
        return {**SEARCH, **search_members(tool, number, SEARCH_MEMBERS, losses)}
    if not is_offered(tool, number, losses):
        return None
    tool_losses(tool, number, losses)
    body: JsonObject = {"name": tool.name}
    if tool.description is not None:
        body["description"] = tool.description
    schema = schema_of(tool, number, losses)
    body["input_schema"] = flatten_root_combinators(schema, tool, number, COMBINES, losses)
    if tool.strict:
        path = schema_path(tool, number, losses)
        body["input_schema"] = enforceable(body["input_schema"], path, losses)
    if tool.strict is not None:
        body["strict"] = tool.strict
    return body
