"""Putting right what a store in tables can put right itself.

What one row lost another knows: where a branch ends the log, which branches there were the log and
the count, where a commit stands the graph, whose it is the line that it stands on.
"""

from itertools import pairwise

from .database import Database, Row
from .landing import DEFAULT_BRANCH, checksum
from .sql_shapes import ASTRAY, DANGLING, HOMELESS

OPERATION = "verb, ref, old, new, was, created"


def mend(db: Database) -> list[str]:
    """Owners and lines from the graph, refs from the log, checksums from what stands there.

    The result says what was done, a line for each.
    """
    done: list[str] = []
    with db.transaction():
        done += _find_owners(db)
        done += _find_threads(db)
        done += _find_lines(db)
        done += _find_branches(db)
        done += _mend_refs(db)
        done += _drop_attempts(db)
        for key, sum, *beside in db.read(
            "SELECT key, checksum, created, usage, chain FROM commits"
        ):
            if sum != checksum(tuple(beside)):
                sql = "UPDATE commits SET checksum = ? WHERE key = ?"
                db.write(sql, (checksum(tuple(beside)), key))
                done += [] if sum is None else [f"commit {key} has its checksum again"]
        for of, seq, *line, sum in read_log(db):
            if sum != checksum(tuple(line)):
                sql = "UPDATE operation SET checksum = ? WHERE thread = ? AND seq = ?"
                db.write(sql, (checksum(tuple(line)), of, seq))
                done += [] if sum is None else [f"operation {seq} has its checksum again"]
    return done


def _drop_attempts(db: Database) -> list[str]:
    """An attempt without its commit belongs to no thread: nobody could read it."""
    dropped = db.write(
        """DELETE FROM attempt WHERE NOT EXISTS
        (SELECT 1 FROM commits c WHERE c.key = attempt.commit_key)"""
    )
    return [f"{dropped} attempts went with the commits they belonged to"] if dropped else []


def _find_owners(db: Database) -> list[str]:
    """A commit that a line leads through belongs to the thread that most of the line is of."""
    done: list[str] = []
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
        done += [f"{moved} commits are of their own thread again"] if moved else []
    return done


def _find_threads(db: Database) -> list[str]:
    """A thread whose row is gone, but not its commits, is there again under another name."""
    done: list[str] = []
    known = {name for (name,) in db.read("SELECT name FROM thread")}
    for key, created in db.read(
        """SELECT c.thread, min(c.created) FROM commits c LEFT JOIN thread t ON t.key = c.thread
        WHERE t.key IS NULL GROUP BY c.thread ORDER BY c.thread"""
    ):
        name = f"recovered-{key}"
        while name in known:
            name += "-again"
        refs = db.read(
            "SELECT name FROM ref WHERE thread = ? AND target IS NOT NULL ORDER BY key", (key,)
        )
        head = next((ref for (ref,) in refs if ":" not in ref), DEFAULT_BRANCH)
        marked = bool(db.read("SELECT 1 FROM checkpoint WHERE thread = ? LIMIT 1", (key,)))
        db.write(
            """INSERT INTO thread (key, name, head, checkpoints, scope, created)
            VALUES (?, ?, ?, ?, ?, ?)""",
            (key, name, head, int(marked), None, created),
        )
        done.append(f"thread {name!r} is there again, but for its own name")
    return done


def _find_lines(db: Database) -> list[str]:
    """A line whose row is gone left the one that its first commit's parent stands on."""
    found = db.read(
        """SELECT c.line, p.line, p.depth FROM commits c LEFT JOIN commits p ON p.key = c.parent
        LEFT JOIN line l ON l.key = c.line WHERE l.key IS NULL AND c.depth =
        (SELECT min(m.depth) FROM commits m WHERE m.line = c.line)"""
    )
    for row in found:
        db.write("INSERT INTO line (key, base_line, base_depth) VALUES (?, ?, ?)", row)
    return [f"{len(found)} lines are there again"] if found else []


