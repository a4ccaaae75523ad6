"""What recording costs: growing conversations through the gateway, with and without it.

    python bench/gateway.py [--turns N] [--conversations N] [--agents N] [--large]

Three servers answer the same load in one run: a bare relay (granian and aiohttp, no Weft), Weft
without recording, and Weft with it. The upstream writes its answers by hand, so that it is never
the bottleneck. The load maker sends each turn of a conversation when the last one was answered.

CPU is that of the server's process, read from the system, so it does not depend on the load maker.
`--agents` also measures sessions with the requests of Claude Code: to an upstream of its protocol,
and to one of Chat Completions, where earlier reasoning is restored.
`--large` also measures 5,000 conversations that begin with "hi", a store of 100,000 conversations
and a thread of 10,000 branches. Full stores are written with the functions that the gateway uses.
A server with a full store and one with an empty store run at the same time and take turns, so that
a change of the machine's speed concerns both, and the cost is the mean of all rounds.
"""

import argparse
import asyncio
import multiprocessing
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from claude_code import claude_code_body
from msgspec import Struct

from weft.codec import CODECS
from weft.gateway.records import (
    AnswerRecord,
    DigestCache,
    RecordingContext,
    RequestRecord,
    SentBody,
    record_answer,
    record_request,
)
from weft.model import Message, Text
from weft.store import SqliteStore
from weft.thread import LOCAL_SCOPE, SentBodyCache

EDGE = 20
"""How many of the first and last turns are measured apart."""

ROUNDS = 10
"""How often a full and an empty store are measured."""

TICKS = os.sysconf("SC_CLK_TCK")
QUESTION = "Please look at the module again and say what has changed since the last time. " * 6
ANSWER = "The module reads its settings once, at the start, and keeps them for the run. " * 8
SYSTEM = [{"type": "text", "text": "You are an agent that works on a repository. " * 40}]
TOOLS = [
    {
        "name": name,
        "description": f"{name} a file of the repository. " * 8,
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    }
    for name in ("read", "write", "edit", "search", "run", "list")
]

RELAY = """
import asyncio, sys
import aiohttp, granian
UPSTREAM = sys.argv[2]
session = None
async def app(scope, receive, send):
    global session
    if scope["type"] != "http":
        return
    body = b""
    while True:
        event = await receive()
        body += event.get("body", b"")
        if not event.get("more_body"):
            break
    if session is None:
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
    headers = {"content-type": "application/json"}
    async with session.post(UPSTREAM + scope["path"], data=body, headers=headers) as reply:
        data = await reply.read()
        await send({"type": "http.response.start", "status": reply.status,
                    "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": data})
if __name__ == "__main__":
    from granian.server.embed import Server
    server = Server(app, address="127.0.0.1", port=int(sys.argv[1]), interface="asgi")
    asyncio.run(server.serve())
"""


