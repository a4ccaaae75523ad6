"""A damaged store reports it, is never read as empty, and is not written to."""

import sqlite3
from pathlib import Path

import pytest

import weft
from weft.cli import main
from weft.errors import Damaged, StoreError
from weft.thread import fsck, repair_store

DAMAGE: dict[str, tuple[str, str, str]] = {
    "junk in an entry": ("update entry set data = x'6a756e6b' where key = 2", "entry", "entry"),
    "text in an entry": ("update entry set data = 'junk' where key = 2", "entry", "entry"),
    "wrong shape": ("update entry set data = cast('{\"role\":5}' as blob)", "entry", "entry"),
    "entry gone": ("delete from entry where key = 2", "entry", "missing entry"),
    "body of junk": ("update commits set data = x'00' where key = 2", "commit", "commit"),
    "commit gone": ("delete from commits where key = 2", "parent", "parent"),
    "ref to nowhere": ("update ref set target = 99", "'main'", "ref main"),
    "head gone": ("delete from commits where key = 3", "'main'", "ref main"),
    "refs gone": ("delete from ref", "'main'", "branch that is missing"),
    "head of the thread": ("update thread set head = 'zz'", "'zz'", "thread"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    with weft.open(path) as t:
        t.user("one")
        t.assistant("two")
        t.user("three")
    with weft.open(path, "other") as t:
        t.user("of another thread")
    return path


def break_it(path: Path, sql: str) -> None:
    db = sqlite3.connect(path)
    db.execute(sql)
    db.commit()
    db.close()


def rows_of(path: Path) -> list[tuple[int]]:
    db = sqlite3.connect(path)
    try:
        return db.execute("select key from commits").fetchall()
    finally:
        db.close()


@pytest.mark.parametrize(("sql", "place", "named"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_reported_with_its_location(
    sql: str, place: str, named: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    break_it(path, sql)
    with weft.open(path) as t, pytest.raises(Damaged, match=place):
        t.compile().to_dicts()
    assert main(["compile", "-t", "default", "--store", str(path)]) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    report = fsck(path)
    assert any(named in str(flaw) for flaw in report.flaws), report.flaws


@pytest.mark.parametrize(
    "sql", [DAMAGE[name][0] for name in ("ref to nowhere", "head gone", "refs gone")]
)
def test_nothing_is_written_on_a_dangling_branch(sql: str, path: Path) -> None:
    break_it(path, sql)
    before = rows_of(path)
    with weft.open(path) as t, pytest.raises(Damaged):
        t.user("on a new root")
    assert rows_of(path) == before


@pytest.mark.parametrize("name", ["ref to nowhere", "refs gone", "head of the thread"])
def test_repair_finds_the_branch_again(name: str, path: Path) -> None:
    break_it(path, DAMAGE[name][0])
    done, report = repair_store(path)
    assert done
    assert report.clean, report.flaws
    with weft.open(path) as t:
        assert [row["content"] for row in t.compile().to_dicts()] == ["one", "two", "three"]


def test_nothing_is_written_on_a_branch_that_never_existed(path: Path) -> None:
    break_it(path, DAMAGE["head of the thread"][0])
    with weft.open(path) as t, pytest.raises(Damaged, match="zz"):
        t.user("on a new root")


@pytest.mark.parametrize(
    "sql", [DAMAGE[name][0] for name in ("junk in an entry", "text in an entry", "entry gone")]
)
def test_one_damaged_entry_does_not_hide_the_others(sql: str, path: Path) -> None:
    break_it(path, sql)
    break_it(path, "update indexed set last = 0")
    for table in ("index_segment", "index_commit", "index_block"):
        break_it(path, f"delete from {table}")
    with weft.open(path, "other") as t:
        assert [hit.text for hit in t.search("another")] == ["of another thread"]
        t.user("goes on")


def test_a_thread_started_on_another_branch_is_not_damaged(tmp_path: Path) -> None:
    with weft.open(tmp_path / "b.db", branch="dev") as t:
        t.user("x")
    with weft.open(tmp_path / "b.db") as t:
        assert t.compile().to_dicts() == []
        t.user("a root of its own")
    assert fsck(tmp_path / "b.db").clean


@pytest.mark.parametrize("page", range(1, 40))
def test_overwritten_bytes_are_never_read_as_an_empty_thread(page: int, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with weft.open(path) as t:
        for number in range(30):
            t.user(f"message {number} " + "words " * 60)
    db = sqlite3.connect(path)
    db.execute("pragma wal_checkpoint(truncate)")
    db.close()
    data = bytearray(path.read_bytes())
    start = page * 2048
    if start + 3000 > len(data):
        pytest.skip("the file is shorter")
    data[start : start + 3000] = bytes(range(7, 7 + 200)) * 15
    path.write_bytes(bytes(data))
    try:
        with weft.open(path) as t:
            read = len(t.compile().to_dicts())
    except StoreError:
        read = 30
    assert read == 30
    try:
        clean = fsck(path).clean
    except StoreError:
        clean = False
    assert not clean


MENDED = {
    "a deleted branch": ("update ref set target = 1 where name = 'off'", "elsewhere than the log"),
    "a thread": ("delete from thread where name = 'other'", "a missing thread"),
    "lines": ("delete from line", "a line that does not lead"),
    "an owner": ("update commits set thread = 2 where key = 2", "another thread than its parent"),
}


@pytest.mark.parametrize(("sql", "named"), MENDED.values(), ids=MENDED.keys())
def test_data_that_other_rows_have_is_restored(sql: str, named: str, path: Path) -> None:
    with weft.open(path) as t:
        t.branch("off")
        t.delete_branch("off")
        messages = t.compile().to_dicts()
    break_it(path, sql)
    assert any(named in str(flaw) for flaw in fsck(path).flaws)
    done, report = repair_store(path)
    assert done
    assert report.flaws == ()
    assert repair_store(path)[0] == []
    with weft.open(path) as t:
        assert t.compile().to_dicts() == messages
        assert list(t.branches()) == ["main"]
        t.user("goes on")
    (other,) = [record.name for record in weft.threads(path) if record.name != "default"]
    with weft.open(path, other) as t:
        assert [m.text for m in t.compile().messages] == ["of another thread"]
    assert fsck(path).clean


@pytest.mark.parametrize(
    ("sql", "left", "after"),
    [
        ("delete from entry where key = 2", ["one"], ["[damaged]", "three"]),
        ("delete from commits where key = 2", ["one"], None),  # its id proves what follows it
        ("delete from commits where key = 3", ["one", "two"], None),
    ],
    ids=["an entry", "a commit", "the newest"],
)
def test_data_that_cannot_be_restored_loses_only_itself(
    sql: str, left: list[str], after: list[str] | None, path: Path
) -> None:
    break_it(path, sql)
    assert not fsck(path).clean
    done, report = repair_store(path)
    assert report.flaws == (), done
    assert any("lost" in line for line in done)
    assert repair_store(path)[0] == []
    with weft.open(path) as t:
        assert [m.text for m in t.compile().messages] == left
        assert len(t.branches()) == (1 if after is None else 2)
        t.user("goes on")
    if after is not None:
        with weft.open(path, branch="main-after-damage") as t:
            assert [m.text for m in t.compile().messages][-2:] == after
    with weft.open(path, "other") as t:
        assert [m.text for m in t.compile().messages] == ["of another thread"]


@pytest.fixture
def forked(path: Path) -> Path:
    """A second branch, switched to and left, and a third that was never current."""
    with weft.open(path) as t:
        t.branch("side")
        t.branch("quiet")
        t.switch("side")
        t.user("on the side")
        t.switch("main")
        t.user("four")
    return path


@pytest.mark.parametrize("name", ["main", "side", "quiet"])
def test_a_branch_without_its_ref_gets_no_second_history(name: str, forked: Path) -> None:
    with weft.open(forked, branch=name) as t:
        messages = t.compile().to_dicts()
    break_it(forked, f"delete from ref where name = '{name}' and thread = 1")
    before = rows_of(forked)
    with pytest.raises(Damaged, match="weft fsck --repair"), weft.open(forked, branch=name) as t:
        t.user("on a new root")
    with weft.open(forked) as t, pytest.raises(Damaged, match="weft fsck --repair"):
        t.branch("another", at=messages and t.log()[0].id)
    assert rows_of(forked) == before
    assert any("branch" in str(flaw) for flaw in fsck(forked).flaws)
    with weft.open(forked, "other") as t:
        t.branch("untouched")
    done, report = repair_store(forked)
    assert done
    assert report.clean, report.flaws
    restored_name = {"quiet": "recovered-"}.get(name, name)  # its name stood nowhere else
    with weft.open(forked) as t:
        (restored,) = [branch for branch in t.branches() if branch.startswith(restored_name)]
    with weft.open(forked, branch=restored) as t:
        assert t.compile().to_dicts() == messages
        t.user("goes on")
    assert fsck(forked).clean


def test_a_branch_without_a_trace_is_named_and_then_removed(forked: Path) -> None:
    break_it(forked, "delete from ref where name = 'quiet' and thread = 1")
    break_it(forked, "delete from operation where ref not in (select key from ref)")
    assert [flaw.what for flaw in fsck(forked).flaws] == ["has fewer branches than it had"]
    done, report = repair_store(forked)
    assert any("lost" in line for line in done)
    assert report.clean, report.flaws
    with weft.open(forked) as t:
        t.branch("quiet")
    with weft.open(forked, branch="quiet") as t:
        t.user("a new one")


INDEX_DAMAGE = {
    "a term is another": "update index_block set terms = replace(terms, 'one', 'six')",
    "a term is moved": "update index_block set terms = cast(replace(terms, ' 0', ' 9') as blob)",
    "lost postings": "update index_block set postings = x''",
    "other postings": "update index_block set postings = zeroblob(length(postings))",
    "more postings": "update index_block set postings = postings || x'000001'",
    "a block is gone": "delete from index_block where key = (select min(key) from index_block)",
    "no text": "update index_block set terms = x'ff', postings = x'ff'",
    "wrong lengths": "update index_commit set data = zeroblob(length(data))",
    "short facts": "update index_commit set data = x'00'",
    "commits are gone": "delete from index_commit",
    "another commit": "update index_commit set keys = zeroblob(length(keys))",
    "a segment is gone": "delete from index_segment",
}


@pytest.mark.parametrize("sql", INDEX_DAMAGE.values(), ids=INDEX_DAMAGE.keys())
def test_a_damaged_text_index_is_named_and_rebuilt(sql: str, path: Path) -> None:
    with weft.open(path) as t:
        assert len(t.search("three")) == 1  # which indexes what is new
    assert fsck(path).clean
    break_it(path, sql)
    flaws = fsck(path).flaws
    assert flaws
    assert {flaw.kind for flaw in flaws} == {"index"}, flaws
    done, report = repair_store(path)
    assert done == ["the text index was built again"]
    assert report.flaws == ()
    with weft.open(path) as t:
        assert [len(t.search(word)) for word in ("one", "two", "three", "six")] == [1, 1, 1, 0]


def test_a_large_text_index_is_checked_by_segments(tmp_path: Path) -> None:
    path = tmp_path / "large.db"
    with weft.open(path) as t:
        with t.batch():
            for number in range(2200):  # one large segment with buckets, and a small one
                t.user(f"message {number} of about w{number % 7} words " + "same " * (number % 300))
        assert t.search("2199")
    assert fsck(path).clean
    first = "(select min(key) from index_block)"
    break_it(path, f"update index_block set postings = x'' where key = {first}")
    assert not fsck(path).clean
    assert repair_store(path)[1].clean
