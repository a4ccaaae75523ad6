"""Watching exchanges while they run: events over `GET /api/events` and over the page's socket."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

import aiohttp
import orjson
import pytest

import weft.thread
from servers import Scripted, post, scripted_upstream, weft_serve
from slow_upstream import CUT_TEXT, HELD_TEXT, REASON, closing, opening, slow_upstream, streamed
from weft.agent import display_system_message
from weft.gateway import EventQueue, LiveExchange, LiveFeed
from weft.model import ApiError, Delta, Fold, Open, Start, Text

QUEUE_EVENTS = 1000
MODEL = "scripted-model"
SECONDS = 60
Event = dict[str, Any]


@pytest.fixture(scope="module")
def upstream():
    with slow_upstream() as running:
        yield running


@pytest.fixture(autouse=True)
def _closed_gate(upstream):
    upstream.gate.clear()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, upstream):
    with weft_serve(
        tmp_path_factory.mktemp("live"), f"--upstream=mock=anthropic:{upstream.url}"
    ) as running:
        yield running


class Watch:
    """An open stream of events."""

    def __init__(self, url: str, key: str | None = None) -> None:
        address = urlsplit(url)
        self._connection = HTTPConnection(address.netloc, timeout=SECONDS)
        headers = {} if key is None else {"x-api-key": key}
        self._connection.request("GET", f"{address.path}?{address.query}", headers=headers)
        self._reply = self._connection.getresponse()
        assert self._reply.status == 200, self._reply.read()
        assert self._reply.headers["content-type"].startswith("text/event-stream")

    def next(self) -> Event:
        """The next event."""
        data, deadline = b"", time.monotonic() + SECONDS
        while True:
            assert time.monotonic() < deadline, "no event came"  # comments may come for ever
            line = self._reply.readline()
            assert line, "the stream has ended"
            if line.startswith(b"data: "):
                data = line.removeprefix(b"data: ")
            elif line == b"\n" and data:
                return orjson.loads(data)

    def until(self, check: Callable[[Event], bool]) -> list[Event]:
        """The events up to the first that passes the check."""
        events = [self.next()]
        while not check(events[-1]):
            events.append(self.next())
        return events

    def close(self) -> None:
        self._reply.close()
        self._connection.close()


@contextmanager
def watching(gateway, thread: str | None = None, key: str | None = None) -> Iterator[Watch]:
    query = "" if thread is None else f"?thread={quote(thread)}"
    watch = Watch(f"{gateway.url}/api/events{query}", key)
    try:
        yield watch
    finally:
        watch.close()


def ask(
    gateway, text: str, session: str, before: str = "", key: str = "k", path: str = "/v1/messages"
) -> bytes:
    """What a program asks in a session of its own, perhaps after an earlier question."""
    earlier = [("user", before), ("assistant", f"An answer to: {before}")] if before else []
    messages = [{"role": role, "content": text} for role, text in [*earlier, ("user", text)]]
    body = {"model": MODEL, "max_tokens": 99, "messages": messages}
    headers = {"x-weft-thread": session, "x-api-key": key}
    return post(gateway.url + path, {**body, "stream": True}, headers)[2]


class Asking(threading.Thread):
    """A question in a thread of its own, for as long as its answer takes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(daemon=True)
        self.args, self.options, self.answer = args, options, b""
        self.start()

    def run(self) -> None:
        self.answer = ask(*self.args, **self.options)

    def finish(self) -> bytes:
        self.join(SECONDS)
        assert not self.is_alive(), "the answer did not end"
        return self.answer


def is_block(event: Event) -> bool:
    return event["type"] == "block"


def is_over(event: Event) -> bool:
    return event.get("state") in ("done", "failed")


def text_of(events: list[Event], kind: str = "text") -> str:
    return "".join(each["text"] for each in events if is_block(each) and each["kind"] == kind)


def states(events: list[Event]) -> list[str]:
    return [event["state"] for event in events if event["type"] == "exchange"]


def is_running(gateway: Any, thread: str) -> bool:
    """Whether the list of threads shows a thread as running."""
    with urlopen(f"{gateway.url}/api/threads", timeout=SECONDS) as reply:
        rows = orjson.loads(reply.read())["threads"]
    return next(row["running"] for row in rows if row["name"] == thread)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions"])
