"""The JSON schema that Anthropic enforces, where an answer or a strict tool must follow one:
https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations

Keywords that it refuses are removed. The remaining schema is looser than the caller's, so each
removal is reported. Objects must be closed.
"""

from typing import Any, cast

from weft.codec.base import Losses, members
from weft.model import JsonObject

REFUSED = frozenset(
    {
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "uniqueItems",
    }
)
NAMED = frozenset({"properties", "$defs", "definitions"})
LISTS = frozenset({"anyOf", "allOf", "oneOf", "prefixItems"})
FEWEST = (0, 1)
"""The values of `minItems` that are enforced."""

DEEPEST = 64
"""How deep a schema is inspected; the vendor refuses much shallower ones."""


def enforceable(schema: JsonObject, path: str, losses: Losses) -> JsonObject:
    """The schema as it can be enforced; each removed keyword and closed object is reported."""
    removed: dict[str, None] = {}
    closed = _enforce(schema, removed, 0)
    for keyword in removed:
        losses.add(
            path,
            "schema_keyword_dropped",
            keyword,
            "form" if keyword == "additionalProperties" else "meaning",
        )
    return closed


def _enforce(schema: JsonObject, removed: dict[str, None], depth: int) -> JsonObject:
    if depth > DEEPEST:
        return schema
    enforced: JsonObject = {}
    for key, value in schema.items():
        if key in REFUSED or (key == "minItems" and value not in FEWEST):
            removed[key] = None
        elif key in NAMED and isinstance(value, dict):
            properties = cast(JsonObject, value).items()
            enforced[key] = {name: _inner(item, removed, depth) for name, item in properties}
        elif key in LISTS and isinstance(value, list):
            enforced[key] = [_inner(item, removed, depth) for item in cast(list[Any], value)]
        else:
            enforced[key] = _inner(value, removed, depth) if key == "items" else value
    if "properties" in enforced and enforced.get("additionalProperties") is not False:
        removed["additionalProperties"] = None
        enforced["additionalProperties"] = False
    return enforced


def _inner(value: Any, removed: dict[str, None], depth: int) -> Any:
    schema = members(value)
    return value if schema is None else _enforce(schema, removed, depth + 1)
