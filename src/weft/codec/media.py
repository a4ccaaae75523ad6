"""Media types and other metadata of images, files and audio."""

from base64 import b64decode

from msgspec import structs

from weft.model import Audio, File, Inline, Message, Position, Request, Source, Url

from .base import Losses

MEDIA_TYPES = {
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
"""Media types by file extension, as the vendors spell them. Not `mimetypes`, because its table
differs between machines.
https://ai.google.dev/gemini-api/docs/file-input-methods"""

EXTENSIONS = {kind: extension for extension, kind in MEDIA_TYPES.items()}

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""Types of inline images that Anthropic and OpenAI accept:
https://platform.claude.com/docs/en/build-with-claude/vision,
https://platform.openai.com/docs/guides/images-vision#image-input-requirements"""


def check_image_type(source: Source) -> str | None:
    """The loss code of an inline image of an unsupported type, else `None`."""
    if not isinstance(source, Inline) or bare_type(source.media_type) in IMAGE_TYPES:
        return None
    return "media_type_unsupported"


def media_type_of(url: str) -> str:
    """The media type for the extension of a URL or file name; empty if it is unknown."""
    path = url.partition("#")[0].partition("?")[0]
    return MEDIA_TYPES.get(path.rpartition(".")[2].lower(), "")


def bare_type(media_type: str) -> str:
    """A media type in lower case and without parameters, the form that all vendors accept."""
    return media_type.partition(";")[0].strip().lower()


def with_inferred_type(block: File) -> File:
    """The document; if its data has no media type, the type follows from the file name."""
    source = block.source
    kind = media_type_of(block.name or "")
    if not isinstance(source, Inline) or source.media_type or not kind:
        return block
    return structs.replace(block, source=Inline(source.data, kind))


def with_media_type(block: File, position: Position, losses: Losses) -> Source:
    """The source of a document with a normalized media type; changes are reported."""
    source = with_inferred_type(block).source
    if source is not block.source:
        losses.add(position, "default_added", f"media type: {source.media_type}")
    return with_bare_type(source, position, losses)


def with_bare_type(source: Source, position: Position, losses: Losses) -> Source:
    """The source with a normalized media type; a change is reported."""
    if not isinstance(source, Inline) or source.media_type == bare_type(source.media_type):
        return source
    kind = bare_type(source.media_type)
    losses.add(position, "media_type_changed", f"{source.media_type} -> {kind}")
    return Inline(source.data, kind)


def with_default_name(block: File, position: Position, losses: Losses) -> File:
    """The document; an inline one without a name gets a default name.

    Without a name, OpenAI answers "Missing required parameter":
    https://github.com/openai/openai-agents-python/pull/1513
    """
    if block.name is not None or not isinstance(block.source, Inline):
        return block
    extension = EXTENSIONS.get(block.source.media_type)
    name = "document" if extension is None else f"document.{extension}"
    losses.add(position, "default_added", f"name: {name}")
    return structs.replace(block, name=name)


PLAIN_TEXT_PREFIXES = ("text/", "application/json")


def plain_text(source: Source) -> str | None:
    """The text of inline media with a text type; `None` for all others."""
    if not isinstance(source, Inline) or not source.media_type.startswith(PLAIN_TEXT_PREFIXES):
        return None
    try:
        return b64decode(source.data, validate=True).decode()
    except ValueError:
        return None


def report_type(source: Source, position: Position, losses: Losses) -> None:
    """Report the media type of a URL, which is dropped, unless the file extension implies it."""
    if (
        isinstance(source, Url)
        and source.media_type
        and source.media_type != media_type_of(source.url)
    ):
        losses.add(position, "media_type_dropped", source.media_type)


def report_detail(detail: str, position: Position, losses: Losses) -> None:
    """Report the `detail` of an image, which the target does not support."""
    level = "form" if detail == "auto" else "meaning"
    losses.add(position, "image_detail_dropped", detail, level)


def check_audio(_block: Audio, _message: Message, _request: Request) -> str | None:
    """The loss code of audio, for a protocol without audio."""
    return "audio_unsupported"
