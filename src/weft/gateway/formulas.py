"""Formulas in Markdown: TeX between dollar signs, or in `\\(x\\)` and `\\[x\\]`, becomes MathML.

The TeX is untrusted, and so is what the converter makes of it: it copies texts, links and styles
of the TeX as they are. Only known elements, known attributes and escaped text are written here, and
the result goes through the page's sanitiser like all HTML. What cannot be converted stays text.

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
MAX_LENGTH = 2000
"""The longest formula, in characters: the converter takes 0.1 s for it."""
MAX_LINES = 100
MAX_FORMULAS = 500
"""How many formulas of one text are converted."""
COUNT = "formulas"

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
    pairs = ((name, value) for name, value in element.attrib.items() if name in ATTRIBUTES)
    attributes = "".join(f' {name}="{escape(unescape(value))}"' for name, value in pairs)
    return f"<{element.tag}{attributes}>{inner}</{element.tag}>"


def _text(text: str | None) -> str:
    """Text of the converter, which writes symbols as references such as `&#x02211;`."""
    return escape(unescape(text or ""), quote=False)


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
    limit = min(state.posMax, start + MAX_LENGTH)
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
    return _push(state, source[content_start:end], is_block, end + len(closer), silent)


def _push(state: StateInline, tex: str, is_block: bool, end: int, silent: bool) -> bool:
    mathml = _convert(state.env, tex, is_block)
    if mathml is None:
        return False
    if not silent:
        state.push("formula", "math", 0).content = mathml
    state.pos = end
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
        mathml = _convert(state.env, "\n".join([*lines[:-1], tex]), True)
        if mathml is None:
            return False
        if not silent:
            state.line = number + 1
            state.push("formula", "math", 0).content = f"<p>{mathml}</p>\n"
        return True
    return False


def _line(state: StateBlock, number: int) -> str:
    """A line without the marks of the quote or list that it is in."""
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]]
