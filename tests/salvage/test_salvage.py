"""A file with damaged pages is rebuilt from what can be read: old values, or named prefixes.

The counts are small; `make torture` sets `WEFT_TORTURE` for large ones.
"""

import json
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.cli import main
from weft.errors import Damaged, StoreError
from weft.history import OBJECT_FORMAT
from weft.salvage import RepairLock, salvage
from weft.thread import forget, fsck, repair_store

LARGE = bool(os.environ.get("WEFT_TORTURE"))
SEEDS = 400 if LARGE else 30
PAGE = 2048
LINE = "[damaged]"
AFTER = r"branch '(.*?)' .* what came after the damage is on '(.*?)'"

Harm = Callable[[bytearray, random.Random], None]
Rows = list[dict[str, Any]]


def overwrite(data: bytearray, chance: random.Random) -> None:
    """Some bytes somewhere, up to a page long."""
    start = chance.randrange(len(data))
    length = min(chance.choice([1, 8, 60, 700, PAGE]), len(data) - start)
    data[start : start + length] = chance.randbytes(length)


def zero_page(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data) // PAGE) * PAGE
    data[start : start + PAGE] = bytes(PAGE)


def zero_some(data: bytearray, chance: random.Random) -> None:
    for _ in range(4):
        zero_page(data, chance)


def cut_off(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data) // 4, len(data)) :]


def lose_the_start(data: bytearray, chance: random.Random) -> None:
    length = PAGE * chance.choice([1, 2, 7])
    data[:length] = bytes(length)


