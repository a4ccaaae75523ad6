"""Markdown becomes safe HTML."""

import re
from html import unescape

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


@pytest.mark.parametrize(
    "tex",
    [
        "\\rule{9999em}{9999em}",
        "\\rule{9999cm}{9999in}",
        "\\rule{99999999pt}{1PC}",
        "\\hspace{9999em}x",
        "\\hspace{1e9em}x",
        "\\kern9999px x",
        "\\kern-9999em x",
        "\\mkern 99999mu x",
        "\\raise 9999em {x}",
        "\\lower 9999em {x}",
        "\\moveleft 9999em x",
        "\\moveright 9999ex x",
        "a \\above 9999em b",
        "\\skew{99999}{x}{y}",
        "\\rule{9999vw}{9999vh}",  # a unit of the window
        "\\rule{99999999999999999999999999em}{.99999999e9em}",
    ],
)
def test_lengths_in_formulas_are_limited(tex):
    html = render(f"$${tex}$$")
    assert "<math" in html
    values = re.findall(r'(?:width|height|depth|[lr]space|thickness|spacing|size)="([^"]*)"', html)
    for value in values:
        number, unit = re.fullmatch(r"([+-]?[\d.]+)([a-z]*)", value).groups()
        assert number == "0" or unit in ("em", "ex", "px", "pt", "pc", "cm", "mm", "in")
        assert -2 <= float(number) <= 20 or unit in ("px", "pt", "mm")


@pytest.mark.parametrize(
    ("tex", "attribute"),
    [
        ("\\rule{3em}{2cm}", 'width="3em" height="2cm"'),
        ("a\\hspace{1.5em}b", 'width="1.5em"'),
        ("a\\kern-1pt b", 'width="-1pt"'),
        ("a\\mkern 18mu b", 'width="1em"'),
        ("a\\!b", 'width="negativethinmathspace"'),
        ("\\mathrlap{x}", 'width="0"'),
        ("\\Bigg(", 'maxsize="2.470em"'),
        ("{n \\choose k}", 'linethickness="0"'),
    ],
)
def test_usual_lengths_in_formulas_stay(tex, attribute):
    assert attribute in render(f"${tex}$")


@pytest.mark.parametrize(
    "code",
    ["202e", "2066", "200b", "200e", "200f", "061c", "feff", "2060", "200d", "ad", "e0041"],
)
@pytest.mark.parametrize("tex", ["\\unicode{{x{0}}}a", "\\text{{a&#x{0};b}}", "\\text{{a{1}b}}"])
def test_invisible_characters_in_formulas_are_shown(code, tex):
    character = chr(int(code, 16))
    html = render("$" + tex.format(code, character) + "$")
    assert "<math" in html
    assert character not in html
    assert f"⟨U+{code.upper():0>4}⟩" in html


def test_joiners_of_emoji_and_words_stay_in_formulas():
    assert "👩‍🔬" in render("$\\text{👩‍🔬}$")
    assert "می‌روم" in render("$\\text{می‌روم}$")
    assert "U+" not in render("$\\sin x$")


@pytest.mark.parametrize(
    "text",
    [
        "a \u202e b",
        "a &#x202e; b",
        "a &#8238; b",
        "`\u202e`",
        "[a&#x202e;](https://x.y)",
        '[a](https://x.y "b&#x2066;")',
        "<https://x.y/%E2%80%AE>",
        "```python\n# \u202e\n```",
    ],
)
def test_characters_that_change_the_direction_are_shown(text):
    html = render(text)
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", html)
    assert "⟨U+20" in html


@pytest.mark.parametrize(
    "written",
    [
        "$\\left( 2\\\\3$",
        "\\(\\left( 2\\\\3\\)",
        "\\[\\left( 2\\\\3\\]",
        "$$\\left( 2\\\\3$$",
        "$$\n\\left( 2\\\\3 *a* _b_\n\n# c\n$$",
        "$\\left( *a* [b](c) `d` \\_ \\{ &lt; <b>$",
        "$" + "x\\\\" * 1000 + "$",  # longer than a formula may be
        "\\[" + "x\\\\" * 1000 + "\\]",
    ],
)
@pytest.mark.parametrize("around", ["{}", "> {}", "a {} b", "- {}"])
def test_a_formula_that_cannot_be_converted_stays_as_written(written, around):
    if "\n" in written and around != "{}":
        return
    html = render(around.format(written))
    assert "<math" not in html
    shown = unescape(re.sub(r"</?(?:p|br|ul|li|blockquote)>", "", html))
    assert written in shown


def test_formulas_beyond_the_greatest_number_stay_as_written():
    html = render("$a\\\\b$ " * 501)
    assert html.count("<math") == 500
    assert "$a\\\\b$" in html


def test_task_lists_have_boxes():
    html = render("- [ ] open\n- [x] done\n- [X] *also*\n- [y] none\n\n[x] no list")
    assert re.findall(r'aria-label="([^"]+)"', html) == ["to do", "done", "done"]
    assert "<input" not in html
    assert "[y] none" in html
    assert "[x] no list" in html
