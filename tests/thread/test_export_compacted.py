"""A thread compacted in Weft, exported as a client's session file: one chain, in its format."""

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

import weft
from claude_lines import SESSION, Session
from weft.compact import mark_summary
from weft.model import Message, Text
from weft.store import MemoryStore, Store
from weft.thread import export_bytes, import_bytes

CODEX = "cx-1"

Work = Callable[[weft.Thread], object]


def seconds(line: dict[str, Any]) -> float:
    """The time of an exported line."""
    assert re.fullmatch(r"[\d-]+T[\d:]+\.\d{3}Z", line["timestamp"])
    return datetime.fromisoformat(line["timestamp"]).timestamp()


def compacted_at(thread: weft.Thread) -> Any:
    """The time of the thread's last compaction, as exact as an export is."""
    created = next(info.created for info in thread.log() if info.kind == "compact")
    return pytest.approx(created.timestamp(), abs=0.002)


def fold(thread: weft.Thread) -> None:
    thread.compact(summary="OURS", keep=1)


def fold_twice(thread: weft.Thread) -> None:
    thread.compact(summary="FIRST", keep=2)
    fold(thread)


def fold_and_edit(thread: weft.Thread) -> None:
    fold(thread)
    thread.edit(thread.compile().ids[1], "edited")


def fold_and_skip(thread: weft.Thread) -> None:
    fold(thread)
    thread.skip(thread.compile().ids[1])


def fold_and_reword(thread: weft.Thread) -> None:
    fold(thread)
    thread.edit(thread.compile().ids[0], "reworded")


def fold_pinned(thread: weft.Thread) -> None:
    thread.pin(thread.compile().ids[0])
    thread.compact(keep=1)


def fold_by_rule(thread: weft.Thread) -> None:
    thread.compact(keep=1)


def fold_on_a_branch(thread: weft.Thread) -> None:
    thread.branch("side")
    side = weft.open(thread.store, thread.name, branch="side")
    fold(side)
    thread.user("meanwhile")
    thread.merge("side")


def fold_all_and_go_on(thread: weft.Thread) -> None:
    thread.compact([{"summary": "OURS"}])
    thread.user("next")


def fold_all(thread: weft.Thread) -> None:
    thread.compact([{"summary": "OURS"}])


def reword_the_first(thread: weft.Thread) -> None:
    thread.edit(thread.compile().ids[0], "reworded")


def skip_the_first(thread: weft.Thread) -> None:
    thread.skip(thread.compile().ids[0])


def put_in_front(thread: weft.Thread) -> None:
    """A summary that replaces nothing, before the first turn."""
    summary = Message("user", (Text("in front"),))
    thread.adopt([summary, *thread.compile().messages], summary=0)


WORKS: list[Work] = [
    put_in_front,
    reword_the_first,
    skip_the_first,
    fold,
    fold_by_rule,
    fold_twice,
    fold_and_edit,
    fold_and_skip,
    fold_and_reword,
    fold_pinned,
    fold_on_a_branch,
    fold_all_and_go_on,
    fold_all,
]


def claude_session() -> bytes:
    session = Session()
    session.raw({"type": "queue-operation", "operation": "dequeue", "sessionId": SESSION})
    session.progress()
    for number in range(3):
        session.user(f"question {number}")
        session.progress()
        session.says(f"m{number}", f"answer {number}")
    return session.data


def compacted_session() -> bytes:
    """One that Claude Code had compacted itself."""
    session = Session()
    session.user("a")
    session.says("m0", "b")
    session.compacts("THEIRS")
    session.progress()
    for number in range(1, 3):
        session.user(f"question {number}")
        session.says(f"m{number}", f"answer {number}")
    return session.data


def side_session() -> bytes:
    """One with a subagent in the same file, and a hook before it all that is a root of its own."""
    session = Session()
    session.progress()
    session.user("question 0", parent=None)
    call = session.calls("m0", "task")
    session.user("look there", sidechain=True, agentId="agent7", parent=None)
    session.says("s1", "seen", sidechain=True, agentId="agent7")
    session.result("task", "it was there", parent=call)
    for number in range(1, 3):
        session.user(f"question {number}")
        session.says(f"m{number}", f"answer {number}")
    return session.data


MORE = " about the parser and its many tests" * 3
"""Makes a message longer than the lines that mark a summary."""


def codex_rollout() -> bytes:
    def line(kind: str, **payload: Any) -> str:
        return json.dumps(
            {"timestamp": "2026-02-11T21:00:00.000Z", "type": kind, "payload": payload}
        )

    def texts_of(role: str, text: str) -> str:
        part = "output_text" if role == "assistant" else "input_text"
        return line(
            "response_item", type="message", role=role, content=[{"type": part, "text": text}]
        )

    lines = [line("session_meta", id=CODEX, cwd="/p")]
    for number in range(3):
        lines += [
            line("turn_context", cwd="/p"),
            texts_of("user", f"question {number}{MORE}"),
            line("event_msg", type="token_count"),
            texts_of("assistant", f"answer {number}{MORE}"),
        ]
    return "".join(f"{text}\n" for text in lines).encode()


