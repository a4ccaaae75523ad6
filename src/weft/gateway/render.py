"""Renders untrusted Markdown as safe HTML.

Two layers protect the page:

- The parser has HTML turned off, so a tag in the text is shown as text.
- Its output goes through an allow-list of elements, attributes and URL schemes. Scripts, styles,
  frames, forms and event attributes are removed.

Code is coloured with CSS classes; the page's style sheet has the colours. Images become links:
showing an answer must not fetch anything.
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
CACHE_SIZE = 2048
"""How many rendered texts are cached: a page is shown again after every turn, mostly unchanged."""
HIGHLIGHT_LIMIT = 50_000
"""Code blocks with more characters than this are not coloured: it would take too long."""


@lru_cache(maxsize=CACHE_SIZE)
def render(text: str) -> str:
    """Safe HTML for untrusted Markdown."""
    return _CLEANER.clean(_parser().render(text))


def _highlight(code: str, language: str, _attributes: str) -> str:
    """The code as coloured spans; only escaped if the language is unknown."""
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
