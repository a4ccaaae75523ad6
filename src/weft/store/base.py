"""The interface of a store, and the records that it stores.

A store holds bytes and names and does not interpret them: entries by id, commits by thread and id,
refs, and the log of operations. Everything that one operation writes is one `Landing`, so objects,
ref and log line are written together or not at all. A ref moves by compare-and-swap: if another
writer moved the head first, `RefMoved` is raised and nothing is written.

Each commit has a *line* and a *depth*. A commit continues the line of its first parent unless
another commit already did. So a chain of first parents is a few ranges of one index, however long
it is. The depth is larger than that of every parent; graph walks use it as a generation number.
Lines are internal to a store; no id depends on them.

One contract suite (`tests/store`) runs over every backend.

Maintenance has an interface of its own: read every object, overwrite or delete objects. `flaws`
checks the store's own structure: dangling references, positions that contradict the graph, and
checksums over columns that no id covers. Whether bytes match their id is checked by `history`,
which defines ids. A *tombstone* is an object whose bytes were replaced on purpose: it keeps its id,
and a checksum over the new bytes shows that it is not damaged.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol

from msgspec import Struct

from weft.ids import Id

DELETED = "\x7f"
"""The prefix of a deleted thread's name. Users cannot choose such a name, so the old name is free
again, and the thread keeps everything that belongs to it."""


def deleted_name(name: str, moment: float) -> str:
    """The name that a thread is kept under when it is deleted at this time."""
    return f"{DELETED}{moment:.6f}{DELETED}{name}"


def read_deleted_name(name: str) -> tuple[str, float] | None:
    """The old name of a deleted thread, and when it was deleted; `None` for any other thread."""
    if not name.startswith(DELETED):
        return None
    moment, _, old_name = name[len(DELETED) :].partition(DELETED)
    return old_name, float(moment)


IMPORT = "import"
"""The verb of the operation that an import writes."""


class CommitRecord(Struct, frozen=True, gc=False):
    """A commit as stored. Its id covers the body (`data`), the parents and the entries.

    It does not cover `created`, `usage` (the tokens that a model reported) and `chain` (the
    chained match key by which a stateless request finds this commit).
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
    """A commit as graph walks need it."""

    id: Id
    depth: int
    parents: tuple[Id, ...]


LogRow = tuple[Id, int, str, float, bytes, bytes | None]
"""A commit as a list of commits needs it: id, depth, kind, time, data, and the bytes of its entry
if it has exactly one. A tuple, because a list may have thousands of them."""


class ThreadRecord(Struct, frozen=True):
    """A thread's name, current branch (`head`) and settings.

    `deleted` is the time of deletion; it is set only in lists of deleted threads. `parent` is the
    thread that this one belongs to, and `kind` what it is for: `agent` (a subagent), a client's
    side question (`title`, `topic` or `check`), or `child` (anything else). `title` is the title
    that a client generated for its session. `agent` is the agent that was chosen in the page.
    `folder` is the project folder: the working directory of the client, or of the command of Weft,
    that started the thread.
    """

    name: str
    head: str
    checkpoints: bool = False
    scope: str | None = None
    created: float = 0.0
    deleted: float | None = None
    parent: str | None = None
    kind: str | None = None
    title: str | None = None
    agent: str | None = None
    folder: str | None = None


def descendants(records: Iterable[ThreadRecord], name: str) -> list[str]:
    """The names of a thread's children, of their children and so on, parents first."""
    children: dict[str, list[str]] = {}
    for record in records:
        if record.parent is not None:
            children.setdefault(record.parent, []).append(record.name)
    names = list(children.get(name, ()))
    for each in names:
        names += children.get(each, ())
    return names


class Operation(Struct, frozen=True, gc=False):
    """One line of the log: a ref moved from `old` to `new`.

    `from_branch` is the writer's current branch at that time, or `None` if that is `ref`. A line
    with `from_branch` whose `old` equals `new` is a switch from `from_branch` to `ref`. Databases
    and archives call this field `was`.
    `batch` is the sequence number of the first operation of the batch that this one belongs to.
    """

    seq: int
    verb: str
    ref: str
    old: Id | None
    new: Id | None
    from_branch: str | None
    created: float
    batch: int | None = None


