"""A writer that caches the tip of a branch still notices other writers."""

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
