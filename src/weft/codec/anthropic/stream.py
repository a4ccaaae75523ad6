"""Decodes and encodes streams: https://platform.claude.com/docs/en/build-with-claude/streaming

The decoder keeps each block in its original form until it ends, so that deltas which only this
protocol has are included. The first event has the input counts. The last event has the output
counts, and input counts that changed.

The encoder has only one block open at a time. Events of other blocks are buffered until the open
one is closed. A stream always begins with `message_start`, even if its source sent no start event.
"""

from typing import Any, cast

from msgspec import structs

from weft import exact_json
from weft.codec.base import Frame, Losses, as_object
from weft.codec.calls import report_empty_arguments
from weft.codec.errors import failed_stop
from weft.codec.lenient import text_piece
from weft.codec.stream import (
    DECODE_ERRORS,
    Pieces,
    append_piece,
    cut_off_error,
    json_frame,
    malformed_error,
    read_frame,
    unreadable_error,
)
from weft.model import (
    Alternative,
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
    check_supported,
    complete_block,
    decode_error,
    decode_final_usage,
    decode_start,
    decode_stop,
    encode_error,
    encode_usage,
    stop_details,
    stop_reason,
)
from .wire import FAILED_STOPS, PROTOCOL

DELTA_TYPES: dict[str, tuple[DeltaKind, str]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("arguments", "partial_json"),
    "signature_delta": ("signature", "signature"),
}
"""For each delta type: the kind of delta, and the member with its text."""

UNOPENED_BLOCKS: dict[str, JsonObject] = {
    "text_delta": {"type": "text", "text": ""},
    "thinking_delta": {"type": "thinking", "thinking": ""},
}
"""The block to open for a delta without a `content_block_start` before it."""


