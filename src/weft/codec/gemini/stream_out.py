"""Encode streams: each frame is a complete `GenerateContentResponse`."""

from msgspec import structs
from orjson import dumps

from weft.codec.base import Frame, Losses
from weft.codec.reports import report_stop
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

from .blocks import Writer
from .response import (
    encode_error,
    encode_usage,
    show,
    write_answer,
)
from .wire import EXACT_STOPS, PROTOCOL

FOREIGN = Origin("")
"""The origin of events that come without a frame of this protocol."""

EMPTY_TEXT = '"text":""'
"""An empty text in a frame. In a string of the frame, the quotes would be escaped."""


class StreamEncoder:
    """Turns events into frames.

    A call is written when it is complete. `_skip` counts the events that an original frame of this
    protocol already covers. `_native` is whether there was such a frame.
    """

    def __init__(self, _created: int) -> None:
        self.losses = Losses()
        self._writer = Writer(None, self.losses)
        self._start = Start()
        self._finish = Finish()
        self._skip = 0
        self._native = False
        self._blocks: dict[int, Block] = {}
        self._pieces: dict[int, list[str]] = {}
        self._kinds: set[str] = set()
        self._text_frame: tuple[str, str] | None = None

    def send(self, event: Event) -> list[Frame]:
        if self._skip:
            self._skip -= 1
            return []
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
                return [] if self._native else self._end()
            case Fail(error=error):
                return [json_frame(encode_error(error)[1])]
            case Other():
                return self._other(event)
            case _:
                return []

    def _other(self, event: Other) -> list[Frame]:
        if event.protocol == PROTOCOL:
            self._native = True
            self._skip = event.says or 0
            return [json_frame(event.raw)]
        if event.says is None and event.kind not in self._kinds:
            self._kinds.add(event.kind)
            self.losses.add("", "vendor_event_dropped", event.kind)
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
                self._pieces[index] = [text]
                return [self._frame(shown, index)] if text else []
            case ToolCall(arguments=arguments):
                self._pieces[index] = [arguments]
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
            before, _, behind = empty.partition(EMPTY_TEXT)
            self._text_frame = before, behind
        before, behind = self._text_frame
        return [Frame(f'{before}"text":{dumps(text).decode()}{behind}')]

    def _closed(self, index: int, final: Block | None) -> list[Frame]:
        """Write a complete call, or the end of a text that the deltas lacked."""
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
        return [*frames, self._write([{"text": ""}], finish)]

    def _frame(self, block: Block, index: int) -> Frame:
        return self._write([self._writer.part(block, (0, index))], Finish())

    def _write(self, parts: list[JsonObject], finish: Finish) -> Frame:
        body = write_answer(parts, finish.stop, {"index": 0})
        usage = encode_usage(finish.usage)
        if usage is not None:
            body["usageMetadata"] = usage
        if self._start.model is not None:
            body["modelVersion"] = self._start.model
        if self._start.id is not None:
            body["responseId"] = self._start.id
        return json_frame(body)
