"""Runs in the page, in a real browser, with an upstream that is slow or fails."""

import json
import re
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import expect

import weft.thread
from pages import (
    RECEIVE,
    assert_nothing_ran,
    wait_for_no_text,
    wait_for_text,
    wait_for_thread,
    wait_until,
)
from servers import Scripted
from serving import serving
from slow_upstream import (
    CUT_TEXT,
    HELD_TEXT,
    REASON,
    Held,
    refusal,
    streamed,
    tool_call,
)
from weft.model import Message, Origin, Text, Thinking

pytestmark = pytest.mark.xdist_group("browser")

MODEL = "scripted-model"
SMALL = "gpt-3.5-turbo"
"""The catalogue knows a window of 16,385 tokens; with one upstream, every name goes there."""


@pytest.fixture(autouse=True)
def _closed_gate(upstream):
    upstream.gate.clear()
    upstream.summary = None


@pytest.fixture
def tab(new_tab, url):
    return lambda thread, address=url, **options: new_tab(address, thread, **options)


def reload(page):
    page.reload()
    wait_for_thread(page)


def read_again(page):
    """Let the page read its thread again, as it does after every change."""
    page.evaluate(RECEIVE, {"type": "changed"})


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
    expect(page.locator("#words")).to_have_value("")


def wait_for_end(page):
    page.wait_for_selector("#send:not([hidden])")


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


def test_the_model_box_shows_the_threads_model_also_after_a_reload(tab, url):
    thread = by_client(url, "a program speaks")
    page = tab(thread)
    for _ in range(2):
        expect(page.locator("#model")).to_have_value(MODEL)
        reload(page)
    options = page.locator("#models option")
    read_values = "all => all.map((one) => one.value)"
    wait_until(page, lambda: set(options.evaluate_all(read_values)), {MODEL, "weft-offline"})


def test_a_choice_of_model_survives_a_reload(tab, url):
    page = tab(by_client(url, "another program speaks"))
    expect(page.locator("#model")).to_have_value(MODEL)
    page.fill("#model", "weft-offline")
    page.press("#model", "Tab")
    reload(page)
    expect(page.locator("#model")).to_have_value("weft-offline")


def test_an_unavailable_model_is_reported_and_another_can_be_chosen(tab, url):
    page = tab(by_client(url, "to an old model", model="retired-model"))
    wait_for_text(page, "retired-model answered last here", "#model-problem")
    expect(page.locator("#model")).to_have_value("")
    page.fill("#words", "hello")
    page.press("#words", "Enter")
    expect(page.locator("#toast.error")).to_have_text("Choose a model first.")
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
    facts = page.locator("#ask-dialog .dialog-body")
    expect(facts).to_have_text(re.compile(r"[\d,]{6,} → about [\d,]+ tokens"))
    expect(facts).to_contain_text("weft-offline has a window of 32,000")
    expect(facts).to_have_text(re.compile(r"\d+ messages would become a summary"))
    page.click("#ask-dialog button:text-is('Cancel')")
    page.wait_for_selector("#ask-dialog", state="hidden")
    expect(page.locator("#send")).to_be_enabled()
    expect(page.locator("#words")).to_have_value("hello after")
    wait_for_no_text(page, "hello after")
    assert compactions(url, "fold-no") == 0


def test_a_send_compacts_after_a_yes_and_shows_where(tab, url, folder):
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
    sizes = re.compile(r"Compacted \(auto\): [\d,]{6,} → [\d,]{5,} tokens")
    expect(page.locator("[data-subtype=compaction_remark]")).to_have_text(sizes)
    page.click("text=Show where")
    page.wait_for_function(
        "() => { const box = document.querySelector('[data-subtype=compact_boundary]')"
        "?.getBoundingClientRect(); return box?.top >= 0 && box?.bottom <= innerHeight }"
    )
    page.reload()
    page.wait_for_selector("[data-subtype=compaction_remark]")


