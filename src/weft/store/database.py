"""What a store in tables asks of its database, and how databases differ.

Statements are written once, with `?` for values. Where databases really differ, the difference is
a member of `Dialect`: a statement, or a function that makes one.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from msgspec import Struct

Row = tuple[Any, ...]


class Found(Struct, frozen=True):
    """What is a database's own in a search: how `commits c` is joined, chosen and ordered."""

    joins: str
    where: str
    order: str
    values: tuple[Any, ...]
    order_values: tuple[Any, ...] = ()


class Dialect(Struct, frozen=True):
    """How one database says what others say otherwise.

    `hold_thread` keeps other landings of one thread out until the transaction ends; it is empty
    where a transaction keeps everybody out anyway. `index` adds a text under a key, `unindex`
    takes it out again, `find` looks words up.
    """

    name: str
    hold_thread: str
    index: Callable[["Database", int, str], None]
    unindex: Callable[["Database", int, str], None]
    find: Callable[[Sequence[str]], Found]


class Deferred:
    """What a transaction puts off, and what it remembers while nobody else can write.

    `tip` is the ref that it moved last and the place it moved it to. Statements that nothing in
    between depends on wait here for the next read or the end, and go in one call.
    """

    __slots__ = ("rows", "tip")

    def __init__(self) -> None:
        self.tip: Any = None
        self.rows: dict[str, dict[Any, Sequence[Any]]] = {}

    def put_off(self, sql: str, key: Any, values: Sequence[Any]) -> None:
        """Run this statement later; another one of the same key takes its place."""
        self.rows.setdefault(sql, {})[key] = values


class Database(Protocol):
    """Connections that any thread may use."""

    dialect: Dialect

    @property
    def deferred(self) -> Deferred | None:
        """What the calling thread's transaction puts off; `None` where it is not alone."""
        ...

    @property
    def in_transaction(self) -> bool:
        """Whether the calling thread is inside one."""
        ...

    def catch_up(self) -> None:
        """Run what was put off."""
        ...

    def transaction(self, *, alone: bool = True) -> AbstractContextManager[None]:
        """Everything inside lands together. `alone` waits until nobody else writes. Nests."""
        ...

    def together(self) -> AbstractContextManager[Any]:
        """Several reads on one connection."""
        ...

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[Row]: ...
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
