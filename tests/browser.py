"""Finds a Chromium for the browser tests, or installs Debian's package if possible.

As a program it prints the path, or the reason why there is none, and then exits with 1. Tests that
need a browser are then skipped with the same reason. Playwright's own download is not used, because
Debian's package is available on more machines.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
INSTALL_SECONDS = 600
PAGE_SECONDS = 30
"""How long a test waits for what a page should show: a busy machine is slow."""


def find() -> str | None:
    """The path of a Chromium, if this machine has one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def install() -> str:
    """Install Debian's Chromium; the result is why it could not be, or nothing."""
    if os.name != "posix" or os.geteuid() != 0:
        return "no chromium here, and only root may install one"
    apt = shutil.which("apt-get")
    if apt is None:
        return "no chromium here, and no apt-get to install one"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    steps = ([apt, "update", "-qq"], [apt, "install", "-qq", "-y", "chromium"])
    for step in steps:
        try:
            done = subprocess.run(
                step, env=environment, capture_output=True, text=True, timeout=INSTALL_SECONDS
            )
        except subprocess.TimeoutExpired:
            return f"{' '.join(step)} took longer than {INSTALL_SECONDS} s"
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            return f"{' '.join(step)} failed: {last}"
    return "" if find() else "apt-get installed chromium, but it is not on the path"


@contextmanager
def chromium() -> "Iterator[Browser]":
    """A headless browser with an empty profile; raises `LookupError` where there is none."""
    path = find()
    if path is None:
        raise LookupError("no chromium on this machine; tests/browser.py installs one as root")
    from playwright.sync_api import Error, expect, sync_playwright

    expect.set_options(timeout=PAGE_SECONDS * 1000)
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        except Error as error:
            reason = error.message.splitlines()[0]
            raise LookupError(f"{path} does not start: {reason}") from None
        try:
            yield browser
        finally:
            browser.close()


def main() -> int:
    path = find()
    reason = "" if path else install()
    print(reason or f"chromium: {find()}")
    return 1 if reason else 0


if __name__ == "__main__":
    sys.exit(main())
