"""Claude Code as the agent of a thread, driven by the real Claude Agent SDK.

A request goes from the page or a program through the SDK, Claude Code and the gateway to a mock
upstream of another protocol, and back. The tests run if the SDK and the mock upstream are
available. `WEFT_CLAUDE` names another binary than the SDK's. Nothing leaves this machine.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from playwright.sync_api import expect

import weft
from pages import open_tab, wait_for_text, wait_for_thread
from servers import scripted_upstream, weft_serve
from slow_upstream import HELD_TEXT, Held, streamed
from terminals import WEFT, Terminal
from weft.agent import (
    ClaudeAgent,
    ClaudeOptions,
    MessageComplete,
    SystemMessage,
    TextDelta,
    ToolEnd,
    ToolStart,
    UsageReport,
)
from weft.history import without_client_text
from weft.store import open_store

pytestmark = [
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(
        find_spec("claude_agent_sdk") is None, reason="the Claude Agent SDK is not installed"
    ),
]

PROTOCOLS = ("openai-chat", "openai-responses", "gemini")
GREETING = "Please use the tool to print a greeting."
OUTPUT = "hello-from-tool-42"
SECONDS = 120
PAGE_SECONDS = 60
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360f8cf000000030101001ac05d9a0000000049454e44ae426082"
)
QUIET = ("DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING", "IS_SANDBOX")


def run_alone(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a thread of its own: the browser's driver has a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def variables(folder: Path) -> dict[str, str]:
    """A home of its own for Claude Code."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    return {
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / "config"),
        "ANTHROPIC_API_KEY": "test-key",
        "NO_PROXY": "*",
        **dict.fromkeys(QUIET, "1"),
    }


class Driver:
    """An agent in a thread behind a gateway, and what it was asked."""

    def __init__(self, folder: Path, gateway: Any, name: str = "driven") -> None:
        project = folder / "project"
        project.mkdir(exist_ok=True)
        self.thread = weft.open(str(gateway.store), name)
        self.questions: list[Any] = []
        self.answers: list[Any] = []
        self.hint = ""
        options = ClaudeOptions(
            model="mock-model",
            folder=str(project),
            program=os.environ.get("WEFT_CLAUDE") or None,
            env=variables(folder),
        )
        self.agent = ClaudeAgent(
            self.thread, gateway.url, options, permission=self._permit, ask_user=self._choose
        )

    def _permit(self, request: Any) -> Any:
        self.questions.append(request)
        if self.hint:
            self.agent.hint(self.hint)
            self.hint = ""
        return self.answers.pop(0)

    async def _choose(self, question: Any) -> Any:
        self.questions.append(question)
        return self.answers.pop(0)

    def send(self, text: str | None, *answers: Any, **options: Any) -> list[Any]:
        self.answers = list(answers)

        async def run() -> list[Any]:
            async with (
                asyncio.timeout(SECONDS),
                aclosing(self.agent.run(text, **options)) as events,
            ):
                return [event async for event in events]

        return run_alone(run())

    def texts(self) -> list[tuple[str, str]]:
        """The dialogue of the thread: the text of each message that has some."""
        messages = self.thread.compile().messages
        shown = [(m.role, without_client_text(m)) for m in messages]
        return [(role, text) for role, text in shown if text and role in ("user", "assistant")]


@contextmanager
def driver(folder: Path, mock: Any, protocol: str):
    with weft_serve(folder, f"--upstream=mock={protocol}:{mock.url}") as gateway:
        driven = Driver(folder, gateway)
        try:
            yield driven
        finally:
            driven.thread.close()


