"""What this wire cannot say: blocks of a turn, and parts of a result.

What an assistant said is words: "Invalid value: 'input_image'. Supported values are: 'output_text'
and 'refusal'", the vendor says to anything else in its message.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from weft.codec.media import refuse_audio, refuse_picture
from weft.codec.origin import STORED_ONLY, made_by, refuse_foreign, refuse_opaque
from weft.model import (
    Audio,
    File,
    FileRef,
    Image,
    Message,
    Opaque,
    Redacted,
    Request,
    Thinking,
)

from .wire import PROTOCOL


def refuse_thinking(block: Thinking | Redacted, message: Message, request: Request) -> str | None:
    """Thinking goes back to its maker only, sealed or as it is. Of what only its id names, the
    vendor says "Items are not persisted when `store` is set to false", and refuses the request:
    https://github.com/openai/openai-agents-python/issues/919"""
    if request.params.store is False and isinstance(block, Thinking) and block.signature is None:
        own = (block.ext or {}).get(PROTOCOL, {})
        if "id" in own and not own.get("content"):
            return "it is not sealed, and its maker stores nothing"
    return refuse_foreign(PROTOCOL, message, request)


def refuse_media(block: Image | File, message: Message, request: Request) -> str | None:
    if message.role == "assistant":
        return "an assistant message holds words only here"
    if isinstance(block.source, FileRef) and not made_by(PROTOCOL, message, request):
        return STORED_ONLY
    return refuse_picture(block.source) if isinstance(block, Image) else None


CHECKS: dict[type, Callable[[Any, Message, Request], str | None]] = {
    Thinking: refuse_thinking,
    Redacted: refuse_thinking,
    Opaque: partial(refuse_opaque, PROTOCOL),
    Image: refuse_media,
    File: refuse_media,
    Audio: refuse_audio,
}
