"""How much of everything the gateway allows: time, bytes and connections.

Every bound of a client's request and of an upstream's call is a member of `[limits]` in
`weft.toml`. Nothing is left to the defaults of the server's or the HTTP client's library.
`docs/guide/limits.md` says what each of them bounds.
"""

from typing import Annotated

from msgspec import Meta, Struct, structs

from weft.client import CallLimits

SPARE_FILES = 64
"""Open files that are neither a client's nor an upstream's: the store, its journal, the page."""
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

    def within(self, files: int) -> "LimitSettings":
        """These limits for a process that may open only so many files.

        A request takes two: its client's connection and its upstream's.
        """
        if self.connections + self.requests + SPARE_FILES <= files:
            return self
        connections = max(2, min(self.connections, (files - SPARE_FILES) * 5 // 9))
        requests = max(1, min(self.requests, connections * 4 // 5))
        return structs.replace(self, connections=connections, requests=requests)

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
