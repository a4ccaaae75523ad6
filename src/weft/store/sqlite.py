"""The embedded store: one SQLite file, private to its user, shared by any number of processes.

Write-ahead logging with `synchronous=NORMAL`: what was acknowledged survives a killed process.
Writers queue for the one write lock (`BEGIN IMMEDIATE`), readers never wait. One connection
serves all threads of a process behind a lock.
"""

import os
import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

from weft.errors import StoreError

from .database import Row
from .migrations import scripts
from .relational import SqlStore

BUSY_SECONDS = 60.0


class SqliteStore(SqlStore):
    """A store in one file; `":memory:"` keeps it in this process alone."""

    def __init__(self, path: str | Path) -> None:
        self._file = SqliteFile(str(path))
        super().__init__(self._file)

    def close(self) -> None:
        self._file.close()


class SqliteFile:
    """The connection: transactions, locks, the schema's version."""

    def __init__(self, path: str) -> None:
        self.lock = RLock()
        self._nesting = 0
        self._path = path
        try:
            _create_private(self._path)
            self._db = sqlite3.connect(
                self._path, timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None
            )
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("PRAGMA cache_size = -16384")
            self._migrate()
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"the store {self._path!r} cannot be opened: {error}") from None

    @property
    def in_transaction(self) -> bool:
        return self._nesting > 0

    @contextmanager
    def transaction(self) -> Generator[None]:
        with self.lock:
            if self._nesting:
                yield
                return
            try:
                self._db.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                raise self._failed(error) from None
            self._nesting += 1
            try:
                yield
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                self._roll_back()
                raise self._failed(error) from None
            except BaseException:
                self._roll_back()
                raise
            finally:
                self._nesting -= 1

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        with self.lock:
            try:
                return self._db.execute(sql, values).fetchall()
            except sqlite3.Error as error:
                raise self._failed(error) from None

    def write(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run one statement inside a transaction; its failure takes the transaction back."""
        return self._db.execute(sql, values)

    def write_many(self, sql: str, values: Iterable[Sequence[Any]]) -> None:
        self._db.executemany(sql, values)

    def close(self) -> None:
        with self.lock:
            self._db.close()

    def _migrate(self) -> None:
        """Bring the schema to this version; another process may be doing the same."""
        versions = scripts()
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > len(versions):
            raise StoreError(f"the store {self._path!r} was written by a newer weft")
        if version == len(versions):
            return
        with self.transaction():
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            for script in versions[version:]:
                for statement in script.split(";\n"):
                    self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {len(versions)}")

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _failed(self, error: sqlite3.Error) -> StoreError:
        return StoreError(f"the store {self._path!r} failed: {error}")


def _create_private(path: str) -> None:
    """Make the file readable by its owner alone before SQLite can make it otherwise."""
    if path == ":memory:" or os.path.exists(path):
        return
    os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
