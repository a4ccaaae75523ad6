"""Regression tests for the library's public API."""

import asyncio
import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.errors import NotFound, StoreError, ThreadError, WeftError, WrongValue
from weft.store import Store, open_store
from weft.thread import fsck, gc


def texts(thread: weft.Thread, at: str | None = None) -> list[str]:
    return [row["content"] for row in thread.compile(at).to_dicts()]


def run(*words: str, input: str = "") -> "subprocess.CompletedProcess[str]":
    """The command `weft`, in a process of its own."""
    launch = "from weft.cli import entry; entry()"
    command = [sys.executable, "-c", launch, *words]
    return subprocess.run(
        command, input=input, capture_output=True, text=True, timeout=60, check=False
    )


# Hooks and budgets


def test_a_raising_after_hook_does_not_make_a_stored_commit_look_failed() -> None:
    t = weft.open()
    calls: list[str] = []

    def broken(_info: weft.CommitInfo) -> None:
        raise ValueError("disk full")

    t.after(broken)
    t.after(lambda info: calls.append(info.id))
    with pytest.warns(weft.HookWarning, match=r"broken.*ValueError: disk full") as warned:
        info = t.user("kept")
    assert texts(t) == ["kept"]
    assert calls == [info.id]
    assert [str(error) for error in info.hook_errors] == ["disk full"]
    assert len(warned) == 1


def test_a_raising_after_hook_does_not_roll_back_a_batch() -> None:
    t = weft.open()

    def broken(_info: weft.CommitInfo) -> None:
        raise ValueError("no")

    t.after(broken)
    with t.batch():
        for words in ("one", "two"):
            with pytest.warns(weft.HookWarning):
                t.user(words)
    assert texts(t) == ["one", "two"]


def test_a_commit_has_no_hook_errors_if_its_hooks_succeed() -> None:
    t = weft.open()
    t.after(lambda _: None)
    assert t.user("x").hook_errors == ()


@pytest.mark.parametrize("answer", [5, "text", {"note": "x"}, object(), True])
def test_a_hook_with_an_invalid_return_value_is_named(answer: Any) -> None:
    t = weft.open()

    def junk(_draft: weft.Draft) -> Any:
        return answer

    t.before(junk)
    with pytest.raises(WrongValue, match="junk"):
        t.user("x")
    assert t.head is None


