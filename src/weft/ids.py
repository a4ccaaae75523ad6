"""Canonical bytes, and the only hashing in Weft.

An id is 20 bytes of SHA-256 over `weft1:<kind>`, a zero byte and canonical JSON: keys sorted,
no spaces, absent members omitted. People see it as hex, and may type any prefix that is not
ambiguous. Two kinds never share an id, because the kind is inside the hash.
"""

from hashlib import sha256
from typing import Any, cast

import orjson

SIZE = 20

Id = bytes


def canonical(value: Any) -> bytes:
    """The one spelling of a JSON value that hashes are taken over."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def object_id(kind: str, data: bytes) -> Id:
    """The id of canonical bytes as an object of this kind."""
    return sha256(b"weft1:%b\0%b" % (kind.encode(), data)).digest()[:SIZE]


def canonical_arguments(text: str) -> str:
    """Tool arguments in one spelling (RFC 8785 for numbers and keys); `""` is `{}`.

    Clients re-serialise arguments as they please, so two texts that mean the same object must
    agree here. Text that is not JSON stays as it is.
    """
    if not text.strip():
        return "{}"
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return canonical(_plain_numbers(value)).decode()


def _plain_numbers(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if isinstance(value, dict):
        members = cast(dict[str, Any], value)  # what orjson made
        return {key: _plain_numbers(item) for key, item in members.items()}
    if isinstance(value, list):
        return [_plain_numbers(item) for item in cast(list[Any], value)]
    return value
