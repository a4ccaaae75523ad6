"""Requirements C1-C9: compaction by the agent, through `weft.open` and `Thread.compact`."""

import re
from itertools import pairwise
from typing import Any

import pytest

import weft
from compact_rows import word
from weft.agent import display_system_message
from weft.codec import CODECS
from weft.compact import COMPACTED, SystemMessage, find_pairs, read_checkpoints
from weft.errors import CompactRefused
from weft.model import (
    Checkpoint,
    Message,
    Redacted,
    Reminder,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

Thread = Any

MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai-chat": "gpt-5",
    "openai-responses": "gpt-5",
    "gemini": "gemini-2.5-pro",
}


@pytest.fixture
def t():
    with weft.open(checkpoints=True) as thread:
        yield thread


def answer(thread: Thread, text: str, *calls: str, thinking: bool = True):
    """An answer of a model: thinking, text, calls."""
    thought = (Thinking(f"about {text}", signature="sealed"), Redacted("x")) if thinking else ()
    tool_calls = tuple(ToolCall(id, "read", '{"path": "a.py"}') for id in calls)
    return thread.commit_message(Message("assistant", (*thought, Text(text), *tool_calls)))


@pytest.fixture
def example(t: Thread) -> Thread:
    """The example of requirement C3: three user messages with reminders, two with results."""
    t.system("You help.")
    t.user("content", reminder="remember")
    answer(t, "content 1", "r1")
    t.tool_result("r1", "response 1", reminder="remember")
    answer(t, "content 2", "r2")
    t.tool_result("r2", "response 2", reminder="remember")
    answer(t, "content 3")
    return t


def ids(thread: Thread) -> list[str]:
    return [checkpoint.id for checkpoint in thread.checkpoints()]


Named = tuple[Any, ...]


def compiled_lines(named: Named) -> list[str]:
    """The compiled thread: a letter for the side, then its blocks; checkpoints as @1, @2, ..."""
    thread, *names = named
    numbers = {id: f"@{n}" for n, id in enumerate(names, 1)}
    lines: list[str] = []
    for message in thread.compile().messages:
        side = "u" if message.role == "tool" else message.role[0]
        blocks = [numbers.get(w[1:], w) if w[0] == "@" else w for w in map(word, message.blocks)]
        lines.append(f"{side}:{' '.join(blocks)}")
    return lines


@pytest.fixture
def abc(example: Thread) -> Named:
    """The example with the names of its three checkpoints."""
    return example, *ids(example)


def assert_valid_for_every_vendor(thread: Thread) -> None:
    """Roles, pairs and markers as each protocol wants them; each message has some content."""
    compiled = thread.compile()
    for pair in find_pairs(compiled.rows):
        assert pair.call is not None
        assert pair.results
    for protocol in CODECS:
        body = weft.encode(weft.Request(MODELS[protocol], compiled.messages), protocol).body
        messages = next(body[key] for key in ("messages", "input", "contents") if key in body)
        assert messages
        assert all(message.get("content", message.get("parts")) != [] for message in messages)
        if protocol == "anthropic":
            assert messages[0]["role"] == "user"
            assert {message["role"] for message in messages} <= {"user", "assistant"}
            assert_results_follow_their_calls(messages)


def assert_results_follow_their_calls(messages: list[dict[str, Any]]) -> None:
    """Anthropic's law: the message behind a call begins with the results of exactly its calls."""
    for before, after in pairwise([*messages, {"content": ""}]):
        calls = [part["id"] for part in _parts(before) if part["type"] == "tool_use"]
        results = [part["tool_use_id"] for part in _parts(after) if part["type"] == "tool_result"]
        assert sorted(calls) == sorted(results)


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return content if isinstance(content, list) else []


# C1


def test_C1_every_user_message_ends_with_a_checkpoint_of_its_own(example: Thread) -> None:
    turns = [m for m in example.compile().messages if m.role in {"user", "tool"}]
    assert [type(turn.blocks[-1]) for turn in turns] == [Checkpoint] * 3
    assert [turn.blocks[-1].id for turn in turns] == ids(example)
    others = [m for m in example.compile().messages if m.role not in {"user", "tool"}]
    assert not any(isinstance(block, Checkpoint) for m in others for block in m.blocks)


