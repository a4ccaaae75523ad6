"""Streams, both ways: https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent

Every frame is a whole `GenerateContentResponse`: some parts, the counts so far, and at last a
finish reason. Nothing marks the end but the end of the bytes. Texts of one kind that follow each
other are one block, as they are in an answer that is not streamed; a call comes whole.

The decoder puts each frame before the events it means, so that a client of this wire gets the
frames as they were.
"""

from typing import Any

import orjson
from msgspec import structs

from weft.codec.base import Frame, Losses, members
from weft.codec.fields import lose_stop
from weft.codec.stream import cut_off, json_frame, unreadable
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
    Origin,
    Other,
    Refusal,
    Start,
    Stop,
    Text,
    Thinking,
    ToolCall,
    merge_usage,
)

from .blocks import PartReader
from .errors import decode_error, encode_error
from .response import (
    answer_parts,
    decode_finish,
    decode_part,
    decode_start,
    failed_candidate,
    first_candidate,
    show,
    write_answer,
)
from .usage import encode_usage
from .wire import PROTOCOL, SAME_WORD
from .write import Writer, own_ext

SIGNATURE = "thoughtSignature"


class StreamDecoder:
    """Frames become events. `_said` is what has arrived of the text that is open."""

    def __init__(self) -> None:
        self._reader: PartReader | None = None
        self._index = -1
        self._open: Text | Thinking | None = None
        self._said: list[str] = []
        self._signature: str | None = None
        self._called = False
        self.repairs = Losses()
        self._finished = False
        self._failed = False
        self._broken = False

    def feed(self, frame: Frame) -> list[Event]:
        try:
            raw = members(orjson.loads(frame.data))
        except orjson.JSONDecodeError:
            raw = None
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
        return [*events, Finish(finish.stop, finish.usage, _lasting(finish))]

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
        """A piece of text: more of the open block, or the beginning of another."""
        signature = _signature(block)
        events: list[Event] = []
        if not self._joins(block, signature):
            if isinstance(block, Text) and not block.text and block.ext is None:
                return []  # it keeps its place in the frame, and says nothing
            events += self._close()
            self._index += 1
            self._open = Thinking("") if isinstance(block, Thinking) else Text("", _rest(block))
            events.append(Open(self._index, self._open))
        if block.text:
            self._said.append(block.text)
            kind = "thinking" if isinstance(block, Thinking) else "text"
            events.append(Delta(self._index, kind, block.text))
        if signature is not None:
            self._signature = signature
            if isinstance(block, Thinking):
                events.append(Delta(self._index, "signature", signature))
        return events

    def _joins(self, block: Text | Thinking, signature: str | None) -> bool:
        """Two signatures are never one, and a block with members of its own stands alone."""
        if type(self._open) is not type(block) or _rest(block) is not None:
            return False
        if self._open is not None and self._open.ext is not None:
            return False
        return signature is None or self._signature is None

    def _close(self) -> list[Event]:
        block, signature, said = self._open, self._signature, "".join(self._said)
        self._open, self._signature, self._said = None, None, []
        if block is None:
            return []
        if signature is None or isinstance(block, Thinking):
            return [Close(self._index)]
        ext = {PROTOCOL: {**own_ext(block.ext), SIGNATURE: signature}}
        return [Close(self._index, Text(said, ext))]


def _signature(block: Text | Thinking) -> str | None:
    if isinstance(block, Thinking):
        return block.signature
    value = own_ext(block.ext).get(SIGNATURE)
    return value if isinstance(value, str) else None


def _rest(block: Text | Thinking) -> Any:
    """The members of a part beside its text and signature, as an `ext`."""
    fields = {key: value for key, value in own_ext(block.ext).items() if key != SIGNATURE}
    return {PROTOCOL: fields} if fields else None


def _lasting(finish: Finish) -> Any:
    """What a frame says about the whole answer; that it holds no content says nothing of it."""
    fields = dict(own_ext(finish.ext))
    fields.pop("content", None)
    fields.pop("unanswered", None)
    return {PROTOCOL: fields} if fields else None


