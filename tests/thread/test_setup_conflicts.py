"""Tools and parameters that both sides changed are a conflict, resolved like any other."""

from typing import Any

import pytest

import weft
from fresh import fresh
from weft.errors import MergeConflict, ThreadError
from weft.history import Setup, SetupConflict
from weft.model import Params
from weft.thread import MergePreview, Thread

Given = tuple[str, float | None]
"""The names of tools, and a temperature."""


def equip(t: Thread, setup: Given) -> None:
    names, temperature = setup
    t.setup([{"name": name} for name in names], Params(temperature=temperature))


def setup_of(t: Thread) -> Given:
    setup = t.compile().setup or Setup()
    assert (fresh(t).compile().setup or Setup()) == setup
    return "".join(tool.name for tool in setup.tools), setup.params.temperature


def forked(base: Given, ours: Given | None, theirs: Given | None) -> Thread:
    t = weft.open()
    t.user("a")
    equip(t, base)
    t.branch("f")
    for branch, setup in (("f", theirs), ("main", ours)):
        t.switch(branch)
        t.user(branch)
        if setup is not None:
            equip(t, setup)
    return t


ALONE: list[tuple[Given | None, Given | None, Given]] = [
    (("x", None), None, ("x", None)),  # one side alone
    (None, ("x", None), ("x", None)),
    (("x", None), ("x", None), ("x", None)),  # both the same
    (("x", None), ("b", 0.5), ("x", 0.5)),  # different parts of it
    (("b", 0.5), ("x", None), ("x", 0.5)),
]


@pytest.mark.parametrize(("ours", "theirs", "merged"), ALONE)
def test_changes_of_one_side_are_merged(ours: Any, theirs: Any, merged: Given) -> None:
    t = forked(("b", None), ours, theirs)
    t.merge("f")
    assert setup_of(t) == merged


def test_a_change_on_both_sides_is_a_conflict() -> None:
    t = forked(("b", None), ("x", 0.1), ("y", 0.9))
    before = t.head
    with pytest.raises(MergeConflict, match=r"the setup \(tools, temperature\)") as raised:
        t.merge("f")
    (conflict,) = raised.value.conflicts
    assert isinstance(conflict, SetupConflict)
    assert (conflict.id, conflict.kind, conflict.parts) == (
        "setup",
        "setup",
        ("tools", "temperature"),
    )
    assert [s.params.temperature for s in (conflict.ours, conflict.theirs)] == [0.1, 0.9]
    assert t.head == before


def test_preview_and_ask_show_it() -> None:
    t = forked(("b", None), ("x", 0.1), ("y", 0.9))
    preview = t.merge("f", preview=True)
    assert [conflict.id for conflict in preview.conflicts] == ["setup"]
    assert "the setup (tools, temperature)" in str(preview)
    asked = t.merge("f", "ask")
    assert isinstance(asked, MergePreview)
    assert asked.conflicts == preview.conflicts
    settled = t.merge("f", "theirs", preview=True)
    assert settled.conflicts == ()
    assert settled.setup_changes == ("tools", "temperature")
    assert "tools, temperature would change" in str(settled)


SETTLED: list[tuple[Any, Given]] = [
    ("ours", ("x", 0.1)),
    ("theirs", ("y", 0.9)),
    ("concat", ("xy", 0.1)),  # there is no word for two temperatures: ours
    ({"setup": "theirs"}, ("y", 0.9)),
    (lambda conflict: "theirs" if conflict.kind == "setup" else "ours", ("y", 0.9)),
]


@pytest.mark.parametrize(("strategy", "merged"), SETTLED)
def test_every_strategy_resolves_it(strategy: Any, merged: Given) -> None:
    t = forked(("b", None), ("x", 0.1), ("y", 0.9))
    info = t.merge("f", strategy)
    assert setup_of(t) == merged
    t.revert(info)
    assert setup_of(t) == ("x", 0.1)


def test_a_text_cannot_resolve_a_setup_conflict() -> None:
    t = forked(("b", None), ("x", 0.1), ("y", 0.9))
    with pytest.raises(ThreadError, match="ours, theirs or concat"):
        t.merge("f", {"setup": "both of them"})


@pytest.mark.parametrize(
    ("strategy", "merged"), [("ours", ("x", 0.1)), ("theirs", ("y", 0.9)), (None, None)]
)
def test_a_rebase_reports_it_too(strategy: Any, merged: Given | None) -> None:
    t = forked(("b", None), ("x", 0.1), ("y", 0.9))
    t.switch("f")
    if merged is None:
        assert [c.id for c in t.rebase("main", preview=True).conflicts] == ["setup"]
        with pytest.raises(MergeConflict, match="the setup"):
            t.rebase("main")
        return
    t.rebase("main", strategy)
    assert setup_of(t) == merged


def test_a_cherry_pick_reports_it_too() -> None:
    t = forked(("b", None), ("x", 0.1), None)
    t.switch("f")
    equip(t, ("y", 0.9))
    other = t.head
    assert other is not None
    t.switch("main")
    with pytest.raises(MergeConflict):
        t.cherry_pick(other)
    t.cherry_pick(other, "theirs")
    assert setup_of(t) == ("y", 0.9)


def test_a_setup_that_changed_later_is_not_reverted_silently() -> None:
    t = weft.open()
    t.user("a")
    equip(t, ("b", None))
    first = t.head
    assert first is not None
    equip(t, ("c", None))
    with pytest.raises(MergeConflict, match="the setup"):
        t.revert(first)
    t.revert(first, "theirs")
    assert setup_of(t) == ("", None)
