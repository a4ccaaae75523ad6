"""Runs in the page, in a real browser and against an upstream that is slow or fails: leaving a
thread, reloading, stopping, failing, and compacting only after a yes."""

import json
import re
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

import weft.thread
from servers import Scripted
from serving import serving
from slow_upstream import CUT_TEXT, HELD_TEXT, REASON, refusal, slow_upstream, streamed, tool_call
from weft.model import Message, Origin, Text, Thinking

pytestmark = pytest.mark.xdist_group("browser")

MODEL = "scripted-model"
SMALL = "gpt-3.5-turbo"
"""The catalogue knows a window of 16,385 tokens; with one upstream, every name goes there."""
POLL_MS = 3500
"""Longer than the page waits between two looks for what is new."""


@pytest.fixture(scope="module")
def upstream():
    with slow_upstream() as running:
        yield running


@pytest.fixture(autouse=True)
def _closed_gate(upstream):
    upstream.gate.clear()
    upstream.summary = None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("page-runs")


@pytest.fixture(scope="module")
def url(folder, upstream):
    with serving(
        folder, "--store", str(folder / "weft.db"), f"--upstream=mock=anthropic:{upstream.url}"
    ) as address:
        yield address


@pytest.fixture
def tab(browser, url):
    """A function that opens a thread in a new tab."""
    contexts = []

    def open_tab(thread, address=url):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        contexts.append(context)
        context.add_init_script("window.pwned = 0; window.alert = () => { window.pwned += 1; };")
        page = context.new_page()
        page.goto(f"{address}/#thread={quote(thread, safe='')}")
        ready(page)
        return page

    yield open_tab
    for context in contexts:
        context.close()


def ready(page):
    page.wait_for_selector("body[data-branch]")
    page.wait_for_selector("#offline", state="hidden")


def send(page, text, model=MODEL):
    """Send a text and wait until the run has begun."""
    if model is not None:
        page.fill("#model", model)
        page.press("#model", "Tab")
    page.fill("#words", text)
    page.press("#words", "Enter")
    wait_for_start(page)


def wait_for_start(page):
    """The box is emptied when the run begins; a quick answer may be there already."""
    page.wait_for_function("() => document.querySelector('#words').value === ''")


def wait_for_end(page):
    page.wait_for_selector("#send:not([hidden])")


def wait_for_text(page, text):
    page.wait_for_function(
        "(text) => document.querySelector('#conversation').innerText.includes(text)", arg=text
    )


def conversation(page):
    return page.inner_text("#conversation")


def read(url, path):
    with urlopen(url + path) as answer:
        return json.load(answer)


def by_client(url, text, model=MODEL):
    """What a program says through the gateway; the name of its thread."""
    body = {"model": model, "max_tokens": 99, "messages": [{"role": "user", "content": text}]}
    headers = {"content-type": "application/json", "x-api-key": "k"}
    request = Request(url + "/v1/messages", json.dumps(body | {"stream": True}).encode(), headers)
    with urlopen(request) as answer:
        answer.read()
        return answer.headers["x-weft-thread"]


# The composer.


def test_the_model_box_shows_the_thread_s_own_model_also_after_a_reload(tab, url):
    thread = by_client(url, "a program speaks")
    page = tab(thread)
    for _ in range(2):
        page.wait_for_function("() => document.querySelector('#model').value !== ''")
        assert page.input_value("#model") == MODEL
        page.reload()
        ready(page)
    listed = page.locator("#models option").evaluate_all("all => all.map((one) => one.value)")
    assert set(listed) == {MODEL, "weft-offline"}


def test_a_choice_of_model_survives_a_reload(tab, url):
    page = tab(by_client(url, "another program speaks"))
    page.wait_for_function("() => document.querySelector('#model').value !== ''")
    page.fill("#model", "weft-offline")
    page.press("#model", "Tab")
    page.reload()
    ready(page)
    page.wait_for_function("() => document.querySelector('#model').value === 'weft-offline'")


