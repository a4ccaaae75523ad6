"""Standard output and standard error as a command sees them when a person reads them.

On a terminal everything that is printed goes through `clean_text`; the only escape sequences that
pass are the colours that Weft itself uses. A pipe or a file gets every byte as it is. Output with
colours cleans its text before it is coloured (`Screen.safe`): this module is the last line for all
other output, and for what somebody forgets.
"""

import re
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, TextIO, cast

from weft.printable import clean_text

STYLES = {
    "id": "33",
    "kind": "36",
    "role": "1",
    "name": "1;32",
    "old": "31",
    "new": "32",
    "dim": "2",
    "warn": "1;31",
}
LANES = ("31", "32", "33", "34", "35", "36")

_COLOURS = "|".join(sorted({"0", *STYLES.values(), *LANES}))
_OWN_STYLE = re.compile(rf"(\x1b\[(?:{_COLOURS})m)")


class Console:
    """A text stream to a terminal."""

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal

    def write(self, text: str) -> int:
        """Write text; Weft's own colours stay, everything else that a terminal obeys does not."""
        parts = _OWN_STYLE.split(text)
        parts[::2] = map(clean_text, parts[::2])
        self.terminal.write("".join(parts))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> "ConsoleBuffer":
        """The same for bytes."""
        return ConsoleBuffer(self.terminal)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal, name)


class ConsoleBuffer:
    """Bytes to a terminal, as text. They never hold colours of ours."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal

    def write(self, data: bytes | bytearray | memoryview) -> int:
        written = bytes(data)
        self._terminal.write(clean_text(written.decode("utf-8", "replace")))
        return len(written)

    def flush(self) -> None:
        self._terminal.flush()


def complain(line: str) -> None:
    """A line for a person on standard error, wherever that leads."""
    sys.stderr.write(clean_text(line) + "\n")
    sys.stderr.flush()


@contextmanager
def clean_output() -> Generator[None]:
    """Standard output and error go through a `Console` where they are terminals."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = guard(sys.stdout), guard(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def guard(stream: TextIO) -> TextIO:
    """The stream itself, or a `Console` if it is a terminal."""
    if isinstance(stream, Console) or not stream.isatty():
        return stream
    return cast(TextIO, Console(stream))


def raw(stream: TextIO) -> TextIO:
    """The stream behind a `Console`, for output that moves the cursor."""
    return stream.terminal if isinstance(stream, Console) else stream
