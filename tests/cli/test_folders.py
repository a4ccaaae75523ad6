"""The project folder of a thread: where it comes from, in lists, and as a filter."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servers import Scripted, post, scripted_upstream, weft_serve
from weft.store import open_store

Run = Callable[..., tuple[int, str, str]]


def claude_file(path: Path, session: str, folder: str) -> Path:
    line = {
        "type": "user", "uuid": f"00000000-0000-0000-0000-0000000{session}", "parentUuid": None,
        "sessionId": f"{session}-0000-0000-0000-000000000000", "cwd": folder,
        "timestamp": "2026-01-01T00:00:00.000Z", "message": {"role": "user", "content": "hi"},
    }  # fmt: skip
    moved = {
        **line, "uuid": f"10000000-0000-0000-0000-0000000{session}", "parentUuid": line["uuid"],
        "cwd": f"{folder}/below",
    }  # fmt: skip
    file = path / f"{session}-0000-0000-0000-000000000000.jsonl"
    file.write_text(f"{json.dumps(line)}\n{json.dumps(moved)}\n")
    return file


def test_imported_sessions_have_their_folder(run: Run, tmp_path: Path) -> None:
    folders = [tmp_path / "app", tmp_path / "app" / "web", tmp_path / "apple"]
    for number, folder in enumerate(folders):
        folder.mkdir()
        file = claude_file(tmp_path, f"{number}0000000", str(folder))
        assert run("import", str(file))[0] == 0
    rows = json.loads(run("threads", "--json")[1])
    assert {row["folder"] for row in rows} == set(map(str, folders))  # where each was started
    of_app = json.loads(run("threads", "--json", "--folder", str(tmp_path / "app"))[1])
    assert {row["folder"] for row in of_app} == set(map(str, folders[:2]))
    code, out, err = run("threads", "--folder", "/nowhere")
    assert (code, out) == (0, "")
    assert "no thread belongs to '/nowhere'" in err


CLAUDE = "# Environment\nYou are here: \n - Primary working directory: /srv/app\n - Platform: linux"
CODEX = "<environment_context>\n  <cwd>/srv/app</cwd>\n</environment_context>"
HELLO = {"role": "user", "content": "hello"}
REQUESTS = {
    "Claude Code, newer models": (
        "/v1/messages",
        {"max_tokens": 9, "messages": [HELLO, {"role": "system", "content": CLAUDE}]},
    ),
    "Claude Code, older models": (
        "/v1/messages",
        {"max_tokens": 9, "messages": [{"role": "user", "content": [
            {"type": "text", "text": f"<system-reminder>\n{CLAUDE}\n</system-reminder>"},
            {"type": "text", "text": "hello"}]}]},
    ),
    "Codex": (
        "/v1/responses",
        {"input": [{"type": "message", "role": role, "content": [
            {"type": "input_text", "text": text}]}
            for role, text in (("developer", "be brief"), ("user", CODEX), ("user", "hello"))]},
    ),
    "opencode": (
        "/v1/chat/completions",
        {"messages": [{"role": "system", "content": "<env>\n Working directory: /srv/app\n</env>"},
                      HELLO]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("client", REQUESTS)
def test_recorded_sessions_have_their_folder(tmp_path: Path, client: str) -> None:
    path, body = REQUESTS[client]
    with scripted_upstream() as upstream:
        upstream.then(Scripted(b"{}", status=500, kind="application/json"))
        with weft_serve(tmp_path, "--upstream", f"u=openai-chat:{upstream.url}") as gateway:
            post(gateway.url + path, {"model": "m", **body})
    store = open_store(str(tmp_path / "weft.db"))
    assert [record.folder for record in store.threads()] == ["/srv/app"]
    store.close()


def test_an_archive_keeps_the_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("import", str(claude_file(tmp_path, "50000000", str(tmp_path))))
    archive = str(tmp_path / "all.weft")
    assert run("export", "--all", "-o", archive)[0] == 0
    monkeypatch.setenv("WEFT_STORE", str(tmp_path / "other.db"))
    assert run("import", archive)[0] == 0
    rows: list[dict[str, Any]] = json.loads(run("threads", "--json")[1])
    assert [row["folder"] for row in rows] == [os.fspath(tmp_path)]
