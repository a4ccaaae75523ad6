"""The archive format: whole threads in one file, for any store, with the same ids.

The file consists of JSON lines. `docs/archive.md` lists every member.

1. The first line is `{"weft": "archive", "version": 2}`.
2. For each thread: its record; its commits, parents first; its attempts at answers; and its log.
   The entries of a commit (its messages) come before it, unless an earlier commit of the file has
   them.
3. The last line has the number of lines before it and the SHA-256 of their bytes, so a truncated or
   changed file is detected before anything is written.

Entries and commits are stored as the bytes that their ids are computed from, and the reader checks
the ids. Refs, tags and the current branch follow from the log. If the log does not lead to them
(garbage collection removed its oldest commits), each ref is restored by a `restore` operation, and
the thread gets a new log.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct, field, structs

from weft.errors import Damaged, ThreadError
from weft.history import commit_id, decode_attempt, decode_entry, read_operations
from weft.ids import Id, object_id
from weft.model import Checkpoint
from weft.store import (
    AttemptRecord,
    CommitRecord,
    Landing,
    ObjectKind,
    Operation,
    Step,
    Store,
    ThreadRecord,
    TombstoneReason,
)

VERSION = 2
FIRST_BYTES = b'{"weft":"archive"'
CHUNK = 500
"""How many commits are read at once."""

RESTORE = "restore"
ABSENT = Raw(b"null")


class FirstLine(Struct, frozen=True):
    weft: str
    version: int


class EntryLine(Struct, frozen=True, omit_defaults=True):
    """An entry; `buried` is the reason if the original content was removed."""

    entry: str
    data: Raw
    buried: TombstoneReason | None = None


class CommitLine(Struct, frozen=True, omit_defaults=True):
    commit: str
    kind: str
    parents: tuple[str, ...]
    entries: tuple[str, ...]
    data: Raw
    created: float
    usage: Raw = ABSENT
    chain: str | None = None
    buried: TombstoneReason | None = None


class AttemptLine(Struct, frozen=True):
    attempt: str  # the commit that it tried to answer
    state: str
    data: Raw
    created: float


class LogLine(Struct, frozen=True, omit_defaults=True):
    verb: str
    ref: str
    created: float
    old: str | None = None
    new: str | None = None
    from_branch: str | None = field(default=None, name="was")
    batch: bool = False  # whether it continues the batch of the operation before it


class ThreadLine(Struct, frozen=True):
    thread: ThreadRecord
    refs: dict[str, str]


class LastLine(Struct, frozen=True):
    end: int  # how many lines are before this one
    sha256: str


class ArchivedThread(Struct):
    """One thread of an archive, parsed and checked."""

    record: ThreadRecord
    refs: dict[str, Id]
    commits: list[CommitRecord]
    log: list[Operation]
    attempts: list[AttemptRecord] = field(default_factory=list[AttemptRecord])
    ids: set[Id] = field(default_factory=set[Id])


class Archive(Struct, frozen=True):
    """An archive, parsed and checked.

    `removed` has the reason for each entry and commit whose original content was removed.
    """

    entries: dict[Id, bytes]
    threads: list[ArchivedThread]
    removed: dict[tuple[ObjectKind, Id], TombstoneReason]


def write_archive(store: Store, threads: Sequence[str]) -> Iterator[bytes]:
    """Write an archive of these threads, line by line."""
    digest = sha256()
    count = 0
    for line in _lines(store, threads):
        data = msgspec.json.encode(line) + b"\n"
        digest.update(data)
        count += 1
        yield data
    yield msgspec.json.encode(LastLine(count, digest.hexdigest())) + b"\n"


def is_archive(data: bytes) -> bool:
    """Whether a file starts like an archive."""
    return data.startswith(FIRST_BYTES)


def read_archive(data: bytes) -> Archive:
    """Parse and check an archive; raises `Damaged` if its bytes were changed."""
    lines = data.split(b"\n")
    if lines.pop() != b"" or not lines:
        raise Damaged("the archive ends in the middle of a line")
    try:
        first = msgspec.json.decode(lines[0], type=FirstLine)
        if first.version > VERSION:
            raise ThreadError(
                f"this archive has version {first.version}; weft reads versions up to {VERSION}"
            )
        last = msgspec.json.decode(lines[-1], type=LastLine)
    except msgspec.DecodeError as error:
        raise Damaged(f"the first or last line of the archive is invalid: {error}") from None
    body = b"".join(line + b"\n" for line in lines[:-1])
    if last.end != len(lines) - 1 or last.sha256 != sha256(body).hexdigest():
        raise Damaged("the archive's bytes do not match its checksum")
    return _read_lines(lines[1:-1])


def restore_archive(store: Store, archive: Archive, created: float) -> dict[str, int]:
    """Restore every thread of an archive; returns the number of new commits of each.

    An existing thread with the same log does not change. If its log is a prefix of the archived
    log, the later operations are added. Otherwise `ThreadError` is raised and nothing is written.
    """
    new_commits: dict[str, int] = {}
    with store.transaction():
        for thread in archive.threads:
            record = thread.record
            store.ensure_thread(
                record.name,
                created=record.created,
                checkpoints=record.checkpoints,
                scope=record.scope,
            )
        for thread in archive.threads:  # a thread's parent may come after it in the archive
            new_commits[thread.record.name] = _restore(store, thread, archive.entries, created)
            _write_tombstones(store, thread, archive, created)
    return new_commits


def _lines(store: Store, threads: Sequence[str]) -> Iterator[Any]:
    """All lines but the last one."""
    yield FirstLine("archive", VERSION)
    written_entries: set[Id] = set()
    reasons = _tombstone_reasons(store)
    for name in threads:
        record = store.read_thread(name)
        if record is None:
            raise ThreadError(f"there is no thread {name!r}")
        refs = {ref: target.hex() for ref, target in store.refs(name).items()}
        yield ThreadLine(record, refs)
        for step in _all_commits(store, name):
            commit = step.commit
            for id, data in zip(commit.entries, step.contents, strict=True):
                if id not in written_entries:
                    written_entries.add(id)
                    yield EntryLine(id.hex(), Raw(data), reasons.get(("entry", id)))
            yield CommitLine(
                commit.id.hex(),
                commit.kind,
                tuple(parent.hex() for parent in commit.parents),
                tuple(entry.hex() for entry in commit.entries),
                Raw(commit.data),
                commit.created,
                ABSENT if commit.usage is None else Raw(commit.usage),
                None if commit.chain is None else commit.chain.hex(),
                reasons.get(("commit", commit.id)),
            )
        for attempt in [*store.attempts(name), *store.call_records(name)]:
            yield AttemptLine(
                attempt.commit.hex(), attempt.state, Raw(attempt.data), attempt.created
            )
        previous_batch: int | None = None
        for op in reversed(list(read_operations(store, name))):
            continues_batch = op.batch is not None and op.batch == previous_batch
            previous_batch = op.batch
            yield LogLine(
                op.verb,
                op.ref,
                op.created,
                _hex(op.old),
                _hex(op.new),
                op.from_branch,
                continues_batch,
            )


def _tombstone_reasons(store: Store) -> dict[tuple[str, Id], TombstoneReason]:
    """The reason for each entry and commit whose original content was removed."""
    tombstones = store.maintenance().tombstones()
    return {key: cast(TombstoneReason, tombstone.reason) for key, tombstone in tombstones.items()}


def _all_commits(store: Store, thread: str) -> Iterator[Step]:
    """Every commit of a thread, parents first, including undone ones."""
    ids = store.find(thread, prefix="", limit=store.count(thread))  # all: every id starts with ""
    nodes = sorted(
        (node for chunk in _chunks(ids) for node in store.read_nodes(thread, chunk)),
        key=lambda node: (node.depth, node.id),
    )
    for chunk in _chunks([node.id for node in nodes]):
        yield from store.read_commits(thread, chunk)


def _read_lines(lines: Sequence[bytes]) -> Archive:
    archive = Archive({}, [], {})
    for number, line in enumerate(lines, start=2):
        try:
            _read_line(line, archive)
        except (msgspec.DecodeError, ValueError, IndexError) as error:
            raise Damaged(f"line {number} of the archive cannot be read: {error}") from None
    return archive


def _read_line(line: bytes, archive: Archive) -> None:
    if line.startswith(b'{"entry"'):
        _read_entry(msgspec.json.decode(line, type=EntryLine), archive)
    elif line.startswith(b'{"commit"'):
        _read_commit(msgspec.json.decode(line, type=CommitLine), archive)
    elif line.startswith(b'{"attempt"'):
        _read_attempt(msgspec.json.decode(line, type=AttemptLine), archive)
    elif line.startswith(b'{"verb"'):
        _read_operation(msgspec.json.decode(line, type=LogLine), archive)
    else:
        thread = msgspec.json.decode(line, type=ThreadLine)
        refs = {name: bytes.fromhex(target) for name, target in thread.refs.items()}
        archive.threads.append(ArchivedThread(thread.thread, refs, [], []))


def _read_entry(line: EntryLine, archive: Archive) -> None:
    id, data = bytes.fromhex(line.entry), bytes(line.data)
    if line.buried is not None:
        archive.removed["entry", id] = line.buried
    elif object_id("entry", data) != id:
        raise ValueError(f"the content of entry {line.entry} does not match its id")
    archive.entries[id] = data


def _read_commit(line: CommitLine, archive: Archive) -> None:
    id = bytes.fromhex(line.commit)
    parents = tuple(bytes.fromhex(parent) for parent in line.parents)
    entries = tuple(bytes.fromhex(entry) for entry in line.entries)
    data = bytes(line.data)
    if line.buried is not None:
        archive.removed["commit", id] = line.buried
    elif commit_id(line.kind, parents, entries, data) != id:
        raise ValueError(f"the content of commit {line.commit} does not match its id")
    missing = [entry.hex() for entry in entries if entry not in archive.entries]
    if missing:
        raise ValueError(f"entry {missing[0]} of commit {line.commit} is missing")
    usage = None if line.usage == ABSENT else bytes(line.usage)
    chain = _id(line.chain)
    archive.threads[-1].ids.add(id)
    archive.threads[-1].commits.append(
        CommitRecord(id, parents, line.kind, entries, data, line.created, usage, chain)
    )


def _read_attempt(line: AttemptLine, archive: Archive) -> None:
    commit = bytes.fromhex(line.attempt)
    if commit not in archive.threads[-1].ids:
        raise ValueError(f"commit {line.attempt} of an attempt is missing")
    record = AttemptRecord(commit, line.state, bytes(line.data), line.created)
    decode_attempt(record)
    archive.threads[-1].attempts.append(record)


def _read_operation(line: LogLine, archive: Archive) -> None:
    """Add an operation to the log; a batch has the number of its first operation."""
    log = archive.threads[-1].log
    batch = None
    if line.batch and log:
        batch = log[-1].batch or log[-1].seq
        log[-1] = structs.replace(log[-1], batch=batch)
    seq, old, new = len(log) + 1, _id(line.old), _id(line.new)
    log.append(Operation(seq, line.verb, line.ref, old, new, line.from_branch, line.created, batch))


def _restore(
    store: Store, thread: ArchivedThread, entries: Mapping[Id, bytes], created: float
) -> int:
    """Restore one thread; returns the number of its new commits."""
    record = thread.record
    # A parent that is in neither the archive nor the store is left out.
    parent = None if record.parent is None else store.read_thread(record.parent)
    store.describe_thread(
        record.name,
        parent=None if parent is None else parent.name,
        kind=record.kind,
        title=record.title,
        agent=record.agent,
        folder=record.folder,
    )
    existing_log = [_comparable(op) for op in reversed(list(read_operations(store, record.name)))]
    log = _restorable_log(thread, created)
    if existing_log != [_comparable(op) for op in log[: len(existing_log)]]:
        raise ThreadError(
            f"thread {record.name!r} already exists and has diverged from the archive"
        )
    count_before = store.count(record.name)
    own_entries = {id: entries[id] for commit in thread.commits for id in commit.entries}
    for number, op in enumerate(log[len(existing_log) :]):
        is_first = number == 0  # all commits are written with the first operation
        store.land(
            record.name,
            Landing(
                verb=op.verb,
                ref=op.ref,
                old=op.old,
                new=op.new,
                created=op.created,
                from_branch=op.from_branch,
                entries=tuple(own_entries.items()) if is_first else (),
                commits=tuple(thread.commits) if is_first else (),
                checkpoints=tuple(_checkpoint_ids(own_entries.values())) if is_first else (),
            ),
        )
    _restore_batches(store, record.name, log, len(existing_log))
    existing_attempts = {*store.attempts(record.name), *store.call_records(record.name)}
    for attempt in thread.attempts:
        if attempt not in existing_attempts:
            store.add_attempt(record.name, attempt)
    return store.count(record.name) - count_before


def _restore_batches(
    store: Store, thread: str, log: Sequence[Operation], existing_count: int
) -> None:
    """Mark the batches among the operations that were added to the log."""
    # The number of the first operation of each batch -> that of its last one.
    batches: dict[int, int] = {op.batch: op.seq for op in log if op.batch is not None}
    if batches:
        # The archived log counts from 1. The store's numbers are higher if maintenance removed its
        # oldest operations.
        offset = store.operations(thread, limit=1)[0].seq - len(log)
        for first, last in batches.items():
            if first > existing_count:
                store.mark_batch(thread, first + offset, last + offset)


def _write_tombstones(
    store: Store, thread: ArchivedThread, archive: Archive, created: float
) -> None:
    """Write tombstones for removed content, unless the store still has the content."""
    if not archive.removed:
        return
    maintenance = store.maintenance()
    for chunk in _chunks([commit.id for commit in thread.commits]):
        for step in store.read_commits(thread.record.name, chunk):
            for kind, id, data in _objects_without_original(step):
                reason = archive.removed.get((kind, id))
                if reason is not None:
                    maintenance.write_tombstone(kind, id, data, reason, created)


def _objects_without_original(step: Step) -> Iterator[tuple[ObjectKind, Id, bytes]]:
    """The commit and the entries whose content does not match the id."""
    commit = step.commit
    for id, data in zip(commit.entries, step.contents, strict=True):
        if object_id("entry", data) != id:
            yield "entry", id, data
    if commit_id(commit.kind, commit.parents, commit.entries, commit.data) != commit.id:
        yield "commit", commit.id, commit.data


def _restorable_log(thread: ArchivedThread, created: float) -> list[Operation]:
    """The archived log if it leads to the refs; otherwise the shortest log that does."""
    if _leads_to_refs(thread):
        return thread.log
    log = [
        Operation(number, RESTORE, name, None, target, None, created)
        for number, (name, target) in enumerate(thread.refs.items(), start=1)
    ]
    head = thread.record.head
    if head != "main" and head in thread.refs:
        target = thread.refs[head]  # a switch from `main` to the current branch
        log.append(Operation(len(log) + 1, RESTORE, head, target, target, "main", created))
    return log


def _leads_to_refs(thread: ArchivedThread) -> bool:
    """Whether the operations of the log, one after the other, result in the thread's refs."""
    commits = {commit.id for commit in thread.commits}
    refs: dict[str, Id] = {}
    for op in thread.log:
        commit_ids = {id for id in (op.old, op.new) if id is not None}
        if not commit_ids <= commits or refs.get(op.ref) != op.old:
            return False
        if op.new is None:
            refs.pop(op.ref, None)
        else:
            refs[op.ref] = op.new
    return refs == thread.refs


def _comparable(op: Operation) -> tuple[Any, ...]:
    """The members that two logs are compared by. Times are left out: stores round them."""
    return op.verb, op.ref, op.old, op.new, op.from_branch


def _checkpoint_ids(contents: Iterable[bytes]) -> Iterator[str]:
    for content in contents:
        if b'"checkpoint"' in content:  # only these are decoded: most entries have none
            blocks = decode_entry(content).blocks
            yield from (block.id for block in blocks if isinstance(block, Checkpoint))


def _chunks(ids: Sequence[Id]) -> Iterator[Sequence[Id]]:
    for start in range(0, len(ids), CHUNK):
        yield ids[start : start + CHUNK]


def _hex(id: Id | None) -> str | None:
    return None if id is None else id.hex()


def _id(text: str | None) -> Id | None:
    return None if text is None else bytes.fromhex(text)
