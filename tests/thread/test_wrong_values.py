"""A wrong type is refused with the name of the argument, and nothing is stored."""

import math
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.errors import StoreError, ThreadError, WrongValue
from weft.model import Message, Text, ToolCall, ToolResult
from weft.thread import (
    ArtifactContent,
    DialogueContent,
    FreeformContent,
    InstructionContent,
    OutputContent,
    ReasoningContent,
    SessionContent,
    ToolIOContent,
)

Verb = Callable[[Any], Any]

WRITES: dict[str, tuple[str, Verb]] = {
    "user number": ("text", lambda t: t.user(5)),
    "user nothing": ("text", lambda t: t.user(None)),
    "user list": ("text", lambda t: t.user([{"type": "text", "text": "x"}])),
    "user bytes": ("text", lambda t: t.user(b"x")),
    "user surrogate": ("text", lambda t: t.user("a\ud800b")),
    "system nothing": ("text", lambda t: t.system(None)),
    "system surrogate": ("text", lambda t: t.system("\udfff")),
    "assistant surrogate": ("text", lambda t: t.assistant("\udfff")),
    "name": ("name", lambda t: t.user("x", name=5)),
    "assistant name": ("name", lambda t: t.assistant("x", name=5)),
    "reminder": ("reminder", lambda t: t.user("x", reminder=5)),
    "note": ("message", lambda t: t.user("x", message=5)),
    "note is a flag": ("message", lambda t: t.user("x", message=True)),
    "note surrogate": ("note", lambda t: t.user("x", message="\ud800")),
    "metadata list": ("metadata", lambda t: t.user("x", metadata=[1])),
    "metadata nan": ("metadata.a", lambda t: t.user("x", metadata={"a": math.nan})),
    "metadata inf deep": (
        "metadata.a[0].b",
        lambda t: t.user("x", metadata={"a": [{"b": math.inf}]}),
    ),
    "metadata bytes": ("metadata.a", lambda t: t.user("x", metadata={"a": b"x"})),
    "metadata object": ("metadata.a", lambda t: t.user("x", metadata={"a": object()})),
    "metadata key": ("metadata", lambda t: t.user("x", metadata={1: 2})),
    "edit number": ("text", lambda t: t.edit(t.compile().ids[0], 5)),
    "edit nothing": ("text", lambda t: t.edit(t.compile().ids[0], None)),
    "edit bytes": ("text", lambda t: t.edit(t.compile().ids[0], b"x")),
    "edit surrogate": ("text", lambda t: t.edit(t.compile().ids[0], "\ud800")),
    "edit metadata": ("metadata", lambda t: t.edit(t.compile().ids[0], "y", metadata=[1])),
    "result object": ("content", lambda t: t.tool_result("c", {"a": 1})),
    "result number": ("content", lambda t: t.tool_result("c", 5)),
    "result blocks": ("blocks", lambda t: t.tool_result("c", [{"a": 1}])),
    "result without call": ("call_id", lambda t: t.tool_result(None, "x")),
    "is_error": ("is_error", lambda t: t.tool_result("c", "x", is_error="no")),
    "results text": ("text", lambda t: t.tool_results([ToolResult("c", (Text("x"),))], text=5)),
    "dialogue text": ("text", lambda t: t.commit(DialogueContent(role="user", text=5))),
    "dialogue role": ("role", lambda t: t.commit(DialogueContent(role=5, text="x"))),
    "dialogue bytes": ("text", lambda t: t.commit(DialogueContent(role="user", text=b"x"))),
    "instruction": ("text", lambda t: t.commit(InstructionContent(5))),
    "reasoning": ("text", lambda t: t.commit(ReasoningContent(5))),
    "reasoning format": ("format", lambda t: t.commit(ReasoningContent("x", 5))),
    "artifact": ("content", lambda t: t.commit(ArtifactContent(5))),
    "output": ("text", lambda t: t.commit(OutputContent(None))),
    "session": ("summary", lambda t: t.commit(SessionContent(5))),
    "session list": ("decisions", lambda t: t.commit(SessionContent("x", decisions=(5,)))),
    "tool_io name": ("tool_name", lambda t: t.commit(ToolIOContent(5, "x"))),
    "tool_io way": ("direction", lambda t: t.commit(ToolIOContent("f", "x", "sideways"))),
    "tool_io call": ("call_id", lambda t: t.commit(ToolIOContent("f", "x", call_id=5))),
    "freeform nan": ("payload", lambda t: t.commit(FreeformContent({"a": math.nan}))),
    "freeform bytes": ("payload", lambda t: t.commit(FreeformContent(b"x"))),
    "freeform object": ("freeform", lambda t: t.commit(FreeformContent(object()))),
    "priority": ("priority", lambda t: t.commit(DialogueContent("user", "x"), priority="zzz")),
    "annotate": ("priority", lambda t: t.annotate(t.compile().ids[0], "zzz")),
    "message text": ("text", lambda t: t.commit_message(Message("user", (Text(5),)))),
    "message blocks": ("blocks", lambda t: t.commit_message(Message("user", (5,)))),
    "message call": (
        "arguments",
        lambda t: t.commit_message(Message("assistant", (ToolCall("c", "f", {"a": 1}),))),
    ),
    "message kind": ("kind", lambda t: t.commit_message(Message("user", (Text("x"),)), kind=5)),
    "generation": ("generation_config", lambda t: t.assistant("x", generation_config=[1])),
    "directive": ("text", lambda t: t.directive("n", 5)),
    "directive name": ("name", lambda t: t.directive(5, "x")),
    "note text": ("text", lambda t: t.note(t.head, 5)),
}


