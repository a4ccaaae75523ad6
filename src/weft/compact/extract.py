"""A summary without a model: the state of the task, the lines that will be needed, an index.

Every line is copied from the source, so nothing can be invented. A summary has up to three parts:

1. The state block (`state`): goal, rules, decisions, open tasks, files, commands, errors, facts.
2. Verbatim lines in their original order, as markdown lists under their speakers.
3. An index of names that are probably needed and that the parts above do not mention.

The lines are chosen by greedy weighted set cover: a name counts until a chosen line contains it, so
each further line adds something new. A name is worth the probability that it is needed again
(`need`); a part of that worth is only for the line of its last mention, because older lines may be
stale. In text by people and models, rare words count too. The worth of a line is divided by the
tokens that it costs. `docs/compaction-quality.md` has the figures.

A summary always has a line or a name; otherwise none is written.

`need` is a logistic model over how a name occurs so far: how often, how recently, and whether the
user, the assistant, a call's address (path, command, pattern), another argument or a result
mentions it. Its constants were fitted to recorded coding sessions: a name counts as needed if the
arguments of a later call contain it. `make eval` fits them on each transcript and measures them on
the others.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from math import exp, log
from typing import NamedTuple

from msgspec import structs

from weft.history import Row
from weft.lazy import lazy_pattern
from weft.model import Message, Text

from .batches import END, SHORT_MARK
from .entities import KINDS, Name
from .facts import (
    STOP_WORDS,
    content_words,
    figure_labels,
    has_value,
    refers_back,
    restates,
)
from .focus import Candidate, Focus, choose_candidates
from .outcomes import is_pending, is_reversal, is_supposed, mentioned_results
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
SPOKEN_SHARE, SPOKEN_MOST_SHARE, SPOKEN_ONLY_SHARE, SPOKEN_TOKENS = 0.5, 0.88, 0.94, 700
USED_SHARE, USED_TOKENS = 0.05, 60
INDEX_SHARE = 0.12
INDEX_LEAST = 40
INDEX_MOST_SHARE = 0.4
"""The usual share of the state block in a summary, the most for what was said (rules, decisions,
facts; in a short summary more, up to `SPOKEN_TOKENS` tokens, and nearly everything if there are no
files and commands), the least for files and commands, and the share of the index. Files, commands
and the index get more of a short summary, up to `USED_TOKENS` and `INDEX_LEAST` tokens."""

SHORT_ROOM = 1000
"""A smaller summary has the short forms of decisions, and no files that were only read."""

_SETTLED = frozenset({DECISIONS, FACTS, FINDINGS, DONE})

TALK_ROOM = 2200
"""In a smaller summary of a conversation with few files and commands, sentences of people and
models compete with decisions and facts for the room (`focus`)."""

NEEDED_SHARE = 0.9
"""The most that the goal, the rules, the errors and the current task get of such a summary."""

WHOLE_SHARE = 0.75
"""A state block of at most this share of such a summary is written as a whole."""

COMPETING = {FACTS: 2.5, DONE: 2.0, DECISIONS: 2.0, FINDINGS: 1.5, RULES: 2.5}
SPEAKING = {"user": 1.0, "assistant": 0.7, "tool": 0.75}
OWN_WORTH = 1.5
"""How much items of the state block and sentences count when they compete, and what an item is
worth beside its figures and words."""

STALE, PARTLY_STALE, SETTLED, PLAIN = 0.25, 0.5, 0.7, 0.5
"""The factor of a text that no longer holds; of one of which a part changed later; of a sentence
of the assistant before a question that the user answered; and of one without figures and names."""

LEAD = 0.6
"""How much more the first item of a section counts than the last one."""

PLAIN_RELEVANCE = 0.2
"""How relevant a sentence without figures and names must be."""

TALK_FILES = 3
"""How many changed files such a summary has."""

USER = "User: "
"""What marks the words of the user among the assistant's."""

SAME_LABELS, LABELS_LEAST = 0.6, 2
"""The share and the number of labels that the figures of two sentences have in common if the newer
one replaces the older one."""

COMPETING_MOST = 400
"""How many of the newest sentences compete."""

PRINTED_ROOM = 1500
"""In a conversation without commands, a smaller summary has no index of names that only
tools printed."""

LATEST = 0.45
"""The part of a name's worth that only the line of its last mention covers."""

