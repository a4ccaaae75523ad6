"""What a store in tables asks of its database."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from threading import RLock
from typing import Any, Protocol

Row = tuple[Any, ...]


class Done(Protocol):
    """What a statement that writes came to."""

    @property
    def rowcount(self) -> int: ...
    @property
    def lastrowid(self) -> int | None: ...


class Database(Protocol):
    """A connection that any thread may use; `lock` keeps several reads together."""

    lock: RLock

    @property
    def in_transaction(self) -> bool: ...
    def transaction(self) -> AbstractContextManager[None]: ...
    def read(self, sql: str, values: Sequence[Any] = ()) -> list[Row]: ...
    def write(self, sql: str, values: Sequence[Any] = ()) -> Done: ...
    def write_many(self, sql: str, values: Iterable[Sequence[Any]]) -> None: ...
