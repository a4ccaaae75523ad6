"""`compact`: the one door by which a tool, a person, a command or the page folds old turns.

The plan is made first and may refuse; only then do watchers hear that something begins. It is
made again if another writer lands in between, so that no turn is lost under it, and the commit
says what the plan that landed came to. What the caller wants retained is looked for in what the
thread says afterwards: a summary that lost it is refused.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from weft.catalog import Model, load_catalog
from weft.compact import (
    CompactResult,
    Plan,
    Replacement,
    Strip,
    Trigger,
    compact_result,
    compaction_started,
    plan_budget,
    plan_replacements,
    plan_summary,
    validate_compact_input,
)
from weft.errors import CompactRefused, ThreadError
from weft.history import Draft, Row, plan_rewrite, show_rows
from weft.ids import Id

from .asker import Asker, drive, find_asker
from .engine import Wish, ended, foresee_summary, summarise_old
from .handle import Handle, TakenCheckpoints
from .planning import check_retained, count_rows, with_hidden, write_note
from .preview import kept_prefix

Replacements = Sequence[Replacement | Mapping[str, Any]]


def compact(
    handle: Handle,
    replacements: Replacements | None,
    *,
    budget: int | None,
    keep: int | None,
    summary: str | None,
    strip: Strip,
    preview: bool,
    call_id: str | None,
    trigger: Trigger,
    retain: Sequence[str] = (),
) -> CompactResult:
    """Fold what `replacements` name, or whatever a budget or the turns to keep ask for, into the
    caller's own summary if there is one; a preview writes nothing."""
    typed = _read_replacements(replacements)
    if typed is not None and summary is not None:
        raise CompactRefused("each replacement has its own", field="summary")

    def plan(rows: list[Row]) -> Plan:
        if typed is not None:
            taken = TakenCheckpoints(handle.store, handle.name)
            return plan_replacements(rows, typed, known=taken, strip=strip, call_id=call_id)
        return _plan_old(handle, rows, budget, keep, summary)

    def weigh(rows: list[Row]) -> tuple[CompactResult, Plan]:
        planned = plan(rows)
        check_retained(rows, planned.rows, retain)
        before, after = count_rows(handle, rows), count_rows(handle, planned.rows)
        result = compact_result(planned, before, after, preview=preview)
        lost = before - kept_prefix(handle, rows, planned.rows)
        return structs.replace(result, cache_lost=lost), planned

    rows = handle.view(handle.head()).rows
    result, planned = weigh(rows)
    if preview or not plan_rewrite(rows, planned.rows):
        return result
    handle.emit([compaction_started()])

    def draft(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
        nonlocal result, planned
        present = handle.view(head).rows
        if present != rows:  # another writer was here: its turns belong into the plan
            result, planned = weigh(present)
        rewrite = plan_rewrite(present, planned.rows)
        note = write_note(result)
        return Draft("compact", rewrite.op, rewrite.messages, note, planned.record()), ()

    info = handle.land("compact", draft)
    handle.emit([ended(trigger, result)])
    return structs.replace(result, commit=info.id)


def compact_by_model(
    handle: Handle, model: str | Asker, wish: Wish, preview: bool, seconds: float | None
) -> CompactResult:
    """Fold old turns into a summary that a model writes, and wait for it; a preview asks nobody."""
    if preview:
        return foresee_summary(handle, _known_model(model, handle), wish)
    asker = find_asker(model, handle.models)
    return drive(summarise_old(handle, asker.model, wish), asker, seconds)


def _known_model(model: str | Asker, handle: Handle) -> Model:
    """The model that a preview is for. It is not asked, so it needs no key and no upstream."""
    try:
        return find_asker(model, handle.models).model
    except ThreadError:
        if not isinstance(model, str):
            raise
        return load_catalog().find(model)


def refuse_words(replacements: Replacements | None, summary: str | None) -> None:
    """Refuse words for a summary that a model is to write."""
    given = {"replacements": replacements, "summary": summary}
    for field, value in given.items():
        if value is not None:
            raise CompactRefused("says the summary that the model would write", field=field)


def refuse_wishes(prompt: str | None, verbatim: int) -> None:
    """Refuse wishes that only a model can follow."""
    given = {"prompt": prompt is not None, "verbatim": verbatim != 0}
    for field, wished in given.items():
        if wished:
            raise CompactRefused("is for a model that writes the summary: name one", field=field)


def _read_replacements(replacements: Replacements | None) -> tuple[Replacement, ...] | None:
    if replacements is None:
        return None
    return validate_compact_input({"replacements": replacements})


def _plan_old(
    handle: Handle, rows: list[Row], budget: int | None, keep: int | None, summary: str | None
) -> Plan:
    """Old turns folded, counted by what a model would see; hidden lines cost nothing."""
    shown = show_rows(rows)
    if summary is not None:
        planned = plan_summary(shown, summary, keep=keep, budget=budget, count=handle.count_once)
    elif budget is None and keep is None:
        what = "give a model, replacements, a budget, turns to keep or a summary"
        raise CompactRefused(what, field="replacements")
    else:
        limit = count_rows(handle, shown) if budget is None else budget
        planned = plan_budget(shown, limit, keep=keep, count=handle.count_once)
    return structs.replace(planned, rows=with_hidden(rows, planned.rows))
