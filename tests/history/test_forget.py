"""A text is erased in every JSON spelling."""

import json
import sqlite3
from base64 import b64decode, b64encode, urlsafe_b64encode
from contextlib import closing
from pathlib import Path

import pytest

import weft
from weft.errors import StoreError
from weft.history import LiveName
from weft.model import Message, ToolCall
from weft.store import SqliteStore, Store, read_deleted_name
from weft.thread import forget, fsck, gc, undelete

SECRET = 'Straße 🌳 "a/b"\nc'
PLAIN = json.dumps(SECRET)
ROWS = {
    "plain": PLAIN,
    "letters as they are": json.dumps(SECRET, ensure_ascii=False),
    "slashes escaped": PLAIN.replace("/", "\\/"),
    "capitals in escapes": PLAIN.replace("\\u00df", "\\u00DF"),
    "letters escaped without need": PLAIN.replace("S", "\\u0053"),
    "a newline by its number": PLAIN.replace("\\n", "\\u000a"),
}


def without(data: str, text: str) -> str:
    """The arguments of a stored call, after the text was forgotten."""
    with weft.open() as thread:
        thread.commit_message(Message("assistant", (ToolCall("c", "f", data),)))
        forget(thread.store, text)
        with weft.open(thread.store) as fresh:
            return fresh.compile().messages[0].blocks[0].arguments


def test_a_text_of_a_message_is_forgotten() -> None:
    with weft.open() as thread:
        thread.user(f"before {SECRET} after")
        forget(thread.store, SECRET)
        with weft.open(thread.store) as fresh:
            assert fresh.compile().messages[0].text == "before [forgotten] after"


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("name", ROWS)
def test_a_text_is_found_in_every_json_spelling(name: str, depth: int) -> None:
    data = f'{{"before":{json.dumps("x /")},"text":{ROWS[name]},"after":"y"}}'
    for _ in range(depth):
        data = json.dumps({"line": data, "other": "\\u0041 stays"})
    cleaned = without(data, SECRET)
    for _ in range(depth):
        outer = json.loads(cleaned)
        assert outer["other"] == "\\u0041 stays"
        cleaned = outer["line"]
    assert json.loads(cleaned) == {"before": "x /", "text": "[forgotten]", "after": "y"}


def test_other_text_is_unchanged_byte_for_byte() -> None:
    data = '{"text":"a \\\\/ b, a\\\\u002fc and \\\\ude00"}'
    assert without(data, SECRET) == data


def test_forgetting_the_replacement_text_terminates() -> None:
    assert json.loads(without('{"a":"x\\\\/ forgotten"}', "forgotten"))["a"] == "x\\/ [forgotten]"


@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
@pytest.mark.parametrize("before", ["", "x", "xy", "xyz " * 50])
@pytest.mark.parametrize("after", ["", "!", "!!", " and on" * 50])
def test_a_text_inside_base64_removes_all_of_the_base64(encode, before: str, after: str) -> None:
    """No part of the file can be read any more, and the replacement is valid base64."""
    data = encode(f"{before}{SECRET}{after}".encode()).decode()
    line = json.dumps({"data": data, "url": f"data:text/plain;base64,{data}", "other": data[:4]})
    cleaned = json.loads(without(line, SECRET))
    assert b64decode(cleaned["data"]) == b"[forgotten]"
    assert cleaned["url"] == f"data:text/plain;base64,{cleaned['data']}"
    assert cleaned["other"] == data[:4]


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("{0}{0}", "{1}"),  # twice in one file
        ("{0}=, {0}", "{1}, {1}"),  # in two
        ("see {0} and {0}.", "see {1} and {1}."),
        ("{1}", "{1}"),  # the mark itself
    ],
)
def test_every_file_with_the_string_is_removed(line: str, left: str) -> None:
    for secret in ("hunter2-geheim", "[forgotten]"):
        file = b64encode(f"ab {secret} c ".encode()).decode().rstrip("=")
        mark = b64encode(b"[forgotten]").decode()
        data = json.dumps({"a": line.format(file, mark)})
        assert json.loads(without(data, secret)) == {"a": left.format(file, mark)}


def test_a_short_text_is_not_searched_in_base64() -> None:
    """Three characters of base64 occur in every picture."""
    data = json.dumps({"data": b64encode(b"some ab words").decode()})
    assert without(data, "ab") == data


