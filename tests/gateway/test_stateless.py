"""Many concurrent clients that send their whole conversation with each request.

They continue, go back to earlier turns and start subagents. Some name their session, some are
recognised only by call ids, some only by their text. With `WEFT_TORTURE=1` there are 2,000.
"""

import os
import random
from uuid import UUID

import orjson
import pytest

from weft.codec import CODECS
from weft.gateway import (
    AnswerRecord,
    DigestCache,
    RecordingContext,
    RequestRecord,
    SentBody,
    record_answer,
    record_request,
)
from weft.history import View, visible_rows
from weft.store import SqliteStore
from weft.thread import SentBodyCache, fsck

CONVERSATIONS = 2000 if os.environ.get("WEFT_TORTURE") else 60
KINDS = ("session", "calls", "text")
OPENINGS = ("hi", "Fix the failing test, please.")
SYSTEM = "You work on a repository. " * 20


class Client:
    """One conversation, as its client keeps it."""

    def __init__(self, number, kind, chance, parent=None):
        self.kind, self.chance = kind, chance
        self.hint = f"session-{number}" if kind == "session" else None
        self.system, self.opening = SYSTEM, chance.choice(OPENINGS)
        if parent is not None:  # a subagent has its session, and a task of its own
            self.hint, self.system, self.opening = parent.hint, "You search.", self._words()
        self.messages = []
        self.places = []
        self.turns = chance.randint(2, 7)
        self.new_bytes = 0

    def next_body(self):
        """The next request; now and then with an earlier question in other words."""
        chance = self.chance
        if self.kind != "text" and len(self.places) > 1 and chance.random() < 0.25:
            # At least one answer stays: it tells which conversation this is.
            length = chance.randrange(1, len(self.places))
            ends = [n for n, m in enumerate(self.messages, 1) if m["role"] == "assistant"]
            del self.messages[ends[length - 1] :]
            del self.places[length:]
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": self._words()}
            for block in (self.messages[-1]["content"] if self.messages else ())
            if block["type"] == "tool_use"
        ]
        text = self._words() if self.messages else self.opening
        self._add({"role": "user", "content": [*results, {"type": "text", "text": text}]})
        parts = {"model": "m", "max_tokens": 99, "system": self.system, "messages": self.messages}
        return orjson.dumps(parts)

    def next_answer(self):
        """What the model says next: text, and perhaps calls."""
        content = [{"type": "text", "text": self._words()}]
        if self.kind == "calls" or self.chance.random() < 0.3:
            call = {"type": "tool_use", "id": f"toolu_{self._token()}", "name": "run"}
            content.append({**call, "input": {"command": self._words()}})
        return content

    def take(self, content, place):
        self._add({"role": "assistant", "content": content})
        self.places.append(place)

    def _add(self, message):
        self.messages.append(message)
        self.new_bytes += len(orjson.dumps(message))

    def _words(self):
        return " ".join(self._token() for _ in range(self.chance.randint(3, 40)))

    def _token(self):
        return UUID(int=self.chance.getrandbits(128)).hex


class Recorder:
    """Records in a store as the gateway does."""

    def __init__(self, store):
        self.store = store
        self.context = RecordingContext(DigestCache(), SentBodyCache())
        self.exchanges = 0

    def exchange(self, client):
        self.exchanges += 1
        body = client.next_body()
        codec = CODECS["anthropic"]
        request = codec.decode_request(orjson.loads(body))
        id = f"exchange-{self.exchanges}"
        record = RequestRecord(id, 1e9 + self.exchanges, "local", client.hint, request.messages)
        location = record_request(self.store, record, self.context, body=body, is_new=True).location
        content = client.next_answer()
        answer = {"role": "assistant", "content": content}
        message = codec.decode_request({"model": "m", "messages": [answer]}).messages[0]
        sent = SentBody(body, "anthropic", "m")
        answered = AnswerRecord(
            id, 1e9 + self.exchanges, message, f"msg_{id}", None, location, sent
        )
        after = record_answer(self.store, answered, self.context, is_new=True)
        client.take(content, (after.thread, bytes.fromhex(after.head)))


def visible_texts(messages):
    """What a person sees of messages, in one line each."""
    lines = []
    for message in messages:
        if message.role != "system":
            lines += [(message.role, str(getattr(b, "text", None) or b)) for b in message.blocks]
    return lines


@pytest.fixture
def store(tmp_path):
    opened = SqliteStore(tmp_path / "weft.db")
    yield opened
    opened.close()


def test_every_conversation_is_a_separate_thread(store):
    chance = random.Random(12)
    recorder = Recorder(store)
    clients, waiting, sizes = [], [], []
    for number in range(CONVERSATIONS):
        waiting.append(Client(number, KINDS[number % len(KINDS)], chance))
    active = waiting[:24]
    clients += active
    del waiting[:24]
    while active:
        client = chance.choice(active)
        recorder.exchange(client)
        client.turns -= 1
        if client.kind == "session" and chance.random() < 0.1:
            subagent = Client(None, "calls", chance, client)
            clients.append(subagent)
            active.append(subagent)
        if not client.turns:
            active.remove(client)
            if waiting:
                active.append(waiting.pop())
                clients.append(active[-1])
        if recorder.exchanges % 20 == 0:
            sizes.append((sum(each.new_bytes for each in clients), store._file.size()))

    threads = [{thread for thread, _ in client.places} for client in clients]
    assert all(len(each) == 1 for each in threads)
    assert len({thread for each in threads for thread in each}) == len(clients)
    for client in clients:
        thread, head = client.places[-1]
        rows = View().extend(store.walk(thread, head)).rows
        body = {"model": "m", "messages": client.messages}
        sent = CODECS["anthropic"].decode_request(body).messages
        assert visible_texts(row.message for row in visible_rows(rows)) == visible_texts(sent)
    assert fsck(store).clean

    middle = len(sizes) // 2
    content, size = zip(*(sizes[0], sizes[middle], sizes[-1]), strict=True)
    first = (size[1] - size[0]) / (content[1] - content[0])
    second = (size[2] - size[1]) / (content[2] - content[1])
    assert second < 1.2 * first
