"""Streams, both ways: https://platform.claude.com/docs/en/build-with-claude/streaming

The decoder keeps each block in its original form until it ends, so that it includes deltas which
only this protocol has. The first event has the input counts, the last one the output and changed
counts.

The encoder has only one block open at a time. Events of other blocks are buffered until the open
one is closed. A stream always begins with `message_start`, even if its source sent no start event.
"""

from typing import Any, cast

import orjson
from msgspec import structs

from weft.codec.base import Frame, Losses, members
from weft.codec.calls import report_empty_arguments
from weft.codec.errors import failed_stop
from weft.codec.lenient import piece_of
from weft.codec.stream import (
    MALFORMED,
    Pieces,
    cut_off,
    grow,
    json_frame,
    malformed,
    read_frame,
    unreadable,
)
from weft.model import (
    Block,
    Close,
    Delta,
    DeltaKind,
    End,
    Event,
    Fail,
    Finish,
    JsonObject,
    Message,
    Open,
    Other,
    Refusal,
    Start,
    Text,
    Thinking,
    ToolCall,
    Usage,
    merge_usage,
)

from .blocks import Writer, decode_block
from .response import (
    complete_block,
    decode_error,
    decode_final_usage,
    decode_start,
    decode_stop,
    encode_error,
    encode_usage,
    is_supported,
    stop_details,
    stop_reason,
)
from .wire import FAILED_STOPS, PROTOCOL

GROWS: dict[str, tuple[DeltaKind, str]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("arguments", "partial_json"),
    "signature_delta": ("signature", "signature"),
}
"""For each delta type: the kind of delta, and the member with its text."""

UNANNOUNCED: dict[str, JsonObject] = {
    "text_delta": {"type": "text", "text": ""},
    "thinking_delta": {"type": "thinking", "thinking": ""},
}
"""The block to open for a delta without a `content_block_start` before it."""