def _find_branches(db: Database) -> list[str]:
    """A branch that only the log knows comes back, and a thread stands on one that is there."""
    done: list[str] = []
    for key, owner in db.read(
        """SELECT DISTINCT o.ref, o.thread FROM operation o
        LEFT JOIN ref r ON r.key = o.ref AND r.thread = o.thread
        WHERE r.key IS NULL ORDER BY o.ref"""
    ):
        taken = db.read(
            """SELECT t.head, r.key FROM thread t
            LEFT JOIN ref r ON r.thread = t.key AND r.name = t.head WHERE t.key = ?""",
            (owner,),
        )
        name = taken[0][0] if taken and taken[0][1] is None else _left_name(db, owner, key)
        _put_ref(db, owner, key, name)
        done.append(f"branch {name!r} is there again")
    done += _recount(db)
    for name, owner in db.read(HOMELESS[2]):
        sql = """UPDATE thread SET head = (SELECT r.name FROM ref r WHERE r.thread = thread.key
            AND r.target IS NOT NULL ORDER BY r.key LIMIT 1) WHERE key = ?
            AND EXISTS (SELECT 1 FROM ref r WHERE r.thread = thread.key
            AND r.target IS NOT NULL)"""
        db.write(sql, (owner,))
        done.append(f"thread {name!r} stands on its first branch")
    return done


def _put_ref(db: Database, owner: int, key: int, name: str) -> None:
    """Give a lost branch its row again; where its key went to another, its log takes a new."""
    if not db.read("SELECT 1 FROM ref WHERE key = ?", (key,)):
        sql = "INSERT INTO ref (key, thread, name) VALUES (?, ?, ?)"
        db.write(sql, (key, owner, name))
        return
    new = db.insert("INSERT INTO ref (thread, name) VALUES (?, ?)", (owner, name))
    for of, seq, *line, _ in read_log(db):
        if of == owner and line[1] == key:
            line[1] = new
            sql = "UPDATE operation SET ref = ?, checksum = ? WHERE thread = ? AND seq = ?"
            db.write(sql, (new, checksum(tuple(line)), of, seq))


def _left_name(db: Database, owner: int, key: int) -> str:
    """The name of a lost branch: whoever switched to it and left it wrote that down."""
    moves = db.read(
        """SELECT ref, was FROM operation WHERE thread = ? AND was IS NOT NULL
        AND coalesce(old, 0) = coalesce(new, 0) ORDER BY seq""",
        (owner,),
    )
    left = [was for (ref, _), (_, was) in pairwise(moves) if ref == key]
    there = db.read("SELECT name FROM ref WHERE thread = ?", (owner,))
    return left[-1] if left and (left[-1],) not in there else f"recovered-{key}"


def _recount(db: Database) -> list[str]:
    """Give up branches that nothing knows any more; whoever was told of them can go on."""
    count = "(SELECT count(*) FROM ref n WHERE n.thread = thread.key)"
    lost = db.read(f"SELECT name, refs - {count} FROM thread WHERE refs > {count}")
    db.write(f"UPDATE thread SET refs = {count} WHERE refs <> {count}")
    return [f"thread {name!r} has lost {number} branches for good" for name, number in lost]


def _mend_refs(db: Database) -> list[str]:
    """A ref that points at nothing goes back to the newest commit the log has for it.

    One that the log took away points nowhere.
    """
    done: list[str] = []
    for name, owner in {tuple(row) for _, _, sql in (DANGLING, ASTRAY) for row in db.read(sql)}:
        rows = db.read(
            """SELECT c.key, c.id FROM operation o
            JOIN ref r ON r.key = o.ref AND r.thread = o.thread
            JOIN commits c ON c.key = o.new WHERE r.name = ? AND r.thread = ?
            ORDER BY o.seq DESC LIMIT 1""",
            (name, owner),
        )
        last = db.read(
            """SELECT o.new FROM operation o JOIN ref r ON r.key = o.ref AND r.thread = o.thread
            WHERE r.name = ? AND r.thread = ? ORDER BY o.seq DESC LIMIT 1""",
            (name, owner),
        )
        is_deleted = bool(last) and last[0][0] is None
        target, id = rows[0] if rows and not is_deleted else (None, None)
        sql = "UPDATE ref SET target = ? WHERE name = ? AND thread = ?"
        db.write(sql, (target, name, owner))
        place = "nowhere" if id is None else f"at {id.hex()}"
        done.append(f"branch {name!r} points {place}")
    return done


def read_log(db: Database) -> list[Row]:
    """Every line of the log, as its checksum covers it."""
    return db.read(f"SELECT thread, seq, {OPERATION}, checksum FROM operation")
