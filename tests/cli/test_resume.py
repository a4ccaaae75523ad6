"""`weft resume`: the session file that it writes, and the client that it starts."""

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import weft
from claude_lines import Session
from weft.model import Message, Text
from weft.store import MemoryStore, open_store
from weft.thread import find_local_thread, write_session

Run = Callable[..., tuple[int, str, str]]
SESSION = "4d5611e5-0000-4000-8000-000000000001"
NEW = "99999999-0000-4000-8000-000000000001"


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    return request.getfixturevalue("postgres")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Homes of the clients, and a folder in which the session's project lies."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    for name in ("project", "elsewhere"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path


def write_claude(home: Path) -> Path:
    session = Session(SESSION)
    folder = str(home / "project")
    for number, text in enumerate(("first", "second")):
        session.user(text, cwd=folder)
        session.says(f"m{number}", f"answer to the {text}", cwd=folder)
    path = home / "old.jsonl"
    path.write_bytes(session.data)
    return path


def write_codex(home: Path) -> Path:
    def item(role: str, kind: str, text: str) -> dict[str, Any]:
        content = [{"type": kind, "text": text}]
        return {"type": "message", "role": role, "content": content}

    folder = str(home / "project")
    rows = [("session_meta", {"session_id": SESSION, "id": SESSION, "cwd": folder})]
    for text in ("first", "second"):
        rows.append(("response_item", item("user", "input_text", text)))
        rows.append(("response_item", item("assistant", "output_text", f"answer to the {text}")))
    lines = [
        {"timestamp": f"2026-01-05T10:00:0{n}.000Z", "type": kind, "payload": payload}
        for n, (kind, payload) in enumerate(rows)
    ]
    path = home / "old.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


WRITERS = {"claude": write_claude, "codex": write_codex}


@pytest.mark.parametrize("client", WRITERS)
def test_a_session_is_written_under_a_new_id(
    run: Run, home: Path, address: str, client: str
) -> None:
    at = ("--store", address)
    old = WRITERS[client](home)
    before = old.read_bytes()
    run("import", str(old), *at)
    log = json.loads(run("log", "--json", *at)[1])
    turn = next(row["id"] for row in log if row["preview"] == "answer to the first")
    code, out, error = run("resume", f"{SESSION[:8]}@{turn[:10]}", "--json", *at)
    assert (code, error) == (0, "")
    result = json.loads(out)
    file = Path(result["file"])
    text = file.read_text()
    assert (result["thread"], result["commit"], result["client"]) == (SESSION, turn, client)
    assert result["folder"] == str(home / "project")
    assert "answer to the first" in text
    assert "second" not in text
    assert SESSION not in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert old.read_bytes() == before
    assert file.is_relative_to(home / client)
    if client == "claude":
        slug = str(home / "project").replace("/", "-").replace("_", "-").replace(".", "-")
        assert file.name == f"{result['session']}.jsonl"
        assert file.parent.name == slug
        lines = [json.loads(line) for line in text.splitlines()]
        assert {line["sessionId"] for line in lines} == {result["session"]}
        assert {line["cwd"] for line in lines} == {str(home / "project")}
        assert result["command"][-3:] == ["claude", "--resume", result["session"]]
    else:
        meta = json.loads(text.splitlines()[0])["payload"]
        assert (meta["id"], meta["session_id"]) == (result["session"], result["session"])
        assert result["command"][-3:] == ["codex", "resume", result["session"]]
    assert result["command"][:2] == ["weft", "run"]
    # The new id is an alias: its file and its name lead to the same thread.
    run("import", str(file), *at)
    assert [row["name"] for row in json.loads(run("threads", "--json", *at)[1])] == [SESSION]
    assert run("log", "--thread", result["session"], *at)[0] == 0


@pytest.mark.parametrize("format", ["claude-code", "codex"])
def test_every_store_links_the_new_session(format: str) -> None:
    store = MemoryStore()
    weft.open(store, "work").user("hello")
    file = write_session(store, "work", format, NEW, folder="/src")
    prefix = format.partition("-")[0]
    assert find_local_thread(store, f"{prefix}-{NEW}") == "work"
    assert (file.session, file.folder) == (NEW, "/src")
    assert NEW.encode() in file.data


PROMPT = "You are a coding agent.\nPrimary working directory: {folder}\nBe careful."


@pytest.mark.parametrize("client", ["claude", "codex"])
def test_a_recorded_session_has_no_system_prompt_and_the_right_folder(
    run: Run, home: Path, client: str
) -> None:
    folder = str(home / "project")
    with weft.open(home / "store.db", f"{client}-{SESSION}") as thread:
        for role, text in [
            ("system", "x-anthropic-billing-header: cc_version=1"),
            ("system", PROMPT.format(folder=folder)),
            ("user", "fix it"),
            ("system", "<total_tokens>9 left</total_tokens>"),
            ("assistant", "done"),
        ]:
            thread.commit_message(Message(role, (Text(text),)))
    for words in (
        ["resume", f"{client}-{SESSION}", "--json"],
        ["export", "--format", "claude-code"],
    ):
        code, out, _ = run(*words)
        text = Path(json.loads(out)["file"]).read_text() if words[0] == "resume" else out
        assert code == 0
        assert "fix it" in text
        assert f'"cwd":"{folder}"' in text
        for absent in ("coding agent", "billing", "total_tokens", "system-reminder"):
            assert absent not in text, words


