"""Every operation, checked on the compiled thread."""

from pathlib import Path

import pytest

import weft
from fresh import fresh
from weft.errors import Ambiguous, MergeConflict, NotFound, ThreadError
from weft.model import Image, Inline, Message, Origin, Text, Thinking, ToolCall, Usage
from weft.thread import Thread


def texts_of(thread: Thread, at: str | None = None) -> list[str]:
    """The compiled list as `u:text`, and the incremental compile checked on the way."""
    compiled = thread.compile(at)
    again = fresh(thread).compile(at)
    assert again == compiled
    assert again.tokens == compiled.tokens
    return [f"{row['role'][0]}:{row['content']}" for row in compiled.to_dicts()]


def talk(thread: Thread, words: str) -> list[str]:
    return [thread.user(word).id for word in words.split()]


def call(thread: Thread, text: str = "") -> str:
    blocks = (Text(text),) if text else ()
    message = Message("assistant", (*blocks, ToolCall("c1", "add", '{"a": 1}')))
    return thread.commit_message(message).id


def test_an_empty_thread_compiles_to_nothing(t: Thread) -> None:
    assert t.compile().to_dicts() == []
    assert t.compile().tokens == 0
    assert t.log() == []


def test_log_is_newest_first_and_limited(t: Thread) -> None:
    talk(t, "a b c")
    assert [info.text for info in t.log()] == ["c", "b", "a"]
    assert [info.text for info in t.log(2)] == ["c", "b"]


def test_a_log_read_in_parts_equals_the_whole_log(t: Thread) -> None:
    with t.batch():
        ids = [t.user(f"message {number}").id for number in range(400)]
        t.branch("side")
        t.switch("side")  # the parts cross from one line of commits to another
        ids += [t.user(f"message {number}").id for number in range(400, 1100)]
    newest_first = ids[::-1]
    assert [info.id for info in t.iter_log()] == newest_first
    for limit in (0, 1, 500, 501, 1000, 1100, 2000):
        assert [info.id for info in t.log(limit)] == newest_first[:limit]
        assert [info.id for info in t.iter_log(limit)] == newest_first[:limit]


def test_commits_of_a_log_that_is_read_in_parts_have_all_their_members(t: Thread) -> None:
    ids = talk(t, "a b c d")
    call(t, "Adding.")
    t.user("noted", note="a note", metadata={"k": 1})
    t.edit(ids[0], "A")
    t.annotate(ids[1], "pinned")
    t.compact(summary="a, b and c")
    t.commit_message(Message("assistant", (Text("e"),)), usage=Usage(input=3, output=4))
    members = ("id", "kind", "message", "messages", "plain_message", "automatic_type", "marked")
    members += ("created", "metadata", "usage", "parents", "tokens", "text")
    for whole, part in zip(t.log(), t.iter_log(), strict=True):
        assert part == whole
        assert part.to_dict() == whole.to_dict()
        for name in members:
            assert getattr(part, name) == getattr(whole, name), name


def test_an_edit_keeps_position_and_id(t: Thread) -> None:
    ids = talk(t, "a b c")
    info = t.edit(ids[1], "B")
    assert texts_of(t) == ["u:a", "u:B", "u:c"]
    assert t.compile().ids == tuple(ids)
    t.edit(info, "BB")  # the edit's own id names the same line
    assert texts_of(t) == ["u:a", "u:BB", "u:c"]
    assert len(t.log()) == 5


def test_an_edit_keeps_calls_and_media_and_drops_thinking(t: Thread) -> None:
    image = Image(Inline("AAAA", "image/png"))
    asked = ToolCall("c1", "add", "{}")
    blocks = (Thinking("hm", "sig"), image, Text("one"), asked)
    id = t.commit_message(Message("assistant", blocks)).id
    t.edit(id, "two")
    assert t.compile().messages[0].blocks == (image, Text("two"), asked)


