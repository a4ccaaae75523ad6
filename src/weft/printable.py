"""Make untrusted text safe for a terminal or a log line.

A conversation may contain anything, and a terminal executes escape sequences: they can clear the
screen, write to the clipboard (OSC 52), rename the window or hide text. Bidirectional overrides
show text in another order. Such characters are not removed but replaced by visible ones. Line feeds
and tabs stay.

For titles and excerpts, `without_escape_sequences` and `without_bold` remove formatting.
`encodable` makes text that UTF-8 can encode.

https://www.unicode.org/reports/tr36/ and https://invisible-island.net/xterm/ctlseqs/ctlseqs.html
"""

import re
from typing import Any, cast

from weft.lazy import lazy_pattern

_UNSAFE = lazy_pattern(
    "[\x00-\x08\x0b-\x1f"  # C0, except tab and line feed
    "\x7f-\x9f"  # DEL and C1: U+009B begins a sequence as ESC [ does
    "\u2028\u2029"  # line breaks for some programs only
    "\u202a-\u202e\u2066-\u2069"  # bidirectional embeddings, overrides and isolates
    "\ud800-\udfff]"  # surrogates, which UTF-8 cannot encode
)
_DIRECTION = lazy_pattern("[\u202a-\u202e\u2066-\u2069]")
_INVISIBLE = lazy_pattern(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad"  # C0, except white space; C1; soft hyphen
    "\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b\u200e\u200f\u2028-\u202e"  # zero-width space, marks of direction, line breaks
    "\u2060\u2065-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"  # not U+2061-2064: they are operators
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    # Joiners belong to emoji and to Persian and Indic words.
    "|(?<![^\x00-\x7f])[\u200c\u200d]"
)
_ESCAPE_SEQUENCE = lazy_pattern(
    r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])"
)
_BOLD = lazy_pattern(r"(?<![\w*])\*\*(?=[^\s*])(.+?)(?<=[^\s*])\*\*(?![\w*])")
_VISIBLE_WHITESPACE = str.maketrans({"\n": "␊", "\t": "␉"})


def clean_text(text: str) -> str:
    """The text with unsafe characters replaced by visible ones, and CR LF by LF.

    Line feeds and tabs stay.
    """
    return _UNSAFE.sub(_visible, text.replace("\r\n", "\n"))


def clean_line(text: str) -> str:
    """Like `clean_text`, with line feeds and tabs replaced too, for text on one line."""
    return clean_text(text).translate(_VISIBLE_WHITESPACE)


def show_direction(text: str) -> str:
    """The text with `⟨U+202E⟩` for characters that turn the text after them around.

    https://www.unicode.org/reports/tr36/#Bidirectional_Text_Spoofing
    """
    return _DIRECTION.sub(_code_point, text)


def show_invisible(text: str) -> str:
    """Like `show_direction`, for all control characters and characters that show nothing.

    For text in which they have no use, such as formulas. In other text, they may be part of words.
    https://www.unicode.org/reports/tr44/#Default_Ignorable_Code_Point
    """
    return _INVISIBLE.sub(_code_point, text)


def encodable(text: str) -> str:
    r"""The text with surrogate pairs joined, and U+FFFD for lone surrogates.

    UTF-8 cannot encode surrogates. They come from JSON, which may escape half of a pair (`\ud83d`),
    and from file names that are not UTF-8: Python decodes their bytes to lone surrogates.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def encodable_json(value: Any) -> Any:
    """A JSON value with `encodable` applied to every string in it."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        members = cast(dict[str, Any], value)
        return {encodable(key): encodable_json(item) for key, item in members.items()}
    if isinstance(value, list):
        return [encodable_json(item) for item in cast(list[Any], value)]
    return value


def without_escape_sequences(text: str) -> str:
    """The text without escape sequences, such as colours."""
    return _ESCAPE_SEQUENCE.sub("", text) if "\x1b" in text else text


def without_bold(text: str) -> str:
    """The text without Markdown's `**` around bold text; other stars, as in `2**10`, stay."""
    return _BOLD.sub(r"\1", text) if "**" in text else text


def escape_json(text: str) -> str:
    r"""JSON text with unsafe characters as `\uXXXX` escapes; it parses to the same value.

    Unsafe characters must be inside of strings, as in the output of JSON encoders.
    """
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _code_point(match: re.Match[str]) -> str:
    return f"⟨U+{ord(match[0]):04X}⟩"


def _visible(match: re.Match[str]) -> str:
    r"""`\x1b` becomes `␛`, U+202E becomes `<U+202E>`; C1 and surrogates become U+FFFD."""
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if code < 0xA0 or 0xD800 <= code < 0xE000:
        return "\ufffd"
    return f"<U+{code:04X}>"
