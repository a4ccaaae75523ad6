"""Formulas in Markdown: TeX between dollar signs, or in `\\(x\\)` and `\\[x\\]`, becomes MathML.

The TeX is untrusted, and so is what the converter makes of it: it copies texts, links and styles
of the TeX as they are. Only known elements, known attributes and escaped text are written here, and
the result goes through the page's sanitiser like all HTML. Lengths are limited, so that a formula
cannot fill the page or cover other text. What cannot be converted stays exactly as it was written.

A dollar sign is more often a price or a variable of a shell than a formula. As in pandoc, `$` opens
a formula only before and closes it only after a character that is no space, and not inside a word
or a number. What begins with a digit and has words in it is a price: `$5 (was 7$)`.

https://pandoc.org/MANUAL.html#extension-tex_math_dollars
https://developer.mozilla.org/en-US/docs/Web/MathML/Reference/Element
"""

import re
from collections.abc import MutableMapping
from functools import lru_cache
from html import escape, unescape
from typing import Any
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert_to_element
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

from weft.printable import show_invisible

ELEMENTS = {
    *("math", "mrow", "mi", "mn", "mo", "ms", "mtext", "mspace", "mfrac", "msqrt", "mroot"),
    *("mstyle", "merror", "mpadded", "mphantom", "msub", "msup", "msubsup", "munder", "mover"),
    *("munderover", "mmultiscripts", "mprescripts", "mtable", "mtr", "mtd", "menclose"),
}
ATTRIBUTES = {
    *("accent", "accentunder", "columnalign", "columnspacing", "depth", "display", "displaystyle"),
    *("fence", "form", "height", "largeop", "linethickness", "lspace", "mathvariant", "maxsize"),
    *("minsize", "movablelimits", "notation", "rowspacing", "rspace", "scriptlevel", "separator"),
    *("stretchy", "symmetric", "width"),
}
LENGTHS = {
    **dict.fromkeys(("width", "height", "depth", "lspace", "rspace", "minsize", "maxsize"), 20.0),
    **dict.fromkeys(("columnspacing", "rowspacing"), 5.0),
    "linethickness": 1.0,
}
"""The attributes that are lengths, and the greatest that a formula may have, in em.

An empty line of `\\\\[2em]`, a phantom column or a long arrow need less.
"""
LOWEST = -2.0
"""The least length, in em. `\\!` is -0.17 em; more than a few em draws over other words."""
UNITS = {
    **{"em": 1, "ex": 0.5, "mu": 1 / 18, "px": 1 / 16, "pt": 1 / 12, "pc": 1},
    **{"in": 6, "cm": 6 / 2.54, "mm": 6 / 25.4, "q": 6 / 101.6, "rem": 1, "ch": 0.5},
}
"""Units in em, for letters of 16 pixels."""
MAX_LENGTH = 2000
"""The longest formula, in characters: the converter takes 0.1 s for it."""
MAX_SEARCH = 20_000
"""How far the end of a formula is looked for. One that is too long is shown as it was written."""
MAX_LINES = 100
MAX_FORMULAS = 500
"""How many formulas of one text are converted."""
COUNT = "formulas"

_LENGTH = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([a-z]*)", re.ASCII)
_NAMED_LENGTH = re.compile(r"(?:negative)?(?:very){0,2}(?:thin|medium|thick)mathspace")
_SCRIPT_LEVEL = re.compile(r"[0-3]")
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_LATIN_COMMAND = re.compile(r"\\[A-Za-z]+(?:\{[^{}]*\})?")
_DELIMITERS = {"\\(": ("\\)", False), "\\[": ("\\]", True), "$$": ("$$", True)}


@lru_cache(maxsize=2048)
def to_mathml(tex: str, is_block: bool) -> str | None:
    """The formula as MathML; `None` if it is not TeX that can be converted."""
    if not tex.strip() or len(tex) > MAX_LENGTH:
        return None
    try:
        element = convert_to_element(tex, display="block" if is_block else "inline")
    except Exception:  # the converter has no common base of its errors, and recursion may end it
        return None
    return _write(element)


def _write(element: Element) -> str:
    """An element as HTML; unknown elements and attributes are left out."""
    inner = _text(element.text) + "".join(_write(child) + _text(child.tail) for child in element)
    if element.tag not in ELEMENTS:
        return inner
    pairs = ((name, _value(name, value)) for name, value in element.attrib.items())
    attributes = "".join(f' {name}="{escape(value)}"' for name, value in pairs if value)
    return f"<{element.tag}{attributes}>{inner}</{element.tag}>"


