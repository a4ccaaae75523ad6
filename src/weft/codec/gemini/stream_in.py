"""Decode streams: https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent

Every frame is a complete `GenerateContentResponse` with some parts and the counts so far. The last
one has a finish reason, but only the end of the connection ends the stream. Consecutive texts of
one kind are one block; a call comes in one piece.

The decoder emits each original frame before the events decoded from it, so that a client of this
protocol gets the original frames.
"""

from typing import Any

from weft.codec.base import Frame, Losses
from weft.codec.stream import cut_off, read_frame, unreadable
from weft.errors import Refused
from weft.model import (
    ApiError,
    Block,
    Close,
    Delta,
    End,
    Event,
    Fail,
    Finish,
    JsonObject,
    Open,
    Other,
    Text,
    Thinking,
    ToolCall,
)

from .blocks import PartReader, own_ext
from .response import (
    answer_parts,
    decode_error,
    decode_finish,
    decode_part,
    decode_start,
    failed_candidate,
    first_candidate,
)
from .wire import PROTOCOL

SIGNATURE = "thoughtSignature"


class StreamDecoder:
    """Turns frames into events. `_pieces` has the text of the open block so far."""

    def __init__(self) -> None:
        self._reader: PartReader | None = None
        self._index = -1
        self._open: Text | Thinking | None = None
        self._pieces: list[str] = []
        self._signature: str | None = None
        self._called = False
        self.repairs = Losses()
        self._finished = False
        self._failed = False
        self._broken = False

    def feed(self, frame: Frame) -> list[Event]:
        raw = read_frame(frame)
        if raw is None:
            self._broken = True
            return [Fail(unreadable(frame), "frame")]
        if raw.get("error"):
            self._failed = True
            return [Fail(decode_error(raw, 0))]
        try:
            events = self._events(raw)
        except Refused as error:
            self._broken = True
            return [Fail(ApiError("server", str(error), 502, "INTERNAL"), "frame")]
        return [Other(PROTOCOL, "frame", raw, says=len(events)), *events]

    def close(self) -> list[Event]:
        if self._failed:
            return []
        if self._finished:
            return [End()]
        return [] if self._broken else [Fail(cut_off("a finishReason"), "end")]

    def _events(self, raw: JsonObject) -> list[Event]:
        events: list[Event] = []
        if self._reader is None:
            self._reader = PartReader(str(raw.get("responseId") or "answer"))
            events.append(decode_start(raw))
        candidate = first_candidate(raw)
        for number, part in enumerate(answer_parts(candidate)):
            events += self._part(decode_part(self._reader, part, number, self.repairs))
        error = failed_candidate(candidate, called=self._called)
        if error is not None:
            self._failed = True
            return [*events, Fail(error)]
        finish = decode_finish(raw, candidate, self._called)
        if finish.stop is not None:
            self._finished = True
            events += self._close()
        return [*events, Finish(finish.stop, finish.usage, _answer_members(finish))]

    def _part(self, block: Block) -> list[Event]:
        match block:
            case Text() | Thinking():
                return self._text(block)
            case ToolCall():
                self._called = True
            case _:
                pass
        events = self._close()
        self._index += 1
        return [*events, Open(self._index, block), Close(self._index)]

    def _text(self, block: Text | Thinking) -> list[Event]:
        """A piece of text, which continues the open block or opens a new one."""
        signature = _signature(block)
        events: list[Event] = []
        if not self._continues(block, signature):
            if isinstance(block, Text) and not block.text and block.ext is None:
                return []  # empty text adds nothing
            events += self._close()
            self._index += 1
            self._open = (
                Thinking("") if isinstance(block, Thinking) else Text("", _other_members(block))
            )
            events.append(Open(self._index, self._open))
        if block.text:
            self._pieces.append(block.text)
            kind = "thinking" if isinstance(block, Thinking) else "text"
            events.append(Delta(self._index, kind, block.text))
        if signature is not None:
            self._signature = signature
            if isinstance(block, Thinking):
                events.append(Delta(self._index, "signature", signature))
        return events

    def _continues(self, block: Text | Thinking, signature: str | None) -> bool:
        """Whether text continues the open block: not with a second signature or other members."""
        if type(self._open) is not type(block) or _other_members(block) is not None:
            return False
        if self._open is not None and self._open.ext is not None:
            return False
        return signature is None or self._signature is None

    def _close(self) -> list[Event]:
        block, signature, text = self._open, self._signature, "".join(self._pieces)
        self._open, self._signature, self._pieces = None, None, []
        if block is None:
            return []
        if signature is None or isinstance(block, Thinking):
            return [Close(self._index)]
        ext = {PROTOCOL: {**own_ext(block.ext), SIGNATURE: signature}}
        return [Close(self._index, Text(text, ext))]


def _signature(block: Text | Thinking) -> str | None:
    if isinstance(block, Thinking):
        return block.signature
    value = own_ext(block.ext).get(SIGNATURE)
    return value if isinstance(value, str) else None


def _other_members(block: Text | Thinking) -> Any:
    """The members of a part except text and signature, as an `ext`."""
    fields = {key: value for key, value in own_ext(block.ext).items() if key != SIGNATURE}
    return {PROTOCOL: fields} if fields else None


def _answer_members(finish: Finish) -> Any:
    """The members of a frame about the whole answer; notes about its own content are dropped."""
    fields = dict(own_ext(finish.ext))
    fields.pop("content", None)
    fields.pop("unanswered", None)
    return {PROTOCOL: fields} if fields else None
