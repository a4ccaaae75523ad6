"""Attachments: entries that are stored with a commit and that no model sees.

This module has two kinds: the lines of an imported file, and echoes. An echo is a client's version
of an answer. Clients rewrite answers when they send them back; the thread keeps the answer as the
model wrote it. (`sent_body` has a third kind, the request of an answer.)

An attachment is one more entry after those that the commit's operation uses. It is hashed,
archived, erased and restored like any entry, but compile ignores it.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from weft import exact_json
from weft.history import decode_entry
from weft.ids import Id, object_id
from weft.model import Message, Opaque, Redacted, Thinking
from weft.store import Step, Store

ECHO_DISTANCE = 256
"""How many commits before the end of a request are searched for an echo."""

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
    rows = [[line.number, line.text, line.is_turn] for line in lines.lines]
    raw = {"source": lines.source, "lines": rows}
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
"""The format of an attachment with a client's version of an answer."""


def echo_key(answer: Id) -> bytes:
    """The key of the links to requests that have an echo of this answer (their last commits)."""
    return object_id("link-echo", answer)


def write_echo(answer: Id, messages: Sequence[Message]) -> Message:
    """The entry that stores a client's version of an answer, without its thinking."""
    blocks = [
        block
        for message in messages
        for block in message.blocks
        if not isinstance(block, Thinking | Redacted)
    ]
    message = Message("assistant", tuple(blocks))
    raw = {"answer": answer.hex(), "message": exact_json.to_builtins(message)}
    return Message(ATTACHMENT, (Opaque(ECHO, raw),))


def read_echo(store: Store, thread: str, answer: Id) -> Message | None:
    """The newest echo of an answer; `None` if no client has changed the answer."""
    links = [link for link in store.find_links([echo_key(answer)]) if link.thread == thread]
    for link in links:
        steps = store.walk(thread, link.commit, limit=ECHO_DISTANCE)
        for content in (content for step in reversed(steps) for content in step.contents[1:]):
            match decode_entry(content).blocks:
                case (Opaque(protocol="echo", raw={"answer": id, "message": echo}),):
                    if id == answer.hex():
                        return msgspec.convert(echo, Message)
                case _:
                    pass
    return None


def without_attachments(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages of the conversation, without attachments."""
    return tuple(message for message in messages if message.role != ATTACHMENT)
