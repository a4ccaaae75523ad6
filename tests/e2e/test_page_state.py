"""What belongs to a thread, a branch or a commit in the page, in a real browser.

Drafts, agents, the gauge, the log, and compactions that were reverted.
"""

import json
import re
from base64 import b64decode
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import expect

import weft
from pages import wait_for_text, wait_for_thread
from serving import serving

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("page-state")


@pytest.fixture(scope="module")
def url(folder):
    with serving(folder, "--store", str(folder / "weft.db")) as address:
        yield address


@pytest.fixture
def store(folder):
    """The store that the server serves."""
    return str(folder / "weft.db")


@pytest.fixture
def tab(new_tab, url):
    script = "localStorage.setItem('weft.model', 'weft-offline')"
    return partial(new_tab, url, width=1440, script=script)


def add_steps(thread, first, last):
    for number in range(first, last):
        thread.user(f"Step {number}: what does src/module_{number}.py do?")
        thread.assistant(f"src/module_{number}.py reads the configuration, error {number}.")


def add_compactions(store, name):
    """A thread that was compacted twice; the ids of both compactions."""
    with weft.open(store, name) as thread:
        add_steps(thread, 0, 30)
        first = thread.compact(budget=900)
        add_steps(thread, 30, 50)
        return first.commit, thread.compact(budget=900).commit


def log_of(page, kind):
    return page.locator(f"#log .commit.{kind} .label")


UNREADABLE = """() => [...document.querySelectorAll("#log .commit .label")]
    .filter((label) => {
        const head = label.parentElement;
        const end = head.matches("summary") ? head.getBoundingClientRect().right - 16 : Infinity;
        const { left, right } = label.getBoundingClientRect();
        const [metaLabel] = head.querySelectorAll(".meta");
        const meta = metaLabel.getBoundingClientRect();
        const isCut = label.scrollWidth > label.clientWidth
            || (label.textContent.endsWith("reverted")
                && label.scrollHeight > label.clientHeight + 1);
        const isBeside = Math.abs(meta.left - left) > 1 || meta.right > innerWidth;
        return isCut || right > end || isBeside;
    })
    .map((label) => label.textContent)"""


@pytest.mark.parametrize("options", [{}, {"width": 390}, {"width": 800}])
def test_the_log_shows_the_state_of_a_commit_and_its_mark_beside_the_text(tab, store, options):
    name = f"log {options}"
    _, last = add_compactions(store, name)
    with weft.open(store, name) as thread:
        thread.revert(last)
        edited = thread.user("a question with many words " * 10)
        thread.assistant("word" * 60)
        thread.edit(edited, "another question with many words " * 10)
    page = tab(name, **options)
    if options:
        page.click("#toggle-log")
    expect(log_of(page, "compact").first).to_have_text("Compacted, then reverted")
    page.wait_for_function(f"() => ({UNREADABLE})().length === 0")


