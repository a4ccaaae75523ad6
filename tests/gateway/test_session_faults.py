"""Live sessions during kills, restarts, retries and edits by other people.

A session stays one thread, loses nothing, shares nothing with other callers, and the upstream gets
its private state back. `fsck` finds no error.
"""

import os
import resource
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import orjson
import pytest
from msgspec import structs

import weft
from servers import LAUNCH, SECONDS, UPSTREAM_NAMES, Gateway, post, weft_serve
from simulated_clients import (
    CLIENTS,
    MARKER,
    Answer,
    Session,
    ThinkingModel,
    Turn,
    branch_text,
    branches,
    missing,
    thinking_model,
    without_white_space,
)
from weft.thread import fsck

CROSSED = {  # clients, each with an upstream of another protocol
    "claude code": "c",
    "codex": "a",
    "a chat client that merges text": "g",
    "a responses client that splits text": "c",
}
SOME = list(CROSSED) if os.environ.get("WEFT_TORTURE") else ["claude code", "codex"]


@pytest.fixture(scope="module")
def model() -> Iterator[ThinkingModel]:
    with thinking_model() as running:
        yield running


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as running:
        yield running


@contextmanager
def serving(
    folder: Path, model: ThinkingModel, *, drain: int = 10, launch: str = LAUNCH, **environ: str
) -> Iterator[Gateway]:
    """A gateway with the model behind all four protocols; its store is clean afterwards."""
    upstreams = [
        f"--upstream={name}={protocol}:{model.url}" for protocol, name in UPSTREAM_NAMES.items()
    ]
    config = folder / "weft.toml"
    config.write_text(f"[limits]\ndrain_seconds = {drain}\n")
    flags = ("--config", str(config), *upstreams)
    with weft_serve(folder, *flags, launch=launch, **environ) as running:
        yield running
    assert fsck(running.store).flaws == ()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, model: ThinkingModel) -> Iterator[Gateway]:
    with serving(tmp_path_factory.mktemp("attacked"), model) as running:
        yield running


@pytest.fixture(scope="module")
def pair(
    tmp_path_factory: pytest.TempPathFactory, model: ThinkingModel
) -> Iterator[tuple[Gateway, Gateway]]:
    """Two gateways on one store."""
    folder = tmp_path_factory.mktemp("pair")
    with serving(folder, model) as one, serving(folder, model) as two:
        yield one, two


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
    assert branch_text(gateway.store, names.pop()) == without_white_space(session.texts())
    assert missing(session.model, session) == []


class HeldTurn:
    """A turn of a session whose answer the model does not end yet."""

    def __init__(self, session: Session, text: str, pool: ThreadPoolExecutor) -> None:
        self.session, self.model = session, session.model
        self.model.is_paused.clear()
        self.model.resume.clear()
        session.turns.append(Turn("user", text))
        answer = Answer((f"Slowly {text}. Done. ",), pauses=True)
        self.reply: Future[Any] = pool.submit(session.ask, answer, stream=True)
        assert self.model.is_paused.wait(SECONDS)

    def end(self) -> Turn | None:
        """Let the model end it; the answer as the client got it, if it is whole."""
        self.model.resume.set()
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
    turn = HeldTurn(session, "one", pool)
    rename(gateway, old, new)
    other = Session(gateway.url, model, "c", CLIENTS["claude code"], seed=2)
    other.id = session.id
    other.say(f"Something else {other.nonce}", rounds=1)
    assert other.threads[0] == old
    session.turns.append(turn.end())
    other.say("more", rounds=1)
    session.say("two", rounds=1)
    assert session.threads[-1] == new
    check(gateway, session, new)
    check(gateway, other)
    for thread in (old, new):
        assert branches(gateway.store, thread) == ["main"]


def test_a_late_answer_of_another_gateway_does_not_move_the_thread(pair, model, pool):
    """The client gave up and asked again; a load balancer sent it to the other gateway."""
    one, two = pair
    for goes_on in (False, True):
        session = start(one, "claude code", model)
        thread = session.threads[0]
        turn = HeldTurn(session, "one", pool)
        session.gateway = two.url
        session.turns.append(session.ask(Answer(("Quickly. ",)), retry=1)[1])
        if goes_on:
            session.say("two", rounds=1)
        turn.end()
        check(one, session)
        assert branches(one.store, thread) == ["main", "answer-1-of-turn-2"]
        session.say("three", rounds=1)
        check(one, session)
        assert branches(one.store, thread) == ["main", "answer-1-of-turn-2"]


