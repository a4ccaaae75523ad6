"""The data plane: one short straight road for every request to every model.

    admit → read → decode → route → file the request → write → send → relay → file the answer

Where the upstream speaks the caller's protocol its bytes pass untouched, except for the model's
name and the credentials; a copy is decoded for the record. Anywhere else the translation stands
between, and says in a header what it could not carry.

Promises that hold on every road: the request is durable before the first byte of the answer goes
out, the answer before its last; an error reaches the caller in the dialect it speaks; what an
upstream left unfinished never ends like a success.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from uuid import uuid4

import orjson
from msgspec import Struct, field, structs

from weft.client import (
    OFFLINE,
    RELAY,
    STREAM_TYPE,
    OfflineReply,
    Reply,
    Route,
    find_route,
    read_error,
    shape_id,
)
from weft.codec import (
    CODECS,
    AnswerOptions,
    AnswerTranslator,
    AnswerWriter,
    Codec,
    Piece,
    concerns_restored,
    failed,
    form_of,
    replace_answers,
)
from weft.errors import Refused, StoreError, UpstreamFailed, UpstreamProtocolError
from weft.model import (
    ApiError,
    Fail,
    JsonObject,
    Loss,
    Params,
    Request,
    Response,
    Start,
)

from .asgi import ClientLeft, Inbound, Outbound, parse_body
from .auth import Caller, admit, brings_credentials, own_name
from .codex_compaction import (
    CompactionRelay,
    CompactionRequest,
    ask_for_summary,
    may_hold_summaries,
    open_summaries,
    read_compaction_request,
    seal_summary,
    write_compacted_list,
)
from .errors import failure, refusal
from .exchange_log import ExchangeLog
from .google import read_address
from .guard import Guard
from .hints import is_retry, read_hint
from .identity import Continuation
from .outgoing import Outgoing, is_direct, loss_header, returned_headers, write_outgoing
from .recorder import Recording
from .relay import PassThroughRelay, Relay, keepalive, wants_usage
from .resume import (
    join,
    read_previous_id,
    read_states,
    unknown_previous_id,
    unknown_state,
    without_previous_id,
)
from .state import State

STREAM_HEADERS = (("content-type", STREAM_TYPE), ("cache-control", "no-cache"))

CLIENT_LEFT = ApiError("server", "the client closed the connection", 499, code="client_left")
"""Never sent to anyone; it is the reason why an answer stayed unfinished."""


class Attempt:
    """How an exchange with an upstream ended: the stream as far as it came, and its failure."""

    def __init__(self) -> None:
        self.relay: Relay | None = None
        self.error: ApiError | None = None
        self.is_recorded = False

    @property
    def partial(self) -> bool:
        """Whether something of an answer arrived before it failed."""
        return self.error is not None and self.relay is not None and self.relay.started


class ReadBody(Struct, frozen=True):
    """A body as it will be forwarded, its JSON, the request in it and where that goes.

    `readable` is whether the request may be recorded; `wish` is there where the caller wants its
    conversation compacted and Weft does it.
    """

    body: bytes
    raw: JsonObject
    request: Request
    route: Route
    readable: bool
    wish: CompactionRequest | None


class Exchange(Struct, frozen=True):
    """All that is known about one exchange once its upstream is asked.

    `recording` is there where the exchange is recorded. `wish` is there where the caller wants its
    conversation compacted, and the answer is the summary.
    """

    state: State
    codec: Codec
    route: Route
    request: Request
    outgoing: Outgoing
    recording: Recording | None
    log: ExchangeLog
    costs: bool
    guard: Guard
    wish: CompactionRequest | None = None
    attempt: Attempt = field(default_factory=Attempt)

    @property
    def direct(self) -> bool:
        """Whether the answer comes in the caller's own protocol."""
        return is_direct(self.route, self.codec)

    def headers(self, reply: Reply | None = None) -> list[tuple[str, str]]:
        """The answer's headers: ours, and those of the upstream's that concern the caller."""
        own = [("x-weft-losses", loss_header(self.outgoing.losses))]
        own.append(("x-weft-recorded", "no" if self.recording is None else self.recording.state))
        if self.recording is not None and self.recording.ticket is not None:
            own.append(("x-weft-thread", self.recording.ticket.thread))
        return own if reply is None else own + returned_headers(reply.headers)


