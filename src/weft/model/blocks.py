"""The blocks a message is made of: one closed union that every protocol decodes into.

Three rules hold for all blocks:

- Vendor fields without a field here are kept in `ext[protocol]`.
- An unknown block becomes `Opaque`, with all its fields.
- Model output is never re-serialised: tool arguments stay the text that the model wrote.

Blocks are frozen and have no cycles, so the garbage collector ignores them (`gc=False`). `Struct`
tags define the stored form: `{"type": "text", "text": ...}`. Defaults are omitted, so an absent
field equals its default.
"""

from typing import Any, Literal

from msgspec import Struct

JsonObject = dict[str, Any]
Ext = dict[str, JsonObject]
"""Vendor fields that the model has no field for, by protocol name."""

Form = Literal["", "text", "list", "null", "absent"]
"""How the source wrote the content: unknown, a string, a list, `null`, or no key at all."""


class Inline(Struct, frozen=True, gc=False, omit_defaults=True, tag="inline"):
    """Media in the request body, as base64."""

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
    """Visible text."""

    text: str
    ext: Ext | None = None


class Refusal(Struct, frozen=True, gc=False, omit_defaults=True, tag="refusal"):
    """Text with which a model refuses to answer."""

    text: str
    ext: Ext | None = None


class Thinking(Struct, frozen=True, gc=False, omit_defaults=True, tag="thinking"):
    """Reasoning, with the opaque signature that its vendor expects back.

    `text` is empty if the vendor does not show it. `signature` is only sent back to the same
    origin. The text never becomes visible output.
    """

    text: str
    signature: str | None = None
    ext: Ext | None = None


class Redacted(Struct, frozen=True, gc=False, omit_defaults=True, tag="redacted"):
    """Reasoning that its vendor returns encrypted."""

    data: str
    ext: Ext | None = None


class Image(Struct, frozen=True, gc=False, omit_defaults=True, tag="image"):
    """An image. `detail` is the resolution in which OpenAI's models see it."""

    source: Source
    detail: str | None = None
    ext: Ext | None = None


class File(Struct, frozen=True, gc=False, omit_defaults=True, tag="document"):
    """A document, such as a PDF or a text file."""

    source: Source
    name: str | None = None
    ext: Ext | None = None


class Audio(Struct, frozen=True, gc=False, omit_defaults=True, tag="audio"):
    """A recording."""

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
    """The result of a tool call; `name` and `is_error` are set if the source has them."""

    call_id: str
    content: "tuple[Block, ...]" = ()
    is_error: bool | None = None
    name: str | None = None
    custom: bool = False
    form: Form = ""
    ext: Ext | None = None


class Checkpoint(Struct, frozen=True, gc=False, omit_defaults=True, tag="checkpoint"):
    """A position in a thread that a model can refer to; sent as `<checkpoint:xxxxxx>`."""

    id: str


class Reminder(Struct, frozen=True, gc=False, omit_defaults=True, tag="reminder"):
    """A note that the agent loop adds to a turn; compaction removes it."""

    text: str


class Opaque(Struct, frozen=True, gc=False, omit_defaults=True, tag="opaque"):
    """An unknown block: sent back unchanged to its own protocol, and to no other."""

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
    """The text that represents a checkpoint in every protocol."""
    return f"<checkpoint:{block.id}>"


def reminder_text(block: Reminder) -> str:
    """The text that represents a reminder in every protocol."""
    return f"<system-reminder>{block.text}</system-reminder>"