NAME_SECRET = "hunter2"


def named_thread(store: Store) -> weft.Thread:
    """A thread whose names all contain the secret, with names that are no longer used."""
    t = weft.open(store, f"about-{NAME_SECRET}")
    store.describe_thread(t.name, title=f"The key {NAME_SECRET} of Ann")
    t.user("a")
    t.assistant("b")
    t.branch(f"try-{NAME_SECRET}")
    t.switch(f"try-{NAME_SECRET}")
    t.user("c")
    t.tag(f"at-{NAME_SECRET}")
    t.switch("main")
    t.branch(f"old-{NAME_SECRET}")
    t.delete_branch(f"old-{NAME_SECRET}")
    t.tag(f"was-{NAME_SECRET}")
    t.untag(f"was-{NAME_SECRET}")
    return t


def test_unused_names_are_forgotten_and_used_ones_are_listed(store: Store) -> None:
    t = named_thread(store)
    gone = weft.open(store, f"gone-{NAME_SECRET}")
    gone.user("d")
    gone.branch(f"within-{NAME_SECRET}")
    gone.switch(f"within-{NAME_SECRET}")
    gone.delete()
    planned = forget(store, NAME_SECRET, preview=True)
    erased = forget(store, NAME_SECRET)
    assert planned == erased
    assert erased
    live = [
        LiveName("tag", t.name, f"at-{NAME_SECRET}"),
        LiveName("branch", t.name, f"try-{NAME_SECRET}"),
        LiveName("thread", t.name, t.name),
    ]
    assert list(erased.live_names) == live
    assert erased.to_dict()["live_names"] == [
        {"kind": name.kind, "thread": name.thread, "name": name.name} for name in live
    ]
    assert erased.names == 5  # a title, a branch, a tag, a deleted thread and its branch
    record = store.read_thread(t.name)
    assert record is not None
    assert record.title == "The key [forgotten] of Ann"
    [deleted] = store.threads(deleted=True)
    assert read_deleted_name(deleted.name)[0] == "gone-[forgotten]"
    assert deleted.head == "within-[forgotten]"
    assert fsck(store).clean
    assert undelete(store, "gone-[forgotten]").name == "gone-[forgotten]"
    assert weft.open(store, "gone-[forgotten]").current == "within-[forgotten]"
    t.undo()  # the deletion of a tag, under the name that is left of it
    assert "was-[forgotten]" in t.tags()


def test_nothing_is_left_after_names_in_use_are_changed(store: Store, tmp_path: Path) -> None:
    t = named_thread(store)
    forget(store, NAME_SECRET)
    t.rename("plain")
    t.untag(f"at-{NAME_SECRET}")
    t.delete_branch(f"try-{NAME_SECRET}")
    erased = forget(store, NAME_SECRET)
    assert erased.live_names == ()
    gc(store, days=0)
    names = [*t.branches(), *t.tags(), t.name, str(store.operations("plain", limit=100))]
    assert not any(NAME_SECRET in name for name in names)
    assert fsck(store).clean
    if isinstance(store, SqliteStore):
        for path in tmp_path.glob("*"):
            assert NAME_SECRET.encode() not in path.read_bytes(), path


def test_forgotten_names_do_not_collide(store: Store) -> None:
    t = weft.open(store)
    t.user("a")
    for number in range(3):
        t.tag("x" + "secret" * (number + 1))
        t.untag("x" + "secret" * (number + 1))
    forget(store, "secretsecret")
    forget(store, "secret")
    assert fsck(store).clean
    refs = {operation.ref for operation in store.operations(t.name)}
    assert len(refs) == 4
    assert not any("secret" in ref for ref in refs)


def test_a_file_that_another_program_reads_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log cannot be moved into the file while a reader needs the old pages."""
    path = tmp_path / "store.db"
    with weft.open(path) as thread:
        thread.user("the secret 4711")
    monkeypatch.setattr("weft.store.sqlite.BUSY_SECONDS", 0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM commits").fetchall()
        with pytest.raises(StoreError, match=r"erased from every thread.*another program reads"):
            forget(path, "secret 4711")
        assert b"secret 4711" in path.read_bytes()
    assert forget(path, "secret 4711").entries == ()
    assert b"secret 4711" not in path.read_bytes()
