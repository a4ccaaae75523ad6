"""A summary without a model: the state of the task, the lines that will be needed, an index.

Every line is copied from the source, so nothing can be invented. A summary has up to three parts:

1. The state block (`state`): goal, rules, decisions, open tasks, files, commands, errors, facts.
2. Verbatim lines in their original order, as markdown lists under their speakers.
3. An index of names that are probably needed and that the parts above do not mention.

The lines are chosen by greedy weighted set cover: a name counts until a chosen line contains it, so
each further line adds something new. The value of a name is the probability that it is needed again
(`probability_needed`). A part of that value is only for the line of its last mention, because older
lines may be stale. In text by people and models, rare words count too. The value of a line is
divided by the tokens that it costs. `docs/compaction-quality.md` has the figures.

A summary always has a line or a name; otherwise none is written.

`probability_needed` is a logistic model. Its features are how often and how recently a name occurs,
and whether the user, the assistant, a call's address (path, command, pattern), another argument or
a result mentions it. Its constants were fitted to recorded coding sessions: a name counts as needed
if the arguments of a later call contain it. `make eval` fits them on each transcript and measures
them on the others.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from math import exp, log
from typing import NamedTuple

from msgspec import Struct, structs

from weft.history import Row
from weft.lazy import lazy_pattern
from weft.model import Message, Text

from .batches import END, SHORT_MARK
from .facts import (
    STOP_WORDS,
    content_words,
    has_value,
    refers_back,
)
from .focus import CHARS_PER_TOKEN, Candidate, Focus, choose_candidates
from .names import NAME_KINDS, Name
from .outcomes import is_pending, is_reversal, is_supposed, mentioned_results
from .plan import Count
from .source import (
    BULLET,
    CHANGED_LATER,
    LABELS,
    MARK,
    MORE,
    PEOPLE,
    RULES,
    Line,
    Mentions,
    Source,
    Turn,
    is_narration,
    is_question,
    names_of,
    read_source,
    read_turns,
)
from .state import (
    COMMANDS,
    DECISIONS,
    DONE,
    ERRORS,
    FACTS,
    FILES,
    FINDINGS,
    FURTHER,
    GOAL,
    HEADINGS,
    LAST,
    NEXT,
    REQUEST,
    Item,
    State,
    asks_for_work,
    read_state,
)

HEADER = f"{MARK}: {SHORT_MARK}]"

STATE_SHARE = 0.12
"""The usual share of the state block in a summary."""

STATEMENTS_SHARE = 0.5
SHORT_STATEMENTS_SHARE, ONLY_STATEMENTS_SHARE, SHORT_STATEMENTS_TOKENS = 0.88, 0.94, 700
"""The largest share of the statements, which are all items of the state block but files and
commands. It is larger as long as they have at most `SHORT_STATEMENTS_TOKENS`, and largest if there
are no files and commands."""

FILES_SHARE, SHORT_FILES_TOKENS = 0.05, 60
INDEX_SHARE, SHORT_INDEX_TOKENS = 0.12, 40
MAX_SHORT_SHARE = 0.4
"""The share of files and commands, and the share of the index. In a short summary they get up to
this many tokens instead, but at most `MAX_SHORT_SHARE`."""

SHORT_SUMMARY = 1000
"""A summary with fewer tokens has the short forms of decisions, and no files that were only
read."""

SETTLED_HEADINGS = frozenset({DECISIONS, FACTS, FINDINGS, DONE})
"""The sections of what was decided or found out."""

SHORT_CONVERSATION = 2200
"""In a summary with fewer tokens of a conversation with few files and commands, sentences of people
and models compete with decisions and facts (`focus`)."""

NEEDED_ITEMS_SHARE = 0.9
"""The largest share of such a summary for the goal, the rules, the errors and the current task."""

WHOLE_STATE_SHARE = 0.75
"""A state block of at most this share of such a summary is written as a whole."""

ITEM_FACTORS = {FACTS: 2.5, DONE: 2.0, DECISIONS: 2.0, FINDINGS: 1.5, RULES: 2.5}
SENTENCE_FACTORS = {"user": 1.0, "assistant": 0.7, "tool": 0.75}
"""How much items of the state block, and sentences of each speaker, count when they compete."""

OWN_VALUE = 1.5
"""The value of an item besides that of its figures and words."""

STALE_FACTOR = 0.25
"""The factor of a text that no longer holds."""

PARTLY_STALE_FACTOR = 0.5
"""The factor of a text of which a part changed later."""

SETTLED_FACTOR = 0.7
"""The factor of the assistant's sentences before a question that the user answered."""

PLAIN_FACTOR = 0.5
"""The factor of a sentence without figures and names."""

FIRST_ITEM_BONUS = 0.6
"""How much more the first item of a section counts than the last one."""

MIN_PLAIN_RELEVANCE = 0.2
"""A sentence without figures and names that is less relevant is left out."""

MAX_CHANGED_FILES = 3
"""How many changed files such a summary lists."""

USER_LABEL = "User: "
"""Marks the words of the user among the assistant's."""

MAX_SENTENCES = 400
"""How many of the newest sentences compete."""

