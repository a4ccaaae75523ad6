"""The doors: open a thread by a store's address, or list the threads there are."""

from pathlib import Path
from time import time
from typing import cast

from weft.errors import ThreadError
from weft.store import Store, ThreadRecord, open_store

from .budget import Budget
from .handle import Handle
from .thread import Thread

Target = str | Path | Store | None


def open(
    target: Target = None,
    thread: str = "default",
    checkpoints: bool = False,
    *,
    branch: str | None = None,
    scope: str | None = None,
    budget: Budget | None = None,
) -> Thread:
    """The thread of that name, made if it is new.

    `target` is a file's path, nothing for this process's memory, or an open store, which stays
    open when the thread is closed. With `scope`, its appends can be found by `find_prefix`.
    `budget` limits what the thread may compile to, for this handle.
    """
    if not thread.strip():
        raise ThreadError("a thread needs a name that is not blank")
    owns = target is None or isinstance(target, str | Path)
    store = open_store(cast("str | Path | None", target)) if owns else cast(Store, target)
    record = store.ensure_thread(thread, created=time(), checkpoints=checkpoints, scope=scope)
    return Thread(Handle(store, record, branch=branch, budget=budget), owns_store=owns)


def threads(target: Target = None) -> list[ThreadRecord]:
    """The threads of a store, oldest first."""
    if target is None or isinstance(target, str | Path):
        store = open_store(target)
        try:
            return store.threads()
        finally:
            store.close()
    return target.threads()
