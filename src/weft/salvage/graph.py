"""Finds the commits of a damaged store that are intact.

A commit is intact if it hashes to its id with the ids of its parents and entries, and if all its
ancestors are intact. So a branch compiles to what it compiled to before, or to the start of it.
Keys grow with time, so one pass in the order of keys is enough.

If the page of a commit is lost, the index may still have its id. Most commits only append one
message. Such a commit is rebuilt from its parent and an entry that no other commit uses, and the id
proves that the result is right. Only its time and usage are lost, which the id does not cover. A
lost list of entries is rebuilt in the same way.

A commit that cannot be rebuilt is a *hole*. The ids of its descendants are still valid, but their
context is unknown. They are kept on a separate branch.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, permutations
from typing import cast

from msgspec import Struct, field

from weft.ids import Id
from weft.store import ObjectFormat, Tombstone, checksum

from .recovered_rows import COMMIT_IDS, PLACES, RecoveredRows, Row

LONGEST_RUN, LONGEST_MERGE = 5, 200
TRIED_OTHERS = 1000  # entries of other commits, because messages may repeat
HOLE = 0  # the key of the entry that every hole has
TRIES = 1_000_000  # limit of ids computed to rebuild lost commits, over the whole file


class IntactCommit(Struct, frozen=True, gc=False):
    """A commit to keep, with keys for its parents and entries."""

    key: int
    thread: int
    id: Id
    kind: str
    parents: tuple[int, ...]
    entries: tuple[int, ...]
    data: bytes
    created: float
    usage: bytes | None = None
    chain: bytes | None = None


class Graph(Struct):
    """The intact commits by key; `same` maps keys of duplicates to the first key.

    `after_hole` has commits that are intact except for a lost ancestor. `holes` are lost commits of
    which only the id is known.
    """

    commits: dict[int, IntactCommit] = field(default_factory=dict[int, IntactCommit])
    same: dict[int, int] = field(default_factory=dict[int, int])
    lost: set[int] = field(default_factory=set[int])
    remade: set[int] = field(default_factory=set[int])
    after_hole: dict[int, IntactCommit] = field(default_factory=dict[int, IntactCommit])
    holes: set[int] = field(default_factory=set[int])

    def find(self, key: int | None) -> IntactCommit | None:
        return None if key is None else self.commits.get(self.same.get(key, key))

    def find_after_hole(self, key: int | None) -> IntactCommit | None:
        """The commit even if it has a lost ancestor; `None` for a hole."""
        return None if key in self.holes or key is None else self.after_hole.get(key)

    def adopt(self, tips: Iterable[int]) -> None:
        """Keep these commits, which have a hole among their ancestors, and all their ancestors."""
        adopted: dict[int, IntactCommit] = {}
        waiting = list(tips)
        while waiting:
            key = waiting.pop()
            if key in self.after_hole and key not in adopted:
                adopted[key] = self.after_hole[key]
                waiting += adopted[key].parents
        self.commits = dict(sorted({**self.commits, **adopted}.items()))
        self.holes &= adopted.keys()


def check_commits(
    recovered: RecoveredRows,
    entries: dict[int, Id],
    tombstones: dict[tuple[str, Id], Tombstone],
    object_format: ObjectFormat,
) -> Graph:
    """Every intact commit, read or rebuilt."""
    return _CommitCheck(recovered, entries, tombstones, object_format).run()


class _CommitCheck:
    """One pass over all keys."""

    def __init__(
        self,
        recovered: RecoveredRows,
        entries: dict[int, Id],
        tombstones: dict[tuple[str, Id], Tombstone],
        object_format: ObjectFormat,
    ) -> None:
        self._rows = cast(dict[int, Row], recovered.table("commits"))
        self._names = recovered.ids(COMMIT_IDS)
        self._entries = entries
        self._tombstones = tombstones
        self._format = object_format
        self._many = _lists(recovered)
        self._lists_torn = "commit_entry" in recovered.torn
        self._origin = _origins(recovered)
        self._graph = Graph()
        self._ids: dict[tuple[int, Id], int] = {}
        self._tries = TRIES
        used = {row[8] for row in self._rows.values()}
        used.update(entry for many in self._many.values() for entry in many)
        self._spare = [key for key in entries if key not in used]
        self._last: dict[int, int] = {}

    def run(self) -> Graph:
        for key in sorted(self._rows.keys() | self._names.keys()):
            commit = self._read(key) or self._rebuild(key) or self._hole(key)
            if commit is None:
                self._graph.lost.add(key)
                continue
            first = self._ids.setdefault((commit.thread, commit.id), key)
            self._last[commit.thread] = first
            if first != key:
                self._graph.same[key] = first
            elif key in self._graph.holes or any(
                p in self._graph.after_hole for p in commit.parents
            ):
                self._graph.after_hole[key] = commit
                self._graph.lost.add(key)
            else:
                self._graph.commits[key] = commit
        return self._graph

    def _known(self, key: int | None) -> IntactCommit | None:
        """The commit of a key, or its hole."""
        commit = self._graph.find(key)
        return commit if commit is not None or key is None else self._graph.after_hole.get(key)

    def _hole(self, key: int) -> IntactCommit | None:
        """The placeholder for a lost commit: its id, which its descendants prove."""
        row = self._rows.get(key)
        if key in self._names:
            thread, id = cast(tuple[int, Id], self._names[key])
        elif row is not None:
            thread, id = cast(tuple[int, Id], row[1:3])
        else:
            return None
        parent = self._known(self._origin.get(key) if row is None else cast("int | None", row[6]))
        if (thread, id) in self._ids or (parent is not None and parent.thread != thread):
            return None
        self._graph.holes.add(key)
        above = () if parent is None else (parent.key,)
        created = 0.0 if parent is None else parent.created
        return IntactCommit(
            key, thread, id, "append", above, (HOLE,), self._format.plain[0], created
        )

    def _read(self, key: int) -> IntactCommit | None:
        """The commit in this row, if it is intact."""
        row = self._rows.get(key)
        if row is None:
            return None
        (_, owner, id, _, _, kind, parent, second, entry, data, created, usage, match, sum) = cast(
            tuple[None, int, Id, int, int, str, int | None, int | None, int | None, bytes, float,
                  bytes | None, bytes | None, int | None], row,
        )  # fmt: skip
        keys = tuple([part for part in (parent, second) if part is not None])
        parents = [self._known(part) for part in keys]
        intact_parents = [part for part in parents if part is not None]
        if len(intact_parents) != len(keys):
            return None
        entries = self._entries_of(key, id, kind, entry, data, intact_parents)
        if entries is None:
            return None
        if sum is not None and checksum((created, usage, match)) != sum:
            usage = match = None
        thread = intact_parents[0].thread if intact_parents else self._thread(key, id, owner)
        return IntactCommit(
            key,
            thread,
            id,
            kind,
            tuple([p.key for p in intact_parents]),
            entries,
            data,
            created,
            usage,
            match,
        )

    def _entries_of(
        self,
        key: int,
        id: Id,
        kind: str,
        entry: int | None,
        data: bytes,
        parents: Sequence[IntactCommit],
    ) -> tuple[int, ...] | None:
        """The keys of the entries with which the commit hashes to its id, or `None`."""
        listed = (entry,) if entry is not None else self._many.get(key, ())
        tombstone = self._tombstones.get(("commit", id))
        if tombstone is not None and tombstone.checksum == checksum((data,)):
            is_complete = entry is not None or not self._lists_torn
            return listed if is_complete and all(part in self._entries for part in listed) else None
        above = tuple([part.id for part in parents])
        prefixes = [listed[:length] for length in range(len(listed), -1, -1)]
        guesses = self._guesses(parents) if entry is None and self._lists_torn else ()
        for keys in chain(prefixes, guesses):
            ids = tuple([self._entries[part] for part in keys if part in self._entries])
            if len(ids) == len(keys) and self._format.commit_id(kind, above, ids, data) == id:
                return keys
        return None

    def _guesses(self, parents: Sequence[IntactCommit]) -> Iterator[tuple[int, ...]]:
        """Candidates for the entries of a commit whose list is lost.

        A merge repeats the last entries of the other side. Other commits have entries that no other
        commit uses, with consecutive keys but in the order of their ids; so each run is tried in
        every order.
        """
        entries: tuple[int, ...] = ()
        commit = parents[1] if len(parents) > 1 else None
        while commit is not None and len(entries) < LONGEST_MERGE:
            entries = (*commit.entries, *entries)
            yield entries
            commit = self._known(commit.parents[0]) if commit.parents else None
        for length in range(1, LONGEST_RUN + 1):
            for start in range(len(self._spare) - length + 1):
                for keys in permutations(self._spare[start : start + length]):
                    self._tries -= 1
                    if self._tries > 0:
                        yield keys

    def _thread(self, key: int, id: Id, owner: int) -> int:
        """The thread of a root commit, which its id does not cover."""
        index_row = self._names.get(key)
        if index_row is not None and index_row[1] == id and isinstance(index_row[0], int):
            return index_row[0]
        return owner

    def _rebuild(self, key: int) -> IntactCommit | None:
        """Rebuild a plain append whose row is lost, so that it hashes to the id in the index."""
        if key not in self._names or key in self._rows:
            return None
        thread, id = cast(tuple[int, Id], self._names[key])
        guesses = [
            self._known(self._origin.get(key)),
            self._known(self._last.get(thread)),
        ]
        for parent in dict.fromkeys([*guesses, None]):
            if parent is not None and parent.thread != thread:
                continue
            match = self._search(id, parent)
            if match is not None:
                entry, data = match
                self._graph.remade.add(key)
                created = 0.0 if parent is None else parent.created
                above = () if parent is None else (parent.key,)
                return IntactCommit(key, thread, id, "append", above, (entry,), data, created)
        return None

    def _search(self, id: Id, parent: IntactCommit | None) -> tuple[int, bytes] | None:
        """The entry and the body with which an append after this parent hashes to this id."""
        above = () if parent is None else (parent.id,)
        for pool in (self._spare, list(islice(self._entries, TRIED_OTHERS))):
            for entry in pool:
                if self._tries <= 0:
                    return None
                self._tries -= len(self._format.plain)
                for data in self._format.plain:
                    if self._format.commit_id("append", above, (self._entries[entry],), data) == id:
                        if pool is self._spare:
                            self._spare.remove(entry)
                        return entry, data
        return None


def _lists(recovered: RecoveredRows) -> dict[int, tuple[int, ...]]:
    """The entry lists of commits, in order, up to the first gap."""
    lists: dict[int, list[int]] = {}
    for row in sorted(
        cast("dict[object, tuple[int, int, int]]", recovered.table("commit_entry")).values()
    ):
        commit, position, entry = row
        if position == len(lists.get(commit, ())):
            lists.setdefault(commit, []).append(entry)
    return {commit: tuple(entries) for commit, entries in lists.items()}


def _origins(recovered: RecoveredRows) -> dict[int, int]:
    """The probable parent of each commit: the one before it on its line, else from the log."""
    origins: dict[int, int] = {}
    places = {(line, depth): key for key, (line, depth) in recovered.ids(PLACES).items()}
    for (line, depth), key in places.items():
        assert isinstance(depth, int)
        before = places.get((line, depth - 1))
        if before is not None:
            origins[key] = before
    for row in recovered.table("operation").values():
        old, new = row[4], row[5]
        if isinstance(old, int) and isinstance(new, int):
            origins.setdefault(new, old)
    return origins