PRINTED_NAMES_FROM = 1500
"""In a conversation without commands, a summary with fewer tokens has no index of names that only
tools printed."""

LAST_MENTION_SHARE = 0.45
"""The share of a name's value that only the line of its last mention has."""

LINES_PER_NAME = 3
"""A line is a candidate if it is among this many last lines of one of its names."""

WORD_VALUE = 0.01
FIGURE_VALUE = 0.06
REQUEST_WORD_VALUE = 0.4
"""The value of a rare word, and of a figure or a proper name, in text by people and models; and of
a word of the current request in any text."""

LINE_TOKENS = 3.0
HEADING_SHARE = 0.1
"""The estimated tokens of a line's bullet, and the share of its heading that each line pays for."""

UNCLEAR_FACTOR = 0.3
SHORT_SENTENCE = 32
"""The factor of sentences that say little alone. Sentences with fewer characters than
`SHORT_SENTENCE` do, except in scripts without spaces."""

FIRST_WIDE_MARK = "\u3000"
"""Characters from this one on belong to scripts without spaces, with their punctuation."""

SPEAKER_FACTORS = {
    "user": 4.0,
    "system": 4.0,
    "assistant": 1.6,
    "summary": 6.0,
    "injected": 0.6,
    "call": 1.0,
    "tool": 0.8,
}
"""A tool's output can be produced again, a user's request cannot. A summary is only read if its
messages are not available, or if a person wrote it."""

AGE_PENALTY = 0.5
"""The oldest line loses this share of its score."""

USEFUL_LINES = 3
"""A useful summary has this many lines; only then more recent turns are kept."""

MAX_LINES_TRIED = 40
"""How many more lines to try, after the first one that does not fit."""

MAX_ITEMS_TRIED = 24
"""How many more items of the state block to try, after the first one that does not fit."""

FEW_LINES = 64
"""Up to this many lines, the exact number that fits is searched."""

KIND_FACTORS = {"path": 3.0, "error": 3.0, "symbol": 2.0, "hash": 1.5, "number": 1.0}
"""How much a name of each kind counts in an index."""

MAX_INDEX_NAMES = 2000
MAX_ADDED_NAMES = 400
"""How many names an index may list, and how many are added to a model's summary."""

MAX_SERIES_NAMES = 6
"""More names than this that differ only in digits are a series."""

MIN_LISTED_VALUE = 0.02
"""Names that are less probably needed than this are only listed if they are mentioned in prose."""


_ALTERNATIVES = lazy_pattern(r"[A-Za-z-]+(?:/[A-Za-z-]+){1,2}|\d+(?:/\d+)+|[0-9a-f]{12}/\d+")
"""Words or figures with slashes between them, and handles of `recall`: rarely a path, unless a call
uses it."""


_POLITE_ORDER = lazy_pattern(r"(?:please|bitte|veuillez|merci de|por favor)\b", re.IGNORECASE)
"""The start of a sentence in which the assistant asks the user to do something."""

_ANNOUNCES = lazy_pattern(
    r"(?:\w+,? ){0,2}(?:i|ich|je|yo) (?:begin|start|look|check|search|read|go|try|write|will|suche"
    r"|schaue|prüfe|beginne|lese|schreibe|sehe|regarde|cherche|commence|vérifie|lis|prépare|voy)\b"
    r"|(?:miro|busco|empiezo|reviso|compruebo|voy a)\b",
    re.IGNORECASE,
)
"""The start of a sentence in which an assistant says what it does now."""

_DIGITS = lazy_pattern(r"\d+")
_WORD = lazy_pattern(r"[^\W\d_]{4,}")
_FIGURE_OR_NAME = lazy_pattern(
    r"[\dA-Z](?:(?<=\d)(?<![\w.]\d)\d*(?:[.,:]\d+)*|(?<=[a-z,] [A-Z])[\w&'-]*[a-z]\w*)"
)
"""A figure or a proper name. It starts with a set of characters, so that other places of a text are
skipped fast."""


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


