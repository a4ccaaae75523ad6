"""Takes the pictures of the page: a real server, the offline model, a real browser.

Run it with `make images`; names of pictures (`page-live`) take only those. Every picture is of what
a newcomer can do in the first minutes. The picture of a live session has an upstream that stops in
the middle of its answer, because the offline model answers at once.
"""

import json
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from browser import chromium  # noqa: E402
from servers import Scripted, post  # noqa: E402
from serving import serving  # noqa: E402
from slow_upstream import frame, slow_upstream  # noqa: E402

WIDE = {"width": 1440, "height": 900}
NARROW = {"width": 390, "height": 844}
SAMPLE = "sample-nightly-export"


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder)) as url,
        chromium() as browser,
    ):
        if sys.argv[1:] != ["page-live"]:
            take_sample(browser, url)
            take_chat(browser, url)
            take_history(browser, url)
            take_usage(browser, url)
            take_dark(browser, url)
            take_narrow(browser, url)
        take_live(browser)
    print("\n".join(sorted(path.name for path in HERE.glob("*.png"))))


def open_page(browser: Any, url: str, thread: str = SAMPLE, **context: Any) -> Any:
    page = browser.new_context(**{"viewport": WIDE, "device_scale_factor": 1, **context}).new_page()
    page.goto(f"{url}/#thread={thread}")
    page.wait_for_selector("body[data-branch]")
    page.wait_for_selector("#offline", state="hidden")
    return page


def take(page: Any, name: str) -> None:
    page.wait_for_timeout(300)
    page.screenshot(path=HERE / f"{name}.png")


def say(page: Any, words: str) -> None:
    page.fill("#words", words)
    page.press("#words", "Enter")
    page.wait_for_selector("#stop:not([hidden])")
    page.wait_for_selector("#send:not([hidden])")
    page.wait_for_selector(".row.assistant .acts button", state="attached")


def take_sample(browser: Any, url: str) -> None:
    """The sample: its fold in the conversation, the same compaction opened in the log."""
    page = open_page(browser, url)
    page.locator(".fold").scroll_into_view_if_needed()
    page.click(".commit.compact summary")
    page.wait_for_selector(".commit.compact .removed")
    page.locator(".row.pinned").first.evaluate("row => row.scrollIntoView()")
    take(page, "page-sample")
    page.click("#compact")
    page.wait_for_selector("#preview .removed")
    take(page, "page-compact-preview")
    page.context.close()


def take_chat(browser: Any, url: str) -> None:
    """A chat with the offline model: a tool, a compaction by the agent, and taking it back."""
    page = open_page(browser, url, "first-chat")
    say(page, "Our release is on **12 May**, and the budget is 4,200 euros. Remember that.")
    say(page, 'Please use calculate on "4200 / 12"')
    page.click(".tool > summary")
    take(page, "page-tool")
    say(page, "When is our release?")
    say(page, "Please compact the thread.")
    page.wait_for_selector(".commit.compact")
    take(page, "page-compacted")
    page.click(".commit.compact summary")
    page.wait_for_selector(".commit.compact .removed")
    page.click(".commit.compact button")
    page.wait_for_selector(".commit.revert")
    take(page, "page-reverted")
    page.context.close()


def take_history(browser: Any, url: str) -> None:
    """The graph, an earlier commit, a comparison, a merge with a conflict, and a range."""
    page = open_page(browser, url, "deploy")
    say(page, "Deploy the exporter to the **red** cluster on Friday, and tell the team.")
    say(page, "Which checks have to pass before the deployment, and who approves it?")
    edit(page, "Deploy the exporter to the **blue** cluster on Friday, and tell everybody.", "blue")
    say(page, "How do we roll it back if the error rate rises?")
    page.select_option("#branch", "main")
    page.wait_for_selector("body[data-branch=main]")
    edit(page, "Deploy the exporter to the **green** cluster on Friday, and tell the team.")
    say(page, "What does the dashboard show during the deployment?")
    page.click("#tab-graph")
    page.wait_for_selector(".graph-row .ref")
    take(page, "page-graph")
    page.click(".graph-row:has(.ref:text-is('blue'))")
    page.wait_for_selector("#past:not([hidden])")
    take(page, "page-earlier-commit")
    page.click("#graph-commands button:has-text('Compare')")
    page.wait_for_selector(".diff-line.changed")
    take(page, "page-diff")
    page.keyboard.press("Escape")
    page.click("#graph-commands button:has-text('Merge blue')")
    page.wait_for_selector(".conflict")
    page.check(".conflict input[value=theirs]")
    take(page, "page-merge")
    page.click("#merge-commit")
    page.wait_for_selector(".graph-row.kind-merge")
    page.click("#tab-log")
    choose(page, ".row.user >> nth=1", "Start a range here")
    choose(page, ".row.assistant >> nth=2", "Compact the range up to here")
    page.wait_for_selector("#preview .removed")
    take(page, "page-compact-range")
    page.context.close()


def choose(page: Any, row: str, item: str) -> None:
    """Choose an entry of a row's menu."""
    page.locator(row).locator("[data-act=menu]").click()
    page.click(f"#menu [role=menuitem]:has-text('{item}')")