def test_a_hundred_changes_in_the_page_stay_in_effect(gateway, model):
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


# What people do in the page and in the terminal while an answer is written.


def edit_in_page(gateway, thread, rows):
    write(gateway, "edit", thread=thread, id=rows[0]["id"], text="Changed by hand")


def compact_in_page(gateway, thread, _):
    write(gateway, "compact", thread=thread, summary="Changed by hand", keep=2)


def compact_range_in_page(gateway, thread, rows):
    first, last = rows[0]["id"], rows[-2]["id"]
    write(gateway, "compact", thread=thread, first=first, last=last, summary="Changed by hand")


def compact_in_terminal(gateway, thread, _):
    with weft.open(gateway.store, thread=thread) as handle:
        handle.compact(summary="Changed by hand", keep=2)


CHANGES = [edit_in_page, compact_in_page, compact_range_in_page, compact_in_terminal]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("client", CROSSED)
def test_a_change_during_an_answer_stays_in_effect(gateway, model, pool, client, change):
    session = start(gateway, client, model)
    session.say(f"Question 1. {'Many words. ' * 40}", rounds=1)
    thread = session.threads[0]
    turn = HeldTurn(session, "one", pool)
    rows = [row for row in read_rows(gateway, thread) if row["role"] != "system"]
    change(gateway, thread, rows)
    newest = max(model.private)  # answers before this one may be in the summary
    session.turns.append(turn.end())
    bodies = []
    for text in ("two", "three"):
        session.say(f"{text} {session.nonce}", rounds=1)
        bodies.append(last_sent(session))
        assert b"Changed by hand" in bodies[-1]
    assert set(session.threads) == {thread}
    assert branches(gateway.store, thread) == ["main"]
    lost = {int(miss.split()[-1]) for miss in missing(model, session)}
    if change is edit_in_page:
        assert lost == set()
    assert {number for number in lost if number > newest} == set()


def merge_in_page(gateway, thread, _):
    return write(gateway, "merge", thread=thread, branch="main", name="side")["commit"]


def pick_in_page(gateway, thread, commit):
    return write(gateway, "cherry-pick", thread=thread, branch="main", id=commit)["commit"]


def undo_in_page(gateway, thread, _):
    return write(gateway, "undo", thread=thread)["undone"]["head"]


@pytest.mark.parametrize("change", [merge_in_page, pick_in_page, undo_in_page])
def test_messages_added_during_an_answer_stay_on_a_branch(gateway, model, pool, change):
    """The client knows nothing of them: the current branch follows the client, and they keep
    a name."""
    session = start(gateway, "claude code", model)
    thread = session.threads[0]
    with weft.open(gateway.store, thread=thread) as handle:
        commit = handle.fork("side").user("from the side").id
    turn = HeldTurn(session, "one", pool)
    changed = change(gateway, thread, commit)
    session.turns.append(turn.end())
    session.say("two", rounds=1)
    check(gateway, session)
    with weft.open(gateway.store, thread=thread) as handle:
        assert changed in handle.branches().values()


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGKILL])
def test_a_gateway_killed_during_answers_loses_no_session(tmp_path, model, pool, kind):
    with serving(tmp_path, model, drain=0) as gateway:
        sessions = [start(gateway, client, model) for client in CROSSED]
        turns = [HeldTurn(session, "one", pool) for session in sessions]
        gateway.process.send_signal(kind)
        for each in turns:
            with suppress(OSError, HTTPException):
                assert each.reply.result(SECONDS)[1] is None, "a cut answer looks whole"
        model.resume.set()
        gateway.process.wait(SECONDS)
    with serving(tmp_path, model) as gateway:
        for session in sessions:
            session.gateway = gateway.url
            session.turns.append(session.ask(Answer(("Quickly. ",)), retry=1)[1])
            session.say("two", rounds=1)
            check(gateway, session)
            assert branches(gateway.store, session.threads[0]) == ["main"]


