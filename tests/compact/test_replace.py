"""Tables of ranges, boundaries, pins and pairs, and the result of `plan_replacements`."""

import pytest

from compact_rows import broken_pairs, checkpoints, rows, write
from weft.compact import Replacement, plan_replacements
from weft.errors import CompactRefused
from weft.history import Row
from weft.model import Message, Text, ToolCall


def fold(from_: str | None, to: str | None, summary: str = "S") -> Replacement:
    return Replacement(from_=from_, to=to, summary=summary)


def plan(thread_rows: list[Row], *replacements: Replacement, **options):
    return plan_replacements(thread_rows, replacements, known=checkpoints(thread_rows), **options)


THREAD = ("s:rules", "u:one @aaaaaa", "a:two", "u:three @bbbbbb", "a:four", "u:five @cccccc")


@pytest.mark.parametrize(
    ("thread", "from_", "to", "left"),
    [
        (THREAD, "aaaaaa", "bbbbbb", "s:rules|u:one @aaaaaa|a:S|a:four|u:five @cccccc"),
        (THREAD, None, "bbbbbb", "s:rules|a:S|a:four|u:five @cccccc"),
        (THREAD, "bbbbbb", None, "s:rules|u:one @aaaaaa|a:two|u:three @bbbbbb|a:S"),
        (THREAD, None, None, "s:rules|a:S"),
        # the checkpoint stands in the middle: both ends cut inside a message
        (("u:a @aaaaaa b", "a:c", "u:d @bbbbbb e"), "aaaaaa", "bbbbbb", "u:a @aaaaaa|a:S|u:e"),
        # two checkpoints in one message: the message is cut in three
        (("u:a @aaaaaa b @bbbbbb c", "a:d"), "aaaaaa", "bbbbbb", "u:a @aaaaaa|a:S|u:c|a:d"),
        # developer messages lead too; a later system message is in the range
        (("s:x", "d:y", "u:a @aaaaaa", "s:z", "u:b @bbbbbb"), None, "bbbbbb", "s:x|d:y|a:S"),
        # a skipped row in the range goes with it
        (("u:a @aaaaaa", "-a:b", "u:c @bbbbbb", "a:d"), "aaaaaa", "bbbbbb", "u:a @aaaaaa|a:S|a:d"),
    ],
)
def test_a_range_is_the_blocks_after_from_up_to_and_including_to(
    thread: tuple[str, ...], from_: str | None, to: str | None, left: str
) -> None:
    assert write(plan(rows(*thread), fold(from_, to)).rows) == left.split("|")


@pytest.mark.parametrize(
    ("thread", "from_", "to", "left"),
    [
        # a pin stands before the summary
        (("u:a @aaaaaa", "*a:p", "u:c @bbbbbb"), None, "bbbbbb", "a:p|a:S"),
        # the to message is pinned: whole, and still before the summary
        (("u:a", "*u:b @bbbbbb c", "a:d"), None, "bbbbbb", "u:b @bbbbbb c|a:S|a:d"),
        # the from message is pinned: what stands behind its checkpoint stays
        (("*u:a @aaaaaa b", "a:c", "u:d @bbbbbb"), "aaaaaa", "bbbbbb", "u:a @aaaaaa b|a:S"),
        # a pinned call keeps its result, and nothing else of that message
        (("u:q", "*a:!c1", "u:=c1 x @bbbbbb"), None, "bbbbbb", "a:!c1|u:=c1|a:S"),
        # a pinned result keeps its call, and not the other one
        (("u:q", "a:!c1 !c2", "*t:=c1", "t:=c2", "u:@bbbbbb"), None, "bbbbbb", "a:!c1|t:=c1|a:S"),
        # a summary waits until a pinned pair is whole
        (("*a:!c1 !c2", "u:=c1 @aaaaaa", "u:=c2 @bbbbbb"), None, "aaaaaa",
         "a:!c1 !c2|u:=c1|u:=c2 @bbbbbb|a:S"),
        # pins lose neither thinking nor reminders
        (("*u:a ~r", "*a:?t b", "u:c ~r @bbbbbb", "a:?t d"), None, "bbbbbb",
         "u:a ~r|a:?t b|a:S|a:d"),
    ],
)  # fmt: skip
def test_pins_stay_before_the_summary(
    thread: tuple[str, ...], from_: str | None, to: str | None, left: str
) -> None:
    thread_rows = rows(*thread)
    planned = plan(thread_rows, fold(from_, to))
    assert write(planned.rows) == left.split("|")
    assert broken_pairs(planned.rows) == []
    assert all(row in planned.rows for row in thread_rows if row.priority == "pinned")


