"""Functions that read a vendor's JSON.

Decoders index into plain dicts and check the types they rely on. A wrong type raises `Refused` with
a path relative to the current value. Each caller adds its own step in front (`with_prefix`,
`path_prefix`). Unknown members are kept.
"""

from collections.abc import Set
from typing import Any, TypeVar, cast

from weft import exact_json
from weft.errors import Refused
from weft.model import Ext, JsonObject

T = TypeVar("T")

TYPE_NAMES: dict[type, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    list: "a list",
    dict: "an object",
    bool: "true or false",
}


def text_of(raw: JsonObject, key: str) -> str:
    """A member that must be a string."""
    value = raw.get(key)
    if type(value) is not str:
        raise wrong(key, value, "a string")
    return value


def optional(raw: JsonObject, key: str, kind: type[T]) -> T | None:
    """A member of this type; `None` if it is absent or null."""
    value = raw.get(key)
    if type(value) is exact_json.Number and kind is float:
        return cast(T, float(value))  # a parameter counts by its value
    if value is None or type(value) is kind:
        if value != value:  # NaN, the only value that does not equal itself
            raise wrong(key, value, "a number that JSON can represent")
        return cast("T | None", value)
    if kind is float and type(value) is int:
        return cast(T, value)
    raise wrong(key, value, TYPE_NAMES[kind])


def optional_object(raw: JsonObject, key: str) -> JsonObject:
    """A member that is an object; empty if it is absent or null."""
    return cast("JsonObject | None", optional(raw, key, dict)) or {}


def object_of(raw: JsonObject, key: str) -> JsonObject | None:
    """A member that is an object; `None` if it is absent or null."""
    return cast("JsonObject | None", optional(raw, key, dict))


def objects(value: Any, key: str) -> list[JsonObject]:
    """A value that must be a list of JSON objects."""
    if not isinstance(value, list):
        raise wrong(key, value, "a list")
    items = cast(list[Any], value)
    for item in items:
        if type(item) is not dict:
            raise wrong(f"{key}[{items.index(item)}]", item, "an object")
    return items


def json_text(value: Any, key: str) -> str:
    """A value as JSON text; raises `Refused` if JSON cannot represent it."""
    try:
        return exact_json.dumps(value).decode()
    except TypeError as error:
        raise Refused(f"cannot be written as JSON: {error}", param=key) from None


def unknown_members(raw: JsonObject, known: Set[str], protocol: str) -> Ext | None:
    """The members that are not in `known`, under their protocol's name; `None` if there are
    none."""
    if raw.keys() <= known:
        return None
    return {protocol: {key: value for key, value in raw.items() if key not in known}}


def wrong(param: str, value: Any, expected: str) -> Refused:
    """The refusal of a value of the wrong type."""
    if value is None:
        return Refused(f"must be {expected}, but is missing or null", param=param)
    return Refused(f"must be {expected}, not {type(value).__name__}", param=param)


def with_prefix(prefix: str, error: Refused) -> Refused:
    """The same refusal, with this prefix in front of its path."""
    separator = "" if not error.param or error.param.startswith("[") else "."
    return Refused(
        error.message,
        param=f"{prefix}{separator}{error.param or ''}",
        status=error.status,
        type=error.type,
    )


class path_prefix:
    """A context that puts a prefix in front of the path of every `Refused` raised in it."""

    __slots__ = ("prefix",)

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Refused):
            raise with_prefix(self.prefix, error) from None
