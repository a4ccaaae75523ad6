"""The names in a text: paths, errors, symbols, hashes and figures.

Summaries often lose these names, and agents often need them. One regular expression finds them,
always as a verbatim part of the text. Each alternative starts only where a word or path starts, so
the cost is linear for any text. Runs of plain words are skipped first. A figure of one or two
digits, or a line number, is not a name.
"""

import re
from collections.abc import Iterator

from weft.lazy import lazy_pattern

KINDS = ("path", "error", "symbol", "hash", "number")

SPACES = " \u00a0\u2009\u202f'\u2019"
"""Thousands separators besides the comma. Two numbers separated by a plain space may therefore be
read as one name, which is still a verbatim part of the text."""

Name = tuple[str, str]
"""The kind of a name, and its verbatim spelling."""

_KINDS = r"""
      (?P<path> https?://[^\s<>"'`)\]\\]+[^\s<>"'`)\].,;:!?\\]
              | (?<![\w/.@+<-]) (?:~|[A-Za-z]:)? (?:[\w.@+-]*/)+ \.?[\w@+-] (?:[\w.@+-]*[\w/])?
              | (?<![\w/.@+-]) [\w-]+ (?:\.[\w-]+)* \. (?:py|pyi|js|mjs|ts|tsx|jsx|json|jsonl|toml
                    |yaml|yml|md|rst|txt|rs|go|c|h|cc|cpp|hpp|java|kt|rb|php|sh|sql|html|css|csv
                    |lock|cfg|ini|log|db|ipynb|exs?|heex|vue|svelte|scss|swift|cs|lua|xml|proto)
                \b (?! \( ) )
    | (?P<error> \b [A-Z]\w* (?:Error|Exception|Warning|Failure|Refused|Timeout) \b
              | \b E[A-Z]{4,} \b | \b [A-Z]{1,3} \d{3,4} \b | \b SIG[A-Z]{3,} \b )
    | (?P<hash> \b [0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12} \b
              | \b (?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f]) [0-9a-f]{6,64} \b )
    | (?P<symbol> ` [^`\n]{2,60} `
              | (?<![\w.]) [A-Za-z_]\w*+ (?:(?:\.|::)[A-Za-z_]\w*+)++
              | (?<![\w-]) [A-Za-z]\w*+ (?:-[A-Za-z]\w*+)*+ -\d\w*+ (?:[-.]\w++)*+
              | (?<![\w-]) [A-Za-z]++ (?:-[A-Za-z]++)++ \d\w*+
              | (?<![\w-]) [A-Za-z]\w*+ (?:-\w++)++ \.\d++
              | (?<![\w.@]) @ [A-Za-z]\w{2,}
              | \b [A-Za-z_]\w*_\w+ \b
              | \b [a-z]+ (?:[A-Z][a-z0-9]+)+ \b
              | \b (?:[A-Z][a-z0-9]+){2,} \b
              | \b [vV]? \d+ \. \d+ (?:\.\d+)+ (?:[-+.]\w+)*
              | \b [A-Za-z]{2,}\d[A-Za-z0-9]* \b
              | (?<!\w) --? [a-z][\w-]{2,} )
    | (?P<number> (?<![\w.,]) [$€£] (?: \d{1,3} (?:GROUP\d{3})+ | \d+ ) (?:[.,]\d+)?
                [kKmMbB]? (?!\w)
              | (?<![\w.-]) \d{4}-\d{2}-\d{2} (?![\w-])
              | (?<![\w.]) \d{1,3} (?:,\d{3})+ (?:\.\d+)? %? (?!\w)
              | (?<![\w.,:/-]) \d{1,3} (?:GROUP\d{3})+ (?:[.,]\d+)? %? (?!\w)
              | (?<![\w.]) \d+ (?:\.\d+)+ (?:%|ms|s|k|kb|mb|gb)? (?!\w)
              | (?<![\w.]) \d+ \s? (?:%|ms|px|kb|mb|gb|KB|MB|GB) (?!\w)
              | (?<![\w.]) \d+ (?:\.\d+)? (?:r?em|v[hw]|pt|fr|deg) (?!\w)
              | (?<![\w.]) \d{3,} (?![\w.→\t]) )
"""

_PLAIN = r"""
    (?<!\w)
    (?: (?: [A-Za-z][a-z]*+ | (?= [a-z0-9]*[g-z] ) [a-z][a-z]*+ ) [.,;:!?)]? (?: \s++ | \Z ) )++
"""
"""Runs of plain words, which are most of any text and cannot start a name. They are matched first,
because otherwise every other alternative would be tried at each letter."""

_START = r"(?: (?<!\w) (?= [\w/~.@+\-`$€£] ) | (?= https?:// | ` ) )"
"""Where a name may start: at a word or a symbol; inside a word only a URL or a backquote."""

_ENTITY = lazy_pattern(
    f"{_PLAIN} | {_START} (?: {_KINDS} )".replace("GROUP", f"[,{SPACES}]"), re.VERBOSE
)

_SPACED = lazy_pattern(rf"[0-9][{SPACES}](?:\d{{3}}(?!\d)|%|ms|px|[kmgKMG][bB])")
"""A figure with a space in it, such as `48 211` or `20 ms`."""


def find_entities(text: str) -> Iterator[Name]:
    """Each name of a text, in order, repeats included."""
    for match in _ENTITY.finditer(text):
        kind = match.lastgroup
        if kind is not None:
            yield kind, match[kind].strip("`")


class NameReader:
    """Finds the names of many lines, several times as fast as `find_entities`.

    Most words of a conversation are repeated, so each distinct word is read once. Only figures and
    names in backquotes have spaces; a line that may have one is read as a whole.
    """

    def __init__(self) -> None:
        self._words: dict[str, tuple[Name, ...]] = {}
        self._lines: dict[str, list[Name]] = {}

    def read(self, line: str) -> list[Name]:
        """The names of a line, in order."""
        if line.count("`") > 1 or _SPACED.search(line):
            line_names = self._lines.get(line)
            if line_names is None:
                line_names = self._lines[line] = list(find_entities(line))
            return line_names
        words = self._words
        names: list[Name] = []
        for word in line.split():
            word_names = words.get(word)
            if word_names is None:
                is_plain = word.isascii() and word.isalpha() and word.islower()
                word_names = words[word] = () if is_plain else tuple(find_entities(word))
            if word_names:
                names += word_names
        return names
