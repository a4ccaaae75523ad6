"""History in the page, in a real browser: the graph, reading an earlier commit, branches."""

import re
from functools import partial

import pytest
from playwright.sync_api import expect

import weft
from pages import assert_nothing_ran, wait_for_no_text, wait_for_text, wait_for_thread, wait_until
from servers import Scripted
from serving import serving
from slow_upstream import Held, refusal, slow_upstream

MODEL = "scripted-model"

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("page-history")


@pytest.fixture(scope="module")
def upstream():
    """The model that writes summaries; other answers come from the offline model."""
    with slow_upstream() as running:
        yield running


@pytest.fixture(scope="module")
def url(folder, upstream):
    config = folder / "weft.toml"
    config.write_text(
        f"""
        [[upstream]]
        name = "mock"
        protocol = "anthropic"
        url = "{upstream.url}"
        models = ["{MODEL}"]
        """
    )
    flags = ("--store", str(folder / "weft.db"), "--config", str(config))
    with serving(folder, *flags) as address:
        yield address


@pytest.fixture
def store(folder):
    """The store that the server serves."""
    return str(folder / "weft.db")


@pytest.fixture
def tab(new_tab, url):
    script = "localStorage.setItem('weft.model', 'weft-offline')"
    return partial(new_tab, url, width=1440, script=script)


def add_plan(store, name):
    """A thread with a merged branch, another branch, a compaction and a tag."""
    with weft.open(store, name) as main:
        main.system("You help with a migration.")
        main.user("Which database?")
        main.assistant("PostgreSQL, if several programs write.")
        main.user("And on one laptop?")
        with main.fork("sqlite") as side:
            side.assistant("SQLite: one file.")
        main.assistant("Then SQLite is enough. " * 30)
        with main.fork("duckdb") as other:
            other.user("<script>alert(1)</script> <img src=x onerror=alert(1)>")
        main.merge("sqlite")
        main.compact(budget=150)
        main.tag("decided")
        main.user("Thanks.")


def open_graph(page):
    if page.viewport_size["width"] <= 1180:
        page.click("#toggle-log")
    page.click("#tab-graph")
    page.wait_for_selector(".graph-row")


def test_the_graph_shows_all_branches_and_opens_any_commit(tab, store):
    add_plan(store, "plan")
    page = tab("plan")
    open_graph(page)
    rows = page.locator(".graph-row")
    expect(page.locator("#graph-facts")).to_have_text("10 commits")
    expect(page.locator(".ref")).to_have_text(["main", "decided", "duckdb", "sqlite"])
    expect(page.locator("#graph-sizer svg .dot")).to_have_count(10)
    expect(page.locator("svg rect.dot.compact")).to_have_count(1)
    lanes = "dots => new Set(dots.map(d => d.className.baseVal.match(/lane-\\d/)[0])).size"
    wait_until(page, lambda: page.eval_on_selector_all("svg .dot", lanes), 3)

    page.select_option("#graph-branch", "duckdb")
    expect(rows).to_have_count(6)
    page.select_option("#graph-branch", "")
    page.select_option("#graph-kind", "compact")
    expect(rows).to_have_count(1)
    page.select_option("#graph-kind", "")
    page.fill("#graph-text", "laptop")
    expect(page.locator("#graph-facts")).to_have_text("1 of 10 commits")
    expect(rows).to_have_count(1)
    page.fill("#graph-text", "")
    expect(rows).to_have_count(10)
    height = page.eval_on_selector(".graph-row", "row => row.offsetHeight")
    page.click("#graph-in")
    page.wait_for_function(f"() => document.querySelector('.graph-row')?.offsetHeight > {height}")
    page.hover("#graph-scroll")
    page.keyboard.down("Control")
    page.mouse.wheel(0, 400)
    page.keyboard.up("Control")
    page.wait_for_function(
        f"() => document.querySelector('.graph-row')?.offsetHeight <= {height} * 1.25 / 1.1"
    )

    page.click(".graph-row.kind-system")  # by mouse
    place = re.compile(r"^You are reading commit 1 of 8 on main: \w{7}")
    expect(page.locator("#past-text")).to_have_text(place)
    expect(page.locator("#conversation > .row")).to_have_count(1)
    expect(page.locator("#composer")).to_be_hidden()
    page.reload()  # the commit is in the address
    page.wait_for_selector("#past:not([hidden])")
    expect(page.locator("#conversation > .row")).to_have_count(1)
    wait_for_thread(page)
    open_graph(page)
    expect(rows).to_have_count(10)
    page.focus("#graph-list")  # by keyboard
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    wait_for_text(page, "script", ".graph-row.active")
    page.keyboard.press("Enter")
    wait_for_text(page, "commit 6 of 6 on duckdb", "#past-text")
    wait_for_text(page, "<script>alert(1)</script>")

    page.click("#past-back")
    page.wait_for_selector("#past", state="hidden")
    page.wait_for_selector(".fold")
    expect(page.locator("#composer")).to_be_visible()
    assert_nothing_ran(page)


