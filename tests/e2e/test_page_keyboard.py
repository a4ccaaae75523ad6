"""The page with the keyboard: command palette, shortcuts and moving the focus."""

from itertools import product

import pytest
from playwright.sync_api import expect

import weft.thread
from pages import assert_nothing_ran, wait_for_text, wait_for_thread, wait_until
from serving import serving
from weft.demo import ensure_sample
from weft.model import Message, Origin, Text, ToolCall, Usage
from weft.store import open_store

pytestmark = pytest.mark.xdist_group("browser")

SAMPLE = "sample-nightly-export"
PRICED = "claude-sonnet-4-6"  # $3 in and $15 out per million tokens, of any size


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
def tab(new_tab, url):
    """A function that opens a thread, the sample if none is named, in a new tab."""
    return lambda thread=SAMPLE, **options: new_tab(url, thread, **options)


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
    wait_for_thread(page, SAMPLE, "try-streaming")
    page.keyboard.press("Control+k")
    page.wait_for_selector("#palette[open]")
    page.keyboard.type("zebras")
    page.wait_for_selector("#palette-list [role=option]:has-text('zebras')")
    expect(page.locator("#palette-list img")).to_have_count(0)
    page.keyboard.press("Enter")
    wait_for_thread(page, "palette-target")
    page.keyboard.press("Control+k")
    page.wait_for_selector("#palette[open]")
    page.keyboard.type("no such thing at all")
    page.wait_for_selector("#palette-none:not([hidden])")
    page.keyboard.press("Escape")
    page.wait_for_selector("#palette", state="hidden")
    assert_nothing_ran(page)


def test_shortcuts_work_outside_of_text_fields_and_can_be_turned_off(tab):
    page = tab()
    page.focus("#scroll")
    page.keyboard.press("m")
    expect(page.locator("#words")).to_be_focused()
    page.keyboard.type("b?")  # a text, not two commands
    expect(page.locator("#words")).to_have_value("b?")
    page.fill("#words", "")
    page.focus("#scroll")
    page.keyboard.press("?")
    page.wait_for_selector("#shortcuts-dialog[open]")
    wait_for_text(page, "Command palette", "#shortcut-rows")
    wait_for_text(page, "Ctrl+K", "#shortcut-rows")
    page.uncheck("#single-keys")
    page.keyboard.press("Escape")
    page.wait_for_selector("#shortcuts-dialog", state="hidden")
    page.focus("#scroll")
    page.keyboard.press("m")
    expect(page.locator("#scroll")).to_be_focused()
    page.keyboard.press("Control+k")
    page.wait_for_selector("#palette[open]")


STOPS = """() => {
    const controls = 'a[href], button, summary, input, select, textarea, [tabindex]'
    const stops = document.querySelectorAll(controls)
    return [...stops].filter((node) =>
        node.tabIndex >= 0 && !node.disabled && node.checkVisibility({visibilityProperty: true})
        && !node.closest('dialog')).length
}"""
FOCUSED_ROW = "() => document.activeElement?.closest('#conversation > [data-id]')?.innerText ?? ''"


def wait_for_row(page, text):
    """Wait until the focus is in the message with this text."""
    wait_until(page, lambda: page.evaluate(FOCUSED_ROW), lambda row: text in row)


def wait_for_one_stop(page):
    """Wait until each list is one stop of the Tab key."""
    wait_until(page, lambda: page.evaluate(STOPS), lambda stops: stops < 30)


