"""`fsck` reports errors, `repair` saves the rest, `gc` and `forget` remove data."""

import json
import sqlite3
from importlib.resources import files
from pathlib import Path
from time import time

import pytest

import weft
from weft.cli import main
from weft.store import SqliteStore, Store
from weft.thread import forget, fsck, gc, repair_store

SECRET = 'sk-live-\u00e9t\u00e9-"quoted"-4711'


def busy_thread(store: Store) -> weft.Thread:
    """A thread with an edit, a pin, two branches, a merge and an undo in it."""
    t = weft.open(store)
    t.system("be brief")
    first = t.user("hello")
    t.assistant("hi")
    t.branch("side")
    t.edit(first, "hello there")
    t.switch("side")
    t.user("on the side")
    t.switch("main")
    t.pin(first)
    t.merge("side")
    t.user("taken back")
    t.undo()
    return t


def test_a_valid_store_has_no_findings(store: Store) -> None:
    busy_thread(store)
    report = fsck(store)
    assert report.flaws == ()
    assert report.commits >= 8


def test_repairing_a_valid_store_changes_nothing(store: Store) -> None:
    busy_thread(store)
    assert store.maintenance().repair_structure() == []
    assert repair_store(store) == ([], fsck(store))


def test_gc_removes_unreachable_objects_only(store: Store) -> None:
    t = busy_thread(store)
    before = t.compile().to_dicts()
    assert gc(store).commits == 0  # the log mentions the undone commit
    assert gc(store, days=-1, preview=True).commits == 1
    swept = gc(store, days=-1)
    assert (swept.commits, swept.entries) == (1, 1)
    assert fsck(store).flaws == ()
    reopened = weft.open(store)
    assert reopened.compile().to_dicts() == before
    assert reopened.search("taken") == []
    assert reopened.search("hello")
    assert reopened.user("and on").id
    assert fsck(store).flaws == ()


def test_objects_written_after_gc_are_found(store: Store) -> None:
    t = weft.open(store)
    t.user("hello")
    t.user("taken back")
    t.user("taken back too")
    assert len(t.search("taken")) == 2  # all of it is indexed
    t.undo()
    t.undo()
    assert gc(store, days=-1).commits == 2
    t.user("written later")
    assert [hit.text for hit in t.search("written")] == ["written later"]
    with weft.open(store, "gone") as other:
        other.user("in a thread that goes")
        assert other.search("goes")
        other.delete()
    assert gc(store, days=-1).commits == 1
    t.user("written last")
    assert [hit.text for hit in t.recall("last")] == ["written last"]
    assert fsck(store).flaws == ()


def test_gc_keeps_the_originals_of_a_compaction(store: Store) -> None:
    t = weft.open(store, checkpoints=True)
    for number in range(6):
        t.user(f"question {number}")
        t.assistant(f"answer {number}")
    t.compact(keep=1)
    assert gc(store, days=-1).commits == 0
    assert any("question 0" in hit.text for hit in t.recall("question 0"))


def test_a_forgotten_text_is_nowhere_and_fsck_finds_nothing(store: Store) -> None:
    t = weft.open(store)
    t.user(f"my key is {SECRET}, keep it")
    t.commit({"content_type": "dialogue", "role": "user", "text": "x"}, f"note {SECRET}")
    t.user("something else", metadata={"keys": [SECRET]})
    harmless = t.user("harmless")
    assert t.search("4711")
    assert len(forget(store, SECRET, preview=True).entries) == 1
    erased = forget(store, SECRET)
    assert (len(erased.entries), len(erased.commits)) == (1, 2)
    reopened = weft.open(store)
    text = json.dumps([reopened.compile().to_dicts(), [c.to_dict() for c in reopened.log()]])
    assert "4711" not in text
    assert "my key is [forgotten], keep it" in text
    assert reopened.search("4711") == []
    assert reopened.search("forgotten")
    assert reopened.show(harmless).text == "harmless"
    report = fsck(store)
    assert report.flaws == ()
    assert report.forgotten == 3
    assert not forget(store, SECRET)
    reopened.user(f"my key is {SECRET}, keep it")  # the same words have the same id
    assert "4711" not in weft.open(store).compile().to_text()


def thread_with_secret(store: Store, name: str) -> weft.Thread:
    """A thread with the secret in its setup, a message, a note and metadata."""
    t = weft.open(store, thread=name)
    t.setup([{"name": "look", "description": SECRET, "input_schema": {"type": "object"}}])
    t.user(SECRET, message=f"note {SECRET}")
    with t.batch():
        t.user("plain")
        t.user("beside it", metadata={"key": SECRET})
    return t


@pytest.mark.parametrize("swept", [False, True])
def test_a_text_repeated_in_another_thread_stays_forgotten(store: Store, swept: bool) -> None:
    thread_with_secret(store, "first")
    forget(store, SECRET)
    if swept:
        with weft.open(store, "first") as t:
            t.reset(t.log()[-1])
        assert gc(store, days=-1).commits == 3
    ids = [info.id for info in thread_with_secret(store, "second").log()]
    assert fsck(store).flaws == ()
    assert not [data for _, data in store.maintenance().entries() if SECRET[:8].encode() in data]
    with weft.open(store, "second") as t:
        assert [info.id for info in t.log()] == ids
        assert SECRET[:8] not in str(t.compile().tools)
        assert swept or SECRET[:8] not in str([info.to_dict() for info in t.log()])


