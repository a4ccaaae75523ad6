"""The maintenance interface in SQL: structural checks, repair, deletion."""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from weft.ids import Id

from .base import (
    BUCKETS,
    AttemptRecord,
    CommitGraph,
    Dropped,
    Flaw,
    ObjectKind,
    Step,
    Tombstone,
    TombstoneReason,
)
from .database import Database, SqlRow
from .landing import DEFAULT_BRANCH, checksum

CHUNK = 500  # ids per statement, as in `relational`
SEGMENT_BITS = 32
SEGMENT_MASK = (1 << SEGMENT_BITS) - 1
ANY_KIND = "kind IN ('commit', 'entry')"  # the primary key of `tombstone` begins with `kind`

Constraint = tuple[str, str, str]
"""The kind of object, the problem, and a query for the objects that have it.

The query returns their name or id, and the key of their thread.
"""

MISSING_PARENT: Constraint = (
    "commit",
    "refers to a missing parent",
    """SELECT c.id, c.thread FROM commits c LEFT JOIN commits p ON p.key = c.parent
    LEFT JOIN commits s ON s.key = c.second WHERE (c.parent IS NOT NULL AND p.key IS NULL)
    OR (c.second IS NOT NULL AND s.key IS NULL)""",
)
MISSING_ENTRY: Constraint = (
    "commit",
    "refers to a missing entry",
    """SELECT c.id, c.thread FROM commits c LEFT JOIN entry e ON e.key = c.entry
    WHERE c.entry IS NOT NULL AND e.key IS NULL UNION
    SELECT c.id, c.thread FROM commit_entry m JOIN commits c ON c.key = m.commit_key
    LEFT JOIN entry e ON e.key = m.entry WHERE e.key IS NULL""",
)

DANGLING_REF: Constraint = (
    "ref",
    "points at a missing commit",
    """SELECT r.name, r.thread FROM ref r LEFT JOIN commits c ON c.key = r.target
    WHERE r.target IS NOT NULL AND (c.key IS NULL OR c.thread <> r.thread)""",
)
WRONG_REF: Constraint = (
    "ref",
    "points elsewhere than the log says",
    """SELECT r.name, r.thread FROM ref r JOIN (SELECT o.ref, o.new,
        row_number() OVER (PARTITION BY o.thread, o.ref ORDER BY o.seq DESC) AS place,
        o.thread FROM operation o) n ON n.ref = r.key AND n.thread = r.thread AND n.place = 1
    WHERE coalesce(r.target, 0) <> coalesce(n.new, 0)""",
)
MISSING_HEAD: Constraint = (
    "thread",
    "has a current branch that is missing",
    """SELECT t.name, t.key FROM thread t
    LEFT JOIN ref r ON r.thread = t.key AND r.name = t.head WHERE r.key IS NULL
    AND EXISTS (SELECT 1 FROM commits c WHERE c.thread = t.key) AND (t.head <> 'main'
    OR EXISTS (SELECT 1 FROM operation o
        LEFT JOIN ref n ON n.key = o.ref AND n.thread = o.thread
        WHERE o.thread = t.key AND n.key IS NULL))""",
)

