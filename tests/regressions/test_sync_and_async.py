"""Every blocking call also works while an event loop runs, as in a notebook."""

import asyncio
from typing import Any

import pytest

import weft


def filled() -> weft.Thread:
    t = weft.open()
    for number in range(12):
        t.user(f"Step {number}: what does src/module_{number}.py do?")
        t.assistant(f"src/module_{number}.py reads the configuration, error {number}. " * 8)
    return t


def send() -> Any:
    return weft.Agent(weft.open()).send("hello")


def retry() -> Any:
    agent = weft.Agent(weft.open())
    agent.thread.user("hello")
    return agent.retry()


def compact_with_a_model() -> Any:
    return filled().compact(model="weft-offline", keep=2)


def preview_with_a_model() -> Any:
    return filled().compact(model="weft-offline", keep=2, preview=True)


def compact_without_a_model() -> Any:
    return filled().compact(budget=400)


def add() -> Any:
    return filled().user("more")


BLOCKING = [send, retry, compact_with_a_model, preview_with_a_model, compact_without_a_model, add]


@pytest.mark.parametrize("call", BLOCKING)
def test_a_blocking_call_works_inside_a_running_loop(call: Any) -> None:
    async def notebook() -> Any:
        return call()

    assert asyncio.run(notebook())


@pytest.mark.parametrize("call", BLOCKING)
def test_a_blocking_call_works_without_a_loop(call: Any) -> None:
    assert call()


def test_asend_is_awaited() -> None:
    async def notebook() -> str:
        return await weft.Agent(weft.open()).asend("hello")

    assert asyncio.run(notebook())


def test_a_notebook_uses_one_agent_across_cells() -> None:
    """A notebook has one loop; each cell is a task in it."""
    agent = weft.Agent(weft.open())

    async def cells() -> list[str]:
        return [agent.send("one"), await agent.asend("two"), agent.send("three")]

    assert all(asyncio.run(cells()))
    assert [message.role for message in agent.thread.compile().messages] == [
        *("user", "assistant") * 3
    ]
