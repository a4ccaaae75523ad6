"""Encode events as a Responses stream.

Original frames of this protocol (`Other` with `says`) are repeated exactly, and the next `says`
events, which were decoded from that frame, are skipped. A stream of another protocol is written in
full: every item with its start, parts, deltas and end, in order. Several items may be open at the
same time, so nothing is buffered.
"""

from msgspec import Struct, field, structs

from weft.codec.base import Frame, Losses
from weft.codec.stream import json_frame
from weft.model import (
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
    Refusal,
    Start,
    Stop,
    Text,
    Thinking,
    ToolCall,
    Usage,
    merge_usage,
    streamed_text,
)

from .response import (
    encode_failure,
    encode_status,
    encode_usage,
    envelope,
    is_supported,
    output_item,
    output_part,
)
from .wire import PROTOCOL


class Item(Struct):
    """An open item: the block that it started with, and the pieces of text sent since."""

    number: int
    id: str
    block: Block
    pieces: list[str]
    signature: list[str] = field(default_factory=list[str])


class StreamEncoder:
    """Turns events into frames.

    `_output` has the finished items by number. `_skip` counts the events that an original frame
    already covers.
    """

    def __init__(self, created: int) -> None:
        self.losses = Losses()
        self._lost: set[str] = set()
        self._created = created
        self._sequence = 0
        self._skip = 0
        self._started = False
        self._id = "resp_weft"
        self._model: str | None = None
        self._open: dict[int, Item] = {}
        self._count = 0
        self._refused = False
        self._output: dict[int, JsonObject] = {}
        self._stop: Stop | None = None
        self._usage: Usage | None = None

    def send(self, event: Event) -> list[Frame]:
        if type(event) is Delta and not self._skip:  # nearly all events
            return self._delta(event.index, event.kind, event.text)
        if isinstance(event, Other):
            return self._other(event)
        is_written = self._skip > 0
        if is_written:
            self._skip -= 1
            if not isinstance(event, Start):
                return []
        match event:
            case Open(index=index, block=block):
                return [*self._begin(), *self._added(index, block)]
            case Close(index=index, block=block):
                return self._done(index, block)
            case Start():
                return self._start(event, is_written=is_written)
            case Finish(stop=stop, usage=usage):
                self._stop = stop or self._stop
                self._usage = merge_usage(self._usage, usage)
                return []
            case End():
                return [*self._begin(), *self._end()]
            case Fail():
                return self._fail(event)
            case _:
                return []

    def _other(self, event: Other) -> list[Frame]:
        if event.protocol != PROTOCOL:
            if event.says is None and event.kind not in self._lost:
                self._lost.add(event.kind)
                self.losses.add("", "vendor_event_dropped", event.kind)
            return []
        self._skip = event.says or 0
        if isinstance(event.raw, str):
            return [Frame(event.raw, event.kind or None)]
        number = event.raw.get("sequence_number")
        self._sequence = (number if isinstance(number, int) else self._sequence) + 1
        return [json_frame(event.raw, event.kind or None)]

    def _start(self, event: Start, *, is_written: bool) -> list[Frame]:
        if self._started:
            return []
        self._started = True
        self._id = event.id or self._id
        self._model = event.model
        self._usage = event.usage
        if is_written:
            return []
        body = self._response("in_progress")
        return [
            self._frame("response.created", response=body),
            self._frame("response.in_progress", response=body),
        ]

    def _begin(self) -> list[Frame]:
        """Start the stream if its source sent no `Start`."""
        return self._start(Start(), is_written=False)

    def _response(self, status: str) -> JsonObject:
        output = [item for _, item in sorted(self._output.items())]
        body = envelope(self._id, self._model, self._created, status, output)
        body["usage"] = encode_usage(self._usage) if status != "in_progress" else None
        return body

    def _added(self, index: int, block: Block) -> list[Frame]:
        if not is_supported(block, (0, index), self.losses, beginning=True):
            return []
        number, self._count = self._count, self._count + 1
        self._refused = self._refused or isinstance(block, Refusal)
        started = _emptied(block)
        body = output_item(started, self._id, number, "in_progress")
        item = self._open[index] = Item(number, str(body.get("id", "")), started, [])
        if isinstance(block, Text | Refusal):
            body["content"] = []
        frames = [self._frame("response.output_item.added", output_index=number, item=body)]
        frames += self._part_added(item)
        text = streamed_text(block)
        if isinstance(block, Thinking) and block.signature:
            item.signature = [block.signature]
        return frames + (self._grown(item, text) if text else [])

    def _part_added(self, item: Item) -> list[Frame]:
        match item.block:
            case Text() | Refusal():
                part = output_part(item.block)
                return [self._of(item, "response.content_part.added", content_index=0, part=part)]
            case _:
                return []

    def _delta(self, index: int, kind: str, text: str) -> list[Frame]:
        item = self._open.get(index)
        if item is None:
            return []
        if kind == "signature":
            item.signature.append(text)
            return []
        return self._grown(item, text) if text else []

    def _grown(self, item: Item, text: str) -> list[Frame]:
        if type(item.block) is Text:
            item.pieces.append(text)
            return [self._text_frame(item, text)]
        frames: list[Frame] = []
        match item.block:
            case Refusal():
                frame = self._of(item, "response.refusal.delta", content_index=0, delta=text)
            case Thinking():
                if not item.pieces:
                    frames.append(self._summary(item, "reasoning_summary_part.added", ""))
                frame = self._of(
                    item, "response.reasoning_summary_text.delta", summary_index=0, delta=text
                )
            case ToolCall(custom=custom):
                frame = self._of(item, f"response.{CALLS[custom]}.delta", delta=text)
            case _:
                return []
        item.pieces.append(text)
        return [*frames, frame]

    def _summary(self, item: Item, name: str, text: str) -> Frame:
        part = {"type": "summary_text", "text": text}
        return self._of(item, f"response.{name}", summary_index=0, part=part)

    def _done(self, index: int, last: Block | None) -> list[Frame]:
        item = self._open.pop(index, None)
        if item is None:
            return []
        block = _whole(item, last)
        sent, text = "".join(item.pieces), streamed_text(block)
        missing = text[len(sent) :] if text.startswith(sent) else ""
        frames = self._grown(item, missing) if missing else []
        frames += self._part_done(item, block)
        body = self._output[item.number] = output_item(block, self._id, item.number)
        done = self._frame("response.output_item.done", output_index=item.number, item=body)
        return [*frames, done]

    def _part_done(self, item: Item, block: Block) -> list[Frame]:
        text = streamed_text(block)
        content: JsonObject
        match block:
            case Text():
                name = "response.output_text.done"
                content = {"text": text, "logprobs": []}
            case Refusal():
                name = "response.refusal.done"
                content = {"refusal": text}
            case Thinking() if item.pieces:
                name = "response.reasoning_summary_text.done"
                return [
                    self._of(item, name, summary_index=0, text=text),
                    self._summary(item, "reasoning_summary_part.done", text),
                ]
            case ToolCall(custom=custom, name=tool):
                name = f"response.{CALLS[custom]}.done"
                if custom:
                    return [self._of(item, name, input=text)]
                return [self._of(item, name, name=tool, arguments=text)]
            case _:
                return []
        return [
            self._of(item, name, content_index=0, **content),
            self._of(item, "response.content_part.done", content_index=0, part=output_part(block)),
        ]

    def _end(self) -> list[Frame]:
        frames = [frame for index in list(self._open) for frame in self._done(index, None)]
        status, incomplete = encode_status(self._stop, self.losses, refused=self._refused)
        body = self._response(status)
        body["incomplete_details"] = incomplete
        return [*frames, self._frame(f"response.{status}", response=body)]

    def _fail(self, event: Fail) -> list[Frame]:
        error = event.error
        failure = encode_failure(error)
        if not self._started:
            return [self._frame("error", **failure, param=error.param)]
        body = self._response("failed")
        body["error"] = failure
        return [self._frame("response.failed", response=body)]

    def _text_frame(self, item: Item, text: str) -> Frame:
        """Like `_of`, written out: there is one such frame per token."""
        kind = "response.output_text.delta"
        body: JsonObject = {
            "type": kind,
            "sequence_number": self._sequence,
            "item_id": item.id,
            "output_index": item.number,
            "content_index": 0,
            "delta": text,
            "logprobs": [],
        }
        self._sequence += 1
        return json_frame(body, kind)

    def _of(self, item: Item, kind: str, **members: object) -> Frame:
        return self._frame(kind, item_id=item.id, output_index=item.number, **members)

    def _frame(self, kind: str, **members: object) -> Frame:
        body = {"type": kind, "sequence_number": self._sequence, **members}
        self._sequence += 1
        return json_frame(body, kind)


CALLS = {False: "function_call_arguments", True: "custom_tool_call_input"}
"""The event name of a call's deltas, by whether the call is custom."""


def _emptied(block: Block) -> Block:
    """A block without the text and signature, which are sent later."""
    match block:
        case Text() | Refusal():
            return structs.replace(block, text="")
        case Thinking():
            return structs.replace(block, text="", signature=None)
        case ToolCall():
            return structs.replace(block, arguments="")
        case _:
            return block


def _whole(item: Item, last: Block | None) -> Block:
    """The finished block: the one in the `Close` event, else the sum of the deltas."""
    if last is not None and type(last) is type(item.block):
        return last
    text = "".join(item.pieces)
    match item.block:
        case Text() | Refusal():
            return structs.replace(item.block, text=text)
        case Thinking():
            return structs.replace(item.block, text=text, signature="".join(item.signature) or None)
        case ToolCall():
            return structs.replace(item.block, arguments=text)
        case _:
            return item.block
