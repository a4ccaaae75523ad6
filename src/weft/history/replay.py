"""Replays commits on top of another list of rows, for rebase and cherry-pick.

A replayed row keeps its slot, so it stays the same row: its priority and later edits still apply to
it, a later merge of its original branch does not add it twice, and its id stays valid. A rewrite is
replayed as a merge: its changes are merged into the current rows.
"""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from weft.ids import Id
from weft.store import Step

from .conflict import AnyConflict, Choose
from .merge import merge_states
from .objects import (
    Append,
    Body,
    Draft,
    Row,
    State,
    decode_appended,
    decode_body,
)
from .ops import run_step
from .results import is_answered_again
from .rewrite import plan_state


class ReplayedCommit(Struct, frozen=True):
    """The draft of a replayed commit. `of` is the original; `others` are its further parents."""

    of: Id
    draft: Draft
    others: tuple[Id, ...] = ()


class ReplayResult(Struct, frozen=True):
    """All replayed commits, the resulting state, and the conflicts that remain.

    `empty` are the commits that would change nothing here.
    """

    commits: tuple[ReplayedCommit, ...]
    state: State
    conflicts: tuple[AnyConflict, ...] = ()
    empty: tuple[Id, ...] = ()


def replay(
    steps: Iterable[Step], before: State, onto: State, choose: Choose | None = None
) -> ReplayResult:
    """Replay `steps`, the first of which was made from `before`, on top of `onto`.

    Without `choose`, conflicts are listed, and the rows stay as `onto` has them.
    """
    commits: list[ReplayedCommit] = []
    conflicts: list[AnyConflict] = []
    empty: list[Id] = []
    for step in steps:
        after = run_step(before, step)
        body = decode_body(step)
        op = body.op
        if isinstance(op, Append):
            states = (before, onto, after)
            replayed, onto = _replay_append(step, body, op, states, choose, conflicts)
        else:
            replayed, onto = _replay_rewrite(step, body, (before, onto, after), choose, conflicts)
        if replayed is None:
            empty.append(step.commit.id)
        else:
            commits.append(replayed)
        before = after
    return ReplayResult(tuple(commits), onto, tuple(conflicts), tuple(empty))


def _replay_append(
    step: Step,
    body: Body,
    op: Append,
    states: tuple[State, State, State],
    choose: Choose | None,
    conflicts: list[AnyConflict],
) -> tuple[ReplayedCommit | None, State]:
    _, onto, _ = states
    slot = op.slot or step.commit.id
    if any(row.id == slot for row in onto.rows):
        return None, onto
    message = decode_appended(step)
    if is_answered_again(onto.rows, message):  # a second result for one call: settled by a merge
        return _replay_rewrite(step, body, states, choose, conflicts)
    append = Append(op.kind, op.priority, slot)
    draft = Draft(
        "append", append, (message,), body.note, body.metadata, body.generation_config, _usage(step)
    )
    row = Row(slot, message, op.priority, op.kind)
    return ReplayedCommit(step.commit.id, draft), State([*onto.rows, row], onto.setup)


def _replay_rewrite(
    step: Step,
    body: Body,
    states: tuple[State, State, State],
    choose: Choose | None,
    conflicts: list[AnyConflict],
) -> tuple[ReplayedCommit | None, State]:
    before, onto, after = states
    merged = merge_states(before, onto, after, choose)
    conflicts += merged.conflicts
    planned = plan_state(onto, merged.state)
    op = planned.op
    kind = "splice" if step.commit.kind == "append" else step.commit.kind
    if not planned and kind != "note":
        return None, onto
    draft = Draft(
        kind,  # pyright: ignore[reportArgumentType] - a stored kind is one of the known
        op.setup if kind == "setup" and op.setup is not None else op,
        planned.messages,
        body.note,
        body.metadata,
        body.generation_config,
        _usage(step),
    )
    return ReplayedCommit(step.commit.id, draft, step.commit.parents[1:]), merged.state


def _usage(step: Step) -> object:
    return None if step.commit.usage is None else msgspec.Raw(step.commit.usage)
