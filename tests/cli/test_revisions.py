"""Every command that takes an id also takes git's revisions: HEAD, `~N`, `^`."""

from pathlib import Path

import pytest

import weft
from weft.cli import main
from weft.errors import NotFound


@pytest.fixture
def thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> weft.Thread:
    monkeypatch.setenv("WEFT_STORE", str(tmp_path / "store.db"))
    opened = weft.open(tmp_path / "store.db")
    for word in ("one", "two", "three"):
        opened.user(word)
    opened.branch("side", "HEAD^")
    opened.switch("side")
    opened.user("beside")
    opened.switch("main")
    opened.tag("v1", "main~2")
    return opened


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("HEAD", "three"),
        ("main", "three"),
        ("HEAD^", "two"),
        ("main~1", "two"),
        ("main~", "two"),
        ("main^", "two"),
        ("HEAD~2", "one"),
        ("main^^", "one"),
        ("main~1^", "one"),
        ("main~0", "three"),
        ("main^0", "three"),
        ("~1", "two"),
        ("v1", "one"),
        ("side", "beside"),
        ("side~1", "two"),
    ],
)
def test_a_revision_is_a_commit(thread: weft.Thread, name: str, text: str) -> None:
    assert thread.show(name).text == text
    assert thread.compile(name).messages[-1].text == text


def test_an_id_may_be_followed_by_steps(thread: weft.Thread) -> None:
    head = thread.head
    assert head is not None
    assert thread.show(f"{head.id[:10]}~2").text == "one"


def test_the_second_parent_of_a_merge(thread: weft.Thread) -> None:
    thread.merge("side")
    assert thread.show("HEAD^2").text == "beside"
    assert thread.show("HEAD^1").text == "three"


@pytest.mark.parametrize(
    "name", ["main~3", "main^3", "nobody~1", "HEAD~999999999", "HEAD~x", "main^2", "deadbeef"]
)
def test_an_unknown_revision_lists_the_known_names(thread: weft.Thread, name: str) -> None:
    with pytest.raises(NotFound, match=r"HEAD, optionally followed by ~N or \^"):
        thread.show(name)


@pytest.mark.parametrize(
    "words",
    [
        "show HEAD", "compile HEAD~1", "diff HEAD~2 HEAD", "diff main^", "edit HEAD^ other",
        "pin HEAD~1", "skip HEAD", "note HEAD words", "versions HEAD", "blame HEAD~1",
        "recall HEAD^", "reset HEAD~1", "revert HEAD", "cherry-pick side~0", "rebase side~1",
        "tag v2 HEAD^", "branch b --at HEAD^", "restore HEAD",
    ],
)  # fmt: skip
def test_every_command_that_takes_an_id_takes_a_revision(
    thread: weft.Thread, capfd: pytest.CaptureFixture[str], words: str
) -> None:
    thread.close()
    code = main(words.split())
    assert (code, capfd.readouterr().err) == (0, "")


def test_an_edit_by_revision_edits_that_message(thread: weft.Thread) -> None:
    thread.edit("HEAD^", "two!")
    assert [m.text for m in thread.compile().messages] == ["one", "two!", "three"]


def test_a_diff_without_arguments_shows_the_last_commit(
    thread: weft.Thread, capfd: pytest.CaptureFixture[str]
) -> None:
    main(["diff"])
    out = capfd.readouterr().out
    assert "+ " in out
    assert ": three" in out
    assert "two" not in out
    thread.reset("v1")
    main(["diff"])
    assert ": one" in capfd.readouterr().out  # the first commit, against nothing


@pytest.mark.parametrize("command", ["show", "diff", "compile", "reset", "edit", "pin", "revert"])
def test_help_describes_revisions(capfd: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert "HEAD" in capfd.readouterr().out
