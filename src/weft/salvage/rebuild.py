"""Builds a new file from what can be read of a damaged one.

1. The new file is written and closed. The damaged file is unchanged until then.
2. The damaged file and its log are copied to `<store>.damaged-<number>` and synced to disk.
3. The store's own file is overwritten in place, under SQLite's locks: a process that waits for the
   lock then reads the new file.

After a power cut in step 3, `--repair` starts again from the copy.
"""

import os
from collections.abc import Iterable
from typing import cast

from msgspec import Struct

from weft.errors import Damaged
from weft.ids import SIZE, Id
from weft.store import ObjectFormat, Tombstone, checksum
from weft.store.sqlite import SqliteFile

from .graph import HOLE, Graph, check_commits
from .names import Names, ShortenedBranch, plan_names
from .recovered_rows import (
    COMMIT_IDS,
    COMMIT_POSITIONS,
    ENTRY_IDS,
    Pages,
    RecoveredRows,
    Row,
    recover_rows,
)
from .repair_lock import RepairLock

BATCH_SIZE = 1000
TOMBSTONE_REASONS = frozenset({"forgotten", "damaged"})
PUT_ENTRY = "INSERT OR IGNORE INTO entry (key, id, data) VALUES (?, ?, ?)"
PUT_TOMBSTONE = "INSERT OR IGNORE INTO tombstone VALUES (?, ?, ?, ?, ?)"


class Salvage(Struct, frozen=True):
    """What was recovered from a damaged file and what was not.

    - `copy_path`: the path of the damaged file's copy.
    - `lost_commits`: the lost commits that something intact still refers to.
    - `missing_commits`: the keys without a commit, up to the highest known key. This is larger than
      `lost_commits` if nothing refers to a lost commit, or if `gc` has removed some.
    """

    copy_path: str
    commits: int
    entries: int
    lost_commits: int
    missing_commits: int
    lost_entries: tuple[str, ...]
    rebuilt_commits: int
    lost_operations: int
    is_log_damaged: bool
    shortened: tuple[ShortenedBranch, ...]
    lost_names: tuple[str, ...]
    lost_attempts: int = 0

    def lines(self) -> list[str]:
        """The result as sentences for people."""
        lines = [
            f"the damaged file is kept as {self.copy_path!r}",
            f"{self.commits} commits and {self.entries} entries are intact and in a new file",
        ]
        if self.rebuilt_commits:
            lines.append(
                f"{self.rebuilt_commits} commits were rebuilt from their ids, without their times"
            )
        lost = f"{self.lost_commits} commits are lost, or have a lost ancestor"
        if self.missing_commits > self.lost_commits:
            lines.append(f"at least {lost}; {self.missing_commits} numbers of commits are missing")
        elif self.lost_commits:
            lines.append(lost)
        lines += [f"entry {id} is lost: its row has a placeholder" for id in self.lost_entries]
        if self.lost_operations or self.is_log_damaged:
            prefix = "at least " if self.is_log_damaged else ""
            lines.append(f"{prefix}{self.lost_operations} operations cannot be undone")
        if self.lost_attempts:
            lines.append(f"{self.lost_attempts} attempts at an answer are lost")
        return [*lines, *self.lost_names, *map(str, self.shortened)]


def salvage(path: str, object_format: ObjectFormat, created: float) -> Salvage:
    """Replace a damaged file by a new one with everything intact; the old one is kept beside it.

    Raises `StoreError` if the store is open elsewhere, and `Damaged` if nothing can be read. The
    file is unchanged then.
    """
    with RepairLock(path) as lock:
        new_path = f"{lock.path}.repairing"
        _delete_files(new_path)
        file = SqliteFile(new_path)
        try:
            result = _Rebuilder(file, object_format, created).run(Pages(lock.data, lock.wal))
        except BaseException:
            file.close()
            _delete_files(new_path)
            raise
        file.close()
        if not result.commits and not result.entries:
            _delete_files(new_path)
            raise Damaged(f"nothing of a store can be read in {path!r}; it is left as it is")
        copy_path = lock.replace(new_path)
        _delete_files(new_path)
    return Salvage(copy_path, *[getattr(result, name) for name in Salvage.__struct_fields__[1:]])


