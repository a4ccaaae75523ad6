"""A JSON text as pieces: runs of a text that is known already, and the words that only it has.

A client says its whole conversation in every request, and most of it was in the request before,
or is a message that the thread has. So a body is said as places in those (`[start, length]` in one
pool of known bytes) with what is new between them.

A body is cut at the quotes of its strings and nowhere else. A string is taken from the pool whole
or written out whole: whoever looks for a text in what was written out, to erase it, finds it.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

SHORTEST = 24
"""Bytes from which on a string is worth looking for: naming a place takes about half as many."""

BACKSLASH = ord("\\")

Piece = str | list[int]
"""What only this text says, or where the pool says it: `[start, length]`."""

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[^"]++', re.DOTALL)


def make_pool(before: bytes, known: Iterable[bytes]) -> bytes:
    """All that pieces may be taken from: the text before this one, then everything else."""
    return b"\n".join((before, *known))


def cut(body: bytes, before: bytes, known: Sequence[bytes], value: bytes = b"") -> list[Piece]:
    """The body in as few words of its own as may be.

    `value` is a JSON value of the body that is known as well, last in the pool.
    """
    start = _outside(body, _same_start(body, before))
    tokens = _tokens(body, start, len(body) - _same_end(body, before, start))
    stop = start + sum(map(len, tokens))
    pool, find = make_pool(before, known), _finder(before, known)
    pieces = _Pieces()
    pieces.copy(0, start)
    at = body.find(value, start, stop) if value else -1
    if at < 0:
        _cut_middle(tokens, pool, find, pieces)
    else:
        behind = at + len(value)
        _cut_middle(_tokens(body[start:at], 0, at - start), pool, find, pieces)
        pieces.copy(len(pool) + 1, len(value))
        _cut_middle(_tokens(body[behind:stop], 0, stop - behind), pool, find, pieces)
    pieces.copy(len(before) - (len(body) - stop), len(body) - stop)
    return pieces.close()


def join(pieces: Iterable[Piece], pool: bytes) -> bytes:
    """The text that these are the pieces of."""
    return b"".join(
        piece.encode() if isinstance(piece, str) else pool[piece[0] : piece[0] + piece[1]]
        for piece in pieces
    )


class _Pieces:
    """Pieces in the making: words wait until the next run is certain."""

    def __init__(self) -> None:
        self._done: list[Piece] = []
        self._words: list[bytes] = []

    def copy(self, start: int, length: int) -> None:
        if length:
            self._flush()
            self._done.append([start, length])

    def write(self, words: bytes) -> None:
        self._words.append(words)

    def close(self) -> list[Piece]:
        self._flush()
        return self._done

    def _flush(self) -> None:
        if self._words:
            self._done.append(b"".join(self._words).decode())
            self._words.clear()


def _cut_middle(
    tokens: Sequence[bytes], pool: bytes, find: Callable[[bytes], int | None], pieces: _Pieces
) -> None:
    place = 0
    while place < len(tokens):
        token = tokens[place]
        at = find(token) if len(token) >= SHORTEST else None
        place += 1
        if at is None:
            pieces.write(token)
            continue
        end = at + len(token)
        while place < len(tokens) and pool.startswith(tokens[place], end):
            end += len(tokens[place])
            place += 1
        pieces.copy(at, end - at)


def _finder(before: bytes, known: Sequence[bytes]) -> Callable[[bytes], int | None]:
    """Where in the pool a string stands; what is nearer to the body's end is asked first.

    The text before is read only when something is missing that is in none of the others.
    """
    indexes: list[dict[bytes, int]] = []
    texts = [(b"\n".join(known), len(before) + 1), (before, 0)]

    def find(token: bytes) -> int | None:
        for number, (text, offset) in enumerate(texts):
            if number == len(indexes):
                indexes.append(_index(text, offset))
            at = indexes[number].get(token)
            if at is not None:
                return at
        return None

    return find


def _index(text: bytes, offset: int) -> dict[bytes, int]:
    """The places of all strings that are worth naming."""
    tokens = _tokens(text, 0, len(text))
    starts = accumulate(map(len, tokens), initial=offset)
    pairs = zip(tokens, starts, strict=False)
    return {token: at for token, at in pairs if len(token) >= SHORTEST and token[:1] == b'"'}


def _tokens(text: bytes, start: int, stop: int) -> list[bytes]:
    """Strings with their quotes and what stands between them, from `start` until `stop` is passed.

    No byte is left out: what is no JSON to its end is one token.
    """
    tokens: list[bytes] = []
    if stop == len(text):
        tokens = _TOKEN.findall(text, start)
        return tokens if start + sum(map(len, tokens)) == stop else [text[start:]]
    while start < stop:
        found = _TOKEN.match(text, start)
        if found is None:
            return [*tokens, text[start:]]
        tokens.append(found[0])
        start = found.end()
    return tokens


def _outside(text: bytes, place: int) -> int:
    """The place, or the beginning of the string that it is in."""
    start = text[:place].replace(b"\\\\", b"")  # what is left of backslashes escapes something
    if (start.count(b'"') - start.count(b'\\"')) % 2 == 0:
        return place
    place = text.rindex(b'"', 0, place)
    while _is_escaped(text, place):
        place = text.rindex(b'"', 0, place)
    return place


def _is_escaped(text: bytes, place: int) -> bool:
    first = place
    while first and text[first - 1] == BACKSLASH:
        first -= 1
    return (place - first) % 2 == 1


def _same_start(one: bytes, other: bytes) -> int:
    """How many bytes both begin with, found by halves: a comparison of slices is nearly free."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _same_end(one: bytes, other: bytes, start: int) -> int:
    """How many bytes both end with, without those before `start`."""
    low, high = 0, min(len(one), len(other)) - start
    while low < high:
        middle = (low + high + 1) // 2
        if one[len(one) - middle : len(one) - low] == other[len(other) - middle : len(other) - low]:
            low = middle
        else:
            high = middle - 1
    return low
