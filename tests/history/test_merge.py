"""Merges and rewrites as tables: a letter is a line and its slot, its case is the version."""

from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from weft.errors import Damaged
from weft.history import (
    Change,
    Rewrite,
    Row,
    apply_rewrite,
    edit_text,
    merge3,
    merge_base,
    plan_redo,
    plan_rewrite,
    plan_undo,
)
from weft.ids import object_id
from weft.model import (
    Checkpoint,
    Image,
    Message,
    Redacted,
    Reminder,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Url,
)
from weft.store import CommitRecord, Landing, MemoryStore, Operation

PRIORITY = {"-": "skip", "!": "pinned"}


def rows(line: str) -> list[Row]:
    """`"a B! c- S"`: the slot is the letter's lower case, `S` and `T` are summaries."""
    result: list[Row] = []
    for word in line.split():
        name = word[0]
        priority = PRIORITY.get(word[1:], "normal")
        kind = "summary" if name in "STUV" else "dialogue"
        message = Message("user", (Text(name),))
        result.append(Row(name.lower().encode(), message, priority, kind))  # pyright: ignore
    return result


def line(merged: Sequence[Row]) -> str:
    sign = {"skip": "-", "pinned": "!"}
    return " ".join(row.message.text + sign.get(row.priority, "") for row in merged)


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [
        ("a b c", "a b c", "a b c d", "a b c d"),  # only they added a row
        ("a b c", "a b c d", "a b c", "a b c d"),  # only we did
        ("a", "a b", "a c", "a b c"),  # ours, then theirs
        ("a b c", "S c", "a b c d", "S c d"),  # we compacted, they went on
        ("a b c", "a b c d", "S c", "S c d"),  # they compacted, we went on
        ("a b c", "S", "a b c d e", "S d e"),
        ("a b c", "S d", "a b c e", "S d e"),
        ("a b c d", "a S d", "a b c d x", "a S d x"),
        ("a b", "A b", "a b", "A b"),  # one edit
        ("a b", "A b", "a B", "A B"),  # two edits of two lines
        ("a b", "A b", "A b", "A b"),  # the same edit
        ("a b", "A b", "a! b", "A! b"),  # an edit and a pin are two things
        ("a b", "a- b", "a b c", "a- b c"),
        ("a b", "a- b", "b", "b"),  # hidden here, folded there
        ("a b", "x a b", "a b", "x a b"),  # something put in front
        ("a b", "x a b", "y a b", "x y a b"),
        ("", "a", "b", "a b"),  # nothing in common
        ("a b c d", "a S d e", "a b c d f", "a S d e f"),
        ("a S c", "a S c d", "a x y c", "a x y c d"),  # a fold taken back
    ],
)
def test_merge3(base: str, ours: str, theirs: str, merged: str) -> None:
    result = merge3(rows(base), rows(ours), rows(theirs))
    assert line(result.rows) == merged
    assert result.conflicts == ()


def edited(text: str) -> Row:
    return Row(b"a", Message("user", (Text(text),)))


def test_one_line_edited_on_both_sides_is_a_conflict_with_both_versions() -> None:
    base, ours, theirs = [edited("a")], [edited("x")], [edited("y")]
    result = merge3(base, ours, theirs)
    (conflict,) = result.conflicts
    assert (conflict.kind, conflict.ours, conflict.theirs) == ("edited", ours[0], theirs[0])
    texts: dict[str, str] = {}
    for choice in ("ours", "theirs", "concat", "new text"):
        merged = merge3(base, ours, theirs, lambda _, choice=choice: choice)
        texts[choice] = merged.rows[0].message.text
    assert texts == {"ours": "x", "theirs": "y", "concat": "x\ny", "new text": "new text"}


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "kind", "resolved"),
    [
        ("a b", "S b", "A b", "folded", {"ours": "S b", "theirs": "S A b", "concat": "S A b"}),
        ("a b", "a- b", "A b", "skipped", {"ours": "a- b", "theirs": "A b", "concat": "A b"}),
        ("a b c", "S c", "T", "folded", {"ours": "S c", "theirs": "T", "concat": "S T"}),
        ("a b c", "S", "a T", "folded", {"ours": "S", "theirs": "a T", "concat": "S T"}),
    ],
)
def test_conflicts_and_their_resolutions(
    base: str, ours: str, theirs: str, kind: str, resolved: dict[str, str]
) -> None:
    sides = rows(base), rows(ours), rows(theirs)
    assert [conflict.kind for conflict in merge3(*sides).conflicts] == [kind]
    for choice, merged in resolved.items():
        result = merge3(*sides, lambda _, choice=choice: choice)
        assert line(result.rows) == merged
        assert result.conflicts == ()


LETTERS = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)


