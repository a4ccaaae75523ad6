"""JSON Lines files: each line with its number, its line ending and its parsed value.

A line that is not UTF-8 is decoded as Latin-1 with a marker in front, so that writing it gives the
same bytes. Invalid lines (a half-written last line, a blank line, plain text) are kept and do not
stop the reader.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, cast

import orjson
from msgspec import Struct

from weft.model import JsonObject
from weft.printable import encodable_json

LATIN = "\0latin-1\0"


class Line(Struct, frozen=True):
    """One line; `value` is its JSON object, or `None` if it is not one."""

    number: int
    text: str
    value: JsonObject | None = None


def split_lines(data: bytes) -> Iterator[Line]:
    """Split a file into lines, with their line endings; `join_lines` reverses it."""
    for number, raw in enumerate(_cut(data)):
        yield Line(number, _text(raw), read_object(raw))


def join_lines(texts: Iterable[str]) -> bytes:
    """The bytes of a file from its lines."""
    return b"".join(_bytes(text) for text in texts)


def read_object(raw: bytes) -> JsonObject | None:
    """The JSON object of a line; lone surrogates, which JSON allows, become U+FFFD."""
    try:
        value: Any = orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            value = encodable_json(json.loads(raw))
        except ValueError:
            return None
    return cast(JsonObject, value) if isinstance(value, dict) else None


def read_time(stamp: Any) -> float | None:
    """An ISO 8601 time as seconds since 1970, or `None` if it is not one."""
    if not isinstance(stamp, str):
        return None
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return None


def write_time(created: float) -> str:
    """Seconds since 1970 as an ISO 8601 time in UTC, with milliseconds, as clients write it."""
    moment = datetime.fromtimestamp(created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _cut(data: bytes) -> list[bytes]:
    """Split at newlines only: a carriage return is part of the line."""
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
