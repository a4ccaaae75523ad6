"""The cost of recording an exchange depends neither on the store's size nor on the turn.

The cost is counted in steps of SQLite's virtual machine, statements and function calls, which do
not depend on the load of the machine.
"""

import asyncio
import random
import re
import sys
import time
from contextlib import contextmanager
from itertools import count, product
from uuid import uuid4

import orjson
import pytest

import weft.thread
from weft.codec import CODECS
from weft.gateway import (
    AnswerRecord,
    DigestCache,
    ExchangeRecorder,
    RecordingContext,
    RequestRecord,
    SentBody,
    TraceCache,
    read_incoming,
    record_answer,
    record_request,
)
from weft.history import tools_digest
from weft.model import Message, Origin, Request, Response, Text, Thinking, ToolCall
from weft.store import SqliteStore
from weft.thread import SentBodyCache, fsck

TOOLS = [{"name": "read", "description": "reads a file " * 20, "input_schema": {"type": "object"}}]
STEP = 10
"""How many steps of the virtual machine are counted at once."""


class Gateway:
    """Records exchanges in one store, and counts what SQLite does for each."""

    def __init__(self, path):
        self.store = SqliteStore(path)
        self.context = RecordingContext(DigestCache(), SentBodyCache())
        self.steps = self.statements = 0
        self.names = count()
        connection = self.store._file._db
        connection.set_progress_handler(self._count_steps, STEP)
        connection.set_trace_callback(self._count_statement)

    def _count_steps(self):
        self.steps += STEP

    def _count_statement(self, _sql):
        self.statements += 1

    def exchange(self, conversation, text, answer=None):
        """One turn; returns the location of its answer, and what it cost."""
        conversation.messages.append({"role": "user", "content": text})
        body = conversation.body()
        request = CODECS["anthropic"].decode_request(orjson.loads(body))
        exchange = uuid4().hex
        self.steps = self.statements = 0
        record = RequestRecord(
            exchange, 1.0, "scope", conversation.hint, request.messages, request.tools
        )
        recorded = record_request(self.store, record, self.context, body=body, is_new=True)
        answer = answer or f"answer {next(self.names)}"
        location = record_answer(
            self.store,
            AnswerRecord(
                exchange,
                2.0,
                Message("assistant", (Text(answer),)),
                f"msg_{next(self.names)}",
                None,
                recorded.location,
                SentBody(body, "anthropic", "m"),
            ),
            self.context,
            is_new=True,
        )
        conversation.messages.append({"role": "assistant", "content": answer})
        return location, (self.steps, self.statements)


class Conversation:
    def __init__(self, hint=None, messages=()):
        self.hint = hint
        self.messages = list(messages)

    def body(self):
        parts = {"model": "m", "tools": TOOLS, "system": "be brief", "messages": self.messages}
        return orjson.dumps(parts)


@pytest.fixture
def gateway(tmp_path):
    opened = Gateway(tmp_path / "weft.db")
    yield opened
    opened.store.close()


def worst(costs):
    return tuple(max(each) for each in zip(*costs, strict=True))


def is_flat(first, last):
    """Whether the last cost is about the first: indexes are trees, and numbers are bisected."""
    return all(after <= before * 1.3 + 10 for before, after in zip(first, last, strict=True))


@pytest.mark.parametrize("hint", ["session", None])
def test_a_turn_costs_the_same_however_long_the_conversation_is(gateway, hint):
    conversation = Conversation(hint)
    costs = [gateway.exchange(conversation, f"question {n} " * 20)[1] for n in range(160)]
    assert is_flat(worst(costs[2:10]), worst(costs[20:]))


@contextmanager
def counted_calls(counts, turn):
    """Counts the calls of functions, also of those in C, unless the turn is not compared."""
    if not (15 <= turn <= 20 or 60 <= turn <= 110 or turn >= 195):
        yield
        return

    def count_call(_frame, event, _function):
        counts[turn] = counts.get(turn, 0) + (event in ("call", "c_call"))

    before = sys.getprofile()
    sys.setprofile(count_call)
    try:
        yield
    finally:
        sys.setprofile(before)


def write_body(client, messages, turn):
    """A client's request. All but the plain one change something else in it every time."""
    system, tools = "be brief", list(TOOLS)
    if client == "agent":
        system = [{"type": "text", "text": f"billing {turn}"}, {"type": "text", "text": "be brief"}]
    if "clock" in client:
        system = [{"type": "text", "text": "be brief"}, {"type": "text", "text": f"now: {turn}"}]
    if "tools" in client:
        tools = [*TOOLS, {**TOOLS[0], "name": "write"}][:: turn % 2 * 2 - 1]
    if "reminder" in client:
        reminder = {"role": "system", "content": f"now: {turn}"}
        messages = [*messages[:-1], reminder, messages[-1]]
    body = {"model": "m", "messages": messages, "system": system, "tools": tools}
    return orjson.dumps(dict(reversed(body.items())) if "first" in client else body)


