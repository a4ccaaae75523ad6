"""The doors: open a thread by a store's address, or list the threads there are."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from time import time
from typing import Any, cast

from weft.checked import checked_function
from weft.errors import StoreError, WrongValue
from weft.store import Store, ThreadRecord, open_store

from .arguments import check_name
from .asker import Models
from .budget import Budget, check_budget
from .handle import Handle
from .looking import LIMIT, Hit
from .removing import check_thread_name, list_deleted, undelete as bring_back
from .searching import Moment, make_filter, search_all
from .thread import Thread

Target = str | Path | Store | None


@checked_function
def open(
    target: Target = None,
    thread: str = "default",
    checkpoints: bool = False,
    *,
    branch: str | None = None,
    scope: str | None = None,
    budget: Budget | None = None,
    models: Models | None = None,
) -> Thread:
    """The thread of that name, made if it is new.

    `target` is a file's path, nothing for this process's memory, or an open store, which stays
    open when the thread is closed. With `scope`, its appends can be found by `find_prefix`.
    `budget` limits what the thread may compile to, for this handle. `models` finds who answers for
    a model's name; without it no model can be asked by name.
    """
    check_thread_name(thread)
    if branch is not None:
        check_name("branch", branch)
    owns = target is None or isinstance(target, str | Path)
    store = open_store(cast("str | Path | None", target)) if owns else _opened(target)
    record = store.ensure_thread(thread, created=time(), checkpoints=checkpoints, scope=scope)
    if branch is not None and store.read_ref(thread, branch) is None:
        store.refs(thread)  # refuses where a branch was lost, since this one might be it
    handle = Handle(store, record, branch=branch, budget=check_budget(budget), models=models)
    return Thread(handle, owns_store=owns)


@checked_function
def threads(target: Target = None, *, deleted: bool = False) -> list[ThreadRecord]:
    """The threads of a store, oldest first; a file that is not there is not made.

    With `deleted`, those that were deleted and can still be brought back by `undelete`.
    """
    with existing(target) as store:
        return list_deleted(store) if deleted else store.threads()


@checked_function
def undelete(target: Target, name: str) -> ThreadRecord:
    """Bring back the thread of that name that was deleted last, unless `gc` has dropped it."""
    with existing(target) as store:
        return bring_back(store, name)


@checked_function
def search(
    target: Target,
    query: str,
    limit: int = LIMIT,
    *,
    thread: str | None = None,
    role: str | None = None,
    branch: str | None = None,
    since: Moment = None,
    until: Moment = None,
    regex: bool = False,
) -> list[Hit]:
    """What all threads of a store ever said that has these words, live first, then the newest.

    Every `Hit` names its thread. The filters are those of `Thread.search`; `thread` looks through
    one alone, and `branch` through the threads that have such a branch.
    """
    only = make_filter(role, branch, since, until, regex)
    with existing(target) as store:
        return search_all(store, query, limit, only, thread)


@contextmanager
def existing(target: Target) -> Generator[Store]:
    """A store that must be there, for the length of a `with`; one that was open stays open."""
    if target is not None and not isinstance(target, str | Path):
        yield _opened(target)
        return
    if target is not None and "://" not in str(target) and not Path(target).exists():
        raise StoreError(f"there is no store at {str(target)!r}")
    store = open_store(target)
    try:
        yield store
    finally:
        store.close()


def _opened(target: Any) -> Store:
    """The open store that was given; anything else is refused."""
    if not hasattr(target, "ensure_thread"):
        wrong = f"must be a path, an address or an open store, not {type(target).__name__}"
        raise WrongValue("target", wrong)
    return target
