"""Import and export of conversations: bytes in, bytes out.

- `import_file` imports a file into one open thread. Imported messages go through that handle's
  hooks and budget, and the file is imported whole or not at all.
- `import_bytes` imports a file, or an archive of whole threads, into a store. Hooks and budgets
  belong to open threads, so none apply here.
- `export_bytes` writes one branch in another format and also returns the losses.
- `write_session` writes a thread, as it was at any commit, as a session that a client can resume.

The result of an import (`Imported`) says how many messages were new, which branches were created,
which lines are not messages, and what was wrong with the file.
"""

from codecs import BOM_UTF8
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from time import time
from typing import NamedTuple

from msgspec import Struct

from weft.errors import Damaged, NotFound, StoreError, ThreadError
from weft.history import find_folder, visible_rows
from weft.ids import Id
from weft.model import Loss
from weft.store import Store, ThreadRecord
from weft.thread.compiled import to_dicts
from weft.thread.handle import Handle
from weft.thread.info import Imported, Progress
from weft.thread.sessions import (
    LOCAL_SCOPE,
    PREFIXES,
    find_local_thread,
    link_parent,
    link_session,
    session_id,
    session_name,
)
from weft.thread.source_lines import read_source_lines

from . import claude_code, codex
from .archive import is_archive, read_archive, restore_archive, write_archive
from .bodies import (
    DICTS,
    LIST_FORMATS,
    dump,
    guess_format,
    parse,
    read_messages_file,
    untouched_file,
    write_body,
)
from .commit import commit_plan
from .document import Render, write_html, write_markdown
from .journal import ROOT
from .plan import CompactionStep, ImportPlan, MessageStep, read_object

GZIP_MAGIC = b"\x1f\x8b"
SAMPLE_LINES = 20
"""How many lines are read to detect a format."""


class _SessionFormat(NamedTuple):
    """The functions of one client's session files."""

    read: Callable[[bytes, Progress | None], ImportPlan]
    write: Callable[[Handle, str], bytes]
    rename: Callable[[bytes, str], bytes]
    read_folder: Callable[[bytes], str | None]
    read_project: Callable[[bytes], str | None]


SESSIONS = {
    claude_code.FORMAT: _SessionFormat(
        claude_code.read_claude_code,
        claude_code.write_claude_code,
        claude_code.rename_session,
        claude_code.read_folder,
        claude_code.read_project,
    ),
    codex.FORMAT: _SessionFormat(
        codex.read_codex,
        codex.write_codex,
        codex.rename_session,
        codex.read_folder,
        codex.read_folder,
    ),
}
HTML, MARKDOWN = "html", "markdown"
ARCHIVE = "archive"
IMPORTS = (*SESSIONS, *LIST_FORMATS)
"""The formats that can be imported into one thread."""

EXPORTS = (*IMPORTS, HTML, MARKDOWN)
"""The formats that a branch can be exported to; the last two are documents of the whole thread."""

IMPORT_FORMATS = (*IMPORTS, ARCHIVE)
EXPORT_FORMATS = (*EXPORTS, ARCHIVE)
DEFAULT_THREAD = "default"


@contextmanager
def _refusing_deep_nesting() -> Generator[None]:
    """Raise `ThreadError` for a file whose JSON is nested more deeply than Python can read."""
    try:
        yield
    except RecursionError:
        raise ThreadError("it is nested too deeply") from None


def import_file(
    handle: Handle, data: bytes, format: str | None = None, progress: Progress | None = None
) -> Imported:
    """Import a file into the handle's thread; importing it twice changes nothing."""
    data = decompress(data)
    if is_archive(data):
        raise ThreadError("an archive contains whole threads; import it into a store")
    with _refusing_deep_nesting():
        plan = read_plan(data, format, progress)
    return import_plan(handle, plan, progress)


def import_plan(handle: Handle, plan: ImportPlan, progress: Progress | None = None) -> Imported:
    """Import a parsed file; raises `ThreadError` if it has no messages.

    If its session is linked to no other thread, it is linked to this one.
    """
    messages = count_messages(plan)
    committed = commit_plan(handle, plan, progress)
    session = plan.session
    if session is not None and find_local_thread(handle.store, session) in (None, handle.name):
        link_session(handle.store, handle.name, session)
        parent = None if plan.parent is None else session_name(plan.format, plan.parent)
        link_parent(handle.store, handle.name, session, parent)
    return Imported(
        thread=handle.name,
        format=plan.format,
        messages=messages,
        new=committed.new,
        lines=plan.lines,
        branches=dict(committed.branches),
        renamed=dict(committed.renamed),
        kept=dict(plan.other_lines),
        remarks=plan.remarks,
        behind=committed.behind,
    )


