"""Splits text into words, in the same way for every store, so that search results agree."""

import re
from unicodedata import combining, normalize

WORD = re.compile(r"[^\W_]+")


def split_words(text: str) -> list[str]:
    """The words, in lower case and without accents."""
    plain = normalize("NFKD", text).casefold()
    return WORD.findall("".join(character for character in plain if not combining(character)))
