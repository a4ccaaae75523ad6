"""Files of JSON lines: each line with its number and its end, and what it says if it says JSON.

A line that is no UTF-8 is read as Latin-1 behind a mark, so that writing it gives the same bytes.
A half-written last line, a blank one, a stray word: all are kept, none stops the others.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, cast

import orjson
from msgspec import Struct

from weft.model import JsonObject

LATIN = "\0latin-1\0"


class Line(Struct, frozen=True):
    """One line; `value` is what it says, where that is a JSON object."""

    number: int
    text: str
    value: JsonObject | None = None


def split_lines(data: bytes) -> Iterator[Line]:
    """Every line of a file, ends included: joined again they are the file."""
    for number, raw in enumerate(_cut(data)):
        yield Line(number, _text(raw), read_object(raw))


def join_lines(texts: Iterable[str]) -> bytes:
    """The bytes of lines that were split."""
    return b"".join(_bytes(text) for text in texts)


def read_object(raw: bytes) -> JsonObject | None:
    """The object that a line is; a half of a pair that JSON allows becomes the replacement sign."""
    try:
        value: Any = orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            value = _whole(json.loads(raw))
        except ValueError:
            return None
    return cast(JsonObject, value) if isinstance(value, dict) else None


def read_time(stamp: Any) -> float | None:
    """Seconds since 1970 of an ISO time, if it is one."""
    if not isinstance(stamp, str):
        return None
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return None


def _cut(data: bytes) -> list[bytes]:
    """Lines end with a newline alone: a carriage return is part of what is said."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return LATIN + raw.decode("latin-1")


def _bytes(text: str) -> bytes:
    if text.startswith(LATIN):
        return text.removeprefix(LATIN).encode("latin-1")
    return text.encode()


def _whole(value: Any) -> Any:
    """The value with lone surrogates replaced: UTF-8 cannot say them."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        members = cast(dict[str, Any], value)
        return {_whole(key): _whole(item) for key, item in members.items()}
    if isinstance(value, list):
        return [_whole(item) for item in cast(list[Any], value)]
    return value