class Landing(Struct, frozen=True, gc=False):
    """Everything that one operation writes.

    `ref` moves from `old` to `new`; `None` means that there is no such ref. `from_branch`
    is the writer's current branch, or `None` if that is `ref`. A landing with `from_branch` whose
    `old` equals `new` is a switch: the thread's current branch changes from `from_branch` to `ref`.
    """

    verb: str
    ref: str
    old: Id | None
    new: Id | None
    created: float
    entries: tuple[tuple[Id, bytes], ...] = ()
    commits: tuple[CommitRecord, ...] = ()
    checkpoints: tuple[str, ...] = ()
    from_branch: str | None = None

    @property
    def is_switch(self) -> bool:
        return self.from_branch is not None and self.old == self.new


class Unindexed(Struct, frozen=True, gc=False):
    """A commit that is not in the text index.

    `key` and `thread` are the store's own numbers of the commit and its thread. `kind` and `data`
    are members of its `CommitRecord`.
    """

    key: int
    thread: int
    created: float
    contents: tuple[bytes, ...]
    kind: str
    data: bytes


BUCKETS = 257
"""How many buckets a segment of the text index may have."""


class IndexBlock(Struct, frozen=True, gc=False):
    """A part of a segment: the terms that a bucket has, and where they occur."""

    bucket: int
    terms: bytes
    postings: bytes


class IndexedCommits(Struct, frozen=True, gc=False):
    """The commits of one thread in a segment: documents `first` and following.

    `keys` are the numbers of the commits in ascending order, 8 bytes each. `data` has their times
    and text lengths, packed by `weft.history.text_index`.
    """

    thread: int
    first: int
    keys: bytes
    data: bytes
    segment: int = 0


class NewSegment(Struct, frozen=True, gc=False):
    """A segment for the text index. `size` is its number of documents."""

    size: int
    commits: tuple[IndexedCommits, ...]
    blocks: tuple[IndexBlock, ...]


class Match(Struct, frozen=True, gc=False):
    """A commit that was found by its chained match key, and its thread."""

    chain: bytes
    thread: str
    commit: Id


CALL_STATES = ("call_started", "call_ended")
"""The states of an `AttemptRecord` that is about a tool call."""


class AttemptRecord(Struct, frozen=True, gc=False):
    """What belongs to a commit without being one: an attempt to answer it, or a call in it.

    The `state` of an answer that did not become a commit is `partial` (some content arrived) or
    `failed` (none did). `data` is JSON: the reason, the message as far as it arrived, and how it
    was generated. A record of a tool call has one of `CALL_STATES`; its `data` is the call's
    number, and its result once it has ended.
    """

    commit: Id
    state: str
    data: bytes
    created: float


class Link(Struct, frozen=True, gc=False):
    """A commit that can be found by a key that the caller chose."""

    key: bytes
    thread: str
    commit: Id


class Arrival(Struct, frozen=True, gc=False):
    """A commit of any thread, numbered in the order in which the store received it."""

    number: int
    thread: str
    commit: Id


