"""The stored request of an agent equals the bytes that its upstream received."""

import asyncio
from pathlib import Path

import orjson
import pytest

import weft
from servers import Scripted, scripted_upstream
from weft.agent import Agent
from weft.catalog import load_catalog
from weft.cli import main
from weft.client import OFFLINE, SentBody, make_provider, stream
from weft.demo import answer_offline, read_offline
from weft.model import Fold, Message, Request, Text
from weft.thread import ARCHIVE, EXPORT_FORMATS, export_bytes


def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


FRAMES = [
    {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": []}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": "Well, well."},
    },
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
]
SSE = b"".join(
    b"event: %b\ndata: %b\n\n" % (str(frame["type"]).encode(), orjson.dumps(frame))
    for frame in FRAMES
)
PROTOCOLS = ["anthropic", "openai-chat", "openai-responses", "gemini"]


def scripted_answer(protocol: str) -> Scripted:
    translator = weft.StreamTranslator(source="anthropic", target=protocol, created=1)
    return Scripted(translator.feed(SSE) + translator.close())


def answers(thread: weft.Thread) -> list[str]:
    return [
        info.id
        for info in reversed(thread.log())
        if info.kind == "append" and info.messages[0].role == "assistant"
    ]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_answer_records_the_request_that_was_sent(protocol: str, tmp_path: Path) -> None:
    with scripted_upstream() as upstream, weft.open(tmp_path / "a.db") as thread:
        upstream.then(scripted_answer(protocol))
        provider = make_provider("u", protocol, upstream.url, key="sk-secret")
        agent = Agent(thread, "m", tools=[weather], system="Be brief.", provider=provider)
        for words in ("What is it like?", "And “there”, é?", "One more time."):
            assert agent.send(words) == "Well, well."
        thread.compact([{"summary": "They spoke of the weather."}])
        Agent(thread, "m", provider=provider).send("After all that?")
        sent = [thread.show(id, sent=True) for id in answers(thread)[-4:]]
        assert [one.body for one in sent] == [request["body"] for request in upstream.requests]
        assert {(one.receipt.protocol, one.receipt.model) for one in sent} == {(protocol, "m")}
        thread.close()
    assert b"sk-secret" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


def test_the_offline_model_answers_the_bytes_that_are_stored() -> None:
    thread = weft.open()
    Agent(thread, tools=[weather]).send("use weather for Lyon")
    ids = answers(thread)
    assert len(ids) == 2  # the call, and the words behind its result
    for id in ids:
        body = thread.show(id, sent=True).body
        folding = Fold()
        for event in answer_offline(read_offline(body)):
            folding.send(event)
        assert folding.response().message.blocks == thread.show(id).messages[0].blocks


def test_the_sent_body_is_reported_once_before_the_first_event() -> None:
    sent: list[SentBody] = []
    request = Request("weft-offline", (Message("user", (Text("hi"),)),))

    async def ask() -> int:
        events = stream(None, OFFLINE, request, catalog=load_catalog(), on_body=sent.append)
        return len([event async for event in events if sent])

    assert asyncio.run(ask()) > 2
    assert [read_offline(each.body) for each in sent] == [request]


def test_chat_on_the_command_line_stores_sent_requests(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    store = ["--store", str(tmp_path / "chat.db")]
    for words in ("hello there", "and once more"):  # a process each, as far as the thread knows
        assert main(["chat", *store, words]) == 0
        capsysbinary.readouterr()
        assert main(["show", "main", "--sent", *store]) == 0
        request = read_offline(capsysbinary.readouterr().out)
        assert words in request.messages[-1].text
    assert main(["log", "--json", *store]) == 0
    first = orjson.loads(capsysbinary.readouterr().out)[-1]["id"]
    assert main(["show", first, "--sent", *store]) == 1
    out, err = capsysbinary.readouterr()
    reason = err.splitlines()[-1]  # the line before names the thread
    assert (out, reason) == (b"", f"weft: no request is stored for commit {first[:12]}".encode())


@pytest.mark.parametrize("format", [format for format in EXPORT_FORMATS if format != ARCHIVE])
def test_an_export_has_no_sent_requests(format: str) -> None:
    thread = weft.open()
    Agent(thread, tools=[weather]).send("use weather for Lyon")
    exported, _ = export_bytes(thread.store, thread.name, format)
    assert b"sunny in Lyon" in exported
    assert b"pieces" not in exported
