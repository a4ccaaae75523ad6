"""Streams of this wire become events:
https://platform.openai.com/docs/api-reference/responses-streaming

The wire says everything several times: as deltas, as the finished part, as the finished item, in
the finished response. Deltas become deltas; the finished item is the last word, and what deltas
left out is filled in from it. Items may interleave. Each frame goes along as it was, with the
number of events that carry its meaning, so that the same protocol repeats it exactly.
"""

from collections.abc import Callable
from typing import Any, ClassVar, cast

import orjson
from msgspec import Struct, structs

from weft.codec.base import Frame, members
from weft.codec.stream import MISSHAPEN, cut_off, misshapen, unreadable
from weft.model import (
    Block,
    Close,
    Delta,
    End,
    Event,
    Fail,
    JsonObject,
    Opaque,
    Open,
    Other,
    Refusal,
    Text,
    Thinking,
    ToolCall,
)
from weft.model.events import DeltaKind

from .errors import decode_failure
from .items import decode_output_item
from .parts import OUTPUT, decode_part
from .response import decode_finish, decode_start
from .wire import PROTOCOL

DONE = "[DONE]"
"""A mark of other wires, which some servers send here too."""

EMPTY: dict[str, JsonObject] = {
    "function_call": {"arguments": "", "call_id": "", "name": ""},
    "custom_tool_call": {"input": "", "call_id": "", "name": ""},
}
"""What an item may leave out while it has just been added."""


class Growing(Struct):
    """A block that is open: its number, which part grows, and all that was said of it."""

    index: int
    kind: DeltaKind
    said: list[str]
    by: str = ""


