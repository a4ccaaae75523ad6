"""What a store keeps, and the few questions it answers.

A store holds bytes and names and understands neither: entries by id, commits by thread and id,
refs, and the log of operations. Everything a verb writes is one `Landing`, so that objects, the
ref and the log line are written together or not at all. A ref moves by compare-and-swap: a landing
that saw another head raises `RefMoved` and leaves nothing behind.

Commits know their *line* and *depth*: a commit continues the line of its first parent unless
another commit already did, so a chain of first parents is a few ranges of one index, however
long it is. Depth grows along every parent, which makes it the generation number that graph walks
need. Lines are a store's own affair; no id depends on them.

One contract suite (`tests/store`) runs over every backend.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from weft.ids import Id

if TYPE_CHECKING:
    from .maintenance import Maintenance

DELETED = "\x7f"
"""What the name of a deleted thread begins with. Nobody can give a thread such a name, so the old
name is free for another one, and everything that belongs to the thread stays with it."""


def deleted_name(name: str, moment: float) -> str:
    """The name that a thread is kept under when it is deleted at this time."""
    return f"{DELETED}{moment:.6f}{DELETED}{name}"


def read_deleted_name(name: str) -> tuple[str, float] | None:
    """The old name of a deleted thread, and when it was deleted; `None` for any other thread."""
    if not name.startswith(DELETED):
        return None
    moment, _, old = name[len(DELETED) :].partition(DELETED)
    return old, float(moment)


class CommitRecord(Struct, frozen=True, gc=False):
    """A commit as stored. `data` is the body that its id covers, beside parents and entries.

    `created`, `usage` and `chain` are not covered by the id: a time, what a model reported, and the
    chained match key by which a stateless request finds this commit.
    """

    id: Id
    parents: tuple[Id, ...]
    kind: str
    entries: tuple[Id, ...]
    data: bytes
    created: float
    usage: bytes | None = None
    chain: bytes | None = None


class Step(Struct, frozen=True, gc=False):
    """A commit read back with its depth and the bytes of its entries."""

    commit: CommitRecord
    depth: int
    contents: tuple[bytes, ...]


class Node(Struct, frozen=True, gc=False):
    """What graph walks need of a commit."""

    id: Id
    depth: int
    parents: tuple[Id, ...]


class ThreadRecord(Struct, frozen=True):
    """A thread's name, its current branch, and what it was opened with.

    `deleted` is set in lists of deleted threads only: when that was.
    """

    name: str
    head: str
    checkpoints: bool = False
    scope: str | None = None
    created: float = 0.0
    deleted: float | None = None


class Operation(Struct, frozen=True, gc=False):
    """One line of the log: which ref went from where to where.

    `was` is the branch that the writer stood on, where that is another one than `ref`. A line
    with `was` that moves nothing (`old` is `new`) is a switch from `was` to `ref`.
    `batch` is the sequence number of the first operation of the batch that this one belongs to.
    """

    seq: int
    verb: str
    ref: str
    old: Id | None
    new: Id | None
    was: str | None
    created: float
    batch: int | None = None


class Landing(Struct, frozen=True, gc=False):
    """All that one verb writes.

    `ref` moves from `old` to `new`, `None` meaning that there is none. `was` is the branch that
    the writer stands on, where that is another one than `ref`; if `old` is `new` as well, the
    landing is a switch: the thread's current branch changes from `was` to `ref`.
    """

    verb: str
    ref: str
    old: Id | None
    new: Id | None
    created: float
    entries: tuple[tuple[Id, bytes], ...] = ()
    commits: tuple[CommitRecord, ...] = ()
    checkpoints: tuple[str, ...] = ()
    was: str | None = None

    @property
    def is_switch(self) -> bool:
        return self.was is not None and self.old == self.new


class Unindexed(Struct, frozen=True, gc=False):
    """A commit that full text does not know yet; `key` is the store's own number for it."""

    key: int
    contents: tuple[bytes, ...]


class Match(Struct, frozen=True, gc=False):
    """A commit found by its chained match key, and the thread it lives in."""

    chain: bytes
    thread: str
    commit: Id


class AttemptRecord(Struct, frozen=True, gc=False):
    """An answer that did not become a commit, stored beside the commit of its request.

    `state` is `partial` (some content arrived) or `failed` (none did). `data` is JSON: the reason,
    the message as far as it arrived, and how it was generated.
    """

    commit: Id
    state: str
    data: bytes
    created: float


class Link(Struct, frozen=True, gc=False):
    """A commit that can be found by a key of the caller's own making."""

    key: bytes
    thread: str
    commit: Id


