"""`weft import` and `weft export`: their output, files and exit codes."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from claude_lines import SESSION, Session
from weft.cli import main


@pytest.fixture
def weft(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Any:
    """Run a command on a store of its own; the result is exit code, output and errors."""
    monkeypatch.setenv("WEFT_STORE", str(tmp_path / "store.db"))

    def run(*words: str) -> tuple[int, bytes, bytes]:
        code = main([str(word) for word in words])
        read = capfdbinary.readouterr()
        return code, read.out, read.err

    return run


@pytest.fixture
def session(tmp_path: Path) -> Path:
    session = Session()
    session.user("a")
    session.progress()
    session.says("m1", "b", parent="00000000-0000-4000-8000-00000000dead")
    path = tmp_path / "session.jsonl"
    path.write_bytes(session.data)
    return path


def test_a_session_is_imported_and_exported(weft: Any, session: Path) -> None:
    code, out, err = weft("import", session)
    assert (code, err) == (0, b"")
    lines = out.decode().splitlines()
    assert lines[0] == f"{SESSION}: 2 messages (claude-code), 2 new commits"
    assert "  kept aside: 1 line (1 progress)" in lines
    assert lines[-1].startswith("  bridged: line 3: parent 00000000-0000-4000-8000-00000000dead")
    code, out, err = weft("export", "--thread", SESSION, "--format", "claude-code")
    assert (code, out, err) == (0, session.read_bytes(), b"")


def test_a_list_is_imported_and_exported_without_a_format_option(weft: Any, tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_bytes(b'[ {"role":"user", "content":"a"} ]')
    weft("import", path)
    assert weft("export") == (0, path.read_bytes(), b"")
    weft("commit", "--role", "assistant", "b")
    code, out, err = weft("export")
    assert (code, [row["content"] for row in json.loads(out)], err) == (0, ["a", "b"], b"")


def test_an_import_can_print_json(weft: Any, session: Path) -> None:
    (first,) = json.loads(weft("import", session, "--json")[1])
    assert (first["thread"], first["messages"], first["new"]) == (SESSION, 2, 2)
    assert first["kept"] == {"progress": 1}
    assert first["remarks"][0]["line"] == 3
    (second,) = json.loads(weft("import", session, "--json")[1])
    assert second["new"] == 0


def test_a_list_is_imported_into_the_named_thread_or_one_named_after_the_file(
    weft: Any, tmp_path: Path
) -> None:
    path = tmp_path / "talk.json"
    path.write_text('[{"role": "user", "content": "hello"}]')
    weft("import", path)
    weft("import", path, "--thread", "mine", "--format", "openai-chat")
    names = [row["name"] for row in json.loads(weft("threads", "--json")[1])]
    assert names == ["mine", "talk"]  # the newest first


def test_several_files_are_imported_at_once(weft: Any, session: Path, tmp_path: Path) -> None:
    other = tmp_path / "talk.json"
    other.write_text('{"input": "hello"}')
    imported = json.loads(weft("import", session, other, "--json")[1])
    assert [row["format"] for row in imported] == ["claude-code", "openai-responses"]


def test_an_archive_is_private_and_restores_everything(
    weft: Any, session: Path, tmp_path: Path
) -> None:
    weft("import", session)
    weft("commit", "hello", "--thread", "default")
    out = tmp_path / "all.weft.gz"
    code, output, err = weft("export", "--all", "-o", out)
    assert (code, output.count(b"\n"), err) == (0, 1, b"")
    assert output.startswith(b"wrote ")
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    code, output, _ = weft("import", out, "--store", tmp_path / "second.db")
    assert code == 0
    assert b"2 new commits" in output
    again = tmp_path / "again.weft.gz"
    weft("export", "--all", "-o", again, "--store", tmp_path / "second.db")
    assert again.read_bytes() == out.read_bytes()


@pytest.mark.parametrize("format", ["anthropic", "openai-chat", "openai-responses", "gemini"])
def test_a_body_on_standard_output_is_json(weft: Any, session: Path, format: str) -> None:
    weft("import", session)
    words = ["export", "--thread", SESSION, "--format", format, "--model", "m"]
    code, out, _ = weft(*words)
    assert code == 0
    assert "a" in json.dumps(json.loads(out))


def test_an_export_can_report_what_it_wrote(weft: Any, session: Path, tmp_path: Path) -> None:
    weft("import", session)
    path = tmp_path / "body.json"
    words = ["export", "--thread", SESSION, "--format", "anthropic", "-o", path, "--json"]
    result = json.loads(weft(*words)[1])
    assert result["bytes"] == path.stat().st_size
    assert (result["threads"], result["format"]) == ([SESSION], "anthropic")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["import", "/nowhere.jsonl"], "no such file"),
        (["import", os.devnull], "no message"),
        (["export", "--thread", "nowhere", "--format", "codex"], "no thread 'nowhere'"),
        (["export", "--all", "--format", "codex"], "--all only works with"),
        (["export", "--thread", SESSION, "--format", "codex", "--branch", "x"], "no branch 'x'"),
        (["export", "--format", "codex", "--store", "/nowhere/at/all.db"], "no store at"),
        (["export", "--thread", SESSION, "--format", "codex", "-o", "/nowhere/x"], "no such file"),
    ],
)  # fmt: skip
def test_a_failure_prints_one_clear_line(
    weft: Any, session: Path, words: list[str], line: str
) -> None:
    weft("import", session)
    code, out, err = weft(*words)
    assert (code, out) == (1, b"")
    assert err.startswith(b"weft: ")
    assert err.count(b"\n") == 1
    assert line in err.decode()


def test_an_unreadable_file_creates_no_thread(weft: Any, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    code, _, err = weft("import", bad)
    assert code == 1
    assert b"bad.json: this file is not JSON" in err
    assert b"there is no store" in weft("threads", "--json")[2]
    bad.write_text('{"weft":"archive","version":2}\n{"end":1,"sha256":"0"}\n')
    assert b"bad.json: the archive's bytes do not match" in weft("import", bad)[2]
