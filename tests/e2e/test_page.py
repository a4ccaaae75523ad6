"""The page in a real browser, over a real server with its offline model."""

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import aiohttp
import pytest
from playwright.sync_api import expect

from serving import serving

pytestmark = pytest.mark.xdist_group("browser")

SAMPLE = "sample-nightly-export"
RECEIVE = "(frame) => import('/static/app.js').then((page) => page.receive(frame))"


@pytest.fixture
def tab(new_tab, served):
    """A function that opens a thread, the sample if none is named, in a new tab."""
    return lambda thread=SAMPLE, **options: new_tab(served, thread, **options)


WATCH = """() => {
    window.streamed = false
    const look = () => { window.streamed ||= document.querySelector(".streaming") !== null }
    new MutationObserver(look).observe(document.body, {childList: true, subtree: true})
}"""
"""Notes whether anything streamed: on a busy machine it may be over before anybody looks."""


LAST_ANSWER = """() => {
    const answers = document.querySelectorAll("#conversation > .row.assistant[data-id]")
    return answers.length ? answers[answers.length - 1].dataset.id : ""
}"""
ANSWERED = f"""(before) => {{
    return ({LAST_ANSWER})() !== before && !document.querySelector("#send").hidden
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


def test_the_page_opens_on_the_sample(browser, served):
    page = browser.new_page()
    page.goto(served)
    page.wait_for_selector(".fold")
    assert page.inner_text("#title") == SAMPLE
    assert "messages summarised here" in page.inner_text(".fold > summary")
    assert page.locator("#branch option").all_inner_texts() == ["main", "try-streaming"]
    assert re.fullmatch(r"[\d,]+ of [\d,]+ tokens", page.inner_text("#gauge-text"))
    assert page.locator(".row.pinned").count() == 2
    page.close()


def test_nothing_is_loaded_from_elsewhere(browser, served):
    page = browser.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    answer = page.goto(served)
    page.wait_for_selector("#conversation .row")
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert all(url.startswith(served) for url in asked)
    page.close()


def test_a_chat_streams_and_calls_a_tool(tab):
    page = tab("chat")
    page.evaluate(WATCH)
    page.fill("#words", 'Please use calculate on "6 * 7"')
    page.press("#words", "Enter")
    page.wait_for_selector(".tool.done")
    page.wait_for_selector("#send:not([hidden])")
    page.wait_for_selector(".row.assistant .acts button", state="attached")
    page.click(".tool > summary")
    assert page.inner_text(".tool .result") == "42"
    assert '"6 * 7"' in page.inner_text(".tool .input")
    assert page.locator(".row.assistant").last.inner_text().endswith("answered: 42")
    assert page.evaluate("window.streamed")
    assert page.errors == []


def test_a_tool_that_fails_is_shown_as_an_error(tab):
    page = tab("failing")
    say(page, 'Please use calculate on "1 / 0"')
    page.click(".tool.failed > summary")
    assert page.inner_text(".tool .result-title") == "Error"
    assert "divides by zero" in page.inner_text(".tool .result")


def test_the_agent_compacts_and_the_log_takes_it_back(tab):
    page = tab("long")
    for number in range(4):
        say(page, f"Remember the figure {number}{number}{number}, it is figure number {number}.")
    rows = page.locator("#conversation > .row").count()
    say(page, "Please compact the thread.")
    assert "Compacted" in page.locator(".system-message.yellow").last.inner_text()
    page.wait_for_selector(".fold")
    page.click(".commit.compact summary")
    page.wait_for_selector(".commit.compact .removed")
    assert page.locator(".commit.compact .removed > ul > li").count() >= 4
    page.click(".commit.compact button")
    page.wait_for_selector(".commit.revert")
    page.wait_for_selector(".fold", state="detached")
    assert page.locator("#conversation > .row").count() > rows
    assert "figure number 0" in page.inner_text("#conversation")


def test_the_compact_button_shows_before_it_does_and_undo_takes_it_back(tab):
    page = tab("button")
    for number in range(4):
        say(page, f"Note {number}: " + "the quick brown fox jumps over the lazy dog. " * 20)
    before = page.inner_text("#conversation")
    page.click("#compact")
    page.wait_for_selector("#preview .removed")
    assert "→" in page.inner_text("#preview .big")
    told = page.inner_text("#preview .inout")
    assert re.fullmatch(r"Removes \d+ messages \([\d,]+ tokens\), adds 1 summary \(.*\)\.", told)
    assert page.inner_text("#conversation") == before  # a preview changes nothing
    page.click("#compact-commit")
    page.wait_for_selector(".fold")
    assert "Compacted" in page.locator(".system-message.yellow").last.inner_text()
    page.click("#undo")
    page.wait_for_selector(".fold", state="detached")
    assert page.locator("#conversation > .row.user").count() == 4


def test_a_compaction_is_shown_once_where_it_happened(tab):
    page = tab("in place")
    for number in range(4):
        say(page, f"Remember the figure {number}{number}{number}, it is figure number {number}.")
    say(page, "Please compact the thread.")
    for words in ("hello", "and again"):
        say(page, words)
    cards = page.locator('[data-subtype="compact_boundary"]')
    assert cards.count() == 1
    assert cards.first.evaluate("card => card.nextElementSibling.querySelector('.fold') !== null")
    assert (
        page.locator("#conversation > li").last.get_attribute("class").startswith("row assistant")
    )


def test_a_thread_without_commits_has_nothing_to_undo(tab):
    page = tab("untouched")
    page.wait_for_selector(".empty")
    assert all(page.is_disabled(f"#{name}") for name in ("undo", "redo", "compact"))
    say(page, "hello")
    assert not page.is_disabled("#undo")


def test_a_toast_covers_no_message(tab):
    page = tab("toast")
    for number in range(6):
        say(page, f"line {number}\n\n" * 6)
    page.click("#undo")
    page.wait_for_selector("#toast:not(:empty)")
    toast = page.locator("#toast").bounding_box()
    view = page.locator("#scroll").bounding_box()
    assert toast["y"] >= view["y"] + view["height"]


def test_an_error_is_a_sentence_and_names_no_field(tab):
    page = tab("no model")
    page.fill("#model", "mystery")
    page.fill("#words", "hello")
    page.press("#words", "Enter")
    page.wait_for_selector("#toast.error:not(:empty)")
    said = page.inner_text("#toast")
    assert "no upstream serves the model 'mystery'" in said
    assert not said.endswith(")")


def test_a_thread_is_listed_by_its_first_words_on_one_line(tab):
    page = tab("named-20260101")
    say(page, "Where did the long winding road to the old mill by the river lead us? " * 2)
    entry = page.locator('.thread[data-thread="named-20260101"]')
    expect(entry.locator(".thread-name")).to_contain_text(re.compile("^Where did the long winding"))
    expect(entry.locator(".thread-facts")).to_contain_text("named-20260101")
    assert entry.evaluate("line => line.getBoundingClientRect().height") < 70


def test_the_page_opens_on_what_its_reader_saw_last_not_on_what_programs_wrote(browser, served):
    context = browser.new_context()
    page = context.new_page()
    body = {"model": "weft-offline", "max_tokens": 99}
    ask(served, "/v1/messages", {**body, "messages": [{"role": "user", "content": "by API"}]})
    page.goto(served)
    page.wait_for_selector("#conversation .row")
    assert page.inner_text("#title") == SAMPLE
    page.fill("#new-name", "mine")
    page.press("#new-name", "Enter")
    page.wait_for_selector(".empty")
    say(page, "hello")
    ask(served, "/v1/messages", {**body, "messages": [{"role": "user", "content": "again"}]})
    again = context.new_page()
    again.goto(served)
    again.wait_for_selector("#conversation .row")
    assert again.inner_text("#title") == "mine"
    context.close()


def test_pins_and_skips_are_marked_and_taken_back(tab):
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


def test_a_branch_is_made_switched_to_and_left(tab):
    page = tab("branches")
    say(page, "On the trunk.")
    page.click("#new-branch")
    page.fill("#branch-name", "idea")
    page.press("#branch-name", "Enter")
    page.wait_for_selector("body[data-branch=idea]")
    say(page, "On the idea.")
    page.select_option("#branch", "main")
    page.wait_for_selector("body[data-branch=main]")
    assert "On the idea." not in page.inner_text("#conversation")
    assert "On the trunk." in page.inner_text("#conversation")


def test_the_search_finds_threads_by_what_was_said_in_them(tab):
    page = tab("searched")
    say(page, "The password of the vault is marzipan.")
    page.fill("#search", "marzipan")
    page.wait_for_selector(".hit")
    first = page.locator(".thread").first
    assert first.inner_text().startswith("The password of the vault is marzipan.\n")
    assert first.get_attribute("data-thread") == "searched"
    page.fill("#search", "nowhere-to-be-found")
    page.wait_for_selector("#threads .empty")


def test_enter_sends_and_shift_enter_makes_a_line(tab):
    page = tab("keys")
    page.press("#words", "Enter")
    assert page.locator(".row").count() == 0  # nothing to send
    page.type("#words", "one")
    page.press("#words", "Shift+Enter")
    page.type("#words", "two")
    assert page.input_value("#words") == "one\ntwo"
    page.press("#words", "Enter")
    page.wait_for_selector(".row.user")
    assert page.locator(".row.user .prose").inner_text() == "one\ntwo"


def test_stop_ends_a_run(tab):
    page = tab("stopped")
    page.fill("#words", "Say something long. " + "words and more words, " * 300)
    page.press("#words", "Enter")
    page.click("#stop")
    page.wait_for_selector("#send:not([hidden])")
    say(page, "Are you still there?")
    assert page.errors == []


ATTACK = "<img src=x onerror=alert(1)><script>alert(2)</script>"
LINK = "[press](javascript:alert(3)) <a href='javascript:alert(4)'>here</a>"


@pytest.mark.parametrize("words", [ATTACK, LINK, f"```html\n{ATTACK}\n```", f"| {ATTACK} |\n|-|"])
def test_a_message_cannot_run_anything(tab, words):
    page = tab("attacked")
    say(page, words)
    for link in page.locator("#conversation a").all():
        assert link.get_attribute("href").startswith(("http", "mailto", "#thread="))
    assert page.locator("#conversation img, #conversation script").count() == 0
    assert page.evaluate("window.pwned") == 0


def test_a_tool_is_asked_about_and_neither_question_nor_output_can_run_anything(tab):
    page, other = tab("attacked-tool"), tab("attacked-tool")
    page.fill("#words", f'Please use search_threads with "{ATTACK} zzz"')
    page.press("#words", "Enter")
    for each in (page, other):
        each.wait_for_selector(".question [data-answer=once]")
        assert "<img" in each.inner_text(".question .argument")
    page.reload()  # the run waits, and the question is still there
    page.wait_for_selector(".question [data-answer=deny]")
    page.click(".question summary")
    assert "<img" in page.inner_text(".question pre")
    page.fill("#words", "hurry")
    page.press("#words", "Enter")
    page.click("#queue :text('Tell it now')")
    other.wait_for_selector("#queue .badge:text('for the next step')")
    page.click(".question [data-answer=once]")
    for each in (page, other):
        each.wait_for_selector(".tool.done")
        each.wait_for_selector("#send:not([hidden])")
        each.wait_for_selector(".row.user[data-id] :text-is('hurry')")
        assert each.locator("#queue li").count() == 0
    page.click(".tool > summary")
    assert "<img" in page.inner_text(".tool")
    assert page.locator("#conversation img, #conversation script").count() == 0
    assert page.evaluate("window.pwned") == 0
    say_denied(page, 'Please use search_threads with "zzz"')
    assert "did not allow" in page.locator(".tool").last.text_content()


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
    assert page.locator("body img:not(.brand img), #threads script").count() == 0
    assert page.evaluate("window.pwned") == 0


@pytest.mark.parametrize("key", ["content", "message", "text"])
def test_a_system_event_cannot_run_anything(tab, key):
    page = tab("attacked-system")
    frame = {"type": "system", "subtype": "warning", key: ATTACK + LINK, "html": ATTACK}
    page.evaluate(RECEIVE, frame)
    page.wait_for_timeout(300)
    assert "<img" in page.inner_text(".system-message")
    assert page.locator("#conversation img, #conversation script").count() == 0
    assert page.evaluate("window.pwned") == 0


def test_two_tabs_never_hear_each_other(tab):
    first, second = tab("tab-one"), tab("tab-two")
    first.fill("#words", "The first tab speaks.")
    second.fill("#words", "The second tab speaks.")
    first.press("#words", "Enter")
    second.press("#words", "Enter")
    for page, own, other in ((first, "first", "second"), (second, "second", "first")):
        page.wait_for_selector("#send:not([hidden])")
        page.wait_for_selector(".row.assistant .acts button", state="attached")
        said = page.inner_text("#conversation")
        assert f"The {own} tab" in said
        assert f"The {other} tab" not in said


@pytest.mark.parametrize("width", [360, 768, 1024, 1920])
def test_nothing_is_cut_off_at_any_width(tab, width):
    page = tab(SAMPLE, width=width, height=740)
    page.wait_for_selector(".fold")
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
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
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, textarea, meter")]
            .filter((node) => !(node.innerText?.trim() || node.getAttribute("aria-label")
                || node.title || node.labels?.length))
            .map((node) => node.outerHTML)"""
    )
    assert unnamed == []


