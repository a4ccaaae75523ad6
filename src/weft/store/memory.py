"""The in-memory store: plain dictionaries, and the reference implementation of the contract.

Every write inside a transaction registers a function that reverts it, so the cost of a transaction
depends on what it changes. Maintenance and renames are rare and rewrite whole tables, so they work
on a copy of all tables; the originals are restored if the transaction fails.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import RLock
from typing import NoReturn, cast

from msgspec import Struct, field, structs

from weft.errors import RefMoved, StoreError
from weft.ids import Id

from .base import (
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
    ObjectKind,
    Operation,
    Step,
    ThreadRecord,
    Tombstone,
    TombstoneReason,
    Unindexed,
)
from .landing import DEFAULT_BRANCH, checksum, name_taken, no_thread


class ThreadTables(Struct):
    """One thread's tables."""

    record: ThreadRecord
    number: int
    commits: dict[Id, Step] = field(default_factory=dict[Id, Step])
    refs: dict[str, Id] = field(default_factory=dict[str, Id])
    log: list[Operation] = field(default_factory=list[Operation])
    checkpoints: set[str] = field(default_factory=set[str])
    attempts: dict[int, AttemptRecord] = field(default_factory=dict[int, AttemptRecord])

    def copy(self) -> "ThreadTables":
        return ThreadTables(
            self.record,
            self.number,
            dict(self.commits),
            dict(self.refs),
            list(self.log),
            set(self.checkpoints),
            dict(self.attempts),
        )


class ClosedTables:
    """Replaces the tables of a closed store; every access raises `StoreError`."""

    def __getattr__(self, name: str) -> NoReturn:
        raise StoreError("the store in memory is closed: open it again")


class Tables(Struct):
    """The tables of the whole store.

    `order` lists all commits in the order of their arrival. `keys` has the commits by their number
    in the text index, and `unindexed` the numbers that are not indexed yet.
    """

    threads: dict[str, ThreadTables] = field(default_factory=dict[str, ThreadTables])
    entries: dict[Id, bytes] = field(default_factory=dict[Id, bytes])
    order: list[tuple[str, Id]] = field(default_factory=list[tuple[str, Id]])
    keys: dict[int, tuple[str, Id]] = field(default_factory=dict[int, tuple[str, Id]])
    unindexed: set[int] = field(default_factory=set[int])
    segments: dict[int, NewSegment] = field(default_factory=dict[int, NewSegment])
    chains: dict[bytes, list[Match]] = field(default_factory=dict[bytes, list[Match]])
    links: dict[bytes, list[Link]] = field(default_factory=dict[bytes, list[Link]])
    tombstones: dict[tuple[str, Id], Tombstone] = field(
        default_factory=dict[tuple[str, Id], Tombstone]
    )
    last_attempt: int = 0
    last_key: int = 0
    last_thread: int = 0
    last_segment: int = 0

    def copy(self) -> "Tables":
        return Tables(
            {name: thread_tables.copy() for name, thread_tables in self.threads.items()},
            dict(self.entries),
            list(self.order),
            dict(self.keys),
            set(self.unindexed),
            dict(self.segments),
            {chain: list(matches) for chain, matches in self.chains.items()},
            {key: list(links) for key, links in self.links.items()},
            dict(self.tombstones),
            self.last_attempt,
            self.last_key,
            self.last_thread,
            self.last_segment,
        )


class Rollback:
    """The functions that revert one transaction, in the order of its writes.

    `is_copied` says that the tables were copied. Later writes go to the copy, and restoring the
    originals reverts all of them, so they add no functions.
    """

    __slots__ = ("is_copied", "steps")

    def __init__(self) -> None:
        self.steps: list[Callable[[], object]] = []
        self.is_copied = False

    def add(self, *steps: Callable[[], object]) -> None:
        if not self.is_copied:
            self.steps.extend(steps)


