"""Two spellings of every name: protocol buffers accept both `file_uri` and `fileUri`.

Clients mix them inside one body. So names are converted to one spelling, and names that were
spelled differently are stored by path. Members that hold the caller's own data (arguments,
results, schemas) are never touched.
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
    """A part in camel case, and the original names of members that were spelled otherwise."""
    if not _differs(raw):
        return raw, None
    spelling: Spelling = {}
    return _read(raw, "", spelling), spelling


def _differs(raw: JsonObject) -> bool:
    for key, value in raw.items():
        if "_" in key:
            return True
        if key in NESTED and any(_differs(inner) for inner in _objects(value)):
            return True
    return False


def _objects(value: Any) -> list[JsonObject]:
    if isinstance(value, dict):
        return [cast(JsonObject, value)]
    if isinstance(value, list):
        return [cast(JsonObject, item) for item in cast(list[Any], value) if isinstance(item, dict)]
    return []


def _read(raw: JsonObject, trail: str, spelling: Spelling) -> JsonObject:
    read: JsonObject = {}
    for key, value in raw.items():
        name = camel(key)
        if name != key:
            spelling[trail + name] = key
        if name in NESTED:
            value = _inner(value, f"{trail}{name}.", _read, spelling)
        read[name] = value
    return read


def write_spelling(body: JsonObject, spelling: Spelling) -> JsonObject:
    """A part in its original spelling."""
    return _write(body, "", spelling)


def _write(body: JsonObject, trail: str, spelling: Spelling) -> JsonObject:
    written: JsonObject = {}
    for name, value in body.items():
        if name in NESTED:
            value = _inner(value, f"{trail}{name}.", _write, spelling)
        written[spelling.get(trail + name, name)] = value
    return written


Change = Callable[[JsonObject, str, Spelling], JsonObject]


def _inner(value: Any, trail: str, change: Change, spelling: Spelling) -> Any:
    if isinstance(value, dict):
        return change(cast(JsonObject, value), trail, spelling)
    if isinstance(value, list):
        return [
            change(cast(JsonObject, item), f"{trail}{number}.", spelling)
            if isinstance(item, dict)
            else item
            for number, item in enumerate(cast(list[Any], value))
        ]
    return value