def test_the_removed_messages_open_whichever_tab_is_open(tab, store):
    add_compactions(store, "tabs")
    page = tab("tabs")
    page.click("#tab-graph")
    expect(page.locator("#log-panel")).to_be_hidden()
    page.click("#conversation .fold > button")
    expect(page.locator("#tab-log")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#graph-panel")).to_be_hidden()
    expect(page.locator("#log .change .removed").first).to_be_visible()
    page.set_viewport_size({"width": 480, "height": 800})  # the log covers the conversation
    page.keyboard.press("Escape")
    expect(page.locator("#right")).not_to_be_in_viewport()
    page.click("#conversation .fold > button")
    expect(page.locator("#log .change .removed").first).to_be_in_viewport()


@pytest.mark.parametrize(
    ("changes", "log", "shown"),
    [
        (["revert 2"], ["Compacted, then reverted", "Compacted"], 1),
        (["revert 2", "revert 1"], ["Compacted, then reverted"] * 2, None),
        (["revert 1"], ["Compacted", "Compacted, then reverted"], 2),
        (["revert 2", "revert the revert"], ["Compacted", "Compacted"], 2),
        (["revert 2", "undo"], ["Compacted", "Compacted"], 2),
    ],
)
def test_a_reverted_compaction_is_not_shown_as_one(tab, store, changes, log, shown):
    name = ", ".join(changes)
    compactions = add_compactions(store, name)
    with weft.open(store, name) as thread:
        for change in changes:
            if change == "undo":
                thread.undo()
            elif change == "revert the revert":
                thread.revert(thread.head)
            else:
                thread.revert(compactions[int(change[-1]) - 1])
    page = tab(name, height=1600)
    expect(log_of(page, "compact")).to_have_text(log)
    for revert in log_of(page, "revert").all():
        expect(revert).not_to_have_text(re.compile("Compacted"))
    page.evaluate("document.querySelector('#scroll').scrollTop = 0")
    page.wait_for_function("() => document.querySelector('#conversation .gap') === null")
    cards = page.locator('#conversation [data-subtype="compact_boundary"]')
    expect(cards).to_have_count(0 if shown is None else 1)
    page.click("#tab-graph")
    page.select_option("#graph-kind", "compact")
    expect(page.locator("#graph-list .graph-row")).to_have_count(log.count("Compacted"))
    if shown is None:
        return
    # The summary leads to the compaction that made it, and from there to the originals.
    commit = compactions[shown - 1]
    before, after = (int(number) for number in re.findall(r"\d+", note_of(store, name, commit)))
    expect(cards).to_contain_text(f"{before:,} → {after:,}")
    page.click("#conversation .fold > button")
    removed = page.locator(f'#log details[data-change="{commit}"] .removed > .part-title')
    number = re.search(r"\d+", page.locator("#conversation .fold > summary").inner_text())[0]
    expect(removed).to_have_text(f"Removed ({number})")


def note_of(store, name, commit):
    with weft.open(store, name) as thread:
        return thread.show(commit).message


def test_every_thread_has_a_draft_of_its_own_that_survives_a_reload(tab, store):
    for name in ("draft a", "draft b"):
        with weft.open(store, name) as thread:
            thread.user("hello")
            thread.assistant("hi")
    page = tab("draft a")
    page.fill("#words", "for a\nonly")
    files = [{"name": "a.txt", "mimeType": "text/plain", "buffer": b"some notes"}]
    page.set_input_files("#attach-input", files)
    expect(page.locator(".chip-name")).to_have_text(["a.txt"])
    expect(page.locator(".chip:has-text('uploading')")).to_have_count(0)
    page.click('.thread[data-thread="draft b"]')
    wait_for_thread(page, "draft b")
    expect(page.locator("#words")).to_have_value("")
    expect(page.locator(".chip")).to_have_count(0)
    page.fill("#words", "for b")
    page.go_back()
    wait_for_thread(page, "draft a")
    expect(page.locator("#words")).to_have_value("for a\nonly")
    page.reload()
    wait_for_thread(page, "draft a")
    expect(page.locator("#words")).to_have_value("for a\nonly")
    expect(page.locator(".chip-name")).to_have_text(["a.txt"])
    page.press("#words", "Enter")
    expect(page.locator("#words")).to_have_value("")
    expect(page.locator(".chip")).to_have_count(0)
    page.click('.thread[data-thread="draft b"]')
    wait_for_thread(page, "draft b")
    expect(page.locator("#words")).to_have_value("for b")
    # A renamed thread keeps its draft.
    page.click("#rename")
    page.fill("#rename-dialog-text", "draft c")
    page.click("#rename-dialog-save")
    wait_for_thread(page, "draft c")
    expect(page.locator("#words")).to_have_value("for b")
    page.reload()
    wait_for_thread(page, "draft c")
    expect(page.locator("#words")).to_have_value("for b")
    page.click('.thread[data-thread="draft a"]')
    wait_for_thread(page, "draft a")
    expect(page.locator("#words")).to_have_value("")


def test_a_second_tab_does_not_offer_a_text_that_was_sent(tab, store):
    with weft.open(store, "two tabs") as thread:
        thread.user("hello")
        thread.assistant("hi")
    page = tab("two tabs")
    page.fill("#words", "say it once")
    other = page.context.new_page()
    other.goto(page.url)
    wait_for_thread(other, "two tabs")
    expect(other.locator("#words")).to_have_value("say it once")
    page.press("#words", "Enter")
    expect(page.locator("#words")).to_have_value("")
    expect(other.locator("#words")).to_have_value("")


@pytest.fixture
def claude_sdk(tmp_path, monkeypatch):
    """A server can start with `--agent claude` although the Claude Agent SDK is not installed: no
    agent runs here."""
    (tmp_path / "sdk").mkdir()
    (tmp_path / "sdk" / "claude_agent_sdk.py").write_text("__version__ = '0'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "sdk"))


@pytest.mark.usefixtures("claude_sdk")
def test_the_agent_of_a_thread_is_the_same_in_every_browser(new_tab, tmp_path):
    store = str(tmp_path / "weft.db")
    for name in ("with claude", "with weft"):
        with weft.open(store, name) as thread:
            thread.user("hello")
            thread.assistant("hi")
    flags = ("--agent", "claude", f"--agent-dir={tmp_path}")
    with serving(tmp_path, "--store", store, *flags) as url:
        page = new_tab(url, "with claude")
        agent = page.locator("#agent")
        expect(agent).to_have_value("weft")
        with page.expect_response("**/api/agent") as response:
            agent.select_option("claude")
        assert response.value.ok
        other = new_tab(url, "with claude")  # a profile of its own
        expect(other.locator("#agent")).to_have_value("claude")
        other.click('.thread[data-thread="with weft"]')
        wait_for_thread(other, "with weft")
        expect(other.locator("#agent")).to_have_value("weft")
        # A choice in a new thread is stored with its first message, and belongs to it alone.
        page.fill("#new-name", "new thread")
        page.press("#new-name", "Enter")
        wait_for_thread(page, "new thread")
        expect(agent).to_have_value("weft")
        agent.select_option("claude")
        page.click('.thread[data-thread="with weft"]')
        wait_for_thread(page, "with weft")
        expect(agent).to_have_value("weft")
        page.go_back()
        wait_for_thread(page, "new thread")
        expect(agent).to_have_value("claude")
        agent.select_option("weft")
        page.fill("#model", "weft-offline")
        page.fill("#words", "hello")
        page.press("#words", "Enter")
        page.wait_for_selector("#conversation .row.assistant .acts button", state="attached")
        third = new_tab(url, "new thread")
        expect(third.locator("#agent")).to_have_value("weft")
    with weft.open(store, "with claude") as thread:
        assert thread.store.read_thread("with claude").agent == "claude"


def test_gauge_and_branch_are_those_of_the_commit_that_is_read(tab, store):
    with weft.open(store, "gauge") as thread:
        thread.user("short")
        early = thread.assistant("answer").id
        with thread.fork("side") as side:
            on_side = side.user("only on the side branch").id
        thread.user("long " * 2000)
        thread.assistant("done")
    page = tab("gauge")
    gauge, branch = page.locator("#gauge-text"), page.locator("#branch")
    expect(gauge).to_contain_text(re.compile(r"[2-9],\d{3} of"))
    now = gauge.inner_text()
    page.click("#tab-graph")
    page.click(f"#graph-{early}")
    wait_for_text(page, "You are reading commit 2 of", "#past")
    expect(gauge).to_contain_text(re.compile(r"^(1,)?\d{3} of"))
    expect(branch).to_have_value("main")
    page.click(f"#graph-{on_side}")
    expect(branch).to_have_value("side")
    page.click("#tab-log")
    expect(page.locator("#log")).to_contain_text("only on the side branch")
    page.click("#past-back")
    expect(branch).to_have_value("main")
    expect(gauge).to_have_text(now)
    expect(page.locator("#log")).not_to_contain_text("only on the side branch")


def test_the_log_says_that_it_is_cut_and_every_commit_can_be_read(tab, store):
    with weft.open(store, "long log") as thread:
        for number in range(400):
            thread.user(f"question number {number}")
            thread.assistant(f"answer number {number}")
    page = tab("long log")
    turns = page.locator("#log > .commit.run")
    expect(turns).to_have_count(250)
    # A turn is listed by the words that began it.
    expect(turns.first.locator(".label").first).to_have_text("question number 399")
    expect(turns.first.locator("summary")).to_contain_text("2 messages")
    more = page.locator(".more-commits")
    expect(more).to_contain_text("500 of 800 commits")
    more.locator("button").click()
    expect(turns).to_have_count(400)
    expect(more).to_have_count(0)
    turns.nth(1).locator("summary").click()
    turns.nth(1).locator(".commit.append button").last.click()
    wait_for_text(page, "You are reading commit 797 of 800", "#past")
    reading = page.locator("#log [aria-current]")
    expect(reading).to_have_count(1)
    expect(reading).to_contain_text("question number 398")


def test_a_compaction_older_than_the_listed_commits_is_found(tab, store):
    with weft.open(store, "old fold") as thread:
        add_steps(thread, 0, 30)
        thread.compact(budget=900)
        add_steps(thread, 30, 300)
    page = tab("old fold")
    wait_for_text(page, "500 of 601 commits", "#log")
    page.evaluate("document.querySelector('#scroll').scrollTop = 0")
    page.click("#conversation .fold > button")
    expect(page.locator("#log .change .removed").first).to_be_visible()


def test_the_zoom_of_the_graph_is_not_kept_for_another_thread(tab, store):
    for name in ("zoom a", "zoom b"):
        with weft.open(store, name) as thread:
            add_steps(thread, 0, 20)
    page = tab("zoom a")
    page.click("#tab-graph")
    expect(page.locator("#graph-list .graph-row").first).to_be_visible()
    for _ in range(8):
        page.click("#graph-out")
    expect(page.locator("#graph-list")).to_have_class(re.compile("tiny"))
    page.click('.thread[data-thread="zoom b"]')
    wait_for_thread(page, "zoom b")
    expect(page.locator("#graph-list")).not_to_have_class(re.compile("tiny"))
    wait_for_text(page, "Step 19", "#graph-list")


def test_an_image_that_loads_late_leaves_the_end_in_view(tab):
    page = tab("late image", height=500)
    pixels = page.evaluate(
        """() => {
            const canvas = Object.assign(document.createElement('canvas'), {width: 80, height: 700})
            canvas.getContext('2d').fillRect(0, 0, 80, 700)
            return canvas.toDataURL('image/png').split(',')[1]
        }"""
    )
    png = b64decode(pixels)
    page.route("**/api/media*", lambda _: None)
    page.set_input_files(
        "#attach-input", [{"name": "tall.png", "mimeType": "image/png", "buffer": png}]
    )
    expect(page.locator(".chip:has-text('uploading')")).to_have_count(0)
    page.fill("#words", "What is this?")
    page.press("#words", "Enter")
    page.wait_for_selector("#conversation .row.assistant .acts button", state="attached")
    expect(page.locator("#conversation .row.user img")).to_have_count(1)
    page.unroute("**/api/media*")  # what was held goes on
    page.wait_for_function(
        "() => document.querySelector('#conversation .row.user img')?.naturalHeight === 700"
    )
    page.wait_for_function(
        """() => {
            const {scrollHeight, scrollTop, clientHeight} = document.querySelector('#scroll')
            return scrollHeight > clientHeight && scrollHeight - scrollTop - clientHeight < 2
        }"""
    )


def test_the_api_of_the_state_is_checked(url, store):
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    with weft.open(store, "no claude") as thread:
        thread.user("hello")
    body = json.dumps({"thread": "no claude", "agent": "claude"}).encode()
    request = Request(f"{url}/api/agent", body, {"content-type": "application/json"})
    with pytest.raises(HTTPError) as refused:
        urlopen(request)
    assert refused.value.code == 403
    assert Path(store).exists()
