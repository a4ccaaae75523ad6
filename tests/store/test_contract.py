"""The contract of every store. A new backend is one more row of `STORES` in `tests/conftest.py`."""

import threading
from array import array
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from weft.errors import ConfigError, RefMoved, StoreError
from weft.ids import Id, object_id
from weft.store import (
    AttemptRecord,
    CommitRecord,
    IndexBlock,
    IndexedCommits,
    Landing,
    NewSegment,
    SqliteStore,
    Store,
    Unindexed,
    deleted_name,
    open_store,
    read_deleted_name,
)


@pytest.fixture
def store(store: Store) -> Store:
    store.ensure_thread("t", created=1.0)
    return store


def commit(name: str, *parents: str, chain: bytes | None = None) -> CommitRecord:
    return CommitRecord(
        id_of(name), tuple(map(id_of, parents)), "append", (entry_of(name),), b"{}", 1.0,
        None, chain,
    )  # fmt: skip


def id_of(name: str) -> Id:
    return object_id("commit", name.encode())


def entry_of(name: str) -> Id:
    return object_id("entry", name.encode())


def land(
    store: Store,
    name: str,
    *parents: str,
    ref: str = "main",
    old: str | None = None,
    thread: str = "t",
    chain: bytes | None = None,
) -> None:
    landing = Landing(
        verb="append",
        ref=ref,
        old=None if old is None else id_of(old),
        new=id_of(name),
        created=1.0,
        entries=((entry_of(name), name.encode()),),
        commits=(commit(name, *parents, chain=chain),),
    )
    store.land(thread, landing)


def move(
    store: Store, ref: str, old: str | None, new: str | None, from_branch: str | None = None
) -> None:
    ends = (None if old is None else id_of(old), None if new is None else id_of(new))
    store.land(
        "t",
        Landing(
            verb="move", ref=ref, old=ends[0], new=ends[1], created=2.0, from_branch=from_branch
        ),
    )


def graph(store: Store, rows: str) -> None:
    """`"a; b a; c a b"`: each commit and its parents, each on a branch of its own name."""
    for row in rows.split("; "):
        name, *parents = row.split()
        land(store, name, *parents, ref=name)


def names(steps: "list[object]") -> str:
    return " ".join(step.contents[0].decode() for step in steps)  # pyright: ignore


def test_a_chain_is_walked_oldest_first(store: Store) -> None:
    graph(store, "a; b a; c b")
    assert names(store.walk("t", id_of("c"))) == "a b c"
    assert [step.depth for step in store.walk("t", id_of("c"))] == [1, 2, 3]
    assert names(store.walk("t", id_of("c"), after=1)) == "b c"
    assert names(store.walk("t", id_of("c"), limit=2)) == "b c"
    assert names(store.walk("t", id_of("b"))) == "a b"


@pytest.mark.parametrize(
    ("rows", "head", "chain"),
    [
        ("a; b a; c a", "c", "a c"),  # a second child starts its own line
        ("a; b a; c b; d a; e d; f d", "f", "a d f"),  # a line off a line
        ("a; b a; c a; m b c; n m", "n", "a b m n"),  # first parents only
        ("a; b a; c b; m a c; x m", "x", "a m x"),  # a merge stands deeper than its first parent
        ("a; b a; c b; m a c; x a", "x", "a x"),
    ],
)
def test_first_parents_are_followed(store: Store, rows: str, head: str, chain: str) -> None:
    graph(store, rows)
    steps = store.walk("t", id_of(head))
    assert names(steps) == chain
    for number in range(1, len(steps) + 1):
        assert store.walk("t", id_of(head), limit=number) == steps[-number:]
        assert store.walk("t", id_of(head), after=steps[number - 1].depth) == steps[number:]
        assert store.walk("t", id_of(head), until=steps[number - 1].depth) == steps[:number]
        nodes = store.walk_nodes("t", id_of(head), number)
        assert [node.id for node in nodes] == [s.commit.id for s in reversed(steps[-number:])]
        assert [node.parents for node in nodes] == [
            step.commit.parents for step in reversed(steps[-number:])
        ]
        for until in (None, steps[-1].depth, steps[0].depth):
            walked = store.walk("t", id_of(head), until=until, limit=number)
            assert store.walk_log("t", id_of(head), until=until, limit=number) == [
                (
                    step.commit.id,
                    step.depth,
                    step.commit.kind,
                    step.commit.created,
                    step.commit.data,
                    step.contents[0] if len(step.contents) == 1 else None,
                )
                for step in reversed(walked)
            ]
    all_ids = [id_of(name) for name in "abcdefmnxz"]
    depths = {step.commit.id: step.depth for step in steps}
    assert store.read_depths("t", id_of(head), all_ids) == depths
    assert store.walk("t", id_of(head), excluding=(b"{}",)) == []
    assert store.walk("t", id_of(head), excluding=(b"[]", b"")) == steps


