"""`weft resume` continues sessions of the real clients from any turn.

A client is tested if its variable names the binary and the mock upstream is available. Nothing
leaves this machine.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import weft
from real_clients import CLAUDE_OPTIONS, CODEX_OPTIONS, QUIET, require_binary, run_client
from servers import LAUNCH, SECRETS
from weft.store import open_store

CLIENTS: dict[str, tuple[list[str], list[str]]] = {
    "WEFT_CLAUDE": ([*CLAUDE_OPTIONS], [*CLAUDE_OPTIONS, "--continue"]),
    "WEFT_CODEX": (["exec", *CODEX_OPTIONS], ["exec", *CODEX_OPTIONS, "resume", "--last"]),
}


class Person:
    """Somebody at a terminal with Weft and one client, in a home and a project of their own."""

    def __init__(self, folder: Path, url: str, protocol: str) -> None:
        self.project, self._home = folder / "project", folder / "home"
        self.store = folder / "s.db"
        self._upstream = f"up={protocol}:{url}"
        self.project.mkdir()
        self._home.mkdir()

    def weft(self, *words: str) -> str:
        clean = {name: value for name, value in os.environ.items() if name not in SECRETS}
        for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
            clean.pop(name, None)
        own = {"HOME": str(self._home), "WEFT_STORE": str(self.store), "TERM": "dumb"}
        environment = {**clean, **dict.fromkeys(QUIET, "1"), **own, "NO_PROXY": "*"}
        return run_client([sys.executable, "-c", LAUNCH, *words], self.project, environment)

    def gateway(self) -> list[str]:
        return ["--upstream", self._upstream, "--model", "mock-model"]

    def run(self, *command: str) -> str:
        return self.weft("run", "--store", str(self.store), *self.gateway(), "--", *command)

    def threads(self) -> list[str]:
        """The conversations, without the questions that a client asks beside them."""
        store = open_store(self.store)
        try:
            names = [record.name for record in store.threads()]
        finally:
            store.close()
        return [name for name in names if "." not in name]


@pytest.mark.parametrize("protocol", ["anthropic", "openai-responses"])
@pytest.mark.parametrize("variable", CLIENTS)
def test_a_session_is_resumed_from_an_earlier_turn(
    variable: str, protocol: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    binary = require_binary(variable)
    mock: Any = request.getfixturevalue("mock")  # asked for last: most machines have no binary
    person = Person(tmp_path, mock.url, protocol)
    first, again = CLIENTS[variable]
    person.run(binary, *first, "Please use the tool to print a greeting. QUINCE")
    person.run(binary, *again, "Say hello. MEDLAR")
    (thread,) = person.threads()
    log = json.loads(person.weft("log", "--thread", thread, "--json"))
    answer = next(row for row in log if "MOCK-TOOL-OK" in row["preview"])
    target = f"{thread}@{answer['id'][:12]}"
    written = json.loads(person.weft("resume", target, "--json"))
    data = Path(written["file"]).read_text()
    assert written["folder"] == str(person.project)
    assert "QUINCE" in data
    assert "hello-from-tool-42" in data
    assert "MEDLAR" not in data
    assert "x-anthropic-billing-header" not in data  # nothing of the client's system prompt
    if variable == "WEFT_CLAUDE":
        options = ["--program", binary, *person.gateway(), "--", *first, "Say hello. SORREL"]
        person.weft("resume", target, *options)
    else:  # `codex resume` needs a terminal, `codex exec resume` does not
        words = [*first, "resume", written["session"], "Say hello. SORREL"]
        person.run(binary, *words)
    asked = json.dumps(mock.newest())
    assert "SORREL" in asked
    assert "QUINCE" in asked
    assert "hello-from-tool-42" in asked
    assert "MEDLAR" not in asked
    assert person.threads() == [thread]  # the new session is an alias of the same thread
    shown = person.weft("log", "--thread", thread)
    assert "SORREL" in shown  # HEAD follows the client
    assert "MEDLAR" not in shown


@pytest.mark.parametrize("compacts", ["no", "codex", "weft"])
def test_a_resumed_codex_session_has_one_prompt(
    compacts: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    binary = require_binary("WEFT_CODEX")
    mock: Any = request.getfixturevalue("mock")
    person = Person(tmp_path, mock.url, "openai-responses")
    first = ["exec", *CODEX_OPTIONS, "-m", "gpt-5.5"]  # its prompt is a developer message
    person.run(binary, *first, "Please use the tool to print a greeting. QUINCE")
    limit = ["-c", "model_auto_compact_token_limit=20000"] if compacts == "codex" else []
    person.run(
        binary, *first, *limit, "resume", "--last", "[[tokens:30000]] Please use the tool. MEDLAR"
    )
    (thread,) = person.threads()
    if compacts == "weft":
        person.weft("compact", "--thread", thread, "--summary", "They greeted. PERRY")
    for word in ("SORREL", "TANSY", "LOVAGE"):
        written = json.loads(person.weft("resume", thread, "--json"))
        for question in (f"Say hello. {word}", f"And now? {word}"):
            person.run(binary, *first, "resume", written["session"], question)
            asked = json.dumps(mock.newest())
            assert question in asked
            for text in ("You are Codex, a coding", "<environment_context>"):
                assert asked.count(text) == 1, (text, question)
        assert person.threads() == [thread]
        with weft.open(person.store, thread) as opened:
            prompts = [m.text for m in opened.compile().messages if m.role == "developer"]
        assert len(prompts) == len(set(prompts)), [text[:50] for text in prompts]
        branches = json.loads(person.weft("branch", "--thread", thread, "--json"))
        assert "before-edit" not in json.dumps(branches)