def test_a_forgotten_text_leaves_no_bytes_in_the_files(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with weft.open(path) as t:
        for number in range(300):
            t.user(f"line {number}")
        t.user("the password is hunter2xyz")
        t.search("hunter2xyz")
        assert main(["forget", "hunter2xyz", "--store", str(path)]) == 0
        for file in tmp_path.iterdir():
            assert b"hunter2xyz" not in file.read_bytes(), file
    assert main(["fsck", "--store", str(path)]) == 0


BLOB = "UPDATE {} SET data = CAST(replace(CAST(data AS TEXT), '{}', '{}') AS BLOB)"
DAMAGE = [
    (BLOB.format("entry", "hello", "jello"), "entry", "does not hash"),
    (BLOB.format("commits", "append", "bppend"), "commit", "does not hash"),
    ("UPDATE commits SET created = created + 1 WHERE depth = 2", "commit", "checksum"),
    ("UPDATE commits SET chain = x'00' WHERE depth = 2", "commit", "checksum"),
    ("UPDATE commits SET parent = 1 WHERE depth = 3", "commit", "does not hash"),
    ("UPDATE commits SET depth = 77 WHERE depth = 2 AND line = 1", "commit", "depth"),
    ("DELETE FROM entry WHERE key = 2", "commit", "missing entry"),
    ("DELETE FROM commits WHERE depth = 2", "commit", "missing parent"),
    ("UPDATE ref SET target = 9999 WHERE name = 'main'", "ref", "missing"),
    ("UPDATE ref SET target = 1 WHERE name = 'main'", "ref", "log says"),
    ("UPDATE operation SET verb = 'bppend' WHERE seq = 2", "operation", "checksum"),
    ("UPDATE commits SET id = x'0102' WHERE depth = 2", "commit", "does not hash"),
]


@pytest.mark.parametrize(("damage", "kind", "problem"), DAMAGE, ids=[row[0] for row in DAMAGE])
def test_damage_is_named(tmp_path: Path, damage: str, kind: str, problem: str) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    busy_thread(store)
    store.close()
    with sqlite3.connect(path) as db:
        assert db.execute(damage).rowcount
    db.close()
    flaws = fsck(path).flaws
    assert any(flaw.kind == kind and problem in flaw.what for flaw in flaws), flaws


def test_repair_saves_intact_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "store.db"
    with weft.open(path) as t:
        for text in ("first", "second", "third"):
            t.user(text)
    with sqlite3.connect(path) as db:
        db.execute(BLOB.format("entry", "second", "sEcond"))
        db.execute("UPDATE ref SET target = 9999")
        db.execute("UPDATE operation SET verb = 'x' WHERE seq = 1")
    db.close()
    assert main(["fsck", "--store", str(path)]) == 1
    assert "does not hash to its id" in capsys.readouterr().out
    repairs, report = repair_store(path)
    assert len(repairs) == 3
    assert report.clean
    with weft.open(path) as t:
        assert [m.text for m in t.compile().messages] == ["first", "[damaged]", "third"]


def test_a_flipped_byte_in_any_message_is_named(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with weft.open(path) as t:
        for number in range(40):
            t.user(f"unmistakable{number:02d}")
    intact = path.read_bytes()
    for number in range(0, 40, 7):
        text = b'"unmistakable%02d"' % number
        path.write_bytes(intact.replace(text, text.replace(b"s", b"S")))  # in freed cells too
        flaws = fsck(path).flaws
        assert [flaw.kind for flaw in flaws] == ["entry"], number


def test_a_store_of_the_first_version_is_migrated(tmp_path: Path) -> None:
    """Every file of an earlier version opens with its log, and is valid."""
    path = tmp_path / "old.db"
    db = sqlite3.connect(path)
    first_script = sorted((files("weft") / "store" / "migrations" / "sqlite").iterdir(), key=str)[0]
    db.executescript(first_script.read_text())
    db.execute("PRAGMA user_version = 1")
    db.execute("INSERT INTO thread VALUES (1, 'default', 'main', 0, NULL, ?)", (time(),))
    db.execute("INSERT INTO ref VALUES (1, 1, 'main', NULL)")
    db.execute("INSERT INTO operation VALUES (5, 1, 'branch', 1, NULL, NULL, NULL, 1.0)")
    db.commit()
    db.close()
    with weft.open(path) as t:
        assert [line.verb for line in t.store.operations("default")] == ["branch"]
        t.user("new words")
    assert fsck(path).clean


def test_commands_support_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "store.db")
    with weft.open(path) as t:
        info = t.user("a secret thing")
    for command, member in (
        (["fsck"], "clean"),
        (["gc", "--preview"], "commits"),
        (["forget", "--id", info.id[:10], "--preview"], "entries"),
    ):
        assert main([*command, "--store", path, "--json"]) == 0
        assert member in json.loads(capsys.readouterr().out)


def test_the_text_index_can_be_dropped_and_is_rebuilt(store: Store) -> None:
    t = busy_thread(store)
    assert len(t.search("hello")) == 1
    store.maintenance().drop_index()
    assert store.segments() == {}
    assert fsck(store).clean  # all commits wait to be indexed
    assert len(weft.open(store).search("hello")) == 1
    assert sum(store.segments().values()) == fsck(store).commits


class IndexedMeanwhile(SqliteStore):
    """A store that another process indexes whenever its segments have been listed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path

    def segments(self) -> dict[int, int]:
        segments = super().segments()
        with weft.open(self.path) as other:
            other.search("anything")
        return segments


def test_fsck_during_indexing_finds_no_flaw(tmp_path: Path) -> None:
    store = IndexedMeanwhile(tmp_path / "weft.db")
    t = weft.open(store)
    for number in range(3):
        t.user(f"message {number}")
    assert fsck(store).flaws == ()
    store.close()
