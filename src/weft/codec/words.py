"""What a vendor's own block says, in words that every wire can take.

Most blocks that one vendor alone knows say nothing to another: they are sealed, or stand for work
of its own servers. These hold words that the model was meant to read.
"""

from collections.abc import Callable
from typing import Any, cast

from weft.model import JsonObject, Opaque

from .base import members


def words_of(block: Opaque) -> str | None:
    """The words of a block, or `None` where it has none for others."""
    read = READERS.get((block.protocol, str(block.raw.get("type"))))
    return read(block.raw) if read is not None else None


def _search_result(raw: JsonObject) -> str | None:
    """https://platform.claude.com/docs/en/build-with-claude/search-results"""
    said = _texts(raw)
    head = "\n".join(str(raw[key]) for key in ("title", "source") if raw.get(key))
    return f"{head}\n\n{said}" if head and said else said or None


def _agent_message(raw: JsonObject) -> str | None:
    """What one agent of Codex tells another: it speaks for nobody's user."""
    said = _texts(raw)
    author, recipient = raw.get("author"), raw.get("recipient")
    head = f"[message of the agent {author!r} to {recipient!r}, not of the user]"
    return f"{head}\n{said}" if said else None


def _texts(raw: JsonObject) -> str:
    content = raw.get("content")
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    fields = [members(part) or {} for part in parts]
    found = [part.get("text") or part.get("refusal") for part in fields]
    return "\n".join(text for text in found if isinstance(text, str) and text)


READERS: dict[tuple[str, str], Callable[[JsonObject], str | None]] = {
    ("anthropic", "search_result"): _search_result,
    ("openai-responses", "agent_message"): _agent_message,
}
