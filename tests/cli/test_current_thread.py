"""Which thread a command works on without a name: by an id, by the folder, and what it says."""

import json
import os
import re
import shlex
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

import weft
from weft.cli.main import COMMANDS, Parser
from weft.store import open_store

Run = Callable[..., tuple[int, str, str]]
NOT_ON_THREADS = {"translate", "serve", "run", "models", "keys"}
"""Commands that open no thread."""
ON_WHOLE_STORES = {"threads", "fsck", "gc", "undelete", "resume"}
"""Commands that name their thread in another way, or work on all of them."""


def parser_of(name: str) -> Parser:
    parser = Parser(prog=f"weft {name}", allow_abbrev=False)
    parser.set_defaults(command=name)
    import_module(COMMANDS[name][0]).configure(parser)
    return parser


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_on_threads_takes_t_and_thread(name: str) -> None:
    takes_thread = "-t NAME, --thread NAME" in " ".join(parser_of(name).format_help().split())
    # Commands on a whole store accept it, for scripts that give it to every command.
    assert takes_thread == (name not in NOT_ON_THREADS | ON_WHOLE_STORES)


@pytest.fixture
def two(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A thread of the folder `here`, and a newer one of the folder `there`; ids of messages."""
    ids: dict[str, str] = {}
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        for text in ("first", "second", "third"):
            out = run("commit", f"{text} of {name}", "-t", name, "--json")[1]
            ids[f"{name} {text}"] = json.loads(out)["id"]
    monkeypatch.chdir(tmp_path / "here")
    return ids


READING = {
    "show": ["show", "{id}"],
    "show prefix": ["show", "{prefix}"],
    "show parent": ["show", "{last}~1"],
    "recall": ["recall", "{id}"],
    "recall prefix": ["recall", "{prefix}"],
    "diff": ["diff", "{prefix}"],
    "compile": ["compile", "{prefix}"],
    "versions": ["versions", "{prefix}"],
    "blame": ["blame", "{id}"],
    "branch": ["branch", "fix", "--at", "{prefix}"],
    "tag": ["tag", "v1", "{prefix}"],
    "note": ["note", "{prefix}", "a note"],
    "pin": ["pin", "{prefix}"],
    "skip": ["skip", "{prefix}"],
    "reset": ["reset", "{prefix}", "--preview"],
    "revert": ["revert", "{prefix}", "--preview"],
    "restore": ["restore", "{prefix}", "--preview"],
    "rebase": ["rebase", "{prefix}", "--preview"],
    "cherry-pick": ["cherry-pick", "{prefix}", "--preview"],
    "compact": [
        "compact",
        "--first",
        "{prefix}",
        "--last",
        "{prefix}",
        "--summary",
        "s",
        "--preview",
    ],
    "forget": ["forget", "--id", "{prefix}", "--preview"],
}


WRITING_BY_ID = {
    "edit": ["edit", "{prefix}", "new text"],
    "reset": ["reset", "{prefix}"],
    "reset to a parent": ["reset", "{last}~1"],
    "revert": ["revert", "{prefix}"],
    "restore": ["restore", "{prefix}"],
    "rebase": ["rebase", "{prefix}"],
    "cherry-pick": ["cherry-pick", "{prefix}"],
    "compact": ["compact", "--first", "{prefix}", "--last", "{prefix}", "--summary", "s"],
}
"""Commands that move the branch: in another thread than the current one they need its name."""

WITH_OTHER_IDS = {
    "resume",  # the name of a thread, which an id may follow
    "commit",  # the id of a tool call
    "merge",  # the ids of conflicts
}


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - NOT_ON_THREADS - WITH_OTHER_IDS))
def test_every_command_that_takes_an_id_is_tested(name: str) -> None:
    """The table above has every command whose help speaks of an id of a commit or a message."""
    text = " ".join(parser_of(name).format_help().split())
    takes_id = re.search(r"\b(?:an id|message's id|ID)\b|\bids? of", text)
    tested = [*READING.values(), *WRITING_BY_ID.values()]
    assert not takes_id or name in {words[0] for words in tested}


@pytest.mark.parametrize("words", WRITING_BY_ID.values(), ids=WRITING_BY_ID)
def test_an_id_of_another_thread_moves_no_branch(
    run: Run, two: dict[str, str], words: list[str]
) -> None:
    id, last = two["there second"], two["there third"]
    command = [word.format(id=id, prefix=id[:12], last=last[:12]) for word in words]
    before = {name: run("log", "-t", name, "--json")[1] for name in ("here", "there")}
    code, out, err = run(*command)
    assert (code, out) == (1, "")
    assert "is in the thread 'there'" in err
    named = [command[0], "-t", "there", *command[1:]]
    assert f"`weft {shlex.join(named)}`" in err
    assert before == {name: run("log", "-t", name, "--json")[1] for name in ("here", "there")}
    assert "is in the thread" not in run(*named)[2]  # it says what to run


@pytest.fixture
def elsewhere(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A folder without threads; the only thread of the store belongs to another folder."""
    ids: dict[str, str] = {}
    for name in ("p1", "p2"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "p1")
    for text in ("first", "second"):
        ids[text] = json.loads(run("commit", text, "-t", "one", "--json")[1])["id"]
    monkeypatch.chdir(tmp_path / "p2")
    return ids


WRITING = [
    ["undo"],
    ["undo", "--turn"],
    ["redo"],
    ["clear"],
    ["edit", "HEAD", "new text"],
    ["pin", "HEAD"],
    ["skip", "HEAD~1"],
    ["note", "HEAD", "text"],
    ["tag", "v1"],
    ["tag", "v1", "HEAD"],
    ["tag", "v1", "--delete"],
    ["branch", "fix"],
    ["branch", "fix", "--at", "HEAD~1"],
    ["switch", "main"],
    ["merge", "main"],
    ["reset", "HEAD~1"],
    ["rebase", "main"],
    ["cherry-pick", "HEAD"],
    ["revert", "HEAD"],
    ["restore", "HEAD"],
    ["compact"],
    ["rename", "new"],
    ["delete", "--yes"],
    ["chat", "-c", "hello"],
    ["reset", "{id}"],
    ["edit", "{id}", "new text"],
]


@pytest.mark.parametrize("words", WRITING, ids=" ".join)
def test_the_only_thread_is_not_written_from_another_folder(
    run: Run, elsewhere: dict[str, str], words: list[str]
) -> None:
    before = run("log", "-t", "one", "--graph", "--json")[1]
    code, out, err = run(*(word.format(id=elsewhere["first"]) for word in words))
    assert (code, out) == (1, "")
    assert "-t" in err
    assert "'one'" in err
    assert run("log", "-t", "one", "--graph", "--json")[1] == before


@pytest.mark.parametrize(
    "words",
    [
        ["log"],
        ["log", "--json"],
        ["compile"],
        ["stats"],
        ["export"],
        ["branch"],
        ["tag"],
        ["note"],
        ["note", "HEAD", "--list"],
        ["compact", "--first", "{id}", "--last", "{id}", "--summary", "s", "--preview"],
        ["clear", "--preview"],
        ["reset", "HEAD~1", "--preview"],
        ["show", "{id}"],
        ["pin", "{id}"],
        ["tag", "v1", "{id}"],
        ["note", "{id}", "a note"],
    ],
    ids=" ".join,
)
def test_the_only_thread_is_read_and_marked_from_another_folder(
    run: Run, elsewhere: dict[str, str], words: list[str]
) -> None:
    code, _, err = run(*(word.format(id=elsewhere["first"]) for word in words))
    assert code == 0, err
    assert "weft: thread 'one'" in err


@pytest.mark.usefixtures("elsewhere")
def test_a_commit_in_another_folder_starts_a_thread(run: Run) -> None:
    code, _, err = run("commit", "of p2")
    assert (code, err) == (0, "weft: new thread 'default'\n")
    assert "of p2" not in run("log", "-t", "one")[1]
    assert "of p2" in run("log")[1]
    assert run("undo")[0] == 0
    assert "first" in run("log", "-t", "one")[1]


def test_a_thread_without_a_folder_counts_everywhere(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with weft.open(tmp_path / "store.db", "free") as thread:
        thread.user("first")
    monkeypatch.chdir(tmp_path)
    assert run("commit", "second")[0] == 0
    assert run("undo")[0] == 0
    assert "first" in run("log", "-t", "free")[1]


@pytest.mark.usefixtures("elsewhere")
def test_a_name_that_creates_a_thread_is_printed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("commit", "hi", "-t", "typo")[2] == "weft: new thread 'typo'\n"
    assert run("commit", "hi", "-t", "typo")[2] == ""
    assert "weft: new thread 'talk'" in run("chat", "hello", "-t", "talk")[2]
    monkeypatch.setenv("WEFT_THREAD", "tpyo")
    assert run("commit", "hi")[2] == "weft: new thread 'tpyo'\n"
    assert run("commit", "hi")[2] == ""


@pytest.mark.parametrize("words", READING.values(), ids=READING)
def test_an_id_is_found_in_another_thread(run: Run, two: dict[str, str], words: list[str]) -> None:
    id, last = two["there second"], two["there third"]
    code, out, err = run(*(word.format(id=id, prefix=id[:12], last=last[:12]) for word in words))
    assert code == 0 or "is here already" in err, err  # what a cherry-pick of it says
    assert "weft: thread 'there'" in err
    assert "weft:" not in out


@pytest.mark.usefixtures("two")
def test_the_result_of_a_search_can_be_shown(run: Run) -> None:
    id = run("search", "second of there", "-n", "1")[1].split()[0]
    assert "second of there" in run("show", id)[1]
    assert "second of there" in run("recall", id)[1]


def test_an_id_in_several_threads_is_ambiguous(
    run: Run, two: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefixes = [id[:4] for id in two.values()]
    with weft.open(tmp_path / "store.db", "other") as thread:
        number = 0
        while not any(thread.user(f"try {number}").id.startswith(each) for each in prefixes):
            number += 1  # until two messages of two threads begin with the same four digits
            if number > 4000:
                pytest.skip("no two ids begin alike")
        prefix = thread.log(1)[0].id[:4]
    monkeypatch.chdir(tmp_path)  # no thread of this folder decides
    code, out, err = run("show", prefix)
    assert (code, out) == (1, "")
    assert "is in 2 threads" in err
    assert "-t NAME" in err


@pytest.mark.usefixtures("two")
def test_the_thread_of_the_folder_is_the_default(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "of here" in run("log")[1]  # the other one is newer
    assert "weft: thread 'here'" in run("log", "--json")[2]
    below = tmp_path / "there" / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert "of there" in run("log")[1]
    monkeypatch.chdir(tmp_path)
    code, out, err = run("log")
    assert (code, out) == (1, "")
    assert "belongs to this folder: choose with -t NAME: 'there', 'here'" in err


@pytest.mark.usefixtures("two")
def test_a_new_thread_is_made_in_a_folder_without_one(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "weft: thread 'here'" in run("commit", "fourth")[2]
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        run("commit", f"of {name}")
        assert f"of {name}" in run("log")[1]
    names = {record.name for record in open_store(str(tmp_path / "store.db")).threads()}
    assert names == {"here", "there", "default", "two"}


@pytest.mark.usefixtures("two")
def test_a_name_or_a_variable_chooses_the_thread(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["log", "there"], ["log", "-t", "th"], ["log", "--thread", "the"]):
        code, out, err = run(*words)
        assert (code, "of there" in out, err) == (0, True, "")
    monkeypatch.setenv("WEFT_THREAD", "there")
    assert "of there" in run("log")[1]
    assert "of here" in run("log", "-t", "here")[1]  # the option wins
    monkeypatch.setenv("WEFT_THREAD", "")
    assert "of here" in run("log")[1]


def test_the_home_folder_does_not_hold_everything_below_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (".", "a"):
        (tmp_path / name).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / name)
        run("commit", "hello", "-t", f"t{os.path.basename(os.getcwd())}")
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "b")
    assert run("log")[0] == 1


@pytest.mark.usefixtures("two")
def test_a_chat_starts_a_thread_and_c_continues_it(run: Run) -> None:
    code, _, err = run("chat", "hello one")
    assert code == 0
    assert "`weft chat -c` continues it" in err
    assert run("chat", "hello two")[0] == 0
    assert run("chat", "-c", "hello three")[0] == 0
    log = run("log")[1]
    assert "hello three" in log
    assert "hello two" in log
    assert "hello one" not in log
    assert "leave out -t" in run("chat", "-c", "-t", "here", "hi")[2]
