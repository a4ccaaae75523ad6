"""Checks of a model's summary against its source: nothing invented, nothing needed lost.

Three checks need no understanding of the text:

- A name that the source does not have is *doubtful*. It is marked, and its sentence stays, because
  the rest may be true. Only a sentence that has no other names, and is no rule, is removed.
- Figures are compared as numbers: 450 is not 4,500, but 48 211 is 48,211. How many tests failed or
  passed is compared with such counts in the source.
- A name that the source has and the summary lacks is added to an index below the text, the most
  probably needed first. The index says how many did not fit.

Summaries write names in other ways than their source does. So a name is also known if its parts
are: `name/2`, `name(...)`, `Module.name`, `a.py/b.py`, `src/a.py:12`, or code with gaps. Parts are
compared as whole words, so `oney.py` is not `money.py`.

Texts that the caller wants to retain are added with the whole line they are in. The result lists
what was removed, marked and added, so that a reader of the commit can judge it.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from weft.history import Row
from weft.lazy import lazy_pattern
from weft.model import Message, Text, ToolCall

from .entities import KINDS, SPACES, Name, find_entities
from .extract import index_names
from .plan import Count
from .source import BULLET, LABELS, LEFT_OUT, MORE, decode_arguments

KEPT = "Word for word:"

DROPPED_WORDS = 12
"""Longer sentences are not removed for their names."""

_COMMON = frozenset(
    {"either", "client", "server", "input", "output", "read", "write", "true", "false"}
)

MARKED = " [unverified]"
"""Written after a name that the source does not have."""

_SENTENCE = lazy_pattern(r"(?<=[.!?])(?<!\.\.\.)\s+")
_FIGURE = lazy_pattern(r"\d+(?:[.,]\d+)*")
_SURE = lazy_pattern(rf"(?<=\d)[{SPACES.replace(' ', '')}](?=\d{{3}}(?!\d))")
_LIKELY = lazy_pattern(rf"(?<![\d.,])(\d{{1,3}}(?:[{SPACES}]\d{{3}})+)(?!\d)")
_BARE = lazy_pattern(r"[\s\-*#>\d.)]*")
_EITHER = lazy_pattern(r"[A-Za-z]+/[A-Za-z]+")
"""Two words with a slash between them: it may be a path, but also "and/or"."""

_ARITY = lazy_pattern(r"/\d{1,2}$")
_PLACE = lazy_pattern(r":\d+(?:[-,:]\d+)*$|(?<=\d)-\d+$")
_CALLED = lazy_pattern(r"\(.*$", re.DOTALL)
_PIECE = lazy_pattern(r"\w+", re.UNICODE)
_SEPARATED = lazy_pattern(r"/|\.\.\.|[^\w.@-]+")
_PARTED = lazy_pattern(r"[.:-](?!\d)")
"""Between the parts of a name: first paths and code, then dotted and hyphenated names."""

_VERSION = lazy_pattern(r"(?<![\w.])[vV]\d+(?:\.\d+)*(?![\w.])")
_RESULT = r"(?:tests?|fail\w*|pass\w*|errors?|warnings?|examples?|assert\w*|specs?)"
_COUNT = lazy_pattern(rf"(?<![\w.,/-])(\d{{1,6}})\s+(?:\w+\s+){{0,2}}?{_RESULT}\b", re.IGNORECASE)
_COUNTED = lazy_pattern(
    rf"(\d+)\W{{1,3}}(?:\w+\W{{1,3}}){{0,2}}?{_RESULT}\b|\b{_RESULT}\W{{1,3}}(\d+)", re.IGNORECASE
)
_RULE = lazy_pattern(
    r"\b(?:must|never|always|do not|don't|only|constraint|require[sd]?|rule|next|todo|should|open"
    r"|pending|remaining|failing)\b",
    re.IGNORECASE,
)


class Checked(Struct, frozen=True):
    """A checked summary: `dropped` are removed sentences, `marked` are doubtful names."""

    text: str
    dropped: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()


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
        self.pieces = set(_PIECE.findall(self.words))
        self.counts = {one or other for one, other in _COUNTED.findall(self.words)}

    def holds(self, kind: str, name: str) -> bool:
        """Whether the source contains a name of this kind, as spelled or in its parts."""
        if kind == "number":
            return any(reading <= self.figures for reading in _readings(name)) or (
                self._has_date(name)
            )
        return self._has(name.lower()) or self._has_parts(name)

    def has_words(self, name: str) -> bool:
        """Whether every word of a name occurs; short and common words always do."""
        words = _PIECE.findall(name.lower())
        return all(len(word) < 4 or word in _COMMON or word in self.pieces for word in words)

    def _has(self, name: str) -> bool:
        """Whether the name occurs with no letter or digit before or after it."""
        if not name or name in self.pieces:
            return bool(name)
        at = self.words.find(name)
        while at >= 0:
            end = at + len(name)
            before, after = self.words[at - 1 : at], self.words[end : end + 1]
            is_cut = (before.isalnum() and name[0].isalnum()) or (
                after.isalnum() and name[-1].isalnum()
            )
            if not is_cut:
                return True
            at = self.words.find(name, at + 1)
        return False

    def _has_parts(self, name: str) -> bool:
        bare = _CALLED.sub("", _PLACE.sub("", _ARITY.sub("", name))).strip("\"'`*.,;:-#$%@/~ ")
        if bare != name and bare and self._has(bare.lower()):
            return self._has_pieces(name[len(bare) :])
        parts = [part for part in _SEPARATED.split(bare or name) if part]
        if len(parts) == 1 and "/" not in name:
            parts = [part for part in _PARTED.split(bare or name) if part]
        return len(parts) > 1 and all(self._has(part.lower()) for part in parts)

    def _has_pieces(self, part: str) -> bool:
        """Whether every word of a part occurs as a whole word; short ones need not."""
        pieces = _PIECE.findall(part.lower())
        return all(len(piece) < 3 or piece in self.pieces for piece in pieces)

    def _has_date(self, name: str) -> bool:
        """Whether the parts of an ISO date occur: the source may spell it with a month's name."""
        year, *rest = name.split("-")
        return len(rest) == 2 and {year, rest[1].lstrip("0")} <= self.figures