class StreamDecoder:
    """Turns frames into events. `_open` has the open blocks in their original form; texts that are
    still streamed are `Pieces`."""

    def __init__(self) -> None:
        self._open: dict[int, JsonObject] = {}
        self._citations: dict[int, list[Any]] = {}
        self._inputs: dict[int, list[str]] = {}
        self._closed: set[int] = set()
        self._counted: JsonObject = {}
        self._count = 0
        self._started = False
        self.repairs = Losses()
        self._ended = False
        self._broken = False

    def feed(self, frame: Frame) -> list[Event]:
        raw = read_frame(frame)
        if raw is None:
            self._broken = True
            return [Fail(unreadable(frame), "frame")]
        try:
            if raw.get("type") == "content_block_delta":  # nearly all frames
                return self._delta(raw)
            return self._events(raw, frame.event)
        except MALFORMED as error:
            self._broken = True
            return [Fail(malformed(frame, error), "frame")]

    def _events(self, raw: JsonObject, event: str | None) -> list[Event]:
        kind = raw.get("type")
        match kind:
            case "content_block_start":
                return self._start(raw)
            case "content_block_stop":
                return self._stop(raw)
            case "message_start":
                return [self._begin(members(raw.get("message")) or {})]
            case "message_delta":
                return self._finish(raw)
            case "message_stop":
                self._ended = True
                return [End()] if self._started else [Fail(cut_off("message_start"), "end")]
            case "error":
                return self._fail(raw, event)
            case "ping":
                return [Other(PROTOCOL, "ping", raw, covers=0)]
            case _ if raw.get("error"):
                return self._fail(raw, event)
            case _:
                return [Other(PROTOCOL, str(kind), raw)]

    def close(self) -> list[Event]:
        done = self._ended or self._broken
        return [] if done else [Fail(cut_off("message_stop"), "end")]

    def _fail(self, raw: JsonObject, event: str | None) -> list[Event]:
        """An error; the vendor's SDKs look at the name of the event, not at the type inside it."""
        self._ended = True
        return [Fail(decode_error(raw, 0), "event" if event == "error" else "stop")]

    def _begin(self, message: JsonObject) -> Start:
        self._started = True
        self._counted = members(message.get("usage")) or {}
        return decode_start(message)

    def _start(self, raw: JsonObject) -> list[Event]:
        self._started = True
        index = self._index(raw, begins=True)
        content_block = cast(JsonObject, raw["content_block"])
        block = dict(complete_block(content_block, index, f"content[{index}]", self.repairs))
        self._open[index] = block
        self._inputs[index] = []
        return [Open(index, _opened(block))]

    def _index(self, raw: JsonObject, *, begins: bool = False) -> int:
        """The block index of a frame; without one, the next index if a block `begins`, else the
        last index."""
        index = raw.get("index")
        number = (self._count if begins else self._count - 1) if index is None else int(index)
        self._count = max(self._count, number + 1)
        return number

    def _delta(self, raw: JsonObject) -> list[Event]:
        delta: JsonObject = raw["delta"]
        kind, index = str(delta.get("type")), raw.get("index")
        if type(index) is not int or index not in self._open:
            index = self._index(raw, begins=self._count == 0)
        block = self._open.get(index)
        if block is None and kind in UNANNOUNCED and index not in self._closed:
            begin = {**raw, "index": index, "content_block": UNANNOUNCED[kind]}
            self.repairs.add(f"content[{index}]", "missing_value_added", "content_block_start")
            return [*self._start(begin), *self._delta({**raw, "index": index})]
        if kind not in GROWS:
            if block is not None and kind == "citations_delta":
                self._citations.setdefault(index, []).append(delta.get("citation"))
            elif block is not None:
                _keep(block, delta)
            return [Other(PROTOCOL, kind, raw, index)]
        part, member = GROWS[kind]
        text = delta.get(member)
        if type(text) is not str:
            text = piece_of(text)
        if part == "arguments" and block is not None:
            self._inputs[index].append(text)
        elif block is not None:
            block[member] = grow(block.get(member, ""), text) if part != "signature" else text
        return [Delta(index, part, text)]

    def _stop(self, raw: JsonObject) -> list[Event]:
        index = self._index(raw)
        self._closed.add(index)
        block = self._open.pop(index, None)
        written = "".join(self._inputs.pop(index, []))
        if block is None:
            return [Other(PROTOCOL, "content_block_stop", raw)]
        block = {key: str(v) if isinstance(v, Pieces) else v for key, v in block.items()}
        if index in self._citations:
            block["citations"] = [*(block.get("citations") or ()), *self._citations.pop(index)]
        return [Close(index, _closed(block, written))]

    def _finish(self, raw: JsonObject) -> list[Event]:
        self._started = True
        delta = members(raw.get("delta")) or {}
        error = failed_stop(delta.get("stop_reason"), FAILED_STOPS)
        if error is not None:
            self._ended = True
            return [Fail(error, "stop")]
        rest = {key: value for key, value in raw.items() if key not in ("type", "delta", "usage")}
        rest |= {
            key: value
            for key, value in delta.items()
            if key not in ("stop_reason", "stop_sequence")
        }
        usage = decode_final_usage(self._counted, raw.get("usage"))
        return [Finish(decode_stop(delta), usage, {PROTOCOL: rest} if rest else None)]


def _opened(block: JsonObject) -> Block:
    """A new block. A call's empty `input` means that its arguments come later."""
    decoded = decode_block(block)
    if isinstance(decoded, ToolCall) and decoded.arguments == "{}":
        return ToolCall(decoded.id, decoded.name, "", ext=decoded.ext)
    return decoded


def _closed(block: JsonObject, written: str) -> Block:
    """The complete block; arguments keep the text that the model wrote."""
    if not written:
        return decode_block(block)
    if block.get("type") == "tool_use":
        call = cast(ToolCall, decode_block(block))
        return ToolCall(call.id, call.name, written, ext=call.ext)
    try:
        block["input"] = orjson.loads(written)
    except orjson.JSONDecodeError:
        block["input"] = {"_raw": written}
    return decode_block(block)


def _keep(block: JsonObject, delta: JsonObject) -> None:
    """Add a delta that only this protocol has to its block, such as a compaction's text."""
    for key, value in delta.items():
        if key != "type":
            old = block.get(key)
            grows = isinstance(old, str | Pieces) and isinstance(value, str)
            block[key] = grow(old, value) if grows else value


