"""`weft log --follow`: new messages, and answers while they stream."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import aiohttp
import orjson
import pytest

import weft.thread
from servers import Scripted, post, weft_serve
from slow_upstream import HELD_TEXT, REASON, slow_upstream, streamed, tool_call
from weft.model import Message, Text, ToolCall, ToolResult

SECONDS = 60
LAUNCH = "from weft.cli import entry; entry()"


class Following:
    """A running `weft log --follow`: what it prints, character by character."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._characters: SimpleQueue[str] = SimpleQueue()
        self.output = ""
        self.first_line = ""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        while character := self._process.stdout.read(1):
            self._characters.put(character)

    def until(self, text: str) -> str:
        """Everything that was printed, once it has this text in it."""
        while text not in self.output:
            try:
                self.output += self._characters.get(timeout=SECONDS)
            except Empty:
                raise AssertionError(f"{text!r} is not in {self.output!r}") from None
        return self.output

    def event(self, type: str, **members: Any) -> dict[str, Any]:
        """The next JSON line of this type with these members."""
        while True:
            line, _, rest = self.until_line()
            self.output = rest
            value = orjson.loads(line)
            if value["type"] == type and members.items() <= value.items():
                return value

    def until_line(self) -> tuple[str, str, str]:
        self.until("\n")
        return self.output.partition("\n")

    def errors(self) -> str:
        """The next line on standard error."""
        assert self._process.stderr is not None
        return self._process.stderr.readline()


@contextmanager
def following(store: Path, *words: str, **environ: str) -> Iterator[Following]:
    """Follow a store; a server on it is connected when the block begins."""
    command = [sys.executable, "-c", LAUNCH, "log", "--follow", "--store", str(store), *words]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )
    follow = Following(process)
    try:
        follow.first_line = follow.errors()
        yield follow
    finally:
        process.terminate()
        process.communicate()


@pytest.fixture(scope="module")
def upstream():
    with slow_upstream() as running:
        yield running


@pytest.fixture(autouse=True)
def _closed_gate(upstream):
    upstream.gate.clear()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, upstream):
    folder = tmp_path_factory.mktemp("follow")
    with weft_serve(folder, f"--upstream=mock=anthropic:{upstream.url}") as running:
        yield running


def ask(gateway, text: str, thread: str, key: str = "k", stream: bool = True) -> None:
    messages = [{"role": "user", "content": text}]
    body = {"model": "scripted-model", "max_tokens": 9, "stream": stream, "messages": messages}
    post(gateway.url + "/v1/messages", body, {"x-weft-thread": thread, "x-api-key": key})


def asking(*args: Any) -> threading.Thread:
    program = threading.Thread(target=ask, args=args, daemon=True)
    program.start()
    return program


def test_a_running_answer_is_printed_as_it_streams_and_once(gateway, upstream):
    with following(gateway.store) as follow:
        first = asking(gateway, "are you there?", "greeting")
        follow.until("An answer to: are you there?")
        program = asking(gateway, "HELD please", "streams")
        printed = follow.until(HELD_TEXT)
        assert program.is_alive()  # the upstream waits
        assert "streams user: HELD please\n" in printed
        assert "streams waiting for scripted-model …\n" in printed
        assert f"streams assistant: {HELD_TEXT}" in printed
        upstream.gate.set()
        follow.until("and the second half.\n")
        third = asking(gateway, "one more", "third")
        printed = follow.until("An answer to: one more\n")
        assert printed.count(HELD_TEXT) == 1
        for each in (first, program, third):
            each.join(SECONDS)


def test_calls_are_one_line_and_failures_have_a_reason(gateway, upstream):
    upstream.answers["look"] = lambda: tool_call("Let me see.", "Bash", {"command": "pytest -q"})
    with following(gateway.store) as follow:
        asking(gateway, "look", "calls")
        follow.until("calls assistant: Let me see.\ncalls Bash: pytest -q\n")
        asking(gateway, "REFUSED", "fails")
        follow.until(f"fails failed: {REASON}")


def test_retries_are_printed_while_they_happen(gateway, upstream):
    busy = Scripted(b"{}", status=429, headers=[("retry-after", "0")])
    upstream.answers["be patient"] = iter([busy, busy, streamed("Here I am.")]).__next__
    with following(gateway.store) as follow:
        headers = {"x-weft-thread": "tries", "x-stainless-retry-count": "2"}
        messages = [{"role": "user", "content": "third time"}]
        body = {"model": "scripted-model", "max_tokens": 9, "stream": True, "messages": messages}
        post(gateway.url + "/v1/messages", body, headers)
        follow.until("An answer to: third time")
        follow.until("tries retry 2 by the client\n")  # on a slow machine, the event comes later

        async def say() -> None:  # the page's agent
            async with (
                aiohttp.ClientSession() as session,
                session.ws_connect(f"{gateway.url}/ws") as socket,
            ):
                frame = {"type": "say", "thread": "patient", "text": "be patient"}
                await socket.send_json({**frame, "model": "scripted-model"})
                while (await socket.receive_json(timeout=SECONDS))["type"] != "message_complete":
                    pass

        asyncio.run(say())
        line = "patient 429 from mock (too many requests); retry {} of 3 in 0 s\n"
        follow.until("Here I am.")
        follow.until(line.format(1))
        follow.until(line.format(2))


