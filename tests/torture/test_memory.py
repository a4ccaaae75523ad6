"""Memory stays constant while a gateway records 100,000 requests.

Only `make torture` runs it, because a short run cannot tell a leak from a cache that fills up.
`WEFT_REQUESTS=16000` is a shorter run for development; caches still grow in it.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from servers import Gateway, weft_serve

LARGE = bool(os.environ.get("WEFT_TORTURE"))
REQUESTS = int(os.environ.get("WEFT_REQUESTS", "100000"))
WARM_UP = min(48_000, REQUESTS // 2)  # caches with a bound are full after about 45,000 requests
ALLOWED_BYTES = 16 << 20
"""The growth allowed after the warm-up. The allocator causes a few MB, a leak in every request far
more."""
AT_ONCE = 8
TURNS = 5

pytestmark = pytest.mark.skipif(
    not LARGE or sys.platform != "linux", reason="many requests, and reads /proc"
)


@asynccontextmanager
async def answering() -> AsyncIterator[str]:
    """An upstream of Chat in this process's own loop."""

    async def reply(request: web.Request) -> web.Response:
        body = await request.json()
        text = f"answer to {body['messages'][-1]['content']}"
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response(
            {
                "id": f"chatcmpl-{os.urandom(8).hex()}",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [choice],
                "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18},
            }
        )

    app = web.Application()
    app.router.add_post("/{path:.*}", reply)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def resident(gateway: Gateway) -> int:
    """The bytes of memory that the gateway's process has."""
    fields = Path(f"/proc/{gateway.process.pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


async def run_conversations(url: str, count: int, done: Callable[[int], None]) -> None:
    """Conversations of a few turns, one after the other, several at once."""
    numbers = iter(range(count // TURNS))
    finished = 0

    async def client(session: ClientSession, path: str, model: str) -> None:
        nonlocal finished
        for number in numbers:
            messages: list[dict[str, str]] = []
            for turn in range(TURNS):
                messages.append({"role": "user", "content": f"conversation {number} turn {turn}"})
                body = {"model": model, "max_tokens": 64, "messages": messages}
                async with session.post(url + path, json=body) as reply:
                    data = await reply.json()
                    assert reply.status == 200, data
                    assert reply.headers["x-weft-recorded"] in ("store", "journal")
                messages.append(
                    {"role": "assistant", "content": f"answer to {messages[-1]['content']}"}
                )
                finished += 1
                done(finished)

    async with ClientSession() as session:
        kinds = [("/v1/chat/completions", "c/m"), ("/v1/messages", "c/m")]
        await asyncio.gather(*(client(session, *kinds[number % 2]) for number in range(AT_ONCE)))


def test_memory_is_flat_while_recording(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    sizes: dict[int, int] = {}

    async def run() -> None:
        async with answering() as upstream:
            with weft_serve(tmp_path, f"--upstream=c=openai-chat:{upstream}") as gateway:

                def measure(finished: int) -> None:
                    if finished % 4000 == 0:
                        sizes[finished] = resident(gateway)

                await run_conversations(gateway.url, REQUESTS, measure)

    asyncio.run(run())
    for finished, size in sizes.items():
        record_property(f"resident MB after {finished} requests", round(size / 1e6, 1))
        print(f"{finished} requests: {size / 1e6:.1f} MB resident")
    growth = sizes[REQUESTS] - sizes[WARM_UP]
    assert growth < ALLOWED_BYTES, sizes
