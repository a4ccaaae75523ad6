"""Choose the texts of a short summary: those that the current request needs.

A summary of a few hundred tokens cannot have every decision and fact. `Focus` says how relevant a
text is for the current request. `choose_candidates` chooses among decisions, facts and sentences. A
text scores by its relevance, its kind, its age, and the figures and rare words that no text chosen
before it has; the score is divided by its length.
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
"""The own value of a decision or a rule counts only from this value of its new words on: one
word."""

MAX_MISSED = 30
"""Stop after this many texts that do not fit."""

MAX_CALL_CHARS = 400
"""How many characters of a call are read for the words of its exchange."""

LAST_REQUEST, LAST_REPLY, REQUEST_BEFORE = 1.0, 0.5, 0.6
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

VAGUE_WORDS = frozenset(
    """
    see look open next far one point thing good great tell know think ask say write draft make start
    first last too same okay right fine already today now please mach schreib sag gut erst
    bien fais alors ahora vale bueno
    """.split()  # noqa: SIM905
)
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
                self._exchange_words[at] |= _stems(text[:MAX_CALL_CHARS])
        best = sorted((self.query[w] * self.rarity(w) for w in self.query), reverse=True)[
            :FULL_RELEVANCE_WORDS
        ]
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
        exchange_share = min(1.0, self._weight(around - own))
        return min(1.0, self._weight(own) + EXCHANGE_WEIGHT * exchange_share)

    def _weight(self, words: Collection[str]) -> float:
        """The weight of the request's words among these, as a share of the full relevance."""
        return sum(self.query[w] * self.rarity(w) for w in words if w in self.query) / self._full

    def _read_query(self, spoken: Sequence[Turn], words: Sequence[Set[str]]) -> dict[str, float]:
        """The words that matter now, with their weights."""
        query: dict[str, float] = {}
        weights = iter((LAST_REQUEST, REQUEST_BEFORE))
        earlier_weight = 1.0
        reply_weight = LAST_REPLY  # the assistant's turns may be several, between calls
        for turn, turn_words in zip(reversed(spoken), reversed(words), strict=True):
            weight = reply_weight
            if turn.speaker == "user":
                weight = next(weights, 0.0) * earlier_weight
                is_last = weight == LAST_REQUEST
                if is_last and len(turn_words - VAGUE_WORDS) > CLEAR_REQUEST_WORDS:
                    earlier_weight = EARLIER_WEIGHT
                reply_weight = LAST_REPLY * earlier_weight if is_last else 0.0
                if not weight:
                    break
                self._asked |= turn_words
            for word in turn_words - VAGUE_WORDS if weight else ():
                query[word] = max(weight, query.get(word, 0.0))
        return query


def _stems(text: str) -> set[str]:
    return {word[:STEM_CHARS] for word in content_words(text)}


class Candidate(Struct, frozen=True):
    """A text that may be part of a summary.

    - `factor`: the factor of its kind
    - `row`: the row that it comes from
    - `about`: its text without the words that a summary adds; its figures and words are read there
    - `own_value`: an additional value, because it is a decision or a rule
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
    fits: Callable[[int], bool],
) -> list[int]:
    """The numbers of the chosen candidates, the highest score first.

    `known` is the text that the summary has already. `fits(number)` is called for each candidate in
    that order; it returns whether there is room, and reserves it.
    """
    covered = _information(known, focus)
    infos = [_information(one.about, focus) for one in candidates]
    factors = [
        one.factor
        * (1 - AGE_PENALTY * (rows - one.row) / max(1, rows))
        * (1 + RELEVANCE_BONUS * focus.relevance(one.row, one.about))
        / (len(one.text) / CHARS_PER_TOKEN + ITEM_TOKENS)
        for one in candidates
    ]
    chosen: list[int] = []
    missed = 0

    def gain(number: int) -> float:
        new = {unit: value for unit, value in infos[number].items() if unit not in covered}
        total = sum(new.values())
        if candidates[number].needs_new_figure and max(new.values(), default=0.0) < 1.0:
            return 0.0
        total += candidates[number].own_value if total >= MIN_OWN_VALUE else 0.0
        return factors[number] * total if total >= MIN_VALUE else 0.0

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
        if fits(number):
            chosen.append(number)
            covered.update(infos[number])
        elif (missed := missed + 1) > MAX_MISSED:
            break
    return chosen


def _information(text: str, focus: Focus) -> dict[str, float]:
    """The figures and words of a text with their values."""
    units = {word: WORD_VALUE * focus.rarity(word) for word in _stems(text)}
    units.update((value.removeprefix("0"), 1.0) for value in figures_in(text))
    return units
