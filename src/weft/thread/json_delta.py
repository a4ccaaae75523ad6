"""A JSON text as pieces: references to stored bytes, and new text.

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

SHORTEST = 24
"""Shorter strings are not looked up: a reference needs about half as many bytes."""

SEARCHES = 16
"""How many strings are searched for in a text before it is indexed."""

BLOCK = 65536
BACKSLASH = ord("\\")

Piece = str | list[int]
"""New text, or a reference into the pool: `[start, length]`."""

_TOKEN = lazy_pattern(rb'"(?:[^"\\]++|\\.)*+"|[^"]++', re.DOTALL)


def cut(
    body: bytes, previous: bytes, stored: Sequence[bytes], value: bytes = b"", outside: int = 0
) -> tuple[list[Piece], int]:
    """The pieces of a body, and the position up to which it equals the previous body.

    The pool is the previous body, `stored` and `value`, with newlines between them. `value` is a
    JSON value of the body. The returned position is never inside a string. `outside` is the
    position that was returned for the previous body; it saves scanning the text before it.
    """
    start = same_start(body, previous)
    start = _outside(body, start, outside if outside <= start else 0)
    stop = len(body) - _same_end(body, previous, start)
    pool = _Pool(previous, stored)
    pieces = _Pieces()
    pieces.copy(0, start)
    value_start = body.find(value, start) if value else -1
    if value_start < 0:
        stop = _cut_middle(body, start, stop, pool, pieces)
    else:
        end = value_start + len(value)
        _cut_middle(body[:value_start], start, value_start, pool, pieces)
        pieces.copy(pool.size + 1, len(value))
        stop = _cut_middle(body, end, max(end, stop), pool, pieces)
    pieces.copy(len(previous) - (len(body) - stop), len(body) - stop)
    return pieces.close(), start


def rewrite(body: bytearray, pieces: Iterable[Piece], stored: Sequence[bytes]) -> None:
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


class _Text:
    """A text in which strings are looked up.

    Usually few strings are looked up, so the text is searched at first, and indexed only after
    `SEARCHES` lookups. The search starts where the last copied run ended, because the same string
    may occur several times.
    """

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._index: dict[bytes, int] | None = None
        self._searches = 0
        self._copied = 0

    def find(self, string: bytes) -> int | None:
        """The position of a string with its quotes."""
        if self._index is None and self._searches < SEARCHES:
            self._searches += 1
            text = self.text
            position = text.find(string, self._copied)
            position = text.find(string) if position < 0 and self._copied else position
            while position >= 0 and _is_escaped(text, position):
                position = text.find(string, position + 1)
            return None if position < 0 else position
        if self._index is None:
            self._index = _index(self.text)
        return self._index.get(string)

    def run(self, body: bytes, start: int, position: int) -> int:
        """How many bytes from `start` of the body equal those at this position of the text."""
        length = same_start(body, self.text, start, position)
        self._copied = position + length
        return length


class _Pool:
    """The pool of stored bytes, in two parts: the previous body, and everything else."""

    def __init__(self, previous: bytes, stored: Sequence[bytes]) -> None:
        self._previous = _Text(previous)
        self._stored = _Text(b"\n".join(stored))
        self._stored_start = len(previous) + 1
        self.size = self._stored_start + len(self._stored.text) if stored else len(previous)

    def find(self, string: bytes) -> int | None:
        """The position of a string with its quotes; newer texts come first."""
        position = self._stored.find(string)
        return self._previous.find(string) if position is None else position + self._stored_start

    def run(self, body: bytes, start: int, position: int) -> int:
        """How many bytes from `start` of the body equal those at this position of the pool."""
        if position < self._stored_start:
            return self._previous.run(body, start, position)
        return self._stored.run(body, start, position - self._stored_start)


def _cut_middle(body: bytes, start: int, stop: int, pool: _Pool, pieces: _Pieces) -> int:
    """Cut the body from `start` until past `stop`; returns the position after the last piece."""
    while start < stop:
        match = _TOKEN.match(body, start)
        if match is None:  # the rest is not JSON
            pieces.write(body[start:])
            return len(body)
        token = match[0]
        position = pool.find(token) if len(token) >= SHORTEST and token[:1] == b'"' else None
        if position is None:
            pieces.write(token)
            start = match.end()
            continue
        end = _outside(body, start + pool.run(body, start, position), start)
        pieces.copy(position, end - start)
        start = end
    return start


def _index(text: bytes) -> dict[bytes, int]:
    """The positions of all strings that are long enough."""
    tokens = _tokens(text)
    starts = accumulate(map(len, tokens), initial=0)
    pairs = zip(tokens, starts, strict=False)
    return {
        token: position for token, position in pairs if len(token) >= SHORTEST and token[:1] == b'"'
    }


def _tokens(text: bytes) -> list[bytes]:
    """Strings with their quotes, and what is between them; one token if the text is not JSON."""
    tokens: list[bytes] = _TOKEN.findall(text)
    return tokens if sum(map(len, tokens)) == len(text) else [text]


def _outside(text: bytes, position: int, earlier: int = 0) -> int:
    """The position, or the start of the string that it is inside of.

    `earlier` is an earlier position that is not inside a string.
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
    first = position
    while first and text[first - 1] == BACKSLASH:
        first -= 1
    return (position - first) % 2 == 1


def same_start(one: bytes, other: bytes, start: int = 0, at: int = 0) -> int:
    """The length of the common prefix of `one` from `start` and `other` from `at`.

    Blocks are compared, and the first different one is halved.
    """
    limit = min(len(one) - start, len(other) - at)
    low, high = 0, min(BLOCK, limit)
    while low < limit and one.startswith(other[at + low : at + high], start + low):
        low, high = high, min(high + BLOCK, limit)
    while low < high:
        middle = (low + high + 1) // 2
        if one.startswith(other[at + low : at + middle], start + low):
            low = middle
        else:
            high = middle - 1
    return low


def _same_end(one: bytes, other: bytes, start: int) -> int:
    """The length of the common suffix, not reaching before `start`."""
    low, high = 0, min(len(one), len(other)) - start
    while low < high:
        middle = (low + high + 1) // 2
        if one[len(one) - middle : len(one) - low] == other[len(other) - middle : len(other) - low]:
            low = middle
        else:
            high = middle - 1
    return low
