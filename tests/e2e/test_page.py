"""The page in a real browser, on a real server with the offline model."""

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import aiohttp
import pytest
from playwright.sync_api import expect

from pages import (
    RECEIVE,
    assert_nothing_ran,
    wait_for_no_text,
    wait_for_text,
    wait_for_thread,
    wait_until,
)
from serving import serving

pytestmark = pytest.mark.xdist_group("browser")

SAMPLE = "sample-nightly-export"


@pytest.fixture
def tab(new_tab, served):
    """A function that opens a thread, the sample if none is named, in a new tab."""
    return lambda thread=SAMPLE, **options: new_tab(served, thread, **options)


LAST_ANSWER = """() => {
    const answers = document.querySelectorAll("#conversation > .row.assistant[data-id]")
    return answers.length ? answers[answers.length - 1].dataset.id : ""
}"""
ANSWERED = f"""(before) => {{
    return ({LAST_ANSWER})() !== before && document.querySelector("#send")?.hidden === false
}}"""


def say(page, words):
    """Send words and wait until the answer is written.

    Not until the stop button is seen: on a busy machine the run may be over before anybody looks.
    """
    before = page.evaluate(LAST_ANSWER)
    page.fill("#words", words)
    page.press("#words", "Enter")
    page.wait_for_function(ANSWERED, arg=before)
    page.wait_for_selector("#conversation .row .acts button", state="attached")


def add_turns(url, thread, *texts):
    """Add turns in one request, as a program with a long conversation does: no text is streamed."""
    turns = [{"role": "user", "content": text} for text in texts]
    answers = [{"role": "assistant", "content": f"An answer to: {text}"} for text in texts]
    messages = [each for pair in zip(turns, answers, strict=True) for each in pair][:-1]
    body = {"model": "weft-offline", "max_tokens": 50, "messages": messages}
    headers = {"content-type": "application/json", "x-weft-thread": thread}
    data = json.dumps(body).encode()
    with urlopen(Request(f"{url}/v1/messages", data=data, headers=headers)) as answer:
        assert answer.headers["x-weft-thread"] == thread


def ask(url, path, body=None):
    """Status and JSON of a question to the API."""
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {} if body is None else {"content-type": "application/json"}
    try:
        with urlopen(Request(url + path, data=data, headers=headers)) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_page_opens_on_the_sample_and_loads_nothing_from_elsewhere(new_tab, served):
    page = new_tab(served)
    expect(page.locator("#title")).to_have_text(SAMPLE)
    expect(page.locator(".fold > summary")).to_contain_text("messages summarised here")
    expect(page.locator("#branch option")).to_have_text(["main", "try-streaming"])
    expect(page.locator("#gauge-text")).to_have_text(re.compile(r"^[\d,]+ of [\d,]+ tokens$"))
    expect(page.locator(".row.pinned")).to_have_count(2)
    with urlopen(served) as answer:
        assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert [url for url in page.requests if not url.startswith(served)] == []


def test_a_chat_calls_a_tool(tab):
    page = tab("chat")
    page.fill("#words", 'Please use calculate on "6 * 7"')
    page.press("#words", "Enter")
    page.wait_for_selector(".tool.done")
    page.wait_for_selector("#send:not([hidden])")
    page.wait_for_selector(".row.assistant .acts button", state="attached")
    page.click(".tool > summary")
    expect(page.locator(".tool .result")).to_have_text("42")
    wait_for_text(page, '"6 * 7"', ".tool .input")
    end = re.compile("answered: 42$")
    expect(page.locator(".row.assistant").last).to_have_text(end, use_inner_text=True)


def test_a_tool_that_fails_is_shown_as_an_error(tab):
    page = tab("failing")
    say(page, 'Please use calculate on "1 / 0"')
    page.click(".tool.failed > summary")
    expect(page.locator(".tool .result-title")).to_have_text("Error")
    wait_for_text(page, "divides by zero", ".tool .result")


