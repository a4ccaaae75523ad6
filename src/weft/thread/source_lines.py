"""Entries that are stored with a commit and that no model sees: the lines of an imported file.

An attachment is one more entry after those that the commit's operation uses. It is hashed,
archived, erased and restored like any entry, but compile ignores it.
"""

from collections.abc import Iterable

from msgspec import Struct

from weft.history import decode_entry
from weft.model import Message, Opaque
from weft.store import Step

ATTACHMENT = "attachment"
"""The role of an entry that is not part of the conversation."""


class SourceLine(Struct, frozen=True):
    """One line of a file, including its line end.

    `is_turn`: the line holds the commit's own message, not something beside it.
    """

    number: int
    text: str
    is_turn: bool = False


class SourceLines(Struct, frozen=True):
    """Lines of one source (a session id) in one file format."""

    format: str
    source: str
    lines: tuple[SourceLine, ...]


def write_source_lines(lines: SourceLines) -> Message:
    """The entry that stores lines beside a commit."""
    listed = [[line.number, line.text, line.is_turn] for line in lines.lines]
    raw = {"source": lines.source, "lines": listed}
    return Message(ATTACHMENT, (Opaque(lines.format, raw),))


def read_source_lines(step: Step) -> SourceLines | None:
    """The lines that are stored with a commit, if there are any."""
    if len(step.contents) == 0:
        return None
    message = decode_entry(step.contents[-1])
    block = message.blocks[0] if message.role == ATTACHMENT and message.blocks else None
    if not isinstance(block, Opaque) or "lines" not in block.raw:
        return None  # no attachment, or a sent body
    lines = tuple(SourceLine(number, text, turn) for number, text, turn in block.raw["lines"])
    return SourceLines(block.protocol, block.raw["source"], lines)


def without_attachments(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages of the conversation, without attachments."""
    return tuple(message for message in messages if message.role != ATTACHMENT)
