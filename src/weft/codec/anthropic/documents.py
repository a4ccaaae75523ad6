"""Documents that are words, which this wire takes as they are:
https://platform.claude.com/docs/en/build-with-claude/citations#document-types

In the model they are files of plain text, as on every other wire. Nested content is several texts;
they are joined for the others, and its own form stays beside them. Nested images have no home.
"""

from base64 import b64encode
from typing import Any, cast

from weft.codec.base import members
from weft.model import Inline, JsonObject

PLAIN = "text/plain"


def read_words(source: Any) -> tuple[Inline, JsonObject] | None:
    """The words of a source, and what this wire wants back beside them; `None` where it holds
    anything else."""
    match source:
        case {"type": "text", "media_type": "text/plain", "data": str(words), **rest} if not rest:
            return _inline(words), {}
        case {"type": "content", "content": str(words), **rest} if not rest:
            return _inline(words), {"source": source}
        case {"type": "content", "content": list(), **rest} if not rest:
            texts = [_text(part) for part in cast(list[Any], source["content"])]
            if None in texts:
                return None
            return _inline("\n".join(cast(list[str], texts))), {"source": source}
        case _:
            return None


def write_words(words: str) -> JsonObject:
    """The source that says these words."""
    return {"type": "text", "media_type": PLAIN, "data": words}


def _inline(words: str) -> Inline:
    return Inline(b64encode(words.encode("utf-8", "surrogatepass")).decode(), PLAIN)


def _text(raw: Any) -> str | None:
    part = members(raw) or {}
    said = part.get("text")
    return said if part.get("type") == "text" and isinstance(said, str) else None
