"""Many tabs on one server: every tab sees every message, and memory stays constant.

The counts are small; `make torture` sets `WEFT_TORTURE` for large ones.
"""

import asyncio
import os
from pathlib import Path

import aiohttp

import weft.thread
from servers import SECONDS, weft_serve

LARGE = bool(os.environ.get("WEFT_TORTURE"))
TABS, ROUNDS = (200, 60) if LARGE else (20, 6)
GROWTH_KB = 40 * 1024
"""The allocator keeps some of what a burst needs; a leak of every frame would be far more."""


def resident_kb(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


async def watch_rounds(gateway, thread):
    """Write a message in each round, and wait until every tab has heard of it; the memory used."""
    url, memory = gateway.url, []
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        sockets = [await session.ws_connect(url + "/ws") for _ in range(TABS)]
        for socket in sockets:
            await socket.send_json({"type": "watch", "thread": "shared"})
        await asyncio.gather(*(until(socket, "watching") for socket in sockets))
        fields = {"thread": "shared", "priority": "pinned"}
        for number in range(ROUNDS):
            commit = await asyncio.to_thread(thread.user, f"message {number} " + "words " * 200)
            async with session.post(
                url + "/api/annotate", json={**fields, "id": commit.id}
            ) as reply:
                assert reply.status == 200, await reply.text()
            await asyncio.gather(*(until(socket, "changed") for socket in sockets))
            memory.append(resident_kb(gateway.process.pid))
        for socket in sockets:
            await socket.close()
    return memory


async def until(socket, kind):
    while (await socket.receive_json(timeout=SECONDS))["type"] != kind:
        pass


def test_every_tab_sees_every_message_and_memory_stays_flat(tmp_path):
    with (
        weft_serve(tmp_path, "--no-sample") as gateway,
        weft.thread.open(gateway.store, "shared") as thread,
    ):
        thread.user("the first message")
        memory = asyncio.run(watch_rounds(gateway, thread))
    warm = memory[len(memory) // 3]
    print(
        f"{TABS} tabs, {ROUNDS} rounds: {memory[0]} KB, {warm} KB warm, {memory[-1]} KB at the end"
    )
    assert memory[-1] - warm < GROWTH_KB
