"""Standard output and standard error, made safe for a terminal.

On a terminal everything printed goes through `clean_text`; only Weft's own colours pass. A pipe or
a file gets every byte unchanged. Commands that use colour clean their text first (`Screen.safe`).
This module is the safety net for all other output.
"""

import codecs
import io
import os
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, TextIO, cast

from weft.lazy import lazy_pattern
from weft.printable import clean_text

STYLES = {
    "id": "33",
    "kind": "36",
    "role": "1",
    "name": "1;32",
    "old": "31",
    "new": "32",
    "failed": "31",
    "dim": "2",
    "warn": "1;31",
}
UTF8 = ("utf-8", "utf8", "utf_8")
ESCAPE_HANDLER = "weft-escape"
LANE_COLOURS = ("31", "32", "33", "34", "35", "36")

_COLOUR_CODES = "|".join(sorted({"0", *STYLES.values(), *LANE_COLOURS}))
_OWN_STYLE = lazy_pattern(rf"(\x1b\[(?:{_COLOUR_CODES})m)")


class Console:
    """A text stream to a terminal."""

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal

    def write(self, text: str) -> int:
        """Write text without control sequences, except Weft's own colours."""
        parts = _OWN_STYLE.split(text)
        parts[::2] = map(clean_text, parts[::2])
        self.terminal.write("".join(parts))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> "ConsoleBuffer":
        """A writer for bytes, with the same cleaning."""
        return ConsoleBuffer(self.terminal)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal, name)


class ConsoleBuffer:
    """Bytes to a terminal, written as text without any colour."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal

    def write(self, data: bytes | bytearray | memoryview) -> int:
        written = bytes(data)
        self._terminal.write(clean_text(written.decode("utf-8", "replace")))
        return len(written)

    def flush(self) -> None:
        self._terminal.flush()


def print_error(line: str) -> None:
    """Print a line on standard error."""
    sys.stderr.write(clean_text(line) + "\n")
    sys.stderr.flush()


def open_closed_streams() -> None:
    """Let a standard stream that the caller closed (`>&-`) read and write nothing, as `/dev/null`.

    Python has `None` in its place. Its number is taken too, so that no other file gets it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:
                null = os.open(os.devnull, os.O_RDWR)
                if null != number:
                    os.dup2(null, number)
                    os.close(null)
            setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115


def encode_output() -> None:
    """Let standard output and error write every character, whatever the locale is.

    A file or a pipe gets UTF-8, as JSON requires. A terminal, or an encoding that the user chose
    (`PYTHONIOENCODING`), gets the escapes of JSON for characters that it does not have.
    """
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper) or stream.encoding.lower() in UTF8:
            continue
        if stream.isatty() or os.environ.get("PYTHONIOENCODING"):
            codecs.register_error(ESCAPE_HANDLER, _escape)
            stream.reconfigure(errors=ESCAPE_HANDLER)
        else:
            stream.reconfigure(encoding="utf-8")


def _escape(error: UnicodeError) -> tuple[str, int]:
    """The error handler of `encode_output`: a character beyond U+FFFF is a pair of escapes."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = zip(units[::2], units[1::2], strict=True)
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in pairs), error.end


@contextmanager
def clean_output() -> Generator[None]:
    """Replace standard output and error with a `Console` if they are terminals."""
    original = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = clean_stream(sys.stdout), clean_stream(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = original


def clean_stream(stream: TextIO) -> TextIO:
    """The stream itself, or a `Console` if it is a terminal."""
    if isinstance(stream, Console) or not stream.isatty():
        return stream
    return cast(TextIO, Console(stream))


def raw_stream(stream: TextIO) -> TextIO:
    """The stream behind a `Console`, for output that moves the cursor."""
    return stream.terminal if isinstance(stream, Console) else stream
