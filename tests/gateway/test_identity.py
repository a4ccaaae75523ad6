"""Which thread a stateless request belongs to."""

import json
import random
import re
from contextlib import closing
from itertools import count

import msgspec
import pytest

import weft.thread
from claude_lines import SESSION, Session
from weft.cli import main
from weft.gateway import (
    AnswerRecord,
    Caller,
    Continuation,
    DigestCache,
    FailureRecord,
    RecordingContext,
    RequestLocation,
    RequestRecord,
    find_response,
    is_distinctive,
    is_retry,
    is_side_question,
    is_summary_request,
    read_hint,
    read_parent_hint,
    read_side_kind,
    record_answer,
    record_failure,
    record_request,
)
from weft.model import (
    ApiError,
    Message,
    Opaque,
    Origin,
    Params,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)
from weft.store import open_store
from weft.thread import SentBodyCache, fsck, undelete as undelete_thread

ME = Caller().scope
MAKER = Origin("anthropic", "up", "m")
BILLING = (re.compile("^x-anthropic-billing-header:"),)
FAILED = ApiError("overloaded", "overloaded", 529)
_numbers = count()


def dialogue(*texts):
    """Messages of the user and the assistant in turn."""
    roles = ("user", "assistant")
    return tuple(Message(roles[i % 2], (Text(text),)) for i, text in enumerate(texts))


def request(*texts, system=None, **more):
    lead = () if system is None else (Message("system", (Text(system),)),)
    return Request("m", (*lead, *dialogue(*texts)), **more)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request, tmp_path):
    targets = {"memory": None, "sqlite": tmp_path / "weft.db"}
    target = (
        targets[request.param] if request.param in targets else request.getfixturevalue("postgres")
    )
    opened = open_store(target)
    yield opened
    opened.close()


class Gateway:
    """Records exchanges of one caller as the gateway does; a new one has no memory."""

    def __init__(self, store, scope=ME):
        self.store, self.scope = store, scope
        self.context = RecordingContext(DigestCache(), SentBodyCache(), BILLING)

    def ask(self, req, *, hint=None, retry=False, exchange=None, maker=None, parent=None):
        record = RequestRecord(
            exchange or f"x{next(_numbers)}", 1e9 + next(_numbers), self.scope, hint,
            req.messages, req.tools, retry, is_side_question(req),
            is_summary_request=is_summary_request(req), kind=read_side_kind(req), parent=parent,
        )  # fmt: skip
        return record_request(self.store, record, self.context, maker)

    def reply(self, recorded, message, id=None):
        if isinstance(message, str):
            message = Message("assistant", (Text(message),))
        record = AnswerRecord(
            recorded.location.exchange, 1e9 + next(_numbers), message, id, None, recorded.location
        )
        return record_answer(self.store, record, self.context)

    def fail(self, recorded, partial=None):
        message = None if partial is None else Message("assistant", (Text(partial),))
        record = FailureRecord(
            recorded.location.exchange, 1e9 + next(_numbers), FAILED, message, recorded.location
        )
        return record_failure(self.store, record, self.context)

    def turn(self, req, reply, *, hint=None, id=None, parent=None):
        return self.reply(self.ask(req, hint=hint, parent=parent), reply, id)


@pytest.fixture
def gateway(store):
    return Gateway(store)


def texts(store, location):
    compiled = weft.thread.open(store, location.thread, branch=location.branch).compile()
    return [message.text for message in compiled.messages]


def branch_texts(store, thread):
    """The texts of every branch, by its name."""
    names = weft.thread.open(store, thread).branches()
    compiled = {name: weft.thread.open(store, thread, branch=name).compile() for name in names}
    return {name: [m.text for m in context.messages] for name, context in compiled.items()}


def test_only_the_new_suffix_is_committed(store, gateway):
    gateway.turn(request("a"), "b")
    location = gateway.turn(request("a", "b", "c"), "d")
    thread = weft.thread.open(store, location.thread)
    assert texts(store, location) == ["a", "b", "c", "d"]
    assert len(thread.log()) == 4
    assert len(store.threads()) == 1


def test_three_equal_runs_are_three_threads(gateway):
    runs = []
    for _ in range(3):
        first = gateway.turn(request("a"), "b")
        second = gateway.turn(request("a", "b", "c"), "d")
        third = gateway.turn(request("a", "b", "c", "d", "e"), "f")
        runs.append((first.thread, second.thread, third.thread))
    assert [len(set(run)) for run in runs] == [1, 1, 1]
    assert len({run[0] for run in runs}) == 3


def test_equal_conversations_at_the_same_time_are_continued_one_to_one(gateway):
    opened = {gateway.turn(request("a"), "b").thread for _ in range(20)}
    second = [gateway.turn(request("a", "b", "c"), "d").thread for _ in range(20)]
    third = [gateway.turn(request("a", "b", "c", "d", "e"), "f").thread for _ in range(20)]
    assert len(opened) == 20
    assert set(second) == set(third) == opened
    assert len(set(second)) == len(set(third)) == 20


def test_the_same_continuation_twice_makes_two_branches(store, gateway):
    gateway.turn(request("a"), "b")
    records = [gateway.ask(request("a", "b", "c")) for _ in range(2)]
    locations = [gateway.reply(recorded, f"d{n}") for n, recorded in enumerate(records)]
    assert locations[0].thread == locations[1].thread
    assert branch_texts(store, locations[0].thread) == {
        "answer-1-of-turn-2": ["a", "b", "c", "d0"],
        "main": ["a", "b", "c", "d1"],
    }


def test_without_proof_an_edited_turn_is_another_conversation(gateway):
    gateway.turn(request("a"), "b")
    first = gateway.turn(request("a", "b", "c"), "d")
    assert gateway.turn(request("a", "b", "x"), "y").thread != first.thread


@pytest.mark.parametrize("other", [{"system": "two"}, {"tools": (Tool("t"),)}])
def test_without_proof_another_setup_is_another_conversation(gateway, other):
    first = gateway.turn(request("a", system="one"), "b")
    setup = {"system": "one"} | other
    assert gateway.turn(request("a", "b", "c", **setup), "d").thread != first.thread


def test_callers_do_not_find_each_others_threads(store):
    first = Gateway(store, "k1").turn(request("a"), "b", id="r1")
    second = Gateway(store, "k2").turn(request("a", "b", "c"), "d")
    assert first.thread != second.thread
    assert find_response(store, "k1", "r1") == (first.thread, first.head)
    assert find_response(store, "k2", "r1") is None


# --- with a session's name


def test_a_named_session_is_one_thread_and_its_branches(store, gateway):
    gateway.turn(request("a"), "b", hint="s")
    first = gateway.turn(request("a", "b", "c"), "d", hint="s")
    second = gateway.turn(request("a", "b", "x"), "y", hint="s")
    assert (first.branch, second.branch) == ("main", "main")
    again = gateway.turn(request("a", "b", "x", "y", "z"), "!", hint="s")
    assert (again.thread, again.branch) == (first.thread, "main")
    assert texts(store, again) == ["a", "b", "x", "y", "z", "!"]
    assert branch_texts(store, "s") == {
        "main": ["a", "b", "x", "y", "z", "!"],
        "before-edit-of-turn-2": ["a", "b", "c", "d"],
    }


def test_head_follows_the_client(store, gateway):
    gateway.turn(request("a"), "b", hint="s")
    gateway.turn(request("a", "b", "c"), "d", hint="s")
    gateway.turn(request("a", "b", "x"), "y", hint="s")
    assert [m.text for m in weft.thread.open(store, "s").compile().messages] == ["a", "b", "x", "y"]


def test_every_abandoned_branch_keeps_its_own_name(store, gateway):
    gateway.turn(request("a"), "b", hint="s")
    for text in ("c", "d", "e", "f"):
        gateway.turn(request("a", "b", text), text.upper(), hint="s")
    assert branch_texts(store, "s") == {
        "before-edit-of-turn-2": ["a", "b", "c", "C"],
        "before-edit-of-turn-2-2": ["a", "b", "d", "D"],
        "before-edit-of-turn-2-3": ["a", "b", "e", "E"],
        "main": ["a", "b", "f", "F"],
    }
    assert weft.thread.open(store, "s").current == "main"


def test_a_regenerated_answer_replaces_the_first(store, gateway):
    gateway.turn(request("a"), "b", hint="s")
    for answer in ("d", "D", "the last one"):
        gateway.turn(request("a", "b", "c"), answer, hint="s")
    assert branch_texts(store, "s") == {
        "answer-1-of-turn-2": ["a", "b", "c", "d"],
        "answer-2-of-turn-2": ["a", "b", "c", "D"],
        "main": ["a", "b", "c", "the last one"],
    }
    gateway.turn(request("a", "b", "c", "the last one", "e"), "f", hint="s")
    assert texts(store, gateway.turn(request("a", "b", "c", "D", "x"), "y", hint="s"))[-1] == "y"
    assert weft.thread.open(store, "s").current == "answer-2-of-turn-2"


def test_head_follows_a_client_that_asks_an_abandoned_question_again(store, gateway):
    gateway.turn(request("a"), "b", hint="s")
    gateway.turn(request("a", "b", "x"), "one", hint="s")
    gateway.turn(request("a", "b", "y"), "two", hint="s")
    recorded = gateway.ask(request("a", "b", "x"), hint="s")
    assert branch_texts(store, "s")["main"] == ["a", "b", "x"]
    gateway.reply(recorded, "three")
    assert branch_texts(store, "s") == {
        "main": ["a", "b", "x", "three"],
        "before-edit-of-turn-2": ["a", "b", "x", "one"],
        "before-edit-of-turn-2-2": ["a", "b", "y", "two"],
    }
    assert weft.thread.open(store, "s").current == "main"


def test_head_follows_a_client_whose_last_question_was_undone(store, gateway):
    gateway.turn(request("a"), "b", hint="s")
    gateway.turn(request("a", "b", "c"), "d", hint="s")
    weft.thread.open(store, "s").undo(turn=True)
    gateway.turn(request("a", "b", "c"), "D", hint="s")
    assert branch_texts(store, "s") == {"main": ["a", "b", "c", "D"]}


def test_the_answer_to_a_tagged_question_goes_to_its_branch(store, gateway):
    gateway.turn(request("a"), "b", hint="s")
    recorded = gateway.ask(request("a", "b", "c"), hint="s")
    tagged = weft.thread.open(store, "s").tag("question").id
    gateway.reply(recorded, "d1")
    gateway.turn(request("a", "b", "c"), "d2", hint="s")
    Gateway(store).turn(request("a", "b", "c"), "d3", hint="s")
    assert branch_texts(store, "s") == {
        "main": ["a", "b", "c", "d3"],
        "answer-1-of-turn-2": ["a", "b", "c", "d1"],
        "answer-2-of-turn-2": ["a", "b", "c", "d2"],
    }
    assert weft.thread.open(store, "s").tags() == {"question": tagged}