def test_C1_on_every_wire_it_is_a_text_block_of_its_own(example: Thread) -> None:
    wire = [f"<checkpoint:{id}>" for id in ids(example)]
    compiled = example.compile()
    texts = [part["text"] for part in _text_parts(compiled.to_anthropic()["messages"])]
    assert [text for text in texts if "checkpoint" in text] == wire
    texts = [part["text"] for part in _text_parts(compiled.to_openai())]
    assert [text for text in texts if "checkpoint" in text] == wire


def _text_parts(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        part
        for message in messages
        if isinstance(message.get("content"), list)
        for part in message["content"]
        if part["type"] == "text"
    ]


def test_C1_ids_are_six_letters_unique_over_all_branches_and_made_without_chance() -> None:
    def checkpoint_ids() -> list[str]:
        with weft.open(checkpoints=True) as thread:
            all_ids: set[str] = set()
            thread.system("rules")
            for branch in ("x", "y", "z"):
                thread.branch(branch)
            for branch in ("x", "y", "z"):
                thread.switch(branch)
                for n in range(20):
                    thread.user(f"the same words {n}")
                all_ids.update(ids(thread))
            assert len(all_ids) == 60
            return sorted(all_ids)

    first = checkpoint_ids()
    assert all(re.fullmatch("[a-z0-9]{6}", id) for id in first)
    assert checkpoint_ids() == first


def test_C1_a_marker_is_read_back_only_whole_and_only_the_threads_own(example: Thread) -> None:
    a = ids(example)[0]
    wire = Message("user", (Text(f"<checkpoint:{a}>"), Text(f"see <checkpoint:{a}>"),
                            Text("<checkpoint:zzzzzz>")))  # fmt: skip
    read = read_checkpoints(wire, set(ids(example)))
    assert [type(block) for block in read.blocks] == [Checkpoint, Text, Text]


def test_C1_plain_threads_and_messages_from_elsewhere_get_none(t: Thread) -> None:
    t.commit_message(Message("user", (Text("from the gateway"),)))
    assert t.checkpoints() == []
    with weft.open() as plain:
        plain.user("hi")
        assert plain.checkpoints() == []


def test_C1_checkpoints_are_listed_oldest_first(example: Thread) -> None:
    before = ids(example)
    example.user("one more")
    assert ids(example)[:-1] == before


# C2, C3: the examples of the requirement


def test_C3_a_to_b(abc: Named) -> None:
    t, a, b, _ = abc
    t.compact([{"from": a, "to": b, "summary": "sum"}])
    assert compiled_lines(abc) == [
        "s:You_help.", "u:content @1", "a:sum", "a:content_2 !r2", "u:=r2 @3", "a:content_3",
    ]  # fmt: skip
    assert_valid_for_every_vendor(t)


def test_C3_a_to_c(abc: Named) -> None:
    t, a, _, c = abc
    t.compact([{"from": a, "to": c, "summary": "sum"}])
    assert compiled_lines(abc) == ["s:You_help.", "u:content @1", "a:sum", "a:content_3"]
    assert_valid_for_every_vendor(t)


def test_C3_a_to_end(abc: Named) -> None:
    t, a, _, _ = abc
    t.compact([{"from": a, "summary": "sum"}])
    assert compiled_lines(abc) == ["s:You_help.", "u:content @1", "a:sum"]
    assert_valid_for_every_vendor(t)


def test_C3_start_to_b(abc: Named) -> None:
    t, _, b, _ = abc
    t.compact([{"to": b, "summary": "sum"}])
    assert compiled_lines(abc) == [
        "s:You_help.",
        "a:sum",
        "a:content_2 !r2",
        "u:=r2 @3",
        "a:content_3",
    ]
    assert_valid_for_every_vendor(t)