def edit(page: Any, text: str, branch: str = "") -> None:
    """Edit the first question, here or on a new branch."""
    choose(page, ".row.user >> nth=0", "Edit and branch")
    page.fill("#edit-text", text)
    if not branch:
        page.click("#edit-here")
        page.wait_for_selector("#edit-dialog", state="detached")
        return
    page.fill("#edit-branch", branch)
    page.click("#edit-commit")
    page.wait_for_selector(f"body[data-branch={branch}]")
    page.wait_for_selector("#stop:not([hidden])")
    page.wait_for_selector("#send:not([hidden])")


def take_usage(browser: Any, url: str) -> None:
    """What the chat has used."""
    page = open_page(browser, url, "first-chat")
    page.click("#usage")
    page.wait_for_selector(".usage-plot")
    take(page, "page-usage")
    page.context.close()


LIVE_MODEL = "claude-sonnet-4-5"
QUESTION = "The nightly export takes 40 minutes since Monday. Find out why, and fix it."
FIRST = "I will look at the timings of the last runs first."
TIMINGS = """run        rows      seconds
Mon 02:00  1,204,331    2,391
Sun 02:00  1,203,876      184"""
SECOND = """The number of rows is the same, so it is not the amount of data. Between Sunday and
Monday `export.py` lost its **batching**: every row is now a statement of its own.

| run | statements | seconds |
| --- | ---: | ---: |
| Sunday | 1,204 | 184 |
| Monday | 1,204,331 | 2,391 |

I will restore the batches of 1,000 rows and run the tests """
TOOLS = [
    {"name": name, "description": what, "input_schema": {"type": "object"}}
    for name, what in (("Bash", "Runs a command."), ("Edit", "Edits a file."))
]


class Answer(Scripted):
    """An answer with a text and a call; with a gate, it stops before its end."""

    def __init__(self, text: str, id: str, command: str, gate: threading.Event | None = None):
        super().__init__()
        self._text, self._gate = text, gate
        self._call = {"type": "tool_use", "id": id, "name": "Bash"}
        self._input = json.dumps({"command": command})
        self.pieces = self._pieces()  # pyright: ignore[reportAttributeAccessIssue]

    def _pieces(self) -> Iterator[bytes]:
        usage = {"input_tokens": 61_480, "output_tokens": 1}
        facts = {"id": "msg_1", "type": "message", "role": "assistant", "model": LIVE_MODEL}
        yield frame("message_start", {"message": {**facts, "content": [], "usage": usage}})
        for index, block, delta in (
            (0, {"type": "text", "text": ""}, {"type": "text_delta", "text": self._text}),
            (
                1,
                {**self._call, "input": {}},
                {"type": "input_json_delta", "partial_json": self._input},
            ),
        ):
            yield frame("content_block_start", {"index": index, "content_block": block})
            yield frame("content_block_delta", {"index": index, "delta": delta})
            if self._gate is not None and index == 1:
                self._gate.wait(60)
            yield frame("content_block_stop", {"index": index})
        stop = {"delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 212}}
        yield frame("message_delta", stop)
        yield frame("message_stop", {})


def take_live(browser: Any) -> None:
    """A client of the gateway at work: text that streams, a call, and the gauge."""
    gate = threading.Event()
    look, test = "tail -2 runs.log", "pytest -q tests/test_export.py --durations=3"
    first, second = Answer(FIRST, "toolu_1", look), Answer(SECOND, "toolu_2", test, gate)
    with (
        tempfile.TemporaryDirectory() as folder,
        slow_upstream() as upstream,
        serving(Path(folder), f"--upstream=anthropic=anthropic:{upstream.url}") as url,
    ):
        upstream.list_models(LIVE_MODEL)
        upstream.answers[QUESTION] = lambda: first
        upstream.answers[""] = lambda: second
        question = {"role": "user", "content": QUESTION}
        call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": look}}
        content = [{"type": "text", "text": FIRST}, call]
        ask(url, question)
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": TIMINGS}
        answered = {"role": "assistant", "content": content}
        turns = [question, answered, {"role": "user", "content": [result]}]
        asking = threading.Thread(target=ask, args=(url, *turns), daemon=True)
        asking.start()
        page = open_page(browser, url, "slow-export")
        page.wait_for_selector(".live .tool")
        page.wait_for_selector(".live table")
        take(page, "page-live")
        gate.set()
        asking.join()
        page.context.close()


def ask(url: str, *turns: dict[str, Any]) -> None:
    body = {"model": LIVE_MODEL, "max_tokens": 9_000, "stream": True, "tools": TOOLS}
    headers = {"x-weft-thread": "slow-export"}
    post(f"{url}/v1/messages", {**body, "messages": list(turns)}, headers)


def take_dark(browser: Any, url: str) -> None:
    page = open_page(browser, url, color_scheme="dark")
    page.wait_for_selector(".fold")
    take(page, "page-dark")
    page.context.close()


def take_narrow(browser: Any, url: str) -> None:
    page = open_page(browser, url, viewport=NARROW)
    page.wait_for_selector(".fold")
    page.locator(".fold").evaluate("row => row.scrollIntoView()")
    take(page, "page-narrow")
    page.context.close()


if __name__ == "__main__":
    main()
