"""Combine branches and commits: `merge`, `squash`, `rebase`, `cherry_pick` and `revert`.

A merge keeps every message of both sides. If both sides changed the same message, or the setup,
that is a conflict, and a `Strategy` resolves it. The merged branch becomes a parent of the merge
commit, so nothing is ever merged twice.

A squash adds one message: the branch's last answer, or a text that the caller gives. Changes that
the branch made to shared messages (edits, priorities, results of open calls) are merged as usual.
Two things stay on the branch, and the preview says so:

- Messages that the branch compacted are not compacted here.
- Tools and parameters that the branch set are not taken over.

`rebase`, `cherry_pick` and `revert` apply commits on top of other commits, or undo one. Messages
keep their ids: a rebased or picked message is still the same message.

A `Preview` is the effect of a change before it is made. It is computed from the same draft that
would be written, so the two cannot differ. Nothing is written and no hook runs.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from weft.errors import MergeConflict, NotFound, ThreadError
from weft.history import (
    CHOICES,
    AnyConflict,
    Choose,
    Conflict,
    Diff,
    Draft,
    Merged,
    ReplayedCommit,
    ReplayResult,
    Row,
    Setup,
    State,
    View,
    answers_to_open_calls,
    diff_rows,
    is_signed,
    is_visible,
    merge_base,
    merge_states,
    plan_state,
    replay,
    restore_original_order,
    setup_changes,
    visible_rows,
)
from weft.ids import Id
from weft.model import JsonObject, Message, Text
from weft.store import Landing, Step

from .handle import Handle, MakeDraft
from .info import CommitInfo
from .resolve import At, Name, require_commit, resolve_commit

ASK, SQUASH = "ask", "squash"
STRATEGIES = (*CHOICES, SQUASH, ASK)

Strategy = str | Mapping[str, str] | Choose | None
"""How to resolve conflicts:

- `ours`, `theirs` or `concat` for all of them;
- a mapping from conflict id to one of these, or to the text to use;
- a function that takes a conflict and returns one of these or a text;
- `ask`: return the conflicts as values and write nothing.

