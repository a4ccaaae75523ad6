"""Details of messages and dialogs of the page, in a real browser."""

import json
import re
from functools import partial
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from playwright.sync_api import expect

import weft
from pages import (
    assert_nothing_ran,
    wait_for_no_text,
    wait_for_text,
    wait_for_thread,
    wait_until,
)
from servers import scripted_upstream
from serving import serving
from weft.model import Image, Inline, Message, Origin, Text, ToolCall, ToolResult

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("page-details")


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


def height_of(node):
    return node.bounding_box()["height"]


def test_the_merge_preview_follows_the_chosen_answers(tab, store):
    with weft.open(store, "conflicts") as thread:
        question = thread.user("Which port?").id
        thread.assistant("Port 80.")
        with thread.fork("side") as side:
            side.edit(question, "Which port of the proxy?")
        thread.edit(question, "Which port of the server?")
    page = tab("conflicts")
    page.click("#tab-graph")
    page.locator("#graph-list .graph-row", has_text="Which port of the proxy").click()
    page.click("#graph-commands button:text-is('Merge side')")
    dialog = page.locator("#merge-dialog")
    facts, lines = dialog.locator("p.muted").first, dialog.locator(".dialog-body > .diff")
    expect(dialog.locator(".conflict")).to_be_visible()
    dialog.locator("input[value=theirs]").check()
    expect(lines).to_contain_text("Which port of the proxy?")
    expect(facts).to_contain_text("1 changed")
    dialog.locator("input[value=concat]").check()
    expect(lines).to_contain_text("Which port of the server?")
    expect(lines.locator("ins").first).to_contain_text("Which")
    dialog.locator("input[value=text]").check()
    dialog.locator("textarea").fill("Which port, after all?")
    expect(lines).to_contain_text("after all")
    dialog.locator("input[value=ours]").check()
    expect(lines.locator("ins")).to_have_count(0)
    dialog.locator("input[value=theirs]").check()
    expect(lines).to_contain_text("Which port of the proxy?")
    page.click("#merge-commit")
    wait_for_text(page, "Which port of the proxy?")


def test_what_was_sent_is_offered_only_where_it_is_stored(tab, store):
    origin = Origin("anthropic", "anthropic", "claude-opus-4-6")
    with weft.open(store, "sent") as thread:
        thread.user("hello")
        imported = thread.commit_message(Message("assistant", (Text("hi"),), origin=origin)).id
    page = tab("sent")
    page.fill("#model", "weft-offline")
    page.press("#model", "Tab")
    page.fill("#words", "and now?")
    page.press("#words", "Enter")
    answers = page.locator("#conversation .row.assistant[data-id]")
    expect(answers).to_have_count(2)
    page.wait_for_selector("#conversation .row.assistant:last-of-type .acts", state="attached")
    for id, is_offered in ((imported, False), (answers.last.get_attribute("data-id"), None)):
        row = page.locator(f'[data-id="{id}"]')
        row.hover()
        row.locator("[data-act=menu]").click()
        item = page.locator("#menu [data-item='What was sent …']")
        if is_offered is None:
            is_offered = item.count() > 0
        if is_offered:
            item.click()
            expect(page.locator("#sent-dialog .sent")).to_contain_text("{")
            page.keyboard.press("Escape")
        else:
            expect(item).to_have_count(0)
            page.keyboard.press("Escape")


def test_an_edited_message_says_so_and_leads_to_what_it_was(tab, store):
    with weft.open(store, "edited") as thread:
        first = thread.user("The first wording").id
        thread.assistant("You wrote: The first wording")
        second = thread.edit(first, "The second wording").id
        third = thread.edit(first, "The third wording").id
    page = tab("edited")
    mark = page.locator("#conversation .row.user .edited")
    expect(mark).to_have_text("edited")
    expect(page.locator("#conversation .row.assistant .edited")).to_have_count(0)
    mark.click()
    expect(page.locator("#log [open] .change")).to_contain_text("The second wording")
    with weft.open(store, "edited") as thread:
        thread.revert(third)
        thread.revert(second)
    expect(page.locator("#conversation .row.user")).to_contain_text("The first wording")
    expect(mark).to_have_count(0)
    with weft.open(store, "edited") as thread:
        thread.undo()
    expect(mark).to_have_text("edited")


