"""Fills the text index in the background after a bulk load, so that the next search is fast.

A search indexes what is missing, so nothing depends on this. The worker opens the store by itself,
so it neither holds a lock of the writer's connection nor keeps the store from being closed. Each
segment is one short transaction. It ends when nothing is left, or with the process.
"""

from contextlib import suppress
from threading import Lock, Thread

from weft.errors import StoreError
from weft.history import index_new_commits
from weft.store import Store, open_store

BULK_COMMITS = 16_384
"""Fewer new commits are left to the next search, which indexes them in half a second."""

_lock = Lock()
_running: set[str] = set()
"""The addresses of stores whose index this process is filling."""


def index_in_background(store: Store) -> None:
    """Start to index the new commits of a store if there are many."""
    address = store.address
    if address is None or store.count_unindexed() < BULK_COMMITS:
        return
    with _lock:
        if address in _running:
            return
        _running.add(address)
    Thread(target=_fill_index, args=[address], name="weft-index", daemon=True).start()


def _fill_index(address: str) -> None:
    try:
        # Nobody waits for this: the next search reports what is wrong with the store.
        with suppress(StoreError):
            store = open_store(address)
            try:
                while index_new_commits(store, pages=8):
                    pass
            finally:
                store.close()
    finally:
        with _lock:
            _running.discard(address)
