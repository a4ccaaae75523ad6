"""A summary without a model: the sentences that say most, verbatim, and an index of names.

Every sentence is taken from the source as it stands there, so nothing can be invented. Which ones:
greedy weighted set cover. An entity or a rare word is worth something until a chosen sentence has
it, so the next choice says something new; worth is rarity, dearer for what a person said than for
what a tool printed, per character it costs. Two fifths of the room go to an index of the names
that were spoken of most. Of the names that two recorded coding sessions needed in their last third
and had used before, a summary of 2 % of the tokens keeps about half, one of 10 % six in seven; the
most recent messages of the same size keep a sixth, and a half.

Chosen sentences stand in the order in which they were said, each under its speaker, as lists of
markdown; each line of the index is a paragraph, and says how many names it leaves out. A first
line alone is no summary: there is always a sentence or a name, or nothing is written.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from math import log

from weft.history import Row
from weft.model import Message, Text

from .entities import KINDS, WEIGHTS
from .source import BULLET, LABELS, MARK, MORE, Name, Sentence, read_source

HEADER = f"{MARK}]"

INDEX_SHARE = 0.4
WORD_WORTH = 0.25
USEFUL = 3
"""So many sentences a summary should have room for, before more recent turns are kept."""

TRIED = 40
"""How many sentences are tried for a small room, past the first that does not fit."""


class Extract:
    """The summary that rows could have, before it is known how much room it gets."""

    def __init__(self, rows: Sequence[Row], count: Callable[[Message], int]) -> None:
        source = read_source(rows)
        self.count = count
        self.names = source.names
        self.totals = source.totals
        self.ranked = rank_sentences(source.sentences) or list(source.sentences)

    @property
    def least(self) -> int:
        """The tokens of the smallest summary that says anything."""
        return self.count(self._smallest())

    @property
    def useful(self) -> int:
        """The tokens of a summary that is worth a recent turn."""
        return max(self.least, self._size(self.ranked[:USEFUL], ()))

    def within(self, room: int) -> Message | None:
        """The user message that stands for the rows; `None` where there is no room for any.

        Sentences are chosen beside an index of its share; then the index lists only what they do
        not say, as much as fits, and what a whole index leaves goes to sentences again.
        """
        smallest = self._smallest()
        if self.count(smallest) > room:
            return None
        bare = self._size((), ())
        share = bare + int((room - bare) * INDEX_SHARE)
        names = self.names[: self._fitting((), self.names, share)]
        chosen = self._choose(names, room) or self._choose((), room)
        unsaid = _unsaid(self.names, chosen)
        listed = unsaid[: self._fitting(chosen, unsaid, room)]
        if len(listed) == len(unsaid):
            chosen = self._choose(listed, room)
            return self._message(chosen, listed) if chosen or listed else smallest
        fewer = self._fitting(chosen, unsaid, room, every=True)
        if fewer:
            return self._message(chosen, unsaid[:fewer], every=True)
        return self._message(chosen, listed) if chosen or listed else smallest

    def _fitting(
        self, chosen: Sequence[Sentence], names: Sequence[Name], room: int, every: bool = False
    ) -> int:
        def fits(many: int) -> bool:
            return self.count(self._message(chosen, names[:many], every)) <= room

        return _most(len(names), fits)

    def _choose(self, names: Sequence[Name], room: int) -> list[Sentence]:
        ranked = self.ranked
        fitting = _most(len(ranked), lambda n: self._size(ranked[:n], names) <= room)
        chosen = ranked[:fitting]
        tried = max(0, TRIED - fitting)  # among many chosen ones, one more says little
        for sentence in ranked[fitting + 1 : fitting + 1 + tried]:
            if self._size([*chosen, sentence], names) <= room:
                chosen.append(sentence)
        return chosen

    def _smallest(self) -> Message:
        shortest = min(self.ranked, key=lambda sentence: len(sentence.text))
        told = [self._message([shortest], ())]
        if self.names:
            told.append(self._message((), self.names[:1]))
        return min(told, key=self.count)

    def _size(self, sentences: Sequence[Sentence], names: Sequence[Name]) -> int:
        return self.count(self._message(sentences, names))

    def _message(
        self, sentences: Sequence[Sentence], names: Sequence[Name], every: bool = False
    ) -> Message:
        """Markdown: a list under each speaker, and a paragraph for each kind of name; for `every`
        kind, also where none of it is listed."""
        parts = [HEADER]
        speaker = ""
        for sentence in sorted(sentences, key=lambda sentence: sentence.number):
            if sentence.speaker != speaker:
                speaker = sentence.speaker
                parts.append(f"{speaker}:")
            parts[-1] += f"\n{BULLET}{sentence.text}"
        if names:
            parts.extend(self._index(sentences, names, every))
        return Message("user", (Text("\n\n".join(parts)),))

    def _index(
        self, sentences: Sequence[Sentence], names: Sequence[Name], every: bool
    ) -> Iterator[str]:
        unsaid = _unsaid(self.names, sentences)
        told = Counter(kind for kind, _ in self.names)
        told.subtract(kind for kind, _ in unsaid)
        for kind in KINDS:
            listed = [name for of, name in names if of == kind]
            left = self.totals.get(kind, 0) - len(listed) - told[kind]
            more = [MORE.format(left)] if left > 0 else []
            if listed or (every and more):
                yield f"{LABELS[kind]}: {', '.join([*listed, *more])}"


def extract_summary(
    rows: Sequence[Row], room: int, count: Callable[[Message], int]
) -> Message | None:
    """The user message that stands for the rows, within `room` tokens; `None` where none that
    says anything fits."""
    return Extract(rows, count).within(room)


def rank_sentences(sentences: Sequence[Sentence]) -> list[Sentence]:
    """All sentences that add something, the most informative first, each judged by what those
    before it leave uncovered."""
    spread = Counter(name for sentence in sentences for name in sentence.covers)
    total = len(sentences)
    place = {name: at for at, name in enumerate(sorted(spread))}
    worth = [_worth(name) * log(1 + total / spread[name]) for name in place]
    covered = bytearray(len(place))
    # Names by their place, in one order: floats are summed the same way however a set is ordered.
    left = [sorted([place[name] for name in sentence.covers]) for sentence in sentences]

    def gain(number: int) -> float:
        left[number] = [at for at in left[number] if not covered[at]]  # what is covered stays so
        sentence = sentences[number]
        new = sum([worth[at] for at in left[number]])
        return new * sentence.factor / (len(sentence.text) + 40)

    heap = [(-gain(number), number) for number in range(total)]
    heapify(heap)
    ranked: list[Sentence] = []
    while heap:
        _, number = heappop(heap)
        fresh = -gain(number)
        if fresh == 0:
            continue
        # Gains only shrink as names are covered, so a stale best that is still best is the best.
        if heap and fresh > heap[0][0]:
            heappush(heap, (fresh, number))
            continue
        ranked.append(sentences[number])
        for at in left[number]:
            covered[at] = 1
    return ranked


def _unsaid(names: Sequence[Name], sentences: Sequence[Sentence]) -> list[Name]:
    """The names that stand in none of the sentences."""
    said = {name for sentence in sentences for name in sentence.covers}
    return [(kind, name) for kind, name in names if f"{kind}:{name}" not in said]


def _worth(name: str) -> float:
    kind, _, _ = name.partition(":")
    return WEIGHTS.get(kind, WORD_WORTH)


def _most(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `limit` that fits; `0` fits. Doubling first: what is asked is then
    never much larger than the answer, however large the limit."""
    step = 1
    while step < limit and fits(step):
        step *= 2
    low, high = step // 2, min(step, limit)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