class StreamEncoder:
    """Events become frames. Calls are written when they are whole; `_skip` counts the events that
    a frame of this wire's own has already said."""

    def __init__(self, _created: int) -> None:
        self.losses = Losses()
        self._writer = Writer(None, self.losses)
        self._start = Start()
        self._finish = Finish()
        self._skip = 0
        self._own = False
        self._blocks: dict[int, Block] = {}
        self._grown: dict[int, list[str]] = {}
        self._kinds: set[str] = set()

    def send(self, event: Event) -> list[Frame]:
        if self._skip:
            self._skip -= 1
            return []
        match event:
            case Delta(index=index, kind=kind, text=text):
                return self._delta(index, kind, text)
            case Open(index=index, block=block):
                return self._opened(index, block)
            case Close(index=index, block=block):
                return self._closed(index, block)
            case Start():
                self._start = event
                self._finish = Finish(None, event.usage)
                return []
            case Finish(stop=stop, usage=usage):
                old = self._finish
                self._finish = Finish(stop or old.stop, merge_usage(old.usage, usage))
                return []
            case End():
                return [] if self._own else self._end()
            case Fail(error=error):
                return [json_frame(encode_error(error)[1])]
            case Other():
                return self._other(event)

    def _other(self, event: Other) -> list[Frame]:
        if event.protocol == PROTOCOL:
            self._own = True
            self._skip = event.says or 0
            return [json_frame(event.raw)]
        if event.says is None and event.kind not in self._kinds:
            self._kinds.add(event.kind)
            self.losses.add("", f"a {event.kind} event", "only its own protocol knows it", "form")
        return []

    def _opened(self, index: int, block: Block) -> list[Frame]:
        shown = show(block, FOREIGN, (0, index), self.losses)
        if isinstance(block, Thinking):
            shown = Thinking(block.text)
        if shown is None:
            return []
        self._blocks[index] = shown
        match shown:
            case Text(text=text) | Thinking(text=text) | Refusal(text=text):
                self._grown[index] = [text]
                return [self._frame(shown, index)] if text else []
            case ToolCall(arguments=arguments):
                self._grown[index] = [arguments]
                return []
            case _:
                return [self._frame(shown, index)]

    def _delta(self, index: int, kind: str, text: str) -> list[Frame]:
        block = self._blocks.get(index)
        if block is None:
            return []
        if kind == "signature":
            if kind not in self._kinds:
                self._kinds.add(kind)
                what = "the signature of thinking"
                self.losses.add((0, index), what, "it is its maker's only", "form")
            return []
        self._grown[index].append(text)
        if kind == "arguments":
            return []
        return [self._frame(Thinking(text) if kind == "thinking" else Text(text), index)]

    def _closed(self, index: int, final: Block | None) -> list[Frame]:
        """A call is whole now; of a text, what the wire's last word has beyond its deltas."""
        block = self._blocks.pop(index, None)
        grown = "".join(self._grown.pop(index, ()))
        match block:
            case ToolCall():
                call = final if isinstance(final, ToolCall) and final.arguments else block
                arguments = grown if call is block else call.arguments
                return [self._frame(structs.replace(call, arguments=arguments), index)]
            case Text() | Thinking() | Refusal():
                said = final.text if isinstance(final, Text | Thinking | Refusal) else grown
                more = said.removeprefix(grown) if said.startswith(grown) else ""
                kind = Thinking if isinstance(block, Thinking) else Text
                return [self._frame(kind(more), index)] if more else []
            case _:
                return []

    def _end(self) -> list[Frame]:
        """The last frame; its text is empty, as Gemini's, for clients drop a turn without parts."""
        finish = self._finish
        lose_stop(finish.stop or Stop("end", ""), SAME_WORD, self.losses)
        if finish.stop is None:  # without a reason its clients take a stream for cut off
            finish = Finish(Stop("end"), finish.usage)
        frames: list[Frame] = []
        for index in sorted(self._blocks):
            frames += self._closed(index, None)
        return [*frames, self._written([{"text": ""}], finish)]

    def _frame(self, block: Block, index: int) -> Frame:
        return self._written([self._writer.part(block, (0, index))], Finish())

    def _written(self, parts: list[JsonObject], finish: Finish) -> Frame:
        body = write_answer(parts, finish.stop, {"index": 0})
        usage = encode_usage(finish.usage)
        if usage is not None:
            body["usageMetadata"] = usage
        if self._start.model is not None:
            body["modelVersion"] = self._start.model
        if self._start.id is not None:
            body["responseId"] = self._start.id
        return json_frame(body)


FOREIGN = Origin("")
"""Whoever's events come without a frame of this wire's own."""
