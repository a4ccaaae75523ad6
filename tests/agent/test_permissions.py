"""Tools that need permission, tools with time limits, limits of a run, hints, typed answers."""

import asyncio
import threading
from typing import Any

import orjson
import pydantic
import pytest
from msgspec import Struct

import weft
from servers import Scripted, Upstream, scripted_upstream
from summarisers import bodies, says, tool_calls, watch
from weft.catalog import Catalog, CatalogRow, Price
from weft.client import make_provider


@pytest.fixture
def upstream():
    with scripted_upstream() as running:
        yield running


def agent_of(upstream: Upstream, tools: Any = (), **options: Any) -> weft.Agent:
    provider = make_provider("u", "openai-chat", upstream.url)
    return weft.Agent(weft.open(), "m", tools, provider=provider, **options)


def ends(events: list[Any]) -> list[tuple[str, bool]]:
    return [(end.content, end.is_error) for end in events if isinstance(end, weft.ToolEnd)]


def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


DELETE = weft.tool(delete, ask=True)
CALL = [("call_1", "delete", {"path": "a.txt"})]


@pytest.mark.parametrize(
    ("permission", "result"),
    [
        (None, ("the user did not allow this call", True)),
        ("allow", ("deleted a.txt", False)),
        (lambda _: "once", ("deleted a.txt", False)),
        (lambda _: "deny", ("the user did not allow this call", True)),
    ],
)
def test_a_tool_that_asks_runs_only_with_permission(upstream, permission, result):
    upstream.then(tool_calls(CALL), says("done"))
    assert ends(watch(agent_of(upstream, [DELETE], permission=permission), "go")) == [result]


def test_the_question_says_what_would_run(upstream):
    upstream.then(tool_calls(CALL), says("done"))
    requests: list[weft.ToolRequest] = []

    async def ask(request: weft.ToolRequest) -> weft.Permission:
        requests.append(request)
        return "deny"

    agent = agent_of(upstream, [DELETE], permission=ask)
    watch(agent, "go")
    (request,) = requests
    assert (request.name, request.input) == ("delete", {"path": "a.txt"})
    assert request.thread == agent.thread.name


def test_arguments_that_do_not_match_are_refused_before_anybody_is_asked(upstream):
    upstream.then(tool_calls([("call_1", "delete", {"path": 7})]), says("done"))
    requests: list[weft.ToolRequest] = []
    agent = agent_of(upstream, [DELETE], permission=lambda r: requests.append(r) or "once")
    ((text, is_error),) = ends(watch(agent, "go"))
    assert "do not match the tool's schema" in text
    assert is_error
    assert requests == []


@pytest.mark.parametrize(("answer", "questions"), [("once", 4), ("thread", 1), ("always", 1)])
def test_an_answer_is_valid_for_its_scope(upstream, answer, questions):
    two = [("c1", "delete", {"path": "a"}), ("c2", "delete", {"path": "b"})]
    upstream.then(tool_calls(two), tool_calls(two), says("done"))
    requests: list[weft.ToolRequest] = []
    agent = agent_of(upstream, [DELETE], permission=lambda r: requests.append(r) or answer)
    assert [is_error for _, is_error in ends(watch(agent, "go"))] == [False] * 4
    assert len(requests) == questions


def test_questions_are_asked_one_at_a_time(upstream):
    upstream.then(
        tool_calls([(f"c{n}", "delete", {"path": str(n)}) for n in range(5)]), says("done")
    )
    waiting, most = 0, 0

    async def ask(_: weft.ToolRequest) -> weft.Permission:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        for _ in range(5):
            await asyncio.sleep(0)
        waiting -= 1
        return "once"

    assert len(ends(watch(agent_of(upstream, [DELETE], permission=ask), "go"))) == 5
    assert most == 1


def test_always_allowed_tools_are_stored_in_a_file(upstream, tmp_path):
    path = tmp_path / "config" / "permissions.json"
    upstream.then(tool_calls(CALL), says("done"))
    permissions = weft.Permissions(lambda _: "always", path=path)
    watch(agent_of(upstream, [DELETE], permission=permissions), "go")
    assert orjson.loads(path.read_bytes()) == {"allow": ["delete"]}
    assert path.stat().st_mode & 0o077 == 0
    again = weft.Permissions(lambda _: "deny", path=path)
    upstream.then(tool_calls(CALL), says("done"))
    assert ends(watch(agent_of(upstream, [DELETE], permission=again), "go")) == [
        ("deleted a.txt", False)
    ]
    again.forget("delete")
    assert weft.Permissions(lambda _: "deny", path=path).always == frozenset()


