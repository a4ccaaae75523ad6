"""What a store in tables asks of its database, and how databases differ.

Statements are written once, with `?` for values. Where databases really differ, the difference is
a member of `Dialect`: a statement, or a function that makes one.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from msgspec import Struct

from weft.ids import Id

SqlRow = tuple[Any, ...]

CommitPosition = tuple[int, int, int, bool]
"""A commit's key, line and depth, and whether its line has gone on from it."""


class SearchClauses(Struct, frozen=True):
    """What is a database's own in a search: how `commits c` is joined, chosen and ordered."""

    joins: str
    where: str
    order: str
    values: tuple[Any, ...]
    order_values: tuple[Any, ...] = ()


class Dialect(Struct, frozen=True):
    """How one database says what others say otherwise.

    `lock_thread` keeps other landings of one thread out until the transaction ends; it is empty
    where a transaction is exclusive anyway. `index` adds a text to full text under a key, `unindex`
    removes it, `find` searches. `has_sequential_keys` is whether the key of the next row is always
    one more than the greatest.
    """

    name: str
    lock_thread: str
    index: Callable[["Database", int, str], None]
    unindex: Callable[["Database", int, str], None]
    find: Callable[[Sequence[str]], SearchClauses]
    has_sequential_keys: bool = False


class Tip(Struct, frozen=True, gc=False):
    """Where a ref points: thread, name and commit, the ref's key, the end of the log, the place.

    `is_new` is whether the commit was made by the landing that moved the ref there, so that it has
    no children, and has the greatest key.
    """

    at: tuple[int, str, Id | None]
    ref: int
    seq: int
    place: CommitPosition | None
    is_new: bool = False


class Deferred:
    """What a transaction puts off while nobody else can write.

    Statements that nothing in between depends on wait here for the next read or the end, and go
    in one call.
    """

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: dict[str, dict[Any, Sequence[Any]]] = {}

    def defer(self, sql: str, key: Any, values: Sequence[Any]) -> None:
        """Run this statement later; another one of the same key takes its place."""
        rows = self.rows.get(sql)
        if rows is None:
            rows = self.rows[sql] = {}
        rows[key] = values


class Database(Protocol):
    """Connections that any thread may use."""

    dialect: Dialect

    @property
    def tip(self) -> Tip | None:
        """Where the last landing left its ref; `None` as soon as anything else was written."""
        ...

    @tip.setter
    def tip(self, tip: Tip | None) -> None: ...

    @property
    def deferred(self) -> Deferred | None:
        """What the calling thread's transaction puts off; `None` where it is not alone."""
        ...

    @property
    def in_transaction(self) -> bool:
        """Whether the calling thread is inside one."""
        ...

    def flush_deferred(self) -> None:
        """Run what was put off."""
        ...

    def transaction(self, *, alone: bool = True) -> AbstractContextManager[None]:
        """Everything inside is written together. `alone` waits until nobody else writes.

        A nested one belongs to the outer one, and fails with it.
        """
        ...

    def savepoint(self) -> AbstractContextManager[None]:
        """Inside a transaction: an exception takes back only what was done inside."""
        ...

    def snapshot(self) -> AbstractContextManager[Any]:
        """Several reads on one connection."""
        ...

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[SqlRow]: ...
    def write(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run one statement inside a transaction; the result is how many rows it touched."""
        ...

    def insert(self, sql: str, values: Sequence[Any]) -> int | None:
        """Insert one row; its `key`, or `None` where it was there."""
        ...

    def write_many(self, sql: str, values: Iterable[Sequence[Any]]) -> None: ...
    def scrub(self) -> None:
        """Leave nothing of what was overwritten in the database's files, as far as it can."""
        ...

    def integrity(self) -> list[str]:
        """What the database itself finds wrong with its files."""
        ...

    def size(self) -> int:
        """The bytes that the store takes."""
        ...
