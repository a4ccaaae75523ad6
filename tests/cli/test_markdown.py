"""Markdown in the terminal is the same for any split of the text into deltas."""

import re

import pytest
from hypothesis import given, strategies as st

from terminals import run_on_terminal
from weft.cli import MarkdownStream

STYLE = re.compile(r"\x1b\[\d+m")

ROWS = [
    ("**bold** text", "bold text", "\x1b[1mbold\x1b[0m"),
    ("use `pytest -q` now", "use pytest -q now", "\x1b[36mpytest -q\x1b[0m"),
    ("# Title\nbody", "Title\nbody", "\x1b[1mTitle\x1b[0m\n"),
    ("- one\n* two\n  + three", "• one\n• two\n  • three", "•"),
    ("```python\na ** b\n# no\n```\nend", "python\na ** b\n# no\nend", "\x1b[36ma ** b\x1b[0m"),
    ("2 ** 3 is 8", "2 ** 3 is 8", "2 ** 3"),
    ("a * b * c", "a * b * c", "a * b"),
    ("`a ** b`", "a ** b", "\x1b[36ma ** b"),
    ("**open\nnext", "open\nnext", "\x1b[1mopen\x1b[0m\nnext"),
    ("snake_case_name #5", "snake_case_name #5", "#5"),
    ("#hash -dash", "#hash -dash", "#hash"),
    ("ends with **", "ends with **", "**"),
    ("ends with *", "ends with *", "*"),
    ("", "", ""),
    ("\n\n- x\n", "\n\n• x\n", "•"),
]


def show(pieces: list[str], colour: bool = True) -> str:
    stream = MarkdownStream(colour)
    return "".join(map(stream.feed, pieces)) + stream.close()


@pytest.mark.parametrize(("text", "plain", "styled"), ROWS)
def test_markers_become_styles(text, plain, styled):
    output = show([text])
    assert STYLE.sub("", output) == plain
    assert styled in output
    assert show([text], colour=False) == plain


@pytest.mark.parametrize("text", [row[0] for row in ROWS])
def test_every_split_shows_the_same(text):
    whole = STYLE.sub("", show([text]))
    assert STYLE.sub("", show(list(text))) == whole
    for cut in range(len(text)):
        assert STYLE.sub("", show([text[:cut], text[cut:]])) == whole


@given(st.text(alphabet="a *`#-\n>1", max_size=60), st.integers(1, 7))
def test_no_text_is_lost_and_no_style_stays_open(text, size):
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    output = show(pieces)
    letters = re.sub(r"[^a1]", "", STYLE.sub("", output))
    assert letters == re.sub(r"[^a1]", "", text)
    styles = STYLE.findall(output)
    assert not styles or styles[-1] == "\x1b[0m"
    assert STYLE.sub("", show(pieces)) == STYLE.sub("", show([text]))


def test_text_appears_before_its_line_is_complete():
    stream = MarkdownStream()
    assert stream.feed("Here is ") == "Here is "
    assert STYLE.sub("", stream.feed("**the")) == "the"


def test_a_chat_on_a_terminal_shows_no_markers(tmp_path):
    output = run_on_terminal(tmp_path / "a.db", "chat", "say **bold** and `code`").decode()
    assert "**" not in output
    assert "bold" in output
