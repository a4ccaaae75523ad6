"""How much of everything the gateway allows: time, bytes and connections.

Every bound of a client's request and of an upstream's call is a member of `[limits]` in
`weft.toml`. Nothing is left to the defaults of the server's or the HTTP client's library.

| member | default | what it bounds |
| --- | --- | --- |
| `connect_seconds` | 10 | connecting to an upstream, DNS and TLS included |
| `first_byte_seconds` | 600 | from the start of a call to the first byte of the answer |
| `idle_seconds` | 300 | silence of the upstream within an answer; our own pings do not count |
| `total_seconds` | 3600 | one upstream call from start to end |
| `acquire_seconds` | 10 | the wait for a free connection to an upstream |
| `upstream_connections` | 4096 | calls to one upstream at the same time |
| `answer_bytes` | 268435456 | the size of one answer, uncompressed |
| `connections` | 10000 | connections of clients, idle ones included |
| `requests` | 4096 | requests at the same time; further ones get 503, `/healthz` never does |
| `header_seconds` | 60 | receiving one request's headers; also how long a connection may be idle |
| `body_seconds` | 120 | receiving one request's body; then 408 |
| `write_seconds` | 60 | the wait for a client that does not read its answer |
| `drain_seconds` | 10 | after SIGTERM, how long running answers may go on |
"""

from typing import Annotated

from msgspec import Meta, Struct

from weft.client import CallLimits

WEEK = 7 * 24 * 3600.0
Seconds = Annotated[float, Meta(gt=0, le=WEEK)]
Count = Annotated[int, Meta(gt=0)]


class LimitSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[limits]` of the file; every member may be absent."""

    connect_seconds: Seconds = 10.0
    first_byte_seconds: Seconds = 600.0
    idle_seconds: Seconds = 300.0
    total_seconds: Seconds = 3600.0
    acquire_seconds: Seconds = 10.0
    upstream_connections: Count = 4096
    answer_bytes: Count = 256 * 1024 * 1024
    connections: Count = 10_000
    requests: Count = 4096
    header_seconds: Seconds = 60.0
    body_seconds: Seconds = 120.0
    write_seconds: Seconds = 60.0
    drain_seconds: Annotated[float, Meta(ge=0, le=WEEK)] = 10.0

    def __post_init__(self) -> None:
        if self.requests >= self.connections:
            raise ValueError(
                f"`requests` ({self.requests}) must be smaller than `connections` "
                f"({self.connections}), so that a full gateway can still answer"
            )

    def for_calls(self) -> CallLimits:
        """The part of them that bounds an upstream call."""
        return CallLimits(
            acquire=self.acquire_seconds,
            connect=self.connect_seconds,
            first_byte=self.first_byte_seconds,
            idle=self.idle_seconds,
            total=self.total_seconds,
            answer_bytes=self.answer_bytes,
            connections=self.upstream_connections,
        )
