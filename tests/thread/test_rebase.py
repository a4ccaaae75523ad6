"""Rebase, cherry-pick, squash and reset, checked on the compiled thread."""

import pytest

from fresh import fresh
from weft.errors import MergeConflict, ThreadError
from weft.history import Conflict
from weft.model import Message, Text, ToolCall
from weft.thread import MergePreview, Thread


def texts_of(thread: Thread, at: str | None = None) -> list[str]:
    """The compiled list, with the compile from scratch checked on the way."""
    compiled = thread.compile(at)
    again = fresh(thread).compile(at)
    assert (again.rows, again.tokens, again.setup) == (
        compiled.rows,
        compiled.tokens,
        compiled.setup,
    )
    return [row["content"] for row in compiled.to_dicts()]


def talk(thread: Thread, words: str) -> list[str]:
    return [thread.user(word).id for word in words.split()]


def forked(t: Thread) -> list[str]:
    """`a` on both, `m` on main, then on `f`, where the thread stands: x y z."""
    talk(t, "a")
    t.branch("f")
    talk(t, "m")
    t.switch("f")
    return talk(t, "x y z")


def test_a_rebase_appends_our_commits_after_theirs_and_keeps_ids(t: Thread) -> None:
    ids = forked(t)
    info = t.rebase("main")
    assert texts_of(t) == ["a", "m", "x", "y", "z"]
    assert t.compile().ids[2:] == tuple(ids)
    assert info.id != ids[-1]
    assert info.metadata == {"rebased_from": ids[-1]}
    assert t.log()[2].parents == (t.branches()["main"],)
    t.user("later")
    t.edit(ids[0], "X")  # the old id still names the line
    assert texts_of(t) == ["a", "m", "X", "y", "z", "later"]


def test_a_rebase_keeps_priorities_own_edits_and_notes(t: Thread) -> None:
    ids = forked(t)
    t.pin(ids[0])
    t.skip(ids[1])
    t.edit(ids[2], "Z")
    t.note(ids[2], "why so")
    t.rebase("main")
    assert texts_of(t) == ["a", "m", "x", "Z"]
    assert t.compile().priorities == ("normal", "normal", "pinned", "normal")
    assert [note.message for note in t.notes(ids[2])] == ["why so"]
    t.annotate(ids[1], "normal")
    assert texts_of(t) == ["a", "m", "x", "y", "Z"]


def test_a_rebase_is_one_operation(t: Thread) -> None:
    forked(t)
    before = (texts_of(t), t.head)
    t.rebase("main")
    t.undo()
    assert (texts_of(t), t.head) == before
    t.redo()
    assert texts_of(t) == ["a", "m", "x", "y", "z"]


def test_a_rebase_with_a_conflict_changes_nothing_until_it_is_resolved(t: Thread) -> None:
    (id,) = talk(t, "a")
    t.branch("f")
    t.edit(id, "main's")
    t.switch("f")
    t.edit(id, "ours")
    talk(t, "x")
    before = t.head
    with pytest.raises(MergeConflict) as raised:
        t.rebase("main")
    assert [conflict.id for conflict in raised.value.conflicts] == [id]
    assert t.head == before
    t.rebase("main", "theirs")  # theirs is what is said again
    assert texts_of(t) == ["ours", "x"]


def test_a_rebase_onto_its_own_base_does_nothing(t: Thread) -> None:
    forked(t)
    head = t.head
    assert t.rebase(t.log()[-1].id) == head
    assert t.head == head


def test_a_rebase_of_a_branch_without_own_commits_moves_it(t: Thread) -> None:
    talk(t, "a")
    t.branch("f")
    talk(t, "m")
    t.switch("f")
    t.rebase("main")
    assert t.branches()["f"] == t.branches()["main"]


def test_a_rebase_over_a_merge_of_main_keeps_every_line_once(t: Thread) -> None:
    forked(t)
    t.merge("main")
    talk(t, "tail")
    t.switch("main")
    talk(t, "n")
    t.switch("f")
    t.rebase("main")
    assert texts_of(t) == ["a", "m", "n", "x", "y", "z", "tail"]


