"""The lines of rows, with their speakers and names, as the source of a summary.

Text of people and models is read in sentences. Arguments of calls (decoded) and results are read in
lines. Only text that a person typed counts as the user's: text that a client added to the user's
message (skills, output of commands, reminders, notices) has the speaker `injected`.

Reminders, checkpoints, thinking and lines without information (courtesies, closing tags, braces)
are not read. Of lines that differ only in their digits, such as log lines, the last one is read. Of
equal lines the last one counts, because it is the current one.

A question that is answered with a statement is left out, because the answer says more. A question
without an answer, or answered with just "yes", stays. A source always has a line: if no text is
long enough, short texts count, and if there is no text at all, the kinds of blocks are listed.

An earlier summary of this engine is read back, if its originals are not available: its sentences
belong to their original speakers, and its index is continued by the new one.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, cast

from msgspec import Struct

from weft import exact_json
from weft.history import Row, split_parts
from weft.lazy import lazy_pattern
from weft.model import Refusal, Text, ToolCall, ToolResult, side, texts

from .names import NAME_KINDS, Name, NameReader
from .plan import block_kind

MARK = "[Summary of earlier messages by the engine"
"""The start of every summary of this engine; the rest of its first line varies."""

FRAME_START, FRAME_END = "[Summary of earlier messages", "[End of the summary]"
"""The start of the first line, and the last line, of a marked summary (`batches.mark_summary`)."""

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
LEFT_OUT = lazy_pattern(r"(?:, |(?<=: )|^)\.\.\. and (\d+) more$")
"""The end of a truncated line of an index."""

RULES = "The user's words"
SECTIONS = {
    "Goal": "user",
    RULES: "user",
    "Decisions": "assistant",
    "Facts that changed": "user",
    "Findings": "assistant",
    "Done": "assistant",
    "Further facts": "assistant",
    "Files": "summary",
    "Commands and their last results": "summary",
    "Current errors": "summary",
    "Current request": "user",
    "Open tasks": "assistant",
    "Next step": "assistant",
    "Last answer": "assistant",
}
"""The sections of a state block, in the order in which they are written, with their speakers."""

CHANGED_LATER = "(changed later)"
_REMARK = lazy_pattern(r" \((?:was: .{1,60}|changed later)\)$")
"""The remark that a state block adds to a sentence that it quotes."""

INDEX = "index"
INJECTED = "injected"
"""The speakers of the index of an earlier summary, and of text that a client added."""

MAX_PIECE_CHARS = 300
"""Longer sentences and lines are split into pieces."""

MIN_CHARS = 12
MIN_WIDE_CHARS = 4
"""The shortest sentence or line that counts; shorter in scripts without spaces."""

MAX_LABEL_CHARS = 80
"""What a call is about is cut to this length in the speaker of its result."""

MAX_COURTESY_CHARS = 120
MAX_WIDE_COURTESY_CHARS = 8
"""A longer sentence is never only a courtesy."""

PEOPLE = ("user", "assistant")
QUESTION = ("?", "？", "؟")
CLOSING = "\"'`)]*_」』）”’"
"""Characters that may follow the end of a sentence."""

PATH_KEYS = ("file_path", "path", "notebook_path", "filename", "file", "target_file", "filePath")
COMMAND_KEYS = ("command", "cmd", "script")
OTHER_KEYS = ("pattern", "query", "url", "glob", "skill", "subagent_type", "description")
"""The arguments that say what a call is about, in the tools of common agents."""

DOCUMENT_CHARS = 1500
"""A longer text is a document, of which fewer sentences matter."""

MAX_ERROR_RESULT = 400
"""A longer result is not read as the report of an error."""

MAX_SERIES_LINES = 3
"""Of more lines than this that differ only in digits, only the last one is read."""

_WIDE = lazy_pattern(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")
"""Characters of scripts without spaces."""

_END = r"[.!?…؟۔।][\"'`)\]*_”’»]?(\s+){}|[。！？｡]+[」』）”’]?"
_SENTENCE = lazy_pattern(_END.format("(?![a-zà-öø-ÿа-яα-ω&])"))
_CHAT_SENTENCE = lazy_pattern(_END.format("(?!&)"))
"""The end of a sentence and the space after it. In a line that starts in lower case, the next
sentence may too."""

_UNFINISHED = lazy_pattern(
    r"(?:\b(?:Mr|Ms|Dr|Mrs|St|No|vs?|Prof|approx|Fig|Sec|pp?|resp|incl|e\.g|i\.e|cf|al"
    r"|[A-Z]|Nr|Abs|Art|ca|bzw|inkl|zzgl|vgl|Str|Tel|z\. ?B|d\. ?h|u\. ?a|o\. ?ä)"
    r"|(?i:\b(?:am|ab|an|der|die|das|des|dem|den|vom|zum|zur|im|bis|seit|und|den|le|el) \d{1,2})"
    r"|^\d{1,2})\.$"
)
"""The end of a text that goes on: an abbreviation, a German ordinal, the number of a list item."""

_SHORT = lazy_pattern(r"\S+(?: \S+)?(?:[.!]\s|[.!]?$)")
"""One or two words up to the end of a sentence: in a chat, they belong to what comes before."""

_MONTH = lazy_pattern(
    r"(?:Jänner|Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November"
    r"|Dezember)\b"
)
_DAY = lazy_pattern(r"\b\d{1,2}\.$")
"""A German date such as "4. Juli" has a full stop that ends no sentence."""

UNFINISHED_CHARS = 12
"""How many characters at the end of a sentence tell whether it goes on."""

BULLETS = frozenset("-*+\u2022")
_BULLETS = lazy_pattern(r"(?:[-*+\u2022]\s+)+")
_NUMBERED = lazy_pattern(r"\s*\d+(?:→|\t|\|)\s?")
"""The line number before a line of a file, as tools print it."""

_DIGITS = lazy_pattern(r"[0-9]+")
_HAS_WORD = lazy_pattern(r"[a-zA-Z]{3}|[^\W\d_]{3}|[^\W\d_a-zA-Z]{2}|\d{3}")
"""A word or a number that is long enough to say something."""

_MARKUP = lazy_pattern(r"</?[\w:.-]+\s*/?>|[\W_]*|(?:end|else|begin|do|then|pass|return)[;,)}\]]*")
"""A line without information: a tag, punctuation, or a keyword that ends a block."""

_ERROR_LINE = lazy_pattern(
    r"\b(?:[A-Z]\w*(?:Error|Exception)|error|fatal|panic|FAILED|FAIL|failed|failure|traceback"
    r"|not found|cannot|undefined|denied|refused)\b|^E\s{2,}|✗|✘|错误|失败",
)
"""A line of output that reports an error."""

_ERROR_PARTS = (
    "rror",
    "xception",
    "fatal",
    "panic",
    "FAIL",
    "fail",
    "traceback",
    "not found",
    "cannot",
    "undefined",
    "denied",
    "refused",
)
"""Parts of the words in `_ERROR_LINE`: without one of them, the slow search is not needed."""

_REPORTS_ERROR = lazy_pattern(
    r'"(?:error|errors)"\s*:\s*(?!null|""|\[\]|false)|"status"\s*:\s*"(?:error|failed)"'
    r"|^\s*(?:HTTP(?:/[\d.]+)? [45]\d\d\b|error\b)",
    re.IGNORECASE,
)
"""The start of a short result that reports an error without being marked as one."""

_REPORT_PARTS = ("rror", "RROR", "HTTP", "http", "failed", "FAILED")
"""Parts of what `_REPORTS_ERROR` matches: without one of them, the slow search is not needed."""

_NO_ERROR = lazy_pattern(
    r"\b(?:0|no|without) (?:errors?|failures?|failed|warnings?)\b", re.IGNORECASE
)
_LOG_LINE = lazy_pattern(r"[\[\]()\d:.,TZ +/-]{0,40}(?:INFO|DEBUG|TRACE|VERBOSE|NOTICE)\b", re.I)
_LOG_STARTS = frozenset("[(0123456789IDTVNidtvn")
"""The first characters of log lines. They are checked first, because most lines are no log
lines."""

_NARRATION = lazy_pattern(
    r"(?:(?:now|next|first|then|ok|okay|good|great|right)\b[,.:]? *)?(?:let me|let's|let us|i'll"
    r"|i will|i am going to|i'm going to|i need to|i can see|starting|continuing|moving on|still"
    r"|almost|waiting|checking|running|time to|expected)\b"
    r"|now (?:add|update|write|create|run|check|fix|the|also|implement|i)\b",
    re.IGNORECASE,
)
"""The start of a sentence in which an agent says what it is about to do."""

_LATIN_WORD = lazy_pattern(r"[^\W\d_]+(?:'[a-z]+)?")
_COURTEOUS = frozenset(
    """
    thanks thank great perfect nice cool super excellent wonderful awesome welcome pleasure hi hello
    hey bye glad happy lovely appreciate fantastic brilliant understood noted sure certainly ok okay
    alright good fine cheers helps danke merci gracias bitte morning evening
    """.split()  # noqa: SIM905
)
_FILLER = frozenset(
    """
    a all am and are as at be been big by course day do everything far for from given go got great
    have help helpful here hope i i'll i'm in is it it's job just keep know let lot looks looking
    many me most much my no now of on one our please problem quite really right so sounds such team
    that that's the there this to today together too up us very was we weekend well will wish with
    work working would yes you you're your yours
    """.split()  # noqa: SIM905
)
"""Words of courtesies, and words that may stand beside them."""

_POLITE = _COURTEOUS | _FILLER
_COURTEOUS_WIDE = ("谢谢", "多谢", "好的", "明白", "收到", "ありがとう", "了解", "감사")

Utterance = tuple[str, str]
"""A speaker, and a verbatim piece of its text."""


class Turn(NamedTuple):
    """A text by a person or a model: its row, its speaker and its sentences."""

    row: int
    speaker: str
    sentences: list[str]


class Line(Struct, frozen=True, gc=False):
    """A verbatim piece of the source: its number in reading order, its row, speaker and names.

    `is_long`: it is part of a long text, such as a pasted document.
    """

    number: int
    row: int
    speaker: str
    text: str
    names: tuple[Name, ...]
    is_long: bool = False

    @property
    def is_prose(self) -> bool:
        """Whether a person or a model wrote it, and not a tool."""
        return self.speaker in _PROSE


class Mentions(Struct, gc=False):
    """How a name occurs in the source: how often, where last, and how often in each field.

    `address` is what a call is about (path, command, pattern), `body` any other argument.
    """

    total: int = 0
    last_row: int = 0
    last_line: int = 0
    user: int = 0
    assistant: int = 0
    address: int = 0
    body: int = 0
    result: int = 0


class _Entry(Struct, gc=False):
    """A distinct text of the source while it is read: where it occurs last, and its mentions by
    field.

    `number` is 0 until the text counts as a line: "Now fix it." does not count if the assistant
    says it, but it does if the user says it. `names` is `None` until they are read.
    """

    text: str
    names: tuple[Name, ...] | None = None
    number: int = 0
    row: int = 0
    speaker: str = ""
    is_long: bool = False
    last_row: int = 0
    last_line: int = 0
    user: int = 0
    assistant: int = 0
    address: int = 0
    body: int = 0
    result: int = 0


class ToolUse(Struct, frozen=True):
    """A call, decoded, and its result."""

    row: int
    name: str
    arguments: dict[str, str]
    path: str
    command: str
    result: str
    is_error: bool
    raw: str

    @property
    def failed(self) -> bool:
        """Whether the result is an error, or a short one that reports an error."""
        result = self.result
        if self.is_error or len(result) > MAX_ERROR_RESULT:
            return self.is_error
        may_report = any([part in result for part in _REPORT_PARTS])
        return may_report and _REPORTS_ERROR.search(result) is not None

    @property
    def address(self) -> str:
        """What the call is about, on one line."""
        about = self.path or self.command
        if not about:
            keys = (key for key in OTHER_KEYS if self.arguments.get(key))
            about = next((self.arguments[key] for key in keys), "")
        return " ".join(about.split())


class Source(Struct, frozen=True):
    """What rows say.

    - `lines`: in order, each text once, at its last place
    - `mentions`: how each name occurs
    - `turns`: the row, the speaker and the sentences of each text by people and models
    - `uses`: the calls with their results
    - `totals`: how many names of each kind there are, with those of earlier indexes
    - `rows`: the number of rows
    - `reader`: has read the names of all lines, so that reading one again is fast
    """

    lines: tuple[Line, ...]
    mentions: dict[Name, Mentions]
    turns: tuple[Turn, ...]
    uses: tuple[ToolUse, ...]
    totals: dict[str, int]
    rows: int
    reader: NameReader


_PROSE = frozenset({"user", "assistant", "summary", "system"})
"""The speakers whose text is read in sentences."""


def read_source(rows: Sequence[Row]) -> Source:
    """The lines, names and calls of rows."""
    return _Reader(rows).read()


def read_turns(rows: Sequence[Row]) -> list[Turn]:
    """The texts of rows by people and models."""
    return [
        Turn(number, author, _sentences(part))
        for number, row in enumerate(rows)
        for block in row.message.blocks
        if isinstance(block, Text | Refusal)
        for author, part in _authors(rows, number, block.text)
        if author in _PROSE
    ]


class _Reader:
    """Reads rows into a `Source`, in one pass.

    - `use_of`: the call with this row and these arguments
    - `labels`: the speaker of the result with this row and block
    - `entries`: by text
    - `outputs`: the entries of each line of output, because most of them are repeated
    - `counted`: the entries that have names, in the order of their first mention
    - `series`: the lines with the same text but for their digits
    - `logs`: by speaker, the number and the row of each line of a log
    - `number`: the number of the last line
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.reader = NameReader()
        self.uses = read_uses(rows)
        self.use_rows = [use.row for use in self.uses]
        self.use_of = {(use.row, use.raw): use for use in self.uses}
        self.labels = _result_labels(rows, self.uses)
        self.turns: list[Turn] = []
        self.entries: dict[str, _Entry] = {}
        self.outputs: dict[str, tuple[_Entry, ...]] = {}
        self.counted: list[tuple[_Entry, tuple[Name, ...]]] = []
        self.series: dict[str, list[str]] = {}
        self.logs: dict[str, dict[str, tuple[int, int]]] = {}
        self.number = 0

    def read(self) -> Source:
        for number, row in enumerate(self.rows):
            self._read_row(number, row)
        self._read_logs()
        self._drop_answered()
        self._drop_series()
        mentions = self._mentions()
        totals = Counter(kind for kind, _ in mentions) + _omitted_names(self.rows)
        lines = [entry for entry in self.entries.values() if entry.number]
        lines.sort(key=attrgetter("number"))
        return Source(
            tuple([_to_line(entry) for entry in lines]) or self._short_lines(),
            mentions,
            tuple(self.turns),
            tuple(self.uses),
            dict(totals),
            len(self.rows),
            self.reader,
        )

    def _read_row(self, number: int, row: Row) -> None:
        for index, block in enumerate(row.message.blocks):
            match block:
                case Text(text=text) | Refusal(text=text):
                    for author, part in _authors(self.rows, number, text):
                        self._read_prose(number, author, part)
                case ToolCall(name=name, arguments=arguments):
                    self._read_call(number, name, arguments)
                case ToolResult(content=content):
                    label = self.labels.get((number, index), "tool")
                    for text in texts(content):
                        self._read_output(number, label, text)
                case _:
                    pass

    def _read_prose(self, row: int, speaker: str, text: str) -> None:
        """Add the sentences of a text by a person or a model, or the index of an old summary."""
        if speaker == INDEX:
            entry = _Entry(text)
            self._count(row, "result", entry, tuple(self.reader.read(text)))
            return
        sentences = _sentences(text)
        if speaker in _PROSE:
            self.turns.append(Turn(row, speaker, sentences))
        field = speaker if speaker in PEOPLE else "result"
        is_long = len(text) > DOCUMENT_CHARS
        for sentence in sentences:
            self._add(row, speaker, self._entry(sentence), field, is_long)

    def _read_call(self, row: int, name: str, arguments: str) -> None:
        """Add the lines of a call's arguments; their speaker is the call."""
        use = self.use_of.get((row, arguments))
        if use is None or not use.arguments:
            for piece in _split_line(arguments.strip()):
                self._add(row, f"call {name}", self._entry(piece), "body")
            return
        for key, value in use.arguments.items():
            is_address = key in PATH_KEYS or key in COMMAND_KEYS or key in OTHER_KEYS
            label = f"call {name}" if is_address or not use.path else f"call {name} {use.path}"
            field = "address" if is_address else "body"
            for raw_line in value.splitlines():
                line = _without_bullet(raw_line.strip())
                for piece in _split_line(line) if len(line) > MAX_PIECE_CHARS else (line,):
                    self._add(row, label, self._entry(piece), field)

    def _read_output(self, row: int, label: str, text: str) -> None:
        """Add the lines of a result, without line numbers; lines of a log are kept apart."""
        outputs = self.outputs
        for raw_line in text.splitlines():
            entries = outputs.get(raw_line)
            if entries is None:
                line = raw_line.strip()
                if "→" in line[:8] or "\t" in line[:8] or "|" in line[:6]:
                    line_number = _NUMBERED.match(line)
                    line = line[line_number.end() :] if line_number else line
                if is_log_line(line):
                    self._add_log(row, label, line)
                    continue
                entries = outputs[raw_line] = self._output_entries(line)
            for entry in entries:
                if not entry.number or entry.speaker == "user":
                    self._add(row, label, entry, "result")
                    continue
                # The same as `_add` for a known line, but faster: most lines are repeated.
                number = self.number = self.number + 1
                if entry.names:
                    entry.result += 1
                    entry.last_row = row
                    entry.last_line = number
                entry.number = number
                entry.row = row
                entry.speaker = label
                entry.is_long = False

    def _output_entries(self, line: str) -> tuple[_Entry, ...]:
        """The entries of a line of output without its bullet; several if the line is long."""
        line = _without_bullet(line)
        if len(line) > MAX_PIECE_CHARS:
            return tuple([self._entry(piece) for piece in _split_line(line)])
        return (self._entry(line),) if line else ()

    def _entry(self, text: str) -> _Entry:
        """The entry of a text; a new one if the text is new."""
        entry = self.entries.get(text)
        if entry is None:
            entry = self.entries[text] = _Entry(text)
        return entry

    def _add(
        self, row: int, speaker: str, entry: _Entry, field: str, is_long: bool = False
    ) -> None:
        """Count the names of an entry, and make it the current line if it is worth reading.

        What the user said stays the user's, even if others repeat it.
        """
        text, is_new = entry.text, not entry.number
        names = entry.names
        if names is None:
            names = entry.names = tuple(self.reader.read(text))
        if names:
            self._count(row, field, entry, names)
        if is_new and not self._is_worth_reading(speaker, text, names):
            return
        self.number += 1
        entry.number = self.number
        if is_new or entry.speaker != "user" or speaker == "user":
            entry.speaker, entry.row = speaker, row
        entry.names, entry.is_long = names, is_long
        if is_new and names and field == "result":
            self.series.setdefault(_DIGITS.sub("0", text), []).append(text)

    def _add_log(self, row: int, label: str, line: str) -> None:
        """Add a line of a log. Its names do not count."""
        if len(line) < MIN_CHARS or _HAS_WORD.search(line) is None:
            return
        self.number += 1
        lines = self.logs.setdefault(label, {})
        lines.pop(line, None)
        lines[line] = self.number, row

    def _read_logs(self) -> None:
        """Add an entry for each line of a log; of a long log only for the last line."""
        for label, lines in self.logs.items():
            for line in list(lines)[-1 if len(lines) > MAX_SERIES_LINES else 0 :]:
                entry = self._entry(line)
                entry.number, row = lines[line]
                entry.names = entry.names or ()
                if entry.speaker != "user":
                    entry.speaker, entry.row = label, row

    def _is_worth_reading(self, speaker: str, text: str, names: Sequence[Name]) -> bool:
        """Whether a text counts as a line: it is long enough and has information."""
        if len(text) < MIN_CHARS and (len(text) < MIN_WIDE_CHARS or not _WIDE.search(text)):
            return False
        if speaker == "assistant" and not names and is_narration(text):
            return False
        if speaker in _PROSE:
            return not is_courtesy(text) and bool(names or _has_content(text))
        return _MARKUP.fullmatch(text) is None and _HAS_WORD.search(text) is not None

    def _count(self, row: int, field: str, entry: _Entry, names: tuple[Name, ...]) -> None:
        """Count one more mention of the names of an entry in this field."""
        if not entry.last_line:
            self.counted.append((entry, names))
        entry.last_row = row
        entry.last_line = self.number + 1
        if field == "result":
            entry.result += 1
        elif field == "address":
            entry.address += 1
        elif field == "body":
            entry.body += 1
        elif field == "user":
            entry.user += 1
        else:
            entry.assistant += 1

    def _mentions(self) -> dict[Name, Mentions]:
        """How each name occurs, in the order of the first mentions."""
        mentions: dict[Name, Mentions] = {}
        for entry, names in self.counted:
            total = entry.user + entry.assistant + entry.address + entry.body + entry.result
            for name in names:
                mention = mentions.get(name)
                if mention is None:
                    mention = mentions[name] = Mentions()
                mention.total += total
                if entry.last_line > mention.last_line:
                    mention.last_line = entry.last_line
                if entry.last_row > mention.last_row:
                    mention.last_row = entry.last_row
                mention.user += entry.user
                mention.assistant += entry.assistant
                mention.address += entry.address
                mention.body += entry.body
                mention.result += entry.result
        return mentions

    def _drop_series(self) -> None:
        """Keep only the last line of each series."""
        for series in self.series.values():
            if len(series) <= MAX_SERIES_LINES:
                continue
            entries = [self.entries[text] for text in dict.fromkeys(series)]
            lines = [entry for entry in entries if entry.number]
            if len(lines) > MAX_SERIES_LINES:
                last = max(entry.number for entry in lines)
                for entry in lines:
                    if entry.number != last:
                        entry.number = 0

    def _drop_answered(self) -> None:
        """Remove questions that another speaker answers with a statement.

        A question of the assistant that the user answers stays, because the answer may be "B".
        """
        for number, (_, speaker, sentences) in enumerate(self.turns):
            if speaker != "user" or not any(is_question(sentence) for sentence in sentences):
                continue
            answers = _replies(self.turns, number)
            has_answer = any(map(_has_statement, answers)) or self._has_calls_after(number)
            for sentence in sentences if has_answer else ():
                if is_question(sentence):
                    self._entry(sentence).number = 0

    def _has_calls_after(self, number: int) -> bool:
        """Whether there are calls between turn `number` and the next turn of the user."""
        later_turns = (self.turns[later] for later in range(number + 1, len(self.turns)))
        user_rows = (turn.row for turn in later_turns if turn.speaker == "user")
        end = next(user_rows, len(self.rows))
        first_call = bisect_right(self.use_rows, self.turns[number].row)
        return first_call < len(self.uses) and self.uses[first_call].row < end

    def _short_lines(self) -> tuple[Line, ...]:
        """All pieces, however short, for rows without lines; without text, the kinds of blocks."""
        pieces = dict.fromkeys(
            (speaker, piece)
            for row in self.rows
            for speaker, piece in _all_texts(row)
            if piece.strip()
        )
        if not pieces:
            kinds = Counter(block_kind(block) for row in self.rows for block in row.message.blocks)
            listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
            listed = listed or "empty messages"
            pieces = {("without words", listed): None}
        return tuple(
            Line(number, 0, speaker, piece, ()) for number, (speaker, piece) in enumerate(pieces)
        )