@pytest.mark.parametrize("seed", range(6))
def test_head_follows_a_client_whose_questions_and_answers_repeat(store, gateway, seed):
    """Short sessions repeat texts: "go on", "Done."."""
    chance = random.Random(seed)
    texts = []
    for step in range(14):
        start = chance.choice([len(texts), len(texts), len(texts), *range(2, len(texts), 2)])
        texts = [*texts[:start], chance.choice(["go on", "why?"])]
        answer = chance.choice(["Done.", "Done.", f"{step}"])
        location = gateway.turn(request(*texts), answer, hint="s")
        texts.append(answer)
        assert branch_texts(store, location.thread)[weft.thread.open(store, "s").current] == texts
        if step == 8:
            gateway = Gateway(store)
    assert [thread.name for thread in store.threads()] == ["s"]
    assert fsck(store).clean


def test_a_late_answer_does_not_move_head(store, gateway):
    gateway.turn(request("a"), "b", hint="s")
    slow = gateway.ask(request("a", "b", "c"), hint="s")
    gateway.turn(request("a", "b", "x"), "y", hint="s")
    gateway.reply(slow, "d")
    assert branch_texts(store, "s") == {
        "before-edit-of-turn-2": ["a", "b", "c", "d"],
        "main": ["a", "b", "x", "y"],
    }
    assert weft.thread.open(store, "s").current == "main"


def test_an_abandoned_attempt_does_not_move_head_from_its_retry(store, gateway):
    gateway.turn(request("a"), "b", hint="s")
    slow, retry = (gateway.ask(request("a", "b", "c"), hint="s") for _ in range(2))
    gateway.reply(retry, "fast")
    gateway.reply(slow, "late")
    assert branch_texts(store, "s") == {
        "answer-1-of-turn-2": ["a", "b", "c", "late"],
        "main": ["a", "b", "c", "fast"],
    }
    gateway.turn(request("a", "b", "c", "fast", "e"), "f", hint="s")
    assert weft.thread.open(store, "s").current == "main"


@pytest.mark.parametrize("is_deleted", [False, True])
@pytest.mark.parametrize("is_answered", [False, True])
def test_an_exchange_stays_in_its_thread_after_a_rename(store, gateway, is_deleted, is_answered):
    gateway.turn(request("a"), "b", hint="s")
    recorded = gateway.ask(request("a", "b", "c"), hint="s")
    thread = weft.thread.open(store, "s")
    if is_deleted:
        thread.delete()
    else:
        thread.rename("renamed")
    other = gateway.turn(request("x"), "y", hint="s")
    assert other.thread == "s"
    if is_answered:
        gateway.reply(recorded, "d")
    else:
        gateway.fail(recorded, "par")
    assert branch_texts(store, "s") == {"main": ["x", "y"]}
    assert weft.thread.open(store, "s").attempts() == []
    if is_deleted:
        weft.thread.open(store, "s").rename("other")
        undelete_thread(store, "s")
    own = weft.thread.open(store, "s" if is_deleted else "renamed")
    assert [m.text for m in own.compile().messages] == ["a", "b", "c", *(["d"] * is_answered)]
    assert len(own.attempts()) == (not is_answered)
    assert fsck(store).clean


def test_a_late_answer_of_another_process_does_not_move_head(store, gateway):
    """Another process handled the newer attempt, so only its stored records are known here."""
    other = Gateway(store)
    late = gateway.ask(request("a"), hint="s")
    other.reply(other.ask(request("a"), hint="s", retry=True), "b2")
    gateway.reply(late, "b1")
    assert branch_texts(store, "s") == {"main": ["a", "b2"], "answer-1-of-turn-1": ["a", "b1"]}
    older = gateway.ask(request("a", "b2", "c"), hint="s")
    newer = other.ask(request("a", "b2", "c"), hint="s", retry=True)
    gateway.reply(older, "d1")
    other.reply(newer, "d2")
    assert branch_texts(store, "s")["main"] == ["a", "b2", "c", "d2"]


def test_answers_under_many_system_texts_are_siblings(store, gateway):
    """A clock in the system text, and a client that asks for another answer again and again."""
    gateway.turn(request("a", system="at 0"), "b", hint="s")
    lengths = []
    for number in range(1, 9):
        new_request = request("a", "b", "c", system=f"at {number}")
        location = gateway.turn(new_request, f"answer {number}", hint="s")
        assert location.branch == "main"
        assert texts(store, location) == [f"at {number}", "a", "b", "c", f"answer {number}"]
        lengths.append(len(weft.thread.open(store, "s").log()))
    assert len(set(lengths[1:])) == 1


@pytest.mark.parametrize("reminded", [0, -1])
def test_a_changing_reminder_does_not_end_the_conversation(store, gateway, reminded):
    """A date in the first message, or a text that is only in the last one; no call proves it."""
    texts = ["q0"]
    for day in range(5):
        sent = with_reminder(dialogue(*texts), reminded, f"day {day}")
        location = gateway.turn(Request("m", sent), f"a{day}", hint="s")
        if day == 3:
            gateway = Gateway(store)  # the next day
        texts += [f"a{day}", f"q{day + 1}"]
    rewound = with_reminder(dialogue(*texts[:4], "other"), reminded, "day 9")
    location = gateway.turn(Request("m", rewound), "new", hint="s")
    assert [thread.name for thread in store.threads()] == ["s"]
    assert sorted(branch_texts(store, "s")) == ["before-edit-of-turn-3", "main"]
    typed = [
        text.rpartition("</system-reminder>")[2].strip()
        for text in branch_texts(store, "s")["main"]
    ]
    assert typed == ["q0", "a0", "q1", "a1", "other", "new"]
    assert location.branch == "main"


@pytest.mark.parametrize("keeps_first", [False, True])
@pytest.mark.parametrize("calls", [(), (2,), (2, 5, 6)])
@pytest.mark.parametrize("hint", ["s", None])
def test_a_client_that_drops_old_turns_stays_on_its_branch(
    store, gateway, hint, calls, keeps_first
):
    """It sends the newest turns only; arguments come back rewritten, reminders change."""
    if hint is None and len(calls) < 2:
        return  # nothing proves which conversation it is
    conversation = []
    for turn in range(9):
        conversation.append(dialogue(f"q{turn}"))
        newest = conversation[-5:] if hint or turn < 5 else conversation[-4:]
        if keeps_first and len(conversation) > 5:
            newest = [conversation[0], *conversation[-4:]]
        messages = tuple(message for messages in newest for message in messages)
        id = f"toolu_{turn}a8f3c{turn}9d2b7e4f1" if turn in calls else None
        recorded = gateway.ask(Request("m", messages), hint=hint)
        gateway.reply(recorded, thinking("x", f"a{turn}", id=id))
        echo = (Message("assistant", (Text(f"a{turn}"),)),)
        if id is not None:
            rewritten_call = ToolCall(id, "look", '{"b": 1}' if hint else "{}")
            echo = (Message("assistant", (Text(f"a{turn}"), rewritten_call)), result(id))
        conversation[-1] += echo
    (thread,) = store.threads()
    (line,) = branch_texts(store, thread.name).values()
    visible = [text for text in line if text[:1] in ("q", "a")]
    assert visible == [text for turn in range(9) for text in (f"q{turn}", f"a{turn}")]


@pytest.mark.parametrize("hint", ["s", None])
def test_a_result_cleared_by_the_client_after_its_answer_is_not_an_edit(store, gateway, hint):
    """The last answer has no call, so the token is before the cleared result."""
    echo = Message("assistant", (Text("b"), ToolCall(UNIQUE, "look", "{}")))
    gateway.reply(gateway.ask(request("a"), hint=hint), thinking("x", id=UNIQUE))
    new_request = Request("m", (*dialogue("a"), echo, result(UNIQUE, "long")))
    gateway.turn(new_request, "c", hint=hint)
    cleared = (*dialogue("a"), echo, result(UNIQUE, "[cleared]"))
    more = (Message("assistant", (Text("c"),)), *dialogue("d"))
    location = gateway.turn(Request("m", (*cleared, *more)), "e", hint=hint)
    assert [line[-3:] for line in branch_texts(store, location.thread).values()] == [
        ["c", "d", "e"]
    ]
    edited = (*cleared, more[0], *dialogue("other"))
    location = gateway.turn(Request("m", edited), "f", hint=hint)
    assert len(branch_texts(store, location.thread)) == 2


def test_a_session_name_alone_does_not_join_an_equal_conversation(store, gateway):
    """Two conversations with one name begin differently and get the same first answer."""
    for who in ("alice", "bob"):
        gateway.turn(request(f"hi, I am {who}"), "Hello!", hint="s")
    for who in ("alice", "bob"):
        gateway.turn(request(f"hi, I am {who}", "Hello!", "more"), f"for {who}", hint="s")
    assert sorted(len(branch_texts(store, thread.name)) for thread in store.threads()) == [1, 1]


def test_a_regenerated_answer_with_another_system_text_keeps_its_name(store, gateway):
    gateway.turn(request("a", system="It is 0 o'clock."), "b", hint="s")
    for number, answer in enumerate(("d1", "d2", "d3"), start=1):
        gateway.turn(request("a", "b", "c", system=f"It is {number} o'clock."), answer, hint="s")
    assert {name: line[-2:] for name, line in branch_texts(store, "s").items()} == {
        "answer-1-of-turn-2": ["c", "d1"],
        "answer-2-of-turn-2": ["c", "d2"],
        "main": ["c", "d3"],
    }


def test_turns_are_counted_by_what_the_person_typed(store, gateway):
    call = ToolCall("call_7x2Lk9Qw", "Bash", "{}")
    result = Message("tool", (ToolResult(call.id, (Text("ok"),)),))
    first = (*dialogue("a"), Message("assistant", (call,)), result)
    gateway.turn(Request("m", dialogue("a")), Message("assistant", (call,)), hint="s")
    gateway.turn(Request("m", first), "b", hint="s")
    reminder = Message("user", (Text("<system-reminder>x</system-reminder>"),))
    gateway.turn(
        Request("m", (*first, *dialogue("-", "b")[1:], reminder, *dialogue("c"))),
        "d",
        hint="s",
    )
    gateway.turn(
        Request("m", (*first, *dialogue("-", "b")[1:], reminder, *dialogue("x"))),
        "y",
        hint="s",
    )
    assert list(weft.thread.open(store, "s").branches()) == ["main", "before-edit-of-turn-2"]


CLAUDE_QUESTION = (
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\n"
    "Your task is to create a detailed summary of the conversation so far"
)
SUMMARY = "This session is being continued from a previous conversation: it was about letters."


