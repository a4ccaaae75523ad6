"""Tool results that the model has not read yet: never folded, shortened where they do not fit.

A result is unread as long as no assistant message stands behind it: no answer has seen it. What
`recall` brings back is such a result too. A fold that took one would lose what the model has just
asked for, so an unread result stays; where it is too long for the budget it is *thinned*: its
head, its tail, the lines in between that share words with the current task, and a last line that
says how much is missing and which handle gives `recall` the original.

The handle is the message's id and the number of the block in it. Thinning changes one block and
nothing else; the commit before it has the original. A pinned result is never thinned.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import log

from msgspec import Struct, structs

from weft.history import Row, shows
from weft.model import (
    Audio,
    Block,
    File,
    Image,
    Message,
    Opaque,
    Text,
    ToolCall,
    ToolResult,
    side,
    texts,
)

from .plan import Thinned, block_kind, slot

HANDLE = 12
"""The digits of a message's id in a handle."""

MARKER = '[Shortened: {left:,} of {total:,} characters left out. recall("{handle}") has the whole.]'
GAP = "[...]"
HEAD_SHARE, TAIL_SHARE = 0.45, 0.25
"""What the head and the tail get; the rest is for lines that match the task."""

PIECE = 300
"""A longer line is matched in pieces of so many characters."""

WORDS_MOST = 64
COMMON_SHARE, COMMON_LEAST = 8, 20
"""A word that stands in more than this fraction of the lines, and more often than that, tells
nothing about where to look."""

_WORD = re.compile(r"[^\W\d_]\w{2,}|\d{3,}|[\u3040-\u9fff\uac00-\ud7af]{2}")
_COMMON = frozenset(
    {
        *("the", "and", "for", "that", "this", "with", "from", "are", "was", "were", "have", "has"),
        *("had", "not", "you", "your", "can", "will", "would", "should", "could", "what", "which"),
        *("when", "where", "who", "how", "why", "all", "any", "its", "but", "then", "than", "them"),
        *("they", "there", "here", "into", "please", "file", "files", "read", "show", "tell"),
        *("report", "look", "find", "use", "using", "make", "get"),
    }
)
"""Words that say nothing about a task."""

Count = Callable[[Message], int]


class Thinning(Struct, frozen=True):
    """Rows in which unread results are shortened, and which results that concerns."""

    rows: tuple[Row, ...]
    thinned: tuple[Thinned, ...]


def unread_rows(rows: Sequence[Row]) -> list[int]:
    """The numbers of the rows that hold results which no answer has read."""
    answers = [i for i, row in enumerate(rows) if side(row.message.role) == "assistant"]
    first = answers[-1] + 1 if answers else 0
    return [i for i in range(first, len(rows)) if shows(rows[i]) and _results(rows[i])]


def thinnable_rows(rows: Sequence[Row]) -> list[int]:
    """Those of them that may be shortened: a pin stays as it is."""
    return [i for i in unread_rows(rows) if rows[i].priority != "pinned"]


def thin_unread(rows: Sequence[Row], room: int, count: Count) -> Thinning:
    """The rows with their unread results shortened until these have at most `room` tokens."""
    return Unread(rows, count).thin(room)


