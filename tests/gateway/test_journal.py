"""The journal keeps every acknowledged record in order, also if the file is damaged."""

import os
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from weft.errors import JournalError, JournalInUse, StoreError
from weft.gateway import Journal, leftover_journals, open_journal

FIRST_RECORD = 8192
FRAME_BYTES = 36
HEADER_OFFSETS = (0, 4096)
"""Of the file's format, which never changes."""
LARGE = bool(os.environ.get("WEFT_TORTURE"))
KILLS = 200 if LARGE else 4
EXAMPLES = 2000 if LARGE else 40
RESERVE = 16384

WRITER = """
import sys
from weft.gateway import Journal
with Journal(sys.argv[1], reserve=1 << 20) as journal:
    print("open", flush=True)
    number = int(sys.argv[2])
    while True:
        journal.append(b"%d " % number + b"x" * (number % 3000))
        print(number, flush=True)
        number += 1
"""

HOLDER = """
import sys
from weft.gateway import open_journal
journal = open_journal(sys.argv[1], reserve=4096)
journal.append(b"from the other process")
print("open", flush=True)
sys.stdin.read()
"""


def records(journal: Journal) -> list[bytes]:
    return [record for _, record in journal.read()]


def drain(journal: Journal) -> list[bytes]:
    """Read and drain everything; the records."""
    there: list[bytes] = []
    for position, record in journal.read():
        there.append(record)
        journal.mark_drained(position)
    return there


def written(path: Path, *payloads: bytes) -> list[int]:
    """Make a journal of these records; the offsets at which each begins, and the end."""
    with Journal(path, reserve=RESERVE) as journal:
        for payload in payloads:
            journal.append(payload)
        ends = [position.end for position, _ in journal.read()]
    return [FIRST_RECORD, *ends]


@contextmanager
def folder() -> Iterator[Path]:
    """Hypothesis runs one test function many times, so each example has a folder of its own."""
    with TemporaryDirectory() as name:
        yield Path(name)


def test_records_come_back_in_order_after_a_reopen(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path, reserve=RESERVE) as journal:
        assert journal.append(b"one") == 1
        assert journal.append_many([b"two", b""]) == 3
        assert records(journal) == [b"one", b"two", b""]
        assert (journal.pending, journal.damaged) == (3, 0)
        assert journal.pending_bytes == 3 * FRAME_BYTES + 6
    with Journal(path, reserve=RESERVE) as journal:
        assert records(journal) == [b"one", b"two", b""]
        assert journal.append(b"four") == 4


def test_drained_records_are_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path, reserve=RESERVE) as journal:
        journal.append_many([b"one", b"two", b"three"])
        (first, _), (second, _), _ = journal.read()
        journal.mark_drained(second)
        journal.mark_drained(first)  # never goes back
        assert records(journal) == [b"three"]
    with Journal(path, reserve=RESERVE) as journal:
        assert (records(journal), journal.pending, journal.damaged) == ([b"three"], 1, 0)


def test_an_empty_journal_restarts_and_keeps_its_space(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path, reserve=RESERVE) as journal:
        for turn in range(100):
            journal.append_many([b"a" * 5000, b"%d" % turn])
            assert drain(journal) == [b"a" * 5000, b"%d" % turn]
            assert journal.reserved == RESERVE
        assert path.stat().st_size == FIRST_RECORD + RESERVE
        assert path.stat().st_blocks * 512 >= RESERVE


def test_a_position_from_before_the_reset_drains_nothing(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal", reserve=RESERVE) as journal:
        journal.append_many([b"old", b"old"])
        positions = [position for position, _ in journal.read()]
        journal.mark_drained(positions[-1])
        journal.append_many([b"new", b"new"])
        for position in positions:
            journal.mark_drained(position)
        assert records(journal) == [b"new", b"new"]


def test_reading_sees_records_appended_meanwhile(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal", reserve=RESERVE) as journal:
        journal.append(b"one")
        reading = journal.read()
        assert next(reading)[1] == b"one"
        journal.append(b"two")
        assert [record for _, record in reading] == [b"two"]


def test_drained_content_is_removed_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path, reserve=RESERVE) as journal:
        journal.append(b"a secret")
        (position, _), *_ = journal.read()
        journal.append(b"stays")
        journal.mark_drained(position)
        assert b"a secret" not in path.read_bytes()
        assert b"stays" in path.read_bytes()


def test_the_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "state" / "journal"
    Journal(path, reserve=RESERVE).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    Journal(path, reserve=RESERVE).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"")
    (tmp_path / "journal").symlink_to(tmp_path / "target")
    with pytest.raises(JournalError):
        Journal(tmp_path / "journal", reserve=RESERVE)
    assert (tmp_path / "target").read_bytes() == b""