def count_messages(plan: ImportPlan) -> int:
    """The number of messages in a file; raises `ThreadError` if there is none."""
    messages = sum(isinstance(step, MessageStep) for step in plan.steps)
    if not messages and not any(isinstance(step, CompactionStep) for step in plan.steps):
        raise ThreadError("there is no message in this file")
    return messages


def decompress(data: bytes) -> bytes:
    """The file, decompressed if it is gzip, without a byte order mark."""
    if not data.startswith(GZIP_MAGIC):
        return data.removeprefix(BOM_UTF8)
    try:
        import gzip

        return gzip.decompress(data).removeprefix(BOM_UTF8)
    except (OSError, EOFError) as error:
        raise Damaged(f"the file cannot be decompressed: {error}") from None


def read_plan(
    data: bytes, format: str | None = None, progress: Progress | None = None
) -> ImportPlan:
    """Parse a file; raises `ThreadError` if no reader supports it."""
    name = format or detect_format(data)
    if name in SESSIONS:
        return SESSIONS[name].read(data, progress)
    if name in LIST_FORMATS:
        return read_messages_file(data, name)
    raise ThreadError(f"unknown import format {name!r}; supported: {', '.join(IMPORTS)}")


def detect_format(data: bytes) -> str:
    """Detect the format of a file from members that only one format has."""
    for raw in data.split(b"\n", SAMPLE_LINES)[:SAMPLE_LINES]:
        value = read_object(raw)
        if value is None:
            continue
        if "sessionId" in value or "parentUuid" in value or "leafUuid" in value:
            return claude_code.FORMAT
        if "payload" in value and "type" in value:
            return codex.FORMAT
    format = guess_format(parse(data))
    if format is None:
        raise ThreadError(
            f"this is not a conversation that Weft can import; supported: {', '.join(IMPORTS)}"
        )
    return format


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
    """Import a file into a store; importing it twice changes nothing.

    Without `thread`, a session goes into its own thread (`weft.thread.sessions`). A new thread is
    named after the session's id. A list of messages goes into `name`. An archive contains the names
    of its threads.
    """
    data = decompress(data)
    if format == ARCHIVE or (format is None and is_archive(data)):
        if thread is not None:
            raise ThreadError("an archive contains the names of its threads: leave out `thread`")
        with _refusing_deep_nesting():
            return _import_archive(store, data, clock())
    with _refusing_deep_nesting():
        plan = read_plan(data, format, progress)
    count_messages(plan)
    with store.transaction():
        session_thread = None if plan.session is None else find_local_thread(store, plan.session)
        target = thread or session_thread or plan.name or name or DEFAULT_THREAD
        started = next((step.created for step in plan.steps if step.created is not None), None)
        record = store.ensure_thread(target, created=clock() if started is None else started)
        handle = Handle(store, record, clock=clock)
        imported = import_plan(handle, plan, progress)
        if record.folder is None:
            _store_folder(handle, plan.format, data)
        return [imported]


def _store_folder(handle: Handle, format: str, data: bytes) -> None:
    """Store the project folder of an imported conversation, if the file names one."""
    if format in SESSIONS:
        folder = SESSIONS[format].read_project(data)
    else:
        head = handle.head()
        rows = () if head is None else handle.view(head).rows
        folder = find_folder(row.message for row in rows)
    if folder is not None:
        handle.store.describe_thread(handle.name, folder=folder)


def export_bytes(
    store: Store,
    thread: str,
    format: str,
    *,
    branch: str | None = None,
    model: str | None = None,
    render: Render | None = None,
    folder: str = ROOT,
) -> tuple[bytes, tuple[Loss, ...]]:
    """One branch in another format, and the losses.

    `html` and `markdown` are documents of the whole thread; `render` converts Markdown to HTML.

    `folder` is the working directory of a session that does not name its own. A session file under
    a new id is linked to the thread, so that the client's later messages continue this thread.
    """
    record = store.read_thread(thread)
    if record is None:
        raise ThreadError(f"there is no thread {thread!r}")
    if branch is not None and store.read_ref(thread, branch) is None:
        raise NotFound("branch", branch)
    handle = Handle(store, record, branch=branch)
    if handle.head() is None:
        raise ThreadError(f"branch {handle.branch!r} of {thread!r} is empty")
    exported = write_export(handle, format, model, render, folder)
    if format in PREFIXES and read_origin(store, thread) != format:
        _link_export(store, thread, format)
    return exported


