"""Many slow streams on one process are all served.

The counts are small; `make torture` sets `WEFT_TORTURE` for large ones.
"""

import asyncio
import os
import re
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.request import urlopen

import orjson

from servers import weft_serve
from stuck_upstream import FIRST_FRAMES

LARGE = bool(os.environ.get("WEFT_TORTURE"))
STREAMS = 2000 if LARGE else 200
FRAMES, PAUSE = (40, 0.5) if LARGE else (6, 0.2)
SECONDS = 300

DELTA = FIRST_FRAMES["anthropic"].split(b"\n\n")[2] + b"\n\n"
END = (
    b'event: content_block_stop\ndata: {"type": "content_block_stop", "index": 0}\n\n'
    b'event: message_delta\ndata: {"type": "message_delta", "delta": {"stop_reason": "end_turn"},'
    b' "usage": {"output_tokens": 2}}\n\n'
    b'event: message_stop\ndata: {"type": "message_stop"}\n\n'
)


async def upstream(frames: int, pause: float) -> None:
    """Answers every request with a stream that takes its time; prints its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        await reader.readexactly(int(length[1]) if length is not None else 0)
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        )
        writer.write(FIRST_FRAMES["anthropic"])
        for _ in range(frames):
            await asyncio.sleep(pause)
            writer.write(DELTA)
            await writer.drain()
        writer.write(END)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def ask(port: int, number: int, path: str) -> tuple[float, bytes]:
    """Seconds to the first word, and the whole answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    messages = [{"role": "user", "content": f"stream {number}"}]
    body = orjson.dumps({"model": "m", "max_tokens": 9, "stream": True, "messages": messages})
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    begin = time.perf_counter()
    data, first = b"", 0.0
    while piece := await reader.read(65536):
        data += piece
        if not first and b"Hello" in data:
            first = time.perf_counter() - begin
    writer.close()
    return first, data


async def load(url: str, health: list[float]) -> list[tuple[float, bytes]]:
    """All streams at the same time, half of them translated; `/healthz` is asked meanwhile."""
    port = int(url.rpartition(":")[2])
    paths = ("/v1/messages", "/v1/chat/completions")
    streams = [asyncio.ensure_future(ask(port, n, paths[n % 2])) for n in range(STREAMS)]
    running = asyncio.gather(*streams)
    while not running.done():
        health.append(await asyncio.to_thread(check, url))
        await asyncio.wait([running], timeout=1)
    return await running


def check(url: str) -> float:
    begin = time.perf_counter()
    with urlopen(f"{url}/healthz", timeout=SECONDS) as reply:
        assert reply.status == 200
    return time.perf_counter() - begin


def test_many_slow_streams_are_all_served(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * STREAMS + 500
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, wanted), hard), hard))
    words = [sys.executable, __file__, str(FRAMES), str(PAUSE)]
    path = os.pathsep.join(sys.path)
    server = subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    killer = threading.Timer(SECONDS, server.kill)
    killer.start()
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        flags = ("--no-record", f"--upstream=a=anthropic:http://127.0.0.1:{port}")
        with weft_serve(tmp_path, *flags) as gateway:
            health: list[float] = []
            answers = asyncio.run(load(gateway.url, health))
            status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    finally:
        killer.cancel()
        server.kill()
        server.wait()
        assert server.stdout is not None
        server.stdout.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    whole = [data for _, data in answers if b"message_stop" in data or b"[DONE]" in data]
    assert len(whole) == STREAMS
    assert all(data.count(b"Hello") == FRAMES + 1 for data in whole)
    firsts = sorted(first for first, _ in answers)
    memory = re.search(r"VmHWM:\s+(\d+)", status)
    print(
        f"{STREAMS} streams: first word p50 {firsts[len(firsts) // 2]:.2f} s, "
        f"last {firsts[-1]:.2f} s; /healthz at most {max(health):.2f} s; "
        f"memory {int(memory[1]) // 1024 if memory else 0} MB"
    )


if __name__ == "__main__":
    asyncio.run(upstream(int(sys.argv[1]), float(sys.argv[2])))
