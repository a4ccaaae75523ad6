"""`gc` beside writers: other processes go on, and nothing that they write is removed."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import weft
from weft.store import Store
from weft.thread import fsck, gc

WRITER = """
import sys, weft
with weft.open(sys.argv[1], "busy") as t:
    print("ready", flush=True)
    for number in range(300):
        t.user(f"kept {number}")
        if number % 3 == 0:
            t.user(f"taken back {number}")
            t.undo()
        if number % 50 == 0:
            side = weft.open(t.store, f"side {number}")
            side.user(f"in a deleted thread {number}")
            side.delete()
"""


def test_gc_removes_nothing_that_another_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "weft.db"
    weft.open(path, "busy").close()
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        while writer.poll() is None:
            gc(path, days=-1)
    assert writer.returncode == 0
    gc(path, days=-1)
    assert fsck(path).flaws == ()
    with weft.open(path, "busy") as t:
        assert [message.text for message in t.compile().messages] == [
            f"kept {number}" for number in range(300)
        ]
        assert t.search("taken") == []
        assert len(t.search("kept", 400)) == 300
    assert [record.name for record in weft.threads(path, deleted=True)] == []


def test_gc_reports_its_progress(store: Store) -> None:
    for number in range(5):
        weft.open(store, f"t{number}").user("hello")
    steps: list[tuple[int, int]] = []
    gc(store, days=-1, progress=lambda done, total: steps.append((done, total)))
    assert steps[-1] == (5, 5)
    assert all(before < after for before, after in pairwise(steps))


def test_removed_text_is_not_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "weft.db"
    with weft.open(path) as t:
        t.user("stays")
        for number in range(200):
            t.user(f"a secret of some length {number} " * 30)
        t.reset(t.log()[-1].id)
    size = path.stat().st_size
    assert gc(path, days=-1).commits == 200
    assert b"a secret of some length" not in path.read_bytes()
    gc(path, days=-1, shrink=True)
    assert path.stat().st_size < size / 2
    assert fsck(path).flaws == ()


def test_a_long_thread_is_removed_in_parts(store: Store) -> None:
    t = weft.open(store)
    with t.batch():
        for number in range(1_200):
            t.user(f"message {number}")
    t.reset(t.log()[-1].id)
    swept = gc(store, days=-1)
    assert (swept.commits, swept.entries) == (1_199, 1_199)
    assert [message.text for message in t.compile().messages] == ["message 0"]
    t.user("and on")
    assert fsck(store).flaws == ()