def test_the_agent_compacts_and_the_log_reverts_it(tab):
    page = tab("long")
    for number in range(4):
        say(page, f"Remember the figure {number}{number}{number}, it is figure number {number}.")
    rows = page.locator("#conversation > .row[data-id]")
    before = wait_until(page, rows.count, lambda count: count >= 8)
    say(page, "Please compact the thread.")
    expect(page.locator(".system-message.yellow").last).to_contain_text("Compacted")
    page.wait_for_selector(".fold")
    page.click(".commit.compact summary")
    page.wait_for_selector(".commit.compact .removed")
    expect(page.locator(".commit.compact .removed > ul > li").nth(3)).to_be_attached()
    page.click(".commit.compact button")
    page.wait_for_selector(".commit.revert")
    page.wait_for_selector(".fold", state="detached")
    wait_until(page, rows.count, lambda count: count > before)
    wait_for_text(page, "figure number 0")


def test_the_compact_button_shows_a_preview_and_undo_reverts_it(tab, served):
    fox = "the quick brown fox jumps over the lazy dog. " * 20
    add_turns(served, "button", *(f"Note {number}: {fox}" for number in range(4)))
    page = tab("button")
    expect(page.locator("#conversation > .row.user")).to_have_count(4)
    page.click("#compact")
    page.wait_for_selector("#preview .removed")
    wait_for_text(page, "→", "#preview .big")
    facts = r"^Removes \d+ messages \([\d,]+ tokens\), adds 1 summary \(.*\)\.$"
    expect(page.locator("#preview .inout")).to_have_text(re.compile(facts))
    expect(page.locator("#conversation > .row.user")).to_have_count(4)  # it only shows
    expect(page.locator(".fold, .commit.compact")).to_have_count(0)
    page.click("#compact-commit")
    page.wait_for_selector(".fold")
    expect(page.locator(".system-message.yellow").last).to_contain_text("Compacted")
    page.click("#undo")
    page.wait_for_selector(".fold", state="detached")
    expect(page.locator("#conversation > .row.user")).to_have_count(4)


def test_a_compaction_is_shown_once_at_its_position(tab):
    page = tab("in place")
    for number in range(4):
        say(page, f"Remember the figure {number}{number}{number}, it is figure number {number}.")
    say(page, "Please compact the thread.")
    for words in ("hello", "and again"):
        say(page, words)
    expect(page.locator('[data-subtype="compact_boundary"]')).to_have_count(1)
    expect(page.locator('[data-subtype="compact_boundary"] + * .fold')).to_have_count(1)
    last = page.locator("#conversation > li").last
    expect(last).to_have_class(re.compile("^row assistant"))


def test_a_thread_without_commits_has_nothing_to_undo(tab):
    page = tab("untouched")
    page.wait_for_selector(".empty")
    for name in ("undo", "redo", "compact"):
        expect(page.locator(f"#{name}")).to_be_disabled()
    say(page, "hello")
    expect(page.locator("#undo")).to_be_enabled()


def test_a_toast_covers_no_message(tab, served):
    add_turns(served, "toast", *(f"line {number}\n\n" * 6 for number in range(6)))
    page = tab("toast")
    page.click("#undo")
    page.wait_for_function("""() => {
        const [toast, view] = ["#toast", "#scroll"].map((name) => document.querySelector(name))
        const [below, above] = [toast, view].map((node) => node?.getBoundingClientRect())
        return toast?.textContent && below.top >= above?.bottom
    }""")


def test_an_error_is_a_sentence_without_field_names(tab):
    page = tab("no model")
    page.fill("#model", "mystery")
    page.fill("#words", "hello")
    page.press("#words", "Enter")
    sentence = re.compile(r"no upstream serves the model 'mystery'(.*[^)])?$")
    expect(page.locator("#toast.error")).to_have_text(sentence)


def test_a_thread_is_listed_by_its_first_text_on_one_line(tab):
    page = tab("named-20260101")
    say(page, "Where did the long winding road to the old mill by the river lead us? " * 2)
    entry = page.locator('.thread[data-thread="named-20260101"]')
    expect(entry.locator(".thread-name")).to_contain_text(re.compile("^Where did the long winding"))
    expect(entry.locator(".thread-facts")).to_contain_text("named-20260101")
    height = "line => line.getBoundingClientRect().height"
    wait_until(page, lambda: entry.evaluate(height), lambda pixels: 0 < pixels < 70)