class StreamDecoder:
    """Turns frames into events.

    - `_open`: the open blocks in their original form; a text that is still streamed is `Pieces`.
    - `_citations`, `_arguments`: the citations and the arguments of open blocks so far.
    - `_closed`: the indices of closed blocks.
    - `_block_count`: one more than the largest index so far.
    - `_first_usage`: the counts of the first event.
    """

    def __init__(self) -> None:
        self.repairs = Losses()
        self._open: dict[int, JsonObject] = {}
        self._citations: dict[int, list[Any]] = {}
        self._arguments: dict[int, list[str]] = {}
        self._closed: set[int] = set()
        self._first_usage: JsonObject = {}
        self._block_count = 0
        self._started = False
        self.is_complete = False
        self._broken = False

    def feed(self, frame: Frame) -> list[Event]:
        raw = read_frame(frame)
        if raw is None:
            self._broken = True
            return [Fail(unreadable_error(frame), "frame")]
        try:
            if raw.get("type") == "content_block_delta":  # nearly all frames
                return self._delta(raw)
            return self._events(raw, frame.event)
        except DECODE_ERRORS as error:
            self._broken = True
            return [Fail(malformed_error(frame, error), "frame")]

    def _events(self, raw: JsonObject, event: str | None) -> list[Event]:
        kind = raw.get("type")
        match kind:
            case "content_block_start":
                return self._block_start(raw)
            case "content_block_stop":
                return self._block_stop(raw)
            case "message_start":
                return [self._message_start(as_object(raw.get("message")) or {})]
            case "message_delta":
                return self._message_delta(raw)
            case "message_stop":
                self.is_complete = True
                return [End()] if self._started else [Fail(cut_off_error("message_start"), "end")]
            case "error":
                return self._fail(raw, event)
            case "ping":
                return [Other(PROTOCOL, "ping", raw, event_count=0)]
            case _ if raw.get("error"):
                return self._fail(raw, event)
            case _:
                return [Other(PROTOCOL, str(kind), raw)]

    def close(self) -> list[Event]:
        is_over = self.is_complete or self._broken
        return [] if is_over else [Fail(cut_off_error("message_stop"), "end")]

    def _fail(self, raw: JsonObject, event: str | None) -> list[Event]:
        """The failure in an error frame.

        Its cause is `event` only if the frame is named `error`: the vendor's SDKs look at that
        name, not at the type inside it.
        """
        self.is_complete = True
        return [Fail(decode_error(raw, 0), "event" if event == "error" else "stop")]

    def _message_start(self, message: JsonObject) -> Start:
        self._started = True
        self._first_usage = as_object(message.get("usage")) or {}
        return decode_start(message)

    def _block_start(self, raw: JsonObject) -> list[Event]:
        self._started = True
        index = self._index(raw, begins=True)
        content_block = cast(JsonObject, raw["content_block"])
        block = dict(complete_block(content_block, index, f"content[{index}]", self.repairs))
        self._open[index] = block
        self._arguments[index] = []
        return [Open(index, _opened_block(block))]

    def _index(self, raw: JsonObject, *, begins: bool = False) -> int:
        """The block index of a frame. If it has none: the next index if a block `begins`, else the
        last index."""
        index = raw.get("index")
        if index is not None:
            number = int(index)
        else:
            number = self._block_count if begins else self._block_count - 1
        self._block_count = max(self._block_count, number + 1)
        return number

    def _delta(self, raw: JsonObject) -> list[Event]:
        delta: JsonObject = raw["delta"]
        kind, index = str(delta.get("type")), raw.get("index")
        if type(index) is not int or index not in self._open:
            index = self._index(raw, begins=self._block_count == 0)
        block = self._open.get(index)
        if block is None and kind in UNOPENED_BLOCKS and index not in self._closed:
            start = {**raw, "index": index, "content_block": UNOPENED_BLOCKS[kind]}
            self.repairs.add(f"content[{index}]", "missing_value_added", "content_block_start")
            return [*self._block_start(start), *self._delta({**raw, "index": index})]
        if kind not in DELTA_TYPES:
            if block is not None and kind == "citations_delta":
                self._citations.setdefault(index, []).append(delta.get("citation"))
            elif block is not None:
                _merge_delta(block, delta)
            return [Other(PROTOCOL, kind, raw, index)]
        delta_kind, member = DELTA_TYPES[kind]
        text = delta.get(member)
        if type(text) is not str:
            text = text_piece(text)
        if delta_kind == "arguments" and block is not None:
            self._arguments[index].append(text)
        elif block is not None:
            block[member] = (
                append_piece(block.get(member, ""), text) if delta_kind != "signature" else text
            )
        return [Delta(index, delta_kind, text)]

    def _block_stop(self, raw: JsonObject) -> list[Event]:
        index = self._index(raw)
        self._closed.add(index)
        block = self._open.pop(index, None)
        arguments = "".join(self._arguments.pop(index, []))
        if block is None:
            return [Other(PROTOCOL, "content_block_stop", raw)]
        block = {key: str(v) if isinstance(v, Pieces) else v for key, v in block.items()}
        if index in self._citations:
            block["citations"] = [*(block.get("citations") or ()), *self._citations.pop(index)]
        return [Close(index, _closed_block(block, arguments))]

    def _message_delta(self, raw: JsonObject) -> list[Event]:
        self._started = True
        delta = as_object(raw.get("delta")) or {}
        error = failed_stop(delta.get("stop_reason"), FAILED_STOPS)
        if error is not None:
            self.is_complete = True
            return [Fail(error, "stop")]
        ext = {key: value for key, value in raw.items() if key not in ("type", "delta", "usage")}
        ext |= {
            key: value
            for key, value in delta.items()
            if key not in ("stop_reason", "stop_sequence")
        }
        usage = decode_final_usage(self._first_usage, raw.get("usage"))
        return [Finish(decode_stop(delta), usage, {PROTOCOL: ext} if ext else None)]


def _opened_block(block: JsonObject) -> Block:
    """The block at its start. A call's `input` is `{}` then, because its arguments come later."""
    decoded = decode_block(block)
    if isinstance(decoded, ToolCall) and decoded.arguments == "{}":
        return ToolCall(decoded.id, decoded.name, "", ext=decoded.ext)
    return decoded


def _closed_block(block: JsonObject, arguments: str) -> Block:
    """The complete block. A call keeps its arguments as the model wrote them."""
    if not arguments:
        return decode_block(block)
    if block.get("type") == "tool_use":
        call = cast(ToolCall, decode_block(block))
        return ToolCall(call.id, call.name, arguments, ext=call.ext)
    try:
        block["input"] = exact_json.loads(arguments)
    except exact_json.JSONDecodeError:
        block["input"] = {"_raw": arguments}
    return decode_block(block)


