"""The PostgreSQL store, which many machines can share.

Connections are pooled. An OS thread holds one for a transaction or a statement, so there are as
many connections as OS threads that use the store at the same time. The isolation level is
`READ COMMITTED`.
Locks protect what must not change during a landing:

- Every landing holds a shared advisory lock, and its thread's row `FOR UPDATE`. So landings in one
  thread queue, and those in different threads do not.
- An explicit transaction holds that advisory lock exclusively. It may write to several threads in
  any order, and an exclusive lock rules out deadlocks.
"""

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock, local
from typing import Any, TypeVar

import psycopg

from weft.errors import StoreError

from .database import Deferred, Dialect, Memo, SqlRow
from .migrations import scripts
from .relational import SqlStore

ADVISORY_LOCK = 0x77656674  # "weft"; PostgreSQL keeps the locks of each database apart
BEGIN_SHARED = b"BEGIN; SELECT pg_advisory_xact_lock_shared(%d)" % ADVISORY_LOCK
BEGIN_EXCLUSIVE = b"BEGIN; SELECT pg_advisory_xact_lock(%d)" % ADVISORY_LOCK
CONNECT_SECONDS = 10

Connection = psycopg.Connection[SqlRow]
T = TypeVar("T")


class PostgresStore(SqlStore):
    """A store in one PostgreSQL database, at a `postgresql://` address."""

    def __init__(self, url: str) -> None:
        self._server = PostgresServer(url)
        super().__init__(self._server)

    def close(self) -> None:
        self._server.close()


