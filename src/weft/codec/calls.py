"""Tool calls: ids that are valid for a target, and answers with the client's own tool names.

In a request, two problems with ids are fixed. Each change is reported, and the sidecar
(`codec.sidecar`) keeps the original id.

- The target refuses an id, because it is too long or has other characters than the target allows
  (each codec checks this). It gets a digest of the original as a suffix (`with_digest`). The same
  id always gives the same result. Two different ids stay different: an id that already ends in such
  a suffix gets a second one.
- Two calls of one request have the same id. Vendors refuse that ("`tool_use` ids must be unique"),
  but some clients and models restart the numbering in every turn. The first call keeps its id,
  a later one gets a new id, and each result answers the oldest of its calls that has no result yet.
  A new id depends only on what comes before it, so the ids of earlier turns are the same in the
  next request, and the vendor's prompt cache still matches.

The translation of a request also records which tool names it changed (`codec.tools`). Here these
changes are undone in the answer, in a whole message or in a stream. In a stream, the text of a
custom call is extracted from `{"input": "..."}` while it arrives.
"""

import re
from collections import deque
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from msgspec import structs

from weft import exact_json
from weft.model import (
    Alternative,
    Block,
    Close,
    Delta,
    Event,
    Message,
    Open,
    Position,
    ToolCall,
    ToolResult,
)

from .base import Losses, RenamedTools, as_object


def unique_call_ids(messages: Sequence[Message], losses: Losses) -> tuple[Message, ...]:
    """The messages with a unique id for every call; each new id is reported."""
    ids = _UniqueIds(losses)
    renamed: list[Message] = []
    for number, message in enumerate(messages):
        blocks = tuple(
            ids.rename(block, (number, index)) for index, block in enumerate(message.blocks)
        )
        is_same = blocks == message.blocks
        renamed.append(message if is_same else structs.replace(message, blocks=blocks))
    return tuple(renamed)


class _UniqueIds:
    """Makes the ids of calls unique, and gives each result the id of its call.

    - `taken`: all ids so far.

    The others are keyed by the caller's id:

    - `last_numbers`: the number in the last new id.
    - `unanswered`: the new ids of calls that have no result yet.
    - `last_answered`: the new id of the call whose result came last.
    """

    def __init__(self, losses: Losses) -> None:
        self.losses = losses
        self.taken: set[str] = set()
        self.last_numbers: dict[str, int] = {}
        self.unanswered: dict[str, deque[str]] = {}
        self.last_answered: dict[str, str] = {}

    def rename(self, block: Block, position: Position) -> Block:
        """The block with a unique id; a block without an id is unchanged."""
        if isinstance(block, ToolCall):
            return self._call(block, position)
        return self._result(block) if isinstance(block, ToolResult) else block

    def _call(self, call: ToolCall, position: Position) -> ToolCall:
        unique, number = call.id, self.last_numbers.get(call.id, 1)
        while unique in self.taken:
            number += 1
            unique = f"{call.id}-{number}"
        self.last_numbers[call.id] = number
        self.taken.add(unique)
        self.unanswered.setdefault(call.id, deque()).append(unique)
        if unique == call.id:
            return call
        report_new_id(call.id, unique, position, self.losses)
        return structs.replace(call, id=unique)

    def _result(self, result: ToolResult) -> ToolResult:
        unanswered = self.unanswered.get(result.call_id)
        if unanswered:
            self.last_answered[result.call_id] = unanswered.popleft()
        unique = self.last_answered.get(result.call_id, result.call_id)
        return result if unique == result.call_id else structs.replace(result, call_id=unique)


DIGEST_SUFFIX = re.compile(r"-x[0-9a-f]{8}$")
SUFFIX_LENGTH = 10  # "-x" and eight digits


def with_digest(call_id: str, max_length: int | None = None) -> str:
    """The id with its digest as a suffix; the id is cut so that both fit into `max_length`."""
    digest = sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    prefix = call_id if max_length is None else call_id[: max_length - SUFFIX_LENGTH]
    return f"{prefix}-x{digest}"


