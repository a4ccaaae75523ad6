"""Finds the part of a value that JSON cannot represent.

An encoder accepts more than a decoder: it writes bytes as text, and NaN as null. So every value is
read back after it was written. If the result differs, `check_json` walks the value
and names the first wrong part.
"""

import math
from typing import Any, cast

import msgspec

from weft.errors import WrongValue

FOREIGN = (bytes, bytearray, memoryview)


def check_json(field: str, value: Any) -> None:
    """Raise `WrongValue` with the path of the first value that JSON cannot represent."""
    try:
        plain = msgspec.to_builtins(value, builtin_types=FOREIGN)
    except (TypeError, UnicodeError, RecursionError) as error:
        raise WrongValue(field, f"cannot be written as JSON: {error}") from None
    _walk(field, plain)


def _walk(field: str, value: Any) -> None:
    match value:
        case dict():
            for key, item in cast(dict[Any, Any], value).items():
                _walk(f"{field}.{key}", item)
        case list() | tuple():
            for position, item in enumerate(cast(list[Any], value)):
                _walk(f"{field}[{position}]", item)
        case float() if not math.isfinite(value):
            raise WrongValue(field, f"cannot be written as JSON: {value} is not a JSON number")
        case bytes() | bytearray() | memoryview():
            raise WrongValue(field, "must be text: JSON cannot represent bytes")
        case str() if not value.isascii():
            _check_text(field, value)
        case _:
            pass


def _check_text(field: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise WrongValue(field, f"is not text: {error.reason} at {error.start}") from None
