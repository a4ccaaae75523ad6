"""The agent loop, with the offline model and with a model over a real socket."""

import asyncio

import orjson
import pytest

import weft.thread
from servers import Scripted, scripted_upstream
from weft.agent import (
    Agent,
    Compaction,
    Failure,
    MessageComplete,
    SystemMessage,
    TextDelta,
    ToolEnd,
    ToolStart,
    UsageReport,
)
from weft.client import make_provider
from weft.errors import ConfigError
from weft.model import (
    Checkpoint,
    Image,
    Inline,
    Message,
    Reminder,
    Text,
    ToolCall,
    ToolResult,
)


def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def failing(city: str) -> str:
    """Fails."""
    raise RuntimeError(f"no sky over {city}")


@pytest.fixture
def thread():
    with weft.thread.open() as opened:
        yield opened


def watch(agent, text):
    async def collect():
        return [event async for event in agent.run(text)]

    return asyncio.run(collect())


def of(events, kind):
    return [event for event in events if isinstance(event, kind)]


def test_streamed_text_is_stored(thread):
    events = watch(Agent(thread), "hello")
    words = "".join(event.text for event in of(events, TextDelta))
    assert words.startswith("You said: “hello”")
    assert isinstance(events[-1], MessageComplete)
    assert of(events, UsageReport)[0].output > 0
    messages = thread.compile().messages
    assert [message.role for message in messages] == ["user", "assistant"]
    assert isinstance(messages[0].blocks[-1], Checkpoint)
    assert messages[1].text == words
    answer, question = thread.log(limit=2)
    assert question.first_token is None
    took = (answer.created - question.created).total_seconds()
    assert 0 <= answer.first_token <= answer.seconds <= took + 0.001  # it is rounded
    assert answer.to_dict()["seconds"] == answer.seconds
    assert answer.usage.output == of(events, UsageReport)[0].output


def test_send_returns_the_text_of_the_last_answer(thread):
    assert Agent(thread, tools=[weather]).send("use weather for Lyon") == (
        "`weather` answered: sunny in Lyon"
    )


@pytest.mark.parametrize(
    ("tool", "content", "is_error"),
    [(weather, "sunny in Lyon", False), (failing, "RuntimeError: no sky over Lyon", True)],
)
def test_a_tool_runs_and_its_result_is_sent_back(thread, tool, content, is_error):
    events = watch(Agent(thread, tools=[tool]), f"use {tool.__name__} for Lyon")
    [started], [ended] = of(events, ToolStart), of(events, ToolEnd)
    assert (started.name, started.input) == (tool.__name__, {"city": "Lyon"})
    assert (ended.content, ended.is_error, ended.id) == (content, is_error, started.id)
    result = thread.compile().messages[2].blocks
    assert isinstance(result[0], ToolResult)
    assert isinstance(result[-1], Checkpoint)
    assert isinstance(events[-1], MessageComplete)


def test_a_system_prompt_is_added_only_to_a_new_thread(thread):
    for _ in range(2):
        Agent(thread, system="Be brief.").send("hello")
    roles = [message.role for message in thread.compile().messages]
    assert roles == ["system", "user", "assistant", "user", "assistant"]


def test_C5_after_a_compaction_the_thread_continues_automatically(thread):
    agent = Agent(thread, tools=[weather])
    for text in ("I live in Lyon.", "use weather for Lyon"):
        agent.send(text)
    events = watch(agent, "Please compact the thread.")
    assert [event.subtype for event in of(events, SystemMessage)] == ["status", "compact_boundary"]
    assert of(events, ToolEnd)[0].content.startswith("compacted")
    assert isinstance(events[-1], MessageComplete)
    messages = thread.compile().messages
    went_on = messages[-2]
    assert [type(block) for block in went_on.blocks] == [Reminder, Checkpoint]
    assert messages[-3].blocks == (Text("I compacted the thread"),)
    assert "I live in Lyon." in messages[0].text  # the summary
    assert not any(isinstance(b, ToolCall) for message in messages for b in message.blocks)


