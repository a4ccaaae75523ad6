"""Entities: the paths, symbols, errors, hashes and figures by which work is found again.

They are what a summary most often loses and an agent most often needs. Recognition is one
regular expression, so that a long thread is read once; what it finds is always a verbatim part
of the text. Each alternative can begin only where a word or path begins, so that no text, however
made, is read more than a fixed number of times; plain words are passed over before any is tried.
A bare figure of one or two digits, or one that numbers a line, is no entity.
"""

import re
from collections.abc import Iterator

KINDS = ("path", "error", "symbol", "hash", "number")

WEIGHTS = {"path": 3.0, "error": 3.0, "symbol": 2.0, "hash": 2.0, "number": 1.5}
"""How much each kind is worth in a summary, before rarity."""

SPACES = " \u00a0\u2009\u202f'\u2019"
"""What may stand between the thousands of a figure, beside a comma. A plain blank may also stand
between two figures of a list: as an entity that is one, in the words that were said."""

_KINDS = r"""
      (?P<path> https?://[^\s<>"'`)\]]+[^\s<>"'`)\].,;:!?]
              | (?<![\w/.@+-]) (?:~|[A-Za-z]:)? (?:[\w.@+-]*/)+ [\w@+-] (?:[\w.@+-]*[\w/])?
              | (?<![\w/.@+-]) [\w-]+ \. (?:py|pyi|js|mjs|ts|tsx|jsx|json|jsonl|toml|yaml|yml|md|rst
                    |txt|rs|go|c|h|cc|cpp|hpp|java|kt|rb|php|sh|sql|html|css|csv|lock|cfg|ini|log
                    |db|ipynb)
                \b (?! \( ) )
    | (?P<error> \b [A-Z]\w* (?:Error|Exception|Warning|Failure|Refused|Timeout) \b
              | \b E[A-Z]{4,} \b | \b [A-Z]{1,3} \d{3,4} \b | \b SIG[A-Z]{3,} \b )
    | (?P<hash> \b [0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12} \b
              | \b (?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f]) [0-9a-f]{7,64} \b )
    | (?P<symbol> ` [^`\n]{2,60} `
              | (?<![\w.]) [A-Za-z]\w*+ (?:\.[A-Za-z_]\w*+)++ (?= \( )
              | \b [A-Za-z_]\w*_\w+ \b
              | \b [a-z]+ (?:[A-Z][a-z0-9]+)+ \b
              | \b (?:[A-Z][a-z0-9]+){2,} \b
              | (?<!\w) --? [a-z][\w-]{2,} )
    | (?P<number> (?<![\w.,]) [$€£] (?: \d{1,3} (?:GROUP\d{3})+ | \d+ ) (?:[.,]\d+)?
                [kKmMbB]? (?!\w)
              | (?<![\w.-]) \d{4}-\d{2}-\d{2} (?![\w-])
              | (?<![\w.]) \d{1,3} (?:,\d{3})+ (?:\.\d+)? %? (?!\w)
              | (?<![\w.,:/-]) \d{1,3} (?:GROUP\d{3})+ (?:[.,]\d+)? %? (?!\w)
              | (?<![\w.]) \d+ (?:\.\d+)+ (?:%|ms|s|k|kb|mb|gb)? (?!\w)
              | (?<![\w.]) \d+ \s? (?:%|ms|px|kb|mb|gb|KB|MB|GB) (?!\w)
              | (?<![\w.]) \d{3,} (?![\w.→\t]) )
"""

_PLAIN = r"""
    (?<!\w)
    (?: (?: [A-Za-z][a-z]*+ | (?= [a-z0-9]*[g-z] ) [a-z][a-z0-9]*+ ) [.,;:!?)]? (?: \s++ | \Z ) )++
"""
"""Words that no entity can begin with, up to a blank each: most of what is ever said. They are
passed over in one run, because every other alternative would be tried at each of their letters."""

_START = r"(?: (?<!\w) (?= [\w/~.@+\-`$€£] ) | (?= https?:// | ` ) )"
"""Where an entity may begin: at a word or a sign, within a word only an address or a quote."""

_ENTITY = re.compile(
    f"{_PLAIN} | {_START} (?: {_KINDS} )".replace("GROUP", f"[,{SPACES}]"), re.VERBOSE
)


def find_entities(text: str) -> Iterator[tuple[str, str]]:
    """Each entity of a text as its kind and its verbatim spelling, in order, repeats included."""
    for match in _ENTITY.finditer(text):
        kind = match.lastgroup
        if kind is not None:
            yield kind, match[kind].strip("`")
