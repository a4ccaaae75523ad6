"""A compaction that was reverted is not a compaction, in `weft log` and in the HTTP API."""

import json
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

import weft
from servers import weft_serve
from weft.cli import main


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    with weft_serve(tmp_path_factory.mktemp("reverted")) as running:
        yield running


def read(gateway: Any, path: str, **query: Any) -> Any:
    with urlopen(f"{gateway.url}{path}?{urlencode(query)}", timeout=60) as reply:
        return json.loads(reply.read())


def add_steps(thread: weft.Thread, first: int, last: int) -> None:
    for number in range(first, last):
        thread.user(f"Step {number}: what does src/module_{number}.py do?")
        thread.assistant(f"src/module_{number}.py reads the configuration, error {number}.")


def compact_twice(store: object, name: str) -> tuple[str, str]:
    with weft.open(store, name) as thread:
        add_steps(thread, 0, 30)
        first = thread.compact(budget=900)
        add_steps(thread, 30, 50)
        second = thread.compact(budget=900)
        assert first.commit
        assert second.commit
        return first.commit, second.commit


CASES = [
    # what happens after two compactions; which are reverted; which made the summary that is shown
    ("revert 2", {2}, 1),
    ("revert 1", {1}, 2),
    ("revert 2, revert 1", {1, 2}, None),
    ("revert 1, revert 2", {1, 2}, 1),  # the second revert brings back what it found: a summary
    ("revert 2, revert it", set[int](), 2),
    ("revert 2, revert it, revert 2", {2}, 1),
    ("revert 2, revert it, revert it", {2}, 1),  # reverts the revert of the revert
    ("revert 2, undo", set[int](), 2),
    ("revert 2, undo, undo", set[int](), 1),
    ("revert 2, undo, redo", {2}, 1),
    ("revert 2, add, compact", {2}, 3),
    ("revert 2, add, compact, revert it", {2, 3}, 1),
]


def apply(thread: weft.Thread, changes: str, ids: list[str]) -> None:
    for change in changes.split(", "):
        match change.split():
            case ["revert", "it"]:
                assert thread.head
                thread.revert(thread.head)
            case ["revert", number]:
                thread.revert(ids[int(number) - 1])
            case ["add"]:
                add_steps(thread, 50, 70)
            case ["compact"]:
                commit = thread.compact(budget=900).commit
                assert commit
                ids.append(commit)
            case _:
                getattr(thread, change)()


@pytest.mark.parametrize(("changes", "reverted", "shown"), CASES)
def test_a_reverted_compaction_is_not_shown_as_one(
    gateway: Any,
    capfd: pytest.CaptureFixture[str],
    changes: str,
    reverted: set[int],
    shown: int | None,
) -> None:
    ids = list(compact_twice(gateway.store, changes))
    with weft.open(gateway.store, changes) as thread:
        apply(thread, changes, ids)
        on_branch = {info.id for info in thread.log()}
    wanted = {ids[number - 1] for number in reverted}
    live = [id for id in ids if id in on_branch and id not in wanted]

    commits = read(gateway, "/api/log", thread=changes)["commits"]
    assert {c["id"] for c in commits if c["reverted"] and c["kind"] == "compact"} == wanted
    assert {c["id"] for c in commits if c["compaction"] and not c["reverted"]} == set(live)
    assert all(c["compaction"] is None for c in commits if c["kind"] != "compact")
    graph = read(gateway, "/api/graph", thread=changes)
    assert {id for id in graph["reverted"] if id in ids} == wanted

    for path in ("/api/rows", "/api/thread"):
        rows = read(gateway, path, thread=changes, **{"from": 0})["rows"]
        folds = [row["fold"] for row in rows if row["kind"] == "summary"]
        assert [fold["commit"] for fold in folds] == ([] if shown is None else [ids[shown - 1]])
        for fold in folds:  # the way to the originals
            change = read(gateway, "/api/commit", thread=changes, id=fold["commit"])
            assert len(change["removed"]) == fold["dropped"] > 10
            assert change["before"] > change["after"]

    for options in ([], ["--graph"]):
        flags = ["--store", str(gateway.store), "--thread", changes]
        assert main(["log", *options, *flags]) == 0
        text = capfd.readouterr().out
        assert {id for id in ids if f"{id[:12]} compact   (reverted) " in text} == wanted
        assert main(["log", *options, *flags, "--json"]) == 0
        entries = json.loads(capfd.readouterr().out)
        assert {e["id"] for e in entries if e.get("reverted") and e["id"] in ids} == wanted


def test_a_compaction_that_is_reverted_on_one_branch_only_stays_one_in_the_graph(
    gateway: Any,
) -> None:
    _, second = compact_twice(gateway.store, "two branches")
    with weft.open(gateway.store, "two branches") as thread, thread.fork("side") as side:
        side.revert(second)
        graph = read(gateway, "/api/graph", thread="two branches")
        assert graph["reverted"] == []
        commits = read(gateway, "/api/log", thread="two branches", branch="side")["commits"]
        assert [c["id"] for c in commits if c["reverted"]] == [second]
        thread.revert(second)
    assert read(gateway, "/api/graph", thread="two branches")["reverted"] == [second]


def test_the_fold_of_a_merged_summary_is_found_and_the_merge_is_no_compaction(
    gateway: Any,
) -> None:
    with weft.open(gateway.store, "merged") as thread:
        add_steps(thread, 0, 30)
        with thread.fork("side") as side:
            side.compact(budget=900)
        thread.user("and here")
        merge = thread.merge("side")
    commits = read(gateway, "/api/log", thread="merged")["commits"]
    assert commits[0]["kind"] == "merge"
    assert commits[0]["compaction"] is None
    rows = read(gateway, "/api/rows", thread="merged", **{"from": 0})["rows"]
    [fold] = [row["fold"] for row in rows if row["kind"] == "summary"]
    assert fold["commit"] == getattr(merge, "id", None)
    assert fold["dropped"] > 10
