"""Many tabs on one server: every tab sees every message, and memory stays constant.

The counts are small; `make torture` sets `WEFT_TORTURE` for large ones.
"""

import asyncio
import os
from pathlib import Path

import aiohttp
import orjson

import weft.thread
from servers import SECONDS, weft_serve

LARGE = bool(os.environ.get("WEFT_TORTURE"))
TABS, ROUNDS = (200, 300) if LARGE else (20, 6)
"""300 rounds are ten minutes of a thread that changes every second."""
TAB_KB = 256
"""The most that an idle tab may take."""
GROWTH_KB = 20 * 1024
"""The allocator keeps some of what a burst needs; a leak of every frame would be far more."""


def resident_kb(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


class Tab:
    """A socket that is always read, as a browser reads it."""

    def __init__(self, socket):
        self.socket = socket
        self.changes = 0
        self.is_watching = False
        self.reader = asyncio.create_task(self._read())

    async def _read(self):
        async for message in self.socket:
            kind = orjson.loads(message.data)["type"]
            self.changes += kind == "changed"
            self.is_watching = self.is_watching or kind == "watching"

    async def close(self):
        await self.socket.close()
        await self.reader


async def wait_for(tabs, is_there):
    async with asyncio.timeout(SECONDS):
        while not all(map(is_there, tabs)):
            await asyncio.sleep(0.005)


async def watch_rounds(gateway, thread):
    """Mark a message and undo that in each round, and wait until every tab has heard of both.

    The thread does not grow, so only the tabs could need more memory. Returns the memory in KB:
    without a tab, with all tabs idle, and after each round.
    """
    url, pid = gateway.url, gateway.process.pid
    message = thread.user("words " * 200)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def change(path, fields):
            before = {tab: tab.changes for tab in tabs}
            async with session.post(url + path, json={"thread": "shared", **fields}) as reply:
                assert reply.status == 200, await reply.text()
            await wait_for(tabs, lambda tab: tab.changes > before[tab])

        async def one_round():
            await change("/api/annotate", {"id": message.id, "priority": "pinned"})
            await change("/api/undo", {})

        tabs = []
        for _ in range(3):  # what any change needs is loaded
            await one_round()
        memory = [resident_kb(pid)]
        tabs = [Tab(await session.ws_connect(url + "/ws")) for _ in range(TABS)]
        for tab in tabs:
            await tab.socket.send_json({"type": "watch", "thread": "shared"})
        await wait_for(tabs, lambda tab: tab.is_watching)
        memory.append(resident_kb(pid))
        for _ in range(ROUNDS):
            await one_round()
            memory.append(resident_kb(pid))
        for tab in tabs:
            await tab.close()
    return memory


def test_every_tab_sees_every_change_and_memory_stays_flat(tmp_path):
    with (
        weft_serve(tmp_path, "--no-sample") as gateway,
        weft.thread.open(gateway.store, "shared") as thread,
    ):
        alone, idle, *rounds = asyncio.run(watch_rounds(gateway, thread))
    warm = rounds[len(rounds) // 3]
    print(
        f"{alone} KB without a tab, {idle} KB with {TABS} idle tabs; {ROUNDS} rounds: {rounds[0]} "
        f"KB after the first, {warm} KB warm, {rounds[-1]} KB at the end"
    )
    assert idle - alone < TABS * TAB_KB + GROWTH_KB
    assert rounds[-1] - warm < GROWTH_KB