@pytest.mark.parametrize("text", ["[]", "{", '{"allow": [1]}', '{"allow": "delete"}'])
def test_an_error_names_a_damaged_permissions_file(tmp_path, text):
    path = tmp_path / "permissions.json"
    path.write_text(text)
    with pytest.raises(weft.ConfigError, match=r"permissions\.json"):
        weft.Permissions(lambda _: "deny", path=path)


def test_a_wrong_answer_to_the_question_raises_in_the_caller(upstream):
    upstream.then(tool_calls(CALL), says("done"))
    with pytest.raises(weft.ConfigError, match="must return one of 'once'"):
        watch(agent_of(upstream, [DELETE], permission=lambda _: "yes"), "go")


def test_a_tool_that_hangs_fails_and_the_program_can_end(upstream):
    upstream.then(tool_calls([("c1", "hang", {}), ("c2", "sleep", {})]), says("done"))
    gate = threading.Event()

    def hang() -> str:
        gate.wait()
        return "late"

    async def sleep() -> str:
        await asyncio.sleep(3600)
        return "late"

    agent = agent_of(upstream, [hang, weft.tool(sleep, timeout=0.02)], tool_timeout=0.05)
    results = ends(watch(agent, "go"))  # `asyncio.run` inside would wait for a thread of its pool
    assert sorted(results) == [
        ("the tool did not end within 0.02 seconds", True),
        ("the tool did not end within 0.05 seconds", True),
    ]
    gate.set()


class Place(pydantic.BaseModel):
    """Where to look."""

    city: str
    days: int = 1


def test_a_tool_described_by_a_class_gets_an_instance(upstream):
    upstream.then(tool_calls([("c1", "forecast", {"city": "Oslo"})]), says("done"))
    places: list[Place] = []

    def look(place: Place) -> str:
        places.append(place)
        return "clear"

    forecast = weft.tool(look, name="forecast", schema=Place)
    assert forecast.definition.description == "Where to look."
    assert ends(watch(agent_of(upstream, [forecast]), "go")) == [("clear", False)]
    assert places == [Place(city="Oslo", days=1)]


def test_a_tool_described_by_a_json_schema_gets_the_members(upstream):
    upstream.then(tool_calls([("c1", "look-up", {"city": "Oslo", "x": 1})]), says("done"))
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    inputs: list[dict[str, Any]] = []

    def look(**members: Any) -> str:
        inputs.append(members)
        return "clear"

    tool = weft.tool(look, name="look-up", description="Looks it up.", schema=schema)
    assert ends(watch(agent_of(upstream, [tool]), "go")) == [("clear", False)]
    assert inputs == [{"city": "Oslo", "x": 1}]
    (first, _) = bodies(upstream)
    assert {"name": "look-up", "description": "Looks it up.", "parameters": schema} in [
        tool["function"] for tool in first["tools"]
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"name": "no spaces"}, "a name has letters"),
        ({"timeout": 0}, "timeout"),
        ({"schema": {"type": "string"}}, "schema must be"),
        ({"schema": int}, "is not a class with fields"),
    ],
)
def test_a_wrong_tool_is_refused(arguments, text):
    with pytest.raises(weft.ConfigError, match=text):
        weft.tool(delete, **arguments)


PNG = "iVBORw0KGgo="  # only its first bytes: nobody decodes it here


def test_a_tool_can_return_an_image(upstream):
    upstream.then(tool_calls([("c1", "plot", {})]), says("done"))

    def plot() -> list[Any]:
        return [weft.Text("a dot"), weft.Image(weft.Inline(PNG, "image/png"))]

    agent = agent_of(upstream, [plot])
    assert ends(watch(agent, "go")) == [("a dot\n[image]", False)]
    results = [
        block
        for message in agent.thread.compile().messages
        for block in message.blocks
        if isinstance(block, weft.ToolResult)
    ]
    assert [type(block).__name__ for block in results[0].content] == ["Text", "Image"]


