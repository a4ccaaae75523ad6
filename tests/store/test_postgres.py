"""What only a PostgreSQL store has: table files, and a URL that may contain a password."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

import weft
from weft.cli.main import main
from weft.store import open_store, without_password
from weft.thread import forget

PASSWORD = "hunter2xyz"
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


def with_user_info(url: str) -> str:
    return url.replace("postgres:@", f"postgres:{PASSWORD}@", 1)


def with_parameter(url: str) -> str:
    return f"{url}&password={PASSWORD}"


FORMS: dict[str, Callable[[str], str]] = {
    "user info": with_user_info,
    "parameter": with_parameter,
}


@pytest.fixture(params=FORMS)
def secret_url(request: pytest.FixtureRequest, postgres: str) -> str:
    """The URL of a store with a password, which the server ignores."""
    url = FORMS[request.param](postgres)
    assert PASSWORD in url
    return url


@pytest.mark.parametrize(
    "words",
    [
        ["log", "--thread", "missing"],  # fails, and names the store
        ["log"],
        ["threads", "--json"],
        ["stats", "--json"],
        ["fsck", "--json"],
        ["fsck", "--repair"],
        ["gc", "--json"],
        ["forget", "nothing", "--json"],
        ["export", "--format", "archive", "--all"],
    ],
    ids=" ".join,
)
def test_no_command_prints_the_password_of_a_store(
    secret_url: str, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    with weft.open(secret_url) as t:
        t.user("hello")
        assert PASSWORD not in repr(t) + repr(t.store) + repr(vars(t.store))
    main([*words, "--store", secret_url])
    printed = "".join(capfd.readouterr())
    assert printed
    assert PASSWORD not in printed


UNREACHABLE = [
    (f"postgresql://user:{PASSWORD}@127.0.0.1:1/db", "postgresql://user@127.0.0.1:1/db"),
    (f"postgres://user@127.0.0.1:1/db?password={PASSWORD}", "postgresql://user@127.0.0.1:1/db"),
    (f"postgresql://127.0.0.1:1/db?sslpassword={PASSWORD}", "postgresql://127.0.0.1:1/db"),
    (
        f"postgresql://user:{PASSWORD}@127.0.0.1:1,127.0.0.1:2/db?sslmode=disable",
        "postgresql://user@/db?host=127.0.0.1,127.0.0.1&port=1,2&sslmode=disable",
    ),
    (f"postgresql://u:{quote('a@b/' + PASSWORD, safe='')}@127.0.0.1:1", "postgresql://u@127.0.0.1"),
]


@pytest.mark.parametrize(("url", "name"), UNREACHABLE, ids=[row[0] for row in UNREACHABLE])
def test_an_error_names_the_store_without_its_password(url: str, name: str) -> None:
    with pytest.raises(weft.StoreError, match="cannot be reached") as raised:
        open_store(url)
    assert f"the store '{name}" in str(raised.value)
    assert PASSWORD not in str(raised.value)


INVALID = [
    f"postgresql://user:50%{PASSWORD}@127.0.0.1:1/db",  # libpq quotes the password
    f"postgresql://user:a {PASSWORD}@127.0.0.1:1/db",  # libpq quotes the password
    f"postgresql://user:{PASSWORD}@[::1",  # libpq quotes the URL
    f"postgresql://user:a@{PASSWORD}@127.0.0.1:1/db",  # libpq takes the end for the host
    f"postgresql://user:{PASSWORD}/a@127.0.0.1:1/db",  # libpq takes the start for the port
    f"postgresql://user:1/{PASSWORD}@127.0.0.1:1/db",  # libpq takes the end for the database
    f"postgresql://user:{PASSWORD}@127.0.0.1:1/db?pasword=x",
]


@pytest.mark.parametrize("url", INVALID)
def test_an_invalid_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(weft.StoreError) as raised:
        open_store(url)
    assert "is not a valid PostgreSQL URL" in str(raised.value)
    assert PASSWORD not in str(raised.value)
    assert PASSWORD not in without_password(url)


NOT_URLS = [
    f"host=127.0.0.1 user=me password={PASSWORD}",  # as for psql
    f"user = me password = '{PASSWORD}'",
    f"postgresql:/me:{PASSWORD}@127.0.0.1/db",
    f"postgres:me:{PASSWORD}@127.0.0.1/db",
]


@pytest.mark.parametrize("address", NOT_URLS)
def test_other_postgresql_addresses_are_not_taken_for_a_path(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for open_address in (open_store, weft.open, weft.threads):
        with pytest.raises(weft.ConfigError, match="postgresql://USER") as raised:
            open_address(address)
        assert PASSWORD not in str(raised.value)
    for words in (["log"], ["commit", "x"], ["serve", "--port", "0"]):
        assert main([*words, "--store", address]) == 1
    printed = "".join(capfd.readouterr())
    assert printed.count("postgresql://USER") == 3
    assert PASSWORD not in printed
    assert list(tmp_path.iterdir()) == []


def test_the_path_of_a_file_has_no_password() -> None:
    for path in ("store.db", "sqlite:///a@b/store.db", ":memory:"):
        assert without_password(path) == path
