"""The verbs that look: recall, checkpoints, stats, and what a search finds."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from weft.errors import Ambiguous, NotFound
from weft.history import (
    Rewrite,
    Row,
    decode_body,
    read_branches,
    read_rows,
    shows,
)
from weft.ids import Id
from weft.model import Checkpoint, Message, speaker, spoken
from weft.store import Step

from .arguments import check_count, check_text
from .handle import Handle
from .info import CommitInfo, read_info
from .lineage import written_lines
from .resolve import SHORTEST, Name, find_row, require_commit, resolve_row

LIMIT = 50

Find = Callable[[Id], Row | None]
"""The line in a slot as the branch has it now."""


class Hit(Struct, frozen=True):
    """A text that was once said: `id` names its line, `live` whether a model still sees it so.

    `summary` is whether a compaction wrote it, to stand for others. `speaker` and
    `calls` are who a person sees there, and what it asks of tools. `created` is when its commit was
    made, in `thread`.
    """

    id: str
    text: str
    live: bool
    role: str
    commit: str
    summary: bool = False
    speaker: str = ""
    calls: str = ""
    thread: str = ""
    created: datetime | None = None


class Stats(Struct, frozen=True, kw_only=True):
    """A thread in numbers; `commits` counts every branch, and undone ones too."""

    thread: str
    branch: str
    branches: int
    commits: int
    messages: int
    hidden: int
    tokens: int
    priorities: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


def recall(handle: Handle, wanted: str, limit: int = LIMIT) -> list[Hit]:
    """The originals behind an id or a checkpoint, folded or not; otherwise what the words find,
    summaries last."""
    from .searching import search

    check_text("wanted", wanted)
    check_count("limit", limit)
    text = wanted.strip().removeprefix("<checkpoint:").removesuffix(">")
    if handle.store.has_checkpoint(handle.name, text):
        found = [hit for hit in search(handle, text, limit) if text in hit.text]
        return sorted(found, key=lambda hit: hit.summary)
    row = find_row(handle, text)
    if row is not None and row.id is not None:
        id = row.id.hex()
        said = row.message
        seen = (speaker(said), spoken(said, ""))
        return [Hit(id, said.text, shows(row), said.role, id, False, *seen, handle.name)]
    try:
        commit = require_commit(handle, text) if len(text) >= SHORTEST else None
    except (NotFound, Ambiguous):
        commit = None
    if commit is None:
        return sorted(search(handle, wanted, limit), key=lambda hit: hit.summary)
    (step,) = handle.store.read_commits(handle.name, [commit])
    return read_hits(step, handle.view(handle.head()).find, handle.name)


def show(handle: Handle, name: Name) -> CommitInfo:
    """The commit of that id, or the newest one of the branch that wrote the line of that id."""
    try:
        return handle.info(require_commit(handle, name))
    except NotFound:
        row = resolve_row(handle, handle.view(handle.head()), name)
    head = handle.head()
    steps = [] if head is None else handle.store.walk(handle.name, head)
    for step in reversed(steps):
        if any(slot == row.id for slot, _ in written_lines(step)):
            return read_info(step, handle.count)
    raise NotFound("commit", str(name))


def checkpoints(handle: Handle) -> list[Checkpoint]:
    """The checkpoints of the branch as it is now, oldest first."""
    return [
        block
        for row in handle.view(handle.head()).rows
        for block in row.message.blocks
        if isinstance(block, Checkpoint) and handle.store.has_checkpoint(handle.name, block.id)
    ]


def stats(handle: Handle) -> Stats:
    """The branch as it is now, in numbers."""
    view = handle.view(handle.head())
    rows = view.rows
    shown = [row for row in rows if shows(row)]
    priorities: dict[str, int] = {}
    for row in rows:
        priorities[row.priority] = priorities.get(row.priority, 0) + 1
    return Stats(
        thread=handle.name,
        branch=handle.branch,
        branches=len(read_branches(handle.store, handle.name)),
        commits=handle.store.count(handle.name),
        messages=len(shown),
        hidden=len(rows) - len(shown),
        tokens=view.tokens(handle.count),
        priorities=priorities,
    )


def find_lines(handle: Handle, steps: Sequence[Step]) -> Find:
    """How to find what the lines of these commits say now; compiles only if it must."""
    head = handle.head()
    if head is not None and not handle.has_view(head):
        slots = {slot for step in steps for slot, _ in written_lines(step)}
        lines = read_rows(handle.store, handle.name, head, slots)
        if lines is not None:
            return lines.get
    return handle.view(head).find


def read_hits(step: Step, find: Find, thread: str) -> list[Hit]:
    """What a commit said, line by line."""
    op = decode_body(step).op
    told = step.commit.kind == "compact" and isinstance(op, Rewrite)
    kept = {change.slot for change in op.change} if isinstance(op, Rewrite) else set[Id]()
    return [
        Hit(
            slot.hex(),
            message.text,
            _is_live(find(slot), message),
            message.role,
            step.commit.id.hex(),
            told and slot not in kept,
            speaker(message),
            spoken(message, ""),
            thread,
            datetime.fromtimestamp(step.commit.created, UTC),
        )
        for slot, message in written_lines(step)
    ]


def _is_live(row: Row | None, message: Message) -> bool:
    return row is not None and shows(row) and row.message == message
