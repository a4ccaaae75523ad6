"""Details of printed text: plurals, empty values, suggestions for typos, and reasons."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.cli import COMMANDS
from weft.model import Params
from weft.store import open_store


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_gc_says_why_nothing_was_removed(run: Any) -> None:
    run("commit", "a")
    assert run("gc")[1] == "nothing was removed: branches and tags reach everything\n"
    run("commit", "b")
    run("undo")
    output = run("gc")[1]
    assert output.startswith("nothing was removed: 1 commit was in use ")
    assert "30 days" in output
    assert "--days 0" in output
    assert run("gc", "--days", "0", "--preview")[1] == "1 commit would be removed\n"
    assert run("gc", "--days", "0")[1] == "1 commit and 1 entry were removed\n"


def test_one_commit_is_singular(run: Any) -> None:
    run("commit", "a")
    assert "1 branch, 1 commit  " in run("threads")[1]
    assert run("fsck")[1] == "1 commit, 1 entry: clean\n"
    assert run("forget", "a", "--preview")[1] == "would be erased from 1 entry and 1 note\n"


def test_several_commits_are_plural(run: Any, tmp_path: Path) -> None:
    with weft.open(tmp_path / "store.db") as thread, thread.batch():
        for number in range(1200):
            thread.user(f"message {number}")
        thread.branch("side")
    assert "2 branches, 1,200 commits  " in run("threads")[1]
    assert run("fsck")[1] == "1,200 commits, 1,200 entries: clean\n"


def test_an_empty_note_has_no_line(run: Any, tmp_path: Path) -> None:
    with weft.open(tmp_path / "store.db") as thread:
        thread.setup(params=Params(temperature=0.5))
    assert "note" not in run("show", "HEAD")[1]
    assert run("log")[1].split(maxsplit=1)[1] == "setup     temperature 0.5\n"


def test_the_log_names_the_tools_of_a_setup(run: Any, tmp_path: Path) -> None:
    tool = {"name": "calculator", "description": "", "input_schema": {"type": "object"}}
    with weft.open(tmp_path / "store.db") as thread:
        thread.setup([tool])
        thread.setup()
    lines = [line.split(maxsplit=2)[2] for line in run("log")[1].splitlines()]
    assert lines == ["no tools, no parameters", "tools calculator"]


def test_the_log_truncates_lines_in_one_way(run: Any) -> None:
    run("commit", "word " * 40)
    out = run("log")[1]
    assert "..." not in out
    assert out.endswith("…\n")


def test_stats_are_formatted_for_people(run: Any) -> None:
    run("commit", "a")
    run("pin", "HEAD")
    out = run("stats")[1]
    assert re.search(r"^priorities +1 pinned$", out, re.M)
    assert json.loads(run("stats", "--json")[1])["priorities"] == {"pinned": 1}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_help_text(run: Any, command: str) -> None:
    out = run(command, "--help")[1]
    assert "FROM_" not in out
    for block in re.split(r"\n  (?=-)", out.split("options:")[1].split("\n\n")[0])[1:]:
        head, _, help_text = re.sub(r"\{[^}]*\}", "", block).partition("  ")
        assert help_text.strip() or "\n" in head, block


def test_only_commands_on_one_thread_have_the_thread_option(run: Any) -> None:
    """Commands on a whole store, or with the thread as an argument, accept `--thread` silently."""
    run("commit", "a")
    ignoring = {"fsck": (), "gc": (), "threads": (), "undelete": ("gone",)}
    for command in (*ignoring, "resume"):
        assert "--thread" not in run(command, "--help")[1], command
    for command, words in ignoring.items():
        assert run(command, *words, "--thread", "x") == run(command, *words), command
    for command in ("log", "forget", "delete", "chat", "import", "export"):
        assert "--thread" in run(command, "--help")[1], command


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("commt", "did you mean 'commit'?"),
        ("brnch", "did you mean 'branch'?"),
        ("zzzz", "see weft --help"),
    ],
)
def test_a_typo_gets_a_suggestion(run: Any, typed: str, expected: str) -> None:
    code, out, err = run(typed)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"no command {typed!r}" in err
    assert expected in err
    assert len(err) < 120


def test_children_of_a_thread_are_counted_and_listed_on_request(run: Any, tmp_path: Path) -> None:
    run("commit", "--thread", "session", "hello")
    run("commit", "--thread", "agent", "look there")
    store = open_store(tmp_path / "store.db")
    store.describe_thread("agent", parent="session", kind="agent")
    store.close()
    (line,) = run("threads")[1].splitlines()
    assert line.startswith("session  1 branch, 1 commit, 1 child  ")
    first, second = run("threads", "--children")[1].splitlines()
    assert first.startswith("session  ")
    assert second.startswith("  agent  1 branch, 1 commit, agent  ")
    rows = {row["name"]: row for row in json.loads(run("threads", "--json")[1])}
    assert (rows["agent"]["parent"], rows["session"]["children"]) == ("session", 1)


def test_threads_are_listed_newest_first(run: Any) -> None:
    for name in ("old", "mid", "new"):
        run("commit", "a", "--thread", name)
    run("commit", "again", "--thread", "old")
    names = [line.split()[0] for line in run("threads")[1].splitlines()]
    assert names == ["old", "new", "mid"]
    assert "weft: thread 'old'" in run("log")[2]


def test_a_prompt_can_be_a_file_and_a_text_can_be_retained(run: Any, tmp_path: Path) -> None:
    for number in range(6):
        run("commit", f"turn {number}")
    path = tmp_path / "prompt.txt"
    path.write_text("be brief")
    words = ("compact", "--model", "weft-offline", "--keep", "1", "--preview")
    assert run(*words, "--prompt", f"@{path}")[0] == 0
    assert "nowhere" in run(*words, "--prompt", "@/nowhere")[2]
    code, _, err = run("compact", "--summary", "short", "--retain", "turn 0")
    assert (code, "turn 0" in err) == (1, True)
    assert run("compact", "--summary", "about turn 0", "--retain", "turn 0")[0] == 0


def test_an_unreachable_gateway_is_reported_before_the_program_runs(
    run: Any, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    code, _, err = run("run", "--url", "http://127.0.0.1:9", "--", "touch", str(mark))
    assert code == 1
    assert "no gateway answers at 'http://127.0.0.1:9'" in err
    assert not mark.exists()


def test_a_chat_says_how_to_leave_and_lists_its_commands(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = iter(["/help", "/nonsense", "/quit", "never said"])
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    monkeypatch.setattr("sys.stdin", Tty())
    code, out, _ = run("chat")
    assert code == 0
    assert "/help" in out.splitlines()[0]
    assert "/quit" in out
    assert "no command '/nonsense'" in out
    assert next(typed) == "never said"
    assert run("log")[1] == ""  # what begins with a slash is said to nobody


def test_an_empty_list_says_what_is_empty(run: Any) -> None:
    run("commit", "a")
    run("undo")
    rows = [
        (("log",), "branch 'main' has no commits: `weft commit TEXT` adds one"),
        (("log", "--graph"), "the thread has no commits: `weft commit TEXT` adds one"),
        (("compile",), "branch 'main' has no messages: `weft commit TEXT` adds one"),
        (("tag",), "the thread has no tags: `weft tag NAME` adds one"),
        (("note",), "there are no notes: `weft note ID TEXT` adds one"),
        (("threads", "--deleted"), "there are no deleted threads"),
        (("compact", "--list"), "there are no summaries: the branch was never compacted"),
    ]
    for command, line in rows:
        assert run(*command) == (0, "", f"weft: {line}\n"), command
        code, out, err = run(*command, "--json")
        assert (code, json.loads(out), err) == (0, {} if command == ("tag",) else [], ""), command


def test_a_missing_store_says_how_to_create_one(run: Any, tmp_path: Path) -> None:
    missing = tmp_path / "nothing.db"
    _, _, err = run("log", "--store", str(missing))
    assert err == (
        f"weft: there is no store at {str(missing)!r}: `weft commit TEXT` creates it, and --store "
        "names another\n"
    )


def test_errors_name_the_kind_of_missing_object(run: Any) -> None:
    run("commit", "a")
    assert run("undelete", "gone")[2] == "weft: no deleted thread 'gone'\n"
    assert run("switch", "gone")[2] == "weft: no branch 'gone' in this thread\n"


def test_a_missing_config_is_named_once(run: Any, tmp_path: Path) -> None:
    config = str(tmp_path / "no.toml")
    _, _, err = run("serve", "--config", config)
    assert err.count(config) == 1


def test_a_missing_program_is_not_reported_as_sending_no_requests(run: Any, tmp_path: Path) -> None:
    store = str(tmp_path / "w.db")
    code, _, err = run("run", "--store", store, "--", "no-such-program")
    assert (code, err) == (127, "weft: no program 'no-such-program'\n")
