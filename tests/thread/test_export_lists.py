"""Unchanged message lists and bodies are exported as imported, changed ones in the same format."""

import json
from typing import Any

import pytest
from msgspec import structs

import weft
from weft.history import Draft
from weft.model import Message, Origin, Redacted, Text, ToolCall, ToolResult, texts
from weft.store import MemoryStore, Store
from weft.thread import archive_bytes, export_bytes, forget, fsck, import_bytes, read_origin

MODEL = "claude-opus-4-6"
MARK = {"type": "ephemeral"}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
BODY: dict[str, Any] = {
    "max_tokens": 2000,
    "model": MODEL,
    "system": "be brief",
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": MARK}]},
        {"role": "assistant", "content": [THINKING, {"type": "text", "text": "yo"}]},
        {"role": "user", "content": "go on"},
    ],
    "metadata": {"user_id": "u"},
    "anything_new": [1],
}
CHAT = [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}]
GEMINI = {
    "systemInstruction": {"parts": [{"text": "s"}]},
    "contents": [{"role": "user", "parts": [{"text": "a"}]}],
    "generationConfig": {"temperature": 0.5},
}
RESPONSES = {
    "model": "gpt-5",
    "instructions": "s",
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}],
    "store": False,
}
DICTS = [{"content_type": "dialogue", "role": "user", "text": "go"}]
LINES = b'{"role":"user","content":"a"}\n{"role": "assistant", "content": "b"}\n'


def raw(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value, indent=1).encode()


def taken(value: Any) -> Store:
    store = MemoryStore()
    import_bytes(store, raw(value), thread="t")
    return store


def written(store: Store, model: str | None = None) -> tuple[Any, list[str]]:
    """The export that is given without a format, read again, and what was lost."""
    format = read_origin(store, "t")
    assert format is not None
    data, losses = export_bytes(store, "t", format, model=model)
    return json.loads(data), [f"{loss.path}: {loss.code}" for loss in losses]


@pytest.mark.parametrize("value", [BODY, BODY["messages"], CHAT, {"messages": CHAT, "model": "m"},
                                   GEMINI, GEMINI["contents"], RESPONSES, RESPONSES["input"],
                                   {"input": "a"}, DICTS, LINES, CHAT[1], DICTS[0],
                                   GEMINI["contents"][0]])  # fmt: skip
def test_an_unchanged_import_is_exported_byte_for_byte(value: Any) -> None:
    store = taken(value)
    format = read_origin(store, "t")
    assert format is not None
    assert export_bytes(store, "t", format) == (raw(value), ())


def test_a_body_with_its_own_model_is_unchanged() -> None:
    assert export_bytes(taken(BODY), "t", "anthropic", model=MODEL) == (raw(BODY), ())


NEXT = {"role": "user", "content": "more"}
PART = {"type": "input_text", "text": "more"}


@pytest.mark.parametrize(
    ("value", "member", "more"),
    [
        (BODY, "messages", NEXT),
        (BODY["messages"], None, NEXT),
        (CHAT, None, NEXT),
        ({"messages": CHAT, "model": "m", "seed": 3}, "messages", NEXT),
        (GEMINI, "contents", {"role": "user", "parts": [{"text": "more"}]}),
        (GEMINI["contents"], None, {"role": "user", "parts": [{"text": "more"}]}),
        (RESPONSES, "input", NEXT),
    ],
)
def test_added_messages_follow_the_others(value: Any, member: str | None, more: Any) -> None:
    store = taken(value)
    weft.open(store, "t").user("more")
    exported, losses = written(store)
    wanted = [*value, more] if member is None else {**value, member: [*value[member], more]}
    assert (exported, losses) == (wanted, [])
    if member is not None:
        assert list(exported) == list(value)


@pytest.mark.parametrize("value", [BODY, CHAT, GEMINI, RESPONSES], ids=lambda value: len(value))
def test_added_calls_and_results_follow_the_others(value: Any) -> None:
    store = taken(value)
    thread = weft.open(store, thread="t")
    calls = (ToolCall("call_1", "f", "{}"), ToolCall("call_2", "f", "{}"))
    sealed = Redacted("c2VhbGVk")  # only Anthropic can read it
    thread.assistant(Message("assistant", (sealed, *calls), origin=Origin("anthropic")))
    results = [ToolResult("call_1", (Text("one"),)), ToolResult("call_2", (Text("two"),))]
    thread.tool_results(results, text="and now?")
    exported, _ = written(store)
    again = weft.open(taken(exported), thread="t").compile().messages
    blocks = [block for message in again[-4:] for block in message.blocks]
    assert [block.id for block in blocks if isinstance(block, ToolCall)] == ["call_1", "call_2"]
    answered = [(b.call_id, *texts(b.content)) for b in blocks if isinstance(b, ToolResult)]
    assert answered == [("call_1", "one"), ("call_2", "two")]
    assert any(isinstance(block, Text) and block.text == "and now?" for block in blocks)


