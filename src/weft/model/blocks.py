"""The blocks a message is made of: one closed union that every protocol decodes into.

Three rules hold for all of them. What a vendor says that has no field here is kept in
`ext[protocol]`; a block nobody knows is `Opaque`, carried whole; what the model wrote stays as it
wrote it (tool arguments are text, never a parsed and re-serialised object).

Blocks are frozen and without cycles, so they are outside the garbage collector (`gc=False`).
`Struct` tags make the stored form: `{"type": "text", "text": ...}`; defaults are omitted, so
absent and default are one.
"""

from typing import Any, Literal

from msgspec import Struct

JsonObject = dict[str, Any]
Ext = dict[str, JsonObject]
"""Vendor fields without a home, by protocol name."""

Form = Literal["", "text", "list", "null", "absent"]
"""How the wire wrote a content: unsaid, a plain string, a list, `null`, or no key at all."""


class Inline(Struct, frozen=True, gc=False, omit_defaults=True, tag="inline"):
    """Media carried in the body, base64 as the wire had it."""

    data: str
    media_type: str = ""


class Url(Struct, frozen=True, gc=False, omit_defaults=True, tag="url"):
    """Media that the vendor fetches itself."""

    url: str
    media_type: str = ""


class FileRef(Struct, frozen=True, gc=False, omit_defaults=True, tag="file"):
    """Media that a vendor stores; the id means nothing to any other vendor."""

    id: str
    media_type: str = ""


Source = Inline | Url | FileRef


class Text(Struct, frozen=True, gc=False, omit_defaults=True, tag="text"):
    """Words that the other side sees."""

    text: str
    ext: Ext | None = None


class Refusal(Struct, frozen=True, gc=False, omit_defaults=True, tag="refusal"):
    """Words by which a model declines."""

    text: str
    ext: Ext | None = None


class Thinking(Struct, frozen=True, gc=False, omit_defaults=True, tag="thinking"):
    """Reasoning, with the opaque proof its maker wants back.

    `text` may be empty where the maker shows none. `signature` goes back to the same origin only;
    the text never becomes visible output.
    """

    text: str
    signature: str | None = None
    ext: Ext | None = None


class Redacted(Struct, frozen=True, gc=False, omit_defaults=True, tag="redacted"):
    """Reasoning that its maker gives out only sealed."""

    data: str
    ext: Ext | None = None


class Image(Struct, frozen=True, gc=False, omit_defaults=True, tag="image"):
    source: Source
    detail: str | None = None
    ext: Ext | None = None


class File(Struct, frozen=True, gc=False, omit_defaults=True, tag="document"):
    """A document: a PDF, a text file, anything that is read rather than looked at."""

    source: Source
    name: str | None = None
    ext: Ext | None = None


class Audio(Struct, frozen=True, gc=False, omit_defaults=True, tag="audio"):
    source: Source
    ext: Ext | None = None


class ToolCall(Struct, frozen=True, gc=False, omit_defaults=True, tag="call"):
    """A call as the model wrote it.

    `custom` calls carry free text instead of a JSON object; `namespace` is the group of tools that
    the name is looked up in.
    """

    id: str
    name: str
    arguments: str
    custom: bool = False
    namespace: str | None = None
    ext: Ext | None = None


class ToolResult(Struct, frozen=True, gc=False, omit_defaults=True, tag="result"):
    """What a tool answered; `name` where the wire repeats it, `is_error` where it says so."""

    call_id: str
    content: "tuple[Block, ...]" = ()
    is_error: bool | None = None
    name: str | None = None
    custom: bool = False
    form: Form = ""
    ext: Ext | None = None


class Checkpoint(Struct, frozen=True, gc=False, omit_defaults=True, tag="checkpoint"):
    """An address inside a thread that a model can name; on every wire `<checkpoint:xxxxxx>`."""

    id: str


class Reminder(Struct, frozen=True, gc=False, omit_defaults=True, tag="reminder"):
    """A note that the loop puts beside a turn; leaves again when the thread is compacted."""

    text: str


class Opaque(Struct, frozen=True, gc=False, omit_defaults=True, tag="opaque"):
    """A block that has no home here: goes back to its own protocol as it came, nowhere else."""

    protocol: str
    raw: JsonObject


Block = (
    Text
    | Refusal
    | Thinking
    | Redacted
    | Image
    | File
    | Audio
    | ToolCall
    | ToolResult
    | Checkpoint
    | Reminder
    | Opaque
)


def checkpoint_text(block: Checkpoint) -> str:
    """The text block that stands for a checkpoint on every wire."""
    return f"<checkpoint:{block.id}>"


def reminder_text(block: Reminder) -> str:
    """The text block that stands for a reminder on every wire."""
    return f"<system-reminder>{block.text}</system-reminder>"