async def converse(
    state: State, codec: Codec, inbound: Inbound, outbound: Outbound, log: ExchangeLog
) -> None:
    """Answer one request of this protocol; whatever fails, the caller is told in its own words."""
    try:
        await _handle(state, codec, inbound, outbound, log)
    except ClientLeft:
        log.outcome = "client_left"
    except Refused as error:
        log.outcome = "refused"
        await _answer_error(codec, refusal(error), outbound, log)
    except (UpstreamProtocolError, StoreError) as error:
        log.outcome = "store_failed" if isinstance(error, StoreError) else "upstream_failed"
        await _answer_error(codec, failure(error), outbound, log)


async def _handle(
    state: State, codec: Codec, inbound: Inbound, outbound: Outbound, log: ExchangeLog
) -> None:
    caller = admit(inbound.headers, state.settings)
    body = await inbound.read(state.settings.max_body)
    read = await state.large_bodies.run(len(body), _read_body, state, codec, body, inbound)
    body, raw, request, route = read.body, read.raw, read.request, read.route
    readable, wish = read.readable, read.wish
    log.model, log.upstream = request.model, route.provider.name
    await _refuse_foreign_state(state, codec, raw, caller)
    link = read_previous_id(codec.protocol, raw)
    named = None
    if link is not None and readable:
        request, named = await _resume(state, codec, route, request, caller, link)
    told = request
    recording = outgoing = None
    if is_direct(route, codec) or not _has_answers(request):
        # Nothing is put back into it, so a request that is refused here is not recorded.
        outgoing = await state.large_bodies.run(
            len(body), write_outgoing, state, codec, route, request, body, inbound
        )
    if not readable:
        log.outcome = "unread"
    elif state.recorder is not None:
        hint = read_hint(inbound.headers, request)
        recording = await state.recorder.begin(
            caller.scope,
            None if hint is None else own_name(caller, hint),
            request,
            maker=None if is_direct(route, codec) else route.maker,
            is_retry=is_retry(inbound.headers),
            named=named,
        )
        told = replace_answers(request, recording.answers)
    if outgoing is None:
        try:
            outgoing = await state.large_bodies.run(
                len(body), write_outgoing, state, codec, route, told, body, inbound
            )
        except Refused as error:
            if state.recorder is not None and recording is not None:
                await state.recorder.fail(recording, refusal(error))
            raise
    if state.recorder is not None and recording is not None:
        if recording.ticket is not None:
            log.thread, log.branch = recording.ticket.thread, recording.ticket.branch
        spoken = codec if is_direct(route, codec) else CODECS[route.provider.protocol]
        state.recorder.keep_sent(recording, outgoing.body, spoken.protocol, route.model)
    log.losses = len(outgoing.losses)
    costs = wants_usage(codec.protocol, raw)
    async with Guard(inbound, state.gate) as guard:
        exchange = Exchange(
            state, codec, route, request, outgoing, recording, log, costs, guard, wish
        )
        echoed = None if told is request else partial(_as_echoed, exchange, body, inbound)
        await _attempt(exchange, echoed, outbound)


async def _attempt(
    exchange: Exchange, echoed: Callable[[], Exchange] | None, outbound: Outbound
) -> None:
    """Answer the request; however that ends, it is recorded."""
    attempt = exchange.attempt
    try:
        await _answer(exchange, echoed, outbound)
    except ClientLeft:
        attempt.error = CLIENT_LEFT
        raise
    except UpstreamProtocolError as error:
        attempt.error, exchange.log.outcome = failure(error), "upstream_failed"
        await _end_attempt(exchange)  # the caller may ask again at once
        await _send_error(exchange, attempt.error, exchange.headers(), outbound)
    except (Refused, StoreError) as error:
        attempt.error = failure(error)
        raise
    finally:
        await _end_attempt(exchange)


