"""A partial compile equals that part of the full compile."""

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import weft
from weft.errors import ThreadError
from weft.history import ListRows, View, compile_slots, compile_tail, run_steps, visible_rows
from weft.ids import Id
from weft.store import SqliteStore

Verb = Callable[[weft.Thread, int], object]


def _line(t: weft.Thread, number: int) -> str:
    ids = t.compile().ids
    return ids[number % len(ids)]


def _aside(t: weft.Thread, number: int, home: Callable[[weft.Thread, str], object]) -> None:
    """A branch with a message and an edit, and how it is merged."""
    name = f"b{number}-{len(t.log())}-{t.store.count('default')}"
    t.branch(name)
    t.user(f"ours {name}")
    t.switch(name)
    picked = t.user(f"theirs {name}")
    t.edit(_line(t, number), f"otherwise {name}")
    t.switch("main")
    home(t, name if home is not _pick else picked.id)


def _pick(t: weft.Thread, id: str) -> None:
    t.cherry_pick(id)


def _rebase(t: weft.Thread, name: str) -> None:
    t.rebase(name, strategy="ours")


def _merge(t: weft.Thread, name: str) -> None:
    t.merge(name, strategy="theirs")


def _revert(t: weft.Thread, number: int) -> None:
    commits = [info for info in t.log() if info.kind in ("compact", "edit", "annotate")]
    if commits:
        t.revert(commits[number % len(commits)].id, strategy="ours")


VERBS: dict[str, Verb] = {
    "say": lambda t, n: t.user(f"said {n}"),
    "answer": lambda t, n: t.assistant(f"answered {n}"),
    "edit": lambda t, n: t.edit(_line(t, n), f"edited {n}"),
    "skip": lambda t, n: t.skip(_line(t, n)),
    "pin": lambda t, n: t.pin(_line(t, n)),
    "compact": lambda t, n: t.compact(keep=1 + n % 3),
    "revert": _revert,
    "undo": lambda t, _: t.undo(),
    "merge": lambda t, n: _aside(t, n, _merge),
    "rebase": lambda t, n: _aside(t, n, _rebase),
    "pick": lambda t, n: _aside(t, n, _pick),
}


def _play(steps: list[tuple[str, int]]) -> tuple[weft.Thread, Id, set[Id]]:
    """The thread after these operations, its head, and every row that it ever had."""
    t = weft.open()
    t.user("the first")
    t.assistant("the second")
    slots: set[Id] = set()
    for verb, number in [*steps, ("say", 99)]:
        if verb == "say" or len(t.compile()):
            with suppress(ThreadError):  # what is refused changes nothing
                VERBS[verb](t, number)
        t.switch("main")
        slots |= {row.id for row in t.compile().rows if row.id is not None}
    head = t.store.read_ref("default", "main")
    assert head is not None
    return t, head, slots


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(VERBS)), st.integers(0, 30)), max_size=14))
def test_lines_read_separately_equal_those_of_the_full_compile(
    steps: list[tuple[str, int]],
) -> None:
    t, head, slots = _play(steps)
    view = View().extend(t.store.walk("default", head))
    whole = {slot: row for slot in slots if (row := view.find(slot)) is not None}
    assert compile_slots(t.store, "default", head, slots) == whole
    for slot in slots:
        alone = compile_slots(t.store, "default", head, {slot})
        assert alone.get(slot) == whole.get(slot)
    fresh = weft.open(t.store)
    for words in ("said", "edited", "theirs", "ours", "first"):
        assert fresh.search(words) == t.search(words)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(VERBS)), st.integers(0, 30)), max_size=12),
    st.randoms(use_true_random=False),
)
def test_any_part_equals_that_part_of_the_full_compile(
    steps: list[tuple[str, int]], dice: Random
) -> None:
    """The law of partial compiles: any slots and any tail, on every commit of the branch."""
    t, head, slots = _play(steps)
    chain = t.store.walk("default", head)
    view = View()
    for number, step in enumerate(chain):
        commit = step.commit.id
        view = view.extend([step])
        scratch = View().extend(chain[: number + 1])
        plain = ListRows()
        setup = run_steps(chain[: number + 1], plain)
        assert (view.rows, view.setup) == (scratch.rows, scratch.setup) == (plain.rows, setup)
        some = set(dice.sample(sorted(slots), dice.randint(0, len(slots))))
        rows = {row.id: row for row in view.rows if row.id in some}
        assert compile_slots(t.store, "default", commit, some) == rows
        visible = visible_rows(view.rows)
        last = dice.randint(1, len(visible) + 2)
        assert compile_tail(t.store, "default", commit, last) == visible[-last:]


@pytest.mark.parametrize("seed", range(5))
def test_every_view_of_a_long_branch_finds_its_rows(seed: int) -> None:
    """The views of a branch share parts of their index; rewrites make each part shorter."""
    dice = Random(seed)
    rewrites = [name for name in sorted(VERBS) if name != "undo"]
    t, head, slots = _play([(dice.choice(rewrites), dice.randrange(30)) for _ in range(60)])
    views, view = [], View()
    for step in t.store.walk("default", head):
        view = view.extend([step])
        views.append((view, {row.id: row for row in view.rows}))
    for view, rows in views:  # after all of them were made: a later one leaves the others alone
        assert {slot: view.find(slot) for slot in slots} == {slot: rows.get(slot) for slot in slots}


def test_the_id_of_an_edit_is_not_a_row() -> None:
    """A fresh handle reads rows alone, and is given ids of commits that append nothing."""
    t = weft.open()
    edit = t.edit(t.user("one").id, "two")
    assert [row.text for row in weft.open(t.store).blame(edit.id)] == ["two"]


class CountingStore(SqliteStore):
    """Counts the commits that were read along a branch."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.steps = 0

    def walk(self, *args: Any, **options: Any) -> Any:
        steps = super().walk(*args, **options)
        self.steps += len(steps)
        return steps


def test_search_on_a_fresh_handle_compiles_nothing() -> None:
    store = CountingStore()
    t = weft.open(store)
    for number in range(20):
        t.user(f"straw {number}")
    t.edit(t.user("a needle").id, "a pin")
    t.user("another needle")
    fresh, store.steps = weft.open(store), 0
    assert [(hit.text, hit.live) for hit in fresh.search("needle")] == [
        ("another needle", True),
        ("a needle", False),
    ]
    assert store.steps < 10
    fresh.compile()
    assert store.steps > 20
