"""Finding the commits that wrote a line: none is missed, and few others are read."""

import random
from collections.abc import Callable

import pytest

import weft
from weft.errors import MergeConflict, ThreadError
from weft.history import View, read_writers
from weft.ids import Id
from weft.model import Message
from weft.store import MemoryStore, SqliteStore, Step, Store

BACKENDS: list[Callable[[], Store]] = [MemoryStore, lambda: SqliteStore(":memory:")]


def ancestors(store: Store, head: Id) -> list[Id]:
    """Every commit that this one comes from, itself included, by asking for each."""
    visited: list[Id] = []
    waiting = [head]
    while waiting:
        id = waiting.pop()
        if id not in visited:
            visited.append(id)
            (node,) = store.read_nodes("default", [id])
            waiting += node.parents
    return visited


Rows = dict[Id, Message]


def read_rows(store: Store, id: Id) -> Rows:
    """The messages of a commit by their slots, from a compile of the whole branch."""
    view = View().extend(store.walk("default", id))
    return {row.id: row.message for row in view.rows if row.id is not None}


def writes(rows: dict[Id, Rows], step: Step, slot: Id) -> bool:
    """Whether a commit added this line, or changed its message."""
    after = rows[step.commit.id].get(slot)
    before = rows[step.commit.parents[0]].get(slot) if step.commit.parents else None
    return after is not None and before != after


def wander(thread: weft.Thread, chance: random.Random) -> None:
    """Random operations, on the thread's current branch."""
    for number in range(60):
        ids = thread.compile().ids
        verb = chance.choice(["say"] * 4 + ["edit", "pin", "branch", "switch", "merge", "pick"])
        branches = list(thread.branches())
        try:
            if verb == "say" or not ids:
                thread.user(f"line {number}")
            elif verb == "edit":
                thread.edit(chance.choice(ids), f"edited {number}")
            elif verb == "pin":
                thread.pin(chance.choice(ids))
            elif verb == "branch":
                thread.branch(f"b{number}", at=chance.choice(thread.log()).id)
            elif verb == "switch":
                thread.switch(chance.choice(branches))
            elif verb == "merge":
                thread.merge(chance.choice(branches))
            else:
                thread.cherry_pick(chance.choice(thread.log()).id)
        except (MergeConflict, ThreadError):
            continue


@pytest.mark.parametrize("make", BACKENDS)
@pytest.mark.parametrize("seed", range(8))
def test_no_commit_that_wrote_a_line_is_missed(seed: int, make: Callable[[], Store]) -> None:
    store = make()
    thread = weft.open(store)
    wander(thread, random.Random(seed))
    for branch, head in store.refs("default").items():
        every = store.read_commits("default", ancestors(store, head))
        rows = {step.commit.id: read_rows(store, step.commit.id) for step in every}
        for slot in map(bytes.fromhex, weft.open(store, branch=branch).compile().ids):
            wrote = {step.commit.id for step in every if writes(rows, step, slot)}
            writers = read_writers(store, "default", head, [slot])
            assert wrote <= {step.commit.id for step in writers}, (branch, slot.hex())
            assert {step.commit.id for step in writers} <= {step.commit.id for step in every}
            assert [s.depth for s in writers] == sorted(s.depth for s in writers)


@pytest.mark.parametrize("make", BACKENDS)
def test_plain_messages_are_not_read(make: Callable[[], Store]) -> None:
    store = make()
    thread = weft.open(store)
    with thread.batch():
        infos = [thread.user(f"line {number}") for number in range(300)]
    thread.edit(infos[200], "other words")
    head = store.refs("default")["main"]
    writers = read_writers(store, "default", head, [bytes.fromhex(infos[200].id)])
    assert [step.commit.kind for step in writers] == ["append", "edit"]
    assert [version.text for version in thread.edit_history(infos[200])] == [
        "line 200",
        "other words",
    ]
