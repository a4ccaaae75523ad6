"""The store of one process: plain dictionaries, the reference for what the contract means.

A transaction takes a shallow copy of every table and puts it back on failure; that is linear in
the size of the store, so a single landing, which cannot fail half way, takes none.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from threading import RLock

from msgspec import Struct, field, structs

from weft.errors import RefMoved, StoreError
from weft.ids import Id

from .base import (
    DELETED,
    AttemptRecord,
    CommitRecord,
    Landing,
    Link,
    Match,
    Node,
    Operation,
    Step,
    ThreadRecord,
    Unindexed,
)
from .landing import name_taken, no_thread
from .memory_upkeep import MemoryUpkeep
from .maintenance import Tombstone, Upkeep
from .word_split import read_words

DEFAULT_BRANCH = "main"


class Shelf(Struct):
    """One thread's tables."""

    record: ThreadRecord
    commits: dict[Id, Step] = field(default_factory=dict[Id, Step])
    refs: dict[str, Id] = field(default_factory=dict[str, Id])
    log: list[Operation] = field(default_factory=list[Operation])
    checkpoints: set[str] = field(default_factory=set[str])
    attempts: dict[int, AttemptRecord] = field(default_factory=dict[int, AttemptRecord])

    def copy(self) -> "Shelf":
        return Shelf(
            self.record,
            dict(self.commits),
            dict(self.refs),
            list(self.log),
            set(self.checkpoints),
            dict(self.attempts),
        )


class Tables(Struct):
    """All that a store holds."""

    shelves: dict[str, Shelf] = field(default_factory=dict[str, Shelf])
    entries: dict[Id, bytes] = field(default_factory=dict[Id, bytes])
    order: list[tuple[str, Id]] = field(default_factory=list[tuple[str, Id]])
    texts: dict[tuple[str, Id], str] = field(default_factory=dict[tuple[str, Id], str])
    chains: dict[bytes, list[Match]] = field(default_factory=dict[bytes, list[Match]])
    links: dict[bytes, list[Link]] = field(default_factory=dict[bytes, list[Link]])
    tombstones: dict[tuple[str, Id], Tombstone] = field(
        default_factory=dict[tuple[str, Id], Tombstone]
    )
    last_attempt: int = 0

    def copy(self) -> "Tables":
        return Tables(
            {name: shelf.copy() for name, shelf in self.shelves.items()},
            dict(self.entries),
            list(self.order),
            dict(self.texts),
            {chain: list(matches) for chain, matches in self.chains.items()},
            {key: list(links) for key, links in self.links.items()},
            dict(self.tombstones),
            self.last_attempt,
        )