class StreamEncoder:
    """Turns events into frames. `_pending` has the buffered events of blocks that are not open."""

    def __init__(self, _created: int) -> None:
        self.losses = Losses()
        self._lost: set[str] = set()
        self._writer = Writer(None, self.losses, native=True)
        self._numbers: dict[int, int] = {}
        self._calls: dict[int, _Call] = {}
        self._current: int | None = None
        self._pending: dict[int, list[Event]] = {}
        self._started = False
        self._finish: Finish | None = None
        self._counted: Usage | None = None

    def send(self, event: Event) -> list[Frame]:
        if type(event) is Delta and event.index == self._current:  # nearly all events
            return self._write(event)
        match event:
            case Delta(index=index) | Close(index=index) | Open(index=index):
                return self._content(index, event)
            case Start():
                return self._start(event)
            case Finish():
                return self._finished(event)
            case End():
                frames = [*self._begin(), *self._flush(), *self._buffered_finish()]
                return [*frames, _frame({"type": "message_stop"})]
            case Fail(error=error):
                return [_frame(encode_error(error)[1])]
            case Other(protocol=protocol, kind=kind, raw=raw, index=index, covers=covers):
                if protocol == PROTOCOL:
                    if index is not None and index != self._current:
                        return self._content(index, event)
                    return [_frame(self._renumbered(raw, index))]
                if covers is None and kind not in self._lost:
                    self._lost.add(kind)
                    self.losses.add("", "vendor_event_dropped", kind)
                return []

    def _start(self, event: Start) -> list[Frame]:
        if self._started:
            return []
        self._started = True
        self._counted = event.usage
        message: JsonObject = {
            "id": event.id or "msg_weft",
            "type": "message",
            "role": "assistant",
            "model": event.model or "",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": encode_usage(event.usage),
        }
        if event.ext is not None:
            message.update(event.ext.get(PROTOCOL, {}))
        return [_frame({"type": "message_start", "message": message})]

    def _begin(self) -> list[Frame]:
        """Start the stream if its source sent no `Start`."""
        return [] if self._started else self._start(Start())

    def _content(self, index: int, event: Event) -> list[Frame]:
        """Write the event if its block is open or can be opened, else buffer it."""
        if self._current is None and isinstance(event, Open):
            self._current = index
        if index != self._current:
            self._pending.setdefault(index, []).append(event)
            return []
        frames = self._begin()
        frames += self._write(event)
        if isinstance(event, Close):
            self._current = None
            frames += self._release()
        return frames

    def _release(self) -> list[Frame]:
        frames: list[Frame] = []
        while self._current is None and self._pending:
            index = min(self._pending)
            pending = self._pending.pop(index)
            if not isinstance(pending[0], Open):
                continue  # of a block that was never opened, which `fold` reports
            for event in pending:
                frames += self._content(index, event)
        return frames

    def _flush(self) -> list[Frame]:
        """Close the blocks that the source did not close."""
        frames: list[Frame] = []
        while self._current is not None:
            frames += self._content(self._current, Close(self._current))
        return frames

    def _write(self, event: Event) -> list[Frame]:
        match event:
            case Delta(index=index, kind=kind, text=text):
                number = self._numbers.get(index)
                return [] if number is None else self._delta_frames(index, number, kind, text)
            case Open(index=index, block=block):
                if not is_supported(block, Message("assistant"), (0, index), self.losses):
                    return []
                number = self._numbers[index] = len(self._numbers)
                return self._open_frames(index, number, block)
            case Close(index=index, block=last):
                number = self._numbers.get(index)
                stop = {"type": "content_block_stop", "index": number}
                return [] if number is None else [*self._closed(index, number, last), _frame(stop)]
            case Other(raw=raw, index=index):
                return [_frame(self._renumbered(raw, index))]
            case _:
                return []

    def _open_frames(self, index: int, number: int, block: Block) -> list[Frame]:
        """The start of a block without its text, and the deltas for the text."""
        if isinstance(block, ToolCall):
            return self._call_frames(index, number, block)
        body = self._writer.block(block, (0, index))
        deltas: list[Frame] = []
        match block:
            case Text(text=text) | Refusal(text=text) if text:
                body["text"] = ""
                deltas.append(_delta_frame(number, "text", text))
            case Thinking(text=text, signature=signature):
                body["thinking"] = ""
                body["signature"] = ""
                if text:
                    deltas.append(_delta_frame(number, "thinking", text))
                if signature:
                    deltas.append(_delta_frame(number, "signature", signature))
            case _:
                pass
        return [_start_frame(number, body), *deltas]

    def _call_frames(self, index: int, number: int, block: ToolCall) -> list[Frame]:
        """The start of a call. The text of a custom call is wrapped in an object, because clients
        of this protocol expect one."""
        body = self._writer.block(structs.replace(block, arguments="{}", custom=False), (0, index))
        self._calls[index] = _Call(block.custom)
        frames = [_start_frame(number, body)]
        if block.custom:
            frames.append(_delta_frame(number, "arguments", '{"input":"'))
        if block.arguments:
            frames += self._delta_frames(index, number, "arguments", block.arguments)
        return frames

    def _delta_frames(self, index: int, number: int, kind: str, text: str) -> list[Frame]:
        call = self._calls.get(index)
        if call is not None and text:
            call.has_text = True
            text = orjson.dumps(text).decode()[1:-1] if call.custom else text
        return [_delta_frame(number, kind, text)]

    def _closed(self, index: int, number: int, last: Block | None) -> list[Frame]:
        call = self._calls.get(index)
        if call is None:
            return []
        if call.custom:
            return [_delta_frame(number, "arguments", '"}')]
        if not call.has_text and not (isinstance(last, ToolCall) and last.arguments):
            report_empty_arguments((0, index, "arguments"), self.losses)
        return []

    def _finished(self, event: Finish) -> list[Frame]:
        """Write an original finish of this protocol at once; buffer others until the end."""
        native = event.ext is not None and PROTOCOL in event.ext
        native = native or (event.usage is not None and PROTOCOL in (event.usage.raw or {}))
        if native:
            return [*self._begin(), *self._flush(), _frame(self._message_delta(event, native=True))]
        old = self._finish
        self._finish = Finish(
            event.stop or (old.stop if old is not None else None),
            event.usage or (old.usage if old is not None else None),
        )
        return []

    def _buffered_finish(self) -> list[Frame]:
        finish, self._finish = self._finish, None
        if finish is None:
            return []
        finish = Finish(finish.stop, merge_usage(self._counted, finish.usage))
        return [_frame(self._message_delta(finish, native=False))]

    def _message_delta(self, event: Finish, *, native: bool) -> JsonObject:
        stop = event.stop
        delta: JsonObject = {
            "stop_reason": stop_reason(stop, self.losses, native=native),
            "stop_sequence": stop.sequence if stop is not None else None,
        }
        if not native and (details := stop_details(stop)) is not None:
            delta["stop_details"] = details
        body: JsonObject = {"type": "message_delta", "delta": delta}
        for key, value in (event.ext or {}).get(PROTOCOL, {}).items():
            (delta if key in ("stop_details", "container") else body)[key] = value
        body["usage"] = encode_usage(event.usage, partial=True)
        return body

    def _renumbered(self, raw: Any, index: int | None) -> JsonObject:
        if index is None or index not in self._numbers:
            return raw
        return {**raw, "index": self._numbers[index]}


class _Call:
    """An open call: whether it is custom, and whether any of its text was sent."""

    def __init__(self, custom: bool) -> None:
        self.custom = custom
        self.has_text = False


DELTAS = {
    "text": '{"type":"text_delta","text":',
    "thinking": '{"type":"thinking_delta","thinking":',
    "arguments": '{"type":"input_json_delta","partial_json":',
    "signature": '{"type":"signature_delta","signature":',
}


def _delta_frame(number: int, kind: str, text: str) -> Frame:
    quoted = orjson.dumps(text).decode()
    return Frame(
        f'{{"type":"content_block_delta","index":{number},"delta":{DELTAS[kind]}{quoted}}}}}',
        "content_block_delta",
    )


def _start_frame(number: int, body: JsonObject) -> Frame:
    return _frame({"type": "content_block_start", "index": number, "content_block": body})


def _frame(body: JsonObject) -> Frame:
    return json_frame(body, str(body.get("type", "message")))