def test_depth_grows_along_every_parent(store: Store) -> None:
    graph(store, "a; b a; c b; m a c")
    (node,) = store.read_nodes("t", [id_of("m")])
    assert (node.depth, node.parents) == (4, (id_of("a"), id_of("c")))


def test_a_ref_moves_only_by_compare_and_swap(store: Store) -> None:
    land(store, "a")
    with pytest.raises(RefMoved):
        land(store, "b")
    with pytest.raises(RefMoved):
        land(store, "b", "a", old="zzz")
    assert store.read_ref("t", "main") == id_of("a")
    assert store.read_commits("t", [id_of("b")]) == []
    land(store, "b", "a", old="a")
    assert store.refs("t") == {"main": id_of("b")}


def test_a_reference_to_nothing_is_refused_and_leaves_nothing(store: Store) -> None:
    with pytest.raises(StoreError):
        land(store, "b", "nowhere")
    with pytest.raises(StoreError):
        move(store, "main", None, "nowhere")
    with pytest.raises(StoreError):
        store.refs("no such thread")
    assert store.refs("t") == {}
    assert store.operations("t") == []
    assert store.count("t") == 0


def test_an_existing_commit_is_not_written_twice(store: Store) -> None:
    land(store, "a")
    land(store, "a", ref="other")
    assert store.count("t") == 1
    assert store.refs("t") == {"main": id_of("a"), "other": id_of("a")}


def test_threads_do_not_see_each_others_commits(store: Store) -> None:
    store.ensure_thread("u", created=2.0)
    land(store, "a")
    assert store.find("u", "") == []
    assert store.read_commits("u", [id_of("a")]) == []
    land(store, "a", thread="u")
    assert (store.count("t"), store.count("u")) == (1, 1)
    assert [record.name for record in store.threads()] == ["t", "u"]


def test_the_log_is_newest_first_and_paged(store: Store) -> None:
    land(store, "a")
    move(store, "x", None, "a")
    move(store, "x", "a", "a", from_branch="main")
    move(store, "x", "a", None)
    log = store.operations("t")
    assert [(o.ref, o.old, o.new, o.from_branch) for o in log] == [
        ("x", id_of("a"), None, None),
        ("x", id_of("a"), id_of("a"), "main"),
        ("x", None, id_of("a"), None),
        ("main", None, id_of("a"), None),
    ]
    assert store.operations("t", before=log[1].seq, limit=1) == [log[2]]
    record = store.read_thread("t")
    assert record is not None
    assert record.head == "x"


def test_a_prefix_finds_its_ids_in_order(store: Store) -> None:
    graph(store, "; ".join(f"m{n}" for n in range(30)))
    every = store.find("t", "", limit=100)
    assert every == sorted(every)
    assert len(every) == 30
    digit = every[0].hex()[0]
    assert store.find("t", digit, 100) == [id for id in every if id.hex()[0] == digit]
    assert store.find("t", every[3].hex()) == [every[3]]
    assert len(store.find("t", "", limit=4)) == 4