def test_the_page_comes_back_after_the_server_did(browser, tmp_path):
    page = browser.new_page()
    with serving(tmp_path) as url:
        page.goto(f"{url}/#thread=back")
        page.wait_for_selector("#offline", state="hidden")
        page.wait_for_selector("body[data-branch]")
    page.wait_for_selector("#offline:not([hidden])")
    with serving(tmp_path, "--port", url.rpartition(":")[2]):
        page.wait_for_selector("#offline", state="hidden")
        page.wait_for_function("() => document.querySelector('#model').value !== ''")
        say(page, "Here again.")
        assert "Here again." in page.inner_text("#conversation")
    page.close()


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
def test_a_bad_question_is_refused_by_its_place(served, path, status, place):
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
def test_a_bad_wish_is_refused_and_changes_nothing(served, path, body, status, place):
    before = ask(served, f"/api/thread?thread={SAMPLE}")[1]["head"]
    code, answer = ask(served, path, body)
    assert (code, answer["error"]["place"]) == (status, place)
    assert ask(served, f"/api/thread?thread={SAMPLE}")[1]["head"] == before


def talk(url, *frames, answers=1):
    """Send frames over one socket; the first answers."""

    async def conversation():
        async with aiohttp.ClientSession() as session, session.ws_connect(url + "/ws") as socket:
            for frame in frames:
                if isinstance(frame, bytes):
                    await socket.send_bytes(frame)
                else:
                    await socket.send_str(frame if isinstance(frame, str) else json.dumps(frame))
            return [await socket.receive_json(timeout=20) for _ in range(answers)]

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
def test_a_bad_frame_is_answered_and_changes_nothing(served, frame, place):
    before = ask(served, "/api/threads")[1]
    [answer] = talk(served, frame)
    assert (answer["type"], answer["scope"], answer["place"]) == ("error", "frame", place)
    assert ask(served, "/api/threads")[1] == before


