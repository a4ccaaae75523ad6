"""The real Claude Code behind the gateway: a session is one thread on one branch.

The tests run if `WEFT_CLAUDE` names the native binary of Claude Code. The upstreams are local
models that check their private state (`simulated_clients.py`). Nothing leaves this machine.
"""

import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

import weft
from real_clients import (
    CLAUDE_OPTIONS,
    claude_environment,
    claude_folder,
    require_binary,
    run_client,
)
from servers import UPSTREAM_NAMES, Gateway, Scripted, scripted_upstream, weft_serve
from simulated_clients import Answer, ThinkingModel, thinking_model
from weft.model import ToolCall
from weft.store import open_store
from weft.thread import import_bytes

EDITS = 6
LONG_RUN = 150 if os.environ.get("WEFT_TORTURE") else 12


class Claude:
    """Claude Code in a home of its own, behind a gateway with an upstream of each protocol."""

    def __init__(self, home: Path, gateway: Gateway, model: ThinkingModel) -> None:
        self.home, self.gateway, self.model = home, gateway, model
        self.project = home / "project"
        self.project.mkdir()
        self.nonce = f"nonce-{uuid.uuid4().hex[:12]}"

    def __call__(self, prompt: str, *words: str, upstream: str, answers: list[Answer]) -> None:
        """One run; the model gives these answers, in this order."""
        self.model.script[self.nonce] = list(answers)
        command = [require_binary("WEFT_CLAUDE"), *CLAUDE_OPTIONS, "--model", f"{upstream}/m"]
        environment = claude_environment(self.home, self.gateway.url)
        command += [*words, f"{prompt} {self.nonce}"]
        run_client(command, self.project, environment, seconds=1500)
        assert self.model.script[self.nonce] == []

    @property
    def file(self) -> Path:
        """The file of its only session."""
        (file,) = claude_folder(self.home, self.project).glob("*.jsonl")
        return file

    def threads(self) -> dict[str, Any]:
        store = open_store(self.gateway.store)
        try:
            return {record.name: record for record in store.threads()}
        finally:
            store.close()


@pytest.fixture
def claude(tmp_path: Path):
    require_binary("WEFT_CLAUDE")
    with thinking_model() as model:
        flags = [f"--upstream={n}={protocol}:{model.url}" for protocol, n in UPSTREAM_NAMES.items()]
        with weft_serve(tmp_path, *flags) as gateway:
            yield Claude(tmp_path, gateway, model)


def edits(file: Path) -> list[Answer]:
    """The model reads a file, edits it six times in a row, and reports."""
    path = str(file)
    calls: list[Answer] = [Answer(("I read it first. ",), (("Read", {"file_path": path}),))]
    for number in range(EDITS):
        old, new = f"name_{number} = 0", f"name_{number} = {number + 1}"
        arguments = {"file_path": path, "old_string": old, "new_string": new}
        calls.append(Answer((), (("Edit", arguments),)))
    return [*calls, Answer(("All six are renamed. ",))]


@pytest.mark.parametrize("upstream", UPSTREAM_NAMES.values())
def test_six_edits_in_a_row_stay_on_one_branch(claude: Claude, upstream: str) -> None:
    module = claude.project / "module.py"
    module.write_text("".join(f"name_{number} = 0\n" for number in range(EDITS)))
    claude("Number the names.", upstream=upstream, answers=edits(module))
    assert module.read_text() == "".join(f"name_{n} = {n + 1}\n" for n in range(EDITS))
    claude("Thank you.", "--continue", upstream=upstream, answers=[Answer(("You are welcome.",))])
    session = f"claude-{claude.file.stem}"
    assert [n for n, record in claude.threads().items() if record.parent is None] == [session]
    with weft.open(claude.gateway.store, session) as thread:
        assert thread.branches().keys() == {"main"}
        commits = [info for info in thread.log(limit=100) if _edit_of(info) is not None]
        assert len(commits) == EDITS
        for info in commits:
            call, echo = _edit_of(info), thread.client_echo(info)
            assert call is not None
            assert "replace_all" not in json.loads(call.arguments)
            assert echo is not None
            (echoed,) = [block for block in echo.blocks if isinstance(block, ToolCall)]
            assert json.loads(echoed.arguments)["replace_all"] is False
    if upstream != UPSTREAM_NAMES["anthropic"]:  # there the client itself decides what it sends
        assert claude.model.missing == []


