"""Tool results that the model has not read yet: never summarised, but shortened if too long.

A result is unread if no assistant message follows it. Results of `recall` are included. A
compaction that replaced an unread result would lose what the model has just asked for, so the
result stays. If it does not fit the budget, it is *thinned*: its head, its tail, the lines in
between that share words with the current task, and a last line with the number of missing
characters and the handle with which `recall` returns the original.

The handle is the id of the message and the index of the block. Thinning changes only that block;
the commit before it has the original. A pinned result is never thinned.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import log

from msgspec import Struct, structs

from weft.history import Row, is_visible
from weft.lazy import lazy_pattern
from weft.model import (
    Audio,
    Block,
    File,
    Image,
    Opaque,
    Text,
    ToolCall,
    ToolResult,
    side,
    texts,
)

from .plan import Count, Thinned, block_kind, hex_id
from .quote import GAP

HANDLE_DIGITS = 12
"""The number of hex digits of the message id in a handle."""

MARKER = '[Shortened: {left:,} of {total:,} characters left out. recall("{handle}") has the whole.]'
"""The line that ends a shortened result."""

HEAD_SHARE, TAIL_SHARE = 0.3, 0.2
"""The shares of the head and the tail. The remaining characters are for lines that match the task
or report an error. Of a log, only such lines and lines that are no log lines are shown."""

HEAD_ONLY_SHARE, TAIL_ONLY_SHARE = 0.6, 0.4
"""The shares if no line matches."""

LOG_LINES, LOG_SHARE = 20, 0.7
"""A text is a log if this share of its first lines are lines of a log."""

PIECE_CHARS = 300
"""Longer lines are matched in pieces of this many characters."""

ERROR_WORDS = ("error", "failed", "fatal", "exception", "traceback")
MAX_TASK_WORDS = 64
"""How many words of the task are looked for."""

COMMON_DIVISOR, MIN_COMMON = 8, 20
"""A word is ignored if it occurs more than `MIN_COMMON` times, and more often than the number of
lines divided by `COMMON_DIVISOR`."""

_WORD = lazy_pattern(r"[^\W\d_]\w{2,}|\d{3,}|[\u3040-\u9fff\uac00-\ud7af]{2}")
"""A word, a number, or a pair of characters in scripts without spaces."""

_LOG_LINE = lazy_pattern(r"[\[\]()\d:.,TZ +/-]{0,40}(?:INFO|DEBUG|TRACE|VERBOSE|NOTICE)\b", re.I)
"""The start of a line of a log that reports no error."""

_STOP_WORDS = frozenset(
    {
        *("the", "and", "for", "that", "this", "with", "from", "are", "was", "were", "have", "has"),
        *("had", "not", "you", "your", "can", "will", "would", "should", "could", "what", "which"),
        *("when", "where", "who", "how", "why", "all", "any", "its", "but", "then", "than", "them"),
        *("they", "there", "here", "into", "please", "file", "files", "read", "show", "tell"),
        *("report", "look", "find", "use", "using", "make", "get"),
    }
)
"""Stop words, and words that say nothing about the task."""


class Thinning(Struct, frozen=True):
    """The rows with shortened results, and a description of each shortened result."""

    rows: tuple[Row, ...]
    thinned: tuple[Thinned, ...]


def unread_rows(rows: Sequence[Row]) -> list[int]:
    """The indexes of the rows with unread results."""
    answers = [i for i, row in enumerate(rows) if side(row.message.role) == "assistant"]
    first = answers[-1] + 1 if answers else 0
    return [i for i in range(first, len(rows)) if is_visible(rows[i]) and _has_results(rows[i])]


def thinnable_rows(rows: Sequence[Row]) -> list[int]:
    """The indexes of the rows with unread results that are not pinned."""
    return [i for i in unread_rows(rows) if rows[i].priority != "pinned"]


def thin_unread(rows: Sequence[Row], max_tokens: int, count: Count) -> Thinning:
    """The rows with their unread results shortened to at most `max_tokens` in total."""
    return Unread(rows, count).thin(max_tokens)


class Unread:
    """Shortens the unread results of some rows to any size.

    `count` is also called for candidate rows that are then discarded, so it should not cache them.
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

    def thin(self, max_tokens: int) -> Thinning:
        """The rows with their unread results shortened to at most `max_tokens` tokens in total.

        All results get the same maximum number of characters, as many as fit. Media are removed if
        they do not fit beside the handles. If even the handles do not fit, only the handles
        remain: the caller must count the result.
        """
        with_media = self._size(0, with_media=True) <= max_tokens

        def fits(max_chars: int) -> bool:
            return self._size(max_chars, with_media=with_media) <= max_tokens

        max_chars = _largest_fitting(self.longest, fits)
        shorter = {i: self._cut_row(i, max_chars, with_media) for i in self.numbers}
        return _thinning(self.rows, shorter)

    def _size(self, max_chars: int, *, with_media: bool) -> int:
        return sum(
            self.count(self._cut_row(i, max_chars, with_media).message) for i in self.numbers
        )

    def _cut_row(self, number: int, max_chars: int, with_media: bool) -> Row:
        """A row with at most `max_chars` characters of each result, plus the handle."""
        row = self.rows[number]
        old = row.message.blocks
        new = tuple(self._cut_block(number, j, max_chars, with_media) for j in range(len(old)))
        if all(new_block is block for new_block, block in zip(new, old, strict=True)):
            return row
        return structs.replace(row, message=structs.replace(row.message, blocks=new))

    def _cut_block(self, number: int, block_number: int, max_chars: int, with_media: bool) -> Block:
        """A block with at most `max_chars` characters, plus the handle, if it is a result."""
        block = self.rows[number].message.blocks[block_number]
        if not isinstance(block, ToolResult):
            return block
        excerpt = self.excerpts[number, block_number]
        media = [inner for inner in block.content if _is_media(inner)]
        text = excerpt.within(max_chars)
        if text == excerpt.text and (with_media or not media):
            return block
        if media and not with_media:
            kinds = Counter(block_kind(inner) for inner in media)
            removed = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
            text = f"[left out: {removed}]\n{text}" if text else f"[left out: {removed}]"
            media = []
        form = block.form if block.form == "text" and not media else ""
        return structs.replace(block, content=(Text(text), *media), form=form)


