"""The store interface in SQL.

A chain of first parents is read as ranges of the index `(line, depth)`: one statement finds the
lines, and one statement per line reads its commits in order. There is no query per commit.
`migrations/` has the schema and its reasons.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

from weft.errors import Damaged, RefMoved, StoreError
from weft.ids import Id

from .base import (
    CALL_STATES,
    DELETED,
    IMPORT,
    Arrival,
    AttemptRecord,
    CommitRecord,
    IndexBlock,
    IndexedCommits,
    Landing,
    Link,
    LogRow,
    Maintenance,
    Match,
    NewSegment,
    Node,
    Operation,
    Step,
    ThreadRecord,
    Unindexed,
)
from .database import Database, SqlRow
from .landing import (
    DEFAULT_BRANCH,
    check_current_branch,
    check_ref_count,
    checksum,
    dangling_ref,
    name_taken,
    no_thread,
    write_landing,
)
from .sql_maintenance import (
    SEGMENT_BITS,
    SEGMENT_MASK,
    SqlMaintenance,
    block_key,
    drop_segments,
    read_keys,
)

CHUNK = 500  # ids per statement; SQLite takes at most 999 variables in old builds
UNLIMITED = 2**62  # larger than any depth, sequence number or number of rows
ALL_DEPTHS = (0, UNLIMITED)

COLUMNS = """c.key, c.id, c.depth, c.kind, c.parent, c.second, c.data, c.created, c.usage,
    c.chain, e.id, e.data"""
JOINED = f"SELECT {COLUMNS} FROM commits c LEFT JOIN entry e ON e.key = c.entry"
LOG_ROWS = """SELECT c.id, c.depth, c.kind, c.created, c.data, e.data
    FROM commits c LEFT JOIN entry e ON e.key = c.entry"""
NODES = """SELECT c.id, c.depth, p.id, s.id FROM commits c
    LEFT JOIN commits p ON p.key = c.parent LEFT JOIN commits s ON s.key = c.second"""
THREADS = """t.name, t.head, t.checkpoints, t.scope, t.created, p.name, t.kind, t.title, t.agent,
    t.folder
    FROM thread t LEFT JOIN thread p ON p.key = t.parent"""
LIVE = f"substr(t.name, 1, 1) <> '{DELETED}'"
LINKED = """SELECT l.commit_key, t.key, l.key, t.name, c.id FROM link l
    JOIN commits c ON c.key = l.commit_key JOIN thread t ON t.key = c.thread"""
LINES = """
    WITH RECURSIVE hop (line, depth) AS (
        SELECT line, depth FROM commits WHERE thread = ? AND id = ?
        UNION ALL
        SELECT l.base_line, l.base_depth FROM hop JOIN line l ON l.key = hop.line
        WHERE l.base_line IS NOT NULL AND l.base_depth > ?
    )
    SELECT line, depth FROM hop ORDER BY depth DESC"""


class SqlStore:
    """A store over one database."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._thread_keys: dict[str, int] = {}

    def transaction(self) -> AbstractContextManager[None]:
        return self._db.savepoint() if self._db.in_transaction else self._db.transaction()

    def checkpoint(self) -> None:
        """Nothing to do: a database server does it by itself."""

    def maintenance(self) -> Maintenance:
        return SqlMaintenance(self._db, self._read_rows, self._to_steps)

    def ensure_thread(
        self, name: str, *, created: float, checkpoints: bool = False, scope: str | None = None
    ) -> ThreadRecord:
        thread = self.read_thread(name)
        if thread is not None:
            needs_checkpoints = checkpoints and not thread.checkpoints
            needs_scope = scope is not None and thread.scope is None
            if not needs_checkpoints and not needs_scope:
                return thread
        with self._db.transaction(exclusive=False):
            self._db.write(
                """INSERT INTO thread (name, head, checkpoints, scope, created)
                VALUES (?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET
                checkpoints = thread.checkpoints | excluded.checkpoints,
                scope = coalesce(thread.scope, excluded.scope)""",
                (name, DEFAULT_BRANCH, int(checkpoints), scope, created),
                keeps_memo=True,
            )
            if (memo := self._db.memo) is not None:
                memo.threads.pop(name, None)
        thread = self.read_thread(name)
        assert thread is not None
        return thread

    def read_thread(self, name: str) -> ThreadRecord | None:
        memo = self._db.memo
        if memo is not None and name in memo.threads:
            key, thread = memo.threads[name]
            self._remember_key(name, key)
            return thread
        rows = self._db.read(f"SELECT t.key, {THREADS} WHERE t.name = ?", (name,))
        if not rows:
            self._forget_thread_keys(name)
            return None
        key, *record = rows[0]
        self._remember_key(name, key)
        thread = _to_thread_record(record)
        if memo is not None:
            memo.threads[name] = (key, thread)
        return thread

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
        with self._db.transaction(exclusive=False):
            parent_key = None if parent is None else self._thread_key(parent)
            self._db.write(
                """UPDATE thread SET parent = coalesce(?, parent), kind = coalesce(?, kind),
                title = coalesce(?, title), agent = coalesce(?, agent),
                folder = coalesce(folder, ?) WHERE key = ?""",
                (parent_key, kind, title, agent, folder, self._thread_key(name)),
            )

    def threads(self, *, deleted: bool = False) -> list[ThreadRecord]:
        condition = f"NOT ({LIVE})" if deleted else LIVE
        rows = self._db.read(f"SELECT {THREADS} WHERE {condition} ORDER BY t.key")
        return list(map(_to_thread_record, rows))

    def last_active(self) -> dict[str, float]:
        rows = self._db.read(
            f"""SELECT t.name, CASE WHEN o.verb = ? THEN b.created
                ELSE coalesce(o.created, b.created) END, t.created
            FROM thread t LEFT JOIN operation o ON o.thread = t.key
                AND o.seq = (SELECT max(l.seq) FROM operation l WHERE l.thread = t.key)
            LEFT JOIN commits b ON b.key = o.new WHERE {LIVE} ORDER BY t.key""",
            (IMPORT,),
        )
        return {name: created if last is None else last for name, last, created in rows}

    def rename_thread(self, old: str, new: str) -> None:
        with self._db.transaction():
            rows = self._db.read("SELECT key FROM thread WHERE name = ?", (old,))
            if not rows:
                raise no_thread(old)
            if self._db.read("SELECT 1 FROM thread WHERE name = ?", (new,)):
                raise name_taken(new)
            self._db.write("UPDATE thread SET name = ? WHERE key = ?", (new, rows[0][0]))
            self._forget_thread_keys(old, new)

    def refs(self, thread: str) -> dict[str, Id]:
        owner = self._thread_key(thread)
        rows = self._db.read(
            """SELECT r.name, c.id FROM ref r LEFT JOIN commits c
            ON c.key = r.target AND c.thread = r.thread
            WHERE r.thread = ? AND r.target IS NOT NULL ORDER BY r.key""",
            (owner,),
        )
        check_ref_count(self._db, owner)
        for name, id in rows:
            if id is None:
                raise dangling_ref(name)
        return dict(rows)

    def find_refs(self, prefix: str) -> list[tuple[str, str, Id]]:
        rows = self._db.read(
            f"""SELECT t.name, r.name, c.id FROM ref r JOIN thread t ON t.key = r.thread
            JOIN commits c ON c.key = r.target AND c.thread = r.thread
            WHERE substr(r.name, 1, ?) = ? AND {LIVE} ORDER BY r.key""",
            (len(prefix), prefix),
        )
        return [(thread, name, id) for thread, name, id in rows]

    def read_ref(self, thread: str, name: str) -> Id | None:
        owner = self._thread_key(thread)
        tip = None if (memo := self._db.memo) is None else memo.tips.get(owner)
        if tip is not None and tip.ref_state[1] == name:
            return tip.ref_state[2]
        rows = self._db.read(
            """SELECT c.id, r.target FROM ref r LEFT JOIN commits c
            ON c.key = r.target AND c.thread = r.thread WHERE r.thread = ? AND r.name = ?""",
            (owner, name),
        )
        if not rows:
            check_current_branch(self._db, owner, name)
            return None
        id, target = rows[0]
        if id is None and target is not None:
            raise dangling_ref(name)
        return id

    def land(self, thread: str, landing: Landing) -> None:
        try:
            with self._db.transaction(exclusive=False):
                write_landing(self._db, thread, self._thread_key(thread), landing)
        except RefMoved:
            raise
        except StoreError:
            self._forget_thread_keys(thread)  # another process may have renamed it
            raise

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
        condition = f" AND c.data NOT IN ({_placeholders(excluding)})" if excluding else ""
        if not appends:
            condition += " AND c.kind <> 'append'"  # the condition of the index commits_rewrite
        with self._db.hold_connection():
            span = (after, UNLIMITED if until is None else until)
            rows = self._read_chain(thread, head, JOINED, condition, tuple(excluding), span, limit)
            rows.reverse()
            return self._to_steps(rows)

    def walk_nodes(self, thread: str, head: Id, limit: int) -> list[Node]:
        with self._db.hold_connection():
            rows = self._read_chain(thread, head, NODES, "", (), ALL_DEPTHS, limit)
            return list(map(_to_node, rows))

    def walk_log(
        self, thread: str, head: Id, *, until: int | None = None, limit: int
    ) -> list[LogRow]:
        span = (0, UNLIMITED if until is None else until)
        with self._db.hold_connection():
            return cast(list[LogRow], self._read_chain(thread, head, LOG_ROWS, "", (), span, limit))

    def read_depths(self, thread: str, head: Id, ids: Sequence[Id]) -> dict[Id, int]:
        owner = self._thread_key(thread)
        with self._db.hold_connection():
            line_ends = dict(self._db.read(LINES, (owner, head, 0)))
            depths: dict[Id, int] = {}
            for chunk in _chunks(ids):
                sql = f"""SELECT id, line, depth FROM commits
                    WHERE thread = ? AND id IN ({_placeholders(chunk)})"""
                for id, line, depth in self._db.read(sql, (owner, *chunk)):
                    if depth <= line_ends.get(line, 0):
                        depths[id] = depth
        return depths

    def _read_chain(
        self,
        thread: str,
        head: Id,
        select: str,
        condition: str,
        values: tuple[Any, ...],
        span: tuple[int, int],
        limit: int | None,
    ) -> list[SqlRow]:
        """Rows of the chain down from `head`, newest first: one range for each line."""
        rows: list[SqlRow] = []
        remaining = UNLIMITED if limit is None else limit
        after, until = span
        for line, depth in self._db.read(LINES, (self._thread_key(thread), head, after)):
            if remaining == 0:
                break
            line_rows = self._db.read(
                f"{select} WHERE c.line = ? AND c.depth > ? AND c.depth <= ?{condition}"
                " ORDER BY c.depth DESC LIMIT ?",
                (line, after, min(depth, until), *values, remaining),
            )
            rows.extend(line_rows)
            remaining -= len(line_rows)
        return rows

    def read_commits(self, thread: str, ids: Sequence[Id]) -> list[Step]:
        owner = self._thread_key(thread)
        rows_by_id: dict[Id, SqlRow] = {}
        for chunk in _chunks(ids):
            rows = self._db.read(
                f"{JOINED} WHERE c.thread = ? AND c.id IN ({_placeholders(chunk)})", (owner, *chunk)
            )
            rows_by_id.update((row[1], row) for row in rows)
        return self._to_steps([rows_by_id[id] for id in ids if id in rows_by_id])

    def read_nodes(self, thread: str, ids: Sequence[Id]) -> list[Node]:
        nodes: list[Node] = []
        for chunk in _chunks(ids):
            rows = self._db.read(
                f"{NODES} WHERE c.thread = ? AND c.id IN ({_placeholders(chunk)})",
                (self._thread_key(thread), *chunk),
            )
            nodes.extend(map(_to_node, rows))
        return nodes

    def find(self, thread: str, prefix: str, limit: int = 8) -> list[Id]:
        low, high = _id_bounds(prefix)
        rows = self._db.read(
            "SELECT id FROM commits WHERE thread = ? AND id >= ? AND id <= ? ORDER BY id LIMIT ?",
            (self._thread_key(thread), low, high, limit),
        )
        return [row[0] for row in rows]

    def has_checkpoint(self, thread: str, name: str) -> bool:
        sql = "SELECT 1 FROM checkpoint WHERE thread = ? AND name = ?"
        return bool(self._db.read(sql, (self._thread_key(thread), name)))

    def count(self, thread: str) -> int:
        rows = self._db.read(
            "SELECT count(*) FROM commits WHERE thread = ?", (self._thread_key(thread),)
        )
        return rows[0][0]

    def last_arrival(self) -> int:
        return self._db.read("SELECT coalesce(max(key), 0) FROM commits", ())[0][0]

    def arrivals(self, after: int, limit: int = 500) -> list[Arrival]:
        rows = self._db.read(
            f"""SELECT c.key, t.name, c.id FROM commits c JOIN thread t ON t.key = c.thread
            WHERE c.key > ? AND {LIVE} ORDER BY c.key LIMIT ?""",
            (after, limit),
        )
        return [Arrival(*row) for row in rows]

    def operations(
        self, thread: str, *, before: int | None = None, limit: int = 64
    ) -> list[Operation]:
        owner = self._thread_key(thread)
        with self._db.hold_connection():
            rows = self._db.read(
                """SELECT o.seq, o.verb, o.name, a.id, b.id, o.was, coalesce(o.created, b.created)
                FROM (SELECT l.*, r.name FROM operation l JOIN ref r ON r.key = l.ref
                    WHERE l.thread = ? AND l.seq < ? ORDER BY l.seq DESC LIMIT ?) o
                LEFT JOIN commits a ON a.key = o.old LEFT JOIN commits b ON b.key = o.new
                ORDER BY o.seq DESC""",
                (owner, UNLIMITED if before is None else before, limit),
            )
            # Each operation is in one batch at most, so there are no more batches than operations.
            sql = (
                "SELECT first, last FROM batch WHERE thread = ? AND last >= ? ORDER BY last LIMIT ?"
            )
            oldest = rows[-1][0] if rows else 0
            batches = self._db.read(sql, (owner, oldest, len(rows)))
        batch_of = {
            seq: first
            for first, last in batches
            for seq in range(max(first, oldest), min(last, rows[0][0]) + 1)
        }
        return [Operation(*row[:7], batch=batch_of.get(row[0])) for row in rows]

    def mark_batch(self, thread: str, first: int, last: int | None = None) -> None:
        owner = self._thread_key(thread)
        with self._db.transaction(exclusive=False):
            if last is None:
                sql = "SELECT coalesce(max(seq), 0) FROM operation WHERE thread = ?"
                last = cast(int, self._db.read(sql, (owner,))[0][0])
            if last > first:
                sql = "INSERT INTO batch (thread, last, first) VALUES (?, ?, ?)"
                self._db.write(sql, (owner, last, first))

    def add_attempt(self, thread: str, record: AttemptRecord) -> None:
        with self._db.transaction(exclusive=False):
            sql = "SELECT key FROM commits WHERE thread = ? AND id = ?"
            rows = self._db.read(sql, (self._thread_key(thread), record.commit))
            if not rows:
                raise StoreError(f"commit {record.commit.hex()} is not in the store")
            row = (rows[0][0], record.state, record.data, record.created)
            self._db.write(
                """INSERT INTO attempt (commit_key, state, data, created, checksum)
                VALUES (?, ?, ?, ?, ?)""",
                (*row, checksum(row)),
                keeps_memo=True,
            )

    def attempts(self, thread: str, commits: Sequence[Id] | None = None) -> list[AttemptRecord]:
        return self._attempt_records(thread, commits, "NOT IN")

    def call_records(self, thread: str, commits: Sequence[Id] | None = None) -> list[AttemptRecord]:
        return self._attempt_records(thread, commits, "IN")

    def _attempt_records(
        self, thread: str, commits: Sequence[Id] | None, membership: str
    ) -> list[AttemptRecord]:
        states = ", ".join(f"'{state}'" for state in CALL_STATES)
        sql = f"""SELECT a.key, c.id, a.state, a.data, a.created FROM attempt a
            JOIN commits c ON c.key = a.commit_key
            WHERE a.state {membership} ({states}) AND c.thread = ?"""
        owner = self._thread_key(thread)
        if commits is None:
            rows = self._db.read(sql, (owner,))
        else:
            rows = [
                row
                for chunk in _chunks(commits)
                for row in self._db.read(
                    f"{sql} AND c.id IN ({_placeholders(chunk)})", (owner, *chunk)
                )
            ]
        return [AttemptRecord(*row[1:]) for row in sorted(rows)]

    def match(self, chains: Sequence[bytes]) -> list[Match]:
        rows: list[SqlRow] = []
        for chunk in _chunks(chains):
            rows += self._db.read(
                f"""SELECT c.key, c.chain, t.name, c.id FROM commits c
                JOIN thread t ON t.key = c.thread
                WHERE c.chain IN ({_placeholders(chunk)}) AND {LIVE}""",
                tuple(chunk),
            )
        rows.sort(key=lambda row: -row[0])
        return [Match(chain, thread, commit) for _, chain, thread, commit in rows]

    def match_within(self, threads: Sequence[str], chains: Sequence[bytes]) -> list[Match]:
        owners = self._existing_keys([name for name in threads if not name.startswith(DELETED)])
        if not owners:
            return []
        rows: list[SqlRow] = []
        for chunk in _chunks(chains):
            rows += self._db.read(
                f"""SELECT c.key, c.chain, t.name, c.id FROM commits c
                JOIN thread t ON t.key = c.thread
                WHERE c.chain IN ({_placeholders(chunk)})
                AND c.thread IN ({_placeholders(owners)})""",
                (*chunk, *owners),
            )
        rows.sort(key=lambda row: -row[0])
        # Another process may have renamed a thread whose key is cached.
        return [Match(*row[1:]) for row in rows if row[2] in threads]

    def _existing_keys(self, threads: Sequence[str]) -> list[int]:
        """The keys of these threads; threads that do not exist are left out."""
        cached = {name: self._known_thread_key(name) for name in threads}
        keys = [key for key in cached.values() if key is not None]
        for chunk in _chunks([name for name, key in cached.items() if key is None]):
            sql = f"SELECT name, key FROM thread WHERE name IN ({_placeholders(chunk)})"
            for name, key in self._db.read(sql, chunk):
                self._remember_key(name, key)
                keys.append(key)
        return keys

    def branches_at(self, thread: str, commit: Id) -> list[str]:
        owner = self._thread_key(thread)
        rows = self._db.read(
            """SELECT r.name FROM ref r WHERE r.thread = ? AND r.target =
            (SELECT c.key FROM commits c WHERE c.thread = ? AND c.id = ?) ORDER BY r.key""",
            (owner, owner, commit),
        )
        return [name for (name,) in rows]

    def add_links(self, thread: str, links: Sequence[tuple[bytes, Id]]) -> None:
        if not links:
            return
        owner = self._thread_key(thread)
        with self._db.transaction(exclusive=False):
            self._forget_links(links)
            tip = self._remembered_tip(owner)
            if tip is not None and all(commit == tip[0] for _, commit in links):
                sql = "INSERT INTO link (key, commit_key) VALUES (?, ?) ON CONFLICT DO NOTHING"
                rows: list[SqlRow] = [(key, tip[1]) for key, _ in links]
            else:
                sql = """INSERT INTO link (key, commit_key)
                    SELECT ?, c.key FROM commits c WHERE c.thread = ? AND c.id = ?
                    ON CONFLICT DO NOTHING"""
                rows = [(key, owner, commit) for key, commit in links]
            self._db.write_many(sql, rows, keeps_memo=True)

    def drop_links(self, thread: str, links: Sequence[tuple[bytes, Id]]) -> None:
        if not links:
            return
        owner = self._thread_key(thread)
        with self._db.transaction(exclusive=False):
            self._forget_links(links)
            self._db.write_many(
                """DELETE FROM link WHERE key = ? AND commit_key =
                (SELECT c.key FROM commits c WHERE c.thread = ? AND c.id = ?)""",
                [(key, owner, commit) for key, commit in links],
                keeps_memo=True,
            )

    def _forget_links(self, links: Sequence[tuple[bytes, Id]]) -> None:
        """Remove links that change from the memo."""
        if (memo := self._db.memo) is not None:
            for key, _ in links:
                memo.links.pop(key, None)

    def _remembered_tip(self, owner: int) -> tuple[Id | None, int] | None:
        """The id and the key of the thread's tip, if the memo has it."""
        tip = None if (memo := self._db.memo) is None else memo.tips.get(owner)
        return None if tip is None or tip.position is None else (tip.ref_state[2], tip.position[0])

    def find_links(self, keys: Sequence[bytes]) -> list[Link]:
        memo = self._db.memo
        if len(keys) == 1 and memo is not None and keys[0] in memo.links:
            return [self._remember_link(*each) for each in memo.links[keys[0]]]
        rows: list[SqlRow] = []
        for chunk in _chunks(keys):
            rows += self._db.read(
                f"{LINKED} WHERE l.key IN ({_placeholders(chunk)}) AND {LIVE}", tuple(chunk)
            )
        rows.sort(key=lambda row: -row[0])
        links = [(row[1], Link(*row[2:])) for row in rows]
        if len(keys) == 1 and memo is not None and links:
            memo.links[keys[0]] = links
        return [self._remember_link(*each) for each in links]

    def newest_link(self, key: bytes, *, deleted: bool = False) -> Link | None:
        condition = "" if deleted else f" AND {LIVE}"
        sql = f"{LINKED} WHERE l.key = ?{condition} ORDER BY l.commit_key DESC LIMIT 1"
        rows = self._db.read(sql, (key,))
        return self._remember_link(rows[0][1], Link(*rows[0][2:])) if rows else None

    def only_links(self, keys: Sequence[bytes]) -> list[Link]:
        links: list[Link] = []
        for key in dict.fromkeys(keys):
            # At most two rows are read: a key may have thousands.
            rows = self._db.read(f"{LINKED} WHERE l.key = ? AND {LIVE} LIMIT 2", (key,))
            if len(rows) == 1:
                links.append(self._remember_link(rows[0][1], Link(*rows[0][2:])))
        return links

    def _remember_link(self, owner: int, link: Link) -> Link:
        """Return a link; its thread's key is remembered, because the caller needs it next."""
        self._remember_key(link.thread, owner)
        return link

    def thread_number(self, thread: str) -> int:
        return self._thread_key(thread)

    def count_unindexed(self) -> int:
        ((new, pending),) = self._db.read(
            """SELECT coalesce((SELECT max(key) FROM commits), 0) - (SELECT last FROM indexed),
            (SELECT count(*) FROM index_pending)"""
        )
        return max(0, new) + pending

    def unindexed(self, limit: int, after: int = 0) -> list[Unindexed]:
        sql = f"""SELECT c.thread, {COLUMNS} FROM commits c
            LEFT JOIN entry e ON e.key = c.entry WHERE"""
        with self._db.hold_connection():
            rows = self._db.read(
                f"""{sql} c.key IN
                (SELECT key FROM index_pending WHERE key > ? ORDER BY key LIMIT ?)""",
                (after, limit),
            )
            rows.sort(key=lambda row: row[1])
            if len(rows) < limit:
                rows += self._db.read(
                    f"""{sql} c.key > (SELECT last FROM indexed) AND c.key > ?
                    ORDER BY c.key LIMIT ?""",
                    (after, limit - len(rows)),
                )
            # A missing entry has no text; the other entries are indexed.
            entries_by_commit = self._read_entries(
                [row[1] for row in rows if row[11] is None], allow_missing=True
            )
        unindexed: list[Unindexed] = []
        for thread, key, _, _, kind, _, _, data, created, _, _, entry, content in rows:
            if entry is not None:
                contents = (content,)
            else:
                contents = tuple([text for _, text in entries_by_commit.get(key, ())])
            unindexed.append(Unindexed(key, thread, created, contents, kind, data))
        return unindexed

    def add_segment(self, segment: NewSegment, replaced: Sequence[int] = ()) -> bool:
        with self._db.transaction():
            new_keys = {key for commits in segment.commits for key in read_keys(commits.keys)}
            old_rows = self.indexed_commits(segments=replaced) if replaced else []
            for commits in old_rows:
                new_keys.difference_update(read_keys(commits.keys))
            if {commits.segment for commits in old_rows} != set(replaced):
                return False
            last: int = self._db.read("SELECT last FROM indexed")[0][0]
            pending = {key for key in new_keys if key <= last}
            newest = max(new_keys - pending, default=last)
            sql = "SELECT count(*) FROM commits WHERE key > ? AND key <= ?"
            if self._db.read(sql, (last, newest))[0][0] != len(new_keys) - len(pending):
                return False  # other commits have arrived among these
            for chunk in _chunks(sorted(pending)):
                sql = f"SELECT count(*) FROM index_pending WHERE key IN ({_placeholders(chunk)})"
                if self._db.read(sql, chunk)[0][0] != len(chunk):
                    return False  # another writer has indexed one of them
            for chunk in _chunks(sorted(pending)):
                sql = f"DELETE FROM index_pending WHERE key IN ({_placeholders(chunk)})"
                self._db.write(sql, chunk)
            drop_segments(self._db, replaced)
            number = self._db.insert("INSERT INTO index_segment (size) VALUES (?)", (segment.size,))
            self._db.write_many(
                "INSERT INTO index_block VALUES (?, ?, ?)",
                [
                    (block_key(block.bucket, number or 0), block.terms, block.postings)
                    for block in segment.blocks
                ],
            )
            self._db.write_many(
                "INSERT INTO index_commit VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (row.thread, number, row.first, *_first_and_last(row.keys), row.keys, row.data)
                    for row in segment.commits
                ],
            )
            if newest > last:
                self._db.write("UPDATE indexed SET last = ?", (newest,))
            return True

    def segments(self) -> dict[int, int]:
        return dict(self._db.read("SELECT key, size FROM index_segment ORDER BY key"))

    def indexed_commits(
        self, thread: str | None = None, segments: Sequence[int] | None = None
    ) -> list[IndexedCommits]:
        sql = "SELECT thread, first, keys, data, segment FROM index_commit"
        if segments is not None:
            rows = [
                row
                for chunk in _chunks(segments)
                for row in self._db.read(f"{sql} WHERE segment IN ({_placeholders(chunk)})", chunk)
            ]
        elif thread is not None:
            rows = self._db.read(f"{sql} WHERE thread = ?", (self._thread_key(thread),))
        else:
            rows = self._db.read(
                f"""SELECT i.thread, i.first, i.keys, i.data, i.segment FROM index_commit i
                JOIN thread t ON t.key = i.thread WHERE {LIVE}"""
            )
        rows.sort(key=lambda row: (row[4], row[1]))
        return [IndexedCommits(*row) for row in rows]

    def index_blocks(
        self, buckets: Sequence[int] | None, segments: Sequence[int]
    ) -> list[tuple[int, IndexBlock]]:
        if not segments:
            return []
        wanted = frozenset(segments)
        low, high = min(wanted), max(wanted)
        rows: list[SqlRow] = []
        if buckets is None:
            rows = self._db.read("SELECT key, terms, postings FROM index_block")
        for chunk in _chunks(() if buckets is None else sorted(set(buckets))):
            select = "SELECT key, terms, postings FROM index_block WHERE key >= ? AND key <= ?"
            bounds = [block_key(bucket, segment) for bucket in chunk for segment in (low, high)]
            rows += self._db.read(" UNION ALL ".join([select] * len(chunk)), bounds)
        return [
            (segment, IndexBlock(key >> SEGMENT_BITS, terms, postings))
            for key, terms, postings in rows
            if (segment := key & SEGMENT_MASK) in wanted
        ]

    def read_keys(self, keys: Sequence[int]) -> list[tuple[str, Step]]:
        steps: dict[int, tuple[str, Step]] = {}
        with self._db.hold_connection():
            for chunk in _chunks(keys):
                rows = self._db.read(
                    f"""SELECT t.name, {COLUMNS} FROM commits c JOIN thread t ON t.key = c.thread
                    LEFT JOIN entry e ON e.key = c.entry WHERE c.key IN ({_placeholders(chunk)})""",
                    chunk,
                )
                for row, step in zip(rows, self._to_steps([row[1:] for row in rows]), strict=True):
                    steps[row[1]] = (row[0], step)
        return [steps[key] for key in keys if key in steps]

    def _read_rows(self, condition: str, values: Sequence[Any]) -> list[SqlRow]:
        return self._db.read(f"{JOINED} {condition}", values)

    def _to_steps(self, rows: list[SqlRow]) -> list[Step]:
        """Rows of `COLUMNS` as steps; most parents are among the rows, so few are looked up."""
        ids: dict[int, Id] = {row[0]: row[1] for row in rows}
        parent_keys = {row[4] for row in rows} | {row[5] for row in rows}
        missing_keys = parent_keys - ids.keys() - {None}
        for chunk in _chunks(list(missing_keys)):
            sql = f"SELECT key, id FROM commits WHERE key IN ({_placeholders(chunk)})"
            ids.update(self._db.read(sql, tuple(chunk)))
        entries_by_commit = self._read_entries([row[0] for row in rows if row[10] is None])
        steps: list[Step] = []
        for key, id, depth, kind, first, second, data, created, usage, chain, entry, text in rows:
            try:
                parents = () if first is None else (ids[first],)
                if second is not None:
                    parents = (*parents, ids[second])
            except KeyError:
                raise Damaged(f"commit {id.hex()} refers to a missing parent") from None
            if entry is not None:
                entries, contents = (entry,), (text,)
            elif kind == "append" and key not in entries_by_commit:
                raise Damaged(f"commit {id.hex()} refers to a missing entry")
            else:
                pairs = entries_by_commit.get(key, ())
                entries = tuple([pair[0] for pair in pairs])
                contents = tuple([pair[1] for pair in pairs])
            record = CommitRecord(id, parents, kind, entries, data, created, usage, chain)
            steps.append(Step(record, depth, contents))
        return steps

    def _read_entries(
        self, keys: list[int], *, allow_missing: bool = False
    ) -> dict[int, list[tuple[Id, bytes]]]:
        """The entries of commits that do not have exactly one.

        A missing entry raises `Damaged`, or is left out with `allow_missing`.
        """
        entries: dict[int, list[tuple[Id, bytes]]] = {}
        for chunk in _chunks(keys):
            rows = self._db.read(
                f"""SELECT m.commit_key, e.id, e.data FROM commit_entry m
                LEFT JOIN entry e ON e.key = m.entry WHERE m.commit_key IN ({_placeholders(chunk)})
                ORDER BY m.commit_key, m.position""",
                tuple(chunk),
            )
            for key, id, data in rows:
                if id is not None:
                    entries.setdefault(key, []).append((id, data))
                elif not allow_missing:
                    raise Damaged("a commit refers to a missing entry; `weft fsck` shows which")
        return entries

    def _thread_key(self, thread: str) -> int:
        """The key of a thread; raises `StoreError` if there is no such thread."""
        key = self._known_thread_key(thread)
        if key is None:
            rows = self._db.read("SELECT key FROM thread WHERE name = ?", (thread,))
            if not rows:
                raise no_thread(thread)
            key = rows[0][0]
            self._remember_key(thread, key)
        return key

    def _known_thread_key(self, thread: str) -> int | None:
        key = self._thread_keys.get(thread)
        if key is None and (transaction_keys := self._db.thread_keys) is not None:
            return transaction_keys.get(thread)
        return key

    def _remember_key(self, thread: str, key: int) -> None:
        if self._thread_keys.get(thread, key) != key:
            self._thread_keys.pop(thread, None)  # another process gave the name to another thread
        if (transaction_keys := self._db.thread_keys) is not None:
            transaction_keys[thread] = key  # only until the transaction ends: it may be rolled back
        elif not self._db.in_transaction:
            self._thread_keys[thread] = key

    def _forget_thread_keys(self, *threads: str) -> None:
        transaction_keys = self._db.thread_keys
        for thread in threads:
            self._thread_keys.pop(thread, None)
            if transaction_keys is not None:
                transaction_keys.pop(thread, None)


def _to_thread_record(row: Sequence[Any]) -> ThreadRecord:
    name, head, checkpoints, scope, created, parent, kind, title, agent, folder = row
    record = (name, head, bool(checkpoints), scope, created)
    facts = {"parent": parent, "kind": kind, "title": title, "agent": agent, "folder": folder}
    return ThreadRecord(*record, **facts)


def _to_node(row: SqlRow) -> Node:
    id, depth, *parents = row
    return Node(id, depth, tuple([parent for parent in parents if parent is not None]))


def _chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), CHUNK):
        yield values[start : start + CHUNK]


def _placeholders(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


def _first_and_last(keys: bytes) -> tuple[int, int]:
    """The first and the last of the packed keys."""
    unpacked = read_keys(keys)
    return unpacked[0], unpacked[-1]


def _id_bounds(prefix: str) -> tuple[bytes, bytes]:
    """The lowest and the highest id with this hex prefix."""
    return bytes.fromhex(prefix.ljust(40, "0")), bytes.fromhex(prefix.ljust(40, "f"))
