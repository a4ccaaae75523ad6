"""Numbers in options: limits, offsets, and how they are refused."""

from collections.abc import Callable

import pytest

Run = Callable[..., tuple[int, str, str]]
HUGE = "999999999999999999999"


@pytest.mark.parametrize(
    "words",
    [
        ["search", "x", "-n"],
        ["search", "x", "--limit"],
        ["search", "x", "--offset"],
        ["recall", "x", "-n"],
        ["recall", "x", "--offset"],
        ["recall", "x", "--tokens"],
        ["log", "-n"],
        ["log", "--graph", "-n"],
        ["threads", "-n"],
        ["blame", "x", "-n"],
        ["compile", "--last"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("number", [HUGE, str(2**63), str(2**63 - 1), "9" * 5000])
def test_a_huge_number_is_refused_in_one_line(run: Run, words: list[str], number: str) -> None:
    run("commit", "x")
    code, out, err = run(*words, number)
    assert (code, out) == (2, "")
    assert "must be" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("words", [["search", "x"], ["recall", "x"], ["log"], ["blame", "x"]])
def test_the_largest_number_works(run: Run, words: list[str]) -> None:
    run("commit", "x")
    code, out, _ = run(*words, "-n", str(10**15))
    assert code == 0
    assert "x" in out


@pytest.mark.parametrize("command", ["search", "recall", "blame"])
def test_no_results_are_asked_for(run: Run, command: str) -> None:
    run("commit", "needle")
    code, out, err = run(command, "needle", "-n", "0")
    assert (code, out) == (0, "")
    assert "message contains" not in err


def test_a_search_takes_several_words(run: Run) -> None:
    run("commit", "the blue needle")
    for words in (["blue", "needle"], ["blue needle"], ["needle", "blue", "-n", "3"]):
        assert "the blue needle" in run("search", *words)[1]
    assert "'no such'" in run("search", "no", "such")[2]
    assert "the blue" in run("search", "--regex", "blue", "n.*e")[1]
