"""What a compaction reports: its result, its effect on each message, and events for listeners.

For previews and records, each message of the thread is kept, thinned (a tool result is shortened)
or folded (a summary replaces it). A new message is the summary.

The events have the shapes of the Claude Agent SDK (`SystemMessage(subtype, data)`, `status` with
`compacting`, `compact_boundary` with `compact_metadata`). So a page shows Weft's own compactions
and a client's in the same way.

    started    status             {"status": "compacting"}
    progress   compact_progress   {"content", "part", "parts"}
    fell back  compact_fallback   {"content", "failed", "next", "compact_error"}
    finished   compact_boundary   {"compact_metadata": {"trigger", "pre_tokens", "post_tokens",
                                   "method"?, "reason"?, "thinned"?}}
    failed     status             {"compact_result": "failed", "compact_error"}

After `started` comes exactly one `finished` or `failed`. `fell back` is not an end: one step failed
and the next is tried. A compaction that is refused before it starts emits only `failed`, or raises
and emits nothing. In `compact_metadata`, `method` is how the summary was made (`plan.Method`),
`reason` why the first step was not used, and `thinned` the number of shortened tool results.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field

from weft.history import Row, is_visible, visible_rows
from weft.ids import Id
from weft.model import is_system

from .batches import plural
from .layout import request_rows, rule_rows
from .plan import (
    Count,
    Method,
    Pin,
    Plan,
    Range,
    Stripped,
    Thinned,
    count_leading_system,
    hex_id,
    preview,
)
from .unread import unread_rows

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
"""The steps of a compaction, as text for people."""


Action = Literal["kept", "thinned", "folded", "added"]


class MessageChange(Struct, frozen=True, kw_only=True):
    """What happens to one message.

    `action` is `kept`, `thinned` (a tool result that is shortened), `folded` (replaced by a
    summary) or `added` (a new summary, which has no `id` yet). `tokens_before` and `tokens_after`
    are its size; `preview` is the beginning of its text.
    """

    id: str | None
    role: str
    action: Action
    reason: str
    tokens_before: int
    tokens_after: int
    preview: str


def describe_changes(rows: Sequence[Row], plan: Plan, count: Count) -> tuple[MessageChange, ...]:
    """The changes of a plan, in the order in which the messages are read.

    A folded message comes before the summary that replaces it, or where it was.
    """
    after = {row.id: row for row in plan.rows if row.id is not None}
    reasons = _describe_reasons(rows, after)
    thinned = {result.id for result in plan.thinned}
    stripped = {block.id for block in plan.stripped}
    changes: list[MessageChange] = []
    old = [(number, row) for number, row in enumerate(rows) if is_visible(row)]
    for row in plan.rows:
        if row.id is None:
            changes.append(
                _change(row, "added", "the summary of what is folded", 0, count(row.message))
            )
            continue
        if not is_visible(row):
            continue
        while old and old[0][1].id != row.id and old[0][1].id not in after:
            changes.append(_folded_change(old.pop(0), reasons, count))
        index = next((n for n, (_, old_row) in enumerate(old) if old_row.id == row.id), None)
        if index is None:
            continue
        number, before = old.pop(index)
        action: Action = "thinned" if hex_id(row) in thinned else "kept"
        reason = reasons[number]
        if action == "thinned":
            reason = "not read yet, but too long: its head, its tail and matching lines stay"
        elif hex_id(row) in stripped:
            reason += "; without reminders and thinking"
        elif row.message != before.message:
            reason += "; a part of it is folded"
        changes.append(_change(before, action, reason, count(before.message), count(row.message)))
    changes += [_folded_change(entry, reasons, count) for entry in old]
    return tuple(changes)


def _folded_change(entry: tuple[int, Row], reasons: dict[int, str], count: Count) -> MessageChange:
    number, row = entry
    return _change(row, "folded", reasons[number], count(row.message), 0)


def _change(row: Row, action: Action, reason: str, before: int, after: int) -> MessageChange:
    return MessageChange(
        id=hex_id(row),
        role=row.message.role,
        action=action,
        reason=reason,
        tokens_before=before,
        tokens_after=after,
        preview=preview(row.message.text),
    )


def _describe_reasons(rows: Sequence[Row], after: Mapping[Id, Row]) -> dict[int, str]:
    """For each row, why it stays or is folded."""
    system_count = count_leading_system(rows)
    rules = frozenset(rule_rows(rows))
    unread = frozenset(unread_rows(rows))
    requests = request_rows(rows)
    folded = [i for i, row in enumerate(rows) if is_visible(row) and row.id not in after]
    last_folded = folded[-1] if folded else -1
    reasons: dict[int, str] = {}
    for i, row in enumerate(rows):
        if i in folded:
            reasons[i] = "an earlier summary" if row.kind == "summary" else "older than what stays"
        elif i < system_count:
            reasons[i] = "a leading system message"
        elif row.priority == "pinned":
            reasons[i] = "pinned"
        elif i in unread:
            reasons[i] = "a result that the model has not read yet"
        elif requests and i == requests[-1]:
            reasons[i] = "the current request"
        elif i in rules or is_system(row.message):
            reasons[i] = "a rule of the system"
        elif not folded or i > last_folded:
            reasons[i] = "recent"
        elif i in requests:
            reasons[i] = "the request of the work that follows"
        else:
            reasons[i] = "important, or needed by a message that stays"
    return reasons


class SystemMessage(Struct, frozen=True):
    """An event about a thread, such as the start of a compaction.

    `Agent.run` yields it, and the functions that were added with `Thread.listen` get it. It is not
    a message with the role `system`, and no model sees it.
    """

    subtype: str
    data: dict[str, Any]


def compaction_started() -> SystemMessage:
    """Emitted before the thread changes."""
    return SystemMessage("status", {"status": "compacting"})


def compaction_progress(number: int, total: int) -> SystemMessage:
    """Emitted before each of several requests for a summary."""
    content = f"Summarising part {number} of {total}"
    return SystemMessage(PROGRESS, {"content": content, "part": number, "parts": total})


def compaction_fell_back(failed: Method, to: Method, error: str) -> SystemMessage:
    """Emitted when one step failed and the next is tried; the thread has not changed yet."""
    content = f"{STEPS[failed].capitalize()} failed ({error}). Next: {STEPS[to]}."
    data = {"content": content, "failed": failed, "next": to, "compact_error": error}
    return SystemMessage(FALLBACK, data)


def compaction_failed(error: str) -> SystemMessage:
    """Emitted if the compaction failed: the thread is unchanged."""
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
    """Emitted after the commit: the trigger, the tokens before and after, and the method."""
    metadata: dict[str, Any] = {"trigger": trigger, "pre_tokens": before, "post_tokens": after}
    details = {"method": method, "reason": reason, "thinned": thinned}
    metadata.update((name, value) for name, value in details.items() if value)
    return SystemMessage("compact_boundary", {"compact_metadata": metadata})


def compaction_events(
    trigger: Trigger, before: int, after: int
) -> tuple[SystemMessage, SystemMessage]:
    """The events before and after a compaction that is known to succeed."""
    return compaction_started(), compaction_ended(trigger, before, after)


class StepFailure(Struct, frozen=True):
    """A step of a compaction that failed, so that the next one was tried; and the reason."""

    step: Method
    reason: str


class CompactResult(Struct, frozen=True, kw_only=True):
    """The result of a compaction; `str()` is one line. Ids are in hex.

    - `ranges`: what was replaced; `pins`: pinned messages inside that range, which stay.
    - `commit`: the id of the new commit; `None` for a preview, and if nothing had to change.
    - `rows`: what the thread compiles to afterwards, including hidden rows.
    - `dropped_calls`: open calls that were removed; do not commit their results any more.
    - `cache_lost`: tokens that a prompt cache has to read again.
    - `method`: how the thread was shortened. `model`: with a summary by the model. `shorter`: with
      a summary by the model at the second attempt, of half the size. `extract`: with lines copied
      from the messages. `cut`: with one line that says how many messages were removed. `thin`:
      without a summary; long tool results were shortened.
    - `failures`: the methods that failed before it.
    - `thinned`: unread tool results that were shortened.
    - `changes`: what a preview does to each message, and why. Empty after a compaction.
    - `budget`: the budget that was chosen, if the caller chose neither a budget nor anything else.
    - `turns`, `works`: if `keep` left nothing to replace, the number of turns, and values of `keep`
      and `budget` that work.

    With a model's summary:

    - `requests`: how often the model was asked, or would be asked.
    - `dropped`: the removed sentences: those with only invented names, and those that tell the
      reader to do something.
    - `marked`: names in the summary that the source does not have; the summary marks them as
      unverified.
    - `names_added`: how many missing names were added to the summary.
    - `names_left`: how many missing names did not fit. `recall` finds them.
    - `cost`: dollars, if the catalogue has a price.

    A preview asks no model, so `tokens_after` is then an upper bound.
    """

    tokens_before: int
    tokens_after: int
    ranges: tuple[Range, ...] = ()
    pins: tuple[Pin, ...] = ()
    stripped: tuple[Stripped, ...] = ()
    dropped_calls: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    commit: str | None = None
    preview: bool = False
    cache_lost: int = 0
    model: str | None = None
    requests: int = 0
    dropped: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    names_added: int = 0
    names_left: int = 0
    cost: float | None = None
    method: Method | None = None
    failures: tuple[StepFailure, ...] = ()
    thinned: tuple[Thinned, ...] = ()
    changes: tuple[MessageChange, ...] = ()
    budget: int | None = None
    turns: int | None = None
    works: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def reason(self) -> str | None:
        """Why an earlier step was not used."""
        return self.failures[-1].reason if self.failures else None

    @property
    def pins_kept(self) -> tuple[str, ...]:
        """The ids of the pinned messages inside a range."""
        return tuple(pin.id for pin in self.pins if pin.id is not None)

    @property
    def messages(self) -> int:
        """How many messages were replaced, whole or in part."""
        return sum(folded.messages for folded in self.ranges)

    @property
    def messages_kept(self) -> int:
        """How many messages stay."""
        return sum(1 for row in visible_rows(self.rows) if row.id is not None)

    @property
    def is_unchanged(self) -> bool:
        """Whether nothing was, or would be, compacted."""
        return not self.ranges and not self.stripped and not self.thinned

    def __str__(self) -> str:
        if self.is_unchanged:
            line = f"nothing to compact: {self.tokens_before:,} tokens"
            turns = "" if self.turns is None else f" in {plural(self.turns, 'turn')}"
            return f"{line}{turns}{describe_works(self.works)}"
        verb = "would compact" if self.preview else "compacted"
        parts = [f"{verb} {plural(self.messages, 'message')}: {self._tokens()}"]
        if self.pins:
            parts.append(f"{plural(len(self.pins), 'pin')} kept ({_list_pins(self.pins)})")
        if self.stripped:
            parts.append(f"{plural(len(self.stripped), 'reminder or thinking block')} stripped")
        if self.thinned:
            parts.append(f"{plural(len(self.thinned), 'unread result')} shortened")
        if self.failures and self.method is not None:
            parts.append(f"by {STEPS[self.method]}, because {self.reason}")
        if self.preview and self.cache_lost:
            parts.append(f"{self.cache_lost:,} tokens of cached prefix lost")
        if self.model is not None:
            price = "" if self.cost is None else f" (${self.cost:.4f})"
            parts.append(f"{plural(self.requests, 'request')} to {self.model}{price}")
        if self.dropped:
            parts.append(f"{plural(len(self.dropped), 'unfounded sentence')} left out")
        if self.marked:
            parts.append(f"{plural(len(self.marked), 'name')} marked as unverified")
        if self.names_left:
            parts.append(f"{plural(self.names_left, 'name')} left to recall")
        if self.ranges and self.tokens_after >= self.tokens_before:
            parts.append(self._growth())
        return ", ".join(parts)

    def _growth(self) -> str:
        """The warning for a fold that saves nothing."""
        if self.preview:
            return "which may save nothing: there is too little to replace"
        is_longer = self.tokens_after > self.tokens_before
        return "which is longer than before" if is_longer else "which saves nothing"

    def _tokens(self) -> str:
        before, after = self.tokens_before, self.tokens_after
        change = f" ({(after - before) / before:+.0%})" if before else ""
        prefix = "at most " if self.preview and self.model is not None else ""
        return f"{before:,} → {prefix}{after:,} tokens{change}"


def describe_works(works: Mapping[str, int]) -> str:
    """The end of a refusal: what would work instead."""
    options = " or ".join(f"{name}={number}" for name, number in works.items())
    return f"; {options} would work" if options else ""


def compact_result(
    plan: Plan, before: int, after: int, *, commit: str | None = None, preview: bool = False
) -> CompactResult:
    """The result of a plan with its tokens before and after."""
    return CompactResult(
        tokens_before=before,
        tokens_after=after,
        ranges=plan.ranges,
        pins=plan.pins_kept,
        stripped=plan.stripped,
        dropped_calls=plan.dropped_calls,
        rows=plan.rows,
        commit=commit,
        preview=preview,
        method=plan.method,
        thinned=plan.thinned,
    )


def _list_pins(pins: Sequence[Pin]) -> str:
    return "; ".join(
        f"{pin.id[:8]} {pin.preview!r}" if pin.id else repr(pin.preview) for pin in pins
    )
