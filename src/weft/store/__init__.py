"""Bytes and names: where threads are kept. `open_store` picks the backend by its address."""

from pathlib import Path

from weft.errors import ConfigError

from .base import (
    CommitRecord,
    Landing,
    Match,
    Node,
    Operation,
    Step,
    Store,
    ThreadRecord,
    Unindexed,
)
from .memory import MemoryStore
from .sqlite import SqliteStore

__all__ = [
    "CommitRecord",
    "Landing",
    "Match",
    "MemoryStore",
    "Node",
    "Operation",
    "SqliteStore",
    "Step",
    "Store",
    "ThreadRecord",
    "Unindexed",
    "open_store",
]


def open_store(target: str | Path | None = None) -> Store:
    """The store at this address: nothing means this process's memory, a path means a file."""
    if target is None:
        return MemoryStore()
    address = str(target)
    if "://" in address and not address.startswith("sqlite://"):
        scheme = address.partition("://")[0]
        raise ConfigError(f"no store speaks {scheme!r}: give a file's path or sqlite://PATH")
    return SqliteStore(address.removeprefix("sqlite://"))
