"""Checks of a model's summary against its source: nothing invented, nothing needed lost.

Three checks need no understanding of the text:

- A name that the source does not have is *doubtful*. It is marked, and its sentence stays, because
  its other words may be true. Only a short sentence that has no other names, and is no rule, is
  removed.
- Figures are compared as numbers: 450 is not 4,500, but 48 211 is 48,211. How many tests failed or
  passed is compared with such counts in the source.
- A name that the source has and the summary lacks is added to an index below the text, the most
  probably needed first. The index says how many did not fit.

Summaries spell names in other ways than their source does. So a name is also known if its parts
are: `name/2`, `name(...)`, `Module.name`, `a.py/b.py`, `src/a.py:12`, or code with gaps. Parts are
compared as whole words, so `oney.py` is not `money.py`.

Texts that the caller wants to retain are added with the whole line they are in. The result lists
what was removed, marked and added, so that a reader of the commit can judge it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from weft import exact_json
from weft.history import Row
from weft.lazy import lazy_pattern
from weft.model import Message, Text, Tool, ToolCall

from .extract import index_names
from .names import GROUP_SEPARATORS, Name, find_names, without_escapes
from .plan import Count
from .source import BULLET, NAMES, decode_arguments

MAX_ADDED_NAMES = 400
"""How many names an index beside a model's summary may list."""

MORE = "... and {} more"
LEFT_OUT = lazy_pattern(r"(?:, |(?<=: )|^)\.\.\. and (\d+) more$", re.MULTILINE)
"""The end of an index that leaves names out."""

QUOTES_HEADING = "Word for word:"
"""The heading of the lines that a summary quotes because the caller wants to retain them."""

MAX_DROPPED_WORDS = 12
"""Only sentences of at most this many words are removed because of their names."""

_COMMON_WORDS = frozenset(
    {"either", "client", "server", "input", "output", "read", "write", "true", "false"}
)
"""Words of alternatives such as "client/server", which a summary may use on its own."""

UNVERIFIED_MARK = " [unverified]"
"""Written after a name that the source does not have."""

_SENTENCE = lazy_pattern(r"(?<=[.!?])(?<!\.\.\.)\s+")
_FIGURE = lazy_pattern(r"\d+(?:[.,]\d+)*")
_CLEAR_SEPARATOR = lazy_pattern(rf"(?<=\d)[{GROUP_SEPARATORS.replace(' ', '')}](?=\d{{3}}(?!\d))")
_SPACED_THOUSANDS = lazy_pattern(rf"(?<![\d.,])(\d{{1,3}}(?:[{GROUP_SEPARATORS}]\d{{3}})+)(?!\d)")
"""Thousands separators that are clear, and numbers in which a plain space may be one."""

_LIST_MARKER = lazy_pattern(r"[\s\-*#>\d.)]*")
_ALTERNATIVES = lazy_pattern(r"[A-Za-z]+/[A-Za-z]+")
"""Two words with a slash between them: it may be a path, but also "and/or"."""

_ARITY = lazy_pattern(r"/\d{1,2}$")
_LINE_NUMBER = lazy_pattern(r":\d+(?:[-,:]\d+)*$|(?<=\d)-\d+$")
_CALL_ARGUMENTS = lazy_pattern(r"\(.*$", re.DOTALL)
"""The endings of a name that a summary may add: the arity `/2`, the line `:12`, the arguments."""

_WORD = lazy_pattern(r"\w+", re.UNICODE)
_PATH_SEPARATOR = lazy_pattern(r"/|\.\.\.|[^\w.@-]+")
_NAME_SEPARATOR = lazy_pattern(r"[.:-](?!\d)")
"""Between the parts of a name: first paths and code, then dotted and hyphenated names."""

