"""`weft import` of folders and globs, also repeatedly and with unreadable files."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from claude_lines import Session
from servers import LAUNCH, SECRETS

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    return request.getfixturevalue("postgres")


def session_id(number: int) -> str:
    return f"5e55104e-0000-4000-8000-{number:012d}"


def write_session(folder: Path, number: int, *turns: str) -> Path:
    session = Session(session_id(number))
    for place, text in enumerate(turns):
        session.user(text)
        session.says(f"m{number}-{place}", f"answer {place}")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{session.session}.jsonl"
    path.write_bytes(session.data)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder like `~/.claude/projects`: two sessions, and what else is found in one."""
    projects = tmp_path / "claude" / "projects"
    write_session(projects / "-home-me-a", 1, "first")
    write_session(projects / "-home-me-b", 2, "second")
    odd = projects / "-home-me-b"
    (odd / "empty.jsonl").write_text("")
    (odd / "history.jsonl").write_text('{"display":"hello","timestamp":1}\n')
    (odd / "summary.jsonl").write_text('{"type":"summary","summary":"x","leafUuid":"y"}\n')
    (odd / "broken.json").write_text("{")
    (odd / "broken.jsonl.gz").write_bytes(b"\x1f\x8bnot gzip")
    (odd / "notes.md").write_text("no conversation")
    (odd / "gone.jsonl").symlink_to(odd / "nowhere")
    return projects


def states(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {Path(row["file"]).name: row["state"] for row in rows}


def test_every_file_of_a_folder_is_imported(run: Run, address: str, folder: Path) -> None:
    code, out, _ = run("import", str(folder), "--json", "--store", address)
    rows = json.loads(out)
    assert states(rows) == {
        f"{session_id(1)}.jsonl": "imported",
        f"{session_id(2)}.jsonl": "imported",
        "empty.jsonl": "skipped",
        "history.jsonl": "skipped",
        "summary.jsonl": "skipped",
        "broken.json": "skipped",
        "broken.jsonl.gz": "failed",
        "gone.jsonl": "failed",
    }
    assert code == 1  # two files could not be read
    assert all(row["reason"] for row in rows if row["state"] in ("skipped", "failed"))
    threads = json.loads(run("threads", "--json", "--store", address)[1])
    assert sorted(row["name"] for row in threads) == [session_id(1), session_id(2)]


def test_the_result_is_printed_line_by_line(run: Run, folder: Path) -> None:
    for name in ("broken.jsonl.gz", "gone.jsonl"):
        (folder / "-home-me-b" / name).unlink()
    code, out, error = run("import", str(folder))
    assert code == 0  # skipped files are no failure
    assert out.splitlines() == [
        f"{session_id(1)}: 2 messages (claude-code), 2 new commits",
        f"{session_id(2)}: 2 messages (claude-code), 2 new commits",
        "imported 2 files, 4 skipped",
    ]
    lines = error.splitlines()
    assert len(lines) == 4
    assert all(line.startswith(f"weft: skipped {folder}") for line in lines)
    assert any(line.endswith("empty.jsonl: there is no message in this file") for line in lines)


def test_a_second_run_reads_only_what_changed(run: Run, address: str, folder: Path) -> None:
    at = ("--store", address)
    for name in ("broken.jsonl.gz", "gone.jsonl"):
        (folder / "-home-me-b" / name).unlink()
    run("import", str(folder), *at)
    grown = write_session(folder / "-home-me-a", 1, "first", "more")
    code, out, _ = run("import", str(folder), "--json", *at)
    rows = {Path(row["file"]).name: row for row in json.loads(out)}
    assert code == 0
    assert rows[grown.name]["state"] == "imported"
    assert rows[grown.name]["new"] == 2
    assert rows[f"{session_id(2)}.jsonl"] == {
        "file": str(folder / "-home-me-b" / f"{session_id(2)}.jsonl"),
        "state": "unchanged",
    }
    assert run("import", str(folder), *at)[1] == "imported 0 files, 2 unchanged, 4 skipped\n"
    forced = json.loads(run("import", str(folder), "--force", "--json", *at)[1])
    assert [row["new"] for row in forced if "new" in row] == [0, 0]


def test_a_deleted_session_is_imported_again_only_by_name(run: Run, folder: Path) -> None:
    run("import", str(folder))
    run("delete", session_id(2), "--yes")
    run("import", str(folder))
    names = [row["name"] for row in json.loads(run("threads", "--json")[1])]
    assert names == [session_id(1)]
    run("import", str(folder / "-home-me-b" / f"{session_id(2)}.jsonl"))
    assert session_id(2) in run("threads")[1]


def test_globs_and_the_home_folder_are_expanded(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder.parent.parent))
    code, out, _ = run("import", "~/claude/projects/*-a/*.jsonl")
    assert (code, out.splitlines()[-1]) == (0, "imported 1 file")
    code, out, _ = run("import", f"{folder}/**/{session_id(2)}.jsonl")
    assert (code, out.splitlines()[-1]) == (0, "imported 1 file")
    code, out, _ = run("import", f"{folder}/*-a")  # a folder that a glob names
    assert (code, out) == (0, "imported 0 files, 1 unchanged\n")