def test_an_edit_of_a_tool_result_changes_its_content(t: Thread) -> None:
    call(t)
    id = t.tool_result("c1", "4").id
    t.edit(id, "5")
    assert t.compile().to_openai()[1] == {"role": "tool", "tool_call_id": "c1", "content": "5"}


def test_skip_hides_and_annotate_restores(t: Thread) -> None:
    ids = talk(t, "a b c")
    t.skip(ids[1])
    assert texts_of(t) == ["u:a", "u:c"]
    t.annotate(ids[1], "normal")
    assert texts_of(t) == ["u:a", "u:b", "u:c"]


def test_priorities_belong_to_the_branch(t: Thread) -> None:
    ids = talk(t, "a b")
    t.branch("f")
    t.switch("f")
    t.skip(ids[0])
    assert texts_of(t) == ["u:b"]
    t.switch("main")
    assert texts_of(t) == ["u:a", "u:b"]


def test_branch_does_not_switch(t: Thread) -> None:
    talk(t, "a")
    t.branch("x")
    talk(t, "b")
    assert texts_of(t) == ["u:a", "u:b"]
    assert texts_of(t, "x") == ["u:a"]


@pytest.mark.parametrize("name", ["", "a..b", "x.lock", ".a", "a.", "a b", "a~", "a^", "a:b", "a?"])
def test_a_bad_branch_name_is_refused(t: Thread, name: str) -> None:
    talk(t, "a")
    with pytest.raises(ThreadError, match=r"must not .* contain spaces"):
        t.branch(name)


def test_an_existing_or_empty_branch_is_refused(t: Thread) -> None:
    with pytest.raises(ThreadError):
        t.branch("x")
    talk(t, "a")
    t.branch("x")
    with pytest.raises(ThreadError):
        t.branch("x")
    with pytest.raises(NotFound):
        t.switch("nowhere")


def test_merge_appends_theirs_after_ours(t: Thread) -> None:
    talk(t, "a")
    t.branch("f")
    talk(t, "m1 m2")
    t.switch("f")
    talk(t, "f1 f2")
    t.switch("main")
    info = t.merge("f")
    assert len(info.parents) == 2
    assert texts_of(t) == ["u:a", "u:m1", "u:m2", "u:f1", "u:f2"]
    assert t.merge("f") == info  # nothing is left to merge


def test_a_merge_of_a_merge_keeps_everything(t: Thread) -> None:
    talk(t, "a")
    for name in ("A", "B"):
        t.branch(name)
    t.switch("B")
    talk(t, "b1")
    t.switch("A")
    talk(t, "a1")
    t.merge("B")
    t.switch("main")
    talk(t, "m1")
    t.merge("A")
    assert texts_of(t) == ["u:a", "u:m1", "u:a1", "u:b1"]


def test_a_merge_of_a_descendant_fast_forwards(t: Thread) -> None:
    talk(t, "a")
    t.branch("f")
    t.switch("f")
    ids = talk(t, "f1")
    t.switch("main")
    assert t.merge("f").id == ids[0]
    assert texts_of(t) == ["u:a", "u:f1"]


def conflicted(t: Thread) -> str:
    (id,) = talk(t, "a")
    t.branch("f")
    t.edit(id, "ours")
    t.switch("f")
    t.edit(id, "theirs")
    talk(t, "tail")
    t.switch("main")
    return id


def test_a_conflict_is_raised_and_changes_nothing(t: Thread) -> None:
    id = conflicted(t)
    before = t.head
    with pytest.raises(MergeConflict) as raised:
        t.merge("f")
    (conflict,) = raised.value.conflicts
    assert (conflict.id, conflict.kind) == (id, "edited")
    assert [row.message.text for row in (conflict.ours, conflict.theirs)] == ["ours", "theirs"]
    assert t.head == before


@pytest.mark.parametrize(
    ("strategy", "first"),
    [("ours", "u:ours"), ("theirs", "u:theirs"), ("concat", "u:ours\ntheirs")],
)
def test_a_strategy_resolves_a_conflict(t: Thread, strategy: str, first: str) -> None:
    conflicted(t)
    t.merge("f", strategy)
    assert texts_of(t) == [first, "u:tail"]