`Thread.merge` also takes `squash`.
"""


class Preview(Struct, frozen=True, kw_only=True):
    """A change that was not made; `rows` are the rows afterwards, including hidden ones.

    - `stripped`: messages whose thinking is sent now and could not be sent afterwards.
    - `prefix_tokens`: the tokens at the start that do not change, so a prompt cache still has them.
    - `setup`: the setup afterwards; `setup_changes` names the parts that would change.
    - `conflicts`: unresolved conflicts. `rows` and `setup` then show our side.
    """

    verb: str
    rows: tuple[Row, ...]
    diff: Diff
    stripped: tuple[str, ...] = ()
    prefix_tokens: int = 0
    setup: Setup | None = None
    setup_changes: tuple[str, ...] = ()
    conflicts: tuple[AnyConflict, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(row.message for row in visible_rows(self.rows))

    @property
    def tokens_before(self) -> int:
        return self.diff.tokens_before

    @property
    def tokens_after(self) -> int:
        return self.diff.tokens_after

    @property
    def cache_lost(self) -> int:
        """The tokens sent now that a prompt cache would have to read again."""
        return self.tokens_before - self.prefix_tokens

    def __str__(self) -> str:
        return "\n".join([str(self.diff), *self._costs()])

    def _costs(self) -> list[str]:
        """Lines about conflicts, and about what would be lost or changed."""
        lines = [f"conflict in {conflict.place}" for conflict in self.conflicts]
        if self.setup_changes:
            lines.append(f"{', '.join(self.setup_changes)} would change")
        if self.stripped:
            lines.append(f"thinking of {len(self.stripped)} messages would not be sent any more")
        if self.cache_lost:
            lines.append(f"{self.cache_lost:,} tokens of cached prefix would be lost")
        return lines


def preview_state(
    handle: Handle,
    verb: str,
    after: State | View,
    conflicts: tuple[AnyConflict, ...] = (),
) -> Preview:
    """The preview of a change that results in this state."""
    view, rows = handle.view(handle.head()), after.rows
    return Preview(
        verb=verb,
        rows=tuple(rows),
        diff=diff_rows(view.rows, rows, handle.count),
        stripped=lost_thinking(view, rows),
        prefix_tokens=shared_prefix_tokens(handle, view.rows, rows),
        setup=after.setup,
        setup_changes=setup_changes(view.setup, after.setup),
        conflicts=conflicts,
    )


def land_or_preview(
    handle: Handle, verb: str, make_draft: MakeDraft, preview: bool
) -> CommitInfo | Preview:
    """Commit a draft, or preview it."""
    if preview:
        return preview_state(handle, verb, handle.simulate(make_draft))
    return handle.land(verb, make_draft)


def lost_thinking(view: View, rows: Sequence[Row]) -> tuple[str, ...]:
    """The ids of messages whose thinking is sent now and would not be sent with these rows."""
    stale = view.stale_signatures()
    sent_ids = {
        row.id for row in visible_rows(view.rows) if is_signed(row.message) and row.id not in stale
    }
    stale_after = view.stale_signatures(rows) if sent_ids else frozenset[bytes]()
    return tuple(
        row.id.hex()
        for row in visible_rows(rows)
        if row.id in sent_ids
        and row.id is not None
        and (row.id in stale_after or not is_signed(row.message))
    )


def shared_prefix_tokens(handle: Handle, before: Sequence[Row], after: Sequence[Row]) -> int:
    """The tokens of the messages at the start that are the same before and after."""
    tokens = 0
    for old, new in zip(visible_rows(before), visible_rows(after), strict=False):
        if old.message is not new.message and old.message != new.message:
            break
        tokens += handle.count(old.message)
    return tokens


class MergePreview(Preview, frozen=True, kw_only=True):
    """What a merge would do.

    `answered_twice` are the tool calls that both sides answered. Two fields are for a squash only:
    `kept_whole` counts the messages that the branch compacted and that stay uncompacted here;
    `left_setup` names the parts of the setup that the branch changed and that are not taken over.
    """

    branch: str
    fast_forward: bool = False
    answered_twice: tuple[str, ...] = ()
    kept_whole: int = 0
    left_setup: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.diff and not self.conflicts and not self.setup_changes:
            return f"{self.branch} brings nothing new"
        return "\n".join([str(self.diff), *self._not_merged(), *self._costs()])

    def _not_merged(self) -> list[str]:
        """Lines about what stays on the branch."""
        lines: list[str] = []
        if self.kept_whole:
            lines.append(f"{self.kept_whole} messages that it compacted stay whole here")
        if self.left_setup:
            lines.append(f"its {', '.join(self.left_setup)} are not taken over")
        return lines


class MergeSides:
    """The heads of both branches and their merge base."""

    def __init__(self, handle: Handle, branch: str) -> None:
        theirs = handle.store.read_ref(handle.name, branch)
        if theirs is None:
            raise NotFound("branch", branch)
        self.handle, self.branch = handle, branch
        self.theirs: Id = theirs
        self.ours = handle.head()
        self.base = (
            None
            if self.ours is None
            else merge_base(handle.store, handle.name, self.ours, self.theirs)
        )

    def states(self) -> tuple[State, State, State]:
        """The compiled states of the base, our head and their head."""
        base, ours, theirs = (self.handle.view(id) for id in (self.base, self.ours, self.theirs))
        return base.state, ours.state, theirs.state

    def added_rows(self) -> list[Row]:
        """The rows that only their side has, as a model sees them."""
        shared = {row.id for row in self.handle.view(self.base).rows}
        rows = visible_rows(self.handle.view(self.theirs).rows)
        return [row for row in rows if row.id not in shared]


class PlannedMerge(Struct, frozen=True, kw_only=True):
    """A merge before it is written; `state` is the state of the thread afterwards.

    `kept_whole` and `left_setup` are as in `MergePreview`.
    """

    state: State
    note: str
    record: JsonObject
    conflicts: tuple[AnyConflict, ...] = ()
    answered_twice: tuple[str, ...] = ()
    kept_whole: int = 0
    left_setup: tuple[str, ...] = ()


def merge(
    handle: Handle,
    branch: str,
    strategy: Strategy = None,
    *,
    text: str | None = None,
    settle: Strategy = None,
    note: str | None = None,
) -> CommitInfo | MergePreview:
    """Merge a branch into the handle's branch; raises `MergeConflict` for unresolved conflicts.

    With the strategy `ask`, conflicts are returned as a preview and nothing is written. For a
    squash, `settle` is the strategy for conflicts.
    """
    _check_squash_arguments(strategy, text, settle)
    with handle.lock, handle.store.transaction():
        sides = MergeSides(handle, branch)
        if sides.base == sides.theirs:  # already merged
            return handle.info(sides.ours or sides.theirs)
        if sides.base == sides.ours and strategy != SQUASH:
            return fast_forward(handle, "merge", sides.theirs)
        planned = _plan_merge(sides, strategy, text, settle)
        if planned.conflicts and ASK in (strategy, settle):
            return _preview(sides, planned)
        if planned.conflicts:
            raise MergeConflict(describe_conflicts(branch, planned.conflicts), planned.conflicts)
        draft = _make_draft(sides, planned, note)
        return handle.land("merge", lambda _: (draft, (sides.theirs,)))


def preview_merge(
    handle: Handle,
    branch: str,
    strategy: Strategy = None,
    *,
    text: str | None = None,
    settle: Strategy = None,
) -> MergePreview:
    """What `merge` would do, including its conflicts; nothing is written."""
    _check_squash_arguments(strategy, text, settle)
    sides = MergeSides(handle, branch)
    if strategy == SQUASH and sides.base == sides.theirs:
        strategy, text = None, None  # already merged: nothing to squash
    planned = _plan_merge(sides, strategy, text, settle)
    return _preview(sides, planned, is_fast_forward=sides.base == sides.ours and strategy != SQUASH)


def fast_forward(handle: Handle, verb: str, target: Id) -> CommitInfo:
    """Move the branch to a commit that descends from its head."""
    handle.check_budget(handle.view(target).rows)
    handle.write_landing(
        Landing(verb=verb, ref=handle.branch, old=handle.head(), new=target, created=handle.clock())
    )
    return handle.info(target)


def conflict_chooser(strategy: Strategy) -> Choose | None:
    """The function that resolves conflicts by this strategy; `None` to only list conflicts."""
    if strategy is None or strategy == ASK:
        return None
    if isinstance(strategy, str):
        if strategy not in CHOICES:
            raise ThreadError(f"unknown strategy {strategy!r}; choose from {', '.join(STRATEGIES)}")
        return lambda _: strategy
    if callable(strategy):
        return strategy
    answers = strategy  # pyright forgets inside `choose` that it is a mapping

    def choose(conflict: AnyConflict) -> str:
        matching = [answer for id, answer in answers.items() if conflict.id.startswith(id)]
        if len(matching) != 1:
            raise MergeConflict(f"no answer for the conflict in {conflict.place}", (conflict,))
        return matching[0]

    return choose


def describe_conflicts(other: str, conflicts: Sequence[AnyConflict]) -> str:
    """One line that says what both sides changed, and how to resolve it."""
    places = ", ".join(conflict.place for conflict in conflicts)
    return f"{other} and this branch both changed {places}; choose {', '.join(CHOICES)}"


def _check_squash_arguments(strategy: Strategy, text: str | None, settle: Strategy) -> None:
    if strategy == SQUASH:
        return
    if text is not None:
        raise ThreadError("`text` is only for strategy='squash'")
    if settle is not None:
        raise ThreadError("`settle` is only for strategy='squash'; use `strategy` instead")


def _plan_merge(
    sides: MergeSides, strategy: Strategy, text: str | None, settle: Strategy
) -> PlannedMerge:
    """Plan a merge or a squash; the arguments are those of `merge`."""
    if strategy == SQUASH:
        return _plan_squash(sides, conflict_chooser(settle), text)
    merged = merge_states(*sides.states(), conflict_chooser(strategy))
    answered_twice = list(merged.answered_twice)
    return PlannedMerge(
        state=merged.state,
        note=f"merge {sides.branch} into {sides.handle.branch}",
        record={"answered_twice": answered_twice} if answered_twice else {},
        conflicts=merged.conflicts,
        answered_twice=merged.answered_twice,
    )


def _make_draft(sides: MergeSides, planned: PlannedMerge, note: str | None = None) -> Draft:
    change = plan_state(sides.handle.view(sides.ours).state, planned.state)
    record = planned.record or None
    commit_note = planned.note if note is None else note
    return Draft("merge", change.op, change.messages, commit_note, record)


def _preview(
    sides: MergeSides, planned: PlannedMerge, *, is_fast_forward: bool = False
) -> MergePreview:
    handle, draft = sides.handle, _make_draft(sides, planned)
    after = handle.simulate(lambda _: (draft, (sides.theirs,)))
    preview = preview_state(handle, "merge", after, planned.conflicts)
    return MergePreview(
        **{name: getattr(preview, name) for name in preview.__struct_fields__},
        branch=sides.branch,
        fast_forward=is_fast_forward,
        answered_twice=planned.answered_twice,
        kept_whole=planned.kept_whole,
        left_setup=planned.left_setup,
    )


def _plan_squash(sides: MergeSides, choose: Choose | None, text: str | None) -> PlannedMerge:
    """Plan a squash: the branch's result becomes one message after our rows."""
    base, ours, theirs = sides.states()
    shared = _shared_rows(base.rows, ours.rows, theirs.rows)
    merged = merge_states(base, ours, State(shared, base.setup), choose)
    added, changed = sides.added_rows(), _changed_ids(ours.rows, merged)
    if not (added or changed or merged.conflicts):
        raise ThreadError(f"{sides.branch} has no messages of its own to squash")
    result = text
    if result is None and added:
        result = _last_answer(sides.branch, added)
    rows = list(merged.rows)
    if result is not None:
        rows.append(Row(None, Message("assistant", (Text(result),)), kind="summary"))
    compacted = _count_compacted(base.rows, theirs.rows)
    record = {**_squash_record(sides, added), "changed": changed, "folded": compacted}
    return PlannedMerge(
        state=State(rows, merged.setup),
        note=f"squash {len(added)} messages of {sides.branch} into {sides.handle.branch}",
        record={"squashed": record},
        conflicts=merged.conflicts,
        kept_whole=compacted,
        left_setup=setup_changes(base.setup, theirs.setup),
    )


