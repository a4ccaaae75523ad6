"""The message box of the page in a real browser: files by button, drop and paste."""

from base64 import b64decode, b64encode

import pytest
from playwright.sync_api import expect

from pages import wait_for_text
from serving import serving

pytestmark = pytest.mark.xdist_group("browser")

PNG = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
TRANSFER = """([name, type, base64]) => {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))
    const transfer = new DataTransfer()
    transfer.items.add(new File([bytes], name, {type}))
    return transfer
}"""


@pytest.fixture
def page(new_tab, tmp_path):
    with serving(tmp_path, "--store", str(tmp_path / "weft.db")) as url:
        yield new_tab(url, "with files")


def transfer(page, name, kind, data):
    return page.evaluate_handle(TRANSFER, [name, kind, b64encode(data).decode()])


def wait_for_chips(page, *names):
    """Wait until these files, and no others, are attached and uploaded."""
    expect(page.locator(".chip-name")).to_have_text(list(names))
    expect(page.locator(".chip:has-text('uploading')")).to_have_count(0)


def test_files_are_attached_by_button_drop_and_paste_and_shown_in_the_message(page):
    page.set_input_files(
        "#attach-input", [{"name": "notes.txt", "mimeType": "text/plain", "buffer": b"some notes"}]
    )
    wait_for_chips(page, "notes.txt")
    hostile = "<img src=x onerror=alert(1)>.png"
    page.dispatch_event(
        "#conversation", "drop", {"dataTransfer": transfer(page, hostile, "image/png", PNG)}
    )
    wait_for_chips(page, "notes.txt", hostile)
    page.wait_for_function("() => document.querySelector('.chip img')?.naturalWidth === 1")
    clipboard = transfer(page, "screen.png", "image/png", PNG)
    page.evaluate(
        """(data) => document.querySelector('#words').dispatchEvent(
            new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}))""",
        clipboard,
    )
    wait_for_chips(page, "notes.txt", hostile, "screen.png")
    page.click("[aria-label='Remove screen.png']")
    wait_for_chips(page, "notes.txt", hostile)
    # A file of an unsupported type is refused with a reason, and so is one that is too large.
    page.set_input_files(
        "#attach-input",
        [{"name": "a.zip", "mimeType": "application/zip", "buffer": b"PK\x03\x04\x00\x00"}],
    )
    wait_for_text(page, "unsupported type", "#toast")
    page.evaluate(
        """() => {
            const transfer = new DataTransfer()
            transfer.items.add(new File([new Uint8Array(21 * 1024 * 1024)], 'big.png'))
            const input = document.querySelector('#attach-input')
            input.files = transfer.files
            input.dispatchEvent(new Event('change'))
        }"""
    )
    wait_for_text(page, "big.png is too large", "#toast")
    wait_for_chips(page, "notes.txt", hostile)
    page.fill("#words", "What do you see?")
    page.press("#words", "Enter")
    page.wait_for_selector("#conversation .row.assistant .acts button", state="attached")
    expect(page.locator(".chip")).to_have_count(0)
    page.wait_for_function(
        "() => document.querySelector('.row.user a.media img')?.naturalWidth === 1"
    )
    wait_for_text(page, "notes.txt (text/plain, 10 B)", ".row.user")
