"""Runs the program of `weft run`, and ends it when `weft run` ends, however that happens.

Between `weft run` and the program is a process of its own, the *supervisor*: a fork of `weft run`
and the parent of the program. All three are in the process group of `weft run`, so the terminal
sends Ctrl-C, Ctrl-Z and changes of its size to the program directly.

- `weft run` takes signals and passes them on. It stops when the program is stopped, so that the
  shell can continue both.
- The supervisor holds one end of a socket pair, which exists before the program does. If `weft run`
  is killed, even with SIGKILL, the supervisor reads the end of the file and ends the program.
- If the supervisor is killed, the program gets SIGTERM from the kernel, and `weft run` ends the
  program's children.

On Linux the supervisor adopts processes whose parent has ended (`PR_SET_CHILD_SUBREAPER`), so it
finds all children of the program. Elsewhere only the program itself is ended.
"""

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

PASSED_ON = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)
"""The signals that `weft run` passes on to the program."""
ENDING = frozenset({signal.SIGHUP, signal.SIGTERM})
"""The signals after which the program must end. It may survive Ctrl-C (SIGINT) and SIGQUIT."""
FROM_KEYBOARD = frozenset({signal.SIGINT, signal.SIGQUIT})
"""The signals that a terminal sends to all its foreground processes, so also to the program."""

END_SECONDS = 5.0
"""How long the program may take to end after one of the `ENDING` signals; then it is killed."""
CHILD_SECONDS = 1.0
"""How long children that the program left behind may take to end after SIGTERM."""
STOP_DELAY = 0.1
"""How long the program must be stopped until `weft run` stops too: it may be continued at once."""
POLL_SECONDS = 0.02

