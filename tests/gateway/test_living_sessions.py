"""Sessions of simulated clients that rewrite answers: each is one thread, and nothing is lost."""

import os
import re
import sqlite3
import time
from contextlib import closing

import orjson
import pytest
from msgspec import structs

import weft
from servers import SECONDS, UPSTREAM_NAMES, weft_serve
from simulated_clients import (
    CLIENTS,
    Session,
    branch_text,
    branches,
    missing,
    thinking_model,
    without_white_space,
)
from weft.store import open_store


@pytest.fixture(scope="module")
def model():
    with thinking_model() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, model):
    flags = [
        f"--upstream={name}={protocol}:{model.url}" for protocol, name in UPSTREAM_NAMES.items()
    ]
    with weft_serve(tmp_path_factory.mktemp("sessions"), *flags) as running:
        yield running


@pytest.mark.parametrize("upstream", UPSTREAM_NAMES.values())
@pytest.mark.parametrize("client", CLIENTS)
def test_a_session_is_one_thread_on_one_branch(gateway, model, client, upstream):
    session = Session(gateway.url, model, upstream, CLIENTS[client], seed=7)
    for number in range(8):
        session.say(f"Question {number} {session.nonce}", rounds=number % 3 + (number == 0))
    assert set(session.threads) == {session.threads[0]}
    assert len(branches(gateway.store, session.threads[0])) == 1
    assert missing(model, session) == []
    with weft.open(gateway.store, thread=session.threads[0]) as thread:
        blocks = [block for message in thread.compile().messages for block in message.blocks]
    calls = [block.id for block in blocks if isinstance(block, weft.ToolCall)]
    assert calls == [block.call_id for block in blocks if isinstance(block, weft.ToolResult)]


NAMED_CLIENTS = [client for client, habits in CLIENTS.items() if habits.session_header]


@pytest.mark.parametrize("client", NAMED_CLIENTS)
@pytest.mark.parametrize("upstream", ["c", "g"] if os.environ.get("WEFT_TORTURE") else ["c"])
def test_a_server_with_sequential_call_ids_gets_its_private_state_back(
    gateway, model, client, upstream
):
    """Kimi writes `functions.Edit:0`, llama.cpp may write `call_0`: such ids prove nothing."""
    session = Session(gateway.url, model, upstream, CLIENTS[client], seed=5)
    model.numbered.add(session.nonce)
    for number in range(6):
        session.say(f"Question {number} {session.nonce}", rounds=number % 3 + 1)
    session.regenerate()
    session.rewind()
    session.say(f"Another {session.nonce}", rounds=2)
    assert set(session.threads) == {session.threads[0]}
    assert set(branches(gateway.store, session.threads[0])) == session.branches
    assert missing(model, session) == []


def wait_until_drained(gateway):
    """Wait until no record is in the journal."""

    def is_drained():
        lines = [line for line in gateway.lines() if line.get("event") == "recording"]
        return not lines or lines[-1]["state"] == "store"

    deadline = time.monotonic() + SECONDS
    while not is_drained():
        assert time.monotonic() < deadline, "the journal is not drained"
        time.sleep(0.05)


