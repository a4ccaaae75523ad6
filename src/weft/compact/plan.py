"""A plan: the rows a compaction would leave, and the record of what it took.

Planning decides and changes nothing. The rows go to history, which stores the difference; the
record goes into the commit, so that anybody can read later what was folded, what the pins kept,
and which reminders and thinking left.
"""

from collections.abc import Iterable, Sequence
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

PREVIEW = 60

Method = Literal["model", "shorter", "extract", "cut", "thin"]
"""How the engine made room: a model's summary, a shorter one after the first was no good, an
extract of verbatim sentences, a line that only says how much was cut, or shortened results alone.
"""

STRIPPED: dict[str, tuple[type, ...]] = {
    "user": (Reminder,),
    "assistant": (Thinking, Redacted),
}
"""Which blocks leave a kept message when a thread is compacted, by whose message it is."""


class Range(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One folded range, by its checkpoints where a model named them and by its slots, in hex."""

    from_: str | None = None
    to: str | None = None
    first: str | None = None
    last: str | None = None
    messages: int = 0
    blocks: int = 0
    summary: str = ""


class Pin(Struct, frozen=True):
    """A pinned message that stood in a folded range and is still there, byte by byte."""

    id: str | None
    preview: str


class Stripped(Struct, frozen=True):
    """One block that left a kept message: its slot and place there, its kind, how it began."""

    id: str | None
    block: int
    type: str
    preview: str


class Thinned(Struct, frozen=True, kw_only=True):
    """One result that was shortened: its message and block, and its characters before and after."""

    id: str | None
    block: int
    before: int
    after: int


class Plan(Struct, frozen=True, kw_only=True):
    """What a compaction comes to. `dropped_calls` are calls that lost their place with no result
    of theirs in the thread yet: a loop that still holds one must not commit it. `method` says how
    the engine's summary was made (`Method`), if the engine made one."""

    rows: tuple[Row, ...]
    ranges: tuple[Range, ...] = ()
    pins_kept: tuple[Pin, ...] = ()
    stripped: tuple[Stripped, ...] = ()
    dropped_calls: tuple[str, ...] = ()
    thinned: tuple[Thinned, ...] = ()
    method: Method | None = None

    def record(self) -> JsonObject:
        """The plan without its rows, as JSON for the commit's metadata."""
        shorter = [to_builtins(result) for result in self.thinned]
        return {
            **({"method": self.method} if self.method else {}),
            **({"thinned": shorter} if shorter else {}),
            "ranges": [_range_json(folded) for folded in self.ranges],
            "pins": [{"id": pin.id, "text": pin.preview} for pin in self.pins_kept],
            "stripped": [
                {"id": gone.id, "block": gone.block, "type": gone.type, "text": gone.preview}
                for gone in self.stripped
            ],
            "dropped_calls": list(self.dropped_calls),
        }


def leading_system(rows: Sequence[Row]) -> int:
    """How many rows the setup has: the run of system messages that opens a thread."""
    for number, row in enumerate(rows):
        if not is_system(row.message):
            return number
    return len(rows)


def strippable(message: Message) -> tuple[type, ...]:
    """The kinds of block that leave this message when it is kept."""
    return STRIPPED.get(side(message.role), ())


def describe_stripped(row: Row, number: int) -> Stripped:
    """The record of one block that leaves its row."""
    block = row.message.blocks[number]
    text = block.text if isinstance(block, Reminder | Thinking) else ""
    return Stripped(slot(row), number, block_kind(block), preview(text))


def describe_pin(row: Row) -> Pin:
    """The record of a pinned row."""
    return Pin(slot(row), preview(row.message.text))


def with_blocks(message: Message, blocks: Iterable[Block]) -> Message:
    """The message with other blocks, and a `form` that can still be written for them."""
    left = tuple(blocks)
    return structs.replace(message, blocks=left, form=_form(message.form, left))


def slot(row: Row) -> str | None:
    """A row's slot as people see it."""
    return None if row.id is None else row.id.hex()


def preview(text: str) -> str:
    """The beginning of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= PREVIEW else line[: PREVIEW - 3] + "..."


def block_kind(block: Block) -> str:
    """The stored name of a block's kind."""
    return str(type(block).__struct_config__.tag)


def _form(form: Form, blocks: tuple[Block, ...]) -> Form:
    texts = sum(isinstance(block, Text) for block in blocks)
    match form:
        case "text":
            return "text" if texts == 1 else ""
        case "null" | "absent":
            return form if texts == 0 else ""
        case _:
            return form


def _range_json(folded: Range) -> JsonObject:
    names = {
        "from": folded.from_,
        "to": folded.to,
        "first": folded.first,
        "last": folded.last,
    }
    present = {key: value for key, value in names.items() if value is not None}
    return {**present, "messages": folded.messages, "blocks": folded.blocks}
