"""What only a PostgreSQL store has: table files."""

import psycopg

import weft
from weft.store import open_store
from weft.thread import forget

RELATIONS = "FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind"


def test_a_forgotten_name_is_in_no_file_of_the_database(postgres: str) -> None:
    secret = "secretbranch"
    with weft.open(postgres) as t:
        t.user(f"the text {secret}", note=f"about {secret}")
        t.branch(secret)
        t.switch(secret)  # the operation log has the name of the branch, too
        t.switch("main")
        t.delete_branch(secret)
        assert t.search(secret)
    forget(postgres, secret)
    with psycopg.connect(postgres, autocommit=True) as db:
        db.execute("CHECKPOINT")
        files = db.execute(
            f"SELECT relname, pg_read_binary_file(pg_relation_filepath(oid)) {RELATIONS} IN "
            "('r', 'i')"
        ).fetchall()
    assert "operation" in dict(files)
    assert [name for name, data in files if secret.encode() in data] == []


def test_the_size_of_a_store_is_that_of_all_its_tables(postgres: str) -> None:
    with weft.open(postgres) as t:
        t.user("hello")
    store = open_store(postgres)
    store.maintenance().scrub()  # so that no autovacuum changes the size meanwhile
    with psycopg.connect(postgres) as db:
        (total,) = db.execute(
            f"SELECT sum(pg_total_relation_size(oid))::bigint {RELATIONS} = 'r'"
        ).fetchall()
    assert store.maintenance().size() == total[0]
    store.close()
