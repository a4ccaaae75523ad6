"""The page in a real browser, on threads that other programs write to.

Streams are shown, open panels stay open, and a session looks as in its client.
"""

import json
import re
import threading
from functools import partial
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import expect

import weft.thread
from pages import RECEIVE, assert_nothing_ran, wait_for_no_text, wait_for_text, wait_until
from slow_upstream import HELD_TEXT, REASON, tool_call
from weft.model import Message, Text, Thinking, ToolCall, ToolResult

pytestmark = pytest.mark.xdist_group("browser")

MODEL = "scripted-model"
REMINDER = "<system-reminder>\nThe date is today.\n</system-reminder>"
TOP = "document.querySelector('#scroll').scrollTop"
LONG = 20_000


@pytest.fixture(autouse=True)
def _closed_gate(upstream):
    upstream.gate.clear()


@pytest.fixture
def store(folder):
    return folder / "weft.db"


@pytest.fixture
def tab(new_tab, url):
    return partial(new_tab, url)


class Program(threading.Thread):
    """A program that talks through the gateway, in its own session."""

    def __init__(self, url, session, *texts, system=None, tools=()):
        super().__init__(daemon=True)
        roles = ("user", "assistant")
        messages = [{"role": roles[index % 2], "content": text} for index, text in enumerate(texts)]
        self.body = {"model": MODEL, "max_tokens": 99, "stream": True, "messages": messages}
        if system is not None:
            self.body["system"] = system
        if tools:
            self.body["tools"] = list(tools)
        self.url, self.session = url, session
        self.start()

    def run(self):
        headers = {
            "content-type": "application/json",
            "x-api-key": "k",
            "x-weft-thread": self.session,
        }
        data = json.dumps(self.body).encode()
        with urlopen(Request(self.url + "/v1/messages", data, headers)) as answer:
            answer.read()

    def finish(self):
        self.join(60)
        assert not self.is_alive()


def few_rows(page):
    """Wait until only a window of a long thread is in the document."""
    wait_until(page, page.locator("#conversation > .row").count, lambda count: 0 < count < 300)


def write(store, thread, *messages):
    with weft.thread.open(store, thread) as opened:
        return [opened.commit_message(message).id for message in messages]


def with_a_call(number):
    return (
        Message("user", (Text(f"question {number}"),)),
        Message(
            "assistant",
            (
                Thinking(f"thought {number}"),
                Text(f"text {number}"),
                ToolCall(f"call_{number}", "Bash", '{"command": "pytest -q", "timeout": 9}'),
            ),
        ),
        Message("user", (ToolResult(f"call_{number}", (Text(f"{number} passed"),)),)),
        Message("assistant", (Text(f"answer {number}"),)),
    )


# Live.


def test_an_answer_to_another_program_is_shown_while_it_streams(tab, url, upstream):
    Program(url, "streams", "hello").finish()
    page = tab("streams")
    wait_for_text(page, "An answer to: hello")
    program = Program(url, "streams", "hello", "An answer to: hello", "HELD please")
    page.wait_for_selector(f".live :text('{HELD_TEXT.strip()}')")
    wait_for_text(page, "HELD please")
    assert program.is_alive()
    wait_for_text(page, "answering", ".live .live-state")
    page.wait_for_selector('.thread[data-thread="streams"][data-running]')
    upstream.gate.set()
    page.wait_for_selector("#conversation > .row.assistant[data-id] >> text=and the second half.")
    page.wait_for_selector(".live", state="detached")
    program.finish()
    page.wait_for_selector('.thread[data-thread="streams"]:not([data-running])')
    texts = page.locator(f"#conversation .prose:has-text('{HELD_TEXT.strip()}')")
    expect(texts).to_have_count(1)


def test_a_tab_opened_during_an_answer_shows_the_streamed_text(tab, url, upstream):
    program = Program(url, "joins", "HELD from the start")
    first = tab("joins")
    first.wait_for_selector(f".live :text('{HELD_TEXT.strip()}')")
    first.reload()
    first.wait_for_selector(f".live :text('{HELD_TEXT.strip()}')")
    upstream.gate.set()
    first.wait_for_selector(".live", state="detached")
    wait_for_text(first, "and the second half.")
    program.finish()


