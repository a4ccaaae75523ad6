"""However `weft run` ends, its gateway, its program and the program's children end too."""

import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from run_endings import PROGRAMS, Run, await_true
from servers import LAUNCH, weft_serve

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
GATEWAY_AND_SUPERVISOR = 2


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    started: list[Run] = []
    yield started
    for run in started:
        run.kill_all()


def program_pid(run: Run) -> int:
    """The id of the program: the child of the supervisor."""
    rest = run.others()
    parents = {pid: int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
               for pid in rest}  # fmt: skip
    supervisor = supervisor_pid(run)
    return next(pid for pid, parent in parents.items() if parent == supervisor)


def supervisor_pid(run: Run) -> int:
    """The id of the supervisor: a copy of `weft run`."""
    own = Path(f"/proc/{run.process.pid}/cmdline").read_bytes()
    return next(pid for pid in run.others() if Path(f"/proc/{pid}/cmdline").read_bytes() == own)


def gateway_pid(run: Run) -> int:
    return next(pid for pid, words in run.others().items() if " serve " in words)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    "program",
    [
        "with a child",
        "with a child in its own session",
        "that is stopped",
    ],
)
def test_a_signal_ends_everything(
    tmp_path: Path, runs: list[Run], program: str, number: signal.Signals
) -> None:
    run = Run(tmp_path, PROGRAMS[program])
    runs.append(run)
    run.await_program(GATEWAY_AND_SUPERVISOR + 1)
    run.process.send_signal(number)
    assert run.process.wait(60) == 128 + number
    assert not run.others()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_an_interrupt_of_weft_run_alone_reaches_the_program(
    tmp_path: Path, runs: list[Run], number: signal.Signals
) -> None:
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); " + PROGRAMS["plain"]
    run = Run(tmp_path, code)
    runs.append(run)
    run.await_program(GATEWAY_AND_SUPERVISOR + 1)
    run.process.send_signal(number)
    assert run.process.wait(60) == 128 + number
    assert not run.others()


def test_a_program_that_ignores_signals_is_killed(tmp_path: Path, runs: list[Run]) -> None:
    run = Run(tmp_path, PROGRAMS["that ignores SIGTERM and SIGHUP"], stdout=subprocess.PIPE)
    runs.append(run)
    assert run.process.stdout is not None
    assert run.process.stdout.readline() == b"ignoring\n"
    run.process.terminate()
    assert run.process.wait(60) == 128 + signal.SIGTERM
    assert not run.others()


def test_a_program_that_handles_sigterm_decides_the_exit_code(
    tmp_path: Path, runs: list[Run]
) -> None:
    code = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); "
        "print('ready', flush=True); time.sleep(600)"
    )
    run = Run(tmp_path, code, stdout=subprocess.PIPE)
    runs.append(run)
    assert run.process.stdout is not None
    run.process.stdout.readline()
    run.process.terminate()
    assert run.process.wait(60) == 7


@pytest.mark.parametrize(
    "program",
    ["with a background child", "with a child in its own session", "that is stopped",
     "that ignores SIGTERM and SIGHUP"],
)  # fmt: skip
def test_nothing_is_left_when_weft_run_is_killed(
    tmp_path: Path, runs: list[Run], program: str
) -> None:
    run = Run(tmp_path, PROGRAMS[program])
    runs.append(run)
    run.await_program(GATEWAY_AND_SUPERVISOR + 1)
    run.process.kill()
    run.process.wait()
    run.await_all_gone()


def test_nothing_is_left_when_the_supervisor_is_killed(tmp_path: Path, runs: list[Run]) -> None:
    run = Run(tmp_path, PROGRAMS["with a child in its own session"])
    runs.append(run)
    run.await_program(GATEWAY_AND_SUPERVISOR + 2)
    os.kill(supervisor_pid(run), signal.SIGKILL)
    assert run.process.wait(60) == 128 + signal.SIGKILL
    assert not run.others()


def test_nothing_is_left_when_weft_run_and_the_supervisor_are_killed(
    tmp_path: Path, runs: list[Run]
) -> None:
    run = Run(tmp_path, PROGRAMS["plain"])
    runs.append(run)
    run.await_program(GATEWAY_AND_SUPERVISOR + 1)
    supervisor = supervisor_pid(run)
    run.process.kill()
    os.kill(supervisor, signal.SIGKILL)
    run.process.wait()
    run.await_all_gone()