@pytest.mark.parametrize("content", [b"SQLite format 3\0" + bytes(9000), b"short"])
def test_a_file_of_another_program_is_unchanged(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(content)
    with pytest.raises(JournalError, match="not a journal"):
        Journal(path, reserve=RESERVE)
    assert path.read_bytes() == content
    with open_journal(path, reserve=RESERVE) as journal:
        journal.append(b"beside it")
    assert (tmp_path / "journal.2").exists()


def test_errors_are_store_errors_without_a_path(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError) as raised:
        Journal(tmp_path / "folder", reserve=RESERVE)
    assert str(tmp_path) not in str(raised.value)
    journal = Journal(tmp_path / "journal", reserve=RESERVE)
    journal.append(b"one")
    (position, _), *_ = journal.read()
    with pytest.raises(JournalError, match="not drained"):
        journal.remove()
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        journal.append(b"two")
    with pytest.raises(JournalError, match="closed"):
        journal.mark_drained(position)
    with pytest.raises(JournalError, match="closed"):
        next(journal.read())


@given(
    st.lists(
        st.one_of(
            st.lists(st.binary(max_size=300), min_size=1, max_size=4),  # append_many
            st.integers(min_value=1, max_value=8),  # drain so many
            st.none(),  # reopen
        ),
        max_size=25,
    )
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_it_is_a_queue_that_survives_reopening(steps: list[list[bytes] | int | None]) -> None:
    with folder() as place:
        expected: list[bytes] = []
        journal = Journal(place / "journal", reserve=1024)
        for step in steps:
            if step is None:
                journal.close()
                journal = Journal(place / "journal", reserve=1024)
            elif isinstance(step, list):
                journal.append_many(step)
                expected += step
            else:
                for (position, _), _ in zip(journal.read(), range(step), strict=False):
                    journal.mark_drained(position)
                expected = expected[step:]
            assert records(journal) == expected
            assert (journal.pending, journal.damaged) == (len(expected), 0)
        journal.close()


@pytest.mark.parametrize("rest", ["cut off", "zeros", "noise"])
def test_a_torn_write_is_ignored_at_every_byte(rest: str, tmp_path: Path) -> None:
    path, copy = tmp_path / "journal", tmp_path / "copy"
    *_, begin, end = written(path, b"one", b"two" * 40, b"the last one")
    whole = path.read_bytes()
    for at in range(begin, end):
        noise = random.Random(at).randbytes(len(whole) - at)
        tail = {"cut off": b"", "zeros": bytes(len(whole) - at), "noise": noise}[rest]
        copy.write_bytes(whole[:at] + tail)
        with Journal(copy, reserve=RESERVE) as journal:
            assert records(journal) == [b"one", b"two" * 40]
            assert journal.append(b"next") == 3
        with Journal(copy, reserve=RESERVE) as journal:
            assert records(journal) == [b"one", b"two" * 40, b"next"]


@given(st.integers(0, 1 << 30), st.integers(0, 7), st.lists(st.binary(max_size=80), min_size=1))
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_flipped_bit_costs_at_most_its_own_record(
    at: int, bit: int, payloads: list[bytes]
) -> None:
    with folder() as place:
        path = place / "journal"
        offsets = written(path, *payloads)
        whole = bytearray(path.read_bytes())
        at %= offsets[-1]
        whole[at] ^= 1 << bit
        path.write_bytes(whole)
        hit = next((n for n, end in enumerate(offsets[1:]) if offsets[n] <= at < end), None)
        left = [payload for number, payload in enumerate(payloads) if number != hit]
        with Journal(path, reserve=RESERVE) as journal:
            assert records(journal) == left
            last = hit == len(payloads) - 1  # looks like a torn tail
            assert journal.damaged == (0 if hit is None or last else 1)
            journal.append(b"next")
            assert drain(journal) == [*left, b"next"]
            assert journal.pending == 0


@given(st.data())
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_bytes_never_crash_it_and_invent_nothing(data: st.DataObject) -> None:
    with folder() as place:
        path = place / "journal"
        payloads = [b"%d:" % number + b"z" * number for number in range(12)]
        end = written(path, *payloads)[-1]
        whole = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(FIRST_RECORD, end))
            noise = data.draw(st.binary(max_size=200))
            whole[at : at + len(noise)] = noise
        path.write_bytes(whole)
        with Journal(path, reserve=RESERVE) as journal:
            there = records(journal)
            assert there == [payload for payload in payloads if payload in there]
            assert len(there) + journal.damaged <= len(payloads)
            journal.append(b"next")
            assert drain(journal) == [*there, b"next"]


@pytest.mark.parametrize("damaged", [HEADER_OFFSETS[:1], HEADER_OFFSETS[1:], HEADER_OFFSETS])
def test_damaged_headers_lose_no_record(damaged: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path, reserve=RESERVE) as journal:
        journal.append_many([b"old", b"old"])
        drain(journal)
        journal.append_many([b"one", b"two"])
    whole = bytearray(path.read_bytes())
    for offset in damaged:
        whole[offset + 20 : offset + 40] = b"x" * 20
    path.write_bytes(whole)
    with Journal(path, reserve=RESERVE) as journal:
        assert records(journal) == [b"one", b"two"]
        assert journal.append(b"three") == 5
    with Journal(path, reserve=RESERVE) as journal:
        assert records(journal) == [b"one", b"two", b"three"]


@pytest.mark.parametrize("size", [0, 100, 4096, FIRST_RECORD, FIRST_RECORD + 50])
def test_a_truncated_file_still_opens_and_accepts_records(size: int, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path, reserve=RESERVE) as journal:
        journal.append_many([b"one", b"two"])
        (position, _), *_ = journal.read()
        journal.mark_drained(position)
    os.truncate(path, size)
    for number in range(2):
        with Journal(path, reserve=RESERVE) as journal:
            assert records(journal) == [b"new"] * number
            journal.append(b"new")


def test_damage_to_an_open_file_does_not_block_draining(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path, reserve=RESERVE) as journal:
        journal.append_many([b"one", b"two", b"three"])
        with path.open("r+b") as file:
            file.seek(FIRST_RECORD + FRAME_BYTES + 3)
            file.write(b"x" * (2 * FRAME_BYTES + 8))
        assert drain(journal) == [b"one"]
        assert (journal.pending, journal.damaged) == (0, 2)
        journal.append(b"four")
        assert drain(journal) == [b"four"]


def test_a_payload_cannot_be_mistaken_for_a_record(tmp_path: Path) -> None:
    """A stranger's payload holds a whole journal; then its own frame is damaged."""
    inner, path = tmp_path / "inner", tmp_path / "journal"
    written(inner, b"forged", b"forged")
    *_, begin, end = written(path, b"one", inner.read_bytes(), b"three")
    with path.open("r+b") as file:
        file.seek(FIRST_RECORD + FRAME_BYTES + len(b"one") + 20)
        file.write(b"damaged")
    assert end > begin
    with Journal(path, reserve=RESERVE) as journal:
        assert (records(journal), journal.damaged) == ([b"one", b"three"], 1)


def test_concurrent_threads_keep_their_own_order(tmp_path: Path) -> None:
    numbers: list[int] = []
    with Journal(tmp_path / "journal", reserve=1024) as journal:

        def write(name: int) -> None:
            for number in range(50):
                numbers.append(journal.append(b"%d %d" % (name, number)))

        threads = [threading.Thread(target=write, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        there = [record.split() for record in records(journal)]
        assert sorted(numbers) == list(range(1, 401))
    for name in range(8):
        assert [int(number) for who, number in there if int(who) == name] == list(range(50))


def test_concurrent_append_and_drain_lose_and_duplicate_nothing(tmp_path: Path) -> None:
    there: list[bytes] = []
    with Journal(tmp_path / "journal", reserve=4096) as journal:

        def write() -> None:
            for number in range(300):
                journal.append(b"%d " % number * (number % 50 + 1))

        writer = threading.Thread(target=write)
        writer.start()
        while writer.is_alive() or journal.pending:
            there += drain(journal)
        writer.join()
        assert journal.damaged == 0
    assert [int(record.split()[0]) for record in there] == list(range(300))


def test_reading_keeps_one_record_in_memory(tmp_path: Path) -> None:
    count = 1000 if LARGE else 40
    with Journal(tmp_path / "journal") as journal:
        for _ in range(count):
            journal.append(bytes(1 << 20))
        tracemalloc.start()
        try:
            assert sum(len(record) for _, record in journal.read()) == count << 20
            assert tracemalloc.get_traced_memory()[1] < 6 << 20
        finally:
            tracemalloc.stop()


def test_a_killed_process_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    path, chance = tmp_path / "journal", random.Random(7)
    acknowledged, following = -1, 0
    for turn in range(KILLS):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(following)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with child:
            assert child.stdout is not None
            assert child.stdout.readline() == "open\n"
            assert child.stdout.readline() == f"{following}\n"
            time.sleep(chance.random() * 0.05)
            child.send_signal(signal.SIGKILL)
            lines = [line for line in child.stdout if line.endswith("\n")]
        acknowledged = max(acknowledged, following, *(int(line) for line in lines), 0)
        with Journal(path, reserve=1 << 20) as journal:
            there = [int(record.split()[0]) for record in records(journal)]
            assert journal.damaged == 0
            assert there == list(range(there[0], there[0] + len(there)))
            assert acknowledged <= there[-1] <= acknowledged + 1
            following = there[-1] + 1
            if turn % 3 == 2:
                drain(journal)


def test_a_full_disk_stops_appends_with_an_error_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    journal = Journal(path, reserve=65536)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FIRST_RECORD + 65536, before[1]))
    try:
        for _ in range(60):
            journal.append(b"x" * 1000)  # the reserved space
        with pytest.raises(JournalError, match="could not be written") as raised:
            journal.append_many([b"x" * 1000] * 10)
        assert str(tmp_path) not in str(raised.value)
        journal.append(b"y" * 20)  # a smaller one still fits
        there = records(journal)
        assert there == [b"x" * 1000] * 60 + [b"y" * 20]
        assert journal.pending == 61
        drain(journal)
        journal.append(b"x" * 60000)
        assert len(drain(journal)) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        journal.close()


def test_one_oversized_record_does_not_fail_its_neighbours(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    journal = Journal(tmp_path / "journal", reserve=65536)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FIRST_RECORD + 65536, before[1]))
    failed: list[int] = []
    try:

        def write(number: int) -> None:
            try:
                journal.append(b"z" * (100_000 if number % 5 == 0 else 100))
            except JournalError:
                failed.append(number)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(failed) == list(range(0, 40, 5))
        assert records(journal) == [b"z" * 100] * 32
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        journal.close()


