"""Renders untrusted Markdown as safe HTML.

Two layers protect the page:

- The parser has HTML turned off, so a tag in the text is shown as text.
- Its output goes through an allow-list of elements, attributes and URL schemes. Scripts, styles,
  frames, forms and event attributes are removed.

Code is coloured with CSS classes; the page's style sheet has the colours. Images become links:
showing an answer must not fetch anything. Formulas become MathML (`formulas`). Checkpoints are not
shown: they are addresses for models. Characters that change the direction of the text after them
are shown as `⟨U+202E⟩`.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

import nh3
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import (
    get_lexer_by_name,  # pyright: ignore[reportUnknownVariableType] its options have no types
)
from pygments.util import ClassNotFound

from weft.printable import show_direction

from . import formulas

ELEMENTS = {
    *("p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote"),
    *("strong", "em", "s", "code", "pre", "span", "a", "ul", "ol", "li"),
    *("table", "thead", "tbody", "tr", "th", "td"),
    *formulas.ELEMENTS,
}
ATTRIBUTES = {
    "a": {"href", "title"},
    "ol": {"start"},
    "span": {"class", "role", "aria-label"},
    "code": {"class"},
    **{element: formulas.ATTRIBUTES for element in formulas.ELEMENTS},
}
SCHEMES = {"http", "https", "mailto"}
CACHE_SIZE = 2048
"""How many rendered texts are cached: a page is shown again after every turn, mostly unchanged."""
CHECKPOINT = re.compile(r"<checkpoint:[a-z0-9]{6}>")
TASK = re.compile(r"\[([ xX])\]\s+")
BOXES = {" ": ("☐", "to do"), "x": ("☑", "done")}
HIGHLIGHT_LIMIT = 50_000
"""Code blocks with more characters than this are not coloured: it would take too long."""


@lru_cache(maxsize=CACHE_SIZE)
def render(text: str) -> str:
    """Safe HTML for untrusted Markdown."""
    # On the result, because the parser reads references such as `&#x202e;` and `%E2%80%AE`.
    return show_direction(_CLEANER.clean(_parser().render(text)))


def _skip_checkpoint(state: StateInline, _silent: bool) -> bool:
    """Leave out the marker of a checkpoint; otherwise it would be read as a link."""
    match = CHECKPOINT.match(state.src, state.pos)
    if match is None:
        return False
    state.pos = match.end()
    return True


def _add_task_boxes(state: StateCore) -> None:
    """Show `- [ ]` and `- [x]` at the start of list items as boxes."""
    for item, paragraph, inline in zip(
        state.tokens, state.tokens[1:], state.tokens[2:], strict=False
    ):
        if (item.type, paragraph.type) != ("list_item_open", "paragraph_open"):
            continue
        first = inline.children[0] if inline.children else None
        match = None if first is None or first.type != "text" else TASK.match(first.content)
        if first is None or match is None:
            continue
        box, label = BOXES[match[1].lower()]
        first.content = first.content[match.end() :]
        html = f'<span class="task" role="img" aria-label="{label}">{box}</span> '
        inline.children = [Token("task_box", "span", 0, content=html), *(inline.children or [])]


def _write_content(_: object, tokens: Sequence[Token], index: int, *_options: object) -> str:
    return tokens[index].content


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
    formulas.add_formulas(parser)
    parser.inline.ruler.before("autolink", "checkpoint", _skip_checkpoint)
    parser.core.ruler.push("task_boxes", _add_task_boxes)
    parser.add_render_rule("task_box", _write_content)
    return parser.enable(["table", "strikethrough"]).disable(["image"])


_CLEANER = nh3.Cleaner(
    tags=ELEMENTS,
    attributes=ATTRIBUTES,
    url_schemes=SCHEMES,
    link_rel="noopener noreferrer nofollow",
    set_tag_attribute_values={"a": {"target": "_blank"}},
)
