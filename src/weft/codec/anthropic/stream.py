"""Streams, both ways: https://platform.claude.com/docs/en/build-with-claude/streaming

On this wire one block is open at a time and blocks never interleave. The encoder keeps that law:
what other open blocks say meanwhile waits until theirs is the turn.
"""

from typing import Any, cast

import orjson

from weft.codec.base import Frame, Losses, members
from weft.codec.stream import MISSHAPEN, cut_off, json_frame, misshapen, unreadable
from weft.model import (
    Block,
    Close,
    Delta,
    End,
    Event,
    Fail,
    Finish,
    JsonObject,
    Message,
    Open,
    Other,
    Start,
    Text,
    Thinking,
    ToolCall,
)

from .blocks import Writer, decode_block
from .errors import decode_error, encode_error
from .response import decode_start, sayable
from .usage import decode_stop, decode_usage, encode_usage, stop_word
from .wire import PROTOCOL

GROWS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("arguments", "partial_json"),
    "signature_delta": ("signature", "signature"),
}
"""A delta's type: which part it grows, and the member that holds the text."""


class StreamDecoder:
    """Frames become events. `_open` is what has arrived of each block, as the wire wrote it."""

    def __init__(self) -> None:
        self._open: dict[int, JsonObject] = {}
        self._inputs: dict[int, list[str]] = {}
        self._ended = False

    def feed(self, frame: Frame) -> list[Event]:
        try:
            raw = members(orjson.loads(frame.data))
        except orjson.JSONDecodeError:
            raw = None
        if raw is None:
            self._ended = True
            return [Fail(unreadable(frame))]
        try:
            return self._events(raw)
        except MISSHAPEN as error:
            self._ended = True
            return [Fail(misshapen(frame, error))]

    def _events(self, raw: JsonObject) -> list[Event]:
        kind = raw.get("type")
        match kind:
            case "content_block_delta":
                return self._delta(raw)
            case "content_block_start":
                return self._start(raw)
            case "content_block_stop":
                return self._stop(raw)
            case "message_start":
                return [decode_start(members(raw.get("message")) or {"id": ""})]
            case "message_delta":
                return [self._finish(raw)]
            case "message_stop":
                self._ended = True
                return [End()]
            case "error":
                self._ended = True
                return [Fail(decode_error(raw, 0))]
            case "ping":
                return [Other(PROTOCOL, "ping", raw, says=0)]
            case _:
                return [Other(PROTOCOL, str(kind), raw)]

    def close(self) -> list[Event]:
        return [] if self._ended else [Fail(cut_off("message_stop"))]

    def _start(self, raw: JsonObject) -> list[Event]:
        index = int(raw["index"])
        block = dict(raw["content_block"])
        self._open[index] = block
        self._inputs[index] = []
        return [Open(index, _opened(block))]

    def _delta(self, raw: JsonObject) -> list[Event]:
        index = int(raw["index"])
        delta = cast(JsonObject, raw["delta"])
        kind = str(delta.get("type"))
        block = self._open.get(index)
        if kind not in GROWS:
            if block is not None:
                _keep(block, delta)
            return [Other(PROTOCOL, kind, raw, index)]
        part, member = GROWS[kind]
        text = str(delta.get(member, ""))
        if part == "arguments" and block is not None:
            self._inputs[index].append(text)
        elif block is not None:
            block[member] = block.get(member, "") + text if part != "signature" else text
        return [Delta(index, cast(Any, part), text)]

    def _stop(self, raw: JsonObject) -> list[Event]:
        index = int(raw["index"])
        block = self._open.pop(index, None)
        written = "".join(self._inputs.pop(index, []))
        if block is None:
            return [Other(PROTOCOL, "content_block_stop", raw)]
        return [Close(index, _closed(block, written))]

    def _finish(self, raw: JsonObject) -> Finish:
        delta = members(raw.get("delta")) or {}
        rest = {key: value for key, value in raw.items() if key not in ("type", "delta", "usage")}
        rest |= {
            key: value
            for key, value in delta.items()
            if key not in ("stop_reason", "stop_sequence")
        }
        usage = decode_usage(raw.get("usage"))
        return Finish(decode_stop(delta), usage, {PROTOCOL: rest} if rest else None)


def _opened(block: JsonObject) -> Block:
    """A block as it begins. A call's empty `input` stands for arguments still to come."""
    decoded = decode_block(block)
    if isinstance(decoded, ToolCall) and decoded.arguments == "{}":
        return ToolCall(decoded.id, decoded.name, "", ext=decoded.ext)
    return decoded


def _closed(block: JsonObject, written: str) -> Block:
    """The block as the whole wire said it; arguments stay as the model wrote them."""
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
    """Fold a delta that only this wire knows into its block: a citation, a compaction's text."""
    if delta.get("type") == "citations_delta":
        block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]
        return
    for key, value in delta.items():
        if key != "type":
            old = block.get(key)
            block[key] = old + value if isinstance(old, str) and isinstance(value, str) else value


