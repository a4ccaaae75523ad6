"""Choose the texts of a short summary: those that the current request needs.

A summary of a few hundred tokens cannot have every decision and fact. `Focus` measures how relevant
a text is for the current request. `choose_candidates` chooses among decisions, facts and sentences.
The score of a text depends on its relevance, its kind, its age, and the figures and rare words that
no text chosen before it has. The score is divided by its length.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Sequence, Set
from heapq import heapify, heappop, heappush
from math import log

from msgspec import Struct

from .facts import content_words, figures_in
from .source import PEOPLE, ToolUse, Turn

CHARS_PER_TOKEN = 3.6
ITEM_TOKENS = 5.0
"""The estimated cost of a text in a summary: its characters, and its bullet."""

AGE_PENALTY = 0.5
"""The oldest text loses this share of its score."""

RELEVANCE_BONUS = 4.0
"""A text with the full relevance has its score multiplied by one more than this."""

WORD_VALUE = 0.4
"""The value of the rarest word. A figure has the value 1."""

MIN_VALUE = 0.9
"""A text whose new figures and words have a lower value is left out: one figure, or three words."""

MIN_OWN_VALUE = 0.3
"""The own value of a decision or a rule counts only if its new words have this value: one word."""

MAX_MISSED = 30
"""Stop after this many texts that do not fit."""

MAX_CALL_CHARS = 400
"""How many characters of a call are read for the words of its exchange."""

LAST_REQUEST_WEIGHT, LAST_REPLY_WEIGHT, REQUEST_BEFORE_WEIGHT = 1.0, 0.5, 0.6
"""The weights of the words of the user's last turn, of the assistant's turn before it, and of the
user's turn before that. The last turn alone may be only a short answer such as "yes"."""

CLEAR_REQUEST_WORDS, EARLIER_WEIGHT = 6, 0.3
"""If the last request has more words than `CLEAR_REQUEST_WORDS`, the weights of the turns before it
are multiplied by `EARLIER_WEIGHT`: the request says itself what it is about."""

EXCHANGE_WEIGHT = 0.3
"""The weight of words that are not in a sentence, but in its exchange: in the user's turn or in the
calls. All of them together count at most this much."""

STEM_CHARS = 6
"""Words with the same first letters count as one: `arrive` and `arrived`."""

VAGUE_WORDS = """
    see look open next far one point thing good great tell know think ask say write draft start
    first last too same okay right fine already today mach schreib sag gut erst
    bien fais alors ahora vale bueno
"""
"""Words of a request that do not tell what it is about."""

FULL_RELEVANCE_WORDS = 4
"""A sentence with this many of the rarest words of the request has the full relevance."""


class Focus:
    """How much the current request needs a sentence, by the rare words that they share.

    A sentence is also relevant if its exchange is: "It arrives at noon." answers a question about
    the loaner if the call before it was `order_loaner`.
    """

    def __init__(
        self, turns: Sequence[Turn], uses: Sequence[ToolUse], following: Sequence[Turn] = ()
    ) -> None:
        spoken = [turn for turn in (*turns, *following) if turn.speaker in PEOPLE]
        words = [_stems(" ".join(sentences)) for _, _, sentences in spoken]
        self.turns = len(spoken)
        self.spread = Counter(word for turn_words in words for word in turn_words)
        self._request_words: set[str] = set()
        self.query = self._read_query(spoken, words)
        self._exchange_rows: list[int] = []
        self._exchange_words: list[set[str]] = []
        for row, speaker, sentences in turns:
            if speaker == "user":
                self._exchange_rows.append(row)
                self._exchange_words.append(_stems(" ".join(sentences)))
        for use in uses:
            exchange = bisect_right(self._exchange_rows, use.row) - 1
            if exchange >= 0:
                text = " ".join((use.name.replace("_", " "), *use.arguments.values()))
                self._exchange_words[exchange] |= _stems(text[:MAX_CALL_CHARS])
        weights = [weight * self.rarity(word) for word, weight in self.query.items()]
        self._full_weight = sum(sorted(weights, reverse=True)[:FULL_RELEVANCE_WORDS]) or 1.0

    def rarity(self, word: str) -> float:
        """Between 0 and 1: the fewer turns have a word, the higher."""
        return log(1 + self.turns / (1 + self.spread[word])) / log(1 + max(1, self.turns))

    def relevance(self, row: int, text: str) -> float:
        """Between 0 and 1: how much the current request needs a sentence of this row."""
        words = _stems(text)
        exchange = bisect_right(self._exchange_rows, row) - 1
        if exchange == len(self._exchange_rows) - 1:
            words &= self._request_words  # it is part of the reply whose words are in the query
        exchange_words = self._exchange_words[exchange] if exchange >= 0 else set[str]()
        exchange_share = min(1.0, self._weight(exchange_words - words))
        return min(1.0, self._weight(words) + EXCHANGE_WEIGHT * exchange_share)

    def _weight(self, words: Collection[str]) -> float:
        """The weight of the request's words among these, as a share of the full relevance."""
        weights = [self.query[word] * self.rarity(word) for word in words if word in self.query]
        return sum(weights) / self._full_weight

    def _read_query(self, spoken: Sequence[Turn], words: Sequence[Set[str]]) -> dict[str, float]:
        """The words of the last turns with their weights; `words` are those of each turn."""
        vague_words = _stems(VAGUE_WORDS)
        query: dict[str, float] = {}
        weights = iter((LAST_REQUEST_WEIGHT, REQUEST_BEFORE_WEIGHT))
        earlier_weight = 1.0
        reply_weight = LAST_REPLY_WEIGHT  # the assistant's turns may be several, between calls
        for turn, turn_words in zip(reversed(spoken), reversed(words), strict=True):
            weight = reply_weight
            if turn.speaker == "user":
                weight = next(weights, 0.0) * earlier_weight
                is_last = weight == LAST_REQUEST_WEIGHT
                if is_last and len(turn_words - vague_words) > CLEAR_REQUEST_WORDS:
                    earlier_weight = EARLIER_WEIGHT
                reply_weight = LAST_REPLY_WEIGHT * earlier_weight if is_last else 0.0
                if not weight:
                    break
                self._request_words |= turn_words
            for word in turn_words - vague_words if weight else ():
                query[word] = max(weight, query.get(word, 0.0))
        return query


