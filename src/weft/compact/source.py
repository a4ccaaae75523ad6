"""The sentences and names of rows, as the source of a summary.

A question that is answered with a statement is left out, because the answer says more. Its names
still count for the index. A question without an answer, or answered with just "yes", stays.
Reminders, checkpoints and thinking are not read. A source always has a sentence: if no text is long
enough, short texts count, and if there is no text at all, the kinds of blocks are listed.

An earlier summary of this engine is read back: its sentences belong to their original speakers, and
its index is continued by the new one.

Entities are the paths, symbols, errors, hashes and figures that a summary most often loses and an
agent most often needs. One regular expression finds them, always as a verbatim part of the text.
Each alternative starts only where a word or path starts, so the cost stays linear for any text.
Plain words are skipped first. A figure of one or two digits, or a line number, is not an entity.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from weft.history import Row
from weft.model import Block, Refusal, Text, ToolCall, ToolResult, side, texts

from .plan import block_kind

KINDS = ("path", "error", "symbol", "hash", "number")

WEIGHTS = {"path": 3.0, "error": 3.0, "symbol": 2.0, "hash": 2.0, "number": 1.5}
"""The weight of each kind in a summary, before rarity."""

SPACES = " \u00a0\u2009\u202f'\u2019"
"""Thousands separators besides the comma. Two numbers separated by a plain space may therefore be
read as one entity, which is still a verbatim part of the text."""

_KINDS = r"""
      (?P<path> https?://[^\s<>"'`)\]]+[^\s<>"'`)\].,;:!?]
              | (?<![\w/.@+-]) (?:~|[A-Za-z]:)? (?:[\w.@+-]*/)+ [\w@+-] (?:[\w.@+-]*[\w/])?
              | (?<![\w/.@+-]) [\w-]+ \. (?:py|pyi|js|mjs|ts|tsx|jsx|json|jsonl|toml|yaml|yml|md|rst
                    |txt|rs|go|c|h|cc|cpp|hpp|java|kt|rb|php|sh|sql|html|css|csv|lock|cfg|ini|log
                    |db|ipynb)
                \b (?! \( ) )
    | (?P<error> \b [A-Z]\w* (?:Error|Exception|Warning|Failure|Refused|Timeout) \b
              | \b E[A-Z]{4,} \b | \b [A-Z]{1,3} \d{3,4} \b | \b SIG[A-Z]{3,} \b )
    | (?P<hash> \b [0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12} \b
              | \b (?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f]) [0-9a-f]{7,64} \b )
    | (?P<symbol> ` [^`\n]{2,60} `
              | (?<![\w.]) [A-Za-z]\w*+ (?:\.[A-Za-z_]\w*+)++ (?= \( )
              | \b [A-Za-z_]\w*_\w+ \b
              | \b [a-z]+ (?:[A-Z][a-z0-9]+)+ \b
              | \b (?:[A-Z][a-z0-9]+){2,} \b
              | (?<!\w) --? [a-z][\w-]{2,} )
    | (?P<number> (?<![\w.,]) [$€£] (?: \d{1,3} (?:GROUP\d{3})+ | \d+ ) (?:[.,]\d+)?
                [kKmMbB]? (?!\w)
              | (?<![\w.-]) \d{4}-\d{2}-\d{2} (?![\w-])
              | (?<![\w.]) \d{1,3} (?:,\d{3})+ (?:\.\d+)? %? (?!\w)
              | (?<![\w.,:/-]) \d{1,3} (?:GROUP\d{3})+ (?:[.,]\d+)? %? (?!\w)
              | (?<![\w.]) \d+ (?:\.\d+)+ (?:%|ms|s|k|kb|mb|gb)? (?!\w)
              | (?<![\w.]) \d+ \s? (?:%|ms|px|kb|mb|gb|KB|MB|GB) (?!\w)
              | (?<![\w.]) \d{3,} (?![\w.→\t]) )
"""

_PLAIN = r"""
    (?<!\w)
    (?: (?: [A-Za-z][a-z]*+ | (?= [a-z0-9]*[g-z] ) [a-z][a-z0-9]*+ ) [.,;:!?)]? (?: \s++ | \Z ) )++
"""
"""Runs of plain words, which are most of any text and cannot start an entity. They are matched
first, because otherwise every other alternative would be tried at each letter."""

_START = r"(?: (?<!\w) (?= [\w/~.@+\-`$€£] ) | (?= https?:// | ` ) )"
"""Where an entity may start: at a word or a symbol; inside a word only a URL or a backquote."""

_ENTITY = re.compile(
    f"{_PLAIN} | {_START} (?: {_KINDS} )".replace("GROUP", f"[,{SPACES}]"), re.VERBOSE
)


def find_entities(text: str) -> Iterator[tuple[str, str]]:
    """Each entity of a text as its kind and its verbatim spelling, in order, repeats included."""
    for match in _ENTITY.finditer(text):
        kind = match.lastgroup
        if kind is not None:
            yield kind, match[kind].strip("`")


MARK = "[Summary of earlier messages by the engine"
"""The start of every summary of this engine; the rest of its first line varies."""

LABELS = {
    "path": "Paths",
    "error": "Errors",
    "symbol": "Symbols",
    "hash": "Hashes",
    "number": "Numbers",
}
"""The label of each line of an index, by the kind of name."""

BULLET = "- "
MORE = "... and {} more"
INDEX = "index"
LONGEST = 300
SHORTEST = 12
INDEX_MOST = 400
SPEAKER_WEIGHTS = {"user": 6.0, "assistant": 3.0, "summary": 3.0, "call": 0.6, "tool": 0.4}
"""The weight of each speaker. A tool's output can be produced again, a user's request cannot."""

IMPORTANT = 2.0
DECISIVE = 1.5
ASKING = ("user", "assistant")
QUESTION = ("?", "？")
CLOSING = "\"'`)]*_"
"""Characters that may follow a question mark."""


_STOP = re.compile(r"[.!?]\s")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'`(\[]?[A-Z0-9])")
_WORD = re.compile(r"[^\W\d_]{4,}|(?<![\w.])\d+(?![\w→])")
LEFT_OUT = re.compile(r"(?:, |(?<=: )|^)\.\.\. and (\d+) more$")
"""The end of a truncated line of an index."""

_BULLETS = re.compile(r"(?:[-*+\u2022]\s+)+")
_DECISIVE = re.compile(
    r"\b(?=[abcdefimnoprt])(?:must|never|always|decided?|agreed|because|instead|constraint|require[sd]?|requirement"
    r"|do not|don't|only|prefer|fix(?:ed)?|bug|fail(?:s|ed|ure)?|error|todo|next)\b",
)
_DECISIVE_ANY_CASE = re.compile(_DECISIVE.pattern, re.IGNORECASE)

Name = tuple[str, str]
"""An entity: its kind, and its verbatim spelling."""

Utterance = tuple[str, str]
"""A speaker, and a verbatim piece of its text."""


class Sentence(Struct, frozen=True, gc=False):
    """A verbatim piece of the source, its speaker, and the words and names that it covers."""

    number: int
    speaker: str
    text: str
    covers: frozenset[str]
    factor: float


class Source(Struct, frozen=True):
    """The sentences of rows in order, their names by descending weight, and the total number of
    names of each kind."""

    sentences: tuple[Sentence, ...]
    names: tuple[Name, ...]
    totals: dict[str, int]


def read_source(rows: Sequence[Row]) -> Source:
    """The sentences and entities of rows."""
    tool_names = _tool_names(rows)
    utterances = [list(_utterances(row, tool_names)) for row in rows]
    answered = _answered(rows, utterances)
    weights: dict[Name, float] = {}
    entities: dict[str, tuple[Name, ...]] = {}
    sentences: dict[str, Sentence] = {}
    for row, pieces, has_answer in zip(rows, utterances, answered, strict=True):
        factor = IMPORTANT if row.priority == "important" else 1.0
        for speaker, piece in pieces:
            if piece not in entities:
                entities[piece] = tuple(find_entities(piece))
            piece_names = entities[piece]
            weight = _speaker_weight(speaker) if piece_names else 0.0
            for entity in piece_names:
                weights[entity] = weights.get(entity, 0.0) + WEIGHTS[entity[0]] * weight
            skip = speaker == INDEX or len(piece) < SHORTEST or piece in sentences
            if not skip and not (has_answer and _asks(speaker, piece)):
                sentences[piece] = _weigh(len(sentences), speaker, piece, piece_names, factor)
    names = sorted(weights, key=lambda entity: -weights[entity])
    totals = Counter(kind for kind, _ in names) + _left_out(rows)
    chosen = tuple(sentences.values()) or _short_sentences(rows, utterances)
    return Source(chosen, tuple(names[:INDEX_MOST]), dict(totals))


def _left_out(rows: Sequence[Row]) -> Counter[str]:
    """The number of names of each kind that the indexes of earlier summaries leave out."""
    counts: Counter[str] = Counter()
    kinds = {label: kind for kind, label in LABELS.items()}
    for row in rows:
        lines = row.message.text.splitlines() if row.message.text.startswith(MARK) else ()
        for line in lines:
            kind, cut = kinds.get(line.partition(":")[0]), LEFT_OUT.search(line)
            if kind and cut:
                counts[kind] += int(cut[1])
    return counts


def _short_sentences(
    rows: Sequence[Row], utterances: Sequence[Sequence[Utterance]]
) -> tuple[Sentence, ...]:
    """All pieces, however short, for rows without sentences; without text, the kinds of blocks."""
    pieces = dict.fromkeys(
        (speaker, piece) for row in utterances for speaker, piece in row if speaker != INDEX
    )
    if not pieces:
        kinds = Counter(block_kind(block) for row in rows for block in row.message.blocks)
        listed = ", ".join(f"{many} {kind}" for kind, many in kinds.items()) or "empty messages"
        pieces = {("without words", listed): None}
    return tuple(
        Sentence(number, speaker, piece, frozenset(), 1.0)
        for number, (speaker, piece) in enumerate(pieces)
    )


def _answered(rows: Sequence[Row], utterances: Sequence[Sequence[Utterance]]) -> list[bool]:
    """For each row, whether another speaker states something before its speaker's next turn.

    The rows are read from the end. `has_reply` is, for each speaker, whether others state something
    between the current row and that speaker's next turn.
    """
    answered = [False] * len(rows)
    has_reply: dict[str, bool] = {}
    later = ""
    for number in range(len(rows) - 1, -1, -1):
        current = _row_speaker(rows[number])
        if current != later:
            has_reply[later] = False
        later = current
        answered[number] = current in ASKING and has_reply.get(current, False)
        if any(_states(speaker, piece) for speaker, piece in utterances[number]):
            has_reply.update((other, True) for other in ASKING if other != current)
    return answered


def _row_speaker(row: Row) -> str:
    if row.kind == "summary":
        return "summary"
    typed = any(isinstance(block, Text) for block in row.message.blocks)
    results = any(isinstance(block, ToolResult) for block in row.message.blocks)
    return "tool" if results and not typed else side(row.message.role)


def _asks(speaker: str, piece: str) -> bool:
    return speaker in ASKING and piece.rstrip(CLOSING).endswith(QUESTION)


def _states(speaker: str, piece: str) -> bool:
    is_text = speaker != INDEX and not speaker.startswith("call ")
    return is_text and len(piece) >= SHORTEST and not _asks(speaker, piece)


def _speaker_weight(speaker: str) -> float:
    return SPEAKER_WEIGHTS.get(speaker.partition(" ")[0], 1.0)


def _weigh(
    number: int, speaker: str, text: str, entities: Iterable[Name], factor: float
) -> Sentence:
    covers = {f"{kind}:{name}" for kind, name in entities}
    words, decides = _read_words(text)
    covers.update(words)
    factor *= _speaker_weight(speaker) * (DECISIVE if decides else 1.0)
    return Sentence(number, speaker, text, frozenset(covers), factor)


def _read_words(text: str) -> tuple[Iterable[str], bool]:
    """The words of a text in lower case, and whether one of them marks a decision."""
    if not text.isascii():
        return map(str.lower, _WORD.findall(text)), _DECISIVE_ANY_CASE.search(text) is not None
    text = text.lower()  # IGNORECASE takes twice as long
    return _WORD.findall(text), _DECISIVE.search(text) is not None


def _tool_names(rows: Sequence[Row]) -> dict[str, str]:
    """The tool name of each call id, because most protocols leave it out of results."""
    blocks = (block for row in rows for block in row.message.blocks)
    return {block.id: block.name for block in blocks if isinstance(block, ToolCall)}


def _utterances(row: Row, tool_names: dict[str, str]) -> Iterable[Utterance]:
    """The sentences of a row with their speakers: texts, arguments of calls, results."""
    speaker = "summary" if row.kind == "summary" else side(row.message.role)
    for block in row.message.blocks:
        for text in _block_texts(block):
            author = _speaker(block, speaker, tool_names)
            parts = _read_summary(text) if text.startswith(MARK) else ((author, text),)
            for part_speaker, part in parts:
                for piece in _sentences(part):
                    yield part_speaker, _without_bullet(part_speaker, piece)


def _without_bullet(speaker: str, piece: str) -> str:
    """A list item without its bullet, because the summary adds its own. Tool output is unchanged:
    in a diff, the sign at the start of a line is content."""
    bullet = None if speaker.startswith(("tool", "call")) else _BULLETS.match(piece)
    return piece if bullet is None else piece[bullet.end() :] or piece


def _speaker(block: Block, speaker: str, tool_names: dict[str, str]) -> str:
    match block:
        case ToolCall(name=name):
            return f"call {name}"
        case ToolResult(call_id=id, name=name):
            return f"tool {name or tool_names.get(id, '')}".strip()
        case _:
            return speaker


def _block_texts(block: Block) -> Iterable[str]:
    match block:
        case Text(text=text) | Refusal(text=text):
            return (text,)
        case ToolCall(arguments=arguments):
            return (arguments,)
        case ToolResult(content=content):
            return texts(content)
        case _:
            return ()


def _read_summary(summary: str) -> Iterable[Utterance]:
    """The sentences of an earlier summary of this engine with their speakers, and its index."""
    speaker = "summary"
    for line in summary.splitlines()[1:]:
        if line.startswith(BULLET):
            yield speaker, line.removeprefix(BULLET)
        elif line.endswith(":"):
            speaker = line.removesuffix(":")
        else:
            yield INDEX, LEFT_OUT.sub("", line)


def _sentences(text: str) -> Iterable[str]:
    for line in text.splitlines():
        line = line.strip()
        for sentence in _SENTENCE.split(line) if _STOP.search(line) else (line,):
            if len(sentence) > LONGEST:
                yield from _pieces(sentence)
            elif sentence:
                yield sentence


def _pieces(sentence: str) -> Iterable[str]:
    """A very long sentence in pieces, cut after spaces, commas or semicolons."""
    start = 0
    while len(sentence) - start > LONGEST:
        window = (start + LONGEST // 2, start + LONGEST)
        cut = max(sentence.rfind(mark, *window) for mark in " ,;") + 1
        end = cut or start + LONGEST
        yield sentence[start:end].strip()
        start = end
    yield sentence[start:]
