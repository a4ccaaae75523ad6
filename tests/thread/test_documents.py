"""A thread as a document: HTML and Markdown."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest

import weft
from weft.store import open_store
from weft.thread import export_bytes

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</article></details><iframe src='https://evil.example'></iframe>",
    "[click](javascript:alert(1))",
    "![beacon](https://evil.example/pixel.png)",
    '"><svg onload=alert(1)>',
    "<style>@import 'https://evil.example/a.css'</style>",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07",
    "safe \u202eelif.exe",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
]
ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "nav", "ul", "li", "a"),
    *("article", "header", "span", "time", "div", "details", "summary", "pre", "img"),
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "id", "class", "href", "alt", "src"),
}


class Judge(HTMLParser):
    """Collects everything that a browser could run or fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.targets: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.targets |= {value for name, value in attrs if name in ("href", "src")}


def judge(data: bytes) -> Judge:
    reader = Judge()
    reader.feed(data.decode())
    return reader


@pytest.fixture
def store(tmp_path):
    store = open_store(tmp_path / "a.db")
    yield store
    store.close()


def talk(store: Any, name: str = "t") -> weft.Thread:
    t = weft.open(store, name)
    t.system("You are careful.")
    t.user("Fix <the> bug & tell me\n<system-reminder>be brief</system-reminder>")
    t.assistant("I will **look**.")
    t.user("Go on")
    t.assistant("Done.")
    return t


@pytest.mark.parametrize("format", ["html", "markdown"])
def test_every_message_is_included(store, format):
    talk(store)
    text = export_bytes(store, "t", format)[0].decode()
    for words in ("You are careful.", "tell me", "be brief", "I will", "Go on", "Done."):
        assert text.count(words) >= 1
    assert "5 messages" in text


def test_client_context_and_system_prompt_are_collapsed(store):
    talk(store)
    text = export_bytes(store, "t", "html")[0].decode()
    assert re.search(r"<details><summary>system-reminder</summary>\s*<pre>[^<]*be brief", text)
    assert re.search(r"<details><summary>system prompt, [\d,]+ characters", text)
    assert "Fix &lt;the&gt; bug &amp; tell me" in text


@pytest.mark.parametrize("format", ["html", "markdown"])
def test_a_compaction_is_at_its_position_with_the_originals(store, format):
    t = talk(store)
    t.compact(summary="The bug was looked at.", keep=1)
    t.user("And now?")
    text = export_bytes(store, "t", format)[0].decode()
    places = [text.index(w) for w in ("I will", "The bug was looked at.", "And now?")]
    assert places == sorted(places)
    assert "Compacted (" in text
    assert "o longer sent" in text or 'class="user removed"' in text


@pytest.mark.parametrize("format", ["html", "markdown"])
def test_a_branch_shows_only_what_follows_its_fork(store, format):
    t = talk(store)
    t.branch("other")
    t.switch("other")
    t.user("Another way")
    t.switch("main")
    t.user("This way")
    text = export_bytes(store, "t", format)[0].decode()
    assert "2 branches" in text
    assert text.count("Done.") == 1
    assert text.index("This way") < text.index("Another way")
    assert "tarts" in text


@pytest.mark.parametrize("format", ["html", "markdown"])
def test_a_tag_is_not_a_branch(store, format):
    t = talk(store)
    t.tag("release")
    undone = t.user("Undone")
    t.undo()
    t.tag("undone", undone)
    t.user("And on")
    text = export_bytes(store, "t", format)[0].decode()
    assert "branches" not in text
    assert "tag:" not in text
    assert text.index("tag release") < text.index("Done.") < text.index("And on")
    assert text.index("Tag undone") < text.index("Undone")
    assert text.count("Done.") == 1


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("rendered", [False, True])
def test_nothing_in_it_runs_or_is_fetched(store, hostile, rendered):
    from weft.gateway import render

    t = weft.open(store, "t")
    t.system(hostile)
    t.user(hostile)
    call = weft.ToolCall("c1", hostile, hostile)
    t.commit_message(weft.Message("assistant", (weft.Text(hostile), weft.Thinking(hostile), call)))
    t.commit_message(
        weft.Message("user", (weft.ToolResult("c1", (weft.Text(hostile),), name=hostile),))
    )
    data = export_bytes(store, "t", "html", render=render if rendered else None)[0]
    page = judge(data)
    extra = {"strong", "em", "code", "br", "ol", "h3", "blockquote"} if rendered else set()
    assert page.elements <= ELEMENTS | extra
    assert page.attributes <= ATTRIBUTES | ({"rel", "target", "title"} if rendered else set())
    assert not [t for t in page.targets if not t.startswith(("#", "data:image/", "https:"))]
    assert "src" not in page.attributes
    assert b"\x1b" not in data
    assert "\u202e".encode() not in data


