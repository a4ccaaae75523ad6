"""A run that ends while its tools run goes on where it was; nothing is invented or run twice.

`make torture` repeats the kills many times.
"""

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import weft
from anthropic_answers import call, streamed
from servers import SECONDS, Scripted, Upstream, scripted_upstream
from weft.agent import INTERRUPTED, NOT_RUN, Agent
from weft.errors import ThreadError
from weft.history import decode_call
from weft.model import Message, Text, ToolCall, ToolResult
from weft.store import open_store
from weft.thread import archive_bytes, fsck, import_bytes

KILLS = 100 if os.environ.get("WEFT_TORTURE") else 4


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with scripted_upstream() as opened:
        yield opened


@pytest.fixture
def thread() -> Iterator[weft.Thread]:
    with weft.open() as opened:
        yield opened


def make_agent(thread: weft.Thread, upstream: Upstream, *tools: Any, **options: Any) -> Agent:
    return Agent(
        thread, "m", tools, provider="anthropic", base_url=upstream.url, api_key="k", **options
    )


def contents(upstream: Upstream, request: int = -1) -> list[Any]:
    return orjson.loads(upstream.requests[request]["body"])["messages"]


def results(thread: weft.Thread) -> list[tuple[str, str, bool]]:
    """Id, text and error mark of the results of the thread, in order."""
    return [
        (block.call_id, "".join(b.text for b in block.content), bool(block.is_error))
        for message in thread.compile().messages
        for block in message.blocks
        if isinstance(block, ToolResult)
    ]


