"""With keys, a caller cannot find out which thread names another key has."""

import asyncio
from urllib.parse import quote
from urllib.request import Request, urlopen

import orjson
import pytest
from aiohttp import ClientSession

from servers import post, weft_serve
from weft.gateway import HISTORY_READS, HISTORY_WRITES, READS, WRITES

CHAT = {"model": "weft-offline", "messages": [{"role": "user", "content": "hi"}]}
HINTS = ["x-weft-thread", "x-session-id", "x-claude-code-session-id", "thread-id"]
FIELDS = {
    "id": "abc",
    "text": "words",
    "priority": "pinned",
    "name": "x",
    "a": "main",
    "b": "main",
    "q": "hi",
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    with weft_serve(tmp_path_factory.mktemp("oracle"), WEFT_API_KEYS="key-a,key-b") as running:
        yield running


def chat(gateway, key, **headers):
    url, own_headers = f"{gateway.url}/v1/chat/completions", {"authorization": f"Bearer {key}"}
    status, answered, _ = post(url, CHAT, {**own_headers, **headers})
    assert status == 200
    return answered["x-weft-thread"]


@pytest.mark.parametrize("header", HINTS)
def test_another_keys_thread_name_is_answered_like_a_new_one(gateway, header):
    taken, fresh = f"used-{header.replace('_', '-')}", f"free-{header.replace('_', '-')}"
    theirs = chat(gateway, "key-a", **{header: taken})
    ours = chat(gateway, "key-b", **{header: taken})
    new = chat(gateway, "key-b", **{header: fresh})
    assert ours != theirs
    assert ours.replace("used", "free") == new


def test_the_returned_name_refers_to_the_same_thread_again(gateway):
    first = chat(gateway, "key-a", **{"x-weft-thread": "mine"})
    again = chat(gateway, "key-a", **{"x-weft-thread": first})
    assert again.partition(".")[0] == first


async def ask_all(gateway, thread, key):
    """What every path of the page's API answers about a thread."""
    answers = {}
    async with ClientSession(headers={"x-api-key": key}) as session:
        for path in (*READS, *HISTORY_READS):
            async with session.get(
                gateway.url + path, params={**FIELDS, "thread": thread}
            ) as reply:
                answers[path] = (reply.status, await reply.text())
        for path in (*WRITES, *HISTORY_WRITES):
            async with session.post(gateway.url + path, json={**FIELDS, "thread": thread}) as reply:
                answers[path] = (reply.status, await reply.text())
    return answers


async def say(gateway, thread, key):
    """How a chat in a thread ends, and the name that its frames have."""
    async with (
        ClientSession(headers={"x-api-key": key}) as session,
        session.ws_connect(gateway.url + "/ws") as socket,
    ):
        await socket.send_json({"type": "say", "text": "hi", "thread": thread})
        while True:
            frame = await socket.receive_json(timeout=60)
            if frame["type"] in ("message_complete", "error"):
                return frame["type"], frame.get("thread")


def test_the_page_answers_about_another_keys_thread_as_if_missing(gateway):
    theirs = chat(gateway, "key-a", **{"x-weft-thread": "page-taken"})
    missing = theirs.replace("taken", "fresh")
    about_theirs = asyncio.run(ask_all(gateway, theirs, "key-b"))
    about_none = asyncio.run(ask_all(gateway, missing, "key-b"))
    for path, (status, text) in about_theirs.items():
        assert (status, text.replace("taken", "fresh")) == about_none[path], path


def test_a_chat_on_the_page_never_writes_to_another_keys_thread(gateway):
    theirs = chat(gateway, "key-a", **{"x-weft-thread": "chat-taken"})
    before = read_thread(gateway, theirs, "key-a")
    assert asyncio.run(say(gateway, theirs, "key-b")) == ("message_complete", theirs)
    assert read_thread(gateway, theirs, "key-a") == before
    own = read_thread(gateway, theirs, "key-b")
    assert [row["role"] for row in own["rows"]] == ["user", "assistant"]


def read_thread(gateway, thread, key):
    asked = Request(f"{gateway.url}/api/thread?thread={quote(thread)}", headers={"x-api-key": key})
    with urlopen(asked, timeout=60) as reply:
        return orjson.loads(reply.read())
