"""Tags, notes, versions and blame."""

import time

import pytest

import weft
from weft.errors import NotFound, ThreadError
from weft.thread import Thread


def texts(thread: Thread) -> list[str]:
    return [row["content"] for row in thread.compile().to_dicts()]


def talk(thread: Thread, words: str) -> list[str]:
    return [thread.user(word).id for word in words.split()]


def test_a_tag_names_a_commit_wherever_an_id_does(t: Thread) -> None:
    ids = talk(t, "a b c")
    assert t.tag("v1", ids[1]).id == ids[1]
    assert t.tags() == {"v1": ids[1]}
    assert len(t.compile("v1")) == 2
    assert len(t.diff("v1").changes) == 1
    t.branch("from-tag", "v1")
    assert t.branches() == {"main": ids[2], "from-tag": ids[1]}
    assert t.stats().branches == 2


def test_a_tag_stays_until_it_is_forgotten(t: Thread) -> None:
    talk(t, "a")
    with pytest.raises(ThreadError):
        t.tag("a..b")
    t.tag("v1")
    with pytest.raises(ThreadError, match="already"):
        t.tag("v1")
    t.untag("v1")
    assert t.tags() == {}
    with pytest.raises(NotFound):
        t.compile("v1")
    t.undo()
    assert list(t.tags()) == ["v1"]
    with pytest.raises(NotFound):
        t.untag("nothing")


def test_an_empty_thread_cannot_be_tagged(t: Thread) -> None:
    with pytest.raises(ThreadError):
        t.tag("v1")


def test_a_note_belongs_to_a_message_and_is_not_sent(t: Thread) -> None:
    ids = talk(t, "a b")
    before = t.compile()
    info = t.note(ids[0], "the user means the other file")
    t.note(info, "a note on a note")
    assert t.compile() == before
    assert t.compile().tokens == before.tokens
    assert [n.message for n in t.notes()] == ["the user means the other file", "a note on a note"]
    assert [n.metadata["about"] for n in t.notes(ids[0])] == [ids[0]]
    t.edit(ids[0], "A")
    talk(t, "c")
    assert texts(t) == ["A", "b", "c"]
    with pytest.raises(ThreadError):
        t.note(ids[0], "  ")
    with pytest.raises(NotFound):
        t.note("deadbeef", "nobody")


def test_a_note_belongs_to_its_branch(t: Thread) -> None:
    ids = talk(t, "a")
    t.branch("f")
    t.note(ids[0], "on main")
    t.switch("f")
    assert t.notes() == []


def test_versions_are_the_original_and_every_edit(t: Thread) -> None:
    ids = talk(t, "one other")
    first = t.edit(ids[0], "two")
    t.pin(ids[0])
    t.edit(ids[0], "three")
    versions = t.edit_history(ids[0][:12])
    assert [version.text for version in versions] == ["one", "two", "three"]
    assert [version.number for version in versions] == [0, 1, 2]
    assert versions[0].commit == ids[0]
    assert [v.text for v in t.edit_history(first)] == ["one", "two", "three"]


def test_restore_makes_an_old_version_the_newest(t: Thread) -> None:
    ids = talk(t, "one")
    t.edit(ids[0], "two")
    assert t.restore(ids[0], preview=True).messages[0].text == "one"
    assert texts(t) == ["two"]
    info = t.restore(ids[0], 0)
    assert texts(t) == ["one"]
    assert info.metadata == {"restores": ids[0]}
    for wrong in (-1, 3):
        with pytest.raises(ThreadError, match="no version"):
            t.restore(ids[0], wrong)


def test_versions_from_a_merged_branch_are_found(t: Thread) -> None:
    ids = talk(t, "one")
    t.branch("f")
    talk(t, "m")
    t.switch("f")
    (own,) = talk(t, "f1")
    t.edit(own, "F1")
    t.switch("main")
    t.merge("f")
    assert [v.text for v in t.edit_history(own)] == ["f1", "F1"]
    assert t.blame("f1")[0].live is False
    assert t.blame(own)[0].kind == "edit"
    assert t.blame(ids[0])[0].commit == ids[0]


def test_blame_names_the_commit_that_added_a_text(t: Thread) -> None:
    ids = talk(t, "a")
    t.user("the price is 10 euro")
    edit = t.edit(t.compile().ids[1], "the price is 20 euro")
    t.edit(t.compile().ids[1], "the price is 20 euro, they say")
    (blamed,) = t.blame("20 euro")
    assert (blamed.commit, blamed.live) == (edit.id, True)
    (gone,) = t.blame("10 euro")
    assert (gone.id, gone.live) == (blamed.id, False)
    assert t.blame(ids[0])[0].text == "a"
    assert t.blame("never said") == []
    assert t.blame(" ") == []


@pytest.mark.parametrize("word", ["a", "be", "add", "A"])
def test_a_short_word_of_hex_digits_is_not_an_id(t: Thread, word: str) -> None:
    for number in range(40):
        t.user(f"A man may be told to add {number} of a kind")
    for find in (t.blame, t.recall):
        assert len(find(word, 100)) == 40, find


def test_an_ambiguous_id_prefix_is_treated_as_text(t: Thread) -> None:
    """Two ids of one beginning are found by trying; nobody waits for a longer one."""
    ids_by_prefix: dict[str, str] = {}
    with t.batch():
        for number in range(4000):
            id = t.user(f"line {number}").id
            if id[:4] in ids_by_prefix:
                break
            ids_by_prefix[id[:4]] = id
    t.user(f"the word {id[:4]} itself")
    assert [blamed.text for blamed in t.blame(id[:4])] == [f"the word {id[:4]} itself"]
    assert [hit.text for hit in t.recall(id[:4])] == [f"the word {id[:4]} itself"]


def test_blame_of_a_summary_is_its_compaction(t: Thread) -> None:
    talk(t, "a b")
    result = t.compact([{"summary": "they said two letters"}])
    (blamed,) = t.blame("two letters")
    assert (blamed.commit, blamed.kind) == (result.commit, "compact")


def test_a_directive_of_one_name_is_sent_once(t: Thread) -> None:
    t.directive("style", "be brief")
    t.compile()
    talk(t, "a")
    t.directive("tone", "be kind")
    t.directive("style", "be long")
    assert texts(t) == ["be long", "a", "be kind"]
    assert t.compile().priorities[0] == "pinned"


def test_a_time_resolves_to_the_newest_commit_at_that_time(t: Thread) -> None:
    newest: list[tuple[float, str]] = []
    with t.batch():
        for number in range(150):
            info = t.user(f"m{number}")
            if number in (0, 1, 85, 86, 149):
                time.sleep(0.002)  # so that no commit beside it has the same time
                newest.append((time.time(), info.id))
                time.sleep(0.002)
    assert [t.compile(at).head for at, _ in newest] == [id for _, id in newest]
    assert len(t.compile(t.log()[-1].created.timestamp() - 1)) == 0


@pytest.mark.parametrize("strategy", [None, "squash"])
def test_notes_are_merged_with_their_branch(strategy: str | None) -> None:
    t = weft.open()
    first = t.user("a")
    t.note(first, "ours")
    t.branch("f")
    t.switch("f")
    t.note(t.assistant("x"), "on x")
    t.note(first, "theirs")
    t.switch("main")
    t.user("m")
    t.merge("f", strategy)
    t.note(first, "after")
    assert [info.message for info in t.notes()] == ["ours", "on x", "theirs", "after"]
    assert [info.message for info in t.notes(first)] == ["ours", "theirs", "after"]
