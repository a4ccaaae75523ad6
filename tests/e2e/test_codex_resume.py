"""The real Codex resumes from rollouts that Weft wrote.

The tests run if `WEFT_CODEX` names the native binary of Codex and the mock upstream is available.
Nothing leaves this machine.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import weft
from real_clients import (
    CODEX_OPTIONS,
    codex_environment,
    configure_codex,
    require_binary,
    run_client,
)
from weft.store import MemoryStore
from weft.thread import export_bytes, import_bytes


class Codex:
    """Codex in a home of its own, in front of a mock upstream that logs what it is asked."""

    def __init__(self, binary: str, folder: Path, mock: Any) -> None:
        self._binary, self._mock = binary, mock
        self._home, self.project = folder / "codex", folder / "my project"
        self._home.mkdir()
        self.project.mkdir()
        self.configure("mock")

    def configure(self, name: str, limit: int = 30000) -> None:
        """Give the provider a name (Codex leaves compaction to one that is called OpenAI), and
        the tokens above which it compacts."""
        limits = f"model_context_window = 200000\nmodel_auto_compact_token_limit = {limit}"
        configure_codex(self._home, self._mock.url, limits, name=name)

    def __call__(self, *words: str) -> str:
        command = [self._binary, "exec", *CODEX_OPTIONS, *words]
        return run_client(command, self.project, codex_environment(self._home))

    def rollouts(self) -> list[Path]:
        """The files of its sessions."""
        return sorted((self._home / "sessions").rglob("rollout-*.jsonl"))

    def keep(self, data: bytes) -> str:
        """Put a rollout where it keeps its own; the id of its session."""
        session = json.loads(data.splitlines()[0])["payload"]["id"]
        folder = self._home / "sessions" / "2026" / "01" / "02"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"rollout-2026-01-02T03-04-05-{session}.jsonl").write_bytes(data)
        return session

    def asked(self) -> list[dict[str, Any]]:
        """The items of the newest request."""
        return self._mock.asked("input")


@pytest.fixture
def codex(tmp_path: Path, request: pytest.FixtureRequest) -> Codex:
    binary = require_binary("WEFT_CODEX")
    mock = request.getfixturevalue("mock")  # asked for last: most machines have no binary
    return Codex(binary, tmp_path, mock)


@pytest.mark.parametrize("provider", ["mock", "OpenAI"])
def test_a_resumed_session_has_the_turns_of_a_reverted_compaction(
    codex: Codex, provider: str
) -> None:
    codex.configure(provider)
    codex("Please use the tool to print a greeting. QUINCE")
    codex("resume", "--last", "Say hello. MEDLAR [[tokens:40000]]")
    codex("resume", "--last", "Say hello. SORREL")
    (file,) = codex.rollouts()
    assert "hello-from-tool-42" not in json.dumps(codex.asked())
    store = MemoryStore()
    (imported,) = import_bytes(store, file.read_bytes())
    assert export_bytes(store, imported.thread, "codex")[0] == file.read_bytes()
    thread = weft.open(store, imported.thread)
    thread.revert(next(info for info in thread.log() if info.kind == "compact"))
    file.write_bytes(export_bytes(store, imported.thread, "codex")[0])
    codex.configure(provider, 150000)  # what was too long would be folded again
    codex("resume", "--last", "Say hello. TANSY")
    asked = json.dumps(codex.asked())
    words = ("QUINCE", "hello-from-tool-42", "MEDLAR", "SORREL", "TANSY")
    assert [word for word in words if word not in asked] == []
    assert "Another language model" not in asked
    assert "MOCK-SUMMARY" not in asked
    assert '"type": "compaction"' not in asked


def test_a_thread_created_in_weft_can_be_resumed(codex: Codex) -> None:
    thread = weft.open(thread="own")
    thread.user("Remember the word PLUM.")
    thread.assistant("I remember PLUM.")
    session = codex.keep(export_bytes(thread.store, "own", "codex")[0])
    codex("resume", session, "Say hello.")
    asked = json.dumps(codex.asked())
    assert "Remember the word PLUM." in asked
    assert "I remember PLUM." in asked


CONTEXTS = ("You are Codex, a coding", "<environment_context>", "# AGENTS.md instructions", "STORK")


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_recorded_conversation_is_resumed_without_a_second_prompt(
    codex: Codex, is_compacted: bool
) -> None:
    """What the gateway records are requests, with the prompts and the context of Codex in them."""
    (codex.project / "AGENTS.md").write_text("Always greet the STORK.\n")
    codex("Please use the tool to print a greeting. QUINCE")
    codex("resume", "--last", "Say hello. MEDLAR")
    for word in ("SORREL", "TANSY"):
        before = json.dumps(codex.asked())
        store = MemoryStore()
        import_bytes(store, json.dumps({"input": codex.asked()}).encode(), thread="recorded")
        thread = weft.open(store, "recorded")
        thread.assistant("hello")
        if is_compacted:
            thread.compact(summary="They greeted each other. PERRY", keep=1)
        session = codex.keep(export_bytes(store, "recorded", "codex")[0])
        codex("resume", session, f"Say hello. {word}")
        asked = json.dumps(codex.asked())
        assert word in asked
        assert ("PERRY" if is_compacted else "QUINCE") in asked
        assert [(text, asked.count(text)) for text in CONTEXTS] == [(text, 1) for text in CONTEXTS]
        assert asked.count("skills_instructions") == before.count("skills_instructions")


def test_edited_added_and_compacted_turns_are_resumed(codex: Codex) -> None:
    codex("Say hello. QUINCE")
    codex("resume", "--last", "Say hello. MEDLAR")
    (file,) = codex.rollouts()
    store = MemoryStore()
    (imported,) = import_bytes(store, file.read_bytes())
    thread = weft.open(store, imported.thread)
    compiled = thread.compile()
    rollout_ids = {
        word: id
        for id, message in zip(compiled.ids, compiled.messages, strict=True)
        for word in ("QUINCE", "MEDLAR")
        if word in message.text
    }
    thread.edit(rollout_ids["QUINCE"], "Say hello. DAMSON")
    thread.skip(rollout_ids["MEDLAR"])
    thread.user("Added LOVAGE")
    thread.assistant("An answer BORAGE")
    file.write_bytes(export_bytes(store, imported.thread, "codex")[0])
    codex("resume", "--last", "Say hello. SAVORY")
    asked = json.dumps(codex.asked())
    present = {w: w in asked for w in ("DAMSON", "LOVAGE", "BORAGE", "SAVORY", "QUINCE", "MEDLAR")}
    assert present == {
        "DAMSON": True, "LOVAGE": True, "BORAGE": True, "SAVORY": True,
        "QUINCE": False, "MEDLAR": False,
    }  # fmt: skip


@pytest.mark.parametrize("times", [1, 2])
def test_a_rollout_compacted_in_weft_is_resumed_from_the_summary(codex: Codex, times: int) -> None:
    codex("Please use the tool to print a greeting. QUINCE")
    codex("resume", "--last", "Say hello. MEDLAR")
    codex("resume", "--last", "Say hello. SORREL")
    (file,) = codex.rollouts()
    store = MemoryStore()
    (imported,) = import_bytes(store, file.read_bytes())
    thread = weft.open(store, imported.thread)
    for number in range(times, 0, -1):
        thread.compact(summary=f"They greeted each other. PERRY {number}", keep=number)
    file.write_bytes(export_bytes(store, imported.thread, "codex")[0])
    codex("resume", file.stem[-36:], "Say hello. TANSY")
    asked = json.dumps(codex.asked())
    present = {w: w in asked for w in ("PERRY 1", "SORREL", "TANSY", "QUINCE", "MEDLAR", "PERRY 2")}
    assert present == {
        "PERRY 1": True, "SORREL": True, "TANSY": True,
        "QUINCE": False, "MEDLAR": False, "PERRY 2": False,
    }  # fmt: skip