@pytest.mark.parametrize("upstream", UPSTREAM_NAMES.values())
def test_a_long_run_is_recorded_as_it_was_sent(claude: Claude, upstream: str) -> None:
    """Hundreds of turns with `WEFT_TORTURE`: reads, edits, commands, a failure and a new run."""
    module = claude.project / "module.py"
    module.write_text("".join(f"name_{number} = 0\n" for number in range(LONG_RUN)))
    answers: list[Answer] = [
        Answer(("I read it first. ",), (("Read", {"file_path": str(module)}),))
    ]
    for number in range(LONG_RUN):
        old, new = f"name_{number} = 0", f"name_{number} = {number + 1}"
        arguments = {"file_path": str(module), "old_string": old, "new_string": new}
        answers.append(Answer((), (("Edit", arguments),)))
        if number % 4 == 0:
            command = {"command": f"wc -l module.py; echo run {number}", "description": "Count"}
            answers.append(Answer((f"Line {number}. ",), (("Bash", command),)))
        if number % 25 == 24:
            answers.append(Answer((), status=529))
    claude("Number the names.", upstream=upstream, answers=[*answers, Answer(("Done. ",))])
    for number in range(3):
        claude(
            f"Thank you {number}.", "--continue", upstream=upstream, answers=[Answer(("Bye. ",))]
        )
    assert module.read_text() == "".join(f"name_{n} = {n + 1}\n" for n in range(LONG_RUN))
    session = f"claude-{claude.file.stem}"
    assert [n for n, record in claude.threads().items() if record.parent is None] == [session]
    with weft.open(claude.gateway.store, session) as thread:
        assert thread.branches().keys() == {"main"}
        log = list(thread.iter_log())
        assert len([info for info in log if _edit_of(info) is not None]) == LONG_RUN
        answered = [info for info in log if info.messages and info.messages[0].role == "assistant"]
        stored = [thread.show(info.id, sent=True).body for info in reversed(answered)]
    # The retry of a failed request has the same body.
    received = dict.fromkeys(claude.model.bodies[claude.nonce])
    assert [body for body in received if body in stored] == stored
    assert len(stored) == len([answer for answer in answers if answer.status == 200]) + 4
    if upstream != UPSTREAM_NAMES["anthropic"]:  # there the client itself decides what it sends
        assert claude.model.missing == []


def _edit_of(info: Any) -> ToolCall | None:
    blocks = [block for message in info.messages for block in message.blocks]
    return next((b for b in blocks if isinstance(b, ToolCall) and b.name == "Edit"), None)


def _import(claude: Claude) -> Any:
    store = open_store(claude.gateway.store)
    try:
        (imported,) = import_bytes(store, claude.file.read_bytes())
        return imported
    finally:
        store.close()


def test_the_file_of_a_recorded_session_equals_its_thread(claude: Claude) -> None:
    module = claude.project / "module.py"
    module.write_text("".join(f"name_{number} = 0\n" for number in range(EDITS)))
    claude("Number the names.", upstream="c", answers=edits(module))
    imported = _import(claude)
    assert (imported.thread, imported.new) == (f"claude-{claude.file.stem}", 0)
    claude("And now?", "--continue", upstream="c", answers=[Answer(("Nothing is left.",))])
    assert _import(claude).new == 0
    with weft.open(claude.gateway.store, imported.thread) as thread:
        assert thread.branches().keys() == {"main"}


def test_an_imported_session_continues_in_its_thread(claude: Claude) -> None:
    module = claude.project / "module.py"
    module.write_text("".join(f"name_{number} = 0\n" for number in range(EDITS)))
    claude("Number the names.", upstream="c", answers=edits(module))
    live = f"claude-{claude.file.stem}"
    with weft.open(claude.gateway.store, live) as thread:
        thread.delete()
    imported = _import(claude)
    assert imported.thread == claude.file.stem
    claude("And now?", "--continue", upstream="c", answers=[Answer(("Nothing is left.",))])
    assert list(claude.threads()) == [imported.thread]
    assert _import(claude).new == 0
    with weft.open(claude.gateway.store, imported.thread) as thread:
        assert thread.branches().keys() == {"main"}
        assert thread.compile().messages[-1].text.startswith("Nothing is left.")