def test_an_answer_that_is_not_streamed_is_printed_at_once(gateway):
    with following(gateway.store) as follow:
        asking(gateway, "in one piece", "whole", "k", False)
        follow.until("whole assistant: An answer to: in one piece\n")


def test_one_thread_is_followed_from_its_last_messages(gateway):
    ask(gateway, "the past", "chosen")
    with following(gateway.store, "chosen") as follow:
        follow.until("user: the past\nassistant: An answer to: the past\n")
        ask(gateway, "elsewhere", "another")
        with weft.thread.open(gateway.store, "chosen") as thread:
            thread.user("the present")
        printed = follow.until("user: the present\n")
        assert "elsewhere" not in printed


def test_json_prints_one_object_per_line(gateway, upstream):
    with following(gateway.store, "--json") as follow:
        program = asking(gateway, "HELD in JSON", "json")
        follow.event("exchange", thread="json", state="waiting")
        streamed = ""
        while streamed != HELD_TEXT:  # a block may open before its text comes
            streamed += follow.event("block", thread="json")["text"]
            assert HELD_TEXT.startswith(streamed)
        upstream.gate.set()
        follow.event("exchange", thread="json", state="done", recorded="store")
        commit = follow.event("commit", thread="json")
        assert commit["messages"] == [
            {"role": "assistant", "text": f"{HELD_TEXT}and the second half.", "calls": []}
        ]
        program.join(SECONDS)


def test_without_a_server_commits_are_followed_with_a_notice(tmp_path):
    store = tmp_path / "plain.db"
    with weft.thread.open(store, "plain") as thread:
        thread.user("first")
        with following(store, "plain") as follow:
            assert "no server uses this store" in follow.first_line
            follow.until("user: first\n")
            thread.commit_message(
                Message("assistant", (Text("Hm."), ToolCall("c", "Bash", '{"command": "ls"}')))
            )
            thread.commit_message(Message("user", (ToolResult("c", (Text("a\nb\nc\nd"),)),)))
            thread.user("<system-reminder>be kind</system-reminder> next")
            printed = follow.until("user: next\n")
    assert "assistant: Hm.\nBash: ls\nresult: a ⏎ b ⏎ c (+1 line)\n" in printed
    assert "be kind" not in printed


def test_a_lost_server_is_reported_and_commits_are_still_followed(tmp_path, upstream):
    with weft_serve(tmp_path, f"--upstream=mock=anthropic:{upstream.url}") as gateway:
        ask(gateway, "hello", "left")
        with following(gateway.store, "left") as follow:
            follow.until("An answer to: hello\n")
            gateway.process.terminate()
            gateway.process.wait(SECONDS)
            assert "the server is gone" in follow.errors()
            with weft.thread.open(gateway.store, "left") as thread:
                thread.user("still here")
            follow.until("user: still here\n")


def test_a_server_with_keys_requires_one(tmp_path, upstream):
    flags = [f"--upstream=mock=anthropic:{upstream.url}"]
    with weft_serve(tmp_path, *flags, WEFT_API_KEYS="one,two") as gateway:
        ask(gateway, "hello", "mine", "one")
        with following(gateway.store) as follow:
            assert "set WEFT_API_KEY" in follow.first_line
        with following(gateway.store, "--json", WEFT_API_KEY="two") as follow:
            asking(gateway, "not yours", "mine", "one")
            asking(gateway, "yours", "other", "two")
            event = follow.event("exchange")
            assert event["thread"].startswith("other")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("log", "--follow", "nobody"), "there is no thread 'nobody'"),
        (("log", "somebody"), "there is no thread 'somebody'"),
        (("log", "--url", "http://127.0.0.1:9"), "--url needs --follow"),
        (("log", "a", "--thread", "b"), "named twice"),
        (("log", "--follow", "--graph"), "exclude each other"),
        (("log", "--follow", "--url", "http://127.0.0.1:9"), "no gateway answers"),
    ],
)
def test_wrong_arguments_are_refused(run, words, reason):
    run("commit", "hello")
    code, _, err = run(*words)
    assert code == 1
    assert reason in err
