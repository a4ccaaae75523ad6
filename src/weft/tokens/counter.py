"""What a message costs in a window.

A counter is a way to count text and, from it, messages. OpenAI's vocabularies come inside a wheel
(`bpe_openai`), so their counts are exact and need no network; it takes most of a second to load,
so it is imported when the first text is counted. Everybody else's are estimated.

Around the text a vendor adds its own marks: per message, per call, per result. They are flat
prices here, as are images; media are never run through a vocabulary, because base64 is not what
a model reads.
"""

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Literal

from msgspec import Struct

from weft.errors import ConfigError
from weft.model import (
    Audio,
    Block,
    Checkpoint,
    File,
    Image,
    Inline,
    Message,
    Opaque,
    Redacted,
    Refusal,
    Reminder,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    checkpoint_text,
    reminder_text,
)

from .estimate import estimate_text

Tokenizer = Literal["o200k", "cl100k", "estimate"]

# https://cookbook.openai.com/examples/how_to_count_tokens_with_tiktoken
PER_MESSAGE = 4  # role and borders
PER_CALL = 8  # a call's frame: type, id and the names of its members
PER_RESULT = 6
IMAGE = 1600  # an image at Anthropic's limit of 1.15 megapixels: width x height / 750
SMALL_IMAGE = 85  # `detail: low`: https://platform.openai.com/docs/guides/images-vision
PAGE = 2000  # a page of a document, text and picture of it
PAGE_BYTES = 50_000
AUDIO_BYTES_PER_TOKEN = 1600  # 16 kHz, 16 bit, 20 tokens a second

PIECE = 40_000
"""The wheel refuses a text of more than 200,000 tokens; no piece of this many characters has as
many, at four bytes a character and a token a byte."""

_SEAM = re.compile(r"(?<=[^\W\d_]) (?=[^\W\d_])")
"""Where every vocabulary's pattern splits anyway: before the blank between two words."""


class Counter(Struct, frozen=True):
    """Counts by one tokenizer; a message is its blocks and the marks around them."""

    tokenizer: Tokenizer
    text: Callable[[str], int]

    def message(self, message: Message) -> int:
        """The tokens of a whole message, its name, calls, results and media included."""
        named = self.text(message.name) + 1 if message.name else 0
        return PER_MESSAGE + named + sum(self.block(block) for block in message.blocks)

    def block(self, block: Block) -> int:
        """The tokens of one block."""
        match block:
            case Text(text=text) | Refusal(text=text) | Thinking(text=text):
                return self.text(text)
            case ToolCall():
                return PER_CALL + self.text(block.name) + self.text(block.arguments)
            case ToolResult():
                return PER_RESULT + sum(self.block(inner) for inner in block.content)
            case Reminder():
                return self.text(reminder_text(block))
            case Checkpoint():
                return self.text(checkpoint_text(block))
            case Image():
                return SMALL_IMAGE if block.detail == "low" else IMAGE
            case File():
                return _pages(block.source) * PAGE
            case Audio():
                return max(1, _size(block.source) // AUDIO_BYTES_PER_TOKEN)
            case Redacted():
                return len(block.data) // 4  # sealed: what is inside cannot be counted
            case Opaque():
                return self.text(json.dumps(block.raw, ensure_ascii=False, default=str))


def counter_for(tokenizer: Tokenizer) -> Counter:
    """The counter of a catalogue row; raises `ConfigError` for a name that is not one."""
    try:
        return Counter(tokenizer, _COUNTS[tokenizer])
    except KeyError:
        raise ConfigError(f"no tokenizer {tokenizer!r}: {', '.join(_COUNTS)} are known") from None


def _count_o200k(text: str) -> int:
    return _count(_vocabulary("o200k_base"), text)


def _count_cl100k(text: str) -> int:
    return _count(_vocabulary("cl100k_base"), text)


_COUNTS: dict[str, Callable[[str], int]] = {
    "o200k": _count_o200k,
    "cl100k": _count_cl100k,
    "estimate": estimate_text,
}


def _count(encode: Callable[[str], list[int]], text: str) -> int:
    total = 0
    while len(text) > PIECE:
        cut = _seam(text)
        total += len(encode(text[:cut]))
        text = text[cut:]
    return total + len(encode(text))


def _seam(text: str) -> int:
    """The last place in the first piece where cutting changes no count, or the piece's end."""
    for start in (PIECE - 1000, PIECE // 2):
        seams = [match.start() for match in _SEAM.finditer(text, start, PIECE)]
        if seams:
            return seams[-1]
    return PIECE


@cache
def _vocabulary(name: str) -> Callable[[str], list[int]]:
    from bpe_openai import get_encoding  # the wheel loads its tables for most of a second

    return get_encoding(name).encode_ordinary  # a special token's name in a text is only text


def _pages(source: Source) -> int:
    return 1 + _size(source) // PAGE_BYTES


def _size(source: Source) -> int:
    return len(source.data) * 3 // 4 if isinstance(source, Inline) else 0
