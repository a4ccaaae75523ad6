"""Threads as a whole: rename, delete, bring back.

A deleted thread is kept under a name that nobody can give (`weft.store.deleted_name`), so it is not
listed, searched or matched, and its old name is free. `gc` drops it for good when its time is over.
"""

from msgspec import structs

from weft.errors import NotFound, StoreError, ThreadError
from weft.store import Store, ThreadRecord, deleted_name, read_deleted_name

from .arguments import check_name
from .handle import Handle


def check_thread_name(name: str) -> str:
    """The name, if a thread may have it."""
    if not check_name("thread", name).strip():
        raise ThreadError("a thread needs a name that is not blank")
    return name


def rename(handle: Handle, name: str) -> None:
    """Give the thread another name; the handle goes on under it."""
    check_thread_name(name)
    with handle.lock:
        if name == handle.name:
            return
        try:
            handle.store.rename_thread(handle.name, name)
        except StoreError as error:
            raise ThreadError(str(error)) from None
        handle.name = name


def delete(handle: Handle) -> None:
    """Take the thread away; the handle is of no use afterwards."""
    with handle.lock:
        handle.store.rename_thread(handle.name, deleted_name(handle.name, handle.clock()))


def undelete(store: Store, name: str) -> ThreadRecord:
    """Bring back the thread of that name that was deleted last."""
    check_thread_name(name)
    with store.transaction():
        found = [record for record in store.threads(deleted=True) if _old_name(record) == name]
        if not found:
            raise NotFound("deleted thread", name)
        newest = max(found, key=lambda record: read_deleted_name(record.name) or ("", 0.0))
        try:
            store.rename_thread(newest.name, name)
        except StoreError:
            line = f"there is a thread {name!r} again: rename it, and bring the deleted one back"
            raise ThreadError(line) from None
    return structs.replace(newest, name=name)


def list_deleted(store: Store) -> list[ThreadRecord]:
    """The deleted threads under their old names, with the time of deletion, oldest first."""
    found: list[ThreadRecord] = []
    for record in store.threads(deleted=True):
        read = read_deleted_name(record.name)
        if read is not None:
            found.append(structs.replace(record, name=read[0], deleted=read[1]))
    return sorted(found, key=lambda record: record.deleted or 0.0)


def _old_name(record: ThreadRecord) -> str | None:
    read = read_deleted_name(record.name)
    return None if read is None else read[0]