def test_C3_start_to_c_encodes_with_an_assistant_first(
    abc: Named,
) -> None:
    t, _, _, c = abc
    t.compact([{"to": c, "summary": "sum"}])
    assert compiled_lines(abc) == ["s:You_help.", "a:sum", "a:content_3"]
    assert_valid_for_every_vendor(t)
    t.user("go on")
    assert_valid_for_every_vendor(t)


def test_C3_a_message_keeps_what_stands_before_from_and_behind_to(t: Thread) -> None:
    t.user("first")
    t.assistant("middle")
    t.user("second")
    a, b = ids(t)
    late = Message("user", (Text("before"), Checkpoint(b), Text("after")))
    with weft.open(checkpoints=True) as other:
        other.commit_message(Message("user", (Text("kept"), Checkpoint(a), Text("folded"))))
        other.commit_message(Message("assistant", (Text("folded too"),)))
        other.commit_message(late)
        other.compact([{"from": a, "to": b, "summary": "sum"}])
        texts = [m.text for m in other.compile().messages]
        assert texts == [f"kept\n<checkpoint:{a}>", "sum", "after"]


def test_C2_empty_summary(abc: Named) -> None:
    t, a, b, _ = abc
    t.compact([{"from": a, "to": b, "summary": " \n"}])
    assert compiled_lines(abc) == [
        "s:You_help.", "u:content @1", "a:content_2 !r2", "u:=r2 @3", "a:content_3",
    ]  # fmt: skip
    assert_valid_for_every_vendor(t)


def test_C2_neither_end_is_the_whole_thread_but_its_system_run(example: Thread) -> None:
    example.compact([{"summary": "all of it"}])
    assert compiled_lines((example,)) == ["s:You_help.", "a:all_of_it"]


def test_C2_pinned_messages_in_a_range_stay_before_the_summary_and_are_named(t: Thread) -> None:
    t.user("one")
    pinned = t.user("always use tabs", reminder="kept, because it is pinned")
    t.pin(pinned)
    before = next(m for m in t.compile().messages if "tabs" in m.text)
    t.assistant("two")
    t.user("three")
    result = t.compact([{"to": ids(t)[-1], "summary": "sum"}])
    assert t.compile().messages == (before, Message("assistant", (Text("sum"),)))
    assert result.pins_kept == (pinned.id,)
    assert "always use tabs" in str(result)


def test_C2_a_thread_without_turns_is_refused(t: Thread) -> None:
    with pytest.raises(CompactRefused, match="no messages"):
        t.compact([{"summary": "x"}])
    t.system("rules")
    with pytest.raises(CompactRefused, match="only system messages"):
        t.compact([{"summary": "x"}])


# C4


def kinds(thread: Thread) -> set[type]:
    return {type(block) for m in thread.compile().messages for block in m.blocks}


def test_C4_reminders_stripped(abc: Named) -> None:
    t, a, b, _ = abc
    assert Reminder in kinds(t)
    t.compact([{"from": a, "to": b, "summary": "sum"}])
    assert Reminder not in kinds(t)


def test_C4_thinking_stripped(abc: Named) -> None:
    t, a, b, _ = abc
    assert {Thinking, Redacted} <= kinds(t)
    t.compact([{"from": a, "to": b, "summary": "sum"}])
    assert not {Thinking, Redacted} & kinds(t)


def test_C4_text_that_only_looks_like_a_reminder_stays(t: Thread) -> None:
    text = "<system-reminder>CLAUDE.md: use tabs</system-reminder>"
    t.user("one")
    t.user(text)
    t.compact([{"to": ids(t)[0], "summary": "sum"}])
    assert text in t.compile().messages[-1].text


def test_C4_what_was_stripped_is_in_the_commits_record(abc: Named) -> None:
    t, a, b, _ = abc
    result = t.compact([{"from": a, "to": b, "summary": "sum"}])
    stripped = t.show(result.commit).metadata["stripped"]
    remaining = set(t.compile().ids)
    assert [row["type"] for row in stripped] == [
        "reminder", "thinking", "redacted", "reminder", "thinking", "redacted",
    ]  # fmt: skip
    assert {row["id"] for row in stripped} <= remaining
    assert stripped[0]["text"] == "remember"


