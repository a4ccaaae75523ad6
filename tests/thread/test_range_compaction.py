"""Compaction of a range that two messages delimit."""

import pytest

import weft
from weft.model import Message, Text, Thinking, ToolCall, ToolResult


def fill(thread, exchanges=5):
    """A thread of exchanges; returns the ids of its messages."""
    thread.system("Answer briefly.")
    ids = []
    for number in range(exchanges):
        ids.append(thread.user(f"question {number}: where is the figure {number}{number}7?").id)
        answer = f"The figure {number}{number}7 is in src/file{number}.py. "
        ids.append(thread.assistant(answer * 8).id)
    return ids


@pytest.fixture
def thread(tmp_path):
    with weft.open(str(tmp_path / "weft.db"), "range") as opened:
        yield opened


def roles_and_texts(thread):
    return [(message.role, message.text) for message in thread.compile().messages]


@pytest.mark.parametrize(
    "options",
    [{}, {"summary": "Two figures were found: 117 and 227."}, {"model": "weft-offline"}],
    ids=["extract", "own", "model"],
)
def test_a_range_is_replaced_in_place(thread, options):
    ids = fill(thread)
    before = roles_and_texts(thread)
    preview = thread.compact(first=ids[2], last=ids[5], preview=True, **options)
    assert (preview.preview, preview.messages) == (True, 4)
    assert roles_and_texts(thread) == before
    result = thread.compact(first=ids[2], last=ids[5], **options)
    after = roles_and_texts(thread)
    assert after[:3] == before[:3]  # the system message and the first exchange
    assert after[4:] == before[7:]  # everything after the range
    role, summary = after[3]
    assert role == "user"
    assert "117" in summary
    assert result.tokens_after < result.tokens_before
    thread.revert(result.commit)
    assert roles_and_texts(thread) == before


def test_one_end_is_enough(thread):
    ids = fill(thread)
    thread.compact(last=ids[3], summary="The beginning.")
    assert [role for role, _ in roles_and_texts(thread)] == ["system", "user"] + [
        "user",
        "assistant",
    ] * 3
    thread.undo()
    thread.compact(first=ids[6], summary="The end.")
    texts = [text for _, text in roles_and_texts(thread)]
    assert "The end." in texts[7]
    assert texts[8].startswith("question 4")  # the last question and its answer stay
    assert len(texts) == 10


def test_pins_pairs_and_thinking_before_the_range_stay(thread):
    thread.user("start")
    thread.commit_message(Message("assistant", (Thinking("hm", signature="s"), Text("first"))))
    call = thread.commit_message(Message("assistant", (ToolCall("c1", "read", "{}"),))).id
    result = thread.commit_message(Message("tool", (ToolResult("c1", (Text("content"),)),))).id
    pinned = thread.user("keep this").id
    thread.pin(pinned)
    thread.assistant("done")
    thread.user("last")
    thread.assistant("end")
    thread.compact(first=result, last=pinned, summary="Read a file.")  # begins inside a pair
    messages = thread.compile().messages
    assert any(isinstance(block, Thinking) for block in messages[1].blocks)
    assert [m.text for m in messages[:2]] == ["start", "first"]
    texts = [m.text for m in messages]
    assert "keep this" in texts
    assert not any(isinstance(b, ToolCall | ToolResult) for m in messages for b in m.blocks)
    assert call not in thread.compile().ids
    assert texts[-3:] == ["done", "last", "end"]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"first": "ffffffffff"}, "first"),
        ({"last": "ffffffffff"}, "last"),
        ({"first": 5, "last": 2}, "last"),  # the wrong way round
        ({"first": 8, "last": 9}, "last"),  # the last exchange stays
        ({"first": 2, "last": 5, "budget": 100}, "budget"),
        ({"first": 2, "last": 5, "keep": 1}, "keep"),
        ({"first": 2, "last": 5, "summary": " "}, "summary"),
        ({"first": 2, "replacements": [{"summary": "x"}]}, "replacements"),
    ],
)
def test_a_wrong_range_is_refused_and_nothing_changes(thread, options, field):
    ids = fill(thread)
    before = roles_and_texts(thread)
    named = {
        key: ids[value] if key in ("first", "last") and isinstance(value, int) else value
        for key, value in options.items()
    }
    with pytest.raises(weft.CompactRefused) as refused:
        thread.compact(**named)
    assert refused.value.field == field
    assert roles_and_texts(thread) == before


@pytest.mark.parametrize("thinking", [(), (Thinking("hm", signature="s"),)], ids=["bare", "thinks"])
@pytest.mark.parametrize("why", ["unread", "pinned"])
@pytest.mark.parametrize("options", [{}, {"summary": "Read a file."}, {"model": "weft-offline"}])
def test_a_range_with_only_a_call_and_its_result_that_stays_is_refused(
    thread, options, why, thinking
):
    thread.user("start")
    call = thread.commit_message(Message("assistant", (*thinking, ToolCall("c1", "read", "{}")))).id
    result = thread.commit_message(Message("tool", (ToolResult("c1", (Text("content"),)),))).id
    if why == "pinned":
        thread.pin(result)
        thread.assistant("done")
        thread.user("last")
    before = roles_and_texts(thread)
    with pytest.raises(weft.CompactRefused, match="nothing in this range can be replaced"):
        thread.compact(first=call, last=result, **options)
    assert roles_and_texts(thread) == before


def test_a_model_is_not_asked_about_a_call_whose_result_stays(thread):
    thread.user("start")
    thread.commit_message(Message("assistant", (ToolCall("c1", "read", "{}"),)))
    thread.commit_message(Message("tool", (ToolResult("c1", (Text("content"),)),)))
    result = thread.compact(model="weft-offline")
    assert (result.commit, result.requests) == (None, 0)


def test_messages_that_arrive_while_a_model_writes_stay_after_the_range(thread):
    ids = fill(thread)
    late = weft.open(thread.store, "range")
    written = []

    def write(_):
        if not written:
            written.append(late.user("written meanwhile").id)

    thread.listen(write)
    thread.compact(first=ids[2], last=ids[5], model="weft-offline")
    texts = [text for _, text in roles_and_texts(thread)]
    assert texts[-1] == "written meanwhile"
    assert texts[1].startswith("question 0")
    assert texts[4].startswith("question 3")
