"""Replaces a client's echo of an answer with the answer as the model wrote it.

Every client echoes the text of an answer, and its calls by id, name and arguments. The stored
answer has more: thinking, signatures, vendor members. A protocol without turns may split one answer
into several assistant messages; together they are one echo.

- `replace_answers` is for the gateway, which knows the position of each echo in the request.
- `restore_echoes` is for the sidecar, which has no positions. It finds echoes by their content.

Loss paths still refer to the list that the caller sent. A cache mark stays with the text or call
that it was set on, and never moves to thinking:
https://platform.claude.com/docs/en/build-with-claude/prompt-caching
"""

from collections import deque
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from msgspec import Struct, structs

from weft import exact_json
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
    rename_results,
    texts,
)


class OriginalPosition(Struct, frozen=True, gc=False):
    """The position of a message in the caller's list.

    For a restored answer, `blocks` has the position of each block. A block that the client never
    saw has the position of its message.
    """

    number: int
    blocks: list[Position] | None = None


class AnswerIndex:
    """Stored answers by the key of their echo, oldest first.

    Each answer is used for one echo, in order. The last one is used for all later echoes too.
    """

    def __init__(self) -> None:
        self._answers: dict[str, deque[Message]] = {}
        self._max_messages = 0

    def add(self, key: str, answer: Message) -> None:
        self._answers.setdefault(key, deque()).append(answer)
        # A client may send each block as one message, and the explanation of a refusal as another.
        self._max_messages = max(self._max_messages, len(answer.blocks) + 1)

    def take(self, echoes: Sequence[Message], start: int) -> tuple[Message | None, int]:
        """The answer that the messages from `start` echo, and the number of these messages."""
        end, limit = start, min(len(echoes), start + self._max_messages)
        while end < limit and echoes[end].role == "assistant":
            end += 1
        for stop in range(end, start, -1):
            blocks = [block for message in echoes[start:stop] for block in message.blocks]
            answers = self._answers.get(echo_key(blocks))
            if answers:
                is_last = len(answers) == 1
                return answers[0] if is_last else answers.popleft(), stop - start
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
    originals: list[OriginalPosition] = []
    start = 0
    while start < len(echoes):
        answer, count = index.take(echoes, start)
        echo = echoes[start : start + count]
        if answer is not None:
            messages.append(answer)
            originals.append(OriginalPosition(start, _echo_positions(answer, echo, start)))
        else:
            messages += echo
            originals += [OriginalPosition(number) for number in range(start, start + count)]
        start += count
    is_changed = any(original.blocks is not None for original in originals)
    return _with_messages(echoed, messages, originals) if is_changed else echoed


def replace_answers(echoed: Request, answers: Mapping[tuple[int, int], Message]) -> Request:
    """The request with echoes replaced by stored answers.

    The keys of `answers` are the start and the end (exclusive) of an echo in the list of messages.
    If the calls of an answer have other ids than those of its echo, their results get these ids.
    """
    if not answers:
        return echoed
    ids: dict[str, str] = {}
    echoes = echoed.messages
    stops = dict(answers.keys())
    messages: list[Message] = []
    originals: list[OriginalPosition] = []
    start = 0
    while start < len(echoes):
        stop = stops.get(start)
        if stop is None:
            messages.append(rename_results(echoes[start], ids) if ids else echoes[start])
            originals.append(OriginalPosition(start))
            start += 1
            continue
        answer = answers[start, stop]
        messages.append(answer)
        ids |= _changed_ids(echoes[start:stop], answer)
        positions = _echo_positions(answer, echoes[start:stop], start)
        originals.append(OriginalPosition(start, positions))
        start = stop
    return _with_messages(echoed, messages, originals)


def _changed_ids(echo: Sequence[Message], answer: Message) -> dict[str, str]:
    """The ids of the answer's calls, by the ids of the same calls in the echo, where they differ.

    A client whose protocol has no call ids echoes an answer with ids that its codec made.
    """
    echoed = [block for each in echo for block in each.blocks if isinstance(block, ToolCall)]
    calls = [block for block in answer.blocks if isinstance(block, ToolCall)]
    if [call.name for call in echoed] != [call.name for call in calls]:
        return {}
    pairs = zip(echoed, calls, strict=True)
    return {before.id: after.id for before, after in pairs if before.id != after.id}