def test_the_plan_names_the_pins_inside_a_range() -> None:
    thread_rows = rows("*u:outside @aaaaaa", "*a:inside", "u:b @bbbbbb")
    planned = plan(thread_rows, fold("aaaaaa", "bbbbbb"))
    assert [(pin.id, pin.preview) for pin in planned.pins_kept] == [
        (thread_rows[1].id.hex(), "inside")
    ]


@pytest.mark.parametrize(
    ("thread", "from_", "to", "left"),
    [
        # the range takes the call: its result outside goes too
        (("a:!c1 !c2", "u:=c1 @aaaaaa", "u:=c2 x @bbbbbb"), None, "aaaaaa", "a:S|u:x @bbbbbb"),
        # the range takes a result: its call outside goes too, the other stays
        (("a:!c1 !c2", "u:=c1 @aaaaaa", "u:=c2 x @bbbbbb"), "aaaaaa", "bbbbbb",
         "a:!c1|u:=c1 @aaaaaa|a:S"),
        # an id that is used again each turn belongs to the nearest call
        (("a:!0", "u:=0 @aaaaaa", "a:!0", "u:=0 @bbbbbb"), None, "aaaaaa", "a:S|a:!0|u:=0 @bbbbbb"),
        # a message left empty goes
        (("u:@aaaaaa", "a:!c1", "u:=c1 @bbbbbb =c2", "a:x"), None, "bbbbbb", "a:S|u:=c2|a:x"),
    ],
)  # fmt: skip
def test_a_call_and_its_result_are_removed_or_kept_together(
    thread: tuple[str, ...], from_: str | None, to: str | None, left: str
) -> None:
    assert write(plan(rows(*thread), fold(from_, to)).rows) == left.split("|")


@pytest.mark.parametrize(
    ("strip", "left", "gone"),
    [
        ("all", "u:a @aaaaaa|a:b|u:c @bbbbbb|a:S|a:f",
         ["reminder", "thinking", "redacted", "reminder", "thinking"]),
        ("after", "u:a ~r @aaaaaa|a:?t #d b|u:c ~r @bbbbbb|a:S|a:f", ["thinking"]),
    ],
)  # fmt: skip
def test_stripping_applies_everywhere_or_after_the_first_range(
    strip: str, left: str, gone: list[str]
) -> None:
    thread_rows = rows(
        "u:a ~r @aaaaaa", "a:?t #d b", "u:c ~r @bbbbbb", "a:?t d", "u:e ~r @cccccc", "a:?t f"
    )
    planned = plan(thread_rows, fold("bbbbbb", "cccccc"), strip=strip)
    assert write(planned.rows) == left.split("|")
    assert [block.type for block in planned.stripped] == gone


def test_text_that_looks_like_a_reminder_stays() -> None:
    text = "<system-reminder>CLAUDE.md</system-reminder>"
    thread_rows = [*rows("u:a @aaaaaa", "a:b"), Row(b"9" * 20, Message("user", (Text(text),)))]
    assert plan(thread_rows, fold(None, "aaaaaa")).rows[-1] == thread_rows[-1]


@pytest.mark.parametrize(
    ("replacements", "field", "words"),
    [
        ([], "replacements", "at least one"),
        (
            [fold("zzzzzz", None)],
            "replacements[0].from",
            "in this thread; this branch has aaaaaa",
        ),
        ([fold(None, "zzzzzz")], "replacements[0].to", "not in this thread"),
        ([fold(None, "gonegy")], "replacements[0].to", "not on this branch"),
        ([fold("bbbbbb", "aaaaaa")], "replacements[0].from", "comes after"),
        ([fold("bbbbbb", "bbbbbb")], "replacements[0].to", "same checkpoint"),
        ([fold("cccccc", None)], "replacements[0].from", "there is nothing after"),
        ([fold(None, "bbbbbb"), fold("aaaaaa", "cccccc")], "replacements[1]", "replacements[0]"),
        ([fold("aaaaaa", "cccccc"), fold(None, "bbbbbb")], "replacements[1]", "replacements[0]"),
        ([fold(None, None), fold("aaaaaa", "bbbbbb")], "replacements[1]", "shares blocks"),
    ],
)
def test_a_wrong_range_is_refused_with_its_field(
    replacements: list[Replacement], field: str, words: str
) -> None:
    thread_rows = rows(*THREAD)
    with pytest.raises(CompactRefused) as refused:
        plan_replacements(thread_rows, replacements, known=checkpoints(thread_rows) | {"gonegy"})
    assert refused.value.field == field
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("thread", "words"), [((), "no messages"), (("s:x", "d:y"), "only system messages")]
)
def test_a_thread_without_turns_is_refused(thread: tuple[str, ...], words: str) -> None:
    with pytest.raises(CompactRefused, match=words):
        plan(rows(*thread), fold(None, None))


