"""Files of other programs become threads: grouped messages, kept lines, repaired chains."""

import json
from typing import Any

import pytest

import weft
from claude_lines import SESSION, Session
from weft.errors import WeftError
from weft.model import Thinking, ToolCall
from weft.store import MemoryStore, Store
from weft.thread import Imported, archive_bytes, export_bytes, forget, fsck, import_bytes


@pytest.fixture
def store() -> Store:
    return MemoryStore()


def take(store: Store, data: bytes | Any, **options: Any) -> Imported:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    (imported,) = import_bytes(store, raw, **options)
    return imported


def texts_of(store: Store, thread: str = SESSION, branch: str | None = None) -> list[str]:
    return [m.text or "-" for m in weft.open(store, thread, branch=branch).compile().messages]


def test_lines_with_one_message_id_are_one_entry(store: Store) -> None:
    session = Session()
    session.user("go")
    session.answer("m1", {"type": "thinking", "thinking": "hm", "signature": "s"})
    session.says("m1", "I look.")
    session.calls("m1", "c1")
    session.result("c1", "found")
    imported = take(store, session.data)
    answer = weft.open(store, SESSION).compile().messages[1]
    assert imported.messages == 3
    assert [type(block) for block in answer.blocks][::2] == [Thinking, ToolCall]
    info = weft.open(store, SESSION).log()[1]
    assert info.usage is not None
    assert info.generation_config == {"model": "claude-opus-4-6", "response_id": "m1"}


def test_results_of_parallel_calls_follow_each_other(store: Store) -> None:
    session = Session()
    session.user("go")
    first = session.calls("m1", "c1")
    second = session.calls("m1", "c2")
    session.result("c1", "one", parent=first)
    third = session.result("c2", "two", parent=second)
    session.progress(parent=third)
    session.says("m2", "done")
    imported = take(store, session.data)
    assert list(imported.branches) == ["main"]
    assert texts_of(store) == ["go", "-", "one", "two", "done"]


def test_a_result_may_come_before_the_next_call_of_its_answer(store: Store) -> None:
    session = Session()
    session.user("go")
    first = session.calls("m1", "c1")
    session.result("c1", "one", parent=first)
    second = session.calls("m1", "c2", parent=first)
    session.result("c2", "two", parent=second)
    session.says("m2", "done")
    imported = take(store, session.data)
    assert list(imported.branches) == ["main"]
    assert texts_of(store) == ["go", "-", "one", "two", "done"]
    assert export_bytes(store, SESSION, "claude-code")[0] == session.data


def test_a_rewound_turn_becomes_a_branch(store: Store) -> None:
    session = Session()
    session.user("a")
    fork = session.says("m1", "b")
    session.user("wrong")
    session.says("m2", "no")
    session.user("right", parent=fork)
    session.says("m3", "yes")
    imported = take(store, session.data)
    assert texts_of(store) == ["a", "b", "right", "yes"]
    (other,) = set(imported.branches) - {"main"}
    assert other.startswith("rewind-")
    assert texts_of(store, branch=other) == ["a", "b", "wrong", "no"]


def test_a_sidechain_becomes_a_branch_with_its_own_start(store: Store) -> None:
    session = Session()
    call = session.calls("m1", "task", parent=session.user("go"))
    session.user("look there", sidechain=True, agentId="agent7", parent=None)
    session.says("s1", "seen", sidechain=True, agentId="agent7")
    session.result("task", "it was there", parent=call)
    imported = take(store, session.data)
    assert texts_of(store) == ["go", "-", "it was there"]
    (side,) = set(imported.branches) - {"main"}
    assert side.startswith("sidechain-agent7")
    assert texts_of(store, branch=side) == ["look there", "seen"]
    assert export_bytes(store, SESSION, "claude-code")[0] == session.data


def test_a_compaction_is_a_commit_that_can_be_reverted(store: Store) -> None:
    session = Session()
    session.user("a")
    session.says("m1", "b")
    session.compacts("SUMMARY")
    session.user("c")
    take(store, session.data)
    thread = weft.open(store, SESSION)
    assert texts_of(store) == ["SUMMARY", "c"]
    (fold,) = [info for info in thread.log() if info.kind == "compact"]
    thread.revert(fold)
    assert texts_of(store) == ["a", "b", "c"]


