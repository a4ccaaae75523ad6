"""`weft run` with a program, and every process that it started, for tests of how it ends.

A process is found by a mark in its environment, so one that detached itself is found too.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from servers import LAUNCH, SECRETS

SECONDS = 60.0
MARK = "WEFT_TEST_MARK"

PROGRAMS = {
    "plain": "import time; time.sleep(600)",
    "with a child": "import subprocess; subprocess.run(['sleep', '600'])",
    "with a background child": "import subprocess, time; subprocess.Popen(['sleep', '600']); "
    "time.sleep(600)",
    "with a child in its own group": "import subprocess, time; "
    "subprocess.Popen(['sleep', '600'], process_group=0); time.sleep(600)",
    "with a child in its own session": "import subprocess, time; "
    "subprocess.Popen(['sleep', '600'], start_new_session=True); time.sleep(600)",
    "with a child that ignores everything": "import subprocess, time; "
    "subprocess.Popen(['sh', '-c', 'trap \"\" TERM HUP INT QUIT; sleep 600; sleep 600']); "
    "time.sleep(600)",
    "that ignores SIGTERM and SIGHUP": "import signal, time; "
    "[signal.signal(s, signal.SIG_IGN) for s in (signal.SIGTERM, signal.SIGHUP)]; "
    "print('ignoring', flush=True); time.sleep(600)",
    "that is stopped": "import os, signal, time; os.kill(os.getpid(), signal.SIGSTOP); "
    "time.sleep(600)",
}
"""Programs, as Python code, that run until they are ended. `ready` waits until they are there."""


class Run:
    """A running `weft run`, and all processes that have its mark."""

    def __init__(
        self,
        folder: Path,
        code: str,
        *options: str,
        command: tuple[str, ...] = (),
        environ: Mapping[str, str] | None = None,
        **popen: object,
    ) -> None:
        self.mark = uuid4().hex
        self.ready = folder / f"{self.mark}.ready"
        clean = {name: value for name, value in os.environ.items() if name not in SECRETS}
        first = f"open({str(self.ready)!r}, 'w').close(); "
        words = command or (sys.executable, "-c", first + code)
        self.words = [sys.executable, "-c", LAUNCH, "run", *options]
        self.words += [*([] if "--url" in options else ["--store", str(folder / "s.db")])]
        self.words += ["--", *words]
        self.environ = {**clean, "HOME": str(folder), MARK: self.mark, **(environ or {})}
        self.process = subprocess.Popen(
            self.words, env=self.environ, cwd=folder, **{"start_new_session": True, **popen}
        )  # pyright: ignore[reportCallIssue]

    def others(self) -> dict[int, str]:
        """The marked processes but `weft run` itself, with their command lines."""
        return {pid: words for pid, words in marked(self.mark).items() if pid != self.process.pid}

    def await_program(self, processes: int = 0) -> None:
        """Wait until the program runs, and so many processes with it."""
        await_true(self.ready.exists, lambda: f"not started: {self.others()}")
        await_true(lambda: len(self.others()) >= processes, lambda: str(self.others()))

    def await_all_gone(self) -> None:
        await_true(lambda: not self.others(), lambda: f"left behind: {self.others()}")

    def kill_all(self) -> None:
        """Clean up after a failed test."""
        for pid in marked(self.mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.process.returncode is None:
            self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def marked(mark: str) -> dict[int, str]:
    """All processes of this mark, by their id; zombies have no environment."""
    found: dict[int, str] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            environ = Path(f"/proc/{name}/environ").read_bytes()
            if f"{MARK}={mark}".encode() in environ.split(b"\0"):
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
                found[int(name)] = b" ".join(words).decode(errors="replace")[-150:]
        except (OSError, ValueError):
            continue
    return found


def await_true(check: Callable[[], object], describe: Callable[[], str]) -> None:
    deadline = time.monotonic() + SECONDS
    while not check():
        assert time.monotonic() < deadline, describe()
        time.sleep(0.02)
