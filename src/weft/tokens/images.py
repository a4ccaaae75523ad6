"""The tokens of an image, by the formulas that vendors publish for their models.

    area     width x height / 750, after the long edge is reduced to 1,568 pixels; at most 1,600
    large    the same with 2,576 pixels and at most 4,784
             https://platform.claude.com/docs/en/build-with-claude/vision
    tiles    a base and a price for each tile of 512 pixels
    patches  patches of 32 pixels, at most 1,536, times a factor
             https://platform.openai.com/docs/guides/images-vision#calculating-costs
    grid     258 for a small image, else 258 for each tile
             https://ai.google.dev/gemini-api/docs/image-understanding#token-calculation
    fixed    the same for every image
             https://ai.google.dev/gemini-api/docs/media-resolution

The size is read from the first bytes of the file (PNG, JPEG, GIF, WebP). An image of unknown size
(a URL, another format) counts as a large one. https://www.w3.org/TR/png/, ITU T.81, GIF89a,
https://developers.google.com/speed/webp/docs/riff_container
"""

import base64
import binascii
from collections.abc import Sequence
from math import ceil

from weft.model import Image, Inline

Size = tuple[int, int]

UNKNOWN: Size = (1568, 1568)
HEADER = 4096
JPEG_HEADER = 256 * 1024
"""How many characters of base64 are decoded: a JPEG may have a preview before its size."""

SMALL_IMAGE = 85
"""An image with `detail: low`, if its formula has no base."""


def image_tokens(image: Image, formula: str, scale: Sequence[float] = ()) -> int:
    """The tokens of an image; `scale` are the numbers of the model's formula."""
    width, height = image_size(image) or UNKNOWN
    match formula:
        case "tiles":
            base, tile = scale or (85, 170)
            return int(base if image.detail == "low" else base + tile * _tiles(width, height))
        case "patches":
            factor, most = scale or (1.0, 1536)
            return ceil(min(ceil(width / 32) * ceil(height / 32), most) * factor)
        case "grid":
            return 258 * _grid(width, height)
        case "fixed":
            return int(scale[0]) if scale else 1120
        case _:
            if image.detail == "low":
                return SMALL_IMAGE
            edge, most = (2576, 4784) if formula == "large" else (1568, 1600)
            shrink = min(1.0, edge / max(width, height))
            return max(1, min(most, ceil(width * height * shrink * shrink / 750)))


def image_size(image: Image) -> Size | None:
    """The width and height in pixels; `None` if they are unknown."""
    if not isinstance(image.source, Inline):
        return None
    data = _decode(image.source.data, HEADER)
    if data.startswith(b"\xff\xd8"):
        return _jpeg_size(_decode(image.source.data, JPEG_HEADER))
    if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
        return _checked(_number(data[16:20]), _number(data[20:24]))
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return _checked(_little(data[6:8]), _little(data[8:10]))
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp_size(data)
    return None


def _tiles(width: int, height: int) -> int:
    """Tiles of 512 pixels, after the image is fitted to 2,048 pixels and its short side to 768."""
    shrink = min(1.0, 2048 / max(width, height))
    shrink = min(shrink, 768 / min(width, height))
    return ceil(width * shrink / 512) * ceil(height * shrink / 512)


def _grid(width: int, height: int) -> int:
    if max(width, height) <= 384:
        return 1
    unit = min(768, max(256, int(min(width, height) / 1.5)))
    return ceil(width / unit) * ceil(height / unit)


def _decode(text: str, length: int) -> bytes:
    start = text[:length]
    try:
        return base64.b64decode(start[: len(start) // 4 * 4])
    except (binascii.Error, ValueError):
        return b""


def _jpeg_size(data: bytes) -> Size | None:
    """The size in the frame header, which follows any number of other segments."""
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        is_frame = 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC)
        if is_frame:
            return _checked(_number(data[at + 7 : at + 9]), _number(data[at + 5 : at + 7]))
        at += 2 if marker == 0xFF else 2 + max(2, _number(data[at + 2 : at + 4]))
    return None


def _webp_size(data: bytes) -> Size | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return _checked(_little(data[24:27]) + 1, _little(data[27:30]) + 1)
    if kind == b"VP8 ":
        return _checked(_little(data[26:28]) & 0x3FFF, _little(data[28:30]) & 0x3FFF)
    if kind == b"VP8L":
        bits = _little(data[21:25])
        return _checked((bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1)
    return None


def _checked(width: int, height: int) -> Size | None:
    return (width, height) if width > 0 and height > 0 else None


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")