def _to_line(entry: _Entry) -> Line:
    return Line(
        entry.number, entry.row, entry.speaker, entry.text, entry.names or (), entry.is_long
    )


def names_of(rows: Sequence[Row], reader: NameReader) -> set[Name]:
    """All names in the texts, calls and results of rows."""
    names: set[Name] = set()
    for row in rows:
        for block in row.message.blocks:
            match block:
                case Text(text=text) | Refusal(text=text):
                    parts = [text]
                case ToolCall(arguments=arguments):
                    parts = list(decode_arguments(arguments).values())
                case ToolResult(content=content):
                    parts = list(texts(content))
                case _:
                    parts = []
            names.update(
                name for part in parts for line in part.splitlines() for name in reader.read(line)
            )
    return names


def read_uses(rows: Sequence[Row]) -> list[ToolUse]:
    """The calls of rows, decoded, with their results."""
    results: dict[str, list[tuple[int, ToolResult]]] = {}
    for number, row in enumerate(rows):
        for block in row.message.blocks:
            if isinstance(block, ToolResult):
                results.setdefault(block.call_id, []).append((number, block))
    uses: list[ToolUse] = []
    for number, row in enumerate(rows):
        for block in row.message.blocks:
            if isinstance(block, ToolCall):
                later = (result for at, result in results.get(block.id, ()) if at > number)
                uses.append(_tool_use(number, block, next(later, None)))
    return uses


