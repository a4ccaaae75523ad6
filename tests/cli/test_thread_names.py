"""Which thread a command selects, the order of thread lists, and the lines of a log."""

import json
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import weft
from claude_lines import Session
from weft.model import Message, Text, ToolCall, describe_call
from weft.store import open_store
from weft.thread import link_session, match_names

SESSION = "4d5611e5-0000-4000-8000-000000000001"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    return request.getfixturevalue("postgres")


@pytest.mark.parametrize(
    ("names", "wanted", "matches"),
    [
        (["alpha", "beta"], "al", ["alpha"]),
        (["alpha", "alpine"], "al", ["alpha", "alpine"]),
        (["al", "alpine"], "al", ["al"]),  # a whole name is never ambiguous
        ([f"claude-{SESSION}"], "4d56", [f"claude-{SESSION}"]),  # the session's own id
        ([f"claude-{SESSION}", f"claude-{SESSION}.agent"], "4d56", [f"claude-{SESSION}"]),
        (["alpha"], "pha", []),
        (["Alpha"], "al", []),  # names are case-sensitive
    ],
)
def test_a_prefix_names_a_thread(names: list[str], wanted: str, matches: list[str]) -> None:
    assert match_names(names, wanted) == matches


def test_commands_take_a_unique_prefix_of_a_thread(run: Run, address: str) -> None:
    at = ("--store", address)
    for name in (f"claude-{SESSION}", "notes-one", "notes-two"):
        assert run("commit", f"words of {name}", "--thread", name, *at)[0] == 0
    for command in (["log"], ["compile"], ["stats"], ["export"], ["search", "words"]):
        code, out, error = run(*command, "--thread", "4d56", *at)
        assert (code, error) == (0, ""), command
        assert out
    code, _, error = run("log", "--thread", "notes", *at)
    assert code == 1
    assert error == "weft: 'notes' matches 2 threads: 'notes-two', 'notes-one'\n"
    code, _, error = run("log", "--thread", "missing", *at)
    assert (code, "there is no thread 'missing'" in error) == (1, True)
    # A command that creates a thread takes its name as it is.
    run("commit", "another", "--thread", "notes", *at)
    assert "'notes'" in run("delete", "notes", "--yes", *at)[1]


def test_deleting_a_session_reports_its_children(run: Run, tmp_path: Path) -> None:
    at = ("--store", str(tmp_path / "store.db"))
    with closing(open_store(tmp_path / "store.db")) as store:
        for name in ("work", "work.agent", "work.title"):
            weft.open(store, name).user("words")
            store.describe_thread(name, parent=None if name == "work" else "work")
    out = run("delete", "work", "--yes", *at)[1]
    assert "deleted 'work' and 2 child threads; `weft undelete work` restores it" in out
    assert "restored 'work'" in run("undelete", "work", *at)[1]
    out = run("delete", "work", "--yes", "--json", *at)[1]
    assert json.loads(out) == {
        "deleted": "work", "commits": 1, "children": ["work.agent", "work.title"],
    }  # fmt: skip


def test_a_session_is_found_by_every_id_it_was_resumed_under(run: Run, tmp_path: Path) -> None:
    resumed = "99999999-0000-4000-8000-000000000001"
    store = open_store(tmp_path / "store.db")
    weft.open(store, "work").user("the words")
    link_session(store, "work", f"claude-{resumed}")
    store.close()
    run("commit", "other", "--thread", "default")
    assert "the words" in run("log", "--thread", resumed)[1]


def test_threads_are_listed_by_their_last_activity(run: Run, address: str) -> None:
    at = ("--store", address)
    for number in range(12):
        run("commit", "hi", "--thread", f"t{number}", *at)
    run("commit", "again", "--thread", "t3", *at)
    names = [row["name"] for row in json.loads(run("threads", "--json", *at)[1])]
    assert names[:2] == ["t3", "t11"]
    assert len(names) == 12
    assert [line.split()[0] for line in run("threads", "-n", "2", *at)[1].splitlines()] == names[:2]


def test_an_imported_session_keeps_its_own_dates(run: Run, address: str, tmp_path: Path) -> None:
    session = Session(SESSION)
    session.user("first")
    fork = session.says("m1", "answer")
    session.user("rewound", parent=fork)
    session.user("sent differently", parent=fork)
    session.raw({"type": "summary", "summary": "no time of its own", "leafUuid": fork})
    (tmp_path / "old.jsonl").write_bytes(session.data)
    rollout = [
        {"timestamp": "2026-01-05T10:00:00.000Z", "type": "session_meta", "payload": {"id": "cdx"}},
        {
            "timestamp": "2026-01-05T10:00:01.000Z",
            "type": "response_item",
            "payload": {"type": "message", "role": "user", "content": "hello"},
        },
        {"timestamp": "2026-01-05T10:00:02.000Z", "type": "event_msg", "payload": {"type": "end"}},
    ]
    lines = "".join(json.dumps(line) + "\n" for line in rollout)
    (tmp_path / "rollout.jsonl").write_text(lines)
    at = ("--store", address)
    run("commit", "now", "--thread", "mine", *at)
    for name in ("old.jsonl", "rollout.jsonl"):
        assert run("import", str(tmp_path / name), *at)[0] == 0
    rows = {row["name"]: row for row in json.loads(run("threads", "--json", *at)[1])}
    assert list(rows) == ["mine", SESSION, "cdx"]
    when = {name: (_read(row["created"]), _read(row["last"])) for name, row in rows.items()}
    assert when[SESSION] == (_read("2026-02-11T21:00:01Z"), _read("2026-02-11T21:00:04Z"))
    assert when["cdx"] == (_read("2026-01-05T10:00:01Z"), _read("2026-01-05T10:00:02Z"))
    store = open_store(address)
    try:
        log = store.operations(SESSION)
    finally:
        store.close()
    assert all(operation.created > _read("2026-02-12T00:00:00Z") for operation in log)


