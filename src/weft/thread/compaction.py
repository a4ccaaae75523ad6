"""`compact`: the one door by which a tool, a person, a command or the page folds old turns.

The plan is made first and may refuse; only then do watchers hear that something begins. It is
made again if another writer lands in between, so that no turn is lost under it, and the commit
says what the plan that landed came to. What the caller wants retained is looked for in what the
thread says afterwards: a summary that lost it is refused.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from weft.compact import (
    STEPS,
    CompactResult,
    Plan,
    Replacement,
    Strip,
    SystemMessage,
    Trigger,
    compact_result,
    compaction_ended,
    compaction_started,
    plan_budget,
    plan_replacements,
    plan_summary,
    validate_compact_input,
)
from weft.errors import CompactRefused, WrongValue
from weft.history import Draft, Row, match_key, plan_rewrite, show_rows, shows
from weft.ids import Id
from weft.model import JsonObject, Message

from .arguments import check_beside, check_count
from .handle import Handle, TakenCheckpoints
from .info import CommitInfo
from .preview import kept_prefix_tokens

# """`adopt`: a list that somebody else's compaction left goes on in the thread it came from.
#
# A client that runs out of room folds its conversation itself and sends the shorter list from then
# on. The thread takes that list over as one compaction, whose parent is all that was said: a revert
# brings it back. What the list says again keeps its line, by what every client must echo.
# """


def adopt(
    handle: Handle,
    messages: Sequence[Message],
    summary: int,
    *,
    note: str | None,
    metadata: JsonObject | None,
) -> CommitInfo:
    """Land the compaction that leaves these messages, of which one is the summary."""
    check_beside(message=note, metadata=metadata)
    check_count("summary", summary)
    if summary >= len(messages):
        raise WrongValue("summary", f"must be a place in the list: {summary} of {len(messages)}")

    def draft(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
        rows = handle.view(head).rows
        planned = plan_rewrite(rows, adopted_rows(rows, messages, summary))
        return Draft("compact", planned.op, planned.messages, note, metadata), ()

    return handle.land("compact", draft)


def adopted_rows(rows: Sequence[Row], messages: Sequence[Message], summary: int) -> list[Row]:
    """The lines of such a list: those that the thread has already, in their order, and new ones."""
    shown = show_rows(rows)
    found = _again([match_key(row.message) for row in shown], messages, summary)
    made: list[Row] = []
    for number, message in enumerate(messages):
        kind = "summary" if number == summary else "dialogue"
        at = found.get(number)
        made.append(Row(None, message, "normal", kind) if at is None else shown[at])
    return made


def _again(keys: Sequence[Id], messages: Sequence[Message], summary: int) -> dict[int, int]:
    """By its number in the list, the line that a message says again: of those that read alike the
    newest behind the summary, where a client keeps what was said last, and the oldest before it."""
    found: dict[int, int] = {}
    free = list(keys)
    for number in range(len(messages) - 1, summary, -1):
        key = match_key(messages[number])
        if key in free:
            at = len(free) - 1 - free[::-1].index(key)
            found[number] = at
            del free[at:]
    place = 0
    for number, message in enumerate(messages[:summary]):
        key = match_key(message)
        if key in free[place:]:
            found[number] = free.index(key, place)
            place = found[number] + 1
    return found


# """What every compaction asks of its plan, whoever wrote the summary."""

REASON_MOST = 300


def check_retained(before: Sequence[Row], after: Sequence[Row], retain: Sequence[str]) -> None:
    """Refuse a plan that loses a text which the thread has now and which must stay."""
    said, left = (_read(rows) for rows in (before, after))
    for text in retain:
        if not text or text not in said:
            raise CompactRefused(f"{text!r} is not in the thread", field="retain")
        if text not in left:
            raise CompactRefused(f"{text!r} would be lost; say it in the summary", field="retain")


def _read(rows: Sequence[Row]) -> str:
    return "\n".join(row.message.text for row in show_rows(rows))


def with_hidden(rows: Sequence[Row], kept: Sequence[Row]) -> tuple[Row, ...]:
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


def count_rows(handle: Handle, rows: Sequence[Row]) -> int:
    """The tokens of the lines that a model is shown."""
    return sum(handle.count(row.message) for row in show_rows(rows))


def write_note(result: CompactResult) -> str:
    """What the log says of a compaction, and why where it was not done as it was asked for."""
    note = f"compact {result.tokens_before} to {result.tokens_after} tokens"
    if result.thinned:
        results = "1 unread result" if len(result.thinned) == 1 else "unread results"
        note += f", {results} shortened"
    if result.failures and result.method is not None:
        note += f", by {STEPS[result.method]}: {result.reason}"
    return note


def short_reason(error: Exception) -> str:
    """Why something failed, in one line of a bounded length: an upstream may say anything."""
    line = " ".join(str(error).split())
    return line if len(line) <= REASON_MOST else line[: REASON_MOST - 3] + "..."


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
        lost = before - kept_prefix_tokens(handle, rows, planned.rows)
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


def ended(trigger: Trigger, result: CompactResult) -> SystemMessage:
    """What watchers hear at the end of a compaction."""
    return compaction_ended(
        trigger,
        result.tokens_before,
        result.tokens_after,
        method=result.method,
        reason=result.reason,
        thinned=len(result.thinned),
    )


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
