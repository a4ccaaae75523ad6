"""No message, name or error can send control sequences to the terminal.

Every command runs in its own terminal, on a thread with hostile content everywhere. Output to a
pipe is unchanged.
"""

import json
import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import orjson
import pytest

import weft
from servers import Scripted, scripted_upstream
from terminals import run_all_on_terminal, run_on_terminal, run_piped
from weft.cli import main
from weft.model import ToolCall
from weft.printable import clean_line, clean_text, escape_json

HOSTILE = {
    "clear the screen": "\x1b[2J\x1b[H",
    "set the title": "\x1b]0;owned\x07",
    "write to the clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "a link elsewhere": "\x1b]8;;http://evil.example\x1b\\text\x1b]8;;\x1b\\",
    "conceal": "\x1b[8mhidden\x1b[0m",
    "a colour of ours": "\x1b[31mEVIL",
    "blink beside a colour": "\x1b[33;5mblink",
    "eight-bit sequences": "\x9b2J\x9d0;owned\x9c\x90q\x9c",
    "device report": "\x1b[6n\x1bZ",
    "overwrite the line": "innocent\rEVIL",
    "erase": "innocent\x08\x08\x7f",
    "bell and null": "\x07\x00",
    "shift out": "\x0e\x0f",
    "form feed": "\x0b\x0c",
    "another order": "user\u202etxt.exe\u202c",
    "isolates": "\u2066a\u2069\u202ab\u202dc",
    "line separators": "a\u2028b\u2029c",
}
EVIL = " ".join(f"<{name}> words {payload}" for name, payload in HOSTILE.items())
NAME = "evil\x1b[2J\x9b8m\u202e\x1b[31mEVIL"

_OURS = re.compile(r"\x1b\[(?:0|1|2|1;3[12]|3[1-6])m")
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def check(screen: bytes) -> str:
    """What is seen, which must hold nothing but text and colours of ours."""
    text = screen.decode()
    assert "\x1b[31mEVIL" not in text
    match = _UNSAFE.search(_OURS.sub("", text))
    assert match is None, repr(text)[-300:]
    return text


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "store.db"
    with weft.open(path, "other") as thread:
        thread.user(EVIL)
    with weft.open(path) as thread:
        thread.system(EVIL)
        first = thread.commit(
            {"content_type": "dialogue", "role": "user", "text": EVIL, "name": NAME}
        )
        thread.tag("evil-tag")
        thread.note(first.id, EVIL)
        thread.branch("evil-branch")
        call = ToolCall("call_1", NAME, orjson.dumps({NAME: EVIL}).decode())
        thread.commit_message(weft.Message("assistant", (call,)))
        thread.tool_result("call_1", EVIL, is_error=True)
        thread.assistant(EVIL)
        thread.commit({"content_type": "dialogue", "role": "user", "text": EVIL}, EVIL)
        thread.edit(first.id, f"edited {EVIL}")
        thread.compact(keep=1, summary=EVIL)
        thread.user(f"last {EVIL}")
        thread.switch("evil-branch")
        thread.user(f"beside {EVIL}")
        thread.switch("main")
    with closing(sqlite3.connect(path)) as base, base:  # as another program could have written it
        base.execute("UPDATE thread SET name = ? WHERE name = 'other'", (NAME,))
        base.execute("UPDATE ref SET name = replace(name, 'evil', ?)", (NAME,))
    return path


READING = [
    "threads",
    "log",
    "log --graph",
    "show HEAD",
    "show HEAD~1",
    "compile",
    "compile --format openai",
    "compile --format anthropic",
    "diff",
    "diff start HEAD",
    "merge start --preview",
    "search words",
    "recall words",
    "stats",
    "branch",
    "tag",
    "note --list",
    "blame words",
    "versions HEAD",
    "reset HEAD~1 --preview",
    "compact --keep 1 --preview",
    "compact --list",
    "export",
    "export --format archive",
    "export --format openai-chat",
    "export --format dicts",
    "threads --json",
    "log --json",
    "show HEAD --json",
    "search words --json",
    "branch --json",
    "tag --json",
    "fsck",
]


