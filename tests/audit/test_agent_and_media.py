"""What people stumbled over with agents, attachments and commits, one test for each fault."""

import asyncio
import threading
from typing import Any

import msgspec
import orjson
import pytest

import weft
from servers import Scripted, Upstream, scripted_upstream
from weft.agent import Agent, Failure, MessageComplete, ToolEnd, ToolStart
from weft.client import make_provider
from weft.errors import ConfigError
from weft.model import Format, Params, Reasoning, ToolChoice

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def streamed(*blocks: Any, stop: str = "end_turn") -> Scripted:
    """An Anthropic stream of these texts and calls."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    begin = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    frames: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**begin, "stop_reason": None, "usage": usage}}
    ]
    for index, block in enumerate(blocks):
        if isinstance(block, str):
            opened: Any = {"type": "text", "text": ""}
            delta: Any = {"type": "text_delta", "text": block}
        else:
            opened = {**block, "input": {}}
            written = orjson.dumps(block["input"]).decode()
            delta = {"type": "input_json_delta", "partial_json": written}
        frames += [
            {"type": "content_block_start", "index": index, "content_block": opened},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    frames.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage})
    frames.append({"type": "message_stop"})
    return Scripted(
        *(b"event: %b\ndata: %b\n\n" % (f["type"].encode(), orjson.dumps(f)) for f in frames)
    )


def call(id: str, name: str, /, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@pytest.fixture
def upstream():
    with scripted_upstream() as opened:
        opened.then(streamed("Hi."))
        yield opened


@pytest.fixture
def thread():
    with weft.open() as opened:
        yield opened


def make_agent(thread: weft.Thread, upstream: Upstream, **options: Any) -> Agent:
    provider = make_provider("u", "anthropic", upstream.url)
    return Agent(thread, "claude-sonnet-4-5", provider=provider, **options)


def bodies(upstream: Upstream) -> list[Any]:
    return [orjson.loads(seen["body"]) for seen in upstream.seen]


def watch(agent: Agent, text: str | None, **options: Any) -> list[Any]:
    async def collect() -> list[Any]:
        return [event async for event in agent.run(text, **options)]

    return asyncio.run(collect())


# the thread's setup and the agent's arguments --------------------------------------------------


def test_an_agent_sends_the_parameters_of_the_threads_setup(thread, upstream):
    params = Params(
        temperature=0.2,
        max_tokens=7777,
        stop=("END",),
        tool_choice=ToolChoice("none"),
        reasoning=Reasoning("on", budget=2000),
        n=3,
    )
    thread.setup(params=params)
    make_agent(thread, upstream, tools=[weather]).send("hi")
    [body] = bodies(upstream)
    assert body["max_tokens"] == 7777
    assert body["stop_sequences"] == ["END"]
    assert body["tool_choice"] == {"type": "none"}
    assert body["thinking"]["budget_tokens"] == 2000
    assert "n" not in body


def test_the_agents_arguments_win_over_the_setup(thread, upstream):
    thread.setup(params=Params(temperature=0.2, max_tokens=77, stop=("END",)))
    make_agent(thread, upstream, temperature=0.5, max_tokens=88, params=Params(top_k=5)).send("hi")
    [body] = bodies(upstream)
    assert (body["temperature"], body["max_tokens"], body["top_k"]) == (0.5, 88, 5)
    assert body["stop_sequences"] == ["END"]


def test_a_setup_that_changes_between_runs_is_used_from_then_on(thread, upstream):
    agent = make_agent(thread, upstream)
    agent.send("hi")
    thread.setup(params=Params(max_tokens=55))
    agent.send("again")
    assert [body["max_tokens"] for body in bodies(upstream)] == [64000, 55]


def test_effort_and_the_shape_of_an_answer_reach_the_vendor(thread):
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5"}
    choice = {"index": 0, "delta": {"role": "assistant", "content": "{}"}, "finish_reason": "stop"}
    frame = b"data: %b\n\ndata: [DONE]\n\n" % orjson.dumps({**chunk, "choices": [choice]})
    with scripted_upstream() as upstream:
        upstream.then(Scripted(frame))
        provider = make_provider("u", "openai-chat", upstream.url)
        agent = Agent(
            thread, "gpt-5", provider=provider, effort="low", response_format=SCHEMA, max_tokens=9
        )
        agent.send("hi")
        [body] = bodies(upstream)
    assert body["reasoning_effort"] == "low"
    assert body["max_completion_tokens"] == 9
    assert body["response_format"]["type"] == "json_schema"
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA


class Place(msgspec.Struct):
    city: str


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("json", "json"),
        ({"type": "json_object"}, "json"),
        (SCHEMA, "schema"),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}, "schema"),
        (Format("schema", SCHEMA, "x"), "schema"),
        (Place, "schema"),
    ],
    ids=["word", "openai-object", "schema", "openai-schema", "format", "class"],
)
def test_a_response_format_is_taken_in_every_common_form(given, kind):
    from weft.agent.options import read_format

    found = read_format(given)
    assert found.kind == kind
    if kind == "schema":
        assert found.name
        assert found.schema["properties"] == SCHEMA["properties"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("temperature", "hot"),
        ("temperature", float("nan")),
        ("temperature", -1),
        ("max_tokens", 0),
        ("max_tokens", "many"),
        ("effort", ""),
        ("tool_choice", 3),
        ("tool_choice", "no_such_tool"),
        ("response_format", 3),
        ("params", {"temperature": 1}),
    ],
)
def test_a_wrong_argument_is_refused_by_its_name(thread, option, value):
    with pytest.raises(ConfigError, match=f"^{option}: "):
        Agent(thread, **{option: value})


def test_a_forced_call_holds_for_the_first_request_so_that_the_run_can_end(thread, upstream):
    upstream.then(streamed(call("t1", "weather", city="Rome"), stop="tool_use"), streamed("Sunny."))
    agent = make_agent(thread, upstream, tools=[weather], tool_choice="weather")
    assert agent.send("look") == "Sunny."
    first, second = bodies(upstream)
    assert first["tool_choice"] == {"type": "tool", "name": "weather"}
    assert second.get("tool_choice", {"type": "auto"}) == {"type": "auto"}


def test_a_recorded_choice_of_a_tool_that_the_agent_has_not_is_left_out(thread, upstream):
    thread.setup([{"name": "Bash"}], Params(tool_choice=ToolChoice("tool", "Bash")))
    make_agent(thread, upstream, tools=[weather]).send("hi")
    assert "tool_choice" not in bodies(upstream)[0]


# without compaction ----------------------------------------------------------------------------


def test_without_compaction_no_tools_and_no_checkpoints_go_out(thread, upstream):
    upstream.then(streamed(call("t1", "weather", city="Rome"), stop="tool_use"), streamed("Sunny."))
    make_agent(thread, upstream, tools=[weather], compaction=None).send("look")
    for seen in upstream.seen:
        assert b"checkpoint" not in seen["body"]
        assert [t["name"] for t in orjson.loads(seen["body"])["tools"]] == ["weather"]
    assert not thread.checkpoints()


def test_checkpoints_of_earlier_runs_are_not_sent_without_compaction(thread, upstream):
    make_agent(thread, upstream).send("first")
    assert thread.checkpoints()
    make_agent(thread, upstream, compaction=None).send("second")
    assert b"checkpoint" in upstream.seen[0]["body"]
    assert b"checkpoint" not in upstream.seen[1]["body"]
    assert "tools" not in bodies(upstream)[1]


def test_without_compaction_a_tool_of_ones_own_may_be_named_recall(thread, upstream):
    def recall(query: str) -> str:
        """Looks into a notebook."""
        return "mine: " + query

    upstream.then(streamed(call("t1", "recall", query="x"), stop="tool_use"), streamed("Done."))
    events = watch(make_agent(thread, upstream, tools=[recall], compaction=None), "look")
    assert [event.content for event in events if isinstance(event, ToolEnd)] == ["mine: x"]
    with pytest.raises(ConfigError, match="'recall'"):
        make_agent(thread, upstream, tools=[recall])


# parallel tools --------------------------------------------------------------------------------


def test_calls_of_one_turn_run_at_the_same_time(thread, upstream):
    met = threading.Barrier(2)
    meeting: list[asyncio.Event] = []

    def sync_tool(name: str) -> str:
        """Waits for the other."""
        met.wait(timeout=20)
        return name

    async def async_tool(name: str) -> str:
        """Waits for the other."""
        if not meeting:
            meeting.append(asyncio.Event())
            await asyncio.wait_for(meeting[0].wait(), 20)
        else:
            meeting[0].set()
        return name

    calls = [
        call("a1", "async_tool", name="one"),
        call("s1", "sync_tool", name="two"),
        call("s2", "sync_tool", name="three"),
        call("a2", "async_tool", name="four"),
    ]
    upstream.then(streamed(*calls, stop="tool_use"), streamed("Done."))
    events = watch(make_agent(thread, upstream, tools=[sync_tool, async_tool]), "go")
    ended = {e.id: (e.content, e.is_error) for e in events if isinstance(e, ToolEnd)}
    assert ended == {
        "a1": ("one", False),
        "s1": ("two", False),
        "s2": ("three", False),
        "a2": ("four", False),
    }
    results = bodies(upstream)[1]["messages"][-1]["content"]
    ids = [part["tool_use_id"] for part in results if part["type"] == "tool_result"]
    assert ids == ["a1", "s1", "s2", "a2"]


def test_a_tool_that_fails_or_cancels_itself_disturbs_no_other(thread, upstream):
    def failing() -> str:
        """Fails."""
        raise RuntimeError("no")

    async def cancelling() -> str:
        """Gives up."""
        raise asyncio.CancelledError

    calls = [call("1", "failing"), call("2", "weather", city="Rome"), call("3", "cancelling")]
    upstream.then(streamed(*calls, stop="tool_use"), streamed("Done."))
    events = watch(make_agent(thread, upstream, tools=[failing, weather, cancelling]), "go")
    ended = {e.id: (e.content, e.is_error) for e in events if isinstance(e, ToolEnd)}
    assert ended == {
        "1": ("RuntimeError: no", True),
        "2": ("sunny in Rome", False),
        "3": ("the tool was cancelled", True),
    }
    assert isinstance(events[-1], MessageComplete)


def test_tools_run_one_after_the_other_where_that_is_asked_for(thread, upstream):
    order: list[str] = []

    async def step(name: str) -> str:
        """Takes its time."""
        order.append(f"{name} begins")
        await asyncio.sleep(0.01)
        order.append(f"{name} ends")
        return name

    calls = [call("1", "step", name="a"), call("2", "step", name="b")]
    upstream.then(streamed(*calls, stop="tool_use"), streamed("Done."))
    make_agent(thread, upstream, tools=[step], parallel_tools=False).send("go")
    assert order == ["a begins", "a ends", "b begins", "b ends"]


def test_a_run_that_is_stopped_stops_its_tools(thread, upstream):
    stopped: list[str] = []

    async def slow() -> str:
        """Never ends."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append("slow")
            raise
        return ""

    upstream.then(streamed(call("1", "slow"), stop="tool_use"))
    agent = make_agent(thread, upstream, tools=[slow])

    async def main() -> None:
        started = asyncio.Event()

        async def follow() -> None:
            async for event in agent.run("go"):
                if isinstance(event, ToolStart):
                    started.set()

        task = asyncio.create_task(follow())
        await started.wait()
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert stopped == ["slow"]


