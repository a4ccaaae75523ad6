"""Invalid input to every command: one clear line, a non-zero exit code, no traceback."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.cli import COMMANDS

NOT_ON_STORES = {"translate", "serve", "run", "chat", "keys", "demo", "doctor", "models"}
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
def test_an_unknown_flag_prints_one_line(run: Any, command: str) -> None:
    assert_one_clear_line(run(command, "--no-such-flag"), 2)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_is_printed(run: Any, command: str) -> None:
    code, out, err = run(command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: weft {command}")


@pytest.mark.parametrize("words", [["nonsense"], ["--nonsense"], ["nonsense", "--json"]])
def test_an_unknown_command_prints_one_line(run: Any, words: list[str]) -> None:
    assert_one_clear_line(run(*words), 2)


@pytest.mark.parametrize("command", READS_THREADS)
def test_a_missing_store_prints_one_line_and_is_not_created(
    run: Any, tmp_path: Path, command: str
) -> None:
    assert_one_clear_line(run(*words_for(run, command)), 1)
    assert not (tmp_path / "store.db").exists()


@pytest.mark.parametrize("command", ON_THREADS)
def test_a_store_that_is_a_folder_prints_one_line(run: Any, tmp_path: Path, command: str) -> None:
    assert_one_clear_line(run(*words_for(run, command), "--store", str(tmp_path)), 1)


@pytest.mark.parametrize("command", ON_THREADS)
def test_a_store_that_is_not_a_database_prints_one_line(
    run: Any, tmp_path: Path, command: str
) -> None:
    path = tmp_path / "text.db"
    path.write_text("this is no database, and long enough to look like a page " * 100)
    assert_one_clear_line(run(*words_for(run, command), "--store", str(path)), 1)
    assert path.read_text().startswith("this is no database")


@pytest.mark.parametrize("command", ON_THREADS)
def test_an_unknown_store_scheme_prints_one_line(run: Any, command: str) -> None:
    assert_one_clear_line(run(*words_for(run, command), "--store", "ftp://x/y"), 1)


@pytest.mark.parametrize("command", sorted(set(READS_THREADS) - {"threads", "fsck", "gc"}))
def test_a_missing_thread_prints_one_line(run: Any, store: Path, command: str) -> None:
    result = run(*words_for(run, command), "--thread", "nowhere", "--store", str(store))
    assert_one_clear_line(result, 1)


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("command", [name for name in READS_THREADS if name not in NEEDED])
@pytest.mark.parametrize("word", ["zz", "deadbeef", "", "\x00", "a" * 500, "-1"])
def test_an_invalid_id_gives_a_result_or_one_line(run: Any, command: str, word: str) -> None:
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
def test_a_wrong_option_prints_one_line(run: Any, words: list[str]) -> None:
    assert_one_clear_line(run(*words), 2)


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("command", ["log", "threads", "stats", "compile", "branch", "undo"])
def test_every_command_supports_json(run: Any, command: str) -> None:
    code, out, err = run(command, "--json")
    assert (code, err) == (0, "")
    json.loads(out)


def test_a_closed_output_pipe_is_not_a_failure(store: Path) -> None:
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
def test_a_deeply_nested_file_is_refused(run: Any, tmp_path: Path, depth: int) -> None:
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


def test_closed_streams_are_not_a_failure(store: Path) -> None:
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


ASCII = [
    {"PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
]


@pytest.mark.parametrize("variables", ASCII, ids=["python", "locale"])
def test_an_encoding_without_the_characters_is_not_a_failure(
    store: Path, variables: dict[str, str]
) -> None:
    with weft.open(store) as thread:
        thread.user("caf\u00e9 \U0001f600")
    program = "import sys; from weft.cli import main; sys.exit(main(sys.argv[1:]))"
    output: dict[str, str] = {}
    for words in ("log", "log --json", "search caf", "export --format dicts"):
        done = subprocess.run(
            [sys.executable, "-c", program, *words.split()],
            env={**os.environ, "WEFT_STORE": str(store), **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b""), words
        output[words] = done.stdout.decode()
    assert "caf\u00e9 \U0001f600" in output["log"] or r"caf\u00e9 \ud83d\ude00" in output["log"]
    assert json.loads(output["log --json"])[0]["preview"] == "caf\u00e9 \U0001f600"


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("command", ["commit x", "log", "search x", "rename y"])
def test_a_name_that_is_not_utf8_is_refused(run: Any, command: str) -> None:
    result = run(*command.split(), "--thread", os.fsdecode(b"caf\xe9"))
    assert_one_clear_line(result, 1)


ERRORS = [
    (["log", "--thread", ""], "argument -t/--thread: must not be empty"),
    (["log", "--store", ""], "argument --store: must not be empty"),
    (["commit", "x", "--store", ""], "argument --store: must not be empty"),
    (["chat", "", "--model", "gpt-5", "--thread", "new"], "the text is empty: leave"),
    (["serve", "--store", ""], "argument --store: must not be empty"),
    (["gc", "--days", "-1"], "argument --days: must be a number of at least 0, not '-1'"),
    (["gc", "--days", "nan"], "argument --days: must be a number of at least 0, not 'nan'"),
    (["log", "-n", "-1"], "must be a whole number of at least 0, not '-1'"),
    (["log", "-n", "x"], "must be a whole number of at least 0, not 'x'"),
    (["compact", "--timeout", "x"], "must be a number of seconds above 0, not 'x'"),
    (["compact", "--timeout", "0"], "must be a number of seconds above 0, not '0'"),
    (["export", "--html", "--markdown"], "not allowed with argument --html"),
    (["export", "--html", "--format", "dicts"], "not allowed with argument --html"),
    (["commit", "\udcff\udcfe"], "the text is not UTF-8"),
    (["resume", "nosuch"], "there is no thread 'nosuch' in '{store}': there is 'default'"),
    (["log", "--thread", "nosuch"], "there is no thread 'nosuch' in '{store}': there is 'default'"),
    (["log", "--store", "{folder}"], "'{folder}' is a folder, not a store"),
    (["commit", "x", "--store", "{folder}"], "'{folder}' is a folder, not a store"),
    (["log", "--store", "{text}"], "'{text}' is not a Weft store"),
    (["commit", "x", "--store", "{text}"], "'{text}' is not a Weft store"),
]


@pytest.mark.parametrize(("words", "message"), ERRORS)
def test_an_error_says_what_is_wrong(
    store: Path, run: Any, tmp_path: Path, monkeypatch: Any, words: list[str], message: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    text = tmp_path / "some.txt"
    text.write_text("hello, this is not a store\n" * 100)
    places = {"store": store, "folder": tmp_path, "text": text}
    result = run(*[word.format(**places) for word in words])
    assert_one_clear_line(result)
    assert message.format(**places) in result[2]
    assert "fsck" not in result[2]
    with weft.open(store) as thread:
        assert [record.name for record in weft.threads(thread.store)] == ["default"]


def test_input_that_is_not_utf_8_is_refused(store: Path) -> None:
    program = "import sys; from weft.cli import main; sys.exit(main(sys.argv[1:]))"
    for locale in ("C.UTF-8", "C"):
        done = subprocess.run(
            [sys.executable, "-c", program, "commit", "--store", str(store)],
            input=b"\xff\xfe",
            env={**os.environ, "LC_ALL": locale},
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (1, b"weft: the text is not UTF-8\n")


def test_a_failed_import_leaves_no_new_store(run: Any, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text("hello")
    folder = tmp_path / "new"
    folder.mkdir()
    for words in ([str(wrong)], [str(wrong), str(wrong.with_name("missing.json"))]):
        assert run("import", *words, "--store", str(folder / "new.db"))[0] == 1
        assert list(folder.iterdir()) == []


def test_compacted_messages_and_compactions_cannot_be_edited(store: Path, run: Any) -> None:
    with weft.open(store) as thread:
        first = thread.log()[-1].id
        thread.user("c")
        thread.assistant("d")
        thread.compact(summary="a and b", keep=1)
    result = run("edit", first[:12], "other")
    assert_one_clear_line(result)
    assert "is folded into a summary" in result[2]
    result = run("edit", "HEAD", "other")
    assert_one_clear_line(result)
    assert "is a compaction" in result[2]


def test_counts_and_times_are_formatted_for_people(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    file.write_text('[{"role": "user", "content": "x"}]')
    assert run("import", str(file))[1].startswith("one: 1 message (openai-chat), 1 new commit\n")
    live = run("threads")[1]
    run("delete", "one", "--yes")
    deleted = run("threads", "--deleted")[1]
    moment = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(?!:)")
    assert moment.search(live)
    assert moment.search(deleted)


def test_help_says_that_commit_needs_a_full_name(run: Any) -> None:
    for command in ("commit", "import"):
        text = " ".join(run(command, "--help")[1].split())
        assert "unique prefix" not in text
        assert "a new name creates it" in text