def test_the_page_opens_on_the_thread_that_was_viewed_last(new_tab, served):
    body = {"model": "weft-offline", "max_tokens": 99}
    ask(served, "/v1/messages", {**body, "messages": [{"role": "user", "content": "by API"}]})
    page = new_tab(served)
    expect(page.locator("#title")).to_have_text(SAMPLE)
    page.fill("#new-name", "mine")
    page.press("#new-name", "Enter")
    wait_for_thread(page, "mine")
    say(page, "hello")
    ask(served, "/v1/messages", {**body, "messages": [{"role": "user", "content": "again"}]})
    again = page.context.new_page()
    again.goto(served)
    wait_for_thread(again)
    expect(again.locator("#title")).to_have_text("mine")


def test_pins_and_skips_are_shown_and_can_be_removed(tab):
    page = tab("marks")
    say(page, "Keep this.")
    page.click(".row.user .acts button:has-text('Pin')", force=True)
    page.wait_for_selector(".row.user.pinned")
    page.click(".row.user .acts button:has-text('Unpin')", force=True)
    page.wait_for_selector(".row.user.normal")
    page.click(".row.user .acts button:has-text('Skip')", force=True)
    page.wait_for_selector(".row.user.skip")
    page.click(".row.user .acts button:has-text('Include again')", force=True)
    page.wait_for_selector(".row.user.normal")


def test_a_branch_is_created_switched_to_and_left(tab):
    page = tab("branches")
    say(page, "On the trunk.")
    page.click("#new-branch")
    page.fill("#branch-dialog-text", "idea")
    page.press("#branch-dialog-text", "Enter")
    wait_for_thread(page, branch="idea")
    say(page, "On the idea.")
    page.select_option("#branch", "main")
    wait_for_thread(page, branch="main")
    wait_for_text(page, "On the trunk.")
    wait_for_no_text(page, "On the idea.")


def test_the_search_finds_threads_by_their_text(tab):
    page = tab("searched")
    say(page, "The password of the vault is marzipan.")
    page.fill("#search", "marzipan")
    page.wait_for_selector(".hit")
    first = page.locator(".thread").first
    expect(first).to_have_attribute("data-thread", "searched")
    expect(first.locator(".thread-name")).to_have_text("The password of the vault is marzipan.")
    page.fill("#search", "nowhere-to-be-found")
    page.wait_for_selector("#threads .empty")


def test_enter_sends_and_shift_enter_inserts_a_line(tab):
    page = tab("keys")
    page.press("#words", "Enter")  # nothing to send
    page.type("#words", "one")
    page.press("#words", "Shift+Enter")
    page.type("#words", "two")
    expect(page.locator("#words")).to_have_value("one\ntwo")
    page.press("#words", "Enter")
    page.wait_for_selector(".row.assistant[data-id]")
    lines = re.compile("^one\ntwo$")
    expect(page.locator(".row.user .prose")).to_have_text(lines, use_inner_text=True)


ATTACK = "<img src=x onerror=alert(1)><script>alert(2)</script>"
LINK = "[press](javascript:alert(3)) <a href='javascript:alert(4)'>here</a>"


@pytest.mark.parametrize("words", [ATTACK, LINK, f"```html\n{ATTACK}\n```", f"| {ATTACK} |\n|-|"])
def test_a_message_cannot_run_anything(tab, words):
    page = tab("attacked")
    say(page, words)
    links = page.locator("#conversation a")
    targets = "all => all.map((link) => link.getAttribute('href'))"
    safe = ("http", "mailto", "#thread=")
    wait_until(
        page,
        lambda: [href for href in links.evaluate_all(targets) if not href.startswith(safe)],
        [],
    )
    assert_nothing_ran(page)


def test_permission_questions_and_tool_output_cannot_run_anything(tab):
    page, other = tab("attacked-tool"), tab("attacked-tool")
    page.fill("#words", f'Please use search_threads with "{ATTACK} zzz"')
    page.press("#words", "Enter")
    for each in (page, other):
        each.wait_for_selector(".question [data-answer=once]")
        wait_for_text(each, "<img", ".question .argument")
    page.reload()  # the run waits, and the question is still there
    page.wait_for_selector(".question [data-answer=deny]")
    page.click(".question summary")
    wait_for_text(page, "<img", ".question pre")
    page.fill("#words", "hurry")
    page.press("#words", "Enter")
    page.click("#queue :text('Tell it now')")
    other.wait_for_selector("#queue .badge:text('for the next step')")
    page.click(".question [data-answer=once]")
    for each in (page, other):
        each.wait_for_selector(".tool.done")
        each.wait_for_selector("#send:not([hidden])")
        each.wait_for_selector(".row.user[data-id] :text-is('hurry')")
        expect(each.locator("#queue li")).to_have_count(0)
    page.click(".tool > summary")
    wait_for_text(page, "<img", ".tool")
    assert_nothing_ran(page)
    say_denied(page, 'Please use search_threads with "zzz"')
    expect(page.locator(".tool").last).to_contain_text("did not allow")