def test_markers_of_checkpoints_are_not_shown(tab, store):
    with weft.open(store, "markers") as thread:
        thread.user("zebra question <checkpoint:abc123>")
        thread.assistant("You wrote: zebra question <checkpoint:abc123> and `<checkpoint:abc123>`")
    page = tab("markers")
    row = page.locator("#conversation .row.assistant .prose")
    expect(row.locator("a")).to_have_count(0)
    expect(row).to_have_text("You wrote: zebra question and <checkpoint:abc123>")
    page.fill("#search", "zebra")
    expect(page.locator("#threads .hit").first).to_contain_text("zebra question")
    page.keyboard.press("Control+k")
    page.fill("#palette-query", "zebra")
    expect(page.locator("#palette-list")).to_contain_text("zebra question")
    for list in ("#threads", "#palette-list"):
        wait_for_no_text(page, "checkpoint", list)


OVERRIDE = "start \u202eesrever\u202c end \u2066open"


def test_characters_that_turn_text_around_are_visible(tab, store):
    with weft.open(store, f"bidi {OVERRIDE}") as thread:
        thread.user(OVERRIDE)
        thread.assistant(f"{OVERRIDE}\n\n```\n{OVERRIDE}\n```")
        thread.commit_message(
            Message("assistant", (ToolCall("c1", "Bash", f'{{"command": "{OVERRIDE}"}}'),))
        )
        thread.commit_message(Message("tool", (ToolResult("c1", (Text(OVERRIDE),)),)))
    page = tab(f"bidi {OVERRIDE}")
    page.locator("#conversation .tool summary").click()
    expect(page.locator("#conversation .tool .result")).to_contain_text("⟨U+202E⟩")
    expect(page.locator("#conversation .tool .input")).to_contain_text("⟨U+202E⟩")
    expect(page.locator("#conversation .row.user")).to_contain_text("start ⟨U+202E⟩esrever")
    hidden = re.compile("[\u202a-\u202e\u2066-\u2069]")
    wait_until(page, lambda: hidden.search(page.inner_text("body")), None)


def test_a_compaction_is_reported_in_one_line(tab, store):
    with weft.open(store, "toast") as thread:
        for number in range(30):
            thread.user(f"Step {number}: what does src/module_{number}.py do?")
            thread.assistant(f"src/module_{number}.py fails with error {number}.")
    page = tab("toast")
    page.click("#compact")
    page.click("#compact-commit")
    expect(page.locator("#toast")).to_have_text(re.compile(r"^Compacted: [\d,]+ → [\d,]+ tokens\."))
    wait_until(page, lambda: height_of(page.locator("#toast")), lambda height: height < 40)


def test_a_young_thread_is_compacted_to_a_budget_that_works(tab, store):
    with weft.open(store, "young") as thread:
        thread.system("Rules. " * 400)
        for number in range(3):
            thread.user(f"Question {number}: " + "why? " * 150)
            thread.assistant(f"Answer {number}: " + "because. " * 150)
        thread.user("The last question " + "is long. " * 900)  # with the rules: over half
    page = tab("young")
    page.click("#compact")
    preview = page.locator("#preview")
    expect(preview).to_contain_text("It cannot become half as long")
    expect(preview).to_contain_text("Removes")
    page.fill("#budget", "100")
    page.click("#compact-again")
    offer = page.locator("#budget-needed")
    expect(offer).to_have_text(re.compile(r"Fit into [\d,]+ tokens"))
    offer.click()
    expect(preview).to_contain_text("Removes")
    page.click("#compact-commit")
    expect(page.locator("#log .commit.compact")).to_have_count(1)
    # Nothing that nobody set is blamed, if nothing can be saved.
    with weft.open(store, "tiny") as thread:
        thread.user("hello " * 300)
        thread.assistant("hi")
    page.goto(page.url.split("#")[0] + "#thread=tiny")
    wait_for_thread(page, "tiny")
    page.click("#compact")
    expect(preview).to_contain_text("would save nothing")
    expect(preview).not_to_contain_text("budget")


def test_side_branches_of_a_client_s_compactions_are_not_listed(tab, store):
    with weft.open(store, "sides") as thread:
        thread.user("hello")
        thread.assistant("hi")
        for name in ("compaction-1", "compaction-2", "feature"):
            with thread.fork(name) as side:
                side.user(f"on {name}")
    page = tab("sides")
    options = page.locator("#branch option")
    expect(options).to_have_text(["feature", "main"])
    page.goto(page.url + "&branch=compaction-1")
    wait_for_thread(page, "sides", "compaction-1")
    expect(options).to_have_text(["compaction-1", "feature", "main"])


