"""What rides along with a commit without being said: the lines of the file that it was read from.

An attachment is one more entry behind those that the commit's operation speaks of. It is kept,
hashed, erased and restored like any entry; compile does not look at it, and no model is shown it.
"""

from collections.abc import Iterable

from msgspec import Struct

from weft.history import decode_entry
from weft.model import Message, Opaque
from weft.store import Step

ATTACHMENT = "attachment"
"""The role of an entry that is part of no conversation."""


class Kept(Struct, frozen=True):
    """One line of a file as it stood there, its end included. `is_turn`: it is its commit's own."""

    number: int
    text: str
    is_turn: bool = False


class Attachment(Struct, frozen=True):
    """Lines of one source (a session's id), and the format they are in."""

    format: str
    source: str
    lines: tuple[Kept, ...]


def write_attachment(attachment: Attachment) -> Message:
    """The entry that carries lines beside a commit."""
    listed = [[line.number, line.text, line.is_turn] for line in attachment.lines]
    raw = {"source": attachment.source, "lines": listed}
    return Message(ATTACHMENT, (Opaque(attachment.format, raw),))


def read_attachment(step: Step) -> Attachment | None:
    """The lines that a commit carries, if it does."""
    if len(step.contents) == 0:
        return None
    message = decode_entry(step.contents[-1])
    block = message.blocks[0] if message.role == ATTACHMENT and message.blocks else None
    if not isinstance(block, Opaque) or "lines" not in block.raw:
        return None  # nothing, or what a model was sent
    lines = tuple(Kept(number, text, turn) for number, text, turn in block.raw["lines"])
    return Attachment(block.protocol, block.raw["source"], lines)


def spoken(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages without what rides along."""
    return tuple(message for message in messages if message.role != ATTACHMENT)