def _tool_use(row: int, call: ToolCall, result: ToolResult | None) -> ToolUse:
    """A call of this row with its arguments decoded."""
    arguments = decode_arguments(call.arguments)
    path = next((arguments[key] for key in PATH_KEYS if arguments.get(key)), "")
    command = next((arguments[key] for key in COMMAND_KEYS if arguments.get(key)), "")
    output = "" if result is None else "\n".join(texts(result.content))
    is_error = bool(result is not None and result.is_error)
    return ToolUse(row, call.name, arguments, path, command, output, is_error, call.arguments)


def decode_arguments(arguments: str) -> dict[str, str]:
    """The texts in a call's arguments, by their keys; empty if they are not a JSON object."""
    try:
        value = exact_json.loads_as_floats(arguments)
    except exact_json.JSONDecodeError:
        return {}
    texts_by_key: dict[str, str] = {}
    if isinstance(value, dict):
        for key, inner in cast(dict[str, Any], value).items():
            _collect_texts(key, inner, texts_by_key)
    return texts_by_key


def _collect_texts(key: str, value: object, texts_by_key: dict[str, str]) -> None:
    """Add the texts in a JSON value; inner ones have keys such as `todos.0.content`."""
    if isinstance(value, str):
        texts_by_key[key] = value
    elif isinstance(value, dict):
        for name, inner in cast(dict[str, Any], value).items():
            _collect_texts(f"{key}.{name}", inner, texts_by_key)
    elif isinstance(value, list):
        for number, inner in enumerate(cast(list[Any], value)):
            _collect_texts(f"{key}.{number}", inner, texts_by_key)


