"""Guarantees of the gateway over HTTP: no leaks, no false answers, no lost records."""

import sqlite3
import threading
import time
from contextlib import closing
from urllib.request import Request, urlopen

import orjson
import pytest

import weft.thread
from servers import UPSTREAM_NAMES, Scripted, post, scripted_upstream, weft_serve
from weft.store import open_store

MOST_JOURNALS = 64
ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


def thinking_upstream(body: bytes) -> Scripted:
    """An Anthropic upstream that thinks about its system prompt, and always answers `Hello.`"""
    system = orjson.dumps(orjson.loads(body).get("system", "")).decode()
    content = [
        {"type": "thinking", "thinking": f"I was told {system}", "signature": "c2lnbmVk" * 4},
        {"type": "text", "text": "Hello."},
    ]
    return Scripted(orjson.dumps({**ANSWER, "content": content}), kind="application/json")


def chat(system: str, *texts: str, **more: object) -> dict[str, object]:
    turns = [
        {"role": ("user", "assistant")[number % 2], "content": text}
        for number, text in enumerate(texts)
    ]
    messages = [{"role": "system", "content": system}, *turns]
    return {"model": "a/claude-x", "messages": messages, **more}


@pytest.fixture(scope="module")
def thinking(tmp_path_factory):
    """A gateway without keys before an upstream that thinks."""
    with scripted_upstream() as upstream:
        upstream.rule = thinking_upstream
        flag = f"--upstream=a=anthropic:{upstream.url}"
        with weft_serve(tmp_path_factory.mktemp("thinking"), flag) as gateway:
            yield gateway, upstream


@pytest.mark.parametrize(
    ("cache_key", "lead"),
    [
        (None, ""),
        ("shared", ""),
        (None, "x-anthropic-billing-header: cc_version=2.1.1;\n"),  # a proxy joined two blocks
    ],
)
def test_no_thinking_reaches_another_conversation(thinking, cache_key, lead):
    gateway, upstream = thinking
    url = f"{gateway.url}/v1/chat/completions"
    opening = f"hi {cache_key} {lead[:9]}"
    more = {} if cache_key is None else {"prompt_cache_key": cache_key}
    threads = {}
    for name in ("alice", "bob"):
        _, headers, _ = post(url, chat(f"{lead}You serve {name}", opening, **more))
        threads[name] = headers["x-weft-thread"]
    for name in ("alice", "bob"):
        upstream.requests.clear()
        body = chat(f"{lead}You serve {name}", opening, "Hello.", "who am I?", **more)
        _, headers, _ = post(url, body)
        other = {"alice": "bob", "bob": "alice"}[name]
        assert other.encode() not in upstream.requests[-1]["body"]
        assert b"I was told" in upstream.requests[-1]["body"]
        assert headers["x-weft-thread"] == threads[name]


def test_equal_conversations_get_separate_threads_and_no_foreign_thinking(thinking):
    gateway, upstream = thinking
    url = f"{gateway.url}/v1/chat/completions"
    opened = {post(url, chat("same", "equal"))[1]["x-weft-thread"] for _ in range(5)}
    upstream.requests.clear()
    continued = [
        post(url, chat("same", "equal", "Hello.", f"mine is {number}"))[1]["x-weft-thread"]
        for number in range(5)
    ]
    assert len(opened) == 5
    assert set(continued) == opened
    assert all(b"I was told" not in request["body"] for request in upstream.requests)


def test_three_equal_runs_are_three_threads(thinking):
    gateway, _ = thinking
    url = f"{gateway.url}/v1/chat/completions"
    turns = ["job", "Hello.", "next", "Hello.", "last"]
    runs = [
        [post(url, chat("cron", *turns[:length]))[1]["x-weft-thread"] for length in (1, 3, 5)]
        for _ in range(3)
    ]
    assert [len(set(run)) for run in runs] == [1, 1, 1]
    assert len({run[0] for run in runs}) == 3


RESPONSE = {
    "object": "response",
    "created_at": 1,
    "status": "completed",
    "model": "m",
    "output": [
        {
            "type": "message",
            "id": "msg_0a1b2c3d4e5f60718293a4b5",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Hello.", "annotations": []}],
        }
    ],
}


