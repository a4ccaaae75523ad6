"""Estimates the token count of a text for tokenizers that are not published.

Four characters per token is wrong by -63 % on base64 and -43 % on logs. The tokens of a byte-pair
vocabulary depend on the kind of character, so each kind has its own weight. Lower-case letters are
cheap, because words are in the vocabulary. Capitals and digits are expensive, because they occur in
names, hashes and numbers that are not. The weights were fitted to exact o200k counts of 906 texts
(source code, prose, JSON, chat, tool output, base64, hex) by least squares of the relative error.
The mean error is within 3 % for each kind of text except base64 (-22 %), and nine texts in ten are
within 20 %.

Vendors without a published vocabulary use more tokens than o200k. For 29 recorded answers with
known usage the ratio was 1.08 to 1.19 (Claude 4 to 4.6) and 1.38 to 1.74 (Opus 4.8). `RATIO` is
between them, so the estimate is high for older models and low for newer ones. A learned ratio is up
to the caller, who sees the usage that the vendor reports.
"""

from math import ceil

RATIO = 1.25

SMALL = 0.226
CAPITAL = 0.75
DIGIT = 0.82
NEWLINE = 0.5
MARK = 0.48
TWO_BYTES = 0.25  # Greek, Cyrillic, accents: words of them are in the vocabulary
THREE_BYTES = 1.0  # Chinese, Japanese, Korean
FOUR_BYTES = 2.0  # emoji

_KINDS = (
    (bytes(range(0x61, 0x7B)), SMALL),
    (bytes(range(0x41, 0x5B)), CAPITAL),
    (bytes(range(0x30, 0x3A)), DIGIT),
    (b"\n", NEWLINE),
    (
        bytes(set(range(0x21, 0x7F)) - {*b"0123456789"} - {*range(0x41, 0x5B), *range(0x61, 0x7B)}),
        MARK,
    ),
    (bytes(range(0xC0, 0xE0)), TWO_BYTES),
    (bytes(range(0xE0, 0xF0)), THREE_BYTES),
    (bytes(range(0xF0, 0x100)), FOUR_BYTES),
)


def estimate_text(text: str) -> int:
    """The estimated token count; never raises, and is 0 only for an empty text."""
    if not text:
        return 0
    data = text.encode("utf-8", "surrogatepass")
    total = 0.0
    for kind, price in _KINDS:
        total += (len(data) - len(data.translate(None, kind))) * price
    return max(1, ceil(total * RATIO))
