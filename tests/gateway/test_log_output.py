"""The log of a server whose reader is slow, stuck or gone."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import urlopen

import orjson
import pytest

from servers import LAUNCH, SECRETS, post
from weft.gateway import LogOutput

MESSAGES = {"model": "weft-offline", "max_tokens": 9}
REQUESTS = 500  # about 150 KB of lines, more than a pipe holds


@contextmanager
def serve(folder) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """`weft serve` whose standard error is a pipe that nobody reads."""
    command = [sys.executable, "-c", LAUNCH, "serve", "--port=0", "--no-record", "--store"]
    environ = {name: value for name, value in os.environ.items() if name not in SECRETS}
    process = subprocess.Popen(
        [*command, str(folder / "weft.db")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ,
        cwd=folder,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        yield process, process.stdout.readline().decode().split()[-1]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def ask(url: str, number: int) -> int:
    messages = [{"role": "user", "content": f"question {number}"}]
    return post(f"{url}/v1/messages", {**MESSAGES, "messages": messages})[0]


@pytest.mark.parametrize("is_closed", [False, True])
def test_nobody_reads_the_log(tmp_path, is_closed):
    with serve(tmp_path) as (process, url):
        if is_closed:
            assert process.stderr is not None
            process.stderr.close()
        assert {ask(url, number) for number in range(REQUESTS)} == {200}
        assert urlopen(f"{url}/healthz", timeout=60).status == 200
        process.terminate()
        assert process.wait(60) == 0


def test_a_late_reader_gets_every_line(tmp_path):
    with serve(tmp_path) as (process, url):
        for number in range(REQUESTS):
            ask(url, number)
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(REQUESTS)]
        assert all(orjson.loads(line)["outcome"] == "ok" for line in lines)
        process.terminate()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


@pytest.mark.parametrize("blocking", [True, False])
def test_dropped_lines_are_counted_and_reported_when_the_log_is_read_again(blocking):
    reader, writer = os.pipe()
    os.set_blocking(writer, blocking)
    capacity = fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ)
    os.write(writer, b"." * capacity)  # the pipe is full
    log = LogOutput(writer, limit=10_000)
    line = "x" * 99 + "\n"
    for _ in range(250):
        log.write(line)
    assert log.dropped == 150
    assert not log.drain(0.05)
    with open(reader, "rb") as stream:
        stream.read(capacity)
        assert [stream.readline() for _ in range(100)] == [line.encode()] * 100
        report = orjson.loads(stream.readline())
        assert (report["outcome"], report["lines"]) == ("log_dropped", 150)
        print("a", "part", file=log, sep=" of ")
        assert stream.readline() == b"a of part\n"
        assert log.drain(60)


def test_what_a_print_writes_in_pieces_is_one_line():
    reader, writer = os.pipe()
    log = LogOutput(writer)
    log.write("one ")
    log.write("line\nand ")
    log.write("another\n\n")
    assert log.drain(60)
    assert os.read(reader, 1000) == b"one line\nand another\n\n"
    os.close(reader)
