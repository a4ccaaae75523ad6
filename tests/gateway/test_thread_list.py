"""The page's list of threads: by last activity, in pages, and searched as a whole."""

from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import orjson

import weft
from servers import weft_serve
from weft.store import open_store

THREADS = 620
"""More than one page of the list."""


def ask(url: str, **fields: object) -> dict[str, object]:
    with urlopen(f"{url}/api/threads?{urlencode(fields)}", timeout=30) as reply:
        return orjson.loads(reply.read())


def names(listed: dict[str, object]) -> list[str]:
    return [row["name"] for row in listed["threads"]]  # type: ignore[index, union-attr]


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
        found = ask(gateway.url, q="albatross")
        assert (found["total"], names(found)) == (1, ["t000"])
        assert names(ask(gateway.url, q="question 1")) == ["t001"]
        assert names(ask(gateway.url, q="T002")) == ["t002"]  # by its name
        assert names(ask(gateway.url, q="nowhere")) == []