def test_C4_checkpoints_outside_the_range_stay_usable(abc: Named) -> None:
    t, a, b, c = abc
    t.compact([{"from": a, "to": b, "summary": "sum"}])
    assert ids(t) == [a, c]
    t.compact([{"from": a, "to": c, "summary": "sum of both"}])
    assert compiled_lines(abc) == ["s:You_help.", "u:content @1", "a:sum_of_both", "a:content_3"]


def test_C4_strip_after_leaves_what_stands_before_the_first_range(
    abc: Named,
) -> None:
    t, _, b, c = abc
    before = t.compile().messages
    t.compact([{"from": b, "to": c, "summary": "sum"}], strip="after")
    assert t.compile().messages[:4] == before[:4]
    assert t.compile().messages[4:] == (
        Message("assistant", (Text("sum"),)),
        Message("assistant", (Text("content 3"),)),
    )


# C5


def test_C5_the_call_becomes_words_and_gets_no_result(abc: Named) -> None:
    t, _, b, _ = abc
    t.commit_message(Message("assistant", (Text("too long"), ToolCall("me", "compact", "{}"))))
    t.compact([{"to": b, "summary": "sum"}], call_id="me")
    assert t.compile().messages[-1].blocks == (Text("too long"), Text(COMPACTED))
    assert COMPACTED == "I compacted the thread"
    t.user("go on")
    assert_valid_for_every_vendor(t)


def test_C5_other_calls_keep_their_results(abc: Named) -> None:
    t, _, b, _ = abc
    calls = (ToolCall("me", "compact", "{}"), ToolCall("r3", "read", "{}"))
    t.commit_message(Message("assistant", calls))
    result = t.compact([{"to": b, "summary": "sum"}], call_id="me")
    assert result.dropped_calls == ()
    t.tool_result("r3", "response 3")
    assert t.compile().messages[-2].blocks == (Text(COMPACTED), calls[1])
    assert_valid_for_every_vendor(t)


def test_C5_a_range_that_takes_the_call_takes_the_others_results_too(
    abc: Named,
) -> None:
    t, a, _, _ = abc
    calls = (ToolCall("me", "compact", "{}"), ToolCall("r3", "read", "{}"))
    t.commit_message(Message("assistant", calls))
    result = t.compact([{"from": a, "summary": "sum"}], call_id="me")
    assert compiled_lines(abc) == ["s:You_help.", "u:content @1", "a:sum"]
    assert result.dropped_calls == ("r3",)  # the loop must not commit its result any more


def test_C5_on_failure_the_call_stays(abc: Named) -> None:
    t, _, _, _ = abc
    t.commit_message(Message("assistant", (ToolCall("me", "compact", "{}"),)))
    before = t.compile().messages
    with pytest.raises(CompactRefused):
        t.compact([{"to": "zzzzzz", "summary": "sum"}], call_id="me")
    assert t.compile().messages == before


def test_C5_then_the_thread_goes_on_by_itself_with_no_word_the_user_did_not_say() -> None:
    with weft.open(checkpoints=True) as thread:
        agent = weft.Agent(thread)
        agent.send("remember src/a.py")
        agent.send("please compact the thread")
        *_, call, turn, last = thread.compile().messages
    assert call == Message("assistant", (Text(COMPACTED),), origin=call.origin)
    assert [type(block) for block in turn.blocks] == [Reminder, Checkpoint]
    assert last.role == "assistant"
    assert last.text


def test_C5_the_agent_sees_a_failure_as_an_error_result_that_names_the_field() -> None:
    with weft.open(checkpoints=True) as thread:
        foreign = (Text("hi"), Text("<checkpoint:zzzzzz>"))
        thread.commit_message(Message("user", foreign))
        thread.assistant("hello")
        weft.Agent(thread).send("please compact the thread")
        *_, call, turn, _ = thread.compile().messages
    assert isinstance(call.blocks[-1], ToolCall)
    result = turn.blocks[0]
    assert isinstance(result, ToolResult)
    assert result.is_error
    assert "replacements[0].to: checkpoint 'zzzzzz' is not in this thread" in turn.text


# C6