def _result_labels(rows: Sequence[Row], uses: Sequence[ToolUse]) -> dict[tuple[int, int], str]:
    """By row and block, the speaker of each result: its tool, and what the call was about.

    `uses` are the calls of the rows, in order.
    """
    labels: dict[tuple[int, int], str] = {}
    calls: dict[str, str] = {}
    next_use = iter(uses)
    for number, row in enumerate(rows):
        for index, block in enumerate(row.message.blocks):
            if isinstance(block, ToolCall):
                about = next(next_use).address
                about = (
                    about if len(about) <= MAX_LABEL_CHARS else about[: MAX_LABEL_CHARS - 3] + "..."
                )
                calls[block.id] = f"tool {block.name} {about}".strip()
            elif isinstance(block, ToolResult):
                default = f"tool {block.name or ''}".strip()
                labels[number, index] = calls.get(block.call_id, default)
    return labels


def _is_command(rows: Sequence[Row], number: int) -> bool:
    """Whether a row is a slash command or a skill that the user called in Claude Code."""
    if number < 0 or rows[number].message.role != "user":
        return False
    return "<command-name>" in rows[number].message.text[:400]


def _authors(rows: Sequence[Row], number: int, text: str) -> Iterable[Utterance]:
    """The parts of a text of row `number`, each with its author."""
    row = rows[number]
    speaker = "summary" if row.kind == "summary" else side(row.message.role)
    # Claude Code expands a command into the next message of the user.
    if speaker == "user" and _is_command(rows, number - 1):
        return ((INJECTED, text),)
    return _split_text(speaker, text)


