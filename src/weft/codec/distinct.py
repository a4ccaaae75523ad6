"""Calls of one request that go by one id, told apart.

Vendors pair results by ids and refuse an id that comes twice ("`tool_use` ids must be unique");
some clients and models number their calls anew in every turn. The first call keeps its id, a later
one gets a new one, and results are taken in order: each answers the oldest of its calls that waits.
What an id becomes depends on what stands before it only, so a conversation that goes on does not
change its beginning.
"""

from collections import deque
from collections.abc import Sequence

from msgspec import structs

from weft.model import Block, Message, Place, ToolCall, ToolResult

from .base import Losses


def distinct_calls(messages: Sequence[Message], losses: Losses) -> tuple[Message, ...]:
    """The messages with every call under an id of its own; each new id is reported."""
    ids = _Ids(losses)
    told: list[Message] = []
    for number, message in enumerate(messages):
        blocks = tuple(ids.block(block, (number, at)) for at, block in enumerate(message.blocks))
        same = blocks == message.blocks
        told.append(message if same else structs.replace(message, blocks=blocks))
    return tuple(told)


class _Ids:
    """`taken` are the ids so far; by the id that the caller wrote, `numbers` is how many calls had
    it, `waiting` are those that have no result yet, and `last` is the one answered last."""

    def __init__(self, losses: Losses) -> None:
        self.losses = losses
        self.taken: set[str] = set()
        self.numbers: dict[str, int] = {}
        self.waiting: dict[str, deque[str]] = {}
        self.last: dict[str, str] = {}

    def block(self, block: Block, place: Place) -> Block:
        if isinstance(block, ToolCall):
            return self._call(block, place)
        return self._result(block) if isinstance(block, ToolResult) else block

    def _call(self, call: ToolCall, place: Place) -> ToolCall:
        own, number = call.id, self.numbers.get(call.id, 1)
        while own in self.taken:
            number += 1
            own = f"{call.id}-{number}"
        self.numbers[call.id] = number
        self.taken.add(own)
        self.waiting.setdefault(call.id, deque()).append(own)
        if own == call.id:
            return call
        what = f"the id {call.id!r}, now {own!r}"
        self.losses.add(place, what, "another call has it: each needs another id", "form")
        return structs.replace(call, id=own)

    def _result(self, result: ToolResult) -> ToolResult:
        waiting = self.waiting.get(result.call_id)
        if waiting:
            self.last[result.call_id] = waiting.popleft()
        own = self.last.get(result.call_id, result.call_id)
        return result if own == result.call_id else structs.replace(result, call_id=own)
