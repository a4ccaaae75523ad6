"""Choose the texts of a short summary: those that the current request needs.

A summary of a few hundred tokens cannot have every decision and fact. `Focus` measures how relevant
a text is for the current request. `choose_candidates` chooses among decisions, facts and sentences.
The score of a text depends on its relevance, its kind, its age, and the figures and rare words that
no text chosen before it has. The score is divided by its length.

A *turn* is one text of one speaker (`source.Turn`). An *exchange* is a turn of the user with all
calls and turns up to the next turn of the user (as in `layout`).
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
"""Relevance multiplies a score by up to 1 + this: by 1 for a text without relevance, by 5 for a
text with full relevance."""

FIGURE_VALUE, WORD_VALUE = 1.0, 0.4
"""The value of a figure, and of the rarest word. Other words have a lower value."""

MIN_VALUE = 0.9
"""A text is left out if its new figures and words, together with its own value, are worth less than
this. One figure is enough, or three rare words."""

MIN_NEW_VALUE_FOR_OWN = 0.3
"""`Candidate.own_value` counts only if the new figures and words of the text are worth at least
this: one rare word."""

MAX_NOT_FITTING = 30
"""Stop when more than this many texts did not fit."""

MAX_CALL_CHARS = 400
"""How many characters of a call are read for the words of its exchange."""

LAST_REQUEST_WEIGHT, LAST_REPLY_WEIGHT, REQUEST_BEFORE_WEIGHT = 1.0, 0.5, 0.6
"""The weights of the words of the user's last turn, of the assistant's turns directly before and
after it, and of the user's turn before those. The last turn alone may be only a short answer such
as "yes"."""

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
"""A sentence with this many of the rarest words of the request has full relevance."""


class Focus:
    """How much the current request needs a sentence, by the rare words that they share.

    A sentence is also relevant if its exchange is: "It arrives at noon." answers a question about
    the loaner if the call before it was `order_loaner`.

    `turns` are summarised. `following` are the turns after them, which stay verbatim; the current
    request may be one of them.
    """

    def __init__(
        self, turns: Sequence[Turn], uses: Sequence[ToolUse], following: Sequence[Turn] = ()
    ) -> None:
        spoken = [turn for turn in (*turns, *following) if turn.speaker in PEOPLE]
        words = [_stems(" ".join(sentences)) for _, _, sentences in spoken]
        self._turn_count = len(spoken)
        # in how many turns each word occurs
        self._turns_with_word = Counter(word for turn_words in words for word in turn_words)
        self._query, self._request_words = _read_query(spoken, words)
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
        weights = [weight * self.rarity(word) for word, weight in self._query.items()]
        self._full_weight = sum(sorted(weights, reverse=True)[:FULL_RELEVANCE_WORDS]) or 1.0

    def rarity(self, word: str) -> float:
        """Between 0 and 1: the fewer turns have a word, the higher."""
        turns, turns_with_word = self._turn_count, self._turns_with_word[word]
        return log(1 + turns / (1 + turns_with_word)) / log(1 + max(1, turns))

    def relevance(self, row: int, text: str) -> float:
        """Between 0 and 1: how much the current request needs a sentence of this row."""
        words = _stems(text)
        exchange = bisect_right(self._exchange_rows, row) - 1
        if exchange == len(self._exchange_rows) - 1:
            # The words of the last reply are part of the query. Without this line, each sentence of
            # the reply would be relevant because of its own words.
            words &= self._request_words
        exchange_words = self._exchange_words[exchange] if exchange >= 0 else set[str]()
        exchange_share = min(1.0, self._query_share(exchange_words - words))
        return min(1.0, self._query_share(words) + EXCHANGE_WEIGHT * exchange_share)

    def _query_share(self, words: Collection[str]) -> float:
        """How much of the query these words cover; 1 or more is full relevance."""
        query = self._query
        weights = [query[word] * self.rarity(word) for word in words if word in query]
        return sum(weights) / self._full_weight


def _read_query(
    spoken: Sequence[Turn], words: Sequence[Set[str]]
) -> tuple[dict[str, float], set[str]]:
    """The words of the last turns with their weights, and all words of the user's turns among them.

    `words` are the words of each turn.
    """
    vague_words = _stems(VAGUE_WORDS)
    query: dict[str, float] = {}
    request_words: set[str] = set()
    weights = iter((LAST_REQUEST_WEIGHT, REQUEST_BEFORE_WEIGHT))
    earlier_weight = 1.0
    # A reply may consist of several turns with tool calls between them, so its weight stays until
    # the next turn of the user.
    reply_weight = LAST_REPLY_WEIGHT
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
            request_words |= turn_words
        for word in turn_words - vague_words if weight else ():
            query[word] = max(weight, query.get(word, 0.0))
    return query, request_words


def _stems(text: str) -> set[str]:
    """The content words of a text, reduced to their first letters."""
    return {word[:STEM_CHARS] for word in content_words(text)}


class Candidate(Struct, frozen=True):
    """A text that may be part of a summary.

    - `factor`: multiplies its score
    - `row`: the row that it comes from
    - `informative_part`: the part of the text whose figures and words count
    - `own_value`: a value besides that of its figures and words, for a decision or a rule
    - `needs_new_figure`: it is left out unless it has a figure that no text chosen before it has
    """

    text: str
    factor: float
    row: int
    informative_part: str
    own_value: float = 0.0
    needs_new_figure: bool = False


def choose_candidates(
    candidates: Sequence[Candidate],
    focus: Focus,
    row_count: int,
    known: str,
    add_if_fits: Callable[[int], bool],
) -> list[int]:
    """The indexes of the chosen candidates, the highest score first.

    `row_count` is the number of rows of the source, and `known` the text that the summary has
    already. `add_if_fits(index)` is called in that order, for candidates that add enough, until too
    many did not fit. It adds the candidate and returns `True`, or returns `False` if the candidate
    does not fit.
    """
    covered_terms = _value_terms(known, focus)
    terms = [_value_terms(candidate.informative_part, focus) for candidate in candidates]
    factors = [
        candidate.factor
        * (1 - AGE_PENALTY * (row_count - candidate.row) / max(1, row_count))
        * (1 + RELEVANCE_BONUS * focus.relevance(candidate.row, candidate.informative_part))
        / (len(candidate.text) / CHARS_PER_TOKEN + ITEM_TOKENS)
        for candidate in candidates
    ]
    chosen: list[int] = []
    not_fitting = 0

    def score(index: int) -> float:
        """The score of a candidate by its new figures and words; 0 if it adds too little."""
        candidate = candidates[index]
        new = [value for term, value in terms[index].items() if term not in covered_terms]
        if candidate.needs_new_figure and FIGURE_VALUE not in new:
            return 0.0
        value = sum(new)
        value += candidate.own_value if value >= MIN_NEW_VALUE_FOR_OWN else 0.0
        return factors[index] * value if value >= MIN_VALUE else 0.0

    heap = [(-score(index), -candidates[index].row, index) for index in range(len(candidates))]
    heapify(heap)
    while heap:
        _, negative_row, index = heappop(heap)
        current_score = score(index)
        if current_score <= 0:
            continue
        # Scores only shrink. So if this one is still at least the old score of the next candidate,
        # it is the highest.
        if heap and -current_score > heap[0][0]:
            heappush(heap, (-current_score, negative_row, index))
            continue
        if add_if_fits(index):
            chosen.append(index)
            covered_terms.update(terms[index])
        elif (not_fitting := not_fitting + 1) > MAX_NOT_FITTING:
            break
    return chosen


def _value_terms(text: str, focus: Focus) -> dict[str, float]:
    """The terms of a text, which are its figures and stems, each with its value."""
    values = {word: WORD_VALUE * focus.rarity(word) for word in _stems(text)}
    # "07:30" and "7:30" are the same figure.
    values.update((figure.removeprefix("0"), FIGURE_VALUE) for figure in figures_in(text))
    return values
