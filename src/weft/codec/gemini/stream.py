"""Decodes and encodes streams:
https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent

Every frame is a complete `GenerateContentResponse` with some parts and the token counts so far. The
last one has a finish reason, but only the end of the connection ends the stream. Consecutive texts
of one kind are one block. A call comes in one piece, or its arguments come in many
(`streamed_calls`); it is passed on when they are complete. Candidates with another index than 0 are
alternatives, each decoded for itself.

The decoder emits each original frame before the events decoded from it, so that a client of this
protocol gets the original frames.

Every frame that the encoder writes is a complete response, too.
"""

from msgspec import structs

from weft.codec.base import Frame, Losses
from weft.codec.reports import report_stop
from weft.codec.stream import cut_off_error, json_frame, read_frame, unreadable_error
from weft.errors import Refused
from weft.exact_json import dumps
from weft.model import (
    Alternative,
    ApiError,
    Block,
    Close,
    Delta,
    End,
    Event,
    Ext,
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

from .blocks import PartReader, Writer, own_ext
from .enums import is_vertex
from .response import (
    answer_parts,
    candidate_number,
    client_block,
    close_calls,
    decode_error,
    decode_finish,
    decode_part,
    decode_start,
    decode_stop,
    encode_error,
    encode_usage,
    failed_candidate,
    first_candidate,
    write_answer,
)
from .streamed_calls import CallJoiner
from .wire import EXACT_STOPS, PROTOCOL

SIGNATURE = "thoughtSignature"
DONE = "[DONE]"


class StreamDecoder:
    """Turns frames into events.

    `_open` is the open block, `_index` its index, `_pieces` its text so far. `_called` is whether
    the answer contains a call. `_broken` is whether a frame could not be decoded.
    """

    def __init__(self) -> None:
        self._reader: PartReader | None = None
        self._index = -1
        self._open: Text | Thinking | None = None
        self._pieces: list[str] = []
        self._signature: str | None = None
        self._called = False
        self.repairs = Losses()
        self._joiner = CallJoiner(self.repairs)
        self._alternatives: dict[int, StreamDecoder] = {}
        self._envelope: JsonObject = {}
        self._stopped: JsonObject = {}
        self._finished = False
        self._failed = False
        self._broken = False

    @property
    def is_complete(self) -> bool:
        if self._failed:
            return True
        return self._finished and all(
            decoder.is_complete for decoder in self._alternatives.values()
        )

    def feed(self, frame: Frame) -> list[Event]:
        if frame.data.strip() == DONE:  # some proxies send the end mark of Chat
            return [Other(PROTOCOL, DONE, frame, event_count=0)]
        raw = read_frame(frame)
        if raw is None:
            self._broken = True
            return [Fail(unreadable_error(frame), "frame")]
        if raw.get("error"):
            self._failed = True
            return [Fail(decode_error(raw, 0))]
        try:
            events = self._events(raw)
        except Refused as error:
            self._broken = True
            return [Fail(ApiError("server", str(error), 502, "INTERNAL"), "frame")]
        return [Other(PROTOCOL, "frame", raw, event_count=len(events)), *events]

    def close(self) -> list[Event]:
        if self._failed:
            return []
        if self.is_complete:
            events = self._end()
            for number, decoder in self._alternatives.items():
                events += [Alternative(number, event) for event in decoder._end()]
            return [*events, End()]
        return [] if self._broken else [Fail(cut_off_error("a finishReason"), "end")]

    def _end(self) -> list[Event]:
        """The end of the open blocks. Some models name a reason in every frame, so it is not yet
        the end."""
        events: list[Event] = []
        if self._reader is not None:
            for call in close_calls(self._joiner, self._reader, self._stopped, self.repairs):
                events += self._block_events(call)
                stop = decode_stop(self._stopped, self._envelope, self._called)
                events.append(Finish(stop))
        return [*events, *self._close()]

    def _events(self, raw: JsonObject) -> list[Event]:
        events: list[Event] = []
        if self._reader is None:
            events.append(decode_start(raw))
        candidate = first_candidate(raw)
        events += self._candidate_events(raw, candidate)
        if self._failed:
            return events
        for place, other in enumerate(raw.get("candidates") or ()):
            if other is candidate:
                continue
            number = candidate_number(other, place)
            decoder = self._alternatives.setdefault(number, StreamDecoder())
            inner = decoder._candidate_events({**raw, "usageMetadata": None}, other)
            if decoder._failed:
                self._failed = True
                return [*events, *inner]
            events += [Alternative(number, event) for event in inner]
        return events

    def _candidate_events(self, raw: JsonObject, candidate: JsonObject) -> list[Event]:
        """The events of one candidate in a frame."""
        if self._reader is None:
            self._reader = PartReader(str(raw.get("responseId") or "answer"))
        events: list[Event] = []
        if is_vertex(raw):  # the numbers of its finish reasons are others
            self._envelope = {"createTime": ""}
        body = {**self._envelope, **raw}
        for number, part in enumerate(answer_parts(candidate)):
            for whole in self._joiner.feed(part):
                block = decode_part(self._reader, whole, number, self.repairs)
                events += self._block_events(block)
        error = failed_candidate(candidate, body, called=self._called)
        if error is not None:
            self._failed = True
            return [*events, Fail(error)]
        finish = decode_finish(body, candidate, self._called)
        if finish.stop is not None:
            self._finished = True
            self._stopped = candidate
        return [*events, Finish(finish.stop, finish.usage, _answer_members(finish, raw))]

    def _block_events(self, block: Block) -> list[Event]:
        if isinstance(block, Text | Thinking):
            return self._text_events(block)
        if isinstance(block, ToolCall):
            self._called = True
        events = self._close()
        self._index += 1
        return [*events, Open(self._index, block), Close(self._index)]

    def _text_events(self, block: Text | Thinking) -> list[Event]:
        """The events for a piece of text, which continues the open block or opens a new one."""
        signature = _signature(block)
        events: list[Event] = []
        if not self._continues(block, signature):
            if isinstance(block, Text) and not block.text and block.ext is None:
                return []  # an empty text without metadata
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
        """Whether text continues the open block.

        A block has at most one signature, and all its other members come with its first piece.
        """
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


def _other_members(block: Text | Thinking) -> Ext | None:
    """The members of a part except text and signature."""
    fields = {key: value for key, value in own_ext(block.ext).items() if key != SIGNATURE}
    return {PROTOCOL: fields} if fields else None


def _answer_members(finish: Finish, raw: JsonObject) -> Ext | None:
    """A frame's members about the whole answer, without the notes about the frame's own content."""
    fields = dict(own_ext(finish.ext))
    fields.pop("content", None)
    fields.pop("unanswered", None)
    if "envelope" in fields:
        fields["envelope"] = {key: v for key, v in fields["envelope"].items() if key in raw}
        if not fields["envelope"]:
            del fields["envelope"]
    return {PROTOCOL: fields} if fields else None


FOREIGN = Origin("")
"""The origin of events that come without a frame of this protocol."""

EMPTY_TEXT = '"text":""'
"""An empty text in a frame. In a string of the frame, the quotes would be escaped."""


class StreamEncoder:
    """Turns events into frames.

    A call is written when it is complete.

    - `_skip`: the number of next events to skip, because an original frame contains them.
    - `_native`: whether there was an original frame of this protocol.
    - `_pieces`: the text or arguments of each open block so far.
    - `_reported`: the kinds of events and deltas that were reported as lost.
    - `_text_frame`: a frame with text, split where the text is inserted.
    - `_number`: the index of the candidate; `_alternatives`: the encoders of the other ones.
    """

    def __init__(self, _created: int, number: int = 0) -> None:
        self.losses = Losses()
        self._number = number
        self._alternatives: dict[int, StreamEncoder] = {}
        self._writer = Writer(None, self.losses)
        self._start = Start()
        self._finish = Finish()
        self._skip = 0
        self._native = False
        self._blocks: dict[int, Block] = {}
        self._pieces: dict[int, list[str]] = {}
        self._reported: set[str] = set()
        self._text_frame: tuple[str, str] | None = None

    def send(self, event: Event) -> list[Frame]:
        if self._skip:
            self._skip -= 1
            return []
        if self._native and not isinstance(event, Other | Fail):
            return []  # the original frames have everything
        if type(event) is Delta:  # nearly all events
            return self._delta(event.index, event.kind, event.text)
        match event:
            case Open(index=index, block=block):
                return self._opened(index, block)
            case Close(index=index, block=block):
                return self._closed(index, block)
            case Start():
                self._start = event
                self._finish = Finish(None, event.usage)
                self._text_frame = None
                return []
            case Finish(stop=stop, usage=usage):
                old = self._finish
                self._finish = Finish(stop or old.stop, merge_usage(old.usage, usage))
                return []
            case End():
                return self._end()
            case Fail(error=error):
                return [json_frame(encode_error(error)[1])]
            case Other():
                return self._other(event)
            case Alternative(number=number, event=inner):
                return self._alternative(number, inner)
            case _:
                return []

    def _alternative(self, number: int, event: Event) -> list[Frame]:
        """The frames for an event of another candidate."""
        encoder = self._alternatives.get(number)
        if encoder is None:
            encoder = self._alternatives[number] = StreamEncoder(0, number)
            encoder.losses.items = self.losses.items
            encoder.losses.locate = lambda _position: self.losses.path(("alternative", number))
            encoder.send(self._start)
        return encoder.send(event)

    def _other(self, event: Other) -> list[Frame]:
        if event.protocol == PROTOCOL:
            self._native = True
            self._skip = event.event_count or 0
            return [event.raw if isinstance(event.raw, Frame) else json_frame(event.raw)]
        if event.event_count is None and event.kind not in self._reported:
            self._reported.add(event.kind)
            self.losses.add("", "vendor_event_dropped", event.kind)
        return []

    def _opened(self, index: int, block: Block) -> list[Frame]:
        supported = client_block(block, FOREIGN, (0, index), self.losses)
        if isinstance(block, Thinking):  # even if it is empty so far
            supported = Thinking(block.text)
        if supported is None:
            return []
        self._blocks[index] = supported
        match supported:
            case Text(text=text) | Thinking(text=text) | Refusal(text=text):
                self._pieces[index] = [text]
                return [self._frame(supported, index)] if text else []
            case ToolCall(arguments=arguments):
                self._pieces[index] = [arguments]
                return []
            case _:
                return [self._frame(supported, index)]

    def _delta(self, index: int, kind: str, text: str) -> list[Frame]:
        block = self._blocks.get(index)
        if block is None:
            return []
        if kind == "signature":
            if kind not in self._reported:
                self._reported.add(kind)
                self.losses.add((0, index), "thinking_signature_dropped")
            return []
        self._pieces[index].append(text)
        if kind == "arguments":
            return []
        if kind == "thinking":
            return [self._frame(Thinking(text), index)]
        # All frames with text differ in the text alone, and there is one per token.
        if self._text_frame is None:
            empty = self._frame(Text(""), index).data
            before, _, after = empty.partition(EMPTY_TEXT)
            self._text_frame = before, after
        before, after = self._text_frame
        return [Frame(f'{before}"text":{dumps(text).decode()}{after}')]

    def _closed(self, index: int, final: Block | None) -> list[Frame]:
        """The frame of a complete call, or of text in the final block that no delta had."""
        block = self._blocks.pop(index, None)
        sent = "".join(self._pieces.pop(index, ()))
        match block:
            case ToolCall():
                call = final if isinstance(final, ToolCall) and final.arguments else block
                arguments = sent if call is block else call.arguments
                return [self._frame(structs.replace(call, arguments=arguments), index)]
            case Text() | Thinking() | Refusal():
                text = final.text if isinstance(final, Text | Thinking | Refusal) else sent
                missing = text.removeprefix(sent) if text.startswith(sent) else ""
                kind = Thinking if isinstance(block, Thinking) else Text
                return [self._frame(kind(missing), index)] if missing else []
            case _:
                return []

    def _end(self) -> list[Frame]:
        """The last frame. Its text is empty, as in Gemini's: clients drop a turn without parts."""
        finish = self._finish
        report_stop(finish.stop or Stop("end", ""), EXACT_STOPS, self.losses)
        if finish.stop is None:  # clients treat a stream without a reason as cut off
            finish = Finish(Stop("end"), finish.usage)
        frames: list[Frame] = []
        for index in sorted(self._blocks):
            frames += self._closed(index, None)
        for encoder in self._alternatives.values():
            frames += encoder._end()
        return [*frames, self._write([{"text": ""}], finish)]

    def _frame(self, block: Block, index: int) -> Frame:
        return self._write([self._writer.part(block, (0, index))], Finish())

    def _write(self, parts: list[JsonObject], finish: Finish) -> Frame:
        body = write_answer(parts, finish.stop, {"index": self._number})
        usage = encode_usage(finish.usage)
        if usage is not None:
            body["usageMetadata"] = usage
        if self._start.model is not None:
            body["modelVersion"] = self._start.model
        if self._start.id is not None:
            body["responseId"] = self._start.id
        return json_frame(body)
