"""Each batch is one transaction, and a nested batch is rolled back alone."""

from collections.abc import Iterator

import pytest

import weft
from weft.store import MemoryStore, Store
from weft.thread import Thread, archive_bytes, fsck, import_bytes


@pytest.fixture
def store(store: Store) -> Iterator[Store]:
    yield store
    assert fsck(store).flaws == ()


def texts_of(thread: Thread, branch: str | None = None) -> list[str]:
    return [message.text for message in thread.compile(branch).messages]


def fresh(store: Store) -> list[str]:
    return texts_of(weft.open(store))


def test_a_failed_nested_batch_does_not_affect_the_outer_one(store: Store) -> None:
    t = weft.open(store)
    with t.batch():
        t.user("outer")
        with pytest.raises(KeyError), t.batch():  # noqa: PT012
            t.user("inner")
            t.assistant("inner too")
            assert texts_of(t) == ["outer", "inner", "inner too"]
            raise KeyError
        assert texts_of(t) == ["outer"]
        t.user("after")
    assert texts_of(t) == fresh(store) == ["outer", "after"]


def test_a_failed_nested_batch_rolls_back_branch_switch_and_edits(store: Store) -> None:
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
    assert texts_of(t) == fresh(store) == ["first", "on main"]
    assert texts_of(t, "side") == ["first"]
    assert weft.open(store).current == "main"


def test_a_successful_nested_batch_is_committed_with_the_outer_one(store: Store) -> None:
    t = weft.open(store)
    t.user("first")
    with pytest.raises(KeyError), t.batch():  # noqa: PT012
        with t.batch():
            t.user("inner")
        raise KeyError
    assert texts_of(t) == fresh(store) == ["first"]
    with t.batch():
        with t.batch():
            t.user("inner")
        t.user("outer")
    assert texts_of(t) == fresh(store) == ["first", "inner", "outer"]


def test_many_nested_batches_can_fail_in_turn(store: Store) -> None:
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
    assert texts_of(t) == fresh(store) == expected


def test_a_refused_operation_inside_a_batch_does_not_affect_the_rest(store: Store) -> None:
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
    assert texts_of(t) == fresh(store) == ["one", "three"]


def test_undo_ignores_a_failed_nested_batch(store: Store) -> None:
    t = weft.open(store)
    t.user("one")
    with t.batch():
        t.user("two")
        with pytest.raises(KeyError), t.batch():  # noqa: PT012
            t.user("three")
            raise KeyError
    assert "two" in str(t.undo())
    assert "one" in str(t.undo())


def three(t: Thread) -> None:
    with t.batch():
        for text in ("one", "two", "three"):
            t.user(text)


def test_undo_reverts_a_whole_batch(store: Store) -> None:
    t = weft.open(store)
    t.user("before")
    three(t)
    undone = t.undo()
    assert texts_of(t) == fresh(store) == ["before"]
    assert (undone.verb, undone.steps) == ("batch", 3)
    assert undone.commit is not None
    assert undone.commit.text == "one"
    assert str(undone).startswith("batch of 3 operations from ")
    again = weft.open(store).redo()
    assert (again.verb, again.steps, again.commit) == ("batch", 3, undone.commit)
    assert fresh(store) == ["before", "one", "two", "three"]
    for _ in range(2):  # as often as one likes, and from any handle
        weft.open(store).undo()
        assert fresh(store) == ["before"]
        weft.open(store).redo()
        assert fresh(store) == ["before", "one", "two", "three"]
    t.undo()
    t.undo()
    assert texts_of(t) == []


def test_consecutive_batches_are_undone_one_by_one(store: Store) -> None:
    t = weft.open(store)
    three(t)
    three(t)
    t.user("alone")
    assert [t.undo().steps for _ in range(3)] == [1, 3, 3]
    assert [t.redo().steps for _ in range(3)] == [3, 3, 1]
    assert len(texts_of(t)) == 7