class Store(Protocol):
    """Bytes and names. Every method may be called from any thread of the process."""

    def transaction(self) -> AbstractContextManager[None]:
        """Everything inside is written together; an exception rolls all of it back.

        Nested, it takes back only what was done inside the inner one, and the outer goes on.
        """
        ...

    def ensure_thread(
        self, name: str, *, created: float, checkpoints: bool = False, scope: str | None = None
    ) -> ThreadRecord:
        """The thread of that name, made with these settings if there is none.

        Checkpoints that are asked for are turned on for a thread that had none; a scope is set
        once and stays.
        """
        ...

    def read_thread(self, name: str) -> ThreadRecord | None: ...

    def threads(self, *, deleted: bool = False) -> list[ThreadRecord]:
        """All threads, oldest first; or all that are deleted (`read_deleted_name`)."""
        ...

    def rename_thread(self, old: str, new: str) -> None:
        """Give a thread another name; everything that belongs to it follows.

        Raises `StoreError` where there is no such thread, or the new name is taken.
        """
        ...

    def refs(self, thread: str) -> dict[str, Id]:
        """Every branch that points somewhere, by name."""
        ...

    def read_ref(self, thread: str, name: str) -> Id | None: ...

    def land(self, thread: str, landing: Landing) -> None:
        """Write it all, or raise `RefMoved` where `old` is no longer the head."""
        ...

    def walk(
        self,
        thread: str,
        head: Id,
        *,
        after: int = 0,
        until: int | None = None,
        limit: int | None = None,
        but: Sequence[bytes] = (),
    ) -> list[Step]:
        """The chain of first parents down from `head`, oldest first, above depth `after`.

        With `until`, only what is not deeper, so that a beginning is read without the rest. With
        `limit`, the newest that many. Commits whose `data` is one of `but` are left out.
        """
        ...

    def walk_nodes(self, thread: str, head: Id, limit: int) -> list[Node]:
        """The newest so many of that chain, newest first, as graph walks need them."""
        ...

    def read_depths(self, thread: str, head: Id, ids: Sequence[Id]) -> dict[Id, int]:
        """The depths of those of these commits that are in that chain."""
        ...

    def read_commits(self, thread: str, ids: Sequence[Id]) -> list[Step]:
        """The commits of these ids that exist, in the order asked for."""
        ...

    def read_nodes(self, thread: str, ids: Sequence[Id]) -> list[Node]: ...

    def find(self, thread: str, prefix: str, limit: int = 8) -> list[Id]:
        """Ids of commits whose hex begins with `prefix`, in order."""
        ...

    def has_checkpoint(self, thread: str, name: str) -> bool:
        """Whether any landing of the thread, on any branch, gave out this checkpoint."""
        ...

    def count(self, thread: str) -> int:
        """How many commits the thread has, on all branches and undone ones included."""
        ...

    def operations(
        self, thread: str, *, before: int | None = None, limit: int = 64
    ) -> list[Operation]:
        """The log, newest first, below sequence number `before`."""
        ...

    def mark_batch(self, thread: str, first: int, last: int | None = None) -> None:
        """Make the operations from `first` to `last`, or to the newest, one batch.

        Nothing happens if there are fewer than two. Batches must not overlap.
        """
        ...

    def add_attempt(self, thread: str, record: AttemptRecord) -> None:
        """Store an attempt; raises `StoreError` if the thread has no such commit."""
        ...

    def attempts(self, thread: str, commits: Sequence[Id] | None = None) -> list[AttemptRecord]:
        """The attempts of these commits, or of the whole thread, oldest first."""
        ...

    def match(self, chains: Sequence[bytes]) -> list[Match]:
        """The commits that carry one of these chained match keys, newest first.

        Deleted threads are never found, here and by links, unless it says so.
        """
        ...

    def match_within(self, threads: Sequence[str], chains: Sequence[bytes]) -> list[Match]:
        """Like `match`, but only commits of these threads."""
        ...

    def branches_at(self, thread: str, commit: Id) -> list[str]:
        """The branches (and tags) that point at this commit, oldest first."""
        ...

    def add_links(self, thread: str, links: Sequence[tuple[bytes, Id]]) -> None:
        """Let commits of a thread be found by these keys; a link that is there stays."""
        ...

    def drop_links(self, thread: str, links: Sequence[tuple[bytes, Id]]) -> None:
        """Remove these links, if they are there."""
        ...

    def find_links(self, keys: Sequence[bytes]) -> list[Link]:
        """Every link with one of these keys, the newest commits first."""
        ...

    def newest_link(self, key: bytes, *, deleted: bool = False) -> Link | None:
        """The link with this key to the newest commit; costs the same however many there are.

        With `deleted`, commits of deleted threads count too.
        """
        ...

    def only_links(self, keys: Sequence[bytes]) -> list[Link]:
        """The links whose key leads to exactly one commit; cost does not grow with the others."""
        ...

    def unindexed(self, limit: int) -> list[Unindexed]:
        """The next commits that full text has not seen, oldest first."""
        ...

    def index(self, texts: Iterable[tuple[int, str]]) -> None:
        """Add texts to full text by their keys, which are then seen."""
        ...

    def search(self, thread: str, words: Sequence[str], limit: int) -> list[Step]:
        """Indexed commits of the thread that have every word, best first."""
        ...

    def maintenance(self) -> "Maintenance":
        """The other side of the store: what `fsck`, `gc` and `forget` ask of it."""
        ...

    def close(self) -> None: ...
