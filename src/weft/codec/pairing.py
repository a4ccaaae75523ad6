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
    """One message to write; it starts with the message's own blocks.

    `first` is the number of leading blocks of the message that were dropped. `moved` has the
    positions of the blocks if they are not simply the rest of the message. It is `None` for most
    turns, which saves a list for each.
    """

    role: str
    message: Message
    blocks: Sequence[Block]
    number: int
    moved: list[Position] | None = None
    first: int = 0

    @property
    def at(self) -> Position:
        """The position of the message in the request."""
        return (self.number,)

    def position_of(self, at: int) -> Position:
        """The position of one block in the request."""
        return (self.number, self.first + at) if self.moved is None else self.moved[at]

    @property
    def positions(self) -> list[Position]:
        """The positions of all blocks in the request."""
        if self.moved is None:
            end = self.first + len(self.blocks)
            self.moved = [(self.number, at) for at in range(self.first, end)]
        return self.moved

    @positions.setter
    def positions(self, positions: list[Position]) -> None:
        self.moved = positions

    def keep(self, items: list[tuple[Any, Position]]) -> None:
        """Replace the blocks by these."""
        self.blocks = [block for block, _ in items]
        self.moved = [position for _, position in items]

    def insert(self, at: int, items: Sequence[tuple[Any, Position]]) -> None:
        """Insert these blocks before this position."""
        if not isinstance(self.blocks, list):
            self.blocks = list(self.blocks)
        self.positions[at:at] = [position for _, position in items]
        self.blocks[at:at] = [block for block, _ in items]


def turn_of(number: int, message: Message) -> Turn:
    """The turn of a message with this number in the list."""
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
            pairing.system(turn)
        elif message.role == "assistant":
            pairing.assistant(turn)
        elif not pairing.answers(turn):
            pairing.user(turn)
    pairing.add_missing_results()
    return [(turn.number, _message_of(turn)) for turn in pairing.turns]


def with_paired_results(messages: Sequence[Message]) -> list[Message]:
    """The messages with every result after its call. A tool message without a result is the
    user's, because no vendor accepts it otherwise."""
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
    answers = any(isinstance(block, ToolResult) for block in blocks)
    role = "user" if turn.role == "tool" and not answers else turn.role
    return structs.replace(turn.message, role=role, blocks=blocks)


class Pairing:
    """Collects turns and moves results directly after their calls.

    `waiting` has the calls without a result, by id. `group` is the turn that collects the results
    of the last calls; its first `results` blocks are results. `deferred` are system messages that
    wait for the results. `inline` is whether any system message is among the turns.
    `result_parts` filters a result that becomes text.
    """

    def __init__(self, losses: Losses, result_parts: ResultParts | None = None) -> None:
        self.losses = losses
        self.result_parts = result_parts
        self.turns: list[Turn] = []
        self.waiting: dict[str, Position] = {}
        self.group: Turn | None = None
        self.results = 0
        self.inline = False
        self.deferred: list[Turn] = []

    def assistant(self, turn: Turn) -> None:
        last = self.turns[-1] if self.turns else None
        if self.waiting and self.group is None and last is not None and not self.deferred:
            self.losses.add(turn.at, "message_boundary_dropped")
            added = list(zip(turn.blocks, turn.positions, strict=True))
            last.insert(len(last.blocks), added)  # parallel calls in two messages are one turn
        else:
            if self.waiting or self.deferred:
                self.add_missing_results()
            self.group = None
            self.turns.append(turn)
        number, moved = turn.number, turn.moved
        for at, block in enumerate(turn.blocks):
            if type(block) is ToolCall:  # `position_of` written out
                self.waiting[block.id] = (number, turn.first + at) if moved is None else moved[at]

    def system(self, turn: Turn) -> None:
        self.inline = True
        if self.waiting:
            self.deferred.append(turn)
            self.losses.add(
                turn.at,
                "system_after_results",
                turn.message.role,
            )
        else:
            self.turns.append(turn)

    def user(self, turn: Turn) -> None:
        for block in turn.blocks:
            if type(block) is ToolResult:
                break
        else:
            if self.waiting or self.group is not None:
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
            turn.keep(others)
            self.turns.append(turn)
            return
        self._add(turn, results)
        if others:
            self._add(turn, others)
        if not self.waiting:
            self.turns += self.deferred
            self.deferred = []

    def answers(self, turn: Turn) -> bool:
        """Add a turn that contains only results of waiting calls. Returns false for any other turn.

        Nearly all turns with results are like this.
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
        if self.group is not None:
            items = [(block, turn.position_of(at)) for at, block in enumerate(blocks)]
            self.group.insert(self.results, items)
            self.results += count
        else:
            self.group = turn
            self.results = count
            self.turns.append(turn)
        if self.deferred and not waiting:
            self.turns += self.deferred
            self.deferred = []
        return True

    def add_missing_results(self) -> None:
        """Add an error result for each call that still waits, and release deferred messages."""
        if not self.waiting and not self.deferred:
            self.group = None
            return
        for call_id, position in self.waiting.items():
            self.losses.add(position, "result_added")
            answer = ToolResult(call_id, (Text(NO_RESULT),), is_error=True, form="text")
            turn = Turn("tool", Message("tool", (answer,)), [], int(position[0]), [])
            self._add(turn, [(answer, position)])
        self.waiting = {}
        self.group = None
        self.turns += self.deferred
        self.deferred = []

    def _add(self, turn: Turn, items: Sequence[tuple[Block, Position]]) -> None:
        if self.group is None:
            self.group = Turn(turn.role, turn.message, [], turn.number, [])
            self.results = 0
            self.turns.append(self.group)
        if isinstance(items[0][0], ToolResult):  # results come before any text of their turn
            self.group.insert(self.results, items)
            self.results += len(items)
        else:
            self.group.insert(len(self.group.blocks), items)

    def _as_text(
        self, block: ToolResult, position: Position, code: str
    ) -> list[tuple[Block, Position]]:
        self.losses.add(position, code)
        parts: Sequence[Block] = block.content
        if self.result_parts is not None:
            parts = [part for part, _ in self.result_parts(block, position)]
        text = "\n".join(texts(parts))
        media = [(part, position) for part in parts if not isinstance(part, Text)]
        return [(Text(f"[result of {block.call_id}]\n{text}"), position), *media]
