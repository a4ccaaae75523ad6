"""An answer on its way to the caller, as machines without I/O.

`PassThroughRelay` serves an upstream that speaks the caller's protocol: bytes pass as they came,
and a copy is decoded for the record. `TranslatingRelay` serves any other: frames become events,
events become the caller's frames. Both work in whole frames, so a keep-alive fits between two
pieces.

Both hold back the frame that tells the caller "this is all": `Piece.last` may be sent only when
the answer is safely stored. Bytes that end without that frame are a cut stream, and `cut` says so
in the caller's own words; no road leads from a dead upstream to a success.
"""

import re
from collections.abc import Callable
from typing import Protocol, cast
from uuid import uuid4

from msgspec import Struct, structs

from weft.client import shape_id
from weft.codec import (
    AnswerReader,
    CallRestorer,
    Calls,
    Codec,
    RefusalTeller,
    ThinkingMember,
    error_of,
    name_event,
    place_thinking_event,
    tells_apart,
    write_frame,
)
from weft.errors import UpstreamProtocolError
from weft.model import (
    ApiError,
    End,
    Event,
    Fail,
    Finish,
    Fold,
    JsonObject,
    Loss,
    Origin,
    Place,
    Start,
)

KEEPALIVE: dict[str, bytes] = {
    "anthropic": b'event: ping\ndata: {"type": "ping"}\n\n',
    "gemini": b"\n",
}
"""https://docs.anthropic.com/en/docs/build-with-claude/streaming#ping-events; and Google's own SDK
takes a comment for the beginning of an error, but a blank line for nothing."""

COMMENT = b": keep-alive\n"
"""A comment line of its own, without a blank line: `: ping` and a blank line after it make an
empty event that some readers stumble over (openai-python issue 2722)."""

_FRAME_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
LONGEST_END = 4


class Piece(Struct, frozen=True, gc=False):
    """Bytes for the caller: `now`, and `last`, which waits for the answer to be stored."""

    now: bytes = b""
    last: bytes = b""


class Relay(Protocol):
    """What the exchange asks of either machine.

    `relays_error` is whether the upstream's own sign of a failure went on to the client.
    """

    fold: Fold
    relays_error: bool

    @property
    def losses(self) -> list[Loss]:
        """What the caller's wire could not say."""
        ...

    def feed(self, chunk: bytes) -> Piece:
        """What this chunk lets pass."""
        ...

    def close(self) -> Piece:
        """What is left when the upstream's bytes end."""
        ...

    def cut(self, error: ApiError) -> bytes:
        """The caller's own form of an error in the middle of a stream."""
        ...


