"""Decodes and encodes streams: https://platform.openai.com/docs/api-reference/responses-streaming

The protocol sends content four times: as deltas, as the finished part, as the finished item, and in
the finished response. Some servers leave out one or more of them.

- Deltas become deltas. Text that was not streamed is added from the finished part or item.
- The finished item is final, unless it is empty although text was streamed.
- Items may interleave.
- Each original frame is passed on as `Other`, with the number of events decoded from it
  (`event_count`), so that an encoder for the same protocol can repeat it exactly.

The encoder repeats original frames exactly, and skips the events that were decoded from them. A
stream of another protocol is written in full: every item with its start, parts, deltas and end, in
order. Several items may be open at the same time, so nothing is buffered.
"""

from collections.abc import Callable
from typing import Any, ClassVar, cast

from msgspec import Struct, field, structs

from weft.codec.base import Frame, Losses, as_object
from weft.codec.calls import GENERATED_ID_PREFIX
from weft.codec.lenient import text_piece
from weft.codec.stream import (
    DECODE_ERRORS,
    cut_off_error,
    json_frame,
    malformed_error,
    read_frame,
    unreadable_error,
)
from weft.model import (
    Block,
    Close,
    Delta,
    End,
    Event,
    Fail,
    Finish,
    JsonObject,
    Opaque,
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
from weft.model.response import DeltaKind

from .blocks import OUTPUT, decode_part
from .items import decode_output_item
from .response import (
    check_supported,
    complete_item,
    complete_part,
    decode_failure,
    decode_finish,
    decode_start,
    encode_failure,
    encode_status,
    encode_usage,
    failed_response,
    output_item,
    output_part,
    refused_by,
    response_object,
)
from .wire import DEFAULT_ID, PROTOCOL

DONE = "[DONE]"
"""The end marker of Chat streams, which some servers send here too."""

NEW_CALL: dict[str, JsonObject] = {
    "function_call": {"arguments": "", "call_id": "", "name": ""},
    "custom_tool_call": {"input": "", "call_id": "", "name": ""},
}
"""Defaults for members that a call may omit when its item is added."""


class OpenBlock(Struct):
    """An open block: its index, the kind of its deltas, and the pieces of text received so far.

    Thinking is streamed in parts. `part_member` is the member that numbers them, `summary_index` or
    `content_index`. `part` is the current part, which begins at the piece `part_start`.
    """

    index: int
    kind: DeltaKind
    pieces: list[str]
    part_member: str = ""
    part: int = 0
    part_start: int = 0


class StreamDecoder:
    """Turns frames into events. Items are numbered by their `output_index`.

    - `_open_blocks`: the open blocks, by item and content index.
    - `_added`: the items as they were added.
    - `_finished`: the numbers of the finished items.
    - `_item_keys`: `_item_key` of all items so far.
    - `_numbers`: the number of each item, by its id.
    - `_highest`: the highest number so far.
    - `_block_count`: the number of blocks so far.
    - `_broken`: whether a frame could not be decoded.
    """

    def __init__(self) -> None:
        self._open_blocks: dict[int, dict[int, OpenBlock]] = {}
        self._added: dict[int, JsonObject] = {}
        self._finished: set[int] = set()
        self._item_keys: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._highest = -1
        self._block_count = 0
        self.repairs = Losses()
        self._started = False
        self._called = False
        self._refused = False
        self.is_complete = False
        self._broken = False

    def feed(self, frame: Frame) -> list[Event]:
        if frame.data == DONE:
            return [Other(PROTOCOL, frame.event or "", DONE, event_count=0)]
        raw = read_frame(frame)
        if raw is None:
            self._broken = True
            return [Fail(unreadable_error(frame), "frame")]
        kind = str(raw.get("type"))
        decode = self.FRAMES.get(kind)
        if decode is None and raw.get("error") and "type" not in raw:
            self.is_complete = True
            return [Fail(decode_failure(raw["error"]), "stop")]
        if decode is None:
            return [Other(PROTOCOL, kind, raw, self._block_index(raw))]
        try:
            events = decode(self, raw)
        except DECODE_ERRORS as error:
            self._broken = True
            return [Fail(malformed_error(frame, error), "frame")]
        count = sum(not isinstance(event, Fail) or event.cause == "event" for event in events)
        return [Other(PROTOCOL, frame.event or "", raw, event_count=count), *events]

    def close(self) -> list[Event]:
        done = self.is_complete or self._broken
        return [] if done else [Fail(cut_off_error("response.completed"), "end")]

    def _block_index(self, raw: JsonObject) -> int | None:
        """The index of the first open block of a frame's item, if there is one."""
        number = raw.get("output_index")
        blocks = self._open_blocks.get(number) if isinstance(number, int) else None
        return next(iter(blocks.values())).index if blocks else None

    def _start(self, raw: JsonObject) -> list[Event]:
        if self._started:
            return []
        self._started = True
        return [decode_start(as_object(raw.get("response")) or {})]

    def _item_added(self, raw: JsonObject) -> list[Event]:
        item = cast(JsonObject, raw["item"])
        number = self._number(raw, begins=True)
        if item.get("id"):
            self._numbers[str(item["id"])] = number
        kind = str(item.get("type"))
        self._open_blocks[number] = {}
        self._added[number] = item
        self._item_keys.add(_item_key(item))
        if kind == "message":
            return []
        (block,) = decode_output_item(self._with_defaults(number, kind, item))
        if isinstance(block, Thinking):  # the signature is final only when the item is done
            block = structs.replace(block, signature=None)
        return self._open(number, 0, block)

    def _with_defaults(self, number: int, kind: str, item: JsonObject) -> JsonObject:
        """A new item, with defaults for members that it may omit until it is done."""
        defaults = NEW_CALL.get(kind)
        if defaults is None:
            return item
        item = {**defaults, **{key: value for key, value in item.items() if value is not None}}
        if not item["call_id"]:
            item["call_id"] = item.get("id") or f"{GENERATED_ID_PREFIX}{number}"
        return item

    def _open(self, number: int, part: int, block: Block) -> list[Event]:
        self._note_kind(block)
        open_block = OpenBlock(self._block_count, _delta_kind(block), [streamed_text(block)])
        self._open_blocks.setdefault(number, {})[part] = open_block
        self._block_count += 1
        return [Open(open_block.index, block)]

    def _note_kind(self, block: Block) -> None:
        """Note whether the answer contains a call or a refusal."""
        self._called = self._called or isinstance(block, ToolCall)
        self._refused = self._refused or isinstance(block, Refusal)

    def _part_added(self, raw: JsonObject) -> list[Event]:
        number, part = self._number(raw), int(raw.get("content_index") or 0)
        item = self._added.get(number, {})
        if item.get("type") != "message" or part in self._open_blocks.get(number, {}):
            return []
        path = f"output[{number}].content[{part}]"
        content = cast(JsonObject, complete_part(raw["part"], path, self.repairs))
        if part:
            return self._open(number, part, decode_part(content, OUTPUT))
        return self._open(number, 0, decode_output_item({**item, "content": [content]})[0])

    def _text_delta(self, raw: JsonObject) -> list[Event]:
        """A delta of text or of a refusal."""
        events, open_block = self._text_block(raw, "refusal" in str(raw["type"]))
        return events + _add_text(open_block, text_piece(raw.get("delta")))

    def _text_done(self, raw: JsonObject) -> list[Event]:
        """The end of a text or refusal: adds what was not streamed of it."""
        part = as_object(raw.get("part")) or raw
        text = next((part[name] for name in ("text", "refusal") if name in part), None)
        if not isinstance(text, str) or self._is_late(raw):
            return []
        events, open_block = self._text_block(raw, "refusal" in part)
        return events + _add_missing_text(open_block, text)

    def _text_block(self, raw: JsonObject, refusal: bool) -> tuple[list[Event], OpenBlock]:
        """The block that this text belongs to; opens one if its part was never added."""
        number, part = self._number(raw), int(raw.get("content_index") or 0)
        events: list[Event] = []
        if part not in self._open_blocks.get(number, {}):
            events = self._open(number, part, Refusal("") if refusal else Text(""))
        return events, self._open_blocks[number][part]

    def _is_late(self, raw: JsonObject) -> bool:
        """Whether this text comes after its item is done, or its item has no text."""
        number = self._number(raw)
        kind = self._added.get(number, {}).get("type", "message")
        return number in self._finished or kind != "message"

    def _arguments_delta(self, raw: JsonObject) -> list[Event]:
        open_block = self._open_blocks.get(self._number(raw), {}).get(0)
        return [] if open_block is None else _add_text(open_block, text_piece(raw.get("delta")))

    def _arguments_done(self, raw: JsonObject) -> list[Event]:
        open_block = self._open_blocks.get(self._number(raw), {}).get(0)
        text = raw.get("arguments", raw.get("input"))
        return (
            []
            if open_block is None or not isinstance(text, str)
            else _add_missing_text(open_block, text)
        )

    def _thinking_delta(self, raw: JsonObject) -> list[Event]:
        events, open_block = self._thinking_block(raw)
        return events + (
            [] if open_block is None else _add_text(open_block, text_piece(raw.get("delta")))
        )

    def _thinking_done(self, raw: JsonObject) -> list[Event]:
        """The end of a part of the thinking: adds what was not streamed of it."""
        text = (as_object(raw.get("part")) or raw).get("text")
        if not isinstance(text, str) or not text:
            return []
        events, open_block = self._thinking_block(raw)
        return events + ([] if open_block is None else _add_missing_text(open_block, text))

    def _thinking_part(self, raw: JsonObject) -> list[Event]:
        return self._thinking_block(raw)[0]

    def _thinking_block(self, raw: JsonObject) -> tuple[list[Event], OpenBlock | None]:
        """The block that this thinking belongs to, at the part that the frame names.

        `None` if the item is done. An item may stream both a summary and raw reasoning: the first
        one becomes the text, and for the second one this is `None`, too.
        """
        number = self._number(raw)
        part_member = "summary_index" if "summary_index" in raw else "content_index"
        events: list[Event] = []
        if number in self._finished:
            return [], None
        if not self._open_blocks.get(number):
            events = self._open(number, 0, Thinking(""))
        open_block = self._open_blocks[number].get(0)
        if open_block is None or open_block.kind != "thinking":
            return [], None
        if open_block.part_member not in ("", part_member):
            return [], None
        open_block.part_member = part_member
        part = int(raw.get(part_member) or 0)
        if part > open_block.part:
            open_block.part = part
            if any(open_block.pieces):
                events += _add_text(open_block, "\n\n")
            open_block.part_start = len(open_block.pieces)
        return events, open_block

    def _item_done(self, raw: JsonObject) -> list[Event]:
        item = cast(JsonObject, raw["item"])
        number = self._number({"item_id": item.get("id"), **raw})
        return self._finish_item(number, self._complete_item(number, item))

    def _number(self, raw: JsonObject, *, begins: bool = False) -> int:
        """The `output_index` of a frame.

        If the frame has none: the number of the item with its `item_id`, else the next number if an
        item `begins`, else the highest one.
        """
        number = raw.get("output_index")
        if number is None and not begins:
            number = self._numbers.get(str(raw.get("item_id")))
        if number is None:
            number = self._highest + 1 if begins else max(self._highest, 0)
        self._highest = max(self._highest, int(number))
        return int(number)

    def _complete_item(self, number: int, item: JsonObject) -> JsonObject:
        """The finished item; members that it omits are taken from the stream."""
        added = self._added.get(number, {})
        for key in ("type", "call_id", "name"):
            if item.get(key) is None and added.get(key) is not None:
                item = {**item, key: added[key]}
        open_block = self._open_blocks.get(number, {}).get(0)
        if open_block is not None and open_block.kind == "arguments":
            key = "input" if item.get("type") == "custom_tool_call" else "arguments"
            if item.get(key) is None and any(open_block.pieces):
                item = {**item, key: "".join(open_block.pieces)}
        return complete_item(item, number, f"output[{number}]", self.repairs)

    def _finish_item(self, number: int, item: JsonObject) -> list[Event]:
        """Close the blocks of a finished item; blocks that were not streamed are opened first."""
        open_blocks = self._open_blocks.pop(number, {})
        self._finished.add(number)
        self._item_keys.add(_item_key(item))
        events: list[Event] = []
        for part, block in enumerate(decode_output_item(item)):
            self._note_kind(block)
            open_block = open_blocks.pop(part, None)
            if open_block is None:
                events += (Open(self._block_count, block), Close(self._block_count))
                self._block_count += 1
            else:
                block = _with_streamed_text(open_block, block)
                events += (*_missing_deltas(open_block, block), Close(open_block.index, block))
        events += [Close(open_block.index) for open_block in open_blocks.values()]
        return events

    def _terminal(self, raw: JsonObject) -> list[Event]:
        """The end of the stream: closes all blocks, and adds items that were not streamed."""
        self.is_complete = True
        response = as_object(raw.get("response"))
        if response is None and not self._block_count:
            return [Fail(cut_off_error("a response"), "end")]
        response = response or {}
        events = self._start(raw)
        error = failed_response(response)
        if error is not None:
            return [*events, Fail(error, "stop")]
        output = cast(list[JsonObject], response.get("output") or [])
        for number, item in enumerate(output):
            if number in self._open_blocks or not self._was_streamed(number, item):
                events += self._finish_item(number, self._complete_item(number, item))
        for blocks in self._open_blocks.values():
            events += [Close(open_block.index) for open_block in blocks.values()]
        finish = decode_finish(response, called=self._called, refused=self._refused)
        return [*events, finish, End()]

    def _was_streamed(self, number: int, item: JsonObject) -> bool:
        """Whether an item of the finished response was already streamed.

        Compares ids too, because some servers omit items from the list, which shifts the indexes.
        """
        name = _item_key(item)
        return number in self._finished or (name != "" and name in self._item_keys)

    def _failed(self, raw: JsonObject) -> list[Event]:
        response = as_object(raw.get("response")) or {}
        if refused_by(response) is not None:
            return self._terminal(raw)
        self.is_complete = True
        return [*self._start(raw), Fail(decode_failure(response.get("error")))]

    def _error(self, raw: JsonObject) -> list[Event]:
        self.is_complete = True
        return [Fail(decode_failure({key: raw[key] for key in raw if key != "type"}))]

    FRAMES: ClassVar[dict[str, Callable[[Any, JsonObject], list[Event]]]] = {
        "response.created": _start,
        "response.queued": _start,
        "response.in_progress": _start,
        "response.output_item.added": _item_added,
        "response.output_item.done": _item_done,
        "response.content_part.added": _part_added,
        "response.content_part.done": _text_done,
        "response.output_text.delta": _text_delta,
        "response.output_text.done": _text_done,
        "response.refusal.delta": _text_delta,
        "response.refusal.done": _text_done,
        "response.function_call_arguments.delta": _arguments_delta,
        "response.function_call_arguments.done": _arguments_done,
        "response.custom_tool_call_input.delta": _arguments_delta,
        "response.custom_tool_call_input.done": _arguments_done,
        "response.reasoning_summary_part.added": _thinking_part,
        "response.reasoning_summary_part.done": _thinking_done,
        "response.reasoning_summary_text.delta": _thinking_delta,
        "response.reasoning_summary_text.done": _thinking_done,
        "response.reasoning_text.delta": _thinking_delta,
        "response.reasoning_text.done": _thinking_done,
        "response.completed": _terminal,
        "response.incomplete": _terminal,
        "response.failed": _failed,
        "error": _error,
    }


def _delta_kind(block: Block) -> DeltaKind:
    match block:
        case Thinking():
            return "thinking"
        case ToolCall():
            return "arguments"
        case _:
            return "text"


def _item_key(item: JsonObject) -> str:
    """The id of an item, else its `call_id`, else an empty string."""
    return str(item.get("id") or item.get("call_id") or "")


def _add_text(open_block: OpenBlock, text: str) -> list[Event]:
    """The delta for a new piece of text."""
    open_block.pieces.append(text)
    return [Delta(open_block.index, open_block.kind, text)]


def _add_missing_text(open_block: OpenBlock, text: str) -> list[Event]:
    """The delta for the end of a finished text that was not streamed."""
    streamed = "".join(open_block.pieces[open_block.part_start :])
    missing = text[len(streamed) :] if text.startswith(streamed) else ""
    return _add_text(open_block, missing) if missing else []


def _with_streamed_text(open_block: OpenBlock, block: Block) -> Block:
    """The finished block; an empty one gets the streamed text."""
    streamed = "".join(open_block.pieces)
    match block:
        case ToolCall(arguments=""):
            return structs.replace(block, arguments=streamed)
        case Text(text="") | Refusal(text="") | Thinking(text=""):
            return structs.replace(block, text=streamed)
        case _:
            return block


def _missing_deltas(open_block: OpenBlock, block: Block) -> list[Event]:
    """The deltas for the content of a finished block that was not streamed."""
    if isinstance(block, Opaque):
        return []
    open_block.part_start = 0
    events = _add_missing_text(open_block, streamed_text(block))
    if isinstance(block, Thinking) and block.signature:
        events.append(Delta(open_block.index, "signature", block.signature))
    return events


class OpenItem(Struct):
    """An open item: its block without text, and the pieces of text and signature so far."""

    number: int
    id: str
    block: Block
    pieces: list[str]
    signature: list[str] = field(default_factory=list[str])


class StreamEncoder:
    """Turns events into frames.

    - `_skip`: the number of next events to skip, because an original frame contains them.
    - `_sequence`: the next `sequence_number`.
    - `_open_items`: the open items, by the index of their block.
    - `_output`: the finished items, by number.
    - `_reported`: the kinds of events that were reported as lost.
    """

    def __init__(self, created: int) -> None:
        self.losses = Losses()
        self._reported: set[str] = set()
        self._created = created
        self._sequence = 0
        self._skip = 0
        self._started = False
        self._id = DEFAULT_ID
        self._model: str | None = None
        self._open_items: dict[int, OpenItem] = {}
        self._item_count = 0
        self._refused = False
        self._output: dict[int, JsonObject] = {}
        self._stop: Stop | None = None
        self._usage: Usage | None = None

    def send(self, event: Event) -> list[Frame]:
        if type(event) is Delta and not self._skip:  # nearly all events
            return self._delta(event.index, event.kind, event.text)
        if isinstance(event, Other):
            return self._other(event)
        already_sent = self._skip > 0
        if already_sent:
            self._skip -= 1
            if not isinstance(event, Start):  # `_start` notes its id and model
                return []
        match event:
            case Open(index=index, block=block):
                return [*self._ensure_started(), *self._add_item(index, block)]
            case Close(index=index, block=block):
                return self._finish_item(index, block)
            case Start():
                return self._start(event, already_sent=already_sent)
            case Finish(stop=stop, usage=usage):
                self._stop = stop or self._stop
                self._usage = merge_usage(self._usage, usage)
                return []
            case End():
                return [*self._ensure_started(), *self._end()]
            case Fail():
                return self._fail(event)
            case _:
                return []

    def _other(self, event: Other) -> list[Frame]:
        if event.protocol != PROTOCOL:
            if event.event_count is None and event.kind not in self._reported:
                self._reported.add(event.kind)
                self.losses.add("", "vendor_event_dropped", event.kind)
            return []
        self._skip = event.event_count or 0
        if isinstance(event.raw, str):
            return [Frame(event.raw, event.kind or None)]
        number = event.raw.get("sequence_number")
        self._sequence = (number if isinstance(number, int) else self._sequence) + 1
        return [json_frame(event.raw, event.kind or None)]

    def _start(self, event: Start, *, already_sent: bool) -> list[Frame]:
        if self._started:
            return []
        self._started = True
        self._id = event.id or self._id
        self._model = event.model
        self._usage = event.usage
        if already_sent:
            return []
        body = self._response("in_progress")
        return [
            self._frame("response.created", response=body),
            self._frame("response.in_progress", response=body),
        ]

    def _ensure_started(self) -> list[Frame]:
        """Start the stream if its source sent no `Start`."""
        return self._start(Start(), already_sent=False)

    def _response(self, status: str) -> JsonObject:
        output = [item for _, item in sorted(self._output.items())]
        body = response_object(self._id, self._model, self._created, status, output)
        body["usage"] = encode_usage(self._usage) if status != "in_progress" else None
        return body

    def _add_item(self, index: int, block: Block) -> list[Frame]:
        """The frames for a block that was opened, which is a new item."""
        if not check_supported(block, (0, index), self.losses, streamed=True):
            return []
        number, self._item_count = self._item_count, self._item_count + 1
        self._refused = self._refused or isinstance(block, Refusal)
        empty_block = _without_text(block)
        body = output_item(empty_block, self._id, number, "in_progress")
        item = self._open_items[index] = OpenItem(number, str(body.get("id", "")), empty_block, [])
        if isinstance(block, Text | Refusal):
            body["content"] = []
        frames = [self._frame("response.output_item.added", output_index=number, item=body)]
        frames += self._part_added_frames(item)
        text = streamed_text(block)
        if isinstance(block, Thinking) and block.signature:
            item.signature = [block.signature]
        return frames + (self._delta_frames(item, text) if text else [])

    def _part_added_frames(self, item: OpenItem) -> list[Frame]:
        match item.block:
            case Text() | Refusal():
                part = output_part(item.block)
                return [
                    self._item_frame(
                        item, "response.content_part.added", content_index=0, part=part
                    )
                ]
            case _:
                return []

    def _delta(self, index: int, kind: str, text: str) -> list[Frame]:
        item = self._open_items.get(index)
        if item is None:
            return []
        if kind == "signature":
            item.signature.append(text)
            return []
        return self._delta_frames(item, text) if text else []

    def _delta_frames(self, item: OpenItem, text: str) -> list[Frame]:
        if type(item.block) is Text:
            item.pieces.append(text)
            return [self._text_frame(item, text)]
        frames: list[Frame] = []
        match item.block:
            case Refusal():
                frame = self._item_frame(
                    item, "response.refusal.delta", content_index=0, delta=text
                )
            case Thinking():
                if not item.pieces:
                    frames.append(self._summary_frame(item, "reasoning_summary_part.added", ""))
                frame = self._item_frame(
                    item, "response.reasoning_summary_text.delta", summary_index=0, delta=text
                )
            case ToolCall(custom=custom):
                frame = self._item_frame(item, f"response.{CALL_EVENTS[custom]}.delta", delta=text)
            case _:
                return []
        item.pieces.append(text)
        return [*frames, frame]

    def _summary_frame(self, item: OpenItem, name: str, text: str) -> Frame:
        part = {"type": "summary_text", "text": text}
        return self._item_frame(item, f"response.{name}", summary_index=0, part=part)

    def _finish_item(self, index: int, final: Block | None) -> list[Frame]:
        """The frames for a block that was closed; `final` is the block of the `Close` event."""
        item = self._open_items.pop(index, None)
        if item is None:
            return []
        block = _finished_block(item, final)
        sent, text = "".join(item.pieces), streamed_text(block)
        missing = text[len(sent) :] if text.startswith(sent) else ""
        frames = self._delta_frames(item, missing) if missing else []
        frames += self._part_done_frames(item, block)
        body = self._output[item.number] = output_item(block, self._id, item.number)
        done = self._frame("response.output_item.done", output_index=item.number, item=body)
        return [*frames, done]

    def _part_done_frames(self, item: OpenItem, block: Block) -> list[Frame]:
        """The frames that repeat the whole text of a block, before its item is done."""
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
                    self._item_frame(item, name, summary_index=0, text=text),
                    self._summary_frame(item, "reasoning_summary_part.done", text),
                ]
            case ToolCall(custom=custom, name=tool):
                name = f"response.{CALL_EVENTS[custom]}.done"
                if custom:
                    return [self._item_frame(item, name, input=text)]
                return [self._item_frame(item, name, name=tool, arguments=text)]
            case _:
                return []
        return [
            self._item_frame(item, name, content_index=0, **content),
            self._item_frame(
                item, "response.content_part.done", content_index=0, part=output_part(block)
            ),
        ]

    def _end(self) -> list[Frame]:
        frames = [
            frame for index in list(self._open_items) for frame in self._finish_item(index, None)
        ]
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

    def _text_frame(self, item: OpenItem, text: str) -> Frame:
        """Like `_item_frame`, written out: there is one such frame per token."""
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

    def _item_frame(self, item: OpenItem, kind: str, **members: object) -> Frame:
        return self._frame(kind, item_id=item.id, output_index=item.number, **members)

    def _frame(self, kind: str, **members: object) -> Frame:
        body = {"type": kind, "sequence_number": self._sequence, **members}
        self._sequence += 1
        return json_frame(body, kind)


CALL_EVENTS = {False: "function_call_arguments", True: "custom_tool_call_input"}
"""The event name of a call's deltas, by whether the call is custom."""


def _without_text(block: Block) -> Block:
    """A block without its text and signature, which are sent later."""
    match block:
        case Text() | Refusal():
            return structs.replace(block, text="")
        case Thinking():
            return structs.replace(block, text="", signature=None)
        case ToolCall():
            return structs.replace(block, arguments="")
        case _:
            return block


def _finished_block(item: OpenItem, final: Block | None) -> Block:
    """The block of the `Close` event, else the block with the text of all deltas."""
    if final is not None and type(final) is type(item.block):
        return final
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
