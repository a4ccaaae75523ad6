"""The PostgreSQL store, which many machines can share.

Connections are pooled. An OS thread holds one connection for a statement or a transaction, so there
are as many connections as OS threads that use the store at the same time. The code assumes
PostgreSQL's default isolation level, `READ COMMITTED`. Locks protect what must not change during a
write:

- A single write (`transaction(exclusive=False)`) holds a shared advisory lock. A landing also locks
  the row of its thread (`FOR UPDATE`). So landings in one thread wait for each other, and landings
  in different threads do not.
- `Store.transaction()` holds the advisory lock exclusively. The caller may write to several threads
  in any order, which could cause deadlocks if others wrote at the same time.
"""

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from hashlib import sha256
from threading import Lock, local
from typing import Any, TypeVar
from urllib.parse import quote

import psycopg
from psycopg import pq

from weft.errors import StoreError

from .database import Deferred, Dialect, Memo, SqlRow
from .migrations import scripts
from .relational import SqlStore

ADVISORY_LOCK = 0x77656674  # "weft"; PostgreSQL keeps the locks of each database apart
BEGIN_SHARED = b"BEGIN; SELECT pg_advisory_xact_lock_shared(%d)" % ADVISORY_LOCK
BEGIN_EXCLUSIVE = b"BEGIN; SELECT pg_advisory_xact_lock(%d)" % ADVISORY_LOCK
CONNECT_SECONDS = 10
URL = re.compile(r"\w+://([^@/]*@)?[^@/?]*(/[^@?]*)?(\?.*)?")
"""A URL with at most one `@`, which ends the user name and password.

If a password contains `@` or `/`, libpq takes a part of it for the host, the port or the database.
"""

Connection = psycopg.Connection[SqlRow]
T = TypeVar("T")


class PostgresStore(SqlStore):
    """A store in one PostgreSQL database, at a `postgresql://` URL."""

    def __init__(self, url: str) -> None:
        self._database = PostgresDatabase(url)
        super().__init__(self._database)

    @property
    def address(self) -> str:  # not an attribute: it may have a password, which `vars` would show
        return self._database.url

    def try_lock(self, name: str) -> Callable[[], None] | None:
        return self._database.try_lock(name)

    def close(self) -> None:
        self._database.close()


