"""Compaction of a thread: the procedure that every mode shares, and the modes without a model.

`Compaction` plans, checks that required texts stay, counts tokens, writes the commit and emits the
events. Each mode only adds its planner, a function from the current rows to a `Plan`:

- `compact` plans by ranges, by a budget, by turns to keep, or with the caller's own summary.
- `engine` plans with a model's summary.
- `adopt` records a client's own compaction: the shorter list that the client sends afterwards.

A planner may refuse. Listeners get `started` only after the first plan has succeeded.
If another writer commits in between, the planner runs again, so no message is lost.

This module also reads summaries back, as batches: a text, and the number of messages that it
replaces. A summary that the engine wrote has its batches in its commit's metadata. Any other
summary (an extract, the caller's own text, a client's, the summary of a range) is one batch: its
current text, and the number of messages that its commit replaced.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct, field, structs

from weft.compact import (
    STEPS,
    Batch,
    CompactResult,
    Layout,
    Plan,
    Strip,
    SummaryBatch,
    Trigger,
    body_as_data,
    compact_result,
    compaction_ended,
    compaction_started,
    describe_changes,
    extract_summary,
    is_summary,
    plan_budget,
    plan_range,
    plan_replacements,
    plan_summary,
    read_batches,
    unmarked,
    validate_compact_input,
)
from weft.errors import BudgetExceeded, CompactRefused, ThreadError, WrongValue
from weft.history import (
    Draft,
    PlannedRewrite,
    Rewrite,
    Row,
    decode_body,
    inserted_slots,
    is_visible,
    match_key,
    plan_rewrite,
    read_writers,
    visible_rows,
)
from weft.ids import Id
from weft.model import JsonObject, Message, Opaque
from weft.store import Step

from .arguments import Replacements, check_count, check_objects
from .handle import Handle, TakenCheckpoints
from .info import CommitInfo
from .lineage import written_messages

MAX_REASON = 300
"""The most characters of an error message in a commit or an event."""

Planner = Callable[[list[Row]], Plan]


class Prepared(Struct, frozen=True):
    """A plan for some rows, the change that it makes, and its figures."""

    rows: list[Row]
    plan: Plan
    rewrite: PlannedRewrite
    result: CompactResult


class Compaction(Struct, kw_only=True):
    """One compaction while it is planned and written.

    - `retain`: texts that must still be in the thread afterwards.
    - `note`: the commit note; by default it gives the figures.
    - `check`: further checks of a plan before it is written, with the rows before it.
    - `details`: further fields of the result.
    - `record`: further members of the commit's metadata.
    """

    handle: Handle
    trigger: Trigger = "manual"
    retain: Sequence[str] = ()
    note: str | None = None
    check: Callable[[Sequence[Row], Plan], None] | None = None
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    record: JsonObject = field(default_factory=dict[str, Any])
    started: bool = False

    def start(self) -> None:
        """Notify listeners, once, that a compaction started."""
        if not self.started:
            self.started = True
            self.handle.emit([compaction_started()])

    def preview(self, planner: Planner) -> CompactResult:
        """What the compaction would do; writes nothing."""
        rows = self.handle.view(self.handle.head()).rows
        prepared = self._prepare(rows, planner)
        return as_preview(self.handle, rows, prepared.plan, prepared.result)

    def land(self, planner: Planner) -> CompactResult:
        """Plan and commit; returns without a commit if the plan changes nothing."""
        handle = self.handle
        prepared = self._prepare(handle.view(handle.head()).rows, planner)
        if not prepared.rewrite:
            return prepared.result
        self.start()

        def make_draft(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
            nonlocal prepared
            rows = handle.view(head).rows
            if rows != prepared.rows:  # another writer committed: plan again with its messages
                prepared = self._prepare(rows, planner)
            if self.check is not None:
                self.check(rows, prepared.plan)
            op, messages = prepared.rewrite.op, prepared.rewrite.messages
            note = describe_result(prepared.result) if self.note is None else self.note
            record = {**prepared.plan.record(), **self.record}
            return Draft("compact", op, messages, note, record), ()

        info = handle.land("compact", make_draft)
        result = prepared.result
        ended = compaction_ended(
            self.trigger,
            result.tokens_before,
            result.tokens_after,
            method=result.method,
            reason=result.reason,
            thinned=len(result.thinned),
        )
        handle.emit([ended])
        return structs.replace(result, commit=info.id)

    def _prepare(self, rows: list[Row], planner: Planner) -> Prepared:
        plan = planner(rows)
        check_retained(rows, plan.rows, self.retain)
        result = structs.replace(measure(self.handle, rows, plan), **self.details)
        return Prepared(rows, plan, plan_rewrite(rows, plan.rows), result)


def as_preview(
    handle: Handle, rows: Sequence[Row], plan: Plan, result: CompactResult
) -> CompactResult:
    """The result as a preview, with the change of each message."""
    changes = describe_changes(rows, plan, handle.count_once)
    return structs.replace(result, preview=True, changes=changes)


def measure(handle: Handle, rows: Sequence[Row], plan: Plan) -> CompactResult:
    """The result of a plan: the tokens before and after, and how many leave the prompt cache."""
    old_rows, new_rows = visible_rows(rows), visible_rows(plan.rows)
    sizes = [handle.count(row.message) for row in old_rows]
    equal_count = 0
    for before, after in zip(old_rows, new_rows, strict=False):
        if before.message is not after.message and before.message != after.message:
            break
        equal_count += 1
    tokens_before = sum(sizes)
    tokens_after = sum(sizes[:equal_count]) + sum(
        handle.count(row.message) for row in new_rows[equal_count:]
    )
    result = compact_result(plan, tokens_before, tokens_after)
    return structs.replace(result, cache_lost=sum(sizes[equal_count:]))


def compact(
    compaction: Compaction,
    replacements: Replacements | None,
    *,
    budget: int | None,
    keep: int | None,
    first: str | None = None,
    last: str | None = None,
    summary: str | None,
    strip: Strip,
    call_id: str | None,
    preview: bool,
) -> CompactResult:
    """Compact without a model: by ranges, budget, turns to keep, or the caller's own summary.

    With `first` or `last`, only the messages between them are replaced.
    """
    handle = compaction.handle
    if replacements is None:
        planner = _turns_planner(
            handle, budget=budget, keep=keep, first=first, last=last, summary=summary
        )
    elif summary is None:
        planner = _replacements_planner(handle, replacements, strip, call_id)
    else:
        raise CompactRefused(
            "cannot be combined with replacements: each of them has a summary", field="summary"
        )
    return compaction.preview(planner) if preview else compaction.land(planner)


def compact_to_half(tokens: int, compact: Callable[[int], CompactResult]) -> CompactResult:
    """Compact to half of the tokens, or to the smallest budget above that which is possible.

    `compact` compacts to a budget. Raises `ThreadError` if nothing would be saved.
    """
    budget = max(1, tokens // 2)
    while True:
        try:
            return structs.replace(compact(budget), budget=budget)
        except BudgetExceeded as error:
            if error.needed >= tokens or error.needed <= budget:
                raise ThreadError(
                    "a compaction would save nothing: what must stay needs "
                    f"{error.needed:,} of {tokens:,} tokens"
                ) from None
            budget = error.needed


def find_works(
    handle: Handle, budget: int | None, preview: Callable[[str, int], CompactResult]
) -> tuple[int, dict[str, int]]:
    """The number of turns, and values of `keep` and `budget` that work instead of refused ones.

    `preview` previews the compaction with another value of `keep` or `budget`: each value has been
    tried, alone. The budget is the smallest one above `budget`, or without one half of the tokens.
    """
    rows = visible_rows(handle.view(handle.head()).rows)
    tokens = count_rows(handle, rows)
    turns = len(Layout(rows, handle.count_once).exchange_starts())
    works: dict[str, int] = {}

    def saves(name: str, number: int) -> bool:
        result = preview(name, number)
        return not result.is_unchanged and result.tokens_after < tokens

    # A fold of a single short turn may save nothing, so fewer turns are tried too.
    for number in dict.fromkeys((turns - 1, turns // 2, 1)):
        with suppress(BudgetExceeded, CompactRefused):
            if number > 0 and saves("keep", number):
                works["keep"] = number
                break
    number = tokens // 2 if budget is None else budget
    while 0 < number < tokens:
        try:
            if saves("budget", number):
                works["budget"] = number
            break
        except BudgetExceeded as error:
            if error.needed <= number:
                break
            number = error.needed
        except CompactRefused:
            break
    return turns, works


def _replacements_planner(
    handle: Handle, replacements: Replacements, strip: Strip, call_id: str | None
) -> Planner:
    """A planner that replaces ranges between checkpoints with the caller's summaries."""
    ranges = validate_compact_input({"replacements": replacements})

    def plan(rows: list[Row]) -> Plan:
        existing_checkpoints = TakenCheckpoints(handle.store, handle.name)
        return plan_replacements(
            rows, ranges, known=existing_checkpoints, strip=strip, call_id=call_id
        )

    return plan


