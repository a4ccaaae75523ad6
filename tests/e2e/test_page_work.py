"""The page in a real browser: retries, many deltas per second, and drag and drop of commits."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import weft.thread
from servers import Scripted
from slow_upstream import HELD_TEXT, HOLD_SECONDS, closing, deltas, opening, streamed

expect = pytest.importorskip("playwright.sync_api").expect

pytestmark = pytest.mark.xdist_group("browser")

MODEL = "scripted-model"
RECEIVE = """(frame) => import(document.querySelector('script[src$="/app.js"]').src).then((page) =>
    Promise.race([page.receive(frame), new Promise((resolve) => setTimeout(resolve, 300))]))"""
"""Hands the page a frame, and waits until it is handled; not for ever, if it waits for a read."""
TIMEOUT_MS = 60_000
"""How long an assertion waits: the machine may be busy."""


def send(page: Any, text: str) -> None:
    """Send a text; the box is emptied when the run begins."""
    page.fill("#model", MODEL)
    page.press("#model", "Tab")
    page.fill("#words", text)
    page.press("#words", "Enter")
    expect(page.locator("#words")).to_have_value("", timeout=TIMEOUT_MS)


class Late(Scripted):
    """An answer that begins when its gate opens."""

    def __init__(self, gate: threading.Event, text: str) -> None:
        super().__init__()
        self._gate, self._text = gate, text
        self.pieces = self._pieces()  # pyright: ignore[reportAttributeAccessIssue]

    def _pieces(self) -> Iterator[bytes]:
        self._gate.wait(HOLD_SECONDS)
        yield from [*opening(), *deltas(self._text), *closing()]


def test_retries_are_shown_while_they_happen_and_stay_with_the_message(url, upstream, new_tab):
    gate, now = threading.Event(), [("retry-after", "0")]
    busy = [Scripted(b"{}", status=status, headers=now) for status in (429, 503)]
    upstream.answers["be patient"] = iter([*busy, Late(gate, "Here I am.")]).__next__
    page = new_tab(url, "patient")
    send(page, "be patient")
    card = page.locator("#conversation [data-subtype=api_retry]")
    text = "503 from mock (service unavailable); retry 2 of 3 in 0 s"
    expect(card).to_contain_text(text, timeout=TIMEOUT_MS)
    gate.set()
    expect(page.locator("#conversation")).to_contain_text("Here I am.", timeout=TIMEOUT_MS)
    expect(page.locator("#send")).to_be_visible(timeout=TIMEOUT_MS)
    expect(card).to_have_count(0, timeout=TIMEOUT_MS)  # the attempts say the same, for good
    attempts = page.locator("#conversation .attempt.old summary")
    reason = "did not answer: too many requests; asked again after 0 s (429)"
    expect(attempts).to_have_count(2, timeout=TIMEOUT_MS)
    expect(attempts.first).to_contain_text(reason)
    expect(page.locator("#conversation .attempt:not(.old)")).to_have_count(0)
    assert page.errors == []


def test_a_message_is_dragged_onto_a_branch_and_the_menu_does_the_same(url, folder, new_tab):
    with weft.thread.open(folder / "weft.db", "dragged") as thread:
        thread.user("The question.")
        thread.branch("side")
        thread.user("Only on main.")
        thread.user("And this one.")
    page = new_tab(url, "dragged")
    rows = page.locator("#conversation > .row")
    expect(rows).to_have_count(3, timeout=TIMEOUT_MS)
    rows.nth(1).hover()
    grip = rows.nth(1).locator(".grip")
    grip.hover()
    page.mouse.down()
    page.mouse.move(400, 300, steps=4)
    target = page.locator("#drop-branches li", has_text="side")
    expect(target).to_be_visible(timeout=TIMEOUT_MS)
    target.hover()
    target.hover()  # the second one makes the browser send `dragover` to the target itself
    page.mouse.up()
    expect(page.locator("#merge-dialog")).to_contain_text("to side", timeout=TIMEOUT_MS)
    expect(page.locator("#drop-branches")).to_have_count(0)
    page.locator("#merge-commit").click()
    expect(page.locator("#branch")).to_have_value("side", timeout=TIMEOUT_MS)
    expect(rows).to_have_count(2, timeout=TIMEOUT_MS)
    expect(rows.nth(1)).to_contain_text("Only on main.")

    # The menu of a message, by keyboard.
    page.locator("#branch").select_option("main")
    expect(rows).to_have_count(3, timeout=TIMEOUT_MS)
    rows.nth(2).focus()
    menu = rows.nth(2).locator("[data-act=menu]")
    menu.focus()
    page.keyboard.press("Enter")
    entry = page.locator("#menu [data-item='Cherry-pick onto side …']")
    expect(entry).to_be_visible(timeout=TIMEOUT_MS)
    entry.press("Enter")
    expect(page.locator("#merge-commit")).to_be_enabled(timeout=TIMEOUT_MS)
    page.locator("#merge-commit").press("Enter")
    expect(page.locator("#branch")).to_have_value("side", timeout=TIMEOUT_MS)
    expect(rows.nth(2)).to_contain_text("And this one.", timeout=TIMEOUT_MS)

    # A commit of the graph, onto the name of a branch in it.
    page.locator("#tab-graph").click()
    commit = page.locator("#graph-list .graph-row", has_text="Only on main.").last
    commit.locator(".grip").drag_to(page.locator("#graph-list .ref[data-branch=side]"))
    expect(page.locator("#merge-dialog")).to_contain_text("to side", timeout=TIMEOUT_MS)
    assert page.errors == []


DELTAS = 1000
COUNT_WORK = """
window.work = {frames: 0, framesOfDeltas: 0, deltas: 0, changes: 0};
const Original = window.WebSocket;
window.WebSocket = class extends Original {
  constructor(...args) {
    super(...args);
    this.addEventListener('message', ({data}) => {
      if (!data.includes('"text_delta"')) return;
      window.work.deltas += 1;
      window.work.framesOfDeltas = window.work.frames;
    });
  }
};
addEventListener('DOMContentLoaded', () => {
  const tick = () => { window.work.frames += 1; requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
  new MutationObserver(() => { window.work.changes += 1; }).observe(
    document.getElementById('conversation'),
    {childList: true, characterData: true, subtree: true},
  );
});
"""


def test_many_deltas_change_the_document_at_most_once_per_frame(url, upstream, new_tab):
    """500 deltas a second: the work of the page depends on its frames, not on the deltas."""
    words = [f"word{number} " for number in range(DELTAS)]
    upstream.answers["be quick"] = lambda: streamed(*words, pause=0.002)
    page = new_tab(url, "quick", script=COUNT_WORK)
    send(page, "be quick")
    page.fill("#words", "typed meanwhile")
    expect(page.locator("#conversation")).to_contain_text(words[-1], timeout=TIMEOUT_MS)
    expect(page.locator("#send")).to_be_visible(timeout=TIMEOUT_MS)
    expect(page.locator("#words")).to_have_value("typed meanwhile")
    # One change for each frame in which text arrived, and a few for the start and the end.
    page.wait_for_function(
        f"""() => window.work.deltas >= {DELTAS}
        && window.work.changes <= window.work.framesOfDeltas + 40""",
        timeout=TIMEOUT_MS,
    )
    assert page.errors == []


def test_a_change_event_while_a_branch_opens_keeps_no_streamed_text(url, upstream, new_tab):
    page = new_tab(url, "left")
    send(page, "hello")
    expect(page.locator("#send")).to_be_visible(timeout=TIMEOUT_MS)
    page.locator("#new-branch").click()
    page.locator("#branch-dialog-text").fill("side")
    page.locator("#branch-dialog-text").press("Enter")
    expect(page.locator("body")).to_have_attribute("data-branch", "side", timeout=TIMEOUT_MS)
    send(page, "HELD on the side")
    rows = page.locator("#conversation")
    expect(rows).to_contain_text(HELD_TEXT, timeout=TIMEOUT_MS)
    held: list[Any] = []
    is_held = True

    def hold(route: Any) -> None:
        if is_held:
            held.append(route)
        else:
            route.continue_()

    page.route("**/api/rows?*branch=main*", hold)
    with page.expect_request("**/api/rows?*branch=main*"):
        page.locator("#branch").select_option("main")
    page.evaluate(RECEIVE, {"type": "changed", "thread": "left"})
    is_held = False
    for route in held:
        route.continue_()
    expect(page.locator("body")).to_have_attribute("data-branch", "main", timeout=TIMEOUT_MS)
    expect(rows).not_to_contain_text(HELD_TEXT, timeout=TIMEOUT_MS)
    upstream.gate.set()
    page.locator("#branch").select_option("side")
    expect(rows).to_contain_text("and the second half.", timeout=TIMEOUT_MS)
    assert page.errors == []
