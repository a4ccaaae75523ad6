"""`weft compact`: what its flags fold, and which of them it refuses."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.cli.main import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("WEFT_STORE", str(tmp_path / "store.db"))
    monkeypatch.setattr("sys.stdin", io.StringIO())

    def call(*words: str) -> tuple[int, str, str]:
        try:
            code = main(words)
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        out, err = capfd.readouterr()
        return code, out, err

    for n in range(3):
        call("commit", f"question {n}")
        call("commit", f"answer {n}", "--role", "assistant")
    return call


def said(run: Run) -> list[str]:
    return [row["content"] for row in json.loads(run("compile", "--json")[1])]


@pytest.mark.parametrize(
    ("flags", "left"),
    [
        (["--summary", "S"], ["S", "question 2", "answer 2"]),
        (["--keep", "0", "--summary", "S"], ["S", "question 2", "answer 2"]),
        (["--keep", "1", "--summary", "S"], ["S", "question 2", "answer 2"]),
        (["--keep", "2", "--summary", "S"],
         ["S", "question 1", "answer 1", "question 2", "answer 2"]),
    ],
)  # fmt: skip
def test_a_summary_stands_for_all_but_the_turns_to_keep(
    run: Run, flags: list[str], left: list[str]
) -> None:
    assert run("compact", *flags)[0] == 0
    assert said(run) == left


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ([], ["--budget", "--keep", "--summary", "--replacements"]),
        (["--preview"], ["--budget", "--keep", "--summary", "--replacements"]),
        (["--budget", "-3"], ["--budget", "-3"]),
        (["--keep", "-1"], ["--keep", "-1"]),
        (["--from", "abcdef"], ["--from", "--summary"]),
        (["--keep", "1", "--to", "abcdef", "--summary", "S"], ["--keep", "--to"]),
        (["--replacements", "x.json", "--keep", "1"], ["--replacements", "--keep"]),
        (["--summary", " "], ["summary", "blank"]),
        (["--budget", "2"], ["budget of 2"]),
    ],
    ids=" ".join,
)
def test_flags_that_say_nothing_or_too_much_are_refused_by_name(
    run: Run, flags: list[str], named: list[str]
) -> None:
    before = said(run)
    code, out, err = run("compact", *flags)
    assert code != 0
    assert out == ""
    assert [word for word in named if word not in err] == []
    assert said(run) == before


def test_the_help_says_what_strip_strips(run: Run) -> None:
    assert "lose reminders and thinking" in " ".join(run("compact", "--help")[1].split())
