"""Output for a terminal: colour, width, pager, progress bar, Markdown.

Without a terminal there is no colour, no pager and no shortened line, and no progress bar if
standard error is not a terminal. `NO_COLOR` and `TERM=dumb` turn colour off (https://no-color.org).
The pager is `$PAGER`, or `less` if it is installed; text that fits the screen is printed without
paging.

A command that prints to a pipe must start fast, so the modules that only a pager needs are imported
where they are used.

Markdown is styled while it streams in. Bold, code, headings and lists get styles instead of their
markers. A text is printed as soon as its meaning is clear, so at most a few characters wait. Styles
end with their line: a marker that is never closed does not colour the rest of the answer.
"""

import os
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO, cast
from unicodedata import combining, east_asian_width

from msgspec import Struct

from weft.lazy import lazy_pattern
from weft.printable import clean_line, clean_text

if TYPE_CHECKING:
    from weft.store import Store

from .console import LANE_COLOURS, STYLES, Console, raw_stream

LESS = {"LESS": "FRX", "LESSCHARSET": "utf-8"}
"""Defaults for `less`: quit if the text fits the screen, show colours, leave the text there."""

BAR_WIDTH = 24
MIN_COLUMNS = 8
"""A text gets at least this many columns, however narrow the screen is."""


class Screen(Struct, frozen=True):
    """Where a command prints. `width` is `None` if lines have no maximum length."""

    colour: bool = False
    width: int | None = None

    def paint(self, text: str, style: str) -> str:
        """The text in the colour of a style, if colour is on."""
        return self.tint(text, STYLES[style]) if self.colour else text

    def tint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text

    def lane(self, text: str, number: int) -> str:
        """The text in the colour of one lane of the commit graph."""
        return self.tint(text, LANE_COLOURS[number % len(LANE_COLOURS)])

    def safe(self, text: str) -> str:
        """The text without control sequences; a conversation may contain anything.

        A pipe or a file gets the text unchanged: control sequences only do harm in a terminal.
        """
        return text if self.width is None else clean_text(text)

    def name(self, text: str) -> str:
        """A name without control sequences, on one line."""
        return text if self.width is None else clean_line(text)

    def fit(self, text: str, used_columns: int = 0) -> str:
        """The text as one line that fits the screen beside `used_columns` columns."""
        is_one_line = text.isprintable() and "  " not in text and text.strip() == text
        line = text if is_one_line else " ".join(text.split())
        if self.width is None:
            return line
        return shorten(self.safe(line), max(MIN_COLUMNS, self.width - used_columns))


PLAIN = Screen()


def shorten(text: str, width: int) -> str:
    """The text in at most `width` columns; wide characters count as two."""
    if text.isascii():
        return text if len(text) <= width else text[: max(0, width - 1)] + "…"
    used = end = 0  # `end` is where the text would be cut to leave a column for the ellipsis
    for index, character in enumerate(text):
        used += columns(character)
        if used > width:
            return text[:end] + "…"
        if used < width:
            end = index + 1
    return text


def plural(count: int, word: str) -> str:
    """`1 commit`, `2 commits`, `2 branches`, `2 entries`."""
    if count == 1:
        return f"1 {word}"
    if word.endswith("y"):
        return f"{count:,} {word[:-1]}ies"
    return f"{count:,} {word}es" if word.endswith("ch") else f"{count:,} {word}s"