def _stems(text: str) -> set[str]:
    return {word[:STEM_CHARS] for word in content_words(text)}


class Candidate(Struct, frozen=True):
    """A text that may be part of a summary.

    - `factor`: multiplies its score
    - `row`: the row that it comes from
    - `about`: the part of the text whose figures and words count
    - `own_value`: a value besides that of its figures and words, for a decision or a rule
    - `needs_new_figure`: it is left out unless it has a figure that no text chosen before it has
    """

    text: str
    factor: float
    row: int
    about: str
    own_value: float = 0.0
    needs_new_figure: bool = False


def choose_candidates(
    candidates: Sequence[Candidate],
    focus: Focus,
    rows: int,
    known: str,
    add_if_fits: Callable[[int], bool],
) -> list[int]:
    """The numbers of the chosen candidates, the highest score first.

    `rows` is the number of rows of the source, and `known` the text that the summary has already.
    `add_if_fits(number)` is called for each candidate in that order; it adds the candidate and
    returns `True`, or returns `False` if the candidate does not fit.
    """
    covered_units = _read_units(known, focus)
    units = [_read_units(candidate.about, focus) for candidate in candidates]
    factors = [
        candidate.factor
        * (1 - AGE_PENALTY * (rows - candidate.row) / max(1, rows))
        * (1 + RELEVANCE_BONUS * focus.relevance(candidate.row, candidate.about))
        / (len(candidate.text) / CHARS_PER_TOKEN + ITEM_TOKENS)
        for candidate in candidates
    ]
    chosen: list[int] = []
    missed = 0  # how many did not fit

    def gain(number: int) -> float:
        """The score of a candidate by its new figures and words; 0 if it adds too little."""
        candidate = candidates[number]
        new = [value for unit, value in units[number].items() if unit not in covered_units]
        value = sum(new)
        if candidate.needs_new_figure and max(new, default=0.0) < 1.0:
            return 0.0
        value += candidate.own_value if value >= MIN_OWN_VALUE else 0.0
        return factors[number] * value if value >= MIN_VALUE else 0.0

    heap = [(-gain(number), -candidates[number].row, number) for number in range(len(candidates))]
    heapify(heap)
    while heap:
        _, newest, number = heappop(heap)
        fresh = gain(number)
        if fresh <= 0:
            continue
        # Gains only shrink. So if this one still beats the next one's old gain, it is the best.
        if heap and -fresh > heap[0][0]:
            heappush(heap, (-fresh, newest, number))
            continue
        if add_if_fits(number):
            chosen.append(number)
            covered_units.update(units[number])
        elif (missed := missed + 1) > MAX_MISSED:
            break
    return chosen


def _read_units(text: str, focus: Focus) -> dict[str, float]:
    """The figures and words of a text with their values."""
    values = {word: WORD_VALUE * focus.rarity(word) for word in _stems(text)}
    values.update((figure.removeprefix("0"), 1.0) for figure in figures_in(text))
    return values
