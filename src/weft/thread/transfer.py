"""The doors for conversations that come from elsewhere or go there: bytes in, bytes out.

An import says what it did: how many messages, which lines it kept aside, where it had to bridge a
broken chain, and which branches it made. An export says what its format could not.

A file that is given to a store meets no hook and no budget: those are set on an open thread, and
`Thread.import_bytes` takes a file past them.
"""

from collections.abc import Callable, Sequence
from time import time

from weft.errors import NotFound, ThreadError
from weft.model import Loss
from weft.store import Store

from .archive import is_archive, read_archive, restore_archive, write_archive
from .exporting import EXPORTS, write_export
from .handle import Handle
from .importing import IMPORTS, Progress, read_script
from .source_lines import read_attachment
from .taking import Imported, check_said, take_script, unpacked

ARCHIVE = "archive"
IMPORT_FORMATS = (*IMPORTS, ARCHIVE)
EXPORT_FORMATS = (*EXPORTS, ARCHIVE)
DEFAULT_THREAD = "default"


def import_bytes(
    store: Store,
    data: bytes,
    *,
    thread: str | None = None,
    name: str | None = None,
    format: str | None = None,
    progress: Progress | None = None,
    clock: Callable[[], float] = time,
) -> list[Imported]:
    """Take a file into a store; twice is the same as once.

    Without `thread` a session goes to the thread of its own id and a list to `name`. An archive
    brings its threads' names along.
    """
    data = unpacked(data)
    if format == ARCHIVE or (format is None and is_archive(data)):
        if thread is not None:
            raise ThreadError("an archive brings the names of its threads along")
        return _restored(store, data, clock())
    script = read_script(data, format, progress)
    check_said(script)
    owner = thread or script.name or name or DEFAULT_THREAD
    with store.transaction():
        record = store.ensure_thread(owner, created=clock())
        return [take_script(Handle(store, record, clock=clock), script, progress)]


def export_bytes(
    store: Store,
    thread: str,
    format: str,
    *,
    branch: str | None = None,
    model: str | None = None,
) -> tuple[bytes, tuple[Loss, ...]]:
    """One branch in another's format, and what that format could not say."""
    record = store.read_thread(thread)
    if record is None:
        raise ThreadError(f"there is no thread {thread!r}")
    if branch is not None and store.read_ref(thread, branch) is None:
        raise NotFound("branch", branch)
    handle = Handle(store, record, branch=branch)
    if handle.head() is None:
        raise ThreadError(f"branch {handle.branch!r} of {thread!r} is empty")
    return write_export(handle, format, model)


def read_origin(store: Store, thread: str) -> str | None:
    """The format of the file that the thread's branch was imported from, if it can be written."""
    record = store.read_thread(thread)
    head = None if record is None else store.read_ref(thread, record.head)
    for step in [] if head is None else store.walk(thread, head):
        kept = read_attachment(step)
        if kept is not None and kept.format in EXPORTS:
            return kept.format
    return None


def archive_bytes(store: Store, threads: Sequence[str]) -> bytes:
    """An archive of whole threads, which `import_bytes` restores."""
    return b"".join(write_archive(store, threads))


def _restored(store: Store, data: bytes, now: float) -> list[Imported]:
    archive = read_archive(data)
    new = restore_archive(store, archive, now)
    return [
        Imported(
            thread=parcel.record.name,
            format=ARCHIVE,
            messages=sum(commit.kind == "append" for commit in parcel.commits),
            new=new[parcel.record.name],
            branches={name: target.hex() for name, target in parcel.refs.items()},
            renamed={},
            kept={},
        )
        for parcel in archive.threads
    ]