@pytest.mark.parametrize("restart", [False, True])
def test_vendor_side_state_belongs_to_the_key_that_created_it(tmp_path, restart):
    """All keys reach the vendor with the operator's one, so the vendor cannot tell them apart."""
    keys = {"WEFT_API_KEYS": "key-one,key-two"}
    one, two = ({"authorization": f"Bearer key-{name}"} for name in ("one", "two"))
    with scripted_upstream() as upstream:
        answer = Scripted(orjson.dumps({**RESPONSE, "id": "resp_1"}), kind="application/json")
        later = Scripted(orjson.dumps({**RESPONSE, "id": "resp_2"}), kind="application/json")
        upstream.then(answer, later)
        flag = f"--upstream=r=openai-responses:{upstream.url}"
        begun = {"model": "m", "input": "hi", "store": True}
        with weft_serve(tmp_path, flag, **keys) as gateway:
            url = f"{gateway.url}/v1/responses"
            assert post(url, begun, one)[0] == 200
            follow = {"model": "m", "input": "more", "previous_response_id": "resp_1"}
            assert post(url, follow, one)[0] == 200
            if not restart:
                assert_foreign(url, upstream, one, two)
        if restart:
            with weft_serve(tmp_path, flag, **keys) as gateway:
                assert_foreign(f"{gateway.url}/v1/responses", upstream, one, two)


def assert_foreign(url, upstream, one, two):
    item = RESPONSE["output"][0]["id"]
    links = [
        {"previous_response_id": "resp_1"},  # not only the newest answer of a branch
        {"previous_response_id": "resp_2"},
        {"input": [{"type": "item_reference", "id": item}]},
    ]
    for link in links:
        upstream.requests.clear()
        body = {"model": "m", "input": "more", **link}
        status, _, data = post(url, body, two)
        assert status in (400, 404), data
        assert upstream.requests == []
        assert post(url, body, one)[0] == 200
    for link in ({"conversation": "conv_1"}, {"conversation": {"id": "conv_1"}}):
        assert post(url, {"model": "m", "input": "more", **link}, two)[0] == 404


CUT = (
    b'data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant",'
    b'"model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":0}}}\n\n',
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n',
    b'data: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"text_delta","text":"half a"}}\n\n',
)
WHOLE = Scripted(
    orjson.dumps({**ANSWER, "content": [{"type": "text", "text": "whole"}]}),
    kind="application/json",
)


def attempts(gateway, thread):
    with weft.thread.open(gateway.store, thread) as handle:
        return [(a.state, a.text, a.reason.message if a.reason else "") for a in handle.attempts()]


def texts(gateway, thread):
    with weft.thread.open(gateway.store, thread) as handle:
        return [message.text for message in handle.compile().messages]


@pytest.mark.parametrize("client", ["anthropic", "openai-chat", "openai-responses", "gemini"])
def test_a_truncated_answer_is_kept_as_an_attempt_without_a_branch(gateway, upstream, client):
    session = f"cut-{client}"
    headers = {"x-weft-thread": session}
    url, body = request_of(client, gateway.url, "hi", stream=True)
    upstream.then(Scripted(*CUT, cut=True))
    post(url, body, headers)
    assert [(state, text) for state, text, _ in attempts(gateway, session)] == [
        ("partial", "half a")
    ]
    upstream.then(Scripted(b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}',
                           status=529, kind="application/json"))  # fmt: skip
    url, body = request_of(client, gateway.url, "hi")
    post(url, body, headers)
    assert attempts(gateway, session)[-1][:2] == ("failed", "")
    assert "busy" in attempts(gateway, session)[-1][2]
    upstream.then(WHOLE)
    post(url, body, headers)
    assert texts(gateway, session) == ["hi", "whole"]
    with weft.thread.open(gateway.store, session) as handle:
        assert list(handle.branches()) == ["main"]


def request_of(client, base, text, *, stream=False):
    """The address and body of a request of one turn, to the Anthropic upstream."""
    model = f"{UPSTREAM_NAMES['anthropic']}/claude-x"
    body = {
        "model": model,
        "max_tokens": 9,
        "messages": [{"role": "user", "content": text}],
        "stream": stream,
    }
    translated = weft.translate(body, "anthropic", client).body
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    paths = {
        "anthropic": "/v1/messages",
        "openai-chat": "/v1/chat/completions",
        "openai-responses": "/v1/responses",
        "gemini": f"/v1beta/models/{model}:{method}",
    }
    return f"{base}{paths[client]}", translated