def report_new_id(call_id: str, new_id: str, position: Position, losses: Losses) -> None:
    """Report that a call or its result gets another id; the sidecar keeps the caller's."""
    losses.add(position, "call_id_changed", f"{call_id} -> {new_id}")


def report_empty_arguments(position: Position, losses: Losses) -> None:
    """Report that a call without arguments gets an empty object."""
    losses.add(position, "empty_arguments_added")


def has_digest(call_id: str) -> bool:
    """Whether an id ends in a suffix like the ones that `with_digest` adds."""
    return call_id[-SUFFIX_LENGTH:-8] == "-x" and DIGEST_SUFFIX.search(call_id) is not None


def fitting_id(call_id: str, max_length: int) -> str:
    """The id with at most `max_length` characters; different ids stay different.

    It is unchanged if it is short enough, not empty, and has no suffix of `with_digest`. Otherwise
    it gets such a suffix.
    """
    if len(call_id) <= max_length and call_id.isidentifier():
        return call_id  # fast path for nearly all ids: an identifier has no hyphen, so no suffix
    if 0 < len(call_id) <= max_length and not has_digest(call_id):
        return call_id
    return with_digest(call_id, max_length)


INPUT_START = re.compile(r'\s*\{\s*"input"\s*:\s*"')
MAX_INPUT_START = 1000
"""If `{"input": "` has not come within this many characters, the arguments have another form."""

COMPLETE_CHARACTERS = re.compile(
    r'(?:[^"\\]+'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|\\u(?![dD][89abAB])[0-9a-fA-F]{4}"
    r"|\\[^u])*"
)
"""Complete characters of a JSON string; no escape and no surrogate pair is split."""


GENERATED_ID_PREFIX = "call_answer_"
"""The prefix of ids that a decoder generates if the upstream sent none.

They are counters, the same in every answer. The gateway replaces them with unique ids, because it
recognises an answer by the ids in it.
"""


def replace_generated_ids(message: Message, seed: str) -> Message:
    """The message with unique ids instead of generated ones; `seed` is random."""
    if not any(
        isinstance(b, ToolCall) and b.id.startswith(GENERATED_ID_PREFIX) for b in message.blocks
    ):
        return message
    blocks = tuple(_with_unique_id(block, seed) for block in message.blocks)
    return structs.replace(message, blocks=blocks)


def replace_event_id(event: Event, seed: str) -> Event:
    """The event with a unique id instead of a generated one."""
    if isinstance(event, Alternative):
        return structs.replace(event, event=replace_event_id(event.event, seed))
    if isinstance(event, Open | Close) and event.block is not None:
        block = _with_unique_id(event.block, seed)
        return event if block is event.block else structs.replace(event, block=block)
    return event


def _with_unique_id(block: Block, seed: str) -> Block:
    if not isinstance(block, ToolCall) or not block.id.startswith(GENERATED_ID_PREFIX):
        return block
    return structs.replace(block, id=f"call_{seed}_{block.id.removeprefix(GENERATED_ID_PREFIX)}")


def restore_call(call: ToolCall, renamed_tools: RenamedTools) -> ToolCall:
    """The call with the client's own tool name; the same object if nothing was changed."""
    original = renamed_tools.get(call.name)
    if original is None or call.namespace is not None:
        return call
    if call.custom and original.name == call.name and original.namespace is None:
        return call  # the target has custom tools too, so nothing was changed
    # For a target without custom tools, the tool is a function with one argument, `input`.
    is_wrapped = original.custom and not call.custom
    return structs.replace(
        call,
        name=original.name,
        namespace=original.namespace,
        custom=is_wrapped or call.custom,
        arguments=unwrap(call.arguments) if is_wrapped else call.arguments,
    )


def restore_calls(message: Message, renamed_tools: RenamedTools) -> Message:
    """The message with the client's own tool names."""
    if not renamed_tools or not any(
        isinstance(block, ToolCall) and block.name in renamed_tools for block in message.blocks
    ):
        return message
    blocks: list[Block] = [
        restore_call(block, renamed_tools) if isinstance(block, ToolCall) else block
        for block in message.blocks
    ]
    return structs.replace(message, blocks=tuple(blocks))


