"""Looking after tables: the questions of `Upkeep` in SQL."""

from collections.abc import Callable, Iterator, Mapping

from weft.ids import Id

from .base import AttemptRecord, Step
from .database import Database, Row
from .landing import checksum
from .sql_mending import mend, read_log
from .sql_shapes import SHAPES
from .maintenance import Dropped, Flaw, Kind, Reason, Tombstone

PAGE = 1000


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
                sum = checksum((commit, state, data, created))
                self._db.write(sql, (state, data, sum, key))

    def flaws(self) -> list[Flaw]:
        found = [Flaw("file", self._db.dialect.name, what) for what in self._db.integrity()]
        names = dict(self._db.read("SELECT key, name FROM thread"))
        for kind, what, sql in SHAPES:
            found += [Flaw(kind, _name(id), what, names.get(of)) for id, of in self._db.read(sql)]
        what = "carries a checksum that does not fit"
        for id, of, *beside, sum in self._outside():
            if sum is not None and checksum(tuple(beside)) != sum:
                found.append(Flaw("commit", _name(id), what, names.get(of)))
        for of, seq, *line, sum in read_log(self._db):
            if sum is not None and checksum(tuple(line)) != sum:
                found.append(Flaw("operation", str(seq), what, names.get(of)))
        for key, of, *row, sum in self._db.read(
            """SELECT a.key, c.thread, a.commit_key, a.state, a.data, a.created, a.checksum
            FROM attempt a JOIN commits c ON c.key = a.commit_key"""
        ):
            if checksum(tuple(row)) != sum:
                found.append(Flaw("attempt", str(key), what, names.get(of)))
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

    def drop_thread(self, thread: str) -> None:
        with self._db.transaction():
            ((owner,),) = self._db.read("SELECT key FROM thread WHERE name = ?", (thread,))
            for table in ("operation", "ref", "checkpoint"):
                self._db.write(f"DELETE FROM {table} WHERE thread = ?", (owner,))
            self._db.write("DELETE FROM thread WHERE key = ?", (owner,))

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
        return mend(self._db)

    def scrub(self) -> None:
        self._db.scrub()

    def size(self) -> int:
        return self._db.size()

    def _outside(self) -> Iterator[Row]:
        yield from self._db.read("SELECT id, thread, created, usage, chain, checksum FROM commits")

    def _drop_commits(self, owner: int, commits: Mapping[Id, str], last: int) -> list[int]:
        keys: list[int] = []
        for id, text in commits.items():
            sql = "SELECT key FROM commits WHERE thread = ? AND id = ?"
            for (key,) in self._db.read(sql, (owner, id)):
                if key <= last:
                    self._db.dialect.unindex(self._db, key, text)
                self._db.write("DELETE FROM attempt WHERE commit_key = ?", (key,))
                self._db.write("DELETE FROM link WHERE commit_key = ?", (key,))
                self._db.write("DELETE FROM commit_entry WHERE commit_key = ?", (key,))
                self._db.write("DELETE FROM commits WHERE key = ?", (key,))
                keys.append(key)
        return keys


def _name(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
