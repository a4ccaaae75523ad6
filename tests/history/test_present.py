"""A cold compile reads only the messages that are still there, and equals the one from scratch."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import weft
from history.test_partial_compile import VERBS, _play
from laws.history_machine import same
from weft.errors import Damaged
from weft.history import View, compile_present
from weft.ids import Id
from weft.model import Message, Origin, Text, Thinking
from weft.store import SqliteStore, Step, Store
from weft.thread import forget, gc


def say(t: weft.Thread, count: int) -> None:
    for number in range(count):
        (t.assistant if number % 2 else t.user)(f"message {number} of {count}")


def line(t: weft.Thread, number: int) -> str:
    return t.compile().ids[number]


def think(t: weft.Thread, signature: str) -> None:
    blocks = (Thinking("hm", signature), Text("so it is"))
    t.commit_message(Message("assistant", blocks, origin=Origin("anthropic")))


def head_of(t: weft.Thread) -> Id:
    head = t.store.read_ref(t.name, t.current)
    assert head is not None
    return head


def checked(t: weft.Thread) -> bool:
    """Whether the head is compiled without the dropped messages; if so, it must be equal, and so
    must all that follows from each earlier commit."""
    chain = t.store.walk(t.name, head_of(t))
    whole = View().extend(chain)
    present = None
    for number, step in enumerate(chain):
        present = compile_present(t.store, t.name, step.commit.id, 0)
        if present is not None:
            assert same(present, View().extend(chain[: number + 1]))
            assert same(present.extend(chain[number + 1 :]), whole)
            one_by_one = present
            for later in chain[number + 1 :]:
                one_by_one = one_by_one.extend([later])
            assert same(one_by_one, whole)
    return present is not None


def compacted(store: Store) -> weft.Thread:
    t = weft.open(store)
    t.system("be brief")
    say(t, 9)
    t.pin(line(t, 3))
    t.compact(keep=3, summary="what was said")
    say(t, 4)
    return t


def revert_compaction(t: weft.Thread) -> None:
    (commit,) = [info for info in t.log() if info.kind == "compact"]
    t.revert(commit.id)


def merge_older_branch(t: weft.Thread, settle: Callable[[weft.Thread], object]) -> None:
    """A branch from before the compaction comes home."""
    before = next(info for info in t.log() if info.kind == "annotate")
    t.branch("older", before.id)
    t.switch("older")
    t.user("said on the older branch")
    t.switch("main")
    settle(t)


def edit_and_revert(t: weft.Thread) -> None:
    commit = t.edit(line(t, -1), "said otherwise")
    t.revert(commit.id)


ONCE: dict[str, tuple[Callable[[weft.Thread], object], bool]] = {
    "nothing more": (lambda _: None, True),
    "messages": (lambda t: say(t, 5), True),
    "an edit": (lambda t: t.edit(line(t, -1), "otherwise"), True),
    "an edit of the summary": (lambda t: t.edit(line(t, 2), "otherwise"), True),
    "an edit and its revert": (edit_and_revert, True),
    "a skipped message": (lambda t: t.skip(line(t, -2)), True),
    "a pinned message": (lambda t: t.pin(line(t, -2)), True),
    "a hidden kind": (lambda t: t.commit_message(Message("assistant", (Text("x"),))), True),
    "tools": (lambda t: t.setup(tools=[{"name": "f", "parameters": {"type": "object"}}]), True),
    "a note": (lambda t: t.note(line(t, -1), "a note"), True),
    "a second compaction": (lambda t: t.compact(keep=2, summary="shorter"), True),
    "undo": (lambda t: t.undo(), True),
    "the old messages again": (revert_compaction, False),
    "the old messages again, then folded": (
        lambda t: (revert_compaction(t), t.compact(keep=2, summary="again")),
        True,
    ),
    "an older branch, merged": (
        lambda t: merge_older_branch(t, lambda t: t.merge("older", "ours")),
        False,
    ),
    "an older branch, rebased": (
        lambda t: merge_older_branch(
            t, lambda t: (t.switch("older"), t.rebase("main", strategy="ours"))
        ),
        False,
    ),
    "an older message, picked": (
        lambda t: merge_older_branch(t, lambda t: t.cherry_pick("older", strategy="ours")),
        False,
    ),
    "new thinking": (lambda t: think(t, "sig1"), True),
    "new thinking, then an edit before it": (
        lambda t: (think(t, "sig1"), t.edit(line(t, -2), "otherwise")),
        True,
    ),
    "new thinking, then an edit and its revert": (
        lambda t: (say(t, 1), think(t, "sig1"), t.edit(line(t, -2), "otherwise"), t.undo()),
        True,
    ),
    "thinking that the second compaction keeps": (
        lambda t: (
            say(t, 2),
            think(t, "s1"),
            say(t, 2),
            think(t, "s2"),
            say(t, 2),
            t.compact(keep=5, summary="thought"),
            say(t, 1),
            think(t, "s3"),
        ),
        True,
    ),
    "thinking from before every compaction": (
        lambda t: (
            revert_compaction(t),
            t.pin(line(t, 2)),
            think(t, "s1"),
            t.pin(line(t, -1)),
            say(t, 3),
            t.compact(keep=1, summary="all"),
        ),
        False,
    ),
    "new thinking, then folded": (
        lambda t: (think(t, "sig1"), say(t, 4), t.compact(keep=1, summary="thought")),
        True,
    ),
}


@pytest.mark.parametrize("name", ONCE)
def test_what_follows_a_compaction_equals_the_compile_from_scratch(store: Store, name: str) -> None:
    later, is_present = ONCE[name]
    t = compacted(store)
    later(t)
    assert checked(t) is is_present


def test_thinking_that_is_restored_is_valid_where_it_was_signed(store: Store) -> None:
    """The cold view has not read the thinking; a revert makes its signature valid again."""
    t = weft.open(store)
    t.user("why?")
    think(t, "sig1")
    say(t, 4)
    t.compact(keep=1, summary="thought")
    cold = compile_present(store, t.name, head_of(t), 0)
    assert cold is not None
    revert_compaction(t)
    chain = store.walk(t.name, head_of(t))
    after = cold.extend(chain[-1:])
    assert after.stale_signatures() == frozenset()
    assert same(after, View().extend(chain))


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([*sorted(VERBS), "compact", "say"]), st.integers(0, 30)),
        max_size=14,
    )
)
def test_any_operations_equal_the_compile_from_scratch(steps: list[tuple[str, int]]) -> None:
    t, _, _ = _play(steps)
    checked(t)


class CountingStore(SqliteStore):
    """Counts the commits that were read along a branch."""

    steps = 0

    def walk(self, *args: Any, **options: Any) -> list[Step]:
        steps = super().walk(*args, **options)
        self.steps += len(steps)
        return steps


def long_thread(store: Store, compactions: int = 10, messages: int = 200) -> weft.Thread:
    t = weft.open(store)
    for number in range(compactions):
        with t.batch():
            say(t, messages)
        t.compact(keep=20, summary=f"summary {number}")
    say(t, 22)
    return t


def test_a_cold_compile_reads_what_is_present(tmp_path: Path) -> None:
    t = long_thread(CountingStore(tmp_path / "a.db"))
    fresh = CountingStore(tmp_path / "a.db")
    compiled = weft.open(fresh).compile()
    assert compiled.rows == t.compile().rows
    assert compiled.tokens == t.compile().tokens
    assert fresh.steps < 100
    t.close()
    fresh.close()


def test_a_file_of_an_older_version_profits_at_once(tmp_path: Path) -> None:
    """Nothing is stored beside the commits but an index, which opening the file adds."""
    t = long_thread(SqliteStore(tmp_path / "a.db"))
    rows = t.compile().rows
    t.close()
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        database.execute("DROP INDEX commits_rewrite")
        database.execute("PRAGMA user_version = 14")
    fresh = CountingStore(tmp_path / "a.db")
    assert weft.open(fresh).compile().rows == rows
    assert fresh.steps < 100
    fresh.close()


def test_forgotten_text_does_not_come_back(store: Store) -> None:
    t = weft.open(store)
    say(t, 4)
    t.user("the secret is plum")
    say(t, 4)
    t.compact(keep=3, summary="what was said")
    t.user("the other secret is pear")
    t.assistant("noted")
    t.compact(keep=2, summary="shorter")
    forget(store, "secret")
    again = weft.open(store)
    assert checked(again)
    assert "secret" not in again.compile().to_text()


def test_what_gc_deletes_is_not_needed(store: Store) -> None:
    t = compacted(store)
    t.branch("aside")
    t.switch("aside")
    say(t, 3)
    t.compact(keep=2, summary="aside")
    t.switch("main")
    rows = t.compile().rows
    t.delete_branch("aside")
    gc(store, days=-1)
    assert checked(t)
    assert weft.open(store).compile().rows == rows


DAMAGED = {
    "a dropped message": ("UPDATE entry SET data = ? WHERE key = 3", True),
    "a kept message": (
        "UPDATE entry SET data = ? WHERE key = (SELECT max(entry) FROM commits)",
        False,
    ),
    "a compaction": ("UPDATE commits SET data = ? WHERE kind = 'compact'", False),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_in_what_is_present_is_reported(tmp_path: Path, name: str) -> None:
    sql, is_readable = DAMAGED[name]
    t = compacted(SqliteStore(tmp_path / "a.db"))
    rows, head = t.compile().rows, head_of(t)
    t.close()
    with closing(sqlite3.connect(tmp_path / "a.db")) as database, database:
        database.execute(sql, (b"\xffno json",))
    store = SqliteStore(tmp_path / "a.db")
    present = compile_present(store, "default", head, 0)
    if is_readable:
        assert present is not None
        assert tuple(present.rows) == rows
    else:
        assert present is None
        with pytest.raises(Damaged):
            weft.open(store).compile()
    store.close()