class Extract:
    """The summaries of some rows, for any number of tokens.

    `beside` are rows that the model sees beside the summary, so the summary need not repeat their
    names. `after` are those of them that follow the summarised rows.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        count: Count,
        model: NeedModel = NEED,
        beside: Sequence[Row] = (),
        after: Sequence[Row] = (),
    ) -> None:
        self.rows = rows
        self.count = count
        self.source = read_source(rows)
        self.name_values = {
            name: probability_needed(name, mentions, self.source.rows, model)
            for name, mentions in self.source.mentions.items()
        }
        if beside:
            names_beside = names_of(beside, self.source.reader)
            self.name_values.update(
                (name, 0.0) for name in names_beside if name in self.name_values
            )
        self.names = _index_names(self.source, self.name_values)
        self.following = read_turns(after)
        self.request_pattern = _request_pattern(self.following)
        self._state: State | None = None
        self._ranked: list[Line] | None = None
        self._summaries: dict[int, Message | None] = {}

    @property
    def state(self) -> State:
        """The state block. It is read when first needed, because sizes are often estimated without
        it."""
        if self._state is None:
            self._state = read_state(self.source, self.following)
        return self._state

    @property
    def min_tokens(self) -> int:
        """The tokens of the smallest summary."""
        return self.count(self._smallest_message())

    @property
    def useful_tokens(self) -> int:
        """The tokens of a useful summary: recent turns are folded until it fits."""
        return max(self.min_tokens, self._size((), self.ranked[:USEFUL_LINES], ()))

    @property
    def ranked(self) -> list[Line]:
        """All lines that add something, the most useful first."""
        if self._ranked is None:
            ranked = rank_lines(self.source, self.name_values, self.request_pattern)
            self._ranked = ranked or list(self.source.lines)
        return self._ranked

    def within(self, max_tokens: int) -> Message | None:
        """The summary as a user message; `None` if not even the smallest one fits.

        The state block and the index get at most their shares, and the lines get what these do not
        use. At the end the index lists only names that the other parts do not mention.
        """
        if max_tokens not in self._summaries:
            self._summaries[max_tokens] = self._build(max_tokens)
        return self._summaries[max_tokens]

    def _build(self, max_tokens: int) -> Message | None:
        """The summary, without the cache of `within`."""
        smallest = self._smallest_message()
        if self.count(smallest) > max_tokens:
            return None
        state = self._choose_state(max_tokens)
        if state and self._is_short_conversation(max_tokens):
            # The sentences that help are items of the state block.
            lines, listable = list[Line](), list[Name]()
        else:
            lines = self._lines_beside(state, max_tokens)
            is_short = max_tokens < PRINTED_NAMES_FROM
            listable = self._short_index_names(max_tokens) if is_short else self.names
        reserved = listable[: self._fitting_names((), (), listable, self._index_limit(max_tokens))]
        chosen = self._choose_lines(state, lines, reserved, max_tokens)
        if not chosen and not state:
            chosen = self._choose_lines((), lines, (), max_tokens)
        unmentioned = self._unmentioned_names(listable, state, chosen)
        listed = unmentioned[: self._fitting_names(state, chosen, unmentioned, max_tokens)]
        if len(listed) == len(unmentioned):
            chosen = self._choose_lines(state, lines, listed, max_tokens)
        if not chosen and not listed and not state:
            return smallest
        message = self._write(state, chosen, listed)
        # The parts together may have a few tokens more than each alone.
        while state and self.count(message) > max_tokens:
            state = state[:-1]
            message = self._write(state, chosen, listed)
        return message if self.count(message) <= max_tokens else smallest

    def _index_limit(self, max_tokens: int) -> int:
        """The most tokens of a message with nothing but the index, in a summary of this size."""
        frame_tokens = self._size((), (), ())
        free = max_tokens - frame_tokens
        short_limit = min(SHORT_INDEX_TOKENS, int(free * MAX_SHORT_SHARE))
        return frame_tokens + max(int(free * INDEX_SHARE), short_limit)

    def _is_short_conversation(self, max_tokens: int) -> bool:
        """Whether this is a short summary of a conversation, and not of an agent's work with files
        and commands."""
        has_settled = any(item.heading in SETTLED_HEADINGS for item in self.state)
        if max_tokens >= SHORT_CONVERSATION or not has_settled:
            return False
        work_calls = sum(bool(use.command or use.path) for use in self.source.uses)
        user_turns = sum(speaker == "user" for _, speaker, _ in self.source.turns)
        return work_calls < user_turns

    def _choose_conversation_items(self, max_tokens: int) -> State:
        """The state block of a short summary of a conversation: what any continuation needs, then
        decisions, facts and sentences by how much the current request needs them."""
        chosen, competing = self._choose_needed_items(max_tokens)
        focus = Focus(self.source.turns, self.source.uses, self.following)
        competing += self._sentence_items(focus)
        for item in [item for item in self.state if _is_changed_file(item)][:MAX_CHANGED_FILES]:
            if self._size([*chosen, item], (), ()) <= max_tokens:
                chosen.append(item)
        # The words of the request itself do not make a sentence redundant that has them.
        answers = [turn for turn in self.following if turn.speaker != "user"]
        following = " ".join(chain.from_iterable(turn.sentences for turn in answers))
        known = "\n".join([following, *(item.text for item in chosen)])
        candidates = [_candidate(item, factor) for item, factor in competing]

        def add_if_fits(index: int) -> bool:
            item, _ = competing[index]
            if self._size([*chosen, item], (), ()) > max_tokens:
                return False
            chosen.append(item)
            return True

        choose_candidates(candidates, focus, self.source.rows, known, add_if_fits)
        numbers = {line.text: line.number for line in self.source.lines}
        return sorted(chosen, key=lambda item: numbers.get(next(iter(item.lines), ""), 0))

    def _choose_needed_items(self, max_tokens: int) -> tuple[list[Item], list[tuple[Item, float]]]:
        """The items that any continuation needs, and the items that compete with sentences, with
        their factors. If the whole state block is small, all its items are chosen."""
        frame_tokens = self._size((), (), ())
        free = max_tokens - frame_tokens
        full_items = [item for item in self.state if item.heading not in (FILES, COMMANDS)]
        short_items = [_in_short_form(item) for item in full_items]
        whole_state = short_items if max_tokens < SHORT_SUMMARY else full_items
        whole_state = [
            _in_short_form(item) if item.heading == ERRORS else item
            for item in whole_state
            if item.heading != ERRORS or not _is_repeated(item, whole_state)
        ]
        if self._size(whole_state, (), ()) <= frame_tokens + free * WHOLE_STATE_SHARE:
            return whole_state, []
        max_needed = frame_tokens + int(free * NEEDED_ITEMS_SHARE)
        order_factors = _order_factors(short_items)
        chosen: list[Item] = []
        competing: list[tuple[Item, float]] = []
        for item in sorted(short_items, key=_needed_rank):
            if _competes(item):
                factor = _item_factor(item) * order_factors.get(id(item), 1.0)
                competing.append((item, factor))
            elif not any(_informative_part(item) in other.text for other in chosen):
                if self._size([*chosen, item], (), ()) <= max_needed:
                    chosen = [other for other in chosen if not _is_error_in(other, item)]
                    chosen.append(item)
                else:
                    competing.append((item, ITEM_FACTORS.get(item.heading, 1.0)))
        return chosen, competing

    def _sentence_items(self, focus: Focus) -> list[tuple[Item, float]]:
        """The sentences of people and models that can be understood alone, and the lines of results
        that the assistant mentions, as items with their factors."""
        quoted = {text for item in self.state for text in (*item.lines, *item.replaced)}
        outdated = {text for item in self.state for text in item.outdated}
        lines = [line for line in self.source.lines if line.speaker in PEOPLE]
        undone = self._undone_decisions()
        proposal_rows = _proposal_rows(self.source.turns)
        sentences: list[tuple[Item, float]] = []

        def add(row: int, text: str, line: str, factor: float) -> None:
            order = (HEADINGS.index(FURTHER), row)
            names = tuple(self.source.reader.read(text))
            sentences.append((Item(FURTHER, text, (line,), names, (), order), factor))

        for line in reversed(lines[-MAX_SENTENCES:]):
            words = content_words(line.text)
            is_undone = any(
                line.row < row and not words.isdisjoint(undone_words)
                for row, undone_words in undone
            )
            is_stale = is_undone or any(text in line.text for text in outdated)
            if line.text in quoted or is_stale or not _is_statement(line):
                continue
            is_plain = not has_value(line.text)
            if is_plain and focus.relevance(line.row, line.text) < MIN_PLAIN_RELEVANCE:
                continue
            text = f"{USER_LABEL}{line.text}" if line.speaker == "user" else line.text
            factor = SENTENCE_FACTORS[line.speaker] * (PLAIN_FACTOR if is_plain else 1.0)
            if line.speaker == "user":
                factor *= STALE_FACTOR if asks_for_work(line.text) else 1.0
            elif _POLITE_ORDER.match(line.text):
                factor *= STALE_FACTOR  # the user has probably done it
            else:
                factor *= SETTLED_FACTOR if line.row in proposal_rows else 1.0
            add(line.row, text, line.text, factor)
        for row, text in mentioned_results(self.source.turns, self.source.uses):
            if text not in quoted:
                add(row, text, text, SENTENCE_FACTORS["tool"])
        return sentences

    def _undone_decisions(self) -> list[tuple[int, set[str]]]:
        """For each decision that was undone later: the row of the sentence that says so, and the
        words that this sentence shares with the decision."""
        rows = {line.text: line.row for line in self.source.lines}
        undone: list[tuple[int, set[str]]] = []
        for item in self.state:
            text, later, outcome = item.text.partition("\n  Later: ")
            if later and outcome in rows:
                undone.append((rows[outcome], content_words(text) & content_words(outcome)))
        return undone

    def _choose_state(self, max_tokens: int) -> State:
        """The state block for a summary of this size.

        Statements come first. Files and commands get what statements leave of the usual share, or
        at least a small share of their own.
        """
        if self._is_short_conversation(max_tokens):
            return self._choose_conversation_items(max_tokens)
        frame_tokens = self._size((), (), ())
        free = max(1, max_tokens - frame_tokens)
        statements = [item for item in self.state if item.heading not in (FILES, COMMANDS)]
        files = [item for item in self.state if item.heading in (FILES, COMMANDS)]
        if max_tokens < SHORT_SUMMARY:
            statements = [_in_short_form(item) for item in statements]
            files = [item for item in files if item.heading == COMMANDS or _is_changed_file(item)]
        short_share = SHORT_STATEMENTS_SHARE if files else ONLY_STATEMENTS_SHARE
        short_share = min(short_share, SHORT_STATEMENTS_TOKENS / free)
        share = max(STATEMENTS_SHARE, short_share)
        chosen = self._fitting_items((), statements, max_tokens, share)
        used_share = (self._size(chosen, (), ()) - frame_tokens) / free
        files_share = max(FILES_SHARE, min(MAX_SHORT_SHARE, SHORT_FILES_TOKENS / free))
        share = min(1.0, max(STATE_SHARE, used_share + files_share))
        return [*chosen, *self._fitting_items(chosen, files, max_tokens, share)]

    def _fitting_items(
        self, beside: State, items: State, max_tokens: int, share: float
    ) -> list[Item]:
        """The first items that fit a share of the summary together with the items `beside`, and
        further ones that fit after the first one that does not."""
        frame_tokens = self._size((), (), ())
        limit = frame_tokens + int((max_tokens - frame_tokens) * share)
        first = _largest_fitting(
            len(items), lambda n: self._size([*beside, *items[:n]], (), ()) <= limit
        )
        chosen = list(items[:first])
        for item in items[first + 1 : first + 1 + max(0, MAX_ITEMS_TRIED - first)]:
            if self._size([*beside, *chosen, item], (), ()) <= limit:
                chosen.append(item)
        return chosen

    def _lines_beside(self, state: State, max_tokens: int) -> list[Line]:
        """The ranked lines that the state block does not quote.

        In a short summary with decisions or facts, only those that can be understood alone.
        """
        quoted = {text for item in state for text in item.lines}
        quoted.update(text for item in self.state for text in item.replaced)
        decided = "\n".join([item.text for item in state if item.heading == DECISIONS])
        lines = [
            line for line in self.ranked if line.text not in quoted and line.text not in decided
        ]
        has_settled = any(item.heading in SETTLED_HEADINGS for item in state)
        if max_tokens >= SHORT_SUMMARY or not has_settled:
            return lines
        return [
            line
            for line in lines
            if not line.is_prose
            or _is_clear(line, _FIGURE_OR_NAME.findall(line.text))
            or _request_words_in(self.request_pattern, line)
        ]

    def _fitting_names(
        self,
        state: State,
        chosen: Sequence[Line],
        names: Sequence[Name],
        max_tokens: int,
    ) -> int:
        """How many of the names fit beside the state block and the chosen lines.

        These are counted only once, because they may be long. The sum of both counts is nearly the
        size of the whole message; names are removed until the whole message fits.
        """
        free = max_tokens - self._size(state, chosen, ()) + self._size((), (), ())
        number = _largest_fitting(len(names), lambda n: self._size((), (), names[:n]) <= free)
        while number and self.count(self._write(state, chosen, names[:number])) > max_tokens:
            number -= 1 + number // 16
        return number

    def _choose_lines(
        self, state: State, ranked: Sequence[Line], names: Sequence[Name], max_tokens: int
    ) -> list[Line]:
        """The lines that fit beside the state block and the names, the first ones of `ranked`."""
        fitting = _largest_within(
            len(ranked), max_tokens, lambda n: self._size(state, ranked[:n], names)
        )
        chosen = list(ranked[:fitting])
        tried = max(0, MAX_LINES_TRIED - fitting)  # after many lines, one more adds little
        for line in ranked[fitting + 1 : fitting + 1 + tried]:
            if self._size(state, [*chosen, line], names) <= max_tokens:
                chosen.append(line)
        return chosen

    def _smallest_message(self) -> Message:
        """The smallest possible summary: the shortest line, or the first name of the index."""
        shortest = min(self.source.lines, key=lambda line: len(line.text) + len(line.speaker))
        candidates = [self._write((), [shortest], ())]
        if self.names:
            candidates.append(self._write((), (), self.names[:1]))
        return min(candidates, key=self.count)

    def _size(self, state: State, lines: Sequence[Line], names: Sequence[Name]) -> int:
        return self.count(self._write(state, lines, names))

    def _write(self, state: State, lines: Sequence[Line], names: Sequence[Name]) -> Message:
        """The summary in Markdown: the state block, a list for each speaker, and a paragraph for
        each kind of name."""
        parts = [HEADER, *write_state(state)]
        speaker = ""
        for line in sorted(lines, key=lambda line: line.number):
            if line.speaker != speaker:
                speaker = line.speaker
                parts.append(f"{speaker}:")
            parts[-1] += f"\n{BULLET}{line.text}"
        if names:
            parts.extend(self._write_index(state, lines, names))
        parts.append(END)
        return Message("user", (Text("\n\n".join(parts)),))

    def _write_index(
        self, state: State, lines: Sequence[Line], names: Sequence[Name]
    ) -> Iterator[str]:
        """A paragraph for each kind of name, with the number of names that it leaves out."""
        mentioned = Counter(kind for kind, _ in _mentioned(state, lines))
        for kind in NAME_KINDS:
            listed = [name for name_kind, name in names if name_kind == kind]
            omitted = self.source.totals.get(kind, 0) - len(listed) - mentioned[kind]
            more = [MORE.format(omitted)] if omitted > 0 else []
            if listed:
                yield f"{LABELS[kind]}: {', '.join([*listed, *more])}"

    def _short_index_names(self, max_tokens: int) -> list[Name]:
        """The names for a short index: those that people, models or calls mention.

        If calls run commands or search files, later calls also need names that tools printed.
        Otherwise decisions and facts are more useful in a very short summary than a list of names.
        """
        if any(use.command or "pattern" in use.arguments for use in self.source.uses):
            return self.names
        has_settled = any(item.heading in SETTLED_HEADINGS for item in self.state)
        if max_tokens < SHORT_SUMMARY and has_settled:
            return []
        mentions = self.source.mentions
        return [name for name in self.names if mentions[name].total > mentions[name].result]

    def _unmentioned_names(
        self, names: Sequence[Name], state: State, chosen: Sequence[Line]
    ) -> list[Name]:
        """The names that the state block and the chosen lines do not contain."""
        text = self._write(state, chosen, ()).text
        mentioned = _mentioned(state, chosen)
        return [name for name in names if name not in mentioned and name[1] not in text]


def extract_summary(rows: Sequence[Row], max_tokens: int, count: Count) -> Message | None:
    """The summary of some rows in at most `max_tokens`, as a user message; `None` if none fits."""
    return Extract(rows, count).within(max_tokens)


def index_names(rows: Sequence[Row]) -> tuple[list[Name], dict[str, int]]:
    """The names that an index of rows may list, the most probably needed first, and how many names
    of each kind there are."""
    source = read_source(rows)
    values = {
        name: probability_needed(name, mentions, source.rows)
        for name, mentions in source.mentions.items()
    }
    return _index_names(source, values, beside_model=True)[:MAX_ADDED_NAMES], source.totals


def describe_state(rows: Sequence[Row]) -> str:
    """The whole state block of some rows; empty if it has no items."""
    return "\n\n".join(write_state(read_state(read_source(rows))))


def write_state(state: State) -> Iterator[str]:
    """A paragraph for each section of the state block."""
    sections: dict[str, list[str]] = {}
    for item in sorted(state, key=lambda item: item.order):
        sections.setdefault(item.heading, []).append(f"{BULLET}{item.text}")
    for heading, items in sections.items():
        yield "\n".join([f"{heading}:", *items])


def rank_lines(
    source: Source, name_values: dict[Name, float], request_pattern: re.Pattern[str] | None = None
) -> list[Line]:
    """All lines that add something, the most useful first.

    Each line is judged by what the lines before it do not contain. `request_pattern` matches the
    words of the current request, which stays beside the summary.
    """
    lines = _candidates(source)
    units = _read_units(lines, source.mentions, name_values, request_pattern)
    costs = [
        _cost(line, source.rows) if is_clear else _cost(line, source.rows) / UNCLEAR_FACTOR
        for line, is_clear in zip(lines, units.is_clear, strict=True)
    ]
    return [lines[number] for number in _greedy_cover(units, costs)]


class _Units(Struct):
    """What lines contain that counts once: names, words, figures and words of the request.

    - `values`: the value of each unit
    - `of_lines`: the numbers of the units of each line
    - `is_clear`: whether each line can be understood alone
    """

    values: list[float]
    of_lines: list[list[int]]
    is_clear: list[bool]


def _read_units(
    lines: Sequence[Line],
    mentions: dict[Name, Mentions],
    name_values: dict[Name, float],
    request_pattern: re.Pattern[str] | None,
) -> _Units:
    """The units of lines with their values. Words count only in prose, and rare ones count more."""
    words = [_longer_words(line.text) if line.is_prose else () for line in lines]
    spread = Counter(chain.from_iterable(words))
    total = sum(line.is_prose for line in lines)
    word_values = {
        word: WORD_VALUE * log(1 + total / count) for word, count in spread.items() if count > 1
    }
    unique_word_value = WORD_VALUE * log(1 + total)
    number_of: dict[object, int] = {}
    values: list[float] = []
    of_lines: list[list[int]] = []
    is_clear: list[bool] = []

    def add(unit: object, value: float) -> int:
        number = number_of[unit] = len(values)
        values.append(value)
        return number

    for line, line_words in zip(lines, words, strict=True):
        units: list[int] = []
        for name in dict.fromkeys(line.names):
            value, number = name_values[name], number_of.get(name)
            units.append(add(name, value * (1 - LAST_MENTION_SHARE)) if number is None else number)
            if mentions[name].last_line == line.number:  # a unit that no other line has
                units.append(len(values))
                values.append(value * LAST_MENTION_SHARE)
        for word in line_words:
            number = number_of.get(word)
            if number is None:
                number = add(word, word_values.get(word, unique_word_value))
            units.append(number)
        figures: Collection[str] = ()
        if line.is_prose:
            figures = dict.fromkeys(_FIGURE_OR_NAME.findall(line.text))
            for figure in figures:
                number = number_of.get(unit := ("figure", figure))
                units.append(add(unit, FIGURE_VALUE) if number is None else number)
        request_words = _request_words_in(request_pattern, line)
        for word in request_words:
            number = number_of.get(unit := ("request", word))
            units.append(add(unit, REQUEST_WORD_VALUE) if number is None else number)
        is_clear.append(not line.is_prose or bool(request_words) or _is_clear(line, figures))
        of_lines.append(units)
    return _Units(values, of_lines, is_clear)


def _greedy_cover(units: _Units, costs: Sequence[float]) -> list[int]:
    """The numbers of the lines, each time the one whose new units have the highest value for its
    cost; lines without new units are left out."""
    values, of_lines = units.values, units.of_lines
    is_covered = bytearray(len(values))

    def gain(number: int) -> float:
        # Covered units stay covered, so they need not be checked again.
        of_lines[number] = new_units = [unit for unit in of_lines[number] if not is_covered[unit]]
        return sum([values[unit] for unit in new_units]) / costs[number]

    heap = [(-gain(number), number) for number in range(len(of_lines))]
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
        for unit in of_lines[number]:
            is_covered[unit] = 1
    return chosen


def _in_short_form(item: Item) -> Item:
    """The item with its short text, if it has one."""
    return structs.replace(item, text=item.short or item.text)


def _is_changed_file(item: Item) -> bool:
    return item.heading == FILES and "\n  changed" in item.text


def _is_error_in(error: Item, item: Item) -> bool:
    """Whether an item quotes an error, so that the error need not be listed itself."""
    return error.heading == ERRORS and error.text in item.text


def _order_factors(items: Sequence[Item]) -> dict[int, float]:
    """By the `id()` of each settled item, a factor that is larger at the start of its section."""
    factors: dict[int, float] = {}
    for heading in SETTLED_HEADINGS:
        section = [item for item in items if item.heading == heading]
        for place, item in enumerate(section):
            factors[id(item)] = 1 + FIRST_ITEM_BONUS * (0.5 - place / len(section))
    return factors


def _is_repeated(error: Item, items: State) -> bool:
    """Whether another item contains what the assistant said about an error."""
    text = error.short or error.text
    return any(text in item.text for item in items if item.heading != ERRORS)


def _needed_rank(item: Item) -> int:
    """The order in which items get into a short summary: task and errors first, decisions last."""
    if item.heading in (GOAL, REQUEST, NEXT, LAST, ERRORS):
        return 0
    return 2 if item.heading == DECISIONS else 1


def _competes(item: Item) -> bool:
    """Whether an item competes with sentences for a short summary.

    A fact that changed does not, because the goal may have the old one. Nor does an open question.
    """
    has_answer = item.heading == DECISIONS and USER_LABEL in item.text
    if has_answer and is_pending(_informative_part(item)):
        return False
    return item.heading != FACTS and (item.heading in SETTLED_HEADINGS or item.is_doubtful)


def _proposal_rows(turns: Sequence[Turn]) -> set[int]:
    """The rows of the assistant's turns that end with a question which the user answered.

    Their proposals are settled, and a decision says how.
    """
    return {
        row
        for (row, speaker, sentences), (_, next_speaker, _) in pairwise(turns)
        if speaker == "assistant"
        and next_speaker == "user"
        and any(map(is_question, sentences[-1:]))
    }


def _item_factor(item: Item) -> float:
    """How much an item counts when it competes for a short summary."""
    factor = ITEM_FACTORS[item.heading]
    if "\n  Later: " in item.text:
        return factor * STALE_FACTOR
    is_negative = item.heading == FINDINGS and is_reversal(item.text)
    return factor * PARTLY_STALE_FACTOR if CHANGED_LATER in item.text or is_negative else factor


def _candidate(item: Item, factor: float) -> Candidate:
    """An item as a candidate for `choose_candidates`."""
    is_sentence = item.heading == FURTHER
    return Candidate(
        item.text,
        factor,
        item.order[1],
        _informative_part(item),
        own_value=0.0 if is_sentence else OWN_VALUE,
        # Lines of results have this factor.
        needs_new_figure=is_sentence and factor == SENTENCE_FACTORS["tool"],
    )


def _informative_part(item: Item) -> str:
    """The user's answer of a decision, unless it is just "yes"; of other items the whole text."""
    answer = item.text.rpartition(f"\n  {USER_LABEL}")[2]
    return answer if len(content_words(answer)) > 1 else item.text


