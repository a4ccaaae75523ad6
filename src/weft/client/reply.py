"""What comes back from an upstream, before anyone has read it; and the offline model as one.

The gateway's road does not ask where bytes come from. The model inside answers through the same
three members as a server far away, in the protocol that the caller speaks.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Protocol
from uuid import uuid4

import orjson
from msgspec import structs

from weft.codec import Codec, write_frame
from weft.model import Event, Finish, Request, Start, fold

from .offline import answer, origin

STREAM_TYPE = "text/event-stream"

ID_PREFIXES = {"anthropic": "msg_", "openai-chat": "chatcmpl-", "openai-responses": "resp_"}
"""How the ids of answers begin, in protocols whose clients may look at that."""


def shape_id(protocol: str, id: str | None = None) -> str:
    """An answer's id in the shape of a protocol: the one it had elsewhere, or a new one."""
    bare = uuid4().hex[:24] if id is None else id
    for prefix in ID_PREFIXES.values():
        bare = bare.removeprefix(prefix)
    return ID_PREFIXES.get(protocol, "") + bare


class Reply(Protocol):
    """An answer whose body is still on its way."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives; raises `UpstreamFailed` where it breaks off."""
        ...

    def close(self) -> None:
        """Let go; unread bytes are not waited for."""
        ...


async def read_all(reply: Reply) -> bytes:
    """The whole body."""
    return b"".join([chunk async for chunk in reply.chunks()])


class OfflineReply:
    """The offline model's answer as bytes of a protocol; `pace` is seconds between two frames.

    `costs` is whether a stream says what it cost.
    """

    def __init__(
        self, request: Request, codec: Codec, *, pace: float = 0.0, costs: bool = True
    ) -> None:
        self.status = 200
        self.streamed = bool(request.params.stream)
        kind = STREAM_TYPE if self.streamed else "application/json"
        self.headers: Mapping[str, str] = {"content-type": kind}
        self._request = request
        self._codec = codec
        self._pace = pace
        self._costs = costs

    async def chunks(self) -> AsyncIterator[bytes]:
        """The frames one by one, or the body at once."""
        if not self.streamed:
            response = fold(self._events(), origin(self._request))
            yield orjson.dumps(self._codec.encode_response(response, int(time.time())).body)
            return
        encoder = self._codec.stream_encoder(int(time.time()))
        for event in self._events():
            if not self._costs and isinstance(event, Start | Finish):
                event = structs.replace(event, usage=None)
            for frame in encoder.send(event):
                yield write_frame(frame)
            await asyncio.sleep(self._pace)

    def _events(self) -> Iterator[Event]:
        """The answer is the same for the same request, but it is another answer."""
        for event in answer(self._request):
            named = isinstance(event, Start)
            yield structs.replace(event, id=shape_id(self._codec.protocol)) if named else event

    def close(self) -> None:
        """Nothing is held open."""
