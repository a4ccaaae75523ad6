"""A run reports the losses of its requests: in an event, and on the answer."""

import asyncio

import orjson
import pytest

import weft
from servers import Scripted, scripted_upstream
from weft.agent import LossReport, MessageComplete, TextDelta, to_json
from weft.model import Message, Origin, Params, Text, Thinking

CLAUDE = Origin("anthropic", "anthropic", "claude-sonnet-5")


def chat_answer(delta, stop="stop"):
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    frames = [
        {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": stop}]},
    ]
    lines = [b"data: %b\n\n" % orjson.dumps(frame) for frame in frames]
    return Scripted(*lines, b"data: [DONE]\n\n")


ANSWER = {"role": "assistant", "content": "Fine."}
CALL = {"index": 0, "id": "c1", "type": "function"}
CALL["function"] = {"name": "weather", "arguments": '{"city":"Oslo"}'}


def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@pytest.fixture
def upstream():
    with scripted_upstream() as running:
        running.then(chat_answer(ANSWER))
        yield running


@pytest.fixture
def thread():
    """A thread in which Claude thought three times, on its way to OpenAI."""
    with weft.open() as opened:
        for number in range(3):
            opened.user(f"question {number}")
            blocks = (Thinking(f"thought {number}", "sig"), Text(f"answer {number}"))
            opened.commit_message(Message("assistant", blocks, origin=CLAUDE))
        yield opened


def make_agent(thread, upstream, **options):
    return weft.Agent(
        thread, "gpt-5", provider="openai-chat", base_url=upstream.url, api_key="k", **options
    )


def events_of(agent, text):
    async def collect():
        return [event async for event in agent.run(text)]

    return asyncio.run(collect())


def test_the_answer_has_the_losses_of_its_request(thread, upstream):
    answer = make_agent(thread, upstream).send("and now?")
    assert answer == "Fine."
    assert isinstance(answer, str)
    assert [loss.path for loss in answer.losses] == [
        f"messages[{number}].content[0]" for number in (1, 3, 5)
    ]
    [line] = answer.loss_lines
    assert "3 times dropped thinking block" in line
    assert "messages[1].content[0]" in line


def test_the_event_comes_before_the_first_token(thread, upstream):
    events = events_of(make_agent(thread, upstream), "and now?")
    kinds = [type(event) for event in events]
    assert kinds.count(LossReport) == 1
    assert kinds.index(LossReport) < kinds.index(TextDelta)
    assert kinds[-1] is MessageComplete


def test_a_run_of_several_requests_reports_a_loss_once(thread, upstream):
    call = chat_answer({"role": "assistant", "tool_calls": [CALL]}, "tool_calls")
    upstream.then(call, chat_answer(ANSWER))
    events = events_of(make_agent(thread, upstream, tools=[weather]), "the weather?")
    reports = [event for event in events if isinstance(event, LossReport)]
    reported = [loss for report in reports for loss in report.losses]
    assert len(upstream.requests) == 2
    assert len(reported) == len(set(reported))
    assert len(reported) == 3


def test_the_event_is_a_system_message_with_the_losses(thread, upstream):
    thread.setup(params=Params(top_k=5))
    [report] = [
        event
        for event in events_of(make_agent(thread, upstream), "and now?")
        if isinstance(event, LossReport)
    ]
    frame = to_json(report)
    assert (frame["type"], frame["subtype"]) == ("system", "losses")
    assert "gpt-5" in frame["content"]
    assert "3 times dropped thinking block" in frame["content"]
    assert "top_k" in frame["content"]
    assert {"path", "level", "code", "what"} <= frame["losses"][0].keys()


def test_a_run_without_losses_reports_nothing(upstream):
    with weft.open() as thread:
        agent = make_agent(thread, upstream)
        assert agent.send("hi").losses == ()
        upstream.then(chat_answer(ANSWER))
        assert [e for e in events_of(agent, "more") if isinstance(e, LossReport)] == []


def test_a_run_that_fails_reports_its_losses_first(thread, upstream):
    upstream.then(Scripted(b'{"error": {"message": "no"}}', status=400, kind="application/json"))
    kinds = [type(event).__name__ for event in events_of(make_agent(thread, upstream), "now?")]
    assert kinds.index("LossReport") < kinds.index("Failure")
