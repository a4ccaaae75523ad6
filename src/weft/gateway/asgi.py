"""Requests and answers over plain ASGI, for the routes of the data plane.

`Inbound` reads, `Outbound` writes. The size of a body is limited before it is in memory, even
if it is compressed: https://asgi.readthedocs.io/en/latest/specs/www.html
"""

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, cast
from uuid import uuid4

import zstandard

from weft import exact_json
from weft.errors import Refused
from weft.model import JsonObject

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON_TYPE = "application/json"
SLICE_BYTES = 1024 * 1024
"""The largest piece of an answer in one ASGI message."""

NO_PAGE_HEADERS = (
    (b"content-security-policy", b"sandbox; default-src 'none'"),
    (b"x-content-type-options", b"nosniff"),
)
"""With these headers, HTML from an upstream has no scripts and no access to the gateway."""

WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""https://docs.python.org/3/library/zlib.html#zlib.decompressobj"""

ZSTD_WINDOW = 8 * 1024 * 1024
"""The largest window that HTTP allows: https://www.rfc-editor.org/rfc/rfc9659"""

MAX_DEPTH = 128
"""How deep a body may nest. Decoding, translating and storing are recursive; the schema of a tool
uses two levels for each nested object."""

CONTAINERS = (dict, list)

REQUEST_ID = "weft.request_id"
"""The member of a scope with the id of the request."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=-]{0,127}")

_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


class Inbound:
    """A request as it was received."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method: str = scope.get("method", "GET")  # a WebSocket starts as a GET
        self.path: str = scope["path"]
        self.query: str = scope.get("query_string", b"").decode("latin-1")
        self.headers: Mapping[str, str] = read_headers(scope)
        self.request_id: str = scope.get(REQUEST_ID, "")
        self.is_http_1_1: bool = scope.get("http_version") == "1.1"
        self._receive = receive
        self._body_ended: asyncio.Event | None = None

    def chunks(self) -> AsyncIterator[bytes]:
        """The pieces of the body as they arrive, as the client sent them; instead of `read`."""
        self._body_ended = asyncio.Event()
        return self._chunks(self._body_ended)

    async def _chunks(self, ended: asyncio.Event) -> AsyncIterator[bytes]:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientLeft
            if piece := message.get("body", b""):
                try:
                    yield piece
                except GeneratorExit:  # the rest is not needed
                    ended.set()
                    raise
            if not message.get("more_body", False):
                ended.set()
                return

    async def read(self, limit: int) -> bytes:
        """The whole body, uncompressed; raises `Refused` with 413 beyond the limit."""
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise BodyCutOff
            piece: bytes = message.get("body", b"")
            size += len(piece)
            if size > limit:
                raise too_large(limit)
            pieces.append(piece)
            if not message.get("more_body", False):
                return decompress(b"".join(pieces), self.headers.get("content-encoding"), limit)

    async def wait_disconnected(self) -> None:
        """Wait until the client has disconnected."""
        if self._body_ended is not None:  # until then, `chunks` notices it
            await self._body_ended.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


class Outbound:
    """The answer to a request; the status is sent with the first bytes."""

    def __init__(self, send: Send) -> None:
        self.started = False
        self.sender = send

    async def start(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Send the status and headers; once."""
        self.started = True
        await self.sender(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [
                    (name.encode("latin-1"), header_bytes(value)) for name, value in headers
                ],
            }
        )

    async def write(self, data: bytes) -> None:
        """Send a piece of the body."""
        if data:
            await self.sender({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self, data: bytes = b"") -> None:
        """Send the end of the body."""
        await self.sender({"type": "http.response.body", "body": data, "more_body": False})

    async def send(self, status: int, body: bytes, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Send a whole answer; its type is JSON unless a header says otherwise."""
        all_headers = list(headers)
        if not any(name == "content-type" for name, _ in all_headers):
            all_headers.append(("content-type", JSON_TYPE))
        await self.start(status, [*all_headers, ("content-length", str(len(body)))])
        if len(body) > SLICE_BYTES:
            # In slices: for a slow client, the server then buffers only a part of the body.
            for begin in range(0, len(body), SLICE_BYTES):
                await self.write(body[begin : begin + SLICE_BYTES])
            body = b""
        await self.finish(body)


def with_request_id(scope: Scope) -> Scope:
    """The scope with an id: the one that a client or a reverse proxy sent, or a new one."""
    sent = read_headers(scope).get("x-request-id", "")
    id = sent if _REQUEST_ID.fullmatch(sent) else uuid4().hex
    return {**scope, REQUEST_ID: id}


def send_request_id(scope: Scope, send: Send) -> Send:
    """A `send` that adds the header `x-request-id` to the answer."""
    header = (b"x-request-id", scope[REQUEST_ID].encode())

    async def send_with_id(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), header]}
        await send(message)

    return send_with_id


