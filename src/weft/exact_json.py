"""Reads and writes JSON; every number stays as it was written.

All JSON of vendors, clients and stores goes through this module, which has the functions of orjson.
orjson alone reads an integer of more than 64 bits as a float and refuses to write one, and a float
has 17 digits at most: an amount of money would change without a word (docs/adr/0029).

- An integer is an `int` of any size.
- A number with a fraction or an exponent is a `float` if the float is written the same. Otherwise
  (`1.50`, `1e5`, 20 digits) it is a `Number`: a float that also has the text.
- `-0` is a `Number` too, because no integer has a sign without a value.

A number that is too large for a float (`1e400`) is refused, like invalid JSON.
"""

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar, cast

import msgspec
import orjson

Fragment = orjson.Fragment
JSONDecodeError = orjson.JSONDecodeError
JSONEncodeError = orjson.JSONEncodeError
OPT_APPEND_NEWLINE = orjson.OPT_APPEND_NEWLINE
OPT_INDENT_2 = orjson.OPT_INDENT_2
OPT_SORT_KEYS = orjson.OPT_SORT_KEYS

T = TypeVar("T")


class Number(float):
    """A number with the text that it was read from; `str` returns the text.

    Two of them are equal if their texts are.
    """

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> "Number":
        number = float.__new__(cls, text)
        number.text = text
        return number

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if type(other) is Number else float.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = float.__hash__

    def __repr__(self) -> str:
        return self.text

    def __getnewargs__(self) -> tuple[str]:  # type: ignore[override]
        return (self.text,)

    @property
    def is_exact(self) -> bool:
        """Whether the float has the same value as the text."""
        return Decimal(self.text) == Decimal(float.__repr__(self))


def read_float(text: str) -> float:
    """The `float_hook` of msgspec's decoders: a float, or a `Number` if it is written otherwise."""
    value = float(text)
    written = float.__repr__(value)
    if written == text and "e" not in written:
        return value  # without an exponent, all writers write a float like Python does
    if value in (float("inf"), float("-inf")):
        raise ValueError("the number is too large")
    return Number(text)


def _read_integer(text: str) -> int | Number:
    return Number(text) if text == "-0" else int(text)


_NEGATIVE_ZERO = re.compile(rb"-0(?:[\s,\]}]|\Z)")
_NEGATIVE_ZERO_TEXT = re.compile(r"-0(?:[\s,\]}]|\Z)")


def has_negative_zero(data: bytes | bytearray | memoryview | str) -> bool:
    """Whether a JSON text may contain the integer `-0`, which msgspec reads as 0."""
    if isinstance(data, str):
        return "-0" in data and _NEGATIVE_ZERO_TEXT.search(data) is not None
    return _NEGATIVE_ZERO.search(data) is not None


_decode = msgspec.json.Decoder(float_hook=read_float).decode
_decode_as_floats = msgspec.json.Decoder().decode


def loads(data: bytes | bytearray | memoryview | str) -> Any:
    """The value of a JSON text; raises `JSONDecodeError`."""
    try:
        value = _decode(data)
        if has_negative_zero(data):
            return _loads_slowly(data if isinstance(data, str) else bytes(data).decode())
        return value
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    orjson.loads(data)  # its errors tell what is wrong, and in which line
    raise JSONDecodeError("nested too deeply, or a number is too long", "", 0)


