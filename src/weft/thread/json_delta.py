"""A JSON text as pieces: references to known bytes, and new text.

A client repeats its whole conversation in every request, and most of it was in the previous
request, or is a message of the thread. So a body is stored as positions (`[start, length]`) in one
pool of known bytes, with the new text between them.

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
    body: bytes, before: bytes, known: Sequence[bytes], value: bytes = b"", outside: int = 0
) -> tuple[list[Piece], int]:
    """The pieces of a body, and the position up to which it equals the previous text.

    The pool is the previous text, `known` and `value`, with newlines between them. `value` is a
    JSON value of the body. The returned position is never inside a string. `outside` is the
    position that was returned for the previous text; it saves scanning the text before it.
    """
    start = same_start(body, before)
    start = _outside(body, start, outside if outside <= start else 0)
    stop = len(body) - _same_end(body, before, start)
    pool = _Pool(before, known)
    pieces = _Pieces()
    pieces.copy(0, start)
    at = body.find(value, start) if value else -1
    if at < 0:
        stop = _cut_middle(body, start, stop, pool, pieces)
    else:
        end = at + len(value)
        _cut_middle(body[:at], start, at, pool, pieces)
        pieces.copy(pool.size + 1, len(value))
        stop = _cut_middle(body, end, max(end, stop), pool, pieces)
    pieces.copy(len(before) - (len(body) - stop), len(body) - stop)
    return pieces.close(), start


def rewrite(body: bytearray, pieces: Iterable[Piece], known: Sequence[bytes]) -> None:
    """Turn the previous text, in place, into the text that these pieces describe.

    A common start is not copied, so the cost depends only on the rest.
    """
    others = b"\n".join(known)
    others_start = len(body) + 1
    prefix_length, new = 0, list[bytes | bytearray]()
    for piece in pieces:
        if isinstance(piece, str):
            new.append(piece.encode())
            continue
        start, length = piece
        if start == 0 and not prefix_length and not new:
            prefix_length = length
        elif start < others_start:
            new.append(body[start : start + length])
        else:
            start -= others_start
            new.append(others[start : start + length])
    body[prefix_length:] = b"".join(new)


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
    `SEARCHES` lookups. The search starts where the last run ended, because a text may be in a
    conversation several times.
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
            at = text.find(string, self._copied)
            at = text.find(string) if at < 0 and self._copied else at
            while at >= 0 and _is_escaped(text, at):
                at = text.find(string, at + 1)
            return None if at < 0 else at
        if self._index is None:
            self._index = _index(self.text)
        return self._index.get(string)

    def run(self, body: bytes, start: int, at: int) -> int:
        """How many bytes from `start` of the body equal those at this position of the text."""
        length = same_start(body, self.text, start, at)
        self._copied = at + length
        return length


class _Pool:
    """The pool of known bytes, in its two parts: the previous text, and everything else."""

    def __init__(self, before: bytes, known: Sequence[bytes]) -> None:
        self._before = _Text(before)
        self._known = _Text(b"\n".join(known))
        self._known_start = len(before) + 1
        self.size = self._known_start + len(self._known.text) if known else len(before)

    def find(self, string: bytes) -> int | None:
        """The position of a string with its quotes; newer texts come first."""
        at = self._known.find(string)
        return self._before.find(string) if at is None else at + self._known_start

    def run(self, body: bytes, start: int, at: int) -> int:
        """How many bytes from `start` of the body equal those at this position of the pool."""
        if at < self._known_start:
            return self._before.run(body, start, at)
        return self._known.run(body, start, at - self._known_start)


def _cut_middle(body: bytes, start: int, stop: int, pool: _Pool, pieces: _Pieces) -> int:
    """Cut the body from `start` until past `stop`; returns the position after the last piece."""
    while start < stop:
        match = _TOKEN.match(body, start)
        if match is None:  # the rest is not JSON
            pieces.write(body[start:])
            return len(body)
        token = match[0]
        at = pool.find(token) if len(token) >= SHORTEST and token[:1] == b'"' else None
        if at is None:
            pieces.write(token)
            start = match.end()
            continue
        end = _outside(body, start + pool.run(body, start, at), start)
        pieces.copy(at, end - start)
        start = end
    return start


def _index(text: bytes) -> dict[bytes, int]:
    """The positions of all strings that are long enough."""
    tokens = _tokens(text)
    starts = accumulate(map(len, tokens), initial=0)
    pairs = zip(tokens, starts, strict=False)
    return {token: at for token, at in pairs if len(token) >= SHORTEST and token[:1] == b'"'}


def _tokens(text: bytes) -> list[bytes]:
    """Strings with their quotes, and what is between them; one token if the text is not JSON."""
    tokens: list[bytes] = _TOKEN.findall(text)
    return tokens if sum(map(len, tokens)) == len(text) else [text]


def _outside(text: bytes, position: int, earlier: int = 0) -> int:
    """The position, or the start of the string that it is inside of.

    `earlier` is an earlier position that is not inside a string.
    """
    start = text[earlier:position]
    if b"\\" in start:
        start = start.replace(b"\\\\", b"")  # the remaining backslashes escape something
    if (start.count(b'"') - start.count(b'\\"')) % 2 == 0:
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
