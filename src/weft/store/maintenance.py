"""The maintenance interface of a store: read every object, overwrite or delete objects.

`flaws` checks the store's own structure: dangling references, positions that contradict the graph,
and checksums over columns that no id covers. Whether bytes match their id is checked by `history`,
which defines ids. A *tombstone* is an object whose bytes were replaced on purpose: it keeps its id,
and a checksum over the new bytes shows that it is not damaged.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from weft.ids import Id

from .base import AttemptRecord, Step

Kind = Literal["entry", "commit"]
Reason = Literal["forgotten", "damaged"]


class Flaw(Struct, frozen=True):
    """One fault in a store.

    `kind` is `entry`, `commit`, `attempt`, `ref`, `operation`, `thread`, `index` or `file`.
    """

    kind: str
    name: str
    what: str
    thread: str | None = None

    def __str__(self) -> str:
        owner = "" if self.thread is None else f" of thread {self.thread!r}"
        return f"{self.kind} {self.name}{owner}: {self.what}"


class Tombstone(Struct, frozen=True):
    """Why an object's bytes were replaced; `checksum` covers the new bytes."""

    reason: str
    checksum: int


class ObjectFormat(Struct, frozen=True):
    """How ids are computed; passed in, because a store does not interpret bytes.

    `stand_in` returns the replacement for the lost bytes of an entry. `plain` are the
    possible bodies of a commit that only appends its entry; the first one replaces the body of a
    lost commit.
    """

    entry_id: Callable[[bytes], Id]
    commit_id: Callable[[str, tuple[Id, ...], tuple[Id, ...], bytes], Id]
    stand_in: Callable[[bytes], bytes]
    plain: tuple[bytes, ...]


class Dropped(Struct, frozen=True):
    """How many objects were deleted."""

    commits: int
    entries: int
    operations: int


class Maintenance(Protocol):
    """The interface for `fsck`, `gc`, `forget` and `stats`."""

    def entries(self) -> Iterator[tuple[Id, bytes]]:
        """Every entry."""
        ...

    def commits(self) -> Iterator[tuple[str, Step]]:
        """Every commit with its thread, oldest first; skips those with dangling references."""
        ...

    def attempts(self) -> Iterator[tuple[int, str, AttemptRecord]]:
        """Every attempt with its key and thread, oldest first."""
        ...

    def put_attempt(self, key: int, state: str, data: bytes) -> None:
        """Overwrite the state and data of an attempt."""
        ...

    def flaws(self) -> list[Flaw]:
        """The faults in the store's own structure."""
        ...

    def tombstones(self, ids: Sequence[Id] | None = None) -> dict[tuple[str, Id], Tombstone]:
        """The tombstones of these objects, or all, by kind and id."""
        ...

    def has_tombstones(self) -> bool:
        """Whether there is any tombstone."""
        ...

    def write_tombstone(
        self, kind: Kind, id: Id, data: bytes, reason: Reason, created: float
    ) -> None:
        """Replace the bytes of an object in every thread."""
        ...

    def ref_names(self, thread: str) -> dict[str, bool]:
        """Every name of a branch or tag in the thread's refs and log, and whether it exists now.

        The current branch counts as existing, also before its first commit.
        """
        ...

    def rename_refs(self, thread: str, names: Mapping[str, str]) -> None:
        """Give branches and tags other names, everywhere in the thread; the new ones are free."""
        ...

    def unindex(self, thread: str, commits: Sequence[Id]) -> None:
        """Remove the text of these commits from the text index; they are indexed again later."""
        ...

    def drop_index(self) -> None:
        """Remove the whole text index; every commit is indexed again later."""
        ...

    def referenced_commits(self, thread: str, since: float) -> set[Id]:
        """The commits that refs point at, and those in log lines since this time."""
        ...

    def drop(self, thread: str, commits: Collection[Id]) -> Dropped:
        """Delete these commits, their text in the index, and the entries that only they use."""
        ...

    def drop_thread(self, thread: str) -> None:
        """Delete a thread that has no commits left, with its branches and its log."""
        ...

    def repair_structure(self) -> list[str]:
        """Repair what the store itself can; returns one line per repair."""
        ...

    def scrub(self) -> None:
        """Remove overwritten data from the store's files, as far as possible."""
        ...

    def size(self) -> int:
        """The size of the store in bytes; 0 in memory."""
        ...
