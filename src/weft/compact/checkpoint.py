"""Checkpoints: addresses inside a thread that a model can name.

An id is six of `[a-z0-9]`, derived by hash from where it stands and what is said there, with a
counter for the rare collision: the same thread, replayed, has the same addresses, and the core
needs no randomness. `taken` is what makes an id unique over all branches of a thread.

On the wire a checkpoint is a text block and nothing else, so the way back is guarded twice: the
whole block must be the marker, and the id must be one that this thread gave out. A marker that a
person quotes in a sentence, or that comes from another thread, stays text.
"""

import re
from collections.abc import Set

from msgspec import structs

from weft.checked import checked_function
from weft.errors import ThreadError
from weft.ids import object_id
from weft.model import Block, Checkpoint, Message, Text

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
LENGTH = 6

_ID = re.compile(rf"[a-z0-9]{{{LENGTH}}}")
_MARKER = re.compile(rf"<checkpoint:([a-z0-9]{{{LENGTH}}})>")


@checked_function
def generate_checkpoint_id(parent: str, text: str, taken: Set[str]) -> str:
    """The id for a turn that says `text` after `parent`; never one of `taken`."""
    place = f"{len(parent)}:{parent}{text}".encode("utf-8", "surrogatepass")
    counter = 0
    while True:
        digest = object_id("checkpoint", b"%d:%b" % (counter, place))
        name = _spell(int.from_bytes(digest, "big"))
        if name not in taken:
            return name
        counter += 1


@checked_function
def create_checkpoint_content(id: str) -> Checkpoint:
    """The block that ends a user turn; raises `ThreadError` where `id` is not an id."""
    if not _ID.fullmatch(id):
        raise ThreadError(f"{id!r} is not a checkpoint id: it takes six of a-z and 0-9")
    return Checkpoint(id)


def read_checkpoint(block: Block, known: Set[str]) -> Block:
    """The checkpoint that a text block stands for, or the block as it is."""
    if isinstance(block, Text) and block.ext is None:
        marker = _MARKER.fullmatch(block.text)
        if marker and marker[1] in known:
            return Checkpoint(marker[1])
    return block


def read_checkpoints(message: Message, known: Set[str]) -> Message:
    """A message from the wire with its checkpoints typed again; the same object if it has none."""
    blocks = tuple(read_checkpoint(block, known) for block in message.blocks)
    if blocks == message.blocks:
        return message
    return structs.replace(message, blocks=blocks, form="list")


def checkpoint_id(written: str) -> str:
    """The id in what a model wrote for one: the id itself, or its whole marker."""
    marker = _MARKER.fullmatch(written)
    return marker[1] if marker else written


def _spell(number: int) -> str:
    letters: list[str] = []
    for _ in range(LENGTH):
        number, digit = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[digit])
    return "".join(letters)
