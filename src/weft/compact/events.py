"""What a watcher of a thread hears: a compaction begins, and what it came to.

The shapes are those of the Claude Agent SDK (`SystemMessage(subtype, data)`, `status` with
`compacting`, `compact_boundary` with `compact_metadata`), so that a page shows Weft's own
compactions and a client's by one rule.
"""

from typing import Any, Literal

from msgspec import Struct

PROGRESS = "compact_progress"

Trigger = Literal["manual", "auto", "tool"]


class SystemMessage(Struct, frozen=True):
    """Something about the session, said to its watchers and to no model."""

    subtype: str
    data: dict[str, Any]


def compaction_started() -> SystemMessage:
    """Comes before the thread changes."""
    return SystemMessage("status", {"status": "compacting"})


def compaction_progress(number: int, of: int) -> SystemMessage:
    """Comes before each of several requests for a summary."""
    content = f"Summarising part {number} of {of}"
    return SystemMessage(PROGRESS, {"content": content, "part": number, "parts": of})


def compaction_failed(error: str) -> SystemMessage:
    """Comes in place of the end: the thread is as it was."""
    return SystemMessage("status", {"compact_result": "failed", "compact_error": error})


def compaction_ended(trigger: Trigger, before: int, after: int) -> SystemMessage:
    """Comes after the commit: who asked, and the tokens before and after."""
    metadata = {"trigger": trigger, "pre_tokens": before, "post_tokens": after}
    return SystemMessage("compact_boundary", {"compact_metadata": metadata})


def compaction_events(
    trigger: Trigger, before: int, after: int
) -> tuple[SystemMessage, SystemMessage]:
    """Both, for a compaction that is already known to succeed: say one, commit, say the other."""
    return compaction_started(), compaction_ended(trigger, before, after)
