"""How long the commands take that a person types, on a store of 10,000 messages.

A command is a whole process: interpreter, imports, work. The best of several runs is shown, as wall
time and as CPU time (user and system), because the machine may be busy with other work.

    python bench/cli.py [--runs N] [--messages N]
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import weft

WORDS = ["parser", "budget", "export", "branch", "token", "cache", "merge", "error", "model"]

COMMANDS = (  # the words of the command, and the wall time to stay below, in ms
    (("--version",), 150),
    (("log",), 150),
    (("log", "--json"), 150),
    (("show", "HEAD"), 150),
    (("threads",), 150),
    (("search", "parser budget"), 150),
    (("stats",), 300),
)
BATCH = 1000
LAUNCH = "from weft.cli.main import entry; entry()"


def fill_store(path: Path, messages: int) -> None:
    """A thread of questions and answers of ordinary length."""
    source = random.Random(1)
    with weft.open(str(path)) as thread:
        for _ in range(0, messages, BATCH):
            with thread.batch():
                for _ in range(BATCH // 2):
                    thread.user(" ".join(source.choices(WORDS, k=40)))
                    thread.assistant(" ".join(source.choices(WORDS, k=60)))


def measure(words: tuple[str, ...], store: Path, runs: int) -> tuple[float, float]:
    """The best wall and CPU time of the command, in seconds."""
    command = [sys.executable, "-c", LAUNCH, *words]
    command += [] if words[0].startswith("--") else ["--store", str(store)]
    results: list[tuple[float, float]] = []
    for _ in range(runs):
        cpu, wall = os.times(), time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        wall, after = time.perf_counter() - wall, os.times()
        used = after.children_user + after.children_system
        results.append((wall, used - cpu.children_user - cpu.children_system))
    return min(wall for wall, _ in results), min(cpu for _, cpu in results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--messages", type=int, default=10_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder, "bench.db")
        fill_store(store, args.messages)
        print(f"{'command':<24}{'wall ms':>10}{'cpu ms':>10}{'goal ms':>10}")
        for words, goal in COMMANDS:
            wall, cpu = measure(words, store, args.runs)
            name = "weft " + " ".join(words)
            print(f"{name:<24}{wall * 1000:>10.0f}{cpu * 1000:>10.0f}{goal:>10}")


if __name__ == "__main__":
    main()
