"""A summary without a model: quotations from the conversation, in five parts.

1. What the user typed, in order: every message if they fit their share. Otherwise the first one,
   the newest ones, and the sentences of the others that add most.
2. What tool calls tell: the open tasks of the last task list, the last commands with the last line
   of their result, the files that calls changed and read, failed calls.
3. The last answer.
4. Lines of answers, calls and results.
5. An index of names that are probably needed and that the other parts do not mention.

Nothing is judged. Every item is copied from one source text; `[...]` marks what is left out inside
it. The frame around the items (headings, labels with names of tools, bullets, `->`) states nothing
about their content. No choice depends on the words of a language: if every word of a conversation
is renamed, the same lines are chosen.

Lines are chosen by greedy weighted set cover (`_cover`): a name counts until a chosen line has it,
so each further line adds something new. The value of a name is the probability that it is needed
again (`probability_needed`), and a part of that value belongs to the line of its last mention,
because older lines may be stale. In prose, rare words and figures count too. The value of a line is
divided by the tokens that it costs, and the user's words count more than those of others.

While typed text is missing, the parts 2 to 5 never get more than the user's share leaves. The
budget is used: what one part does not need, the next ones get.

`probability_needed` is a logistic model of how often and how recently a name occurs, and where. Its
weights were fitted to recorded coding sessions: a name counts as needed if the arguments of a later
call contain it. `make eval` fits them anew on each session and measures them on the others.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from math import exp, log
from typing import NamedTuple

from msgspec import Struct

from weft.history import Row
from weft.lazy import lazy_pattern
from weft.model import Message, Text

from .batches import END, SHORT_MARK
from .called import tool_facts
from .names import Name
from .plan import Count, block_kind
from .quote import GAP, Quote, clip, quote_whole
from .source import (
    BULLET,
    MARK,
    NAMES,
    Line,
    Mentions,
    Passage,
    Source,
    names_of,
    read_source,
)

HEADER = f"{MARK}: copied text, {SHORT_MARK}; where statements differ, the later one holds]"

ALL_TYPED = "The user's messages, oldest first"
PART_TYPED = "From the user's messages, oldest first"
LAST_ANSWER = "The assistant's last answer"
NO_TEXT = "Without text: "

USER_SHARE, TALK_SHARE = 0.4, 0.65
"""The share of a summary for what the user typed. The second one is for a conversation with fewer
calls than typed messages, where the user's words are most of what can be lost."""

FACTS_SHARE, MIN_FACTS_TOKENS, SHORT_FACTS_SHARE = 0.1, 120, 0.3
"""The share for what calls tell. In a short summary it is `MIN_FACTS_TOKENS` (a task list and two
commands), but not more than `SHORT_FACTS_SHARE`."""

ANSWER_SHARE, MIN_ANSWER_TOKENS, SHORT_ANSWER_SHARE, MAX_ANSWER_TOKENS = 0.08, 60, 0.25, 300
"""The share for the last answer, in the same way: a short summary has two or three sentences of it,
and a long one no more than a page."""

INDEX_SHARE = 0.1
"""The share of the index. With a fifth more, later calls find 2 points more of their names at 10 %
and 1 point fewer of their lines."""

KIND_FACTORS = {"path": 3.0, "error": 3.0, "symbol": 2.0, "hash": 1.5, "number": 1.0}
"""How much a name of each kind counts in the index: with a path, a model can read a file again."""

NEWEST_SHARE, FIRST_SHARE = 0.3, 0.15
"""If not all typed messages fit, the newest ones get the first share of their room, whole if they
can be, and the first message the second one. Sentences of any message get the rest. With half for
the newest ones, 79 % of changed facts have their current value at 10 %, and with this share 92."""

LAST_MENTION_SHARE = 0.45
"""The share of a name's value that only the line of its last mention has."""

LINES_PER_NAME = 3
"""Of the lines with a name, this many of the newest compete; older ones say the same, or are
stale."""

WORD_VALUE, FIGURE_VALUE = 0.02, 0.06
"""The values of a rare word (times the logarithm of its rareness), and of a figure or a proper name
in prose. A name that is certainly needed has the value 1."""

