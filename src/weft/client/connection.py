"""One connection to an upstream. It carries one answer for each request, and nothing else.

An upstream may send bytes that belong to no request: a second answer, the rest of a longer one, an
error page before it closes. aiohttp would give them to the next request on the connection
(https://github.com/aio-libs/aiohttp/issues/13656). `Connection` closes itself instead:

- bytes arrive while no request waits for an answer, or before the first byte of its request is sent
- bytes follow the end of an answer, also a part of a head
- bytes are in the socket's buffer when the connection is taken from the pool

What an upstream sends after it has received the next request cannot be told from an answer. So
`pool` never shares a connection between callers.
"""

import select
from collections.abc import AsyncIterator
from io import BytesIO
from typing import Any

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.payload import AsyncIterablePayload, BytesIOPayload

_NEXT_HEAD = b"HTTP/1.1 204 No Content\r\n\r\n"
"""Given to the parser after an answer, to see whether it is in the middle of something."""


class Connection(ResponseHandler):
    """A connection that closes itself if the upstream sends bytes that no request asked for."""

    _uses = 0
    _has_unsent_body = False
    _may_receive = False
    _is_answered = False

    def prepare(self, *, has_body: bool) -> bool:
        """Prepare for the next request; false if the connection cannot be used for it."""
        self._uses += 1
        self._has_unsent_body = has_body
        return self._is_quiet()

    def begin_body(self) -> bool:
        """Note that the first bytes of the request are sent now; from here on, bytes may arrive.

        False if they must not be sent, because the upstream has already sent something.
        """
        self._has_unsent_body = False
        self._may_receive = self._is_quiet()
        return self._may_receive

    def set_response_params(self, **params: Any) -> None:
        """Called by aiohttp before it sends a request; without a body it is sent at once."""
        self._is_answered = False
        self._may_receive = not self._has_unsent_body
        self._payload = None  # the one of the last answer
        super().set_response_params(**params)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Called by aiohttp with the head of each answer, also of interim ones such as 103."""
        message, _ = data
        if self._is_answered:
            self._drop()
            return
        self._is_answered = message.code >= 200 or message.code == 101
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop; without data, aiohttp continues with what is buffered."""
        if data and (not self._may_receive or self._is_complete):
            self._drop()
            return
        super().data_received(data)
        if self._is_complete and not self._should_close and not self._ends_here():
            self._drop()

    @property
    def _is_complete(self) -> bool:
        """Whether the whole answer has arrived."""
        payload = self._payload
        return self._is_answered and payload is not None and payload.is_eof()

    def _ends_here(self) -> bool:
        """Whether nothing has arrived behind the answer."""
        if self._parser is None or self._upgraded:
            return False
        try:
            messages, _, rest = self._parser.feed_data(_NEXT_HEAD)
        except Exception:  # the parser of aiohttp documents no base of its errors
            return False
        return [message.code for message, _ in messages] == [204] and not rest

    def _is_quiet(self) -> bool:
        """Whether no byte, and no end of the connection, waits in the socket's buffer.

        A new connection is not checked: a server's TLS session tickets may wait there.
        """
        if not self.is_connected():
            return False
        if self._uses == 1:
            return True
        sock = None if self.transport is None else self.transport.get_extra_info("socket")
        if sock is None or sock.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLIN)
        return not poll.poll(0)

    def _drop(self) -> None:
        """Close the connection. An answer that has arrived can still be read."""
        self._may_receive = False
        self.force_close()
        if self.transport is not None:
            self.transport.close()


class Connector(aiohttp.TCPConnector):
    """Opens connections that are a `Connection`, and reuses only those that are silent."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType]
        self._factory = lambda: Connection(loop=self._loop)

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:
        """Called by aiohttp for each request; never reuses a connection with unread bytes."""
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            if not isinstance(protocol, Connection) or protocol.prepare(has_body=bool(req.body)):
                return connection
            connection.close()


class Body(BytesIOPayload):
    """The body of a request, sent in chunks: writing all of it at once would block the loop.

    aiohttp sends the head together with the first chunk. `is_begun` says whether that was sent.
    """

    def __init__(self, body: bytes) -> None:
        super().__init__(BytesIO(body))
        self.is_begun = False

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        """Called by aiohttp to send the body."""
        _begin_body(writer)
        self.is_begun = True
        await super().write_with_length(writer, content_length)


class StreamedBody(AsyncIterablePayload):
    """The body of a request that is still arriving. It can be sent only once."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        super().__init__(chunks)
        self.is_begun = False

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        """Called by aiohttp to send the body."""
        _begin_body(writer)
        self.is_begun = True
        await super().write_with_length(writer, content_length)


def _begin_body(writer: AbstractStreamWriter) -> None:
    protocol = getattr(writer, "protocol", None)
    if isinstance(protocol, Connection) and not protocol.begin_body():
        raise aiohttp.ClientConnectionResetError("the connection was closed")