def test_a_summary_request_is_a_separate_branch(store, gateway):
    gateway.turn(request("a"), "b", hint="s")
    gateway.turn(request("a", "b", "c"), "d", hint="s")
    summary_request = request("a", "b", "c", "d", CLAUDE_QUESTION)
    first = gateway.ask(summary_request, hint="s")
    gateway.fail(first)
    location = gateway.turn(summary_request, "<summary>it was about letters.</summary>", hint="s")
    assert (location.thread, location.branch) == ("s", "compaction-1")
    assert weft.thread.open(store, "s").current == "main"
    gateway.turn(Request("m", dialogue(SUMMARY)), "f", hint="s")
    assert branch_texts(store, "s")["main"] == [SUMMARY, "f"]
    thread = weft.thread.open(store, "s")
    thread.revert(next(info for info in thread.log() if info.kind == "compact"))
    assert branch_texts(store, "s") == {
        "compaction-1": [
            "a",
            "b",
            "c",
            "d",
            CLAUDE_QUESTION,
            "<summary>it was about letters.</summary>",
        ],
        "main": ["a", "b", "c", "d", "f"],
    }


def test_a_changed_setup_is_one_commit_on_the_same_branch(store, gateway):
    gateway.turn(request("a", system="one", tools=(Tool("t1"),)), "b", hint="s")
    gateway.turn(request("a", "b", "c", system="one", tools=(Tool("t1"),)), "d", hint="s")
    location = gateway.turn(
        request("a", "b", "c", "d", "e", system="two", tools=(Tool("t2"),)), "f", hint="s"
    )
    assert (location.thread, location.branch) == ("s", "main")
    thread = weft.thread.open(store, "s")
    assert texts(store, location) == ["two", "a", "b", "c", "d", "e", "f"]
    assert [tool.name for tool in thread.compile().tools] == ["t2"]
    kinds = [info.kind for info in thread.log()]
    assert kinds.count("setup") == 2  # the first tools, and the change
    again = gateway.turn(
        request("a", "b", "c", "d", "e", "f", "g", system="two", tools=(Tool("t2"),)), "h", hint="s"
    )
    assert again.branch == "main"
    assert [info.kind for info in thread.log()].count("setup") == 2


def test_a_changing_system_block_changes_nothing(store, gateway):
    def ask(number, *texts):
        lead = Message("system", (Text(f"x-anthropic-billing-header: {number}"), Text("be brief")))
        return Request("m", (lead, *dialogue(*texts)))

    gateway.turn(ask(1, "a"), "b", hint="s")
    gateway.turn(ask(2, "a", "b", "c"), "d", hint="s")
    assert "setup" not in [info.kind for info in weft.thread.open(store, "s").log()]


def test_later_system_messages_do_not_fork(store, gateway):
    def system(text):
        return Message("system", (Text(text),))

    first, second = dialogue("a", "b"), dialogue("c", "d")
    gateway.turn(Request("m", (first[0], system("one"))), "b", hint="s")
    ask = Request("m", (first[0], system("one"), first[1], second[0], system("two")))
    gateway.turn(ask, "d", hint="s")
    changed = (
        first[0],
        system("1"),
        first[1],
        second[0],
        system("two"),
        second[1],
        *dialogue("e"),
    )
    location = gateway.turn(Request("m", changed), "f", hint="s")
    assert (location.thread, location.branch) == ("s", "main")
    assert texts(store, location) == ["a", "1", "b", "c", "two", "d", "e", "f"]


def test_a_session_keeps_its_other_conversations_as_children(gateway):
    main = gateway.turn(request("a"), "b", hint="claude-1")
    helper = gateway.turn(request("x"), "y", hint="claude-1")
    assert (main.thread, helper.thread) == ("claude-1", "claude-1.2")
    assert gateway.turn(request("a", "b", "c"), "d", hint="claude-1").thread == "claude-1"
    assert gateway.turn(request("x", "y", "z"), "!", hint="claude-1").thread == "claude-1.2"
    assert gateway.turn(request("a", "b", "c"), "d").thread not in ("claude-1", "claude-1.2")
    assert [gateway.turn(request(f"n{n}"), "y", hint="claude-1").thread for n in range(5)] == [
        f"claude-1.{n}" for n in range(3, 8)
    ]


def test_of_two_similar_conversations_the_one_with_this_setup_continues(gateway):
    first = gateway.turn(request("a", system="one"), "b", hint="s")
    second = gateway.turn(request("a", system="two"), "b", hint="s")
    assert first.thread != second.thread
    for location, system in ((first, "one"), (second, "two")):
        assert gateway.turn(request("a", "b", "c", system=system), "d", hint="s").thread == (
            location.thread
        )


def test_an_unknown_session_name_starts_a_new_thread(gateway):
    first = gateway.turn(request("a"), "b", hint="one")
    assert gateway.turn(request("a", "b", "c"), "d", hint="two").thread == "two" != first.thread


# --- tokens


def call(id, text="", arguments="{}"):
    blocks = ((Text(text),) if text else ()) + (ToolCall(id, "look", arguments),)
    return Message("assistant", blocks)


def result(id, text="found"):
    return Message("tool", (ToolResult(id, (Text(text),)),))


UNIQUE = "toolu_01A9mNq4XbT7cYw2ZsKd8Ej"


@pytest.mark.parametrize("hint", [None, "s"])
def test_an_echoed_call_id_proves_the_conversation(store, gateway, hint):
    recorded = gateway.ask(request("a", system="one"), hint=hint)
    gateway.reply(recorded, call(UNIQUE))
    echo = call(UNIQUE, arguments='{"rewritten": true}')
    then = Request("m", (*request("a", system="clock 2").messages, echo, result(UNIQUE)))
    location = gateway.turn(then, "done", hint=hint)
    assert (location.thread, location.branch) == (
        recorded.location.thread,
        recorded.location.branch,
    )
    assert texts(store, location) == ["clock 2", "a", "", "found", "done"]
    further = (
        *then.messages,
        *dialogue("done", "done")[1:],
        *dialogue("e"),
    )
    last = gateway.turn(Request("m", further), "f", hint=hint)
    assert (last.thread, last.branch) == (location.thread, location.branch)


NO_ID = {"gemini": {"id": None}}  # a Gemini client sent the call or the result without an id


def call_without_id(arguments, id="gemini_call_1_1"):
    return Message("assistant", (Text("look"), ToolCall(id, "look", arguments, ext=NO_ID)))


@pytest.mark.parametrize("echoed", [0, 1])
def test_of_two_calls_without_ids_the_one_with_equal_arguments_continues(store, gateway, echoed):
    arguments = ['{"path": "a"}', '{"path": "b"}']
    for number in range(2):
        recorded = gateway.ask(request("q"), hint="s")
        gateway.reply(recorded, call_without_id(arguments[number], f"call_{number}_x7Kq9ZtR2m"))
    answered = Message(
        "user", (ToolResult("gemini_call_1_1", (Text("r"),), name="look", ext=NO_ID),)
    )
    then = Request("m", (*dialogue("q"), call_without_id(arguments[echoed]), answered))
    location = gateway.turn(then, "done", hint="s")
    messages = weft.thread.open(store, "s", branch=location.branch).compile().messages
    (call,) = [b for m in messages for b in m.blocks if isinstance(b, ToolCall)]
    (back,) = [b for m in messages for b in m.blocks if isinstance(b, ToolResult)]
    assert (location.thread, call.arguments) == ("s", arguments[echoed])
    assert back.call_id == call.id


def user(*blocks):
    return Message("user", tuple(Text(block) for block in blocks))


AFTER_FIRST = (call(UNIQUE), result(UNIQUE), *dialogue("done", "done")[1:])
"""The turns after a first question: a call proves them."""


def ask_with_call(gateway, lead, hint, **more):
    """A question that is answered with a call, and then with `done`."""
    recorded = gateway.ask(Request("m", lead, **more), hint=hint)
    gateway.reply(recorded, AFTER_FIRST[0])
    return gateway.turn(Request("m", (*lead, *AFTER_FIRST[:2]), **more), "done", hint=hint)


@pytest.mark.parametrize("lead", [(), (Message("system", (Text("be brief"),)),)])
@pytest.mark.parametrize("tools", [(), (Tool("look", "", {"type": "object"}),)])
@pytest.mark.parametrize("hint", [None, "s"])
def test_an_edit_of_the_first_message_is_a_branch(store, gateway, hint, tools, lead):
    """The client keeps the turns after it, and goes on several times; then it goes back."""
    location = ask_with_call(gateway, (*lead, user("delete it")), hint, tools=tools)
    thread, old = location.thread, texts(store, location)
    messages = (*lead, user("read it"), *AFTER_FIRST)
    for number in range(3):
        messages = (*messages, user(f"q{number}"))
        location = gateway.turn(Request("m", messages, tools=tools), f"a{number}", hint=hint)
        messages = (*messages, Message("assistant", (Text(f"a{number}"),)))
        if number == 1:
            gateway = Gateway(store)
    assert (location.thread, location.branch) == (thread, "main")
    new = [message.text for message in messages]
    assert branch_texts(store, thread) == {"before-edit-of-turn-1": old, "main": new}
    returned = (*lead, user("delete it"), *AFTER_FIRST, user("q9"))
    location = gateway.turn(Request("m", returned, tools=tools), "a9", hint=hint)
    lines = branch_texts(store, thread)
    assert lines[location.branch] == [*old, "q9", "a9"]
    assert new in lines.values()
    assert [record.name for record in store.threads()] == [thread]
    assert fsck(store).clean


CONTEXTS = [
    [("<system-reminder>Monday</system-reminder>", "fix it"), ("fix it",)],
    [("<environment_context>/a</environment_context>\nfix it",), ("fix it",)],
    [("Today is Monday.", "fix it"), ("Today is Tuesday.", "fix it")],  # an unknown client
]


@pytest.mark.parametrize("contexts", [*CONTEXTS, *(list(reversed(row)) for row in CONTEXTS)])
@pytest.mark.parametrize("hint", [None, "s"])
def test_another_context_in_the_first_message_is_not_an_edit(store, gateway, hint, contexts):
    first, second = contexts
    location = ask_with_call(gateway, (user(*first),), hint)
    messages = (user(*second), *AFTER_FIRST, user("next"))
    then = gateway.turn(Request("m", messages), "last", hint=hint)
    assert (then.thread, then.branch) == (location.thread, location.branch)
    (line,) = branch_texts(store, then.thread).values()
    assert line[-3:] == ["done", "next", "last"]
    edited = (user(*second[:-1], "leave it"), *messages[1:])
    edited_at = gateway.turn(Request("m", edited), "new", hint=hint)
    assert edited_at.thread == location.thread
    assert set(branch_texts(store, then.thread)) == {"main", "before-edit-of-turn-1"}


