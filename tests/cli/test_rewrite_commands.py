"""Commands that rewrite or annotate history: what they print, and the resulting thread."""

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

import weft


def of_json(result: tuple[int, str, str]) -> Any:
    assert (result[0], result[2]) == (0, "")
    return json.loads(result[1])


def message_texts(run: Any) -> list[str]:
    return [row["content"] for row in of_json(run("compile", "--json"))]


def commit(run: Any, *words: str) -> list[str]:
    return [of_json(run("commit", word, "--json"))["id"] for word in words]


def fork(run: Any) -> list[str]:
    commit(run, "a")
    run("branch", "f")
    commit(run, "m")
    run("switch", "f")
    return commit(run, "x", "y")


def test_rebase_cherry_pick_and_reset(run: Any) -> None:
    ids = fork(run)
    preview = of_json(run("rebase", "main", "--preview", "--json"))
    assert [row["content"] for row in preview["messages"]] == ["a", "m", "x", "y"]
    assert preview["cache_lost"] > 0
    assert message_texts(run) == ["a", "x", "y"]
    assert of_json(run("rebase", "main", "--json"))["kind"] == "append"
    assert message_texts(run) == ["a", "m", "x", "y"]
    run("switch", "main")
    assert "tokens" in run("cherry-pick", ids[1], "--preview")[1]
    run("cherry-pick", ids[1])
    assert message_texts(run) == ["a", "m", "y"]
    assert run("reset", ids[0], "--preview")[0] == 0
    run("reset", "f")
    assert message_texts(run) == ["a", "m", "x", "y"]
    run("undo")
    assert message_texts(run) == ["a", "m", "y"]


def test_a_squash_merges_a_branch_as_one_message(run: Any) -> None:
    fork(run)
    run("switch", "main")
    preview = of_json(
        run("merge", "f", "--strategy", "squash", "--text", "B", "--preview", "--json")
    )
    assert [row["content"] for row in preview["messages"]] == ["a", "m", "B"]
    run("merge", "f", "--strategy", "squash", "--text", "B")
    assert message_texts(run) == ["a", "m", "B"]


def test_tags_notes_blame_and_versions(run: Any) -> None:
    ids = commit(run, "alpha", "beta")
    run("tag", "v1", ids[0])
    assert of_json(run("tag", "--json")) == {"v1": ids[0]}
    assert run("tag")[1] == f"v1 {ids[0][:12]}\n"
    assert len(of_json(run("compile", "v1", "--json"))) == 1
    run("tag", "v1", "--delete")
    assert run("tag")[1] == ""
    run("note", ids[0], "said in haste")
    assert of_json(run("note", "--json"))[0]["about"] == ids[0]
    assert run("note", ids[0], "--list")[1] == f"{ids[0][:12]} said in haste\n"
    assert message_texts(run) == ["alpha", "beta"]
    edit = of_json(run("edit", ids[0], "omega", "--json"))["id"]
    (blame,) = of_json(run("blame", "omega", "--json"))
    assert (blame["commit"], blame["live"]) == (edit, True)
    assert "gone user: alpha" in run("blame", "alpha")[1]
    assert [v["text"] for v in of_json(run("versions", ids[0], "--json"))] == ["alpha", "omega"]
    assert "would" not in run("restore", ids[0])[1]
    assert message_texts(run) == ["alpha", "beta"]


def test_show_sent_prints_the_sent_bytes(run: Any, tmp_path: Path) -> None:
    with weft.open(tmp_path / "store.db") as t:
        t.user("hello")
        params = t.compile().to_openai_params("gpt-5")
        id = t.assistant("hi", sent=params).id
    code, out, err = run("show", id, "--sent")
    assert (code, out.encode(), err) == (0, orjson.dumps(params), "")
    assert of_json(run("show", id, "--sent", "--json"))["receipt"]["recipe"]["model"] == "gpt-5"
    assert run("compile", "--format", "gemini")[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ["rebase", "nowhere"],
        ["cherry-pick", "deadbeef"],
        ["reset", "nowhere"],
        ["tag", "a..b"],
        ["tag", "nothing", "--delete"],
        ["note", "deadbeef", "words"],
        ["restore", "deadbeef"],
        ["versions", "deadbeef"],
        ["merge", "nowhere", "--strategy", "squash"],
        ["show", "main", "--sent"],
    ],
    ids=" ".join,
)
def test_a_failure_prints_one_clear_line(run: Any, words: list[str]) -> None:
    commit(run, "a")
    before = run("log")
    code, out, err = run(*words)
    assert code != 0
    assert out == ""
    assert err.startswith("weft: ")
    assert err.count("\n") == 1
    assert run("log") == before


def test_a_preview_of_a_revert_lists_its_conflicts(run: Any) -> None:
    """As the previews of the other commands do: `--answer` needs the ids."""
    [message] = commit(run, "first")
    edit = of_json(run("edit", message, "second", "--json"))["id"]
    run("edit", message, "third")
    preview = of_json(run("revert", edit, "--preview", "--json"))
    [conflict] = preview["conflicts"]
    assert (conflict["ours"], conflict["theirs"]) == ("third", "first")
    assert "conflict in" in run("revert", edit, "--preview")[1]
    assert run("revert", edit)[0] == 1
    assert message_texts(run) == ["third"]
    run("revert", edit, "--answer", f"{conflict['id']}=theirs")
    assert message_texts(run) == ["first"]


def test_a_squash_resolves_what_both_sides_changed(run: Any) -> None:
    (first,) = commit(run, "a")
    run("branch", "f")
    run("switch", "f")
    commit(run, "x")
    run("edit", first, "theirs")
    run("switch", "main")
    run("edit", first, "ours")
    preview = of_json(
        run("merge", "f", "--strategy", "squash", "--text", "B", "--preview", "--json")
    )
    (conflict,) = preview["conflicts"]
    assert conflict == {"id": first, "kind": "edited", "ours": "ours", "theirs": "theirs"}
    squash = ["merge", "f", "--strategy", "squash", "--text", "B"]
    assert run(*squash)[0] != 0
    run(*squash, "--settle", "theirs")
    assert message_texts(run) == ["theirs", "B"]
