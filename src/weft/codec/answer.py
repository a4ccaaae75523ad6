"""Reads, translates and writes the answers of models. Every answer to a client takes this path:

    upstream bytes -> AnswerReader -> AnswerTranslator -> AnswerWriter -> client bytes

`weft.translate_response`, `weft.StreamTranslator` and the gateway use all three. The offline model
produces events and uses only the writer.

An answer comes in one of two forms: a JSON body, or a stream. Servers mix them up: they answer a
request for a stream with a body, a request for a body with a stream, and label either one with the
other's content type. So the bytes decide which form it is, not the content type.

No I/O happens here. A stream that is cut off or breaks its protocol ends in an error of the
client's own protocol, never in a success.
"""

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Literal, cast

from msgspec import Struct, structs

from weft import exact_json
from weft.errors import NotAnAnswer, Refused, UpstreamError
from weft.model import (
    Alternative,
    ApiError,
    Block,
    Close,
    Delta,
    End,
    Event,
    Fail,
    Finish,
    Fold,
    JsonObject,
    Loss,
    Message,
    Open,
    Origin,
    Other,
    Position,
    Refusal,
    Response,
    Start,
    Text,
    Thinking,
    ToolCall,
    by_importance,
    make_loss,
)

from .base import Codec, Encoded, Frame, Locate, RenamedTools, StreamEncoder, ThinkingMember
from .calls import CallRestorer, replace_event_id, replace_generated_ids, restore_calls
from .errors import (
    RefusalInliner,
    error_of,
    inline_refusal,
    refusal_must_be_inlined,
    upstream_failed,
)
from .lenient import with_repairs
from .sidecar import make_answer_sidecar
from .stream import BYTE_ORDER_MARK, PairJoiner, SseParser, read_json, write_frame

AnswerForm = Literal["body", "stream", "neither"]

_STREAM_LINE = re.compile(rb"(?:data|event|id|retry)?:")
"""The start of a line of a stream: a field name, or the colon of a comment."""

BODY_STARTS = (b"{", b"[", b"<", b'"')
"""The first byte of a body or an HTML page. No line of a stream starts with it."""

UNREADABLE = "the upstream's answer is unreadable: neither JSON nor a stream of events"


def detect_form(data: bytes) -> AnswerForm:
    """The form of an answer, detected from its first bytes."""
    start = data.removeprefix(b"\xef\xbb\xbf").lstrip()[:8]
    if start[:1] in (b"{", b"["):
        return "body"
    return "stream" if _STREAM_LINE.match(start) else "neither"


def decode_answer(codec: Codec, data: bytes) -> Response:
    """Decode a whole answer in either form.

    Raises `UpstreamFailed` if the bytes are an error or no answer at all, and `Refused` or
    `UpstreamProtocolError` if they are an answer that cannot be read.
    """
    data = data.removeprefix(BYTE_ORDER_MARK)
    form = detect_form(data)
    if form == "stream":
        parser = SseParser()
        return _fold_frames(codec, [*parser.feed(data), *parser.close()])
    try:
        raw = read_json(data) if form == "body" else None
    except exact_json.JSONDecodeError:
        raw = None
    if isinstance(raw, dict):
        try:
            return codec.decode_response(cast(JsonObject, raw))
        except NotAnAnswer as error:
            message = f"the upstream's answer cannot be read: {error}"
            raise upstream_failed(ApiError("server", message, 502)) from None
    if isinstance(raw, list) and raw:  # Gemini streams like this unless asked for events
        return _fold_frames(codec, [_json_frame(item) for item in cast("list[Any]", raw)])
    raise upstream_failed(ApiError("server", UNREADABLE, 502))


def _json_frame(value: Any) -> Frame:
    return Frame(exact_json.dumps(value).decode())