def _sentences(text: str) -> list[str]:
    return [_without_bullet(piece) for piece in split_sentences(text)]


def _split_text(speaker: str, text: str) -> Iterable[Utterance]:
    """The parts of a text, each with its author: the speaker, a client that added it, or the
    speakers in an earlier summary."""
    if text.startswith(MARK):
        return _read_summary(text)
    if speaker == "summary":
        lines = (
            line for line in text.splitlines() if not line.startswith((FRAME_START, FRAME_END))
        )
        return ((speaker, "\n".join(lines)),)
    return split_injected(text) if speaker == "user" else ((speaker, text),)


def has_typed_text(row: Row) -> bool:
    """Whether a row has text that the user typed, and that no client added."""
    return (
        row.message.role == "user"
        and row.kind != "summary"
        and any(
            author == "user"
            for block in row.message.blocks
            if isinstance(block, Text) and block.text.strip()
            for author, _ in split_injected(block.text)
        )
    )


def split_injected(text: str) -> list[Utterance]:
    """The parts of a user's message: what was typed, and what a client added."""
    return [("user" if part.is_typed else INJECTED, part.text) for part in split_parts(text)]


def _read_summary(summary: str) -> Iterator[Utterance]:
    """The sentences of an earlier summary of this engine with their speakers, and its index."""
    speaker = "summary"
    index_labels = tuple(f"{label}: " for label in LABELS.values())
    for line in summary.splitlines()[1:]:
        if line == FRAME_END:
            continue
        if line.startswith(BULLET):
            yield speaker, _REMARK.sub("", line.removeprefix(BULLET))
        elif line.startswith("  "):
            yield speaker, _REMARK.sub("", line.strip())
        elif line.endswith(":"):
            heading = line.removesuffix(":")
            speaker = SECTIONS.get(heading, heading)
        elif line.startswith(index_labels):
            yield INDEX, LEFT_OUT.sub("", line)
        elif line:
            yield "summary", line


