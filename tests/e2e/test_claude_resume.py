"""The real Claude Code resumes from files that Weft wrote.

The tests run if `WEFT_CLAUDE` names the native binary of Claude Code and the mock upstream is
available. Nothing leaves this machine.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import weft
from real_clients import (
    CLAUDE_OPTIONS,
    claude_environment,
    claude_folder,
    require_binary,
    run_client,
)
from weft.store import MemoryStore
from weft.thread import export_bytes, import_bytes


class Claude:
    """Claude Code in a home of its own, in front of a mock upstream that logs what it is asked."""

    def __init__(self, binary: str, home: Path, mock: Any) -> None:
        self._binary, self._home, self._mock = binary, home, mock
        self.project = home / "project"
        self.project.mkdir()

    def __call__(self, *words: str) -> str:
        command = [self._binary, *CLAUDE_OPTIONS, "--model", "mock-model", *words]
        return run_client(command, self.project, claude_environment(self._home, self._mock.url))

    @property
    def folder(self) -> Path:
        """Where it keeps the sessions of the project."""
        folder = claude_folder(self._home, self.project)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def asked(self) -> list[dict[str, Any]]:
        """The messages of the newest request."""
        return self._mock.asked("messages")


@pytest.fixture
def claude(tmp_path: Path, request: pytest.FixtureRequest) -> Claude:
    binary = require_binary("WEFT_CLAUDE")
    mock = request.getfixturevalue("mock")  # asked for last: most machines have no binary
    return Claude(binary, tmp_path, mock)


def test_a_resumed_session_has_the_turns_of_a_reverted_compaction(claude: Claude) -> None:
    claude("Please use the tool to print a greeting. QUINCE")
    claude("--continue", "Say hello. MEDLAR")
    claude("--continue", "/compact")
    claude("--continue", "Say hello. SORREL")
    (file,) = claude.folder.glob("*.jsonl")
    assert "QUINCE" not in json.dumps(claude.asked())
    store = MemoryStore()
    (imported,) = import_bytes(store, file.read_bytes())
    assert export_bytes(store, imported.thread, "claude-code")[0] == file.read_bytes()
    thread = weft.open(store, imported.thread)
    thread.revert(next(info for info in thread.log() if info.kind == "compact"))
    file.write_bytes(export_bytes(store, imported.thread, "claude-code")[0])
    assert "MOCK-TEXT-OK" in claude("--resume", file.stem, "Say hello. TANSY")
    asked = json.dumps(claude.asked())
    words = ("QUINCE", "hello-from-tool-42", "MEDLAR", "SORREL", "TANSY")
    assert [word for word in words if word not in asked] == []
    assert "This session is being continued" not in asked


def test_a_thread_created_in_weft_can_be_resumed(claude: Claude) -> None:
    thread = weft.open(thread="own")
    thread.user("Remember the word PLUM.")
    thread.assistant("I remember PLUM.")
    data = export_bytes(thread.store, "own", "claude-code")[0]
    session = json.loads(data.splitlines()[0])["sessionId"]
    (claude.folder / f"{session}.jsonl").write_bytes(data)
    claude("--resume", session, "Say hello.")
    asked = json.dumps(claude.asked())
    assert "Remember the word PLUM." in asked
    assert "I remember PLUM." in asked


def test_edited_added_and_compacted_turns_are_resumed(claude: Claude) -> None:
    claude("Say hello. QUINCE")
    claude("--continue", "Say hello. MEDLAR")
    (file,) = claude.folder.glob("*.jsonl")
    store = MemoryStore()
    (imported,) = import_bytes(store, file.read_bytes())
    thread = weft.open(store, imported.thread)
    ids = thread.compile().ids
    thread.edit(ids[0], "Say hello. DAMSON")
    thread.skip(ids[2])
    thread.user("Added LOVAGE")
    thread.assistant("An answer BORAGE")
    file.write_bytes(export_bytes(store, imported.thread, "claude-code")[0])
    claude("--resume", file.stem, "Say hello. SAVORY")
    asked = json.dumps(claude.asked())
    present = {w: w in asked for w in ("DAMSON", "LOVAGE", "BORAGE", "SAVORY", "QUINCE", "MEDLAR")}
    assert present == {
        "DAMSON": True, "LOVAGE": True, "BORAGE": True, "SAVORY": True,
        "QUINCE": False, "MEDLAR": False,
    }  # fmt: skip


@pytest.mark.parametrize("times", [1, 2])
def test_a_session_compacted_in_weft_is_resumed_from_the_summary(
    claude: Claude, times: int
) -> None:
    claude("Please use the tool to print a greeting. QUINCE")
    claude("--continue", "Say hello. MEDLAR")
    claude("--continue", "Say hello. SORREL")
    (file,) = claude.folder.glob("*.jsonl")
    store = MemoryStore()
    (imported,) = import_bytes(store, file.read_bytes())
    thread = weft.open(store, imported.thread)
    for number in range(times, 0, -1):
        thread.compact(summary=f"They greeted each other. PERRY {number}", keep=number)
    file.write_bytes(export_bytes(store, imported.thread, "claude-code")[0])
    claude("--resume", file.stem, "Say hello. TANSY")
    asked = json.dumps(claude.asked())
    present = {w: w in asked for w in ("PERRY 1", "SORREL", "TANSY", "QUINCE", "MEDLAR", "PERRY 2")}
    assert present == {
        "PERRY 1": True, "SORREL": True, "TANSY": True,
        "QUINCE": False, "MEDLAR": False, "PERRY 2": False,
    }  # fmt: skip
    (grown,) = import_bytes(MemoryStore(), file.read_bytes())
    assert list(grown.branches) == ["main"]