def cut_out(data: bytearray, chance: random.Random) -> None:
    """Remove pages, so that every later page has another number than the references to it."""
    start = PAGE * chance.randrange(len(data) // PAGE)
    del data[start : start + PAGE * chance.choice([1, 3])]


HARMS: tuple[Harm, ...] = (overwrite, zero_page, zero_some, cut_off, lose_the_start, cut_out)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with branches, merges, edits, pins, compactions, long messages and an erased word."""
    path = tmp_path_factory.mktemp("whole") / "store.db"
    with weft.open(path, checkpoints=True) as t:
        t.system("be brief")
        for number in range(60):
            t.user(f"question {number} " + "about the parser " * 8)
            t.assistant(f"answer {number} " + "it waits for a lock " * 12)
            if number == 20:
                t.branch("side")
            if number in (25, 45):
                t.compact(keep=6)
            if number % 9 == 4:
                t.edit(t.compile().ids[-2], f"edited {number}")
            if number == 30:
                t.user("a long one " * 900)
        t.pin(t.compile().ids[-3])
        t.switch("side")
        for number in range(12):
            t.user(f"aside {number}", metadata={"n": number})
        t.tag("home")
        t.switch("main")
        t.merge("side")
        t.user("taken back")
        t.undo()
        for number in range(20):
            t.user(f"the end {number}")
    with weft.open(path, "other") as t:
        for number in range(50):
            t.user(f"of another thread, {number}, my key is hunter2")
    forget(path, "hunter2")
    return path


class Truth:
    """The branches of the undamaged store."""

    def __init__(self, path: Path) -> None:
        self.store = weft.store.open_store(path)
        self.chains: dict[tuple[str, str], list[str]] = {}
        for record in self.store.threads():
            with weft.open(self.store, record.name) as t:
                for branch in t.branches():
                    with weft.open(self.store, record.name, branch=branch) as on:
                        self.chains[(record.name, branch)] = [info.id for info in on.log()]
        self._known: dict[tuple[str, str], Rows] = {}

    def rows(self, thread: str, commit: str) -> Rows:
        if (thread, commit) not in self._known:
            with weft.open(self.store, thread) as t:
                self._known[(thread, commit)] = t.compile(at=commit).to_dicts()
        return self._known[(thread, commit)]


@pytest.fixture(scope="module")
def truth(whole: Path) -> Iterator[Truth]:
    known = Truth(whole)
    yield known
    known.store.close()


def check(path: Path, truth: Truth, done: list[str]) -> int:
    """Compare a repaired store with the truth; returns how many commits its branches lack."""
    short = 0
    report = "\n".join(done)
    there = {record.name for record in weft.threads(path)}
    for (thread, branch), chain in truth.chains.items():
        if thread not in there:
            assert "lost" in report, (thread, report)
            short += len(chain)
            continue
        with weft.open(path, thread) as t:
            branches = t.branches()
        rest = f"{branch}-after-damage"
        if rest in branches:
            assert repr(rest) in report
            with weft.open(path, thread, branch=rest) as on:
                assert on.compile().to_dicts()
        head = branches.get(branch)
        if head is None:
            assert branch in report or "recovered" in report, (branch, report)
            short += len(chain)
            continue
        assert head in chain, (thread, branch)
        if head != chain[0]:
            assert repr(branch) in report, (thread, branch, report)
            assert head in report, (thread, branch, report)
            short += chain.index(head)
        with weft.open(path, thread, branch=branch) as on:
            compare(on.compile().to_dicts(), truth.rows(thread, head), report)
    return short


def compare(repaired: Rows, true: Rows, report: str) -> None:
    if "what it had replaced is shown again" in report:
        assert all(row in repaired for row in true)
        return
    assert len(repaired) == len(true)
    for here, there in zip(repaired, true, strict=True):
        if here != there:
            assert LINE in str(here)
            assert "entry " in report


@pytest.mark.parametrize("seed", [*range(SEEDS), *([] if LARGE else [89])])
def test_a_repaired_file_has_the_original_messages_or_a_prefix(
    seed: int, whole: Path, truth: Truth, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    path = tmp_path / "store.db"
    data = bytearray(whole.read_bytes())
    HARMS[seed % len(HARMS)](data, chance)
    path.write_bytes(bytes(data))
    try:
        before = fsck(path)
    except Damaged:
        before = None
    try:
        done, report = repair_store(path)
    except Damaged:  # the beginning of a file has only the roots of its tables
        assert HARMS[seed % len(HARMS)] is cut_off
        assert len(data) < 40 * PAGE
        assert path.read_bytes() == data
        return
    assert report.clean, (report.flaws, done)
    check(path, truth, done)
    assert fsck(path).clean
    assert repair_store(path)[0] == []
    if before is None or any(flaw.kind == "file" for flaw in before.flaws):
        assert "store.db.damaged-1" in done[0]
        assert len((tmp_path / "store.db.damaged-1").read_bytes()) >= len(data) - PAGE
    for record in weft.threads(path):
        with weft.open(path, record.name) as t:
            t.user("and on")
            t.search("parser")
    assert fsck(path).clean


def test_one_lost_page_in_a_plain_thread_loses_a_few_lines_at_most(tmp_path: Path) -> None:
    """Commits are rebuilt from the ids in an index; only the texts on a page of entries are
    lost."""
    path, copy = tmp_path / "plain.db", tmp_path / "copy.db"
    with weft.open(path) as t:
        for number in range(300):
            t.user(f"line {number} " + "with some words in it " * 4)
    data = path.read_bytes()
    for page in range(1, len(data) // PAGE, 1 if LARGE else 9):
        copy.write_bytes(data[: page * PAGE] + bytes(PAGE) + data[(page + 1) * PAGE :])
        done, report = repair_store(copy)
        assert report.clean, done
        with weft.open(copy) as t:
            texts = [message.text for message in t.compile().messages]
        assert len(texts) == 300, (page, done)
        assert texts.count(LINE) <= PAGE // 100, page
        copy.unlink()


def test_a_repaired_file_still_undoes_batches_as_one_step(tmp_path: Path) -> None:
    path = tmp_path / "weft.db"
    with weft.open(path) as thread:
        thread.user("before")
        for number in range(2):
            with thread.batch():
                thread.user(f"ask {number}")
                thread.assistant(f"answer {number}")
    with closing(sqlite3.connect(path)) as file:
        size = file.execute("PRAGMA page_size").fetchone()[0]
        sql = "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_commits_1'"
        root = file.execute(sql).fetchone()[0]
    data = bytearray(path.read_bytes())
    data[(root - 1) * size : root * size] = bytes(size)
    path.write_bytes(data)
    assert not fsck(path).clean
    repair_store(path)
    assert fsck(path).clean
    with weft.open(path) as thread:
        assert [thread.undo().steps for _ in range(3)] == [2, 2, 1]


def test_messages_after_the_damage_never_take_an_existing_name(tmp_path: Path) -> None:
    path, copy = tmp_path / "plain.db", tmp_path / "copy.db"
    with weft.open(path) as t:
        for number in range(150):
            t.user(f"line {number}", metadata={"n": number})
            if number == 20:
                t.branch("main-after-damage")
        t.branch("main-after-damage-2")
        t.delete_branch("main-after-damage-2")
        before = t.branches()
    reported: list[str] = []
    for page in range(1, path.stat().st_size // PAGE):
        shutil.copy(path, copy)
        break_page(copy, page)
        done, report = repair_store(copy)
        assert report.clean
        rests = {new: before[old] for old, new in re.findall(AFTER, "\n".join(done))}
        reported += rests
        with weft.open(copy) as t:
            after = t.branches()
        assert {name: after[name] for name in rests} == rests
        assert after.keys() - rests.keys() <= before.keys()
    assert "main-after-damage-3" in reported


HOLDER = """
import sys, weft
thread = weft.open(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def break_page(path: Path, page: int | None = None) -> bytes:
    """Overwrite a page whose loss SQLite itself reports: the root of the index of commit ids."""
    if page is None:
        db = sqlite3.connect(path)
        sql = "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_commits_1'"
        page = db.execute(sql).fetchone()[0] - 1
        db.close()
    data = bytearray(path.read_bytes())
    data[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
    path.write_bytes(bytes(data))
    return bytes(data)


def test_a_store_that_another_process_has_open_is_not_touched(whole: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(whole, tmp_path / "store.db"))
    data = break_page(path)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreError, match="is in use"):
            repair_store(path)
        assert path.read_bytes() == data
        assert not list(tmp_path.glob("*.damaged*"))
        assert holder.stdin is not None
        holder.stdin.close()
    assert repair_store(path)[1].clean


def test_a_store_that_this_process_has_open_is_not_touched(whole: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(whole, tmp_path / "store.db"))
    data = break_page(path)
    with weft.open(path), pytest.raises(StoreError, match="is in use"):
        repair_store(path)
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("padding", "share", "expected"),
    [(0, 0.97, ".repairing"), (3, 0.5, "cannot be kept")],
    ids=["no new file", "no copy of the old one"],
)
def test_a_full_disk_changes_nothing(
    padding: int, share: float, expected: str, whole: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copy(whole, tmp_path / "store.db"))
    data = break_page(path)[:-PAGE]
    data += bytes(padding * len(data))  # what is saved of it is small beside it
    path.write_bytes(data)
    child = os.fork()
    if child == 0:  # the limit cannot be lifted again, so a process of its own has it
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit = int(len(data) * share)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        try:
            repair_store(path)
        except StoreError as error:
            os._exit(0 if expected in str(error) else 3)
        os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert path.read_bytes() == data
    assert not list(tmp_path.glob("*.damaged*"))
    assert repair_store(path)[1].clean


@pytest.mark.parametrize("written", [0.01, 0.3, 0.9])
def test_an_interrupted_repair_starts_again(written: float, whole: Path, tmp_path: Path) -> None:
    """A power cut while the new bytes are written: the next repair reads the copy of the old."""
    path = Path(shutil.copy(whole, tmp_path / "store.db"))
    break_page(path)
    once = Path(shutil.copy(path, tmp_path / "once.db"))
    done, _ = repair_store(once)
    child = os.fork()
    if child == 0:  # no byte gets beyond a limit that cannot be lifted again
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with RepairLock(str(path)) as held:
            backup = f"{held.path}.damaged-1"
            Path(backup).write_bytes(path.read_bytes())
            limit = int(once.stat().st_size * written)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            try:
                held.write(str(once), backup)
            except OSError:
                os._exit(0)
        os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    with pytest.raises(Damaged, match="--repair"):
        weft.open(path)
    again, report = repair_store(path)
    assert report.clean
    assert again[1:] == done[1:]
    assert again[0] == f"the damaged file is kept as {f'{path}.damaged-1'!r}"
    left = sorted(file.name for file in tmp_path.glob("store.db*"))
    assert left == ["store.db", "store.db.damaged-1"]


def test_messages_only_in_the_wal_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with weft.open(path) as t:
        t.user("before")
    with weft.open(path) as t:
        for number in range(40):
            t.user(f"line {number}")
        data, log = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    for name, wal, entries in (("file", b"", 1), ("both", log, 41), ("cut", log[:-1], 40)):
        copy = tmp_path / f"{name}.db"
        copy.write_bytes(data)
        Path(f"{copy}-wal").write_bytes(wal)
        assert (name, salvage(str(copy), OBJECT_FORMAT, 1.0).entries) == (name, entries)


@pytest.mark.parametrize(
    "content",
    [b"just words\n" * 400, b"SQLite format 3\0" + b"x" * 5000, bytes(9000)],
    ids=["words", "a header and no more", "zeros"],
)
def test_a_file_that_was_never_a_store_is_unchanged(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(StoreError):
        repair_store(path)
    assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_the_database_of_another_program_is_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    db = sqlite3.connect(path)
    db.execute("create table notes (key integer primary key, a blob, b blob)")
    db.executemany("insert into notes (a, b) values (?, ?)", [(b"x" * 20, b"y")] * 500)
    db.commit()
    db.close()
    data = break_page(path, 2)
    with pytest.raises(StoreError):
        repair_store(path)
    assert path.read_bytes() == data


LOST = re.compile(r"(at least )?(\d+) commits are lost(?:.*; (\d+) numbers)?")
COUNT = 200
UNDONE = re.compile(r"(at least )?(\d+) operations cannot")


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7, 0.9])
def test_the_reported_losses_are_exact(share: float, tmp_path: Path) -> None:
    """Lost data without a trace cannot be counted; then the number is reported as a minimum."""
    path = tmp_path / "store.db"
    for name in ("one", "two"):
        with weft.open(path, name) as t:
            for number in range(COUNT):
                t.user(f"{name} {number} " + "words " * 20, metadata={"n": number})
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    reported = "\n".join(repair_store(path)[0])
    store = weft.store.open_store(path)
    count = sum(store.count(record.name) for record in store.threads())
    logged = sum(len(store.operations(r.name, limit=1000)) for r in store.threads())
    graves = sum(kind == "commit" for kind, _ in store.maintenance().tombstones())
    store.close()
    for pattern, lost in ((LOST, 2 * COUNT - count + graves), (UNDONE, 2 * COUNT - logged)):
        match = pattern.search(reported)
        least, number, *missing = match.groups() if match else (None, "0")
        assert int(number) == lost or (least and int(number) < lost), (reported, lost)
        assert not any(missing) or int(missing[0]) == lost


