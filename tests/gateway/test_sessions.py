"""Which thread a stateless request belongs to."""

import asyncio

import orjson
import pytest

import weft.thread
from weft.gateway import remote
from weft.gateway.auth import Caller
from weft.gateway.hints import read_hint
from weft.gateway.sessions import Recorder, file_answer, file_request, find_answer
from weft.model import Message, Opaque, Params, Request, Response, Text, Tool
from weft.store import open_store

ME = Caller()


def said(*texts):
    """Turns that alternate between user and assistant."""
    roles = ("user", "assistant")
    return tuple(Message(roles[i % 2], (Text(text),)) for i, text in enumerate(texts))


def request(*texts, system=None, **more):
    lead = () if system is None else (Message("system", (Text(system),)),)
    return Request("m", (*lead, *said(*texts)), **more)


def answer(text, id=None):
    return Response(Message("assistant", (Text(text),)), id=id)


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    opened = open_store(None if request.param == "memory" else tmp_path / "weft.db")
    yield opened
    opened.close()


def file(store, req, reply=None, *, caller=ME, hint=None, id=None):
    ticket = file_request(store, caller, hint, req, {})
    return ticket if reply is None else file_answer(store, ticket, answer(reply, id))


def texts(store, ticket):
    compiled = weft.thread.open(store, ticket.thread, branch=ticket.branch).compile()
    return [message.text for message in compiled.messages]


def test_only_the_new_suffix_is_committed(store):
    file(store, request("a"), "b")
    ticket = file(store, request("a", "b", "c"), "d")
    thread = weft.thread.open(store, ticket.thread)
    assert texts(store, ticket) == ["a", "b", "c", "d"]
    assert len(thread.log()) == 4
    assert len(store.threads()) == 1


def test_a_divergence_becomes_a_branch_and_each_branch_goes_on(store):
    file(store, request("a"), "b")
    first = file(store, request("a", "b", "c"), "d")
    second = file(store, request("a", "b", "x"), "y")
    assert (first.branch, second.branch) == ("main", "branch-2")
    again = file(store, request("a", "b", "x", "y", "z"), "!")
    assert (again.thread, again.branch) == (first.thread, "branch-2")
    assert texts(store, again) == ["a", "b", "x", "y", "z", "!"]
    assert texts(store, first) == ["a", "b", "c", "d"]


def test_two_answers_to_one_request_are_two_branches(store):
    tickets = [file(store, request("a")) for _ in range(2)]
    assert tickets[0] == tickets[1]
    filed = [file_answer(store, ticket, answer(f"b{n}")) for n, ticket in enumerate(tickets)]
    assert [texts(store, ticket) for ticket in filed] == [["a", "b0"], ["a", "b1"]]


@pytest.mark.parametrize(
    ("hint", "threads"), [(None, 2), ("session-1", 1)], ids=["nameless", "named"]
)
def test_conversations_that_begin_alike_are_two_threads(store, hint, threads):
    first = file(store, request("hello"), "one", hint=hint)
    second = file(store, request("hello"), "two", hint=hint)
    assert len({first.thread, second.thread}) == threads
    further = file(store, request("hello", "one", "and?"), hint=hint)
    assert further.thread == first.thread
    assert texts(store, further) == ["hello", "one", "and?"]


def test_a_request_with_more_in_it_is_no_retry(store):
    first = file(store, request("hello"))
    longer = Request("m", (*said("hello"), *said("more")))
    assert file(store, longer).thread != first.thread


def test_another_system_prompt_is_the_same_conversation(store):
    first = file(store, request("a", system="one"), "b")
    second = file(store, request("a", "b", "c", system="two"), "d")
    assert (second.thread, second.branch) == (first.thread, first.branch)


def test_nothing_in_common_is_a_new_thread(store):
    assert file(store, request("a"), "b").thread != file(store, request("x"), "y").thread


def test_one_callers_threads_are_not_found_by_another(store):
    first = file(store, request("a"), "b", caller=Caller("k1"))
    second = file(store, request("a", "b", "c"), "d", caller=Caller("k2"))
    assert first.thread != second.thread


def test_a_named_session_keeps_its_sub_agents_beside_it(store):
    main = file(store, request("a"), "b", hint="claude-1")
    helper = file(store, request("x"), "y", hint="claude-1")
    assert (main.thread, helper.thread) == ("claude-1", "claude-1.2")
    assert file(store, request("a", "b", "c"), hint="claude-1").thread == "claude-1"
    assert file(store, request("x", "y", "z"), hint="claude-1").thread == "claude-1.2"
    assert file(store, request("a", "b", "c")).thread not in ("claude-1", "claude-1.2")