def _merge_delta(block: JsonObject, delta: JsonObject) -> None:
    """Add a delta that only this protocol has to its block, for example the text of a
    compaction."""
    for key, value in delta.items():
        if key != "type":
            old = block.get(key)
            grows = isinstance(old, str | Pieces) and isinstance(value, str)
            block[key] = append_piece(old, value) if grows else value


class StreamEncoder:
    """Turns events into frames.

    - `_numbers`: the number that each block index has in the written stream.
    - `_current`: the index of the open block.
    - `_pending`: the buffered events of other blocks, by index.
    - `_finish`: the buffered stop reason and usage.
    - `_first_usage`: the usage of the start event.
    - `_reported`: the kinds of events that were reported as lost.
    """

    def __init__(self, _created: int) -> None:
        self.losses = Losses()
        self._reported: set[str] = set()
        self._writer = Writer(None, self.losses, native=True)
        self._numbers: dict[int, int] = {}
        self._calls: dict[int, _Call] = {}
        self._current: int | None = None
        self._pending: dict[int, list[Event]] = {}
        self._started = False
        self._finish: Finish | None = None
        self._first_usage: Usage | None = None

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
            case Alternative():  # reported by `AnswerTranslator`
                return []
            case Other(protocol=protocol, kind=kind, raw=raw, index=index, event_count=event_count):
                if protocol == PROTOCOL:
                    if index is not None and index != self._current:
                        return self._content(index, event)
                    return [_frame(self._renumbered(raw, index))]
                if event_count is None and kind not in self._reported:
                    self._reported.add(kind)
                    self.losses.add("", "vendor_event_dropped", kind)
                return []

    def _start(self, event: Start) -> list[Frame]:
        if self._started:
            return []
        self._started = True
        self._first_usage = event.usage
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
        """Write buffered blocks until one stays open."""
        frames: list[Frame] = []
        while self._current is None and self._pending:
            index = min(self._pending)
            pending = self._pending.pop(index)
            if not isinstance(pending[0], Open):
                continue  # the block was never opened, which `Fold` reports
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
                if not check_supported(block, Message("assistant"), (0, index), self.losses):
                    return []
                number = self._numbers[index] = len(self._numbers)
                return self._open_frames(index, number, block)
            case Close(index=index, block=last):
                number = self._numbers.get(index)
                stop = {"type": "content_block_stop", "index": number}
                return (
                    []
                    if number is None
                    else [*self._last_deltas(index, number, last), _frame(stop)]
                )
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
            text = exact_json.dumps(text).decode()[1:-1] if call.custom else text
        return [_delta_frame(number, kind, text)]

    def _last_deltas(self, index: int, number: int, last: Block | None) -> list[Frame]:
        call = self._calls.get(index)
        if call is None:
            return []
        if call.custom:
            return [_delta_frame(number, "arguments", '"}')]
        if not call.has_text and not (isinstance(last, ToolCall) and last.arguments):
            report_empty_arguments((0, index, "arguments"), self.losses)
        return []

    def _finished(self, event: Finish) -> list[Frame]:
        """Write a finish of this protocol at once, and buffer others until the end: a later event
        may add to them."""
        native = event.ext is not None and PROTOCOL in event.ext
        native = native or (event.usage is not None and PROTOCOL in (event.usage.raw or {}))
        if native:
            return [*self._begin(), *self._flush(), _frame(self._finish_body(event, native=True))]
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
        finish = Finish(finish.stop, merge_usage(self._first_usage, finish.usage))
        return [_frame(self._finish_body(finish, native=False))]

    def _finish_body(self, event: Finish, *, native: bool) -> JsonObject:
        """The body of a `message_delta`."""
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


DELTA_STARTS = {
    "text": '{"type":"text_delta","text":',
    "thinking": '{"type":"thinking_delta","thinking":',
    "arguments": '{"type":"input_json_delta","partial_json":',
    "signature": '{"type":"signature_delta","signature":',
}


def _delta_frame(number: int, kind: str, text: str) -> Frame:
    # Formatted by hand: there is one frame per token.
    quoted = exact_json.dumps(text).decode()
    return Frame(
        f'{{"type":"content_block_delta","index":{number},"delta":{DELTA_STARTS[kind]}{quoted}}}}}',
        "content_block_delta",
    )


def _start_frame(number: int, body: JsonObject) -> Frame:
    return _frame({"type": "content_block_start", "index": number, "content_block": body})


def _frame(body: JsonObject) -> Frame:
    return json_frame(body, str(body.get("type", "message")))