_VERSION = lazy_pattern(r"(?<![\w.])[vV]\d+(?:\.\d+)*(?![\w.])")
_TEST_WORDS = r"(?:tests?|fail\w*|pass\w*|errors?|warnings?|examples?|assert\w*|specs?)"
_TEST_COUNT = lazy_pattern(
    rf"(?<![\w.,/-])(\d{{1,6}})\s+(?:\w+\s+){{0,2}}?{_TEST_WORDS}\b", re.IGNORECASE
)
_SOURCE_COUNT = lazy_pattern(
    rf"(\d+)\W{{1,3}}(?:\w+\W{{1,3}}){{0,2}}?{_TEST_WORDS}\b|\b{_TEST_WORDS}\W{{1,3}}(\d+)",
    re.IGNORECASE,
)
"""How many tests, errors or warnings there were, in a summary and in its source."""

_RULE_WORDS = lazy_pattern(
    r"\b(?:must|never|always|do not|don't|only|constraint|require[sd]?|rule|next|todo|should|open"
    r"|pending|remaining|failing)\b",
    re.IGNORECASE,
)
"""Sentences with such words are rules or open tasks, which are never removed."""


class Checked(Struct, frozen=True):
    """A checked summary: `dropped` are removed sentences, `marked` are doubtful names."""

    text: str
    dropped: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()


class Completed(Struct, frozen=True):
    """A summary with added names: how many were added, and how many did not fit."""

    text: str
    added: int
    left_out: int


class GroundTruth:
    """The texts that a summary was made from; it may only use their names."""

    def __init__(self, texts: Iterable[str]) -> None:
        whole = "\n".join(texts)
        self.lowered = whole.lower()
        self.figures = {figure for reading in _readings(whole) for figure in reading}
        self.words = set(_WORD.findall(self.lowered))
        self.counts = {before or after for before, after in _SOURCE_COUNT.findall(self.lowered)}

    def has_name(self, kind: str, name: str) -> bool:
        """Whether the source contains a name of this kind, as spelled or in its parts."""
        if kind == "number":
            has_figures = any(reading <= self.figures for reading in _readings(name))
            return has_figures or self._has_date(name)
        return self._has_spelling(name.lower()) or self._has_parts(name)

    def has_words(self, name: str) -> bool:
        """Whether every word of a name occurs, except short and common ones."""
        words = _WORD.findall(name.lower())
        return all(len(word) < 4 or word in _COMMON_WORDS or word in self.words for word in words)

    def _has_spelling(self, name: str) -> bool:
        """Whether the name occurs with no letter or digit before or after it."""
        if not name or name in self.words:
            return bool(name)
        start = self.lowered.find(name)
        while start >= 0:
            end = start + len(name)
            before, after = self.lowered[start - 1 : start], self.lowered[end : end + 1]
            continues_word = before.isalnum() and name[0].isalnum()
            is_continued = after.isalnum() and name[-1].isalnum()
            if not continues_word and not is_continued:
                return True
            start = self.lowered.find(name, start + 1)
        return False

    def _has_parts(self, name: str) -> bool:
        """Whether the name occurs without its arguments, arity or line number, or in its parts."""
        bare = _CALL_ARGUMENTS.sub("", _LINE_NUMBER.sub("", _ARITY.sub("", name)))
        bare = bare.strip("\"'`*.,;:-#$%@/~ ")
        if bare != name and bare and self._has_spelling(bare.lower()):
            return self._has_words(name[len(bare) :])
        parts = [part for part in _PATH_SEPARATOR.split(bare or name) if part]
        if len(parts) == 1 and "/" not in name:
            parts = [part for part in _NAME_SEPARATOR.split(bare or name) if part]
        return len(parts) > 1 and all(self._has_spelling(part.lower()) for part in parts)

    def _has_words(self, part: str) -> bool:
        """Whether every word of a part occurs, except very short ones."""
        words = _WORD.findall(part.lower())
        return all(len(word) < 3 or word in self.words for word in words)

    def _has_date(self, name: str) -> bool:
        """Whether the year and the day of an ISO date occur; the source may spell out the month."""
        year, *month_and_day = name.split("-")
        return len(month_and_day) == 2 and {year, month_and_day[1].lstrip("0")} <= self.figures


