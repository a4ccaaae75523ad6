"""An import into a thread runs its hooks and its budget, like messages added by hand."""

import json
from pathlib import Path

import pytest
from msgspec import structs

import weft
from weft.errors import BudgetExceeded, ThreadError
from weft.history import Draft
from weft.model import Message, Text
from weft.thread import Budget, BudgetWarning, Thread, archive_bytes

LONG = "word " * 40
LIST = json.dumps(
    [{"role": "user", "content": "my pin is 4711"}, {"role": "assistant", "content": LONG}]
).encode()


def claude_code() -> bytes:
    answer = {"id": "m", "type": "message", "model": "claude", "role": "assistant"}
    answer["content"] = [{"type": "text", "text": LONG}]
    asked = {"role": "user", "content": "my pin is 4711"}
    turns = [("user", "u1", None, asked), ("assistant", "u2", "u1", answer)]
    lines = [
        {
            "type": role,
            "uuid": uuid,
            "parentUuid": parent,
            "sessionId": "s",
            "timestamp": "2026-01-01T00:00:00Z",
            "message": message,
        }
        for role, uuid, parent, message in turns
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def codex() -> bytes:
    turns = [("user", "input_text", "my pin is 4711"), ("assistant", "output_text", LONG)]
    items = [
        {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
        for role, kind, text in turns
    ]
    stamp = "2026-01-01T00:00:00Z"
    first = {"timestamp": stamp, "type": "session_meta", "payload": {"id": "s", "timestamp": stamp}}
    lines = [first, *({"timestamp": stamp, "type": "response_item", "payload": i} for i in items)]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


FILES = {"list": LIST, "claude-code": claude_code(), "codex": codex()}
file = pytest.mark.parametrize("data", FILES.values(), ids=FILES)


def texts(t: Thread) -> list[str]:
    return [row["content"] for row in t.compile().to_dicts()]


@file
def test_an_import_is_committed_to_the_named_thread(data: bytes) -> None:
    t = weft.open(thread="mine")
    done = t.import_bytes(data)
    assert (done.thread, done.messages) == ("mine", 2)
    assert texts(t) == ["my pin is 4711", LONG]
    assert t.import_bytes(data).new == 0
    t.undo()
    assert texts(t) == []


@file
def test_an_import_above_the_budget_leaves_no_trace(data: bytes, tmp_path: Path) -> None:
    with weft.open(tmp_path / "a.db", budget=Budget(30)) as t:
        with pytest.raises(BudgetExceeded) as refused:
            t.import_bytes(data)
        assert refused.value.needed > refused.value.budget == 30
        assert (t.branches(), t.stats().commits, t.search("4711")) == ({}, 0, [])
    assert b"4711" not in (tmp_path / "a.db").read_bytes()


def test_a_warning_allows_an_import() -> None:
    t = weft.open(budget=Budget(5, "warn"))
    with pytest.warns(BudgetWarning, match="budget of 5"):
        t.import_bytes(LIST)
    assert len(t.compile()) == 2


def test_an_import_without_new_messages_is_not_checked() -> None:
    store = weft.open().store
    weft.open(store).import_bytes(LIST)
    assert weft.open(store, budget=Budget(5)).import_bytes(LIST).new == 0


@file
def test_a_hook_stops_a_whole_import(data: bytes) -> None:
    t = weft.open()

    def stop(draft: Draft) -> None:
        if any("word" in message.text for message in draft.messages):
            raise ThreadError("no words")

    t.before(stop)
    with pytest.raises(ThreadError, match="no words"):
        t.import_bytes(data)
    assert (t.branches(), t.stats().commits) == ({}, 0)


@file
def test_a_message_replaced_by_a_hook_loses_its_original_line(data: bytes, tmp_path: Path) -> None:
    def mask(draft: Draft) -> Draft:
        masked = tuple(
            Message(m.role, (Text(m.text.replace("4711", "****")),)) for m in draft.messages
        )
        return structs.replace(draft, messages=masked)

    with weft.open(tmp_path / "a.db") as t:
        t.before(mask)
        t.import_bytes(data)
        assert texts(t)[0] == "my pin is ****"
        assert t.import_bytes(data).new == 0
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"4711" not in written


@file
def test_hooks_run_only_for_new_messages(data: bytes) -> None:
    t = weft.open()
    asked: list[str] = []
    notes: list[str] = []
    t.before(lambda draft: asked.append(draft.kind))
    t.after(lambda info: notes.append(info.kind))
    for _ in range(2):
        t.import_bytes(data)
    assert asked == notes
    assert asked.count("append") == 2


def test_restoring_an_archive_runs_no_hooks() -> None:
    other = weft.open()
    other.user("a")
    with pytest.raises(ThreadError, match="archive"):
        weft.open().import_bytes(archive_bytes(other.store, ["default"]))
