"""Compares the cost of a versioned conversation with that of a plain table of the same durability.

Run it with `make bench` or `python bench/history.py [MESSAGES] [--long] [--no-postgres]`. The
baseline (`floor`) is `sqlite3` with one table, the same durability (WAL, `synchronous=NORMAL`),
SQLite's own page size and checkpoints, and one transaction for each message, also for `batch()`. On
PostgreSQL it is one table and one `INSERT` with its own commit. Baseline and Weft alternate in one
run, and the best of all rounds counts, because a busy machine only adds time.

Two ratios are printed: by CPU time of this process, which a busy machine affects least and to which
the limits refer, and by wall time. On PostgreSQL most of the work happens in the server, so only
the wall time is meaningful. `--long` adds a thread of 100,000 messages, one of 200,000 with 500
compactions (its cold compile, also on PostgreSQL), and a store of 1,000,000 messages in 5,001
threads: how long the first search and `gc` take there, and how long the writes of another process
wait meanwhile.
"""

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import weft
from weft.thread.maintenance import gc

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from postgres import fresh_address, postgres_server

ROUNDS = 3
Cost = tuple[float, float]
"""Seconds of CPU and of the clock."""

READ_FLOOR = """
import sqlite3, sys
from time import perf_counter, process_time
cpu, wall = process_time(), perf_counter()
rows = sqlite3.connect(sys.argv[1]).execute("SELECT * FROM m ORDER BY id").fetchall()
print([process_time() - cpu, perf_counter() - wall, len(rows)])
"""
WRITER = """
import sys, time, weft
with weft.open(sys.argv[1], "writer") as thread:
    print("ready", flush=True)
    waits = []
    for line in sys.stdin:
        break
    end = time.time() + 600
    import select
    while time.time() < end and not select.select([sys.stdin], [], [], 0.01)[0]:
        start = time.perf_counter()
        thread.user("one more")
        waits.append(time.perf_counter() - start)
    print([max(waits, default=0.0), len(waits)])
"""
READ_WEFT = """
import sys, weft
from time import perf_counter, process_time
weft.open()
cpu, wall = process_time(), perf_counter()
messages = weft.open(sys.argv[1]).compile().messages
print([process_time() - cpu, perf_counter() - wall, len(messages)])
"""


def texts(count: int, salt: str = "") -> Iterator[str]:
    """Messages of 200 characters, all different."""
    words = "the build failed because a test of the parser waits for a lock that nobody holds now "
    for number in range(count):
        yield f"{salt}{number:06d} {words * 3}"[:200]


def cost(work: Callable[[], object]) -> Cost:
    cpu, wall = process_time(), perf_counter()
    work()
    return process_time() - cpu, perf_counter() - wall


def best(costs: list[Cost]) -> Cost:
    return min(cpu for cpu, _ in costs), min(wall for _, wall in costs)