class FrameCutter:
    """Cuts bytes after each blank line, and keeps every byte."""

    def __init__(self) -> None:
        self._tail: list[bytes] = []
        self._edge = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The frames that are whole now, as they came."""
        window = self._edge + chunk  # an end may begin in the bytes before this chunk
        if _FRAME_END.search(window) is None:
            self._tail.append(chunk)
            self._edge = window[1 - LONGEST_END :]
            return []
        buffer = b"".join((*self._tail, chunk))
        frames: list[bytes] = []
        start = 0
        for end in _FRAME_END.finditer(buffer):
            frames.append(buffer[start : end.end()])
            start = end.end()
        self._tail = [buffer[start:]]
        self._edge = self._tail[0][1 - LONGEST_END :]
        return frames

    def close(self) -> bytes:
        """What came after the last blank line."""
        tail, self._tail, self._edge = b"".join(self._tail), [], b""
        return tail


class PassThroughRelay:
    """The upstream's bytes as they came, and the fold of a copy of them.

    `readable` is false once the copy cannot be folded: what we cannot read still belongs to the
    client, so it passes, but it is not recorded. The end is watched for all the same. A body in
    place of a stream is written as a stream. `_held` is the end of a stream without a terminal
    event, which may be sent only when the bytes have ended.
    """

    def __init__(self, codec: Codec, origin: Origin, created: int, *, costs: bool = True) -> None:
        self.fold = Fold(origin)
        self.readable = True
        self.relays_error = False
        self._codec = codec
        self._created = created
        self._costs = costs
        self._cutter = FrameCutter()
        self._reader = AnswerReader(codec)
        self._ended = False
        self._finished = False
        self._broken: ApiError | None = None
        self._silent = False
        self._held: list[bytes] = []

    @property
    def losses(self) -> list[Loss]:
        return []

    def feed(self, chunk: bytes) -> Piece:
        return self._sort(self._cutter.feed(chunk))

    def close(self) -> Piece:
        tail = self._cutter.close()
        self._read(self._reader.feed(tail))
        events = self._reader.close()
        if self._reader.is_body:
            return self._write_stream(events)
        if self._silent:
            return Piece()
        self._read(events)
        if not self._ended and self._broken is not None:
            self._read([Fail(self._broken, "end")])
        if self.fold.error is not None and not self.relays_error:
            return Piece(self.cut(self.fold.error))
        rest = b"".join(self._held) + tail
        return Piece(b"", rest) if self.readable else Piece(rest)

    def cut(self, error: ApiError) -> bytes:
        self._silent = True
        return write_cut(self._codec, self.fold, error, self._created)

    def _sort(self, frames: list[bytes]) -> Piece:
        now: list[bytes] = []
        last: list[bytes] = []
        for raw in frames:
            if self._silent:  # nothing that follows an error of ours may look like a success
                break
            self._read(self._reader.feed(raw))
            if self._reader.is_body:
                continue
            if self.fold.error is not None and not self.relays_error:
                # Instead of the frame: it may be the mark of a good end (`[DONE]`).
                now.append(self.cut(self.fold.error))
            elif self.fold.ended and self.fold.error is None:
                last.append(raw)
            elif self._finished and not self._codec.marks_end and not self._ended:
                self._held.append(raw)
            else:
                now.append(raw)
        return Piece(b"".join(now), b"".join(last))

    def _read(self, events: list[Event]) -> None:
        """Fold a copy, and note the end."""
        for event in events:
            if self._ended:
                return
            self._finished = self._finished or (isinstance(event, Finish) and bool(event.stop))
            match event:
                case Fail(error=error, cause="frame"):
                    self._give_up(error)
                case Fail(cause=cause):
                    self._ended = True
                    self.relays_error = cause == "event"
                    self.fold.send(event)
                case End():
                    self._ended = True
                    if self.readable:
                        self.fold.send(event)
                case _ if self.readable:
                    self._fold(event)
                case _:
                    pass

    def _fold(self, event: Event) -> None:
        try:
            self.fold.send(event)
        except UpstreamProtocolError as error:
            self._give_up(error_of(error))

    def _give_up(self, error: ApiError) -> None:
        self.readable = False
        self._broken = self._broken or error

    def _write_stream(self, events: list[Event]) -> Piece:
        """The stream that a whole body means."""
        encoder = self._codec.stream_encoder(self._created)
        now: list[bytes] = []
        last: list[bytes] = []
        for event in events:
            self.fold.send(event)
            shown = event if self._costs else without_usage(event)
            frames = map(write_frame, encoder.send(shown))
            (last if isinstance(event, End) else now).extend(frames)
        self._ended = True
        return Piece(b"".join(now), b"".join(last))


class TranslatingRelay:
    """The upstream's events, in the caller's words and with its tools' own names."""

    relays_error = False

    def __init__(
        self,
        source: Codec,
        target: Codec,
        origin: Origin,
        created: int,
        *,
        calls: Calls | None = None,
        costs: bool = True,
        thinking: ThinkingMember = "reasoning_content",
    ) -> None:
        self._thinking: ThinkingMember = thinking
        self.fold = Fold(origin)
        self._restorer = CallRestorer(calls or {})
        self._seed = uuid4().hex[:16]
        self._teller = RefusalTeller() if tells_apart(source, target) else None
        self._costs = costs
        self._target = target
        self._reader = AnswerReader(source)
        self._encoder = target.stream_encoder(created)
        self._encoder.losses.locate = self._locate
        self._source = source

    def _locate(self, place: Place) -> str:
        return self._source.locate_answer(self.fold.response(), place)

    @property
    def losses(self) -> list[Loss]:
        return [*self._reader.repairs, *self._encoder.losses.items]

    def feed(self, chunk: bytes) -> Piece:
        return self._say(self._reader.feed(chunk))

    def close(self) -> Piece:
        return self._say(self._reader.close())

    def cut(self, error: ApiError) -> bytes:
        return self._say([Fail(error)], ours=True).now

    def _say(self, events: list[Event], *, ours: bool = False) -> Piece:
        now: list[bytes] = []
        last: list[bytes] = []
        named = [name_event(event, self._seed) for event in events]
        known = [said for event in named for said in self._restorer.send(event)]
        if self._teller is not None:
            known = [said for event in known for said in self._teller.send(event)]
        for event in known:
            if self.fold.ended and not ours:
                break  # whatever an upstream says behind its end is nobody's
            if isinstance(event, Start):
                event = structs.replace(event, id=shape_id(self._target.protocol, event.id))
            self.fold.send(event)
            told = event if self._costs else without_usage(event)
            told = place_thinking_event(told, self._thinking, self._target.protocol)
            frames = map(write_frame, self._encoder.send(told))
            (last if isinstance(event, End) else now).extend(frames)
        return Piece(b"".join(now), b"".join(last))


def without_usage(event: Event) -> Event:
    """The event for a caller who did not ask what the answer costs."""
    if isinstance(event, Start | Finish) and event.usage is not None:
        return structs.replace(event, usage=None)
    return event


def wants_usage(protocol: str, body: JsonObject) -> bool:
    """Whether a streamed answer ends with its usage; most wires always say it."""
    return protocol not in USAGE_OPTION or USAGE_OPTION[protocol](body)


def _include_usage(body: JsonObject) -> bool:
    options = body.get("stream_options")
    return isinstance(options, dict) and bool(cast(JsonObject, options).get("include_usage"))


USAGE_OPTION: dict[str, Callable[[JsonObject], bool]] = {"openai-chat": _include_usage}
"""Wires that tell the usage of a stream only on demand; others would stumble over its frame."""


def write_cut(codec: Codec, folding: Fold, error: ApiError, created: int) -> bytes:
    """An error frame for a stream that others began to write."""
    encoder = codec.stream_encoder(created)
    response = folding.response()
    encoder.send(Start(id=response.id, model=response.model))  # its frames were sent long ago
    return b"".join(map(write_frame, encoder.send(Fail(error))))


def keepalive(protocol: str) -> bytes:
    """What to send a caller of this protocol when there is nothing to say."""
    return KEEPALIVE.get(protocol, COMMENT)
