"""The verbs that change what is there: edit, priorities, merge, revert.

Each plans a new list of lines and commits the difference; what the plan does not mention stays
as it is, byte by byte.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, structs

from weft.errors import MergeConflict, NotFound, ThreadError
from weft.history import (
    CHOICES,
    Change,
    Choose,
    CommitKind,
    Conflict,
    Diff,
    Draft,
    Merged,
    PlannedRewrite,
    Priority,
    Rewrite,
    Row,
    diff_rows,
    edit_text,
    merge3,
    merge_base,
    plan_rewrite,
)
from weft.ids import Id
from weft.model import JsonObject, Message
from weft.store import Landing

from .handle import Handle
from .info import CommitInfo
from .resolve import Name, require_commit, resolve_row

Strategy = str | Mapping[str, str] | None
"""`ours`, `theirs`, `concat`; or per conflict's id one of these or the text to have; or ask."""


class MergePreview(Struct, frozen=True, kw_only=True):
    """What a merge would come to. Unsettled conflicts stand in `rows` as our side has them."""

    branch: str
    rows: tuple[Row, ...]
    conflicts: tuple[Conflict, ...]
    diff: Diff
    fast_forward: bool = False
    answered_twice: tuple[str, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(row.message for row in self.rows)

    def __str__(self) -> str:
        if not self.diff and not self.conflicts:
            return f"{self.branch} brings nothing new"
        waiting = f"\n{len(self.conflicts)} conflicts" if self.conflicts else ""
        return f"{self.diff}{waiting}"


def edit(
    handle: Handle, name: Name, text: str, *, note: str | None, metadata: JsonObject | None
) -> CommitInfo:
    """Give a line other words; its calls, media and results stay."""

    def change(row: Row) -> Row:
        return structs.replace(row, message=edit_text(row.message, text))

    return _change_row(handle, "edit", name, change, note=note, metadata=metadata)


def annotate(
    handle: Handle, name: Name, priority: Priority, *, note: str | None = None
) -> CommitInfo:
    """Give a line another priority on this branch."""

    def change(row: Row) -> Row:
        return structs.replace(row, priority=priority)

    return _change_row(handle, "annotate", name, change, note=note, metadata=None)


def commit_rows(
    handle: Handle,
    kind: CommitKind,
    plan: Callable[[list[Row]], Sequence[Row]],
    *,
    note: str | None = None,
    metadata: JsonObject | None = None,
) -> CommitInfo:
    """Commit the list that `plan` makes of the present one."""

    def draft(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
        rows = handle.view(head).rows
        return _draft(kind, plan_rewrite(rows, plan(rows)), note, metadata), ()

    return handle.land(kind, draft)


def merge(
    handle: Handle, branch: str, strategy: Strategy, *, note: str | None = None
) -> CommitInfo:
    """Bring a branch's lines home; raises `MergeConflict` where nobody says how to settle one."""
    theirs = handle.store.read_ref(handle.name, branch)
    if theirs is None:
        raise NotFound("branch", branch)
    choose = chooser(strategy)
    with handle.lock, handle.store.transaction():
        ours = handle.head()
        base = None if ours is None else merge_base(handle.store, handle.name, ours, theirs)
        if base == theirs:
            return handle.info(theirs if ours is None else ours)
        if base == ours:
            return fast_forward(handle, ours, theirs)
        merged = _merged(handle, base, ours, theirs, choose)
        if merged.conflicts:
            raise MergeConflict(_conflict_line(branch, merged.conflicts), merged.conflicts)
        planned = plan_rewrite(handle.view(ours).rows, merged.rows)
        record = {"answered_twice": list(merged.answered_twice)} if merged.answered_twice else None
        said = f"merge {branch} into {handle.branch}" if note is None else note
        draft = _draft("merge", planned, said, record)
        return handle.land("merge", lambda _: (draft, (theirs,)))


def preview_merge(handle: Handle, branch: str, strategy: Strategy) -> MergePreview:
    """What `merge` would do, with the conflicts it would have; nothing is written."""
    theirs = handle.store.read_ref(handle.name, branch)
    if theirs is None:
        raise NotFound("branch", branch)
    ours = handle.head()
    base = None if ours is None else merge_base(handle.store, handle.name, ours, theirs)
    merged = _merged(handle, base, ours, theirs, chooser(strategy))
    rows = handle.view(ours).rows
    return MergePreview(
        branch=branch,
        rows=merged.rows,
        conflicts=merged.conflicts,
        diff=diff_rows(rows, merged.rows, handle.count),
        fast_forward=base == ours,
        answered_twice=merged.answered_twice,
    )


def revert(
    handle: Handle, name: Name, strategy: Strategy = None, *, note: str | None = None
) -> CommitInfo:
    """Take one commit's change back from the present list; what came after it stays."""
    target = require_commit(handle, name)
    (step,) = handle.store.read_commits(handle.name, [target])
    made = handle.view(target).rows
    parents = step.commit.parents
    before = handle.view(parents[0] if parents else None).rows
    choose = chooser(strategy)

    def plan(rows: list[Row]) -> Sequence[Row]:
        merged = merge3(made, rows, before, choose)
        if merged.conflicts:
            line = f"{target.hex()[:12]} cannot be taken back: {_changed_since(merged.conflicts)}"
            raise MergeConflict(line, merged.conflicts)
        if not plan_rewrite(rows, merged.rows):
            raise ThreadError(f"nothing of {target.hex()[:12]} is left here to take back")
        return merged.rows

    said = f"revert {step.commit.kind} {target.hex()[:12]}" if note is None else note
    return commit_rows(handle, "revert", plan, note=said, metadata={"reverts": target.hex()})


def fast_forward(handle: Handle, ours: Id | None, theirs: Id) -> CommitInfo:
    """Move the branch to a commit that comes after its head."""
    handle.store.land(
        handle.name,
        Landing(verb="merge", ref=handle.branch, old=ours, new=theirs, created=handle.clock()),
    )
    return handle.info(theirs)


def chooser(strategy: Strategy) -> Choose | None:
    """How conflicts are settled; `None` where they are to be listed."""
    if strategy is None:
        return None
    if isinstance(strategy, str):
        if strategy not in CHOICES:
            raise ThreadError(f"{strategy!r} is no strategy; there are {', '.join(CHOICES)}")
        return lambda _: strategy
    answers = strategy

    def choose(conflict: Conflict) -> str:
        found = [answer for id, answer in answers.items() if conflict.id.startswith(id)]
        if len(found) != 1:
            raise MergeConflict(f"no answer for the conflict in {conflict.id[:12]}", (conflict,))
        return found[0]

    return choose


def _change_row(
    handle: Handle,
    kind: CommitKind,
    name: Name,
    change: Callable[[Row], Row],
    *,
    note: str | None,
    metadata: JsonObject | None,
) -> CommitInfo:
    """Commit a change to one line, looked up again whenever the head has moved."""

    def draft(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
        row = resolve_row(handle, handle.view(head), name)
        assert row.id is not None
        new = change(row)
        words = new.message != row.message
        op = Change(row.id, 0 if words else None, _unless(new.priority, row.priority))
        messages = (new.message,) if words else ()
        return Draft(kind, Rewrite(change=(op,)), messages, note, metadata), ()

    return handle.land(kind, draft)


def _unless(new: Priority, old: Priority) -> Priority | None:
    return None if new == old else new


def _merged(
    handle: Handle, base: Id | None, ours: Id | None, theirs: Id, choose: Choose | None
) -> Merged:
    left, right = handle.view(ours).rows, handle.view(theirs).rows
    return merge3(handle.view(base).rows, left, right, choose)


def _draft(
    kind: CommitKind, planned: PlannedRewrite, note: str | None, metadata: JsonObject | None
) -> Draft:
    return Draft(kind, planned.op, planned.messages, note, metadata)


def _conflict_line(branch: str, conflicts: Sequence[Conflict]) -> str:
    places = ", ".join(f"{conflict.id[:12]} ({conflict.kind})" for conflict in conflicts)
    return f"{branch} and this branch both changed {places}; choose {', '.join(CHOICES)}"


def _changed_since(conflicts: Sequence[Conflict]) -> str:
    return ", ".join(f"{conflict.id[:12]} was changed since" for conflict in conflicts)
