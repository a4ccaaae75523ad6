"""The portable archive has everything, for any store, with the same ids."""

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import weft
from weft.errors import WeftError
from weft.store import MemoryStore, SqliteStore, Store, open_store
from weft.thread import archive_bytes, import_bytes

BACKENDS: dict[str, Callable[[pytest.FixtureRequest], Store]] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": lambda request: SqliteStore(request.getfixturevalue("tmp_path") / "to.db"),
    "postgres": lambda request: open_store(request.getfixturevalue("postgres")),
}


@pytest.fixture(params=BACKENDS)
def other(request: pytest.FixtureRequest) -> Iterator[Store]:
    opened = BACKENDS[request.param](request)
    yield opened
    opened.close()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A thread with every kind of operation, and a second one."""
    store = SqliteStore(tmp_path / "from.db")
    thread = weft.open(store, "work", checkpoints=True)
    thread.system("be brief")
    first = thread.user("a")
    thread.assistant("b")
    thread.pin(first)
    thread.branch("side")
    thread.switch("side")
    thread.user("c")
    thread.switch("main")
    thread.edit(first, "A")
    thread.merge("side")
    thread.compact([{"summary": "S"}])
    thread.user("undone")
    thread.undo()
    thread.tag("v1")
    thread.note(first, "mind this")
    weft.open(store, "other").user("x")
    return store


def test_everything_is_restored(store: Store, other: Store) -> None:
    data = archive_bytes(store, ["work", "other"])
    imported = import_bytes(other, data)
    assert [one.thread for one in imported] == ["work", "other"]
    old, new = weft.open(store, "work"), weft.open(other, "work")
    assert new.compile() == old.compile()
    assert new.compile().ids == old.compile().ids
    assert new.log() == old.log()
    assert new.branches() == old.branches()
    assert new.tags() == old.tags()
    assert new.checkpoints() == old.checkpoints()
    assert new.current == old.current
    assert archive_bytes(other, ["work", "other"]) == data


def test_the_log_continues_after_a_restore(store: Store, other: Store) -> None:
    import_bytes(other, archive_bytes(store, ["work"]))
    thread = weft.open(other, "work")
    thread.undo()  # the note
    thread.undo()  # the tag
    assert thread.tags() == {}
    thread.undo()  # the compaction, behind an undone turn
    texts = [message.text for message in thread.compile().messages]
    assert len(texts) == 4
    assert texts[1].startswith("A")


@pytest.mark.parametrize("names", [["other", "work"], ["work", "other"]])
def test_a_parent_is_restored_wherever_it_is_in_the_archive(
    store: Store, other: Store, names: list[str]
) -> None:
    store.describe_thread("other", parent="work")
    data = archive_bytes(store, names)
    import_bytes(other, data)
    restored = other.read_thread("other")
    assert restored is not None
    assert restored.parent == "work"
    assert archive_bytes(other, names) == data


def test_a_parent_that_is_in_neither_the_archive_nor_the_store_is_left_out(
    store: Store, other: Store
) -> None:
    store.describe_thread("other", parent="work")
    import_bytes(other, archive_bytes(store, ["other"]))
    restored = other.read_thread("other")
    assert restored is not None
    assert restored.parent is None


def test_restoring_twice_changes_nothing(store: Store) -> None:
    data = archive_bytes(store, ["work", "other"])
    assert [one.new for one in import_bytes(store, data)] == [0, 0]
    assert archive_bytes(store, ["work", "other"]) == data


def test_a_longer_thread_is_extended(store: Store) -> None:
    other = MemoryStore()
    import_bytes(other, archive_bytes(store, ["other"]))
    weft.open(store, "other").user("y")
    (imported,) = import_bytes(other, archive_bytes(store, ["other"]))
    assert imported.new == 1
    assert len(weft.open(other, "other").compile()) == 2


def test_a_diverged_thread_is_unchanged(store: Store) -> None:
    other = MemoryStore()
    weft.open(other, "other").user("mine")
    with pytest.raises(WeftError, match="has diverged"):
        import_bytes(other, archive_bytes(store, ["work", "other"]))
    assert [record.name for record in other.threads()] == ["other"]


def test_an_archive_can_be_compressed(store: Store) -> None:
    data = gzip.compress(archive_bytes(store, ["other"]))
    assert import_bytes(MemoryStore(), data)[0].new == 1


def test_a_forgotten_text_stays_forgotten(store: Store) -> None:
    (entry, data), *_ = store.maintenance().entries()
    store.maintenance().write_tombstone(
        "entry", entry, data.replace(b"be brief", b"FORGOTTEN"), "forgotten", 1.0
    )
    other = MemoryStore()
    archive = archive_bytes(store, ["work"])
    import_bytes(other, archive)
    assert b'"text":"be brief"' not in archive
    assert other.maintenance().tombstones()["entry", entry].reason == "forgotten"
    assert archive_bytes(other, ["work"]) == archive


@pytest.mark.parametrize("place", [0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_a_changed_byte_is_detected(store: Store, place: float) -> None:
    data = bytearray(archive_bytes(store, ["work"]))
    data[int(len(data) * place)] ^= 1
    other = MemoryStore()
    with pytest.raises(WeftError, match="archive"):
        import_bytes(other, bytes(data), format="archive")
    assert other.threads() == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:-1], "middle of a line"),
        (lambda data: data[: data.rindex(b"\n", 0, -1) + 1], "first or last line"),
        (lambda data: data.replace(b'"version":2', b'"version":9'), "version 9"),
        (lambda _: b"", "middle of a line"),
    ],
)
def test_an_incomplete_archive_is_refused(
    store: Store, change: Callable[[bytes], bytes], words: str
) -> None:
    with pytest.raises(WeftError, match=words):
        import_bytes(MemoryStore(), change(archive_bytes(store, ["work"])), format="archive")
