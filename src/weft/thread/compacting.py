"""`compact`: the one door by which a tool, a person, a command or the page folds old turns.

The plan is made first and may refuse; only then do watchers hear that something begins. It is
made again if another writer lands in between, so that no turn is lost under it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from weft.compact import (
    CompactResult,
    Plan,
    Replacement,
    Strip,
    Trigger,
    compact_result,
    compaction_ended,
    compaction_started,
    plan_budget,
    plan_replacements,
    validate_compact_input,
)
from weft.errors import CompactRefused
from weft.history import Row, plan_rewrite, show_rows, shows

from .handle import Handle, TakenCheckpoints
from .rewriting import commit_rows

Replacements = Sequence[Replacement | Mapping[str, Any]]


def compact(
    handle: Handle,
    replacements: Replacements | None,
    *,
    budget: int | None,
    keep: int | None,
    strip: Strip,
    preview: bool,
    call_id: str | None,
    trigger: Trigger,
) -> CompactResult:
    """Fold what `replacements` name, or whatever a budget asks for; a preview writes nothing."""
    typed = _read_replacements(replacements)

    def plan(rows: list[Row]) -> Plan:
        if typed is not None:
            taken = TakenCheckpoints(handle.store, handle.name)
            return plan_replacements(rows, typed, known=taken, strip=strip, call_id=call_id)
        return _plan_budget(handle, rows, budget, keep)

    rows = handle.view(handle.head()).rows
    planned = plan(rows)
    before, after = _tokens(handle, rows), _tokens(handle, planned.rows)
    if preview or not plan_rewrite(rows, planned.rows):
        return compact_result(planned, before, after, preview=preview)
    handle.emit([compaction_started()])
    record = planned.record()

    def fold(present: list[Row]) -> Sequence[Row]:
        nonlocal planned, before, after
        if present != rows:  # another writer was here: its turns belong into the plan
            planned = plan(present)
            before, after = _tokens(handle, present), _tokens(handle, planned.rows)
            record.update(planned.record())
        return planned.rows

    info = commit_rows(handle, "compact", fold, note=_note(before, after), metadata=record)
    handle.emit([compaction_ended(trigger, before, after)])
    return compact_result(planned, before, after, commit=info.id)


def _note(before: int, after: int) -> str:
    return f"compact {before} to {after} tokens"


def _read_replacements(replacements: Replacements | None) -> tuple[Replacement, ...] | None:
    if replacements is None:
        return None
    return validate_compact_input({"replacements": replacements})


def _plan_budget(handle: Handle, rows: list[Row], budget: int | None, keep: int | None) -> Plan:
    """Within a budget by what a model would see; hidden lines cost nothing."""
    if budget is None and keep is None:
        raise CompactRefused("give replacements, a budget or turns to keep", field="replacements")
    shown = show_rows(rows)
    limit = _tokens(handle, shown) if budget is None else budget
    planned = plan_budget(shown, limit, keep=keep, count=handle.count)
    return Plan(
        rows=_with_hidden(rows, planned.rows),
        ranges=planned.ranges,
        pins_kept=planned.pins_kept,
        stripped=planned.stripped,
        dropped_calls=planned.dropped_calls,
    )


def _with_hidden(rows: Sequence[Row], kept: Sequence[Row]) -> tuple[Row, ...]:
    """The kept lines with the hidden ones behind the lines they stood behind, if those stayed."""
    behind: dict[bytes | None, list[Row]] = {}
    anchor: bytes | None = None
    for row in rows:
        if shows(row):
            anchor = row.id
        else:
            behind.setdefault(anchor, []).append(row)
    woven: list[Row] = list(behind.get(None, ()))
    for row in kept:
        woven.append(row)
        if row.id is not None:
            woven.extend(behind.get(row.id, ()))
    return tuple(woven)


def _tokens(handle: Handle, rows: Sequence[Row]) -> int:
    return sum(handle.count(row.message) for row in show_rows(rows))