def test_the_command_lists_what_it_saved_and_lost(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(shutil.copy(whole, tmp_path / "store.db"))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    assert main(["fsck", "--store", str(path)]) == 1
    capsys.readouterr()
    assert main(["fsck", "--store", str(path), "--repair"]) == 0
    output = capsys.readouterr().out
    assert "store.db.damaged-1" in output
    assert "commits are lost" in output
    assert output.splitlines()[-1].endswith("clean")
    assert (tmp_path / "store.db.damaged-1").read_bytes() == data[: len(data) // 2]
    assert (path.stat().st_mode & 0o777, os.path.exists(f"{path}.repairing")) == (0o600, False)
    assert main(["fsck", "--store", str(path), "--repair", "--json"]) == 0
    assert len(list(tmp_path.glob("*.damaged-*"))) == 1


def test_forget_lists_the_copies_left_by_repairs(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They contain the old file's content, and only their owner may delete them."""
    path = Path(shutil.copy(whole, tmp_path / "store.db"))
    break_page(path)
    assert repair_store(path)[1].clean
    copy = f"{path}.damaged-1"
    words = ["forget", "about the parser", "--store", str(path)]
    assert main([*words, "--preview", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["copies"] == [copy]
    assert main(words) == 0
    assert repr(copy) in capsys.readouterr().err
    os.remove(copy)
    assert main(words) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("number", [0, 1])
def test_a_damaged_compaction_leaves_every_message_readable(number: int, tmp_path: Path) -> None:
    """Later compactions fold the summary of an earlier one, so they refer to its row."""
    path = tmp_path / "store.db"
    with weft.open(path) as t:
        t.system("be brief")
        for turn in range(30):
            t.user(f"question {turn} " + "about the parser " * 8)
            t.assistant(f"answer {turn} " + "it waits for a lock " * 12)
            if turn in (9, 19):
                t.compact(keep=4)
        true = t.compile().to_dicts()
    with closing(sqlite3.connect(path)) as db, db:
        sql = "SELECT key FROM commits WHERE kind = 'compact' ORDER BY key LIMIT 1 OFFSET ?"
        (key,) = db.execute(sql, (number,)).fetchone()
        db.execute("UPDATE commits SET data = ? WHERE key = ?", (b"{ruined", key))
    done, report = repair_store(path)
    assert report.clean
    assert any("what it had replaced is shown again" in line for line in done)
    with weft.open(path) as t:
        rows = t.compile().to_dicts()
        assert rows[0] == true[0]
        assert all(row in rows for row in true)
        assert len(rows) > len(true)
        t.user("goes on")
        t.compact(keep=4)
        assert t.compile().to_dicts()[-1]["content"] == "goes on"
    assert fsck(path).clean


def test_two_damaged_rewrites_do_not_stop_a_repair(tmp_path: Path) -> None:
    """After a damaged merge, the commits before the second one may not compile any more."""
    path = tmp_path / "store.db"
    with weft.open(path) as t:
        t.system("be brief")
        t.user("question")
        t.branch("side")
        t.switch("side")
        for turn in range(12):
            t.user(f"aside {turn} " + "about the parser " * 8)
        t.switch("main")
        t.user("on main")
        t.merge("side")
        t.compact(keep=2)  # its last folded row is one that the merge brought
        for turn in range(12):
            t.user(f"question {turn} " + "about the parser " * 8)
            t.assistant(f"answer {turn} " + "it waits for a lock " * 12)
            if turn == 10:
                t.compact(keep=3)
    with closing(sqlite3.connect(path)) as db, db:
        merged = "SELECT min(key) FROM commits WHERE kind = 'merge'"
        last = "SELECT max(key) FROM commits WHERE kind = 'compact'"
        sql = f"UPDATE commits SET data = ? WHERE key IN (({merged}), ({last}))"
        assert db.execute(sql, (b"{ruined",)).rowcount == 2
    done, report = repair_store(path)
    assert report.clean
    assert sum("loses its note" in line for line in done) == 2
    assert any(
        "branch 'main'" in line and "later commits need lost messages" in line for line in done
    )
    with weft.open(path) as t:
        assert set(t.branches()) == {"main", "side"}
        assert "on main" in {message.text for message in t.compile().messages}
        t.user("goes on")
        assert "aside 11" in t.compile("side").messages[-1].text
