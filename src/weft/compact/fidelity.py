"""Checks of a model's summary against its source: nothing invented, nothing needed lost.

Two checks need no understanding of the text:

- A name that is nowhere in the source was invented, so its sentence is removed. Paths, symbols,
  errors and hashes are compared as spelt, ignoring case. Figures are compared as numbers: 450 is
  not 4,500, but 48 211 is 48,211.
- A name that the source has and the summary lacks is added to an index below the text, the most
  frequent first. The index says how many did not fit.

Texts that the caller wants to retain are added with the whole line they are in. The result lists
what was removed and added, so that a reader of the commit can judge it.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from weft.history import Row
from weft.model import Message, Text, ToolCall

from .entities import KINDS, SPACES, Name, find_entities
from .extract import index_names
from .layout import Count
from .source import BULLET, LABELS, LEFT_OUT, MORE

KEPT = "Word for word:"

_SENTENCE = re.compile(r"(?<=[.!?])(?<!\.\.\.)\s+")
_FIGURE = re.compile(r"\d+(?:[.,]\d+)*")
_SURE = re.compile(rf"(?<=\d)[{SPACES.replace(' ', '')}](?=\d{{3}}(?!\d))")
_LIKELY = re.compile(rf"(?<![\d.,])(\d{{1,3}}(?:[{SPACES}]\d{{3}})+)(?!\d)")
_BARE = re.compile(r"[\s\-*#>\d.)]*")
_EITHER = re.compile(r"[A-Za-z]+/[A-Za-z]+")
"""Two words with a slash between them: it may be a path, but also "and/or"."""


class Checked(Struct, frozen=True):
    """A summary without invented names; `dropped` are the sentences that were removed."""

    text: str
    dropped: tuple[str, ...] = ()


class Completed(Struct, frozen=True):
    """A summary with added names: how many were added, and how many did not fit."""

    text: str
    added: int
    left: int


class Ground:
    """The texts that a summary was made from; it may only use their names."""

    def __init__(self, texts: Iterable[str]) -> None:
        whole = "\n".join(texts)
        self.words = whole.lower()
        self.figures = {figure for reading in _readings(whole) for figure in reading}

    def holds(self, kind: str, name: str) -> bool:
        """Whether the source contains a name of this kind."""
        if kind == "number":
            return any(reading <= self.figures for reading in _readings(name))
        return name.lower() in self.words or _EITHER.fullmatch(name) is not None


def read_ground(rows: Sequence[Row], prior: Sequence[str] = ()) -> Ground:
    """The ground of some rows, including tool calls, and of earlier summaries."""
    texts = [row.message.text for row in rows]
    calls = [
        f"{block.name} {block.arguments}"
        for row in rows
        for block in row.message.blocks
        if isinstance(block, ToolCall)
    ]
    return Ground([*texts, *calls, *prior])


def check_summary(text: str, ground: Ground) -> Checked:
    """The summary without sentences that contain invented names."""
    lines: list[str] = []
    dropped: list[str] = []
    for line in text.strip().splitlines():
        sentences: list[str] = []
        for sentence in _SENTENCE.split(line):
            # The number of omitted names in an index is not in the source.
            names = find_entities(LEFT_OUT.sub("", sentence))
            is_grounded = all(ground.holds(kind, name) for kind, name in names)
            (sentences if is_grounded else dropped).append(sentence)
        remaining = " ".join(sentences)
        if remaining != line and _BARE.fullmatch(remaining):
            continue  # only a list marker remains
        lines.append(remaining)
    return Checked("\n".join(lines).strip(), tuple(sentence.strip() for sentence in dropped))


def missing_names(text: str, rows: Sequence[Row]) -> tuple[list[Name], dict[str, int]]:
    """The names of the rows that a text lacks, the most frequent first, and how many of each
    kind it lacks."""
    names, totals = index_names(rows)
    lowered = text.lower()
    missing = [(kind, name) for kind, name in names if name.lower() not in lowered]
    present = {kind: 0 for kind in KINDS}
    for kind, name in names:
        present[kind] += name.lower() in lowered
    counts = {kind: totals.get(kind, 0) - present[kind] for kind in KINDS}
    return missing, counts


def complete(text: str, rows: Sequence[Row], room: int, count: Count) -> Completed:
    """The text with an index of the names it lacks, as many as fit."""
    missing, counts = missing_names(text, rows)
    total = sum(counts.values())
    low, high = 0, len(missing)
    while low < high:
        middle = (low + high + 1) // 2
        fits = _size(_with_index(text, missing[:middle], counts), count) <= room
        low, high = (middle, high) if fits else (low, middle - 1)
    indexed = _with_index(text, missing[:low], counts)
    completed = indexed if low or _size(indexed, count) <= room else text
    return Completed(completed, low, total - low)


def index_size(rows: Sequence[Row], count: Count) -> int:
    """The tokens of an index of all names in the rows."""
    missing, counts = missing_names("", rows)
    return _size(_with_index("", missing, counts), count) if missing else 0


def retained_lines(text: str, rows: Sequence[Row], retain: Sequence[str]) -> list[str]:
    """The lines of the rows that contain a text to retain which the summary lacks."""
    lines: list[str] = []
    for phrase in retain:
        if not phrase or phrase in text:
            continue
        if "\n" in phrase:
            lines += [phrase] * any(phrase in row.message.text for row in rows)
            continue
        matches = (line for row in rows for line in row.message.text.splitlines() if phrase in line)
        lines += [line.strip() for line in (next(matches, None),) if line is not None]
    return list(dict.fromkeys(lines))


def kept_lines(text: str) -> list[str]:
    """The lines that an earlier summary quotes verbatim."""
    _, heading, rest = text.partition(f"\n{KEPT}\n")
    lines = rest.partition("\n\n")[0].splitlines() if heading else []
    return [line.removeprefix(BULLET) for line in lines if line.startswith(BULLET)]


def with_lines(text: str, lines: Sequence[str]) -> str:
    """The text, followed by lines that it quotes verbatim."""
    return text if not lines else f"{text}\n\n{KEPT}\n" + "\n".join(map(_as_item, lines))


def _as_item(line: str) -> str:
    return line if line.startswith(BULLET) else BULLET + line


def _with_index(text: str, names: Sequence[Name], counts: dict[str, int]) -> str:
    """The text with these names below it; an existing index is continued.

    `counts` is the number of missing names of each kind, listed or not.
    """
    parts = text.split("\n\n") if text else []
    for kind in KINDS:
        listed = [name for of, name in names if of == kind]
        more = counts.get(kind, 0) - len(listed)
        if not listed and more <= 0:
            continue
        label = f"{LABELS[kind]}: "
        old_line = next((part for part in parts if part.startswith(label)), None)
        listed_before = [] if old_line is None else [LEFT_OUT.sub("", old_line.removeprefix(label))]
        tail = [MORE.format(more)] if more > 0 else []
        line = label + ", ".join([*filter(None, listed_before), *listed, *tail])
        parts = [line if part is old_line else part for part in parts]
        parts += [line] if old_line is None else []
    return "\n\n".join(parts)


def _size(text: str, count: Count) -> int:
    return count(Message("user", (Text(text),)))


def _readings(text: str) -> tuple[set[str], set[str]]:
    """The figures of a text without thousands separators, in two readings.

    A plain space may separate two figures (first reading) or the thousands of one (second).
    """
    sure = _SURE.sub("", text)
    joined = _LIKELY.sub(lambda match: match[1].replace(" ", ""), sure)
    return _figures(sure), _figures(joined)


def _figures(text: str) -> set[str]:
    return {figure.replace(",", "") for figure in _FIGURE.findall(text)}