def test_an_answer_abandoned_by_its_client_is_kept_as_an_attempt(gateway, upstream):
    upstream.then(Scripted(*CUT, *[b": wait\n\n"] * 1200, pause=0.05))
    url, body = request_of("openai-chat", gateway.url, "hi", stream=True)
    headers = {"content-type": "application/json", "x-weft-thread": "abandoned"}
    reply = urlopen(Request(url, orjson.dumps(body), headers), timeout=60)
    while b"half a" not in reply.readline():
        pass
    reply.close()
    deadline = time.monotonic() + 60
    while not attempts(gateway, "abandoned"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert [(state, text) for state, text, _ in attempts(gateway, "abandoned")] == [
        ("partial", "half a")
    ]


def test_a_locked_store_delays_no_answer_and_loses_nothing(tmp_path):
    """Another process holds the write lock; every answer comes while it does."""
    with scripted_upstream() as upstream:
        upstream.then(WHOLE)
        flag = f"--upstream=a=anthropic:{upstream.url}"
        with weft_serve(tmp_path, flag, WEFT_RECORD_WAIT="0.05") as gateway:
            url = f"{gateway.url}/v1/messages"
            post(url, turns("before"), {"x-session-id": "before"})
            with closing(sqlite3.connect(gateway.store, isolation_level=None)) as lock:
                lock.execute("BEGIN IMMEDIATE")
                replies = many(url, 20)
                lock.execute("ROLLBACK")
            assert [status for status, _, _ in replies] == [200] * 20
            assert {headers["x-weft-recorded"] for _, headers, _ in replies} == {"journal"}
            wait_for_recording(url)
    assert_recorded(tmp_path / "weft.db", 20)


def test_an_answer_still_in_the_journal_can_be_continued_by_its_id(tmp_path):
    with scripted_upstream() as upstream:
        upstream.then(WHOLE)
        flag = f"--upstream=a=anthropic:{upstream.url}"
        with weft_serve(tmp_path, flag, WEFT_RECORD_WAIT="0.05") as gateway:
            url = f"{gateway.url}/v1/responses"
            with closing(sqlite3.connect(gateway.store, isolation_level=None)) as lock:
                lock.execute("BEGIN IMMEDIATE")
                _, headers, data = post(url, {"model": "m", "input": "hi"})
                assert headers["x-weft-recorded"] == "journal"
                link = {"previous_response_id": orjson.loads(data)["id"]}
                status, _, data = post(url, {"model": "m", "input": "more", **link})
                lock.execute("ROLLBACK")
            assert status == 200, data
            sent = upstream.requests[-1]["body"]
            assert all(text in sent for text in (b'"hi"', b'"whole"', b'"more"'))


def test_a_deleted_store_is_not_written_to(tmp_path):
    """Writes to a file that is gone would succeed, and be lost."""
    with scripted_upstream() as upstream:
        upstream.then(WHOLE)
        flag = f"--upstream=a=anthropic:{upstream.url}"
        with weft_serve(tmp_path, flag) as gateway:
            url = f"{gateway.url}/v1/messages"
            post(url, turns("before"), {"x-session-id": "s0"})
            for path in tmp_path.glob("weft.db*"):
                if path.suffix != ".pending":
                    path.unlink()
            for texts in (("hi 0",), ("hi 0", "whole", "more 0")):
                _, headers, _ = post(url, turns(*texts), {"x-session-id": "s0"})
                assert headers["x-weft-recorded"] == "journal"
        with weft_serve(tmp_path, flag) as gateway:
            wait_for_recording(f"{gateway.url}/v1/messages")
    assert_recorded(tmp_path / "weft.db", 2)


def test_a_running_gateway_takes_over_the_journal_of_a_killed_one(tmp_path):
    with scripted_upstream() as upstream:
        upstream.then(WHOLE)
        flag = f"--upstream=a=anthropic:{upstream.url}"
        with weft_serve(tmp_path, flag), weft_serve(tmp_path, flag, WEFT_RECORD_WAIT="0.05") as two:
            with closing(sqlite3.connect(two.store, isolation_level=None)) as lock:
                lock.execute("BEGIN IMMEDIATE")
                assert {reply[1]["x-weft-recorded"] for reply in many(f"{two.url}/v1/messages", 4)}
                two.process.kill()
                two.process.wait()
            deadline = time.monotonic() + 60
            while list(tmp_path.glob("weft.db.pending.2")):
                assert time.monotonic() < deadline
                time.sleep(0.2)
    assert_recorded(tmp_path / "weft.db", 4)


def test_the_server_stops_while_another_process_locks_the_store(tmp_path):
    with scripted_upstream() as upstream:
        upstream.then(WHOLE)
        flag = f"--upstream=a=anthropic:{upstream.url}"
        with (
            weft_serve(tmp_path, flag, WEFT_RECORD_WAIT="0.05") as gateway,
            closing(sqlite3.connect(gateway.store, isolation_level=None)) as lock,
        ):
            lock.execute("BEGIN IMMEDIATE")
            assert post(f"{gateway.url}/v1/messages", turns("hi"))[0] == 200
            gateway.process.terminate()
            gateway.process.wait(timeout=60)


def test_a_truncated_stream_never_has_an_end_marker(gateway, upstream):
    choice = {"index": 0, "delta": {"content": "par"}, "finish_reason": None}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    first = b"data: " + orjson.dumps({**chunk, "choices": [choice]}) + b"\n\n"
    upstream.then(Scripted(first, b"data: [DONE]\n\n", pause=0.3))
    body = {"model": f"{UPSTREAM_NAMES['openai-chat']}/m", "stream": True,
            "messages": [{"role": "user", "content": "hi"}]}  # fmt: skip
    _, _, data = post(f"{gateway.url}/v1/chat/completions", body)
    assert b"error" in data
    assert b"[DONE]" not in data[: data.index(b"error")]


def test_thinking_is_not_restored_by_equality_while_records_are_pending(tmp_path):
    """Another conversation's equal answer may be among the records that wait."""
    with scripted_upstream() as upstream:
        upstream.rule = thinking_upstream
        flag = f"--upstream=a=anthropic:{upstream.url}"
        with weft_serve(tmp_path, flag, WEFT_RECORD_WAIT="0.05") as gateway:
            url = f"{gateway.url}/v1/chat/completions"
            post(url, chat("same", "hi"))
            with closing(sqlite3.connect(gateway.store, isolation_level=None)) as lock:
                lock.execute("BEGIN IMMEDIATE")
                post(url, chat("same", "hi"))
                post(url, chat("same", "hi", "Hello.", "go on"))
                lock.execute("ROLLBACK")
            assert b"I was told" not in upstream.requests[-1]["body"]


def test_pending_records_are_replayed_at_the_next_start(tmp_path):
    with scripted_upstream() as upstream:
        upstream.then(WHOLE)
        flag = f"--upstream=a=anthropic:{upstream.url}"
        with weft_serve(tmp_path, flag, WEFT_RECORD_WAIT="0.05") as gateway:
            url = f"{gateway.url}/v1/messages"
            with closing(sqlite3.connect(gateway.store, isolation_level=None)) as lock:
                lock.execute("BEGIN IMMEDIATE")
                assert {reply[0] for reply in many(url, 10)} == {200}
                gateway.process.kill()
                gateway.process.wait()
        with weft_serve(tmp_path, flag) as gateway:
            wait_for_recording(f"{gateway.url}/v1/messages")
    assert_recorded(tmp_path / "weft.db", 10)


def test_an_answer_is_delivered_even_if_recording_fails(tmp_path):
    """Neither the store nor the journal can be written: the page and the log say so."""
    with scripted_upstream() as upstream:
        upstream.then(WHOLE)
        flag = f"--upstream=a=anthropic:{upstream.url}"
        for number in ("", *(f".{n}" for n in range(2, MOST_JOURNALS + 1))):
            (tmp_path / f"weft.db.pending{number}").mkdir()  # no journal can be opened there
        with weft_serve(tmp_path, flag, WEFT_RECORD_WAIT="0.05") as gateway:
            url = f"{gateway.url}/v1/messages"
            with closing(sqlite3.connect(gateway.store, isolation_level=None)) as lock:
                lock.execute("BEGIN IMMEDIATE")
                status, headers, _ = post(url, turns("hi"))
                assert (status, headers["x-weft-recorded"]) == (200, "no")
                page = orjson.loads(urlopen(f"{gateway.url}/api/threads").read())
                lock.execute("ROLLBACK")
            assert page["recording"]["lost"] >= 1
            gateway.await_lines(1, lambda line: line.get("event") == "recording")
            assert str(tmp_path) not in gateway.log()


def turns(*texts):
    messages = [
        {"role": ("user", "assistant")[number % 2], "content": text}
        for number, text in enumerate(texts)
    ]
    return {"model": "m", "max_tokens": 9, "messages": messages}


def many(url, count):
    """Sessions of two turns each, at the same time; every reply."""
    replies = []

    def session(number):
        headers = {"x-session-id": f"s{number}"}
        replies.append(post(url, turns(f"hi {number}"), headers))
        replies.append(post(url, turns(f"hi {number}", "whole", f"more {number}"), headers))

    threads = [threading.Thread(target=session, args=(number,)) for number in range(count // 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return replies


def wait_for_recording(url):
    deadline = time.monotonic() + 60
    while True:
        _, headers, _ = post(url, turns(f"{time.monotonic()}"))
        if headers["x-weft-recorded"] == "store":
            return
        assert time.monotonic() < deadline
        time.sleep(0.2)


def assert_recorded(path, count):
    """Every session is one thread with both turns, in order."""
    with closing(open_store(path)) as store:
        names = {record.name for record in store.threads()}
        for number in range(count // 2):
            assert f"session-s{number}" in names
            thread = weft.thread.open(store, f"session-s{number}")
            assert [message.text for message in thread.compile().messages] == [
                f"hi {number}", "whole", f"more {number}", "whole",
            ]  # fmt: skip
            assert list(thread.branches()) == ["main"]
        assert not any(name.endswith(".2") for name in names)
