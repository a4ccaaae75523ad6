"""Replies whose body is still unread: `Reply`, the interface, and `OfflineReply`.

The offline model answers in the protocol of the caller, so the gateway reads its reply like that of
any upstream.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import Protocol
from uuid import uuid4

import orjson
from msgspec import structs

from weft.codec import CODECS, AnswerOptions, AnswerWriter, Codec
from weft.model import Event, Origin, Request, Start, fold

STREAM_TYPE = "text/event-stream"


def shape_id(protocol: str, id: str | None = None) -> str:
    """An answer's id as this protocol writes ids: the given one, or a new one."""
    prefix = CODECS[protocol].http.id_prefix
    if id is None:
        return prefix + uuid4().hex[:24]
    for codec in CODECS.values():
        id = id.removeprefix(codec.http.id_prefix)
    return prefix + id


class Reply(Protocol):
    """An answer whose body is still arriving."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def read(self, patience: float | None = None) -> bytes | None:
        """The next bytes, `b""` at the end, None after `patience` seconds without any.

        A cancelled read loses no bytes. Raises `UpstreamFailed` if the body breaks off.
        """
        ...

    def close(self) -> None:
        """Free the connection; unread bytes are dropped."""
        ...


async def read_all(reply: Reply) -> bytes:
    """The whole body."""
    first = await reply.read() or b""
    if not first:
        return first
    chunks = [first]
    while chunk := await reply.read():
        chunks.append(chunk)
    return first if len(chunks) == 1 else b"".join(chunks)


class OfflineReply:
    """The offline model's answer as bytes of a protocol; `pace` is seconds between two frames.

    `include_usage` says whether a stream ends with its token usage.
    """

    def __init__(
        self, request: Request, codec: Codec, *, pace: float = 0.0, include_usage: bool = True
    ) -> None:
        self.status = 200
        self.streamed = bool(request.params.stream)
        kind = STREAM_TYPE if self.streamed else "application/json"
        self.headers: Mapping[str, str] = {"content-type": kind}
        self._request = request
        self._codec = codec
        self._pace = pace
        self._include_usage = include_usage
        self._pieces = self._write()
        self._ready_at = 0.0

    async def read(self, patience: float | None = None) -> bytes | None:
        """The next frames, or the body at once."""
        loop = asyncio.get_running_loop()
        wait = max(0.0, self._ready_at - loop.time())
        await asyncio.sleep(wait if patience is None else min(wait, patience))
        if patience is not None and wait > patience:
            return None
        self._ready_at = loop.time() + self._pace
        return next(self._pieces, b"")

    def _write(self) -> Iterator[bytes]:
        options = AnswerOptions(created=int(time.time()), include_usage=self._include_usage)
        writer = AnswerWriter(self._codec, options)
        if not self.streamed:
            response = fold(self._events(), Origin("offline", "weft", self._request.model))
            yield orjson.dumps(writer.write_body(response).body)
            return
        for event in self._events():
            piece = writer.write([event])
            if frames := piece.now + piece.last:
                yield frames

    def _events(self) -> Iterator[Event]:
        """The events of the answer, with a new id: equal requests get equal text, not equal ids."""
        from weft.demo import answer_offline

        for event in answer_offline(self._request):
            is_start = isinstance(event, Start)
            yield structs.replace(event, id=shape_id(self._codec.protocol)) if is_start else event

    def close(self) -> None:
        """Nothing is held open."""
