"""Streams of this wire become events:
https://platform.openai.com/docs/api-reference/responses-streaming

The wire says everything several times: as deltas, as the finished part, as the finished item, in
the finished response. Deltas become deltas; the finished item is the last word, unless it has
forgotten all that was streamed of it; and whatever one telling left out is filled in from the
next, for servers that speak this wire leave out each of them. Items may interleave. Each frame
goes along as it was, with the number of events that carry its meaning, so that the same protocol
repeats it exactly.
"""

from collections.abc import Callable
from typing import Any, ClassVar, cast

import orjson
from msgspec import Struct, structs

from weft.codec.base import Frame, Losses, members
from weft.codec.calls import MADE
from weft.codec.lenient import piece_of
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

from .blocks import OUTPUT, decode_part
from .errors import decode_failure
from .items import decode_output_item
from .response import complete_item, complete_part, decode_finish, decode_start, failed_response
from .usage import refused_by
from .wire import PROTOCOL

DONE = "[DONE]"
"""A mark of other wires, which some servers send here too."""

EMPTY: dict[str, JsonObject] = {
    "function_call": {"arguments": "", "call_id": "", "name": ""},
    "custom_tool_call": {"input": "", "call_id": "", "name": ""},
}
"""What an item may leave out while it has just been added."""


class Growing(Struct):
    """A block that is open: its number, which part grows, and all that was said of it.

    Thinking grows by `by`, its summary or its content, whose part `part` began at `since`.
    """

    index: int
    kind: DeltaKind
    said: list[str]
    by: str = ""
    part: int = 0
    since: int = 0