@pytest.mark.parametrize("edit", ["compact", "edit"])
def test_a_client_that_edits_its_first_message_leaves_an_edited_conversation(store, gateway, edit):
    location = ask_with_call(gateway, (user("delete it"),), "s")
    messages = (user("delete it"), *AFTER_FIRST, *dialogue("q1", "a1"))
    gateway.turn(Request("m", messages[:-1]), "a1", hint="s")
    thread = weft.thread.open(store, location.thread)
    if edit == "compact":
        thread.compact(keep=1, summary="It has to be deleted.")
    else:
        thread.edit(thread.log()[-1].id, "delete it now")
    recorded = gateway.ask(Request("m", (*messages, user("q2"))), hint="s")
    assert recorded.location.is_edited
    gateway.reply(recorded, "a2")
    messages = (*messages, *dialogue("q2", "a2"))
    context = user("<system-reminder>Tuesday</system-reminder>", "delete it")
    recorded = gateway.ask(Request("m", (context, *messages[1:], user("q3"))), hint="s")
    assert recorded.location.is_edited
    gateway.reply(recorded, "a3")
    messages = (*messages, *dialogue("q3", "a3"))
    recorded = gateway.ask(Request("m", (user("read it"), *messages[1:], user("q4"))), hint="s")
    assert not recorded.location.is_edited
    location = gateway.reply(recorded, "a4")
    assert (location.thread, location.branch) == ("s", "main")
    line = texts(store, location)
    assert (line[0], line[-2:]) == ("read it", ["q4", "a4"])
    assert len(line) == len(messages) + 2


def test_another_context_does_not_leave_a_compaction_without_calls(store, gateway):
    messages = ()
    for number in range(7):
        day = Text(f"<system-reminder>day {number}</system-reminder>")
        messages = (*messages, user(f"q{number}"))
        sent = (Message("user", (day, *messages[0].blocks)), *messages[1:])
        recorded = gateway.ask(Request("m", sent), hint="s")
        assert recorded.location.is_edited == (number > 4)
        location = gateway.reply(recorded, f"a{number}")
        messages = (*messages, Message("assistant", (Text(f"a{number}"),)))
        if number == 4:
            weft.thread.open(store, "s").compact(keep=1, summary="Four questions.")
    assert [record.name for record in store.threads()] == ["s"]
    assert set(branch_texts(store, "s")) == {"main"}
    assert texts(store, location)[-4:] == ["q5", "a5", "q6", "a6"]
    edited = (user("leave it"), *messages[1:], user("next"))
    recorded = gateway.ask(Request("m", edited), hint="s")
    assert (recorded.location.thread, recorded.location.is_edited) == ("s.2", False)


def test_a_result_cleared_after_an_edit_in_weft_is_not_an_edit(store, gateway):
    """The first message was edited in Weft, which the client does not know."""
    location = ask_with_call(gateway, (user("delete it"),), None)
    thread = weft.thread.open(store, location.thread)
    thread.edit(thread.log()[-1].id, "read it")
    cleared = (AFTER_FIRST[0], result(UNIQUE, "[cleared]"), AFTER_FIRST[2])
    recorded = gateway.ask(Request("m", (user("delete it"), *cleared, user("next"))))
    location = gateway.reply(recorded, "last")
    assert texts(store, location) == ["read it", "", "found", "done", "next", "last"]
    assert len(branch_texts(store, location.thread)) == 1


def test_a_new_name_becomes_an_alias_of_the_proven_conversation(gateway):
    recorded = gateway.ask(request("a"), hint="one")
    gateway.reply(recorded, call(UNIQUE))
    then = Request("m", (*dialogue("a"), call(UNIQUE), result(UNIQUE)))
    assert gateway.turn(then, "done", hint="two").thread == "one"
    plain = Request("m", (*then.messages, Message("assistant", (Text("done"),)), *dialogue("e")))
    assert gateway.turn(plain, "f", hint="two").thread == "one"


def test_an_id_alone_in_another_session_proves_nothing(store, gateway):
    """Ids stand in traces and pasted transcripts; they are not secret."""
    first = gateway.ask(request("A's question"), hint="A")
    gateway.reply(first, thinking("secret", id=UNIQUE))
    gateway.turn(request("mine"), "b", hint="B")
    stolen = Message("assistant", (Text("b"), ToolCall(UNIQUE, "look", "{}")))
    then = Request("m", (*dialogue("mine", "b", "more"), stolen, result(UNIQUE)))
    recorded = gateway.ask(then, hint="B", maker=MAKER)
    assert recorded.location.thread == "B"
    assert recorded.answers == {}
    assert "secret" not in str(weft.thread.open(store, "B").compile().messages)


@pytest.mark.parametrize(
    "stolen",
    [
        Message("assistant", (Text("b"), ToolCall(UNIQUE, "other", "{}"))),
        Message("assistant", (Text("other"), ToolCall(UNIQUE, "look", "{}"))),
        Message("assistant", (Text("b"), ToolCall(UNIQUE, "look", '{"a": 1}'))),
    ],
)
def test_without_a_session_the_answer_or_the_messages_before_it_must_be_equal(gateway, stolen):
    first = gateway.ask(request("A's question"))
    gateway.reply(first, thinking("secret", id=UNIQUE))
    then = Request("m", (*dialogue("mine"), stolen, result(UNIQUE)))
    recorded = gateway.ask(then, maker=MAKER)
    assert recorded.location.thread != first.location.thread
    assert recorded.answers == {}


def test_content_redacted_by_the_client_stays_redacted(gateway):
    recorded = gateway.ask(request("a"), hint="s")
    secret = ToolCall(UNIQUE, "look", '{"password": "hunter2"}')
    sealed = Thinking("hm", "c2VhbGVkIGJ5IG1lIGFuZCBub2JvZHk")
    gateway.reply(recorded, Message("assistant", (sealed, Text("b"), secret), origin=MAKER))
    echo = Message("assistant", (Text("EDITED"), ToolCall(UNIQUE, "look", '{"password": "x"}')))
    then = Request("m", (*dialogue("a"), echo, result(UNIQUE)))
    (message,) = gateway.ask(then, hint="s", maker=MAKER).answers.values()
    assert message.blocks[0] == sealed
    assert (message.blocks[1].text, message.blocks[2].arguments) == ("EDITED", '{"password": "x"}')


def test_a_sequential_id_proves_nothing(gateway):
    first = gateway.ask(request("a", system="one"))
    gateway.reply(first, call("call_0"))
    then = Request("m", (*request("a", system="two").messages, call("call_0"), result("call_0")))
    assert gateway.turn(then, "done").thread != first.location.thread


def test_an_id_in_two_conversations_proves_nothing(gateway):
    for system in ("one", "two"):
        gateway.reply(gateway.ask(request("a", system=system)), call(UNIQUE))
    then = Request("m", (*request("a", system="three").messages, call(UNIQUE), result(UNIQUE)))
    assert gateway.turn(then, "done").thread not in {
        gateway.turn(request("a", system=system), "x").thread for system in ("one", "two")
    }


def test_example_messages_of_a_client_prove_nothing(gateway):
    def ask(text):
        return Request(
            "m",
            (
                *dialogue("example"),
                call(UNIQUE),
                result(UNIQUE),
                *dialogue(text),
            ),
        )

    assert gateway.turn(ask("a"), "b").thread != gateway.turn(ask("x"), "y").thread


@pytest.mark.parametrize(
    ("id", "name", "distinctive"),
    [
        ("call_0", "", False),
        ("call_answer_0", "", False),
        ("call_00000017", "", False),
        ("get_weather_12", "get_weather", False),
        ("getWeatherNow12", "getWeatherNow", False),
        ("call_abcdefgh", "", False),
        ("call_1763276074123", "", False),  # a time
        ("call_00000000000000000123", "", False),
        ("searchTheWholeArchive", "", False),
        ("lookUpTheCustomerRecord1", "", False),
        ("D681PevKs", "", True),  # Mistral
        ("bYqRtKvLp", "", True),
        ("kJdXmPqRz", "", True),
        ("call_8231168139794583938", "", True),  # Zhipu
        ("call_590174628301957264381a72", "", True),  # few letters, as happens at random
        ("call_590174628301957264381072", "", True),
        ("call_hKzPqWxRtYvBnMdFgLsCjTaQ", "", True),  # no digit, as happens at random
        ("call_8f3a2b1c", "", True),  # Ollama
        ("toolu_01A9mNq4XbT7cYw2ZsKd8Ej", "", True),
        ("chatcmpl-tool-0d1f2a3b4c5d6e7f8a9b0c1d2e3f4a5b", "", True),
        ("01a1de1c-9d93-7bf3-b5ee-83e993482ab9", "", True),
    ],
)
def test_ids_that_look_random_are_recognised(id, name, distinctive):
    assert is_distinctive(id, name) is distinctive


# --- what may be given back to the model


def thinking(secret, text="b", id=None):
    call = () if id is None else (ToolCall(id, "look", "{}"),)
    sealed = Thinking(secret, "c2VhbGVkIGJ5IG1lIGFuZCBub2JvZHk")
    return Message("assistant", (sealed, Text(text), *call), origin=MAKER)


def restored(recorded):
    return [block.text for m in recorded.answers.values() for block in m.blocks
            if isinstance(block, Thinking)]  # fmt: skip


def test_thinking_is_restored_if_the_conversation_is_equal_and_unique(gateway):
    gateway.reply(gateway.ask(request("a", system="one")), thinking("secret"))
    recorded = gateway.ask(request("a", "b", "c", system="one"), maker=MAKER)
    assert restored(recorded) == ["secret"]
    assert list(recorded.answers) == [(2, 3)]


@pytest.mark.parametrize("hints", [(None, None), ("s", "s"), ("one", "two"), (None, "s")])
@pytest.mark.parametrize("systems", [("one", "two"), ("one", "one")])
def test_another_conversations_thinking_is_never_restored(gateway, hints, systems):
    """With equal texts and answers, only separate sessions show whose thinking it was."""
    for secret, hint, system in zip(("A", "B"), hints, systems, strict=True):
        gateway.reply(gateway.ask(request("a", system=system), hint=hint), thinking(secret))
    for secret, hint, system in zip(("A", "B"), hints, systems, strict=True):
        ask = request("a", "b", f"more {secret}", system=system)
        recorded = gateway.ask(ask, hint=hint, maker=MAKER)
        is_known = systems[0] != systems[1] or (hint is not None and hints[0] != hints[1])
        assert restored(recorded) == ([secret] if is_known else [])


