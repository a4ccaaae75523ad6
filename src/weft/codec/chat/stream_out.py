"""Encode streams: https://platform.openai.com/docs/api-reference/chat-streaming

A stream of the same protocol is written back chunk by chunk, unchanged. Any other is written from
its events: text as it arrives, and calls numbered in the order in which they open. The end is the
finish reason, the usage in a chunk without choices, and `[DONE]`, which never follows a failure.
"""

import orjson

from weft.codec.base import Frame, Losses
from weft.codec.openai import encode_error
from weft.codec.stream import json_frame
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

from .messages import write_call
from .response import encode_usage, finish_reason, is_supported, thinking_member
from .stream_in import DONE, Chunk
from .wire import CHUNK, PROTOCOL


class _OpenBlock:
    """An open block, the number of its call, and the length of the text sent so far."""

    def __init__(self, block: Block, number: int) -> None:
        self.block = block
        self.number = number
        self.length = 0


class StreamEncoder:
    """Turns events into frames."""

    def __init__(self, created: int) -> None:
        self.losses = Losses()
        self._created = created
        self._native = False
        self._started = False
        self._id = "chatcmpl-weft"
        self._model = ""
        self._open: dict[int, _OpenBlock] = {}
        self._calls = 0
        self._refused = False
        self._stop: Stop | None = None
        self._usage: Usage | None = None
        self._lost: set[str] = set()
        self._unsigned: set[int] = set()
        self._thoughts: list[int] = []
        self._head = self._make_head()

    def send(self, event: Event) -> list[Frame]:
        if type(event) is Delta and not self._native:  # nearly all events
            if event.kind != "signature":
                return self._grow(event.index, event.text)
            self._report_signature(event.index)
            return []
        if isinstance(event, Chunk):
            self._native = True
            return [event.frame]
        if isinstance(event, Fail):
            relayed = self._native and event.cause == "event" and _is_native(event.error)
            return [] if relayed else [json_frame(encode_error(event.error)[1])]
        if self._native:
            return [Frame(DONE)] if isinstance(event, End) else []
        return self._write(event)

    def _write(self, event: Event) -> list[Frame]:
        match event:
            case Open(index=index, block=block):
                return self._opened(index, block)
            case Close(index=index, block=block):
                return self._closed(index, block)
            case Start():
                return self._start(event)
            case Finish(stop=stop, usage=usage):
                self._stop = stop or self._stop
                self._usage = merge_usage(self._usage, usage)
                return []
            case End():
                return self._end()
            case Other(protocol=protocol, kind=kind, says=says):
                if says is None:
                    self._report_event(protocol, kind)
                return []
            case _:
                return []

    def _start(self, event: Start) -> list[Frame]:
        if event.ext is not None and PROTOCOL in event.ext:
            self._native = True
            return []
        self._started = True
        self._id = event.id or self._id
        self._model = event.model or ""
        self._usage = event.usage
        self._head = self._make_head()
        return [self._chunk({"role": "assistant"})]

    def _begin(self) -> list[Frame]:
        """Start the stream if its source sent no `Start`."""
        return [] if self._started else self._start(Start())

    def _opened(self, index: int, block: Block) -> list[Frame]:
        if not is_supported(block, None, (0, index), self.losses):
            return []
        if isinstance(block, Thinking) and block.signature is not None:
            self._report_signature(index)
        if isinstance(block, Thinking):
            self._report_boundaries(index)
        frames = self._begin()
        open_block = self._open[index] = _OpenBlock(block, self._calls)
        self._refused = self._refused or isinstance(block, Refusal)
        if not isinstance(block, ToolCall):
            return frames + self._grow(index, streamed_text(block))
        self._calls += 1
        call = write_call(ToolCall(block.id, block.name, "", block.custom, block.namespace))
        frames.append(self._chunk({"tool_calls": [{"index": open_block.number, **call}]}))
        return frames + self._grow(index, block.arguments)

    def _grow(self, index: int, text: str) -> list[Frame]:
        open_block = self._open.get(index)
        if open_block is None or not text:
            return []
        open_block.length += len(text)
        if type(open_block.block) is Text:
            return [self._chunk({"content": text})]
        match open_block.block:
            case ToolCall(custom=custom):
                inner = {"custom": {"input": text}} if custom else {"function": {"arguments": text}}
                return [self._chunk({"tool_calls": [{"index": open_block.number, **inner}]})]
            case Refusal():
                return [self._chunk({"refusal": text})]
            case Thinking():
                return [self._chunk({thinking_member(open_block.block): text})]
            case _:
                return [self._chunk({"content": text})]

    def _closed(self, index: int, block: Block | None) -> list[Frame]:
        """Write the end of a text that the deltas lacked; a call without arguments gets `{}`."""
        open_block = self._open.get(index)
        if open_block is None:
            return []
        text = streamed_text(block) if block is not None else ""
        frames = self._grow(index, text[open_block.length :])
        if isinstance(open_block.block, Thinking) and not open_block.length:
            self.losses.add((0, index), "empty_thinking_dropped")
        if (
            isinstance(open_block.block, ToolCall)
            and not open_block.length
            and not open_block.block.custom
        ):
            frames += self._grow(index, "{}")
        del self._open[index]
        return frames

    def _report_boundaries(self, index: int) -> None:
        """Report that several thinking blocks become one text; the first is reported late."""
        self._thoughts.append(index)
        if len(self._thoughts) > 1:
            for number in self._thoughts[-1:] if len(self._thoughts) > 2 else self._thoughts:
                self.losses.add((0, number), "text_boundary_dropped", "thinking blocks")

    def _report_signature(self, index: int) -> None:
        if index not in self._unsigned:
            self._unsigned.add(index)
            self.losses.add((0, index), "thinking_signature_dropped")

    def _end(self) -> list[Frame]:
        frames = self._begin()
        for index in list(self._open):
            frames += self._closed(index, None)
        calls, refused = self._calls > 0, self._refused
        reason = finish_reason(self._stop, self.losses, calls=calls, refused=refused)
        frames.append(self._chunk({}, reason))
        usage = encode_usage(self._usage)
        if usage is not None:
            frames.append(json_frame({**self._envelope(), "choices": [], "usage": usage}))
        return [*frames, Frame(DONE)]

    def _report_event(self, protocol: str, kind: str) -> None:
        if protocol != PROTOCOL and kind != "ping" and kind not in self._lost:
            self._lost.add(kind)
            self.losses.add("", "vendor_event_dropped", kind)

    def _chunk(self, delta: JsonObject, finish: str | None = None) -> Frame:
        written, reason = orjson.dumps(delta).decode(), orjson.dumps(finish).decode()
        return Frame(f'{self._head}{written},"logprobs":null,"finish_reason":{reason}}}]}}')

    def _make_head(self) -> str:
        """The beginning of every chunk, which is written once: there is one chunk per token."""
        envelope = orjson.dumps(self._envelope()).decode()[:-1]
        return f'{envelope},"choices":[{{"index":0,"delta":'

    def _envelope(self) -> JsonObject:
        return {
            "id": self._id,
            "object": CHUNK,
            "created": self._created,
            "model": self._model,
        }


def _is_native(error: ApiError) -> bool:
    return error.ext is not None and PROTOCOL in error.ext
