"""What the tests of the page share: opening a tab, waiting for what it shows, injecting frames.

A page changes when the server, the network and the browser get to it. A test therefore never
asserts what it reads once: it waits, with `expect` or with the functions here.
"""

import os
from collections.abc import Callable
from time import monotonic
from typing import Any
from urllib.parse import quote

from playwright.sync_api import TimeoutError

from browser import PAGE_SECONDS

SLOWDOWN = float(os.environ.get("WEFT_PAGE_SLOW") or 1)
"""How many times slower than this machine the tabs run."""
RECEIVE = """(frames) => import(document.querySelector('script[src$="/app.js"]').src).then((page) =>
    Promise.all([frames].flat().map(page.receive)))"""
"""Hands the page a frame, or a list of them, as if the server had sent it."""
COUNT_ALERTS = "window.pwned = 0; window.alert = () => { window.pwned += 1; };"
INCLUDES = """([selector, text, isWanted]) => {
    const node = document.querySelector(selector)
    return node !== null && node.innerText.includes(text) === isWanted
}"""


def open_tab(
    browser: Any,
    url: str,
    thread: str | None = None,
    *,
    row: str | None = None,
    width: int = 1280,
    height: int = 900,
    script: str = "",
    prepare: Callable[[Any], object] | None = None,
    **options: Any,
) -> Any:
    """Open a thread, or what the page opens by itself, in a new tab with an empty profile.

    `prepare(page)` is called before the page is loaded, and `script` runs before its own scripts.
    `window.pwned` counts scripts that should not run, `page.errors` has the page's own errors, and
    `page.requests` all that it asked for.
    """
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    context.add_init_script(COUNT_ALERTS)
    if script:
        context.add_init_script(script)
    page = context.new_page()
    if SLOWDOWN > 1:
        devtools = context.new_cdp_session(page)
        devtools.send("Emulation.setCPUThrottlingRate", {"rate": SLOWDOWN})
    page.errors, page.requests = [], []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on("request", lambda request: page.requests.append(request.url))
    if prepare is not None:
        prepare(page)
    address = "" if thread is None else f"#thread={quote(thread, safe='')}"
    page.goto(f"{url}/{address}" + (f"&row={row}" if row else ""))
    wait_for_thread(page, thread)
    return page


def wait_for_thread(page: Any, thread: str | None = None, branch: str | None = None) -> None:
    """Wait until this thread is shown and the server sends the page all later changes of it."""
    page.wait_for_function(
        """([thread, branch]) => {
            const data = document.body?.dataset ?? {}
            return data.ready !== undefined
                && (thread === null || data.thread === thread)
                && (branch === null || data.branch === branch)
        }""",
        arg=[thread, branch],
    )


def wait_for_text(page: Any, text: str, selector: str = "#conversation") -> None:
    """Wait until an element shows a text."""
    _wait_for_text(page, text, selector, True)


def wait_for_no_text(page: Any, text: str, selector: str = "#conversation") -> None:
    """Wait until an element is there and does not show a text."""
    _wait_for_text(page, text, selector, False)


def _wait_for_text(page: Any, text: str, selector: str, is_wanted: bool) -> None:
    try:
        page.wait_for_function(INCLUDES, arg=[selector, text, is_wanted])
    except TimeoutError:
        shown = page.locator(selector).all_inner_texts()
        relation = "without" if is_wanted else "with"
        raise AssertionError(f"{selector} is still {relation} {text!r}: {shown}") from None


def wait_until(page: Any, read: Callable[[], Any], wanted: Any) -> Any:
    """Read until the value equals `wanted`, or until `wanted(value)` is true; returns the value.

    For what `expect` cannot read. The page's events are handled between two reads.
    """
    deadline = monotonic() + PAGE_SECONDS
    while True:
        value = read()
        if wanted(value) if callable(wanted) else value == wanted:
            return value
        assert monotonic() < deadline, f"after {PAGE_SECONDS} s it is still {value!r}"
        page.wait_for_timeout(50)


def assert_nothing_ran(page: Any, inside: str = "#conversation") -> None:
    """No script ran, and no element of a message can run one; call it when the message is shown."""
    assert page.locator(f"{inside} :is(img, script)").count() == 0
    assert page.evaluate("window.pwned") == 0
