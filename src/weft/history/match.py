"""Match keys: by what every client must echo, a stateless request finds the thread it continues.

A client that sends its conversation again spells it as it likes: ids, vendor fields, thinking,
cache marks, string or list, how blocks are grouped into messages all change between turns. What
must come back is hashed here, block by block, each with the side that speaks: visible text, calls
as name and canonical arguments, results as text and digests of media.

Keys are chained: one key stands for everything up to it, so the longest known prefix is the
furthest key that anybody has stored. The leading system run is left out (clients rewrite it), and
the scope is the chain's first link, so that one caller never matches another's thread.
"""

from collections.abc import Iterable, Iterator, Sequence

from weft.ids import Id, canonical, canonical_arguments, object_id
from weft.model import (
    Audio,
    Block,
    Checkpoint,
    File,
    FileRef,
    Image,
    Inline,
    Message,
    Opaque,
    Refusal,
    Reminder,
    Source,
    Text,
    ToolCall,
    ToolResult,
    Url,
    checkpoint_text,
    is_system,
    reminder_text,
    side,
)

Chain = bytes


def first_link(scope: str) -> Chain:
    """The chain before anything was said."""
    return object_id("scope", scope.encode())


def chain_message(chain: Chain, message: Message) -> Chain:
    """The chain after this message."""
    speaker = side(message.role).encode() + b"\0"
    for part in _parts(message.blocks):
        chain = object_id("match", chain + speaker + part)
    return chain


def chain_messages(scope: str, messages: Iterable[Message]) -> Iterator[Chain | None]:
    """The chain after each message; `None` within the leading system run."""
    chain = first_link(scope)
    leading = True
    for message in messages:
        leading = leading and is_system(message)
        if leading:
            yield None
        else:
            chain = chain_message(chain, message)
            yield chain


def match_key(message: Message) -> Id:
    """What a message must echo, on its own."""
    return chain_message(b"", message)


def _parts(blocks: Sequence[Block]) -> Iterator[bytes]:
    for block in blocks:
        match block:
            case Text(text=text) | Refusal(text=text):
                if text:
                    yield b"text\0" + text.encode("utf-8", "surrogatepass")
            case Reminder():
                yield b"text\0" + reminder_text(block).encode("utf-8", "surrogatepass")
            case Checkpoint():
                yield b"text\0" + checkpoint_text(block).encode()
            case ToolCall():
                yield b"call\0" + f"{block.name}\0{canonical_arguments(block.arguments)}".encode()
            case ToolResult():
                yield b"result\0" + b"\0".join(_parts(block.content))
            case Image(source=source) | File(source=source) | Audio(source=source):
                yield b"media\0" + _digest(source)
            case Opaque():
                yield b"opaque\0" + canonical(block.raw)
            case _:
                pass


def _digest(source: Source) -> bytes:
    match source:
        case Inline(data=data):
            return object_id("media", data.encode())
        case Url(url=url):
            return url.encode()
        case FileRef(id=id):
            return id.encode()
