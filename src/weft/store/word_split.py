"""What a word is: the same on every store, so that a search finds the same everywhere."""

import re
from unicodedata import combining, normalize

WORD = re.compile(r"[^\W_]+")


def split_words(text: str) -> list[str]:
    """The words alone, in small letters without accents."""
    plain = normalize("NFKD", text).casefold()
    return WORD.findall("".join(sign for sign in plain if not combining(sign)))