class StreamDecoder:
    """Frames become events. `_items` are the open blocks, by output index and content index;
    `_settled` are the items that are done, `_names` the ids of all that came."""

    def __init__(self) -> None:
        self._items: dict[int, dict[int, Growing]] = {}
        self._added: dict[int, JsonObject] = {}
        self._settled: set[int] = set()
        self._names: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._highest = -1
        self._count = 0
        self.repairs = Losses()
        self._started = False
        self._called = False
        self._refused = False
        self._ended = False
        self._broken = False

    def feed(self, frame: Frame) -> list[Event]:
        if frame.data == DONE:
            return [Other(PROTOCOL, frame.event or "", DONE, says=0)]
        try:
            raw = members(orjson.loads(frame.data))
        except orjson.JSONDecodeError:
            raw = None
        if raw is None:
            self._broken = True
            return [Fail(unreadable(frame), "frame")]
        kind = str(raw.get("type"))
        decode = self.FRAMES.get(kind)
        if decode is None and raw.get("error") and "type" not in raw:
            self._ended = True
            return [Fail(decode_failure(raw["error"]), "stop")]
        if decode is None:
            return [Other(PROTOCOL, kind, raw, self._index_of(raw))]
        try:
            events = decode(self, raw)
        except MISSHAPEN as error:
            self._broken = True
            return [Fail(misshapen(frame, error), "frame")]
        said = sum(not isinstance(event, Fail) or event.cause == "event" for event in events)
        return [Other(PROTOCOL, frame.event or "", raw, says=said), *events]

    def close(self) -> list[Event]:
        done = self._ended or self._broken
        return [] if done else [Fail(cut_off("response.completed"), "end")]

    def _index_of(self, raw: JsonObject) -> int | None:
        number = raw.get("output_index")
        blocks = self._items.get(number) if isinstance(number, int) else None
        return next(iter(blocks.values())).index if blocks else None

    def _start(self, raw: JsonObject) -> list[Event]:
        if self._started:
            return []
        self._started = True
        return [decode_start(members(raw.get("response")) or {})]

    def _item_added(self, raw: JsonObject) -> list[Event]:
        item = cast(JsonObject, raw["item"])
        number = self._number(raw, begins=True)
        if item.get("id"):
            self._numbers[str(item["id"])] = number
        kind = str(item.get("type"))
        self._items[number] = {}
        self._added[number] = item
        self._names.add(_name(item))
        if kind == "message":
            return []
        (block,) = decode_output_item(self._begun(number, kind, item))
        if isinstance(block, Thinking):  # sealed only when it is done
            block = structs.replace(block, signature=None)
        return self._open(number, 0, block)

    def _begun(self, number: int, kind: str, item: JsonObject) -> JsonObject:
        """An item that has just been added, with what it may leave out until it is done."""
        empty = EMPTY.get(kind)
        if empty is None:
            return item
        item = {**empty, **{key: value for key, value in item.items() if value is not None}}
        if not item["call_id"]:
            item["call_id"] = item.get("id") or f"{MADE}{number}"
        return item

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
        number, part = self._number(raw), int(raw.get("content_index") or 0)
        item = self._added.get(number, {})
        if item.get("type") != "message" or part in self._items.get(number, {}):
            return []
        path = f"output[{number}].content[{part}]"
        content = cast(JsonObject, complete_part(raw["part"], path, self.repairs))
        if part:
            return self._open(number, part, decode_part(content, OUTPUT))
        return self._open(number, 0, decode_output_item({**item, "content": [content]})[0])

    def _said(self, raw: JsonObject) -> list[Event]:
        """Words, or a refusal, as they come."""
        events, growing = self._speaking(raw, "refusal" in str(raw["type"]))
        return events + _grow(growing, piece_of(raw.get("delta")))

    def _said_all(self, raw: JsonObject) -> list[Event]:
        """Words, or a refusal, that are whole: by themselves, or as a part of their item."""
        part = members(raw.get("part")) or raw
        text = next((part[name] for name in ("text", "refusal") if name in part), None)
        if not isinstance(text, str) or self._forgets(raw):
            return []
        events, growing = self._speaking(raw, "refusal" in part)
        return events + _fill(growing, text)

    def _speaking(self, raw: JsonObject, refusal: bool) -> tuple[list[Event], Growing]:
        """The block that these words belong to; where no part was announced, one begins here."""
        number, part = self._number(raw), int(raw.get("content_index") or 0)
        events: list[Event] = []
        if part not in self._items.get(number, {}):
            events = self._open(number, part, Refusal("") if refusal else Text(""))
        return events, self._items[number][part]

    def _forgets(self, raw: JsonObject) -> bool:
        """Whether these last words come behind their item, or belong to one that has no words."""
        number = self._number(raw)
        kind = self._added.get(number, {}).get("type", "message")
        return number in self._settled or kind != "message"

    def _arguments(self, raw: JsonObject) -> list[Event]:
        growing = self._items.get(self._number(raw), {}).get(0)
        return [] if growing is None else _grow(growing, piece_of(raw.get("delta")))

    def _arguments_all(self, raw: JsonObject) -> list[Event]:
        growing = self._items.get(self._number(raw), {}).get(0)
        text = raw.get("arguments", raw.get("input"))
        return [] if growing is None or not isinstance(text, str) else _fill(growing, text)

    def _thought(self, raw: JsonObject) -> list[Event]:
        events, growing = self._thinking(raw)
        return events + ([] if growing is None else _grow(growing, piece_of(raw.get("delta"))))

    def _thought_all(self, raw: JsonObject) -> list[Event]:
        """A part of the thoughts that is whole."""
        text = (members(raw.get("part")) or raw).get("text")
        if not isinstance(text, str) or not text:
            return []
        events, growing = self._thinking(raw)
        return events + ([] if growing is None else _fill(growing, text))

    def _next_thought(self, raw: JsonObject) -> list[Event]:
        return self._thinking(raw)[0]

    def _thinking(self, raw: JsonObject) -> tuple[list[Event], Growing | None]:
        """The block that these thoughts belong to, brought to their part of it; none where they
        come too late, or tell otherwise what is told already: a summary and the raw reasoning,
        of which whichever comes first is the text."""
        number = self._number(raw)
        by = "summary_index" if "summary_index" in raw else "content_index"
        events: list[Event] = []
        if number in self._settled:
            return [], None
        if not self._items.get(number):
            events = self._open(number, 0, Thinking(""))
        growing = self._items[number].get(0)
        if growing is None or growing.kind != "thinking" or growing.by not in ("", by):
            return [], None
        growing.by = by
        part = int(raw.get(by) or 0)
        if part > growing.part:
            spoken = any(growing.said)
            growing.part = part
            events += _grow(growing, "\n\n") if spoken else []
            growing.since = len(growing.said)
        return events, growing

    def _item_done(self, raw: JsonObject) -> list[Event]:
        item = cast(JsonObject, raw["item"])
        named = {"item_id": item.get("id"), **raw}
        return self._settle(self._number(named), self._complete(self._number(named), item))

    def _number(self, raw: JsonObject, *, begins: bool = False) -> int:
        """The number of the item that a frame is about. Where the frame leaves it out, the item's
        id tells, else it is the next item where one begins and the last one otherwise."""
        number = raw.get("output_index")
        if number is None and not begins:
            number = self._numbers.get(str(raw.get("item_id")))
        if number is None:
            number = self._highest + 1 if begins else max(self._highest, 0)
        self._highest = max(self._highest, int(number))
        return int(number)

    def _complete(self, number: int, item: JsonObject) -> JsonObject:
        """The finished item, with what was streamed of it where it leaves that out."""
        added = self._added.get(number, {})
        for key in ("type", "call_id", "name"):
            if item.get(key) is None and added.get(key) is not None:
                item = {**item, key: added[key]}
        growing = self._items.get(number, {}).get(0)
        if growing is not None and growing.kind == "arguments":
            key = "input" if item.get("type") == "custom_tool_call" else "arguments"
            if item.get(key) is None and any(growing.said):
                item = {**item, key: "".join(growing.said)}
        return complete_item(item, number, f"output[{number}]", self.repairs)

    def _settle(self, number: int, item: JsonObject) -> list[Event]:
        """Close an item's blocks with the wire's last word on them."""
        growing = self._items.pop(number, {})
        self._settled.add(number)
        self._names.add(_name(item))
        events: list[Event] = []
        for part, block in enumerate(decode_output_item(item)):
            self._note(block)
            grown = growing.pop(part, None)
            if grown is None:
                events += (Open(self._count, block), Close(self._count))
                self._count += 1
            else:
                block = _remembered(grown, block)
                events += (*_missed(grown, block), Close(grown.index, block))
        events += [Close(left.index) for left in growing.values()]
        return events

    def _terminal(self, raw: JsonObject) -> list[Event]:
        self._ended = True
        whole = members(raw.get("response"))
        if whole is None and not self._count:
            return [Fail(cut_off("a response"), "end")]
        response = whole or {}
        events = self._start(raw)
        error = failed_response(response)
        if error is not None:
            return [*events, Fail(error, "stop")]
        output = cast(list[JsonObject], response.get("output") or [])
        for number, item in enumerate(output):
            if number in self._items or not self._knows(number, item):
                events += self._settle(number, self._complete(number, item))
        for blocks in self._items.values():
            events += [Close(growing.index) for growing in blocks.values()]
        finish = decode_finish(response, called=self._called, refused=self._refused)
        return [*events, finish, End()]

    def _knows(self, number: int, item: JsonObject) -> bool:
        """Whether an item of the finished response has come: by its name, for some servers leave
        items out of the list and thereby number it anew."""
        name = _name(item)
        return number in self._settled or (name != "" and name in self._names)

    def _failed(self, raw: JsonObject) -> list[Event]:
        response = members(raw.get("response")) or {}
        if refused_by(response) is not None:
            return self._terminal(raw)
        self._ended = True
        return [*self._start(raw), Fail(decode_failure(response.get("error")))]

    def _error(self, raw: JsonObject) -> list[Event]:
        self._ended = True
        return [Fail(decode_failure({key: raw[key] for key in raw if key != "type"}))]

    FRAMES: ClassVar[dict[str, Callable[[Any, JsonObject], list[Event]]]] = {
        "response.created": _start,
        "response.queued": _start,
        "response.in_progress": _start,
        "response.output_item.added": _item_added,
        "response.output_item.done": _item_done,
        "response.content_part.added": _part_added,
        "response.content_part.done": _said_all,
        "response.output_text.delta": _said,
        "response.output_text.done": _said_all,
        "response.refusal.delta": _said,
        "response.refusal.done": _said_all,
        "response.function_call_arguments.delta": _arguments,
        "response.function_call_arguments.done": _arguments_all,
        "response.custom_tool_call_input.delta": _arguments,
        "response.custom_tool_call_input.done": _arguments_all,
        "response.reasoning_summary_part.added": _next_thought,
        "response.reasoning_summary_part.done": _thought_all,
        "response.reasoning_summary_text.delta": _thought,
        "response.reasoning_summary_text.done": _thought_all,
        "response.reasoning_text.delta": _thought,
        "response.reasoning_text.done": _thought_all,
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


def _name(item: JsonObject) -> str:
    """What an item goes by; a call without an id has at least the one of the call."""
    return str(item.get("id") or item.get("call_id") or "")


def _grow(growing: Growing, text: str) -> list[Event]:
    growing.said.append(text)
    return [Delta(growing.index, growing.kind, text)]


def _fill(growing: Growing, text: str) -> list[Event]:
    """The delta for what a finished text has beyond what was streamed of it."""
    said = "".join(growing.said[growing.since :])
    more = text[len(said) :] if text.startswith(said) else ""
    return _grow(growing, more) if more else []


def _remembered(growing: Growing, block: Block) -> Block:
    """The finished block; one that has forgotten its words keeps those that were streamed."""
    said = "".join(growing.said)
    match block:
        case ToolCall(arguments=""):
            return structs.replace(block, arguments=said)
        case Text(text="") | Refusal(text="") | Thinking(text=""):
            return structs.replace(block, text=said)
        case _:
            return block


def _missed(growing: Growing, block: Block) -> list[Event]:
    """The deltas for what the finished block says beyond what was streamed of it."""
    if isinstance(block, Opaque):
        return []
    _, (whole, *_) = _grown(block)
    growing.since = 0
    events = _fill(growing, whole)
    if isinstance(block, Thinking) and block.signature:
        events.append(Delta(growing.index, "signature", block.signature))
    return events
