"""What this wire cannot say: blocks of a turn, and parts of a result."""

from collections.abc import Callable
from typing import Any

from weft.codec.base import Losses
from weft.codec.media import plain_text
from weft.codec.origin import MAKER_ONLY, refuse_foreign
from weft.codec.params import lose_ext
from weft.model import (
    Audio,
    Block,
    File,
    FileRef,
    Image,
    Message,
    Opaque,
    Place,
    Redacted,
    Request,
    Source,
    Text,
    Thinking,
    ToolResult,
    Url,
)

from .wire import PROTOCOL

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
DOCUMENT_TYPES = frozenset({"application/pdf"})
"""Media that can be sent in the body: https://platform.claude.com/docs/en/build-with-claude/files"""


def refuse_thinking(block: Thinking, message: Message, request: Request) -> str | None:
    """Thinking goes back only where it was signed."""
    return MAKER_ONLY if block.signature is None else refuse_foreign(PROTOCOL, message, request)


def refuse_redacted(_block: Redacted, message: Message, request: Request) -> str | None:
    return refuse_foreign(PROTOCOL, message, request)


def refuse_opaque(block: Opaque, _message: Message, _request: Request) -> str | None:
    return None if block.protocol == PROTOCOL else "only its own protocol knows this block"


def refuse_image(block: Image, _message: Message, _request: Request) -> str | None:
    return _refuse_source(block.source, IMAGE_TYPES)


def refuse_document(block: File, _message: Message, _request: Request) -> str | None:
    if plain_text(block.source) is not None:
        return None
    return _refuse_source(block.source, DOCUMENT_TYPES)


def _refuse_source(source: Source, known: frozenset[str]) -> str | None:
    if isinstance(source, FileRef):
        return "a stored file's id means nothing to another vendor"
    if source.media_type in known or (isinstance(source, Url) and not source.media_type):
        return None
    return f"media of the type {source.media_type!r} is not known here"


def refuse_audio(_block: Any, _message: Message, _request: Request) -> str | None:
    return "this wire has no audio"


PARTS: dict[type, Callable[[Any, Message, Request], str | None]] = {
    Opaque: refuse_opaque,
    Image: refuse_image,
    File: refuse_document,
    Audio: refuse_audio,
}
CHECKS = PARTS | {Thinking: refuse_thinking, Redacted: refuse_redacted}


def sift_result(
    block: ToolResult, place: Place, request: Request, losses: Losses
) -> tuple[Block, ...]:
    """What a foreign result can say here; whatever else is reported."""
    if all(type(part) is Text and part.ext is None for part in block.content):
        return block.content
    message = request.messages[int(place[0])]
    kept: list[Block] = []
    for number, part in enumerate(block.content):
        check = PARTS.get(type(part))
        why = check(part, message, request) if check is not None else None
        if why is not None:
            name = request.wire.part_name(part) if request.wire is not None else type(part).__name__
            losses.add((*place, number), f"a {name} block", why)
            continue
        kept.append(part)
        ext = getattr(part, "ext", None)
        if ext is not None:
            lose_ext(ext, PROTOCOL, (*place, number), losses)
    return tuple(kept)