def test_messages_preserved_by_a_compaction_keep_their_position(store: Store) -> None:
    session = Session()
    session.user("a")
    preserved = session.says("m1", "b")
    session.compacts("SUMMARY", (preserved,))
    session.user("c")
    take(store, session.data)
    before = [i.id for i in weft.open(store, SESSION).log() if i.kind == "append"][-2]
    compiled = weft.open(store, SESSION).compile()
    assert [m.text for m in compiled.messages] == ["SUMMARY", "b", "c"]
    assert compiled.ids[1] == before


def test_a_broken_chain_is_bridged_and_reported(store: Store) -> None:
    session = Session()
    session.user("a")
    session.says("m1", "b", parent="00000000-0000-4000-8000-00000000dead")
    imported = take(store, session.data)
    assert texts_of(store) == ["a", "b"]
    (remark,) = imported.remarks
    assert remark.what == "bridged"
    assert "dead is not in the file; taken to follow line 1" in remark.why


def test_an_answer_that_reports_a_failed_request_is_stored_and_not_sent(store: Store) -> None:
    session = Session()
    session.user("a")
    session.says("m1", "API Error: 529", isApiErrorMessage=True)
    session.user("again")
    take(store, session.data)
    assert texts_of(store) == ["a", "again"]
    assert export_bytes(store, SESSION, "claude-code")[0] == session.data


@pytest.mark.parametrize(
    "line",
    [
        '{"type":"queue-operation","operation":"dequeue"}',
        '{"type":"summary","summary":"caf\\u00e9","leafUuid":"x"}',  # escaped as it came
        '{"type":"x","lone":"\\ud83d"}',  # half of a pair, which UTF-8 cannot say
        '{"cut off',
        "",
        '{ "spaced" : 1 }',
        '{"returns":1}\r',
    ],
)
def test_lines_between_turns_are_exported_again(store: Store, line: str) -> None:
    session = Session()
    session.raw(line)
    session.user("a")
    session.raw(line)
    session.says("m1", "b")
    session.raw(line)
    take(store, session.data)
    assert texts_of(store) == ["a", "b"]
    assert export_bytes(store, SESSION, "claude-code")[0] == session.data


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n", b'\n{"type":"us', b"\n\xff\xfe\n"])
def test_the_end_of_a_file_is_kept(store: Store, end: bytes) -> None:
    session = Session()
    session.user("a")
    data = session.data.removesuffix(b"\n") + end
    take(store, data)
    assert export_bytes(store, SESSION, "claude-code")[0] == data


def test_importing_twice_adds_nothing(store: Store) -> None:
    session = Session()
    session.user("a")
    session.says("m1", "b")
    first = take(store, session.data)
    log = store.operations(SESSION)
    second = take(store, session.data)
    assert (first.new, second.new) == (2, 0)
    assert first.branches == second.branches
    assert store.operations(SESSION) == log


def test_a_longer_session_extends_its_branch(store: Store) -> None:
    session = Session()
    session.user("a")
    session.says("m1", "b")
    session.raw({"type": "last-prompt", "sessionId": SESSION})
    take(store, session.data)
    session.user("c")
    imported = take(store, session.data)
    assert list(imported.branches) == ["main"]
    assert (imported.new, texts_of(store)) == (1, ["a", "b", "c"])
    assert export_bytes(store, SESSION, "claude-code")[0] == session.data


def test_the_users_own_messages_are_unchanged(store: Store) -> None:
    session = Session()
    session.user("a")
    take(store, session.data)
    weft.open(store, SESSION).user("mine")
    session.says("m1", "b")
    imported = take(store, session.data)
    assert texts_of(store) == ["a", "mine"]
    assert texts_of(store, branch=imported.renamed["main"]) == ["a", "b"]
    assert take(store, session.data).new == 0


def test_undo_reverts_an_import(store: Store) -> None:
    session = Session()
    session.user("a")
    take(store, session.data)
    weft.open(store, SESSION).undo()
    assert texts_of(store) == []