class Store(Protocol):
    """The interface of a store. Every method may be called from any OS thread."""

    def transaction(self) -> AbstractContextManager[None]:
        """Everything inside is written together; an exception rolls all of it back.

        An exception in a nested transaction rolls back only the nested one.
        """
        ...

    def ensure_thread(
        self, name: str, *, created: float, checkpoints: bool = False, scope: str | None = None
    ) -> ThreadRecord:
        """The thread with this name, created with these settings if there is none.

        `checkpoints` turns checkpoints on for an existing thread too. A scope is set once and never
        changes.
        """
        ...

    def read_thread(self, name: str) -> ThreadRecord | None: ...

    def describe_thread(
        self,
        name: str,
        *,
        parent: str | None = None,
        kind: str | None = None,
        title: str | None = None,
        agent: str | None = None,
        folder: str | None = None,
    ) -> None:
        """Set the parent, kind, title, agent or folder of a thread; `None` leaves a value
        unchanged. A folder is set once and never changes.

        Raises `StoreError` if there is no such thread, or no such parent.
        """
        ...

    def threads(self, *, deleted: bool = False) -> list[ThreadRecord]:
        """All threads, oldest first; with `deleted`, the deleted ones."""
        ...

    def last_active(self) -> dict[str, float]:
        """When each thread was last active, by name, oldest thread first; takes one query.

        This is the time of its last operation, or of its creation if it has none. An import counts
        with the time of the newest commit that it brought in, so an old session stays old.
        """
        ...

    def rename_thread(self, old: str, new: str) -> None:
        """Give a thread another name; everything that belongs to it follows.

        Raises `StoreError` if there is no such thread, or if the new name is taken.
        """
        ...

    def refs(self, thread: str) -> dict[str, Id]:
        """The commit of each branch, and of each tag as `tag:NAME`."""
        ...

    def find_refs(self, prefix: str) -> list[tuple[str, str, Id]]:
        """The thread, name and commit of every ref that begins with `prefix`, oldest first.

        It takes one query. Refs of deleted threads are left out.
        """
        ...

    def read_ref(self, thread: str, name: str) -> Id | None: ...

    def land(self, thread: str, landing: Landing) -> None:
        """Write everything in the landing and move its ref from `old` to `new`, in one transaction.

        Raises `RefMoved`, and writes nothing, if the ref no longer points to `old`.
        """
        ...

    def walk(
        self,
        thread: str,
        head: Id,
        *,
        after: int = 0,
        until: int | None = None,
        limit: int | None = None,
        excluding: Sequence[bytes] = (),
        appends: bool = True,
    ) -> list[Step]:
        """The commits from `head` along first parents, oldest first.

        Only commits with a depth greater than `after`, and of at most `until`, are read. With
        `limit`, only that many of the newest of them are read. Commits whose stored bytes
        (`CommitRecord.data`) are in `excluding` are left out, and without `appends` those of the
        kind `append`; then the time does not depend on their number, except in memory.
        """
        ...

    def walk_nodes(self, thread: str, head: Id, limit: int) -> list[Node]:
        """The newest `limit` commits from `head` along first parents, newest first, as nodes."""
        ...

    def walk_log(
        self, thread: str, head: Id, *, until: int | None = None, limit: int
    ) -> list[LogRow]:
        """The newest `limit` commits from `head` along first parents, newest first.

        With `until`, only commits with a depth of at most `until` are read. Each is a tuple: id,
        depth, kind, time, data, and the bytes of its entry if it has exactly one.
        """
        ...

    def read_depths(self, thread: str, head: Id, ids: Sequence[Id]) -> dict[Id, int]:
        """The depths of these commits.

        Commits that cannot be reached from `head` along first parents are left out.
        """
        ...

    def read_commits(self, thread: str, ids: Sequence[Id]) -> list[Step]:
        """The commits with these ids, in this order; missing ones are left out."""
        ...

    def read_nodes(self, thread: str, ids: Sequence[Id]) -> list[Node]: ...

    def find(self, thread: str, prefix: str, limit: int = 8) -> list[Id]:
        """Ids of commits whose hex begins with `prefix`, in order."""
        ...

    def has_checkpoint(self, thread: str, name: str) -> bool:
        """Whether any branch of the thread ever used this checkpoint id."""
        ...

    def count(self, thread: str) -> int:
        """The number of commits of the thread, on all branches, including undone ones."""
        ...

    def last_arrival(self) -> int:
        """The number of the newest commit of all threads; 0 in an empty store."""
        ...

    def arrivals(self, after: int, limit: int = 500) -> list[Arrival]:
        """The commits of all threads that arrived after the commit with number `after`, in order.

        The cost does not depend on the size of the store, so this can be asked every second. In
        PostgreSQL, a slow transaction may add a smaller number later.
        """
        ...

    def operations(
        self, thread: str, *, before: int | None = None, limit: int = 64
    ) -> list[Operation]:
        """The log, newest first; with `before`, only smaller sequence numbers."""
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
        """The attempts to answer these commits, or those of the whole thread, oldest first."""
        ...

    def call_records(self, thread: str, commits: Sequence[Id] | None = None) -> list[AttemptRecord]:
        """The records of the tool calls in these commits, or in the whole thread, oldest first."""
        ...

    def match(self, chains: Sequence[bytes]) -> list[Match]:
        """The commits of all threads with one of these chained match keys, newest first.

        Commits of deleted threads are not found.
        """
        ...

    def match_within(self, threads: Sequence[str], chains: Sequence[bytes]) -> list[Match]:
        """Like `match`, but only commits of these threads."""
        ...

    def branches_at(self, thread: str, commit: Id) -> list[str]:
        """The branches and tags (`tag:NAME`) that point at this commit, oldest first."""
        ...

    def add_links(self, thread: str, links: Sequence[tuple[bytes, Id]]) -> None:
        """Add links from keys to commits of a thread; existing links stay."""
        ...

    def drop_links(self, thread: str, links: Sequence[tuple[bytes, Id]]) -> None:
        """Remove these links, if they are there."""
        ...

    def find_links(self, keys: Sequence[bytes]) -> list[Link]:
        """Every link with one of these keys, newest commit first.

        Links of deleted threads are ignored.
        """
        ...

    def newest_link(self, key: bytes, *, deleted: bool = False) -> Link | None:
        """The link from this key to its newest commit.

        The cost does not depend on the number of links. With `deleted`, commits of deleted threads
        count too.
        """
        ...

    def only_links(self, keys: Sequence[bytes]) -> list[Link]:
        """The link of each key that has exactly one. Links of deleted threads are ignored."""
        ...

    @property
    def address(self) -> str | None:
        """The address with which `open_store` opens the same store; `None` if it is in memory."""
        ...

    def try_lock(self, name: str) -> Callable[[], None] | None:
        """Lock a name against all other programs on this store; `None` if one of them holds it.

        The result releases the lock. A program that ends, however it ends, releases its locks.
        """
        ...

    def count_unindexed(self) -> int:
        """How many commits are not in the text index; it may count some that were deleted."""
        ...

    def unindexed(self, limit: int, after: int = 0) -> list[Unindexed]:
        """The next `limit` commits that are not in the text index, with numbers above `after`.

        The oldest commit comes first.
        """
        ...

    def thread_number(self, thread: str) -> int:
        """The store's own number of a thread."""
        ...

    def add_segment(self, segment: NewSegment, replaced: Sequence[int] = ()) -> bool:
        """Add a segment to the text index, and remove the segments that it replaces.

        Returns false, and writes nothing, unless the segment has exactly the commits of the
        replaced segments and the next unindexed ones. So two writers cannot index a commit twice.
        """
        ...

    def segments(self) -> dict[int, int]:
        """The number of documents of each segment of the text index, oldest segment first."""
        ...

    def indexed_commits(
        self, thread: str | None = None, segments: Sequence[int] | None = None
    ) -> list[IndexedCommits]:
        """The indexed commits of a thread, or of all, oldest segment first."""
        ...

    def index_blocks(
        self, buckets: Sequence[int] | None, segments: Sequence[int]
    ) -> list[tuple[int, IndexBlock]]:
        """Read parts of the text index; returns each block with the number of its segment.

        Only the blocks of these segments and buckets are read; all buckets if `buckets` is `None`.
        A segment covers some of the commits. A bucket has the terms with certain first letters.
        """
        ...

    def read_keys(self, keys: Sequence[int]) -> list[tuple[str, Step]]:
        """The commits with these numbers, in this order, each with its thread."""
        ...

    def checkpoint(self) -> None:
        """Move what was written to the store's main file, as far as nobody is in the way.

        It waits for nobody and nobody waits for it. Stores that are not a file do nothing.
        """
        ...

    def maintenance(self) -> "Maintenance":
        """The operations that `fsck`, `gc` and `forget` need."""
        ...

    def close(self) -> None: ...