def test_a_thread_whose_model_nobody_serves_says_so_and_asks_to_choose(tab, url):
    page = tab(by_client(url, "to an old model", model="retired-model"))
    page.wait_for_selector("#model-problem:not([hidden])")
    assert "retired-model answered last here" in page.inner_text("#model-problem")
    assert page.input_value("#model") == ""
    page.fill("#words", "hello")
    page.press("#words", "Enter")
    page.wait_for_selector("#toast.error:not(:empty)")
    assert page.inner_text("#toast") == "Choose a model first."
    page.fill("#model", MODEL)
    page.press("#model", "Tab")
    page.wait_for_selector("#model-problem", state="hidden")


def fill(folder, thread, messages=60):
    """A thread that has outgrown the offline model's window."""
    with weft.thread.open(str(folder / "weft.db"), thread) as opened:
        for number in range(messages):
            opened.user(f"question {number} about module_{number}.py " + "lorem ipsum dolor " * 130)
            opened.assistant(f"answer {number}: " + "consectetur adipiscing elit " * 130)


def compactions(url, thread):
    commits = read(url, f"/api/log?thread={thread}")["commits"]
    return sum(commit["kind"] == "compact" for commit in commits)


def test_a_send_that_would_compact_asks_first_and_a_no_changes_nothing(tab, url, folder):
    fill(folder, "fold-no")
    page = tab("fold-no")
    page.fill("#model", "weft-offline")
    page.press("#model", "Tab")
    page.fill("#words", "hello after")
    page.press("#words", "Enter")
    page.wait_for_selector("#ask-dialog[open]")
    told = page.inner_text("#ask-facts")
    assert re.search(r"[\d,]{6,} → about [\d,]+ tokens", told)
    assert "weft-offline has a window of 32,000" in told
    assert re.search(r"\d+ messages would become a summary", told)
    page.click("#ask-dialog [data-close]")
    page.wait_for_selector("#ask-dialog", state="hidden")
    assert page.input_value("#words") == "hello after"
    assert compactions(url, "fold-no") == 0
    assert "hello after" not in conversation(page)
    assert page.is_enabled("#send")


def test_a_send_compacts_after_a_yes_and_says_where(tab, url, folder):
    fill(folder, "fold-yes")
    page = tab("fold-yes")
    page.fill("#model", "weft-offline")
    page.press("#model", "Tab")
    page.fill("#words", "hello after")
    page.press("#words", "Enter")
    page.click("#ask-compact")
    wait_for_start(page)
    wait_for_end(page)
    page.wait_for_selector("[data-subtype=compaction_remark]")
    assert compactions(url, "fold-yes") == 1
    card = page.inner_text("[data-subtype=compaction_remark]")
    assert re.search(r"Compacted \(auto\): [\d,]{6,} → [\d,]{5,} tokens", card)
    page.click("text=Show where")
    page.wait_for_function(
        "() => { const box = document.querySelector('[data-subtype=compact_boundary]')"
        ".getBoundingClientRect(); return box.top >= 0 && box.bottom <= innerHeight }"
    )
    page.reload()
    page.wait_for_selector("[data-subtype=compaction_remark]")


def test_a_send_may_go_out_without_compacting(tab, url, folder):
    fill(folder, "fold-without")
    page = tab("fold-without")
    page.fill("#model", "weft-offline")
    page.press("#model", "Tab")
    page.fill("#words", "hello after")
    page.press("#words", "Enter")
    page.click("#ask-without")
    wait_for_start(page)
    wait_for_end(page)
    page.wait_for_selector(".row.assistant:last-child .acts button", state="attached")
    assert compactions(url, "fold-without") == 0