async def _answer(
    exchange: Exchange, echoed: Callable[[], Exchange] | None, outbound: Outbound
) -> None:
    """Ask the upstream and relay its answer.

    Where it refuses content of earlier answers that was restored, it is asked once more without:
    `echoed` gives that request. If it refuses this one too, the caller gets the error that is about
    what the caller itself wrote.
    """
    refused = await _try(exchange, outbound)
    if refused is None:
        return
    if echoed is not None and concerns_restored(refused.error):
        again = echoed()
        second = await _try(again, outbound)
        if second is None:
            return
        if not concerns_restored(second.error):
            exchange, refused = again, second
    await _relay_refusal(exchange, refused, outbound)


async def _try(exchange: Exchange, outbound: Outbound) -> "Refusal | None":
    """Ask the upstream and relay its answer; returns the error where it answers with one."""
    reply = await _ask(exchange)
    try:
        if not 200 <= reply.status < 300:
            return await _read_refusal(exchange, reply)
        await _relay(exchange, reply, outbound)
        return None
    finally:
        reply.close()


async def _end_attempt(exchange: Exchange) -> None:
    """Record why there is no answer, and the part of it that arrived; once per exchange.

    Every exchange that reached its upstream passes here, however it ended.
    """
    attempt, log = exchange.attempt, exchange.log
    if attempt.error is None or attempt.is_recorded:
        return
    attempt.is_recorded = True
    log.error = attempt.error.code or attempt.error.kind
    log.partial = attempt.partial
    recorder, recording = exchange.state.recorder, exchange.recording
    if recorder is not None and recording is not None:
        relay = attempt.relay if attempt.partial else None
        message = None if relay is None else relay.response.message
        await recorder.fail(recording, attempt.error, message)


def _read_body(state: State, codec: Codec, body: bytes, inbound: Inbound) -> ReadBody:
    """The request that a body holds; raises `Refused`."""
    raw = parse_body(body)
    if may_hold_summaries(codec.protocol, body):
        raw = open_summaries(raw)
        body = orjson.dumps(raw)
    request, route, readable = read_request(state, codec, raw, inbound)
    wish = read_compaction_request(codec.protocol, inbound.path, raw)
    if wish is not None and _compacts(route, codec):
        readable, wish = readable and wish.kept is None, None  # a list is no turn to be recorded
    elif wish is not None:
        raw = ask_for_summary(raw)
        body = orjson.dumps(raw)
        request, route, readable = read_request(state, codec, raw, inbound)
    return ReadBody(body, raw, request, route, readable, wish)


def read_request(
    state: State, codec: Codec, raw: JsonObject, inbound: Inbound
) -> tuple[Request, Route, bool]:
    """The request, who answers it, and whether we could read it.

    An upstream of the caller's own protocol judges its bodies itself: what we cannot read still
    goes there, and is only not recorded. Anywhere else it is refused.
    """
    address = read_address(inbound.path)
    pays = brings_credentials(inbound.headers, state.settings, codec.protocol)
    try:
        request = codec.decode_request(without_previous_id(codec.protocol, raw), address.model)
    except Refused:
        model = address.model or raw.get("model")
        if not isinstance(model, str):
            raise
        route = find_route(model, codec.protocol, state.providers, state.catalog, pays=pays)
        if route.provider is OFFLINE or not is_direct(route, codec):
            raise
        streams = bool(raw.get("stream")) if address.streams is None else address.streams
        return Request(model, (), params=Params(stream=streams)), route, False
    if address.streams is not None:
        params = structs.replace(request.params, stream=address.streams)
        request = structs.replace(request, params=params)
    route = find_route(request.model, codec.protocol, state.providers, state.catalog, pays=pays)
    return request, route, True


def _compacts(route: Route, codec: Codec) -> bool:
    """Whether whoever answers may know how to compact in the caller's protocol."""
    return route.provider is not OFFLINE and is_direct(route, codec)


def _as_echoed(exchange: Exchange, body: bytes, inbound: Inbound) -> Exchange:
    """The exchange with every answer as the caller echoes it, and none put back."""
    state, codec, route, recording = (
        exchange.state,
        exchange.codec,
        exchange.route,
        exchange.recording,
    )
    outgoing = write_outgoing(state, codec, route, exchange.request, body, inbound)
    if state.recorder is not None and recording is not None:
        wire = route.provider.protocol
        state.recorder.keep_sent(recording, outgoing.body, wire, route.model)
    exchange.log.losses = len(outgoing.losses)
    return structs.replace(exchange, outgoing=outgoing)