class _Rebuilder:
    """Writes the new file.

    - `_ids`: the id of each entry, by key; `_keys`: the key of each written entry, by id.
    - `_mismatched`: entries that do not hash to their id.
    - `_unwritten`: entries that are written with the next batch.
    """

    def __init__(self, file: SqliteFile, object_format: ObjectFormat, created: float) -> None:
        self._file = file
        self._format = object_format
        self._created = created
        self._ids: dict[int, Id] = {}
        self._keys: dict[Id, int] = {}
        self._mismatched: dict[int, tuple[Id, bytes]] = {}
        self._unwritten: list[tuple[int, Id, bytes]] = []

    def run(self, pages: Pages) -> Salvage:
        with self._file.transaction():
            recovered = recover_rows(pages, self._add_entry)
            tombstones = _tombstones(recovered)
            self._keep_erased_entries(tombstones)
            intact_ids = dict(self._ids)
            for key, (id,) in recovered.index(ENTRY_IDS).items():
                self._ids.setdefault(key, cast(Id, id))
            for key, (id, _) in self._mismatched.items():
                self._ids.setdefault(key, id)
            graph = check_commits(recovered, self._ids, tombstones, self._format)
            names = plan_names(recovered, graph)
            self._fill_holes(graph)
            lost = self._put_stand_ins(graph)
            self._put_commits(graph)
            self._put_names(names, recovered)
            self._put_tombstones(tombstones, graph)
            lost_attempts = self._put_attempts(recovered, graph)
        kept_keys = (graph.commits.keys() | graph.duplicates.keys()) - graph.holes
        max_ids = pages.count * pages.size // SIZE  # a higher key is damaged: no file has more ids
        referenced = {key for key in _referenced_keys(recovered) | graph.lost if 0 < key <= max_ids}
        missing = max([0, *referenced, *kept_keys]) - len(kept_keys)
        return Salvage(
            "", len(graph.commits) - len(graph.holes), len(intact_ids), len(referenced - kept_keys),
            missing, tuple(lost),
            len(graph.rebuilt), names.lost_log_lines, "operation" in recovered.damaged,
            tuple(names.shortened), tuple(names.lost_names), lost_attempts,
        )  # fmt: skip

    def _add_entry(self, key: int, id: Id, data: bytes) -> None:
        if key in self._ids:
            return
        if self._format.entry_id(data) == id:
            self._put_entry(key, id, data)
        else:
            self._mismatched.setdefault(key, (id, data))

    def _put_entry(self, key: int, id: Id, data: bytes) -> None:
        self._ids[key] = id
        if id not in self._keys:
            self._keys[id] = key
            self._unwritten.append((key, id, data))
            if len(self._unwritten) >= BATCH_SIZE:
                self._write_entries()

    def _write_entries(self) -> None:
        self._file.write_many(PUT_ENTRY, self._unwritten)
        self._unwritten.clear()

    def _keep_erased_entries(self, tombstones: dict[tuple[str, Id], Tombstone]) -> None:
        """Keep entries that do not hash to their id because they were erased on purpose."""
        for key, (id, data) in list(self._mismatched.items()):
            tombstone = tombstones.get(("entry", id))
            is_erased = tombstone is not None and tombstone.checksum == checksum((data,))
            if key in self._ids or is_erased:
                del self._mismatched[key]
            if key not in self._ids and is_erased:
                self._put_entry(key, id, data)

    def _fill_holes(self, graph: Graph) -> None:
        """Give every hole the same placeholder entry and a tombstone."""
        if not graph.holes:
            return
        data = self._format.damaged_entry(b"")
        self._ids[HOLE] = id = self._format.entry_id(data)
        if id not in self._keys:
            self._put_entry(max([HOLE, *self._ids]) + 1, id, data)
        for key in graph.holes:
            hole = graph.commits[key]
            tombstone = ("commit", hole.id, "damaged", checksum((hole.data,)), self._created)
            self._file.write(PUT_TOMBSTONE, tombstone)

    def _put_stand_ins(self, graph: Graph) -> list[str]:
        """Write a placeholder for each lost entry of an intact commit; returns their ids."""
        lost: list[str] = []
        for commit in graph.commits.values():
            for key in commit.entries:
                id = self._ids[key]
                if id in self._keys:
                    continue
                data = self._format.damaged_entry(self._mismatched.get(key, (b"", b""))[1])
                self._put_entry(key, id, data)
                tombstone = ("entry", id, "damaged", checksum((data,)), self._created)
                self._file.write(PUT_TOMBSTONE, tombstone)
                lost.append(id.hex())
        self._write_entries()
        return lost

    def _put_commits(self, graph: Graph) -> None:
        lines, positions = plan_lines(graph)
        self._file.write_many(
            "INSERT INTO line (key, base_line, base_depth) VALUES (?, ?, ?)", lines
        )
        for commit in graph.commits.values():
            entries = [self._keys[self._ids[key]] for key in commit.entries]
            single = entries[0] if commit.kind == "append" and len(entries) == 1 else None
            first, second = (*commit.parents, None, None)[:2]
            # The columns that the commit's id does not cover.
            checked_columns = (commit.created or self._created, commit.usage, commit.chain)
            self._file.write(
                """INSERT INTO commits (key, thread, id, line, depth, kind, parent, second, entry,
                data, created, usage, chain, checksum)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
                (commit.key, commit.thread, commit.id, *positions[commit.key], commit.kind, first,
                 second, single, commit.data, *checked_columns, checksum(checked_columns)),
            )  # fmt: skip
            if single is None:
                self._file.write_many(
                    "INSERT INTO commit_entry VALUES (?, ?, ?)",
                    [(commit.key, position, entry) for position, entry in enumerate(entries)],
                )

    def _put_names(self, names: Names, recovered: RecoveredRows) -> None:
        for key, row in names.threads.items():
            self._file.write(
                """INSERT OR IGNORE INTO thread
                (key, name, head, checkpoints, scope, created, parent, kind, title, agent, folder)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
                (key, *row[1:6], *(*row[7:], *[None] * 5)[:5]),
            )
        sql = "INSERT OR IGNORE INTO ref (key, thread, name, target) VALUES (?, ?, ?, ?)"
        self._file.write_many(sql, [(key, *ref) for key, ref in names.refs.items()])
        sql = "UPDATE thread SET refs = (SELECT count(*) FROM ref WHERE ref.thread = thread.key)"
        self._file.write(sql)
        sql = "INSERT INTO operation VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        self._file.write_many(sql, names.log)
        self._file.write_many(
            "INSERT INTO batch VALUES (?, ?, ?)", _intact_batches(names, recovered)
        )
        checkpoints = [
            row for row in recovered.table("checkpoint").values() if row[0] in names.threads
        ]
        self._file.write_many("INSERT OR IGNORE INTO checkpoint VALUES (?, ?)", checkpoints)

    def _put_tombstones(self, tombstones: dict[tuple[str, Id], Tombstone], graph: Graph) -> None:
        """Write the tombstones whose objects are intact, as their checksums prove."""
        bodies = {commit.id: commit.data for commit in graph.commits.values()}
        for (kind, id), tombstone in tombstones.items():
            if kind == "commit" and id in bodies:
                is_intact = checksum((bodies[id],)) == tombstone.checksum
            else:
                rows = self._file.read("SELECT data FROM entry WHERE id = ?", (id,))
                is_intact = bool(rows) and checksum((rows[0][0],)) == tombstone.checksum
            if is_intact:
                row = (kind, id, tombstone.reason, tombstone.checksum, self._created)
                self._file.write(PUT_TOMBSTONE, row)

    def _put_attempts(self, recovered: RecoveredRows, graph: Graph) -> int:
        """Write the attempts with a valid checksum and a kept commit; returns how many are lost."""
        lost = 0
        for key, row in sorted(cast("dict[int, Row]", recovered.table("attempt")).items()):
            _, commit_key, state, data, created, sum = row
            commit = graph.find(cast(int, commit_key))
            if commit is None or checksum((commit_key, state, data, created)) != sum:
                lost += 1
                continue
            columns = (commit.key, state, data, created)
            sql = "INSERT OR IGNORE INTO attempt VALUES (?, ?, ?, ?, ?, ?)"
            self._file.write(sql, (key, *columns, checksum(columns)))
        return lost


