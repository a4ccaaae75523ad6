"""Markdown becomes safe HTML."""

import re

import pytest
from hypothesis import given, strategies as st

from weft.gateway import render

LINK = 'target="_blank" rel="noopener noreferrer nofollow"'


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("**a** `b`", "<p><strong>a</strong> <code>b</code></p>\n"),
        ("a\nb", "<p>a<br>\nb</p>\n"),
        ("[a](https://x.y)", f'<p><a href="https://x.y" {LINK}>a</a></p>\n'),
        ("```\n<b>\n```", "<pre><code>&lt;b&gt;\n</code></pre>\n"),
        (
            "```python\nx = 1\n```",
            '<pre><code class="language-python"><span class="hl-n">x</span> '
            '<span class="hl-o">=</span> <span class="hl-mi">1</span>\n</code></pre>\n',
        ),
        (
            "|a|\n|-|\n|1|",
            "<table>\n<thead>\n<tr>\n<th>a</th>\n</tr>\n</thead>\n"
            "<tbody>\n<tr>\n<td>1</td>\n</tr>\n</tbody>\n</table>\n",
        ),
        ("", ""),
    ],
)
def test_markdown_becomes_html(text, html):
    assert render(text) == html


ATTACKS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](vbscript:x)",
    "<javascript:alert(1)>",
    "![x](x onerror=alert(1))",
    '[x](https://a"onmouseover="alert(1))',
    '```html" onclick="alert(1)\nx\n```',
    "<svg/onload=alert(1)>",
    "<iframe src=javascript:alert(1)>",
    "[a]: javascript:alert(1)\n\n[a]",
    "</code></pre><script>alert(1)</script>",
]
LIVE = re.compile(
    r"<(script|img|svg|iframe|style|form|object)|<[^>]+\son\w+=|(href|src)=\"(?!https?:|mailto:)",
    re.IGNORECASE,
)


@pytest.mark.parametrize("text", ATTACKS)
def test_an_attack_becomes_text(text):
    assert not LIVE.search(render(text))


@given(st.lists(st.sampled_from([*ATTACKS, "```", "`", "\n", "[", "](", "<", '"', "&lt;"])))
def test_no_mixture_of_attacks_becomes_active(parts):
    assert not LIVE.search(render("".join(parts)))


@pytest.mark.parametrize(
    "text",
    [
        "costs $5 and $10",
        "$5-$10",
        "US$3 and A$4",
        "$5/$10 per piece",
        "$5 (was 7$)",
        "$1,000 and up to 2$",
        "$HOME and $PATH",
        "$PATH:$HOME/$USER",
        "5$ and 6$",
        "$ x$",
        "$x $",
        "$$",
        "\\$x\\$",
        "`$x$`",
        "```\n$x$\n$$y$$\n```",
        "$\\frac$",  # no TeX
        "$" + "{" * 1500 + "$",  # deeper than the converter goes
        "\\(" * 3000,
        "\\[\n" * 3000,
    ],
)
def test_prices_and_variables_are_no_formulas(text):
    assert "<math" not in render(text)


@pytest.mark.parametrize(
    "text",
    [
        "$x$",
        "($x$).",
        "\\(x\\)",
        "\\[x\\]",
        "$$x$$",
        "$$\nx\n$$",
        "> $$\n> x\n> $$",
        "- a\n  $$\n  x\n  $$",
        "**$x$**",
        "| a |\n| - |\n| $x$ |",
        "$2 \\sin x$",
        "$100$",
    ],
)
def test_formulas_become_mathml(text):
    html = render(text)
    assert "<math" in html
    assert "$" not in html
    assert "&gt;" not in html


@pytest.mark.parametrize(
    "tex",
    [
        "\\text{<img src=x onerror=alert(1)>}",
        "\\text{&lt;script&gt;alert(1)&lt;/script&gt;}",
        "\\href{javascript:alert(1)}{x}",
        "\\style{background:url(//evil)}{x}",
        "\\class{app}{x}",
        "\\id{words}{x}",
        "\\unknown{<svg onload=alert(1)>}",
        '\\text{" onclick="alert(1)}',
        "</math><img src=x>",
        "\\mathrm{<annotation-xml>}",
    ],
)
def test_a_hostile_formula_has_no_markup_of_its_own(tex):
    html = render(f"${tex}$ and $${tex}$$")
    assert re.findall(r"<(?!/?(?:p|br|math|m[a-z]+)\b)", html) == []
    assert re.findall(r"<[^>]*\s(?:href|style|class|id|on\w+)=", html) == []


def test_task_lists_have_boxes():
    html = render("- [ ] open\n- [x] done\n- [X] *also*\n- [y] none\n\n[x] no list")
    assert re.findall(r'aria-label="([^"]+)"', html) == ["to do", "done", "done"]
    assert "<input" not in html
    assert "[y] none" in html
    assert "[x] no list" in html