VOICE_FACTORS = {
    "user": 4.0,
    "system": 4.0,
    "summary": 4.0,
    "assistant": 1.6,
    "call": 1.0,
    "result": 0.8,
    "client": 0.6,
}
"""How much a line of each voice counts: a tool's output can be produced again, a user's words
cannot."""

AGE_PENALTY = 0.6
"""The oldest line loses this share of its value."""

SHORT_BYTES, SHORT_FACTOR = 32, 0.3
"""The factor of a sentence that says little alone: one with fewer bytes, or without any figure or
name."""

MIN_NAME_VALUE, MAX_SERIES = 0.02, 6
"""The index has no names that are less probably needed, and no names that only results mention and
that differ from more than `MAX_SERIES` others in their digits alone."""

USED_SHARE, MIN_USED_SHARE, MIN_TOP_UP_CHARS = 0.95, 0.92, 8
"""A summary is fitted until it has the first share of its tokens. If whole lines leave it with less
than the second one, it gets the beginnings of further texts, but no shorter ones than this."""

MAX_FITTINGS = 8
"""How often the size of a summary is corrected: each correction counts its tokens."""

MAX_ABOUT_CHARS = 40
"""What a call was about is cut to this length above the lines of its result. With 80, the lines of
names fall by 2 points at 10 %, because labels take their tokens."""

SMALLEST_CHARS = 60
"""The smallest summary has one line, or the beginning of a longer one."""

USEFUL_LINES = 3
"""A useful summary has this many lines; only then more recent turns are kept."""

_WORD = lazy_pattern(r"[^\W\d_]{4,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}")
"""A longer word, or a pair of characters in scripts without spaces."""

_FIGURE = lazy_pattern(r"(?<![\w.])\d+(?:[.,:]\d+)*|(?<=[^\W\d_A-Z.!?] )[A-Z][\w&'-]+")
"""A figure, or a capitalised word inside a sentence."""

_DIGITS = lazy_pattern(r"\d+")
_ALTERNATIVES = lazy_pattern(r"[^\W\d_.][\w-]*(?:/[^\W\d_][\w-]*){1,2}|\d+(?:/\d+)+")
"""Words or figures with slashes between them: rarely a path, unless a call uses it."""


class NeedModel(NamedTuple):
    """The weights of the features in `probability_needed`."""

    bias: float = 0.0
    total: float = 0.35
    age: float = -0.8
    user: float = 0.8
    assistant: float = 0.2
    address: float = 1.3
    body: float = 0.5
    path: float = -0.2
    error: float = -0.3
    hash: float = -0.5
    number: float = -0.6


NEED = NeedModel()


def features(name: Name, mentions: Mentions, rows: int) -> tuple[float, ...]:
    """The features of a name in a source of `rows` rows, in the order of `NeedModel`."""
    kind = name[0]
    return (
        1.0,
        log(1 + mentions.total),
        log(1 + rows - mentions.last_row),
        1.0 if mentions.user else 0.0,
        1.0 if mentions.assistant else 0.0,
        log(1 + mentions.address),
        log(1 + mentions.body),
        1.0 if kind == "path" else 0.0,
        1.0 if kind == "error" else 0.0,
        1.0 if kind == "hash" else 0.0,
        1.0 if kind == "number" else 0.0,
    )


def probability_needed(name: Name, mentions: Mentions, rows: int, model: NeedModel = NEED) -> float:
    """The probability that a later call needs this name."""
    values = features(name, mentions, rows)
    score = sum([weight * value for weight, value in zip(model, values, strict=True)])
    return 1 / (1 + exp(-score))


class _Parts(Struct):
    """The parts of one summary while it is built: quotations, and the names of the index."""

    typed: list[Quote]
    has_all_typed: bool
    facts: list[tuple[str, list[str]]]
    answer: Quote | None
    lines: list[Quote]
    names: list[str]


