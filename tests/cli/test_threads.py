"""The commands on threads: their output and exit codes, without tracebacks."""

import io
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from weft.cli import main


@pytest.fixture
def weft(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Any:
    """Run a command on a store of its own; the result is exit code, output and errors."""
    monkeypatch.setenv("WEFT_STORE", str(tmp_path / "store.db"))

    def run(*words: str) -> tuple[int, str, str]:
        code = main(words)
        read = capsys.readouterr()
        return code, read.out, read.err

    return run


def of_json(result: tuple[int, str, str]) -> Any:
    assert (result[0], result[2]) == (0, "")
    return json.loads(result[1])


def test_a_conversation_is_written_on_the_command_line(weft: Any) -> None:
    first = of_json(weft("commit", "hello", "--json"))
    weft("commit", "hi", "--role", "assistant", "--note", "greets back")
    assert of_json(weft("compile", "--json")) == [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hi"},
    ]
    log = of_json(weft("log", "--json"))
    assert [row["message"] for row in log] == ["greets back", "dialogue: hello"]
    assert log[1]["id"] == first["id"]
    assert weft("log", "-n", "1")[1].split() == [log[0]["id"][:12], "assistant", "greets", "back"]
    assert of_json(weft("show", first["id"][:10], "--json"))["messages"][0]["content"] == "hello"


def test_text_comes_from_standard_input(weft: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("piped\ntext\n"))
    weft("commit")
    assert of_json(weft("compile", "--json"))[0]["content"] == "piped\ntext"


def test_branch_merge_undo_and_redo(weft: Any) -> None:
    weft("commit", "a")
    weft("branch", "x")
    weft("switch", "x")
    weft("commit", "b")
    weft("switch", "main")
    weft("commit", "c")
    assert of_json(weft("merge", "x", "--preview", "--json"))["conflicts"] == []
    assert of_json(weft("merge", "x", "--json"))["kind"] == "merge"
    texts = [row["content"] for row in of_json(weft("compile", "--json"))]
    assert texts == ["a", "c", "b"]
    weft("undo")
    assert len(of_json(weft("compile", "--json"))) == 2
    weft("redo")
    assert len(of_json(weft("compile", "--json"))) == 3
    assert of_json(weft("branch", "--json"))["current"] == "main"
    assert of_json(weft("diff", "x", "--json"))["changes"][0]["after"] == "c"


def test_pin_compact_search_and_revert(weft: Any) -> None:
    ids = [of_json(weft("commit", word, "--json"))["id"] for word in ("alpha", "beta", "gamma")]
    weft("pin", ids[1])
    weft("edit", ids[1], "BETA")
    assert "1 pin kept" in weft("compact", "--summary", "S")[1]
    summary, *rest = [row["content"] for row in of_json(weft("compile", "--json"))]
    assert "\n\nS\n\n" in summary
    assert rest == ["BETA", "gamma"]
    assert of_json(weft("search", "alpha", "--json"))[0]["live"] is False
    assert of_json(weft("recall", ids[0], "--json"))[0]["text"] == "alpha"
    compaction = of_json(weft("log", "-n", "1", "--json"))[0]["id"]
    weft("revert", compaction)
    texts = [row["content"] for row in of_json(weft("compile", "--json"))]
    assert texts == ["alpha", "BETA", "gamma"]
    weft("skip", ids[0])
    assert of_json(weft("stats", "--json"))["hidden"] == 1
    assert of_json(weft("threads", "--json"))[0]["name"] == "default"


@pytest.mark.parametrize("shape", ["dicts", "openai", "anthropic", "responses"])
def test_compile_prints_every_format(weft: Any, shape: str) -> None:
    weft("commit", "a")
    assert "a" in json.dumps(of_json(weft("compile", "--format", shape)))


@pytest.mark.parametrize(
    "words",
    [
        ["log", "--store", "/nowhere/at/all.db"],
        ["log", "--thread", "unknown"],
        ["show", "deadbeef"],
        ["edit", "zz", "x"],
        ["switch", "nowhere"],
        ["merge", "nowhere"],
        ["branch", "a..b"],
        ["redo"],
        ["revert", "deadbeef"],
        ["compact"],
        ["compact", "--summary", "S", "--from", "nosuch"],
        ["compact", "--budget", "1"],
        ["compact", "--replacements", "/nowhere.json"],
    ],
    ids=" ".join,
)
def test_a_failure_prints_one_clear_line(weft: Any, words: list[str]) -> None:
    weft("commit", "a")
    before = weft("log")
    code, out, err = weft(*words)
    assert code != 0
    assert out == ""
    assert err.startswith("weft: ")
    assert err.count("\n") == 1
    assert weft("log") == before


def test_a_reading_command_creates_no_store(weft: Any, tmp_path: Path) -> None:
    assert weft("log")[0] == 1
    assert not (tmp_path / "store.db").exists()


def test_forget_lists_names_in_use_with_the_commands_that_change_them(run: Any) -> None:
    secret = "hunter2"
    assert run("commit", "a", "--thread", f"about {secret}")[0] == 0
    run("tag", f"at-{secret}")
    run("branch", f"try-{secret}")
    code, out, err = run("forget", secret, "--preview")
    assert (code, out) == (0, "")
    code, out, err = run("forget", secret)
    assert (code, out) == (1, "")
    commands = re.findall(r"`(weft (?:rename|tag|branch) [^`]*)`", err)
    assert len(commands) == 3
    report = json.loads(run("forget", secret, "--json")[1])
    assert [row["command"] for row in report["live_names"]] == commands
    for command in commands:
        assert run(*shlex.split(command)[1:])[0] == 0
    assert run("forget", secret)[:2] == (0, "erased from 0 entries, 0 notes and 2 names\n")
    assert run("gc", "--days", "0")[0] == 0
    for path in Path(os.environ["WEFT_STORE"]).parent.glob("store.db*"):
        assert secret.encode() not in path.read_bytes()
    assert run("forget", secret)[:2] == (0, "nothing contains that text\n")