def test_a_duplicate_checkpoint_is_refused() -> None:
    with pytest.raises(CompactRefused, match="more than once"):
        plan(rows("u:a @aaaaaa", "a:b", "u:a @aaaaaa"), fold(None, "aaaaaa"))


def test_a_marker_of_another_thread_is_not_a_checkpoint() -> None:
    with pytest.raises(CompactRefused, match="not in this thread; this branch has no checkpoints"):
        plan_replacements(rows("u:a @aaaaaa", "a:b"), [fold(None, "aaaaaa")], known=set())


@pytest.mark.parametrize(
    ("thread", "from_", "to", "left"),
    [
        # the call is still there: words in its place, and no result
        (("u:q @aaaaaa", "a:b", "u:c @bbbbbb", "a:on_it !me"), None, "aaaaaa",
         "a:S|a:b|u:c @bbbbbb|a:on_it I_compacted_the_thread"),
        # other calls of that message keep their results
        (("u:q @aaaaaa", "a:!me !c1", "u:=c1 @bbbbbb"), None, "aaaaaa",
         "a:S|a:I_compacted_the_thread !c1|u:=c1 @bbbbbb"),
        # the range took the call: nothing to clean, and the other loses both
        (("u:q @aaaaaa", "a:!me !c1", "u:=c1 x @bbbbbb", "a:y"), "aaaaaa", "bbbbbb",
         "u:q @aaaaaa|a:S|a:y"),
        # a result that somebody gave it already leaves
        (("u:q @aaaaaa", "a:!me", "u:=me x @bbbbbb"), None, "aaaaaa",
         "a:S|a:I_compacted_the_thread|u:x @bbbbbb"),
    ],
)  # fmt: skip
def test_the_agents_own_call_becomes_text(
    thread: tuple[str, ...], from_: str | None, to: str | None, left: str
) -> None:
    planned = plan(rows(*thread), fold(from_, to), call_id="me")
    assert write(planned.rows) == left.split("|")


def test_a_plan_names_the_dropped_open_calls() -> None:
    planned = plan(rows("u:q @aaaaaa", "a:!me !c1"), fold("aaaaaa", None), call_id="me")
    assert planned.dropped_calls == ("c1",)


def test_a_compact_call_in_a_pinned_message_is_refused() -> None:
    with pytest.raises(CompactRefused, match="call_id"):
        plan(rows("u:q @aaaaaa", "*a:!me"), fold(None, "aaaaaa"), call_id="me")


def test_null_content_becomes_text_that_can_be_encoded() -> None:
    call = Message("assistant", (ToolCall("me", "compact", "{}"),), form="null")
    thread_rows = [*rows("u:q @aaaaaa"), Row(b"9" * 20, call)]
    assert plan(thread_rows, fold(None, "aaaaaa"), call_id="me").rows[-1].message.form == ""


def test_untouched_rows_are_the_same_objects_and_changed_ones_keep_their_slot() -> None:
    thread_rows = rows("s:r", "u:a @aaaaaa", "a:b", "u:c @bbbbbb d", "a:e")
    new = plan(thread_rows, fold("aaaaaa", "bbbbbb")).rows
    assert [row.id for row in new] == [
        thread_rows[0].id,
        thread_rows[1].id,
        None,
        thread_rows[3].id,
        thread_rows[4].id,
    ]
    assert new[0] is thread_rows[0]
    assert new[1] is thread_rows[1]
    assert new[4] is thread_rows[4]


def test_the_record_lists_replaced_and_stripped_content() -> None:
    thread_rows = rows("u:a ~note @aaaaaa", "a:?why b", "*a:p", "u:c @bbbbbb", "a:e")
    record = plan(thread_rows, fold("aaaaaa", "bbbbbb")).record()
    slots = [row.id.hex() for row in thread_rows]
    assert record == {
        "ranges": [
            {"from": "aaaaaa", "to": "bbbbbb", "first": slots[1], "last": slots[3],
             "messages": 2, "blocks": 4}
        ],
        "pins": [{"id": slots[2], "text": "p"}],
        "stripped": [{"id": slots[0], "block": 1, "type": "reminder", "text": "note"}],
        "dropped_calls": [],
    }  # fmt: skip
