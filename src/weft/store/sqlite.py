"""The SQLite store: one file, readable by its owner only, shared by any number of processes.

Write-ahead logging with `synchronous=NORMAL`: acknowledged writes survive a killed process.
Writers queue for the write lock (`BEGIN IMMEDIATE`), and readers never wait. All OS threads of a
process share one connection behind a lock; while one of them writes, the others read through a
second connection.
"""

import os
import sqlite3
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from threading import RLock, get_ident
from types import TracebackType
from typing import Any
from weakref import finalize

from weft.errors import Damaged, StoreError

from .database import Deferred, Dialect, Memo, SqlRow
from .migrations import scripts
from .name_locks import try_lock_name
from .relational import SqlStore

BUSY_SECONDS = 60.0
LOG_INDEX_BYTES = 32 * 1024
"""The size of the index of SQLite's log (`-shm`), which readers need too."""
PAGE_BYTES = 2048  # of a new file; small, because every commit writes seven whole pages to the log
CHECKPOINT_PAGES = 8000  # 16 MB of log; SQLite's default of 1000 copies busy pages more often
CACHE_KIB = 16 * 1024
SEARCHED_BYTES = 2**20  # of a damaged file, for the tables of a store
OWN_TABLES = frozenset({"thread", "entry", "commits", "ref"})
PRIMARY_CODE_MASK = 0xFF  # the low byte of an extended error code is the primary code
DAMAGE_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
# SQLite's messages may quote a damaged name, which Python then cannot decode.
READ_ERRORS = (sqlite3.Error, UnicodeDecodeError)
OPEN_ERRORS = (sqlite3.Error, OSError)
READ_ONLY_CODES = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY})


SQLITE = Dialect("sqlite", lock_thread="", has_sequential_keys=True)


class SqliteStore(SqlStore):
    """A store in one file; `":memory:"` keeps it in this process alone."""

    def __init__(self, path: str | Path) -> None:
        self._file = SqliteFile(str(path))
        self.address = None if str(path) == ":memory:" else os.path.abspath(path)
        super().__init__(self._file)

    def try_lock(self, name: str) -> Callable[[], None] | None:
        return (lambda: None) if self.address is None else try_lock_name(self.address, name)

    def checkpoint(self) -> None:
        self._file.checkpoint()

    def close(self) -> None:
        self._file.close()


