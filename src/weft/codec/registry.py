"""The protocols that Weft speaks. A codec is imported when it is first asked for.

To add a protocol, add its package here: `docs/architecture.md`, "Add a protocol".
"""

from collections.abc import Iterator, Mapping
from importlib import import_module

from .base import Codec

PACKAGES = {
    "anthropic": "weft.codec.anthropic",
    "openai-chat": "weft.codec.chat",
    "openai-responses": "weft.codec.responses",
    "gemini": "weft.codec.gemini",
}
"""By protocol: the package that holds its `CODEC`."""


class Codecs(Mapping[str, Codec]):
    """The codecs by protocol."""

    def __getitem__(self, protocol: str) -> Codec:
        return import_module(PACKAGES[protocol]).CODEC

    def __contains__(self, protocol: object) -> bool:
        return protocol in PACKAGES

    def __iter__(self) -> Iterator[str]:
        return iter(PACKAGES)

    def __len__(self) -> int:
        return len(PACKAGES)


CODECS = Codecs()