class StreamDecoder:
    """Frames become events. `_items` are the open blocks, by output index and content index."""

    def __init__(self) -> None:
        self._items: dict[int, dict[int, Growing]] = {}
        self._added: dict[int, JsonObject] = {}
        self._count = 0
        self._seen = False
        self._started = False
        self._called = False
        self._refused = False
        self._ended = False

    def feed(self, frame: Frame) -> list[Event]:
        if frame.data == DONE:
            return [Other(PROTOCOL, frame.event or "", DONE, says=0)]
        try:
            raw = members(orjson.loads(frame.data))
        except orjson.JSONDecodeError:
            raw = None
        if raw is None:
            return [Fail(unreadable(frame))]
        kind = str(raw.get("type"))
        decode = self.FRAMES.get(kind)
        if decode is None:
            return [Other(PROTOCOL, kind, raw, self._index_of(raw))]
        try:
            events = decode(self, raw)
        except MISSHAPEN as error:
            self._ended = True
            return [Fail(misshapen(frame, error))]
        return [Other(PROTOCOL, frame.event or "", raw, says=len(events)), *events]

    def close(self) -> list[Event]:
        return [] if self._ended else [Fail(cut_off("response.completed"))]

    def _index_of(self, raw: JsonObject) -> int | None:
        number = raw.get("output_index")
        blocks = self._items.get(number) if isinstance(number, int) else None
        return next(iter(blocks.values())).index if blocks else None

    def _start(self, raw: JsonObject) -> list[Event]:
        if self._started:
            return []
        self._started = True
        return [decode_start({"id": "", **(members(raw.get("response")) or {})})]

    def _item_added(self, raw: JsonObject) -> list[Event]:
        self._seen = True
        number, item = int(raw["output_index"]), cast(JsonObject, raw["item"])
        kind = str(item.get("type"))
        self._items[number] = {}
        self._added[number] = item
        if kind == "message":
            return []
        (block,) = decode_output_item({**EMPTY.get(kind, {}), **item})
        if isinstance(block, Thinking):  # sealed only when it is done
            block = structs.replace(block, signature=None)
        return self._open(number, 0, block)

    def _open(self, number: int, part: int, block: Block) -> list[Event]:
        self._note(block)
        growing = Growing(self._count, *_grown(block))
        self._items.setdefault(number, {})[part] = growing
        self._count += 1
        return [Open(growing.index, block)]

    def _note(self, block: Block) -> None:
        self._called = self._called or isinstance(block, ToolCall)
        self._refused = self._refused or isinstance(block, Refusal)

    def _part_added(self, raw: JsonObject) -> list[Event]:
        number, part = int(raw["output_index"]), int(raw["content_index"])
        item = self._added.get(number, {})
        if item.get("type") != "message" or part in self._items.get(number, {}):
            return []
        content = cast(JsonObject, raw["part"])
        if part:
            return self._open(number, part, decode_part(content, OUTPUT))
        return self._open(number, 0, decode_output_item({**item, "content": [content]})[0])

    def _said(self, raw: JsonObject) -> list[Event]:
        """Words, or a refusal; a server that announced no part begins one here."""
        number, part = int(raw["output_index"]), int(raw.get("content_index", 0))
        events: list[Event] = []
        if part not in self._items.get(number, {}):
            refusal = raw["type"] == "response.refusal.delta"
            events = self._open(number, part, Refusal("") if refusal else Text(""))
        return events + self._grow(number, part, str(raw.get("delta", "")))

    def _arguments(self, raw: JsonObject) -> list[Event]:
        return self._grow(int(raw["output_index"]), 0, str(raw.get("delta", "")))

    def _grow(self, number: int, part: int, text: str) -> list[Event]:
        growing = self._items.get(number, {}).get(part)
        if growing is None:
            return []
        growing.said.append(text)
        return [Delta(growing.index, growing.kind, text)]

    def _thought(self, raw: JsonObject) -> list[Event]:
        """A summary or the raw reasoning: whichever comes first is the text of the block."""
        number = int(raw["output_index"])
        by = "summary" if "summary_index" in raw else "content"
        growing = self._items.get(number, {}).get(0)
        if growing is None or growing.by not in ("", by):
            return []
        growing.by = by
        return self._grow(number, 0, str(raw.get("delta", "")))

    def _next_summary(self, raw: JsonObject) -> list[Event]:
        growing = self._items.get(int(raw["output_index"]), {}).get(0)
        if growing is None or growing.by != "summary" or not raw.get("summary_index"):
            return []
        return self._grow(int(raw["output_index"]), 0, "\n\n")

    def _item_done(self, raw: JsonObject) -> list[Event]:
        self._seen = True
        return self._settle(int(raw["output_index"]), cast(JsonObject, raw["item"]))

    def _settle(self, number: int, item: JsonObject) -> list[Event]:
        """Close an item's blocks with the wire's last word on them."""
        growing = self._items.pop(number, {})
        events: list[Event] = []
        for part, block in enumerate(decode_output_item(item)):
            self._note(block)
            grown = growing.pop(part, None)
            if grown is None:
                events += (Open(self._count, block), Close(self._count))
                self._count += 1
            else:
                events += (*_missed(grown, block), Close(grown.index, block))
        events += [Close(left.index) for left in growing.values()]
        return events

    def _terminal(self, raw: JsonObject) -> list[Event]:
        self._ended = True
        response = {"id": "", **(members(raw.get("response")) or {})}
        events = self._start(raw)
        output = cast(list[JsonObject], response.get("output") or [])
        for number, item in enumerate(output):
            if number in self._items or not self._seen:
                events += self._settle(number, item)
        for blocks in self._items.values():
            events += [Close(growing.index) for growing in blocks.values()]
        finish = decode_finish(response, called=self._called, refused=self._refused)
        return [*events, finish, End()]

    def _failed(self, raw: JsonObject) -> list[Event]:
        self._ended = True
        response = members(raw.get("response")) or {}
        return [*self._start(raw), Fail(decode_failure(response.get("error")))]

    def _error(self, raw: JsonObject) -> list[Event]:
        self._ended = True
        return [Fail(decode_failure({key: raw[key] for key in raw if key != "type"}))]

    def _repeats(self, _raw: JsonObject) -> list[Event]:
        return []

    FRAMES: ClassVar[dict[str, Callable[[Any, JsonObject], list[Event]]]] = {
        "response.created": _start,
        "response.queued": _start,
        "response.in_progress": _start,
        "response.output_item.added": _item_added,
        "response.output_item.done": _item_done,
        "response.content_part.added": _part_added,
        "response.content_part.done": _repeats,
        "response.output_text.delta": _said,
        "response.output_text.done": _repeats,
        "response.refusal.delta": _said,
        "response.refusal.done": _repeats,
        "response.function_call_arguments.delta": _arguments,
        "response.function_call_arguments.done": _repeats,
        "response.custom_tool_call_input.delta": _arguments,
        "response.custom_tool_call_input.done": _repeats,
        "response.reasoning_summary_part.added": _next_summary,
        "response.reasoning_summary_part.done": _repeats,
        "response.reasoning_summary_text.delta": _thought,
        "response.reasoning_summary_text.done": _repeats,
        "response.reasoning_text.delta": _thought,
        "response.reasoning_text.done": _repeats,
        "response.completed": _terminal,
        "response.incomplete": _terminal,
        "response.failed": _failed,
        "error": _error,
    }


def _grown(block: Block) -> tuple[DeltaKind, list[str]]:
    """Which part of a block its deltas grow, and what it begins with."""
    match block:
        case Thinking(text=text):
            return "thinking", [text]
        case ToolCall(arguments=arguments):
            return "arguments", [arguments]
        case Text(text=text) | Refusal(text=text):
            return "text", [text]
        case _:
            return "text", []


def _missed(growing: Growing, block: Block) -> list[Event]:
    """The deltas for what the finished block says beyond what was streamed of it."""
    if isinstance(block, Opaque):
        return []
    _, (whole, *_) = _grown(block)
    said = "".join(growing.said)
    events: list[Event] = []
    if len(whole) > len(said) and whole.startswith(said):
        events.append(Delta(growing.index, growing.kind, whole[len(said) :]))
    if isinstance(block, Thinking) and block.signature:
        events.append(Delta(growing.index, "signature", block.signature))
    return events