class SqliteFile:
    """The `Database` of a SQLite store: its connections, transactions, locks and migrations."""

    def __init__(self, path: str) -> None:
        self.dialect = SQLITE
        self.lock = RLock()
        self._nesting = 0
        self._deferred = Deferred()
        self._failure: sqlite3.Error | None = None  # of a delayed statement
        self._version = 0  # changes when another connection has written
        self._memo = Memo()
        self._thread_keys: dict[str, int] = {}
        self._owner: int | None = None
        self._path = path
        self._closed = False
        self._is_read_only = False
        try:
            _create_private(self._path)
            self._db = self._open()
        except OPEN_ERRORS as error:
            raise self._open_error(error) from None
        self._reader = _Reader(self._path, is_read_only=self._is_read_only)
        # Closing a store is optional. At exit the connection is left to the operating system:
        # closing it would wait for a writer that may wait for another process.
        finalize(self, _close_all, self._db, self._reader).atexit = False
        self._writer = self._db.cursor()
        self._file_id = _file_identity(self._path)
        try:
            self._set_up()
        except READ_ERRORS as error:
            self._db.close()  # an open file could not be repaired
            raise self._open_error(error) from None
        except StoreError:
            self._db.close()
            raise

    def _open(self) -> sqlite3.Connection:
        """A connection that can read the file.

        SQLite writes files beside a database even to read it. Where that is impossible, because
        nothing can be written there, the file cannot change, and it is read without them.
        """
        db = _connect(self._path)
        try:
            db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        except sqlite3.OperationalError as error:
            if _primary_code(error) not in READ_ONLY_CODES:
                return db  # what is wrong is reported when the tables are read
            db.close()
            _check_read_only(self._path)
            self._is_read_only = True
            return _connect(self._path, is_read_only=True)
        except READ_ERRORS:
            return db
        return db

    @property
    def in_transaction(self) -> bool:
        return self._nesting > 0

    @property
    def memo(self) -> Memo | None:
        return self._memo if self._owner == get_ident() else None

    @property
    def thread_keys(self) -> dict[str, int] | None:
        return self._thread_keys if self._owner == get_ident() else None

    @property
    def deferred(self) -> Deferred | None:
        """The delayed statements; `None` for a single landing, which delays nothing."""
        return self._deferred if self._nesting > 1 else None

    def transaction(self, *, exclusive: bool = True) -> "SqliteFile":  # noqa: ARG002 - it always is
        return self

    @contextmanager
    def savepoint(self) -> Generator[None]:
        with self.transaction():
            failure, name = self._failure, f"nested_{self._nesting}"
            if self._deferred.rows:
                self.flush_deferred()  # earlier statements must survive a rollback to this point
            self._writer.execute(f"SAVEPOINT {name}")
            try:
                yield
            except BaseException:
                self._deferred.rows = {}
                self._failure = failure
                self._memo.clear()
                self._thread_keys.clear()
                if self._db.in_transaction:  # SQLite ends it by itself when a disk is full
                    self._writer.execute(f"ROLLBACK TO {name}")
                    self._writer.execute(f"RELEASE {name}")
                raise
            self._writer.execute(f"RELEASE {name}")

    def hold_connection(self) -> AbstractContextManager[Any]:
        self._check_open()
        return _ReleasedLock(self.lock) if self._lock_first_connection() else self._reader

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"the store {self._path!r} is closed: open it again")

    def __enter__(self) -> None:
        self._check_open()
        self.lock.acquire()
        if self._nesting == 0:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                self._check_file()
            except sqlite3.Error as error:
                self._roll_back()
                self.lock.release()
                raise self._store_error(error) from None
        self._nesting += 1
        self._owner = get_ident()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._memo.clear()
        self._nesting -= 1
        if not self._nesting:
            self._owner = None
            self._thread_keys.clear()
        try:
            if self._nesting:
                if isinstance(error, sqlite3.Error):
                    raise self._store_error(error) from None
                return
            if error is None:
                self._commit()
                return
            self._roll_back()
            if isinstance(error, sqlite3.Error):
                raise self._store_error(error) from None
        finally:
            self.lock.release()

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[SqlRow]:
        self._check_open()
        try:
            if self._owner == get_ident() and not self._reader.is_open:
                if self._deferred.rows:
                    self.flush_deferred()
                return self._db.execute(sql, values).fetchall()
            if not self._lock_first_connection():
                return self._reader.read(sql, values)
            with _ReleasedLock(self.lock):
                if self._deferred.rows:
                    self.flush_deferred()
                return self._db.execute(sql, values).fetchall()
        except READ_ERRORS as error:
            raise self._store_error(error) from None

    def _lock_first_connection(self) -> bool:
        """Take the first connection's lock; returns false if the second must be used instead."""
        if self._reader.is_open:
            return False
        return self.lock.acquire(blocking=not self._reader.is_available)

    def write(self, sql: str, values: Sequence[Any] = (), *, keeps_memo: bool = False) -> int:
        self._before_write(keeps_memo)
        return self._writer.execute(sql, values).rowcount

    def insert(self, sql: str, values: Sequence[Any], *, keeps_memo: bool = False) -> int | None:
        self._before_write(keeps_memo)
        cursor = self._writer.execute(sql, values)
        return cursor.lastrowid if cursor.rowcount == 1 else None

    def write_many(
        self, sql: str, values: Iterable[Sequence[Any]], *, keeps_memo: bool = False
    ) -> None:
        self._before_write(keeps_memo)
        self._db.executemany(sql, values)

    @contextmanager
    def overwriting_deletes(self) -> Generator[None]:
        with self.lock:
            self._db.execute("PRAGMA secure_delete = ON")
            try:
                yield
            finally:
                self._db.execute("PRAGMA secure_delete = OFF")

    def scrub(self) -> None:
        """Rewrite the file, and truncate the log: freed pages keep their old content."""
        with self.lock:
            try:
                self._db.execute("VACUUM")
                is_busy = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            except sqlite3.Error as error:
                raise self._store_error(error) from None
        if is_busy:
            raise StoreError(f"another program reads the store {self._path!r}")

    def checkpoint(self) -> None:
        """Copy the write-ahead log to the file, on a connection of its own.

        A passive checkpoint takes no lock that readers or writers wait for.
        https://www.sqlite.org/pragma.html#pragma_wal_checkpoint
        """
        if self._is_read_only or self._closed:
            return
        with suppress(sqlite3.Error), closing(sqlite3.connect(self._path)) as db:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def integrity(self) -> list[str]:
        try:
            lines = [str(row[0]) for row in self.read("PRAGMA integrity_check")]
        except StoreError as error:
            return [str(error)]
        return [] if lines == ["ok"] else lines

    def size(self) -> int:
        pages, size = (self.read(f"PRAGMA {name}")[0][0] for name in ("page_count", "page_size"))
        return pages * size

    def close(self) -> None:
        with self.lock:
            self._closed = True
            self._reader.close()
            self._db.close()

    def flush_deferred(self) -> None:
        rows, self._deferred.rows = self._deferred.rows, {}
        try:
            for sql, values in rows.items():
                self._db.executemany(sql, values.values())
        except sqlite3.Error as error:
            self._failure = error  # the statements were reported as done, so the commit must fail
            raise

    def _before_write(self, keeps_memo: bool) -> None:
        if not keeps_memo:
            self._memo.clear()
        if self._deferred.rows:
            self.flush_deferred()

    def _check_file(self) -> None:
        """Clear the memo if another connection has written in the meantime.

        Raises an error if the file was deleted or replaced: every write to it would be lost.
        """
        if self._path != ":memory:" and _file_identity(self._path) != self._file_id:
            raise sqlite3.OperationalError("the file was deleted or replaced")
        version = self._writer.execute("PRAGMA data_version").fetchall()[0][0]
        if version != self._version:
            self._version = version
            self._memo.clear()
        self._memo.limit()

    def _commit(self) -> None:
        try:
            if self._deferred.rows:
                self.flush_deferred()
            if self._failure is not None:
                raise self._failure
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise self._store_error(error) from None

    def _set_up(self) -> None:
        self._check_tables()
        self._db.execute("PRAGMA cell_size_check = ON")
        if self._is_read_only:
            self._migrate()
            return
        self._db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")  # a negative size is in KiB
        self._db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        self._migrate()

    def _check_tables(self) -> None:
        """Raise `StoreError` for another program's database, `Damaged` if tables are missing."""
        tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master")}
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if tables >= OWN_TABLES or not (tables or version):
            return
        if tables & OWN_TABLES or not tables:
            raise Damaged(f"tables of the store {self._path!r} are missing")
        raise StoreError(f"{self._path!r} is a SQLite database, but not a Weft store")

    def _migrate(self) -> None:
        """Update the schema to the version of this Weft; another process may be doing the same."""
        migrations = scripts("sqlite")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > len(migrations):
            raise StoreError(
                f"the store {self._path!r} was written by a newer version of Weft: upgrade Weft"
            )
        if version == len(migrations):
            return
        if self._is_read_only:
            raise StoreError(
                f"the store {self._path!r} was written by an older version of Weft and is "
                "read-only: copy it to a folder that can be written"
            )
        with self.transaction():
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            for script in migrations[version:]:
                for statement in script:
                    self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {len(migrations)}")

    def _roll_back(self) -> None:
        self._deferred = Deferred()
        self._failure = None
        self._memo.clear()
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _open_error(self, error: Exception) -> StoreError:
        reason = self._explain(error)
        return _to_store_error(
            error, f"the store {self._path!r} cannot be opened: {reason}", self._path
        )

    def _explain(self, error: Exception) -> str:
        """SQLite's message, and whether the disk is full: that can be an I/O error for SQLite."""
        if _primary_code(error) not in (
            sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_CANTOPEN,
            sqlite3.SQLITE_FULL,
        ):
            return str(error)
        import shutil  # slow to import

        try:
            free = shutil.disk_usage(os.path.dirname(os.path.abspath(self._path))).free
        except OSError:
            return str(error)
        if free >= LOG_INDEX_BYTES:
            return str(error)
        return f"{error} (the disk is full: even reading needs {LOG_INDEX_BYTES // 1024} KB)"

    def _store_error(self, error: Exception) -> StoreError:
        if _primary_code(error) == sqlite3.SQLITE_READONLY:
            return StoreError(f"the store {self._path!r} is read-only")
        store_error = _to_store_error(
            error, f"the store {self._path!r} failed: {self._explain(error)}"
        )
        # If the data is the cause, a retry fails too.
        store_error.is_data = isinstance(error, (sqlite3.DataError, sqlite3.IntegrityError))
        return store_error