def codex_lines() -> list[dict[str, Any]]:
    def item(**payload: Any) -> dict[str, Any]:
        return {
            "timestamp": "2026-02-11T21:00:00.000Z",
            "type": "response_item",
            "payload": payload,
        }

    def message(role: str, text: str) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}

    return [
        {"timestamp": "t", "type": "session_meta", "payload": {"id": "cx-1", "cwd": "/p"}},
        item(**message("user", "go")),
        item(type="reasoning", summary=[], encrypted_content="sealed"),
        item(type="function_call", name="f", arguments="{}", call_id="c1"),
        {"timestamp": "t", "type": "event_msg", "payload": {"type": "token_count"}},
        item(type="function_call_output", call_id="c1", output="found"),
        item(**message("assistant", "done")),
        {
            "timestamp": "t",
            "type": "compacted",
            "payload": {
                "message": "SUMMARY",
                "replacement_history": [message("user", "go"), message("user", "SUMMARY")],
            },
        },
        item(**message("user", "more")),
        {"timestamp": "t", "type": "event_msg", "payload": {"type": "task_complete"}},
    ]


def test_a_codex_rollout_is_imported_and_exported(store: Store) -> None:
    data = "".join(f"{json.dumps(line)}\n" for line in codex_lines()).encode()
    imported = take(store, data)
    assert (imported.thread, imported.format) == ("cx-1", "codex")
    assert texts_of(store, "cx-1") == ["go", "SUMMARY", "more"]
    assert export_bytes(store, "cx-1", "codex")[0] == data
    thread = weft.open(store, "cx-1")
    ids = thread.compile().ids
    thread.revert(next(info for info in thread.log() if info.kind == "compact"))
    assert texts_of(store, "cx-1") == ["go", "-", "found", "done", "more"]
    assert thread.compile().ids[0] == ids[0]
    out = export_bytes(store, "cx-1", "codex")[0]
    assert out.splitlines() == [line for line in data.splitlines() if b'"compacted"' not in line]


def test_an_answer_that_is_a_summary_belongs_to_its_compaction(store: Store) -> None:
    """Codex does not store its request for the summary, only the answer."""
    lines = codex_lines()
    words = {"type": "output_text", "text": "SUMMARY"}
    summary = {"type": "message", "role": "assistant", "content": [words]}
    asked = {"timestamp": "t", "type": "response_item", "payload": summary}
    event = {"timestamp": "t", "type": "event_msg", "payload": {"type": "token_count"}}
    lines[7]["payload"]["message"] = "Here is what was said:\nSUMMARY"
    lines[7:7] = [event, asked, event]
    data = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    take(store, data)
    assert export_bytes(store, "cx-1", "codex")[0] == data
    thread = weft.open(store, "cx-1")
    thread.revert(next(info for info in thread.log() if info.kind == "compact"))
    assert texts_of(store, "cx-1") == ["go", "-", "found", "done", "more"]
    out = export_bytes(store, "cx-1", "codex")[0]
    assert out.splitlines() == [line for line in data.splitlines() if b"SUMMARY" not in line]


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USE = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "found"}


@pytest.mark.parametrize(
    ("value", "format"),
    [
        ([{"role": "user", "content": "go"}], "openai-chat"),
        ([{"role": "assistant", "content": None, "tool_calls": [CALL]}], "openai-chat"),
        ({"model": "m", "messages": [{"role": "user", "content": "go"}]}, "openai-chat"),
        ([{"role": "assistant", "content": [USE]}], "anthropic"),
        ({"system": "s", "messages": [{"role": "user", "content": "go"}]}, "anthropic"),
        ({"messages": [{"role": "user", "content": [RESULT]}]}, "anthropic"),
        ({"input": "go"}, "openai-responses"),
        ([{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}],
         "openai-responses"),
        ({"contents": [{"role": "user", "parts": [{"text": "go"}]}]}, "gemini"),
        ([{"role": "user", "parts": [{"text": "go"}]}], "gemini"),
        ([{"content_type": "dialogue", "role": "user", "text": "go"}], "dicts"),
    ],
)  # fmt: skip
def test_the_format_is_detected(store: Store, value: Any, format: str) -> None:
    assert take(store, value, name="list").format == format
    assert take(store, value, name="list").new == 0


