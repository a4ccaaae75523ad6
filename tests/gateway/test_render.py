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