def test_a_failed_exchange_of_another_program_stays_with_its_reason(tab, url):
    Program(url, "fails", "hello").finish()
    page = tab("fails")
    wait_for_text(page, "An answer to: hello")
    body = {
        "model": MODEL,
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "An answer to: hello"},
            {"role": "user", "content": "REFUSED"},
        ],
    }
    headers = {"content-type": "application/json", "x-api-key": "k", "x-weft-thread": "fails"}
    page.evaluate(
        "([url, body, headers]) => fetch(url, {method: 'POST', body, headers})",
        [url + "/v1/messages", json.dumps(body), headers],
    )
    page.wait_for_selector(f".attempt :text('{REASON}')")
    page.wait_for_selector(".attempt button:text('Retry')")


def test_the_reading_position_stays_when_messages_arrive(tab, url, store, upstream):
    write(store, "reading", *[m for number in range(12) for m in with_a_call(number)])
    page = tab("reading")
    wait_for_text(page, "answer 11")
    page.click('[data-call="call_11"] summary')
    page.click(".thinking >> nth=-1")
    page.fill("#words", "a draft that I am writing")
    page.locator(".commit.run summary").first.click()
    page.wait_for_selector('[data-call="call_11"] .result')
    page.evaluate("""() => {
        const text = document.querySelector('[data-call="call_11"] .result').firstChild
        document.getSelection().setBaseAndExtent(text, 0, text, 5)
        window.panel = document.querySelector('[data-call="call_11"]')
    }""")
    end = page.evaluate(TOP)
    page.evaluate("document.querySelector('#scroll').scrollTop -= 300")
    before = wait_until(page, lambda: page.evaluate(TOP), lambda top: top < end)
    write(store, "reading", *with_a_call(12))
    wait_for_text(page, "answer 12")
    program = Program(url, "reading", "HELD and off")  # in a side thread
    page.wait_for_selector(".commit.run details[open]")
    page.wait_for_selector("[data-thread='reading.2'][data-running]", state="attached")
    page.wait_for_function("() => window.panel.isConnected && window.panel.open")
    expect(page.locator("details.thinking[open]")).to_have_count(1)
    wait_until(page, lambda: page.evaluate("document.getSelection().toString()"), "11 pa")
    expect(page.locator("#words")).to_have_value("a draft that I am writing")
    wait_until(page, lambda: page.evaluate(TOP), lambda top: abs(top - before) < 3)
    upstream.gate.set()
    program.finish()


def test_a_result_appears_in_its_open_panel(tab, store):
    messages = with_a_call(1)
    write(store, "results", *messages[:2])
    page = tab("results")
    page.click('[data-call="call_1"] summary')
    page.evaluate("window.panel = document.querySelector('[data-call]')")
    write(store, "results", *messages[2:])
    page.wait_for_selector('[data-call="call_1"].done')
    expect(page.locator('[data-call="call_1"] .result')).to_have_text("1 passed")
    page.wait_for_function("() => window.panel.isConnected && window.panel.open")


def test_a_panel_opened_during_streaming_stays_open(tab, url, upstream):
    Program(url, "opened", "hello").finish()
    page = tab("opened")
    gate = threading.Event()

    def answer():
        held = tool_call("I will look.", "Bash", {"command": "ls -la"})
        pieces = held.pieces

        def wait():
            yield from pieces[:-2]
            gate.wait(60)
            yield from pieces[-2:]

        held.pieces = wait()
        return held

    upstream.answers["look around"] = answer
    program = Program(url, "opened", "hello", "An answer to: hello", "look around")
    page.wait_for_selector(".live .tool")
    page.click(".live .tool summary")
    expect(page.locator(".live .tool .excerpt")).to_have_text("ls -la")  # and not its JSON
    gate.set()
    program.finish()
    page.wait_for_selector(".live", state="detached")
    page.wait_for_selector(".row[data-id] .tool[open]")
    expect(page.locator(".row[data-id] .tool .excerpt")).to_have_text("ls -la")