@pytest.fixture(scope="module")
def outputs(store):
    """What each reading command shows; `start` names the hostile branch."""
    commands = [
        [f"{NAME}-branch" if word == "start" else word for word in command.split()]
        for command in READING
    ]
    screen = run_all_on_terminal(store, commands, PAGER="cat", WEFT_THREAD="default")
    return dict(zip(READING, screen, strict=True))


@pytest.mark.parametrize("command", READING)
def test_output_of_a_reading_command_is_clean(outputs, command):
    shown = check(outputs[command])
    assert shown.strip()
    assert "weft:" not in shown  # no error line instead


def test_the_pager_gets_clean_text(store, tmp_path):
    paged = tmp_path / "paged"
    script = tmp_path / "pager.sh"
    script.write_text(f"#!/bin/sh\ncat > {paged}\n")
    script.chmod(0o700)
    for command in ("show HEAD", "log", "recall words"):
        run_on_terminal(store, *command.split(), PAGER=str(script))
        check(paged.read_bytes())


def test_output_of_a_writing_command_is_clean(store, tmp_path):
    copy = tmp_path / "store.db"
    copy.write_bytes(store.read_bytes())
    commands = [["undo"], ["redo"], ["pin", "HEAD"], ["skip", "HEAD"]]
    commands += [["commit", EVIL], ["edit", "HEAD", f"edited {EVIL}"], ["note", "HEAD", EVIL]]
    for screen in run_all_on_terminal(copy, commands, PAGER="cat", WEFT_THREAD="default"):
        assert "weft:" not in check(screen)


WRONG = [
    ("show", NAME),
    ("log", "--thread", NAME + "no"),
    ("switch", NAME + "no"),
    ("log", f"--{NAME}"),
    (NAME,),
    ("import", NAME),
    ("log", "--store", f"{NAME}/x.db"),
    ("search", "nowhere\x1b\x9b\u202e"),
    ("run", "--", NAME),
    ("chat", "--model", NAME, "hi"),
    ("serve", "--host", NAME),
    ("show", NAME, "--json"),
]


def test_an_error_line_is_clean_on_a_terminal(store):
    for words, screen in zip(WRONG, run_all_on_terminal(store, WRONG, PAGER="cat"), strict=True):
        assert "weft" in check(screen) or "error" in check(screen), words


@pytest.mark.parametrize("words", WRONG, ids=range(len(WRONG)))
def test_an_error_line_is_clean_in_a_pipe_too(store, monkeypatch, capsys, words):
    monkeypatch.setenv("WEFT_STORE", str(store))
    with suppress(SystemExit):
        main(words)
    assert check(capsys.readouterr().err.encode())


def test_an_import_prints_clean_names_and_remarks(tmp_path):
    rows = [{"role": "user", "content": EVIL}, {"role": "assistant", "content": EVIL}]
    file = tmp_path / "e\x1b[2Jvil\u202e.json"
    file.write_bytes(orjson.dumps(rows))
    screen = run_on_terminal(tmp_path / "store.db", "import", str(file), PAGER="cat")
    check(re.sub(rb"\r|\x1b\[K", b"", screen))  # the bar of progress


