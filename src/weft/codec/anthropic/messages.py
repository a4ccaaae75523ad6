"""Functions for callers who build Anthropic requests by hand.

`build_anthropic_system_param` joins all system messages into one string; `encode_message` writes
one message. Both take messages as model values or as plain `{"role", "content"}` dicts.
"""

from collections.abc import Iterable

from weft.checked import checked_function
from weft.codec.read import at, text_of
from weft.codec.repair import SYSTEM_TEXT, refuse_system_block
from weft.errors import Refused
from weft.model import JsonObject, Message, is_system, texts

from .blocks import decode_content, part_name
from .request import write_message


@checked_function
def build_anthropic_system_param(
    system: str | None, messages: Iterable[Message | JsonObject]
) -> str | None:
    """Join `system` and the text of every system message; `None` if there is no text."""
    parts = [system] if system else []
    for number, item in enumerate(messages):
        with at(f"messages[{number}]"):
            message = _as_message(item)
            text = _system_text(message) if is_system(message) else ""
        if text:
            parts.append(text)
    return "\n\n".join(parts) if parts else None


@checked_function
def encode_message(message: Message | JsonObject) -> JsonObject:
    """Encode one message for Anthropic; raises `Refused` for a system message."""
    message = _as_message(message)
    if is_system(message):
        raise Refused("a system message must be extracted before it is encoded", param="role")
    return write_message(message)


def _system_text(message: Message) -> str:
    """The text of one system message; raises `Refused` if it contains anything else."""
    for number, block in enumerate(message.blocks):
        if not isinstance(block, SYSTEM_TEXT):
            refuse_system_block(block, message.role, f"content[{number}]", part_name)
    return "\n".join(text for text in texts(message.blocks) if text)


def _as_message(message: Message | JsonObject) -> Message:
    """The message as a model value. Anthropic and OpenAI agree on the plain dict form."""
    if isinstance(message, Message):
        return message
    blocks, form = decode_content(message, "content")
    return Message(text_of(message, "role"), blocks, form=form)
