"""Colour, width, pager and progress: on a terminal, and nowhere else."""

import io
import json
import re
from pathlib import Path

import pytest

import weft
from claude_lines import Session
from terminals import run_on_terminal, run_piped
from weft.cli.log_graph import draw, newest_first
from weft.cli.terminal import ProgressBar, Screen, columns, pager, shorten

ESCAPE = b"\x1b["


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    with weft.open(path) as thread:
        thread.user("first words")
        thread.branch("side")
        thread.user("m" * 300)
        thread.switch("side")
        thread.user("beside")
        thread.switch("main")
        thread.merge("side")
    return path


def test_a_pipe_gets_no_colour_no_pager_and_whole_lines(store: Path) -> None:
    out = run_piped(store, "log")
    assert ESCAPE not in out
    assert b"m" * 40 in out


def test_a_terminal_gets_colour_and_lines_that_fit(store: Path) -> None:
    out = run_on_terminal(store, "log", PAGER="cat")
    assert ESCAPE in out
    for line in out.decode().splitlines():
        bare = _bare(line)
        assert len(bare) <= 60


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colour_can_be_declined(store: Path, environment: dict[str, str]) -> None:
    assert ESCAPE not in run_on_terminal(store, "log", PAGER="cat", **environment)


def test_a_terminal_is_paged(store: Path, tmp_path: Path) -> None:
    marker = tmp_path / "paged"
    script = tmp_path / "pager.sh"
    script.write_text(f"#!/bin/sh\ncat > {marker}\n")
    script.chmod(0o700)
    run_on_terminal(store, "log", PAGER=str(script))
    assert b"first words" in marker.read_bytes()
    marker.unlink()
    run_on_terminal(store, "log", "--json", PAGER=str(script))
    assert not marker.exists()


def test_a_pager_that_leaves_early_is_no_failure(store: Path) -> None:
    run_on_terminal(store, "log", PAGER="true")


@pytest.mark.parametrize(
    ("environment", "command"),
    [({"PAGER": "cat"}, None), ({"PAGER": ""}, None), ({"PAGER": "no-such-pager"}, None),
     ({"PAGER": "sh -c 'x y'"}, ["sh", "-c", "x y"])],
)  # fmt: skip
def test_the_pager_is_what_the_environment_says(
    environment: dict[str, str], command: list[str] | None
) -> None:
    assert pager(environment) == command


def test_a_long_import_shows_its_progress_on_a_terminal_only(tmp_path: Path) -> None:
    session = Session()
    for number in range(200):
        session.user(f"turn {number}")
    path = tmp_path / "session.jsonl"
    path.write_bytes(session.data)
    seen = run_on_terminal(tmp_path / "a.db", "import", str(path))
    assert b"importing session.jsonl [" in seen
    assert b"importing" not in run_piped(tmp_path / "b.db", "import", str(path))


def test_a_bar_is_wiped_when_it_is_done() -> None:
    stream = Tty()
    bar = ProgressBar("importing", stream)
    bar(1, 2)
    assert "50%" in stream.getvalue()
    bar.close()
    assert stream.getvalue().endswith("\r\x1b[K")
    silent = io.StringIO()
    ProgressBar("importing", silent)(1, 2)
    assert silent.getvalue() == ""


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),  # two columns a sign
        ("", 3, ""),
    ],
)
def test_text_is_cut_to_columns(text: str, width: int, short: str) -> None:
    assert shorten(text, width) == short
    assert columns(short) <= width


def test_a_line_break_does_not_break_a_line() -> None:
    assert Screen(width=40).fit("a\nb\tc") == "a b c"


def letters(graph: str) -> list[tuple[bytes, list[bytes]]]:
    """`"c b, b a, a"`: each commit with its parents."""
    rows = [row.split() for row in graph.split(",")]
    return [(row[0].encode(), [parent.encode() for parent in row[1:]]) for row in rows]


@pytest.mark.parametrize(
    ("graph", "drawn"),
    [
        ("b a, a", ["* b", "* a"]),
        ("c a, b a, a", ["* c", "| * b", "|/", "* a"]),
        ("d c b, c a, b a, a", ["* d", "|\\", "* | c", "| * b", "|/", "* a"]),
        ("d a, c a, b a, a", ["* d", "| * c", "| | * b", "|_|/", "|/", "* a"]),
        ("c b, x, b", ["* c", "| * x", "* b"]),  # a branch with a beginning of its own
        ("x, c b, b", ["* x", "* c", "* b"]),
        ("d a, x, c a, a", ["* d", "| * x", "| * c", "|/", "* a"]),
        ("e d c b, d a, c a, b a, a",
         ["* e", "|\\", "| |\\", "* | | d", "| * | c", "| | * b", "|_|/", "|/", "* a"]),
    ],
)  # fmt: skip
def test_a_graph_is_drawn(graph: str, drawn: list[str]) -> None:
    lines = [
        line.signs if line.commit is None else f"{line.signs} {line.commit.decode()}"
        for line in draw(letters(graph))
    ]
    assert lines == drawn


def test_a_parent_is_never_before_its_child() -> None:
    times = {b"a": 9.0, b"b": 1.0, b"c": 5.0}
    graph = {id: (times[id], parents) for id, parents in letters("c b, b a, a")}
    assert [id for id, _ in newest_first(graph)] == [b"c", b"b", b"a"]


def test_the_graph_of_a_thread(store: Path) -> None:
    lines = run_piped(store, "log", "--graph").decode().splitlines()
    signs = [re.match(r"[*|/\\ ]*", line)[0].rstrip() for line in lines]
    assert signs == ["*", "|\\", "| *", "* |", "|/", "*"]
    assert "(*main)" in lines[0]
    assert "(side)" in lines[2]
    rows = json.loads(run_piped(store, "log", "--graph", "--json"))
    assert rows[0]["kind"] == "merge"
    assert rows[0]["refs"] == ["*main"]
    assert len(rows) == 4


def _bare(line: str) -> str:
    parts = line.split("\x1b[")
    return parts[0] + "".join(part.partition("m")[2] for part in parts[1:])