def test_restored_thinking_stays_only_while_it_is_proven(store, gateway):
    """The gateway remembers what it restored; an equal answer or `forget` ends that."""
    gateway.reply(gateway.ask(request("a")), thinking("first"))
    recorded = gateway.ask(request("a", "b", "c"), maker=MAKER)
    assert restored(recorded) == ["first"]
    gateway.reply(recorded, thinking("second", "d"))
    recorded = gateway.ask(request("a", "b", "c", "d", "e"), maker=MAKER)
    assert restored(recorded) == ["first", "second"]
    gateway.reply(recorded, thinking("third", "f"))
    weft.thread.forget(store, "second")
    recorded = gateway.ask(request("a", "b", "c", "d", "e", "f", "g"), maker=MAKER)
    assert "second" not in restored(recorded)
    assert restored(recorded) == restored_afresh(gateway, "a", "b", "c", "d", "e", "f", "g")
    gateway.reply(recorded, thinking("fourth", "i"))
    gateway.reply(gateway.ask(request("a"), hint="another"), thinking("theirs"))
    longer = ("a", "b", "c", "d", "e", "f", "g", "i", "j")
    recorded = gateway.ask(request(*longer), maker=MAKER)
    assert "first" not in restored(recorded)
    assert restored(recorded)[-2:] == ["third", "fourth"]
    assert restored(recorded) == restored_afresh(gateway, *longer)


def restored_afresh(gateway, *texts):
    """What a gateway that remembers nothing restores."""
    return restored(Gateway(gateway.store).ask(request(*texts), maker=MAKER))


def test_thinking_restored_in_a_session_is_not_restored_outside_it(gateway):
    for hint in ("one", "two"):
        gateway.reply(gateway.ask(request("a"), hint=hint), thinking(hint))
    for hint in ("one", "two", "one"):
        texts = ("a", "b", f"more {hint}")
        assert restored(gateway.ask(request(*texts), hint=hint, maker=MAKER)) == [hint]
        assert restored(gateway.ask(request(*texts), maker=MAKER)) == []


def test_thinking_is_restored_by_call_id_even_if_the_client_rewrote_the_text(gateway):
    recorded = gateway.ask(request("a", system="one"), hint="s")
    gateway.reply(recorded, thinking("secret", id=UNIQUE))
    echo = Message("assistant", (Text("b"), ToolCall(UNIQUE, "look", '{"b": 1}')))
    then = Request("m", (*request("a", system="two").messages, echo, result(UNIQUE)))
    assert restored(gateway.ask(then, hint="s", maker=MAKER)) == ["secret"]


def rewritten(id, arguments):
    return Message("assistant", (Text("b"), ToolCall(id, "look", arguments)))


def test_thinking_is_restored_in_a_named_session_without_tokens(gateway):
    """Its calls are numbered, the client adds arguments, and system text and tools change."""
    messages = dialogue("a")
    for number in range(4):
        setup = (Message("system", (Text(f"rules {number // 2}"),)), *messages)
        recorded = gateway.ask(
            Request("m", setup, (Tool(f"t{number // 3}"),)), hint="s", maker=MAKER
        )
        assert restored(recorded) == [f"secret {n}" for n in range(number)]
        gateway.reply(recorded, thinking(f"secret {number}", id="call_0"))
        messages = (*messages, rewritten("call_0", '{"b": 1}'), result("call_0", str(number)))
    other = Request("m", (*dialogue("a"), *messages[1:3]))
    assert restored(gateway.ask(other, hint="t", maker=MAKER)) == []
    assert restored(gateway.ask(other, maker=MAKER)) == []


def test_ambiguous_answers_are_not_restored(gateway):
    """Two people may share a session name, so it is unknown whose answer the client rewrote."""
    for secret in ("A", "B"):
        gateway.reply(gateway.ask(request("a"), hint="s"), thinking(secret, id="call_0"))
    messages = (*dialogue("a"), rewritten("call_0", '{"b": 1}'), result("call_0"))
    for more in (
        (),
        (call("call_1"), result("call_1")),
        (*dialogue("x", "y"), *dialogue("z")),
    ):
        assert restored(gateway.ask(Request("m", (*messages, *more)), hint="s", maker=MAKER)) == []


def with_reminder(messages, number, text):
    """The messages with a reminder in one of them, as some clients write it."""
    sent = list(messages)
    if number is not None:
        reminder = Text(f"<system-reminder>{text}</system-reminder>")
        sent[number] = msgspec.structs.replace(
            sent[number], blocks=(reminder, *sent[number].blocks)
        )
    return tuple(sent)


class Twin:
    """One of several conversations with equal words; some share a session name, some have a clock.

    With numbered calls no token tells them apart.
    """

    def __init__(self, number, chance):
        self.hint = chance.choice(["s", "s", "s", None])
        self.system = f"rules {chance.choice([number, ''])}"
        self.has_clock, self.changes_tools = chance.random() < 0.6, chance.random() < 0.3
        # A client that adds a reminder to its last message only sends later what others send too.
        self.reminded = chance.choice([None, None, 0, -1 if self.has_clock else 0])
        self.messages, self.secrets = [], set()

    def turn(self, gateway, moment, is_numbered):
        """One turn; returns the thinking of others that came back."""
        number = len(self.messages) // 2
        is_call = is_numbered and number % 2 == 1
        after_call = is_numbered and number % 2 == 0 and number > 0
        self.messages += [result("call_0", "ok") if after_call else dialogue(f"turn {number}")[0]]
        system = f"{self.system} at {moment}" if self.has_clock else self.system
        tools = (Tool(f"t{moment}"),) if self.changes_tools else ()
        lead = Message("system", (Text(system),))
        sent = with_reminder(self.messages, self.reminded, f"{id(self)} at {moment}")
        recorded = gateway.ask(Request("m", (lead, *sent), tools), hint=self.hint, maker=MAKER)
        foreign = set(restored(recorded)) - self.secrets
        secret = f"secret {id(self)} {moment}"
        self.secrets.add(secret)
        text = f"answer {number}"
        gateway.reply(recorded, thinking(secret, text, id="call_0" if is_call else None))
        calls = (ToolCall("call_0", "look", "{}"),) if is_call else ()
        self.messages.append(Message("assistant", (Text(text), *calls)))
        return foreign


@pytest.mark.parametrize("start", [0, 100])
def test_equal_conversations_with_one_name_and_changing_setups_share_no_thinking(start):
    for seed in range(start, start + 100):
        chance = random.Random(seed)
        with closing(open_store(None)) as store:
            gateway = Gateway(store)
            twins = [Twin(number, chance) for number in range(chance.choice([2, 2, 3]))]
            is_numbered = chance.random() < 0.4
            for moment in range(chance.randint(6, 16)):
                if chance.random() < 0.15:
                    gateway = Gateway(store)  # another process, which remembers nothing
                assert chance.choice(twins).turn(gateway, moment, is_numbered) == set(), seed


def test_thinking_of_another_model_is_not_restored(gateway):
    gateway.reply(gateway.ask(request("a")), thinking("secret"))
    other = Origin("anthropic", "up", "m2")
    assert restored(gateway.ask(request("a", "b", "c"), maker=other)) == []


def test_an_answer_echoed_in_pieces_is_one_answer(gateway):
    first = gateway.ask(request("a"))
    gateway.reply(first, thinking("secret", id=UNIQUE))
    pieces = (Message("assistant", (Text("b"),)), call(UNIQUE))
    then = Request("m", (*dialogue("a"), *pieces, result(UNIQUE)))
    recorded = gateway.ask(then, maker=MAKER)
    assert restored(recorded) == ["secret"]
    assert list(recorded.answers) == [(1, 3)]


# --- retries and failures


@pytest.mark.parametrize("hint", [None, "s"])
def test_a_repeated_failed_request_continues_in_its_thread(store, gateway, hint):
    first = gateway.ask(request("a"), hint=hint)
    gateway.fail(first)
    second = gateway.ask(request("a"), hint=hint)
    assert second.location.head == first.location.head
    location = gateway.reply(second, "b")
    assert (location.thread, location.branch) == (first.location.thread, "main")
    assert texts(store, location) == ["a", "b"]
    assert len(weft.thread.open(store, location.thread).attempts()) == 1


def test_a_failed_request_is_retried_by_one_client_only(gateway):
    first = gateway.ask(request("a"))
    gateway.fail(first)
    gateway.reply(gateway.ask(request("a")), "b")
    assert gateway.ask(request("a")).location.thread != first.location.thread


def test_a_declared_retry_continues_the_partial_answers_thread(gateway):
    first = gateway.ask(request("a"))
    gateway.fail(first, "some")
    assert gateway.ask(request("a")).location.thread != first.location.thread
    gateway.fail(gateway.ask(request("z")), "some")
    again = gateway.ask(request("a"), retry=True)
    assert again.location.thread == first.location.thread


def test_after_a_failed_first_turn_the_session_stays_one_thread(store, gateway):
    gateway.fail(gateway.ask(request("a"), hint="s"))
    location = gateway.turn(request("other"), "b", hint="s")
    assert location.thread == "s"
    assert [m.text for m in weft.thread.open(store, "s").compile().messages] == ["other", "b"]
    assert gateway.turn(request("other", "b", "c"), "d", hint="s").thread == "s"


def test_a_first_turn_that_fails_repeatedly_with_a_clock_stays_one_thread(store, gateway):
    for number in range(4):
        gateway.fail(gateway.ask(request("a", system=f"at {number}"), hint="s", retry=number > 0))
    gateway.turn(request("a", system="at 4"), "b", hint="s")
    location = gateway.turn(request("a", "b", "c", system="at 5"), "d", hint="s")
    assert branch_texts(store, "s") == {"main": ["at 5", "a", "b", "c", "d"]}
    assert (location.branch, len(store.threads())) == ("main", 1)


def test_text_added_to_a_failed_turn_continues_it(store, gateway):
    gateway.fail(gateway.ask(request("a"), hint="s"))
    longer = Request("m", (*dialogue("a"), *dialogue("please")))
    location = gateway.turn(longer, "b", hint="s")
    assert (location.thread, location.branch) == ("s", "main")
    assert texts(store, location) == ["a", "please", "b"]


def test_a_partial_answer_echoed_by_the_client_joins_the_branch(store, gateway):
    recorded = gateway.ask(request("a"), hint="s")
    record = FailureRecord(
        recorded.location.exchange, 1e9, FAILED, thinking("secret", "half"), recorded.location
    )
    record_failure(store, record, gateway.context)
    location = gateway.turn(request("a", "half", "go on"), "b", hint="s")
    assert (location.thread, location.branch) == ("s", "main")
    assert texts(store, location) == ["a", "half", "go on", "b"]
    messages = weft.thread.open(store, "s").compile().messages
    assert isinstance(messages[1].blocks[0], Thinking)


