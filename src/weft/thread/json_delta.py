"""The delta of a JSON text: references to stored bytes, with the new text between them.

A client repeats its whole conversation in every request, and most of it was in the previous
request, or is a message of the thread. So a body is stored as positions (`[start, length]`) in one
pool of stored bytes, with the new text between them.

A body is split only at the quotes of its strings: a string is either referenced or written as a
whole. So `forget` finds a text that it must erase inside one piece.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate

from weft.lazy import lazy_pattern

MIN_REFERENCED = 24
"""Strings with fewer bytes are not looked up: a reference needs about half as many bytes."""

MAX_SEARCHES = 16
"""How many strings are searched for in a text before it is indexed."""

COMPARED_BLOCK = 65536
"""How many bytes are compared at once to find a common prefix."""

BACKSLASH = ord("\\")

Piece = str | list[int]
"""New text, or a reference into the pool: `[start, length]`."""

_TOKEN = lazy_pattern(rb'"(?:[^"\\]++|\\.)*+"|[^"]++', re.DOTALL)
"""A string with its quotes, or the text up to the next string."""


def encode_pieces(
    body: bytes,
    previous: bytes,
    stored: Sequence[bytes],
    value: bytes = b"",
    previous_shared_end: int = 0,
) -> tuple[list[Piece], int]:
    """The pieces of a body, and the end of the prefix that it shares with the previous body.

    The pool is the previous body, `stored` and `value`, with newlines between them. `value` is a
    part of the body that the caller stores separately, such as its tools. The returned position is
    outside of all strings. `previous_shared_end` is the position that was returned for the previous
    body: the text before it need not be scanned again.
    """
    prefix_length = common_prefix_length(body, previous)
    known_outside = previous_shared_end if previous_shared_end <= prefix_length else 0
    start = _outside_string(body, prefix_length, known_outside)
    stop = len(body) - _common_suffix_length(body, previous, start)
    pool = _Pool(previous, stored)
    pieces = _Pieces()
    pieces.copy(0, start)
    value_start = body.find(value, start) if value else -1
    if value_start < 0:
        stop = _encode_range(body, start, stop, pool, pieces)
    else:
        end = value_start + len(value)
        # The body is cut, so that no piece reaches into the value.
        _encode_range(body[:value_start], start, value_start, pool, pieces)
        pieces.copy(pool.size + 1, len(value))  # the pool ends with a newline and the value
        stop = _encode_range(body, end, max(end, stop), pool, pieces)
    suffix_length = len(body) - stop
    pieces.copy(len(previous) - suffix_length, suffix_length)
    return pieces.close(), start


def apply_pieces(body: bytearray, pieces: Iterable[Piece], stored: Sequence[bytes]) -> None:
    """Change the previous body in place into the body that these pieces describe.

    A common prefix is not copied, so the cost depends only on the text after it.
    """
    stored_text = b"\n".join(stored)
    stored_start = len(body) + 1
    prefix_length, new_parts = 0, list[bytes | bytearray]()
    for piece in pieces:
        if isinstance(piece, str):
            new_parts.append(piece.encode())
            continue
        start, length = piece
        if start == 0 and not prefix_length and not new_parts:
            prefix_length = length
        elif start < stored_start:
            new_parts.append(body[start : start + length])
        else:
            start -= stored_start
            new_parts.append(stored_text[start : start + length])
    body[prefix_length:] = b"".join(new_parts)


class _Pieces:
    """Collects pieces; new text is buffered until the next reference."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._text: list[bytes] = []

    def copy(self, start: int, length: int) -> None:
        if length:
            self._flush()
            self._pieces.append([start, length])

    def write(self, text: bytes) -> None:
        self._text.append(text)

    def close(self) -> list[Piece]:
        self._flush()
        return self._pieces

    def _flush(self) -> None:
        if self._text:
            self._pieces.append(b"".join(self._text).decode())
            self._text.clear()


class _SearchableText:
    """A text in which strings are looked up.

    Usually few strings are looked up, so the text is searched at first, and indexed only after
    `MAX_SEARCHES` lookups. A search starts where the last copied range ended: if a string occurs
    several times, the occurrence after that range is the most likely to continue it.
    """

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._index: dict[bytes, int] | None = None
        self._searches = 0
        self._copied_end = 0

    def find(self, string: bytes) -> int | None:
        """The position of a string with its quotes."""
        if self._index is None and self._searches < MAX_SEARCHES:
            self._searches += 1
            text = self.text
            position = text.find(string, self._copied_end)
            position = text.find(string) if position < 0 and self._copied_end else position
            while position >= 0 and _is_escaped(text, position):
                position = text.find(string, position + 1)
            return None if position < 0 else position
        if self._index is None:
            self._index = _index_strings(self.text)
        return self._index.get(string)

    def match_length(self, body: bytes, start: int, position: int) -> int:
        """How many bytes from `start` of the body equal those at this position of the text."""
        length = common_prefix_length(body, self.text, start, position)
        self._copied_end = position + length
        return length


