"""Counts the tokens of messages, offline: exactly if the vocabulary is available, else estimated.

OpenAI's vocabularies come inside a wheel (`bpe_openai`), so their counts are exact and need no
network. It is loaded when the first text is counted. The tokens of other vendors are estimated.

Vendors add tokens of their own around messages, calls and results. These are constants here. Images
are counted by the vendor's formula (`image_tokens`). Media are never tokenised as text, because a
model does not read base64.

A request also has the definitions of its tools, and a hidden prompt that some vendors add if there
are any (`count_tools`).
"""

import base64
import binascii
import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder
from importlib.util import find_spec, module_from_spec
from math import ceil
from typing import Any, Literal, cast

from msgspec import Struct, structs

from weft.catalog import Model
from weft.errors import ConfigError
from weft.model import (
    Audio,
    Block,
    Checkpoint,
    File,
    Image,
    Inline,
    JsonObject,
    Message,
    Opaque,
    Redacted,
    Refusal,
    Reminder,
    Source,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    checkpoint_text,
    reminder_text,
)

# The tokens of an image, by the formulas that vendors publish for their models.
#
#     area     width x height / 750, after the long edge is reduced to 1,568 pixels; at most 1,600
#     large    the same with 2,576 pixels and at most 4,784
#              https://platform.claude.com/docs/en/build-with-claude/vision
#     tiles    a base and a price for each tile of 512 pixels
#     patches  patches of 32 pixels, at most 1,536, times a factor
#              https://platform.openai.com/docs/guides/images-vision#calculating-costs
#     grid     258 for a small image, else 258 for each tile
#              https://ai.google.dev/gemini-api/docs/image-understanding#token-calculation
#     fixed    the same for every image
#              https://ai.google.dev/gemini-api/docs/media-resolution
#
# The size is read from the first bytes of the file (PNG, JPEG, GIF, WebP). An image of unknown size
# (a URL, another format) counts as a large one. https://www.w3.org/TR/png/, ITU T.81, GIF89a,
# https://developers.google.com/speed/webp/docs/riff_container

Size = tuple[int, int]
"""Width and height in pixels."""

ASSUMED_SIZE: Size = (1568, 1568)
"""The size of an image whose size is unknown."""

HEADER_CHARACTERS = 4096
"""How many characters of base64 are decoded to find the size."""

JPEG_HEADER_CHARACTERS = 256 * 1024
"""The same for a JPEG, which may have a preview before its size."""

LOW_DETAIL_TOKENS = 85
"""The tokens of an image with `detail: low`, if its formula has no base."""


def image_tokens(image: Image, formula: str, scale: Sequence[float] = ()) -> int:
    """The tokens of an image; `scale` are the numbers of the model's formula."""
    width, height = image_size(image) or ASSUMED_SIZE
    match formula:
        case "tiles":
            base, tile = scale or (85, 170)
            return int(
                base if image.detail == "low" else base + tile * _square_tiles(width, height)
            )
        case "patches":
            factor, max_patches = scale or (1.0, 1536)
            return ceil(min(ceil(width / 32) * ceil(height / 32), max_patches) * factor)
        case "grid":
            return 258 * _grid_tiles(width, height)
        case "fixed":
            return int(scale[0]) if scale else 1120
        case _:
            if image.detail == "low":
                return LOW_DETAIL_TOKENS
            edge, max_tokens = (2576, 4784) if formula == "large" else (1568, 1600)
            shrink = min(1.0, edge / max(width, height))
            return max(1, min(max_tokens, ceil(width * height * shrink * shrink / 750)))


def image_size(image: Image) -> Size | None:
    """The width and height in pixels; `None` if they are unknown."""
    if not isinstance(image.source, Inline):
        return None
    data = _decode_start(image.source.data, HEADER_CHARACTERS)
    if data.startswith(b"\xff\xd8"):
        return _jpeg_size(_decode_start(image.source.data, JPEG_HEADER_CHARACTERS))
    if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
        return _valid_size(_big_endian(data[16:20]), _big_endian(data[20:24]))
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return _valid_size(_little_endian(data[6:8]), _little_endian(data[8:10]))
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp_size(data)
    return None


def _square_tiles(width: int, height: int) -> int:
    """Tiles of 512 pixels, after the image is fitted to 2,048 pixels and its short side to 768."""
    shrink = min(1.0, 2048 / max(width, height))
    shrink = min(shrink, 768 / min(width, height))
    return ceil(width * shrink / 512) * ceil(height * shrink / 512)