def test_one_bad_file_does_not_stop_the_rest(run: Run, folder: Path, tmp_path: Path) -> None:
    good = folder / "-home-me-a" / f"{session_id(1)}.jsonl"
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    code, out, error = run("import", str(bad), "/nowhere.jsonl", str(good))
    assert code == 1
    assert out.splitlines()[0] == f"{session_id(1)}: 2 messages (claude-code), 2 new commits"
    assert out.splitlines()[-1] == "imported 1 file, 2 failed"
    assert [line.split(":")[1].strip() for line in error.splitlines()] == [
        f"failed {bad}",
        "failed /nowhere.jsonl",
    ]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["{folder}/none*"], "none*: no file matches"),
        (["{empty}"], "there is no file with a conversation in this folder"),
        (["{folder}", "--thread", "x"], "--thread cannot be used with a folder"),
    ],
)
def test_a_failed_import_prints_one_clear_line(
    run: Run, folder: Path, tmp_path: Path, words: list[str], line: str
) -> None:
    (tmp_path / "nothing").mkdir()
    paths = [word.format(folder=folder, empty=tmp_path / "nothing") for word in words]
    code, out, error = run("import", *paths)
    assert (code, out) == (1, "")
    assert line in error
    assert error.count("\n") == 1


def test_a_file_and_its_folder_are_imported_once(run: Run, folder: Path) -> None:
    named = str(folder / "-home-me-a" / f"{session_id(1)}.jsonl")
    rows = json.loads(run("import", named, str(folder), "--json")[1])
    assert sum(row["file"] == named for row in rows) == 1


HOSTILE = [
    {"type": "user", "message": {"role": "user", "content": [1, None, "x", {"type": 5}]}},
    {"type": "user", "message": {"role": "user", "content": "a"}, "parentUuid": 7, "uuid": "u1"},
    {"type": "assistant", "uuid": "u2",
     "message": {"role": "assistant", "content": [{}], "id": []}},
    {"type": "assistant", "uuid": "u3",
     "message": {"role": "assistant", "content": [], "usage": 3}},
    {"type": "user", "isCompactSummary": True, "uuid": "u4", "timestamp": [],
     "message": {"role": "user", "content": "s"}},
    {"type": "system", "subtype": "compact_boundary", "uuid": "u5", "compactMetadata": 9},
    {"type": "user", "isCompactSummary": True, "uuid": "u6", "parentUuid": "u5",
     "message": {"role": "user", "content": "s"}},
    {"type": "user", "uuid": "u7", "agentId": {}, "isSidechain": 1,
     "message": {"role": "user", "content": "s"}},
    {"type": "response_item", "payload": {"type": "message", "role": 3, "content": {}}},
    {"type": "compacted", "payload": {"replacement_history": [3], "message": {}}},
    {"type": "session_meta", "payload": {"id": {}}},
    {"type": [], "message": {"role": "user", "content": "a"}, "uuid": "u8"},
    {"type": "response_item", "payload": {"type": []}},
]  # fmt: skip