CONSTRAINTS: tuple[Constraint, ...] = (
    MISSING_PARENT,
    MISSING_ENTRY,
    (
        "commit",
        "has a depth that does not fit its parents",
        """SELECT c.id, c.thread FROM commits c LEFT JOIN commits p ON p.key = c.parent
        LEFT JOIN commits s ON s.key = c.second WHERE c.depth <> 1 +
        CASE WHEN coalesce(s.depth, 0) > coalesce(p.depth, 0) THEN s.depth
        ELSE coalesce(p.depth, 0) END""",
    ),
    (
        "commit",
        "is on a line that does not lead to its parent",
        """SELECT n.id, n.thread FROM (SELECT id, thread, parent, line,
            lag(key) OVER (PARTITION BY line ORDER BY depth) AS before FROM commits) n
        LEFT JOIN commits p ON p.key = n.parent LEFT JOIN line l ON l.key = n.line
        WHERE CASE WHEN n.before IS NOT NULL THEN n.parent IS NULL OR n.before <> n.parent
        ELSE l.key IS NULL OR coalesce(l.base_line, 0) <> coalesce(p.line, 0)
        OR coalesce(l.base_depth, 0) <> coalesce(p.depth, 0) END""",
    ),
    (
        "commit",
        "belongs to a missing thread",
        """SELECT c.id, c.thread FROM commits c LEFT JOIN thread t ON t.key = c.thread
        WHERE t.key IS NULL""",
    ),
    (
        "commit",
        "belongs to another thread than its parent",
        """SELECT c.id, c.thread FROM commits c JOIN commits p ON p.key IN (c.parent, c.second)
        WHERE p.thread <> c.thread""",
    ),
    (
        "link",
        "leads to a missing commit",
        """SELECT l.key, 0 FROM link l LEFT JOIN commits c ON c.key = l.commit_key
        WHERE c.key IS NULL""",
    ),
    DANGLING_REF,
    WRONG_REF,
    (
        "operation",
        "refers to a missing commit",
        """SELECT o.seq, o.thread FROM operation o LEFT JOIN commits a ON a.key = o.old
        LEFT JOIN commits b ON b.key = o.new WHERE (o.old IS NOT NULL AND a.key IS NULL)
        OR (o.new IS NOT NULL AND b.key IS NULL)""",
    ),
    (
        "operation",
        "refers to a missing branch",
        """SELECT o.seq, o.thread FROM operation o
        LEFT JOIN ref r ON r.key = o.ref AND r.thread = o.thread WHERE r.key IS NULL""",
    ),
    (
        "attempt",
        "belongs to a missing commit",
        """SELECT a.key, 0 FROM attempt a LEFT JOIN commits c ON c.key = a.commit_key
        WHERE c.key IS NULL""",
    ),
    MISSING_HEAD,
    (
        "thread",
        "has fewer branches than it had",
        """SELECT t.name, t.key FROM thread t
        WHERE t.refs > (SELECT count(*) FROM ref n WHERE n.thread = t.key)""",
    ),
)

LOG_COLUMNS = "verb, ref, old, new, was, created"  # those that the checksum covers, in its order
REF_COLUMN, WAS_COLUMN = (LOG_COLUMNS.split(", ").index(name) for name in ("ref", "was"))


def repair_structure(db: Database) -> list[str]:
    """Restore owners and lines from the graph, refs from the log, and recompute checksums.

    Returns one line per repair.
    """
    repairs: list[str] = []
    with db.transaction():
        repairs += _restore_owners(db)
        repairs += _restore_threads(db)
        repairs += _restore_lines(db)
        repairs += _restore_branches(db)
        repairs += _repair_refs(db)
        repairs += _drop_orphaned_attempts(db)
        repairs += _recompute_checksums(db)
    return repairs


def _recompute_checksums(db: Database) -> list[str]:
    """Correct wrong checksums, and add missing ones: rows of old versions have none."""
    repairs: list[str] = []
    for key, stored, *unhashed in db.read(
        "SELECT key, checksum, created, usage, chain FROM commits"
    ):
        if stored != checksum(tuple(unhashed)):
            sql = "UPDATE commits SET checksum = ? WHERE key = ?"
            db.write(sql, (checksum(tuple(unhashed)), key))
            repairs += [] if stored is None else [f"recomputed the checksum of commit {key}"]
    for owner, seq, *columns, stored in read_log(db):
        if stored != checksum(tuple(columns)):
            sql = "UPDATE operation SET checksum = ? WHERE thread = ? AND seq = ?"
            db.write(sql, (checksum(tuple(columns)), owner, seq))
            repairs += [] if stored is None else [f"recomputed the checksum of operation {seq}"]
    return repairs


def _drop_orphaned_attempts(db: Database) -> list[str]:
    """Delete attempts without a commit: they belong to no thread and cannot be read."""
    dropped = db.write(
        """DELETE FROM attempt WHERE NOT EXISTS
        (SELECT 1 FROM commits c WHERE c.key = attempt.commit_key)"""
    )
    return [f"deleted {dropped} attempts whose commits are missing"] if dropped else []


