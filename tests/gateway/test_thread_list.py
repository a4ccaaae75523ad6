"""The page's list of threads: sorted by activity, paged, and searched as a whole."""

from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import orjson

import weft
from servers import weft_serve
from weft.store import open_store

THREADS = 620
"""More than one page of the list."""


def ask(url: str, path: str = "/api/threads", **fields: object) -> dict[str, object]:
    with urlopen(f"{url}{path}?{urlencode(fields)}", timeout=60) as reply:
        return orjson.loads(reply.read())


def names(listed: dict[str, object]) -> list[str]:
    return [row["name"] for row in listed["threads"]]  # type: ignore[index, union-attr]


def test_children_are_listed_with_their_parent(tmp_path: Path) -> None:
    store = open_store(tmp_path / "weft.db")
    for name in ("session", "agent", "lone"):
        weft.open(store, name).user(f"the words of {name}")
    store.describe_thread("session", title="What it is about")
    store.describe_thread("agent", parent="session", kind="agent")
    thread = weft.open(store, "lone")
    remark = thread.note("HEAD", "Priya has the figures")
    thread.tag("v7-final")
    head = thread.user("More of it.", metadata={"ticket": "PAY-417"}).id
    store.close()
    with weft_serve(tmp_path) as gateway:
        rows = {row["name"]: row for row in ask(gateway.url)["threads"]}  # type: ignore[index, union-attr]
        with urlopen(f"{gateway.url}/api/thread?thread=session", timeout=60) as reply:
            shown = orjson.loads(reply.read())
        threads_by_query = {
            q: ask(gateway.url, q=q)["threads"] for q in ("priya", "final", "417", "is about")
        }
        hits = ask(gateway.url, "/api/search", thread="lone", q="priya")["hits"]
    family = {name: (row["parent"], row["kind"], row["children"]) for name, row in rows.items()}
    assert family == {
        "session": (None, None, 1),
        "agent": ("session", "agent", 0),
        "lone": (None, None, 0),
    }
    assert rows["session"]["title"] == shown["title"] == "What it is about"
    (child,) = shown["children"]
    assert child == {"name": "agent", "title": "the words of agent", "kind": "agent"}
    listed = {
        q: [(row["name"], row["hits"]) for row in rows] for q, rows in threads_by_query.items()
    }  # type: ignore[union-attr]
    assert listed["is about"] == [("session", [])]  # by its title
    assert listed["priya"] == [("lone", hits)]
    for query, expected in (
        ("final", ("tag", "v7-final", remark.id)),
        ("417", ("metadata", "ticket: PAY-417", head)),
    ):
        ((name, (hit,)),) = listed[query]
        assert (name, hit["kind"], hit["text"], hit["commit"]) == ("lone", *expected)
    (hit,) = hits  # type: ignore[misc]
    assert (hit["kind"], hit["text"], hit["commit"]) == ("note", "Priya has the figures", remark.id)


def test_an_active_thread_is_listed_and_found_however_old_it_is(tmp_path: Path) -> None:
    store = open_store(tmp_path / "weft.db")
    with store.transaction():
        for number in range(THREADS):
            weft.open(store, f"t{number:03}").user(f"question {number}")
    weft.open(store, "t000").user("about the albatross")
    store.close()
    with weft_serve(tmp_path) as gateway:
        listed = ask(gateway.url)
        assert (listed["total"], len(names(listed)), names(listed)[0]) == (THREADS, 500, "t000")
        rest = ask(gateway.url, offset=500)
        assert sorted(names(listed) + names(rest)) == [f"t{n:03}" for n in range(THREADS)]
        assert len(names(ask(gateway.url, limit=THREADS))) == THREADS
        listing = ask(gateway.url, q="albatross")
        assert (listing["total"], names(listing)) == (1, ["t000"])
        assert names(ask(gateway.url, q="question 1")) == ["t001"]
        assert names(ask(gateway.url, q="T002")) == ["t002"]  # by its name
        assert names(ask(gateway.url, q="nowhere")) == []
