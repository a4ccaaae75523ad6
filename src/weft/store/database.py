"""The interface between SQL stores and their database, and how databases differ.

Statements are written once, with `?` for values. Where databases really differ, the difference is
a member of `Dialect`: a statement, or a function that makes one.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from msgspec import Struct

from weft.ids import Id

from .base import Link, ThreadRecord

SqlRow = tuple[Any, ...]

CommitPosition = tuple[int, int, int, bool]
"""A commit's key, line and depth, and whether its line continues after it."""


class Dialect(Struct, frozen=True):
    """The SQL that differs between databases.

    - `lock_thread`: blocks other landings in a thread until the transaction ends; empty if
      transactions are exclusive anyway.
    - `has_sequential_keys`: whether the key of the next row is always the greatest plus one.
    """

    name: str
    lock_thread: str
    has_sequential_keys: bool = False


class Tip(Struct, frozen=True, gc=False):
    """A ref after the last landing of its thread, so that the next landing need not read it.

    `ref_state` is the key of its thread, its name and its commit; `ref` is the ref's own key, `seq`
    the number of the last log line, and `position` the commit's position. `is_new` says that the
    landing wrote the commit, so it had no children and the greatest key then.
    """

    ref_state: tuple[int, str, Id | None]
    ref: int
    seq: int
    position: CommitPosition | None
    is_new: bool = False


MAX_REMEMBERED = 4096


class Memo:
    """What a transaction need not read again, because nothing has changed it since.

    - `tips`: the tip of each thread, by the thread's key; `newest` is that of the last landing.
    - `threads`: the key and the record of threads, by name.
    - `links`: the links of a key, with the keys of their threads.
    - `has_tombstones`: whether the store has any tombstones; None if that is not known.

    Landings and links keep it up to date. Every other write clears it, and so does a failed
    transaction, or another connection that has written.
    """

    __slots__ = ("has_tombstones", "links", "newest", "threads", "tips")

    def __init__(self) -> None:
        self.tips: dict[int, Tip] = {}
        self.newest: Tip | None = None
        self.threads: dict[str, tuple[int, ThreadRecord]] = {}
        self.links: dict[bytes, list[tuple[int, Link]]] = {}
        self.has_tombstones: bool | None = None

    def clear(self) -> None:
        if self.tips or self.threads or self.links:
            self.tips.clear()
            self.threads.clear()
            self.links.clear()
        self.newest = self.has_tombstones = None

    def limit(self) -> None:
        """Clear what has become too large."""
        for members in (self.tips, self.threads, self.links):
            if len(members) > MAX_REMEMBERED:
                members.clear()


class Deferred:
    """Statements that an exclusive transaction delays.

    They run in one call, before the next read or at the end of the transaction.
    """

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: dict[str, dict[Any, Sequence[Any]]] = {}

    def defer(self, sql: str, key: Any, values: Sequence[Any]) -> None:
        """Run this statement later; a later one with the same key replaces it."""
        rows = self.rows.get(sql)
        if rows is None:
            rows = self.rows[sql] = {}
        rows[key] = values


class Database(Protocol):
    """Connections that any OS thread may use."""

    dialect: Dialect

    @property
    def memo(self) -> Memo | None:
        """What the calling OS thread's transaction remembers; None if others may write too."""
        ...

    @property
    def thread_keys(self) -> dict[str, int] | None:
        """The keys of threads that the transaction has read, by name; `None` outside of one."""
        ...

    @property
    def deferred(self) -> Deferred | None:
        """The delayed statements of the calling OS thread; `None` if others may write."""
        ...

    @property
    def in_transaction(self) -> bool:
        """Whether the calling OS thread is inside a transaction."""
        ...

    def flush_deferred(self) -> None:
        """Run the delayed statements."""
        ...

    def transaction(self, *, exclusive: bool = True) -> AbstractContextManager[None]:
        """Write everything inside together. `exclusive` excludes all other writers.

        A nested transaction is part of the outer one: if it fails, both fail.
        """
        ...

    def savepoint(self) -> AbstractContextManager[None]:
        """Inside a transaction: an exception rolls back only what was done inside."""
        ...

    def hold_connection(self) -> AbstractContextManager[Any]:
        """Use one connection for all reads inside.

        In PostgreSQL, each read still sees the data as it is at that moment.
        """
        ...

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[SqlRow]: ...
    def write(self, sql: str, values: Sequence[Any] = (), *, keeps_memo: bool = False) -> int:
        """Run one statement inside a transaction; returns the number of affected rows.

        `keeps_memo` says that the statement changes nothing that a memo holds, or that the caller
        updates the memo. Otherwise it is cleared.
        """
        ...

    def insert(self, sql: str, values: Sequence[Any], *, keeps_memo: bool = False) -> int | None:
        """Insert one row; returns its `key`, or `None` if it existed already."""
        ...

    def write_many(
        self, sql: str, values: Iterable[Sequence[Any]], *, keeps_memo: bool = False
    ) -> None: ...
    def overwriting_deletes(self) -> AbstractContextManager[object]:
        """Inside, deleted rows are overwritten in the file, so that their content is gone.

        PostgreSQL does not: its vacuum reuses the space later.
        """
        ...

    def scrub(self) -> None:
        """Remove overwritten data from the database's files, as far as possible."""
        ...

    def integrity(self) -> list[str]:
        """The result of the database's own integrity check: one line per fault."""
        ...

    def size(self) -> int:
        """The size of the store in bytes."""
        ...
