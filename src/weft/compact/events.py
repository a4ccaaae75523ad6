"""What a watcher of a thread hears: a compaction begins, how it goes, and what it came to.

The shapes are those of the Claude Agent SDK (`SystemMessage(subtype, data)`, `status` with
`compacting`, `compact_boundary` with `compact_metadata`), so that a page shows Weft's own
compactions and a client's by one rule.

    started    status             {"status": "compacting"}
    progress   compact_progress   {"content", "part", "parts"}
    fell back  compact_fallback   {"content", "failed", "next", "compact_error"}
    finished   compact_boundary   {"compact_metadata": {"trigger", "pre_tokens", "post_tokens",
                                   "method"?, "reason"?, "thinned"?}}
    failed     status             {"compact_result": "failed", "compact_error"}

A compaction that says `started` ends with exactly one `finished` or `failed`. `fell back` is no
end: one way to make the summary failed, and the next is tried. A compaction that is refused before
it begins says `failed` alone, or raises and says nothing. `method` is how the engine made room
(`plan.Method`), `reason` why it was not the first way, `thinned` how many unread tool results were
shortened; all three are absent where they say nothing.
"""

from typing import Any, Literal

from msgspec import Struct

from .plan import Method

PROGRESS = "compact_progress"
FALLBACK = "compact_fallback"

Trigger = Literal["manual", "auto", "tool"]

STEPS: dict[Method, str] = {
    "model": "a model's summary",
    "shorter": "a shorter summary by the model",
    "extract": "an extract without a model",
    "cut": "a cut without a summary",
    "thin": "shorter tool results",
}
"""The ways to make room, in words for people."""


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


def compaction_fell_back(failed: Method, to: Method, error: str) -> SystemMessage:
    """Comes where one way failed and another is tried; the thread has not changed yet."""
    content = f"{STEPS[failed].capitalize()} failed ({error}). Next: {STEPS[to]}."
    data = {"content": content, "failed": failed, "next": to, "compact_error": error}
    return SystemMessage(FALLBACK, data)


def compaction_failed(error: str) -> SystemMessage:
    """Comes in place of the end: the thread is as it was."""
    return SystemMessage("status", {"compact_result": "failed", "compact_error": error})


def compaction_ended(
    trigger: Trigger,
    before: int,
    after: int,
    *,
    method: Method | None = None,
    reason: str | None = None,
    thinned: int = 0,
) -> SystemMessage:
    """Comes after the commit: who asked, the tokens before and after, and how it was done."""
    metadata: dict[str, Any] = {"trigger": trigger, "pre_tokens": before, "post_tokens": after}
    further = {"method": method, "reason": reason, "thinned": thinned}
    metadata.update((name, value) for name, value in further.items() if value)
    return SystemMessage("compact_boundary", {"compact_metadata": metadata})


def compaction_events(
    trigger: Trigger, before: int, after: int
) -> tuple[SystemMessage, SystemMessage]:
    """Both, for a compaction that is already known to succeed: say one, commit, say the other."""
    return compaction_started(), compaction_ended(trigger, before, after)
