"""Reverting compactions restores messages at their positions, after any number of compactions."""

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import weft
from weft.errors import ThreadError


def texts_of(thread: Any) -> list[str]:
    return [row["content"] for row in thread.compile().to_dicts()]


def talk(thread: Any, *numbers: int) -> list[str]:
    for number in numbers:
        thread.user(f"q{number}")
        thread.assistant(f"a{number}")
    return [f"{who}{number}" for number in numbers for who in "qa"]


@pytest.mark.parametrize("again", [{"keep": 1}, {"replacements": [{"summary": "S2"}]}], ids=str)
def test_turns_compacted_twice_are_restored_before_later_ones(
    again: dict[str, Any],
) -> None:
    with weft.open() as t:
        old = talk(t, 1, 2, 3)
        first = t.compact([{"summary": "S1"}])
        new = talk(t, 4)
        t.compact(**again)
        new += talk(t, 5)
        t.revert(first.commit)
        back = texts_of(t)
        assert back[: len(old)] == old
        assert [text for text in back if text in new] == [text for text in new if text in back]


def test_a_revert_after_a_revert_of_an_older_compaction_keeps_the_order() -> None:
    with weft.open() as t:
        talk(t, 1)
        older = t.compact([{"summary": "S0"}])
        talk(t, 2)
        newer = t.compact([{"summary": "S1"}])
        talk(t, 3)
        t.revert(older.commit)
        assert texts_of(t) == ["q1", "a1", "S1", "q3", "a3"]
        t.revert(newer.commit)
        assert texts_of(t) == ["q1", "a1", "S0", "q2", "a2", "q3", "a3"]


def test_a_pin_keeps_its_position_between_turns() -> None:
    with weft.open() as t:
        t.user("q1")
        t.pin(t.user("pinned"))
        t.user("q2")
        first = t.compact([{"summary": "S1"}])
        talk(t, 3)
        t.compact(keep=1)
        t.revert(first.commit)
        assert texts_of(t)[:3] == ["q1", "pinned", "q2"]
        assert texts_of(t)[-2:] == ["q3", "a3"]


STEP = st.one_of(
    st.just(("talk", 0)),
    st.just(("sum up", 0)),
    st.tuples(st.just("keep"), st.integers(1, 3)),
    st.tuples(st.just("revert"), st.integers(0, 5)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=14))
def test_turns_always_keep_their_original_order(
    steps: list[tuple[str, int]],
) -> None:
    with weft.open() as t:
        order = talk(t, 1)
        folds: list[str] = []
        for number, (verb, value) in enumerate(steps, start=2):
            try:
                if verb == "talk":
                    order += talk(t, number)
                elif verb == "revert" and folds:
                    t.revert(folds[value % len(folds)])
                elif verb != "revert":
                    how: Any = {"keep": value} if verb == "keep" else {}
                    plan: Any = None if how else [{"summary": f"S{number}"}]
                    done = t.compact(plan, **how)
                    folds += [done.commit] if done.commit else []
            except ThreadError:
                continue  # nothing to fold, or nothing left to take back
            shown = [text for text in texts_of(t) if text in set(order)]
            assert shown == [text for text in order if text in set(shown)]