class _ReleasedLock:
    """A context manager that releases a lock at its end; the caller has taken it."""

    __slots__ = ("_lock",)

    def __init__(self, lock: RLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised: object) -> None:
        self._lock.release()


class _Reader:
    """A second connection, which reads while another OS thread of this process writes.

    A writer may wait long for the lock of another process, and readers must not wait with it. Used
    as a context manager, it gives all reads of the calling OS thread the same snapshot.
    """

    def __init__(self, path: str, *, is_read_only: bool = False) -> None:
        self.is_available = path != ":memory:"
        self._path = path
        self._is_read_only = is_read_only
        self._lock = RLock()
        self._db: sqlite3.Connection | None = None
        self._owner: int | None = None
        self._depth = 0

    @property
    def is_open(self) -> bool:
        """Whether the calling OS thread is inside this context manager."""
        return self._owner == get_ident()

    def read(self, sql: str, values: Sequence[Any]) -> list[SqlRow]:
        with self._lock:
            return self._connection().execute(sql, values).fetchall()

    def __enter__(self) -> None:
        self._lock.acquire()
        try:
            if self._owner is None:
                self._connection().execute("BEGIN")
            self._depth += 1
            self._owner = get_ident()
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, *raised: object) -> None:
        self._depth -= 1
        try:
            if self._depth == 0:
                self._owner = None
                self._connection().execute("COMMIT")
        finally:
            self._lock.release()

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
            self._db = None

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = _connect(self._path, is_read_only=self._is_read_only)
            self._db.execute("PRAGMA query_only = ON")
        return self._db


