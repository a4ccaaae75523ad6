"""Messages as input items of the Responses API, outside of a request (`codec/plain.py`)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from weft.codec.base import Losses
from weft.codec.plain import (
    blocks_of,
    is_empty,
    plain_blocks,
    plain_message,
    with_paired_results,
    without_empty_texts,
)
from weft.model import (
    Block,
    File,
    FileRef,
    Image,
    Inline,
    JsonObject,
    Message,
    Opaque,
    Redacted,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    texts,
)

from .blocks import INPUT, write_content
from .items import reasoning
from .wire import PROTOCOL


def write_messages(messages: Sequence[Message]) -> list[JsonObject]:
    """The list `input`; calls and results are items of their own."""
    return [item for message in with_paired_results(messages) for item in _items(message)]


def _items(message: Message) -> Iterator[JsonObject]:
    """The items of a message: results, reasoning, text, calls.

    Each text of an assistant is an item of its own: a list of texts is the form of an answer, which
    needs the answer's ids.
    """
    results, calls = blocks_of(message, ToolResult), blocks_of(message, ToolCall)
    for result in results:
        output = _output(result.content)
        yield {"type": "function_call_output", "call_id": result.call_id, "output": output}
    if message.origin is not None and message.origin.protocol == PROTOCOL:
        for block in message.blocks:
            if isinstance(block, Thinking | Redacted):
                yield reasoning(block)
    blocks = without_empty_texts([*_fit(message.blocks)])
    if all(map(is_empty, blocks)):
        blocks = [] if results or calls else [Text(message.text)]
    runs = [[block] for block in blocks] if message.role == "assistant" else [blocks]
    for run in filter(None, runs):
        yield plain_message(message, write_content(run, "text", INPUT, (), Losses()))
    for call in calls:
        yield {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
        }


def _output(content: Sequence[Block]) -> Any:
    blocks = [*_fit(content)]
    if all(isinstance(block, Text) for block in blocks):
        return "\n".join(texts(blocks))
    return write_content(without_empty_texts(blocks), "list", INPUT, (), Losses())


def _fit(blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks that are content parts here."""
    for block in plain_blocks(blocks):
        match block:
            case Image(source=FileRef() as source):
                yield Image(source)
            case Image(source=source, detail=detail):
                yield Image(source, detail or "auto")
            case File(source=source, name=name):
                yield File(source, (name or "file") if isinstance(source, Inline) else None)
            case Text():
                yield block
            case Opaque(protocol=protocol) if protocol == PROTOCOL:
                yield block
            case _:
                pass
