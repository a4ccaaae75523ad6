"""Rebase and cherry-pick: commits said again somewhere else, their lines keeping their ids."""

from bisect import bisect_left

from msgspec import structs

from weft.errors import MergeConflict, ThreadError
from weft.history import Again, Draft, Replayed, merge_base, replay
from weft.ids import Id
from weft.store import Step

from .handle import Handle
from .info import CommitInfo
from .merge import Strategy, conflict_chooser, conflict_line, fast_forward
from .preview import Preview, preview_state
from .resolve import At, Name, require_commit, resolve_commit


def rebase(
    handle: Handle, onto: At, strategy: Strategy = None, *, preview: bool = False
) -> CommitInfo | Preview:
    """Say the branch's own commits again behind another commit; one operation to undo.

    Nothing happens where the branch already stands behind it. Raises `MergeConflict` where both
    sides changed one line and nobody says which holds.
    """
    with handle.lock, handle.store.transaction():
        target, ours = resolve_commit(handle, onto), handle.head()
        if target is None or ours is None:
            raise ThreadError("an empty thread cannot be rebased")
        base = merge_base(handle.store, handle.name, ours, target)
        if base in (target, ours):
            return _straight(handle, ours, target, base == target, preview)
        again = _replayed(handle, ours, target, base, strategy)
        if preview:
            return preview_state(handle, "rebase", again.state, again.conflicts)
        if again.conflicts:
            raise MergeConflict(conflict_line(str(onto), again.conflicts), again.conflicts)
        return handle.land_series("rebase", target, map(_from, again.commits))


def cherry_pick(
    handle: Handle, name: Name, strategy: Strategy = None, *, preview: bool = False
) -> CommitInfo | Preview:
    """Say one commit of another branch again here."""
    target = require_commit(handle, name)
    (step,) = handle.store.read_commits(handle.name, [target])
    before = handle.view(step.commit.parents[0] if step.commit.parents else None).state
    choose = conflict_chooser(strategy)
    if preview:
        again = replay([step], before, handle.view(handle.head()).state, choose)
        if not again.commits and not again.conflicts:
            raise ThreadError(f"everything of {target.hex()[:12]} is here already")
        return preview_state(handle, "cherry-pick", again.state, again.conflicts)

    def plan(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
        again = replay([step], before, handle.view(head).state, choose)
        if again.conflicts:
            places = ", ".join(conflict.place for conflict in again.conflicts)
            line = f"{target.hex()[:12]} changes what is not here, or is another here: {places}"
            raise MergeConflict(line, again.conflicts)
        if not again.commits:
            raise ThreadError(f"everything of {target.hex()[:12]} is here already")
        draft = again.commits[0].draft
        kind = "splice" if draft.kind == "merge" else draft.kind
        metadata = {**(draft.metadata or {}), "picked_from": target.hex()}
        return structs.replace(draft, kind=kind, metadata=metadata), ()

    return handle.land("cherry-pick", plan)


def _straight(
    handle: Handle, ours: Id, target: Id, is_behind: bool, preview: bool
) -> CommitInfo | Preview:
    """A rebase with nothing to say again: stay, or move on to the target."""
    if preview:
        return preview_state(handle, "rebase", handle.view(ours if is_behind else target))
    return handle.info(ours) if is_behind else fast_forward(handle, "rebase", target)


def _replayed(
    handle: Handle, ours: Id, target: Id, base: Id | None, strategy: Strategy
) -> Replayed:
    steps = _own_steps(handle, ours, target, base)
    parents = steps[0].commit.parents
    before = handle.view(parents[0] if parents else None).state
    return replay(steps, before, handle.view(target).state, conflict_chooser(strategy))


def _own_steps(handle: Handle, ours: Id, target: Id, base: Id | None) -> list[Step]:
    """The commits of our chain of first parents that the target does not come from."""
    store, name = handle.store, handle.name
    (node,) = store.read_nodes(name, [base]) if base is not None else (None,)
    steps = store.walk(name, ours, after=0 if node is None else node.depth)
    parents = steps[0].commit.parents
    if (parents[0] if parents else None) == base:
        return steps
    # the base came in by a merge, so our chain passes it by: ancestors of the target stand first
    steps = store.walk(name, ours)
    ids = [step.commit.id for step in steps]
    own = bisect_left(ids, True, key=lambda id: merge_base(store, name, id, target) != id)
    return steps[own:]


def _from(again: Again) -> Again:
    metadata = {**(again.draft.metadata or {}), "rebased_from": again.of.hex()}
    return structs.replace(again, draft=structs.replace(again.draft, metadata=metadata))