def say_denied(page, words):
    page.fill("#words", words)
    page.press("#words", "Enter")
    page.click(".question [data-answer=deny]")
    page.wait_for_selector("#send:not([hidden])")
    page.wait_for_selector(".question", state="detached")


def test_a_thread_s_name_cannot_run_anything(tab):
    page = tab(f"name {ATTACK}")
    say(page, "hello")
    page.fill("#search", "hello")
    page.wait_for_selector(".hit")
    expect(page.locator("body img:not(.brand img)")).to_have_count(0)
    assert_nothing_ran(page, "#threads")


@pytest.mark.parametrize("key", ["content", "message", "text"])
def test_a_system_event_cannot_run_anything(tab, key):
    page = tab("attacked-system")
    frame = {"type": "system", "subtype": "warning", key: ATTACK + LINK, "html": ATTACK}
    page.evaluate(RECEIVE, frame)
    wait_for_text(page, "<img", ".system-message")
    assert_nothing_ran(page)


def test_two_tabs_do_not_receive_each_others_events(tab):
    first, second = tab("tab-one"), tab("tab-two")
    first.fill("#words", "The first tab speaks.")
    second.fill("#words", "The second tab speaks.")
    first.press("#words", "Enter")
    second.press("#words", "Enter")
    for page, own, other in ((first, "first", "second"), (second, "second", "first")):
        page.wait_for_selector("#send:not([hidden])")
        page.wait_for_selector(".row.assistant .acts button", state="attached")
        wait_for_text(page, f"The {own} tab")
        wait_for_no_text(page, f"The {other} tab")


@pytest.mark.parametrize("width", [360, 768, 1024, 1920])
def test_nothing_is_clipped_at_any_width(tab, width):
    page = tab(SAMPLE, width=width, height=740)
    page.wait_for_selector(".fold")
    page.wait_for_function("width => document.scrollingElement?.scrollWidth <= width", arg=width)
    if width < 760:
        page.click("#toggle-threads")
        page.wait_for_selector("#threads .thread")
        page.click(f"#threads .thread:has-text('{SAMPLE}')")
    if width < 1180:
        page.click("#toggle-log")
        page.wait_for_selector(".commit.compact summary")


def test_every_control_has_a_name(tab):
    page = tab()
    page.wait_for_selector(".fold")
    unnamed = """() => [...document.querySelectorAll("button, input, select, textarea, meter")]
        .filter((node) => !(node.innerText?.trim() || node.getAttribute("aria-label")
            || node.title || node.labels?.length))
        .map((node) => node.outerHTML)"""
    wait_until(page, lambda: page.evaluate(unnamed), [])


def test_the_page_reconnects_after_a_server_restart(new_tab, tmp_path):
    with serving(tmp_path) as url:
        page = new_tab(url, "back")
    page.wait_for_selector("#offline:not([hidden])")
    with serving(tmp_path, "--port", url.rpartition(":")[2]):
        wait_for_thread(page)
        expect(page.locator("#model")).not_to_have_value("")
        say(page, "Here again.")
        wait_for_text(page, "Here again.")


