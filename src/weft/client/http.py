"""The HTTP client: one per event loop, for all upstreams.

aiohttp takes longer to import than everything else together, so `pool`, the only module that uses
it, is imported at the first call. An agent of the offline model never imports it.
"""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from msgspec import Struct

from .provider import Provider
from .reply import Reply
from .retry import Retry, RetryPolicy

if TYPE_CHECKING:
    from .pool import Pool


class CallLimits(Struct, frozen=True, kw_only=True):
    """Limits of one upstream call, in seconds and bytes.

    `first_byte` runs from the start of the call to the first byte of the answer's body, `idle`
    between two chunks of it. `connections` is how many calls one upstream gets at the same time;
    further calls wait for `acquire` seconds.
    """

    acquire: float = 10.0
    connect: float = 10.0
    first_byte: float = 600.0
    idle: float = 300.0
    total: float = 3600.0
    answer_bytes: int = 256 * 1024 * 1024
    connections: int = 4096


class HttpClient:
    """The connections to all upstreams."""

    def __init__(self, limits: CallLimits | None = None) -> None:
        self.limits = limits or CallLimits()
        self._pool: Pool | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; the client may be used again."""
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    async def post(
        self,
        provider: Provider,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        policy: RetryPolicy,
        on_retry: Callable[[Retry], None] | None = None,
    ) -> Reply:
        """Send a body; retries as the policy says, then raises `UpstreamFailed`.

        `on_retry` is called before the wait for each retry.
        """
        return await self._open().call("POST", provider, path, body, headers, policy, on_retry)

    async def get(
        self, provider: Provider, path: str, headers: Mapping[str, str], policy: RetryPolicy
    ) -> Reply:
        """Read a resource, with the same retries and errors."""
        return await self._open().call("GET", provider, path, None, headers, policy)

    def _open(self) -> "Pool":
        if self._pool is None:
            from .pool import Pool

            self._pool = Pool(self.limits)
        return self._pool