def excerpt_around(text: str, words: Sequence[str], width: int) -> str:
    """An excerpt of at most `width` columns around the first match of any of the words."""
    line = " ".join(text.split())
    if columns(line) <= width:
        return line
    lowered = line.lower()
    matches = [(index, word) for word in words if (index := lowered.find(word.lower())) >= 0]
    index, word = min(matches, default=(0, ""))
    before = max(0, (width - len(word)) // 2)
    start = max(0, min(index - before, len(line) - width))
    return shorten(line if not start else "…" + line[start + 1 :], width)


def columns(text: str) -> int:
    """How many columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def read_screen(stream: TextIO, environment: Mapping[str, str]) -> Screen:
    """The width and colour of a stream."""
    if not stream.isatty():
        return Screen()
    plain = environment.get("NO_COLOR") or environment.get("TERM") == "dumb"
    return Screen(not plain, terminal_width())


def terminal_width() -> int:
    """The columns of the terminal; `COLUMNS` overrides them."""
    import shutil

    return shutil.get_terminal_size().columns


@contextmanager
def paged() -> Generator[Screen]:
    """Send everything printed inside to the pager, if input and output are a terminal."""
    screen = read_screen(sys.stdout, os.environ)
    command = pager_command(os.environ) if sys.stdout.isatty() and sys.stdin.isatty() else None
    if command is None:
        yield screen
        return
    import subprocess

    sys.stdout.flush()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, text=True, encoding="utf-8", env={**LESS, **os.environ}
    ) as process:
        assert process.stdin is not None
        terminal, sys.stdout = sys.stdout, cast(TextIO, Console(cast(TextIO, process.stdin)))
        try:
            with suppress(BrokenPipeError):  # the user quit the pager
                yield screen
                process.stdin.flush()
        finally:
            sys.stdout = terminal
            with suppress(BrokenPipeError):
                process.stdin.close()


def pager_command(environment: Mapping[str, str]) -> list[str] | None:
    """The command of the pager; `None` if there is none, or `PAGER` turns it off."""
    import shlex
    import shutil

    setting = environment.get("PAGER")
    if setting is None:
        return ["less"] if shutil.which("less") else None
    command = shlex.split(setting)
    return command if command and command != ["cat"] and shutil.which(command[0]) else None


class ProgressBar:
    """The progress of a long command: one line on standard error, removed at the end."""

    def __init__(self, title: str, stream: TextIO | None = None) -> None:
        self._title = clean_line(title)
        self._stream = raw_stream(sys.stderr if stream is None else stream)
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        if not self._stream.isatty() or not total:
            return
        filled = BAR_WIDTH * done // total
        line = (
            f"{self._title} [{'=' * filled}{' ' * (BAR_WIDTH - filled)}] {100 * done // total:3d}%"
        )
        width = terminal_width() - 1
        self._stream.write(f"\r{shorten(line, width)}\x1b[K")
        self._stream.flush()
        self._shown = True

    def close(self) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False


def index_with_progress(store: "Store") -> None:
    """Bring the text index up to date, with a progress bar if that takes a moment."""
    from weft.history import index_new_commits
    from weft.thread.background_index import BULK_COMMITS

    if store.count_unindexed() >= BULK_COMMITS:
        bar = ProgressBar("indexing")
        try:
            index_new_commits(store, progress=bar)
        finally:
            bar.close()


BOLD, CODE, DIM, RESET = "\x1b[1m", "\x1b[36m", "\x1b[2m", "\x1b[0m"
FENCE = "```"

_POSSIBLE_MARKER = lazy_pattern(r"[ \t]*(?:#{0,6}|[-*+]|`{0,3}|>)")
"""Matches the start of a line that may become a marker when more characters arrive."""

_HEADING = lazy_pattern(r" {0,3}#{1,6} +")
_BULLET = lazy_pattern(r"([ \t]*)[-*+] +")
_FENCE = lazy_pattern(r"[ \t]*```")


class MarkdownStream:
    """Turns Markdown that arrives in pieces into styled text."""

    def __init__(self, colour: bool = True) -> None:
        """Without `colour` the markers are removed, and nothing is styled."""
        self._colour = colour
        self._waiting: str = ""
        self._at_line_start = True
        self._in_fence = False
        self._bold = self._code = self._heading = False

    def feed(self, text: str) -> str:
        """What to print for more of the text."""
        self._waiting += text
        return self._read(is_end=False)

    def close(self) -> str:
        """The rest, at the end of the text."""
        return self._read(is_end=True) + self._end_styles()

    def _read(self, *, is_end: bool) -> str:
        out: list[str] = []
        while self._waiting:
            if self._at_line_start or self._in_fence:
                part = self._read_start(is_end)
            else:
                part = self._read_inline(is_end)
            if part is None:  # not clear yet
                break
            out.append(part)
        return "".join(out)

    def _read_start(self, is_end: bool) -> str | None:
        """The start of a line, or a line of a code block."""
        line, newline, rest = self._waiting.partition("\n")
        if not newline and not is_end and self._is_undecided(line):
            return None
        if _FENCE.match(line) and (newline or is_end):
            self._in_fence = not self._in_fence
            self._waiting = rest
            language = line.strip().strip("`")
            label = self._style(DIM, language) if self._in_fence and language else ""
            return label + (newline if label else "")
        if self._in_fence:
            return self._read_code(line, newline, rest)
        self._at_line_start = False
        if heading := _HEADING.match(line):
            self._heading = True
            self._waiting = self._waiting[heading.end() :]
            return self._start_styles()
        if bullet := _BULLET.match(line):
            self._waiting = self._waiting[bullet.end() :]
            return f"{bullet[1]}• "
        return ""

    def _is_undecided(self, line: str) -> bool:
        """Whether more of this line could still change what its start means."""
        if _FENCE.match(line):
            return True  # the language may follow
        if self._in_fence:
            return FENCE.startswith(line.strip())
        return _POSSIBLE_MARKER.fullmatch(line) is not None

    def _read_code(self, line: str, newline: str, rest: str) -> str:
        """A line of a code block, or the part of it that arrived."""
        self._at_line_start = bool(newline)
        self._waiting = rest
        if not newline and not line:
            return ""
        return self._style(CODE, line) + newline

    def _read_inline(self, is_end: bool) -> str | None:
        """The text up to the next marker, or the styles after a marker; `None` if not clear yet."""
        text = self._waiting
        end = next((i for i, c in enumerate(text) if c in "\n*`"), len(text))
        if end:
            self._waiting = text[end:]
            return text[:end]
        if text[0] == "\n":
            self._waiting, self._at_line_start = text[1:], True
            return self._end_styles() + "\n"
        if text[0] == "`":
            self._waiting = text[1:]
            self._code = not self._code
            return self._restart_styles()
        # The text starts with `*`. Only `**` is a marker, and not inside of code.
        if self._code or (len(text) < 2 and is_end):
            self._waiting = text[1:]
            return "*"
        if len(text) < 2:
            return None
        if text[1] != "*":
            self._waiting = text[1:]
            return "*"
        if not self._bold and len(text) < 3 and not is_end:
            return None
        if not self._bold and (text[2:3].isspace() or not text[2:]):
            self._waiting = text[2:]
            return "**"  # an operator, or the end: no text follows that could be bold
        self._waiting = text[2:]
        self._bold = not self._bold
        return self._restart_styles()

    def _restart_styles(self) -> str:
        return (RESET if self._colour else "") + self._start_styles()

    def _start_styles(self) -> str:
        if not self._colour:
            return ""
        return (BOLD if self._bold or self._heading else "") + (CODE if self._code else "")

    def _end_styles(self) -> str:
        is_styled = self._bold or self._code or self._heading
        self._bold = self._code = self._heading = False
        return RESET if is_styled and self._colour else ""

    def _style(self, code: str, text: str) -> str:
        return f"{code}{text}{RESET}" if self._colour and text else text
