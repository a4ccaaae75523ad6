"""`note=` is the commit note of every method that takes one; `message=` is its alias."""

from collections.abc import Callable

import pytest

import weft
from weft.errors import WrongValue
from weft.model import Message, Text, ToolResult

Write = Callable[..., object]


def edited(t: weft.Thread, **options: str) -> object:
    return t.edit(t.compile().ids[0], "other", **options)  # type: ignore[call-overload]


def merged(t: weft.Thread, **options: str) -> object:
    t.branch("side")
    t.switch("side")
    t.user("there")
    t.switch("main")
    t.user("here")
    return t.merge("side", **options)  # type: ignore[call-overload]


def compacted(t: weft.Thread, **options: str) -> object:
    result = t.compact([{"summary": "short"}], **options)  # type: ignore[call-overload]
    return t.show(result.commit or "")


def reverted(t: weft.Thread, **options: str) -> object:
    return t.revert(t.edit(t.compile().ids[0], "x"), **options)  # type: ignore[call-overload]


WRITES: dict[str, Write] = {
    "commit": lambda t, **o: t.commit({"content_type": "output", "text": "done"}, **o),
    "system": lambda t, **o: t.system("be kind", **o),
    "user": lambda t, **o: t.user("hello", **o),
    "assistant": lambda t, **o: t.assistant("hello", **o),
    "tool_result": lambda t, **o: t.tool_result("c1", "found", **o),
    "tool_results": lambda t, **o: t.tool_results([ToolResult("c1", (Text("x"),))], **o),
    "commit_message": lambda t, **o: t.commit_message(Message("user", (Text("x"),)), **o),
    "adopt": lambda t, **o: t.adopt([Message("user", (Text("sum"),))], summary=0, **o),
    "edit": edited,
    "merge": merged,
    "compact": compacted,
    "revert": reverted,
}


@pytest.fixture
def thread() -> weft.Thread:
    t = weft.open(checkpoints=True)
    t.user("first")
    t.assistant("second")
    return t


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("argument", ["note", "message"])
def test_the_note_is_stored(thread: weft.Thread, name: str, argument: str) -> None:
    info = WRITES[name](thread, **{argument: "because"})
    assert isinstance(info, weft.CommitInfo)
    assert info.message == "because"


@pytest.mark.parametrize("name", WRITES)
def test_a_note_and_its_alias_together_are_refused(thread: weft.Thread, name: str) -> None:
    before = thread.head
    with pytest.raises(WrongValue, match=r"message is an alias of `note`: pass only one of them"):
        WRITES[name](thread, note="because", message="because")
    if name not in ("merge", "revert"):  # these two write commits of their own first
        assert thread.head == before


@pytest.mark.parametrize("argument", ["note", "message"])
def test_a_note_that_is_not_text_is_refused(thread: weft.Thread, argument: str) -> None:
    with pytest.raises(WrongValue, match=f"{argument} must be a string"):
        WRITES["user"](thread, **{argument: 5})


def test_the_second_argument_of_commit_is_the_note(thread: weft.Thread) -> None:
    assert thread.commit({"content_type": "output", "text": "done"}, "because").message == "because"


def test_an_empty_note_stays_empty(thread: weft.Thread) -> None:
    assert thread.user("hello", note="").message == ""