@pytest.mark.parametrize(
    ("path", "status", "place"),
    [
        ("/api/thread", 400, "thread"),
        ("/api/thread?thread=%20", 400, "thread"),
        (f"/api/thread?thread={SAMPLE}&branch=nope", 404, "branch"),
        (f"/api/log?thread={SAMPLE}&limit=-1", 400, "limit"),
        (f"/api/log?thread={SAMPLE}&limit=many", 400, "limit"),
        (f"/api/commit?thread={SAMPLE}&id=zz", 404, None),
        ("/api/commit?thread=nobody&id=zz", 404, "thread"),
        (f"/api/diff?thread={SAMPLE}&a=main", 400, "b"),
        (f"/api/diff?thread={SAMPLE}&a=main&b=nope", 404, None),
        (f"/api/search?thread={SAMPLE}", 400, "q"),
    ],
)
def test_an_invalid_request_is_refused_with_its_field(served, path, status, place):
    code, body = ask(served, path)
    assert (code, body["error"]["place"]) == (status, place)
    assert "Traceback" not in body["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "status", "place"),
    [
        ("/api/compact", b"{", 400, "body"),
        ("/api/compact", b"[]", 400, "body"),
        ("/api/compact", {}, 400, "thread"),
        ("/api/compact", {"thread": "nobody"}, 404, "thread"),
        ("/api/compact", {"thread": SAMPLE, "budget": "x"}, 400, "budget"),
        ("/api/compact", {"thread": SAMPLE, "budget": 1}, 422, None),
        ("/api/compact", {"thread": SAMPLE, "preview": "yes"}, 400, "preview"),
        ("/api/compact", {"thread": SAMPLE, "replacements": [{}]}, 422, "replacements[0].summary"),
        ("/api/revert", {"thread": SAMPLE, "id": "ffffffffffff"}, 404, None),
        ("/api/annotate", {"thread": SAMPLE, "id": "ff", "priority": "loud"}, 400, "priority"),
        ("/api/annotate", {"thread": SAMPLE, "id": 7, "priority": "pinned"}, 400, "id"),
        ("/api/branch", {"thread": SAMPLE, "name": "main"}, 422, None),
        ("/api/render", {"text": 7}, 400, "text"),
    ],
)
def test_an_invalid_command_is_refused_and_changes_nothing(served, path, body, status, place):
    before = ask(served, f"/api/thread?thread={SAMPLE}")[1]["head"]
    code, answer = ask(served, path, body)
    assert (code, answer["error"]["place"]) == (status, place)
    assert ask(served, f"/api/thread?thread={SAMPLE}")[1]["head"] == before


def talk(url, *frames, until=None):
    """Send frames over one socket; the answers until these types have come, or else the first."""

    async def conversation():
        async with aiohttp.ClientSession() as session, session.ws_connect(url + "/ws") as socket:
            for frame in frames:
                if isinstance(frame, bytes):
                    await socket.send_bytes(frame)
                else:
                    await socket.send_str(frame if isinstance(frame, str) else json.dumps(frame))
            answers = [await socket.receive_json(timeout=60)]
            while until and not until <= {answer["type"] for answer in answers}:
                answers.append(await socket.receive_json(timeout=60))
            return answers

    return apart(conversation)