def test_two_answers_to_one_request_make_two_branches(store, gateway):
    records = [gateway.ask(request("a"), hint="s") for _ in range(2)]
    assert records[0].location.head == records[1].location.head
    for number, recorded in enumerate(records):
        gateway.reply(recorded, f"b{number}")
    assert branch_texts(store, "s") == {"answer-1-of-turn-1": ["a", "b0"], "main": ["a", "b1"]}


def test_a_duplicate_record_is_stored_once(store, gateway):
    """A slow write may land after its record was replayed from the journal."""
    records = [gateway.ask(request("a"), exchange="e1") for _ in range(2)]
    places = [(each.location.thread, each.location.branch, each.location.head) for each in records]
    assert places[0] == places[1]
    locations = [gateway.reply(recorded, "b") for recorded in records]
    assert locations[0].head == locations[1].head
    bare = AnswerRecord("e1", 1e9, dialogue("a", "b")[1])
    assert record_answer(store, bare, gateway.context).head == locations[0].head
    for _ in range(2):
        gateway.fail(records[0])
    assert len(weft.thread.open(store, locations[0].thread).attempts()) == 1
    assert texts(store, locations[0]) == ["a", "b"]
    assert len(store.threads()) == 1


# --- a client's own compaction

CLAUDE = "This session is being continued from a previous conversation. Summary:\nit was "
CODEX = "Another language model started to solve this problem. Summary:\nit was "
WEFT = "The conversation up to here was compacted. This summary stands in its place:\n\nit was "
SEALED = Opaque("openai-responses", {"type": "compaction", "encrypted_content": "it was a"})


@pytest.mark.parametrize(
    ("summary_texts", "summary", "continued"),
    [
        # the summary is requested after all turns; the newest turns are sent again, or not
        (("a", "b", "c", "d", "fold"), "it was a", (CLAUDE + "a", "d", "e")),
        (("a", "b", "c", "d", "fold"), "it was a", (CLAUDE + "a",)),
        (("a", "b", "c", "d", "fold"), "it was a", ("a", WEFT + "a", "note")),
        # the summary is requested after only some of the turns
        (("a", "b", "c fold"), "<summary>\nit was a\n</summary>", (CLAUDE + "a", "d", "e")),
    ],
    ids=["newest", "bare", "remote", "aside"],
)
def test_a_clients_compaction_becomes_a_compaction_of_its_thread(
    store, gateway, summary_texts, summary, continued
):
    gateway.turn(request("a"), "b", hint="claude-1")
    main = gateway.turn(request("a", "b", "c"), "d", hint="claude-1")
    gateway.turn(request(*summary_texts), summary, hint="claude-1")
    location = gateway.turn(request(*continued), "x", hint="claude-1")
    assert location.thread == "claude-1" == main.thread
    assert texts(store, location) == [*continued, "x"]
    further = gateway.turn(request(*continued, "x", "y"), "z", hint="claude-1")
    assert (further.thread, further.branch) == (location.thread, location.branch)
    assert len(store.threads()) == 1
    thread = weft.thread.open(store, "claude-1", branch=location.branch)
    thread.revert(next(info for info in thread.log() if info.kind == "compact"))
    assert texts(store, location)[:4] == ["a", "b", "c", "d"]


def test_a_compaction_that_keeps_a_call_is_still_a_compaction(store, gateway):
    """The call's id proves the conversation, but the list before it is another one."""
    gateway.turn(request("a"), "b", hint="claude-1")
    recorded = gateway.ask(request("a", "b", "c"), hint="claude-1")
    gateway.reply(recorded, call(UNIQUE))
    then = Request("m", (*dialogue(CLAUDE + "a"), call(UNIQUE), result(UNIQUE)))
    location = gateway.turn(then, "x", hint="claude-1")
    assert (location.thread, location.branch) == ("claude-1", "main")
    assert texts(store, location) == [CLAUDE + "a", "", "found", "x"]


def test_a_list_shortened_by_the_client_keeps_its_start(store, gateway):
    lead = (Message("developer", (Text("be brief"),)), Message("user", (Text("env"),)))
    begun = Request("m", (*lead, *dialogue("a")))
    gateway.turn(begun, "b", hint="codex-1")
    gateway.turn(Request("m", (*lead, *dialogue("a", "b", "fold"))), "it was a", hint="codex-1")
    shorter = Request(
        "m",
        (
            *lead,
            *dialogue("a"),
            *dialogue(CODEX + "a"),
            *dialogue("c"),
        ),
    )
    location = gateway.turn(shorter, "d", hint="codex-1")
    assert (location.thread, location.branch) == ("codex-1", "main")
    assert texts(store, location) == ["be brief", "env", "a", CODEX + "a", "c", "d"]


def test_tools_that_reappear_after_a_compaction_make_no_child_thread(store, gateway):
    """Codex asks for a summary without tools, and goes on in the middle of a turn."""
    gateway.turn(request("a", tools=(Tool("t"),)), "b", hint="codex-1")
    gateway.turn(request("a", "b", "fold"), "it was a", hint="codex-1")
    location = gateway.turn(request(CODEX + "a", tools=(Tool("t"),)), "c", hint="codex-1")
    assert (location.thread, location.branch) == ("codex-1", "main")
    assert weft.thread.open(store, "codex-1").compile().tools == (Tool("t"),)


def test_a_vendors_summary_is_a_compaction_too(store, gateway):
    gateway.turn(request("a"), "b", hint="codex-1")
    trigger = Message("user", (Opaque("openai-responses", {"type": "compaction_trigger"}),))
    recorded = gateway.ask(Request("m", (*dialogue("a", "b"), trigger)), hint="codex-1")
    gateway.reply(recorded, Message("assistant", (SEALED,)))
    shorter = Request(
        "m",
        (*dialogue("a"), Message("assistant", (SEALED,)), *dialogue("c")),
    )
    location = gateway.turn(shorter, "d", hint="codex-1")
    assert (location.thread, location.branch) == ("codex-1", "main")
    assert texts(store, location) == ["a", "", "c", "d"]


def test_a_subagents_compaction_belongs_to_the_subagent(gateway):
    gateway.turn(request("a"), "b", hint="claude-1")
    helper = gateway.turn(request("x"), "y", hint="claude-1")
    gateway.turn(request("x", "y", "fold"), "it was x", hint="claude-1")
    location = gateway.turn(request(CLAUDE + "x", "y", "z"), "!", hint="claude-1")
    assert (helper.thread, location.thread) == ("claude-1.2", "claude-1.2")


def test_a_summary_without_a_session_starts_a_thread(gateway):
    first = gateway.turn(request("a"), "b")
    assert gateway.turn(request(CLAUDE + "a", "b", "c"), "d").thread != first.thread
    location = gateway.turn(request(CLAUDE + "a", "b", "c"), "d", hint="claude-9")
    assert location.thread == "claude-9"


# --- names


@pytest.mark.parametrize(
    ("aside", "names"),
    [
        (
            request(
                "Generate a title for this conversation:\n",
                system="You are a title generator. You output ONLY a thread title. Nothing else.",
            ),
            ("s.2", "s"),
        ),  # opencode
        (request("x", system="You are a title generator."), ("s", "s.2")),  # a person's program
        (request("Generate a title for this conversation:"), ("s", "s.2")),  # a person
        (request("Find the title of this book.", tools=(Tool("t"),)), ("s", "s.2")),
        (request("hello"), ("s", "s.2")),
    ],
)
def test_a_title_request_does_not_take_the_sessions_name(gateway, aside, names):
    first = gateway.turn(aside, "y", hint="s")
    assert (first.thread, gateway.turn(request("a"), "b", hint="s").thread) == names
    assert gateway.turn(request("a", "b", "c"), "d", hint="s").thread == names[1]


def test_two_gateways_on_one_store_share_the_setup(store):
    """The cached state of a branch is valid only for the commit that this gateway left there."""
    gateways = [Gateway(store) for _ in range(2)]
    texts = ["a"]
    first, second = (Tool("one"),), (Tool("two"),)
    plan = [(0, first, "b"), (1, second, "c"), (0, first, "d"), (0, first, "e"), (1, first, "f")]
    names = set()
    for number, tools, reply in plan:
        new_request = Request("m", dialogue(*texts), tools=tools)
        location = gateways[number].turn(new_request, reply, hint="s")
        thread = weft.thread.open(store, location.thread, branch=location.branch)
        assert thread.compile().tools == tools
        texts.extend([reply, f"after {reply}"])
        names.add(location.thread)
    assert len(names) == 1
    setups = [info for info in weft.thread.open(store, *names).log() if info.kind == "setup"]
    assert len(setups) == 3


@pytest.mark.parametrize(
    ("headers", "params", "name"),
    [
        ({"x-claude-code-session-id": "0a-1"}, Params(), "claude-0a-1"),
        (
            {"x-claude-code-session-id": "0a-1", "x-claude-code-agent-id": "a7"},
            Params(),
            "claude-0a-1.a7",
        ),
        ({"session_id": "abc"}, Params(), "codex-abc"),
        ({"session-id": "parent", "thread-id": "own"}, Params(), "codex-own"),
        ({"x-session-id": "ses_1"}, Params(), "session-ses_1"),
        ({}, Params(prompt_cache_key="01-ff"), None),  # shared by whoever shares a cache
        (
            {},
            Params(metadata={"user_id": "user_9_account__session_0a1b2c3d-4"}),
            "claude-0a1b2c3d-4",
        ),
        ({}, Params(metadata={"user_id": '{"session_id": "s-3"}'}), "claude-s-3"),
        ({}, Params(metadata={"user_id": "u1"}), None),  # a person, not a session
        ({}, Params(metadata={"user_id": "[1]"}), None),
        ({}, Params(user="u1"), None),
        ({"x-weft-thread": "../../etc"}, Params(prompt_cache_key="x"), "etc-74ccf3c5b4c1"),
        ({"x-weft-thread": "///"}, Params(), "732c4e971163"),
        ({"x-weft-thread": "n" * 500}, Params(), "n" * 80 + "-2c62ce9604b9"),
        ({}, Params(), None),
    ],
)
def test_a_session_is_read_from_client_headers_and_bodies(headers, params, name):
    assert read_hint(headers, Request("m", (), params=params)) == name


@pytest.mark.parametrize(
    "values",
    [
        ("user/1", "user 1", "user-1"),
        ("a:b", "a-b", "-a-b"),
        ("x" * 80 + "1", "x" * 80 + "2"),
        ("caf\u00e9", "caf\u00ea", "caf"),
        ("\u7528\u6237\u7532", "\u7528\u6237\u4e59"),
    ],
)
def test_different_names_are_different_sessions(values):
    names = {read_hint({"x-session-id": value}, Request("m", ())) for value in values}
    assert len(names) == len(values)
    assert None not in names