def test_an_answer_is_visible_while_it_streams(gateway, upstream, path):
    session = f"seen{path.replace('/', '-')}"
    with watching(gateway) as watch:
        assert watch.next() == {"type": "ready"}
        asking = Asking(gateway, "HELD please", session, path=path)
        events = watch.until(lambda event: is_block(event) and HELD_TEXT.strip() in event["text"])
        assert asking.is_alive()  # the upstream waits, so the program does too
        assert is_running(gateway, events[-1]["thread"])
        upstream.gate.set()
        events += watch.until(is_over)
        assert not is_running(gateway, events[-1]["thread"])
        asking.finish()
    assert states(events) == ["waiting", "streaming", "done"]
    assert text_of(events) == HELD_TEXT + "and the second half."
    first = next(event for event in events if event["type"] == "exchange")
    last = events[-1]
    assert first["model"] == MODEL
    assert first["head"]
    assert (last["thread"], last["branch"], last["recorded"]) == (first["thread"], "main", "store")
    with urlopen(f"{gateway.url}/api/rows?thread={last['thread']}", timeout=SECONDS) as reply:
        question, answer = orjson.loads(reply.read())["rows"]
    assert (question["seconds"], question["first_token"]) == (None, None)
    with weft.thread.open(gateway.store, last["thread"]) as thread:
        [newest] = thread.log(limit=1)
        assert newest.to_dict()["first_token"] == newest.first_token == answer["first_token"]
        assert newest.to_dict()["seconds"] == newest.seconds
        assert newest.usage.output > 0
    assert 0 < newest.first_token < newest.seconds  # the upstream waited between its two halves
    assert answer["seconds"] == pytest.approx(newest.seconds, abs=0.06)  # it is rounded
    assert "error" not in last


def test_thinking_and_tool_calls_are_visible(gateway, upstream):
    def frame(name: str, data: Event) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps({"type": name, **data}))

    def answer() -> Scripted:
        block = {"type": "thinking", "thinking": "", "signature": ""}
        call = {"type": "tool_use", "id": "toolu_9", "name": "Bash", "input": {}}
        return Scripted(
            opening()[0],
            frame("content_block_start", {"index": 0, "content_block": block}),
            frame(
                "content_block_delta",
                {"index": 0, "delta": {"type": "thinking_delta", "thinking": "Let me look."}},
            ),
            frame("content_block_stop", {"index": 0}),
            frame("content_block_start", {"index": 1, "content_block": call}),
            frame(
                "content_block_delta",
                {
                    "index": 1,
                    "delta": {"type": "input_json_delta", "partial_json": '{"command": "ls"}'},
                },
            ),
            *closing(1, "tool_use"),
            pause=0.1,
        )

    upstream.answers["think first"] = answer
    with watching(gateway) as watch:
        watch.next()
        asking = Asking(gateway, "think first", "thinks")
        events = watch.until(is_over)
        asking.finish()
    assert states(events) == ["waiting", "thinking", "streaming", "done"]
    assert text_of(events, "thinking") == "Let me look."
    assert text_of(events, "call") == '{"command": "ls"}'
    calls = [event for event in events if event.get("kind") == "call"]
    assert {(call["name"], call["call"]) for call in calls} == {("Bash", "toolu_9")}


@pytest.mark.parametrize(
    ("text", "reason", "part"), [("REFUSED", REASON, ""), ("CUT", None, CUT_TEXT)]
)
def test_a_failure_is_an_event_with_its_reason(gateway, text, reason, part):
    with watching(gateway) as watch:
        watch.next()
        asking = Asking(gateway, text, f"fails-{text}")
        events = watch.until(is_over)
        asking.finish()
    assert events[-1]["state"] == "failed"
    assert reason is None or reason in events[-1]["error"]
    assert events[-1]["error"]
    assert text_of(events) == part


def test_a_watcher_that_joins_or_reconnects_gets_the_answer_so_far(gateway, upstream):
    with watching(gateway) as watch:
        watch.next()
        asking = Asking(gateway, "HELD for two", "joined")
        thread = watch.until(lambda event: is_block(event) and event["text"])[-1]["thread"]
    with watching(gateway, thread) as again:
        snapshot = again.until(lambda event: event["type"] == "ready")
        assert states(snapshot) == ["streaming"]
        assert text_of(snapshot) == HELD_TEXT
        upstream.gate.set()
        rest = again.until(is_over)
        assert text_of(rest) == "and the second half."
    asking.finish()