class PostgresDatabase:
    """The `Database` of a PostgreSQL store: a pool of connections, transactions and migrations."""

    def __init__(self, url: str) -> None:
        self.dialect = POSTGRES
        self.url = url
        self._name = url_without_password(url)  # for error messages
        self._idle: list[Connection] = []
        self._pool_lock = Lock()
        self._closed = False
        self._state = _ThreadState()
        try:
            self._migrate()
        except psycopg.Error as error:
            self.close()
            raise StoreError(
                f"the store {self._name!r} cannot be opened: {_one_line(error)}"
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
        with self.hold_connection():
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
    def hold_connection(self) -> Generator[None]:
        state = self._state
        if state.connection is not None:
            yield
            return
        state.connection = self._acquire_connection()
        try:
            yield
        finally:
            connection = self._connection()  # `_run` and `_begin` replace one that was lost
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

    def overwriting_deletes(self) -> AbstractContextManager[object]:
        return nullcontext()

    def scrub(self) -> None:
        """Rewrite all tables, so that their files no longer contain deleted data.

        The write-ahead log and the backups are left to the administrator of the server.
        """
        with self.hold_connection():
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
        with self.hold_connection():
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

    def try_lock(self, name: str) -> Callable[[], None] | None:
        """Take an advisory lock on a connection of its own, which ends with the program."""
        key = int.from_bytes(sha256(f"{self._schema()}\0{name}".encode()).digest()[:8], signed=True)
        connection = self._connect()
        try:
            row = connection.execute("SELECT pg_try_advisory_lock(%s)", (key,)).fetchone()
        except psycopg.Error as error:
            connection.close()
            raise self._store_error(error) from None
        if row is None or not row[0]:
            connection.close()
            return None
        return connection.close

    def _schema(self) -> str:
        """The schema of the tables: advisory locks are shared by all schemas of a database."""
        return self.read("SELECT current_schema()")[0][0]

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
        """The connection that the calling OS thread holds.

        Reads always hold one, so it is only missing if a write is not inside a transaction.
        """
        connection = self._state.connection
        if connection is None:
            raise StoreError("the PostgreSQL store can only write inside a transaction")
        return connection

    def _acquire_connection(self) -> Connection:
        with self._pool_lock:
            if self._closed:
                raise StoreError(f"the store {self._name!r} is closed")
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
                self.url, autocommit=True, connect_timeout=CONNECT_SECONDS, application_name="weft"
            )
        except (psycopg.Error, UnicodeError) as error:  # a label of a host name may be too long
            raise StoreError(
                f"the store {self._name!r} cannot be reached: {_one_line(error)}"
            ) from None

    def _migrate(self) -> None:
        """Update the schema to the version of this Weft; another process may be doing the same."""
        migrations = scripts("postgres")
        if self._version() == len(migrations):
            return
        with self.transaction():
            self.write("CREATE TABLE IF NOT EXISTS weft_schema (version INTEGER NOT NULL)")
            version = self._version()
            if version > len(migrations):
                raise StoreError(
                    f"the store {self._name!r} was written by a newer version of Weft: upgrade Weft"
                )
            for script in migrations[version:]:
                for statement in script:
                    self.write(statement)
            self.write("DELETE FROM weft_schema")
            self.write("INSERT INTO weft_schema VALUES (?)", (len(migrations),))

    def _version(self) -> int:
        if self.read("SELECT to_regclass('weft_schema')")[0][0] is None:
            return 0
        rows = self.read("SELECT version FROM weft_schema")
        return rows[0][0] if rows else 0

    def _store_error(self, error: psycopg.Error) -> StoreError:
        store_error = StoreError(f"the store {self._name!r} failed: {_one_line(error)}")
        # If the data is the cause, a retry fails too.
        store_error.is_data = isinstance(error, (psycopg.DataError, psycopg.IntegrityError))
        return store_error


class _ThreadState(local):
    """The state of the calling OS thread."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.nesting = 0
        self.deferred: Deferred | None = None
        self.memo: Memo | None = None
        self.thread_keys: dict[str, int] = {}  # the keys of threads, by name


def url_without_password(url: str) -> str:
    """The URL without its passwords, for messages; raises `StoreError` if it is invalid."""
    try:
        options = pq.Conninfo.parse(url.encode())
    except psycopg.Error:
        options = None
    if options is None or not URL.fullmatch(url):
        # libpq's message may quote the password, so it is left out.
        raise StoreError(
            "the address of the store is not a valid PostgreSQL URL: check its parameters, and "
            "percent-encode special characters in the password (%40 for @)"
        )
    values = {
        option.keyword.decode(): quote(option.val.decode(), safe="/,")
        for option in options
        if option.val is not None and not option.dispchar  # set for passwords and keys
    }
    user, database = values.pop("user", ""), values.pop("dbname", "")
    server = ""
    if "," not in values.get("host", "") and not values.get("host", "").startswith("/"):
        server = values.pop("host", "")
        server += f":{values.pop('port')}" if "port" in values else ""
    parameters = "&".join(f"{name}={value}" for name, value in values.items())
    shown = f"postgresql://{user}{'@' if user else ''}{server}/{database}"
    return f"{shown}?{parameters}" if parameters else shown


def _one_line(error: Exception) -> str:
    """The message of an error, in one line."""
    return " ".join(str(error).split())


@lru_cache(maxsize=256)
def _to_psycopg(sql: str) -> bytes:
    """The statement with psycopg's placeholders."""
    return sql.replace("?", "%s").encode()


POSTGRES = Dialect("postgres", lock_thread="SELECT key FROM thread WHERE key = ? FOR UPDATE")
