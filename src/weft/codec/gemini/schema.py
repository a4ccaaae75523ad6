"""Gemini's `Schema` as JSON schema: https://ai.google.dev/api/caching#Schema

`parameters` and `responseSchema` are a dialect of OpenAPI 3.0: types in capitals, `nullable`
instead of a type `null`, counts as strings. Others read JSON schema. The other way needs no
conversion: `parametersJsonSchema` and `responseJsonSchema` take JSON schema as it is.
"""

from typing import Any, cast

from weft.codec.base import members
from weft.model import JsonObject

from .spelling import camel

COUNTS = frozenset(
    {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}
)
NESTED = frozenset({"items", "additionalProperties", "not"})
LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
NAMED = frozenset({"properties", "defs", "$defs", "definitions"})


def json_schema(schema: JsonObject) -> JsonObject:
    """Convert to JSON schema; what is JSON schema already is unchanged."""
    read: JsonObject = {}
    for key, value in schema.items():
        name = camel(key)
        if name in NAMED and isinstance(value, dict):
            read[name] = {
                inner: _converted(item) for inner, item in cast(JsonObject, value).items()
            }
        elif name in LISTS and isinstance(value, list):
            read[name] = [_converted(item) for item in cast(list[Any], value)]
        elif name in NESTED:
            read[name] = _converted(value)
        elif name in COUNTS and isinstance(value, str) and value.isdigit():
            read[name] = int(value)
        elif name == "type" and isinstance(value, str):
            read[name] = value.lower()
        elif name == "example":
            read["examples"] = [value]
        elif name not in ("nullable", "propertyOrdering"):
            read[name] = value
    return _nullable(read) if schema.get("nullable") is True else read


def _converted(value: Any) -> Any:
    schema = members(value)
    return value if schema is None else json_schema(schema)


def _nullable(schema: JsonObject) -> JsonObject:
    if isinstance(schema.get("type"), str):
        kind = {**schema, "type": [schema["type"], "null"]}
        if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
            kind["enum"] = [*schema["enum"], None]
        return kind
    if isinstance(schema.get("anyOf"), list):
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    return schema