def test_json_lines_of_messages_are_a_list(store: Store) -> None:
    rows = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    take(store, b"\n".join(json.dumps(row).encode() for row in rows), name="list")
    assert texts_of(store, "list") == ["a", "b"]


def test_a_body_has_its_tools_and_parameters(store: Store) -> None:
    body = {
        "model": "m",
        "max_tokens": 7,
        "system": "be brief",
        "messages": [{"role": "user", "content": "go"}],
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
    }
    take(store, body, thread="t")
    compiled = weft.open(store, "t").compile()
    assert [tool.name for tool in compiled.tools] == ["f"]
    assert compiled.setup.params.max_tokens == 7
    assert texts_of(store, "t") == ["be brief", "go"]


def test_typed_dicts_have_priorities_and_notes(store: Store) -> None:
    rows = [
        {"content_type": "instruction", "text": "be brief", "priority": "pinned"},
        {"role": "user", "content": "go", "message": "the wish"},
        {"content_type": "reasoning", "text": "hm"},
    ]
    take(store, rows, thread="t")
    thread = weft.open(store, "t")
    assert thread.compile().priorities == ("pinned", "normal")
    assert thread.log()[1].message == "the wish"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no message"),
        (b"hello", "not JSON"),
        (b"[]", "no message"),
        (b"3", "not a conversation"),
        (b'{"a": 1}', "not a conversation"),
        (b'{"role": "admin", "content": "x"}', "not a conversation"),
        (b"<!doctype html>\n<p>hi</p>", "HTML or Markdown document"),
        (b"# hi\n\ntext", "HTML or Markdown document"),
        (b'[{"content_type": "nope"}]', "'nope' is unknown"),
        (b'[{"content_type":"output","text":"x","priority":"high"}]', "priority 'high'"),
        (b'{"type":"queue-operation","sessionId":"x"}', "no message"),
        (b"\x1f\x8bnot gzip", "decompressed"),
    ],
)
def test_an_invalid_file_is_refused_in_one_line(store: Store, data: bytes, words: str) -> None:
    with pytest.raises(WeftError, match=words):
        take(store, data)
    assert store.threads() == []


def test_a_subagents_file_becomes_a_separate_thread(store: Store) -> None:
    main, side = Session(), Session()
    main.user("go")
    side.user("look there", sidechain=True, agentId="agent7")
    side.says("s1", "seen", sidechain=True, agentId="agent7")
    take(store, main.data)
    imported = take(store, side.data)
    assert imported.thread == f"{SESSION}.agent7"
    assert list(imported.branches) == ["main"]
    assert texts_of(store) == ["go"]
    assert export_bytes(store, imported.thread, "claude-code")[0] == side.data


def test_a_forked_session_is_found_by_its_own_id(store: Store) -> None:
    session = Session("the-old-one")
    session.user("a")
    session.session = SESSION
    session.user("b")
    assert take(store, session.data).thread == SESSION


@pytest.mark.parametrize("secret", ["hunter2", 'pa"ss\\word', "two\nlines", "gehäuse", "日本"])
def test_a_forgotten_text_is_in_no_imported_line(store: Store, secret: str) -> None:
    session = Session()
    session.user(f"my word is {secret}, keep it")
    session.calls("m1", "c1", toolUseResult=json.dumps({"stdout": secret}))
    session.result("c1", json.dumps({"said": secret}))
    take(store, session.data)
    forget(store, secret)
    out = export_bytes(store, SESSION, "claude-code")[0]
    files = [archive_bytes(store, [SESSION]), out, json.dumps(texts_of(store)).encode()]
    spellings = [secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]]
    assert [s for s in spellings for data in files if s.encode() in data] == []
    assert fsck(store).clean
    for line in out.splitlines():
        json.loads(line)


@pytest.mark.parametrize(
    "data",
    [
        b'[{"role": "user", "content": "hello"}]',
        b'{"role": "user", "content": "hello"}\n{"role": "assistant", "content": "hi"}\n',
        b'{"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hello"}]}',
    ],
)
def test_a_byte_order_mark_is_ignored(data):
    with weft.open() as t:
        t.import_bytes(b"\xef\xbb\xbf" + data)
        assert t.compile().messages[0].text == "hello"
