"""The names in a text: paths, errors, symbols, hashes and numbers.

Summaries often lose these names, and agents often need them. One regular expression finds them,
always as a verbatim part of the text. Each alternative starts only where a word or path starts, so
the cost is linear for any text. Runs of plain words are skipped first. Bare numbers of one or two
digits and line numbers are not names. Escapes such as `\\n` in the text of a result are no letters:
`\\nThe` is not the name `nThe`.
"""

import errno
import re
from collections.abc import Iterator

from weft.lazy import lazy_pattern

NAME_KINDS = ("path", "error", "symbol", "hash", "number")

GROUP_SEPARATORS = " \u00a0\u2009\u202f'\u2019"
"""Thousands separators besides the comma. Two numbers separated by a plain space may therefore be
read as one name, which is still a verbatim part of the text."""

Name = tuple[str, str]
"""The kind of a name, and its verbatim spelling."""

_NAME_PATTERN = r"""
      (?P<path> https?://[^\s<>"'`)\]\\]+[^\s<>"'`)\].,;:!?\\]
              # a path with a slash
              | (?<![\w/.@+<-]) (?:~|[A-Za-z]:)? (?:[\w.@+-]*/)+ \.?[\w@+-] (?:[\w.@+-]*[\w/])?
              # the name of a file, but no method call such as db.log(
              | (?<![\w/.@+-]) [\w-]+ (?:\.[\w-]+)* \. (?:py|pyi|js|mjs|ts|tsx|jsx|json|jsonl|toml
                    |yaml|yml|md|rst|txt|rs|go|c|h|cc|cpp|hpp|java|kt|rb|php|sh|sql|html|css|csv
                    |lock|cfg|ini|log|db|ipynb|exs?|heex|vue|svelte|scss|swift|cs|lua|xml|proto)
                \b (?! \( ) )
    | (?P<error> \b [A-Z]\w* (?:Error|Exception|Warning|Failure|Refused|Timeout) \b
              | \b (?:ERRNO) \b                                           # ENOENT
              | \b [A-Z]{1,3} \d{3,4} \b                                  # E501, TS2345
              | \b SIG[A-Z]{3,} \b )
    | (?P<hash> \b [0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12} \b         # a UUID
              # other hexadecimal ids, with a digit and a letter
              | \b (?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f]) [0-9a-f]{6,64} \b )
    | (?P<symbol> ` [^`\n]{2,60} `
              | (?<![\w.]) [A-Za-z_]\w*+ (?:(?:\.|::)[A-Za-z_]\w*+)++      # os.path, std::move
              | (?<![\w-]) [A-Za-z]\w*+ (?:-[A-Za-z]\w*+)*+ -\d\w*+ (?:[-.]\w++)*+  # gpt-4.1
              | (?<![\w-]) [A-Za-z]++ (?:-[A-Za-z]++)++ \d\w*+             # us-east1
              | (?<![\w-]) [A-Za-z]\w*+ (?:-\w++)++ \.\d++                # llama-v3.1
              | (?<![\w.@]) @ [A-Za-z]\w{2,}                              # @pytest
              | \b [A-Za-z_]\w*_\w+ \b                                   # max_tokens
              | \b [a-z]+ (?:[A-Z][a-z0-9]+)+ \b                          # maxTokens
              | \b (?:[A-Z][a-z0-9]+){2,} \b                              # MaxTokens
              | \b [vV]? \d+ \. \d+ (?:\.\d+)+ (?:[-+.]\w+)*             # v1.2.3
              | \b [A-Za-z]{2,}\d[A-Za-z0-9]* \b                         # sha256
              | (?<!\w) --? [a-z][\w-]{2,} )                              # --no-cache
    | (?P<number> (?<![\w.,]) [$€£] (?: \d{1,3} (?:SEPARATOR\d{3})+ | \d+ ) (?:[.,]\d+)?
                [kKmMbB]? (?!\w)                                          # $1,200.50, €7k
              | (?<![\w.-]) \d{4}-\d{2}-\d{2} (?![\w-])                   # 2026-11-16
              | (?<![\w.]) \d{1,3} (?:,\d{3})+ (?:\.\d+)? %? (?!\w)       # 1,234,567.8
              | (?<![\w.,:/-]) \d{1,3} (?:SEPARATOR\d{3})+ (?:[.,]\d+)? %? (?!\w)  # 48 211
              | (?<![\w.]) \d+ (?:\.\d+)+ (?:%|ms|s|k|kb|mb|gb)? (?!\w)   # 1.5s
              | (?<![\w.]) \d+ \s? (?:%|ms|px|kb|mb|gb|KB|MB|GB) (?!\w)   # 20 ms, 5%
              | (?<![\w.]) \d+ (?:\.\d+)? (?:r?em|v[hw]|pt|fr|deg) (?!\w)  # 1.5rem
              # 8080; an arrow or a tab follows a line number in a listing of a file
              | (?<![\w.]) \d{3,} (?![\w.→\t]) )
"""
"""One group for each kind. `SEPARATOR` is replaced with the thousands separators, and `ERRNO` with
the names of the errors of the operating system."""