def test_a_pin_changes_only_one_row(tab, store):
    ids = write(store, "pinned-live", *[m for n in range(5) for m in with_a_call(n)])
    page = tab("pinned-live")
    page.click('[data-call="call_2"] summary')
    page.evaluate("window.rows = [...document.querySelectorAll('#conversation > .row')]")
    with weft.thread.open(store, "pinned-live") as thread:
        thread.pin(ids[4])
    page.wait_for_selector(".row.pinned")
    page.wait_for_function("() => window.rows.every((row) => row.isConnected)")
    expect(page.locator('[data-call="call_2"][open]')).to_have_count(1)


def test_many_deltas_cause_few_document_changes(tab, store):
    write(store, "flood", *with_a_call(0))
    page = tab("flood")
    address = {"exchange": "e", "thread": "flood", "branch": "main"}
    start = {"type": "exchange", **address, "state": "streaming", "model": "m", "head": ""}
    pieces = [
        {"type": "block", **address, "index": 0, "kind": "text", "text": f"{n} ", "new": n == 0}
        for n in range(2000)
    ]
    page.evaluate(RECEIVE, start)
    page.wait_for_selector(".live")
    page.evaluate("""() => {
        window.changes = 0
        const count = (records) => { window.changes += records.length }
        const options = {childList: true, characterData: true, subtree: true}
        new MutationObserver(count).observe(document.querySelector("#conversation"), options)
    }""")
    page.evaluate(RECEIVE, pieces)
    expect(page.locator(".live .streamed")).to_have_text(" ".join(str(n) for n in range(2000)))
    page.wait_for_function("() => window.changes < 50")


# Reading.


def test_a_session_is_shown_like_in_its_client(tab, url):
    tools = [
        {"name": name, "description": f"{name} things", "input_schema": {"type": "object"}}
        for name in ("Bash", "Edit")
    ]
    session = "claude-8716c2aa-0000-4000-8000-000000000000"
    text = f"{REMINDER}\nPlease rename the helpers.\n\n```python\nold = 1\nnew = 2\n```"
    Program(url, session, text, system="You are a careful agent. " * 50, tools=tools).finish()
    page = tab(session)
    wait_for_text(page, "Please rename the helpers.")
    expect(page.locator("#title")).to_contain_text("Please rename the helpers.")
    expect(page.locator("#thread-name")).to_have_text(session)
    expect(page).to_have_title(re.compile("^Please rename the helpers."))
    for text in ("System prompt, ", "system reminder, ", "2 tools, "):
        wait_for_text(page, text)
    wait_for_no_text(page, "You are a careful agent.")
    wait_for_no_text(page, "The date is today.")
    page.click(".injected summary")
    wait_for_text(page, "The date is today.")
    page.click(".prompt summary")
    wait_for_text(page, "You are a careful agent.")
    page.click(".setup summary")
    wait_for_text(page, "Edit things", ".setup")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    menu = page.locator(".row.assistant [data-act=menu]")
    menu.click()
    page.click("#menu [data-item='Copy text']")
    expect(page.locator("#toast")).to_have_text("Copied.")
    clipboard = "navigator.clipboard.readText()"
    wait_until(page, lambda: page.evaluate(clipboard), lambda text: "An answer to: " in text)
    answer = page.locator(".row.assistant .who")
    expect(answer).to_contain_text(re.compile(r"\d out, \$\?, [\d.<]+ s \(first token [\d.<]+ s\)"))
    page.locator(".row.user .code button").focus()  # no mouse is needed
    page.keyboard.press("Enter")
    expect(page.locator(".row.user .code button")).to_have_text("Copied")
    wait_until(page, lambda: page.evaluate(clipboard), "old = 1\nnew = 2")
    menu.click()
    page.click("#menu [data-item='What was sent …']")
    for part in ('"model": "scripted-model"', "The date is today.", '"name": "Bash"'):
        expect(page.locator("#sent-dialog pre")).to_contain_text(part)
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    expect(page.locator("#conversation .setup")).to_be_hidden()
    expect(page.locator(".prompt")).to_be_hidden()
    page.keyboard.press("t")
    expect(page.locator("#conversation .setup")).to_be_visible()