def test_private_state_is_restored_while_records_are_in_the_journal(tmp_path, model):
    flags = [
        f"--upstream={name}={protocol}:{model.url}" for protocol, name in UPSTREAM_NAMES.items()
    ]
    with weft_serve(tmp_path, *flags, WEFT_RECORD_WAIT="0.2") as gateway:
        sessions = [
            Session(gateway.url, model, "c", CLIENTS[name], seed=3) for name in NAMED_CLIENTS
        ]
        for session in sessions:
            session.say(f"Question 0 {session.nonce}", rounds=1)
        wait_until_drained(gateway)
        with closing(sqlite3.connect(gateway.store, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # the gateway cannot write until this ends
            for session in sessions:
                session.say(f"Question 1 {session.nonce}", rounds=1)
                session.say(f"Question 2 {session.nonce}")
                session.regenerate()
                session.stop()
                assert session.threads[-1] == "", "nothing went to the journal"
        wait_until_drained(gateway)
        for session in sessions:
            session.say(f"Question 3 {session.nonce}", rounds=1)
        wait_until_drained(gateway)
        for session in sessions:
            (thread,) = set(session.threads) - {""}
            assert set(branches(gateway.store, thread)) == session.branches
            assert branch_text(gateway.store, thread) == without_white_space(session.texts())
            assert missing(model, session) == []


LARGE = bool(os.environ.get("WEFT_TORTURE"))
TURNS = 200 if LARGE else 30
EVENTS = ("rewind", "regenerate", "fail", "stop", "subagent", "compact")


def run_long_session(session, turns):
    """A long session with every kind of event."""
    session.say(f"Question 0 {session.nonce}", rounds=1)
    session.title("A short title")
    for number in range(1, turns):
        if number % 5 == 4:
            event = EVENTS[number // 5 % len(EVENTS)]
            if event not in session.unsupported_events:
                getattr(session, event)()
        else:
            session.say(
                f"Question {number} {session.nonce}", rounds=session.random.choice([0, 1, 3])
            )


ALL_PAIRS = [(client, upstream) for client in CLIENTS for upstream in UPSTREAM_NAMES.values()]
SOME_PAIRS = [(client, list(UPSTREAM_NAMES.values())[n % 4]) for n, client in enumerate(CLIENTS, 1)]


@pytest.mark.parametrize(("client", "upstream"), ALL_PAIRS if LARGE else SOME_PAIRS)
def test_a_session_with_all_features_stays_one_thread(gateway, model, client, upstream):
    session = Session(gateway.url, model, upstream, CLIENTS[client], seed=11)
    run_long_session(session, TURNS)
    thread = session.threads[0]
    assert set(session.threads) == {thread}
    assert branch_text(gateway.store, thread) == without_white_space(session.texts())
    assert branches(gateway.store, thread)[0] == "main"
    assert set(branches(gateway.store, thread)) == session.branches
    assert missing(model, session) == []
    check_children(gateway, session)


def check_children(gateway, session):
    """Subagents and title questions are children; requests for a summary are in the thread."""
    thread = session.threads[0]
    with closing(open_store(gateway.store)) as store:
        records = {record.name: record for record in store.threads()}
    for agent, threads in session.children.items():
        if agent == "compaction":
            assert set(threads) == {thread}
        elif session.habits.session_header:
            (name,) = set(threads)
            kind = "title" if agent == "title" else "agent"
            assert (records[name].parent, records[name].kind) == (thread, kind)
    children = {record.name for record in records.values() if record.parent == thread}
    child_names = {
        name
        for agent, threads in session.children.items()
        if agent != "compaction"
        for name in threads
    }
    assert children == (child_names if session.habits.session_header else set())
    if session.habits.session_header:
        assert records[thread].title.startswith("A short title")


@pytest.mark.parametrize("upstream", UPSTREAM_NAMES.values())
@pytest.mark.parametrize("client", ["claude code", "codex", "a chat client that merges text"])
def test_a_compaction_of_a_live_session_stays_in_effect(gateway, model, client, upstream):
    session = Session(gateway.url, model, upstream, CLIENTS[client], seed=3)
    for number in range(6):
        session.say(f"Question {number} {session.nonce}", rounds=1)
    thread = session.threads[0]
    with weft.open(gateway.store, thread=thread) as handle:
        tokens = handle.compile().tokens
        result = handle.compact(budget=tokens // 2)
    assert result.tokens_after < tokens
    bodies, newest = [], max(model.private)
    for number in (6, 7):
        session.say(f"Question {number} {session.nonce}", rounds=1)
        bodies.append(model.bodies[session.nonce][-1])
    assert set(session.threads) == {thread}
    assert len(branches(gateway.store, thread)) == 1
    # A compaction strips thinking of the turns before it. Later answers are proven by their calls.
    with_calls = {number for number in model.ids.values() if number > newest}
    assert not with_calls & {int(miss.split()[-1]) for miss in missing(model, session)}
    for body in bodies:
        assert b"Summary of earlier messages" in body
        assert body.count(b"Question 1 ") <= 1  # the summary quotes it
        assert len(messages_of(body)) < 24
        assert b"Question 6 " in body
    first, second = (messages_of(body) for body in bodies)
    assert second[: len(first)] == first  # so that the upstream's cache can be used
    with weft.open(gateway.store, thread=thread) as handle:
        (compaction,) = [info for info in handle.log() if info.kind == "compact"]
        handle.revert(compaction.id)
    session.say(f"Question 8 {session.nonce}")
    assert b"Question 1 " in model.bodies[session.nonce][-1]
    assert len(branches(gateway.store, thread)) == 1


@pytest.mark.parametrize("client", ["claude code", "codex", "a chat client that merges text"])
def test_an_edit_of_the_first_message_leaves_a_compaction(gateway, model, client):
    session = Session(gateway.url, model, "a", CLIENTS[client], seed=5)
    for number in range(6):
        session.say(f"Question {number} {session.nonce}", rounds=1)
    thread = session.threads[0]
    with weft.open(gateway.store, thread=thread) as handle:
        handle.compact(keep=2, summary="A summary of the old questions.")
    session.say(f"Question 6 {session.nonce}", rounds=1)
    assert b"A summary of the old" in model.bodies[session.nonce][-1]
    session.turns[0] = structs.replace(session.turns[0], text=f"Another one {session.nonce}")
    for number in (7, 8):
        session.say(f"Question {number} {session.nonce}", rounds=1)
        sent = model.bodies[session.nonce][-1]
        assert b"Another one " in sent
        assert b"Question 0 " not in sent
        assert b"A summary of the old" not in sent
    assert set(session.threads) == {thread}
    assert set(branches(gateway.store, thread)) == {"main", "before-edit-of-turn-1"}
    assert branch_text(gateway.store, thread) == without_white_space(session.texts())


def messages_of(body):
    """The messages that an upstream got, without cache marks, which move with every turn."""
    raw = orjson.loads(re.sub(rb',"cache_control":\{[^}]*\}', b"", body))
    messages = next(raw[key] for key in ("contents", "input", "messages") if key in raw)
    for message in messages:
        if isinstance(message.get("content"), str):  # adding a mark makes a string a list
            message["content"] = [{"type": "text", "text": message["content"]}]
    return messages
