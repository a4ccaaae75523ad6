"""The HTTP client: one per event loop, for all upstreams; its replies and its retries.

aiohttp takes longer to import than everything else together, so `pool`, which uses it, is
imported at the first call. An agent with the offline model never imports it.

`Reply` is an answer whose body is still unread. The offline model answers in the protocol of the
caller (`OfflineReply`), so the gateway reads its reply like any other.

`plan_retry` decides when a request is sent again. Only one layer should retry, the one nearest to
the user. The SDKs of the gateway's clients retry, so the gateway retries only if no connection was
made. The agent loop is the top layer, so it retries every status that the vendors call retryable.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self
from uuid import uuid4

from msgspec import Struct, structs

from weft import exact_json
from weft.codec import CODECS, AnswerOptions, AnswerWriter, Codec
from weft.model import Event, JsonObject, Origin, Request, Start, fold

from .provider import Provider
from .proxies import read_proxies
from .secrets import Secrets

if TYPE_CHECKING:
    from .pool import Pool


RETRYABLE_STATUSES = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
"""https://docs.anthropic.com/en/api/errors, https://platform.openai.com/docs/guides/error-codes"""

UNREACHED = 0
"""Used instead of a status if no connection was made: the upstream did not get the request."""


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How failed requests are repeated.

    - `attempts`: how often a request is sent, the first time included.
    - `statuses`: the HTTP statuses after which it is sent again.
    - `first`, `longest`: the delay in seconds, which doubles from `first` to `longest`.
    - `patience`: the longest `Retry-After` that is respected, in seconds. If the upstream asks for
      more, the request is not sent again.
    """

    attempts: int
    statuses: frozenset[int]
    first: float = 0.5
    longest: float = 8.0
    patience: float = 60.0


OVERLOADED = 529
"""Anthropic's own status, which `HTTPStatus` does not have."""


class Retry(Struct, frozen=True, kw_only=True):
    """A request that failed and is sent again after `delay` seconds.

    - `upstream`: the name of the upstream
    - `status`: the status of its answer; `UNREACHED` if no connection was made
    - `reason`: the status in words, or why there was no connection; nothing of the answer's body
    - `number`, `limit`: this is retry `number` of at most `limit`
    """

    upstream: str
    status: int
    reason: str
    number: int
    limit: int
    delay: float

    @property
    def delay_text(self) -> str:
        """The delay for people: `4 s`."""
        return f"{self.delay:.3g} s"

    def data(self) -> JsonObject:
        """The members of an `api_retry` system message, named as Claude Code names them."""
        status = {} if self.status == UNREACHED else {"error_status": self.status}
        return {
            "upstream": self.upstream,
            **status,
            "error": self.reason,
            "attempt": self.number,
            "max_retries": self.limit,
            "retry_delay_ms": round(self.delay * 1000),
            "delay": self.delay_text,
        }


def status_text(status: int) -> str:
    """A status in words: `too many requests`."""
    if status == OVERLOADED:
        return "overloaded"
    try:
        return HTTPStatus(status).phrase.lower()
    except ValueError:
        return "an error"


GATEWAY_RETRY = RetryPolicy(attempts=2, statuses=frozenset({UNREACHED}), first=0.1)
AGENT_RETRY = RetryPolicy(attempts=4, statuses=RETRYABLE_STATUSES | {UNREACHED})


def plan_retry(
    policy: RetryPolicy, attempt: int, status: int, retry_after: str | None = None
) -> float | None:
    """Seconds to wait before attempt `attempt + 1`; `None` to give up.

    The upstream's `Retry-After` is used, if it has one.
    """
    if attempt >= policy.attempts or status not in policy.statuses:
        return None
    delay = read_retry_after(retry_after)
    if delay is not None:
        return delay if delay <= policy.patience else None
    return min(policy.first * 2 ** (attempt - 1), policy.longest)


def read_retry_after(value: str | None) -> float | None:
    """The seconds of a `Retry-After` header; `None` if it has none, for example a date."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


STREAM_TYPE = "text/event-stream"


def make_answer_id(protocol: str, id: str | None = None) -> str:
    """An answer's id with the prefix that this protocol uses; without `id`, a new id."""
    prefix = CODECS[protocol].http.id_prefix
    if id is None:
        return prefix + uuid4().hex[:24]
    for codec in CODECS.values():
        id = id.removeprefix(codec.http.id_prefix)
    return prefix + id


END_SECONDS = 3.0
"""How long a reader of a whole answer waits for its token counts and for the end of the connection.
Servers send both at once; some keep the connection open."""


class Reply(Protocol):
    """An answer whose body is still arriving.

    Its headers, and the body of an error status, are without the credentials of the request.
    """

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def secrets(self) -> Secrets:
        """The credentials of the request. An error that the body contains may quote them."""
        ...

    async def read(self, timeout: float | None = None) -> bytes | None:
        """The next bytes, `b""` at the end, `None` after `timeout` seconds without any.

        A cancelled read loses no bytes. Raises `UpstreamFailed` if the body breaks off.
        """
        ...

    def close(self) -> None:
        """Free the connection; unread bytes are dropped."""
        ...