MENTIONS_READ = 3
"""A line is a candidate if it is among the last lines of one of its names, this many for each."""

WORD_WORTH = 0.01
VALUE_WORTH = 0.06
ASKED_WORTH = 0.4
"""What a rare word, and a figure or a proper name, is worth in text by people and models, and what
a word of the current request is worth in any text."""

CHARS_A_TOKEN = 3.6
LINE_TOKENS = 3.0
UNCLEAR = 0.3
SHORT_LINE = 32
FIRST_WIDE = "\u3000"
HEADING_SHARE = 0.1
"""The estimated cost of a line: its characters, its bullet, and a share of the heading over it.
`UNCLEAR` is the factor of sentences that say little alone; a sentence of fewer characters than
`SHORT_LINE` does, except in scripts without spaces."""

SPEAKERS = {
    "user": 4.0,
    "system": 4.0,
    "assistant": 1.6,
    "summary": 6.0,
    "injected": 0.6,
    "call": 1.0,
    "tool": 0.8,
}
"""The factor of each speaker. A tool's output can be produced again, a user's request cannot. A
summary is only read where its messages are not available, or where somebody wrote it by hand."""

AGE = 0.5
"""How much less the oldest line counts than the newest."""

USEFUL = 3
"""A summary should have room for this many lines before more recent turns are kept."""

TRIED = 40
"""How many more lines to try, after the first one that does not fit."""

STATE_TRIED = 24
"""How many more items of the state block to try, after the first one that does not fit."""

FEW = 64
"""Up to this many lines are tried one by one."""

KIND_WORTH = {"path": 3.0, "error": 3.0, "symbol": 2.0, "hash": 1.5, "number": 1.0}
"""How much a name of each kind counts in an index."""

INDEX_MOST = 2000
ADDED_MOST = 400
"""How many names are considered for an index, and how many are added to a model's summary."""

SERIES_NAMES = 6
"""More names than this that differ only in digits are a series."""

LISTED_LEAST = 0.02
"""Names that are less probably needed than this are only listed if they are mentioned in prose."""


_ALTERNATIVES = lazy_pattern(r"[A-Za-z-]+(?:/[A-Za-z-]+){1,2}|\d+(?:/\d+)+|[0-9a-f]{12}/\d+")
"""Words or figures with slashes between them, and handles of `recall`: rarely a path, unless a call
uses it."""


_POLITE_ORDER = lazy_pattern(r"(?:please|bitte|veuillez|merci de|por favor)\b", re.IGNORECASE)
_ANNOUNCES = lazy_pattern(
    r"(?:\w+,? ){0,2}(?:i|ich|je|yo) (?:begin|start|look|check|search|read|go|try|write|will|suche"
    r"|schaue|prüfe|beginne|lese|schreibe|sehe|regarde|cherche|commence|vérifie|lis|prépare|voy)\b"
    r"|(?:miro|busco|empiezo|reviso|compruebo|voy a)\b",
    re.IGNORECASE,
)
"""The start of a sentence in which an assistant says what it does now."""

_DIGITS = lazy_pattern(r"\d+")
_WORD = lazy_pattern(r"[^\W\d_]{4,}")
_VALUE = lazy_pattern(
    r"[\dA-Z](?:(?<=\d)(?<![\w.]\d)\d*(?:[.,:]\d+)*|(?<=[a-z,] [A-Z])[\w&'-]*[a-z]\w*)"
)
"""A figure or a proper name. It starts with a set of characters, so that other places of a text are
skipped fast."""


class NeedModel(NamedTuple):
    """The weight of each feature."""

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
    """The features of a name among `rows` rows, in the order of `NeedModel`."""
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


def need(name: Name, mentions: Mentions, rows: int, model: NeedModel = NEED) -> float:
    """The probability that a later call needs this name."""
    values = features(name, mentions, rows)
    score = sum([weight * value for weight, value in zip(model, values, strict=True)])
    return 1 / (1 + exp(-score))


