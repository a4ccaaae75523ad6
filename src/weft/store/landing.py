"""Writes a landing: check the head, write the objects, move the ref, write the log line.

An append takes four statements, however long the thread is: entry, commit, ref and log line. If
the memo does not have the tip, a fifth statement reads the head, its position, and whether its line
continues after it. A new commit stays on the line of its parent if it can, because a chain on one
line is read as one range of an index.

No other landing may write to the same thread in between. SQLite's write lock ensures that; other
databases use `Dialect.lock_thread`.

In all functions `owner` is the key of the thread.
"""

from zlib import crc32

import msgspec

from weft.errors import Damaged, RefMoved, StoreError
from weft.ids import Id

from .base import CommitRecord, Landing
from .database import CommitPosition, Database, Deferred, Tip

HAS_CHILD = "EXISTS (SELECT 1 FROM commits n WHERE n.line = c.line AND n.depth > c.depth)"
LAST_SEQ = "(SELECT coalesce(max(o.seq), 0) FROM operation o WHERE o.thread = {})"
READ_HEAD = f"""SELECT r.key, {LAST_SEQ.format("r.thread")}, c.id, c.key, c.line, c.depth,
    {HAS_CHILD}, r.target, (SELECT t.name FROM thread t WHERE t.key = r.thread)
    FROM ref r LEFT JOIN commits c ON c.key = r.target AND c.thread = r.thread
    WHERE r.thread = ? AND r.name = ?"""
READ_POSITION = (
    f"SELECT c.key, c.line, c.depth, {HAS_CHILD} FROM commits c WHERE c.thread = ? AND c.id = ?"
)
PUT_ENTRY = "INSERT INTO entry (id, data) VALUES (?, ?) ON CONFLICT (id) DO NOTHING"
STORED_BODY = """coalesce((SELECT b.data FROM tombstone g JOIN commits b ON b.id = g.id
    WHERE g.kind = 'commit' AND g.id = ? LIMIT 1), ?)"""  # a forgotten body stays forgotten
PUT_COMMIT = f"""INSERT INTO commits (thread, id, line, depth, kind, parent, second, entry, data,
    created, usage, chain, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, {STORED_BODY}, ?, ?, ?, ?)
    ON CONFLICT (thread, id) DO NOTHING"""
PUT_DEFERRED_COMMIT = f"""INSERT INTO commits (key, thread, id, line, depth, kind, parent, entry,
    data, created, usage, chain, checksum) VALUES (?, ?, ?, ?, ?, ?, ?,
    (SELECT key FROM entry WHERE id = ?), {STORED_BODY}, ?, ?, ?, ?)"""
