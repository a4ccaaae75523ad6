"""The two sides of a merge: where each stands, what they come from, and what they come to."""

from msgspec import Struct

from weft.errors import NotFound
from weft.history import AnyConflict, Row, State, merge_base, show_rows
from weft.ids import Id
from weft.model import JsonObject

from .handle import Handle


class Sides:
    """Our head and a branch's, and the commit that both come from."""

    def __init__(self, handle: Handle, branch: str) -> None:
        found = handle.store.read_ref(handle.name, branch)
        if found is None:
            raise NotFound("branch", branch)
        self.handle, self.branch = handle, branch
        self.theirs: Id = found
        self.ours = handle.head()
        self.base = (
            None
            if self.ours is None
            else merge_base(handle.store, handle.name, self.ours, self.theirs)
        )

    def states(self) -> tuple[State, State, State]:
        """What the common beginning, ours and theirs mean."""
        base, ours, theirs = (self.handle.view(id) for id in (self.base, self.ours, self.theirs))
        return base.state, ours.state, theirs.state

    def added(self) -> list[Row]:
        """The lines that their side alone has, as a model sees them."""
        shared = {row.id for row in self.handle.view(self.base).rows}
        rows = show_rows(self.handle.view(self.theirs).rows)
        return [row for row in rows if row.id not in shared]


class Brought(Struct, frozen=True, kw_only=True):
    """What a branch comes home as, before it lands: `state` is what the thread would mean.

    `kept_whole` counts the lines that the branch had folded and that stay as they are here;
    `left_setup` names what it changed of the setup and what stays there. Both are a squash's.
    """

    state: State
    note: str
    record: JsonObject
    conflicts: tuple[AnyConflict, ...] = ()
    answered_twice: tuple[str, ...] = ()
    kept_whole: int = 0
    left_setup: tuple[str, ...] = ()