def text_of(events: list[Any]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_thread_is_driven_and_recorded_with_every_upstream_protocol(
    mock: Any, tmp_path: Path, protocol: str
) -> None:
    with driver(tmp_path, mock, protocol) as driven:
        events = driven.send(GREETING, "once")
        (request,) = driven.questions
        assert (request.name, request.server, request.thread) == ("Bash", "claude", "driven")
        (start,) = [event for event in events if isinstance(event, ToolStart)]
        (end,) = [event for event in events if isinstance(event, ToolEnd)]
        assert (start.id, end.content) == (end.id, OUTPUT)
        assert text_of(events) == f"MOCK-TOOL-OK {OUTPUT}"
        assert events[-1] == MessageComplete("end")
        (usage,) = [event for event in events if isinstance(event, UsageReport)]
        assert usage.input > 0
        assert usage.output > 0
        assert usage.cost is None  # nobody knows the price of this model
        # The next message continues the same thread on the same branch.
        events = driven.send("Say hello.")
        assert text_of(events).startswith("MOCK-TEXT-OK")
        assert driven.texts() == [
            ("user", GREETING),
            ("assistant", f"MOCK-TOOL-OK {OUTPUT}"),
            ("user", "Say hello."),
            ("assistant", "MOCK-TEXT-OK hello from the mock upstream"),
        ]
        names = [record.name for record in driven.thread.store.threads() if not record.parent]
        assert (names, list(driven.thread.branches())) == (["driven"], ["main"])


QUESTION = (
    '[[call:AskUserQuestion {"questions": [{"question": "Which?", "header": "Pick", '
    '"multiSelect": false, "options": [{"label": "A", "description": "a"}, '
    '{"label": "B", "description": "b"}]}]}]]'
)


def test_it_asks_takes_hints_and_files_and_compacts(mock: Any, tmp_path: Path) -> None:
    with driver(tmp_path, mock, "openai-chat") as driven:
        thread = driven.thread
        thread.user("Remember the word PLUM.")
        thread.assistant("I remember PLUM.")
        # What was in the thread before is what Claude Code knows.
        picture = tmp_path / "pixel.png"
        picture.write_bytes(PIXEL)
        driven.send("Say hello.", attach=[picture])
        asked = str(mock.asked("messages"))
        assert "PLUM" in asked
        assert "image_url" in asked
        # Every call is asked about, also one that Claude Code would allow by itself.
        file = tmp_path / "project" / "a.txt"
        file.write_text("the content")
        events = driven.send(f'[[call:Read {{"file_path": "{file}"}}]]', "deny")
        assert [request.name for request in driven.questions] == ["Read"]
        (end,) = [event for event in events if isinstance(event, ToolEnd)]
        assert (end.is_error, "did not allow" in end.content) == (True, True)
        # A question of its own.
        events = driven.send(QUESTION, {"Which?": "B"})
        assert '"Which?"="B"' in text_of(events)
        # A hint that is typed while it works.
        driven.hint = "and hurry"
        events = driven.send(GREETING, "once")
        reports = [event for event in events if isinstance(event, SystemMessage)]
        hints = [event.data["content"] for event in reports if event.subtype == "hint"]
        assert hints == ["and hurry"]
        assert "and hurry" in str(mock.asked("messages"))
        assert isinstance(events[-1], MessageComplete)
        # Its own compaction is reported, and becomes one of the thread.
        events = driven.send("/compact")
        subtypes = [e.subtype for e in events if isinstance(e, SystemMessage)]
        assert "compact_boundary" in subtypes
        driven.send("Say hello again.")
        assert "PLUM" not in str(mock.asked("messages"))
        assert "compact" in [info.kind for info in thread.log(limit=20)]
        assert set(thread.branches()) == {"main", "compaction-1"}  # the request for the summary
        # Undo in Weft holds for Claude Code.
        thread.undo(turn=True)
        driven.send("Say hello for the last time.")
        assert "Say hello again." not in str(mock.asked("messages"))
        names = [record.name for record in thread.store.threads() if not record.parent]
        assert names == ["driven"]


def open_terminal(folder: Path, *words: str) -> Terminal:
    """`weft chat` in a terminal."""
    own = {**variables(folder), "XDG_CONFIG_HOME": str(folder), "TERM": "dumb"}
    return Terminal([*WEFT, "chat", *words], {**os.environ, **own}, cwd=folder)


def test_a_terminal_chat_is_driven_by_claude_code(mock: Any, tmp_path: Path) -> None:
    store, picture = tmp_path / "weft.db", tmp_path / "pixel.png"
    picture.write_bytes(PIXEL)
    program = os.environ.get("WEFT_CLAUDE")
    terminal = open_terminal(
        tmp_path, "--store", str(store), "--agent", "claude", "--model", "mock-model",
        "--thread", "my chat", f"--upstream=mock=openai-responses:{mock.url}",
        *(["--agent-program", program] if program else []),
    )  # fmt: skip
    try:
        place = terminal.wait_for("> ")
        terminal.type(f"{GREETING}\n")
        place = terminal.wait_for("wants to run Bash of claude", place)
        place = terminal.wait_for("[n] no: ", place)
        terminal.type("t\n")
        place = terminal.wait_for(f"MOCK-TOOL-OK {OUTPUT}", place)
        place = terminal.wait_for("> ", place)
        terminal.type(f"/attach {picture}\n")
        place = terminal.wait_for("> ", place)
        terminal.type(f"{QUESTION}\n")
        place = terminal.wait_for("your own answer: ", place)
        terminal.type("2\n")
        place = terminal.wait_for('"Which?"="B"', place)
        place = terminal.wait_for("> ", place)
        terminal.type("/model other-model\n")
        place = terminal.wait_for("the model is other-model", place)
        terminal.type(f"{GREETING} Once more.\n")
        place = terminal.wait_for(f"MOCK-TOOL-OK {OUTPUT}", place)
        place = terminal.wait_for("> ", place)
        terminal.type("/quit\n")
        assert terminal.process.wait(SECONDS) == 0
    finally:
        terminal.close()
    assert terminal.shown.count("wants to run") == 1  # allowed in this thread
    assert mock.models() >= {"mock-model", "other-model"}
    with weft.open(str(store), "my chat") as thread:
        names = [record.name for record in thread.store.threads() if not record.parent]
        assert (names, list(thread.branches())) == (["my chat"], ["main"])
        blocks = [type(block).__name__ for m in thread.compile().messages for block in m.blocks]
        assert "Image" in blocks
        assert blocks.count("ToolResult") == 3


@contextmanager
def page_server(folder: Path, *flags: str, **environ: str):
    """A server whose page may use Claude Code."""
    project = folder / "project"
    project.mkdir()
    program = os.environ.get("WEFT_CLAUDE")
    options = [f"--agent-program={program}"] if program else []
    environ = {**variables(folder), "XDG_CONFIG_HOME": str(folder / "config"), **environ}
    with weft_serve(
        folder, *flags, "--agent=claude", f"--agent-dir={project}", *options, **environ
    ) as gateway:
        yield gateway


class Page:
    """A tab on a thread that Claude Code drives."""

    def __init__(self, browser: Any, url: str, thread: str) -> None:
        self.page = open_tab(browser, url, thread)
        self.page.set_default_timeout(PAGE_SECONDS * 1000)
        self.page.wait_for_selector("#agent")
        self.page.select_option("#agent", "claude")
        self.page.fill("#model", "mock-model")
        self.page.press("#model", "Tab")

    def say(self, text: str) -> None:
        self.page.fill("#words", text)
        self.page.press("#words", "Enter")
        expect(self.page.locator("#words")).to_have_value("")  # the run has begun

    def wait_end(self) -> None:
        self.page.wait_for_selector("#send:not([hidden])")
        self.page.wait_for_selector(".streaming", state="detached")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_run_from_the_page_through_claude_code_and_back(
    browser: Any, mock: Any, tmp_path: Path, protocol: str
) -> None:
    with page_server(tmp_path, f"--upstream=mock={protocol}:{mock.url}") as gateway:
        tab = Page(browser, gateway.url, "circle")
        page = tab.page
        tab.say(GREETING)
        page.wait_for_selector(".question [data-answer=once]")
        wait_for_text(page, "Bash of claude", ".question")
        wait_for_text(page, "printf", ".question .argument")
        page.reload()
        wait_for_thread(page)
        page.click(".question [data-answer=once]")
        page.wait_for_selector(".tool.done")
        page.wait_for_selector(f".row.assistant[data-id] :text('MOCK-TOOL-OK {OUTPUT}')")
        tab.wait_end()
        expect(page.locator(".row.assistant .prose:has-text('MOCK-TOOL-OK')")).to_have_count(1)
        # A question of the agent, and a text that it is told at once.
        tab.say(QUESTION)
        page.check(".question input[value=B]")
        page.click(".question button[type=submit]")
        page.wait_for_selector(".row.assistant[data-id] .prose:has-text('=\"B\"')")
        tab.wait_end()
        # Its compaction is reported when it happens, and is a commit when it is used.
        tab.say("/compact")
        page.wait_for_selector(".system-message:has-text('Compacted')")
        tab.wait_end()
        tab.say("Say hello.")
        page.wait_for_selector(".row.assistant[data-id] :text('MOCK-TEXT-OK')")
        tab.wait_end()
        page.wait_for_selector(".fold")
        assert page.errors == []
        page.context.close()
        with weft.open(str(gateway.store), "circle") as thread:
            names = [record.name for record in thread.store.threads() if not record.parent]
            assert names == ["circle"]
            assert set(thread.branches()) == {"main", "compaction-1"}
            assert "compact" in [info.kind for info in thread.log(limit=10)]


def test_a_run_that_is_stopped_keeps_its_text_and_can_be_retried(
    browser: Any, tmp_path: Path
) -> None:
    gate = threading.Event()

    def answer(data: bytes) -> Any:
        is_question = b"HELD please" in data and orjson.loads(data).get("tools")
        return Held(gate) if is_question else streamed("Fine.")

    with (
        scripted_upstream() as upstream,
        page_server(tmp_path, f"--upstream=mock=anthropic:{upstream.url}") as gateway,
    ):
        upstream.rule = answer
        tab = Page(browser, gateway.url, "stopped")
        page = tab.page
        tab.say("HELD please")
        page.wait_for_selector(f":text('{HELD_TEXT.strip()}')")
        page.click("#stop")
        page.wait_for_selector(f".attempt :text('{HELD_TEXT.strip()}')")
        tab.wait_end()
        wait_for_text(page, "Stopped.")
        gate.set()
        page.click(".attempt :text('Retry')")
        page.wait_for_selector(".row.assistant[data-id] :text('and the second half.')")
        tab.wait_end()
        page.context.close()
        with weft.open(str(gateway.store), "stopped") as thread:
            dialogue = [m.role for m in thread.compile().messages if not weft.model.is_system(m)]
            assert dialogue == ["user", "assistant"]
            names = [record.name for record in thread.store.threads() if not record.parent]
            assert (names, list(thread.branches())) == (["stopped"], ["main"])


def test_with_keys_it_runs_for_the_caller_who_started_it(mock: Any, tmp_path: Path) -> None:
    async def talk(url: str) -> list[Any]:
        frames: list[Any] = []
        async with (
            aiohttp.ClientSession(headers={"x-api-key": "first"}) as session,
            session.ws_connect(f"{url}/ws") as socket,
        ):
            say = {"type": "say", "thread": "mine", "text": GREETING, "model": "mock-model"}
            await socket.send_json({**say, "agent": "claude"})
            while not frames or frames[-1]["type"] not in ("message_complete", "error"):
                frames.append(await socket.receive_json(timeout=SECONDS))
                if frames[-1]["type"] == "question":
                    answer = {"type": "answer", "id": frames[-1]["id"], "answer": "always"}
                    await socket.send_json({**answer, "thread": "mine"})
        return frames

    flag = f"--upstream=mock=gemini:{mock.url}"
    keys = {"WEFT_API_KEYS": "first,second", "MOCK_API_KEY": "server-secret"}
    with page_server(tmp_path, flag, **keys) as gateway:
        frames = run_alone(talk(gateway.url))
        assert frames[-1]["type"] == "message_complete"
        (end,) = [frame for frame in frames if frame["type"] == "tool_end"]
        assert end["content"] == OUTPUT
        store = open_store(str(gateway.store))
        names = [record.name for record in store.threads() if not record.parent]
        store.close()
        assert len(names) == 1, names
        assert names[0].startswith("mine-k")
    saved = list((tmp_path / "config" / "weft").glob("permissions-*.json"))
    assert [orjson.loads(file.read_bytes())["allow"] for file in saved] == [["claude/Bash"]]
