"""What a thread's own summaries stand for, read from the commits that wrote them.

A summary that the engine wrote has its batches in its commit's record. Any other one (an extract,
the caller's own words, a client's) is one batch: its text, and as many messages as its commit says
that it took. One that was edited since is what it says now.
"""

from collections.abc import Sequence

from weft.compact import Batch, read_batches
from weft.history import Row, decode_body, read_writers
from weft.ids import Id
from weft.model import JsonObject

from .handle import Handle
from .lineage import written_lines


def told_batches(handle: Handle, row: Row) -> tuple[Batch, ...]:
    """The batches that a summary tells."""
    records = _records(handle, row)
    for record in records:
        found = read_batches(record)
        if found is not None:
            return found
    count = next((_folded(record) for record in records if "ranges" in record), 0)
    return (Batch(row.message.text, count),)


def read_times(handle: Handle, rows: Sequence[Row]) -> dict[Id, float]:
    """When each line was said, where a commit of its own says so."""
    view = handle.view(handle.head())
    commits = {row.id: view.commit_of(row.id) for row in rows if row.id is not None}
    steps = handle.store.read_commits(handle.name, list(commits.values()))
    created = {step.commit.id: step.commit.created for step in steps}
    return {slot: created[commit] for slot, commit in commits.items() if commit in created}


def _records(handle: Handle, row: Row) -> list[JsonObject]:
    """The records of the commits that made the line say what it says, the newest first."""
    head = handle.head()
    if head is None or row.id is None:
        return []
    steps = read_writers(handle.store, handle.name, head, [row.id])
    return [
        decode_body(step).metadata or {}
        for step in reversed(steps)
        if (row.id, row.message) in written_lines(step)
    ]


def _folded(record: JsonObject) -> int:
    return sum(int(folded.get("messages", 0)) for folded in record["ranges"])