_PLAIN = r"""
    (?<!\w)
    (?: [A-Za-z][a-z]*+ [.,;:!?)]? (?: \s++ | \Z ) )++
"""
"""Runs of plain words, which are most of any text and cannot start a name. They are matched first,
because otherwise every other alternative would be tried at each word."""

_START = r"(?: (?<!\w) (?= [\w/~.@+\-`$€£] ) | (?= https?:// | ` ) )"
"""Where a name may start: at a word or a symbol; inside a word only a URL or a backquote."""

_NAME = lazy_pattern(
    f"{_PLAIN} | {_START} (?: {_NAME_PATTERN} )".replace(
        "SEPARATOR", f"[,{GROUP_SEPARATORS}]"
    ).replace("ERRNO", "|".join(errno.errorcode.values())),
    re.VERBOSE,
)

_ESCAPE = lazy_pattern(r"\\+(?:(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2})|.)")
"""An escape in the text of a string literal. Group 1 is a letter of another script."""

_LETTER = "\uffff"
"""Replaces an escaped letter while names are read: a word with one has no names."""

_SPACED = lazy_pattern(rf"[0-9][{GROUP_SEPARATORS}](?:\d{{3}}(?!\d)|%|ms|px|[kmgKMG][bB])")
"""A number with a separator that is not a comma, such as `48 211` or `20 ms`."""


def without_escapes(text: str) -> str:
    """The text as names are read in it: with a space for each escape, and without the words that
    have an escaped letter."""
    if "\\" not in text:
        return text
    text = _ESCAPE.sub(lambda match: _LETTER if match[1] else " ", text)
    return " ".join(word for word in text.split(" ") if _LETTER not in word)


def find_names(text: str) -> Iterator[Name]:
    """Each name of a text, in order, repeats included."""
    for match in _NAME.finditer(without_escapes(text)):
        kind = match.lastgroup
        if kind is not None:
            yield kind, match[kind].strip("`")


class NameReader:
    """Finds the names of many lines, several times as fast as `find_names`.

    Most words of a conversation are repeated, so each distinct word is read once. Only numbers and
    names in backquotes contain spaces. A line that may have such a name is read as a whole.
    """

    def __init__(self) -> None:
        self._words: dict[str, tuple[Name, ...]] = {}
        self._lines: dict[str, list[Name]] = {}

    def read(self, line: str) -> list[Name]:
        """The names of a line, in order."""
        if line.count("`") > 1 or _SPACED.search(line):
            line_names = self._lines.get(line)
            if line_names is None:
                line_names = self._lines[line] = list(find_names(line))
            return line_names
        words = self._words
        names: list[Name] = []
        for word in line.split():
            word_names = words.get(word)
            if word_names is None:
                is_plain = word.isascii() and word.isalpha() and word.islower()
                word_names = words[word] = () if is_plain else tuple(find_names(word))
            if word_names:
                names += word_names
        return names
