"""Compaction by the engine: what to fold is decided, a summary is made, and it lands.

A flow, like every procedure that must ask somebody: it yields requests and is sent answers, so the
verb drives it with a model that it waits for, and the agent's loop with the one that it talks to
anyway. The thread is free while a model writes. What was said meanwhile stays behind the fold; a
line of it that was edited meanwhile stops the model's summary, because it tells its old words.

Where room has to be made (`CompactOptions.fallback`), the steps are, each after the one before
it failed or was over budget:

1. a model's summary
2. a shorter one by the same model, if it answered the first time
3. an extract without a model
4. a cut that only says how much it took

Watchers hear of each step that failed, and the commit says which one it was and why. Whatever
fails at last leaves the thread exactly as it was, and watchers hear that it failed.
"""

from collections.abc import Callable, Generator, Sequence

from msgspec import Struct, structs

from weft.catalog import Model, cost, load_catalog
from weft.compact import (
    FRAME,
    Answer,
    Batch,
    Clip,
    CompactResult,
    Fold,
    Folding,
    History,
    Importance,
    Method,
    Plan,
    Scorer,
    StepFailure,
    Summary,
    SummaryJob,
    SummaryRequest,
    Thin,
    Thinned,
    Trigger,
    choose_fold,
    chunk_room,
    compact_result,
    compaction_failed,
    compaction_fell_back,
    compaction_progress,
    compaction_started,
    cut_chunks,
    keep_verbatim,
    max_summary_tokens,
    plan_budget,
    record_batches,
    summarise,
    summary_need,
    weigh,
    write_batches,
)
from weft.errors import BudgetExceeded, CompactRefused, SummaryFailed, ThreadError, WeftError
from weft.history import Draft, Row, plan_rewrite, show_rows
from weft.ids import Id
from weft.model import JsonObject, Message, Request, Text

from .asker import Asker, drive, find_asker
from .compaction import check_retained, count_rows, ended, short_reason, with_hidden, write_note
from .handle import Handle
from .preview import kept_prefix_tokens
from .summaries import batches_of_summary, read_times

WAITING = "[{} will write here what {} messages said]"
SHORTER = 2
"""A second summary is to be so many times shorter."""

Flow = Generator[Request, Answer, CompactResult]
Count = Callable[[Message], int]


class CompactOptions(Struct, frozen=True, kw_only=True):
    """What is to be folded, and how: the words of `Thread.compact`.

    `verbatim` is how many tokens of the folded turns stay word for word: those that matter most
    by the `scorer`. `force` lands a fold that somebody wants and that saves nothing.

    `limit` is how many tokens may be taken before results that the model has not read are
    shortened, where they do not fit the `budget`. `fallback` is whether another way is taken where
    a model writes no summary; where it is absent, it is taken for a budget, which is a promise,
    and not otherwise. `count` counts the tokens of a message, where it is not to be the thread's
    own tokenizer.
    """

    budget: int | None = None
    limit: int | None = None
    keep: int | None = None
    prompt: str | None = None
    chunk: int | None = None
    clip: Clip = Clip()
    verbatim: int = 0
    scorer: Scorer = Importance()
    retain: tuple[str, ...] = ()
    trigger: Trigger = "manual"
    force: bool = True
    fallback: bool | None = None
    count: Count | None = None

    @property
    def falls_back(self) -> bool:
        return self.budget is not None if self.fallback is None else self.fallback

    @property
    def most(self) -> int | None:
        """The most tokens that may be left."""
        if self.budget is None or self.limit is None:
            return self.budget
        return max(self.budget, self.limit)


class Snapshot(Struct, frozen=True):
    """A thread when a summary of it was begun. `thinned` are its unread results that the fold
    needs shorter; where that alone is enough, there is no fold."""

    rows: list[Row]
    fold: Fold | None
    batches: tuple[Batch, ...] = ()
    thinned: tuple[Thinned, ...] = ()
    shown: tuple[Row, ...] = ()

    def thin(self, rows: Sequence[Row]) -> list[Row]:
        """Other rows with the same results shortened, where they are as they were."""
        old = {row.id: row.message for row in show_rows(self.rows)}
        ids = {result.id for result in self.thinned}
        new = {row.id: row for row in self.shown if row.id is not None and row.id.hex() in ids}
        return [
            new[row.id] if row.id in new and row.message == old.get(row.id) else row for row in rows
        ]