CLAUDE = "This session is being continued from a previous conversation. Summary:\nit was "
CODEX = "Another language model started to solve this problem. Summary:\nit was "
WEFT = remote.OPENING + "it was "
SEALED = Opaque("openai-responses", {"type": "compaction", "encrypted_content": "it was a"})


@pytest.mark.parametrize(
    ("asked", "summary", "then"),
    [
        # the summary is asked for behind everything; the newest turns come again, or do not
        (("a", "b", "c", "d", "fold"), "it was a", (CLAUDE + "a", "d", "e")),
        (("a", "b", "c", "d", "fold"), "it was a", (CLAUDE + "a",)),
        (("a", "b", "c", "d", "fold"), "it was a", ("a", WEFT + "a", "note")),
        # the summary is asked for behind less than everything: a side road
        (("a", "b", "c fold"), "<summary>\nit was a\n</summary>", (CLAUDE + "a", "d", "e")),
    ],
    ids=["newest", "bare", "remote", "aside"],
)
def test_a_clients_own_compaction_is_one_of_its_thread(store, asked, summary, then):
    file(store, request("a"), "b", hint="claude-1")
    file(store, request("a", "b", "c"), "d", hint="claude-1")
    file(store, request(*asked), summary, hint="claude-1")
    ticket = file(store, request(*then), "x", hint="claude-1")
    assert (ticket.thread, ticket.branch) == ("claude-1", "main")
    assert texts(store, ticket) == [*then, "x"]
    further = file(store, request(*then, "x", "y"), "z", hint="claude-1")
    assert (further.thread, further.branch) == ("claude-1", "main")
    assert len(store.threads()) == 1
    thread = weft.thread.open(store, "claude-1")
    thread.revert(next(info for info in thread.log() if info.kind == "compact"))
    assert texts(store, ticket)[:4] == ["a", "b", "c", "d"]


def test_a_list_that_a_client_shortened_keeps_its_beginning(store):
    lead = (Message("developer", (Text("be brief"),)), Message("user", (Text("env"),)))
    begun = Request("m", (*lead, *said("a")))
    file(store, begun, "b", hint="codex-1")
    file(store, Request("m", (*lead, *said("a", "b", "fold"))), "it was a", hint="codex-1")
    shorter = Request("m", (*lead, *said("a"), *said(CODEX + "a"), *said("c")))
    ticket = file(store, shorter, "d", hint="codex-1")
    assert (ticket.thread, ticket.branch) == ("codex-1", "main")
    assert texts(store, ticket) == ["be brief", "env", "a", CODEX + "a", "c", "d"]


def test_tools_that_come_back_after_a_compaction_are_no_side_road(store):
    """Codex asks for a summary without tools, and goes on in the middle of a turn."""
    file(store, request("a", tools=(Tool("t"),)), "b", hint="codex-1")
    file(store, request("a", "b", "fold"), "it was a", hint="codex-1")
    ticket = file(store, request(CODEX + "a", tools=(Tool("t"),)), "c", hint="codex-1")
    assert (ticket.thread, ticket.branch) == ("codex-1", "main")
    assert weft.thread.open(store, "codex-1").compile().tools == (Tool("t"),)


def test_a_vendors_own_summary_is_a_compaction_too(store):
    file(store, request("a"), "b", hint="codex-1")
    trigger = Message("user", (Opaque("openai-responses", {"type": "compaction_trigger"}),))
    asked = file(store, Request("m", (*said("a", "b"), trigger)), hint="codex-1")
    file_answer(store, asked, Response(Message("assistant", (SEALED,))))
    shorter = Request("m", (*said("a"), Message("assistant", (SEALED,)), *said("c")))
    ticket = file(store, shorter, "d", hint="codex-1")
    assert (ticket.thread, ticket.branch) == ("codex-1", "main")
    assert texts(store, ticket) == ["a", "", "c", "d"]


def test_a_sub_agents_own_compaction_is_the_sub_agents(store):
    file(store, request("a"), "b", hint="claude-1")
    helper = file(store, request("x"), "y", hint="claude-1")
    file(store, request("x", "y", "fold"), "it was x", hint="claude-1")
    ticket = file(store, request(CLAUDE + "x", "y", "z"), hint="claude-1")
    assert (helper.thread, ticket.thread, ticket.branch) == ("claude-1.2", "claude-1.2", "main")


