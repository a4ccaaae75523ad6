"""Threads written for others to read: session files and vendors' bodies."""

from collections.abc import Callable

import orjson

from weft.errors import ThreadError
from weft.history import show_rows
from weft.model import Loss
from weft.thread.compiled import CompiledContext
from weft.thread.formats import to_dicts
from weft.thread.handle import Handle
from weft.thread.params import Recipe

from .claude_code import write_claude_code
from .codex import write_codex

__all__ = ["EXPORTS", "write_export"]


LINES: dict[str, Callable[[Handle], bytes]] = {
    "claude-code": write_claude_code,
    "codex": write_codex,
}
BODIES = ("anthropic", "openai-chat", "openai-responses", "gemini")
DICTS = "dicts"
EXPORTS = (*LINES, *BODIES, DICTS)
"""The formats that a branch can be written in, by the names they are asked for."""


def write_export(
    handle: Handle, format: str, model: str | None = None
) -> tuple[bytes, tuple[Loss, ...]]:
    """The handle's branch in one of `EXPORTS`, and what that format could not say.

    A vendor's body is what its `create(**...)` takes, the model's name included if one is given.
    """
    if format in LINES:
        return LINES[format](handle), ()
    view = handle.view(handle.head())
    if format == DICTS:
        return _json(to_dicts(show_rows(view.rows))), ()
    if format not in BODIES:
        raise ThreadError(f"no export writes {format!r}; there are {', '.join(EXPORTS)}")
    context = CompiledContext(view, handle.count)
    body = context.follow(Recipe(head=context.head, protocol=format, model=model))
    return _json(body), body.losses


def _json(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