def _turns_planner(
    handle: Handle,
    *,
    budget: int | None,
    keep: int | None,
    first: str | None,
    last: str | None,
    summary: str | None,
) -> Planner:
    """A planner that replaces turns with the summary, or else with an extract.

    With `first` or `last`, these are the turns between them, otherwise the old ones.
    """

    def plan_visible(rows: Sequence[Row]) -> Plan:
        head, count = handle.head(), handle.count_once

        def originals(folded: Sequence[Row]) -> list[Row]:
            return read_originals(handle, head, folded)

        if first is not None or last is not None:
            return plan_range(rows, first, last, summary=summary, count=count, originals=originals)
        if summary is not None:
            return plan_summary(rows, summary, keep=keep, budget=budget, count=count)
        tokens = count_rows(handle, rows) if budget is None else budget
        return plan_budget(
            rows, tokens, keep=keep, fill=budget is not None, count=count, originals=originals
        )

    def plan(rows: list[Row]) -> Plan:
        # Hidden messages cost nothing, so they are left out and put back afterwards.
        return with_hidden_rows(rows, plan_visible(visible_rows(rows)))

    return plan


def adopt(
    handle: Handle,
    messages: Sequence[Message],
    summary: int,
    *,
    note: str | None,
    metadata: JsonObject | None,
) -> CommitInfo:
    """Record a client's own compaction as a compaction of this thread.

    A client whose context is full compacts by itself and then sends the shorter list. The parent of
    the commit is the full history, so a revert restores it. Messages that are still in the list
    keep their ids; they are recognised by their match keys.
    """
    check_objects(metadata=metadata)
    check_count("summary", summary)
    if summary >= len(messages):
        count = len(messages)
        raise WrongValue("summary", f"must be an index into the list: {summary} of {count}")

    def make_draft(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
        rows = handle.view(head).rows
        rewrite = plan_rewrite(rows, adopted_rows(rows, messages, summary))
        return Draft("compact", rewrite.op, rewrite.messages, note, metadata), ()

    return handle.land("compact", make_draft)


def adopted_rows(rows: Sequence[Row], messages: Sequence[Message], summary: int) -> list[Row]:
    """The rows of an adopted list: messages that the thread has keep their row."""
    visible = visible_rows(rows)
    row_indexes = _match_rows([match_key(row.message) for row in visible], messages, summary)
    adopted: list[Row] = []
    for number, message in enumerate(messages):
        kind = "summary" if number == summary else "dialogue"
        index = row_indexes.get(number)
        adopted.append(Row(None, message, "normal", kind) if index is None else visible[index])
    return adopted


def _match_rows(keys: Sequence[Id], messages: Sequence[Message], summary: int) -> dict[int, int]:
    """For each message that the thread already has, the index of its row.

    `keys` are the match keys of the rows. Clients keep the newest messages after the summary. So
    after it, the newest of several equal messages matches; before it, the oldest does.
    """
    matches: dict[int, int] = {}
    unmatched = list(keys)
    for number in range(len(messages) - 1, summary, -1):
        key = match_key(messages[number])
        if key in unmatched:
            index = len(unmatched) - 1 - unmatched[::-1].index(key)  # the last one
            matches[number] = index
            del unmatched[index:]  # the messages before this one match earlier rows
    start = 0
    for number, message in enumerate(messages[:summary]):
        key = match_key(message)
        if key in unmatched[start:]:
            matches[number] = unmatched.index(key, start)
            start = matches[number] + 1
    return matches


def refuse_own_summary(replacements: Replacements | None, summary: str | None) -> None:
    """Refuse a summary of the caller if a model is to write it."""
    for name, value in {"replacements": replacements, "summary": summary}.items():
        if value is not None:
            raise CompactRefused("cannot be combined with a model's summary", field=name)


def refuse_with_range(first: str | None, last: str | None, **others: object) -> None:
    """Refuse other arguments that choose the messages to replace, if a range does."""
    if first is None and last is None:
        return
    for name, value in others.items():
        if value is not None and value != 0:
            raise CompactRefused("cannot be combined with a range (`first`, `last`)", field=name)


def refuse_model_options(prompt: str | None, verbatim: int) -> None:
    """Refuse options that only apply to a model's summary."""
    for name, is_set in {"prompt": prompt is not None, "verbatim": verbatim != 0}.items():
        if is_set:
            raise CompactRefused("is only for a model's summary: name a model", field=name)


def check_retained(before: Sequence[Row], after: Sequence[Row], retain: Sequence[str]) -> None:
    """Refuse a plan that loses a required text, and a required text that the thread never had."""
    if not retain:
        return
    old_text, new_text = (
        "\n".join(row.message.text for row in visible_rows(rows)) for rows in (before, after)
    )
    for text in retain:
        if not text or text not in old_text:
            raise CompactRefused(f"{text!r} is not in the thread", field="retain")
        if text not in new_text:
            raise CompactRefused(
                f"{text!r} would be lost: include it in the summary", field="retain"
            )


def with_hidden_rows(rows: Sequence[Row], plan: Plan) -> Plan:
    """A plan for the visible rows, with the hidden rows put back.

    Each hidden row follows the visible row that it followed before, if that is still there.
    """
    hidden: dict[bytes | None, list[Row]] = {}
    anchor: bytes | None = None
    for row in rows:
        if is_visible(row):
            anchor = row.id
        else:
            hidden.setdefault(anchor, []).append(row)
    all_rows = list(hidden.get(None, ()))
    for row in plan.rows:
        all_rows.append(row)
        if row.id is not None:
            all_rows.extend(hidden.get(row.id, ()))
    return structs.replace(plan, rows=tuple(all_rows))


def count_rows(handle: Handle, rows: Sequence[Row]) -> int:
    """The tokens of the rows that a model sees."""
    return sum(handle.count(row.message) for row in visible_rows(rows))


def describe_result(result: CompactResult) -> str:
    """The commit note of a compaction, with the reason if a fallback was used."""
    note = f"compact {result.tokens_before} to {result.tokens_after} tokens"
    if result.thinned:
        results = "1 unread result" if len(result.thinned) == 1 else "unread results"
        note += f", {results} shortened"
    if result.failures and result.method is not None:
        note += f", by {STEPS[result.method]}: {result.reason}"
    return note


def short_reason(error: Exception) -> str:
    """An error message on one line of bounded length: upstreams may send anything."""
    line = " ".join(str(error).split())
    return line if len(line) <= MAX_REASON else line[: MAX_REASON - 3] + "..."


def batches_of_summary(handle: Handle, head: Id | None, row: Row) -> tuple[Batch, ...]:
    """The batches of one summary."""
    records = _writer_metadata(handle, head, row)
    for record in records:
        batches = read_batches(record)
        if batches is not None:
            return batches
    count = next((_count_replaced(record) for record in records if "ranges" in record), 0)
    return (Batch(unmarked(row.message.text), count),)


def list_batches(handle: Handle, head: Id | None) -> list[SummaryBatch]:
    """The batches of all summaries at a commit, in order, each with the commit that made it."""
    rows = [row for row in visible_rows(handle.view(head).rows) if row.kind == "summary"]
    slots = [row.id for row in rows if row.id is not None]
    steps = read_writers(handle.store, handle.name, head, slots) if head and slots else []
    commits = _commits_of_batches(steps)
    range_summaries = _range_summaries(steps)
    batches: list[SummaryBatch] = []
    for row in rows:
        if is_summary(row):
            for batch in batches_of_summary(handle, head, row):
                batches.append(SummaryBatch(batch, commits.get(batch)))
        elif row.id in range_summaries:
            count, commit = range_summaries[row.id]
            batches.append(SummaryBatch(Batch(row.message.text, count), commit))
    return batches


def read_originals(handle: Handle, head: Id | None, rows: Sequence[Row]) -> list[Row]:
    """The rows, with each summary replaced by the original messages, in their original order.

    A summary that a person wrote or edited stays after the messages, because it may say more.
    """
    originals: list[Row] = []
    order: dict[Id, int] = {}  # the longest original conversation: the position of each message
    for row in rows:
        step = _summary_writer(handle, head, row) if is_summary(row) else None
        if step is None or not step.commit.parents:
            originals.append(row)
            continue
        # The whole thread is read, because a summary may follow a request that came later than
        # some of the messages that it replaced.
        all_originals, kept_ids = _originals_before(handle, step)
        originals += [original for original in all_originals if original.id not in kept_ids]
        if len(all_originals) > len(order):
            order = {
                original.id: position
                for position, original in enumerate(all_originals)
                if original.id is not None
            }
        if not _is_generated(step, row):
            originals.append(row)
    return sorted(originals, key=lambda original: _original_position(original, order))


def _originals_before(handle: Handle, compaction: Step) -> tuple[list[Row], set[Id | None]]:
    """All original messages before a compaction, and the ids of those that it left in place."""
    parent = compaction.commit.parents[0]
    before = visible_rows(handle.view(parent).rows)
    after_ids = {row.id for row in visible_rows(handle.view(compaction.commit.id).rows)}
    kept_ids = {row.id for row in before if row.id in after_ids}
    return read_originals(handle, parent, before), kept_ids


def portable_summary(handle: Handle, head: Id | None, block: Opaque, tokens: int) -> str | None:
    """An extract of the messages that a vendor's sealed compaction replaced.

    Returns `None` if the thread does not have the block, or no longer has those messages.
    """
    rows = visible_rows(handle.view(head).rows)
    row = next((row for row in rows if block in row.message.blocks), None)
    if row is None or head is None:
        return None
    for step in reversed(list(handle.store.walk(handle.name, head))):
        if step.commit.kind != "compact" or not step.commit.parents:
            continue
        after = visible_rows(handle.view(step.commit.id).rows)
        if all(row_after.id != row.id for row_after in after):
            continue
        all_originals, kept_ids = _originals_before(handle, step)
        replaced = [original for original in all_originals if original.id not in kept_ids]
        message = extract_summary(replaced, tokens, handle.count) if replaced else None
        return None if message is None else body_as_data(message.text)
    return None


def _original_position(row: Row, order: Mapping[Id, int]) -> int:
    """The position of a row in the original conversation; newer rows come last."""
    return len(order) if row.id is None else order.get(row.id, len(order))


def _summary_writer(handle: Handle, head: Id | None, row: Row) -> Step | None:
    """The compaction that first wrote a summary."""
    if head is None or row.id is None:
        return None
    for step in read_writers(handle.store, handle.name, head, [row.id]):
        slots = {slot for slot, _ in written_messages(step)}
        if step.commit.kind == "compact" and row.id in slots:
            return step
    return None


def _is_generated(step: Step, row: Row) -> bool:
    """Whether a model or an extract wrote the summary, and nobody has edited it since."""
    if (row.id, row.message) not in written_messages(step):
        return False
    record = decode_body(step).metadata or {}
    return read_batches(record) is not None or record.get("method") in ("extract", "cut")


def read_times(handle: Handle, rows: Sequence[Row]) -> dict[Id, float]:
    """When each message was committed, if it has a commit of its own."""
    view = handle.view(handle.head())
    commits = {row.id: view.commit_of(row.id) for row in rows if row.id is not None}
    steps = handle.store.read_commits(handle.name, list(commits.values()))
    created = {step.commit.id: step.commit.created for step in steps}
    return {slot: created[commit] for slot, commit in commits.items() if commit in created}


def _commits_of_batches(steps: Sequence[Step]) -> dict[Batch, str]:
    """For each batch, the first commit that has it in its metadata, or that wrote its text."""
    commits: dict[Batch, str] = {}
    for step in steps:
        if step.commit.kind != "compact":
            continue
        record = decode_body(step).metadata or {}
        batches = read_batches(record)
        if batches is None:
            texts = [unmarked(message.text) for _, message in written_messages(step)]
            batches = tuple(Batch(text, _count_replaced(record)) for text in texts)
        for batch in batches:
            commits.setdefault(batch, step.commit.id.hex())
    return commits


def _range_summaries(steps: Sequence[Step]) -> dict[Id, tuple[int, str]]:
    """For each summary of a range, how many messages it replaced, and its commit.

    A range with an empty summary leaves no message, and the record does not say which one it was.
    Then each summary of that commit counts with 0 messages, unless there is only one.
    """
    summaries: dict[Id, tuple[int, str]] = {}
    for step in steps:
        body = decode_body(step)
        op, record = body.op, body.metadata or {}
        if step.commit.kind != "compact" or read_batches(record) is not None:
            continue
        counts = [int(folded.get("messages", 0)) for folded in record.get("ranges", ())]
        slots = inserted_slots(step.commit.id, op) if isinstance(op, Rewrite) else []
        if len(counts) != len(slots):
            counts = [sum(counts)] if len(slots) == 1 else [0] * len(slots)
        for slot, count in zip(slots, counts, strict=True):
            summaries[slot] = (count, step.commit.id.hex())
    return summaries


def _writer_metadata(handle: Handle, head: Id | None, row: Row) -> list[JsonObject]:
    """The metadata of the commits that wrote the row's current message, the newest first."""
    if head is None or row.id is None:
        return []
    steps = read_writers(handle.store, handle.name, head, [row.id])
    return [
        decode_body(step).metadata or {}
        for step in reversed(steps)
        if (row.id, row.message) in written_messages(step)
    ]


def _count_replaced(record: JsonObject) -> int:
    """How many messages a compaction replaced, by the metadata of its commit."""
    return sum(int(folded.get("messages", 0)) for folded in record.get("ranges", ()))
