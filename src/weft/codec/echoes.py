"""Replaces a client's echo of an answer with the answer as the model wrote it.

Every client echoes the text of an answer, and its calls by id, name and arguments. The stored
answer has more: thinking, signatures, vendor members. A protocol without turns may split one answer
into several assistant messages; together they are one echo.

- `replace_answers` takes the answers by their position in the request, which the gateway knows.
- `restore_echoes` finds them by content, in order, because the sidecar has no positions.

Loss paths still refer to the list that the caller sent. A cache mark stays with the text or call
that it was set on, and never moves to thinking:
https://platform.claude.com/docs/en/build-with-claude/prompt-caching
"""

from collections import deque
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct, structs

from weft.ids import canonical_arguments
from weft.model import (
    Block,
    Message,
    Position,
    Refusal,
    Request,
    Text,
    ToolCall,
    Wire,
    texts,
)


class OriginalPosition(Struct, frozen=True, gc=False):
    """The position of a message in the caller's list. `blocks` are the positions of the blocks of a
    restored answer; a block that the client never saw has the position of its message."""

    number: int
    blocks: list[Position] | None = None


class AnswerIndex:
    """Stored answers by the key of their echo, oldest first. `None` is an answer that needs no
    restoring.

    With `again`, the last answer with a key is used for all later echoes with that key.
    """

    def __init__(self, *, again: bool = False) -> None:
        self._answers: dict[str, deque[Message | None]] = {}
        self._longest = 0
        self._again = again

    def add(self, key: str, answer: Message | None, blocks: int) -> None:
        """Add an answer with this many blocks; its echo may have one more, for a refusal."""
        self._answers.setdefault(key, deque()).append(answer)
        self._longest = max(self._longest, blocks + 1)

    def take(self, echoes: Sequence[Message], start: int) -> tuple[Message | None, int]:
        """The answer that the next messages echo, and the number of these messages."""
        end, furthest = start, min(len(echoes), start + self._longest)
        while end < furthest and echoes[end].role == "assistant":
            end += 1
        for stop in range(end, start, -1):
            blocks = [block for message in echoes[start:stop] for block in message.blocks]
            answers = self._answers.get(echo_key(blocks))
            if answers:
                alone = self._again and len(answers) == 1
                return answers[0] if alone else answers.popleft(), stop - start
        return None, 1


def is_plain(answer: Message) -> bool:
    """Whether an answer has only text and calls, so that its echo is complete."""
    return all(
        type(block) in (Text, ToolCall) and getattr(block, "ext", None) is None
        for block in answer.blocks
    )


def restore_echoes(echoed: Request, index: AnswerIndex) -> Request:
    """The request with every echo of a stored answer replaced by the answer."""
    echoes = echoed.messages
    messages: list[Message] = []
    before: list[OriginalPosition] = []
    start = 0
    while start < len(echoes):
        answer, count = index.take(echoes, start)
        echo = echoes[start : start + count]
        if answer is not None:
            messages.append(answer)
            before.append(OriginalPosition(start, _positions_before(answer, echo, start)))
        else:
            messages += echo
            before += [OriginalPosition(start + at) for at in range(count)]
        start += count
    moved = any(original.blocks is not None for original in before)
    return _move(echoed, messages, before) if moved else echoed


def replace_answers(echoed: Request, answers: Mapping[tuple[int, int], Message]) -> Request:
    """The request with echoes replaced by stored answers.

    The keys of `answers` are the start and the end (exclusive) of an echo in the list of messages.
    """
    if not answers:
        return echoed
    echoes = echoed.messages
    stops = dict(answers.keys())
    messages: list[Message] = []
    before: list[OriginalPosition] = []
    start = 0
    while start < len(echoes):
        stop = stops.get(start)
        if stop is None:
            messages.append(echoes[start])
            before.append(OriginalPosition(start))
            start += 1
            continue
        answer = answers[start, stop]
        messages.append(answer)
        before.append(OriginalPosition(start, _positions_before(answer, echoes[start:stop], start)))
        start = stop
    return _move(echoed, messages, before)


