"""The summaries of a thread, and the messages that each replaces.

A summary that the engine wrote has its batches in its commit's metadata. Any other summary (an
extract, the caller's own text, a client's) counts as one batch: its text, and the number of
messages that its commit replaced. So does the summary of a range, which is a message of the
assistant. A summary that was edited later counts with its current text.
"""

from collections.abc import Mapping, Sequence

from weft.compact import (
    Batch,
    SummaryBatch,
    body_as_data,
    extract_summary,
    is_summary,
    read_batches,
    unmarked,
)
from weft.history import Row, decode_body, read_writers, show_rows
from weft.ids import Id
from weft.model import JsonObject, Opaque
from weft.store import Step

from .handle import Handle
from .lineage import inserted_slots, written_messages


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
