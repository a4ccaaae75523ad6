"""Hostile content in the page: nothing runs, nothing is fetched, and the page stays usable."""

import base64
import os
from pathlib import Path
from urllib.parse import quote

import pytest

import weft.thread
import weft.web
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
ASSETS = 250 * 1024


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("page-hostile")


@pytest.fixture(scope="module")
def url(folder):
    with serving(folder, "--store", str(folder / "weft.db")) as address:
        yield address


@pytest.fixture
def tab(browser, url):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.add_init_script("window.pwned = 0; window.alert = () => { window.pwned += 1; };")
    page = context.new_page()
    page.requests, page.errors = [], []
    page.on("request", lambda request: page.requests.append(request.url))
    page.on("pageerror", lambda error: page.errors.append(str(error)))

    def open_tab(thread):
        page.goto(f"{url}/#thread={quote(thread, safe='')}")
        page.wait_for_selector(f"body[data-thread='{thread}']")
        page.wait_for_selector("#conversation .row")
        return page

    yield open_tab
    context.close()


def test_nothing_of_a_message_runs_or_is_fetched(tab, url, folder):
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
    page = tab("hostile")
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
    for link in page.locator("#conversation a, #threads a, #log a").all():
        href = link.get_attribute("href")
        assert href.startswith(("http", "mailto:", "#thread=", "/api/media?")), href
    dangerous = "script, iframe, object, embed, style, link, meta, base, form, svg, video, audio"
    inside = ", ".join(f"#conversation {tag.strip()}" for tag in dangerous.split(","))
    assert page.locator(inside).count() == 0
    assert page.locator("#conversation [style*='url']").count() == 0
    assert page.locator("#conversation").count() == 1  # an element of a message took no id
    images = page.locator("#conversation img").evaluate_all("all => all.map((each) => each.src)")
    assert all(src.startswith(f"{url}/api/media") for src in images)
    # Terminal output: colours are shown, everything else is removed.
    output = page.locator(".tool pre.result").first
    assert output.locator(".ansi-1").inner_text() == "red"
    assert "100%" in output.inner_text()
    assert "\x1b" not in output.inner_text()
    assert "10%\r" not in output.inner_text()
    assert page.evaluate("window.pwned") == 0
    assert page.errors == []
    assert [each for each in page.requests if not each.startswith(url)] == []


def test_a_huge_message_leaves_the_page_usable(tab, folder):
    with weft.thread.open(folder / "weft.db", "large") as thread:
        thread.user("x" * LARGE)
        thread.assistant("a short answer")
    page = tab("large")
    assert "a short answer" in page.inner_text("#conversation")
    assert page.evaluate("document.querySelector('#conversation').textContent.length") < 1_000_000
    link = page.locator("#conversation a[download]")
    assert link.inner_text() == f"Download all {LARGE:,} characters"
    with page.expect_download() as download:
        link.click()
    assert Path(download.value.path()).stat().st_size == LARGE
    page.fill("#words", "still here")
    assert page.input_value("#words") == "still here"
    assert page.errors == []


def test_the_page_is_small_and_loads_each_of_its_modules_once(browser, url):
    folder = Path(weft.web.__file__).parent
    files = [path for path in folder.iterdir() if path.suffix in (".js", ".css", ".html", ".svg")]
    assert sum(path.stat().st_size for path in files) < ASSETS
    page = browser.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(url)
    page.wait_for_selector("body[data-branch]")
    modules = [each for each in asked if each.endswith(".js")]
    assert sorted(modules) == sorted(f"{url}/static/{path.name}" for path in folder.glob("*.js"))
    page.close()