async def read_all(reply: Reply) -> bytes:
    """The whole body."""
    first = await reply.read() or b""
    if not first:
        return first
    chunks = [first]
    while chunk := await reply.read():
        chunks.append(chunk)
    return first if len(chunks) == 1 else b"".join(chunks)


class OfflineReply:
    """The offline model's answer as bytes of a protocol; `pace` is seconds between two frames.

    `include_usage` says whether a stream ends with its token usage.
    """

    def __init__(
        self, request: Request, codec: Codec, *, pace: float = 0.0, include_usage: bool = True
    ) -> None:
        self.status = 200
        self.secrets = Secrets()
        self.streamed = bool(request.params.stream)
        content_type = STREAM_TYPE if self.streamed else "application/json"
        self.headers: Mapping[str, str] = {"content-type": content_type}
        self._request = request
        self._codec = codec
        self._pace = pace
        self._include_usage = include_usage
        self._chunks = self._write_chunks()
        self._ready_at = 0.0

    async def read(self, timeout: float | None = None) -> bytes | None:
        """The next frames of a stream, or the whole body."""
        loop = asyncio.get_running_loop()
        wait = max(0.0, self._ready_at - loop.time())
        await asyncio.sleep(wait if timeout is None else min(wait, timeout))
        if timeout is not None and wait > timeout:
            return None
        self._ready_at = loop.time() + self._pace
        return next(self._chunks, b"")

    def _write_chunks(self) -> Iterator[bytes]:
        options = AnswerOptions(created=int(time.time()), include_usage=self._include_usage)
        writer = AnswerWriter(self._codec, options)
        if not self.streamed:
            response = fold(self._events(), Origin("offline", "weft", self._request.model))
            yield exact_json.dumps(writer.write_body(response).body)
            return
        for event in self._events():
            piece = writer.write([event])
            if frames := piece.now + piece.last:
                yield frames

    def _events(self) -> Iterator[Event]:
        """The events of the answer, with a new id: equal requests get equal text, not equal ids."""
        from weft.demo import answer_offline

        for event in answer_offline(self._request):
            if isinstance(event, Start):
                event = structs.replace(event, id=make_answer_id(self._codec.protocol))
            yield event

    def close(self) -> None:
        """Does nothing: there is no connection."""


class CallLimits(Struct, frozen=True, kw_only=True):
    """Limits of one upstream call, in seconds and bytes.

    `first_byte` is the limit from the start of the call to the first byte of the answer's body, and
    `idle` the limit between two chunks of it. `connections` is the number of calls that one
    upstream gets at the same time; further calls wait for `acquire` seconds, and then fail.
    """

    acquire: float = 10.0
    connect: float = 10.0
    first_byte: float = 600.0
    idle: float = 300.0
    total: float = 3600.0
    answer_bytes: int = 32 * 1024 * 1024
    connections: int = 4096


class HttpClient:
    """The connections to all upstreams."""

    def __init__(
        self, limits: CallLimits | None = None, *, environ: Mapping[str, str] | None = None
    ) -> None:
        """`environ` has the proxies; by default, the environment of the process."""
        self.limits = limits or CallLimits()
        self._environ = os.environ if environ is None else environ
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
        *,
        owner: str = "",
    ) -> Reply:
        """Send a body; retries as the policy says, then raises `UpstreamFailed`.

        `on_retry` is called before the wait for each retry. Callers with different values of
        `owner` never share a connection.
        """
        return await self._get_pool().call(
            "POST", provider, path, body, headers, policy, on_retry, owner
        )

    async def send(
        self,
        method: str,
        provider: Provider,
        path: str,
        body: bytes | AsyncIterator[bytes] | None,
        headers: Mapping[str, str],
        policy: RetryPolicy = GATEWAY_RETRY,
        *,
        owner: str = "",
    ) -> Reply:
        """Make any call; fails like `post`. The body and the answer may have any size.

        The caller must not keep the answer: only error answers are limited.
        """
        limits = structs.replace(self.limits, answer_bytes=sys.maxsize)
        return await self._get_pool().call(
            method, provider, path, body, headers, policy, owner=owner, limits=limits
        )

    async def get(
        self,
        provider: Provider,
        path: str,
        headers: Mapping[str, str],
        policy: RetryPolicy,
        *,
        owner: str = "",
    ) -> Reply:
        """Fetch a resource; retries and fails like `post`."""
        return await self._get_pool().call(
            "GET", provider, path, None, headers, policy, owner=owner
        )

    def _get_pool(self) -> "Pool":
        if self._pool is None:
            from .pool import Pool

            self._pool = Pool(self.limits, read_proxies(self._environ))
        return self._pool
