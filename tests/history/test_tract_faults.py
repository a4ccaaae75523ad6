"""Faults of another system of this kind, checked on the compiled thread.

The numbers are those of a list of 28 faults.
"""

import inspect
import pkgutil
import sqlite3
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import weft
from fresh import fresh
from weft.errors import BudgetExceeded, CompactRefused, NotFound, ThreadError
from weft.model import Message, Text, ToolCall
from weft.thread import Budget, archive_bytes, fsck, gc, import_bytes


def texts_of(t: weft.Thread) -> list[str]:
    return [m.blocks[0].text for m in t.compile().messages if isinstance(m.blocks[0], Text)]


def texts_at(t: weft.Thread, commit: str) -> list[str]:
    return [message.text for message in t.compile(commit).messages]


def checkpointed(count: int) -> tuple[weft.Thread, list[str], list[str]]:
    """A system prompt, then `count` user messages, with their ids and checkpoints."""
    t = weft.open(checkpoints=True)
    t.system("sys")
    ids = [t.user(f"u{n}").id for n in range(count)]
    return t, ids, [mark.id for mark in t.checkpoints()]


def test_fault_1_compacting_an_inner_range_keeps_the_tail() -> None:
    t, _, marks = checkpointed(10)
    t.compact([{"from": marks[1], "to": marks[5], "summary": "S"}])
    assert texts_of(t) == ["sys", "u0", "u1", "S", "u6", "u7", "u8", "u9"]


def test_fault_2_compacting_two_ranges_keeps_what_is_between() -> None:
    t, _, marks = checkpointed(8)
    ranges = [(0, 1), (2, 3)]
    t.compact(
        [{"from": marks[low], "to": marks[high], "summary": f"S{high}"} for low, high in ranges]
    )
    assert texts_of(t) == ["sys", "u0", "S1", "u2", "S3", "u4", "u5", "u6", "u7"]


def test_fault_3_a_pin_survives_every_compaction() -> None:
    t, ids, _ = checkpointed(4)
    t.pin(ids[1])
    for word in ("S", "T", "U"):
        t.compact([{"summary": word}])
    assert texts_of(t) == ["sys", "u1", "U"]
    assert t.compile().priorities[1] == "pinned"


def test_fault_4_an_edited_system_prompt_compacts() -> None:
    t, _, _ = checkpointed(3)
    t.edit(t.log()[-1], "new sys")
    t.compact([{"summary": "S"}])
    assert texts_of(t) == ["new sys", "S"]


def test_fault_5_a_skipped_message_stays_hidden_after_a_compaction() -> None:
    t, ids, marks = checkpointed(6)
    t.skip(ids[4])
    t.pin(ids[5])
    t.compact([{"to": marks[2], "summary": "S"}])
    assert texts_of(t) == ["sys", "S", "u3", "u5"]
    t.annotate(ids[4], "normal")
    assert texts_of(t) == ["sys", "S", "u3", "u4", "u5"]


