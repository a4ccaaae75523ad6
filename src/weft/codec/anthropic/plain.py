"""Messages in Anthropic's shape, outside of a request (`codec/plain.py`)."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import structs

from weft.codec.base import Losses
from weft.codec.plain import plain_blocks, plain_message, with_paired_results
from weft.codec.repair import EMPTY
from weft.model import (
    Block,
    File,
    Image,
    JsonObject,
    Message,
    Opaque,
    Redacted,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    is_system,
)

from .blocks import Writer
from .wire import PROTOCOL


def write_messages(messages: Sequence[Message]) -> JsonObject:
    """`system` and `messages`: all system texts joined by a blank line, or `None`."""
    system: list[str] = []
    bodies: list[JsonObject] = []
    for message in with_paired_results(messages):
        if is_system(message):
            blocks = plain_blocks(message.blocks)
            system.append("\n".join(b.text for b in blocks if isinstance(b, Text) and b.text))
            continue
        body = write_plain_message(message)
        # The API refuses an empty message: an assistant's is left out, a user's gets a text.
        if body["content"] or body["role"] != "assistant":
            bodies.append({**body, "content": body["content"] or EMPTY})
    return {"system": "\n\n".join(filter(None, system)) or None, "messages": bodies}


def write_plain_message(message: Message) -> JsonObject:
    """One message alone; its content may be empty."""
    own = message.origin is not None and message.origin.protocol == PROTOCOL
    writer = Writer(None, Losses(), native=True)
    return plain_message(message, writer.content([*_fit(message.blocks, own)], "text", ()))


def _fit(blocks: Iterable[Block], own: bool) -> Iterator[Block]:
    """The blocks that Anthropic has; thinking only if it is its own (`own`) and signed."""
    for block in plain_blocks(blocks):
        match block:
            case Text(text=text) if not text.strip():
                pass
            case Thinking(signature=signature) if not (own and signature):
                pass
            case Redacted() if not own:
                pass
            case Opaque(protocol=protocol) if protocol != PROTOCOL:
                pass
            case File(source=source, name=name):
                yield File(source, name or None)
            case ToolResult(content=content):
                yield structs.replace(block, content=tuple(_fit(content, own)), form="text")
            case Text() | Thinking() | Redacted() | Opaque() | Image() | ToolCall():
                yield block
            case _:
                pass
