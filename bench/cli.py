"""Measures commands on a store of 10,000 messages.

A command is a whole process: interpreter, imports, work. Modules are compiled before the first run,
as they are in an installed package. The best of several runs is printed, as wall time and as CPU
time (user and system), because the machine may be busy with other work.

    python bench/cli.py [--runs N] [--messages N]
"""

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import weft

WORDS = ["parser", "budget", "export", "branch", "token", "cache", "merge", "error", "model"]

COMMANDS = (  # the words of the command, and the wall time to stay below, in ms
    (("--version",), 150),
    (("log", "-n", "50"), 150),
    (("log",), 150),  # prints all commits
    (("show", "HEAD"), 150),
    (("threads",), 150),
    (("search", "parser budget"), 150),
    (("stats",), 300),
)
BATCH = 1000
STORE = "bench.db"
QUIET = subprocess.DEVNULL
LAUNCH = "from weft.cli import entry; entry()"


def fill_store(path: Path, messages: int) -> None:
    """A thread of questions and answers of ordinary length."""
    source = random.Random(1)
    with weft.open(str(path)) as thread:
        for _ in range(0, messages, BATCH):
            with thread.batch():
                for _ in range(BATCH // 2):
                    thread.user(" ".join(source.choices(WORDS, k=40)))
                    thread.assistant(" ".join(source.choices(WORDS, k=60)))


def measure(words: tuple[str, ...], folder: Path, runs: int) -> tuple[float, float]:
    """The best wall and CPU time of the command, in seconds."""
    command = [sys.executable, "-c", LAUNCH, *words]
    command += [] if words[0].startswith("--") else ["--store", str(folder / STORE)]
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"):  # nobody sets them to run commands
        environ.pop(name, None)
    results: list[tuple[float, float]] = []
    for _ in range(runs + 1):
        before, started = children_cpu(), time.perf_counter()
        subprocess.run(command, check=True, stdout=QUIET, stderr=QUIET, env=environ)
        results.append((time.perf_counter() - started, children_cpu() - before))
    del results[0]  # it compiled the modules
    return min(wall for wall, _ in results), min(cpu for _, cpu in results)


def children_cpu() -> float:
    """The CPU seconds of all child processes so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--messages", type=int, default=10_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill_store(folder / STORE, args.messages)
        print(f"{'command':<28}{'wall ms':>10}{'cpu ms':>10}{'goal ms':>10}")
        for words, goal in COMMANDS:
            wall, cpu = measure(words, folder, args.runs)
            command = "weft " + " ".join(words)
            print(f"{command:<28}{wall * 1000:>10.0f}{cpu * 1000:>10.0f}{goal or '':>10}")


if __name__ == "__main__":
    main()