def test_fault_6_a_budget_never_separates_a_call_from_its_result() -> None:
    t = weft.open()
    for n in range(12):
        t.user(f"question {n} about src/file{n}.py and why it fails so often " * 6)
        t.commit_message(Message("assistant", (ToolCall(f"c{n}", "look", "{}"),)))
        t.tool_result(f"c{n}", f"line {n} is wrong " * 30)
        t.assistant(f"answer {n}")
    for divisor in (2, 3, 4, 5):
        t.compact(budget=t.compile().tokens * (divisor - 1) // divisor)
        sent = t.compile().to_openai()
        calls = [call["id"] for row in sent for call in row.get("tool_calls", [])]
        results = [row["tool_call_id"] for row in sent if row["role"] == "tool"]
        assert calls == results


def test_fault_7_a_summary_uses_edited_text() -> None:
    t = weft.open()
    for n in range(20):
        t.user(f"question {n} about src/part{n}.py and its many errors, which return each day")
    priced = t.user("the price of src/cart.py is 10.25 euro, see src/cart.py")
    t.edit(priced, "the price of src/cart.py is 20.75 euro, see src/cart.py")
    for n in range(3):
        t.user(f"closing {n}")
    t.compact(budget=t.compile().tokens // 2)
    text = "\n".join(texts_of(t))
    assert "10.25" not in text
    assert "20.75" in text


def test_fault_8_required_text_is_retained_or_the_summary_refused() -> None:
    t, _, _ = checkpointed(3)
    t.user("the offer is $4,500 and not more")
    before = texts_of(t)
    with pytest.raises(CompactRefused, match="4,500"):
        t.compact([{"summary": "they spoke of an offer"}], retain=["$4,500"])
    assert texts_of(t) == before
    with pytest.raises(CompactRefused, match="not in the thread"):
        t.compact([{"summary": "S"}], retain=["never said"])
    t.compact([{"summary": "they offer $4,500"}], retain=["$4,500"])
    assert texts_of(t) == ["sys", "they offer $4,500"]


def test_fault_8_a_pin_is_unchanged_after_any_summary() -> None:
    t, _, _ = checkpointed(3)
    pinned = t.user("the offer is $4,500")
    message = t.compile().messages[-1]
    t.pin(pinned)
    t.compact([{"summary": "S"}])
    t.user("Later. " * 40)
    t.user("now")
    assert t.compact(budget=t.compile().tokens - 5, keep=0).messages == 2
    assert message in t.compile().messages


def test_fault_9_no_module_is_missing() -> None:
    names = [module.name for module in pkgutil.walk_packages(weft.__path__, "weft.")]
    extras = {"claude_agent_sdk", "psycopg", "psycopg_pool"}  # these say so when asked for
    missing = {name: _missing(name) for name in names}
    assert len(names) > 50
    assert {module: name for module, name in missing.items() if name not in {None, *extras}} == {}


def _missing(name: str) -> str | None:
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        return error.name
    return None


OPTIONS: dict[str, Callable[[weft.Thread, str], Any]] = {
    "reminder": lambda t, _: t.user("r", reminder="remember"),
    "name": lambda t, _: t.user("n", name="ann"),
    "message": lambda t, _: t.system("s", message="a note"),
    "metadata": lambda t, id: t.edit(id, "e", message="why", metadata={"k": 1}),
    "generation_config": lambda t, _: t.assistant("a", generation_config={"model": "m"}),
    "is_error": lambda t, _: t.tool_result("c", "r", True, reminder="x"),
    "priority": lambda t, _: t.commit({"content_type": "output", "text": "o"}, priority="pinned"),
    "keep": lambda t, _: t.compact(keep=1),
    "strip": lambda t, _: t.compact([{"summary": "S"}], strip="after"),
    "retain": lambda t, _: t.compact([{"summary": "u0"}], retain=["u0"]),
    "preview": lambda t, id: t.edit(id, "e", preview=True),
    "strategy": lambda t, _: t.merge("f", "squash", text="S"),
    "settle": lambda t, _: t.merge("f", "squash", settle="ours", text="S"),
    "version": lambda t, id: t.restore(id, 0),
    "at": lambda t, id: t.branch("g", id),
    "last": lambda t, _: t.compile(last=1, reasoning=True),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_fault_9_every_option_works(name: str) -> None:
    t, ids, _ = checkpointed(3)
    t.branch("f")
    t.switch("f")
    t.user("side")
    t.switch("main")
    assert OPTIONS[name](t, ids[0]) is not None
    t.compile().to_openai_params("gpt-5")


def test_fault_9_no_method_hides_its_options() -> None:
    for name, verb in inspect.getmembers(weft.Thread, inspect.isfunction):
        kinds = {parameter.kind for parameter in inspect.signature(verb).parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds, name


def diverged() -> tuple[weft.Thread, str]:
    t = weft.open()
    id = t.user("shared").id
    t.branch("feat")
    t.edit(id, "ours")
    t.switch("feat")
    t.edit(id, "theirs")
    t.switch("main")
    return t, id


@pytest.mark.parametrize(
    ("strategy", "text"), [("RESOLVED", "RESOLVED"), ("theirs", "theirs"), ("ours", "ours")]
)
def test_faults_10_11_12_a_merge_shows_its_resolution_and_nothing_else(
    strategy: str, text: str
) -> None:
    t, id = diverged()
    t.merge("feat", {id: strategy})
    assert texts_of(t) == [text]


def test_fault_13_a_merge_includes_earlier_merges() -> None:
    t = weft.open()
    t.user("base")
    t.branch("a")
    t.branch("b")
    t.switch("b")
    t.user("from b")
    t.switch("a")
    t.user("from a")
    t.merge("b")
    t.switch("main")
    t.user("from main")
    t.merge("a")
    assert texts_of(t) == ["base", "from main", "from a", "from b"]


def forked() -> tuple[weft.Thread, list[str]]:
    """Three messages on `feat`, the current branch, and later messages on main."""
    t = weft.open()
    t.user("base")
    t.branch("feat")
    t.user("from main")
    t.switch("feat")
    return t, [t.user(word).id for word in ("one", "two", "three")]


def test_fault_14_a_rebase_keeps_pins_and_skips() -> None:
    t, ids = forked()
    t.pin(ids[0])
    t.skip(ids[1])
    t.rebase("main")
    assert texts_of(t) == ["base", "from main", "one", "three"]
    assert t.compile().priorities == ("normal", "normal", "pinned", "normal")


def test_fault_15_a_rebase_keeps_edits_of_own_messages() -> None:
    t, ids = forked()
    t.edit(ids[1], "TWO")
    t.rebase("main")
    assert texts_of(t) == ["base", "from main", "one", "TWO", "three"]


def test_fault_16_gc_removes_only_unreachable_commits() -> None:
    t, ids = forked()
    t.tag("kept", ids[1])
    t.switch("main")
    lost = t.user("a wrong turn")
    t.reset(t.log()[1])
    before = {branch: texts_at(t, branch) for branch in t.branches()}
    gc(t.store, days=0)
    t = fresh(t)
    assert {branch: texts_at(t, branch) for branch in t.branches()} == before
    assert before["feat"] == ["base", "one", "two", "three"]
    assert texts_at(t, "kept") == ["base", "one", "two"]
    with pytest.raises(NotFound):
        t.compile(lost)
    assert fsck(t.store).clean
    assert not gc(t.store, days=0).commits  # a second run takes nothing


def test_fault_17_a_repeated_directive_is_there_once() -> None:
    t = weft.open()
    t.directive("style", "be brief")
    t.user("a")
    assert texts_of(t) == ["be brief", "a"]
    t.directive("style", "be long")
    assert texts_of(t) == ["be long", "a"]
    assert texts_of(fresh(t)) == ["be long", "a"]


def test_fault_18_token_counts_do_not_depend_on_how_a_thread_is_compiled(tmp_path: Path) -> None:
    with weft.open(tmp_path / "a.db") as t:
        t.user("q")
        t.compile()
        t.commit_message(Message("assistant", (ToolCall("c", "f", '{"a": [1, 2, 3]}'),)))
        t.tool_result("c", "4")
        tokens = t.compile().tokens
    with weft.open(tmp_path / "a.db") as t:
        assert t.compile().tokens == tokens


def test_fault_19_a_text_like_a_special_token_is_stored() -> None:
    t = weft.open()
    t.user("<|endoftext|>")
    assert texts_of(t) == ["<|endoftext|>"]
    assert t.compile().tokens > 0


def test_fault_20_a_reopened_file_has_its_context(tmp_path: Path) -> None:
    with weft.open(tmp_path / "project.db") as t:
        t.user("a")
    with weft.open(tmp_path / "project.db") as t:
        assert texts_of(t) == ["a"]


def test_fault_21_compile_at_an_unknown_commit_is_an_error() -> None:
    t = weft.open()
    t.user("a")
    with pytest.raises(NotFound):
        t.compile("deadbeef")


def test_fault_22_a_priority_belongs_to_its_branch_and_its_time() -> None:
    t = weft.open()
    id = t.user("a").id
    t.user("b")
    t.branch("f")
    t.switch("f")
    skipped = t.skip(id)
    t.annotate(id, "pinned")
    assert len(t.compile(skipped)) == 1
    assert t.compile().priorities == ("pinned", "normal")
    assert t.compile("main").priorities == ("normal", "normal")


def test_fault_23_an_unavailable_model_is_refused() -> None:
    t, _, _ = checkpointed(3)
    before = texts_of(t)
    with pytest.raises(ThreadError, match="special"):
        t.compact(budget=5, model="special")
    assert texts_of(t) == before


def test_fault_24_a_budget_counts_what_is_sent_and_a_refusal_leaves_no_trace(
    tmp_path: Path,
) -> None:
    with weft.open(tmp_path / "a.db", budget=Budget(30)) as t:
        t.skip(t.user("word " * 23))
        t.user("ten words that fit since the others are hidden away")
        with pytest.raises(BudgetExceeded):
            t.user("unwanted " * 30)
        assert texts_of(t) == ["ten words that fit since the others are hidden away"]
        assert t.search("unwanted") == []
    with sqlite3.connect(tmp_path / "a.db") as db:
        assert "unwanted" not in "".join(db.iterdump())
    db.close()


def test_fault_25_search_reaches_everything_and_any_text() -> None:
    t = weft.open()
    t.user('it said "hello\nworld" at 5%')
    with t.batch():
        for n in range(700):
            t.user(f"m{n}")
    assert [hit.live for hit in t.search('"hello\nworld"')] == [True]
    assert t.search("m3")[0].text == "m3"


@pytest.mark.parametrize("field", ["the text", "a call", "a note", "metadata"])
def test_fault_26_a_flipped_byte_is_detected_anywhere(tmp_path: Path, field: str) -> None:
    file = tmp_path / "a.db"
    call = ToolCall("c", "findme2", '{"a": "findme2"}')
    with weft.open(file) as t:
        t.user("findme1", message="findme3", metadata={"k": "findme4"})
        t.commit_message(Message("assistant", (call,)))
    assert fsck(file).clean
    number = ["the text", "a call", "a note", "metadata"].index(field) + 1
    with sqlite3.connect(file) as db:
        for table in ("entry", "commits"):
            db.execute(
                f"UPDATE {table} SET data = CAST(replace(CAST(data AS TEXT), ?, ?) AS BLOB)",
                (f"findme{number}", f"findmf{number}"),
            )
    db.close()
    report = fsck(file)
    assert not report.clean
    assert [flaw.kind for flaw in report.flaws]


def test_fault_27_an_archive_restores_branches_edits_and_merges() -> None:
    t, ids = forked()
    t.edit(ids[0], "ONE")
    t.pin(ids[1])
    t.skip(ids[2])
    t.tag("here")
    t.switch("main")
    t.user("more")
    t.merge("feat")
    t.user("after the merge")
    copy = weft.open()
    import_bytes(copy.store, archive_bytes(t.store, ["default"]))
    again = weft.open(copy.store)
    assert again.branches() == t.branches()
    assert again.tags() == t.tags()
    for branch in t.branches():
        assert again.compile(branch).rows == t.compile(branch).rows
    assert texts_of(again) == ["base", "from main", "more", "ONE", "two", "after the merge"]
    assert again.log() == t.log()


def test_fault_28_an_edit_keeps_tool_calls() -> None:
    t = weft.open()
    call = ToolCall("c", "f", '{"a":  1}')
    id = t.commit_message(Message("assistant", (Text("old"), call))).id
    t.tool_result("c", "4")
    t.edit(id, "new")
    sent = t.compile().to_openai()
    assert sent[0]["content"] == "new"
    assert sent[0]["tool_calls"][0]["function"]["arguments"] == '{"a":  1}'
    assert sent[1]["tool_call_id"] == "c"