def test_a_bad_frame_does_not_end_a_run(served):
    frames = [{"type": "say", "text": "hello", "thread": "framed"}, "not json"]
    types = {answer["type"] for answer in talk(served, *frames, answers=5)}
    assert {"started", "error", "text_delta"} <= types


LONG = "Say something long. " + "words and more words, " * 300


def test_a_second_word_waits_for_the_end_of_the_first_answer(served):
    frame = {"type": "say", "text": LONG, "thread": "twice"}
    answers = talk(served, frame, frame, answers=5)
    assert "queued" in [answer["type"] for answer in answers]
    assert "error" not in [answer["type"] for answer in answers]


def test_an_interrupt_ends_the_run_and_the_connection_goes_on(served):
    async def conversation():
        async with aiohttp.ClientSession() as session, session.ws_connect(served + "/ws") as socket:
            told = []
            await socket.send_json({"type": "say", "text": LONG, "thread": "cut"})
            while (frame := await socket.receive_json(timeout=20))["type"] != "interrupted":
                told.append(frame["type"])
                if frame["type"] == "text_delta" and told.count("text_delta") == 1:
                    await socket.send_json({"type": "interrupt"})
            await socket.send_json({"type": "say", "text": "And now?", "thread": "cut"})
            while (frame := await socket.receive_json(timeout=20))["type"] != "message_complete":
                assert frame["type"] != "error"
            return told

    assert "message_complete" not in apart(conversation)


