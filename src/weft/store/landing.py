"""How a landing is written: compare, put, swap, log.

Five statements for an append, however long the thread is: the head with its place, the entry, the
commit, the ref, the log's line. Whether a commit is its line's tip comes along with the head,
because a chain that goes on in its line is what makes reading one range of an index.

The statements of a landing see each other's effect only as long as nobody else lands in the same
thread: SQLite's write lock sees to that, elsewhere `Dialect.hold_thread` does.
"""

from zlib import crc32

import msgspec

from weft.errors import RefMoved, StoreError
from weft.ids import Id

from .base import CommitRecord, Landing
from .database import Database, Deferred

Place = tuple[int, int, int, bool]
"""A commit's key, line and depth, and whether its line has gone on from it."""

TAKEN = "EXISTS (SELECT 1 FROM commits n WHERE n.line = c.line AND n.depth > c.depth)"
HEAD = f"""SELECT r.key, c.id, c.key, c.line, c.depth, {TAKEN} FROM ref r
    LEFT JOIN commits c ON c.key = r.target WHERE r.thread = ? AND r.name = ?"""
PLACE = f"SELECT c.key, c.line, c.depth, {TAKEN} FROM commits c WHERE c.thread = ? AND c.id = ?"
PUT_ENTRY = "INSERT INTO entry (id, data) VALUES (?, ?) ON CONFLICT (id) DO NOTHING"
PUT_COMMIT = """INSERT INTO commits (thread, id, line, depth, kind, parent, second, entry, data,
    created, usage, chain, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (thread, id) DO NOTHING"""
MOVE_REF = "UPDATE ref SET target = ? WHERE key = ?"
PUT_OPERATION = """INSERT INTO operation (thread, seq, verb, ref, old, new, was, created, checksum)
    VALUES (?, (SELECT coalesce(max(seq), 0) + 1 FROM operation WHERE thread = ?),
    ?, ?, ?, ?, ?, ?, ?)"""

PUT_OFF_AT_MOST = 256

_encoder = msgspec.msgpack.Encoder()


def write_landing(db: Database, owner: int, landing: Landing) -> None:
    """Write it all inside the transaction at hand; raises `RefMoved` before anything is written."""
    put_off = db.deferred
    ref, head = _known_head(put_off, owner, landing) or _head(db, owner, landing)
    known = {} if landing.old is None or head is None else {landing.old: head}
    keys: dict[Id, int] = {}
    for id, data in sorted(landing.entries) if len(landing.entries) > 1 else landing.entries:
        key = db.insert(PUT_ENTRY, (id, data))  # in one order everywhere: nobody waits in a ring
        keys[id] = _entry_key(db, id) if key is None else key
    for commit in landing.commits:
        known[commit.id] = _put_commit(db, owner, commit, keys, known)
    if landing.checkpoints:
        db.write_many(
            "INSERT INTO checkpoint VALUES (?, ?) ON CONFLICT DO NOTHING",
            [(owner, name) for name in landing.checkpoints],
        )
    old = None if head is None else head[0]
    new = None if landing.new is None else _place(db, owner, landing.new, known)[0]
    if landing.was is not None:
        db.write("UPDATE thread SET head = ? WHERE key = ?", (landing.ref, owner))
    newest = landing.commits[-1] if landing.commits else None
    same = newest is not None and (newest.id, newest.created) == (landing.new, landing.created)
    line = (landing.verb, ref, old, new, landing.was, None if same else landing.created)
    logged = (owner, owner, *line, checksum(line))
    if put_off is None:
        if old != new:
            db.write(MOVE_REF, (new, ref))
        db.write(PUT_OPERATION, logged)
        return
    if old != new:
        put_off.put_off(MOVE_REF, ref, (new, ref))
    put_off.put_off(PUT_OPERATION, (owner, len(put_off.rows.get(PUT_OPERATION, ()))), logged)
    put_off.tip = None if landing.new is None else (owner, landing.ref, ref, landing.new, known)
    if len(put_off.rows[PUT_OPERATION]) >= PUT_OFF_AT_MOST:
        db.catch_up()