def _restore_owners(db: Database) -> list[str]:
    """Give all commits of a line to the thread that owns most of them."""
    repairs: list[str] = []
    for (line,) in db.read(
        """SELECT DISTINCT c.line FROM commits c JOIN commits p ON p.key = c.parent
        WHERE p.thread <> c.thread ORDER BY c.line"""
    ):
        ((owner,),) = db.read(
            """SELECT c.thread FROM commits c LEFT JOIN commits p ON p.key = c.parent
            WHERE c.line = ? GROUP BY c.thread
            ORDER BY count(*) DESC, sum(CASE WHEN p.thread = c.thread THEN 1 ELSE 0 END) DESC
            LIMIT 1""",
            (line,),
        )
        moved = db.write(
            """UPDATE commits SET thread = ? WHERE line = ? AND thread <> ? AND NOT EXISTS
            (SELECT 1 FROM commits o WHERE o.thread = ? AND o.id = commits.id)""",
            (owner, line, owner, owner),
        )
        repairs += [f"moved {moved} commits back to their thread"] if moved else []
    return repairs


def _restore_threads(db: Database) -> list[str]:
    """Recreate threads that have commits but no row, under a new name."""
    repairs: list[str] = []
    names = {name for (name,) in db.read("SELECT name FROM thread")}
    for key, created in db.read(
        """SELECT c.thread, min(c.created) FROM commits c LEFT JOIN thread t ON t.key = c.thread
        WHERE t.key IS NULL GROUP BY c.thread ORDER BY c.thread"""
    ):
        name = f"recovered-{key}"
        while name in names:
            name += "-again"
        refs = db.read(
            "SELECT name FROM ref WHERE thread = ? AND target IS NOT NULL ORDER BY key", (key,)
        )
        head = next((ref for (ref,) in refs if ":" not in ref), DEFAULT_BRANCH)
        has_checkpoints = bool(db.read("SELECT 1 FROM checkpoint WHERE thread = ? LIMIT 1", (key,)))
        db.write(
            """INSERT INTO thread (key, name, head, checkpoints, scope, created)
            VALUES (?, ?, ?, ?, ?, ?)""",
            (key, name, head, int(has_checkpoints), None, created),
        )
        repairs.append(f"restored a thread as {name!r}; its old name is lost")
    return repairs


def _restore_lines(db: Database) -> list[str]:
    """Recreate missing lines; the base is the parent of the line's first commit."""
    rows = db.read(
        """SELECT c.line, p.line, p.depth FROM commits c LEFT JOIN commits p ON p.key = c.parent
        LEFT JOIN line l ON l.key = c.line WHERE l.key IS NULL AND c.depth =
        (SELECT min(m.depth) FROM commits m WHERE m.line = c.line)"""
    )
    for row in rows:
        db.write("INSERT INTO line (key, base_line, base_depth) VALUES (?, ?, ?)", row)
    return [f"restored {len(rows)} lines"] if rows else []


def _restore_branches(db: Database) -> list[str]:
    """Recreate branches that are only in the log, and give every thread a current branch."""
    repairs: list[str] = []
    for key, owner in db.read(
        """SELECT DISTINCT o.ref, o.thread FROM operation o
        LEFT JOIN ref r ON r.key = o.ref AND r.thread = o.thread
        WHERE r.key IS NULL ORDER BY o.ref"""
    ):
        missing_heads = db.read(
            """SELECT t.head FROM thread t LEFT JOIN ref r ON r.thread = t.key AND r.name = t.head
            WHERE t.key = ? AND r.key IS NULL""",
            (owner,),
        )
        name = missing_heads[0][0] if missing_heads else _lost_branch_name(db, owner, key)
        _put_ref(db, owner, key, name)
        repairs.append(f"restored branch {name!r}")
    repairs += _correct_ref_counts(db)
    for name, owner in db.read(MISSING_HEAD[2]):
        sql = """UPDATE thread SET head = (SELECT r.name FROM ref r WHERE r.thread = thread.key
            AND r.target IS NOT NULL ORDER BY r.key LIMIT 1) WHERE key = ?
            AND EXISTS (SELECT 1 FROM ref r WHERE r.thread = thread.key
            AND r.target IS NOT NULL)"""
        db.write(sql, (owner,))
        repairs.append(f"the current branch of thread {name!r} is now its first branch")
    return repairs