class Extract:
    """The possible summaries of some rows, for any amount of room.

    `beside` are rows that the model sees beside the summary: their names need no place in it.
    `after` are those of them that follow the rows.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        count: Callable[[Message], int],
        model: NeedModel = NEED,
        beside: Sequence[Row] = (),
        after: Sequence[Row] = (),
    ) -> None:
        self.rows = rows
        self.count = count
        self.source = read_source(rows)
        self.worth = {
            name: need(name, mentions, self.source.rows, model)
            for name, mentions in self.source.mentions.items()
        }
        if beside:
            present = names_of(beside, self.source.reader)
            self.worth.update((name, 0.0) for name in present if name in self.worth)
        self.names = _index_names(self.source, self.worth)
        self.following = read_turns(after)
        self.asked = _request_words(self.following)
        self._state: State | None = None
        self._ranked: list[Line] | None = None
        self._summaries: dict[int, Message | None] = {}

    @property
    def state(self) -> State:
        """The state block; it is read late, because sizes are often estimated without it."""
        if self._state is None:
            self._state = read_state(self.source, self.following)
        return self._state

    @property
    def min_tokens(self) -> int:
        """The tokens of the smallest summary."""
        return self.count(self._smallest())

    @property
    def useful_tokens(self) -> int:
        """The tokens of a useful summary, for which a recent turn may be given up."""
        return max(self.min_tokens, self._size((), self.ranked[:USEFUL], ()))

    @property
    def ranked(self) -> list[Line]:
        """All lines that add something, the most useful first."""
        if self._ranked is None:
            ranked = rank_lines(self.source, self.worth, self.asked)
            self._ranked = ranked or list(self.source.lines)
        return self._ranked

    def within(self, room: int) -> Message | None:
        """The summary as a user message; `None` if not even the smallest one fits.

        The state block and the index first get at most their shares. What they do not use goes to
        lines. At the end the index lists only names that the rest does not mention.
        """
        if room not in self._summaries:
            self._summaries[room] = self._within(room)
        return self._summaries[room]

    def _within(self, room: int) -> Message | None:
        smallest = self._smallest()
        if self.count(smallest) > room:
            return None
        bare = self._size((), (), ())
        state = self._choose_state(room)
        lines = self._lines_beside(state, room)
        is_talk = bool(state) and self._is_talk(room)
        if is_talk:
            lines = []  # the sentences that help are items of the state block
        free = room - bare
        share = bare + max(int(free * INDEX_SHARE), min(INDEX_LEAST, int(free * INDEX_MOST_SHARE)))
        listable = self.names if room >= PRINTED_ROOM else self._named(room)
        listable = [] if is_talk else listable
        names = listable[: self._fitting((), (), listable, share)]
        chosen = self._choose(state, lines, names, room)
        if not chosen and not state:
            chosen = self._choose((), lines, (), room)
        unlisted = self._unlisted(listable, state, chosen)
        listed = unlisted[: self._fitting(state, chosen, unlisted, room)]
        if len(listed) == len(unlisted):
            chosen = self._choose(state, lines, listed, room)
        if not chosen and not listed and not state:
            return smallest
        message = self._message(state, chosen, listed)
        while state and self.count(message) > room:  # the parts together may need a little more
            state = state[:-1]
            message = self._message(state, chosen, listed)
        return message if self.count(message) <= room else smallest

    def _is_talk(self, room: int) -> bool:
        """Whether a summary of this size is a short one of a conversation, and not of an agent's
        work with files and commands."""
        if room >= TALK_ROOM or not any(item.heading in _SETTLED for item in self.state):
            return False
        uses = (use for use in self.source.uses if use.command or use.path)
        turns = sum(speaker == "user" for _, speaker, _ in self.source.turns)
        return sum(1 for _ in uses) < turns

    def _choose_talk(self, room: int) -> State:
        """The state block of a short summary of a conversation: what any continuation needs, then
        decisions, facts and sentences by how much the current request needs them."""
        bare = self._size((), (), ())
        whole = [item for item in self.state if item.heading not in (FILES, COMMANDS)]
        items = [structs.replace(item, text=item.short or item.text) for item in whole]
        most = bare + int((room - bare) * NEEDED_SHARE)
        chosen: list[Item] = []
        others: list[tuple[Item, float]] = []
        places: dict[int, float] = {}
        for heading in _SETTLED:
            of = [item for item in items if item.heading == heading]
            places.update((id(item), place / len(of)) for place, item in enumerate(of))
        if room < SHORT_ROOM:
            whole = items
        whole = [
            structs.replace(item, text=item.short or item.text) if item.heading == ERRORS else item
            for item in whole
            if item.heading != ERRORS or not _is_repeated(item, whole)
        ]
        if self._size(whole, (), ()) <= bare + (room - bare) * WHOLE_SHARE:
            chosen, items = whole, []
        for item in sorted(items, key=_needed_rank):
            if _competes(item):
                lead = 1 + LEAD * (0.5 - places.get(id(item), 0.5))
                others.append((item, _competing_worth(item) * lead))
            elif not any(_about(item) in other.text for other in chosen):
                if self._size([*chosen, item], (), ()) <= most:
                    chosen = [
                        other
                        for other in chosen
                        if other.heading != ERRORS or other.text not in item.text
                    ]
                    chosen.append(item)
                else:
                    others.append((item, COMPETING.get(item.heading, 1.0)))
        focus = Focus(self.source.turns, self.source.uses, self.following)
        others += self._sentences(focus)
        files = [
            item for item in self.state if item.heading == FILES and "\n  changed" in item.text
        ]
        for item in files[:TALK_FILES]:
            if self._size([*chosen, item], (), ()) <= room:
                chosen.append(item)
        # The words of the request itself do not make a sentence redundant that has them.
        answers = [turn for turn in self.following if turn[1] != "user"]
        following = " ".join(chain.from_iterable(turn[2] for turn in answers))
        known = "\n".join([following, *(item.text for item in chosen)])
        candidates = [_candidate(item, worth) for item, worth in others]

        def fits(number: int) -> bool:
            if self._size([*chosen, others[number][0]], (), ()) > room:
                return False
            chosen.append(others[number][0])
            return True

        choose_candidates(candidates, focus, self.source.rows, known, fits)
        numbers = {line.text: line.number for line in self.source.lines}
        return sorted(chosen, key=lambda item: numbers.get(next(iter(item.lines), ""), 0))

    def _sentences(self, focus: Focus) -> list[tuple[Item, float]]:
        """The sentences of people and models that can be understood alone, and the lines of results
        that the assistant mentions, as items with their worth."""
        quoted = {text for item in self.state for text in (*item.lines, *item.replaced)}
        outdated = {text for item in self.state for text in item.outdated}
        lines = [line for line in self.source.lines if line.speaker in PEOPLE]
        newer: list[tuple[frozenset[str], str]] = []
        undone = self._undone()
        sentences: list[tuple[Item, float]] = []
        settled = _proposal_rows(self.source.turns)

        def add(row: int, text: str, line: str, worth: float) -> None:
            order = (HEADINGS.index(FURTHER), row)
            names = tuple(self.source.reader.read(text))
            sentences.append((Item(FURTHER, text, (line,), names, (), order), worth))

        for line in reversed(lines[-COMPETING_MOST:]):
            labels = figure_labels(line.text)
            same = max((len(labels & other) for other, _ in newer), default=0)
            is_replaced = same >= max(LABELS_LEAST, SAME_LABELS * len(labels)) or any(
                restates(other, line.text) for _, other in newer
            )
            if any(char.isdigit() for char in line.text) and not is_question(line.text):
                newer.append((labels, line.text))
            words = content_words(line.text)
            is_undone = any(line.row < row and not words.isdisjoint(of) for row, of in undone)
            is_stale = is_replaced or is_undone or any(text in line.text for text in outdated)
            if line.text in quoted or is_stale or not _is_statement(line):
                continue
            is_plain = not has_value(line.text)
            if is_plain and focus.relevance(line.row, line.text) < PLAIN_RELEVANCE:
                continue
            text = f"{USER}{line.text}" if line.speaker == "user" else line.text
            worth = SPEAKING[line.speaker] * (PLAIN if is_plain else 1.0)
            if line.speaker == "user":
                worth *= STALE if asks_for_work(line.text) else 1.0
            elif _POLITE_ORDER.match(line.text):
                worth *= STALE  # the user has probably done it
            else:
                worth *= SETTLED if line.row in settled else 1.0
            add(line.row, text, line.text, worth)
        for row, text in mentioned_results(self.source.turns, self.source.uses):
            if text not in quoted:
                add(row, text, text, SPEAKING["tool"])
        return sentences

    def _undone(self) -> list[tuple[int, set[str]]]:
        """What decisions that were undone are about: the row where that is said, and the words that
        this sentence shares with the decision."""
        rows = {line.text: line.row for line in self.source.lines}
        undone: list[tuple[int, set[str]]] = []
        for item in self.state:
            text, later, outcome = item.text.partition("\n  Later: ")
            if later and outcome in rows:
                undone.append((rows[outcome], content_words(text) & content_words(outcome)))
        return undone

    def _choose_state(self, room: int) -> State:
        """The state block for a summary of this size.

        What was said comes first. Files and commands get what that leaves of the usual share, or
        at least a small share of their own.
        """
        if self._is_talk(room):
            return self._choose_talk(room)
        bare = self._size((), (), ())
        spoken = [item for item in self.state if item.heading not in (FILES, COMMANDS)]
        used = [item for item in self.state if item.heading in (FILES, COMMANDS)]
        if room < SHORT_ROOM:
            spoken = [structs.replace(item, text=item.short or item.text) for item in spoken]
            used = [item for item in used if item.heading == COMMANDS or "\n  changed" in item.text]

        def fitting(start: State, items: State, share: float) -> State:
            most = bare + int((room - bare) * share)
            many = _most(len(items), lambda n: self._size([*start, *items[:n]], (), ()) <= most)
            chosen = list(items[:many])
            for item in items[many + 1 : many + 1 + max(0, STATE_TRIED - many)]:
                if self._size([*start, *chosen, item], (), ()) <= most:
                    chosen.append(item)
            return chosen

        most = SPOKEN_MOST_SHARE if used else SPOKEN_ONLY_SHARE
        most = min(most, SPOKEN_TOKENS / max(1, room - bare))
        chosen = fitting((), spoken, max(SPOKEN_SHARE, most))
        taken = (self._size(chosen, (), ()) - bare) / max(1, room - bare)
        min_tokens = min(INDEX_MOST_SHARE, USED_TOKENS / max(1, room - bare))
        share = min(1.0, max(STATE_SHARE, taken + max(USED_SHARE, min_tokens)))
        return [*chosen, *fitting(chosen, used, share)]

    def _lines_beside(self, state: State, room: int) -> list[Line]:
        """The ranked lines that the state block does not quote.

        In a short summary with decisions or facts, only those that can be understood alone.
        """
        quoted = {text for item in state for text in item.lines}
        quoted.update(text for item in self.state for text in item.replaced)
        decided = "\n".join([item.text for item in state if item.heading == DECISIONS])
        lines = [
            line for line in self.ranked if line.text not in quoted and line.text not in decided
        ]
        if room >= SHORT_ROOM or not any(item.heading in _SETTLED for item in state):
            return lines
        return [
            line
            for line in lines
            if not line.is_prose
            or _is_clear(line, _VALUE.findall(line.text))
            or _words_of(self.asked, line)
        ]

    def _fitting(
        self,
        state: State,
        chosen: Sequence[Line],
        names: Sequence[Name],
        room: int,
    ) -> int:
        """How many of the names fit beside the rest.

        The rest is counted once, because it may be long. The sum is nearly the size of the whole;
        at the end, names are removed until the whole fits.
        """
        free = room - self._size(state, chosen, ()) + self._size((), (), ())
        many = _most(len(names), lambda n: self._size((), (), names[:n]) <= free)
        while many and self.count(self._message(state, chosen, names[:many])) > room:
            many -= 1 + many // 16
        return many

    def _choose(
        self, state: State, ranked: Sequence[Line], names: Sequence[Name], room: int
    ) -> list[Line]:
        fitting = _most_within(len(ranked), room, lambda n: self._size(state, ranked[:n], names))
        chosen = list(ranked[:fitting])
        tried = max(0, TRIED - fitting)  # after many lines, one more adds little
        for line in ranked[fitting + 1 : fitting + 1 + tried]:
            if self._size(state, [*chosen, line], names) <= room:
                chosen.append(line)
        return chosen

    def _smallest(self) -> Message:
        shortest = min(self.source.lines, key=lambda line: len(line.text) + len(line.speaker))
        candidates = [self._message((), [shortest], ())]
        if self.names:
            candidates.append(self._message((), (), self.names[:1]))
        return min(candidates, key=self.count)

    def _size(self, state: State, lines: Sequence[Line], names: Sequence[Name]) -> int:
        return self.count(self._message(state, lines, names))

    def _message(self, state: State, lines: Sequence[Line], names: Sequence[Name]) -> Message:
        """Markdown: the state, a list for each speaker, and a paragraph for each kind of name."""
        parts = [HEADER, *write_state(state)]
        speaker = ""
        for line in sorted(lines, key=lambda line: line.number):
            if line.speaker != speaker:
                speaker = line.speaker
                parts.append(f"{speaker}:")
            parts[-1] += f"\n{BULLET}{line.text}"
        if names:
            parts.extend(self._index(state, lines, names))
        parts.append(END)
        return Message("user", (Text("\n\n".join(parts)),))

    def _index(self, state: State, lines: Sequence[Line], names: Sequence[Name]) -> Iterator[str]:
        covered = Counter(kind for kind, _ in _mentioned(state, lines))
        for kind in KINDS:
            listed = [name for of, name in names if of == kind]
            omitted = self.source.totals.get(kind, 0) - len(listed) - covered[kind]
            more = [MORE.format(omitted)] if omitted > 0 else []
            if listed:
                yield f"{LABELS[kind]}: {', '.join([*listed, *more])}"

    def _named(self, room: int) -> list[Name]:
        """The names for a short index: those that people, models or calls mention.

        Where calls run commands or search files, later calls also need names that tools printed.
        Elsewhere, decisions and facts say more than a list of names in a very short summary.
        """
        if any(use.command or "pattern" in use.arguments for use in self.source.uses):
            return self.names
        if room < SHORT_ROOM and any(item.heading in _SETTLED for item in self.state):
            return []
        mentions = self.source.mentions
        return [name for name in self.names if mentions[name].total > mentions[name].result]

    def _unlisted(self, names: Sequence[Name], state: State, chosen: Sequence[Line]) -> list[Name]:
        """The names for the index that the rest of the summary does not contain."""
        text = self._message(state, chosen, ()).text
        mentioned = _mentioned(state, chosen)
        return [name for name in names if name not in mentioned and name[1] not in text]


def extract_summary(
    rows: Sequence[Row], room: int, count: Callable[[Message], int]
) -> Message | None:
    """The summary of some rows within `room` tokens, as a user message; `None` if none fits."""
    return Extract(rows, count).within(room)


def index_names(rows: Sequence[Row]) -> tuple[list[Name], dict[str, int]]:
    """The names that an index of rows may list, the most probably needed first, and how many names
    of each kind there are."""
    source = read_source(rows)
    worth = {name: need(name, mentions, source.rows) for name, mentions in source.mentions.items()}
    return _index_names(source, worth, beside_model=True)[:ADDED_MOST], source.totals


def describe_state(rows: Sequence[Row]) -> str:
    """The whole state block of some rows; empty if there is nothing to say."""
    return "\n\n".join(write_state(read_state(read_source(rows))))


def write_state(state: State) -> Iterator[str]:
    """A paragraph for each section of the state block."""
    sections: dict[str, list[str]] = {}
    for item in sorted(state, key=lambda item: item.order):
        sections.setdefault(item.heading, []).append(f"{BULLET}{item.text}")
    for heading, items in sections.items():
        yield "\n".join([f"{heading}:", *items])


def rank_lines(
    source: Source, worth: dict[Name, float], asked: re.Pattern[str] | None = None
) -> list[Line]:
    """All lines that add something, the most useful first.

    Each is judged by what the lines before it do not cover. `asked` matches the words of the
    current request, which stays beside the summary.
    """
    lines = _candidates(source)
    words = [_words(line.text) if line.is_prose else () for line in lines]
    spread = Counter(chain.from_iterable(words))
    total = sum(line.is_prose for line in lines)
    word_values = {
        word: WORD_WORTH * log(1 + total / many) for word, many in spread.items() if many > 1
    }
    once = WORD_WORTH * log(1 + total)
    place: dict[object, int] = {}
    values: list[float] = []
    covers: list[list[int]] = []
    clear: list[bool] = []

    def add(item: object, value: float) -> int:
        at = place[item] = len(values)
        values.append(value)
        return at

    mentions = source.mentions
    for line, line_words in zip(lines, words, strict=True):
        covered: list[int] = []
        for name in dict.fromkeys(line.names):
            at = place.get(name)
            covered.append(add(name, worth[name] * (1 - LATEST)) if at is None else at)
            if mentions[name].last_line == line.number:  # of one line only
                covered.append(len(values))
                values.append(worth[name] * LATEST)
        for word in line_words:
            at = place.get(word)
            covered.append(add(word, word_values.get(word, once)) if at is None else at)
        figures: Collection[str] = ()
        if line.is_prose:
            figures = dict.fromkeys(_VALUE.findall(line.text))
            for value in figures:
                at = place.get(item := ("value", value))
                covered.append(add(item, VALUE_WORTH) if at is None else at)
        asked_words = _words_of(asked, line)
        for word in asked_words:
            at = place.get(item := ("asked", word))
            covered.append(add(item, ASKED_WORTH) if at is None else at)
        clear.append(not line.is_prose or bool(asked_words) or _is_clear(line, figures))
        covers.append(covered)
    is_covered = bytearray(len(values))
    costs = [
        _cost(line, source.rows) if is_clear else _cost(line, source.rows) / UNCLEAR
        for line, is_clear in zip(lines, clear, strict=True)
    ]

    def gain(number: int) -> float:
        # Covered names stay covered, so they need not be checked again.
        covers[number] = left = [at for at in covers[number] if not is_covered[at]]
        return sum([values[at] for at in left]) / costs[number]

    heap = [(-gain(number), number) for number in range(len(lines))]
    heapify(heap)
    ranked: list[Line] = []
    while heap:
        _, number = heappop(heap)
        fresh = -gain(number)
        if fresh == 0:
            continue
        # Gains only shrink as names are covered. So if the recomputed gain still beats the next
        # stale one, no other line is better.
        if heap and fresh > heap[0][0]:
            heappush(heap, (fresh, number))
            continue
        ranked.append(lines[number])
        for at in covers[number]:
            is_covered[at] = 1
    return ranked


def _is_repeated(error: Item, items: State) -> bool:
    """Whether a decision or the next step has what the assistant said about an error."""
    text = error.short or error.text
    return any(text in item.text for item in items if item.heading != ERRORS)


def _needed_rank(item: Item) -> int:
    """The order in which items get the room of a short summary: the task, what holds, the rules."""
    if item.heading in (GOAL, REQUEST, NEXT, LAST, ERRORS):
        return 0
    return 2 if item.heading == DECISIONS else 1


def _competes(item: Item) -> bool:
    """Whether an item competes with sentences for a short summary.

    A fact that changed does not, because the goal may have the old one, nor does an open question.
    """
    if item.heading == DECISIONS and USER in item.text and is_pending(_about(item)):
        return False
    return item.heading != FACTS and (item.heading in _SETTLED or item.is_doubtful)


def _proposal_rows(turns: Sequence[Turn]) -> set[int]:
    """The rows of the assistant's turns that end with a question which the user answered: what they
    propose is settled, and the decision says how."""
    return {
        turn[0]
        for turn, following in pairwise(turns)
        if turn[1] == "assistant" and following[1] == "user" and any(map(is_question, turn[2][-1:]))
    }


def _competing_worth(item: Item) -> float:
    """How much an item counts when it competes for a short summary."""
    worth = COMPETING[item.heading]
    if "\n  Later: " in item.text:
        return worth * STALE
    is_negative = item.heading == FINDINGS and is_reversal(item.text)
    return worth * PARTLY_STALE if CHANGED_LATER in item.text or is_negative else worth


def _candidate(item: Item, worth: float) -> Candidate:
    is_sentence = item.heading == FURTHER
    return Candidate(
        item.text,
        worth,
        item.order[1],
        _about(item),
        own=0.0 if is_sentence else OWN_WORTH,
        new_figure=is_sentence and worth == SPEAKING["tool"],
    )


def _about(item: Item) -> str:
    """The part of an item that informs: of a decision the answer, unless it is just "yes"."""
    answer = item.text.rpartition(f"\n  {USER}")[2]
    return answer if len(content_words(answer)) > 1 else item.text


def _is_statement(line: Line) -> bool:
    """Whether a sentence states something that can be understood alone."""
    text = line.text
    if is_question(text) or is_narration(text) or text.count('"') % 2 or text.endswith(":"):
        return False
    is_short = len(text) < SHORT_LINE and max(text) < FIRST_WIDE
    if is_short or refers_back(text) or is_supposed(text):
        return False
    return any(char.isdigit() for char in text) or _ANNOUNCES.match(text) is None


def _request_words(turns: Sequence[Turn]) -> re.Pattern[str] | None:
    """A pattern of the content words of the last typed text."""
    requests = [sentences for _, speaker, sentences in turns if speaker == "user"]
    text = " ".join(requests[-1]) if requests else ""
    words = {word for word in _WORD.findall(text.lower()) if word not in STOP_WORDS}
    return re.compile("|".join(map(re.escape, sorted(words)))) if words else None


def _words_of(asked: re.Pattern[str] | None, line: Line) -> Collection[str]:
    """The words of the request in a line and its label."""
    return (
        () if asked is None else dict.fromkeys(asked.findall(f"{line.speaker} {line.text}".lower()))
    )


def _candidates(source: Source) -> list[Line]:
    """The lines of prose, and the last lines of each name; newest first."""
    read: Counter[Name] = Counter()
    candidates: list[Line] = []
    for line in reversed(source.lines):
        is_new = False
        for name in line.names:
            read[name] += 1
            is_new = is_new or read[name] <= MENTIONS_READ
        if is_new or line.is_prose:
            candidates.append(line)
    return candidates


def _cost(line: Line, rows: int) -> float:
    """The tokens of a line, divided by how much its words count."""
    heading = 0 if line.is_prose else len(line.speaker) * HEADING_SHARE
    tokens = (len(line.text) + heading) / CHARS_A_TOKEN + LINE_TOKENS
    factor = SPEAKERS.get(line.speaker.partition(" ")[0], 1.0)
    if line.is_long:
        factor = min(1.0, factor)
    age = (rows - line.row) / max(1, rows)
    return tokens / (factor * (1 - AGE * age))


def _is_clear(line: Line, figures: Collection[str]) -> bool:
    """Whether a reader who does not know what came before probably understands a sentence.

    It has a name or a figure, it is not very short, and it does not begin with a pronoun.
    """
    is_short = len(line.text) < SHORT_LINE and max(line.text) < FIRST_WIDE
    return bool(line.names or figures) and not is_short and not refers_back(line.text)


def _words(text: str) -> Collection[str]:
    """The longer words of a text, each once, in their order."""
    return dict.fromkeys([word for word in text.lower().split() if len(word) > 3])


def _index_names(
    source: Source, worth: dict[Name, float], *, beside_model: bool = False
) -> list[Name]:
    """The names that an index may list, the most probably needed first.

    An index beside a model's sentences also lists figures, and names that differ from many others
    in their digits alone. Beside an extract, both are mostly series that a tool has printed.
    """
    printed: dict[Name, str] = {}
    if not beside_model:
        only_printed = (name for name, of in source.mentions.items() if of.total == of.result)
        printed = {name: _DIGITS.sub("0", name[1]) for name in only_printed}
    shapes = Counter(shape for name, shape in printed.items() if shape != name[1])
    names = [
        name
        for name, mentions in source.mentions.items()
        if worth[name] > 0
        and (name[0] != "number" or (beside_model and mentions.total > mentions.result))
        and (worth[name] >= LISTED_LEAST or mentions.user or mentions.assistant)
        and (mentions.address or not _ALTERNATIVES.fullmatch(name[1]))
        and shapes[printed.get(name, "")] <= SERIES_NAMES
    ]
    names.sort(key=lambda name: -worth[name] * KIND_WORTH[name[0]] / (len(name[1]) + 12) ** 0.5)
    return names[:INDEX_MOST]


def _mentioned(state: State, lines: Sequence[Line]) -> Collection[Name]:
    names = {name for line in lines for name in line.names}
    names.update(name for item in state for name in item.names)
    return names


def _most_within(limit: int, room: int, size: Callable[[int], int]) -> int:
    """The largest number up to `limit` whose size is within `room`; 0 always is.

    For many, it stops at 99 % of the room: each trial costs a pass of the tokenizer.
    """
    if limit <= FEW or size(FEW) > room:
        return _most(min(limit, FEW), lambda n: size(n) <= room)
    low, high, base, tokens = FEW, limit + 1, size(0), size(FEW)
    while high - low > 1 and tokens < room * 0.99:
        slope = max(0.1, (tokens - base) / low)
        trial = max(low + 1, min(high - 1, low + int((room - tokens) / slope)))
        trial_tokens = size(trial)
        if trial_tokens <= room:
            low, tokens = trial, trial_tokens
        else:
            high = trial
            overshoot = trial - int((trial_tokens - room) / slope)
            retry = max(low + 1, min(high - 1, overshoot))
            retry_tokens = size(retry) if retry < high else room + 1
            if retry_tokens <= room:
                low, tokens = retry, retry_tokens
            else:
                high = retry
                low_half = (low + high) // 2
                if low_half > low and (half := size(low_half)) <= room:
                    low, tokens = low_half, half
    return low


def _most(limit: int, fits: Callable[[int], bool]) -> int:
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