def split_sentences(text: str) -> Iterator[str]:
    """The sentences of a text, in any script; very long ones in pieces."""
    for raw in text.splitlines():
        line = raw.strip()
        if not line:
            continue
        for sentence in _split_at_ends(line):
            if len(sentence) > MAX_PIECE_CHARS:
                yield from _split_line(sentence)
            elif sentence:
                yield sentence


def _split_at_ends(line: str) -> list[str]:
    """The sentences of a line, whatever their length."""
    is_chat = line[0].islower()
    sentences: list[str] = []
    start = 0
    for match in (_CHAT_SENTENCE if is_chat else _SENTENCE).finditer(line):
        end = match.end()
        stop = end if match[1] is None else match.start(1)
        if end == len(line) or _goes_on(line, stop, end):
            continue
        if is_chat and _SHORT.match(line, end):
            continue  # "... at the end. always."
        sentences.append(line[start:stop])
        start = end
    sentences.append(line[start:])
    return sentences


def _goes_on(line: str, stop: int, start: int) -> bool:
    """Whether the full stop before `stop` does not end the sentence: "4. Juli", "Ms. Okafor".

    `start` is where the next word begins.
    """
    if line[stop - 1] != ".":
        return False
    before = line[max(0, stop - UNFINISHED_CHARS) : stop]
    if _DAY.search(before) and _MONTH.match(line, start):
        return True
    return _UNFINISHED.search(before) is not None


