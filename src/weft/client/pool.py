"""HTTP calls to upstreams, with aiohttp. Only this module and `connection` import it.

`Pool.call` returns an `HttpReply` as soon as the status is known; the body is read as it arrives.
`CallLimits` limits every call: the wait for a free connection, the connect, the first byte, the
pause between two chunks, the whole call and the size of the answer. Every failure, before or inside
the body, is an `UpstreamFailed` with the upstream's name: a cut connection never looks like the end
of an answer.

A read can be cancelled at any time without losing bytes, so a caller can wait for a chunk in steps.
The caller closes the reply, which frees its connection. Connections are reused, but only by the
same `owner`: nothing that an upstream sends too late reaches another caller.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from weft.errors import UpstreamFailed

from .address import secret_parameters
from .connection import Body, Connector, StreamedBody
from .http import UNREACHED, CallLimits, Retry, RetryPolicy, plan_retry, status_text
from .key_command import read_token
from .provider import Provider
from .proxies import Proxies, WrongProxy, find_proxy
from .secrets import Secrets, read_secrets

BAD_GATEWAY = 502
UNAVAILABLE = 503
GATEWAY_TIMEOUT = 504

YIELD_BYTES = 1024 * 1024
"""After how many bytes a reader lets other requests run."""

ENCODINGS = frozenset({"", "identity", "gzip", "deflate", "br", "zstd"})
"""The content codings that aiohttp decodes; it passes others on as they are."""

REASONS: dict[type[Exception], str] = {
    aiohttp.ServerDisconnectedError: "it closed the connection",
    aiohttp.ClientPayloadError: "its body is incomplete or badly framed",
    aiohttp.ClientOSError: "the connection was lost",
    aiohttp.ClientResponseError: "it does not answer in HTTP",
}
"""Texts for the errors of aiohttp that have no error number of the operating system."""


class HttpReply:
    """An upstream's answer whose body is still arriving.

    The body of an error is read whole, because a key in it may be split between two chunks.
    """

    def __init__(
        self,
        provider: Provider,
        response: aiohttp.ClientResponse,
        limits: CallLimits,
        started: float,
        slots: asyncio.Semaphore,
        secrets: Secrets,
    ) -> None:
        self.provider = provider
        self.status = response.status
        self.secrets = secrets
        self.headers = secrets.redact_headers(response.headers)
        self._error_body: list[bytes] | None = [] if response.status >= 300 else None
        self._response = response
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._byte_deadline: float | None = started + limits.first_byte
        self._total_deadline = started + limits.total
        self._size = 0
        self._size_at_yield = 0
        self._slots: asyncio.Semaphore | None = slots
        self._current_wait: asyncio.Timeout | None = None
        self._connection_lost = _connection_lost(response)
        if self._connection_lost is not None:
            self._connection_lost.add_done_callback(self._wake)

    async def read(self, timeout: float | None = None) -> bytes | None:
        """The next bytes of the body; `b""` at its end.

        `None` means that no byte came within `timeout` seconds. The deadlines of the call still
        apply, and such a pause does not extend them. Raises `UpstreamFailed` if the body breaks
        off.
        """
        if self._error_body is None:
            return await self._read(timeout)
        while True:
            data = await self._read(timeout)
            if data is None:
                return None
            if not data:
                whole = self.secrets.redact(b"".join(self._error_body))
                self._error_body = []
                return whole
            self._error_body.append(data)

    async def _read(self, timeout: float | None) -> bytes | None:
        if self._size - self._size_at_yield > YIELD_BYTES:
            # Bytes that have already arrived, or come out of a small compressed body, are read
            # without waiting. Other requests get their turn in between.
            self._size_at_yield = self._size
            await asyncio.sleep(0)
        content, return_at = self._response.content, None
        try:
            while True:
                data = content.read_nowait(-1)
                if data:
                    return self._count_bytes(data)
                if content.at_eof():
                    return b""
                now = self._loop.time()
                if self._byte_deadline is None:
                    self._byte_deadline = now + self._limits.idle
                if timeout is not None and return_at is None:
                    return_at = now + timeout
                deadline = min(self._byte_deadline, self._total_deadline)
                if now >= deadline:
                    raise self._timeout_error()
                if return_at is not None and now >= return_at:
                    return None
                data = await self._wait(deadline if return_at is None else min(deadline, return_at))
                if data:
                    return self._count_bytes(data)
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
            # aiohttp raises this even if bytes that came before the failure were not read yet.
            # They are returned first; the next call raises again.
            unread = content._read_nowait(-1)  # pyright: ignore[reportPrivateUsage]
            if unread:
                return self._count_bytes(unread)
            raise UpstreamFailed(
                f"upstream {self.provider.name!r} broke off its answer: {describe(error)}"
            ) from None

    def close(self) -> None:
        """Free the connection; unread bytes are dropped."""
        if self._connection_lost is not None:
            self._connection_lost.remove_done_callback(self._wake)
            self._connection_lost = None
        self._response.close()
        if self._slots is not None:
            self._slots.release()
            self._slots = None

    async def _wait(self, wake_at: float) -> bytes:
        """The bytes that arrive before `wake_at`; empty if none do, or the connection is lost."""
        try:
            async with asyncio.timeout_at(wake_at) as self._current_wait:
                return await self._response.content.readany()
        except TimeoutError as error:
            if isinstance(error, aiohttp.ClientError):  # aiohttp's own timeout
                raise
            return b""
        except RuntimeError:  # aiohttp raises it for a lost connection with nothing left to read
            raise aiohttp.ClientPayloadError("the connection was closed") from None
        finally:
            self._current_wait = None

    def _wake(self, _connection_lost: "asyncio.Future[None]") -> None:
        """Wake the reader, because the connection is gone.

        If a chunk's framing is wrong, aiohttp closes the connection and reports the error only to
        calls that wait for headers. A reader of the body would wait forever; reading again raises.
        """
        if self._current_wait is not None and not self._current_wait.expired():
            self._current_wait.reschedule(self._loop.time())

    def _count_bytes(self, data: bytes) -> bytes:
        """The bytes; raises `UpstreamFailed` if the answer is too large."""
        self._byte_deadline = None
        self._size += len(data)
        if self._size > self._limits.answer_bytes:
            raise UpstreamFailed(
                f"upstream {self.provider.name!r} sent more than the {self._limits.answer_bytes} "
                "bytes that an answer may have (limits.answer_bytes)",
                status=BAD_GATEWAY,
            )
        return data

    def _timeout_error(self) -> UpstreamFailed:
        name = self.provider.name
        if self._loop.time() >= self._total_deadline:
            return _timeout_error(name, f"did not finish within {self._limits.total:g} seconds")
        if self._size == 0:
            return _timeout_error(
                name, f"sent no answer within {self._limits.first_byte:g} seconds"
            )
        return _timeout_error(
            name, f"sent nothing for {self._limits.idle:g} seconds in the middle of its answer"
        )


class Pool:
    """The connections of one event loop to all upstreams."""

    def __init__(self, limits: CallLimits, proxies: Proxies) -> None:
        self.limits = limits
        self._proxies = proxies
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self._slots: dict[str, asyncio.Semaphore] = {}

    async def close(self) -> None:
        """Close every connection."""
        while self._sessions:
            _, session = self._sessions.popitem()
            await session.close()

    async def call(
        self,
        method: str,
        provider: Provider,
        path: str,
        body: bytes | AsyncIterator[bytes] | None,
        headers: Mapping[str, str],
        policy: RetryPolicy,
        on_retry: Callable[[Retry], None] | None = None,
        owner: str = "",
        *,
        limits: CallLimits | None = None,
    ) -> HttpReply:
        """Make a call; retries as the policy says, then raises `UpstreamFailed`.

        `on_retry` is called before the wait for each retry. `limits` are those of the answer. A
        body that is still arriving is sent again only if none of it was sent.
        """
        attempt = 1
        token, has_new_token = "", False
        if isinstance(body, bytes):
            path, body = provider.write_for_server(path, body)
        while True:
            data = None if body is None else _make_body(body)
            if provider.key_command and not has_new_token:
                token = await read_token(provider.key_command, provider.name)
            sent_headers = {
                **headers,
                **(provider.token_headers(token) if provider.key_command else {}),
                **dict(provider.own_headers),
            }
            try:
                reply = await self._send(
                    method, provider, path, data, sent_headers, owner, limits or self.limits
                )
            except (aiohttp.ClientError, OSError) as error:
                was_sent = data is None or data.is_begun or isinstance(error, TimeoutError)
                is_unreached = isinstance(error, aiohttp.ClientConnectorError) or not was_sent
                delay = plan_retry(policy, attempt, UNREACHED) if is_unreached else None
                if delay is None:
                    raise self._unreachable_error(provider, error) from None
                status, reason = UNREACHED, describe(error)
            else:
                if provider.key_command and reply.status == 401 and not has_new_token:
                    refused, has_new_token = token, True
                    token = await _replace_token(provider, refused, reply)
                    if token != refused and not isinstance(data, StreamedBody):
                        reply.close()
                        continue
                retry_after = reply.headers.get("retry-after")
                delay = plan_retry(policy, attempt, reply.status, retry_after)
                if delay is None:
                    return reply
                reply.close()
                status, reason = reply.status, status_text(reply.status)
            if on_retry is not None:
                retry = Retry(
                    upstream=provider.name,
                    status=status,
                    reason=reason,
                    number=attempt,
                    limit=policy.attempts - 1,
                    delay=delay,
                )
                on_retry(retry)
            await asyncio.sleep(delay)
            attempt += 1

    async def _send(
        self,
        method: str,
        provider: Provider,
        path: str,
        body: Body | StreamedBody | None,
        headers: Mapping[str, str],
        owner: str,
        limits: CallLimits,
    ) -> HttpReply:
        """One attempt, up to the answer's headers; waits for a free connection first."""
        url = provider.url(path)
        try:
            proxy = find_proxy(url, provider.proxy, self._proxies)
        except WrongProxy as wrong:
            raise UpstreamFailed(f"upstream {provider.name!r} cannot be reached: {wrong}") from None
        slots = await self._acquire(provider)
        started = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(min(self.limits.first_byte, self.limits.total)):
                response = await self._get_session(owner).request(
                    method,
                    url,
                    data=body,
                    headers=headers,
                    proxy=proxy,
                    allow_redirects=False,
                )
        except BaseException:  # a cancelled call must free its connection, too
            slots.release()
            raise
        encoding = response.headers.get("content-encoding", "").strip().lower()
        if encoding not in ENCODINGS or not 100 <= response.status <= 599:
            slots.release()
            response.close()
            member = "status" if encoding in ENCODINGS else "content-encoding"
            raise UpstreamFailed(f"upstream {provider.name!r} answered with an unknown {member}")
        secrets = read_secrets(headers, secret_parameters(provider.query))
        if response.status >= 300:  # such a body is read whole
            limits = self.limits
        return HttpReply(provider, response, limits, started, slots, secrets)

    async def _acquire(self, provider: Provider) -> asyncio.Semaphore:
        """Wait for a free connection to this upstream.

        Each upstream has its own limit, so one that hangs does not block the others.
        """
        slots = self._slots.get(provider.base_url)
        if slots is None:
            slots = self._slots[provider.base_url] = asyncio.Semaphore(self.limits.connections)
        if not slots.locked():
            await slots.acquire()
            return slots
        try:
            async with asyncio.timeout(self.limits.acquire):
                await slots.acquire()
        except TimeoutError:
            raise UpstreamFailed(
                f"all {self.limits.connections} connections to upstream {provider.name!r} are in "
                "use (limits.upstream_connections)",
                status=UNAVAILABLE,
            ) from None
        return slots

    def _unreachable_error(self, provider: Provider, error: Exception) -> UpstreamFailed:
        """The error of an upstream that never began to answer."""
        if isinstance(error, aiohttp.ServerTimeoutError):
            reason = f"accepted no connection within {self.limits.connect:g} seconds"
            return _timeout_error(provider.name, reason)
        if isinstance(error, TimeoutError):
            seconds = min(self.limits.first_byte, self.limits.total)
            return _timeout_error(provider.name, f"sent no answer within {seconds:g} seconds")
        return UpstreamFailed(f"upstream {provider.name!r} cannot be reached: {describe(error)}")

    def _get_session(self, owner: str) -> aiohttp.ClientSession:
        session = self._sessions.get(owner)
        if session is None:
            session = self._sessions[owner] = aiohttp.ClientSession(
                # No limit: `_acquire` counts connections instead, with a deadline.
                connector=Connector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None, connect=self.limits.connect),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=True,
            )
        return session