def _connect(path: str, *, is_read_only: bool = False) -> sqlite3.Connection:
    address = f"{Path(path).absolute().as_uri()}?mode=ro&immutable=1" if is_read_only else path
    return sqlite3.connect(
        address,
        timeout=BUSY_SECONDS,
        check_same_thread=False,
        isolation_level=None,
        uri=is_read_only,
    )


def _check_read_only(path: str) -> None:
    """Raise `StoreError`, with what to do, unless SQLite can read this file without other files.

    It must be readable, nobody may write it, and no commit may be only in the log beside it.
    """
    folder = os.path.dirname(os.path.abspath(path))
    log = f"{path}-wal"
    if os.path.exists(log) and os.path.getsize(log):
        raise StoreError(
            f"the store {path!r} is read-only, and its newest commits are in {log!r}: "
            f"copy {path!r} and {log!r} to a folder that can be written"
        )
    if os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise StoreError(
            f"the store {path!r} cannot be opened: its folder {folder!r} cannot be written, and "
            "SQLite needs files there; make it writable, or copy the store"
        )
    if not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
        raise StoreError(f"the store {path!r} cannot be opened: permission denied")


def _close_all(db: sqlite3.Connection, reader: _Reader) -> None:
    """Close the connections of a store that was never closed."""
    reader.close()
    db.close()


def _was_database(path: str) -> bool:
    """Whether a file has parts of a database, so that a repair may recover something."""
    with open(path, "rb") as file:
        start = file.read(SEARCHED_BYTES)
    return not start or start.startswith(b"SQLite") or b"CREATE TABLE" in start


def _to_store_error(error: Exception, message: str, path: str | None = None) -> StoreError:
    """`Damaged` if the file is damaged, else `StoreError`."""
    code = _primary_code(error)
    if code == sqlite3.SQLITE_NOTADB and path is not None and not _was_database(path):
        return StoreError(f"{path!r} is not a Weft store")
    if code in DAMAGE_CODES or isinstance(error, UnicodeDecodeError):
        return Damaged(f"{message}; `weft fsck --repair` recovers what is intact")
    return StoreError(message)


def _primary_code(error: Exception) -> int:
    """SQLite's primary error code; 0 for other errors."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & PRIMARY_CODE_MASK


def _file_identity(path: str) -> tuple[int, int] | None:
    """The device and inode of the file at this path."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _create_private(path: str) -> None:
    """Create the file, readable by its owner only, before SQLite does with other permissions."""
    if path == ":memory:" or os.path.exists(path):
        return
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise StoreError(f"the folder {folder!r} does not exist: create it first")
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
