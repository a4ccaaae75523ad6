"""Compaction with a model's summary, and the fallbacks if the model fails.

`compact_flow` is a generator: it yields requests and is sent answers. `Thread.compact` runs it with
a model and waits; the agent's loop runs it over its own connection. The thread is not locked while
a model writes. Messages that are added meanwhile stay after the summary. If a message that the
summary replaces is edited meanwhile, the summary is refused, because it describes the old text.

If `CompactOptions.fallback` is on, the steps are tried in this order, each after the one before it
failed or was over budget:

1. a summary by the model
2. a shorter summary by the same model, if it answered the first request
3. an extract without a model
4. a cut that only says how many messages were removed

Listeners get an event for every failed step, and the commit says which step succeeded and why. If
all steps fail, the thread is unchanged, and listeners get an event for that too.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress

from msgspec import Struct, structs

from weft.catalog import Model, cost, load_catalog
from weft.compact import (
    KEPT_ALL,
    KEPT_PART,
    PROMPT_TOKENS,
    Answer,
    Batch,
    CompactResult,
    Cutoff,
    Extract,
    FoldOptions,
    Layout,
    Method,
    Plan,
    ResultThinner,
    StepFailure,
    Summary,
    SummaryJob,
    SummaryRequest,
    SummarySource,
    Thinned,
    choose_cutoff,
    compaction_failed,
    compaction_fell_back,
    compaction_progress,
    cut_chunks,
    describe_task,
    keep_verbatim,
    locate_range,
    max_chunk_tokens,
    max_summary_tokens,
    max_task_tokens,
    measure_cutoff,
    min_summary_need,
    plain_turn_tokens,
    plan_budget,
    plan_range,
    record_batches,
    rule_rows,
    summarise,
    write_batches,
)
from weft.errors import BudgetExceeded, CompactRefused, SummaryFailed, ThreadError, WeftError
from weft.history import Row, is_visible, visible_rows
from weft.ids import Id
from weft.model import JsonObject, Message, Request, Text, is_system

from .arguments import CompactOptions
from .asker import Asker, drive, find_asker
from .compaction import (
    Compaction,
    as_preview,
    batches_of_summary,
    check_retained,
    measure,
    read_originals,
    read_times,
    short_reason,
    with_hidden_rows,
)
from .handle import Handle

PLACEHOLDER = "[{} will write here what {} messages said]"
"""The text in place of the summary in a preview."""

SHORTER_DIVISOR = 2
"""The limit of the second summary is the first one's limit divided by this."""

CompactFlow = Generator[Request, Answer, CompactResult]
Count = Callable[[Message], int]


class Snapshot(Struct, frozen=True):
    """The state of a thread when its summary was begun.

    `thinned` are the unread results that had to be shortened; `visible` are the visible rows with
    these results shortened. `cutoff` is `None` if shortening them is enough.
    `verbatim` is kept word for word beside the model's summary; `has_all_typed` says whether it has
    everything that the user typed.
    """

    rows: list[Row]
    cutoff: Cutoff | None
    batches: tuple[Batch, ...] = ()
    verbatim: str = ""
    has_all_typed: bool = False
    thinned: tuple[Thinned, ...] = ()
    visible: tuple[Row, ...] = ()

    def thin(self, rows: Sequence[Row]) -> list[Row]:
        """The current rows with the same results shortened, except those that have changed."""
        old_messages = {row.id: row.message for row in visible_rows(self.rows)}
        ids = {result.id for result in self.thinned}
        thinned_rows = {
            row.id: row for row in self.visible if row.id is not None and row.id.hex() in ids
        }
        return [
            thinned_rows[row.id]
            if row.id in thinned_rows and row.message == old_messages.get(row.id)
            else row
            for row in rows
        ]


def compact_flow(handle: Handle, model: Model | None, options: CompactOptions) -> CompactFlow:
    """Compact with this model's summary, or without a model; raises if every step fails."""
    run = EngineRun(handle, options)
    failure = "it was given up"  # if the caller closes the generator
    try:
        result = yield from run.run_steps(model)
        failure = ""
    except WeftError as error:
        failure = short_reason(error)
        raise
    finally:
        if failure and run.compaction.started:
            handle.emit([compaction_failed(failure)])
    return result


