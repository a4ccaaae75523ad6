"""The root of a tool's schema, which vendors want to be one plain object.

Schema generators write a choice between objects as `anyOf` at the root. Vendors refuse that, and
with it the whole request. So the properties of all combined schemas become the root's, and the
required ones are those that every choice requires. Which of them belong together is lost, and
reported.
"""

from typing import Any, cast

from weft.model import JsonObject, Tool

from .base import Losses, members
from .reports import schema_path

COMBINES = frozenset({"allOf", "anyOf", "oneOf"})
"""Refused by Anthropic: https://github.com/anthropics/claude-code/issues/5973"""

OPENAI_ROOT = COMBINES | {"enum", "not"}
"""Refused by OpenAI: https://github.com/chatanywhere/GPT_API_free/issues/403"""


def flatten_root_combinators(
    schema: JsonObject, tool: Tool, number: int, refused: frozenset[str], losses: Losses
) -> JsonObject:
    """The schema without the keywords that a vendor refuses at its root; each is reported."""
    keywords = [key for key in schema if key in refused]
    if not keywords:
        return schema
    path = schema_path(tool, number, losses)
    root = {key: value for key, value in schema.items() if key not in refused}
    properties = dict(members(schema.get("properties")) or {})
    needed = _names(schema.get("required"))
    for key in keywords:
        losses.add(f"{path}.{key}", "schema_keyword_dropped", key)
        parts = _combined(schema, key)
        for part in parts:
            properties = {**(members(part.get("properties")) or {}), **properties}
        required_sets = [set(_names(part.get("required"))) for part in parts]
        if required_sets:
            common = set[str].union if key == "allOf" else set[str].intersection
            needed += sorted(common(*required_sets) - set(needed))
    if properties:
        root["properties"] = properties
    return {**root, "required": needed} if needed else root


def _combined(schema: JsonObject, key: str) -> list[JsonObject]:
    """The schemas that a keyword combines; a `$ref` is looked up."""
    listed = schema.get(key) if key in COMBINES else None
    parts = cast("list[Any]", listed) if isinstance(listed, list) else []
    schemas: list[JsonObject] = []
    for part in map(members, parts):
        if part is None:
            continue
        _, home, name = f"{part.get('$ref')}//".split("/")[:3]
        referenced = members((members(schema.get(home)) or {}).get(name)) if name else None
        schemas.append(referenced or part)
    return schemas


def _names(required: Any) -> list[str]:
    listed = cast("list[Any]", required) if isinstance(required, list) else []
    return [name for name in listed if isinstance(name, str)]
