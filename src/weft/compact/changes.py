"""What a compaction does to each message, and why: for previews and records.

Each message of the thread is kept, thinned (a tool result is shortened) or folded (a summary
replaces it). A message that is new is the summary.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from weft.history import Row, shows
from weft.ids import Id
from weft.model import Message, is_system

from .layout import request_rows, rule_rows
from .plan import Plan, leading_system, preview, slot
from .unread import unread_rows

Action = Literal["kept", "thinned", "folded", "added"]


class MessageChange(Struct, frozen=True, kw_only=True):
    """What happens to one message.

    `id` is absent for a new summary. `tokens_before` and `tokens_after` are its size; `preview` is
    the beginning of its text.
    """

    id: str | None
    role: str
    action: Action
    reason: str
    tokens_before: int
    tokens_after: int
    preview: str


def describe_changes(
    rows: Sequence[Row], plan: Plan, count: Callable[[Message], int]
) -> tuple[MessageChange, ...]:
    """The changes of a plan, in the order in which the messages are read.

    A folded message comes before the summary that replaces it, or where it was.
    """
    after = {row.id: row for row in plan.rows if row.id is not None}
    reasons = _reasons(rows, after)
    thinned = {result.id for result in plan.thinned}
    stripped = {block.id for block in plan.stripped}
    changes: list[MessageChange] = []
    old = [(number, row) for number, row in enumerate(rows) if shows(row)]
    for row in plan.rows:
        if row.id is None:
            changes.append(
                _change(row, "added", "the summary of what is folded", 0, count(row.message))
            )
            continue
        if not shows(row):
            continue
        while old and old[0][1].id != row.id and old[0][1].id not in after:
            changes.append(_folded(old.pop(0), reasons, count))
        place = next((index for index, (_, row_) in enumerate(old) if row_.id == row.id), None)
        if place is None:
            continue
        number, before = old.pop(place)
        action: Action = "thinned" if slot(row) in thinned else "kept"
        reason = reasons[number]
        if action == "thinned":
            reason = "not read yet, but too long: its head, its tail and matching lines stay"
        elif slot(row) in stripped:
            reason += "; without reminders and thinking"
        elif row.message != before.message:
            reason += "; a part of it is folded"
        changes.append(_change(before, action, reason, count(before.message), count(row.message)))
    changes += [_folded(entry, reasons, count) for entry in old]
    return tuple(changes)


def _folded(
    entry: tuple[int, Row], reasons: dict[int, str], count: Callable[[Message], int]
) -> MessageChange:
    number, row = entry
    return _change(row, "folded", reasons[number], count(row.message), 0)


def _change(row: Row, action: Action, reason: str, before: int, after: int) -> MessageChange:
    return MessageChange(
        id=slot(row),
        role=row.message.role,
        action=action,
        reason=reason,
        tokens_before=before,
        tokens_after=after,
        preview=preview(row.message.text),
    )


def _reasons(rows: Sequence[Row], after: Mapping[Id, Row]) -> dict[int, str]:
    """For each row, why it stays or is folded."""
    lead = leading_system(rows)
    rules = frozenset(rule_rows(rows))
    unread = frozenset(unread_rows(rows))
    requests = request_rows(rows)
    folded = [i for i, row in enumerate(rows) if shows(row) and row.id not in after]
    last_folded = folded[-1] if folded else -1
    reasons: dict[int, str] = {}
    for i, row in enumerate(rows):
        if i in folded:
            reasons[i] = "an earlier summary" if row.kind == "summary" else "older than what stays"
        elif i < lead:
            reasons[i] = "setup"
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
