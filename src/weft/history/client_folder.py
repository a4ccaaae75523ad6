"""The project folder of a conversation, as a client states it in what it adds to its requests.

Only text of these exact formats counts, so what a person or a tool writes about folders does not.
"""

from collections.abc import Iterable
from itertools import islice

from msgspec import Struct

from weft.lazy import lazy_pattern
from weft.model import Message, Text

MESSAGES_READ = 8
"""Clients state their folder before, in or right after the first message of a person."""


class FolderFormat(Struct, frozen=True):
    """How a client states its folder.

    - `clients`: the clients, with the version in which the format was seen.
    - `start`: the line that begins the text in a user's message; empty if the client has it only in
      its system prompt.
    - `pattern`: the line with the folder.
    """

    clients: str
    start: str
    pattern: str


FORMATS = (
    FolderFormat(
        "Claude Code 2.1.325", "# Environment", r"^(?: - )?Primary working directory: (.+)$"
    ),
    FolderFormat("Codex 0.166", "<environment_context>", r"^ *<cwd>(.+)</cwd>$"),
    FolderFormat(
        "Gemini CLI 0.61", "<session_context>", r"^- \*\*Workspace Directories:\*\*\n  - (.+)$"
    ),
    FolderFormat("opencode 1.18.33, Claude Code 1", "", r"^ *Working directory: (.+)$"),
    FolderFormat("pi 0.68", "", r"^Current working directory: (.+)$"),
)
PATTERNS = tuple(lazy_pattern(f"(?m){each.pattern}") for each in FORMATS)
REMINDER = "<system-reminder>\n"
"""Claude Code puts this before each text that it adds to a user's message."""
ABSOLUTE = lazy_pattern(r"(?:/|~|[A-Za-z]:[\\/])")


def find_folder(messages: Iterable[Message]) -> str | None:
    """The folder that the client works in; `None` if it does not state one."""
    for message in islice(messages, MESSAGES_READ):
        if message.role in ("assistant", "tool"):
            continue
        for block in message.blocks:
            if isinstance(block, Text):
                folder = _read_folder(block.text, is_typed=message.role == "user")
                if folder is not None:
                    return folder
    return None


def _read_folder(text: str, *, is_typed: bool) -> str | None:
    """The folder that a text states; a text that a person may have typed must begin its block."""
    beginning = text.removeprefix(REMINDER).lstrip()
    for format, pattern in zip(FORMATS, PATTERNS, strict=True):
        if is_typed and not (format.start and beginning.startswith(format.start + "\n")):
            continue
        match = pattern.search(text)
        if match is not None and ABSOLUTE.match(match[1]):
            return match[1].strip()
    return None
