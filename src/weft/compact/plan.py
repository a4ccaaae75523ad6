"""`Plan`: the rows that a compaction leaves, and a record of what it removed.

Planning changes nothing. `history` stores the difference between old and new rows. The record is
stored in the commit, so that anyone can read later what was replaced, which pins stayed, and which
reminders and thinking were removed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from msgspec import Struct, structs, to_builtins

from weft.history import Row
from weft.model import (
    Block,
    Form,
    JsonObject,
    Message,
    Redacted,
    Reminder,
    Text,
    Thinking,
    is_system,
    side,
)

PREVIEW_CHARS = 60

Count = Callable[[Message], int]
"""Counts the tokens of a message."""

Method = Literal["model", "shorter", "extract", "cut", "thin"]
"""How the thread was shortened: with a model's summary, with a shorter one after the first failed,
with an extract of verbatim sentences, with a line that only says how much was cut, or only by
shortening results."""

STRIPPED: dict[str, tuple[type, ...]] = {
    "user": (Reminder,),
    "assistant": (Thinking, Redacted),
}
"""The block types that are removed from messages that stay, by the side of the message."""


class Range(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One replaced range: its checkpoints, if a model named them, and the ids of its first and last
    message."""

    from_: str | None = None
    to: str | None = None
    first: str | None = None
    last: str | None = None
    messages: int = 0
    blocks: int = 0
    summary: str = ""


class Pin(Struct, frozen=True):
    """A pinned message inside a replaced range. It stays byte-identical."""

    id: str | None
    preview: str


class Stripped(Struct, frozen=True):
    """A block that was removed from a kept message.

    `id` is the id of the message, `block` the number of the block in it, `preview` its beginning.
    """

    id: str | None
    block: int
    type: str
    preview: str


class Thinned(Struct, frozen=True, kw_only=True):
    """One shortened result: its message and block, and its characters before and after."""

    id: str | None
    block: int
    before: int
    after: int


class Plan(Struct, frozen=True, kw_only=True):
    """What a compaction would do.

    `dropped_calls` are removed calls that have no result in the thread yet; a loop must not commit
    their results any more. `method` is how the engine made the summary, if it made one.
    """

    rows: tuple[Row, ...]
    ranges: tuple[Range, ...] = ()
    pins_kept: tuple[Pin, ...] = ()
    stripped: tuple[Stripped, ...] = ()
    dropped_calls: tuple[str, ...] = ()
    thinned: tuple[Thinned, ...] = ()
    method: Method | None = None

    def record(self) -> JsonObject:
        """The plan without its rows, as JSON for the commit's metadata."""
        thinned = [to_builtins(result) for result in self.thinned]
        return {
            **({"method": self.method} if self.method else {}),
            **({"thinned": thinned} if thinned else {}),
            "ranges": [_range_json(folded) for folded in self.ranges],
            "pins": [{"id": pin.id, "text": pin.preview} for pin in self.pins_kept],
            "stripped": [
                {"id": block.id, "block": block.block, "type": block.type, "text": block.preview}
                for block in self.stripped
            ],
            "dropped_calls": list(self.dropped_calls),
        }


def count_leading_system(rows: Sequence[Row]) -> int:
    """The number of system messages at the start of a thread."""
    for number, row in enumerate(rows):
        if not is_system(row.message):
            return number
    return len(rows)


def strippable(message: Message) -> tuple[type, ...]:
    """The block types that are removed from this message if the message stays."""
    return STRIPPED.get(side(message.role), ())


def describe_stripped(row: Row, number: int) -> Stripped:
    """The record of one removed block."""
    block = row.message.blocks[number]
    text = block.text if isinstance(block, Reminder | Thinking) else ""
    return Stripped(hex_id(row), number, block_kind(block), preview(text))


def describe_pin(row: Row) -> Pin:
    """The record of a pinned row."""
    return Pin(hex_id(row), preview(row.message.text))


def with_blocks(message: Message, blocks: Iterable[Block]) -> Message:
    """The message with other blocks, and a `form` that fits them."""
    new_blocks = tuple(blocks)
    return structs.replace(message, blocks=new_blocks, form=_form(message.form, new_blocks))


def hex_id(row: Row) -> str | None:
    """The id of a row in hex; `None` if the row is new."""
    return None if row.id is None else row.id.hex()


def preview(text: str) -> str:
    """The beginning of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= PREVIEW_CHARS else line[: PREVIEW_CHARS - 3] + "..."


def block_kind(block: Block) -> str:
    """The name of a block's kind, as it is stored."""
    return str(type(block).__struct_config__.tag)


def _form(form: Form, blocks: tuple[Block, ...]) -> Form:
    """The form of a message with other blocks; empty if the old form cannot hold them."""
    text_blocks = sum(isinstance(block, Text) for block in blocks)
    match form:
        case "text":
            return "text" if text_blocks == 1 else ""
        case "null" | "absent":
            return form if text_blocks == 0 else ""
        case _:
            return form


def _range_json(folded: Range) -> JsonObject:
    ends = {
        "from": folded.from_,
        "to": folded.to,
        "first": folded.first,
        "last": folded.last,
    }
    known_ends = {key: value for key, value in ends.items() if value is not None}
    return {**known_ends, "messages": folded.messages, "blocks": folded.blocks}