def test_only_the_named_thread_is_watched(gateway):
    ask(gateway, "the first", "named-one")
    with watching(gateway, "named-one") as watch:
        watch.next()
        ask(gateway, "another thread", "named-two")
        asking = Asking(gateway, "the second", "named-one", before="the first")
        events = watch.until(is_over)
        asking.finish()
    assert {event["thread"] for event in events} == {"named-one"}


def test_an_unknown_thread_is_refused(gateway):
    with pytest.raises(HTTPError) as refused:
        urlopen(f"{gateway.url}/api/events?thread=nobody", timeout=SECONDS)
    with refused.value as reply:
        assert reply.code == 404
        assert orjson.loads(reply.read())["error"]["place"] == "thread"


def test_nobody_sees_the_threads_of_another_key(tmp_path, upstream):
    flags = [f"--upstream=mock=anthropic:{upstream.url}"]
    with weft_serve(tmp_path, *flags, WEFT_API_KEYS="one,two") as gateway:
        with watching(gateway, key="one") as mine, watching(gateway, key="two") as other:
            assert [mine.next(), other.next()] == [{"type": "ready"}] * 2
            asking = Asking(gateway, "a secret", "secret", key="one")
            own_events = mine.until(is_over)
            asking.finish()
            asking = Asking(gateway, "in public", "public", key="two")
            events = other.until(is_over)
            asking.finish()
        own = own_events[-1]["thread"]
        assert own not in {event["thread"] for event in events}
        assert "secret" not in orjson.dumps(events).decode()
        with pytest.raises(HTTPError) as refused:
            urlopen(
                Request(
                    f"{gateway.url}/api/events?thread={quote(own)}", headers={"x-api-key": "two"}
                ),
                timeout=SECONDS,
            )
        with refused.value as reply:
            assert reply.code == 404
        with pytest.raises(HTTPError) as refused:
            urlopen(f"{gateway.url}/api/events", timeout=SECONDS)
        with refused.value as reply:
            assert reply.code == 401


def test_a_web_page_of_another_origin_may_not_watch(gateway):
    request = Request(f"{gateway.url}/api/events", headers={"origin": "https://evil.example"})
    with pytest.raises(HTTPError) as refused:
        urlopen(request, timeout=SECONDS)
    with refused.value as reply:
        assert reply.code == 403


def test_the_socket_pushes_the_same_events_for_the_watched_thread(gateway, upstream):
    ask(gateway, "hello", "pushed")

    async def talk() -> list[Event]:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"{gateway.url}/ws") as socket,
        ):
            await socket.send_json({"type": "watch", "thread": "pushed"})
            frames = [await socket.receive_json(timeout=SECONDS)]
            asking = Asking(gateway, "HELD again", "pushed", before="hello")
            while not is_block(frames[-1]):
                frames.append(await socket.receive_json(timeout=SECONDS))
            upstream.gate.set()
            while not is_over(frames[-1]):
                frames.append(await socket.receive_json(timeout=SECONDS))
            await asyncio.to_thread(asking.finish)
            return frames

    frames = asyncio.run(talk())
    assert text_of(frames) == HELD_TEXT + "and the second half."
    running = [frame["runs"] for frame in frames if frame["type"] == "runs"]
    assert [] in running  # nothing ran when the tab began to watch


def test_a_commit_by_another_process_is_an_event(gateway):
    ask(gateway, "hello", "shared")
    with watching(gateway, "shared") as watch:
        watch.next()
        with weft.thread.open(gateway.store, "shared") as thread:
            deadline = time.monotonic() + SECONDS
            thread.user("from elsewhere")
            event = watch.next()
            assert time.monotonic() < deadline
    assert event == {"type": "changed", "thread": "shared"}


@pytest.mark.parametrize("path", ["/api/undo", "/api/redo"])
def test_a_change_in_the_page_is_an_event(gateway, path):
    session = f"page{path.replace('/', '-')}"
    with weft.thread.open(gateway.store, session) as thread:
        thread.user("one")
        thread.user("two")
        if path == "/api/redo":
            thread.undo()
    with watching(gateway, session) as watch:
        watch.next()
        assert post(gateway.url + path, {"thread": session})[0] == 200
        assert watch.next() == {"type": "changed", "thread": session}


