"""System text joined into one string: the policy `merge`, and `to_anthropic()`.

The wire's own way keeps every block and message apart (`codec.anthropic.request`). Some callers
want one string instead: a blank line between messages, one newline between the blocks of one.
"""

from collections.abc import Iterable

from weft.errors import Refused
from weft.model import Message, is_system, texts

from .repair import refuse_system_block


def build_anthropic_system_param(system: str | None, messages: Iterable[Message]) -> str | None:
    """The caller's own system text first, then every system message; `None` when there is none."""
    parts = [] if system is None else [system]
    parts += [text for message in messages if is_system(message) and (text := system_text(message))]
    return "\n\n".join(parts) if parts else None


def merge_system_text(messages: Iterable[Message]) -> str | None:
    """All system messages as one string."""
    return build_anthropic_system_param(None, messages)


def system_text(message: Message) -> str:
    """The text of one system message; raises `Refused` where it holds anything else."""
    for number, block in enumerate(message.blocks):
        refuse_system_block(block, message.role, f"content[{number}]", None)
    return "\n".join(text for text in texts(message.blocks) if text)


def encode_message(message: Message) -> dict[str, object]:
    """One message for Anthropic, by itself; a system message must have been taken out before."""
    if is_system(message):
        raise Refused("a system message must be extracted before it is encoded", param="role")
    from .anthropic.request import write_message

    return write_message(message)
