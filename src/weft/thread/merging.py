"""Bringing a branch home: all of its lines, or its result alone.

A merge keeps every line of both sides and asks where both changed one, or the setup. A squash
(`squashing`) brings a side trip home as one message with a record of where it came from. Either
way the branch is a parent of the commit, so nothing of it is ever merged twice.
"""

from weft.errors import MergeConflict, ThreadError
from weft.history import Draft, merge_states, plan_state
from weft.ids import Id
from weft.store import Landing

from .handle import Handle
from .info import CommitInfo
from .preview import Preview, foresee
from .sides import Brought, Sides
from .squashing import squash
from .strategy import ASK, SQUASH, Strategy, chooser, conflict_line


class MergePreview(Preview, frozen=True, kw_only=True):
    """What a merge would come to.

    For a squash `kept_whole` counts the lines that the branch had folded and that stay as they are
    here, and `left_setup` names what it changed of the setup, which stays there.
    """

    branch: str
    fast_forward: bool = False
    answered_twice: tuple[str, ...] = ()
    kept_whole: int = 0
    left_setup: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.diff and not self.conflicts and not self.setup_changes:
            return f"{self.branch} brings nothing new"
        return "\n".join([str(self.diff), *self._stays(), *self._costs()])

    def _stays(self) -> list[str]:
        lines: list[str] = []
        if self.kept_whole:
            lines.append(f"{self.kept_whole} messages that it folded stay whole here")
        if self.left_setup:
            lines.append(f"its {', '.join(self.left_setup)} stay there")
        return lines


def merge(
    handle: Handle,
    branch: str,
    strategy: Strategy = None,
    *,
    text: str | None = None,
    settle: Strategy = None,
) -> CommitInfo | MergePreview:
    """Bring a branch's lines home; raises `MergeConflict` where nobody says how to settle one.

    With the strategy `ask` conflicts come back as a preview instead, and nothing lands. A squash
    is told by `settle` what a merge is told by its strategy.
    """
    _check_squash(strategy, text, settle)
    with handle.lock, handle.store.transaction():
        sides = Sides(handle, branch)
        if sides.base == sides.theirs:
            return handle.info(sides.ours or sides.theirs)
        if sides.base == sides.ours and strategy != SQUASH:
            return fast_forward(handle, "merge", sides.theirs)
        brought = _brought(sides, strategy, text, settle)
        if brought.conflicts and ASK in (strategy, settle):
            return _preview(sides, brought)
        if brought.conflicts:
            raise MergeConflict(conflict_line(branch, brought.conflicts), brought.conflicts)
        draft = _draft(sides, brought)
        return handle.land("merge", lambda _: (draft, (sides.theirs,)))


def preview_merge(
    handle: Handle,
    branch: str,
    strategy: Strategy = None,
    *,
    text: str | None = None,
    settle: Strategy = None,
) -> MergePreview:
    """What `merge` would do, with the conflicts it would have; nothing is written."""
    _check_squash(strategy, text, settle)
    sides = Sides(handle, branch)
    if strategy == SQUASH and sides.base == sides.theirs:
        strategy, text = None, None  # it is home already
    brought = _brought(sides, strategy, text, settle)
    return _preview(sides, brought, is_forward=sides.base == sides.ours and strategy != SQUASH)


def fast_forward(handle: Handle, verb: str, to: Id) -> CommitInfo:
    """Move the branch to a commit that comes after its head."""
    handle.weigh(handle.view(to).rows)
    handle.store.land(
        handle.name,
        Landing(verb=verb, ref=handle.branch, old=handle.head(), new=to, created=handle.clock()),
    )
    return handle.info(to)


def _check_squash(strategy: Strategy, text: str | None, settle: Strategy) -> None:
    if strategy == SQUASH:
        return
    if text is not None:
        raise ThreadError("only a squash takes words of its own")
    if settle is not None:
        raise ThreadError("only a squash is told apart how to settle; give it as the strategy")


def _brought(sides: Sides, strategy: Strategy, text: str | None, settle: Strategy) -> Brought:
    """What the branch comes home as."""
    if strategy == SQUASH:
        return squash(sides, chooser(settle), text)
    merged = merge_states(*sides.states(), chooser(strategy))
    twice = list(merged.answered_twice)
    return Brought(
        state=merged.state,
        note=f"merge {sides.branch} into {sides.handle.branch}",
        record={"answered_twice": twice} if twice else {},
        conflicts=merged.conflicts,
        answered_twice=merged.answered_twice,
    )


def _draft(sides: Sides, brought: Brought) -> Draft:
    planned = plan_state(sides.handle.view(sides.ours).state, brought.state)
    record = brought.record or None
    return Draft("merge", planned.op, planned.messages, brought.note, record)


def _preview(sides: Sides, brought: Brought, *, is_forward: bool = False) -> MergePreview:
    handle, draft = sides.handle, _draft(sides, brought)
    after = handle.foretell(lambda _: (draft, (sides.theirs,)))
    seen = foresee(handle, "merge", after, brought.conflicts)
    return MergePreview(
        **{name: getattr(seen, name) for name in seen.__struct_fields__},
        branch=sides.branch,
        fast_forward=is_forward,
        answered_twice=brought.answered_twice,
        kept_whole=brought.kept_whole,
        left_setup=brought.left_setup,
    )
