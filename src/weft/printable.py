"""Text from outside, made safe for a terminal or a log line.

A conversation may hold anything, and a terminal obeys what it is sent: escape sequences can clear
the screen, write to the clipboard (OSC 52), rename the window or hide text; bidirectional overrides
show text in another order than it has. Nothing is removed: each such character is replaced by one
that can be seen. Line feeds and tabs stay.

https://www.unicode.org/reports/tr36/ and https://invisible-island.net/xterm/ctlseqs/ctlseqs.html
"""

import re

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f"  # C0, but for tab and line feed
    "\x7f-\x9f"  # DEL and C1: U+009B begins a sequence as ESC [ does
    "\u2028\u2029"  # line breaks that not every program takes for one
    "\u202a-\u202e\u2066-\u2069"  # bidirectional embeddings, overrides and isolates
    "\ud800-\udfff]"  # half a character, which no UTF-8 stream can write
)
_BREAKS = str.maketrans({"\n": "␊", "\t": "␉"})


def clean_text(text: str) -> str:
    """The text with every character that a terminal would obey replaced by a visible one."""
    return _UNSAFE.sub(_visible, text.replace("\r\n", "\n"))


def clean_line(text: str) -> str:
    """The same for text that has to stay on one line, such as a name."""
    return clean_text(text).translate(_BREAKS)


def escape_json(text: str) -> str:
    """JSON text with the same characters as escapes, so that it stays the same JSON."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _visible(found: re.Match[str]) -> str:
    """`\x1b` becomes `␛`, U+202E becomes `<U+202E>`."""
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if code < 0xA0 or 0xD800 <= code < 0xE000:
        return "\ufffd"
    return f"<U+{code:04X}>"
