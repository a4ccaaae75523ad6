"""A sent body is stored in pieces: it is restored byte for byte, and each piece is stored once."""

import json
import math
import sqlite3
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, strategies as st

import weft
from weft.cli import main
from weft.errors import ThreadError, WrongValue
from weft.model import Message, Text
from weft.store import Store, open_store
from weft.thread import (
    CommitInfo,
    SentBodyCache,
    SentRequest,
    Thread,
    encode_sent_body,
    forget,
    fsck,
    gc,
    repair_store,
)

WORDS = st.text(max_size=40) | st.sampled_from(["a string that is long enough to be found", "x"])
VALUES = st.recursive(
    WORDS | st.integers(0, 10**9) | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    spacing = draw(st.sampled_from([None, (",", ":"), (" , ", " : ")]))
    ascii = draw(st.booleans())
    return json.dumps(draw(VALUES), ensure_ascii=ascii, separators=spacing).encode(errors="replace")


def reads(t: Thread, text: str = "go on") -> str | None:
    """One more message; the head that a request for its answer refers to."""
    t.user(text)
    return t.compile().head


def sends(t: Thread, body: bytes, text: str = "go on") -> CommitInfo:
    """One more message, and an answer to a request of these bytes."""
    request = SentRequest(body, "own", "m", reads(t, text))
    return t.commit_message(Message("assistant", (Text("answer"),)), sent=request)


@given(bodies(), bodies(), st.lists(bodies(), max_size=3))
def test_a_body_comes_back_byte_for_byte(body: bytes, before: bytes, known: list[bytes]) -> None:
    for last in (before, body, body[: len(body) // 2].decode(errors="ignore").encode()):
        with weft.open() as t:
            for text in known:
                t.user(text.decode())
            sent = [(sends(t, each), each) for each in (last, body, last)]
            fresh = weft.open(t.store)
            assert [fresh.show(info, sent=True).body for info, _ in sent] == [b for _, b in sent]


@given(st.dictionaries(WORDS, VALUES), VALUES, bodies())
def test_a_body_with_tools_comes_back_byte_for_byte(
    members: dict[str, Any], value: Any, before: bytes
) -> None:
    tools = orjson.dumps(value)
    body = orjson.dumps(members | {"tools": value, "last": "one"})
    with weft.open() as t:
        bodies = (before, body, body.replace(tools, b"1"), body)
        sent = [(sends(t, each), each) for each in bodies]
        fresh = weft.open(t.store)
        assert [fresh.show(info, sent=True).body for info, _ in sent] == [b for _, b in sent]


def written(t: Thread, body: bytes, text: str = "go on") -> list[str]:
    """The new text that is stored for a request."""
    request = SentRequest(body, "own", "m", reads(t, text))
    pieces = encode_sent_body(t.store, t.name, request, SentBodyCache()).pieces
    assert pieces
    return [piece for piece in pieces if isinstance(piece, str)]


@given(VALUES, st.text(min_size=1, max_size=6), bodies())
def test_no_string_is_written_out_in_part(value: Any, secret: str, before: bytes) -> None:
    """A string of a body is stored completely as new text, or not at all."""
    body = orjson.dumps({"value": value, "text": f"so long that it is worth a place {secret}!"})
    part = json.dumps(secret, ensure_ascii=False)[1:-1]
    for last in (before, body.replace(part.encode() + b"!", b"")):
        with weft.open() as t:
            sends(t, last)
            assert all(len(_quotes(piece)) % 2 == 0 for piece in written(t, body))


def _quotes(text: str) -> list[str]:
    """The quotes that begin or end a string."""
    return [sign for sign in text.replace("\\\\", "").replace('\\"', "") if sign == '"']


def test_known_pieces_are_not_stored_again() -> None:
    known = orjson.dumps({"role": "user", "content": "a long line that the thread has already"})
    tools = orjson.dumps([{"name": "t", "description": "something that every request says"}])
    first = b'{"messages":[%b],"tools":%b}' % (known, tools)
    text = "a new line, which the thread has been told as well"
    new = b'{"text":"%b","role":"user"}' % text.encode()
    second = b'{"messages":[%b,%b],"tools":%b}' % (known, new, tools)
    with weft.open() as t:
        sends(t, first)
        assert sum(map(len, written(t, second, text))) < 40


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    addresses = {
        "memory": lambda: None,
        "sqlite": lambda: tmp_path / "weft.db",
        "postgres": lambda: request.getfixturevalue("postgres"),
    }
    opened = open_store(addresses[request.param]())
    yield opened
    opened.close()


def exchange(t: Thread, text: str, answer: str, **more: Any) -> tuple[CommitInfo, bytes]:
    """One turn, asked with a body of our own spelling."""
    t.user(text)
    lines = [{"role": m.role, "text": m.text} for m in t.compile().messages]
    body = json.dumps(
        {"seed": 7, "lines": lines, "end": "an end like any other, after all", **more}
    ).encode()
    request = SentRequest(body, "own", "m", t.compile().head)
    return t.commit_message(Message("assistant", (Text(answer),)), sent=request), body


def test_every_answer_has_its_sent_request(store: Store) -> None:
    t = weft.open(store)
    exchanges = [exchange(t, f'question {n} ünd "so"', f"answer {n}") for n in range(90)]
    assert {weft.open(store).show(info, sent=True).body == body for info, body in exchanges} == {
        True
    }
    cold = exchange(weft.open(store), "from another process", "answer")
    t.compact(keep=4)
    rewritten = exchange(t, "after a compaction", "answer")
    for info, body in (cold, rewritten):
        assert t.show(info, sent=True).body == body
    assert fsck(store).clean
    assert all("lines" not in str(info.to_dict()["metadata"]) for info in t.log())
    assert t.search("like any other, after all") == []  # no model is shown an imprint


def test_a_sent_request_does_not_change_the_thread(store: Store) -> None:
    with_one, without = weft.open(store, thread="a"), weft.open(store, thread="b")
    exchange(with_one, "hello", "hi")
    without.user("hello")
    without.assistant("hi", message="")
    assert with_one.compile().messages == without.compile().messages
    assert with_one.head.tokens == without.head.tokens  # pyright: ignore[reportOptionalMemberAccess]
    assert with_one.log()[1].id == without.log()[1].id


def test_storage_grows_only_by_new_content(store: Store) -> None:
    t = weft.open(store)
    exchange(t, "the story so far: " + "and then, and then. " * 10_000, "answer")
    sizes: list[int] = []
    for n in range(161):
        exchange(weft.open(store) if n % 7 == 0 else t, f"question {n:03}", f"answer {n:03}")
        if n % 20 == 0:
            sizes.append(sum(len(data) for _, data in store.maintenance().entries()))
    grown = [(after - before) / 20 for before, after in pairwise(sizes)]
    assert max(grown) < 1500  # bytes a turn, where a chain began anew as well
    assert sum(grown[4:]) < 2 * sum(grown[:4])


def test_tools_are_stored_once_for_all_threads(store: Store) -> None:
    tools = [{"name": f"t{n}", "schema": {"type": "object", "of": [n] * 20}} for n in range(40)]
    exchanges: list[tuple[str, CommitInfo, bytes]] = []
    for name in ("a", "b", "c"):
        t = weft.open(store, thread=name)
        for number in range(3):
            exchanges.append((name, *exchange(t, f"{name} says {number}", "answer", tools=tools)))
        exchanges.append(
            (name, *exchange(t, f"{name} has other tools", "answer", tools=tools[::-1]))
        )
    entries = [data for _, data in store.maintenance().entries() if b'"t17' in data]
    assert len(entries) == 2
    for name, info, body in exchanges:
        assert weft.open(store, thread=name).show(info, sent=True).body == body
    assert forget(store, "t17")
    for name, info, _ in exchanges:
        with pytest.raises(ThreadError, match="was forgotten"):
            weft.open(store, thread=name).show(info, sent=True)
    assert fsck(store).clean


def pick_from_the_side(t: weft.Thread) -> tuple[CommitInfo, bytes, CommitInfo]:
    """An answer of a branch, the body it was given to, and the same answer brought to `main`."""
    t.user("root")
    t.branch("side")
    t.switch("side")
    info, body = exchange(t, "asked on the side", "answered on the side")
    t.switch("main")
    return info, body, t.cherry_pick(info)


def test_a_repeated_message_keeps_its_sent_request(store: Store) -> None:
    t = weft.open(store)
    info, body, picked = pick_from_the_side(t)
    assert picked.id != info.id
    assert t.show(picked, sent=True).body == body


ODD = {
    "a long number": (b'{"a":123456789012345678901234567890}', 123456789012345678901234567890),
    "no number": (b'{"a":NaN}', None),
    "half a sign": (b'{"a":"\\ud800"}', "\ud800"),
    "a name twice": (b'{"a":1,"a":2}', 2),
}


@pytest.mark.parametrize("name", ODD)
def test_unusual_json_is_restored_exactly(
    name: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    body, value = ODD[name]
    with weft.open(tmp_path / "weft.db") as t:
        head = t.user("hi").id
        answer = t.assistant("ok", sent=SentRequest(body, "own", "m", head))
        shown = t.show(answer, sent=True).to_dict()["body"]["a"]
        assert shown == value or (name == "no number" and math.isnan(shown))
    words = ["show", answer.id, "--sent", "--store", str(tmp_path / "weft.db")]
    assert main(words) == 0
    assert capfdbinary.readouterr().out == body
    assert main([*words, "--json"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["receipt"]["size"] == len(body)


@pytest.mark.parametrize("body", [b"", b'plain "words', b"\xef\xbb\xbf{}", b"[" * 3000])
def test_a_body_that_is_not_json_is_shown_as_text(
    body: bytes, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with weft.open(tmp_path / "weft.db") as t:
        answer = t.assistant("ok", sent=SentRequest(body, "own", "m", t.user("hi").id))
        assert t.show(answer, sent=True).body == body
    words = ["show", answer.id, "--sent", "--store", str(tmp_path / "weft.db")]
    assert main([*words, "--json"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["body"] == body.decode()


def test_bytes_that_are_not_text_are_refused() -> None:
    t = weft.open()
    head = t.user("hi").id
    with pytest.raises(WrongValue, match="sent must be UTF-8"):
        t.assistant("ok", sent=SentRequest(b'{"a":"\xff"}', "own", "m", head))


def test_a_forgotten_text_is_reported_as_forgotten(store: Store) -> None:
    t = weft.open(store)
    first, body = exchange(t, "before", "answer")
    second, _ = exchange(t, "my password is hunter2xyz", "answer")
    third, _ = exchange(t, "after", "answer")
    forget(store, "hunter2xyz")
    t = weft.open(store)
    assert t.show(first, sent=True).body == body
    for info in (second, third):
        with pytest.raises(ThreadError, match=r"entry [0-9a-f]{12}, which .* was forgotten"):
            t.show(info, sent=True)
    fourth, _ = exchange(t, "and on", "answer")
    with pytest.raises(ThreadError, match="was forgotten"):
        t.show(fourth, sent=True)
    assert fsck(store).clean
    assert not any(b"hunter2xyz" in data for _, data in store.maintenance().entries())


def test_a_forgotten_text_that_only_the_body_has_is_reported(store: Store) -> None:
    t = weft.open(store)
    info, _ = exchange(t, "hello", "hi")
    assert forget(store, "an end like any other")
    with pytest.raises(ThreadError, match="was forgotten"):
        t.show(info, sent=True)
    assert fsck(store).clean


def test_pieces_removed_by_gc_are_reported(store: Store) -> None:
    t = weft.open(store)
    _, _, picked = pick_from_the_side(t)
    t.delete_branch("side")
    assert gc(store, days=-1).commits > 0
    with pytest.raises(ThreadError, match="is gone"):
        weft.open(store).show(picked, sent=True)


def test_a_damaged_sent_request_prints_nothing(tmp_path: Path) -> None:
    path = tmp_path / "weft.db"
    with weft.open(path) as t:
        info, _ = exchange(t, "hello", "hi")
    with sqlite3.connect(path) as db:
        db.execute(
            "UPDATE entry SET data = CAST(replace(CAST(data AS TEXT), 'seed', 'need') AS BLOB)"
        )
    db.close()
    with weft.open(path) as t, pytest.raises(ThreadError, match="have changed"):
        t.show(info, sent=True)
    repair_store(path)
    with weft.open(path) as t, pytest.raises(ThreadError, match="was damaged"):
        t.show(info, sent=True)
