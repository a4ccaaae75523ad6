"""Which commits of a damaged store are whole.

A commit is whole if it hashes to its id, with the ids of its parents and entries, and if all that
it comes from is whole; so whatever compiles afterwards is what compiled before, or the beginning
of it. Keys grow with time, hence one pass in the order of keys is enough.

The index of ids outlives the page of a commit. Most commits say nothing but one message: such a
one is made again from its parent and the entry that no other commit brings, and its id proves
it. Only its time and what a model reported are gone, which no id covers. In the same way a commit
outlives the list of its entries.

What cannot be made again is a *hole*. What comes behind it is not lost with it: its ids prove it
as well as before, it is only not known what it was said to. It is kept apart, and never counts as
what a branch was.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, permutations
from typing import cast

from msgspec import Struct, field

from weft.ids import Id
from weft.store.landing import checksum
from weft.store.maintenance import ObjectFormat, Tombstone

from .recovered_rows import COMMIT_IDS, PLACES, RecoveredRows, Row

LONGEST_RUN, LONGEST_MERGE = 5, 200
TRIED_OTHERS = 1000  # entries of other commits: some things are said more than once
HOLE = 0  # the key that stands for the entry of every hole
TRIES = 1_000_000  # ids that are computed to make lost commits again, over the whole file


class Whole(Struct, frozen=True, gc=False):
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
    """The commits that are whole by key; `same` are keys under which one of them stands again.

    `behind` are those that would be whole but for one that they come from, and `holes` such ones:
    their ids are known, nothing else.
    """

    commits: dict[int, Whole] = field(default_factory=dict[int, Whole])
    same: dict[int, int] = field(default_factory=dict[int, int])
    lost: set[int] = field(default_factory=set[int])
    remade: set[int] = field(default_factory=set[int])
    behind: dict[int, Whole] = field(default_factory=dict[int, Whole])
    holes: set[int] = field(default_factory=set[int])

    def find(self, key: int | None) -> Whole | None:
        return None if key is None else self.commits.get(self.same.get(key, key))

    def find_behind(self, key: int | None) -> Whole | None:
        """The commit, also where it comes from one that is lost; no hole."""
        return None if key in self.holes or key is None else self.behind.get(key)

    def adopt(self, tips: Iterable[int]) -> None:
        """Keep these commits that are behind holes, and all that they come from."""
        kept: dict[int, Whole] = {}
        waiting = list(tips)
        while waiting:
            key = waiting.pop()
            if key in self.behind and key not in kept:
                kept[key] = self.behind[key]
                waiting += kept[key].parents
        self.commits = dict(sorted({**self.commits, **kept}.items()))
        self.holes &= kept.keys()


def judge_commits(
    recovered: RecoveredRows,
    entries: dict[int, Id],
    tombstones: dict[tuple[str, Id], Tombstone],
    judge: ObjectFormat,
) -> Graph:
    """Every commit that is whole, read or made again."""
    return _Judging(recovered, entries, tombstones, judge).run()


class _Judging:
    """One pass over all keys."""

    def __init__(
        self,
        recovered: RecoveredRows,
        entries: dict[int, Id],
        tombstones: dict[tuple[str, Id], Tombstone],
        judge: ObjectFormat,
    ) -> None:
        self._rows = cast(dict[int, Row], recovered.table("commits"))
        self._names = recovered.ids(COMMIT_IDS)
        self._entries = entries
        self._tombstones = tombstones
        self._judge = judge
        self._many = _lists(recovered)
        self._lists_torn = "commit_entry" in recovered.torn
        self._origin = _origins(recovered)
        self._graph = Graph()
        self._ids: dict[tuple[int, Id], int] = {}
        self._tries = TRIES
        brought = {row[8] for row in self._rows.values()}
        brought.update(entry for many in self._many.values() for entry in many)
        self._spare = [key for key in entries if key not in brought]
        self._last: dict[int, int] = {}

    def run(self) -> Graph:
        for key in sorted(self._rows.keys() | self._names.keys()):
            whole = self._read(key) or self._again(key) or self._hole(key)
            if whole is None:
                self._graph.lost.add(key)
                continue
            first = self._ids.setdefault((whole.thread, whole.id), key)
            self._last[whole.thread] = first
            if first != key:
                self._graph.same[key] = first
            elif key in self._graph.holes or any(p in self._graph.behind for p in whole.parents):
                self._graph.behind[key] = whole
                self._graph.lost.add(key)
            else:
                self._graph.commits[key] = whole
        return self._graph

    def _known(self, key: int | None) -> Whole | None:
        """The commit of a key, or what stands for it."""
        found = self._graph.find(key)
        return found if found is not None or key is None else self._graph.behind.get(key)

    def _hole(self, key: int) -> Whole | None:
        """What stands for a commit that is lost: its id, which those that come from it prove."""
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
        return Whole(key, thread, id, "append", above, (HOLE,), self._judge.plain[0], created)

    def _read(self, key: int) -> Whole | None:
        """The commit in this row, if it is whole."""
        row = self._rows.get(key)
        if row is None:
            return None
        (_, owner, id, _, _, kind, parent, second, entry, data, created, usage, match, sum) = cast(
            tuple[None, int, Id, int, int, str, int | None, int | None, int | None, bytes, float,
                  bytes | None, bytes | None, int | None], row,
        )  # fmt: skip
        keys = tuple([part for part in (parent, second) if part is not None])
        parents = [self._known(part) for part in keys]
        whole = [part for part in parents if part is not None]
        if len(whole) != len(keys):
            return None
        brought = self._brought(key, id, kind, entry, data, whole)
        if brought is None:
            return None
        if sum is not None and checksum((created, usage, match)) != sum:
            usage = match = None
        thread = whole[0].thread if whole else self._thread(key, id, owner)
        return Whole(
            key,
            thread,
            id,
            kind,
            tuple([p.key for p in whole]),
            brought,
            data,
            created,
            usage,
            match,
        )

    def _brought(
        self,
        key: int,
        id: Id,
        kind: str,
        entry: int | None,
        data: bytes,
        parents: Sequence[Whole],
    ) -> tuple[int, ...] | None:
        """The keys of the entries with which the commit has its id; `None` where none fit."""
        listed = (entry,) if entry is not None else self._many.get(key, ())
        tombstone = self._tombstones.get(("commit", id))
        if tombstone is not None and tombstone.checksum == checksum((data,)):
            sure = entry is not None or not self._lists_torn
            return listed if sure and all(part in self._entries for part in listed) else None
        above = tuple([part.id for part in parents])
        beginnings = [listed[:length] for length in range(len(listed), -1, -1)]
        guesses = self._guesses(parents) if entry is None and self._lists_torn else ()
        for keys in chain(beginnings, guesses):
            ids = tuple([self._entries[part] for part in keys if part in self._entries])
            if len(ids) == len(keys) and self._judge.commit_id(kind, above, ids, data) == id:
                return keys
        return None

    def _guesses(self, parents: Sequence[Whole]) -> Iterator[tuple[int, ...]]:
        """What a commit may have brought whose list is gone.

        A merge says again what the other side said last. Others bring entries that are nobody
        else's, written in a row, several in the order of their ids; so a run is tried in every
        order.
        """
        said: tuple[int, ...] = ()
        commit = parents[1] if len(parents) > 1 else None
        while commit is not None and len(said) < LONGEST_MERGE:
            said = (*commit.entries, *said)
            yield said
            commit = self._known(commit.parents[0]) if commit.parents else None
        for length in range(1, LONGEST_RUN + 1):
            for start in range(len(self._spare) - length + 1):
                for keys in permutations(self._spare[start : start + length]):
                    self._tries -= 1
                    if self._tries > 0:
                        yield keys

    def _thread(self, key: int, id: Id, owner: int) -> int:
        """The thread of a first commit, which its id does not cover."""
        named = self._names.get(key)
        if named is not None and named[1] == id and isinstance(named[0], int):
            return named[0]
        return owner

    def _again(self, key: int) -> Whole | None:
        """A plain append whose row is gone, made so that it has the id that the index knows."""
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
            found = self._search(id, parent)
            if found is not None:
                entry, data = found
                self._graph.remade.add(key)
                created = 0.0 if parent is None else parent.created
                above = () if parent is None else (parent.key,)
                return Whole(key, thread, id, "append", above, (entry,), data, created)
        return None

    def _search(self, id: Id, parent: Whole | None) -> tuple[int, bytes] | None:
        """The entry and the body with which an append behind this parent has this id."""
        above = () if parent is None else (parent.id,)
        for pool in (self._spare, list(islice(self._entries, TRIED_OTHERS))):
            for entry in pool:
                if self._tries <= 0:
                    return None
                self._tries -= len(self._judge.plain)
                for data in self._judge.plain:
                    if self._judge.commit_id("append", above, (self._entries[entry],), data) == id:
                        if pool is self._spare:
                            self._spare.remove(entry)
                        return entry, data
        return None


def _lists(recovered: RecoveredRows) -> dict[int, tuple[int, ...]]:
    """The entries of commits that have a list of them, in order and without a gap."""
    found: dict[int, list[int]] = {}
    for row in sorted(
        cast("dict[object, tuple[int, int, int]]", recovered.table("commit_entry")).values()
    ):
        commit, position, entry = row
        if position == len(found.get(commit, ())):
            found.setdefault(commit, []).append(entry)
    return {commit: tuple(entries) for commit, entries in found.items()}


def _origins(recovered: RecoveredRows) -> dict[int, int]:
    """What a commit probably came from: the log's word, else the one before it on its line."""
    found: dict[int, int] = {}
    places = {(line, depth): key for key, (line, depth) in recovered.ids(PLACES).items()}
    for (line, depth), key in places.items():
        assert isinstance(depth, int)
        before = places.get((line, depth - 1))
        if before is not None:
            found[key] = before
    for row in recovered.table("operation").values():
        old, new = row[4], row[5]
        if isinstance(old, int) and isinstance(new, int):
            found.setdefault(new, old)
    return found