def unwrap(arguments: str) -> str:
    """The text of `{"input": text}` or of a JSON string; other arguments unchanged."""
    try:
        value = exact_json.loads(arguments)
    except exact_json.JSONDecodeError:
        return arguments
    if isinstance(value, str):
        return value
    fields = as_object(value)
    if fields is None or fields.keys() != {"input"} or not isinstance(fields["input"], str):
        return arguments
    return fields["input"]


class CallRestorer:
    """Restores the calls in a stream of events."""

    def __init__(self, renamed_tools: RenamedTools) -> None:
        self._renamed_tools = renamed_tools
        self._open: dict[int, tuple[ToolCall, _InputExtractor | None]] = {}
        self._alternatives: dict[int, CallRestorer] = {}

    def send(self, event: Event) -> list[Event]:
        """The events for the client that replace this one."""
        match event:
            case Open(index=index, block=ToolCall() as block):
                return self._restore_open(index, block, event)
            case Delta(index=index, kind="arguments", text=text) if index in self._open:
                extractor = self._open[index][1]
                if extractor is None:
                    return [event]
                piece = extractor.feed(text)
                return [Delta(index, "arguments", piece)] if piece else []
            case Close(index=index, block=block) if index in self._open:
                return self._restore_close(index, block)
            case Alternative(number=number, event=inner):
                if number not in self._alternatives:
                    self._alternatives[number] = CallRestorer(self._renamed_tools)
                restored = self._alternatives[number].send(inner)
                return [Alternative(number, event) for event in restored]
            case _:
                return [event]

    def _restore_open(self, index: int, block: ToolCall, event: Event) -> list[Event]:
        restored = restore_call(block, self._renamed_tools)
        if restored is block:
            return [event]
        extractor = _InputExtractor() if restored.custom and not block.custom else None
        self._open[index] = restored, extractor
        if extractor is not None:
            restored = structs.replace(restored, arguments=extractor.feed(block.arguments))
        return [Open(index, restored)]

    def _restore_close(self, index: int, last: Block | None) -> list[Event]:
        """The end of a restored call, after the text that was not sent yet."""
        restored, extractor = self._open.pop(index)
        if isinstance(last, ToolCall):
            last = restore_call(last, self._renamed_tools)
        if extractor is None:
            return [Close(index, last)]
        text = last.arguments if isinstance(last, ToolCall) else unwrap(extractor.received)
        final = last if last is not None else structs.replace(restored, arguments=text)
        sent = extractor.sent
        # Sent text cannot be taken back. If it is wrong, only `Close` has the right text.
        missing = text[len(sent) :] if text.startswith(sent) else ""
        events: list[Event] = [Delta(index, "arguments", missing)] if missing else []
        return [*events, Close(index, final)]


class _InputExtractor:
    """Extracts the text inside `{"input": "..."}` while it arrives."""

    def __init__(self) -> None:
        self._received: list[str] = []
        self._sent: list[str] = []
        self._inside = False
        self._ended = False
        self._buffer = ""

    def feed(self, text: str) -> str:
        """The characters of the input that this piece completes."""
        self._received.append(text)
        if self._ended:
            return ""
        self._buffer += text
        if not self._inside:
            opening = INPUT_START.match(self._buffer)
            if opening is None:
                self._ended = len(self._buffer) > MAX_INPUT_START
                return ""
            self._inside = True
            self._buffer = self._buffer[opening.end() :]
        match: Any = COMPLETE_CHARACTERS.match(self._buffer)
        raw = str(match.group())
        self._buffer = self._buffer[len(raw) :]
        self._ended = self._buffer.startswith('"')
        try:
            piece = str(exact_json.loads(f'"{raw}"'))
        except exact_json.JSONDecodeError:  # not JSON after all; `Close` will have the whole text
            self._ended = True
            return ""
        self._sent.append(piece)
        return piece

    @property
    def received(self) -> str:
        return "".join(self._received)

    @property
    def sent(self) -> str:
        return "".join(self._sent)
