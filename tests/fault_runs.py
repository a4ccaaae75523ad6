"""Combinations of faults, clients, upstreams and forms, checked with the official SDKs.

`product` is every combination. `pairwise` is a selection that has each pair of values of two
factors at least once. `run` sends all requests concurrently and counts the errors.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import orjson
from msgspec import Struct

from fault_upstream import ANSWER, FAULTS, PREFIX, PROTOCOLS, Fault, FaultUpstream, applies
from sdk_judges import Clients, Judged
from servers import UPSTREAM_NAMES, Gateway, weft_serve

AT_ONCE = 8
"""Questions under way at the same time."""

WATCHED = """
import asyncio, os, signal, sys, json

def report(*_):
    tasks = [str(task.get_coro()) for task in asyncio.all_tasks()]
    links = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    own = {link.rpartition("[")[2].rstrip("]") for link in links if "socket:" in link}
    rows = [line.split() for line in list(open("/proc/self/net/tcp"))[1:]]
    sockets = [f"{row[1]} {row[2]} {row[3]}" for row in rows if row[9] in own and row[3] != "0A"]
    with open(os.environ["REPORT"] + ".new", "w") as out:
        json.dump({"tasks": tasks, "sockets": sockets}, out)
    os.rename(os.environ["REPORT"] + ".new", os.environ["REPORT"])

signal.signal(signal.SIGUSR1, report)
from weft.cli import entry
entry()
"""
"""`weft serve`, which tells its tasks and connections when it is sent SIGUSR1."""


class Case(Struct, frozen=True):
    """One question to a gateway whose upstream will fail."""

    fault: Fault
    client: str
    upstream: str
    streams: bool

    @property
    def model(self) -> str:
        return f"{UPSTREAM_NAMES[self.upstream]}/{PREFIX}{self.fault.name}"

    def __str__(self) -> str:
        form = "stream" if self.streams else "body"
        return f"{self.fault.name}: {self.client} <- {self.upstream}, {form}"


def product(faults: Iterable[Fault]) -> list[Case]:
    """Every combination that can happen."""
    return [
        Case(fault, client, upstream, streams)
        for fault in faults
        for client in PROTOCOLS
        for upstream in PROTOCOLS
        for streams in (False, True)
        if applies(fault, upstream, streams)
    ]


def pairwise(cases: Sequence[Case]) -> list[Case]:
    """A selection in which every pair of values that occurs in the cases occurs as well."""
    missing = {pair for case in cases for pair in _pairs(case)}
    chosen: list[Case] = []
    by_fault: dict[str, list[Case]] = {}
    for case in cases:
        by_fault.setdefault(case.fault.name, []).append(case)
    for group in by_fault.values():
        while any(pair in missing for case in group for pair in _pairs(case) if _names(pair)):
            best = max(group, key=lambda case: len(missing & _pairs(case)))
            chosen.append(best)
            missing -= _pairs(best)
    return chosen


def _pairs(case: Case) -> set[tuple[Any, ...]]:
    same = "same" if case.client == case.upstream else "translated"
    values = (("fault", case.fault.name), ("client", case.client), ("upstream", case.upstream))
    return set(combinations((*values, ("form", case.streams), ("way", same)), 2))


def _names(pair: tuple[Any, ...]) -> bool:
    return pair[0][0] == "fault"


class Outcome(Struct, frozen=True):
    """What became of a case, and how long it took."""

    case: Case
    judged: Judged
    seconds: float

    @property
    def wrong(self) -> str | None:
        """What is wrong with it, if anything is."""
        judged = self.judged
        if self.case.fault.outcome == "fails":
            return None if judged.failed else f"a wrong success: {judged.text!r} ({judged.why})"
        if judged.failed:
            return f"a wrong failure: {judged.why}"
        return None if judged.text == ANSWER else f"another answer: {judged.text!r}"


def run(gateway: Gateway, cases: Sequence[Case], deadline: float) -> list[Outcome]:
    """Ask for all of them, a few at a time. What does not answer by the deadline is late."""
    clients = Clients(gateway.url, deadline)
    begun: dict[Case, float] = {}

    def ask(case: Case) -> Outcome:
        begun[case] = time.monotonic()
        judged = clients.ask(case.client, case.model, case.streams, question=str(case))
        return Outcome(case, judged, time.monotonic() - begun[case])

    pool = ThreadPoolExecutor(AT_ONCE)
    waiting = {pool.submit(ask, case): case for case in cases}
    outcomes: list[Outcome] = []
    while waiting:
        done, _ = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
        outcomes += [future.result() for future in done]
        for future in done:
            del waiting[future]
        now = time.monotonic()
        late = [f for f, case in waiting.items() if now - begun.get(case, now) > deadline + 5]
        for future in late:  # its thread is lost: a keep-alive may keep an SDK waiting for ever
            outcomes.append(Outcome(waiting.pop(future), Judged(None, "no end"), deadline + 5))
    pool.shutdown(wait=False)
    clients.close()
    return outcomes


def summarise(outcomes: Iterable[Outcome], deadline: float) -> dict[str, Counter[str]]:
    """By the group of the fault: how many were judged, wrong, or too late."""
    counts: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        count = counts.setdefault(outcome.case.fault.group, Counter())
        count["judged"] += 1
        count["wrong"] += outcome.wrong is not None
        count["wrong successes"] += (outcome.wrong or "").startswith(("a wrong s", "another"))
        count["late"] += outcome.seconds >= deadline
    return counts


SHORT_DEADLINES = """
ping_seconds = 0.2
[limits]
first_byte_seconds = 1.0
idle_seconds = 1.0
total_seconds = 3.0
"""
"""A gateway with short deadlines for its upstreams. It sends keep-alives more often than that."""


@contextmanager
def watched_gateway(folder: Path, upstream: FaultUpstream, config: str = "") -> Iterator[Gateway]:
    """`weft serve` in front of the upstream in each of its protocols."""
    file = folder / "weft.toml"
    file.write_text(config)
    names = [
        f"--upstream={name}={protocol}:{upstream.url}" for protocol, name in UPSTREAM_NAMES.items()
    ]
    report = str(folder / "report.json")
    flags = ["--config", str(file), *names]
    with weft_serve(folder, *flags, launch=WATCHED, REPORT=report) as gateway:
        yield gateway


def look_inside(gateway: Gateway) -> dict[str, Any]:
    """The tasks and the connections (`sockets`) that the gateway has now."""
    report = gateway.store.parent / "report.json"
    report.unlink(missing_ok=True)
    os.kill(gateway.process.pid, signal.SIGUSR1)
    deadline = time.monotonic() + 60
    while not report.exists():
        assert time.monotonic() < deadline, "the gateway told nothing about itself"
        time.sleep(0.02)
    return orjson.loads(report.read_bytes())


def wait_for_rest(gateway: Gateway, upstream: FaultUpstream, before: dict[str, Any]) -> None:
    """Return once the gateway has no task more than before and no connection; raises if it keeps
    any."""
    upstream.close_connections()
    deadline = time.monotonic() + 60
    while True:
        now = look_inside(gateway)
        more = len(now["tasks"]) - len(before["tasks"])
        if more <= 0 and not now["sockets"] and not upstream.busy:
            return
        assert time.monotonic() < deadline, (before, now, upstream.busy)
        time.sleep(0.1)


def faults_of(*groups: str) -> list[Fault]:
    """The faults of these groups; all of them where none is named."""
    return [fault for fault in FAULTS.values() if not groups or fault.group in groups]