def test_a_transaction_is_rolled_back_completely(store: Store) -> None:
    land(store, "a")
    with pytest.raises(RefMoved), store.transaction():
        land(store, "wrong", "a", old="zzz")
    with pytest.raises(KeyError):
        _fail_after_landing(store)
    assert store.refs("t") == {"main": id_of("a")}
    assert store.count("t") == 1
    assert len(store.operations("t")) == 1


def _fail_after_landing(store: Store) -> None:
    with store.transaction():
        land(store, "b", "a", old="a")
        with store.transaction():
            land(store, "c", "b", old="b")
        assert store.count("t") == 3
        raise KeyError


def segment_of(commits: Sequence[Unindexed], *blocks: IndexBlock) -> NewSegment:
    """A segment of commits of one thread."""
    keys = array("q", [commit.key for commit in commits]).tobytes()
    owned = IndexedCommits(commits[0].thread, 0, keys, b"data")
    return NewSegment(len(commits), (owned,), blocks)


def test_a_commit_is_indexed_once_and_again_when_its_segment_is_removed(store: Store) -> None:
    land(store, "a")
    land(store, "b", "a", old="a")
    waiting = store.unindexed(10)
    assert [item.contents for item in waiting] == [(b"a",), (b"b",)]
    assert store.unindexed(10, waiting[0].key) == waiting[1:]
    assert {item.thread for item in waiting} == {store.thread_number("t")}
    blocks = (IndexBlock(3, b"x", b"12"), IndexBlock(5, b"y", b"3"))
    assert store.add_segment(segment_of(waiting, *blocks))
    assert store.unindexed(10) == []
    assert not store.add_segment(segment_of(waiting, *blocks))  # another writer was faster
    [(number, size)] = store.segments().items()
    assert size == 2
    [owned] = store.indexed_commits("t")
    assert (owned.data, owned.segment, owned.keys) == (
        b"data", number, array("q", [item.key for item in waiting]).tobytes(),
    )  # fmt: skip
    assert store.index_blocks([5, 7], [number]) == [(number, blocks[1])]
    assert {block for _, block in store.index_blocks(None, [number])} == set(blocks)
    [(thread, step)] = store.read_keys([waiting[1].key])
    assert (thread, step.commit.id) == ("t", id_of("b"))
    store.maintenance().unindex("t", [id_of("a")])
    assert (store.segments(), store.index_blocks(None, [number])) == ({}, [])
    assert store.unindexed(10) == waiting
    assert store.add_segment(segment_of(waiting))
    maintenance = store.maintenance()
    maintenance.drop("t", [id_of("b")], maintenance.commit_graph("t"))
    assert store.segments() == {}
    assert [item.key for item in store.unindexed(10)] == [waiting[0].key]


def test_segments_are_replaced_together_with_their_commits(store: Store) -> None:
    land(store, "a")
    land(store, "b", "a", old="a")
    first, second = store.unindexed(10)
    assert not store.add_segment(segment_of([second]))  # leaves one out
    assert store.add_segment(segment_of([first]))
    [old] = store.segments()
    assert not store.add_segment(segment_of([first, second]), [old + 77])
    assert store.add_segment(segment_of([first, second]), [old])
    assert not store.add_segment(segment_of([first, second]), [old])
    assert list(store.segments().values()) == [2]
    with suppress(KeyError), store.transaction():
        [number] = store.segments()
        land(store, "c", "b", old="b")
        assert store.add_segment(segment_of([first, second, *store.unindexed(9)]), [number])
        raise KeyError
    assert (store.segments(), store.unindexed(9)) == ({number: 2}, [])


