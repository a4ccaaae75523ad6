"""A summary without a model: the sentences that say most, verbatim, and an index of names.

Every sentence is taken from the source as it stands there, so nothing can be invented. Which ones:
greedy weighted set cover. An entity or a rare word is worth something until a chosen sentence has
it, so the next choice says something new; worth is rarity, dearer for what a person said than for
what a tool printed, per character it costs. Two fifths of the room go to an index of the names
that were spoken of most. Of the names that two recorded coding sessions needed in their last third
and had used before, a summary of 2 % of the tokens keeps about half, one of 10 % six in seven; the
most recent messages of the same size keep a sixth, and a half.

Chosen sentences stand in the order in which they were said, each under its speaker. A summary of
a summary reads the older one's sentences again and adds its index to the new one.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from math import log

from msgspec import Struct

from weft.history import Row
from weft.model import Block, Message, Refusal, Text, ToolCall, ToolResult, side, texts

from .entities import KINDS, WEIGHTS, find_entities

HEADER = (
    "[Summary of earlier messages by the engine, in their own sentences; "
    "not written by the user. The originals stay in history.]"
)
LABELS = {
    "path": "Paths",
    "error": "Errors",
    "symbol": "Symbols",
    "hash": "Hashes",
    "number": "Numbers",
}

BULLET = "- "
INDEX = "index"
LONGEST = 300
SHORTEST = 12
INDEX_SHARE = 0.4
INDEX_MOST = 400
WORD_WORTH = 0.25
WORTH = {"user": 6.0, "assistant": 3.0, "summary": 3.0, "call": 0.6, "tool": 0.4}
"""What a speaker's words are worth: a tool's output can be had again, a wish cannot."""

IMPORTANT = 2.0
DECISIVE = 1.5

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'`(\[]?[A-Z0-9])")
_WORD = re.compile(r"[^\W\d_]{4,}")
_DECISIVE = re.compile(
    r"\b(?:must|never|always|decided?|agreed|because|instead|constraint|require[sd]?|requirement"
    r"|do not|don't|only|prefer|fix(?:ed)?|bug|fail(?:s|ed|ure)?|error|todo|next)\b",
    re.IGNORECASE,
)


class Sentence(Struct, frozen=True):
    """A verbatim piece of the source, who said it, and what it would cover."""

    number: int
    speaker: str
    text: str
    covers: frozenset[str]
    factor: float


class Source(Struct, frozen=True):
    """What rows say: their sentences in order; their entities, the most spoken of first."""

    sentences: tuple[Sentence, ...]
    names: tuple[tuple[str, str], ...]


def extract_summary(
    rows: Sequence[Row], room: int, count: Callable[[Message], int]
) -> Message | None:
    """The user message that stands for the rows, within `room` tokens; `None` where not even its
    first line fits."""
    source = read_source(rows)
    ranked = rank_sentences(source.sentences)
    names = source.names

    def size(sentences: int, entities: int) -> int:
        return count(_message(ranked[:sentences], names[:entities]))

    if size(0, 0) > room:
        return None
    share = size(0, 0) + int((room - size(0, 0)) * INDEX_SHARE)
    entities = _most(len(names), lambda n: size(0, n) <= share)
    sentences = _most(len(ranked), lambda n: size(n, entities) <= room)
    return _message(ranked[:sentences], names[:entities])


def read_source(rows: Sequence[Row]) -> Source:
    """The sentences and entities of rows; reminders, checkpoints and thinking are not read."""
    spoken: dict[tuple[str, str], float] = {}
    entities: dict[str, tuple[tuple[str, str], ...]] = {}
    sentences: list[Sentence] = []
    called = _called(rows)
    for row in rows:
        factor = IMPORTANT if row.priority == "important" else 1.0
        for speaker, piece in _spoken(row, called):
            again = piece in entities
            found = entities[piece] if again else tuple(find_entities(piece))
            for entity in found:
                worth = WEIGHTS[entity[0]] * _voice(speaker)
                spoken[entity] = spoken.get(entity, 0.0) + worth
            if not again:
                entities[piece] = found
                if speaker != INDEX and len(piece) >= SHORTEST:
                    sentences.append(_weigh(len(sentences), speaker, piece, found, factor))
    names = sorted(spoken, key=lambda entity: -spoken[entity])
    return Source(tuple(sentences), tuple(names[:INDEX_MOST]))


def rank_sentences(sentences: Sequence[Sentence]) -> list[Sentence]:
    """All sentences that add something, the most informative first, each judged by what those
    before it leave uncovered."""
    spread = Counter(name for sentence in sentences for name in sentence.covers)
    total = len(sentences)
    worth = {name: _worth(name) * log(1 + total / many) for name, many in spread.items()}
    covered: set[str] = set()

    def gain(sentence: Sentence) -> float:
        new = sum(worth[name] for name in sorted(sentence.covers - covered))
        return new * sentence.factor / (len(sentence.text) + 40)

    heap = [(-gain(sentence), sentence.number) for sentence in sentences]
    heapify(heap)
    ranked: list[Sentence] = []
    while heap:
        _, number = heappop(heap)
        fresh = -gain(sentences[number])
        if fresh == 0:
            continue
        # Gains only shrink as names are covered, so a stale best that is still best is the best.
        if heap and fresh > heap[0][0]:
            heappush(heap, (fresh, number))
            continue
        ranked.append(sentences[number])
        covered |= sentences[number].covers
    return ranked


def _worth(name: str) -> float:
    kind, _, _ = name.partition(":")
    return WEIGHTS.get(kind, WORD_WORTH)


def _voice(speaker: str) -> float:
    return WORTH.get(speaker.partition(" ")[0], 1.0)


def _weigh(
    number: int, speaker: str, text: str, entities: Iterable[tuple[str, str]], factor: float
) -> Sentence:
    covers = {f"{kind}:{name}" for kind, name in entities}
    covers.update(word.lower() for word in _WORD.findall(text))
    decisive = DECISIVE if _DECISIVE.search(text) else 1.0
    factor *= _voice(speaker) * decisive
    return Sentence(number, speaker, text, frozenset(covers), factor)


def _called(rows: Sequence[Row]) -> dict[str, str]:
    """The names of the tools by the ids of their calls: most wires leave them out of a result."""
    blocks = (block for row in rows for block in row.message.blocks)
    return {block.id: block.name for block in blocks if isinstance(block, ToolCall)}


def _spoken(row: Row, called: dict[str, str]) -> Iterable[tuple[str, str]]:
    """Who says what in a row, sentence by sentence: words, arguments of calls, results."""
    speaker = "summary" if row.kind == "summary" else side(row.message.role)
    for block in row.message.blocks:
        for text in _said(block):
            who = _speaker(block, speaker, called)
            for teller, words in _resaid(text) if text.startswith(HEADER) else ((who, text),):
                for piece in _sentences(words):
                    yield teller, piece


def _speaker(block: Block, speaker: str, called: dict[str, str]) -> str:
    match block:
        case ToolCall(name=name):
            return f"call {name}"
        case ToolResult(call_id=id, name=name):
            return f"tool {name or called.get(id, '')}".strip()
        case _:
            return speaker


def _said(block: Block) -> Iterable[str]:
    match block:
        case Text(text=text) | Refusal(text=text):
            return (text,)
        case ToolCall(arguments=arguments):
            return (arguments,)
        case ToolResult(content=content):
            return texts(content)
        case _:
            return ()


def _resaid(summary: str) -> Iterable[tuple[str, str]]:
    """An earlier summary of this engine, read back: who said what, and its index."""
    speaker = "summary"
    for line in summary.splitlines()[1:]:
        if line.startswith(BULLET):
            yield speaker, line.removeprefix(BULLET)
        elif line.endswith(":"):
            speaker = line.removesuffix(":")
        else:
            yield INDEX, line


def _sentences(text: str) -> Iterable[str]:
    for line in text.splitlines():
        for sentence in _SENTENCE.split(line.strip()):
            if sentence:
                yield from _pieces(sentence)


def _pieces(sentence: str) -> Iterable[str]:
    """A sentence, or what a very long one comes to when cut behind its blanks or commas."""
    start = 0
    while len(sentence) - start > LONGEST:
        window = (start + LONGEST // 2, start + LONGEST)
        cut = max(sentence.rfind(mark, *window) for mark in " ,;") + 1
        end = cut or start + LONGEST
        yield sentence[start:end].strip()
        start = end
    yield sentence[start:]


def _message(sentences: Sequence[Sentence], names: Sequence[tuple[str, str]]) -> Message:
    lines = [HEADER]
    speaker = ""
    for sentence in sorted(sentences, key=lambda sentence: sentence.number):
        if sentence.speaker != speaker:
            speaker = sentence.speaker
            lines.append(f"{speaker}:")
        lines.append(BULLET + sentence.text)
    for kind in KINDS:
        listed = [name for of, name in names if of == kind]
        if listed:
            lines.append(f"{LABELS[kind]}: {', '.join(listed)}")
    return Message("user", (Text("\n".join(lines)),))


def _most(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `limit` that fits, by bisection; `0` fits."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
