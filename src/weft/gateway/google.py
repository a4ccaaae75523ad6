"""Gemini's paths, which name the model and the method; other protocols name them in the body.

    POST /v1beta/models/{model}:generateContent          also under /v1/
    POST /v1beta/models/{model}:streamGenerateContent    ?alt=sse: events; else one JSON array
    POST /v1beta/models/{model}:countTokens

A streamed answer is always relayed as server-sent events. For a client that did not ask for events,
`ArrayOutbound` writes them as the elements of one JSON array.

https://ai.google.dev/api/generate-content
"""

import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, quote

from msgspec import Struct

from weft.codec import SseParser

from .asgi import JSON_TYPE, Inbound, Outbound
from .auth import with_safe_query

PROTOCOL = "gemini"
KEY_HEADER = "x-goog-api-key"
CLIENT_HEADERS = (KEY_HEADER, "x-goog-api-client")
"""Headers that only Google's own clients send."""

GOOGLE_PATHS = ("/v1beta/", "/v1alpha/", "/upload/")

STREAM = "streamGenerateContent"
COUNT = "countTokens"
METHODS = ("generateContent", STREAM, COUNT)

_PATH = re.compile(r"/(?P<version>v1|v1beta)/models/(?P<model>[^:]+(?::[^:]+)*):(?P<method>\w+)")


class Address(Struct, frozen=True, gc=False):
    """The model and method in a path; empty for other protocols."""

    model: str | None = None
    method: str = ""
    version: str = "v1beta"

    @property
    def streams(self) -> bool | None:
        """Whether the path asks for a stream; None if it does not say."""
        return None if self.model is None else self.method == STREAM

    def path(self, model: str, query: str) -> str:
        """The path at an upstream, where the model may have another name."""
        path = (
            f"/{self.version}/models/{quote(model.removeprefix('models/'), safe='')}:{self.method}"
        )
        added = (("alt", "sse"),) if self.streams else ()
        return with_safe_query(path, query, without=("alt",), added=added)


def read_address(path: str) -> Address:
    """The model and method of a Gemini path; an empty address for any other path."""
    match = _PATH.fullmatch(path)
    if match is None or match["method"] not in METHODS:
        return Address()
    return Address(match["model"], match["method"], match["version"])


def is_google(inbound: Inbound) -> bool:
    """Whether the client is one of Google's."""
    return inbound.path.startswith(GOOGLE_PATHS) or any(
        name in inbound.headers for name in CLIENT_HEADERS
    )


def move_key_to_header(inbound: Inbound) -> None:
    """Move a key from the query to its header, so that later URLs contain no secret."""
    key = dict(parse_qsl(inbound.query)).get("key")
    if key and KEY_HEADER not in inbound.headers:
        inbound.headers = {**inbound.headers, KEY_HEADER: key}


def choose_outbound(inbound: Inbound, outbound: Outbound) -> Outbound:
    """The outbound to use: the same one, or one that writes a JSON array."""
    wants_events = dict(parse_qsl(inbound.query)).get("alt") == "sse"
    streams = read_address(inbound.path).streams
    return ArrayOutbound(outbound) if streams and not wants_events else outbound


class ArrayOutbound(Outbound):
    """Writes the data of events as the elements of one JSON array."""

    def __init__(self, outbound: Outbound) -> None:
        super().__init__(outbound.sender)
        self._parser = SseParser()
        self._separator = b"["

    async def start(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        other_headers = [pair for pair in headers if pair[0] != "content-type"]
        await super().start(status, [*other_headers, ("content-type", JSON_TYPE)])

    async def write(self, data: bytes) -> None:
        await super().write(self._elements(data) or b"\n")  # whitespace keeps the connection alive

    async def finish(self, data: bytes = b"") -> None:
        closing = b"[]" if self._separator == b"[" else b"]"
        await super().finish(self._elements(data) + closing)

    async def send(self, status: int, body: bytes, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Send a whole answer, such as an error, as an array of one element."""
        array = b"[" + body + b"]"
        await super().start(status, [*headers, ("content-type", JSON_TYPE)])
        await super().finish(array)

    def _elements(self, data: bytes) -> bytes:
        chunks: list[bytes] = []
        for frame in self._parser.feed(data):
            chunks += [self._separator, frame.data.encode()]
            self._separator = b",\n"
        return b"".join(chunks)