def test_a_branch_from_an_earlier_commit_on_a_phone(tab, store):
    add_plan(store, "phone")
    page = tab("phone", width=390)
    open_graph(page)
    page.click(".graph-row.kind-user >> nth=-1")
    page.wait_for_selector("#past:not([hidden])")  # the drawer is closed: the commit can be read
    page.click("#past-branch")
    expect(page.locator("#branch-dialog-text")).to_have_value("main-2")
    page.fill("#branch-dialog-text", "again")
    page.click("#branch-dialog-save")
    wait_for_thread(page, branch="again")
    page.wait_for_selector("#past", state="hidden")
    wait_for_text(page, "Which database?")
    expect(page.locator("#conversation > .row")).to_have_count(2)
    page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
    with weft.open(store, "phone") as thread:
        assert thread.branches().keys() == {"main", "sqlite", "duckdb", "again"}


def test_a_long_graph_has_few_nodes_and_pans_by_dragging(tab, store):
    with weft.open(store, "long") as thread, thread.batch():
        for number in range(1500):
            thread.user(f"question {number}")
    page = tab("long")
    open_graph(page)
    rows = page.locator(".graph-row")
    expect(page.locator("#graph-facts")).to_have_text("1,500 commits")
    wait_until(page, rows.count, lambda count: 0 < count < 100)
    box = page.locator("#graph-scroll").bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 500)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + 100, steps=4)
    page.mouse.up()
    page.wait_for_function("() => document.querySelector('#graph-scroll')?.scrollTop >= 300")
    expect(page.locator("#past")).to_be_hidden()  # a drag is not a click
    page.click("#tab-log")
    page.keyboard.press("g")
    expect(page.locator("#graph-list")).to_be_focused()
    page.keyboard.press("End")
    page.wait_for_selector(".graph-row.active:has-text('question 0')")
    wait_until(page, rows.count, lambda count: 0 < count < 100)
    wait_until(page, page.locator("svg .edge").count, lambda count: count < 200)


def choose(page, row, item):
    """Choose an entry of a row's menu, with the keyboard."""
    page.locator(row).last.locator("[data-act=menu]").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#menu [role=menuitem]:focus")
    entry = page.locator(f"#menu [role=menuitem]:has-text('{item}')")
    for _ in range(page.locator("#menu [role=menuitem]").count()):
        if entry.evaluate("node => node === document.activeElement"):
            break
        page.keyboard.press("ArrowDown")
    expect(entry).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_selector("#menu", state="detached")


def wait_for_answer(page, branch):
    """Wait until the run on a new branch has begun and ended."""
    wait_for_thread(page, branch=branch)
    page.wait_for_function(
        """() => document.querySelector("#stop")?.hidden
            && document.querySelector("#conversation > .row.assistant[data-id]:last-of-type")"""
    )


