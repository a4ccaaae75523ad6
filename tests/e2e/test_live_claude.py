"""A session of the real Claude Code is watched while it runs, in a browser and in a terminal.

The tests run if `WEFT_CLAUDE` names the native binary of Claude Code. Nothing leaves this machine.
"""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from playwright.sync_api import expect

from pages import wait_for_no_text, wait_for_text
from real_clients import CLAUDE_OPTIONS, claude_environment, require_binary, start_client
from servers import Scripted, Upstream, scripted_upstream
from serving import serving
from slow_upstream import closing, deltas, opening, streamed, tool_call

pytestmark = pytest.mark.xdist_group("browser")

SECONDS = 60
QUESTION = "Please greet me with the shell."
COMMAND = "printf 'hello-%s\\n' from-the-shell"


class Gated(Scripted):
    """An answer that stops behind its first pieces until the test lets it go on."""

    def __init__(self, before: list[bytes], after: list[bytes]) -> None:
        super().__init__()
        self.gate = threading.Event()
        self._before, self._after = before, after
        self.pieces = self._pieces()  # pyright: ignore[reportAttributeAccessIssue]

    def _pieces(self) -> Iterator[bytes]:
        yield from self._before
        self.gate.wait(SECONDS)
        yield from self._after


class Script:
    """Calls the shell, then says what it printed; both answers wait for the test."""

    def __init__(self, upstream: Upstream) -> None:
        call = list(tool_call("I will greet you.", "Bash", {"command": COMMAND}).pieces)
        self.call = Gated(call[:3], call[3:])
        self.answer = Gated(
            [*opening(), *deltas("The shell said ")], [*deltas("hello."), *closing()]
        )
        upstream.rule = self._choose

    def _choose(self, data: bytes) -> Scripted:
        if b'"tool_result"' in data:
            return self.answer
        is_question = QUESTION.encode() in data and orjson.loads(data).get("tools")
        return self.call if is_question else streamed("Fine.")

    def open(self) -> None:
        self.call.gate.set()
        self.answer.gate.set()


def start_claude(binary: str, folder: Path, url: str, prompt: str) -> "subprocess.Popen[str]":
    home, project = folder / "home", folder / "project"
    for path in (home, project):
        path.mkdir(exist_ok=True)
    command = [binary, *CLAUDE_OPTIONS, "--model", "mock-model", prompt]
    return start_client(command, project, claude_environment(home, url))


class Follow:
    """`weft log --follow --json`: its lines, as they are printed."""

    def __init__(self, store: Path) -> None:
        launch = "from weft.cli.main import entry; entry()"
        words = ["log", "--follow", "--json", "--store", str(store)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", launch, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        assert "following" in self.process.stderr.readline()
        self.lines: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(orjson.loads(line))
                self._changed.notify_all()

    def wait_for_text(self, text: str) -> None:
        """Wait until the streamed text so far has this in it."""

        def has_text() -> bool:
            blocks = [line for line in self.lines if line["type"] == "block"]
            return text in "".join(block["text"] for block in blocks)

        with self._changed:
            assert self._changed.wait_for(has_text, SECONDS), self.lines[-5:]

    def wait_for(self, type: str, **members: Any) -> dict[str, Any]:
        def matches() -> list[dict[str, Any]]:
            same_type = (line for line in self.lines if line["type"] == type)
            return [line for line in same_type if members.items() <= line.items()]

        with self._changed:
            assert self._changed.wait_for(matches, SECONDS), self.lines[-5:]
            return matches()[0]

    def close(self) -> None:
        self.process.terminate()
        self.process.communicate()


@pytest.fixture
def binary() -> str:
    return require_binary("WEFT_CLAUDE")


def test_a_session_is_watched_in_a_browser_and_in_a_terminal(
    binary: str, new_tab: Any, tmp_path: Path
) -> None:
    store = tmp_path / "weft.db"
    with scripted_upstream() as upstream:
        script = Script(upstream)
        flag = f"--upstream=mock=anthropic:{upstream.url}"
        with serving(tmp_path, "--store", str(store), flag) as url:
            follow = Follow(store)
            claude = start_claude(binary, tmp_path, url, QUESTION)
            try:
                follow.wait_for_text("I will greet you.")
                streaming = [line for line in follow.lines if "greet" in line.get("text", "")]
                thread = streaming[0]["thread"]
                page = new_tab(url, thread)
                # The first answer streams: the person's own words, the text, and a running state.
                page.wait_for_selector(".live :text('I will greet you.')")
                assert claude.poll() is None
                expect(page.locator("#title")).to_have_text(QUESTION)
                wait_for_text(page, QUESTION)
                wait_for_text(page, "System prompt, ")
                wait_for_no_text(page, "<system-reminder>")
                script.call.gate.set()
                # Claude Code runs the tool and asks again: the result is in the panel of the call.
                page.wait_for_selector(".row[data-id] .tool")
                page.click(".row[data-id] .tool > summary")
                page.wait_for_selector(".live :text('The shell said')")
                page.wait_for_selector(".tool.done[open] .result:text('hello-from-the-shell')")
                follow.wait_for_text("The shell said ")
                assert claude.poll() is None
                script.answer.gate.set()
                page.wait_for_selector(".live", state="detached")
                page.wait_for_selector(".row.assistant[data-id] :text('The shell said hello.')")
                expect(page.locator(".tool[open]")).to_have_count(1)
                output, _ = claude.communicate(timeout=SECONDS)
                assert "The shell said hello." in output
                follow.wait_for("exchange", state="done", thread=thread)
            finally:
                script.open()
                claude.kill()
                claude.communicate()
                follow.close()


@pytest.mark.parametrize("protocol", ["anthropic", "openai-chat", "openai-responses", "gemini"])
def test_a_session_is_watched_with_every_upstream_protocol(
    binary: str, mock: Any, tmp_path: Path, protocol: str
) -> None:
    store = tmp_path / "weft.db"
    with serving(tmp_path, "--store", str(store), f"--upstream=mock={protocol}:{mock.url}") as url:
        follow = Follow(store)
        claude = start_claude(binary, tmp_path, url, "Please use the tool to print a greeting.")
        try:
            output, _ = claude.communicate(timeout=SECONDS)
            assert "MOCK-TOOL-OK" in output
            follow.wait_for_text("hello-from-tool-42")
            calls = [line for line in follow.lines if line.get("kind") == "call"]
            assert {call["name"] for call in calls} == {"Bash"}
            thread = calls[0]["thread"]
            ends = [line for line in follow.lines if line.get("state") in ("done", "failed")]
            assert {end["state"] for end in ends if end["thread"] == thread} == {"done"}
        finally:
            claude.kill()
            claude.communicate()
            follow.close()