def _has_answers(request: Request) -> bool:
    return any(message.role == "assistant" for message in request.messages)


async def _resume(
    state: State, codec: Codec, route: Route, request: Request, caller: Caller, link: str
) -> tuple[Request, Continuation | None]:
    """The whole of a conversation that was left with the server, and the place it continues.

    An upstream that keeps it itself may know an id that we do not.
    """
    before = None if state.recorder is None else await state.recorder.before(caller.scope, link)
    if before is not None:
        return join(codec.protocol, before, request)
    if route.provider is OFFLINE or not is_direct(route, codec):
        raise unknown_previous_id(codec.protocol, link)
    return request, None


async def _refuse_foreign_state(
    state: State, codec: Codec, raw: JsonObject, caller: Caller
) -> None:
    """Raises `Refused` for state at the vendor that this caller did not get from here.

    Without keys all callers are one person's programs, and the vendor judges.
    """
    if not state.settings.keys:
        return
    recorder, link = state.recorder, read_previous_id(codec.protocol, raw)
    if link is not None and (recorder is None or await recorder.before(caller.scope, link) is None):
        raise unknown_previous_id(codec.protocol, link)
    for path, id in read_states(codec.protocol, raw):
        if recorder is None or not await recorder.has_token(caller.scope, id):
            raise unknown_state(path, id)


async def _ask(exchange: Exchange) -> Reply:
    """Send the request to whoever answers it."""
    state, route, outgoing = exchange.state, exchange.route, exchange.outgoing
    if route.provider is OFFLINE:
        pace = state.settings.offline_pace
        return OfflineReply(
            exchange.request, exchange.codec, pace=pace, include_usage=exchange.costs
        )
    with exchange.guard.waiting():
        return await state.wire.post(
            route.provider, outgoing.path, outgoing.body, outgoing.headers, RELAY
        )


class Refusal(Struct, frozen=True):
    """An upstream's error: as it came, and as the one value that every protocol's is written from.

    `raw` is its JSON object, or None where it is none.
    """

    status: int
    body: bytes
    headers: Sequence[tuple[str, str]]
    kind: str
    raw: JsonObject | None
    error: ApiError


async def _read_refusal(exchange: Exchange, reply: Reply) -> Refusal:
    """The error of a reply; raises `UpstreamFailed` where its status is none of an error."""
    if reply.status < 400:
        name = exchange.route.provider.name
        raise UpstreamFailed(f"upstream {name!r} answered with status {reply.status}")
    body = await exchange.guard.read_all(reply)
    error = read_error(CODECS[exchange.route.provider.protocol], body, reply.status)
    kind = reply.headers.get("content-type", "application/json")
    try:
        raw = parse_body(body)
    except Refused:
        raw = None
    return Refusal(reply.status, body, exchange.headers(reply), kind, raw, error)


async def _relay_refusal(exchange: Exchange, refused: Refusal, outbound: Outbound) -> None:
    """An upstream's error: its own bytes, or the same error in the caller's protocol."""
    log = exchange.log
    log.outcome, exchange.attempt.error = "upstream_refused", refused.error
    await _end_attempt(exchange)  # the caller may ask again at once
    if not exchange.direct or _needs_words(exchange, refused):
        await _send_error(exchange, refused.error, refused.headers, outbound)
        return
    log.status = refused.status
    headers = [*refused.headers, ("content-type", refused.kind)]
    await outbound.send(refused.status, refused.body, headers)


def _needs_words(exchange: Exchange, refused: Refusal) -> bool:
    """Whether an error about the context window lacks what clients of its own protocol recognise it
    by. Any other error of the caller's protocol goes on as it came."""
    if refused.error.kind != "context_length":
        return False
    if exchange.request.params.stream and refused.error.kind in exchange.codec.stream_errors:
        return True
    return exchange.codec.encode_error(refused.error) != (refused.status, refused.raw)


