"""A squash merges a branch as one message and keeps its changes to shared messages."""

from collections.abc import Callable
from typing import Any

import pytest

import weft
from fresh import all_rows, fresh
from weft.errors import MergeConflict, ThreadError
from weft.model import Params
from weft.thread import MergePreview, Thread

Trip = Callable[[Thread, list[str]], Any]


def lines(t: Thread) -> list[str]:
    """`text`, or `text [priority]`, for every line, hidden ones too; compiled twice."""
    assert fresh(t).compile().rows == t.compile().rows
    return [
        row.message.text + ("" if row.priority == "normal" else f" [{row.priority}]")
        for row in all_rows(t)
    ]


def after_trip(trip: Trip, ours: Trip | None = None) -> tuple[Thread, list[str]]:
    """`a b c` on both; the branch `f` and main then change as given."""
    t = weft.open(checkpoints=True)
    ids = [t.assistant(word).id for word in "abc"]
    t.branch("f")
    t.switch("f")
    trip(t, ids)
    t.assistant("done")
    t.switch("main")
    if ours is not None:
        ours(t, ids)
    return t, ids


BROUGHT: list[tuple[Trip, Trip | None, list[str]]] = [
    (lambda t, ids: t.edit(ids[0], "A"), None, ["A", "b", "c", "done"]),
    (lambda t, ids: t.pin(ids[1]), None, ["a", "b [pinned]", "c", "done"]),
    (lambda t, ids: t.skip(ids[1]), None, ["a", "b [skip]", "c", "done"]),
    (
        lambda t, ids: t.edit(ids[0], "A"),
        lambda t, ids: t.edit(ids[2], "C"),
        ["A", "b", "C", "done"],
    ),
    (
        lambda t, ids: t.edit(ids[0], "A"),
        lambda t, ids: t.pin(ids[0]),  # other things of one line
        ["A [pinned]", "b", "c", "done"],
    ),
    (
        lambda t, ids: t.edit(ids[0], "A"),
        lambda t, ids: t.edit(ids[0], "A"),  # the same on both sides
        ["A", "b", "c", "done"],
    ),
    (
        lambda t, _: t.compact(keep=0, summary="S"),  # a fold made room for the trip alone
        None,
        ["a", "b", "c", "done"],
    ),
]


@pytest.mark.parametrize(("trip", "ours", "home"), BROUGHT)
def test_changes_to_shared_messages_are_merged(trip: Trip, ours: Trip | None, home: Any) -> None:
    t, _ = after_trip(trip, ours)
    before = lines(t)
    preview = t.merge("f", "squash", preview=True)
    assert lines(t) == before
    info = t.merge("f", "squash")
    assert lines(t) == home
    assert [row.message.text for row in preview.rows] == [line.split(" [")[0] for line in home]
    t.revert(info)
    assert lines(t) == before


def test_the_commit_and_its_preview_name_the_changes() -> None:
    t, ids = after_trip(lambda t, ids: (t.edit(ids[0], "A"), t.pin(ids[1])))
    preview = t.merge("f", "squash", preview=True)
    assert [old.message.text for old, _ in preview.diff.changed] == ["a", "b"]
    assert "- " + ids[0][:12] in str(preview)
    info = t.merge("f", "squash")
    assert info.metadata["squashed"]["changed"] == ids[:2]
    t.pin(info)  # the commit still names the message it brought
    assert lines(t) == ["A", "b [pinned]", "c", "done [pinned]"]


def test_messages_compacted_on_the_branch_are_kept_and_reported() -> None:
    t, _ = after_trip(lambda t, _: t.compact([{"summary": "S"}]))
    assert "3 messages that it compacted stay whole" in str(t.merge("f", "squash", preview=True))
    assert t.merge("f", "squash").metadata["squashed"]["folded"] == 3
    assert lines(t) == ["a", "b", "c", "done"]


def test_changes_without_a_message_are_merged() -> None:
    t = weft.open()
    ids = [t.user(word).id for word in "ab"]
    t.branch("f")
    t.switch("f")
    t.edit(ids[0], "A")
    t.switch("main")
    t.user("c")
    t.merge("f", "squash")
    assert lines(t) == ["A", "b", "c"]
    t.branch("g")
    t.user("d")
    t.switch("g")
    t.note(ids[0], "only a note")
    t.switch("main")
    with pytest.raises(ThreadError, match="no messages of its own"):
        t.merge("g", "squash")


def both_edited() -> tuple[Thread, list[str]]:
    return after_trip(lambda t, ids: t.edit(ids[0], "A"), lambda t, ids: t.edit(ids[0], "aa"))


def test_two_edits_of_one_message_are_a_conflict() -> None:
    t, ids = both_edited()
    before = t.head
    with pytest.raises(MergeConflict) as raised:
        t.merge("f", "squash")
    assert [conflict.id for conflict in raised.value.conflicts] == [ids[0]]
    preview = t.merge("f", "squash", preview=True)
    assert [conflict.id for conflict in preview.conflicts] == [ids[0]]
    asked = t.merge("f", "squash", settle="ask")
    assert isinstance(asked, MergePreview)
    assert asked.conflicts == preview.conflicts
    assert t.head == before


@pytest.mark.parametrize(
    ("settle", "first"),
    [
        ("ours", "aa"),
        ("theirs", "A"),
        ("concat", "aa\nA"),
        (lambda _: "both", "both"),
    ],
)
def test_a_squash_resolves_conflicts_like_a_merge(settle: Any, first: str) -> None:
    t, _ = both_edited()
    t.merge("f", "squash", settle=settle)
    assert lines(t) == [first, "b", "c", "done"]


def test_answers_resolve_a_squash_by_id() -> None:
    t, ids = both_edited()
    t.merge("f", "squash", settle={ids[0][:9]: "theirs"})
    assert lines(t) == ["A", "b", "c", "done"]


@pytest.mark.parametrize("wrong", ["squash", "shout"])
def test_an_invalid_settle_value_is_refused(wrong: str) -> None:
    t, _ = both_edited()
    with pytest.raises(ThreadError, match=wrong):
        t.merge("f", "squash", settle=wrong)


def test_only_a_squash_takes_settle() -> None:
    t, _ = both_edited()
    with pytest.raises(ThreadError, match="only for strategy='squash'"):
        t.merge("f", "ours", settle="ours")


def test_the_setup_of_the_branch_is_not_merged_and_is_reported() -> None:
    t, _ = after_trip(lambda t, _: t.setup([{"name": "probe"}], Params(temperature=0.1)))
    preview = t.merge("f", "squash", preview=True)
    assert "its tools, temperature are not taken over" in str(preview)
    t.merge("f", "squash")
    assert t.compile().tools == ()
