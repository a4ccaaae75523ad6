"""Counts the tokens of messages.

OpenAI's vocabularies come inside a wheel (`bpe_openai`), so their counts are exact and need no
network. It is loaded when the first text is counted. The tokens of other vendors are estimated.

Vendors add tokens of their own around messages, calls and results. These are constants here, and so
are images. Media are never tokenised as text, because a model does not read base64.
"""

import json
import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder
from importlib.util import find_spec, module_from_spec
from typing import Any, Literal

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


class Counter(Struct, frozen=True):
    """Counts tokens with one tokenizer, with the vendor's tokens around messages and blocks."""

    tokenizer: Tokenizer
    text: Callable[[str], int]

    def message(self, message: Message) -> int:
        """The tokens of a whole message, its name, calls, results and media included."""
        name_tokens = self.text(message.name) + 1 if message.name else 0
        return PER_MESSAGE + name_tokens + sum(self.block(block) for block in message.blocks)

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
                return len(block.data) // 4  # encrypted: the content cannot be counted
            case Opaque():
                return self.text(json.dumps(block.raw, ensure_ascii=False, default=str))


def counter_for(tokenizer: Tokenizer) -> Counter:
    """The counter for a tokenizer name; raises `ConfigError` if it is unknown."""
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


def _count(count: Callable[[str], int], text: str) -> int:
    try:
        return count(text)
    except UnicodeEncodeError:  # lone surrogates, which JSON lets through and UTF-8 does not
        return count(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


@cache
def _vocabulary(name: str) -> Callable[[str], int]:
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
    return 1 + _size(source) // PAGE_BYTES


def _size(source: Source) -> int:
    return len(source.data) * 3 // 4 if isinstance(source, Inline) else 0
