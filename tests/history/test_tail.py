"""The compiled tail of a thread equals the end of the full compile."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st

import weft
from weft.history import compile_tail

Verb = Callable[[weft.Thread, int], object]


def _merge(t: weft.Thread, number: int) -> None:
    name = f"b{number}-{len(t.log())}"
    t.branch(name)
    t.user(f"ours {name}")
    t.switch(name)
    t.user(f"theirs {name}")
    t.switch("main")
    t.merge(name)


VERBS: dict[str, Verb] = {
    "say": lambda t, n: t.user(f"said {n}"),
    "answer": lambda t, n: t.assistant(f"answered {n}"),
    "edit": lambda t, n: t.edit(_line(t, n), f"edited {n}"),
    "skip": lambda t, n: t.skip(_line(t, n)),
    "pin": lambda t, n: t.pin(_line(t, n)),
    "merge": _merge,
    "compact": lambda t, n: t.compact(keep=1 + n % 3),
}


def _line(t: weft.Thread, number: int) -> str:
    ids = t.compile().ids
    return ids[number % len(ids)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(VERBS)), st.integers(0, 30)), max_size=14))
def test_every_tail_equals_the_tail_of_the_full_compile(steps: list[tuple[str, int]]) -> None:
    t = weft.open()
    t.user("the first")
    t.assistant("the second")
    for verb, number in steps:
        if len(t.compile()):
            VERBS[verb](t, number)
    whole = t.compile()
    head = t.store.read_ref("default", "main")
    assert head is not None
    for last in (0, 1, 2, 3, 5, 100):
        rows = whole.rows[max(0, len(whole.rows) - last) :] if last else ()
        assert tuple(compile_tail(t.store, "default", head, last)) == rows
        fresh = weft.open(t.store).compile(last=last)
        assert fresh.messages == tuple(row.message for row in rows)
        assert fresh.head == whole.head


@pytest.mark.parametrize("size", [1, 40, 400])
def test_a_tail_reads_only_what_it_needs(size: int) -> None:
    t = weft.open()
    with t.batch():
        for number in range(size):
            t.user(f"{number}")
    limits: list[int | None] = []
    walk = t.store.walk

    def watched(*args: object, limit: int | None = None, **more: object) -> object:
        limits.append(limit)
        return walk(*args, limit=limit, **more)  # pyright: ignore

    t.store.walk = watched  # pyright: ignore
    fresh = weft.open(t.store)
    assert [m.text for m in fresh.compile(last=2).messages] == [f"{n}" for n in range(size)][-2:]
    assert limits == [66]
    assert fresh.compile(last=2).tools == ()  # reads the whole thread
