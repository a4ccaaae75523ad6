"""The commands of `weft chat`, and its questions about tools."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

import weft
from servers import Scripted, scripted_upstream
from summarisers import bodies, says, tool_calls
from terminals import Terminal

LAUNCH = "from weft.cli import entry; entry()"
SERVER = str(Path(__file__).parents[1] / "agent" / "mcp_server.py")
SECONDS = 120.0


def chat(store: Path, text: str, *flags: str, thread: str | None = "default") -> str:
    """What a chat prints for these lines."""
    if thread is not None:
        flags = ("-t", thread, *flags)
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH, "chat", "--store", str(store), *flags],
        input=text, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_lists_every_command(tmp_path):
    output = chat(tmp_path / "a.db", "/help\n")
    for command in ("model", "branch", "undo", "retry", "compact", "diff", "attach", "tools"):
        assert f"/{command}" in output


def test_a_branch_is_created_switched_to_and_listed(tmp_path):
    lines = "Oslo is cold.\n/branch try\nBergen is wet.\n/branch main\nRain?\n/branch\n"
    output = chat(tmp_path / "a.db", lines)
    assert "new branch 'try'" in output
    assert output.rstrip().splitlines()[-2:] == ["* main", "  try"]
    with weft.open(tmp_path / "a.db") as thread:
        assert "Bergen" not in str(thread.compile().to_dicts())
        thread.switch("try")
        assert "Bergen" in str(thread.compile().to_dicts())


def test_the_model_can_be_changed(tmp_path):
    with scripted_upstream() as upstream:
        upstream.then(says("from the other"))
        flags = ("--upstream", f"u=openai-chat:{upstream.url}")
        output = chat(tmp_path / "a.db", "/model\n/model u/other\nhi\n", *flags)
        assert bodies(upstream)[0]["model"] == "other"
    assert "the model is weft-offline" in output
    assert "the model is other" in output
    assert "from the other" in output


def test_retries_are_printed_while_they_happen(tmp_path):
    with scripted_upstream() as upstream:
        upstream.then(Scripted(b"{}", status=429, headers=[("retry-after", "0")]), says("at last"))
        flags = ("--upstream", f"u=openai-chat:{upstream.url}", "--model", "u/other")
        output = chat(tmp_path / "a.db", "hi\n", *flags)
    assert output.index("429 from u (too many requests); retry 1 of 3") < output.index("at last")
    with weft.open(tmp_path / "a.db") as thread:
        assert [attempt.reason.status for attempt in thread.attempts() if attempt.reason] == [429]


def test_a_model_without_a_key_is_refused_and_the_chat_continues(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    output = chat(tmp_path / "a.db", "/model gpt-5\n/model\n")
    assert "error: " in output
    assert "the model is weft-offline" in output


@pytest.mark.parametrize(
    "flags",
    [
        ("--model", "nomodel"),
        ("--config", "{folder}/summaries.toml"),  # its [compaction] names a model nobody serves
        ("--mcp", "{folder}/no-such-program"),
        ("--attach", "{folder}/no-such-file"),
        ("--config", "{folder}/no-such-file"),
    ],
)
def test_a_refused_chat_creates_no_store(tmp_path, monkeypatch, run, flags):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "summaries.toml").write_text('[compaction]\nmodel = "nomodel"\n')
    code, out, err = run("chat", *(flag.format(folder=tmp_path) for flag in flags), "hi")
    assert (code, out, err.count("\n")) == (1, "", 1), err
    assert [path.name for path in tmp_path.iterdir()] == ["summaries.toml"]


def test_a_diff_shows_the_last_turn(tmp_path):
    output = chat(tmp_path / "a.db", "Oslo is cold.\nBergen is wet.\n/diff\n")
    added = [line for line in output.splitlines() if line.startswith("+")]
    assert any("Bergen is wet." in line for line in added)
    assert not any("Oslo is cold." in line for line in added)


@pytest.mark.parametrize(
    "command", ["/diff", "/undo", "/retry", "/compact", "/attach", "/branch x"]
)
def test_a_command_on_an_empty_thread_does_not_end_the_chat(tmp_path, command):
    output = chat(tmp_path / "a.db", f"{command}\n/model\n")
    assert "the model is weft-offline" in output


@pytest.mark.parametrize(
    "lines",
    [
        "",  # the end of input
        "/quit\n",
        "/help\n/tools\n/undo\n/branch try\n/compact\n/model weft-offline\n/retry\n\n",
    ],
)
@pytest.mark.parametrize("flags", [(), ("-t", "named"), ("--system", "Be brief.")])
def test_a_chat_without_a_message_leaves_no_thread(tmp_path, lines, flags):
    path = tmp_path / "a.db"
    chat(path, lines, *flags, thread=None)
    assert weft.threads(path) == []
    chat(path, lines.replace("/quit\n", "") + "hello\nand more\n", *flags, thread=None)
    (thread,) = weft.threads(path)
    assert thread.folder == os.getcwd()
    with weft.open(path, thread.name) as opened:
        typed = [m.text for m in opened.compile().messages if m.role == "user"]
        assert [text.split("\n")[0] for text in typed] == ["hello", "and more"]
    chat(path, lines, "-t", thread.name, thread=None)  # a thread with messages stays
    assert [each.name for each in weft.threads(path)] == [thread.name]


def test_compact_makes_the_thread_smaller(tmp_path):
    lines = "".join(f"Fact {n}: the value is {n * 7}. {'word ' * 40}\n" for n in range(12))
    output = chat(tmp_path / "a.db", lines + "/compact\n")
    with weft.open(tmp_path / "a.db") as thread:
        assert [info.kind for info in thread.log()].count("compact") == 1, output


def test_the_compaction_table_names_the_model_that_summarises(tmp_path):
    lines = "".join(f"Fact {n}: the value is {n * 7}. {'word ' * 40}\n" for n in range(12))
    config = tmp_path / "weft.toml"
    with scripted_upstream() as upstream:
        upstream.then(says("There are twelve facts, and each has a value."))
        config.write_text(
            '[compaction]\nmodel = "u/small"\nprompt = "From the table."\n'
            f'[[upstream]]\nname = "u"\nprotocol = "openai-chat"\nurl = "{upstream.url}"\n'
        )
        output = chat(tmp_path / "a.db", lines + "/compact\n", "--config", str(config))
        request_body = bodies(upstream)[0]
    assert request_body["model"] == "small"
    assert request_body["messages"][0]["content"] == "From the table."
    assert "small" in output


def test_a_path_is_not_a_command(tmp_path):
    output = chat(tmp_path / "a.db", "/etc/hosts has what?\n")
    assert "no command" not in output


def test_tools_are_listed_and_refused_without_a_terminal(tmp_path):
    with scripted_upstream() as upstream:
        upstream.then(tool_calls([("c1", "add", {"a": 2, "b": 3})]), says("done"))
        flags = (
            "--upstream", f"u=openai-chat:{upstream.url}", "--model", "u/m",
            "--mcp", f"{sys.executable} {SERVER}",
        )  # fmt: skip
        output = chat(tmp_path / "a.db", "/tools\nadd them\n", *flags)
    assert "add (demo): Add two numbers." in output
    assert "the user did not allow this call" in output


def test_a_person_is_asked_and_always_is_stored(tmp_path):
    call = tool_calls([("c1", "add", {"a": 2, "b": 3})])
    with scripted_upstream() as upstream:
        upstream.then(call, says("first done"), call, says("second done"))
        command = [
            sys.executable, "-c", LAUNCH, "chat", "--store", str(tmp_path / "a.db"),
            "--upstream", f"u=openai-chat:{upstream.url}", "--model", "u/m",
            "--mcp", f"{sys.executable} {SERVER}",
        ]  # fmt: skip
        terminal = Terminal(command, {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config")})
        try:
            terminal.wait_for("> ")
            terminal.type("add them\n")
            place = terminal.wait_for("the model wants to run add of demo")
            place = terminal.wait_for("[n] no: ", place)
            terminal.type("what\n")
            place = terminal.wait_for("[n] no: ", place)
            terminal.type("a\n")
            place = terminal.wait_for("first done", place)
            terminal.type("again\n")
            place = terminal.wait_for("second done", place)
            assert terminal.shown.count("the model wants to run") == 1
            terminal.type("/quit\n")
            assert terminal.process.wait(SECONDS) == 0
        finally:
            terminal.close()
    results = [m for m in bodies(upstream)[-1]["messages"] if m["role"] == "tool"]
    assert [result["content"] for result in results] == ["5", "5"]
    assert "demo/add" in (tmp_path / "config" / "weft" / "permissions.json").read_text()


class Gated(Scripted):
    """An answer of which all but the end waits for the test."""

    def __init__(self, answer: Scripted) -> None:
        super().__init__()
        self.gate = threading.Event()
        frames = b"".join(answer.pieces).split(b"\n\n")
        *self._before, after, done = (frame + b"\n\n" for frame in frames if frame)
        self._after = [after, done]
        self.pieces = self._pieces()

    def _pieces(self) -> Iterator[bytes]:
        yield from self._before
        self.gate.wait(SECONDS)
        yield from self._after


def test_a_line_typed_during_an_answer_is_a_hint(tmp_path):
    answer = Gated(says("one moment"))
    with scripted_upstream() as upstream:
        upstream.then(answer, says("metric it is"))
        command = [
            sys.executable, "-c", LAUNCH, "chat", "--store", str(tmp_path / "a.db"),
            "--upstream", f"u=openai-chat:{upstream.url}", "--model", "u/m",
        ]  # fmt: skip
        terminal = Terminal(command, {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config")})
        try:
            terminal.wait_for("> ")
            terminal.type("convert it\n")
            place = terminal.wait_for("one moment")
            terminal.type("use metric\n")
            place = terminal.wait_for("(queued", place)
            answer.gate.set()
            terminal.wait_for("metric it is", place)
            terminal.type("/quit\n")
            assert terminal.process.wait(SECONDS) == 0
        finally:
            answer.gate.set()
            terminal.close()
        messages = [m for m in bodies(upstream)[-1]["messages"] if m["role"] != "system"]
    assert [m["role"] for m in messages] == ["user", "assistant", "user"]
    assert "use metric" in str(messages[-1]["content"])


@contextmanager
def offline_chat(folder: Path) -> Iterator[Terminal]:
    """A chat with the offline model on a terminal, with its files in this folder."""
    command = [sys.executable, "-c", LAUNCH, "chat", "--store", str(folder / "a.db")]
    command += ["--thread", "default"]
    names = ("XDG_CONFIG_HOME", "XDG_STATE_HOME")
    files = {name: str(folder / name) for name in names}
    terminal = Terminal(command, {**os.environ, **files, "TERM": "xterm"})
    try:
        terminal.wait_for("> ")
        yield terminal
    finally:
        terminal.close()


def sent_by(folder: Path) -> list[str]:
    with weft.open(folder / "a.db") as thread:
        texts = [m.text for m in thread.compile().messages if m.role == "user"]
        return [text.partition("\n<checkpoint")[0] for text in texts]


def test_lines_are_edited_and_earlier_ones_come_back_also_in_a_later_chat(tmp_path):
    with offline_chat(tmp_path) as terminal:
        terminal.type("helo\x1b[Dl\n")  # left, then the missing letter
        place = terminal.wait_for(" out · ")
        place = terminal.wait_for("> ", place)
        terminal.type("other words\n")
        place = terminal.wait_for(" out · ", place)
        place = terminal.wait_for("> ", place)
        terminal.type("\x1b[A\x1b[A!\n")  # up, up
        place = terminal.wait_for(" out · ", place)
        place = terminal.wait_for("> ", place)
        terminal.type("\x04")
        assert terminal.process.wait(SECONDS) == 0
    assert sent_by(tmp_path) == ["hello", "other words", "hello!"]
    history = tmp_path / "XDG_STATE_HOME" / "weft" / "chat-history"
    assert history.stat().st_mode & 0o777 == 0o600
    assert history.read_text().splitlines()[-3:] == ["hello", "other words", "hello!"]
    with offline_chat(tmp_path) as terminal:
        terminal.type("\x12other\r")  # Ctrl-R, and Enter: a line feed only ends the search
        place = terminal.wait_for(" out · ")
        terminal.wait_for("> ", place)
        terminal.type("/quit\n")
        assert terminal.process.wait(SECONDS) == 0
    assert sent_by(tmp_path)[-1] == "other words"


def test_ctrl_c_at_the_prompt_clears_the_line_and_a_second_one_leaves(tmp_path):
    with offline_chat(tmp_path) as terminal:
        terminal.type("never sent")
        place = terminal.wait_for("never sent")
        terminal.process.send_signal(signal.SIGINT)  # Ctrl-C
        place = terminal.wait_for("Ctrl-C again", place)
        place = terminal.wait_for("> ", place)
        terminal.type("sent\n")  # a line between the two: the next one is a first one again
        place = terminal.wait_for(" out · ", place)
        place = terminal.wait_for("> ", place)
        terminal.process.send_signal(signal.SIGINT)  # Ctrl-C
        place = terminal.wait_for("Ctrl-C again", place)
        terminal.wait_for("> ", place)
        terminal.process.send_signal(signal.SIGINT)  # Ctrl-C
        assert terminal.process.wait(SECONDS) == 0
    assert sent_by(tmp_path) == ["sent"]


def test_a_history_that_cannot_be_written_does_not_end_the_chat(tmp_path):
    (tmp_path / "XDG_STATE_HOME").write_text("a file, not a folder")
    with offline_chat(tmp_path) as terminal:
        terminal.type("hello\n")
        place = terminal.wait_for(" out · ")
        terminal.wait_for("> ", place)
        terminal.type("/quit\n")
        assert terminal.process.wait(SECONDS) == 0


def test_a_terminal_shows_thinking_tokens_and_time_and_a_pipe_only_the_answer(tmp_path):
    answer = Scripted()
    answer.pieces = anthropic_answer("Let me think.", "It is done.")
    with scripted_upstream() as upstream:
        upstream.then(answer)
        command = [
            sys.executable, "-c", LAUNCH, "chat", "--store", str(tmp_path / "a.db"),
            "--upstream", f"u=anthropic:{upstream.url}", "--model", "u/claude-opus-4-6",
        ]  # fmt: skip
        terminal = Terminal(command, {**os.environ, "XDG_STATE_HOME": str(tmp_path)})
        try:
            terminal.wait_for("> ")
            terminal.type("do it\n")
            place = terminal.wait_for("Let me think.")
            place = terminal.wait_for("It is done.", place)
            place = terminal.wait_for("1,200 in, 35 out · $", place)
            terminal.wait_for(" s", place)
            terminal.type("/thinking\n")
            terminal.wait_for("thinking is hidden", place)
            terminal.type("/quit\n")
            assert terminal.process.wait(SECONDS) == 0
        finally:
            terminal.close()
    output = chat(tmp_path / "b.db", "what is 6 * 7? use a tool\n")
    assert "42" in output
    assert " out · " not in output


def anthropic_answer(thinking: str, text: str) -> list[bytes]:
    """The events of an answer that thinks first."""

    def start(index: int, **block: str) -> dict[str, object]:
        return {"type": "content_block_start", "index": index, "content_block": block}

    def delta(index: int, **piece: str) -> dict[str, object]:
        return {"type": "content_block_delta", "index": index, "delta": piece}

    usage, end = {"input_tokens": 1200, "output_tokens": 1}, {"output_tokens": 35}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "claude-opus-4-6"}
    events: list[dict[str, object]] = [
        {"type": "message_start", "message": {**message, "content": [], "usage": usage}},
        start(0, type="thinking", thinking=""),
        delta(0, type="thinking_delta", thinking=thinking),
        delta(0, type="signature_delta", signature="c2ln"),
        {"type": "content_block_stop", "index": 0},
        start(1, type="text", text=""),
        delta(1, type="text_delta", text=text),
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": end},
        {"type": "message_stop"},
    ]
    return [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events]


@pytest.mark.skipif(find_spec("claude_agent_sdk") is not None, reason="the SDK is installed")
def test_claude_needs_its_extra(tmp_path):
    done = subprocess.run(
        [
            sys.executable, "-c", LAUNCH, "chat", "--store", str(tmp_path / "a.db"),
            "--agent", "claude", "hello",
        ],
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "pip install '.[claude]'" in done.stderr