class UpstreamServer(asyncio.Protocol):
    """HTTP/1.1 by hand: one answer for each request with a body."""

    number = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.data = bytearray()

    def data_received(self, data: bytes) -> None:
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.data[:end]).lower()
            position = head.find(b"content-length:")
            length = int(head[position + 15 :].split(b"\r\n", 1)[0]) if position >= 0 else 0
            if len(self.data) < end + 4 + length:
                return
            body = bytes(self.data[end + 4 : end + 4 + length])
            del self.data[: end + 4 + length]
            calls_tool = b'"Bash"' in body
            answer = self.chat if b"/chat/completions" in head else self.message
            self.transport.write(self.answer(answer(calls_tool)))  # type: ignore[attr-defined]

    @classmethod
    def message(cls, calls_tool: bool) -> dict[str, Any]:
        """A Messages answer."""
        content: list[dict[str, Any]] = [{"type": "text", "text": f"{ANSWER}#{cls.number}"}]
        if calls_tool:
            thinking = {"type": "thinking", "thinking": ANSWER, "signature": f"{cls.number:032x}"}
            call_id = f"toolu_{cls.number:024x}"
            call = {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": "ls"}}
            content = [thinking, *content, call]
        return {
            "id": f"msg_{cls.number:024x}",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": content,
            "stop_reason": "tool_use" if calls_tool else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 5},
        }

    @classmethod
    def chat(cls, calls_tool: bool) -> dict[str, Any]:
        """A Chat Completions answer with reasoning, which Claude Code does not send back."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": f"{ANSWER}#{cls.number}",
            "reasoning_content": ANSWER,
        }
        if calls_tool:
            function = {"name": "Bash", "arguments": '{"command":"ls"}'}
            call = {"id": f"call_{cls.number:024x}", "type": "function", "function": function}
            message["tool_calls"] = [call]
        reason = "tool_calls" if calls_tool else "stop"
        return {
            "id": f"chatcmpl-{cls.number:024x}",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }

    @classmethod
    def answer(cls, answer: dict[str, Any]) -> bytes:
        cls.number += 1
        body = orjson.dumps(answer)
        kind = "content-type: application/json"
        head = f"HTTP/1.1 200 OK\r\n{kind}\r\ncontent-length: {len(body)}\r\n\r\n"
        return head.encode() + body


def run_upstream(ready: Any) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(UpstreamServer, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


@contextmanager
def upstream() -> Iterator[str]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=run_upstream, args=(theirs,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()


class Server(Struct):
    """A running server: where it is, and its process."""

    url: str
    pid: int
    store: Path | None = None

    def cpu(self) -> float:
        """The seconds of CPU that its process has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def weft(url: str, folder: Path, *flags: str) -> Iterator[Server]:
    command = [
        sys.executable, "-c", "from weft.cli import entry; entry()", "serve", "--port", "0",
        "--store", str(folder / "weft.db"), f"--upstream=a=anthropic:{url}",
        f"--upstream=b=openai-chat:{url}/v1", *flags,
    ]  # fmt: skip
    environ = {**os.environ, "HOME": str(folder)}
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environ)
        assert process.stdout is not None
        try:
            address = process.stdout.readline().split()[-1].decode()
            yield Server(address, process.pid, folder / "weft.db")
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def relay(url: str, folder: Path) -> Iterator[Server]:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = folder / "relay.py"
    script.write_text(RELAY)
    process = subprocess.Popen([sys.executable, str(script), str(port), url])
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield Server(f"http://127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        process.wait(60)


class Load(Struct):
    """The result of a load; `first` and `last` are the CPU per exchange of its first and last
    turns."""

    seconds: float
    exchanges: int
    cpu: float
    first: float
    last: float

    @property
    def rate(self) -> float:
        return self.exchanges / self.seconds


class Conversation:
    """A client's conversation as bytes, so that writing a request is only a join."""

    def __init__(self, name: str | None, messages: Sequence[bytes] = ()) -> None:
        head = {"model": "a/m", "max_tokens": 900, "system": SYSTEM, "tools": TOOLS}
        self.head = orjson.dumps(head)[:-1] + b',"messages":['
        self.name = name
        self.question = QUESTION
        self.messages = list(messages)
        self.headers = {"content-type": "application/json"}
        if name is not None:
            self.headers["x-session-id"] = name

    def ask(self, text: str) -> bytes:
        self.messages.append(orjson.dumps({"role": "user", "content": text}))
        return self.head + b",".join(self.messages) + b"]}"

    def take(self, answer: bytes) -> None:
        content = orjson.loads(answer)["content"]
        self.messages.append(orjson.dumps({"role": "assistant", "content": content}))


class AgentConversation(Conversation):
    """A session of Claude Code: each answer calls a tool, each question is the tool's result."""

    def __init__(self, name: str, model: str) -> None:
        super().__init__(name)
        body = {**claude_code_body(8), "model": model, "stream": False}
        self.messages = [orjson.dumps(message) for message in body.pop("messages")[:2]]
        self.system = body.pop("system")
        self.tail = b"," + orjson.dumps(body)[1:]
        self.call: str | None = None

    def ask(self, text: str) -> bytes:
        if self.call is not None:
            result = {"type": "tool_result", "tool_use_id": self.call, "content": text}
            self.messages.append(orjson.dumps({"role": "user", "content": [result]}))
        billing = f"x-anthropic-billing-header: cc_version=2.1; cch={len(self.messages):05x};"
        system = [{"type": "text", "text": billing}, *self.system[1:]]
        messages = b",".join(self.messages)
        return b'{"messages":[' + messages + b'],"system":' + orjson.dumps(system) + self.tail

    def take(self, answer: bytes) -> None:
        super().take(answer)
        content = orjson.loads(answer)["content"]
        self.call = next(block["id"] for block in content if block["type"] == "tool_use")


async def grow(
    server: Server, conversations: list[Conversation], turns: int, at_once: int = 1000
) -> Load:
    """All conversations grow concurrently; they wait for each other before the last turns."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def turn(conversation: Conversation, number: int) -> None:
            own = "" if conversation.name is None else f"{number}: "
            body = conversation.ask(f"{own}{conversation.question}")
            url = f"{server.url}/v1/messages"
            async with session.post(url, data=body, headers=conversation.headers) as reply:
                answer = await reply.read()
                assert reply.status == 200, answer
            conversation.take(answer)

        async def some(conversation: Conversation, first: int, last: int) -> None:
            async with gate:
                for number in range(first, last):
                    await turn(conversation, number)

        gate = asyncio.Semaphore(at_once)

        edge = min(EDGE, turns // 2)
        spans = [(0, edge), (edge, turns - edge), (turns - edge, turns)]
        started, first_cpu = time.perf_counter(), server.cpu()
        costs: list[float] = []
        for span in spans:
            before = server.cpu()
            await asyncio.gather(*(some(each, *span) for each in conversations))
            exchanges = max(1, (span[1] - span[0]) * len(conversations))
            costs.append((server.cpu() - before) / exchanges)
        exchanges = turns * len(conversations)
        seconds = time.perf_counter() - started
        cpu = (server.cpu() - first_cpu) / exchanges
        return Load(seconds, exchanges, cpu, costs[0], costs[-1])


async def latencies(servers: Sequence[Server], turns: int) -> list[float]:
    """The median seconds of an exchange with one connection to each server.

    The servers take turns, so that a change of the machine's speed concerns all of them.
    """
    measured = [(server, Conversation("one"), list[float]()) for server in servers]
    async with aiohttp.ClientSession() as session:
        for number in range(turns):
            for server, conversation, times in measured:
                body = conversation.ask(f"{number}: {QUESTION}")
                url = f"{server.url}/v1/messages"
                started = time.perf_counter()
                async with session.post(url, data=body, headers=conversation.headers) as reply:
                    answer = await reply.read()
                times.append(time.perf_counter() - started)
                conversation.take(answer)
    return [statistics.median(times) for _, _, times in measured]


def measure_latency(url: str, folder: Path, turns: int) -> None:
    homes = [folder / name for name in ("one-without", "one-with")]
    for home in homes:
        home.mkdir()
    with weft(url, homes[0], "--no-record") as without, weft(url, homes[1]) as recorded:
        for server in (without, recorded):
            asyncio.run(grow(server, [Conversation("warm")], 8))
        medians = asyncio.run(latencies((without, recorded), turns))
    added = (medians[1] - medians[0]) * 1000
    print(f"recording adds {added:.2f} ms at one connection, median (at most 2 ms)", flush=True)


def show(name: str, load: Load) -> None:
    turns = f"first turns {load.first * 1000:.2f}, last turns {load.last * 1000:.2f}"
    print(f"{name:25} {load.rate:7.0f}/s {load.cpu * 1000:7.2f} ms CPU ({turns})", flush=True)


def measure(url: str, folder: Path, conversations: int, turns: int) -> None:
    loads: dict[str, Load] = {}
    makers = {
        "bare relay": lambda home: relay(url, home),
        "without recording": lambda home: weft(url, home, "--no-record"),
        "with recording": lambda home: weft(url, home),
    }
    for name, make in makers.items():
        home = folder / name.replace(" ", "-")
        home.mkdir()
        with make(home) as server:
            asyncio.run(grow(server, [Conversation("warm")], 8))
            several = [Conversation(f"c{number}") for number in range(conversations)]
            loads[name] = asyncio.run(grow(server, several, turns))
        show(name, loads[name])
    without, recorded = loads["without recording"], loads["with recording"]
    print(f"\nrecording keeps {recorded.rate / without.rate:.2f}x of the rate (at least 0.5x)")
    print(f"recording costs {(recorded.cpu - without.cpu) * 1000:.2f} ms of CPU (at most 1 ms)")
    first, last = recorded.first - without.first, recorded.last - without.last
    print(f"  in the first turns {first * 1000:.2f} ms, in the last turns {last * 1000:.2f} ms")
    measure_latency(url, folder, min(turns, 100))


def measure_agents(url: str, folder: Path, sessions: int, turns: int) -> None:
    """Sessions of Claude Code, with and without recording, to both upstreams."""
    for name, model in (("Messages", "a/m"), ("Chat Completions", "b/m")):
        loads: list[Load] = []
        for flags in (("--no-record",), ()):
            home = folder / f"agents-{model[0]}-{len(flags)}"
            home.mkdir()
            with weft(url, home, *flags) as server:
                asyncio.run(grow(server, [AgentConversation("warm", model)], 8))
                several = [AgentConversation(f"c{number}", model) for number in range(sessions)]
                loads.append(asyncio.run(grow(server, several, turns)))
            show(f"{name}, {'without' if flags else 'with'}", loads[-1])
        without, recorded = loads
        first, last = recorded.first - without.first, recorded.last - without.last
        print(
            f"  recording keeps {recorded.rate / without.rate:.2f}x of the rate, and costs", end=" "
        )
        print(
            f"{first * 1000:.2f} ms in the first turns, {last * 1000:.2f} ms in the last",
            flush=True,
        )


def measure_large(url: str, folder: Path, count: int, branches: int, equal: int) -> None:
    """Compare the cost of an exchange in large stores with that in an empty one."""
    greet(url, folder / "hi", equal)
    stores = {
        f"{count:,} conversations": fill(folder / "conversations", count, 0),
        f"{branches:,} branches": fill(folder / "branches", 0, branches),
    }
    for name, (home, trunk) in stores.items():
        empty = folder / f"empty-{name}"
        empty.mkdir()
        with weft(url, empty) as empty_server, weft(url, home) as full_server:
            costs: dict[int, list[float]] = {empty_server.pid: [], full_server.pid: []}
            for number in range(ROUNDS + 1):
                for server in (empty_server, full_server):
                    messages = trunk if server is full_server else []
                    several = [
                        Conversation("forked" if messages else f"n{number}.{n}", messages)
                        for n in range(16)
                    ]
                    costs[server.pid].append(asyncio.run(grow(server, several, 25)).cpu)
        # The first round is left out: both servers import and prepare what they need then.
        empty_cost = statistics.mean(costs[empty_server.pid][1:])
        full_cost = statistics.mean(costs[full_server.pid][1:])
        both = f"{full_cost * 1000:.2f} ms CPU, {empty_cost * 1000:.2f} ms in an empty store"
        print(f"{name}: {both}: {full_cost / empty_cost:.2f}x (at most 1.2x)", flush=True)


def greet(url: str, home: Path, count: int) -> None:
    """Conversations that all begin equally, without a session: each is a separate thread."""
    home.mkdir()
    costs: list[float] = []
    with weft(url, home) as server:
        for start in range(0, count, 500):
            several = [Conversation(None) for _ in range(min(500, count - start))]
            for conversation in several:
                conversation.question = "hi"
            costs.append(asyncio.run(grow(server, several, 2, at_once=16)).cpu)
    with sqlite3.connect(home / "weft.db") as store:
        threads = store.execute("SELECT count(*) FROM thread").fetchone()[0]
    first, last = costs[0] * 1000, costs[-1] * 1000
    print(f"{count:,} conversations that begin with hi: {threads:,} threads,", end=" ")
    print(f"{first:.2f} ms CPU at first, {last:.2f} ms at last", flush=True)


def fill(home: Path, count: int, branches: int) -> tuple[Path, list[bytes]]:
    """A store with this many conversations, or branches of one thread, and that thread's start."""
    home.mkdir()
    store = SqliteStore(home / "weft.db")
    context = RecordingContext(DigestCache(), SentBodyCache())

    def record(conversation: Conversation, number: int) -> None:
        body = conversation.ask(f"{number}: {QUESTION}")
        request = CODECS["anthropic"].decode_request(orjson.loads(body))
        exchange = f"{conversation.name}-{number}-{len(conversation.messages)}"
        request_record = RequestRecord(
            exchange, time.time(), LOCAL_SCOPE, conversation.name, request.messages, request.tools
        )
        location = record_request(store, request_record, context, is_new=True).location
        message = Message("assistant", (Text(f"{ANSWER}#{exchange}"),))
        sent = SentBody(body, "anthropic", "m")
        answer = AnswerRecord(exchange, time.time(), message, exchange, None, location, sent)
        record_answer(store, answer, context, is_new=True)
        echo = {"role": "assistant", "content": message.blocks[0].text}
        conversation.messages.append(orjson.dumps(echo))

    trunk = Conversation("forked")
    for start in range(0, count, 200):
        with store.transaction():
            for number in range(start, min(count, start + 200)):
                record(Conversation(f"k{number}"), number)
    for number in range(2 if branches else 0):
        record(trunk, number)
    for start in range(0, branches, 200):
        with store.transaction():
            for number in range(start, min(branches, start + 200)):
                record(Conversation("forked", trunk.messages[:2]), number)
    store.close()
    return home, trunk.messages[:2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, default=32)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--agents", type=int, default=0, help="sessions of Claude Code")
    parser.add_argument("--large", action="store_true", help="also measure full stores")
    parser.add_argument("--stored", type=int, default=100_000)
    parser.add_argument("--branches", type=int, default=10_000)
    parser.add_argument("--equal", type=int, default=5_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, upstream() as url:
        if options.conversations:
            measure(url, Path(folder), options.conversations, options.turns)
        if options.agents:
            measure_agents(url, Path(folder), options.agents, options.turns)
        if options.large:
            measure_large(url, Path(folder), options.stored, options.branches, options.equal)


if __name__ == "__main__":
    main()
