"""The first commands of a new user: default thread, printed results, and helpful errors."""

import json
import re
import sqlite3
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import weft
from claude_lines import Session
from weft.store import open_store


def commit(run: Any, text: str, *more: str) -> str:
    return json.loads(run("commit", text, "--json", *more)[1])["id"]


def test_the_only_thread_is_the_default(run: Any) -> None:
    commit(run, "hello", "--thread", "trip")
    assert "hello" in run("log")[1]
    assert run("export", "--format", "dicts")[0] == 0


def forget_folders(tmp_path: Path) -> None:
    """Make the threads of the store look as if another program had written them."""
    db = sqlite3.connect(tmp_path / "store.db")
    db.execute("UPDATE thread SET folder = NULL")
    db.commit()
    db.close()


def test_with_several_threads_the_error_lists_them(run: Any, tmp_path: Path) -> None:
    for name in ("trip", "work"):
        commit(run, "hello", "--thread", name)
    forget_folders(tmp_path)
    for words in (["log"], ["stats"], ["export", "--format", "dicts"], ["log", "--thread", "x"]):
        code, out, err = run(*words)
        assert (code, out) == (1, "")
        assert "'work', 'trip'" in err
        assert ("-t NAME" in err) == ("x" not in words)
    commit(run, "mine", "--thread", "default")
    assert "mine" in run("log")[1]


def test_a_store_without_threads_says_how_to_create_one(run: Any, tmp_path: Path) -> None:
    open_store(tmp_path / "store.db").close()
    assert "weft commit" in run("log")[2]


def test_help_says_where_threads_are_stored(run: Any) -> None:
    for words in (["log", "--help"], ["--help"]):
        output = " ".join(run(*words)[1].split())
        assert "WEFT_THREAD" in output
        assert "~/.local/share/weft/weft.db" in output
        assert "WEFT_STORE" in output


def test_version_is_printed(run: Any) -> None:
    assert re.fullmatch(r"weft \d+\.\d+.*\n", run("--version")[1])


def test_the_package_runs_as_a_module() -> None:
    words = [sys.executable, "-m", "weft", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == f"weft {weft.__version__}\n"


def test_a_moved_ref_is_reported_in_one_sentence(run: Any) -> None:
    id = commit(run, "hello")[:12]
    rows = [
        (["branch", "try"], f"branch 'try' at {id}"),
        (["switch", "try"], "now on 'try'"),
        (["switch", "main"], "now on 'main'"),
        (["branch", "try", "--delete"], f"deleted branch 'try', which was at {id}"),
        (["undo"], "undid: delete branch 'try'"),
        (["redo"], "redid: delete branch 'try'"),
        (["tag", "v1"], f"tag 'v1' at {id}"),
        (["tag", "v1", "--delete"], f"deleted tag 'v1', which was at {id}"),
        (["undo"], "undid: delete tag 'v1'"),
        (["undo"], "undid: tag 'v1'"),
    ]
    for words, expected in rows:
        assert run(*words) == (0, expected + "\n", "")
    second = commit(run, "more")[:12]
    assert run("undo")[1] == f"undid: append {second} more\n"
    assert run("redo")[1] == f"redid: append {second} more\n"
    assert json.loads(run("undo", "--json")[1])["id"].startswith(id)


def test_the_log_shows_roles_and_operations(run: Any, tmp_path: Path) -> None:
    first = commit(run, "alpha")
    commit(run, "beta", "--role", "assistant")
    run("pin", first)
    run("pin", first, "--off")
    run("edit", first, "omega")
    run("skip", first)
    with weft.open(tmp_path / "store.db") as t:
        t.commit({"content_type": "dialogue", "role": "user", "text": "gateway words"}, "")
    lines = [line.split(maxsplit=1)[1] for line in run("log")[1].splitlines()]
    assert [" ".join(line.split()) for line in lines] == [
        "user gateway words",
        "user skip: omega",
        "user edit: omega",
        "user unmark: alpha",
        "user pin: alpha",
        "assistant beta",
        "user alpha",
    ]


def test_threads_are_listed_with_their_content(run: Any) -> None:
    commit(run, "plan the trip", "--thread", "trip")
    commit(run, "ok", "--thread", "trip", "--role", "assistant")
    run("branch", "try")
    (row,) = json.loads(run("threads", "--json")[1])
    assert (row["name"], row["branch"], row["commits"]) == ("trip", "main", 2)
    assert row["branches"] == ["main", "try"]
    assert row["first"] == "plan the trip"
    for name in ("created", "last"):
        assert datetime.fromisoformat(row[name]).tzinfo is not None
    line = run("threads")[1]
    for part in ("trip", "2 branches", "2 commits", row["last"][:10], "plan the trip"):
        assert part in line


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["commit", ""], "the text is empty"),
        (["commit", "  \n"], "the text is empty"),
        (["commit"], "the text is empty"),
        (["commit", "x", "--role", "robot"], "'robot'"),
        (["import", "/nowhere.json"], "/nowhere.json"),
        (["compact", "--replacements", "/nowhere.json"], "/nowhere.json"),
        (["forget", "\udcff"], "text is not UTF-8"),  # what a shell makes of a lone byte
        (["fsck", "--store", "postgresql://nobody@127.0.0.1:1/x"], "cannot be reached"),
    ],
    ids=str,
)
def test_meaningless_arguments_are_refused(run: Any, words: list[str], expected: str) -> None:
    commit(run, "a")
    code, out, err = run(*words)
    assert (code, out) == (1, "")
    assert expected in err
    assert "Errno" not in err
    assert err.count("\n") == 1
    assert len(json.loads(run("log", "--json")[1])) == 1