def replace_messages(request: Request, messages: tuple[Message, ...]) -> Request:
    """The request with another message list, whose start or end may be equal to the old one's.

    Cache marks stay on the messages at the equal start and end. All other marks are dropped.
    """
    old = request.messages
    shorter = min(len(old), len(messages))
    start = next((n for n in range(shorter) if old[n] != messages[n]), shorter)
    max_end = shorter - start
    end = next((n for n in range(max_end) if old[-1 - n] != messages[-1 - n]), max_end)
    # Paths of losses in the messages between point to where the lists begin to differ.
    first_different = min(start, len(old) - 1)
    old_numbers = [
        *range(start),
        *[first_different] * (len(messages) - start - end),
        *range(len(old) - end, len(old)),
    ]
    shared = {*range(start), *range(len(old) - end, len(old))}
    marks = {
        position: mark
        for position, mark in request.marks.items()
        if not position or not isinstance(position[0], int) or position[0] in shared
    }
    originals = [OriginalPosition(number) for number in old_numbers]
    return _with_messages(structs.replace(request, marks=marks), messages, originals)


def echo_key(blocks: Sequence[Block]) -> str:
    """A digest of what every client echoes: the text, and the calls by id, name and arguments."""
    echo: list[Any] = ["".join(texts(blocks))]
    for block in blocks:
        if isinstance(block, ToolCall):
            echo.append([block.id, block.name, canonical_arguments(block.arguments)])
    return digest(echo)


def digest(value: Any) -> str:
    """A short digest of a value, independent of the order of its members."""
    return sha256(exact_json.encode_sorted(value)).hexdigest()[:16]


def _echo_positions(answer: Message, echo: Sequence[Message], start: int) -> list[Position]:
    """For each block of an answer, the position of the block that echoes it."""
    call_positions: dict[str, Position] = {}
    text_positions: list[Position] = []
    for number, message in enumerate(echo, start):
        for index, block in enumerate(message.blocks):
            if isinstance(block, ToolCall):
                call_positions[block.id] = (number, index)
            elif isinstance(block, Text | Refusal):
                text_positions.append((number, index))
    unused_texts = iter(text_positions)
    positions: list[Position] = []
    for block in answer.blocks:
        if isinstance(block, ToolCall):
            positions.append(call_positions.get(block.id, (start,)))
        elif isinstance(block, Text | Refusal):
            positions.append(next(unused_texts, (start,)))
        else:
            positions.append((start,))
    return positions


def _with_messages(
    echoed: Request, messages: Sequence[Message], originals: Sequence[OriginalPosition]
) -> Request:
    """The request with these messages. Its marks get their new positions; paths still refer to the
    caller's list."""

    def original_position(position: Position) -> Position:
        match position:
            case (int(number), *steps) if number < len(originals):
                original = originals[number]
                if original.blocks is None or not steps or not isinstance(steps[0], int):
                    return (original.number, *steps)
                block = original.blocks[steps[0]]
                return (*block, *steps[1:]) if len(block) > 1 else block
            case _:
                return position

    marks = _move_marks(echoed, originals) if echoed.marks else echoed.marks
    wire = echoed.wire
    if wire is not None:
        locate = wire.locate
        wire = Wire(
            wire.protocol, lambda position: locate(original_position(position)), wire.part_name
        )
    return structs.replace(echoed, messages=tuple(messages), marks=marks, wire=wire)


def _move_marks(echoed: Request, originals: Sequence[OriginalPosition]) -> dict[Position, Any]:
    """The marks at their new positions.

    A mark on a block that the restored answer does not have moves to the last block that both the
    echo and the answer have.
    """
    new_positions: dict[Position, Position] = {}
    for number, original in enumerate(originals):
        if original.blocks is None:
            new_positions[original.number,] = (number,)
            continue
        for index, position in enumerate(original.blocks):
            if len(position) > 1:
                new_positions[position] = new_positions[position[0], "last"] = (number, index)
    marks: dict[Position, Any] = {}
    for position, mark in echoed.marks.items():
        if not position or not isinstance(position[0], int):
            marks[position] = mark
            continue
        last = new_positions.get((position[0], "last"))
        if (message := new_positions.get(position[:1])) is not None:
            marks[*message, *position[1:]] = mark
        elif (block := new_positions.get(position[:2], last)) is not None:
            marks[*block, *position[2:]] = mark
    return marks