def test_removed_messages_are_listed_by_what_they_say_and_do(tab, store):
    png = Inline("iVBORw0KGgo=", "image/png")
    with weft.open(store, "lists") as thread:
        for number in range(12):
            thread.user(f"Look at file {number} " + "please " * 20)
            call = ToolCall(f"c{number}", "Read", f'{{"file_path": "/src/f{number}.py", "n": 1}}')
            thread.commit_message(Message("assistant", (Text("Reading."), call)))
            result = ToolResult(f"c{number}", (Text(f"content of f{number} " * 20),))
            thread.commit_message(Message("user", (result,)))
            thread.assistant("Read it.")
        thread.commit_message(Message("user", (Image(png),)))
        thread.assistant("An image.")
    page = tab("lists")
    page.click("#compact")
    removed = page.locator("#preview .removed .rows > li > details > summary")
    expect(removed.first).to_contain_text("Look at file 0")
    expect(removed.nth(1)).to_contain_text("Read: /src/f0.py")
    expect(removed.nth(1)).not_to_contain_text("{")
    expect(removed.nth(2)).to_contain_text("content of f0")
    expect(removed.nth(2).locator("b")).to_have_text("tool")


def test_a_shell_command_is_shown_as_it_would_be_typed(tab, store):
    inputs = (
        '{"command": "grep -rn \\"a\\" .\\nls -l", "description": "Look"}',
        '{"command": ["bash", "-lc", "echo \\"hi\\""], "workdir": "/tmp"}',
        '{"cmd": ["ls", "-l", "a b"]}',
    )
    with weft.open(store, "commands") as thread:
        thread.user("run")
        calls = tuple(ToolCall(f"c{i}", "Bash", each) for i, each in enumerate(inputs))
        thread.commit_message(Message("assistant", calls))
    page = tab("commands")
    for index, (text, other) in enumerate(
        [
            ('grep -rn "a" .\nls -l', "description: Look"),
            ('echo "hi"', "workdir: /tmp"),
            ('ls -l "a b"', ""),
        ]
    ):
        panel = page.locator("#conversation .tool").nth(index)
        panel.locator("summary").click()
        expect(panel.locator(".part-title").first).to_have_text("Command")
        shown = panel.locator(".input")
        expect(shown).to_have_text(
            re.compile("^" + re.escape(text) + r"(\s|$)"), use_inner_text=True
        )
        expect(shown).to_contain_text(other)
        expect(shown).not_to_contain_text("\\n")


FORMULAS = r"""The area is $\pi r^2$, and \(a_b\) too.

$$
\sum_{i=0}^n x_i = \frac{1}{2}
$$

\[ x < y \]

It costs $5 and $10, or $HOME. `$code$`

- [ ] open task
- [x] done task
- plain

$\text{<img src=x onerror=alert(1)>}$ $\href{javascript:alert(1)}{link}$ $\style{color:red}{x}$
$\class{secret}{y}$ $\frac{$ \(\unknown{<script>alert(1)</script>}\) $$<svg onload=alert(1)>$$
"""


@pytest.mark.parametrize("options", [{}, {"color_scheme": "dark"}, {"width": 390}])
def test_formulas_and_tasks_are_drawn_and_run_nothing(tab, store, axe, options):
    with weft.open(store, "formulas") as thread:
        if thread.head is None:
            thread.user("draw")
            thread.assistant(FORMULAS)
    page = tab("formulas", **options)
    prose = page.locator("#conversation .row.assistant .prose")
    expect(prose.locator("math").first).to_be_visible()
    expect(prose.locator("math[display=block] mfrac")).to_have_count(1)
    expect(prose).to_contain_text("It costs $5 and $10, or $HOME. $code$")
    expect(prose.locator("[role=img][aria-label='done']")).to_have_count(1)
    expect(prose.locator("[role=img][aria-label='to do']")).to_have_count(1)
    expect(prose.locator("[href^=javascript], [style], .secret, svg, input")).to_have_count(0)
    fraction = prose.locator("math[display=block]").first
    wait_until(page, lambda: height_of(fraction), lambda height: height > 30)
    assert_nothing_ran(page)
    axe(page)
    page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")


