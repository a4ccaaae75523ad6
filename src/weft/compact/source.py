"""What rows say, as a source of quotations: lines with their names, typed messages, and calls.

A *passage* is one source text: a text block (or the part of it that the user typed, or a client
added), a string in the arguments of a call, or a result. A *line* is a piece of a passage: a
sentence of a person or a model, or a line of a call or a result. Every line is a verbatim part of
its passage. Of equal lines the last one counts, because it is the current one, but what the user
typed stays the user's if a tool prints it again.

Rows are read one after the other, in any number of steps (`Source.read`), so that more rows can be
added to what was read before.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, cast

from msgspec import Struct, structs

from weft import exact_json
from weft.history import Row, split_parts
from weft.lazy import lazy_pattern
from weft.model import Refusal, Text, ToolCall, ToolResult, side, texts

from .names import Name, NameReader

MARK = "[Summary of earlier messages by the engine"
"""The start of every extract of this engine; the rest of its first line varies."""

FRAME_START, FRAME_END = "[Summary of earlier messages", "[End of the summary]"
"""The start of the first line, and the last line, of a marked summary (`batches.mark_summary`)."""

BULLET = "- "
NAMES = "Other names: "
"""The start of an index."""

Voice = Literal["user", "assistant", "system", "summary", "client", "call", "result"]
"""Who speaks in a passage; `client` is text that a client added to a message of the user."""

PATH_KEYS = ("file_path", "path", "notebook_path", "filename", "file", "target_file", "filePath")
COMMAND_KEYS = ("command", "cmd", "script")
ADDRESS_KEYS = (*PATH_KEYS, *COMMAND_KEYS, "pattern", "query", "url", "glob", "skill")
"""The arguments that say what a call is about, in the tools of common agents."""

NEW_TEXT_KEYS = frozenset(
    {"content", "new_string", "new_str", "file_text", "new_source", "insert_text", "edits", "diff"}
)
"""The arguments with the new text of a file: a call with a path and one of them changes it."""

MAX_LINE_CHARS = 300
"""Longer sentences and lines are split into pieces: a line competes with others for its tokens, and
few sentences are longer."""

SHORT_CHARS = 14
"""A shorter sentence stays with the one before it: "Yes.", "Thanks a lot."."""

_SENTENCE_END = lazy_pattern(
    r"(?<=[.!?…])(?<!\b\d\.)(?<!\b\d\d\.)"  # but not after "4." in a list or a date
    r"(?<!\b[A-Z]\.)(?<!\b[A-Z][a-z]\.)(?<!\b[A-Z][a-z][a-z]\.)"  # nor after "J.", "Dr.", "Mrs."
    r"[\"'`)\]*_”’»]?\s+(?=[^a-z\s])|(?<=[。！？])"
)
_LINE_NUMBER = lazy_pattern(r"\s*\d+(?:→|\t|\|)\s?")
_BULLETS = lazy_pattern(r"(?:[-*+\u2022]\s+)+")
_INFORMATIVE = lazy_pattern(r"[^\W\d_]{3}|[^\W\d_a-zA-Z]{2}|\d{3}")
"""A word or a number that is long enough to say something."""

_PATCHED = lazy_pattern(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$", re.MULTILINE)
"""The files of a patch in Codex's format."""


class Passage(Struct, frozen=True, gc=False, eq=False):
    """One source text.

    - `row`, `block`, `part`: where it is: the number of its row and of its block, and the number of
      the string in the arguments, of the text in the result, or where the typed part starts
    - `tool`: the name of the tool of a call or a result
    - `about`: for a result or another argument of a call, what the call is about
    """

    row: int
    block: int
    part: int
    voice: Voice
    text: str
    tool: str = ""
    about: "Passage | None" = None


class Line(Struct, frozen=True, gc=False, eq=False):
    """A piece of a passage, between `start` and `end`; `number` counts lines in reading order."""

    passage: Passage
    start: int
    end: int
    number: int
    text: str
    names: tuple[Name, ...]

    @property
    def is_prose(self) -> bool:
        """Whether a person or a model wrote it, and not a tool or a client."""
        return self.passage.voice in ("user", "assistant", "system", "summary")


class Mentions(Struct, gc=False):
    """How a name occurs in the source: how often, in which row last, and how often in each field.

    `address` is what a call is about (path, command, pattern), `body` any other argument.
    `last_line` is the number of the line of its last mention.
    """

    total: int = 0
    last_row: int = 0
    last_line: int = 0
    user: int = 0
    assistant: int = 0
    address: int = 0
    body: int = 0
    result: int = 0


