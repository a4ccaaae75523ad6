"""Regression tests: results without an open call, and reverts under a later compaction."""

import pytest

import weft
from weft.errors import MergeConflict, ThreadError
from weft.model import Message, ToolCall
from weft.store import Store


def calling(store: Store, *ids: str) -> weft.Thread:
    t = weft.open(store)
    t.user("go")
    t.commit_message(Message("assistant", tuple(ToolCall(id, "f", "{}") for id in ids)))
    return t


def test_a_result_needs_a_call(store: Store) -> None:
    t = calling(store, "a", "b")
    before = t.head
    with pytest.raises(ThreadError, match="no call 'nope' waits for a result; these do: 'a', 'b'"):
        t.tool_result("nope", "1")
    assert t.head == before
    t.tool_result("b", "1")
    t.tool_result("a", "2")
    middle = weft.open(store, "begins in the middle")
    assert middle.tool_result("a", "1").id


def test_a_result_follows_its_call_after_many_other_commits(store: Store) -> None:
    t = calling(store, "a")
    for _ in range(100):
        t.pin(t.compile().ids[0])
        t.annotate(t.compile().ids[0], "normal")
    t.tool_result("a", "late")
    assert t.compile().messages[-1].role == "tool"


def test_a_revert_names_what_must_be_reverted_first(store: Store) -> None:
    t = weft.open(store)
    for number in range(8):
        t.user(f"question {number}")
        t.assistant(f"answer {number}")
    compaction = t.compact(keep=3, summary="a summary").commit
    edit = t.edit(t.compile().ids[0], "another summary")
    assert compaction is not None
    with pytest.raises(MergeConflict) as error:
        t.revert(compaction)
    assert f"revert edit {edit.id[:12]} first" in str(error.value)
    t.revert(edit)
    t.revert(compaction)
    assert t.compile().messages[0].text == "question 0"