def test_a_message_can_be_branched_edited_and_retried(tab, store):
    with weft.open(store, "again") as thread:
        thread.user("Tell me about **red** apples.")
        thread.assistant("They are sweet.")
        thread.user("And green ones?")
        thread.assistant("They are sour.")
    page = tab("again")
    wait_for_text(page, "They are sour.")
    page.locator(".row.user >> nth=0").locator("[data-act=menu]").click()
    page.keyboard.press("Escape")
    page.wait_for_selector("#menu", state="detached")
    page.wait_for_selector("[data-act=menu]:focus", state="attached")  # the focus comes back

    choose(page, ".row.user", "Branch from here")
    page.wait_for_selector("#branch-dialog[open]")
    page.click("#branch-dialog-save")
    wait_for_thread(page, branch="main-2")
    expect(page.locator("#conversation > .row")).to_have_count(3)

    page.select_option("#branch", "main")
    wait_for_thread(page, branch="main")
    wait_for_text(page, "They are sour.")
    choose(page, ".row.user", "Edit and branch")
    expect(page.locator("#edit-text")).to_have_value("And green ones?")
    page.fill("#edit-text", "And yellow ones?")
    page.click("#edit-commit")
    wait_for_answer(page, "main-3")
    wait_for_text(page, "And yellow ones?")
    wait_for_no_text(page, "sour")

    page.select_option("#branch", "main")
    wait_for_thread(page, branch="main")
    wait_for_text(page, "They are sour.")
    choose(page, ".row.assistant", "Regenerate")
    wait_for_answer(page, "main-4")
    wait_for_text(page, "And green ones?")
    wait_for_no_text(page, "sour")
    with weft.open(store, "again") as thread:
        assert thread.compile("main").messages[-1].text == "They are sour."

    # The arrows of a message lead to its other versions, and keep the focus.
    answer, question = page.locator(".row.assistant").last, page.locator(".row.user").last
    expect(answer.locator(".versions")).to_have_text("‹2/2›")
    expect(answer.locator("[data-act=next]")).to_be_disabled()
    answer.locator("[data-act=previous]").focus()
    page.keyboard.press("Enter")
    wait_for_thread(page, branch="main")
    wait_for_text(page, "They are sour.")
    expect(answer.locator("[data-act=next]")).to_be_focused()
    expect(answer.locator(".versions")).to_have_text("‹1/2›")
    page.keyboard.press("Enter")
    wait_for_thread(page, branch="main-4")
    wait_for_no_text(page, "sour")
    expect(question.locator(".versions")).to_have_text("‹1/2›")
    question.focus()
    page.keyboard.press("]")
    wait_for_thread(page, branch="main-3")
    wait_for_text(page, "And yellow ones?")
    expect(question.locator("[data-act=previous]")).to_be_focused()
    page.keyboard.press("[")
    wait_for_thread(page, branch="main")
    wait_for_text(page, "And green ones?")


def test_branches_are_compared_merged_with_a_conflict_and_cherry_picked(tab, store, axe):
    with weft.open(store, "sides") as main:
        main.system("You help.")
        question = main.user("Write to the red file.").id
        with main.fork("side") as side:
            side.edit(question, "Write to the blue file.")
            side.assistant("Done. <img src=x onerror=alert(1)>")
        with main.fork("other") as other:
            other.assistant("Picked from the other branch.")
        main.edit(question, "Write to the green file.")
    page = tab("sides")
    wait_for_text(page, "green file")
    page.keyboard.press("d")
    page.select_option("#diff-from", "side")
    page.wait_for_selector(".diff-line.changed del:text-is('blue')")
    expect(page.locator(".diff-line.changed del")).to_have_text(["blue"])
    expect(page.locator(".diff-line.changed ins")).to_have_text(["green"])
    wait_for_text(page, "<img src=x onerror=alert(1)>", ".diff-line.removed .before")
    expect(page.locator(".diff-gap").first).to_have_text("1 unchanged message")
    axe(page)
    wait_for_text(page, "1 removed, 1 changed", "#diff-dialog [role=status]")
    page.keyboard.press("Escape")
    page.wait_for_selector("#diff-dialog", state="detached")

    open_graph(page)
    page.click(".graph-row:has(.ref:text-is('side'))")
    page.click("#graph-commands button:has-text('Merge side')")
    page.wait_for_selector(".conflict")
    expect(page.locator(".conflicts-left")).to_have_text("1 conflict left to resolve.")
    axe(page)
    expect(page.locator("#merge-commit")).to_be_disabled()
    page.check(".conflict input[value=theirs]")
    expect(page.locator("#merge-commit")).to_be_enabled()
    page.check(".conflict input[value=text]")
    page.fill(".conflict textarea", "")
    expect(page.locator("#merge-commit")).to_be_disabled()
    page.fill(".conflict textarea", "Write to both files.")
    expect(page.locator(".conflicts-left")).to_have_text("All conflicts are resolved.")
    page.click("#merge-commit")
    page.wait_for_selector("#merge-dialog", state="detached")
    wait_for_text(page, "Write to both files.")
    page.wait_for_selector("#past", state="hidden")
    wait_for_text(page, "Done. <img")
    page.wait_for_selector(".graph-row.kind-merge")

    page.click(".graph-row:has(.ref:text-is('other'))")
    page.click("#graph-commands button:has-text('Cherry-pick')")
    page.wait_for_selector("#merge-dialog .diff-line.added")
    page.click("#merge-commit")
    wait_for_text(page, "Applied", "#toast")
    wait_for_text(page, "Picked from the other branch.")

    axe(page)  # the graph
    choose(page, ".row.user", "Add a note")
    page.fill("#note-dialog-text", "<b>checked</b> by Ann")
    page.click("#note-dialog-save")
    wait_for_text(page, "<b>checked</b> by Ann")
    page.click(".graph-row:has(.ref:text-is('side'))")
    page.click("#graph-commands button:has-text('Tag')")
    page.fill("#tag-dialog-text", "merged")
    page.press("#tag-dialog-text", "Enter")
    page.wait_for_selector(".ref.tag:text-is('merged')")
    page.click("#graph-commands button:has-text('Delete branch side')")
    page.wait_for_selector(".ref:text-is('side')", state="detached")
    with weft.open(store, "sides") as main:
        assert set(main.branches()) == {"main", "other"}
        assert set(main.tags()) == {"merged"}
        texts = [message.text for message in main.compile().messages]
    assert texts[1:] == [
        "Write to both files.",
        "Done. <img src=x onerror=alert(1)>",
        "Picked from the other branch.",
    ]
    assert_nothing_ran(page)