def compacted_rollout() -> bytes:
    """One that Codex had compacted itself: what the user said stays, a summary follows it."""
    first, *rest = codex_rollout().decode().splitlines(keepends=True)
    turn = [json.loads(line)["payload"] for line in rest[1:4:2]]
    part = {"type": "input_text", "text": "THEIRS"}
    summary = {"type": "message", "role": "user", "content": [part]}
    payload = {"message": "THEIRS", "replacement_history": [turn[0], summary]}
    stamp = "2026-02-11T21:00:00.000Z"
    line = json.dumps({"timestamp": stamp, "type": "compacted", "payload": payload})
    return "".join([first, *rest[:4], line, "\n", *rest[4:]]).encode()


def worked(data: bytes, work: Work) -> tuple[Store, weft.Thread]:
    store = MemoryStore()
    (imported,) = import_bytes(store, data)
    thread = weft.open(store, imported.thread)
    work(thread)
    return store, thread


def texts_of(thread: weft.Thread) -> list[str]:
    return [message.text for message in thread.compile().messages]


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("session", [claude_session, compacted_session, side_session])
def test_a_session_compacted_in_weft_is_one_chain(session: Callable[[], bytes], work: Work) -> None:
    store, thread = worked(session(), work)
    data = export_bytes(store, SESSION, "claude-code")[0]
    again = MemoryStore()
    (imported,) = import_bytes(again, data)
    assert texts_of(weft.open(again, SESSION)) == texts_of(thread)
    assert [name for name in imported.branches if name.startswith("rewind")] == []
    assert imported.remarks == ()
    assert b"1970" not in data


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("rollout", [codex_rollout, compacted_rollout])
def test_a_rollout_compacted_in_weft_starts_with_its_session(
    rollout: Callable[[], bytes], work: Work
) -> None:
    store, thread = worked(rollout(), work)
    data = export_bytes(store, CODEX, "codex")[0]
    again = MemoryStore()
    (imported,) = import_bytes(again, data)
    assert texts_of(weft.open(again, CODEX)) == texts_of(thread)
    assert imported.remarks == ()
    assert json.loads(data.splitlines()[0])["type"] == "session_meta"
    assert b"1970" not in data


def test_a_summary_is_written_as_claude_code_writes_one() -> None:
    store, thread = worked(claude_session(), fold)
    values = [
        json.loads(line) for line in export_bytes(store, SESSION, "claude-code")[0].splitlines()
    ]
    at = next(n for n, value in enumerate(values) if value.get("subtype") == "compact_boundary")
    boundary, summary, first_kept = values[at : at + 3]
    assert (boundary["parentUuid"], boundary["cwd"]) == (None, "/project")
    assert seconds(boundary) == seconds(summary) == compacted_at(thread)
    assert summary["isCompactSummary"] is True
    assert summary["parentUuid"] == boundary["uuid"]
    assert (first_kept["message"]["content"], first_kept["parentUuid"]) == (
        "question 2",
        summary["uuid"],
    )


def test_a_summary_is_written_as_codex_writes_one() -> None:
    store, thread = worked(codex_rollout(), fold)
    values = [json.loads(line) for line in export_bytes(store, CODEX, "codex")[0].splitlines()]
    (line,) = [value for value in values if value["type"] == "compacted"]
    text = mark_summary("OURS").text
    part = {"type": "input_text", "text": text}
    summary = {"type": "message", "role": "user", "content": [part]}
    assert line["payload"] == {"message": text, "replacement_history": [summary]}
    assert seconds(line) == compacted_at(thread)


def test_a_summary_after_a_pin_repeats_the_pin_as_codex_does() -> None:
    store, _ = worked(codex_rollout(), fold_pinned)
    values = [json.loads(line) for line in export_bytes(store, CODEX, "codex")[0].splitlines()]
    (line,) = [value for value in values if value["type"] == "compacted"]
    history = line["payload"]["replacement_history"]
    pinned = next(value["payload"] for value in values if value["type"] == "response_item")
    assert (history[0], len(history)) == (pinned, 2)


@pytest.mark.parametrize("format", ["claude-code", "codex"])
def test_a_compacted_weft_thread_has_the_time_of_its_compaction(format: str) -> None:
    store = MemoryStore()
    thread = weft.open(store, "own")
    for number in range(3):
        thread.user(f"question {number}")
        thread.assistant(f"answer {number}")
    fold(thread)
    data = export_bytes(store, "own", format)[0]
    began, ended = (thread.log()[at].created.timestamp() for at in (-1, 0))
    times = [seconds(json.loads(line)) for line in data.splitlines()]
    assert times
    assert all(began - 0.002 <= time <= ended + 0.002 for time in times)
    assert compacted_at(thread) in times


@pytest.mark.parametrize("format", ["claude-code", "codex"])
def test_a_thread_that_starts_with_a_compaction_can_be_continued(format: str) -> None:
    """The export of an export: the first commit is a compaction without earlier messages."""
    session = {"claude-code": claude_session, "codex": codex_rollout}[format]
    store, thread = worked(session(), fold)
    again, copy = worked(
        export_bytes(store, thread.name, format)[0], lambda thread: thread.user("on")
    )
    third, last = worked(export_bytes(again, copy.name, format)[0], fold_by_rule)
    assert texts_of(copy) == [*texts_of(thread), "on"]
    fourth, end = worked(export_bytes(third, last.name, format)[0], lambda _: None)
    assert texts_of(end) == texts_of(last)
    assert fourth.threads()