def _is_statement(line: Line) -> bool:
    """Whether a sentence states something that can be understood alone."""
    text = line.text
    if is_question(text) or is_narration(text) or text.count('"') % 2 or text.endswith(":"):
        return False
    is_short = len(text) < SHORT_SENTENCE and max(text) < FIRST_WIDE_MARK
    if is_short or refers_back(text) or is_supposed(text):
        return False
    return any(char.isdigit() for char in text) or _ANNOUNCES.match(text) is None


def _request_pattern(turns: Sequence[Turn]) -> re.Pattern[str] | None:
    """A pattern of the content words of the last typed text."""
    requests = [sentences for _, speaker, sentences in turns if speaker == "user"]
    text = " ".join(requests[-1]) if requests else ""
    words = {word for word in _WORD.findall(text.lower()) if word not in STOP_WORDS}
    return re.compile("|".join(map(re.escape, sorted(words)))) if words else None


def _request_words_in(request_pattern: re.Pattern[str] | None, line: Line) -> Collection[str]:
    """The words of the request in a line and its label."""
    if request_pattern is None:
        return ()
    return dict.fromkeys(request_pattern.findall(f"{line.speaker} {line.text}".lower()))


def _candidates(source: Source) -> list[Line]:
    """The lines of prose, and the last lines of each name; newest first."""
    lines_read: Counter[Name] = Counter()
    candidates: list[Line] = []
    for line in reversed(source.lines):
        is_recent = False
        for name in line.names:
            lines_read[name] += 1
            is_recent = is_recent or lines_read[name] <= LINES_PER_NAME
        if is_recent or line.is_prose:
            candidates.append(line)
    return candidates