def _shared_rows(base: Sequence[Row], ours: Sequence[Row], theirs: Sequence[Row]) -> list[Row]:
    """The rows that both sides have, as in `theirs`; rows that it compacted stay as in `base`.

    Results for shared open calls count as shared: without them the call would have no result here.
    """
    their_rows = {row.id: row for row in theirs}
    base_ids = {row.id for row in base}
    our_new_ids = {row.id for row in ours} - base_ids
    return [
        *(their_rows.get(row.id, row) for row in base),
        *(row for row in answers_to_open_calls(base, theirs) if row.id not in our_new_ids),
        *(row for row in theirs if row.id in our_new_ids),  # one side has cherry-picked it
    ]


def _changed_ids(ours: Sequence[Row], merged: Merged) -> list[str]:
    """The ids of the rows that differ from ours."""
    our_rows = {row.id: row for row in ours}
    rows = [row for row in merged.rows if our_rows.get(row.id) != row]
    return [row.id.hex() for row in rows if row.id is not None]


def _last_answer(branch: str, rows: Sequence[Row]) -> str:
    """The text of the last assistant message."""
    for row in reversed(rows):
        texts = [block.text for block in row.message.blocks if isinstance(block, Text)]
        if row.message.role == "assistant" and any(text.strip() for text in texts):
            return "\n".join(texts)
    raise ThreadError(f"{branch} does not end with an answer; pass the result as `text`")