async def _send_error(
    exchange: Exchange, error: ApiError, headers: Sequence[tuple[str, str]], outbound: Outbound
) -> None:
    """An error with a status, or as a stream where clients recognise it only there.

    Once a stream is under way its own error form has already been sent.
    """
    codec, log = exchange.codec, exchange.log
    if outbound.started:
        await outbound.finish()
        return
    if exchange.request.params.stream and error.kind in codec.stream_errors:
        log.status, log.streamed = 200, True
        writer = AnswerWriter(codec, AnswerOptions(created=int(time.time())))
        start = Start(shape_id(codec.protocol), exchange.request.model)
        await outbound.start(200, [*STREAM_HEADERS, *headers])
        await outbound.finish(writer.write([start, Fail(error)]).now)
        return
    log.status, wire = codec.encode_error(error)
    await outbound.send(log.status, orjson.dumps(wire), headers)


async def _relay(exchange: Exchange, reply: Reply, outbound: Outbound) -> None:
    """An answer in the form that the caller asked for, whichever form it comes in."""
    if exchange.request.params.stream:
        await _relay_stream(exchange, reply, outbound)
    else:
        await _relay_body(exchange, reply, outbound)


async def _relay_body(exchange: Exchange, reply: Reply, outbound: Outbound) -> None:
    """Relay a whole answer; it is sent when it is stored."""
    body = await exchange.guard.read_all(reply)
    losses = exchange.outgoing.losses
    worker = exchange.state.large_bodies
    is_as_asked = exchange.direct and form_of(body) == "body"
    translator = _translator(exchange)
    try:
        answer = await worker.run(len(body), _read_answer, translator, body)
    except UpstreamFailed as error:
        if not is_as_asked or not error.native:
            raise
        answer, exchange.log.outcome = None, "upstream_failed"
        exchange.attempt.error = failure(error)
        await _end_attempt(exchange)
    if answer is None and not is_as_asked:
        raise _unreadable(exchange)
    if answer is not None:
        if exchange.wish is not None or not is_as_asked:
            written = await worker.run(len(body), _write_answer, exchange, translator, *answer)
            body, losses = written[0], (*losses, *written[1])
        await _file(exchange, answer[1])
    exchange.log.status, exchange.log.losses = reply.status, len(losses)
    exchange.log.first_byte()
    headers = [("x-weft-losses", loss_header(losses)), *exchange.headers(reply)[1:]]
    await outbound.send(reply.status, body, headers)


def _translator(exchange: Exchange) -> AnswerTranslator:
    """The translator from the upstream's protocol to the client's."""
    source = exchange.codec if exchange.direct else CODECS[exchange.route.provider.protocol]
    return AnswerTranslator(source, exchange.codec, _options(exchange), exchange.route.maker)


def _options(exchange: Exchange) -> AnswerOptions:
    """How the answer is written. Ids of an upstream of the client's own protocol stay as they are:
    the client may use them to ask that upstream."""
    codec, provider = exchange.codec, exchange.route.provider
    return AnswerOptions(
        created=int(time.time()),
        calls=exchange.outgoing.calls,
        thinking=provider.thinking or exchange.state.settings.thinking,
        include_usage=exchange.costs,
        shape_id=None if exchange.direct else partial(shape_id, codec.protocol),
        call_id_seed=None if exchange.direct else uuid4().hex[:16],
    )


def _read_answer(translator: AnswerTranslator, body: bytes) -> tuple[Response, Response] | None:
    """The original answer and the one for the client, or None for one that cannot be read.

    Raises `UpstreamFailed` if the answer is a failure.
    """
    try:
        return translator.read_body(body)
    except UpstreamFailed:
        raise
    except (Refused, UpstreamProtocolError):
        return None


def _write_answer(
    exchange: Exchange, translator: AnswerTranslator, original: Response, response: Response
) -> tuple[bytes, Sequence[Loss]]:
    """The body for the client; if it asked to compact, the sealed summary."""
    wish = exchange.wish
    if wish is None:
        encoded = translator.write_body(original, response)
        return orjson.dumps(encoded.body), encoded.losses
    writer = AnswerWriter(exchange.codec, _options(exchange))
    encoded = writer.write_body(seal_summary(response))
    body = encoded.body if wish.kept is None else write_compacted_list(encoded.body, wish.kept)
    return orjson.dumps(body), encoded.losses


