"""A whole answer in either of its forms: a JSON body, or a stream that has ended.

Servers mix the two up: they answer a request for a stream with a body, a request for a body with a
stream, and give either one the other's content type. So the bytes decide, not the content type.
"""

import re
from typing import Any, Literal, cast

import orjson
from msgspec import structs

from weft.errors import NotAnAnswer, Refused, UpstreamProtocolError
from weft.model import (
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
    Open,
    Refusal,
    Response,
    Start,
    Text,
    Thinking,
    ToolCall,
)

from .base import Codec, Frame
from .errors import error_of, failed
from .lenient import with_repairs
from .sse import SseParser

Form = Literal["body", "stream", "neither"]

_FIELD = re.compile(rb"(?:data|event|id|retry)?:")
"""How a line of a stream begins: with a field's name, or with the colon of a comment."""

NOT_A_FIELD = (b"{", b"[", b"<", b'"')
"""How a body or a page begins, and no line of a stream."""

NEITHER = "the upstream's answer is unreadable: neither JSON nor a stream of events"


def form_of(data: bytes) -> Form:
    """Which form these bytes are in, by how they begin."""
    start = data.removeprefix(b"\xef\xbb\xbf").lstrip()[:8]
    if start[:1] in (b"{", b"["):
        return "body"
    return "stream" if _FIELD.match(start) else "neither"


def decode_answer(codec: Codec, data: bytes) -> Response:
    """A whole answer in either form.

    Raises `UpstreamFailed` where it failed or is none, and `Refused` or `UpstreamProtocolError`
    where it is an answer that cannot be read.
    """
    form = form_of(data)
    if form == "stream":
        parser = SseParser()
        return _fold(codec, [*parser.feed(data), *parser.close()])
    try:
        raw = orjson.loads(data) if form == "body" else None
    except orjson.JSONDecodeError:
        raw = None
    if isinstance(raw, dict):
        try:
            return codec.decode_response(cast(JsonObject, raw))
        except NotAnAnswer as error:
            message = f"the upstream's answer cannot be read: {error}"
            raise failed(ApiError("server", message, 502)) from None
    if isinstance(raw, list) and raw:  # how Gemini streams to clients that do not ask for events
        return _fold(codec, [_frame(item) for item in cast("list[Any]", raw)])
    raise failed(ApiError("server", NEITHER, 502))


def _frame(value: Any) -> Frame:
    return Frame(orjson.dumps(value).decode())


def _fold(codec: Codec, frames: list[Frame]) -> Response:
    decoder, fold = codec.stream_decoder(), Fold()
    for frame in frames:
        for event in decoder.feed(frame):
            fold.send(event)
    if not fold.ended:
        for event in decoder.close():
            fold.send(event)
    if fold.error is not None:
        raise failed(fold.error)
    return with_repairs(fold.response(), decoder.repairs)


class AnswerReader:
    """An upstream's bytes become events, also where a whole body comes in place of a stream.

    A body is read when all of it is there, so until then nothing comes out. `is_body` is whether
    the bytes so far are one.
    """

    def __init__(self, codec: Codec) -> None:
        self.is_body = False
        self._codec = codec
        self._parser = SseParser()
        self._decoder = codec.stream_decoder()
        self._begun = False
        self._ended = False
        self._body: list[bytes] = []
        self._body_repairs: tuple[Loss, ...] = ()

    @property
    def repairs(self) -> list[Loss]:
        """What the upstream left out so far, and was filled in."""
        return [*self._body_repairs, *self._decoder.repairs.items]

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete."""
        if not self._begun and (start := data.lstrip()):
            self._begun = True
            self.is_body = start[:1] in NOT_A_FIELD
        if self.is_body:
            self._body.append(data)
            return []
        return self._decode(self._parser.feed(data))

    def close(self) -> list[Event]:
        """The events that are left when the bytes end; a stream that was cut off ends in `Fail`."""
        if self.is_body:
            return self._read_body()
        events = self._decode(self._parser.close())
        return events if self._ended else [*events, *self._decoder.close()]

    def _decode(self, frames: list[Frame]) -> list[Event]:
        events: list[Event] = []
        for frame in frames:
            events += self._decoder.feed(frame)
        if events and not self._ended:
            self._ended = any(_ends(event) for event in events)
        return events

    def _read_body(self) -> list[Event]:
        try:
            response = decode_answer(self._codec, b"".join(self._body))
        except UpstreamProtocolError as error:
            return [Fail(error_of(error), "end")]
        except Refused as error:
            message = f"the upstream's answer cannot be read: {error}"
            return [Fail(ApiError("server", message, 502), "end")]
        self._body_repairs = response.repairs
        return unfold(response)


def _ends(event: Event) -> bool:
    """Whether nothing can follow. A frame that cannot be read may stand between two that can."""
    return isinstance(event, End) or (isinstance(event, Fail) and event.cause != "frame")


def unfold(response: Response) -> list[Event]:
    """The events of a whole answer, as if it had been streamed.

    What the envelope says besides is left out: the stream of no protocol has the same one.
    """
    events: list[Event] = [Start(response.id, response.model, response.usage)]
    for index, block in enumerate(response.message.blocks):
        events += _block_events(index, block)
    return [*events, Finish(response.stop, response.usage), End()]


def _block_events(index: int, block: Block) -> list[Event]:
    """One block: opened empty, grown by all of its text at once, closed."""
    match block:
        case Text(text=text) | Refusal(text=text):
            opened, grown = structs.replace(block, text=""), [Delta(index, "text", text)]
        case Thinking(text=text, signature=signature):
            opened = structs.replace(block, text="", signature=None)
            grown = [Delta(index, "thinking", text)]
            if signature is not None:
                grown.append(Delta(index, "signature", signature))
        case ToolCall(arguments=arguments):
            opened = structs.replace(block, arguments="")
            grown = [Delta(index, "arguments", arguments)]
        case _:
            return [Open(index, block), Close(index)]
    return [Open(index, opened), *grown, Close(index, block)]