def test_a_watcher_that_does_not_read_does_not_block_the_answer(gateway, upstream):
    """The watcher's connection takes nothing; the program's answer still ends."""
    long = "x" * 100_000

    def answer() -> Scripted:
        text = {"type": "text_delta", "text": long}
        data = orjson.dumps({"type": "content_block_delta", "index": 0, "delta": text})
        delta = b"event: content_block_delta\ndata: %b\n\n" % data
        return Scripted(*opening(), *[delta] * 200, *closing())

    upstream.answers["write 20 MB"] = answer
    with watching(gateway) as watch:
        watch.next()
        asking = Asking(gateway, "write 20 MB", "large")
        assert len(asking.finish()) > 20_000_000
        # Whoever reads again is told that events are missing, and gets the current state.
        events = watch.until(lambda event: event["type"] in ("reload",) or is_over(event))
    assert events[-1]["type"] == "reload" or text_of(events) == long * 200


def test_a_server_stop_does_not_wait_for_watchers(tmp_path, upstream):
    with weft_serve(tmp_path, f"--upstream=mock=anthropic:{upstream.url}") as gateway:
        watch = Watch(f"{gateway.url}/api/events")
        watch.next()
        gateway.process.terminate()
        assert gateway.process.wait(timeout=SECONDS) == 0
        watch.close()


# The feed itself.


def exchange(id: str = "e", thread: str = "t", scope: str | None = None) -> LiveExchange:
    return LiveExchange(id, thread=thread, branch="main", head="h", scope=scope, model="m")


def answering(*texts: str) -> Fold:
    fold = Fold()
    for event in (Start(), Open(0, Text("")), *(Delta(0, "text", text) for text in texts)):
        fold.send(event)
    return fold


def test_without_watchers_an_answer_starts_no_timer_and_is_not_decoded():
    async def run() -> None:
        feed, live = LiveFeed(), exchange()
        feed.begin(live)
        feed.begin_answer(live, answering("a", "b"))
        feed.grow_answer(live)
        assert live.timer is None
        assert live.position.lengths == {}
        feed.end(live)
        assert list(feed) == []

    asyncio.run(run())


def test_a_slow_client_gets_reload_and_then_the_current_state():
    async def run() -> list[Event]:
        feed, live = LiveFeed(), exchange()
        queue = EventQueue(feed, None, lambda _: True)
        assert queue.open() == [{"type": "ready"}]
        feed.begin(live)
        feed.begin_answer(live, answering("so far"))
        for _ in range(QUEUE_EVENTS + 5):
            feed.changed("t", None)
        events = await queue.next(SECONDS)
        queue.close()
        assert not feed.is_watched
        return events

    events = asyncio.run(run())
    assert [event["type"] for event in events] == ["reload", "exchange", "block", "ready"]
    assert text_of(events) == "so far"


def test_a_client_with_too_large_a_backlog_gets_reload_too():
    async def run() -> list[Event]:
        feed, live = LiveFeed(), exchange()
        queue = EventQueue(feed, None, lambda _: True)
        queue.open()
        feed.begin(live)
        feed.begin_answer(live, answering("x" * 5_000_000))
        feed.end(live, ApiError("server", "no", 500))
        return await queue.next(SECONDS)

    assert [event["type"] for event in asyncio.run(run())] == ["reload", "ready"]


def test_many_deltas_become_one_event():
    async def run() -> list[Event]:
        feed, live = LiveFeed(), exchange()
        queue = EventQueue(feed, None, lambda _: True)
        queue.open()
        feed.begin(live)
        await queue.next(SECONDS)
        fold = answering()
        feed.begin_answer(live, fold)
        for number in range(500):
            fold.send(Delta(0, "text", f"{number} "))
            feed.grow_answer(live)
        return await queue.next(SECONDS)

    events = asyncio.run(run())
    assert [event["type"] for event in events] == ["exchange", "block"]
    assert text_of(events) == "".join(f"{number} " for number in range(500))