def loads_as_floats(data: bytes | str) -> Any:
    """Like `loads`, but every number with a fraction or an exponent is a plain float, for callers
    who take the value apart or write it themselves."""
    try:
        return _decode_as_floats(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return loads(data)  # which raises


def loads_leniently(data: bytes | str) -> Any:
    """Like `loads`, but takes what Python takes: half of a surrogate pair, and null for `NaN`,
    `Infinity` and numbers that are too large. Raises `ValueError` or `RecursionError`."""

    def finite_float(text: str) -> float | None:
        try:
            return read_float(text)
        except ValueError:
            return None

    return json.loads(
        data, parse_float=finite_float, parse_int=_read_integer, parse_constant=lambda _: None
    )


def _loads_slowly(text: str) -> Any:
    return json.loads(text, parse_float=read_float, parse_int=_read_integer)


def dumps(
    value: Any, default: Callable[[Any], Any] | None = None, option: int | None = None
) -> bytes:
    """A value as JSON; raises `JSONEncodeError` (a `TypeError`)."""
    write = _write_number if default is None else _number_or(default)
    try:
        return orjson.dumps(value, write, option)
    except JSONEncodeError as error:
        if str(error) != "Integer exceeds 64-bit range":
            raise
        try:
            value = _with_long_integers_as_text(value)
        except RecursionError:
            raise error from None
        return orjson.dumps(value, write, option)


def _write_number(value: Any) -> Any:
    if type(value) is Number:
        return Fragment(value.text)
    raise TypeError


def _number_or(default: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: Fragment(value.text) if type(value) is Number else default(value)


def _with_long_integers_as_text(value: Any) -> Any:
    """The value with integers that orjson refuses as finished JSON text."""
    if isinstance(value, dict):
        members = cast(dict[Any, Any], value)
        return {key: _with_long_integers_as_text(member) for key, member in members.items()}
    if isinstance(value, list | tuple):
        return [_with_long_integers_as_text(item) for item in cast("list[Any]", value)]
    if type(value) is int and not -(2**63) <= value < 2**64:
        try:
            return Fragment(str(value))
        except ValueError:  # Python writes no integer of more than 4,300 digits
            raise JSONEncodeError("Integer has too many digits") from None
    return value


def encode_hook(value: Any) -> Any:
    """The `enc_hook` of msgspec's encoders, which do not know `Number`."""
    if type(value) is Number:
        return msgspec.Raw(value.text.encode())
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


encode = msgspec.json.Encoder(enc_hook=encode_hook).encode
"""Writes msgspec's values as JSON."""

encode_sorted = msgspec.json.Encoder(enc_hook=encode_hook, order="sorted").encode
"""The same with sorted members."""


def decoder(kind: type[T]) -> Callable[[bytes], T]:
    """A function that reads a value of this type; it raises the errors of msgspec."""
    decode = msgspec.json.Decoder(kind, float_hook=read_float).decode

    def read(data: bytes) -> T:
        value = decode(data)
        if has_negative_zero(data):
            return msgspec.convert(_loads_slowly(data.decode()), kind)
        return value

    return read


_read_any = decoder(cast("type[Any]", Any))


def to_builtins(value: Any) -> Any:
    """A value of msgspec's types as plain JSON values."""
    try:
        return msgspec.to_builtins(value)
    except TypeError:  # it does not know `Number`
        return _read_any(encode(value))


def as_floats(value: Any) -> tuple[Any, list[tuple[str, Number]]]:
    """The value with plain floats instead of each `Number`, for callers who get a dict.

    Also returns the numbers whose value a float does not have, with their paths.
    """
    try:
        orjson.dumps(value)  # faster than a walk, and nearly no value has such a number
    except JSONEncodeError:
        numbers: list[tuple[Steps, Number | int]] = []
        try:
            plain = _split(value, (), numbers)
        except RecursionError:
            return value, []  # it cannot be written anyway
        rounded = [
            (_path(steps), number)
            for steps, number in numbers
            if type(number) is Number and not number.is_exact
        ]
        return plain, rounded
    return value, []


Steps = tuple[str | int, ...]
"""Where a value is: the keys and indexes on the way to it."""


def split_numbers(value: Any) -> tuple[Any, list[tuple[Steps, str]]]:
    """The value with numbers that every program can write, and the texts of the others."""
    try:
        orjson.dumps(value)
    except JSONEncodeError:
        numbers: list[tuple[Steps, Number | int]] = []
        try:
            plain = _split(value, (), numbers, keep_integers=False)
        except RecursionError:
            return value, []
        return plain, [(steps, str(number)) for steps, number in numbers]
    return value, []


def _split(
    value: Any, steps: Steps, numbers: list[tuple[Steps, Number | int]], keep_integers: bool = True
) -> Any:
    if type(value) is Number:
        numbers.append((steps, value))
        return float(value)
    if type(value) is int and not keep_integers and not -(2**63) <= value < 2**64:
        numbers.append((steps, value))
        return 0
    if type(value) is dict:
        members = cast(dict[str, Any], value)
        return {
            key: _split(member, (*steps, key), numbers, keep_integers)
            for key, member in members.items()
        }
    if isinstance(value, list | tuple):
        items = enumerate(cast("list[Any]", value))
        return [_split(item, (*steps, number), numbers, keep_integers) for number, item in items]
    return value


def join_numbers(value: Any, numbers: list[tuple[Steps, str]]) -> Any:
    """The value with these numbers in their places; the opposite of `split_numbers`.

    Raises `LookupError` or `TypeError` for a place that does not exist, and `ValueError` for a
    text that is no number.
    """
    joined = loads(dumps(value))
    for steps, text in numbers:
        holder = joined
        for step in steps[:-1]:
            holder = holder[step]
        holder[steps[-1]] = loads(text)
    return joined


def _path(steps: Steps) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return path.removeprefix(".")
