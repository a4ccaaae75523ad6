"""A message: a role, content blocks, and where it came from.

The blocks are one closed union that every protocol decodes into. Three rules hold for all of them:

- Vendor fields without a field here are kept in `ext[protocol]`.
- An unknown block becomes `Opaque`, with all its fields.
- Model output is never re-serialised: tool arguments stay the text that the model wrote.

Blocks are frozen and have no cycles, so the garbage collector ignores them (`gc=False`). `Struct`
tags define the stored form: `{"type": "text", "text": ...}`. Defaults are omitted, so an absent
field equals its default.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, cast

from msgspec import Struct, structs

from weft import exact_json
from weft.lazy import lazy_pattern

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
    """A model's thinking, with the opaque signature that its vendor expects back.

    `text` is empty if the vendor does not show it. `signature` is only sent back to the same
    origin. The text never becomes visible output.
    """

    text: str
    signature: str | None = None
    ext: Ext | None = None


class Redacted(Struct, frozen=True, gc=False, omit_defaults=True, tag="redacted"):
    """Thinking that its vendor returns encrypted."""

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


_CHECKPOINT = lazy_pattern(r"<checkpoint:[a-z0-9]{6}>")


def without_markers(text: str) -> str:
    """The text without the markers of checkpoints: they are addresses for models."""
    return _CHECKPOINT.sub("", text)


def checkpoint_text(block: Checkpoint) -> str:
    """The text that represents a checkpoint in every protocol."""
    return f"<checkpoint:{block.id}>"


def reminder_text(block: Reminder) -> str:
    """The text that represents a reminder in every protocol."""
    return f"<system-reminder>{block.text}</system-reminder>"


SYSTEM_ROLES = frozenset({"system", "developer"})

MAIN_ARGUMENTS = (
    "command",
    "cmd",
    "pattern",
    "file_path",
    "filePath",
    "absolute_path",
    "notebook_path",
    "path",
    "query",
    "url",
    "subject",
    "description",
    "prompt",
    "input",
)
"""Arguments that best describe a call of a coding agent's tools, in order of preference."""

SHELLS = frozenset({"bash", "sh", "zsh", "fish", "pwsh"})

LONG_ARGUMENTS = 20_000
"""Longer arguments are not parsed for display; only so many characters of them are searched."""

_MAIN_ARGUMENT = lazy_pattern(
    rf'"(?:{"|".join(MAIN_ARGUMENTS)})"\s*:\s*("(?:[^"\\]|\\.){{0,500}}")'
)
_PATCHED_FILE = lazy_pattern(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)


class Origin(Struct, frozen=True, gc=False, omit_defaults=True):
    """Who produced a message.

    Thinking and signatures are sent back only to the same protocol and provider, and never to a
    model that the catalogue knows to be another maker's.
    """

    protocol: str
    provider: str | None = None
    model: str | None = None


class Message(Struct, frozen=True, gc=False, omit_defaults=True):
    """One message as its protocol wrote it.

    `role` is the protocol's own value (`user assistant system developer tool`, or an unknown one).
    `form` records whether the content was a string or a list, because a round trip must restore it
    and a cached prefix must not change.
    """

    role: str
    blocks: tuple[Block, ...] = ()
    name: str | None = None
    origin: Origin | None = None
    form: Form = ""
    ext: Ext | None = None

    @property
    def text(self) -> str:
        """The readable text of the message, tool results included."""
        blocks = self.blocks
        if len(blocks) == 1 and type(blocks[0]) is Text:  # most messages
            return blocks[0].text
        return "\n".join(texts(blocks))


def texts(blocks: Iterable[Block]) -> Iterator[str]:
    """The readable text of each block that has some, in order; thinking is left out."""
    for block in blocks:
        match block:
            case Text(text=text) | Refusal(text=text):
                yield text
            case ToolResult(content=content):
                yield from texts(content)
            case Reminder():
                yield reminder_text(block)
            case Checkpoint():
                yield checkpoint_text(block)
            case _:
                pass


