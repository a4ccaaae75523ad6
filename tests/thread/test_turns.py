"""Turns with checkpoints and reminders, vendors' answers, and prefixes of requests."""

from pathlib import Path
from typing import Any

import pytest

import weft
from weft.compact import SystemMessage, mark_summary
from weft.errors import CompactRefused, ThreadError
from weft.model import Checkpoint, Message, Reminder, Text, Thinking, ToolCall, ToolResult
from weft.thread import find_prefix


def test_every_user_turn_ends_with_a_checkpoint() -> None:
    t = weft.open(checkpoints=True)
    t.system("s")
    t.user("hello", reminder="be brief")
    t.assistant("hi")
    t.commit_message(Message("assistant", (ToolCall("c", "f", "{}"),)))
    t.tool_result("c", "4", reminder="go on")
    blocks = [message.blocks for message in t.compile().messages]
    marks = t.checkpoints()
    assert len(marks) == 2
    assert len({mark.id for mark in marks}) == 2
    assert blocks[1] == (Text("hello"), Reminder("be brief"), marks[0])
    assert blocks[4] == (ToolResult("c", (Text("4"),)), Reminder("go on"), marks[1])
    assert not any(isinstance(b, Checkpoint) for n in (0, 2, 3) for b in blocks[n])


def test_all_results_of_a_turn_share_one_checkpoint() -> None:
    t = weft.open(checkpoints=True)
    results = [ToolResult("a", (Text("1"),)), ToolResult("b", (Text("2"),))]
    t.tool_results(results, text="and?", reminder="r")
    (message,) = t.compile().messages
    assert message.blocks == (*results, Text("and?"), Reminder("r"), t.checkpoints()[0])


def test_on_the_wire_a_checkpoint_is_a_separate_text_block() -> None:
    t = weft.open(checkpoints=True)
    t.user("hello")
    marker = f"<checkpoint:{t.checkpoints()[0].id}>"
    compiled = t.compile()
    assert compiled.to_openai()[0]["content"][1] == {"type": "text", "text": marker}
    assert compiled.to_anthropic()["messages"][0]["content"][1]["text"] == marker
    assert compiled.to_responses()[0]["content"][1] == {"type": "input_text", "text": marker}
    assert compiled.to_dicts()[0]["content"] == f"hello\n{marker}"


def test_plain_threads_have_no_checkpoints_and_the_setting_stays(tmp_path: Path) -> None:
    t = weft.open()
    t.user("a")
    assert t.checkpoints() == []
    with weft.open(tmp_path / "a.db", checkpoints=True) as t:
        t.user("a")
    with weft.open(tmp_path / "a.db") as t:
        t.user("b")
        assert len(t.checkpoints()) == 2


def test_checkpoints_are_unique_over_branches_and_undone_turns() -> None:
    t = weft.open(checkpoints=True)
    t.user("a")
    ids = {t.checkpoints()[0].id}
    t.undo()
    t.user("a")
    assert t.checkpoints()[0].id not in ids


def test_compaction_by_checkpoints_emits_its_events_and_keeps_the_rest() -> None:
    t = weft.open(checkpoints=True)
    events: list[SystemMessage] = []
    t.listen(events.append)
    for word in ("a", "b", "c"):
        t.user(word)
        t.assistant(word.upper())
    first, second, _ = [mark.id for mark in t.checkpoints()]
    result = t.compact([{"from": first, "to": second, "summary": "S"}])
    assert [event.subtype for event in events] == ["status", "compact_boundary"]
    texts = [message.text for message in t.compile().messages]
    assert texts[1] == "S"
    assert texts[-2].startswith("c")
    assert "compacted" in str(result)
    with pytest.raises(weft.CompactRefused):
        t.compact([{"from": "zzzzzz", "summary": "S"}])
    assert len(events) == 2
    assert [message.text for message in t.compile().messages] == texts


def test_a_budget_compacts_visible_messages_and_keeps_hidden_ones() -> None:
    t = weft.open()
    ids = [t.user(f"the file src/m{n}.py has {n} faults, " * 20).id for n in range(12)]
    t.skip(ids[-2])
    t.pin(ids[1])
    before = t.compile().tokens
    preview = t.compact(budget=before // 2, preview=True)
    assert t.compile().tokens == before
    result = t.compact(budget=before // 2)
    assert result.tokens_after == preview.tokens_after == t.compile().tokens <= before // 2
    assert ids[1] in t.compile().ids
    assert ids[-2] not in t.compile().ids
    assert result.commit is not None
    t.revert(result.commit)
    assert t.compile().tokens == before


ANTHROPIC: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 10, "output_tokens": 5},
}
CHAT: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-x",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "f", "arguments": '{"a": 1}'},
                    }
                ],
            },
        }
    ],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
}
RESPONSES: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "gpt-x",
    "status": "completed",
    "output": [
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
        },
        {
            "id": "fc_1",
            "type": "function_call",
            "call_id": "call_1",
            "name": "f",
            "arguments": '{"a": 1}',
            "status": "completed",
        },
    ],
    "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
}


