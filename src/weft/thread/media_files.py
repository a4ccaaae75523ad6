"""Reads files and turns them into blocks of a message.

The type is detected from the first bytes: vendors refuse a whole request if one image has a wrong
type. The name decides only for audio, which may start with any bytes. Unsupported types (archives,
videos, office documents) are refused here, while the error can still name the file.
"""

from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from weft.errors import WrongValue
from weft.model import Audio, File, Image, Inline

Media = Image | File | Audio
Attachment = str | Path | Media
"""The path of a file, or a media block."""

MAX_FILE_BYTES = 20 * 1024 * 1024
"""The largest file that can be attached. In base64 this is 28 MB.

Of Anthropic, OpenAI and Google, Anthropic has the lowest limit for a request, 32 MB:
https://platform.claude.com/docs/en/api/overview#request-size-limits

A vendor may still refuse a smaller file: Anthropic accepts images of at most 5 MB in base64, and
files in earlier messages count towards the size of a request too.
"""

SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (4, b"ftypheic", "image/heic"),
    (4, b"ftypmif1", "image/heif"),
    (0, b"%PDF-", "application/pdf"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"\xff\xf3", "audio/mpeg"),
    (0, b"\xff\xf2", "audio/mpeg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"OggS", "audio/ogg"),
    (0, b"\xff\xf1", "audio/aac"),
    (0, b"\xff\xf9", "audio/aac"),
    (0, b"FORM", "audio/aiff"),
)
"""Offset, bytes and media type."""

RIFF_TYPES = ("image/webp", "audio/wav")
"""Types whose files also begin with `RIFF`."""

TYPES_BY_SUFFIX = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".heic": "image/heic",
    ".heif": "image/heif",
    ".pdf": "application/pdf",
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".flac": "audio/flac",
    ".ogg": "audio/ogg",
    ".aac": "audio/aac",
    ".aiff": "audio/aiff",
    ".aif": "audio/aiff",
}
TEXT = "text/plain"
SUPPORTED_TYPES = (
    "PNG, JPEG, GIF, WebP, HEIC and HEIF images, PDF and text files, and WAV, MP3, FLAC, OGG, AAC "
    "and AIFF audio"
)
"""For error messages."""


def read_attachments(value: Any) -> tuple[Media, ...]:
    """The blocks of the attached files, in order.

    A single path or block counts as a list of one. Raises `WrongValue`, which names the wrong item:
    `attach[2]`.
    """
    if value is None:
        return ()
    if isinstance(value, str | Path | Image | File | Audio):
        value = (value,)
    if not isinstance(value, Iterable):
        raise WrongValue(
            "attach", f"must be a path, a media block or a list of them, not {type(value).__name__}"
        )
    items = list(cast(Iterable[Any], value))
    return tuple(_read_attachment(f"attach[{n}]", item) for n, item in enumerate(items))


def _read_attachment(field: str, value: Any) -> Media:
    if isinstance(value, Image | File | Audio):
        return value
    if not isinstance(value, str | Path):
        raise WrongValue(field, f"must be a path or a media block, not {type(value).__name__}")
    if "://" in str(value):
        hint = "to let the vendor fetch it, pass a block, for example weft.Image(weft.Url(...))"
        raise WrongValue(field, f"{str(value)!r} is a URL, not a file; {hint}")
    path = Path(value).expanduser()
    data = _read_file(field, path)
    return make_media(field, str(path), data)


def make_media(field: str, name: str, data: bytes) -> Media:
    """The block of a file with this content; raises `WrongValue` if its type is unsupported."""
    if not data:
        raise WrongValue(field, f"{name!r} is empty")
    media_type = detect_type(name, data)
    if media_type is None:
        raise WrongValue(
            field, f"{name!r} has an unsupported type; supported are {SUPPORTED_TYPES}"
        )
    type_by_name = TYPES_BY_SUFFIX.get(Path(name).suffix.lower())
    if media_type == TEXT and type_by_name is not None:
        raise WrongValue(field, f"{name!r} is not {type_by_name}: it contains text")
    source = Inline(b64encode(data).decode(), media_type)
    kind = media_type.partition("/")[0]
    if kind == "image":
        return Image(source)
    return Audio(source) if kind == "audio" else File(source, Path(name).name)


def detect_type(name: str, data: bytes) -> str | None:
    """The media type of a file; `None` if it is unsupported."""
    for offset, signature, media_type in SIGNATURES:
        if data.startswith(signature, offset) and _matches_second_signature(media_type, data):
            return media_type
    if is_text(data):
        return TEXT
    # An MP3 file may have other bytes before its first frame, so no signature matches. For audio,
    # the name decides then.
    type_by_name = TYPES_BY_SUFFIX.get(Path(name).suffix.lower())
    return type_by_name if type_by_name is not None and type_by_name.startswith("audio/") else None


def _matches_second_signature(media_type: str, data: bytes) -> bool:
    """Whether the second signature matches too, for types that have two."""
    if media_type == "audio/aiff":
        return data[8:12] in (b"AIFF", b"AIFC")
    return media_type not in RIFF_TYPES or data[:4] == b"RIFF"


def is_text(data: bytes) -> bool:
    """Whether these bytes are UTF-8 text."""
    if b"\0" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read_file(field: str, path: Path) -> bytes:
    try:
        if path.is_dir():
            raise WrongValue(field, f"{str(path)!r} is a folder; attach its files one by one")
        if not path.is_file():
            raise WrongValue(field, f"there is no file {str(path)!r}")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: the path has a NUL character
        reason = getattr(error, "strerror", None) or str(error)
        raise WrongValue(field, f"{str(path)!r} cannot be read: {reason}") from None
    if len(data) > MAX_FILE_BYTES:
        limit = MAX_FILE_BYTES // 2**20
        raise WrongValue(field, f"{str(path)!r} is larger than the {limit} MB that can be attached")
    return data
