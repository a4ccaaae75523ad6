"""Sends a request to a model and returns the answer, whole or as events.

`stream` yields the events of an answer. Every failure is one `Fail` event, whether the upstream
refused the request, could not be reached or broke off. `ask` waits for the whole answer, and
`ModelClient` does the same for code without an event loop.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from copy import copy
from threading import Thread

from msgspec import Struct, structs

from weft import exact_json
from weft.catalog import Catalog, Model
from weft.codec import CODECS, AnswerReader, Codec, error_of, write_request
from weft.errors import Refused, UpstreamError
from weft.model import ApiError, Event, Fail, Fold, Loss, Request, Response

from .http import (
    AGENT_RETRY,
    END_SECONDS,
    RETRYABLE_STATUSES,
    UNREACHED,
    CallLimits,
    HttpClient,
    Reply,
    Retry,
    RetryPolicy,
    read_all,
)
from .models import Route
from .provider import OFFLINE, Provider

ERROR_CHARACTERS = 1000
"""An error body that is not JSON becomes the message, up to this many characters."""


SUMMARY_RETRIES = 3
"""How often a summary request is repeated, if nothing else is configured."""


def summary_client(route: Route, catalog: Catalog, retries: int | None = None) -> "ModelClient":
    """A client for the model that writes summaries; `retries` is `SUMMARY_RETRIES` by default."""
    attempts = 1 + (SUMMARY_RETRIES if retries is None else retries)
    policy = RetryPolicy(attempts=attempts, statuses=RETRYABLE_STATUSES | {UNREACHED})
    return ModelClient(route.provider, route.model, catalog, policy=policy)


class ModelClient:
    """One model of one provider, asked synchronously; `model` is its row in the catalogue."""

    def __init__(
        self,
        provider: Provider,
        name: str,
        catalog: Catalog,
        *,
        policy: RetryPolicy = AGENT_RETRY,
        idle: float | None = None,
        on_retry: Callable[[Retry], None] | None = None,
    ) -> None:
        """`idle` is the longest pause in an answer, in seconds; `CallLimits` has the default.

        `on_retry` is called before the wait for each retry, in a worker thread of the client.
        """
        self.model: Model = catalog.find(name, provider.name)
        self._provider = provider
        self._catalog = catalog
        self._policy = policy
        self._on_retry = on_retry
        self._limits = CallLimits() if idle is None else CallLimits(first_byte=idle, idle=idle)

    def with_on_retry(self, on_retry: Callable[[Retry], None]) -> "ModelClient":
        """The same client with another `on_retry`."""
        client = copy(self)
        client._on_retry = on_retry
        return client

    def ask(self, request: Request) -> Response | ApiError:
        """The whole answer, or the error that came instead."""
        answers: list[Response | ApiError] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                answers.append(asyncio.run(self._ask(request)))
            except BaseException as error:
                errors.append(error)

        # In a worker thread, because the caller may be inside a running event loop (a notebook).
        # It is a daemon, because a caller that stops waiting must be able to exit.
        thread = Thread(target=run, name="weft-ask", daemon=True)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return answers[0]

    async def _ask(self, request: Request) -> Response | ApiError:
        async with HttpClient(self._limits) as http:
            return await ask(
                http,
                self._provider,
                request,
                catalog=self._catalog,
                policy=self._policy,
                on_retry=self._on_retry,
            )


async def ask(
    http: HttpClient,
    provider: Provider,
    request: Request,
    *,
    catalog: Catalog,
    policy: RetryPolicy = AGENT_RETRY,
    on_retry: Callable[[Retry], None] | None = None,
) -> Response | ApiError:
    """The whole answer, or the error that came instead; an upstream's failure is not raised."""
    fold = Fold(provider.origin(request.model))
    events = stream(http, provider, request, catalog=catalog, policy=policy, on_retry=on_retry)
    try:
        async for event in events:
            fold.send(event)
    except UpstreamError as error:
        return error_of(error)
    return fold.error or fold.response()


class SentBody(Struct, frozen=True):
    """The body of a request, and what its translation lost."""

    body: bytes
    losses: tuple[Loss, ...] = ()