def _put_ref(db: Database, owner: int, key: int, name: str) -> None:
    """Recreate the row of a lost branch; if its key is in use, its log lines get a new key."""
    if not db.read("SELECT 1 FROM ref WHERE key = ?", (key,)):
        sql = "INSERT INTO ref (key, thread, name) VALUES (?, ?, ?)"
        db.write(sql, (key, owner, name))
        return
    new_key = db.insert("INSERT INTO ref (thread, name) VALUES (?, ?)", (owner, name))
    for thread, seq, *columns, _ in read_log(db):
        if thread == owner and columns[REF_COLUMN] == key:
            columns[REF_COLUMN] = new_key
            sql = "UPDATE operation SET ref = ?, checksum = ? WHERE thread = ? AND seq = ?"
            db.write(sql, (new_key, checksum(tuple(columns)), thread, seq))


def _lost_branch_name(db: Database, owner: int, key: int) -> str:
    """The name of a lost branch, from the switches to it and away from it in the log."""
    switches = db.read(
        """SELECT ref, was FROM operation WHERE thread = ? AND was IS NOT NULL
        AND coalesce(old, 0) = coalesce(new, 0) ORDER BY seq""",
        (owner,),
    )
    names = [was for (ref, _), (_, was) in pairwise(switches) if ref == key]
    existing = db.read("SELECT name FROM ref WHERE thread = ?", (owner,))
    return names[-1] if names and (names[-1],) not in existing else f"recovered-{key}"


def _correct_ref_counts(db: Database) -> list[str]:
    """Correct the ref counts, so that threads with unrecoverable branches can be used again."""
    count = "(SELECT count(*) FROM ref n WHERE n.thread = thread.key)"
    lost = db.read(f"SELECT name, refs - {count} FROM thread WHERE refs > {count}")
    db.write(f"UPDATE thread SET refs = {count} WHERE refs <> {count}")
    return [
        f"{number} lost branches of thread {name!r} cannot be restored" for name, number in lost
    ]


def _repair_refs(db: Database) -> list[str]:
    """Move a wrong or dangling ref to the newest existing commit that the log has for it.

    A ref whose last log line deletes it gets no target.
    """
    repairs: list[str] = []
    for name, owner in {
        tuple(row) for _, _, sql in (DANGLING_REF, WRONG_REF) for row in db.read(sql)
    }:
        rows = db.read(
            """SELECT c.key, c.id FROM operation o
            JOIN ref r ON r.key = o.ref AND r.thread = o.thread
            JOIN commits c ON c.key = o.new WHERE r.name = ? AND r.thread = ?
            ORDER BY o.seq DESC LIMIT 1""",
            (name, owner),
        )
        last_targets = db.read(
            """SELECT o.new FROM operation o JOIN ref r ON r.key = o.ref AND r.thread = o.thread
            WHERE r.name = ? AND r.thread = ? ORDER BY o.seq DESC LIMIT 1""",
            (name, owner),
        )
        is_deleted = bool(last_targets) and last_targets[0][0] is None
        target, id = rows[0] if rows and not is_deleted else (None, None)
        sql = "UPDATE ref SET target = ? WHERE name = ? AND thread = ?"
        db.write(sql, (target, name, owner))
        direction = "nowhere" if id is None else f"at {id.hex()}"
        repairs.append(f"branch {name!r} points {direction}")
    return repairs


def read_log(db: Database) -> list[SqlRow]:
    """Every line of the log: thread, number, the columns of the checksum, and the checksum."""
    return db.read(f"SELECT thread, seq, {LOG_COLUMNS}, checksum FROM operation")


PAGE = 1000

