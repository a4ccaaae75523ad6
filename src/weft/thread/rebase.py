"""`rebase`, `cherry_pick` and `revert`: apply commits on top of other commits, or undo one.

Messages keep their ids: a rebased or picked message is still the same message.
"""

from bisect import bisect_left
from collections.abc import Sequence

from msgspec import structs

from weft.errors import MergeConflict, ThreadError
from weft.history import (
    Draft,
    ReplayedCommit,
    ReplayResult,
    Row,
    State,
    merge_base,
    merge_states,
    plan_state,
    replay,
    restore_original_order,
)
from weft.ids import Id
from weft.store import Step

from .handle import Handle
from .info import CommitInfo
from .merge import Strategy, conflict_chooser, conflict_line, fast_forward
from .preview import Preview, land_or_preview, preview_state
from .resolve import At, Name, require_commit, resolve_commit


def rebase(
    handle: Handle, onto: At, strategy: Strategy = None, *, preview: bool = False
) -> CommitInfo | Preview:
    """Apply the branch's own commits on top of another commit, as one operation in the log.

    Does nothing if the branch already contains that commit. Raises `MergeConflict` if both sides
    changed the same message and `strategy` does not resolve it.
    """
    with handle.lock, handle.store.transaction():
        target, ours = resolve_commit(handle, onto), handle.head()
        if target is None or ours is None:
            raise ThreadError("an empty thread cannot be rebased")
        base = merge_base(handle.store, handle.name, ours, target)
        if base == target:
            if preview:
                return preview_state(handle, "rebase", handle.view(ours))
            return handle.info(ours)
        if base == ours:
            if preview:
                return preview_state(handle, "rebase", handle.view(target))
            return fast_forward(handle, "rebase", target)
        replayed = _replay_own(handle, ours, target, base, strategy)
        if preview:
            return preview_state(handle, "rebase", replayed.state, replayed.conflicts)
        if replayed.conflicts:
            raise MergeConflict(conflict_line(str(onto), replayed.conflicts), replayed.conflicts)
        return handle.land_series("rebase", target, map(_with_origin, replayed.commits))


def cherry_pick(
    handle: Handle, name: Name, strategy: Strategy = None, *, preview: bool = False
) -> CommitInfo | Preview:
    """Apply one commit of another branch to this one."""
    target = require_commit(handle, name)
    (step,) = handle.store.read_commits(handle.name, [target])
    before = handle.view(step.commit.parents[0] if step.commit.parents else None).state
    choose = conflict_chooser(strategy)
    nothing_new = ThreadError(f"everything of {target.hex()[:12]} is here already")
    if preview:
        replayed = replay([step], before, handle.view(handle.head()).state, choose)
        if not replayed.commits and not replayed.conflicts:
            raise nothing_new
        return preview_state(handle, "cherry-pick", replayed.state, replayed.conflicts)

    def plan(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
        replayed = replay([step], before, handle.view(head).state, choose)
        if replayed.conflicts:
            places = ", ".join(conflict.place for conflict in replayed.conflicts)
            line = f"{target.hex()[:12]} changes messages that are missing or different: {places}"
            raise MergeConflict(line, replayed.conflicts)
        if not replayed.commits:
            raise nothing_new
        draft = replayed.commits[0].draft
        kind = "splice" if draft.kind == "merge" else draft.kind
        metadata = {**(draft.metadata or {}), "picked_from": target.hex()}
        return structs.replace(draft, kind=kind, metadata=metadata), ()

    return handle.land("cherry-pick", plan)


def revert(
    handle: Handle,
    name: Name,
    strategy: Strategy = None,
    *,
    note: str | None = None,
    preview: bool = False,
) -> CommitInfo | Preview:
    """Undo the change of one commit; everything after it stays.

    This is a three-way merge: the commit is the base, its parent is the other side.
    """
    target = require_commit(handle, name)
    (step,) = handle.store.read_commits(handle.name, [target])
    parents = step.commit.parents
    after, before = handle.view(target), handle.view(parents[0] if parents else None)
    choose = conflict_chooser(strategy)
    text = f"revert {step.commit.kind} {target.hex()[:12]}" if note is None else note

    def plan(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
        view = handle.view(head)
        merged = merge_states(after.state, view.state, before.state, choose)
        if merged.conflicts:
            changed = ", ".join(f"{c.place} was changed since" for c in merged.conflicts)
            line = f"{target.hex()[:12]} cannot be reverted: {changed}"
            raise MergeConflict(line, merged.conflicts)
        rows = _in_original_order(handle, head, target, merged.rows)
        change = plan_state(view.state, State(rows, merged.setup))
        if not change:
            raise ThreadError(
                f"nothing to revert: the changes of {target.hex()[:12]} are not on this branch"
            )
        return Draft("revert", change.op, change.messages, text, {"reverts": target.hex()}), ()

    return land_or_preview(handle, "revert", plan, preview)


def _in_original_order(
    handle: Handle, head: Id | None, target: Id, rows: Sequence[Row]
) -> Sequence[Row]:
    """The rows in the order in which they were written, if the revert restores some of them."""
    view = handle.view(head)
    if head is None or all(row.id is None or view.find(row.id) for row in rows):
        return rows
    return restore_original_order(
        handle.store, handle.name, head, target, rows, lambda at: handle.view(at).rows
    )


def _replay_own(
    handle: Handle, ours: Id, target: Id, base: Id | None, strategy: Strategy
) -> ReplayResult:
    steps = _own_steps(handle, ours, target, base)
    parents = steps[0].commit.parents
    before = handle.view(parents[0] if parents else None).state
    return replay(steps, before, handle.view(target).state, conflict_chooser(strategy))


def _own_steps(handle: Handle, ours: Id, target: Id, base: Id | None) -> list[Step]:
    """The commits of our first-parent chain that are not ancestors of the target."""
    store, name = handle.store, handle.name
    (node,) = store.read_nodes(name, [base]) if base is not None else (None,)
    steps = store.walk(name, ours, after=0 if node is None else node.depth)
    parents = steps[0].commit.parents
    if (parents[0] if parents else None) == base:
        return steps
    # The base came in by a merge, so it is not on our first-parent chain. On that chain all
    # ancestors of the target come first: find the boundary by bisection.
    steps = store.walk(name, ours)
    ids = [step.commit.id for step in steps]
    first_own = bisect_left(ids, True, key=lambda id: merge_base(store, name, id, target) != id)
    return steps[first_own:]


def _with_origin(commit: ReplayedCommit) -> ReplayedCommit:
    metadata = {**(commit.draft.metadata or {}), "rebased_from": commit.of.hex()}
    return structs.replace(commit, draft=structs.replace(commit.draft, metadata=metadata))