def _unreadable(exchange: Exchange) -> UpstreamProtocolError:
    name = exchange.route.provider.name
    return UpstreamProtocolError(f"upstream {name!r} answered with something unreadable")


async def _relay_stream(exchange: Exchange, reply: Reply, outbound: Outbound) -> None:
    """An answer piece by piece; its last frame waits until the answer is stored."""
    relay = _open_relay(exchange)
    exchange.attempt.relay = relay
    exchange.log.streamed = True
    stored = False
    try:
        async for chunk in exchange.guard.chunks(reply, exchange.state.settings.ping_seconds):
            if chunk is None:
                await _write(exchange, reply, outbound, keepalive(exchange.codec.protocol))
                continue
            stored = await _pass(exchange, reply, outbound, relay, relay.feed(chunk), stored)
        await _pass(exchange, reply, outbound, relay, relay.close(), stored)
    except (UpstreamProtocolError, StoreError) as error:
        if not outbound.started:
            raise
        exchange.log.outcome = "cut"
        exchange.attempt.error = failure(error)
        await _end_attempt(exchange)
        await outbound.write(relay.fail(exchange.attempt.error))
    if relay.error is not None:
        exchange.log.outcome = "cut"
        exchange.attempt.error = exchange.attempt.error or relay.error
        await _end_attempt(exchange)
    elif not relay.ended and exchange.attempt.error is None:
        exchange.log.outcome = "unread"
    exchange.log.losses += len(relay.losses)
    await outbound.finish()


def _open_relay(exchange: Exchange) -> Relay:
    options = _options(exchange)
    if exchange.direct:
        plain = AnswerOptions(created=options.created, include_usage=options.include_usage)
        relay = PassThroughRelay(exchange.codec, plain, exchange.route.maker)
    else:
        relay = _translator(exchange)
    return relay if exchange.wish is None else CompactionRelay(relay, exchange.codec, options)


async def _pass(
    exchange: Exchange, reply: Reply, outbound: Outbound, relay: Relay, piece: Piece, stored: bool
) -> bool:
    """Send a piece; what must wait waits for the answer's commit. True once it is stored.

    An answer that fails before its first byte is an error with a status, which every client knows
    to retry; Codex does not read the frame that would say the same. Only an error that the upstream
    wrote in the caller's own protocol goes on as it came.
    """
    error = relay.error
    if error is not None and not outbound.started and not relay.relays_error:
        raise failed(error)
    await _write(exchange, reply, outbound, piece.now)
    if piece.last:
        if not stored and relay.ended:
            await _file(exchange, relay.response)
            stored = True
        await _write(exchange, reply, outbound, piece.last)
    return stored


async def _write(exchange: Exchange, reply: Reply, outbound: Outbound, data: bytes) -> None:
    if not data:
        return
    if not outbound.started:
        exchange.log.status = reply.status
        exchange.log.first_byte()
        await outbound.start(reply.status, [*STREAM_HEADERS, *exchange.headers(reply)])
    await outbound.write(data)


async def _file(exchange: Exchange, response: Response) -> None:
    """Make the answer durable."""
    exchange.log.usage = response.usage
    exchange.attempt.is_recorded = True
    recorder, recording = exchange.state.recorder, exchange.recording
    if recorder is not None and recording is not None:
        await recorder.finish(recording, response)
        if recording.ticket is not None:
            exchange.log.branch = recording.ticket.branch


async def _answer_error(
    codec: Codec, error: ApiError, outbound: Outbound, log: ExchangeLog
) -> None:
    """Tell the caller; once a stream is under way its own error form has already done so."""
    if outbound.started:
        await outbound.finish()
        return
    status, body = codec.encode_error(error)
    log.status = status
    headers = [] if log.thread is None else [("x-weft-thread", log.thread)]
    await outbound.send(status, orjson.dumps(body), headers)
