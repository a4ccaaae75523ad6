"""What a few lines say now is what the whole list says of them, and mostly needs no list."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings, strategies as st

import weft
from weft.errors import ThreadError
from weft.history import read_rows
from weft.ids import Id

Verb = Callable[[weft.Thread, int], object]


def _line(t: weft.Thread, number: int) -> str:
    ids = t.compile().ids
    return ids[number % len(ids)]


def _aside(t: weft.Thread, number: int, home: Callable[[weft.Thread, str], object]) -> None:
    """A side trip that says something and edits something, and how it comes home."""
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

PLAIN = ("say", "edit", "skip", "compact", "revert", "merge", "rebase", "pick")


def _play(steps: list[tuple[str, int]]) -> tuple[weft.Thread, Id, set[Id]]:
    """The thread after these verbs, its head, and every line that it ever had."""
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
def test_lines_read_alone_are_those_of_the_whole(steps: list[tuple[str, int]]) -> None:
    t, head, slots = _play(steps)
    view = weft.open(t.store)._handle.view(head)  # pyright: ignore[reportPrivateUsage]
    whole = {slot: row for slot in slots if (row := view.find(slot)) is not None}
    assert read_rows(t.store, "default", head, slots) in (whole, None)
    for slot in slots:
        alone = read_rows(t.store, "default", head, {slot})
        assert alone is None or alone.get(slot) == whole.get(slot)
    fresh = weft.open(t.store)
    for words in ("said", "edited", "theirs", "ours", "first"):
        assert fresh.search(words) == t.search(words)


@pytest.mark.parametrize("verb", PLAIN)
def test_a_common_history_needs_no_compile(verb: str) -> None:
    steps = [("say", number) for number in range(5)] + [(verb, 1), ("say", 6), (verb, 2)]
    t, head, slots = _play(steps)
    assert read_rows(t.store, "default", head, slots) is not None


def test_search_on_a_fresh_handle_compiles_nothing() -> None:
    t = weft.open()
    for number in range(20):
        t.user(f"straw {number}")
    t.edit(t.user("a needle").id, "a pin")
    t.user("another needle")
    fresh = weft.open(t.store)
    assert [(hit.text, hit.live) for hit in fresh.search("needle")] == [
        ("another needle", True),
        ("a needle", False),
    ]
    handle = fresh._handle  # pyright: ignore[reportPrivateUsage]
    assert not handle.has_view(handle.head() or b"")
