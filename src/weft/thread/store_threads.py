"""The threads of a store: open, list, search, name, find and undelete them.

A deleted thread is stored under a name that no thread can be given (`weft.store.deleted_name`), so
it is not listed, searched or matched, and its old name is free. `gc` removes it for good after its
retention time.

`find_prefix` finds the thread that a stateless request continues, by its longest known prefix.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from time import time
from typing import Any, cast

from msgspec import Struct, structs

from weft.checked import checked_function
from weft.errors import NotFound, StoreError, ThreadError, WrongValue
from weft.history import View, chain_messages, read_branches, without_client_text
from weft.ids import Id
from weft.lazy import lazy_pattern
from weft.model import Message, is_system
from weft.store import (
    Store,
    ThreadRecord,
    check_address,
    descendants,
    open_store,
    read_deleted_name,
)

from .arguments import check_name, check_thread_name
from .asker import Models
from .handle import Handle
from .hooks import Budget, check_budget
from .lookup import LIMIT, Hit, Moment, make_filter, search_all
from .thread import Thread

Target = str | Path | Store | None

CLIENT_PREFIX = lazy_pattern(r"^(?:claude|codex|session)-")
"""The prefix of a session's id in the name of its thread."""

TITLE_COMMITS = 16
"""How many of the first commits are read for a title."""


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
    """The thread with this name; it is created if it does not exist.

    - `target`: a path, a database URL, `None` for this process's memory, or an open store, which
      stays open when the thread is closed.
    - `branch`: an existing branch, or any name if the thread has none yet.
    - `scope`: makes the thread's messages findable by `find_prefix`.
    - `budget`: limits the compiled size of the thread, for this handle.
    - `models`: finds the `Asker` for a model's name. Without it, no model can be asked by name.
    """
    check_thread_name(thread)
    if branch is not None:
        check_name("branch", branch)
    owns_store = target is None or isinstance(target, str | Path)
    store = open_store(cast("str | Path | None", target)) if owns_store else _check_store(target)
    record = store.ensure_thread(thread, created=time(), checkpoints=checkpoints, scope=scope)
    if branch is not None and store.read_ref(thread, branch) is None:
        names = read_branches(store, thread)  # raises if a branch was lost, as this one may be
        if names and branch != record.head:
            if owns_store:
                store.close()
            advice = f"the branches are {', '.join(sorted(names))}; `t.branch` creates one"
            raise NotFound("branch", branch, advice)
    handle = Handle(store, record, branch=branch, budget=check_budget(budget), models=models)
    return Thread(handle, owns_store=owns_store)


@checked_function
def threads(target: Target = None, *, deleted: bool = False) -> list[ThreadRecord]:
    """The threads of a store, oldest first; a missing file is not created.

    With `deleted`, the deleted threads that `undelete` can still restore, under their old names and
    with the time of deletion.
    """
    with open_existing(target) as store:
        if not deleted:
            return store.threads()
        records: list[ThreadRecord] = []
        for record in store.threads(deleted=True):
            original = read_deleted_name(record.name)
            if original is not None:
                name, deleted_at = original
                records.append(structs.replace(record, name=name, deleted=deleted_at))
        return sorted(records, key=lambda record: record.deleted or 0.0)


def match_names(names: Iterable[str], name_or_prefix: str) -> list[str]:
    """The threads that match a name or a prefix; an exact match excludes all others.

    It may also be the beginning of a session's id, without the `claude-` or `codex-` before it.
    If only a session and its children (`SESSION.AGENT`) match, the result is the session.
    """
    candidates = [
        name
        for name in names
        if name.startswith(name_or_prefix) or CLIENT_PREFIX.sub("", name).startswith(name_or_prefix)
    ]
    if name_or_prefix in candidates:
        return [name_or_prefix]
    shortest = min(candidates, key=len, default="")
    is_parent = all(name == shortest or name.startswith(f"{shortest}.") for name in candidates)
    return [shortest] if candidates and is_parent else candidates


@checked_function
def undelete(target: Target, name: str) -> ThreadRecord:
    """Restore the newest deleted thread with this name, unless `gc` has removed it.

    The children that were deleted with it are restored too.
    """
    check_thread_name(name)
    with open_existing(target) as store, store.transaction():
        deleted = store.threads(deleted=True)
        old_names: dict[str, str] = {}
        deletion_times: dict[str, float] = {}
        for record in deleted:
            original = read_deleted_name(record.name)
            if original is not None:
                old_names[record.name], deletion_times[record.name] = original
        candidates = [stored_name for stored_name in old_names if old_names[stored_name] == name]
        if not candidates:
            raise NotFound("deleted thread", name)
        newest = max(candidates, key=lambda stored_name: deletion_times[stored_name])
        for stored_name in (newest, *descendants(deleted, newest)):
            if deletion_times.get(stored_name) == deletion_times[newest]:
                _restore(store, stored_name, old_names[stored_name])
        (restored,) = [record for record in deleted if record.name == newest]
    return structs.replace(restored, name=name)


