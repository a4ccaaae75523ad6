"""Which differences in spelling keep a message in its conversation, and which do not."""

import re

import pytest

from weft.history import MatchTrace, align_turns, find_edit, match_key, match_points
from weft.model import (
    Audio,
    File,
    FileRef,
    Image,
    Inline,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Url,
)

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
    (message("user", "x = 1"), message("user", "x=1")),  # whitespace may be an edit
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
        earlier = MatchTrace(tuple(old), tuple(match_points("s", old)))
        for new in lists:
            assert match_points("s", new, earlier=earlier) == match_points("s", new)


@pytest.mark.parametrize(
    "block",
    [
        Image(Inline("iVBORw0KGgo=", "image/png")),
        File(Inline("JVBERi0=", "application/pdf")),
        Audio(Inline("UklGRg==", "audio/wav")),
        Image(Url("https://a.example/media.png")),
        File(FileRef("file-1")),
        Opaque("openai-responses", {"type": "new", "text": "media"}),
    ],
)
def test_a_block_other_than_text_is_part_of_the_system_digest(block):
    """A volatile pattern is for texts: it does not match a block of another kind."""
    digests = [
        match_points("s", [message("system", *blocks)], [re.compile("media")])[0].system
        for blocks in ((), ("be brief",), ("be brief", block), ("be brief", "media 1"))
    ]
    assert digests[1] not in (digests[0], digests[2])
    assert digests[3] == digests[1]


@pytest.mark.parametrize("block", ["be brief", Image(Inline("iVBORw0KGgo=", "image/png"))])
def test_a_system_message_inside_a_turn_is_not_an_edit(block):
    system = message("system", block)
    question, answer = message("user", "one"), message("assistant", CALL)
    result, hint = message("tool", ToolResult("call_1", (Text("found"),))), message("user", "two")
    end = message("assistant", "done")
    stored = [(bytes([n]), each) for n, each in enumerate([question, answer, result, hint, end])]
    assert find_edit(stored, [question, answer, result, system, hint, end]) is None
    with_system = [*stored[:3], (b"s", system), *stored[3:]]
    assert find_edit(with_system, [question, answer, result, hint, end]) is None
    edited = [question, answer, result, system, message("user", "2"), end]
    assert find_edit(stored, edited) == (bytes([1]), 2)


def reminder(text):
    return f"<system-reminder>{text}</system-reminder>"


PNG = Image(Inline("iVBORw0KGgo=", "image/png"))
OTHER_PNG = Image(Inline("iVBORw0KGgp=", "image/png"))

SAME_OPENING = [
    ([["fix it"]], [["fix  it\n"]]),  # whitespace
    ([[reminder("Monday"), "fix it"]], [[reminder("Tuesday"), "fix it"]]),
    ([[reminder("Monday"), "fix it"]], [["fix it"]]),  # a session file has no reminders
    ([["fix it"]], [["fix it", reminder("a file changed")]]),
    ([[reminder("Monday") + "fix it"]], [[reminder("Tuesday") + "\nfix it"]]),  # in one text
    (
        [["<environment_context>\n<cwd>/a</cwd>\n</environment_context>"], ["fix it"]],
        [["<environment_context>\n<cwd>/b</cwd>\n</environment_context>"], ["fix it"]],
    ),
    (
        [["# AGENTS.md instructions for /a\n\n<INSTRUCTIONS>\nold\n</INSTRUCTIONS>"], ["fix it"]],
        [["fix it"]],
    ),
    ([["Today is Monday.", "fix it"]], [["Today is Tuesday.", "fix it"]]),  # an unknown client
    ([["Today is Monday."], ["fix it"]], [["Today is Tuesday."], ["fix it"]]),
    ([["Today is Monday."], ["fix it"]], [["fix it"]]),
    ([["Today is Monday.", "fix ", "it"]], [["Today is Monday.fix it"]]),  # grouped differently
    ([[reminder("Monday")]], [[reminder("Tuesday")]]),  # nothing was typed
    ([[PNG, "fix it"]], [[reminder("Monday")], [PNG, "fix it"]]),
    (
        [["<task>fix it</task>", "<environment_details>1 pm</environment_details>"]],
        [["<task>fix it</task>", "<environment_details>2 pm</environment_details>"]],
    ),
]
EDITED_OPENING = [
    ([["fix it"]], [["leave it"]]),
    ([["fix it"]], [["do not fix it"]]),
    ([[reminder("Monday"), "fix it"]], [[reminder("Monday"), "leave it"]]),
    ([[reminder("Monday"), "fix it"]], [["leave it"]]),
    ([[reminder("Monday") + "fix it"]], [[reminder("Tuesday") + "leave it"]]),
    ([["Today is Monday.", "fix it"]], [["Today is Monday.", "leave it"]]),
    ([["Today is Monday."], ["fix it"]], [["Today is Monday."], ["leave it"]]),
    ([["Today is Monday. fix it"]], [["Today is Tuesday. fix it"]]),  # it may have been typed
    ([["fix it"]], [["fix it", "but ask first"]]),
    ([[PNG, "fix it"]], [[OTHER_PNG, "fix it"]]),
    ([[PNG, "fix it"]], [["fix it"]]),
    (
        [["<command-name>/fix</command-name>\n<command-args>it</command-args>"]],
        [["<command-name>/fix</command-name>\n<command-args>that</command-args>"]],
    ),
    (
        [["<task>fix it</task>", "<environment_details>1 pm</environment_details>"]],
        [["<task>leave it</task>", "<environment_details>1 pm</environment_details>"]],
    ),
]


@pytest.mark.parametrize(
    ("stored", "sent", "is_edit"),
    [(*row, False) for row in SAME_OPENING] + [(*row, True) for row in EDITED_OPENING],
)
def test_the_first_turn_is_compared_by_what_the_person_typed(stored, sent, is_edit):
    rest = [message("assistant", CALL), message("tool", ToolResult("call_1", (Text("found"),)))]
    rest += [message("assistant", "done")]
    before, after = ([message("user", *blocks) for blocks in turn] for turn in (stored, sent))
    ids = [(bytes([number]), each) for number, each in enumerate([*before, *rest])]
    assert find_edit(ids, [*after, *rest]) == ((None, 0) if is_edit else None)
    both = (len(before) + len(rest), len(after) + len(rest))
    assert align_turns([*before, *rest], [*after, *rest]) == ((0, 0) if is_edit else both)


@pytest.mark.parametrize(("first", "length"), [("all", 0), ("typed", 2), ("ignored", 2)])
def test_how_much_of_the_first_turn_is_compared(first, length):
    """Without a call id, the text of an unknown client must be equal too."""
    answer = message("assistant", "done")
    stored, sent = message("user", "Monday", "fix it"), message("user", "Tuesday", "fix it")
    assert align_turns([stored, answer], [sent, answer], first=first) == (length, length)
    known = [message("user", reminder(day), "fix it") for day in ("Monday", "Tuesday")]
    assert align_turns([known[0], answer], [known[1], answer], first=first) == (2, 2)
    other = message("user", "Monday", "leave it")
    assert align_turns([stored, answer], [other, answer], first=first)[0] == (
        2 if first == "ignored" else 0
    )