@pytest.mark.parametrize(("button", "count"), [("Compact and go on", 1), ("Go on without", 0)])
def test_a_run_that_outgrows_the_window_asks_before_it_compacts(
    tab, url, folder, upstream, button, count
):
    thread = f"grows-{count}"
    fill(folder, thread, 14)
    long = "many words and more of them " * 800
    upstream.answers["GROW"] = lambda: tool_call(long, "calculate", {"expression": "6 * 7"})
    page = tab(thread)
    send(page, "GROW", SMALL)
    page.wait_for_selector(".question button")
    assert compactions(url, thread) == 0
    page.reload()  # the question is the run's, not the tab's
    ready(page)
    page.click(f".question button:has-text('{button}')")
    wait_for_end(page)
    page.wait_for_selector(".question", state="detached")  # the thread is read again
    assert compactions(url, thread) == count
    page.click(".tool.done > summary")
    assert page.inner_text(".tool.done .result") == "42"


def test_the_gauge_marks_where_compaction_starts(tab, url, folder):
    fill(folder, "gauged", 20)
    page = tab("gauged")
    page.fill("#model", "weft-offline")
    page.press("#model", "Tab")
    page.wait_for_selector("#gauge-limit:not(:empty)")
    context = read(url, "/api/composer?thread=gauged&model=weft-offline")["context"]
    page.wait_for_function(
        "(text) => document.querySelector('#gauge-text').innerText === text",
        arg=f"{context['tokens']:,} of {context['window']:,} tokens",
    )
    assert page.inner_text("#gauge-limit") == f"compacts above {context['limit']:,}"
    assert page.is_visible("#gauge-mark")


def test_a_model_that_is_being_typed_is_not_replaced(browser, url, folder):
    fill(folder, "typed", 2)
    page = browser.new_page()
    waiting, passing = [], []
    page.route(
        "**/api/composer**",
        lambda route: route.continue_() if passing else waiting.append(route),
    )
    page.goto(f"{url}/#thread=typed")
    ready(page)
    page.fill("#model", "weft-off")
    passing.append(True)
    for route in waiting:
        route.continue_()
    page.wait_for_function("() => document.querySelector('#gauge-text').innerText !== ''")
    assert page.input_value("#model") == "weft-off"
    page.close()


# Leaving a thread while it runs.


def test_another_thread_can_be_used_while_one_runs_and_the_run_goes_on(tab, upstream):
    page = tab("run-b")
    send(page, "first words in b")
    wait_for_end(page)
    page.goto(page.url.replace("run-b", "run-a"))
    page.wait_for_selector("body[data-thread=run-a]")
    send(page, "HELD in a")
    wait_for_text(page, HELD_TEXT.strip())
    page.wait_for_selector("[data-thread=run-a][data-running]")
    page.click("[data-thread=run-b]")
    page.wait_for_selector("body[data-thread=run-b]")
    wait_for_end(page)
    assert HELD_TEXT.strip() not in conversation(page)
    send(page, "second words in b")
    wait_for_end(page)
    page.wait_for_selector("[data-thread=run-b]:not([data-running])")
    page.click("[data-thread=run-a]")
    page.wait_for_selector("#stop:not([hidden])")
    wait_for_text(page, HELD_TEXT.strip())
    assert conversation(page).count("HELD in a") == 1
    upstream.gate.set()
    wait_for_end(page)
    wait_for_text(page, "and the second half.")
    assert page.locator(".attempt").count() == 0


def test_a_reload_joins_the_run_with_all_that_was_streamed(tab, upstream):
    page = tab("reloaded")
    send(page, "HELD please")
    wait_for_text(page, HELD_TEXT.strip())
    page.reload()
    page.wait_for_selector("#stop:not([hidden])")
    wait_for_text(page, HELD_TEXT.strip())
    assert conversation(page).count("HELD please") == 1
    upstream.gate.set()
    wait_for_end(page)
    wait_for_text(page, "and the second half.")
    assert page.locator(".row").count() == 2


def test_a_branch_can_be_changed_during_a_run(tab, upstream):
    page = tab("branched")
    send(page, "hello")
    wait_for_end(page)
    page.click("#new-branch")
    page.fill("#branch-name", "side")
    page.press("#branch-name", "Enter")
    page.wait_for_selector("body[data-branch=side]")
    send(page, "HELD on the side")
    page.select_option("#branch", "main")
    page.wait_for_selector("body[data-branch=main]")
    wait_for_end(page)
    assert "HELD on the side" not in conversation(page)
    page.select_option("#branch", "side")
    page.wait_for_selector("#stop:not([hidden])")
    upstream.gate.set()
    wait_for_end(page)
    wait_for_text(page, "and the second half.")