def plan_lines(
    graph: Graph,
) -> tuple[list[tuple[int, int | None, int | None]], dict[int, tuple[int, int]]]:
    """The rows of `line`, and the line and depth of every commit, as normal writes assign them."""
    lines: list[tuple[int, int | None, int | None]] = []
    positions: dict[int, tuple[int, int]] = {}
    continued: set[int] = set()  # commits whose line has a next commit
    for commit in graph.commits.values():
        depth = 1 + max((positions[parent][1] for parent in commit.parents), default=0)
        base = positions[commit.parents[0]] if commit.parents else None
        if base is not None and commit.parents[0] not in continued:
            line = base[0]
            continued.add(commit.parents[0])
        else:
            line = len(lines) + 1
            lines.append((line, None, None) if base is None else (line, *base))
        positions[commit.key] = (line, depth)
    return lines, positions


def _referenced_keys(recovered: RecoveredRows) -> set[int]:
    """The keys of all commits that a recovered row refers to."""
    keys: set[object] = {*recovered.index(COMMIT_IDS), *recovered.index(COMMIT_POSITIONS)}
    for table, columns in (("operation", (4, 5)), ("commits", (6, 7)), ("ref", (3,))):
        keys.update(row[column] for row in recovered.table(table).values() for column in columns)
    return {key for key in keys if isinstance(key, int)}


def _tombstones(recovered: RecoveredRows) -> dict[tuple[str, Id], Tombstone]:
    tombstones: dict[tuple[str, Id], Tombstone] = {}
    for row in recovered.table("tombstone").values():
        kind, id, reason, sum, _ = cast(tuple[str, Id, str, int, float], row)
        if reason in TOMBSTONE_REASONS:
            tombstones[(kind, id)] = Tombstone(reason, sum)
    return tombstones


def _delete_files(path: str) -> None:
    """Delete a database file, if it exists, and the files beside it."""
    for name in (path, f"{path}-wal", f"{path}-shm"):
        if os.path.exists(name):
            os.remove(name)


def _intact_batches(names: Names, recovered: RecoveredRows) -> list[Row]:
    """The batches whose operations are all in the log; others are undone one by one."""
    operations = {(line.thread, line.seq) for line in names.log}
    batches = cast("Iterable[tuple[int, int, int]]", recovered.table("batch").values())
    return [
        (thread, last, first)
        for thread, last, first in batches
        if 0 < last - first <= len(operations)
        and all((thread, number) in operations for number in range(first, last + 1))
    ]
