"""Undo and redo belong to a branch and never revert other people's work."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import weft
from servers import post
from serving import serving
from weft.store import SqliteStore, Store, open_store
from weft.thread import Thread, fsck


@pytest.fixture
def store(store: Store) -> Iterator[Store]:
    yield store
    assert fsck(store).flaws == ()


def texts_of(thread: Thread, branch: str | None = None) -> list[str]:
    return [message.text for message in thread.compile(branch).messages]


def on(store: Store, branch: str) -> Thread:
    return weft.open(store, branch=branch)


def test_undo_does_not_change_other_branches(store: Store) -> None:
    a = weft.open(store)
    a.user("1")
    a.branch("x")
    b = on(store, "x")
    mine = a.user("mine on main")
    b.user("agent on x")
    undone = a.undo()
    assert (texts_of(a), texts_of(b)) == (["1"], ["1", "agent on x"])
    assert (undone.verb, undone.ref, undone.commit) == ("append", "main", mine)
    assert undone.head == a.head
    assert "mine on main" in str(undone)
    redone = a.redo()
    assert (redone.verb, redone.commit, redone.head) == ("append", mine, mine)
    assert (texts_of(a), texts_of(b)) == (["1", "mine on main"], ["1", "agent on x"])


def test_both_sides_undo_and_redo_independently(store: Store) -> None:
    a = weft.open(store)
    a.user("1")
    a.branch("x")
    b = on(store, "x")
    for number in range(3):
        a.user(f"m{number}")
        b.user(f"x{number}")
    a.undo()
    b.undo()
    b.undo()
    a.undo()
    assert (texts_of(a), texts_of(b)) == (["1", "m0"], ["1", "x0"])
    b.redo()
    a.redo()
    a.redo()
    assert (texts_of(a), texts_of(b)) == (["1", "m0", "m1", "m2"], ["1", "x0", "x1"])
    with pytest.raises(weft.ThreadError, match="nothing to redo on branch 'main'"):
        a.redo()
    b.redo()
    for _ in range(3):
        b.undo()
    with pytest.raises(weft.ThreadError, match="nothing to undo on branch 'x'"):
        b.undo()
    assert texts_of(a) == ["1", "m0", "m1", "m2"]


def test_new_work_on_another_branch_does_not_prevent_a_redo(store: Store) -> None:
    a = weft.open(store)
    a.user("1")
    a.branch("x")
    a.user("2")
    a.undo()
    on(store, "x").user("elsewhere")
    a.redo()
    assert texts_of(a) == ["1", "2"]
    a.undo()
    on(store, "main").user("here")
    with pytest.raises(weft.ThreadError, match="nothing to redo"):
        a.redo()


def test_two_writers_on_one_branch_undo_the_newest(store: Store) -> None:
    a, b = weft.open(store), on(store, "main")
    a.user("a")
    b.user("b")
    assert a.undo().commit is not None
    assert texts_of(b) == ["a"]


def test_a_switch_is_undone_only_by_its_handle(store: Store) -> None:
    a = weft.open(store)
    a.user("1")
    a.branch("x")
    b = on(store, "x")
    b.user("on x")
    a.switch("x")
    assert str(a.undo()) == "switch to 'x'"
    assert (a.current, texts_of(b)) == ("main", ["1", "on x"])
    a.redo()
    assert a.current == "x"
    b.undo()  # b never switched: it takes back its message
    assert (b.current, texts_of(b)) == ("x", ["1"])
    with pytest.raises(weft.ThreadError):
        b.undo()
    assert a.current == "x"


def test_a_switch_by_another_handle_is_skipped(store: Store) -> None:
    a = weft.open(store)
    a.user("1")
    a.branch("x")
    a.branch("y")
    b, c = on(store, "main"), on(store, "main")
    b.switch("x")
    c.switch("y")
    b.undo()
    assert (b.current, c.current) == ("main", "y")
    c.undo()
    assert c.current == "main"
    b.redo()
    assert b.current == "x"


def test_a_handle_on_the_threads_current_branch_undoes_the_switch(store: Store) -> None:
    a = weft.open(store)
    a.user("1")
    a.branch("x")
    a.switch("x")
    later = weft.open(store)
    assert later.current == "x"
    later.undo()
    assert later.current == "main"
    assert weft.open(store).current == "main"
    again = weft.open(store)
    again.redo()
    assert (again.current, weft.open(store).current) == ("x", "x")
    named = on(store, "x")  # it named its branch, so no switch led it there
    with pytest.raises(weft.ThreadError):
        named.undo()


def test_creating_a_branch_is_undone_only_while_it_is_unused(store: Store) -> None:
    a = weft.open(store)
    a.user("1")
    a.branch("x")
    a.tag("v1")
    on(store, "x").user("work")
    assert str(a.undo()) == "tag 'v1'"
    a.undo()
    assert (texts_of(a), texts_of(a, "x")) == ([], ["1", "work"])  # the branch is stepped over


def test_the_current_branch_is_not_removed_from_another(store: Store) -> None:
    a = weft.open(store)
    a.user("1")
    a.branch("x")
    on(store, "main").switch("x")
    a.undo()
    assert "x" in a.branches()
    assert texts_of(weft.open(store)) == ["1"]


def test_branches_and_tags_are_undone_only_by_their_handle(store: Store) -> None:
    a = weft.open(store)
    a.user("1")
    b = on(store, "main")
    a.branch("x")
    a.tag("v1")
    a.branch("gone")
    a.delete_branch("gone")
    assert b.undo().verb == "append"
    b.redo()
    assert [str(a.undo()) for _ in range(4)] == [
        "delete branch 'gone'",
        "branch 'gone'",
        "tag 'v1'",
        "branch 'x'",
    ]
    assert (list(a.branches()), a.tags()) == (["main"], {})
    for _ in range(4):
        a.redo()
    assert (list(a.branches()), list(a.tags())) == (["main", "x"], ["v1"])


def test_a_name_taken_meanwhile_is_not_restored(store: Store) -> None:
    a = weft.open(store)
    a.user("1")
    a.branch("x")
    a.undo()
    on(store, "main").branch("x")
    with pytest.raises(weft.ThreadError, match="nothing to redo"):
        a.redo()
    assert "x" in a.branches()


def test_a_failed_batch_does_not_change_undo(store: Store) -> None:
    a = weft.open(store)
    a.user("1")
    a.branch("x")
    with pytest.raises(KeyError), a.batch():  # noqa: PT012
        a.switch("x")
        a.user("on x")
        raise KeyError
    assert a.current == "main"
    on(store, "x").switch("main")  # takes the number that the failed switch had
    assert str(a.undo()) == "branch 'x'"


def test_undo_after_a_merge_reverts_only_the_merge(store: Store) -> None:
    a = weft.open(store)
    a.user("1")
    a.branch("x")
    b = on(store, "x")
    b.user("theirs")
    a.user("ours")
    a.merge("x")
    b.user("more")
    assert a.undo().verb == "merge"
    assert (texts_of(a), texts_of(b)) == (["1", "ours"], ["1", "theirs", "more"])


def test_a_branch_without_a_logged_creator_is_kept(tmp_path: Path) -> None:
    """Log lines from before `from_branch` was stored for branches and tags."""
    store = SqliteStore(tmp_path / "a.db")
    a = weft.open(store)
    a.user("1")
    from weft.store import Landing

    head = store.read_ref("default", "main")
    store.land("default", Landing("branch", "x", None, head, 2.0))
    again = weft.open(store)
    again.undo()
    assert texts_of(again) == []
    assert "x" in again.branches()
    assert fsck(store).flaws == ()


def ask(thread: Thread, name: str) -> None:
    thread.user(f"question {name}")
    thread.assistant(f"answer {name}")


def test_a_later_change_is_undone_before_the_turn(store: Store) -> None:
    t = weft.open(store)
    ask(t, "1")
    ask(t, "2")
    before = texts_of(t)
    t.pin(t.compile().ids[0])
    t.edit(t.compile().ids[0], "edited")
    t.compact(keep=1, summary="summary")
    after = t.compile().rows
    for verb in ("compact", "edit", "annotate"):
        assert t.undo(turn=True).verb == verb
    assert texts_of(t) == before
    assert [t.undo(turn=True).verb for _ in range(2)] == ["turn", "turn"]
    assert texts_of(t) == []
    t.redo(turn=True)
    assert texts_of(t) == before[:2]
    t.redo(turn=True)  # everything up to the next question
    assert t.compile().rows == after


def test_changes_inside_a_turn_are_undone_with_it(store: Store) -> None:
    t = weft.open(store)
    ask(t, "1")
    before = texts_of(t)
    t.user("question 2")
    t.pin(t.compile().ids[0])
    t.edit(t.compile().ids[1], "edited")
    t.compact(keep=1, summary="summary")
    t.assistant("answer 2")
    after = t.compile().rows
    undone = t.undo(turn=True)
    assert (undone.verb, undone.steps, texts_of(t)) == ("turn", 5, before)
    assert undone.commit is not None
    assert undone.commit.text == "question 2"
    t.redo()
    assert t.compile().rows == after


def test_names_stay_when_a_turn_is_undone(store: Store) -> None:
    t = weft.open(store)
    ask(t, "1")
    t.branch("x")
    t.user("question 2")
    t.tag("v1")
    t.branch("y")
    t.assistant("answer 2")
    refs = (t.branches().keys(), t.tags())
    t.undo(turn=True)
    assert texts_of(t) == ["question 1", "answer 1"]
    t.undo(turn=True)
    assert texts_of(t) == []
    assert (t.branches().keys() | {"main"}, t.tags()) == (refs[0], refs[1])
    t.redo(turn=True)
    t.redo(turn=True)
    t.branch("z")
    assert str(t.undo(turn=True)) == "branch 'z'"  # it came last
    assert texts_of(t)[-1] == "answer 2"


def test_a_turn_from_before_a_fork_is_undone_on_the_fork_alone(store: Store) -> None:
    t = weft.open(store)
    ask(t, "1")
    t.user("question 2")
    fork = t.fork("x")
    fork.assistant("another answer 2")
    t.assistant("answer 2")
    main = texts_of(t)
    page = on(store, "x")
    page.undo(turn=True)
    assert (texts_of(page), texts_of(t)) == (["question 1", "answer 1"], main)
    page.undo(turn=True)
    assert (texts_of(page), texts_of(t)) == ([], main)
    assert "question 1" in str(page.redo())
    page.redo()
    assert (texts_of(page)[-1], texts_of(t)) == ("another answer 2", main)
    page.undo(turn=True)
    page.user("question 3")
    assert texts_of(on(store, "x")) == ["question 1", "answer 1", "question 3"]
    page.undo(turn=True)
    with pytest.raises(weft.ThreadError, match="nothing to undo on branch 'x'"):
        page.undo()


def test_a_fork_whose_turn_was_undone_can_still_be_removed(store: Store) -> None:
    t = weft.open(store)
    ask(t, "1")
    ask(t, "2")
    t.branch("x")
    page = on(store, "x")
    page.undo(turn=True)
    assert "question 2" in str(page.redo())
    assert texts_of(t, "x") == texts_of(t)
    page.undo(turn=True)
    assert texts_of(t, "x") == ["question 1", "answer 1"]
    assert str(t.undo()) == "branch 'x'"
    assert list(t.branches()) == ["main"]
    t.redo()
    assert texts_of(t, "x") == ["question 1", "answer 1"]


def test_two_writers_undo_turns_of_one_branch(store: Store) -> None:
    a, b = weft.open(store), on(store, "main")
    ask(a, "a")
    ask(b, "b")
    assert "question b" in str(a.undo(turn=True))
    assert texts_of(b) == ["question a", "answer a"]
    b.user("question c")
    with pytest.raises(weft.ThreadError, match="nothing to redo"):
        a.redo()
    assert "question c" in str(a.undo(turn=True))
    assert "question a" in str(b.undo(turn=True))
    assert texts_of(a) == []


def test_an_imported_turn_is_undone_without_the_rest_of_the_import(store: Store) -> None:
    messages = [
        {"role": role, "content": f"{name} {number}"}
        for number in (1, 2)
        for role, name in (("user", "question"), ("assistant", "answer"))
    ]
    data = orjson.dumps({"model": "m", "messages": messages[:3]})
    t = weft.open(store, weft.open(store).import_bytes(data).thread)
    t.assistant("answer 2")
    t.undo(turn=True)
    assert texts_of(t) == ["question 1", "answer 1"]
    t.redo()
    assert texts_of(t)[-1] == "answer 2"
    t.undo()
    t.undo()
    assert texts_of(t) == []
    t.redo(turn=True)
    assert texts_of(t) == ["question 1", "answer 1", "question 2", "answer 2"]


def test_system_messages_and_tools_set_by_themselves_stay(store: Store) -> None:
    """Only those that came with the question go with it."""
    t = weft.open(store)
    t.system("rules")
    ask(t, "1")
    t.system("more rules")
    ask(t, "2")
    t.undo(turn=True)
    assert texts_of(t) == ["rules", "question 1", "answer 1", "more rules"]
    t.undo(turn=True)
    assert texts_of(t) == ["rules"]


OTHER = """
import sys, weft
with weft.open(sys.argv[1], branch="x") as t:
    for line in sys.stdin:
        getattr(t, line.split()[0])(*line.split()[1:])
        print("done", flush=True)