def compact_with_model(
    handle: Handle,
    model: str | Asker,
    options: CompactOptions,
    preview: bool,
    seconds: float | None,
) -> CompactResult:
    """Run the flow with a model and wait for it; a preview asks no model."""
    if preview:
        return preview_summary(handle, _model_for_preview(model, handle), options)
    asker = find_asker(model, handle.models)
    return drive(compact_flow(handle, asker.model, options), asker, seconds)


def preview_summary(handle: Handle, model: Model, options: CompactOptions) -> CompactResult:
    """A preview: the messages that would be folded, an upper bound of the tokens that would
    remain, and the number of requests to the model."""
    head = handle.head()
    rows = handle.view(head).rows
    check_retained(rows, rows, options.retain)  # refuses texts that the thread does not have
    run = EngineRun(handle, options)
    try:
        snapshot = take_snapshot(handle, head, model, options)
    except BudgetExceeded:  # no room for a model's summary, but maybe for an extract
        if not options.falls_back:
            raise
        return run.compaction.preview(run.plan_without_model)
    if snapshot is None:
        unchanged = Plan(rows=tuple(rows))
        return as_preview(handle, rows, unchanged, measure(handle, rows, unchanged))
    cutoff = snapshot.cutoff
    if cutoff is None:
        return run.compaction.preview(lambda current: _thinned_plan(snapshot, current))
    placeholder = PLACEHOLDER.format(model.name, len(cutoff.turns))
    plan = cutoff.layout.plan(cutoff.position, Message("user", (Text(placeholder),)))
    plan = structs.replace(with_hidden_rows(rows, plan), thinned=snapshot.thinned)
    job = _summary_job(model, options, snapshot, "model", options.count or handle.count)
    chunks = cut_chunks(cutoff.turns, max_chunk_tokens(job, cutoff.summary_tokens), handle.count)
    summary_tokens = max_summary_tokens(chunks, cutoff.limit, handle.count)
    needs_merge = len(snapshot.batches) + len(chunks) > options.clip.most
    input_tokens = plain_turn_tokens(cutoff.turns, handle.count) + len(chunks) * PROMPT_TOKENS
    return structs.replace(
        as_preview(handle, rows, plan, measure(handle, rows, plan)),
        tokens_after=cutoff.max_tokens_after(summary_tokens),
        model=model.name,
        requests=len(chunks) + (1 if needs_merge else 0),
        cost=_cost(model, input_tokens, cutoff.limit),
    )


