"""The prompt of `weft chat`: line editing, and a history that outlives the chat.

Python's `input` uses the readline library if it is imported: arrow keys, Ctrl-A and Ctrl-E, Ctrl-R,
and pasted text of several lines. Where there is none (Windows), lines are read without editing.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HISTORY_LENGTH = 1000
"""How many lines the history keeps."""


def history_path(environ: Mapping[str, str]) -> Path:
    """The file with the lines that were typed in chats."""
    folder = environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(folder) / "weft" / "chat-history"


class LineEditor:
    """Reads lines from the terminal; a history that cannot be read or written is left out."""

    def __init__(self, prompt: str, path: Path) -> None:
        self._prompt = prompt
        self._path: Path | None = path
        self._readline = _import_readline()
        if self._readline is None:
            return
        self._readline.set_history_length(HISTORY_LENGTH)
        self._readline.parse_and_bind("set enable-bracketed-paste on")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # only its owner may read it
            path.chmod(0o600)
            self._readline.read_history_file(path)
            self._readline.write_history_file(path)  # without the oldest lines, if it is long
        except OSError:
            self._path = None

    def read(self) -> str:
        """The next line; raises `EOFError` at the end of input, `KeyboardInterrupt` for Ctrl-C."""
        line = input(self._prompt)
        if self._readline is not None and self._path is not None and line.strip():
            try:
                # Not at the end of the chat, which may be killed; and other chats write here too.
                self._readline.append_history_file(1, self._path)
            except OSError:
                self._path = None
        return line


def _import_readline() -> Any:
    """The library; `None` where there is none, or one that cannot append to its history."""
    try:
        import readline
    except ImportError:
        return None
    return readline if hasattr(readline, "append_history_file") else None