def read_ground(rows: Sequence[Row], prior: Sequence[str] = ()) -> Ground:
    """The ground of some rows, including tool calls, and of earlier summaries."""
    texts = [row.message.text for row in rows]
    calls = [
        "\n".join((block.name, *(decode_arguments(block.arguments).values() or [block.arguments])))
        for row in rows
        for block in row.message.blocks
        if isinstance(block, ToolCall)
    ]
    return Ground([*texts, *calls, *prior])


def check_summary(text: str, ground: Ground) -> Checked:
    """The summary with its doubtful names marked, without sentences that have no other names."""
    lines: list[str] = []
    dropped: list[str] = []
    marked: list[str] = []
    for line in text.strip().splitlines():
        sentences: list[str] = []
        for sentence in _SENTENCE.split(line):
            found = find_doubtful(sentence, ground)
            if found.is_unfounded and not _RULE.search(sentence):
                dropped.append(sentence)
                continue
            marked += found.doubtful
            sentences.append(_mark(sentence, found.doubtful))
        remaining = " ".join(sentences)
        if remaining != line and _BARE.fullmatch(remaining):
            continue  # only a list marker remains
        lines.append(remaining)
    checked = "\n".join(lines).strip()
    return Checked(checked, tuple(sentence.strip() for sentence in dropped), tuple(marked))


class Doubt(Struct, frozen=True):
    """The doubtful names of a sentence; `is_unfounded` if it has nothing but invented names."""

    doubtful: list[str]
    is_unfounded: bool


def find_doubtful(sentence: str, ground: Ground) -> Doubt:
    """The names of a sentence that the source does not have.

    Counts, versions and alternatives ("a/b") are often the summary's own words. They are only
    marked, and so are the names of a longer sentence, which says more than the name.
    """
    # The number of omitted names in an index is not in the source.
    text = LEFT_OUT.sub("", sentence)
    kinds = {name: kind for kind, name in find_entities(text)}
    invented: list[str] = []
    others = 0
    doubtful: list[str] = []
    for name, kind in kinds.items():
        if _EITHER.fullmatch(name):
            if not ground.has_words(name):
                doubtful.append(name)
        elif not ground.holds(kind, name):
            invented.append(name)
        else:
            others += 1
    counts = [count for count in _COUNT.findall(text) if count not in kinds and count != "0"]
    doubtful += [count for count in counts if count not in ground.counts]
    versions = [name for name in _VERSION.findall(text) if name not in kinds]
    doubtful += [name for name in versions if not ground.holds("version", name)]
    is_short = len(sentence.split()) <= DROPPED_WORDS
    return Doubt([*invented, *doubtful], bool(invented) and not others and is_short)


def _mark(sentence: str, names: Sequence[str]) -> str:
    for name in dict.fromkeys(names):
        pattern = rf"(?<!\w){re.escape(name)}(?!\w)`?"
        sentence = re.sub(pattern, lambda match: match[0] + MARKED, sentence, count=1)
    return sentence


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
