"""The terminal, when there is one: colour, width, a pager, a bar of progress.

Nothing here changes what a program reads. Where standard output is no terminal there is no colour,
no pager and no shortened line; where standard error is none there is no bar. `NO_COLOR` and
`TERM=dumb` mean no colour on a terminal either (https://no-color.org). The pager is `$PAGER`, or
`less` if it is installed; a page that fits the screen is printed and left there.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TextIO, cast
from unicodedata import combining, east_asian_width

from msgspec import Struct

from weft.printable import clean_line, clean_text

from .console import LANES, STYLES, Console, raw

LESS = {"LESS": "FRX", "LESSCHARSET": "utf-8"}
BAR = 24


class Screen(Struct, frozen=True):
    """Where a command prints; `width` is `None` where lines may be as long as they are."""

    colour: bool = False
    width: int | None = None

    def paint(self, text: str, style: str) -> str:
        """The text in the colour of its meaning, if there are colours."""
        return self.tint(text, STYLES[style])

    def tint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text

    def lane(self, text: str, number: int) -> str:
        """The text in the colour of a lane of the graph."""
        return self.tint(text, LANES[number % len(LANES)])

    def safe(self, text: str) -> str:
        """The text without what a terminal would obey: a conversation may hold anything."""
        return text if self.width is None else clean_text(text)

    def name(self, text: str) -> str:
        """The same for a name, which stays on one line."""
        return text if self.width is None else clean_line(text)

    def fit(self, text: str, taken: int = 0) -> str:
        """One line of text that ends before the screen does."""
        flat = self.safe(" ".join(text.split()))
        return flat if self.width is None else shorten(flat, max(8, self.width - taken))


PLAIN = Screen()


def shorten(text: str, width: int) -> str:
    """The text in at most that many columns; wide characters count two."""
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
    if count != 1:
        word = (
            f"{word[:-1]}ies"
            if word.endswith("y")
            else f"{word}es"
            if word.endswith("ch")
            else f"{word}s"
        )
    return f"{count:,} {word}"


def around(text: str, words: Sequence[str], width: int) -> str:
    """One line of that many columns, cut around the first of the words that is there."""
    flat = " ".join(text.split())
    if columns(flat) <= width:
        return flat
    folded = flat.lower()
    places = [(place, word) for word in words if (place := folded.find(word.lower())) >= 0]
    place, word = min(places, default=(0, ""))
    before = max(0, (width - len(word)) // 2)
    start = max(0, min(place - before, len(flat) - width))
    return shorten(flat if not start else "…" + flat[start + 1 :], width)


def columns(text: str) -> int:
    """How many columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(s) else 2 if east_asian_width(s) in "WF" else 1 for s in text)


def read_screen(stream: TextIO, environment: Mapping[str, str]) -> Screen:
    """What a stream can show."""
    if not stream.isatty():
        return Screen()
    plain = environment.get("NO_COLOR") or environment.get("TERM") == "dumb"
    return Screen(not plain, shutil.get_terminal_size().columns)


@contextmanager
def paged(environment: Mapping[str, str] | None = None) -> Generator[Screen]:
    """Everything printed inside goes through the pager, if a person is looking."""
    known = os.environ if environment is None else environment
    screen = read_screen(sys.stdout, known)
    command = pager(known) if sys.stdout.isatty() and sys.stdin.isatty() else None
    if command is None:
        yield screen
        return
    sys.stdout.flush()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, text=True, encoding="utf-8", env={**LESS, **known}
    ) as reader:
        assert reader.stdin is not None
        terminal, sys.stdout = sys.stdout, cast(TextIO, Console(cast(TextIO, reader.stdin)))
        try:
            with suppress(BrokenPipeError):  # the reader has seen enough
                yield screen
                reader.stdin.flush()
        finally:
            sys.stdout = terminal
            with suppress(BrokenPipeError):
                reader.stdin.close()


def pager(environment: Mapping[str, str]) -> list[str] | None:
    """The pager's command; `None` where there is none, or none is wanted."""
    wanted = environment.get("PAGER")
    if wanted is None:
        return ["less"] if shutil.which("less") else None
    words = shlex.split(wanted)
    return words if words and words != ["cat"] and shutil.which(words[0]) else None


class Bar:
    """How far a long command is: one line on a terminal's standard error, wiped when done."""

    def __init__(self, title: str, stream: TextIO | None = None) -> None:
        self._title = clean_line(title)
        self._stream = raw(sys.stderr if stream is None else stream)
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        if not self._stream.isatty() or not total:
            return
        filled = BAR * done // total
        line = f"{self._title} [{'=' * filled}{' ' * (BAR - filled)}] {100 * done // total:3d}%"
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(f"\r{shorten(line, width)}\x1b[K")
        self._stream.flush()
        self._shown = True

    def close(self) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False
