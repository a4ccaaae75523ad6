"""Compaction of a thread: the procedure that every mode shares, and the modes without a model.

`Compaction` has the steps that all modes share. It plans, checks that required texts stay, counts
tokens, writes the commit and emits the events. Each mode only adds its planner, a function from the
current rows to a `Plan`:

- `compact` plans by ranges, by a budget, by turns to keep, or with the caller's own summary.
- `engine` plans with a model's summary.
- `adopt` records a client's own compaction: the shorter list that the client sends afterwards.

A plan may refuse. Listeners get `started` only after the first plan has succeeded.
If another writer commits in between, the plan is made again, so no message is lost.

Summaries are read back with the messages that each replaces. A summary that the engine wrote has
its batches in its commit's metadata. Any other summary (an extract, the caller's own text, a
client's) counts as one batch: its text, and the number of messages that its commit replaced. So
does the summary of a range, which is a message of the assistant. A summary that was edited later
counts with its current text.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field, structs

from weft.compact import (
    STEPS,
    Batch,
    CompactResult,
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
from weft.errors import CompactRefused, WrongValue
from weft.history import (
    Draft,
    PlannedRewrite,
    Row,
    decode_body,
    match_key,
    plan_rewrite,
    read_writers,
    show_rows,
    shows,
)
from weft.ids import Id
from weft.model import JsonObject, Message, Opaque
from weft.store import Step

from .arguments import Replacements, check_count, check_objects
from .handle import Handle, TakenCheckpoints
from .info import CommitInfo
from .lineage import inserted_slots, written_messages

MAX_REASON = 300

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
    - `details` and `record`: further fields of the result, and members of the commit's metadata.
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

        def draft(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
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

        info = handle.land("compact", draft)
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
    """The result of a plan, with its tokens before and after, and the loss of cached prefix."""
    old_rows, new_rows = show_rows(rows), show_rows(plan.rows)
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
    if replacements is not None:
        if summary is not None:
            raise CompactRefused(
                "cannot be combined with replacements: each of them has a summary", field="summary"
            )
        ranges = validate_compact_input({"replacements": replacements})

        def plan_ranges(rows: list[Row]) -> Plan:
            existing_checkpoints = TakenCheckpoints(handle.store, handle.name)
            return plan_replacements(
                rows, ranges, known=existing_checkpoints, strip=strip, call_id=call_id
            )

        return compaction.preview(plan_ranges) if preview else compaction.land(plan_ranges)

    def plan_old_turns(rows: list[Row]) -> Plan:
        shown = show_rows(rows)  # hidden messages cost nothing and are put back afterwards
        if first is not None or last is not None:
            head = handle.head()
            plan = plan_range(
                shown,
                first,
                last,
                summary=summary,
                count=handle.count_once,
                originals=lambda folded: read_originals(handle, head, folded),
            )
        elif summary is not None:
            plan = plan_summary(shown, summary, keep=keep, budget=budget, count=handle.count_once)
        elif budget is None and keep is None:
            what = "give a model, replacements, a budget, turns to keep or a summary"
            raise CompactRefused(what, field="replacements")
        else:
            tokens = count_rows(handle, shown) if budget is None else budget
            head = handle.head()
            plan = plan_budget(
                shown,
                tokens,
                keep=keep,
                count=handle.count_once,
                originals=lambda folded: read_originals(handle, head, folded),
            )
        return with_hidden_rows(rows, plan)

    return compaction.preview(plan_old_turns) if preview else compaction.land(plan_old_turns)


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

    def draft(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
        rows = handle.view(head).rows
        rewrite = plan_rewrite(rows, adopted_rows(rows, messages, summary))
        return Draft("compact", rewrite.op, rewrite.messages, note, metadata), ()

    return handle.land("compact", draft)


def adopted_rows(rows: Sequence[Row], messages: Sequence[Message], summary: int) -> list[Row]:
    """The rows of an adopted list: known messages keep their row, the others are new."""
    shown = show_rows(rows)
    repeated = _match_repeated([match_key(row.message) for row in shown], messages, summary)
    adopted: list[Row] = []
    for number, message in enumerate(messages):
        kind = "summary" if number == summary else "dialogue"
        index = repeated.get(number)
        adopted.append(Row(None, message, "normal", kind) if index is None else shown[index])
    return adopted


def _match_repeated(
    keys: Sequence[Id], messages: Sequence[Message], summary: int
) -> dict[int, int]:
    """For each message that the thread already has, the index of its row.

    Clients keep the newest messages after the summary. So after it, the newest of several equal
    messages matches; before it, the oldest does.
    """
    matches: dict[int, int] = {}
    unmatched = list(keys)
    for number in range(len(messages) - 1, summary, -1):
        key = match_key(messages[number])
        if key in unmatched:
            index = len(unmatched) - 1 - unmatched[::-1].index(key)
            matches[number] = index
            del unmatched[index:]
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
        "\n".join(row.message.text for row in show_rows(rows)) for rows in (before, after)
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
        if shows(row):
            anchor = row.id
        else:
            hidden.setdefault(anchor, []).append(row)
    all_rows: list[Row] = list(hidden.get(None, ()))
    for row in plan.rows:
        all_rows.append(row)
        if row.id is not None:
            all_rows.extend(hidden.get(row.id, ()))
    return structs.replace(plan, rows=tuple(all_rows))


def count_rows(handle: Handle, rows: Sequence[Row]) -> int:
    """The tokens of the rows that a model sees."""
    return sum(handle.count(row.message) for row in show_rows(rows))


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
    records = _records(handle, head, row)
    for record in records:
        batches = read_batches(record)
        if batches is not None:
            return batches
    count = next((_count_replaced(record) for record in records if "ranges" in record), 0)
    return (Batch(unmarked(row.message.text), count),)


def list_batches(handle: Handle, head: Id | None) -> list[SummaryBatch]:
    """The batches of all summaries at a commit, in order, each with the commit that made it."""
    rows = [row for row in show_rows(handle.view(head).rows) if row.kind == "summary"]
    slots = [row.id for row in rows if row.id is not None]
    steps = read_writers(handle.store, handle.name, head, slots) if head and slots else []
    commits = _commits_of_batches(steps)
    ranges = _summaries_of_ranges(steps)
    batches: list[SummaryBatch] = []
    for row in rows:
        if is_summary(row):
            for batch in batches_of_summary(handle, head, row):
                batches.append(SummaryBatch(batch, commits.get(batch)))
        elif row.id in ranges:
            count, commit = ranges[row.id]
            batches.append(SummaryBatch(Batch(row.message.text, count), commit))
    return batches


def read_originals(handle: Handle, head: Id | None, rows: Sequence[Row]) -> list[Row]:
    """The rows, with each summary replaced by the original messages.

    A summary that a person wrote or edited stays after the messages, because it may say more.
    """
    originals: list[Row] = []
    order: dict[Id, int] = {}
    for row in rows:
        step = _writer(handle, head, row) if is_summary(row) else None
        if step is None or not step.commit.parents:
            originals.append(row)
            continue
        parent = step.commit.parents[0]
        remaining = {after.id for after in show_rows(handle.view(step.commit.id).rows)}
        # The whole thread is read, because a summary may follow a request that came later than
        # some of the messages that it replaced.
        before = show_rows(handle.view(parent).rows)
        all_originals = read_originals(handle, parent, before)
        visible = {original.id for original in before if original.id in remaining}
        originals += [original for original in all_originals if original.id not in visible]
        if len(all_originals) > len(order):
            order = {
                original.id: position
                for position, original in enumerate(all_originals)
                if original.id is not None
            }
        if not _is_generated(step, row):
            originals.append(row)
    return sorted(originals, key=lambda original: _original_position(original, order))


def portable_summary(handle: Handle, head: Id | None, block: Opaque, tokens: int) -> str | None:
    """An extract of the messages that a vendor's sealed compaction replaced.

    Returns `None` if the thread does not have the block, or no longer has those messages.
    """
    rows = show_rows(handle.view(head).rows)
    row = next((row for row in rows if block in row.message.blocks), None)
    if row is None or head is None:
        return None
    for step in reversed(list(handle.store.walk(handle.name, head))):
        if step.commit.kind != "compact" or not step.commit.parents:
            continue
        after = {row_before.id for row_before in show_rows(handle.view(step.commit.id).rows)}
        if row.id not in after:
            continue
        parent = step.commit.parents[0]
        before = show_rows(handle.view(parent).rows)
        visible = {row_before.id for row_before in before if row_before.id in after}
        all_originals = read_originals(handle, parent, before)
        replaced = [row_before for row_before in all_originals if row_before.id not in visible]
        message = extract_summary(replaced, tokens, handle.count) if replaced else None
        return None if message is None else body_as_data(message.text)
    return None


def _original_position(row: Row, order: Mapping[Id, int]) -> int:
    """The position of a row in the original conversation; newer rows come last."""
    return len(order) if row.id is None else order.get(row.id, len(order))


def _writer(handle: Handle, head: Id | None, row: Row) -> Step | None:
    """The compaction that first wrote a summary."""
    if head is None or row.id is None:
        return None
    for step in read_writers(handle.store, handle.name, head, [row.id]):
        slots = {slot for slot, _ in written_messages(step)}
        if step.commit.kind == "compact" and row.id in slots:
            return step
    return None


def _is_generated(step: Step, row: Row) -> bool:
    """Whether the engine or its model wrote the summary, and nobody edited it since."""
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


def _summaries_of_ranges(steps: Sequence[Step]) -> dict[Id, tuple[int, str]]:
    """For each summary of a range, how many messages it replaced, and its commit.

    A range with an empty summary leaves no message, and the record does not say which one it was.
    Then each summary of that commit counts with 0 messages, unless there is only one.
    """
    summaries: dict[Id, tuple[int, str]] = {}
    for step in steps:
        record = decode_body(step).metadata or {}
        if step.commit.kind != "compact" or read_batches(record) is not None:
            continue
        counts = [int(part.get("messages", 0)) for part in record.get("ranges", ())]
        slots = inserted_slots(step)
        if len(counts) != len(slots):
            counts = [sum(counts)] if len(slots) == 1 else [0] * len(slots)
        for slot, count in zip(slots, counts, strict=True):
            summaries[slot] = (count, step.commit.id.hex())
    return summaries


def _records(handle: Handle, head: Id | None, row: Row) -> list[JsonObject]:
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
    return sum(int(part.get("messages", 0)) for part in record.get("ranges", ()))