@pytest.mark.parametrize("line", HOSTILE, ids=str)
def test_a_hostile_line_is_imported_or_refused_without_a_traceback(
    run: Run, tmp_path: Path, line: dict[str, Any]
) -> None:
    folder = tmp_path / "hostile"
    good = write_session(folder, 1, "fine")
    session = {"sessionId": session_id(9)} if "payload" not in line else {}
    (folder / "a.jsonl").write_text(json.dumps({**session, **line}) + "\n")
    code, out, error = run("import", str(folder))
    assert code in (0, 1)
    assert "Traceback" not in error
    assert f"{good.stem}: 2 messages" in out


def test_a_hostile_boundary_is_imported(run: Run, tmp_path: Path) -> None:
    session = Session(session_id(1))
    session.user("a")
    session.add(type="system", subtype="compact_boundary", compactMetadata=[1])
    session.user("the summary", isCompactSummary=True)
    session.add(
        type="system",
        subtype="compact_boundary",
        compactMetadata={"preservedMessages": {"uuids": [3, {}]}},
    )
    session.user("another", isCompactSummary=True)
    path = tmp_path / "s.jsonl"
    path.write_bytes(session.data)
    code, out, error = run("import", str(path))
    assert (code, error) == (0, "")
    assert f"{session_id(1)}: 1 message " in out


def serve_on_terminal(home: Path, reply: bytes, *flags: str) -> bytes:
    """What `weft serve` prints on a terminal up to its address, answered with `reply`."""
    leader, follower = pty.openpty()
    clean = {name: value for name, value in os.environ.items() if name not in SECRETS}
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "WEFT_STORE"):
        clean.pop(name, None)
    words = [sys.executable, "-c", LAUNCH, "serve", "--port", "0", "--store", "s.db", *flags]
    process = subprocess.Popen(
        words, stdin=follower, stdout=follower, stderr=subprocess.DEVNULL, cwd=home,
        env={**clean, "HOME": str(home)}, start_new_session=True,
    )  # fmt: skip
    os.close(follower)
    output, deadline = b"", time.monotonic() + 60
    try:
        while b"weft serves on" not in output and time.monotonic() < deadline:
            if select.select([leader], [], [], 1)[0]:
                output += os.read(leader, 10_000)
            if reply and b"[y/N]" in output:
                os.write(leader, reply)
                reply = b""
    finally:
        process.terminate()
        process.wait(timeout=120)
        os.close(leader)
    assert b"weft serves on" in output, output
    return output


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    write_session(home / ".claude" / "projects" / "-work", 1, "one")
    write_session(home / ".codex" / "sessions" / "2026", 2, "two")  # found by its folder
    return home


def test_serve_offers_to_import_once(home: Path) -> None:
    output = serve_on_terminal(home, b"y\n")
    assert b"Claude Code has 1 session file (0.0 MB) in" in output
    assert b"Codex has 1 session file (0.0 MB) in" in output
    assert b"imported 2 files" in output
    assert b"[y/N]" not in serve_on_terminal(home, b"")  # the store is no longer new


@pytest.mark.parametrize("reply", [b"n\n", b"\n", b"\x04"])  # the last one is Ctrl-D
def test_serve_imports_nothing_without_consent(home: Path, run: Run, reply: bytes) -> None:
    output = serve_on_terminal(home, reply)
    assert b"imports them later" in output
    assert json.loads(run("threads", "--json", "--store", str(home / "s.db"))[1]) == []


def test_serve_does_not_ask_if_configured_not_to(home: Path) -> None:
    assert b"[y/N]" not in serve_on_terminal(home, b"", "--no-import")
    (home / "s.db").unlink()
    (home / "weft.toml").write_text("offer_import = false\n")
    assert b"[y/N]" not in serve_on_terminal(home, b"", "--config", "weft.toml")
    (home / "s.db").unlink()
    assert b"[y/N]" not in serve_on_terminal(home, b"", "--no-record")


def test_serve_does_not_ask_if_there_are_no_sessions(tmp_path: Path) -> None:
    home = tmp_path / "bare"
    home.mkdir()
    assert b"[y/N]" not in serve_on_terminal(home, b"")
