"""Compaction by a model: what to fold is decided, a model is asked, and its summary lands.

A flow, like every procedure that must ask somebody: it yields requests and is sent answers, so the
verb drives it with a model that it waits for, and the agent's loop with the one that it talks to
anyway. The thread is free while a model writes. What was said meanwhile stays behind the fold; a
line of it that was edited meanwhile stops the compaction, because the summary tells its old words.

Whatever fails, before or while it lands, leaves the thread exactly as it was, and watchers hear
that it failed.
"""

from collections.abc import Generator, Sequence

from msgspec import Struct, structs

from weft.catalog import Model, cost
from weft.compact import (
    FRAME,
    Asking,
    Batch,
    Clip,
    CompactResult,
    Fold,
    Folding,
    Importance,
    Order,
    Past,
    Plan,
    Scorer,
    Summary,
    Trigger,
    choose_fold,
    chunk_room,
    compact_result,
    compaction_ended,
    compaction_failed,
    compaction_progress,
    compaction_started,
    cut_chunks,
    keep_verbatim,
    most_told,
    record_batches,
    summarise,
    weigh,
    write_batches,
)
from weft.errors import BudgetExceeded, CompactRefused, WeftError
from weft.history import Draft, Row, plan_rewrite, show_rows
from weft.ids import Id
from weft.model import ApiError, JsonObject, Message, Request, Response, Text

from .handle import Handle
from .planning import check_retained, count_rows, with_hidden, write_note
from .preview import kept_prefix
from .tellings import read_times, told_batches

WAITING = "[{} will write here what {} messages said]"

Flow = Generator[Request, Response | ApiError, CompactResult]


class Wish(Struct, frozen=True, kw_only=True):
    """What is to be folded, and how: the words of `Thread.compact`.

    `verbatim` is how many tokens of the folded turns stay word for word: those that matter most
    by the `scorer`. `force` lands a fold that somebody wants and that saves nothing.
    """

    budget: int | None = None
    keep: int | None = None
    prompt: str | None = None
    chunk: int | None = None
    clip: Clip = Clip()
    verbatim: int = 0
    scorer: Scorer = Importance()
    retain: tuple[str, ...] = ()
    trigger: Trigger = "manual"
    force: bool = True


class Snapshot(Struct, frozen=True):
    """A thread when a summary of it was begun."""

    rows: list[Row]
    fold: Fold
    batches: tuple[Batch, ...]


def summarise_old(handle: Handle, model: Model, wish: Wish) -> Flow:
    """Fold old turns into a summary that this model writes; raises what the model's failure is."""
    head = handle.head()
    rows = handle.view(head).rows
    check_retained(rows, rows, wish.retain)
    taken = take_snapshot(handle, head, model, wish)
    if taken is None:
        return _nothing(handle, rows)
    fold = taken.fold
    past = Past(rows=fold.turns, batches=taken.batches, times=read_times(handle, fold.turns))
    handle.emit([compaction_started()])
    failure = "it was given up"
    try:
        asking = summarise(past, _order(model, wish, fold), handle.count)
        summary = yield from _forward(handle, asking)
        result = _land(handle, taken, summary, wish, model)
        failure = ""
    except WeftError as error:
        failure = str(error)
        raise
    finally:
        if failure:
            handle.emit([compaction_failed(failure)])
    return result


def foresee_summary(handle: Handle, model: Model, wish: Wish) -> CompactResult:
    """What it would fold and at most leave, and how often the model would be asked; asks nobody."""
    head = handle.head()
    rows = handle.view(head).rows
    check_retained(rows, rows, wish.retain)
    taken = take_snapshot(handle, head, model, wish)
    if taken is None:
        return structs.replace(_nothing(handle, rows), preview=True)
    fold = taken.fold
    words = WAITING.format(model.name, len(fold.turns))
    planned = _plan(rows, fold.folding.plan(fold.border, Message("user", (Text(words),))))
    order = _order(model, wish, fold)
    cut = cut_chunks(fold.turns, chunk_room(order, fold.told), handle.count)
    chunks, after = len(cut), fold.tokens(most_told(cut, fold.limit, handle.count))
    folds = len(taken.batches) + chunks > wish.clip.most
    return structs.replace(
        compact_result(planned, count_rows(handle, rows), after, preview=True),
        cache_lost=count_rows(handle, rows) - kept_prefix(handle, rows, planned.rows),
        model=model.name,
        requests=chunks + folds,
        cost=_cost(model, weigh(fold.turns, handle.count) + chunks * FRAME, fold.limit),
    )


def take_snapshot(handle: Handle, head: Id | None, model: Model, wish: Wish) -> Snapshot | None:
    """What there is to fold at a commit; `None` where there is nothing."""
    rows = handle.view(head).rows
    shown = show_rows(rows)
    folding = Folding(shown, handle.count)
    if folding.lead == len(shown):
        what = "only system messages" if shown else "no messages"
        raise CompactRefused(f"the thread has {what}: nothing to compact", field="model")
    fold = choose_fold(
        folding, keep=wish.keep, budget=wish.budget, output=model.output, spare=wish.verbatim
    )
    if fold is None:
        return None
    if wish.verbatim:
        fold = keep_verbatim(fold, wish.scorer, wish.verbatim)
    batches = [batch for row in fold.tellings for batch in told_batches(handle, head, row)]
    return Snapshot(rows, fold, tuple(batches))