class EngineRun:
    """One compaction with a model: its options, and the steps that have failed so far."""

    def __init__(self, handle: Handle, options: CompactOptions) -> None:
        self.handle = handle
        self.options = options
        self.failures: list[StepFailure] = []
        self.requests = 0
        self.compaction = Compaction(
            handle=handle, trigger=options.trigger, retain=options.retain, note=options.note
        )

    def run_steps(self, model: Model | None) -> CompactFlow:
        """Try the steps one after the other, until one succeeds."""
        handle, options = self.handle, self.options
        head = handle.head()
        rows = handle.view(head).rows
        check_retained(rows, rows, options.retain)  # refuses texts that the thread does not have
        if model is None:
            return self._land(self.plan_without_model)
        try:
            snapshot = take_snapshot(handle, head, model, options)
        except BudgetExceeded as error:  # no room for a model's summary, but maybe for an extract
            if not options.falls_back:
                raise
            self.failures.append(StepFailure("model", short_reason(error)))
            return self._land(self.plan_without_model)
        if snapshot is None:
            return measure(handle, rows, Plan(rows=tuple(rows)))
        self.compaction.start()
        if snapshot.cutoff is None:
            return self._land(lambda current: _thinned_plan(snapshot, current))
        for step in ("model", "shorter"):
            try:
                return (yield from self._summarise(model, step, snapshot, snapshot.cutoff))
            except (SummaryFailed, BudgetExceeded, CompactRefused) as error:
                if not options.falls_back:
                    raise
                # Without an answer, a second request would fail like the first.
                has_answered = not isinstance(error, SummaryFailed) or error.answered
                next_step: Method = "shorter" if step == "model" and has_answered else "extract"
                reason = short_reason(error)
                self.failures.append(StepFailure(step, reason))
                handle.emit([compaction_fell_back(step, next_step, reason)])
                if next_step == "extract":
                    break
        return self._land(self.plan_without_model)

    def plan_without_model(self, rows: Sequence[Row]) -> Plan:
        """Plan an extract or a cut.

        Raises `BudgetExceeded` if the messages that must stay are larger than the budget.
        """
        options = self.options
        visible = visible_rows(rows)
        count = options.count or self.handle.count_once
        head = self.handle.head()

        def originals(folded: Sequence[Row]) -> list[Row]:
            return read_originals(self.handle, head, folded)

        if options.has_range:
            plan = plan_range(
                visible, options.first, options.last, count=count, originals=originals
            )
            return with_hidden_rows(rows, plan)
        keep = 1 if options.budget is None and options.keep is None else options.keep
        budget = options.budget
        if budget is None:
            budget = sum(count(row.message) for row in visible)
        plan = plan_budget(
            visible,
            budget,
            keep=keep,
            limit=options.limit,
            cut=True,
            fill=options.budget is not None,
            count=count,
            originals=originals,
        )
        return with_hidden_rows(rows, plan)

    def _summarise(
        self, model: Model, step: Method, snapshot: Snapshot, cutoff: Cutoff
    ) -> CompactFlow:
        """Ask the model for a summary and commit it."""
        handle, options = self.handle, self.options
        source = SummarySource(
            rows=cutoff.turns, batches=snapshot.batches, times=read_times(handle, cutoff.turns)
        )
        job = _summary_job(model, options, snapshot, step, options.count or handle.count_once)
        flow = summarise(source, job, options.count or handle.count_once)
        summary = yield from self._forward(flow)
        message = write_batches(summary.batches, options.clip, snapshot.verbatim)

        def plan(rows: list[Row]) -> Plan:
            layout, position = _relocate(handle, snapshot, cutoff, rows)
            planned = with_hidden_rows(rows, layout.plan(position, message))
            return structs.replace(planned, method=step, thinned=snapshot.thinned)

        return self._land(plan, summary, model)

    def _forward(
        self, flow: Generator[SummaryRequest, Answer, Summary]
    ) -> Generator[Request, Answer, Summary]:
        """Forward the flow's requests, and report progress to listeners."""
        try:
            request = next(flow)
            while True:
                self.requests += 1
                if request.total > 1:
                    self.handle.emit([compaction_progress(request.number, request.total)])
                request = flow.send((yield request.request))
        except StopIteration as end:
            return end.value

    def _land(
        self,
        planner: Callable[[list[Row]], Plan],
        summary: Summary | None = None,
        model: Model | None = None,
    ) -> CompactResult:
        """Commit a plan, with the failures before it and what the model did."""
        compaction = self.compaction
        compaction.details = {"failures": tuple(self.failures), "requests": self.requests}
        compaction.record = {}
        if self.failures:
            compaction.record["failures"] = [
                {"step": failure.step, "reason": failure.reason} for failure in self.failures
            ]
        if summary is not None and model is not None:
            compaction.details = {**compaction.details, **_model_details(summary, model)}
            compaction.record |= _model_record(summary, model)
        by_model = summary is not None
        compaction.check = lambda rows, plan: self._check(rows, plan.rows, by_model)
        return compaction.land(planner)

    def _check(self, before: Sequence[Row], after: Sequence[Row], by_model: bool) -> None:
        """Refuse a result that lost a pin or exceeds its budget.

        Also refuse a model's summary that saves nothing, unless it was forced.
        """
        options = self.options
        remaining = {row.id: row for row in after}
        for row in before:
            if row.priority == "pinned" and remaining.get(row.id) != row:
                raise CompactRefused("a pinned message would be changed or removed", field="model")
        count = options.count or self.handle.count_once
        tokens_after, tokens_before = (
            sum(count(row.message) for row in visible_rows(rows)) for rows in (after, before)
        )
        is_forced = options.force and options.trigger == "manual"
        if by_model and tokens_after >= tokens_before and not is_forced:
            change = f"{tokens_before} tokens, then {tokens_after}"
            reason = f"its summary would save nothing ({change}); it was not forced"
            raise CompactRefused(reason, field="model")
        max_tokens = options.max_tokens
        if max_tokens is not None and tokens_after > max_tokens:
            reason = (
                f"the summary and what must stay need {tokens_after} tokens,"
                f" more than the budget of {max_tokens}"
            )
            raise BudgetExceeded(reason, needed=tokens_after, budget=max_tokens)


