"""The message box of the page in a real browser: files by button, drop and paste."""

from base64 import b64decode, b64encode
from urllib.parse import quote

import pytest

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
def page(browser, tmp_path):
    with serving(tmp_path, "--store", str(tmp_path / "weft.db")) as url:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        tab = context.new_page()
        tab.goto(f"{url}/#thread={quote('with files')}")
        tab.wait_for_selector("body[data-branch]")
        tab.wait_for_selector("#offline", state="hidden")
        yield tab
        context.close()


def transfer(page, name, kind, data):
    return page.evaluate_handle(TRANSFER, [name, kind, b64encode(data).decode()])


def chips(page, number):
    """The names of the attached files, when all are uploaded."""
    page.wait_for_function(
        """(number) => {
            const chips = [...document.querySelectorAll('.chip')]
            return chips.length === number && chips.every((c) => !c.innerText.includes('uploading'))
        }""",
        arg=number,
    )
    return page.locator(".chip-name").all_inner_texts()


def test_files_are_attached_by_button_drop_and_paste_and_shown_in_the_message(page):
    page.set_input_files(
        "#attach-input", [{"name": "notes.txt", "mimeType": "text/plain", "buffer": b"some notes"}]
    )
    assert chips(page, 1) == ["notes.txt"]
    hostile = "<img src=x onerror=alert(1)>.png"
    page.dispatch_event(
        "#conversation", "drop", {"dataTransfer": transfer(page, hostile, "image/png", PNG)}
    )
    assert chips(page, 2)[1] == hostile
    page.wait_for_function("() => document.querySelector('.chip img')?.naturalWidth === 1")
    clipboard = transfer(page, "screen.png", "image/png", PNG)
    page.evaluate(
        """(data) => document.querySelector('#words').dispatchEvent(
            new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}))""",
        clipboard,
    )
    assert chips(page, 3)[2] == "screen.png"
    page.click("[aria-label='Remove screen.png']")
    assert len(chips(page, 2)) == 2
    # What no model reads is refused with a reason, and so is what is too large.
    page.set_input_files(
        "#attach-input",
        [{"name": "a.zip", "mimeType": "application/zip", "buffer": b"PK\x03\x04\x00\x00"}],
    )
    page.wait_for_function(
        "() => document.querySelector('#toast').innerText.includes('type that no model reads')"
    )
    page.evaluate(
        """() => {
            const transfer = new DataTransfer()
            transfer.items.add(new File([new Uint8Array(21 * 1024 * 1024)], 'big.png'))
            const input = document.querySelector('#attach-input')
            input.files = transfer.files
            input.dispatchEvent(new Event('change'))
        }"""
    )
    page.wait_for_function(
        "() => document.querySelector('#toast').innerText.includes('big.png is too large')"
    )
    assert len(chips(page, 2)) == 2
    page.fill("#words", "What do you see?")
    page.press("#words", "Enter")
    page.wait_for_selector("#conversation .row.assistant .acts button", state="attached")
    assert page.locator(".chip").count() == 0
    page.wait_for_function(
        "() => document.querySelector('.row.user a.media img')?.naturalWidth === 1"
    )
    assert "notes.txt (text/plain, 10 B)" in page.inner_text(".row.user")
