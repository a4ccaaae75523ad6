"""A model's summary held against what it summarises: nothing invented, nothing needed lost.

Two things are certain without understanding a word. A name that stands nowhere in the source was
made up, so the sentence that has it is taken out: paths, symbols, errors and hashes are looked for
as they are spelt, in any case; of a figure every number must stand in the source as a number,
because 450 is not 4,500, and 48 211 is 48,211. And a name that the source has and the summary has
not can be put back, verbatim, into an index under the text, the most spoken of first; the index
says how many had no room. Texts that somebody wants retained are put back with the whole line in
which they stood.

What was taken out and what was added is told, so that whoever reads the commit can judge.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from weft.history import Row
from weft.model import Message, Text, ToolCall

from .entities import KINDS, SPACES, find_entities
from .folding import Count
from .source import BULLET, LABELS, LEFT_OUT, MORE, Name, read_source

KEPT = "Word for word:"

_SENTENCE = re.compile(r"(?<=[.!?])(?<!\.\.\.)\s+")
_FIGURE = re.compile(r"\d+(?:[.,]\d+)*")
_SURE = re.compile(rf"(?<=\d)[{SPACES.replace(' ', '')}](?=\d{{3}}(?!\d))")
_LIKELY = re.compile(rf"(?<![\d.,])(\d{{1,3}}(?:[{SPACES}]\d{{3}})+)(?!\d)")
_BARE = re.compile(r"[\s\-*#>\d.)]*")
_EITHER = re.compile(r"[A-Za-z]+/[A-Za-z]+")
"""Two words with a stroke between them, which is how paths look and "and/or" does too."""


class Checked(Struct, frozen=True):
    """A summary that says only what its source says; `dropped` are the sentences taken out."""

    text: str
    dropped: tuple[str, ...] = ()


class Completed(Struct, frozen=True):
    """A summary with the names that it lacked: how many were put back, and how many were not."""

    text: str
    added: int
    left: int


class Ground:
    """What a summary may speak of: the texts it was made from."""

    def __init__(self, texts: Iterable[str]) -> None:
        whole = "\n".join(texts)
        self.words = whole.lower()
        self.figures = {figure for reading in _readings(whole) for figure in reading}

    def holds(self, kind: str, name: str) -> bool:
        """Whether a name of this kind stands here."""
        if kind == "number":
            return any(reading <= self.figures for reading in _readings(name))
        return name.lower() in self.words or _EITHER.fullmatch(name) is not None


def read_ground(rows: Sequence[Row], prior: Sequence[str] = ()) -> Ground:
    """The ground that rows and earlier summaries are, calls included."""
    said = [row.message.text for row in rows]
    calls = [
        f"{block.name} {block.arguments}"
        for row in rows
        for block in row.message.blocks
        if isinstance(block, ToolCall)
    ]
    return Ground([*said, *calls, *prior])


def check_summary(text: str, ground: Ground) -> Checked:
    """The summary without sentences that name what its source does not."""
    lines: list[str] = []
    dropped: list[str] = []
    for line in text.strip().splitlines():
        kept: list[str] = []
        for sentence in _SENTENCE.split(line):
            names = find_entities(LEFT_OUT.sub("", sentence))  # how many are left out, nobody said
            sound = all(ground.holds(kind, name) for kind, name in names)
            (kept if sound else dropped).append(sentence)
        left = " ".join(kept)
        if left != line and _BARE.fullmatch(left):
            continue  # only the mark of a list is left
        lines.append(left)
    return Checked("\n".join(lines).strip(), tuple(sentence.strip() for sentence in dropped))


def missing_names(text: str, rows: Sequence[Row]) -> tuple[list[Name], dict[str, int]]:
    """The names of rows that a text does not say, the most spoken of first, and how many of each
    kind there are."""
    source = read_source(rows)
    said = text.lower()
    missing = [(kind, name) for kind, name in source.names if name.lower() not in said]
    told = {kind: 0 for kind in KINDS}
    for kind, name in source.names:
        told[kind] += name.lower() in said
    left = {kind: source.totals.get(kind, 0) - told[kind] for kind in KINDS}
    return missing, left


def complete(text: str, rows: Sequence[Row], room: int, count: Count) -> Completed:
    """The text with an index of the names it lacks, as many as fit."""
    missing, left = missing_names(text, rows)
    whole = sum(left.values())
    low, high = 0, len(missing)
    while low < high:
        middle = (low + high + 1) // 2
        fits = _size(_indexed(text, missing[:middle], left), count) <= room
        low, high = (middle, high) if fits else (low, middle - 1)
    indexed = _indexed(text, missing[:low], left)
    told = indexed if low or _size(indexed, count) <= room else text
    return Completed(told, low, whole - low)


def index_size(rows: Sequence[Row], count: Count) -> int:
    """The tokens of an index of all names that rows have."""
    missing, left = missing_names("", rows)
    return _size(_indexed("", missing, left), count) if missing else 0


def retained_lines(text: str, rows: Sequence[Row], retain: Sequence[str]) -> list[str]:
    """The lines of rows in which texts stand that must be retained and that a summary lacks."""
    found: list[str] = []
    for wanted in retain:
        if not wanted or wanted in text:
            continue
        if "\n" in wanted:
            found += [wanted] * any(wanted in row.message.text for row in rows)
            continue
        lines = (line for row in rows for line in row.message.text.splitlines() if wanted in line)
        found += [line.strip() for line in (next(lines, None),) if line is not None]
    return list(dict.fromkeys(found))


def kept_lines(text: str) -> list[str]:
    """The lines that an earlier summary says word for word."""
    _, found, behind = text.partition(f"\n{KEPT}\n")
    lines = behind.partition("\n\n")[0].splitlines() if found else []
    return [line.removeprefix(BULLET) for line in lines if line.startswith(BULLET)]


def with_lines(text: str, lines: Sequence[str]) -> str:
    """The text with lines that stand in it word for word."""
    return text if not lines else f"{text}\n\n{KEPT}\n" + "\n".join(map(_listed, lines))


def _listed(line: str) -> str:
    return line if line.startswith(BULLET) else BULLET + line


def _indexed(text: str, names: Sequence[Name], left: dict[str, int]) -> str:
    """The text with these names under it; an index that it has already is gone on with."""
    parts = text.split("\n\n") if text else []
    for kind in KINDS:
        listed = [name for of, name in names if of == kind]
        more = left.get(kind, 0) - len(listed)
        if not listed and more <= 0:
            continue
        label = f"{LABELS[kind]}: "
        known = next((part for part in parts if part.startswith(label)), None)
        said = [] if known is None else [LEFT_OUT.sub("", known.removeprefix(label))]
        tail = [MORE.format(more)] if more > 0 else []
        line = label + ", ".join([*filter(None, said), *listed, *tail])
        parts = [line if part is known else part for part in parts]
        parts += [line] if known is None else []
    return "\n\n".join(parts)


def _size(text: str, count: Count) -> int:
    return count(Message("user", (Text(text),)))


def _readings(text: str) -> tuple[set[str], set[str]]:
    """The figures of a text, without what sets their thousands apart: where a plain blank is
    between figures, and where it is inside of one."""
    sure = _SURE.sub("", text)
    joined = _LIKELY.sub(lambda match: match[1].replace(" ", ""), sure)
    return _figures(sure), _figures(joined)


def _figures(text: str) -> set[str]:
    return {figure.replace(",", "") for figure in _FIGURE.findall(text)}
