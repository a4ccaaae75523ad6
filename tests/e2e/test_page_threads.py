"""Renaming, deleting and restoring threads in the page, in a real browser."""

from contextlib import closing
from functools import partial

import pytest
from playwright.sync_api import expect

import weft
import weft.thread
from pages import assert_nothing_ran, wait_for_text, wait_for_thread, wait_until
from serving import serving
from weft.store import open_store

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("page-threads")


@pytest.fixture(scope="module")
def url(folder):
    with serving(folder, "--store", str(folder / "weft.db")) as address:
        yield address


@pytest.fixture
def tab(new_tab, url):
    return partial(new_tab, url)


@pytest.fixture
def store(folder):
    return str(folder / "weft.db")


def add_thread(store, name, text="hello"):
    with weft.open(store, name) as thread:
        thread.user(text)


def names(store):
    return {record.name for record in weft.threads(store)}


def delete(page):
    page.click("#delete")
    page.wait_for_selector("#delete-dialog[open]")
    page.click("#delete-confirm")
    page.wait_for_selector("#delete-dialog", state="hidden")


def test_a_thread_is_renamed_and_keeps_its_messages_and_model(tab, store):
    add_thread(store, "old name", "the message of the renamed thread")
    page = tab("old name")
    page.fill("#model", "weft-offline")
    page.press("#model", "Tab")
    page.click("#rename")
    expect(page.locator("#rename-dialog-text")).to_have_value("old name")
    page.fill("#rename-dialog-text", "new name")
    page.press("#rename-dialog-text", "Enter")
    wait_for_thread(page, "new name")
    expect(page.locator("#title")).to_have_text("new name")
    wait_for_text(page, "the message of the renamed thread")
    expect(page.locator("#model")).to_have_value("weft-offline")
    page.reload()
    wait_for_thread(page, "new name")
    assert "new name" in names(store)
    assert "old name" not in names(store)


def test_a_name_that_is_taken_is_refused_in_the_dialog(tab, store):
    add_thread(store, "first")
    add_thread(store, "second")
    page = tab("first")
    page.click("#rename")
    page.fill("#rename-dialog-text", "second")
    page.press("#rename-dialog-text", "Enter")
    wait_for_text(page, "second", "#rename-dialog .error")
    expect(page.locator("#rename-dialog")).to_be_visible()
    page.fill("#rename-dialog-text", "third")
    page.press("#rename-dialog-text", "Enter")
    wait_for_thread(page, "third")
    assert {"second", "third"} <= names(store)


def test_nothing_is_deleted_without_confirmation(tab, store):
    add_thread(store, "kept")
    page = tab("kept")
    page.click("#delete")
    page.wait_for_selector("#delete-dialog[open]")
    wait_for_text(page, "kept", "#delete-dialog")
    page.keyboard.press("Enter")  # the focus is on Cancel
    page.wait_for_selector("#delete-dialog", state="hidden")
    expect(page.locator("#title")).to_have_text("kept")
    assert "kept" in names(store)


def test_a_deletion_can_be_undone_immediately(tab, store):
    add_thread(store, "by mistake", "do not lose this")
    page = tab("by mistake")
    delete(page)
    page.wait_for_selector("body:not([data-thread='by mistake'])")
    assert "by mistake" not in names(store)
    expect(page.locator(".thread[data-thread='by mistake']")).to_have_count(0)
    page.click("#toast button:has-text('Undo')")
    wait_for_thread(page, "by mistake")
    wait_for_text(page, "do not lose this")
    assert "by mistake" in names(store)


def test_a_deleted_thread_is_listed_until_it_is_restored(tab, store):
    add_thread(store, "listed", "still here")
    page = tab("listed")
    delete(page)
    page.wait_for_selector("#toast button")  # it is deleted
    page.reload()
    page.click("#deleted > summary")
    row = page.locator("#deleted-list li", has_text="listed")
    row.locator("button").click()
    wait_for_thread(page, "listed")
    wait_for_text(page, "still here")
    expect(row).to_have_count(0)


def test_restoring_a_thread_does_not_overwrite_a_reused_name(tab, store):
    add_thread(store, "twice", "the deleted one")
    page = tab("twice")
    delete(page)
    page.wait_for_selector("#toast button")
    add_thread(store, "twice", "the new one")
    page.click("#toast button:has-text('Undo')")
    wait_for_text(page, "there is a thread 'twice' again", "#toast.error")
    with weft.open(store, "twice") as thread:
        assert thread.compile().messages[0].text == "the new one"


def test_an_unsaved_thread_cannot_be_renamed_or_deleted(tab):
    page = tab("not written yet")
    page.wait_for_selector(".empty")
    expect(page.locator("#rename")).to_be_disabled()
    expect(page.locator("#delete")).to_be_disabled()


def test_a_hostile_name_runs_nothing(tab, store):
    attack = "<img src=x onerror=alert(1)>"
    add_thread(store, attack)
    page = tab(attack)
    delete(page)
    page.wait_for_selector("#toast button")
    page.click("#deleted > summary")
    wait_for_text(page, attack, "#deleted-list")
    assert_nothing_ran(page, ":is(#deleted-list, #toast, #delete-dialog)")


def test_the_buttons_fit_a_phone(tab, store):
    add_thread(store, "on a phone")
    page = tab("on a phone", width=360)
    width = "document.documentElement.scrollWidth"
    wait_until(page, lambda: page.evaluate(width), lambda pixels: pixels <= 360)
    title, hidden = page.locator("#title"), "title => title.scrollWidth - title.clientWidth"
    wait_until(page, lambda: title.evaluate(hidden), lambda pixels: pixels <= 0)
    page.click("#rename")
    page.fill("#rename-dialog-text", "on a small phone")
    page.press("#rename-dialog-text", "Enter")
    wait_for_thread(page, "on a small phone")


def test_an_old_thread_that_is_active_again_is_first_among_many(tab, store):
    add_thread(store, "old and active", "the first words")
    with closing(open_store(store)) as opened:
        for number in range(505):
            weft.thread.open(opened, f"one-off {number}").user("once")
    with weft.open(store, "old and active") as thread:
        thread.user("marmalade")
    page = tab("old and active")
    listed = page.locator("#threads .thread")
    expect(listed.first).to_have_attribute("data-thread", "old and active")
    expect(listed).to_have_count(500)
    page.click("#threads .more")
    wait_until(page, listed.count, lambda count: count > 505)
    page.fill("#search", "marmalade")
    expect(listed).to_have_count(1)
    expect(listed).to_have_attribute("data-thread", "old and active")