def handle_of(row: Row, number: int) -> str:
    """The handle with which `recall` returns the original of this block."""
    return f"{(hex_id(row) or '')[:HANDLE_DIGITS]}/{number}"


def _thinning(rows: Sequence[Row], shorter: dict[int, Row]) -> Thinning:
    """The rows with some of them replaced by shorter ones, and a record of each shorter block."""
    thinned: list[Thinned] = []
    for i, row in shorter.items():
        blocks = zip(rows[i].message.blocks, row.message.blocks, strict=True)
        for number, (old, new) in enumerate(blocks):
            if old != new:
                before, after = len(_text_of(old)), len(_text_of(new))
                thinned.append(Thinned(id=hex_id(row), block=number, before=before, after=after))
    return Thinning(tuple(shorter.get(i, row) for i, row in enumerate(rows)), tuple(thinned))


class _Excerpt:
    """Makes excerpts of any length from a text: its head, its tail and its matching lines."""

    def __init__(self, text: str, handle: str, words: Sequence[str]) -> None:
        self.text = text
        self.handle = handle
        self.words = words
        self._pieces: list[tuple[int, int]] | None = None
        self._original: tuple[str, int] | None = None

    def within(self, max_chars: int) -> str:
        """About `max_chars` characters of the text plus the marker line; the whole text if that is
        shorter."""
        if len(self.text) <= max_chars:
            return self.text
        body, total = self._read_original()
        parts, size = self._choose(body, max_chars)
        marker = MARKER.format(left=total - size, total=total, handle=self.handle)
        shorter = "\n".join([*parts, marker])
        return shorter if len(shorter) < len(self.text) else self.text

    def _read_original(self) -> tuple[str, int]:
        """The text without the marker of an earlier thinning, and the size of the original."""
        if self._original is None:
            self._original = self._read_marker()
        return self._original

    def _read_marker(self) -> tuple[str, int]:
        """The same as `_read_original`, without its cache."""
        head, _, last = self.text.rpartition("\n")
        pattern = re.escape(MARKER).replace(r"\{left:,\}", r"[\d,]+")
        pattern = pattern.replace(r"\{total:,\}", r"([\d,]+)").replace(r"\{handle\}", self.handle)
        earlier = re.fullmatch(pattern, last)
        if earlier is None:
            return self.text, len(self.text)
        return head, max(len(head), int(earlier[1].replace(",", "")))

    def _choose(self, body: str, max_chars: int) -> tuple[list[str], int]:
        """The chosen parts of the text with gap markers between them, and their total length."""
        if max_chars <= 0:
            return [], 0
        matching = bool(self._ranked_pieces(body))
        head_share, tail_share = (
            (HEAD_SHARE, TAIL_SHARE) if matching else (HEAD_ONLY_SHARE, TAIL_ONLY_SHARE)
        )
        head = _line_end(body, int(max_chars * head_share))
        tail = _line_start(body, max(head, len(body) - int(max_chars * tail_share)))
        spans = [(0, head), *self._matches(body, head, tail, max_chars - head - (len(body) - tail))]
        spans.append((tail, len(body)))
        if _is_log(body):
            spans = self._important_lines(body, max_chars) or spans
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

    def _matches(self, body: str, start: int, end: int, max_chars: int) -> list[tuple[int, int]]:
        """The pieces between head and tail that match the task best, in text order."""
        chosen: list[tuple[int, int]] = []
        chars_left = max_chars
        for low, high in self._ranked_pieces(body):
            if low < start or high > end:
                continue
            chars_left -= high - low + len(GAP) + 2
            if chars_left < 0:
                break
            chosen.append((low, high))
        return sorted(chosen)

    def _important_lines(self, body: str, max_chars: int) -> list[tuple[int, int]]:
        """The last lines of a log that are no log lines or match the task, in text order; at most
        `max_chars` characters."""
        matches = set(self._ranked_pieces(body))
        chosen: list[tuple[int, int]] = []
        chars_left = max_chars
        end = len(body)
        for line in reversed(body.splitlines(keepends=True)):
            span = (end - len(line), end)
            end = span[0]
            if line.strip() and (span in matches or not _is_log_line(line)):
                chars_left -= len(line)
                if chars_left < 0:
                    break
                chosen.append(span)
        return chosen[::-1]

    def _ranked_pieces(self, body: str) -> list[tuple[int, int]]:
        """The pieces of the body that contain words of the task, best first."""
        if self._pieces is None:
            self._pieces = _rank_pieces(body, self.words)
        return self._pieces


