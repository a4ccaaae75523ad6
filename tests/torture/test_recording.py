"""Recording continues while the store fails: every request is answered, and nothing is lost.

Clients use real gateways while the store is locked, full, restarted or killed. Every reply with
`x-weft-recorded: store` or `journal` must be in the store afterwards, in order and once. The counts
are small; `make torture` sets `WEFT_TORTURE` for large ones.
"""

import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest

import weft.thread
from postgres import RestartedPostgres, fresh_address, restarted_postgres
from servers import Gateway, Scripted, Upstream, post, scripted_upstream, weft_serve
from weft.history import read_branches
from weft.store import open_store
from weft.thread import fsck

LARGE = bool(os.environ.get("WEFT_TORTURE"))
LOCK_SECONDS = 75 if LARGE else 0
KILLS = 40 if LARGE else 2
CLIENTS = 8 if LARGE else 4
TURNS = 6
PROGRESS_SECONDS = 60

LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
"""


class Conversation:
    """A conversation: its texts, and where each of its turns was recorded."""

    def __init__(self, name: str, padding: int = 0) -> None:
        self.name = name
        self.padding = padding
        self.transcript: list[str] = []
        self.recorded: list[str] = []

    @property
    def acknowledged(self) -> list[str]:
        """The texts that must be stored: all up to the last turn that was reported as recorded."""
        last = max(
            (number for number, target in enumerate(self.recorded) if target != "no"), default=-1
        )
        return self.transcript[: 2 * (last + 1)]

    def turn(self, url: str) -> None:
        number = len(self.recorded)
        texts = [*self.transcript, f"{self.name} says {number} {'z' * self.padding}".strip()]
        roles = ("user", "assistant")
        body = {
            "model": "c/m",
            "max_tokens": 64,
            "stream": number % 2 == 1,
            "messages": [
                {"role": roles[position % 2], "content": text}
                for position, text in enumerate(texts)
            ],
        }
        status, headers, data = post(f"{url}/v1/messages", body, {"x-session-id": self.name})
        assert status == 200, data
        assert b"answer to" in data, data
        assert number % 2 == 0 or b"message_stop" in data, data
        self.transcript = [*texts, answer_to(texts[-1])]
        self.recorded.append(headers["x-weft-recorded"])


def answer_to(text: str) -> str:
    return f"answer to {text[:40]}"


def answer(body: bytes) -> Scripted:
    """An upstream of Chat that answers everything, as a stream where it is asked for one."""
    request = orjson.loads(body)
    content = request["messages"][-1]["content"]
    text = answer_to(content if isinstance(content, str) else content[0]["text"])
    base = {"id": f"chatcmpl-{os.urandom(8).hex()}", "created": 1, "model": "m"}
    if not request.get("stream"):
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        whole = base | {"object": "chat.completion", "choices": [choice | {"index": 0}]}
        return Scripted(orjson.dumps(whole), kind="application/json")
    chunk = base | {"object": "chat.completion.chunk"}
    deltas = [
        ({"role": "assistant", "content": text[:-3]}, None),
        ({"content": text[-3:]}, None),
        ({}, "stop"),
    ]
    frames = [
        chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        for delta, finish in deltas
    ]
    return Scripted(
        *(b"data: %b\n\n" % orjson.dumps(frame) for frame in frames), b"data: [DONE]\n\n"
    )


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with scripted_upstream() as running:
        running.rule = answer
        yield running


@contextmanager
def serving(folder: Path, upstream: Upstream, *flags: str) -> Iterator[Gateway]:
    """A gateway with nothing of this machine's in its state directory."""
    folder.mkdir(exist_ok=True)
    state = {
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / "state"),
        "WEFT_RECORD_WAIT": "0.05",  # the default: other tests wait longer, on busy machines
    }
    with weft_serve(folder, f"--upstream=c=openai-chat:{upstream.url}", *flags, **state) as running:
        yield running


