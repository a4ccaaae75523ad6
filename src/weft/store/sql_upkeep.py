"""Looking after tables: the questions of `Upkeep` in SQL."""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

from weft.ids import Id

from .base import Step
from .database import Database, Row
from .landing import checksum
from .upkeep import Dropped, Flaw, Kind, Reason, Tombstone

PAGE = 1000
OPERATION = "verb, ref, old, new, was, created"

SHAPES = (
    (
        "commit",
        "names a parent that is not there",
        """SELECT c.id, c.thread FROM commits c LEFT JOIN commits p ON p.key = c.parent
        LEFT JOIN commits s ON s.key = c.second WHERE (c.parent IS NOT NULL AND p.key IS NULL)
        OR (c.second IS NOT NULL AND s.key IS NULL)""",
    ),
    (
        "commit",
        "names an entry that is not there",
        """SELECT c.id, c.thread FROM commits c LEFT JOIN entry e ON e.key = c.entry
        WHERE c.entry IS NOT NULL AND e.key IS NULL UNION
        SELECT c.id, c.thread FROM commit_entry m JOIN commits c ON c.key = m.commit_key
        LEFT JOIN entry e ON e.key = m.entry WHERE e.key IS NULL""",
    ),
    (
        "commit",
        "stands at another depth than its parents say",
        """SELECT c.id, c.thread FROM commits c LEFT JOIN commits p ON p.key = c.parent
        LEFT JOIN commits s ON s.key = c.second WHERE c.depth <> 1 +
        CASE WHEN coalesce(s.depth, 0) > coalesce(p.depth, 0) THEN s.depth
        ELSE coalesce(p.depth, 0) END""",
    ),
    (
        "commit",
        "stands on a line that does not lead to its parent",
        """SELECT n.id, n.thread FROM (SELECT id, thread, parent, line,
            lag(key) OVER (PARTITION BY line ORDER BY depth) AS before FROM commits) n
        LEFT JOIN commits p ON p.key = n.parent LEFT JOIN line l ON l.key = n.line
        WHERE CASE WHEN n.before IS NOT NULL THEN n.parent IS NULL OR n.before <> n.parent
        ELSE l.key IS NULL OR coalesce(l.base_line, 0) <> coalesce(p.line, 0)
        OR coalesce(l.base_depth, 0) <> coalesce(p.depth, 0) END""",
    ),
    (
        "ref",
        "points at a commit that is not there",
        """SELECT r.name, r.thread FROM ref r LEFT JOIN commits c ON c.key = r.target
        WHERE r.target IS NOT NULL AND (c.key IS NULL OR c.thread <> r.thread)""",
    ),
    (
        "ref",
        "points elsewhere than the log says",
        """SELECT r.name, r.thread FROM ref r JOIN (SELECT o.ref, o.new,
            row_number() OVER (PARTITION BY o.thread, o.ref ORDER BY o.seq DESC) AS place,
            o.thread FROM operation o) n ON n.ref = r.key AND n.thread = r.thread AND n.place = 1
        WHERE coalesce(r.target, 0) <> coalesce(n.new, 0)""",
    ),
    (
        "operation",
        "names a commit that is not there",
        """SELECT o.seq, o.thread FROM operation o LEFT JOIN commits a ON a.key = o.old
        LEFT JOIN commits b ON b.key = o.new WHERE (o.old IS NOT NULL AND a.key IS NULL)
        OR (o.new IS NOT NULL AND b.key IS NULL)""",
    ),
    (
        "operation",
        "names a branch that is not there",
        """SELECT o.seq, o.thread FROM operation o
        LEFT JOIN ref r ON r.key = o.ref AND r.thread = o.thread WHERE r.key IS NULL""",
    ),
    (
        "thread",
        "stands on a branch that is not there",
        """SELECT t.name, t.key FROM thread t
        LEFT JOIN ref r ON r.thread = t.key AND r.name = t.head WHERE r.key IS NULL
        AND EXISTS (SELECT 1 FROM commits c WHERE c.thread = t.key) AND (t.head <> 'main'
        OR EXISTS (SELECT 1 FROM operation o
            LEFT JOIN ref n ON n.key = o.ref AND n.thread = o.thread
            WHERE o.thread = t.key AND n.key IS NULL))""",
    ),
    (
        "thread",
        "has fewer branches than it had",
        """SELECT t.name, t.key FROM thread t
        WHERE t.refs > (SELECT count(*) FROM ref n WHERE n.thread = t.key)""",
    ),
)
"""What must hold between rows: the object, what is wrong with it, and how to find those."""