def replace_messages(request: Request, messages: tuple[Message, ...]) -> Request:
    """The request with another message list, which shares its start or its end with the old one.

    Cache marks stay on the messages that both lists have. A mark on another one is dropped.
    """
    old = request.messages
    shorter = min(len(old), len(messages))
    start = next((n for n in range(shorter) if old[n] != messages[n]), shorter)
    longest = shorter - start
    end = next((n for n in range(longest) if old[-1 - n] != messages[-1 - n]), longest)
    shared = {*range(start), *range(len(old) - end, len(old))}
    before = [
        OriginalPosition(number if number < start else number + len(old) - len(messages))
        if number < start or number >= len(messages) - end
        else OriginalPosition(min(start, len(old) - 1))
        for number in range(len(messages))
    ]
    marks = {
        position: mark
        for position, mark in request.marks.items()
        if not position or not isinstance(position[0], int) or position[0] in shared
    }
    return _move(structs.replace(request, marks=marks), messages, before)


def echo_key(blocks: Sequence[Block]) -> str:
    """A digest of what every client echoes: the text, and the calls by id, name and arguments."""
    echo: list[Any] = ["".join(texts(blocks))]
    for block in blocks:
        if isinstance(block, ToolCall):
            echo.append([block.id, block.name, canonical_arguments(block.arguments)])
    return digest(echo)


def digest(value: Any) -> str:
    """A short digest of a value, independent of the order of its members."""
    return sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:16]


def _positions_before(answer: Message, echo: Sequence[Message], start: int) -> list[Position]:
    """For each block of an answer, the position of its echo."""
    calls: dict[str, Position] = {}
    texts: list[Position] = []
    for number, message in enumerate(echo, start):
        for at, block in enumerate(message.blocks):
            if isinstance(block, ToolCall):
                calls[block.id] = (number, at)
            elif isinstance(block, Text | Refusal):
                texts.append((number, at))
    free = iter(texts)
    positions: list[Position] = []
    for block in answer.blocks:
        if isinstance(block, ToolCall):
            positions.append(calls.get(block.id, (start,)))
        elif isinstance(block, Text | Refusal):
            positions.append(next(free, (start,)))
        else:
            positions.append((start,))
    return positions


def _move(
    echoed: Request, messages: Sequence[Message], before: Sequence[OriginalPosition]
) -> Request:
    """The request with these messages; its marks and paths still refer to the caller's list."""

    def place_before(position: Position) -> Position:
        match position:
            case (int(number), *steps) if number < len(before):
                original = before[number]
                if original.blocks is None or not steps or not isinstance(steps[0], int):
                    return (original.number, *steps)
                at = original.blocks[steps[0]]
                return (*at, *steps[1:]) if len(at) > 1 else at
            case _:
                return position

    marks = _move_marks(echoed, before) if echoed.marks else echoed.marks
    wire = echoed.wire
    if wire is not None:
        locate = wire.locate
        wire = Wire(wire.protocol, lambda position: locate(place_before(position)), wire.part_name)
    return structs.replace(echoed, messages=tuple(messages), marks=marks, wire=wire)


def _move_marks(echoed: Request, before: Sequence[OriginalPosition]) -> dict[Position, Any]:
    """The marks at their new positions. A mark on a block that the answer does not have moves to
    the last block that both have.
    """
    now: dict[Position, Position] = {}
    for number, original in enumerate(before):
        if original.blocks is None:
            now[original.number,] = (number,)
            continue
        for at, position in enumerate(original.blocks):
            if len(position) > 1:
                now[position] = now[position[0], "last"] = (number, at)
    marks: dict[Position, Any] = {}
    for position, mark in echoed.marks.items():
        if not position or not isinstance(position[0], int):
            marks[position] = mark
        elif (message := now.get(position[:1])) is not None:
            marks[*message, *position[1:]] = mark
        elif (block := now.get(position[:2]) or now.get((position[0], "last"))) is not None:
            marks[*block, *position[2:]] = mark
    return marks