@pytest.mark.skipif(not LARGE, reason="mounts a file system")
def test_the_reserved_space_is_usable_when_the_disk_is_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user cannot mount a file system")
    try:
        with Journal(disk / "journal", reserve=1 << 20) as journal:
            with suppress(OSError), (disk / "other").open("wb", buffering=0) as other:
                while True:
                    other.write(bytes(4096))
            assert shutil.disk_usage(disk).free == 0
            for _ in range(3):  # the space comes back each time
                for _ in range(1000):
                    journal.append(b"x" * 1000)
                with pytest.raises(JournalError):
                    journal.append(b"x" * 100_000)
                assert len(drain(journal)) == 1000
        with pytest.raises(JournalError, match="could not be opened"):
            Journal(disk / "second", reserve=1 << 20)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_two_processes_have_a_journal_each_and_one_adopts_the_others(tmp_path: Path) -> None:
    base = tmp_path / "journal"
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(base)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"open\n"
        with pytest.raises(JournalInUse):
            Journal(base, reserve=4096)
        mine = open_journal(base, reserve=4096)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["journal", "journal.2"]
        mine.append(b"mine")
        assert list(leftover_journals(base)) == []
        child.kill()
        child.wait()
    (left,) = leftover_journals(base)
    assert drain(left) == [b"from the other process"]
    left.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal.2"]
    assert records(mine) == [b"mine"]
    mine.close()


def test_empty_journals_of_dead_processes_are_removed(tmp_path: Path) -> None:
    base = tmp_path / "journal"
    opened = [open_journal(base, reserve=4096) for _ in range(3)]
    for journal in opened:
        journal.close()
    assert list(leftover_journals(base)) == []
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]


def test_a_removed_journal_is_not_written_to(tmp_path: Path) -> None:
    """Openers and removers race for one name: a record must never go to a deleted file."""
    path, counts = tmp_path / "journal", [0]

    def work() -> None:
        for number in range(60):
            try:
                journal = Journal(path, reserve=0)
            except JournalInUse:
                continue
            word = b"word-%d-%d" % (threading.get_ident(), number)
            journal.append(word)
            assert word in path.read_bytes()  # what is open is the file of this name
            drain(journal)
            counts[0] += 1
            journal.remove()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts[0] > 0
