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