def floor_table(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("CREATE TABLE IF NOT EXISTS m (id INTEGER PRIMARY KEY, role TEXT, text TEXT)")
    return db


def write_floor(db: sqlite3.Connection, lines: list[str]) -> None:
    for line in lines:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO m (role, text) VALUES (?, ?)", ("user", line))
        db.execute("COMMIT")


def write_rows(db: Any, lines: list[str]) -> None:
    for line in lines:
        db.execute("INSERT INTO m (role, text) VALUES (%s, %s)", ("user", line))


def write_single(thread: weft.Thread, lines: list[str]) -> None:
    for line in lines:
        thread.user(line)


def write_batch(thread: weft.Thread, lines: list[str]) -> None:
    with thread.batch():
        for line in lines:
            thread.user(line)


def print_row(name: str, value: str, bar: str = "", holds: bool | None = None) -> None:
    mark = "" if holds is None else "holds" if holds else "MISSED"
    print(f"  {name:<46} {value:<34} {bar:<18} {mark}".rstrip(), flush=True)


def per_message(cost: Cost, count: int) -> str:
    return f"{cost[0] / count * 1e6:.0f} us cpu, {cost[1] / count * 1e6:.0f} us wall"


def ratio(name: str, ours: Cost, floor: Cost, most: float, *, cpu: bool = True) -> None:
    """A line with the ratio of Weft's cost to the baseline, and whether it is within the limit."""
    by_cpu, by_wall = ours[0] / floor[0], ours[1] / floor[1]
    judged = by_cpu if cpu else by_wall
    value = f"{by_cpu:.1f}x cpu, {by_wall:.1f}x wall" if cpu else f"{by_wall:.1f}x wall"
    print_row(name, value, f"at most {most:g}x", judged <= most)


def bench_sqlite(folder: Path, count: int) -> Cost:
    """Write and read one file; returns the cost of one commit."""
    print(f"sqlite, {count:,} messages of 200 characters")
    floors: list[Cost] = []
    singles: list[Cost] = []
    batches: list[Cost] = []
    lines, others = list(texts(count)), list(texts(count, "b"))
    for number in range(ROUNDS):
        db = floor_table(folder / f"floor{number}.db")
        floors.append(cost(lambda db=db: write_floor(db, lines)))
        db.close()
        with weft.open(folder / f"single{number}.db") as thread:
            singles.append(cost(lambda thread=thread: write_single(thread, lines)))
        with weft.open(folder / f"batch{number}.db") as thread:
            batches.append(cost(lambda thread=thread: write_batch(thread, others)))
    floor, single, batch = best(floors), best(singles), best(batches)
    print_row("floor: one transaction a message", per_message(floor, count))
    print_row("single durable commits", per_message(single, count))
    ratio("single durable commits / floor (goal 6x)", single, floor, 10)
    print_row("commits in batch()", per_message(batch, count))
    ratio("commits in batch() / floor", batch, floor, 3)
    ratio("cold compile / plain read, fresh processes", *cold(folder), 8)
    size = (folder / "single0.db").stat().st_size / count
    plain = (folder / "floor0.db").stat().st_size / count
    print_row(
        "bytes on disk a message", f"{size:.0f} (floor {plain:.0f})", "at most 600", size <= 600
    )
    return single[0] / count, single[1] / count


def cold(folder: Path) -> tuple[Cost, Cost]:
    """Compile and plain read, each in a new process, alternating."""
    ours: list[Cost] = []
    floor: list[Cost] = []
    for _ in range(ROUNDS + 2):
        for script, file, costs in (
            (READ_FLOOR, "floor0.db", floor),
            (READ_WEFT, "single0.db", ours),
        ):
            done = subprocess.run(
                [sys.executable, "-c", script, str(folder / file)],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            cpu, wall, _ = json.loads(done.stdout)
            costs.append((cpu, wall))
    return best(ours), best(floor)


def bench_growth(folder: Path, small: int, large: int) -> None:
    """Commit-then-compile on a short and on a long thread."""
    short, long = weft.open(folder / "short.db"), weft.open(folder / "long.db")
    write_batch(short, list(texts(small)))
    write_batch(long, list(texts(large)))
    costs: dict[str, list[Cost]] = {"short": [], "long": []}

    def turn(thread: weft.Thread, line: str) -> None:
        thread.user(line)
        assert thread.compile().tokens

    for thread in (short, long):
        turn(thread, "the first compile is the cold one")
    for number in range(10):
        for name, thread in (("short", short), ("long", long)):
            lines = list(texts(30, f"{name}{number}"))
            costs[name].append(cost(lambda t=thread, ls=lines: [turn(t, line) for line in ls]))
    print_row(f"commit, then compile, at {small:,}", per_message(best(costs["short"]), 30))
    print_row(f"commit, then compile, at {large:,}", per_message(best(costs["long"]), 30))
    ratio(f"at {large:,} / at {small:,}", best(costs["long"]), best(costs["short"]), 1.2)
    short.close()
    long.close()


def bench_verbs(address: str, count: int, single: Cost, *, cpu: bool = True) -> None:
    """Branch, switch, merge and undo on a long thread, in single commits."""
    thread = weft.open(address, "verbs")
    write_batch(thread, list(texts(count)))
    thread.compile()
    costs: dict[str, list[Cost]] = {"branch": [], "switch": [], "merge of 10+10": [], "undo": []}
    for number in range(ROUNDS + 2):
        name = f"side{number}"
        costs["branch"].append(cost(lambda name=name: thread.branch(name)))
        write_single(thread, list(texts(10, f"o{number}")))
        costs["switch"].append(cost(lambda name=name: thread.switch(name)))
        write_single(thread, list(texts(10, f"t{number}")))
        thread.switch("main")
        costs["merge of 10+10"].append(cost(lambda name=name: thread.merge(name)))
        costs["undo"].append(cost(thread.undo))
        thread.redo()
    for name, verb_costs in costs.items():
        ratio(f"{name} at {count:,} / a single commit", best(verb_costs), single, 20, cpu=cpu)
    thread.close()


def bench_storage(folder: Path, turns: int) -> None:
    """The size of a chat on disk, which must be linear in its text."""
    sizes: list[int] = []
    for part in (turns // 2, turns):
        path = folder / f"chat{part}.db"
        with weft.open(path) as thread, thread.batch():
            for number, line in enumerate(texts(2 * part)):
                (thread.assistant if number % 2 else thread.user)(line)
        sizes.append(path.stat().st_size)
    growth = sizes[1] / sizes[0]
    print_row(f"bytes after {turns:,} turns / after {turns // 2:,}", f"{growth:.2f}x (linear is 2)",
        "at most 2.2x", growth <= 2.2)  # fmt: skip


def bench_postgres(url: str, count: int) -> None:
    """The same with a PostgreSQL server, by wall time, because most of the work is the server's."""
    import psycopg

    print(f"postgresql, {count:,} messages of 200 characters")
    lines, others = list(texts(count)), list(texts(count, "b"))
    floors: list[Cost] = []
    singles: list[Cost] = []
    batches: list[Cost] = []
    address = fresh_address(url)
    with psycopg.connect(address, autocommit=True) as db:
        db.execute("CREATE TABLE m (id BIGSERIAL PRIMARY KEY, role TEXT, text TEXT)")
        thread = weft.open(address, "bench")
        for start in range(0, count, max(1, count // ROUNDS)):
            part = slice(start, start + max(1, count // ROUNDS))
            size = len(lines[part])
            rounds = (
                (floors, partial(write_rows, db, lines[part])),
                (singles, partial(write_single, thread, lines[part])),
                (batches, partial(write_batch, thread, others[part])),
            )
            for costs, work in rounds:
                cpu, wall = cost(work)
                costs.append((cpu / size, wall / size))
        floor, single, batch = best(floors), best(singles), best(batches)
        print_row("floor: one transaction a message", per_message(floor, 1))
        print_row("single durable commits", per_message(single, 1))
        ratio("single durable commits / floor", single, floor, 10, cpu=False)
        print_row("commits in batch()", per_message(batch, 1))
        ratio("commits in batch() / floor", batch, floor, 3, cpu=False)
        reads = [cost(lambda: db.execute("SELECT * FROM m").fetchall()) for _ in range(ROUNDS)]
        compiles = [cost(lambda: len(weft.open(address, "bench").compile().messages) // 2)
                    for _ in range(ROUNDS)]  # fmt: skip
        print_row("plain read of one thread's rows", per_message(best(reads), 1))
        print_row("cold compile of twice as many messages", per_message(best(compiles), 1))
        size = thread.store.maintenance().size() / (2 * count)
        print_row("bytes on disk a message", f"{size:.0f}")
        thread.close()
        bench_verbs(address, count, single, cpu=False)


def bench_long(folder: Path, count: int, last: int) -> None:
    """Open, append, search and compile the end of a very long thread."""
    print(f"sqlite, one thread of {count:,} messages")
    path = folder / "huge.db"
    with weft.open(path) as thread:
        for start in range(0, count, 10_000):
            write_batch(thread, list(texts(10_000, f"{start}-")))
    holder: list[weft.Thread] = []
    print_row("open", per_message(cost(lambda: holder.append(weft.open(path))), 1))
    thread = holder[0]
    print_row("append", per_message(cost(lambda: thread.user("one more, with a needle in it")), 1))
    print_row(
        f"compile of the last {last:,}",
        per_message(cost(lambda: thread.compile(last=last).messages), 1),
    )
    tail = thread.compile(last=last).messages
    print_row("search", per_message(cost(lambda: thread.search("needle")), 1))
    print_row(
        "compile of everything", per_message(cost(lambda: weft.open(path).compile().messages), 1)
    )
    print_row("the tail is the tail", str(tail == weft.open(path).compile().messages[-last:]))
    thread.close()


COLD = """
import sys, weft
from time import perf_counter
weft.open().compile().messages
thread = weft.open(sys.argv[1], sys.argv[2])
thread.store.refs(sys.argv[2])
start = perf_counter()
messages = thread.compile().messages
print([perf_counter() - start, len(messages)])
"""


def bench_compacted(name: str, address: str, messages: int, compactions: int) -> None:
    """Cold compiles, in fresh processes, of a compacted thread and of one that never was longer."""
    print(f"{name}, {messages:,} messages and {compactions} compactions")
    with weft.open(address, "long") as thread:
        for number in range(compactions):
            write_batch(thread, list(texts(messages // compactions, f"{number}-")))
            thread.compact(keep=20, summary=f"what was said in part {number}")
        write_batch(thread, list(texts(22, "last-")))
        count = len(thread.compile().messages)
        write_batch(weft.open(thread.store, "short"), list(texts(count, "short-")))
    seconds: dict[str, float] = {}
    for _ in range(2 * ROUNDS):
        for which in ("short", "long"):
            command = [sys.executable, "-c", COLD, address, which]
            taken, length = json.loads(subprocess.check_output(command))
            assert length == count
            seconds[which] = min(taken, seconds.get(which, taken))
    more = 1000 * (seconds["long"] - seconds["short"])
    print_row(f"cold compile of {count} messages", f"{1000 * seconds['short']:.1f} ms")
    print_row("the same, compacted", f"{more:.1f} ms more", "at most 50 ms", more <= 50)


def beside_writer(path: Path, work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of a piece of work, and the longest write of another process meanwhile."""
    command = [sys.executable, "-c", WRITER, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdout.readline()
        writer.stdin.write("go\n")
        writer.stdin.flush()
        start = perf_counter()
        work()
        seconds = perf_counter() - start
        output = writer.communicate("stop\n")[0]
    longest, _ = json.loads(output)  # no write at all if the work took only a moment
    return seconds, longest


def bench_store(path: Path, threads: int, messages: int, long: int) -> None:
    """The first search and `gc` in a store with many threads, while another process writes."""
    print(f"sqlite, {threads * messages + long:,} messages in {threads + 1:,} threads")
    with weft.open(path, "long") as first:
        write_batch(first, list(texts(long, "long-")))
        for number in range(threads):
            thread = weft.open(first.store, f"thread-{number}")
            write_batch(thread, list(texts(messages, f"{number}-")))
            if number % 10 == 0:
                thread.delete()
    opened = weft.open(path, "thread-1")
    seconds, longest = beside_writer(path, lambda: opened.search("parser"))
    print_row("first search of one thread", f"{seconds:.2f} s")
    print_row("the longest write meanwhile", f"{longest:.2f} s", "at most 1 s", longest <= 1)
    seconds, longest = beside_writer(path, lambda: weft.search(opened.store, "parser"))
    print_row("first search of all threads", f"{seconds:.1f} s")
    print_row("the longest write meanwhile", f"{longest:.2f} s", "at most 1 s", longest <= 1)
    swept: list[Any] = []
    seconds, longest = beside_writer(path, lambda: swept.append(gc(opened.store, days=-1)))
    name = f"gc of {swept[0].commits:,} commits and {swept[0].threads} threads"
    print_row(name, f"{seconds:.1f} s", "at most 60 s", seconds <= 60)
    print_row("the longest write meanwhile", f"{longest:.2f} s", "at most 1 s", longest <= 1)
    opened.close()


@contextmanager
def server(folder: Path) -> Iterator[str | None]:
    try:
        with postgres_server(folder) as url:
            yield url
    except LookupError as reason:
        print(f"postgresql: {reason}")
        yield None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("messages", type=int, nargs="?", default=10_000)
    parser.add_argument("--long", action="store_true", help="long threads and large stores too")
    parser.add_argument("--no-postgres", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        single = bench_sqlite(folder, args.messages)
        bench_growth(folder, args.messages // 10, args.messages)
        bench_verbs(str(folder / "verbs.db"), args.messages, single)
        bench_storage(folder, args.messages // 5)
        if args.long:
            bench_long(folder, 100_000, 1_000)
            bench_compacted("sqlite", str(folder / "compacted.db"), 200_000, 500)
            bench_store(folder / "store.db", 5_000, 160, 200_000)
        if not args.no_postgres:
            with server(Path(f"{folder}-postgres")) as url:
                if url is not None:
                    bench_postgres(url, args.messages)
                    if args.long:
                        bench_compacted("postgresql", fresh_address(url), 200_000, 500)


if __name__ == "__main__":
    main()