def chat_stream(*texts, tool=None):
    """A stream of Anthropic's with these texts, and a call of a tool if it has a name."""
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    start |= {"stop_reason": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    events = [{"type": "message_start", "message": start}]
    block = {"type": "text", "text": ""}
    events.append({"type": "content_block_start", "index": 0, "content_block": block})
    for text in texts:
        delta = {"type": "text_delta", "text": text}
        events.append({"type": "content_block_delta", "index": 0, "delta": delta})
    events.append({"type": "content_block_stop", "index": 0})
    if tool is not None:
        block = {"type": "tool_use", "id": "toolu_1", "name": tool, "input": {}}
        events.append({"type": "content_block_start", "index": 1, "content_block": block})
        delta = {"type": "input_json_delta", "partial_json": json.dumps({"a": EVIL})}
        events.append({"type": "content_block_delta", "index": 1, "delta": delta})
        events.append({"type": "content_block_stop", "index": 1})
    stop = {"stop_reason": "tool_use" if tool else "end_turn"}
    events.append({"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}})
    events.append({"type": "message_stop"})
    return Scripted(
        *(b"event: %b\ndata: %b\n\n" % (e["type"].encode(), orjson.dumps(e)) for e in events)
    )


@pytest.fixture(scope="module")
def upstream():
    with scripted_upstream() as running:
        yield running


def chat(store, upstream, *words, codes=(0,)):
    arguments = ("chat", "--upstream", f"up=anthropic:{upstream.url}", "--model", "m", *words)
    return run_on_terminal(store, *arguments, codes=codes)


def test_a_chat_cleans_text_and_calls_of_the_model(tmp_path, upstream):
    parts = ("\x1b", "[2J", "\x9b", "2J")  # each harmless by itself
    upstream.then(chat_stream(*HOSTILE.values(), tool=NAME), chat_stream(*parts))
    screen = check(chat(tmp_path / "s.db", upstream, "hi"))
    assert "␛[2J" in screen
    upstream.then(chat_stream(*HOSTILE.values()))
    check(chat(tmp_path / "s.db", upstream, "--json", "hi"))


def test_a_chat_cleans_errors_of_the_upstream(tmp_path, upstream):
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": EVIL}}
    upstream.then(Scripted(orjson.dumps(error), status=400, kind="application/json"))
    check(chat(tmp_path / "s.db", upstream, "hi", codes=(1,)))
    log = run_on_terminal(tmp_path / "s.db", "log", PAGER="cat")
    assert "clear the screen" in check(log)


def test_a_translation_is_clean_on_a_terminal(tmp_path):
    body = {"model": NAME, "max_tokens": 9, "messages": [{"role": "user", "content": EVIL}]}
    file = tmp_path / "body.json"
    file.write_bytes(orjson.dumps(body))
    arguments = ("translate", "--from", "anthropic", "--to", "openai-chat", str(file))
    check(run_on_terminal(tmp_path / "s.db", *arguments))
    check(run_on_terminal(tmp_path / "s.db", *arguments, "--json"))
    piped = run_piped(tmp_path / "s.db", *arguments, errors=True)
    assert orjson.loads(piped)["messages"][0]["content"] == EVIL


def test_a_pipe_gets_every_byte(store, monkeypatch):
    monkeypatch.setenv("WEFT_THREAD", "default")
    exported = orjson.loads(run_piped(store, "export", "--format", "dicts"))
    assert any(EVIL in str(row["content"]) for row in exported)
    rows = orjson.loads(run_piped(store, "log", "--json"))
    assert any(EVIL in str(row) or "\x1b" in str(row["message"]) for row in rows)
    assert "\x1b[2J" in run_piped(store, "compile").decode()


@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE)
def test_cleaning_removes_every_control_sequence_and_no_letter(payload):
    cleaned = clean_text(payload)
    assert _UNSAFE.search(cleaned) is None
    assert re.sub(r"\W", "", payload) in re.sub(r"<U\+[0-9A-F]+>|\W", "", cleaned)
    assert json.loads(escape_json(json.dumps(payload, ensure_ascii=False))) == payload


def test_ordinary_text_is_unchanged():
    text = "plain\n\ttext, 日本語, עברית, e\u0301, 👩\u200d👩\u200d👧, “quotes”"
    assert clean_text(text) == text
    assert clean_text("a\r\nb") == "a\nb"
    assert clean_line("a\nb\tc") == "a␊b␉c"
    assert clean_text("\ud800") == "\ufffd"
