"""Shared code of the codecs' `write_messages`: messages in a vendor's shape, outside of a request.

`to_openai()`, `to_anthropic()` and `to_responses()` return this shape. It is lenient where a
request is strict: names, unusual roles and call ids stay as they are, even if a vendor refuses
them. Members that only their own protocol has are left out.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from msgspec import structs

from weft.model import (
    Block,
    Checkpoint,
    JsonObject,
    Message,
    Opaque,
    Refusal,
    Reminder,
    Text,
    ToolCall,
    ToolResult,
    checkpoint_text,
    reminder_text,
)

from .pairing import pair_messages

B = TypeVar("B", bound=Block)


def with_paired_results(messages: Sequence[Message]) -> list[Message]:
    """The messages with every result after its call. A tool message without a result becomes a user
    message, because no vendor accepts it otherwise."""
    return [
        structs.replace(message, role="user")
        if message.role == "tool" and not blocks_of(message, ToolResult)
        else message
        for _, message in pair_messages(messages)
    ]


def blocks_of(message: Message, kind: type[B]) -> list[B]:
    """The message's blocks of one type."""
    return [block for block in message.blocks if isinstance(block, kind)]


def plain_blocks(blocks: Iterable[Block]) -> list[Block]:
    """The blocks without vendor members; blocks that read as text become `Text`."""
    return [_plain_block(block) for block in blocks]


def _plain_block(block: Block) -> Block:
    match block:
        case Text() | Refusal():
            return Text(block.text)
        case Reminder():
            return Text(reminder_text(block))
        case Checkpoint():
            return Text(checkpoint_text(block))
        case Opaque():
            return block
        case ToolCall():
            return plain_call(block)
        case _:
            return structs.replace(block, ext=None)


def plain_call(call: ToolCall) -> ToolCall:
    """The call as a function call, which every vendor supports."""
    return ToolCall(call.id, call.name, call.arguments)


def without_empty_texts(blocks: list[Block]) -> list[Block]:
    """The blocks without empty texts; the first one if nothing else is left."""
    return [block for block in blocks if not is_empty(block)] or blocks[:1]


def is_empty(block: Block) -> bool:
    return isinstance(block, Text) and not block.text


def plain_message(message: Message, content: object) -> JsonObject:
    """A message with its role and name. Text of the role `tool` becomes user text."""
    body = {"role": "user" if message.role == "tool" else message.role, "content": content}
    return body if message.name is None else {**body, "name": message.name}
