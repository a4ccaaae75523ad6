"""Formats of a compiled thread: text, plain dicts, and messages for a vendor's codec."""

from collections.abc import Iterable
from typing import Any

from msgspec import structs

from weft.history import Row
from weft.model import Message, Text, Thinking, speaker, spoken, texts


def to_dicts(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """`{"role", "content", "name"?}` for each row; the content is what a person would read."""
    return [_to_dict(message) for message in readable_messages(rows)]


def to_text(rows: Iterable[Row]) -> str:
    """The conversation as a person reads it, calls included."""
    return "\n\n".join(
        f"{speaker(message)}: {spoken(message)}" for message in readable_messages(rows)
    )


def readable_messages(rows: Iterable[Row]) -> list[Message]:
    """The messages of the rows. Reasoning is text: it is among the rows only if it was asked for,
    and no vendor accepts unsigned thinking."""
    return [_as_text(row.message) if row.kind == "reasoning" else row.message for row in rows]


def _as_text(message: Message) -> Message:
    thoughts = [block.text for block in message.blocks if isinstance(block, Thinking)]
    return structs.replace(message, blocks=(Text("\n".join([*thoughts, *texts(message.blocks)])),))


def _to_dict(message: Message) -> dict[str, Any]:
    body: dict[str, Any] = {"role": message.role, "content": message.text}
    return body if message.name is None else {**body, "name": message.name}
