"""Stores of earlier versions are migrated completely, also by concurrent processes."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import weft
from weft.store import open_store
from weft.thread import fsck, repair_store

WRITERS = 4


def old_sqlite(request: pytest.FixtureRequest) -> tuple[str, Callable[[str], None]]:
    path = str(request.getfixturevalue("tmp_path") / "store.db")

    def execute(sql: str) -> None:
        db = sqlite3.connect(path, isolation_level=None)
        db.execute(sql)
        db.close()

    return path, execute


def old_postgres(request: pytest.FixtureRequest) -> tuple[str, Callable[[str], None]]:
    import psycopg

    address = request.getfixturevalue("postgres")

    def execute(sql: str) -> None:
        with psycopg.connect(address, autocommit=True) as db:
            db.execute(sql)

    return address, execute


UNDESCRIBED = (
    "ALTER TABLE thread DROP COLUMN parent",
    "ALTER TABLE thread DROP COLUMN kind",
    "ALTER TABLE thread DROP COLUMN title",
)
UNCOUNTED = "ALTER TABLE thread DROP COLUMN refs"
UNATTEMPTED = "DROP TABLE attempt"
UNBATCHED = "DROP TABLE batch"
TABLES = ("index_segment", "index_block", "index_commit", "index_pending")
OLD_INDEX = (
    *(f"DROP TABLE {table}" for table in TABLES),
    "CREATE TABLE fulltext (text TEXT)",  # what it held does not matter: it is made anew
    "ALTER TABLE thread DROP COLUMN agent",
    "UPDATE indexed SET last = 99",
    "ALTER TABLE thread DROP COLUMN folder",
)
UNLINKED = ("DROP TABLE link", "DROP INDEX ref_target", UNBATCHED, *UNDESCRIBED)
SHAPES = {
    "sqlite 2": (
        old_sqlite,
        (*OLD_INDEX, *UNLINKED, UNATTEMPTED, UNCOUNTED, "PRAGMA user_version = 2"),
    ),
    "sqlite 3": (old_sqlite, (*OLD_INDEX, *UNLINKED, UNATTEMPTED, "PRAGMA user_version = 3")),
    "sqlite 4": (old_sqlite, (*OLD_INDEX, *UNLINKED, "PRAGMA user_version = 4")),
    "sqlite 5": (old_sqlite, (*OLD_INDEX, UNBATCHED, *UNDESCRIBED, "PRAGMA user_version = 5")),
    "sqlite 8": (old_sqlite, (*OLD_INDEX, "PRAGMA user_version = 8")),
    "postgres 7": (old_postgres, (*OLD_INDEX, "UPDATE weft_schema SET version = 7")),
    "postgres 1": (
        old_postgres,
        (*OLD_INDEX, *UNLINKED, UNATTEMPTED, UNCOUNTED, "UPDATE weft_schema SET version = 1"),
    ),
    "postgres 2": (
        old_postgres,
        (*OLD_INDEX, *UNLINKED, UNATTEMPTED, "UPDATE weft_schema SET version = 2"),
    ),
    "postgres 3": (old_postgres, (*OLD_INDEX, *UNLINKED, "UPDATE weft_schema SET version = 3")),
    "postgres 4": (
        old_postgres,
        (*OLD_INDEX, UNBATCHED, *UNDESCRIBED, "UPDATE weft_schema SET version = 4"),
    ),
}


@pytest.fixture(params=SHAPES)
def old(request: pytest.FixtureRequest) -> tuple[str, Callable[[str], None]]:
    """A store with branches, a tag, a deleted branch and an empty thread, from before refs were
    counted."""
    make, statements = SHAPES[request.param]
    address, execute = make(request)
    with weft.open(address) as t:
        t.user("hello")
        t.branch("side")
        t.tag("home")
        t.branch("gone")
        t.delete_branch("gone")
        t.assistant("hi")
    weft.open(address, "empty").close()
    for statement in statements:
        execute(statement)
    return address, execute


def test_a_store_of_an_earlier_version_is_migrated_completely(
    old: tuple[str, Callable[[str], None]],
) -> None:
    address, _ = old
    with weft.open(address) as t:
        assert [m.text for m in t.compile().messages] == ["hello", "hi"]
        assert (list(t.branches()), list(t.tags())) == (["main", "side"], ["home"])
        t.branch("gone")
        t.user("and on")
        assert [hit.text for hit in t.search("hello")] == ["hello"]
    with weft.open(address, "empty") as t:
        t.user("begun")
    assert fsck(address).flaws == ()


def test_concurrent_processes_can_migrate_it(old: tuple[str, Callable[[str], None]]) -> None:
    address, _ = old

    def work(number: int) -> None:
        with weft.open(address) as t:
            t.branch(f"of-{number}")
            t.user(f"hello {number}")

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(work, range(WRITERS)))
    with weft.open(address) as t:
        assert len(t.branches()) == 2 + WRITERS
        assert len(t.compile().messages) == 2 + WRITERS
    assert fsck(address).flaws == ()


def test_a_branch_lost_before_the_migration_is_named(tmp_path: Path) -> None:
    """The log of such a file has refs without a row."""
    path = tmp_path / "store.db"
    with weft.open(path) as t:
        t.user("hello")
        t.branch("side")
    db = sqlite3.connect(path, isolation_level=None)
    for statement in ("DELETE FROM ref WHERE name = 'side'", *SHAPES["sqlite 2"][1]):
        db.execute(statement)
    db.close()
    assert "has fewer branches" in str(fsck(path).flaws)
    done, report = repair_store(path)
    assert report.clean
    with weft.open(path) as t:
        assert len(t.branches()) == 2, done


def test_a_store_of_a_newer_version_is_unchanged(old: tuple[str, Callable[[str], None]]) -> None:
    address, execute = old
    newer = "UPDATE weft_schema SET version = 99"
    execute("PRAGMA user_version = 99" if "://" not in address else newer)
    with pytest.raises(weft.errors.StoreError, match="newer version of Weft: upgrade"):
        open_store(address)
