"""Chunks as they come, silences noticed, and a caller that hangs up."""

import asyncio
from collections.abc import AsyncIterator

from .asgi import ClientLeft, Inbound


async def pump(
    chunks: AsyncIterator[bytes], inbound: Inbound, silence: float
) -> AsyncIterator[bytes | None]:
    """Each chunk; None after every `silence` seconds without one; raises `ClientLeft`."""
    gone = asyncio.ensure_future(inbound.gone())
    coming: asyncio.Task[bytes | None] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(_next(chunks))
            done, _ = await asyncio.wait(
                (coming, gone), timeout=silence, return_when=asyncio.FIRST_COMPLETED
            )
            if coming in done:
                chunk = coming.result()
                coming = None
                if chunk is None:
                    return
                yield chunk
            elif gone in done:
                raise ClientLeft
            else:
                yield None
    finally:
        gone.cancel()
        if coming is not None and not coming.done():
            coming.cancel()


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)