@pytest.mark.parametrize("answer", [ANTHROPIC, CHAT, RESPONSES], ids=["messages", "chat", "resp"])
def test_a_vendors_answer_keeps_calls_usage_and_model(answer: dict[str, Any]) -> None:
    t = weft.open()
    t.user("go")
    info = t.assistant(answer)
    (call,) = [b for b in t.compile().messages[1].blocks if isinstance(b, ToolCall)]
    assert call.name == "f"
    assert t.compile().messages[1].text == "I look."
    assert info.generation_config is not None
    assert info.generation_config["model"] == answer["model"]
    shown = t.show(info.id)
    assert shown.usage is not None
    assert (shown.usage.input, shown.usage.output) == (10, 5)
    assert info.message == "dialogue: I look."


def test_a_signature_of_an_answer_is_stored_and_sent_back() -> None:
    t = weft.open()
    t.user("go")
    t.assistant(ANTHROPIC)
    t.tool_result("toolu_1", "4")
    assert Thinking("hm", "sig") in t.compile().messages[1].blocks
    assert t.compile().to_anthropic()["messages"][1]["content"] == ANTHROPIC["content"]


def test_an_sdk_object_is_read_like_its_dict() -> None:
    from anthropic.types import Message as Answer

    plain, typed = weft.open(), weft.open()
    assert typed.assistant(Answer.model_validate(ANTHROPIC)).id == plain.assistant(ANTHROPIC).id


@pytest.mark.parametrize("answer", [{"foo": 1}, 42, ["a"]])
def test_a_value_that_is_not_an_answer_is_refused(answer: Any) -> None:
    t = weft.open()
    with pytest.raises(ThreadError):
        t.assistant(answer)
    assert t.log() == []


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def bot(text: str) -> Message:
    return Message("assistant", (Text(text),))


@pytest.fixture(params=["memory", "sqlite"])
def scoped(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    target = None if request.param == "memory" else tmp_path / "a.db"
    with weft.open(target, "one", scope="key") as t:
        yield t


def test_a_request_finds_the_longest_prefix_it_continues(scoped: weft.Thread) -> None:
    for message in (Message("system", (Text("S"),)), user("a"), bot("b")):
        scoped.commit_message(message)
    asked = [Message("system", (Text("other"),)), user("a"), bot("b"), user("c")]
    prefix = find_prefix(scoped.store, "key", asked)
    assert prefix is not None
    assert (prefix.thread, prefix.branch, prefix.length, prefix.is_head) == ("one", "main", 3, True)
    assert scoped.head is not None
    assert prefix.commit.hex() == scoped.head.id
    earlier = find_prefix(scoped.store, "key", [user("a"), user("no")])
    assert earlier is not None
    assert (earlier.length, earlier.branch, earlier.is_head) == (1, "main", False)
    assert find_prefix(scoped.store, "another", asked) is None
    assert find_prefix(scoped.store, "key", [user("x")]) is None


def test_differences_in_spelling_do_not_matter(scoped: weft.Thread) -> None:
    call = ToolCall("c1", "f", '{"a": 1, "b": 2}')
    scoped.commit_message(user("a"))
    scoped.commit_message(Message("assistant", (Thinking("hm", "s"), Text("b"), call)))
    echoed = [
        Message("user", (Text("a", ext={"anthropic": {"x": 1}}),), form="list"),
        bot("b"),  # grouped otherwise
        Message("assistant", (ToolCall("renamed", "f", '{"b":2,"a":1.0}'),)),
    ]
    prefix = find_prefix(scoped.store, "key", echoed)
    assert prefix is not None
    assert prefix.length == 3


def test_after_a_rewrite_the_prefix_is_the_visible_content(scoped: weft.Thread) -> None:
    first = scoped.commit_message(user("a"))
    scoped.commit_message(bot("b"))
    scoped.edit(first, "A")
    prefix = find_prefix(scoped.store, "key", [user("A"), bot("b"), user("c")])
    assert prefix is not None
    assert (prefix.length, prefix.is_head) == (2, True)


S = mark_summary("S").text


def test_a_custom_summary_replaces_all_but_the_turns_to_keep() -> None:
    t = weft.open()
    t.system("rules")
    rule = t.user("never touch the API")
    t.pin(rule)
    for n in range(3):
        t.user(f"question {n}")
        t.assistant(f"answer {n}")
    result = t.compact(keep=1, summary="S", preview=True)
    assert [row.message.text for row in result.rows if row.id is None] == [S]
    t.compact(keep=1, summary="S")
    left = [message.text for message in t.compile().messages]
    assert left == ["rules", "never touch the API", S, "question 2", "answer 2"]
    with pytest.raises(CompactRefused, match="each of them has a summary"):
        t.compact([{"summary": "T"}], summary="S")