def test_chained_keys_are_found_newest_first(store: Store) -> None:
    land(store, "a", chain=b"k1")
    land(store, "b", "a", old="a", chain=b"k2")
    land(store, "c", "a", ref="x", chain=b"k2")
    matches = store.match([b"k1", b"k2", b"k3"])
    assert {(m.chain, m.commit) for m in matches} == {
        (b"k1", id_of("a")),
        (b"k2", id_of("b")),
        (b"k2", id_of("c")),
    }
    assert [m.commit for m in matches if m.chain == b"k2"] == [id_of("c"), id_of("b")]


def test_a_thread_keeps_its_settings(store: Store) -> None:
    store.ensure_thread("u", created=5.0, checkpoints=True, scope="key")
    again = store.ensure_thread("u", created=9.0, scope="other")
    assert (again.checkpoints, again.scope, again.created, again.head) == (True, "key", 5.0, "main")
    assert store.ensure_thread("t", created=9.0, checkpoints=True).checkpoints


def test_checkpoints_are_remembered_by_thread(store: Store) -> None:
    store.ensure_thread("u", created=1.0)
    land(store, "a")
    head = id_of("a")
    landing = Landing(
        verb="x", ref="main", old=head, new=head, created=1.0, checkpoints=("abc123",)
    )
    store.land("t", landing)
    assert store.has_checkpoint("t", "abc123")
    assert not store.has_checkpoint("u", "abc123")


