"""Streams on their way from an upstream to a client, without I/O.

If the upstream speaks the client's protocol, `PassThroughRelay` forwards the bytes unchanged and
decodes a copy for the record. Otherwise an `AnswerTranslator` translates them. Both return whole
frames, so that a keep-alive can be sent between any two pieces.

Both hold back the frame that ends a successful answer: `Piece.last` may only be sent when the
answer is stored. A stream without that frame is an error for every client, so a truncated upstream
stream never looks like a success.
"""

import re
from typing import Protocol

from weft.codec import AnswerOptions, AnswerReader, AnswerWriter, Codec, Piece, error_of
from weft.errors import UpstreamError
from weft.model import (
    ApiError,
    End,
    Event,
    Fail,
    Fold,
    Loss,
    Origin,
    Response,
    Start,
)

_FRAME_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
LONGEST_END = 4
"""The number of bytes of the longest frame end."""


class Relay(Protocol):
    """A stream on its way to the client.

    `relays_error` says whether the upstream's own error frame was forwarded to the client.
    """

    relays_error: bool

    @property
    def response(self) -> Response:
        """The answer so far, as it is recorded."""
        ...

    @property
    def answer_fold(self) -> Fold:
        """The answer as it grows, for its watchers."""
        ...

    @property
    def started(self) -> bool:
        """Whether anything of the answer has arrived."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the answer has ended: by its final event, or by an error."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether the upstream's bytes may end here, even if the connection breaks: the answer is
        whole, or it has failed."""
        ...

    @property
    def error(self) -> ApiError | None:
        """The error that ended the answer."""
        ...

    @property
    def losses(self) -> list[Loss]:
        """The losses of the translation into the client's protocol."""
        ...

    def feed(self, data: bytes, /) -> Piece:
        """Take bytes of the upstream; returns bytes for the client."""
        ...

    def close(self) -> Piece:
        """Report that the upstream's bytes have ended; returns the last bytes for the client."""
        ...

    def fail(self, error: ApiError) -> bytes:
        """The frames for an error of the gateway within a stream, in the client's protocol."""
        ...


class FrameCutter:
    """Splits bytes after each blank line, without changing any byte."""

    def __init__(self) -> None:
        self._tail: list[bytes] = []  # the bytes after the last blank line
        self._edge = b""  # the last of them, in which a frame end may begin

    def feed(self, chunk: bytes) -> list[bytes]:
        """The frames that are complete now, unchanged."""
        window = self._edge + chunk
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
        """The bytes after the last blank line."""
        tail, self._tail, self._edge = b"".join(self._tail), [], b""
        return tail


class PassThroughRelay:
    """Forwards the upstream's bytes unchanged, and decodes a copy of them.

    - If the copy cannot be decoded, the bytes are still forwarded, but the answer is not recorded
      (`readable` is false). The relay still watches for the end.
    - If the upstream sends a body instead of a stream, it is written as a stream.
    - Where a stream may end without a terminal event (after a `finish_reason` of Chat, or of
      Gemini), the last frames are kept in `_held_back` until the end.
    """

    def __init__(self, codec: Codec, options: AnswerOptions, origin: Origin) -> None:
        self.readable = True
        self.relays_error = False
        self._fold = Fold(origin)
        self._codec = codec
        self._options = options
        self._cutter = FrameCutter()
        self._reader = AnswerReader(codec)
        self._stream_ended = False  # unlike `ended`, also if the copy cannot be decoded
        self._first_fault: ApiError | None = None
        self._has_failed = False
        self._held_back: list[bytes] = []

    @property
    def response(self) -> Response:
        return self._fold.response()

    @property
    def answer_fold(self) -> Fold:
        return self._fold

    @property
    def started(self) -> bool:
        return self._fold.started

    @property
    def ended(self) -> bool:
        return self._fold.ended

    @property
    def is_complete(self) -> bool:
        return self._reader.is_complete

    @property
    def error(self) -> ApiError | None:
        return self._fold.error

    @property
    def losses(self) -> list[Loss]:
        return []

    def feed(self, data: bytes) -> Piece:
        return self._forward_frames(self._cutter.feed(data))

    def close(self) -> Piece:
        tail = self._cutter.close()
        self._read_events(self._reader.feed(tail))
        events = self._reader.close()
        if self._reader.is_body:
            return self._write_stream(events)
        if self._has_failed:
            return Piece()
        self._read_events(events)
        if not self._stream_ended and self._first_fault is not None:
            self._read_events([Fail(self._first_fault, "end")])
        if self.error is not None and not self.relays_error:
            return Piece(self.fail(self.error))
        held_back = b"".join(self._held_back) + tail
        return Piece(b"", held_back) if self.readable else Piece(held_back)

    def fail(self, error: ApiError) -> bytes:
        self._has_failed = True
        writer, answer = AnswerWriter(self._codec, self._options), self.response
        # The writer needs the answer's id and model. The client already has this frame.
        writer.write([Start(id=answer.id, model=answer.model)])
        return writer.write([Fail(error)]).now

    def _forward_frames(self, frames: list[bytes]) -> Piece:
        """The frames to send now, and those to send after the answer is recorded."""
        now: list[bytes] = []
        last: list[bytes] = []
        for frame in frames:
            if self._has_failed:  # after an error of the gateway nothing may look like a success
                break
            self._read_events(self._reader.feed(frame))
            if self._reader.is_body:
                continue
            if self.error is not None and not self.relays_error:
                # It replaces this frame, which may be the mark of a good end (`[DONE]`).
                now.append(self.fail(self.error))
            elif self.ended and self.error is None:
                last += [*self._held_back, frame]
                self._held_back = []
            elif self.is_complete and not self._stream_ended:
                self._held_back.append(frame)
            else:
                now += self._held_back
                self._held_back = []
                now.append(frame)
        return Piece(b"".join(now), b"".join(last))

    def _read_events(self, events: list[Event]) -> None:
        """Add events to the copy of the answer, and watch for the end."""
        for event in events:
            if self._stream_ended:
                return
            match event:
                case Fail(error=error, cause="frame"):
                    self._stop_recording(error)
                case Fail(cause=cause):
                    self._stream_ended = True
                    self.relays_error = cause == "event"
                    self._fold.send(event)
                case End():
                    self._stream_ended = True
                    if self.readable:
                        self._fold.send(event)
                case _ if self.readable:
                    self._fold_event(event)
                case _:
                    pass

    def _fold_event(self, event: Event) -> None:
        try:
            self._fold.send(event)
        except UpstreamError as error:
            self._stop_recording(error_of(error))

    def _stop_recording(self, error: ApiError) -> None:
        self.readable = False
        self._first_fault = self._first_fault or error

    def _write_stream(self, events: list[Event]) -> Piece:
        """A whole body, written as the stream that the client asked for."""
        for event in events:
            self._fold.send(event)
        self._stream_ended = True
        return AnswerWriter(self._codec, self._options).write(events)
