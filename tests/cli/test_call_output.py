"""Tool calls and results are shown by show, diff, log, compile and search."""

import json
import subprocess
import sys
from pathlib import Path
from unicodedata import combining, east_asian_width

import pytest

import weft
from claude_lines import Session
from weft.cli import main
from weft.model import Message, Redacted, Text, Thinking, ToolCall, ToolResult

CALL = ToolCall("c1", "calculator", '{"a":1}')
RESULT = ToolResult("c1", (Text("42"),))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "store.db"
    monkeypatch.setenv("WEFT_STORE", str(path))
    return path


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (Message("assistant", (CALL,)), 'assistant: [calls calculator {"a":1}]'),
        (
            Message("assistant", (Text("let me see"), CALL)),
            'assistant: let me see\n[calls calculator {"a":1}]',
        ),
        (Message("tool", (RESULT,)), "tool: 42"),
        (Message("user", (RESULT,)), "tool: 42"),  # Anthropic's wire: results are the user's
        (Message("user", (RESULT, Text("go on"))), "user: [result 42]\ngo on"),
        (Message("user", (Text("hi"),), name="ann"), "user (ann): hi"),
    ],
    ids=str,
)
def test_a_message_is_shown_with_its_calls(
    store: Path, capfd: pytest.CaptureFixture[str], message: Message, expected: str
) -> None:
    with weft.open(store) as thread:
        thread.user("how much?")
        thread.commit_message(Message("assistant", (CALL,)))
        id = thread.commit_message(message).id
    main(["show", id])
    assert f"\n\n{expected}\n" in capfd.readouterr().out
    main(["compile"])
    assert f"\n\n{expected}\n" in capfd.readouterr().out
    main(["diff", "main~1"])
    signed = expected.replace("\n", "\n+ ")
    assert f"+ {id[:12]} {signed}\n" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (Message("assistant", (CALL,)), "assistant [calculator: 1]"),
        (Message("assistant", (Text("see"), CALL)), "assistant see [calculator: 1]"),
        (Message("user", (RESULT,)), "tool 42"),
    ],
    ids=str,
)
def test_the_log_has_a_symbol_for_each_call(
    store: Path, capfd: pytest.CaptureFixture[str], message: Message, line: str
) -> None:
    with weft.open(store) as thread:
        thread.commit_message(Message("assistant", (CALL,)))
        thread.commit_message(message)
    main(["log", "-n", "1"])
    assert " ".join(capfd.readouterr().out.split()[1:]) == line


@pytest.mark.usefixtures("store")
def test_an_imported_result_belongs_to_the_tool(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    session = Session()
    session.user("how much?")
    call = {"type": "tool_use", "id": "c1", "name": "calculator", "input": {"a": 1}}
    session.answer("m1", call)
    session.result("c1", "42")
    path = tmp_path / "session.jsonl"
    path.write_bytes(session.data)
    main(["import", str(path)])
    capfd.readouterr()
    main(["show", "HEAD"])
    assert "\ntool: 42\n" in capfd.readouterr().out
    main(["show", "HEAD", "--json"])
    (result_json,) = json.loads(capfd.readouterr().out)["messages"]
    assert result_json == {"role": "user", "content": "42", "results": ["c1"]}
    main(["show", "HEAD^", "--json"])
    (call_json,) = json.loads(capfd.readouterr().out)["messages"]
    assert [call["name"] for call in call_json["calls"]] == ["calculator"]


def columns(text: str) -> int:
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def in_columns(text: str, width: int) -> str:
    """The text, or as much of it as fits beside an ellipsis."""
    if columns(text) <= width:
        return text
    ends = [end for end in range(len(text)) if columns(text[:end]) < width]
    return text[: ends[-1]] + "…"


@pytest.mark.parametrize(
    "text",
    [
        "short",
        "word " * 40,
        "  leading   and \n\t inner\u2028white space " * 4,
        " " * 500 + "words after much white space " * 5,
        "x" * 72,
        "x" * 73,
        "e\u0301" * 60,  # combining characters take no column
        "\u8a9e" * 60,  # wide characters take two
        "plain words and then \u8a9e\u8a9e " * 6,
    ],
)
def test_the_log_shows_the_start_of_a_message(
    store: Path, capfd: pytest.CaptureFixture[str], text: str
) -> None:
    with weft.open(store) as thread:
        thread.user(text)
    main(["log"])
    line = capfd.readouterr().out.rstrip("\n")
    assert line.split(None, 2)[2] == in_columns(" ".join(text.split()), 72)


def test_a_pipe_gets_the_full_output(store: Path) -> None:
    with weft.open(store) as thread, thread.batch():
        for number in range(2000):
            thread.user(f"message {number}")
    script = "from weft.cli import entry; entry()"
    done = subprocess.run([sys.executable, "-c", script, "log"], capture_output=True, check=True)
    assert done.stderr == b""
    assert done.stdout.count(b" message ") == 2000
    failed = subprocess.run([sys.executable, "-c", script, "show", "0000"], capture_output=True)
    assert failed.returncode == 1
    assert failed.stderr.startswith(b"weft: ")


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (Thinking("First I look.\nThen I " + "leap " * 40 + "far.", "sig"), "far."),
        (Thinking("", "sig"), "encrypted"),
        (Redacted("AAAA"), "encrypted"),
    ],
)
def test_thinking_can_be_shown(store, capsys, block, expected):
    with weft.open(store, "main") as t:
        t.user("Where is it?")
        t.commit_message(Message("assistant", (block, Text("Here."))))

    def cli(*words: str) -> str:
        assert main([*words, "--thread", "main"]) == 0
        return capsys.readouterr().out

    assert "thinking" not in cli("compile")
    assert expected in cli("compile", "--reasoning")
    values = json.loads(cli("compile", "--reasoning", "--json"))
    assert expected in values[-1]["thinking"]
    assert values[-1]["content"] == "Here."
    (line,) = [line for line in cli("show", "HEAD").splitlines() if "[thinking" in line]
    assert len(line) < 120
    assert expected in cli("show", "HEAD", "--reasoning")
    shown_json = json.loads(cli("show", "HEAD", "--json"))
    assert expected in shown_json["messages"][0]["thinking"]


@pytest.mark.parametrize("mark", ["pin", "skip"])
def test_a_mark_is_shown_on_the_edited_message(store, capsys, mark):
    def cli(*words: str) -> str:
        assert main([*words]) == 0
        return capsys.readouterr().out

    cli("commit", "one")
    cli("commit", "--role", "assistant", "two")
    cli("edit", "HEAD", "TWO edited")
    marked = cli(mark, "HEAD")
    assert f"{mark}: TWO edited" in marked
    assert "assistant: TWO edited" in cli("show", "HEAD")
    assert json.loads(cli("show", "HEAD", "--json"))["messages"][0]["content"] == "TWO edited"
    with weft.open(store) as t:
        t.edit(t.log()[1].id, "three")
    assert f"{mark}: TWO edited" in cli("log")