def test_a_summary_without_a_session_begins_a_thread(store):
    first = file(store, request("a"), "b")
    assert file(store, request(CLAUDE + "a", "b", "c")).thread != first.thread
    assert file(store, request(CLAUDE + "a", "b", "c"), hint="claude-9").thread == "claude-9"


@pytest.mark.parametrize(
    ("aside", "names"),
    [
        (request("x", system="You are a title generator."), ("s.2", "s")),
        (request("Generate a title for this conversation:"), ("s.2", "s")),
        (request("Find the title of this book.", tools=(Tool("t"),)), ("s", "s.2")),
        (request("hello"), ("s", "s.2")),
    ],
)
def test_a_question_for_a_title_does_not_take_the_sessions_name(store, aside, names):
    first = file(store, aside, "y", hint="s")
    assert (first.thread, file(store, request("a"), "b", hint="s").thread) == names
    assert file(store, request("a", "b", "c"), hint="s").thread == names[1]


def test_tools_that_change_are_kept_with_the_branch(store):
    file(store, request("a", tools=(Tool("t1"),)), "b")
    ticket = file(store, request("a", "b", "c", tools=(Tool("t1"), Tool("t2"))), "d")
    compiled = weft.thread.open(store, ticket.thread).compile()
    assert [tool.name for tool in compiled.tools] == ["t1", "t2"]
    assert [
        tool.name for tool in weft.thread.open(store, ticket.thread).compile(at=ticket.head).tools
    ] == [
        "t1",
        "t2",
    ]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_two_gateways_on_one_store_know_each_others_tools(kind, request, tmp_path):
    """What one of them remembers of a branch is true only of the commit that it left there."""
    address = tmp_path / "weft.db" if kind == "sqlite" else request.getfixturevalue("postgres")
    stores = [open_store(address) for _ in range(2)]
    gateways = [Recorder(store) for store in stores]
    spoken = ["a"]

    async def turn(gateway, tools, reply):
        asked = Request("m", said(*spoken), tools=tools)
        ticket = await gateway.begin(ME, None, asked)
        body = orjson.dumps([spoken, [tool.name for tool in tools]])
        sent = gateway.keep_sent(ticket, body, "own", "m")
        filed = await gateway.finish(ticket, answer(reply), sent)
        thread = weft.thread.open(gateway.store, filed.thread, branch=filed.branch)
        assert thread.compile().tools == tools
        assert thread.show(filed.head, sent=True).body == body
        spoken.extend([reply, f"after {reply}"])
        return filed.thread

    first, second = (Tool("one"),), (Tool("two"),)
    plan = [(0, first, "b"), (1, second, "c"), (0, first, "d"), (0, first, "e"), (1, first, "f")]
    names = {asyncio.run(turn(gateways[n], tools, reply)) for n, tools, reply in plan}
    assert len(names) == 1
    setups = [info for info in weft.thread.open(stores[0], *names).log() if info.kind == "setup"]
    assert len(setups) == 3
    for gateway, store in zip(gateways, stores, strict=True):
        gateway.close()
        store.close()


def test_an_answer_is_found_by_its_id_by_its_own_caller(store):
    ticket = file(store, request("a"), "b", id="msg_1")
    assert find_answer(store, ME, "msg_1") == ticket
    assert find_answer(store, Caller("other"), "msg_1") is None
    assert find_answer(store, ME, "msg_2") is None


@pytest.mark.parametrize(
    ("headers", "params", "name"),
    [
        ({"x-claude-code-session-id": "0a-1"}, Params(), "claude-0a-1"),
        ({"session_id": "abc"}, Params(), "codex-abc"),
        ({"x-session-id": "ses_1"}, Params(), "session-ses_1"),
        ({}, Params(prompt_cache_key="01-ff"), "cache-01-ff"),
        (
            {},
            Params(metadata={"user_id": "user_9_account__session_0a1b2c3d-4"}),
            "claude-0a1b2c3d-4",
        ),
        ({}, Params(metadata={"user_id": '{"session_id": "s-3"}'}), "claude-s-3"),
        ({}, Params(metadata={"user_id": "u1"}), None),  # a person, not a session
        ({}, Params(metadata={"user_id": "[1]"}), None),
        ({}, Params(user="u1"), None),
        ({"x-weft-thread": "../../etc"}, Params(prompt_cache_key="x"), "etc"),
        ({"x-weft-thread": "///"}, Params(), None),
        ({"x-weft-thread": "n" * 500}, Params(), "n" * 80),
        ({}, Params(), None),
    ],
)
def test_a_session_is_read_from_what_clients_send(headers, params, name):
    assert read_hint(headers, Request("m", (), params=params)) == name