def test_a_session_that_alternates_between_two_gateways_is_one_thread(pair, model):
    one, two = pair
    urls = cycle((one.url, two.url))
    for client in SOME:
        session = start(one, client, model)
        thread = session.threads[0]
        steps = [
            lambda s: s.say("one", rounds=1),
            Session.regenerate,
            lambda s: s.say("two", rounds=2),
            Session.stop,
            Session.rewind,
            Session.fail,
            lambda s: s.say("three", rounds=1),
            Session.compact,
            lambda s: s.say("four", rounds=1),
        ]
        for step in steps:
            session.gateway = next(urls)
            step(session)
        check(one, session)
        assert set(branches(one.store, thread)) == session.branches
        with weft.open(one.store, thread=thread) as handle:
            handle.compact(summary="Changed by hand", keep=2)
        for text in ("five", "six", "seven"):
            session.gateway = next(urls)
            session.say(f"{text} {session.nonce}", rounds=1)
            assert b"Changed by hand" in last_sent(session)
        assert set(session.threads) == {thread}
        assert set(branches(one.store, thread)) == session.branches


def test_a_rolling_upgrade_loses_nothing(tmp_path, model, pool):
    """A new gateway starts beside the old one, which ends while its clients wait for answers."""
    with ExitStack() as stack:
        old = stack.enter_context(serving(tmp_path, model, drain=60))
        sessions = [start(old, client, model) for client in CROSSED]
        turns = [HeldTurn(session, "one", pool) for session in sessions]
        new = stack.enter_context(serving(tmp_path, model))
        others = [start(new, client, model) for client in SOME]
        old.process.terminate()
        for session, each in zip(sessions, turns, strict=True):
            session.turns.append(each.end())
        for session in (*sessions, *others):
            session.gateway = new.url
            session.say("two", rounds=1)
            check(new, session)
            assert branches(new.store, session.threads[0]) == ["main"]


def test_callers_with_equal_text_and_equal_session_names_share_nothing(tmp_path, model):
    """Each key has its own threads, whatever the words, the session and the ids in it are."""
    keys = {"alice": "key-of-alice-0123456789", "bob": "key-of-bob-0123456789"}
    with serving(tmp_path, model, WEFT_API_KEYS=",".join(keys.values())) as gateway:
        for client in CROSSED:
            sessions = {}
            for name, key in keys.items():
                session = Session(gateway.url, model, CROSSED[client], CLIENTS[client], seed=1)
                session.headers["authorization"] = f"Bearer {key}"
                session.id = f"session-{client}"
                sessions[name] = session
            alice, bob = sessions.values()
            for text in ("hi", "go on"):
                for session in sessions.values():
                    session.say(text, rounds=1)
            # A pasted transcript, with all ids in it.
            bob.turns = [structs.replace(turn, items=()) for turn in alice.turns]
            bob.say("what did I say?", rounds=1)
            texts = [text for turn in alice.turns for text in turn.texts]
            answers = {int(number) for text in texts for number in MARKER.findall(text)}
            secrets = [model.private[number].encode() for number in answers]
            assert secrets
            assert not any(secret in body for secret in secrets for body in model.bodies[bob.nonce])
            assert not set(alice.threads) & set(bob.threads)
            check(gateway, alice)


def test_clients_with_the_same_session_name_get_separate_threads(gateway, model, pool):
    """Somebody put a constant into `x-session-id`. Some of them even open with equal words."""
    name = f"constant-{os.urandom(4).hex()}"
    for words in (("Alpha", "Beta", "Gamma"), ("hi", "hi", "hi")):
        sessions = []
        for _ in words:
            session = Session(
                gateway.url, model, "c", CLIENTS["a responses client that splits text"], seed=1
            )
            session.id = name
            sessions.append(session)
        for number in range(3):
            turns = [
                pool.submit(session.say, f"{word} {number}", rounds=1)
                for session, word in zip(sessions, words, strict=True)
            ]
            for turn in turns:
                turn.result(SECONDS)
        for session in sessions:
            check(gateway, session)
        assert len({session.threads[0] for session in sessions}) == 3


def stop_reading(session: Session, text: str) -> None:
    """The client sends a request and goes away in the middle of the answer."""
    session.turns.append(Turn("user", text))
    session.model.script[session.nonce] = [Answer((f"Slowly {text}. ",), pauses=True)]
    session.model.is_paused.clear()
    session.model.resume.clear()
    path, body, headers = session.next_request()
    url = urlsplit(session.gateway)
    connection = HTTPConnection(url.hostname or "", url.port, timeout=SECONDS)
    kind = {"content-type": "application/json"}
    connection.request("POST", path, orjson.dumps(body), {**kind, **headers})
    assert session.model.is_paused.wait(SECONDS)
    connection.close()