def _rank_pieces(body: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """The spans of lines (or pieces of long lines) that share words with the task, best first.

    Rare words count for more; very common words are ignored.
    """
    lowered = body.lower()
    common = max(MIN_COMMON, lowered.count("\n") // COMMON_DIVISOR)
    words = [word for word in words if 0 < lowered.count(word) <= common]
    errors = [word for word in ERROR_WORDS if 0 < lowered.count(word) <= common]
    words = sorted({*words, *errors}, key=len, reverse=True)
    if not words:
        return []
    # IGNORECASE is several times slower. Lowering is safe for ASCII only: elsewhere it can change
    # the length of the text, and so the offsets.
    ascii_only = body.isascii()
    pattern = re.compile("|".join(map(re.escape, words)), 0 if ascii_only else re.IGNORECASE)
    starts = [0, *accumulate(len(line) for line in body.splitlines(keepends=True))]
    words_in: dict[tuple[int, int], set[str]] = {}
    for match in pattern.finditer(lowered if ascii_only else body):
        line = bisect_right(starts, match.start()) - 1
        low = starts[line]
        low += (match.start() - low) // PIECE_CHARS * PIECE_CHARS
        high = min(starts[line + 1] if line + 1 < len(starts) else len(body), low + PIECE_CHARS)
        words_in.setdefault((low, high), set()).add(match[0].casefold())
    spread = Counter(word for names in words_in.values() for word in names)
    rarity = {word: log(1 + len(starts) / count) for word, count in spread.items()}

    def score(span: tuple[int, int]) -> float:
        return sum(rarity[word] for word in sorted(words_in[span]))

    return sorted(words_in, key=lambda span: (-score(span), span))


def _is_log(body: str) -> bool:
    """Whether most of the first lines are log lines."""
    lines = [line for line in body[: LOG_LINES * PIECE_CHARS].splitlines() if line.strip()][
        :LOG_LINES
    ]
    return sum(map(_is_log_line, lines)) > LOG_SHARE * len(lines)


def _task_words(rows: Sequence[Row], unread: Sequence[int]) -> list[str]:
    """The words of the last request and of the calls whose results are unread, the longest first.

    A regular expression prefers its first alternative, so longer words must come first.
    """
    unread_ids = {
        block.call_id
        for i in unread
        for block in rows[i].message.blocks
        if isinstance(block, ToolResult)
    }
    sources: list[str] = []
    request = next((row for row in reversed(rows) if _is_request(row)), None)
    if request is not None:
        sources.append(request.message.text)
    for row in reversed(rows):
        calls = [block for block in row.message.blocks if isinstance(block, ToolCall)]
        calls = [call for call in calls if call.id in unread_ids]
        if calls:
            sources += [call.arguments for call in calls]
            break
    words = dict.fromkeys(
        word.casefold() for text in sources for word in _WORD.findall(text) if len(word) > 1
    )
    useful = [word for word in words if word not in _STOP_WORDS][:MAX_TASK_WORDS]
    return sorted(useful, key=len, reverse=True)


def _is_request(row: Row) -> bool:
    has_text = any(isinstance(block, Text) and block.text.strip() for block in row.message.blocks)
    return row.message.role == "user" and row.kind != "summary" and is_visible(row) and has_text


def _has_results(row: Row) -> bool:
    return any(isinstance(block, ToolResult) for block in row.message.blocks)


def _is_media(block: Block) -> bool:
    return isinstance(block, Image | File | Audio | Opaque)


def _text_of(block: Block) -> str:
    return "\n".join(texts(block.content)) if isinstance(block, ToolResult) else ""


def _line_end(body: str, index: int) -> int:
    """The end of the last complete line before `index`; `index` itself if the line is too long."""
    end = body.rfind("\n", index // 2, index) + 1
    return end or index


def _line_start(body: str, index: int) -> int:
    """The start of the first complete line after `index`; `index` itself if the line is too
    long."""
    start = body.find("\n", index, index + (len(body) - index) // 2) + 1
    return start or index


def _largest_fitting(limit: int, fits: Callable[[int], bool]) -> int:
    """About the largest number up to `limit` that fits, by doubling and bisection; else 0."""
    high = min(limit, 256)
    low = 0
    while fits(high):
        low = high
        if high >= limit:
            return low
        high = min(limit, high * 2)
    while high - low > max(1, low // 64):  # more precision is not worth another count
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _is_log_line(line: str) -> bool:
    """Whether a line is one of a log and reports no error."""
    lowered = line.lower()
    return _LOG_LINE.match(line) is not None and not any(w in lowered for w in ERROR_WORDS)
