"""Entries that are stored with a commit and that no model sees.

These are the lines of an imported file, and a client's version of an answer: clients rewrite the
answers that they send back, and the answer stays as the model wrote it.

An attachment is one more entry after those that the commit's operation uses. It is hashed,
archived, erased and restored like any entry, but compile ignores it.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from weft.history import decode_entry
from weft.ids import Id, object_id
from weft.model import Message, Opaque, Redacted, Thinking
from weft.store import Step, Store

ECHO_DISTANCE = 256
"""How many messages a request may have after an answer that it repeats."""

ATTACHMENT = "attachment"
"""The role of an entry that is not part of the conversation."""


class SourceLine(Struct, frozen=True):
    """One line of a file, including its line end.

    `is_turn`: the line contains the commit's own message.
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


ECHO = "echo"
"""The format of an attachment that holds a client's version of an answer."""


def echo_key(answer: Id) -> bytes:
    """The key of the links to the last commits of requests with a changed echo of this answer."""
    return object_id("link-echo", answer)


def write_echo(answer: Id, messages: Sequence[Message]) -> Message:
    """The entry that stores a client's version of an answer, without its private parts."""
    blocks = [b for m in messages for b in m.blocks if not isinstance(b, Thinking | Redacted)]
    message = Message("assistant", tuple(blocks))
    raw = {"answer": answer.hex(), "message": msgspec.to_builtins(message)}
    return Message(ATTACHMENT, (Opaque(ECHO, raw),))


def read_echo(store: Store, thread: str, answer: Id) -> Message | None:
    """The newest version of an answer that a client sent back; `None` if it never differed."""
    links = [link for link in store.find_links([echo_key(answer)]) if link.thread == thread]
    for link in links:
        steps = store.walk(thread, link.commit, limit=ECHO_DISTANCE)
        for content in (content for step in reversed(steps) for content in step.contents[1:]):
            match decode_entry(content).blocks:
                case (Opaque(protocol="echo", raw={"answer": id, "message": message}),):
                    if id == answer.hex():
                        return msgspec.convert(message, Message)
                case _:
                    pass
    return None


def without_attachments(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages of the conversation, without attachments."""
    return tuple(message for message in messages if message.role != ATTACHMENT)