def test_C5_a_compaction_that_fails_gets_an_error_result_and_changes_nothing():
    call = {
        "type": "tool_use",
        "id": "toolu_1",
        "name": "compact",
        "input": {"replacements": [{"to": "zzzzzz", "summary": "x"}]},
    }
    with scripted_upstream() as upstream, weft.thread.open(checkpoints=True) as thread:
        upstream.then(streamed(call, stop="tool_use"), streamed("Then not."))
        agent = Agent(thread, "claude-x", provider=make_provider("u", "anthropic", upstream.url))
        events = watch(agent, "hello")
        second = orjson.loads(upstream.requests[1]["body"])
    [ended] = of(events, ToolEnd)
    assert ended.is_error
    assert "replacements[0].to" in ended.content
    assert [m["role"] for m in second["messages"]] == ["user", "assistant", "user"]
    result = second["messages"][-1]["content"][0]
    assert (result["type"], result["is_error"]) == ("tool_result", True)
    assert isinstance(events[-1], MessageComplete)


def test_C5_other_calls_of_the_turn_keep_their_results():
    def compact_to(id):
        arguments = {"replacements": [{"to": id, "summary": "They said hello."}]}
        return {"type": "tool_use", "id": "toolu_1", "name": "compact", "input": arguments}

    look = {"type": "tool_use", "id": "toolu_2", "name": "weather", "input": {"city": "Rome"}}
    with scripted_upstream() as upstream, weft.thread.open(checkpoints=True) as thread:
        provider = make_provider("u", "anthropic", upstream.url)
        agent = Agent(thread, "claude-x", tools=[weather], provider=provider)
        upstream.then(streamed("Hi."))
        agent.send("hello")
        first = thread.checkpoints()[0].id
        upstream.then(streamed(compact_to(first), look, stop="tool_use"), streamed("Done."))
        agent.send("look")
        last = orjson.loads(upstream.requests[1]["body"])["messages"]
    assert [message["role"] for message in last][-2:] == ["assistant", "user"]
    assert last[-2]["content"][0]["text"] == "I compacted the thread"
    assert last[-1]["content"][0]["tool_use_id"] == "toolu_2"
    tail = last[-1]["content"][-1]["text"]
    assert tail.startswith("<checkpoint:")


def test_recall_finds_compacted_messages(thread):
    agent = Agent(thread)
    agent.send("The launch code is tango-42.")
    agent.send("Please compact the thread.")
    events = watch(agent, 'use recall for "tango-42"')
    assert "tango-42" in of(events, ToolEnd)[0].content


def test_a_call_without_a_result_does_not_break_the_next_run(thread):
    thread.user("look")
    call = ToolCall("toolu_1", "weather", '{"city": "Rome"}')
    thread.commit_message(Message("assistant", (call,)))
    with scripted_upstream() as upstream:
        upstream.then(streamed("Well."))
        provider = make_provider("u", "anthropic", upstream.url)
        assert Agent(thread, "claude-x", provider=provider).send("still there?") == "Well."
        [request] = upstream.requests
    sent = orjson.loads(request["body"])["messages"]
    blocks = [block for message in sent for block in message["content"] if isinstance(block, dict)]
    uses = [block["id"] for block in blocks if block["type"] == "tool_use"]
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    assert uses == results


def test_a_conversation_that_cannot_be_encoded_ends_the_run_with_a_failure(thread):
    picture = Image(Inline("AAAA", "image/png"))
    thread.commit_message(Message("system", (picture,)))
    provider = make_provider("u", "anthropic", "http://127.0.0.1:1")
    events = watch(Agent(thread, "claude-x", provider=provider), "hello")
    assert isinstance(events[-1], Failure)
    assert events[-1].status == 400


def test_the_step_limit_ends_a_run(thread):
    agent = Agent(thread, tools=[weather], steps=1)
    events = watch(agent, "use weather for Lyon")
    assert events[-1] == Failure(
        "the limit of 1 steps was reached; ask again to continue", place="steps"
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            Scripted(b'{"error":{"message":"no such model"}}', status=404, kind="application/json"),
            "no such",
        ),
        (Scripted(b"", cut=True), "u"),
        (Scripted(b"event: message_start\n", cut=True), "u"),
    ],
    ids=["refused", "dead", "cut"],
)
def test_an_upstream_that_fails_ends_the_run_with_a_failure(thread, answer, words):
    with scripted_upstream() as upstream:
        upstream.then(answer)
        provider = make_provider("u", "anthropic", upstream.url)
        events = watch(Agent(thread, "claude-x", provider=provider), "hello")
    assert isinstance(events[-1], Failure)
    assert words in events[-1].message
    assert [message.role for message in thread.compile().messages] == ["user"]