def test_a_crash_of_the_program_ends_everything(tmp_path: Path, runs: list[Run]) -> None:
    code = "import os, subprocess; subprocess.Popen(['sleep', '600']); os.abort()"
    run = Run(tmp_path, code)
    runs.append(run)
    assert run.process.wait(60) == 128 + signal.SIGABRT
    assert not run.others()


def test_a_crash_of_the_gateway_is_reported(tmp_path: Path, runs: list[Run]) -> None:
    run = Run(tmp_path, "input()", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    runs.append(run)
    run.await_program(GATEWAY_AND_SUPERVISOR + 1)
    gateway = gateway_pid(run)
    os.kill(gateway, signal.SIGKILL)
    await_true(lambda: gateway not in run.others(), lambda: "it runs")
    assert run.process.stdin is not None
    run.process.stdin.write(b"\n")
    run.process.stdin.close()
    assert run.process.wait(60) == 0
    assert run.process.stderr is not None
    assert b"the gateway ended before the program: signal 9" in run.process.stderr.read()
    assert not run.others()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_during_the_start_ends_everything(
    tmp_path: Path, runs: list[Run], number: signal.Signals
) -> None:
    run = Run(tmp_path, PROGRAMS["plain"])
    runs.append(run)
    await_true(lambda: any(" serve " in each for each in run.others().values()), lambda: "none")
    run.process.send_signal(number)
    assert run.process.wait(60) == 128 + number
    run.await_all_gone()


def test_a_kill_during_the_start_leaves_nothing(tmp_path: Path, runs: list[Run]) -> None:
    run = Run(tmp_path, PROGRAMS["plain"])
    runs.append(run)
    await_true(lambda: any(" serve " in each for each in run.others().values()), lambda: "none")
    run.process.kill()
    run.process.wait()
    run.await_all_gone()


def test_ignored_signals_stay_ignored(tmp_path: Path, runs: list[Run]) -> None:
    """`nohup weft run` survives the end of its terminal, and so does its program."""
    code = "import signal; print(signal.getsignal(signal.SIGHUP).name, flush=True); input()"

    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    run = Run(tmp_path, code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=ignore)
    runs.append(run)
    assert run.process.stdout is not None
    assert run.process.stdin is not None
    assert run.process.stdout.readline() == b"SIG_IGN\n"
    run.process.send_signal(signal.SIGHUP)
    run.process.stdin.write(b"\n")
    run.process.stdin.close()
    assert run.process.wait(60) == 0


def test_a_daemon_survives_a_normal_end_and_a_signal(tmp_path: Path, runs: list[Run]) -> None:
    daemon = "subprocess.run(['sh', '-c', 'setsid sleep 600 >/dev/null 2>&1 & sleep 0.5'])"
    run = Run(tmp_path, f"import subprocess, time; {daemon}; time.sleep(600)")
    runs.append(run)
    run.await_program()
    await_true(lambda: len(run.others()) == 4, lambda: str(run.others()))

    def is_orphan() -> bool:
        return (
            any("sleep 600" in words for words in run.others().values())
            and len(run.others()) == GATEWAY_AND_SUPERVISOR + 2
        )

    await_true(is_orphan, lambda: str(run.others()))
    run.process.terminate()
    assert run.process.wait(60) == 128 + signal.SIGTERM
    assert [words for words in run.others().values()] == ["sleep 600 "]


def test_a_running_gateway_is_not_ended(tmp_path: Path, runs: list[Run]) -> None:
    with weft_serve(tmp_path) as gateway:
        run = Run(tmp_path, PROGRAMS["with a child"], "--url", gateway.url)
        runs.append(run)
        run.await_program(3)
        run.process.terminate()
        assert run.process.wait(60) == 128 + signal.SIGTERM
        assert not run.others()
        assert gateway.process.poll() is None


class Shell:
    """An interactive shell in a terminal of its own, with job control."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(
                "bash",
                ["bash", "--norc", "--noprofile", "-i"],
                {**environ, "PS1": "$ ", "TERM": "dumb"},
            )
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def wait_for(self, words: str) -> None:
        """Wait until these words are shown; forgets everything up to them."""
        while words not in self.shown:
            ready, _, _ = select.select([self.terminal], [], [], 60)
            assert ready, self.shown
            self.shown += os.read(self.terminal, 4096).decode(errors="replace")
        self.shown = self.shown.partition(words)[2]

    def close(self) -> None:
        os.close(self.terminal)
        os.waitpid(self.pid, 0)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[tuple[Shell, Run]]:
    """A shell that can start `weft run` with the words of `Run.words`."""
    run = Run(tmp_path, "pass", command=("true",))  # for its words, environment and mark
    run.process.wait()
    shell = Shell(tmp_path, run.environ)
    yield shell, run
    run.kill_all()


def weft_run(program: str) -> str:
    """The line that a person types."""
    return f"{sys.executable} -c '{LAUNCH}' run --store s.db -- {program}\r"


def test_a_closed_terminal_ends_everything(shell: tuple[Shell, Run]) -> None:
    terminal, run = shell
    terminal.wait_for("$ ")
    terminal.type(weft_run("sh -c 'echo u''p; sleep 600 & sleep 600'"))
    terminal.wait_for("up")
    terminal.close()
    run.await_all_gone()


def test_ctrl_c_ends_the_program_and_the_shell_continues(shell: tuple[Shell, Run]) -> None:
    terminal, run = shell
    terminal.wait_for("$ ")
    terminal.type(weft_run("sh -c 'echo u''p; sleep 600'"))
    terminal.wait_for("up")
    terminal.type("\x03")
    terminal.type("echo code $?\r")
    terminal.wait_for("\ncode 130")
    terminal.type("exit\r")
    run.await_all_gone()


def test_ctrl_c_reaches_the_program_once(shell: tuple[Shell, Run], tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text(
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, lambda *_: print('int', flush=True))\n"
        "print('u' + 'p', flush=True)\n"
        "while True:\n    line = input()\n    print('got', line, flush=True)\n"
    )
    terminal, run = shell
    terminal.wait_for("$ ")
    terminal.type(weft_run(f"{sys.executable} count.py"))
    terminal.wait_for("up")
    for word in ("one", "two"):
        terminal.type("\x03")
        terminal.wait_for("int")
        terminal.type(f"{word}\r")
        terminal.wait_for(f"got {word}")
        assert "int" not in terminal.shown
    terminal.type("\x04")
    terminal.wait_for("$ ")
    terminal.type("exit\r")
    run.await_all_gone()


@pytest.mark.parametrize("ends_by", ["fg", "kill", "close"])
def test_ctrl_z_stops_weft_run_and_the_program(shell: tuple[Shell, Run], ends_by: str) -> None:
    terminal, run = shell
    terminal.wait_for("$ ")
    terminal.type(weft_run("sh -c 'echo u''p; read line; echo got $line'"))
    terminal.wait_for("up")
    terminal.type("\x1a")
    terminal.wait_for("Stopped")
    terminal.type("echo shell''again\r")
    terminal.wait_for("\nshellagain")
    if ends_by == "fg":
        terminal.type("fg\r")
        terminal.wait_for("run --store")
        terminal.type("hello\r")
        terminal.wait_for("got hello")
        terminal.type("exit\r")
    elif ends_by == "kill":
        terminal.type("kill %1\r")
        terminal.type("wait; echo do''ne\r")
        terminal.wait_for("\ndone")
        terminal.type("exit\r")
    else:
        terminal.close()
    run.await_all_gone()


def test_a_program_that_stops_itself_gives_the_terminal_back(
    shell: tuple[Shell, Run], tmp_path: Path
) -> None:
    """Clients in raw mode get no SIGTSTP from Ctrl-Z: they stop themselves."""
    (tmp_path / "stop.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nprint('continu' + 'ed')\n"
    )
    terminal, run = shell
    terminal.wait_for("$ ")
    terminal.type(weft_run(f"{sys.executable} stop.py"))
    terminal.wait_for("Stopped")
    terminal.type("fg\r")
    terminal.wait_for("\ncontinued")
    terminal.type("exit\r")
    run.await_all_gone()


def test_output_in_a_pipeline_is_not_stopped(shell: tuple[Shell, Run]) -> None:
    terminal, run = shell
    terminal.wait_for("$ ")
    terminal.type(weft_run("sh -c 'echo a; echo b' | cat -n").replace("\r", "; echo co''de $?\r"))
    terminal.wait_for("2\tb")
    terminal.wait_for("\ncode 0")
    terminal.type("exit\r")
    run.await_all_gone()


def test_the_terminal_keeps_its_settings(shell: tuple[Shell, Run]) -> None:
    terminal, run = shell
    terminal.wait_for("$ ")
    before = termios.tcgetattr(terminal.terminal)
    terminal.type(weft_run("true"))
    terminal.wait_for("no request")
    terminal.wait_for("$ ")
    assert termios.tcgetattr(terminal.terminal)[:4] == before[:4]
    terminal.type("exit\r")
    run.await_all_gone()
