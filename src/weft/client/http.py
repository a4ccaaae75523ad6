"""The one place that speaks HTTP to an upstream.

A `Wire` holds the connections of one event loop. `post` gives an `HttpReply` as soon as the status
is known; its bytes are read as they come. Whatever goes wrong, before or within the body,
is `UpstreamFailed` with the upstream's name in it: a cut connection never looks like an end.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Self

import aiohttp

from weft.errors import UpstreamFailed

from .provider import Provider
from .retry import UNREACHED, Policy, plan_retry

CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 600.0
CONNECTIONS = 1000

GATEWAY_TIMEOUT = 504


class HttpReply:
    """An upstream's answer whose body is still on its way."""

    def __init__(self, provider: Provider, response: aiohttp.ClientResponse) -> None:
        self.provider = provider
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives; raises `UpstreamFailed` where it breaks off."""
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except TimeoutError:
            raise UpstreamFailed(
                f"upstream {self.provider.name!r} fell silent in the middle of its answer",
                status=GATEWAY_TIMEOUT,
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamFailed(
                f"upstream {self.provider.name!r} broke off its answer: {describe(error)}"
            ) from None

    def close(self) -> None:
        """Let go of the connection; unread bytes are not waited for."""
        self._response.close()


class Wire:
    """The connections to all upstreams."""

    def __init__(
        self, *, connect: float = CONNECT_SECONDS, silence: float = SILENCE_SECONDS
    ) -> None:
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect, sock_read=silence)
        self._session: aiohttp.ClientSession | None = None

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
        """Close every connection; the wire may be used again."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def post(
        self, provider: Provider, path: str, body: bytes, headers: Mapping[str, str], policy: Policy
    ) -> HttpReply:
        """Send a body; asks again as the policy says, then raises `UpstreamFailed`."""
        return await self._ask("POST", provider, path, body, headers, policy)

    async def get(
        self, provider: Provider, path: str, headers: Mapping[str, str], policy: Policy
    ) -> HttpReply:
        return await self._ask("GET", provider, path, None, headers, policy)

    async def _ask(
        self,
        method: str,
        provider: Provider,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        policy: Policy,
    ) -> HttpReply:
        attempt = 1
        while True:
            try:
                response = await self._open().request(
                    method, provider.url(path), data=body, headers=headers, allow_redirects=False
                )
            except (aiohttp.ClientError, OSError) as error:
                failed = unreachable(provider, error)
                reached = not isinstance(error, aiohttp.ClientConnectorError)
                delay = None if reached else plan_retry(policy, attempt, UNREACHED)
                if delay is None:
                    raise failed from None
            else:
                after = response.headers.get("retry-after")
                delay = plan_retry(policy, attempt, response.status, after)
                if delay is None:
                    return HttpReply(provider, response)
                response.close()
            await asyncio.sleep(delay)
            attempt += 1

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS),
                timeout=self._timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=True,
            )
        return self._session


def unreachable(provider: Provider, error: Exception) -> UpstreamFailed:
    """What to tell about an upstream that never began to answer."""
    if isinstance(error, TimeoutError):
        message = f"upstream {provider.name!r} did not answer in time"
        return UpstreamFailed(message, status=GATEWAY_TIMEOUT)
    return UpstreamFailed(f"upstream {provider.name!r} cannot be reached: {describe(error)}")


def describe(error: Exception) -> str:
    """An error's own words, or its name where it has none."""
    return str(error) or type(error).__name__
