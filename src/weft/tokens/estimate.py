"""How many tokens a text has for a tokenizer that nobody publishes.

Four characters a token is wrong by -63 % on base64 and -43 % on logs. What a byte-pair vocabulary
charges for depends on the kind of character, so each kind has its own price: small letters are
cheap because words are in the vocabulary, capitals and digits are dear because they come in
names, hashes and figures that are not. The prices were fitted by least squares of the relative
error to exact o200k counts of 906 texts (source code, prose, JSON, chat, tool output, base64, hex):
the mean is within 3 % for each kind but base64 (-22 %), nine texts in ten within 20 %.

Those who publish no vocabulary write more tokens than o200k. For 29 recorded answers with known
usage the ratio was 1.08 to 1.19 (Claude 4 to 4.6) and 1.38 to 1.74 (Opus 4.8); `RATIO` stands
between, so the estimate is high for the older and low for the newer. A learned ratio belongs to
the caller, who sees the usage that the vendor reports.
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
    """About how many tokens; never raises, never 0 for a text that is not empty."""
    if not text:
        return 0
    data = text.encode("utf-8", "surrogatepass")
    total = 0.0
    for kind, price in _KINDS:
        total += (len(data) - len(data.translate(None, kind))) * price
    return max(1, ceil(total * RATIO))
