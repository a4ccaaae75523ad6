"""Every way to end `weft run`, with programs of every kind, at every moment, leaves no process.

`make torture` runs all of it. Without WEFT_TORTURE nothing runs: `tests/cli/test_run_endings.py`
has a row of each kind.
"""

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from run_endings import PROGRAMS, Run, await_true, marked
from servers import Scripted, scripted_upstream

LARGE = bool(os.environ.get("WEFT_TORTURE"))
pytestmark = pytest.mark.skipif(
    not LARGE or sys.platform != "linux", reason="hundreds of runs, and reads /proc"
)
MOMENTS = 150
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)
PROCESSES = {"plain": 3, "that is stopped": 3, "that ignores SIGTERM and SIGHUP": 3}
"""How many processes there are beside `weft run` when the program runs; the others have 4."""


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    started: list[Run] = []
    yield started
    for run in started:
        run.kill_all()


def end_by_signal(run: Run, number: int) -> None:
    run.process.send_signal(number)
    code = run.process.wait(60)
    assert code == -number if number == signal.SIGKILL else code == 128 + number


def end_supervisor(run: Run) -> None:
    """Kill the copy of `weft run` that is the parent of the program."""
    own = Path(f"/proc/{run.process.pid}/cmdline").read_bytes()
    for pid in run.others():
        if Path(f"/proc/{pid}/cmdline").read_bytes() == own:
            os.kill(pid, signal.SIGKILL)
    assert run.process.wait(60) == 128 + signal.SIGKILL


def end_gateway_and_run(run: Run) -> None:
    """The gateway crashes, and `weft run` is ended right after it."""
    for pid, words in run.others().items():
        if " serve " in words:
            os.kill(pid, signal.SIGKILL)
    end_by_signal(run, signal.SIGTERM)


def end_twice(run: Run) -> None:
    run.process.send_signal(signal.SIGHUP)
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(60) in (128 + signal.SIGHUP, 128 + signal.SIGTERM)


ENDINGS = {
    **{number.name: number for number in SIGNALS},
    "the supervisor is killed": end_supervisor,
    "the gateway crashes first": end_gateway_and_run,
    "two signals": end_twice,
}
UNENDED = {
    ("that is stopped", "SIGINT"),  # the signal waits until the program is continued
    ("that is stopped", "SIGQUIT"),
}
"""Programs that a signal from the keyboard does not end, with or without `weft run`."""


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_ending_leaves_a_process(
    tmp_path: Path, runs: list[Run], program: str, ending: str
) -> None:
    if (program, ending) in UNENDED:
        pytest.skip("this signal does not end this program")
    run = Run(tmp_path, PROGRAMS[program])
    runs.append(run)
    run.await_program(PROCESSES.get(program, 4))
    end = ENDINGS[ending]
    if callable(end) and not isinstance(end, signal.Signals):
        end(run)
    else:
        end_by_signal(run, int(end))
    run.await_all_gone()


@pytest.mark.parametrize("seed", range(MOMENTS))
def test_no_moment_leaves_a_process(tmp_path: Path, runs: list[Run], seed: int) -> None:
    """From before the first line of `weft run` until its program runs."""
    choice = random.Random(seed)
    program = PROGRAMS[choice.choice(list(PROGRAMS))]
    started = [Run(tmp_path, program) for _ in range(choice.choice((1, 1, 2)))]
    runs += started
    numbers = [choice.choice((signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)) for _ in started]
    time.sleep(choice.uniform(0.0, 2.0))
    for run, number in zip(started, numbers, strict=True):
        run.process.send_signal(number)
    for run in started:
        run.process.wait(60)
        run.await_all_gone()


SLOW_ANSWER = b'event: message_start\ndata: {"type":"message_start","message":{"id":"m"}}\n\n'


@pytest.mark.parametrize("number", SIGNALS)
def test_an_end_during_the_drain_leaves_nothing(
    tmp_path: Path, runs: list[Run], number: signal.Signals
) -> None:
    """The program has ended, and the gateway waits for another client's answer."""
    code = (
        "import os, time; url = os.environ['ANTHROPIC_BASE_URL']; "
        f"open({str(tmp_path / 'url.tmp')!r}, 'w').write(url); "
        f"os.rename({str(tmp_path / 'url.tmp')!r}, {str(tmp_path / 'url')!r}); "
        f"asked = lambda: os.path.exists({str(tmp_path / 'asked')!r}); "
        "[time.sleep(0.01) for _ in iter(asked, True)]"
    )
    with scripted_upstream() as upstream:
        upstream.then(Scripted(*[SLOW_ANSWER] * 20, pause=1.0))
        run = Run(tmp_path, code, "--upstream", f"a=anthropic:{upstream.url}")
        runs.append(run)
        await_true((tmp_path / "url").exists, lambda: "not started")
        url = (tmp_path / "url").read_text()

        def ask() -> None:
            body = b'{"model":"m","max_tokens":9,"stream":true,"messages":[' \
                b'{"role":"user","content":"hi"}]}'  # fmt: skip
            headers = {"content-type": "application/json", "x-api-key": "k"}
            try:
                with urlopen(Request(f"{url}/v1/messages", body, headers), timeout=60) as reply:
                    reply.read()
            except (OSError, ValueError, HTTPException):  # the gateway ends in the middle
                pass

        client = threading.Thread(target=ask)
        client.start()
        await_true(lambda: upstream.requests, lambda: "not asked")
        (tmp_path / "asked").touch()
        await_true(lambda: len(marked(run.mark)) == 2, lambda: str(run.others()))
        run.process.send_signal(number)
        run.process.wait(60)
        run.await_all_gone()
        client.join()