def _value(name: str, value: str) -> str | None:
    """The value of an attribute; `None` if the attribute is left out."""
    if name not in ATTRIBUTES:
        return None
    value = unescape(value)
    if name == "scriptlevel":
        return value if _SCRIPT_LEVEL.fullmatch(value) else None
    if name not in LENGTHS:
        return value
    lengths = [_length(part, LENGTHS[name]) for part in value.lower().split()]
    return None if None in lengths else " ".join(filter(None, lengths))


def _length(value: str, highest: float) -> str | None:
    """A length within the limits; `None` if it is none."""
    if _NAMED_LENGTH.fullmatch(value):
        return value
    match = _LENGTH.fullmatch(value)
    if match is None:
        return None
    number, unit = float(match[1]), match[2]
    if not number:
        return "0"
    if unit not in UNITS:
        return None
    size = number * UNITS[unit]
    if LOWEST <= size <= highest and unit != "mu":  # CSS does not know mu
        return value
    return f"{min(max(size, LOWEST), highest):.4g}em"


def _text(text: str | None) -> str:
    """Text of the converter, which writes symbols as references such as `&#x02211;`."""
    return escape(show_invisible(unescape(text or "")), quote=False)


def _as_written(source: str) -> str:
    """Text that Markdown does not read: it would take one backslash of two."""
    return escape(source, quote=False).replace("\n", "<br>\n")


def add_formulas(parser: MarkdownIt) -> None:
    """Let a parser read formulas."""
    parser.inline.ruler.before("escape", "formula", _read_inline)
    parser.block.ruler.before(
        "fence", "formula_block", _read_block, {"alt": ["paragraph", "blockquote", "list"]}
    )
    parser.add_render_rule("formula", _render)


def _render(_: Any, tokens: Any, index: int, *_options: Any) -> str:
    return tokens[index].content


def _read_inline(state: StateInline, silent: bool) -> bool:
    """A formula inside a paragraph."""
    source, start = state.src, state.pos
    opener = next((each for each in _DELIMITERS if source.startswith(each, start)), None)
    limit = min(state.posMax, start + MAX_SEARCH)
    if opener is not None:
        closer, is_block = _DELIMITERS[opener]
        content_start = start + len(opener)
        end = source.find(closer, content_start, limit)
    elif source.startswith("$", start):
        closer, is_block, content_start = "$", False, start + 1
        end = _closing_dollar(source, start, limit)
    else:
        return False
    if end <= content_start:
        return False
    tex, state.pos = source[content_start:end], end + len(closer)
    if not silent:
        written = source[start : state.pos]
        html = _convert(state.env, tex, is_block) or _as_written(written)
        state.push("formula", "math", 0).content = html
    return True


def _convert(env: MutableMapping[str, Any], tex: str, is_block: bool) -> str | None:
    """The MathML of a formula, unless the text has too many."""
    env[COUNT] = env.get(COUNT, 0) + 1
    return None if env[COUNT] > MAX_FORMULAS else to_mathml(tex, is_block)


def _closing_dollar(source: str, start: int, limit: int) -> int:
    """Where the formula that begins with the `$` at `start` ends; -1 if none begins there."""
    before = source[start - 1] if start else " "
    if before.isalnum() or before in "\\$" or source[start + 1 : start + 2].isspace():
        return -1
    end = start + 1
    while end < limit and source[end] != "$":
        end += 2 if source[end] == "\\" else 1
    if end >= limit or source[end - 1].isspace():
        return -1
    after = source[end + 1 : end + 2]
    tex = source[start + 1 : end]
    if after.isalnum() or after in ("$", "_") or _is_price(tex):
        return -1
    return end


def _is_price(tex: str) -> bool:
    """Whether a text between dollar signs begins with a price: `5 (was 7`, `10-`."""
    if not tex[:1].isdigit():
        return False
    return bool(_PROSE.search(_LATIN_COMMAND.sub("", tex))) or tex[-1] in "-–,/;:(+"


def _read_block(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    r"""A formula of its own: from a line that begins with `$$` or `\[` to one that ends it."""
    if state.is_code_block(first):
        return False
    text = _line(state, first)
    opener = next((each for each in ("$$", "\\[") if text.startswith(each)), None)
    if opener is None:
        return False
    closer, _ = _DELIMITERS[opener]
    lines = [text[len(opener) :]]
    for number in range(first, min(last, first + MAX_LINES)):
        if number > first:
            lines.append(_line(state, number))
        tex, found, rest = lines[-1].partition(closer)
        if not found:
            continue
        if rest.strip():
            return False  # there is text behind it: a formula inside a paragraph
        if not silent:
            tex = "\n".join([*lines[:-1], tex])
            html = _convert(state.env, tex, True) or _as_written(opener + tex + closer)
            state.line = number + 1
            state.push("formula", "math", 0).content = f"<p>{html}</p>\n"
        return True
    return False


def _line(state: StateBlock, number: int) -> str:
    """A line without the marks of the quote or list that it is in."""
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]]
