"""Merge a branch: all of its messages (`merge`), or only its result (`squash`).

A merge keeps every message of both sides. If both sides changed the same message, or the setup,
that is a conflict, and a `Strategy` resolves it. The merged branch becomes a parent of the merge
commit, so nothing is ever merged twice.

A squash adds one message: the branch's last answer, or a text that the caller gives. Changes that
the branch made to shared messages (edits, priorities, results of open calls) are merged as usual.
Two things stay on the branch, and the preview says so:

- Messages that the branch compacted are not compacted here.
- Tools and parameters that the branch set are not taken over.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from weft.errors import MergeConflict, NotFound, ThreadError
from weft.history import (
    CHOICES,
    AnyConflict,
    Choose,
    Draft,
    Merged,
    Row,
    State,
    merge_base,
    merge_states,
    open_answers,
    plan_state,
    setup_changes,
    show_rows,
    shows,
)
from weft.ids import Id
from weft.model import JsonObject, Message, Text
from weft.store import Landing

from .handle import Handle
from .info import CommitInfo
from .preview import Preview, preview_state

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


class MergePreview(Preview, frozen=True, kw_only=True):
    """What a merge would do.

    Two fields are for a squash only: `kept_whole` counts the messages that the branch compacted
    and that stay uncompacted here; `left_setup` names the parts of the setup that the branch
    changed and that are not taken over.
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
        rows = show_rows(self.handle.view(self.theirs).rows)
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
        if sides.base == sides.theirs:
            return handle.info(sides.ours or sides.theirs)
        if sides.base == sides.ours and strategy != SQUASH:
            return fast_forward(handle, "merge", sides.theirs)
        planned = _plan_merge(sides, strategy, text, settle)
        if planned.conflicts and ASK in (strategy, settle):
            return _preview(sides, planned)
        if planned.conflicts:
            raise MergeConflict(conflict_line(branch, planned.conflicts), planned.conflicts)
        draft = _draft(sides, planned, note)
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
    return _preview(sides, planned, is_forward=sides.base == sides.ours and strategy != SQUASH)


def fast_forward(handle: Handle, verb: str, target: Id) -> CommitInfo:
    """Move the branch to a commit that descends from its head."""
    handle.check_budget(handle.view(target).rows)
    handle.write_landing(
        Landing(verb=verb, ref=handle.branch, old=handle.head(), new=target, created=handle.clock())
    )
    return handle.info(target)


def conflict_chooser(strategy: Strategy) -> Choose | None:
    """The function that resolves conflicts; `None` if conflicts are only to be listed."""
    if strategy is None or strategy == ASK:
        return None
    if isinstance(strategy, str):
        if strategy not in CHOICES:
            raise ThreadError(f"unknown strategy {strategy!r}; choose from {', '.join(STRATEGIES)}")
        return lambda _: strategy
    if callable(strategy):
        return strategy
    answers = strategy

    def choose(conflict: AnyConflict) -> str:
        matching = [answer for id, answer in answers.items() if conflict.id.startswith(id)]
        if len(matching) != 1:
            raise MergeConflict(f"no answer for the conflict in {conflict.place}", (conflict,))
        return matching[0]

    return choose


def conflict_line(other: str, conflicts: Sequence[AnyConflict]) -> str:
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
    if strategy == SQUASH:
        return _plan_squash(sides, conflict_chooser(settle), text)
    merged = merge_states(*sides.states(), conflict_chooser(strategy))
    twice = list(merged.answered_twice)
    return PlannedMerge(
        state=merged.state,
        note=f"merge {sides.branch} into {sides.handle.branch}",
        record={"answered_twice": twice} if twice else {},
        conflicts=merged.conflicts,
        answered_twice=merged.answered_twice,
    )


def _draft(sides: MergeSides, planned: PlannedMerge, note: str | None = None) -> Draft:
    change = plan_state(sides.handle.view(sides.ours).state, planned.state)
    record = planned.record or None
    text = planned.note if note is None else note
    return Draft("merge", change.op, change.messages, text, record)


def _preview(sides: MergeSides, planned: PlannedMerge, *, is_forward: bool = False) -> MergePreview:
    handle, draft = sides.handle, _draft(sides, planned)
    after = handle.simulate(lambda _: (draft, (sides.theirs,)))
    preview = preview_state(handle, "merge", after, planned.conflicts)
    return MergePreview(
        **{name: getattr(preview, name) for name in preview.__struct_fields__},
        branch=sides.branch,
        fast_forward=is_forward,
        answered_twice=planned.answered_twice,
        kept_whole=planned.kept_whole,
        left_setup=planned.left_setup,
    )


def _plan_squash(sides: MergeSides, choose: Choose | None, text: str | None) -> PlannedMerge:
    """The branch's result as one message after our rows."""
    base, ours, theirs = sides.states()
    shared = _shared_rows(base.rows, ours.rows, theirs.rows)
    merged = merge_states(base, ours, State(shared, base.setup), choose)
    added, changed = sides.added_rows(), _changed_ids(ours.rows, merged)
    if not (added or changed or merged.conflicts):
        raise ThreadError(f"{sides.branch} has no messages of its own to squash")
    result = text if text is not None or not added else _last_answer(sides.branch, added)
    messages = () if result is None else (Message("assistant", (Text(result),)),)
    rows = (*merged.rows, *(Row(None, message, kind="summary") for message in messages))
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
    """The rows that both sides have, in their version; rows that they compacted stay as in `base`.

    Results for shared open calls count as shared: without them the call would have no result here.
    """
    their_rows = {row.id: row for row in theirs}
    base_ids = {row.id for row in base}
    added_by_both = {row.id for row in ours} - base_ids
    return [
        *(their_rows.get(row.id, row) for row in base),
        *(row for row in open_answers(base, theirs) if row.id not in added_by_both),
        *(row for row in theirs if row.id in added_by_both),  # one side has it by a cherry-pick
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
    """How many visible shared rows the branch compacted away."""
    their_ids = {row.id for row in theirs}
    return sum(shows(row) and row.id not in their_ids for row in base)


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