def _make_body(body: bytes | AsyncIterator[bytes]) -> Body | StreamedBody:
    return Body(body) if isinstance(body, bytes) else StreamedBody(body)


async def _replace_token(provider: Provider, refused: str, reply: HttpReply) -> str:
    """A new token from the `key_command`, after the upstream has refused one."""
    try:
        return await read_token(provider.key_command, provider.name, refused=refused)
    except BaseException:
        reply.close()
        raise


def _connection_lost(response: aiohttp.ClientResponse) -> "asyncio.Future[None] | None":
    """A future that is done when the connection is lost; None if the answer is complete."""
    connection = response.connection
    protocol = None if connection is None else connection.protocol
    closed = None if protocol is None else protocol.closed
    if closed is not None:
        # The future belongs to the connection, which may serve many answers. It fails if the
        # connection is reset, and asyncio logs failures that nobody retrieves.
        closed.remove_done_callback(_retrieve_exception)
        closed.add_done_callback(_retrieve_exception)
    return closed


def _retrieve_exception(closed: "asyncio.Future[None]") -> None:
    if not closed.cancelled():
        closed.exception()


def _timeout_error(name: str, reason: str) -> UpstreamFailed:
    return UpstreamFailed(f"upstream {name!r} {reason}", status=GATEWAY_TIMEOUT)


def describe(error: Exception) -> str:
    """The reason without addresses or bytes, because clients of the gateway read it too."""
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return "its proxy cannot be reached"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"its proxy answered with status {error.status}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its host name is not known"
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        return "its TLS certificate or handshake is not valid"
    reason = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(reason, OSError) and reason.errno:
        return os.strerror(reason.errno).lower()
    return REASONS.get(type(error), type(error).__name__)