def take_snapshot(
    handle: Handle, head: Id | None, model: Model, options: CompactOptions
) -> Snapshot | None:
    """The snapshot of a commit for a summary; `None` if there is nothing to fold."""
    rows = handle.view(head).rows
    visible = visible_rows(rows)
    count = options.count or handle.count_once
    if Layout(visible, count).system_count == len(visible):
        what = "only system messages" if visible else "no messages"
        raise CompactRefused(f"the thread has {what}: nothing to compact", field="model")

    thinned: tuple[Thinned, ...] = ()
    if options.has_range:
        layout, position = locate_range(visible, options.first, options.last, count)
        if layout.lone_summary(position) is not None:
            return None
        cutoff = measure_cutoff(layout, position, model.output)
    else:
        choice = _choose_cutoff(visible, model, options, count)
        visible, thinned, cutoff = choice.rows, choice.thinned, choice.cutoff
        if cutoff is None:  # nothing to fold; shorter results may be enough
            return (
                Snapshot(rows, None, thinned=thinned, visible=tuple(visible)) if thinned else None
            )
        if options.verbatim:
            cutoff = keep_verbatim(cutoff, options.scorer, options.verbatim)
    batches = [batch for row in cutoff.summaries for batch in batches_of_summary(handle, head, row)]
    folded = read_originals(handle, head, [*cutoff.summaries, *cutoff.turns])
    verbatim, has_all_typed = Extract(folded, count).beside_model(cutoff.verbatim_limit)
    return Snapshot(rows, cutoff, tuple(batches), verbatim, has_all_typed, thinned, tuple(visible))


class CutoffChoice(Struct, frozen=True):
    """A cut-off, and the rows that it applies to; `thinned` are results shortened in them.

    `cutoff` is `None` if no message has to be folded.
    """

    rows: Sequence[Row]
    cutoff: Cutoff | None
    thinned: tuple[Thinned, ...] = ()


def _choose_cutoff(
    rows: Sequence[Row], model: Model, options: CompactOptions, count: Count
) -> CutoffChoice:
    """The cut-off for the budget; later system messages are folded only if it is too small."""
    try:
        return _try_cutoff(rows, model, options, count, rules=True)
    except BudgetExceeded:
        if not rule_rows(rows):
            raise
        return _try_cutoff(rows, model, options, count, rules=False)


def _try_cutoff(
    rows: Sequence[Row], model: Model, options: CompactOptions, count: Count, *, rules: bool
) -> CutoffChoice:
    """The cut-off for the budget; unread results are shortened if it is too small without that.

    `rules` says whether later system messages stay. Raises `BudgetExceeded`.
    """

    def choose(candidates: Sequence[Row], budget: int | None) -> Cutoff | None:
        return choose_cutoff(
            Layout(candidates, count, rules=rules),
            keep=options.keep,
            budget=budget,
            max_output=model.output,
            verbatim_tokens=options.verbatim,
        )

    try:
        budgets = (options.budget, options.max_tokens)
        return CutoffChoice(rows, _first_that_fits(lambda budget: choose(rows, budget), budgets))
    except BudgetExceeded:
        max_tokens = options.max_tokens or 0
        need = min_summary_need(Layout(rows, count, rules=rules), max_tokens, options.verbatim)
        fold = FoldOptions(keep=options.keep, cut=True, count=count, rules=rules)
        thinner = ResultThinner(rows, max_tokens, fold, trial=count, min_summary=need)
        if not thinner.is_possible:
            raise
        thinning = thinner.thin()
        cutoff = None if thinner.is_enough else choose(thinning.rows, options.max_tokens)
        return CutoffChoice(thinning.rows, cutoff, thinning.thinned)


def _model_for_preview(model: str | Asker, handle: Handle) -> Model:
    """The model of a preview. It is not asked, so it needs no key and no upstream."""
    try:
        return find_asker(model, handle.models).model
    except ThreadError:
        if not isinstance(model, str):
            raise
        return load_catalog().find(model)


def _first_that_fits(
    choose: Callable[[int | None], Cutoff | None], budgets: Sequence[int | None]
) -> Cutoff | None:
    """The cut-off for the first budget that is enough; raises the error of the last budget."""
    *earlier, last = dict.fromkeys(budgets)  # without duplicates
    for budget in earlier:
        with suppress(BudgetExceeded):
            return choose(budget)
    return choose(last)


