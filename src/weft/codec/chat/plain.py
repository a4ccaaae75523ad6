"""Messages in Chat Completions' shape, outside of a request (`codec/plain.py`)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from weft.codec.plain import (
    blocks_of,
    plain_blocks,
    plain_call,
    plain_message,
    with_paired_results,
    without_empty_texts,
)
from weft.model import (
    Audio,
    Block,
    File,
    FileRef,
    Image,
    Inline,
    JsonObject,
    Message,
    Opaque,
    Text,
    ToolCall,
    ToolResult,
    Url,
    texts,
)

from .blocks import write_content
from .messages import write_call
from .wire import PROTOCOL


def write_messages(messages: Sequence[Message]) -> list[JsonObject]:
    """The list `messages`, with system messages in place."""
    return [body for message in with_paired_results(messages) for body in _bodies(message)]


def _bodies(message: Message) -> Iterator[JsonObject]:
    results, calls = blocks_of(message, ToolResult), blocks_of(message, ToolCall)
    for result in results:
        content = "\n".join(texts(result.content))
        yield {"role": "tool", "tool_call_id": result.call_id, "content": content}
    # A `tool` message holds text alone, so the media of results is in the message after them.
    media = [b for r in results for b in r.content if isinstance(b, Image | File | Audio)]
    content: Any = write_content(without_empty_texts([*_fit((*message.blocks, *media))]), "text")
    if content or calls or not results:
        body = plain_message(message, None if calls and not content else content)
        if calls:
            body["tool_calls"] = [write_call(plain_call(call)) for call in calls]
        yield body


def _fit(blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks that are content parts here."""
    for block in plain_blocks(blocks):
        match block:
            case Image(source=source):
                yield Image(Url(source.id) if isinstance(source, FileRef) else source)
            case File(source=Inline() as source, name=name):
                yield File(source, name or "file")
            case File(source=FileRef() as source):
                yield File(source)
            case Text() | Audio(source=Inline()):
                yield block
            case Opaque(protocol=protocol) if protocol == PROTOCOL:
                yield block
            case _:
                pass
