"""Exports: session files of other programs, vendors' request bodies, documents for people."""

from collections.abc import Callable

from weft.codec import CODECS
from weft.errors import ThreadError
from weft.history import show_rows
from weft.model import Loss
from weft.thread.compiled import to_dicts
from weft.thread.handle import Handle

from . import claude_code, codex
from .bodies import dump, write_body, write_untouched
from .document import Render, write_html, write_markdown
from .journal import ROOT

__all__ = [
    "DOCUMENTS",
    "EXPORTS",
    "Render",
    "read_folder",
    "rename_session",
    "write_export",
]


LINES: dict[str, Callable[[Handle, str], bytes]] = {
    "claude-code": claude_code.write_claude_code,
    "codex": codex.write_codex,
}
RENAMES = {"claude-code": claude_code.rename_session, "codex": codex.rename_session}
FOLDERS = {"claude-code": claude_code.read_folder, "codex": codex.read_folder}
BODIES = tuple(CODECS)
DICTS = "dicts"
HTML, MARKDOWN = "html", "markdown"
DOCUMENTS = (HTML, MARKDOWN)
"""Formats for people: the whole thread with all its branches."""

EXPORTS = (*LINES, *BODIES, DICTS, *DOCUMENTS)
"""The names of the formats that a branch can be exported to."""


def write_export(
    handle: Handle,
    format: str,
    model: str | None = None,
    render: Render | None = None,
    folder: str = ROOT,
) -> tuple[bytes, tuple[Loss, ...]]:
    """The handle's branch in one of `EXPORTS`, and what that format cannot express.

    A branch that was imported in that format, and not changed since, gives the imported file.
    `render` shows the text of messages in an HTML document. `folder` is the working directory of a
    session that does not name its own.
    """
    if format == HTML:
        return write_html(handle, render), ()
    if format == MARKDOWN:
        return write_markdown(handle), ()
    if format in LINES:
        return LINES[format](handle, folder), ()
    if format == DICTS:
        rows = handle.view(handle.head()).rows
        return write_untouched(handle, format) or dump(to_dicts(show_rows(rows))), ()
    if format not in BODIES:
        raise ThreadError(f"unknown export format {format!r}; supported: {', '.join(EXPORTS)}")
    return write_body(handle, format, model)


def rename_session(format: str, data: bytes, session: str) -> bytes:
    """A session file under another session id."""
    return RENAMES[format](data, session)


def read_folder(format: str, data: bytes) -> str | None:
    """The working directory that a session file names."""
    return FOLDERS[format](data)
