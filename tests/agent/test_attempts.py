"""Answers that fail or are stopped are stored as attempts and can be retried."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

import weft
from servers import LAUNCH, SECRETS, Scripted, Upstream, scripted_upstream
from weft.agent import Agent, Failure, MessageComplete, TextDelta
from weft.client import make_provider
from weft.store import open_store

WORDS = ("It is ", "in the ")


def sse(*frames: dict[str, Any] | str, named: bool = False) -> tuple[bytes, ...]:
    """Each frame as the bytes of one server-sent event."""
    events: list[bytes] = []
    for frame in frames:
        data = frame.encode() if isinstance(frame, str) else orjson.dumps(frame)
        event = f"event: {cast(dict[str, Any], frame)['type']}\n".encode() if named else b""
        events.append(event + b"data: " + data + b"\n\n")
    return tuple(events)


def anthropic(*words: str) -> tuple[bytes, ...]:
    return sse(
        {
            "type": "message_start",
            "message": {
                "id": "m1",
                "type": "message",
                "role": "assistant",
                "model": "mock",
                "content": [],
                "usage": {"input_tokens": 3, "output_tokens": 1},
            },
        },
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": ""},
        },
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": word},
            }
            for word in words
        ),
        named=True,
    )


def chat(*words: str) -> tuple[bytes, ...]:
    return sse(
        *(
            {
                "id": "c1",
                "object": "chat.completion.chunk",
                "model": "mock",
                "choices": [{"index": 0, "delta": {"role": "assistant", "content": word}}],
            }
            for word in words
        )
    )


def responses(*words: str) -> tuple[bytes, ...]:
    item = {"type": "message", "id": "i1", "role": "assistant", "status": "in_progress"}
    return sse(
        {
            "type": "response.created",
            "response": {"id": "r1", "object": "response", "model": "mock", "output": []},
        },
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {
            "type": "response.content_part.added",
            "output_index": 0,
            "content_index": 0,
            "item_id": "i1",
            "part": {"type": "output_text", "text": "", "annotations": []},
        },
        *(
            {
                "type": "response.output_text.delta",
                "output_index": 0,
                "content_index": 0,
                "item_id": "i1",
                "delta": word,
            }
            for word in words
        ),
        named=True,
    )


def gemini(*words: str) -> tuple[bytes, ...]:
    return sse(
        *(
            {"candidates": [{"content": {"role": "model", "parts": [{"text": word}]}}]}
            for word in words
        )
    )


STREAMS: dict[str, Callable[..., tuple[bytes, ...]]] = {
    "anthropic": anthropic,
    "openai-chat": chat,
    "openai-responses": responses,
    "gemini": gemini,
}
END = sse(
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
    named=True,
)
BROKEN = Scripted(
    b'{"type": "error", "error": {"type": "invalid_request_error", "message": "exploded"}}',
    status=400,
    kind="application/json",
)
WHOLE = Scripted(*anthropic("Here."), *END)


@pytest.fixture
def thread() -> Iterator[weft.Thread]:
    with weft.open() as opened:
        yield opened


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with scripted_upstream() as started:
        yield started


def agent_of(thread: weft.Thread, upstream: Upstream, protocol: str = "anthropic") -> Agent:
    return Agent(thread, "mock", provider=make_provider("mock", protocol, upstream.url, key="k"))


def texts(thread: weft.Thread) -> list[str]:
    return [message.text.partition("\n")[0] for message in thread.compile().messages]


def slow(*pieces: bytes) -> Scripted:
    """An answer that stands still for seconds behind its last piece."""
    return Scripted(*pieces, *[b": wait\n\n"] * 200, pause=0.05)


@pytest.mark.parametrize("protocol", STREAMS)
def test_an_interrupted_stream_is_a_partial_attempt(
    protocol: str, thread: weft.Thread, upstream: Upstream
) -> None:
    upstream.then(Scripted(*STREAMS[protocol](*WORDS), cut=True))
    with pytest.raises(weft.UpstreamFailed):
        agent_of(thread, upstream, protocol).send("Where is it?")
    (attempt,) = thread.attempts()
    assert (attempt.state, attempt.text) == ("partial", "It is in the ")
    assert attempt.reason is not None
    assert attempt.reason.status == 502
    assert attempt.commit == (thread.head and thread.head.id)
    assert texts(thread) == ["Where is it?"]
    assert list(thread.branches()) == ["main"]


def test_a_failed_run_says_why_and_is_retried_without_repeating_the_question(
    thread: weft.Thread, upstream: Upstream
) -> None:
    upstream.then(BROKEN, BROKEN, WHOLE)
    agent = agent_of(thread, upstream)
    with pytest.raises(weft.UpstreamFailed, match="exploded") as raised:
        agent.send("Where is it?")
    assert raised.value.status == 400
    with pytest.raises(weft.UpstreamFailed, match="exploded"):
        agent.retry()
    assert agent.send(None) == "Here."
    assert texts(thread) == ["Where is it?", "Here."]
    assert [(a.state, str(a.reason)) for a in thread.attempts()] == [
        ("failed", "exploded (400)")
    ] * 2
    sent = [orjson.loads(request["body"])["messages"] for request in upstream.requests]
    assert [len(messages) for messages in sent] == [1, 1, 1]


def test_sending_the_same_text_after_a_failure_is_a_retry(
    thread: weft.Thread, upstream: Upstream
) -> None:
    upstream.then(BROKEN, WHOLE)
    agent = agent_of(thread, upstream)
    with pytest.raises(weft.UpstreamFailed):
        agent.send("Delete the file")
    assert agent.send("Delete the file") == "Here."
    assert texts(thread) == ["Delete the file", "Here."]
    assert agent.send("Delete the file") == "Here."  # it was answered, so it is said again
    assert texts(thread) == ["Delete the file", "Here."] * 2


def test_a_different_text_after_a_failure_continues_on_the_same_branch(
    thread: weft.Thread, upstream: Upstream
) -> None:
    upstream.then(BROKEN, WHOLE)
    agent = agent_of(thread, upstream)
    with pytest.raises(weft.UpstreamFailed):
        agent.send("Where is it?")
    agent.send("Where is the blue one?")
    assert texts(thread) == ["Where is it?", "Where is the blue one?", "Here."]
    assert list(thread.branches()) == ["main"]


@pytest.mark.parametrize("text", ["", " \n"])
def test_a_blank_text_is_refused(text: str, thread: weft.Thread) -> None:
    with pytest.raises(weft.ThreadError, match="text is empty"):
        Agent(thread).send(text)
    assert thread.head is None


def test_a_retry_needs_something_to_retry(thread: weft.Thread) -> None:
    agent = Agent(thread, system="be brief")
    with pytest.raises(weft.ThreadError, match="empty"):
        agent.retry()
    agent.send("hello")
    with pytest.raises(weft.ThreadError, match="already answered"):
        agent.retry()


def test_the_step_limit_is_a_separate_error(thread: weft.Thread) -> None:
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"sunny in {city}"

    agent = Agent(thread, tools=[weather], steps=1)
    with pytest.raises(weft.StepLimit, match="1 steps"):
        agent.send("use weather for Lyon")
    assert agent.retry() == "`weather` answered: sunny in Lyon"
    assert thread.attempts() == []


async def first_words(agent: Agent, then: Callable[[], None]) -> None:
    """Run until all words have arrived, then do this once."""
    arrived = ""
    async for event in agent.run("Where is it?"):
        if isinstance(event, TextDelta):
            arrived += event.text
            if arrived == "".join(WORDS):
                then()


@pytest.mark.parametrize("protocol", STREAMS)
def test_a_cancelled_run_keeps_the_text_that_arrived(
    protocol: str, thread: weft.Thread, upstream: Upstream
) -> None:
    upstream.then(slow(*STREAMS[protocol](*WORDS)))
    agent = agent_of(thread, upstream, protocol)

    async def stop() -> None:
        arrived = asyncio.Event()
        task = asyncio.create_task(first_words(agent, arrived.set))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stop())
    (attempt,) = thread.attempts()
    assert (attempt.state, attempt.text, str(attempt.reason)) == (
        "partial",
        "It is in the ",
        "stopped",
    )
    assert texts(thread) == ["Where is it?"]


def test_a_run_stopped_before_the_first_token_says_so(
    thread: weft.Thread, upstream: Upstream
) -> None:
    upstream.then(slow())
    agent = agent_of(thread, upstream)

    async def stop() -> None:
        task = asyncio.create_task(first_words(agent, lambda: None))
        while not upstream.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stop())
    (attempt,) = thread.attempts()
    assert (attempt.state, str(attempt.reason)) == ("failed", "stopped")


@pytest.mark.parametrize("closes", [True, False])
def test_an_abandoned_run_keeps_the_text_that_arrived(
    closes: bool, thread: weft.Thread, upstream: Upstream
) -> None:
    upstream.then(slow(*anthropic(*WORDS)))
    agent = agent_of(thread, upstream)

    async def leave() -> None:
        events = agent.run("Where is it?")
        if closes:
            async with aclosing(cast(Any, events)):
                await anext(events)
            assert len(thread.attempts()) == 1
        else:
            await anext(events)

    asyncio.run(leave())
    (attempt,) = thread.attempts()
    assert attempt.state == "partial"
    assert attempt.text.startswith("It is")


def undo_turn(thread: weft.Thread) -> None:
    """What another program does with `weft undo --turn` while this one waits for an answer."""
    weft.open(thread.store, thread.name).undo(turn=True)


def clear(thread: weft.Thread) -> None:
    weft.open(thread.store, thread.name).clear()


@pytest.mark.parametrize("remove", [undo_turn, clear])
def test_the_answer_to_a_removed_question_is_an_attempt(
    remove: Callable[[weft.Thread], None], thread: weft.Thread, upstream: Upstream
) -> None:
    thread.user("before")
    thread.assistant("answered")
    upstream.then(Scripted(*anthropic(*WORDS), *END))
    with pytest.raises(weft.ThreadError, match="was removed from the branch while"):
        asyncio.run(first_words(agent_of(thread, upstream), lambda: remove(thread)))
    assert texts(thread) == (["before", "answered"] if remove is undo_turn else [])
    (question,) = thread.search("where is it")
    thread.reset(question.commit)
    (attempt,) = thread.attempts()
    assert attempt.text == "It is in the "
    assert attempt.reason is not None
    assert "removed" in attempt.reason.message


def test_the_results_of_removed_calls_are_not_appended(thread: weft.Thread) -> None:
    def undo(city: str) -> str:
        """Undo the turn."""
        undo_turn(thread)
        return city

    thread.user("before")
    thread.assistant("answered")
    with pytest.raises(weft.ThreadError, match="was removed from the branch while"):
        Agent(thread, tools=[undo]).send("use undo for Lyon")
    assert texts(thread) == ["before", "answered"]


def test_a_commit_of_another_program_does_not_stop_the_answer(
    thread: weft.Thread, upstream: Upstream
) -> None:
    upstream.then(Scripted(*anthropic(*WORDS), *END))
    other = weft.open(thread.store, thread.name)
    asyncio.run(first_words(agent_of(thread, upstream), lambda: other.user("by the way") and None))
    assert texts(thread) == ["Where is it?", "by the way", "It is in the "]


def test_a_stopped_tool_run_is_repaired(thread: weft.Thread) -> None:
    started = threading.Event()

    async def wait(city: str) -> str:
        """Waits."""
        started.set()
        await asyncio.sleep(60)
        return city

    agent = Agent(thread, tools=[wait])

    async def stop() -> None:
        async def run() -> None:
            async for _ in agent.run("use wait for Lyon"):
                pass

        task = asyncio.create_task(run())
        await asyncio.to_thread(started.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stop())
    assert thread.attempts() == []
    assert [m.role for m in thread.compile().messages] == ["user", "assistant"]

    async def go_on() -> list[Any]:
        return [event async for event in agent.run("never mind")]

    events = asyncio.run(go_on())
    assert isinstance(events[-1], MessageComplete)
    assert not [event for event in events if isinstance(event, Failure)]


def test_a_failing_store_does_not_prevent_a_stop(tmp_path: Path, upstream: Upstream) -> None:
    upstream.then(slow(*anthropic(*WORDS)))
    store = open_store(tmp_path / "a.db")
    agent = agent_of(weft.open(store), upstream)

    async def stop() -> None:
        arrived = asyncio.Event()
        task = asyncio.create_task(first_words(agent, arrived.set))
        await arrived.wait()
        store.close()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stop())


def chat_process(store: Path, upstream: Upstream, *more: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name not in SECRETS}
    flags = ["--store", str(store), "--upstream", f"u=anthropic:{upstream.url}", "--model", "u/m"]
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCH, "chat", "-t", "default", *flags, *more],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=environment,
        # A shell's background job ignores SIGINT, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def test_chat_retries_on_an_empty_line_and_on_retry(tmp_path: Path, upstream: Upstream) -> None:
    upstream.then(BROKEN, BROKEN, WHOLE)
    chat = chat_process(tmp_path / "a.db", upstream)
    out, _ = chat.communicate("Where is it?\n\n/retry\n/retry\n\n", timeout=120)
    assert out.count("exploded") == 2
    assert "Here." in out
    assert "already answered" in out  # the second /retry; an empty line then asks nobody
    with weft.open(tmp_path / "a.db") as thread:
        assert texts(thread) == ["Where is it?", "Here."]
        assert len(thread.attempts()) == 2
    assert chat.returncode == 0


def test_chat_continues_on_the_same_branch_after_a_failure(
    tmp_path: Path, upstream: Upstream
) -> None:
    upstream.then(BROKEN, WHOLE)
    chat = chat_process(tmp_path / "a.db", upstream)
    chat.communicate("Where is it?\nand who are you?\n", timeout=120)
    with weft.open(tmp_path / "a.db") as thread:
        assert texts(thread) == ["Where is it?", "and who are you?", "Here."]
        assert list(thread.branches()) == ["main"]


def test_an_interrupted_chat_keeps_the_printed_text(tmp_path: Path, upstream: Upstream) -> None:
    upstream.then(slow(*anthropic(*WORDS)))
    chat = chat_process(tmp_path / "a.db", upstream, "Where is it?")
    assert chat.stdout is not None
    printed = ""
    while "in the " not in printed:
        printed += chat.stdout.read(1)
    chat.send_signal(signal.SIGINT)
    remaining, _ = chat.communicate(timeout=120)
    assert chat.returncode == 130, printed + remaining
    with weft.open(tmp_path / "a.db") as thread:
        (attempt,) = thread.attempts()
        assert (attempt.state, attempt.text) == ("partial", "It is in the ")
        assert texts(thread) == ["Where is it?"]


def test_ctrl_c_in_a_terminal_stops_the_answer_and_not_the_chat(
    tmp_path: Path, upstream: Upstream
) -> None:
    pty = pytest.importorskip("pty")
    upstream.then(slow(*anthropic(*WORDS)), WHOLE)
    child, terminal = pty.fork()
    if child == 0:
        flags = ["--store", str(tmp_path / "a.db"), "--model", "u/m"]
        where = ["--upstream", f"u=anthropic:{upstream.url}"]
        os.execv(
            sys.executable, [sys.executable, "-c", LAUNCH, "chat", "-t", "default", *flags, *where]
        )
    try:
        expect(terminal, "> ")
        os.write(terminal, b"Where is it?\n")
        expect(terminal, "in the ")
        os.write(terminal, b"\x03")
        expect(terminal, "asks again")
        os.write(terminal, b"\n")
        expect(terminal, "Here.")
        os.write(terminal, b"/quit\n")
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    finally:
        os.close(terminal)
    with weft.open(tmp_path / "a.db") as thread:
        assert texts(thread) == ["Where is it?", "Here."]
        assert [a.text for a in thread.attempts()] == ["It is in the "]


def expect(terminal: int, words: str) -> None:
    """Read from a terminal until these words are there."""
    read, end = "", time.monotonic() + 60
    while words not in read:
        assert time.monotonic() < end, read
        read += os.read(terminal, 1024).decode(errors="replace")
