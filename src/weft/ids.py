"""Canonical JSON and object ids: all hashing in Weft is here.

An id is 20 bytes of SHA-256 over `weft1:<kind>`, a zero byte and canonical JSON: keys sorted,
no spaces, absent members omitted. It is shown as hex, and users may type any unique prefix. Objects
of different kinds never have the same id, because the hash covers the kind.
"""

from hashlib import sha256
from typing import Any, cast

from weft import exact_json

SIZE = 20
"""The bytes of an id."""

Id = bytes


def canonical(value: Any) -> bytes:
    """The canonical JSON of a value, which hashes cover."""
    return exact_json.dumps(value, option=exact_json.OPT_SORT_KEYS)


def object_id(kind: str, data: bytes) -> Id:
    """The id of canonical bytes as an object of this kind."""
    hasher = sha256(b"weft1:%b\0" % kind.encode())
    hasher.update(data)  # not joined with the kind: large data would be copied
    return hasher.digest()[:SIZE]


class IdHasher:
    """Computes the id of an object whose bytes are added in parts."""

    __slots__ = ("_hash",)

    def __init__(self, kind: str) -> None:
        self._hash = sha256(b"weft1:%b\0" % kind.encode())

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes at the end."""
        self._hash.update(data)

    def copy(self) -> "IdHasher":
        """A second hasher with the same bytes so far; each can be continued on its own."""
        other = IdHasher.__new__(IdHasher)
        other._hash = self._hash.copy()
        return other

    def id(self) -> Id:
        """The id of the bytes so far."""
        return self._hash.digest()[:SIZE]


def canonical_arguments(text: str) -> str:
    """Tool arguments as canonical JSON (RFC 8785 for numbers and keys); `""` is `{}`.

    Clients re-serialise arguments, so two texts for the same object must be equal here. Text that
    is not JSON stays unchanged.
    """
    if not text.strip():
        return "{}"
    try:
        value = exact_json.loads(text)
    except exact_json.JSONDecodeError:
        return text
    try:
        return canonical(_plain_numbers(value)).decode()
    except OverflowError:  # an integer that no float can hold
        return text


def _plain_numbers(value: Any) -> Any:
    """The value with numbers as RFC 8785 reads them: whole floats as integers (`2.0` as `2`), and
    integers of more than 64 bits as floats, because most clients return them rounded."""
    if type(value) is int and not -(2**63) <= value < 2**64:
        return float(value)
    if isinstance(value, float):
        value = float(value)
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if isinstance(value, dict):
        members = cast(dict[str, Any], value)  # JSON's keys are strings
        return {key: _plain_numbers(item) for key, item in members.items()}
    if isinstance(value, list):
        return [_plain_numbers(item) for item in cast(list[Any], value)]
    return value