@pytest.mark.parametrize(
    "answer",
    [
        weft.Draft("append", 5, (), None),  # type: ignore[arg-type]
        weft.Draft("append", None, ("text",), None),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_draft_is_a_weft_error(answer: weft.Draft) -> None:
    t = weft.open()

    def junk(_draft: weft.Draft) -> weft.Draft:
        return answer

    t.before(junk)
    with pytest.raises(WrongValue, match="junk"):
        t.user("x")


def test_a_hook_that_is_not_callable_is_refused_when_it_is_added() -> None:
    t = weft.open()
    for add in (t.before, t.after):
        with pytest.raises(WrongValue, match="function"):
            add("print")  # type: ignore[arg-type]


def test_hooks_can_be_listed_and_removed() -> None:
    t = weft.open()
    calls: list[str] = []

    @t.before
    def check(_draft: weft.Draft) -> None:
        calls.append("before")

    @t.after
    def tell(_info: weft.CommitInfo) -> None:
        calls.append("after")

    assert t.hooks == weft.Hooks(before=(check,), after=(tell,))
    t.remove_hook(check)
    t.user("x")
    assert calls == ["after"]
    t.remove_hook(tell)
    t.user("y")
    assert calls == ["after"]
    assert t.hooks == weft.Hooks()
    with pytest.raises(NotFound, match="check"):
        t.remove_hook(check)


def test_a_budget_can_be_read_changed_and_removed() -> None:
    t = weft.open(budget=weft.Budget(5))
    assert t.budget == weft.Budget(5)
    with pytest.raises(weft.BudgetExceeded):
        t.user("many words that are more than five tokens")
    t.budget = weft.Budget(500)
    t.user("many words that are more than five tokens")
    t.budget = None
    t.user("word " * 900)
    with pytest.raises(WrongValue, match="budget"):
        t.budget = "5"  # type: ignore[assignment]
    assert t.budget is None


# Undo


def turns() -> weft.Thread:
    t = weft.open()
    t.system("be brief")
    t.user("first")
    t.assistant("answer one")
    t.user("second")
    t.assistant("calling")
    t.tool_result("c1", "found")
    t.assistant("answer two")
    return t


def test_undo_and_redo_can_take_a_whole_turn() -> None:
    t = turns()
    before = texts(t)
    undone = t.undo(turn=True)
    assert (undone.verb, undone.steps) == ("turn", 4)
    assert undone.commit is not None
    assert undone.commit.text == "second"
    assert "second" in str(undone)
    assert undone.to_dict()["steps"] == 4
    assert texts(t) == ["be brief", "first", "answer one"]
    t.undo(turn=True)
    assert texts(t) == ["be brief"]
    redone = t.redo(turn=True)
    assert (redone.verb, redone.steps) == ("turn", 2)
    assert texts(t) == ["be brief", "first", "answer one"]
    t.redo(turn=True)
    assert texts(t) == before


def test_without_a_turn_nothing_is_undone() -> None:
    t = weft.open()
    t.system("be brief")
    with pytest.raises(ThreadError, match="turn"):
        t.undo(turn=True)
    assert texts(t) == ["be brief"]
    with pytest.raises(ThreadError, match="redo"):
        t.redo(turn=True)


def test_a_turn_can_be_undone_after_single_steps() -> None:
    t = turns()
    t.undo()
    t.undo(turn=True)
    assert texts(t) == ["be brief", "first", "answer one"]


def test_undoing_a_turn_after_a_pin_undoes_only_the_pin() -> None:
    t = turns()
    t.pin(t.compile().ids[1])
    assert t.undo(turn=True).verb == "annotate"
    assert len(texts(t)) == 7


def test_the_command_undoes_and_redoes_a_whole_turn(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    with weft.open(path) as t:
        t.user("question")
        t.assistant("answer")
    undone = run("undo", "--turn", "--store", path)
    assert undone.stdout.startswith("undid: turn ")
    assert "question" in undone.stdout
    assert (
        json.loads(run("redo", "--turn", "--store", path, "--json").stdout)["redid"]["steps"] == 2
    )


def test_chat_undoes_a_whole_turn_and_names_it(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    output = run("chat", "--store", path, input="hello there\n/undo\n/undo\n")
    assert "undone: turn hello there" in output.stdout
    assert "no turn to undo" in output.stdout
    with weft.open(path) as t:
        assert texts(t) == []


# Fork, clear, reset


def test_a_fork_is_a_separate_handle_on_a_new_branch() -> None:
    t = weft.open()
    t.user("shared")
    one, two = t.fork("one"), t.fork("two")
    one.user("mine")
    two.user("other")
    assert (t.current, one.current, two.current) == ("main", "one", "two")
    assert texts(t) == ["shared"]
    assert texts(one) == ["shared", "mine"]
    assert texts(two) == ["shared", "other"]
    one.close()
    t.user("still open")
    with pytest.raises(ThreadError, match="already exists"):
        t.fork("one")


def test_forks_can_be_used_concurrently() -> None:
    t = weft.open()
    t.user("shared")

    async def work(name: str) -> list[str]:
        mine = t.fork(name)
        for number in range(5):
            await asyncio.to_thread(mine.user, f"{name} {number}")
        return texts(mine)

    async def all() -> list[list[str]]:
        return await asyncio.gather(*(work(f"b{number}") for number in range(4)))

    for number, branch in enumerate(asyncio.run(all())):
        assert branch == ["shared", *(f"b{number} {place}" for place in range(5))]


def test_a_fork_begins_at_any_commit_and_keeps_hooks_and_budget() -> None:
    t = weft.open(budget=weft.Budget(1000))
    first = t.user("first")
    t.user("second")
    calls: list[str] = []
    t.after(lambda info: calls.append(info.text))
    mine = t.fork("early", at=first)
    assert texts(mine) == ["first"]
    assert mine.budget == t.budget
    mine.user("heard")
    assert calls == ["heard"]


def test_an_empty_thread_can_be_forked() -> None:
    t = weft.open()
    mine = t.fork("side")
    mine.user("x")
    assert t.head is None
    assert texts(mine) == ["x"]


def test_clear_empties_the_branch_and_undo_restores_it() -> None:
    t = weft.open()
    t.user("one")
    t.branch("side")
    t.user("two")
    preview = t.clear(preview=True)
    assert texts(t) == ["one", "two"]
    assert (preview.verb, preview.messages) == ("clear", ())
    cleared = t.clear()
    assert cleared is not None
    assert t.head is None
    assert texts(t) == []
    assert texts(t, "side") == ["one"]
    assert t.clear() is None
    assert str(t.undo()) == "clear 'main'"
    assert texts(t) == ["one", "two"]
    t.clear()
    t.user("anew")
    assert texts(t) == ["anew"]


def test_reset_to_nothing_suggests_an_alternative() -> None:
    t = weft.open()
    t.user("one")
    with pytest.raises(WeftError, match=r"clear\(\)"):
        t.reset(None)
    assert texts(t) == ["one"]


# Rename and delete

STORES: dict[str, Callable[[pytest.FixtureRequest], str | None]] = {
    "memory": lambda _: None,
    "sqlite": lambda request: str(request.getfixturevalue("tmp_path") / "a.db"),
    "postgres": lambda request: request.getfixturevalue("postgres"),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    opened = open_store(STORES[request.param](request))
    yield opened
    opened.close()


def names(store: Store) -> list[str]:
    return [record.name for record in weft.threads(store)]


def test_a_thread_can_be_renamed(store: Store) -> None:
    t = weft.open(store, "old", checkpoints=True)
    t.user("question")
    t.record_attempt(None, reason="timeout")
    t.rename("new")
    t.assistant("answer")
    assert (t.name, names(store)) == ("new", ["new"])
    again = weft.open(store, "new")
    assert len(again.attempts()) == 1
    assert [hit.text for hit in again.search("answer")] == ["answer"]
    again.undo()
    assert len(again.compile()) == 1
    weft.open(store, "other")
    with pytest.raises(ThreadError, match="already"):
        t.rename("other")
    for wrong in ("", " ", "two\nlines", 5):
        with pytest.raises(ThreadError):
            t.rename(wrong)  # type: ignore[arg-type]


def test_a_deleted_thread_is_gone_until_it_is_restored(store: Store) -> None:
    t = weft.open(store, "x", scope="s")
    t.user("secret word")
    t.delete()
    assert names(store) == []
    assert [record.name for record in weft.threads(store, deleted=True)] == ["x"]
    for verb in (lambda: t.user("more"), t.compile, lambda: t.search("secret")):
        with pytest.raises(StoreError, match="deleted"):
            verb()
    assert texts(weft.open(store, "x")) == []
    with pytest.raises(ThreadError, match="rename it"):
        weft.undelete(store, "x")
    weft.open(store, "x").delete()
    weft.undelete(store, "x").name  # noqa: B018 - the empty one, which was deleted last
    weft.open(store, "x").rename("empty")
    assert weft.undelete(store, "x").name == "x"
    assert texts(weft.open(store, "x")) == ["secret word"]
    with pytest.raises(NotFound):
        weft.undelete(store, "x")


def test_the_children_of_a_session_are_deleted_and_restored_with_it(store: Store) -> None:
    for name, parent in (("s", None), ("s.agent", "s"), ("s.agent.2", "s.agent"), ("other", None)):
        weft.open(store, name).user(f"in {name}")
        store.describe_thread(name, parent=parent)
    weft.open(store, "s.agent").delete()
    assert names(store) == ["s", "other"]
    weft.undelete(store, "s.agent")
    weft.open(store, "s").delete()
    assert names(store) == ["other"]
    assert weft.undelete(store, "s").name == "s"
    parents = {record.name: record.parent for record in weft.threads(store)}
    assert parents == {"s": None, "s.agent": "s", "s.agent.2": "s.agent", "other": None}
    weft.open(store, "s.agent").delete()
    weft.open(store, "s").delete()  # not at the same time: only "s" comes back
    weft.undelete(store, "s")
    assert names(store) == ["s", "other"]
    assert texts(weft.open(store, "s")) == ["in s"]


def test_gc_removes_deleted_threads_permanently(store: Store) -> None:
    t = weft.open(store, "x")
    t.user("only here")
    other = weft.open(store, "kept")
    other.user("stays")
    t.delete()
    assert gc(store, days=1).threads == 0
    assert gc(store, days=-1, preview=True).threads == 1
    swept = gc(store, days=-1)
    assert (swept.threads, swept.commits) == (1, 1)
    assert weft.threads(store, deleted=True) == []
    assert fsck(store).clean
    assert texts(weft.open(store, "kept")) == ["stays"]


def test_a_thread_that_another_process_deleted_is_not_written_to(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    with weft.open(path, "x") as mine, weft.open(path, "x") as other:
        mine.user("one")
        other.user("two")
        other.delete()
        with pytest.raises(StoreError, match="deleted"):
            mine.user("three")


def test_the_commands_rename_delete_and_restore(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    run("commit", "hello", "--store", path, "--thread", "a")
    assert "'a' is now 'b'" in run("rename", "b", "--thread", "a", "--store", path).stdout
    refused = run("delete", "b", "--store", path)
    assert refused.returncode == 1
    assert "--yes" in refused.stderr
    assert "undelete" in run("delete", "b", "--yes", "--store", path).stdout
    assert run("threads", "--store", path, "--json").stdout.strip() == "[]"
    listed = json.loads(run("threads", "--deleted", "--store", path, "--json").stdout)
    assert [row["name"] for row in listed] == ["b"]
    assert "hello" not in run("search", "hello", "--store", path).stdout
    assert json.loads(run("undelete", "b", "--store", path, "--json").stdout) == {"thread": "b"}
    assert "cleared" in run("clear", "--store", path).stdout
    assert json.loads(run("compile", "--store", path, "--json").stdout) == []
    run("undo", "--store", path)
    assert "hello" in run("compile", "--store", path).stdout


# Search


def conversation(store: Store, name: str = "a") -> weft.Thread:
    t = weft.open(store, name)
    t.user("the word apple in a question")
    t.assistant("the word apple in an answer")
    side = t.fork("side")
    side.user("the word apple aside")
    t.user("getUserById(42) and apple")
    return t


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ({}, 4),
        ({"role": "assistant"}, 1),
        ({"role": "user"}, 3),
        ({"branch": "main"}, 3),
        ({"branch": "side"}, 3),
        ({"branch": "side", "role": "user"}, 2),
        ({"since": "2020-01-01"}, 4),
        ({"since": datetime(2100, 1, 1, tzinfo=UTC)}, 0),
        ({"until": 0.0}, 0),
        ({"until": "2100-01-01T00:00:00"}, 4),
        ({"role": "user", "limit": 1}, 1),
    ],
)
def test_search_has_filters(store: Store, value: dict[str, Any], count: int) -> None:
    t = conversation(store)
    assert len(t.search("apple", **value)) == count
    hits = weft.search(store, "apple", **value)
    assert len(hits) == count
    assert {hit.thread for hit in hits} <= {"a"}


def test_search_by_regular_expression_finds_parts_of_words_and_undone_texts(store: Store) -> None:
    t = conversation(store)
    assert [hit.text for hit in t.search(r"get\w+ById\(\d+\)", regex=True)] == [
        "getUserById(42) and apple"
    ]
    t.undo()
    (hit,) = t.search("ById", regex=True)
    assert not hit.live
    with pytest.raises(WrongValue, match="regular expression"):
        t.search("(", regex=True)


def test_search_runs_over_all_threads(store: Store) -> None:
    conversation(store, "a")
    weft.open(store, "b").user("apple of b")
    gone = weft.open(store, "gone")
    gone.user("apple that is deleted")
    gone.delete()
    hits = weft.search(store, "apple")
    assert sorted({hit.thread for hit in hits}) == ["a", "b"]
    assert all(hit.created is not None for hit in hits)
    assert [hit.thread for hit in weft.search(store, "apple", thread="b")] == ["b"]
    assert {hit.thread for hit in weft.search(store, "apple", branch="side")} == {"a"}
    with pytest.raises(NotFound):
        weft.search(store, "apple", branch="nowhere")
    with pytest.raises(NotFound):
        weft.search(store, "apple", thread="nobody")


@pytest.mark.parametrize(
    "value",
    [{"role": "usr"}, {"role": 5}, {"since": "soon"}, {"until": [1]}, {"regex": 1}, {"branch": 3}],
)
def test_a_meaningless_filter_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(WrongValue, match=next(iter(value))):
        weft.open().search("x", **value)


def test_the_command_searches_all_threads(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    opened = open_store(path)
    conversation(opened, "a")
    conversation(opened, "b")
    opened.close()

    def found(*words: str) -> list[Any]:
        return json.loads(run("search", *words, "--store", path, "--json").stdout)

    assert {row["thread"] for row in found("apple")} == {"a", "b"}
    assert {row["thread"] for row in found("apple", "--thread", "b")} == {"b"}
    assert {row["role"] for row in found("apple", "--role", "assistant")} == {"assistant"}
    assert len(found("get.*Id", "--regex")) == 2
    assert found("apple", "--since", "2100-01-01") == []
    assert len(found("apple", "--branch", "side", "--until", "2100-01-01")) == 6
    assert " a live user: " in run("search", "apple", "--store", path).stdout


def test_a_valid_thread_gives_no_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        t = turns()
        t.after(lambda _: None)
        t.fork("x").user("y")


def test_open_refuses_a_branch_that_does_not_exist(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with weft.open(path, branch="dev") as t:  # a new thread may begin on any branch
        t.user("hello")
        t.branch("side")
    with pytest.raises(weft.NotFound, match=r"no branch 'typo' in this thread: .* dev, side"):
        weft.open(path, branch="typo")
    with weft.open(path, branch="side") as t:
        assert len(t.compile()) == 1
    with weft.open(path, "new", branch="main") as t:
        t.user("hello")