def test_a_busy_upstream_is_retried(thread):
    with scripted_upstream() as upstream:
        busy = Scripted(b"{}", status=529, headers=[("retry-after", "0.05")])
        upstream.then(busy, busy, streamed("At last."))
        provider = make_provider("u", "anthropic", upstream.url)
        assert Agent(thread, "claude-x", provider=provider).send("hello") == "At last."


def test_a_model_without_a_provider_is_refused(thread):
    with pytest.raises(ConfigError, match="no API key for the model 'claude-x'"):
        Agent(thread, "claude-x")


def streamed(*blocks, stop="end_turn"):
    """An Anthropic stream of these blocks."""
    frames = [
        (
            "message_start",
            {
                "message": {
                    "id": "msg_1",
                    "type": "message",
                    "role": "assistant",
                    "model": "claude-x",
                    "content": [],
                    "stop_reason": None,
                    "stop_sequence": None,
                    "usage": {"input_tokens": 1, "output_tokens": 1},
                }
            },
        ),
    ]
    for index, block in enumerate(blocks):
        if isinstance(block, str):
            opened = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": block}
        else:
            opened = {**block, "input": {}}
            delta = {
                "type": "input_json_delta",
                "partial_json": orjson.dumps(block["input"]).decode(),
            }
        frames += [
            ("content_block_start", {"index": index, "content_block": opened}),
            ("content_block_delta", {"index": index, "delta": delta}),
            ("content_block_stop", {"index": index}),
        ]
    frames += [
        ("message_delta", {"delta": {"stop_reason": stop}, "usage": {"output_tokens": 2}}),
        ("message_stop", {}),
    ]
    return Scripted(
        *(
            f"event: {event}\ndata: {orjson.dumps({'type': event, **data}).decode()}\n\n".encode()
            for event, data in frames
        )
    )


def test_without_a_text_the_request_is_retried_and_not_repeated(thread):
    with scripted_upstream() as upstream:
        upstream.then(
            Scripted(b'{"error": {"message": "exploded"}}', status=400, kind="application/json"),
            streamed("Here it is."),
        )
        provider = make_provider("mock", "anthropic", upstream.url)
        agent = Agent(thread, "some-model", provider=provider)
        assert of(watch(agent, "Where is it?"), Failure)
        assert of(watch(agent, None), MessageComplete)
    texts = [message.text.partition("\n")[0] for message in thread.compile().messages]
    assert texts == ["Where is it?", "Here it is."]


def long_thread(thread):
    for number in range(12):
        thread.user(f"question {number}: " + "the quick brown fox jumps over the dog. " * 30)
        thread.assistant(f"answer {number}: " + "it runs into the woods and is gone. " * 30)
    return thread


@pytest.mark.parametrize("answer", [True, False])
def test_an_automatic_compaction_asks_first_if_a_person_can_answer(thread, answer):
    uses = []

    async def confirm(question):
        uses.append(question.use)
        return answer

    agent = Agent(
        long_thread(thread), compaction=Compaction(reserve=28_000, target=0.9, confirm=confirm)
    )
    before = agent.context_use("go on")
    events = watch(agent, "go on")
    assert before.is_over
    assert [use.is_over for use in uses] == [True]
    assert abs(uses[0].tokens - before.tokens) < 50  # the same counter: only a checkpoint is new
    kinds = [info.kind for info in thread.log()]
    assert ("compact" in kinds) is answer
    assert isinstance(events[-1], MessageComplete)


def test_nobody_is_asked_if_there_is_nothing_to_compact(thread):
    async def confirm(question):
        raise AssertionError(question)

    agent = Agent(thread, compaction=Compaction(confirm=confirm))
    assert not agent.context_use("hello").is_over
    assert isinstance(watch(agent, "hello")[-1], MessageComplete)


def test_listeners_of_the_thread_get_the_events_of_the_agents_compactions(thread):
    received = []
    thread.listen(received.append)
    agent = Agent(long_thread(thread), compaction=Compaction(reserve=28_000, target=0.9))
    events = of(watch(agent, "go on"), SystemMessage)
    assert {"status", "compact_boundary"} <= {event.subtype for event in events}
    assert received == events