class Unread:
    """The unread results of some rows, ready to be shortened to any size.

    `count` is asked about rows that are tried and thrown away.
    """

    def __init__(self, rows: Sequence[Row], count: Count) -> None:
        self.rows = rows
        self.count = count
        self.numbers = thinnable_rows(rows)
        words = _task_words(rows, self.numbers)
        self.excerpts = {
            (i, j): _Excerpt(_text_of(block), handle_of(rows[i], j), words)
            for i in self.numbers
            for j, block in enumerate(rows[i].message.blocks)
            if isinstance(block, ToolResult)
        }
        self.longest = max((len(excerpt.text) for excerpt in self.excerpts.values()), default=0)

    def thin(self, room: int) -> Thinning:
        """The rows with these results shortened until their rows have at most `room` tokens.

        All results get the same number of characters, as many as fit; a shorter one stays whole.
        Media go where they do not fit beside the handles. Where even the handles are too much,
        those are what is left: the caller counts again.
        """
        with_media = self._size(0, with_media=True) <= room

        def fits(most: int) -> bool:
            return self._size(most, with_media=with_media) <= room

        most = _most_that_fits(self.longest, fits)
        thin = {i: self._cut_row(i, most, with_media) for i in self.numbers}
        return _thinning(self.rows, thin)

    def _size(self, most: int, *, with_media: bool) -> int:
        return sum(self.count(self._cut_row(i, most, with_media).message) for i in self.numbers)

    def _cut_row(self, number: int, most: int, with_media: bool) -> Row:
        """A row with at most `most` characters of each result, and a handle for the rest."""
        row = self.rows[number]
        old = row.message.blocks
        new = tuple(self._cut(number, place, most, with_media) for place in range(len(old)))
        if all(one is other for one, other in zip(new, old, strict=True)):
            return row
        return structs.replace(row, message=structs.replace(row.message, blocks=new))

    def _cut(self, number: int, place: int, most: int, with_media: bool) -> Block:
        block = self.rows[number].message.blocks[place]
        if not isinstance(block, ToolResult):
            return block
        excerpt = self.excerpts[number, place]
        media = [inner for inner in block.content if _is_media(inner)]
        text = excerpt.within(most)
        if text == excerpt.text and (with_media or not media):
            return block
        if media and not with_media:
            kinds = Counter(block_kind(inner) for inner in media)
            left = ", ".join(f"{many} {kind}" for kind, many in kinds.items())
            text = f"[left out: {left}]\n{text}" if text else f"[left out: {left}]"
            media = []
        form = block.form if block.form == "text" and not media else ""
        return structs.replace(block, content=(Text(text), *media), form=form)


def handle_of(row: Row, number: int) -> str:
    """What `recall` takes to bring back the original of this block."""
    return f"{(slot(row) or '')[:HANDLE]}/{number}"


def _thinning(rows: Sequence[Row], thin: dict[int, Row]) -> Thinning:
    thinned: list[Thinned] = []
    for i, row in thin.items():
        blocks = zip(rows[i].message.blocks, row.message.blocks, strict=True)
        for number, (old, new) in enumerate(blocks):
            if old != new:
                before, after = len(_text_of(old)), len(_text_of(new))
                thinned.append(Thinned(id=slot(row), block=number, before=before, after=after))
    return Thinning(tuple(thin.get(i, row) for i, row in enumerate(rows)), tuple(thinned))


class _Excerpt:
    """A text of which the head, the tail and the matching lines can be had in any length."""

    def __init__(self, text: str, handle: str, words: Sequence[str]) -> None:
        self.text = text
        self.handle = handle
        self.words = words
        self._pieces: list[tuple[int, int]] | None = None
        self._known: tuple[str, int] | None = None

    def within(self, most: int) -> str:
        """At most about `most` characters of the text and the line that says what is missing; the
        text itself where that is no longer."""
        if len(self.text) <= most:
            return self.text
        body, total = self._known_size()
        parts, kept = self._choose(body, most)
        marker = MARKER.format(left=total - kept, total=total, handle=self.handle)
        shorter = "\n".join([*parts, marker])
        return shorter if len(shorter) < len(self.text) else self.text

    def _known_size(self) -> tuple[str, int]:
        """The text without the marker of an earlier thinning, and the size of the original."""
        if self._known is None:
            self._known = self._read_marker()
        return self._known

    def _read_marker(self) -> tuple[str, int]:
        head, _, last = self.text.rpartition("\n")
        pattern = re.escape(MARKER).replace(r"\{left:,\}", r"[\d,]+")
        pattern = pattern.replace(r"\{total:,\}", r"([\d,]+)").replace(r"\{handle\}", self.handle)
        earlier = re.fullmatch(pattern, last)
        if earlier is None:
            return self.text, len(self.text)
        return head, max(len(head), int(earlier[1].replace(",", "")))

    def _choose(self, body: str, most: int) -> tuple[list[str], int]:
        """The parts to show, with gaps between them, and how many characters they are."""
        if most <= 0:
            return [], 0
        matching = bool(self._ranked(body))
        head_share, tail_share = (HEAD_SHARE, TAIL_SHARE) if matching else (0.6, 0.4)
        head = _line_end(body, int(most * head_share))
        tail = _line_start(body, max(head, len(body) - int(most * tail_share)))
        spans = [(0, head), *self._matches(body, head, tail, most - head - (len(body) - tail))]
        spans.append((tail, len(body)))
        parts: list[str] = []
        at = 0
        for start, end in spans:
            if start >= end:
                continue
            if start > at:
                parts.append(GAP)
                parts.append(body[start:end].strip("\n"))
            elif parts:
                parts[-1] = f"{parts[-1]}\n{body[start:end]}".strip("\n")
            else:
                parts.append(body[start:end].strip("\n"))
            at = end
        return parts, sum(end - start for start, end in spans if end > start)

    def _matches(self, body: str, start: int, end: int, room: int) -> list[tuple[int, int]]:
        """The pieces between head and tail that match the task best, in their order."""
        chosen: list[tuple[int, int]] = []
        for low, high in self._ranked(body):
            if low < start or high > end:
                continue
            room -= high - low + len(GAP) + 2
            if room < 0:
                break
            chosen.append((low, high))
        return sorted(chosen)

    def _ranked(self, body: str) -> list[tuple[int, int]]:
        """The pieces of the body that have words of the task, the most telling first."""
        if self._pieces is None:
            self._pieces = _rank_pieces(body, self.words)
        return self._pieces


