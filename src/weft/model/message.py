"""A message: a role, content blocks, and where it came from."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, cast

import orjson
from msgspec import Struct

from weft.lazy import lazy_pattern

from .blocks import (
    Block,
    Checkpoint,
    Ext,
    Form,
    Refusal,
    Reminder,
    Text,
    ToolCall,
    ToolResult,
    checkpoint_text,
    reminder_text,
)

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
"""Arguments that say best what a call does, in the tools of coding agents; the first one wins."""
SHELLS = frozenset({"bash", "sh", "zsh", "fish", "pwsh"})
LONG_ARGUMENTS = 20_000
"""Arguments above this length are not parsed for display: a main argument comes early."""
_EARLY = lazy_pattern(rf'"(?:{"|".join(MAIN_ARGUMENTS)})"\s*:\s*("(?:[^"\\]|\\.){{0,500}}")')
_PATCHED_FILE = lazy_pattern(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)


class Origin(Struct, frozen=True, gc=False, omit_defaults=True):
    """Who produced a message. A thinking signature is only sent back to the same origin."""

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


def spoken(message: Message, text: str | None = None) -> str:
    """The message for display: its text (or `text` instead), then its tool calls."""
    shown = _display_text(message) if text is None else text
    calls = [f"[calls {b.name} {b.arguments}]" for b in message.blocks if isinstance(b, ToolCall)]
    return "\n".join([shown, *calls] if shown else calls)


def describe_call(call: ToolCall) -> str:
    """A call for a list: the tool and its main argument on one line, such as `Bash: pytest -q`."""
    argument = " ".join(_main_argument(call.arguments).split())
    return f"{call.name}: {argument}" if argument else call.name


def _main_argument(arguments: str) -> str:
    patched = _PATCHED_FILE.search(arguments, 0, LONG_ARGUMENTS)
    if patched is not None:  # Codex's apply_patch
        return patched[1]
    if len(arguments) > LONG_ARGUMENTS:
        early = _EARLY.search(arguments, 0, LONG_ARGUMENTS)
        return "" if early is None else str(orjson.loads(early[1]))
    try:
        value: Any = orjson.loads(arguments)
    except orjson.JSONDecodeError:
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
        words = cast(list[Any], value)
        if not all(isinstance(word, str) for word in words):
            return ""
        is_shell = len(words) == 3 and words[0].rpartition("/")[2] in SHELLS
        return words[2] if is_shell and words[1].startswith("-") else " ".join(words)
    if isinstance(value, dict) or value is None:
        return ""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _display_text(message: Message) -> str:
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


def is_system(message: Message) -> bool:
    """Whether it is a system message; `developer` is the newer name of that role."""
    return message.role in SYSTEM_ROLES


def side(role: str) -> str:
    """The side of the conversation that a role belongs to; tool results are on the user's side."""
    return "user" if role == "tool" else "system" if role in SYSTEM_ROLES else role
