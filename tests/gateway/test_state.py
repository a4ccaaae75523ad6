"""The title of a thread in a list."""

import pytest

from weft.gateway import Titles
from weft.store import open_store
from weft.thread import open as open_thread

TITLE_LENGTH = 80


def add_turns(thread, *turns):
    for role, words in turns:
        getattr(thread, role)(words)


@pytest.mark.parametrize(
    ("turns", "title"),
    [
        ([], None),
        ([("user", "Good  morning,\nyou.")], "Good morning, you."),
        ([("system", "Be brief."), ("user", "Hello.")], "Hello."),
        ([("system", "Be brief.")], "Be brief."),
        ([("user", "word " * 99)], ("word " * 99)[: TITLE_LENGTH - 1].rstrip() + "…"),
        ([("user", f"turn {number}") for number in range(40)], "turn 0"),
    ],
)
def test_a_title_is_the_start_of_the_first_message(turns, title):
    store = open_store(None)
    thread = open_thread(store, "t", checkpoints=True)
    add_turns(thread, *turns)
    record = store.ensure_thread("t") if store.read_thread("t") is None else store.read_thread("t")
    assert Titles().of(store, record) == title
