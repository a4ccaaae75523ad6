"""Every command, given nonsense: one clear line, an exit code that says so, never a traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.cli import COMMANDS

NOT_ON_STORES = {"translate", "serve", "run", "chat", "keys", "demo", "doctor"}
EXIT_USAGE = 2
MAKES_A_STORE = {"commit", "import"}
ON_THREADS = sorted(set(COMMANDS) - NOT_ON_STORES)
READS_THREADS = sorted(set(ON_THREADS) - MAKES_A_STORE)

NEEDED: dict[str, list[str]] = {
    "import": [os.devnull],
    "export": ["--format", "dicts"],
    "compact": ["--keep", "1"],
}
"""What a command needs beside words, so that what is wrong is only what the row says."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    with weft.open(path) as thread:
        thread.user("a")
        thread.assistant("b")
    return path


def assert_one_clear_line(result: tuple[int, str, str], code: int | None = None) -> None:
    exit_code, out, err = result
    assert exit_code != 0
    assert code is None or exit_code == code
    assert out == ""
    assert err.startswith(("weft", '{"error": {"type": "'))
    assert err.endswith("\n")
    assert err.count("\n") == 1, err
    assert "Traceback" not in err


def words_for(run: Any, command: str) -> list[str]:
    """The command with as many words as it wants, each an `x`."""
    if command in NEEDED:
        return [command, *NEEDED[command]]
    for count in range(4):
        words = [command, *["x"] * count]
        code, _, _ = run(*words, "--store", "gopher://x/y")  # no command gets beyond its parser
        if code != EXIT_USAGE:
            return words
    raise AssertionError(command)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_an_unknown_flag_is_one_line(run: Any, command: str) -> None:
    assert_one_clear_line(run(command, "--no-such-flag"), 2)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_is_help(run: Any, command: str) -> None:
    code, out, err = run(command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: weft {command}")


@pytest.mark.parametrize("words", [["nonsense"], ["--nonsense"], ["nonsense", "--json"]])
def test_an_unknown_command_is_one_line(run: Any, words: list[str]) -> None:
    assert_one_clear_line(run(*words), 2)


@pytest.mark.parametrize("command", READS_THREADS)
def test_a_missing_store_is_one_line_and_stays_missing(
    run: Any, tmp_path: Path, command: str
) -> None:
    assert_one_clear_line(run(*words_for(run, command)), 1)
    assert not (tmp_path / "store.db").exists()


@pytest.mark.parametrize("command", ON_THREADS)
def test_a_store_that_is_a_folder_is_one_line(run: Any, tmp_path: Path, command: str) -> None:
    assert_one_clear_line(run(*words_for(run, command), "--store", str(tmp_path)), 1)


@pytest.mark.parametrize("command", ON_THREADS)
def test_a_store_that_is_no_database_is_one_line(run: Any, tmp_path: Path, command: str) -> None:
    path = tmp_path / "text.db"
    path.write_text("this is no database, and long enough to look like a page " * 100)
    assert_one_clear_line(run(*words_for(run, command), "--store", str(path)), 1)
    assert path.read_text().startswith("this is no database")


@pytest.mark.parametrize("command", ON_THREADS)
def test_a_store_that_nobody_speaks_is_one_line(run: Any, command: str) -> None:
    assert_one_clear_line(run(*words_for(run, command), "--store", "ftp://x/y"), 1)


@pytest.mark.parametrize("command", sorted(set(READS_THREADS) - {"threads", "fsck", "gc"}))
def test_a_missing_thread_is_one_line(run: Any, store: Path, command: str) -> None:
    result = run(*words_for(run, command), "--thread", "nowhere", "--store", str(store))
    assert_one_clear_line(result, 1)


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("command", [name for name in READS_THREADS if name not in NEEDED])
@pytest.mark.parametrize("word", ["zz", "deadbeef", "", "\x00", "a" * 500, "-1"])
def test_nonsense_for_an_id_is_a_result_or_one_line(run: Any, command: str, word: str) -> None:
    words = words_for(run, command)
    result = run(*[word if item == "x" else item for item in words], "--json")
    if result[0]:
        assert_one_clear_line(result)
    else:
        json.loads(result[1])


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    "words",
    [
        ["log", "-n", "-1"],
        ["log", "-n", "many"],
        ["compile", "--last", "-1"],
        ["compile", "--format", "nonsense"],
        ["search", "a", "-n", "x"],
        ["commit", "x", "--type", "nonsense"],
        ["export", "--format", "nonsense"],
        ["import", "x", "--format", "nonsense"],
        ["import"],
        ["show"],
    ],
    ids=" ".join,
)
def test_a_wrong_option_is_one_line(run: Any, words: list[str]) -> None:
    assert_one_clear_line(run(*words), 2)


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("command", ["log", "threads", "stats", "compile", "branch", "undo"])
def test_every_command_speaks_json(run: Any, command: str) -> None:
    code, out, err = run(command, "--json")
    assert (code, err) == (0, "")
    json.loads(out)


def test_a_reader_who_leaves_is_no_failure(store: Path) -> None:
    weft_main = "from weft.cli import entry; entry()"
    with weft.open(store) as thread, thread.batch():
        for number in range(5000):
            thread.user(f"turn {number} " + "x" * 50)
    done = subprocess.run(
        ["sh", "-c", f'"$0" -c "{weft_main}" log --store "$1" | head -1', sys.executable, store],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_a_file_that_is_nested_too_deeply(run: Any, tmp_path: Path, depth: int) -> None:
    data = b"[" * depth + b"]" * depth
    file = tmp_path / "deep.json"
    file.write_bytes(data)
    result = run("import", str(file))
    assert_one_clear_line(result, 1)
    assert result[2].startswith(f"weft: {file}: ")
    with weft.open() as thread, pytest.raises(weft.ThreadError):
        thread.import_bytes(data)


CLOSED = [
    "log >&-",
    "threads --json >&-",
    "commit more >&-",
    "export --format dicts >&-",
    "--version >&-",
    "--help >&-",
    "log --help >&-",
    "log 2>&-",
    "log >&- 2>&-",
    "log <&- >&- 2>&-",
]
CLOSED_AND_WRONG = ["commit <&-", "commit <&- 2>&-", "log nonsense 2>&-", "show nonsense >&- 2>&-"]


def test_closed_streams_are_no_failure(store: Path) -> None:
    program = "import sys; from weft.cli import main; sys.exit(main(sys.argv[1:]))"
    for words in [*CLOSED, *CLOSED_AND_WRONG]:
        done = subprocess.run(
            ["sh", "-c", f"'{sys.executable}' -c '{program}' {words}"],
            env={**os.environ, "WEFT_STORE": str(store)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        assert b"Traceback" not in done.stderr, words
        assert (done.returncode == 0) == (words in CLOSED), (words, done.stderr)