class ToolUse(Struct, gc=False):
    """A call, its arguments as passages by key, and its result."""

    row: int
    name: str
    arguments: dict[str, Passage]
    about: Passage | None
    result: Passage | None = None
    is_error: bool = False

    def find(self, keys: Sequence[str]) -> Passage | None:
        """The first argument with one of these keys; of a list its last member."""
        for key in keys:
            if key in self.arguments:
                return self.arguments[key]
            members = [name for name in self.arguments if name.startswith(f"{key}.")]
            if members:
                return self.arguments[members[-1]]
        return None

    @property
    def command(self) -> Passage | None:
        return self.find(COMMAND_KEYS)

    @property
    def files(self) -> "list[tuple[Passage, int, int, bool]]":
        """The files of the call, each as a piece of a passage, and whether the call changed it."""
        path = self.find(PATH_KEYS)
        if path is not None:
            changes = any(key.partition(".")[0] in NEW_TEXT_KEYS for key in self.arguments)
            return [(path, 0, len(path.text), changes)]
        return [
            (passage, *match.span(1), True)
            for passage in self.arguments.values()
            if "*** " in passage.text
            for match in _PATCHED.finditer(passage.text)
        ]


class TypedMessage(NamedTuple):
    """A text that the user typed, whole."""

    passage: Passage

    @property
    def key(self) -> str:
        return self.passage.text.strip()


_FIELDS: dict[Voice, str] = {"user": "user", "assistant": "assistant"}
"""The members of `Mentions` that count the names of a voice, if that is not `result`."""


class Source:
    """What rows say.

    - `lines`: by text, each at its last place
    - `mentions`: how each name occurs
    - `typed`: the texts that the user typed, by text, in order
    - `last_answer`: the last text of the assistant
    - `passages`: all source texts, in order
    - `uses`: the calls with their results
    - `row_count`: the number of the last row, plus one
    """

    def __init__(self) -> None:
        self.passages: list[Passage] = []
        self.lines: dict[str, Line] = {}
        self.mentions: dict[Name, Mentions] = {}
        self.typed: dict[str, TypedMessage] = {}
        self.last_answer: Passage | None = None
        self.uses: list[ToolUse] = []
        self.row_count = 0
        self.reader = NameReader()
        self._use_of: dict[str, ToolUse] = {}
        self._number = 0
        self._is_command = False
        self._outputs: dict[str, tuple[tuple[int, int, str], ...]] = {}

    def read(self, rows: Sequence[Row], first: int = 0) -> None:
        """Read rows; the first one has the number `first`."""
        for number, row in enumerate(rows, first):
            # Claude Code expands a slash command into the next message of the user.
            is_command = row.message.role == "user" and "<command-name>" in row.message.text[:400]
            for index, block in enumerate(row.message.blocks):
                match block:
                    case Text(text=text) | Refusal(text=text):
                        self._read_text(number, index, row, text)
                    case ToolCall():
                        self._read_call(number, index, block)
                    case ToolResult():
                        self._read_result(number, index, block)
                    case _:
                        pass
            self._is_command = is_command
        self.row_count = max(self.row_count, first + len(rows))

    def _read_text(self, row: int, block: int, source: Row, text: str) -> None:
        """Read the text of a person, a model, a client or an earlier summary."""
        role = side(source.message.role)
        if source.kind == "summary" or text.startswith(FRAME_START):
            start, end = _without_frame(text)
            self._read_prose(Passage(row, block, start, "summary", text[start:end]))
        elif role == "assistant":
            self.last_answer = Passage(row, block, 0, "assistant", text)
            self._read_prose(self.last_answer)
        elif role != "user":
            for part in split_parts(text):
                if part.is_typed:
                    self._read_prose(Passage(row, block, part.start, "system", part.text))
        elif self._is_command:
            self._read_prose(Passage(row, block, 0, "client", text))
        else:
            for part in split_parts(text):
                voice = "user" if part.is_typed else "client"
                passage = Passage(row, block, part.start, voice, part.text)
                if part.is_typed:
                    message = TypedMessage(passage)
                    self.typed.pop(message.key, None)  # an equal later message replaces it
                    self.typed[message.key] = message
                self._read_prose(passage)

    def _read_prose(self, passage: Passage) -> None:
        self.passages.append(passage)
        field = _FIELDS.get(passage.voice, "result")
        for start, end in split_sentences(passage.text):
            line = passage.text[start:end]
            if passage.voice == "summary" and line.startswith(NAMES):
                self._count(self.reader.read(line), passage.row, self._number, field)
            elif passage.voice != "summary" or not line.endswith(":"):  # a heading
                self._add(passage, start, end, line, field)

    def _read_call(self, row: int, block: int, call: ToolCall) -> None:
        values = decode_arguments(call.arguments) or {"": call.arguments}
        arguments = {
            key: Passage(row, block, part, "call", text, call.name)
            for part, (key, text) in enumerate(values.items())
            if text
        }
        use = ToolUse(row, call.name, arguments, None)
        use.about = use.find(ADDRESS_KEYS)
        self.uses.append(use)
        self._use_of[call.id] = use
        for key, bare in arguments.items():
            is_address = key.partition(".")[0] in ADDRESS_KEYS
            passage = bare
            if not is_address and use.about is not None:
                passage = structs.replace(bare, about=use.about)
            self.passages.append(passage)
            field = "address" if is_address else "body"
            for start, end in split_lines(passage.text):
                self._add(passage, start, end, passage.text[start:end], field)

    def _read_result(self, row: int, block: int, result: ToolResult) -> None:
        """Read the lines of a result, without line numbers. Most lines are repeated."""
        use = self._use_of.get(result.call_id)
        tool = use.name if use else result.name or ""
        about = use.about if use else None
        for part, text in enumerate(texts(result.content)):
            passage = Passage(row, block, part, "result", text, tool, about)
            self.passages.append(passage)
            if use is not None and part == 0:
                use.result, use.is_error = passage, bool(result.is_error)
            at = 0
            for raw in text.splitlines(keepends=True):
                pieces = self._outputs.get(raw)
                if pieces is None:
                    pieces = self._outputs[raw] = tuple(
                        (start, end, raw[start:end]) for start, end in split_output(raw)
                    )
                for start, end, line in pieces:
                    self._add(passage, at + start, at + end, line, "result")
                at += len(raw)

    def _add(self, passage: Passage, start: int, end: int, text: str, field: str) -> None:
        """Count the names of a line, and make it the current one with this text."""
        old = self.lines.get(text)
        if old is None:
            if _INFORMATIVE.search(text) is None:
                return
            names = tuple(dict.fromkeys(self.reader.read(text)))
        else:
            names = old.names
        number = self._number = self._number + 1
        if old is None or old.passage.voice != "user" or passage.voice == "user":
            self.lines[text] = Line(passage, start, end, number, text, names)
        else:
            number = old.number
        if names:
            self._count(names, passage.row, number, field)

    def _count(self, names: Iterable[Name], row: int, number: int, field: str) -> None:
        """Count one more mention of names in this row, line and field."""
        for name in names:
            mentions = self.mentions.get(name)
            if mentions is None:
                mentions = self.mentions[name] = Mentions()
            mentions.total += 1
            mentions.last_row = row
            mentions.last_line = number
            if field == "result":
                mentions.result += 1
            elif field == "address":
                mentions.address += 1
            elif field == "body":
                mentions.body += 1
            elif field == "user":
                mentions.user += 1
            else:
                mentions.assistant += 1