def _cost(line: Line, rows: int) -> float:
    """The tokens of a line, divided by how much its speaker and its age count."""
    heading_chars = 0 if line.is_prose else len(line.speaker) * HEADING_SHARE
    tokens = (len(line.text) + heading_chars) / CHARS_PER_TOKEN + LINE_TOKENS
    factor = SPEAKER_FACTORS.get(line.speaker.partition(" ")[0], 1.0)
    if line.is_long:
        factor = min(1.0, factor)
    age = (rows - line.row) / max(1, rows)
    return tokens / (factor * (1 - AGE_PENALTY * age))


def _is_clear(line: Line, figures: Collection[str]) -> bool:
    """Whether a sentence can probably be understood alone: it has a name or a figure, it is not
    very short, and it does not begin with a pronoun."""
    is_short = len(line.text) < SHORT_SENTENCE and max(line.text) < FIRST_WIDE_MARK
    return bool(line.names or figures) and not is_short and not refers_back(line.text)


def _longer_words(text: str) -> Collection[str]:
    """The longer words of a text, each once, in their order."""
    return dict.fromkeys([word for word in text.lower().split() if len(word) > 3])


def _index_names(
    source: Source, values: dict[Name, float], *, beside_model: bool = False
) -> list[Name]:
    """The names that an index may list, the most probably needed first.

    An index beside a model's sentences also lists figures, and names that differ from many others
    in their digits alone. Beside an extract, both are mostly series that a tool has printed.
    """
    shape_of: dict[Name, str] = {}  # of names that only results mention; digits become 0
    if not beside_model:
        for name, mentions in source.mentions.items():
            if mentions.total == mentions.result:
                shape_of[name] = _DIGITS.sub("0", name[1])
    shapes = Counter(shape for name, shape in shape_of.items() if shape != name[1])

    def is_listed(name: Name, mentions: Mentions) -> bool:
        if values[name] <= 0:
            return False
        is_figure = name[0] == "number"
        if is_figure and not (beside_model and mentions.total > mentions.result):
            return False
        if values[name] < MIN_LISTED_VALUE and not mentions.user and not mentions.assistant:
            return False
        if not mentions.address and _ALTERNATIVES.fullmatch(name[1]):
            return False
        return shapes[shape_of.get(name, "")] <= MAX_SERIES_NAMES

    def score(name: Name) -> float:
        kind, text = name
        return values[name] * KIND_FACTORS[kind] / (len(text) + 12) ** 0.5

    names = [name for name, mentions in source.mentions.items() if is_listed(name, mentions)]
    names.sort(key=lambda name: -score(name))
    return names[:MAX_INDEX_NAMES]


