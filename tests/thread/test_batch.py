"""Batches: one transaction each, and a nested one is taken back by itself."""

from collections.abc import Callable, Iterator

import pytest

import weft
from weft.store import MemoryStore, SqliteStore, Store, open_store
from weft.thread import Thread
from weft.thread.maintenance import fsck

BACKENDS: dict[str, Callable[[pytest.FixtureRequest], Store]] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": lambda request: SqliteStore(request.getfixturevalue("tmp_path") / "store.db"),
    "postgres": lambda request: open_store(request.getfixturevalue("postgres")),
}


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    opened = BACKENDS[request.param](request)
    yield opened
    assert fsck(opened).flaws == ()
    opened.close()


def said(thread: Thread, branch: str | None = None) -> list[str]:
    return [message.text for message in thread.compile(branch).messages]


def fresh(store: Store) -> list[str]:
    return said(weft.open(store))


def test_a_nested_batch_that_fails_leaves_the_outer(store: Store) -> None:
    t = weft.open(store)
    with t.batch():
        t.user("outer")
        with pytest.raises(KeyError), t.batch():  # noqa: PT012
            t.user("inner")
            t.assistant("inner too")
            assert said(t) == ["outer", "inner", "inner too"]
            raise KeyError
        assert said(t) == ["outer"]
        t.user("after")
    assert said(t) == fresh(store) == ["outer", "after"]


def test_a_nested_batch_takes_branch_switch_and_edits_back(store: Store) -> None:
    t = weft.open(store)
    first = t.user("first")
    with t.batch():
        with pytest.raises(KeyError), t.batch():  # noqa: PT012
            t.edit(first, "edited")
            t.branch("side")
            t.switch("side")
            t.user("on the side")
            t.tag("v1")
            raise KeyError
        assert t.current == "main"
        assert (list(t.branches()), t.tags()) == (["main"], {})
        t.branch("side")
        t.user("on main")
    assert said(t) == fresh(store) == ["first", "on main"]
    assert said(t, "side") == ["first"]
    assert weft.open(store).current == "main"


def test_a_nested_batch_that_succeeds_goes_with_the_outer(store: Store) -> None:
    t = weft.open(store)
    t.user("first")
    with pytest.raises(KeyError), t.batch():  # noqa: PT012
        with t.batch():
            t.user("inner")
        raise KeyError
    assert said(t) == fresh(store) == ["first"]
    with t.batch():
        with t.batch():
            t.user("inner")
        t.user("outer")
    assert said(t) == fresh(store) == ["first", "inner", "outer"]


def test_many_nested_batches_fail_in_turn(store: Store) -> None:
    t = weft.open(store)
    with t.batch():
        for number in range(20):
            try:
                with t.batch():
                    t.user(f"kept {number}")
                    with t.batch():
                        t.user(f"deep {number}")
                    if number % 3:
                        raise KeyError
            except KeyError:
                t.user(f"instead of {number}")
    expected: list[str] = []
    for number in range(20):
        whole = [f"kept {number}", f"deep {number}"]
        expected += [f"instead of {number}"] if number % 3 else whole
    assert said(t) == fresh(store) == expected


def test_a_refused_verb_inside_a_batch_leaves_the_rest(store: Store) -> None:
    t = weft.open(store)
    with t.batch():
        t.user("one")
        t.branch("side")
        with pytest.raises(weft.ThreadError):
            t.branch("side")
        with pytest.raises(weft.ThreadError):
            t.switch("nowhere")
        t.user("two")
        t.undo()
        with pytest.raises(weft.ThreadError):
            t.merge("nowhere")
        t.user("three")
    assert said(t) == fresh(store) == ["one", "three"]


def test_undo_knows_nothing_of_a_nested_batch_that_failed(store: Store) -> None:
    t = weft.open(store)
    t.user("one")
    with t.batch():
        t.user("two")
        with pytest.raises(KeyError), t.batch():  # noqa: PT012
            t.user("three")
            raise KeyError
    assert "two" in str(t.undo())
    assert "one" in str(t.undo())
