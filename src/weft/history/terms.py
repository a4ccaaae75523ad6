"""Terms: how the text index splits, folds and stems text. Every store uses these terms.

A word gives one or more terms, all in lower case and without accents:

- A plain word is stemmed lightly: `parsers`, `parsing` and `parsed` are `pars`.
- An identifier gives its parts and the whole: `getUserById` and `get_user_by_id` both give `get`,
  `user`, `by`, `id` and `getuserbyid`. Paths and dotted names are split in the same way.
- Text without spaces between words (Chinese, Japanese, Korean, Thai and others) gives each
  character and each pair of neighbouring characters. `用Python写` has the word `Python`.

A stored index depends on these rules: a change of them needs a migration that empties the index.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from unicodedata import combining, normalize

from weft.lazy import lazy_pattern

LONGEST_TERM = 64
"""Longer terms are truncated. A long base64 string is found by its first characters."""

_SLICE = 1 << 16
"""The words of a larger text are found slice by slice: a list of them all takes ten times as much
memory as the text."""

_CACHE_SIZE = 100_000
_CACHED_LENGTH = 40  # longer words rarely occur twice

# Blocks of scripts that write no spaces between words, and of Hangul, whose particles have none.
_UNSPACED_LETTERS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua9e0-\ua9ff\uaa60-\uaa7f\uac00-\ud7af\uf900-\ufaff"
    "\uff66-\uff9f\uffa0-\uffdc\U00020000-\U0003ffff"
)
_LETTER = rf"[^\W{_UNSPACED_LETTERS}]"
_WORD = lazy_pattern(rf"[{_UNSPACED_LETTERS}]+|{_LETTER}+(?:[-.'’]{_LETTER}+)*")
_ASCII_WORD = lazy_pattern(r"\w+(?:[-.'’]\w+)*")  # the same for ASCII text, in half of the time
# Characters that are part of no word, and do not change if the text before or after them does.
_BETWEEN_WORDS = lazy_pattern(
    r"[^\w\-.'\x80-\U0010ffff]|[\u2000-\u2018\u201a-\u206f\u3000-\u3002\uff01-\uff0f\uff1a-\uff20]"
)
_UNSPACED = lazy_pattern(f"[{_UNSPACED_LETTERS}]+")
_PART = lazy_pattern(r"[^\W_]+")
_CAMEL_PART = lazy_pattern(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|[a-z]+|\d+")
_PLURAL = lazy_pattern("[A-Z]{2,}s")  # APIs, URLs
_NUMBERED = lazy_pattern(r"([a-z]{3,})\d+")  # module17
# Words that occur in most texts, so that they say nothing about what a text is about.
_STOP_WORDS = """
a about above after again against all also am an and any are as at be because been before being
below between both but by can cannot could did do does doing down during each either else ever few
for from further get gets getting give go goes going got had has have having he her here hers
herself him himself his how however i if in into is it its itself just let like made make many may
me might more most much must my myself near need no nor not now of off often on once one only or
other our ours out over own per please put quite rather really said same say see shall she should
show since so some still such take tell than that the their theirs them then there these they
thing things this those through to too under until up us use very want was we were what whatever
when where whether which while who whom whose why will with within without would yes yet you your
yours yourself don didn doesn isn wasn aren weren won wouldn couldn shouldn haven hasn hadn ll ve
re
"""


class Word(NamedTuple):
    """The terms of one word.

    A text with the word has all `required` terms. `extra` are more terms of the same word.
    `identifier` is the one that stands for a whole identifier: its parts without separators. It is
    empty for other words.
    """

    required: tuple[str, ...]
    extra: tuple[str, ...] = ()
    identifier: str = ""

    @property
    def is_stop_word(self) -> bool:
        return len(self.required) == 1 and not self.extra and self.required[0] in STOP_TERMS


def count_terms(text: str) -> dict[str, int]:
    """How often each term occurs in a text."""
    counts: dict[str, int] = {}
    count, cached = counts.get, _cache.get
    for word, times in Counter(_find_words(text)).items():
        required, extra, _ = cached(word) or split_word(word)
        for term in required + extra if extra else required:
            counts[term] = count(term, 0) + times
    return counts


def split_words(text: str) -> list[Word]:
    """The words of a text, in order."""
    return [word for word in map(split_word, _find_words(text)) if word.required]


def _find_words(text: str) -> Iterable[str]:
    """The words of a text. Where the script changes to one without spaces, a new word begins."""
    if len(text) <= _SLICE:
        return _slice_words(text)
    return (word for piece in _slices(text) for word in _slice_words(piece))


def _slice_words(text: str) -> list[str]:
    return _ASCII_WORD.findall(text) if text.isascii() else _WORD.findall(normalize("NFC", text))


def _slices(text: str) -> Iterator[str]:
    """A large text in slices that begin where no word goes on."""
    start = 0
    while (end := _BETWEEN_WORDS.search(text, start + _SLICE)) is not None:
        yield text[start : end.start()]
        start = end.start()
    yield text[start:]


def split_word(word: str) -> Word:
    """The terms of one word or identifier."""
    terms = _cache.get(word)
    if terms is None:
        terms = _split(word)
        if len(word) <= _CACHED_LENGTH:
            if len(_cache) >= _CACHE_SIZE:
                _cache.clear()
            _cache[word] = terms
    return terms


_cache: dict[str, Word] = {}


def stem(word: str) -> str:
    """A word without its common English endings.

    Lighter than Porter's algorithm, because two words that only look related should stay apart.
    """
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending, minimum in _ENDINGS:
        if word.endswith("eed"):  # need, speed, agreed
            break
        if word.endswith(ending) and len(word) - len(ending) >= minimum:
            word = word[: -len(ending)]
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]  # running, but not falling, passing, buzzing
            break
    if len(word) > 3 and word[-1] in "ey":
        word = word[:-1] + ("i" if word[-1] == "y" else "")
    return word


# Each ending, and how many letters must be left without it.
_ENDINGS = (
    ("ation", 4),
    ("ment", 5),
    ("ingly", 3),
    ("edly", 3),
    ("ing", 3),
    ("ied", 2),
    ("ed", 3),
    ("er", 4),
    ("ly", 4),
    ("ion", 4),
)


STOP_TERMS = frozenset(map(stem, _STOP_WORDS.split()))


def _split(word: str) -> Word:
    if word.isascii() and word.isalnum():
        if word.isdigit():
            return Word((word[:LONGEST_TERM],))
        if word.isalpha() and (word[1:].islower() or word.isupper() or len(word) == 1):
            return Word((stem(word.lower()[:LONGEST_TERM]),))
    word = _without_accents(word.replace("’", "'"))
    folded = word.casefold()  # `word` keeps its case, which marks the parts of `getUserById`
    if _UNSPACED.search(folded):
        return _split_unspaced(folded)
    if "'" in folded:
        head, _, tail = folded.rpartition("'")
        if len(tail) <= 2 and head.isalpha():  # the user's, don't, they've
            return Word((stem(head),))
    pieces = [part for piece in _PART.findall(word) for part in _split_camel_case(piece)]
    if not pieces:  # only underscores
        return Word(())
    required = tuple(dict.fromkeys(stem(piece[:LONGEST_TERM]) for piece in pieces))
    joined = "".join(pieces)[:LONGEST_TERM]
    if len(pieces) > 1:
        return Word(required, (joined,), joined)
    numbered = _NUMBERED.fullmatch(joined)
    return Word(required, (stem(numbered[1]),) if numbered else ())


def _split_camel_case(piece: str) -> list[str]:
    """The parts of a camel-case piece in lower case; hashes and other ids are not split."""
    if _PLURAL.fullmatch(piece):
        return [piece[:-1].casefold()]
    has_digit = any(char.isdigit() for char in piece)
    if not piece.isascii() or (has_digit and not _is_readable(piece)):
        return [piece.casefold()]
    parts: list[str] = []
    for part in _CAMEL_PART.findall(piece):
        if parts and part.isdigit():  # `utf8` and `module17` stay one part
            parts[-1] += part
        else:
            parts.append(part.casefold())
    return parts if len(parts) > 1 else [piece.casefold()]


def _is_readable(piece: str) -> bool:
    """Whether a piece with digits is a name and not a hash.

    A name starts with a letter, has one group of digits, and an upper-case letter.
    """
    return len(re.findall(r"\d+", piece)) == 1 and piece[0].isalpha() and not piece.islower()


def _split_unspaced(folded: str) -> Word:
    """Pairs of characters, and single ones.

    Some characters are in a script without spaces only in their compatibility form, so that the
    word may have other parts; these are split as usual.
    """
    required: dict[str, None] = {}
    characters: dict[str, None] = {}
    for run in _UNSPACED.findall(folded):
        if len(run) > 1:  # a single character is required below
            characters.update(dict.fromkeys(run))
        required.update(
            dict.fromkeys(run[start : start + 2] for start in range(max(1, len(run) - 1)))
        )
    others = _PART.findall(_UNSPACED.sub(" ", folded))
    required.update(dict.fromkeys(stem(part[:LONGEST_TERM]) for part in others))
    return Word(tuple(required), tuple(characters))


def _without_accents(word: str) -> str:
    """The word without accents, in compatibility form, such as ASCII for full-width letters."""
    if word.isascii():
        return word
    # Hangul must stay composed: its syllables are the characters that are paired.
    decomposed = normalize("NFKD", word)
    return normalize("NFKC", "".join(char for char in decomposed if not combining(char)))