def _mentioned(state: State, lines: Sequence[Line]) -> Collection[Name]:
    """The names in the items and in the lines."""
    names = {name for line in lines for name in line.names}
    names.update(name for item in state for name in item.names)
    return names


def _largest_within(limit: int, max_tokens: int, size: Callable[[int], int]) -> int:
    """The largest number up to `limit` whose size is at most `max_tokens`; 0 always is.

    A large number is only approximated, to 99 % of `max_tokens`, by interpolation: each call of
    `size` runs the tokenizer.
    """
    if limit <= FEW_LINES or size(FEW_LINES) > max_tokens:
        return _largest_fitting(min(limit, FEW_LINES), lambda n: size(n) <= max_tokens)
    low, high = FEW_LINES, limit + 1  # `low` fits, `high` does not
    base_tokens, low_tokens = size(0), size(FEW_LINES)
    while high - low > 1 and low_tokens < max_tokens * 0.99:
        tokens_each = max(0.1, (low_tokens - base_tokens) / low)
        guess = low + int((max_tokens - low_tokens) / tokens_each)
        guess = max(low + 1, min(high - 1, guess))
        guess_tokens = size(guess)
        if guess_tokens <= max_tokens:
            low, low_tokens = guess, guess_tokens
            continue
        # The guess was too large. Interpolate back from it, and if that fails too, try the middle.
        high = guess
        guess -= int((guess_tokens - max_tokens) / tokens_each)
        guess = max(low + 1, min(high - 1, guess))
        guess_tokens = size(guess) if guess < high else max_tokens + 1
        if guess_tokens <= max_tokens:
            low, low_tokens = guess, guess_tokens
            continue
        high = guess
        middle = (low + high) // 2
        if middle > low and (middle_tokens := size(middle)) <= max_tokens:
            low, low_tokens = middle, middle_tokens
    return low


def _largest_fitting(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `limit` that fits; 0 always fits.

    Doubles first, so that no trial is much larger than the result.
    """
    step = 1
    while step < limit and fits(step):
        step *= 2
    low, high = step // 2, min(step, limit)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