def _thinned_plan(snapshot: Snapshot, rows: Sequence[Row]) -> Plan:
    """The plan that only shortens unread results."""
    return Plan(rows=tuple(snapshot.thin(rows)), thinned=snapshot.thinned, method="thin")


def _summary_job(
    model: Model, options: CompactOptions, snapshot: Snapshot, step: Method, count: Count
) -> SummaryJob:
    """What the model is to summarise, with its limits; `shorter` halves the limit."""
    cutoff = snapshot.cutoff
    assert cutoff is not None
    kept = KEPT_ALL if snapshot.has_all_typed else KEPT_PART

    def size(text: str) -> int:
        return count(Message("user", (Text(text),)))

    task = _describe_task(cutoff.layout, model, size)
    kept_text = "\n".join(row.message.text for row in cutoff.layout.kept_rows(cutoff.position))
    is_shorter = step == "shorter"
    return SummaryJob(
        model=model,
        limit=max(1, cutoff.limit // SHORTER_DIVISOR) if is_shorter else cutoff.limit,
        prompt=options.prompt,
        chunk=options.chunk,
        total_limit=cutoff.total_limit,
        clip=options.clip,
        retain=tuple(text for text in options.retain if text not in kept_text),
        brief=is_shorter,
        task=task,
        task_tokens=size(task) if task else 0,
        kept=kept if snapshot.verbatim else "",
        live=options.live,
    )


def _describe_task(layout: Layout, model: Model, size: Callable[[str], int]) -> str:
    """Context for the summary: the last request and later system messages.

    Leading system messages and pins are not quoted, so that the summary cannot change them.
    """
    request = layout.rows[layout.requests[-1]].message.text if layout.requests else ""
    rules = [
        row.message.text
        for row in layout.rows[layout.system_count :]
        if is_visible(row) and is_system(row.message) and row.priority != "pinned"
    ]
    return describe_task(
        request=request,
        rules=rules,
        max_tokens=max_task_tokens(model),
        size=size,
    )


def _relocate(
    handle: Handle, snapshot: Snapshot, cutoff: Cutoff, rows: list[Row]
) -> tuple[Layout, int]:
    """The same cut-off in the current rows; raises if a folded message has changed."""
    old_layout, position = cutoff.layout, cutoff.position
    if rows == snapshot.rows:
        return old_layout, position
    visible = snapshot.thin(visible_rows(rows))
    folded = {
        old_layout.rows[i].id: old_layout.rows[i].message for i in old_layout.folded(position)
    }
    indexes = {row.id: index for index, row in enumerate(visible)}
    new_position = indexes.get(old_layout.rows[position - 1].id, -1) + 1
    unchanged = all(id in indexes and visible[indexes[id]].message == folded[id] for id in folded)
    kept_indexes = [index for index in range(new_position) if visible[index].id not in folded]
    start = None if old_layout.start is None else indexes.get(old_layout.rows[old_layout.start].id)
    layout = Layout(visible, handle.count, verbatim=kept_indexes, start=start)
    if not new_position or not unchanged or layout.splits_pair[new_position]:
        reason = "a message that the summary replaces was changed meanwhile; try again"
        raise CompactRefused(reason, field="model")
    return layout, new_position


def _model_details(summary: Summary, model: Model) -> dict[str, object]:
    """The fields of the result that say what the model did."""
    return {
        "model": model.name,
        "dropped": summary.dropped,
        "marked": summary.marked,
        "names_added": summary.names_added,
        "names_left": summary.names_left,
        "cost": _cost(model, summary.input_tokens, summary.output_tokens),
    }


def _model_record(summary: Summary, model: Model) -> JsonObject:
    """How the summary was made, for the commit's metadata."""
    generation = {
        "model": model.name,
        "requests": summary.requests,
        "input": summary.input_tokens,
        "output": summary.output_tokens,
        "dropped": list(summary.dropped),
        "marked": list(summary.marked),
        "names_added": summary.names_added,
        "names_left": summary.names_left,
    }
    return {"made": generation, **record_batches(summary.batches)}


def _cost(model: Model, input: int, output: int) -> float | None:
    """The price of these tokens, if the catalogue has one and the vendor reported usage."""
    if model.price is None or not input:
        return None
    return cost(model.price, input=input, output=output)
