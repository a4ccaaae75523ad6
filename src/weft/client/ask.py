"""Asking a model from Python: a request goes out, events come back.

What the agent loop uses, and anything else that has a `Request` and wants an answer. Every
failure arrives as one `Fail` event, whether the upstream refused, could not be reached or broke
off: whoever folds the events has one place to look.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import orjson
from msgspec import structs

from weft.catalog import Catalog
from weft.codec import CODECS, AnswerReader, Codec, error_of, failed
from weft.demo.offline import answer, read_offline, write_offline
from weft.errors import Refused, UpstreamProtocolError
from weft.model import ApiError, Event, Fail, Fold, Origin, Request, Response

from .http import Wire
from .provider import OFFLINE, Provider
from .reply import Reply, read_all
from .retry import LOOP, Policy


async def stream(
    wire: Wire,
    provider: Provider,
    request: Request,
    *,
    catalog: Catalog,
    policy: Policy = LOOP,
    pace: float = 0.0,
    leaves: Callable[[bytes], None] | None = None,
) -> AsyncIterator[Event]:
    """The events of the answer, ending in `End` or `Fail`; `leaves` is told the body that goes."""
    tell = leaves or _nobody
    if provider is OFFLINE:
        body = write_offline(request)
        tell(body)
        for event in answer(read_offline(body)):
            yield event
            await asyncio.sleep(pace)
        return
    codec = CODECS[provider.protocol]
    try:
        body = write_body(provider, request, catalog)
        tell(body)
        reply = await _post(wire, provider, request, body, policy)
        try:
            async for event in _events(reply, codec):
                yield event
        finally:
            reply.close()
    except Refused as error:
        yield Fail(ApiError("invalid_request", str(error), error.status, param=error.param))
    except UpstreamProtocolError as error:
        yield Fail(error_of(error))


async def send(
    wire: Wire, provider: Provider, request: Request, *, catalog: Catalog, policy: Policy = LOOP
) -> Response:
    """The whole answer; raises `UpstreamFailed` where there is none."""
    folding = Fold(origin_of(provider, request.model))
    async for event in stream(wire, provider, request, catalog=catalog, policy=policy):
        folding.send(event)
    if folding.error is not None:
        raise failed(folding.error)
    return folding.response()


def origin_of(provider: Provider, model: str) -> Origin:
    """Who made an answer of this provider's."""
    return Origin(provider.protocol, provider.name, model)


def write_body(provider: Provider, request: Request, catalog: Catalog) -> bytes:
    """The request as this provider is sent it, streaming; raises `Refused`."""
    wanted = structs.replace(request, params=structs.replace(request.params, stream=True))
    target = provider.target(catalog, request.model)
    encoded = CODECS[provider.protocol].encode_request(wanted, target)
    return provider.write_body(encoded.body, target.model, streams=True)


def _nobody(body: bytes) -> None:
    """Nobody wants to know."""


async def _post(
    wire: Wire, provider: Provider, request: Request, body: bytes, policy: Policy
) -> Reply:
    headers = {
        "content-type": "application/json",
        "accept": "text/event-stream",
        **dict(provider.headers),
        **provider.auth_headers(),
    }
    path = CODECS[provider.protocol].request_path(request.model, True)
    return await wire.post(provider, path, body, headers, policy)


async def _events(reply: Reply, codec: Codec) -> AsyncIterator[Event]:
    if reply.status >= 400:
        yield Fail(read_error(codec, await read_all(reply), reply.status))
        return
    if not 200 <= reply.status < 300:
        yield Fail(ApiError("server", f"the upstream answered with status {reply.status}", 502))
        return
    reader, order = AnswerReader(codec), Fold()
    while chunk := await reply.read():
        for event in reader.feed(chunk):
            order.send(event)  # raises where no fold could take it, so that no caller has to look
            yield event
            if order.ended:
                return
    for event in reader.close():
        order.send(event)
        yield event
        if order.ended:
            return


def read_error(codec: Codec, body: bytes, status: int) -> ApiError:
    """An upstream's error in our words; a body that is no JSON is taken as its text."""
    try:
        raw = orjson.loads(body)
    except orjson.JSONDecodeError:
        raw = body.decode("utf-8", "replace")[:1000]
    return codec.decode_error(raw, status)