def test_a_persons_system_message_stays(run: Run, home: Path) -> None:
    with weft.open(home / "store.db", f"claude-{SESSION}") as thread:
        thread.system("answer in French")
        thread.user("hello")
    out = run("export", "--format", "claude-code")[1]
    assert "answer in French" in out
    assert f'"cwd":"{home / "elsewhere"}"' in out  # no folder is known: the current one


def test_a_summary_after_a_system_prompt_starts_the_file(run: Run, home: Path) -> None:
    with weft.open(home / "store.db", f"claude-{SESSION}") as thread:
        thread.commit_message(Message("system", (Text("prompt"),)))
        thread.user("one")
        thread.assistant("two")
        thread.user("three")
        thread.compact(summary="what happened")
    written = json.loads(run("resume", SESSION[:4], "--json")[1])
    lines = [json.loads(line) for line in Path(written["file"]).read_text().splitlines()]
    assert lines[0]["subtype"] == "compact_boundary"
    assert lines[1]["isCompactSummary"] is True


SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]))"


@pytest.mark.parametrize("client", WRITERS)
def test_the_client_is_started_through_the_gateway(run: Run, home: Path, client: str) -> None:
    run("import", str(WRITERS[client](home)))
    program = home / "bin" / client
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{SHOW}\n")
    program.chmod(0o755)
    code, out, error = run("resume", SESSION, "--program", str(program), "--", "--verbose")
    words, folder, environ = json.loads(out)
    assert code == 0
    assert folder == str(home / "project")
    assert environ["ANTHROPIC_BASE_URL"].startswith("http://127.0.0.1:")
    assert words[-1] == "--verbose"
    assert "resume" in words[-3]
    (written,) = [path for path in (home / client).rglob(f"*{words[-2]}.jsonl")]
    assert written.exists()
    assert "no request" in error  # the program asked no model


ARGUMENTS = """
from pathlib import Path
for file in Path("/proc").glob("[0-9]*/cmdline"):
    try:
        print(file.read_bytes().replace(b"\\0", b" ").decode(errors="replace"))
    except OSError:
        pass
"""


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
@pytest.mark.parametrize("config", [None, "", "store = '{store}'\n"])
def test_the_store_is_not_an_argument_of_the_gateway(
    run: Run, home: Path, config: str | None
) -> None:
    """Its URL may contain a password, and others can see the arguments of a process."""
    run("import", str(write_claude(home)))
    program = home / "program"
    program.write_text(f"#!{sys.executable}\n{ARGUMENTS}\n")
    program.chmod(0o755)
    words = ["--program", str(program)]
    if config is not None:
        file = home / "weft.toml"
        file.write_text(config.format(store=home / "store.db"))
        words += ["--config", str(file)]
    code, out, error = run("resume", SESSION, *words)
    assert code == 0, error
    assert " serve --port 0" in out  # the gateway
    assert str(home / "store.db") not in out


def test_the_file_can_be_written_without_starting_the_client(run: Run, home: Path) -> None:
    run("import", str(write_claude(home)))
    for flag in ("--no-start", "--print"):
        code, out, _ = run("resume", SESSION, flag)
        lines = out.splitlines()
        assert code == 0
        assert lines[0].startswith(f"wrote '{SESSION}' as session ")
        assert lines[1].startswith(f"cd {home / 'project'} && weft run -- claude --resume ")


def test_a_missing_folder_is_replaced(run: Run, home: Path) -> None:
    run("import", str(write_claude(home)))
    os.rmdir(home / "project")
    code, out, error = run("resume", SESSION, "--json")
    assert (code, json.loads(out)["folder"]) == (0, str(home / "elsewhere"))
    assert "is gone; starting in the current one" in error
    chosen = json.loads(run("resume", SESSION, "--json", "--folder", str(home))[1])
    assert chosen["folder"] == str(home)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nowhere"], "there is no thread 'nowhere'"),
        (["notes"], "'notes' is not a client's session: choose a client with --client"),
        (["notes@ffff"], "ffff"),
        (["t"], "'t' matches 2 threads"),
        (["notes", "--client", "claude", "--folder", "/nowhere"], "no folder '/nowhere'"),
        (["empty", "--client", "codex"], "is empty"),
    ],
)
def test_a_thread_that_cannot_be_resumed_prints_one_clear_line(
    run: Run, home: Path, words: list[str], line: str
) -> None:
    store = open_store(home / "store.db")
    for name in ("notes", "t1", "t2"):
        weft.open(store, name).user("hello")
    weft.open(store, "empty")
    store.close()
    code, out, error = run("resume", *words)
    assert (code, out) == (1, "")
    assert line in error
    assert error.count("\n") == 1
    assert not (home / "claude").exists()


def test_a_thread_name_with_an_at_sign_is_found(run: Run) -> None:
    run("commit", "hello", "--thread", "me@home")
    run("commit", "hello", "--thread", "other")
    result = json.loads(run("resume", "me@home", "--client", "codex", "--json")[1])
    assert (result["thread"], result["commit"]) == ("me@home", None)
    result = json.loads(run("resume", "me@home@HEAD", "--client", "codex", "--json")[1])
    assert result["commit"] is not None
