"""What this wire cannot say: blocks of a turn, and parts of a result.

Media stands on the user's side only: "'image' blocks are not permitted within assistant turns"
(https://github.com/SEMOSS/Semoss/issues/2323).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from weft.codec.media import IMAGE_TYPES, bare_type, plain_text, refuse_audio, typed
from weft.codec.origin import MAKER_ONLY, STORED_ONLY, refuse_foreign, refuse_opaque
from weft.model import (
    Audio,
    File,
    FileRef,
    Image,
    Message,
    Opaque,
    Redacted,
    Request,
    Source,
    Thinking,
    Url,
)

from .wire import PROTOCOL

DOCUMENT_TYPES = frozenset({"application/pdf"})
"""Media that can be sent in the body: https://platform.claude.com/docs/en/build-with-claude/files"""


def refuse_thinking(block: Thinking, message: Message, request: Request) -> str | None:
    """Thinking goes back only where it was signed."""
    return MAKER_ONLY if block.signature is None else refuse_foreign(PROTOCOL, message, request)


def refuse_redacted(_block: Redacted, message: Message, request: Request) -> str | None:
    return refuse_foreign(PROTOCOL, message, request)


def refuse_image(block: Image, message: Message, _request: Request) -> str | None:
    return _refuse_source(block.source, IMAGE_TYPES, message)


def refuse_document(block: File, message: Message, _request: Request) -> str | None:
    source = typed(block).source
    known = DOCUMENT_TYPES if plain_text(source) is None else frozenset({source.media_type})
    return _refuse_source(source, known, message)


def _refuse_source(source: Source, known: frozenset[str], message: Message) -> str | None:
    if message.role == "assistant":
        return "an assistant message holds no media here"
    if isinstance(source, FileRef):
        return STORED_ONLY
    if isinstance(source, Url) and source.url[:8].lower() != "https://":
        return "only an address of https is fetched here"
    kind = source.media_type
    if kind in known or bare_type(kind) in known or (isinstance(source, Url) and not kind):
        return None
    return f"media of the type {source.media_type!r} is not known here"


PARTS: dict[type, Callable[[Any, Message, Request], str | None]] = {
    Opaque: partial(refuse_opaque, PROTOCOL),
    Image: refuse_image,
    File: refuse_document,
    Audio: refuse_audio,
}
CHECKS = PARTS | {Thinking: refuse_thinking, Redacted: refuse_redacted}
