"""Checkpoints: addresses inside a thread that a model can name.

An id is six characters of `[a-z0-9]`, a hash of the parent commit and the text, with a counter for
collisions. So the same thread, replayed, has the same ids, and the core needs no randomness.
`taken` makes an id unique over all branches of a thread.

In a request a checkpoint is an ordinary text block. Reading one back is guarded twice: the whole
block must be the marker, and the id must be one of this thread. A marker inside a sentence, or from
another thread, stays text.
"""

from collections.abc import Set

from msgspec import structs

from weft.checked import checked_function
from weft.errors import ThreadError
from weft.ids import object_id
from weft.lazy import lazy_pattern
from weft.model import Block, Checkpoint, Message, Text

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
LENGTH = 6

_ID = lazy_pattern(rf"[a-z0-9]{{{LENGTH}}}")
_MARKER = lazy_pattern(rf"<checkpoint:([a-z0-9]{{{LENGTH}}})>")


@checked_function
def generate_checkpoint_id(parent: str, text: str, taken: Set[str]) -> str:
    """A checkpoint id for a turn with this text after `parent`; never one of `taken`."""
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
    """The checkpoint block with this id; raises `ThreadError` if the id is invalid."""
    if not _ID.fullmatch(id):
        raise ThreadError(f"{id!r} is not a checkpoint id: it needs six characters of a-z and 0-9")
    return Checkpoint(id)


def read_checkpoint(block: Block, known: Set[str]) -> Block:
    """The checkpoint that a text block represents, or else the block."""
    if isinstance(block, Text) and block.ext is None:
        marker = _MARKER.fullmatch(block.text)
        if marker and marker[1] in known:
            return Checkpoint(marker[1])
    return block


def read_checkpoints(message: Message, known: Set[str]) -> Message:
    """A received message with its markers as `Checkpoint`s; the same object if it has none."""
    blocks = tuple(read_checkpoint(block, known) for block in message.blocks)
    if blocks == message.blocks:
        return message
    return structs.replace(message, blocks=blocks, form="list")


def checkpoint_id(text: str) -> str:
    """The id that a model wrote, either alone or as the whole marker."""
    marker = _MARKER.fullmatch(text)
    return marker[1] if marker else text


def _spell(number: int) -> str:
    letters: list[str] = []
    for _ in range(LENGTH):
        number, digit = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[digit])
    return "".join(letters)