def _split_line(line: str) -> Iterator[str]:
    """A long line in pieces, cut after spaces, commas or semicolons."""
    start = 0
    while len(line) - start > MAX_PIECE_CHARS:
        middle, latest = start + MAX_PIECE_CHARS // 2, start + MAX_PIECE_CHARS
        cut = max(line.rfind(mark, middle, latest) for mark in " ,;、，") + 1
        end = cut or latest
        yield line[start:end].strip()
        start = end
    if line[start:].strip():
        yield line[start:].strip()


def _without_bullet(piece: str) -> str:
    """A list item without its bullet, because the summary adds its own."""
    if piece[:1] not in BULLETS:
        return piece
    bullet = _BULLETS.match(piece)
    return piece if bullet is None else piece[bullet.end() :] or piece


def is_error_line(line: str) -> bool:
    """Whether a line of output reports an error."""
    if line.isascii() and line[:1] != "E" and not any([part in line for part in _ERROR_PARTS]):
        return False
    return _ERROR_LINE.search(line) is not None and _NO_ERROR.search(line) is None


def is_log_line(line: str) -> bool:
    """Whether a line of output is a log line that reports no error."""
    return line[:1] in _LOG_STARTS and _LOG_LINE.match(line) is not None and not is_error_line(line)


def is_narration(sentence: str) -> bool:
    """Whether an agent says in a sentence what it is about to do."""
    return _NARRATION.match(sentence) is not None


