"""Media: what a wire is told about it beside the data itself."""

from base64 import b64decode

from msgspec import structs

from weft.model import Audio, File, Inline, Message, Place, Request, Source, Url

from .base import Losses

TYPES = {
    "aac": "audio/aac",
    "csv": "text/csv",
    "flac": "audio/flac",
    "gif": "image/gif",
    "heic": "image/heic",
    "heif": "image/heif",
    "html": "text/html",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "json": "application/json",
    "md": "text/markdown",
    "mov": "video/quicktime",
    "mp3": "audio/mp3",
    "mp4": "video/mp4",
    "mpeg": "video/mpeg",
    "ogg": "audio/ogg",
    "pdf": "application/pdf",
    "png": "image/png",
    "txt": "text/plain",
    "wav": "audio/wav",
    "webm": "video/webm",
    "webp": "image/webp",
    "xml": "text/xml",
}
"""Types by the ending of an address, as the vendors spell them: a table of our own, because the
one of the machine differs from machine to machine.
https://ai.google.dev/gemini-api/docs/file-input-methods"""

ENDINGS = {kind: ending for ending, kind in TYPES.items()}

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""Pictures that Anthropic and OpenAI look at, where they are in the body:
https://platform.claude.com/docs/en/build-with-claude/vision,
https://platform.openai.com/docs/guides/images-vision#image-input-requirements"""


def refuse_picture(source: Source) -> str | None:
    """Why a picture in the body is not looked at, or `None`."""
    if not isinstance(source, Inline) or bare_type(source.media_type) in IMAGE_TYPES:
        return None
    return "media_type_unsupported"


def type_of(url: str) -> str:
    """The type that an address tells by its ending; empty where it tells none."""
    path = url.partition("#")[0].partition("?")[0]
    return TYPES.get(path.rpartition(".")[2].lower(), "")


def bare_type(media_type: str) -> str:
    """A type in small letters and without parameters: the same, as every vendor spells it."""
    return media_type.partition(";")[0].strip().lower()


def typed(block: File) -> File:
    """A document whose data came without a type, with the one that its name tells."""
    source = block.source
    kind = type_of(block.name or "")
    if not isinstance(source, Inline) or source.media_type or not kind:
        return block
    return structs.replace(block, source=Inline(source.data, kind))


def with_type(block: File, place: Place, losses: Losses) -> Source:
    """The source of a document with a type that can be told, and as it is spelt; both reported."""
    source = typed(block).source
    if source is not block.source:
        losses.add(place, "default_added", f"media type: {source.media_type}")
    return with_bare_type(source, place, losses)


def with_bare_type(source: Source, place: Place, losses: Losses) -> Source:
    """A source in the body with the type that vendors know it by; reported where it changes."""
    if not isinstance(source, Inline) or source.media_type == bare_type(source.media_type):
        return source
    kind = bare_type(source.media_type)
    losses.add(place, "media_type_changed", f"{source.media_type} -> {kind}")
    return Inline(source.data, kind)


def named(block: File, place: Place, losses: Losses) -> File:
    """A document in the body under some name: "Missing required parameter", OpenAI says of one
    without (https://github.com/openai/openai-agents-python/pull/1513)."""
    if block.name is not None or not isinstance(block.source, Inline):
        return block
    ending = ENDINGS.get(block.source.media_type)
    name = "document" if ending is None else f"document.{ending}"
    losses.add(place, "default_added", f"name: {name}")
    return structs.replace(block, name=name)


PLAIN_TEXT = ("text/", "application/json")


def plain_text(source: Source) -> str | None:
    """The words of media that is nothing but words; `None` for all others."""
    if not isinstance(source, Inline) or not source.media_type.startswith(PLAIN_TEXT):
        return None
    try:
        return b64decode(source.data, validate=True).decode()
    except ValueError:
        return None


def report_type(source: Source, place: Place, losses: Losses) -> None:
    """Report the type of an address, where the target is not told it and the ending does not."""
    if isinstance(source, Url) and source.media_type and source.media_type != type_of(source.url):
        losses.add(place, "media_type_dropped", source.media_type)


def report_detail(detail: str, place: Place, losses: Losses) -> None:
    """Report how closely an image should be looked at, where the target cannot be told."""
    level = "form" if detail == "auto" else "meaning"
    losses.add(place, "image_detail_dropped", detail, level)


def refuse_audio(_block: Audio, _message: Message, _request: Request) -> str | None:
    """Why audio cannot be said on a wire that has none."""
    return "audio_unsupported"