def test_a_person_resolves_a_conflict(t: Thread) -> None:
    id = conflicted(t)
    t.merge("f", {id[:10]: "RESOLVED"})
    assert texts_of(t) == ["u:RESOLVED", "u:tail"]


def test_a_preview_of_a_merge_writes_nothing(t: Thread) -> None:
    conflicted(t)
    before = t.head
    preview = t.merge("f", preview=True)
    assert [message.text for message in preview.messages] == ["ours", "tail"]
    assert [conflict.kind for conflict in preview.conflicts] == ["edited"]
    assert t.head == before


def test_a_tail_does_not_split_a_call_from_its_result(t: Thread) -> None:
    call(t)
    t.branch("f")
    talk(t, "mine")
    t.switch("f")
    t.tool_result("c1", "2")
    t.switch("main")
    t.merge("f")
    assert texts_of(t) == ["a:", "t:2", "u:mine"]


def test_a_call_answered_on_both_sides_has_one_result(t: Thread) -> None:
    call(t)
    t.branch("f")
    t.tool_result("c1", "mine")
    t.switch("f")
    t.tool_result("c1", "theirs")
    talk(t, "more")
    t.switch("main")
    info = t.merge("f", "ours")
    assert texts_of(t) == ["a:", "t:mine", "u:more"]
    assert info.metadata == {"answered_twice": ["c1"]}


def test_a_compaction_merges_with_a_tail(t: Thread) -> None:
    talk(t, "a b c")
    t.branch("f")
    t.compact([{"summary": "S"}])
    t.switch("f")
    talk(t, "d")
    t.switch("main")
    t.merge("f")
    assert texts_of(t) == ["a:S", "u:d"]


def test_undo_and_redo_work_for_every_kind_of_operation(t: Thread) -> None:
    states = [texts_of(t)]
    ids = talk(t, "a")
    states.append(texts_of(t))
    t.edit(ids[0], "A")
    states.append(texts_of(t))
    t.pin(ids[0])
    states.append(texts_of(t))
    t.user("b")
    states.append(texts_of(t))
    t.compact([{"summary": "S"}])
    states.append(texts_of(t))
    for state in reversed(states[:-1]):
        t.undo()
        assert texts_of(t) == state
    with pytest.raises(ThreadError):
        t.undo()
    for state in states[1:]:
        t.redo()
        assert texts_of(t) == state
    with pytest.raises(ThreadError):
        t.redo()


def test_undo_after_new_work_reverts_the_new_work_first(t: Thread) -> None:
    talk(t, "a b")
    t.undo()
    talk(t, "c")
    with pytest.raises(ThreadError):
        t.redo()
    t.undo()
    assert texts_of(t) == ["u:a"]
    t.undo()
    assert texts_of(t) == []


def test_undo_reverts_branch_switch_and_merge(t: Thread) -> None:
    talk(t, "a")
    t.branch("f")
    t.switch("f")
    talk(t, "f1")
    t.switch("main")
    t.merge("f")
    t.undo()
    assert texts_of(t) == ["u:a"]
    t.undo()
    assert t.current == "f"
    t.undo()
    t.undo()
    t.undo()
    assert t.current == "main"
    assert list(t.branches()) == ["main"]


def test_revert_of_a_compaction_keeps_later_turns(t: Thread) -> None:
    talk(t, "a b c")
    result = t.compact([{"summary": "S"}])
    talk(t, "d e")
    assert texts_of(t) == ["a:S", "u:d", "u:e"]
    assert result.commit is not None
    t.revert(result.commit)
    assert texts_of(t) == ["u:a", "u:b", "u:c", "u:d", "u:e"]