class Tools:
    """Tools whose calls are counted; `stuck` waits until its run is cancelled."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.started = asyncio.Event()

    def fast(self, city: str) -> str:
        """Answers at once."""
        self.ran.append(f"fast {city}")
        return f"{city}: noon"

    async def stuck(self, city: str) -> str:
        """Waits the first time."""
        self.ran.append(f"stuck {city}")
        if self.ran.count(f"stuck {city}") == 1:
            self.started.set()
            await asyncio.sleep(SECONDS)
        return f"{city}: 21 degrees"

    async def interrupt(self, agent: Agent, text: str) -> None:
        """Cancel a run when `stuck` waits and `fast` has ended."""
        run = asyncio.ensure_future(agent.asend(text))
        await self.started.wait()
        while not any(each.state == "ended" for each in agent.open_calls()):
            await asyncio.sleep(0.01)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run


BOTH = streamed("Both.", call("c1", "stuck", city="Oslo"), call("c2", "fast", city="Rome"))


def interrupted(
    thread: weft.Thread, upstream: Upstream, *, repeatable: bool = False
) -> tuple[Agent, Tools]:
    """An agent whose run ended while `stuck` ran and after `fast` had ended."""
    tools = Tools()
    upstream.then(BOTH, streamed("Done."))
    stuck = weft.tool(tools.stuck, repeatable=repeatable)
    agent = make_agent(thread, upstream, stuck, tools.fast)
    asyncio.run(tools.interrupt(agent, "go"))
    assert tools.ran in (["stuck Oslo", "fast Rome"], ["fast Rome", "stuck Oslo"])
    return agent, tools


@pytest.mark.parametrize("resume", [Agent.resume, Agent.retry])
def test_a_call_without_a_result_is_interrupted_unless_it_may_be_repeated(
    thread: weft.Thread, upstream: Upstream, resume: Any
) -> None:
    agent, tools = interrupted(thread, upstream)
    states = [(each.id, each.name, each.state) for each in agent.open_calls()]
    assert states == [("c1", "stuck", "started"), ("c2", "fast", "ended")]
    assert resume(agent) == "Done."
    assert len(tools.ran) == 2
    assert results(thread) == [("c1", INTERRUPTED, True), ("c2", "Rome: noon", False)]
    assert [message.role for message in thread.compile().messages] == [
        *("user", "assistant", "tool", "assistant")
    ]
    assert agent.open_calls() == ()


def test_a_repeatable_call_runs_again(thread: weft.Thread, upstream: Upstream) -> None:
    agent, tools = interrupted(thread, upstream, repeatable=True)
    assert [each.repeatable for each in agent.open_calls()] == [True, False]
    assert agent.resume() == "Done."
    assert tools.ran.count("stuck Oslo") == 2
    assert tools.ran.count("fast Rome") == 1
    assert results(thread) == [("c1", "Oslo: 21 degrees", False), ("c2", "Rome: noon", False)]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("runs_again", [False, True])
def test_a_person_decides_about_a_call_that_had_started(
    thread: weft.Thread, upstream: Upstream, runs_again: bool, is_async: bool
) -> None:
    agent, tools = interrupted(thread, upstream)
    asked: list[str] = []

    def repeat(open_call: Any) -> bool:
        asked.append(open_call.id)
        return runs_again

    async def repeat_later(open_call: Any) -> bool:
        return repeat(open_call)

    assert agent.resume(repeat_later if is_async else repeat) == "Done."
    assert asked == ["c1"]
    assert tools.ran.count("stuck Oslo") == 1 + runs_again
    assert results(thread)[0][1] == ("Oslo: 21 degrees" if runs_again else INTERRUPTED)


def test_a_new_message_ends_the_open_calls_without_running_any(
    thread: weft.Thread, upstream: Upstream
) -> None:
    agent, tools = interrupted(thread, upstream, repeatable=True)
    assert agent.send("never mind") == "Done."
    assert len(tools.ran) == 2
    assert results(thread) == [("c1", INTERRUPTED, True), ("c2", "Rome: noon", False)]
    assert [message.role for message in thread.compile().messages] == [
        *("user", "assistant", "tool", "user", "assistant")
    ]


def test_the_prefix_of_the_conversation_stays(thread: weft.Thread, upstream: Upstream) -> None:
    agent, _ = interrupted(thread, upstream)
    first = contents(upstream)
    agent.resume()
    second = contents(upstream)
    agent.send("and on")
    third = contents(upstream)
    plain = [[strip_marks(message) for message in each] for each in (first, second, third)]
    assert plain[1][: len(plain[0])] == plain[0]
    assert plain[2][: len(plain[1])] == plain[1]


def strip_marks(message: Any) -> Any:
    """A message without cache marks, which move."""
    blocks = message["content"]
    if isinstance(blocks, str):
        return message
    kept = [{k: v for k, v in block.items() if k != "cache_control"} for block in blocks]
    return {**message, "content": kept}


def test_calls_that_never_started_run(thread: weft.Thread, upstream: Upstream) -> None:
    tools = Tools()
    thread.user("go")
    thread.commit_message(
        Message(
            "assistant",
            (Text("Both."), ToolCall("a", "fast", '{"city":"A"}'), ToolCall("b", "no", "{}")),
        )
    )
    upstream.then(streamed("Done."))
    agent = make_agent(thread, upstream, tools.fast)
    assert [each.state for each in agent.open_calls()] == ["waiting", "waiting"]
    assert agent.resume() == "Done."
    assert tools.ran == ["fast A"]
    ((_, text, failed), (_, unknown, is_error)) = results(thread)
    assert (text, failed) == ("A: noon", False)
    assert is_error
    assert "no" in unknown


def test_a_new_message_says_that_a_waiting_call_was_not_run(
    thread: weft.Thread, upstream: Upstream
) -> None:
    thread.user("go")
    thread.commit_message(Message("assistant", (ToolCall("a", "fast", '{"city":"A"}'),)))
    upstream.then(streamed("Done."))
    make_agent(thread, upstream, Tools().fast).send("stop that")
    assert results(thread) == [("a", NOT_RUN, True)]


def test_only_the_calls_without_a_result_are_open(thread: weft.Thread, upstream: Upstream) -> None:
    tools = Tools()
    thread.user("go")
    calls = (ToolCall("a", "fast", '{"city":"A"}'), ToolCall("b", "fast", '{"city":"B"}'))
    thread.commit_message(Message("assistant", calls))
    thread.tool_result("a", "by hand")
    upstream.then(streamed("Done."))
    agent = make_agent(thread, upstream, tools.fast)
    assert [each.id for each in agent.open_calls()] == ["b"]
    assert agent.resume() == "Done."
    assert tools.ran == ["fast B"]
    assert [text for _, text, _ in results(thread)] == ["by hand", "B: noon"]


def test_nothing_to_resume_is_said(thread: weft.Thread, upstream: Upstream) -> None:
    upstream.then(streamed("Done."))
    agent = make_agent(thread, upstream)
    with pytest.raises(ThreadError, match="empty"):
        agent.resume()
    agent.send("hello")
    with pytest.raises(ThreadError, match="already answered"):
        agent.resume()


def test_a_fork_has_the_results_of_its_answer(thread: weft.Thread, upstream: Upstream) -> None:
    _, tools = interrupted(thread, upstream)
    fork = thread.fork("other")
    agent = make_agent(fork, upstream, tools.stuck, tools.fast)
    assert [each.state for each in agent.open_calls()] == ["started", "ended"]
    agent.resume()
    assert results(fork)[1] == ("c2", "Rome: noon", False)
    assert len(tools.ran) == 2


def test_open_calls_survive_an_export(
    thread: weft.Thread, upstream: Upstream, tmp_path: Path
) -> None:
    _, tools = interrupted(thread, upstream)
    assert fsck(thread.store).flaws == ()
    assert thread.attempts() == []
    import_bytes(open_store(tmp_path / "copy.db"), archive_bytes(thread.store, [thread.name]))
    with weft.open(tmp_path / "copy.db", thread.name) as copy:
        agent = make_agent(copy, upstream, tools.stuck, tools.fast)
        assert [each.state for each in agent.open_calls()] == ["started", "ended"]


def test_two_sends_at_once_take_turns(thread: weft.Thread, upstream: Upstream) -> None:
    upstream.rule = lambda _: Scripted(*streamed("Hi.").pieces, pause=0.02)
    other = weft.open(thread.store, thread.name)

    async def send_all() -> None:
        agents = [make_agent(thread, upstream), make_agent(other, upstream)]
        await asyncio.gather(*(agents[n % 2].asend(f"question {n}") for n in range(6)))

    asyncio.run(send_all())
    roles = [message.role for message in thread.compile().messages]
    assert roles == ["user", "assistant"] * 6


def test_sends_of_several_os_threads_take_turns(thread: weft.Thread, upstream: Upstream) -> None:
    upstream.rule = lambda _: Scripted(*streamed("Hi.").pieces, pause=0.01)
    agent = make_agent(thread, upstream)
    workers = [threading.Thread(target=agent.send, args=[f"question {n}"]) for n in range(5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    roles = [message.role for message in thread.compile().messages]
    assert roles == ["user", "assistant"] * 5


def test_a_cancelled_wait_gives_up_its_turn(thread: weft.Thread, upstream: Upstream) -> None:
    upstream.rule = lambda _: Scripted(*streamed("Hi.").pieces, pause=0.05)
    agent = make_agent(thread, upstream)

    async def send_all() -> None:
        first = asyncio.ensure_future(agent.asend("first"))
        await asyncio.sleep(0.05)
        second = asyncio.ensure_future(agent.asend("second"))
        third = asyncio.ensure_future(agent.asend("third"))
        await asyncio.sleep(0.05)
        second.cancel()
        await asyncio.gather(first, third)

    asyncio.run(send_all())
    texts = [m.blocks[0] for m in thread.compile().messages if m.role == "user"]
    assert texts == [Text("first"), Text("third")]


def test_a_tool_that_sends_to_its_own_thread_is_refused(
    thread: weft.Thread, upstream: Upstream
) -> None:
    inner: list[Agent] = []

    def ask_again(question: str) -> str:
        """Asks the same thread."""
        return inner[0].send(question)

    upstream.then(streamed(call("c", "ask_again", question="what?")), streamed("Done."))
    agent = make_agent(thread, upstream, ask_again)
    inner.append(agent)
    assert agent.send("go") == "Done."
    ((_, text, is_error),) = results(thread)
    assert is_error
    assert "thread of its own run" in text


PROGRAM = """
import asyncio, json, sys, time, weft
path, url, log, mode = sys.argv[1:]

