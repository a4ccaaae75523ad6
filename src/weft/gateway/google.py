"""Google's addresses: the model and the manner of the answer stand in the path, not in the body.

    POST /v1beta/models/{model}:generateContent          also under /v1/
    POST /v1beta/models/{model}:streamGenerateContent    ?alt=sse: events; else one JSON array
    POST /v1beta/models/{model}:countTokens

The road behind is the one of every protocol. An answer that streams always travels as events; for
a caller who did not ask for them the way out writes each as the next element of an array.

https://ai.google.dev/api/generate-content
"""

import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, quote

from msgspec import Struct

from weft.codec import SseParser

from .asgi import JSON_TYPE, Inbound, Outbound
from .auth import with_query

PROTOCOL = "gemini"
KEY_HEADER = "x-goog-api-key"
MARKS = (KEY_HEADER, "x-goog-api-client")
"""Headers by which Google's own clients are known."""

STREAM = "streamGenerateContent"
COUNT = "countTokens"
METHODS = ("generateContent", STREAM, COUNT)

_PATH = re.compile(r"/(?P<version>v1|v1beta)/models/(?P<model>[^:]+(?::[^:]+)*):(?P<method>\w+)")


class Address(Struct, frozen=True, gc=False):
    """What a path says besides where it leads; nothing, for most protocols."""

    model: str | None = None
    method: str = ""
    version: str = "v1beta"

    @property
    def streams(self) -> bool | None:
        """Whether the answer is to stream, where the path says it."""
        return None if self.model is None else self.method == STREAM

    def path(self, model: str, query: str) -> str:
        """The same address at an upstream, for a model that may have another name there."""
        path = (
            f"/{self.version}/models/{quote(model.removeprefix('models/'), safe='')}:{self.method}"
        )
        added = (("alt", "sse"),) if self.streams else ()
        return with_query(path, query, without=("alt",), added=added)


def read_address(path: str) -> Address:
    """The model and method that a path of Google's names; an empty one for any other."""
    found = _PATH.fullmatch(path)
    if found is None or found["method"] not in METHODS:
        return Address()
    return Address(found["model"], found["method"], found["version"])


def is_google(inbound: Inbound) -> bool:
    """Whether it is one of Google's clients that asks."""
    return inbound.path.startswith("/v1beta/") or any(mark in inbound.headers for mark in MARKS)


def show_key(inbound: Inbound) -> None:
    """A key in the query is moved to its header: from there on no address carries a secret."""
    key = dict(parse_qsl(inbound.query)).get("key")
    if key and KEY_HEADER not in inbound.headers:
        inbound.headers = {**inbound.headers, KEY_HEADER: key}


def way_out(inbound: Inbound, outbound: Outbound) -> Outbound:
    """Where the answer goes: as it is, or made an array of."""
    events = dict(parse_qsl(inbound.query)).get("alt") == "sse"
    streams = read_address(inbound.path).streams
    return ArrayOutbound(outbound) if streams and not events else outbound


class ArrayOutbound(Outbound):
    """Writes the data of events as the elements of one JSON array."""

    def __init__(self, outbound: Outbound) -> None:
        super().__init__(outbound.sender)
        self._parser = SseParser()
        self._before = b"["

    async def start(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        kept = [pair for pair in headers if pair[0] != "content-type"]
        await super().start(status, [*kept, ("content-type", JSON_TYPE)])

    async def write(self, data: bytes) -> None:
        await super().write(self._elements(data) or b"\n")  # blanks keep the line alive

    async def finish(self, data: bytes = b"") -> None:
        closing = b"[]" if self._before == b"[" else b"]"
        await super().finish(self._elements(data) + closing)

    async def send(self, status: int, body: bytes, headers: Iterable[tuple[str, str]] = ()) -> None:
        """An error that comes before any element is the only one."""
        whole = b"[" + body + b"]"
        await super().start(status, [*headers, ("content-type", JSON_TYPE)])
        await super().finish(whole)

    def _elements(self, data: bytes) -> bytes:
        written: list[bytes] = []
        for frame in self._parser.feed(data):
            written += [self._before, frame.data.encode()]
            self._before = b",\n"
        return b"".join(written)