class SqlUpkeep:
    """The other side of a store in tables: `joined` reads rows of commits, `steps` reads them."""

    def __init__(
        self,
        database: Database,
        joined: Callable[[str, tuple[int, ...]], list[Row]],
        steps: Callable[[list[Row]], list[Step]],
    ) -> None:
        self._db = database
        self._rows = joined
        self._steps = steps

    def entries(self) -> Iterator[tuple[Id, bytes]]:
        last = 0
        sql = "SELECT key, id, data FROM entry WHERE key > ? ORDER BY key LIMIT ?"
        while rows := self._db.read(sql, (last, PAGE)):
            for _, id, data in rows:  # a flipped bit may have made text of bytes
                yield id, data if isinstance(data, bytes) else str(data).encode()
            last = rows[-1][0]

    def commits(self) -> Iterator[tuple[str, Step]]:
        names = dict(self._db.read("SELECT key, name FROM thread"))
        broken = {id for _, _, sql in SHAPES[:2] for id, _ in self._db.read(sql)}
        last = 0
        sql = "WHERE c.key > ? ORDER BY c.key LIMIT ?"
        while rows := self._rows(sql, (last, PAGE)):
            last = rows[-1][0]
            owners = dict(
                self._db.read(
                    "SELECT key, thread FROM commits WHERE key >= ? AND key <= ?",
                    (rows[0][0], last),
                )
            )
            whole = [row for row in rows if row[1] not in broken and owners[row[0]] in names]
            for row, step in zip(whole, self._steps(whole), strict=True):
                yield names[owners[row[0]]], step

    def flaws(self) -> list[Flaw]:
        found = [Flaw("file", self._db.dialect.name, what) for what in self._db.integrity()]
        names = dict(self._db.read("SELECT key, name FROM thread"))
        for kind, what, sql in SHAPES:
            found += [Flaw(kind, _name(id), what, names.get(of)) for id, of in self._db.read(sql)]
        what = "carries a checksum that does not fit"
        for id, of, *beside, sum in self._outside():
            if sum is not None and checksum(tuple(beside)) != sum:
                found.append(Flaw("commit", _name(id), what, names.get(of)))
        for of, seq, *line, sum in self._log():
            if sum is not None and checksum(tuple(line)) != sum:
                found.append(Flaw("operation", str(seq), what, names.get(of)))
        return found

    def tombstones(self) -> dict[tuple[str, Id], Tombstone]:
        rows = self._db.read("SELECT kind, id, reason, checksum FROM tombstone")
        return {(kind, id): Tombstone(reason, sum) for kind, id, reason, sum in rows}

    def bury(self, kind: Kind, id: Id, data: bytes, reason: Reason, created: float) -> None:
        table = {"entry": "entry", "commit": "commits"}[kind]
        with self._db.transaction():
            self._db.write(f"UPDATE {table} SET data = ? WHERE id = ?", (data, id))
            self._db.write(
                """INSERT INTO tombstone (kind, id, reason, checksum, created)
                VALUES (?, ?, ?, ?, ?) ON CONFLICT (kind, id) DO UPDATE
                SET reason = excluded.reason, checksum = excluded.checksum""",
                (kind, id, reason, checksum((data,)), created),
            )

    def retext(self, thread: str, commit: Id, old: str, new: str) -> None:
        with self._db.transaction():
            rows = self._db.read(
                """SELECT c.key FROM commits c JOIN thread t ON t.key = c.thread, indexed i
                WHERE t.name = ? AND c.id = ? AND c.key <= i.last""",
                (thread, commit),
            )
            for (key,) in rows:
                self._db.dialect.unindex(self._db, key, old)
                self._db.dialect.index(self._db, key, new)

    def named(self, thread: str, since: float) -> set[Id]:
        rows = self._db.read(
            """SELECT c.id FROM commits c JOIN thread t ON t.key = c.thread WHERE t.name = ?
            AND (c.key IN (SELECT target FROM ref) OR c.key IN
            (SELECT o.old FROM operation o LEFT JOIN commits b ON b.key = o.new
            WHERE coalesce(o.created, b.created) >= ?) OR c.key IN
            (SELECT o.new FROM operation o LEFT JOIN commits b ON b.key = o.new
            WHERE coalesce(o.created, b.created) >= ?))""",
            (thread, since, since),
        )
        return {row[0] for row in rows}

    def drop(self, thread: str, commits: Mapping[Id, str]) -> Dropped:
        if not commits:
            return Dropped(0, 0, 0)
        with self._db.transaction():
            ((owner,),) = self._db.read("SELECT key FROM thread WHERE name = ?", (thread,))
            last = self._db.read("SELECT last FROM indexed")[0][0]
            keys = self._drop_commits(owner, commits, last)
            cut = self._db.read(
                """SELECT coalesce(max(o.seq), 0) FROM operation o
                LEFT JOIN commits a ON a.key = o.old LEFT JOIN commits b ON b.key = o.new
                WHERE o.thread = ? AND ((o.old IS NOT NULL AND a.key IS NULL)
                OR (o.new IS NOT NULL AND b.key IS NULL))""",
                (owner,),
            )[0][0]
            # what came before a line that names nothing any more cannot be undone through it
            sql = "DELETE FROM operation WHERE thread = ? AND seq <= ?"
            operations = self._db.write(sql, (owner, cut))
            entries = self._db.write(  # one that is buried has no words, and keeps them away
                """DELETE FROM entry WHERE NOT EXISTS (SELECT 1 FROM commits c
                WHERE c.entry = entry.key) AND NOT EXISTS (SELECT 1 FROM commit_entry m
                WHERE m.entry = entry.key) AND NOT EXISTS (SELECT 1 FROM tombstone g
                WHERE g.kind = 'entry' AND g.id = entry.id)"""
            )
            self._db.write(
                """DELETE FROM tombstone WHERE kind = 'commit' AND NOT EXISTS
                (SELECT 1 FROM commits c WHERE c.id = tombstone.id)"""
            )
            return Dropped(len(keys), entries, operations)

    def mend(self) -> list[str]:
        """Places from the graph, refs from the log, checksums from what stands there."""
        done: list[str] = []
        with self._db.transaction():
            done += self._find_branches()
            done += self._mend_refs()
            for key, sum, *beside in self._db.read(
                "SELECT key, checksum, created, usage, chain FROM commits"
            ):
                if sum != checksum(tuple(beside)):
                    sql = "UPDATE commits SET checksum = ? WHERE key = ?"
                    self._db.write(sql, (checksum(tuple(beside)), key))
                    done += [] if sum is None else [f"commit {key} has its checksum again"]
            for of, seq, *line, sum in self._log():
                if sum != checksum(tuple(line)):
                    sql = "UPDATE operation SET checksum = ? WHERE thread = ? AND seq = ?"
                    self._db.write(sql, (checksum(tuple(line)), of, seq))
                    done += [] if sum is None else [f"operation {seq} has its checksum again"]
        return done

    def scrub(self) -> None:
        self._db.scrub()

    def size(self) -> int:
        return self._db.size()

    def _outside(self) -> Iterator[Row]:
        yield from self._db.read("SELECT id, thread, created, usage, chain, checksum FROM commits")

    def _log(self) -> list[Row]:
        return self._db.read(f"SELECT thread, seq, {OPERATION}, checksum FROM operation")

    def _drop_commits(self, owner: int, commits: Mapping[Id, str], last: int) -> list[int]:
        keys: list[int] = []
        for id, text in commits.items():
            sql = "SELECT key FROM commits WHERE thread = ? AND id = ?"
            for (key,) in self._db.read(sql, (owner, id)):
                if key <= last:
                    self._db.dialect.unindex(self._db, key, text)
                self._db.write("DELETE FROM commit_entry WHERE commit_key = ?", (key,))
                self._db.write("DELETE FROM commits WHERE key = ?", (key,))
                keys.append(key)
        return keys

    def _find_branches(self) -> list[str]:
        """A branch that only the log knows comes back, and a thread stands on one that is there."""
        done: list[str] = []
        for key, owner in self._db.read(
            """SELECT DISTINCT o.ref, o.thread FROM operation o
            LEFT JOIN ref r ON r.key = o.ref AND r.thread = o.thread
            WHERE r.key IS NULL ORDER BY o.ref"""
        ):
            taken = self._db.read(
                """SELECT t.head, r.key FROM thread t
                LEFT JOIN ref r ON r.thread = t.key AND r.name = t.head WHERE t.key = ?""",
                (owner,),
            )
            name = taken[0][0] if taken and taken[0][1] is None else self._left_name(owner, key)
            self._put_ref(owner, key, name)
            done.append(f"branch {name!r} is there again")
        done += self._recount()
        for name, owner in self._db.read(SHAPES[8][2]):
            sql = """UPDATE thread SET head = (SELECT r.name FROM ref r WHERE r.thread = thread.key
                AND r.target IS NOT NULL ORDER BY r.key LIMIT 1) WHERE key = ?
                AND EXISTS (SELECT 1 FROM ref r WHERE r.thread = thread.key
                AND r.target IS NOT NULL)"""
            self._db.write(sql, (owner,))
            done.append(f"thread {name!r} stands on its first branch")
        return done

    def _put_ref(self, owner: int, key: int, name: str) -> None:
        """Give a lost branch its row again; where its key went to another, its log takes a new."""
        if not self._db.read("SELECT 1 FROM ref WHERE key = ?", (key,)):
            sql = "INSERT INTO ref (key, thread, name) VALUES (?, ?, ?)"
            self._db.write(sql, (key, owner, name))
            return
        new = self._db.insert("INSERT INTO ref (thread, name) VALUES (?, ?)", (owner, name))
        for of, seq, *line, _ in self._log():
            if of == owner and line[1] == key:
                line[1] = new
                sql = "UPDATE operation SET ref = ?, checksum = ? WHERE thread = ? AND seq = ?"
                self._db.write(sql, (new, checksum(tuple(line)), of, seq))

    def _left_name(self, owner: int, key: int) -> str:
        """The name of a lost branch: whoever switched to it and left it wrote that down."""
        moves = self._db.read(
            "SELECT ref, was FROM operation WHERE thread = ? AND was IS NOT NULL ORDER BY seq",
            (owner,),
        )
        left = [was for (ref, _), (_, was) in pairwise(moves) if ref == key]
        there = self._db.read("SELECT name FROM ref WHERE thread = ?", (owner,))
        return left[-1] if left and (left[-1],) not in there else f"recovered-{key}"

    def _recount(self) -> list[str]:
        """Give up branches that nothing knows any more; whoever was told of them can go on."""
        count = "(SELECT count(*) FROM ref n WHERE n.thread = thread.key)"
        lost = self._db.read(f"SELECT name, refs - {count} FROM thread WHERE refs > {count}")
        self._db.write(f"UPDATE thread SET refs = {count} WHERE refs <> {count}")
        return [f"thread {name!r} has lost {number} branches for good" for name, number in lost]

    def _mend_refs(self) -> list[str]:
        """A ref that points at nothing goes back to the newest commit the log has for it."""
        done: list[str] = []
        for name, owner in {tuple(row) for _, _, sql in SHAPES[4:6] for row in self._db.read(sql)}:
            rows = self._db.read(
                """SELECT c.key, c.id FROM operation o
                JOIN ref r ON r.key = o.ref AND r.thread = o.thread
                JOIN commits c ON c.key = o.new WHERE r.name = ? AND r.thread = ?
                ORDER BY o.seq DESC LIMIT 1""",
                (name, owner),
            )
            target, id = rows[0] if rows else (None, None)
            sql = "UPDATE ref SET target = ? WHERE name = ? AND thread = ?"
            self._db.write(sql, (target, name, owner))
            place = "nowhere" if id is None else f"at {_name(id)}"
            done.append(f"branch {name!r} points {place}")
        return done


def _name(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