def write(line):
    with open(log, "a") as file:
        file.write(line + "\\n")

def plain(number: int, seconds: float) -> str:
    write(f"start {number}")
    time.sleep(seconds)
    write(f"end {number}")
    return f"result {number}"

async def later(number: int, seconds: float) -> str:
    write(f"start {number}")
    await asyncio.sleep(seconds)
    write(f"end {number}")
    return f"result {number}"

def lookup(number: int, seconds: float) -> str:
    return plain(number, seconds)

with weft.open(path) as thread:
    tools = [plain, later, weft.tool(lookup, repeatable=True)]
    agent = weft.Agent(
        thread, "m", tools, provider="anthropic", base_url=url, api_key="k", compaction=None,
        parallel_tools=mode != "serial",
    )
    if mode == "resume":
        calls = [[int(json.loads(c.arguments)["number"]), c.state] for c in agent.open_calls()]
        print(json.dumps(calls), flush=True)
        print(agent.resume())
    else:
        print("ready", flush=True)
        print(agent.send("go"))
"""


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_killed_run_is_resumed(upstream: Upstream, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    tools = [chance.choice(["plain", "later", "lookup"]) for _ in range(5)]
    calls = [
        call(f"call {number}", tool, number=number, seconds=chance.choice([0.0, 0.02, 0.1, 0.3]))
        for number, tool in enumerate(tools)
    ]
    upstream.then(streamed("Now.", *calls), streamed("Done."))
    path, log = tmp_path / "weft.db", tmp_path / "log"
    log.touch()

    def start(mode: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", PROGRAM, str(path), upstream.url, str(log), mode]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    with start(chance.choice(["parallel", "serial"])) as first:
        assert first.stdout is not None
        first.stdout.readline()
        deadline = time.monotonic() + SECONDS
        while not log.read_text() and first.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.5))
        first.kill()
    before = log.read_text().split("\n")
    store = open_store(path)
    head = store.read_ref("default", "main")
    bodies = [decode_call(record) for record in store.call_records("default", [head])]
    is_finished = head is not None and len(store.walk("default", head)) > 3
    store.close()
    ended = {body.number for body in bodies if body.result is not None}
    started = {body.number for body in bodies} - ended
    upstream.script = upstream.script[-1:]
    with start("resume") as second:
        output = second.communicate(timeout=SECONDS)[0]
    if is_finished:  # the first run had come to its end
        assert second.returncode
        return
    assert second.returncode == 0
    listed, answer = output.splitlines()
    states = dict(orjson.loads(listed))
    after = log.read_text().split("\n")[len(before) - 1 :]
    assert answer == "Done."
    if not states:  # killed when all results were in the thread
        assert not any(line.startswith("start") for line in after)
        return
    assert states == {
        number: "ended" if number in ended else "started" if number in started else "waiting"
        for number in range(5)
    }
    assert {int(line.split()[1]) for line in before if line.startswith("start")} <= ended | started
    ran_again = sorted(int(line.split()[1]) for line in after if line.startswith("start"))
    assert ran_again == [
        number
        for number in range(5)
        if states[number] == "waiting"
        or (states[number] == "started" and tools[number] == "lookup")
    ]
    with weft.open(path) as thread:
        texts = [(id, text) for id, text, _ in results(thread)]
        assert fsck(thread.store).flaws == ()
    assert texts == [
        (
            f"call {number}",
            INTERRUPTED
            if states[number] == "started" and tools[number] != "lookup"
            else f"result {number}",
        )
        for number in range(5)
    ]


SLOW = """
import json, sys, time, weft
path, url, log = sys.argv[1:]

