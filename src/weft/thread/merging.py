"""Bringing a branch home: all of its lines, or its result alone.

A merge keeps every line of both sides and asks where both changed one. A squash brings a side trip
home as one message: its last answer, or the words that are given, with a record of where it came
from. Either way the branch is a parent of the commit, so nothing of it is ever merged twice.
"""

from collections.abc import Sequence

from msgspec import structs

from weft.errors import MergeConflict, NotFound, ThreadError
from weft.history import (
    Conflict,
    Draft,
    Insert,
    Merged,
    Placed,
    Rewrite,
    Row,
    Setup,
    merge3,
    merge_base,
    merge_setup,
    plan_rewrite,
    show_rows,
)
from weft.ids import Id
from weft.model import JsonObject, Message, Text
from weft.store import Landing

from .handle import Handle
from .info import CommitInfo
from .preview import Preview, foresee
from .strategy import ASK, SQUASH, Strategy, chooser, conflict_line


class MergePreview(Preview, frozen=True, kw_only=True):
    """What a merge would come to. Unsettled conflicts stand in `rows` as our side has them."""

    branch: str
    conflicts: tuple[Conflict, ...] = ()
    fast_forward: bool = False
    answered_twice: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.diff and not self.conflicts:
            return f"{self.branch} brings nothing new"
        waiting = [f"{len(self.conflicts)} conflicts"] if self.conflicts else []
        return "\n".join([str(self.diff), *waiting, *self._costs()])


class Sides:
    """The two heads of a merge, what they come from, and what settles their conflicts."""

    def __init__(self, handle: Handle, branch: str, strategy: Strategy) -> None:
        found = handle.store.read_ref(handle.name, branch)
        if found is None:
            raise NotFound("branch", branch)
        self.handle, self.branch, self.strategy = handle, branch, strategy
        self.theirs: Id = found
        self.ours = handle.head()
        self.base = (
            None
            if self.ours is None
            else merge_base(handle.store, handle.name, self.ours, self.theirs)
        )

    def merged(self) -> Merged:
        base, ours, theirs = (self.handle.view(id) for id in (self.base, self.ours, self.theirs))
        return merge3(base.rows, ours.rows, theirs.rows, chooser(self.strategy))

    def setup(self) -> Setup | None:
        """The setup that the merge changes ours to; `None` where ours stays."""
        base, ours, theirs = (
            self.handle.view(id).setup for id in (self.base, self.ours, self.theirs)
        )
        prefer = "theirs" if self.strategy == "theirs" else "ours"
        found = merge_setup(base, ours, theirs, prefer)
        return None if found == ours else found or Setup()

    def added(self) -> list[Row]:
        """The lines that their side alone has, as a model sees them."""
        shared = {row.id for row in self.handle.view(self.base).rows}
        rows = show_rows(self.handle.view(self.theirs).rows)
        return [row for row in rows if row.id not in shared]


def merge(
    handle: Handle, branch: str, strategy: Strategy = None, *, text: str | None = None
) -> CommitInfo | MergePreview:
    """Bring a branch's lines home; raises `MergeConflict` where nobody says how to settle one.

    With the strategy `ask` conflicts come back as a preview instead, and nothing lands.
    """
    _check_text(strategy, text)
    with handle.lock, handle.store.transaction():
        sides = Sides(handle, branch, strategy)
        if sides.base == sides.theirs:
            return handle.info(sides.ours or sides.theirs)
        if strategy == SQUASH:
            draft = _squashed(sides, text)
        elif sides.base == sides.ours:
            return fast_forward(handle, "merge", sides.theirs)
        else:
            merged = sides.merged()
            if merged.conflicts and strategy == ASK:
                return _preview(sides, merged.rows, merged)
            if merged.conflicts:
                line = conflict_line(branch, merged.conflicts)
                raise MergeConflict(line, merged.conflicts)
            draft = _merging(sides, merged)
        return handle.land("merge", lambda _: (draft, (sides.theirs,)))


def preview_merge(
    handle: Handle, branch: str, strategy: Strategy = None, *, text: str | None = None
) -> MergePreview:
    """What `merge` would do, with the conflicts it would have; nothing is written."""
    _check_text(strategy, text)
    sides = Sides(handle, branch, strategy)
    if strategy == SQUASH and sides.base != sides.theirs:
        draft = _squashed(sides, text)
        return _preview(sides, handle.foretell(lambda _: (draft, (sides.theirs,))).rows, None)
    if strategy == SQUASH:
        return _preview(sides, handle.view(sides.ours).rows, None)
    merged = sides.merged()
    return _preview(sides, merged.rows, merged)


def fast_forward(handle: Handle, verb: str, to: Id) -> CommitInfo:
    """Move the branch to a commit that comes after its head."""
    handle.weigh(handle.view(to).rows)
    handle.store.land(
        handle.name,
        Landing(verb=verb, ref=handle.branch, old=handle.head(), new=to, created=handle.clock()),
    )
    return handle.info(to)


def _check_text(strategy: Strategy, text: str | None) -> None:
    if text is not None and strategy != SQUASH:
        raise ThreadError("only a squash takes words of its own")


def _merging(sides: Sides, merged: Merged) -> Draft:
    ours = sides.handle.view(sides.ours).rows
    planned = plan_rewrite(ours, merged.rows)
    record: JsonObject = {}
    if merged.answered_twice:
        record["answered_twice"] = list(merged.answered_twice)
    note = f"merge {sides.branch} into {sides.handle.branch}"
    op = structs.replace(planned.op, setup=sides.setup())
    return Draft("merge", op, planned.messages, note, record or None)


def _squashed(sides: Sides, text: str | None) -> Draft:
    """One message in place of all that the side trip said."""
    added = sides.added()
    if not added:
        raise ThreadError(f"{sides.branch} has no messages of its own to bring home")
    words = _result(added) if text is None else text
    if words is None:
        raise ThreadError(f"{sides.branch} ends with no answer; give the words to bring home")
    handle = sides.handle
    rows = handle.view(sides.ours).rows
    placed = Insert((Placed(0, kind="summary"),), rows[-1].id if rows else None)
    record: JsonObject = {
        "squashed": {
            "branch": sides.branch,
            "head": sides.theirs.hex(),
            "base": None if sides.base is None else sides.base.hex(),
            "messages": len(added),
            "tokens": sum(handle.count(row.message) for row in added),
            "first": _hex(added[0]),
            "last": _hex(added[-1]),
        }
    }
    note = f"squash {len(added)} messages of {sides.branch} into {handle.branch}"
    said = Message("assistant", (Text(words),))
    return Draft("merge", Rewrite(insert=(placed,)), (said,), note, record)


def _result(rows: Sequence[Row]) -> str | None:
    """What the side trip came to: the last words of an assistant."""
    for row in reversed(rows):
        spoken = [block.text for block in row.message.blocks if isinstance(block, Text)]
        if row.message.role == "assistant" and any(part.strip() for part in spoken):
            return "\n".join(spoken)
    return None


def _preview(sides: Sides, rows: Sequence[Row], merged: Merged | None) -> MergePreview:
    seen = foresee(sides.handle, "merge", rows)
    return MergePreview(
        **{name: getattr(seen, name) for name in seen.__struct_fields__},
        branch=sides.branch,
        conflicts=() if merged is None else merged.conflicts,
        fast_forward=merged is not None and sides.base == sides.ours,
        answered_twice=() if merged is None else merged.answered_twice,
    )


def _hex(row: Row) -> str | None:
    return None if row.id is None else row.id.hex()