def test_a_second_tab_sees_the_run_and_what_it_says_is_queued(tab):
    first, second = tab("two-tabs"), tab("two-tabs")
    send(first, "HELD please")
    second.wait_for_selector("#stop:not([hidden])")
    wait_for_text(second, HELD_TEXT.strip())
    for text in ("me too", "and me"):
        second.fill("#words", text)
        second.press("#words", "Enter")
        wait_for_start(second)
        second.wait_for_selector("#toast:has-text('Queued')")
        first.wait_for_selector(f"#queue :text('{text}')")
    first.click("#queue li:has-text('and me') button:text('Cancel')")
    second.wait_for_selector("#queue :text('and me')", state="detached")
    second.reload()
    second.wait_for_selector("#queue :text('me too')")
    second.click("#stop")
    for page in (first, second):
        page.wait_for_selector(".attempt.partial")
        wait_for_text(page, "An answer to: me too")
        page.wait_for_selector("#queue li", state="detached")
        page.wait_for_selector(".row.assistant[data-id]")
        assert page.locator(".row.user").count() == 2


def test_the_page_is_not_wedged_by_a_server_that_comes_back_without_the_run(
    tab, tmp_path, upstream
):
    options = ("--store", str(tmp_path / "w.db"), f"--upstream=mock=anthropic:{upstream.url}")
    with serving(tmp_path, *options) as address:
        page = tab("restarted", address)
        send(page, "HELD please")
        wait_for_text(page, HELD_TEXT.strip())
    page.wait_for_selector("#offline:not([hidden])")
    with serving(tmp_path, "--port", address.rpartition(":")[2], *options):
        page.wait_for_selector("#offline", state="hidden")
        wait_for_end(page)
        page.wait_for_selector(".attempt.partial button:has-text('Retry')")
        assert HELD_TEXT.strip() in conversation(page)
        upstream.gate.set()
        page.click("text=Retry")
        wait_for_text(page, "and the second half.")
        wait_for_end(page)
        page.wait_for_selector(".attempt.old")
        assert page.locator(".row.user").count() == 1


# Failures stay.


def test_a_failure_stays_with_its_reason_and_retry_asks_again_without_repeating(tab):
    page = tab("failed")
    send(page, "REFUSED please")
    wait_for_end(page)
    for _ in range(2):
        page.wait_for_selector(".attempt.failed [role=alert]")
        assert f"{REASON} (400)" in page.inner_text(".attempt [role=alert]")
        page.wait_for_timeout(POLL_MS)
        assert REASON in conversation(page)
        page.reload()
        ready(page)
    page.fill("#model", "weft-offline")
    page.press("#model", "Tab")
    page.click("text=Retry")
    page.wait_for_selector(".row.assistant")
    wait_for_end(page)
    page.wait_for_selector(".attempt.old")
    assert page.locator(".row.user").count() == 1
    assert page.locator("button:has-text('Retry')").count() == 0
    assert REASON in page.inner_text(".attempt.old summary")


def test_an_answer_that_breaks_off_is_kept_with_its_reason(tab):
    page = tab("cut")
    send(page, "CUT please")
    wait_for_end(page)
    for _ in range(2):
        page.wait_for_selector(".attempt.partial [role=alert]")
        assert CUT_TEXT in page.inner_text(".attempt.partial .body")
        assert "The answer broke off" in page.inner_text(".attempt [role=alert]")
        page.wait_for_timeout(POLL_MS)
        page.reload()
        ready(page)