class MemoryStore:
    """A store in memory, which ends with the process."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._tables = Tables()
        self._rollbacks: list[Rollback] = []

    def checkpoint(self) -> None:
        """Nothing to do: there is no file."""

    def maintenance(self) -> Maintenance:
        return MemoryMaintenance(self)

    @contextmanager
    def transaction(self) -> Generator[None]:
        with self._lock:
            self._rollbacks.append(Rollback())
            try:
                yield
            except BaseException:
                for revert in reversed(self._rollbacks.pop().steps):
                    revert()
                raise
            rollback = self._rollbacks.pop()
            if self._rollbacks:
                self._rollbacks[-1].add(*rollback.steps)

    def ensure_thread(
        self, name: str, *, created: float, checkpoints: bool = False, scope: str | None = None
    ) -> ThreadRecord:
        with self._lock:
            thread_tables = self._tables.threads.get(name)
            if thread_tables is None:
                record = ThreadRecord(name, DEFAULT_BRANCH, checkpoints, scope, created)
                self._tables.last_thread += 1
                thread_tables = ThreadTables(record, self._tables.last_thread)
                self._tables.threads[name] = thread_tables
                self._on_rollback(self._tables.threads.pop, name)
            current = thread_tables.record
            self._set_record(
                thread_tables,
                checkpoints=current.checkpoints or checkpoints,
                scope=scope if current.scope is None else current.scope,
            )
            return thread_tables.record

    def describe_thread(
        self,
        name: str,
        *,
        parent: str | None = None,
        kind: str | None = None,
        title: str | None = None,
        agent: str | None = None,
        folder: str | None = None,
    ) -> None:
        with self._lock:
            thread_tables = self._thread_tables(name)
            if parent is not None:
                self._thread_tables(parent)
            members = {"parent": parent, "kind": kind, "title": title, "agent": agent}
            if thread_tables.record.folder is None:
                members["folder"] = folder
            changes = {name: value for name, value in members.items() if value is not None}
            self._set_record(thread_tables, **changes)

    def read_thread(self, name: str) -> ThreadRecord | None:
        with self._lock:
            thread_tables = self._tables.threads.get(name)
            return None if thread_tables is None else thread_tables.record

    def threads(self, *, deleted: bool = False) -> list[ThreadRecord]:
        with self._lock:
            records = [thread_tables.record for thread_tables in self._tables.threads.values()]
        return [record for record in records if _is_deleted(record.name) == deleted]

    def last_active(self) -> dict[str, float]:
        with self._lock:
            return {
                name: _last_active(thread_tables)
                for name, thread_tables in self._tables.threads.items()
                if not _is_deleted(name)
            }

    def rename_thread(self, old: str, new: str) -> None:
        with self._lock:
            self._thread_tables(old)
            if new in self._tables.threads:
                raise name_taken(new)
            self.copy_tables()
            thread_tables, tables = self._thread_tables(old), self._tables
            thread_tables.record = structs.replace(thread_tables.record, name=new)
            for child in tables.threads.values():
                if child.record.parent == old:
                    child.record = structs.replace(child.record, parent=new)
            names = {name: new if name == old else name for name in tables.threads}
            tables.threads = {names[name]: tables_of for name, tables_of in tables.threads.items()}
            tables.order = [(names[name], id) for name, id in tables.order]
            tables.keys = {key: (names[name], id) for key, (name, id) in tables.keys.items()}
            for matches in tables.chains.values():
                matches[:] = [structs.replace(m, thread=names[m.thread]) for m in matches]
            for links in tables.links.values():
                links[:] = [structs.replace(link, thread=names[link.thread]) for link in links]

    def refs(self, thread: str) -> dict[str, Id]:
        with self._lock:
            return dict(self._thread_tables(thread).refs)

    def find_refs(self, prefix: str) -> list[tuple[str, str, Id]]:
        with self._lock:
            return [
                (thread, name, id)
                for thread, thread_tables in self._tables.threads.items()
                if not _is_deleted(thread)
                for name, id in thread_tables.refs.items()
                if name.startswith(prefix)
            ]

    def read_ref(self, thread: str, name: str) -> Id | None:
        with self._lock:
            return self._thread_tables(thread).refs.get(name)

    def land(self, thread: str, landing: Landing) -> None:
        with self._lock:
            thread_tables = self._thread_tables(thread)
            if thread_tables.refs.get(landing.ref) != landing.old:
                raise RefMoved(landing.ref)
            new_entries = dict(landing.entries)
            self._check_references(thread_tables, landing, new_entries)
            entries = self._tables.entries
            for id, data in new_entries.items():
                if id not in entries:
                    entries[id] = data
                    self._on_rollback(entries.pop, id)
            for commit in landing.commits:
                self._add_commit(thread_tables, commit)
            for name in landing.checkpoints:
                if name not in thread_tables.checkpoints:
                    thread_tables.checkpoints.add(name)
                    self._on_rollback(thread_tables.checkpoints.remove, name)
            self._move_ref(thread_tables, landing)
            if landing.is_switch:
                self._set_record(thread_tables, head=landing.ref)
            self._on_rollback(thread_tables.log.pop)
            thread_tables.log.append(
                Operation(
                    thread_tables.log[-1].seq + 1 if thread_tables.log else 1,
                    landing.verb,
                    landing.ref,
                    landing.old,
                    landing.new,
                    landing.from_branch,
                    landing.created,
                )
            )

    def walk(
        self,
        thread: str,
        head: Id,
        *,
        after: int = 0,
        until: int | None = None,
        limit: int | None = None,
        excluding: Sequence[bytes] = (),
        appends: bool = True,
    ) -> list[Step]:
        with self._lock:
            commits = self._thread_tables(thread).commits
            steps: list[Step] = []
            step = commits.get(head)
            while step is not None and step.depth > after and len(steps) != limit:
                if (
                    step.commit.data not in excluding
                    and (until is None or step.depth <= until)
                    and (appends or step.commit.kind != "append")
                ):
                    steps.append(step)
                parents = step.commit.parents
                step = commits[parents[0]] if parents else None
            steps.reverse()
            return steps

    def walk_nodes(self, thread: str, head: Id, limit: int) -> list[Node]:
        return [_node(step) for step in reversed(self.walk(thread, head, limit=limit))]

    def walk_log(
        self, thread: str, head: Id, *, until: int | None = None, limit: int
    ) -> list[LogRow]:
        steps = reversed(self.walk(thread, head, until=until, limit=limit))
        return [
            (
                step.commit.id,
                step.depth,
                step.commit.kind,
                step.commit.created,
                step.commit.data,
                step.contents[0] if len(step.contents) == 1 else None,
            )
            for step in steps
        ]

    def read_depths(self, thread: str, head: Id, ids: Sequence[Id]) -> dict[Id, int]:
        id_set = set(ids)
        steps = self.walk(thread, head)
        return {step.commit.id: step.depth for step in steps if step.commit.id in id_set}

    def read_commits(self, thread: str, ids: Sequence[Id]) -> list[Step]:
        with self._lock:
            commits = self._thread_tables(thread).commits
            return [commits[id] for id in ids if id in commits]

    def read_nodes(self, thread: str, ids: Sequence[Id]) -> list[Node]:
        return [_node(step) for step in self.read_commits(thread, ids)]

    def find(self, thread: str, prefix: str, limit: int = 8) -> list[Id]:
        with self._lock:
            ids = sorted(self._thread_tables(thread).commits)
        low = bisect_left(ids, bytes.fromhex(prefix.ljust(40, "0")))
        high = bisect_right(ids, bytes.fromhex(prefix.ljust(40, "f")))
        return ids[low:high][:limit]

    def has_checkpoint(self, thread: str, name: str) -> bool:
        with self._lock:
            return name in self._thread_tables(thread).checkpoints

    def count(self, thread: str) -> int:
        with self._lock:
            return len(self._thread_tables(thread).commits)

    def last_arrival(self) -> int:
        with self._lock:
            return len(self._tables.order)

    def arrivals(self, after: int, limit: int = 500) -> list[Arrival]:
        with self._lock:
            newer = enumerate(self._tables.order[after : after + limit], after + 1)
            return [
                Arrival(number, thread, id)
                for number, (thread, id) in newer
                if not _is_deleted(thread)
            ]

    def operations(
        self, thread: str, *, before: int | None = None, limit: int = 64
    ) -> list[Operation]:
        with self._lock:
            log = self._thread_tables(thread).log
            end = len(log) if before is None else bisect_left(log, before, key=_seq)
            return log[max(0, end - limit) : end][::-1]

    def mark_batch(self, thread: str, first: int, last: int | None = None) -> None:
        with self._lock:
            log = self._thread_tables(thread).log
            end = len(log) if last is None else bisect_right(log, last, key=_seq)
            start = bisect_left(log, first, key=_seq)
            for position in range(start, end) if end - start > 1 else ():
                self._on_rollback(log.__setitem__, position, log[position])
                log[position] = structs.replace(log[position], batch=first)

    def add_attempt(self, thread: str, record: AttemptRecord) -> None:
        with self._lock:
            thread_tables = self._thread_tables(thread)
            if record.commit not in thread_tables.commits:
                raise StoreError(f"commit {record.commit.hex()} is not in the store")
            self._tables.last_attempt += 1
            thread_tables.attempts[self._tables.last_attempt] = record
            self._on_rollback(thread_tables.attempts.pop, self._tables.last_attempt)

    def attempts(self, thread: str, commits: Sequence[Id] | None = None) -> list[AttemptRecord]:
        records = self._attempt_records(thread, commits)
        return [record for record in records if record.state not in CALL_STATES]

    def call_records(self, thread: str, commits: Sequence[Id] | None = None) -> list[AttemptRecord]:
        records = self._attempt_records(thread, commits)
        return [record for record in records if record.state in CALL_STATES]

    def _attempt_records(self, thread: str, commits: Sequence[Id] | None) -> list[AttemptRecord]:
        with self._lock:
            records = list(self._thread_tables(thread).attempts.values())
        commit_set = None if commits is None else set(commits)
        return [record for record in records if commit_set is None or record.commit in commit_set]

    def match(self, chains: Sequence[bytes]) -> list[Match]:
        with self._lock:
            return [
                match
                for chain in chains
                for match in reversed(self._tables.chains.get(chain, []))
                if not _is_deleted(match.thread)
            ]

    def match_within(self, threads: Sequence[str], chains: Sequence[bytes]) -> list[Match]:
        return [match for match in self.match(chains) if match.thread in threads]

    def branches_at(self, thread: str, commit: Id) -> list[str]:
        with self._lock:
            return [
                name for name, head in self._thread_tables(thread).refs.items() if head == commit
            ]

    def add_links(self, thread: str, links: Sequence[tuple[bytes, Id]]) -> None:
        with self._lock:
            commits = self._thread_tables(thread).commits
            for key, commit in links:
                link = Link(key, thread, commit)
                stored_links = self._tables.links.setdefault(key, [])
                if commit in commits and link not in stored_links:
                    stored_links.append(link)
                    self._on_rollback(stored_links.remove, link)

    def drop_links(self, thread: str, links: Sequence[tuple[bytes, Id]]) -> None:
        with self._lock:
            for key, commit in links:
                stored_links = self._tables.links.get(key, [])
                link = Link(key, thread, commit)
                if link in stored_links:
                    position = stored_links.index(link)
                    del stored_links[position]
                    self._on_rollback(stored_links.insert, position, link)

    def find_links(self, keys: Sequence[bytes]) -> list[Link]:
        with self._lock:
            return [link for key in keys for link in reversed(self._links(key))]

    def newest_link(self, key: bytes, *, deleted: bool = False) -> Link | None:
        with self._lock:
            links = self._tables.links.get(key, []) if deleted else self._links(key)
            return links[-1] if links else None

    def only_links(self, keys: Sequence[bytes]) -> list[Link]:
        with self._lock:
            links_by_key = [self._links(key) for key in keys]
            return [links[0] for links in links_by_key if len(links) == 1]

    def thread_number(self, thread: str) -> int:
        with self._lock:
            return self._thread_tables(thread).number

    @property
    def address(self) -> str | None:
        return None

    def try_lock(self, name: str) -> Callable[[], None] | None:  # noqa: ARG002 - one program only
        return lambda: None

    def count_unindexed(self) -> int:
        return len(self._tables.unindexed)

    def unindexed(self, limit: int, after: int = 0) -> list[Unindexed]:
        with self._lock:
            keys = sorted(key for key in self._tables.unindexed if key > after)
            return [self._unindexed(key) for key in keys[:limit]]

    def _unindexed(self, key: int) -> Unindexed:
        thread, id = self._tables.keys[key]
        thread_tables = self._thread_tables(thread)
        step = thread_tables.commits[id]
        commit = step.commit
        return Unindexed(
            key, thread_tables.number, commit.created, step.contents, commit.kind, commit.data
        )

    def add_segment(self, segment: NewSegment, replaced: Sequence[int] = ()) -> bool:
        with self._lock:
            tables = self._tables
            if not tables.segments.keys() >= set(replaced):
                return False
            old_keys = {key for n in replaced for key in _segment_keys(tables.segments[n])}
            new_keys = _segment_keys(segment) - old_keys
            newest = max(new_keys, default=0)
            if new_keys != {key for key in tables.unindexed if key <= newest}:
                return False
            for number in replaced:
                self._on_rollback(tables.segments.__setitem__, number, tables.segments[number])
                del tables.segments[number]
            tables.last_segment += 1
            tables.segments[tables.last_segment] = segment
            self._on_rollback(tables.segments.pop, tables.last_segment)
            tables.unindexed -= new_keys
            self._on_rollback(tables.unindexed.update, new_keys)
            return True

    def segments(self) -> dict[int, int]:
        with self._lock:
            return {
                number: segment.size for number, segment in sorted(self._tables.segments.items())
            }

    def indexed_commits(
        self, thread: str | None = None, segments: Sequence[int] | None = None
    ) -> list[IndexedCommits]:
        with self._lock:
            threads = self._tables.threads
            if segments is not None:
                numbers = {thread_tables.number for thread_tables in threads.values()}
            elif thread is not None:
                numbers = {self._thread_tables(thread).number}
            else:
                numbers = {
                    tables.number for name, tables in threads.items() if not _is_deleted(name)
                }
            return [
                structs.replace(commits, segment=number)
                for number, segment in sorted(self._tables.segments.items())
                for commits in segment.commits
                if commits.thread in numbers and (segments is None or number in segments)
            ]

    def index_blocks(
        self, buckets: Sequence[int] | None, segments: Sequence[int]
    ) -> list[tuple[int, IndexBlock]]:
        with self._lock:
            all_segments = list(self._tables.segments.items())
        return [
            (number, block)
            for number, segment in all_segments
            if number in segments
            for block in segment.blocks
            if buckets is None or block.bucket in buckets
        ]

    def read_keys(self, keys: Sequence[int]) -> list[tuple[str, Step]]:
        with self._lock:
            commits = (self._tables.keys[key] for key in keys if key in self._tables.keys)
            return [(thread, self._thread_tables(thread).commits[id]) for thread, id in commits]

    def close(self) -> None:
        """Release everything; any later call raises `StoreError`, as in the other stores."""
        with self._lock:
            self._tables = cast(Tables, ClosedTables())

    def copy_tables(self) -> Tables:
        """The tables for a rewrite; inside a transaction they are copied first."""
        rollback = self._rollbacks[-1] if self._rollbacks else None
        if rollback is not None and not rollback.is_copied:
            originals = self._tables
            self._tables = originals.copy()
            rollback.add(partial(setattr, self, "_tables", originals))
            rollback.is_copied = True
        return self._tables

    @property
    def tables(self) -> Tables:
        return self._tables

    def _on_rollback(self, revert: Callable[..., object], *arguments: object) -> None:
        """Register a function that reverts a write if the current transaction fails."""
        if self._rollbacks:
            self._rollbacks[-1].add(partial(revert, *arguments))

    def _set_record(self, thread_tables: ThreadTables, **changes: object) -> None:
        self._on_rollback(setattr, thread_tables, "record", thread_tables.record)
        thread_tables.record = structs.replace(thread_tables.record, **changes)

    def _move_ref(self, thread_tables: ThreadTables, landing: Landing) -> None:
        if landing.old is not None and landing.new is not None:  # its position in `refs` stays
            thread_tables.refs[landing.ref] = landing.new
            self._on_rollback(thread_tables.refs.__setitem__, landing.ref, landing.old)
        elif landing.new is not None:
            thread_tables.refs[landing.ref] = landing.new
            self._on_rollback(thread_tables.refs.pop, landing.ref)
        elif landing.old is not None:
            self._on_rollback(setattr, thread_tables, "refs", dict(thread_tables.refs))
            del thread_tables.refs[landing.ref]

    def _links(self, key: bytes) -> list[Link]:
        """The links of a key, without those to deleted threads."""
        return [link for link in self._tables.links.get(key, []) if not _is_deleted(link.thread)]

    def _thread_tables(self, thread: str) -> ThreadTables:
        try:
            return self._tables.threads[thread]
        except KeyError:
            raise no_thread(thread) from None

    def _check_references(
        self, thread_tables: ThreadTables, landing: Landing, new_entries: dict[Id, bytes]
    ) -> None:
        """Raise `StoreError` for references to missing objects, before anything is written."""
        new_commits = {commit.id for commit in landing.commits}
        for commit in landing.commits:
            for id in commit.entries:
                if id not in new_entries and id not in self._tables.entries:
                    raise StoreError(f"entry {id.hex()} is not in the store")
        parents = [parent for commit in landing.commits for parent in commit.parents]
        for id in [*parents, *([] if landing.new is None else [landing.new])]:
            if id not in new_commits and id not in thread_tables.commits:
                raise StoreError(f"commit {id.hex()} is not in the store")

    def _add_commit(self, thread_tables: ThreadTables, commit: CommitRecord) -> None:
        if commit.id in thread_tables.commits:
            return
        depth = 1 + max(
            (thread_tables.commits[parent].depth for parent in commit.parents), default=0
        )
        contents = tuple(self._tables.entries[id] for id in commit.entries)
        thread_tables.commits[commit.id] = Step(self._with_tombstone(commit), depth, contents)
        self._on_rollback(thread_tables.commits.pop, commit.id)
        thread = thread_tables.record.name
        tables = self._tables
        tables.order.append((thread, commit.id))
        tables.last_key += 1
        tables.keys[tables.last_key] = (thread, commit.id)
        self._on_rollback(tables.order.pop)
        self._on_rollback(tables.keys.pop, tables.last_key)
        tables.unindexed.add(tables.last_key)
        self._on_rollback(tables.unindexed.discard, tables.last_key)
        if commit.chain is not None:
            match = Match(commit.chain, thread, commit.id)
            matches = self._tables.chains.setdefault(commit.chain, [])
            matches.append(match)
            self._on_rollback(matches.pop)

    def _with_tombstone(self, commit: CommitRecord) -> CommitRecord:
        """The commit; if it has a tombstone, with the replacement body that other threads have."""
        if ("commit", commit.id) not in self._tables.tombstones:
            return commit
        threads = self._tables.threads.values()
        copies = (
            thread_tables.commits[commit.id]
            for thread_tables in threads
            if commit.id in thread_tables.commits
        )
        return structs.replace(commit, data=next(copies).commit.data)


class MemoryMaintenance:
    """Maintenance of the in-memory store. Memory is not damaged, so there are never flaws."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def entries(self) -> Iterator[tuple[Id, bytes]]:
        yield from list(self._store.tables.entries.items())

    def commits(self) -> Iterator[tuple[str, Step]]:
        for name, id in list(self._store.tables.order):
            yield name, self._store.tables.threads[name].commits[id]

    def attempts(self) -> Iterator[tuple[int, str, AttemptRecord]]:
        numbered_attempts = [
            (key, name, record)
            for name, thread_tables in self._store.tables.threads.items()
            for key, record in thread_tables.attempts.items()
        ]
        yield from sorted(numbered_attempts, key=lambda attempt: attempt[0])

    def put_attempt(self, key: int, state: str, data: bytes) -> None:
        for thread_tables in self._store.copy_tables().threads.values():
            if key in thread_tables.attempts:
                thread_tables.attempts[key] = structs.replace(
                    thread_tables.attempts[key], state=state, data=data
                )

    def flaws(self) -> list[Flaw]:
        return []

    def tombstones(self, ids: Sequence[Id] | None = None) -> dict[tuple[str, Id], Tombstone]:
        all_tombstones = self._store.tables.tombstones
        if ids is None:
            return dict(all_tombstones)
        keys = [(kind, id) for kind in ("commit", "entry") for id in ids]
        return {key: all_tombstones[key] for key in keys if key in all_tombstones}

    def has_tombstones(self) -> bool:
        return bool(self._store.tables.tombstones)

    def write_tombstone(
        self,
        kind: ObjectKind,
        id: Id,
        data: bytes,
        reason: TombstoneReason,
        created: float,  # noqa: ARG002 - no table of this store has a column for it
    ) -> None:
        tables = self._store.copy_tables()
        if kind == "entry":
            tables.entries[id] = data
        for thread_tables in tables.threads.values():
            for name, step in thread_tables.commits.items():
                if kind == "entry" and id in step.commit.entries:
                    contents = tuple(tables.entries[entry] for entry in step.commit.entries)
                    thread_tables.commits[name] = structs.replace(step, contents=contents)
                elif kind == "commit" and name == id:
                    commit = structs.replace(step.commit, data=data)
                    thread_tables.commits[name] = structs.replace(step, commit=commit)
        tables.tombstones[(kind, id)] = Tombstone(reason, checksum((data,)))

    def ref_names(self, thread: str) -> dict[str, bool]:
        thread_tables = self._store.tables.threads[thread]
        names = {operation.ref for operation in thread_tables.log}
        names |= {line.from_branch for line in thread_tables.log if line.from_branch is not None}
        live = {*thread_tables.refs, thread_tables.record.head}
        return {name: name in live for name in sorted(names | live)}

    def rename_refs(self, thread: str, names: Mapping[str, str]) -> None:
        thread_tables = self._store.copy_tables().threads[thread]
        record = thread_tables.record
        thread_tables.record = structs.replace(record, head=names.get(record.head, record.head))
        thread_tables.refs = {names.get(ref, ref): id for ref, id in thread_tables.refs.items()}
        thread_tables.log = [
            structs.replace(
                line,
                ref=names.get(line.ref, line.ref),
                from_branch=line.from_branch and names.get(line.from_branch, line.from_branch),
            )
            for line in thread_tables.log
        ]

    def unindex(self, thread: str, commits: Sequence[Id]) -> None:
        ids = set(commits)
        tables = self._store.copy_tables()
        self._unindex(
            {key for key, (name, id) in tables.keys.items() if name == thread and id in ids}
        )

    def drop_index(self) -> None:
        tables = self._store.copy_tables()
        tables.segments.clear()
        tables.unindexed = set(tables.keys)

    def _unindex(self, keys: set[int]) -> None:
        """Remove the segments with one of these commits; their commits are indexed again later."""
        tables = self._store.copy_tables()
        for number, segment in list(tables.segments.items()):
            segment_keys = _segment_keys(segment)
            if segment_keys & keys:
                del tables.segments[number]
                tables.unindexed |= segment_keys

    def referenced_commits(self, thread: str, since: float) -> set[Id]:
        thread_tables = self._store.tables.threads[thread]
        ids = set(thread_tables.refs.values())
        for operation in thread_tables.log:
            if operation.created >= since:
                ids.update(id for id in (operation.old, operation.new) if id is not None)
        return ids

    def commit_graph(self, thread: str) -> CommitGraph:
        if thread not in self._store.tables.threads:
            return CommitGraph({}, {}, 0)
        thread_tables = self._store.tables.threads[thread]
        mentions = {
            id: operation.seq
            for operation in thread_tables.log
            for id in (operation.old, operation.new)
            if id in thread_tables.commits
        }
        parents = {
            id: tuple(parent for parent in step.commit.parents if parent in thread_tables.commits)
            for id, step in thread_tables.commits.items()
        }
        return CommitGraph(parents, mentions, _last_seq(thread_tables.log))

    def drop(self, thread: str, commits: Sequence[Id], graph: CommitGraph) -> Dropped:
        with self._store.transaction():
            thread_tables = self._store.tables.threads.get(thread)
            if thread_tables is None or _last_seq(thread_tables.log) != graph.last_operation:
                return Dropped(is_complete=False)
            return self._drop(thread, commits)

    def _drop(self, thread: str, commits: Sequence[Id]) -> Dropped:
        tables = self._store.copy_tables()
        thread_tables = tables.threads[thread]
        ids = set(commits)
        keys = {key for key, (name, id) in tables.keys.items() if name == thread and id in ids}
        self._unindex(keys)
        tables.keys = {key: commit for key, commit in tables.keys.items() if key not in keys}
        tables.unindexed -= keys
        for id in commits:
            step = thread_tables.commits.pop(id)
            tables.order.remove((thread, id))
            chain = step.commit.chain
            if chain is not None:
                tables.chains[chain] = [m for m in tables.chains[chain] if m.commit != id]
        for key, record in list(thread_tables.attempts.items()):
            if record.commit in commits:
                del thread_tables.attempts[key]
        for key, links in tables.links.items():
            tables.links[key] = [
                link for link in links if link.thread != thread or link.commit not in commits
            ]
        # Undo cannot go past an operation whose commits are gone: older ones are deleted too.
        deleted_numbers = [
            number
            for number, operation in enumerate(thread_tables.log)
            if {operation.old, operation.new} & ids
        ]
        log_start = deleted_numbers[-1] + 1 if deleted_numbers else 0
        del thread_tables.log[:log_start]
        needed = {
            entry
            for other in tables.threads.values()
            for step in other.commits.values()
            for entry in step.commit.entries
        }
        with_tombstone = {id for kind, id in tables.tombstones if kind == "entry"}  # stay forgotten
        unused = tables.entries.keys() - needed - with_tombstone
        for id in unused:
            del tables.entries[id]
        commit_ids = {id for other in tables.threads.values() for id in other.commits}
        for kind, id in list(tables.tombstones):
            if kind == "commit" and id not in commit_ids:
                del tables.tombstones[(kind, id)]
        return Dropped(len(commits), len(unused), log_start)

    def drop_thread(self, thread: str) -> bool:
        with self._store.transaction():
            tables = self._store.tables.threads.get(thread)
            if tables is None or tables.commits:
                return False
            del self._store.copy_tables().threads[thread]
        return True

    def repair_structure(self) -> list[str]:
        return []

    def scrub(self) -> None:
        """Nothing to do: overwritten values are not kept."""

    def size(self) -> int:
        return 0


def _last_active(thread_tables: ThreadTables) -> float:
    last = thread_tables.log[-1] if thread_tables.log else None
    if last is None:
        return thread_tables.record.created
    if last.verb == IMPORT and last.new is not None:
        return thread_tables.commits[last.new].commit.created
    return last.created


def _is_deleted(name: str) -> bool:
    return name.startswith(DELETED)


def _node(step: Step) -> Node:
    return Node(step.commit.id, step.depth, step.commit.parents)


def _last_seq(log: Sequence[Operation]) -> int:
    return log[-1].seq if log else 0


def _seq(operation: Operation) -> int:
    return operation.seq


def _segment_keys(segment: NewSegment) -> set[int]:
    return {key for commits in segment.commits for key in array("q", commits.keys)}