@pytest.mark.parametrize(("field", "verb"), WRITES.values(), ids=WRITES.keys())
def test_a_wrong_type_is_refused_by_name_and_nothing_is_committed(
    field: str, verb: Verb, tmp_path: Path
) -> None:
    with weft.open(tmp_path / "a.db") as t:
        t.user("first words")
        before = t.stats().commits
        with pytest.raises(WrongValue) as refused:
            verb(t)
        assert field in str(refused.value)
        assert t.stats().commits == before
        assert [hit.text for hit in t.search("words")] == ["first words"]
    with weft.open(tmp_path / "a.db") as again:
        again.user("and on")
        assert len(again.compile()) == 2


READS: dict[str, tuple[str, Verb]] = {
    "branch": ("branch", lambda t: t.branch(5)),
    "branch line": ("branch", lambda t: t.branch("a\nb")),
    "branch nul": ("branch", lambda t: t.branch("a\0b")),
    "tag": ("tag", lambda t: t.tag(5)),
    "pin": ("id", lambda t: t.pin(5)),
    "search": ("query", lambda t: t.search(5)),
    "search limit": ("limit", lambda t: t.search("x", limit=-1)),
    "recall": ("wanted", lambda t: t.recall(5)),
    "log": ("limit", lambda t: t.log(-1)),
    "compile last": ("last", lambda t: t.compile(last=-1)),
    "compile at": ("at", lambda t: t.compile([])),
    "open": ("target", lambda _: weft.open(5)),
    "open thread": ("thread", lambda _: weft.open(thread=5)),
    "open thread line": ("thread", lambda _: weft.open(thread="a\nb")),
    "open thread nul": ("thread", lambda _: weft.open(thread="a\0b")),
    "open branch": ("branch", lambda _: weft.open(branch="a\nb")),
    "threads": ("target", lambda _: weft.threads(5)),
}


@pytest.mark.parametrize(("field", "verb"), READS.values(), ids=READS.keys())
def test_a_wrong_argument_is_named(field: str, verb: Verb) -> None:
    t: Any = weft.open()
    t.user("x")
    with pytest.raises(ThreadError, match=field):
        verb(t)


def test_listing_threads_creates_no_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store"):
        weft.threads(tmp_path / "nope.db")
    assert not (tmp_path / "nope.db").exists()


def test_a_database_of_another_program_is_not_written_into(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE customers (name TEXT)")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not a Weft store"):
        weft.open(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\v", "\f", "\t", "\n", "\r\n"])
def test_H3_a_note_is_one_line_for_any_line_break(sign: str) -> None:
    assert weft.open().user(f"a{sign}b").message == "dialogue: a b"


@pytest.mark.parametrize(
    ("tool", "error"),
    [
        ({"x": 1}, "x"),
        ({"google_search": {}, "x": "y"}, "x"),
        ({"functionDeclarations": {"name": "f"}}, "functionDeclarations"),
        ({}, "name"),
        ({"type": 5}, "type"),
        ({"type": "function"}, "name"),
        ({"type": "function", "function": 5}, "name"),
        ({"name": "f", "parameters": 5}, "parameters"),
        ({"name": "f", "input_schema": "x"}, "input_schema"),
        ({"name": "f", "description": ["x"]}, "description"),
        ({"name": 7}, "name"),
        (None, "name"),
        (5, "name"),
    ],
)
def test_a_value_that_is_not_a_tool_is_refused_with_its_index(tool, error):
    with weft.open() as t:
        with pytest.raises(weft.ThreadError, match=rf"tools\[1\].*{error}"):
            t.setup(tools=[{"name": "fine"}, tool])
        assert t.head is None


@pytest.mark.parametrize(
    "tool",
    [
        {"google_search": {}},
        {"googleSearch": {}, "urlContext": {}},
        {"code_execution": None, "google_maps": {}},
        {"functionDeclarations": [{"name": "f"}]},
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "mcp", "server_label": "x", "server_url": "https://example.com"},
        {"type": "custom", "custom": {"name": "f"}},
        {"name": "f", "description": None, "parameters": None},
    ],
)
def test_tools_of_all_vendors_are_accepted(tool):
    with weft.open() as t:
        t.setup(tools=[tool])
        assert t.compile().tools