def _restore(store: Store, stored_name: str, name: str) -> None:
    """Give a deleted thread its old name."""
    try:
        store.rename_thread(stored_name, name)
    except StoreError:
        reason = f"there is a thread {name!r} again: rename it, then undelete the other"
        raise ThreadError(reason) from None


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
    path: str | None = None,
) -> list[Hit]:
    """Search all threads of a store for these words.

    Threads whose title or name has the words come first: hits of the kind `title` or `name`. Then
    come the messages of all threads, the most relevant first and among equals the newest, and then
    tags, notes and metadata. A smaller limit returns the first hits of a larger one. Every `Hit`
    names its thread, and says whether a model still sees the text (`Hit.live`).

    The filters are those of `Thread.search`. With `thread`, only that thread is searched. With
    `branch`, only the branch with this name is searched, in every thread that has one.
    """
    filter = make_filter(role, branch, since, until, regex, path)
    with open_existing(target) as store:
        return search_all(store, query, limit, filter, thread)


@contextmanager
def open_existing(target: Target) -> Generator[Store]:
    """Open a store that must exist, for the length of a `with`; an open store stays open."""
    if target is not None and not isinstance(target, str | Path):
        yield _check_store(target)
        return
    if target is not None and "://" not in str(target) and not Path(target).exists():
        check_address(str(target))
        raise StoreError(f"there is no store at {str(target)!r}")
    store = open_store(target)
    try:
        yield store
    finally:
        store.close()


def _check_store(target: Any) -> Store:
    """The target, if it is an open store."""
    if not hasattr(target, "ensure_thread"):
        kind = type(target).__name__
        raise WrongValue("target", f"must be a path, an address or an open store, not {kind}")
    return target


def read_title(store: Store, record: ThreadRecord) -> str | None:
    """The title of a thread in lists: the client's title, or the first text that a person typed.

    Only the first commits of the current branch are read. Text that a client or a tool added is
    ignored. If no person wrote anything, the title is the first other message, or the system
    prompt; `None` if the thread is empty. A compaction does not change the title.
    """
    if record.title is not None:
        return record.title
    head = store.read_ref(record.name, record.head)
    if head is None:
        return None
    steps = store.walk(record.name, head, until=TITLE_COMMITS)
    before_compaction = list(takewhile(lambda step: step.commit.kind != "compact", steps))
    rows = View().extend(before_compaction or steps).rows
    candidates = _title_candidates([row.message for row in rows])
    titles = (without_client_text(message) for message in candidates)
    return next((title for title in titles if title), None)


def _title_candidates(messages: list[Message]) -> Iterator[Message]:
    """User messages first, then all messages without system messages, then all."""
    yield from (message for message in messages if message.role == "user")
    yield from (message for message in messages if not is_system(message))
    yield from messages


class Prefix(Struct, frozen=True):
    """A known prefix: the first `length` messages of a request equal the thread at `commit`.

    `branch` is a branch with this commit as its head. If there is none, `is_head` is false, and
    `branch` contains the commit; to continue from there, the branch has to be forked.
    """

    thread: str
    branch: str
    commit: Id
    length: int
    is_head: bool


def find_prefix(store: Store, scope: str, messages: Sequence[Message]) -> Prefix | None:
    """The longest known prefix of these messages among the threads of a scope."""
    lengths: dict[bytes, int] = {}
    for length, chain in enumerate(chain_messages(scope, messages), start=1):
        if chain is not None:
            lengths[chain] = length
    matches = store.match(list(lengths))
    if not matches:
        return None
    longest = max(lengths[match.chain] for match in matches)
    longest_matches = [match for match in matches if lengths[match.chain] == longest]
    for match in longest_matches:  # newest first; a match at the head of a branch needs no fork
        for branch, head in read_branches(store, match.thread).items():
            if head == match.commit:
                return Prefix(match.thread, branch, match.commit, longest, True)
    for match in longest_matches:
        branch = _branch_through(store, match.thread, match.commit)
        if branch is not None:
            return Prefix(match.thread, branch, match.commit, longest, False)
    record = store.read_thread(longest_matches[0].thread)
    branch = "main" if record is None else record.head
    return Prefix(longest_matches[0].thread, branch, longest_matches[0].commit, longest, False)


def _branch_through(store: Store, thread: str, commit: Id) -> str | None:
    """A branch with this commit on its first-parent chain."""
    (node,) = store.read_nodes(thread, [commit])
    for branch, head in read_branches(store, thread).items():
        steps = store.walk(thread, head, after=node.depth - 1)
        if steps and steps[0].commit.id == commit:
            return branch
    return None
