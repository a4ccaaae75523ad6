"""Runs commands in a terminal, as a person does, and in a pipe, as a program does."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_END = "=== the next command ==="
_RUN_ALL = f"""
import json, os, sys
from weft.cli import main

for words in json.loads(os.environ["WEFT_COMMANDS"]):
    try:
        main(words)
    except SystemExit:
        pass
    print({_END!r}, end="", flush=True)
"""
SHOWN_SECONDS = 120.0
"""How long a `Terminal` waits for words."""

WEFT = (sys.executable, "-c", "from weft.cli import entry; entry()")


def run_piped(store: Path, *words: str, errors: bool = False) -> bytes:
    """The output that a program reads; `errors` allows lines on standard error."""
    environment = {**os.environ, "WEFT_STORE": str(store), "PAGER": "false"}
    command = [*WEFT, *words]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert errors or not done.stderr, done.stderr
    return done.stdout


def run_all_on_terminal(
    store: Path, commands: Sequence[Sequence[str]], **environment: str
) -> list[bytes]:
    """The screen output of each command; one process in one terminal runs all of them."""
    arguments = {**environment, "WEFT_COMMANDS": json.dumps(commands)}
    screen = _run_on_terminal([sys.executable, "-c", _RUN_ALL], store, (0,), arguments)
    *outputs, rest = screen.split(_END.encode())
    assert (len(outputs), rest.strip()) == (len(commands), b""), screen
    return outputs


def run_on_terminal(
    store: Path, *words: str, codes: Sequence[int] = (0,), **environment: str
) -> bytes:
    """The screen output of a command in its own terminal, 60 columns wide."""
    return _run_on_terminal([*WEFT, *words], store, codes, environment)


def _run_on_terminal(
    command: Sequence[str], store: Path, codes: Sequence[int], environment: Mapping[str, str]
) -> bytes:
    leader, follower = pty.openpty()
    known = {**os.environ, "WEFT_STORE": str(store), "COLUMNS": "60", "TERM": "xterm"}
    known.pop("NO_COLOR", None)
    with subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env={**known, **environment}
    ) as process:
        os.close(follower)
        output = _read_all(leader, process)
    os.close(leader)
    assert process.returncode in codes, output
    return output.replace(b"\r\n", b"\n")


def _read_all(leader: int, process: Any) -> bytes:
    output = b""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        ready, _, _ = select.select([leader], [], [], 0.2)
        if ready:
            try:
                part = os.read(leader, 65536)
            except OSError:  # Linux says so when the last writer has left
                return output
            if not part:
                return output
            output += part
        elif process.poll() is not None:
            return output
    raise TimeoutError(output)


class Terminal:
    """A person at a terminal, who waits for words and types."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], cwd: Path | None = None
    ) -> None:
        leader, follower = pty.openpty()
        self.process = subprocess.Popen(
            command, stdin=follower, stdout=follower, stderr=follower,
            env=environment, start_new_session=True, cwd=cwd,
        )  # fmt: skip
        os.close(follower)
        self._leader = leader
        self.shown = ""

    def wait_for(self, words: str, start: int = 0) -> int:
        """Wait until these words are shown behind `start`; returns where they end."""
        deadline = time.monotonic() + SHOWN_SECONDS
        while (place := self.shown.find(words, start)) < 0:
            assert time.monotonic() < deadline, self.shown
            if select.select([self._leader], [], [], 1.0)[0]:
                try:
                    data = os.read(self._leader, 4096)
                except OSError:  # the program has ended
                    data = b""
                assert data, self.shown
                self.shown += data.decode(errors="replace")
        return place + len(words)

    def type(self, text: str) -> None:
        os.write(self._leader, text.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._leader)