def charge(card: str) -> str:
    with open(log, "a") as file:
        file.write(card + "\\n")
    time.sleep(0.5)
    return f"charged {card}"

with weft.open(path) as thread:
    agent = weft.Agent(
        thread, "m", [charge], provider="anthropic", base_url=url, api_key="k", compaction=None,
        parallel_tools=False,
    )
    print("ready", flush=True)
    try:
        print(agent.resume())
    except weft.ThreadError as error:
        print(error)
"""


def test_a_living_run_of_another_process_is_waited_for(upstream: Upstream, tmp_path: Path) -> None:
    path, log = tmp_path / "weft.db", tmp_path / "log"
    with weft.open(path) as thread:
        thread.user("go")
        calls = tuple(ToolCall(f"c{card}", "charge", f'{{"card":"{card}"}}') for card in "AB")
        thread.commit_message(Message("assistant", calls))
    upstream.then(streamed("Done."))
    command = [sys.executable, "-c", SLOW, str(path), upstream.url, str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        first.stdout.readline()
        while not log.exists():
            time.sleep(0.01)
        second = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=SECONDS)
        output = first.communicate()[0]
    assert output == "Done.\n"
    assert "already answered" in second.stdout
    assert log.read_text() == "A\nB\n"
    with weft.open(path) as thread:
        assert [text for _, text, _ in results(thread)] == ["charged A", "charged B"]
