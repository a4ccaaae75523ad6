"""Attacks on live sessions: kills, restarts, retries, and people who edit while a client works.

Whatever happens around a session: it stays one thread, nothing of it is lost, nothing of it reaches
another caller, `fsck` finds nothing, and the upstream gets its private state back.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import orjson
import pytest

import weft
from living import (
    CLIENTS,
    Answer,
    Session,
    ThinkingModel,
    Turn,
    branches,
    line_of,
    missing,
    squeezed,
    thinking_model,
)
from servers import SECONDS, UPSTREAM_NAMES, Gateway, post, weft_serve
from weft.thread import fsck

CROSSED = {  # clients, each with an upstream of another protocol
    "claude code": "c",
    "codex": "a",
    "a chat client that merges text": "g",
    "a responses client that splits text": "c",
}


@pytest.fixture(scope="module")
def model() -> Iterator[ThinkingModel]:
    with thinking_model() as running:
        yield running


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as running:
        yield running


@contextmanager
def serving(folder: Path, model: ThinkingModel, *flags: str, **environ: str) -> Iterator[Gateway]:
    """A gateway with the model behind all four protocols; its store is clean afterwards."""
    upstreams = [
        f"--upstream={name}={protocol}:{model.url}" for protocol, name in UPSTREAM_NAMES.items()
    ]
    with weft_serve(folder, *upstreams, *flags, **environ) as running:
        yield running
    assert fsck(running.store).flaws == ()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, model: ThinkingModel) -> Iterator[Gateway]:
    with serving(tmp_path_factory.mktemp("attacked"), model) as running:
        yield running


def start(gateway: Gateway, client: str, model: ThinkingModel) -> Session:
    """A session of this client, after its first turn."""
    session = Session(gateway.url, model, CROSSED[client], CLIENTS[client], seed=1)
    session.say(f"Question 0 {session.nonce}", rounds=1)
    return session


def write(gateway: Gateway, action: str, **fields: Any) -> Any:
    """What the page does when somebody clicks."""
    status, _, data = post(f"{gateway.url}/api/{action}", fields)
    assert status == 200, data
    return orjson.loads(data)


def read_rows(gateway: Gateway, thread: str) -> list[dict[str, Any]]:
    with urlopen(f"{gateway.url}/api/thread?thread={thread}", timeout=SECONDS) as reply:
        return orjson.loads(reply.read())["rows"]


def last_sent(session: Session) -> bytes:
    return session.model.bodies[session.nonce][-1]


def check(gateway: Gateway, session: Session, thread: str = "") -> None:
    """The session is one thread, which shows the client's line; the model missed nothing."""
    names = {thread} if thread else set(session.threads)
    assert len(names) == 1
    assert line_of(gateway.store, names.pop()) == squeezed(session.texts())
    assert missing(session.model, session) == []


class HeldTurn:
    """A turn of a session whose answer the model does not end yet."""

    def __init__(self, session: Session, text: str, pool: ThreadPoolExecutor) -> None:
        self.session, self.model = session, session.model
        self.model.is_holding.clear()
        self.model.go_on.clear()
        session.turns.append(Turn("user", text))
        answer = Answer((f"Slowly {text}. Done. ",), is_held=True)
        self.reply: Future[Any] = pool.submit(session.ask, answer, stream=True)
        assert self.model.is_holding.wait(SECONDS)

    def end(self) -> Turn | None:
        """Let the model end it; the answer as the client got it, if it is whole."""
        self.model.go_on.set()
        return self.reply.result(SECONDS)[1]


def rename_in_page(gateway: Gateway, thread: str, name: str) -> None:
    write(gateway, "rename", thread=thread, name=name)


def rename_in_terminal(gateway: Gateway, thread: str, name: str) -> None:
    with weft.open(gateway.store, thread=thread) as handle:
        handle.rename(name)


@pytest.mark.parametrize("rename", [rename_in_page, rename_in_terminal])
def test_a_thread_is_renamed_during_an_exchange_and_its_name_is_used_again(
    gateway, model, pool, rename
):
    session = start(gateway, "claude code", model)
    old, new = session.threads[0], f"my work {session.nonce}"
    read_rows(gateway, old)
    held = HeldTurn(session, "one", pool)
    rename(gateway, old, new)
    other = Session(gateway.url, model, "c", CLIENTS["claude code"], seed=2)
    other.id = session.id
    other.say(f"Something else {other.nonce}", rounds=1)
    assert other.threads[0] == old
    session.turns.append(held.end())
    other.say("more", rounds=1)
    session.say("two", rounds=1)
    assert session.threads[-1] == new
    check(gateway, session, new)
    check(gateway, other)
    for thread in (old, new):
        assert branches(gateway.store, thread) == ["main"]


def test_a_late_answer_of_another_gateway_does_not_take_the_thread(tmp_path, model, pool):
    """The client gave up and asked again; a load balancer sent it to the other gateway."""
    with serving(tmp_path, model) as one, serving(tmp_path, model) as two:
        for goes_on in (False, True):
            session = start(one, "claude code", model)
            thread = session.threads[0]
            held = HeldTurn(session, "one", pool)
            session.gateway = two.url
            session.turns.append(session.ask(Answer(("Quickly. ",)), retry=1)[1])
            if goes_on:
                session.say("two", rounds=1)
            held.end()
            check(one, session)
            assert branches(one.store, thread) == ["main", "answer-1-of-turn-2"]
            session.say("three", rounds=1)
            check(one, session)
            assert branches(one.store, thread) == ["main", "answer-1-of-turn-2"]


def test_a_hundred_changes_in_the_page_stay_in_force(gateway, model):
    session = start(gateway, "claude code", model)
    thread = session.threads[0]
    row = next(row for row in read_rows(gateway, thread) if row["role"] == "user")
    write(gateway, "edit", thread=thread, id=row["id"], text=f"Edited {session.nonce}")
    with weft.open(gateway.store, thread=thread) as handle:
        for number in range(100):
            handle.annotate(row["id"], ("pinned", "normal")[number % 2])
    session.say("two", rounds=1)
    assert b"Edited nonce" in last_sent(session)
    assert branches(gateway.store, thread) == ["main"]