class StreamEncoder:
    """Events become frames. `_held` are the frames of blocks whose turn has not come."""

    def __init__(self, _created: int) -> None:
        self.losses = Losses()
        self._lost: set[str] = set()
        self._writer = Writer(None, self.losses, native=True)
        self._numbers: dict[int, int] = {}
        self._current: int | None = None
        self._held: dict[int, list[Event]] = {}
        self._started = False
        self._finish: Finish | None = None

    def send(self, event: Event) -> list[Frame]:
        match event:
            case Delta(index=index) | Close(index=index) | Open(index=index):
                return self._content(index, event)
            case Start():
                return self._start(event)
            case Finish():
                return self._finished(event)
            case End():
                return [*self._flush(), *self._owed(), _frame({"type": "message_stop"})]
            case Fail(error=error):
                return [_frame(encode_error(error)[1])]
            case Other(protocol=protocol, kind=kind, raw=raw, index=index, says=says):
                if protocol == PROTOCOL:
                    if index is not None and index != self._current:
                        return self._content(index, event)
                    return [_frame(self._renumbered(raw, index))]
                if says is None and kind not in self._lost:
                    self._lost.add(kind)
                    self.losses.add("", f"a {kind} event", "only its own protocol knows it", "form")
                return []

    def _start(self, event: Start) -> list[Frame]:
        if self._started:
            return []
        self._started = True
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

    def _content(self, index: int, event: Event) -> list[Frame]:
        """Write now if this block's turn has come, else hold it back."""
        if self._current is None and isinstance(event, Open):
            self._current = index
        if index != self._current:
            self._held.setdefault(index, []).append(event)
            return []
        frames = self._write(event)
        if isinstance(event, Close):
            self._current = None
            frames += self._release()
        return frames

    def _release(self) -> list[Frame]:
        frames: list[Frame] = []
        while self._current is None and self._held:
            index = min(self._held)
            held = self._held.pop(index)
            if not isinstance(held[0], Open):
                continue  # of a block that never began: `fold` has judged it
            for event in held:
                frames += self._content(index, event)
        return frames

    def _flush(self) -> list[Frame]:
        """Close what its own wire never closed."""
        frames: list[Frame] = []
        while self._current is not None:
            frames += self._content(self._current, Close(self._current))
        return frames

    def _write(self, event: Event) -> list[Frame]:
        match event:
            case Delta(index=index, kind=kind, text=text):
                number = self._numbers.get(index)
                return [] if number is None else [_delta_frame(number, kind, text)]
            case Open(index=index, block=block):
                if not sayable(block, Message("assistant"), (0, index), self.losses):
                    return []
                number = self._numbers[index] = len(self._numbers)
                return self._open_frames(number, block)
            case Close(index=index):
                number = self._numbers.get(index)
                stop = {"type": "content_block_stop", "index": number}
                return [] if number is None else [_frame(stop)]
            case Other(raw=raw, index=index):
                return [_frame(self._renumbered(raw, index))]
            case _:
                return []

    def _open_frames(self, number: int, block: Block) -> list[Frame]:
        """A block's start, emptied of what this wire sends as deltas, and those deltas."""
        body = self._writer.block(block, (0, number))
        deltas: list[Frame] = []
        match block:
            case ToolCall(arguments=arguments):
                body["input"] = {}
                if arguments:
                    deltas.append(_delta_frame(number, "arguments", arguments))
            case Text(text=text) if text:
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
        start = {"type": "content_block_start", "index": number, "content_block": body}
        return [_frame(start), *deltas]

    def _finished(self, event: Finish) -> list[Frame]:
        """Written at once where this wire wrote it; else kept until the end, when all is known."""
        own = event.ext is not None and PROTOCOL in event.ext
        own = own or (event.usage is not None and PROTOCOL in (event.usage.raw or {}))
        if own:
            return [*self._flush(), _frame(self._message_delta(event, native=True))]
        old = self._finish
        self._finish = Finish(
            event.stop or (old.stop if old is not None else None),
            event.usage or (old.usage if old is not None else None),
        )
        return []

    def _owed(self) -> list[Frame]:
        owed, self._finish = self._finish, None
        return [] if owed is None else [_frame(self._message_delta(owed, native=False))]

    def _message_delta(self, event: Finish, *, native: bool) -> JsonObject:
        stop = event.stop
        delta: JsonObject = {
            "stop_reason": stop_word(stop, self.losses, native=native),
            "stop_sequence": stop.sequence if stop is not None else None,
        }
        body: JsonObject = {"type": "message_delta", "delta": delta}
        for key, value in (event.ext or {}).get(PROTOCOL, {}).items():
            (delta if key in ("stop_details", "container") else body)[key] = value
        body["usage"] = encode_usage(event.usage, partial=True)
        return body

    def _renumbered(self, raw: Any, index: int | None) -> JsonObject:
        if index is None or index not in self._numbers:
            return raw
        return {**raw, "index": self._numbers[index]}


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


def _frame(body: JsonObject) -> Frame:
    return json_frame(body, str(body.get("type", "message")))