ObjectKind = Literal["entry", "commit"]
TombstoneReason = Literal["forgotten", "damaged"]


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

    `damaged_entry` returns the replacement for the lost or wrong bytes of an entry. `plain_bodies`
    are the possible bodies of a commit that only appends its entry; the first one replaces the body
    of a lost commit.
    """

    entry_id: Callable[[bytes], Id]
    commit_id: Callable[[str, tuple[Id, ...], tuple[Id, ...], bytes], Id]
    damaged_entry: Callable[[bytes], bytes]
    plain_bodies: tuple[bytes, ...]


class CommitGraph(Struct, frozen=True):
    """The commits of one thread: their parents, and the newest operation that mentions each.

    Parents come before their children in `parents`. `last_operation` is the number of the thread's
    newest operation. Every change of a thread is an operation, so a thread with the same number has
    not changed.
    """

    parents: dict[Id, tuple[Id, ...]]
    mentions: dict[Id, int]
    last_operation: int


class Dropped(Struct, frozen=True):
    """How many objects were deleted; not `is_complete` if the thread changed before the end."""

    commits: int = 0
    entries: int = 0
    operations: int = 0
    is_complete: bool = True

    def __add__(self, other: "Dropped") -> "Dropped":
        return Dropped(
            self.commits + other.commits,
            self.entries + other.entries,
            self.operations + other.operations,
            other.is_complete,
        )


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
        self, kind: ObjectKind, id: Id, data: bytes, reason: TombstoneReason, created: float
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

    def commit_graph(self, thread: str) -> CommitGraph:
        """The commits of a thread without their content."""
        ...

    def drop(self, thread: str, commits: Sequence[Id], graph: CommitGraph) -> Dropped:
        """Delete commits, their text in the index, and the entries that no other commit uses.

        Children come before their parents in `commits`. Deletes in short transactions, so that
        other writers wait only a moment. Operations up to the newest one that mentions one of the
        commits are deleted first, because undo cannot go past them. It ends early if the thread
        changes after `graph` was read.
        """
        ...

    def drop_thread(self, thread: str) -> bool:
        """Delete a thread with its branches and its log; false if it still has commits."""
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