"""


def test_two_processes_undo_their_own_work(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with weft.open(path) as a:
        a.user("1")
        a.branch("x")
        other = subprocess.Popen(
            [sys.executable, "-c", OTHER, str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

        def ask(line: str) -> None:
            assert other.stdin is not None
            assert other.stdout is not None
            other.stdin.write(line + "\n")
            other.stdin.flush()
            assert other.stdout.readline() == "done\n"

        with other:
            ask("user theirs")
            a.user("mine")
            ask("user more")
            a.undo()
            assert (texts_of(a), texts_of(a, "x")) == (["1"], ["1", "theirs", "more"])
            ask("undo")
            a.redo()
            assert (texts_of(a), texts_of(a, "x")) == (["1", "mine"], ["1", "theirs"])
            assert other.stdin is not None
            other.stdin.close()
    assert other.returncode == 0


def test_the_page_undoes_on_its_branch_and_names_the_change(tmp_path: Path) -> None:
    store = open_store(tmp_path / "weft.db")
    with serving(tmp_path, "--store", str(tmp_path / "weft.db")) as url:
        t = weft.open(store, "job")
        t.user("question")
        t.branch("side")

        async def work() -> None:
            side = weft.open(store, "job", branch="side")
            async for _ in weft.Agent(side).run("agent work on side"):
                pass

        asyncio.run(work())
        t.user("mine on main")
        asyncio.run(work())
        before = texts_of(t, "side")

        def change(verb: str) -> dict[str, Any]:
            fields = {"thread": "job", "branch": "main"}
            headers = {"origin": url, "x-weft": "1"}
            status, _, body = post(f"{url}/api/{verb}", fields, headers)
            assert status == 200, body
            return orjson.loads(body)

        assert "mine on main" in change("undo")["message"]
        assert (texts_of(t), texts_of(t, "side")) == (["question"], before)
        assert "mine on main" in change("redo")["message"]
        assert texts_of(t) == ["question", "mine on main"]
    store.close()


def test_a_handle_on_a_deleted_branch_starts_no_new_history(store: Store) -> None:
    """Its next commit would be the first of a history without the system prompt."""
    t = weft.open(store, "job")
    t.system("rules")
    t.user("question")
    fork = t.fork("try")
    assert str(t.undo()) == "branch 'try'"
    for use in (lambda: fork.user("next"), fork.compile, fork.log, lambda: fork.compact(keep=1)):
        with pytest.raises(weft.ThreadError, match="branch 'try' was deleted"):
            use()
    t.redo()
    fork.user("next")
    assert texts_of(fork) == ["rules", "question", "next"]
    second = weft.open(store, "job")
    second.switch("try")
    second.delete_branch("main")
    with pytest.raises(weft.ThreadError, match="branch 'main' was deleted"):
        t.user("lost")
    assert texts_of(second) == ["rules", "question", "next"]
    again = second.fork("main")
    t.user("goes on")
    assert texts_of(again) == ["rules", "question", "next", "goes on"]


def test_a_cleared_or_undone_branch_can_be_continued(store: Store) -> None:
    t = weft.open(store, "job")
    t.user("question")
    t.clear()
    t.user("anew")
    assert texts_of(t) == ["anew"]
    t.undo()
    other = weft.open(store, "job")
    assert texts_of(other) == []
    other.undo()
    assert texts_of(t) == ["question"]
    t.undo()
    other.user("first")
    assert texts_of(t) == ["first"]
