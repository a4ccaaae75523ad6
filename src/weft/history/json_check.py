"""What JSON can say: found before a value is written, because afterwards nobody can read it.

An encoder is kinder than a decoder. It writes a number where a text belongs, bytes as if they were
text, and a number that is none as null. So what is written is read back, and where that is not the
same, the value is walked through for the place that JSON has no word for.
"""

import math
from typing import Any, cast

import msgspec

from weft.errors import WrongValue

FOREIGN = (bytes, bytearray, memoryview)


def check_json(field: str, value: Any) -> None:
    """Raise `WrongValue` naming the first place inside that JSON cannot say."""
    try:
        plain = msgspec.to_builtins(value, builtin_types=FOREIGN)
    except (TypeError, UnicodeError, RecursionError) as error:
        raise WrongValue(field, f"cannot be said as JSON: {error}") from None
    _walk(field, plain)


def _walk(field: str, value: Any) -> None:
    match value:
        case dict():
            for key, item in cast(dict[Any, Any], value).items():
                _walk(f"{field}.{key}", item)
        case list() | tuple():
            for place, item in enumerate(cast(list[Any], value)):
                _walk(f"{field}[{place}]", item)
        case float() if not math.isfinite(value):
            raise WrongValue(field, f"cannot be said as JSON: {value} is no number there")
        case bytes() | bytearray() | memoryview():
            raise WrongValue(field, "must be text: bytes have no place in JSON")
        case str() if not value.isascii():
            _check_text(field, value)
        case _:
            pass


def _check_text(field: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise WrongValue(field, f"is not text: {error.reason} at {error.start}") from None