def with_body_deadline(receive: Receive, seconds: float) -> Receive:
    """A `receive` that raises `Refused` with 408 if the body is not complete in time.

    Only the time for which the client is waited for counts: an upstream that takes an upload
    slowly is not the client's fault.
    """
    clock = asyncio.get_running_loop().time
    seconds_left = seconds
    complete = False

    async def bounded() -> MutableMapping[str, Any]:
        nonlocal complete, seconds_left
        if complete:  # from now on the next message is the disconnect
            return await receive()
        begun = clock()
        try:
            async with asyncio.timeout(seconds_left):
                message = await receive()
            seconds_left -= clock() - begun
        except TimeoutError:
            raise Refused(
                f"the body was not received within {seconds:g} seconds (limits.body_seconds)",
                status=408,
                type="timeout_error",
            ) from None
        complete = not message.get("more_body", False)
        return message

    return bounded


def with_write_timeout(send: Send, seconds: float) -> Send:
    """A `send` that raises `ClientLeft` if the client reads nothing for that long."""

    async def bounded(message: MutableMapping[str, Any]) -> None:
        if not message.get("more_body", False):  # the end of an answer never blocks
            await send(message)
            return
        try:
            async with asyncio.timeout(seconds):
                await send(message)
        except TimeoutError:
            raise ClientLeft from None

    return bounded


def as_no_page(send: Send) -> Send:
    """A `send` whose answers a browser does not run as pages of the gateway."""

    async def send_no_page(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            names = [name for name, _ in NO_PAGE_HEADERS]
            others = [pair for pair in message.get("headers", ()) if pair[0].lower() not in names]
            message = {**message, "headers": [*others, *NO_PAGE_HEADERS]}
        await send(message)

    return send_no_page


def as_http_send(scope: Scope, send: Send) -> Send:
    """A `send` for HTTP messages, which can also answer the request for a WebSocket.

    https://asgi.readthedocs.io/en/latest/extensions.html#websocket-denial-response
    """
    if scope["type"] != "websocket":
        return send

    async def send_denial(message: MutableMapping[str, Any]) -> None:
        await send({**message, "type": f"websocket.{message['type']}"})

    return send_denial


class ClientLeft(Exception):
    """The client has disconnected, so nothing can be sent to it."""


class BodyCutOff(ClientLeft):
    """The body of a request is not complete: the client has disconnected, or framed it wrongly.

    The server does not tell which, so an error is sent in case that the client is still there.
    """

    refusal = Refused("the body of the request is incomplete or badly framed")


def read_headers(scope: Scope) -> dict[str, str]:
    """Headers by lower-case name; the values of repeated headers are joined, as HTTP allows."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in cast(Iterable[tuple[bytes, bytes]], scope["headers"]):
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def header_bytes(value: str) -> bytes:
    """A header's value on one line, in printable ASCII.

    The server drops answers with control bytes in their headers.
    """
    line = " ".join(value.split()).encode("ascii", "backslashreplace")
    return _CONTROL.sub(lambda match: b"\\x%02x" % ord(match[0]), line)


def parse_body(body: bytes) -> JsonObject:
    """The JSON object of a body; raises `Refused` with the position of the error."""
    try:
        raw: Any = exact_json.loads(body)
    except exact_json.JSONDecodeError as error:
        position = f"line {error.lineno}, column {error.colno}"
        raise Refused(f"the body is not JSON: {error.msg} at {position}") from None
    if not isinstance(raw, dict):
        raise Refused(f"the body is {type(raw).__name__}, not a JSON object")
    check_depth(cast(JsonObject, raw))
    return cast(JsonObject, raw)


def check_depth(raw: JsonObject) -> None:
    """Raises `Refused` for a body that nests too deeply; without recursion, level by level."""
    level: list[Any] = [raw]
    for _ in range(MAX_DEPTH):
        level = [
            member
            for container in level
            for member in _members(container)
            if type(member) in CONTAINERS
        ]
        if not level:
            return
    raise Refused(f"the body is nested deeper than {MAX_DEPTH} levels")


def _members(container: Any) -> Iterable[Any]:
    return cast(JsonObject, container).values() if type(container) is dict else container


def decompress(body: bytes, encoding: str | None, limit: int) -> bytes:
    """The uncompressed body; raises `Refused` beyond the limit."""
    name = (encoding or "identity").strip().lower()
    if name == "identity":
        return body
    if name == "zstd":
        return decompress_zstd(body, limit)
    if name not in WINDOW_BITS:
        raise Refused(
            f"content-encoding {name!r} is not supported: send the body plain, gzip, deflate "
            "or zstd",
            status=415,
        )
    decompressor = zlib.decompressobj(WINDOW_BITS[name])
    try:
        plain = decompressor.decompress(body, limit + 1)
    except zlib.error as error:
        raise Refused(f"the body is not {name}: {error}") from None
    if len(plain) > limit:
        raise too_large(limit)
    if not decompressor.eof:
        raise Refused(f"the {name} body is truncated")
    return plain


def decompress_zstd(body: bytes, limit: int) -> bytes:
    """The uncompressed zstd body, which Codex can send: https://www.rfc-editor.org/rfc/rfc8878"""
    reader = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).stream_reader(
        body, read_across_frames=True
    )
    try:
        plain = reader.read(limit + 1)
    except zstandard.ZstdError as error:
        raise Refused(f"the body is not zstd: {error}") from None
    if len(plain) > limit:
        raise too_large(limit)
    return plain


def too_large(limit: int) -> Refused:
    """The error for a body beyond the limit."""
    return Refused(f"the body is larger than {limit} bytes", status=413, type="request_too_large")