@pytest.mark.parametrize("value", [LINES, LINES.splitlines(keepends=True)[0]])
def test_json_lines_stay_lines(value: bytes) -> None:
    store = taken(value)
    weft.open(store, "t").user("more")
    data = export_bytes(store, "t", "openai-chat")[0]
    wanted = [*(json.loads(line) for line in value.splitlines()), NEXT]
    assert [json.loads(line) for line in data.splitlines()] == wanted


def test_a_mark_moves_with_its_message_and_changes_are_reported() -> None:
    store = taken(BODY)
    thread = weft.open(store, "t")
    thread.skip(thread.compile().ids[2])
    exported, losses = written(store)
    assert exported["messages"][0] == BODY["messages"][0]
    assert losses == []
    thread.edit(thread.compile().ids[1], "hello")
    exported, losses = written(store)
    assert "cache_control" not in json.dumps(exported)
    assert losses == ["messages[0].content[0]: cache_breakpoint_dropped"]


def test_another_model_gets_its_own_format_and_losses_are_reported() -> None:
    exported, losses = written(taken(BODY), model="claude-haiku-4-5")
    assert exported["model"] == "claude-haiku-4-5"
    assert exported["messages"][0] == BODY["messages"][0]
    assert exported["messages"][1]["content"][0] == THINKING
    assert "messages[0]: string_as_list" in losses
    assert "anything_new: member_dropped" in losses


def test_another_vendor_gets_no_marks() -> None:
    _, losses = export_bytes(taken(BODY), "t", "openai-chat", model="gpt-5")
    assert [loss.path for loss in losses if loss.code == "cache_breakpoint_dropped"] == [
        "messages[1].content[0]"
    ]


def test_thinking_of_a_list_goes_back_to_its_vendor() -> None:
    params = weft.open(taken(BODY), "t").compile().to_anthropic_params(MODEL)
    assert params["messages"][1]["content"][0] == THINKING


@pytest.mark.parametrize("value", [CHAT, CHAT[:1]])
def test_a_longer_list_extends_its_branch(value: list[Any]) -> None:
    store = taken(value)
    (imported,) = import_bytes(store, raw([*value, NEXT]), thread="t")
    assert list(imported.branches) == ["main"]
    assert written(store)[0] == [*value, NEXT]
    assert import_bytes(store, raw([*value, NEXT]), thread="t")[0].new == 0


@pytest.mark.parametrize("other", [[NEXT], [CHAT[0], NEXT], [NEXT, *CHAT]])
def test_another_list_becomes_another_branch(other: list[Any]) -> None:
    store = taken(CHAT)
    (imported,) = import_bytes(store, raw(other), thread="t")
    assert list(imported.branches) != ["main"]
    assert written(store)[0] == CHAT


def test_content_removed_by_a_hook_is_in_no_stored_file() -> None:
    def mask(draft: Draft) -> Draft:
        masked = tuple(Message(m.role, (Text("***"),)) for m in draft.messages)
        return structs.replace(draft, messages=masked) if draft.kind == "append" else draft

    store = MemoryStore()
    thread = weft.open(store, "t")
    thread.before(mask)
    data = raw([{"role": "user", "content": "my pin is 4711"}, {"role": "user", "content": "***"}])
    thread.import_bytes(data)
    assert b"4711" not in archive_bytes(store, ["t"])
    assert thread.import_bytes(data).new == 0


@pytest.mark.parametrize("secret", ["hunter2", 'pa"ss\\word', "two\nlines", "gehäuse"])
def test_a_forgotten_text_is_in_no_imported_file(secret: str) -> None:
    store = taken([{"role": "user", "content": f"my word is {secret}, keep it"}])
    forget(store, secret)
    data = export_bytes(store, "t", "openai-chat")[0]
    spellings = [secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]]
    files = [data, archive_bytes(store, ["t"])]
    assert [s for s in spellings for file in files if s.encode() in file] == []
    assert fsck(store).clean
    json.loads(data)


def test_a_file_changed_by_forget_is_generated_again() -> None:
    store = taken([{"role": "user", "content": "a word"}])
    forget(store, '"content"')
    weft.open(store, "t").user("more")
    exported = json.loads(export_bytes(store, "t", "openai-chat")[0])
    assert [row["content"] for row in exported["messages"]] == ["a word", "more"]
