"""What looking after a store asks of it: everything read once, objects overwritten or dropped.

The store finds what is wrong with its own shape (`flaws`): rows that name nothing, places that
contradict the graph, checksums over what no id covers. Whether bytes match their id is for those
to judge who make ids. An object that lost its bytes for a reason is a *tombstone*: its id stays,
what stands in its place carries a checksum, and nobody takes it for damage.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, Protocol

from msgspec import Struct

from weft.ids import Id

from .base import AttemptRecord, Step

Kind = Literal["entry", "commit"]
Reason = Literal["forgotten", "damaged"]


class Flaw(Struct, frozen=True):
    """One thing that is wrong.

    `kind` is `entry`, `commit`, `attempt`, `ref`, `operation`, `thread` or `file`.
    """

    kind: str
    name: str
    what: str
    thread: str | None = None

    def __str__(self) -> str:
        place = "" if self.thread is None else f" of thread {self.thread!r}"
        return f"{self.kind} {self.name}{place}: {self.what}"


class Tombstone(Struct, frozen=True):
    """Why an object's bytes are not those of its id; `checksum` is over what stands there now."""

    reason: str
    checksum: int


class ObjectFormat(Struct, frozen=True):
    """What those know who make ids: it is handed in, because a store understands no bytes.

    `stand_in` is what takes the place of an entry's lost bytes, `plain` are the bodies of commits
    that say nothing beside their entry; the first takes the place of a lost commit's.
    """

    entry_id: Callable[[bytes], Id]
    commit_id: Callable[[str, tuple[Id, ...], tuple[Id, ...], bytes], Id]
    stand_in: Callable[[bytes], bytes]
    plain: tuple[bytes, ...]


class Dropped(Struct, frozen=True):
    """How much went."""

    commits: int
    entries: int
    operations: int


class Maintenance(Protocol):
    """The other side of a store, for `fsck`, `gc`, `forget` and `stats`."""

    def entries(self) -> Iterator[tuple[Id, bytes]]:
        """Every entry there is."""
        ...

    def commits(self) -> Iterator[tuple[str, Step]]:
        """Every commit with its thread, oldest first; those that name nothing are left out."""
        ...

    def attempts(self) -> Iterator[tuple[int, str, AttemptRecord]]:
        """Every attempt with its key and thread, oldest first."""
        ...

    def put_attempt(self, key: int, state: str, data: bytes) -> None:
        """Overwrite the state and data of an attempt."""
        ...

    def flaws(self) -> list[Flaw]:
        """What is wrong with the store's own shape."""
        ...

    def tombstones(self) -> dict[tuple[str, Id], Tombstone]: ...

    def write_tombstone(
        self, kind: Kind, id: Id, data: bytes, reason: Reason, created: float
    ) -> None:
        """Put these bytes in the place of an object's own, everywhere."""
        ...

    def reindex(self, thread: str, commit: Id, old: str, new: str) -> None:
        """Let full text know other words for a commit, if it knew any."""
        ...

    def referenced_commits(self, thread: str, since: float) -> set[Id]:
        """The commits that branches point at, and those in the log since a time."""
        ...

    def drop(self, thread: str, commits: Mapping[Id, str]) -> Dropped:
        """Delete these commits (with the text each is found by), and what only they needed."""
        ...

    def drop_thread(self, thread: str) -> None:
        """Delete a thread whose commits are gone, with its branches and its log."""
        ...

    def repair_structure(self) -> list[str]:
        """Put right what the store itself can; the result says what, a line for each."""
        ...

    def scrub(self) -> None:
        """Leave nothing of what was overwritten in the store's files, as far as it can."""
        ...

    def size(self) -> int:
        """The bytes that the store takes; 0 where it takes none."""
        ...