def _count_compacted(base: Sequence[Row], theirs: Sequence[Row]) -> int:
    """How many visible rows of the base the branch has compacted."""
    their_ids = {row.id for row in theirs}
    return sum(is_visible(row) and row.id not in their_ids for row in base)


def _squash_record(sides: MergeSides, added: Sequence[Row]) -> JsonObject:
    """Where the squashed message came from, for the commit's metadata."""
    ids = [row.id.hex() for row in added if row.id is not None]
    return {
        "branch": sides.branch,
        "head": sides.theirs.hex(),
        "base": None if sides.base is None else sides.base.hex(),
        "messages": len(added),
        "tokens": sum(sides.handle.count(row.message) for row in added),
        "first": ids[0] if ids else None,
        "last": ids[-1] if ids else None,
    }


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
        replayed = _replay_own_commits(handle, ours, target, base, strategy)
        if preview:
            return preview_state(handle, "rebase", replayed.state, replayed.conflicts)
        if replayed.conflicts:
            reason = describe_conflicts(str(onto), replayed.conflicts)
            raise MergeConflict(reason, replayed.conflicts)
        return handle.land_series("rebase", target, map(_with_original_id, replayed.commits))


def cherry_pick(
    handle: Handle, name: Name, strategy: Strategy = None, *, preview: bool = False
) -> CommitInfo | Preview:
    """Apply one commit of another branch to this one."""
    target = require_commit(handle, name)
    (step,) = handle.store.read_commits(handle.name, [target])
    before = handle.view(step.commit.parents[0] if step.commit.parents else None).state
    choose = conflict_chooser(strategy)

    def replay_on(head: Id | None) -> ReplayResult:
        replayed = replay([step], before, handle.view(head).state, choose)
        if not replayed.commits and not replayed.conflicts:
            raise ThreadError(f"everything of {target.hex()[:12]} is here already")
        return replayed

    if preview:
        replayed = replay_on(handle.head())
        return preview_state(handle, "cherry-pick", replayed.state, replayed.conflicts)

    def make_draft(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
        replayed = replay_on(head)
        if replayed.conflicts:
            places = ", ".join(conflict.place for conflict in replayed.conflicts)
            reason = f"{target.hex()[:12]} changes messages that are missing or different: {places}"
            raise MergeConflict(reason, replayed.conflicts)
        draft = replayed.commits[0].draft
        # A picked merge has no second parent here, so it is not a merge any more.
        kind = "splice" if draft.kind == "merge" else draft.kind
        metadata = {**(draft.metadata or {}), "picked_from": target.hex()}
        return structs.replace(draft, kind=kind, metadata=metadata), ()

    return handle.land("cherry-pick", make_draft)


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
    commit_note = f"revert {step.commit.kind} {target.hex()[:12]}" if note is None else note

    def merge_with(head: Id | None) -> Merged:
        return merge_states(after.state, handle.view(head).state, before.state, choose)

    if preview and (merged := merge_with(handle.head())).conflicts:
        return preview_state(handle, "revert", merged.state, merged.conflicts)

    def make_draft(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
        view, merged = handle.view(head), merge_with(head)
        if merged.conflicts:
            changes = ", ".join(
                f"{conflict.place} was changed since" for conflict in merged.conflicts
            )
            reason = f"{target.hex()[:12]} cannot be reverted: {changes}"
            later = _changes_since(handle, head, target, merged.conflicts)
            if later:
                commits = ", then ".join(f"{kind} {id.hex()[:12]}" for id, kind in later)
                reason += f"; revert {commits} first"
            raise MergeConflict(reason, merged.conflicts)
        rows = _in_original_order(handle, head, target, merged.rows)
        change = plan_state(view.state, State(rows, merged.setup))
        if not change:
            raise ThreadError(
                f"nothing to revert: the changes of {target.hex()[:12]} are not on this branch"
            )
        metadata: JsonObject = {"reverts": target.hex()}
        return Draft("revert", change.op, change.messages, commit_note, metadata), ()

    return land_or_preview(handle, "revert", make_draft, preview)


def _changes_since(
    handle: Handle, head: Id | None, target: Id, conflicts: Sequence[AnyConflict]
) -> list[tuple[Id, str]]:
    """The commits after `target` that changed the rows in conflict: id and kind, newest first."""
    if head is None:
        return []
    slots = {conflict.slot for conflict in conflicts if isinstance(conflict, Conflict)}
    depth = handle.store.read_depths(handle.name, head, [target]).get(target)
    if depth is None:
        return []
    changes: list[tuple[Id, str]] = []
    for step in handle.store.walk(handle.name, head, after=depth):
        before = handle.view(step.commit.parents[0] if step.commit.parents else None)
        after = handle.view(step.commit.id)
        if any(before.find(slot) != after.find(slot) for slot in slots):
            changes.append((step.commit.id, step.commit.kind))
    return changes[::-1]


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


def _replay_own_commits(
    handle: Handle, ours: Id, target: Id, base: Id | None, strategy: Strategy
) -> ReplayResult:
    """Apply the commits that only our branch has on top of the target."""
    steps = _own_commits(handle, ours, target, base)
    parents = steps[0].commit.parents
    before = handle.view(parents[0] if parents else None).state
    return replay(steps, before, handle.view(target).state, conflict_chooser(strategy))


def _own_commits(handle: Handle, ours: Id, target: Id, base: Id | None) -> list[Step]:
    """The commits of our first-parent chain that are not ancestors of the target."""
    store, name = handle.store, handle.name
    base_depth = 0 if base is None else store.read_nodes(name, [base])[0].depth
    steps = store.walk(name, ours, after=base_depth)
    parents = steps[0].commit.parents
    if (parents[0] if parents else None) == base:
        return steps
    # The base came in by a merge, so it is not on our first-parent chain. On that chain all
    # ancestors of the target come first: find the boundary by bisection.
    steps = store.walk(name, ours)
    ids = [step.commit.id for step in steps]
    first_own = bisect_left(ids, True, key=lambda id: merge_base(store, name, id, target) != id)
    return steps[first_own:]


def _with_original_id(commit: ReplayedCommit) -> ReplayedCommit:
    """The commit with the id of its original in the metadata."""
    metadata = {**(commit.draft.metadata or {}), "rebased_from": commit.original.hex()}
    return structs.replace(commit, draft=structs.replace(commit.draft, metadata=metadata))