def test_many_threads_of_a_process_share_a_store(store: Store) -> None:
    def write(name: str) -> None:
        previous = None
        for number in range(25):
            label = f"{name}{number}"
            land(store, label, *([previous] if previous else []), ref=name, old=previous)
            previous = label

    workers = [threading.Thread(target=write, args=(f"w{n}",)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert store.count("t") == 100
    assert all(len(store.walk("t", head)) == 25 for head in store.refs("t").values())


def test_a_file_is_private_and_reopens(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    first = SqliteStore(path)
    first.ensure_thread("t", created=1.0)
    land(first, "a")
    assert path.stat().st_mode & 0o777 == 0o600
    second = SqliteStore(path)
    assert second.refs("t") == {"main": id_of("a")}
    land(second, "b", "a", old="a")
    assert first.read_ref("t", "main") == id_of("b")
    first.close()
    second.close()


def test_a_file_that_is_not_a_store_is_refused_clearly(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database, it only looks like a file" * 40)
    with pytest.raises(StoreError, match=r"text\.db"):
        open_store(tmp_path / "text.db")
    with pytest.raises(StoreError):
        open_store(tmp_path)
    with pytest.raises(ConfigError, match="mysql"):
        open_store("mysql://there")


def attempt(commit: str, data: bytes = b"{}", created: float = 3.0) -> AttemptRecord:
    return AttemptRecord(id_of(commit), "partial", data, created)


def test_attempts_are_read_by_their_commits_oldest_first(store: Store) -> None:
    graph(store, "a; b a; c a")
    store.ensure_thread("other", created=1.0)
    land(store, "a", thread="other")
    rows = [attempt("b", b'{"n":1}'), attempt("a", b'{"n":2}'), attempt("b", b'{"n":3}', 2.0)]
    for row in rows:
        store.add_attempt("t", row)
    store.add_attempt("other", attempt("a", b'{"n":4}'))
    assert store.attempts("t") == rows
    assert store.attempts("t", [id_of("b"), id_of("c")]) == [rows[0], rows[2]]
    assert store.attempts("t", []) == []
    assert [row.data for row in store.attempts("other", [id_of("a")])] == [b'{"n":4}']


def test_an_attempt_needs_its_commit(store: Store) -> None:
    graph(store, "a")
    with pytest.raises(StoreError, match="not in the store"):
        store.add_attempt("t", attempt("b"))
    with pytest.raises(StoreError, match="not in the store"):
        store.add_attempt("nobody", attempt("a"))
    assert store.attempts("t") == []


def test_an_attempt_is_rolled_back_with_its_transaction(store: Store) -> None:
    graph(store, "a")
    with pytest.raises(KeyError), store.transaction():  # noqa: PT012
        land(store, "b", "a", ref="a", old="a")
        store.add_attempt("t", attempt("b"))  # the commit may not be written out yet
        raise KeyError
    assert store.attempts("t") == []
    with store.transaction():
        land(store, "b", "a", ref="a", old="a")
        store.add_attempt("t", attempt("b"))
        land(store, "c", "b", ref="a", old="b")
    assert store.attempts("t") == [attempt("b")]
    assert names(store.walk("t", id_of("c"))) == "a b c"


def fail_inside(store: Store, *landings: tuple[str, str]) -> None:
    """Land these in a nested transaction that fails."""
    with pytest.raises(KeyError), store.transaction():  # noqa: PT012
        for name, old in landings:
            land(store, name, old, old=old)
        raise KeyError


def test_a_nested_transaction_is_rolled_back_alone(store: Store) -> None:
    land(store, "a")
    with store.transaction():
        land(store, "b", "a", old="a")
        land(store, "c", "b", old="b")
        fail_inside(store, ("d", "c"), ("e", "d"), ("f", "e"))
        assert store.read_ref("t", "main") == id_of("c")
        assert store.count("t") == 3
        land(store, "g", "c", old="c")
        land(store, "h", "g", old="g")
    assert names(store.walk("t", id_of("h"))) == "a b c g h"
    assert [op.seq for op in store.operations("t")] == [5, 4, 3, 2, 1]
    assert store.maintenance().flaws() == []


def test_nested_transactions_can_be_nested_further(store: Store) -> None:
    land(store, "a")
    with store.transaction():
        with store.transaction():
            land(store, "b", "a", old="a")
            fail_inside(store, ("c", "b"))
            land(store, "d", "b", old="b")
        fail_inside(store, ("e", "d"))
        with store.transaction():
            land(store, "f", "d", old="d")
    assert names(store.walk("t", id_of("f"))) == "a b d f"
    with pytest.raises(KeyError), store.transaction():  # noqa: PT012
        with store.transaction():
            land(store, "g", "f", old="f")
        raise KeyError
    assert store.read_ref("t", "main") == id_of("f")
    assert store.count("t") == 4
    assert store.maintenance().flaws() == []


def test_names_and_threads_of_a_failed_nested_transaction_are_rolled_back(store: Store) -> None:
    land(store, "a")
    with store.transaction():
        with pytest.raises(KeyError), store.transaction():  # noqa: PT012
            land(store, "b", "a", ref="side")
            move(store, "side", "b", "b", from_branch="main")
            store.ensure_thread("new", created=1.0)
            store.add_attempt("t", attempt("b"))
            raise KeyError
        record = store.read_thread("t")
        assert record is not None
        assert record.head == "main"
        land(store, "c", "a", ref="side")
    assert store.refs("t") == {"main": id_of("a"), "side": id_of("c")}
    assert store.read_thread("new") is None
    assert store.attempts("t") == []
    assert store.maintenance().flaws() == []


def test_a_store_error_in_a_nested_transaction_does_not_end_the_outer(
    store: Store,
) -> None:
    land(store, "a")
    with store.transaction():
        land(store, "b", "a", old="a")
        with pytest.raises(StoreError), store.transaction():  # noqa: PT012
            land(store, "c", "b", old="b")
            land(store, "d", "nowhere", old="c")
        with pytest.raises(RefMoved), store.transaction():
            land(store, "d", "a", old="a")
        land(store, "e", "b", old="b")
    assert names(store.walk("t", id_of("e"))) == "a b e"
    assert store.count("t") == 3
    assert store.maintenance().flaws() == []


def test_commits_are_found_by_links_newest_first(store):
    store.ensure_thread("other", created=1.0)
    land(store, "a")
    land(store, "b", "a", old="a")
    land(store, "a", thread="other")
    store.add_links("t", [(b"k1", id_of("a")), (b"k1", id_of("b")), (b"k2", id_of("a"))])
    store.add_links("t", [(b"k1", id_of("a"))])  # there already
    store.add_links("other", [(b"k1", id_of("a"))])
    links = [(link.key, link.thread, link.commit) for link in store.find_links([b"k1", b"none"])]
    assert links == [
        (b"k1", "other", id_of("a")),
        (b"k1", "t", id_of("b")),
        (b"k1", "t", id_of("a")),
    ]
    newest = store.newest_link(b"k1")
    assert newest is not None
    assert (newest.thread, newest.commit) == ("other", id_of("a"))
    assert store.newest_link(b"none") is None


def test_a_key_of_several_commits_is_not_the_only_link_of_any(store):
    land(store, "a")
    land(store, "b", "a", old="a")
    store.add_links("t", [(b"one", id_of("a")), (b"two", id_of("a")), (b"two", id_of("b"))])
    only = store.only_links([b"one", b"two", b"none"])
    assert [(link.key, link.commit) for link in only] == [(b"one", id_of("a"))]
    store.drop_links("t", [(b"two", id_of("b")), (b"none", id_of("b"))])
    assert {link.key for link in store.only_links([b"one", b"two"])} == {b"one", b"two"}


def test_a_link_to_a_missing_commit_is_not_created(store):
    store.add_links("t", [(b"k", id_of("nowhere"))])
    assert store.find_links([b"k"]) == []


def test_links_are_rolled_back_with_their_transaction(store):
    land(store, "a")
    with pytest.raises(KeyError), store.transaction():  # noqa: PT012
        store.add_links("t", [(b"k", id_of("a"))])
        raise KeyError
    assert store.find_links([b"k"]) == []


def test_the_branches_at_a_commit_are_found(store):
    land(store, "a")
    land(store, "b", "a", old="a")
    move(store, "side", None, "a")
    move(store, "other", None, "b")
    assert store.branches_at("t", id_of("a")) == ["side"]
    assert store.branches_at("t", id_of("b")) == ["main", "other"]
    assert store.branches_at("t", id_of("nowhere")) == []


def test_chains_are_matched_within_threads(store):
    store.ensure_thread("other", created=1.0)
    land(store, "a", chain=b"x")
    land(store, "a", thread="other", chain=b"x")
    assert [match.thread for match in store.match_within(["other"], [b"x"])] == ["other"]
    assert store.match_within(["other"], [b"y"]) == []


def test_a_renamed_thread_keeps_everything(store: Store) -> None:
    land(store, "a", chain=b"chain")
    store.add_links("t", [(b"key", id_of("a"))])
    store.add_attempt("t", AttemptRecord(id_of("a"), "failed", b"{}", 2.0))
    assert store.add_segment(segment_of(store.unindexed(10)))
    store.rename_thread("t", "new")
    assert [record.name for record in store.threads()] == ["new"]
    assert store.read_thread("t") is None
    assert store.read_ref("new", "main") == id_of("a")
    assert [match.thread for match in store.match([b"chain"])] == ["new"]
    assert [link.thread for link in store.find_links([b"key"])] == ["new"]
    assert [link.thread for link in store.only_links([b"key"])] == ["new"]
    assert len(store.attempts("new")) == 1
    assert len(store.operations("new")) == 1
    assert len(store.indexed_commits("new")) == 1
    land(store, "b", "a", old="a", thread="new")
    with pytest.raises(StoreError, match="renamed or deleted"):
        land(store, "c", "b", old="b", thread="t")
    with pytest.raises(StoreError, match="is not in the store"):
        store.read_ref("t", "main")


def test_a_thread_cannot_take_the_name_of_another(store: Store) -> None:
    store.ensure_thread("other", created=2.0)
    with pytest.raises(StoreError, match="already"):
        store.rename_thread("t", "other")
    with pytest.raises(StoreError, match="not in the store"):
        store.rename_thread("nobody", "new")
    assert [record.name for record in store.threads()] == ["t", "other"]


def test_a_folder_is_set_once(store: Store) -> None:
    store.ensure_thread("t", created=1.0)
    assert store.threads()[0].folder is None
    for folder in ("/srv/app", None, "/elsewhere"):
        store.describe_thread("t", folder=folder)
    record = store.read_thread("t")
    assert record is not None
    assert record.folder == "/srv/app"
    assert record in store.threads()


def test_a_thread_has_a_parent_a_kind_and_a_title(store: Store) -> None:
    for name in ("parent", "child"):
        store.ensure_thread(name, created=1.0)
    store.describe_thread("child", parent="parent", kind="agent")
    store.describe_thread("child", title="Letters")
    store.rename_thread("parent", "new")
    child = store.read_thread("child")
    assert child is not None
    assert (child.parent, child.kind, child.title) == ("new", "agent", "Letters")
    assert child in store.threads()
    for name, parent in (("no", None), ("child", "no")):
        with pytest.raises(StoreError):
            store.describe_thread(name, parent=parent, title="lost")
    with suppress(ZeroDivisionError), store.transaction():
        store.describe_thread("child", title="lost")
        raise ZeroDivisionError
    assert store.read_thread("child") == child


def test_a_rename_is_rolled_back_with_its_transaction(store: Store) -> None:
    land(store, "a")
    with suppress(ZeroDivisionError), store.transaction():
        store.rename_thread("t", "new")
        raise ZeroDivisionError
    land(store, "b", "a", old="a")
    assert store.read_thread("new") is None


def test_a_deleted_thread_is_not_found(store: Store) -> None:
    land(store, "a", chain=b"chain")
    store.add_links("t", [(b"key", id_of("a"))])
    name = deleted_name("t", 5.0)
    store.rename_thread("t", name)
    assert read_deleted_name(name) == ("t", 5.0)
    assert read_deleted_name("t") is None
    assert store.threads() == []
    assert [record.name for record in store.threads(deleted=True)] == [name]
    assert store.match([b"chain"]) == []
    assert store.match_within([name], [b"chain"]) == []
    assert store.find_links([b"key"]) == []
    assert store.only_links([b"key"]) == []
    assert store.newest_link(b"key") is None
    assert store.newest_link(b"key", deleted=True) is not None
    store.ensure_thread("t", created=6.0)
    land(store, "a", chain=b"chain")
    store.add_links("t", [(b"key", id_of("a"))])
    assert [link.thread for link in store.only_links([b"key"])] == ["t"]
    assert [match.thread for match in store.match([b"chain"])] == ["t"]


def test_a_removed_thread_leaves_nothing(store: Store) -> None:
    land(store, "a")
    maintenance = store.maintenance()
    assert not maintenance.drop_thread("t")  # it still has a commit
    dropped = maintenance.drop("t", [id_of("a")], maintenance.commit_graph("t"))
    assert (dropped.commits, dropped.entries, dropped.operations) == (1, 1, 1)
    assert maintenance.drop_thread("t")
    assert not maintenance.drop_thread("t")
    assert store.threads() == []
    assert store.read_thread("t") is None
    assert maintenance.flaws() == []


def test_the_graph_of_a_thread_has_its_commits_and_the_operations_that_mention_them(
    store: Store,
) -> None:
    store.ensure_thread("other", created=1.0)
    land(store, "x", thread="other")
    for old, name in pairwise((None, "a", "b", "c")):
        land(store, name, *([] if old is None else [old]), old=old)
    graph = store.maintenance().commit_graph("t")
    parents = {"a": (), "b": ("a",), "c": ("b",)}
    assert graph.parents == {
        id_of(name): tuple(map(id_of, names)) for name, names in parents.items()
    }
    assert list(graph.parents) == [id_of(name) for name in "abc"]
    assert graph.mentions == {id_of("a"): 2, id_of("b"): 3, id_of("c"): 3}
    assert graph.last_operation == 3
    assert store.maintenance().commit_graph("nobody").parents == {}


def test_nothing_is_dropped_from_a_thread_that_has_changed(store: Store) -> None:
    land(store, "a")
    land(store, "b", "a", old="a")
    maintenance = store.maintenance()
    graph = maintenance.commit_graph("t")
    land(store, "c", "b", old="b")
    assert not maintenance.drop("t", [id_of("b")], graph).is_complete
    assert not maintenance.drop("nobody", [id_of("b")], graph).is_complete
    assert set(maintenance.commit_graph("t").parents) == set(map(id_of, "abc"))


def test_an_entry_that_another_thread_uses_stays(store: Store) -> None:
    store.ensure_thread("other", created=1.0)
    land(store, "a")
    land(store, "a", thread="other")
    maintenance = store.maintenance()
    assert maintenance.drop("t", [id_of("a")], maintenance.commit_graph("t")).entries == 0
    assert len(store.walk("other", id_of("a"))[0].contents) == 1
    assert maintenance.drop("other", [id_of("a")], maintenance.commit_graph("other")).entries == 1


def test_operations_know_their_batch(store: Store) -> None:
    land(store, "a")
    for old, name in pairwise("abcde"):
        land(store, name, old, old=old)
    store.mark_batch("t", 2, 3)
    store.mark_batch("t", 5)  # a batch of one is none
    assert [op.batch for op in store.operations("t")] == [None, None, 2, 2, None]
    assert [op.batch for op in store.operations("t", before=3, limit=1)] == [2]
    with pytest.raises(KeyError), store.transaction():  # noqa: PT012
        store.mark_batch("t", 4)
        raise KeyError
    assert [op.batch for op in store.operations("t", limit=2)] == [None, None]
    store.mark_batch("t", 4)
    assert [op.batch for op in store.operations("t", limit=2)] == [4, 4]


def test_commits_of_all_threads_are_numbered_in_order_of_arrival(store: Store) -> None:
    store.ensure_thread("u", created=2.0)
    start = store.last_arrival()
    land(store, "a")
    land(store, "b", thread="u")
    land(store, "c", "a", old="a")
    arrived = store.arrivals(start)
    assert [(each.thread, each.commit) for each in arrived] == [
        ("t", id_of("a")),
        ("u", id_of("b")),
        ("t", id_of("c")),
    ]
    assert [each.commit for each in store.arrivals(start, limit=1)] == [id_of("a")]
    assert store.arrivals(arrived[1].number) == arrived[2:]
    assert store.last_arrival() == arrived[-1].number
    assert store.arrivals(store.last_arrival()) == []


def test_the_activity_of_a_thread_is_its_last_operation(store: Store) -> None:
    for number, name in enumerate(("early", "late", "empty")):
        store.ensure_thread(name, created=10.0 + number)
    land(store, "a", thread="early")
    land(store, "b", thread="late")
    move_at = Landing(verb="move", ref="x", old=None, new=id_of("a"), created=50.0)
    store.land("early", move_at)
    assert store.last_active() == {"t": 1.0, "early": 50.0, "late": 1.0, "empty": 12.0}
    store.rename_thread("late", deleted_name("late", 60.0))
    assert set(store.last_active()) == {"t", "early", "empty"}


def test_an_imported_thread_is_as_old_as_its_newest_commit(store: Store) -> None:
    landing = Landing(
        verb="import",
        ref="main",
        old=None,
        new=id_of("a"),
        created=99.0,
        entries=((entry_of("a"), b"a"),),
        commits=(commit("a"),),
    )
    store.land("t", landing)
    assert store.last_active() == {"t": 1.0}
    assert store.operations("t")[0].created == 99.0  # the log still has the time of the import