def test_a_send_can_skip_the_compaction(tab, url, folder):
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
def test_a_run_that_exceeds_the_window_asks_before_it_compacts(
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
    reload(page)  # the question is the run's, not the tab's
    page.click(f".question button:has-text('{button}')")
    wait_for_end(page)
    page.wait_for_selector(".question", state="detached")  # the thread is read again
    assert compactions(url, thread) == count
    page.click(".tool.done > summary")
    expect(page.locator(".tool.done .result")).to_have_text("42")


def test_the_gauge_marks_where_compaction_starts(tab, url, folder):
    fill(folder, "gauged", 20)
    page = tab("gauged")
    page.fill("#model", "weft-offline")
    page.press("#model", "Tab")
    page.wait_for_selector("#gauge-limit:not(:empty)")
    context = read(url, "/api/composer?thread=gauged&model=weft-offline")["context"]
    sizes = f"{context['tokens']:,} of {context['window']:,} tokens"
    expect(page.locator("#gauge-text")).to_have_text(sizes)
    expect(page.locator("#gauge-limit")).to_have_text(f"compacts above {context['limit']:,}")
    expect(page.locator("#gauge-mark")).to_be_visible()


def test_a_model_name_is_not_replaced_while_it_is_typed(tab, folder):
    fill(folder, "typed", 2)
    waiting, passing = [], []

    def hold(route):
        if passing:
            route.continue_()
        else:
            waiting.append(route)

    page = tab("typed", prepare=lambda page: page.route("**/api/composer**", hold))
    page.fill("#model", "weft-off")
    passing.append(True)
    for route in waiting:
        route.continue_()
    expect(page.locator("#gauge-text")).not_to_be_empty()
    expect(page.locator("#model")).to_have_value("weft-off")


# Leaving a thread while it runs.


def test_another_thread_can_be_used_during_a_run(tab, upstream):
    page = tab("run-b")
    send(page, "first words in b")
    wait_for_end(page)
    page.goto(page.url.replace("run-b", "run-a"))
    wait_for_thread(page, "run-a")
    send(page, "HELD in a")
    wait_for_text(page, HELD_TEXT.strip())
    page.wait_for_selector(".thread[data-thread=run-a][data-running]")
    page.click(".thread[data-thread=run-b]")
    wait_for_thread(page, "run-b")
    wait_for_end(page)
    wait_for_no_text(page, HELD_TEXT.strip())
    send(page, "second words in b")
    wait_for_end(page)
    page.wait_for_selector(".thread[data-thread=run-b]:not([data-running])")
    page.click(".thread[data-thread=run-a]")
    wait_for_thread(page, "run-a")
    page.wait_for_selector("#stop:not([hidden])")
    wait_for_text(page, HELD_TEXT.strip())
    expect(page.locator(".row.user:has-text('HELD in a')")).to_have_count(1)
    upstream.gate.set()
    wait_for_end(page)
    wait_for_text(page, "and the second half.")
    expect(page.locator(".attempt")).to_have_count(0)


def test_a_reload_joins_the_run_with_all_streamed_text(tab, upstream):
    page = tab("reloaded")
    send(page, "HELD please")
    wait_for_text(page, HELD_TEXT.strip())
    reload(page)
    page.wait_for_selector("#stop:not([hidden])")
    wait_for_text(page, HELD_TEXT.strip())
    expect(page.locator(".row.user:has-text('HELD please')")).to_have_count(1)
    upstream.gate.set()
    wait_for_end(page)
    wait_for_text(page, "and the second half.")
    expect(page.locator(".row")).to_have_count(2)


def test_a_branch_can_be_changed_during_a_run(tab, upstream):
    page = tab("branched")
    send(page, "hello")
    wait_for_end(page)
    page.click("#new-branch")
    page.fill("#branch-dialog-text", "side")
    page.press("#branch-dialog-text", "Enter")
    wait_for_thread(page, branch="side")
    send(page, "HELD on the side")
    page.select_option("#branch", "main")
    wait_for_thread(page, branch="main")
    wait_for_end(page)
    wait_for_no_text(page, "HELD on the side")
    page.select_option("#branch", "side")
    wait_for_thread(page, branch="side")
    page.wait_for_selector("#stop:not([hidden])")
    upstream.gate.set()
    wait_for_end(page)
    wait_for_text(page, "and the second half.")


def test_a_second_tab_sees_the_run_and_its_messages_are_queued(tab):
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
    reload(second)
    second.wait_for_selector("#queue :text('me too')")
    second.click("#stop")
    for page in (first, second):
        page.wait_for_selector(".attempt.partial")
        wait_for_text(page, "An answer to: me too")
        page.wait_for_selector("#queue li", state="detached")
        page.wait_for_selector(".row.assistant[data-id]")
        expect(page.locator(".row.user")).to_have_count(2)


def test_the_page_recovers_if_the_server_restarts_without_the_run(tab, tmp_path, upstream):
    options = ("--store", str(tmp_path / "w.db"), f"--upstream=mock=anthropic:{upstream.url}")
    with serving(tmp_path, *options) as address:
        page = tab("restarted", address)
        send(page, "HELD please")
        wait_for_text(page, HELD_TEXT.strip())
    page.wait_for_selector("#offline:not([hidden])")
    with serving(tmp_path, "--port", address.rpartition(":")[2], *options):
        wait_for_thread(page)
        wait_for_end(page)
        page.wait_for_selector(".attempt.partial button:has-text('Retry')")
        wait_for_text(page, HELD_TEXT.strip())
        upstream.gate.set()
        page.click("text=Retry")
        wait_for_text(page, "and the second half.")
        wait_for_end(page)
        page.wait_for_selector(".attempt.old")
        expect(page.locator(".row.user")).to_have_count(1)


# Failures stay.


def test_a_failure_stays_with_its_reason_and_retry_does_not_repeat_the_message(tab):
    page = tab("failed")
    send(page, "REFUSED please")
    wait_for_end(page)
    for _ in range(2):
        wait_for_text(page, f"{REASON} (400)", ".attempt.failed [role=alert]")
        read_again(page)
        wait_for_text(page, REASON)
        reload(page)
    page.fill("#model", "weft-offline")
    page.press("#model", "Tab")
    page.click("text=Retry")
    page.wait_for_selector(".row.assistant")
    wait_for_end(page)
    wait_for_text(page, REASON, ".attempt.old summary")
    expect(page.locator(".row.user")).to_have_count(1)
    expect(page.locator("button:has-text('Retry')")).to_have_count(0)


def test_a_truncated_answer_is_kept_with_its_reason(tab):
    page = tab("cut")
    send(page, "CUT please")
    wait_for_end(page)
    for _ in range(2):
        for renew in (read_again, reload):
            wait_for_text(page, "The answer broke off", ".attempt.partial [role=alert]")
            wait_for_text(page, CUT_TEXT, ".attempt.partial .body")
            renew(page)


def test_stop_keeps_the_streamed_text(tab):
    page = tab("stop-keeps")
    send(page, "HELD please")
    wait_for_text(page, HELD_TEXT.strip())
    page.click("#stop")
    wait_for_end(page)
    for renew in (read_again, reload):
        wait_for_text(page, "Stopped", ".attempt.partial [role=alert]")
        wait_for_text(page, HELD_TEXT.strip(), ".attempt.partial .body")
        renew(page)
    send(page, "something else")
    wait_for_end(page)
    wait_for_text(page, "An answer to: something else")


def test_a_reason_cannot_run_anything(tab, upstream):
    attack = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    upstream.answers["ATTACK"] = lambda: refusal(attack)
    page = tab("hostile-reason")
    send(page, "ATTACK")
    wait_for_end(page)
    wait_for_text(page, "<img", ".attempt [role=alert]")
    upstream.answers["ATTACK"] = lambda: Scripted(*streamed(attack).pieces[:3], cut=True)
    page.click("text=Retry")
    page.wait_for_selector(".attempt.partial")
    assert_nothing_ran(page)


# What a model cannot be sent.


def test_a_run_shows_the_losses_of_its_request_also_after_a_reload(tab, folder):
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
        wait_for_text(page, f"sent to {MODEL}", "[data-subtype=losses] summary")
        expect(page.locator("[data-subtype=losses]")).to_have_count(1)
        page.click("[data-subtype=losses] summary")
        wait_for_text(page, "3 times", "[data-subtype=losses] li")
        reload(page)


def test_a_run_without_losses_shows_no_card(tab):
    page = tab("losing nothing")
    send(page, "hello")
    wait_for_end(page)
    page.wait_for_selector(".row.assistant .acts button", state="attached")
    expect(page.locator("[data-subtype=losses]")).to_have_count(0)


# Compaction as a person sees it.


def test_a_compaction_is_one_card_from_its_start_to_its_end(tab, url, folder, upstream):
    fill(folder, "slow-summary")
    upstream.summary = lambda: Held(
        upstream.gate, "<summary>The questions ", "were answered.</summary>"
    )
    page = tab("slow-summary")
    page.fill("#model", SMALL)
    page.press("#model", "Tab")
    page.fill("#words", "one more question")
    page.press("#words", "Enter")
    page.click("#ask-compact")
    page.wait_for_selector("[data-subtype][data-state=running]")
    wait_for_text(page, "Compacting")
    wait_for_text(page, "Summarising part 1")
    expect(page.locator("#conversation [data-state]")).to_have_count(1)
    upstream.gate.set()
    wait_for_end(page)
    for _ in range(2):
        page.wait_for_selector("[data-subtype=compaction_remark]")
        wait_for_no_text(page, "Summarising part")
        wait_for_no_text(page, "Compacting")
        card = page.locator("[data-subtype=compact_boundary]")
        expect(card).to_have_count(1)
        expect(card).to_contain_text(re.compile(r"\d,\d{3} → \d"))  # with separators
        read_again(page)
    assert compactions(url, "slow-summary") == 1


def test_a_failed_summary_is_shown_with_its_reason(tab, folder, upstream):
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
    for renew in (read_again, reload, read_again):
        wait_for_text(page, "no summary today")
        wait_for_no_text(page, "Summarising part")
        expect(page.locator("[data-state=running]")).to_have_count(0)
        renew(page)