def read_source(rows: Sequence[Row]) -> Source:
    """The source of some rows."""
    source = Source()
    source.read(rows)
    return source


def split_sentences(text: str) -> Iterator[tuple[int, int]]:
    """Where the sentences of a text start and end, in any script; very long ones in pieces."""
    for start, end in _spans(text):
        line = text[start:end]
        pieces: list[tuple[int, int]] = []
        at = 0
        for match in _SENTENCE_END.finditer(line):
            pieces.append((at, match.end()))
            at = match.end()
        pieces.append((at, len(line)))
        joined: list[tuple[int, int]] = []
        for first, last in pieces:
            is_short = last - first < SHORT_CHARS and line[first:last].isascii()
            if joined and is_short:
                joined[-1] = (joined[-1][0], last)
            elif first < last:
                joined.append((first, last))
        for first, last in joined:
            yield from _cut(text, start + first, start + last)


def split_lines(text: str) -> Iterator[tuple[int, int]]:
    """Where the lines of a text start and end; very long ones in pieces."""
    for start, end in _spans(text):
        yield from _cut(text, start, end)


def split_output(line: str) -> Iterator[tuple[int, int]]:
    """The pieces of a line of output, without its line number."""
    number = _LINE_NUMBER.match(line) if line[:8].strip()[:1].isdigit() else None
    start = number.end() if number else 0
    for first, last in _spans(line[start:]):
        yield from _cut(line, start + first, start + last)


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """The lines of a text without their indentation and bullets; blank ones are left out."""
    at = 0
    for raw in text.splitlines(keepends=True):
        line = raw.strip()
        if line:
            start = at + raw.index(line[0])
            bullets = _BULLETS.match(line) if line[0] in "-*+\u2022" else None
            skipped = bullets.end() if bullets and bullets.end() < len(line) else 0
            yield start + skipped, start + len(line)
        at += len(raw)


def _cut(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """A long line in pieces, cut after spaces, commas or semicolons."""
    while end - start > MAX_LINE_CHARS:
        middle, latest = start + MAX_LINE_CHARS // 2, start + MAX_LINE_CHARS
        cut = max(text.rfind(mark, middle, latest) for mark in " ,;、，") + 1 or latest
        yield _stripped(text, start, cut)
        start = cut
    first, last = _stripped(text, start, end)
    if first < last:
        yield first, last


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without spaces at its ends."""
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())


def _without_frame(text: str) -> tuple[int, int]:
    """Where an earlier summary starts and ends, without the lines that mark it as one."""
    start = text.find("\n\n") + 2 if text.startswith(FRAME_START) and "\n\n" in text else 0
    end = text.rfind(FRAME_END)
    return start, end if end >= start else len(text)


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