def test_a_foreign_page_may_not_talk(served):
    async def knock():
        async with aiohttp.ClientSession() as session:
            foreign = {"Origin": "https://evil.example"}
            async with session.ws_connect(served + "/ws", headers=foreign) as socket:
                return await socket.receive(timeout=10)

    with pytest.raises(aiohttp.WSServerHandshakeError):
        apart(knock)


def test_a_very_long_thread_opens_on_its_end_and_shows_the_rest_when_scrolled(tab, served):
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
    assert page.locator("#conversation :text-is('question 0')").count() == 0
    page.evaluate("document.querySelector('#scroll').scrollTop = 0")
    page.wait_for_selector("#conversation :text-is('question 0')")
    assert page.locator("#conversation > .row").count() < 300
    page.evaluate("document.querySelector('#scroll').scrollTop = 1e9")
    page.wait_for_selector("#conversation :text('the last question')")


def test_what_another_program_writes_appears_by_itself(tab, served):
    page = tab("watched")
    say(page, "I am watching.")
    other = {"type": "say", "thread": "watched", "text": "Somebody else speaks."}
    talk(served, other, answers=12)
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
def test_every_text_stands_out_from_its_ground(browser, served, scheme):
    page = browser.new_page(color_scheme=scheme)
    page.goto(f"{served}/#thread={SAMPLE}")
    page.wait_for_selector(".fold")
    page.click(".commit.compact summary")
    page.wait_for_selector(".commit.compact .removed")
    for subtype in ("warning", "compaction_start"):
        page.evaluate(RECEIVE, {"type": "system", "subtype": subtype, "content": "x"})
    assert [row for row in page.evaluate(FAINT) if row[0] < CONTRAST] == []
    page.close()