def test_lists_are_one_tab_stop_each_and_the_arrow_keys_move_in_them(tab, folder):
    with weft.thread.open(folder / "weft.db", "many-stops") as thread:
        for number in range(120):
            thread.user(f"question {number}")
            thread.assistant(f"answer {number}")
    page = tab("many-stops")
    wait_for_text(page, "answer 119")
    wait_for_one_stop(page)
    expect(page.locator("#conversation > [data-id][tabindex='0']")).to_have_count(1)
    # Messages.
    page.focus("#conversation > [data-id][tabindex='0']")
    wait_for_row(page, "answer 119")
    page.keyboard.press("ArrowUp")
    wait_for_row(page, "question 119")
    page.keyboard.press("k")
    wait_for_row(page, "answer 118")
    page.keyboard.press("Tab")  # into the message: its link, then its buttons
    page.keyboard.press("Tab")
    page.wait_for_selector("[data-act=pin]:focus")
    page.keyboard.press("Enter")
    page.wait_for_selector(".row.pinned:focus")
    wait_for_row(page, "answer 118")
    page.keyboard.press("j")
    wait_for_row(page, "question 119")
    page.keyboard.press("Home")
    wait_for_row(page, "question 0")
    page.keyboard.press("End")
    wait_for_row(page, "answer 119")
    wait_for_one_stop(page)
    # Threads: the open one is the stop.
    page.wait_for_selector("#threads .thread[tabindex='0'][data-thread=many-stops]")
    page.focus("#threads .thread[tabindex='0']")
    expect(page.locator("#threads .thread[data-thread=many-stops]")).to_be_focused()
    page.keyboard.press("Home")
    expect(page.locator("#threads .thread").first).to_be_focused()
    page.keyboard.press("End")
    last = page.locator("#threads .thread").last
    expect(last).to_be_focused()
    name = last.get_attribute("data-thread")
    page.keyboard.press("Enter")
    wait_for_thread(page, name)


def test_axe_finds_no_violation_in_any_state_of_the_page(tab, axe, folder):
    with weft.thread.open(folder / "weft.db", "for-axe") as thread:
        thread.system("Be brief.")
        long_line = "x" * 400
        thread.user(
            f"Look at `code`, [a link](https://example.com)\n\n```python\n{long_line} = 1\n```"
        )
        thread.assistant("| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted\n\n## Heading")
        answer = Message("assistant", (Text("priced"),), origin=Origin("anthropic", model=PRICED))
        thread.commit_message(answer, usage=Usage(input=1_000_000, output=100_000))
        unknown = Origin("anthropic", model="no-such-model")
        answer = Message("assistant", (Text("unpriced"),), origin=unknown)
        thread.commit_message(answer, usage=Usage(input=12, output=34))
        skipped = thread.user("left out, with `code`")
        thread.skip(skipped)
        edit = '{"file_path": "a.py", "old_string": "old", "new_string": "new"}'
        thread.commit_message(Message("assistant", (ToolCall("c1", "Edit", edit),)))
        thread.tool_result("c1", "\x1b[32mdone\x1b[0m, \x1b[31mnot\x1b[0m")
        thread.note("HEAD", "for people")
        thread.branch("side")
        thread.tag("v1")
        thread.user("unanswered")
    for scheme, width in product(("light", "dark"), (1280, 390)):
        page = tab("for-axe", width=width, color_scheme=scheme)
        page.wait_for_selector("#conversation .tool")
        page.evaluate("document.querySelector('#conversation .tool').open = true")
        wait_for_text(page, "1,000,000 in, 100,000 out, $4.50")
        wait_for_text(page, "12 in, 34 out, $?")
        if width < 500:
            axe(page)
            page.click("#toggle-threads")
            axe(page)
            page.keyboard.press("Escape")
        page.keyboard.press("g")
        page.wait_for_selector(".graph-row .ref")
        axe(page)
        if width < 500:
            continue
        page.keyboard.press("d")
        page.wait_for_selector(".diff-line")
        axe(page)
        page.keyboard.press("Escape")
        page.click("#tab-log")
        page.click("#usage")
        page.wait_for_selector(".usage-plot rect")
        wait_for_text(page, "$4.50", "#usage-body")
        axe(page)
        page.click("#usage-all")
        page.wait_for_selector(".usage-table button:text-is('for-axe')")
        page.keyboard.press("Escape")
        page.goto(page.url.replace("for-axe", SAMPLE))
        wait_for_thread(page, SAMPLE)
        page.wait_for_selector(".fold")
        page.evaluate(
            "document.querySelectorAll('#conversation details').forEach((d) => d.open = true)"
        )
        page.click("#log details[data-change] > summary")
        page.wait_for_selector("#log .change button")
        axe(page)
        page.click("#compact")
        page.wait_for_selector("#preview .big")
        axe(page)
        page.keyboard.press("Escape")
        page.keyboard.press("Control+k")
        page.wait_for_selector("#palette-list [aria-label=Threads]")
        axe(page)
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        page.wait_for_selector("#shortcuts-dialog[open]")
        axe(page)
