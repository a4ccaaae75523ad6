"""One exchange: a client's request, the upstream's answer, and the record of both.

`answer_request` does it in three steps:

1. `_handle` admits the caller and reads the body.
2. `STAGES` prepare the request, one after the other. Each one is a feature: it reads the exchange,
   and changes it where the feature applies.
3. `_ask` sends the request to the upstream, `_deliver` passes the answer on to the client.

A route is the provider that a request is sent to and the model's name there. That provider's server
is the upstream. If it speaks the client's protocol, the bytes of the request are forwarded, with
only the changes that `outgoing` lists, unless the conversation was edited in Weft. Otherwise the
request and the answer are translated, and the header `x-weft-losses` reports the losses.

A translated answer may lose parts that the client's protocol does not have, such as signed
thinking. The store has the whole answer. If the client sends the answer back (an echo), the whole
answer replaces it in the request for the upstream: it is restored.

What always holds:

- If exchanges are recorded, the request is durable before the first byte of the answer is sent, and
  the answer before its last byte. A body that cannot be decoded is not recorded.
- Errors reach the client in its own protocol.
- An answer that the upstream did not finish never ends like a success.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import ParamSpec, TypeVar
from uuid import uuid4

from msgspec import Struct, structs

from weft import exact_json
from weft.client import (
    END_SECONDS,
    GATEWAY_RETRY,
    OFFLINE,
    STREAM_TYPE,
    OfflineReply,
    Reply,
    Route,
    Secrets,
    find_route,
    make_answer_id,
    read_error,
)
from weft.codec import (
    CODECS,
    AnswerOptions,
    AnswerTranslator,
    AnswerWriter,
    Codec,
    Piece,
    Target,
    detect_form,
    is_about_restored_content,
    replace_answers,
    replace_messages,
    upstream_failed,
    write_request,
)
from weft.errors import Refused, StoreError, UpstreamError, UpstreamFailed, UpstreamProtocolError
from weft.model import (
    ApiError,
    Fail,
    JsonObject,
    Loss,
    Message,
    Params,
    Request,
    Response,
    Start,
    Usage,
)
from weft.thread import has_sealed_summaries, open as open_thread, with_portable_summaries

from .asgi import BodyCutOff, ClientLeft, Inbound, Outbound, parse_body
from .auth import Caller, admit_program, has_credentials, name_in_scope
from .bodies import ParsedBody, body_key, parse_reusing
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
from .hints import is_retry, is_side_question, read_hint, read_parent_hint, retry_count
from .identity import Continuation
from .live import LiveExchange
from .outgoing import (
    Outgoing,
    is_direct,
    loss_header,
    read_request_id,
    returned_headers,
    write_outgoing,
)
from .recorder import Recording
from .records import RequestLocation
from .relay import PassThroughRelay, Relay
from .restore import (
    join_conversation,
    read_previous_id,
    unknown_previous_id,
    unknown_stored_id,
    without_previous_id,
)
from .state import State

SYSTEM_MEMBERS = ("system", "instructions", "systemInstruction", "system_instruction")
"""Where protocols put the system prompt, if not among the messages."""

STREAM_HEADERS = (("content-type", STREAM_TYPE), ("cache-control", "no-cache"))

TOO_LONG = ("context_length", "too_large")
"""Errors by which an upstream says that the conversation does not fit its window."""

CLIENT_LEFT = ApiError("server", "the client closed the connection", 499, code="client_left")
"""Recorded as the reason for an unfinished answer; never sent."""

COMPACTED_RETRY = "the conversation was too long for the model; sent again after compaction"
UNRESTORED_RETRY = "the model refused restored thinking; sent again without it"

P = ParamSpec("P")
T = TypeVar("T")


class Exchange:
    """One request in progress, and what is known about it so far.

    - `body`: the client's request as bytes, with the changes of the stages so far.
    - `json_body`: the parsed body, without edits made in Weft.
    - `client_bytes`: the size of the body that the client sent.
    - `is_readable`: whether Weft could decode the body. If not, it is forwarded unrecorded.
    - `should_record`: whether the request is a turn of a conversation that can be recorded.
    - `decoded`: the request, if all of it was decoded from `json_body`. None for a body that could
      not be decoded, and for a request that names an earlier answer by its id.
    - `upstream_request`: the request with restored answers.
    - `compaction`: Codex's request to compact, if this is one.
    - `continuation`: the answer that the request names by its id.
    - `summary_losses`: the losses of `replace_sealed_summaries`.
    - `secrets`: the credentials of the request for the upstream.
    - `is_outcome_handled`: the answer or failure was recorded, if exchanges are recorded at all.
    """

    json_body: JsonObject
    request: Request
    upstream_request: Request
    route: Route
    guard: Guard

    def __init__(
        self,
        state: State,
        codec: Codec,
        inbound: Inbound,
        caller: Caller,
        log: ExchangeLog,
        body: bytes,
    ) -> None:
        self.state = state
        self.codec = codec
        self.inbound = inbound
        self.caller = caller
        self.log = log
        self.body = body
        self.client_bytes = len(body)
        self.is_readable = True
        self.should_record = True
        self.parsed: ParsedBody | None = None
        self.decoded: Request | None = None
        self.compaction: CompactionRequest | None = None
        self.continuation: Continuation | None = None
        self.recording: Recording | None = None
        self.relay: Relay | None = None
        self.live: LiveExchange | None = None
        self.error: ApiError | None = None
        self.secrets = Secrets()
        self.is_outcome_handled = False
        self.summary_losses: Sequence[Loss] = ()
        self._outgoing: Outgoing | None = None

    @property
    def parsed_body(self) -> ParsedBody | None:
        """The body as it was parsed, unless the request has been changed since."""
        parsed = self.parsed
        if parsed is None or parsed.raw is not self.json_body or parsed.body is not self.body:
            return None
        return parsed

    @property
    def outgoing(self) -> Outgoing:
        """The HTTP request that is sent to the upstream: path, headers, body."""
        if self._outgoing is None:
            raise RuntimeError("the request has not been written yet")
        return self._outgoing

    @outgoing.setter
    def outgoing(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self.log.losses = len(outgoing.losses)

    @property
    def may_record(self) -> bool:
        """Whether the settings allow to record this exchange."""
        return self.caller.records and (self.state.settings.record_unstored or self.is_stored)

    @property
    def is_stored(self) -> bool:
        """Whether the client lets the vendor store the answer, so that its id can be used later."""
        member = self.codec.http.store_member
        return member is None or self.json_body.get(member) is not False

    @property
    def is_written(self) -> bool:
        return self._outgoing is not None

    def discard_outgoing(self) -> None:
        """Drop the written request, because the request has changed: it must be written again."""
        self._outgoing = None

    @property
    def is_direct(self) -> bool:
        """Whether the upstream speaks the client's protocol."""
        return is_direct(self.route, self.codec)

    @property
    def is_offline(self) -> bool:
        return self.route.provider is OFFLINE

    @property
    def streams(self) -> bool:
        """Whether the client asked for a stream."""
        return bool(self.request.params.stream)

    @property
    def upstream_codec(self) -> Codec:
        """The codec of the upstream's protocol."""
        return self.codec if self.is_direct else CODECS[self.route.provider.protocol]

    @property
    def has_restored_answers(self) -> bool:
        """Whether answers or summaries were restored in the request for the upstream."""
        return self.upstream_request is not self.request

    @property
    def is_partial(self) -> bool:
        """Whether only a part of the answer arrived before it failed."""
        return self.error is not None and self.relay is not None and self.relay.started

    async def compute(self, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Run a function whose cost grows with the body; for a large body, in a worker thread."""
        return await self.state.large_bodies.run(len(self.body), function, *args, **options)

    def headers(
        self, reply: Reply | None = None, losses: tuple[Loss, ...] | None = None
    ) -> list[tuple[str, str]]:
        """The headers of the answer: Weft's own, and the upstream's that the client needs.

        `losses` are those of the whole exchange; by default, those of the request.
        """
        recording = self.recording
        losses = self.outgoing.losses if losses is None else losses
        headers = [("x-weft-losses", loss_header(losses))]
        headers.append(("x-weft-recorded", "no" if recording is None else recording.state))
        if recording is not None and recording.location is not None:
            headers.append(("x-weft-thread", recording.location.thread))
        return headers if reply is None else headers + returned_headers(reply.headers)


async def answer_request(
    state: State, codec: Codec, inbound: Inbound, outbound: Outbound, log: ExchangeLog
) -> None:
    """Answer one request; every failure is reported in the client's protocol."""
    try:
        await _handle(state, codec, inbound, outbound, log)
    except BodyCutOff as error:
        log.outcome = "client_left"
        await _send_final_error(codec, refusal(error.refusal), outbound, log)
    except ClientLeft:
        log.outcome = "client_left"
    except Refused as error:
        log.outcome = "refused"
        await _send_final_error(codec, refusal(error), outbound, log)
    except (UpstreamError, StoreError) as error:
        log.outcome = "store_failed" if isinstance(error, StoreError) else "upstream_failed"
        await _send_final_error(codec, failure(error), outbound, log)


async def _handle(
    state: State, codec: Codec, inbound: Inbound, outbound: Outbound, log: ExchangeLog
) -> None:
    caller = admit_program(inbound, state.settings)
    log.key = caller.name
    body = await inbound.read(state.settings.max_body)
    exchange = Exchange(state, codec, inbound, caller, log, body)
    for stage in STAGES:
        await stage(exchange)
    async with Guard(inbound, state.gate) as exchange.guard:
        await _answer(exchange, outbound)


# The stages; `STAGES`, after the last one, lists them in order.


async def parse_json(exchange: Exchange) -> None:
    """Parse the body; if exchanges are recorded, only what is new in its session."""
    recorder, codec, body = exchange.state.recorder, exchange.codec, exchange.body
    key = None
    if recorder is not None:
        key = body_key(exchange.caller.scope, codec.protocol, exchange.inbound.headers, body)
    if recorder is None or key is None:
        exchange.json_body = await exchange.compute(parse_body, body)
        return
    earlier = recorder.parsed_bodies.get(key)
    parsed = await exchange.compute(parse_reusing, body, codec.conversation_member, earlier)
    recorder.parsed_bodies.put(key, parsed)
    exchange.json_body, exchange.parsed = parsed.raw, parsed


async def open_sealed_summaries(exchange: Exchange) -> None:
    """Turn summaries that this gateway itself sealed for Codex back into text."""
    if may_hold_summaries(exchange.codec.protocol, exchange.body):
        exchange.json_body = await exchange.compute(open_summaries, exchange.json_body)
        exchange.body = await exchange.compute(exact_json.dumps, exchange.json_body)


async def decode_request(exchange: Exchange) -> None:
    """Decode the body, and find the route for its model."""
    parsed = exchange.parsed_body
    decoded_messages = () if parsed is None else parsed.messages
    exchange.request, exchange.route, exchange.is_readable = await exchange.compute(
        read_request,
        exchange.state,
        exchange.codec,
        exchange.json_body,
        exchange.inbound,
        decoded_messages,
    )
    if parsed is not None and exchange.is_readable and exchange.codec.decode_with_known is not None:
        parsed.keep_messages(exchange.request)
    exchange.should_record = exchange.is_readable
    exchange.decoded = None
    if exchange.is_readable and read_previous_id(exchange.codec, exchange.json_body) is None:
        exchange.decoded = exchange.request
    exchange.log.model = exchange.request.model
    exchange.log.upstream = exchange.route.provider.name


async def request_summary(exchange: Exchange) -> None:
    """Turn Codex's request to compact into a request for a summary in plain text.

    Upstreams of Codex's own protocol get the request unchanged.
    """
    compaction = read_compaction_request(
        exchange.codec.protocol, exchange.inbound.path, exchange.json_body
    )
    if compaction is None:
        return
    if exchange.is_direct and not exchange.is_offline:
        # This upstream may compact by itself. A compacted list is not a turn: do not record it.
        exchange.should_record = exchange.is_readable and compaction.retained_items is None
        return
    exchange.compaction = compaction
    exchange.json_body = ask_for_summary(exchange.json_body)
    exchange.body = await exchange.compute(exact_json.dumps, exchange.json_body)
    await decode_request(exchange)


async def resume_conversation(exchange: Exchange) -> None:
    """Add the stored conversation to a request that names an earlier answer by its id.

    If Weft does not know the id, it is passed on to an upstream of the client's protocol, which may
    know it. With keys configured, all callers share the upstream's account, so an id that Weft did
    not give to this caller is refused.
    """
    state, codec = exchange.state, exchange.codec
    previous_id = read_previous_id(codec, exchange.json_body)
    # With keys, the id is also checked in a request that is only forwarded.
    if previous_id is None or not (exchange.should_record or state.settings.keys):
        return
    conversation = None
    if state.recorder is not None:
        conversation = await state.recorder.read_conversation(exchange.caller.scope, previous_id)
    upstream_may_know_it = (
        exchange.is_direct and not exchange.is_offline and not state.settings.keys
    )
    if conversation is None and not upstream_may_know_it:
        raise unknown_previous_id(codec, previous_id)
    if conversation is not None and exchange.should_record:
        exchange.request, exchange.continuation = join_conversation(
            codec, conversation, exchange.request
        )


async def check_stored_ids(exchange: Exchange) -> None:
    """Refuse references to objects at the vendor that Weft did not give to this caller.

    Without keys configured, all callers are programs of one person, so only the vendor checks.
    """
    state, scope = exchange.state, exchange.caller.scope
    if not state.settings.keys:
        return
    for path, id in exchange.codec.http.stored_ids(exchange.json_body):
        if state.recorder is None or not await state.recorder.has_vendor_id(scope, id):
            raise unknown_stored_id(path, id)


async def write_unrestored(exchange: Exchange) -> None:
    """Write the outgoing request now if it has no answers that could be restored.

    So a request that cannot be translated is refused before it is recorded.
    """
    if exchange.is_direct or not _has_answers(exchange.request):
        exchange.outgoing = await _write(exchange, exchange.request)


async def record_request(exchange: Exchange) -> None:
    """Find the conversation, record its new messages, and restore earlier answers.

    One transaction does all three (`records.record_request`). Answers are only restored if a
    translation follows: an upstream of the client's protocol gets the client's own bytes.
    """
    state, inbound, request = exchange.state, exchange.inbound, exchange.request
    exchange.upstream_request = request
    if not exchange.is_readable:
        exchange.log.outcome = "unread"
    if exchange.should_record and exchange.may_record and state.recorder is not None:
        hint = read_hint(inbound.headers, request)
        has_previous_id = read_previous_id(exchange.codec, exchange.json_body) is not None
        parent = read_parent_hint(inbound.headers, request)
        exchange.recording = await state.recorder.begin(
            exchange.caller.scope,
            None if hint is None else name_in_scope(exchange.caller, hint),
            request,
            origin=None if exchange.is_direct else exchange.route.origin,
            is_retry=is_retry(inbound.headers),
            continuation=exchange.continuation,
            # With a previous id, the body has only the newest messages of the request.
            body=None if has_previous_id else exchange.body,
            parent=None if parent is None else name_in_scope(exchange.caller, parent),
        )
        exchange.upstream_request = replace_answers(request, exchange.recording.answers)


async def compact_to_fit(exchange: Exchange) -> None:
    """Compact the conversation if it would not fit the model's window (`auto_compact`)."""
    await _compact(exchange, force=False)


async def _compact(exchange: Exchange, *, force: bool) -> bool:
    """Compact the conversation if it does not fit, or in any case with `force`.

    Returns whether it was compacted.
    """
    compactor, recording = exchange.state.compactor, exchange.recording
    if compactor is None or recording is None or recording.location is None:
        return False
    if exchange.compaction is not None or is_side_question(exchange.request):
        return False
    model = exchange.state.catalog.find(exchange.route.model, exchange.route.provider.name)
    compacted = await compactor.compact_request(
        recording.location,
        model,
        exchange.request,
        exchange.client_bytes,
        recording.echoed_commits,
        force=force,
    )
    if compacted is None:
        return False
    recording.location, recording.edited_messages = compacted.location, compacted.messages
    exchange.log.compacted = compacted.result.method
    return True


async def apply_edits(exchange: Exchange) -> None:
    """Send the conversation as it was edited in Weft: compacted, pinned, with messages left out.

    The client still sends the unedited conversation. It is replaced even if the upstream speaks the
    client's protocol.
    """
    recording = exchange.recording
    if recording is None or recording.edited_messages is None:
        return
    request = replace_messages(exchange.request, recording.edited_messages)
    exchange.request = exchange.upstream_request = request
    exchange.discard_outgoing()
    if exchange.is_direct:
        exchange.body = await exchange.compute(_encode_client_body, exchange, request)


async def replace_sealed_summaries(exchange: Exchange) -> None:
    """Turn summaries that another vendor sealed (encrypted) into text.

    The thread still has the messages that they summarise, so nothing is lost by a change of vendor.
    The client's item is recorded unchanged.
    """
    location = None if exchange.recording is None else exchange.recording.location
    recorder = exchange.state.recorder
    if location is None or recorder is None or exchange.is_direct:
        return
    request = exchange.upstream_request
    if not has_sealed_summaries(request.messages, exchange.route.provider.protocol):
        return
    protocol = exchange.route.provider.protocol
    thread = open_thread(recorder.store, location.thread)
    # By its commit: an earlier request that is repeated is not at the end of a branch.
    portable_text = partial(thread.portable_summary, at=location.head)
    messages, exchange.summary_losses = await asyncio.to_thread(
        with_portable_summaries, request.messages, protocol, portable_text
    )
    exchange.upstream_request = replace_messages(request, messages)
    exchange.discard_outgoing()


def _encode_client_body(exchange: Exchange, request: Request) -> bytes:
    """The client's body, with the messages of another request.

    The messages are encoded from scratch (`wire=None`), as for another protocol: the thread may
    have blocks that the client's protocol does not have.
    """
    # The model as the client names it: the rules of the upstream's model are applied later.
    model = exchange.state.catalog.find(request.model)
    written = write_request(structs.replace(request, wire=None), exchange.codec, Target(model)).body
    names = {exchange.codec.conversation_member, *SYSTEM_MEMBERS}
    members = {name: value for name, value in exchange.json_body.items() if name not in names}
    return exact_json.dumps(members | {name: written[name] for name in names if name in written})


async def write_restored(exchange: Exchange) -> None:
    """Write the outgoing request with restored answers and edits, unless it is already written."""
    if exchange.is_written:
        return
    try:
        outgoing = await _write(exchange, exchange.upstream_request)
    except Refused as error:
        recorder, recording = exchange.state.recorder, exchange.recording
        if recorder is not None and recording is not None:
            await recorder.fail(recording, refusal(error))
        raise
    losses = (*exchange.summary_losses, *outgoing.losses)
    exchange.outgoing = structs.replace(outgoing, losses=losses)


async def keep_sent_body(exchange: Exchange) -> None:
    """Keep the body that is sent, to be stored with its answer, and log its thread."""
    if exchange.recording is not None and exchange.recording.location is not None:
        exchange.log.thread = exchange.recording.location.thread
        exchange.log.branch = exchange.recording.location.branch
    recorder, recording = exchange.state.recorder, exchange.recording
    if recorder is not None and recording is not None:
        protocol, model = exchange.upstream_codec.protocol, exchange.route.model
        recorder.keep_sent(recording, exchange.outgoing.body, protocol, model)


Stage = Callable[[Exchange], Awaitable[None]]

STAGES: tuple[Stage, ...] = (
    parse_json,
    open_sealed_summaries,
    decode_request,
    request_summary,
    resume_conversation,
    check_stored_ids,
    write_unrestored,
    record_request,
    compact_to_fit,
    apply_edits,
    replace_sealed_summaries,
    write_restored,
    keep_sent_body,
)
"""The stages that every request goes through before it is sent, in this order."""


def read_request(
    state: State,
    codec: Codec,
    json_body: JsonObject,
    inbound: Inbound,
    decoded_messages: Sequence[Message] = (),
) -> tuple[Request, Route, bool]:
    """The request, its route, and whether the body could be decoded.

    `decoded_messages` are the first messages of the conversation, if an earlier request had them.

    A body that cannot be decoded is forwarded to an upstream of the same protocol, but not
    recorded. For any other upstream it is refused.
    """
    address = read_address(inbound.path)
    has_own_credentials = has_credentials(inbound.headers, state.settings, codec.protocol)
    try:
        members = without_previous_id(codec, json_body)
        if decoded_messages and codec.decode_with_known is not None:
            request = codec.decode_with_known(members, address.model, decoded_messages)
        else:
            request = codec.decode_request(members, address.model)
    except Refused:
        model = address.model or json_body.get("model")
        if not isinstance(model, str):
            raise
        route = _find_route(state, model, codec.protocol, has_own_credentials)
        if route.provider is OFFLINE or not is_direct(route, codec):
            raise
        streams = bool(json_body.get("stream")) if address.streams is None else address.streams
        return Request(model, (), params=Params(stream=streams)), route, False
    if address.streams is not None:
        params = structs.replace(request.params, stream=address.streams)
        request = structs.replace(request, params=params)
    route = _find_route(state, request.model, codec.protocol, has_own_credentials)
    return request, route, True


def _find_route(state: State, model: str, protocol: str, has_own_credentials: bool) -> Route:
    """The route for the model that a client asks for."""
    return find_route(
        model,
        protocol,
        state.providers,
        state.catalog,
        has_credentials=has_own_credentials,
        aliases=state.settings.aliases,
    )


async def _write(exchange: Exchange, request: Request) -> Outgoing:
    # The parsed bodies are only passed on while they have the content of the whole request.
    return await exchange.compute(
        write_outgoing,
        exchange.state,
        exchange.codec,
        exchange.route,
        request,
        exchange.body,
        exchange.inbound,
        exchange.json_body if request is exchange.decoded else None,
        None if exchange.parsed_body is None else exchange.parsed_body.layout,
    )


def _has_answers(request: Request) -> bool:
    return any(message.role == "assistant" for message in request.messages)


async def _answer(exchange: Exchange, outbound: Outbound) -> None:
    """Answer the request; the outcome is recorded whatever it is."""
    _publish_begin(exchange)
    try:
        await _ask(exchange, outbound)
    except ClientLeft:
        exchange.error = CLIENT_LEFT
        raise
    except UpstreamError as error:
        exchange.error = exchange.secrets.redact_error(failure(error))
        exchange.log.outcome = "upstream_failed"
        await _record_failure(exchange)  # before the error is sent: the client may retry at once
        await _send_error(exchange, exchange.error, exchange.headers(), outbound)
    except (Refused, StoreError) as error:
        exchange.error = failure(error)
        raise
    finally:
        await _record_failure(exchange)
        _publish_end(exchange)


def _publish_begin(exchange: Exchange) -> None:
    """Tell the watchers of the thread that the exchange has begun; if it is recorded at all."""
    location = None if exchange.recording is None else exchange.recording.location
    if location is None:
        return
    exchange.live = LiveExchange(
        location.exchange,
        thread=location.thread,
        branch=location.branch,
        head=location.head,
        scope=exchange.caller.scope,
        model=exchange.request.model,
    )
    if (count := retry_count(exchange.inbound.headers)) > 0:
        exchange.live.retry = {"content": f"retry {count} by the client"}
    exchange.state.live_feed.begin(exchange.live)


def _publish_retry(exchange: Exchange, retry: JsonObject) -> None:
    """Tell the watchers of the thread that the request is sent again, and why."""
    if exchange.live is not None:
        exchange.state.live_feed.retry(exchange.live, retry)


def _publish_end(exchange: Exchange) -> None:
    """Tell the watchers that the outcome is recorded; later calls change nothing."""
    live, recording = exchange.live, exchange.recording
    if live is not None and recording is not None:
        if recording.location is not None:
            live.branch = recording.location.branch
        exchange.state.live_feed.end(live, exchange.error, recording.state)


async def _ask(exchange: Exchange, outbound: Outbound) -> None:
    """Ask the upstream and deliver its answer.

    If the conversation is too long, it is compacted and sent again. If the upstream refuses parts
    that Weft restored, the request is sent again without them. The client gets the last error,
    unless that one is about restored parts again: then it gets the first.
    """
    error = await _ask_once(exchange, outbound)
    if error is None:
        return
    if error.api_error.kind in TOO_LONG and await _compact(exchange, force=True):
        await apply_edits(exchange)
        error = await _ask_again(exchange, outbound, COMPACTED_RETRY)
        if error is None:
            return
    if exchange.has_restored_answers and is_about_restored_content(error.api_error):
        second_error = await _ask_again(exchange, outbound, UNRESTORED_RETRY)
        if second_error is None:
            return
        error = error if is_about_restored_content(second_error.api_error) else second_error
    await _relay_error(exchange, error, outbound)


async def _ask_again(
    exchange: Exchange, outbound: Outbound, reason: str
) -> "UpstreamRefusal | None":
    """Send `request` again, which has no restored parts; returns the error, if it fails again."""
    _publish_retry(exchange, {"content": reason})
    exchange.outgoing = await _write(exchange, exchange.request)
    await keep_sent_body(exchange)
    return await _ask_once(exchange, outbound)


async def _ask_once(exchange: Exchange, outbound: Outbound) -> "UpstreamRefusal | None":
    """Ask the upstream and deliver its answer; an error of the upstream is returned instead."""
    reply = await _post(exchange)
    exchange.secrets = reply.secrets
    exchange.log.upstream_request_id = read_request_id(reply.headers)
    try:
        if not 200 <= reply.status < 300:
            return await _read_error(exchange, reply)
        await _deliver(exchange, reply, outbound)
        return None
    finally:
        reply.close()


async def _post(exchange: Exchange) -> Reply:
    """Send the request; the offline model answers here."""
    state, route, outgoing = exchange.state, exchange.route, exchange.outgoing
    if exchange.is_offline:
        return OfflineReply(
            exchange.request,
            exchange.codec,
            pace=state.settings.offline_pace,
            include_usage=exchange.codec.http.wants_usage(exchange.json_body),
        )
    with exchange.guard.waiting():
        return await state.http_client.post(
            route.provider,
            outgoing.path,
            outgoing.body,
            outgoing.headers,
            GATEWAY_RETRY,
            on_retry=lambda retry: _publish_retry(exchange, retry.data()),
            owner=exchange.caller.scope,
        )


async def _deliver(exchange: Exchange, reply: Reply, outbound: Outbound) -> None:
    """Send the answer in the form that the client asked for, whichever form it comes in."""
    if exchange.streams:
        await _deliver_stream(exchange, reply, outbound)
    else:
        await _deliver_body(exchange, reply, outbound)


async def _deliver_body(exchange: Exchange, reply: Reply, outbound: Outbound) -> None:
    """Send a whole answer, after it is recorded."""
    body = await exchange.guard.read_all(reply)
    losses, log = exchange.outgoing.losses, exchange.log
    is_forwarded = exchange.is_direct and detect_form(body) == "body"
    translator = _open_translator(exchange)
    worker = exchange.state.large_bodies
    try:
        answer = await worker.run(len(body), _read_answer, translator, body)
    except UpstreamFailed as error:
        if not is_forwarded or not error.native:
            raise
        # The body is the upstream's own error in the client's protocol, so it is forwarded.
        answer, log.outcome = None, "upstream_failed"
        exchange.error = exchange.secrets.redact_error(failure(error))
        body = exchange.secrets.redact(body)
        await _record_failure(exchange)
    if answer is None and not is_forwarded:
        name = exchange.route.provider.name
        raise UpstreamProtocolError(f"the answer of upstream {name!r} cannot be read")
    if answer is not None:
        original, response = answer
        if exchange.compaction is not None:
            body, added = _write_summary(exchange, exchange.compaction, response)
            losses = (*losses, *added)
        elif not is_forwarded:
            encoded = await worker.run(len(body), translator.write_body, original, response)
            body, losses = exact_json.dumps(encoded.body), (*losses, *encoded.losses)
        # Recorded as the client gets it, so that the echo in its next request is recognised.
        await _record_answer(exchange, response)
    log.status, log.losses = reply.status, len(losses)
    log.mark_first_byte()
    await outbound.send(reply.status, body, exchange.headers(reply, losses))


def _read_answer(translator: AnswerTranslator, body: bytes) -> tuple[Response, Response] | None:
    """The original answer and the one for the client; None if it cannot be read.

    Raises `UpstreamFailed` if the answer is a failure.
    """
    try:
        return translator.read_body(body)
    except UpstreamFailed:
        raise
    except (Refused, UpstreamError):
        return None


def _write_summary(
    exchange: Exchange, compaction: CompactionRequest, response: Response
) -> tuple[bytes, Sequence[Loss]]:
    """The summary in the form in which a client that asked to compact expects it."""
    writer = AnswerWriter(exchange.codec, _answer_options(exchange))
    encoded = writer.write_body(seal_summary(response))
    if compaction.retained_items is None:
        return exact_json.dumps(encoded.body), encoded.losses
    compacted = write_compacted_list(encoded.body, compaction.retained_items)
    return exact_json.dumps(compacted), encoded.losses


def _open_translator(exchange: Exchange) -> AnswerTranslator:
    options, origin = _answer_options(exchange), exchange.route.origin
    return AnswerTranslator(exchange.upstream_codec, exchange.codec, options, origin)


def _answer_options(exchange: Exchange) -> AnswerOptions:
    """How the answer is written.

    Ids of an upstream of the client's own protocol do not change, because the client may use
    them with that upstream.
    """
    protocol, is_direct = exchange.codec.protocol, exchange.is_direct
    return AnswerOptions(
        created=int(time.time()),
        renamed_tools=exchange.outgoing.renamed_tools,
        thinking=exchange.route.provider.thinking or exchange.state.settings.thinking,
        include_usage=exchange.codec.http.wants_usage(exchange.json_body),
        make_client_id=None if is_direct else partial(make_answer_id, protocol),
        call_id_seed=None if is_direct else uuid4().hex[:16],
    )


async def _deliver_stream(exchange: Exchange, reply: Reply, outbound: Outbound) -> None:
    """Send an answer piece by piece; the last frame is sent after the answer is recorded."""
    relay, log = _open_relay(exchange), exchange.log
    exchange.relay = relay
    log.streamed = True
    live, live_feed = exchange.live, exchange.state.live_feed
    if live is not None:
        live_feed.begin_answer(live, relay.answer_fold)
    try:
        async for chunk in _answer_chunks(exchange, reply, relay):
            if chunk is None:  # nothing has arrived for `ping_seconds`
                await _send_frames(exchange, reply, outbound, exchange.codec.http.keep_alive)
            else:
                piece = relay.feed(chunk)
                if relay.answer_fold.has_content:
                    log.mark_first_token()
                if live is not None:
                    live_feed.grow_answer(live)
                await _send_piece(exchange, reply, outbound, relay, piece)
        await _send_piece(exchange, reply, outbound, relay, relay.close())
    except (UpstreamError, StoreError) as error:
        if not outbound.started:
            raise
        log.outcome = "cut"
        exchange.error = exchange.secrets.redact_error(failure(error))
        await _record_failure(exchange)
        await outbound.write(relay.fail(exchange.error))
    if relay.error is not None:
        log.outcome = "cut"
        exchange.error = exchange.error or exchange.secrets.redact_error(relay.error)
        await _record_failure(exchange)
    elif not relay.ended and exchange.error is None:
        # The bytes were forwarded up to their end, but could not be decoded and recorded.
        log.outcome = "unread"
    log.losses += len(relay.losses)
    await outbound.finish()


async def _answer_chunks(
    exchange: Exchange, reply: Reply, relay: Relay
) -> AsyncIterator[bytes | None]:
    """The chunks of an answer; None whenever none has arrived for `ping_seconds`.

    When the answer is whole, only token counts and an end marker can follow. If the connection then
    breaks, or nothing comes for `END_SECONDS`, the answer has ended.
    """
    while True:
        is_whole = relay.is_complete
        try:
            chunk = await exchange.guard.read(
                reply, END_SECONDS if is_whole else exchange.state.settings.ping_seconds
            )
        except UpstreamError:
            if is_whole:
                return
            raise
        if chunk == b"" or (chunk is None and is_whole):
            return
        yield chunk


def _open_relay(exchange: Exchange) -> Relay:
    options = _answer_options(exchange)
    if exchange.is_direct:
        unchanged = AnswerOptions(created=options.created, include_usage=options.include_usage)
        relay = PassThroughRelay(exchange.codec, unchanged, exchange.route.origin)
    else:
        relay = _open_translator(exchange)
    return relay if exchange.compaction is None else CompactionRelay(relay, exchange.codec, options)


async def _send_piece(
    exchange: Exchange, reply: Reply, outbound: Outbound, relay: Relay, piece: Piece
) -> None:
    """Send a piece; before its last frames, record the answer.

    An answer that fails before its first byte becomes an error with a status, which every client
    retries. (Codex ignores an error frame.) Only an error that the upstream wrote in the client's
    own protocol is forwarded unchanged.
    """
    if relay.error is not None and not outbound.started and not relay.relays_error:
        raise upstream_failed(relay.error)
    frames = piece.now if relay.error is None else exchange.secrets.redact(piece.now)
    await _send_frames(exchange, reply, outbound, frames)
    if relay.ended and relay.error is None and not exchange.is_outcome_handled:
        await _record_answer(exchange, relay.response)
    if piece.last:
        await _send_frames(exchange, reply, outbound, piece.last)


async def _send_frames(exchange: Exchange, reply: Reply, outbound: Outbound, frames: bytes) -> None:
    if not frames:
        return
    if not outbound.started:
        exchange.log.status = reply.status
        exchange.log.mark_first_byte()
        await outbound.start(reply.status, [*STREAM_HEADERS, *exchange.headers(reply)])
    await outbound.write(frames)


async def _record_answer(exchange: Exchange, response: Response) -> None:
    """Make the answer durable."""
    exchange.log.usage = response.usage
    exchange.is_outcome_handled = True
    recorder, recording = exchange.state.recorder, exchange.recording
    if recorder is not None and recording is not None:
        log = exchange.log
        await recorder.finish(
            recording,
            response,
            log.first_token_seconds,
            log.seconds,
            has_id=exchange.is_stored,
        )
        if recording.location is not None:
            exchange.log.branch = recording.location.branch
            _report_usage(exchange, recording.location, response.usage)
    _publish_end(exchange)


def _report_usage(exchange: Exchange, location: RequestLocation, usage: Usage | None) -> None:
    """Report to the compactor how full the context window is now."""
    compactor, route = exchange.state.compactor, exchange.route
    if compactor is None or usage is None or usage.input is None:
        return
    model = exchange.state.catalog.find(route.model, route.provider.name)
    tokens = usage.input + (usage.output or 0)
    compactor.after_answer(location, model, tokens, exchange.client_bytes)


async def _record_failure(exchange: Exchange) -> None:
    """Record why there is no answer, and the part of it that arrived; once per exchange."""
    if exchange.error is None or exchange.is_outcome_handled:
        return
    exchange.is_outcome_handled = True
    exchange.log.error = exchange.error.code or exchange.error.kind
    exchange.log.partial = exchange.is_partial
    recorder, recording = exchange.state.recorder, exchange.recording
    if recorder is not None and recording is not None:
        relay = exchange.relay if exchange.is_partial else None
        message = None if relay is None else relay.response.message
        await recorder.fail(recording, exchange.error, message)


class UpstreamRefusal(Struct, frozen=True):
    """An error that the upstream answered with: its bytes, and the decoded error.

    `json_body` is None if the body is not a JSON object.
    """

    status: int
    body: bytes
    headers: Sequence[tuple[str, str]]
    content_type: str
    json_body: JsonObject | None
    api_error: ApiError


async def _read_error(exchange: Exchange, reply: Reply) -> UpstreamRefusal:
    """The error of a reply; raises `UpstreamFailed` for a status below 400."""
    provider = exchange.route.provider
    if reply.status < 400:
        raise UpstreamFailed(f"upstream {provider.name!r} answered with status {reply.status}")
    body = await exchange.guard.read_all(reply)
    error = read_error(CODECS[provider.protocol], body, reply.status)
    content_type = reply.headers.get("content-type", "application/json")
    try:
        json_body = parse_body(body)
    except Refused:
        json_body = None
    headers = exchange.headers(reply)
    return UpstreamRefusal(reply.status, body, headers, content_type, json_body, error)


async def _relay_error(exchange: Exchange, error: UpstreamRefusal, outbound: Outbound) -> None:
    """Send an upstream's error: its own bytes, or the same error in the client's protocol."""
    exchange.log.outcome, exchange.error = "upstream_refused", error.api_error
    await _record_failure(exchange)  # before the error is sent: the client may retry at once
    if not exchange.is_direct or _must_be_rewritten(exchange, error):
        await _send_error(exchange, error.api_error, error.headers, outbound)
        return
    exchange.log.status = error.status
    headers = [*error.headers, ("content-type", error.content_type)]
    await outbound.send(error.status, error.body, headers)


def _must_be_rewritten(exchange: Exchange, error: UpstreamRefusal) -> bool:
    """Whether an error about the context window lacks the form by which clients recognise it.

    All other errors in the client's protocol are forwarded unchanged.
    """
    if error.api_error.kind != "context_length":
        return False
    if exchange.streams and error.api_error.kind in exchange.codec.stream_errors:
        return True
    return exchange.codec.encode_error(error.api_error) != (error.status, error.json_body)


async def _send_error(
    exchange: Exchange, error: ApiError, headers: Sequence[tuple[str, str]], outbound: Outbound
) -> None:
    """Send an error with a status, or as a stream if clients recognise it only there.

    If a stream has begun, its own error frame has already been sent.
    """
    codec, log = exchange.codec, exchange.log
    if outbound.started:
        await outbound.finish()
        return
    if exchange.streams and error.kind in codec.stream_errors:
        log.status, log.streamed = 200, True
        writer = AnswerWriter(codec, AnswerOptions(created=int(time.time())))
        start = Start(make_answer_id(codec.protocol), exchange.request.model)
        await outbound.start(200, [*STREAM_HEADERS, *headers])
        await outbound.finish(writer.write([start, Fail(error)]).now)
        return
    log.status, body = codec.encode_error(error)
    await outbound.send(log.status, exact_json.dumps(body), headers)


async def _send_final_error(
    codec: Codec, error: ApiError, outbound: Outbound, log: ExchangeLog
) -> None:
    """Send an error that reached `answer_request`.

    If the answer has begun, its stream is closed instead.
    """
    if outbound.started:
        await outbound.finish()
        return
    log.status, body = codec.encode_error(error)
    headers = [] if log.thread is None else [("x-weft-thread", log.thread)]
    await outbound.send(log.status, exact_json.dumps(body), headers)
