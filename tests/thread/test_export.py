"""Threads exported as session files: old lines byte for byte, new ones in the right chain."""

import json
from typing import Any
from uuid import UUID

import pytest

import weft
from claude_lines import SESSION, Session
from weft.model import Message, Text, ToolCall
from weft.store import MemoryStore, Store
from weft.thread import export_bytes, import_bytes


@pytest.fixture
def session() -> Session:
    """Two turns, a compaction, one turn behind it."""
    session = Session()
    session.user("a")
    session.progress()
    session.says("m1", "b")
    session.compacts("SUMMARY")
    session.raw({"type": "last-prompt", "lastPrompt": "c", "leafUuid": session.last})
    session.progress()
    session.user("c")
    session.says("m2", "d")
    return session


@pytest.fixture
def store(session: Session) -> Store:
    store = MemoryStore()
    import_bytes(store, session.data)
    return store


def written(store: Store, thread: str = SESSION, branch: str | None = None) -> bytes:
    return export_bytes(store, thread, "claude-code", branch=branch)[0]


def spoken(data: bytes) -> list[str]:
    """The texts up the chain from the last turn to a boundary, oldest first."""
    values = [json.loads(line) for line in data.splitlines()]
    by_uuid = {value["uuid"]: value for value in values if "uuid" in value}
    value: Any = [value for value in values if value.get("type") in ("user", "assistant")][-1]
    texts: list[str] = []
    while value is not None:
        if "message" in value:
            content = value["message"]["content"]
            texts.append(content if isinstance(content, str) else content[0].get("text", "-"))
        value = None if value["parentUuid"] is None else by_uuid[value["parentUuid"]]
    return texts[::-1]


def same_lines(old: bytes, new: bytes) -> tuple[int, int]:
    """How many lines of the old file are missing, and how many lines of the new one are new."""
    before, after = old.splitlines(), new.splitlines()
    return len(set(before) - set(after)), len(set(after) - set(before))


def fold_of(thread: weft.Thread) -> Any:
    return next(info for info in thread.log() if info.kind == "compact")


def test_a_reverted_compaction_leaves_no_boundary(session: Session, store: Store) -> None:
    thread = weft.open(store, SESSION)
    assert spoken(written(store)) == ["SUMMARY", "c", "d"]
    thread.revert(fold_of(thread))
    out = written(store)
    assert spoken(out) == ["a", "b", "c", "d"]
    assert b"compact_boundary" not in out
    # boundary and summary are gone; the line behind them and the pointer at them say another uuid
    assert same_lines(session.data, out) == (4, 2)


def test_a_reverted_export_is_imported_as_the_same_conversation(store: Store) -> None:
    thread = weft.open(store, SESSION)
    thread.revert(fold_of(thread))
    again = MemoryStore()
    (imported,) = import_bytes(again, written(store))
    assert imported.remarks == ()
    assert weft.open(again, SESSION).compile().messages == thread.compile().messages


def test_reverting_the_revert_restores_the_file(session: Session, store: Store) -> None:
    thread = weft.open(store, SESSION)
    thread.revert(fold_of(thread))
    thread.undo()
    assert written(store) == session.data


def test_new_turns_follow_the_last_line(session: Session, store: Store) -> None:
    thread = weft.open(store, SESSION)
    thread.user("e")
    thread.assistant("f")
    out = written(store)
    assert out.startswith(session.data)
    assert spoken(out) == ["SUMMARY", "c", "d", "e", "f"]
    last = json.loads(out.splitlines()[-1])
    assert (last["sessionId"], last["cwd"], last["type"]) == (SESSION, "/project", "assistant")
    assert last["message"]["content"] == [{"type": "text", "text": "f"}]


def test_an_edited_turn_keeps_its_uuid(session: Session, store: Store) -> None:
    thread = weft.open(store, SESSION)
    thread.edit(thread.compile().ids[1], "C")
    out = written(store)
    assert spoken(out) == ["SUMMARY", "C", "d"]
    assert same_lines(session.data, out) == (1, 1)


def test_a_skipped_turn_is_left_out_of_the_chain(store: Store) -> None:
    thread = weft.open(store, SESSION)
    thread.skip(thread.compile().ids[1])
    assert spoken(written(store)) == ["SUMMARY", "d"]


def test_a_weft_compaction_is_a_separate_line(store: Store) -> None:
    thread = weft.open(store, SESSION)
    thread.revert(fold_of(thread))
    thread.compact([{"summary": "OURS"}])
    thread.user("next")
    out = written(store)
    assert spoken(out)[-2:] == ["OURS", "next"]
    again = MemoryStore()
    import_bytes(again, out)
    assert [m.text for m in weft.open(again, SESSION).compile().messages] == [
        m.text for m in thread.compile().messages
    ]