def read_ground_truth(rows: Sequence[Row], prior: Sequence[str] = ()) -> GroundTruth:
    """The ground truth of some rows, including tool calls, and of earlier summaries."""
    return GroundTruth([*shown_texts(row.message for row in rows), *prior])


def shown_texts(messages: Iterable[Message], tools: Iterable[Tool] = ()) -> Iterator[str]:
    """What a request with these messages and tools shows to a model.

    It shows the whole arguments of a call: also their keys and numbers.
    """
    for message in messages:
        yield message.text
        if message.name:
            yield message.name
        for block in message.blocks:
            if isinstance(block, ToolCall):
                yield block.name
                yield without_escapes(block.arguments)
                yield from decode_arguments(block.arguments).values()
    for tool in tools:
        yield tool.name
        yield tool.description or ""
        yield without_escapes(exact_json.dumps(tool.parameters or {}).decode())


def check_summary(text: str, ground: GroundTruth) -> Checked:
    """The summary with its doubtful names marked, without sentences that have no other names."""
    lines: list[str] = []
    dropped: list[str] = []
    marked: list[str] = []
    for line in text.strip().splitlines():
        sentences: list[str] = []
        is_heading = line.rstrip().endswith(":")  # without it, lines would be under another one
        for sentence in _SENTENCE.split(line):
            doubt = find_doubtful(sentence, ground)
            is_removable = not is_heading and not _RULE_WORDS.search(sentence)
            if doubt.is_unfounded and is_removable:
                dropped.append(sentence)
                continue
            marked += doubt.names
            sentences.append(_mark(sentence, doubt.names))
        remaining = " ".join(sentences)
        if remaining != line and _LIST_MARKER.fullmatch(remaining):
            continue  # only a list marker remains
        lines.append(remaining)
    checked = "\n".join(lines).strip()
    return Checked(checked, tuple(sentence.strip() for sentence in dropped), tuple(marked))


class DoubtfulNames(Struct, frozen=True):
    """The doubtful names of a sentence; `is_unfounded` if it has nothing but invented names."""

    names: list[str]
    is_unfounded: bool


def find_doubtful(sentence: str, ground: GroundTruth) -> DoubtfulNames:
    """The names of a sentence that the source does not have.

    Counts, versions and alternatives ("a/b") are often the summary's own words, so they are only
    marked. So are the names of a longer sentence, because its other words may be true.
    """
    # The number of omitted names in an index is not in the source.
    text = LEFT_OUT.sub("", sentence)
    kinds = {name: kind for kind, name in find_names(text)}
    invented: list[str] = []
    has_known_name = False
    doubtful: list[str] = []
    for name, kind in kinds.items():
        if _ALTERNATIVES.fullmatch(name):
            if not ground.has_words(name):
                doubtful.append(name)
        elif not ground.has_name(kind, name):
            invented.append(name)
        else:
            has_known_name = True
    counts = [count for count in _TEST_COUNT.findall(text) if count not in kinds and count != "0"]
    doubtful += [count for count in counts if count not in ground.counts]
    versions = [name for name in _VERSION.findall(text) if name not in kinds]
    doubtful += [name for name in versions if not ground.has_name("version", name)]
    is_short = len(sentence.split()) <= MAX_DROPPED_WORDS
    return DoubtfulNames([*invented, *doubtful], bool(invented) and not has_known_name and is_short)


def _mark(sentence: str, names: Sequence[str]) -> str:
    """The sentence with a mark after the first mention of each name."""
    for name in dict.fromkeys(names):
        pattern = rf"(?<!\w){re.escape(name)}(?!\w)`?"
        sentence = re.sub(pattern, lambda match: match[0] + UNVERIFIED_MARK, sentence, count=1)
    return sentence


