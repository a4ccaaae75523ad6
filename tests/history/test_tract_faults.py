"""Ordinary things that another system of this kind got wrong, each judged by the compiled list.

The numbers are rows of the study these come from; the others need verbs that are not here yet.
"""

from pathlib import Path

import pytest

import weft
from weft.errors import NotFound
from weft.model import Message, Text, ToolCall


def said(t: weft.Thread) -> list[str]:
    return [m.blocks[0].text for m in t.compile().messages if isinstance(m.blocks[0], Text)]


def checkpointed(count: int) -> tuple[weft.Thread, list[str], list[str]]:
    """A system prompt, then `count` user turns, with the ids and the checkpoints of the turns."""
    t = weft.open(checkpoints=True)
    t.system("sys")
    ids = [t.user(f"u{n}").id for n in range(count)]
    return t, ids, [mark.id for mark in t.checkpoints()]


def test_fault_1_an_inner_range_leaves_the_tail() -> None:
    t, _, marks = checkpointed(10)
    t.compact([{"from": marks[1], "to": marks[5], "summary": "S"}])
    assert said(t) == ["sys", "u0", "u1", "S", "u6", "u7", "u8", "u9"]


def test_fault_2_two_ranges_leave_what_is_between() -> None:
    t, _, marks = checkpointed(8)
    ranges = [(0, 1), (2, 3)]
    t.compact(
        [{"from": marks[low], "to": marks[high], "summary": f"S{high}"} for low, high in ranges]
    )
    assert said(t) == ["sys", "u0", "S1", "u2", "S3", "u4", "u5", "u6", "u7"]


def test_fault_3_a_pin_survives_every_compaction() -> None:
    t, ids, _ = checkpointed(4)
    t.pin(ids[1])
    for word in ("S", "T", "U"):
        t.compact([{"summary": word}])
    assert said(t) == ["sys", "u1", "U"]
    assert t.compile().priorities[1] == "pinned"


def test_fault_4_an_edited_system_prompt_compacts() -> None:
    t, _, _ = checkpointed(3)
    t.edit(t.log()[-1], "new sys")
    t.compact([{"summary": "S"}])
    assert said(t) == ["new sys", "S"]


def test_fault_5_a_skipped_message_stays_hidden_beside_a_compaction() -> None:
    t, ids, marks = checkpointed(6)
    t.skip(ids[4])
    t.pin(ids[5])
    t.compact([{"to": marks[2], "summary": "S"}])
    assert said(t) == ["sys", "S", "u3", "u5"]
    t.annotate(ids[4], "normal")
    assert said(t) == ["sys", "S", "u3", "u4", "u5"]


def test_fault_6_a_budget_never_parts_a_call_from_its_result() -> None:
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
    ("strategy", "shown"), [("RESOLVED", "RESOLVED"), ("theirs", "theirs"), ("ours", "ours")]
)
def test_faults_10_11_12_a_merge_shows_its_resolution_and_nothing_else(
    strategy: str, shown: str
) -> None:
    t, id = diverged()
    t.merge("feat", {id: strategy})
    assert said(t) == [shown]


def test_fault_13_a_merge_brings_what_was_merged_before() -> None:
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
    assert said(t) == ["base", "from main", "from a", "from b"]


def test_fault_18_tokens_are_the_same_however_they_are_compiled(tmp_path: Path) -> None:
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
    assert said(t) == ["<|endoftext|>"]
    assert t.compile().tokens > 0


def test_fault_20_a_reopened_file_has_its_context(tmp_path: Path) -> None:
    with weft.open(tmp_path / "project.db") as t:
        t.user("a")
    with weft.open(tmp_path / "project.db") as t:
        assert said(t) == ["a"]


def test_fault_21_compile_at_an_unknown_commit_is_an_error() -> None:
    t = weft.open()
    t.user("a")
    with pytest.raises(NotFound):
        t.compile("deadbeef")


def test_fault_22_a_priority_is_of_its_branch_and_of_its_time() -> None:
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


def test_fault_25_search_reaches_everything_and_any_text() -> None:
    t = weft.open()
    t.user('it said "hello\nworld" at 5%')
    with t.batch():
        for n in range(700):
            t.user(f"m{n}")
    assert [hit.live for hit in t.search('"hello\nworld"')] == [True]
    assert t.search("m3")[0].text == "m3"


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
