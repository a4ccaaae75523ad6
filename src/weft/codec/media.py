"""Media: what a wire is told about it beside the data itself."""

from base64 import b64decode

from weft.model import Inline, Place, Source, Url

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


def type_of(url: str) -> str:
    """The type that an address tells by its ending; empty where it tells none."""
    path = url.partition("#")[0].partition("?")[0]
    return TYPES.get(path.rpartition(".")[2].lower(), "")


PLAIN_TEXT = ("text/", "application/json")


def plain_text(source: Source) -> str | None:
    """The words of media that is nothing but words; `None` for all others."""
    if not isinstance(source, Inline) or not source.media_type.startswith(PLAIN_TEXT):
        return None
    try:
        return b64decode(source.data, validate=True).decode()
    except ValueError:
        return None


def lose_type(source: Source, place: Place, losses: Losses) -> None:
    """Report the type of an address, where the target is not told it and the ending does not."""
    if isinstance(source, Url) and source.media_type and source.media_type != type_of(source.url):
        what = f"the type {source.media_type!r}"
        losses.add(place, what, "the target works it out from the address", "form")


def lose_detail(detail: str, place: Place, losses: Losses) -> None:
    """Report how closely an image should be looked at, where the target cannot be told."""
    level = "form" if detail == "auto" else "meaning"
    losses.add(place, f"the detail {detail!r}", "images have none here", level)