class Extract:
    """The summaries of some rows, for any number of tokens.

    `beside` are rows that the model sees beside the summary, so the summary need not repeat their
    names. `source` is what was read from the rows, if that was done before.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        count: Count,
        model: NeedModel = NEED,
        beside: Sequence[Row] = (),
        source: Source | None = None,
    ) -> None:
        self.rows = rows
        self.count = count
        self.source = read_source(rows) if source is None else source
        self.name_values = {
            name: probability_needed(name, mentions, self.source.row_count, model)
            for name, mentions in self.source.mentions.items()
        }
        for name in names_of(beside, self.source.reader) if beside else ():
            if name in self.name_values:
                self.name_values[name] = 0.0
        typed = self.source.typed.values()
        self.typed = sorted((m.passage for m in typed), key=_place)
        self.user_share = TALK_SHARE if len(self.source.uses) < len(typed) else USER_SHARE
        self.bytes_per_token = self._measure_bytes()
        self._facts = list(tool_facts(self.source.uses))
        self._ranked: list[Line] | None = None
        self._summaries: dict[int, Message | None] = {}

    @property
    def min_tokens(self) -> int:
        """The tokens of the smallest summary."""
        return self.count(self._smallest())

    @property
    def useful_tokens(self) -> int:
        """The tokens of a useful summary: recent turns are folded until it fits."""
        lines = [quote_line(line) for line in self.ranked[:USEFUL_LINES]]
        return max(self.min_tokens, self._size(_Parts([], False, [], None, lines, [])))

    @property
    def ranked(self) -> list[Line]:
        """All lines, the most useful first; lines that add nothing follow, the newest first."""
        if self._ranked is None:
            ranked = rank_lines(self.source, self.name_values)
            chosen = {line.text for line in ranked}
            others = (line for line in self.source.lines.values() if line.text not in chosen)
            self._ranked = ranked + sorted(others, key=lambda line: -line.number)
        return self._ranked

    def within(self, max_tokens: int) -> Message | None:
        """The summary as a user message; `None` if not even the smallest one fits."""
        if max_tokens not in self._summaries:
            self._summaries[max_tokens] = self._fit(max_tokens)
        return self._summaries[max_tokens]

    def beside_model(self, max_tokens: int) -> tuple[str, bool]:
        """What is kept verbatim beside a model's summary, and whether it has every typed message.

        It has the parts 1 to 3, in at most `max_tokens` tokens; empty if nothing fits.
        """
        scale = 1.0
        for _ in range(MAX_FITTINGS):
            free = max_tokens * scale
            answer = self._answer(free)
            facts, facts_cost = self._choose_facts(free)
            room = free - facts_cost - (self._cost(answer.text) if answer else 0)
            typed, has_all = self._choose_typed(room)
            parts = _Parts(typed, has_all, facts, answer, [], [])
            text = "\n\n".join(self._sections(parts))
            size = self.count(_user_message(text))
            if size <= max_tokens:
                return text, has_all
            scale *= max_tokens / size * 0.97
        return "", not self.typed

    def _fit(self, max_tokens: int) -> Message | None:
        """The fullest summary that fits: its estimated size is corrected a few times."""
        smallest = self._smallest()
        smallest_size = self.count(smallest)
        if smallest_size > max_tokens:
            return None
        frame = self._size(_Parts([], True, [], None, [], []))
        best, best_parts, best_size = smallest, None, smallest_size
        free, others_scale = float(max_tokens - frame), 1.0
        for _ in range(MAX_FITTINGS):
            if free < 1:
                break
            parts = self._build(free, others_scale)
            excess = self._excess(parts, max_tokens)
            if excess > 1:
                others_scale *= 0.98 / excess
                continue
            message = self._write(parts)
            size = self.count(message)
            if best_size < size <= max_tokens:
                best, best_parts, best_size = message, parts, size
            if max_tokens * USED_SHARE <= size <= max_tokens:
                break
            target = 0.985 if size <= max_tokens else 0.96
            free *= max(1, max_tokens * target - frame) / max(1, size - frame)
        return self._top_up(best, best_parts, best_size, max_tokens)

    def _excess(self, parts: _Parts, max_tokens: int) -> float:
        """How many times too large the parts 2 to 5 are while typed text is missing."""
        if parts.has_all_typed:
            return 0.0
        others = self._sections(
            _Parts([], False, parts.facts, parts.answer, parts.lines, parts.names)
        )
        return self.count(_user_message("\n\n".join(others))) / (max_tokens * (1 - self.user_share))

    def _top_up(
        self, message: Message, parts: _Parts | None, size: int, max_tokens: int
    ) -> Message:
        """The summary with the beginnings of the newest texts, if it is not full."""
        if parts is None:
            parts = _Parts([], False, [], None, [], [])
            size = self._size(parts)
        source_bytes = sum(_bytes(passage.text) for passage in self.source.passages)
        full = min(max_tokens, source_bytes / self.bytes_per_token) * MIN_USED_SHARE
        for passage in reversed(self.source.passages):
            if size >= full:
                break
            length = int((max_tokens - size - 12) * self.bytes_per_token * 0.8)
            bytes_per_char = max(1.0, _bytes(passage.text) / max(1, len(passage.text)))
            chars = int(length / bytes_per_char)
            if chars < MIN_TOP_UP_CHARS:
                break
            is_typed = passage.voice == "user"
            if not is_typed and not parts.has_all_typed:
                continue  # the other parts have what they may have
            quote = clip(passage, chars)
            if not quote.spans or quote.text.removesuffix(f" {GAP}") in message.text:
                continue
            extended = _Parts(
                parts.typed,
                parts.has_all_typed,
                parts.facts,
                parts.answer,
                [*parts.lines, quote],
                parts.names,
            )
            longer = self._write(extended)
            longer_size = self.count(longer)
            if size < longer_size <= max_tokens:
                message, parts, size = longer, extended, longer_size
        return message

    def _build(self, free: float, others_scale: float) -> _Parts:
        """The parts of a summary of about `free` tokens besides its frame.

        While typed text is missing, the other parts get `others_scale` times what they may have.
        """
        typed_cost = sum(self._cost(passage.text) for passage in self.typed)
        has_all = typed_cost <= free * self.user_share
        limit = free - typed_cost if has_all else free * (1 - self.user_share) * others_scale
        answer = self._answer(min(free, limit / 0.6))
        used = self._cost(answer.text) + 6 if answer else 0.0
        facts, facts_cost = self._choose_facts(min(free, limit / 0.6))
        used += facts_cost
        index_room = min(free, limit / 0.6) * INDEX_SHARE if self.source.uses else 0.0
        quoted = [answer.text] if answer else []
        quoted += [item for _, items in facts for item in items]
        lines, lines_cost = self._choose_lines(limit - used - index_room, "\n".join(quoted))
        used += lines_cost
        names, names_cost = self._choose_names(limit - used, lines, quoted)
        used += names_cost
        typed, has_all = self._choose_typed(free - used)
        if has_all and used + typed_cost < free * USED_SHARE:
            # The user's messages need less than what the other parts have left.
            more = free - used - typed_cost + lines_cost
            lines, _ = self._choose_lines(more, "\n".join(quoted))
        return _Parts(typed, has_all, facts, answer, [quote_line(x) for x in lines], names)

    def _choose_typed(self, room: float) -> tuple[list[Quote], bool]:
        """What the user typed in about `room` tokens, and whether that is everything."""
        costs = [self._cost(passage.text) for passage in self.typed]
        if sum(costs) <= room:
            return [quote_whole(passage) for passage in self.typed], True
        chosen: dict[Passage, Quote] = {}
        left = room
        for share, passages in (
            (NEWEST_SHARE, self.typed[::-1]),
            (FIRST_SHARE, self.typed[:1]),
        ):
            most = room * share
            for passage in passages:
                if passage in chosen:
                    continue
                quote = quote_whole(passage)
                if self._cost(quote.text) > most:
                    bytes_per_char = max(1.0, _bytes(passage.text) / len(passage.text))
                    quote = clip(passage, int((most - 3) * self.bytes_per_token / bytes_per_char))
                cost = self._cost(quote.text)
                if not quote.spans or cost > min(most, left):
                    break
                chosen[passage] = quote
                most -= cost
                left -= cost
        for line in self.ranked:
            if line.passage.voice != "user":
                continue
            old = chosen.get(line.passage)
            if old is not None and old.covers(line.start, line.end):
                continue
            cost = self._cost(line.text) + (1 if old else 0)
            if cost > left:
                if left < room * (1 - USED_SHARE) / 2:
                    break
                continue
            span = (line.start, line.end)
            chosen[line.passage] = (old or Quote(line.passage, ())).with_span(span)
            left -= cost
        return [chosen[passage] for passage in self.typed if passage in chosen], False

    def _choose_facts(self, free: float) -> tuple[list[tuple[str, list[str]]], float]:
        """What calls tell, by heading, as much as fits its share; and its cost."""
        limit = max(free * FACTS_SHARE, min(MIN_FACTS_TOKENS, free * SHORT_FACTS_SHARE))
        chosen: dict[str, list[str]] = {}
        used = 0.0
        for heading, item in self._facts:
            cost = self._cost(item) + (0 if heading in chosen else 6)
            if used + cost <= limit:
                chosen.setdefault(heading, []).append(item)
                used += cost
        return list(chosen.items()), used

    def _answer(self, free: float) -> Quote | None:
        """The assistant's last answer, or its first and last sentences."""
        passage = self.source.last_answer
        if passage is None or not passage.text.strip():
            return None
        room = max(free * ANSWER_SHARE, min(MIN_ANSWER_TOKENS, free * SHORT_ANSWER_SHARE))
        bytes_per_char = max(1.0, _bytes(passage.text) / len(passage.text))
        chars = min(room, MAX_ANSWER_TOKENS) * self.bytes_per_token / bytes_per_char
        quote = clip(passage, int(chars))
        return quote if quote.spans else None

    def _choose_lines(self, room: float, quoted: str) -> tuple[list[Line], float]:
        """The most useful lines of others than the user that are not quoted yet; their cost."""
        quoted_lines = {line.strip().removeprefix(BULLET) for line in quoted.splitlines()}
        chosen: list[Line] = []
        used = 0.0
        for line in self.ranked:
            voice = line.passage.voice
            if voice == "user" or line.text in quoted_lines:
                continue
            if voice == "assistant" and line.text in quoted:
                continue
            cost = self._cost(line.text)
            if not line.is_prose:
                cost += self._cost(label(line.passage)) * 0.3  # several lines share a label
            if used + cost > room:
                if used > room * 0.97:
                    break
                continue
            chosen.append(line)
            used += cost
        return chosen, used

    def _choose_names(
        self, room: float, lines: Sequence[Line], quoted: Sequence[str]
    ) -> tuple[list[str], float]:
        """The names of the index: those that are probably needed and not mentioned."""
        if not self.source.uses or room < 8:
            return [], 0.0
        body = "\n".join([*quoted, *(line.text for line in lines), *(p.text for p in self.typed)])
        mentioned = {name for line in lines for name in line.names}
        names: list[str] = []
        used = 4.0
        for name in self._index_names:
            if name in mentioned or name[1] in body:
                continue
            cost = _bytes(name[1]) / self.bytes_per_token + 1
            if used + cost > room:
                break
            names.append(name[1])
            used += cost
        return names, used if names else 0.0

    @property
    def _index_names(self) -> list[Name]:
        return index_candidates(self.source, self.name_values)

    def _smallest(self) -> Message:
        """The smallest summary: the shortest line, or the kinds of blocks if there is no text."""
        lines = self.source.lines.values()
        shortest = min(lines, key=lambda line: len(line.text), default=None)
        if shortest is not None and len(shortest.text) <= SMALLEST_CHARS:
            return self._write(_Parts([], False, [], None, [quote_line(shortest)], []))
        for passage in sorted(self.source.passages, key=lambda passage: len(passage.text)):
            quote = clip(passage, SMALLEST_CHARS)
            if quote.spans:  # a part of a long line, or a text that is too short to be a line
                return self._write(_Parts([], False, [], None, [quote], []))
        kinds = Counter(block_kind(block) for row in self.rows for block in row.message.blocks)
        listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "empty messages"
        return _user_message("\n\n".join((HEADER, NO_TEXT + listed, END)))

    def _size(self, parts: _Parts) -> int:
        return self.count(self._write(parts))

    def _write(self, parts: _Parts) -> Message:
        return _user_message("\n\n".join((HEADER, *self._sections(parts), END)))

    def _sections(self, parts: _Parts) -> Iterator[str]:
        """The parts as Markdown: a heading and a list for each, and a list for each speaker."""
        lines = sorted(parts.lines, key=lambda quote: _place(quote.passage, quote.spans[0][0]))
        typed = [quote for quote in lines if quote.passage.voice == "user"]
        typed = sorted([*parts.typed, *typed], key=lambda quote: _place(quote.passage))
        if typed:
            heading = ALL_TYPED if parts.has_all_typed else PART_TYPED
            yield _section(heading, [quote.text for quote in typed])
        for heading, items in parts.facts:
            yield _section(heading, items)
        speaker = ""
        items: list[str] = []
        for quote in lines:
            if quote.passage.voice == "user":
                continue
            if label(quote.passage) != speaker:
                if items:
                    yield _section(speaker, items)
                speaker, items = label(quote.passage), []
            items.append(quote.text)
        if items:
            yield _section(speaker, items)
        if parts.answer is not None:
            yield _section(LAST_ANSWER, [parts.answer.text])
        if parts.names:
            yield NAMES + ", ".join(parts.names)

    def _cost(self, text: str) -> float:
        """The estimated tokens of an item."""
        return _bytes(text) / self.bytes_per_token + 2

    def _measure_bytes(self) -> float:
        """How many bytes a token of the source has, by a sample."""
        lines = list(self.source.lines)
        sample = "\n".join(lines[:: max(1, len(lines) // 200)])[:20_000] or "x"
        empty = self.count(_user_message(""))
        return max(1.0, _bytes(sample) / max(1, self.count(_user_message(sample)) - empty))


def extract_summary(rows: Sequence[Row], max_tokens: int, count: Count) -> Message | None:
    """The summary of some rows in at most `max_tokens`, as a user message; `None` if none fits."""
    return Extract(rows, count).within(max_tokens)


def index_names(rows: Sequence[Row]) -> tuple[list[Name], int]:
    """The names that an index of rows may list beside a model's summary, the most probably needed
    first, and how many names there are."""
    source = read_source(rows)
    values = {
        name: probability_needed(name, mentions, source.row_count)
        for name, mentions in source.mentions.items()
    }
    return index_candidates(source, values, beside_model=True), len(source.mentions)


def index_candidates(
    source: Source, values: dict[Name, float], *, beside_model: bool = False
) -> list[Name]:
    """The names that an index may list, the most probably needed first.

    Beside a model's sentences it also has figures that people or calls mention, and series.
    """
    shapes = Counter(
        _DIGITS.sub("0", name[1])
        for name, mentions in source.mentions.items()
        if mentions.total == mentions.result
    )

    def is_listed(name: Name, mentions: Mentions) -> bool:
        is_printed = mentions.total == mentions.result
        if values[name] < MIN_NAME_VALUE:
            return False
        if not mentions.address and _ALTERNATIVES.fullmatch(name[1]):
            return False
        if beside_model:
            return name[0] != "number" or not is_printed
        is_used = mentions.address or mentions.body or mentions.result
        if name[0] == "number" or not is_used:
            return False
        return not is_printed or shapes[_DIGITS.sub("0", name[1])] <= MAX_SERIES

    names = [name for name, mentions in source.mentions.items() if is_listed(name, mentions)]

    def score(name: Name) -> float:
        kind, text = name
        return values[name] * KIND_FACTORS[kind] / (len(text) + 12) ** 0.5

    return sorted(names, key=lambda name: -score(name))


def quote_line(line: Line) -> Quote:
    """A line as a quotation."""
    return Quote(line.passage, ((line.start, line.end),), line.text)


def label(passage: Passage) -> str:
    """The heading of the lines of a passage: who speaks, and what a call was about."""
    match passage.voice:
        case "user":
            return PART_TYPED
        case "assistant":
            return "Assistant"
        case "system":
            return "System message"
        case "summary":
            return "Earlier summary"
        case "client":
            return "Added by the client"
        case "call":
            return f"Call of {passage.tool}"
        case "result":
            about = f" {_about(passage.about)}" if passage.about else ""
            return f"Result of {passage.tool}{about}" if passage.tool else "Result of a call"


def _about(passage: Passage) -> str:
    """What a call was about, on one line: the end of a long path, the beginning of any other."""
    line = " ".join(passage.text.split())
    if len(line) <= MAX_ABOUT_CHARS:
        return line
    if " " not in line and "/" in line:
        end = line[-MAX_ABOUT_CHARS:]
        return f"{GAP}{end[max(0, end.find('/')) :]}"  # whole names, which the source has
    return f"{line[:MAX_ABOUT_CHARS].rstrip()} {GAP}"


def rank_lines(source: Source, name_values: dict[Name, float]) -> list[Line]:
    """The lines that add something, the most useful first."""
    lines = _candidates(source)
    words = [dict.fromkeys(_WORD.findall(x.text.lower())) if x.is_prose else {} for x in lines]
    spread = Counter(word for line_words in words for word in line_words)
    total = 1 + sum(line.is_prose for line in lines)
    values: list[float] = []
    number_of: dict[object, int] = {}
    units_of: list[list[int]] = []
    costs: list[float] = []
    for line, line_words in zip(lines, words, strict=True):
        figures = dict.fromkeys(_FIGURE.findall(line.text)) if line.is_prose else {}
        keys: list[tuple[object, float]] = [(name, name_values[name]) for name in line.names]
        keys += [(word, WORD_VALUE * log(1 + total / spread[word])) for word in line_words]
        keys += [(("figure", figure), FIGURE_VALUE) for figure in figures]
        units: list[int] = []
        for key, value in keys:
            number = number_of.get(key)
            if number is None:  # the lines are read from the end: this is its last mention
                number = number_of[key] = len(values)
                values += [value * (1 - LAST_MENTION_SHARE), value * LAST_MENTION_SHARE]
                units.append(number + 1)
            units.append(number)
        units_of.append(units)
        costs.append(_line_cost(line, bool(figures), source.row_count))
    return [lines[number] for number in _cover(values, units_of, costs)]


def _candidates(source: Source) -> list[Line]:
    """The lines of prose, and the last lines of each name; the newest first.

    A line that is nothing but a name is left to the index, which costs less.
    """
    lines_with: Counter[Name] = Counter()
    candidates: list[Line] = []
    for line in sorted(source.lines.values(), key=lambda line: -line.number):
        is_recent = False
        for name in line.names:
            lines_with[name] += 1
            is_recent = is_recent or lines_with[name] <= LINES_PER_NAME
        is_bare = len(line.names) == 1 and line.names[0][1] == line.text
        if line.is_prose or (is_recent and not is_bare):
            candidates.append(line)
    return candidates


def _line_cost(line: Line, has_figures: bool, rows: int) -> float:
    """The tokens of a line, divided by how much its speaker, its age and its form count."""
    size = _bytes(line.text)
    factor = VOICE_FACTORS[line.passage.voice]
    factor *= 1 - AGE_PENALTY * (rows - line.passage.row) / max(1, rows)
    if line.is_prose and (size < SHORT_BYTES or not (line.names or has_figures)):
        factor *= SHORT_FACTOR
    return (size / 4 + 3) / factor


def _cover(values: Sequence[float], units_of: list[list[int]], costs: Sequence[float]) -> list[int]:
    """The numbers of the lines, each time the one whose new units have the highest value for its
    cost; lines without new units are left out."""
    is_covered = bytearray(len(values))

    def gain(number: int) -> float:
        # Covered units stay covered, so they need not be checked again.
        units_of[number] = new_units = [unit for unit in units_of[number] if not is_covered[unit]]
        return sum([values[unit] for unit in new_units]) / costs[number]

    heap = [(-gain(number), number) for number in range(len(units_of))]
    heapify(heap)
    chosen: list[int] = []
    while heap:
        _, number = heappop(heap)
        fresh = -gain(number)
        if fresh == 0:
            continue
        # Gains only shrink as units are covered. So if the recomputed gain still beats the next
        # stale one, no other line is better.
        if heap and fresh > heap[0][0]:
            heappush(heap, (fresh, number))
            continue
        chosen.append(number)
        for unit in units_of[number]:
            is_covered[unit] = 1
    return chosen


def _section(heading: str, items: Iterable[str]) -> str:
    """A heading and its list; further lines of an item are indented."""
    listed = (BULLET + "\n  ".join(item.splitlines()) for item in items)
    return "\n".join((f"{heading}:", *listed))


def _place(passage: Passage, start: int = 0) -> tuple[int, int, int, int]:
    """The position of a passage, or of a piece of it, in the conversation."""
    return passage.row, passage.block, passage.part, start


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _user_message(text: str) -> Message:
    return Message("user", (Text(text),))
