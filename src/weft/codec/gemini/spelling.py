"""Two spellings of every name: protocol buffers accept both `file_uri` and `fileUri`.

Clients mix both in one body. So names are converted to camel case, and the original names are
stored by path. Members that contain the caller's own data (arguments, results, schemas) are never
changed.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

from weft.model import JsonObject

NESTED = frozenset({"functionCall", "functionResponse", "inlineData", "fileData", "parts"})
"""Members of a part whose own members are defined by the protocol."""

Spelling = dict[str, str]
"""The original name for each path in a part (in camel case)."""


@lru_cache(maxsize=1024)
def camel(name: str) -> str:
    """Convert `file_uri` to `fileUri`; a name without an inner underscore is unchanged."""
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail) if head and all(tail) else name


def camel_members(raw: JsonObject) -> JsonObject:
    """The members with names in camel case, one level deep."""
    return {camel(key): value for key, value in raw.items()}


def respell_path(body: JsonObject, path: str) -> str:
    """A dotted camel-case path in the spelling of this body."""
    names: list[str] = []
    inner: JsonObject = body
    for name in path.split("."):
        names.append(next((key for key in inner if camel(key) == name), name))
        value = inner.get(names[-1])
        inner = cast(JsonObject, value) if isinstance(value, dict) else {}
    return ".".join(names)


def read_spelling(raw: JsonObject) -> tuple[JsonObject, Spelling | None]:
    """A part in camel case, and its original spelling; `None` if that is camel case too."""
    if not _has_underscores(raw):
        return raw, None
    spelling: Spelling = {}
    return _to_camel(raw, "", spelling), spelling


def _has_underscores(raw: JsonObject) -> bool:
    for key, value in raw.items():
        if "_" in key:
            return True
        if key in NESTED and any(_has_underscores(inner) for inner in _objects(value)):
            return True
    return False


def _objects(value: Any) -> list[JsonObject]:
    """The objects in a member of `NESTED`, which is an object or a list of objects."""
    if isinstance(value, dict):
        return [cast(JsonObject, value)]
    if isinstance(value, list):
        return [cast(JsonObject, item) for item in cast(list[Any], value) if isinstance(item, dict)]
    return []


def _to_camel(raw: JsonObject, prefix: str, spelling: Spelling) -> JsonObject:
    """The object in camel case; adds the original names to `spelling`."""
    converted: JsonObject = {}
    for key, value in raw.items():
        name = camel(key)
        if name != key:
            spelling[prefix + name] = key
        if name in NESTED:
            value = _convert_nested(value, f"{prefix}{name}.", _to_camel, spelling)
        converted[name] = value
    return converted


def write_spelling(body: JsonObject, spelling: Spelling) -> JsonObject:
    """A part in its original spelling."""
    return _to_original(body, "", spelling)


def _to_original(body: JsonObject, prefix: str, spelling: Spelling) -> JsonObject:
    converted: JsonObject = {}
    for name, value in body.items():
        if name in NESTED:
            value = _convert_nested(value, f"{prefix}{name}.", _to_original, spelling)
        converted[spelling.get(prefix + name, name)] = value
    return converted


Converter = Callable[[JsonObject, str, Spelling], JsonObject]
"""Takes an object, the prefix of its members' paths, and the spelling."""


def _convert_nested(value: Any, prefix: str, convert: Converter, spelling: Spelling) -> Any:
    """The object, or the list of objects, converted."""
    if isinstance(value, dict):
        return convert(cast(JsonObject, value), prefix, spelling)
    if isinstance(value, list):
        return [
            convert(cast(JsonObject, item), f"{prefix}{number}.", spelling)
            if isinstance(item, dict)
            else item
            for number, item in enumerate(cast(list[Any], value))
        ]
    return value
