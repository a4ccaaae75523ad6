"""An exchange looks up its conversation once: for the restored answers and for the record."""

import asyncio
import sys
import threading
from collections import Counter

import orjson
import pytest

from servers import Scripted, scripted_upstream
from weft.gateway import Flags, build, open_state, read_settings

LOOKUPS = ("find_session", "find_continuation", "find_answers", "read_until_answer")
"""The functions of `weft.gateway` that search the store for a conversation or its answers."""

ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Yes."},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


async def ask(app, path, headers, body):
    """Post one request to the application in this process; the JSON of its answer."""
    received, sent = [{"type": "http.request", "body": orjson.dumps(body)}], []

    async def receive():
        return received.pop() if received else await asyncio.sleep(60)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "query_string": b""}
    await app({**scope, "headers": headers}, receive, send)
    assert sent[0]["status"] == 200
    return orjson.loads(b"".join(message.get("body", b"") for message in sent))


def count_lookups(tmp_path, upstream, path, headers, first, second, environ=()):
    """The look-ups of the second of two requests; `second` makes it from the first answer."""
    counts, is_counting = Counter(), threading.Event()

    def profile(frame, event, _argument):
        code = frame.f_code
        if event == "call" and is_counting.is_set() and code.co_name in LOOKUPS:
            counts[code.co_name] += 1

    async def run():
        flags = Flags(store=str(tmp_path / "s.db"), upstreams=[f"up=openai-chat:{upstream.url}"])
        settings = read_settings(flags, {"UP_API_KEY": "k", **dict(environ)})
        async with open_state(settings) as state:
            app = build(state)
            answer = await ask(app, path, headers, first)
            is_counting.set()
            sys.setprofile(profile)
            await ask(app, path, headers, second(answer))
            sys.setprofile(None)

    threading.setprofile(profile)  # for the threads that the recorder starts
    try:
        asyncio.run(run())
    finally:
        threading.setprofile(None)
        sys.setprofile(None)
    return counts


@pytest.fixture
def upstream():
    with scripted_upstream() as running:
        running.then(Scripted(orjson.dumps(ANSWER), kind="application/json"))
        yield running


def test_a_conversation_is_looked_up_once(tmp_path, upstream):
    question = {"role": "user", "content": "Is it?"}
    body = {"model": "up/m", "max_tokens": 9, "messages": [question]}

    def again(answer):
        echo = {"role": "assistant", "content": answer["content"]}
        return {**body, "messages": [question, echo, {"role": "user", "content": "Sure?"}]}

    headers = [(b"x-session-id", b"one")]
    counts = count_lookups(tmp_path, upstream, "/v1/messages", headers, body, again)
    assert counts == {"find_session": 1, "find_continuation": 1, "find_answers": 1}


def test_an_answer_referenced_by_id_is_read_once(tmp_path, upstream):
    body = {"model": "up/m", "input": "Is it?"}
    counts = count_lookups(
        tmp_path,
        upstream,
        "/v1/responses",
        [(b"authorization", b"Bearer secret")],
        body,
        lambda answer: {**body, "input": "Sure?", "previous_response_id": answer["id"]},
        {"WEFT_API_KEYS": "secret"},  # with keys, the owner of the answer is checked too
    )
    assert counts == {"read_until_answer": 1, "find_continuation": 1, "find_answers": 1}