def _rank_pieces(body: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """The spans of lines (or pieces of long lines) that share words with the task, best first: a
    word that few lines have counts for more, and one that most lines have for nothing."""
    lowered = body.lower()
    common = max(COMMON_LEAST, lowered.count("\n") // COMMON_SHARE)
    words = [word for word in words if 0 < lowered.count(word) <= common]
    if not words:
        return []
    # A pattern that minds no case is several times slower; lowering keeps the places of ASCII only.
    ascii_only = body.isascii()
    pattern = re.compile("|".join(map(re.escape, words)), 0 if ascii_only else re.IGNORECASE)
    starts = [0, *accumulate(len(line) for line in body.splitlines(keepends=True))]
    found: dict[tuple[int, int], set[str]] = {}
    for match in pattern.finditer(lowered if ascii_only else body):
        line = bisect_right(starts, match.start()) - 1
        low = starts[line]
        low += (match.start() - low) // PIECE * PIECE
        high = min(starts[line + 1] if line + 1 < len(starts) else len(body), low + PIECE)
        found.setdefault((low, high), set()).add(match[0].casefold())
    spread = Counter(word for names in found.values() for word in names)
    rarity = {word: log(1 + len(starts) / many) for word, many in spread.items()}

    def worth(span: tuple[int, int]) -> float:
        return sum(rarity[word] for word in sorted(found[span]))

    return sorted(found, key=lambda span: (-worth(span), span))


def _task_words(rows: Sequence[Row], unread: Sequence[int]) -> list[str]:
    """The words of the current request, and of the calls whose results are unread, longest first
    so that a pattern of alternatives prefers them."""
    ids = {
        block.call_id
        for i in unread
        for block in rows[i].message.blocks
        if isinstance(block, ToolResult)
    }
    said: list[str] = []
    request = next((row for row in reversed(rows) if _is_typed(row)), None)
    if request is not None:
        said.append(request.message.text)
    for row in reversed(rows):
        calls = [b for b in row.message.blocks if isinstance(b, ToolCall) and b.id in ids]
        if calls:
            said += [call.arguments for call in calls]
            break
    words = dict.fromkeys(
        word.casefold() for text in said for word in _WORD.findall(text) if len(word) > 1
    )
    useful = [word for word in words if word not in _COMMON][:WORDS_MOST]
    return sorted(useful, key=len, reverse=True)


def _is_typed(row: Row) -> bool:
    typed = any(isinstance(block, Text) and block.text.strip() for block in row.message.blocks)
    return row.message.role == "user" and row.kind != "summary" and shows(row) and typed


def _results(row: Row) -> bool:
    return any(isinstance(block, ToolResult) for block in row.message.blocks)


def _is_media(block: Block) -> bool:
    return isinstance(block, Image | File | Audio | Opaque)


def _text_of(block: Block) -> str:
    return "\n".join(texts(block.content)) if isinstance(block, ToolResult) else ""


def _line_end(body: str, at: int) -> int:
    """The end of the last whole line before `at`, or `at` where that would lose half of it."""
    end = body.rfind("\n", at // 2, at) + 1
    return end or at


def _line_start(body: str, at: int) -> int:
    """The start of the first whole line behind `at`, or `at` where that would lose half of it."""
    end = body.find("\n", at, at + (len(body) - at) // 2) + 1
    return end or at


def _most_that_fits(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `limit` that fits, found by doubling and halving; else 0."""
    high = min(limit, 256)
    low = 0
    while fits(high):
        low = high
        if high >= limit:
            return low
        high = min(limit, high * 2)
    while high - low > max(1, low // 64):  # nearer than that is not worth another count
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