def _fold_frames(codec: Codec, frames: list[Frame]) -> Response:
    decoder, fold, joiner = codec.stream_decoder(), Fold(), PairJoiner()
    whole = [part for frame in frames for part in joiner.feed(frame)]
    for frame in [*whole, *joiner.close()]:
        for event in decoder.feed(frame):
            fold.send(event)
    if not fold.ended:
        for event in decoder.close():
            fold.send(event)
    if fold.error is not None:
        raise upstream_failed(fold.error)
    return with_repairs(fold.response(), decoder.repairs)


class AnswerReader:
    """Turns the bytes of an upstream into events, also if it sends a body instead of a stream.

    A body is only decoded when it is complete; `feed` returns nothing until then. `is_body` says
    whether the bytes so far look like a body.
    """

    def __init__(self, codec: Codec) -> None:
        self.is_body = False
        self._codec = codec
        self._parser = SseParser()
        self._joiner = PairJoiner()
        self._decoder = codec.stream_decoder()
        self._has_bytes = False
        self._start = b""  # until it is clear which form the answer has
        self._ended = False
        self._body: list[bytes] = []
        self._body_repairs: tuple[Loss, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether the stream may end here: the answer is whole, or it has failed."""
        return not self.is_body and self._decoder.is_complete

    @property
    def repairs(self) -> list[Loss]:
        """The values that the upstream left out and the decoder filled in, so far."""
        return [*self._body_repairs, *self._decoder.repairs.items]

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete."""
        if not self._has_bytes:
            self._start += data
            start = self._start.removeprefix(BYTE_ORDER_MARK).lstrip()
            if start and not BYTE_ORDER_MARK.startswith(self._start):
                self._has_bytes = True
                self.is_body = start[:1] in BODY_STARTS
                if self.is_body:
                    data = start
        if self.is_body:
            self._body.append(data)
            return []
        return self._decode(self._parser.feed(data))

    def close(self) -> list[Event]:
        """The remaining events at the end of the bytes; `Fail` if the stream was cut off."""
        if self.is_body:
            return self._read_body()
        events = self._decode(self._parser.close())
        events += self._decode_frames(self._joiner.close())
        return events if self._ended else [*events, *self._decoder.close()]

    def _decode(self, frames: list[Frame]) -> list[Event]:
        whole: list[Frame] = []
        for frame in frames:
            whole += self._joiner.feed(frame)
        return self._decode_frames(whole)

    def _decode_frames(self, frames: list[Frame]) -> list[Event]:
        events: list[Event] = []
        for frame in frames:
            events += self._decoder.feed(frame)
        for event in events:
            if type(event) is not Delta and _ends(event):  # nearly all events are deltas
                self._ended = True
        return events

    def _read_body(self) -> list[Event]:
        try:
            response = decode_answer(self._codec, b"".join(self._body))
        except UpstreamError as error:
            return [Fail(error_of(error), "end")]
        except Refused as error:
            message = f"the upstream's answer cannot be read: {error}"
            return [Fail(ApiError("server", message, 502), "end")]
        self._body_repairs = response.repairs
        return unfold(response)


def _ends(event: Event) -> bool:
    """Whether an event ends the answer. An unreadable frame does not: readable ones may follow."""
    return isinstance(event, End) or (isinstance(event, Fail) and event.cause != "frame")


def unfold(response: Response) -> list[Event]:
    """The events of a whole answer, as if it had been streamed.

    `Response.ext`, the other members of the body, is left out: a stream has other members.
    """
    events: list[Event] = [Start(response.id, response.model, response.usage)]
    for index, block in enumerate(response.message.blocks):
        events += _block_events(index, block)
    return [*events, Finish(response.stop, response.usage), End()]


def _block_events(index: int, block: Block) -> list[Event]:
    """The events of one block: open it empty, add its whole text in one delta, close it."""
    match block:
        case Text(text=text) | Refusal(text=text):
            opened, deltas = structs.replace(block, text=""), [Delta(index, "text", text)]
        case Thinking(text=text, signature=signature):
            opened = structs.replace(block, text="", signature=None)
            deltas = [Delta(index, "thinking", text)]
            if signature is not None:
                deltas.append(Delta(index, "signature", signature))
        case ToolCall(arguments=arguments):
            opened = structs.replace(block, arguments="")
            deltas = [Delta(index, "arguments", arguments)]
        case _:
            return [Open(index, block), Close(index)]
    return [Open(index, opened), *deltas, Close(index, block)]


class AnswerOptions(Struct, frozen=True, kw_only=True):
    """How an answer is written for a client.

    - `created` is the time in the answer, in seconds.
    - `renamed_tools` maps tool names of the target to the client's own.
    - `thinking` is the member in which Chat clients read thinking.
    - `include_usage` is whether a stream reports its token usage.
    - `make_client_id` turns the upstream's id of the answer into one for the client.
    - `call_id_seed` is a random text. With it, calls for which the upstream sent no id get ids that
      are unique across answers. Without it, their ids are only unique within the answer.
    """

    created: int = 0
    renamed_tools: RenamedTools = {}
    thinking: ThinkingMember = "reasoning_content"
    include_usage: bool = True
    make_client_id: Callable[[str | None], str] | None = None
    call_id_seed: str | None = None


DEFAULT_OPTIONS = AnswerOptions()


class Piece(Struct, frozen=True, gc=False):
    """Bytes for the client. `now` can be sent at once; `last` is the end of a successful answer.

    A caller that records answers sends `last` after the answer is stored.
    """

    now: bytes = b""
    last: bytes = b""


class AnswerWriter:
    """Writes an answer in the protocol of a client: as a stream, event by event, or as a body.

    `locate` turns a position in the answer into a path in the upstream's body, for the losses of a
    stream.
    """

    def __init__(
        self,
        codec: Codec,
        options: AnswerOptions = DEFAULT_OPTIONS,
        locate: Locate | None = None,
    ) -> None:
        self._codec = codec
        self._options = options
        self._locate = locate

    @cached_property
    def _encoder(self) -> StreamEncoder:
        encoder = self._codec.stream_encoder(self._options.created)
        if self._locate is not None:
            encoder.losses.locate = self._locate
        return encoder

    @property
    def losses(self) -> list[Loss]:
        """The losses of the stream so far."""
        return self._encoder.losses.items

    def write(self, events: Iterable[Event]) -> Piece:
        """The frames of these events."""
        options, encode = self._options, self._encoder.send
        now: list[bytes] = []
        last: list[bytes] = []
        for event in events:
            if type(event) is Delta:  # nearly all events
                for frame in encode(event):
                    now.append(write_frame(frame))
                continue
            if not options.include_usage:
                event = _without_usage(event)
            frames = map(write_frame, encode(self._place_thinking_event(event)))
            # Frames after the end keep their place.
            (last if last or isinstance(event, End) else now).extend(frames)
        return Piece(b"".join(now), b"".join(last))

    def write_body(self, response: Response, locate: Locate | None = None) -> Encoded:
        """A whole answer; `locate` gives the paths of losses in the upstream's answer."""
        response = each_answer(response, self._place_thinking)
        return self._codec.encode_response(response, self._options.created, locate)

    def _place_thinking(self, message: Message) -> Message:
        place, blocks = self._codec.place_thinking, message.blocks
        if place is None or not any(isinstance(block, Thinking) for block in blocks):
            return message
        member = self._options.thinking
        placed = tuple(place(b, member) if isinstance(b, Thinking) else b for b in blocks)
        return structs.replace(message, blocks=placed)

    def _place_thinking_event(self, event: Event) -> Event:
        place = self._codec.place_thinking
        if isinstance(event, Alternative):
            return structs.replace(event, event=self._place_thinking_event(event.event))
        if place is None or not isinstance(event, Open | Close):
            return event
        if not isinstance(event.block, Thinking):
            return event
        return structs.replace(event, block=place(event.block, self._options.thinking))


def each_answer(response: Response, change: Callable[[Message], Message]) -> Response:
    """The response with a change to the message of each of its answers."""
    message = change(response.message)
    alternatives = tuple(
        (number, each_answer(other, change)) for number, other in response.alternatives
    )
    if message is response.message and not alternatives:
        return response
    return structs.replace(response, message=message, alternatives=alternatives)


class AnswerTranslator:
    """Translates one answer from the protocol of an upstream to that of a client.

    A stream goes through `feed` and `close`; a body through `read_body` and `write_body`. Tools get
    their original names back. The explanation of a refusal becomes part of the answer if the
    client's protocol has no field for it.

    `original` is the answer as the upstream sent it, `response` the one that the client gets. Both
    are complete when `ended` is true and `error` is None.
    """

    relays_error = False
    """Always false: an upstream's error is translated, never forwarded unchanged."""

    def __init__(
        self,
        source: Codec,
        target: Codec,
        options: AnswerOptions = DEFAULT_OPTIONS,
        origin: Origin | None = None,
    ) -> None:
        self._source = source
        self._target = target
        self._options = options
        self._origin = origin
        self._passes_rest = source.protocol == target.protocol
        self._inlines_refusal = refusal_must_be_inlined(source, target)
        self._writer = AnswerWriter(target, options, self._locate)
        self._restorer = CallRestorer(options.renamed_tools) if options.renamed_tools else None
        self._dropped_alternatives: dict[int, Loss] = {}
        self._inliner = RefusalInliner() if self._inlines_refusal else None
        self._original = Fold(origin)
        # Without renamed tools, the client gets the same answer, and one fold is enough.
        self._restored = Fold(origin) if options.renamed_tools else self._original

    @cached_property
    def _reader(self) -> AnswerReader:
        return AnswerReader(self._source)

    @property
    def original(self) -> Response:
        """The streamed answer so far, as the upstream sent it."""
        return self._original.response()

    @property
    def response(self) -> Response:
        """The streamed answer so far, as the client gets it."""
        response = self._restored.response()
        return inline_refusal(response) if self._inlines_refusal else response

    @property
    def answer_fold(self) -> Fold:
        """The fold of the streamed answer, as the client gets it. It changes with every `feed`."""
        return self._restored

    @property
    def started(self) -> bool:
        """Whether anything of a streamed answer has arrived."""
        return self._original.started

    @property
    def ended(self) -> bool:
        """Whether the stream has ended, with its final event or an error."""
        return self._original.ended

    @property
    def is_complete(self) -> bool:
        """Whether the stream may end here: the answer is whole, or it has failed."""
        return self._reader.is_complete

    @property
    def error(self) -> ApiError | None:
        """The error that ended the stream."""
        return self._original.error

    @property
    def losses(self) -> list[Loss]:
        """The losses of the client's stream, and what the upstream left out."""
        dropped = self._dropped_alternatives.values()
        return by_importance([*self._reader.repairs, *self._writer.losses, *dropped])

    def feed(self, data: bytes) -> Piece:
        """Take bytes of the upstream; returns bytes for the client."""
        return self._writer.write(self._translate(self._reader.feed(data)))

    def close(self) -> Piece:
        """The upstream's bytes have ended; returns the last bytes for the client."""
        return self._writer.write(self._translate(self._reader.close()))

    def fail(self, error: ApiError) -> bytes:
        """End the client's stream with an error of our own; returns its bytes."""
        self._passes_rest = False
        self._original.send(Fail(error))
        self._restored.send(Fail(error))
        return self._writer.write([Fail(error)]).now

    def read_body(self, body: bytes | JsonObject) -> tuple[Response, Response]:
        """Decode a whole answer; returns the original, and the one for the client.

        Bytes may be a body or a stream; for errors see `decode_answer`. A JSON object is a body;
        raises `Refused` if it is no answer.
        """
        if isinstance(body, bytes):
            original = decode_answer(self._source, body)
        else:
            original = self._source.decode_response(body)
        if self._origin is not None:
            origin = self._origin
            original = each_answer(
                original, lambda message: structs.replace(message, origin=origin)
            )
        options = self._options
        response = each_answer(original, self._restore)
        if options.make_client_id is not None:
            response = structs.replace(response, id=options.make_client_id(response.id))
        return original, inline_refusal(response) if self._inlines_refusal else response

    def _restore(self, message: Message) -> Message:
        """The message with unique ids of calls, and with the client's own tool names."""
        if self._options.call_id_seed is not None:
            message = replace_generated_ids(message, self._options.call_id_seed)
        return restore_calls(message, self._options.renamed_tools)

    def write_body(self, original: Response, response: Response) -> Encoded:
        """The body for the client; its losses include what the upstream left out."""

        def locate(position: Position) -> str:
            return self._source.locate_answer(original, position)

        dropped: list[Loss] = []
        if not self._target.has_alternatives:
            dropped = [self._dropped(number, original) for number, _ in response.alternatives]
        encoded = self._writer.write_body(response, locate)
        losses = by_importance([*original.repairs, *encoded.losses, *dropped])
        return structs.replace(encoded, losses=losses)

    def _dropped(self, number: int, original: Response) -> Loss:
        """The loss of another answer, for which the client's protocol has no room."""
        path = self._source.locate_answer(original, ("alternative", number))
        return make_loss("alternative_dropped", path, str(number))

    @property
    def stream_sidecar(self) -> JsonObject:
        """The sidecar of a stream; empty until it has ended without an error."""
        if not self.ended or self.error is not None:
            return {}
        return self.sidecar(self.original, self._target.encode_response(self.response, 0).body)

    def sidecar(self, original: Response, body: JsonObject) -> JsonObject:
        """The parts of an answer that the client cannot send back; `body` is the client's body."""
        echo = self._target.decode_response(exact_json.loads(exact_json.dumps(body)))
        return make_answer_sidecar(original.message, echo.message)

    def _locate(self, position: Position) -> str:
        return self._source.locate_answer(self.original, position)

    def _translate(self, events: list[Event]) -> list[Event]:
        """The events for the client. Also adds them to the two folds of the answer."""
        original, restored = self._original, self._restored
        options, restorer, inliner = self._options, self._restorer, self._inliner
        translated: list[Event] = []
        for event in events:
            if original.ended and not (self._passes_rest and isinstance(event, Other)):
                continue  # original frames after the end are for clients of the same protocol
            if isinstance(event, Alternative) and not self._target.has_alternatives:
                original.send(event)
                if event.number not in self._dropped_alternatives:
                    loss = self._dropped(event.number, self.original)
                    self._dropped_alternatives[event.number] = loss
                continue
            if type(event) is not Delta:
                if options.call_id_seed is not None:
                    event = replace_event_id(event, options.call_id_seed)
                if options.make_client_id is not None and isinstance(event, Start):
                    event = structs.replace(event, id=options.make_client_id(event.id))
            try:
                original.send(event)
            except UpstreamError as error:
                event = Fail(error_of(error), "frame")
                original.send(event)
            if isinstance(event, Fail) and event.cause != "event":
                self._passes_rest = False  # the error frame is ours, and nothing may follow it
            for client_event in (event,) if restorer is None else restorer.send(event):
                if restored is not original:
                    restored.send(client_event)
                if inliner is None or type(client_event) is Delta:
                    translated.append(client_event)
                else:
                    translated += inliner.send(client_event)
        return translated


def _without_usage(event: Event) -> Event:
    if isinstance(event, Start | Finish) and event.usage is not None:
        return structs.replace(event, usage=None)
    return event
