"""Views for the page: every kind of block has a part, and every change has two sides."""

import pytest

from weft.gateway import Change, change_json, excerpt, message_text, part_json, read_changes
from weft.history import Row
from weft.model import (
    Audio,
    Checkpoint,
    File,
    FileRef,
    Image,
    Inline,
    Message,
    Opaque,
    Redacted,
    Refusal,
    Reminder,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Url,
)
from weft.store import open_store
from weft.thread import open as open_thread


@pytest.mark.parametrize(
    ("block", "parts"),
    [
        (Text("**a**"), [{"type": "text", "text": "**a**", "html": "<p><strong>a</strong></p>\n"}]),
        (Text(""), []),
        (Refusal("no"), [{"type": "text", "text": "no", "html": "<p>no</p>\n"}]),
        (Thinking("hm", signature="s"), [{"type": "thinking", "text": "hm"}]),
        (Thinking("", signature="s"), []),
        (
            ToolCall("c", "add", '{"a": 1}'),
            [{"type": "call", "id": "c", "name": "add", "input": {"a": 1}}],
        ),
        (
            ToolCall("c", "add", "not json"),
            [{"type": "call", "id": "c", "name": "add", "input": "not json"}],
        ),
        (ToolCall("c", "add", ""), [{"type": "call", "id": "c", "name": "add", "input": {}}]),
        (
            ToolResult("c", (Text("a"), Image(Inline("aGk="))), is_error=True),
            [{"type": "result", "call_id": "c", "content": "a\n[image]", "is_error": True}],
        ),
        (Checkpoint("abc123"), [{"type": "checkpoint", "id": "abc123"}]),
        (Reminder("soon"), [{"type": "reminder", "text": "Reminder: soon"}]),
        (Redacted("x"), [{"type": "note", "text": "Encrypted thinking"}]),
        (Image(Url("https://x/y.png")), [{"type": "note", "text": "[image]"}]),
        (File(FileRef("f1")), [{"type": "note", "text": "[document]"}]),
        (Audio(Inline("aGk=")), [{"type": "note", "text": "[audio]"}]),
        (Opaque("anthropic", {"type": "new_thing"}), [{"type": "note", "text": "[new_thing]"}]),
        (Opaque("anthropic", {}), [{"type": "note", "text": "[block]"}]),
    ],
)
def test_every_block_has_a_part(block, parts):
    assert part_json(block) == parts


def row(name, words, priority="normal"):
    return Row(name.encode(), Message("user", (Text(words),)), priority)


def ids(rows):
    return "".join(row["id"] and bytes.fromhex(row["id"]).decode() for row in rows)


@pytest.mark.parametrize(
    ("before", "after", "removed", "added", "pins"),
    [
        ("abc", "abc", "", "", ""),
        ("abc", "ac", "b", "", ""),
        ("abcd", "aScd", "b", "S", ""),
        ("aPbc", "PSc", "ab", "S", "P"),  # a pin between the folded rows
        ("Pabc", "PSc", "ab", "S", ""),  # a pin that was never in danger
        ("", "a", "", "a", ""),
    ],
)
def test_a_change_has_two_sides_and_its_pins(before, after, removed, added, pins):
    def rows(names):
        return tuple(row(name, name, "pinned" if name == "P" else "normal") for name in names)

    change = change_json(Change(rows(before), rows(after)), lambda message: len(message.text))
    assert (ids(change["removed"]), ids(change["added"]), ids(change["pins"])) == (
        removed,
        added,
        pins,
    )
    assert (change["before"], change["after"]) == (len(before), len(after))


def test_an_edited_row_is_neither_new_nor_removed():
    change = Change((row("a", "old"),), (row("a", "new"),))
    written = change_json(change, lambda _: 1)
    assert (written["removed"], written["added"]) == ([], [])
    assert [(pair["old"]["excerpt"], pair["new"]["excerpt"]) for pair in written["reworded"]] == [
        ("old", "new")
    ]


def test_the_rows_of_the_head_equal_the_compiled_thread():
    store = open_store(None)
    thread = open_thread(store, "t")
    first = thread.user("one")
    thread.assistant("two")
    thread.edit(first, "uno")
    thread.user("three")
    head = store.read_ref("t", "main")
    view, changes = read_changes(store.walk("t", head))
    assert [row.message for row in view.rows] == list(thread.compile().messages)
    (change,) = changes.values()
    assert [(old.message.text, new.message.text) for old, new in change.reworded] == [
        ("one", "uno")
    ]


def test_a_message_has_a_short_preview():
    message = Message("assistant", (Text("look\nhere"), ToolCall("c", "add", '{"a":1}')))
    assert excerpt(message_text(message)) == 'look here `add` {"a":1}'
    assert len(excerpt("x" * 500)) == 120
    assert (
        excerpt("\x1b[32m3 passed\x1b[0m in **2** s, 2**10 and 3**4")
        == "3 passed in 2 s, 2**10 and 3**4"
    )