# event loops -----------------------------------------------------------------------------------


def test_send_works_inside_a_running_event_loop_and_asend_is_awaited(thread, upstream):
    agent = make_agent(thread, upstream)

    async def notebook() -> tuple[str, str]:
        return agent.send("one"), await agent.asend("two")

    assert asyncio.run(notebook()) == ("Hi.", "Hi.")


def test_a_failed_run_is_retried_without_repeating_the_question(thread, upstream):
    down = Scripted(b'{"error":{"message":"no"}}', status=400, kind="application/json")
    upstream.then(down, streamed("Hi."))
    agent = make_agent(thread, upstream)

    async def main() -> str:
        with pytest.raises(weft.UpstreamFailed):
            await agent.asend("Delete the file")
        return await agent.asend(None)

    assert asyncio.run(main()) == "Hi."
    assert [message.role for message in thread.compile().messages] == ["user", "assistant"]


def test_a_pydantic_model_is_a_parameter_of_a_tool(thread, upstream):
    pydantic = pytest.importorskip("pydantic")
    inner = pydantic.create_model("Point", x=(int, ...), y=(int, ...))
    shape = pydantic.create_model("Box", at=(inner, ...), size=(int, 1))

    def area(box) -> str:
        """The area of a box."""
        return f"{type(box).__name__} {box.at.x} {box.size}"

    area.__annotations__["box"] = shape
    upstream.then(
        streamed(
            call("1", "area", box={"at": {"x": 3, "y": 4}}),
            call("2", "area", box={"at": {"x": "left"}}),
            stop="tool_use",
        ),
        streamed("Done."),
    )
    events = watch(make_agent(thread, upstream, tools=[area], compaction=None), "go")
    ended = {e.id: (e.content, e.is_error) for e in events if isinstance(e, ToolEnd)}
    assert ended["1"] == ("Box 3 1", False)
    assert ended["2"][1]
    assert "box" in ended["2"][0] or "x" in ended["2"][0]
    [tool] = bodies(upstream)[0]["tools"]
    box = tool["input_schema"]["properties"]["box"]
    assert box["properties"]["at"]["properties"]["x"]["type"] == "integer"
    assert "$ref" not in str(tool)


def test_a_type_that_no_model_can_be_told_of_is_refused_in_plain_words(thread):
    class Engine:
        pass

    def start(engine: Any) -> str:
        return str(engine)

    start.__annotations__["engine"] = Engine
    with pytest.raises(ConfigError, match=r"'start'.*Engine.*pydantic") as refused:
        Agent(thread, tools=[start])
    assert "schema_hook" not in str(refused.value)


def test_a_failure_is_still_an_event(thread, upstream):
    upstream.then(Scripted(b"{}", status=400, kind="application/json"))
    assert isinstance(watch(make_agent(thread, upstream), "hi")[-1], Failure)
