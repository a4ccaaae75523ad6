"""Exports of a branch: session files of other programs, and vendors' request bodies."""

from collections.abc import Callable

from weft.codec import CODECS
from weft.errors import ThreadError
from weft.history import show_rows
from weft.model import Loss
from weft.thread.formats import to_dicts
from weft.thread.handle import Handle

from .bodies import dump, write_body, write_untouched
from .claude_code import write_claude_code
from .codex import write_codex

__all__ = ["EXPORTS", "write_export"]


LINES: dict[str, Callable[[Handle], bytes]] = {
    "claude-code": write_claude_code,
    "codex": write_codex,
}
BODIES = tuple(CODECS)
DICTS = "dicts"
EXPORTS = (*LINES, *BODIES, DICTS)
"""The names of the formats that a branch can be exported to."""


def write_export(
    handle: Handle, format: str, model: str | None = None
) -> tuple[bytes, tuple[Loss, ...]]:
    """The handle's branch in one of `EXPORTS`, and what that format could not hold.

    A branch that was imported in that format, and not changed since, gives the imported file.
    """
    if format in LINES:
        return LINES[format](handle), ()
    if format == DICTS:
        rows = handle.view(handle.head()).rows
        return write_untouched(handle, format) or dump(to_dicts(show_rows(rows))), ()
    if format not in BODIES:
        raise ThreadError(f"unknown export format {format!r}; supported: {', '.join(EXPORTS)}")
    return write_body(handle, format, model)