def apart(work):
    """Run a coroutine function in a thread of its own: the browser's driver has a loop in this."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(work())).result()


@pytest.mark.parametrize(
    ("frame", "place"),
    [
        (b"\x00\x01", "frame"),
        ("not json", "frame"),
        ("[]", "frame"),
        ("{}", "type"),
        ({"type": "shout"}, "type"),
        ({"type": ["say"]}, "type"),
        ({"type": "interrupt"}, "type"),
        ({"type": "say"}, "text"),
        ({"type": "say", "text": "hi"}, "thread"),
        ({"type": "say", "text": "  ", "thread": "x"}, "text"),
        ({"type": "say", "text": 7, "thread": "x"}, "text"),
        ({"type": "say", "text": "hi", "thread": "x", "model": "nobody-knows-it/x"}, "model"),
        ({"type": "say", "text": "hi", "thread": SAMPLE, "branch": "nope"}, "branch"),
        ({"type": "say", "text": "x" * 1_100_000, "thread": "x"}, "frame"),
    ],
)
def test_an_invalid_frame_is_answered_and_changes_nothing(served, frame, place):
    before = ask(served, "/api/threads")[1]
    [answer] = talk(served, frame)
    assert (answer["type"], answer["scope"], answer["place"]) == ("error", "frame", place)
    assert ask(served, "/api/threads")[1] == before


def test_an_invalid_frame_does_not_end_a_run(served):
    frames = [{"type": "say", "text": "hello", "thread": "framed"}, "not json"]
    answers = talk(served, *frames, until={"started", "error", "message_complete"})
    [error] = [answer for answer in answers if answer["type"] == "error"]
    assert error["scope"] == "frame"


LONG = "Say something long. " + "words and more words, " * 300


def test_a_second_message_waits_for_the_end_of_the_first_answer(served):
    frame = {"type": "say", "text": LONG, "thread": "twice"}
    answers = talk(served, frame, frame, until={"started", "queued"})
    assert "error" not in [answer["type"] for answer in answers]


def test_an_interrupt_ends_the_run_and_keeps_the_connection(served):
    async def conversation():
        async with aiohttp.ClientSession() as session, session.ws_connect(served + "/ws") as socket:
            answers = []
            await socket.send_json({"type": "say", "text": LONG, "thread": "cut"})
            while (frame := await socket.receive_json(timeout=60))["type"] != "interrupted":
                answers.append(frame["type"])
                if frame["type"] == "text_delta" and answers.count("text_delta") == 1:
                    await socket.send_json({"type": "interrupt"})
            await socket.send_json({"type": "say", "text": "And now?", "thread": "cut"})
            while (frame := await socket.receive_json(timeout=60))["type"] != "message_complete":
                assert frame["type"] != "error"
            return answers

    assert "message_complete" not in apart(conversation)


def test_a_page_of_another_origin_is_refused(served):
    async def knock():
        async with aiohttp.ClientSession() as session:
            foreign = {"Origin": "https://evil.example"}
            async with session.ws_connect(served + "/ws", headers=foreign) as socket:
                return await socket.receive(timeout=60)

    with pytest.raises(aiohttp.WSServerHandshakeError):
        apart(knock)


def test_a_very_long_thread_opens_at_its_end_and_loads_more_on_scroll(tab, served):
    body = {"model": "weft-offline", "max_tokens": 50, "messages": []}
    for number in range(230):
        body["messages"] += [
            {"role": "user", "content": f"question {number}"},
            {"role": "assistant", "content": f"answer {number}"},
        ]
    body["messages"].append({"role": "user", "content": "the last question"})
    data = json.dumps(body).encode()
    headers = {"content-type": "application/json", "x-claude-code-session-id": "very-long-one"}
    with urlopen(Request(served + "/v1/messages", data=data, headers=headers)) as answer:
        thread = answer.headers["x-weft-thread"]
    page = tab(thread)
    page.wait_for_selector("#conversation :text('the last question')")
    expect(page.locator("#conversation :text-is('question 0')")).to_have_count(0)
    page.evaluate("document.querySelector('#scroll').scrollTop = 0")
    page.wait_for_selector("#conversation :text-is('question 0')")
    wait_until(page, page.locator("#conversation > .row").count, lambda count: count < 300)
    page.evaluate("document.querySelector('#scroll').scrollTop = 1e9")
    page.wait_for_selector("#conversation :text('the last question')")


def test_messages_of_another_program_appear_automatically(tab, served):
    page = tab("watched")
    say(page, "I am watching.")
    other = {"type": "say", "thread": "watched", "text": "Somebody else speaks."}
    talk(served, other, until={"message_complete"})
    page.wait_for_selector("#conversation :text('Somebody else speaks.')")


CONTRAST = 4.5
FAINT = """() => {
  const light = (part) => part <= 10 ? part / 3294.6 : ((part / 255 + .055) / 1.055) ** 2.4;
  const bright = ([r, g, b]) => .2126 * light(r) + .7152 * light(g) + .0722 * light(b);
  const colour = (text) => text.match(/[\\d.]+/g).map(Number);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const found = colour(getComputedStyle(node).backgroundColor);
      if ((found[3] ?? 1) > .9) return found;
    }
    return [255, 255, 255];
  };
  const isWord = (child) => child.nodeType === 3 && child.textContent.trim();
  const speaks = (node) => [...node.childNodes].some(isWord);
  return [...document.querySelectorAll("body *")]
    .filter((node) => node.offsetParent && speaks(node))
    .map((node) => {
      const [a, b] = [bright(colour(getComputedStyle(node).color)), bright(ground(node))];
      const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
      return [ratio, node.className, node.textContent.slice(0, 40)];
    });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(tab, scheme):
    page = tab(color_scheme=scheme)
    page.wait_for_selector(".fold")
    page.click(".commit.compact summary")
    page.wait_for_selector(".commit.compact .removed")
    for subtype in ("warning", "compaction_start"):
        page.evaluate(RECEIVE, {"type": "system", "subtype": subtype, "content": "x"})
    wait_until(page, lambda: [row for row in page.evaluate(FAINT) if row[0] < CONTRAST], [])
