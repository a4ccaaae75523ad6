"""Markdown of unknown origin becomes HTML that can do nothing but be read.

Two locks, one behind the other. The parser knows no HTML at all (`html` off: a tag in the text is
text), and whatever it writes goes through an allow-list of elements and attributes, so a link can
only lead to http, https or mailto, and no script, style, frame, form or event attribute exists.
Code is coloured by classes; the colours themselves are in the page's style sheet.

Images are not shown but linked: looking at an answer must not fetch anything from anywhere.
"""

from functools import lru_cache

import nh3
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import (
    get_lexer_by_name,  # pyright: ignore[reportUnknownVariableType] its options have no types
)
from pygments.util import ClassNotFound

ELEMENTS = {
    *("p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote"),
    *("strong", "em", "s", "code", "pre", "span", "a", "ul", "ol", "li"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}
ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}, "span": {"class"}, "code": {"class"}}
SCHEMES = {"http", "https", "mailto"}
CACHED = 2048
"""A thread is shown again after every turn, and most of it is as it was."""
HIGHLIGHT_LIMIT = 50_000
"""Characters of one code block beyond which colours cost more than they help."""


@lru_cache(maxsize=CACHED)
def render(text: str) -> str:
    """Safe HTML for markdown that nobody vouches for."""
    return _CLEANER.clean(_parser().render(text))


def _highlight(code: str, language: str, _attributes: str) -> str:
    """The code as coloured spans; plain and escaped where the language is unknown."""
    if not language or len(code) > HIGHLIGHT_LIMIT:
        return escapeHtml(code)
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return escapeHtml(code)
    return highlight(code, lexer, HtmlFormatter(nowrap=True, classprefix="hl-"))


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "highlight": _highlight})
    return parser.enable(["table", "strikethrough"]).disable(["image"])


_CLEANER = nh3.Cleaner(
    tags=ELEMENTS,
    attributes=ATTRIBUTES,
    url_schemes=SCHEMES,
    link_rel="noopener noreferrer nofollow",
    set_tag_attribute_values={"a": {"target": "_blank"}},
)