MOVE_REF = "UPDATE ref SET target = ? WHERE key = ?"
PUT_OPERATION = """INSERT INTO operation (thread, seq, verb, ref, old, new, was, created, checksum)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""

MAX_DEFERRED = 1024
"""How many log lines a batch delays before they are written."""

LOST_REFS = "SELECT 1 FROM thread t WHERE t.key = ? AND t.refs > {}"
LOST_OF_FEW_REFS = f"{LOST_REFS} AND t.refs <= {{}}"
MAX_COUNTED_REFS = 256
"""With more refs than this, a lost one is noticed by `fsck` only: counting them takes too long."""
IS_CURRENT_BRANCH = """SELECT 1 FROM thread t WHERE t.key = ? AND t.head = ?
    AND EXISTS (SELECT 1 FROM commits c WHERE c.thread = t.key)"""
REF_COUNT = "(SELECT count(*) FROM ref n WHERE n.thread = t.key)"

DEFAULT_BRANCH = "main"

_encode = msgspec.msgpack.Encoder().encode


def no_thread(name: str) -> StoreError:
    """The error for a missing thread; `is_data` means that a retry cannot succeed."""
    reason = "it was never made, or it was renamed or deleted"
    error = StoreError(f"thread {name!r} is not in the store: {reason}")
    error.is_data = True
    return error


def name_taken(name: str) -> StoreError:
    """The error for a new thread name that another thread has."""
    return StoreError(f"there is a thread {name!r} already: choose another name")


def write_landing(db: Database, thread: str, owner: int, landing: Landing) -> None:
    """Write a landing inside the open transaction; raises `RefMoved` before anything is written.

    `owner` is the key of the thread when its name was looked up. Raises `StoreError` if another
    process has renamed or deleted it since.
    """
    memo, deferred = db.memo, db.deferred
    tip = newest = None
    if memo is not None:
        tip = memo.tips.pop(owner, None)
        newest, memo.newest = memo.newest, None
    if tip is None or tip.ref_state != (owner, landing.ref, landing.old):
        tip = _read_tip(db, thread, owner, landing)
    if not _is_plain_child(landing, tip):
        new, is_new = _put_objects(db, owner, landing, tip)
    elif deferred is not None and tip.is_new and tip is newest:
        new, is_new = _defer_child(deferred, owner, landing, tip), True
    else:
        new, is_new = _put_child(db, owner, landing, tip)
    if landing.is_switch:
        db.write("UPDATE thread SET head = ? WHERE key = ?", (landing.ref, owner))
    old_key = None if tip.position is None else tip.position[0]
    new_key = None if new is None else new[0]
    _move_ref_and_log(db, deferred, owner, landing, tip, (old_key, new_key))
    if new is not None and memo is not None:
        ref_state = (owner, landing.ref, landing.new)
        is_greatest = is_new and db.dialect.has_sequential_keys
        memo.newest = Tip(ref_state, tip.ref, tip.seq + 1, new, is_greatest)
        memo.tips[owner] = memo.newest


def _move_ref_and_log(
    db: Database,
    deferred: Deferred | None,
    owner: int,
    landing: Landing,
    tip: Tip,
    commit_keys: tuple[int | None, int | None],
) -> None:
    """Move the ref and write the log line; inside a batch both are delayed.

    `commit_keys` are the keys of the old and the new commit.
    """
    old, new = commit_keys
    newest = landing.commits[-1] if landing.commits else None
    has_commit_time = (
        newest is not None and newest.id == landing.new and newest.created == landing.created
    )
    columns = (
        landing.verb,
        tip.ref,
        old,
        new,
        landing.from_branch,
        None if has_commit_time else landing.created,
    )
    row = (owner, tip.seq + 1, *columns, checksum(columns))
    if deferred is None:
        if old != new:
            db.write(MOVE_REF, (new, tip.ref), keeps_memo=True)
        db.write(PUT_OPERATION, row, keeps_memo=True)
        return
    if old != new:
        deferred.defer(MOVE_REF, tip.ref, (new, tip.ref))
    deferred.defer(PUT_OPERATION, (owner, tip.seq + 1), row)
    if len(deferred.rows[PUT_OPERATION]) >= MAX_DEFERRED:
        db.flush_deferred()


def _is_plain_child(landing: Landing, tip: Tip) -> bool:
    """Whether the landing is one append of one entry after the tip of a line."""
    if len(landing.commits) != 1 or len(landing.entries) != 1 or landing.checkpoints:
        return False
    (commit,), (entry,) = landing.commits, landing.entries
    return (
        commit.kind == "append"
        and commit.id == landing.new
        and commit.parents == (landing.old,)
        and commit.entries == (entry[0],)
        and tip.position is not None
        and not tip.position[3]
    )


def _put_child(db: Database, owner: int, landing: Landing, tip: Tip) -> tuple[CommitPosition, bool]:
    """The fast path of `_put_objects` for a plain child, which nearly every landing is."""
    assert tip.position is not None
    (commit,), (entry,) = landing.commits, landing.entries
    parent, line, depth, _ = tip.position
    entry_key = db.insert(PUT_ENTRY, entry, keeps_memo=True) or _find_entry_key(db, entry[0])
    unhashed = (commit.created, commit.usage, commit.chain)
    columns = (owner, commit.id, line, depth + 1, "append", parent, None, entry_key)
    values = (*columns, commit.id, commit.data, *unhashed, checksum(unhashed))
    key = db.insert(PUT_COMMIT, values, keeps_memo=True)
    if key is None:
        return _find_position(db, owner, commit.id, {}), False
    return (key, line, depth + 1, False), True


def _defer_child(deferred: Deferred, owner: int, landing: Landing, tip: Tip) -> CommitPosition:
    """The position of an append after a commit that this transaction has just written.

    The parent is new and has no children, so this commit is new too. Nobody else writes, so its key
    is the next one. Both are known before anything is written.
    """
    assert tip.position is not None
    (commit,), ((id, data),) = landing.commits, landing.entries
    parent, line, depth, _ = tip.position
    key, depth = parent + 1, depth + 1
    unhashed = unhashed_columns(commit)
    deferred.defer(PUT_ENTRY, id, (id, data))
    columns = (key, owner, commit.id, line, depth, commit.kind, parent, id)
    values = (*columns, commit.id, commit.data, *unhashed, checksum(unhashed))
    deferred.defer(PUT_DEFERRED_COMMIT, key, values)
    return key, line, depth, False


def _put_objects(
    db: Database, owner: int, landing: Landing, tip: Tip
) -> tuple[CommitPosition | None, bool]:
    """Write entries, commits and checkpoints.

    Returns the position of the commit that the ref moves to, and whether that commit is new.
    """
    positions = {} if landing.old is None or tip.position is None else {landing.old: tip.position}
    keys: dict[Id, int] = {}
    for id, data in sorted(landing.entries) if len(landing.entries) > 1 else landing.entries:
        key = db.insert(PUT_ENTRY, (id, data), keeps_memo=True)  # sorted, to avoid a deadlock
        keys[id] = _find_entry_key(db, id) if key is None else key
    is_new = False
    for commit in landing.commits:
        positions[commit.id], is_new = _put_commit(db, owner, commit, keys, positions)
    if landing.checkpoints:
        db.write_many(
            "INSERT INTO checkpoint VALUES (?, ?) ON CONFLICT DO NOTHING",
            [(owner, name) for name in landing.checkpoints],
            keeps_memo=True,
        )
    if landing.new is None:
        return None, False
    newest = landing.commits[-1].id if landing.commits else None
    return _find_position(db, owner, landing.new, positions), is_new and newest == landing.new


def checksum(columns: tuple[object, ...]) -> int:
    """A checksum over columns that no id covers, so that damage is detected there too."""
    return crc32(_encode(columns))


def unhashed_columns(commit: CommitRecord) -> tuple[float, bytes | None, bytes | None]:
    """The columns of a commit that its id does not cover."""
    return commit.created, commit.usage, commit.chain


def _read_tip(db: Database, thread: str, owner: int, landing: Landing) -> Tip:
    """The ref in the store, created if it is new; raises `RefMoved` if it is not at `old`."""
    if db.dialect.lock_thread:
        db.read(db.dialect.lock_thread, (owner,))
    rows = db.read(READ_HEAD, (owner, landing.ref))
    ref_state = (owner, landing.ref, landing.old)
    if not rows:
        if not db.read("SELECT 1 FROM thread WHERE key = ? AND name = ?", (owner, thread)):
            raise no_thread(thread)
        if landing.old is not None:
            raise RefMoved(landing.ref)
        check_current_branch(db, owner, landing.ref)
        check_ref_count(db, owner)
        sql = "UPDATE thread SET refs = refs + 1 WHERE key = ?"
        db.write(sql, (owner,), keeps_memo=True)
        seq: int = db.read(f"SELECT {LAST_SEQ.format('?')}", (owner,))[0][0]
        sql = "INSERT INTO ref (thread, name) VALUES (?, ?)"
        ref = db.insert(sql, (owner, landing.ref), keeps_memo=True) or 0
        return Tip(ref_state, ref, seq, None)
    ref, seq, head, key, line, depth, has_child, target, name = rows[0]
    if name != thread:
        raise no_thread(thread)
    if head is None and target is not None:
        raise dangling_ref(landing.ref)
    if head != landing.old:
        raise RefMoved(landing.ref)
    return Tip(ref_state, ref, seq, None if head is None else (key, line, depth, has_child))


def dangling_ref(name: str) -> Damaged:
    """The error for a ref that points at a missing commit."""
    return Damaged(f"{name!r} points at a missing commit")


def check_current_branch(db: Database, owner: int, name: str) -> None:
    """Raise `Damaged` if the missing branch `name` is the current one of a thread, and was lost."""
    if not db.read(IS_CURRENT_BRANCH, (owner, name)):  # also if the thread has no commits yet
        return
    # A thread whose first commit was on another branch never had the default branch. Then the
    # number of its refs is right.
    if name != DEFAULT_BRANCH or db.read(LOST_REFS.format(REF_COUNT), (owner,)):
        problem = f"the thread's current branch {name!r} is missing"
        raise Damaged(f"{problem}: `weft fsck --repair` restores it")


def check_ref_count(db: Database, owner: int) -> None:
    """Raise `Damaged` if a thread has lost a ref, before a new one is created in its place."""
    if db.read(LOST_OF_FEW_REFS.format(REF_COUNT, MAX_COUNTED_REFS), (owner,)):
        problem = "the thread has fewer branches than it had"
        raise Damaged(f"{problem}: `weft fsck --repair` restores the lost one")


def _put_commit(
    db: Database,
    owner: int,
    commit: CommitRecord,
    keys: dict[Id, int],
    positions: dict[Id, CommitPosition],
) -> tuple[CommitPosition, bool]:
    """Write a commit unless the thread has it; returns its position, and whether it was written."""
    parents = [_find_position(db, owner, parent, positions) for parent in commit.parents]
    entries = [keys[id] if id in keys else _find_entry_key(db, id) for id in commit.entries]
    single_entry = entries[0] if commit.kind == "append" and len(entries) == 1 else None
    first = parents[0][0] if parents else None
    second = parents[1][0] if len(parents) > 1 else None
    line, depth = _choose_line(db, parents)
    unhashed = unhashed_columns(commit)
    columns = (owner, commit.id, line, depth, commit.kind, first, second, single_entry)
    values = (*columns, commit.id, commit.data, *unhashed, checksum(unhashed))
    key = db.insert(PUT_COMMIT, values, keeps_memo=True)
    if key is None:
        return _find_position(db, owner, commit.id, positions), False
    if parents and parents[0][1] == line:
        positions[commit.parents[0]] = (*parents[0][:3], True)  # its line continues now
    if single_entry is None and entries:
        db.write_many(
            "INSERT INTO commit_entry VALUES (?, ?, ?)",
            [(key, position, entry) for position, entry in enumerate(entries)],
            keeps_memo=True,
        )
    return (key, line, depth, False), True


def _choose_line(db: Database, parents: list[CommitPosition]) -> tuple[int, int]:
    """The line and depth of a new commit; a new line if the first parent's line continues."""
    depth = 1 + max((parent_depth for _, _, parent_depth, _ in parents), default=0)
    base_line, base_depth = None, None
    if parents:
        _, base_line, base_depth, has_child = parents[0]
        if not has_child:
            return base_line, depth
    sql = "INSERT INTO line (base_line, base_depth) VALUES (?, ?)"
    return db.insert(sql, (base_line, base_depth), keeps_memo=True) or 0, depth


def _find_position(
    db: Database, owner: int, id: Id, positions: dict[Id, CommitPosition]
) -> CommitPosition:
    if id not in positions:
        rows = db.read(READ_POSITION, (owner, id))
        if not rows:
            raise StoreError(f"parent commit {id.hex()} is not in the store")
        key, line, depth, has_child = rows[0]
        positions[id] = (key, line, depth, has_child)
    return positions[id]


def _find_entry_key(db: Database, id: Id) -> int:
    rows = db.read("SELECT key FROM entry WHERE id = ?", (id,))
    if not rows:
        raise StoreError(f"entry {id.hex()} is not in the store")
    return rows[0][0]
