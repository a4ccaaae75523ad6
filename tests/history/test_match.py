"""What a client may respell without leaving its conversation, and what it may not."""

import pytest

from weft.history import match_key
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
def test_respelt_messages_have_one_key(one, other):
    assert match_key(one) == match_key(other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_messages_that_differ_have_two_keys(one, other):
    assert match_key(one) != match_key(other)
