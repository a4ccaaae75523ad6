"""A store under faults: kills, concurrent writers, a full disk, flipped bytes.

The counts are small; `make torture` sets `WEFT_TORTURE` for large ones. Its results are in
docs/scale.md.
"""

import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import weft
from weft.errors import StoreError
from weft.thread import fsck

LARGE = bool(os.environ.get("WEFT_TORTURE"))
KILLS = 300 if LARGE else 6
WRITERS, COMMITS = (8, 200) if LARGE else (4, 20)
FLIPS = 200 if LARGE else 12
WRITER = Path(__file__).parent / "writers.py"


def start(address: str, name: str, count: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(WRITER), address, name, str(count)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def stored_texts(address: str) -> list[str]:
    with weft.open(address) as thread:
        return [message.text for message in thread.compile().messages]


def test_a_killed_writer_loses_nothing_acknowledged(tmp_path: Path) -> None:
    chance = random.Random(4)
    address = str(tmp_path / "store.db")
    acknowledged: list[str] = []
    for run in range(KILLS):
        writer = start(address, f"run{run}", 100_000)
        assert writer.stdout is not None
        first = writer.stdout.readline().strip()
        assert first, f"run {run} said nothing"
        acknowledged.append(first)
        time.sleep(chance.random() * 0.15)
        writer.send_signal(signal.SIGKILL)
        with writer:
            lines = writer.stdout.readlines()  # what was said before the kill, the last cut short
        acknowledged += [line.strip() for line in lines if line.endswith("\n")]
    assert fsck(address).flaws == ()
    stored = stored_texts(address)
    assert len(stored) == len(set(stored))
    assert set(acknowledged) <= set(stored)


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_concurrent_writers_on_one_branch_lose_and_duplicate_nothing(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address = (
        str(tmp_path / "store.db") if backend == "sqlite" else request.getfixturevalue("postgres")
    )
    writers = [start(address, f"w{number}", COMMITS) for number in range(WRITERS)]
    expected: list[str] = []
    for writer in writers:
        out, err = writer.communicate()
        assert writer.returncode == 0, err
        expected += out.split()
    stored = stored_texts(address)
    assert sorted(stored) == sorted(expected)
    for number in range(WRITERS):  # each writer's own words stand in its own order
        mine = [text for text in stored if text.startswith(f"w{number}-") and text[-1] != "b"]
        assert mine == [f"w{number}-{place}" for place in range(COMMITS)]
    assert fsck(address).flaws == ()


def test_a_full_disk_is_a_clear_error_and_damages_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with weft.open(path) as thread:
        thread.user("before")
    child = os.fork()
    if child == 0:  # the limit cannot be lifted again, so a process of its own has it
        os._exit(_write_until_full(path))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert fsck(path).flaws == ()
    with weft.open(path) as thread:
        assert thread.compile().messages[0].text == "before"
        thread.user("after")
    assert stored_texts(str(path))[-1] == "after"


def _write_until_full(path: Path) -> int:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    thread = weft.open(path)
    written = 0
    try:
        for number in range(10_000):
            thread.user(f"{number} " + "x" * 500)
            written = number + 1
    except StoreError as error:
        stored = len(thread.compile().messages)
        return 0 if "failed" in str(error) and stored == written + 1 else 3
    return 2


def test_a_read_only_file_is_reported_and_unchanged() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "store.db"
        with weft.open(path) as thread:
            thread.user("kept")
        before = path.read_bytes()
        path.chmod(0o444)
        folder.chmod(0o555)
        child = os.fork()
        if child == 0:
            os._exit(_write_as_nobody(path))
        _, status = os.waitpid(child, 0)
        folder.chmod(0o700)
        assert os.waitstatus_to_exitcode(status) == 0
        assert path.read_bytes() == before
        path.chmod(0o600)
        assert fsck(path).flaws == ()
        assert stored_texts(str(path)) == ["kept"]


def _write_as_nobody(path: Path) -> int:
    if os.geteuid() == 0:  # root may write anything
        os.setgid(65534)
        os.setuid(65534)
    try:
        weft.open(path).user("more")
    except StoreError as error:
        return 0 if "store.db" in str(error) else 3
    return 2


def test_a_flipped_byte_in_any_object_is_detected(tmp_path: Path) -> None:
    """Every table's every column, one flipped bit at a time, in rows taken by chance."""
    chance = random.Random(7)
    path = tmp_path / "store.db"
    with weft.open(path) as thread:
        for number in range(30):
            thread.user(f"text {number}")
        thread.edit(thread.compile().ids[3], "other words")
    whole = path.read_bytes()
    for flip in range(FLIPS):
        path.write_bytes(whole)
        table = chance.choice(["entry", "commits"])
        with sqlite3.connect(path) as db:
            key, data = chance.choice(db.execute(f"SELECT key, data FROM {table}").fetchall())
            place, bit = chance.randrange(len(data)), 1 << chance.randrange(8)
            flipped = data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]
            db.execute(f"UPDATE {table} SET data = ? WHERE key = ?", (flipped, key))
            (id,) = db.execute(f"SELECT id FROM {table} WHERE key = ?", (key,)).fetchone()
        db.close()
        named = {flaw.name for flaw in fsck(path).flaws}
        assert id.hex() in named, (flip, table, key)
        for leftover in tmp_path.glob("store.db-*"):
            leftover.unlink()
