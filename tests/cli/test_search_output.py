"""Search results are one line for each message, truncated around the match."""

import json
from pathlib import Path

import pytest

import weft
from terminals import run_on_terminal
from weft.cli import main
from weft.model import Message, Text, ToolCall, ToolResult

LONG = "filler " * 200


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "store.db"
    monkeypatch.setenv("WEFT_STORE", str(path))
    return path


@pytest.mark.parametrize(
    ("text", "expected"),  # the list has 36 columns for a text on a terminal of 60
    [
        ("short needle here", "short needle here"),
        ("a" * 50 + " needle " + "b" * 50, f"…{'a' * 13} needle {'b' * 13}…"),
        ("NEEDLE " + "b" * 50, f"NEEDLE {'b' * 28}…"),
        ("a" * 50 + " needle", f"…{'a' * 28} needle"),
        ("one\nneedle", "one needle"),
    ],
)
def test_a_text_is_truncated_around_the_match(store: Path, text: str, expected: str) -> None:
    with weft.open(store) as thread:
        id = thread.user(text).id
    out = run_on_terminal(store, "search", "needle", PAGER="cat", NO_COLOR="1").decode()
    assert out == f"{id[:12]} live user: {expected}\n"


def test_a_search_has_one_short_line_for_each_message(
    store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with weft.open(store) as thread:
        id = thread.user(f"{LONG}the needle is here {LONG}").id
        thread.edit(id, f"{LONG}the needle was here {LONG}")
        thread.edit(id, f"{LONG}the needle will be here {LONG}")
    main(["search", "needle"])
    (line,) = capfd.readouterr().out.splitlines()
    assert line.startswith(f"{id[:12]} live user: …")
    assert "the needle will be here" in line
    assert len(line) <= 160
    main(["search", "needle", "--json"])
    (row,) = json.loads(capfd.readouterr().out)
    assert len(row["text"]) > 1000  # a program is given all of it


def test_notes_tags_and_titles_are_labelled(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with weft.open(store, "billing-bot") as thread:
        id = thread.user("Which port?", metadata={"ticket": "PAY-417"}).id
        thread.note(id, "Priya knows it.")
        thread.tag("v2-final", id)
    with weft.open(store, "other") as thread:
        thread.user("Something else.")
    for words, expected in (
        ("priya", f"{id[:12]} billing-bot live note: Priya knows it."),
        ("pay-417", f"{id[:12]} billing-bot live metadata: ticket: PAY-417"),
        ("final", f"{id[:12]} billing-bot live tag: v2-final"),
    ):
        main(["search", words])
        assert capfd.readouterr().out == f"{expected}\n"
    main(["search", "billing", "--json"])
    (row,) = json.loads(capfd.readouterr().out)
    assert (row["kind"], row["text"], row["thread"]) == ("name", "billing-bot", "billing-bot")


def test_a_matching_call_is_shown(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with weft.open(store) as thread:
        thread.user("how much?")
        call = ToolCall("c1", "calculator", '{"needle": 1}')
        thread.commit_message(Message("assistant", (call,)))
        thread.commit_message(Message("user", (ToolResult("c1", (Text("a needle"),)),)))
    main(["search", "needle"])
    out = capfd.readouterr().out
    assert 'live assistant: [calls calculator {"needle": 1}]\n' in out
    assert "live tool: a needle\n" in out


def test_recall_lists_originals_before_summaries(store: Path) -> None:
    with weft.open(store) as thread:
        first = thread.user("the needle is blue").id
        thread.assistant("noted")
        thread.user("and now?")
        thread.assistant("nothing")
        thread.compact(keep=1, summary="they spoke of a needle")
        hits = thread.recall("needle")
        assert hits[0].text == "the needle is blue"
        assert [hit.summary for hit in hits] == [False, True]
        assert hits[0].id == first
        assert {hit.live: hit.summary for hit in thread.search("needle")} == {
            True: True,
            False: False,
        }


def test_results_are_paged_and_filtered(store: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("WEFT_STORE", str(store))
    with weft.open(store) as thread:
        for n in range(5):
            thread.user(f"walrus {n} in src/zoo/part_{n}.py")
    main(["search", "walrus", "-n", "2", "--json"])
    first = json.loads(capsys.readouterr().out)
    main(["search", "walrus", "-n", "2", "--offset", "2", "--json"])
    second = json.loads(capsys.readouterr().out)
    assert len({hit["id"] for hit in first + second}) == 4
    main(["search", "walrus", "-n", "2"])
    assert "--offset 2" in capsys.readouterr().err
    main(["search", "walrus", "--offset", "9"])
    assert "no more message" in capsys.readouterr().err
    for command in ("search", "recall"):
        main([command, "walrus", "--path", "zoo/part_3.py", "--json"])
        assert ["walrus 3" in hit["text"] for hit in json.loads(capsys.readouterr().out)] == [True]
        main([command, "walrus", "--since", "2100-01-01", "--json"])
        assert json.loads(capsys.readouterr().out) == []
    main(["recall", "which walrus", "--tokens", "60", "--json"])
    page = json.loads(capsys.readouterr().out)
    assert "walrus" in page["body"]
    assert f"offset={page['next']}" in page["note"]
