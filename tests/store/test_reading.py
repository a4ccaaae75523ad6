"""Reading from a SQLite store while another thread of the process writes."""

import sqlite3
import threading
import time

import pytest

from weft.store import SqliteStore, open_store
from weft.thread import open as open_thread


@pytest.fixture
def store(tmp_path):
    opened = SqliteStore(tmp_path / "weft.db")
    with_words = open_thread(opened, "t")
    with_words.user("first")
    yield opened
    opened.close()


def read(store):
    """What another thread reads; fails if it has to wait for the writer."""
    rows = []

    def compile_thread():
        rows.extend(message.text for message in open_thread(store, "t").compile().messages)

    reader = threading.Thread(target=compile_thread)
    reader.start()
    reader.join(20)
    assert not reader.is_alive()
    return rows


def test_a_reader_sees_committed_data_while_another_thread_writes(store):
    with store.transaction():
        open_thread(store, "t").user("second")
        assert read(store) == ["first"]
        assert [m.text for m in open_thread(store, "t").compile().messages] == ["first", "second"]
    assert read(store) == ["first", "second"]


def test_a_reader_does_not_wait_for_a_blocked_writer(store, tmp_path):
    other = sqlite3.connect(tmp_path / "weft.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writer = threading.Thread(target=lambda: open_thread(store, "t").user("second"))
    writer.start()
    for _ in range(20):  # the writer soon waits inside the store
        assert read(store) == ["first"]
        time.sleep(0.01)
    assert writer.is_alive()
    other.execute("COMMIT")
    other.close()
    writer.join(20)
    assert read(store) == ["first", "second"]


def test_a_store_in_memory_has_one_connection():
    store = open_store("sqlite://:memory:")
    open_thread(store, "t").user("first")
    with store.transaction():
        open_thread(store, "t").user("second")
    assert read(store) == ["first", "second"]
    store.close()
