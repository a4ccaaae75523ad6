"""Restores tool calls in answers: the client's own tool names, and the raw text of custom tools.

The translation of a request records which tool names it changed (`codec.tools`). Here the changes
are undone in the answer, in a whole message or in a stream. In a stream, the text of a custom call
is extracted from `{"input": "..."}` while it arrives.
"""

import re
from typing import Any, cast

import orjson
from msgspec import structs

from weft.model import Block, Close, Delta, Event, Message, Open, ToolCall

from .base import Calls, members

OPENING = re.compile(r'\s*\{\s*"input"\s*:\s*"')
LONGEST_OPENING = 1000
"""If `{"input": "` is not within this many characters, the arguments have another form."""
CHARACTERS = re.compile(
    r'(?:[^"\\]+'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|\\u(?![dD][89abAB])[0-9a-fA-F]{4}"
    r"|\\[^u])*"
)
"""Complete characters of a JSON string; no escape and no surrogate pair is split."""


MADE = "call_answer_"
"""The prefix of ids that a decoder generates if the upstream sent none. They are counters, the same
in every answer. The gateway makes them unique, because it recognises an answer by the ids in it.
"""


def with_unique_call_ids(message: Message, seed: str) -> Message:
    """The message with unique ids for calls without an id of the upstream; `seed` is random."""
    if not any(isinstance(b, ToolCall) and b.id.startswith(MADE) for b in message.blocks):
        return message
    blocks = tuple(_with_unique_id(block, seed) for block in message.blocks)
    return structs.replace(message, blocks=blocks)


def with_unique_call_id(event: Event, seed: str) -> Event:
    """The same for one event of a stream."""
    if isinstance(event, Open | Close) and event.block is not None:
        block = _with_unique_id(event.block, seed)
        return event if block is event.block else structs.replace(event, block=block)
    return event


def _with_unique_id(block: Block, seed: str) -> Block:
    if not isinstance(block, ToolCall) or not block.id.startswith(MADE):
        return block
    return structs.replace(block, id=f"call_{seed}_{block.id.removeprefix(MADE)}")


def restore_call(call: ToolCall, calls: Calls) -> ToolCall:
    """The call with the client's own tool name; the same object if the name was not changed."""
    original = calls.get(call.name)
    if original is None or call.namespace is not None:
        return call
    wrapped = original.get("custom") is True and not call.custom
    if call.custom and original["name"] == call.name and original.get("namespace") is None:
        return call
    return structs.replace(
        call,
        name=str(original["name"]),
        namespace=cast("str | None", original.get("namespace")),
        custom=wrapped or call.custom,
        arguments=unwrap(call.arguments) if wrapped else call.arguments,
    )


def restore_calls(message: Message, calls: Calls) -> Message:
    """The message with the client's own tool names."""
    if not calls or not any(
        isinstance(block, ToolCall) and block.name in calls for block in message.blocks
    ):
        return message
    blocks: list[Block] = [
        restore_call(block, calls) if isinstance(block, ToolCall) else block
        for block in message.blocks
    ]
    return structs.replace(message, blocks=tuple(blocks))


def unwrap(arguments: str) -> str:
    """The text of `{"input": text}` or of a JSON string; other arguments unchanged."""
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments
    if isinstance(value, str):
        return value
    fields = members(value)
    if fields is None or fields.keys() != {"input"} or not isinstance(fields["input"], str):
        return arguments
    return fields["input"]


class CallRestorer:
    """Restores the calls in a stream of events."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._open: dict[int, tuple[ToolCall, _Input | None]] = {}

    def send(self, event: Event) -> list[Event]:
        """The events for the client in place of this one."""
        match event:
            case Open(index=index, block=ToolCall() as block):
                return self._opened(index, block, event)
            case Delta(index=index, kind="arguments", text=text) if index in self._open:
                reader = self._open[index][1]
                if reader is None:
                    return [event]
                piece = reader.feed(text)
                return [Delta(index, "arguments", piece)] if piece else []
            case Close(index=index, block=block) if index in self._open:
                return self._closed(index, block)
            case _:
                return [event]

    def _opened(self, index: int, block: ToolCall, event: Event) -> list[Event]:
        restored = restore_call(block, self._calls)
        if restored is block:
            return [event]
        reader = _Input() if restored.custom and not block.custom else None
        self._open[index] = restored, reader
        if reader is not None:
            restored = structs.replace(restored, arguments=reader.feed(block.arguments))
        return [Open(index, restored)]

    def _closed(self, index: int, last: Block | None) -> list[Event]:
        """The end of a renamed call, with the rest of its text."""
        restored, reader = self._open.pop(index)
        if isinstance(last, ToolCall):
            last = restore_call(last, self._calls)
        if reader is None:
            return [Close(index, last)]
        text = last.arguments if isinstance(last, ToolCall) else unwrap(reader.written)
        final = last if last is not None else structs.replace(restored, arguments=text)
        sent = reader.sent
        missing = text[len(sent) :] if text.startswith(sent) else ""
        events: list[Event] = [Delta(index, "arguments", missing)] if missing else []
        return [*events, Close(index, final)]


class _Input:
    """Extracts the text inside `{"input": "..."}` while it arrives."""

    def __init__(self) -> None:
        self._written: list[str] = []
        self._sent: list[str] = []
        self._inside = False
        self._ended = False
        self._buffer = ""

    def feed(self, text: str) -> str:
        """The characters of the input that this piece completes."""
        self._written.append(text)
        if self._ended:
            return ""
        self._buffer += text
        if not self._inside:
            opening = OPENING.match(self._buffer)
            if opening is None:
                self._ended = len(self._buffer) > LONGEST_OPENING
                return ""
            self._inside = True
            self._buffer = self._buffer[opening.end() :]
        match: Any = CHARACTERS.match(self._buffer)
        raw = str(match.group())
        self._buffer = self._buffer[len(raw) :]
        self._ended = self._buffer.startswith('"')
        try:
            piece = str(orjson.loads(f'"{raw}"'))
        except orjson.JSONDecodeError:  # not JSON after all: the end sends the whole text
            self._ended = True
            return ""
        self._sent.append(piece)
        return piece

    @property
    def written(self) -> str:
        return "".join(self._written)

    @property
    def sent(self) -> str:
        return "".join(self._sent)
