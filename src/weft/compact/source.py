"""The sentences and names of rows, as the source of a summary.

A question that somebody answers with a statement is left out: the answer says more. Its names still
count for the index. A question that nobody answers, or that is answered with a bare "yes", stays.
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
"""How much each kind is worth in a summary, before rarity."""

SPACES = " \u00a0\u2009\u202f'\u2019"
"""What may stand between the thousands of a figure, beside a comma. A plain blank may also stand
between two figures of a list: as an entity that is one, in the words that were said."""

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
"""Words that no entity can begin with, up to a blank each: most of what is ever said. They are
passed over in one run, because every other alternative would be tried at each of their letters."""

_START = r"(?: (?<!\w) (?= [\w/~.@+\-`$€£] ) | (?= https?:// | ` ) )"
"""Where an entity may begin: at a word or a sign, within a word only an address or a quote."""

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
"""How every summary of this engine begins, however its first line goes on."""

LABELS = {
    "path": "Paths",
    "error": "Errors",
    "symbol": "Symbols",
    "hash": "Hashes",
    "number": "Numbers",
}
"""How the lines of an index begin, by the kind of name."""

BULLET = "- "
MORE = "... and {} more"
INDEX = "index"
LONGEST = 300
SHORTEST = 12
INDEX_MOST = 400
WORTH = {"user": 6.0, "assistant": 3.0, "summary": 3.0, "call": 0.6, "tool": 0.4}
"""What a speaker's words are worth: a tool's output can be had again, a wish cannot."""

IMPORTANT = 2.0
DECISIVE = 1.5
ASKING = ("user", "assistant")
QUESTION = ("?", "？")
CLOSING = "\"'`)]*_"
"""What may stand behind the mark of a question."""


_STOP = re.compile(r"[.!?]\s")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'`(\[]?[A-Z0-9])")
_WORD = re.compile(r"[^\W\d_]{4,}|(?<![\w.])\d+(?![\w→])")
LEFT_OUT = re.compile(r"(?:, |(?<=: )|^)\.\.\. and (\d+) more$")
"""How a line of an index ends that is not whole."""

_MARKS = re.compile(r"(?:[-*+\u2022]\s+)+")
_DECISIVE = re.compile(
    r"\b(?=[abcdefimnoprt])(?:must|never|always|decided?|agreed|because|instead|constraint|require[sd]?|requirement"
    r"|do not|don't|only|prefer|fix(?:ed)?|bug|fail(?:s|ed|ure)?|error|todo|next)\b",
)
_DECISIVE_ANYHOW = re.compile(_DECISIVE.pattern, re.IGNORECASE)

Name = tuple[str, str]
"""An entity: its kind, and its verbatim spelling."""

Said = tuple[str, str]
"""A speaker, and a verbatim piece of what it says."""


class Sentence(Struct, frozen=True, gc=False):
    """A verbatim piece of the source, who said it, and what it would cover."""

    number: int
    speaker: str
    text: str
    covers: frozenset[str]
    factor: float


class Source(Struct, frozen=True):
    """What rows say: their sentences in order; their entities, the most spoken of first; how many
    of each kind there are in all."""

    sentences: tuple[Sentence, ...]
    names: tuple[Name, ...]
    totals: dict[str, int]


def read_source(rows: Sequence[Row]) -> Source:
    """The sentences and entities of rows."""
    called = _called(rows)
    said = [list(_spoken(row, called)) for row in rows]
    answered = _answered(rows, said)
    spoken: dict[Name, float] = {}
    entities: dict[str, tuple[Name, ...]] = {}
    sentences: dict[str, Sentence] = {}
    for row, pieces, has_answer in zip(rows, said, answered, strict=True):
        factor = IMPORTANT if row.priority == "important" else 1.0
        for speaker, piece in pieces:
            if piece not in entities:
                entities[piece] = tuple(find_entities(piece))
            found = entities[piece]
            voice = _voice(speaker) if found else 0.0
            for entity in found:
                spoken[entity] = spoken.get(entity, 0.0) + WEIGHTS[entity[0]] * voice
            idle = speaker == INDEX or len(piece) < SHORTEST or piece in sentences
            if not idle and not (has_answer and _asks(speaker, piece)):
                sentences[piece] = _weigh(len(sentences), speaker, piece, found, factor)
    names = sorted(spoken, key=lambda entity: -spoken[entity])
    totals = Counter(kind for kind, _ in names) + _left_out(rows)
    told = tuple(sentences.values()) or _whatever(rows, said)
    return Source(told, tuple(names[:INDEX_MOST]), dict(totals))


def _left_out(rows: Sequence[Row]) -> Counter[str]:
    """How many names of each kind the indexes of earlier summaries say they leave out."""
    left: Counter[str] = Counter()
    kinds = {label: kind for kind, label in LABELS.items()}
    for row in rows:
        lines = row.message.text.splitlines() if row.message.text.startswith(MARK) else ()
        for line in lines:
            kind, cut = kinds.get(line.partition(":")[0]), LEFT_OUT.search(line)
            if kind and cut:
                left[kind] += int(cut[1])
    return left


def _whatever(rows: Sequence[Row], said: Sequence[Sequence[Said]]) -> tuple[Sentence, ...]:
    """The short words that are all there is, or what kinds of blocks have none."""
    pieces = dict.fromkeys(
        (speaker, piece) for row in said for speaker, piece in row if speaker != INDEX
    )
    if not pieces:
        kinds = Counter(block_kind(block) for row in rows for block in row.message.blocks)
        listed = ", ".join(f"{many} {kind}" for kind, many in kinds.items()) or "empty messages"
        pieces = {("without words", listed): None}
    return tuple(
        Sentence(number, speaker, piece, frozenset(), 1.0)
        for number, (speaker, piece) in enumerate(pieces)
    )


def _answered(rows: Sequence[Row], said: Sequence[Sequence[Said]]) -> list[bool]:
    """For each row whether somebody else states something before its speaker has the word again.

    Read from the end: `heard` is, for a voice, whether others stated something since the run of
    its rows that comes next.
    """
    answered = [False] * len(rows)
    heard: dict[str, bool] = {}
    later = ""
    for number in range(len(rows) - 1, -1, -1):
        voice = _row_voice(rows[number])
        if voice != later:
            heard[later] = False
        later = voice
        answered[number] = voice in ASKING and heard.get(voice, False)
        if any(_states(speaker, piece) for speaker, piece in said[number]):
            heard.update((other, True) for other in ASKING if other != voice)
    return answered


def _row_voice(row: Row) -> str:
    if row.kind == "summary":
        return "summary"
    typed = any(isinstance(block, Text) for block in row.message.blocks)
    results = any(isinstance(block, ToolResult) for block in row.message.blocks)
    return "tool" if results and not typed else side(row.message.role)


def _asks(speaker: str, piece: str) -> bool:
    return speaker in ASKING and piece.rstrip(CLOSING).endswith(QUESTION)


def _states(speaker: str, piece: str) -> bool:
    spoken = speaker != INDEX and not speaker.startswith("call ")
    return spoken and len(piece) >= SHORTEST and not _asks(speaker, piece)


def _voice(speaker: str) -> float:
    return WORTH.get(speaker.partition(" ")[0], 1.0)


def _weigh(
    number: int, speaker: str, text: str, entities: Iterable[Name], factor: float
) -> Sentence:
    covers = {f"{kind}:{name}" for kind, name in entities}
    words, decides = _read_words(text)
    covers.update(words)
    factor *= _voice(speaker) * (DECISIVE if decides else 1.0)
    return Sentence(number, speaker, text, frozenset(covers), factor)


def _read_words(text: str) -> tuple[Iterable[str], bool]:
    """The words of a text in small letters, and whether one of them decides something."""
    if not text.isascii():
        return map(str.lower, _WORD.findall(text)), _DECISIVE_ANYHOW.search(text) is not None
    text = text.lower()  # a pattern that minds no case takes twice as long
    return _WORD.findall(text), _DECISIVE.search(text) is not None


def _called(rows: Sequence[Row]) -> dict[str, str]:
    """The names of the tools by the ids of their calls: most wires leave them out of a result."""
    blocks = (block for row in rows for block in row.message.blocks)
    return {block.id: block.name for block in blocks if isinstance(block, ToolCall)}


def _spoken(row: Row, called: dict[str, str]) -> Iterable[Said]:
    """Who says what in a row, sentence by sentence: words, arguments of calls, results."""
    speaker = "summary" if row.kind == "summary" else side(row.message.role)
    for block in row.message.blocks:
        for text in _said(block):
            who = _speaker(block, speaker, called)
            for teller, words in _resaid(text) if text.startswith(MARK) else ((who, text),):
                for piece in _sentences(words):
                    yield teller, _unmarked(teller, piece)


def _unmarked(teller: str, piece: str) -> str:
    """A line of a list without its mark, for it is listed again. What a tool prints is left as it
    is: in a difference the mark is what it says."""
    mark = None if teller.startswith(("tool", "call")) else _MARKS.match(piece)
    return piece if mark is None else piece[mark.end() :] or piece


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


def _resaid(summary: str) -> Iterable[Said]:
    """An earlier summary of this engine, read back: who said what, and its index."""
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
    """A sentence, or what a very long one comes to when cut behind its blanks or commas."""
    start = 0
    while len(sentence) - start > LONGEST:
        window = (start + LONGEST // 2, start + LONGEST)
        cut = max(sentence.rfind(mark, *window) for mark in " ,;") + 1
        end = cut or start + LONGEST
        yield sentence[start:end].strip()
        start = end
    yield sentence[start:]
