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
    """The rows with their unread results shortened until these rows have at most `room` tokens.

    All results get the same number of characters, as many as fit; a shorter one stays whole. Where
    even the handles alone are too much, those are what is left: the caller counts again.
    """
    unread = thinnable_rows(rows)
    words = _task_words(rows, unread)
    for with_media in (True, False):
        tries = {i: _Thinner(rows[i], words, with_media) for i in unread}

        def thin(most: int, tries: dict[int, _Thinner] = tries) -> dict[int, Row]:
            return {i: thinner.cut(most) for i, thinner in tries.items()}

        def fits(most: int, thin: Callable[[int], dict[int, Row]] = thin) -> bool:
            return sum(count(row.message) for row in thin(most).values()) <= room

        if with_media and not fits(0):
            continue
        longest = max((thinner.longest for thinner in tries.values()), default=0)
        return _thinning(rows, thin(_most_that_fits(longest, fits)))
    raise AssertionError("the second round always returns")


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


class _Thinner:
    """One row, ready to be cut to any length."""

    def __init__(self, row: Row, words: Sequence[str], with_media: bool) -> None:
        self.row = row
        self.with_media = with_media
        self.texts = {
            number: _Excerpt(_text_of(block), handle_of(row, number), words)
            for number, block in enumerate(row.message.blocks)
            if isinstance(block, ToolResult)
        }
        self.longest = max((len(excerpt.text) for excerpt in self.texts.values()), default=0)

    def cut(self, most: int) -> Row:
        """The row with at most `most` characters of each result, and a handle for the rest."""
        blocks = tuple(
            self._cut(number, block, most) for number, block in enumerate(self.row.message.blocks)
        )
        if all(new is old for new, old in zip(blocks, self.row.message.blocks, strict=True)):
            return self.row
        return structs.replace(self.row, message=structs.replace(self.row.message, blocks=blocks))

    def _cut(self, number: int, block: Block, most: int) -> Block:
        if not isinstance(block, ToolResult):
            return block
        media = [inner for inner in block.content if _is_media(inner)]
        text = self.texts[number].within(most)
        if text == self.texts[number].text and (self.with_media or not media):
            return block
        if not self.with_media and media:
            kinds = Counter(block_kind(inner) for inner in media)
            left = ", ".join(f"{many} {kind}" for kind, many in kinds.items())
            text = f"[left out: {left}]\n{text}" if text else f"[left out: {left}]"
            media = []
        form = block.form if block.form == "text" and not media else ""
        return structs.replace(block, content=(Text(text), *media), form=form)


class _Excerpt:
    """A text of which the head, the tail and the matching lines can be had in any length."""

    def __init__(self, text: str, handle: str, words: Sequence[str]) -> None:
        self.text = text
        self.handle = handle
        self.words = words
        self._pieces: list[tuple[int, int]] | None = None

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
    word that few lines have counts for more."""
    if not words:
        return []
    pattern = re.compile("|".join(re.escape(word) for word in words), re.IGNORECASE)
    starts = [0, *accumulate(len(line) for line in body.splitlines(keepends=True))]
    found: dict[tuple[int, int], set[str]] = {}
    for match in pattern.finditer(body):
        line = bisect_right(starts, match.start()) - 1
        low = starts[line]
        low += (match.start() - low) // PIECE * PIECE
        high = min(starts[line + 1] if line + 1 < len(starts) else len(body), low + PIECE)
        found.setdefault((low, high), set()).add(match[0].casefold())
    spread = Counter(word for names in found.values() for word in names)
    total = len(starts)

    def worth(span: tuple[int, int]) -> float:
        return sum(log(1 + total / spread[word]) for word in found[span])

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
