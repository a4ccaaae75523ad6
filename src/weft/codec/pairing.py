"""The turns of an outgoing request, with every tool result directly after its call.

No vendor accepts calls and results in any other order.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, structs

from weft.model import (
    SYSTEM_ROLES,
    Block,
    Message,
    Position,
    Text,
    ToolCall,
    ToolResult,
    texts,
)

from .base import Losses
from .calls import unique_call_ids


class Turn(Struct, gc=False):
    """One message to write. At first it has the message's own blocks.

    - `number`: the number of the message in the request.
    - `stored_positions`: the position of each block in the request. `None` means that the blocks
      are those of the message, without the first `dropped` ones. That saves a list for most turns.
    """

    role: str
    message: Message
    blocks: Sequence[Block]
    number: int
    stored_positions: list[Position] | None = None
    dropped: int = 0

    @property
    def position(self) -> Position:
        """The position of the message in the request."""
        return (self.number,)

    def position_of(self, index: int) -> Position:
        """The position of one block in the request."""
        if self.stored_positions is None:
            return (self.number, self.dropped + index)
        return self.stored_positions[index]

    @property
    def positions(self) -> list[Position]:
        """The positions of all blocks in the request."""
        if self.stored_positions is None:
            end = self.dropped + len(self.blocks)
            self.stored_positions = [(self.number, index) for index in range(self.dropped, end)]
        return self.stored_positions

    def set_blocks(self, items: list[tuple[Any, Position]]) -> None:
        """Replace the blocks with these."""
        self.blocks = [block for block, _ in items]
        self.stored_positions = [position for _, position in items]

    def insert(self, index: int, items: Sequence[tuple[Any, Position]]) -> None:
        """Insert these blocks before this index."""
        if not isinstance(self.blocks, list):
            self.blocks = list(self.blocks)
        self.positions[index:index] = [position for _, position in items]
        self.blocks[index:index] = [block for block, _ in items]


def turn_of(number: int, message: Message) -> Turn:
    """The turn of a message; `number` is its number in the request."""
    return Turn(message.role, message, message.blocks, number)


ResultParts = Callable[[ToolResult, Position], Sequence[tuple[Block, Position]]]
"""Returns the parts of a result that the target supports, and reports the others."""

NO_RESULT = "no result was recorded for this call"


def pair_messages(messages: Sequence[Message]) -> list[tuple[int, Message]]:
    """The messages with every result after its call, each with its number in the original list.

    Calls with the same id get ids of their own.
    """
    pairing = Pairing(Losses(None))
    for number, message in enumerate(unique_call_ids(messages, pairing.losses)):
        turn = turn_of(number, message)
        if message.role in SYSTEM_ROLES:
            pairing.add_system(turn)
        elif message.role == "assistant":
            pairing.add_assistant(turn)
        elif not pairing.add_results(turn):
            pairing.add_user(turn)
    pairing.add_missing_results()
    return [(turn.number, _message_of(turn)) for turn in pairing.turns]


def with_paired_results(messages: Sequence[Message]) -> list[Message]:
    """The messages with every result after its call. A tool message without a result gets the role
    `user`, because vendors refuse it."""
    return [
        structs.replace(message, role="user")
        if message.role == "tool" and not any(isinstance(b, ToolResult) for b in message.blocks)
        else message
        for _, message in pair_messages(messages)
    ]


def _message_of(turn: Turn) -> Message:
    blocks = tuple(turn.blocks)
    if blocks == turn.message.blocks:
        return turn.message
    has_result = any(isinstance(block, ToolResult) for block in blocks)
    role = "user" if turn.role == "tool" and not has_result else turn.role
    return structs.replace(turn.message, role=role, blocks=blocks)


class Pairing:
    """Collects turns and moves results directly after their calls.

    - `result_parts`: filters the parts of a result that becomes text.
    - `waiting`: the positions of calls without a result, by call id.
    - `result_turn`: the turn for the results of the last calls. Its first `result_count` blocks are
      results.
    - `deferred`: system messages that are written after the missing results.
    - `has_inline_system`: whether any later system message is among the turns.
    """

    def __init__(self, losses: Losses, result_parts: ResultParts | None = None) -> None:
        self.losses = losses
        self.result_parts = result_parts
        self.turns: list[Turn] = []
        self.waiting: dict[str, Position] = {}
        self.result_turn: Turn | None = None
        self.result_count = 0
        self.has_inline_system = False
        self.deferred: list[Turn] = []

    def add_assistant(self, turn: Turn) -> None:
        """Add an answer. If the turn before it has calls and no results yet, both become one
        turn."""
        last = self.turns[-1] if self.turns else None
        if self.waiting and self.result_turn is None and last is not None and not self.deferred:
            self.losses.add(turn.position, "message_boundary_dropped")
            added = list(zip(turn.blocks, turn.positions, strict=True))
            last.insert(len(last.blocks), added)
        else:
            if self.waiting or self.deferred:
                self.add_missing_results()
            self.result_turn = None
            self.turns.append(turn)
        number, dropped, positions = turn.number, turn.dropped, turn.stored_positions
        for index, block in enumerate(turn.blocks):
            if type(block) is ToolCall:  # `position_of`, written out for speed
                self.waiting[block.id] = (
                    (number, dropped + index) if positions is None else positions[index]
                )

    def add_system(self, turn: Turn) -> None:
        """Add a later system message, after the results that are still missing."""
        self.has_inline_system = True
        if self.waiting:
            self.deferred.append(turn)
            self.losses.add(turn.position, "system_after_results", turn.message.role)
        else:
            self.turns.append(turn)

    def add_user(self, turn: Turn) -> None:
        """Add a turn of the user or of tools.

        Its results go before its other blocks. A result without a call becomes text. If a call has
        two results, the first one becomes text.
        """
        if ToolResult not in map(type, turn.blocks):
            if self.waiting or self.result_turn is not None:
                self.add_missing_results()
            self.turns.append(turn)
            return
        results: list[tuple[ToolResult, Position]] = []
        others: list[tuple[Block, Position]] = []
        answered: dict[str, int] = {}
        for block, position in zip(turn.blocks, turn.positions, strict=True):
            if not isinstance(block, ToolResult):
                others.append((block, position))
            elif block.call_id in answered and block.call_id not in self.waiting:
                earlier, earlier_position = results[answered[block.call_id]]
                results[answered[block.call_id]] = block, position
                others += self._as_text(earlier, earlier_position, "result_superseded")
            elif self.waiting.pop(block.call_id, None) is not None:
                if others:
                    self.losses.add(position, "result_before_text")
                answered[block.call_id] = len(results)
                results.append((block, position))
            else:
                others += self._as_text(block, position, "orphan_result_as_text")
        if not results:
            self.add_missing_results()
            turn.set_blocks(others)
            self.turns.append(turn)
            return
        self._add_to_result_turn(turn, results)
        if others:
            self._add_to_result_turn(turn, others)
        if not self.waiting:
            self._release_deferred()

    def add_results(self, turn: Turn) -> bool:
        """Add a turn that contains only results of waiting calls; false, without adding it, for any
        other turn.

        A shortcut for `add_user`: nearly all turns with results are like this.
        """
        waiting, blocks = self.waiting, turn.blocks
        if not waiting or not blocks:
            return False
        ids: list[str] = []
        for block in blocks:
            if type(block) is not ToolResult or block.call_id not in waiting:
                return False
            ids.append(block.call_id)
        count = len(ids)
        if count > 1 and len(set(ids)) < count:
            return False
        for call_id in ids:
            del waiting[call_id]
        if self.result_turn is not None:
            items = [(block, turn.position_of(index)) for index, block in enumerate(blocks)]
            self.result_turn.insert(self.result_count, items)
            self.result_count += count
        else:
            self.result_turn = turn
            self.result_count = count
            self.turns.append(turn)
        if self.deferred and not waiting:
            self._release_deferred()
        return True

    def add_missing_results(self) -> None:
        """Add an error result for each call without a result, then the deferred system messages."""
        if not self.waiting and not self.deferred:
            self.result_turn = None
            return
        for call_id, position in self.waiting.items():
            self.losses.add(position, "result_added")
            result = ToolResult(call_id, (Text(NO_RESULT),), is_error=True, form="text")
            turn = Turn("tool", Message("tool", (result,)), [], int(position[0]), [])
            self._add_to_result_turn(turn, [(result, position)])
        self.waiting = {}
        self.result_turn = None
        self._release_deferred()

    def _release_deferred(self) -> None:
        self.turns += self.deferred
        self.deferred = []

    def _add_to_result_turn(self, turn: Turn, items: Sequence[tuple[Block, Position]]) -> None:
        """Add results, or other blocks, to `result_turn`; `turn` is the turn that they come
        from."""
        if self.result_turn is None:
            self.result_turn = Turn(turn.role, turn.message, [], turn.number, [])
            self.result_count = 0
            self.turns.append(self.result_turn)
        if isinstance(items[0][0], ToolResult):
            self.result_turn.insert(self.result_count, items)
            self.result_count += len(items)
        else:
            self.result_turn.insert(len(self.result_turn.blocks), items)

    def _as_text(
        self, block: ToolResult, position: Position, code: str
    ) -> list[tuple[Block, Position]]:
        """A result as a text block, and its media after it; reported with this loss code."""
        self.losses.add(position, code)
        parts: Sequence[Block] = block.content
        if self.result_parts is not None:
            parts = [part for part, _ in self.result_parts(block, position)]
        text = "\n".join(texts(parts))
        media = [(part, position) for part in parts if not isinstance(part, Text)]
        return [(Text(f"[result of {block.call_id}]\n{text}"), position), *media]