LARGE_FORMULAS = "\n\n".join(
    f"${tex}$\n\n$${tex}$$"
    for tex in (
        r"\rule{9999em}{9999em}",
        r"\rule{20em}{20em}" * 40,
        r"\raise 20em {" * 20 + "x" + "}" * 20,
        r"\kern-9999em x" * 20,
        r"\frac{1}{" * 60 + "x" + "}" * 60,
        r"\begin{matrix}" + r"x\\" * 100 + r"\end{matrix}",
        "x" * 500,
    )
)
USUAL_FORMULAS = "\n\n".join(
    f"a ${tex}$ b\n\n$${tex}$$"
    for tex in (
        *("x", "y", "x^2", r"\frac{1}{2}", r"\sum_{i=0}^n x_i", r"\sqrt{x}", r"\int_0^1 f"),
        *(r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\hat{x}", r"\underbrace{a+b}_{n}"),
    )
)
SCROLLS = "math => math.scrollHeight > math.clientHeight || math.scrollWidth > math.clientWidth"


@pytest.mark.parametrize("options", [{}, {"width": 390}])
def test_only_large_formulas_scroll(tab, store, options):
    with weft.open(store, "large formulas") as thread:
        if thread.head is None:
            thread.user("draw")
            thread.assistant(LARGE_FORMULAS)
            thread.user("draw")
            thread.assistant(USUAL_FORMULAS)
    page = tab("large formulas", **options)
    scrolling = f"all => all.filter({SCROLLS}).length"
    usual = page.locator("#conversation .row.assistant .prose").last.locator("math")
    expect(usual).to_have_count(20)
    wait_until(page, lambda: usual.evaluate_all(scrolling), lambda number: number == 0)
    page.locator("#conversation").evaluate("list => list.scrollTo(0, 0)")
    large = page.locator("#conversation .row.assistant .prose").first.locator("math")
    expect(large).to_have_count(14)
    heights = "all => Math.max(...all.map(math => math.getBoundingClientRect().height))"
    wait_until(page, lambda: large.evaluate_all(heights), lambda height: height <= 500)
    wait_until(page, lambda: large.evaluate_all(scrolling), lambda number: number > 4)
    page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")


def test_a_very_long_message_is_folded(tab, store, axe):
    with weft.open(store, "very long") as thread:
        thread.user("short")
        thread.assistant("\n\n".join(f"Paragraph {n} [link](https://x.y/{n})" for n in range(2000)))
        thread.user("plain\n" * 40_000)
    page = tab("very long")
    answer = page.locator("#conversation .row.assistant .body")
    expect(answer).to_be_attached()
    more = answer.locator("button", has_text="Show all")
    expect(more).to_have_attribute("aria-expanded", "false")
    wait_until(page, lambda: height_of(answer), lambda height: height < 700)
    axe(page)
    more.click()
    expect(answer.locator("button", has_text="Show less")).to_have_attribute(
        "aria-expanded", "true"
    )
    wait_until(page, lambda: height_of(answer), lambda height: height > 10_000)
    long_text = page.locator("#conversation .row.user .body").last
    wait_until(page, lambda: height_of(long_text), lambda height: height < 700)


def test_only_models_that_would_be_served_are_offered(new_tab, tmp_path):
    store = str(tmp_path / "weft.db")
    origin = Origin("openai-chat", "imported", "shared-model")
    own = Origin("openai-chat", "imported", "only-two")
    for name, answered in (("imported", origin), ("imported two", own)):
        with weft.open(store, name) as thread:
            thread.user("hello")
            thread.commit_message(Message("assistant", (Text("hi"),), origin=answered))
    with scripted_upstream() as one, scripted_upstream() as two:
        one.models, two.models = ["shared-model", "only-one"], ["shared-model", "only-two"]
        flags = [f"--upstream=one=openai-chat:{one.url}", f"--upstream=two=openai-chat:{two.url}"]
        with serving(tmp_path, "--store", store, *flags) as url:
            with urlopen(f"{url}/api/models") as reply:
                models = json.loads(reply.read())["models"]
            shared = {"one/shared-model", "two/shared-model"}
            assert set(models) == shared | {"one/only-one", "two/only-two", "weft-offline"}
            for model in models:
                query = urlencode({"thread": "new", "model": model})
                with urlopen(f"{url}/api/composer?{query}") as reply:
                    assert json.loads(reply.read())["problem"] is None, model
            page = new_tab(url, "imported")
            problem = page.locator("#model-problem")
            expect(problem).to_contain_text("one/shared-model, two/shared-model")
            page.fill("#model", "two/shared-model")
            page.press("#model", "Tab")
            expect(problem).to_be_hidden()
            # If one upstream lists the model, that one goes on.
            page.click('.thread[data-thread="imported two"]')
            wait_for_thread(page, "imported two")
            expect(page.locator("#model")).to_have_value("two/only-two")
            expect(problem).to_be_hidden()
