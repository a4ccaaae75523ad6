"""Hostile content in the page: nothing runs, nothing is fetched, and the page stays usable."""

import base64
import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

import weft.thread
import weft.web
from pages import wait_for_no_text, wait_for_text, wait_until
from serving import serving
from weft.model import (
    File,
    Image,
    Inline,
    Message,
    Origin,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Url,
)

pytestmark = pytest.mark.xdist_group("browser")

OUTSIDE = "http://outside.example"
MARKUP = (
    "<script>alert(1)</script>",
    f"<img src=x onerror=alert(2)><img src='{OUTSIDE}/beacon.png'>",
    f"![beacon]({OUTSIDE}/markdown.png) ![data](data:image/svg+xml;base64,PHN2Zy8+)",
    f"<svg onload=alert(3)><image href='{OUTSIDE}/svg.png'/></svg>",
    f"<iframe src='{OUTSIDE}/frame'></iframe><object data='{OUTSIDE}/object'></object>",
    f"<link rel=stylesheet href='{OUTSIDE}/style.css'><style>@import '{OUTSIDE}/a.css'</style>",
    f"<div style=\"background:url('{OUTSIDE}/css.png')\">x</div><base href='{OUTSIDE}/'>",
    "[press](javascript:alert(4)) <a href='java\tscript:alert(5)'>me</a>",
    "<a href='vbscript:x'>v</a> <a href='//outside.example'>other</a>",
    "[data](data:text/html;base64,PHNjcmlwdD5hbGVydCg2KTwvc2NyaXB0Pg==)",
    f"<meta http-equiv=refresh content='0;url={OUTSIDE}/gone'><form action='{OUTSIDE}'>",
    f"<video src='{OUTSIDE}/v.mp4' autoplay></video><audio src='{OUTSIDE}/a.mp3'></audio>",
    "<details ontoggle=alert(7) open><summary>x</summary></details>",
    "\u202egnp.exe\u202c \u2066isolated\u2069 \u200b\ufeff",
    "<a id=conversation name=words>clobber</a><input name=getElementById>",
)
LINK = "\x1b]8;;http://outside.example\x1b\\link\x1b]8;;\x1b\\"
ANSI = f"\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2J{LINK}\n10%\r100%"
LARGE = (50 if os.environ.get("WEFT_TORTURE") else 5) * 1024 * 1024
ASSETS = 300_000
"""Bytes of all files of the page, as they are served: less than 250 KB, with room."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("page-hostile")


@pytest.fixture(scope="module")
def url(folder):
    with serving(folder, "--store", str(folder / "weft.db")) as address:
        yield address


def test_no_content_of_a_message_runs_or_is_fetched(new_tab, url, folder):
    everything = "\n\n".join(MARKUP)
    svg = Inline(base64.b64encode(MARKUP[3].encode()).decode(), "image/svg+xml")
    blocks = (
        Text(everything),
        Image(Url(f"{OUTSIDE}/image.png")),
        Image(Url("javascript:alert(8)")),
        Image(svg),
        File(Inline(base64.b64encode(MARKUP[0].encode()).decode(), "text/html"), MARKUP[1]),
    )
    call = ToolCall("call-1", MARKUP[1], '{"a": "<img src=x onerror=alert(9)>"}')
    result = ToolResult("call-1", (Text(everything + ANSI), Image(svg)))
    origin = Origin("x", model=MARKUP[1])
    with weft.thread.open(folder / "weft.db", "hostile") as thread:
        thread.system(everything)
        thread.commit_message(Message("user", blocks, name=MARKUP[1]))
        thread.commit_message(
            Message("assistant", (Thinking(everything), Text(everything), call), origin=origin)
        )
        thread.commit_message(Message("tool", (result,)))
        for index, text in enumerate(MARKUP):
            thread.user(f"{index} {text}")
            thread.assistant(text)
    page = new_tab(url, "hostile")
    page.wait_for_selector(f"#conversation .row:has-text('{len(MARKUP) - 1} ')")
    page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
    page.fill("#search", "clobber")
    page.wait_for_selector("#threads .hit")
    page.click("#compact")
    page.wait_for_selector("#preview .big, #preview .error")
    page.keyboard.press("Escape")
    page.click("#usage")
    page.wait_for_selector("#usage-body > *")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.wait_for_selector("#palette-list [role=option]")
    page.keyboard.press("Escape")
    links = page.locator("#conversation a, #threads a, #log a")
    read_targets = "all => all.map((each) => each.getAttribute('href'))"
    safe = ("http", "mailto:", "#thread=", "/api/media?")
    wait_until(
        page,
        lambda: [href for href in links.evaluate_all(read_targets) if not href.startswith(safe)],
        [],
    )
    dangerous = "script, iframe, object, embed, style, link, meta, base, form, svg, video, audio"
    expect(page.locator(f"#conversation :is({dangerous})")).to_have_count(0)
    expect(page.locator("#conversation [style*='url']")).to_have_count(0)
    expect(page.locator("#conversation")).to_have_count(1)  # an element of a message took no id
    foreign = f"#conversation img:not([src^='/api/media']):not([src^='{url}/api/media'])"
    expect(page.locator(foreign)).to_have_count(0)
    # Terminal output: colours are shown, everything else is removed.
    output = ".tool pre.result"
    expect(page.locator(output).first.locator(".ansi-1")).to_have_text("red")
    wait_for_text(page, "100%", output)
    wait_for_no_text(page, "\x1b", output)
    wait_for_no_text(page, "10%\r", output)
    page.wait_for_function("() => window.pwned === 0")
    assert [each for each in page.requests if not each.startswith(url)] == []


def test_a_huge_message_does_not_block_the_page(new_tab, url, folder):
    with weft.thread.open(folder / "weft.db", "large") as thread:
        thread.user("x" * LARGE)
        thread.assistant("a short answer")
    page = new_tab(url, "large")
    wait_for_text(page, "a short answer")
    shown = "document.querySelector('#conversation').textContent.length"
    wait_until(page, lambda: page.evaluate(shown), lambda length: length < 1_000_000)
    link = page.locator("#conversation a[download]")
    expect(link).to_have_text(f"Download all {LARGE:,} characters")
    with page.expect_download() as download:
        link.click()
    assert Path(download.value.path()).stat().st_size == LARGE
    page.fill("#words", "still here")
    expect(page.locator("#words")).to_have_value("still here")


def test_the_page_is_small_and_loads_each_of_its_modules_once(new_tab, url):
    folder = Path(weft.web.__file__).parent
    files = [path for path in folder.iterdir() if path.suffix in (".js", ".css", ".html", ".svg")]
    assert sum(path.stat().st_size for path in files) < ASSETS
    page = new_tab(url)
    modules = [each.rpartition("/")[2] for each in page.requests if each.endswith(".js")]
    assert sorted(modules) == sorted(path.name for path in folder.glob("*.js"))