def busy_then(answer: Scripted) -> Callable[[], Scripted]:
    """The answers of an upstream that is busy twice, and then answers."""
    now = [("retry-after", "0")]
    error = b'{"error": {"message": "words of the upstream"}}'
    answers = [
        Scripted(error, status=429, headers=now),
        Scripted(error, status=503, headers=now),
        answer,
    ]
    return lambda: answers.pop(0)


def test_retries_of_the_pages_agent_are_pushed_and_stored(tmp_path, upstream):
    upstream.answers["be patient"] = busy_then(streamed("Here I am."))
    flags = [f"--upstream=mock=anthropic:{upstream.url}"]
    with weft_serve(tmp_path, *flags, WEFT_API_KEYS="one,two") as gateway:

        async def talk() -> list[Event]:
            async with (
                aiohttp.ClientSession(headers={"x-api-key": "one"}) as session,
                session.ws_connect(f"{gateway.url}/ws") as socket,
            ):
                say = {"type": "say", "thread": "patient", "text": "be patient", "model": MODEL}
                await socket.send_json(say)
                frames = [await socket.receive_json(timeout=SECONDS)]
                while frames[-1]["type"] not in ("message_complete", "error"):
                    frames.append(await socket.receive_json(timeout=SECONDS))
                return frames

        with watching(gateway, key="one") as mine, watching(gateway, key="two") as other:
            assert [mine.next(), other.next()] == [{"type": "ready"}] * 2
            frames = asyncio.run(talk())
            pushed = mine.until(lambda event: event.get("retry", {}).get("attempt") == 2)
            asking = Asking(gateway, "in public", "public", key="two")
            events = other.until(is_over)  # an event about the other key's thread came before
            asking.finish()
        types = [frame.get("subtype", frame["type"]) for frame in frames]
        assert types.index("text_delta") > types.index("api_retry")
        shown = [
            display_system_message(frame) for frame in frames if frame.get("subtype") == "api_retry"
        ]
        assert [each.text for each in shown if each is not None] == [
            "429 from mock (too many requests); retry 1 of 3 in 0 s",
            "503 from mock (service unavailable); retry 2 of 3 in 0 s",
        ]
        assert [event["retry"]["error_status"] for event in pushed if "retry" in event] == [
            429,
            503,
        ]
        assert not [event for event in events if "retry" in event]
        assert "words of the upstream" not in orjson.dumps([*frames, *pushed]).decode()
        # The thread keeps them: each failed request is an attempt at the message.
        name = pushed[-1]["thread"]
        view = Request(f"{gateway.url}/api/rows?thread={quote(name)}", headers={"x-api-key": "one"})
        with urlopen(view, timeout=SECONDS) as reply:
            rows = orjson.loads(reply.read())
        assert [(a["status"], a["reason"], a["after"]) for a in rows["attempts"]] == [
            (429, "too many requests; asked again after 0 s", rows["rows"][0]["id"]),
            (503, "service unavailable; asked again after 0 s", rows["rows"][0]["id"]),
        ]
        assert rows["remarks"] == []


def test_retries_of_an_exchange_are_pushed_to_its_watchers(tmp_path, gateway):
    with watching(gateway) as watch:
        assert watch.next()["type"] == "ready"
        messages = [{"role": "user", "content": "third time"}]
        body = {"model": MODEL, "max_tokens": 9, "stream": True, "messages": messages}
        headers = {"x-weft-thread": "tries", "x-stainless-retry-count": "2"}
        post(gateway.url + "/v1/messages", body, headers)
        first, *others = watch.until(is_over)
        assert (first["state"], first["retry"]) == ("waiting", {"content": "retry 2 by the client"})
        assert not [event for event in others if "retry" in event]
    with scripted_upstream() as gone:
        url = gone.url  # nothing listens on its port after the block
    with weft_serve(tmp_path, f"--upstream=gone=anthropic:{url}") as lonely:
        with watching(lonely) as watch:
            assert watch.next()["type"] == "ready"
            asking = Asking(lonely, "anybody?", "lonely")
            events = watch.until(is_over)
            asking.finish()
        retries = [event["retry"] for event in events if "retry" in event]
        assert [
            display_system_message({**retry, "type": "system", "subtype": "api_retry"})
            for retry in retries
        ]
        (retry,) = retries
        assert (retry["upstream"], retry["error"]) == ("gone", "connection refused")
        assert (retry["attempt"], retry["max_retries"], retry["delay"]) == (1, 1, "0.1 s")
