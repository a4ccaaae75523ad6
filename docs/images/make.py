"""Takes the pictures of the page: a real server, the offline model, a real browser.

Run it with `make images`. Every picture is of what a newcomer can do in the first minutes.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from browser import chromium  # noqa: E402
from serving import serving  # noqa: E402

WIDE = {"width": 1440, "height": 900}
NARROW = {"width": 390, "height": 844}
SAMPLE = "sample-nightly-export"


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder)) as url,
        chromium() as browser,
    ):
        take_sample(browser, url)
        take_chat(browser, url)
        take_history(browser, url)
        take_usage(browser, url)
        take_dark(browser, url)
        take_narrow(browser, url)
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
