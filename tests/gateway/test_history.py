"""The history of a thread for the page: graph, reading an earlier commit, branches."""

from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import orjson
import pytest

import weft
from servers import weft_serve

SECONDS = 20


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    with weft_serve(tmp_path_factory.mktemp("history")) as running:
        yield running


def read(gateway, path, **query):
    with urlopen(f"{gateway.url}{path}?{urlencode(query)}", timeout=SECONDS) as reply:
        return orjson.loads(reply.read())


def write(gateway, path, **fields):
    headers = {"content-type": "application/json"}
    request = Request(f"{gateway.url}{path}", data=orjson.dumps(fields), headers=headers)
    with urlopen(request, timeout=SECONDS) as reply:
        return orjson.loads(reply.read())


def refused(ask, *args, **fields):
    """The status, the message and the field of an answer that says no."""
    with pytest.raises(HTTPError) as caught:
        ask(*args, **fields)
    with caught.value as reply:
        error = orjson.loads(reply.read())["error"]
        return reply.code, error["message"], error["place"]


def texts(view):
    return [part["text"] for row in view["rows"] for part in row["parts"] if "text" in part]


def add_forked(gateway, name):
    """A thread with two branches that were merged; returns the ids of its commits by name."""
    with weft.open(gateway.store, name) as main:
        ids = {"root": main.system("You help.").id, "question": main.user("Which database?").id}
        with main.fork("side") as side:
            ids["theirs"] = side.assistant("SQLite.").id
        ids["ours"] = main.assistant("PostgreSQL.").id
        ids["merge"] = main.merge("side").id
        main.tag("decided")
        ids["last"] = main.user("Thanks.").id
    return ids


def test_the_graph_has_every_commit_once_with_lanes_and_refs(gateway):
    ids = add_forked(gateway, "graph")
    graph = read(gateway, "/api/graph", thread="graph")
    rows = {id: number for number, (id, *_) in enumerate(graph["commits"])}
    assert rows.keys() == set(ids.values())
    commits = {
        name: dict(zip(("id", "kind", "lane", "created", "label", "parents"), row, strict=True))
        for row in graph["commits"]
        for name, id in ids.items()
        if id == row[0]
    }
    assert [commits[name]["kind"] for name in ("root", "question", "theirs", "merge")] == [
        "system",
        "user",
        "assistant",
        "merge",
    ]
    assert commits["theirs"]["label"] == "SQLite."
    parents = {name: [row for row, _ in commit["parents"]] for name, commit in commits.items()}
    assert parents["merge"] == [rows[ids["ours"]], rows[ids["theirs"]]]
    assert parents["theirs"] == [rows[ids["question"]]]
    assert parents["root"] == []
    assert commits["ours"]["lane"] != commits["theirs"]["lane"]
    assert graph["lanes"] == 2
    assert graph["refs"] == {
        ids["last"]: ["main"],
        ids["theirs"]: ["side"],
        ids["merge"]: ["tag:decided"],
    }
    assert graph["branches"] == ["main", "side"]


def test_a_thread_without_commits_has_an_empty_graph(gateway):
    graph = read(gateway, "/api/graph", thread="nothing-yet")
    assert graph == {"commits": [], "lanes": 0, "refs": {}, "branches": []}


def test_an_earlier_commit_is_read_as_it_was(gateway):
    ids = add_forked(gateway, "travel")
    newest = read(gateway, "/api/rows", thread="travel")
    assert newest["commit"] is None
    then = read(gateway, "/api/rows", thread="travel", until=ids["question"])
    assert texts(then) == ["You help.", "Which database?"]
    assert (then["head"], then["commit"]["number"], then["commit"]["of"]) == (ids["question"], 2, 5)
    elsewhere = read(gateway, "/api/rows", thread="travel", until=ids["theirs"])
    assert texts(elsewhere) == ["You help.", "Which database?", "SQLite."]
    assert elsewhere["branch"] == "main"
    assert [elsewhere["commit"][key] for key in ("branch", "number", "of")] == ["side", 3, 3]
    assert texts(read(gateway, "/api/rows", thread="travel")) == texts(newest)
    code, message, place = refused(read, gateway, "/api/rows", thread="travel", until="00" * 20)
    assert (code, place) == (404, "until")
    assert "no commit" in message


def test_a_branch_starts_at_any_commit(gateway):
    ids = add_forked(gateway, "fork")
    branch = {"thread": "fork", "name": "again", "at": ids["question"]}
    answer = write(gateway, "/api/branch", **branch)
    assert answer["message"] == f"Branch again starts at {ids['question'][:7]}."
    view = read(gateway, "/api/rows", thread="fork", branch="again")
    assert (texts(view)[-1], view["head"]) == ("Which database?", ids["question"])
    assert refused(write, gateway, "/api/branch", **{**branch, "name": "x", "at": "77"})[0] == 404