MAKER = Origin("chat", "up", "m")


@pytest.mark.parametrize(
    ("client", "hint", "maker"),
    [
        *product(["plain", "agent"], ["session", None], [None, MAKER]),
        ("clock", "session", None),
        ("clock", None, MAKER),
        ("clock first", "session", MAKER),
        ("plain clock", "session", MAKER),
        ("tools in another order", None, None),
        ("tools in another order", "session", MAKER),
        ("plain tools in another order", "session", MAKER),
        ("reminder", "session", MAKER),
        ("plain reminder", "session", MAKER),
    ],
)
def test_turn_200_makes_no_more_calls_than_turn_20(gateway, hint, maker, client):
    """Also where a translation needs the private state of all earlier answers.

    An agent's requests have a cache mark that moves, and its answers call tools. Plain clients only
    talk.
    """
    is_agent = "plain" not in client
    volatile = (re.compile("^billing"),)
    context = RecordingContext(DigestCache(), SentBodyCache(), volatile)
    messages, counts, restored = [], {}, {}
    for turn in range(201):
        mark = {"cache_control": {"type": "ephemeral"}} if is_agent else {}
        if is_agent and messages:
            del messages[-2]["content"][0]["cache_control"]
            result = {"type": "tool_result", "tool_use_id": call_id(turn - 1), "content": "ok" * 50}
            messages.append({"role": "user", "content": [{**result, **mark}]})
        else:
            block = {"type": "text", "text": f"question {turn} " * 20, **mark}
            messages.append({"role": "user", "content": [block]})
        body = write_body(client, messages, turn)
        asked = CODECS["anthropic"].decode_request(orjson.loads(body))
        exchange = f"exchange {turn}"
        request = RequestRecord(exchange, 1.0, "scope", hint, asked.messages, asked.tools)
        gateway.statements = 0
        with counted_calls(counts, turn):
            recorded = record_request(
                gateway.store, request, context, maker, body=body, is_new=True
            )
        blocks = [Thinking(f"thought {turn}"), Text(f"answer {turn}")]
        blocks += [ToolCall(call_id(turn), "read", "{}")] if is_agent else []
        answer = AnswerRecord(
            exchange,
            2.0,
            Message("assistant", tuple(blocks), origin=maker),
            f"msg_{turn}",
            None,
            recorded.location,
            SentBody(body, "anthropic", "m"),
        )
        with counted_calls(counts, turn):
            record_answer(gateway.store, answer, context, is_new=True)
        counts[turn] = counts.get(turn, 0) + 100 * gateway.statements
        restored[turn] = len(recorded.answers)
        echo = [{"type": "text", "text": f"answer {turn}"}]
        call = {"type": "tool_use", "id": call_id(turn), "name": "read", "input": {}}
        echo += [call] if is_agent else []
        messages.append({"role": "assistant", "content": echo})
    assert restored[200] == (0 if maker is None else 200)
    assert len(gateway.store.threads()) == 1
    first = max(counts[turn] for turn in range(15, 21))
    assert max(counts[turn] for turn in (*range(60, 111), *range(195, 201))) <= 1.1 * first


def call_id(turn):
    return f"toolu_{random.Random(turn).randbytes(12).hex()}"


def test_a_body_is_rebuilt_from_a_long_chain_by_another_process(gateway, tmp_path):
    conversation, bodies = Conversation("session"), {}
    for number in range(300):
        location, _ = gateway.exchange(conversation, f"question {number}")
        bodies[location.head] = conversation.messages[:-1].copy()
        if number == 200:  # the client goes back, and asks something else
            del conversation.messages[150:]
    gateway.store.close()
    with weft.thread.open(tmp_path / "weft.db", "session") as thread:
        for head in (*list(bodies)[::57], location.head):
            sent = orjson.loads(thread.show(head, sent=True).body)
            assert sent["messages"] == bodies[head]


class CountingStore(SqliteStore):
    """Counts transactions that are not part of another one."""

    begun = 0

    def transaction(self):
        if not self._db.in_transaction:
            self.begun += 1
        return super().transaction()


def test_simultaneous_exchanges_share_a_transaction(tmp_path):
    store = CountingStore(tmp_path / "weft.db")
    recorder = ExchangeRecorder(store, record_wait=60)

    async def exchange(number):
        asked = Request("m", (Message("user", (Text(f"question {number}"),)),))
        recording = await recorder.begin("scope", f"session {number}", asked)
        answer = Message("assistant", (Text(f"answer {number}"),))
        await recorder.finish(recording, Response(answer, f"msg_{number}"))
        return recording.state

    async def all_exchanges():
        return await asyncio.gather(*(exchange(number) for number in range(30)))

    try:
        assert asyncio.run(all_exchanges()) == ["store"] * 30
        assert store.begun == 2  # one for all requests, one for all answers
        assert len(store.threads()) == 30
        assert fsck(store).clean
    finally:
        assert recorder.close()
        store.close()