def test_revert_of_an_edit_and_of_a_merge_keep_later_turns(t: Thread) -> None:
    ids = talk(t, "a")
    edit = t.edit(ids[0], "A")
    t.branch("f")
    talk(t, "m")
    t.switch("f")
    talk(t, "f1")
    t.switch("main")
    merge = t.merge("f")
    talk(t, "later")
    t.revert(merge)
    assert texts_of(t) == ["u:A", "u:m", "u:later"]
    t.revert(edit.id[:12])
    assert texts_of(t) == ["u:a", "u:m", "u:later"]


def test_revert_of_a_later_changed_message_is_refused_and_changes_nothing(t: Thread) -> None:
    ids = talk(t, "a")
    edit = t.edit(ids[0], "A")
    t.edit(ids[0], "AA")
    with pytest.raises(MergeConflict):
        t.revert(edit)
    assert texts_of(t) == ["u:AA"]


def test_reverting_twice_has_no_effect_the_second_time(t: Thread) -> None:
    ids = talk(t, "a")
    edit = t.edit(ids[0], "A")
    t.revert(edit)
    with pytest.raises(ThreadError):
        t.revert(edit)


def test_a_pin_survives_two_compactions(t: Thread) -> None:
    ids = talk(t, "a b c")
    t.pin(ids[1])
    t.compact([{"summary": "S"}])
    talk(t, "d")
    t.compact([{"summary": "T"}])
    assert "u:b" in texts_of(t)
    assert t.compile().ids[texts_of(t).index("u:b")] == ids[1]


def test_compile_at_an_id_a_branch_and_a_time(t: Thread) -> None:
    ids = talk(t, "a b c")
    t.branch("x", ids[0])
    assert texts_of(t, ids[1]) == ["u:a", "u:b"]
    assert texts_of(t, "x") == ["u:a"]
    moment = t.log()[1].created
    assert t.compile(moment).to_dicts()[-1]["content"] in ("b", "c")
    assert t.compile(0.0).to_dicts() == []
    with pytest.raises(NotFound):
        t.compile("deadbeef")


def test_compile_last_shows_the_newest(t: Thread) -> None:
    talk(t, "a b c")
    assert [row["content"] for row in t.compile(last=2).to_dicts()] == ["b", "c"]
    assert t.compile(last=0).to_dicts() == []


def test_an_ambiguous_prefix_lists_its_candidates(t: Thread) -> None:
    talk(t, " ".join(f"m{n}" for n in range(40)))
    firsts = [info.id[0] for info in t.log()]
    double = next(first for first in firsts if firsts.count(first) > 1)
    with pytest.raises(Ambiguous) as raised:
        t.show(double)
    assert len(raised.value.candidates) > 1


def test_show_finds_a_message_created_by_a_compaction(t: Thread) -> None:
    talk(t, "a b")
    result = t.compact([{"summary": "S"}])
    assert t.show(t.compile().ids[0]).id == result.commit


def test_diff_lists_what_changed(t: Thread) -> None:
    ids = talk(t, "a b")
    t.branch("x")
    t.edit(ids[0], "A")
    t.skip(ids[1])
    talk(t, "c")
    diff = t.diff("x", "main")
    assert [delta.kind for delta in diff.changes] == ["changed", "removed", "added"]
    assert diff.tokens == t.compile().tokens - t.compile("x").tokens
    assert not t.diff("main", "main")


def test_search_finds_compacted_edited_and_active_messages(t: Thread) -> None:
    ids = talk(t, "alpha beta")
    t.user('she said "price: $4,500"\nand left')
    t.edit(ids[0], "omega")
    hits = {hit.text: hit.live for hit in t.search("alpha") + t.search("omega") + t.search("beta")}
    assert hits == {"alpha": False, "omega": True, "beta": True}
    assert t.search('"price: $4,500"')[0].live
    t.compact([{"summary": "S"}])
    assert not t.search("beta")[0].live
    assert t.search("beta")[0].id == ids[1]
    assert t.search("nothing-like-it") == []


def test_recall_returns_the_original_of_a_compacted_id(t: Thread) -> None:
    ids = talk(t, "alpha beta")
    t.compact([{"summary": "S"}])
    (hit,) = t.recall(ids[0])
    assert (hit.text, hit.live) == ("alpha", False)
    assert t.recall("beta")[0].text == "beta"