def test_an_earlier_commit_exports_its_content(session: Session, store: Store) -> None:
    thread = weft.open(store, SESSION)
    early = [info for info in thread.log() if info.kind == "append"][-1]
    thread.branch("early", early)
    assert spoken(written(store, branch="early")) == ["a"]
    assert written(store) == session.data


def test_a_merged_rewind_follows_the_turns_it_was_merged_into() -> None:
    session = Session()
    session.user("a")
    fork = session.says("m1", "b")
    session.user("wrong")
    session.user("right", parent=fork)
    store = MemoryStore()
    (imported,) = import_bytes(store, session.data)
    thread = weft.open(store, SESSION)
    thread.merge(next(name for name in imported.branches if name != "main"))
    texts = [message.text for message in thread.compile().messages]
    assert texts == ["a", "b", "right", "wrong"]
    again = MemoryStore()
    import_bytes(again, written(store))
    assert [m.text for m in weft.open(again, SESSION).compile().messages] == texts


def test_a_thread_without_a_session_is_exported_as_one() -> None:
    thread = weft.open(thread="own")
    thread.system("be brief")
    thread.user("a")
    thread.assistant("b")
    out = written(thread.store, "own")
    assert spoken(out) == ["<system-reminder>\nbe brief\n</system-reminder>", "a", "b"]
    assert out == written(thread.store, "own")


@pytest.mark.parametrize("format", ["anthropic", "openai-chat", "openai-responses", "gemini"])
def test_an_exported_body_is_imported_with_the_same_text(store: Store, format: str) -> None:
    body, _ = export_bytes(store, SESSION, format, model="m")
    again = MemoryStore()
    import_bytes(again, body, thread="t", format=format)
    text = "\n".join(message.text for message in weft.open(again, "t").compile().messages)
    assert text.split()[:3] == ["SUMMARY", "c", "d"]


def test_dicts_have_roles_and_text(store: Store) -> None:
    data, _ = export_bytes(store, SESSION, "dicts")
    assert [row["content"] for row in json.loads(data)] == ["SUMMARY", "c", "d"]


@pytest.mark.parametrize(
    ("thread", "format", "branch", "words"),
    [
        ("nowhere", "codex", None, "no thread 'nowhere'"),
        (SESSION, "word", None, "unknown export format 'word'"),
        (SESSION, "codex", "nowhere", "no branch 'nowhere'"),
    ],
)
def test_content_that_cannot_be_exported_is_refused(
    store: Store, thread: str, format: str, branch: str | None, words: str
) -> None:
    with pytest.raises(weft.WeftError, match=words):
        export_bytes(store, thread, format, branch=branch)


def test_a_rollout_of_a_weft_thread_starts_with_its_session() -> None:
    """Codex resumes by the id in a file's first line."""
    thread = weft.open(thread="own")
    thread.user("hi")
    data = export_bytes(thread.store, "own", "codex")[0]
    lines = [json.loads(line) for line in data.splitlines()]
    assert [line["type"] for line in lines] == ["session_meta", "response_item"]
    meta = lines[0]["payload"]
    assert UUID(meta["id"])
    assert lines[0]["timestamp"] == meta["timestamp"] == lines[1]["timestamp"]
    store = MemoryStore()
    (imported,) = import_bytes(store, data)
    assert imported.thread == meta["id"]
    weft.open(store, imported.thread).assistant("hello")
    again = export_bytes(store, imported.thread, "codex")[0]
    assert again.count(b"session_meta") == 1


ENVIRONMENT = "<environment_context>\n  <cwd>/p</cwd>\n</environment_context>"
AGENTS_FILE = "# AGENTS.md instructions for /my p\n\n<INSTRUCTIONS>\nTest it.\n</INSTRUCTIONS>"
OLD_AGENTS_FILE = "<user_instructions>\n\nTest it.\n\n</user_instructions>"