def test_C6_several(abc: Named) -> None:
    t, a, b, c = abc
    first = {"to": a, "summary": "one"}
    second = {"from": b, "to": c, "summary": "two"}
    results = []
    for order in ([first, second], [second, first]):
        t.compact(order)
        results.append(compiled_lines(abc))
        t.undo()
    assert results[0] == results[1]
    assert results[0] == [
        "s:You_help.", "a:one", "a:content_1 !r1", "u:=r1 @2", "a:two", "a:content_3",
    ]  # fmt: skip


def test_C6_touching_ranges_are_fine(abc: Named) -> None:
    t, a, b, c = abc
    t.compact([{"from": b, "to": c, "summary": "two"}, {"from": a, "to": b, "summary": "one"}])
    assert compiled_lines(abc) == ["s:You_help.", "u:content @1", "a:one", "a:two", "a:content_3"]


@pytest.mark.parametrize(
    ("replacements", "field"),
    [
        ([{"to": "zzzzzz", "summary": "x"}], "replacements[0].to"),  # nobody's
        ([{"from": "OTHER", "summary": "x"}], "replacements[0].from"),  # another thread's
        ([{"from": "B", "to": "A", "summary": "x"}], "replacements[0].from"),
        ([{"from": "A", "to": "A", "summary": "x"}], "replacements[0].to"),
        ([{"to": "B", "summary": "x"}, {"from": "A", "to": "C", "summary": "y"}],
         "replacements[1]"),
        ([{"to": "B"}], "replacements[0].summary"),
        ([{"to": "B", "summary": "x"}, {"from": "B", "summary": 7}], "replacements[1].summary"),
        ([{"to": 7, "summary": "x"}], "replacements[0].to"),
        (["B"], "replacements[0]"),
        ([], "replacements"),
    ],
)  # fmt: skip
def test_C6_wrong_input_names_the_field_and_changes_nothing(
    abc: Named, replacements: list[Any], field: str
) -> None:
    t, a, b, c = abc
    with weft.open(checkpoints=True) as other:
        other.user("elsewhere")
        known = {"A": a, "B": b, "C": c, "OTHER": ids(other)[0]}
    filled = [
        {k: known.get(v, v) if isinstance(v, str) else v for k, v in item.items()}
        if isinstance(item, dict)
        else item
        for item in replacements
    ]
    before, head = t.compile().messages, t.head
    with pytest.raises(CompactRefused) as refused:
        t.compact(filled)
    assert refused.value.field == field
    assert (t.compile().messages, t.head) == (before, head)


@pytest.mark.parametrize(
    ("replacements", "field"),
    [
        (5, "replacements"),
        ("bbbbbb", "replacements"),
        ({"summary": "x"}, "replacements"),
        ([weft.Replacement(summary=None)], "replacements[0].summary"),
    ],
)
def test_C6_what_is_no_list_of_ranges_is_refused_too(
    example: Thread, replacements: Any, field: str
) -> None:
    with pytest.raises(CompactRefused) as refused:
        example.compact(replacements)
    assert refused.value.field == field


# C7


@pytest.mark.parametrize(
    "taught",
    [
        "When to use it", "thread has grown long", "same thing tried several times",
        "How checkpoints work", "<checkpoint:ab12cd>", "Without `from`", "without `to`",
        "How to write a good summary", "constraint", "file paths", "next step",
    ],
)  # fmt: skip
def test_C7_the_description_teaches_when_how_and_what_to_write(taught: str) -> None:
    assert taught in weft.COMPACT_TOOL.description


def test_C7_the_schema_has_the_seeds_three_fields() -> None:
    item = weft.COMPACT_TOOL.parameters["properties"]["replacements"]["items"]
    assert set(item["properties"]) == {"from", "to", "summary"}
    assert item["required"] == ["summary"]


# C8


def test_C8_a_user_message_is_results_text_reminder_checkpoint(t: Thread) -> None:
    answer(t, "look", "r1", "r2")
    results = [ToolResult("r1", (Text("one"),)), ToolResult("r2", (Text("two"),))]
    t.tool_results(results, text="and this", reminder="be brief")
    turn = t.compile().messages[-1]
    assert [type(block) for block in turn.blocks] == [
        ToolResult, ToolResult, Text, Reminder, Checkpoint,
    ]  # fmt: skip


