"""Colour, width, pager and progress are used only on a terminal."""

import json
import re
from pathlib import Path

import pytest

import weft
from claude_lines import Session
from terminals import run_on_terminal, run_piped
from weft.cli import draw_graph
from weft.history import newest_first

ESCAPE = b"\x1b["


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


def test_a_pipe_gets_no_colour_no_pager_and_full_lines(store: Path) -> None:
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
def test_colour_can_be_turned_off(store: Path, environment: dict[str, str]) -> None:
    assert ESCAPE not in run_on_terminal(store, "log", PAGER="cat", **environment)


def test_a_terminal_uses_a_pager(store: Path, tmp_path: Path) -> None:
    marker = tmp_path / "paged"
    script = tmp_path / "pager.sh"
    script.write_text(f"#!/bin/sh\ncat > {marker}\n")
    script.chmod(0o700)
    run_on_terminal(store, "log", PAGER=str(script))
    assert b"first words" in marker.read_bytes()
    marker.unlink()
    run_on_terminal(store, "log", "--json", PAGER=str(script))
    assert not marker.exists()


def test_a_pager_that_exits_early_is_not_a_failure(store: Path) -> None:
    run_on_terminal(store, "log", PAGER="true")


@pytest.mark.parametrize("pager", ["cat", "", "no-such-pager"])
def test_without_a_usable_pager_the_text_is_printed(store: Path, pager: str) -> None:
    assert b"first words" in run_on_terminal(store, "log", PAGER=pager)


def test_the_pager_command_is_split_like_a_shell_command(store: Path) -> None:
    out = run_on_terminal(store, "log", PAGER="""sh -c 'echo "paged by us"; cat'""")
    assert out.startswith(b"paged by us\n")
    assert b"first words" in out


def test_a_long_import_shows_its_progress_on_a_terminal_only(tmp_path: Path) -> None:
    session = Session()
    for number in range(200):
        session.user(f"turn {number}")
    path = tmp_path / "session.jsonl"
    path.write_bytes(session.data)
    screen = run_on_terminal(tmp_path / "a.db", "import", str(path))
    assert b"importing session.jsonl [" in screen
    percents = [int(percent) for percent in re.findall(rb"(\d+)%", screen)]
    assert len(set(percents)) > 2
    assert percents == sorted(percents)
    bar, _, rest = screen.rpartition(b"\r\x1b[K")  # the bar is wiped before the result
    assert b"importing" in bar
    assert b"importing" not in rest
    assert b"importing" not in run_piped(tmp_path / "b.db", "import", str(path))


@pytest.mark.parametrize(
    ("text", "expected"),  # the log has 20 columns for a text on a terminal of 60
    [
        ("m" * 20, "m" * 20),
        ("m" * 21, "m" * 19 + "…"),
        ("日" * 10, "日" * 10),
        ("日" * 11, "日" * 9 + "…"),  # two columns each: a tenth would leave none for the sign
        ("x" + "日" * 10, "x" + "日" * 9 + "…"),
        ("e\u0301" * 20, "e\u0301" * 20),  # a combining mark takes no column
        ("a\nb\tc", "a b c"),
    ],
)
def test_a_text_is_truncated_to_the_width_of_the_terminal(
    tmp_path: Path, text: str, expected: str
) -> None:
    path = tmp_path / "store.db"
    with weft.open(path) as thread:
        thread.user(text)
    (line,) = run_on_terminal(path, "log", PAGER="cat").decode().splitlines()
    assert _bare(line)[40:] == expected


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
        line.characters if line.commit is None else f"{line.characters} {line.commit.decode()}"
        for line in draw_graph(letters(graph))
    ]
    assert lines == drawn


def test_a_parent_is_never_before_its_child() -> None:
    times = {b"a": 9.0, b"b": 1.0, b"c": 5.0}
    graph = {id: (times[id], parents) for id, parents in letters("c b, b a, a")}
    assert [id for id, _ in newest_first(graph)] == [b"c", b"b", b"a"]


def test_the_graph_of_a_thread_is_drawn(store: Path) -> None:
    lines = run_piped(store, "log", "--graph").decode().splitlines()
    characters = [re.match(r"[*|/\\ ]*", line)[0].rstrip() for line in lines]
    assert characters == ["*", "|\\", "| *", "* |", "|/", "*"]
    assert "(*main)" in lines[0]
    assert "(side)" in lines[2]
    rows = json.loads(run_piped(store, "log", "--graph", "--json"))
    assert rows[0]["kind"] == "merge"
    assert rows[0]["refs"] == ["*main"]
    assert len(rows) == 4


def _bare(line: str) -> str:
    parts = line.split("\x1b[")
    return parts[0] + "".join(part.partition("m")[2] for part in parts[1:])