def test_nested_batches_are_one_step(store: Store) -> None:
    t = weft.open(store)
    with t.batch():
        t.user("outer")
        with t.batch():
            t.user("inner")
        with pytest.raises(KeyError), t.batch():  # noqa: PT012
            t.user("lost")
            raise KeyError
        t.user("after")
    assert t.undo().steps == 3
    assert texts_of(t) == []


def test_a_batch_with_a_rolled_back_first_part_is_one_step(store: Store) -> None:
    t = weft.open(store)
    t.user("before")
    with t.batch():
        with pytest.raises(KeyError), t.batch():  # noqa: PT012
            three(t)
            raise KeyError
        t.user("one")
        t.user("two")
    assert t.undo().steps == 2
    assert texts_of(t) == ["before"]


def test_a_batch_that_switches_is_undone_with_its_branch(store: Store) -> None:
    t = weft.open(store)
    t.user("before")
    with t.batch():
        t.branch("side")
        t.switch("side")
        t.user("on the side")
    undone = t.undo()
    assert (undone.verb, undone.steps, t.current, list(t.branches())) == (
        "batch",
        3,
        "main",
        ["main"],
    )


def test_a_batch_that_creates_and_switches_a_branch_is_redone_completely(store: Store) -> None:
    t = weft.open(store)
    t.user("before")
    with t.batch():
        t.user("on main")
        t.branch("side")
        t.switch("side")
        t.user("one")
        t.user("two")
    for _ in range(3):
        assert (t.undo().steps, t.current, texts_of(t)) == (5, "main", ["before"])
        assert list(t.branches()) == ["main"]
        assert (t.redo().steps, t.current) == (5, "side")
        assert texts_of(t) == ["before", "on main", "one", "two"]
        assert texts_of(t, "main") == ["before", "on main"]
    with t.batch():
        t.tag("v1")
        t.switch("main")
        t.user("three")
        t.delete_branch("side")
    for _ in range(2):
        assert (t.undo().steps, t.current, sorted(t.branches())) == (4, "side", ["main", "side"])
        assert texts_of(t) == ["before", "on main", "one", "two"]
        assert (t.redo().steps, t.current, list(t.branches())) == (4, "main", ["main"])
        assert texts_of(t) == ["before", "on main", "three"]
    assert fresh(store) == ["before", "on main", "three"]


def test_undo_on_one_branch_keeps_what_a_batch_did_on_another(store: Store) -> None:
    t = weft.open(store)
    t.user("before")
    t.branch("side")
    with t.batch():
        t.user("one")
        t.user("two")
        t.switch("side")
        t.user("on the side")
        t.switch("main")
    other = weft.open(store, branch="main")
    assert other.undo().steps == 2
    assert (texts_of(other), texts_of(other, "side")) == (["before"], ["before", "on the side"])


def test_a_single_turn_of_a_batch_can_be_undone(store: Store) -> None:
    t = weft.open(store)
    with t.batch():
        for number in range(2):
            t.user(f"ask {number}")
            t.assistant(f"answer {number}")
    assert t.undo(turn=True).steps == 2
    assert texts_of(t) == ["ask 0", "answer 0"]
    assert t.undo().steps == 2
    assert texts_of(t) == []


def test_a_batch_is_one_step_after_a_restore(store: Store) -> None:
    t = weft.open(store)
    t.user("before")
    three(t)
    three(t)
    weft.open(store).undo()
    other = MemoryStore()
    import_bytes(other, archive_bytes(store, ["default"]))
    assert weft.open(other).redo().steps == 3
    assert weft.open(other).undo().steps == 3
    assert weft.open(other).undo().steps == 3
    assert fresh(other) == ["before"]
    back = MemoryStore()
    import_bytes(back, archive_bytes(other, ["default"]))
    assert weft.open(back).redo().steps == 3


def test_undo_of_a_long_batch_is_one_step(store: Store) -> None:
    t = weft.open(store)
    with t.batch():
        for number in range(300):
            t.user(f"{number}")
    assert t.undo().steps == 300
    assert texts_of(t) == []
    assert t.redo().steps == 300
    assert len(texts_of(t)) == 300