def write_export(
    handle: Handle,
    format: str,
    model: str | None = None,
    render: Render | None = None,
    folder: str = ROOT,
) -> tuple[bytes, tuple[Loss, ...]]:
    """The handle's branch in one of `EXPORTS`, and the losses.

    A branch that was imported in that format, and not changed since, gives the imported file.
    `render` converts the Markdown in messages to HTML. `folder` is the working directory of a
    session that does not name its own.
    """
    if format not in EXPORTS:
        raise ThreadError(f"unknown export format {format!r}; supported: {', '.join(EXPORTS)}")
    if format == HTML:
        return write_html(handle, render), ()
    if format == MARKDOWN:
        return write_markdown(handle), ()
    if format in SESSIONS:
        return SESSIONS[format].write(handle, folder), ()
    if format == DICTS:
        rows = handle.view(handle.head()).rows
        return untouched_file(handle, format) or dump(to_dicts(visible_rows(rows))), ()
    return write_body(handle, format, model)


class SessionFile(Struct, frozen=True, kw_only=True):
    """A session file that a client can resume; `folder` is where the client must be started."""

    session: str
    format: str
    data: bytes
    folder: str


class _CommitHandle(Handle):
    """A handle on a thread as it was at one commit."""

    def __init__(self, store: Store, record: ThreadRecord, commit: Id) -> None:
        super().__init__(store, record)
        self._commit = commit

    def head(self) -> Id | None:
        return self._commit


def write_session(
    store: Store,
    thread: str,
    format: str,
    session: str,
    *,
    commit: str | None = None,
    folder: str = ROOT,
    scope: str = LOCAL_SCOPE,
) -> SessionFile:
    """The thread as a session file under a new id, at its head or at another commit.

    The new id is linked to the thread, so the client's files and requests under it continue this
    thread. `folder` is the working directory of a session that does not name its own, and `scope`
    the caller of the gateway that the session belongs to.
    """
    record = store.read_thread(thread)
    if record is None:
        raise ThreadError(f"there is no thread {thread!r}")
    head = store.read_ref(thread, record.head) if commit is None else bytes.fromhex(commit)
    name = session_name(format, session)
    if head is None:
        raise ThreadError(f"branch {record.head!r} of {thread!r} is empty")
    if name is None:
        raise ThreadError(f"{format!r} has no sessions; use one of {', '.join(PREFIXES)}")
    data, _ = write_export(_CommitHandle(store, record, head), format, folder=folder)
    link_session(store, thread, name, scope)
    return SessionFile(
        session=session,
        format=format,
        data=SESSIONS[format].rename(data, session),
        folder=SESSIONS[format].read_folder(data) or folder,
    )


def _link_export(store: Store, thread: str, format: str) -> None:
    """Link the new session id of an export to its thread."""
    name = session_name(format, session_id(format, thread))
    with suppress(StoreError):  # the store may be read-only
        if name is not None and find_local_thread(store, name) is None:
            link_session(store, thread, name)


def read_origin(store: Store, thread: str) -> str | None:
    """The format of the file that the thread's branch was imported from, if it can be exported."""
    record = store.read_thread(thread)
    head = None if record is None else store.read_ref(thread, record.head)
    for step in [] if head is None else store.walk(thread, head):
        source = read_source_lines(step)
        if source is not None and source.format in EXPORTS:
            return source.format
    return None


def archive_bytes(store: Store, threads: Sequence[str]) -> bytes:
    """An archive of whole threads, which `import_bytes` restores."""
    return b"".join(write_archive(store, threads))


def _import_archive(store: Store, data: bytes, now: float) -> list[Imported]:
    archive = read_archive(data)
    new_commits = restore_archive(store, archive, now)
    return [
        Imported(
            thread=thread.record.name,
            format=ARCHIVE,
            messages=sum(commit.kind == "append" for commit in thread.commits),
            new=new_commits[thread.record.name],
            branches={name: target.hex() for name, target in thread.refs.items()},
            renamed={},
            kept={},
        )
        for thread in archive.threads
    ]