def test_C8_a_reminder_is_a_text_block_on_the_wire(t: Thread) -> None:
    t.user("hi", reminder="be brief")
    marker = f"<checkpoint:{ids(t)[0]}>"
    texts = [part["text"] for part in t.compile().to_anthropic()["messages"][0]["content"]]
    assert texts == ["hi", "<system-reminder>be brief</system-reminder>", marker]


# C9


def test_C9_the_result_has_tokens_ranges_and_a_line_for_a_person(
    abc: Named,
) -> None:
    t, a, c = abc[0], abc[1], abc[3]
    before = t.compile().tokens
    result = t.compact([{"from": a, "to": c, "summary": "sum"}])
    assert (result.tokens_before, result.tokens_after) == (before, t.compile().tokens)
    assert result.tokens_after < result.tokens_before
    assert [(folded.from_, folded.to, folded.messages) for folded in result.ranges] == [(a, c, 4)]
    assert str(result).startswith("compacted 4 messages: ")
    assert "\n" not in str(result)


def test_C9_watchers_hear_the_events_of_v3(abc: Named) -> None:
    t, a, b, _ = abc
    events: list[SystemMessage] = []
    t.listen(events.append)
    result = t.compact([{"from": a, "to": b, "summary": "sum"}])
    metadata = {
        "trigger": "manual",
        "pre_tokens": result.tokens_before,
        "post_tokens": result.tokens_after,
    }
    assert events == [
        SystemMessage("status", {"status": "compacting"}),
        SystemMessage("compact_boundary", {"compact_metadata": metadata}),
    ]
    for event in events:
        look = display_system_message({"type": "system", "subtype": event.subtype, **event.data})
        assert look is not None


def test_C9_a_refused_compaction_says_nothing_to_watchers(example: Thread) -> None:
    events: list[SystemMessage] = []
    example.listen(events.append)
    with pytest.raises(CompactRefused):
        example.compact([{"to": "zzzzzz", "summary": "sum"}])
    assert events == []


def test_C9_the_next_compile_is_right_and_the_next_turn_goes_on(
    abc: Named,
) -> None:
    t, a, _, c = abc
    t.compact([{"from": a, "to": c, "summary": "sum"}])
    t.user("next")
    texts = [m.text.split("\n")[0] for m in t.compile().messages]
    assert texts == ["You help.", "content", "sum", "content 3", "next"]
    assert ids(t)[0] == a
    assert ids(t)[-1] not in {a, c}


def test_C9_a_preview_writes_nothing(abc: Named) -> None:
    t, a, b, _ = abc
    before, head = t.compile().messages, t.head
    result = t.compact([{"from": a, "to": b, "summary": "sum"}], preview=True)
    assert str(result).startswith("would compact 2 messages")
    assert (t.compile().messages, t.head, result.commit) == (before, head, None)


def test_C9_a_compaction_is_taken_back_with_later_turns_kept(
    abc: Named,
) -> None:
    t, a, b, _ = abc
    before = t.compile().messages
    result = t.compact([{"from": a, "to": b, "summary": "sum"}])
    t.user("later")
    t.revert(result.commit)
    after = t.compile().messages
    assert after[: len(before)] == before
    assert after[-1].text.startswith("later")


def test_C9_the_same_door_takes_a_budget(t: Thread) -> None:
    t.system("You help.")
    for n in range(30):
        t.user(f"Question {n} about src/module_{n}.py, please.")
        t.assistant(f"Answer {n}: function handle_{n} raises ValueError on line 1{n}0. " * 3)
    result = t.compact(budget=600)
    compiled = t.compile()
    assert compiled.tokens <= 600
    assert result.tokens_after == compiled.tokens
    assert compiled.kinds[1] == "summary"
    assert compiled.messages[1].role == "user"
    assert "Question 29" in compiled.messages[-2].text
    assert_valid_for_every_vendor(t)
