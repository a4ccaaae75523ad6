"""Finds the commits of a damaged store that are intact.

A commit is intact if it hashes to its id with the ids of its parents and entries, and if all its
ancestors are intact. So a branch compiles to what it compiled to before, or to the start of it.
Keys grow with time, so one pass in the order of keys is enough.

If the page of a commit is lost, the index may still have its id. Most commits only append one
message. Such a commit is rebuilt from its parent and an entry that no other commit uses: if the
result hashes to the id, it is right. Its time and usage stay lost, because the id does not cover
them. A lost list of entries is rebuilt in the duplicates way.

A commit that cannot be rebuilt is a *hole*. The ids of its descendants are still valid, but their
context is unknown. They are kept on a separate branch.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, permutations
from typing import cast

from msgspec import Struct, field

from weft.ids import Id
from weft.store import ObjectFormat, Tombstone, checksum

from .recovered_rows import COMMIT_IDS, COMMIT_POSITIONS, RecoveredRows, Row

MAX_LIST = 5
"""The longest lost list of entries that is rebuilt: every order of them is tried."""

MAX_MERGED_LIST = 200
"""The longest lost list of a merge that is rebuilt; its order is known."""

MAX_REUSED_ENTRIES = 1000
"""How many entries of other commits are tried for a lost commit, because messages may repeat."""

HOLE = 0
"""The key of the entry that every hole has."""

MAX_TRIES = 1_000_000
"""How many ids are computed to rebuild the lost commits of a file: this limits the time."""


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
    """The commits of a damaged store, by key.

    - `commits`: the intact ones.
    - `duplicates`: the keys of further rows with the duplicates commit, each with the first key.
    - `lost`: the keys of lost commits, and of commits with a lost ancestor.
    - `rebuilt`: the keys of commits whose row was lost.
    - `after_hole`: commits that are intact except for a lost ancestor, and the holes.
    - `holes`: the keys of lost commits of which only the id is known.
    """

    commits: dict[int, IntactCommit] = field(default_factory=dict[int, IntactCommit])
    duplicates: dict[int, int] = field(default_factory=dict[int, int])
    lost: set[int] = field(default_factory=set[int])
    rebuilt: set[int] = field(default_factory=set[int])
    after_hole: dict[int, IntactCommit] = field(default_factory=dict[int, IntactCommit])
    holes: set[int] = field(default_factory=set[int])

    def find(self, key: int | None) -> IntactCommit | None:
        return None if key is None else self.commits.get(self.duplicates.get(key, key))

    def find_after_hole(self, key: int | None) -> IntactCommit | None:
        """The commit even if it has a lost ancestor; `None` for a hole."""
        return None if key in self.holes or key is None else self.after_hole.get(key)

    def keep_after_hole(self, tips: Iterable[int]) -> None:
        """Keep these commits, which come after a hole, and all their ancestors."""
        reachable: dict[int, IntactCommit] = {}
        waiting = list(tips)
        while waiting:
            key = waiting.pop()
            if key in self.after_hole and key not in reachable:
                reachable[key] = self.after_hole[key]
                waiting += reachable[key].parents
        self.commits = dict(sorted({**self.commits, **reachable}.items()))
        self.holes &= reachable.keys()


def check_commits(
    recovered: RecoveredRows,
    entries: dict[int, Id],
    tombstones: dict[tuple[str, Id], Tombstone],
    object_format: ObjectFormat,
) -> Graph:
    """Every intact commit, read or rebuilt."""
    return _CommitCheck(recovered, entries, tombstones, object_format).run()


class _CommitCheck:
    """One pass over all keys.

    - `_indexed_ids`: the thread and id of each commit, from the index.
    - `_entry_lists`: the entries of commits that have several.
    - `_keys_by_id`: the first key of each commit, by thread and id.
    - `_unused_entries`: entries that no recovered commit uses.
    - `_last_commits`: the newest commit of each thread so far.
    """

    def __init__(
        self,
        recovered: RecoveredRows,
        entries: dict[int, Id],
        tombstones: dict[tuple[str, Id], Tombstone],
        object_format: ObjectFormat,
    ) -> None:
        self._rows = cast(dict[int, Row], recovered.table("commits"))
        self._indexed_ids = recovered.index(COMMIT_IDS)
        self._entries = entries
        self._tombstones = tombstones
        self._format = object_format
        self._entry_lists = _read_entry_lists(recovered)
        self._are_lists_damaged = "commit_entry" in recovered.damaged
        self._likely_parents = _find_likely_parents(recovered)
        self._graph = Graph()
        self._keys_by_id: dict[tuple[int, Id], int] = {}
        self._tries_left = MAX_TRIES
        used = {row[8] for row in self._rows.values()}
        used.update(entry for entry_list in self._entry_lists.values() for entry in entry_list)
        self._unused_entries = [key for key in entries if key not in used]
        self._last_commits: dict[int, int] = {}

    def run(self) -> Graph:
        for key in sorted(self._rows.keys() | self._indexed_ids.keys()):
            commit = self._read(key) or self._rebuild(key) or self._hole(key)
            if commit is None:
                self._graph.lost.add(key)
                continue
            first = self._keys_by_id.setdefault((commit.thread, commit.id), key)
            self._last_commits[commit.thread] = first
            if first != key:
                self._graph.duplicates[key] = first
            elif key in self._graph.holes or any(
                parent in self._graph.after_hole for parent in commit.parents
            ):
                self._graph.after_hole[key] = commit
                self._graph.lost.add(key)
            else:
                self._graph.commits[key] = commit
        return self._graph

    def _find(self, key: int | None) -> IntactCommit | None:
        """The commit of a key, even if it is a hole or comes after one."""
        commit = self._graph.find(key)
        return commit if commit is not None or key is None else self._graph.after_hole.get(key)

    def _hole(self, key: int) -> IntactCommit | None:
        """The placeholder for a lost commit: its id, which its descendants prove."""
        row = self._rows.get(key)
        if key in self._indexed_ids:
            thread, id = cast(tuple[int, Id], self._indexed_ids[key])
        elif row is not None:
            thread, id = cast(tuple[int, Id], row[1:3])
        else:
            return None
        parent = self._find(
            self._likely_parents.get(key) if row is None else cast("int | None", row[6])
        )
        if (thread, id) in self._keys_by_id or (parent is not None and parent.thread != thread):
            return None
        self._graph.holes.add(key)
        parents = () if parent is None else (parent.key,)
        created = 0.0 if parent is None else parent.created
        return IntactCommit(
            key, thread, id, "append", parents, (HOLE,), self._format.plain_bodies[0], created
        )

    def _read(self, key: int) -> IntactCommit | None:
        """The commit in this row, if it is intact."""
        row = self._rows.get(key)
        if row is None:
            return None
        (_, row_thread, id, _, _, kind, first_parent, second_parent, entry, data, created, usage,
         prefix_chain, row_checksum) = cast(
            tuple[None, int, Id, int, int, str, int | None, int | None, int | None, bytes, float,
                  bytes | None, bytes | None, int | None], row,
        )  # fmt: skip
        parent_keys = [parent for parent in (first_parent, second_parent) if parent is not None]
        parents = [parent for parent in map(self._find, parent_keys) if parent is not None]
        if len(parents) != len(parent_keys):
            return None
        entries = self._entries_of(key, id, kind, entry, data, parents)
        if entries is None:
            return None
        if row_checksum is not None and checksum((created, usage, prefix_chain)) != row_checksum:
            usage = prefix_chain = None
        return IntactCommit(
            key,
            parents[0].thread if parents else self._thread_of_root(key, id, row_thread),
            id,
            kind,
            tuple([parent.key for parent in parents]),
            entries,
            data,
            created,
            usage,
            prefix_chain,
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
        listed = (entry,) if entry is not None else self._entry_lists.get(key, ())
        tombstone = self._tombstones.get(("commit", id))
        if tombstone is not None and tombstone.checksum == checksum((data,)):
            # It was erased on purpose, so its bytes do not hash to its id.
            is_complete = entry is not None or not self._are_lists_damaged
            return listed if is_complete and self._entries.keys() >= {*listed} else None
        parent_ids = tuple([parent.id for parent in parents])
        prefixes = [listed[:length] for length in range(len(listed), -1, -1)]
        guesses = self._guess_lists(parents) if entry is None and self._are_lists_damaged else ()
        for keys in chain(prefixes, guesses):
            ids = tuple([self._entries[entry] for entry in keys if entry in self._entries])
            if len(ids) == len(keys) and self._format.commit_id(kind, parent_ids, ids, data) == id:
                return keys
        return None

    def _guess_lists(self, parents: Sequence[IntactCommit]) -> Iterator[tuple[int, ...]]:
        """Candidates for the entries of a commit whose list is lost.

        A merge repeats the last entries of the other side. Other commits have entries that no other
        commit uses. Their keys are consecutive, but not in the order of the list, so every order is
        tried.
        """
        entries: tuple[int, ...] = ()
        commit = parents[1] if len(parents) > 1 else None
        while commit is not None and len(entries) < MAX_MERGED_LIST:
            entries = (*commit.entries, *entries)
            yield entries
            commit = self._find(commit.parents[0]) if commit.parents else None
        for length in range(1, MAX_LIST + 1):
            for start in range(len(self._unused_entries) - length + 1):
                for keys in permutations(self._unused_entries[start : start + length]):
                    self._tries_left -= 1
                    if self._tries_left > 0:
                        yield keys

    def _thread_of_root(self, key: int, id: Id, row_thread: int) -> int:
        """The thread of a root commit. Its id does not cover it, so the index is trusted first."""
        index_row = self._indexed_ids.get(key)
        if index_row is not None and index_row[1] == id and isinstance(index_row[0], int):
            return index_row[0]
        return row_thread

    def _rebuild(self, key: int) -> IntactCommit | None:
        """Rebuild a plain append whose row is lost, so that it hashes to the id in the index."""
        if key not in self._indexed_ids or key in self._rows:
            return None
        thread, id = cast(tuple[int, Id], self._indexed_ids[key])
        likely_parents = [
            self._find(self._likely_parents.get(key)),
            self._find(self._last_commits.get(thread)),
        ]
        for parent in dict.fromkeys([*likely_parents, None]):
            if parent is not None and parent.thread != thread:
                continue
            append = self._find_append(id, parent)
            if append is not None:
                entry, data = append
                self._graph.rebuilt.add(key)
                created = 0.0 if parent is None else parent.created
                parents = () if parent is None else (parent.key,)
                return IntactCommit(key, thread, id, "append", parents, (entry,), data, created)
        return None

    def _find_append(self, id: Id, parent: IntactCommit | None) -> tuple[int, bytes] | None:
        """The entry and the body with which an append after this parent hashes to this id."""
        parent_ids = () if parent is None else (parent.id,)
        for entries in (self._unused_entries, list(islice(self._entries, MAX_REUSED_ENTRIES))):
            for entry in entries:
                if self._tries_left <= 0:
                    return None
                self._tries_left -= len(self._format.plain_bodies)
                entry_ids = (self._entries[entry],)
                for data in self._format.plain_bodies:
                    if self._format.commit_id("append", parent_ids, entry_ids, data) == id:
                        if entries is self._unused_entries:
                            self._unused_entries.remove(entry)
                        return entry, data
        return None


def _read_entry_lists(recovered: RecoveredRows) -> dict[int, tuple[int, ...]]:
    """The entry lists of commits, in order, up to the first gap."""
    lists: dict[int, list[int]] = {}
    for row in sorted(
        cast("dict[object, tuple[int, int, int]]", recovered.table("commit_entry")).values()
    ):
        commit, position, entry = row
        if position == len(lists.get(commit, ())):
            lists.setdefault(commit, []).append(entry)
    return {commit: tuple(entries) for commit, entries in lists.items()}


def _find_likely_parents(recovered: RecoveredRows) -> dict[int, int]:
    """The probable parent of each commit: the one before it on its line, else from the log."""
    parents: dict[int, int] = {}
    keys = {position: key for key, position in recovered.index(COMMIT_POSITIONS).items()}
    for (line, depth), key in keys.items():
        assert isinstance(depth, int)
        parent = keys.get((line, depth - 1))
        if parent is not None:
            parents[key] = parent
    for row in recovered.table("operation").values():
        old, new = row[4], row[5]
        if isinstance(old, int) and isinstance(new, int):
            parents.setdefault(new, old)
    return parents