def speaker(message: Message) -> str:
    """The speaker to display, with the participant name if there is one.

    A message that holds only tool results is shown as the tool's. Anthropic's protocol sends tool
    results in a user message.
    """
    role = "tool" if _is_tool_output(message) else message.role
    return f"{role} ({message.name})" if message.name else role


def display_text(message: Message, text: str | None = None) -> str:
    """The message for display: its text (or `text` instead), then its tool calls."""
    if text is None:
        text = _text_with_results(message)
    calls = [
        f"[calls {block.name} {block.arguments}]"
        for block in message.blocks
        if isinstance(block, ToolCall)
    ]
    return "\n".join([text, *calls] if text else calls)


def thinking_text(message: Message) -> str:
    """The thinking of a message; for thinking that its vendor does not show, `(encrypted)`."""
    return "\n".join(
        (block.text if isinstance(block, Thinking) else "") or "(encrypted)"
        for block in message.blocks
        if isinstance(block, Thinking | Redacted)
    )


def describe_call(call: ToolCall) -> str:
    """A call for a list: the tool and its main argument on one line, such as `Bash: pytest -q`."""
    argument = " ".join(_main_argument(call.arguments).split())
    return f"{call.name}: {argument}" if argument else call.name


def _main_argument(arguments: str) -> str:
    """The argument that best describes a call; empty if there is none."""
    patched = _PATCHED_FILE.search(arguments, 0, LONG_ARGUMENTS)
    if patched is not None:  # Codex's apply_patch
        return patched[1]
    if len(arguments) > LONG_ARGUMENTS:
        match = _MAIN_ARGUMENT.search(arguments, 0, LONG_ARGUMENTS)
        return "" if match is None else str(exact_json.loads(match[1]))
    try:
        value: Any = exact_json.loads(arguments)
    except exact_json.JSONDecodeError:
        return arguments
    if not isinstance(value, dict):
        return _argument_text(value)
    members = cast(dict[str, Any], value)
    named = [members[name] for name in MAIN_ARGUMENTS if name in members]
    texts = [_argument_text(item) for item in (*named, *members.values())]
    return next((text for text in texts if text), "")


def _argument_text(value: Any) -> str:
    """A value as text; a list is a command line, shown without a leading `bash -lc`."""
    if isinstance(value, list):
        values = cast(list[Any], value)
        if not all(isinstance(item, str) for item in values):
            return ""
        is_shell = len(values) == 3 and values[0].rpartition("/")[2] in SHELLS
        return values[2] if is_shell and values[1].startswith("-") else " ".join(values)
    if isinstance(value, dict) or value is None:
        return ""
    return value if isinstance(value, str) else exact_json.dumps(value).decode()


def _text_with_results(message: Message) -> str:
    """The text; a tool result between other text is marked as such."""
    if message.role == "tool" or _is_tool_output(message):
        return message.text
    lines = [
        f"[result {block_text}]" if isinstance(block, ToolResult) else block_text
        for block in message.blocks
        for block_text in ["\n".join(texts([block]))]
        if block_text
    ]
    return "\n".join(lines)


def _is_tool_output(message: Message) -> bool:
    """Whether the message holds only tool results, apart from reminders and checkpoints."""
    blocks = message.blocks
    if len(blocks) == 1:  # most messages
        return type(blocks[0]) is ToolResult
    kinds = [type(block) for block in blocks]
    return ToolResult in kinds and not {*kinds} - {ToolResult, Reminder, Checkpoint}


def rename_results(message: Message, ids: Mapping[str, str]) -> Message:
    """The message with other call ids in its results."""
    blocks = [
        structs.replace(block, call_id=ids[block.call_id])
        if isinstance(block, ToolResult) and block.call_id in ids
        else block
        for block in message.blocks
    ]
    return structs.replace(message, blocks=tuple(blocks))


def is_system(message: Message) -> bool:
    """Whether it is a system message; `developer` is the newer name of that role."""
    return message.role in SYSTEM_ROLES


def side(role: str) -> str:
    """The side of the conversation that a role belongs to; tool results are on the user's side."""
    return "user" if role == "tool" else "system" if role in SYSTEM_ROLES else role