@pytest.mark.parametrize("words", [["commit", "x"], ["import", __file__]], ids=str)
def test_a_store_in_a_missing_folder_is_refused(run: Any, tmp_path: Path, words: list[str]) -> None:
    folder = tmp_path / "no" / "such"
    code, out, err = run(*words, "--store", str(folder / "store.db"))
    assert (code, out) == (1, "")
    assert f"there is no folder {str(folder)!r}" in err
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("days", ["nan", "-1", "soon"])
def test_gc_with_an_invalid_time_removes_nothing(run: Any, days: str) -> None:
    commit(run, "a")
    commit(run, "taken back")
    run("undo")
    code, out, err = run("gc", f"--days={days}")
    assert (code, out) == (2, "")
    assert days in err
    assert run("gc", "--days", "0")[1].startswith("1 commit and")


def test_force_accepts_any_role_and_no_text(run: Any) -> None:
    commit(run, "x", "--role", "robot", "--force")
    commit(run, "", "--force")
    assert len(json.loads(run("log", "--json")[1])) == 2


def test_the_default_store_is_created_with_its_folder(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WEFT_STORE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    commit(run, "a")
    assert (tmp_path / "home/.local/share/weft/weft.db").is_file()


def test_a_search_without_results_says_so_on_stderr(run: Any) -> None:
    commit(run, "alpha")
    for command in ("search", "recall", "blame"):
        assert run(command, "omega") == (0, "", "weft: no message contains 'omega'\n")
        assert run(command, "omega", "--json") == (0, "[]\n", "")
    assert run("search", "--help")[1] != run("recall", "--help")[1].replace("recall", "search")
    assert "original" in run("recall", "--help")[1]


@pytest.mark.parametrize(
    ("words", "type", "code"),
    [
        (["log", "--thread", "x"], "ConfigError", 1),
        (["show", "deadbeef"], "NotFound", 1),
        (["import", "/nowhere.json"], "FileNotFoundError", 1),
        (["log", "--nonsense"], "UsageError", 2),
        (["nonsense"], "UsageError", 2),
    ],
    ids=str,
)
def test_an_error_is_json_with_json(run: Any, words: list[str], type: str, code: int) -> None:
    commit(run, "a")
    failed, out, err = run(*words, "--json")
    assert (failed, out, err.count("\n")) == (code, "", 1)
    result = json.loads(err)["error"]
    assert result["type"] == type
    assert result["message"]


def test_an_export_needs_no_format(run: Any, tmp_path: Path) -> None:
    commit(run, "a", "--thread", "mine")
    assert run("export")[1].startswith("{")
    out = tmp_path / "out.weft"
    code, output, err = run("export", "-o", str(out))
    assert (code, err) == (0, "")
    assert output == f"wrote 'mine' as archive to {str(out)!r} ({out.stat().st_size:,} bytes)\n"
    session = Session()
    session.user("hello")
    path = tmp_path / "session.jsonl"
    path.write_bytes(session.data)
    name = json.loads(run("import", str(path), "--json")[1])[0]["thread"]
    assert run("export", "--thread", name)[1] == session.data.decode()


def test_a_diff_ends_with_a_newline(run: Any) -> None:
    first = commit(run, "a")
    commit(run, "a longer text")
    for sides in ([first, "main"], ["main", first]):
        line = run("diff", *sides)[1].splitlines()[-1]
        assert re.fullmatch(r"tokens: [\d,]+ → [\d,]+ \([+-][\d,]+\)", line)


def test_threads_are_listed_by_what_a_person_wrote(run: Any, tmp_path: Path) -> None:
    with weft.open(tmp_path / "store.db", "marked", checkpoints=True) as t:
        t.user("what is left to do?", reminder="be quick")
    (row,) = json.loads(run("threads", "--json")[1])
    assert row["first"] == "what is left to do?"