def _order(model: Model, wish: Wish, fold: Fold) -> Order:
    kept = "\n".join(row.message.text for row in fold.folding.kept(fold.border))
    return Order(
        model=model,
        limit=fold.limit,
        prompt=wish.prompt,
        chunk=wish.chunk,
        room=fold.room,
        clip=wish.clip,
        retain=tuple(text for text in wish.retain if text not in kept),
    )


def _forward(
    handle: Handle, flow: Generator[Asking, Response | ApiError, Summary]
) -> Generator[Request, Response | ApiError, Summary]:
    """Pass a flow's requests on, and tell watchers how far it is."""
    try:
        asking = next(flow)
        while True:
            if asking.of > 1:
                handle.emit([compaction_progress(asking.number, asking.of)])
            asking = flow.send((yield asking.request))
    except StopIteration as end:
        return end.value


def _land(
    handle: Handle, taken: Snapshot, summary: Summary, wish: Wish, model: Model
) -> CompactResult:
    """Commit the summary in place of what it tells; plans again where another writer was here."""
    message = write_batches(summary.batches, wish.clip)
    result = _nothing(handle, taken.rows)

    def draft(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
        nonlocal result
        present = handle.view(head).rows
        folding, border = _again(handle, taken, present)
        planned = _plan(present, folding.plan(border, message))
        _check(handle, present, planned.rows, wish)
        before, after = count_rows(handle, present), count_rows(handle, planned.rows)
        result = structs.replace(
            compact_result(planned, before, after),
            cache_lost=before - kept_prefix(handle, present, planned.rows),
            model=model.name,
            requests=summary.requests,
            dropped=summary.dropped,
            names_added=summary.added,
            names_left=summary.left,
            cost=_cost(model, summary.input, summary.output),
        )
        rewrite = plan_rewrite(present, planned.rows)
        record = {**planned.record(), **_made(summary, model)}
        return Draft("compact", rewrite.op, rewrite.messages, write_note(before, after), record), ()

    info = handle.land("compact", draft)
    handle.emit([compaction_ended(wish.trigger, result.tokens_before, result.tokens_after)])
    return structs.replace(result, commit=info.id)


def _again(handle: Handle, taken: Snapshot, present: list[Row]) -> tuple[Folding, int]:
    """The same fold in the rows that there are now; refuses where its own lines have changed."""
    old, border = taken.fold.folding, taken.fold.border
    if present == taken.rows:
        return old, border
    shown = show_rows(present)
    folded = {old.rows[i].id: old.rows[i].message for i in old.folded(border)}
    places = {row.id: place for place, row in enumerate(shown)}
    moved = places.get(old.rows[border - 1].id, -1) + 1
    same = all(id in places and shown[places[id]].message == folded[id] for id in folded)
    stay = [place for place in range(moved) if shown[place].id not in folded]
    folding = Folding(shown, handle.count, verbatim=stay)
    if not moved or not same or folding.joined[moved]:
        why = "what it tells was changed while the summary was written; try again"
        raise CompactRefused(why, field="model")
    return folding, moved


def _check(handle: Handle, before: Sequence[Row], after: Sequence[Row], wish: Wish) -> None:
    """Refuse a result that lost a pin or a text to retain, saves nothing, or breaks its budget."""
    kept = {row.id: row for row in after}
    for row in before:
        if row.priority == "pinned" and kept.get(row.id) != row:
            raise CompactRefused("a pinned message would not stay as it is", field="model")
    check_retained(before, after, wish.retain)
    needed, now = count_rows(handle, after), count_rows(handle, before)
    if needed >= now and not (wish.force and wish.trigger == "manual"):
        why = f"its summary would save nothing: {now} tokens would be {needed}; it was not forced"
        raise CompactRefused(why, field="model")
    if wish.budget is not None and needed > wish.budget:
        what = "the summary and what must stay need"
        line = f"{what} {needed} tokens, more than the budget of {wish.budget}"
        raise BudgetExceeded(line, needed=needed, budget=wish.budget)


def _made(summary: Summary, model: Model) -> JsonObject:
    """How the summary came about, for the commit's record."""
    made = {
        "model": model.name,
        "requests": summary.requests,
        "input": summary.input,
        "output": summary.output,
        "dropped": list(summary.dropped),
        "names_added": summary.added,
        "names_left": summary.left,
    }
    return {"made": made, **record_batches(summary.batches)}


def _cost(model: Model, input: int, output: int) -> float | None:
    """What so many tokens cost, where the catalogue knows a price and the vendor reported."""
    if model.price is None or not input:
        return None
    return cost(model.price, input=input, output=output)


def _plan(rows: Sequence[Row], planned: Plan) -> Plan:
    return structs.replace(planned, rows=with_hidden(rows, planned.rows))


def _nothing(handle: Handle, rows: Sequence[Row]) -> CompactResult:
    tokens = count_rows(handle, rows)
    return compact_result(Plan(rows=tuple(rows)), tokens, tokens)
