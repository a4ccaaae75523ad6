"""Ids of tool calls, made valid for a target.

Two problems are fixed here; each change is reported, and the sidecar keeps the original id.

- An id has characters that the target refuses, or is too long. It is truncated and gets a digest of
  the original as a suffix. The same id always gives the same result, and two ids never become one:
  an id that already looks marked is marked again.
- Two calls of one request have the same id. Vendors refuse that ("`tool_use` ids must be unique"),
  but some clients and models number their calls anew in every turn. The first call keeps its id,
  a later one gets a new id, and each result answers the oldest of its calls that has no result yet.
  A new id depends only on what comes before it, so a growing conversation keeps its beginning.
"""

import re
from collections import deque
from collections.abc import Sequence
from hashlib import sha256

from msgspec import structs

from weft.model import Block, Message, Position, ToolCall, ToolResult

from .base import Losses


def unique_call_ids(messages: Sequence[Message], losses: Losses) -> tuple[Message, ...]:
    """The messages with a unique id for every call; each new id is reported."""
    ids = _Ids(losses)
    renamed: list[Message] = []
    for number, message in enumerate(messages):
        blocks = tuple(ids.block(block, (number, at)) for at, block in enumerate(message.blocks))
        same = blocks == message.blocks
        renamed.append(message if same else structs.replace(message, blocks=blocks))
    return tuple(renamed)


class _Ids:
    """`taken` has all ids so far. By the caller's id: `numbers` counts its calls, `waiting` has
    those without a result, and `last` is the one answered last."""

    def __init__(self, losses: Losses) -> None:
        self.losses = losses
        self.taken: set[str] = set()
        self.numbers: dict[str, int] = {}
        self.waiting: dict[str, deque[str]] = {}
        self.last: dict[str, str] = {}

    def block(self, block: Block, position: Position) -> Block:
        if isinstance(block, ToolCall):
            return self._call(block, position)
        return self._result(block) if isinstance(block, ToolResult) else block

    def _call(self, call: ToolCall, position: Position) -> ToolCall:
        own, number = call.id, self.numbers.get(call.id, 1)
        while own in self.taken:
            number += 1
            own = f"{call.id}-{number}"
        self.numbers[call.id] = number
        self.taken.add(own)
        self.waiting.setdefault(call.id, deque()).append(own)
        if own == call.id:
            return call
        self.losses.add(position, "call_id_changed", f"{call.id} -> {own}")
        return structs.replace(call, id=own)

    def _result(self, result: ToolResult) -> ToolResult:
        waiting = self.waiting.get(result.call_id)
        if waiting:
            self.last[result.call_id] = waiting.popleft()
        own = self.last.get(result.call_id, result.call_id)
        return result if own == result.call_id else structs.replace(result, call_id=own)


MARKED = re.compile(r"-x[0-9a-f]{8}$")
MARK_LENGTH = 10


def marked_id(call_id: str, longest: int | None = None) -> str:
    """The id with its digest, truncated to the longest that the protocol accepts."""
    digest = sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    prefix = call_id if longest is None else call_id[: longest - MARK_LENGTH]
    return f"{prefix}-x{digest}"


def report_new_id(call_id: str, position: Position, losses: Losses) -> None:
    """Report that a call has another id here; the sidecar has the caller's."""
    losses.add(position, "call_id_changed", call_id)


def report_empty_arguments(position: Position, losses: Losses) -> None:
    """Report that a call without arguments gets an empty object."""
    losses.add(position, "empty_arguments_added")


def looks_marked(call_id: str) -> bool:
    """Whether an id ends like a marked one."""
    return call_id[-10:-8] == "-x" and MARKED.search(call_id) is not None


def fitting_id(call_id: str, longest: int) -> str:
    """The id if it is short enough and does not look marked, else marked."""
    if 0 < len(call_id) <= longest and (call_id[-10:-8] != "-x" or not looks_marked(call_id)):
        return call_id
    return marked_id(call_id, longest)
