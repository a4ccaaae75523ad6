"""The page with the keyboard: command palette, shortcuts and moving the focus."""

from urllib.parse import quote

import pytest

import weft.thread
from serving import serving
from weft.demo import ensure_sample
from weft.store import open_store

pytestmark = pytest.mark.xdist_group("browser")

SAMPLE = "sample-nightly-export"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("page-keyboard")


@pytest.fixture(scope="module")
def url(folder):
    store = open_store(folder / "weft.db")
    ensure_sample(store)
    store.close()
    with serving(folder, "--store", str(folder / "weft.db")) as address:
        yield address


@pytest.fixture
def tab(browser, url):
    """A function that opens a thread in a new tab."""
    contexts = []

    def open_tab(thread=SAMPLE, width=1280, scheme="light"):
        viewport = {"width": width, "height": 900}
        context = browser.new_context(viewport=viewport, color_scheme=scheme)
        contexts.append(context)
        context.add_init_script("window.pwned = 0; window.alert = () => { window.pwned += 1; };")
        page = context.new_page()
        page.goto(f"{url}/#thread={quote(thread, safe='')}")
        page.wait_for_selector("body[data-branch]")
        page.wait_for_selector("#offline", state="hidden")
        return page

    yield open_tab
    for context in contexts:
        context.close()


def choose(page, query, title):
    """Open the palette, type, and choose an entry with the keyboard alone."""
    page.keyboard.press("Control+k")
    page.wait_for_selector("#palette[open]")
    page.keyboard.type(query)
    page.wait_for_function(
        """(title) => document.querySelector('[role=option][aria-selected=true] .palette-title')
            ?.textContent === title""",
        arg=title,
    )
    page.keyboard.press("Enter")
    page.wait_for_selector("#palette", state="hidden")


def test_the_palette_runs_commands_and_opens_threads_and_branches(tab, folder):
    hostile = "<img src=x onerror=alert(1)>"
    with weft.thread.open(folder / "weft.db", "palette-target") as thread:
        thread.user(f"a thread about zebras {hostile}")
    page = tab()
    choose(page, "rename", "Rename this thread …")
    page.wait_for_selector("#rename-dialog[open]")
    page.keyboard.press("Escape")
    choose(page, "try-str", "try-streaming")
    page.wait_for_selector("body[data-branch=try-streaming]")
    page.keyboard.press("Control+k")
    page.wait_for_selector("#palette[open]")
    page.keyboard.type("zebras")
    page.wait_for_selector("#palette-list [role=option]:has-text('zebras')")
    assert page.locator("#palette-list img").count() == 0
    page.keyboard.press("Enter")
    page.wait_for_selector("body[data-thread=palette-target]")
    page.keyboard.press("Control+k")
    page.keyboard.type("no such thing at all")
    page.wait_for_selector("#palette-none:not([hidden])")
    page.keyboard.press("Escape")
    page.wait_for_selector("#palette", state="hidden")
    assert page.evaluate("window.pwned") == 0


def test_shortcuts_work_outside_of_texts_and_can_be_turned_off(tab):
    page = tab()
    page.focus("#scroll")
    page.keyboard.press("m")
    assert page.evaluate("document.activeElement.id") == "words"
    page.keyboard.type("b?")  # a text, not two commands
    assert page.input_value("#words") == "b?"
    page.fill("#words", "")
    page.focus("#scroll")
    page.keyboard.press("?")
    page.wait_for_selector("#shortcuts-dialog[open]")
    listed = page.inner_text("#shortcut-rows")
    assert "Command palette" in listed
    assert "Ctrl+K" in listed
    page.uncheck("#single-keys")
    page.keyboard.press("Escape")
    page.focus("#scroll")
    page.keyboard.press("m")
    assert page.evaluate("document.activeElement.id") == "scroll"
    page.keyboard.press("Control+k")
    page.wait_for_selector("#palette[open]")