def _read(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def test_search_covers_every_thread(run: Run, address: str) -> None:
    at = ("--store", address)
    for name in ("one", "two", "three"):
        run("commit", f"a {name} pelican", "--thread", name, *at)
    run("commit", "nothing here", "--thread", "four", *at)
    hits = json.loads(run("search", "pelican", "--json", *at)[1])
    assert sorted(hit["thread"] for hit in hits) == ["one", "three", "two"]
    hits = json.loads(run("search", "pelican", "--thread", "tw", "--json", *at)[1])
    assert [hit["thread"] for hit in hits] == ["two"]
    code, out, error = run("search", "ostrich", *at)
    assert (code, out, error) == (0, "", "weft: no message contains 'ostrich'\n")


REMINDER = "<system-reminder>\nAs you answer, mind the style.\n</system-reminder>"


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (Message("user", (Text(f"{REMINDER}\nfix the build"),)), "user fix the build"),
        (Message("user", (Text(REMINDER), Text("fix the build"))), "user fix the build"),
        (Message("user", (Text(REMINDER),)), "user [system-reminder]"),
        (
            Message("user", (Text(f"{REMINDER}<total_tokens>9 left</total_tokens>"),)),
            "user [system-reminder][total_tokens]",
        ),
        (Message("user", (Text("what does <b>x</b> do?"),)), "user what does <b>x</b> do?"),
        (
            Message("assistant", (Text("see"), ToolCall("c", "Bash", '{"command":"pytest -q"}'))),
            "assistant see [Bash: pytest -q]",
        ),
        (
            Message(
                "assistant",
                (
                    ToolCall("c", "Bash", '{"command":"pytest -q"}'),
                    ToolCall("d", "Read", '{"file_path":"/a.py","limit":5}'),
                ),
            ),
            "assistant [Bash: pytest -q, Read: /a.py]",
        ),
    ],
    ids=str,
)
def test_the_log_shows_what_people_wrote(
    run: Run, message: Message, line: str, tmp_path: Path
) -> None:
    with weft.open(tmp_path / "store.db") as thread:
        thread.commit_message(message)
    assert " ".join(run("log")[1].split()[1:]) == line
    (row,) = json.loads(run("log", "--json")[1])
    assert f"{row['speaker']} {row['preview']}" == line


@pytest.mark.parametrize(
    ("name", "arguments", "line"),
    [
        ("Bash", '{"description":"Run tests","command":"pytest -q"}', "Bash: pytest -q"),
        ("shell", '{"command":["bash","-lc","pytest -q"]}', "shell: pytest -q"),  # Codex
        ("shell", '{"command":["git","status"]}', "shell: git status"),
        ("exec_command", '{"cmd":"ls\\n-la"}', "exec_command: ls -la"),
        ("Grep", '{"path":"src","pattern":"def x"}', "Grep: def x"),
        ("read", '{"filePath":"/a"}', "read: /a"),  # opencode
        ("Task", '{"prompt":"long","description":"find it"}', "Task: find it"),
        ("apply_patch", "*** Begin Patch\n*** Update File: a.py\n@@", "apply_patch: a.py"),
        ("odd", '{"deep":{"x":1},"n":3}', "odd: 3"),
        ("none", "{}", "none"),
        ("broken", '{"command": "half', 'broken: {"command": "half'),
        ("list", "[1]", "list"),
        ("Write", '{"file_path":"/big","content":"' + "x" * 30_000 + '"}', "Write: /big"),
        ("Write", '{"content":"' + "x" * 30_000 + '"}', "Write"),
    ],
)
def test_a_call_is_described_by_its_main_argument(name: str, arguments: str, line: str) -> None:
    assert describe_call(ToolCall("c", name, arguments)) == line


@pytest.mark.parametrize("words", [("threads", "-n", "-1"), ("log", "--thread", "")])
def test_wrong_values_are_refused(run: Run, words: tuple[str, ...]) -> None:
    run("commit", "a", "--thread", "other")
    run("commit", "a", "--thread", "another")
    code, _, error = run(*words)
    assert code in (1, 2)
    assert error.count("\n") == 1


def test_json_lists_all_threads(run: Run, tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.db")
    with store.transaction():
        for number in range(600):
            weft.open(store, f"t{number:03}").user("hi")
    weft.open(store, "t000").user("again")
    store.close()
    rows: list[dict[str, Any]] = json.loads(run("threads", "--json")[1])
    assert (len(rows), rows[0]["name"]) == (600, "t000")