SI_USER = 0
"""Values of `si_code` above this one mean that the kernel sent the signal, not a process."""
CRASHES = frozenset(
    {signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
)
"""If one of these ends the program, it had no time to end its children. Which of the orphans are
daemons is not known then, so all of them are ended."""
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


class Ended(Exception):
    """`weft run` got a signal while no program was running."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = 128 + number


class TakenSignals:
    """The signals of `weft run`: blocked, and taken one by one, so that none comes at a bad time.

    A signal that is ignored stays ignored, for this process and for the program: `nohup weft run`.
    """

    def __enter__(self) -> "TakenSignals":
        passed_on = [s for s in PASSED_ON if signal.getsignal(s) != signal.SIG_IGN]
        self._taken = {*passed_on, signal.SIGCHLD}
        self._child_handler = signal.signal(signal.SIGCHLD, _ignore)
        self.original_mask = set(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, self._taken)))
        return self

    def __exit__(self, *_: object) -> None:
        while self.take(0.0) is not None:  # they were for the program, which has ended
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self.original_mask)
        signal.signal(signal.SIGCHLD, self._child_handler or signal.SIG_DFL)

    def take_stop(self) -> None:
        """From now on, Ctrl-Z stops only the program; `weft run` follows it."""
        stop = {signal.SIGTSTP, signal.SIGCONT}
        self._taken |= stop
        signal.pthread_sigmask(signal.SIG_BLOCK, stop)

    def take(self, seconds: float | None = None) -> tuple[int, bool] | None:
        """The next signal, and whether the program got it from the terminal; `None` if none comes
        in time.
        """
        if sys.platform == "linux":
            if seconds is None:
                info = signal.sigwaitinfo(self._taken)
            else:
                info = signal.sigtimedwait(self._taken, seconds)
            if info is None:
                return None
            number, from_kernel = info.si_signo, info.si_code > SI_USER
        else:  # without sigtimedwait: a timer ends the wait, and the sender is not known
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
            if seconds is not None:
                signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
            number = signal.sigwait({*self._taken, signal.SIGALRM})
            signal.setitimer(signal.ITIMER_REAL, 0)
            if number == signal.SIGALRM:
                return None
            from_kernel = _is_in_foreground()
        return number, from_kernel and number in FROM_KEYBOARD

    def pause(self, seconds: float) -> None:
        """Sleep; raises `Ended` at once if a signal asks `weft run` to end."""
        deadline = time.monotonic() + seconds
        while (rest := deadline - time.monotonic()) > 0:
            taken = self.take(rest)
            if taken is not None and taken[0] in PASSED_ON:
                raise Ended(taken[0])

    def stop(self) -> None:
        """Stop this process, as Ctrl-Z does, until somebody continues it."""
        signal.raise_signal(signal.SIGTSTP)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})


def _ignore(*_: object) -> None:
    """A handler for SIGCHLD: some systems discard a signal that has none, even if it is blocked."""


def _is_in_foreground() -> bool:
    """Whether this process group has the terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


class Program(NamedTuple):
    """A program to run: its words, its environment, its working directory, and a folder of files
    that it needs, which is deleted afterwards."""

    words: Sequence[str]
    environment: Mapping[str, str]
    folder: str | None
    files: Path


def run_supervised(program: Program, signals: TakenSignals, spared: int | None = None) -> int:
    """Run the program and return its exit code; 128 + N if signal N ended it.

    `spared` is a child of this process that does not belong to the program. Raises `OSError` if the
    program does not start.
    """
    _adopt_orphans()
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    signals.take_stop()
    own = os.getpid()
    supervisor = os.fork()
    if supervisor == 0:
        ours.close()
        _supervise(program, theirs, own, signals.original_mask)
    theirs.close()
    with ours:
        lines, status = _pass_signals_on(supervisor, ours, signals)
    for line in lines:
        if line.startswith("error "):
            number, _, name = line.removeprefix("error ").partition(" ")
            raise OSError(int(number), os.strerror(int(number)), name)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:  # the supervisor itself was killed
        own_gateway = [each for each in _find_tree(()) if each.pid == spared]
        _end_tree(own_gateway, waits=False)
        return 128 - code
    return code


def _pass_signals_on(
    supervisor: int, channel: socket.socket, signals: TakenSignals
) -> tuple[list[str], int]:
    """Pass signals on until the supervisor ends; returns what it reported and its wait status."""
    channel.setblocking(False)
    buffer = b""
    is_stopped = False
    while True:
        taken = signals.take(STOP_DELAY if is_stopped else None)
        pid, status = os.waitpid(supervisor, os.WNOHANG)
        buffer += _receive(channel)
        lines = buffer.decode(errors="surrogateescape").splitlines()
        if pid != 0:
            return lines, status
        was_stopped, is_stopped = is_stopped, lines[-1:] == ["stopped"]
        if taken is None and was_stopped and is_stopped:
            signals.stop()
            is_stopped, buffer = False, b""
        elif taken is not None:
            number, from_terminal = taken
            if number in (*PASSED_ON, signal.SIGCONT) and not from_terminal:
                _send(channel, number)


def _send(channel: socket.socket, number: int) -> None:
    with suppress(OSError):  # the supervisor has ended, which SIGCHLD reports
        channel.send(bytes((number,)))


def _receive(channel: socket.socket) -> bytes:
    try:
        return channel.recv(65536)
    except OSError:  # nothing yet, or the supervisor was killed
        return b""


def _supervise(program: Program, channel: socket.socket, starter: int, mask: set[int]) -> NoReturn:
    """The supervisor: start the program, wait for its end, and exit with its code."""
    code = 1
    try:
        code = Supervisor(program, channel, starter, mask).run()
    except BaseException as error:  # this process must never return to the caller's code
        os.write(2, f"weft: the supervisor failed: {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


class Supervisor:
    """The parent of the program. It ends the program when it is told to, and when `weft run` is
    gone."""

    def __init__(
        self, program: Program, channel: socket.socket, starter: int, mask: set[int]
    ) -> None:
        self._program = program
        self._channel = channel
        self._starter = starter
        self._mask = mask
        self._pid = 0
        self._status: int | None = None
        self._end_signal: int | None = None
        """The signal after which the program must end."""
        self._deadline: float | None = None
        self._daemons: set[Process] = set()
        """The daemons that the program had started when a signal was passed on to it."""
        self._daemons_until = 0.0
        """Until when those are all of its daemons: it may start others later."""

    def run(self) -> int:
        """Run the program; returns its exit code."""
        _adopt_orphans()
        keyboard = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
        signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, *keyboard})
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _ignore)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        try:
            self._pid = self._start()
        except OSError as error:
            name = os.fsencode(str(error.filename or self._program.words[0]))
            self._report(b"error %d %b\n" % (error.errno or 0, name))
            return 1
        is_open = True
        while self._status is None and not self._is_late():
            sources: list[Any] = [wake_read, self._channel] if is_open else [wake_read]
            rest = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
            ready, _, _ = select.select(sources, (), (), rest)
            if wake_read in ready:
                os.read(wake_read, 4096)
                self._reap()
            if self._channel in ready:
                is_open = self._read_orders()
        if self._status is None:
            _send_signal(self._pid, signal.SIGKILL)
        if self._end_signal is not None:
            _end_tree(self._daemons)
        elif self._status is not None and os.WIFSIGNALED(self._status):
            if time.monotonic() >= self._daemons_until:
                crashed = os.WTERMSIG(self._status) in CRASHES
                self._daemons = set() if crashed else _find_daemons(self._pid)
            _end_tree(self._daemons)
        if os.getppid() != self._starter:
            shutil.rmtree(self._program.files, ignore_errors=True)
        if self._status is None:
            return 128 + (self._end_signal or signal.SIGKILL)
        code = os.waitstatus_to_exitcode(self._status)
        return code if code >= 0 else 128 - code

    def _start(self) -> int:
        """Start the program. It gets the signals that `weft run` itself would get."""
        own, set_option = os.getpid(), _load_prctl()

        def prepare() -> None:
            if set_option is not None:
                set_option(PR_SET_PDEATHSIG, int(signal.SIGTERM))
                if os.getppid() != own:  # the supervisor was killed before that
                    os._exit(128 + signal.SIGTERM)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

        started = subprocess.Popen(
            self._program.words,
            env=self._program.environment,
            cwd=self._program.folder,
            preexec_fn=prepare,
        )
        started.returncode = 0  # it is waited for in `_reap`
        return started.pid

    def _is_late(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _reap(self) -> None:
        """Read the state of the program, and of its orphans that ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid != self._pid:
                continue
            if os.WIFSTOPPED(status):
                self._report(b"stopped\n")
            elif os.WIFCONTINUED(status):
                self._report(b"running\n")
            else:
                self._status = status

    def _report(self, line: bytes) -> None:
        """Tell `weft run`, and wake it."""
        try:
            self._channel.sendall(line)
        except OSError:
            return  # it is gone, which the next read from the socket shows
        if os.getppid() == self._starter:
            os.kill(self._starter, signal.SIGCHLD)

    def _read_orders(self) -> bool:
        """Pass the signals on that `weft run` sent; false if `weft run` is gone."""
        try:
            numbers = self._channel.recv(4096)
        except OSError:
            numbers = b""
        for number in numbers or (signal.SIGTERM,):
            if number in PASSED_ON and self._deadline is None:
                self._daemons = _find_daemons(self._pid)
                self._daemons_until = time.monotonic() + END_SECONDS
            if number in ENDING and self._deadline is None:
                self._end_signal = number
                self._deadline = time.monotonic() + END_SECONDS
            _send_signal(self._pid, number)
            if number in ENDING:
                _send_signal(self._pid, signal.SIGCONT)  # a stopped program takes no signal
        return bool(numbers)


class Process(NamedTuple):
    """A process; `start` tells it from a later process with the same id."""

    pid: int
    parent: int
    session: int
    start: str


def read_processes() -> dict[int, Process]:
    """All processes that have not ended, by their id; none if this system has no `/proc`.

    https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
    """
    processes: dict[int, Process] = {}
    for name in os.listdir("/proc") if sys.platform == "linux" else ():
        if not name.isdigit():
            continue
        try:
            facts = Path(f"/proc/{name}/stat").read_text(errors="replace")
        except OSError:
            continue
        fields = facts.rpartition(")")[2].split()  # the name before it may contain anything
        if fields[0] not in ("Z", "X"):
            pid = int(name)
            processes[pid] = Process(pid, int(fields[1]), int(fields[3]), fields[19])
    return processes


def _find_children() -> dict[int, list[Process]]:
    children: dict[int, list[Process]] = {}
    for process in read_processes().values():
        children.setdefault(process.parent, []).append(process)
    return children


def _find_daemons(program: int) -> set[Process]:
    """The orphans in a session of their own: they detached themselves from the program on purpose.

    Orphans are children of this process now.
    """
    session = os.getsid(0)
    children = _find_children().get(os.getpid(), ())
    return {each for each in children if each.pid != program and each.session != session}


def _find_tree(spared: Collection[Process]) -> set[Process]:
    """All processes below this one, without the spared ones and what is below those."""
    children = _find_children()
    waiting = list(children.get(os.getpid(), ()))
    tree: set[Process] = set()
    while waiting:
        process = waiting.pop()
        if process not in spared:
            tree.add(process)
            waiting += children.get(process.pid, ())
    return tree


def _end_tree(spared: Collection[Process], waits: bool = True) -> None:
    """End all processes below this one, first with SIGTERM, then with SIGKILL.

    `waits` says that nobody else waits for children of this process.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + CHILD_SECONDS
        told: set[Process] = set()
        # A process that was started during the first look may be missing in it.
        while tree := _find_tree(spared) or _find_tree(spared):
            for process in tree - told:
                _send_signal(process.pid, number)
                _send_signal(process.pid, signal.SIGCONT)
            told |= tree
            if time.monotonic() >= deadline:
                break
            time.sleep(POLL_SECONDS)
            while waits and _has_reaped():
                pass


def _has_reaped() -> bool:
    """Collect one child that has ended, if there is one."""
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def _send_signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # it has ended, or is another user's now
        os.kill(pid, number)


def _adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends. Linux only."""
    set_option = _load_prctl()
    if set_option is not None:
        set_option(PR_SET_CHILD_SUBREAPER, 1)


def _load_prctl() -> Any:
    """The function `prctl` of the C library; `None` if this system has none.

    https://man7.org/linux/man-pages/man2/prctl.2.html
    """
    if sys.platform != "linux":
        return None
    import ctypes

    return ctypes.CDLL(None).prctl
