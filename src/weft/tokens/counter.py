"""Counts the tokens of messages.

OpenAI's vocabularies come inside a wheel (`bpe_openai`), so their counts are exact and need no
network. It is loaded when the first text is counted. The tokens of other vendors are estimated.

Vendors add tokens of their own around messages, calls and results. These are constants here. Images
are counted by the vendor's formula (`images`). Media are never tokenised as text, because a model
does not read base64.

A request also has the definitions of its tools, and a hidden prompt that some vendors add if there
are any (`count_tools`).
"""

import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder
from importlib.util import find_spec, module_from_spec
from typing import Any, Literal

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

from .estimate import estimate_text
from .images import image_tokens

Tokenizer = Literal["o200k", "cl100k", "estimate"]

# https://cookbook.openai.com/examples/how_to_count_tokens_with_tiktoken
PER_MESSAGE = 4  # role and borders
PER_CALL = 8  # a call's frame: type, id and the names of its members
PER_RESULT = 6
PAGE = 2000  # a page of a document, text and picture of it
PAGE_BYTES = 50_000
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
        definitions = sum(
            self.text(f"{tool.name} {tool.description or ''} ")
            + self.text(json.dumps(tool.parameters or {}, ensure_ascii=False, default=str))
            for tool in tools
        )
        return definitions + self.tool_prompt

    def request(self, messages: Iterable[Message], tools: Sequence[Tool] = ()) -> int:
        """The tokens of a whole request."""
        return self.tools(tools) + sum(self.message(message) for message in messages)

    def message(self, message: Message) -> int:
        """The tokens of a whole message, its name, calls, results and media included."""
        name_tokens = self.text(message.name) + 1 if message.name else 0
        first = message.blocks[0] if len(message.blocks) == 1 else None
        if type(first) is Text:  # most messages of a long conversation
            return PER_MESSAGE + name_tokens + self.text(first.text)
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
                return image_tokens(block, self.images, self.image_scale)
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


def counter_for_model(model: Model) -> Counter:
    """The counter for a model of the catalogue."""
    return structs.replace(
        counter_for(model.tokenizer),
        images=model.images,
        image_scale=model.image_scale,
        tool_prompt=model.tool_prompt,
    )


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