def test_a_rebase_keeps_compactions_and_setups(t: Thread) -> None:
    talk(t, "a")
    t.branch("f")
    talk(t, "m")
    t.switch("f")
    talk(t, "x y")
    t.compact([{"summary": "S"}])
    t.setup(tools=[{"name": "look", "parameters": {}}])
    talk(t, "z")
    t.rebase("main")
    assert texts_of(t) == ["S", "m", "z"]  # the summary stands where it began
    assert [tool.name for tool in t.compile().tools] == ["look"]


def test_a_merge_after_a_rebase_or_a_cherry_pick_duplicates_nothing(t: Thread) -> None:
    ids = forked(t)
    t.branch("old")
    t.rebase("main")
    t.merge("old")
    assert texts_of(t) == ["a", "m", "x", "y", "z"]
    t.switch("main")
    t.cherry_pick(ids[1])
    assert texts_of(t) == ["a", "m", "y"]
    t.merge("old")
    assert sorted(texts_of(t)) == ["a", "m", "x", "y", "z"]


def test_a_cherry_picked_message_keeps_its_id_note_and_origin(t: Thread) -> None:
    talk(t, "a")
    t.branch("f")
    t.switch("f")
    made = t.assistant("yes", metadata={"k": 1}, generation_config={"model": "m"})
    t.switch("main")
    picked = t.cherry_pick(made)
    assert texts_of(t) == ["a", "yes"]
    assert t.compile().ids[1] == made.id
    assert picked.metadata == {"k": 1, "picked_from": made.id}
    assert t.compile().generation_configs == (None, {"model": "m"})
    with pytest.raises(ThreadError, match="here already"):
        t.cherry_pick(made)


def test_a_cherry_picked_edit_needs_its_message(t: Thread) -> None:
    (id,) = talk(t, "a")
    t.branch("f")
    t.switch("f")
    edit = t.edit(id, "A")
    (own,) = talk(t, "x")
    other = t.edit(own, "X")
    t.switch("main")
    t.cherry_pick(edit)
    assert texts_of(t) == ["A"]
    with pytest.raises(MergeConflict):
        t.cherry_pick(other)
    assert texts_of(t) == ["A"]


def test_a_squash_merges_the_result_as_one_message(t: Thread) -> None:
    talk(t, "a")
    t.branch("trip")
    t.switch("trip")
    talk(t, "try it")
    t.commit_message(Message("assistant", (ToolCall("c", "f", "{}"),)))
    t.tool_result("c", "long output " * 50)
    t.assistant("It works with B.")
    head = t.head
    t.switch("main")
    talk(t, "meanwhile")
    info = t.merge("trip", "squash")
    assert texts_of(t) == ["a", "meanwhile", "It works with B."]
    record = info.metadata["squashed"]
    assert head is not None
    assert (record["branch"], record["head"], record["messages"]) == ("trip", head.id, 5)
    assert info.parents[1] == head.id
    assert t.merge("trip") == info  # the trip is home: nothing comes twice
    t.revert(info)
    assert texts_of(t) == ["a", "meanwhile"]


def test_a_squash_accepts_a_text_and_has_a_preview(t: Thread) -> None:
    talk(t, "a")
    t.branch("trip")
    t.switch("trip")
    talk(t, "x y")
    t.switch("main")
    with pytest.raises(ThreadError, match="does not end with an answer"):
        t.merge("trip", "squash")
    preview = t.merge("trip", "squash", preview=True, text="B it is.")
    assert [message.text for message in preview.messages] == ["a", "B it is."]
    assert texts_of(t) == ["a"]
    t.merge("trip", "squash", text="B it is.")
    assert texts_of(t) == ["a", "B it is."]
    with pytest.raises(ThreadError, match="only for strategy='squash'"):
        t.merge("trip", text="words")


def conflicted(t: Thread) -> str:
    (id,) = talk(t, "a")
    t.branch("f")
    t.edit(id, "ours")
    t.switch("f")
    t.edit(id, "theirs")
    t.switch("main")
    return id


