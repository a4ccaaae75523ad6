"""A message: a role, content blocks, and where it came from."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

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


class Origin(Struct, frozen=True, gc=False, omit_defaults=True):
    """Who produced a message. A thinking signature is only sent back to the same origin."""

    protocol: str
    provider: str | None = None
    model: str | None = None


class Message(Struct, frozen=True, gc=False, omit_defaults=True):
    """One turn as its wire wrote it.

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
        return "\n".join(texts(self.blocks))


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
    kinds = [type(block) for block in message.blocks]
    return ToolResult in kinds and not {*kinds} - {ToolResult, Reminder, Checkpoint}


def is_system(message: Message) -> bool:
    """Whether it is a system message; `developer` is the newer name of that role."""
    return message.role in SYSTEM_ROLES


def side(role: str) -> str:
    """The side of the conversation that a role belongs to; tool results are on the user's side."""
    return "user" if role == "tool" else "system" if role in SYSTEM_ROLES else role