def compact_flow(handle: Handle, model: Model | None, wish: CompactOptions) -> Flow:
    """Fold old turns, by this model's summary if there is one; raises why none was made."""
    work = Work(handle, wish)
    failure = "it was given up"
    try:
        result = yield from work.run(model)
        failure = ""
    except WeftError as error:
        failure = short_reason(error)
        raise
    finally:
        if failure and work.started:
            handle.emit([compaction_failed(failure)])
    return result


class Work:
    """One compaction by the engine while it is made."""

    def __init__(self, handle: Handle, wish: CompactOptions) -> None:
        self.handle = handle
        self.wish = wish
        self.started = False
        self.failures: list[StepFailure] = []
        self.requests = 0

    def run(self, model: Model | None) -> Flow:
        """The steps, one after the other."""
        handle, wish = self.handle, self.wish
        rows = handle.view(handle.head()).rows
        check_retained(rows, rows, wish.retain)
        if model is None:
            return self._without_model()
        try:
            taken = take_snapshot(handle, handle.head(), model, wish)
        except BudgetExceeded as error:  # no room for a model's summary: perhaps for a shorter one
            if not wish.falls_back:
                raise
            self.failures.append(StepFailure("model", short_reason(error)))
            return self._without_model()
        if taken is None:
            return _nothing(handle, rows)
        self._start()
        if taken.fold is None:
            return self._land(lambda present: _thin_plan(taken, present))
        for step in ("model", "shorter"):
            try:
                return (yield from self._by_model(model, step, taken, taken.fold))
            except (SummaryFailed, BudgetExceeded, CompactRefused) as error:
                if not wish.falls_back:
                    raise
                again = step == "model" and not _is_out_of_reach(error)
                self._fall_back(step, "shorter" if again else "extract", error)
                if not again:
                    break
        return self._without_model()

    def _by_model(self, model: Model, step: Method, taken: Snapshot, fold: Fold) -> Flow:
        """A summary that this model writes."""
        handle, wish = self.handle, self.wish
        past = History(rows=fold.turns, batches=taken.batches, times=read_times(handle, fold.turns))
        order = _order(model, wish, fold, step)
        asking = summarise(past, order, wish.count or handle.count_once)
        summary = yield from self._forward(asking)
        message = write_batches(summary.batches, wish.clip)

        def plan(present: list[Row]) -> Plan:
            folding, border = _again(handle, taken, fold, present)
            planned = _plan(present, folding.plan(border, message))
            return structs.replace(planned, method=step, thinned=taken.thinned)

        return self._land(plan, summary, model)

    def _without_model(self) -> CompactResult:
        """An extract, or a cut; raises `BudgetExceeded` where what must stay is too much."""
        return self._land(self.plan_without_model)

    def plan_without_model(self, present: Sequence[Row]) -> Plan:
        """What is left of these rows without a model."""
        wish = self.wish
        shown = show_rows(present)
        count = wish.count or self.handle.count_once
        keep = 1 if wish.budget is None and wish.keep is None else wish.keep
        budget = sum(count(row.message) for row in shown) if wish.budget is None else wish.budget
        planned = plan_budget(shown, budget, keep=keep, limit=wish.limit, cut=True, count=count)
        return _plan(present, planned)

    def _start(self) -> None:
        """Tell watchers once that something begins."""
        if not self.started:
            self.started = True
            self.handle.emit([compaction_started()])

    def _fall_back(self, step: Method, to: Method, error: Exception) -> None:
        self.failures.append(StepFailure(step, short_reason(error)))
        self.handle.emit([compaction_fell_back(step, to, short_reason(error))])

    def _forward(
        self, flow: Generator[SummaryRequest, Answer, Summary]
    ) -> Generator[Request, Answer, Summary]:
        """Pass a flow's requests on, and tell watchers how far it is."""
        try:
            asking = next(flow)
            while True:
                self.requests += 1
                if asking.of > 1:
                    self.handle.emit([compaction_progress(asking.number, asking.of)])
                asking = flow.send((yield asking.request))
        except StopIteration as end:
            return end.value

    def _land(
        self,
        plan: Callable[[list[Row]], Plan],
        summary: Summary | None = None,
        model: Model | None = None,
    ) -> CompactResult:
        """Commit a plan; plans again where another writer was here."""
        handle, wish = self.handle, self.wish
        rows = handle.view(handle.head()).rows
        first = plan(rows)
        result = compact_result(first, count_rows(handle, rows), count_rows(handle, first.rows))
        if not plan_rewrite(rows, first.rows):
            return result
        self._start()

        def draft(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
            nonlocal result
            present = handle.view(head).rows
            planned = first if present == rows else plan(present)
            _check(handle, present, planned.rows, wish, summary is not None)
            before, after = count_rows(handle, present), count_rows(handle, planned.rows)
            result = structs.replace(
                compact_result(planned, before, after),
                cache_lost=before - kept_prefix_tokens(handle, present, planned.rows),
                failures=tuple(self.failures),
                requests=self.requests,
            )
            record = planned.record()
            if self.failures:
                record["failures"] = [
                    {"step": failure.step, "reason": failure.reason} for failure in self.failures
                ]
            if summary is not None and model is not None:
                result = _credit(result, summary, model)
                record |= _made(summary, model)
            rewrite = plan_rewrite(present, planned.rows)
            note = write_note(result)
            return Draft("compact", rewrite.op, rewrite.messages, note, record), ()

        info = handle.land("compact", draft)
        handle.emit([ended(wish.trigger, result)])
        return structs.replace(result, commit=info.id)


def preview_summary(handle: Handle, model: Model, wish: CompactOptions) -> CompactResult:
    """What it would fold and at most leave, and how often the model would be asked; asks nobody."""
    head = handle.head()
    rows = handle.view(head).rows
    check_retained(rows, rows, wish.retain)
    try:
        taken = take_snapshot(handle, head, model, wish)
    except BudgetExceeded:  # no room for a model's summary: perhaps for an extract
        if not wish.falls_back:
            raise
        planned = Work(handle, wish).plan_without_model(rows)
        return _preview_plan(handle, rows, planned)
    if taken is None:
        return structs.replace(_nothing(handle, rows), preview=True)
    fold = taken.fold
    if fold is None:
        return _preview_plan(handle, rows, _thin_plan(taken, rows))
    words = WAITING.format(model.name, len(fold.turns))
    planned = _plan(rows, fold.folding.plan(fold.border, Message("user", (Text(words),))))
    planned = structs.replace(planned, thinned=taken.thinned)
    order = _order(model, wish, fold, "model")
    cut = cut_chunks(fold.turns, chunk_room(order, fold.told), handle.count)
    chunks, after = len(cut), fold.tokens(max_summary_tokens(cut, fold.limit, handle.count))
    folds = len(taken.batches) + chunks > wish.clip.most
    return structs.replace(
        compact_result(planned, count_rows(handle, rows), after, preview=True),
        cache_lost=count_rows(handle, rows) - kept_prefix_tokens(handle, rows, planned.rows),
        model=model.name,
        requests=chunks + folds,
        cost=_cost(model, weigh(fold.turns, handle.count) + chunks * FRAME, fold.limit),
    )


def compact_by_model(
    handle: Handle, model: str | Asker, wish: CompactOptions, preview: bool, seconds: float | None
) -> CompactResult:
    """Fold old turns into a summary that a model writes, and wait for it; a preview asks nobody."""
    if preview:
        return preview_summary(handle, _known_model(model, handle), wish)
    asker = find_asker(model, handle.models)
    return drive(compact_flow(handle, asker.model, wish), asker, seconds)


def _known_model(model: str | Asker, handle: Handle) -> Model:
    """The model that a preview is for. It is not asked, so it needs no key and no upstream."""
    try:
        return find_asker(model, handle.models).model
    except ThreadError:
        if not isinstance(model, str):
            raise
        return load_catalog().find(model)


def _preview_plan(handle: Handle, rows: Sequence[Row], planned: Plan) -> CompactResult:
    """What a plan that asks nobody comes to."""
    before, after = count_rows(handle, rows), count_rows(handle, planned.rows)
    lost = before - kept_prefix_tokens(handle, rows, planned.rows)
    result = compact_result(planned, before, after, preview=True)
    return structs.replace(result, cache_lost=lost)


def take_snapshot(
    handle: Handle, head: Id | None, model: Model, wish: CompactOptions
) -> Snapshot | None:
    """What there is to fold at a commit; `None` where there is nothing."""
    rows = handle.view(head).rows
    shown = show_rows(rows)
    count = wish.count or handle.count_once
    if Folding(shown, count).lead == len(shown):
        what = "only system messages" if shown else "no messages"
        raise CompactRefused(f"the thread has {what}: nothing to compact", field="model")

    def choose(lines: Sequence[Row], budget: int | None) -> Fold | None:
        return choose_fold(
            Folding(lines, count),
            keep=wish.keep,
            budget=budget,
            output=model.output,
            spare=wish.verbatim,
        )

    thinned: tuple[Thinned, ...] = ()
    lines: Sequence[Row] = shown
    try:
        fold = _first_that_fits(lambda budget: choose(shown, budget), (wish.budget, wish.most))
    except BudgetExceeded:
        need = summary_need(Folding(shown, count), wish.most or 0, wish.verbatim)
        thin = Thin(shown, wish.most or 0, wish.keep, True, count, trial=count, need=need)
        if not thin.is_possible:
            raise
        thinning = thin.thin()
        lines, thinned = thinning.rows, thinning.thinned
        fold = None if thin.is_alone else choose(lines, wish.most)
        if fold is None:  # shorter results are enough
            return Snapshot(rows, None, (), thinned, tuple(lines))
    if fold is None:
        return None
    if wish.verbatim:
        fold = keep_verbatim(fold, wish.scorer, wish.verbatim)
    batches = [batch for row in fold.tellings for batch in batches_of_summary(handle, head, row)]
    return Snapshot(rows, fold, tuple(batches), thinned, tuple(lines))


def _first_that_fits(
    choose: Callable[[int | None], Fold | None], budgets: Sequence[int | None]
) -> Fold | None:
    """The fold for the first of these budgets that is enough; raises what the last one needs."""
    *smaller, largest = dict.fromkeys(budgets)
    for budget in smaller:
        try:
            return choose(budget)
        except BudgetExceeded:
            continue
    return choose(largest)


def _thin_plan(taken: Snapshot, present: Sequence[Row]) -> Plan:
    """The plan in which only unread results are shortened."""
    return Plan(rows=tuple(taken.thin(present)), thinned=taken.thinned, method="thin")


def _is_out_of_reach(error: Exception) -> bool:
    """Whether a second request would fail like the first: nobody answered it."""
    return isinstance(error, SummaryFailed) and not error.answered


def _order(model: Model, wish: CompactOptions, fold: Fold, step: Method) -> SummaryJob:
    kept = "\n".join(row.message.text for row in fold.folding.kept(fold.border))
    shorter = step == "shorter"
    return SummaryJob(
        model=model,
        limit=max(1, fold.limit // SHORTER) if shorter else fold.limit,
        prompt=wish.prompt,
        chunk=wish.chunk,
        room=fold.room,
        clip=wish.clip,
        retain=tuple(text for text in wish.retain if text not in kept),
        brief=shorter,
    )


def _credit(result: CompactResult, summary: Summary, model: Model) -> CompactResult:
    """The result with what its model did for it."""
    return structs.replace(
        result,
        model=model.name,
        dropped=summary.dropped,
        names_added=summary.added,
        names_left=summary.left,
        cost=_cost(model, summary.input, summary.output),
    )


def _again(handle: Handle, taken: Snapshot, fold: Fold, present: list[Row]) -> tuple[Folding, int]:
    """The same fold in the rows that there are now; refuses where its own lines have changed."""
    old, border = fold.folding, fold.border
    if present == taken.rows:
        return old, border
    shown = taken.thin(show_rows(present))
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


def _check(
    handle: Handle, before: Sequence[Row], after: Sequence[Row], wish: CompactOptions, told: bool
) -> None:
    """Refuse a result that lost a pin or a text to retain, saves nothing, or breaks its budget;
    `told` is whether a model wrote its summary."""
    kept = {row.id: row for row in after}
    for row in before:
        if row.priority == "pinned" and kept.get(row.id) != row:
            raise CompactRefused("a pinned message would not stay as it is", field="model")
    check_retained(before, after, wish.retain)
    count = wish.count or handle.count_once
    needed, now = (sum(count(row.message) for row in show_rows(rows)) for rows in (after, before))
    if told and needed >= now and not (wish.force and wish.trigger == "manual"):
        why = f"its summary would save nothing: {now} tokens would be {needed}; it was not forced"
        raise CompactRefused(why, field="model")
    if wish.most is not None and needed > wish.most:
        what = "the summary and what must stay need"
        line = f"{what} {needed} tokens, more than the budget of {wish.most}"
        raise BudgetExceeded(line, needed=needed, budget=wish.most)


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