def missing_names(text: str, rows: Sequence[Row]) -> tuple[list[Name], int]:
    """The names of the rows that a text lacks, the most probably needed first, and how many names
    it lacks, listed or not."""
    names, total = index_names(rows)
    lowered = text.lower()
    missing = [name for name in names if name[1].lower() not in lowered]
    return missing[:MAX_ADDED_NAMES], total - (len(names) - len(missing))


def add_missing_names(text: str, rows: Sequence[Row], max_tokens: int, count: Count) -> Completed:
    """The text with an index of the names it lacks, as many as fit."""
    missing, total = missing_names(text, rows)
    low, high = 0, len(missing)
    while low < high:
        middle = (low + high + 1) // 2
        fits = _size(_with_index(text, missing[:middle], total), count) <= max_tokens
        low, high = (middle, high) if fits else (low, middle - 1)
    indexed = _with_index(text, missing[:low], total)
    completed = indexed if low or _size(indexed, count) <= max_tokens else text
    return Completed(completed, low, total - low)


def index_tokens(rows: Sequence[Row], count: Count) -> int:
    """The tokens of an index of all names in the rows."""
    missing, total = missing_names("", rows)
    return _size(_with_index("", missing, total), count) if missing else 0


def lines_to_retain(text: str, rows: Sequence[Row], retain: Sequence[str]) -> list[str]:
    """For each text to retain that the summary lacks, the first line of the rows that contains
    it."""
    lines: list[str] = []
    for phrase in retain:
        if not phrase or phrase in text:
            continue
        if "\n" in phrase:
            if any(phrase in row.message.text for row in rows):
                lines.append(phrase)
            continue
        matches = (line for row in rows for line in row.message.text.splitlines() if phrase in line)
        line = next(matches, None)
        if line is not None:
            lines.append(line.strip())
    return list(dict.fromkeys(lines))


def quoted_lines(text: str) -> list[str]:
    """The lines that an earlier summary quotes verbatim."""
    _, heading, after = text.partition(f"\n{QUOTES_HEADING}\n")
    lines = after.partition("\n\n")[0].splitlines() if heading else []
    return [line.removeprefix(BULLET) for line in lines if line.startswith(BULLET)]


def with_quoted_lines(text: str, lines: Sequence[str]) -> str:
    """The text, followed by lines that it quotes verbatim."""
    return text if not lines else f"{text}\n\n{QUOTES_HEADING}\n" + "\n".join(map(_as_item, lines))


def _as_item(line: str) -> str:
    return line if line.startswith(BULLET) else BULLET + line


def _with_index(text: str, names: Sequence[Name], total: int) -> str:
    """The text with these names below it; an existing index is continued.

    `total` is the number of missing names, listed or not.
    """
    more = total - len(names)
    if not names and more <= 0:
        return text
    parts = text.split("\n\n") if text else []
    old = next((part for part in parts if part.startswith(NAMES)), "")
    old_names = LEFT_OUT.sub("", old.removeprefix(NAMES))
    listed = [name for _, name in names]
    line = NAMES + ", ".join(
        [*filter(None, [old_names]), *listed, *([MORE.format(more)] if more > 0 else [])]
    )
    return "\n\n".join([*(part for part in parts if part is not old), line])


def _size(text: str, count: Count) -> int:
    return count(Message("user", (Text(text),)))


def _readings(text: str) -> tuple[set[str], set[str]]:
    """The figures of a text without thousands separators, in two readings.

    A plain space may separate two figures (first reading) or the thousands of one (second).
    """
    separate = _CLEAR_SEPARATOR.sub("", text)
    joined = _SPACED_THOUSANDS.sub(lambda match: match[1].replace(" ", ""), separate)
    return _figures(separate), _figures(joined)


def _figures(text: str) -> set[str]:
    return {figure.replace(",", "") for figure in _FIGURE.findall(text)}
