"""What a thread's own summaries stand for, read from the commits that wrote them.

A summary that the engine wrote has its batches in its commit's record. Any other one (an extract,
the caller's own words, a client's) is one batch: its text, and as many messages as its commit says
that it took. One that was edited since is what it says now.
"""

from collections.abc import Sequence

from weft.compact import Batch, SummaryBatch, is_summary, read_batches
from weft.history import Row, decode_body, read_writers, show_rows
from weft.ids import Id
from weft.model import JsonObject
from weft.store import Step

from .handle import Handle
from .lineage import written_lines


def batches_of_summary(handle: Handle, head: Id | None, row: Row) -> tuple[Batch, ...]:
    """The batches that a summary tells."""
    records = _records(handle, head, row)
    for record in records:
        found = read_batches(record)
        if found is not None:
            return found
    count = next((_folded(record) for record in records if "ranges" in record), 0)
    return (Batch(row.message.text, count),)


def list_batches(handle: Handle, head: Id | None) -> list[SummaryBatch]:
    """The batches that hold at a commit, in order, each with the commit that made it."""
    rows = [row for row in show_rows(handle.view(head).rows) if is_summary(row)]
    told = [batch for row in rows for batch in batches_of_summary(handle, head, row)]
    slots = [row.id for row in rows if row.id is not None]
    steps = read_writers(handle.store, handle.name, head, slots) if head and slots else []
    makers = _makers(steps)
    return [SummaryBatch(batch, makers.get(batch)) for batch in told]


def _makers(steps: Sequence[Step]) -> dict[Batch, str]:
    """The first of these commits that has each batch in its record, or wrote its words."""
    found: dict[Batch, str] = {}
    for step in steps:
        if step.commit.kind != "compact":
            continue
        record = decode_body(step).metadata or {}
        made = read_batches(record)
        if made is None:
            words = [message.text for _, message in written_lines(step)]
            made = tuple(Batch(text, _folded(record)) for text in words)
        for batch in made:
            found.setdefault(batch, step.commit.id.hex())
    return found


def read_times(handle: Handle, rows: Sequence[Row]) -> dict[Id, float]:
    """When each line was said, where a commit of its own says so."""
    view = handle.view(handle.head())
    commits = {row.id: view.commit_of(row.id) for row in rows if row.id is not None}
    steps = handle.store.read_commits(handle.name, list(commits.values()))
    created = {step.commit.id: step.commit.created for step in steps}
    return {slot: created[commit] for slot, commit in commits.items() if commit in created}


def _records(handle: Handle, head: Id | None, row: Row) -> list[JsonObject]:
    """The records of the commits that made the line say what it says, the newest first."""
    if head is None or row.id is None:
        return []
    steps = read_writers(handle.store, handle.name, head, [row.id])
    return [
        decode_body(step).metadata or {}
        for step in reversed(steps)
        if (row.id, row.message) in written_lines(step)
    ]


def _folded(record: JsonObject) -> int:
    return sum(int(folded.get("messages", 0)) for folded in record.get("ranges", ()))