@pytest.mark.parametrize(
    ("headers", "retry"),
    [
        ({}, False),
        ({"x-stainless-retry-count": "0"}, False),
        ({"x-stainless-retry-count": "2"}, True),
    ],
)
def test_an_sdk_retry_is_recognised(headers, retry):
    assert is_retry(headers) is retry


def test_members_of_records_keep_their_names_in_the_journal():
    location = RequestLocation("e", "s", True, "t", "main", "00", None, b"", b"")
    continuation = Continuation("t", b"c", 1)
    messages = (Message("user", (Text("a"),)),)
    request_record = RequestRecord("e", 1.0, "s", None, messages, (), False, True, continuation)
    answered = AnswerRecord("e", 1.0, messages[0], location=location)
    failed = FailureRecord("e", 1.0, FAILED, location=location)
    names = {"type", "exchange", "created", "scope", "hint", "messages", "tools", "is_retry"}
    assert set(msgspec.to_builtins(request_record)) == names | {
        "is_aside",
        "named",
        "is_summary_request",
        "kind",
        "parent",
    }
    assert "ticket" in msgspec.to_builtins(answered)
    assert "ticket" in msgspec.to_builtins(failed)
    assert "shows_edits" in msgspec.to_builtins(location)


# --- sessions that were imported, and sessions that are imported later


def session_file(*texts, calls=False):
    session = Session()
    for number, text in enumerate(texts):
        if number % 2 == 0:
            session.user(text)
        elif calls:
            session.calls(f"m{number}", f"toolu_{number}x7Yq9Lz4Kp2")
            session.result(f"toolu_{number}x7Yq9Lz4Kp2", f"result of {number}")
            session.says(f"t{number}", text)
        else:
            session.says(f"m{number}", text)
    return session.data


LIVE = f"claude-{SESSION}"


def claude_request(*texts):
    """A request of Claude Code, with its context in and around the first message."""
    first, *later = dialogue(*texts)
    reminder = Text("<system-reminder>Today is Sunday.</system-reminder>")
    opening = Message("user", (reminder, *first.blocks))
    return Request("m", (Message("system", (Text("You are an agent."),)), opening, *later))


def visible_texts(store, thread):
    messages = weft.thread.open(store, thread).compile().messages
    return [m.text.split("</system-reminder>")[-1].strip() for m in messages if m.role != "system"]


def test_live_traffic_continues_the_imported_session(store, gateway):
    (imported,) = weft.thread.import_bytes(store, session_file("a", "b", "c", "d"))
    first = gateway.turn(claude_request("a", "b", "c", "d", "e"), "f", hint=LIVE)
    second = gateway.turn(claude_request("a", "b", "c", "d", "e", "f", "g"), "h", hint=LIVE)
    assert {first.thread, second.thread} == {imported.thread}
    assert weft.thread.open(store, imported.thread).branches().keys() == {"main"}
    assert visible_texts(store, imported.thread) == ["a", "b", "c", "d", "e", "f", "g", "h"]
    assert len(store.threads()) == 1


def test_a_rewind_into_the_imported_part_is_a_branch(store, gateway):
    (imported,) = weft.thread.import_bytes(store, session_file("a", "b", "c", "d"))
    gateway.turn(claude_request("a", "b", "c", "d", "e"), "f", hint=LIVE)
    location = gateway.turn(claude_request("a", "b", "x"), "y", hint=LIVE)
    assert location.thread == imported.thread
    assert visible_texts(store, imported.thread) == ["a", "b", "x", "y"]
    assert len(weft.thread.open(store, imported.thread).branches()) == 2


def test_the_file_of_a_live_session_is_the_same_thread(store, gateway):
    gateway.turn(claude_request("a"), "b", hint=LIVE)
    gateway.turn(claude_request("a", "b", "c"), "d", hint=LIVE)
    (imported,) = weft.thread.import_bytes(store, session_file("a", "b", "c", "d"))
    assert (imported.thread, imported.new, imported.behind) == (LIVE, 0, ("main",))
    (imported,) = weft.thread.import_bytes(store, session_file("a", "b", "c", "d", "e", "f"))
    assert (imported.thread, imported.new, imported.behind) == (LIVE, 2, ())
    assert weft.thread.open(store, LIVE).branches().keys() == {"main"}
    assert visible_texts(store, LIVE) == ["a", "b", "c", "d", "e", "f"]
    location = gateway.turn(claude_request("a", "b", "c", "d", "e", "f", "g"), "h", hint=LIVE)
    assert (location.thread, location.branch) == (LIVE, "main")
    assert visible_texts(store, LIVE) == ["a", "b", "c", "d", "e", "f", "g", "h"]


def test_import_live_and_import_again_is_one_branch(store, gateway):
    (first,) = weft.thread.import_bytes(store, session_file("a", "b"))
    gateway.turn(claude_request("a", "b", "c"), "d", hint=LIVE)
    (older,) = weft.thread.import_bytes(store, session_file("a", "b"))
    (again,) = weft.thread.import_bytes(store, session_file("a", "b", "c", "d", "e", "f"))
    assert (older.new, older.behind, again.new) == (0, ("main",), 2)
    assert {first.thread, older.thread, again.thread} == {SESSION}
    assert weft.thread.open(store, SESSION).branches().keys() == {"main"}
    assert visible_texts(store, SESSION) == ["a", "b", "c", "d", "e", "f"]


def test_an_imported_session_with_calls_continues_with_other_results(store, gateway):
    """The client clears old results; the calls are still the same."""
    (imported,) = weft.thread.import_bytes(store, session_file("a", "b", calls=True))
    call = ToolCall("toolu_1x7Yq9Lz4Kp2", "Bash", '{"command": "toolu_1x7Yq9Lz4Kp2", "timeout": 5}')
    messages = (
        Message("user", (Text("a"),)),
        Message("assistant", (call,)),
        Message("user", (ToolResult(call.id, (Text("cleared"),)),)),
        Message("assistant", (Text("b"),)),
        Message("user", (Text("c"),)),
    )
    location = gateway.turn(Request("m", messages), "d", hint=LIVE)
    assert location.thread == imported.thread
    assert weft.thread.open(store, imported.thread).branches().keys() == {"main"}
    assert visible_texts(store, imported.thread)[-2:] == ["c", "d"]


def test_an_edit_of_the_first_message_does_not_continue_the_imported_session(store, gateway):
    weft.thread.import_bytes(store, session_file("a", "b", "c", "d"))
    location = gateway.turn(claude_request("x", "b", "c", "d", "e"), "f", hint=LIVE)
    assert location.thread != SESSION
    assert visible_texts(store, location.thread) == ["x", "b", "c", "d", "e", "f"]
    assert visible_texts(store, SESSION) == ["a", "b", "c", "d"]


def test_a_file_with_another_first_message_is_a_branch_of_the_live_session(store, gateway):
    gateway.turn(claude_request("a"), "b", hint=LIVE)
    gateway.turn(claude_request("a", "b", "c"), "d", hint=LIVE)
    (imported,) = weft.thread.import_bytes(store, session_file("x", "b", "c", "d"))
    assert imported.thread == LIVE
    assert visible_texts(store, LIVE) == ["a", "b", "c", "d"]
    assert ["x", "b", "c", "d"] in branch_texts(store, LIVE).values()


def test_a_session_with_only_the_imported_name_is_a_child(store, gateway):
    weft.thread.import_bytes(store, session_file("a", "b", "c", "d"))
    location = gateway.turn(claude_request("a", "no", "c"), "d", hint=LIVE)
    assert location.thread != SESSION
    assert visible_texts(store, SESSION) == ["a", "b", "c", "d"]


def test_callers_with_keys_do_not_reach_imported_sessions(store):
    weft.thread.import_bytes(store, session_file("a", "b"))
    location = Gateway(store, "k1").turn(claude_request("a", "b", "c"), "d", hint=LIVE)
    assert location.thread != SESSION
    (imported,) = weft.thread.import_bytes(store, session_file("a", "b", "c", "d"))
    assert imported.thread == SESSION


# --- children of a session


def side(kind, text="hello"):
    """A side question of Claude Code: no tools, and the prompt in the system text."""
    prompts = {
        "title": "You are naming a coding session so the user can pick it out of a long list of "
        "sessions. Lead with the most specific thing.",
        "topic": "Analyze if this message indicates a new conversation topic. If it does, extract "
        "a 2-3 word title that captures the new topic. Format: isNewTopic, title.",
    }
    lead = (Message("system", (Text("You are an agent."), Text(prompts[kind]))),)
    return Request("m", (*lead, Message("user", (Text(f"<session>\n{text}\n</session>"),))))


def families(store):
    return {
        record.name: (record.parent, record.kind, record.title)
        for record in store.threads()
        if record.parent or record.kind or record.title
    }


@pytest.mark.parametrize("kind", ["title", "topic"])
@pytest.mark.parametrize(
    "answer",
    ['{"title": "Letters"}', '{"isNewTopic": true, "title": "Letters"}', "**Letters**\n"],
)
def test_a_title_request_is_a_child_and_its_answer_the_title(store, gateway, kind, answer):
    gateway.turn(request("a"), "b", hint="claude-1")
    gateway.turn(side(kind), answer, hint="claude-1")
    gateway.turn(request("a", "b", "c"), "d", hint="claude-1")
    assert families(store) == {
        "claude-1": (None, None, "Letters"),
        "claude-1.2": ("claude-1", kind, "Letters"),
    }
    assert weft.thread.read_title(store, store.read_thread("claude-1")) == "Letters"


def test_a_title_request_may_come_first(store, gateway):
    recorded = gateway.ask(side("title"), hint="claude-1")
    gateway.reply(recorded, '{"title": "Letters"}')
    location = gateway.turn(request("a"), "b", hint="claude-1")
    assert location.thread == "claude-1"
    assert families(store) == {
        "claude-1": (None, None, "Letters"),
        "claude-1.2": ("claude-1", "title", "Letters"),
    }


def test_a_failed_title_request_does_not_take_the_conversation(store, gateway):
    gateway.fail(gateway.ask(side("title"), hint="claude-1"))
    location = gateway.turn(request("a"), "b", hint="claude-1")
    assert (location.thread, location.branch) == ("claude-1", "main")
    assert families(store) == {"claude-1.2": ("claude-1", "title", None)}


@pytest.mark.parametrize("answer", ["{}", '{"isNewTopic": false, "title": null}', "{broken}", " "])
def test_an_answer_without_a_title_changes_nothing(store, gateway, answer):
    gateway.turn(request("a"), "b", hint="claude-1")
    gateway.turn(side("title"), answer, hint="claude-1")
    assert store.read_thread("claude-1").title is None