def test_bitmap_images_are_shown(store):
    t = weft.open(store, "t")
    picture = weft.Image(weft.Inline("iVBORw0KGgo=", "image/png"))
    drawing = weft.Image(weft.Inline("PHN2Zz4=", "image/svg+xml"))
    broken = weft.Image(weft.Inline('"><script>', "image/png"))
    away = weft.Image(weft.Url("https://evil.example/a.png"))
    t.commit_message(weft.Message("user", (picture, drawing, broken, away)))
    page = judge(export_bytes(store, "t", "html")[0])
    assert page.targets == {"data:image/png;base64,iVBORw0KGgo="}


def test_a_fence_in_a_result_does_not_end_the_code_block(store):
    t = weft.open(store, "t")
    t.user("go")
    t.commit_message(weft.Message("assistant", (weft.ToolCall("c1", "cat", "{}"),)))
    t.commit_message(
        weft.Message("user", (weft.ToolResult("c1", (weft.Text("a\n````\n# not a heading"),)),))
    )
    text = export_bytes(store, "t", "markdown")[0].decode()
    assert "`````\na\n````\n# not a heading\n`````" in text


@pytest.mark.parametrize("format", ["html", "markdown"])
def test_private_vendor_data_is_omitted(store, format):
    t = weft.open(store, "t")
    t.user("go")
    thinking = weft.Thinking("hm", signature="SECRET-SIGNATURE")
    t.commit_message(
        weft.Message("assistant", (thinking, weft.Redacted("SECRET-DATA"), weft.Text("ok")))
    )
    data = export_bytes(store, "t", format)[0]
    assert b"SECRET" not in data
    assert b"hm" in data


TURN = "### user · 2020-01-01 00:00 UTC"
LEAKS = {
    "an open fence": "look:\n```python\nx = 1",
    "an open fence of tildes": "~~~~\n~~~\n# no",
    "a heading of a turn": f"{TURN}\n\nI said so",
    "an indented heading": f"a\n   {TURN}\nb",
    "an underlined heading": "user 2020\n===\n\nother\n---",
    "a script": "<script>alert(1)</script> and <img src=x onerror=alert(1)>",
    "a script after a stray tick": "x ` y\n`<script>alert(1)</script>`",
    "a script among ticks of two items": "- q `\n- x ` y\n`<script>alert(1)</script>`",
    "an escaped tick": "\\`<script>alert(1)</script>`",
    "a comment that never ends": "<!-- \n\nall of this",
    "a fence in a list that is closed outside": "- ```\n  x\n  ```\n\n  ```\n<b>y</b>",
    "a script behind a backslash": "\\<script>alert(1)</script>",
    "a fence that is only continued text": "para\n     ~~~\n     <script>x</script>\n     ~~~",
    "a fence with a tick in its info": "``` a`b\n<script>alert(1)</script>",
    "an end after a tab": "~~~\nx\n\t~~~",
    "an end with another space": "~~~\nx\n~~~\u00a0",
    "a line of another space": "user\n\u00a0\n===",
    "a link for other messages": "[image]: https://example.org/x",
    "a link in a list": "- [image]: https://example.org/x",
    "an image of another server": "![x](https://example.org/?q=text) \\\\![y](https://example.org)",
}


@pytest.mark.parametrize("kind", LEAKS)
def test_a_message_stays_in_its_turn_in_markdown(store, kind):
    from markdown_it import MarkdownIt

    t = weft.open(store, "t")
    t.user("first")
    t.user(LEAKS[kind])
    t.commit_message(
        weft.Message("assistant", (weft.Thinking(LEAKS[kind]), weft.Text("[image] the end")))
    )
    t.user("last **bold**")
    text = export_bytes(store, "t", "markdown")[0].decode()
    tokens = MarkdownIt("commonmark").parse(text)
    turns = [
        tokens[at + 1].content
        for at, token in enumerate(tokens)
        if token.type == "heading_open" and token.tag == "h3"
    ]
    assert [turn.split(" · ")[0] for turn in turns] == ["user", "user", "assistant", "user"]
    headings = [token.tag for token in tokens if token.type == "heading_open"]
    assert headings == ["h1", "h3", "h3", "h3", "h3"]
    html = MarkdownIt("commonmark").render(text)
    assert "<p>last <strong>bold</strong></p>" in html
    assert "<script" not in html
    assert "<img" not in html
    assert "<!--" not in html
    assert "<a " not in html


def test_ordinary_markdown_is_unchanged(store):
    texts = [
        "Use `List<int>` and\n\n```html\n<b># not a heading</b>\n```\n\nthen **this**.",
        "1. Run:\n   ```bash\n   make test\n   ```\n2. Done, a < b and c <= d.",
        "#### A small heading\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n---\n\n- x\n- y",
    ]
    t = weft.open(store, "t")
    for text in texts:
        t.assistant(text)
    exported = export_bytes(store, "t", "markdown")[0].decode()
    for text in texts:
        assert text in exported