def codex_message(role: str, *texts: str) -> Message:
    return Message(role, tuple(map(Text, texts)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("message", "is_written"),
    [
        (codex_message("system", "You are Codex."), False),
        (codex_message("developer", "You are Codex."), False),
        (codex_message("developer", "<skills_instructions>none</skills_instructions>"), False),
        (codex_message("user", ENVIRONMENT), False),
        (codex_message("user", AGENTS_FILE, ENVIRONMENT), False),
        (codex_message("user", OLD_AGENTS_FILE), False),
        (codex_message("user", "<turn_aborted>by the user</turn_aborted>"), True),  # sent once
        (codex_message("user", f"Explain this: {ENVIRONMENT}"), True),  # the user typed it
        (codex_message("user", f"{ENVIRONMENT} What is this?"), True),
        (codex_message("user", ENVIRONMENT, "What is this?"), True),
        (codex_message("assistant", ENVIRONMENT), True),
    ],
)
@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_rollout_has_no_context_that_codex_sends_again(
    message: Message, is_written: bool, is_compacted: bool
) -> None:
    """Codex sends its own prompts and context to every session without a `turn_context` line."""
    thread = weft.open(thread="recorded")
    thread.user("a")
    thread.assistant("b")
    thread.commit_message(message, priority="pinned")
    if is_compacted:
        thread.compact(summary="c", keep=0)
    thread.user("d")
    data = export_bytes(thread.store, "recorded", "codex")[0]
    items = [json.loads(line)["payload"] for line in data.splitlines()]
    items += [item for payload in items for item in payload.get("replacement_history", ())]
    parts = [part["text"] for item in items for part in item.get("content", ())]
    texts = [block.text for block in message.blocks if isinstance(block, Text)]
    assert set(texts) <= set(parts) if is_written else set(texts).isdisjoint(parts)
    assert "d" in parts


def test_an_instruction_that_a_person_added_is_in_the_rollout() -> None:
    thread = weft.open(thread="own")
    thread.system("Be brief.")
    thread.user("a")
    assert b"Be brief." in export_bytes(thread.store, "own", "codex")[0]


def test_context_in_an_imported_rollout_stays() -> None:
    """Codex does not send it again, because the file has a `turn_context` line."""
    payloads: list[tuple[str, dict[str, Any]]] = [
        ("session_meta", {"id": SESSION, "cwd": "/p"}),
        ("response_item", rollout_item("developer", "Skills: none.")),
        ("response_item", rollout_item("user", ENVIRONMENT)),
        ("turn_context", {"cwd": "/p"}),
        ("response_item", rollout_item("user", "a")),
    ]
    lines = [json.dumps({"timestamp": "", "type": kind, "payload": p}) for kind, p in payloads]
    data = "".join(f"{line}\n" for line in lines).encode()
    store = MemoryStore()
    (imported,) = import_bytes(store, data)
    assert export_bytes(store, imported.thread, "codex")[0] == data
    weft.open(store, imported.thread).assistant("b")
    assert export_bytes(store, imported.thread, "codex")[0].startswith(data)


def rollout_item(role: str, text: str) -> dict[str, Any]:
    part = {"type": "input_text", "text": text}
    return {"type": "message", "role": role, "content": [part]}


def test_calls_and_results_are_items_of_a_rollout() -> None:
    thread = weft.open(thread="tools")
    thread.user("where am I?")
    calls = (ToolCall("call_1", "Bash", '{"command":"ls"}'), ToolCall("call_2", "Bash", "{}"))
    thread.assistant(Message("assistant", (Text("I look."), *calls)))
    for call in calls:
        thread.tool_result(call.id, f"result of {call.id}")
    thread.assistant("here")
    data = export_bytes(thread.store, "tools", "codex")[0]
    payloads = [json.loads(line)["payload"] for line in data.splitlines()[1:]]
    assert [(item["type"], item.get("call_id"), item.get("output")) for item in payloads] == [
        ("message", None, None),
        ("message", None, None),
        ("function_call", "call_1", None),
        ("function_call", "call_2", None),
        ("function_call_output", "call_1", "result of call_1"),
        ("function_call_output", "call_2", "result of call_2"),
        ("message", None, None),
    ]
    (imported,) = import_bytes(thread.store, data)
    assert (imported.thread, imported.new) == ("tools", 0)


def test_a_result_that_follows_imported_calls_is_an_item_of_the_rollout() -> None:
    store = MemoryStore()
    thread = weft.open(store, "first")
    thread.user("where am I?")
    thread.assistant(Message("assistant", (ToolCall("call_1", "Bash", "{}"),)))
    rollout = export_bytes(store, "first", "codex")[0].splitlines(keepends=True)
    lines = [line for line in rollout if b"function_call_output" not in line]
    other = MemoryStore()
    (imported,) = import_bytes(other, b"".join(lines))
    thread = weft.open(other, imported.thread)
    thread.tool_result("call_1", "here")
    exported = export_bytes(other, imported.thread, "codex")[0].splitlines(keepends=True)
    assert exported[:-1] == lines
    item = json.loads(exported[-1])["payload"]
    assert (item["type"], item["output"]) == ("function_call_output", "here")
