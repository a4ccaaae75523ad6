"""Decode streams: https://platform.claude.com/docs/en/build-with-claude/streaming

Each block is kept in its original form until it ends, so that it includes deltas which only this
protocol has. The first event has the input counts, the last one the output and changed counts.
"""

from typing import Any, cast

import orjson

from weft.codec.base import Frame, Losses, members
from weft.codec.errors import failed_stop
from weft.codec.lenient import piece_of
from weft.codec.stream import MISSHAPEN, Pieces, cut_off, grow, misshapen, read_frame, unreadable
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
    Open,
    Other,
    Start,
    ToolCall,
)

from .blocks import decode_block
from .response import complete_block, decode_error, decode_final_usage, decode_start, decode_stop
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
        except MISSHAPEN as error:
            self._broken = True
            return [Fail(misshapen(frame, error), "frame")]

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
                return [Other(PROTOCOL, "ping", raw, says=0)]
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