WINDOW = 60_000
FILES = 9
LINES = 300


class SmallModel:
    """A model of the Messages API with a small window: it reads one file after the other.

    Files are recognised by a word on a line in the middle. A request that is too long is refused.
    """

    def __init__(self, project: Path) -> None:
        self.project = project
        self.bodies: list[dict[str, Any]] = []
        self.unread: list[int] = []
        self.refused = 0

    def __call__(self, raw: bytes) -> Scripted:
        body = json.loads(raw)
        tokens = len(raw) // 4
        if "Read every file." not in raw.decode() or not body.get("tools"):
            return _messages_stream(tokens, {"type": "text", "text": "All right."})
        if tokens > WINDOW:
            self.refused += 1
            message = f"prompt is too long: {tokens} tokens > {WINDOW} maximum"
            error = {"type": "invalid_request_error", "message": message}
            refusal = json.dumps({"type": "error", "error": error}).encode()
            return Scripted(refusal, status=400, kind="application/json")
        number = len(self.bodies)
        self.bodies.append(body)
        if number and _line(number - 1, LINES // 2) not in raw.decode():
            self.unread.append(number - 1)
        if number == FILES:
            return _messages_stream(tokens, {"type": "text", "text": "All files are read."})
        path = str(self.project / f"part_{number}.txt")
        call = {"type": "tool_use", "id": f"toolu_{number:04d}", "name": "Read", "input": {}}
        return _messages_stream(tokens, call, {"file_path": path})


def _line(number: int, line: int) -> str:
    return f"line {line} of part {number} has the value {number * 7919 + line} and some more words"


def _messages_stream(tokens: int, block: Any, arguments: Any = None) -> Scripted:
    """An answer of one block as a stream of the Messages API."""
    empty = {**block, "text": ""} if block["type"] == "text" else block
    delta = (
        {"type": "text_delta", "text": block["text"]}
        if arguments is None
        else {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
    )
    message = {
        "id": f"msg_{uuid.uuid4().hex[:24]}",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": tokens, "output_tokens": 1},
    }
    stop = "end_turn" if arguments is None else "tool_use"
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": {"output_tokens": 20},
        },
        {"type": "message_stop"},
    ]
    frames = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    return Scripted("".join(frames).encode())


def test_a_session_continues_beyond_its_models_context_window(tmp_path: Path) -> None:
    """`auto_compact`: the compacted view goes upstream, and every result is read once."""
    require_binary("WEFT_CLAUDE")
    config = tmp_path / "weft.toml"
    config.write_text(
        f'auto_compact = true\n[[model]]\nmatch = "m"\nwindow = {WINDOW}\noutput = 4000\n'
    )
    with scripted_upstream() as upstream:
        flags = (f"--config={config}", f"--upstream=up=anthropic:{upstream.url}")
        with weft_serve(tmp_path, *flags) as gateway:
            claude = Claude(tmp_path, gateway, ThinkingModel())
            for number in range(FILES):
                text = "\n".join(_line(number, line) for line in range(LINES))
                (claude.project / f"part_{number}.txt").write_text(text)
            upstream.rule = model = SmallModel(claude.project)
            claude("Read every file.", upstream="up", answers=[])
            session = f"claude-{claude.file.stem}"
            threads = [n for n, record in claude.threads().items() if record.parent is None]
            assert threads == [session]
            with weft.open(gateway.store, session) as thread:
                assert thread.branches().keys() == {"main"}
                kinds = [info.kind for info in thread.log(limit=100)]
    assert len(model.bodies) == FILES + 1
    assert model.refused == 0
    assert model.unread == []
    assert "compact" in kinds
    assert "[Summary of earlier messages" in json.dumps(model.bodies[-1]["messages"])