def test_a_call_is_one_line_that_opens_to_input_and_output(tab, store):
    before, after = "same\n<b>old</b>\nend", "same\nnew\nnewer\nend"
    edit = {"file_path": "a.py", "old_string": before, "new_string": after}
    patch = "*** Begin Patch\n*** Update File: b.py\n-gone\n+there\n*** End Patch"
    inputs = {"Edit": edit, "apply_patch": {"input": patch}}
    calls = [ToolCall(name, name, json.dumps(input)) for name, input in inputs.items()]
    write(store, "edits", Message("assistant", tuple(calls)))
    page = tab("edits")
    change = page.locator(".tool .input.edit")
    expect(change.nth(0)).to_have_text("  same\n- <b>old</b>\n+ new\n+ newer\n  end\n")
    expect(change.nth(0).locator(".ins")).to_have_text(["+ new\n", "+ newer\n"])
    expect(change.nth(1).locator(".del")).to_have_text(["- gone\n"])
    write(store, "one-line", *with_a_call(3))
    page = tab("one-line")
    line = page.locator(".tool > summary")
    expect(line).to_have_text(re.compile("^Bash\npytest -q$"), use_inner_text=True)
    height = "line => line.getBoundingClientRect().height"
    wait_until(page, lambda: line.evaluate(height), lambda pixels: 0 < pixels < 50)
    expect(page.locator(".tool .input")).to_be_hidden()
    line.click()
    wait_for_text(page, "timeout: 9", ".tool .input")
    expect(page.locator(".tool .result")).to_have_text("3 passed")
    expect(page.locator("text=thought 3")).to_be_hidden()
    page.click(".thinking summary")
    expect(page.locator("text=thought 3")).to_be_visible()
    times = page.locator("#conversation .row:not([hidden]) time")
    expect(times).to_have_text([re.compile(":")] * 3)  # the row of the result is part of the call


def test_a_long_result_is_truncated_and_shown_in_full_on_request(tab, store):
    question, call, _, _ = with_a_call(4)
    result = Message("user", (ToolResult("call_4", (Text("line\n" * 10_000 + "the end"),)),))
    write(store, "long-result", question, call, result)
    page = tab("long-result")
    page.click(".tool > summary")
    page.wait_for_selector(".tool .more")
    wait_for_no_text(page, "the end", ".tool .result")
    page.click(".tool .more")
    wait_for_text(page, "the end", ".tool .result")
    expect(page.locator(".tool .more")).to_have_count(0)


def test_child_threads_are_nested_under_their_session(tab, store):
    for name in ("family", "family.agent", "family.agent.2", "unfamily"):
        write(store, name, Message("user", (Text(f"first words of {name}"),)))
    page = tab("family")
    page.wait_for_selector("#threads > li > .children")
    roots = page.locator("#threads > li > .thread")
    read_names = "all => all.map((each) => each.dataset.thread)"
    families = {"family", "unfamily", "family.agent", "family.agent.2"}
    wait_until(
        page,
        lambda: families.intersection(roots.evaluate_all(read_names)),
        {"family", "unfamily"},
    )
    expect(page.locator('[data-thread="family.agent"]')).to_be_hidden()
    page.click(".children > summary")
    page.click('[data-thread="family.agent"]')
    wait_for_text(page, "first words of family.agent")


def test_hostile_client_context_is_shown_as_text(tab, store):
    attack = "<img src=x onerror=window.pwned=1><script>window.pwned=1</script>"
    text = f"<system-reminder>{attack}</system-reminder> hello {attack}"
    write(store, "hostile", Message("user", (Text(text),)))
    page = tab("hostile")
    page.click(".injected summary")
    wait_for_text(page, attack, ".injected")
    assert_nothing_ran(page)


# Long threads.


@pytest.fixture(scope="module")
def long_thread(folder):
    """A thread of many messages; the ids of its rows."""
    with weft.thread.open(folder / "weft.db", "long") as thread, thread.batch():
        return [
            thread.user(f"message {n}").id if n % 2 == 0 else thread.assistant(f"message {n}").id
            for n in range(LONG)
        ]


@pytest.mark.usefixtures("long_thread")
def test_a_long_thread_opens_at_its_end_and_scrolls_to_its_start(tab):
    page = tab("long")
    page.wait_for_selector(f":text-is('message {LONG - 1}')")
    few_rows(page)
    page.evaluate("document.querySelector('#scroll').scrollTop = 0")
    page.wait_for_selector(":text-is('message 0')")
    few_rows(page)
    page.evaluate("document.querySelector('#scroll').scrollTop = 1e9")
    page.wait_for_selector(f":text-is('message {LONG - 1}')")