def fail_in_batch(t: Thread) -> None:
    with t.batch():
        talk(t, "d")
        t.edit("deadbeef", "nobody")


def test_a_batch_is_committed_completely_or_not_at_all(t: Thread) -> None:
    talk(t, "a")
    with t.batch():
        talk(t, "b c")
        assert texts_of(t) == ["u:a", "u:b", "u:c"]
    with pytest.raises(NotFound):
        fail_in_batch(t)
    assert texts_of(t) == ["u:a", "u:b", "u:c"]


def test_stats_count_what_is_there(t: Thread) -> None:
    ids = talk(t, "a b")
    t.skip(ids[0])
    stats = t.stats()
    assert (stats.commits, stats.messages, stats.hidden, stats.branches) == (3, 1, 1, 1)


def test_stats_with_usage_equal_both_methods(t: Thread) -> None:
    answer = Message(
        "assistant", (Text("Five."),), origin=Origin("anthropic", model="claude-opus-4-5")
    )
    t.user("What is two and three?")
    t.commit_message(answer, usage=Usage(input=12, output=3))
    t.branch("side")
    t.switch("side")
    t.user("And four?")
    t.commit_message(answer, usage=Usage(input=20, output=4))
    t.switch("main")
    stats, usage = fresh(t).stats_with_usage()
    assert (stats, usage) == (t.stats(), t.usage())
    assert (stats.commits, stats.messages) == (4, 2)
    assert (usage.answers, usage.input, usage.output) == (2, 32, 7)  # on all branches
    assert usage.cost


def test_stats_with_usage_of_an_empty_thread(t: Thread) -> None:
    assert t.stats_with_usage() == (t.stats(), t.usage())


def test_text_that_looks_like_a_special_token_is_stored_and_counted(t: Thread) -> None:
    t.user("<|endoftext|>")
    assert t.compile().tokens > 0
    assert texts_of(t) == ["u:<|endoftext|>"]


def test_a_value_that_is_not_json_is_refused_and_nothing_is_written(t: Thread) -> None:
    with pytest.raises(ThreadError):
        t.user("a", metadata={"x": object()})
    assert t.log() == []


def test_a_reopened_file_has_its_thread_and_branch(tmp_path: Path) -> None:
    with weft.open(tmp_path / "a.db") as t:
        talk(t, "a")
        t.branch("f")
        t.switch("f")
        talk(t, "b")
    with weft.open(tmp_path / "a.db") as t:
        assert t.current == "f"
        assert texts_of(t) == ["u:a", "u:b"]
    assert [record.name for record in weft.threads(tmp_path / "a.db")] == ["default"]
    assert (tmp_path / "a.db").stat().st_mode & 0o777 == 0o600


def test_a_handle_can_be_used_from_any_thread_and_closed_twice(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    t = weft.open(tmp_path / "a.db")
    with ThreadPoolExecutor(4) as pool:
        infos = list(pool.map(t.user, [f"m{n}" for n in range(40)]))
        counts = set(pool.map(lambda _: t.compile().tokens, range(20)))
    assert len({info.id for info in infos}) == len(t.compile()) == 40
    assert len(counts) == 1
    t.close()
    t.close()


def test_using_a_closed_thread_is_a_clear_error(tmp_path: Path) -> None:
    t = weft.open(tmp_path / "a.db")
    t.close()
    with pytest.raises(weft.StoreError):
        t.user("a")


def test_handles_of_two_processes_see_each_others_commits(tmp_path: Path) -> None:
    one, two = weft.open(tmp_path / "a.db"), weft.open(tmp_path / "a.db")
    id = one.user("a").id
    two.compile()
    two.user("b")
    one.edit(id, "A")
    assert texts_of(one) == texts_of(two) == ["u:A", "u:b"]
    two.undo()
    assert texts_of(one) == ["u:a", "u:b"]
    one.close()
    two.close()