class MemoryStore:
    """Everything in this process, gone with it."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._tables = Tables()

    def upkeep(self) -> Upkeep:
        return MemoryUpkeep(self._tables)

    @contextmanager
    def transaction(self) -> Generator[None]:
        with self._lock:
            saved = self._tables.copy()
            try:
                yield
            except BaseException:
                self._tables = saved
                raise

    def ensure_thread(
        self, name: str, *, created: float, checkpoints: bool = False, scope: str | None = None
    ) -> ThreadRecord:
        with self._lock:
            shelf = self._tables.shelves.get(name)
            if shelf is None:
                record = ThreadRecord(name, DEFAULT_BRANCH, checkpoints, scope, created)
                shelf = self._tables.shelves[name] = Shelf(record)
            old = shelf.record
            shelf.record = structs.replace(
                old,
                checkpoints=old.checkpoints or checkpoints,
                scope=scope if old.scope is None else old.scope,
            )
            return shelf.record

    def read_thread(self, name: str) -> ThreadRecord | None:
        with self._lock:
            shelf = self._tables.shelves.get(name)
            return None if shelf is None else shelf.record

    def threads(self, *, deleted: bool = False) -> list[ThreadRecord]:
        with self._lock:
            records = [shelf.record for shelf in self._tables.shelves.values()]
        return [record for record in records if _is_deleted(record.name) == deleted]

    def rename_thread(self, old: str, new: str) -> None:
        with self._lock:
            shelf, tables = self._shelf(old), self._tables
            if new in tables.shelves:
                raise name_taken(new)
            shelf.record = structs.replace(shelf.record, name=new)
            names = {name: new if name == old else name for name in tables.shelves}
            tables.shelves = {names[name]: kept for name, kept in tables.shelves.items()}
            tables.order = [(names[name], id) for name, id in tables.order]
            tables.texts = {(names[name], id): text for (name, id), text in tables.texts.items()}
            for matches in tables.chains.values():
                matches[:] = [structs.replace(m, thread=names[m.thread]) for m in matches]
            for links in tables.links.values():
                links[:] = [structs.replace(link, thread=names[link.thread]) for link in links]

    def refs(self, thread: str) -> dict[str, Id]:
        with self._lock:
            return dict(self._shelf(thread).refs)

    def read_ref(self, thread: str, name: str) -> Id | None:
        with self._lock:
            return self._shelf(thread).refs.get(name)

    def land(self, thread: str, landing: Landing) -> None:
        with self._lock:
            shelf = self._shelf(thread)
            if shelf.refs.get(landing.ref) != landing.old:
                raise RefMoved(landing.ref)
            given = dict(landing.entries)
            self._check(shelf, landing, given)
            for id, data in given.items():
                self._tables.entries.setdefault(id, data)
            for commit in landing.commits:
                self._put(shelf, commit)
            shelf.checkpoints.update(landing.checkpoints)
            if landing.new is None:
                shelf.refs.pop(landing.ref, None)
            else:
                shelf.refs[landing.ref] = landing.new
            if landing.is_switch:
                shelf.record = structs.replace(shelf.record, head=landing.ref)
            shelf.log.append(
                Operation(
                    shelf.log[-1].seq + 1 if shelf.log else 1,
                    landing.verb,
                    landing.ref,
                    landing.old,
                    landing.new,
                    landing.was,
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
        but: Sequence[bytes] = (),
    ) -> list[Step]:
        with self._lock:
            commits = self._shelf(thread).commits
            steps: list[Step] = []
            step = commits.get(head)
            while step is not None and step.depth > after and len(steps) != limit:
                if step.commit.data not in but and (until is None or step.depth <= until):
                    steps.append(step)
                parents = step.commit.parents
                step = commits[parents[0]] if parents else None
            steps.reverse()
            return steps

    def walk_nodes(self, thread: str, head: Id, limit: int) -> list[Node]:
        return [_node(step) for step in reversed(self.walk(thread, head, limit=limit))]

    def read_depths(self, thread: str, head: Id, ids: Sequence[Id]) -> dict[Id, int]:
        wanted = set(ids)
        steps = self.walk(thread, head)
        return {step.commit.id: step.depth for step in steps if step.commit.id in wanted}

    def read_commits(self, thread: str, ids: Sequence[Id]) -> list[Step]:
        with self._lock:
            commits = self._shelf(thread).commits
            return [commits[id] for id in ids if id in commits]

    def read_nodes(self, thread: str, ids: Sequence[Id]) -> list[Node]:
        return [_node(step) for step in self.read_commits(thread, ids)]

    def find(self, thread: str, prefix: str, limit: int = 8) -> list[Id]:
        with self._lock:
            ids = sorted(self._shelf(thread).commits)
        low = bisect_left(ids, bytes.fromhex(prefix.ljust(40, "0")))
        high = bisect_right(ids, bytes.fromhex(prefix.ljust(40, "f")))
        return ids[low:high][:limit]

    def has_checkpoint(self, thread: str, name: str) -> bool:
        with self._lock:
            return name in self._shelf(thread).checkpoints

    def count(self, thread: str) -> int:
        with self._lock:
            return len(self._shelf(thread).commits)

    def operations(
        self, thread: str, *, before: int | None = None, limit: int = 64
    ) -> list[Operation]:
        with self._lock:
            log = self._shelf(thread).log
            end = len(log) if before is None else bisect_left(log, before, key=_seq)
            return log[max(0, end - limit) : end][::-1]

    def add_attempt(self, thread: str, record: AttemptRecord) -> None:
        with self._lock:
            shelf = self._shelf(thread)
            if record.commit not in shelf.commits:
                raise StoreError(f"commit {record.commit.hex()} is not in the store")
            self._tables.last_attempt += 1
            shelf.attempts[self._tables.last_attempt] = record

    def attempts(self, thread: str, commits: Sequence[Id] | None = None) -> list[AttemptRecord]:
        with self._lock:
            stored = list(self._shelf(thread).attempts.values())
        wanted = None if commits is None else set(commits)
        return [record for record in stored if wanted is None or record.commit in wanted]

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
            return [name for name, head in self._shelf(thread).refs.items() if head == commit]

    def add_links(self, thread: str, links: Sequence[tuple[bytes, Id]]) -> None:
        with self._lock:
            commits = self._shelf(thread).commits
            for key, commit in links:
                link = Link(key, thread, commit)
                known = self._tables.links.setdefault(key, [])
                if commit in commits and link not in known:
                    known.append(link)

    def drop_links(self, thread: str, links: Sequence[tuple[bytes, Id]]) -> None:
        with self._lock:
            for key, commit in links:
                known = self._tables.links.get(key, [])
                link = Link(key, thread, commit)
                if link in known:
                    known.remove(link)

    def find_links(self, keys: Sequence[bytes]) -> list[Link]:
        with self._lock:
            return [link for key in keys for link in reversed(self._links(key))]

    def newest_link(self, key: bytes, *, deleted: bool = False) -> Link | None:
        with self._lock:
            known = self._tables.links.get(key, []) if deleted else self._links(key)
            return known[-1] if known else None

    def only_links(self, keys: Sequence[bytes]) -> list[Link]:
        with self._lock:
            found = [self._links(key) for key in keys]
            return [links[0] for links in found if len(links) == 1]

    def unindexed(self, limit: int) -> list[Unindexed]:
        with self._lock:
            start = len(self._tables.texts)
            waiting = self._tables.order[start : start + limit]
            return [
                Unindexed(start + offset, self._tables.shelves[thread].commits[id].contents)
                for offset, (thread, id) in enumerate(waiting)
            ]

    def index(self, texts: Iterable[tuple[int, str]]) -> None:
        with self._lock:
            for key, text in texts:
                self._tables.texts[self._tables.order[key]] = text

    def search(self, thread: str, words: Sequence[str], limit: int) -> list[Step]:
        wanted = [_words(word) for word in words]
        with self._lock:
            commits = self._shelf(thread).commits
            return [
                commits[id]
                for (owner, id), text in reversed(self._tables.texts.items())
                if owner == thread and all(word in _words(text) for word in wanted)
            ][:limit]

    def close(self) -> None:
        """Nothing is held that would need it."""

    def _links(self, key: bytes) -> list[Link]:
        """The links of a key that lead to threads which are not deleted."""
        return [x for x in self._tables.links.get(key, []) if not _is_deleted(x.thread)]

    def _shelf(self, thread: str) -> Shelf:
        try:
            return self._tables.shelves[thread]
        except KeyError:
            raise no_thread(thread) from None

    def _check(self, shelf: Shelf, landing: Landing, given: dict[Id, bytes]) -> None:
        """Refuse a landing that names what is not there, before any of it is written."""
        coming = {commit.id for commit in landing.commits}
        for commit in landing.commits:
            for id in commit.entries:
                if id not in given and id not in self._tables.entries:
                    raise StoreError(f"entry {id.hex()} is not in the store")
        wanted = [parent for commit in landing.commits for parent in commit.parents]
        for id in [*wanted, *([] if landing.new is None else [landing.new])]:
            if id not in coming and id not in shelf.commits:
                raise StoreError(f"commit {id.hex()} is not in the store")

    def _put(self, shelf: Shelf, commit: CommitRecord) -> None:
        if commit.id in shelf.commits:
            return
        depth = 1 + max((shelf.commits[parent].depth for parent in commit.parents), default=0)
        contents = tuple(self._tables.entries[id] for id in commit.entries)
        shelf.commits[commit.id] = Step(self._as_buried(commit), depth, contents)
        thread = shelf.record.name
        self._tables.order.append((thread, commit.id))
        if commit.chain is not None:
            match = Match(commit.chain, thread, commit.id)
            self._tables.chains.setdefault(commit.chain, []).append(match)

    def _as_buried(self, commit: CommitRecord) -> CommitRecord:
        """The commit with the body that another thread's has, where that one lost its own."""
        if ("commit", commit.id) not in self._tables.tombstones:
            return commit
        shelves = self._tables.shelves.values()
        known = (shelf.commits[commit.id] for shelf in shelves if commit.id in shelf.commits)
        return structs.replace(commit, data=next(known).commit.data)


def _is_deleted(name: str) -> bool:
    return name.startswith(DELETED)


def _node(step: Step) -> Node:
    return Node(step.commit.id, step.depth, step.commit.parents)


def _seq(operation: Operation) -> int:
    return operation.seq


def _words(text: str) -> str:
    """The words alone, each between spaces."""
    return f" {' '.join(read_words(text))} "