@pytest.mark.parametrize("client", CROSSED)
def test_a_client_that_disconnects_during_an_answer_can_continue_later(gateway, model, client):
    session = start(gateway, client, model)
    thread = session.threads[0]
    stop_reading(session, "one")
    deadline = time.monotonic() + SECONDS
    with weft.open(gateway.store, thread=thread) as handle:
        while not handle.attempts():
            assert time.monotonic() < deadline, "the attempt is not recorded"
            time.sleep(0.02)
    model.resume.set()
    session.say("No, two", rounds=1)  # the person typed something else after it
    check(gateway, session)
    assert branches(gateway.store, thread) == ["main"]


CLOCK = """
import time
from pathlib import Path
real = time.time
def now():
    try:
        return real() + float(Path("offset").read_text())
    except (OSError, ValueError):
        return real()
time.time = now
"""


def test_a_clock_jump_changes_no_order(tmp_path, model):
    with serving(tmp_path, model, launch=f"{CLOCK}\n{LAUNCH}") as gateway:
        sessions = [start(gateway, client, model) for client in SOME]
        for offset in (-400 * 86400, 400 * 86400, -10, 0):
            (tmp_path / "offset").write_text(str(offset))
            for session in sessions:
                session.say(f"At {offset}", rounds=1)
                session.regenerate()
                session.rewind()
        for session in sessions:
            check(gateway, session)
            assert set(branches(gateway.store, session.threads[0])) == session.branches
        with urlopen(f"{gateway.url}/api/threads", timeout=SECONDS) as reply:
            listed = [thread["name"] for thread in orjson.loads(reply.read())["threads"]]
        assert {session.threads[0] for session in sessions} <= set(listed)


def test_a_thread_deleted_during_an_answer_can_be_restored(gateway, model, pool):
    session = start(gateway, "claude code", model)
    thread = session.threads[0]
    turn = HeldTurn(session, "one", pool)
    write(gateway, "delete", thread=thread)
    session.turns.append(turn.end())
    before = session.texts()
    session.say("two", rounds=1)  # the client still has all of it
    assert set(session.threads) == {thread}
    assert branch_text(gateway.store, thread) == without_white_space(session.texts())
    assert missing(model, session), "private state of a deleted thread was sent"
    new = f"second {session.nonce}"
    write(gateway, "rename", thread=thread, name=new)
    write(gateway, "undelete", thread=thread)
    assert branch_text(gateway.store, thread) == without_white_space(before)
    session.say("three", rounds=1)
    assert session.threads[-1] == new
    assert branch_text(gateway.store, new) == without_white_space(session.texts())


def test_a_full_disk_during_a_session_loses_no_private_state(tmp_path, model):
    """No file of the gateway can grow: records go to the space that the journal has reserved."""
    folder = tmp_path / "full"
    folder.mkdir()
    with serving(folder, model) as gateway:
        sessions = [start(gateway, client, model) for client in CROSSED]
        files = [folder / "weft.db", folder / "weft.db-wal"]
        limits = resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE)
        full = max(file.stat().st_size for file in files), limits[1]
        resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE, full)
        for _ in range(20):
            for session in sessions:
                session.say("The disk is full", rounds=1)
            if all("" in session.threads for session in sessions):
                break
        else:
            pytest.fail("everything was recorded in a full store")
        resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE, limits)
        for session in sessions:
            session.say("There is room again", rounds=1)
            assert missing(model, session) == []
        wait_until_drained(gateway)
        for session in sessions:
            (thread,) = set(session.threads) - {""}
            check(gateway, session, thread)
            assert branches(gateway.store, thread) == ["main"]


def wait_until_drained(gateway: Gateway) -> None:
    """Wait until no record is in the journal."""
    deadline = time.monotonic() + SECONDS
    while True:
        with urlopen(f"{gateway.url}/api/threads", timeout=SECONDS) as reply:
            recording = orjson.loads(reply.read())["recording"]
        if recording["state"] == "store" and not recording["pending"]:
            assert recording["lost"] == 0
            return
        assert time.monotonic() < deadline, recording
        time.sleep(0.1)