def test_a_name_chosen_by_the_user_is_not_replaced(store, gateway):
    gateway.turn(request("a"), "b", hint="claude-1")
    weft.thread.open(store, "claude-1").rename("mine")
    gateway.turn(side("title"), '{"title": "Letters"}', hint="claude-1")
    assert families(store) == {"claude-1.2": ("mine", "title", "Letters")}


def test_an_account_check_is_a_child(store, gateway):
    user = {"user_id": "user_0_account__session_01234567-89ab-cdef-0123-456789abcdef"}
    params = Params(max_tokens=1, metadata=user)
    check = Request("m", dialogue("quota"), params=params)
    gateway.turn(check, "q", hint="claude-1")
    assert gateway.turn(request("a"), "b", hint="claude-1").thread == "claude-1"
    assert families(store) == {"claude-1.2": ("claude-1", "check", None)}


@pytest.mark.parametrize("is_first", [True, False], ids=["before its parent", "after it"])
def test_a_subagent_is_a_child_of_its_session(store, gateway, is_first):
    def work():
        gateway.turn(request("look"), "there", hint="claude-1.agent7", parent="claude-1")

    if is_first:
        work()
    gateway.turn(request("a"), "b", hint="claude-1")
    if not is_first:
        work()
    assert families(store) == {"claude-1.agent7": ("claude-1", "agent", None)}


def test_the_parents_of_subagents_are_read_from_their_headers():
    claude = {"x-claude-code-session-id": "s-1", "x-claude-code-agent-id": "a7"}
    codex = {"thread-id": "t-2", "session-id": "s-2"}
    assert read_parent_hint(claude, request("a")) == "claude-s-1"
    assert read_parent_hint(codex, request("a")) == "codex-s-2"
    for none in ({"x-claude-code-session-id": "s-1"}, {"thread-id": "x", "session-id": "x"}, {}):
        assert read_parent_hint(none, request("a")) is None


def test_the_file_of_a_subagent_is_a_child_in_either_order(store):
    main, agent = session_file("a", "b"), Session()
    agent.user("look there", sidechain=True, agentId="agent7")
    agent.says("s1", "seen", sidechain=True, agentId="agent7")
    weft.thread.import_bytes(store, agent.data)
    weft.thread.import_bytes(store, main)
    weft.thread.import_bytes(store, agent.data)
    assert families(store) == {f"{SESSION}.agent7": (SESSION, "agent", None)}


def test_a_failed_first_turn_and_the_next_one_are_one_thread(store, gateway):
    gateway.fail(gateway.ask(request("a"), hint="claude-1"))
    location = gateway.turn(request("a, shorter"), "b", hint="claude-1")
    assert (location.thread, location.branch) == ("claude-1", "main")
    assert branch_texts(store, "claude-1") == {
        "before-edit-of-turn-1": ["a"],
        "main": ["a, shorter", "b"],
    }
    (attempt,) = weft.thread.open(store, "claude-1", branch="before-edit-of-turn-1").attempts()
    assert attempt.state == "failed"
    assert [record.name for record in store.threads()] == ["claude-1"]


# --- the client's version of an answer


def edit(arguments, *texts):
    blocks = [Text(text) for text in texts]
    return Message("assistant", (*blocks, ToolCall("toolu_8Kd2Lx9Qw1", "Edit", arguments)))


def edited_session(gateway, echo):
    """A session in which the client sends the first answer back like this; the answer's commit."""
    answer = edit('{"file_path":"a.py","new_string":"b  "}', "\n\n")
    first = gateway.turn(Request("m", dialogue("go")), answer, hint="s")
    result = Message("tool", (ToolResult("toolu_8Kd2Lx9Qw1", (Text("done"),)),))
    gateway.turn(Request("m", (*dialogue("go"), echo, result)), "ok", hint="s")
    return first.head


def test_the_models_answer_is_stored_beside_the_clients_version(store, gateway):
    echo = edit('{"replace_all":false,"file_path":"a.py","new_string":"b"}')
    commit = edited_session(gateway, echo)
    thread = weft.thread.open(store, "s")
    assert thread.branches().keys() == {"main"}
    (call,) = [b for m in thread.compile().messages for b in m.blocks if isinstance(b, ToolCall)]
    assert call.arguments == '{"file_path":"a.py","new_string":"b  "}'
    assert thread.client_echo(commit) == echo
    assert thread.client_echo(thread.log()[0]) is None
    for format in ("claude-code", "codex", "anthropic", "openai-chat", "dicts"):
        assert b"replace_all" not in weft.thread.export_bytes(store, "s", format)[0]
    weft.thread.forget(store, "replace_all")
    assert b"replace_all" not in weft.thread.archive_bytes(store, ["s"])
    assert weft.thread.fsck(store).clean


@pytest.mark.parametrize(
    "echo",
    [
        edit('{"file_path":"a.py","new_string":"b  "}', "\n\n"),
        edit('{"new_string": "b  ", "file_path": "a.py"}'),  # the same object, without blank text
    ],
    ids=["equal", "equal in meaning"],
)
def test_an_equal_echo_is_not_stored(store, gateway, echo):
    commit = edited_session(gateway, echo)
    assert weft.thread.open(store, "s").client_echo(commit) is None


def test_the_clients_version_is_shown_with_the_commit(tmp_path, capfd):
    store = open_store(tmp_path / "weft.db")
    commit = edited_session(Gateway(store), edit('{"replace_all":false,"file_path":"a.py"}'))
    store.close()
    words = ["show", commit, "--store", str(tmp_path / "weft.db"), "--thread", "s"]
    assert main(words) == 0
    assert "the client repeats it as: " in capfd.readouterr().out
    assert main([*words, "--json"]) == 0
    (call,) = json.loads(capfd.readouterr().out)["echo"]["calls"]
    assert call["arguments"] == '{"replace_all":false,"file_path":"a.py"}'


def test_a_session_linked_before_its_first_message_starts_in_that_thread(store):
    scope = "a-caller"
    gateway = Gateway(store, scope)
    thread = weft.thread.open(store, "my chat")
    thread.setup()
    weft.thread.link_session(store, "my chat", "s", scope)
    assert Gateway(store).turn(request("a"), "b", hint="s").thread != "my chat"  # another caller's
    title = side("title", "a")
    aside = gateway.turn(title, "t", hint="s")
    assert aside.thread != "my chat"
    first = gateway.turn(request("a", system="S"), "b", hint="s")
    second = Gateway(store, scope).turn(request("a", "b", "c", system="S"), "d", hint="s")
    assert {(each.thread, each.branch) for each in (first, second)} == {("my chat", "main")}
    assert texts(store, second) == ["S", "a", "b", "c", "d"]
    assert store.read_thread("my chat").scope == scope
    assert store.read_thread(aside.thread).parent == "my chat"


def test_a_session_file_written_for_a_caller_continues_that_callers_thread(store):
    scope = "a-caller"
    thread = weft.thread.open(store, "mine", scope=scope)
    thread.user("a")
    thread.assistant("b")
    session = "0a6b1c52-8f0e-4f6e-9c55-5d1f8c9ab001"
    weft.thread.write_session(store, "mine", "claude-code", session, scope=scope)
    hint = weft.thread.session_name("claude-code", session)
    location = Gateway(store, scope).turn(request("a", "b", "c"), "d", hint=hint)
    assert (location.thread, location.branch) == ("mine", "main")
    assert Gateway(store).turn(request("a", "b", "c"), "d", hint=hint).thread != "mine"


CALL = Message("assistant", (ToolCall("call_x7Yq9Lz4Kp2", "ls", "{}"),))
FILES = Message("tool", (ToolResult("call_x7Yq9Lz4Kp2", (Text("files"),)),))


class Codex:
    """Codex with sessions of one thread.

    It sends its context at the start of a conversation. In a session that it resumes from a file
    of Weft, which has no context, it sends it before the first new question.
    """

    def __init__(self, gateway, *, skills, calls):
        self.gateway, self.calls, self.session = gateway, calls, 0
        self.history = []
        self.send_context(skills)

    def send_context(self, skills):
        environment = "<environment_context><cwd>/home/ann</cwd></environment_context>"
        self.history.append(Message("developer", (Text(skills),)))
        self.history.append(Message("user", (Text(environment),)))

    def turn(self, question, answer):
        self.history += dialogue(question)
        if self.calls:
            self.ask(CALL)
            self.history.append(FILES)
            self.calls = False
        self.ask(Message("assistant", (Text(answer),)))

    def ask(self, answer):
        prompt = Message("developer", (Text("You are Codex."),))
        request = Request("m", (prompt, *self.history))
        self.gateway.turn(request, answer, hint=f"codex-{self.session}")
        self.history.append(answer)

    def resume(self, skills):
        """Continue in a new session, from a file of Weft."""
        self.session += 1
        store, name = self.gateway.store, str(self.session)
        weft.thread.write_session(store, "codex-0", "codex", name)
        self.history = [
            message
            for message in self.history
            if message.role != "developer" and "<environment_context>" not in message.text
        ]
        self.send_context(skills)


@pytest.mark.parametrize("calls", [False, True])  # a call's id proves the conversation
@pytest.mark.parametrize("skills", ["Skills: none.", "Skills: cook."])  # as before, or changed
def test_codex_sessions_that_weft_resumed_are_one_branch(store, gateway, skills, calls):
    codex = Codex(gateway, skills="Skills: none.", calls=calls)
    codex.turn("a", "b")
    codex.turn("c", "d")
    typed = "abcd"
    for letters in ("efgh", "ijkl", "mnop"):
        codex.resume(skills)
        codex.turn(letters[0], letters[1])
        codex.turn(letters[2], letters[3])
        typed += letters
        ((branch, texts),) = branch_texts(store, "codex-0").items()
        assert branch == "main"
        assert "".join(text for text in texts if len(text) == 1) == typed
        prompts = [text for text in texts if text.startswith(("You", "Skills"))]
        assert prompts == ["You are Codex.", skills]
    assert [thread.name for thread in store.threads()] == ["codex-0"]


def test_a_thread_with_codex_prompts_recorded_twice_gets_them_once(store, gateway):
    """A rollout with the prompts in it made Codex send them twice."""
    codex = Codex(gateway, skills="Skills: none.", calls=False)
    codex.turn("a", "b")
    codex.history.insert(0, Message("developer", (Text("You are Codex."),)))
    codex.send_context("Skills: none.")
    codex.turn("c", "d")
    assert branch_texts(store, "codex-0")["main"].count("You are Codex.") == 2
    codex.resume("Skills: none.")
    codex.turn("e", "f")
    texts = branch_texts(store, "codex-0")["main"]
    assert [texts.count(text) for text in ("You are Codex.", "Skills: none.")] == [1, 1]
    assert "".join(text for text in texts if len(text) == 1) == "abcdef"
