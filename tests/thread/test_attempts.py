"""Stopped, truncated and failed answers are stored beside their request and change nothing else."""

import json
import sqlite3
from pathlib import Path

import pytest

import weft
from weft.cli import main
from weft.errors import Damaged
from weft.model import ApiError, Message, Origin, Response, Stop, Text, Thinking, ToolCall, Usage
from weft.store import MemoryStore, SqliteStore, Store
from weft.thread import archive_bytes, forget, fsck, gc, import_bytes, repair_store

SECRET = "sk-live-4711-hunter2"
OVERLOADED = ApiError("overloaded", "upstream overloaded", 529, type="overloaded_error")


def answer(text: str) -> Message:
    return Message("assistant", (Text(text),))


def test_attempts_change_no_branch(store: Store) -> None:
    t = weft.open(store)
    asked = t.user("why?")
    before = (t.compile().to_dicts(), t.branches(), len(t.log()), t.head)
    t.record_attempt(None, error=OVERLOADED)
    t.record_attempt(answer("Because"), reason="stopped")
    assert (t.compile().to_dicts(), t.branches(), len(t.log()), t.head) == before
    answered = t.assistant("Because of the lock.")
    failed, partial = t.attempts()
    assert (failed.state, str(failed.reason), failed.text) == (
        "failed",
        "upstream overloaded (529)",
        "",
    )
    assert failed.reason is not None
    assert (failed.reason.type, failed.reason.kind) == ("overloaded_error", "overloaded")
    assert (partial.state, str(partial.reason), partial.text) == ("partial", "stopped", "Because")
    assert {failed.commit, partial.commit} == {asked.id}
    assert answered.parents == (asked.id,)


def test_the_response_metadata_is_stored(store: Store) -> None:
    t = weft.open(store)
    t.user("q")
    message = Message(
        "assistant", (Thinking("hm", "sig"), ToolCall("c1", "f", '{"half')), origin=Origin("gemini")
    )
    response = Response(message, "resp_1", "gemini-2.5-pro", Stop("other"), Usage(3, 4))
    made = t.record_attempt(response, reason="the stream ended early")
    (read,) = weft.open(store).attempts()
    assert read == made
    assert read.message == message
    assert (read.model, read.response_id, read.stop, read.usage) == (
        "gemini-2.5-pro",
        "resp_1",
        Stop("other"),
        Usage(3, 4),
    )


@pytest.mark.parametrize(
    ("message", "state"),
    [
        (None, "failed"),
        (Message("assistant"), "failed"),
        (answer(""), "failed"),
        (Message("assistant", (Thinking(""), Text(""))), "failed"),
        (Message("assistant", (Thinking("hm"),)), "partial"),
        (Message("assistant", (ToolCall("c", "f", ""),)), "partial"),
        (answer(" "), "partial"),  # whitespace is content: it was streamed
    ],
)
def test_the_state_says_whether_any_text_arrived(message: Message | None, state: str) -> None:
    t = weft.open()
    t.user("q")
    assert t.record_attempt(message, reason="cut").state == state


def test_attempts_of_another_branch_are_not_listed() -> None:
    t = weft.open()
    first = t.user("q")
    t.branch("side")
    t.switch("side")
    t.user("aside")
    t.record_attempt(answer("on the side"))
    t.switch("main")
    assert t.attempts() == []
    t.record_attempt(answer("at the first"), at=first)
    assert [a.text for a in t.attempts()] == ["at the first"]
    assert [a.text for a in t.attempts("side")] == ["on the side", "at the first"]
    assert [a.text for a in t.attempts(first)] == ["at the first"]


def test_an_empty_thread_can_have_no_attempt() -> None:
    t = weft.open()
    assert t.attempts() == []
    with pytest.raises(weft.ThreadError, match="thread is empty"):
        t.record_attempt(None, reason="x")


def test_an_attempt_can_be_part_of_a_callers_transaction(store: Store) -> None:
    t = weft.open(store)
    t.user("q")
    with pytest.raises(KeyError), t.batch():  # noqa: PT012
        t.user("more")
        t.record_attempt(answer("x"))
        raise KeyError
    assert t.attempts() == []
    with t.batch():
        t.user("more")
        t.record_attempt(answer("x"))
        t.assistant("whole")
    assert [a.text for a in t.attempts()] == ["x"]


def test_a_forgotten_text_is_removed_from_attempts(store: Store) -> None:
    t = weft.open(store)
    t.user("q")
    t.record_attempt(answer(f"the key is {SECRET}, use it"))
    t.record_attempt(None, error=ApiError("server", f"bad key {SECRET}"))
    t.record_attempt(answer("harmless"))
    assert len(forget(store, SECRET, preview=True).attempts) == 2
    assert len(forget(store, SECRET).attempts) == 2
    attempts_json = json.dumps([a.to_dict() for a in t.attempts()])
    assert SECRET not in attempts_json
    assert "the key is [forgotten], use it" in attempts_json
    assert "bad key [forgotten]" in attempts_json
    assert fsck(store).flaws == ()
    assert not forget(store, SECRET)


