"""A message: who speaks, and the blocks of what is said."""

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
    """Who made a message. A signature goes back to the same origin only."""

    protocol: str
    provider: str | None = None
    model: str | None = None


class Message(Struct, frozen=True, gc=False, omit_defaults=True):
    """One turn as its wire wrote it.

    `role` is the wire's own word (`user assistant system developer tool`, or one nobody knows).
    `form` says whether the content was a string or a list, because a round trip must restore it
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
        """All that a person would read in this message, results included."""
        return "\n".join(texts(self.blocks))


def texts(blocks: Iterable[Block]) -> Iterator[str]:
    """The readable text of each block that has some, in order; thinking is not read out."""
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
    """Who a person sees speaking, with a name where there is one.

    What holds results and no words of its own is a tool's, whoever sends it: Anthropic's wire has
    the user say what a tool answered.
    """
    role = "tool" if _answers(message) else message.role
    return f"{role} ({message.name})" if message.name else role


def spoken(message: Message, text: str | None = None) -> str:
    """What a person sees of a message: its text (or another for it), then what it calls."""
    said = _words(message) if text is None else text
    calls = [f"[calls {b.name} {b.arguments}]" for b in message.blocks if isinstance(b, ToolCall)]
    return "\n".join([said, *calls] if said else calls)


def _words(message: Message) -> str:
    """The text; a result between words of somebody else is marked as one."""
    if message.role == "tool" or _answers(message):
        return message.text
    found = [
        f"[result {told}]" if isinstance(block, ToolResult) else told
        for block in message.blocks
        for told in ["\n".join(texts([block]))]
        if told
    ]
    return "\n".join(found)


def _answers(message: Message) -> bool:
    """Whether a tool alone speaks here; reminders and marks are nobody's words."""
    kinds = [type(block) for block in message.blocks]
    return ToolResult in kinds and not {*kinds} - {ToolResult, Reminder, Checkpoint}


def is_system(message: Message) -> bool:
    """`developer` is the same layer of intent as `system`, in newer words."""
    return message.role in SYSTEM_ROLES


def side(role: str) -> str:
    """Which side of the conversation a role speaks for: tool results are the user's side."""
    return "user" if role == "tool" else "system" if role in SYSTEM_ROLES else role
