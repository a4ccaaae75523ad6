"""The tokens of images by the vendors' formulas, from the size in the file."""

import base64
import struct
import zlib

import pytest

from weft.catalog import load_catalog
from weft.model import Image, Inline, Message, Tool, Url
from weft.tokens import counter_for_model


def png(width: int, height: int) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + head
    return (
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    )


def jpeg(width: int, height: int) -> bytes:
    exif = b"\xff\xe1" + struct.pack(">H", 30_000) + bytes(29_998)
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    return b"\xff\xd8" + exif + frame


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(20)


def webp(width: int, height: int) -> bytes:
    sizes = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF" + bytes(4) + b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + sizes


def image(data: bytes, detail: str | None = None) -> Image:
    return Image(Inline(base64.b64encode(data).decode(), "image/x"), detail)


def tokens(model: str, block: Image) -> int:
    return counter_for_model(load_catalog().find(model)).block(block)


@pytest.mark.parametrize("write", [png, jpeg, gif, webp])
@pytest.mark.parametrize(
    ("model", "width", "height", "expected"),
    [
        ("claude-sonnet-4-5", 200, 200, 54),  # the examples of the vendors' pages
        ("claude-sonnet-4-5", 1000, 1000, 1334),
        ("claude-sonnet-4-5", 4000, 4000, 1600),
        ("claude-opus-4-8", 4000, 4000, 4784),
        ("gpt-4o", 1024, 1024, 765),
        ("gpt-4o", 2048, 4096, 1105),
        ("gpt-5", 1024, 1024, 630),
        ("gpt-4.1-mini", 1024, 1024, 1659),
        ("gemini-2.5-pro", 300, 300, 258),
        ("gemini-2.5-pro", 960, 540, 1548),
        ("gemini-3-pro", 960, 540, 1120),
    ],
)
def test_the_vendors_formula_is_used(write, model, width, height, expected):
    assert tokens(model, image(write(width, height))) == expected


@pytest.mark.parametrize(
    "data",
    [b"", b"x", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe1\xff\xff", b"RIFFxxxxWEBPVP8 ", png(0, 0)],
)
@pytest.mark.parametrize("model", ["claude-opus-4-8", "gpt-5", "gpt-5-mini", "gemini-2.5-pro"])
def test_a_damaged_image_counts_as_a_large_one(model, data):
    assert (
        tokens(model, image(data)) == tokens(model, Image(Url("https://example.com/a.png"))) > 500
    )


def test_low_detail_is_cheap():
    assert tokens("gpt-5", image(png(2000, 2000), "low")) == 70
    assert tokens("claude-sonnet-4-5", image(png(2000, 2000), "low")) == 85


def test_tools_count_with_the_prompt_that_the_vendor_adds():
    tools = (Tool("read", "Read a file.", {"type": "object", "properties": {}}),)
    counts = {
        model: counter_for_model(load_catalog().find(model)).request((Message("user", ()),), tools)
        for model in ("claude-opus-4-7", "claude-opus-4-8", "gpt-5")
    }
    assert counts["claude-opus-4-7"] - counts["claude-opus-4-8"] == 675 - 290
    assert counts["gpt-5"] < 60
    assert counter_for_model(load_catalog().find("claude-opus-4-7")).tools(()) == 0