@contextmanager
def locked(store: Path) -> Iterator[None]:
    """Another process holds SQLite's write lock, for as long as the block runs."""
    child = subprocess.Popen(
        [sys.executable, "-c", LOCK, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == b"locked\n"
        yield
        assert child.poll() is None, "the lock was held all the time"
        child.stdin.close()


@contextmanager
def file_limit(size: int) -> Iterator[None]:
    """Processes that start in this block cannot write files longer than this: a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def stored(address: str) -> dict[str, list[list[str]]]:
    """The visible texts of each thread's branches, by the first words."""
    store = open_store(address)
    threads: dict[str, list[list[str]]] = {}
    try:
        for thread in store.threads():
            for branch in read_branches(store, thread.name):
                compiled = weft.thread.open(store, thread.name, branch=branch).compile()
                texts = [message.text for message in compiled.messages]
                if texts:
                    threads.setdefault(texts[0], []).append(texts)
    finally:
        store.close()
    return threads


def missing(address: str, conversations: list[Conversation]) -> list[str]:
    """The conversations of which something acknowledged is not stored."""
    threads = stored(address)
    return [
        conversation.name
        for conversation in conversations
        if (acknowledged := conversation.acknowledged)
        and not any(
            texts[: len(acknowledged)] == acknowledged for texts in threads.get(acknowledged[0], [])
        )
    ]


def check(address: str, conversations: list[Conversation]) -> None:
    """Wait until the journal is replayed; then everything is there, once and in order."""
    wait_while(lambda: len(missing(address, conversations)))
    assert missing(address, conversations) == []
    threads = stored(address)
    for conversation in conversations:
        if conversation.acknowledged:
            (texts,) = threads[conversation.acknowledged[0]]  # one thread, and no branch beside it
            assert len(texts) == len(set(texts))
            assert len(texts) <= len(conversation.transcript) + 2  # and a turn that was cut off
    assert fsck(address).flaws == ()


def wait_for(condition: Callable[[], bool]) -> None:
    """Return when it holds, or after a time that is long enough for any machine."""
    wait_while(lambda: int(not condition()))


def wait_while(count_remaining: Callable[[], int]) -> None:
    """Return when nothing is left to do, or when nothing has been done for a long time."""
    remaining, deadline = count_remaining(), time.monotonic() + PROGRESS_SECONDS
    while remaining and time.monotonic() < deadline:
        time.sleep(0.1)
        if (now := count_remaining()) < remaining:
            remaining, deadline = now, time.monotonic() + PROGRESS_SECONDS


def record_targets(conversations: list[Conversation]) -> set[str]:
    return {target for conversation in conversations for target in conversation.recorded}


def run_all(url: str, conversations: list[Conversation], turns: int = TURNS) -> None:
    """All conversations at once, each turn after turn."""

    def run_turns(conversation: Conversation) -> None:
        for _ in range(turns):
            conversation.turn(url)

    with ThreadPoolExecutor(len(conversations)) as pool:
        list(pool.map(run_turns, conversations))


def test_a_working_store_records_everything(upstream: Upstream, tmp_path: Path) -> None:
    with serving(tmp_path, upstream) as gateway:
        conversations = [Conversation(f"calm{number}") for number in range(CLIENTS)]
        run_all(gateway.url, conversations)
        assert "no" not in record_targets(conversations)
        check(str(gateway.store), conversations)


def test_a_locked_store_delays_no_answer(upstream: Upstream, tmp_path: Path) -> None:
    with serving(tmp_path, upstream) as gateway:
        conversations = [Conversation(f"locked{number}") for number in range(CLIENTS)]
        run_all(gateway.url, conversations, 1)
        with locked(gateway.store):
            until = time.monotonic() + LOCK_SECONDS
            run_all(gateway.url, conversations)
            while time.monotonic() < until:
                conversations.append(Conversation(f"locked{len(conversations)}"))
                run_all(gateway.url, conversations[-1:], 2)
        assert {
            target for conversation in conversations for target in conversation.recorded[1:]
        } == {"journal"}
        run_all(gateway.url, conversations[:CLIENTS], 2)  # while the journal is drained
        check(str(gateway.store), conversations)
        deadline = time.monotonic() + PROGRESS_SECONDS
        while "journal" in conversations[-1].recorded:
            assert time.monotonic() < deadline, "the gateway never went back to the store"
            conversations.append(Conversation(f"after{len(conversations)}"))
            run_all(gateway.url, conversations[-1:], 2)
        assert conversations[-1].recorded == ["store", "store"]
        check(str(gateway.store), conversations)


def test_a_lock_during_an_answer_loses_nothing(upstream: Upstream, tmp_path: Path) -> None:
    with serving(tmp_path, upstream) as gateway:
        conversation = Conversation("middle")
        conversation.turn(gateway.url)
        reached, going = threading.Event(), threading.Event()

        def slow(body: bytes) -> Scripted:
            reached.set()
            assert going.wait(30)
            return answer(body)

        upstream.rule = slow
        try:
            with ThreadPoolExecutor(1) as pool:
                turn = pool.submit(conversation.turn, gateway.url)
                assert reached.wait(30)
                with locked(gateway.store):
                    going.set()
                    turn.result(30)
        finally:
            upstream.rule = answer
        check(str(gateway.store), [conversation])


def test_a_full_disk_fails_no_answer(upstream: Upstream, tmp_path: Path) -> None:
    """The store is full, then the journal too: what is called recorded is there afterwards."""
    conversations: list[Conversation] = []
    with ExitStack() as stack:
        with file_limit(600_000):
            gateway = stack.enter_context(serving(tmp_path, upstream))
        while "journal" not in record_targets(conversations):
            conversations.append(Conversation(f"full{len(conversations)}", padding=8000))
            run_all(gateway.url, conversations[-1:], 2)
        time.sleep(2)  # the gateway tries to drain the journal into the full store
        while "no" not in record_targets(conversations):
            conversations.append(Conversation(f"full{len(conversations)}", padding=8000))
            run_all(gateway.url, conversations[-1:], 2)
        # A stream's headers leave when its request is recorded; the answer found no room.
        last = next(
            number
            for number, conversation in enumerate(conversations)
            if "no" in conversation.recorded
        )
        conversations = conversations[: last - 1]
    with serving(tmp_path, upstream) as gateway:  # there is room again
        check(
            str(gateway.store),
            [
                conversation
                for conversation in conversations
                if set(conversation.recorded) != {"no"}
            ],
        )


@pytest.mark.skipif(not LARGE, reason="mounts a file system")
def test_a_full_file_system_recovers_after_space_is_freed(
    upstream: Upstream, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user cannot mount a file system")
    try:
        store = disk / "weft.db"
        with serving(tmp_path / "home", upstream, "--store", str(store)) as gateway:
            conversations = [Conversation("first")]
            run_all(gateway.url, conversations)
            with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
                while True:
                    filler.write(bytes(4096))
            assert shutil.disk_usage(disk).free == 0
            while len(conversations) < 400:
                conversations.append(Conversation(f"full{len(conversations)}", padding=3000))
                run_all(gateway.url, conversations[-1:], 2)
            assert "no" not in record_targets(conversations)
            assert conversations[-1].recorded == ["journal", "journal"]
            (disk / "filler").unlink()
            check(str(store), conversations)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.fixture
def own_postgres() -> Iterator[RestartedPostgres]:
    with TemporaryDirectory(prefix="weft-restarted-") as name:
        Path(name).chmod(0o755)  # as root the server runs as a user of its own
        try:
            with restarted_postgres(Path(name) / "data") as running:
                yield running
        except LookupError as reason:
            pytest.skip(str(reason))


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_of_postgres_fails_no_request(
    mode: str, own_postgres: RestartedPostgres, upstream: Upstream, tmp_path: Path
) -> None:
    address = fresh_address(own_postgres.url)
    with (
        serving(tmp_path / "one", upstream, "--store", address) as first,
        serving(tmp_path / "two", upstream, "--store", address) as second,
    ):
        conversations: list[Conversation] = []
        stop = threading.Event()

        def keep_asking(number: int) -> None:
            url = (first.url, second.url)[number % 2]
            for count in range(1_000_000):
                conversations.append(conversation := Conversation(f"pg{number}-{count}"))
                for _ in range(3):
                    if stop.is_set():
                        return
                    conversation.turn(url)
                    time.sleep(0.05)  # the journal is faster than the store that must catch up

        with ThreadPoolExecutor(CLIENTS) as pool:
            clients = [pool.submit(keep_asking, number) for number in range(CLIENTS)]
            try:
                for _ in range(5 if LARGE else 1):
                    time.sleep(0.5)
                    own_postgres.stop(mode)
                    down = len(conversations)
                    # Whole conversations while the server is away.
                    wait_for(lambda down=down: len(conversations) >= down + 2 * CLIENTS)
                    own_postgres.start()
                    time.sleep(0.5)
            finally:
                stop.set()
            for client in clients:
                client.result()
        assert "no" not in record_targets(conversations)
        assert "journal" in record_targets(conversations)
        check(address, conversations)


def test_an_idle_gateway_drains_its_journal(
    own_postgres: RestartedPostgres, upstream: Upstream, tmp_path: Path
) -> None:
    """One request while the server is down, and none afterwards that could start the draining."""
    address = fresh_address(own_postgres.url)
    with serving(tmp_path, upstream, "--store", address) as gateway:
        conversation = Conversation("one")
        conversation.turn(gateway.url)
        check(address, [conversation])
        own_postgres.stop()
        conversation.turn(gateway.url)
        assert conversation.recorded[1] == "journal"
        own_postgres.start()
        check(address, [conversation])


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_killed_gateways_lose_nothing_acknowledged(
    backend: str, upstream: Upstream, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Two gateways on one store are killed under load, half of the time while it is locked."""
    chance = random.Random(9)
    store = tmp_path / "weft.db"
    address = str(store)
    if backend == "postgres":
        address = request.getfixturevalue("postgres")
    conversations: list[Conversation] = []
    for run in range(KILLS):
        with ExitStack() as stack:
            gateways = [
                stack.enter_context(serving(tmp_path / "home", upstream, "--store", address))
                for _ in range(2)
            ]
            lock = ExitStack()
            if backend == "sqlite" and run % 2 == 0:
                lock.enter_context(locked(store))
            with lock, ThreadPoolExecutor(CLIENTS) as pool:
                by_client = [[Conversation(f"run{run}-{number}")] for number in range(CLIENTS)]
                clients = [
                    pool.submit(until_killed, gateways[number % 2].url, by_client[number])
                    for number in range(CLIENTS)
                ]
                wait_for(
                    lambda by_client=by_client: all(
                        client_conversations[0].recorded for client_conversations in by_client
                    )
                )
                time.sleep(chance.random() * (2 if LARGE else 0.5))
                for gateway in gateways:
                    gateway.process.kill()
                for client in clients:
                    client.result()
            conversations += [
                conversation
                for client_conversations in by_client
                for conversation in client_conversations
            ]
    assert "no" not in record_targets(conversations)
    assert backend == "postgres" or "journal" in record_targets(conversations)
    with serving(tmp_path / "home", upstream, "--store", address):  # one replays what both left
        check(address, conversations)


def until_killed(url: str, conversations: list[Conversation]) -> None:
    """Hold one conversation after the other until the gateway is gone."""
    with suppress(OSError, HTTPException):
        while True:
            for _ in range(TURNS):
                conversations[-1].turn(url)
            conversations.append(Conversation(f"{conversations[0].name}-{len(conversations)}"))


def test_store_errors_are_not_shown_to_clients(upstream: Upstream, tmp_path: Path) -> None:
    """Whatever happens, no reply names the store's path."""
    replies: list[Any] = []
    with serving(tmp_path, upstream) as gateway, locked(gateway.store):
        for stream in (False, True):
            body = {"model": "c/m", "max_tokens": 9, "stream": stream}
            body["messages"] = [{"role": "user", "content": "hello"}]
            replies.append(post(f"{gateway.url}/v1/messages", body))
    assert [status for status, _, _ in replies] == [200, 200]
    assert str(tmp_path) not in repr(replies)
    assert sqlite3.Error.__name__ not in repr(replies)