def with_usage(answer: Scripted, input: int, output: int) -> Scripted:
    usage = {"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output}
    frame = {
        "id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [], "usage": usage,
    }  # fmt: skip
    (data,) = answer.pieces
    head, _ = data.split(b"data: [DONE]")
    return Scripted(head + b"data: " + orjson.dumps(frame) + b"\n\ndata: [DONE]\n\n")


PRICED = Catalog(
    (CatalogRow(match="m", upstream="*", fields={"price": Price(input=1.0, output=10.0)}),)
)


def test_an_answer_has_the_usage_and_cost_of_its_whole_run(upstream):
    upstream.then(
        with_usage(tool_calls([("c1", "delete", {"path": "a"})]), 1000, 100),
        with_usage(says("done"), 2000, 50),
    )
    answer = agent_of(upstream, [delete], catalog=PRICED).send("go")
    assert (answer.usage.input, answer.usage.output) == (3000, 150)
    assert answer.cost == pytest.approx((3000 * 1.0 + 150 * 10.0) / 1_000_000)


def test_without_a_price_the_cost_is_unknown(upstream):
    upstream.then(with_usage(says("done"), 2000, 50))
    answer = agent_of(upstream).send("go")
    assert (answer.usage.input, answer.cost) == (2000, None)


@pytest.mark.parametrize(
    ("limit", "text"),
    [({"token_limit": 1000}, "token_limit is 1,000"), ({"cost_limit": 0.001}, "cost_limit")],
)
def test_a_run_ends_at_its_limit_and_can_continue(upstream, limit, text):
    upstream.then(
        with_usage(tool_calls(CALL), 1000, 100),
        with_usage(says("done"), 1, 1),
    )
    agent = agent_of(upstream, [delete], catalog=PRICED, **limit)
    with pytest.raises(weft.RunLimit, match=text):
        agent.send("go")
    assert len(upstream.requests) == 1
    assert agent.retry() == "done"


@pytest.mark.parametrize("field", ["cost_limit", "token_limit"])
@pytest.mark.parametrize("value", [0, -1, -0.5, float("nan"), float("inf"), True, "1"])
def test_a_limit_must_be_above_0(upstream, field, value):
    with pytest.raises(weft.ConfigError, match=f"{field}: must be a number above 0, not"):
        agent_of(upstream, **{field: value})


def test_a_cost_limit_needs_a_price(upstream):
    with pytest.raises(weft.ConfigError, match="no price for 'm'"):
        agent_of(upstream, cost_limit=1.0)


@pytest.mark.parametrize("limit", [0, -1, float("nan"), True])
def test_a_limit_must_be_above_zero(upstream, limit):
    with pytest.raises(weft.WeftError, match="token_limit"):
        agent_of(upstream, token_limit=limit)


def test_a_hint_is_sent_with_the_next_request(upstream):
    upstream.then(tool_calls(CALL), says("done"))

    def hinting(path: str) -> str:
        agent.hint("only text files")
        return f"deleted {path}"

    agent = agent_of(upstream, [weft.tool(hinting, name="delete")])
    events = watch(agent, "go")
    last = bodies(upstream)[-1]["messages"][-1]
    assert (last["role"], "only text files" in str(last["content"])) == ("user", True)
    assert any(isinstance(e, weft.SystemMessage) and e.subtype == "hint" for e in events)


def test_a_hint_during_the_last_answer_continues_the_run(upstream):
    upstream.then(says("done"), says("done again"))
    agent = agent_of(upstream)

    async def run() -> list[Any]:
        events: list[Any] = []
        async for event in agent.run("go"):
            if isinstance(event, weft.TextDelta) and event.text == "done":
                agent.hint("and the tests")
            events.append(event)
        return events

    events = asyncio.run(run())
    assert [e.text for e in events if isinstance(e, weft.TextDelta)] == ["done", "done again"]
    texts = ["".join(b.text for b in m.blocks if isinstance(b, weft.Text))
             for m in agent.thread.compile().messages]  # fmt: skip
    assert [text for text in texts if text][-3:] == ["done", "and the tests", "done again"]


def test_an_empty_hint_is_refused(upstream):
    with pytest.raises(weft.ThreadError, match="empty"):
        agent_of(upstream).hint("  ")


class Point(Struct):
    x: int
    y: int


class Person(pydantic.BaseModel):
    name: str


@pytest.mark.parametrize(
    ("format", "text", "parsed"),
    [
        (Point, '{"x": 1, "y": 2}', Point(1, 2)),
        (Person, '{"name": "Ada"}', Person(name="Ada")),
        ("json", "[1, 2]", [1, 2]),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
    ],
)
def test_a_typed_answer(upstream, format, text, parsed):
    upstream.then(says(text))
    assert agent_of(upstream, response_format=format).send("go").parsed == parsed


@pytest.mark.parametrize("text", ["sorry", '{"x": "one", "y": 2}', '{"x": 1}'])
def test_an_answer_that_does_not_match_the_type_is_reported(upstream, text):
    upstream.then(says(text))
    answer = agent_of(upstream, response_format=Point).send("go")
    assert answer == text
    with pytest.raises(weft.WrongAnswer, match="response_format"):
        _ = answer.parsed