class _Pool:
    """The pool of stored bytes, in two parts: the previous body, and everything else."""

    def __init__(self, previous: bytes, stored: Sequence[bytes]) -> None:
        self._previous = _SearchableText(previous)
        self._stored = _SearchableText(b"\n".join(stored))
        self._stored_start = len(previous) + 1
        self.size = self._stored_start + len(self._stored.text) if stored else len(previous)

    def find(self, string: bytes) -> int | None:
        """The position of a string with its quotes; newer texts come first."""
        position = self._stored.find(string)
        return self._previous.find(string) if position is None else position + self._stored_start

    def match_length(self, body: bytes, start: int, position: int) -> int:
        """How many bytes from `start` of the body equal those at this position of the pool."""
        if position < self._stored_start:
            return self._previous.match_length(body, start, position)
        return self._stored.match_length(body, start, position - self._stored_start)


def _encode_range(body: bytes, start: int, stop: int, pool: _Pool, pieces: _Pieces) -> int:
    """Add the pieces from `start` to `stop`; returns the position after the last one.

    The last piece may end after `stop`, because a string is never split.
    """
    while start < stop:
        match = _TOKEN.match(body, start)
        if match is None:  # from here on, the body is not JSON
            pieces.write(body[start:])
            return len(body)
        token = match[0]
        position = pool.find(token) if len(token) >= MIN_REFERENCED and token[:1] == b'"' else None
        if position is None:
            pieces.write(token)
            start = match.end()
            continue
        end = _outside_string(body, start + pool.match_length(body, start, position), start)
        pieces.copy(position, end - start)
        start = end
    return start


def _index_strings(text: bytes) -> dict[bytes, int]:
    """The positions of all strings that may be referenced."""
    tokens = _tokens(text)
    starts = accumulate(map(len, tokens), initial=0)  # has one item more, the end of the text
    return {
        token: start
        for token, start in zip(tokens, starts, strict=False)
        if len(token) >= MIN_REFERENCED and token[:1] == b'"'
    }


def _tokens(text: bytes) -> list[bytes]:
    """Strings with their quotes, and the text between them; one token if it is not JSON."""
    tokens: list[bytes] = _TOKEN.findall(text)
    return tokens if sum(map(len, tokens)) == len(text) else [text]


def _outside_string(text: bytes, position: int, earlier: int = 0) -> int:
    """The position itself, or the start of the string that contains it.

    `earlier` is an earlier position that is not inside a string. The position is inside one if the
    number of unescaped quotes between the two is odd.
    """
    prefix = text[earlier:position]
    if b"\\" in prefix:
        prefix = prefix.replace(b"\\\\", b"")  # the remaining backslashes escape something
    if (prefix.count(b'"') - prefix.count(b'\\"')) % 2 == 0:
        return position
    position = text.rindex(b'"', 0, position)
    while _is_escaped(text, position):
        position = text.rindex(b'"', 0, position)
    return position


def _is_escaped(text: bytes, position: int) -> bool:
    """Whether the character at this position follows an odd number of backslashes."""
    first = position
    while first and text[first - 1] == BACKSLASH:
        first -= 1
    return (position - first) % 2 == 1


def common_prefix_length(one: bytes, other: bytes, start: int = 0, other_start: int = 0) -> int:
    """The length of the common prefix of `one[start:]` and `other[other_start:]`.

    Whole blocks are compared first. The position in the first different block is then found by
    bisection: a loop over single bytes is too slow in Python.
    """
    limit = min(len(one) - start, len(other) - other_start)
    low, high = 0, min(COMPARED_BLOCK, limit)
    while low < limit and one.startswith(
        other[other_start + low : other_start + high], start + low
    ):
        low, high = high, min(high + COMPARED_BLOCK, limit)
    while low < high:
        middle = (low + high + 1) // 2
        if one.startswith(other[other_start + low : other_start + middle], start + low):
            low = middle
        else:
            high = middle - 1
    return low


def _common_suffix_length(one: bytes, other: bytes, start: int) -> int:
    """The length of the common suffix, not reaching before `start`."""
    low, high = 0, min(len(one), len(other)) - start
    while low < high:
        middle = (low + high + 1) // 2
        if one[len(one) - middle : len(one) - low] == other[len(other) - middle : len(other) - low]:
            low = middle
        else:
            high = middle - 1
    return low