def _grid_tiles(width: int, height: int) -> int:
    """Gemini's tiles, whose size depends on the short side; a small image is one tile."""
    if max(width, height) <= 384:
        return 1
    unit = min(768, max(256, int(min(width, height) / 1.5)))
    return ceil(width / unit) * ceil(height / unit)


def _decode_start(text: str, length: int) -> bytes:
    """The bytes of the first characters of a base64 text; empty if it is not base64."""
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
        is_frame = 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC)  # not a frame
        if is_frame:
            return _valid_size(
                _big_endian(data[at + 7 : at + 9]), _big_endian(data[at + 5 : at + 7])
            )
        at += 2 if marker == 0xFF else 2 + max(2, _big_endian(data[at + 2 : at + 4]))
    return None


def _webp_size(data: bytes) -> Size | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return _valid_size(_little_endian(data[24:27]) + 1, _little_endian(data[27:30]) + 1)
    if kind == b"VP8 ":
        return _valid_size(
            _little_endian(data[26:28]) & 0x3FFF, _little_endian(data[28:30]) & 0x3FFF
        )
    if kind == b"VP8L":
        bits = _little_endian(data[21:25])
        return _valid_size((bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1)
    return None


def _valid_size(width: int, height: int) -> Size | None:
    return (width, height) if width > 0 and height > 0 else None


def _big_endian(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _little_endian(data: bytes) -> int:
    return int.from_bytes(data, "little")


# Estimates the token count of a text for tokenizers that are not published.
#
# Four characters per token is wrong by -63 % on base64 and -43 % on logs. The tokens of a byte-pair
# vocabulary depend on the kind of character, so each kind has its own weight. Lower-case letters
# are cheap, because words are in the vocabulary. Capitals and digits are expensive, because they
# occur in names, hashes and numbers that are not. The weights were fitted to exact o200k counts of
# 906 texts (source code, prose, JSON, chat, tool output, base64, hex) by least squares of the
# relative error. The mean error is within 3 % for each kind of text except base64 (-22 %), and nine
# texts in ten are within 20 %.
#
# Vendors without a published vocabulary use more tokens than o200k. For 29 recorded answers with
# known usage the ratio was 1.08 to 1.19 (Claude 4 to 4.6) and 1.38 to 1.74 (Opus 4.8).
# `ESTIMATE_RATIO` is between them, so the estimate is high for older models and low for newer ones.
# Callers see the usage that the vendor reports, and can learn a better ratio from it.

ESTIMATE_RATIO = 1.25

SMALL_LETTER = 0.226
CAPITAL = 0.75
DIGIT = 0.82
NEWLINE = 0.5
PUNCTUATION = 0.48
TWO_BYTES = 0.25  # Greek, Cyrillic, accents: words of them are in the vocabulary
THREE_BYTES = 1.0  # Chinese, Japanese, Korean
FOUR_BYTES = 2.0  # emoji

_CHARACTER_WEIGHTS = (
    (bytes(range(0x61, 0x7B)), SMALL_LETTER),
    (bytes(range(0x41, 0x5B)), CAPITAL),
    (bytes(range(0x30, 0x3A)), DIGIT),
    (b"\n", NEWLINE),
    (
        bytes(set(range(0x21, 0x7F)) - {*b"0123456789"} - {*range(0x41, 0x5B), *range(0x61, 0x7B)}),
        PUNCTUATION,
    ),
    (bytes(range(0xC0, 0xE0)), TWO_BYTES),
    (bytes(range(0xE0, 0xF0)), THREE_BYTES),
    (bytes(range(0xF0, 0x100)), FOUR_BYTES),
)


def estimate_text(text: str) -> int:
    """The estimated token count; never raises, and is 0 only for an empty text."""
    if not text:
        return 0
    data = text.encode("utf-8", "surrogatepass")
    total = 0.0
    for characters, weight in _CHARACTER_WEIGHTS:
        count = len(data) - len(data.translate(None, characters))
        total += count * weight
    return max(1, ceil(total * ESTIMATE_RATIO))


Tokenizer = Literal["o200k", "cl100k", "estimate"]

# The tokens that vendors add around the content:
# https://cookbook.openai.com/examples/how_to_count_tokens_with_tiktoken
MESSAGE_TOKENS = 4  # the role, and the marks before and after a message
REPLY_TOKENS = 3  # the start of the answer, which is part of the request
CALL_TOKENS = 8  # type, id and the names of the members of a call
RESULT_TOKENS = 6
PAGE_TOKENS = 2000  # a page of a document: its text and an image of it
PAGE_BYTES = 50_000  # of a typical document
AUDIO_BYTES_PER_TOKEN = 1600  # 16 kHz, 16 bit, 20 tokens a second


class Counter(Struct, frozen=True):
    """Counts tokens with one tokenizer, with the vendor's tokens around messages and blocks.

    `images` and `image_scale` are the formula for images, `tool_prompt` the tokens that the vendor
    adds if a request has tools; see `weft.catalog.Model`.
    """

    tokenizer: Tokenizer
    text: Callable[[str], int]
    images: str = "area"
    image_scale: tuple[float, ...] = ()
    tool_prompt: int = 0

    def tools(self, tools: Sequence[Tool]) -> int:
        """The tokens of the definitions of tools, with the vendor's own prompt for them."""
        if not tools:
            return 0
        if self.tokenizer != "estimate":
            return self.text(typescript(tools)) + self.tool_prompt
        definitions = sum(
            self.text(f"{tool.name} {tool.description or ''} ")
            + self.text(json.dumps(tool.parameters or {}, ensure_ascii=False, default=str))
            for tool in tools
        )
        return definitions + self.tool_prompt

    def request(self, messages: Iterable[Message], tools: Sequence[Tool] = ()) -> int:
        """The tokens of a whole request."""
        start = 0 if self.tokenizer == "estimate" else REPLY_TOKENS
        return start + self.tools(tools) + sum(self.message(message) for message in messages)

    def message(self, message: Message) -> int:
        """The tokens of a whole message, its name, calls, results and media included."""
        name_tokens = self.text(message.name) + 1 if message.name else 0
        first = message.blocks[0] if len(message.blocks) == 1 else None
        if type(first) is Text:  # most messages of a long conversation
            return MESSAGE_TOKENS + name_tokens + self.text(first.text)
        return MESSAGE_TOKENS + name_tokens + sum(self.block(block) for block in message.blocks)

    def block(self, block: Block) -> int:
        """The tokens of one block."""
        match block:
            case Text(text=text) | Refusal(text=text) | Thinking(text=text):
                return self.text(text)
            case ToolCall():
                return CALL_TOKENS + self.text(block.name) + self.text(block.arguments)
            case ToolResult():
                return RESULT_TOKENS + sum(self.block(inner) for inner in block.content)
            case Reminder():
                return self.text(reminder_text(block))
            case Checkpoint():
                return self.text(checkpoint_text(block))
            case Image():
                return image_tokens(block, self.images, self.image_scale)
            case File():
                return _pages(block.source) * PAGE_TOKENS
            case Audio():
                return max(1, _byte_count(block.source) // AUDIO_BYTES_PER_TOKEN)
            case Redacted():
                return len(block.data) // 4  # encrypted: the content cannot be counted
            case Opaque():
                return self.text(json.dumps(block.raw, ensure_ascii=False, default=str))


def counter_for(tokenizer: Tokenizer) -> Counter:
    """The counter for a tokenizer name; raises `ConfigError` if it is unknown."""
    try:
        return Counter(tokenizer, _COUNT_FUNCTIONS[tokenizer])
    except KeyError:
        raise ConfigError(
            f"unknown tokenizer {tokenizer!r}; use one of {', '.join(_COUNT_FUNCTIONS)}"
        ) from None


def counter_for_model(model: Model, protocol: str = "") -> Counter:
    """The counter for a model of the catalogue; its prompt for tools may depend on the protocol."""
    in_chat = protocol == "openai-chat" and model.chat_tool_prompt is not None
    return structs.replace(
        counter_for(model.tokenizer),
        images=model.images,
        image_scale=model.image_scale,
        tool_prompt=model.chat_tool_prompt if in_chat else model.tool_prompt,
    )


# OpenAI's models read the definitions of functions as TypeScript. The form is not documented by
# OpenAI, but known (https://github.com/hmarr/openai-chat-tokens). Counted in it, the rest of the
# reported tokens is the same for all recorded requests of a model over a protocol (`tool_prompt`),
# for one tool as for four. As JSON, the same definitions have a third more tokens.

MAX_SCHEMA_DEPTH = 12  # a schema may refer to itself
MAX_SCHEMA_TYPES = 20_000  # and to parts that refer to others many times


def typescript(tools: Sequence[Tool]) -> str:
    """The definitions of tools as OpenAI's models read them."""
    lines = ["namespace functions {", ""]
    for tool in tools:
        lines += _comment(tool.description)
        schema = tool.parameters or {}
        members = _SchemaWriter(schema).members(schema, 0)
        if members:
            lines += [f"type {tool.name} = (_: {{", *members, "}) => any;", ""]
        else:
            lines += [f"type {tool.name} = () => any;", ""]
    return "\n".join([*lines, "} // namespace functions"])


def _comment(text: object) -> list[str]:
    return [f"// {line}" for line in text.split("\n")] if isinstance(text, str) and text else []


class _SchemaWriter:
    """Writes one JSON schema (`root`) as TypeScript."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._types_left = MAX_SCHEMA_TYPES

    def members(self, schema: JsonObject, depth: int) -> list[str]:
        """One line for each property of an object, and its description."""
        properties, required = _object(schema.get("properties")) or {}, schema.get("required")
        needed = cast("list[object]", required) if isinstance(required, list) else []
        lines: list[str] = []
        for name, value in properties.items():
            member = _object(value) or {}
            if depth == 0:  # descriptions deeper inside are left out
                lines += _comment(member.get("description"))
            mark = "" if name in needed else "?"
            lines.append(f"{'  ' * depth}{name}{mark}: {self._type(member, depth)},")
        return lines

    def _type(self, schema: JsonObject, depth: int) -> str:
        self._types_left -= 1
        if depth > MAX_SCHEMA_DEPTH or self._types_left < 0:
            return "any"
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return self._type(_resolve(reference, self._root), depth + 1)
        values, kind = schema.get("enum"), schema.get("type")
        if isinstance(values, list):
            options = cast("list[object]", values)
            texts = (json.dumps(option, ensure_ascii=False, default=str) for option in options)
            return " | ".join(texts)
        for union in ("anyOf", "oneOf"):
            choices = schema.get(union)
            if isinstance(choices, list):
                parts = (_object(choice) or {} for choice in cast("list[object]", choices))
                return " | ".join(self._type(part, depth + 1) for part in parts)
        if isinstance(kind, list):
            return " | ".join(str(name) for name in cast("list[object]", kind))
        if kind == "array":
            items = _object(schema.get("items"))
            return f"{self._type(items, depth + 1)}[]" if items else "any[]"
        if kind == "object":
            members = self.members(schema, depth + 1)
            return "\n".join(["{", *members, "}"]) if members else "object"
        if kind in ("integer", "number"):
            return "number"
        return kind if isinstance(kind, str) else "any"


def _object(value: object) -> JsonObject | None:
    return cast(JsonObject, value) if isinstance(value, dict) else None


def _resolve(reference: str, root: JsonObject) -> JsonObject:
    """The schema that `#/$defs/Name` names; empty if there is none."""
    schema: JsonObject = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        schema = _object(schema.get(part)) or {}
    return schema


def _count_with(vocabulary: str) -> Callable[[str], int]:
    """A function that counts with a vocabulary, which is loaded on the first call."""

    def count(text: str) -> int:
        try:
            return _load_vocabulary(vocabulary)(text)
        except UnicodeEncodeError:  # lone surrogates, which JSON lets through and UTF-8 does not
            repaired = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            return _load_vocabulary(vocabulary)(repaired)

    return count


_COUNT_FUNCTIONS: dict[str, Callable[[str], int]] = {
    "o200k": _count_with("o200k_base"),
    "cl100k": _count_with("cl100k_base"),
    "estimate": estimate_text,
}


@cache
def _load_vocabulary(name: str) -> Callable[[str], int]:
    """The compiled count function. The Python API has none, and rejects long texts."""
    return _load_engine().tokenizer_for_encoding(name).count


def _load_engine() -> Any:
    """The compiled module of `bpe_openai`, without the package around it.

    Importing the package reads all three vocabularies a second time, in Python, for its own API.
    That takes most of a second, and counting needs none of it.
    """
    package = find_spec("bpe_openai")
    folders = [] if package is None else package.submodule_search_locations or []
    for folder in folders:
        spec = FileFinder(folder, (ExtensionFileLoader, EXTENSION_SUFFIXES)).find_spec("_bindings")
        if spec is not None and spec.loader is not None:
            engine = module_from_spec(spec)
            spec.loader.exec_module(engine)
            return engine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # how 0.1.4 opens its vocabularies
        return import_module("bpe_openai._bindings")


def _pages(source: Source) -> int:
    return 1 + _byte_count(source) // PAGE_BYTES


def _byte_count(source: Source) -> int:
    return len(source.data) * 3 // 4 if isinstance(source, Inline) else 0
