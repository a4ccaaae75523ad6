"""Two results for one call are a conflict: no result is lost without a decision."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.cli import main
from weft.model import Image, Inline, Message, Text, ToolCall, ToolResult
from weft.store import Store
from weft.thread import Thread, fsck

CHOICES = {
    "ours": "main result",
    "theirs": "f result",
    "concat": "main result\nf result",
    "neither": "neither",
}
"""How a conflict is settled, and the result that is left."""


@pytest.fixture
def store(store: Store) -> Iterator[Store]:
    yield store
    assert fsck(store).flaws == ()


def answered_twice(target: Any = None) -> Thread:
    """A call, answered on main and on f, each with an answer behind it; main is current."""
    t = weft.open(target)
    t.user("q")
    t.commit_message(Message("assistant", (Text("go"), ToolCall("tu1", "bash", "{}"))))
    t.branch("f")
    t.tool_result("tu1", "main result")
    t.assistant("m")
    t.switch("f")
    t.tool_result("tu1", "f result")
    t.assistant("f says so")
    t.switch("main")
    return t


def texts_of(thread: Thread) -> list[str]:
    return [message.text for message in thread.compile().messages]


def choice(answer: str) -> Any:
    return {"tu1": answer} if answer == "neither" else answer


def check_sendable(thread: Thread) -> None:
    """Every vendor is sent each result once, and no line about a lost one."""
    thread.user("go on")
    context = thread.compile()
    for write, model in (
        (context.to_openai_params, "gpt-5"),
        (context.to_anthropic_params, "claude-sonnet-5"),
        (context.to_responses_params, "gpt-5"),
        (context.to_gemini_params, "gemini-2.5-pro"),
    ):
        request = write(model=model)
        assert not [loss for loss in request.losses if loss.level != "form"]


def test_a_merge_reports_the_conflict(store: Store) -> None:
    t = answered_twice(store)
    before = texts_of(t)
    with pytest.raises(weft.MergeConflict, match="tu1") as raised:
        t.merge("f")
    (conflict,) = raised.value.conflicts
    assert isinstance(conflict, weft.ResultConflict)
    assert (conflict.kind, conflict.id) == ("answered", "tu1")
    assert "main result" in str(raised.value)
    assert "f result" in str(raised.value)
    assert texts_of(t) == before
    preview = t.merge("f", preview=True)
    assert preview.conflicts == (conflict,)
    assert "f result" in str(preview)
    asked = t.merge("f", "ask")
    assert isinstance(asked, weft.MergePreview)
    assert asked.conflicts == (conflict,)
    assert texts_of(t) == before


@pytest.mark.parametrize(("answer", "result"), CHOICES.items())
def test_a_merge_conflict_is_resolved(answer: str, result: str, store: Store) -> None:
    t = answered_twice(store)
    info = t.merge("f", choice(answer))
    assert texts_of(t) == ["q", "go", result, "m", "f says so"]
    assert info.metadata == {"answered_twice": ["tu1"]}
    check_sendable(t)


def test_a_callback_resolves_it() -> None:
    t = answered_twice()
    t.merge("f", lambda conflict: conflict.id.upper())
    assert texts_of(t)[2] == "TU1"


def test_equal_results_are_not_a_conflict() -> None:
    t = weft.open()
    t.commit_message(Message("assistant", (ToolCall("c", "f", "{}"),)))
    t.branch("f")
    t.tool_result("c", "same")
    t.switch("f")
    t.tool_result("c", "same", message="found there")
    t.user("more")
    t.switch("main")
    assert t.merge("f").metadata == {"answered_twice": ["c"]}
    assert texts_of(t) == ["", "same", "more"]


def test_a_failure_and_a_success_are_a_conflict() -> None:
    t = weft.open()
    t.commit_message(Message("assistant", (ToolCall("c", "f", "{}"),)))
    t.branch("f")
    t.tool_result("c", "same")
    t.switch("f")
    t.tool_result("c", "same", is_error=True)
    t.switch("main")
    with pytest.raises(weft.MergeConflict):
        t.merge("f")
    t.merge("f", "theirs")
    (result,) = t.compile().messages[-1].blocks
    assert isinstance(result, ToolResult)
    assert result.is_error


def test_each_call_of_a_turn_is_resolved_separately() -> None:
    t = weft.open()
    calls = tuple(ToolCall(name, "f", "{}") for name in ("c1", "c2", "c3"))
    t.commit_message(Message("assistant", calls))
    t.branch("f")
    t.tool_results([ToolResult("c1", (Text("m1"),)), ToolResult("c2", (Text("m2"),))])
    t.switch("f")
    t.tool_result("c2", "f2")
    t.tool_result("c1", "f1")
    t.tool_result("c3", "f3")
    t.switch("main")
    with pytest.raises(weft.MergeConflict) as raised:
        t.merge("f")
    assert {conflict.id for conflict in raised.value.conflicts} == {"c1", "c2"}
    t.merge("f", {"c1": "theirs", "c2": "ours"})
    assert texts_of(t) == ["", "f1\nm2", "f3"]


def test_results_separated_by_a_cherry_pick_are_found() -> None:
    t = weft.open()
    t.commit_message(Message("assistant", (ToolCall("c", "f", "{}"),)))
    t.branch("f")
    t.switch("f")
    t.tool_result("c", "theirs")
    note = t.user("said on both")
    t.switch("main")
    t.cherry_pick(note.id)
    t.tool_result("c", "ours")
    with pytest.raises(weft.MergeConflict, match="the result of call c"):
        t.merge("f")
    t.merge("f", "theirs")
    assert texts_of(t).count("theirs") == 1
    assert "ours" not in texts_of(t)


def test_a_reused_call_id_is_another_call() -> None:
    t = weft.open()
    t.user("q")
    t.branch("f")
    for branch, text in (("main", "one"), ("f", "two")):
        t.switch(branch)
        t.commit_message(Message("assistant", (Text(text), ToolCall("c", "f", "{}"))))
        t.tool_result("c", f"found {text}")
        t.assistant(f"done {text}")
    t.switch("main")
    t.merge("f")
    assert texts_of(t) == [
        "q", "one", "found one", "done one", "two", "found two", "done two",
    ]  # fmt: skip


def test_media_stay_with_the_chosen_result() -> None:
    t = weft.open()
    t.commit_message(Message("assistant", (ToolCall("c", "f", "{}"),)))
    t.branch("f")
    t.tool_result("c", "ours")
    t.switch("f")
    t.tool_result("c", [Text("theirs"), Image(Inline("aGk=", "image/png"))])
    t.switch("main")
    t.merge("f", "concat")
    (result,) = t.compile().messages[-1].blocks
    assert isinstance(result, ToolResult)
    assert [type(block).__name__ for block in result.content] == ["Text", "Text", "Image"]


def test_concat_of_a_result_that_both_edited_keeps_both() -> None:
    t = weft.open()
    t.commit_message(Message("assistant", (ToolCall("c", "f", "{}"),)))
    line = t.tool_result("c", "first")
    t.branch("f")
    t.edit(line, "ours")
    t.switch("f")
    t.edit(line, "theirs")
    t.switch("main")
    t.merge("f", "concat")
    assert texts_of(t) == ["", "ours\ntheirs"]


@pytest.mark.parametrize(("answer", "result"), CHOICES.items())
def test_a_squash_reports_it_too(answer: str, result: str, store: Store) -> None:
    t = answered_twice(store)
    with pytest.raises(weft.MergeConflict, match="tu1"):
        t.merge("f", "squash")
    assert [c.kind for c in t.merge("f", "squash", preview=True).conflicts] == ["answered"]
    t.merge("f", "squash", settle=choice(answer))
    assert texts_of(t) == ["q", "go", result, "m", "f says so"]
    check_sendable(t)


def test_a_squash_merges_the_result_of_a_shared_call() -> None:
    t = weft.open()
    t.user("q")
    t.commit_message(Message("assistant", (Text("go"), ToolCall("c", "f", "{}"))))
    t.branch("f")
    t.switch("f")
    t.tool_result("c", "found it")
    t.assistant("it is there")
    t.switch("main")
    t.merge("f", "squash")
    assert texts_of(t) == ["q", "go", "found it", "it is there"]
    check_sendable(t)


@pytest.mark.parametrize(("answer", "result"), CHOICES.items())
def test_a_rebase_reports_it_too(answer: str, result: str, store: Store) -> None:
    t = answered_twice(store)
    t.switch("f")
    before = texts_of(t)
    with pytest.raises(weft.MergeConflict, match="tu1"):
        t.rebase("main")
    preview = t.rebase("main", preview=True)
    assert [conflict.kind for conflict in preview.conflicts] == ["answered"]
    assert texts_of(t) == before
    expected = t.rebase("main", choice(answer), preview=True)
    t.rebase("main", choice(answer))
    assert texts_of(t) == ["q", "go", result, "m", "f says so"]  # theirs is what is said again
    assert [message.text for message in expected.messages] == texts_of(t)
    check_sendable(t)


@pytest.mark.parametrize(("answer", "result"), [(a, r) for a, r in CHOICES.items() if a != "ours"])
def test_a_cherry_pick_reports_it_too(answer: str, result: str, store: Store) -> None:
    t = answered_twice(store)
    picked = "f~1"
    with pytest.raises(weft.MergeConflict, match="tu1"):
        t.cherry_pick(picked)
    preview = t.cherry_pick(picked, preview=True)
    assert [conflict.kind for conflict in preview.conflicts] == ["answered"]
    expected = t.cherry_pick(picked, choice(answer), preview=True)
    t.cherry_pick(picked, choice(answer))
    assert texts_of(t) == ["q", "go", result, "m"]
    assert [message.text for message in expected.messages] == texts_of(t)
    check_sendable(t)


def test_a_cherry_pick_that_keeps_ours_has_nothing_to_do() -> None:
    t = answered_twice()
    with pytest.raises(weft.ThreadError, match="here already"):
        t.cherry_pick("f~1", "ours")


def test_other_content_of_a_message_with_a_second_result_is_kept() -> None:
    t = weft.open()
    t.commit_message(Message("assistant", (ToolCall("c", "f", "{}"),)))
    t.branch("f")
    t.tool_result("c", "main result")
    t.switch("f")
    t.tool_results([ToolResult("c", (Text("f result"),))], text="and look at this")
    t.rebase("main", "ours")
    assert texts_of(t) == ["", "main result", "and look at this"]


def test_a_resolved_merge_can_be_reverted_and_merged_again(store: Store) -> None:
    t = answered_twice(store)
    before = texts_of(t)
    merged = t.merge("f", "theirs")
    t.revert(merged.id)
    assert texts_of(t) == before
    t.undo()
    assert texts_of(t)[2] == "f result"
    t.switch("f")
    t.user("more on f")
    t.switch("main")
    t.merge("f")
    assert texts_of(t) == ["q", "go", "f result", "m", "f says so", "more on f"]


def test_the_command_shows_and_resolves_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "a.db")
    answered_twice(path).close()

    def run(*words: str) -> tuple[int, str, str]:
        code = main([*words, "--store", path])
        read = capsys.readouterr()
        return code, read.out, read.err

    code, _, err = run("merge", "f")
    assert code == 1
    assert "the result of call tu1 (ours 'main result', theirs 'f result')" in err
    assert "f result" in run("merge", "f", "--preview")[1]
    preview = json.loads(run("merge", "f", "--preview", "--json")[1])
    assert preview["conflicts"] == [
        {"id": "tu1", "kind": "answered", "ours": "main result", "theirs": "f result"}
    ]
    assert run("merge", "f", "--answer", "tu1=what both found")[0] == 0
    assert "what both found" in run("compile")[1]
    run("undo")
    assert run("merge", "f", "--strategy", "ours", "--answer", "tu1=theirs")[0] == 0
    assert "tool: f result" in run("compile")[1]
    run("undo")
    assert run("merge", "f", "--strategy", "squash", "--answer", "tu1=theirs")[0] == 0
    run("undo")
    code, _, err = run("merge", "f", "--answer", "other=ours")
    assert (code, "no answer for the conflict" in err) == (1, True)
