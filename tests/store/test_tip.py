"""A writer that remembers tips, threads and links still notices other writers."""

from contextlib import suppress
from pathlib import Path

import pytest

import weft
from weft.errors import RefMoved
from weft.ids import object_id
from weft.store import CommitRecord, Landing, SqliteStore
from weft.thread import fsck, gc


def landing(name: str, old: str | None) -> Landing:
    id, entry = (object_id(kind, name.encode()) for kind in ("commit", "entry"))
    parent = None if old is None else object_id("commit", old.encode())
    parents = () if parent is None else (parent,)
    commit = CommitRecord(id, parents, "append", (entry,), b"{}", 1.0)
    return Landing("append", "main", parent, id, 1.0, ((entry, name.encode()),), (commit,))


def test_a_ref_moved_by_another_connection_is_noticed(tmp_path: Path) -> None:
    one, other = SqliteStore(tmp_path / "a.db"), SqliteStore(tmp_path / "a.db")
    one.ensure_thread("t", created=1.0)
    one.land("t", landing("a", None))
    one.land("t", landing("b", "a"))
    other.land("t", landing("c", "b"))
    with pytest.raises(RefMoved):
        one.land("t", landing("d", "b"))
    one.land("t", landing("d", "c"))
    with pytest.raises(RefMoved), one.transaction():
        one.land("t", landing("e", "c"))
    with one.transaction():
        for name, old in ("ed", "fe", "gf"):
            one.land("t", landing(name, old))
    contents = [step.contents[0] for step in other.walk("t", object_id("commit", b"g"))]
    assert contents == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
    one.close()
    other.close()


def test_a_branch_extended_by_another_handle_is_noticed(tmp_path: Path) -> None:
    """The cached branch has not moved, but a child of its head exists already."""
    one, other = weft.open(tmp_path / "a.db"), weft.open(tmp_path / "a.db")
    one.user("a")
    other.branch("side")
    other.switch("side")
    other.user("there")
    with one.batch():
        one.user("here")
        one.user("and here")
    assert [m.text for m in one.compile().messages] == ["a", "here", "and here"]
    assert [m.text for m in other.compile().messages] == ["a", "there"]
    assert fsck(one.store).flaws == ()
    one.close()
    other.close()


def test_a_reused_key_is_another_commit(tmp_path: Path) -> None:
    one, other = weft.open(tmp_path / "a.db"), weft.open(tmp_path / "a.db")
    one.user("a")
    one.user("gone")
    other.undo()
    gc(other.store, days=-1)
    other.user("instead")
    one.user("b")
    assert [m.text for m in one.compile().messages] == ["a", "instead", "b"]
    assert fsck(one.store).flaws == ()
    one.close()
    other.close()


def test_equal_messages_in_one_batch_are_one_commit(tmp_path: Path) -> None:
    t = weft.open(tmp_path / "a.db")
    with t.batch():
        t.user("a")
        first = t.user("b")
        t.undo()
        assert t.user("b").id == first.id
        t.user("c")
        t.branch("side")
        t.user("d")
        t.switch("side")
        t.user("d")
        t.user("e")
    assert [m.text for m in t.compile().messages] == ["a", "b", "c", "d", "e"]
    t.switch("main")
    assert [m.text for m in t.compile().messages] == ["a", "b", "c", "d"]
    assert t.store.count("default") == 5
    assert fsck(t.store).flaws == ()
    t.close()


def test_threads_that_are_written_in_turn_keep_their_own_tips(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    names = ("one", "two", "three")
    for name in names:
        store.ensure_thread(name, created=1.0)
    for round in range(3):
        with store.transaction():
            for number in range(4):
                for name in names:
                    turn = 4 * round + number
                    old = f"{name}{turn - 1}" if turn else None
                    store.land(name, landing(f"{name}{turn}", old))
                    head = object_id("commit", f"{name}{turn}".encode())
                    store.add_links(name, [(b"%d" % turn, head)])
                    assert store.read_ref(name, "main") == head
    for name in names:
        head = store.read_ref(name, "main")
        assert head is not None
        contents = [step.contents[0].decode() for step in store.walk(name, head)]
        assert contents == [f"{name}{turn}" for turn in range(12)]
        assert len(store.operations(name)) == 12
        heads = {link.thread: link.commit for link in store.find_links([b"11"])}
        assert heads[name] == head
    store.close()


def test_a_thread_and_links_changed_by_another_connection_are_read_again(tmp_path: Path) -> None:
    one, other = SqliteStore(tmp_path / "a.db"), SqliteStore(tmp_path / "a.db")
    one.ensure_thread("t", created=1.0)
    one.ensure_thread("u", created=1.0)
    head, second = (object_id("commit", name) for name in (b"a", b"b"))
    with one.transaction():
        one.land("t", landing("a", None))
        one.land("u", landing("b", None))
        one.add_links("t", [(b"key", head)])
        assert one.read_thread("t") is not None
        assert [link.thread for link in one.find_links([b"key"])] == ["t"]
        assert [link.thread for link in one.only_links([b"key"])] == ["t"]
        assert not one.maintenance().has_tombstones()
    other.rename_thread("t", "renamed")
    other.describe_thread("u", title="title")
    other.add_links("u", [(b"key", second)])
    other.maintenance().write_tombstone("entry", b"e" * 20, b"", "forgotten", 1.0)
    with one.transaction():
        assert one.read_thread("t") is None
        record = one.read_thread("u")
        assert record is not None
        assert record.title == "title"
        assert [link.thread for link in one.find_links([b"key"])] == ["u", "renamed"]
        assert one.only_links([b"key"]) == []
        assert one.maintenance().has_tombstones()
        one.drop_links("u", [(b"key", second)])
        assert [link.thread for link in one.find_links([b"key"])] == ["renamed"]
        one.rename_thread("renamed", "again")
        assert [link.thread for link in one.find_links([b"key"])] == ["again"]
    one.close()
    other.close()


def test_nothing_is_remembered_from_a_transaction_that_was_rolled_back(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    store.ensure_thread("t", created=1.0)
    head = object_id("commit", b"a")
    with store.transaction():
        store.land("t", landing("a", None))
        store.find_links([b"key"])
        with suppress(ZeroDivisionError), store.transaction():
            store.land("t", landing("b", "a"))
            store.add_links("t", [(b"key", object_id("commit", b"b"))])
            store.ensure_thread("new", created=1.0)
            assert store.read_thread("new") is not None
            assert len(store.find_links([b"key"])) == 1
            raise ZeroDivisionError
        assert store.read_ref("t", "main") == head
        assert store.read_thread("new") is None
        assert store.find_links([b"key"]) == []
        store.land("t", landing("c", "a"))
    with suppress(ZeroDivisionError), store.transaction():
        store.land("t", landing("d", "c"))
        raise ZeroDivisionError
    with store.transaction():
        assert store.read_ref("t", "main") == object_id("commit", b"c")
        store.land("t", landing("d", "c"))
    contents = [step.contents[0] for step in store.walk("t", object_id("commit", b"d"))]
    assert contents == [b"a", b"c", b"d"]
    store.close()
