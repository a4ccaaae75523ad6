"""System text joined into one string: the policy `merge`, and `to_anthropic()`.

The wire's own way keeps every block and message apart (`codec.anthropic.request`). Some callers
want one string instead: a blank line between messages, one newline between the blocks of one.
Messages may be given as values of the model or as plain `{"role", "content"}` dicts.
"""

from collections.abc import Iterable

from weft.checked import checked_function
from weft.errors import Refused
from weft.model import JsonObject, Message, is_system, texts

from .anthropic.blocks import decode_content, part_name
from .anthropic.request import join_system, write_message
from .read import at, text_of
from .repair import SYSTEM_TEXT, refuse_system_block


@checked_function
def build_anthropic_system_param(
    system: str | None, messages: Iterable[Message | JsonObject]
) -> str | None:
    """The caller's own system text first, then every system message; `None` when there is none."""
    parts = [system] if system else []
    for number, given in enumerate(messages):
        with at(f"messages[{number}]"):
            message = as_message(given)
            text = system_text(message) if is_system(message) else ""
        if text:
            parts.append(text)
    return "\n\n".join(parts) if parts else None


def merge_system_text(messages: Iterable[Message]) -> str | None:
    """All system messages as one string; `arrange` has refused what is not text."""
    return join_system(messages)


def system_text(message: Message) -> str:
    """The text of one system message; raises `Refused` where it holds anything else."""
    for number, block in enumerate(message.blocks):
        if not isinstance(block, SYSTEM_TEXT):
            refuse_system_block(block, message.role, f"content[{number}]", part_name)
    return "\n".join(text for text in texts(message.blocks) if text)


@checked_function
def encode_message(message: Message | JsonObject) -> JsonObject:
    """One message for Anthropic, by itself; a system message must have been taken out before."""
    message = as_message(message)
    if is_system(message):
        raise Refused("a system message must be extracted before it is encoded", param="role")
    return write_message(message)


def as_message(given: Message | JsonObject) -> Message:
    """A message as a value; a dict is read as Anthropic's and OpenAI's plain form agree on it."""
    if isinstance(given, Message):
        return given
    blocks, form = decode_content(given, "content")
    return Message(text_of(given, "role"), blocks, form=form)
