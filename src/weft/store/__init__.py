"""Storage of threads. `open_store` picks the backend by its address."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from weft.errors import ConfigError, StoreError
from weft.lazy import lazy_names, lazy_pattern

from .base import (
    BUCKETS,
    CALL_STATES,
    DELETED,
    IMPORT,
    Arrival,
    AttemptRecord,
    CommitGraph,
    CommitRecord,
    Dropped,
    Flaw,
    IndexBlock,
    IndexedCommits,
    Landing,
    Link,
    LogRow,
    Maintenance,
    Match,
    NewSegment,
    Node,
    ObjectFormat,
    ObjectKind,
    Operation,
    Step,
    Store,
    ThreadRecord,
    Tombstone,
    TombstoneReason,
    Unindexed,
    deleted_name,
    descendants,
    read_deleted_name,
)
from .companions import (
    JOURNAL_SUFFIX,
    SERVER_SUFFIX,
    announce_server,
    companion_path,
    read_server,
    write_private,
)
from .landing import checksum
from .sqlite import SqliteStore

if TYPE_CHECKING:
    from .memory import MemoryStore

__getattr__ = lazy_names(__name__, {"memory": "MemoryStore"})

__all__ = [
    "BUCKETS",
    "CALL_STATES",
    "DELETED",
    "IMPORT",
    "JOURNAL_SUFFIX",
    "SERVER_SUFFIX",
    "Arrival",
    "AttemptRecord",
    "CommitGraph",
    "CommitRecord",
    "Dropped",
    "Flaw",
    "IndexBlock",
    "IndexedCommits",
    "Landing",
    "Link",
    "LogRow",
    "Maintenance",
    "Match",
    "MemoryStore",
    "NewSegment",
    "Node",
    "ObjectFormat",
    "ObjectKind",
    "Operation",
    "SqliteStore",
    "Step",
    "Store",
    "ThreadRecord",
    "Tombstone",
    "TombstoneReason",
    "Unindexed",
    "announce_server",
    "check_address",
    "checksum",
    "companion_path",
    "deleted_name",
    "descendants",
    "open_store",
    "read_deleted_name",
    "read_server",
    "without_password",
    "write_private",
]


def open_store(target: str | Path | None = None) -> Store:
    """Open the store at this address: `None` is in memory, a path is a SQLite file.

    `postgresql://...` is a database that many machines can share; it needs the extra `postgres`.
    """
    if target is None:
        from .memory import MemoryStore  # commands, which must start fast, never use it

        return MemoryStore()
    address = str(target)
    check_address(address)
    scheme = address.partition("://")[0] if "://" in address else "sqlite"
    if scheme not in OPENERS:
        supported = ", ".join(f"{name}://..." for name in OPENERS)
        raise ConfigError(f"unknown store scheme {scheme!r}: use a file path or {supported}")
    return OPENERS[scheme](address)


NOT_A_URL = lazy_pattern(
    r"postgres(ql)?:(?!//)|\s*(host|hostaddr|port|dbname|user|password|service)\s*="
)
"""The start of a PostgreSQL address that is not a URL."""


def check_address(address: str) -> None:
    """Raise `ConfigError` for a PostgreSQL address that is not a URL.

    It would be taken for the path of a file, and its password would be in the file's name and in
    messages.
    """
    if NOT_A_URL.match(address):
        raise ConfigError("a store in PostgreSQL needs a URL: postgresql://USER@HOST/DATABASE")


def without_password(address: str) -> str:
    """The address of a store without its passwords, for messages."""
    scheme, separator, _ = address.partition("://")
    if not separator or OPENERS.get(scheme) is not _open_postgres:
        return address
    try:
        from .postgres import url_without_password  # an optional extra

        return url_without_password(address)
    except (ImportError, StoreError):
        return f"{scheme}://..."  # where the password is in it is not known


def _open_sqlite(address: str) -> Store:
    return SqliteStore(address.removeprefix("sqlite://"))


def _open_postgres(address: str) -> Store:
    try:
        from .postgres import PostgresStore  # an optional extra
    except ImportError:
        raise ConfigError(
            "a store in PostgreSQL needs psycopg: pip install '.[postgres]' in the folder of Weft"
        ) from None
    return PostgresStore(address)


OPENERS: dict[str, Callable[[str], Store]] = {
    "sqlite": _open_sqlite,
    "postgresql": _open_postgres,
    "postgres": _open_postgres,
}