def start_model_compaction(page, row):
    """Compact everything up to a row with the scripted model."""
    choose(page, row, "Compact up to here")
    page.select_option("#compact-by", "model")
    page.fill("#compact-model", MODEL)
    page.press("#compact-model", "Tab")
    page.click("#compact-commit")


def test_a_selected_range_is_compacted_and_a_model_is_shown_at_work(tab, store, upstream):
    with weft.open(store, "fold") as thread:
        for number in range(5):
            thread.user(f"Question {number}: where is figure {number}{number}7?")
            thread.assistant(f"Figure {number}{number}7 is in src/file{number}.py. " * 9)
    page, other = tab("fold"), tab("fold")
    wait_for_text(page, "Question 4")
    choose(page, ".row.user:has-text('Question 1')", "Start a range here")
    expect(page.locator(".row.range-start")).to_have_count(1)
    choose(
        page,
        ".row.assistant:has-text('figure 227'), .row.assistant:has-text('Figure 227')",
        "Compact the range up to here",
    )
    expect(page.locator("#compact-commit")).to_be_enabled()
    expect(page.locator("#compact-title")).to_have_text("⚡ Compact a range")
    wait_for_text(page, "Removes 4 messages", "#preview .inout")
    page.select_option("#compact-by", "text")
    expect(page.locator("#preview")).to_have_text("Write the summary.")
    page.fill("#compact-text", "Two figures: 117 and 227.")
    page.press("#compact-text", "Tab")
    page.click("#compact-commit")
    page.wait_for_selector(".fold")
    order = re.compile("Question 0.*Two figures: 117.*Question 3", re.DOTALL)
    expect(page.locator("#conversation")).to_have_text(order, use_inner_text=True)
    wait_for_no_text(page, "Question 1")
    page.click("#undo")
    wait_for_text(page, "Undone:", "#toast")
    wait_for_text(page, "Question 1")

    held = Held(upstream.gate, "<summary>Figures 007 and 117 ", "are in src/.</summary>")
    busy = Scripted(b"{}", status=429, headers=[("retry-after", "0")])
    upstream.summary = iter([busy, held]).__next__
    wait_for_text(other, "Question 1")
    start_model_compaction(page, ".row.assistant:has-text('Figure 117')")
    for each in (page, other):  # everybody sees that it runs
        each.wait_for_selector(".system-message[data-state=running]")
        retry = "429 from mock (too many requests); retry 1 of 3 in 0 s"
        expect(each.locator("[data-subtype=api_retry]")).to_contain_text(retry)
    expect(page.locator(".fold")).to_have_count(0)
    upstream.gate.set()
    for each in (page, other):
        each.wait_for_selector(".fold")
        each.wait_for_selector("[data-state=running]", state="detached")
        expect(each.locator("[data-subtype=api_retry]")).to_have_count(0)
        expect(each.locator("[data-subtype=compact_boundary]")).to_have_count(1)
    wait_for_text(page, "Figures 007 and 117 are in src/.", ".fold")

    upstream.summary = lambda: refusal("no summary today")
    start_model_compaction(page, ".row.assistant:has-text('Figure 337')")
    for each in (page, other):
        wait_for_text(each, "no summary today")
    page.reload()
    wait_for_text(page, "no summary today")  # it stays
    expect(page.locator("[data-state=running]")).to_have_count(0)
    wait_for_text(page, "Question 3")  # nothing was compacted
