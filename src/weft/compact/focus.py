"""Which texts of a conversation a short summary has: those that the current request needs.

A summary of a few hundred tokens cannot have every decision and fact. `Focus` compares the words of
a text with those of the current request and of the last exchange. `choose_candidates` takes
those that compete for the room: by the figures, identifiers and rare words that no text before
them has, by their age and their kind, and by that relevance, divided by their length.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Sequence, Set
from heapq import heapify, heappop, heappush
from math import log

from msgspec import Struct

from .facts import content_words, values_of
from .source import PEOPLE, ToolUse, Turn

CHARS_A_TOKEN = 3.6
ITEM_TOKENS = 5.0
"""The estimated cost of a text in a summary: its characters, and its bullet."""

OLDER = 0.5
NEEDED = 4.0
WORD_SHARE = 0.4
"""How much less the oldest text counts than the newest, how much more a text that the current
request needs, and what the rarest word is worth beside a figure."""

NEW_LEAST, OWN_LEAST = 0.9, 0.3
"""A text that adds less than that, about a figure or three words, is left out; a decision or a
rule, if it adds less than about one word."""

TRIED = 30
"""How many more texts to try that do not fit."""

CALL_MOST = 400
"""How many characters of a call are read for the words of its exchange."""

LAST_REQUEST, LAST_REPLY, REQUEST_BEFORE = 1.0, 0.5, 0.6
"""How much the words of the last turn of the user count, of the assistant's turn before it, and of
the turn of the user before that: a last turn may only be an answer."""

CLEAR_REQUEST, LESS = 6, 0.3
"""A request with more words than this says itself what it is about: the words of the turns before
it count less."""

EXCHANGE = 0.3
"""How much a word of the request counts that the exchange of a sentence has, and not the sentence
(the words of its calls and of what the user asked for), and the most that such words count."""

STEM = 6
"""Words with the same first letters count as one: `arrive` and `arrived`."""

VAGUE = frozenset(
    """
    see look open next far one point thing good great tell know think ask say write draft make start
    first last too same okay right fine already today now please look mach schreib sag gut erst
    bien fais alors ahora vale bueno
    """.split()  # noqa: SIM905
)
"""Words of a request that do not tell what it is about."""

BEST = 4
"""A sentence with this many of the rarest words of the request has the full relevance."""


class Focus:
    """How much the current request needs a sentence, by the rare words that they share.

    A sentence is also relevant if its exchange is: "It arrives at noon." answers a question about
    the loaner if the call before it was `order_loaner`.
    """

    def __init__(
        self, turns: Sequence[Turn], uses: Sequence[ToolUse], following: Sequence[Turn] = ()
    ) -> None:
        spoken = [turn for turn in (*turns, *following) if turn[1] in PEOPLE]
        words = [_stems(" ".join(sentences)) for _, _, sentences in spoken]
        self.turns = len(spoken)
        self.spread = Counter(word for of in words for word in of)
        self._asked: set[str] = set()
        self.query = self._read_query(spoken, words)
        self._exchange_rows: list[int] = []
        self._exchange_words: list[set[str]] = []
        for row, speaker, sentences in turns:
            if speaker == "user":
                self._exchange_rows.append(row)
                self._exchange_words.append(_stems(" ".join(sentences)))
        for use in uses:
            at = bisect_right(self._exchange_rows, use.row) - 1
            if at >= 0:
                text = " ".join((use.name.replace("_", " "), *use.arguments.values()))
                self._exchange_words[at] |= _stems(text[:CALL_MOST])
        best = sorted((self.query[w] * self.rarity(w) for w in self.query), reverse=True)[:BEST]
        self._full = sum(best) or 1.0

    def rarity(self, word: str) -> float:
        """Between 0 and 1: how few turns have a word."""
        return log(1 + self.turns / (1 + self.spread[word])) / log(1 + max(1, self.turns))

    def relevance(self, row: int, text: str) -> float:
        """Between 0 and 1: how much the current request needs a sentence of this row."""
        own = _stems(text)
        at = bisect_right(self._exchange_rows, row) - 1
        if at == len(self._exchange_rows) - 1:
            own &= self._asked  # it is part of the reply whose words are in the query
        around = self._exchange_words[at] if at >= 0 else set[str]()
        return min(1.0, self._weight(own) + min(EXCHANGE, EXCHANGE * self._weight(around - own)))

    def _weight(self, words: Collection[str]) -> float:
        """How much of the request some words are."""
        return sum(self.query[w] * self.rarity(w) for w in words if w in self.query) / self._full

    def _read_query(self, spoken: Sequence[Turn], words: Sequence[Set[str]]) -> dict[str, float]:
        """The words that matter now, with their weights."""
        query: dict[str, float] = {}
        weights = iter((LAST_REQUEST, REQUEST_BEFORE))
        before = 1.0
        reply_weight = LAST_REPLY  # the assistant's turns may be several, between calls
        for turn, of in zip(reversed(spoken), reversed(words), strict=True):
            weight = reply_weight
            if turn[1] == "user":
                weight = next(weights, 0.0) * before
                is_last = weight == LAST_REQUEST
                before = LESS if is_last and len(of - VAGUE) > CLEAR_REQUEST else before
                reply_weight = LAST_REPLY * before if is_last else 0.0
                if not weight:
                    break
                self._asked |= of
            for word in of - VAGUE if weight else ():
                query[word] = max(weight, query.get(word, 0.0))
        return query


def _stems(text: str) -> set[str]:
    return {word[:STEM] for word in content_words(text)}


class Candidate(Struct, frozen=True):
    """A text that may be part of a summary.

    - `base`: how much a text of its kind counts
    - `row`: where it comes from
    - `about`: what its information is counted from, without the words that a summary adds
    - `own`: what it is worth beside its information, because it is a decision or a rule
    - `new_figure`: it must have a figure that no text before it has
    """

    text: str
    base: float
    row: int
    about: str
    own: float = 0.0
    new_figure: bool = False


def choose_candidates(
    candidates: Sequence[Candidate],
    focus: Focus,
    rows: int,
    known: str,
    fits: Callable[[int], bool],
) -> list[int]:
    """The numbers of the chosen candidates, the most useful for their length first.

    `fits` is asked once for each candidate in that order, and takes it if there is room.

    A text is worth its figures, identifiers and rare words, as far as neither a text before it nor
    `known` has them; more, if it is recent, and much more, if the current request needs it.
    """
    covered = _information(known, focus)
    infos = [_information(one.about, focus) for one in candidates]
    factors = [
        one.base
        * (1 - OLDER * (rows - one.row) / max(1, rows))
        * (1 + NEEDED * focus.relevance(one.row, one.about))
        / (len(one.text) / CHARS_A_TOKEN + ITEM_TOKENS)
        for one in candidates
    ]
    chosen: list[int] = []
    missed = 0

    def gain(number: int) -> float:
        new = {unit: worth for unit, worth in infos[number].items() if unit not in covered}
        total = sum(new.values())
        if candidates[number].new_figure and max(new.values(), default=0.0) < 1.0:
            return 0.0
        total += candidates[number].own if total >= OWN_LEAST else 0.0
        return factors[number] * total if total >= NEW_LEAST else 0.0

    heap = [(-gain(number), -candidates[number].row, number) for number in range(len(candidates))]
    heapify(heap)
    while heap:
        _, newest, number = heappop(heap)
        fresh = gain(number)
        if fresh <= 0:
            continue
        # Gains only shrink. So if this one still beats the next stale one, no other is better.
        if heap and -fresh > heap[0][0]:
            heappush(heap, (-fresh, newest, number))
            continue
        if fits(number):
            chosen.append(number)
            covered.update(infos[number])
        elif (missed := missed + 1) > TRIED:
            break
    return chosen


def _information(text: str, focus: Focus) -> dict[str, float]:
    """The figures, identifiers and rare words of a text with their worth."""
    units = {word: WORD_SHARE * focus.rarity(word) for word in _stems(text)}
    units.update((value.removeprefix("0"), 1.0) for value in values_of(text))
    return units