async def stream(
    http: HttpClient,
    provider: Provider,
    request: Request,
    *,
    catalog: Catalog,
    policy: RetryPolicy = AGENT_RETRY,
    pace: float = 0.0,
    on_body: Callable[[SentBody], None] | None = None,
    on_retry: Callable[[Retry], None] | None = None,
) -> AsyncIterator[Event]:
    """The events of the answer, ending in `End` or `Fail`.

    `on_body` is called with the body before it is sent. `on_retry` is called before the wait for
    each retry; all retries come before the first event. `pace` is the pause between two events of
    the offline model, in seconds.
    """
    if provider is OFFLINE:
        async for event in _stream_offline(request, pace, on_body):
            yield event
        return
    codec = CODECS[provider.protocol]
    try:
        sent = write_body(provider, request, catalog)
        if on_body is not None:
            on_body(sent)
        reply = await _post(http, provider, request, sent.body, policy, on_retry)
        try:
            async for event in _read_events(reply, codec):
                yield _without_secrets(event, reply)
        finally:
            reply.close()
    except Refused as error:
        yield Fail(ApiError("invalid_request", str(error), error.status, param=error.param))
    except UpstreamError as error:
        yield Fail(error_of(error))


async def _stream_offline(
    request: Request, pace: float, on_body: Callable[[SentBody], None] | None
) -> AsyncIterator[Event]:
    from weft.demo import answer_offline, read_offline, write_offline

    body = write_offline(request)
    if on_body is not None:
        on_body(SentBody(body))
    for event in answer_offline(read_offline(body)):
        yield event
        await asyncio.sleep(pace)


def write_body(provider: Provider, request: Request, catalog: Catalog) -> SentBody:
    """The streaming request body for this provider; raises `Refused`."""
    streaming = structs.replace(request, params=structs.replace(request.params, stream=True))
    target = provider.target(catalog, request.model)
    written = write_request(streaming, CODECS[provider.protocol], target)
    body = provider.write_body(written.body, target.model, streams=True)
    return SentBody(body, tuple(written.losses))


async def _post(
    http: HttpClient,
    provider: Provider,
    request: Request,
    body: bytes,
    policy: RetryPolicy,
    on_retry: Callable[[Retry], None] | None,
) -> Reply:
    headers = {
        "content-type": "application/json",
        "accept": "text/event-stream",
        **dict(provider.headers),
        **provider.auth_headers(),
    }
    path = CODECS[provider.protocol].request_path(request.model, True)
    return await http.post(provider, path, body, headers, policy, on_retry)


def _without_secrets(event: Event, reply: Reply) -> Event:
    if not isinstance(event, Fail):
        return event
    return structs.replace(event, error=reply.secrets.redact_error(event.error))


async def _read_events(reply: Reply, codec: Codec) -> AsyncIterator[Event]:
    if reply.status >= 400:
        yield Fail(read_error(codec, await read_all(reply), reply.status))
        return
    if not 200 <= reply.status < 300:
        yield Fail(ApiError("server", f"the upstream answered with status {reply.status}", 502))
        return
    # The fold checks the order of events here, once, so that no caller has to.
    reader, fold = AnswerReader(codec), Fold()
    while chunk := await _read_chunk(reply, reader):
        for event in reader.feed(chunk):
            fold.send(event)
            yield event
            if fold.ended:
                return
    for event in reader.close():
        fold.send(event)
        yield event
        if fold.ended:
            return


async def _read_chunk(reply: Reply, reader: AnswerReader) -> bytes | None:
    """The next bytes; empty or None at the end.

    When the answer is whole, only token counts and an end marker can follow. If the connection then
    breaks, or nothing comes for `END_SECONDS`, the answer has ended.
    """
    if not reader.is_complete:
        return await reply.read()
    try:
        return await reply.read(END_SECONDS)
    except UpstreamError:
        return b""


def read_error(codec: Codec, body: bytes, status: int) -> ApiError:
    """The error in an upstream's body; a body that is not JSON becomes the message."""
    try:
        raw = exact_json.loads(body)
    except exact_json.JSONDecodeError:
        raw = body.decode("utf-8", "replace")[:ERROR_CHARACTERS]
    return codec.decode_error(raw, status)