def checksum(columns: tuple[object, ...]) -> int:
    """Over columns that no id covers, so that a flipped byte is seen there too."""
    return crc32(_encoder.encode(columns))


def outside(commit: CommitRecord) -> tuple[float, bytes | None, bytes | None]:
    """The columns of a commit that its id does not cover."""
    return commit.created, commit.usage, commit.chain


def _known_head(
    put_off: Deferred | None, owner: int, landing: Landing
) -> tuple[int, Place | None] | None:
    """The head as this transaction's last landing left it, if that was here: nobody moved it."""
    if put_off is None or put_off.tip is None:
        return None
    of, name, ref, id, known = put_off.tip
    put_off.tip = None
    same = of == owner and name == landing.ref and id == landing.old
    return (ref, known[id]) if same else None


def _head(db: Database, owner: int, landing: Landing) -> tuple[int, Place | None]:
    """The ref's key and the place it points at; raises `RefMoved` if that is not `old`."""
    if db.dialect.hold_thread:
        db.read(db.dialect.hold_thread, (owner,))
    rows = db.read(HEAD, (owner, landing.ref))
    if not rows:
        if landing.old is not None:
            raise RefMoved(landing.ref)
        sql = "INSERT INTO ref (thread, name) VALUES (?, ?)"
        return db.insert(sql, (owner, landing.ref)) or 0, None
    ref, seen, *place = rows[0]
    if seen != landing.old:
        raise RefMoved(landing.ref)
    key, line, depth, taken = place
    return ref, None if seen is None else (key, line, depth, taken)


def _put_commit(
    db: Database, owner: int, commit: CommitRecord, keys: dict[Id, int], known: dict[Id, Place]
) -> Place:
    """The place of this commit, which is written unless the thread has it."""
    parents = [_place(db, owner, parent, known) for parent in commit.parents]
    entries = [keys[id] if id in keys else _entry_key(db, id) for id in commit.entries]
    single = entries[0] if commit.kind == "append" and len(entries) == 1 else None
    first = parents[0][0] if parents else None
    second = parents[1][0] if len(parents) > 1 else None
    line, depth = _line(db, parents)
    beside = outside(commit)
    place = (owner, commit.id, line, depth, commit.kind, first, second, single)
    key = db.insert(PUT_COMMIT, (*place, commit.data, *beside, checksum(beside)))
    if key is None:
        return _place(db, owner, commit.id, known)
    if parents and parents[0][1] == line:
        known[commit.parents[0]] = (*parents[0][:3], True)
    if single is None and entries:
        db.write_many(
            "INSERT INTO commit_entry VALUES (?, ?, ?)",
            [(key, position, entry) for position, entry in enumerate(entries)],
        )
    return key, line, depth, False


def _line(db: Database, parents: list[Place]) -> tuple[int, int]:
    """Where a child of these stands: on the first one's line while it is that line's tip."""
    if len(parents) == 1 and not parents[0][3]:
        return parents[0][1], parents[0][2] + 1
    depth = 1 + max((place[2] for place in parents), default=0)
    base_line, base_depth, taken = parents[0][1:] if parents else (None, None, True)
    if base_line is not None and not taken:
        return base_line, depth
    sql = "INSERT INTO line (base_line, base_depth) VALUES (?, ?)"
    return db.insert(sql, (base_line, base_depth)) or 0, depth


def _place(db: Database, owner: int, id: Id, known: dict[Id, Place]) -> Place:
    if id not in known:
        rows = db.read(PLACE, (owner, id))
        if not rows:
            raise StoreError(f"commit {id.hex()} is not in the store")
        key, line, depth, taken = rows[0]
        known[id] = (key, line, depth, taken)
    return known[id]


def _entry_key(db: Database, id: Id) -> int:
    rows = db.read("SELECT key FROM entry WHERE id = ?", (id,))
    if not rows:
        raise StoreError(f"entry {id.hex()} is not in the store")
    return rows[0][0]