def test_the_ids_of_exchanges_are_stored_in_order_of_time(tmp_path):
    """In a large store each random key needs a page of its own."""
    store = SqliteStore(tmp_path / "weft.db")
    recorder = ExchangeRecorder(store, record_wait=60)

    async def exchange(number):
        asked = Request("m", (Message("user", (Text(f"question {number}"),)),))
        recording = await recorder.begin("scope", "session", asked)
        answer = Message("assistant", (Text(f"answer {number}"),))
        await recorder.finish(recording, Response(answer, f"msg_{number}"))

    async def all_exchanges():
        for number in range(10):
            await exchange(number)

    before = int(time.time() * 1000)
    try:
        asyncio.run(all_exchanges())
        rows = store._file.read("SELECT key FROM link")
        times = [int.from_bytes(key[:6], "big") for (key,) in rows]
        recent = [each for each in times if before <= each <= time.time() * 1000]
        assert len(recent) == 30  # of each request, of its session, and of its answer
    finally:
        assert recorder.close()
        store.close()


def test_an_exchange_of_any_id_is_recorded_once(tmp_path):
    """Older journals have other ids."""
    store = SqliteStore(tmp_path / "weft.db")
    context = RecordingContext(DigestCache(), SentBodyCache())
    asked = (Message("user", (Text("question"),)),)
    reply = Message("assistant", (Text("answer"),))
    for id in (uuid4().hex, "t", f"t{1:012x}{uuid4().hex}", "t" + "z" * 44):
        request = RequestRecord(id, 1.0, "scope", id, asked)
        answer = AnswerRecord(id, 2.0, reply, f"msg_{id}")
        for _ in range(2):
            record_request(store, request, context)
            record_answer(store, answer, context)
        assert store.count(id) == 2
    store.close()


@pytest.mark.parametrize("hint", ["session", None])
def test_equal_conversations_get_separate_threads_at_constant_cost(gateway, hint):
    opened, costs = [], []
    for number in range(300):
        conversation = Conversation(None if hint is None else f"{hint}-{number}")
        first, cost = gateway.exchange(conversation, "hi", "Hello!")
        again, _ = gateway.exchange(conversation, f"more of {number}")
        opened.append((first.thread, again.thread))
        costs.append(cost)
    assert len({thread for pair in opened for thread in pair}) == 300
    assert all(first == again for first, again in opened)
    assert is_flat(worst(costs[5:20]), worst(costs[-15:]))


def test_the_cost_does_not_grow_with_the_branches_of_a_thread(gateway):
    trunk = Conversation("session")
    for number in range(4):
        gateway.exchange(trunk, f"question {number}")
    threads, costs = set(), []
    for number in range(300):
        fork = Conversation("session", trunk.messages[:4])
        location, cost = gateway.exchange(fork, f"another way {number}")
        threads.add(location.thread)
        costs.append(cost)
        if number in (20, 299):
            costs += [gateway.exchange(fork, f"and on {n}")[1] for n in range(3)]
    assert len(threads) == 1
    assert is_flat(worst(costs[5:25]), worst(costs[-20:]))
    assert fsck(gateway.store).clean


def test_a_conversation_is_stored_once_however_often_it_is_sent(gateway):
    conversation = Conversation("session")
    sizes = []
    for number in range(90):
        gateway.exchange(conversation, f"{number}: " + random.Random(number).randbytes(400).hex())
        sizes.append(gateway.store._file.size())
    assert sizes[-1] - sizes[44] < 1.3 * (sizes[44] - sizes[0]) + 50_000
    assert fsck(gateway.store).clean


def test_a_known_prefix_does_not_change_the_result():
    """Requests that change anything anywhere are read as they would be without a cache."""
    chance = random.Random(3)
    codec = CODECS["anthropic"]
    traces = TraceCache()
    messages, keys = [], ["model", "tools", "system", "messages"]
    for turn in range(400):
        if turn % 40 == 0:
            messages = []
            chance.shuffle(keys)
        elif chance.random() < 0.2 and messages:
            edited = chance.randrange(len(messages))
            messages[edited] = {**messages[edited], "content": f"edited {turn}"}
        elif chance.random() < 0.1:
            del messages[chance.randrange(len(messages)) :]
        for role in ("user", "assistant") * chance.randint(0, 2) + ("user",):
            block = {"type": "text", "text": f"{role} {turn} " * chance.randint(1, 40)}
            marked = {**block, "cache_control": {"type": "ephemeral"}}
            messages.append({"role": role, "content": [chance.choice([block, marked])]})
        system = f"system {turn // chance.choice([1, 50])}"
        values = {"model": "m", "tools": TOOLS, "system": system, "messages": messages}
        body = orjson.dumps({key: values[key] for key in keys})
        request = codec.decode_request(orjson.loads(body))
        hint = chance.choice([None, "session"])
        arguments = ("scope", hint, request.messages, tools_digest(request.tools))
        assert read_incoming(*arguments, traces=traces, body=body) == read_incoming(*arguments)