DROPPED_AT_ONCE = 500
"""Commits that `gc` deletes in one transaction: about 20 ms, for which other writers wait."""


class SqlMaintenance:
    """Maintenance of a SQL store: `read_rows` reads rows of commits, `to_steps` decodes them."""

    def __init__(
        self,
        database: Database,
        read_rows: Callable[[str, tuple[int, ...]], list[SqlRow]],
        to_steps: Callable[[list[SqlRow]], list[Step]],
    ) -> None:
        self._db = database
        self._read_rows = read_rows
        self._to_steps = to_steps

    def entries(self) -> Iterator[tuple[Id, bytes]]:
        last = 0
        sql = "SELECT key, id, data FROM entry WHERE key > ? ORDER BY key LIMIT ?"
        while rows := self._db.read(sql, (last, PAGE)):
            for _, id, data in rows:  # damage may have changed the column type to text
                yield id, data if isinstance(data, bytes) else str(data).encode()
            last = rows[-1][0]

    def commits(self) -> Iterator[tuple[str, Step]]:
        names = dict(self._db.read("SELECT key, name FROM thread"))
        queries = [sql for _, _, sql in (MISSING_PARENT, MISSING_ENTRY)]
        broken = {id for sql in queries for id, _ in self._db.read(sql)}
        last = 0
        sql = "WHERE c.key > ? ORDER BY c.key LIMIT ?"
        while rows := self._read_rows(sql, (last, PAGE)):
            last = rows[-1][0]
            owners = dict(
                self._db.read(
                    "SELECT key, thread FROM commits WHERE key >= ? AND key <= ?",
                    (rows[0][0], last),
                )
            )
            intact = [row for row in rows if row[1] not in broken and owners[row[0]] in names]
            for row, step in zip(intact, self._to_steps(intact), strict=True):
                yield names[owners[row[0]]], step

    def attempts(self) -> Iterator[tuple[int, str, AttemptRecord]]:
        last = 0
        sql = """SELECT a.key, t.name, c.id, a.state, a.data, a.created FROM attempt a
            JOIN commits c ON c.key = a.commit_key JOIN thread t ON t.key = c.thread
            WHERE a.key > ? ORDER BY a.key LIMIT ?"""
        while rows := self._db.read(sql, (last, PAGE)):
            for key, name, commit, state, data, created in rows:
                body = data if isinstance(data, bytes) else str(data).encode()
                yield key, name, AttemptRecord(commit, str(state), body, created)
            last = rows[-1][0]

    def put_attempt(self, key: int, state: str, data: bytes) -> None:
        with self._db.transaction():
            sql = "SELECT commit_key, created FROM attempt WHERE key = ?"
            for commit, created in self._db.read(sql, (key,)):
                sql = "UPDATE attempt SET state = ?, data = ?, checksum = ? WHERE key = ?"
                new_checksum = checksum((commit, state, data, created))
                self._db.write(sql, (state, data, new_checksum, key))

    def flaws(self) -> list[Flaw]:
        flaws = [Flaw("file", self._db.dialect.name, line) for line in self._db.integrity()]
        names = dict(self._db.read("SELECT key, name FROM thread"))
        for kind, problem, sql in CONSTRAINTS:
            flaws += [
                Flaw(kind, _flaw_name(id), problem, names.get(owner))
                for id, owner in self._db.read(sql)
            ]
        problem = "carries a checksum that does not fit"
        for id, owner, *unhashed, stored in self._unhashed_rows():
            if stored is not None and checksum(tuple(unhashed)) != stored:
                flaws.append(Flaw("commit", _flaw_name(id), problem, names.get(owner)))
        for owner, seq, *columns, stored in read_log(self._db):
            if stored is not None and checksum(tuple(columns)) != stored:
                flaws.append(Flaw("operation", str(seq), problem, names.get(owner)))
        for key, owner, *columns, stored in self._db.read(
            """SELECT a.key, c.thread, a.commit_key, a.state, a.data, a.created, a.checksum
            FROM attempt a JOIN commits c ON c.key = a.commit_key"""
        ):
            if checksum(tuple(columns)) != stored:
                flaws.append(Flaw("attempt", str(key), problem, names.get(owner)))
        return flaws

    def tombstones(self, ids: Sequence[Id] | None = None) -> dict[tuple[str, Id], Tombstone]:
        sql = "SELECT kind, id, reason, checksum FROM tombstone"
        if ids is None:
            rows = self._db.read(sql)
        else:
            rows = [
                row
                for start in range(0, len(ids), CHUNK)
                for row in self._read_in(
                    f"{sql} WHERE {ANY_KIND} AND id IN", ids[start : start + CHUNK]
                )
            ]
        return {(kind, id): Tombstone(reason, stored) for kind, id, reason, stored in rows}

    def has_tombstones(self) -> bool:
        memo = self._db.memo
        if memo is not None and memo.has_tombstones is not None:
            return memo.has_tombstones
        has_tombstones = bool(self._db.read("SELECT 1 FROM tombstone LIMIT 1"))
        if memo is not None:
            memo.has_tombstones = has_tombstones
        return has_tombstones

    def _read_in(self, sql: str, values: Sequence[Any]) -> list[SqlRow]:
        return self._db.read(f"{sql} ({', '.join('?' * len(values))})", values)

    def write_tombstone(
        self, kind: ObjectKind, id: Id, data: bytes, reason: TombstoneReason, created: float
    ) -> None:
        table = {"entry": "entry", "commit": "commits"}[kind]
        with self._db.transaction():
            self._db.write(f"UPDATE {table} SET data = ? WHERE id = ?", (data, id))
            self._db.write(
                """INSERT INTO tombstone (kind, id, reason, checksum, created)
                VALUES (?, ?, ?, ?, ?) ON CONFLICT (kind, id) DO UPDATE
                SET reason = excluded.reason, checksum = excluded.checksum""",
                (kind, id, reason, checksum((data,)), created),
            )

    def ref_names(self, thread: str) -> dict[str, bool]:
        ((owner, head),) = self._db.read("SELECT key, head FROM thread WHERE name = ?", (thread,))
        names = {
            name: False
            for (name,) in self._db.read(
                "SELECT DISTINCT was FROM operation WHERE thread = ? AND was IS NOT NULL", (owner,)
            )
        }
        for name, target in self._db.read(
            "SELECT name, target FROM ref WHERE thread = ?", (owner,)
        ):
            names[name] = target is not None
        names[head] = True
        return dict(sorted(names.items()))

    def rename_refs(self, thread: str, names: Mapping[str, str]) -> None:
        with self._db.transaction():
            ((owner,),) = self._db.read("SELECT key FROM thread WHERE name = ?", (thread,))
            for old, new in names.items():
                for table, column in (("ref", "name"), ("thread", "head")):
                    key = "thread" if table == "ref" else "key"
                    sql = f"UPDATE {table} SET {column} = ? WHERE {key} = ? AND {column} = ?"
                    self._db.write(sql, (new, owner, old))
                sql = f"SELECT seq, {LOG_COLUMNS} FROM operation WHERE thread = ? AND was = ?"
                for seq, *columns in self._db.read(sql, (owner, old)):
                    columns[WAS_COLUMN] = new
                    self._db.write(
                        "UPDATE operation SET was = ?, checksum = ? WHERE thread = ? AND seq = ?",
                        (new, checksum(tuple(columns)), owner, seq),
                    )

    def unindex(self, thread: str, commits: Sequence[Id]) -> None:
        with self._db.transaction():
            ((owner,),) = self._db.read("SELECT key FROM thread WHERE name = ?", (thread,))
            for start in range(0, len(commits), CHUNK):
                ids = commits[start : start + CHUNK]
                sql = f"SELECT key FROM commits WHERE thread = {int(owner)} AND id IN"
                keys = [key for (key,) in self._read_in(sql, ids)]
                unindex_commits(self._db, owner, keys)

    def drop_index(self) -> None:
        with self._db.transaction():
            for table in ("index_segment", "index_commit", "index_block", "index_pending"):
                self._db.write(f"DELETE FROM {table}")
            self._db.write("UPDATE indexed SET last = 0")

    def referenced_commits(self, thread: str, since: float) -> set[Id]:
        owner = self._owner(thread)
        if owner is None:
            return set()
        logged = """SELECT {} FROM operation o LEFT JOIN commits b ON b.key = o.new
            WHERE o.thread = ? AND coalesce(o.created, b.created) >= ?"""
        rows = self._db.read(
            f"""SELECT c.id FROM commits c WHERE c.key IN (
            SELECT target FROM ref WHERE thread = ? UNION {logged.format("o.old")}
            UNION {logged.format("o.new")})""",
            (owner, owner, since, owner, since),
        )
        return {id for (id,) in rows}

    def commit_graph(self, thread: str) -> CommitGraph:
        owner = self._owner(thread)
        if owner is None:
            return CommitGraph({}, {}, 0)
        # The log is read first: a change while the rest is read makes it longer.
        operations = self._db.read(
            "SELECT seq, old, new FROM operation WHERE thread = ? ORDER BY seq", (owner,)
        )
        rows = self._db.read(
            "SELECT key, id, parent, second FROM commits WHERE thread = ? ORDER BY key", (owner,)
        )
        ids: dict[int | None, Id] = {row[0]: row[1] for row in rows}
        parents = {
            id: tuple(ids[parent] for parent in (first, second) if parent in ids)
            for _, id, first, second in rows
        }
        mentions = {
            ids[key]: seq for seq, old, new in operations for key in (old, new) if key in ids
        }
        return CommitGraph(parents, mentions, operations[-1][0] if operations else 0)

    def drop(self, thread: str, commits: Sequence[Id], graph: CommitGraph) -> Dropped:
        last_mention = max((graph.mentions.get(id, 0) for id in commits), default=0)
        last_operation = graph.last_operation
        dropped = Dropped()
        for start in range(0, len(commits), DROPPED_AT_ONCE):
            chunk = commits[start : start + DROPPED_AT_ONCE]
            with self._db.overwriting_deletes(), self._db.transaction():
                owner = self._owner(thread)
                if owner is None or self._last_operation(owner) != last_operation:
                    return dropped + Dropped(is_complete=False)
                operations = 0 if start else self._trim_log(owner, last_mention)
                counts = self._drop_commits(owner, chunk)
                last_operation = self._last_operation(owner)
            dropped += Dropped(*counts, operations)
        return dropped

    def drop_thread(self, thread: str) -> bool:
        with self._db.overwriting_deletes(), self._db.transaction():
            owner = self._owner(thread)
            if owner is None or self._db.read(
                "SELECT 1 FROM commits WHERE thread = ? LIMIT 1", (owner,)
            ):
                return False
            for table in ("operation", "batch", "ref", "checkpoint"):
                self._db.write(f"DELETE FROM {table} WHERE thread = ?", (owner,))
            self._db.write("DELETE FROM thread WHERE key = ?", (owner,))
        return True

    def _owner(self, thread: str) -> int | None:
        """The key of a thread; `None` if there is no thread of this name."""
        rows = self._db.read("SELECT key FROM thread WHERE name = ?", (thread,))
        return rows[0][0] if rows else None

    def _last_operation(self, owner: int) -> int:
        sql = "SELECT coalesce(max(seq), 0) FROM operation WHERE thread = ?"
        return self._db.read(sql, (owner,))[0][0]

    def _trim_log(self, owner: int, last: int) -> int:
        """Delete the operations of a thread up to this one; returns how many."""
        self._db.write("DELETE FROM batch WHERE thread = ? AND last <= ?", (owner, last))
        return self._db.write("DELETE FROM operation WHERE thread = ? AND seq <= ?", (owner, last))

    def repair_structure(self) -> list[str]:
        return repair_structure(self._db)

    def scrub(self) -> None:
        self._db.scrub()

    def size(self) -> int:
        return self._db.size()

    def _unhashed_rows(self) -> Iterator[SqlRow]:
        yield from self._db.read("SELECT id, thread, created, usage, chain, checksum FROM commits")

    def _drop_commits(self, owner: int, ids: Sequence[Id]) -> tuple[int, int]:
        """Delete these commits; returns how many commits and entries were deleted."""
        holes = ", ".join("?" * len(ids))
        rows = self._db.read(
            f"SELECT key, entry FROM commits WHERE thread = ? AND id IN ({holes})", (owner, *ids)
        )
        keys = [(key,) for key, _ in rows]
        entries = {entry for _, entry in rows if entry is not None}
        for (key,) in keys:
            sql = "SELECT entry FROM commit_entry WHERE commit_key = ?"
            entries.update(entry for (entry,) in self._db.read(sql, (key,)))
        unindex_commits(self._db, owner, [key for (key,) in keys])
        for table in ("attempt", "link", "commit_entry"):
            self._db.write_many(f"DELETE FROM {table} WHERE commit_key = ?", keys)
        self._db.write_many("DELETE FROM index_pending WHERE key = ?", keys)
        self._db.write_many(  # a tombstone of the same commit in another thread stays
            """DELETE FROM tombstone WHERE kind = 'commit' AND id =
            (SELECT c.id FROM commits c WHERE c.key = ?) AND NOT EXISTS (SELECT 1 FROM commits o
            WHERE o.id = tombstone.id AND o.key <> ?)""",
            [(key, key) for (key,) in keys] if self.has_tombstones() else [],
        )
        self._db.write_many("DELETE FROM commits WHERE key = ?", keys)
        # SQLite gives the highest keys again once their rows are gone. The next commits would
        # count as indexed if `last` stayed above them, and no search would find them.
        self._db.write(
            """UPDATE indexed SET last = (SELECT coalesce(max(key), 0) FROM commits)
            WHERE last > (SELECT coalesce(max(key), 0) FROM commits)"""
        )
        deleted = sum(  # tombstones stay, with their entries: they keep the text forgotten
            self._db.write(
                """DELETE FROM entry WHERE key = ?
                AND NOT EXISTS (SELECT 1 FROM commits c WHERE c.entry = entry.key)
                AND NOT EXISTS (SELECT 1 FROM commit_entry m WHERE m.entry = entry.key)
                AND NOT EXISTS (SELECT 1 FROM tombstone g
                    WHERE g.kind = 'entry' AND g.id = entry.id)""",
                (entry,),
            )
            for entry in sorted(entries)
        )
        return len(keys), deleted