def test_a_permalink_opens_at_any_depth(tab, long_thread):
    page = tab("long", row=long_thread[1234])
    page.wait_for_selector(":text-is('message 1234')")
    middle = page.locator(f'[data-id="{long_thread[1234]}"]')
    expect(middle).to_be_focused()
    few_rows(page)
    expect(middle).to_be_in_viewport()
    link = middle.locator("a.time")
    expect(link).to_have_attribute("href", f"#thread=long&row={long_thread[1234]}")


def test_scrolling_up_and_down_shows_every_message_once_and_in_order(tab, long_thread):
    page = tab("long", row=long_thread[700])
    page.wait_for_selector(":text-is('message 700')")
    rows_in_view = """() => {
        const view = document.querySelector("#scroll")?.getBoundingClientRect();
        return [...document.querySelectorAll("#conversation > .row")].some((row) => {
            const box = row.getBoundingClientRect();
            return box.top < view?.bottom && box.bottom > view?.top;
        });
    }"""
    for _ in range(15):
        page.evaluate("document.querySelector('#scroll').scrollTop -= 1500")
        page.wait_for_function(rows_in_view)
    texts = page.locator("#conversation > .row .prose")
    numbers = wait_until(
        page,
        lambda: [int(text.split()[1]) for text in texts.all_inner_texts()],
        lambda numbers: numbers == list(range(numbers[0], numbers[0] + len(numbers))),
    )
    assert numbers[0] < 700


def test_a_search_hit_opens_at_any_depth(tab, long_thread, store):
    with weft.thread.open(store, "remarked") as thread:
        thread.user("The first question.")
        thread.tag("before-the-answer")
        answer = thread.assistant("The answer.").id
        thread.note(answer, "Priya confirmed this.")
        thread.branch("side")
        thread.switch("side")
        thread.user("An aside.", note="an experiment with llamas")
        thread.switch("main")
    page = tab("long")
    page.wait_for_selector(f":text-is('message {LONG - 1}')")
    page.fill("#search", "4321")
    page.click(".hit >> text=message 4321")
    page.wait_for_selector("#conversation :text-is('message 4321')")
    expect(page.locator(f'[data-id="{long_thread[4321]}"]')).to_be_focused()
    # What is not a message says what it is, and opens the commit that it belongs to.
    past = page.locator("#past-text")
    page.fill("#search", "priya")
    page.click("#threads .hit:has-text('notePriya confirmed this.')")
    expect(page.locator(f'[data-id="{answer}"]')).to_be_focused()
    page.fill("#search", "before the answer")
    page.click("#threads .hit:has-text('tagbefore-the-answer')")
    expect(past).to_contain_text("commit 1 of 3 on main")
    page.fill("#search", "llamas")
    page.click("#threads .hit:has-text('an experiment with llamas')")
    expect(past).to_contain_text("commit 4 of 4 on side")
    wait_for_text(page, "An aside.")


def test_a_link_to_a_missing_message_says_so(tab, store):
    ids = write(store, "gone", *with_a_call(0))
    with weft.thread.open(store, "gone") as thread:
        thread.undo()
    page = tab("gone", row=ids[-1])
    page.wait_for_selector("#toast:has-text('not in the thread any more')")
    wait_for_text(page, "text 0")


def test_a_link_to_a_compacted_message_opens_the_earlier_thread(tab, store):
    with weft.thread.open(store, "compacted-link") as thread:
        first = thread.user("the needle in the haystack").id
        for number in range(30):
            thread.assistant(f"answer {number} " + "words " * 60)
            thread.user(f"question {number} " + "words " * 60)
        thread.compact(budget=1000)
        assert first not in [row.id.hex() for row in thread.compile().rows]
    page = tab("compacted-link", row=first)
    page.wait_for_selector(".row:focus:has-text('the needle in the haystack')")
    page.wait_for_selector("#toast:has-text('was compacted')")
    expect(page).to_have_url(re.compile("[#&]at="))
    page.reload()  # the address names the commit now
    page.wait_for_selector(".row:has-text('the needle in the haystack')")