class PostgresServer:
    """The pool of connections: transactions, locks, the schema's version."""

    def __init__(self, url: str) -> None:
        self.dialect = POSTGRES
        self._url = url
        self._idle: list[Connection] = []
        self._pool_lock = Lock()
        self._closed = False
        self._state = _ThreadState()
        try:
            self._migrate()
        except psycopg.Error as error:
            self.close()
            raise StoreError(
                f"the store {self._safe_address()!r} cannot be opened: {_one_line(error)}"
            ) from None
        except StoreError:
            self.close()
            raise

    @property
    def in_transaction(self) -> bool:
        return self._state.nesting > 0

    @property
    def deferred(self) -> Deferred | None:
        return self._state.deferred

    @property
    def thread_keys(self) -> dict[str, int] | None:
        return self._state.thread_keys if self._state.nesting else None

    @property
    def memo(self) -> Memo | None:
        return self._state.memo

    @contextmanager
    def transaction(self, *, exclusive: bool = True) -> Generator[None]:
        state = self._state
        if state.nesting:
            state.nesting += 1
            try:
                yield
            except BaseException:
                self._clear_memo()
                raise
            finally:
                state.nesting -= 1
            return
        with self.snapshot():
            try:
                self._begin(exclusive)
                state.nesting = 1
                if exclusive:
                    state.deferred, state.memo = Deferred(), Memo()
                yield
                self.flush_deferred()
                self._connection().execute("COMMIT")
            except psycopg.Error as error:
                self._roll_back()
                raise self._store_error(error) from None
            except BaseException:
                self._roll_back()
                raise
            finally:
                state.nesting = 0
                state.deferred = state.memo = None
                state.thread_keys.clear()

    @contextmanager
    def savepoint(self) -> Generator[None]:
        state = self._state
        with self.transaction():
            name = f"nested_{state.nesting}"
            try:
                self.flush_deferred()  # earlier statements must survive a rollback to this point
                self._connection().execute(f"SAVEPOINT {name}".encode())
                yield
                self._connection().execute(f"RELEASE {name}".encode())
            except BaseException as error:
                if state.deferred is not None:
                    state.deferred.rows = {}
                self._clear_memo()
                state.thread_keys.clear()
                self._roll_back_to(name)
                if isinstance(error, psycopg.Error):
                    raise self._store_error(error) from None
                raise

    @contextmanager
    def snapshot(self) -> Generator[None]:
        state = self._state
        if state.connection is not None:
            yield
            return
        state.connection = self._acquire_connection()
        try:
            yield
        finally:
            connection = self._connection()  # may have been replaced by a new one
            state.connection = None
            self._release_connection(connection)

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[SqlRow]:
        self.flush_deferred()

        def fetch(connection: Connection) -> list[SqlRow]:
            return connection.execute(_to_psycopg(sql), values).fetchall()

        return self._run(fetch)

    def write(self, sql: str, values: Sequence[Any] = (), *, keeps_memo: bool = False) -> int:
        self._clear_memo(keeps_memo)
        return self._connection().execute(_to_psycopg(sql), values).rowcount

    def insert(self, sql: str, values: Sequence[Any], *, keeps_memo: bool = False) -> int | None:
        self._clear_memo(keeps_memo)
        cursor = self._connection().execute(_to_psycopg(sql + " RETURNING key"), values)
        row = cursor.fetchone()
        return None if row is None else row[0]

    def write_many(
        self, sql: str, values: Iterable[Sequence[Any]], *, keeps_memo: bool = False
    ) -> None:
        self._clear_memo(keeps_memo)
        self._write_many(sql, values)

    def _clear_memo(self, keeps_memo: bool = False) -> None:
        memo = self._state.memo
        if memo is not None and not keeps_memo:
            memo.clear()

    def _write_many(self, sql: str, values: Iterable[Sequence[Any]]) -> None:
        with self._connection().cursor() as cursor:
            cursor.executemany(_to_psycopg(sql), values)

    def scrub(self) -> None:
        """Rewrite all tables, so that their files no longer contain deleted data.

        The write-ahead log and the backups are left to the administrator of the server.
        """
        with self.snapshot():
            for table in self._tables():
                sql = _to_psycopg(f"VACUUM FULL {table}")
                self._run(lambda connection, sql=sql: connection.execute(sql))

    def integrity(self) -> list[str]:
        return []  # PostgreSQL has no integrity check that every client may run

    def size(self) -> int:
        rows = self.read(
            """SELECT sum(pg_total_relation_size(name::regclass))::bigint
            FROM unnest(?::text[]) AS name""",
            (self._tables(),),
        )
        return rows[0][0]

    def _tables(self) -> list[str]:
        """The store's own tables: other programs may have tables in the same schema."""
        statements = [statement for script in scripts("postgres") for statement in script]
        names = re.findall(r"^CREATE TABLE (\w+)", "\n".join(statements), re.MULTILINE)
        rows = self.read(  # a later migration may have dropped one
            "SELECT name FROM unnest(?::text[]) AS name WHERE to_regclass(name) IS NOT NULL",
            (["weft_schema", *names],),
        )
        return [name for (name,) in rows]

    def close(self) -> None:
        with self._pool_lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _run(self, statement: Callable[[Connection], T]) -> T:
        """Run a statement; outside a transaction, reconnect once if the connection was lost."""
        with self.snapshot():
            try:
                return statement(self._connection())
            except psycopg.OperationalError as error:
                if self.in_transaction or not self._connection().closed:
                    raise self._store_error(error) from None
            except psycopg.Error as error:
                raise self._store_error(error) from None
            self._state.connection = self._connect()
            try:
                return statement(self._connection())
            except psycopg.Error as error:
                raise self._store_error(error) from None

    def flush_deferred(self) -> None:
        deferred = self._state.deferred
        if deferred is not None and deferred.rows:
            rows, deferred.rows = deferred.rows, {}
            for sql, values in rows.items():
                self._write_many(sql, values.values())

    def _begin(self, exclusive: bool) -> None:
        begin = BEGIN_EXCLUSIVE if exclusive else BEGIN_SHARED
        try:
            self._connection().execute(begin)
        except psycopg.OperationalError:
            if not self._connection().closed:
                raise
            # The idle connection was lost, and no transaction was open on it.
            self._state.connection = self._connect()
            self._connection().execute(begin)

    def _roll_back(self) -> None:
        connection = self._connection()
        try:
            if not connection.closed:
                connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()  # a connection that cannot even roll back is not used again

    def _roll_back_to(self, savepoint: str) -> None:
        connection = self._connection()
        try:
            if not connection.closed:
                connection.execute(f"ROLLBACK TO {savepoint}; RELEASE {savepoint}".encode())
        except psycopg.Error:
            connection.close()  # the outer transaction cannot continue, and fails when it commits

    def _connection(self) -> Connection:
        connection = self._state.connection
        if connection is None:
            raise StoreError("the PostgreSQL store can only write inside a transaction")
        return connection

    def _acquire_connection(self) -> Connection:
        with self._pool_lock:
            if self._closed:
                raise StoreError(f"the store {self._safe_address()!r} is closed")
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def _release_connection(self, connection: Connection) -> None:
        with self._pool_lock:
            if not self._closed and not connection.closed:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self) -> Connection:
        try:
            return psycopg.connect(
                self._url, autocommit=True, connect_timeout=CONNECT_SECONDS, application_name="weft"
            )
        except psycopg.Error as error:
            raise StoreError(
                f"the store {self._safe_address()!r} cannot be reached: {_one_line(error)}"
            ) from None

    def _migrate(self) -> None:
        """Bring the schema to this version; another process may be doing the same."""
        versions = scripts("postgres")
        if self._version() == len(versions):
            return
        with self.transaction():
            self.write("CREATE TABLE IF NOT EXISTS weft_schema (version INTEGER NOT NULL)")
            version = self._version()
            if version > len(versions):
                raise StoreError(f"the store {self._safe_address()!r} was written by a newer weft")
            for script in versions[version:]:
                for statement in script:
                    self.write(statement)
            self.write("DELETE FROM weft_schema")
            self.write("INSERT INTO weft_schema VALUES (?)", (len(versions),))

    def _version(self) -> int:
        if self.read("SELECT to_regclass('weft_schema')")[0][0] is None:
            return 0
        rows = self.read("SELECT version FROM weft_schema")
        return rows[0][0] if rows else 0

    def _store_error(self, error: psycopg.Error) -> StoreError:
        store_error = StoreError(f"the store {self._safe_address()!r} failed: {_one_line(error)}")
        store_error.is_data = isinstance(error, (psycopg.DataError, psycopg.IntegrityError))
        return store_error

    def _safe_address(self) -> str:
        """The address without its password, for error messages."""
        scheme, _, address = self._url.partition("://")
        login, separator, host = address.rpartition("@")
        return f"{scheme}://{login.partition(':')[0]}{separator}{host}"


class _ThreadState(local):
    """The state of the calling OS thread."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.nesting = 0
        self.deferred: Deferred | None = None
        self.memo: Memo | None = None
        self.thread_keys: dict[str, int] = {}


def _one_line(error: psycopg.Error) -> str:
    """The message of an error, in one line."""
    return " ".join(str(error).split())


@lru_cache(maxsize=256)
def _to_psycopg(sql: str) -> bytes:
    """The statement with psycopg's placeholders."""
    return sql.replace("?", "%s").encode()


POSTGRES = Dialect("postgres", "SELECT key FROM thread WHERE key = ? FOR UPDATE")
