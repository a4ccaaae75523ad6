"""Asking a model from Python gives the complete answer or raises one error."""

import asyncio

import orjson
import pytest

import weft
from fault_upstream import ANSWER, FAULTS, PREFIX, PROTOCOLS, applies, fault_upstream, write_error
from servers import Scripted, scripted_upstream
from weft.catalog import load_catalog
from weft.client import GATEWAY_RETRY, HttpClient, ask, make_provider
from weft.model import ApiError, Message, Request, Text

AT_ONCE = 16


@pytest.fixture(scope="module")
def upstream():
    with fault_upstream() as running:
        yield running


async def ask_all(url: str, protocol: str) -> dict[str, str | None]:
    """What comes of every fault that ends by itself: the text, or None for a failure."""
    provider, places = make_provider("up", protocol, url), asyncio.Semaphore(AT_ONCE)
    messages = (Message("user", (Text("How many?"),)),)

    async def ask_one(http: HttpClient, name: str) -> str | None:
        async with places:
            request = Request(PREFIX + name, messages)
            answer = await ask(
                http, provider, request, catalog=load_catalog(), policy=GATEWAY_RETRY
            )
            return None if isinstance(answer, ApiError) else answer.message.text

    names = [
        fault.name
        for fault in FAULTS.values()
        if applies(fault, protocol, True) and fault.group != "hang"
    ]
    async with HttpClient() as http:
        return dict(
            zip(names, await asyncio.gather(*(ask_one(http, n) for n in names)), strict=True)
        )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_failed_answer_raises_and_any_other_is_complete(upstream, protocol):
    outcomes = asyncio.run(ask_all(upstream.url, protocol))
    wrong = {
        name: text
        for name, text in outcomes.items()
        if text != (None if FAULTS[name].outcome == "fails" else ANSWER)
    }
    assert wrong == {}


def test_a_full_context_window_is_recognised_in_every_form():
    """In a status, in a body with status 200, and in a stream."""
    body = orjson.dumps(write_error("anthropic", 400, "prompt is too long: 9 > 8"))
    answers = [
        Scripted(body, status=400, kind="application/json"),
        Scripted(body, kind="application/json"),
        Scripted(body),
        Scripted(b"event: error\ndata: " + body + b"\n\n"),
    ]
    request = Request("m", (Message("user", (Text("a"),)),))

    async def read_kind(url: str) -> str:
        async with HttpClient() as http:
            provider = make_provider("up", "anthropic", url)
            answer = await ask(
                http, provider, request, catalog=load_catalog(), policy=GATEWAY_RETRY
            )
            assert isinstance(answer, ApiError)
            return answer.kind

    with scripted_upstream() as upstream:
        upstream.then(*answers)
        kinds = [asyncio.run(read_kind(upstream.url)) for _ in answers]
    assert kinds == ["context_length"] * 4


@pytest.mark.parametrize("name", ["stop-error", "other-form", "body-object", "page"])
def test_an_agent_ends_with_an_error_or_a_complete_answer(upstream, name):
    thread = weft.open()
    agent = weft.Agent(
        thread, PREFIX + name, provider=make_provider("up", "openai-chat", upstream.url)
    )
    outcome = FAULTS[name].outcome

    async def run() -> list[str]:
        return [type(event).__name__ async for event in agent.run("How many?")]

    events = asyncio.run(run())
    assert (ANSWER in [message.text for message in thread.compile().messages]) is (
        outcome == "answers"
    )
    assert (events[-1] == "Failure") is (outcome == "fails"), events