def is_question(sentence: str) -> bool:
    """Whether a sentence ends with a question mark, or with "?!"."""
    return sentence.rstrip(CLOSING).rstrip("!！").endswith(QUESTION)


def is_courtesy(sentence: str) -> bool:
    """Whether a sentence is only thanks, praise or agreement."""
    if len(sentence) > MAX_COURTESY_CHARS:
        return False
    if sentence.startswith(_COURTEOUS_WIDE):
        return len(sentence) <= MAX_WIDE_COURTESY_CHARS
    lowered = sentence.lower()
    first = _LATIN_WORD.search(lowered)
    if first is None or first[0] not in _POLITE:  # decides most sentences
        return False
    words = set(_LATIN_WORD.findall(lowered))
    is_polite = not words.isdisjoint(_COURTEOUS) and words <= _POLITE
    return is_polite and not any(char.isdigit() for char in sentence)


def _has_content(text: str) -> bool:
    """Whether a sentence has a figure, or two words that are not only there for politeness."""
    if any(char.isdigit() for char in text) or _WIDE.search(text):
        return True
    words = {word for word in _LATIN_WORD.findall(text.lower()) if len(word) > 3}
    return len(words - _COURTEOUS - _FILLER) > 1


def _has_statement(turn: Turn) -> bool:
    """Whether a turn has a sentence that is no question and no courtesy."""
    _, speaker, sentences = turn
    return speaker in _PROSE and any(
        len(sentence) >= MIN_CHARS and not is_question(sentence) and not is_courtesy(sentence)
        for sentence in sentences
    )


def _replies(turns: Sequence[Turn], number: int) -> Iterator[Turn]:
    """The turns of others that follow a turn, up to the next one by the same speaker."""
    speaker = turns[number].speaker
    for later in range(number + 1, len(turns)):
        if turns[later].speaker == speaker:
            return
        yield turns[later]


def _all_texts(row: Row) -> Iterator[Utterance]:
    """Every sentence, call and result of a row with its speaker, however short."""
    speaker = "summary" if row.kind == "summary" else side(row.message.role)
    for block in row.message.blocks:
        match block:
            case Text(text=text) | Refusal(text=text):
                for author, part in _split_text(speaker, text):
                    if author != INDEX:
                        yield from ((author, piece) for piece in split_sentences(part))
            case ToolCall(name=name, arguments=arguments):
                yield f"call {name}", arguments
            case ToolResult(name=name, content=content):
                yield from ((f"tool {name or ''}".strip(), text) for text in texts(content))
            case _:
                pass


def _omitted_names(rows: Sequence[Row]) -> Counter[str]:
    """The number of names of each kind that the indexes of earlier summaries leave out."""
    counts: Counter[str] = Counter()
    kinds = {LABELS[kind]: kind for kind in NAME_KINDS}
    for row in rows:
        lines = row.message.text.splitlines() if row.message.text.startswith(MARK) else ()
        for line in lines:
            kind, cut = kinds.get(line.partition(":")[0]), LEFT_OUT.search(line)
            if kind and cut:
                counts[kind] += int(cut[1])
    return counts