def test_a_forgotten_text_of_an_attempt_is_removed_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with weft.open(path) as t:
        t.user("q")
        t.record_attempt(answer(f"the key is {SECRET}"))
    forget(path, SECRET)
    assert not [f for f in tmp_path.iterdir() if SECRET.encode() in f.read_bytes()]


def test_gc_removes_the_attempts_of_removed_commits(store: Store) -> None:
    t = weft.open(store)
    t.user("q")
    t.record_attempt(answer("kept"))
    t.user("taken back")
    t.record_attempt(answer("dropped"))
    t.undo()
    assert [a.text for a in t.attempts()] == ["kept"]
    assert gc(store, days=-1).commits == 1
    assert [json.loads(row.data)["message"]["blocks"] for row in store.attempts(t.name)] == [
        [{"type": "text", "text": "kept"}]
    ]
    assert fsck(store).flaws == ()
    assert fsck(store).attempts == 1


def test_an_archive_contains_attempts(store: Store, tmp_path: Path) -> None:
    t = weft.open(store)
    t.user("q")
    t.record_attempt(answer("first words"), error=OVERLOADED)
    t.record_attempt(None, reason="no answer")
    t.assistant("done")
    data = archive_bytes(store, [t.name])
    for other in (MemoryStore(), SqliteStore(tmp_path / "other.db")):
        for _ in range(2):  # twice is the same as once
            import_bytes(other, data)
            assert weft.open(other, t.name).attempts() == t.attempts()
        assert fsck(other).flaws == ()
        other.close()


def test_an_archive_with_an_attempt_of_another_thread_is_refused() -> None:
    store = MemoryStore()
    t = weft.open(store)
    t.user("q")
    t.record_attempt(answer("x"))
    lines = archive_bytes(store, [t.name]).replace(b'{"attempt":"', b'{"attempt":"00', 1)
    with pytest.raises(Damaged):
        import_bytes(MemoryStore(), lines)


DAMAGE = {
    "junk": "update attempt set data = x'6a756e6b' where key = 1",
    "other words": """update attempt set data =
        cast(replace(cast(data as text), 'first', 'worst') as blob) where key = 1""",
    "state": "update attempt set state = 'failed' where key = 1",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    with weft.open(path) as t:
        t.user("q")
        t.record_attempt(answer("first words"))
        t.record_attempt(answer("second"))
        t.user("again")
        t.record_attempt(answer("third"))
    return path


def break_it(path: Path, sql: str) -> None:
    db = sqlite3.connect(path)
    db.execute(sql)
    db.commit()
    db.close()


@pytest.mark.parametrize("sql", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_attempt_is_named_and_replaced(sql: str, path: Path) -> None:
    break_it(path, sql)
    flaws = fsck(path).flaws
    assert {(flaw.kind, flaw.name, flaw.thread) for flaw in flaws} == {("attempt", "1", "default")}
    done, report = repair_store(path)
    assert any("attempt" in line for line in done)
    assert report.clean, report.flaws
    with weft.open(path) as t:
        assert [a.text for a in t.attempts()] == ["", "second", "third"]
        assert str(t.attempts()[0].reason) == "[damaged]"


def test_an_attempt_without_its_commit_is_removed(path: Path) -> None:
    break_it(path, "update attempt set commit_key = 99 where key = 2")
    assert [str(flaw) for flaw in fsck(path).flaws] == ["attempt 2: belongs to a missing commit"]
    _, report = repair_store(path)
    assert report.clean
    with weft.open(path) as t:
        assert [a.text for a in t.attempts()] == ["first words", "third"]


def test_attempts_are_recovered_from_damaged_pages(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("pragma wal_checkpoint(truncate)")
        (root,) = db.execute("select rootpage from sqlite_master where name = 'ref'").fetchone()
        (size,) = db.execute("pragma page_size").fetchone()
    db.close()
    data = bytearray(path.read_bytes())
    data[(root - 1) * size : root * size] = bytes(size)
    path.write_bytes(bytes(data))
    done, report = repair_store(path)
    assert any("kept as" in line for line in done)
    assert report.clean, report.flaws
    with weft.open(path) as t:
        assert [a.text for a in t.attempts()] == ["first words", "second", "third"]


def test_log_and_show_list_attempts(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with weft.open(path) as t:
        id = t.log()[-1].id
        t.record_attempt(None, error=OVERLOADED, at=id)
    assert main(["log", "--store", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "  ~ partial: third"
    assert lines[3:] == [
        "  ~ partial: first words",
        "  ~ partial: second",
        "  ! failed: upstream overloaded (529)",
    ]
    assert main(["show", id, "--store", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "first words" in shown
    assert "upstream overloaded (529)" in shown
    assert "third" not in shown
    for command in (["log"], ["log", "--graph"]):
        assert main([*command, "--json", "--store", str(path)]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert [a["text"] for a in rows[1]["attempts"]] == ["first words", "second", ""]
        assert rows[1]["attempts"][2]["reason"]["status"] == 529
    assert main(["show", id, "--json", "--store", str(path)]) == 0
    assert len(json.loads(capsys.readouterr().out)["attempts"]) == 3
    assert main(["log", "--graph", "--store", str(path)]) == 0
    assert "|  ~ partial: third" in capsys.readouterr().out.splitlines()