def test_ask_returns_conflicts_and_applies_the_answers(t: Thread) -> None:
    id = conflicted(t)
    head = t.head
    asked = t.merge("f", "ask")
    assert isinstance(asked, MergePreview)
    assert [conflict.id for conflict in asked.conflicts] == [id]
    assert t.head == head
    t.merge("f", {conflict.id: "both of them" for conflict in asked.conflicts})
    assert texts_of(t) == ["both of them"]


def test_a_callback_is_called_for_each_conflict(t: Thread) -> None:
    conflicted(t)

    def longer(conflict: Conflict) -> str:
        assert conflict.ours is not None
        assert conflict.theirs is not None
        return max(conflict.ours.message.text, conflict.theirs.message.text, key=len)

    t.merge("f", longer)
    assert texts_of(t) == ["theirs"]


@pytest.mark.parametrize(
    ("ours", "theirs", "strategy", "tool_name"),
    [
        (None, "b", None, "b"),  # only they changed it
        ("a", None, None, "a"),
        ("a", "b", "ours", "a"),  # both did: half of each is what nobody asked for
        ("a", "b", "theirs", "b"),
    ],
)
def test_a_merge_takes_the_setup_that_one_side_changed(
    t: Thread, ours: str | None, theirs: str | None, strategy: str | None, tool_name: str
) -> None:
    talk(t, "x")
    t.setup(tools=[{"name": "base"}])
    t.branch("f")
    for branch, tool in (("main", ours), ("f", theirs)):
        t.switch(branch)
        talk(t, branch)
        if tool is not None:
            t.setup(tools=[{"name": tool}])
    t.switch("main")
    merge = t.merge("f", strategy)
    assert [tool.name for tool in t.compile().tools] == [tool_name]
    texts_of(t)
    t.revert(merge)
    assert [tool.name for tool in t.compile().tools] == [ours or "base"]


def test_a_setup_can_be_reverted(t: Thread) -> None:
    talk(t, "x")
    t.setup(tools=[{"name": "one"}])
    second = t.setup(tools=[{"name": "two"}])
    talk(t, "y")
    t.revert(second)
    assert [tool.name for tool in t.compile().tools] == ["one"]
    assert texts_of(t) == ["x", "y"]


def test_reset_moves_the_branch_and_undo_restores_it(t: Thread) -> None:
    ids = talk(t, "a b c")
    t.tag("good", ids[0])
    assert [m.text for m in t.reset("good", preview=True).messages] == ["a"]
    assert texts_of(t) == ["a", "b", "c"]
    t.reset("good")
    assert texts_of(t) == ["a"]
    assert talk(t, "d")
    assert t.log()[0].parents == (ids[0],)
    t.undo()
    t.undo()
    assert texts_of(t) == ["a", "b", "c"]


def test_a_repeated_message_is_found_by_its_id_everywhere(t: Thread) -> None:
    ids = forked(t)
    t.rebase("main")
    assert t.search("y")[0].id == ids[1]
    assert t.search("y")[0].live
    assert t.recall(ids[1])[0].text == "y"
    assert t.show(ids[1]).messages[0].text == "y"
    assert [version.text for version in t.edit_history(ids[1])] == ["y"]


def test_a_cached_view_of_the_old_branch_is_not_used_for_the_new(t: Thread) -> None:
    ids = forked(t)
    t.branch("old")
    t.rebase("main")
    t.compile()
    talk(t, "more")
    assert [m.blocks[0] for m in t.compile(ids[0]).messages] == [Text("a"), Text("x")]
    assert texts_of(t, "old") == ["a", "x", "y", "z"]


def test_every_operation_returns_the_id_of_its_message(t: Thread) -> None:
    ids = forked(t)
    t.switch("main")
    t.pin(t.cherry_pick(ids[0]))
    t.edit(t.merge("f", "squash", text="S"), "SS")
    assert texts_of(t) == ["a", "m", "x", "SS"]
    assert t.compile().priorities[2] == "pinned"