@given(LETTERS, LETTERS, st.data())
def test_a_planned_rewrite_gives_exactly_the_new_list(
    old: list[str], new: list[str], data: st.DataObject
) -> None:
    before = rows(" ".join(old))
    after = rows(" ".join(data.draw(st.sampled_from([c, c.upper(), c + "!"])) for c in new))
    planned = plan_rewrite(before, after)
    assert apply_rewrite(before, planned.op, planned.messages, b"c") == after
    assert bool(planned) == (before != after)


def test_new_lines_get_slots_of_the_commit() -> None:
    new = [Row(None, Message("user", (Text("x"),))), Row(None, Message("user", (Text("y"),)))]
    planned = plan_rewrite(rows("a"), [*rows("a"), *new])
    rewritten = apply_rewrite(rows("a"), planned.op, planned.messages, b"commit")
    assert [row.id for row in rewritten[1:]] == [
        object_id("slot", b"commit" + number.to_bytes(4, "big")) for number in (0, 1)
    ]


def test_a_rewrite_is_as_large_as_its_change() -> None:
    old = [Row(bytes([n // 256, n % 256]), Message("user", (Text(str(n)),))) for n in range(2000)]
    summary = Row(None, Message("assistant", (Text("S"),)), kind="summary")
    planned = plan_rewrite(old, [old[0], summary, *old[1500:]])
    assert planned.op.drop == ((old[1].id, old[1499].id),)
    assert len(planned.messages) == 1


def test_a_rewrite_of_a_missing_line_is_damage() -> None:
    with pytest.raises(Damaged):
        apply_rewrite(rows("a"), Rewrite(change=(Change(b"zz", priority="skip"),)), [], b"c")


CALL, RESULT = ToolCall("c", "f", "{}"), ToolResult("c", (Text("4"),))
IMAGE, MARK = Image(Url("http://x")), Checkpoint("abcdef")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((Text("old"),), (Text("new"),)),
        ((Text("a"), Text("b")), (Text("new"),)),  # all the words are replaced
        ((Text("old"), CALL), (Text("new"), CALL)),
        ((CALL,), (Text("new"), CALL)),
        ((IMAGE, Text("old")), (IMAGE, Text("new"))),
        ((IMAGE,), (IMAGE, Text("new"))),
        ((Thinking("t", "s"), Text("old"), CALL), (Text("new"), CALL)),
        ((Redacted("r"), CALL), (Text("new"), CALL)),
        ((Text("old"), Reminder("r"), MARK), (Text("new"), Reminder("r"), MARK)),
        ((RESULT, MARK), (ToolResult("c", (Text("new"),)), MARK)),
        ((RESULT, Text("old")), (RESULT, Text("new"))),
    ],
)
def test_an_edit_replaces_only_text_and_thinking(before: tuple, after: tuple) -> None:
    assert edit_text(Message("user", before), "new").blocks == after


@pytest.mark.parametrize(
    ("log", "undo", "redo"),
    [
        ("", None, None),
        ("a", "a", None),
        ("a b", "b", None),
        ("a b U", "a", "U"),
        ("a b U U", None, "U"),
        ("a b U R", "b", None),
        ("a b U U R", "a", "U"),
        ("a U c", "c", None),
        ("a U c U", None, "U"),
        ("a b U c U", "a", "U"),
        ("a b U R U", "a", "U"),
    ],
)
def test_undo_and_redo_read_the_log(log: str, undo: str | None, redo: str | None) -> None:
    verbs = {"U": "undo", "R": "redo"}
    operations = [
        Operation(n, verbs.get(word, word), "main", None, None, None, 0.0)
        for n, word in enumerate(log.split())
    ][::-1]
    to_undo = plan_undo(operations, "main", lambda _: False)
    to_redo = plan_redo(operations, "main", lambda _: False)
    assert [operation.verb for operation in to_undo] == ([undo] if undo else [])
    assert [operation.verb for operation in to_redo] == ([verbs["U"]] if redo else [])


@pytest.mark.parametrize(
    ("graph", "ours", "theirs", "base"),
    [
        ([[1], [2, 1], [3, 1]], 2, 3, 1),
        ([[1], [2, 1], [3, 2]], 3, 2, 2),  # an ancestor is the base
        ([[1], [2]], 1, 2, None),  # nothing shared
        ([[1], [2, 1], [3, 1], [4, 2, 3], [5, 3]], 4, 5, 3),  # through a second parent
        ([[1], [2, 1], [3, 2], [4, 3], [5, 1], [6, 5, 4], [7, 4]], 6, 7, 4),
    ],
)
def test_merge_base(graph: list[list[int]], ours: int, theirs: int, base: int | None) -> None:
    store = MemoryStore()
    store.ensure_thread("t", created=0.0)
    for number, *parents in graph:
        record = CommitRecord(bytes([number]), tuple(bytes([p]) for p in parents), "x", (), b"", 0)
        landing = Landing("x", str(number), None, record.id, 0.0, commits=(record,))
        store.land("t", landing)
    merged_at = merge_base(store, "t", bytes([ours]), bytes([theirs]))
    assert merged_at == (None if base is None else bytes([base]))
