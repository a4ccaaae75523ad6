"""Which differences in spelling keep a message in its conversation, and which do not."""

import pytest

from weft.history import Trace, match_key, trace
from weft.model import Message, Text, Thinking, ToolCall, ToolResult

CALL = ToolCall("call_1", "Read", '{"path": "a.py", "limit": 2}')


def message(role, *blocks):
    return Message(role, tuple(Text(b) if isinstance(b, str) else b for b in blocks))


SAME = [
    (message("assistant", "One. ", "Two."), message("assistant", "One. Two.")),  # merged
    (message("assistant", "One.", "Two."), message("assistant", "One.\n\nTwo.")),  # joined by lines
    (message("assistant", "\n\n", CALL), message("assistant", CALL)),  # blank text dropped
    (message("assistant", "Look.  \n", CALL), message("assistant", "Look.", CALL)),  # trimmed
    (message("assistant", Thinking("hm"), "Yes."), message("assistant", "Yes.")),
    (message("user", "a", "b"), message("user", "ab")),
    (message("user", "a\n"), message("user", "a")),
]
OTHER = [
    (message("user", "x = 1"), message("user", "x=1")),  # white space may be an edit
    (message("user", "a", "b"), message("user", "a")),
    (message("assistant", "One.", CALL), message("assistant", CALL, "One.")),
    (message("user", "a"), message("assistant", "a")),
    (message("user", ToolResult("c", (Text("a"),))), message("user", "a")),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_respelled_messages_have_the_same_key(one, other):
    assert match_key(one) == match_key(other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_different_messages_have_different_keys(one, other):
    assert match_key(one) != match_key(other)


def test_a_known_trace_only_saves_work():
    """Lists that share a beginning, leave it and come back, or have nothing in common."""
    turns = [message(("user", "assistant")[n % 2], f"turn {n}") for n in range(8)]
    edited = message("user", "turn 2, edited")
    system = message("system", "be brief")
    respelt = message("assistant", "turn 3 \n")
    lists = [
        turns,
        turns[:5],
        [*turns[:2], edited, *turns[3:]],
        [*turns[:3], respelt, *turns[4:]],
        [system, *turns],
        [*turns[:4], system, *turns[4:]],
        turns[1:],
        [],
    ]
    for old in lists:
        earlier = Trace(tuple(old), tuple(trace("s", old)))
        for new in lists:
            assert trace("s", new, earlier=earlier) == trace("s", new)
