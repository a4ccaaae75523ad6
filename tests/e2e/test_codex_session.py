"""The real Codex behind the gateway: a session is one thread on one branch.

The tests run if `WEFT_CODEX` names the native binary of Codex. The upstreams are local models that
check their private state (`simulated_clients.py`). Nothing leaves this machine.
"""

import os
import signal
import subprocess
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import weft
import weft.thread
from real_clients import (
    CODEX_OPTIONS,
    codex_environment,
    configure_codex,
    require_binary,
    start_client,
)
from servers import SECONDS, UPSTREAM_NAMES, Gateway, weft_serve
from simulated_clients import Answer, ThinkingModel, thinking_model
from weft.model import ToolCall
from weft.store import open_store

EDITS = 75 if os.environ.get("WEFT_TORTURE") else 6


class Codex:
    """Codex in a home of its own, behind a gateway with an upstream of each protocol."""

    def __init__(self, folder: Path, gateway: Gateway, model: ThinkingModel, upstream: str) -> None:
        self.gateway, self.model, self.upstream = gateway, model, upstream
        self._home, self.project = folder / "codex", folder / "project"
        self._home.mkdir()
        self.project.mkdir()
        configure_codex(self._home, gateway.url)
        self.nonce = f"nonce-{uuid.uuid4().hex[:12]}"

    def start(self, prompt: str, *words: str, answers: list[Answer]) -> "subprocess.Popen[str]":
        """Start a run; the model gives these answers, in this order."""
        self.model.script[self.nonce] = list(answers)
        command = [require_binary("WEFT_CODEX"), "exec", *CODEX_OPTIONS]
        command += [*words, f"{prompt} {self.nonce}"]
        return start_client(command, self.project, codex_environment(self._home))

    def __call__(self, prompt: str, *words: str, answers: list[Answer]) -> None:
        """One whole run."""
        process = self.start(prompt, *words, answers=answers)
        output, _ = process.communicate(timeout=1500)
        assert process.returncode == 0, output[-3000:]
        assert self.model.script[self.nonce] == [], output[-3000:]

    @property
    def session(self) -> str:
        """The id of its only session."""
        (file,) = (self._home / "sessions").rglob("rollout-*.jsonl")
        return file.stem[-36:]


@pytest.fixture(params=UPSTREAM_NAMES.values())
def codex(tmp_path: Path, request: pytest.FixtureRequest):
    require_binary("WEFT_CODEX")
    with thinking_model() as model:
        flags = [f"--upstream={n}={protocol}:{model.url}" for protocol, n in UPSTREAM_NAMES.items()]
        alias = f"--alias=gpt-5.5={request.param}/m"  # Codex offers its tools to models it knows
        with weft_serve(tmp_path, *flags, alias) as gateway:
            yield Codex(tmp_path, gateway, model, request.param)


def edits(lead: str, old: int, new: int) -> list[Answer]:
    """The model edits a file several times in a row, and reports."""
    calls: list[Answer] = []
    for number in range(EDITS):
        change = f"-name_{number} = {old}\n+name_{number} = {new}\n"
        patch = f"*** Begin Patch\n*** Update File: module.py\n@@\n{change}*** End Patch\n"
        text = (f"{lead} {number}. ",) if number % 2 else ()
        calls.append(Answer(text, (("apply_patch", {"input": patch}),)))
    return [*calls, Answer((f"{lead}: all are changed. ",))]


def test_edits_an_abort_and_a_resumed_session_stay_on_one_branch(codex: Codex) -> None:
    module = codex.project / "module.py"
    module.write_text("".join(f"name_{number} = 0\n" for number in range(EDITS)))
    codex("Number the names.", answers=edits("First", 0, 1))
    assert module.read_text() == "".join(f"name_{n} = 1\n" for n in range(EDITS))

    story = ("A long story begins. ", "It goes on. ", "And on. ")
    held = Answer(story, pauses=True)
    running = codex.start("Tell a story.", "resume", "--last", answers=[held])
    assert codex.model.is_paused.wait(SECONDS)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=SECONDS)
    codex.gateway.await_lines(1, lambda line: line.get("outcome") == "client_left")
    codex.model.resume.set()

    codex("Again.", "resume", codex.session, answers=edits("Second", 1, 2))
    assert module.read_text() == "".join(f"name_{n} = 2\n" for n in range(EDITS))
    with closing(open_store(codex.gateway.store)) as store:
        tops = [record.name for record in store.threads() if record.parent is None]
        assert tops == [f"codex-{codex.session}"]
        assert weft.thread.fsck(store).clean
    with weft.open(codex.gateway.store, tops[0]) as thread:
        assert thread.branches().keys() == {"main"}
        assert len([info for info in thread.log(limit=1000) if _has_edit(info)]) == 2 * EDITS
        (attempt,) = thread.attempts()
        assert (attempt.state, attempt.text[:12]) == ("partial", "A long story")
        assert thread.compile().messages[-1].text.startswith("Second: all are")
    if codex.upstream != UPSTREAM_NAMES["openai-responses"]:  # there the client itself decides
        assert codex.model.missing == []


def _has_edit(info: Any) -> bool:
    blocks = [block for message in info.messages for block in message.blocks]
    return any(isinstance(block, ToolCall) and block.name == "apply_patch" for block in blocks)