def test_stop_keeps_what_was_streamed(tab):
    page = tab("stop-keeps")
    send(page, "HELD please")
    wait_for_text(page, HELD_TEXT.strip())
    page.click("#stop")
    wait_for_end(page)
    for _ in range(2):
        page.wait_for_selector(".attempt.partial")
        assert HELD_TEXT.strip() in page.inner_text(".attempt.partial .body")
        assert "Stopped" in page.inner_text(".attempt [role=alert]")
        page.wait_for_timeout(POLL_MS)
        page.reload()
        ready(page)
    send(page, "something else")
    wait_for_end(page)
    wait_for_text(page, "An answer to: something else")


def test_a_reason_cannot_run_anything(tab, upstream):
    attack = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    upstream.answers["ATTACK"] = lambda: refusal(attack)
    page = tab("hostile-reason")
    send(page, "ATTACK")
    wait_for_end(page)
    page.wait_for_selector(".attempt [role=alert]")
    assert "<img" in page.inner_text(".attempt [role=alert]")
    upstream.answers["ATTACK"] = lambda: Scripted(*streamed(attack).pieces[:3], cut=True)
    page.click("text=Retry")
    page.wait_for_selector(".attempt.partial")
    assert page.locator("#conversation img, #conversation script").count() == 0
    assert page.evaluate("window.pwned") == 0


# What a model cannot be sent.


def test_a_run_shows_what_its_model_could_not_be_sent_also_after_a_reload(tab, folder):
    with weft.thread.open(str(folder / "weft.db"), "losing") as opened:
        for number in range(3):
            opened.user(f"question {number}")
            blocks = (Thinking(f"thought {number}"), Text(f"answer {number}"))
            origin = Origin("openai-chat", "other", "gpt-5")
            opened.commit_message(Message("assistant", blocks, origin=origin))
    page = tab("losing")
    send(page, "and now?")
    wait_for_end(page)
    for _ in range(2):
        page.wait_for_selector("[data-subtype=losses] summary")
        assert page.locator("[data-subtype=losses]").count() == 1
        assert f"sent to {MODEL}" in page.inner_text("[data-subtype=losses] summary")
        page.click("[data-subtype=losses] summary")
        page.wait_for_selector("[data-subtype=losses] li")
        assert "3 times" in page.inner_text("[data-subtype=losses] li")
        page.reload()
        ready(page)


def test_a_run_that_loses_nothing_shows_no_such_card(tab):
    page = tab("losing nothing")
    send(page, "hello")
    wait_for_end(page)
    page.wait_for_selector(".row.assistant .acts button", state="attached")
    assert page.locator("[data-subtype=losses]").count() == 0


# Compaction as a person sees it.


def test_a_compaction_is_one_card_from_its_start_to_its_end(tab, url, folder, upstream):
    fill(folder, "slow-summary")
    upstream.summary = lambda: streamed(
        "<summary>The ", "questions ", "were answered.</summary>", pause=0.4
    )
    page = tab("slow-summary")
    page.fill("#model", SMALL)
    page.press("#model", "Tab")
    page.fill("#words", "one more question")
    page.press("#words", "Enter")
    page.click("#ask-compact")
    page.wait_for_selector("[data-subtype][data-state=running]")
    assert "Compacting" in conversation(page)
    wait_for_end(page)
    page.wait_for_selector("[data-subtype=compaction_remark]")
    page.wait_for_timeout(POLL_MS)
    told = conversation(page)
    assert "Summarising part" not in told
    assert "Compacting" not in told
    assert compactions(url, "slow-summary") == 1
    assert page.locator("[data-subtype=compact_boundary]").count() == 1


def test_a_summary_that_fails_is_told_with_its_reason_and_stays(tab, folder, upstream):
    fill(folder, "no-summary")
    upstream.summary = lambda: refusal("no summary today")
    page = tab("no-summary")
    page.fill("#model", SMALL)
    page.press("#model", "Tab")
    page.fill("#words", "one more question")
    page.press("#words", "Enter")
    page.click("#ask-compact")
    wait_for_start(page)
    wait_for_end(page)
    for _ in range(2):
        wait_for_text(page, "no summary today")
        assert "Summarising part" not in conversation(page)
        assert page.locator("[data-state=running]").count() == 0
        page.wait_for_timeout(POLL_MS)
        page.reload()
        ready(page)
