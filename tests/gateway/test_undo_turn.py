"""Undo of a turn in threads that the gateway recorded.

The gateway writes each request as one operation, however many messages it brings.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import orjson
import pytest

import weft
from servers import post
from serving import serving
from weft.gateway import (
    AnswerRecord,
    Caller,
    DigestCache,
    FailureRecord,
    RecordingContext,
    RequestRecord,
    record_answer,
    record_failure,
    record_request,
)
from weft.model import ApiError, Image, Inline, Message, Text, Tool, ToolCall, ToolResult
from weft.store import Store, open_store
from weft.thread import SentBodyCache, Thread, Undone, fsck

RULES = Message("system", (Text("rules"),))
FAILED = ApiError("overloaded", "overloaded", 529)
_numbers = count()


@pytest.fixture
def store(store: Store) -> Iterator[Store]:
    yield store
    assert fsck(store).flaws == ()


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def system(text: str) -> Message:
    return Message("system", (Text(text),))


def calls(*ids: str) -> Message:
    return Message("assistant", tuple(ToolCall(id, "read", "{}") for id in ids))


def results(*ids: str, text: str = "") -> Message:
    blocks = tuple(ToolResult(id, (Text(f"result {id}"),)) for id in ids)
    return Message("user", (*blocks, Text(text)) if text else blocks)


class Client:
    """A client of the gateway that sends its whole conversation with each request."""

    def __init__(self, store: Store, *earlier: Message) -> None:
        self.store = store
        self.messages = [RULES, *earlier]
        self.tools = (Tool("read"),)
        self.context = RecordingContext(DigestCache(), SentBodyCache(), ())

    def ask(self, *messages: Message) -> Any:
        self.messages += messages
        time = 1e9 + next(_numbers)
        record = RequestRecord(
            f"x{time}", time, Caller().scope, "s", tuple(self.messages), self.tools
        )
        return record_request(self.store, record, self.context).location

    def send(self, *messages: Message, answer: str | Message) -> None:
        location = self.ask(*messages)
        message = Message("assistant", (Text(answer),)) if isinstance(answer, str) else answer
        time = 1e9 + next(_numbers)
        record = AnswerRecord(location.exchange, time, message, None, None, location)
        record_answer(self.store, record, self.context)
        self.messages.append(message)

    def fail(self, *messages: Message) -> None:
        location = self.ask(*messages)
        time = 1e9 + next(_numbers)
        record = FailureRecord(location.exchange, time, FAILED, None, location)
        record_failure(self.store, record, self.context)

    def go_back(self, text: str) -> None:
        """Return to the state before the question with this text."""
        texts = [message.text for message in self.messages]
        del self.messages[texts.index(text) :]


def opened(store: Store, branch: str | None = None) -> Thread:
    return weft.open(store, "s", branch=branch)


def texts_of(thread: Thread) -> list[str]:
    return [message.text for message in thread.compile().messages]


def question_of(undone: Undone) -> str:
    assert undone.commit is not None
    return undone.commit.text


def begin(store: Store) -> Client:
    client = Client(store)
    client.send(user("q1"), answer="a1")
    return client


def plain(client: Client) -> None:
    client.send(user("q2"), answer="a2")


def later_system_messages(client: Client) -> None:  # as Claude Code sends them
    client.send(user("q2"), system("reminder"), answer=calls("c1"))
    client.send(results("c1"), system("another"), answer="a2")


def system_message_before_the_question(client: Client) -> None:
    client.send(system("reminder"), user("q2"), answer="a2")


def tool_call(client: Client) -> None:
    client.send(user("q2"), answer=calls("c1"))
    client.send(results("c1"), answer="a2")


def parallel_calls(client: Client) -> None:
    client.send(user("q2"), answer=calls("c1", "c2"))
    client.send(results("c1", "c2"), answer="a2")


def parallel_calls_with_a_message_for_each_result(client: Client) -> None:  # Chat and Gemini
    client.send(user("q2"), answer=calls("c1", "c2"))
    client.send(results("c1"), results("c2"), answer="a2")


def several_tool_rounds(client: Client) -> None:
    client.send(user("q2"), answer=calls("c1"))
    for number in range(2, 5):
        client.send(results(f"c{number - 1}"), answer=calls(f"c{number}"))
    client.send(results("c4"), answer="a2")


def unfinished_tool_round(client: Client) -> None:
    client.send(user("q2"), answer=calls("c1"))


def text_beside_a_result(client: Client) -> None:  # typed while the tool ran
    client.send(user("q2"), answer=calls("c1"))
    client.send(results("c1", text="hurry up"), answer="a2")


def reminder_after_a_result(client: Client) -> None:
    client.send(user("q2"), answer=calls("c1"))
    reminder = user("<system-reminder>be brief</system-reminder>")
    client.send(results("c1"), reminder, answer="a2")


def failed_attempt(client: Client) -> None:
    client.fail(user("q2"))


def answered_after_a_failed_attempt(client: Client) -> None:
    client.fail(user("q2"))
    client.send(answer="a2")


def failed_attempt_in_a_tool_round(client: Client) -> None:
    client.send(user("q2"), answer=calls("c1"))
    client.fail(results("c1"))


def new_tools(client: Client) -> None:
    client.tools = (Tool("read"), Tool("write"))
    client.send(user("q2"), answer="a2")


def new_tools_in_a_tool_round(client: Client) -> None:
    client.send(user("q2"), answer=calls("c1"))
    client.tools = (Tool("read"), Tool("write"))
    client.send(results("c1"), answer="a2")


def two_user_messages(client: Client) -> None:
    client.send(user("<command-name>/x</command-name>"), user("q2"), answer="a2")


def picture(client: Client) -> None:
    image = Image(Inline("AAAA", "image/png"))
    client.send(Message("user", (image,)), answer="a2")


TURNS = [
    plain,
    later_system_messages,
    system_message_before_the_question,
    tool_call,
    parallel_calls,
    parallel_calls_with_a_message_for_each_result,
    several_tool_rounds,
    unfinished_tool_round,
    text_beside_a_result,
    reminder_after_a_result,
    failed_attempt,
    answered_after_a_failed_attempt,
    failed_attempt_in_a_tool_round,
    new_tools,
    new_tools_in_a_tool_round,
    two_user_messages,
    picture,
]


@pytest.mark.parametrize("turn", TURNS)
def test_the_whole_turn_is_undone_and_redone(store: Store, turn: Callable[[Client], None]) -> None:
    client = begin(store)
    first = opened(store).head
    turn(client)
    t = opened(store)
    last, rows = t.head, t.compile().rows
    undone = t.undo(turn=True)
    assert (t.head, undone.head, undone.verb) == (first, first, "turn")
    assert question_of(undone) == ("" if turn is picture else "q2")
    for redo in (t.redo, lambda: t.redo(turn=True)):
        redone = redo()
        assert (t.head, redone.head, t.compile().rows) == (last, last, rows)
        t.undo(turn=True)
        assert t.head == first
    assert question_of(t.undo(turn=True)) == "q1"
    assert t.head is None
    with pytest.raises(weft.ThreadError, match="no turn to undo on branch 'main'"):
        t.undo(turn=True)
    assert t.redo(turn=True).head == first
    assert t.redo(turn=True).head == last
    assert t.compile().rows == rows
    assert list(t.branches()) == ["main"]


@pytest.mark.parametrize("turn", TURNS)
def test_a_turn_of_the_first_request_is_undone_alone(
    store: Store, turn: Callable[[Client], None]
) -> None:
    """The client began elsewhere: its first request has the earlier turns too."""
    earlier = Client(store, user("q0"), Message("assistant", (Text("a0"),)))
    turn(earlier)
    t = opened(store)
    rows = t.compile().rows
    t.undo(turn=True)
    assert texts_of(t) == ["rules", "q0", "a0"]
    t.redo()
    assert t.compile().rows == rows
    t.undo(turn=True)
    t.undo(turn=True)
    assert texts_of(t) == []
    t.redo(turn=True)
    assert texts_of(t) == ["rules", "q0", "a0"]
    t.user("instead")
    assert t.undo(turn=True).steps == 1
    assert texts_of(t) == ["rules", "q0", "a0"]
    t.undo()
    assert texts_of(t) == []
    t.redo()
    t.redo()
    assert texts_of(t) == ["rules", "q0", "a0", "instead"]


def test_an_edited_question_does_not_bring_back_what_it_replaced(store: Store) -> None:
    client = begin(store)
    first = opened(store).head
    for number in (2, 3):
        client.send(user(f"q{number}"), answer=f"a{number}")
    abandoned = opened(store).head
    client.go_back("q2")
    client.send(user("q2 edited"), answer="a2 edited")
    client.send(user("q3 edited"), answer="a3 edited")
    t = opened(store)
    edited = texts_of(t)
    t.undo(turn=True)
    assert texts_of(t) == ["rules", "q1", "a1", "q2 edited", "a2 edited"]
    assert question_of(t.undo(turn=True)) == "q2 edited"
    assert t.head == first
    assert opened(store, "before-edit-of-turn-2").head == abandoned
    t.undo(turn=True)
    assert texts_of(t) == []
    assert opened(store, "before-edit-of-turn-2").head == abandoned
    for expected in (3, 5, 7):
        t.redo(turn=True)
        assert texts_of(t) == edited[:expected]
    t.undo(turn=True)
    t.undo(turn=True)
    opened(store).redo()  # one step, by another handle
    assert texts_of(t) == edited[:5]


def test_another_answer_to_the_same_question(store: Store) -> None:
    client = begin(store)
    first = opened(store).head
    client.send(user("q2"), answer="a2")
    client.messages.pop()
    client.send(answer="a2 again")
    t = opened(store)
    assert texts_of(t) == ["rules", "q1", "a1", "q2", "a2 again"]
    branches = t.branches()
    t.undo(turn=True)
    assert t.head == first
    assert t.branches().keys() == branches.keys()
    t.redo()
    assert t.branches() == branches
    t.undo(turn=True)
    t.undo(turn=True)
    assert texts_of(t) == []


def test_a_client_that_returned_to_a_line_it_had_left(store: Store) -> None:
    client = begin(store)
    first = opened(store).head
    client.send(user("q2"), answer="a2")
    left = list(client.messages)
    client.go_back("q2")
    client.send(user("q2 edited"), answer="a2 edited")
    main = opened(store).head
    client.messages = left
    client.send(user("q3"), answer="a3")
    t = opened(store)
    assert t.current == "before-edit-of-turn-2"
    for expected in (["rules", "q1", "a1", "q2", "a2"], ["rules", "q1", "a1"]):
        t.undo(turn=True)
        assert texts_of(t) == expected
    assert t.head == first
    assert (t.current, opened(store, "main").head) == ("before-edit-of-turn-2", main)
    t.redo(turn=True)
    t.redo(turn=True)
    assert texts_of(t)[-1] == "a3"


def test_the_client_continues_after_an_undone_turn(store: Store) -> None:
    client = begin(store)
    later_system_messages(client)
    t = opened(store)
    t.undo(turn=True)
    client.go_back("q2")
    client.send(user("q3"), answer="a3")
    assert texts_of(opened(store)) == ["rules", "q1", "a1", "q3", "a3"]
    assert list(t.branches()) == ["main"]
    t.undo(turn=True)
    assert texts_of(t) == ["rules", "q1", "a1"]


def test_the_page_undoes_and_redoes_a_turn_with_tool_calls(tmp_path: Any) -> None:
    store = open_store(tmp_path / "weft.db")
    client = begin(store)
    later_system_messages(client)
    rows = opened(store).compile().rows
    with serving(tmp_path, "--store", str(tmp_path / "weft.db")) as url:

        def change(verb: str) -> str:
            headers = {"origin": url, "x-weft": "1"}
            fields = {"thread": "s", "branch": "main", "turn": True}
            status, _, body = post(f"{url}/api/{verb}", fields, headers)
            assert status == 200, body
            return orjson.loads(body)["message"]

        assert change("undo") == "Undone: turn “q2”."
        assert texts_of(opened(store)) == ["rules", "q1", "a1"]
        assert change("redo") == "Redone: turn “q2”."
        assert opened(store).compile().rows == rows
    store.close()
