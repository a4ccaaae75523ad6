"""Names are locked against other programs until they are released, or their program ends."""

import subprocess
import sys
from pathlib import Path

from weft.store import SqliteStore, Store, open_store

HOLDER = """
import sys, time
from weft.store import open_store
store = open_store(sys.argv[1])
held = store.try_lock("a")
print(held is not None, flush=True)
time.sleep(60)
"""


def check_another_program(address: str) -> None:
    command = [sys.executable, "-c", HOLDER, address]
    store = open_store(address)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        assert store.try_lock("a") is None
        other = store.try_lock("b")
        assert other is not None
        other()
        holder.kill()
    release = store.try_lock("a")
    assert release is not None
    release()
    store.close()


def test_a_name_in_sqlite_is_free_again_when_its_program_is_killed(tmp_path: Path) -> None:
    check_another_program(str(tmp_path / "weft.db"))


def test_a_name_in_postgresql_is_free_again_when_its_program_is_killed(postgres: str) -> None:
    check_another_program(postgres)


def test_a_name_is_locked_once_and_may_be_released_twice(tmp_path: Path) -> None:
    first, second = SqliteStore(tmp_path / "weft.db"), SqliteStore(tmp_path / "weft.db")
    release, other = first.try_lock("a"), first.try_lock("b")
    assert release is not None
    assert other is not None
    assert second.try_lock("a") is None
    release()
    release()
    again = second.try_lock("a")
    assert again is not None
    assert first.try_lock("a") is None
    assert second.try_lock("b") is None  # still held, though another name was released
    again()
    other()
    first.close()
    second.close()


def test_every_store_can_lock(store: Store) -> None:
    release = store.try_lock("a name\0 with any sign ü")
    assert release is not None
    release()