def block_key(bucket: int, segment: int) -> int:
    """The key of a block of the text index."""
    return bucket << SEGMENT_BITS | segment


def read_keys(packed: bytes) -> "array[int]":
    """The numbers of the commits in a row of `index_commit`."""
    return array("q", packed)


def unindex_commits(db: Database, owner: int, keys: Sequence[int]) -> None:
    """Remove the segments with one of these commits; all their commits are indexed again later."""
    wanted = set(keys)
    sql = "SELECT segment, keys FROM index_commit WHERE thread = ? AND low <= ? AND high >= ?"
    rows = db.read(sql, (owner, max(keys), min(keys))) if keys else []
    segments = {segment for segment, packed in rows if not wanted.isdisjoint(read_keys(packed))}
    for segment in segments:
        rows = db.read("SELECT keys FROM index_commit WHERE segment = ?", (segment,))
        pending = [(key,) for (packed,) in rows for key in read_keys(packed)]
        db.write_many("INSERT INTO index_pending VALUES (?) ON CONFLICT DO NOTHING", pending)
    drop_segments(db, sorted(segments))


def drop_segments(db: Database, segments: Sequence[int]) -> None:
    """Remove these segments of the text index."""
    for segment in segments:
        db.write("DELETE FROM index_segment WHERE key = ?", (segment,))
        db.write("DELETE FROM index_commit WHERE segment = ?", (segment,))
        keys = [(block_key(bucket, segment),) for bucket in range(BUCKETS)]
        db.write_many("DELETE FROM index_block WHERE key = ?", keys)


def _flaw_name(value: object) -> str:
    """An id in hex, or another value as text."""
    return value.hex() if isinstance(value, bytes) else str(value)
